//! What a run's log tells of a task, a page, or everything. Pure.
//!
//! Times are seconds since the log began. A task is named by its thread id; a page by an address,
//! which lies in at most one region of each process.

use std::collections::{BTreeMap, BTreeSet};

use numaherd_model::{Action, Outcome, ProcessId, Refusal, TaskId, Waiting, counted};
use numaherd_trace::Event;
use numaherd_trace::event::Line;
use serde::Serialize;

/// So many times are shown one by one.
const SHOWN_TIMES: usize = 6;

/// Seconds within which a log is begun that is all there. Guessed: some microseconds.
const WHOLE: f64 = 1.0;

/// Whom to tell about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Everything,
    Task(u32),
    Page(u64),
}

/// One action, told.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    pub seconds: f64,
    /// What was to be done and why, in words.
    pub action: String,
    /// What became of it, in words.
    pub outcome: String,
    /// How often in a row the same was tried with the same outcome.
    pub times: u64,
    /// On whom, where the log has several of that number: ids are used again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The command or the processes.
    pub about: Option<String>,
    /// When the log begins: more than 0 if it was too long to be kept whole.
    pub from_seconds: f64,
    pub seconds: f64,
    pub tasks_placed: u64,
    pub tasks_released: u64,
    pub pages_moved: u64,
    pub pages_refused: Refusal,
    /// Why actions were not done, and how often.
    pub not_done: BTreeMap<String, u64>,
    /// Whether it came to look.
    pub looked: bool,
    /// Local share of the evidence at the end, per mille; none where nothing was known of anybody.
    pub strength_permille: Option<u32>,
    /// Whether nothing was left to do at the end.
    pub converged: bool,
    /// When it first had nothing left to do.
    pub converged_seconds: Option<f64>,
    /// When another phase of the program was heard to begin.
    pub phases_seconds: Vec<f64>,
    /// What was waited for, and how many looks long.
    pub waited: BTreeMap<String, u64>,
    /// What was waited for at the end.
    pub waiting: Option<String>,
}

pub(super) fn seconds(line: &Line) -> f64 {
    line.t.0 as f64 / 1e9
}

fn concerns(about: About, action: &Action) -> bool {
    match (about, action) {
        (About::Everything, _) => true,
        (About::Task(tid), Action::PlaceTask { task, .. } | Action::ReleaseTask { task, .. }) => {
            task.tid == tid
        }
        (About::Page(address), Action::MovePages { region, len, .. }) => {
            (region.start..region.start.saturating_add(len.0)).contains(&address)
        }
        _ => false,
    }
}

/// Whom an action is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Whom {
    Task(TaskId),
    Process(ProcessId),
}

impl Whom {
    fn of(action: &Action) -> Whom {
        match action {
            Action::PlaceTask { task, .. } | Action::ReleaseTask { task, .. } => Whom::Task(*task),
            Action::MovePages { region, .. } => Whom::Process(region.process),
        }
    }

    fn told(self) -> String {
        let (what, number, start) = match self {
            Whom::Task(TaskId { tid, start }) => ("task", tid, start),
            Whom::Process(ProcessId { tgid, start }) => ("process", tgid, start),
        };
        format!("{what} {number} that began at tick {start}")
    }
}

/// The actions on it, oldest first; what is repeated without a change is told once.
pub fn actions(lines: &[Line], about: About) -> Vec<Told> {
    let mut story: Vec<(Whom, Told)> = Vec::new();
    for line in lines {
        let Event::Action { action, outcome } = &line.event else { continue };
        if !concerns(about, action) {
            continue;
        }
        let (whom, action, outcome) = (Whom::of(action), action.to_string(), outcome.to_string());
        match story.last_mut() {
            Some((of, last)) if *of == whom && last.action == action && last.outcome == outcome => {
                last.times += 1;
            }
            _ => {
                let told = Told { seconds: seconds(line), action, outcome, times: 1, of: None };
                story.push((whom, told));
            }
        }
    }
    let whom: BTreeSet<Whom> = story.iter().map(|(whom, _)| *whom).collect();
    let several = about != About::Everything && whom.len() > 1;
    let told = |(whom, told): (Whom, Told)| Told { of: several.then(|| whom.told()), ..told };
    story.into_iter().map(told).collect()
}

