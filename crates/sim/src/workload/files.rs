//! Files that processes read and write: their table in a workload file, what is wrong with it, and which parts of them
//! phases go over.
//!
//! ```
//! let text = r#"
//! title = "four processes that each write a quarter of a file"
//! [[file]]
//! name = "output"
//! mib = 64
//! [[process]]
//! copies = 4
//! threads = 1
//! memory_mib = 2
//! [[process.phase]]
//! memory = "file"
//! file = "output"
//! part = "slice"
//! times = 1
//! "#;
//! let workload = numaherd_sim::Workload::parse("mine", "mine.toml", text).unwrap();
//! assert_eq!(workload.bytes(8), f64::from(64 << 20));
//! ```

use serde::Deserialize;

use super::{MOST_MIB, Part, PhaseSpec, ProcessSpec, Workload};
use crate::engine::files::blocks;
use crate::wrong::Wrong;

/// A file of one process's memory at the most.
const MOST_FILE_MIB: u64 = 1 << 24;

/// Memory of a file, or of a tree of files: tmpfs, or the page cache.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSpec {
    /// What phases call it.
    pub name: String,
    /// Its size.
    pub mib: u64,
    /// Where it lies at the start.
    #[serde(default)]
    pub start: FileStart,
}

/// Where a file lies at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileStart {
    /// Nowhere: each part comes to lie where it is first written or read.
    #[default]
    FirstTouch,
    /// All on the machine's first node, where somebody wrote it before.
    OneNode,
    /// On all nodes with CPUs and memory in turn.
    Interleave,
}

/// Part of a file that a phase goes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilePart {
    /// All of it.
    All,
    /// An equal part for each slice of each copy of the process.
    Slice,
}

/// A phase's file, looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its index.
    pub file: usize,
    /// Its size.
    pub mib: u64,
}

impl PhaseSpec {
    /// The index of the file that it goes over, if it goes over one.
    pub(crate) fn of_file(&self) -> Option<usize> {
        self.found.map(|found| found.file)
    }

    /// Whether each slice has a part of its own of what it goes over.
    pub(super) fn is_shared_out(&self) -> bool {
        match self.memory {
            Part::All | Part::Nothing => false,
            Part::File => self.part == Some(FilePart::Slice),
            Part::Slice | Part::NextSlice | Part::SharedPart => true,
        }
    }

    /// What is wrong with the fields of a file, and what was expected.
    pub(super) fn of_file_problem(&self) -> Option<(&'static str, &'static str)> {
        let is_file = self.memory == Part::File;
        match (&self.file, self.part) {
            (None, _) if is_file => {
                Some(("process.phase.memory", "file with the phase's file, the name of a [[file]]"))
            }
            (Some(_), _) if is_file && self.found.is_none() => {
                Some(("process.phase.file", "the name of a [[file]]"))
            }
            (Some(_), _) if !is_file => Some(("process.phase.file", "with memory = \"file\"")),
            (_, Some(_)) if !is_file => Some(("process.phase.part", "with memory = \"file\"")),
            _ => None,
        }
    }
}

impl ProcessSpec {
    /// Bytes of what a phase goes over a part of: its memory, or a file.
    pub(super) fn bytes_of(&self, phase: &PhaseSpec) -> f64 {
        (phase.found.map_or(self.memory_mib, |found| found.mib) << 20) as f64
    }

    /// Into how many parts of their own that phase has its file gone over, with so many slices.
    pub(super) fn file_parts(&self, phase: &PhaseSpec, slices: usize) -> u64 {
        if phase.is_shared_out() { u64::from(self.copies) * slices as u64 } else { 1 }
    }
}

impl Workload {
    /// Looks up the files of all phases.
    pub(crate) fn find_files(&mut self) {
        for phase in self.process.iter_mut().flat_map(|process| &mut process.phase) {
            let named = |file: &FileSpec| Some(&file.name) == phase.file.as_ref();
            let is_file = phase.memory == Part::File;
            let file = self.file.iter().position(named).filter(|_| is_file);
            phase.found = file.map(|file| Found { file, mib: self.file[file].mib });
        }
    }

    /// Into how many blocks each file is divided on a machine of so many CPUs.
    pub(crate) fn file_blocks(&self, cpus: usize) -> Vec<u64> {
        let mut parts = vec![1; self.file.len()];
        for process in &self.process {
            let slices = process.slices_of(process.threads_on(cpus));
            for phase in &process.phase {
                if let Some(file) = phase.of_file() {
                    parts[file] = process.file_parts(phase, slices).max(parts[file]);
                }
            }
        }
        self.file.iter().zip(parts).map(|(file, parts)| blocks(file.mib << 20, parts)).collect()
    }

    /// The first thing wrong with the files' own tables.
    pub(super) fn wrong_file(&self) -> Option<Wrong> {
        let mut mib = 0;
        self.file.iter().enumerate().find_map(|(at, file)| {
            let wrong = |field, expected: &str| Some(Wrong::new(field, &[at], expected));
            if file.name.is_empty() {
                return wrong("file.name", "a name");
            }
            if self.file[..at].iter().any(|other| other.name == file.name) {
                return wrong("file.name", "a name that no other file has");
            }
            if !(1..=MOST_FILE_MIB).contains(&file.mib) {
                return wrong("file.mib", &format!("1 to {MOST_FILE_MIB}"));
            }
            mib += file.mib;
            if mib > MOST_MIB {
                return wrong("file.mib", &format!("with all files at most {MOST_MIB} in all"));
            }
            None
        })
    }

    /// A file that nobody goes over.
    pub(super) fn idle_file(&self) -> Option<Wrong> {
        let phases = || self.process.iter().flat_map(|process| &process.phase);
        let is_idle = |file: &usize| phases().all(|phase| phase.of_file() != Some(*file));
        let idle = (0..self.file.len()).find(is_idle)?;
        Some(Wrong::new("file.name", &[idle], "a file that a phase goes over"))
    }
}
