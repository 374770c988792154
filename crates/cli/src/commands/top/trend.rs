//! How local processes were in the last looks.

use std::collections::{BTreeMap, VecDeque};

use super::findings::Row;

/// So many looks are told of.
const LOOKS: usize = 12;

/// From nothing local to all.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is not known.
const UNKNOWN: char = '?';

/// Local shares by process, the last one last.
#[derive(Default)]
pub struct Trend(BTreeMap<u32, VecDeque<Option<f64>>>);

impl Trend {
    /// Another look. Who was not seen in it is forgotten.
    pub fn see(&mut self, rows: &[Row<'_>]) {
        let shares = rows.iter().map(|row| {
            // A process whose share may be anything has none.
            (row.process.pid, row.local.and_then(|local| local.value))
        });
        self.add(shares.collect());
    }

    fn add(&mut self, shares: BTreeMap<u32, Option<f64>>) {
        self.0.retain(|pid, _| shares.contains_key(pid));
        for (pid, share) in shares {
            let looks = self.0.entry(pid).or_default();
            looks.push_back(share);
            if looks.len() > LOOKS {
                looks.pop_front();
            }
        }
    }

    /// A cell for each process.
    pub fn columns(&self, rows: &[Row<'_>]) -> Vec<String> {
        rows.iter().map(|row| self.drawn(row.process.pid)).collect()
    }

    fn drawn(&self, pid: u32) -> String {
        let level = |share: &Option<f64>| match share {
            Some(share) => LEVELS[(share.clamp(0.0, 1.0) * 7.0).round() as usize],
            None => UNKNOWN,
        };
        self.0.get(&pid).into_iter().flatten().map(level).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_looks_are_drawn_and_who_is_gone_is_forgotten() {
        let mut trend = Trend::default();
        for share in [Some(0.0), None, Some(0.5), Some(1.0)] {
            trend.add([(7, share), (8, Some(1.0))].into());
        }
        assert_eq!(trend.drawn(7), "▁?▅█");
        trend.add([(8, Some(0.1))].into());
        assert_eq!((trend.drawn(7).as_str(), trend.drawn(8).as_str()), ("", "████▂"));
        (0..LOOKS).for_each(|_| trend.add([(8, None)].into()));
        assert_eq!(trend.drawn(8), "?".repeat(LOOKS));
    }
}
