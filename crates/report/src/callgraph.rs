//! Where tasks spend their time, as a tree of functions: text, JSON, and a picture in which a
//! frame is as wide as its share and stands on what called it (an icicle, Gregg's flame graph
//! upside down).
//!
//! ```
//! use numaherd_report::callgraph::Frame;
//! let mut root = Frame::new("all");
//! root.add(&["page_fault", "copy_page"], 3.0, 7);
//! root.add(&["page_fault", "rmap_walk"], 1.0, 2);
//! assert_eq!((root.seconds, root.frames[0].times, root.frames[0].frames.len()), (4.0, 9, 2));
//! ```

use std::fmt::Write;

use numaherd_model::counted;
use serde::Serialize;

use crate::chart::escape;
use crate::text::wide_grid;

/// Pixels.
const WIDTH: f64 = 900.0;
const ROW: f64 = 20.0;
/// Narrower frames have no name.
const NAMED: f64 = 40.0;
/// Of a character.
const CHARACTER: f64 = 6.5;
/// Locks that are listed.
const LOCKS: usize = 10;
/// By depth.
const COLOURS: [&str; 5] = ["#e9e4d8", "#e0c48c", "#d9a066", "#cf7f5a", "#c05f52"];

/// A function, with what it called.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Frame {
    /// Its name.
    pub name: String,
    /// Time in it and in what it called.
    pub seconds: f64,
    /// Visits, likewise.
    pub times: u64,
    /// What it called, the longest first once sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
}

impl Frame {
    /// Without time.
    #[must_use]
    pub fn new(name: &str) -> Frame {
        Frame { name: name.into(), seconds: 0.0, times: 0, frames: Vec::new() }
    }

    /// Time at the end of a path below this frame.
    pub fn add(&mut self, path: &[&str], seconds: f64, times: u64) {
        self.seconds += seconds;
        self.times += times;
        let Some((first, rest)) = path.split_first() else { return };
        let at = self.frames.iter().position(|frame| frame.name == *first).unwrap_or_else(|| {
            self.frames.push(Frame::new(first));
            self.frames.len() - 1
        });
        self.frames[at].add(rest, seconds, times);
    }

    /// The longest first, at every level; equals by name.
    pub fn sort(&mut self) {
        self.frames.iter_mut().for_each(Frame::sort);
        self.frames
            .sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
    }

    /// Leaves out what took less than so many seconds, at every level; whoever called it keeps its time.
    pub fn prune(&mut self, least: f64) {
        self.frames.retain(|frame| frame.seconds >= least);
        self.frames.iter_mut().for_each(|frame| frame.prune(least));
    }

    fn depth(&self) -> usize {
        1 + self.frames.iter().map(Frame::depth).max().unwrap_or(0)
    }
}

/// A place where tasks give up their CPU until something happens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Its function.
    pub name: String,
    /// How often.
    pub times: u64,
    /// Of all times that tasks were blocked.
    pub share: f64,
    /// How long, all together.
    pub seconds: f64,
}

/// A lock, as lock meters tell it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lock {
    /// Whose and which.
    pub name: String,
    /// How often it was taken.
    pub taken: u64,
    /// Of these, the share that waited.
    pub waited_share: f64,
    /// Of the run's time, the share in which it was held.
    pub held_share: f64,
    /// Means.
    pub held_mean_us: f64,
    /// Of those that waited.
    pub wait_mean_us: f64,
    /// The longest.
    pub wait_longest_us: f64,
}

/// One run's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallGraph {
    /// Under which placement.
    pub placement: String,
    /// Which run of it, the first being 1.
    pub run: u32,
    /// All tasks' time.
    pub all: Frame,
    /// Where they blocked, the most frequent first.
    pub blocked: Vec<Point>,
    /// Locks that anybody waited for, the most waited for first.
    pub locks: Vec<Lock>,
}

