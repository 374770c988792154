//! The repository's text files, by their path below its root.
//!
//! Untracked files count: they are about to be committed. `target` and hidden folders that hold
//! no sources of ours do not.

use std::path::{Path, PathBuf};

/// Folders that hold nothing written here; `.git` of a second worktree is a file.
const SKIPPED: &[&str] = &["target", ".git"];

/// One text file.
pub struct File {
    /// Below the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All text files whose path is wanted, in order of their paths. Binary files have no text.
pub fn files(wanted: impl Fn(&str) -> bool) -> Vec<File> {
    let mut found = Vec::new();
    collect(&root(), "", &mut found, &wanted);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no file was looked at");
    found
}

fn collect(dir: &Path, below: &str, found: &mut Vec<File>, wanted: &impl Fn(&str) -> bool) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type().unwrap();
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), &path, found, wanted);
        } else if kind.is_file()
            && wanted(&path)
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            found.push(File { path, text });
        }
    }
}
