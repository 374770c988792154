//! Last-level caches: what was gone over a moment ago is found there.
//!
//! A cache holds what was brought into it last, up to its size. So a thread finds a block in it that a
//! thread of one of its CPUs has gone over, if no more than the cache holds, that block included, was brought in
//! since that began; and nobody elsewhere has written it meanwhile, where caches are coherent.
//!
//! Worked example (`what_fits_the_cache_stays_there`): a line takes 64 ns, of a memory 100 ns away. A cache of
//! 2 MiB that is 30 ns away makes that 19.2 ns for who goes over 2 MiB again and again, and changes nothing
//! for who goes over 4 MiB.
//!
//! Not modelled: sets and ways, a CPU's own cache, lines touched here and there, lines that come from another
//! CPU's cache. And threads that are less than a block apart: whether they stay in step, each finding what the other has
//! just fetched, hangs on microseconds.

use super::{LINE_BYTES, Sim};
use crate::machine::Machine;

/// Nobody has gone over the block.
const NEVER: f64 = f64::NEG_INFINITY;

/// What the caches hold.
pub(super) struct Caches {
    bytes: f64,
    coherent: bool,
    /// By CPU, its cache.
    of_cpu: Vec<usize>,
    /// Bytes that steps which are over brought into each.
    brought: Vec<f64>,
    /// By whose it is ([`Sim::owner`]), block and cache: what had been brought in when the last thread that has gone
    /// over the block there began it.
    begun: Vec<Vec<f64>>,
}

impl Caches {
    /// Empty ones, where they count.
    pub(super) fn new(machine: &Machine) -> Option<Caches> {
        let (llc, of_cpu) = (machine.llc.as_ref()?, machine.caches()?);
        Some(Caches {
            bytes: llc.bytes,
            coherent: machine.coherent,
            brought: vec![0.0; of_cpu.iter().max()? + 1],
            of_cpu,
            begun: Vec::new(),
        })
    }

    /// By cache, what had been brought in when that block was begun.
    fn copies(&mut self, owner: usize, block: usize) -> &mut [f64] {
        let count = self.brought.len();
        if self.begun.len() <= owner {
            self.begun.resize_with(owner + 1, Vec::new);
        }
        let own = &mut self.begun[owner];
        if own.len() < (block + 1) * count {
            own.resize((block + 1) * count, NEVER);
        }
        &mut own[block * count..][..count]
    }
}

impl Sim {
    /// Whether that block is in the CPU's last-level cache, into which so much has been brought.
    pub(super) fn is_cached(&self, cpu: usize, owner: usize, block: usize, brought: f64) -> bool {
        let Some(caches) = &self.caches else { return false };
        let at = block * caches.brought.len() + caches.of_cpu[cpu];
        let begun = caches.begun.get(owner).and_then(|begun| begun.get(at));
        begun.is_some_and(|begun| brought - begun <= caches.bytes)
    }

    /// Bytes that have been brought into the CPU's last-level cache until now.
    pub(super) fn brought(&self, cpu: usize) -> f64 {
        let Some(caches) = &self.caches else { return 0.0 };
        let cache = caches.of_cpu[cpu];
        let now = (0..self.steps.len()).filter(|&other| caches.of_cpu[other] == cache);
        caches.brought[cache] + now.map(|other| self.brings(other)).sum::<f64>()
    }

    /// Of that, the CPU's step that is not over.
    fn brings(&self, cpu: usize) -> f64 {
        let step = &self.steps[cpu];
        let all_ns = step.ends.saturating_sub(step.lines_from);
        if step.is_cached || all_ns == 0 {
            return 0.0;
        }
        let since_ns = self.now.saturating_sub(step.lines_from).min(all_ns);
        step.lines * LINE_BYTES * since_ns as f64 / all_ns as f64
    }

    /// The CPU's step went over so many lines of memory.
    pub(super) fn bring(&mut self, cpu: usize, lines: f64) {
        if let Some(caches) = &mut self.caches {
            caches.brought[caches.of_cpu[cpu]] += lines * LINE_BYTES;
        }
    }

