//! Where a new or woken task goes, and who pulls from whom.
//!
//! Load is the number of runnable tasks: what is balanced here is CPU-bound. Ties go to the lower
//! CPU. A later scheduler implements [`Scheduling`] in its own way; [`Fair`] follows Linux's
//! fair class.
//!
//! ```
//! use numaherd_scheduling::{Domains, Fair, Place, Scheduling};
//! let places: Vec<Place> = (0..4).map(|c| Place { core: c, cache: c / 2, node: c / 2 }).collect();
//! let domains = Domains::new(&places, &[vec![10, 21], vec![21, 10]]);
//! // Both tasks are on node 0: a third goes to node 1.
//! assert_eq!(Fair.fork(&domains, &[1, 1, 0, 0], 0, &|_| true), 2);
//! ```

use crate::domains::{Domain, Domains};

/// The choices a scheduler makes. `load` is the number of runnable tasks per CPU, the running one
/// included.
pub trait Scheduling {
    /// The CPU on which a new task of a task on `parent` starts.
    fn fork(
        &self,
        domains: &Domains,
        load: &[u32],
        parent: usize,
        allowed: &dyn Fn(usize) -> bool,
    ) -> usize;

    /// The CPU on which a task that last ran on `previous` wakes up.
    fn wake(
        &self,
        domains: &Domains,
        load: &[u32],
        previous: usize,
        allowed: &dyn Fn(usize) -> bool,
    ) -> usize;

    /// Pulls that even the load, `(from, to)` CPUs, of domains up to this level; `load` is kept up
    /// to date. `to` is idle or less loaded than `from` by two.
    fn balance(&self, domains: &Domains, load: &mut [u32]) -> Vec<(usize, usize)>;

    /// The CPU from which a CPU that is about to idle takes a waiting task.
    fn newidle(&self, domains: &Domains, load: &[u32], cpu: usize) -> Option<usize>;

    /// Pulls, `(from, to)` CPUs, after which load is no more even than before but others wait; `round`
    /// counts the calls of `balance`.
    fn rotate(&self, _domains: &Domains, _load: &[u32], _round: u64) -> Vec<(usize, usize)> {
        Vec::new()
    }
}

/// Linux's fair class of before 5.10, as far as it decides where CPU-bound tasks run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair;

/// The same as of Linux 6.12, where three things differ. Nodes are evened as soon as the groups within one are
/// (since 5.10). A node on which hardly anything runs leaves one or
/// two tasks on another (since 5.6; `adjust_numa_imbalance`). And where a node's tasks do not go evenly into
/// its CPUs, those that share one take turns: a pull that has failed twice goes through though it only
/// exchanges who waits (`detach_tasks`; an older kernel does so too).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fair6;

/// Tasks by which another node may be ahead of one that hardly anything runs on: NUMA_IMBALANCE_MIN.
/// Published.
const PAIR: u32 = 2;
/// A node hardly runs anything up to this part of its CPUs, or one task: imb_numa_nr. Published.
const HARDLY: usize = 8;
/// Rounds of balancing between two exchanges. Of a busy CPU of four every 64 to 128 ms, and each third
/// succeeds; there are three.
const EXCHANGE_ROUNDS: u64 = 5;

/// Tasks by which groups of nodes may differ without anybody moving, in per cent of the busier
/// one. Published: the imbalance_pct of NUMA domains was 125 until 5.9, elsewhere 117 (110 for siblings).
const NUMA_IMBALANCE_PERCENT: u32 = 125;
const IMBALANCE_PERCENT: u32 = 117;

fn load_of(group: &[usize], load: &[u32]) -> u32 {
    group.iter().map(|&cpu| load[cpu]).sum()
}

/// The allowed CPU of least load.
fn idlest(cpus: &[usize], load: &[u32], allowed: &dyn Fn(usize) -> bool) -> Option<usize> {
    cpus.iter().copied().filter(|&cpu| allowed(cpu)).min_by_key(|&cpu| (load[cpu], cpu))
}

