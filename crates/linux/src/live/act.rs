//! What [`numaherd_model::Actuate`] means on a running Linux: affinities by way of custody, pages by way of
//! the mover.

use std::collections::BTreeMap;

use numaherd_model::{
    Action, Actuate, CpuSet, NodeId, NodeState, Outcome, ProcessId, SkipReason, TaskId, WorldError,
};

use super::custody::Hands;
use super::migrate::{Destination, Journey};
use super::{LiveMachine, huge, read_error};
use crate::reserve::Spare;
use crate::sys::pages;

/// Indices of the moves of each process to each place.
type Moves = BTreeMap<ProcessId, BTreeMap<Destination, Vec<usize>>>;

impl Actuate for LiveMachine {
    fn apply(&mut self, actions: &[&Action]) -> Result<Vec<Outcome>, WorldError> {
        if !self.acts {
            return Ok(vec![Outcome::Skipped(SkipReason::DryRun); actions.len()]);
        }
        let mut outcomes = vec![Outcome::Skipped(SkipReason::Gone); actions.len()];
        // Moves to one node out of one address space are one call: each call has its price.
        let mut moves = Moves::new();
        for (index, action) in actions.iter().enumerate() {
            outcomes[index] = match action {
                Action::PlaceTask { task, node, cpus, .. } => {
                    self.place(*task, Some((*node, cpus)))?
                }
                Action::ReleaseTask { task, .. } => self.place(*task, None)?,
                Action::MovePages { region, len, to, .. } => {
                    let addresses = region.start..region.start + len.0;
                    let common = self.objects.as_ref();
                    let shared = common.is_some_and(|o| o.has(region.process, &addresses));
                    let reserve = self.accesses.is_of_reserve(region.process, region.start);
                    let to = Destination { node: *to, shared, reserve };
                    let of_process = moves.entry(region.process).or_default();
                    of_process.entry(to).or_default().push(index);
                    continue;
                }
            };
            (self.beat)();
        }
        if !moves.is_empty() {
            self.move_pages(actions, moves, &mut outcomes)?;
        }
        Ok(outcomes)
    }
}

impl LiveMachine {
    /// Pages that each node can take before it comes to its high watermark, as of now: others may
    /// have filled it since the plan was made.
    fn room(&mut self) -> Result<BTreeMap<NodeId, u64>, WorldError> {
        let nodes = self.system.nodes().map_err(read_error)?;
        let above = |node: &NodeState| node.free.0.saturating_sub(node.high_watermark.0);
        Ok(nodes.iter().map(|node| (node.id, above(node))).collect())
    }

    /// Pages that just went to a node: what is free there counts them until it is read again.
    fn arrived(&mut self, to: NodeId, pages: u64) {
        if let Some((_, nodes, _)) = &mut self.nodes
            && let Some(state) = nodes.iter_mut().find(|state| state.id == to)
        {
            state.free.0 = state.free.0.saturating_sub(pages);
        }
    }