    /// The CPU's thread writes a block: others' copies are none any more, where caches are coherent.
    pub(super) fn take_from_others(&mut self, cpu: usize, owner: usize, block: usize) {
        let Some(caches) = self.caches.as_mut().filter(|caches| caches.coherent) else { return };
        let own = caches.of_cpu[cpu];
        let copies = caches.copies(owner, block);
        copies
            .iter_mut()
            .enumerate()
            .filter(|&(cache, _)| cache != own)
            .for_each(|(_, at)| *at = NEVER);
    }

    /// The CPU's thread has gone over a block, which it began when so much had been brought in.
    pub(super) fn keep(
        &mut self,
        cpu: usize,
        owner: usize,
        block: usize,
        begun: f64,
        writes: bool,
    ) {
        if writes {
            self.take_from_others(cpu, owner, block);
        }
        let Some(caches) = &mut self.caches else { return };
        let own = caches.of_cpu[cpu];
        caches.copies(owner, block)[own] = begun;
    }

    /// A process has ended. What it read and wrote of files stays.
    pub(super) fn forget(&mut self, process: usize) {
        let owner = self.owner(process, None);
        let begun = self.caches.as_mut().and_then(|caches| caches.begun.get_mut(owner));
        begun.into_iter().for_each(|begun| *begun = Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::tests::SMALL;
    use crate::{Machine, Options, Sim, Tie, Workload};

    /// Nanoseconds a line takes each of a process's threads, which go over all of its memory. Memory and
    /// links make nobody wait.
    fn line_ns(machine: &str, mib: u32, process: &str, phase: &str) -> f64 {
        const TIMES: u32 = 200;
        let wide = SMALL.replace("= 3000", "= 300000").replace("= 10000", "= 300000");
        let machine = Machine::parse("x", "x", &(wide + machine)).unwrap();
        let text = format!(
            "title = \"t\"\n[[process]]\nmemory_mib = {mib}\nbind = \"process\"\n{process}\n\
             [[process.phase]]\nmemory = \"all\"\ntimes = {TIMES}\n{phase}"
        );
        let workload = Workload::parse("t", "t", &text).unwrap();
        let options = Options { tie: Tie::Bind, ..Options::default() };
        let run = Sim::new(&machine, &workload, options).unwrap().finish();
        run.seconds * 1e9 / f64::from(TIMES) / (f64::from(mib) * 1_048_576.0 / 64.0)
    }

    fn close(found: f64, expected: f64) {
        // The first of the passes is always from memory.
        assert!((found / expected - 1.0).abs() < 0.03, "{found} instead of {expected}");
    }

    const CACHE: &str = "\n[llc]\nbytes = 2_097_152\nlatency_ns = 30\n";
    /// A process of a thread on each node.
    const APART: &str = "copies = 2\nthreads = 1";

    #[test]
    fn what_fits_the_cache_stays_there() {
        close(line_ns("", 2, APART, ""), 64.0);
        close(line_ns(CACHE, 2, APART, ""), 19.2);
        close(line_ns(CACHE, 4, APART, ""), 64.0);
        // It has to be looked up there, too, by who only reads.
        close(line_ns(CACHE, 2, APART, "writes = false"), 19.2);
    }

    #[test]
    fn who_shares_a_cache_pushes_others_lines_out() {
        let two = "copies = 4\nthreads = 1";
        close(line_ns(CACHE, 2, two, ""), 64.0);
        // Unless each CPU has its own.
        close(line_ns(&(CACHE.to_string() + "cpus = 1\n"), 2, two, ""), 19.2);
    }

    #[test]
    fn what_others_write_has_to_be_fetched_again_where_caches_are_coherent() {
        // A thread on each node, memory on either. Who has written it last may come first again, and finds
        // it then; the other does not.
        let both = "threads = 2";
        let coherent = CACHE.to_string() + "[coherence]\n";
        assert!(line_ns(&coherent, 2, both, "") > 48.0);
        close(line_ns(&coherent, 2, both, "writes = false"), 19.2);
        close(line_ns(CACHE, 2, both, ""), 19.2);
    }
}
