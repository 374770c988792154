//! Memory controllers and links: how long a line takes while others use them too.
//!
//! A closed queueing network in its fluid limit. Each running task is a customer that has one
//! line in flight at a time: it spends `ns` on its own (computing, and the latency while nobody
//! waits), and waits at each station on its way that is full. A station is a node's memory
//! controller or one direction of a link; it carries so many bytes a nanosecond. A station that is
//! not full makes nobody wait; at a full one everybody waits in proportion to the bytes they need
//! there, so long that what comes through is what it carries. So, for customers of class `c`,
//!
//! ```text
//! line_ns(c) = ns(c) + Σ wait(s) × lines(c, s),   Σ count(c) × bytes(c, s) / line_ns(c) ≤ capacity(s)
//! ```
//!
//! with equality where `wait(s) > 0`. Found by Newton's method station by station, round and
//! round, starting from the last solution. (Published: asymptotic bounds of closed queueing
//! networks, Denning and Buzen 1978. Below saturation the true waits are small, and taken as 0.)
//!
//! A written line is read first and written back later: two lines at the memory, one each way on
//! the links. Where stores do not fetch ([`Machine::stores_fetch`]) it is written only.

use crate::machine::{LINE_BYTES, Machine};

/// Rounds over all stations after which the waits are taken as they are.
const MOST_ROUNDS: usize = 40;
/// Change of a station's wait, in nanoseconds, that is small enough.
const CLOSE_NS: f64 = 0.01;

/// What comes to a station has jumped if by so much of its capacity it is another than when all blocks were timed.
/// Measured: threads that barriers bring into step are then within 2 % of exact solving, with an eighth, too, and with a
/// quarter within 7 %. A sixteenth takes no longer than an eighth.
const JUMP: f64 = 1.0 / 16.0;

/// Stations and the waits at each.
#[derive(Clone, Debug)]
pub struct Fabric {
    nodes: usize,
    /// Bytes per nanosecond: node memories first, then directed links.
    capacity: Vec<f64>,
    /// Wait per line, in nanoseconds: at each station, and on its whole way for each class that
    /// somebody is in.
    wait: Vec<f64>,
    class_wait: Vec<f64>,
    /// For each class, the stations on its way and the lines it needs there.
    way: Vec<Vec<(usize, f64)>>,
    /// For each node's memory, the classes that come by and the lines they need.
    visits: Vec<Vec<(usize, f64)>>,
    /// For each class, how many tasks are in it, and the nanoseconds a line takes them alone; and the
    /// classes that somebody is in, a bit each.
    count: Vec<u32>,
    taken: Vec<u64>,
    alone_ns: Vec<f64>,
    /// And the lines that all of its tasks would have in a nanosecond if nobody waited.
    alone_lines: Vec<f64>,
    /// What [`Fabric::solve`] works with, by station: who comes by, and, a bit each, whether anybody does and whether
    /// its wait is open. Of a mesh of a thousand nodes there are a million, at most of which nobody is.
    active: Vec<Vec<Visit>>,
    visited: Vec<u64>,
    open: Vec<u64>,
    /// What blocks on their way bring to each station; and which had any when all were timed last.
    flow: Vec<Flow>,
    timed: Vec<usize>,
    /// Where it may have jumped. Where nothing is ever full that does not matter.
    suspects: Vec<usize>,
    is_narrow: bool,
    /// Lines that each class has had.
    carried: Vec<f64>,
}

/// What blocks on their way bring to a station, as they are timed, in bytes a nanosecond; and the least and the most with
/// which they may stay as they are.
#[derive(Clone, Copy, Debug)]
struct Flow {
    now: f64,
    least: f64,
    most: f64,
}

impl Flow {
    fn is_off(&self) -> bool {
        self.now < self.least || self.now > self.most
    }
}

/// A class's tasks as a station sees them.
#[derive(Clone, Copy, Debug)]
struct Visit {
    class: usize,
    /// That each line of the class needs here.
    lines: f64,
    /// What a line takes its tasks alone, and how it waits at all other stations.
    alone: Alone,
    elsewhere_ns: f64,
    /// What all tasks together bring here in the time that a line takes.
    bytes: f64,
}

