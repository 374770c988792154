//! What goes wrong: one random fault at a time, as its owner, its administrator or its hardware
//! would make it.

use numaherd_model::{CpuId, CpuSet};

use crate::kernel::Kernel;

/// Tids that are given out, and given out again.
const TIDS: std::ops::Range<u32> = 1000..1060;

/// Does one thing to the machine; answers what, or nothing if it did not apply.
pub fn make(kernel: &mut Kernel) -> Option<&'static str> {
    match kernel.random.u8(..22) {
        0 => end_thread(kernel),
        1 => end_process(kernel),
        2 => {
            let tgid = any_process(kernel)?;
            kernel.ends_in_move = Some((tgid, tgid));
            Some("a process ends while its pages move")
        }
        3 => reuse_tid(kernel),
        4 => plug(kernel, false),
        5 => plug(kernel, true),
        6 => narrow(kernel),
        7 => {
            let (group, all) = (1 + kernel.random.usize(..2), kernel.possible());
            kernel.confine(group, all);
            Some("a cpuset is widened")
        }
        8 => {
            let (tgid, group) = (any_process(kernel)?, kernel.random.usize(..3));
            kernel.attach(tgid, group);
            Some("a process goes to another group")
        }
        9 => {
            let node = kernel.random.usize(..kernel.free.len());
            kernel.free[node] = kernel.random.u64(..3 * kernel.high);
            Some("others fill a node")
        }
        10 => {
            let node = kernel.random.usize(..kernel.free.len());
            kernel.free[node] = 1 << 18;
            Some("a node is free again")
        }
        11 => fork(kernel),
        12 => {
            let (creator, tid) = (any_task(kernel)?, free_tid(kernel)?);
            kernel.clone_thread(tid, creator);
            Some("a thread is born")
        }
        13 => owner_sets(kernel),
        14 => {
            let tid = any_task(kernel)?;
            let task = kernel.tasks.get_mut(&tid)?;
            task.busy = !task.busy;
            Some("a task falls asleep or wakes")
        }
        15 => {
            let tgid = any_process(kernel)?;
            *kernel.throttled.entry(tgid).or_default() += 1;
            Some("a process runs out of its quota")
        }
        17 => {
            let tgid = any_process(kernel)?;
            if !kernel.hidden.remove(&tgid) {
                kernel.hidden.insert(tgid);
            }
            Some("a process binds its memory, or no longer does")
        }
        18 => {
            let tid = any_task(kernel)?;
            kernel.ends_in_move = Some((kernel.tasks[&tid].tgid, tid));
            Some("a task ends while pages of its process move")
        }
        19 => reuse_pid(kernel),
        16 => {
            let tgid = any_process(kernel)?;
            kernel.watched.insert(tgid);
            Some("a process opens a userfaultfd")
        }
        20 => {
            let tid = any_task(kernel)?;
            let tgid = kernel.tasks[&tid].tgid;
            kernel.execute(tid);
            kernel.allocate(tgid, None, 0, false);
            Some("a thread executes another program")
        }
        _ => {
            let tid = any_task(kernel)?;
            let task = kernel.tasks.get_mut(&tid)?;
            task.real_time = !task.real_time;
            Some("a task becomes a real-time one, or no longer is")
        }
    }
}

fn any_task(kernel: &mut Kernel) -> Option<u32> {
    let tids: Vec<u32> = kernel.tasks.keys().copied().collect();
    (!tids.is_empty()).then(|| tids[kernel.random.usize(..tids.len())])
}

fn any_process(kernel: &mut Kernel) -> Option<u32> {
    let tid = any_task(kernel)?;
    Some(kernel.tasks[&tid].tgid)
}

fn free_tid(kernel: &Kernel) -> Option<u32> {
    TIDS.clone().find(|tid| !kernel.tasks.contains_key(tid))
}

