//! The processes of a control group (version 2) and of all groups below it; the cpuset of a task.
//!
//! | read | for |
//! |------|-----|
//! | `/proc/mounts` | where version 2 is mounted: `/sys/fs/cgroup`, or `…/unified` beside version 1 |
//! | `cgroup.procs` of a group and of each folder below | its processes |
//! | `/proc/PID/task/TID/cgroup` | the groups of a task |
//! | `cpuset.cpus.effective`, or `cpuset.effective_cpus` of version 1 | CPUs of a group |
//!
//! A group whose threads are shared out among its children lists no processes; its parent does.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use numaherd_model::CpuSet;

use crate::ReadError;
use crate::file::{is_absent, text_if_present, unescape};

/// How old it may be where groups are mounted. A host of containers mounts thousands of things, and where
/// groups are changes hardly ever.
const MOUNTS_AGE: Duration = Duration::from_secs(10);

/// Where groups are mounted, as read when it is asked for.
#[derive(Debug, Default)]
pub struct Mounts(Option<(Instant, Vec<Mount>)>);

/// A folder in which groups are.
#[derive(Debug)]
struct Mount {
    folder: PathBuf,
    /// Of version 1: which controllers they have, among other options.
    version_1: Option<String>,
}

impl Mounts {
    /// Where groups of version 2 are.
    fn version_2(&mut self, root: &Path) -> Result<Option<&Path>, ReadError> {
        let found = self.read(root)?.iter().find(|mount| mount.version_1.is_none());
        Ok(found.map(|mount| mount.folder.as_path()))
    }

    /// Where groups of version 1 are that have a controller.
    fn version_1(&mut self, root: &Path, controller: &str) -> Result<Option<&Path>, ReadError> {
        let has = |options: &str| options.split(',').any(|option| option == controller);
        let mut mounts = self.read(root)?.iter();
        let found = mounts.find(|mount| mount.version_1.as_deref().is_some_and(has));
        Ok(found.map(|mount| mount.folder.as_path()))
    }

    fn read(&mut self, root: &Path) -> Result<&[Mount], ReadError> {
        let known = self.0.take().filter(|(at, _)| at.elapsed() < MOUNTS_AGE);
        let known = match known {
            Some(known) => known,
            None => {
                let text = text_if_present(&root.join("proc/mounts"))?.unwrap_or_default();
                (Instant::now(), text.lines().filter_map(|line| mount(root, line)).collect())
            }
        };
        Ok(&self.0.insert(known).1)
    }
}

/// Whether groups of version 2 are mounted, beside others or not.
///
/// # Errors
/// What is mounted cannot be read.
pub fn has_version_2(root: &Path) -> Result<bool, ReadError> {
    Ok(Mounts::default().version_2(root)?.is_some())
}

/// A line of `/proc/mounts`, if groups are mounted there.
fn mount(root: &Path, line: &str) -> Option<Mount> {
    let mut fields = line.split(' ').skip(1);
    let (folder, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
    let version_1 = match kind {
        "cgroup" => Some(options.to_string()),
        "cgroup2" => None,
        _ => return None,
    };
    Some(Mount { folder: root.join(unescape(folder).trim_start_matches('/')), version_1 })
}

/// A group's path and those of the groups above it, nearest first, the root last; none of a group outside our
/// namespace, which begins with "..".
fn up(group: &str) -> impl Iterator<Item = &Path> {
    let inside = group.starts_with('/') && !group.starts_with("/..");
    Path::new(group.trim_start_matches('/')).ancestors().filter(move |_| inside)
}

/// The folder of a group: `path` as it is if it is one below `root`, else below the mount of
/// version 2. None where there is no such group, and for a path with `..`.
///
/// # Errors
/// `/proc/mounts` cannot be read.
pub fn find(root: &Path, path: &Path) -> Result<Option<PathBuf>, ReadError> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Ok(None);
    }
    let mut mounts = Mounts::default();
    let below = |base: &Path| base.join(path.strip_prefix("/").unwrap_or(path));
    let as_it_is = path.is_absolute().then(|| below(root));
    let in_mount = mounts.version_2(root)?.map(below);
    let groups = as_it_is.into_iter().chain(in_mount);
    Ok(groups.into_iter().find(|folder| folder.join("cgroup.procs").exists()))
}

