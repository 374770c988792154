//! Huge pages: moved whole, by naming their first address alone.
//!
//! What is a huge page shows in that the rest comes along. To look up every one of its 512 small pages would
//! cost more than the move, so a few are looked up, before and after. A piece of which some were not
//! elsewhere before, or did not come, is left to whoever looks at each page.

use std::ops::Range;

use numaherd_model::NodeId;

use super::migrate::{Destination, Journey};
use crate::sys::SysError;
use crate::sys::pages::PageStatus;
use crate::system::{Lot, System};

/// Size and alignment.
pub const BYTES: u64 = 2 << 20;

/// Pages looked up of each, the first among them. Guessed.
const SAMPLES: u64 = 8;

/// Moves what looks like a huge page that is not where it should be, in about so many lots at once, whatever
/// nodes they go to; calls `beat` before. Answers the first addresses of those that came whole, ascending; `None`
/// where nothing looked like one, or no node took them.
///
/// # Errors
/// The process has ended or belongs to someone else, or there is no such node.
pub fn move_whole(
    system: &mut dyn System,
    tgid: u32,
    journeys: &[Journey],
    at_once: usize,
    beat: &mut dyn FnMut(),
) -> Result<Option<Vec<u64>>, SysError> {
    let mut going: Vec<(Destination, Vec<u64>)> = Vec::new();
    for Journey { to, ranges } in journeys {
        let mut pieces: Vec<u64> = ranges.iter().flat_map(pieces).collect();
        pieces.sort_unstable();
        let elsewhere = |places: &[PageStatus]| match places[0] {
            PageStatus::On(from) => from != to.node && are_on(places, from),
            _ => false,
        };
        going.push((*to, choose(system, tgid, pieces, elsewhere)?));
    }
    let all: usize = going.iter().map(|(_, pieces)| pieces.len()).sum();
    if all == 0 {
        return Ok(None);
    }
    beat();
    let most = all.div_ceil(at_once.max(1));
    let of = |(to, pieces): &(Destination, Vec<u64>)| {
        pieces.chunks(most).map(|lot| to.lot(lot.to_vec())).collect::<Vec<Lot>>()
    };
    let lots: Vec<Lot> = going.iter().flat_map(of).collect();
    let mut refused = false;
    for said in system.migrate_lots(tgid, &lots) {
        match said {
            // What the other lots moved has moved.
            Err(error) if error.is_full() || error.is_forbidden() => refused = true,
            said => _ = said?,
        }
    }
    let mut whole = Vec::new();
    for (to, pieces) in going {
        whole.extend(choose(system, tgid, pieces, |places| are_on(places, to.node))?);
    }
    whole.sort_unstable();
    Ok((!refused || !whole.is_empty()).then_some(whole))
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
    system: &mut dyn System,
    tgid: u32,
    mut pieces: Vec<u64>,
    wanted: impl Fn(&[PageStatus]) -> bool,
) -> Result<Vec<u64>, SysError> {
    let samples = |&start: &u64| (0..SAMPLES).map(move |nth| start + nth * (BYTES / SAMPLES));
    let addresses: Vec<u64> = pieces.iter().flat_map(samples).collect();
    let places = system.locate(tgid, &addresses)?;
    let mut each = places.chunks(SAMPLES as usize);
    pieces.retain(|_| each.next().is_some_and(&wanted));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_pieces_at_multiples_of_their_size_count() {
        let range = |start, end| pieces(&(start..end)).collect::<Vec<_>>();
        assert_eq!(range(BYTES, 3 * BYTES), [BYTES, 2 * BYTES]);
        assert_eq!(range(BYTES - 4096, 3 * BYTES - 4096), [BYTES]);
        assert_eq!(range(BYTES + 4096, 3 * BYTES - 4096), []);
        assert_eq!(range(BYTES, BYTES), []);
    }
}
