//! What this kernel offers and forbids, as facts below a root; what follows from them is decided
//! elsewhere.
//!
//! | fact | read from |
//! |------|-----------|
//! | release | `/proc/sys/kernel/osrelease` |
//! | memory by node and mapping | `/proc/self/numa_maps` (`CONFIG_NUMA`) |
//! | the kernel's own counts of faults | `/proc/self/sched` (`CONFIG_SCHED_DEBUG`, always since 6.15) |
//! | lockdown | `/sys/kernel/security/lockdown`, the word in brackets |
//! | who may look into whose processes | `hidepid` of `/proc` in `/proc/mounts` |
//! | cgroup v2 | `/proc/mounts`, as `balance --cgroup` does |
//! | programs that place processes too | the names of all processes |

use std::path::Path;

use crate::ReadError;
use crate::file::text_if_present;
use crate::process::TaskReader;

/// Programs that move tasks or memory between nodes on their own.
const RIVALS: [&str; 2] = ["numad", "numabalanced"];

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The kernel's release.
    pub release: String,
    /// Whether the kernel tells where a process's memory lies.
    pub numa_maps: bool,
    /// Whether it tells how long each task ran, in nanoseconds.
    pub schedstat: bool,
    /// Whether it shows its own counts of hinting faults.
    pub task_counts: bool,
    /// The kernel's lockdown, but for `none`.
    pub lockdown: Option<String>,
    /// How `/proc` hides other users' processes, but for `0` and `off`.
    pub hidepid: Option<String>,
    /// Whether control groups are of version 2.
    pub cgroup2: bool,
    /// Running programs that place processes too: name and process.
    pub rivals: Vec<(String, u32)>,
}

/// Reads them.
///
/// # Errors
/// A file is there and cannot be read.
pub fn read(root: &Path) -> Result<Host, ReadError> {
    let text = |path: &str| text_if_present(&root.join(path));
    let release = text("proc/sys/kernel/osrelease")?;
    let lockdown = text_if_present(&root.join("sys/kernel/security/lockdown")).unwrap_or_default();
    Ok(Host {
        release: release.map_or_else(|| "unknown".into(), |text| text.trim().to_string()),
        numa_maps: root.join("proc/self/numa_maps").exists(),
        // A kernel that does not count prints zeroes.
        schedstat: text("proc/self/schedstat")?.is_some_and(|text| text.trim() != "0 0 0"),
        task_counts: root.join("proc/self/sched").exists(),
        lockdown: lockdown.as_deref().and_then(in_brackets).filter(|mode| mode != "none"),
        hidepid: text("proc/mounts")?.as_deref().and_then(hidepid),
        cgroup2: crate::cgroup::has_version_2(root)?,
        rivals: rivals(root)?,
    })
}

/// The word in brackets of `none [integrity] confidentiality`.
fn in_brackets(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// `hidepid` of the last mount at `/proc`: that is the one seen.
fn hidepid(mounts: &str) -> Option<String> {
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let proc = fields.rfind(|fields| fields.get(1) == Some(&"/proc"))?;
    let options = proc.get(3)?.split(',');
    let mode = options.filter_map(|option| option.strip_prefix("hidepid=")).next_back()?;
    (!matches!(mode, "0" | "off")).then(|| mode.to_string())
}

fn rivals(root: &Path) -> Result<Vec<(String, u32)>, ReadError> {
    let mut reader = TaskReader::new(root);
    let mut found = Vec::new();
    for pid in reader.processes()? {
        // Whoever ended meanwhile is no rival.
        let stat = reader.listed_stat(pid)?;
        let name = stat.map(|stat| stat.comm).filter(|name| RIVALS.contains(&name.as_str()));
        found.extend(name.map(|name| (name, pid)));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(
            read(root.path()).unwrap(),
            Host { release: "unknown".into(), ..Host::default() }
        );
        put("proc/sys/kernel/osrelease", "6.12.1\n");
        put("proc/self/numa_maps", "");
        put("proc/self/schedstat", "0 0 0\n");
        assert!(!read(root.path()).unwrap().schedstat);
        put("proc/self/schedstat", "5 0 1\n");
        assert!(read(root.path()).unwrap().schedstat);
        put("sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        put(
            "proc/mounts",
            "proc /proc proc rw,hidepid=2 0 0\nproc /proc proc rw,hidepid=off 0 0\n",
        );
        let stat = |tid: u32, name: &str| {
            let zeros = "0 ".repeat(48);
            put(&format!("proc/{tid}/task/{tid}/stat"), &format!("{tid} ({name}) S 1 {zeros}"));
        };
        stat(40, "numad");
        stat(41, "numactl");
        let host = read(root.path()).unwrap();
        assert_eq!((host.release.as_str(), host.numa_maps, host.cgroup2), ("6.12.1", true, false));
        assert_eq!(host.lockdown.as_deref(), Some("integrity"));
        assert_eq!(host.hidepid, None, "the last mount is the one seen");
        assert_eq!(host.rivals, [("numad".to_string(), 40)]);
    }

    #[test]
    fn what_is_hidden_and_locked_is_told_apart_from_what_is_not() {
        let mounts = "sysfs /sys sysfs rw 0 0\nproc /proc proc rw,nosuid,hidepid=invisible 0 0\n";
        assert_eq!(hidepid(mounts).as_deref(), Some("invisible"));
        assert_eq!(hidepid("proc /proc proc rw 0 0\n"), None);
        assert_eq!(hidepid(""), None);
        assert_eq!(in_brackets("[none] integrity").as_deref(), Some("none"));
        assert_eq!(in_brackets("none"), None);
    }
}
