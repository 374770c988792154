//! Moving pages with `move_pages`.
//!
//! Each call first has the kernel drain its per-CPU lists, which waits for every CPU and costs
//! tens of milliseconds where they are slow and busy; so ranges that go to one node are moved
//! in few, large calls.
//!
//! **Pause.** A task that touches a page on its way waits until that page has arrived. Since Linux
//! 6.3 the kernel takes up to 512 pages off together, copies them and puts them back, so the
//! longest wait is about the number of pages taken off together × the time a page takes. That
//! number is kept so small that the wait stays below a target, going by what pages took here so
//! far, of its kind: what a page takes that five hundred processes map is not known by huge pages that moved whole. It
//! costs no further calls: the kernel handles what it has collected whenever it comes to
//! an address that it cannot collect, so an address named twice ends a batch. (Earlier kernels
//! move page by page.) If a page of a batch cannot be moved, the kernel leaves the batches after it:
//! they are tried again in a call of their own. A huge page is one copy and moves whole: its wait is that of 2 MiB.
//! Source: `do_pages_move` and `migrate_pages` (v6.12).
//!
//! **At once.** Several threads move a part each: copying scales with CPUs, and where all are busy each
//! of the victims loses a little time instead of one of them all of it.
//!
//! Huge pages go first, whole ([`super::huge`]): naming all 512 addresses would have the kernel refuse the second
//! while the first is on its way.

use std::collections::BTreeMap;
use std::ops::Range;

use numaherd_model::{Costs, Nanos, NodeId, Outcome, Pages, ProcessId, Refusal, SkipReason};

use super::huge::{self, Whole};
use crate::sys::SysError;
use crate::sys::pages::{self, PageStatus};
use crate::system::{Lot, Memory, System};

/// Most pages of one call. Guessed: 16 MiB, a fraction of a second even where a page takes
/// 50 us.
const BATCH_PAGES: usize = 4096;
/// Pages taken off together: as many as the kernel does by itself at the most, and no fewer than
/// make the flush of all TLBs that each batch costs worth it (guessed).
const TOGETHER: (u64, u64) = (32, 512);
/// Calls for one lot of pages: each further one means that a page of the one before was held.
const MOST_TRIES: usize = 16;
/// Threads that move at once, and fewest pages worth one. Guessed: beyond that, locks of the address
/// space and of both nodes' page lists have them wait for each other.
const WORKERS: usize = 8;
const LEAST_LOT: usize = 128;

/// How long no huge page goes to a node for which the kernel split one: at first, and at the most, twice as long each time.
/// Guessed: until memory there was compacted.
const SHUT: (Nanos, Nanos) = (Nanos(120_000_000_000), Nanos(1_920_000_000_000));

/// What was learnt from the moves so far.
#[derive(Debug)]
pub struct Mover {
    page_move: Nanos,
    /// What a base page took over the last calls, of those that one process maps and of those that several may.
    base: [Option<Nanos>; 2],
    /// Nodes that no huge page goes to, until when, and how long that was.
    shut: BTreeMap<NodeId, (Nanos, Nanos)>,
    /// How long a task may wait for a page on its way.
    pause: Nanos,
    longest_pause: Nanos,
    /// Threads that move at once.
    workers: usize,
    /// What was found of each process's huge pages.
    huge: BTreeMap<ProcessId, Tried>,
}

/// Of what looked like huge pages of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    /// How many went, and how many of these came whole.
    went: usize,
    came: usize,
    /// Nothing was found to be one.
    none: bool,
}

/// Where pages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    pub node: NodeId,
    /// With those that other processes map too.
    pub shared: bool,
    /// Of the reserve, which nothing splits.
    pub reserve: bool,
}

impl Destination {
    /// These pages, on their way there.
    pub fn lot(self, addresses: Vec<u64>) -> Lot {
        Lot { to: self.node, shared: self.shared, addresses }
    }
}

/// What of a process goes to one place.
#[derive(Clone, Debug)]
pub struct Journey {
    pub to: Destination,
    pub ranges: Vec<Range<u64>>,
}

/// A page that is not where it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stray {
    /// Index of its range.
    range: usize,
    address: u64,
}

impl Mover {
    pub fn new(pause: Nanos) -> Mover {
        let page_move = Costs::default().page_move;
        Mover {
            page_move,
            base: [None; 2],
            shut: BTreeMap::new(),
            pause,
            longest_pause: Nanos(0),
            workers: 1,
            huge: BTreeMap::new(),
        }
    }

