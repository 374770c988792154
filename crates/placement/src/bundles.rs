//! Who uses which memory: regions taken together by their users, with each user's weight.
//!
//! A region's few faults are a small sample of who uses it. Where the tasks of a process share
//! its memory, they are spread over its busy tasks, as far as it is shared; a process that shares
//! everything is one bundle. Where those tasks fall into teams that share nothing with each other
//! ([`crate::teams`]), they are spread over the region's team.

use std::borrow::Cow;
use std::collections::BTreeSet;

use numaherd_model::{Nanos, ProcessId, Region, RegionUse, Snapshot, Task, TaskId};
use smallvec::{SmallVec, smallvec};

use crate::demand::{Amounts, Bundle, DemandTask, Nodes, Regions, SHARE, SLIT_UNIT};
use crate::horizon::Horizons;
use crate::leaders;
use crate::objects::twins;
use crate::part::{self, Part};
use crate::strangers::{self, Stranger};
use crate::teams;

/// A user with fewer faults in a region than 1 in this many of its heaviest user's is left out.
const NEGLIGIBLE: u64 = 24;

/// Pairs of touches from which a process's sharing is known; until then a process with several
/// busy tasks is not known well enough to be placed. Guessed.
pub const MIN_PAIRS: u64 = 4;

/// Pairs from which what they say counts also where all tasks are on one node. Guessed: two standard deviations
/// of a half are 180 ‰.
const MANY_PAIRS: u64 = 32;

/// Sharing below this, per mille, is taken for none: slices meet in a region here and there.
const LITTLE_SHARED_PERMILLE: u64 = 150;

/// What a second lost in each second weighs: at SLIT 20 a memory-bound task is taken to lose half of its time.
/// Guessed; it only weighs moving pages against leaving them.
pub const WHOLE_TASK: u64 = 2 * SHARE * 10 * SLIT_UNIT;

/// Until then a busy task is taken to be wholly so. Guessed: as long as looks are quick.
const YOUNG: Nanos = Nanos(1_000_000_000);

/// Busy tasks of a process beyond which its memory is taken to be shared wholly or not at all.
const MANY_MATES: usize = 64;

/// A busy task's process, and its index.
pub type Busy = (ProcessId, usize);

/// How much of its memory the busy tasks of a process share, per mille; `None` where that is
/// not known yet. Where not many pairs tell that it is nothing, and all of them have been placed on one node, it
/// is all of it: that is where all of their memory belongs, whoever uses what.
///
/// Of two touches of a page that `k` tasks share evenly, `(k - 1) / k` are by different ones:
/// 4 tasks and 18 switches in 32 pairs are 18/32 × 4/3 = 750 ‰.
#[must_use]
pub fn shared_permille(snapshot: &Snapshot, together: &[Busy]) -> Option<u64> {
    let busy = together.len() as u64;
    if busy < 2 {
        return Some(0);
    }
    let sharing = snapshot.sharing_of(together[0].0);
    let told = sharing.filter(|sharing| sharing.samples >= MIN_PAIRS).map(|sharing| {
        let permille = sharing.switches * 1000 * busy / (sharing.samples * (busy - 1));
        if permille < LITTLE_SHARED_PERMILLE { 0 } else { permille.min(1000) }
    });
    let is_part = told.is_some_and(|told| (1..1000).contains(&told));
    if is_part && leaders::lead(snapshot, together) {
        return Some(1000);
    }
    let is_sure = sharing.is_some_and(|known| known.samples >= MANY_PAIRS) && told == Some(0);
    if !is_sure && are_on_one_node(snapshot, together) { Some(1000) } else { told }
}

/// Whether all of these have been placed, and on one node.
fn are_on_one_node(snapshot: &Snapshot, together: &[Busy]) -> bool {
    let mut homes = together.iter().map(|&(_, task)| snapshot.tasks[task].home);
    let first = homes.next().flatten();
    first.is_some() && homes.all(|home| home == first)
}

/// A process's busy tasks, by index, and how much of its memory they share.
struct Mates {
    process: ProcessId,
    permille: u64,
    tasks: Vec<usize>,
    /// Where that surely is a part: each region tells whether it is of it.
    part: Option<Part>,
    /// The team of each, where there are several.
    teams: Option<Vec<Option<usize>>>,
}

