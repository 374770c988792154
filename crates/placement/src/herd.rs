//! Herd, our placement: brings tasks that share memory together on one node, spreads those
//! that share nothing, has memory follow, and then holds still.
//!
//! Ideas: numa/core's directed convergence and task flipping (Molnar 2012), mainline's groups
//! by shared faults; here as one assignment problem solved anew for each snapshot
//! ([`crate::demand`], [`crate::search`]).
//!
//! It waits until most busy tasks have evidence ([`waits`]), places everybody it knows (where tasks crowd,
//! those already right are held, lest the kernel's balancing take them away), and sends regions
//! after them ([`crate::pages`]). A placed task moves again only for a clear gain and not
//! within [`SETTLE`] of its last move.

use numaherd_model::{
    Action, CONVERGED_PERMILLE, Nanos, Pages, Placement, Plan, Reason, Snapshot, Task,
};

use crate::bandwidth::Bandwidth;
use crate::bundles::Indices;
use crate::demand::{Demand, SHARE, SLIT_UNIT};
use crate::mechanisms::Mechanisms;
use crate::outlook::Outlook;
use crate::{bundles, early, horizon, interleave, level, pages, relief, search, turns, whole};
use known::Known;
use reason::reason;
use rest::Rest;

mod known;
mod reason;
mod rest;
mod waits;

/// How long a placed task stays, whatever the evidence says. Guessed: pages need a second or
/// two to follow, and until they have the evidence is of the old placement.
const SETTLE: Nanos = Nanos(2_000_000_000);

/// What moving a task has to save, in weight × distance: 4 % of a busy task over SLIT 21, so 8 %
/// where two change places, and less where there is less to lose ([`crate::lost`]). Guessed, above the noise of a thousand faults.
const TASK_COST: u64 = SHARE / 100 * 4 * 11 * SLIT_UNIT;

/// The same once everybody has been placed, as a multiple. Guessed: what a few scans of a handful of
/// huge pages show goes up and down by a tenth, and a move for that costs more than it brings (shared).
const PLACED_COST: u64 = 3;

/// How long a task is waited for, since we have known it, until it has shown where its memory is
/// and whether it shares it. Guessed: a few of the kernel's scans.
pub const PATIENCE: Nanos = Nanos(4_000_000_000);

/// The same for a task that does not claim a CPU: it may be about to. Guessed.
const IDLE_PATIENCE: Nanos = Nanos(1_000_000_000);

/// With nothing to do for this long, all has converged, however little is local: memory that
/// several nodes use, or that cannot be moved, stays remote. Guessed: several passes of the
/// kernel's scan while it is quick. Where hardly anything is misplaced [`SETTLE`] is enough: then quick scans
/// bring nothing more, and send what several nodes use to and fro.
const QUIET: Nanos = Nanos(4_000_000_000);

/// With nobody and nothing of one node's to move for this long, what several nodes use is shared out. Guessed:
/// a few passes of the kernel's scan while it is quick.
const CALM: Nanos = Nanos(1_000_000_000);

/// After faults told of another phase, nothing has converged for this long: a few who changed places do
/// not show yet. Guessed: several passes of the kernel's scan while it is quick.
const WATCHFUL: Nanos = Nanos(2_000_000_000);

/// Herd's memory between snapshots.
#[derive(Debug)]
pub struct Herd {
    mechanisms: Mechanisms,
    /// Since when nothing was to do.
    quiet_since: Option<Nanos>,
    /// The same, but for memory that is being shared out.
    calm_since: Option<Nanos>,
    /// One for each task of the last snapshot, in its order.
    tasks: Vec<Known>,
    rest: Rest,
    /// Since when those whose memory is known have waited for others.
    held_up_since: Option<Nanos>,
    /// When faults told of another phase.
    stirred_at: Option<Nanos>,
    /// When it was last looked who is away.
    turns_at: Option<Nanos>,
}

impl Herd {
    /// The whole of it.
    #[must_use]
    pub fn new() -> Herd {
        Herd::with(Mechanisms::default())
    }

