//! Whether a process has fewer busy tasks than before, since some ended.
//!
//! Tasks that began together and do the same work end together, more or less: what a process has done for a minute
//! says nothing of how long the rest of its tasks will go on once the first of them has ended. So a placement is told since
//! when there are fewer. Where others begin instead, as in a pool, there are not.
//!
//! Example: eight threads of 26 s, of which one has ended half a second ago. The seven are taken to go on for half a
//! second, not for 26.

use std::collections::BTreeMap;

use numaherd_model::{Nanos, ProcessId, Snapshot, TaskId};

/// Who was busy at the last look, and which processes have fewer since.
#[derive(Debug, Default)]
pub struct Fewer {
    at: Nanos,
    busy: Vec<(ProcessId, TaskId)>,
    since: BTreeMap<ProcessId, Nanos>,
}

impl Fewer {
    /// Fills in which processes have fewer busy tasks, and since when.
    pub fn fill(&mut self, snapshot: &mut Snapshot) {
        // Of each process, by how many more have ended than begun.
        let mut lost: BTreeMap<ProcessId, i64> = BTreeMap::new();
        for (process, task) in &self.busy {
            let ended = snapshot.tasks.binary_search_by_key(task, |task| task.id).is_err();
            *lost.entry(*process).or_default() += i64::from(ended);
        }
        let since = snapshot.time.since(self.at);
        let busy = || snapshot.tasks.iter().filter(|task| task.claims_cpu());
        for task in busy().filter(|task| task.age < since) {
            *lost.entry(task.process).or_default() -= 1;
        }
        // What has no busy task any more ends, or begins something else.
        self.since.retain(|process, _| lost.get(process).is_some_and(|lost| *lost >= 0));
        let new = lost.iter().filter(|(_, lost)| **lost > 0);
        let new: Vec<_> = new.map(|(process, _)| (*process, snapshot.time)).collect();
        self.since.extend(new);
        self.at = snapshot.time;
        self.busy = busy().map(|task| (task.process, task.id)).collect();
        snapshot.fewer = self.since.iter().map(|(process, at)| (*process, *at)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, Scene};

    /// Busy tasks of one process at each look, a second apart, by id and age in seconds: since when there are fewer, as
    /// told at each.
    fn told(looks: &[&[(u32, u64)]]) -> Vec<Option<u64>> {
        let mut fewer = Fewer::default();
        let mut told = Vec::new();
        for (second, tasks) in (10..).zip(looks) {
            let mut scene = Scene::two_by_four();
            tasks.iter().for_each(|&(tid, _)| scene.task(tid, 1, 1000));
            scene.edit().time = Nanos(second);
            let ages = scene.edit().tasks.iter_mut().zip(*tasks);
            ages.for_each(|(task, (_, age))| task.age = Nanos(*age));
            let mut snapshot = scene.snapshot();
            fewer.fill(&mut snapshot);
            let since = snapshot.fewer.first().map(|&(process, since)| {
                assert_eq!(process, PROCESS);
                since.0
            });
            told.push(since);
        }
        told
    }

    #[test]
    fn there_are_fewer_since_the_last_one_ended() {
        let (four, three, two) =
            ([(1, 9), (2, 9), (3, 9), (4, 9)], [(1, 9), (2, 9), (4, 9)], [(1, 9), (4, 9)]);
        let since = told(&[&four, &four, &three, &three, &two]);
        assert_eq!(since, [None, None, Some(12), Some(12), Some(14)]);
    }

    #[test]
    fn there_are_not_where_others_begin() {
        // In a pool, one for another; and when all have ended, others.
        assert_eq!(told(&[&[(1, 9), (2, 9)], &[(2, 9), (3, 0)], &[(3, 1), (4, 0)]]), [None; 3]);
        let again = told(&[&[(1, 9), (2, 9)], &[(1, 9)], &[(1, 9), (3, 0)], &[(1, 9), (3, 1)]]);
        assert_eq!(again, [None, Some(11), None, None]);
        assert_eq!(told(&[&[(1, 9)], &[], &[(2, 0)]]), [None, Some(11), None]);
    }
}
