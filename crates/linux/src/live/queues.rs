//! Which of the tasks that we hold on a node wait for a CPU there, between two looks.
//!
//! A held task may run on its node only: strangers who come there make it wait, and once all has converged looks are
//! seconds apart. How long it waited is one short file, so those are read meanwhile, a few at a time: each every 50 ms,
//! or, where there are many, as often as 0.2 % of a CPU allows. Of a task that was found waiting the next look
//! tells how it has fared since, and not since the last look.
//!
//! Example: of twenty tasks that each took 2 µs to read, all are read each 50 ms. Of 500, fifty are: each every half a
//! second.

use std::collections::BTreeMap;
use std::ops::Bound;

use numaherd_model::{Counters, Nanos, ProcessId, Spent, TaskId};

use crate::ReadError;
use crate::system::System;

/// How often tasks are read. Half of the time after which who waits is to be free.
const OFTEN: Nanos = Nanos(50_000_000);

/// Rest after reading some, in units of the CPU time that it took: 0.2 % of a CPU.
const REST: u64 = 500;

/// Where nobody waited for so long, it is over. Guessed: a few times what all took to be read.
const CALM: Nanos = Nanos(2_000_000_000);

/// No file is read in less.
const LEAST: Nanos = Nanos(1000);

/// Per mille of its time that a task has to wait to be worth a look. Guessed: what herd takes for harm.
const WORTH_A_LOOK: u32 = 300;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// One of them waits.
    Waits,
    /// None of them has waited for a while.
    Calm,
    /// Nothing is known yet.
    Open,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Queues {
    /// What was read of each task last.
    before: BTreeMap<TaskId, Counters>,
    /// Who was read last, until all have been.
    at: Option<TaskId>,
    /// When some are read again.
    next: Nanos,
    /// What reading one took last.
    each: Nanos,
    /// When one was last found waiting.
    waited: Nanos,
}

impl Queues {
    /// Forgets those that are not held any more.
    pub fn retain(&mut self, held: impl Fn(&TaskId) -> bool) {
        self.before.retain(|task, _| held(task));
    }

