//! In how many steps a workload is simulated: a block that a thread goes over is one, however short. One that
//! would take hours is told at once.

use super::{PhaseSpec, ProcessSpec, Workload};
use crate::SimError;
use crate::engine::BLOCK_BYTES;
use crate::machine::{LINE_BYTES, Machine};
use crate::wrong::Wrong;

/// Ten minutes at the five million a second that were measured (docs/simulator.md, Speed). The documents' numa01 takes
/// two million.
const MOST_STEPS: f64 = 3e9;

/// How fast a machine is where its memory is near and nobody waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// For a line, and for one that nothing announced.
    line_ns: f64,
    miss_ns: f64,
    /// Of the former, what does not depend on where it is.
    work_ns: f64,
    /// What all memory carries.
    mb_s: f64,
}

impl Pace {
    pub(crate) fn of(machine: &Machine) -> Pace {
        let cpu = &machine.cpu;
        Pace {
            line_ns: LINE_BYTES * 1000.0 / cpu.stream_mb_s,
            miss_ns: cpu.nearest_ns,
            work_ns: cpu.work_ns,
            mb_s: machine.memory_mb_s.iter().sum(),
        }
    }

    /// For a line of a phase.
    pub(super) fn of_line(&self, phase: &PhaseSpec) -> f64 {
        let line_ns = self.line_ns - self.work_ns * (1.0 - phase.work);
        phase.compute_ns + if phase.scattered { self.miss_ns } else { line_ns }
    }
}

impl ProcessSpec {
    /// Of one pass.
    fn blocks(&self, phase: &PhaseSpec, slices: usize, of_files: &[u64]) -> f64 {
        let part = self.part(phase, slices);
        let all = match phase.of_file() {
            Some(file) => of_files[file] as f64,
            None => self.bytes_of(phase) / BLOCK_BYTES as f64,
        };
        (part * all).max(1.0)
    }

    pub(super) fn slices_of(&self, threads: usize) -> usize {
        self.slices(threads).last().map_or(1, |last| last + 1)
    }

    /// Steps of each thread in each round; of a phase that ends after a time only the one that there surely is.
    fn steps(&self, phase: &PhaseSpec, slices: usize, of_files: &[u64]) -> f64 {
        match phase.seconds {
            Some(_) => 1.0,
            None => self.passes_told(phase, slices) * self.blocks(phase, slices, of_files),
        }
    }

    /// About how many steps each of so many threads takes in a phase that ends after a time, if each has that share
    /// of a CPU.
    ///
    /// Worked example: one thread, a second, blocks of 32,768 lines at 100 ns: 305 steps.
    fn timed_steps(
        &self,
        phase: &PhaseSpec,
        seconds: f64,
        (threads, share): (usize, f64),
        pace: &Pace,
        of_files: &[u64],
    ) -> f64 {
        let slices = self.slices_of(threads);
        let (part, blocks) = (self.part(phase, slices), self.blocks(phase, slices, of_files));
        let lines = part * self.bytes_of(phase) / LINE_BYTES / blocks;
        // Those of one process take turns at a lock.
        let share = if phase.lock { share.min(1.0 / threads as f64) } else { share };
        let alone_ns = lines * pace.of_line(phase) + phase.sleep_ms * 1e6 / blocks;
        let at_work = f64::from(self.copies_at_once()) * threads as f64 * share;
        let full_ns = at_work * lines * LINE_BYTES * 1000.0 / pace.mb_s;
        (seconds * 1e9 * share / alone_ns.max(full_ns).max(1.0)).max(1.0)
    }
}

