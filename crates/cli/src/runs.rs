//! Logs of runs, kept so that `explain` can tell of them afterwards: the newest few, readable by
//! nobody else, since they name what users run.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use numaherd_lab::kernel::cache_dir;
use numaherd_trace::put_aside;

/// Runs that are kept. Guessed.
const KEPT: usize = 50;

/// Where the systemd unit has them (`packaging/numaherd.service`).
const OF_THE_UNIT: &str = "/var/cache/numaherd/runs";

/// Where they lie.
pub fn folder() -> PathBuf {
    cache_dir().join("runs")
}

/// Where they are looked for: there, and where the unit has its own, unless one folder is named for all.
pub fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os("NUMAHERD_CACHE").is_some_and(|named| !named.is_empty());
    let of_the_unit = (!named).then(|| PathBuf::from(OF_THE_UNIT));
    let mut folders = vec![folder()];
    folders.extend(of_the_unit.filter(|unit| *unit != folders[0]));
    folders
}

/// That they may be looked for there. No folder is as good as an empty one.
///
/// # Errors
/// Who may look there, in words.
pub fn check(folder: &Path) -> anyhow::Result<()> {
    match std::fs::read_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(|| {
            format!(
                "cannot look for runs in {}, which is for the user of balance alone: be that user or root, or give \
                 the path of a log",
                folder.display()
            )
        }),
        _ => Ok(()),
    }
}

/// All logs there, oldest first.
pub fn kept(folders: &[PathBuf]) -> Vec<PathBuf> {
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok());
    let entries = entries.flatten().flatten();
    let logs =
        entries.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "jsonl"));
    let when = |path: &PathBuf| {
        std::fs::metadata(path).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let mut dated: Vec<(SystemTime, PathBuf)> = logs.map(|path| (when(&path), path)).collect();
    dated.sort();
    dated.into_iter().map(|(_, path)| path).collect()
}

/// A place for another run's log; the oldest make room for it.
pub fn next(folder: &Path, run: &str) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let kept = kept(&[folder.to_path_buf()]);
    for old in &kept[..kept.len().saturating_sub(KEPT - 1)] {
        // If another run was quicker, it is gone as well.
        let _ = std::fs::remove_file(old);
        let _ = std::fs::remove_file(put_aside(old));
    }
    Ok(folder.join(run).with_extension("jsonl"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("runs");
        for run in 0..KEPT + 3 {
            let path = next(&folder, &format!("9-{run}")).unwrap();
            let file = std::fs::File::create(&path).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(run as u64);
            file.set_modified(time).unwrap();
            std::fs::write(put_aside(&path), "").unwrap();
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2 * KEPT);
        // Those of another folder are among them, by when they were written.
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let file = std::fs::File::create(other.join("8-8.jsonl")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(4500)).unwrap();
        let names = |folders: &[PathBuf]| -> Vec<String> {
            let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_string();
            kept(folders).into_iter().map(stem).collect()
        };
        let own = names(std::slice::from_ref(&folder));
        assert_eq!((own.len(), &*own[0], &*own[KEPT - 1]), (KEPT, "9-3", "9-52"));
        let all = names(&[folder, other]);
        assert_eq!(
            (all.len(), &all[..4]),
            (KEPT + 1, &["9-3", "9-4", "8-8", "9-5"].map(String::from)[..])
        );
    }
}
