//! Whether how busy tasks were says what they do now.
//!
//! How busy a task is, is an average since the last look. A program that prepares its memory, starts its
//! threads and waits for them was busy for most of that time and is idle from then on: it would be placed, and one of
//! those that it started would go without a CPU. What a task did before others began says nothing of what it does
//! beside them; if it sleeps now, it is taken to be idle until the next look. Nor does what was usual for it until then
//! say anything: as long as it sleeps on, no more counts than it does now. Otherwise it would pull the memory that it
//! prepared to its node for seconds, while those who work on that are placed.
//!
//! Threads that were there before and slept are as idle by that average as who woke them is busy. Where some
//! sleep that were busy and others run that were idle, over a long time, it takes another look.
//!
//! Example: a main thread was busy for 700 of 900 ms, and sleeps; four threads are 200 ms old and busy. It counts
//! as idle. Did it run, or were it placed already, its average would count. Were the threads as old as
//! itself, and by the average idle, nobody would be placed until the next look.

use std::collections::BTreeMap;

use numaherd_model::{Nanos, ProcessId, Snapshot, Task, TaskId, TaskState};

/// Times the age of the youngest that a task which is seen for the first time has to be older. Guessed: of threads
/// that are started together the first are a little older than the last.
const OLDER: u64 = 2;

/// An average over less is believed. Guessed: three times the wait between looks while there is something to do.
const STALE: Nanos = Nanos(300_000_000);

/// Whom the last look saw, and when.
#[derive(Debug, Default)]
pub struct Awake {
    at: Nanos,
    /// Ascending.
    seen: Vec<TaskId>,
    /// Whom it took for idle, and who has slept since. Ascending.
    idle: Vec<TaskId>,
    /// Whether all had converged then: nobody is waited for.
    converged: bool,
    looks_again: bool,
}

impl Awake {
    /// Takes those for idle that sleep while others of their process are busy who have begun since they were looked
    /// at last. Answers whether it takes another look to know who is busy; not twice running.
    pub fn settle(&mut self, snapshot: &mut Snapshot) -> bool {
        let mut youngest: BTreeMap<ProcessId, Nanos> = BTreeMap::new();
        for task in snapshot.tasks.iter().filter(|task| task.claims_cpu()) {
            let age = youngest.entry(task.process).or_insert(task.age);
            *age = task.age.min(*age);
        }
        let since = snapshot.time.since(self.at);
        let is_doubtful = |task: &Task| match (youngest.get(&task.process), self.has_seen(task)) {
            (Some(&youngest), true) => youngest < since,
            (Some(&youngest), false) => Nanos(youngest.0 * OLDER) < task.age,
            (None, _) => false,
        };
        let mut idle = Vec::new();
        for task in snapshot.tasks.iter_mut().filter(|task| sleeps(task)) {
            if task.claims_cpu() {
                if !is_doubtful(task) {
                    continue;
                }
                (task.busy_permille, task.waiting_permille) = (0, 0);
            } else if self.idle.binary_search(&task.id).is_err() {
                continue;
            }
            let wanted = task.wanted_permille() as u32;
            task.usual_permille = task.usual_permille.map(|usual| usual.min(wanted));
            idle.push(task.id);
        }
        self.idle = idle;
        let can_wait = since >= STALE && !self.converged && !self.looks_again;
        self.looks_again = can_wait && self.contradicts(snapshot);
        self.at = snapshot.time;
        self.seen.clear();
        self.seen.extend(snapshot.tasks.iter().map(|task| task.id));
        self.looks_again
    }

    /// All has converged, or has not.
    pub fn turned(&mut self, converged: bool) {
        self.converged = converged;
    }

    /// Whether some that were busy sleep, and others run that were not, of those whom the last look saw.
    fn contradicts(&self, snapshot: &Snapshot) -> bool {
        let known = |task: &&Task| task.home.is_none() && !task.fixed && self.has_seen(task);
        let mut tasks = snapshot.tasks.iter().filter(known);
        let runs = |task: &Task| task.state == TaskState::Runnable;
        tasks.clone().any(|task| task.claims_cpu() && sleeps(task))
            && tasks.any(|task| runs(task) && !task.claims_cpu())
    }

    fn has_seen(&self, task: &Task) -> bool {
        self.seen.binary_search(&task.id).is_ok()
    }
}

