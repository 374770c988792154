//! What a thread did, and when; and the tallies of all threads together.
//!
//! A thread notes its work in pieces, in buckets of 50 ms since the common start: nobody else has
//! to look at it while it runs. It goes by the clock's last tick, which costs nothing to read.
//! Operations are timed with the CPU's own counter; how long its ticks are follows from a look at
//! the clock and the counter at both ends of the run. Each second has a histogram of its own.

use std::ops::Range;

use crate::latency::{Latencies, Percentiles};
use crate::span::Span;
use crate::{Unit, WorkloadError, sys};

/// Width of a bucket. Chosen: a few of the pieces of work noted, and far below what is shown.
const BUCKET_NS: u64 = 50_000_000;
/// Bytes written between two notes. Chosen: 3 ms on the emulated machine, less than a tick.
const CHUNK_BYTES: usize = 1 << 20;
/// Buckets shown as one, at least: a quarter of a second.
const SHOWN_BUCKETS: usize = 5;
/// Intervals shown, at most.
const MOST_INTERVALS: usize = 100;
/// Operations that end within one such stretch of time share a histogram. Chosen: a second of
/// jbb-like has 20,000 on a CPU of the emulated machine, so 20 beyond its 99.9th percentile.
const HISTOGRAM_NS: u64 = 1_000_000_000;

/// One thread's work since the common start.
#[derive(Debug)]
pub struct Tally {
    start_ns: u64,
    limit_ns: Option<u64>,
    /// Counter and clock when this thread began.
    began: (u64, u64),
    buckets: Vec<u64>,
    /// One for each [`HISTOGRAM_NS`], in ticks of the counter.
    latencies: Vec<Latencies>,
}

impl Tally {
    pub(crate) fn new(start_ns: u64, limit_ns: Option<u64>) -> Tally {
        let began = (sys::ticks(), sys::monotonic_ns());
        let (buckets, latencies) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        Tally { start_ns, limit_ns, began, buckets, latencies }
    }

    /// The rounds of a run: `loops`, or as many as begin before its time is over.
    pub(crate) fn rounds(&self, loops: usize) -> Rounds {
        let until_ns = self.limit_ns.map(|limit| self.start_ns + limit);
        Rounds { next: 0, loops, until_ns }
    }

    /// Whether half of the run is over when this round begins.
    pub(crate) fn half_over(&self, round: usize, loops: usize) -> bool {
        match self.limit_ns {
            Some(limit) => sys::coarse_ns() >= self.start_ns + limit / 2,
            None => round >= loops / 2,
        }
    }

    /// `amount` more has been done, by now.
    pub(crate) fn add(&mut self, amount: u64) {
        self.add_by(sys::coarse_ns().saturating_sub(self.start_ns), amount);
    }

    fn add_by(&mut self, since: u64, amount: u64) {
        let bucket = (since / BUCKET_NS) as usize;
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += amount;
    }

    /// An operation that began at this count of the CPU's ticks is done. Answers the count now.
    pub(crate) fn operation(&mut self, began: u64) -> u64 {
        let now = sys::ticks();
        let since = sys::coarse_ns().saturating_sub(self.start_ns);
        let second = (since / HISTOGRAM_NS) as usize;
        if self.latencies.len() <= second {
            self.latencies.resize(second + 1, Latencies::default());
        }
        self.latencies[second].record(now.saturating_sub(began));
        self.add_by(since, 1);
        now
    }

    /// The thread has ended.
    pub(crate) fn finish(self) -> Harvest {
        let (ticks, end_ns) = (sys::ticks(), sys::monotonic_ns());
        let (ticks, ns) = (ticks.saturating_sub(self.began.0), end_ns - self.began.1);
        let latencies = self.latencies.iter().map(|l| l.scaled(ns, ticks.max(1))).collect();
        Harvest { ends_ns: vec![end_ns], buckets: self.buckets, latencies }
    }

    /// Writes `value` to all words of a part.
    pub(crate) fn write(&mut self, span: &Span, part: Range<usize>, value: u64) {
        for chunk in chunks(part) {
            span.write(chunk.clone(), value);
            self.add(chunk.len() as u64);
        }
    }
}

/// A part in pieces of at most [`CHUNK_BYTES`].
pub(crate) fn chunks(part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = part.end;
    part.step_by(CHUNK_BYTES).map(move |first| first..end.min(first + CHUNK_BYTES))
}

