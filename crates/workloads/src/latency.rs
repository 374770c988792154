//! How long operations took: a histogram whose cells grow with what they hold, 32 to each
//! doubling, so that a percentile is right within 1/64 of itself (1/32 once it was scaled from
//! the CPU's ticks).
//!
//! It is small (16 KiB) and one operation touches one line of it: recording hardly disturbs the
//! cache of the thread that records.

/// Cells to each doubling.
const CELLS: u64 = 32;
/// log2 of [`CELLS`].
const CELL_BITS: u32 = CELLS.ilog2();

/// Durations in nanoseconds, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    counts: Vec<u64>,
    max_ns: u64,
}

/// What is told of a histogram, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the operations took no longer.
    pub p50: u64,
    /// 99 of 100.
    pub p99: u64,
    /// 999 of 1000.
    pub p999: u64,
    /// The longest; exact.
    pub max: u64,
}

/// The cell of a duration. Below [`CELLS`] each has its own.
fn cell(ns: u64) -> usize {
    if ns < CELLS {
        return ns as usize;
    }
    let doubling = ns.ilog2() - CELL_BITS;
    (u64::from(doubling) * CELLS + (ns >> doubling)) as usize
}

/// The middle of a cell.
fn middle(cell: usize) -> u64 {
    let cell = cell as u64;
    if cell < 2 * CELLS {
        return cell;
    }
    let doubling = cell / CELLS - 1;
    let first = (cell % CELLS + CELLS) << doubling;
    first + (1 << doubling) / 2
}

impl Latencies {
    /// Counts an operation.
    pub fn record(&mut self, ns: u64) {
        self.add(cell(ns), 1);
        self.max_ns = self.max_ns.max(ns);
    }

    fn add(&mut self, cell: usize, count: u64) {
        if self.counts.len() <= cell {
            // Once and for all: growing later would disturb what is measured.
            self.counts.resize(self::cell(u64::MAX) + 1, 0);
        }
        self.counts[cell] += count;
    }

    /// The same operations where each took `times` ÷ `by` as long: from ticks to nanoseconds.
    pub(crate) fn scaled(&self, times: u64, by: u64) -> Latencies {
        let scale = |n: u64| (u128::from(n) * u128::from(times) / u128::from(by)) as u64;
        let mut scaled = Latencies { counts: Vec::new(), max_ns: scale(self.max_ns) };
        for (cell, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            scaled.add(self::cell(scale(middle(cell))), count);
        }
        scaled
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Latencies) {
        for (cell, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(cell, count);
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Operations counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What it holds: the middle of each cell in nanoseconds, ascending, and how many operations
    /// took about so long.
    pub fn cells(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(cell, &count)| (middle(cell).min(self.max_ns), count))
    }

    /// The shortest duration that `permille` of the operations do not exceed.
    fn percentile(&self, permille: u64) -> u64 {
        let wanted = (self.count() * permille).div_ceil(1000);
        let mut seen = 0;
        for (cell, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle(cell).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// What is told of it; `None` of no operation.
    #[must_use]
    pub fn percentiles(&self) -> Option<Percentiles> {
        (self.count() > 0).then(|| Percentiles {
            p50: self.percentile(500),
            p99: self.percentile(990),
            p999: self.percentile(999),
            max: self.max_ns,
        })
    }

    /// As one word: the longest, then `cell:count` of all cells that hold any.
    pub(crate) fn to_word(&self) -> String {
        let cells = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let cells = cells.map(|(cell, count)| format!(",{cell}:{count}"));
        format!("{}{}", self.max_ns, cells.collect::<String>())
    }

    /// Reads [`Latencies::to_word`]; `None` of anything else.
    pub(crate) fn parse(word: &str) -> Option<Latencies> {
        let mut fields = word.split(',');
        let mut latencies = Latencies { counts: Vec::new(), max_ns: fields.next()?.parse().ok()? };
        for field in fields {
            let (cell, count) = field.split_once(':')?;
            let cell: usize = cell.parse().ok()?;
            (cell <= self::cell(u64::MAX)).then_some(())?;
            latencies.add(cell, count.parse().ok()?);
        }
        Some(latencies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_within_a_64th_of_what_it_holds() {
        for ns in (0..70).chain([99, 1000, 123_456, 7_654_321, 10_000_000_000, u64::MAX / 2]) {
            let told = middle(cell(ns));
            assert!(told.abs_diff(ns) <= ns / 64, "{ns} is told as {told}");
        }
        assert!((0..100_000).map(cell).is_sorted());
    }

    #[test]
    fn percentiles_of_one_to_ten_thousand() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.percentiles(), None);
        (1..=10_000).for_each(|us| latencies.record(us * 1000));
        let Percentiles { p50, p99, p999, max } = latencies.percentiles().unwrap();
        // Exactly 5, 9.9 and 9.99 ms.
        let close = |told: u64, exact: u64| told.abs_diff(exact) <= exact / 64;
        assert!(close(p50, 5_000_000) && close(p99, 9_900_000), "{p50} {p99}");
        assert!(close(p999, 9_990_000) && max == 10_000_000, "{p999} {max}");
    }

    #[test]
    fn halves_add_up_and_survive_a_word() {
        let (mut odd, mut even, mut all) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for ns in 0..5000 {
            if ns % 2 == 0 {
                even.record(ns)
            } else {
                odd.record(ns)
            }
            all.record(ns);
        }
        odd.merge(&Latencies::parse(&even.to_word()).unwrap());
        assert_eq!(odd, all);
        assert_eq!(odd.count(), 5000);
        // 3 ns each instead of 1, within 1/32.
        let thrice = all.scaled(3, 1).percentiles().unwrap();
        let once = all.percentiles().unwrap();
        assert_eq!((thrice.max, once.max), (3 * 4999, 4999));
        assert!(thrice.p99.abs_diff(3 * once.p99) <= 3 * once.p99 / 32, "{thrice:?} {once:?}");
        assert_eq!(Latencies::parse("7,x:1"), None);
        assert_eq!(Latencies::parse("7,99999:1"), None);
    }
}
