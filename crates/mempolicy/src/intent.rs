//! What numactl's options ask for, as far as it concerns a process.
//!
//! ```
//! use numaherd_mempolicy::intent::{Intent, Universes};
//! use numaherd_mempolicy::numactl::Options;
//! let words: Vec<String> = ["-N", "0", "-m", "same", "ls"].map(str::to_string).into();
//! let universes = Universes::whole("0-1".parse().unwrap(), "0-7".parse().unwrap());
//! let intent = Intent::read(&mut Options::new(&words), &universes, |_| None).unwrap();
//! assert_eq!(intent.words(&universes).unwrap(), ["--cpunodebind=0", "--membind=0"]);
//! ```

use numaherd_model::{CpuId, CpuSet, NodeId, NodeSet};

use crate::lists::{self, ListError, Resolved, Universe, parse_cpus, parse_nodes};
use crate::numactl::{Given, Key, OptionError, Options};
use crate::{Flags, Mode, Request};

/// What a process of a machine may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Universes {
    /// Its nodes.
    pub nodes: Universe<NodeId>,
    /// The machine's nodes, for --all.
    pub all_nodes: Universe<NodeId>,
    /// Its CPUs.
    pub cpus: Universe<CpuId>,
    /// The machine's CPUs, for --all.
    pub all_cpus: Universe<CpuId>,
}

impl Universes {
    /// A process that may use the whole machine.
    #[must_use]
    pub fn whole(nodes: NodeSet, cpus: CpuSet) -> Universes {
        let nodes = Universe { configured: count(&nodes), allowed: nodes };
        let cpus = Universe { configured: count(&cpus), allowed: cpus };
        Universes { nodes: nodes.clone(), all_nodes: nodes, cpus: cpus.clone(), all_cpus: cpus }
    }
}

fn count<T: numaherd_model::Member>(set: &numaherd_model::IdSet<T>) -> u32 {
    u32::try_from(set.len()).unwrap_or(u32::MAX)
}

/// What options ask for, as far as it concerns a process. Of `cpu_nodes` and `cpus` only the one
/// that was given last counts, and the other is None.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Intent {
    /// The policy; None leaves the one there is.
    pub policy: Option<Request>,
    /// The node that is tried first, with bind and preferred-many.
    pub home: Option<NodeId>,
    /// Run on the CPUs of these nodes.
    pub cpu_nodes: Option<NodeSet>,
    /// Run on these CPUs.
    pub cpus: Option<CpuSet>,
}

/// Options that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IntentError {
    /// Not numactl's.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// A list that cannot be read.
    #[error("<{list}> is invalid: {source}")]
    List {
        /// As given.
        list: String,
        /// Why.
        source: ListError,
    },
    /// Something else.
    #[error("{0}")]
    Wrong(String),
}

impl Intent {
    /// Reads options that concern a process; `resolve` finds the nodes of devices.
    ///
    /// # Errors
    /// numactl would refuse them, or they are not about a process.
    pub fn read(
        options: &mut Options<'_>,
        universes: &Universes,
        resolve: impl Fn(&str) -> Resolved,
    ) -> Result<Intent, IntentError> {
        let mut intent = Intent::default();
        let mut lists = Lists::new(universes, resolve);
        let mut balancing = Flags::NONE;
        while let Some(given) = options.next().transpose()? {
            intent.take(&given, &mut lists, &mut balancing)?;
        }
        Ok(intent)
    }

    /// Takes one option in.
    fn take<R: Fn(&str) -> Resolved>(
        &mut self,
        given: &Given,
        lists: &mut Lists<'_, R>,
        balancing: &mut Flags,
    ) -> Result<(), IntentError> {
        let mode = match given.key {
            Key::All => return lists.widen(),
            Key::Balancing if self.policy.is_some() => {
                return Err(wrong("--balancing must be before the policy"));
            }
            Key::Balancing => {
                *balancing = Flags::BALANCING;
                return Ok(());
            }
            Key::Cpunodebind => {
                (self.cpu_nodes, self.cpus) = (Some(lists.nodes(given.text())?), None);
                return Ok(());
            }
            Key::Physcpubind => {
                (self.cpus, self.cpu_nodes) = (Some(lists.cpus(given.text())?), None);
                return Ok(());
            }
            Key::HomeNode => {
                let nodes = lists.nodes(given.text())?;
                let one = nodes.first().filter(|_| nodes.len() == 1);
                self.home = Some(one.ok_or_else(|| wrong("--home-node takes one node"))?);
                return Ok(());
            }
            Key::Strict | Key::Weights | Key::Explain => return Ok(()),
            key => mode_of(key)
                .ok_or_else(|| wrong("only options that concern a process have a meaning here"))?,
        };
        let nodes = if mode == Mode::Local { NodeSet::new() } else { lists.nodes(given.text())? };
        if self.policy.is_some() {
            return Err(wrong("Conflicting policies"));
        }
        if mode == Mode::Preferred && nodes.len() != 1 {
            return Err(wrong("--preferred takes one node; for several there is --preferred-many"));
        }
        self.policy = Some(requested(mode, nodes, *balancing));
        Ok(())
    }