/// Numbers of rounds, from 0.
pub(crate) struct Rounds {
    next: usize,
    loops: usize,
    until_ns: Option<u64>,
}

impl Iterator for Rounds {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let more = match self.until_ns {
            Some(until) => sys::coarse_ns() < until,
            None => self.next < self.loops,
        };
        self.next += 1;
        more.then_some(self.next - 1)
    }
}

/// What the threads of a process, or of all of them, did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Harvest {
    ends_ns: Vec<u64>,
    buckets: Vec<u64>,
    latencies: Vec<Latencies>,
}

impl Harvest {
    /// Adds another's.
    pub(crate) fn merge(&mut self, other: &Harvest) {
        self.ends_ns.extend(&other.ends_ns);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        if self.latencies.len() < other.latencies.len() {
            self.latencies.resize(other.latencies.len(), Latencies::default());
        }
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
    }

    /// As words of one line.
    pub(crate) fn to_line(&self) -> String {
        let list = |numbers: &[u64]| {
            let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
            format!("={}", words.join(","))
        };
        let latencies: Vec<String> = self.latencies.iter().map(Latencies::to_word).collect();
        format!("{} {} ={}", list(&self.ends_ns), list(&self.buckets), latencies.join(";"))
    }

    /// Reads [`Harvest::to_line`]; `None` of anything else.
    pub(crate) fn parse(line: &str) -> Option<Harvest> {
        let words: Vec<&str> =
            line.split_whitespace().map(|w| w.strip_prefix('=')).collect::<Option<_>>()?;
        let [ends, buckets, latencies] = words[..] else { return None };
        let list = |word: &str| -> Option<Vec<u64>> {
            word.split(',').filter(|w| !w.is_empty()).map(|w| w.parse().ok()).collect()
        };
        Some(Harvest {
            ends_ns: list(ends)?,
            buckets: list(buckets)?,
            latencies: latencies
                .split(';')
                .filter(|word| !word.is_empty())
                .map(Latencies::parse)
                .collect::<Option<_>>()?,
        })
    }

