//! Hears from the faults that a program which had converged has gone on to other memory.
//!
//! Once all has converged, faults say little new and looks are rare. A phase change shows in them long
//! before it shows in sums over several passes of the kernel's scan: pages that were touched from where
//! they lie are touched from elsewhere. Then the loop looks at once, what was known counts for less
//! ([`crate::evidence::Evidence::fade`]), and the placement does not call it converged for a while.
//!
//! Ours; no other balancer that we know of does it. Faults are pairs of few, clumped samples (one thread
//! that takes over a slice makes several), so the bar is a multiple of what is usual, not a test of
//! significance, and whoever was disturbed for nothing is left in peace for [`REST`].
//!
//! Example: 120 ‰ of the use was remote when all had converged. Of 16 faults since then 1.9 are
//! expected to be remote: 7 tell of another phase, 6 do not.
//!
//! A slow scan goes by addresses. In a region that several nodes use more is remote than on the whole, and while
//! the scan is there that is what is usual. Example: where two nodes use a region alike, 8 of 16 faults there are
//! expected to be remote, and all 16 do not tell of another phase.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Action, FaultFlags, HintingFault, Nanos, Plan, Reason, Region, Snapshot};

use crate::evidence::place;

/// Remote faults, beyond twice what is usual, that are not noise. Guessed: a thread's slice of a few
/// huge pages.
const BEYOND: u64 = 3;

/// Remote among usual faults of base pages, per mille, at the least, however little was seen to be: evidence is
/// of whole regions, these are of single pages. Where much faults (jbb-like of 320 MiB, 20,000 a second), a few
/// of a hundred are remote all the time. A huge page is a whole region.
const USUAL_PERMILLE: u64 = 100;

/// The same in pages: a few base pages of stacks and libraries are no working set. Guessed.
const MIN_PAGES: u64 = 48;

/// How long nothing is heard after something was done: pages that were armed before tell of where things
/// were. Guessed: as long as a placed task stays.
const SETTLE: Nanos = Nanos(2_000_000_000);

/// How long nothing is heard after a disturbance that led to nothing. Guessed: with 2 s of quick
/// scanning after each, a tenth of the time.
const REST: Nanos = Nanos(20_000_000_000);

/// See the module.
#[derive(Debug)]
pub struct Watch {
    on: bool,
    /// Per mille of use that was local when all had converged, while that stands.
    settled: Option<u32>,
    /// Per mille that was remote then in regions where it was more than on the whole, by process and address.
    regions: BTreeMap<(u32, u64), u32>,
    /// When it was stirred last.
    last: Option<Nanos>,
    /// When something was done last.
    acted: Option<Nanos>,
}

impl Watch {
    /// Hears nothing before all has converged.
    #[must_use]
    pub fn new(on: bool) -> Watch {
        Watch { on, settled: None, regions: BTreeMap::new(), last: None, acted: None }
    }

    /// Whether these faults, all since the last turn, tell of another phase.
    #[must_use]
    pub fn is_stirred(&self, faults: &[HintingFault]) -> bool {
        self.are_more(faults, BEYOND)
    }

    /// Whose faults tell of it: those processes of whose own faults more than twice what is usual are remote. Where
    /// that is nobody's and only all together tell, whoever has remote ones.
    #[must_use]
    pub fn who(&self, faults: &[HintingFault]) -> BTreeSet<u32> {
        let Some(local) = self.settled else { return BTreeSet::new() };
        let mut processes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for fault in faults {
            let (remote, usual) = processes.entry(fault.tgid).or_default();
            *remote += u64::from(is_remote(fault));
            *usual += self.usual_permille(fault, local);
        }
        let tell = |more: fn(u64, u64) -> bool| {
            let who = processes.iter().filter(move |(_, (remote, usual))| more(*remote, *usual));
            who.map(|(tgid, _)| *tgid).collect::<BTreeSet<u32>>()
        };
        let who = tell(|remote, usual| remote * 1000 > 2 * usual);
        if who.is_empty() { tell(|remote, _| remote > 0) } else { who }
    }

    /// Whether by so many more than twice what is usual are remote.
    fn are_more(&self, faults: &[HintingFault], beyond: u64) -> bool {
        let (Some(local), Some(newest)) = (self.settled, faults.last()) else { return false };
        let settles = |acted: Nanos| newest.time.since(acted) < SETTLE;
        let rests = |last: Nanos| self.acted < Some(last) && newest.time.since(last) < REST;
        if !self.on || self.last.is_some_and(rests) || self.acted.is_some_and(settles) {
            return false;
        }
        let remote = faults.iter().filter(|fault| is_remote(fault));
        let (count, pages) = remote.fold((0, 0), |(n, pages), f| (n + 1, pages + f.pages.0));
        let usual: u64 = faults.iter().map(|fault| self.usual_permille(fault, local)).sum();
        pages >= MIN_PAGES && count * 1000 > 2 * usual + beyond * 1000
    }

