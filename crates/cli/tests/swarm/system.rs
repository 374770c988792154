//! The made-up kernel as what the loop, its undoing and its fault stream talk to.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::rc::Rc;

use numaherd_linux::ReadError;
use numaherd_linux::memory::maps::{AnonymousRange, ObjectRange};
use numaherd_linux::memory::numa_maps::Mapping;
use numaherd_linux::memory::residence::Unseen;
use numaherd_linux::process::{SchedStat, TaskStat};
use numaherd_linux::respect::{Coverage, Quota, Quotas};
use numaherd_linux::sys::SysError;
use numaherd_linux::sys::pages::PageStatus;
use numaherd_linux::system::{Lot, Machine, Memory, Tasks};
use numaherd_model::{
    Birth, Bytes, CpuId, CpuSet, FaultFlags, FaultSource, HintingFault, Nanos, NodeId, NodeSet,
    NodeState, Pages, TaskId, Topology,
};

use crate::kernel::{Kernel, PAGE_BYTES, PAGES};

/// The kernel, shared with whoever makes trouble.
#[derive(Clone)]
pub struct Shared(pub Rc<RefCell<Kernel>>);

fn gone(call: &'static str, tid: u32) -> SysError {
    SysError::Gone { call, tid }
}

fn refused(call: &'static str, kind: ErrorKind) -> SysError {
    SysError::Refused { call, source: io::Error::from(kind) }
}

impl Tasks for Shared {
    fn stat(&mut self, tgid: u32, tid: u32) -> Result<Option<TaskStat>, ReadError> {
        let kernel = self.0.borrow();
        let task = kernel.tasks.get(&tid).filter(|task| task.tgid == tgid);
        Ok(task.map(|task| TaskStat {
            id: TaskId { tid, start: task.start },
            comm: "load".into(),
            state: if task.busy { 'R' } else { 'S' },
            ppid: task.parent,
            cpu_ticks: 0,
            kernel_ticks: 0,
            last_cpu: task.last_cpu,
            is_kernels: false,
            is_real_time: task.real_time,
            is_by_deadline: false,
            program: Some((4096, task.program)),
            is_exiting: false,
        }))
    }

    fn schedstat(&mut self, _: u32, tid: u32) -> Result<Option<SchedStat>, ReadError> {
        let kernel = self.0.borrow();
        let stat = |run| SchedStat { run_time: Nanos(run), wait_time: Nanos(0), slices: 0 };
        Ok(kernel.tasks.get(&tid).map(|task| stat(task.run_ns)))
    }

    fn threads(&mut self, tgid: u32) -> Result<Option<Vec<u32>>, ReadError> {
        let kernel = self.0.borrow();
        let threads = kernel.tasks.iter().filter(|(_, task)| task.tgid == tgid);
        let threads: Vec<u32> = threads.map(|(tid, _)| *tid).collect();
        Ok((!threads.is_empty()).then_some(threads))
    }

    fn tree(&mut self, tgid: u32) -> Result<Vec<u32>, ReadError> {
        let mut tree = vec![tgid];
        let mut next = 0;
        while let Some(&parent) = tree.get(next) {
            tree.extend(self.children(&[parent])?);
            next += 1;
        }
        tree.sort_unstable();
        Ok(tree)
    }

    fn children(&mut self, of: &[u32]) -> Result<Vec<u32>, ReadError> {
        let kernel = self.0.borrow();
        let born = |(tid, task): &(&u32, &crate::kernel::FakeTask)| {
            of.contains(&task.parent) && **tid == task.tgid
        };
        Ok(kernel.tasks.iter().filter(born).map(|(tid, _)| *tid).collect())
    }

    /// The kernel would have to go through all pids to give out a lower one.
    fn newest_pid(&mut self) -> Option<u32> {
        let mut kernel = self.0.borrow_mut();
        let again = std::mem::take(&mut kernel.newest.1);
        (!again).then_some(kernel.newest.0)
    }

    fn processes(&mut self) -> Result<Vec<u32>, ReadError> {
        let kernel = self.0.borrow();
        Ok(kernel.tasks.iter().filter(|(tid, t)| **tid == t.tgid).map(|(tid, _)| *tid).collect())
    }

    fn command_line(&mut self, _: u32) -> Option<Vec<u8>> {
        None
    }