impl Scheduling for Fair {
    fn fork(
        &self,
        domains: &Domains,
        load: &[u32],
        parent: usize,
        allowed: &dyn Fn(usize) -> bool,
    ) -> usize {
        let forks = |level: &usize| domains.levels[*level].0.flags().fork;
        let levels: Vec<usize> = (0..domains.levels.len()).filter(forks).collect();
        // All CPUs of the largest domain in which it may start.
        let widest = levels.iter().rev().find_map(|&level| domains.own(level, parent));
        let mut candidates: Vec<usize> = match widest {
            Some(domain) => domain.groups.concat(),
            None => vec![parent],
        };
        candidates.sort_unstable();
        for level in levels.into_iter().rev() {
            let own = candidates.iter().find_map(|&cpu| domains.own(level, cpu));
            let Some(domain) = own else { continue };
            // By load per CPU, compared without division; the parent's own group wins ties.
            let mut best: Option<(&Vec<usize>, u64, bool)> = None;
            for group in &domain.groups {
                let is_candidate = |cpu: &usize| candidates.binary_search(cpu).is_ok();
                if !group.iter().any(|cpu| is_candidate(cpu) && allowed(*cpu)) {
                    continue;
                }
                let per_cpu = u64::from(load_of(group, load)) * 1000 / group.len() as u64;
                let own = group.contains(&parent);
                if best.is_none_or(|(_, least, _)| per_cpu < least || per_cpu == least && own) {
                    best = Some((group, per_cpu, own));
                }
            }
            if let Some((group, ..)) = best {
                candidates.retain(|cpu| group.binary_search(cpu).is_ok());
            }
        }
        idlest(&candidates, load, allowed)
            .or_else(|| idlest(&(0..domains.cpus()).collect::<Vec<_>>(), load, allowed))
            .unwrap_or(parent)
    }

    fn wake(
        &self,
        domains: &Domains,
        load: &[u32],
        previous: usize,
        allowed: &dyn Fn(usize) -> bool,
    ) -> usize {
        if allowed(previous) && load[previous] == 0 {
            return previous;
        }
        let near = domains.near(previous).iter().copied();
        let idle = near.filter(|&cpu| load[cpu] == 0 && allowed(cpu));
        // An idle core before an idle sibling.
        let core_load = |cpu: usize| load_of(domains.siblings(cpu), load);
        match idle.min_by_key(|&cpu| (core_load(cpu), cpu)) {
            Some(cpu) => cpu,
            None if allowed(previous) => previous,
            None => self.fork(domains, load, previous, allowed),
        }
    }

    fn balance(&self, domains: &Domains, load: &mut [u32]) -> Vec<(usize, usize)> {
        even_all(domains, load, false)
    }

    fn newidle(&self, domains: &Domains, load: &[u32], cpu: usize) -> Option<usize> {
        // Mostly nobody waits anywhere, and a task that sleeps or waits for a lock asks after every pass: all loads
        // at one glance, without a comparison each.
        if load.iter().fold(0, |all, &runs| all | runs) <= 1 {
            return None;
        }
        for level in 0..domains.levels.len() {
            let Some(domain) = domains.own(level, cpu) else { continue };
            let busiest = domain
                .groups
                .iter()
                .flatten()
                .copied()
                .max_by_key(|&c| (load[c], usize::MAX - c))?;
            if load[busiest] > 1 {
                return Some(busiest);
            }
        }
        None
    }
}

impl Scheduling for Fair6 {
    fn fork(
        &self,
        domains: &Domains,
        load: &[u32],
        parent: usize,
        allowed: &dyn Fn(usize) -> bool,
    ) -> usize {
        Fair.fork(domains, load, parent, allowed)
    }

    fn wake(
        &self,
        domains: &Domains,
        load: &[u32],
        previous: usize,
        allowed: &dyn Fn(usize) -> bool,
    ) -> usize {
        Fair.wake(domains, load, previous, allowed)
    }