/// The run as a whole.
pub fn summary(lines: &[Line]) -> Summary {
    // A log's first line is written as it begins, however soon that is after the run has.
    let from = lines.first().map_or(0.0, seconds);
    let mut sum =
        Summary { from_seconds: if from < WHOLE { 0.0 } else { from }, ..Summary::default() };
    for line in lines {
        sum.seconds = sum.seconds.max(seconds(line));
        match &line.event {
            Event::Begin { about, .. } => {
                // Somebody else may have written that file.
                sum.about = Some(about.replace(char::is_control, "\u{fffd}"));
            }
            Event::Action { action, outcome } => count(&mut sum, action, outcome),
            Event::State { strength_permille, converged, stirred, waiting, .. } => {
                sum.looked = true;
                let unknown = matches!(waiting, Some(Waiting::Evidence { known: 0, .. }));
                if !unknown || *strength_permille > 0 {
                    sum.strength_permille = Some(*strength_permille);
                }
                sum.converged = *converged;
                if *converged && sum.converged_seconds.is_none() {
                    sum.converged_seconds = Some(seconds(line));
                }
                if *stirred {
                    sum.phases_seconds.push(seconds(line));
                }
                sum.waiting = waiting.as_ref().filter(|_| !converged).map(told_of);
                if let Some(waiting) = waiting {
                    *sum.waited.entry(told_of(waiting)).or_insert(0) += 1;
                }
            }
            _ => {}
        }
    }
    sum
}

fn told_of(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Evidence { .. } => "faults of more of the busy tasks".into(),
        Waiting::Look => "another look at who is busy".into(),
        Waiting::Sharing { process, .. } => {
            format!("signs whether the threads of process {} share memory", process.tgid)
        }
    }
}

fn count(sum: &mut Summary, action: &Action, outcome: &Outcome) {
    sum.pages_moved += outcome.moved().0;
    match outcome {
        Outcome::Skipped(reason) => *sum.not_done.entry(reason.to_string()).or_insert(0) += 1,
        Outcome::Partial { refused, .. } => {
            let total = &mut sum.pages_refused;
            total.busy += refused.busy;
            total.shared += refused.shared;
            total.full += refused.full;
            total.absent += refused.absent;
            total.other += refused.other;
        }
        Outcome::Done { .. } => match action {
            Action::PlaceTask { .. } => sum.tasks_placed += 1,
            Action::ReleaseTask { .. } => sum.tasks_released += 1,
            Action::MovePages { .. } => {}
        },
    }
}

