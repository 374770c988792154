//! Hinting faults, page moves and scans: what the kernel's NUMA balancing does to memory, and what
//! that costs the task in whose name it is done.
//!
//! A fault on a block of small pages is 512 faults, unless the balancing handles a whole block in
//! one; each page is looked at then too. Arming and looking at a page costs a cache miss: what the
//! kernel keeps for it is as large as a line; a fault costs one more where the balancing keeps something of
//! its own for it. Moving a block copies it: every line is read on one node and written on the other, with
//! today's waits. A huge page moves whole if the balancing can; otherwise it is split, moved in
//! small pages, and copied once more when it is rebuilt. Each small page moved needs a flush of
//! TLBs and, twice, the anon_vma mutex of its process, for which others wait: [`crate::rmap`].

use numaherd_model::{
    Bytes, Cause, CpuId, FaultFlags, HintingFault, Nanos, NodeId, PageHandling, Pages, ProcessId,
    TaskId, TaskMove, Topology, Touch, View,
};

use crate::account::Place;
use crate::engine::{BLOCK_BYTES, BLOCK_PAGES, Seen, Sim, State, TICK_NS, TraceEvent};
use crate::machine::LINE_BYTES;
use crate::rmap::Moving;

/// Share of a node that stays free whatever is moved, per mille: the kernel's watermarks.
/// Guessed.
pub(crate) const RESERVE_PERMILLE: u64 = 10;

/// How a block moved, and what that costs.
enum Moved {
    Whole(u64),
    /// Its pages still go, and cost so much if nobody is in their way.
    Small(Moving, u64),
}

impl Sim {
    /// The running task touches an armed block. Answers the nanoseconds it costs, and the small
    /// pages that move besides.
    pub(crate) fn fault(&mut self, t: usize, b: usize) -> (u64, Option<Moving>) {
        let Some(mut balancing) = self.options.balancing.take() else { return (0, None) };
        let handling = balancing.pages();
        let touch = self.touch(t, b);
        let whole = self.options.huge_pages || handling.one_fault_for_2m;
        let faults = if whole { 1 } else { BLOCK_PAGES };
        self.run.faults += faults;
        let mut cost_ns = faults * self.machine.kernel.fault_ns;
        if handling.one_fault_for_2m && !self.options.huge_pages {
            // Each page's entry is rewritten, and who touched it is noted.
            cost_ns += BLOCK_PAGES * self.entry_ns(self.tasks[t].cpu, self.home_of(t, b));
        }
        if handling.keeps_beside {
            let pages = if self.options.huge_pages { 1 } else { BLOCK_PAGES };
            cost_ns += pages * self.miss_ns(self.tasks[t].cpu, self.home_of(t, b));
        }
        self.account.add_times(Place::Fault, cost_ns, faults);
        let mut moving = None;
        let verdict = balancing.on_fault(&touch, self);
        self.options.balancing = Some(balancing);
        let mut flags = 0;
        if let Some((node, why)) = verdict
            && node != touch.home
        {
            let to = self.index_of(node).map(|to| (to, why));
            match to.and_then(|to| self.move_in_fault(t, b, to, faults, handling)) {
                Some(Moved::Whole(ns)) => {
                    cost_ns += ns;
                    flags |= FaultFlags::MIGRATED;
                }
                Some(Moved::Small(small, ns)) => {
                    // The faults are part of its stages.
                    self.run.kernel_seconds += (cost_ns + ns) as f64 / 1e9;
                    (cost_ns, moving) = (0, Some(small));
                    flags |= FaultFlags::MIGRATED;
                }
                None => {
                    if let Some(mut balancing) = self.options.balancing.take() {
                        balancing.stayed(&touch, self);
                        self.options.balancing = Some(balancing);
                    }
                    flags |= FaultFlags::MIGRATE_FAIL;
                }
            }
        }
        let process = &mut self.processes[self.tasks[t].process];
        process.blocks[b].armed = false;
        process.seen[b] = Seen { task: t as u32 + 1, cpu: self.tasks[t].cpu as u16 };
        let home = usize::from(process.blocks[b].home);
        let home = self.node_id(home);
        flags |= if home == touch.node { FaultFlags::FAULT_LOCAL } else { 0 };
        if self.options.watch_faults && self.now >= self.no_faults_until {
            self.show(&touch, home, flags, b);
        }
        self.run.kernel_seconds += cost_ns as f64 / 1e9;
        (cost_ns, moving)
    }

    pub(crate) fn touch(&self, t: usize, b: usize) -> Touch {
        let task = &self.tasks[t];
        let process = &self.processes[task.process];
        let seen = process.seen[b];
        let last = seen.task.checked_sub(1);
        let last = last.map(|last| (self.rest[last as usize].id, CpuId(u32::from(seen.cpu))));
        Touch {
            time: Nanos(self.now),
            task: self.rest[t].id,
            process: process.id,
            cpu: CpuId(task.cpu as u32),
            node: self.node_id(self.node_of[task.cpu]),
            home: self.node_id(usize::from(process.blocks[b].home)),
            pages: Pages(BLOCK_PAGES),
            last,
            page: (task.process as u64) << 32 | b as u64,
        }
    }