    /// Per mille of faults such as this that are remote when so much is local and nothing has changed.
    fn usual_permille(&self, fault: &HintingFault, local: u32) -> u64 {
        let seen = u64::from(1000 - local.min(1000));
        let least = if fault.is_on_base_page() { USUAL_PERMILLE } else { 0 };
        let there = place(fault).and_then(|start| self.regions.get(&(fault.tgid, start)));
        seen.max(least).max(there.map_or(0, |&permille| u64::from(permille)))
    }

    /// Whether this plan tells of another phase, made after these faults: an unchanged load that had converged ends
    /// in no moves, and a look may come when too few have faulted to tell by that alone. What it plans then is of a
    /// mixture of both phases.
    #[must_use]
    pub fn is_surprised(&self, plan: &Plan, faults: &[HintingFault]) -> bool {
        let by_use = |action: &Action| match action {
            Action::PlaceTask { reason, .. } => {
                matches!(reason, Reason::MemoryThere { .. } | Reason::BuddiesThere { .. })
            }
            _ => false,
        };
        self.are_more(faults, 0) && plan.actions.iter().any(by_use)
    }

    /// It was stirred then.
    pub fn stirred(&mut self, now: Nanos) {
        self.last = Some(now);
    }

    /// What the turn found: how much is local, on the whole and in each region, if all has converged.
    pub fn turned(&mut self, settled: Option<u32>, snapshot: &Snapshot) {
        self.settled = settled;
        self.regions.clear();
        let Some(local) = settled else { return };
        let node_of = |task| snapshot.task(task)?.node(&snapshot.topology);
        let remote = |region: &Region| {
            let permille = region.remote_permille(node_of);
            ((region.id.process.tgid, region.id.start), permille)
        };
        let regions = snapshot.regions.iter().map(remote);
        self.regions = regions.filter(|(_, permille)| permille + local > 1000).collect();
    }

    /// Something was done then.
    pub fn acted(&mut self, now: Nanos) {
        self.acted = Some(now);
    }
}

fn is_remote(fault: &HintingFault) -> bool {
    !fault.flags.has(FaultFlags::FAULT_LOCAL)
}