impl Mates {
    /// Tells teams apart. Where those share all they have, as many touches are by different tasks as
    /// team by team: of `n` tasks in `t` teams, `(n - t) / n`.
    fn split(&mut self, snapshot: &Snapshot) {
        let Some(seen) = self.seen(snapshot) else { return };
        let Some(mut teams) = seen.teams() else { return };
        let node = |&task: &usize| snapshot.tasks[task].node(&snapshot.topology);
        teams::lagging(&mut teams, &self.tasks.iter().map(node).collect::<SmallVec<[_; 8]>>());
        self.teams = Some(teams);
        let (all, cuts) = (self.tasks.len() as u64, self.count_teams() as u64);
        let whole = self.permille * (all - 1);
        self.permille = whole.checked_div(all - cuts).unwrap_or(0).min(1000);
    }

    /// Which of them were seen together; `None` where there are too few or too many, or nothing is shared.
    fn seen(&self, snapshot: &Snapshot) -> Option<teams::Seen> {
        let count = self.tasks.len();
        if self.permille == 0 || !(4..=MANY_MATES).contains(&count) {
            return None;
        }
        let ids: SmallVec<[TaskId; 8]> =
            self.tasks.iter().map(|&task| snapshot.tasks[task].id).collect();
        let mut seen = teams::Seen::new(count);
        let mut users = Vec::with_capacity(count);
        for region in snapshot.regions_of(self.process) {
            // Both are ascending.
            let mut mates = ids.iter().enumerate().peekable();
            let mate = |user: &RegionUse| {
                while mates.next_if(|(_, id)| **id < user.task).is_some() {}
                let (mate, _) = mates.next_if(|(_, id)| **id == user.task)?;
                Some((mate, user.faults))
            };
            users.clear();
            users.extend(in_earnest(region).filter_map(mate));
            seen.region(&users);
        }
        Some(seen)
    }

    /// How many tasks share what is shared, in the mean of the teams.
    fn in_a_team(&self) -> u64 {
        (self.tasks.len() / self.count_teams()) as u64
    }

    fn count_teams(&self) -> usize {
        self.teams.iter().flatten().flatten().max().map_or(1, |last| last + 1)
    }

    /// The tasks that share a region with these users: those of their team, if they are of one.
    fn of_region(&self, users: &Amounts) -> Cow<'_, [usize]> {
        let all = || Cow::Borrowed(self.tasks.as_slice());
        let Some(teams) = &self.teams else { return all() };
        let team =
            |(task, _): &(usize, u64)| self.tasks.binary_search(task).ok().and_then(|i| teams[i]);
        let mut seen = users.iter().filter_map(team);
        let Some(first) = seen.next() else { return all() };
        let one = seen.all(|team| team == first);
        let mates = self.tasks.iter().zip(teams).filter(|(_, team)| !one || **team == Some(first));
        mates.map(|(task, _)| *task).collect()
    }
}

/// All busy tasks, by process and then by index.
#[must_use]
pub fn busy(snapshot: &Snapshot) -> Vec<Busy> {
    let tasks = snapshot.tasks.iter().enumerate();
    let busy = tasks.filter(|(_, task)| task.claims_cpu());
    let mut busy: Vec<Busy> = busy.map(|(i, task)| (task.process, i)).collect();
    busy.sort_unstable();
    busy
}

/// Each process's of tasks in that order.
pub fn by_process(busy: &[Busy]) -> impl Iterator<Item = &[Busy]> {
    busy.chunk_by(|a, b| a.0 == b.0)
}

/// Which of a process's busy tasks this is.
pub fn mate(snapshot: &Snapshot, together: &[Busy], task: TaskId) -> Option<usize> {
    together.binary_search_by_key(&task, |&(_, i)| snapshot.tasks[i].id).ok()
}

/// Every process with busy tasks, ascending.
fn mates(snapshot: &Snapshot, tell_teams: bool) -> Vec<Mates> {
    let busy = busy(snapshot);
    let with = |together: &[Busy]| {
        let process = together[0].0;
        let shared = shared_permille(snapshot, together).unwrap_or(0);
        let few = together.len() <= MANY_MATES;
        let permille = if few { shared } else { (shared + 500) / 1000 * 1000 };
        let is_part = few && part::is_part(snapshot, process, permille);
        let tasks = together.iter().map(|(_, task)| *task).collect();
        let is_mate = |user: &RegionUse| mate(snapshot, together, user.task).is_some();
        let mut mates = Mates { process, permille, tasks, part: None, teams: None };
        if tell_teams {
            mates.split(snapshot);
        }
        let regions = is_part.then(|| snapshot.regions_of(process));
        mates.part = regions.map(|own| Part::of(own, mates.permille, mates.in_a_team(), is_mate));
        mates
    };
    by_process(&busy).map(with).collect()
}