    /// Shows the fault to whoever observes, as the kernel's stream has it. Small pages of a block
    /// are touched one after the other by the same task: they are shown as one.
    pub(crate) fn show(&mut self, touch: &Touch, home: NodeId, flags: u32, b: usize) {
        self.rest[touch.task.tid as usize - 1].faulted = true;
        self.faults.push(HintingFault {
            time: touch.time,
            tid: touch.task.tid,
            tgid: touch.process.tgid,
            cpu: touch.cpu,
            memory_node: home,
            pages: touch.pages,
            flags: FaultFlags(flags),
            address: Some(address(b)),
            last_cpu: touch.last.map(|(_, cpu)| cpu),
            last_pid_low8: touch.last.map(|(task, _)| task.tid as u8),
        });
    }

    /// Moves a block in a fault, or in one for each page, if the node has room.
    fn move_in_fault(
        &mut self,
        t: usize,
        b: usize,
        (to, why): (usize, Cause),
        faults: u64,
        how: PageHandling,
    ) -> Option<Moved> {
        let (p, cpu) = (self.tasks[t].process, self.tasks[t].cpu);
        let from = usize::from(self.processes[p].blocks[b].home);
        self.relocate(p, b, to, Some(why))?;
        self.run.pages_moved_by_kernel += BLOCK_PAGES;
        let costs = self.machine.kernel.clone();
        let copy_ns = self.copy_ns(self.node_of[cpu], from, to);
        let whole = self.options.huge_pages && how.moves_huge_whole;
        let pages = if whole { 1 } else { BLOCK_PAGES };
        let (moves_ns, flushes_ns) = (pages * costs.move_ns, pages * costs.flush_ns);
        self.account.add_times(Place::Copying, copy_ns, pages);
        self.account.add_times(Place::Flushing, flushes_ns, pages);
        if self.options.huge_pages {
            self.account.add_times(Place::Unmapping, moves_ns, pages);
            let rebuilt_ns = if whole { 0 } else { copy_ns };
            if !whole {
                self.account.add(Place::Rebuilding, rebuilt_ns);
            }
            return Some(Moved::Whole(copy_ns + rebuilt_ns + moves_ns + flushes_ns));
        }
        let moving = Moving::new(&costs, faults, copy_ns);
        self.account.add_times(Place::Unmapping, moves_ns - moves_ns / 2, pages);
        self.account.add_times(Place::Mapping, moves_ns / 2, pages);
        Some(Moved::Small(moving, copy_ns + moves_ns + flushes_ns))
    }

    /// Time for a thread on node `at` to copy a block.
    pub(crate) fn copy_ns(&self, at: usize, from: usize, to: usize) -> u64 {
        let reads = self.fabric.wait_ns(self.fabric.class(at, from, false));
        let writes = self.fabric.wait_ns(self.fabric.class(at, to, true));
        // A load and a store stream side by side.
        let all = self.machine.cpu.threads_per_core;
        let alone = self.machine.line_ns(at, from, all).max(self.machine.line_ns(at, to, all));
        (BLOCK_BYTES as f64 / LINE_BYTES * (alone + reads + writes)) as u64
    }

    /// Puts a block on another node, if it has room; why, if the kernel does.
    pub(crate) fn relocate(
        &mut self,
        p: usize,
        b: usize,
        to: usize,
        why: Option<Cause>,
    ) -> Option<()> {
        let reserve = (self.machine.node[to].memory_mib << 20) * RESERVE_PERMILLE / 1000;
        if self.free[to] < BLOCK_BYTES + reserve || self.now < self.no_moves_until {
            return None;
        }
        let from = usize::from(self.processes[p].blocks[b].home);
        self.processes[p].blocks[b].home = to as u16;
        self.free[from] += BLOCK_BYTES;
        self.free[to] -= BLOCK_BYTES;
        let (ns, process) = (self.now, self.processes[p].id.tgid);
        let [from, to] = [from, to].map(|node| self.machine.node[node].id);
        self.note(TraceEvent::Moved { ns, process, block: b, from, to, why });
        Some(())
    }

    /// A tick of a running task: pages are armed, and the task may be sent elsewhere.
    pub(crate) fn tick(&mut self, t: usize) {
        let Some(mut balancing) = self.options.balancing.take() else { return };
        let id = self.rest[t].id;
        if let Some(bytes) = balancing.scan(id, self) {
            let process = &self.processes[self.tasks[t].process];
            let process_id = process.id;
            if !process.hinting_faults {
                balancing.nothing_to_scan(process_id, self);
            } else if self.arm(t, bytes) {
                balancing.pass_ended(process_id, self);
            }
        }
        let wanted = balancing.place(id, self);
        self.options.balancing = Some(balancing);
        match wanted {
            Some((TaskMove::To(cpu), why)) => self.send(t, cpu.0 as usize, Some(why)),
            Some((TaskMove::Swap(other), why)) => {
                self.swap(t, other.tid as usize - 1, why);
            }
            None => {}
        }
    }