    /// All that was done.
    fn amount(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// What a run came to that started its threads at `start_ns`.
    pub(crate) fn measured(&self, unit: Unit, start_ns: u64, whole_seconds: f64) -> Measured {
        let since = |end: &u64| end.saturating_sub(start_ns) as f64 / 1e9;
        let thread_seconds: Vec<f64> = self.ends_ns.iter().map(since).collect();
        let seconds = thread_seconds.iter().copied().fold(0.0, f64::max);
        let mut latencies = Latencies::default();
        self.latencies.iter().for_each(|second| latencies.merge(second));
        Measured {
            seconds,
            whole_seconds,
            start_ns,
            thread_seconds,
            amount: self.amount(),
            unit,
            over_time: Series::of(&self.buckets, seconds),
            latency_ns: latencies.percentiles(),
            latencies: self.latencies.clone(),
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// From the end of initialisation to the last thread.
    pub seconds: f64,
    /// The whole run, initialisation included.
    pub whole_seconds: f64,
    /// End of initialisation on the monotonic clock, in nanoseconds.
    pub start_ns: u64,
    /// From the end of initialisation to each thread's end.
    pub thread_seconds: Vec<f64>,
    /// Work done in the timed part.
    pub amount: u64,
    /// What is counted.
    pub unit: Unit,
    /// Throughput in the course of it.
    pub over_time: Series,
    /// How long operations took, where it has any.
    pub latency_ns: Option<Percentiles>,
    /// The same, by the second in which they ended; without operations empty.
    pub latencies: Vec<Latencies>,
}

/// Throughput in equal intervals from the start; the last may be shorter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Length of an interval.
    pub interval_seconds: f64,
    /// Work per second in each.
    pub values: Vec<f64>,
}

impl Series {
    /// Buckets are joined until at most [`MOST_INTERVALS`] are left.
    fn of(buckets: &[u64], seconds: f64) -> Series {
        let mut width = SHOWN_BUCKETS;
        while buckets.len().div_ceil(width) > MOST_INTERVALS {
            width *= 2;
        }
        let interval_seconds = width as f64 * BUCKET_NS as f64 / 1e9;
        let rate = |(index, joined): (usize, &[u64])| {
            let begin = index as f64 * interval_seconds;
            let covered = (seconds - begin).clamp(0.0, interval_seconds);
            let amount: u64 = joined.iter().sum();
            // What was noted in the first moments of an interval was mostly done before it.
            if covered > interval_seconds / 5.0 || index == 0 {
                Some(amount as f64 / covered.max(1e-9))
            } else {
                None
            }
        };
        let values = buckets.chunks(width).enumerate().filter_map(rate).collect();
        Series { interval_seconds, values }
    }
}

/// A line of another process that cannot be understood.
pub(crate) fn garbled(index: usize) -> WorkloadError {
    WorkloadError::Process { index, problem: "said something that cannot be understood".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_they_cover() {
        // 0.54 s of 100 a bucket: 5 buckets of 50 ms are 500 in 0.25 s; the last bucket, 0.5 to
        // 0.54 s, is less than a fifth of an interval and left out.
        let series = Series::of(&[100; 11], 0.54);
        assert_eq!(series.interval_seconds, 0.25);
        assert_eq!(series.values, [2000.0, 2000.0]);
        // Up to 0.6 s, 200 in 0.1 s.
        let longer = Series::of(&[100; 12], 0.6);
        assert!((longer.values[2] - 2000.0).abs() < 1e-6, "{longer:?}");
        let long = Series::of(&[1; 20 * 600], 600.0);
        assert!(long.values.len() <= MOST_INTERVALS, "{}", long.values.len());
        assert!(long.values.iter().all(|rate| (rate - 20.0).abs() < 1e-9));
    }

    #[test]
    fn a_harvest_survives_a_line_and_adds_up() {
        let mut one = Tally::new(sys::monotonic_ns(), None);
        one.add(7);
        one.operation(sys::ticks());
        let mut harvest = one.finish();
        assert_eq!(Harvest::parse(&harvest.to_line()).as_ref(), Some(&harvest));
        let twice = Harvest::parse(&harvest.to_line()).unwrap();
        harvest.merge(&twice);
        assert_eq!((harvest.amount(), harvest.ends_ns.len()), (16, 2));
        assert_eq!(harvest.latencies.iter().map(Latencies::count).sum::<u64>(), 2);
        assert_eq!(Harvest::parse("=1 =2"), None);
        assert_eq!(Harvest::parse("=1 =x =0"), None);
        let empty = Harvest::default();
        assert_eq!(Harvest::parse(&empty.to_line()), Some(empty));
    }

    #[test]
    fn chunks_cover_a_part_once() {
        let (mut at, end) = (64, 64 + 3 * CHUNK_BYTES + 4096);
        for chunk in chunks(at..end) {
            assert_eq!(chunk.start, at);
            assert!(chunk.len() <= CHUNK_BYTES);
            at = chunk.end;
        }
        assert_eq!(at, end);
    }

    #[test]
    fn an_operation_is_timed_in_nanoseconds() {
        let mut tally = Tally::new(sys::monotonic_ns(), None);
        let (ticks, ns) = (sys::ticks(), sys::monotonic_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        tally.operation(ticks);
        let took = sys::monotonic_ns() - ns;
        let told = tally.finish().latencies[0].percentiles().unwrap().max;
        // Sleep ends late, but both saw the same.
        assert!(told.abs_diff(took) < took / 10, "{told} of {took}");
    }

    #[test]
    fn operations_count_in_the_second_in_which_they_end() {
        // The run began 2.5 s ago, and two operations end now: in the third second.
        let mut tally = Tally::new(sys::monotonic_ns().saturating_sub(2_500_000_000), None);
        let began = tally.operation(sys::ticks());
        tally.operation(began);
        let measured = tally.finish().measured(Unit::Transactions, 0, 2.5);
        let counts: Vec<u64> = measured.latencies.iter().map(Latencies::count).collect();
        assert_eq!(counts, [0, 0, 2]);
        assert_eq!(measured.latencies[2].percentiles(), measured.latency_ns);
    }

    #[test]
    fn rounds_end_by_number_or_by_time() {
        let now = sys::monotonic_ns();
        assert_eq!(Tally::new(now, None).rounds(3).collect::<Vec<_>>(), [0, 1, 2]);
        let over = Tally::new(now.saturating_sub(2_000_000_000), Some(1_000_000_000));
        assert_eq!(over.rounds(3).count(), 0);
        assert!(over.half_over(0, 10));
        assert!(!Tally::new(now, None).half_over(4, 10));
        assert!(Tally::new(now, None).half_over(5, 10));
    }
}
