//! Huge pages: moved whole, by naming their first address alone.
//!
//! What is a huge page shows in that the rest comes along. To look up every one of its 512 small pages would
//! cost more than the move, so a few are looked up, before and after. A piece of which some were not
//! elsewhere before, or did not come, is left to whoever looks at each page.
//!
//! Where a node has no free huge page, the kernel splits one that is to go there and moves its small pages (`migrate_pages`,
//! v6.12; with the reason MR_NUMA_MISPLACED alone it does not): it came whole and is none any more. `thp_migration_split`
//! in `/proc/vmstat` tells. What looks like a huge page does not go there for a while then.

use std::ops::Range;

use numaherd_model::NodeId;

use super::migrate::{Destination, Journey};
use crate::sys::SysError;
use crate::sys::pages::PageStatus;
use crate::system::{Lot, Memory};

/// Size and alignment.
pub const BYTES: u64 = 2 << 20;

/// Pages looked up of each, the first among them. Guessed.
const SAMPLES: u64 = 8;

/// What became of huge pages.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// The first addresses of those that came whole, ascending; `None` where nothing looked like one, no node took
    /// them, or they all stayed, as pinned ones do: that says nothing of what they are.
    pub came: Option<Vec<u64>>,
    /// How many went.
    pub went: usize,
    /// Those that were left where they are, ascending.
    pub left: Vec<u64>,
    /// Nodes to which some went, and whether the kernel split any.
    pub split: Vec<(NodeId, bool)>,
}

/// Moves what looks like a huge page that is not where it should be, in about so many lots at once, to one node after the
/// other, for splits are counted for the whole machine; none where it is `shut`. Calls `beat` before.
///
/// # Errors
/// The process has ended or belongs to someone else, or there is no such node.
pub fn move_whole(
    system: &mut (impl Memory + ?Sized),
    tgid: u32,
    journeys: &[Journey],
    at_once: usize,
    shut: &dyn Fn(Destination) -> bool,
    beat: &mut dyn FnMut(),
) -> Result<Whole, SysError> {
    let mut whole = Whole::default();
    let mut going: Vec<(Destination, Vec<u64>)> = Vec::new();
    for Journey { to, ranges } in journeys {
        let mut pieces: Vec<u64> = ranges.iter().flat_map(pieces).collect();
        pieces.sort_unstable();
        let elsewhere = |places: &[PageStatus]| match places[0] {
            PageStatus::On(from) => from != to.node && are_on(places, from),
            _ => false,
        };
        let pieces = choose(system, tgid, pieces, elsewhere)?;
        match shut(*to) {
            true => whole.left.extend(pieces),
            false => going.push((*to, pieces)),
        }
    }
    whole.left.sort_unstable();
    going.retain(|(_, pieces)| !pieces.is_empty());
    if going.is_empty() {
        return Ok(whole);
    }
    let mut refused = false;
    for own in going.chunk_by(|(a, _), (b, _)| a.node == b.node) {
        beat();
        let all: usize = own.iter().map(|(_, pieces)| pieces.len()).sum();
        let most = all.div_ceil(at_once.max(1));
        let of = |(to, pieces): &(Destination, Vec<u64>)| {
            pieces.chunks(most).map(|lot| to.lot(lot.to_vec())).collect::<Vec<Lot>>()
        };
        let lots: Vec<Lot> = own.iter().flat_map(of).collect();
        let before = system.huge_splits();
        for said in system.migrate_lots(tgid, &lots) {
            match said {
                // What the other lots moved has moved.
                Err(error) if error.is_full() || error.is_forbidden() => refused = true,
                said => _ = said?,
            }
        }
        let split = before.zip(system.huge_splits()).is_some_and(|(before, after)| after > before);
        whole.split.push((own[0].0.node, split));
    }
    let mut came = Vec::new();
    whole.went = going.iter().map(|(_, pieces)| pieces.len()).sum();
    let mut alone = false;
    for (to, pieces) in going {
        let is_whole = |places: &[PageStatus]| {
            alone |= places[0] == PageStatus::On(to.node);
            are_on(places, to.node)
        };
        came.extend(choose(system, tgid, pieces, is_whole)?);
    }
    came.sort_unstable();
    whole.came = (alone && !refused || !came.is_empty()).then_some(came);
    Ok(whole)
}

/// The first address of the huge page that an address would be of.
pub fn start(address: u64) -> u64 {
    address / BYTES * BYTES
}

/// The first addresses of huge pages that the range can hold.
fn pieces(range: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    let (first, end) = (range.start.next_multiple_of(BYTES), range.end);
    (first..end).step_by(BYTES as usize).filter(move |start| start + BYTES <= end)
}

fn are_on(places: &[PageStatus], node: NodeId) -> bool {
    places.iter().all(|place| *place == PageStatus::On(node))
}

