//! What a process was promised earlier, beside what has come of it.
//!
//! The last advice that was worth following is kept, one file for each process, and the next look at the same
//! process lays it beside what it sees.
//!
//! How much faster it runs is measured where the waiting for memory is counted: whatever it computes meanwhile takes
//! as long as before, so a unit of work that took the time 1, `w` of it waiting, takes `(1 − w) ÷ (1 − w′)` when
//! the share is `w′`. That knows nothing of distances or of what was promised. Example: 60 % then and 20 % now
//! is half the time. Where nobody counts, local shares tell from what to what it can be.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use numaherd_lab::kernel::cache_dir;
use numaherd_linux::process::TaskReader;
use numaherd_model::ProcessId;
use numaherd_trace::create_private;
use serde::{Deserialize, Serialize};

use super::Advice;
use crate::commands::status::findings::percent;
use crate::estimate::{self, Interval};
use crate::runs;

/// All but this share waiting for memory leaves too little work to tell anything by. Guessed.
const MOST_WAITING: f64 = 0.98;

/// What an advice said.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Promise {
    /// Numbers of processes begin again with each.
    boot: String,
    /// Seconds since 1970.
    at: u64,
    local_share: f64,
    local_share_after: f64,
    remote_ratio: Option<f64>,
    waiting_share: Option<f64>,
    gain: Option<f64>,
    gain_interval: [f64; 2],
}

/// The promise, and what has come of it; shares from 0 to 1, gains of the time that it took then.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Earlier {
    pub seconds_ago: u64,
    pub local_share_then: f64,
    pub local_share_promised: f64,
    /// As faults or page tables show it, else as counted.
    pub local_share_now: Option<f64>,
    /// As a figure, where the waiting for memory was counted.
    pub gain_promised: Option<f64>,
    pub gain_promised_interval: [f64; 2],
    /// By how much less it waits for memory; where that was counted both times.
    pub gain_measured: Option<f64>,
    /// Where it was not: what the local shares of then and now allow.
    pub gain_interval: Option<[f64; 2]>,
}

/// Where promises to a process are kept.
pub struct Shelf {
    folder: PathBuf,
    process: ProcessId,
    boot: String,
}

impl Shelf {
    /// This user's.
    pub fn of(process: ProcessId, reader: &TaskReader) -> anyhow::Result<Shelf> {
        Ok(Shelf { folder: cache_dir().join("advice"), process, boot: reader.boot_id()? })
    }

    fn name(&self) -> String {
        format!("{}-{}", self.process.tgid, self.process.start)
    }

    /// What was promised last, and what has come of it; `None` if nothing was.
    pub fn compare(&self, advice: &Advice) -> Option<Earlier> {
        let path = self.folder.join(self.name()).with_extension("jsonl");
        let promise: Promise = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        let is_of_today = promise.boot == self.boot;
        is_of_today.then(|| promise.beside(advice, now()))
    }

