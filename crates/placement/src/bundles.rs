//! Who uses which memory: regions taken together by their users, with each user's weight.
//!
//! A region's few faults are a small sample of who uses it. Where the tasks of a process share
//! its memory, they are spread over its busy tasks, as far as it is shared; a process that shares
//! everything is one bundle.

use numaherd_model::{Nanos, ProcessId, Region, Snapshot, TaskId};

use crate::demand::{Bundle, CLAIMS_A_CPU, DemandTask, SHARE};
use crate::objects::twins;

/// A user with fewer faults in a region than 1 in this many of its heaviest user's is left out.
const NEGLIGIBLE: u64 = 24;

/// Pairs of touches from which a process's sharing is known; until then a process with several
/// busy tasks is not known well enough to be placed. Guessed.
pub const MIN_PAIRS: u64 = 4;

/// Sharing below this, per mille, is taken for none: slices meet in a region here and there.
const LITTLE_SHARED_PERMILLE: u64 = 150;

/// Loss that SLIT distance stands for: at distance 20 a memory-bound task is taken to lose half
/// its time. Guessed; it only weighs moving pages against leaving them.
const LOSS_AT_TEN: u64 = SHARE / 2;

/// Bounds on how long a task is taken to live on: as long as it has lived (Lindy), within
/// these.
const HORIZON: (Nanos, Nanos) = (Nanos(1_000_000_000), Nanos(60_000_000_000));

/// Busy tasks of a process beyond which its memory is taken to be shared wholly or not at all.
const MANY_MATES: usize = 64;

/// How much of its memory the busy tasks of a process share, per mille; `None` where that is
/// not known yet.
///
/// Of two touches of a page that `k` tasks share evenly, `(k - 1) / k` are by different ones:
/// 4 tasks and 18 switches in 32 pairs are 18/32 × 4/3 = 750 ‰.
#[must_use]
pub fn shared_permille(snapshot: &Snapshot, process: ProcessId, busy: u64) -> Option<u64> {
    if busy < 2 {
        return Some(0);
    }
    let found = snapshot.sharing.binary_search_by_key(&process, |sharing| sharing.process);
    let sharing = &snapshot.sharing[found.ok()?];
    if sharing.samples < MIN_PAIRS {
        return None;
    }
    let permille = sharing.switches * 1000 * busy / (sharing.samples * (busy - 1));
    Some(if permille < LITTLE_SHARED_PERMILLE { 0 } else { permille.min(1000) })
}

/// A process's busy tasks, by index, and how much of its memory they share.
struct Mates {
    process: ProcessId,
    permille: u64,
    tasks: Vec<usize>,
}

/// Every process with busy tasks, ascending.
fn mates(snapshot: &Snapshot) -> Vec<Mates> {
    let tasks = snapshot.tasks.iter().enumerate();
    let busy = tasks.filter(|(_, task)| task.busy_permille >= CLAIMS_A_CPU);
    let mut busy: Vec<(ProcessId, usize)> = busy.map(|(i, task)| (task.process, i)).collect();
    busy.sort_unstable();
    let of_process = busy.chunk_by(|a, b| a.0 == b.0);
    let with = |together: &[(ProcessId, usize)]| {
        let process = together[0].0;
        let shared = shared_permille(snapshot, process, together.len() as u64).unwrap_or(0);
        let few = together.len() <= MANY_MATES;
        let permille = if few { shared } else { (shared + 500) / 1000 * 1000 };
        Mates { process, permille, tasks: together.iter().map(|(_, task)| *task).collect() }
    };
    of_process.map(with).collect()
}

/// Regions with the same users, being put together: each user's faults in them.
#[derive(Default)]
struct Group {
    users: Vec<(usize, u64)>,
    regions: Vec<usize>,
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
    regions: Vec<usize>,
}