/// Those of the pieces of which the places of some pages are as wanted.
fn choose(
    system: &mut (impl Memory + ?Sized),
    tgid: u32,
    mut pieces: Vec<u64>,
    mut wanted: impl FnMut(&[PageStatus]) -> bool,
) -> Result<Vec<u64>, SysError> {
    let samples = |&start: &u64| (0..SAMPLES).map(move |nth| start + nth * (BYTES / SAMPLES));
    let addresses: Vec<u64> = pieces.iter().flat_map(samples).collect();
    let places = system.locate(tgid, &addresses)?;
    let mut each = places.chunks(SAMPLES as usize);
    pieces.retain(|_| each.next().is_some_and(&mut wanted));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::ReadError;
    use crate::memory::maps::{AnonymousRange, ObjectRange};
    use crate::memory::numa_maps::Mapping;
    use crate::respect::Coverage;

    #[test]
    fn only_whole_pieces_at_multiples_of_their_size_count() {
        let range = |start, end| pieces(&(start..end)).collect::<Vec<_>>();
        assert_eq!(range(BYTES, 3 * BYTES), [BYTES, 2 * BYTES]);
        assert_eq!(range(BYTES - 4096, 3 * BYTES - 4096), [BYTES]);
        assert_eq!(range(BYTES + 4096, 3 * BYTES - 4096), []);
        assert_eq!(range(BYTES, BYTES), []);
    }

    /// Huge pages that all go where they are sent; one node has no free ones, so that those are split.
    struct Split {
        places: BTreeMap<u64, NodeId>,
        splits: u64,
        full: NodeId,
        /// What comes of what goes.
        comes: Comes,
    }

    #[derive(PartialEq)]
    enum Comes {
        Whole,
        /// The page that was named.
        Alone,
        Nothing,
    }

    impl Memory for Split {
        fn own_ranges(&mut self, _: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
            Ok(None)
        }

        fn shared_ranges(&mut self, _: u32) -> Result<Option<Vec<ObjectRange>>, ReadError> {
            Ok(None)
        }

        fn mapped(&mut self, _: u32) -> Result<Option<Vec<Range<u64>>>, ReadError> {
            Ok(None)
        }

        fn pages_stay(&mut self, _: u32, _: &mut dyn FnMut()) -> Option<&'static str> {
            None
        }

        fn coverage(&mut self, _: u32) -> Option<Coverage> {
            None
        }

        fn mappings(&mut self, _: u32) -> Result<Option<Vec<Mapping>>, ReadError> {
            Ok(None)
        }

        fn huge_splits(&mut self) -> Option<u64> {
            Some(self.splits)
        }

        fn locate(&mut self, _: u32, addresses: &[u64]) -> Result<Vec<PageStatus>, SysError> {
            let place = |address: &u64| {
                let own = self.places.get(address);
                PageStatus::On(*own.unwrap_or(&self.places[&(start(*address) + 1)]))
            };
            Ok(addresses.iter().map(place).collect())
        }

        fn migrate(&mut self, _: u32, lot: &Lot) -> Result<Vec<PageStatus>, SysError> {
            for address in &lot.addresses {
                match self.comes {
                    // What the rest of it is on stands behind its first address.
                    Comes::Whole => _ = self.places.insert(start(*address) + 1, lot.to),
                    Comes::Alone => _ = self.places.insert(*address, lot.to),
                    Comes::Nothing => {}
                }
                self.splits += u64::from(lot.to == self.full);
            }
            Ok(vec![PageStatus::On(lot.to); lot.addresses.len()])
        }
    }

    #[test]
    fn a_node_that_huge_pages_are_split_for_is_told_and_none_go_there_while_it_is_shut() {
        let nodes = [0, 0, 1, 2].map(NodeId);
        let places = nodes.iter().zip(0..).map(|(&node, nth)| (nth * BYTES + 1, node)).collect();
        let mut memory = Split { places, splits: 7, full: NodeId(2), comes: Comes::Whole };
        let journey = |node, pieces: Range<u64>| {
            let range = pieces.start * BYTES..pieces.end * BYTES;
            let to = Destination { node: NodeId(node), shared: false, reserve: false };
            Journey { to, ranges: vec![range] }
        };
        let mut go = |journeys: &[Journey], shut| {
            let shut = |to: Destination| shut && to.node == NodeId(2);
            move_whole(&mut memory, 7, journeys, 2, &shut, &mut || {}).unwrap()
        };
        let both = [journey(1, 0..1), journey(2, 1..4)];
        let split = vec![(NodeId(1), false), (NodeId(2), true)];
        let came = Some(vec![0, BYTES, 2 * BYTES]);
        assert_eq!(go(&both, false), Whole { came, went: 3, left: vec![], split });
        // To the one that has none nothing goes for now, and to the other as before.
        let back = [journey(0, 0..1), journey(2, 0..1)];
        let all = go(&back, true);
        assert_eq!((all.came, all.left), (Some(vec![0]), vec![0]));
        assert_eq!(all.split, [(NodeId(0), false)]);
        assert_eq!(go(&[journey(2, 0..1)], true).came, None);
    }

    #[test]
    fn what_all_stays_is_not_taken_for_base_pages() {
        let came = |comes| {
            let places = (0..3).map(|nth| (nth * BYTES + 1, NodeId(0))).collect();
            let mut memory = Split { places, splits: 0, full: NodeId(2), comes };
            let to = Destination { node: NodeId(1), shared: false, reserve: false };
            let all = 0..3 * BYTES;
            let journeys = [Journey { to, ranges: vec![all] }];
            move_whole(&mut memory, 7, &journeys, 2, &|_| false, &mut || {}).unwrap().came
        };
        assert_eq!(came(Comes::Whole), Some(vec![0, BYTES, 2 * BYTES]));
        assert_eq!(came(Comes::Alone), Some(vec![]));
        assert_eq!(came(Comes::Nothing), None);
    }
}
