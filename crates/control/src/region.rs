//! What is known of one region of memory: where each of its pages was last seen, by whom it was
//! touched last, and how many faults each task took.
//!
//! Costs 12 bytes for each base page of a region in which somebody faults: 0.3 % of that memory. Of a huge page all were
//! touched at once, and 12 bytes stand for them.

use std::ops::Range;
use std::slice;

use numaherd_model::{
    Bytes, HintingFault, Nanos, NodeId, Pages, Region, RegionId, RegionUse, TaskId,
};

use smallvec::{SmallVec, smallvec};

use crate::evidence::REGION_BYTES;

/// Passes over a region that its counts remember.
pub const PASSES: u64 = 4;

/// The same for how often another task came.
const PAIRS: u64 = 8;

/// What was seen before the program went on to something else counts, once somebody was seen again, like one in
/// so many of a pass: those who passed a region on do not share it with those who have it now. Guessed.
const TRACE: u64 = 32;

/// Faults on base pages of a region that are so far apart, in milliseconds, are not of one sweep over it,
/// which takes all its faults in a row and would be taken for somebody who has it alone. Guessed: 512
/// faults of half a millisecond, on a very slow machine.
const APART_MS: i32 = 300;

/// See the module.
#[derive(Debug)]
pub struct RegionEvidence {
    touches: Touches,
    /// How many pages it has.
    len: usize,
    /// How many of them are on each node.
    nodes: Nodes,
    /// Tasks with their faults, in pages.
    pub users: SmallVec<[(TaskId, u64); 1]>,
    sum: u64,
    /// Touches before which another one is known, in pages, and of these by another task.
    pairs: u64,
    switches: u64,
    newest: Nanos,
    /// What is known is of before the program went on to something else.
    faded: bool,
    /// It is a part of a huge page that is larger than it, which cannot be moved in part.
    part: bool,
    /// The fault on a base page that later ones are compared with.
    leader: Option<Touch>,
}

/// Pages by node; most regions are on one or two, and have one user: what is looked up for each fault then lies together.
type Nodes = SmallVec<[(NodeId, u64); 2]>;

/// The last touch of each page.
#[derive(Debug)]
enum Touches {
    /// The same of all.
    All(Touch),
    Each(Vec<Touch>),
}

/// The last touch of a page that we know of.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// By whom.
    pub tid: u32,
    /// When, in milliseconds; these wrap around after 49 days, so that only what is less than half as long ago can
    /// be told from what is to come.
    time_ms: u32,
    node: u16,
}

/// How long ago a touch may be that is told from one to come.
const TOLD_APART: Nanos = Nanos(i32::MAX as u64 * 1_000_000);

/// No touch is known. Node ids stay far below (see `model`'s sets).
const NOWHERE: u16 = u16::MAX;

impl Touch {
    /// Whether it was, now, no earlier than `then`. What was longer ago than can be told counts as since.
    ///
    /// Example: with a `then` of 25 days ago, a touch of a second ago is since, as it is with one of an hour.
    pub fn is_since(self, then: Nanos, now: Nanos) -> bool {
        let then = then.max(Nanos(now.0.saturating_sub(TOLD_APART.0)));
        (milliseconds(then).wrapping_sub(self.time_ms) as i32) <= 0
    }
}

fn milliseconds(time: Nanos) -> u32 {
    (time.0 / 1_000_000) as u32
}

/// Counts pairs of touches and switches among them, of which about the last `most` are remembered.
pub fn count_pairs([pairs, switches]: [&mut u64; 2], more: u64, switched: bool, most: u64) {
    *pairs += more;
    *switches += if switched { more } else { 0 };
    if *pairs > most {
        *pairs /= 2;
        *switches /= 2;
    }
}

/// So many pages are on another node than was known.
fn recount(nodes: &mut Nodes, from: u16, to: u16, pages: u64) {
    if from == to {
        return;
    }
    let at = |node: u16| NodeId(u32::from(node));
    if from != NOWHERE
        && let Ok(i) = nodes.binary_search_by_key(&at(from), |(node, _)| *node)
    {
        nodes[i].1 = nodes[i].1.saturating_sub(pages);
    }
    if to != NOWHERE {
        match nodes.binary_search_by_key(&at(to), |(node, _)| *node) {
            Ok(i) => nodes[i].1 += pages,
            Err(i) => nodes.insert(i, (at(to), pages)),
        }
    }
}

impl RegionEvidence {
    /// Nothing is known yet.
    pub fn new(pages: usize) -> RegionEvidence {
        RegionEvidence {
            touches: Touches::All(Touch { tid: 0, time_ms: 0, node: NOWHERE }),
            len: pages,
            nodes: SmallVec::new(),
            users: SmallVec::new(),
            sum: 0,
            pairs: 0,
            switches: 0,
            newest: Nanos(0),
            faded: false,
            part: false,
            leader: None,
        }
    }