fn end_thread(kernel: &mut Kernel) -> Option<&'static str> {
    let tid = any_task(kernel)?;
    (kernel.tasks[&tid].tgid != tid).then(|| kernel.end(tid))?;
    Some("a thread ends")
}

/// The last two processes stay, or there would be nobody to look after.
fn end_process(kernel: &mut Kernel) -> Option<&'static str> {
    let tgid = any_process(kernel)?;
    (kernel.memory.len() > 2).then(|| kernel.end(tgid))?;
    Some("a process ends")
}

fn reuse_tid(kernel: &mut Kernel) -> Option<&'static str> {
    let tid = any_task(kernel)?;
    let tgid = kernel.tasks[&tid].tgid;
    if tid != tgid {
        kernel.end(tid);
        kernel.now += 2 * crate::kernel::TICK_NS;
        kernel.clone_thread(tid, tgid);
        // Its new owner wants it elsewhere.
        let cpus = some_cpus(kernel);
        kernel.owner_sets(tid, &cpus);
        kernel.mixed.insert(tgid);
        return Some("a tid is used again");
    }
    None
}

/// A process ends, and another gets its pid.
pub fn reuse_pid(kernel: &mut Kernel) -> Option<&'static str> {
    let tgid = any_process(kernel)?;
    (kernel.memory.len() > 2).then(|| kernel.end(tgid))?;
    kernel.now += 2 * crate::kernel::TICK_NS;
    kernel.marked.remove(&tgid);
    kernel.spawn(tgid, None, 0);
    kernel.tasks.get_mut(&tgid)?.stranger = true;
    let cpus = some_cpus(kernel);
    kernel.owner_sets(tgid, &cpus);
    Some("a pid is used again")
}

fn plug(kernel: &mut Kernel, online: bool) -> Option<&'static str> {
    let others = kernel.possible().difference(&kernel.online);
    let cpus = if online { others } else { kernel.online.clone() };
    let cpus: Vec<CpuId> = cpus.iter().collect();
    if cpus.is_empty() || !online && cpus.len() < 3 {
        return None;
    }
    let cpu = cpus[kernel.random.usize(..cpus.len())];
    kernel.plug(cpu, online);
    Some(if online { "a CPU comes back" } else { "a CPU goes offline" })
}

fn narrow(kernel: &mut Kernel) -> Option<&'static str> {
    let group = 1 + kernel.random.usize(..2);
    let cpus = some_cpus(kernel);
    kernel.confine(group, cpus);
    Some("a cpuset is narrowed")
}

fn fork(kernel: &mut Kernel) -> Option<&'static str> {
    let (parent, pid) = (any_task(kernel)?, free_tid(kernel)?);
    kernel.spawn(pid, Some(parent), 0);
    let node = kernel.random.u32(..kernel.nodes);
    for _ in 0..kernel.random.usize(1..4) {
        kernel.allocate(pid, None, node, false);
    }
    Some("a process forks")
}

fn owner_sets(kernel: &mut Kernel) -> Option<&'static str> {
    // All threads alike: which of several masks of a process a newborn had is nowhere to be read.
    let tgid = any_process(kernel)?;
    let cpus = some_cpus(kernel);
    let threads: Vec<u32> =
        kernel.tasks.iter().filter(|(_, task)| task.tgid == tgid).map(|(tid, _)| *tid).collect();
    threads.into_iter().for_each(|tid| kernel.owner_sets(tid, &cpus));
    Some("an owner sets an affinity")
}

/// CPUs of more than one node, so that nobody can take them for a node's.
fn some_cpus(kernel: &mut Kernel) -> CpuSet {
    let all: Vec<CpuId> = kernel.possible().iter().collect();
    let mut cpus = CpuSet::new();
    let mut nodes = std::collections::BTreeSet::new();
    while nodes.len() < 2 {
        let cpu = all[kernel.random.usize(..all.len())];
        cpus.insert(cpu);
        nodes.insert(kernel.node_of(cpu));
    }
    cpus
}
