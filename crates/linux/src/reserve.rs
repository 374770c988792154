//! The reserve of huge pages (hugetlb) of one node: how many there are and how many are free.
//! Units: pages of 2 MiB.

use std::collections::BTreeMap;
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

/// Pages of the node's reserve that nobody has and nobody was promised. A promise may be for any node, and counts on each;
/// where that cannot be read there are none.
#[must_use]
pub fn spare(root: &Path, node: u32) -> u64 {
    let promised = root.join("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
    let promised = file::text_if_present(&promised).ok().flatten();
    let promised = promised.and_then(|text| text.trim().parse::<u64>().ok());
    let free = read(root, node).ok().flatten().map(|(_, free)| free);
    free.zip(promised).map_or(0, |(free, promised)| free.saturating_sub(promised))
}

/// What nodes can spare of their reserves while pages come there.
#[derive(Debug, Default)]
pub struct Spare(BTreeMap<u32, u64>);

impl Spare {
    /// Whether a node can spare so many more, of which it has `left` at first; takes them, if so.
    pub fn takes(&mut self, node: u32, pages: u64, left: impl FnOnce() -> u64) -> bool {
        let spare = self.0.entry(node).or_insert_with(left);
        let less = spare.checked_sub(pages);
        *spare = less.unwrap_or(*spare);
        less.is_some()
    }
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
    fn a_node_spares_no_more_than_it_has_left() {
        let mut spare = Spare::default();
        let mut takes = |node, pages| spare.takes(node, pages, || 3);
        assert_eq!(
            [takes(0, 2), takes(0, 2), takes(1, 3), takes(0, 1), takes(0, 1)],
            [true, false, true, true, false]
        );
    }

    #[test]
    fn a_reserve_is_read_and_set_and_an_absent_one_is_none() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path(), 1).unwrap(), None);
        let folder = folder(root.path(), 1);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("nr_hugepages"), "5\n").unwrap();
        std::fs::write(folder.join("free_hugepages"), "3\n").unwrap();
        assert_eq!(read(root.path(), 1).unwrap(), Some((5, 3)));
        assert_eq!(spare(root.path(), 1), 0, "it is not known what is promised");
        let all = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        std::fs::create_dir_all(&all).unwrap();
        for (promised, left) in [("0\n", 3), ("2\n", 1), ("9\n", 0)] {
            std::fs::write(all.join("resv_hugepages"), promised).unwrap();
            assert_eq!(spare(root.path(), 1), left);
        }
        write(root.path(), 1, 7).unwrap();
        assert_eq!(read(root.path(), 1).unwrap(), Some((7, 3)));
        std::fs::write(folder.join("free_hugepages"), "many\n").unwrap();
        assert!(read(root.path(), 1).unwrap_err().to_string().contains("free_hugepages"));
    }
}