/// What a line takes the tasks of a class while nobody waits: the mean; and, as they are not all alike, how far the mean rate
/// is from that of the mean, times it.
#[derive(Clone, Copy, Debug)]
struct Alone {
    mean_ns: f64,
    spread_ns2: f64,
}

impl Alone {
    /// Differences that are rounding.
    const ALIKE: f64 = 1e-9;

    fn of(count: u32, sum_ns: f64, lines: f64) -> Alone {
        let count = f64::from(count);
        let (mean_ns, at_once_ns) = (sum_ns / count, count / lines);
        let apart_ns = mean_ns - at_once_ns;
        let is_apart = apart_ns > mean_ns * Alone::ALIKE;
        Alone { mean_ns, spread_ns2: if is_apart { apart_ns * mean_ns } else { 0.0 } }
    }

    /// What a line takes with this wait, and by how much more with a nanosecond more: of tasks of two kinds, as many of
    /// either, exactly so; of others, where nobody waits, and where all do for long.
    fn line_ns(&self, wait_ns: f64) -> (f64, f64) {
        let all_ns = self.mean_ns + wait_ns;
        (all_ns - self.spread_ns2 / all_ns, 1.0 + self.spread_ns2 / (all_ns * all_ns))
    }
}

/// What kind of line from where to where: an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class(usize);

impl Fabric {
    /// With nobody on the way.
    ///
    /// # Panics
    /// If the machine's nodes are not connected, which [`Machine::parse`] refuses.
    #[must_use]
    pub fn new(machine: &Machine) -> Fabric {
        let nodes = machine.node.len();
        let routes = machine.routes().expect("a parsed machine is connected");
        let links = routes.directed.iter().map(|&(_, _, mb_s)| mb_s);
        let capacity: Vec<f64> =
            machine.memory_mb_s.iter().copied().chain(links).map(|mb_s| mb_s / 1000.0).collect();
        let mut way = Vec::with_capacity(nodes * nodes * 2);
        for from in 0..nodes {
            for to in 0..nodes {
                for writes in [false, true] {
                    let fetches = !writes || machine.stores_fetch;
                    let at_memory = f64::from(u8::from(fetches) + u8::from(writes));
                    let mut stations = vec![(to, at_memory)];
                    if fetches {
                        stations
                            .extend(routes.via[to][from].iter().map(|link| (nodes + link, 1.0)));
                    }
                    if writes {
                        stations
                            .extend(routes.via[from][to].iter().map(|link| (nodes + link, 1.0)));
                    }
                    way.push(stations);
                }
            }
        }
        way.push(Vec::new());
        let mut visits = vec![Vec::new(); nodes];
        for (class, stations) in way.iter().enumerate() {
            if let Some(&(memory, lines)) = stations.first() {
                visits[memory].push((class, lines));
            }
        }
        let (wait, count) = (vec![0.0; capacity.len()], vec![0; way.len()]);
        let unused = |&most: &f64| Flow { now: 0.0, least: f64::NEG_INFINITY, most };
        let (flow, carried) = (capacity.iter().map(unused).collect(), vec![0.0; way.len()]);
        let taken = vec![0; way.len().div_ceil(64)];
        let (alone_ns, class_wait) = (vec![0.0; way.len()], vec![0.0; way.len()]);
        let alone_lines = alone_ns.clone();
        let is_narrow = capacity.iter().any(|capacity| capacity.is_finite());
        let active = vec![Vec::new(); capacity.len()];
        let no_bits = vec![0; capacity.len().div_ceil(64)];
        Fabric {
            nodes,
            capacity,
            wait,
            class_wait,
            way,
            visits,
            count,
            taken,
            alone_ns,
            alone_lines,
            active,
            visited: no_bits.clone(),
            open: no_bits,
            flow,
            timed: Vec::new(),
            suspects: Vec::new(),
            carried,
            is_narrow,
        }
    }