/// All processes of the group in `folder` and below, ascending; None when it is gone.
///
/// # Errors
/// A file or folder cannot be read.
pub fn processes(folder: &Path) -> Result<Option<Vec<u32>>, ReadError> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    let mut known = false;
    while let Some(folder) = folders.pop() {
        let path = folder.join("cgroup.procs");
        match text_if_present(&path) {
            Ok(Some(text)) => {
                known = true;
                for (line, text) in text.lines().enumerate() {
                    let wrong = |_| ReadError::parse(&path, line + 1, "a process id", text);
                    found.insert(text.trim().parse().map_err(wrong)?);
                }
            }
            Ok(None) => continue,
            // Its threads are shared out: the parent lists its processes.
            Err(ReadError::Read { source, .. })
                if source.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
            Err(error) => return Err(error),
        }
        folders.extend(children(&folder)?);
    }
    // 0 stands for processes of another pid namespace.
    found.remove(&0);
    Ok(known.then(|| found.into_iter().collect()))
}

/// The CPUs of a task's cpuset; None where no group of its own or above has one, or it has ended.
/// In version 2 a group without a cpuset has that of the nearest group above.
///
/// # Errors
/// A file is there and cannot be read, or is no list of CPUs.
pub fn cpuset(
    root: &Path,
    mounts: &mut Mounts,
    tgid: u32,
    tid: u32,
) -> Result<Option<CpuSet>, ReadError> {
    let path = root.join(format!("proc/{tgid}/task/{tid}/cgroup"));
    let Some(text) = text_if_present(&path)? else { return Ok(None) };
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let version_1 = controllers.split(',').any(|name| name == "cpuset");
        if !version_1 && !controllers.is_empty() {
            continue;
        }
        let (base, file) = match version_1 {
            true => (mounts.version_1(root, "cpuset")?, "cpuset.effective_cpus"),
            false => (mounts.version_2(root)?, "cpuset.cpus.effective"),
        };
        let Some(base) = base else { continue };
        // The root has every CPU there is, and is none of a task's own.
        let is_own = |part: &&Path| !part.as_os_str().is_empty() || !is_root(base, version_1);
        for part in up(group).filter(is_own) {
            let path = base.join(part).join(file);
            if let Some(list) = text_if_present(&path)?.filter(|list| !list.trim().is_empty()) {
                let wrong = |_| ReadError::parse_file(&path, "a list of CPUs such as 0-3", &list);
                return list.parse().map(Some).map_err(wrong);
            }
        }
    }
    Ok(None)
}

/// Whether the group that is mounted here is the root of all; in a container it is the container's own, with a cpuset
/// as any other. The kernel has the one file in groups but the root, and the other in the root alone.
fn is_root(folder: &Path, version_1: bool) -> bool {
    match version_1 {
        true => folder.join("cgroup.sane_behavior").exists(),
        false => !folder.join("cgroup.events").exists(),
    }
}

/// The folders of a process's groups of version 2, each with those above it, nearest first; none where it has ended, or its
/// group is outside our namespace. It has several where its threads are shared out (libvirt's vCPUs and emulator). In a
/// container the root may have limits too.
///
/// # Errors
/// A file is there and cannot be read.
pub fn of_process(
    root: &Path,
    mounts: &mut Mounts,
    tgid: u32,
) -> Result<Vec<Vec<PathBuf>>, ReadError> {
    let Some(base) = mounts.version_2(root)?.map(Path::to_path_buf) else { return Ok(Vec::new()) };
    let of = |text: &str| {
        let group = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
        up(group).map(|part| base.join(part)).collect()
    };
    groups(root, tgid, of, |own| {
        Ok(text_if_present(&own.join("cgroup.type"))?.is_some_and(|kind| kind.contains("threaded")))
    })
}