    /// Reads some of the tasks held, if it is time to: `held` are those after the one that was read last.
    ///
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub fn squeezed<Held: Iterator<Item = (TaskId, ProcessId)>>(
        &mut self,
        system: &mut dyn System,
        held: impl FnOnce(Bound<TaskId>) -> Held,
        spent: &mut BTreeMap<TaskId, Spent>,
        now: Nanos,
    ) -> Result<Queue, ReadError> {
        if now < self.next {
            return Ok(Queue::Open);
        }
        let begun = system.own_time().1;
        let batch = (OFTEN.0 / REST / self.each.0.max(LEAST.0)).max(1);
        let mut held = held(self.at.map_or(Bound::Unbounded, Bound::Excluded));
        let (mut read, mut squeezed) = (0, false);
        while read < batch {
            let next = held.next();
            self.at = next.map(|(task, _)| task);
            let Some((task, process)) = next else { break };
            read += 1;
            let Some(stat) = system.kept_schedstat(process.tgid, task.tid)? else { continue };
            let counters = Counters { at: now, ran: stat.run_time, waited: stat.wait_time };
            let Some(before) = self.before.insert(task, counters) else { continue };
            if counters.since(&before).1 >= WORTH_A_LOOK {
                squeezed = true;
                spent.get_mut(&task).into_iter().for_each(|spent| spent.start_at(before));
            }
        }
        if held.next().is_none() {
            self.at = None;
        }
        let used = system.own_time().1.since(begun);
        self.each = used.0.checked_div(read).map_or(self.each, Nanos);
        self.next = Nanos(now.0 + OFTEN.0.max(used.0 * REST));
        if squeezed {
            self.waited = now;
        }
        Ok(match squeezed {
            true => Queue::Waits,
            false if now.since(self.waited) >= CALM => Queue::Calm,
            false => Queue::Open,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Running;
    use crate::testing::put;

    fn task(tid: u32) -> TaskId {
        TaskId { tid, start: 1 }
    }

    const PROCESS: ProcessId = ProcessId { tgid: 7, start: 1 };

    /// Tasks 8 and 9, of which one is read at a time.
    struct Scene {
        root: tempfile::TempDir,
        spent: BTreeMap<TaskId, Spent>,
        queues: Queues,
    }

    impl Scene {
        fn ran(&self, tid: u32, ran: u64, waited: u64) {
            let text = format!("{} {} 5", ran * 1_000_000, waited * 1_000_000);
            put(self.root.path(), &format!("proc/7/task/{tid}/schedstat"), &text);
        }

        fn both_ran(&self, ran: u64) {
            self.ran(8, ran, 0);
            self.ran(9, ran, 0);
        }

        fn look(&mut self, ms: u64) -> Queue {
            let held = |after| {
                [8, 9].map(task).into_iter().filter(move |task| match after {
                    Bound::Excluded(after) => *task > after,
                    _ => true,
                })
            };
            let held = |after| held(after).map(|task| (task, PROCESS));
            self.queues.each = OFTEN;
            self.queues.next = Nanos(0);
            let mut system = Running::new(self.root.path());
            let now = Nanos(ms * 1_000_000);
            self.queues.squeezed(&mut system, held, &mut self.spent, now).unwrap()
        }

        /// Per mille of the time of late that a task ran, and waited.
        fn fared(&mut self, tid: u32, ms: u64, ran: u64, waited: u64) -> (u32, u32) {
            let [at, ran, waited] = [ms, ran, waited].map(|ms| Nanos(ms * 1_000_000));
            self.spent.get_mut(&task(tid)).unwrap().see(Counters { at, ran, waited }, false)
        }
    }

    fn scene() -> Scene {
        let spent = [8, 9].map(|tid| (task(tid), Spent::born(Nanos(0)))).into_iter().collect();
        Scene { root: tempfile::tempdir().unwrap(), spent, queues: Queues::default() }
    }

    #[test]
    fn who_waits_is_told_and_the_next_look_tells_of_the_time_since() {
        let mut scene = scene();
        scene.both_ran(1000);
        let looks = |scene: &mut Scene, ms| [scene.look(ms), scene.look(ms)];
        assert_eq!(looks(&mut scene, 1000), [Queue::Open; 2], "each is read for the first time");
        scene.both_ran(1050);
        assert_eq!(looks(&mut scene, 1050), [Queue::Open; 2], "both run");
        // The one waited a fifth of the time, the other a half.
        scene.ran(8, 1090, 10);
        scene.ran(9, 1075, 25);
        assert_eq!(looks(&mut scene, 1100), [Queue::Open, Queue::Waits]);
        assert_eq!(scene.fared(8, 1110, 1098, 12), (989, 10), "over its life");
        assert_eq!(scene.fared(9, 1110, 1080, 30), (500, 500), "over 60 ms");
        scene.both_ran(3000);
        assert_eq!(looks(&mut scene, 3099), [Queue::Open; 2]);
        assert_eq!(looks(&mut scene, 3100), [Queue::Calm; 2]);
    }

    #[test]
    fn tasks_are_read_no_more_often_than_the_cpu_time_that_it_takes_allows() {
        let mut scene = scene();
        scene.both_ran(1000);
        assert_eq!(scene.look(1000), Queue::Open);
        let rest = scene.queues.next.since(Nanos(1_000_000_000));
        assert!(rest >= OFTEN && rest >= Nanos(scene.queues.each.0 * REST), "{rest:?}");
        // Not yet; and then whoever ended meanwhile is no error.
        let (held, next) = (|_| std::iter::once((task(8), PROCESS)), scene.queues.next);
        let mut system = Running::new(scene.root.path());
        let mut look = |now| scene.queues.squeezed(&mut system, held, &mut scene.spent, now);
        assert_eq!(look(Nanos(next.0 - 1)).unwrap(), Queue::Open);
        assert_eq!(scene.queues.next, next);
        std::fs::remove_dir_all(scene.root.path().join("proc/7")).unwrap();
        let mut look = |now| scene.queues.squeezed(&mut system, held, &mut scene.spent, now);
        assert_eq!(look(next).unwrap(), Queue::Open);
        assert!(scene.queues.next > next);
    }
}