    /// With only these of its parts.
    #[must_use]
    pub fn with(mechanisms: Mechanisms) -> Herd {
        Herd {
            mechanisms,
            quiet_since: None,
            calm_since: None,
            tasks: Vec::new(),
            rest: Rest::default(),
            held_up_since: None,
            stirred_at: None,
            turns_at: None,
        }
    }

    /// Places tasks and leaves pages to the kernel: for measuring what each part is worth.
    #[must_use]
    pub fn tasks_only() -> Herd {
        Herd::with(Mechanisms { pages: false, ..Mechanisms::default() })
    }

    fn remember(&mut self, moves: &[Action], snapshot: &Snapshot) {
        let now = snapshot.time;
        self.rest.forget_old(now);
        let mut indices = Indices::new(snapshot);
        for action in moves {
            match action {
                Action::MovePages { region, .. } => self.rest.moved(*region, now),
                Action::PlaceTask { task, .. } => {
                    if let Some(i) = indices.of(*task) {
                        self.tasks[i].placed_at = Some(now);
                    }
                }
                Action::ReleaseTask { .. } => {}
            }
        }
    }

    /// Forgets tasks that the snapshot does not have, and meets those that are new.
    fn meet(&mut self, snapshot: &Snapshot) {
        let mut before = std::mem::take(&mut self.tasks).into_iter().peekable();
        let meet = |task: &Task| {
            while before.next_if(|known| known.id < task.id).is_some() {}
            let known = before.next_if(|known| known.id == task.id);
            let mut known = known.unwrap_or_else(|| Known::new(task, snapshot));
            known.waits.see(task, snapshot.time);
            known
        };
        self.tasks = snapshot.tasks.iter().map(meet).collect();
    }

    /// How long we have known a task.
    fn known_for(&self, task: usize, now: Nanos) -> Nanos {
        now.since(self.tasks[task].first_seen)
    }

    /// Whether every busy task has a place, or none to choose, or has long not shown where its
    /// memory is.
    fn nobody_is_left(&self, demand: &Demand, now: Nanos, crowded: bool) -> bool {
        demand.tasks.iter().enumerate().all(|(i, task)| {
            let known = demand.is_known(i);
            let patience = if task.claims_cpu { PATIENCE } else { IDLE_PATIENCE };
            let settled =
                if known { task.placed || !crowded } else { self.known_for(i, now) >= patience };
            settled || !demand.has_choice(i)
        })
    }

    fn settled(&self, task: usize, now: Nanos) -> bool {
        self.tasks[task].placed_at.is_none_or(|at| now.since(at) >= SETTLE)
    }
}

impl Default for Herd {
    fn default() -> Self {
        Herd::new()
    }
}