/// The same of its groups of version 1 that have the `cpu` controller, as on hosts where both versions are in use. There a
/// process's threads may be in as many groups as they like; they are looked for where its main one is in one that libvirt
/// makes for that.
///
/// # Errors
/// A file is there and cannot be read.
pub fn of_process_by_cpu(
    root: &Path,
    mounts: &mut Mounts,
    tgid: u32,
) -> Result<Vec<Vec<PathBuf>>, ReadError> {
    let Some(base) = mounts.version_1(root, "cpu")?.map(Path::to_path_buf) else {
        return Ok(Vec::new());
    };
    let by_cpu = |line: &&str| {
        let controllers = line.split(':').nth(1).unwrap_or_default();
        controllers.split(',').any(|name| name == "cpu")
    };
    let of = |text: &str| {
        let group = text.lines().find(by_cpu).and_then(|line| line.splitn(3, ':').nth(2));
        group.into_iter().flat_map(up).map(|part| base.join(part)).collect()
    };
    groups(root, tgid, of, |own| Ok(own.ends_with("emulator")))
}

/// What a process's groups are `of` the text that tells of them: its main thread's, and where that is one `of_threads`,
/// those of all its threads.
fn groups(
    root: &Path,
    tgid: u32,
    of: impl Fn(&str) -> Vec<PathBuf>,
    of_threads: impl Fn(&Path) -> Result<bool, ReadError>,
) -> Result<Vec<Vec<PathBuf>>, ReadError> {
    let process = root.join(format!("proc/{tgid}"));
    let own = of(&text_if_present(&process.join("cgroup"))?.unwrap_or_default());
    let Some(nearest) = own.first() else { return Ok(Vec::new()) };
    if !of_threads(nearest)? {
        return Ok(vec![own]);
    }
    let mut all = BTreeSet::from([own]);
    for thread in children(&process.join("task"))? {
        all.extend(text_if_present(&thread.join("cgroup"))?.map(|text| of(&text)));
    }
    Ok(all.into_iter().filter(|group| !group.is_empty()).collect())
}

