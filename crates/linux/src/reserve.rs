//! The reserve of huge pages (hugetlb) of one node: how many there are and how many are free.
//! Units: pages of 2 MiB.

use std::io;
use std::path::{Path, PathBuf};

use crate::file::{self, ReadError};

/// Where the node's reserve is set.
#[must_use]
pub fn path(root: &Path, node: u32) -> PathBuf {
    folder(root, node).join("nr_hugepages")
}

fn folder(root: &Path, node: u32) -> PathBuf {
    root.join(format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"))
}

/// Pages reserved, and those of them that are free; `None` where the node, or this kernel, has
/// no such reserve.
///
/// # Errors
/// It is there but cannot be read.
pub fn read(root: &Path, node: u32) -> Result<Option<(u64, u64)>, ReadError> {
    let number = |path: &Path| -> Result<Option<u64>, ReadError> {
        let Some(text) = file::text_if_present(path)? else { return Ok(None) };
        let parsed = text.trim().parse();
        parsed.map(Some).map_err(|_| ReadError::parse_file(path, "a number", &text))
    };
    let reserved = number(&path(root, node))?;
    Ok(reserved.zip(number(&folder(root, node).join("free_hugepages"))?))
}

/// Sets how many pages the node has in reserve. The kernel takes as many as it finds: read what
/// became of it.
///
/// # Errors
/// The system's.
pub fn write(root: &Path, node: u32, pages: u64) -> io::Result<()> {
    std::fs::write(path(root, node), pages.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_read_and_set_and_an_absent_one_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path(), 1).unwrap(), None);
        let folder = folder(root.path(), 1);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("nr_hugepages"), "5\n").unwrap();
        std::fs::write(folder.join("free_hugepages"), "3\n").unwrap();
        assert_eq!(read(root.path(), 1).unwrap(), Some((5, 3)));
        write(root.path(), 1, 7).unwrap();
        assert_eq!(read(root.path(), 1).unwrap(), Some((7, 3)));
        std::fs::write(folder.join("free_hugepages"), "many\n").unwrap();
        assert!(read(root.path(), 1).unwrap_err().to_string().contains("free_hugepages"));
    }
}