impl Placement for Herd {
    fn decide(&mut self, snapshot: &Snapshot) -> Plan {
        self.meet(snapshot);
        if snapshot.stirred {
            self.stirred_at = Some(snapshot.time);
            self.rest.forget_shares();
        }
        let told = self.told(snapshot);
        let snapshot = told.as_ref().unwrap_or(snapshot);
        let demand = self.demand(snapshot);
        let today = demand.today();
        for (known, &node) in self.tasks.iter_mut().zip(&today) {
            known.is_on(node, snapshot.time);
        }
        let strength_permille = demand.strength_permille(&today);
        let mut actions = self.releases(&demand, snapshot);
        let waiting = self.waits(&demand, snapshot);
        if waiting.is_some() {
            actions.extend(self.early(&demand, &today, snapshot));
            return Plan { actions, strength_permille, waiting, ..Plan::default() };
        }
        let (at, outlook) = self.assign(&demand, &today, snapshot);
        let crowded = self.holds(&demand);
        actions.extend(self.placements(&demand, &outlook, &at, |_| crowded, snapshot.time));
        let stays = |i: usize| {
            let held = crowded || demand.tasks[i].placed || at[i] != today[i];
            held || !self.tasks[i].is_restless(snapshot.time)
        };
        let mut follow = pages::follow(snapshot, &demand, &outlook, |b| {
            let memory = outlook.of(b).memory;
            let there = |user: &&(usize, u64)| demand.beside[at[user.0]] == memory && stays(user.0);
            demand.bundles[b].users.iter().filter(there).map(|user| user.1).sum()
        });
        follow.retain(|action| self.rest.may_move(action, snapshot.time));
        if self.mechanisms.interleave {
            follow.extend(self.gathered(snapshot, &demand, &outlook, &follow));
        }
        if !self.mechanisms.pages {
            follow.clear();
        }
        let calm = actions.is_empty() && follow.is_empty();
        self.calm_since = if calm { self.calm_since.or(Some(snapshot.time)) } else { None };
        let shared = self.shared_out(snapshot, &demand, &outlook);
        self.rest.shared(&shared, snapshot);
        follow.extend(shared);
        actions.extend(follow);
        self.remember(&actions, snapshot);
        let mut plan = Plan { actions, strength_permille, ..Plan::default() };
        plan.misplaced_permille = demand.misplaced_permille(&at, &outlook);
        let left = !self.nobody_is_left(&demand, snapshot.time, crowded);
        let quiet = plan.actions.is_empty() && !left;
        self.quiet_since = if quiet { self.quiet_since.or(Some(snapshot.time)) } else { None };
        plan.converged = quiet && self.is_enough(&plan, self.quiet_since, snapshot.time);
        plan.calm = calm && !left && self.is_enough(&plan, self.calm_since, snapshot.time);
        let local = plan.strength_permille >= CONVERGED_PERMILLE;
        if (plan.converged || plan.calm) && !local && self.may_find_teams(snapshot) {
            (plan.converged, plan.calm) = (false, false);
        }
        // Whoever takes turns has converged all the same.
        plan.actions.extend(self.turns(&demand, &outlook, snapshot.time, quiet));
        plan
    }
}

impl Herd {
    fn demand(&mut self, snapshot: &Snapshot) -> Demand {
        let mut demand = Demand::with(snapshot, self.mechanisms);
        if self.mechanisms.bandwidth {
            let peak = |task: usize, bytes| {
                self.tasks[task].peak(bytes, snapshot.tasks[task].age, snapshot.time)
            };
            demand.bandwidth = Bandwidth::new(snapshot, &mut demand.tasks, peak);
        }
        demand
    }

    /// The snapshot without what is not known well enough to be placed ([`whole`]); `None` where all is.
    fn told(&mut self, snapshot: &Snapshot) -> Option<Snapshot> {
        whole::told(snapshot, |told| {
            let demand = self.demand(told);
            self.assign(&demand, &demand.today(), told).0
        })
    }

    /// Who is placed before it is known how far memory is shared, with something known of everybody. It may
    /// turn out otherwise, so they need not stay.
    fn early(&self, apart: &Demand, today: &[usize], snapshot: &Snapshot) -> Vec<Action> {
        let assign = |shared: &Demand| self.assign(shared, today, snapshot).0;
        let Some(early) = early::assigned(snapshot, apart, today, self.mechanisms, assign) else {
            return Vec::new();
        };
        let crowded = self.holds(&early.demand);
        let outlook = Outlook::new(&early.demand, &early.at);
        let holds = |task| crowded && early.may_hold(snapshot, task);
        self.placements(&early.demand, &outlook, &early.at, holds, snapshot.time)
    }

    /// Whether tasks that are already right are held.
    fn holds(&self, demand: &Demand) -> bool {
        self.mechanisms.hold && is_crowded(demand)
    }

