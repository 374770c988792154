//! hugetlb: numa02 in huge pages of the kernel's reserve. The kernel does not scan such memory,
//! so no hinting fault ever says who uses it: a balancer that goes by faults alone is blind.
//!
//! Every node needs enough free reserved pages for all of it, since placements put it anywhere.
//! (A page that is missing where memory is bound would end the process with SIGBUS.)

use std::path::Path;

use crate::job::Job;
use crate::setting::{Piece, Setting};
use crate::span::{HUGE_BYTES, Span};
use crate::{Params, WorkloadError, slice_by};

/// Huge pages of 2 MiB that each node needs for this many bytes.
#[must_use]
pub fn pages_per_node(size_bytes: usize) -> usize {
    size_bytes.div_ceil(HUGE_BYTES)
}

/// The process.
pub fn job<'a>(setting: &Setting, root: &Path) -> Result<Job<'a>, WorkloadError> {
    setting.check_bytes(HUGE_BYTES, "a huge page of 2 MiB")?;
    let Params { threads, size_bytes, loops, .. } = setting.params;
    let size = size_bytes / HUGE_BYTES * HUGE_BYTES;
    for node in setting.layout.node_ids() {
        check_reserve(root, node, pages_per_node(size))?;
    }
    let span = Span::map_reserved(size)?;
    let homes: Vec<_> = (0..threads).map(|index| setting.layout.thread(threads, index)).collect();
    let part = move |index| slice_by(HUGE_BYTES, size, threads, index);
    let pieces = homes.iter().cloned().enumerate();
    setting.place(&span, pieces.map(|(index, home)| Piece { part: part(index), home }), 0)?;
    Ok(Job::over(span, homes, move |span, index, tally| {
        for round in tally.rounds(loops) {
            tally.write(span, part(index), round as u64 + 1);
        }
    }))
}

/// An error unless `node` has this many free huge pages.
fn check_reserve(root: &Path, node: u32, pages: usize) -> Result<(), WorkloadError> {
    let folder = format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
    let free = root.join(&folder).join("free_hugepages");
    let free = std::fs::read_to_string(free).ok().and_then(|text| text.trim().parse().ok());
    let free: usize = free.unwrap_or(0);
    if free >= pages {
        return Ok(());
    }
    let problem = format!(
        "node {node} has {free} free huge pages of 2 MiB and hugetlb needs {pages} on every node: \
         echo {pages} > /{folder}/nr_hugepages"
    );
    Err(WorkloadError::Params { problem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{run_here, with};

    #[test]
    fn a_reserve_that_is_too_small_is_told_before_anything_is_mapped() {
        let root = std::env::temp_dir().join(format!("hugetlb-{}", std::process::id()));
        let folder = root.join("sys/devices/system/node/node0/hugepages/hugepages-2048kB");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("free_hugepages"), "3\n").unwrap();
        assert!(check_reserve(&root, 0, 3).is_ok());
        with(2, 8 << 20, 1, |setting| {
            let error = job(setting, &root).err().unwrap().to_string();
            assert!(error.contains("node 0 has 3 free") && error.contains("needs 4"), "{error}");
        });
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// Where this host has a reserve; where it has none, the error says what to do.
    #[test]
    fn it_writes_what_was_asked_or_says_what_is_missing() {
        with(2, 4 << 20, 3, |setting| match job(setting, Path::new("/")) {
            Ok(job) => {
                assert_eq!(run_here(&job, setting).amount, 3 * (4 << 20));
                assert_eq!(job.span.as_ref().unwrap().extremes(0..4 << 20), (3, 3));
            }
            Err(error) => assert!(error.to_string().contains("nr_hugepages"), "{error}"),
        });
    }
}
