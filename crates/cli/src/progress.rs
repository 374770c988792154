//! What is going on, on stderr: a bar on a terminal, lines elsewhere.
//!
//! Of what is mostly over in a moment nothing is said until it has taken [`SILENT`].

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use numaherd_report::Cell;

/// From when on somebody who waits wonders what for. Guessed.
const SILENT: Duration = Duration::from_secs(5);

/// Runs of a workload under several placements. What was drawn goes when it is dropped.
pub struct Progress {
    bar: Option<ProgressBar>,
    runs: u32,
    /// Of what may be over soon.
    wait: Option<Wait>,
}

impl Progress {
    /// Of rounds with so many placements each, of which every run is told.
    pub fn of_long_runs(runs: u32, placements: usize) -> Progress {
        Progress { bar: bar(runs, placements), runs, wait: None }
    }

    /// Of rounds of which nothing is told where they are soon over.
    pub fn of_runs(runs: u32, placements: usize) -> Progress {
        let bar = bar(runs, placements);
        let is_drawn = bar.is_some();
        let wait = Wait::new(SILENT, String::new(), move |now| {
            if !is_drawn {
                say!("numaherd: {now}");
            }
        });
        Progress { bar, runs, wait: Some(wait) }
    }

    /// A run begins.
    pub fn begin(&self, run: u32, placement: impl std::fmt::Display) {
        let now = format!("run {} of {}: {placement}", run + 1, self.runs);
        if let Some(wait) = &self.wait {
            wait.is_for(format!("{now} is simulated"));
        }
        if let Some(bar) = &self.bar {
            bar.set_message(now);
        }
    }

    /// It has ended.
    pub fn end(&self, cell: &Cell) {
        let local =
            cell.local_share.map_or_else(String::new, |l| format!(", {:.1} % local", l * 100.0));
        let line = format!(
            "run {} of {}: {} {:.2} s{local}",
            cell.run + 1,
            self.runs,
            cell.placement,
            cell.seconds
        );
        let is_told = self.wait.as_ref().is_none_or(Wait::is_long);
        match &self.bar {
            Some(bar) => {
                if is_told {
                    bar.println(line);
                }
                bar.inc(1);
            }
            None if is_told => say!("numaherd: {line}"),
            None => {}
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(runs: u32, placements: usize) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(u64::from(runs) * placements as u64);
        let style =
            ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}, {eta} left]");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        bar
    })
}

/// Something that may take long; if it does, it is told once.
pub struct Wait {
    now: Arc<Mutex<String>>,
    is_long: Arc<AtomicBool>,
    /// The wait is over when it goes.
    _end: SyncSender<()>,
}

impl Wait {
    /// Says so after a while on stderr, unless it is dropped before.
    pub fn of(what: String) -> Wait {
        Wait::new(SILENT, what, |what| say!("numaherd: {what}"))
    }

    fn new(silent: Duration, what: String, tell: impl FnOnce(&str) + Send + 'static) -> Wait {
        let now = Arc::new(Mutex::new(what));
        let is_long = Arc::new(AtomicBool::new(false));
        let (_end, ended) = sync_channel::<()>(0);
        let (what, long) = (Arc::clone(&now), Arc::clone(&is_long));
        // Without a thread it is just not told.
        let _ = std::thread::Builder::new().spawn(move || {
            if ended.recv_timeout(silent) == Err(RecvTimeoutError::Timeout) {
                long.store(true, Ordering::Relaxed);
                tell(&what.lock().unwrap_or_else(PoisonError::into_inner));
            }
        });
        Wait { now, is_long, _end }
    }

    /// What it is for from now on.
    fn is_for(&self, what: String) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn is_long(&self) -> bool {
        self.is_long.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn what_takes_long_is_told_and_what_is_over_before_is_not() {
        let (told, hears) = channel();
        let tell = move |now: &str| told.send(now.to_string()).unwrap();
        let wait = Wait::new(Duration::ZERO, "run 1 of 2".into(), tell);
        assert_eq!(hears.recv().unwrap(), "run 1 of 2");
        assert!(wait.is_long());
        let (told, hears) = channel();
        let tell = move |now: &str| told.send(now.to_string()).unwrap();
        let wait = Wait::new(Duration::MAX, String::new(), tell);
        assert!(!wait.is_long());
        drop(wait);
        // Whoever would tell is gone.
        assert!(hears.recv().is_err());
    }
}