    /// The options that ask for this, in numactl's words: those that a process of `universes` may
    /// use as they are, else with --all. None if no list names these nodes or CPUs.
    #[must_use]
    pub fn words(&self, universes: &Universes) -> Option<Vec<String>> {
        let plain = self.words_within(&universes.nodes, &universes.cpus);
        plain.or_else(|| {
            let wide = self.words_within(&universes.all_nodes, &universes.all_cpus)?;
            Some([vec!["--all".to_string()], wide].concat())
        })
    }

    fn words_within(
        &self,
        nodes: &Universe<NodeId>,
        cpus: &Universe<CpuId>,
    ) -> Option<Vec<String>> {
        let mut words = Vec::new();
        let option = |name: &str, set: &NodeSet| {
            lists::format(set, nodes).map(|list| format!("--{name}={list}"))
        };
        if let Some(set) = &self.cpu_nodes {
            words.push(option("cpunodebind", set)?);
        }
        if let Some(set) = &self.cpus {
            words.push(format!("--physcpubind={}", lists::format(set, cpus)?));
        }
        if let Some(Request { mode, flags, nodes }) = &self.policy {
            if flags.has(Flags::BALANCING) {
                words.push("--balancing".to_string());
            }
            words.push(match mode {
                Mode::Local => "--localalloc".to_string(),
                mode => option(option_of(*mode), nodes)?,
            });
        }
        if let Some(home) = self.home {
            words.push(option("home-node", &[home].into_iter().collect())?);
        }
        Some(words)
    }
}

/// The option that asks for a mode.
fn option_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Local => "localalloc",
        // interleaving over nothing takes the policy away
        Mode::Default | Mode::Interleave => "interleave",
        Mode::WeightedInterleave => "weighted-interleave",
        Mode::Bind => "membind",
        Mode::Preferred => "preferred",
        Mode::PreferredMany => "preferred-many",
    }
}

fn wrong(text: &str) -> IntentError {
    IntentError::Wrong(text.to_string())
}

/// The mode an option asks for.
#[must_use]
pub fn mode_of(key: Key) -> Option<Mode> {
    match key {
        Key::Interleave => Some(Mode::Interleave),
        Key::WeightedInterleave => Some(Mode::WeightedInterleave),
        Key::Membind => Some(Mode::Bind),
        Key::Preferred => Some(Mode::Preferred),
        Key::PreferredMany => Some(Mode::PreferredMany),
        Key::Localalloc => Some(Mode::Local),
        _ => None,
    }
}

/// Reads the lists of one command line: `--all` widens what may be named, `same` is the list of
/// nodes before.
#[derive(Clone, Debug)]
pub struct Lists<'a, R> {
    universes: &'a Universes,
    resolve: R,
    all: bool,
    named: bool,
    last: Option<String>,
}

impl<'a, R: Fn(&str) -> Resolved> Lists<'a, R> {
    /// Reads against these; `resolve` finds the nodes of devices.
    pub fn new(universes: &'a Universes, resolve: R) -> Self {
        Lists { universes, resolve, all: false, named: false, last: None }
    }

    /// `--all`: from here on the whole machine may be named.
    ///
    /// # Errors
    /// There was a list before.
    pub fn widen(&mut self) -> Result<(), IntentError> {
        if self.named {
            return Err(wrong("--all/-a option must be before all cpu/node specifications"));
        }
        self.all = true;
        Ok(())
    }

    /// A list of nodes.
    ///
    /// # Errors
    /// numactl would refuse it.
    pub fn nodes(&mut self, text: &str) -> Result<NodeSet, IntentError> {
        let text = match (text, &self.last) {
            ("same", None) => return Err(wrong("same needs previous node specification")),
            ("same", Some(before)) => before.clone(),
            (text, _) => text.to_string(),
        };
        self.named = true;
        let universe = if self.all { &self.universes.all_nodes } else { &self.universes.nodes };
        let set = parse_nodes(&text, universe, &self.resolve);
        self.last = Some(text.clone());
        set.map_err(|source| IntentError::List { list: text, source })
    }

    /// A list of CPUs.
    ///
    /// # Errors
    /// numactl would refuse it.
    pub fn cpus(&mut self, text: &str) -> Result<CpuSet, IntentError> {
        self.named = true;
        let universe = if self.all { &self.universes.all_cpus } else { &self.universes.cpus };
        let set = parse_cpus(text, universe);
        set.map_err(|source| IntentError::List { list: text.to_string(), source })
    }
}

/// What numactl asks the kernel for. Interleaving over nothing takes the policy away; balancing
/// goes with bind only.
#[must_use]
pub fn requested(mode: Mode, nodes: NodeSet, balancing: Flags) -> Request {
    let mode = if mode == Mode::Interleave && nodes.is_empty() { Mode::Default } else { mode };
    let flags = if mode == Mode::Bind { balancing } else { Flags::NONE };
    Request { mode, flags, nodes }
}
