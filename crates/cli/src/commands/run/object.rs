//! Shared memory that gets a policy: a System V segment, or a file of tmpfs or hugetlbfs.
//! Lengths and offsets are bytes.

use std::fs::{File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use numaherd_linux::sys::mapping::{self, Mapping, Segment, Touch};
use numaherd_linux::sys::mempolicy::{self, BIND_STRICT, Told};
use numaherd_linux::sys::pages;
use numaherd_mempolicy::nodes::next_around;
use numaherd_mempolicy::{Mode, Request};
use numaherd_model::{NodeId, NodeSet};

/// What was not there is made only in a length.
const NO_LENGTH: &str = "need a --length to create a sysv shared memory segment";

/// Where in an object the policy goes, and how the object is made if there is none.
#[derive(Clone, Debug)]
pub struct Place {
    pub offset: u64,
    /// 0: to its end.
    pub len: u64,
    /// Permissions.
    pub mode: u32,
    /// Makes a System V key different.
    pub id: i32,
    pub huge: bool,
}

impl Default for Place {
    fn default() -> Self {
        Place { offset: 0, len: 0, mode: 0o600, id: 0, huge: false }
    }
}

impl Place {
    /// Where the part ends that has a length.
    fn end(&self) -> Result<u64> {
        match self.len.checked_add(self.offset) {
            Some(end) if i64::try_from(end).is_ok() => Ok(end),
            _ => misuse!(
                "--length and --offset together are more bytes than anything can have ({})",
                i64::MAX
            ),
        }
    }
}

/// The part of the object that gets a policy.
pub struct Object {
    mapping: Mapping,
    /// Of the part within the mapping.
    start: usize,
    len: usize,
    /// Of the part within the object.
    offset: u64,
    page: usize,
}

impl Object {
    /// The segment with the key of `name`, which is made if it does not exist; `caller` says so.
    pub fn segment(name: &str, place: &Place, caller: &str) -> Result<Object> {
        let whole = place.end()?;
        let (key, made_key) = key_of(name, place, caller)?;
        let mut made = None;
        let object = Object::of_key(key, name, (place, whole), caller, &mut made);
        if object.is_err() {
            // As it was; why that failed is told, and not that this does too.
            let _ = made.map(mapping::remove_segment);
            let _ = made_key.then(|| std::fs::remove_file(name));
        }
        object
    }

    /// The segment with this key; one that is made for it is told in `made`.
    fn of_key(
        key: i32,
        name: &str,
        (place, whole): (&Place, u64),
        caller: &str,
        made: &mut Option<i32>,
    ) -> Result<Object> {
        let found = Segment { key, len: 0, create: None, huge: place.huge };
        let id = match mapping::segment(found)? {
            Some(id) => id,
            None if place.len == 0 => bail!(NO_LENGTH),
            None => {
                say!(
                    "{caller}: Creating shared memory segment {name} id {} mode {:04o} length {}MB",
                    place.id,
                    place.mode,
                    whole >> 20
                );
                *made =
                    mapping::segment(Segment { len: whole, create: Some(place.mode), ..found })?;
                made.context("the segment that was made is gone")?
            }
        };
        let there = mapping::segment_len(id)?.0;
        let len = part_len(place, there)?;
        let mapping = Mapping::attach(id, there as usize)?;
        let page = if place.huge { huge_page()? } else { pages::size().0 as usize };
        Object::part(mapping, place.offset as usize, len, place.offset, page)
    }

    /// The file `name`, which is made, or made longer, if it needs be.
    pub fn file(name: &str, place: &Place) -> Result<Object> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let end = place.end()?;
        let (file, made) = match options.open(name) {
            Ok(file) => (file, false),
            Err(_) if place.len == 0 => bail!("need a --length to create a shared file"),
            Err(error) => {
                let made = options.create(true).mode(place.mode).open(name);
                let made = made.with_context(|| format!("cannot create file {name}"))?;
                (made, error.kind() == ErrorKind::NotFound)
            }
        };
        let about = file.metadata().with_context(|| format!("cannot look at {name}"))?;
        let object = Object::within(&file, name, place, end, &about);
        if object.is_err() {
            // As it was; why that failed is told, and not that this does too.
            let _ = match made {
                true => std::fs::remove_file(name),
                false if end > about.len() => file.set_len(about.len()),
                false => Ok(()),
            };
        }
        object
    }

    /// Part of a file that is made longer if it needs be.
    fn within(
        file: &File,
        name: &str,
        place: &Place,
        end: u64,
        about: &Metadata,
    ) -> Result<Object> {
        if end > about.len() {
            file.set_len(end).with_context(|| format!("cannot make {name} longer"))?;
        }
        let there = file.metadata().with_context(|| format!("cannot look at {name}"))?.len();
        let len = part_len(place, there)?;
        let mapping = Mapping::file(file, place.offset, len)
            .with_context(|| format!("cannot use {len} bytes of {name}"))?;
        let page = usize::try_from(about.blksize()).unwrap_or(0).max(pages::size().0 as usize);
        Object::part(mapping, 0, len, place.offset, page)
    }

    fn part(
        mapping: Mapping,
        start: usize,
        len: usize,
        offset: u64,
        page: usize,
    ) -> Result<Object> {
        if !(mapping.start() as usize + start).is_multiple_of(page) || !len.is_multiple_of(page) {
            bail!("policy region not page aligned (a page has {page} bytes)");
        }
        Ok(Object { mapping, start, len, offset, page })
    }

    /// Puts a policy on the part.
    pub fn bind(&self, request: &Request, strict: bool) -> Result<()> {
        let flags = if strict { BIND_STRICT } else { 0 };
        Ok(mempolicy::bind(self.address(0), self.len as u64, request, flags)?)
    }

    /// Gives the part's policy a home node.
    pub fn set_home(&self, home: NodeId) -> Result<()> {
        Ok(mempolicy::set_home(self.address(0), self.len as u64, home)?)
    }

    /// Brings its pages in.
    pub fn touch(&mut self) {
        self.mapping.touch(self.start..self.start + self.len, Touch::Write);
    }

    fn address(&self, at: usize) -> u64 {
        self.mapping.start() + (self.start + at) as u64
    }

    /// Prints the policies, each with where it begins and ends in the object.
    pub fn dump(&self) -> Result<()> {
        let mut policies = Vec::new();
        for at in (0..self.len).step_by(self.page) {
            policies.push(mempolicy::get_at(self.address(at))?);
        }
        for (begin, end, told) in runs(&policies) {
            if told.mode() == Some(Mode::Default) {
                continue;
            }
            let word = told.mode().map_or("[unknown]", Mode::numactl_word);
            put!("{}: {word} : ", self.range(begin, end));
            told.nodes.iter().for_each(|node| put!("{node} "));
            put!("\n");
        }
        Ok(())
    }

    /// Prints the nodes its pages are on.
    pub fn dump_nodes(&self) -> Result<()> {
        let mut nodes = Vec::new();
        for at in (0..self.len).step_by(self.page) {
            nodes.push(mempolicy::node_at(self.address(at))?);
        }
        for (begin, end, node) in runs(&nodes) {
            putln!("{}: {node}", self.range(begin, end));
        }
        Ok(())
    }

    fn range(&self, begin: usize, end: usize) -> String {
        let at = |page: usize| self.offset + (page * self.page) as u64;
        format!("{:016x}-{:016x}", at(begin), at(end))
    }

    /// Brings its pages in and tells which have another policy, or lie elsewhere, than `policy`
    /// says. Whether all is well.
    pub fn verify(&mut self, policy: &Request) -> Result<bool> {
        self.touch();
        let mut well = true;
        let mut turn: Option<NodeId> = None;
        for at in (0..self.len).step_by(self.page) {
            let address = self.address(at);
            let told = mempolicy::get_at(address)?;
            let node = mempolicy::node_at(address)?;
            let (wrong, next) = mistake(policy, &told, node, turn);
            turn = next;
            if let Some(wrong) = wrong {
                putln!("numactl verify {address:x}({at:x}): {wrong}");
                well = false;
                if told.raw != policy.mode.raw() || policy.mode == Mode::Interleave {
                    break;
                }
            }
        }
        Ok(well)
    }
}