    fn balance(&self, domains: &Domains, load: &mut [u32]) -> Vec<(usize, usize)> {
        even_all(domains, load, true)
    }

    fn newidle(&self, domains: &Domains, load: &[u32], cpu: usize) -> Option<usize> {
        Fair.newidle(domains, load, cpu)
    }

    fn rotate(&self, domains: &Domains, load: &[u32], round: u64) -> Vec<(usize, usize)> {
        if !round.is_multiple_of(EXCHANGE_ROUNDS) {
            return Vec::new();
        }
        let turn = (round / EXCHANGE_ROUNDS) as usize;
        domains.nodes.iter().filter_map(|cpus| exchange(cpus, load, turn)).collect()
    }
}

/// From a CPU with a task more than others have to the next of those. Where several have one more, each turn
/// begins to look a CPU further on: or else the first ones would pass theirs round among them, and the last
/// would keep it.
fn exchange(cpus: &[usize], load: &[u32], turn: usize) -> Option<(usize, usize)> {
    let most = cpus.iter().map(|&cpu| load[cpu]).max().filter(|&most| most > 1)?;
    let begin = turn % cpus.len();
    let at = (begin..cpus.len()).chain(0..begin).find(|&at| load[cpus[at]] == most)?;
    let after = cpus[at + 1..].iter().chain(&cpus[..at]);
    let to = after.copied().find(|&cpu| load[cpu] + 1 == most)?;
    Some((cpus[at], to))
}

fn even_all(domains: &Domains, load: &mut [u32], of_6_12: bool) -> Vec<(usize, usize)> {
    let (mut pulls, mut runs) = (Vec::new(), Vec::new());
    for (level, all) in &domains.levels {
        let between_nodes = level.flags().numa;
        let older = between_nodes && !of_6_12;
        let percent = if older { NUMA_IMBALANCE_PERCENT } else { IMBALANCE_PERCENT };
        for domain in all {
            runs.clear();
            runs.extend(domain.groups.iter().map(|group| load_of(group, load)));
            even(domain, load, &mut runs, percent, between_nodes && of_6_12, &mut pulls);
        }
    }
    pulls
}