    /// On so many CPUs: a thread for each, up to a bound.
    pub fn on_cpus(&mut self, cpus: usize) {
        self.workers = cpus.clamp(1, WORKERS);
    }

    /// Forgets processes that are no more.
    pub fn retain(&mut self, alive: impl Fn(&ProcessId) -> bool) {
        self.huge.retain(|process, _| alive(process));
    }

    /// Nothing of this process was found to be a huge page.
    pub fn found_no_huge(&mut self, process: ProcessId) {
        self.huge.insert(process, Tried { none: true, ..Tried::default() });
    }

    /// Whether that was found.
    pub fn is_without_huge(&self, process: ProcessId) -> bool {
        self.huge.get(&process).is_some_and(|tried| tried.none)
    }

    /// Whether what looks like a huge page of this process likely is one, which the kernel may split, and not base pages
    /// that lie together: as most were that went, or most are on this machine.
    fn has_huge(&self, process: ProcessId, system: &mut (impl Memory + ?Sized)) -> bool {
        let tried = self.huge.get(&process).copied().unwrap_or_default();
        if tried.went == 0 { !system.is_mostly_base() } else { tried.came * 2 >= tried.went }
    }

    /// Time of one CPU to move one page, over the last moves.
    pub fn page_move(&self) -> Nanos {
        self.page_move
    }

    /// The longest that a task can have waited for a page on its way, going by how long calls took
    /// and how many pages were on their way together.
    pub fn longest_pause(&self) -> Nanos {
        self.longest_pause
    }

    /// Pages to take off together: as few as may be until one of their kind was moved.
    fn together(&self, shared: bool) -> usize {
        let fits = |each: Nanos| self.pause.0 / each.0.max(1);
        let fits = self.base[usize::from(shared)].map_or(TOGETHER.0, fits);
        fits.clamp(TOGETHER.0, TOGETHER.1) as usize
    }

    /// A call took so long for so many base pages. Of few it says more of the call than of them.
    fn learn(&mut self, shared: bool, took: Nanos, pages: usize) {
        if pages as u64 >= TOGETHER.0 {
            let each = took.0 / pages as u64;
            let known = &mut self.base[usize::from(shared)];
            *known = Some(known.map_or(Nanos(each), |known| nearer(known, each)));
        }
    }

    /// Huge pages went to a node, and some were split for it or none.
    fn went(&mut self, node: NodeId, split: bool, now: Nanos) {
        if !split {
            self.shut.retain(|shut, (until, _)| *shut != node || now < *until);
            return;
        }
        let wait = self.shut.get(&node).map_or(SHUT.0, |(_, wait)| Nanos(wait.0 * 2).min(SHUT.1));
        self.shut.insert(node, (Nanos(now.0 + wait.0), wait));
    }

    fn is_shut(&self, to: Destination, now: Nanos) -> bool {
        !to.reserve && self.shut.get(&to.node).is_some_and(|(until, _)| now < *until)
    }

    /// Moves whatever of the ranges is not where it should be yet; calls `beat` between calls. Answers an
    /// outcome for each range of each journey.
    pub fn move_all(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        journeys: &[Journey],
        beat: &mut dyn FnMut(),
    ) -> Vec<Vec<Outcome>> {
        let begin = system.monotonic();
        let whole = match self.move_whole(system, process, journeys, beat) {
            Ok(whole) => whole,
            Err(error) => {
                let skipped = super::skipped(&error);
                let of = |journey: &Journey| vec![skipped.clone(); journey.ranges.len()];
                return journeys.iter().map(of).collect();
            }
        };
        let mut all = 0;
        let mut told = Vec::with_capacity(journeys.len());
        for journey in journeys {
            let mut refused = vec![Refusal::default(); journey.ranges.len()];
            let outcomes = match self.try_move(system, process, journey, &whole, &mut refused, beat)
            {
                Ok(moved) => {
                    all += moved.iter().sum::<u64>();
                    let each = moved.into_iter().zip(refused).zip(&journey.ranges);
                    let told = |((moved, refused), range)| match moved {
                        0 if has(&whole.left, range) => would_split(journey.to.node),
                        moved => outcome(moved, refused),
                    };
                    each.map(told).collect()
                }
                Err(error) => vec![not_moved(&error, journey.to.node); journey.ranges.len()],
            };
            told.push(outcomes);
        }
        let at_once = self.workers.min((all as usize).div_ceil(LEAST_LOT)).max(1) as u64;
        if let Some(each) = (system.monotonic().since(begin).0 * at_once).checked_div(all) {
            self.page_move = nearer(self.page_move, each);
        }
        told
    }