impl Workload {
    /// What is wrong with a file of more steps than are simulated, on whatever machine.
    pub(super) fn endless(&self) -> Option<Wrong> {
        let (mut all, of_files) = (0.0, self.file_blocks(1));
        for (p, process) in self.process.iter().enumerate() {
            let threads = process.threads_on(1);
            let slices = process.slices_of(threads);
            let each: Vec<f64> =
                process.phase.iter().map(|phase| process.steps(phase, slices, &of_files)).collect();
            let (rounds, in_all) =
                (f64::from(process.rounds.unwrap_or(1)), each.iter().sum::<f64>());
            all += f64::from(process.copies) * threads as f64 * rounds * in_all;
            if all <= MOST_STEPS {
                continue;
            }
            // What there is most of is told.
            let expected = format!(
                "so few that all threads together go over {MOST_STEPS} blocks of 2 MiB, or parts of one, at the most, \
                 which takes ten minutes to simulate, not {all:.0}"
            );
            let most = each.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
            let (copies, told) = (f64::from(process.copies), process.threads.unwrap_or(0));
            let of_process = [
                (rounds, "process.rounds"),
                (f64::from(told), "process.threads"),
                (copies, "process.copies"),
            ];
            let (times, field) =
                of_process.into_iter().fold((0.0, ""), |a, b| if b.0 > a.0 { b } else { a });
            return Some(match most {
                Some((i, most)) if most >= times => {
                    let phase = &process.phase[i];
                    let field = match (phase.operations, phase.seconds) {
                        (Some(_), _) => "process.phase.operations",
                        (_, Some(_)) => "process.phase.seconds",
                        _ => "process.phase.times",
                    };
                    Wrong::new(field, &[p, i], expected)
                }
                _ => Wrong::new(field, &[p], expected),
            });
        }
        None
    }

    /// About how many steps it takes on a machine of so many CPUs, of that pace.
    fn steps_on(&self, cpus: usize, pace: &Pace) -> f64 {
        let at_once = |process: &ProcessSpec| {
            f64::from(process.copies_at_once()) * process.threads_on(cpus) as f64
        };
        let tasks: f64 = self.process.iter().map(at_once).sum();
        let share = (cpus as f64 / tasks).min(1.0);
        let of_files = self.file_blocks(cpus);
        let of = |process: &ProcessSpec| {
            if let Some(programs) = &process.programs {
                return programs.steps(pace);
            }
            let threads = process.threads_on(cpus);
            let slices = process.slices_of(threads);
            let steps = |phase: &PhaseSpec| match phase.seconds {
                Some(seconds) => {
                    process.timed_steps(phase, seconds, (threads, share), pace, &of_files)
                }
                None => process.steps(phase, slices, &of_files),
            };
            let rounds = f64::from(process.rounds.unwrap_or(1));
            let each: f64 = process.phase.iter().map(steps).sum();
            f64::from(process.copies) * threads as f64 * rounds * each
        };
        self.process.iter().map(of).sum()
    }

