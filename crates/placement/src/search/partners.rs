//! Whom a task can change places with that wishes to go to a full node: those that wish to go the other
//! way, and those that lose least by leaving.
//!
//! Of a small problem everybody on the node is looked at. Of a large one those that lose least are worked
//! out now and then, and the list is used until about as much has happened there as it is long.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{FEW_TASKS, Wish};
use crate::assignment::Assignment;
use crate::demand::{Demand, DemandTask};

/// Partners looked at on a full node of a larger problem: those that lose least by leaving.
const PARTNERS: usize = 4;

/// Who loses least by leaving a node of a larger problem is worked out anew when one in so many of
/// those there came or went.
const FRESH: usize = 1;

/// Tasks that are looked at as partners.
pub type Found = SmallVec<[usize; PARTNERS + 1]>;

/// Whom a task can change places with.
pub struct Partners {
    loose: Vec<Loose>,
    /// How often those of each node were asked in vain, counted like four changes.
    in_vain: Vec<usize>,
    bound: Bound,
    few: bool,
}

/// From node to node, those that wish to go, greatest gain first: a list of wishes for each two nodes,
/// of which there are often more than wishes, so that only those that were begun are taken back.
struct Bound {
    nodes: usize,
    /// For each two nodes, where in `wishes` the list begins; at [`Bound::NOBODY`] it ends.
    first: Vec<u32>,
    /// Who, of which list, and where the list goes on.
    wishes: Vec<(usize, usize, u32)>,
}

impl Bound {
    const NOBODY: u32 = u32::MAX;

    fn new(nodes: usize) -> Bound {
        Bound { nodes, first: vec![Bound::NOBODY; nodes * nodes], wishes: Vec::new() }
    }

    fn clear(&mut self) {
        for (_, list, _) in self.wishes.drain(..) {
            self.first[list] = Bound::NOBODY;
        }
    }

    /// Puts a task before all others that wish to go the same way.
    fn push(&mut self, task: usize, from: usize, to: usize) {
        let list = from * self.nodes + to;
        let begins = self.wishes.len() as u32;
        self.wishes.push((task, list, std::mem::replace(&mut self.first[list], begins)));
    }

    /// The first that wishes to go and is still there; those before it are forgotten.
    fn first(&mut self, from: usize, to: usize, there: impl Fn(usize) -> bool) -> Option<usize> {
        let first = &mut self.first[from * self.nodes + to];
        while let Some(&(task, _, next)) = self.wishes.get(*first as usize) {
            if there(task) {
                return Some(task);
            }
            *first = next;
        }
        None
    }
}

/// Those on a node that lose least by leaving, least first.
#[derive(Default)]
struct Loose {
    tasks: VecDeque<usize>,
    /// The node's changes when this was worked out, and after how many more it is again.
    at: Option<usize>,
    lasts: usize,
}

impl Partners {
    pub fn new(demand: &Demand) -> Partners {
        let few = demand.tasks.len() <= FEW_TASKS;
        let loose = demand.nodes.iter().map(|_| Loose::default()).collect();
        let in_vain = vec![0; demand.nodes.len()];
        Partners { loose, in_vain, bound: Bound::new(demand.nodes.len()), few }
    }

    /// Takes in who wishes to go where, in a new pass.
    pub fn hear(&mut self, demand: &Demand, assignment: &Assignment, wishes: &[Wish]) {
        self.bound.clear();
        let wishes = wishes.iter().rev().map(|&(_, task, to)| (task as usize, to as usize));
        for (task, to) in wishes.filter(|&(task, _)| demand.tasks[task].claims_cpu) {
            self.bound.push(task, assignment.at()[task], to);
        }
        for node in (0..demand.nodes.len()).filter(|_| self.few) {
            self.loose[node] = Loose::new(demand, assignment, node, 0);
        }
    }

    /// Those worth a look for a task that went from `left` to the full node `on`: one that
    /// wishes to go the other way, and some that are held least.
    pub fn of(
        &mut self,
        demand: &Demand,
        assignment: &Assignment,
        task: usize,
        on: usize,
        left: usize,
    ) -> Found {
        let at = assignment.at();
        let there = |partner: &usize| at[*partner] == on && *partner != task;
        let mut found = Found::new();
        found.extend(self.bound.first(on, left, |partner| there(&partner)));
        let events = assignment.changes(on) + self.in_vain[on];
        if !self.few && !self.loose[on].still_holds(events) {
            self.loose[on] = Loose::new(demand, assignment, on, events);
        }
        let loose = &mut self.loose[on].tasks;
        while loose.front().is_some_and(|partner| at[*partner] != on) {
            loose.pop_front();
        }
        // On a list that is worked out from a node's load all do.
        let claims = |partner: &usize| !self.few || demand.tasks[*partner].claims_cpu;
        let most = if self.few { FEW_TASKS } else { PARTNERS };
        found.extend(loose.iter().copied().filter(there).filter(claims).take(most));
        found
    }

    /// None was found for a task that wished to go from one node to the other.
    pub fn failed(&mut self, from: usize, to: usize) {
        self.in_vain[from] += 2;
        self.in_vain[to] += 2;
    }

    /// A task came to a node, and may be a partner there.
    pub fn arrived(&mut self, task: usize, node: usize) {
        if self.few && !self.loose[node].tasks.contains(&task) {
            self.loose[node].tasks.push_back(task);
        }
    }
}

impl Loose {
    fn new(demand: &Demand, assignment: &Assignment, node: usize, events: usize) -> Loose {
        let held = |&task: &usize| (hold(assignment, &demand.tasks[task], node), task);
        let mut tasks: Vec<(u64, usize)> = assignment.members(node).iter().map(held).collect();
        tasks.sort_unstable();
        let lasts = tasks.len() / FRESH;
        let tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Loose { tasks, at: Some(events), lasts }
    }

    fn still_holds(&self, events: usize) -> bool {
        self.at.is_some_and(|at| events - at <= self.lasts)
    }
}

/// What holds a task on a node: its weight in memory that is there.
fn hold(assignment: &Assignment, task: &DemandTask, node: usize) -> u64 {
    let here = task.bundles.iter().filter(|(b, _)| assignment.memory_of(*b) == node);
    here.map(|(_, weight)| weight).sum()
}