    /// The class of lines that tasks on node `from` read or write on node `to`.
    #[must_use]
    pub fn class(&self, from: usize, to: usize, writes: bool) -> Class {
        Class((from * self.nodes + to) * 2 + usize::from(writes))
    }

    /// The class of lines that are in the task's cache: nobody waits for those.
    #[must_use]
    pub fn cached(&self) -> Class {
        Class(self.way.len() - 1)
    }

    /// A task begins on lines of this class that take it so long alone.
    pub fn enter(&mut self, class: Class, alone_ns: f64) {
        if self.count[class.0] == 0 {
            self.class_wait[class.0] = self.wait_on_way(class.0);
            self.taken[class.0 / 64] |= 1 << (class.0 % 64);
        }
        self.count[class.0] += 1;
        self.alone_ns[class.0] += alone_ns;
        self.alone_lines[class.0] += 1.0 / alone_ns;
    }

    /// And ends.
    pub fn leave(&mut self, class: Class, alone_ns: f64) {
        self.count[class.0] -= 1;
        self.alone_ns[class.0] -= alone_ns;
        self.alone_lines[class.0] -= 1.0 / alone_ns;
        if self.count[class.0] == 0 {
            // No rounding is left over from those that came and went.
            self.alone_ns[class.0] = 0.0;
            self.alone_lines[class.0] = 0.0;
            self.taken[class.0 / 64] &= !(1 << (class.0 % 64));
        }
    }

    /// Its lines take so long now, as its block is timed; or, with a minus, no longer.
    pub fn flow(&mut self, class: Class, line_ns: f64) {
        if self.is_narrow {
            let rate = LINE_BYTES / line_ns;
            for &(station, lines) in &self.way[class.0] {
                let flow = &mut self.flow[station];
                flow.now += lines * rate;
                if flow.is_off() {
                    self.suspects.push(station);
                }
            }
        }
    }

    /// A block is over, or as much of it as will be for now.
    pub fn carry(&mut self, class: Class, lines: f64) {
        self.carried[class.0] += lines;
    }

    /// Whether what comes to a station has jumped since all blocks were timed last. Whoever goes on where they were has
    /// left and come.
    pub fn has_jumped(&mut self) -> bool {
        let jumped = self.suspects.iter().any(|&station| self.flow[station].is_off());
        self.suspects.clear();
        jumped
    }

    /// All blocks are timed with the waits as they are now. From here on it matters if more comes to a station than it
    /// carries, or if less comes to one that makes wait.
    pub fn note_timed(&mut self) {
        self.suspects.clear();
        for station in self.timed.drain(..) {
            let flow = &mut self.flow[station];
            (flow.least, flow.most) = (f64::NEG_INFINITY, self.capacity[station]);
        }
        for (word, &bits) in self.visited.iter().enumerate() {
            for station in ones(word, bits) {
                let (flow, capacity) = (&mut self.flow[station], self.capacity[station]);
                if self.wait[station] > 0.0 {
                    flow.least = flow.now - capacity * JUMP;
                }
                // What is about to end was left as it was.
                flow.most =
                    capacity + (flow.now.min(capacity) - capacity + capacity * JUMP).max(0.0);
                self.timed.push(station);
            }
        }
    }

    /// Of what it could carry in this time, the share that the busiest memory or link has carried.
    #[must_use]
    pub fn most_carried(&self, ns: u64) -> f64 {
        let mut bytes = vec![0.0; self.capacity.len()];
        for (stations, carried) in self.way.iter().zip(&self.carried) {
            stations
                .iter()
                .for_each(|&(station, lines)| bytes[station] += carried * lines * LINE_BYTES);
        }
        let shares = bytes.iter().zip(&self.capacity).map(|(bytes, most)| bytes / most / ns as f64);
        shares.fold(0.0, f64::max)
    }

    /// What a line of this class waits, all stations together.
    #[must_use]
    pub fn wait_ns(&self, class: Class) -> f64 {
        if self.count[class.0] == 0 {
            return self.wait_on_way(class.0);
        }
        self.class_wait[class.0]
    }

