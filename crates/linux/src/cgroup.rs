//! The processes of a control group (version 2) and of all groups below it.
//!
//! | read | for |
//! |------|-----|
//! | `/proc/mounts` | where version 2 is mounted: `/sys/fs/cgroup`, or `…/unified` beside version 1 |
//! | `cgroup.procs` of a group and of each folder below | its processes |
//!
//! A group whose threads are shared out among its children lists no processes; its parent does.

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::ReadError;
use crate::file::{is_absent, text_if_present};

/// The folder of a group: `path` as it is if it is one below `root`, else below the mount of
/// version 2. None where there is no such group, and for a path with `..`.
///
/// # Errors
/// `/proc/mounts` cannot be read.
pub fn find(root: &Path, path: &Path) -> Result<Option<PathBuf>, ReadError> {
    if path.components().any(|part| part == Component::ParentDir) {
        return Ok(None);
    }
    let mounts = text_if_present(&root.join("proc/mounts"))?.unwrap_or_default();
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = fields.filter(|f| f.get(2) == Some(&"cgroup2")).find_map(|f| f.get(1).copied());
    let below = |base: &Path, path: &Path| base.join(path.strip_prefix("/").unwrap_or(path));
    let as_it_is = path.is_absolute().then(|| below(root, path));
    let in_mount = mount.map(|mount| below(&below(root, Path::new(mount)), path));
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

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
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
