//! What threads of one process do where each kind of them does something of its own, as rt-app's files have it: a thread
//! goes through its phases, each so often, and through the events of a phase one after the other.
//!
//! Times are nanoseconds. Memory, locks, conditions, barriers and timers are named by their places in the lists here.
//! Invariant: every such place is there, no list of phases or events is empty.

use std::collections::BTreeMap;

use numaherd_model::{CpuSet, Nanos};

use super::steps::Pace;
use super::{Parameters, Part, PhaseSpec, ProcessSpec, Start, sound};
use crate::SimError;
use crate::engine::BLOCK_BYTES;
use crate::machine::LINE_BYTES;

/// A turn of a phase that takes less takes so much more: looking at the clock twice, and a line of the log. Guessed.
/// Without it, one that takes no time and is gone through for ever would never end.
pub(crate) const TURN_NS: u64 = 1_000;

/// Computing goes on for so long before a thread's turn may end. Guessed: as short as a quarter of what 2 MiB take at
/// 5 GB/s, so that who waits for the CPU is seldom kept waiting by it.
pub(crate) const CHUNK_NS: u64 = 100_000;

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Programs {
    /// After so long everything ends.
    pub duration: Option<Nanos>,
    /// Kinds of threads.
    pub tasks: Vec<TaskSpec>,
    /// What takes CPU time: which memory it goes over, if any, and how.
    pub work: Vec<Work>,
    /// Memory.
    pub memory: Vec<MemorySpec>,
    /// Names of locks.
    pub locks: Vec<String>,
    /// Names of conditions.
    pub conditions: Vec<String>,
    /// Names of barriers.
    pub barriers: Vec<String>,
    /// Timers.
    pub timers: Vec<TimerSpec>,
    /// What a file says that changes nothing here, though it would elsewhere.
    pub passed_over: Vec<String>,
}

/// Threads of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSpec {
    /// Its name.
    pub name: String,
    /// How many.
    pub threads: u32,
    /// They begin so much later.
    pub delay: Nanos,
    /// Where they may run, where a phase does not say it; anywhere without.
    pub cpus: Option<CpuSet>,
    /// How often they go through all phases; for ever without.
    pub loops: Option<u32>,
    /// What they do, one after the other.
    pub phases: Vec<EventPhase>,
}

/// Events, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct EventPhase {
    /// Its name; none where a thread has but one phase.
    pub name: String,
    /// How often; for ever without.
    pub loops: Option<u32>,
    /// Where its thread may run.
    pub cpus: Option<CpuSet>,
    /// What happens in it.
    pub events: Vec<TaskEvent>,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskEvent {
    /// It computes, or goes over memory.
    Work(usize),
    /// It sleeps for so long.
    Sleep(Nanos),
    /// It sleeps until so much after the timer's last time.
    Timer(usize, Nanos),
    /// It takes a lock.
    Lock(usize),
    /// It gives it back.
    Unlock(usize),
    /// It waits at a condition, without the lock.
    Wait {
        /// The condition.
        condition: usize,
        /// The lock.
        lock: usize,
    },
    /// It lets the first go that waits at a condition.
    Signal(usize),
    /// It lets all go that wait there.
    Broadcast(usize),
    /// It lets the first go, and waits there itself.
    Sync {
        /// The condition.
        condition: usize,
        /// The lock.
        lock: usize,
    },
    /// It waits until all have come that the file names there.
    Barrier(usize),
    /// It waits at a condition that has no lock.
    Suspend(usize),
    /// Others may run first.
    Yield,
}

/// What takes CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// Which memory; none where it only computes.
    pub memory: Option<usize>,
    /// How.
    pub phase: PhaseSpec,
}

/// Memory that threads go over. Those that go over slices of it share it out, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySpec {
    /// Its name.
    pub name: String,
    /// Bytes: of all of it, or of each thread's own.
    pub bytes: u64,
    /// Each thread that uses it has one of its own.
    pub own: bool,
    /// Where it lies at the start, for placements that tie nothing.
    pub start: Start,
}

/// A timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerSpec {
    /// Its name.
    pub name: String,
    /// Each thread has one of its own.
    pub own: bool,
    /// A time that was missed is made up for.
    pub absolute: bool,
}

/// How a thread computes for so long: of CPU time, or on the clock, whoever else runs meanwhile.
pub(crate) fn computing(time: Nanos, on_the_clock: bool) -> PhaseSpec {
    PhaseSpec {
        compute_ns: time.0 as f64,
        seconds: on_the_clock.then(|| time.as_secs_f64()),
        // Nothing is gone over from end to end that a cache could keep.
        scattered: true,
        ..going_over(Part::Nothing, 1)
    }
}