impl CallGraph {
    /// A tree with shares, points of scheduling, locks.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}, run {}: where {:.2} task seconds went\n% of time     seconds       times\n",
            self.placement, self.run, self.all.seconds
        );
        for frame in &self.all.frames {
            self.branch(frame, 0, &mut text);
        }
        text += "where tasks blocked\n";
        text += match self.blocked.is_empty() {
            true => "  nowhere\n",
            // Unlike above, where it is of time.
            false => "% of times    seconds       times\n",
        };
        for Point { name, times, share, seconds } in &self.blocked {
            let _ = writeln!(text, "{:7.2} % {seconds:11.3} {times:11}  {name}", share * 100.0);
        }
        if !self.locks.is_empty() {
            let head = ["lock", "held %", "taken", "waited %", "held us", "wait us", "longest us"]
                .map(String::from);
            let row = |lock: &Lock| {
                let percent = |share: f64| format!("{:.1}", share * 100.0);
                [
                    lock.name.clone(),
                    percent(lock.held_share),
                    lock.taken.to_string(),
                    percent(lock.waited_share),
                    format!("{:.1}", lock.held_mean_us),
                    format!("{:.1}", lock.wait_mean_us),
                    format!("{:.1}", lock.wait_longest_us),
                ]
            };
            text += &wide_grid(&head, self.locks.iter().take(LOCKS).map(row));
        }
        if let Some(more) = self.locks.len().checked_sub(LOCKS).filter(|more| *more > 0) {
            let _ = writeln!(text, "and {} more", counted(more, "lock"));
        }
        text
    }

    fn branch(&self, frame: &Frame, depth: usize, text: &mut String) {
        let share = frame.seconds / self.all.seconds.max(f64::MIN_POSITIVE) * 100.0;
        let (seconds, times, name) = (frame.seconds, frame.times, &frame.name);
        let indent = "  ".repeat(depth);
        let _ = writeln!(text, "{share:7.2} % {seconds:11.3} {times:11}  {indent}{name}");
        frame.frames.iter().for_each(|frame| self.branch(frame, depth + 1, text));
    }

    /// The picture; each frame tells its figures when pointed at.
    #[must_use]
    pub fn svg(&self) -> String {
        let height = self.all.depth() as f64 * ROW;
        let mut svg = format!(
            "<svg width=\"{WIDTH}\" height=\"{height}\" font-size=\"11\" font-family=\"sans-serif\">"
        );
        self.box_of(&self.all, 0.0, 0, &mut svg);
        svg + "</svg>"
    }

    fn box_of(&self, frame: &Frame, x: f64, depth: usize, svg: &mut String) {
        let share = frame.seconds / self.all.seconds.max(f64::MIN_POSITIVE);
        let (width, y) = (share * WIDTH, depth as f64 * ROW);
        if width < 0.1 {
            return;
        }
        let name = escape(&frame.name);
        let _ = write!(
            svg,
            "<g><title>{name}: {:.2} %, {:.3} s, {} times</title><rect x=\"{x:.1}\" y=\"{y:.1}\" \
             width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"#fff\"/>",
            share * 100.0,
            frame.seconds,
            frame.times,
            ROW - 1.0,
            COLOURS[depth.min(COLOURS.len() - 1)]
        );
        if width >= NAMED {
            let short: String = frame.name.chars().take((width / CHARACTER) as usize).collect();
            let (x, y) = (x + 3.0, y + ROW * 0.7);
            let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(&short));
        }
        *svg += "</g>";
        let mut left = x;
        for below in &frame.frames {
            self.box_of(below, left, depth + 1, svg);
            left += below.seconds / self.all.seconds.max(f64::MIN_POSITIVE) * WIDTH;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> CallGraph {
        let mut all = Frame::new("all tasks");
        all.add(&["user code"], 6.0, 10);
        all.add(&["page_fault", "copy_page"], 1.0, 4);
        all.add(&["page_fault", "rmap_walk (waits)"], 3.0, 5);
        all.sort();
        let point = Point { name: "rmap_walk".into(), times: 5, share: 1.0, seconds: 3.0 };
        let lock = Lock {
            name: "anon_vma of process 1".into(),
            taken: 8,
            waited_share: 0.625,
            held_share: 0.5,
            held_mean_us: 1.5,
            wait_mean_us: 20.0,
            wait_longest_us: 40.0,
        };
        let locks = vec![lock; 12];
        CallGraph { placement: "p".into(), run: 1, all, blocked: vec![point], locks }
    }

    #[test]
    fn the_tree_has_shares_of_all_time_the_longest_first() {
        let text = graph().text();
        assert!(text.starts_with("p, run 1: where 10.00 task seconds went\n"), "{text}");
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines[0], "  60.00 %       6.000          10  user code");
        assert_eq!(lines[1], "  40.00 %       4.000           9  page_fault");
        assert_eq!(lines[2], "  30.00 %       3.000           5    rmap_walk (waits)");
        let blocked = "where tasks blocked\n% of times    seconds       times\n 100.00 %       3.000           5  rmap_walk\n";
        assert!(text.contains(blocked), "{text}");
        assert!(text.contains(" 62.5 |") && text.contains("and 2 locks more"), "{text}");
    }

    #[test]
    fn what_is_pruned_keeps_its_callers_time() {
        let mut all = graph().all;
        all.prune(2.0);
        assert_eq!(all.seconds, 10.0);
        let page_fault = &all.frames[1];
        assert_eq!((page_fault.seconds, page_fault.frames.len()), (4.0, 1));
        assert_eq!(page_fault.frames[0].name, "rmap_walk (waits)");
    }

    #[test]
    fn frames_stand_below_their_caller_as_wide_as_their_share() {
        let svg = graph().svg();
        // page_fault begins after 60 % of 900 pixels, and its longer part right there.
        assert!(svg.contains("<rect x=\"540.0\" y=\"20.0\" width=\"360.0\""), "{svg}");
        assert!(svg.contains("<rect x=\"540.0\" y=\"40.0\" width=\"270.0\""), "{svg}");
        assert!(svg.contains("<rect x=\"810.0\" y=\"40.0\" width=\"90.0\""), "{svg}");
    }
}