/// Whether it sleeps, and may be about to be placed.
fn sleeps(task: &Task) -> bool {
    task.state == TaskState::Sleeping && task.home.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    const MS: u64 = 1_000_000;

    /// A main thread that was busy and sleeps, and two threads of this age in milliseconds, which run.
    fn started(age: u64) -> Snapshot {
        let mut scene = Scene::two_by_four();
        (1..=3).for_each(|tid| scene.task(tid, tid, 800));
        let snapshot = scene.edit();
        snapshot.time = Nanos(2000 * MS);
        snapshot.tasks[0].state = TaskState::Sleeping;
        snapshot.tasks[1..].iter_mut().for_each(|task| task.age = Nanos(age * MS));
        scene.snapshot()
    }

    /// How busy each is taken to be, with the main thread looked at so long ago, in milliseconds.
    fn settled(mut snapshot: Snapshot, before: u64) -> Vec<u32> {
        let at = snapshot.time.since(Nanos(before * MS));
        let mut awake = Awake { at, seen: vec![snapshot.tasks[0].id], ..Awake::default() };
        assert!(!awake.settle(&mut snapshot));
        assert_eq!((awake.at, awake.seen.len()), (snapshot.time, 3));
        snapshot.tasks.iter().map(|task| task.busy_permille).collect()
    }

    #[test]
    fn who_sleeps_since_it_started_others_is_idle() {
        assert_eq!(settled(started(200), 900), [0, 800, 800]);
        // All of the time that it was busy for, the others were there.
        assert_eq!(settled(started(200), 100), [800; 3]);
    }

    /// What the main thread is taken to want usually at looks 100 ms apart, where it was busy for seconds: first its
    /// threads begin, and then it is as busy and does what is given here.
    fn usually(later: &[(u32, TaskState)]) -> Vec<u64> {
        let mut snapshot = started(200);
        let at = snapshot.time.since(Nanos(900 * MS));
        let mut awake = Awake { at, seen: vec![snapshot.tasks[0].id], ..Awake::default() };
        let looks = [(800, TaskState::Sleeping)].into_iter().chain(later.iter().copied());
        let usual = looks.map(|(busy, state)| {
            let task = &mut snapshot.tasks[0];
            (task.busy_permille, task.usual_permille, task.state) = (busy, Some(1000), state);
            awake.settle(&mut snapshot);
            snapshot.time.0 += 100 * MS;
            snapshot.tasks[1..].iter_mut().for_each(|task| task.age.0 += 100 * MS);
            snapshot.tasks[0].usually_wanted_permille()
        });
        usual.collect()
    }

    #[test]
    fn what_was_usual_before_it_started_others_does_not_count_while_it_sleeps_on() {
        let sleeps = TaskState::Sleeping;
        assert_eq!(usually(&[(0, sleeps), (20, sleeps), (0, sleeps)]), [0, 0, 20, 0]);
        // It works again, or is about to.
        assert_eq!(usually(&[(0, sleeps), (800, sleeps), (0, sleeps)]), [0, 0, 1000, 1000]);
        assert_eq!(usually(&[(0, TaskState::Runnable), (0, sleeps)]), [0, 1000, 1000]);
    }

    #[test]
    fn who_runs_or_has_a_place_is_as_busy_as_it_was_seen() {
        let mut snapshot = started(200);
        snapshot.tasks[0].state = TaskState::Runnable;
        assert_eq!(settled(snapshot, 900), [800; 3]);
        let mut snapshot = started(200);
        snapshot.tasks[0].home = Some(snapshot.topology.nodes[0].id);
        assert_eq!(settled(snapshot, 900), [800; 3]);
    }

    #[test]
    fn what_other_processes_start_tells_nothing() {
        let mut snapshot = started(200);
        snapshot.tasks[0].process.tgid += 1;
        assert_eq!(settled(snapshot, 900), [800; 3]);
    }

    #[test]
    fn at_the_first_look_those_who_are_much_older_may_have_started_the_others() {
        let first = |main: u64| {
            let mut snapshot = started(200);
            snapshot.tasks[0].age = Nanos(main * MS);
            Awake::default().settle(&mut snapshot);
            snapshot.tasks[0].busy_permille
        };
        assert_eq!([first(900), first(250)], [0, 800]);
    }

    #[test]
    fn newcomers_who_do_nothing_tell_nothing() {
        let mut snapshot = started(200);
        snapshot.tasks[1..].iter_mut().for_each(|task| task.busy_permille = 0);
        assert_eq!(settled(snapshot, 900), [800, 0, 0]);
    }

    /// Whether it takes another look at threads that slept and run now, whom the last look saw so long ago; and
    /// whether the look after that, if it is as late, asks for one more.
    fn looks_again(before: u64, change: impl Fn(&mut Snapshot, &mut Awake)) -> [bool; 2] {
        let mut snapshot = started(10_000);
        snapshot.tasks[1..].iter_mut().for_each(|task| task.busy_permille = 100);
        let seen = snapshot.tasks.iter().map(|task| task.id).collect();
        let at = snapshot.time.since(Nanos(before * MS));
        let mut awake = Awake { at, seen, ..Awake::default() };
        change(&mut snapshot, &mut awake);
        let first = awake.settle(&mut snapshot);
        snapshot.time.0 += before * MS;
        [first, awake.settle(&mut snapshot)]
    }

    #[test]
    fn who_woke_a_moment_ago_is_looked_at_twice() {
        assert_eq!(looks_again(900, |_, _| {}), [true, false]);
        assert_eq!(looks_again(299, |_, _| {}), [false; 2]);
        assert_eq!(looks_again(900, |_, awake| awake.turned(true)), [false; 2]);
        let runs = |snapshot: &mut Snapshot, _: &mut Awake| {
            snapshot.tasks[0].state = TaskState::Runnable;
        };
        assert_eq!(looks_again(900, runs), [false; 2]);
        let sleep = |snapshot: &mut Snapshot, _: &mut Awake| {
            snapshot.tasks.iter_mut().for_each(|task| task.state = TaskState::Sleeping);
        };
        assert_eq!(looks_again(900, sleep), [false; 2]);
    }
}