    fn wait_on_way(&self, class: usize) -> f64 {
        self.way[class].iter().map(|&(station, lines)| self.wait[station] * lines).sum()
    }

    /// Of a class that somebody is in.
    fn alone(&self, class: usize) -> Alone {
        Alone::of(self.count[class], self.alone_ns[class], self.alone_lines[class])
    }

    /// Finds the waits for the tasks that are on their way now.
    pub fn solve(&mut self) {
        let mut active = std::mem::take(&mut self.active);
        self.gather(&mut active);
        for _ in 0..MOST_ROUNDS {
            let mut change = 0.0f64;
            for word in 0..self.open.len() {
                // A station opens others: those that come after it are solved in this round, too.
                let mut ahead = !0;
                while self.open[word] & ahead != 0 {
                    let bit = (self.open[word] & ahead).trailing_zeros();
                    ahead = (!0 << bit) & !(1 << bit);
                    self.open[word] &= !(1 << bit);
                    let station = word * 64 + bit as usize;
                    let wait = self.wait_at(station, &mut active[station]);
                    let before = std::mem::replace(&mut self.wait[station], wait);
                    if wait != before {
                        change = change.max((wait - before).abs());
                        active[station].iter().for_each(|visit| self.pass_on(visit.class));
                    }
                }
            }
            if change < CLOSE_NS {
                break;
            }
        }
        self.active = active;
    }

    /// The visits of classes that somebody is in. All stations that somebody comes by are to be solved, and those that
    /// somebody came by: elsewhere nobody waits.
    fn gather(&mut self, active: &mut [Vec<Visit>]) {
        for (word, &bits) in self.visited.iter().enumerate() {
            ones(word, bits).for_each(|station| active[station].clear());
        }
        std::mem::swap(&mut self.open, &mut self.visited);
        self.visited.fill(0);
        for (word, &bits) in self.taken.iter().enumerate() {
            for class in ones(word, bits) {
                let alone = self.alone(class);
                let count = f64::from(self.count[class]);
                for &(station, lines) in &self.way[class] {
                    let bytes = count * lines * LINE_BYTES;
                    self.visited[station / 64] |= 1 << (station % 64);
                    active[station].push(Visit { class, lines, alone, elsewhere_ns: 0.0, bytes });
                }
            }
        }
        self.open.iter_mut().zip(&self.visited).for_each(|(open, visited)| *open |= visited);
    }

    /// A wait on the class's way has changed: stations that it passes besides are to be solved anew.
    fn pass_on(&mut self, class: usize) {
        self.class_wait[class] = self.wait_on_way(class);
        if self.way[class].len() > 1 {
            for &(station, _) in &self.way[class] {
                self.open[station / 64] |= 1 << (station % 64);
            }
        }
    }

    /// The wait at one station, those at the others as they are. Load falls with the wait and is
    /// convex: Newton's method from below never overshoots.
    fn wait_at(&self, station: usize, visits: &mut [Visit]) -> f64 {
        let capacity = self.capacity[station];
        for visit in visits.iter_mut() {
            visit.elsewhere_ns = self.class_wait[visit.class] - self.wait[station] * visit.lines;
        }
        let mut wait = 0.0;
        for _ in 0..50 {
            let (mut load, mut slope) = (0.0, 0.0);
            for visit in visits.iter() {
                let (line_ns, more) = visit.alone.line_ns(visit.elsewhere_ns + wait * visit.lines);
                let rate = visit.bytes / line_ns;
                load += rate;
                slope += rate * visit.lines * more / line_ns;
            }
            if load <= capacity * 1.000_001 {
                break;
            }
            wait += (load - capacity) / slope;
        }
        wait
    }

