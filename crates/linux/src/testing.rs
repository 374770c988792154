//! A captured tree made up in a test.

use std::path::Path;

/// Writes a file below `root`, with the folders on its way.
pub fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Fields 3 to 52 of a stat with the ones we read set apart: ppid 7, utime 30, stime 12, start
/// 424242, processor 5.
pub const FIELDS: &str = "R 7 1 1 0 -1 4194304 90 0 0 0 30 12 0 0 20 0 8 0 424242 1000 20 \
     18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0 0 0 0 0 0 0 0 0";