    /// Where every task should be: by the search, unless that moves somebody who is not to move
    /// now. And what that means for memory.
    fn assign(&self, demand: &Demand, today: &[usize], seen: &Snapshot) -> (Vec<usize>, Outlook) {
        let now = seen.time;
        let is_placed = |i: usize| demand.tasks[i].placed || !demand.tasks[i].claims_cpu;
        // Who has no choice never will be.
        let all_placed = (0..today.len()).all(|i| is_placed(i) || !demand.has_choice(i));
        let cost = TASK_COST * demand.lost_permille / 1000;
        let cost = if all_placed { PLACED_COST * cost } else { cost };
        let found = match self.mechanisms.exact {
            true => search::improve(demand, cost),
            false => search::descend(demand, cost),
        };
        let mut at = found.at().to_vec();
        if self.mechanisms.level {
            level::level(demand, today, &mut at);
            if self.holds(demand) {
                let may_go = |i: usize| !demand.tasks[i].placed && !self.is_relieved(i, now);
                level::spread(demand, &mut at, may_go);
            }
        }
        // With more tasks than CPUs they would share one there, too.
        let may_end = |i: usize| demand.crowd > 0 && horizon::may_end(seen, i, SETTLE);
        let unsettled = |i: usize| !self.settled(i, now) || may_end(i);
        // Half a swap would overload a node: wait for all of it.
        let rests = |i: usize| demand.tasks[i].placed && unsettled(i) || self.is_relieved(i, now);
        if (0..at.len()).any(|i| at[i] != today[i] && rests(i)) {
            at = today.to_vec();
        }
        let is_found = at == found.at();
        let outlook = if is_found { found.into_outlook() } else { Outlook::new(demand, &at) };
        (at, outlook)
    }

    /// Placed tasks that get the CPUs of their owner back.
    fn releases(&mut self, demand: &Demand, snapshot: &Snapshot) -> Vec<Action> {
        let now = snapshot.time;
        let (mut room, mut unplaced) = (None, None);
        let mut actions = Vec::new();
        for (i, task) in snapshot.tasks.iter().enumerate().filter(|(_, task)| task.home.is_some()) {
            let waits = self.tasks[i].waits;
            let mut is_for_ours = || {
                waits.is_placed_of_late(now)
                    && unplaced.get_or_insert_with(|| relief::with_unplaced(demand))
                        [demand.tasks[i].now]
            };
            let squeezed = self.mechanisms.relief
                && waits.is_squeezed(task)
                && !horizon::may_end(snapshot, i, SETTLE)
                && !is_for_ours()
                && room
                    .get_or_insert_with(|| relief::Room::new(demand))
                    .is_elsewhere(demand, snapshot, i);
            let reason = if task.fixed {
                Reason::NotOurs
            } else if squeezed {
                self.tasks[i].waits.relieve(now);
                Reason::Squeezed { permille: task.waiting_permille }
            } else if task.is_idle() && self.settled(i, now) && self.known_for(i, now) >= SETTLE {
                Reason::Idle { permille: task.usual_permille.unwrap_or(task.busy_permille) }
            } else {
                continue;
            };
            self.tasks[i].placed_at = None;
            let cpus = task.cpus_owner.clone();
            actions.push(Action::ReleaseTask { task: task.id, cpus, reason });
        }
        actions
    }

    /// Tasks that are put where `at` says, or held there if they are of those that it `holds`.
    fn placements(
        &self,
        demand: &Demand,
        outlook: &Outlook,
        at: &[usize],
        holds: impl Fn(usize) -> bool,
        now: Nanos,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for (i, task) in demand.tasks.iter().enumerate() {
            let known = demand.is_known(i);
            let stays = at[i] == task.now;
            // Of whom nothing is known goes as well, where others need the place: half an exchange is refused.
            let acts = if stays { known && !task.placed && holds(i) } else { task.claims_cpu };
            if !acts || self.is_relieved(i, now) {
                continue;
            }
            let cpus = demand.cpus(i, at[i]);
            if cpus.is_empty() || !demand.has_choice(i) {
                continue;
            }
            let node = demand.nodes[at[i]];
            let reason = reason(demand, outlook, at, i, stays);
            actions.push(Action::PlaceTask { task: task.id, node, cpus: cpus.clone(), reason });
        }
        actions
    }

    /// Memory of users on several nodes that lies on none of those, with the rest of what a plan moves.
    fn gathered(
        &self,
        snapshot: &Snapshot,
        demand: &Demand,
        outlook: &Outlook,
        follow: &[Action],
    ) -> Vec<Action> {
        let moving = |action: &Action| match action {
            Action::MovePages { pages, .. } => pages.0,
            _ => 0,
        };
        let left = Pages(pages::most(snapshot).0 - follow.iter().map(moving).sum::<u64>());
        let mut actions = interleave::gather(snapshot, demand, outlook, left);
        actions.retain(|action| self.rest.may_move(action, snapshot.time));
        actions
    }