/// Whether some process's tasks may fall into teams, and it cannot be told yet.
#[must_use]
pub fn may_be_teams(snapshot: &Snapshot) -> bool {
    let processes = mates(snapshot, false);
    processes.iter().any(|mates| mates.seen(snapshot).is_some_and(|seen| seen.is_open()))
}

/// Regions with the same users, being put together: each user's faults in them.
#[derive(Default)]
struct Group {
    users: Amounts,
    regions: Regions,
    stays: bool,
}

impl Group {
    fn tasks(&self) -> impl Iterator<Item = usize> + '_ {
        self.users.iter().map(|user| user.0)
    }
}

/// What all tasks of a process use alike, of what is moved or of what stays.
struct Commons<'a> {
    mates: &'a Mates,
    stays: bool,
    faults: u64,
    regions: Regions,
}

/// Takes regions with the same users together. A user's faults are those seen, less what is
/// shared; as far as a process is shared, all its busy tasks use its memory alike.
fn groups(snapshot: &Snapshot, tell_teams: bool) -> Vec<Group> {
    let all_mates = mates(snapshot, tell_teams);
    let twins = twins(snapshot);
    let mut is_twin = vec![false; if twins.is_empty() { 0 } else { snapshot.regions.len() }];
    twins.iter().flatten().for_each(|&r| is_twin[r] = true);
    // Regions are ascending by process, too.
    let mut next = all_mates.as_slice();
    let mut known = Indices::new(snapshot);
    let mut apart: Vec<Group> = Vec::new();
    let mut commons: Vec<Commons<'_>> = Vec::new();
    for (r, region) in snapshot.regions.iter().enumerate() {
        while next.first().is_some_and(|mates| mates.process < region.id.process) {
            next = &next[1..];
        }
        let mates = next.first().filter(|mates| mates.process == region.id.process);
        if is_twin.get(r) == Some(&true) {
            continue;
        }
        let stays = region.stays || snapshot.kernel_tiering;
        let is_one = |mates: &&Mates| mates.permille == 1000 && mates.teams.is_none();
        if let Some(mates) = mates.filter(is_one) {
            let faults = region.users.iter().map(|user| user.faults).sum::<u64>();
            let mut last = commons.iter_mut().rev().take(2);
            let same = |c: &&mut Commons| c.mates.process == mates.process && c.stays == stays;
            match last.find(same) {
                Some(common) => {
                    common.faults += faults;
                    common.regions.push(r);
                }
                None => commons.push(Commons { mates, stays, faults, regions: smallvec![r] }),
            }
            continue;
        }
        let users = users_of(region, &mut known, mates);
        if !users.is_empty() {
            apart.push(Group { users, regions: smallvec![r], stays });
        }
    }
    apart.extend(twins.iter().map(|twins| common(snapshot, &mut known, &all_mates, twins)));
    apart.retain(|group| !group.users.is_empty());
    // Equal users become neighbours; the sort is stable, so regions stay ascending.
    apart.sort_by(|a, b| a.stays.cmp(&b.stays).then_with(|| a.tasks().cmp(b.tasks())));
    apart.dedup_by(|next, group| {
        let same = group.stays == next.stays && group.tasks().eq(next.tasks());
        if same {
            group.regions.append(&mut next.regions);
            group.users.iter_mut().zip(&next.users).for_each(|(sum, user)| sum.1 += user.1);
        }
        same
    });
    for Commons { mates, stays, faults, regions } in commons.into_iter().filter(|c| c.faults > 0) {
        let each = faults.div_ceil(mates.tasks.len().max(1) as u64);
        let users = mates.tasks.iter().map(|&task| (task, each)).collect();
        apart.push(Group { users, regions, stays });
    }
    apart
}

/// Regions of several processes that are the same memory: the users of each, and of the pages only
/// those of the region that knows most of them.
fn common(
    snapshot: &Snapshot,
    known: &mut Indices<'_>,
    all_mates: &[Mates],
    twins: &[usize],
) -> Group {
    let mut users = Amounts::new();
    for &r in twins {
        let region = &snapshot.regions[r];
        let found = all_mates.binary_search_by_key(&region.id.process, |mates| mates.process);
        users.extend(users_of(region, known, found.ok().map(|i| &all_mates[i])));
    }
    users.sort_unstable();
    let most = |r: &usize| (snapshot.regions[*r].known_pages(), std::cmp::Reverse(*r));
    let regions = twins.iter().copied().max_by_key(most).into_iter().collect();
    let stays = twins.iter().any(|&r| snapshot.regions[r].stays) || snapshot.kernel_tiering;
    Group { users, regions, stays }
}