impl Summary {
    /// In plain words, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut told = Vec::new();
        if let Some(about) = &self.about {
            told.push(format!("looked after: {about}"));
        }
        if self.from_seconds > 0.0 {
            let from = self.from_seconds;
            told.push(format!(
                "what was before {from:.1} s is no longer in the log: it was too long"
            ));
        }
        told.push(format!(
            "in {:.1} s: {} placed, {} released, {} moved; pages that stayed: {}",
            self.seconds - self.from_seconds,
            counted(self.tasks_placed, "task"),
            self.tasks_released,
            counted(self.pages_moved, "page"),
            self.pages_refused
        ));
        for (why, times) in &self.not_done {
            told.push(format!("{times} x not done: {why}"));
        }
        for (what, looks) in &self.waited {
            let looks = counted(looks, "look");
            told.push(format!("decided nothing at {looks}, waiting for {what}"));
        }
        if !self.phases_seconds.is_empty() {
            let at = times(&self.phases_seconds);
            told.push(format!("its tasks went on to other memory, or seemed to, at {at}"));
        }
        let local = match self.strength_permille {
            Some(local) => format!("{} local", tenths(local)),
            None => "how much was local is not known".into(),
        };
        told.push(match (self.looked, self.converged, self.converged_seconds) {
            (false, ..) => "it never came to look".into(),
            (true, true, Some(at)) => format!("nothing was left to do from {at:.1} s on; {local}"),
            (true, ..) => format!("it ended before all was done; {local}"),
        });
        told
    }

    /// Why something was never acted upon, as far as the log knows, which does not name those of whom nothing was planned.
    pub fn why_nothing(&self, about: About) -> String {
        let nobody = self.tasks_placed + self.pages_moved == 0;
        match (self.strength_permille, &self.waiting) {
            _ if !self.looked => "the run ended before its first look".into(),
            (Some(local), None) if self.converged && about == About::Everything => {
                format!("herd saw nothing to gain from it: {} of all use was local", tenths(local))
            }
            (Some(local), None) if self.converged => format!(
                "herd saw nothing to gain where it looked ({} of all use was local) and never planned it: \
                 the log does not name it, so that it may not have been looked after at all",
                tenths(local)
            ),
            (_, Some(what)) if nobody => {
                format!("herd decided nothing about anybody, waiting for {what}")
            }
            _ => "herd never planned it: no evidence that it was misplaced, or it was not among \
                  what this run looked after"
                .into(),
        }
    }
}

fn tenths(permille: u32) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