    /// Memory that several nodes use, once everybody has been where they are for a while.
    fn shared_out(&self, snapshot: &Snapshot, demand: &Demand, outlook: &Outlook) -> Vec<Action> {
        let now = snapshot.time;
        let calm = self.calm_since.is_some_and(|since| now.since(since) >= CALM);
        if !(calm && self.mechanisms.pages && self.mechanisms.interleave) {
            return Vec::new();
        }
        let mut actions = interleave::spread(snapshot, demand, outlook, pages::most(snapshot));
        actions.retain(|action| self.rest.may_share(action, now));
        actions
    }

    /// Counts how long each has been away, and with nothing else to do has some change places.
    fn turns(
        &mut self,
        demand: &Demand,
        outlook: &Outlook,
        now: Nanos,
        quiet: bool,
    ) -> Vec<Action> {
        let past = self.turns_at.replace(now).map_or(Nanos(0), |at| now.since(at));
        if !self.mechanisms.turns {
            return Vec::new();
        }
        for (i, known) in self.tasks.iter_mut().enumerate() {
            if turns::is_away(demand, outlook, i) {
                known.away = Nanos(known.away.0 + past.0);
            }
        }
        if !quiet {
            return Vec::new();
        }
        let may_move = |i: usize| self.settled(i, now) && !self.is_relieved(i, now);
        let changes = turns::changes(demand, outlook, |i| self.tasks[i].away, may_move);
        let mut actions = Vec::new();
        for (comes, goes) in changes {
            let (memory, away) = (demand.tasks[goes].now, demand.tasks[comes].now);
            for (i, node, comes) in [(comes, memory, true), (goes, away, false)] {
                self.tasks[i].placed_at = Some(now);
                let (task, cpus) = (demand.tasks[i].id, demand.cpus(i, node).clone());
                let (node, reason) = (demand.nodes[node], Reason::Turn { comes });
                actions.push(Action::PlaceTask { task, node, cpus, reason });
            }
        }
        actions
    }

    /// Whether a task was let go of late because it waited for a CPU.
    fn is_relieved(&self, task: usize, now: Nanos) -> bool {
        self.tasks[task].waits.is_relieved(now)
    }

    /// Whether tasks of a process may yet turn out to be several teams, and are waited for: once all has converged the
    /// kernel scans slowly, and whom it has not seen by then it does not see for minutes.
    fn may_find_teams(&self, snapshot: &Snapshot) -> bool {
        let since = self.calm_since.or(self.quiet_since);
        let waits = since.is_some_and(|since| snapshot.time.since(since) < PATIENCE);
        self.mechanisms.teams && waits && bundles::may_be_teams(snapshot)
    }

    /// Whether nothing can be expected to become more local, with nothing to do.
    fn is_enough(&self, plan: &Plan, since: Option<Nanos>, now: Nanos) -> bool {
        if self.stirred_at.is_some_and(|at| now.since(at) < WATCHFUL) {
            return false;
        }
        let long = if is_in_place(plan) { SETTLE } else { QUIET };
        let quiet = self.mechanisms.quiet && since.is_some_and(|since| now.since(since) >= long);
        quiet || plan.strength_permille >= CONVERGED_PERMILLE
    }
}

/// Whether hardly any memory is to come nearer.
#[must_use]
pub fn is_in_place(plan: &Plan) -> bool {
    plan.misplaced_permille <= 1000 - CONVERGED_PERMILLE
}

/// Whether busy tasks do not all fit the smallest node, a core for each: only then will the kernel's balancing
/// take tasks off a node where they are well, and only then are they held.
fn is_crowded(demand: &Demand) -> bool {
    let busy = demand.tasks.iter().filter(|task| task.claims_cpu).count();
    let most =
        demand.capacity.iter().enumerate().map(|(node, &cpus)| demand.cores.most(node, cpus));
    let smallest = most.filter(|&cpus| cpus > 0).min();
    smallest.is_some_and(|smallest| busy > smallest)
}

#[cfg(test)]
mod tests;