    /// Moves huge pages.
    fn move_whole(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        journeys: &[Journey],
        beat: &mut dyn FnMut(),
    ) -> Result<Whole, SysError> {
        if self.is_without_huge(process) {
            return Ok(Whole::default());
        }
        let now = system.monotonic();
        let has_huge = self.has_huge(process, system);
        let shut = |to: Destination| has_huge && self.is_shut(to, now);
        let whole = huge::move_whole(system, process.tgid, journeys, self.workers, &shut, beat)?;
        let came = whole.came.as_ref().map_or(0, Vec::len);
        if came > 0 {
            let tried = self.huge.entry(process).or_default();
            tried.went += whole.went;
            tried.came += came;
        } else if whole.came.is_some() {
            self.found_no_huge(process);
        }
        // What did not come was no huge page, and says nothing of the node.
        for (node, split) in whole.split.iter().filter(|_| came > 0) {
            self.went(*node, *split, system.monotonic());
        }
        Ok(whole)
    }

    fn try_move(
        &mut self,
        system: &mut dyn System,
        process: ProcessId,
        Journey { to, ranges }: &Journey,
        whole: &Whole,
        refused: &mut [Refusal],
        beat: &mut dyn FnMut(),
    ) -> Result<Vec<u64>, SysError> {
        let (tgid, to) = (process.tgid, *to);
        let page = pages::size().0;
        let all = ranges.iter().enumerate().flat_map(|(range, addresses)| {
            let count = (addresses.end - addresses.start) / page;
            let start = addresses.start;
            (0..count).map(move |index| Stray { range, address: start + index * page })
        });
        let is_of = |pieces: &[u64], stray: &Stray| {
            pieces.binary_search(&huge::start(stray.address)).is_ok()
        };
        let came = whole.came.as_deref().unwrap_or_default();
        let mut moved = vec![0; ranges.len()];
        let mut others = Vec::new();
        for stray in all {
            if is_of(came, &stray) {
                moved[stray.range] += 1;
            } else if is_of(&whole.left, &stray) {
                refused[stray.range].full += 1;
            } else {
                others.push(stray);
            }
        }
        let before = strays(system, tgid, others, to.node)?;
        let mut left = before.clone();
        let mut answers = Answers::new();
        let mut failed = None;
        for chunk in left.chunks(BATCH_PAGES) {
            match self.move_chunk(system, tgid, chunk, to, &mut answers, beat) {
                Ok(true) => {}
                // The node has no room: more of the same would only make it reclaim.
                Ok(false) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        // What has arrived by the kernel's word need not be looked up again.
        left.retain(|stray| answers.get(&stray.address) != Some(&PageStatus::On(to.node)));
        let after = if left.is_empty() { left } else { strays(system, tgid, left, to.node)? };
        for stray in &before {
            moved[stray.range] += 1;
        }
        for stray in &after {
            moved[stray.range] -= 1;
            count(&mut refused[stray.range], answers.get(&stray.address).copied());
        }
        // What came before it failed has come.
        let nothing_came = after.len() == before.len();
        failed.filter(|_| nothing_came).map_or(Ok(moved), Err)
    }

    /// Moves pages in batches; answers false if the node has no room.
    fn move_chunk(
        &mut self,
        system: &mut dyn System,
        tgid: u32,
        chunk: &[Stray],
        to: Destination,
        answers: &mut Answers,
        beat: &mut dyn FnMut(),
    ) -> Result<bool, SysError> {
        let at_once = self.workers.min(chunk.len() / LEAST_LOT).max(1);
        let mut lots: Vec<&[Stray]> = chunk.chunks(chunk.len().div_ceil(at_once)).collect();
        for _ in 0..MOST_TRIES {
            lots.retain(|lot| !lot.is_empty());
            if lots.is_empty() {
                break;
            }
            beat();
            let together = self.together(to.shared);
            let addresses = |lot: &&[Stray]| lot.iter().map(|stray| stray.address).collect();
            let named: Vec<Vec<u64>> = lots.iter().map(addresses).collect();
            let batches: Vec<Lot> =
                named.iter().map(|lot| to.lot(in_batches(lot, together))).collect();
            let begin = system.monotonic();
            let said = system.migrate_lots(tgid, &batches);
            let took = system.monotonic().since(begin);
            // Each of the lots took that long at the most: what the smallest says is too much at worst.
            let mut least = usize::MAX;
            for ((lot, addresses), said) in lots.iter_mut().zip(named).zip(said) {
                let status = match said {
                    Err(error) if error.is_full() => {
                        answers.extend(addresses.iter().map(|&page| (page, PageStatus::Full)));
                        return Ok(false);
                    }
                    status => status?,
                };
                let tried = tried(&status, together).min(lot.len());
                least = least.min(tried);
                let each = took.0 / tried.max(1) as u64;
                let pause = Nanos(each * together.min(tried) as u64);
                self.longest_pause = self.longest_pause.max(pause);
                answers.extend(addresses.into_iter().zip(without_ends(&status, together)));
                *lot = &lot[tried..];
            }
            self.learn(to.shared, took, least);
        }
        Ok(true)
    }
}

/// What the kernel said of pages, by address.
type Answers = BTreeMap<u64, PageStatus>;

/// What was known, a quarter of the way to what it took now.
fn nearer(known: Nanos, now: u64) -> Nanos {
    Nanos((known.0 * 3 + now) / 4)
}

/// Whether one of these huge pages is in a range.
fn has(pieces: &[u64], range: &Range<u64>) -> bool {
    let next = pieces.partition_point(|piece| *piece < range.start);
    pieces.get(next).is_some_and(|piece| *piece < range.end)
}

/// How many pages the kernel came to: up to the end of the batch in which it gave up.
fn tried(status: &[PageStatus], together: usize) -> usize {
    let stopped = status.iter().position(|status| *status == PageStatus::Untried);
    stopped.map_or(status.len(), |at| (at / (together + 1) + 1) * together)
}

/// The addresses, with the first of every `together` named again behind them: there the kernel
/// handles what it has collected. Example, by twos: a b c d e becomes a b a c d c e.
fn in_batches(addresses: &[u64], together: usize) -> Vec<u64> {
    let mut named = Vec::with_capacity(addresses.len() + addresses.len() / together);
    for batch in addresses.chunks(together) {
        named.extend_from_slice(batch);
        if batch.len() == together {
            named.push(batch[0]);
        }
    }
    named
}

/// The answers without those for the addresses that were named again.
fn without_ends(status: &[PageStatus], together: usize) -> impl Iterator<Item = PageStatus> {
    let batches = status.chunks(together + 1);
    batches.flat_map(move |batch| batch[..batch.len().min(together)].iter().copied())
}

/// Those of the pages that are on another node than `to`.
fn strays(
    system: &mut dyn System,
    tgid: u32,
    candidates: Vec<Stray>,
    to: NodeId,
) -> Result<Vec<Stray>, SysError> {
    let addresses: Vec<u64> = candidates.iter().map(|stray| stray.address).collect();
    let places = system.locate(tgid, &addresses)?;
    let elsewhere = |place: &PageStatus| matches!(place, PageStatus::On(node) if *node != to);
    let found = candidates.into_iter().zip(&places).filter(|(_, place)| elsewhere(place));
    Ok(found.map(|(stray, _)| stray).collect())
}

/// Counts a page that stayed, by what the kernel said of it. Where it said nothing, or that the page
/// was on its way, something held the page.
fn count(refused: &mut Refusal, status: Option<PageStatus>) {
    match status {
        Some(PageStatus::Absent) => refused.absent += 1,
        Some(PageStatus::Shared) => refused.shared += 1,
        Some(PageStatus::Full) => refused.full += 1,
        Some(PageStatus::Error(_)) => refused.other += 1,
        Some(PageStatus::On(_) | PageStatus::Busy | PageStatus::Untried) | None => {
            refused.busy += 1;
        }
    }
}

/// What a call came to that moved nothing.
fn not_moved(error: &SysError, node: NodeId) -> Outcome {
    match error.is_forbidden() {
        true => Outcome::Skipped(SkipReason::Forbidden { node }),
        false => super::skipped(error),
    }
}

/// What became of huge pages that were left where they are.
fn would_split(node: NodeId) -> Outcome {
    let why =
        format!("node {node} had no free huge page of late, and the kernel would split those");
    Outcome::Skipped(SkipReason::Held { why })
}

fn outcome(moved: u64, refused: Refusal) -> Outcome {
    if moved == 0 && refused.full > 0 {
        return Outcome::Skipped(SkipReason::Refused { error: "no room on the node".into() });
    }
    if refused == Refusal::default() {
        Outcome::Done { moved: Pages(moved) }
    } else {
        Outcome::Partial { moved: Pages(moved), refused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Running;

    #[test]
    fn statuses_fall_into_their_classes() {
        let mut refused = Refusal::default();
        for status in [
            Some(PageStatus::On(NodeId(0))),
            Some(PageStatus::Busy),
            Some(PageStatus::Shared),
            Some(PageStatus::Absent),
            Some(PageStatus::Untried),
            None,
        ] {
            count(&mut refused, status);
        }
        assert_eq!(refused, Refusal { busy: 4, shared: 1, full: 0, absent: 1, other: 0 });
    }

    #[test]
    fn a_full_node_is_a_refusal_and_some_left_is_partial() {
        let full = Refusal { full: 3, ..Refusal::default() };
        assert!(matches!(outcome(0, full), Outcome::Skipped(SkipReason::Refused { .. })));
        assert!(matches!(outcome(5, full), Outcome::Partial { moved: Pages(5), .. }));
        assert_eq!(outcome(5, Refusal::default()), Outcome::Done { moved: Pages(5) });
    }

    #[test]
    fn batches_end_where_an_address_is_named_again() {
        let named = in_batches(&[1, 2, 3, 4, 5], 2);
        assert_eq!(named, [1, 2, 1, 3, 4, 3, 5]);
        let on = |node: u64| PageStatus::On(NodeId(node as u32));
        let status: Vec<PageStatus> = named.iter().map(|&address| on(address)).collect();
        let kept: Vec<PageStatus> = without_ends(&status, 2).collect();
        assert_eq!(kept, [1, 2, 3, 4, 5].map(on));
    }

    #[test]
    fn where_the_kernel_gave_up_the_rest_is_tried_again() {
        let on = PageStatus::On(NodeId(1));
        let not = PageStatus::Untried;
        // By twos and an end each: the second batch was not stored, its end was.
        let status = [on, on, PageStatus::Busy, not, not, PageStatus::Busy, not, not, not];
        assert_eq!(tried(&status, 2), 4);
        assert_eq!(tried(&[on, on, PageStatus::Busy, on], 2), 4);
        assert_eq!(tried(&[not], 2), 2);
    }

    #[test]
    fn fewer_pages_go_together_the_longer_each_takes() {
        let mut mover = Mover::new(Nanos(2_000_000));
        let mut together = |each| {
            mover.base[0] = Some(Nanos(each));
            mover.together(false)
        };
        // 2 ms at 8 us a page
        assert_eq!(together(8_000), 250);
        assert_eq!(together(20_000), 100);
        assert_eq!(together(1_000_000), 32);
        assert_eq!(together(1_000), 512);
    }

    /// Those of a segment that many processes map take fifty times as long.
    #[test]
    fn how_many_go_together_is_known_for_each_kind_of_page_by_those_that_moved() {
        let mut mover = Mover::new(Nanos(2_000_000));
        // Huge pages, which drove down what a page takes.
        mover.page_move = Nanos(100);
        assert_eq!([false, true].map(|shared| mover.together(shared)), [32, 32]);
        mover.learn(false, Nanos(1_000_000), 250);
        assert_eq!([false, true].map(|shared| mover.together(shared)), [500, 32]);
        mover.learn(true, Nanos(100_000_000), 1000);
        assert_eq!([false, true].map(|shared| mover.together(shared)), [500, 32]);
        // 4 us and once 20 us: 8 us. A few pages say nothing.
        mover.learn(false, Nanos(20_000_000), 1000);
        mover.learn(false, Nanos(20_000_000), 3);
        assert_eq!(mover.together(false), 250);
    }

    #[test]
    fn a_node_is_shut_the_longer_the_more_often_huge_pages_are_split_for_it() {
        let mut mover = Mover::new(Nanos(0));
        let minute = |minutes: u64| Nanos(minutes * 60_000_000_000);
        let to = |node, reserve| Destination { node: NodeId(node), shared: false, reserve };
        let shut = |mover: &Mover, node, at| mover.is_shut(to(node, false), minute(at));
        mover.went(NodeId(1), true, minute(10));
        assert_eq!([10, 11, 12].map(|at| shut(&mover, 1, at)), [true, true, false]);
        assert!(!shut(&mover, 0, 10));
        assert!(!mover.is_shut(to(1, true), minute(10)), "nothing splits those of the reserve");
        mover.went(NodeId(1), true, minute(12));
        assert_eq!([15, 16].map(|at| shut(&mover, 1, at)), [true, false]);
        (0..9).for_each(|_| mover.went(NodeId(1), true, minute(20)));
        assert_eq!([51, 52].map(|at| shut(&mover, 1, at)), [true, false]);
        mover.went(NodeId(1), false, minute(60));
        mover.went(NodeId(1), true, minute(60));
        assert_eq!([61, 62].map(|at| shut(&mover, 1, at)), [true, false]);
    }

    /// Else none of them would go to a node for which huge pages of somebody else's were split.
    #[test]
    fn base_pages_that_lie_together_are_told_from_huge_ones_by_what_became_of_others() {
        let root = tempfile::tempdir().unwrap();
        let mut mover = Mover::new(Nanos(0));
        let id = ProcessId { tgid: 7, start: 1 };
        let of = |mover: &Mover, huge_kb: u64| {
            let text = format!("AnonPages: 1000 kB\nAnonHugePages: {huge_kb} kB\n");
            crate::testing::put(root.path(), "proc/meminfo", &text);
            mover.has_huge(id, &mut Running::new(root.path()))
        };
        assert_eq!([900, 100].map(|huge_kb| of(&mover, huge_kb)), [true, false]);
        mover.huge.insert(id, Tried { went: 100, came: 1, none: false });
        assert!(!of(&mover, 900));
        mover.huge.insert(id, Tried { went: 100, came: 50, none: false });
        assert!(of(&mover, 100));
    }

    #[test]
    fn what_was_left_whole_is_told_where_it_is_all_there_was() {
        let left = [huge::BYTES, 5 * huge::BYTES];
        let of = |pieces: Range<u64>| {
            has(&left, &(pieces.start * huge::BYTES..pieces.end * huge::BYTES))
        };
        assert_eq!(
            [of(0..1), of(0..2), of(1..2), of(2..5), of(2..9)],
            [false, true, true, false, true]
        );
        assert!(matches!(would_split(NodeId(1)), Outcome::Skipped(SkipReason::Held { .. })));
    }

    #[test]
    fn lots_that_go_at_once_are_answered_in_order() {
        let buffer = vec![1u8; 64 << 12];
        let start = (buffer.as_ptr() as u64).next_multiple_of(4096);
        let me = std::process::id();
        let mut running = Running::new("/".as_ref());
        let here = running.locate(me, &[start]).unwrap()[0];
        let PageStatus::On(node) = here else { panic!("{here:?}") };
        let pages = |range: Range<u64>| range.map(|page| start + page * 4096).collect::<Vec<u64>>();
        let lots = [pages(0..3), pages(3..4), Vec::new(), vec![0; 2]];
        let to = Destination { node, shared: false, reserve: false };
        let said = running.migrate_lots(me, &lots.map(|addresses| to.lot(addresses)));
        let said: Vec<Vec<PageStatus>> = said.into_iter().map(Result::unwrap).collect();
        assert_eq!(said[..3], [vec![here; 3], vec![here], Vec::new()]);
        assert!(said[3].len() == 2 && !said[3].contains(&here));
    }

    #[test]
    fn our_own_pages_on_their_own_node_have_nothing_to_move() {
        let buffer = vec![1u8; 64 << 12];
        let start = (buffer.as_ptr() as u64).next_multiple_of(4096);
        let me = std::process::id();
        let mut running = Running::new("/".as_ref());
        let places = running.locate(me, &[start]).unwrap();
        let PageStatus::On(node) = places[0] else { panic!("{places:?}") };
        let process = ProcessId { tgid: me, start: 0 };
        let mut beats = 0;
        let range = |first: u64| start + first * 4096..start + (first + 16) * 4096;
        let to = Destination { node, shared: false, reserve: false };
        let journeys = [vec![range(0)], vec![range(16), range(32)]];
        let journeys = journeys.map(|ranges| Journey { to, ranges });
        let mut mover = Mover::new(Nanos(2_000_000));
        let outcomes = mover.move_all(&mut running, process, &journeys, &mut || beats += 1);
        let none = Outcome::Done { moved: Pages(0) };
        assert_eq!((outcomes, beats), (vec![vec![none.clone()], vec![none; 2]], 0));
    }
}