    /// Does the moves of each process, given by their indices.
    fn move_pages(
        &mut self,
        actions: &[&Action],
        moves: Moves,
        outcomes: &mut [Outcome],
    ) -> Result<(), WorldError> {
        let mut room = self.room()?;
        // Of the reserve a page that comes takes one that is free there, which others may have been promised.
        let mut spare = Spare::default();
        self.mover.on_cpus(self.topology.cpus().len());
        for (process, mut moves) in moves {
            let now = self.system.monotonic();
            if let Some(why) = self.stays.why(self.system.as_mut(), process, now, &mut self.beat) {
                let alone = Outcome::Skipped(SkipReason::LeftAlone { why: why.into() });
                moves.values().flatten().for_each(|&index| outcomes[index] = alone.clone());
                continue;
            }
            self.leave_owned(actions, process, &mut moves, outcomes);
            self.leave_shared(actions, process, &mut moves, outcomes);
            for (to, indices) in &mut moves {
                let room = room.entry(to.node).or_default();
                indices.retain(|&index| {
                    let Action::MovePages { len, .. } = actions[index] else {
                        return false;
                    };
                    let most = len.pages(pages::size()).0;
                    let is_short = *room < most;
                    let left = || self.system.spare_reserve(to.node);
                    let huge = len.0.div_ceil(huge::BYTES);
                    let what = if is_short {
                        "has become short of memory"
                    } else if to.reserve && !spare.takes(to.node.0, huge, left) {
                        "has no huge page to spare"
                    } else {
                        *room -= most;
                        return true;
                    };
                    let problem = format!("node {} {what}", to.node);
                    let short = is_short.then_some(to.node);
                    outcomes[index] = Outcome::Skipped(SkipReason::Checked { problem, short });
                    false
                });
            }
            let range = |&index: &usize| match actions[index] {
                Action::MovePages { region, len, .. } => region.start..region.start + len.0,
                _ => 0..0,
            };
            let journey = |(to, indices): (&Destination, &Vec<usize>)| Journey {
                to: *to,
                ranges: indices.iter().map(range).collect(),
            };
            let journeys: Vec<Journey> = moves.iter().map(journey).collect();
            let system = self.system.as_mut();
            let told = self.mover.move_all(system, process, &journeys, &mut self.beat);
            for ((to, indices), told) in moves.into_iter().zip(told) {
                for (index, outcome) in indices.into_iter().zip(told) {
                    self.arrived(to.node, outcome.moved().0);
                    outcomes[index] = outcome;
                }
            }
        }
        Ok(())
    }

    /// Takes out moves against a policy that its owner gave memory meanwhile.
    fn leave_owned(
        &mut self,
        actions: &[&Action],
        process: ProcessId,
        moves: &mut BTreeMap<Destination, Vec<usize>>,
        outcomes: &mut [Outcome],
    ) {
        // Page tables tell of no memory with a policy.
        if self.faults.is_none() && !self.accesses.tells_all() {
            return;
        }
        let now = self.system.monotonic();
        self.owned.look(self.system.as_mut(), process, now, &mut self.walks);
        let now = self.system.monotonic();
        for (to, indices) in moves.iter_mut() {
            indices.retain(|&index| {
                let Action::MovePages { region, len, .. } = actions[index] else { return true };
                let piece = region.start..region.start + len.0;
                let Some(outcome) = self.owned.keeps(process, &piece, to.node, now) else {
                    return true;
                };
                outcomes[index] = outcome;
                false
            });
        }
    }

    /// Takes out moves of memory that others map too, if one of those has it stay: its pages are the same.
    pub(super) fn leave_shared(
        &mut self,
        actions: &[&Action],
        process: ProcessId,
        moves: &mut BTreeMap<Destination, Vec<usize>>,
        outcomes: &mut [Outcome],
    ) {
        let mut asked: BTreeMap<ProcessId, Option<&'static str>> = BTreeMap::new();
        for (_, indices) in moves.iter_mut().filter(|(to, _)| to.shared) {
            indices.retain(|&index| {
                let Action::MovePages { region, len, .. } = actions[index] else { return true };
                let Some(objects) = &self.objects else { return true };
                let others = objects.others(process, &(region.start..region.start + len.0));
                let stays = others.into_iter().find_map(|other| {
                    let (system, stays) = (self.system.as_mut(), &mut self.stays);
                    let why = asked.entry(other).or_insert_with(|| {
                        (self.beat)();
                        let now = system.monotonic();
                        stays.why(system, other, now, &mut self.beat)
                    });
                    why.map(|why| format!("process {} maps it too: {why}", other.tgid))
                });
                let Some(why) = stays else { return true };
                outcomes[index] = Outcome::Skipped(SkipReason::Held { why });
                false
            });
        }
    }

    fn place(
        &mut self,
        task: TaskId,
        to: Option<(NodeId, &CpuSet)>,
    ) -> Result<Outcome, WorldError> {
        let Some(&process) = self.processes.get(&task) else {
            return Ok(Outcome::Skipped(SkipReason::Gone));
        };
        let (system, journal) = (self.system.as_mut(), self.journal.as_mut());
        let mut hands = Hands { system, journal, parents: &self.parents, acts: self.acts };
        self.custody.place(&mut hands, (task, process), to)
    }
}
