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

/// Where they lie.
pub fn folder() -> PathBuf {
    cache_dir().join("runs")
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
pub fn kept(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
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
    let kept = kept(folder);
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
        let names: Vec<_> =
            kept(&folder).iter().map(|p| p.file_stem().unwrap().to_owned()).collect();
        assert_eq!(names.len(), KEPT);
        assert_eq!((names[0].to_str(), names[KEPT - 1].to_str()), (Some("9-3"), Some("9-52")));
    }
}
