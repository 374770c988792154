//! What herd did in a turn, as the page of nodes lists it. Regions that go from one process to one node
//! for the same kind of reason are told as one, so that the tasks stand out: eight lines of 2 MiB become
//! "move 4096 pages in 8 regions of process 1 to node 1: of each, at least 74.7 % of its uses come from
//! tasks there". What kernels did stands in [`kernel`].

pub mod kernel;

use numaherd_model::{Action, Nanos, NodeId, Outcome, Pages, ProcessId, Reason, counted};
use numaherd_report::nodes::Move;

/// The moves of one turn, in its order.
pub fn told(time: Nanos, actions: &[Action], outcomes: &[Outcome]) -> Vec<Move> {
    let when = format!("{:.2} s", time.as_secs_f64());
    let all: Vec<(&Action, &Outcome)> = actions.iter().zip(outcomes).collect();
    let alike =
        |(a, _): &(&Action, &Outcome), (b, _): &(&Action, &Outcome)| match (pages(a), pages(b)) {
            (Some(a), Some(b)) => a.goes_with(&b),
            _ => false,
        };
    all.chunk_by(alike).map(|chunk| as_one(when.clone(), chunk)).collect()
}

/// A region's pages on their way.
struct Way<'a> {
    process: ProcessId,
    to: NodeId,
    pages: u64,
    reason: &'a Reason,
}

impl Way<'_> {
    fn goes_with(&self, other: &Way) -> bool {
        let kind = |way: &Way| std::mem::discriminant(way.reason);
        (self.process, self.to, kind(self)) == (other.process, other.to, kind(other))
    }

    /// Share of the uses for which it goes, if it goes for that.
    fn permille(&self) -> u32 {
        match self.reason {
            Reason::UsersThere { permille } => *permille,
            _ => 1000,
        }
    }
}

fn pages(action: &Action) -> Option<Way<'_>> {
    let Action::MovePages { region, to, pages, reason, .. } = action else { return None };
    Some(Way { process: region.process, to: *to, pages: pages.0, reason })
}

fn as_one(when: String, chunk: &[(&Action, &Outcome)]) -> Move {
    let ways: Vec<Way> = chunk.iter().filter_map(|(action, _)| pages(action)).collect();
    let least = ways.iter().min_by_key(|way| way.permille()).filter(|_| chunk.len() > 1);
    let Some(least) = least else {
        let (action, outcome) = chunk[0];
        let (what, outcome) = (action.to_string(), outcome.to_string());
        return Move { when, what, outcome, parts: Vec::new() };
    };
    let (Way { process, to, reason, .. }, regions) = (least, ways.len());
    let pages: u64 = ways.iter().map(|way| way.pages).sum();
    let of_each = match reason {
        Reason::UsersThere { permille: 1000 } => "of each, ",
        Reason::UsersThere { .. } => "of each, at least ",
        _ => "",
    };
    Move {
        when,
        what: format!(
            "move {pages} pages in {regions} regions of process {process} to node {to}: {of_each}{reason}"
        ),
        outcome: together(chunk),
        parts: chunk.iter().map(|(action, outcome)| format!("{action}: {outcome}")).collect(),
    }
}

/// What became of all of them.
fn together(chunk: &[(&Action, &Outcome)]) -> String {
    let moved = |(_, outcome): &(&Action, &Outcome)| match outcome {
        Outcome::Done { moved } | Outcome::Partial { moved, .. } => moved.0,
        Outcome::Skipped(_) => 0,
    };
    let pages = Pages(chunk.iter().map(moved).sum());
    let mut others = chunk.iter().filter(|(_, outcome)| !matches!(outcome, Outcome::Done { .. }));
    match others.next() {
        None => Outcome::Done { moved: pages }.to_string(),
        Some((_, first)) => {
            let (some, all) = (1 + others.count(), chunk.len());
            format!("{} moved; {some} of {all} regions not whole: {first}", counted(pages, "page"))
        }
    }
}

#[cfg(test)]
mod tests {
    use numaherd_model::{Bytes, CpuSet, RegionId, SkipReason, TaskId};

    use super::*;

    fn region(start: u64, to: u32, permille: u32) -> Action {
        let region = RegionId { process: ProcessId { tgid: 1, start: 0 }, start };
        let reason = Reason::UsersThere { permille };
        Action::MovePages { region, len: Bytes(2 << 20), to: NodeId(to), pages: Pages(512), reason }
    }

    #[test]
    fn regions_that_go_one_way_are_told_as_one_and_tasks_by_themselves() {
        let cpus = CpuSet::default();
        let task = TaskId { tid: 7, ..TaskId::default() };
        let place = Action::PlaceTask { task, node: NodeId(1), cpus, reason: Reason::Balance };
        let actions = [place, region(0, 1, 750), region(1, 1, 747), region(2, 0, 800)];
        let done = Outcome::Done { moved: Pages(512) };
        let outcomes =
            [Outcome::Done { moved: Pages(0) }, done.clone(), done.clone(), done.clone()];
        let found = told(Nanos(500_000_000), &actions, &outcomes);
        let what: Vec<&str> = found.iter().map(|one| one.what.as_str()).collect();
        assert!(what[0].starts_with("place task 7") && found[0].parts.is_empty(), "{what:?}");
        let one = "move 1024 pages in 2 regions of process 1 to node 1: of each, at least 74.7 % of its uses";
        assert!(what[1].starts_with(one), "{what:?}");
        assert_eq!(
            (found[1].outcome.as_str(), found[1].parts.len()),
            ("done, 1024 pages moved", 2)
        );
        assert!(what[2].starts_with("move 512 pages of 1:0x2") && what.len() == 3, "{what:?}");
        let skipped = Outcome::Skipped(SkipReason::Gone);
        let found = told(Nanos(0), &actions[1..3], &[skipped.clone(), done]);
        let said = format!("512 pages moved; 1 of 2 regions not whole: {skipped}");
        assert_eq!(found[0].outcome, said);
    }
}