    /// Whether it ends within what anybody waits for.
    ///
    /// # Errors
    /// [`SimError::Unfit`] if not.
    pub(crate) fn check_steps(&self, cpus: usize, pace: &Pace) -> Result<(), SimError> {
        let steps = self.steps_on(cpus, pace);
        if steps <= MOST_STEPS {
            return Ok(());
        }
        let problem = format!(
            "its threads go over {steps:.0} blocks of 2 MiB, or parts of one, an event of an rt-app file being as much, \
             and no more than {MOST_STEPS} are simulated, which takes ten minutes: give --loops or --size, or its phases \
             fewer times or seconds or a wider range, or an rt-app file fewer loops, less global.duration or longer periods"
        );
        Err(SimError::Unfit { problem })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::slices;
    use super::*;
    use crate::machine::tests::small;
    use crate::{Options, Sim};

    fn said(threads: u32, rounds: u32, phase: &str) -> String {
        let text = format!(
            "title = 't'\n[[process]]\nthreads = {threads}\nmemory_mib = 4\nrounds = {rounds}\n[[process.phase]]\n\
             memory = 'all'\n{phase}\n"
        );
        let workload = match Workload::parse("w", "w", &text) {
            Ok(workload) => workload,
            Err(error) => return error.to_string(),
        };
        match Sim::new(&small(), &workload, Options::default()) {
            Ok(_) => "it runs".into(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_run_of_too_many_steps_is_told_before_it_begins() {
        let rounds = said(1, u32::MAX, "seconds = 1e-12");
        assert!(rounds.starts_with("w:5: expected process.rounds: so few"), "{rounds}");
        assert!(rounds.ends_with("not 4294967295, found 4294967295"), "{rounds}");
        // A millionth of memory, so often that it is as much as all of it.
        let times = said(1, 1, "range = [0, 1e-6]\nwhole = true\ntimes = 4294967295");
        assert!(times.starts_with("w:10: expected process.phase.times: so few"), "{times}");
        assert!(times.contains("not 4294967295000000"), "{times}");
        let times = said(1, 1, "times = 4294967295");
        assert!(times.starts_with("w:8: expected process.phase.times"), "{times}");
        // Ten thousand threads, each a few times: those are what there is most of.
        let threads = said(10_000, 1, "times = 200000");
        assert!(threads.contains("expected process.phase.times"), "{threads}");
        let threads = said(1_000_000, 1, "times = 2000");
        assert!(threads.starts_with("w:3: expected process.threads: so few"), "{threads}");
        // Each thread a thousandth of what is too many.
        assert!(said(1001, 1, "times = 1500000").contains("not 3003000000"));
        assert!(said(1, 1, "seconds = 10.0").contains("it runs"));
        // A part of a line takes a nanosecond: 10^13 of them in ten thousand seconds.
        let tiny = said(1, 1, "range = [0, 1e-8]\nseconds = 10000");
        assert!(tiny.contains("its threads go over") && tiny.contains("wider range"), "{tiny}");
        assert!(said(1, 1, "range = [0, 1e-8]\nseconds = 10000\nsleep_ms = 1").contains("it runs"));
    }

    /// Turns that take no time are events as others are, each with the little that it takes more.
    #[test]
    fn a_file_of_so_many_short_turns_is_told_before_it_begins() {
        let machine = small();
        let of = |task: &str| {
            let text = format!("{{\"tasks\": {{\"t\": {task}}}}}");
            Workload::parse_rt_app("w", "w.json", &text).unwrap()
        };
        let says = |task: &str| match Sim::new(&machine, &of(task), Options::default()) {
            Ok(_) => "it runs".to_string(),
            Err(error) => error.to_string(),
        };
        let idle = says("{\"loop\": 2000000000, \"run\": 0}");
        assert!(idle.contains("its threads go over 4000000000 blocks"), "{idle}");
        assert!(idle.contains("fewer loops") && !idle.contains('\n'), "{idle}");
        assert!(says("{\"loop\": 2000000000, \"yield\": \"\"}").contains("4000000000"));
        assert_eq!(says("{\"loop\": 500000000, \"run\": 0}"), "it runs");
        // No fewer than it takes, and not many times as many.
        for task in ["{\"loop\": 20000, \"run\": 0}", "{\"loop\": 20000, \"yield\": \"\"}"] {
            let mut sim = Sim::new(&machine, &of(task), Options::default()).unwrap();
            let ratio = of(task).steps_on(4, &Pace::of(&machine)) / sim.finish().events as f64;
            assert!((0.95..=2.1).contains(&ratio), "{task}: {ratio}");
        }
    }

    /// Passes are counted, and what there is time for is told as if memory carried what it can at best.
    #[test]
    fn steps_are_those_that_a_run_takes() {
        let machine = small();
        let mut workload = slices(8, 64, 40);
        let pace = Pace::of(&machine);
        // 8 threads, 40 times, 4 blocks each.
        assert_eq!(workload.steps_on(4, &pace), 1280.0);
        let ratio = |workload: &Workload| {
            let mut sim = Sim::new(&machine, workload, Options::default()).unwrap();
            let run = sim.finish();
            // Load is balanced every 20 ms, and eight tasks begin.
            let others = (run.seconds / 0.02).floor() + 8.0;
            workload.steps_on(4, &pace) / (run.events as f64 - others)
        };
        let counted = ratio(&workload);
        assert!((0.95..=1.05).contains(&counted), "{counted}");
        (workload.process[0].phase[0].times, workload.process[0].phase[0].seconds) = (0, Some(2.0));
        let timed = ratio(&workload);
        assert!((0.7..=4.0).contains(&timed), "{timed}");
        workload.process[0].phase[0].lock = true;
        let locked = ratio(&workload);
        assert!((0.3..=4.0).contains(&locked), "{locked}");
    }
}