    /// A fault well before this one in the region, where both are on base pages. Each is answered once. Most
    /// of the region must be in use: stacks, and what little every program's threads have in common, are
    /// no working set.
    pub fn follow(&mut self, fault: &HintingFault) -> Option<Touch> {
        if !fault.is_on_base_page() || self.known() * 2 < self.len as u64 {
            return None;
        }
        let touch = Touch { tid: fault.tid, time_ms: milliseconds(fault.time), node: NOWHERE };
        let before = *self.leader.get_or_insert(touch);
        // Of another CPU's faults some may be a tick older than those that came before them.
        let apart = touch.time_ms.wrapping_sub(before.time_ms) as i32 >= APART_MS;
        apart.then(|| self.leader = Some(touch)).map(|()| before)
    }

    /// A task's place among the users.
    pub fn user(&mut self, task: TaskId) -> usize {
        self.users.iter().position(|(user, _)| *user == task).unwrap_or_else(|| {
            self.users.push((task, 0));
            self.users.len() - 1
        })
    }

    /// Counts a fault of one of the users. Answers the touch before, if one is known. A huge
    /// page's fault stands for all of it, and where base pages' are sampled, each for some.
    pub fn touch(&mut self, user: usize, page: usize, fault: &HintingFault) -> Option<Touch> {
        self.part |= fault.pages.0 > self.len as u64;
        let size = (fault.pages.0.max(1) as usize).min(self.len);
        let first = page.min(self.len - 1) / size * size;
        let node = u16::try_from(fault.memory_node.0).unwrap_or(NOWHERE);
        let touch = Touch { tid: fault.tid, time_ms: milliseconds(fault.time), node };
        let before = self.replace(first..(first + size).min(self.len), touch);
        self.newest = self.newest.max(fault.time);
        if std::mem::take(&mut self.faded) {
            self.weaken(TRACE);
        }
        self.users[user].1 += fault.pages.0;
        self.sum += fault.pages.0;
        if self.sum > PASSES * self.len as u64 {
            self.users.iter_mut().for_each(|(_, faults)| *faults /= 2);
            self.sum = self.users.iter().map(|(_, faults)| faults).sum();
        }
        (before.node != NOWHERE).then_some(before)
    }

    /// Notes a touch of some pages. Answers the last one before of the first.
    fn replace(&mut self, range: Range<usize>, touch: Touch) -> Touch {
        let whole = range.len() == self.len;
        if let (Touches::All(same), false) = (&self.touches, whole) {
            self.touches = Touches::Each(vec![*same; self.len]);
        }
        let (touched, each) = match &mut self.touches {
            Touches::All(same) => (slice::from_mut(same), self.len),
            Touches::Each(pages) => (&mut pages[range], 1),
        };
        let before = touched[0];
        for same in touched.chunk_by(|a, b| a.node == b.node) {
            recount(&mut self.nodes, same[0].node, touch.node, (same.len() * each) as u64);
        }
        touched.fill(touch);
        if whole {
            self.touches = Touches::All(touch);
        }
        before
    }

    /// Counts a touch of so many pages that followed another one.
    pub fn count_pair(&mut self, pages: u64, switched: bool) {
        let most = PAIRS * self.len as u64;
        count_pairs([&mut self.pairs, &mut self.switches], pages, switched, most);
    }

    /// What was seen so far counts like one pass.
    pub fn fade(&mut self) {
        self.weaken(PASSES);
        self.faded = true;
    }

    fn weaken(&mut self, by: u64) {
        self.users.iter_mut().for_each(|(_, faults)| *faults = faults.div_ceil(by));
        self.sum = self.users.iter().map(|(_, faults)| faults).sum();
    }

    /// All pages that were seen are on this node now.
    pub fn moved(&mut self, to: NodeId) {
        let node = u16::try_from(to.0).unwrap_or(NOWHERE);
        let touches = match &mut self.touches {
            Touches::All(touch) => slice::from_mut(touch),
            Touches::Each(pages) => pages.as_mut_slice(),
        };
        let seen = touches.iter_mut().filter(|touch| touch.node != NOWHERE);
        seen.for_each(|touch| touch.node = node);
        self.nodes = smallvec![(to, self.known())];
    }

    /// Whether somebody was seen in it since then.
    pub fn is_seen_since(&self, then: Nanos) -> bool {
        self.newest >= then
    }

    /// Pages that were seen.
    pub fn known(&self) -> u64 {
        self.nodes.iter().map(|(_, pages)| pages).sum()
    }

    /// Leaves out users without faults and those that are not wanted.
    pub fn forget(&mut self, keep: impl Fn(TaskId) -> bool) {
        self.users.retain(|&mut (task, faults)| faults > 0 && keep(task));
        self.sum = self.users.iter().map(|(_, faults)| faults).sum();
    }

    /// The same, as a snapshot has it.
    pub fn show(&self, id: RegionId, now: Nanos) -> Region {
        let use_of = |&(task, faults): &(TaskId, u64)| RegionUse { task, faults };
        let mut users: Vec<RegionUse> = self.users.iter().map(use_of).collect();
        users.sort_unstable_by_key(|user| user.task);
        let known = self.nodes.iter().filter(|(_, pages)| *pages > 0);
        Region {
            id,
            len: Bytes(REGION_BYTES),
            pages: known.map(|&(node, pages)| (node, Pages(pages))).collect(),
            users,
            age: now.since(self.newest),
            rests: self.part,
            stays: self.part,
            pairs: self.pairs,
            switches: self.switches,
        }
    }
}