    /// Arms the next bytes of the task's process, up to its end; says whether that is reached.
    fn arm(&mut self, t: usize, bytes: Bytes) -> bool {
        let small = !self.options.huge_pages;
        let process = &mut self.processes[self.tasks[t].process];
        let left = process.blocks.len() - process.scan_at;
        let blocks = (bytes.0.div_ceil(BLOCK_BYTES) as usize).min(left);
        let scanned = process.scan_at..process.scan_at + blocks;
        let mut on = vec![0_u64; self.machine.node.len()];
        for block in &mut process.blocks[scanned] {
            block.armed = true;
            on[usize::from(block.home)] += 1;
        }
        process.scan_at += blocks;
        let at_end = process.scan_at == process.blocks.len();
        if at_end {
            process.scan_at = 0;
        }
        let entries = if small { BLOCK_PAGES } else { 1 };
        let cpu = self.tasks[t].cpu;
        let of = |(home, &blocks): (usize, &u64)| match blocks {
            0 => 0,
            blocks => blocks * entries * self.entry_ns(cpu, home),
        };
        let cost_ns = on.iter().enumerate().map(of).sum::<u64>() + self.machine.kernel.flush_ns;
        self.tasks[t].debt_ns += cost_ns;
        self.account.add(Place::Arming, cost_ns);
        self.run.kernel_seconds += cost_ns as f64 / 1e9;
        at_end
    }

    /// What it takes to rewrite a page's entry and to look at what the kernel keeps for the page,
    /// which is where the page is, on a cache line of its own.
    fn entry_ns(&self, cpu: usize, home: usize) -> u64 {
        self.machine.kernel.arm_ns + self.miss_ns(cpu, home)
    }

    /// A cache line that nobody has touched for long.
    fn miss_ns(&self, cpu: usize, home: usize) -> u64 {
        self.machine.latency_ns[self.node_of[cpu]][home] as u64
    }

    fn home_of(&self, t: usize, b: usize) -> usize {
        usize::from(self.processes[self.tasks[t].process].blocks[b].home)
    }

    pub(crate) fn node_id(&self, index: usize) -> NodeId {
        NodeId(self.machine.node[index].id)
    }

    pub(crate) fn index_of(&self, node: NodeId) -> Option<usize> {
        self.machine.node.iter().position(|spec| spec.id == node.0)
    }
}

/// A block's address in its process.
pub(crate) fn address(b: usize) -> u64 {
    (1 << 40) + b as u64 * BLOCK_BYTES
}

impl View for Sim {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        self.node_id(self.node_of[cpu.0 as usize])
    }

    fn running(&self, cpu: CpuId) -> Option<TaskId> {
        self.running[cpu.0 as usize].map(|t| self.rest[t].id)
    }

    fn load(&self, cpu: CpuId) -> u32 {
        self.load[cpu.0 as usize]
    }

    fn runnable(&self, cpu: CpuId) -> Vec<TaskId> {
        let waiting = self.queues[cpu.0 as usize].iter().map(|(t, _)| t);
        let all = self.running[cpu.0 as usize].into_iter().chain(waiting);
        all.map(|t| self.rest[t].id).collect()
    }

    fn cpu_of(&self, task: TaskId) -> Option<CpuId> {
        let task = &self.tasks[task.tid as usize - 1];
        let runnable = matches!(task.state, State::Running | State::Waiting);
        runnable.then_some(CpuId(task.cpu as u32))
    }

    fn process_of(&self, task: TaskId) -> ProcessId {
        self.processes[self.tasks[task.tid as usize - 1].process].id
    }

    fn cpu_time(&self, task: TaskId) -> Nanos {
        Nanos(self.tasks[task.tid as usize - 1].cpu_ns)
    }

    fn allowed(&self, task: TaskId, cpu: CpuId) -> bool {
        self.allows(task.tid as usize - 1, cpu.0 as usize)
    }

    fn resident(&self, process: ProcessId) -> Bytes {
        let blocks = self.processes[process.tgid as usize - 1].blocks.len() as u64;
        Bytes(blocks * BLOCK_BYTES)
    }

    fn resident_on(&self, process: ProcessId, node: NodeId) -> Bytes {
        let index = self.index_of(node).unwrap_or(usize::MAX);
        let blocks = self.processes[process.tgid as usize - 1].blocks.iter();
        let on = blocks.filter(|block| usize::from(block.home) == index).count();
        Bytes(on as u64 * BLOCK_BYTES)
    }

    fn free(&self, node: NodeId) -> Bytes {
        Bytes(self.index_of(node).map_or(0, |index| self.free[index]))
    }

    fn tick(&self) -> Nanos {
        Nanos(TICK_NS)
    }
}