    /// Keeps what is promised, if it is worth following. A courtesy: where it cannot be kept, the advice is
    /// as good.
    pub fn keep(&self, advice: &Advice) {
        let boot = self.boot.clone();
        let Some(promise) = Promise::of(advice, boot, now()).filter(|_| advice.worth_it) else {
            return;
        };
        let write =
            |path: PathBuf| create_private(&path)?.write_all(&serde_json::to_vec(&promise)?);
        let kept = runs::next(&self.folder, &self.name()).and_then(write);
        if let Err(error) = kept {
            say!("numaherd: the advice cannot be compared with what comes of it later: {error}");
        }
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl Promise {
    /// What an advice promises; `None` if nothing can be said.
    fn of(advice: &Advice, boot: String, at: u64) -> Option<Promise> {
        Some(Promise {
            boot,
            at,
            local_share: advice.local_share?,
            local_share_after: advice.local_share_after?,
            remote_ratio: advice.remote_ratio,
            waiting_share: advice.waiting_share,
            gain: advice.gain,
            gain_interval: advice.gain_interval?,
        })
    }

    fn beside(&self, advice: &Advice, now: u64) -> Earlier {
        let local = advice.local_share.or(advice.local_share_counted);
        let measured = self.waiting_share.zip(advice.waiting_share).and_then(faster);
        let possible = self.remote_ratio.zip(local).filter(|_| measured.is_none());
        let possible = possible.map(|(ratio, local)| {
            let waiting = Interval::UNKNOWN;
            let Interval { low, high } = estimate::gain(self.local_share, local, ratio, waiting);
            [low, high]
        });
        Earlier {
            seconds_ago: now.saturating_sub(self.at),
            local_share_then: self.local_share,
            local_share_promised: self.local_share_after,
            local_share_now: local,
            gain_promised: self.gain,
            gain_promised_interval: self.gain_interval,
            gain_measured: measured,
            gain_interval: possible,
        }
    }
}

/// The share of its time that a unit of work takes less, from the shares it waited and waits; below 0 if it takes
/// more.
fn faster((before, now): (f64, f64)) -> Option<f64> {
    (before < MOST_WAITING && now < MOST_WAITING).then(|| 1.0 - (1.0 - before) / (1.0 - now))
}

impl Earlier {
    /// For people.
    pub fn text(&self) -> String {
        let [_, most] = self.gain_promised_interval;
        let promised = match self.gain_promised {
            Some(gain) => percent(gain),
            None => format!("up to {}", percent(most)),
        };
        let brought = match (self.gain_measured, self.gain_interval) {
            (Some(gain), _) if gain < 0.0 => {
                format!(
                    "; by how much more it waits for memory, it takes {} longer",
                    percent(-gain)
                )
            }
            (Some(gain), _) => {
                format!(
                    "; by how much less it waits for memory, it takes {} less time",
                    percent(gain)
                )
            }
            (None, Some([_, high])) => format!("; that brought up to {}", percent(high)),
            (None, None) => String::new(),
        };
        let now = self.local_share_now.map(|now| format!(", {} are now", percent(now)));
        format!(
            "{} ago it was told that moving makes {} local and brings {promised} of its time: {} were local \
             then{}{brought}",
            ago(self.seconds_ago),
            percent(self.local_share_promised),
            percent(self.local_share_then),
            now.unwrap_or_default(),
        )
    }
}

/// A stretch of time in words.
fn ago(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use numaherd_model::scene::Scene;

    use super::*;

    /// An advice of so much local and waiting, with a gain where that was counted.
    fn advice(local: f64, waiting: Option<f64>, worth_it: bool) -> Advice {
        let one = Advice::on_one_node(7, &Scene::two_by_four().snapshot().topology);
        Advice {
            local_share: Some(local),
            local_share_after: Some(0.99),
            remote_ratio: Some(2.0),
            waiting_share: waiting,
            gain: waiting.map(|_| 0.4),
            gain_interval: Some([0.35, 0.45]),
            worth_it,
            ..one
        }
    }

    fn shelf(folder: &Path, start: u64, boot: &str) -> Shelf {
        Shelf {
            folder: folder.join("advice"),
            process: ProcessId { tgid: 7, start },
            boot: boot.into(),
        }
    }

    #[test]
    fn what_was_promised_is_laid_beside_what_has_come_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let shelf_of = |start, boot| shelf(dir.path(), start, boot);
        let shelf = shelf_of(1, "boot");
        assert_eq!(shelf.compare(&advice(0.1, Some(0.6), true)), None, "nothing was promised");
        shelf.keep(&advice(0.1, Some(0.6), true));
        // Not worth it: what was promised stays.
        shelf.keep(&advice(0.98, Some(0.2), false));
        let earlier = shelf.compare(&advice(0.98, Some(0.2), false)).unwrap();
        assert!((earlier.gain_measured.unwrap() - 0.5).abs() < 1e-9, "{earlier:?}");
        assert_eq!((earlier.gain_promised, earlier.gain_interval), (Some(0.4), None));
        let earlier = Earlier { seconds_ago: 300, ..earlier };
        let said = earlier.text();
        assert_eq!(
            said,
            "5 minutes ago it was told that moving makes 99 % local and brings 40 % of its time: 10 % were local \
             then, 98 % are now; by how much less it waits for memory, it takes 50 % less time"
        );
        let unseen = Advice { local_share: None, ..advice(0.0, Some(0.2), false) };
        let said = shelf.compare(&unseen).unwrap().text();
        assert!(said.ends_with(
            "10 % were local then; by how much less it waits for memory, it takes 50 % less time"
        ));
        for other in [shelf_of(2, "boot"), shelf_of(1, "next")] {
            assert_eq!(other.compare(&advice(0.98, Some(0.2), false)), None, "of another process");
        }
    }

    #[test]
    fn where_nobody_counts_local_shares_bound_what_it_brought() {
        let dir = tempfile::tempdir().unwrap();
        let shelf = shelf(dir.path(), 1, "boot");
        shelf.keep(&advice(0.0, None, true));
        // All that is remote takes twice as long: at most half.
        let earlier = shelf.compare(&advice(1.0, None, false)).unwrap();
        assert_eq!((earlier.gain_measured, earlier.gain_interval), (None, Some([0.0, 0.5])));
        assert!(earlier.text().ends_with("100 % are now; that brought up to 50 %"));
        assert!(earlier.text().contains("brings up to 45 % of its time"));
    }

    #[test]
    fn a_longer_wait_is_told_as_such_and_one_that_is_all_tells_nothing() {
        assert_eq!(faster((0.2, 0.6)), Some(-1.0));
        assert_eq!((faster((0.99, 0.5)), faster((0.5, 0.99))), (None, None));
        let promise = Promise::of(&advice(0.5, Some(0.2), true), String::new(), 0).unwrap();
        let worse = promise.beside(&advice(0.2, Some(0.6), true), 90);
        assert!(worse.text().starts_with("90 s ago") && worse.text().ends_with("100 % longer"));
    }

    #[test]
    fn what_cannot_be_kept_is_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("advice"), "in the way").unwrap();
        let shelf = shelf(dir.path(), 1, "boot");
        shelf.keep(&advice(0.1, None, true));
        assert_eq!(shelf.compare(&advice(0.1, None, true)), None);
    }
}