/// A region's users but those who hardly use it.
pub fn in_earnest(region: &Region) -> impl Iterator<Item = &RegionUse> {
    let most = region.users.iter().map(|user| user.faults).max().unwrap_or(0);
    region.users.iter().filter(move |user| user.faults * NEGLIGIBLE >= most)
}

/// A region's users, by index and ascending, with their faults.
fn users_of(region: &Region, known: &mut Indices, mates: Option<&Mates>) -> Amounts {
    let seen = in_earnest(region).filter_map(|user| Some((known.of(user.task)?, user.faults)));
    let mut users = Amounts::with_capacity(region.users.len());
    users.extend(seen);
    if let Some(mates) = mates.filter(|mates| mates.permille > 0) {
        let whole: u64 = region.users.iter().map(|user| user.faults).sum();
        let team = mates.of_region(&users);
        let of_part = |part: &Part| {
            // Who only filled it, a moment before the others began, is none of those who might share it.
            let mates = users.iter().filter(|(task, _)| team.binary_search(task).is_ok()).count();
            part.of_region(region, team.len() as u64, mates as u64)
        };
        let permille = mates.part.as_ref().map_or(mates.permille, of_part);
        let each = (whole * permille / 1000).div_ceil(team.len() as u64);
        users.iter_mut().for_each(|user| user.1 = user.1 * (1000 - permille) / 1000);
        // Both are ascending.
        let mut i = 0;
        for &mate in team.iter() {
            i += users[i..].iter().take_while(|user| user.0 < mate).count();
            match users.get_mut(i) {
                Some(user) if user.0 == mate => user.1 += each,
                _ => users.insert(i, (mate, each)),
            }
        }
    }
    let most = users.iter().map(|user| user.1).max().unwrap_or(0);
    users.retain(|user| user.1 > 0 && user.1 * NEGLIGIBLE >= most);
    users
}

/// From a task's id to its index. Regions of one process follow each other, so whoever is asked
/// for is mostly near the one before.
pub struct Indices<'a> {
    snapshot: &'a Snapshot,
    last: usize,
}

