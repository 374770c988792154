//! How long memory is taken to be used from now on, which is what moving it is weighed against.
//!
//! As long as its process has lived: what has gone on for long mostly goes on for long (Lindy's law). Threads come and go
//! with the work at hand, and processes with the program, so memory of one task is taken to be used no longer than four
//! times its age. And tasks that began together end together, more or less: where a process has fewer busy tasks than
//! before, it is taken to go on with those for as long as it has. So whatever is worth it is moved once waiting
//! for it has cost as much as moving it (as skis are bought once renting them has cost their price).
//!
//! Example: of eight threads of 26 s one has ended half a second ago. Moving what the others use has to pay within half a
//! second.

use std::collections::BTreeMap;

use numaherd_model::{Nanos, ProcessId, Snapshot, Task};

/// Times its task's age that memory of one task is taken to be used at most. Guessed.
const BEYOND_TASK: u64 = 4;

/// Bounds on how long memory is taken to be used, where nobody has ended.
const BOUNDS: (Nanos, Nanos) = (Nanos(1_000_000_000), Nanos(60_000_000_000));

/// The least that a process has had fewer busy tasks for. A look comes no sooner after the last one.
const SINCE: Nanos = Nanos(20_000_000);

/// What is known of each task.
pub struct Horizons(Vec<Known>);

struct Known {
    age: Nanos,
    of_process: Nanos,
    /// For how long its process has had so few busy tasks as now.
    fewer: Nanos,
}

impl Horizons {
    /// Of all tasks.
    #[must_use]
    pub fn new(snapshot: &Snapshot) -> Horizons {
        let fewer = |task: &Task| {
            let lasted = |at| snapshot.time.since(at).max(SINCE);
            fewer_since(snapshot, task).map_or(BOUNDS.1, lasted)
        };
        let tasks = snapshot.tasks.iter().zip(process_ages(snapshot));
        let known = |(task, of_process): (&Task, Nanos)| Known {
            age: task.age,
            of_process,
            fewer: fewer(task),
        };
        Horizons(tasks.map(known).collect())
    }

    /// How long memory will be used that these tasks use, by their places in the snapshot.
    #[must_use]
    pub fn of(&self, users: &[(usize, u64)]) -> Nanos {
        let several = users.len() > 1;
        let each = users.iter().map(|(task, _)| {
            let Known { age, of_process, fewer } = self.0[*task];
            let alone = || of_process.min(Nanos(age.0.saturating_mul(BEYOND_TASK)));
            let lives = if several { of_process } else { alone() };
            lives.clamp(BOUNDS.0, BOUNDS.1).min(fewer)
        });
        each.max().unwrap_or(BOUNDS.0)
    }
}

/// Whether a task may end as soon as others of its process did, by its index: before its pages come, which takes so long.
#[must_use]
pub fn may_end(snapshot: &Snapshot, task: usize, takes: Nanos) -> bool {
    let since = fewer_since(snapshot, &snapshot.tasks[task]);
    since.is_some_and(|since| snapshot.time.since(since) < takes)
}

/// Since when a task's process has had fewer busy tasks, if some have ended.
fn fewer_since(snapshot: &Snapshot, task: &Task) -> Option<Nanos> {
    let found = snapshot.fewer.binary_search_by_key(&task.process, |(process, _)| *process);
    found.ok().map(|i| snapshot.fewer[i].1)
}

/// How old the process of each task is: its oldest. Tasks of a process mostly follow each other.
#[must_use]
pub fn process_ages(snapshot: &Snapshot) -> Vec<Nanos> {
    let of_process = || snapshot.tasks.chunk_by(|a, b| a.process == b.process);
    let mut oldest: BTreeMap<ProcessId, Nanos> = BTreeMap::new();
    for task in of_process().flat_map(|tasks| tasks.iter().max_by_key(|task| task.age)) {
        let age = oldest.entry(task.process).or_default();
        *age = task.age.max(*age);
    }
    let ages = |tasks: &[Task]| std::iter::repeat_n(oldest[&tasks[0].process], tasks.len());
    of_process().flat_map(ages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_several_use_is_moved_for_as_long_as_their_process_lives() {
        let mut scene = Scene::two_by_four();
        (1..=3).for_each(|tid| scene.task(tid, 0, if tid == 1 { 0 } else { 1000 }));
        scene.edit().tasks[1..].iter_mut().for_each(|task| task.age = Nanos(2 * SECOND));
        let horizons = |scene: &Scene| {
            let horizons = Horizons::new(&scene.snapshot());
            [&[][..], &[(1, 1)], &[(1, 1), (2, 1)]].map(|users| horizons.of(users).0)
        };
        assert_eq!(horizons(&scene), [SECOND, 8 * SECOND, 10 * SECOND]);
        // And no longer than it has had fewer tasks.
        scene.edit().time = Nanos(25 * SECOND);
        scene.edit().fewer = vec![(PROCESS, Nanos(16 * SECOND))];
        assert_eq!(horizons(&scene), [SECOND, 8 * SECOND, 9 * SECOND]);
        scene.edit().fewer = vec![(PROCESS, Nanos(49 * SECOND / 2))];
        assert_eq!(horizons(&scene), [SECOND, SECOND / 2, SECOND / 2]);
        scene.edit().fewer = vec![(PROCESS, Nanos(25 * SECOND))];
        assert_eq!(horizons(&scene)[1..], [SINCE.0; 2]);
    }
}