/// Faults that tell of another phase, in the order in which they came: those that may be of the one before, and
/// those since the first that is not of where all had converged.
#[must_use]
pub fn split(faults: &[HintingFault]) -> (&[HintingFault], &[HintingFault]) {
    faults.split_at(faults.iter().position(is_remote).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{Scene, task_id};
    use numaherd_model::{CpuId, NodeId, Pages};

    fn faults(local: usize, remote: usize, pages: u64, at: u64) -> Vec<HintingFault> {
        let fault = |flags| HintingFault {
            time: Nanos(at * 1_000_000_000),
            tid: 2,
            tgid: 1,
            cpu: CpuId(0),
            memory_node: NodeId(0),
            pages: Pages(pages),
            flags: FaultFlags(flags),
            address: None,
            last_cpu: None,
            last_pid_low8: None,
        };
        let locals = std::iter::repeat_n(FaultFlags::FAULT_LOCAL, local);
        locals.chain(std::iter::repeat_n(0, remote)).map(fault).collect()
    }

    #[test]
    fn more_than_twice_the_usual_and_three_is_another_phase() {
        let mut watch = Watch::new(true);
        assert!(!watch.is_stirred(&faults(0, 100, 512, 1)), "nothing has converged");
        watch.turned(Some(880), &scene());
        // 16 × 0.12 × 2 + 3 = 6.84
        assert!(watch.is_stirred(&faults(9, 7, 512, 1)));
        assert!(!watch.is_stirred(&faults(10, 6, 512, 1)));
        // 47 base pages are no working set
        assert!(!watch.is_stirred(&faults(0, 47, 1, 1)) && watch.is_stirred(&faults(0, 48, 1, 1)));
        // a fifth of base pages may be remote, however local all was: 200 + 3
        watch.turned(Some(1000), &scene());
        assert!(!watch.is_stirred(&faults(797, 203, 1, 1)));
        assert!(watch.is_stirred(&faults(796, 204, 1, 1)));
        // and of huge pages three: two of eight threads pass on their slices to another node
        assert!(
            watch.is_stirred(&faults(27, 9, 512, 1)) && !watch.is_stirred(&faults(33, 3, 512, 1))
        );
        // where half is remote anyway, nothing tells
        watch.turned(Some(500), &scene());
        assert!(!watch.is_stirred(&faults(0, 100, 512, 1)));
        assert!(!Watch::new(false).is_stirred(&faults(0, 100, 512, 1)));
    }

    fn scene() -> Snapshot {
        Scene::two_by_four().snapshot()
    }

    #[test]
    fn where_several_nodes_use_a_region_as_many_are_remote_as_they_do_from_afar() {
        let mut scene = Scene::two_by_four();
        scene.task(2, 0, 1000);
        scene.task(3, 4, 1000);
        scene.region(0, &[(2, 512), (3, 512)], &[(0, 512)]);
        scene.region(1, &[(2, 512)], &[(0, 512)]);
        let mut watch = Watch::new(true);
        watch.turned(Some(750), &scene.snapshot());
        let there = |index: u64, remote| {
            let at = |fault| HintingFault { address: Some((1 << 30) + (index << 21)), ..fault };
            faults(16 - remote, remote, 512, 1).into_iter().map(at).collect::<Vec<_>>()
        };
        // 16 × 0.5 × 2 + 3 = 19
        assert!(!watch.is_stirred(&there(0, 16)));
        // 16 × 0.25 × 2 + 3 = 11
        assert!(watch.is_stirred(&there(1, 12)) && !watch.is_stirred(&there(1, 11)));
        assert!(watch.is_stirred(&there(2, 12)), "of which nothing is known");
        watch.turned(Some(750), &Scene::two_by_four().snapshot());
        assert!(watch.is_stirred(&there(0, 16)), "what was known is of another time");
    }

    #[test]
    fn whose_own_faults_tell_of_it_has_gone_on_to_something_else() {
        let mut watch = Watch::new(true);
        let of = |tgid: u32, local, remote| {
            let of = |fault| HintingFault { tgid, ..fault };
            faults(local, remote, 512, 1).into_iter().map(of).collect::<Vec<_>>()
        };
        let mixed = [of(1, 30, 2), of(2, 10, 14), of(3, 4, 0)].concat();
        assert!(watch.who(&mixed).is_empty(), "nothing has converged");
        watch.turned(Some(900), &scene());
        assert!(watch.is_stirred(&mixed));
        assert_eq!(watch.who(&mixed), BTreeSet::from([2]));
        // Nobody's own are more than twice what is usual, which is a look's own matter: all who have some.
        assert_eq!(watch.who(&[of(1, 9, 1), of(2, 10, 0)].concat()), BTreeSet::from([1]));
    }

    #[test]
    fn too_few_faults_to_tell_by_that_are_enough_where_they_make_a_task_go() {
        let mut watch = Watch::new(true);
        watch.turned(Some(1000), &scene());
        let few = faults(0, 3, 512, 1);
        assert!(!watch.is_stirred(&few));
        let plan = |reason| {
            let (task, node, cpus) = (task_id(1), NodeId(1), "4-7".parse().unwrap());
            Plan {
                actions: vec![Action::PlaceTask { task, node, cpus, reason }],
                ..Plan::default()
            }
        };
        let goes = plan(Reason::MemoryThere { permille: 750 });
        assert!(watch.is_surprised(&goes, &few));
        assert!(!watch.is_surprised(&Plan::default(), &few));
        assert!(!watch.is_surprised(&plan(Reason::Hold { permille: 750 }), &few));
        assert!(!watch.is_surprised(&goes, &faults(3, 0, 512, 1)));
        watch.turned(None, &scene());
        assert!(!watch.is_surprised(&goes, &few), "nothing has converged");
    }

    #[test]
    fn another_phase_begins_with_the_first_remote_fault() {
        let mixed = faults(3, 2, 512, 1);
        let (before, since) = split(&mixed);
        assert_eq!((before.len(), since.len()), (3, 2));
        assert_eq!(split(&mixed[..3]).1.len(), 3);
    }

    #[test]
    fn who_was_disturbed_for_nothing_is_left_in_peace() {
        let mut watch = Watch::new(true);
        watch.turned(Some(1000), &scene());
        watch.stirred(Nanos(1_000_000_000));
        watch.turned(Some(1000), &scene());
        assert!(!watch.is_stirred(&faults(0, 100, 512, 20)));
        assert!(watch.is_stirred(&faults(0, 100, 512, 21)));
        watch.acted(Nanos(2_000_000_000));
        assert!(!watch.is_stirred(&faults(0, 100, 512, 3)));
        assert!(watch.is_stirred(&faults(0, 100, 512, 4)));
    }
}