    /// Share of its capacity that each node's memory carries now.
    #[must_use]
    pub fn use_of_memory(&self) -> Vec<f64> {
        let rate = |&(class, lines): &(usize, f64)| {
            let count = f64::from(self.count[class]);
            if count == 0.0 {
                return 0.0;
            }
            let (line_ns, _) = self.alone(class).line_ns(self.wait_ns(Class(class)));
            count * lines * LINE_BYTES / line_ns
        };
        let of =
            |node: usize| self.visits[node].iter().map(rate).sum::<f64>() / self.capacity[node];
        (0..self.nodes).map(of).collect()
    }
}

/// The positions of a word's ones, among those of all words.
fn ones(word: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= bits - 1;
        Some(word * 64 + bit as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::tests::{SMALL, small};
    use proptest::prelude::*;

    /// Nanoseconds a line takes with so many tasks of each class, all of 64 ns alone.
    fn line_ns(machine: &Machine, classes: &[(usize, usize, u32)]) -> Vec<f64> {
        let mut fabric = Fabric::new(machine);
        for &(from, to, count) in classes {
            let class = fabric.class(from, to, true);
            (0..count).for_each(|_| fabric.enter(class, 64.0));
        }
        fabric.solve();
        let of = |&(from, to, _): &(usize, usize, u32)| {
            64.0 + fabric.wait_ns(fabric.class(from, to, true))
        };
        classes.iter().map(of).collect()
    }

    #[test]
    fn one_writer_waits_for_nobody() {
        // 64 bytes in 64 ns are 1 GB/s, 2 GB/s at the memory, which carries 3.
        assert_eq!(line_ns(&small(), &[(0, 0, 1)]), [64.0]);
    }

    #[test]
    fn two_writers_share_a_full_memory() {
        // 2 × 128 bytes a line at 3 bytes/ns: a line each in 85.33 ns.
        let ns = line_ns(&small(), &[(0, 0, 2)]);
        assert!((ns[0] - 256.0 / 3.0).abs() < 0.01, "{ns:?}");
    }

    #[test]
    fn tasks_of_one_way_that_are_not_alike_fill_its_memory_together() {
        // 2 × 64 bytes a line: 2 bytes/ns and 1, where 2 come through. The mean, twice 96 ns, would want 2.67.
        let machine = small();
        let mut fabric = Fabric::new(&machine);
        let class = fabric.class(0, 0, true);
        fabric.capacity[0] = 2.0;
        [64.0, 128.0].into_iter().for_each(|alone_ns| fabric.enter(class, alone_ns));
        fabric.solve();
        let wait = fabric.wait_ns(class);
        let carried: f64 = [64.0, 128.0].iter().map(|alone_ns| 128.0 / (alone_ns + wait)).sum();
        assert!((carried - 2.0).abs() < 1e-3, "{carried} with {wait} ns");
    }

    #[test]
    fn a_full_link_makes_only_those_wait_that_use_it() {
        let slow = SMALL.replace("bandwidth_mb_s = 10000", "bandwidth_mb_s = 500");
        let machine = Machine::parse("x", "x", &slow).unwrap();
        // A remote line crosses each direction once: 64 bytes at 0.5 bytes/ns = 128 ns.
        let ns = line_ns(&machine, &[(0, 0, 1), (0, 1, 1)]);
        assert!((ns[0] - 64.0).abs() < 0.01 && (ns[1] - 128.0).abs() < 0.1, "{ns:?}");
    }

    proptest! {
        /// No station carries more than it can, and one that makes people wait carries just that.
        #[test]
        fn stations_that_make_wait_are_full_and_none_is_overfull(
            counts in prop::collection::vec(0u32..20, 4), writes in any::<bool>()
        ) {
            let machine = small();
            let mut fabric = Fabric::new(&machine);
            for (i, &count) in counts.iter().enumerate() {
                let class = fabric.class(i / 2, i % 2, writes);
                (0..count).for_each(|_| fabric.enter(class, 50.0 + 10.0 * i as f64));
            }
            fabric.solve();
            for (node, share) in fabric.use_of_memory().into_iter().enumerate() {
                prop_assert!(share <= 1.01, "{share}");
                prop_assert!(fabric.wait[node] == 0.0 || share > 0.99, "{share}");
            }
        }
    }
}
