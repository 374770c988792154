//! The kernel's own counts of a task's hinting faults by node, from `/proc/PID/task/TID/sched`.
//!
//! Everybody may read them, nothing need be loaded, and they are there from the first fault on;
//! but they are counted after the kernel has moved a page, and only halve once a scan, so they
//! lag behind. Units: base pages. None where the kernel shows none (`CONFIG_SCHED_DEBUG` and
//! `CONFIG_NUMA_BALANCING`); no nodes where the task has not faulted.
//!
//! Source: `proc_sched_show_task` and `print_numa_stats` of the kernel, v6.12.

use std::path::Path;

use numaherd_model::NodeId;

use crate::ReadError;
use crate::file::Buffer;

/// Faults of one task by the node that holds the memory, ascending by node.
pub type TaskCounts = Vec<(NodeId, u64)>;

/// Reads the counts of one thread; None also when it has ended.
///
/// # Errors
/// The file cannot be read, or a count is no number.
pub fn read(root: &Path, tgid: u32, tid: u32) -> Result<Option<TaskCounts>, ReadError> {
    let path = root.join(format!("proc/{tgid}/task/{tid}/sched"));
    let mut buffer = Buffer::default();
    let Some(bytes) = buffer.read(&path)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(bytes);
    // This line, too, is printed by kernels with balancing only.
    if !text.lines().any(|line| line.starts_with("numa_preferred_nid")) {
        return Ok(None);
    }
    let mut counts = TaskCounts::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(rest) = line.strip_prefix("numa_faults node=") {
            let expected = "'numa_faults node=N task_private=N task_shared=N …'";
            let wrong = || ReadError::parse(&path, index + 1, expected, line);
            counts.push(parse(rest).ok_or_else(wrong)?);
        }
    }
    counts.retain(|(_, faults)| *faults > 0);
    counts.sort_unstable();
    Ok(Some(counts))
}

fn parse(rest: &str) -> Option<(NodeId, u64)> {
    let mut words = rest.split_ascii_whitespace();
    let node = words.next()?.parse().ok()?;
    let mut number = |name: &str| words.next()?.strip_prefix(name)?.parse::<u64>().ok();
    let private = number("task_private=")?;
    Some((NodeId(node), private.checked_add(number("task_shared=")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_their_absence_is_told_apart_from_none_yet() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("proc/7/task/8/sched");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let read = || read(root.path(), 7, 8);
        assert_eq!(read().unwrap(), None);
        std::fs::write(&path, "x (8, #threads: 2)\nprio : 120\n").unwrap();
        assert_eq!(read().unwrap(), None);
        let head = "x (8, #threads: 2)\nnuma_preferred_nid            :        -1\n";
        std::fs::write(&path, head).unwrap();
        assert_eq!(read().unwrap(), Some(vec![]));
        let lines = "current_node=1, numa_group_id=0\n\
            numa_faults node=0 task_private=0 task_shared=0 group_private=9 group_shared=0\n\
            numa_faults node=1 task_private=1540 task_shared=3 group_private=0 group_shared=0\n";
        std::fs::write(&path, format!("{head}{lines}")).unwrap();
        assert_eq!(read().unwrap(), Some(vec![(NodeId(1), 1543)]));
        std::fs::write(&path, format!("{head}numa_faults node=x\n")).unwrap();
        assert!(read().unwrap_err().to_string().contains("line 3"));
    }
}
