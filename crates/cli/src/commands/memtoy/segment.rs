//! A piece of memory that memtoy has made. Lengths and offsets are bytes.

use std::fmt::{self, Write as _};
use std::ops::Range;

use anyhow::{Context, Result, bail};
use numaherd_linux::sys::mapping::{self, Mapping, Touch};
use numaherd_linux::sys::mempolicy::{self, BIND_MOVE, Told};
use numaherd_linux::sys::pages::{self, PageStatus, Target};
use numaherd_mempolicy::{Mode, Request};
use numaherd_model::NodeId;

/// Mapped memory, and what it is.
pub struct Segment {
    mapping: Mapping,
    kind: String,
}

impl Segment {
    /// Anonymous memory.
    pub fn anonymous(len: usize, shared: bool) -> Result<Segment> {
        let mapping = if shared { Mapping::shared(len)? } else { Mapping::private(len)? };
        mapping.without_huge_pages();
        let kind = if shared { "anonymous, shared" } else { "anonymous" };
        Ok(Segment { mapping, kind: kind.to_string() })
    }

    /// A System V segment that goes when it is removed here.
    pub fn system_v(len: usize) -> Result<Segment> {
        let wanted = mapping::Segment {
            key: 0, // IPC_PRIVATE: always a new one
            len: len as u64,
            create: Some(0o600),
            huge: false,
        };
        let id = mapping::segment(wanted)?.context("the segment was not made")?;
        let mapping = Mapping::attach(id, len);
        mapping::remove_segment(id)?;
        Ok(Segment { mapping: mapping?, kind: "System V".to_string() })
    }

    /// Part of a file.
    pub fn file(path: &str, offset: u64, len: Option<usize>) -> Result<Segment> {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path);
        let file = file.with_context(|| format!("cannot open {path}"))?;
        let there = file.metadata()?.len().saturating_sub(offset);
        let len = len.map_or(there, |len| len as u64);
        if len == 0 || len > there {
            bail!("{path} has {there} bytes from there");
        }
        let mapping = Mapping::file(&file, offset, usize::try_from(len)?)?;
        Ok(Segment { mapping, kind: format!("file {path}") })
    }

    /// Length.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Touches a part's pages.
    pub fn touch(&mut self, part: Range<usize>, how: Touch) {
        self.mapping.touch(part, how);
    }

    /// Locks a part, or lets go of it.
    pub fn lock(&self, part: Range<usize>, lock: bool) -> Result<()> {
        Ok(self.mapping.lock(part, lock)?)
    }

    /// Puts a policy on a part.
    pub fn bind(&self, part: Range<usize>, request: &Request, moves: bool) -> Result<()> {
        let flags = if moves { BIND_MOVE } else { 0 };
        let start = self.mapping.start() + part.start as u64;
        Ok(mempolicy::bind(start, part.len() as u64, request, flags)?)
    }

    /// Gives a part's policy a home node.
    pub fn set_home(&self, part: Range<usize>, home: NodeId) -> Result<()> {
        let start = self.mapping.start() + part.start as u64;
        Ok(mempolicy::set_home(start, part.len() as u64, home)?)
    }

    /// The addresses of a part's pages, and the number of the first.
    fn pages(&self, part: &Range<usize>) -> (u64, Vec<u64>) {
        let page = pages::size().0;
        let first = part.start as u64 / page;
        let all = first..(part.end as u64).div_ceil(page);
        (first, all.map(|index| self.mapping.start() + index * page).collect())
    }

    /// Moves a part's pages to a node. How many came there from others, and how many did not.
    pub fn migrate(&self, part: Range<usize>, node: NodeId) -> Result<(usize, usize)> {
        let (_, addresses) = self.pages(&part);
        let mut raw = Vec::new();
        pages::query(std::process::id(), &addresses, &mut raw)?;
        let elsewhere =
            |status: i32| !matches!(PageStatus::from_raw(status), PageStatus::On(on) if on == node);
        let is_page = |status: i32| matches!(PageStatus::from_raw(status), PageStatus::On(_));
        let pages = addresses.into_iter().zip(&raw);
        let pages = pages.filter(|(_, status)| is_page(**status) && elsewhere(**status));
        let addresses: Vec<u64> = pages.map(|(address, _)| address).collect();
        pages::migrate(std::process::id(), &addresses, Target::One(node), false, &mut raw)?;
        let stayed = raw.iter().filter(|status| elsewhere(**status)).count();
        Ok((addresses.len() - stayed, stayed))
    }

    /// Where a part's pages are, and its policies, as lines.
    pub fn whereabouts(&self, part: Range<usize>) -> Result<String> {
        let (first, addresses) = self.pages(&part);
        let mut raw = Vec::new();
        pages::query(std::process::id(), &addresses, &mut raw)?;
        let mut counts: std::collections::BTreeMap<String, u64> = Default::default();
        for status in raw {
            let place = match PageStatus::from_raw(status) {
                PageStatus::On(node) => format!("on node {node}"),
                PageStatus::Absent => "absent".to_string(),
                // all of it is mapped, so the kernel means this by it
                PageStatus::ZEROES => "read only, the shared page of zeroes".into(),
                other => format!("{other:?}").to_lowercase(),
            };
            *counts.entry(place).or_default() += 1;
        }
        let mut text = String::new();
        for (place, count) in counts {
            // writing to a String cannot fail
            let _ = writeln!(text, "{count:>8} pages {place}");
        }
        let told: Result<Vec<Told>, _> =
            addresses.iter().map(|&at| mempolicy::get_at(at)).collect();
        let mut at = first;
        for run in told?.chunk_by(|a, b| a == b) {
            let last = at + run.len() as u64 - 1;
            let mode = run[0].mode().map_or("[unknown]", Mode::kernel_word);
            let flags = run[0].flags();
            let flags = if flags.any() { format!("={flags}") } else { String::new() };
            let nodes = &run[0].nodes;
            let nodes = if nodes.is_empty() { String::new() } else { format!(":{nodes}") };
            let _ = writeln!(text, "  pages {at}-{last}: {mode}{flags}{nodes}");
            at = last + 1;
        }
        Ok(text)
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}, {}", self.len(), self.mapping.start(), self.kind)
    }
}
