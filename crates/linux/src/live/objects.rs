//! Which memory several processes in our care map: remembered for a while, since asking costs a file a
//! process.

use std::collections::BTreeMap;

use numaherd_model::{Nanos, ObjectId, ProcessId, SharedRange};

use crate::ReadError;
use crate::system::System;

/// How old it may be. Guessed: segments are mapped at a program's start and stay.
const AGE: Nanos = Nanos(10_000_000_000);

/// See the module.
#[derive(Debug, Default)]
pub struct Objects {
    looked: Option<(Nanos, Vec<ProcessId>)>,
    common: Vec<SharedRange>,
}

impl Objects {
    /// The ranges of these processes, ascending, of objects that at least two of them map. Nothing is
    /// read for a process that is alone.
    pub fn common(
        &mut self,
        system: &mut dyn System,
        processes: impl Iterator<Item = ProcessId>,
        now: Nanos,
    ) -> Result<&[SharedRange], ReadError> {
        let processes: Vec<ProcessId> = processes.collect();
        let known = |(at, of): &(Nanos, Vec<ProcessId>)| now.since(*at) < AGE && *of == processes;
        if !self.looked.as_ref().is_some_and(known) {
            self.common = if processes.len() > 1 { look(system, &processes)? } else { Vec::new() };
            self.looked = Some((now, processes));
        }
        Ok(&self.common)
    }

    /// Whether a piece of an address space is one of them.
    pub fn has(&self, process: ProcessId, addresses: &std::ops::Range<u64>) -> bool {
        let inside = |range: &SharedRange| {
            range.process == process && range.start < addresses.end && addresses.start < range.end()
        };
        self.common.iter().any(inside)
    }
}

fn look(system: &mut dyn System, processes: &[ProcessId]) -> Result<Vec<SharedRange>, ReadError> {
    let mut all = Vec::new();
    let mut mapped_by: BTreeMap<ObjectId, (ProcessId, bool)> = BTreeMap::new();
    for &process in processes {
        let ranges = match system.shared_ranges(process.tgid) {
            // Of somebody else's, which they may be all the same: such as a child that is another user.
            Err(error) if error.is_refused() => None,
            ranges => ranges?,
        };
        for range in ranges.unwrap_or_default() {
            let (first, several) = mapped_by.entry(range.object).or_insert((process, false));
            *several |= *first != process;
            let (start, len, object, offset) = (range.start, range.len, range.object, range.offset);
            all.push(SharedRange { process, start, len, object, offset });
        }
    }
    all.retain(|range| mapped_by.get(&range.object).is_some_and(|(_, several)| *several));
    all.sort_unstable_by_key(|range| (range.process, range.start));
    Ok(all)
}