fn children(folder: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |source: io::Error| ReadError::Read { path: folder.to_path_buf(), source };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_absent(&error) => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let folders = entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
    Ok(folders.map(|entry| entry.path()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside groups of version 1 too, as `balance --cgroup` takes them.
    #[test]
    fn groups_of_version_2_are_there_wherever_they_are_mounted() {
        assert!(has_version_2(root().path()).unwrap());
        let none = tempfile::tempdir().unwrap();
        assert!(!has_version_2(none.path()).unwrap());
    }

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| put(root.path(), path, text);
        put("proc/mounts", "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
        put("sys/fs/cgroup/unified/cgroup.procs", "1\n");
        put("sys/fs/cgroup/unified/a.slice/cgroup.procs", "");
        put("sys/fs/cgroup/unified/a.slice/x/cgroup.procs", "70\n9\n0\n");
        put("sys/fs/cgroup/unified/a.slice/y/z/cgroup.procs", "71\n");
        put("sys/fs/cgroup/unified/a.slice/y/cgroup.procs", "9\n");
        root
    }

    #[test]
    fn a_subtree_is_read_whole() {
        let root = root();
        let folder = find(root.path(), "a.slice".as_ref()).unwrap().unwrap();
        assert_eq!(processes(&folder).unwrap(), Some(vec![9, 70, 71]));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(processes(&folder).unwrap(), None);
    }

    #[test]
    fn a_tasks_cpuset_is_that_of_its_group_or_the_nearest_above() {
        let root = root();
        let put = |path: &str, text: &str| put(root.path(), path, text);
        put("proc/7/task/8/cgroup", "4:memory:/x\n0::/a.slice/y/z\n");
        let of = |tid| cpuset(root.path(), &mut Mounts::default(), 7, tid).unwrap();
        let cpus = || of(8).map(|set| set.to_string());
        assert_eq!(cpus(), None);
        put("sys/fs/cgroup/unified/a.slice/cpuset.cpus.effective", "0-5\n");
        assert_eq!(cpus().as_deref(), Some("0-5"));
        put("sys/fs/cgroup/unified/a.slice/y/z/cpuset.cpus.effective", "2-3,9\n");
        assert_eq!(cpus().as_deref(), Some("2-3,9"));
        // Version 1 beside it has the cpuset.
        put(
            "proc/mounts",
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
             cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,cpuset 0 0\n",
        );
        put("proc/7/task/8/cgroup", "3:cpuset:/b\n0::/a.slice/y/z\n");
        put("sys/fs/cgroup/cpuset/b/cpuset.effective_cpus", "1\n");
        assert_eq!(cpus().as_deref(), Some("1"));
        put("proc/7/task/8/cgroup", "0::/../elsewhere\n");
        assert_eq!(cpus(), None);
        put("proc/7/task/8/cgroup", "0::/\n");
        put("sys/fs/cgroup/unified/cpuset.cpus.effective", "0-9\n");
        assert_eq!((cpus(), of(9)), (None, None));
    }

    /// Its own group is the root of what it sees.
    #[test]
    fn in_a_container_the_root_has_a_cpuset_too() {
        let root = root();
        let put = |path: &str, text: &str| put(root.path(), path, text);
        let of = |tid| cpuset(root.path(), &mut Mounts::default(), 7, tid).unwrap();
        let cpus = || of(8).map(|set| set.to_string());
        put("proc/7/task/8/cgroup", "0::/\n");
        put("sys/fs/cgroup/unified/cpuset.cpus.effective", "2-3\n");
        assert_eq!(cpus(), None, "the root of all");
        put("sys/fs/cgroup/unified/cgroup.events", "populated 1\n");
        assert_eq!(cpus().as_deref(), Some("2-3"));
        put("proc/mounts", "cgroup /sys/fs/cgroup/cpuset cgroup rw,nosuid,cpuset 0 0\n");
        put("proc/7/task/8/cgroup", "3:cpuset:/\n");
        put("sys/fs/cgroup/cpuset/cpuset.effective_cpus", "1\n");
        assert_eq!(cpus().as_deref(), Some("1"));
        put("sys/fs/cgroup/cpuset/cgroup.sane_behavior", "0\n");
        assert_eq!(cpus(), None, "the root of all");
    }

    #[test]
    fn where_groups_are_is_not_read_again_soon() {
        let root = root();
        std::fs::create_dir_all(root.path().join("proc/7")).unwrap();
        std::fs::write(root.path().join("proc/7/cgroup"), "0::/a.slice/x\n").unwrap();
        let folders =
            |mounts: &mut Mounts| of_process(root.path(), mounts, 7).unwrap().concat().len();
        let mut mounts = Mounts::default();
        assert_eq!(folders(&mut mounts), 3);
        std::fs::write(root.path().join("proc/mounts"), "").unwrap();
        assert_eq!((folders(&mut mounts), folders(&mut Mounts::default())), (3, 0));
    }

    /// As below a container's root that is named so.
    #[test]
    fn groups_may_be_mounted_where_a_name_has_blanks() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| put(root.path(), path, text);
        put("proc/mounts", "cgroup2 /mnt/my\\040own\\134groups cgroup2 rw 0 0\n");
        put("mnt/my own\\groups/a.slice/cgroup.procs", "5\n");
        let folder = find(root.path(), "a.slice".as_ref()).unwrap().unwrap();
        assert_eq!(processes(&folder).unwrap(), Some(vec![5]));
    }

    #[test]
    fn a_group_is_found_by_its_name_and_by_its_folder() {
        let root = root();
        let found = |path: &str| find(root.path(), path.as_ref()).unwrap();
        let x = root.path().join("sys/fs/cgroup/unified/a.slice/x");
        assert_eq!(found("/a.slice/x"), Some(x.clone()));
        assert_eq!(found("/sys/fs/cgroup/unified/a.slice/x"), Some(x));
        assert_eq!(found("b.slice"), None);
        assert_eq!(found("a.slice/../../.."), None);
        std::fs::write(root.path().join("sys/fs/cgroup/unified/cgroup.procs"), "x\n").unwrap();
        let error = processes(&found("/").unwrap()).unwrap_err().to_string();
        assert!(error.contains("line 1: expected a process id"), "{error}");
    }
}
