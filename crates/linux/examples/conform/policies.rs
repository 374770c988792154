//! Random policies in random cpusets, which then change: the kernel against the crate.
//!
//! A case: the cpuset becomes A; a policy is asked for, for the thread or for a range of private
//! memory or of a file in memory; what the kernel answers, tells of it and does with fresh pages
//! is compared with [`Policy::new`] and [`Machine::place`]; the cpuset becomes B; all is compared
//! again with [`Policy::rebind`]. An object's policy (that of the file) is not rebound by the
//! kernel, which is predicted too.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fastrand::Rng;
use numaherd_linux::sys::mapping::{Mapping, Touch};
use numaherd_linux::sys::pages::{self, PageStatus};
use numaherd_linux::sys::{SysError, affinity, mempolicy};
use numaherd_linux::weights;
use numaherd_mempolicy::placing::{Machine, Page};
use numaherd_mempolicy::{Errno, Flags, Mode, Policy, Request, Room};
use numaherd_model::{CpuSet, NodeId, NodeSet, Topology};

/// Pages touched before the cpuset changes, and again after it.
const PAGES: usize = 12;
const PAGE: usize = 4096;

/// What the policy is put on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    Thread,
    Private,
    Object,
}

struct Site {
    topology: Topology,
    machine: Machine,
    memory: NodeSet,
}

/// Compares `count` cases; returns how many differ.
pub fn run(count: u32, seed: u64) -> u32 {
    super::enter_group();
    let topology = numaherd_linux::topology::read(Path::new("/")).unwrap();
    let mut machine = Machine::new(&topology);
    machine.weights = weights::read(Path::new("/"));
    let memory: NodeSet = topology.memory_nodes().map(|node| node.id).collect();
    let mut site = Site { topology, machine, memory };
    let mut rng = Rng::with_seed(seed);
    let (mut different, mut refused, mut looked) = (0, 0, 0);
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..count {
        if rng.u32(..10) == 0 {
            site.new_weights(&mut rng);
        }
        let case = Case::random(&mut rng, &site);
        let key = (case.request.mode, case.request.flags.to_string(), format!("{:?}", case.on));
        *seen.entry(key).or_insert(0) += 1;
        match case.check(&site) {
            Ok(None) => refused += 1,
            Ok(Some(pages)) => looked += pages,
            Err(problem) => {
                different += 1;
                println!("DIFFERENT {case:?}: {problem}");
            }
        }
    }
    println!(
        "{count} cases ({} kinds of mode, flags and scope), {refused} refused by both, {looked} pages looked at; {different} differ",
        seen.len()
    );
    different
}

impl Site {
    fn new_weights(&mut self, rng: &mut Rng) {
        let wanted = self.memory.iter().map(|node| (node, rng.u8(1..6))).collect();
        if weights::write(Path::new("/"), &wanted).is_ok() {
            self.machine.weights = wanted;
        }
    }
}

#[derive(Debug)]
struct Case {
    before: NodeSet,
    after: NodeSet,
    request: Request,
    on: On,
    /// Memory that is touched: a file's, or private.
    file: bool,
    /// The thread runs here.
    local: NodeId,
    home: Option<NodeId>,
}

impl Case {
    fn random(rng: &mut Rng, site: &Site) -> Case {
        let nodes = |rng: &mut Rng, beyond: u32| {
            let highest = site.memory.iter().last().map_or(0, |node| node.0) + beyond;
            (0..=highest).filter(|_| rng.bool()).map(NodeId).collect::<NodeSet>()
        };
        let cpuset = |rng: &mut Rng| loop {
            let set = nodes(rng, 0);
            if !set.is_empty() {
                return set;
            }
        };
        let flags = [
            Flags::NONE,
            Flags::NONE,
            Flags::STATIC,
            Flags::RELATIVE,
            Flags::BALANCING,
            Flags::STATIC.with(Flags::RELATIVE),
            Flags::STATIC.with(Flags::BALANCING),
            Flags::RELATIVE.with(Flags::BALANCING),
        ];
        let mode = Mode::ALL[rng.usize(..Mode::ALL.len())];
        let empty = matches!(mode, Mode::Default | Mode::Local) && rng.u32(..5) > 0;
        let on = [On::Thread, On::Private, On::Object][rng.usize(..3)];
        let cpu_nodes: Vec<NodeId> = site.topology.cpu_nodes().map(|node| node.id).collect();
        let home = on != On::Thread && rng.u32(..4) == 0;
        Case {
            before: cpuset(rng),
            after: cpuset(rng),
            request: Request {
                mode,
                flags: flags[rng.usize(..flags.len())],
                nodes: if empty { NodeSet::new() } else { nodes(rng, 1) },
            },
            on,
            file: match on {
                On::Thread => rng.bool(),
                On::Private => false,
                On::Object => true,
            },
            local: cpu_nodes[rng.usize(..cpu_nodes.len())],
            home: home.then(|| NodeId(rng.u32(..cpu_nodes.len() as u32 + 1))),
        }
    }

