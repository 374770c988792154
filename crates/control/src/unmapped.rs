//! Memory that its process has given back: what was known of it is forgotten.
//!
//! A program that maps memory, uses it and gives it back, at other addresses each time, would leave a region behind
//! for every address that it ever used, for as long as it lives: months. So it is asked now and then what a process
//! maps: whoever is known by twice as much as was left at the last look first, and then those that were looked at
//! longest ago.
//!
//! Example: of 1000 regions 600 were mapped at the last look. When 1200 are known it is looked again, or after a minute.

use std::collections::BTreeMap;

use numaherd_model::{EvidenceGrade, Nanos, Observe, ProcessId, Snapshot};

use crate::evidence::Evidence;

/// How old a look may be. Guessed: to list what a process maps takes about a millisecond, and of one with tens of
/// thousands of mappings tens of milliseconds.
const AGE: Nanos = Nanos(60_000_000_000);

/// So few regions are not looked at sooner, whatever has come: 3 MB, of which 1.5 MB may be of what is gone.
const FEW: usize = 256;

/// Processes looked at in one turn, besides as many of all that are known as the time since the turn before is of a
/// minute: however seldom turns come, each is looked at once a minute.
const LOOKS: usize = 8;

/// When each process was looked at, and how many regions were left.
#[derive(Debug, Default)]
pub struct Unmapped {
    looks: BTreeMap<ProcessId, Look>,
    /// When the turn before was.
    turned: Option<Nanos>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Nanos,
    left: usize,
}

