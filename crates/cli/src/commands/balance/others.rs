//! Other balancers at work: two on the same tasks would take each other's CPUs for their owner's.

use anyhow::{Result, bail};
use numaherd_linux::process::TaskReader;
use numaherd_model::{Change, ProcessId};
use numaherd_trace::LeftBehind;

use crate::session::{is_alive, journals, left_behind};

/// Refuses processes that another run looks after, and tells of runs that may come to do so.
///
/// # Errors
/// One of `named` is another run's; or the folder of journals cannot be read.
pub fn check(named: &[ProcessId], broad: bool) -> Result<()> {
    let mut reader = TaskReader::new("/".as_ref());
    let boot = reader.boot_id()?;
    for left in left_behind(&journals())?.journals {
        if left.boot != boot || left.kept || !is_alive(&left, &mut reader)? {
            continue;
        }
        let LeftBehind { run, pid, about, .. } = &left;
        if let Some(twice) = named.iter().find(|process| looks_after(&left, **process)) {
            bail!(
                "process {} is looked after by run {run} of process {pid} ({about}) already: end that first",
                twice.tgid
            );
        }
        if broad || about.contains(EVERY) || about.contains(GROUP) {
            say!(
                "numaherd: run {run} of process {pid} ({about}) goes on, too: what both look after is \
                 moved to and fro"
            );
        }
    }
    Ok(())
}

/// As runs tell whom they look after.
pub const EVERY: &str = "every busy process";
pub const GROUP: &str = "control group ";

fn looks_after(left: &LeftBehind, process: ProcessId) -> bool {
    let word = format!("process {}", process.tgid);
    let has_placed = |change: &Change| match change {
        Change::Affinity { process: of, .. } => *of == process,
        Change::Knob { .. } => false,
    };
    left.about.split(", ").any(|about| about == word)
        || left.changes.iter().any(|(_, change)| has_placed(change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::{Nanos, TaskId};

    #[test]
    fn a_run_looks_after_whom_it_names_and_whom_it_has_placed() {
        let process = |tgid| ProcessId { tgid, start: 1 };
        let change = Change::Affinity {
            task: TaskId { tid: 9, start: 1 },
            process: process(7),
            before: Default::default(),
            after: Default::default(),
        };
        let left = LeftBehind {
            path: "j".into(),
            run: "r".into(),
            boot: "b".into(),
            pid: 1,
            start: 1,
            about: "process 12, process 3".into(),
            tunes: false,
            kept: false,
            changes: vec![(Nanos(0), change)],
        };
        let looks = [1, 2, 3, 7, 12].map(|tgid| looks_after(&left, process(tgid)));
        assert_eq!(looks, [false, false, true, true, true]);
    }
}