/// Takes regions with the same users together. A user's faults are those seen, less what is
/// shared; as far as a process is shared, all its busy tasks use its memory alike.
fn groups(snapshot: &Snapshot) -> Vec<Group> {
    let all_mates = mates(snapshot);
    let twins = twins(snapshot);
    let mut is_twin = vec![false; if twins.is_empty() { 0 } else { snapshot.regions.len() }];
    twins.iter().flatten().for_each(|&r| is_twin[r] = true);
    // Regions are ascending by process, too.
    let mut next = all_mates.as_slice();
    let mut known = Indices { snapshot, last: 0 };
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
        if let Some(mates) = mates.filter(|mates| mates.permille == 1000) {
            let faults = region.users.iter().map(|user| user.faults).sum::<u64>();
            let mut last = commons.iter_mut().rev().take(2);
            let same = |c: &&mut Commons| c.mates.process == mates.process && c.stays == stays;
            match last.find(same) {
                Some(common) => {
                    common.faults += faults;
                    common.regions.push(r);
                }
                None => commons.push(Commons { mates, stays, faults, regions: vec![r] }),
            }
            continue;
        }
        let users = users_of(region, &mut known, mates);
        if !users.is_empty() {
            apart.push(Group { users, regions: vec![r], stays });
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
    let mut users: Vec<(usize, u64)> = Vec::new();
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

/// A region's users, by index and ascending, with their faults.
fn users_of(region: &Region, known: &mut Indices, mates: Option<&Mates>) -> Vec<(usize, u64)> {
    let most = region.users.iter().map(|user| user.faults).max().unwrap_or(0);
    let permille = mates.map_or(0, |mates| mates.permille);
    let in_earnest = region.users.iter().filter(|user| user.faults * NEGLIGIBLE >= most);
    let seen = in_earnest
        .filter_map(|user| Some((known.of(user.task)?, user.faults * (1000 - permille) / 1000)));
    let mut users: Vec<(usize, u64)> = seen.collect();
    if let Some(mates) = mates.filter(|mates| mates.permille > 0) {
        let whole: u64 = region.users.iter().map(|user| user.faults).sum();
        let each = (whole * permille / 1000).div_ceil(mates.tasks.len() as u64);
        for &mate in &mates.tasks {
            match users.binary_search_by_key(&mate, |user| user.0) {
                Ok(i) => users[i].1 += each,
                Err(i) => users.insert(i, (mate, each)),
            }
        }
    }
    let most = users.iter().map(|user| user.1).max().unwrap_or(0);
    users.retain(|user| user.1 > 0 && user.1 * NEGLIGIBLE >= most);
    users
}

/// From a task's id to its index. Regions of one process follow each other, so whoever is asked
/// for is mostly near the one before.
struct Indices<'a> {
    snapshot: &'a Snapshot,
    last: usize,
}

impl Indices<'_> {
    fn of(&mut self, id: TaskId) -> Option<usize> {
        let tasks = &self.snapshot.tasks;
        let near = (self.last..self.last + 2).find(|&i| tasks.get(i).is_some_and(|t| t.id == id));
        let found = near.or_else(|| tasks.binary_search_by_key(&id, |task| task.id).ok())?;
        self.last = found;
        Some(found)
    }
}

/// Gives each task its weights. Fills `tasks[..].bundles`, and the evidence of tasks that share
/// what others were seen to use.
pub fn bundles(snapshot: &Snapshot, tasks: &mut [DemandTask]) -> Vec<Bundle> {
    let groups = groups(snapshot);
    let mut all_faults = vec![0u64; tasks.len()];
    for (task, faults) in groups.iter().flat_map(|group| &group.users) {
        all_faults[*task] += faults;
    }
    for (task, faults) in tasks.iter_mut().zip(&all_faults) {
        task.evidence = task.evidence.max(*faults);
    }
    let bundle = |(b, group): (usize, Group)| {
        let Group { mut users, regions, stays } = group;
        let mut age = Nanos(0);
        for (task, faults) in &mut users {
            let seen = &snapshot.tasks[*task];
            age = age.max(seen.age);
            let busy = u64::from(seen.busy_permille.min(1000));
            *faults = SHARE * busy / 1000 * *faults / all_faults[*task].max(1);
            tasks[*task].bundles.push((b, *faults));
        }
        let horizon = age.clamp(HORIZON.0, HORIZON.1);
        Bundle {
            // A second lost per second is a whole task at distance 10 / LOSS_AT_TEN.
            page_cost: snapshot.costs.page_move.0 * (10 * SHARE * SHARE / LOSS_AT_TEN) / horizon.0,
            pages: pages_of(snapshot, &regions),
            users,
            regions,
            stays,
        }
    };
    groups.into_iter().enumerate().map(bundle).collect()
}

/// Known pages of some regions per node, by index.
fn pages_of(snapshot: &Snapshot, regions: &[usize]) -> Vec<(usize, u64)> {
    let nodes = &snapshot.topology.nodes;
    let mut pages: Vec<(usize, u64)> = Vec::new();
    for (node, count) in regions.iter().flat_map(|&r| &snapshot.regions[r].pages) {
        let Ok(node) = nodes.binary_search_by_key(node, |n| n.id) else { continue };
        match pages.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(i) => pages[i].1 += count.0,
            Err(i) => pages.insert(i, (node, count.0)),
        }
    }
    pages
}
