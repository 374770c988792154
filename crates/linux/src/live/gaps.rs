//! Where a whole process's pages lie, going by a few of them: what page tables tell beside faults.

use numaherd_model::{Bytes, NodeId, Pages, ProcessId};

use super::resident;
use crate::memory::maps::AnonymousRange;
use crate::sys::pages;
use crate::system::Memory;

/// Pages looked up of a whole process, and how many if too few of these are there. Guessed.
const SAMPLES: [u64; 2] = [256, 1024];

/// So many of them have to be there: in a large mapping that is hardly used, few are. Guessed: two standard
/// deviations of a half are 9 % then, and 6 % where all of the fewer ones are there.
const LEAST_THERE: u64 = 128;

/// A process's pages per node, going by some that are spread over all of its own that it maps; none if hardly any
/// are there, or if most of what it has resident is files or memory that it shares with others.
pub fn pages_lie(memory: &mut (impl Memory + ?Sized), process: ProcessId) -> Vec<(NodeId, Pages)> {
    // Nothing of one that has ended or belongs to someone else.
    let ranges = memory.own_ranges(process.tgid).ok().flatten().unwrap_or_default();
    let all: u64 = ranges.iter().map(|range| range.len.0).sum();
    // Of a small one every page is looked up, once.
    let mut steps = SAMPLES.map(|samples| (all / samples).max(pages::size().0)).to_vec();
    steps.dedup();
    let look = |step: u64| {
        let places = memory.locate(process.tgid, &spread(&ranges, step)).unwrap_or_default();
        let nodes = resident::per_node(&places);
        let enough = nodes.iter().map(|(_, seen)| seen).sum::<u64>() >= LEAST_THERE;
        enough.then_some((step, nodes))
    };
    let Some((step, nodes)) = steps.into_iter().find_map(look) else { return Vec::new() };
    let each = Bytes(step).pages(pages::size()).0;
    let own: u64 = nodes.iter().map(|(_, seen)| seen * each).sum();
    let resident = memory.resident(process.tgid);
    if resident.pages(pages::size()).0 > own * 2 {
        return Vec::new();
    }
    let of = |(node, seen): (NodeId, u64)| (node, Pages(seen * each));
    nodes.into_iter().map(of).collect()
}

/// An address in every so many bytes.
fn spread(ranges: &[AnonymousRange], step: u64) -> Vec<u64> {
    let (mut addresses, mut next) = (Vec::new(), step / 2);
    for range in ranges {
        while next < range.len.0 {
            addresses.push((range.start + next) & !0xfff);
            next += step;
        }
        next -= range.len.0;
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looked_up_is_what_is_spread_over_all_ranges() {
        let range = |start, pages: u64| AnonymousRange { start, len: Bytes(pages << 12) };
        let ranges = [range(0x10_0000, 5), range(0x20_0000, 1), range(0x30_0000, 6)];
        let at = |addresses: &[u64]| addresses.iter().map(|a| a << 12).collect::<Vec<u64>>();
        // Every fourth of twelve pages: the third, seventh and eleventh.
        assert_eq!(spread(&ranges, 4 << 12), at(&[0x102, 0x300, 0x304]));
        assert_eq!(spread(&ranges, 1 << 12).len(), 12);
        assert_eq!(spread(&ranges, 1 << 30), [0; 0]);
        assert_eq!(spread(&[], 1 << 12), [0; 0]);
    }

    /// This very process: a buffer of 64 MiB is most of what it maps, and lies somewhere.
    #[test]
    fn our_own_pages_lie_where_the_kernel_says() {
        let buffer = std::hint::black_box(vec![1_u8; 64 << 20]);
        let me = ProcessId { tgid: std::process::id(), start: 0 };
        let mut running = crate::system::Running::new("/".as_ref());
        let nodes = pages_lie(&mut running, me);
        let all: u64 = nodes.iter().map(|(_, pages)| pages.0).sum();
        assert!(all * pages::size().0 >= buffer.len() as u64 / 2, "{nodes:?}");
        let nobody = ProcessId { tgid: u32::MAX >> 1, start: 0 };
        assert_eq!(pages_lie(&mut running, nobody), []);
    }
}
