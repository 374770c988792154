//! The machine from time to time: who runs where, where memory is, how much of its use is local.
//!
//! At most [`MOST`] samples are kept: when there are more, every other one goes, and they are taken
//! half as often. A sample's share is that of the time since the one before it.

use super::{Event, Sim, State};

/// Samples that are kept. Guessed: as many as a picture has columns.
const MOST: usize = 512;
/// Between two samples at first.
const FIRST_NS: u64 = 10_000_000;

/// One moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub ns: u64,
    /// Tasks that run or wait, by process and node index.
    pub tasks: Vec<Vec<u32>>,
    /// Blocks of 2 MiB, by process and node index.
    pub blocks: Vec<Vec<u32>>,
    /// Bytes of files, by node index.
    pub files: Vec<u64>,
    /// Lines, local and all, since the start.
    lines: (f64, f64),
}

/// Samples so far.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    taken: Vec<Sample>,
    every_ns: u64,
}

impl Samples {
    /// Takes the first.
    pub(crate) fn begin(sim: &mut Sim) {
        sim.samples.every_ns = FIRST_NS;
        sim.schedule(FIRST_NS, Event::Sample);
    }

    fn keep(&mut self, sample: Sample) {
        self.taken.push(sample);
        if self.taken.len() > MOST {
            let mut number = 0;
            self.taken.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            self.every_ns *= 2;
        }
    }
}

impl Sim {
    pub(super) fn sample(&mut self) {
        let nodes = self.machine.node.len();
        let mut tasks = vec![vec![0; nodes]; self.processes.len()];
        for task in &self.tasks {
            if matches!(task.state, State::Running | State::Waiting) {
                tasks[task.process][self.node_of[task.cpu]] += 1;
            }
        }
        let mut blocks = vec![vec![0; nodes]; self.processes.len()];
        for (process, blocks) in self.processes.iter().zip(&mut blocks) {
            process.blocks.iter().for_each(|block| blocks[usize::from(block.home)] += 1);
        }
        let files = self.files.on().to_vec();
        self.samples.keep(Sample { ns: self.now, tasks, blocks, files, lines: self.lines });
        self.schedule(self.now + self.samples.every_ns, Event::Sample);
    }

    /// What was sampled.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples.taken
    }

    /// Local ÷ all between each sample and the one before it.
    #[must_use]
    pub fn local_shares(&self) -> Vec<f64> {
        let mut before = (0.0, 0.0);
        let share = |sample: &Sample| {
            let (local, all) = (sample.lines.0 - before.0, sample.lines.1 - before.1);
            before = sample.lines;
            if all > 0.0 { local / all } else { 1.0 }
        };
        self.samples.taken.iter().map(share).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::layout::Tie;
    use crate::machine::tests::small;
    use crate::workload::tests::slices;
    use crate::{Options, Sim};

    #[test]
    fn samples_are_few_however_long_it_takes_and_say_who_is_where() {
        let run = |times| {
            let options = Options { tie: Tie::Inverse, samples: true, ..Options::default() };
            let mut sim = Sim::new(&small(), &slices(4, 32, times), options).unwrap();
            sim.finish();
            sim
        };
        // 0.25 s: a sample every 10 ms. 25 s: 2500 of these are too many, and every 80 ms few.
        for (times, most) in [(15, 30), (1500, 512)] {
            let sim = run(times);
            assert!((5..=most).contains(&sim.samples().len()), "{}", sim.samples().len());
            let middle = &sim.samples()[sim.samples().len() / 2];
            assert_eq!((&middle.tasks[0], &middle.blocks[0]), (&vec![2, 2], &vec![8, 8]));
            assert!(sim.local_shares().iter().all(|share| *share == 0.0));
        }
    }
}