/// Times in seconds, all of them or the last few.
fn times(seconds: &[f64]) -> String {
    let (before, shown) = seconds.split_at(seconds.len().saturating_sub(SHOWN_TIMES));
    let shown = shown.iter().map(|at| format!("{at:.1} s")).collect::<Vec<_>>().join(", ");
    match before.len() {
        0 => shown,
        more => format!("{shown}, and {more} x before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::{PROCESS, task_id};
    use numaherd_model::{Bytes, Nanos, NodeId, Pages, Reason, RegionId, SkipReason};
    use numaherd_trace::VERSION;

    fn log() -> Vec<Line> {
        let place = |tid: u32, node: u32| Action::PlaceTask {
            task: task_id(tid),
            node: NodeId(node),
            cpus: "4-7".parse().unwrap(),
            reason: Reason::MemoryThere { permille: 876 },
        };
        let pages = Action::MovePages {
            region: RegionId { process: PROCESS, start: 0x20_0000 },
            len: Bytes(2 << 20),
            to: NodeId(1),
            pages: Pages(512),
            reason: Reason::UsersThere { permille: 990 },
        };
        let refused = Refusal { busy: 12, ..Refusal::default() };
        let state = |converged, stirred, waiting| Event::State {
            strength_permille: 951,
            converged,
            faults: 7,
            samples: 0,
            tasks: 2,
            stirred,
            waiting,
        };
        let act = |action: &Action, outcome| Event::Action { action: action.clone(), outcome };
        let gone = || Outcome::Skipped(SkipReason::Gone);
        let checked = SkipReason::Checked { problem: "node 1 is full".into(), short: None };
        let events = [
            state(false, true, Some(Waiting::Evidence { known: 1, busy: 2 })),
            act(&place(5, 1), Outcome::Done { moved: Pages(0) }),
            act(&pages, Outcome::Partial { moved: Pages(500), refused }),
            act(&place(6, 1), gone()),
            act(&place(6, 1), gone()),
            act(&place(6, 1), Outcome::Skipped(checked)),
            state(true, false, None),
        ];
        let line = |(event, t): (Event, u64)| Line { v: VERSION, t: Nanos(t * 500_000_000), event };
        events.into_iter().zip(1..).map(line).collect()
    }

    #[test]
    fn a_tasks_story_has_its_reasons_and_what_is_repeated_once() {
        let told = actions(&log(), About::Task(5));
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].seconds, told[0].outcome.as_str()), (1.0, "done"));
        assert!(told[0].action.contains("87.6 % of what it uses lies there"), "{told:?}");
        let told = actions(&log(), About::Task(6));
        assert_eq!(told.iter().map(|told| told.times).collect::<Vec<_>>(), [2, 1]);
        assert!(told[1].outcome.contains("the check refused: node 1 is full"), "{told:?}");
        assert_eq!(actions(&log(), About::Task(7)), []);
    }

    #[test]
    fn two_of_the_same_number_are_told_apart() {
        let mut lines = log();
        let again = lines.iter().filter(|line| matches!(line.event, Event::Action { .. }));
        let mut again: Vec<Line> = again.take(2).cloned().collect();
        for line in &mut again {
            match &mut line.event {
                Event::Action { action: Action::PlaceTask { task, .. }, .. } => task.start = 99,
                Event::Action { action: Action::MovePages { region, .. }, .. } => {
                    region.process = ProcessId { tgid: 77, start: 98 };
                }
                _ => panic!(),
            }
        }
        assert!(actions(&lines, About::Task(5))[0].of.is_none());
        // Right behind the one of the first, which it is no repetition of.
        lines.insert(2, again.remove(0));
        lines.extend(again);
        let of = |about| actions(&lines, about).into_iter().map(|told| told.of).collect::<Vec<_>>();
        let told = |words: &str| Some(words.to_string());
        let first = told(&format!("task 5 that began at tick {}", task_id(5).start));
        assert_eq!(of(About::Task(5)), [first, told("task 5 that began at tick 99")]);
        let pages = of(About::Page(0x20_0000));
        assert_eq!((pages.len(), &pages[1]), (2, &told("process 77 that began at tick 98")));
        assert_eq!(of(About::Everything).len(), 6);
    }

    #[test]
    fn a_page_is_found_by_the_region_it_lies_in() {
        let told = actions(&log(), About::Page(0x3f_ffff));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].outcome, "500 pages moved; stayed: 12 in use at that moment");
        assert_eq!(actions(&log(), About::Page(0x40_0000)), []);
        assert_eq!(actions(&log(), About::Everything).len(), 4);
    }

    #[test]
    fn the_summary_adds_up_and_says_why_nothing_happened() {
        let sum = summary(&log());
        assert_eq!((sum.tasks_placed, sum.pages_moved, sum.pages_refused.busy), (1, 500, 12));
        assert_eq!(sum.not_done.values().sum::<u64>(), 3);
        assert_eq!((sum.seconds, sum.converged_seconds), (3.5, Some(3.5)));
        assert_eq!(sum.phases_seconds, [0.5]);
        assert!(
            sum.lines().iter().any(|told| told.contains("other memory, or seemed to, at 0.5 s"))
        );
        let never = sum.why_nothing(About::Task(7));
        assert!(never.contains("never planned"), "{never}");
        // What was waited for at first is not what it ended with; and who is not named may have been nobody of ours.
        assert!(
            never.starts_with("herd saw nothing to gain") && never.contains("does not name it"),
            "{never}"
        );
        assert!(sum.why_nothing(About::Everything).contains("from it: 95.1 %"));
        let many: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(times(&many), "4.0 s, 5.0 s, 6.0 s, 7.0 s, 8.0 s, 9.0 s, and 3 x before");
        let waiting = summary(&log()[..1]);
        let why = |about| waiting.why_nothing(about);
        assert!(why(About::Task(7)).contains("faults of more"), "{}", why(About::Task(7)));
        assert!(summary(&[]).why_nothing(About::Task(7)).contains("before its first look"));
        assert_eq!(waiting.strength_permille, Some(951));
    }

    #[test]
    fn where_nothing_was_known_nothing_is_said_to_be_remote() {
        let mut first = log().remove(0);
        let Event::State { strength_permille, waiting, .. } = &mut first.event else { panic!() };
        *strength_permille = 0;
        *waiting = Some(Waiting::Evidence { known: 0, busy: 2 });
        let sum = summary(&[first]);
        assert_eq!((sum.looked, sum.strength_permille), (true, None));
        let told = sum.lines().pop().unwrap();
        assert_eq!(told, "it ended before all was done; how much was local is not known");
    }
}
