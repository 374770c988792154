//! Whether a miss continues a run of neighbouring misses, as a prefetcher would see it.
//!
//! A few runs are remembered by where they stand. A miss on the next line, up or down, continues
//! the run; a run is *established* from its third line on. Any other miss begins a run in the
//! place of the oldest.
//!
//! ```text
//! misses 10 11 12 13   →  no no yes yes          13 12 11 10 as well          10 20 30 → no no no
//! ```

/// Runs remembered. Guessed: hardware's level-two prefetchers follow 16 to 32, one or two for
/// each page; our programs have one CPU's worth.
const RUNS: usize = 8;
/// No line.
const NOWHERE: u64 = u64::MAX - 1;

#[derive(Clone, Copy)]
struct Run {
    /// The line missed last.
    at: u64,
    /// +1 or -1 once established, 0 before.
    step: i64,
}

/// One CPU's runs.
pub struct Streams {
    runs: [Run; RUNS],
    oldest: usize,
}

impl Default for Streams {
    fn default() -> Self {
        Streams { runs: [Run { at: NOWHERE, step: 0 }; RUNS], oldest: 0 }
    }
}

impl Streams {
    /// A miss on `line` (a virtual one: a run goes on over the end of a page). Whether it was
    /// foreseen.
    #[inline]
    pub fn foresaw(&mut self, line: u64) -> bool {
        for run in &mut self.runs {
            let step = line.wrapping_sub(run.at) as i64;
            if step == 1 || step == -1 {
                run.at = line;
                return std::mem::replace(&mut run.step, step) == step;
            }
        }
        self.runs[self.oldest] = Run { at: line, step: 0 };
        self.oldest = (self.oldest + 1) % RUNS;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreseen(lines: &[u64]) -> Vec<bool> {
        let mut streams = Streams::default();
        lines.iter().map(|&line| streams.foresaw(line)).collect()
    }

    #[test]
    fn the_third_neighbour_is_foreseen_in_both_directions() {
        assert_eq!(foreseen(&[10, 11, 12, 13]), [false, false, true, true]);
        assert_eq!(foreseen(&[13, 12, 11, 10]), [false, false, true, true]);
    }

    #[test]
    fn interleaved_runs_are_told_apart_up_to_eight() {
        let rounds = |runs: u64| {
            let lines: Vec<u64> =
                (0..4).flat_map(|i| (0..runs).map(move |run| run * 1000 + i)).collect();
            foreseen(&lines).iter().filter(|&&yes| yes).count() as u64
        };
        assert_eq!(rounds(8), 16); // the third and fourth line of each
        assert_eq!(rounds(9), 0); // each throws the next one's run out
    }

    #[test]
    fn random_lines_and_turning_round_are_not_foreseen() {
        assert!(foreseen(&[5, 90, 3, 77, 41, 12, 60]).iter().all(|&yes| !yes));
        assert_eq!(foreseen(&[5, 6, 5, 6, 5]), [false; 5]);
    }
}