    fn has_mark(&mut self, tgid: u32, _: &str) -> Result<Option<bool>, ReadError> {
        let kernel = self.0.borrow();
        Ok(kernel.tasks.contains_key(&tgid).then(|| kernel.marked.contains(&tgid)))
    }

    fn affinity(&mut self, tid: u32) -> Result<CpuSet, SysError> {
        self.0.borrow().affinity(tid).ok_or_else(|| gone("sched_getaffinity", tid))
    }

    fn mask(&mut self, _: u32, tid: u32) -> Option<CpuSet> {
        Some(self.0.borrow().tasks.get(&tid)?.real.cpus.clone())
    }

    fn set_affinity(&mut self, tid: u32, cpus: &CpuSet) -> Result<(), SysError> {
        let kernel = &mut *self.0.borrow_mut();
        if !kernel.may_act() {
            return Err(refused("sched_setaffinity", ErrorKind::Other));
        }
        if kernel.untouchable == Some(tid) {
            return Err(refused("sched_setaffinity", ErrorKind::PermissionDenied));
        }
        let group = kernel.tasks.get(&tid).map(|task| task.group);
        let cpuset = kernel.cpuset(group.ok_or_else(|| gone("sched_setaffinity", tid))?);
        let (online, kernel_possible) = (kernel.online.clone(), kernel.possible());
        let undoing = kernel.undoing;
        let task = kernel.tasks.get_mut(&tid).ok_or_else(|| gone("sched_setaffinity", tid))?;
        kernel.strangers_touched += u64::from(task.stranger && !undoing);
        // What of an owner's mask lies outside the cpuset is nowhere to be read, nor whether there is
        // one where all of the cpuset is allowed.
        let hidden = |set: &CpuSet| {
            let all = cpuset.intersection(&online);
            *set != kernel_possible && (!set.is_subset(&cpuset) || all.is_subset(set))
        };
        task.excused |= task.alone.set.as_ref().is_some_and(hidden);
        // What is left of a mask of ours and of one that its owner set since may be the same CPUs.
        let owners = task.real.set == task.alone.set && task.real.set.is_some();
        if undoing && owners && task.real.set.as_ref() != Some(cpus) {
            task.excused = true;
            kernel.coincidences += 1;
        }
        if task.real.set(cpus, &cpuset, &online) {
            return Ok(());
        }
        // All CPUs will stand in for what the kernel refuses.
        task.excused = true;
        Err(refused("sched_setaffinity", ErrorKind::InvalidInput))
    }

    fn throttles(&mut self, tgid: u32) -> Quotas {
        let kernel = self.0.borrow();
        let throttled = kernel.throttled.get(&tgid).copied().unwrap_or(0);
        Quotas::from([("group".into(), Quota { periods: 0, throttled })])
    }

    fn is_isolated(&mut self, _: u32) -> bool {
        false
    }

    fn cpuset(&mut self, _: u32, tid: u32) -> Option<CpuSet> {
        let kernel = self.0.borrow();
        let group = kernel.tasks.get(&tid)?.group;
        (group > 0 && !kernel.groups_unseen).then(|| kernel.cpuset(group))
    }

    fn mems_allowed(&mut self, tgid: u32) -> Option<NodeSet> {
        self.0.borrow().mems.get(&tgid).cloned()
    }
}

impl Memory for Shared {
    fn own_ranges(&mut self, tgid: u32) -> Result<Option<Vec<AnonymousRange>>, ReadError> {
        let kernel = self.0.borrow();
        let len = Bytes(PAGES as u64 * PAGE_BYTES);
        let ranges = |regions: &Vec<crate::kernel::FakeRegion>| {
            regions.iter().map(|region| AnonymousRange { start: region.start, len }).collect()
        };
        Ok(kernel.memory.get(&tgid).map(ranges))
    }

    /// Of every third process nobody may know.
    fn shared_ranges(&mut self, tgid: u32) -> Result<Option<Vec<ObjectRange>>, ReadError> {
        let source = std::io::ErrorKind::PermissionDenied.into();
        match tgid % 3 {
            0 => Err(ReadError::Read { path: format!("/proc/{tgid}/maps").into(), source }),
            _ => Ok(Some(Vec::new())),
        }
    }

    fn mapped(&mut self, tgid: u32) -> Result<Option<Vec<std::ops::Range<u64>>>, ReadError> {
        let ranges = self.own_ranges(tgid)?;
        let range = |own: AnonymousRange| own.start..own.start + own.len.0;
        Ok(ranges.map(|ranges| ranges.into_iter().map(range).collect()))
    }