/// What is wrong with a page, and the node of the one before, for those in turn.
fn mistake(
    policy: &Request,
    told: &Told,
    node: NodeId,
    before: Option<NodeId>,
) -> (Option<String>, Option<NodeId>) {
    if told.raw != policy.mode.raw() {
        let real = told.mode().map_or("[unknown]", Mode::numactl_word);
        let wanted = policy.mode.numactl_word();
        return (Some(format!("wrong policy {real}, expected {wanted}")), before);
    }
    if told.nodes != policy.nodes {
        let nodes = format!("mismatched node mask: expected {}, real {}", policy.nodes, told.nodes);
        return (Some(nodes), before);
    }
    let within = |nodes: &NodeSet| nodes.contains(node);
    match policy.mode {
        Mode::Interleave => {
            let expected = before.and_then(|before| next_around(&told.nodes, Some(before)));
            let wrong = match expected {
                Some(expected) if expected != node => {
                    Some(format!("expected interleave node {expected}, got {node}"))
                }
                None if !within(&told.nodes) => {
                    Some(format!("interleave node out of range {node}"))
                }
                _ => None,
            };
            (wrong, Some(node))
        }
        Mode::Bind | Mode::Preferred | Mode::PreferredMany | Mode::WeightedInterleave
            if !within(&told.nodes) =>
        {
            (Some(format!("unexpected node {node}, expected {}", told.nodes)), before)
        }
        _ => (None, before),
    }
}

