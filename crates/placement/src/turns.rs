//! Turns: a team that is larger than the room on its memory's node takes turns at being away.
//!
//! Five tasks that share memory and find four CPUs beside it leave one on another node, or take turns
//! on the four. The first has one of them work at a fraction of the others' speed for ever, and who
//! waits for the slowest waits for it; the second leaves a CPU idle. Changing who is away gives each
//! an equal part of both, and no CPU is idle: with remote memory at half the speed, each of five goes
//! at (4 + 1/2) ÷ 5 = 0.9 of full speed, where the one goes at 0.5, and five on four CPUs at 0.8.
//!
//! A change costs two tasks' caches and is worth it only rarely: every [`TURN`], or so seldom that
//! nobody moves more than twice in [`ROUND`], which is less than what the check takes for ping-pong.

use numaherd_model::Nanos;

use crate::demand::{Demand, DemandTask};
use crate::outlook::Outlook;

/// Time that tasks stay before they change. Guessed: long beside what filling a cache takes.
const TURN: Nanos = Nanos(2_000_000_000);

/// A task goes away and comes back once in this time at the most.
const ROUND: Nanos = Nanos(10_000_000_000);

/// The bundle that a task mostly uses.
fn team(task: &DemandTask) -> Option<usize> {
    let (b, most) = task.bundles.iter().copied().max_by_key(|(_, weight)| *weight)?;
    task.is_most(most).then_some(b)
}

/// Whether a task is where its team's memory is not.
#[must_use]
pub fn is_away(demand: &Demand, outlook: &Outlook, task: usize) -> bool {
    let task = &demand.tasks[task];
    team(task).is_some_and(|b| outlook.of(b).memory != task.now)
}

/// Who comes to its memory, and who makes room for it: of each team that is in two places the one that
/// has been away longest, and of those beside their memory the one that was away least. `away` is how
/// long each task has been away in all, `may_move` who may be moved now.
#[must_use]
pub fn changes(
    demand: &Demand,
    outlook: &Outlook,
    away: impl Fn(usize) -> Nanos,
    may_move: impl Fn(usize) -> bool,
) -> Vec<(usize, usize)> {
    let mut changes = Vec::new();
    for (b, bundle) in demand.bundles.iter().enumerate().filter(|(_, bundle)| !bundle.stays) {
        let memory = outlook.of(b).memory;
        let users = bundle.users.iter().map(|(task, _)| *task);
        let team: Vec<usize> = users
            .filter(|&i| {
                let task = &demand.tasks[i];
                task.placed && demand.is_known(i) && team(task) == Some(b)
            })
            .collect();
        let (home, out): (Vec<usize>, Vec<usize>) =
            team.iter().partition(|&&task| demand.tasks[task].now == memory);
        // Where most are away it is the memory that is in the wrong place.
        if out.len() >= home.len() {
            continue;
        }
        let Some(&comes) = out.iter().max_by_key(|&&i| (away(i), std::cmp::Reverse(i))) else {
            continue;
        };
        let to = demand.tasks[comes].now;
        let fits = |i: usize, node| may_move(i) && !demand.cpus(i, node).is_empty();
        let able = home.iter().copied().filter(|&i| fits(i, to));
        let Some(goes) = able.min_by_key(|&i| (away(i), i)) else { continue };
        let turn = TURN.0.max(ROUND.0 / team.len() as u64);
        if fits(comes, memory) && away(comes).since(away(goes)) >= Nanos(turn) {
            changes.push((comes, goes));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_model::scene::Scene;

    /// Five tasks that share one region on node 1; the last of them is on node 0, with three others.
    fn three_and_five() -> Demand {
        let mut scene = Scene::two_by_four();
        let nodes = [0, 0, 0, 1, 1, 1, 1, 0];
        for (tid, node) in (1..=8).zip(nodes) {
            scene.task(tid, node * 4, 1000);
            scene.at_home(tid, node);
        }
        scene.region(0, &[(1, 100), (2, 100), (3, 100)], &[(0, 512)]);
        scene.region(1, &[(4, 100), (5, 100), (6, 100), (7, 100), (8, 100)], &[(1, 512)]);
        Demand::new(&scene.snapshot())
    }

    fn found(
        demand: &Demand,
        away: [u64; 8],
        may_move: impl Fn(usize) -> bool,
    ) -> Vec<(usize, usize)> {
        let at = demand.today();
        let outlook = Outlook::new(demand, &at);
        changes(demand, &outlook, |task| Nanos(away[task] * 100_000_000), may_move)
    }

    #[test]
    fn whoever_was_away_longest_comes_and_whoever_was_away_least_goes() {
        let demand = three_and_five();
        let anybody = |_| true;
        // Tasks 3 to 7; five of them: a turn of 2 s.
        assert_eq!(found(&demand, [0, 0, 0, 0, 0, 0, 0, 19], anybody), []);
        assert_eq!(found(&demand, [0, 0, 0, 0, 0, 0, 0, 20], anybody), [(7, 3)]);
        assert_eq!(found(&demand, [0, 0, 0, 20, 0, 0, 0, 20], anybody), [(7, 4)]);
        assert_eq!(found(&demand, [0, 0, 0, 20, 20, 20, 20, 20], anybody), []);
        assert_eq!(found(&demand, [0, 0, 0, 20, 20, 20, 20, 40], anybody), [(7, 3)]);
        assert_eq!(found(&demand, [0, 0, 0, 0, 0, 0, 0, 20], |task| task != 3), [(7, 4)]);
        assert_eq!(found(&demand, [0, 0, 0, 0, 0, 0, 0, 20], |task| task != 7), []);
    }

    #[test]
    fn only_who_is_away_from_the_team_is_away() {
        let demand = three_and_five();
        let at = demand.today();
        let outlook = Outlook::new(&demand, &at);
        let away: Vec<usize> = (0..8).filter(|&task| is_away(&demand, &outlook, task)).collect();
        assert_eq!(away, [7]);
    }
}