impl Unmapped {
    /// Forgets what is mapped no more of processes whose turn it is.
    pub fn forget(
        &mut self,
        machine: &mut (impl Observe + ?Sized),
        evidence: &mut Evidence,
        snapshot: &Snapshot,
    ) {
        if snapshot.grade != EvidenceGrade::HintingFaults {
            return;
        }
        let now = snapshot.time;
        let known = evidence.regions();
        self.looks.retain(|process, _| known.binary_search_by_key(process, |one| one.0).is_ok());
        let passed = now.since(self.turned.replace(now).unwrap_or(now)).0.min(AGE.0);
        let most = LOOKS + (passed * known.len() as u64 / AGE.0) as usize;
        let mut due = Vec::new();
        for (process, regions) in known {
            // All that is known of one that is new was heard just now.
            let look = *self.looks.entry(process).or_insert(Look { at: now, left: regions });
            let doubled = regions > 2 * look.left.max(FEW);
            if doubled || now.since(look.at) >= AGE {
                due.push((!doubled, look.at, process));
            }
        }
        due.sort_unstable();
        for (_, since, process) in due.into_iter().take(most) {
            let mapped = machine.mapped(process);
            let left = evidence.keep_mapped(process, mapped.as_deref(), since);
            self.looks.insert(process, Look { at: now, left });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene};
    use numaherd_model::{HintingFault, WorldError};
    use std::ops::Range;

    use crate::evidence::REGION_BYTES;
    use crate::evidence::tests::fault;

    /// Tells what is mapped, and counts how often it was asked.
    struct Maps(Option<Range<u64>>, usize);

    impl Observe for Maps {
        fn observe(&mut self, _: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
            Err(WorldError::NoTasks)
        }

        fn mapped(&mut self, process: ProcessId) -> Option<Vec<Range<u64>>> {
            assert_eq!(process, PROCESS);
            self.1 += 1;
            self.0.clone().map(|range| vec![range])
        }
    }

    /// A task that touches ten regions more each second, of which it keeps what `mapped` says. Answers how many are
    /// known in the end, and the most that ever were, after so many seconds.
    fn lived(seconds: u64, mapped: impl Fn(u64) -> Option<Range<u64>>) -> (usize, usize, usize) {
        let mut scene = Scene::two_by_four();
        scene.busy(1);
        let mut snapshot = scene.snapshot();
        let (mut evidence, mut unmapped) = (Evidence::new(), Unmapped::default());
        let (mut known, mut most, mut asked) = (0, 0, 0);
        for second in 0..seconds {
            snapshot.time = Nanos((20 + second) * 1_000_000_000);
            let touched = (10 * second..10 * (second + 1)).map(|region| HintingFault {
                time: snapshot.time,
                ..fault(1, region * REGION_BYTES, 0, None)
            });
            evidence.add(&touched.collect::<Vec<_>>(), &snapshot);
            let mut maps = Maps(mapped(second), 0);
            unmapped.forget(&mut maps, &mut evidence, &snapshot);
            asked += maps.1;
            known = evidence.regions().iter().map(|(_, regions)| regions).sum();
            most = most.max(known);
        }
        (known, most, asked)
    }

    #[test]
    fn what_a_process_maps_no_more_is_forgotten() {
        // The last hundred regions are mapped.
        let recent = |second: u64| Some(10 * second.saturating_sub(9) * REGION_BYTES..u64::MAX);
        let (_, most, asked) = lived(1000, recent);
        assert!(most <= 2 * FEW + 10, "{most}");
        assert!(asked < 40, "{asked}");
    }

    #[test]
    fn what_is_mapped_stays_known_and_is_seldom_asked_for() {
        let (known, _, asked) = lived(1000, |_| Some(0..u64::MAX));
        assert_eq!(known, 10_000);
        assert!(asked < 25, "{asked}");
    }

    #[test]
    fn where_nobody_tells_what_is_touched_no_more_is_forgotten() {
        let (_, most, _) = lived(1000, |_| None);
        // Of two minutes: nothing is asked for between them.
        assert!(most <= 2 * 600, "{most}");
    }

    #[test]
    fn who_is_new_is_not_looked_at_before_it_has_doubled() {
        let mut scene = Scene::two_by_four();
        scene.busy(1);
        let mut snapshot = scene.snapshot();
        let (mut evidence, mut unmapped) = (Evidence::new(), Unmapped::default());
        let touch = |evidence: &mut Evidence, snapshot: &Snapshot, regions: Range<u64>| {
            let touched = regions.map(|region| HintingFault {
                time: snapshot.time,
                ..fault(1, region * REGION_BYTES, 0, None)
            });
            evidence.add(&touched.collect::<Vec<_>>(), snapshot);
        };
        snapshot.time = Nanos(20_000_000_000);
        touch(&mut evidence, &snapshot, 0..3 * FEW as u64);
        let asked = |unmapped: &mut Unmapped, evidence: &mut Evidence, snapshot: &Snapshot| {
            let mut maps = Maps(None, 0);
            unmapped.forget(&mut maps, evidence, snapshot);
            (maps.1, evidence.regions().iter().map(|(_, regions)| regions).sum::<usize>())
        };
        // Nobody tells what is mapped, and all was heard a moment ago.
        assert_eq!(asked(&mut unmapped, &mut evidence, &snapshot), (0, 3 * FEW));
        snapshot.time.0 += 1_000_000_000;
        touch(&mut evidence, &snapshot, 3 * FEW as u64..7 * FEW as u64);
        assert_eq!(asked(&mut unmapped, &mut evidence, &snapshot).0, 1, "it has doubled");
    }

    /// Says that all is mapped, and notes who was asked for.
    #[derive(Default)]
    struct Asked(Vec<u32>);

    impl Observe for Asked {
        fn observe(&mut self, _: &mut Vec<HintingFault>) -> Result<Snapshot, WorldError> {
            Err(WorldError::NoTasks)
        }

        fn mapped(&mut self, process: ProcessId) -> Option<Vec<Range<u64>>> {
            self.0.push(process.tgid);
            Some(std::iter::once(0..u64::MAX).collect())
        }
    }

    /// So many processes of a task each, which has touched a region.
    fn many(processes: u32) -> (Snapshot, Evidence) {
        let mut scene = Scene::two_by_four();
        scene.busy(processes);
        let mut snapshot = scene.snapshot();
        for task in &mut snapshot.tasks {
            task.process = ProcessId { tgid: task.id.tid, start: 1 };
        }
        let mut evidence = Evidence::new();
        let touched: Vec<_> = (1..=processes).map(|tid| fault(tid, 0, 0, None)).collect();
        evidence.add(&touched, &snapshot);
        (snapshot, evidence)
    }

    /// Turns come every five seconds where looking is dear.
    #[test]
    fn each_of_many_is_looked_at_once_a_minute_however_seldom_turns_come() {
        for seconds in [1, 5] {
            let (mut snapshot, mut evidence) = many(600);
            let (mut unmapped, mut maps) = (Unmapped::default(), Asked::default());
            let mut most = 0;
            for turn in 0..300 / seconds {
                snapshot.time = Nanos((20 + turn * seconds) * 1_000_000_000);
                let before = maps.0.len();
                unmapped.forget(&mut maps, &mut evidence, &snapshot);
                most = most.max(maps.0.len() - before);
            }
            let asked = |tgid: &u32| maps.0.iter().filter(|of| *of == tgid).count();
            // In the first of five minutes nobody.
            assert!((1..=600).all(|tgid| asked(&tgid) == 4), "every {seconds} s: {}", maps.0.len());
            assert!(most <= LOOKS + 10 * seconds as usize, "every {seconds} s: {most}");
        }
    }

    #[test]
    fn who_has_doubled_comes_before_who_is_merely_old() {
        let (mut snapshot, mut evidence) = many(100);
        let (mut unmapped, mut maps) = (Unmapped::default(), Asked::default());
        snapshot.time = Nanos(20_000_000_000);
        unmapped.forget(&mut maps, &mut evidence, &snapshot);
        let more = 0..=2 * FEW as u64;
        let more: Vec<_> = more.map(|region| fault(100, region * REGION_BYTES, 0, None)).collect();
        evidence.add(&more, &snapshot);
        snapshot.time.0 += AGE.0;
        unmapped.forget(&mut maps, &mut evidence, &snapshot);
        assert_eq!(maps.0[..2], [100, 1]);
    }
}