    /// None: refused by both. Else how many pages were looked at.
    fn check(&self, site: &Site) -> Result<Option<usize>, String> {
        mempolicy::set(&Request::plain(Mode::Default, NodeSet::new())).unwrap();
        let cpus: CpuSet = site.topology.node(self.local).unwrap().cpus.clone();
        affinity::set(0, &cpus).unwrap();
        super::set_group("mems", &self.before.to_string());
        let mut memory = Memory::new(self.file);
        let room = Room { allowed: self.before.clone(), memory: site.memory.clone() };
        let predicted = Policy::new(&self.request, &room);
        let answered = match self.on {
            On::Thread => mempolicy::set(&self.request),
            _ => mempolicy::bind(memory.start(), memory.len() as u64, &self.request, 0),
        };
        let mut policy = match (predicted, answered) {
            (Ok(policy), Ok(())) => policy,
            (Err(refusal), Err(error)) if error.errno() == Some(refusal.errno().raw()) => {
                return Ok(None);
            }
            (predicted, answered) => {
                let answered = answered.map_err(|error| error.to_string());
                return Err(format!("predicted {predicted:?}, the kernel says {answered:?}"));
            }
        };
        self.give_home(&mut policy, &memory, site)?;
        self.compare("at first", policy.as_ref(), &memory)?;
        memory.compare("at first", 0, self, policy.as_ref(), &self.before, site)?;
        super::set_group("mems", &self.after.to_string());
        // a cpuset that stays as it is changes nothing
        let changed = self.after != self.before && self.on != On::Object;
        if let Some(policy) = policy.as_mut().filter(|_| changed) {
            policy.rebind(&self.after);
        }
        self.compare("then", policy.as_ref(), &memory)?;
        memory.compare("then", PAGES, self, policy.as_ref(), &self.after, site)?;
        Ok(Some(2 * PAGES))
    }

    fn give_home(
        &self,
        policy: &mut Option<Policy>,
        memory: &Memory,
        site: &Site,
    ) -> Result<(), String> {
        let Some(home) = self.home else { return Ok(()) };
        let online: NodeSet = site.topology.nodes.iter().map(|node| node.id).collect();
        let answered = mempolicy::set_home(memory.start(), memory.len() as u64, home);
        let predicted = match policy {
            Some(policy) => policy.set_home(home, &online).map_err(|error| error.errno().raw()),
            None if !online.contains(home) => Err(Errno::Invalid.raw()),
            // ENOENT: there is no policy to give a home to
            None => Err(2),
        };
        let answered = answered.map_err(|error: SysError| error.errno().unwrap_or(0));
        if predicted == answered {
            return Ok(());
        }
        Err(format!("home: predicted {predicted:?}, the kernel says {answered:?}"))
    }

    /// What the kernel tells of the policy.
    fn compare(&self, when: &str, policy: Option<&Policy>, memory: &Memory) -> Result<(), String> {
        let told = match self.on {
            On::Thread => mempolicy::get(),
            _ => mempolicy::get_at(memory.start()),
        };
        let told = told.map_err(|error| error.to_string())?;
        let empty = NodeSet::new();
        let (raw, nodes) = policy.map_or((0, &empty), |policy| {
            (policy.mode().raw() | policy.flags().raw(), policy.told_nodes())
        });
        if (told.raw, &told.nodes) != (raw, nodes) {
            return Err(format!("{when}: told {told:?}, predicted {raw} {nodes}"));
        }
        Ok(())
    }
}

/// Fresh memory, and what interleaving counts its pages from.
struct Memory {
    mapping: Mapping,
    first_index: u64,
    _file: Option<File>,
}

impl Memory {
    fn new(file: bool) -> Memory {
        let len = 2 * PAGES * PAGE;
        if !file {
            let mapping = Mapping::private(len).unwrap();
            mapping.without_huge_pages();
            let first_index = mapping.start() / PAGE as u64;
            return Memory { mapping, first_index, _file: None };
        }
        let path = format!("/dev/shm/numaherd-conform-{}", std::process::id());
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(len as u64).unwrap();
        let first_index = file.metadata().unwrap().ino();
        Memory { mapping: Mapping::file(&file, 0, len).unwrap(), first_index, _file: Some(file) }
    }

    fn start(&self) -> u64 {
        self.mapping.start()
    }

    fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Touches [`PAGES`] fresh pages from `first` on and compares the node of each.
    fn compare(
        &mut self,
        when: &str,
        first: usize,
        case: &Case,
        policy: Option<&Policy>,
        allowed: &NodeSet,
        site: &Site,
    ) -> Result<(), String> {
        self.mapping.touch(first * PAGE..(first + PAGES) * PAGE, Touch::Write);
        let addresses: Vec<u64> =
            (first..first + PAGES).map(|page| self.start() + (page * PAGE) as u64).collect();
        let mut status = Vec::new();
        pages::query(std::process::id(), &addresses, &mut status).unwrap();
        for (page, status) in (first..first + PAGES).zip(&status) {
            let wanted = Page { index: self.first_index + page as u64, local: case.local };
            let predicted = site.machine.place(policy, wanted, allowed, &NodeSet::new());
            let real = match PageStatus::from_raw(*status) {
                PageStatus::On(node) => Some(node),
                _ => None,
            };
            if real != predicted {
                return Err(format!(
                    "{when}: page {page} is on {real:?} ({status}), predicted {predicted:?}, policy {policy:?}"
                ));
            }
        }
        Ok(())
    }
}