/// How a thread writes a part of memory so often.
pub(crate) fn going_over(memory: Part, times: u32) -> PhaseSpec {
    PhaseSpec {
        memory,
        times,
        seconds: None,
        operations: None,
        whole: false,
        loops: None,
        range: None,
        scattered: false,
        writes: true,
        compute_ns: 0.0,
        work: 1.0,
        sleep_ms: 0.0,
        barrier: false,
        lock: false,
        file: None,
        part: None,
        found: None,
    }
}

impl Programs {
    /// Of each thread, which kind it is of.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = usize> {
        let of = |(kind, task): (usize, &TaskSpec)| (0..task.threads).map(move |_| kind);
        self.tasks.iter().enumerate().flat_map(of)
    }

    /// All threads.
    pub(crate) fn threads(&self) -> u64 {
        self.tasks.iter().map(|task| u64::from(task.threads)).sum()
    }

    /// What threads of a kind do with a memory.
    fn uses(&self, kind: usize, memory: usize) -> impl Iterator<Item = &PhaseSpec> {
        let events = self.tasks[kind].phases.iter().flat_map(|phase| &phase.events);
        events.filter_map(move |event| match *event {
            TaskEvent::Work(work) if self.work[work].memory == Some(memory) => {
                Some(&self.work[work].phase)
            }
            _ => None,
        })
    }

    /// Threads that go over a memory, or those whose kind does so in a way.
    fn threads_that(&self, memory: usize, way: impl Fn(&PhaseSpec) -> bool) -> Vec<usize> {
        let mut first = 0;
        let mut all = Vec::new();
        for (kind, task) in self.tasks.iter().enumerate() {
            let end = first + task.threads as usize;
            if self.uses(kind, memory).any(&way) {
                all.extend(first..end);
            }
            first = end;
        }
        all
    }

    /// Threads that go over a memory.
    pub(crate) fn users(&self, memory: usize) -> Vec<usize> {
        self.threads_that(memory, |_| true)
    }

    /// Those that share it out, of which each has a slice: they go over slices of it, or, if nobody does, over all.
    pub(crate) fn sharers(&self, memory: usize) -> Vec<usize> {
        let sharers = self.threads_that(memory, |phase| phase.memory != Part::All);
        if sharers.is_empty() { self.users(memory) } else { sharers }
    }

    /// Whether anybody goes over slices of it.
    pub(crate) fn is_sliced(&self, memory: usize) -> bool {
        let mut all = (0..self.tasks.len()).flat_map(|kind| self.uses(kind, memory));
        all.any(|phase| phase.memory != Part::All)
    }

    /// Bytes of a memory that so many share out.
    pub(crate) fn bytes_of(&self, memory: usize, sharers: usize) -> u64 {
        let MemorySpec { bytes, own, .. } = self.memory[memory];
        bytes.saturating_mul(if own { sharers as u64 } else { 1 })
    }

    /// All memory, in MiB.
    pub(crate) fn memory_mib(&self) -> u64 {
        let of = |memory| self.bytes_of(memory, self.sharers(memory).len()).div_ceil(1 << 20);
        (0..self.memory.len()).map(of).fold(0, u64::saturating_add)
    }

    /// Bytes that one thread touches first before the others begin.
    pub(crate) fn bytes_touched_first(&self) -> f64 {
        let is_used = |memory: usize| {
            (0..self.tasks.len()).any(|kind| self.uses(kind, memory).next().is_some())
        };
        let of = |(number, memory): (usize, &MemorySpec)| match memory.start {
            Start::FirstTouch if !memory.own && is_used(number) => memory.bytes as f64,
            _ => 0.0,
        };
        self.memory.iter().enumerate().map(of).sum()
    }

    /// Of each barrier, how many have to come: those that the file names there.
    pub(crate) fn parties(&self) -> Vec<usize> {
        let mut all = vec![0; self.barriers.len()];
        for task in &self.tasks {
            for event in task.phases.iter().flat_map(|phase| &phase.events) {
                if let TaskEvent::Barrier(barrier) = *event {
                    all[barrier] += task.threads as usize;
                }
            }
        }
        all
    }

    /// Bytes that a thread of a kind goes over in a turn of a phase.
    fn turn_bytes(&self, phase: &EventPhase, sharers: &[usize]) -> f64 {
        let of = |event: &TaskEvent| match *event {
            TaskEvent::Work(work) => self.work_bytes(&self.work[work], sharers),
            _ => 0.0,
        };
        phase.events.iter().map(of).sum()
    }

    /// Bytes of some work, and of one pass of it; so many share each memory out.
    fn work_bytes(&self, work: &Work, sharers: &[usize]) -> f64 {
        f64::from(work.phase.times) * self.pass_bytes(work, sharers)
    }

    fn pass_bytes(&self, work: &Work, sharers: &[usize]) -> f64 {
        let Some(memory) = work.memory else { return 0.0 };
        let bytes = self.bytes_of(memory, sharers[memory]) as f64;
        let part = if work.phase.memory == Part::All { 1.0 } else { 1.0 / sharers[memory] as f64 };
        let range = work.phase.range.map_or(1.0, |pair| pair.1 - pair.0);
        bytes * part * range
    }

    /// How many threads share each memory out.
    fn all_sharers(&self) -> Vec<usize> {
        (0..self.memory.len()).map(|memory| self.sharers(memory).len().max(1)).collect()
    }

    /// Bytes that all threads go over until they end; more than any figure if one goes on for ever.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        let sharers = self.all_sharers();
        let times = |loops: Option<u32>| loops.map_or(f64::INFINITY, f64::from);
        let of = |task: &TaskSpec| {
            let each = task.phases.iter().map(|phase| {
                let bytes = self.turn_bytes(phase, &sharers);
                if bytes > 0.0 { bytes * times(phase.loops) } else { 0.0 }
            });
            let all: f64 = each.sum();
            if all > 0.0 && task.threads > 0 {
                all * times(task.loops) * f64::from(task.threads)
            } else {
                0.0
            }
        };
        self.tasks.iter().map(of).sum()
    }

    /// Steps of a turn, and about how many nanoseconds it takes on a machine of that pace.
    fn turn(&self, phase: &EventPhase, sharers: &[usize], pace: &Pace) -> (f64, f64) {
        let (mut steps, mut ns) = (0.0, 0.0);
        // Who waits for a timer waits for no longer than is left of its period.
        let mut period = 0.0_f64;
        for event in &phase.events {
            steps += 1.0;
            match *event {
                TaskEvent::Sleep(time) => ns += time.0 as f64,
                TaskEvent::Timer(_, time) => period += time.0 as f64,
                TaskEvent::Work(work) => {
                    let work = &self.work[work];
                    let (phase, bytes) = (&work.phase, self.work_bytes(work, sharers));
                    if phase.memory == Part::Nothing {
                        ns += phase.compute_ns;
                        steps += (phase.compute_ns / CHUNK_NS as f64).ceil();
                    } else {
                        ns += bytes / LINE_BYTES * pace.of_line(phase);
                        let blocks = (self.pass_bytes(work, sharers) / BLOCK_BYTES as f64).max(1.0);
                        steps += f64::from(phase.times) * blocks;
                    }
                }
                _ => {}
            }
        }
        let ns = ns.max(period);
        if ns < TURN_NS as f64 {
            // The little that it takes more is a step, too.
            steps += 1.0;
        }
        (steps, ns.max(TURN_NS as f64))
    }

    /// About how many steps all threads take on a machine of that pace.
    pub(crate) fn steps(&self, pace: &Pace) -> f64 {
        let sharers = self.all_sharers();
        let limit = self.duration.map_or(f64::INFINITY, |all| all.0 as f64);
        let times = |loops: Option<u32>| loops.map_or(f64::INFINITY, f64::from);
        let of = |task: &TaskSpec| {
            let turns: Vec<(f64, f64)> =
                task.phases.iter().map(|phase| self.turn(phase, &sharers, pace)).collect();
            let phases = task.phases.iter().zip(&turns);
            let all = |of: fn(&(f64, f64)) -> f64| {
                phases.clone().map(|(phase, turn)| of(turn) * times(phase.loops)).sum::<f64>()
            };
            let whole = all(|turn| turn.0) * times(task.loops);
            // Of what does not end by itself: as many as there are at the most in the time that there is.
            let most = turns.iter().map(|(steps, ns)| steps / ns).fold(0.0, f64::max) * limit;
            f64::from(task.threads) * if task.threads > 0 { whole.min(most) } else { 0.0 }
        };
        self.tasks.iter().map(of).sum()
    }

    /// Seconds that it takes at the least.
    pub(super) fn least_seconds(&self) -> f64 {
        let times = |loops: Option<u32>| loops.map_or(f64::INFINITY, f64::from);
        let of_phase = |phase: &EventPhase| {
            let of = |event: &TaskEvent| match *event {
                TaskEvent::Sleep(time) => time.as_secs_f64(),
                TaskEvent::Work(work) => self.work[work].phase.seconds.unwrap_or(0.0),
                _ => 0.0,
            };
            let turn: f64 = phase.events.iter().map(of).sum();
            if turn > 0.0 { turn * times(phase.loops) } else { 0.0 }
        };
        let of_task = |task: &TaskSpec| {
            let all: f64 = task.phases.iter().map(of_phase).sum();
            if all > 0.0 && task.threads > 0 { all * times(task.loops) } else { 0.0 }
        };
        let all = self.tasks.iter().map(of_task).fold(0.0, f64::max);
        self.duration.map_or(all, |duration| all.min(duration.as_secs_f64()))
    }

    /// With as many threads, where there is one kind of them.
    pub(super) fn set_threads(&mut self, threads: u32) -> Result<(), SimError> {
        let [task] = &mut self.tasks[..] else {
            return unfit(
                "--threads is for a file with one task, and this one has several: change their instance",
            );
        };
        task.threads = threads;
        Ok(())
    }

    /// With so much memory, where there is one.
    pub(super) fn set_bytes(&mut self, bytes: u64) -> Result<(), SimError> {
        let mut all: Vec<&mut MemorySpec> =
            self.memory.iter_mut().filter(|memory| !memory.own).collect();
        let [memory] = &mut all[..] else {
            return unfit(&format!(
                "--size is for a file that has one resource of the type memory, and this one has {}: change it",
                all.len()
            ));
        };
        memory.bytes = sound::mib(bytes)? << 20;
        Ok(())
    }

    /// With each thread so often through all of its phases.
    pub(super) fn set_loops(&mut self, loops: u32) -> Result<(), SimError> {
        for task in &mut self.tasks {
            if let Some(phase) = task.phases.iter().find(|phase| phase.loops.is_none()) {
                return unfit(&format!(
                    "--loops is for threads that come to the end of their phases, and {} of {} goes on for ever",
                    phase.name, task.name
                ));
            }
            task.loops = Some(loops);
        }
        Ok(())
    }

    /// With all memory there at the start.
    pub(super) fn set_start(&mut self, start: Start) {
        self.memory.iter_mut().for_each(|memory| memory.start = start);
    }

    /// Places of names in a list, which grows by those that are new.
    pub(super) fn place_in(list: &mut Vec<String>, name: &str) -> usize {
        let known = list.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            list.push(name.into());
            list.len() - 1
        })
    }

    /// Whether every CPU that a file names is one of so many.
    pub(crate) fn check_cpus(&self, cpus: usize) -> Result<(), SimError> {
        let sets = self.tasks.iter().flat_map(|task| {
            let phases = task.phases.iter().map(|phase| &phase.cpus);
            std::iter::once(&task.cpus).chain(phases).flatten().map(move |set| (task, set))
        });
        // By name, so that the first is told whatever order they are in.
        let beyond: BTreeMap<&str, u32> = sets
            .flat_map(|(task, set)| set.iter().map(move |cpu| (task.name.as_str(), cpu.0)))
            .filter(|(_, cpu)| *cpu as usize >= cpus)
            .collect();
        match beyond.first_key_value() {
            None => Ok(()),
            Some((task, cpu)) => unfit(&format!(
                "tasks.{task}.cpus has CPU {cpu}, and the machine has {cpus}, from 0 on"
            )),
        }
    }
}

impl ProcessSpec {
    /// With other parameters, as far as they make sense for one that has programs.
    pub(super) fn resize_programs(&mut self, to: Parameters) -> Result<(), SimError> {
        let Some(programs) = &mut self.programs else { return Ok(()) };
        to.threads.map_or(Ok(()), |threads| programs.set_threads(threads))?;
        to.size_bytes.map_or(Ok(()), |bytes| programs.set_bytes(bytes))?;
        to.loops.map_or(Ok(()), |loops| programs.set_loops(loops))?;
        if let Some(start) = to.start {
            programs.set_start(start);
            self.start = start;
        }
        self.count_programs();
        Ok(())
    }
}

fn unfit<T>(problem: &str) -> Result<T, SimError> {
    Err(SimError::Unfit { problem: problem.into() })
}