    fn pages_stay(&mut self, tgid: u32, _: &mut dyn FnMut()) -> Option<&'static str> {
        self.0.borrow().watched.contains(&tgid).then_some("its memory is handled by others")
    }

    fn coverage(&mut self, tgid: u32) -> Option<Coverage> {
        let hidden = self.0.borrow().hidden.contains(&tgid);
        let resident =
            Bytes(self.0.borrow().memory.get(&tgid)?.len() as u64 * PAGES as u64 * PAGE_BYTES);
        let permille = if hidden { 100 } else { 1000 };
        Some(Coverage { permille, cause: Unseen::Policy, resident, reserve: Bytes(0) })
    }

    fn mappings(&mut self, tgid: u32) -> Result<Option<Vec<Mapping>>, ReadError> {
        Ok(self.0.borrow().memory.contains_key(&tgid).then(Vec::new))
    }

    fn locate(&mut self, tgid: u32, addresses: &[u64]) -> Result<Vec<PageStatus>, SysError> {
        let kernel = self.0.borrow();
        let regions = kernel.memory.get(&tgid).ok_or_else(|| gone("move_pages", tgid))?;
        let place = |&address: &u64| {
            let region = regions.iter().find(|region| region.start == address >> 21 << 21);
            let node = region.map(|r| r.nodes[(address >> 12) as usize % PAGES]);
            node.map_or(PageStatus::Absent, |node| PageStatus::On(NodeId(u32::from(node))))
        };
        Ok(addresses.iter().map(place).collect())
    }

    fn migrate(&mut self, tgid: u32, lot: &Lot) -> Result<Vec<PageStatus>, SysError> {
        let (to, addresses) = (lot.to, &lot.addresses);
        let kernel = &mut *self.0.borrow_mut();
        if !kernel.may_act() {
            return Err(refused("move_pages", ErrorKind::Other));
        }
        if let Some((_, tid)) = kernel.ends_in_move.take_if(|(process, _)| *process == tgid) {
            kernel.end(tid);
        }
        if kernel.mems.get(&tgid).is_some_and(|nodes| !nodes.contains(to)) {
            return Err(SysError::Forbidden { call: "move_pages", tid: tgid });
        }
        let regions = kernel.memory.get_mut(&tgid).ok_or_else(|| gone("move_pages", tgid))?;
        kernel.now += addresses.len() as u64 * 4_000;
        let mut answers = vec![PageStatus::Untried; addresses.len()];
        let mut queue: Vec<usize> = Vec::new();
        let mut named = BTreeSet::new();
        for index in 0..=addresses.len() {
            let node = match addresses.get(index) {
                Some(&address) => page(regions, address).map(|(_, node)| u32::from(*node)),
                None => None,
            };
            let said = match node {
                None => Some(PageStatus::Absent),
                Some(node) if node == to.0 => Some(PageStatus::On(to)),
                // Collected already, so it cannot be collected.
                Some(_) if !named.insert(addresses[index]) => Some(PageStatus::Busy),
                Some(_) => None,
            };
            let Some(said) = said else {
                queue.push(index);
                continue;
            };
            if let Some(answer) = answers.get_mut(index) {
                *answer = said;
            }
            // Whatever it cannot collect has it move what it has. If that fails it gives up.
            let mut failed = false;
            for &queued in &queue {
                let Some((pinned, node)) = page(regions, addresses[queued]) else { continue };
                let free = kernel.free[to.0 as usize];
                if free == 0 {
                    return Err(SysError::Refused {
                        call: "move_pages",
                        source: io::Error::from_raw_os_error(12),
                    });
                }
                if pinned || kernel.random.u16(..) < 64 {
                    failed = true;
                    continue;
                }
                kernel.pressed += u64::from(free <= kernel.high);
                kernel.free[usize::from(*node)] += 1;
                kernel.free[to.0 as usize] -= 1;
                *node = to.0 as u8;
            }
            if failed {
                break;
            }
            queue.drain(..).for_each(|queued| answers[queued] = PageStatus::On(to));
        }
        Ok(answers)
    }
}

/// A page of a process: whether a device holds it, and its node.
fn page(regions: &mut [crate::kernel::FakeRegion], address: u64) -> Option<(bool, &mut u8)> {
    let region = regions.iter_mut().find(|region| region.start == address >> 21 << 21)?;
    Some((region.pinned, &mut region.nodes[(address >> 12) as usize % PAGES]))
}