/// Runs of equal neighbours: first, one behind the last, and what they are.
fn runs<T: PartialEq>(all: &[T]) -> impl Iterator<Item = (usize, usize, &T)> {
    all.chunk_by(|a, b| a == b).scan(0, |at, run| {
        let begin = *at;
        *at += run.len();
        run.first().map(|one| (begin, *at, one))
    })
}

/// The key, and whether its file was made for it.
fn key_of(name: &str, place: &Place, caller: &str) -> Result<(i32, bool)> {
    if let Some(key) = mapping::key(Path::new(name), place.id) {
        return Ok((key, false));
    }
    if place.len == 0 {
        bail!(NO_LENGTH);
    }
    let made: std::io::Result<File> =
        OpenOptions::new().write(true).create(true).truncate(true).mode(place.mode).open(name);
    made.with_context(|| format!("cannot create key for shm {name}"))?;
    say!("{caller}: Creating shm key file {name} mode {:04o}", place.mode);
    let key = mapping::key(Path::new(name), place.id)
        .with_context(|| format!("cannot get key for newly created shm key file {name}"))?;
    Ok((key, true))
}

/// The length of the part, which must lie within what is there.
fn part_len(place: &Place, there: u64) -> Result<usize> {
    let len = if place.len == 0 { there.saturating_sub(place.offset) } else { place.len };
    if len == 0 {
        bail!("policy region length not specified before --shm/--file");
    }
    if place.offset.saturating_add(len) > there {
        bail!(
            "region offset {:#x} and length {len:#x} go beyond its length {there:#x}",
            place.offset
        );
    }
    usize::try_from(len).context("more than this machine can address")
}

fn huge_page() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<usize>().ok());
    Ok(kib.context("this kernel has no huge pages")? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_in_turn_are_checked_against_the_one_before() {
        let policy = Request::plain(Mode::Interleave, "0,2".parse().unwrap());
        let told = Told { raw: 3, nodes: policy.nodes.clone() };
        let (wrong, turn) = mistake(&policy, &told, NodeId(2), None);
        assert_eq!((wrong, turn), (None, Some(NodeId(2))), "any node may be the first");
        assert_eq!(mistake(&policy, &told, NodeId(0), turn).0, None);
        let wrong = mistake(&policy, &told, NodeId(2), turn).0.unwrap();
        assert_eq!(wrong, "expected interleave node 0, got 2");
        let other = Told { raw: 2, nodes: policy.nodes.clone() };
        let wrong = mistake(&policy, &other, NodeId(0), None).0.unwrap();
        assert_eq!(wrong, "wrong policy bind, expected interleave");
    }

    #[test]
    fn runs_of_equal_neighbours_are_found() {
        let all: Vec<_> = runs(&[7, 7, 8, 7]).collect();
        assert_eq!(all, [(0, 2, &7), (2, 3, &8), (3, 4, &7)]);
    }

    #[test]
    fn a_part_beyond_the_end_is_refused() {
        let place = Place { offset: 4096, len: 8192, ..Place::default() };
        assert!(part_len(&place, 8192).unwrap_err().to_string().contains("beyond"));
        assert_eq!(part_len(&place, 12288).unwrap(), 8192);
        assert_eq!(part_len(&Place { len: 0, ..place }, 12288).unwrap(), 8192);
    }
}