impl<'a> Indices<'a> {
    /// Of this snapshot's tasks.
    pub fn new(snapshot: &'a Snapshot) -> Indices<'a> {
        Indices { snapshot, last: 0 }
    }

    /// A task's, if it is there.
    pub fn of(&mut self, id: TaskId) -> Option<usize> {
        let tasks = &self.snapshot.tasks;
        let near = (self.last..self.last + 2).find(|&i| tasks.get(i).is_some_and(|t| t.id == id));
        let found = near.or_else(|| tasks.binary_search_by_key(&id, |task| task.id).ok())?;
        self.last = found;
        Some(found)
    }
}

/// All that a task uses. Who waits for a CPU will use memory as much as it ran; and how busy who has just begun was on
/// average, over a few ticks of the clock, says little: by a difference of a tenth tasks would change places.
fn weight(task: &Task) -> u64 {
    let young = task.age < YOUNG && task.claims_cpu();
    SHARE * if young { 1000 } else { task.usually_wanted_permille() } / 1000
}

/// Gives each task its weights. Fills `tasks[..].bundles`, and the evidence of tasks that share
/// what others were seen to use.
pub fn bundles(snapshot: &Snapshot, tasks: &mut [DemandTask], tell_teams: bool) -> Vec<Bundle> {
    let groups = groups(snapshot, tell_teams);
    let mut all_faults = vec![0u64; tasks.len()];
    for (task, faults) in groups.iter().flat_map(|group| &group.users) {
        all_faults[*task] += faults;
    }
    for (task, faults) in tasks.iter_mut().zip(&all_faults) {
        task.evidence = task.evidence.max(*faults);
    }
    let strangers = strangers::of(snapshot, tasks);
    let horizons = Horizons::new(snapshot);
    let bundle = |(b, group): (usize, Group)| {
        let Group { mut users, regions, stays } = group;
        for (task, faults) in &mut users {
            *faults = weight(&snapshot.tasks[*task]) * *faults / all_faults[*task].max(1);
            tasks[*task].bundles.push((b, *faults));
        }
        let pages = pages_of(snapshot, &regions);
        let (forbidden, nowhere) = forbidden(snapshot, &regions);
        let stays = stays || nowhere;
        Bundle { users, regions, pages, known: 0, page_cost: 0, stays, forbidden }
    };
    let mut bundles: Vec<Bundle> = groups.into_iter().enumerate().map(bundle).collect();
    for Stranger { task, pages } in strangers {
        let weight = weight(&snapshot.tasks[task]);
        tasks[task].bundles.push((bundles.len(), weight));
        bundles.push(Bundle {
            users: smallvec![(task, weight)],
            regions: Regions::new(),
            pages,
            known: 0,
            page_cost: 0,
            stays: false,
            forbidden: Nodes::new(),
        });
    }
    for bundle in &mut bundles {
        bundle.known = bundle.pages.iter().map(|(_, pages)| pages).sum();
        let horizon = horizons.of(&bundle.users);
        bundle.page_cost = snapshot.costs.page_move.0 * WHOLE_TASK / horizon.0;
    }
    bundles
}

/// Nodes that some regions may not be on, by index, and whether those are all that have memory: what several processes
/// map has to be where each of them may have memory.
fn forbidden(snapshot: &Snapshot, regions: &[usize]) -> (Nodes, bool) {
    if snapshot.mems_allowed.is_empty() {
        return (Nodes::new(), false);
    }
    let mappers = |r: &usize| snapshot.mappers(snapshot.regions[*r].id);
    let processes: BTreeSet<ProcessId> = regions.iter().flat_map(mappers).collect();
    let nodes = &snapshot.topology.nodes;
    let takes = |n: &usize| processes.iter().all(|&p| snapshot.allows_memory(p, nodes[*n].id));
    let forbidden: Nodes = (0..nodes.len()).filter(|n| !takes(n)).collect();
    let nowhere = (0..nodes.len()).all(|n| nodes[n].memory.0 == 0 || forbidden.contains(&n));
    (forbidden, nowhere)
}

/// Known pages of some regions per node, by index.
fn pages_of(snapshot: &Snapshot, regions: &[usize]) -> Amounts {
    let nodes = &snapshot.topology.nodes;
    let mut pages = Amounts::new();
    for (node, count) in regions.iter().flat_map(|&r| &snapshot.regions[r].pages) {
        // Mostly nodes are numbered through.
        let through =
            Some(node.0 as usize).filter(|&i| nodes.get(i).is_some_and(|n| n.id == *node));
        let found = || nodes.binary_search_by_key(node, |n| n.id).ok();
        let Some(node) = through.or_else(found) else { continue };
        match pages.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(i) => pages[i].1 += count.0,
            Err(i) => pages.insert(i, (node, count.0)),
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_all_tasks_on_one_node_few_pairs_do_not_matter() {
        let mut scene = numaherd_model::scene::Scene::two_by_four();
        let process = numaherd_model::scene::PROCESS;
        for tid in 1..=2 {
            scene.task(tid, 0, 1000);
            scene.at_home(tid, 0);
        }
        let mut told = |samples, home| {
            scene.shared(samples, 0);
            scene.at_home(2, home);
            shared_permille(&scene.snapshot(), &[(process, 0), (process, 1)])
        };
        assert_eq!([told(0, 0), told(31, 0), told(32, 0)], [Some(1000), Some(1000), Some(0)]);
        assert_eq!([told(0, 1), told(31, 1)], [None, Some(0)]);
    }

    #[test]
    fn who_waits_for_a_cpu_or_has_just_begun_uses_memory_like_who_runs_all_the_time() {
        let mut scene = numaherd_model::scene::Scene::two_by_four();
        scene.task(1, 0, 600);
        let mut weighs = |age, waiting_permille| {
            let task = &mut scene.edit().tasks[0];
            (task.age, task.waiting_permille) = (age, waiting_permille);
            weight(task)
        };
        let old = YOUNG;
        assert_eq!([weighs(old, 0), weighs(old, 300)], [SHARE * 6 / 10, SHARE * 9 / 10]);
        assert_eq!([weighs(old, 700), weighs(Nanos(0), 0)], [SHARE; 2]);
        scene.edit().tasks[0].busy_permille = 100;
        scene.edit().tasks[0].waiting_permille = 0;
        assert_eq!(weight(&scene.snapshot().tasks[0]), SHARE / 10, "it hardly does anything");
    }
}