/// Moves tasks from the busiest to the idlest group while that evens them by more than `percent`; `runs` is
/// what each group runs.
fn even(
    domain: &Domain,
    load: &mut [u32],
    runs: &mut [u32],
    percent: u32,
    tolerates: bool,
    pulls: &mut Vec<(usize, usize)>,
) {
    let groups = &domain.groups;
    let most: usize = groups.iter().map(Vec::len).sum();
    for _ in 0..most {
        // Per CPU, so that groups of unequal size compare; the first of equals.
        let scaled = |group: usize| u64::from(runs[group]) * 1000 / groups[group].len() as u64;
        let (mut from, mut to) = (0, 0);
        let (mut high, mut low) = (0, u64::MAX);
        for group in 0..groups.len() {
            let scaled = scaled(group);
            if scaled > high {
                (from, high) = (group, scaled);
            }
            if scaled < low {
                (to, low) = (group, scaled);
            }
        }
        let one_from = 1000 / groups[from].len() as u64;
        let one_to = 1000 / groups[to].len() as u64;
        // A CPU that idles beside a group with more tasks than CPUs takes one, however small the
        // imbalance. Published: find_busiest_group for an idle CPU.
        let crowded = runs[from] as usize > groups[from].len();
        let idles = || groups[to].iter().any(|&cpu| load[cpu] == 0);
        let evens = high > low && high - low >= one_from + one_to;
        let is_pair = (runs[to] as usize) < (groups[to].len() / HARDLY).max(1)
            && runs[from].saturating_sub(runs[to]) <= PAIR;
        let tolerated = tolerates && is_pair && !crowded;
        let uneven = evens && high * 100 > low * u64::from(percent) && !tolerated;
        if !(uneven || crowded && from != to && idles()) {
            return;
        }
        let source = groups[from].iter().copied().max_by_key(|&c| (load[c], usize::MAX - c));
        let target = groups[to].iter().copied().min_by_key(|&c| (load[c], c));
        let (Some(source), Some(target)) = (source, target) else { return };
        if load[source] == 0 || load[target] >= load[source] && load[source] < 2 && load[target] > 0
        {
            return;
        }
        load[source] -= 1;
        load[target] += 1;
        runs[from] -= 1;
        runs[to] += 1;
        pulls.push((source, target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use proptest::prelude::*;

    fn machine(nodes: usize, cpus: usize) -> Domains {
        let place = |cpu| Place { core: cpu, cache: cpu / cpus, node: cpu / cpus };
        let places: Vec<Place> = (0..nodes * cpus).map(place).collect();
        let row = |a| (0..nodes).map(|b| if a == b { 10 } else { 21 }).collect();
        let slit: Vec<Vec<u32>> = (0..nodes).map(row).collect();
        Domains::new(&places, &slit)
    }

    #[test]
    fn forks_spread_over_nodes_first_and_then_over_their_cpus() {
        let domains = machine(2, 2);
        let mut load = vec![0; 4];
        let order: Vec<usize> = (0..4)
            .map(|_| {
                let cpu = Fair.fork(&domains, &load, 0, &|_| true);
                load[cpu] += 1;
                cpu
            })
            .collect();
        assert_eq!(order, [0, 2, 1, 3]);
    }

    #[test]
    fn who_is_born_does_not_start_on_a_node_that_is_too_far_unless_it_may_run_nowhere_else() {
        let place = |cpu| Place { core: cpu, cache: cpu, node: cpu };
        let places: Vec<Place> = (0..3).map(place).collect();
        let slit = [vec![10, 21, 31], vec![21, 10, 31], vec![31, 31, 10]];
        let domains = Domains::new(&places, &slit);
        assert_eq!(Fair.fork(&domains, &[2, 1, 0], 0, &|_| true), 1);
        assert_eq!(Fair.fork(&domains, &[1, 1, 2], 2, &|_| true), 2);
        assert_eq!(Fair.fork(&domains, &[1, 1, 2], 0, &|cpu| cpu == 2), 2);
    }

    #[test]
    fn one_task_on_each_cpu_is_balanced_and_four_on_one_are_not() {
        let domains = machine(2, 2);
        assert_eq!(Fair.balance(&domains, &mut [1, 1, 1, 1]), []);
        let mut load = [4, 0, 0, 0];
        let pulls = Fair.balance(&domains, &mut load);
        assert_eq!(load, [1, 1, 1, 1], "{pulls:?}");
    }

    #[test]
    fn an_idle_cpu_helps_a_crowded_node_even_if_the_nodes_are_nearly_even() {
        let domains = machine(2, 12);
        let mut load = [1; 24];
        // 13 tasks on 12 CPUs, 11 on the others: 8 % are within the 25 that nodes may differ.
        (load[0], load[12]) = (2, 0);
        assert_eq!(Fair.balance(&domains, &mut load), [(0, 12)]);
    }

    #[test]
    fn of_6_12_an_idle_node_leaves_a_pair_where_it_is() {
        let domains = machine(2, 4);
        let after = |mut load: [u32; 8]| {
            Fair6.balance(&domains, &mut load);
            [load[..4].iter().sum::<u32>(), load[4..].iter().sum()]
        };
        assert_eq!(after([1, 1, 0, 0, 0, 0, 0, 0]), [2, 0]);
        // Of more it takes the half; so does one that runs something, and one beside a crowd.
        assert_eq!(after([1, 1, 1, 1, 0, 0, 0, 0]), [2, 2]);
        assert_eq!(after([1, 1, 1, 0, 1, 0, 0, 0]), [2, 2]);
        assert_eq!(after([2, 2, 1, 1, 0, 0, 0, 0]), [3, 3]);
        assert_eq!(Fair.balance(&domains, &mut [1, 1, 0, 0, 0, 0, 0, 0]), [(0, 4)]);
    }

    #[test]
    fn of_6_12_nodes_are_evened_from_a_sixth_more_on() {
        let domains = machine(2, 6);
        // 12 tasks beside 10: 20 % more, where an older kernel leaves it at 25.
        let load = [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1];
        assert_eq!(Fair6.balance(&domains, &mut load.clone()), [(0, 10)]);
        assert_eq!(Fair.balance(&domains, &mut load.clone()), []);
    }

    #[test]
    fn of_6_12_each_cpu_of_a_node_has_the_surplus_in_turn() {
        let domains = machine(2, 4);
        let mut load = vec![1, 2, 1, 1, 1, 1, 1, 1];
        let mut had = Vec::new();
        for round in 0..20 {
            for (from, to) in Fair6.rotate(&domains, &load, round) {
                (load[from], load[to]) = (load[from] - 1, load[to] + 1);
                had.push(to);
            }
        }
        assert_eq!(had, [2, 3, 0, 1]);
        assert_eq!(Fair.rotate(&domains, &load, 0), []);
        assert_eq!(Fair6.rotate(&domains, &[2; 8], 0), [], "all have as many");
    }

    /// Six threads on four CPUs: a third of them waits, and each as long as any other.
    #[test]
    fn of_6_12_each_cpu_has_one_of_two_surplus_tasks_as_often() {
        for first in [[2, 2, 1, 1], [1, 2, 1, 2], [2, 1, 1, 2], [1, 1, 2, 2]] {
            let domains = machine(1, 4);
            let mut load = first.to_vec();
            let mut had = [0; 4];
            for round in 0..400 * EXCHANGE_ROUNDS {
                for (from, to) in Fair6.rotate(&domains, &load, round) {
                    (load[from], load[to]) = (load[from] - 1, load[to] + 1);
                    (0..4).for_each(|cpu| had[cpu] += u32::from(load[cpu] == 2));
                }
            }
            assert!(had.iter().all(|had| (195..=205).contains(had)), "{first:?}: {had:?}");
        }
    }

    #[test]
    fn a_woken_task_stays_with_its_cache_if_it_can() {
        let domains = machine(2, 2);
        assert_eq!(Fair.wake(&domains, &[0, 0, 0, 0], 1, &|_| true), 1);
        assert_eq!(Fair.wake(&domains, &[0, 1, 0, 0], 1, &|_| true), 0);
        // Its node is full: it waits where it was rather than leave its cache.
        assert_eq!(Fair.wake(&domains, &[1, 1, 0, 0], 1, &|_| true), 1);
        assert_eq!(Fair.wake(&domains, &[1, 1, 0, 0], 1, &|cpu| cpu > 1), 2);
    }

    #[test]
    fn a_cpu_about_to_idle_takes_from_its_own_node_first() {
        let domains = machine(2, 2);
        assert_eq!(Fair.newidle(&domains, &[0, 2, 3, 0], 0), Some(1));
        assert_eq!(Fair.newidle(&domains, &[0, 1, 3, 0], 0), Some(2));
        assert_eq!(Fair.newidle(&domains, &[0, 1, 1, 1], 0), None);
    }

    proptest! {
        /// Balancing neither makes nor loses tasks, and ends: balancing its result again changes
        /// nothing that it would then undo.
        #[test]
        fn balancing_conserves_tasks_and_leaves_no_cpu_idle_beside_a_queue(
            load in prop::collection::vec(0u32..5, 8)
        ) {
            let domains = machine(2, 4);
            let mut after = load.clone();
            for _ in 0..3 {
                Fair.balance(&domains, &mut after);
            }
            prop_assert_eq!(after.iter().sum::<u32>(), load.iter().sum::<u32>());
            for node in 0..2 {
                let cpus = &after[node * 4..node * 4 + 4];
                let (least, most) = (cpus.iter().min().unwrap(), cpus.iter().max().unwrap());
                prop_assert!(most - least <= 1 || *least > 0, "{after:?}");
            }
        }
    }
}
