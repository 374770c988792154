//! A captured tree made up in a test.

use std::path::Path;

/// Writes a file below `root`, with the folders on its way.
pub fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