impl Machine for Shared {
    fn topology(&mut self) -> Result<Topology, ReadError> {
        let kernel = self.0.borrow();
        let node = |id: u32| numaherd_model::Node {
            id: NodeId(id),
            cpus: kernel.cpus_of(id).intersection(&kernel.online),
            memory: Bytes(1 << 30),
            free: Bytes(kernel.free[id as usize] * PAGE_BYTES),
        };
        let row = |a| (0..kernel.nodes).map(|b| if a == b { 10 } else { 21 }).collect();
        Ok(Topology {
            nodes: (0..kernel.nodes).map(node).collect(),
            distances: (0..kernel.nodes).map(row).collect(),
            ..Topology::default()
        })
    }

    fn isolated(&mut self) -> Result<CpuSet, ReadError> {
        Ok(CpuSet::new())
    }

    fn online(&mut self) -> Result<CpuSet, ReadError> {
        Ok(self.0.borrow().online.clone())
    }

    fn possible(&mut self) -> Result<CpuSet, ReadError> {
        Ok(self.0.borrow().possible())
    }

    fn nodes(&mut self) -> Result<Vec<NodeState>, ReadError> {
        let kernel = self.0.borrow();
        let state = |id: u32| NodeState {
            id: NodeId(id),
            free: Pages(kernel.free[id as usize]),
            high_watermark: Pages(kernel.high),
            others_permille: 0,
        };
        Ok((0..kernel.nodes).map(state).collect())
    }

    fn spare_reserve(&mut self, _: NodeId) -> u64 {
        u64::MAX
    }

    fn balancing_mode(&mut self) -> Result<Option<u64>, ReadError> {
        Ok(Some(1))
    }

    fn busy(&mut self) -> Result<BTreeMap<CpuId, Nanos>, ReadError> {
        Ok(BTreeMap::new())
    }

    fn own_time(&mut self) -> (Option<CpuId>, Nanos) {
        (None, Nanos(0))
    }

    fn monotonic(&mut self) -> Nanos {
        Nanos(self.0.borrow().now)
    }

    fn since_boot(&mut self) -> Nanos {
        Nanos(self.0.borrow().now)
    }

    fn setting(&mut self, path: &Path) -> io::Result<String> {
        let kernel = self.0.borrow();
        kernel.settings.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn set_setting(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let mut kernel = self.0.borrow_mut();
        if kernel.locked || !kernel.may_act() {
            return Err(ErrorKind::PermissionDenied.into());
        }
        kernel.settings.insert(path.into(), text.into());
        Ok(())
    }
}

/// Pages of a task that fault between two looks.
const FAULTS: usize = 24;

/// The stream of faults: each busy task touches some of its pages.
pub struct Faults(pub Shared);

impl FaultSource for Faults {
    fn drain(&mut self, faults: &mut Vec<HintingFault>) -> io::Result<()> {
        let kernel = &mut *self.0.0.borrow_mut();
        for (tid, task) in kernel.tasks.iter().filter(|(_, task)| task.busy) {
            let Some(regions) = kernel.memory.get(&task.tgid) else { continue };
            let used = |region: &&crate::kernel::FakeRegion| {
                region.owner.is_none_or(|owner| owner == *tid)
            };
            let used: Vec<_> = regions.iter().filter(used).collect();
            for _ in 0..FAULTS * usize::from(!used.is_empty()) {
                let region = used[kernel.random.usize(..used.len())];
                let page = kernel.random.usize(..PAGES);
                faults.push(HintingFault {
                    time: Nanos(kernel.now),
                    tid: *tid,
                    tgid: task.tgid,
                    cpu: task.last_cpu,
                    memory_node: NodeId(u32::from(region.nodes[page])),
                    pages: Pages(1),
                    flags: FaultFlags::default(),
                    address: Some(region.start + page as u64 * PAGE_BYTES),
                    last_cpu: None,
                    last_pid_low8: None,
                });
            }
        }
        Ok(())
    }

    fn watch(&mut self, _: &[u32]) -> io::Result<()> {
        Ok(())
    }

    fn lost(&self) -> u64 {
        0
    }

    fn births(&mut self) -> Vec<Birth> {
        std::mem::take(&mut self.0.0.borrow_mut().births)
    }
}
