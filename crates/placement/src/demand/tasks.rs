//! The tasks of a demand, and where each may go.

use std::collections::BTreeMap;

use numaherd_model::{CpuSet, Node, NodeSet, Snapshot};

use super::pools::{PoolOf, Pools, some_of_each};
use super::{Amounts, DemandTask};

/// What decides where a task may go: its owner's CPUs, the node that it is fixed on, and the nodes that its memory may
/// be on, with its own if that is none of them.
type Key<'a> = (&'a CpuSet, Option<usize>, Option<(&'a NodeSet, usize)>);

/// The tasks, their distinct masks, and what room nodes have for those of a mask that leaves out some of a node's CPUs.
pub fn of(snapshot: &Snapshot) -> (Vec<DemandTask>, Vec<Vec<CpuSet>>, Pools) {
    let nodes = &snapshot.topology.nodes;
    let mut node_of: Vec<Option<usize>> = Vec::new();
    for (n, cpu) in
        nodes.iter().enumerate().flat_map(|(n, node)| node.cpus.iter().map(move |c| (n, c)))
    {
        let cpu = cpu.0 as usize;
        node_of.resize(node_of.len().max(cpu + 1), None);
        node_of[cpu] = Some(n);
    }
    let mut mask_of: BTreeMap<Key<'_>, (usize, bool, PoolOf)> = BTreeMap::new();
    let mut pool_of: BTreeMap<CpuSet, PoolOf> = BTreeMap::new();
    let mut pools = Vec::new();
    let mut masks = Vec::new();
    let mut tasks = Vec::with_capacity(snapshot.tasks.len());
    for task in &snapshot.tasks {
        let home =
            task.home.and_then(|home| nodes.binary_search_by_key(&home, |node| node.id).ok());
        let runs_on = || node_of.get(task.last_cpu.0 as usize).copied().flatten();
        let now = home.or_else(runs_on).unwrap_or(0);
        let apart = task.is_apart(&snapshot.isolated);
        // Over CPUs set apart the kernel balances nothing: who was given several stays where it was put.
        let stays = apart
            && nodes
                .get(now)
                .is_some_and(|node| !node.cpus.intersection(&task.cpus_owner).is_empty());
        let only = (task.fixed || stays).then_some(now);
        let mems = snapshot.mems_allowed_of(task.process).map(|mems| (mems, now));
        let (mask, has_choice, pool) =
            *mask_of.entry((&task.cpus_owner, only, mems)).or_insert_with(|| {
                let open = snapshot.open_to(task);
                let mut cpus = mask(snapshot, &open, only);
                let pool = *pool_of.entry(open).or_insert_with_key(|open| {
                    pools.push(some_of_each(snapshot, open)?);
                    Some(pools.len() - 1)
                });
                let has_choice = cpus.iter().filter(|cpus| !cpus.is_empty()).count() > 1;
                if let Some((mems, now)) = mems {
                    keep_beside(mems, now, nodes, &mut cpus);
                }
                masks.push(cpus);
                (masks.len() - 1, has_choice, pool)
            });
        tasks.push(DemandTask {
            id: task.id,
            busy: task.claims_cpu(),
            claims_cpu: task.claims_cpu() && !apart,
            evidence: task.fault_pages(),
            mask,
            pool,
            has_choice,
            now,
            placed: task.home.is_some(),
            tied: false,
            traffic: 0,
            bundles: Amounts::new(),
        });
    }
    let pools = Pools::new(pools, &tasks);
    (tasks, masks, pools)
}

/// Of the CPUs that a task may be given, those of each node; a fixed task's only on the node where it is.
fn mask(snapshot: &Snapshot, cpus: &CpuSet, only: Option<usize>) -> Vec<CpuSet> {
    let of = |(n, node): (usize, &Node)| match only {
        Some(only) if only != n => CpuSet::new(),
        _ => node.cpus.intersection(cpus),
    };
    snapshot.topology.nodes.iter().enumerate().map(of).collect()
}

/// Leaves out nodes that the memory of a task may not be on, where it has CPUs on others: all of its memory would be
/// remote there for good. The node where it is stays in: there may be no room for it elsewhere.
fn keep_beside(mems: &NodeSet, now: usize, nodes: &[Node], cpus: &mut [CpuSet]) {
    let beside: Vec<bool> = nodes.iter().map(|node| mems.contains(node.id)).collect();
    if cpus.iter().zip(&beside).any(|(cpus, beside)| *beside && !cpus.is_empty()) {
        let away = cpus.iter_mut().enumerate().filter(|(n, _)| !beside[*n] && *n != now);
        away.for_each(|(_, cpus)| *cpus = CpuSet::new());
    }
}
