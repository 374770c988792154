//! `policy`, and `run --explain`: what a memory policy means on a machine, before it is applied.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use numaherd_linux::sys::affinity;
use numaherd_mempolicy::intent::{Intent, Lists, Universes};
use numaherd_mempolicy::numactl::Key;
use numaherd_mempolicy::numactl::Options;
use numaherd_mempolicy::placing::{Machine, Page, Weights};
use numaherd_mempolicy::{Errno, Flags, Mode, Policy, PolicyError, Room, kernel_text};
use numaherd_model::{NodeId, NodeSet, Topology};
use serde::Serialize;

use crate::args::{Format, PolicyArgs};
use crate::drop_in;
use crate::output::{self, misused};

/// Pages in the picture.
const SHOWN_PAGES: u64 = 32;

/// What a policy means.
#[derive(Serialize)]
struct Explanation {
    text: String,
    machine: String,
    cpuset: NodeSet,
    /// The CPU that touches the pages is on this node.
    touched_from: NodeId,
    /// As the kernel keeps it and prints it in numa_maps; null for "default".
    kernel: Option<String>,
    /// The kernel's refusal.
    refusal: Option<String>,
    /// The same as numactl's options.
    numactl: Option<String>,
    /// The same as tmpfs's mount option.
    mount: Option<String>,
    /// In words.
    means: String,
    /// Nodes of the first pages, for one that is aligned at index 0.
    first_pages: Vec<NodeId>,
    /// Nodes that stand in, in order, when those of the first pages are full; empty: the kernel
    /// ends a process for want of memory.
    stand_in: Vec<NodeId>,
    /// What becomes of it in another cpuset.
    then: Option<Rebound>,
}

#[derive(Serialize)]
struct Rebound {
    cpuset: NodeSet,
    kernel: String,
    first_pages: Vec<NodeId>,
}

/// A machine to explain on.
struct Site {
    name: String,
    /// The node we run on, on this machine.
    runs_on: Option<NodeId>,
    topology: Topology,
    machine: Machine,
    room: Room,
    universes: Universes,
}

/// Explains a policy.
pub fn run(args: &PolicyArgs) -> Result<ExitCode> {
    let site = match &args.machine {
        Some(name) => Site::of_machine(name)?,
        None => Site::here()?,
    };
    let mut site = match &args.cpuset {
        Some(list) => {
            let cpuset = site.nodes(list).context("--cpuset").map_err(misused)?;
            site.within(cpuset)?
        }
        None => site,
    };
    let intent = read(&args.text, &mut site).map_err(misused)?;
    let from = site.touching(args.on.map(NodeId), &intent)?;
    let then = args.then.as_deref().map(|list| site.nodes(list)).transpose();
    let then = then.context("--then").map_err(misused)?;
    let lost = then.as_ref().filter(|then| then.intersection(&site.room.memory).is_empty());
    if let Some(lost) = lost {
        misuse!(
            "--then {lost}: none of these nodes has memory (those that have: {})",
            site.room.memory
        );
    }
    let explanation = explain(&args.text, &intent, &site, from, then.as_ref());
    output::print(&match args.output {
        Format::Json => output::json(&explanation)?,
        Format::Csv => csv(&explanation),
        Format::Table => table(&explanation, &site),
    })?;
    Ok(told(&explanation))
}

/// Explains on this machine what `run`'s options ask for.
pub fn explain_here(intent: &Intent, weights: Weights) -> Result<ExitCode> {
    let mut site = Site::here()?;
    site.machine.weights.extend(weights);
    let from = site.touching(None, intent)?;
    let words = intent.words(&site.universes).unwrap_or_default().join(" ");
    let words = if words.is_empty() { "no policy" } else { words.as_str() };
    let explanation = explain(words, intent, &site, from, None);
    output::print(&table(&explanation, &site))?;
    Ok(told(&explanation))
}

/// The end of an explanation that was printed.
fn told(explanation: &Explanation) -> ExitCode {
    let Some(refusal) = &explanation.refusal else { return ExitCode::SUCCESS };
    say!("numaherd: no kernel takes this policy: {refusal}");
    ExitCode::from(1)
}

impl Site {
    fn here() -> Result<Site> {
        let (topology, universes) = drop_in::here()?;
        let allowed = universes.nodes.allowed.clone();
        let weights = numaherd_linux::weights::read("/".as_ref());
        let first = affinity::get(0)?.first();
        let runs_on = first.and_then(|cpu| topology.node_of_cpu(cpu));
        let site = Site::new("this machine".into(), topology, universes, allowed, weights);
        Ok(Site { runs_on, ..site })
    }

    fn of_machine(name: &str) -> Result<Site> {
        let topology = super::machine::topology(name)?;
        let nodes: NodeSet = topology.nodes.iter().map(|node| node.id).collect();
        let universes = Universes::whole(nodes.clone(), topology.cpus());
        Ok(Site::new(name.into(), topology, universes, nodes, Weights::new()))
    }

    fn new(
        name: String,
        topology: Topology,
        universes: Universes,
        allowed: NodeSet,
        weights: Weights,
    ) -> Site {
        let mut machine = Machine::new(&topology);
        machine.weights = weights;
        let memory: NodeSet = topology.memory_nodes().map(|node| node.id).collect();
        let room = Room { allowed, memory };
        Site { name, runs_on: None, machine, room, topology, universes }
    }

    /// A list of any of the machine's nodes.
    fn nodes(&self, list: &str) -> Result<NodeSet> {
        let mut all = Lists::new(&self.universes, |_: &str| None);
        all.widen()?;
        Ok(all.nodes(list)?)
    }

    /// The same machine, within a cpuset.
    fn within(mut self, cpuset: NodeSet) -> Result<Site> {
        if cpuset.intersection(&self.room.memory).is_empty() {
            misuse!(
                "--cpuset {cpuset}: none of these nodes has memory (those that have: {})",
                self.room.memory
            );
        }
        self.universes.nodes.allowed = cpuset.clone();
        self.room.allowed = cpuset;
        Ok(self)
    }

    /// The node of the CPU that touches the pages: as wanted, the first that the intent binds to,
    /// or the first there is.
    fn touching(&self, wanted: Option<NodeId>, intent: &Intent) -> Result<NodeId> {
        if let Some(node) = wanted {
            return match self.topology.node(node) {
                Some(_) => Ok(node),
                None => misuse!("--on {node}: there is no such node"),
            };
        }
        if let Some(nodes) = &intent.cpu_nodes {
            let mut with_cpus = self.topology.cpu_nodes().map(|node| node.id);
            let first = with_cpus.find(|node| nodes.contains(*node));
            return match first {
                Some(node) => Ok(node),
                None => misuse!("nodes {nodes} have no CPU to run on"),
            };
        }
        if let Some(cpus) = &intent.cpus {
            let first = cpus.iter().find_map(|cpu| self.topology.node_of_cpu(cpu));
            return match first {
                Some(node) => Ok(node),
                None => misuse!("CPUs {cpus} are not online"),
            };
        }
        if let Some(node) = self.runs_on.filter(|node| self.room.allowed.contains(*node)) {
            return Ok(node);
        }
        let mut with_cpus = self.topology.cpu_nodes().map(|node| node.id);
        let first = with_cpus.find(|node| self.room.allowed.contains(*node));
        first.or(self.room.allowed.first()).context("the machine has no node")
    }

    fn place(
        &self,
        policy: Option<&Policy>,
        index: u64,
        from: NodeId,
        full: &NodeSet,
    ) -> Option<NodeId> {
        let page = Page { index, local: from };
        self.machine.place(policy, page, &self.room.allowed, full)
    }

    fn first_pages(&self, policy: Option<&Policy>, from: NodeId) -> Vec<NodeId> {
        let none = NodeSet::new();
        (0..SHOWN_PAGES).filter_map(|index| self.place(policy, index, from, &none)).collect()
    }

    /// Who stands in for page 0 when every node before is full.
    fn stand_in(&self, policy: Option<&Policy>, from: NodeId) -> Vec<NodeId> {
        let mut full = NodeSet::new();
        let mut order = Vec::new();
        while let Some(node) = self.place(policy, 0, from, &full) {
            order.push(node);
            full.insert(node);
        }
        order.drain(..order.len().min(1));
        order
    }
}

/// What a text asks for. Weights become the site's.
fn read(text: &str, site: &mut Site) -> Result<Intent> {
    let text = text.trim();
    let of_numactl = text.strip_prefix("numactl ").map(str::trim_start);
    if of_numactl.is_some() || text.starts_with('-') {
        let words: Vec<String> =
            of_numactl.unwrap_or(text).split_whitespace().map(str::to_string).collect();
        let mut options = Options::with_ours(&words);
        let no_device = |_: &str| Some(Err("devices are known on the running machine only".into()));
        let intent = if site.name == "this machine" {
            Intent::read(&mut options, &site.universes, drop_in::device)?
        } else {
            Intent::read(&mut options, &site.universes, |text| {
                text.contains(':').then(|| no_device(text)).flatten()
            })?
        };
        // of a whole command line the command is of no matter
        if of_numactl.is_none()
            && let [command, ..] = options.rest()
        {
            bail!("'{command}' is no option; a policy is explained without a command");
        }
        for given in Options::with_ours(&words).flatten().filter(|given| given.key == Key::Weights)
        {
            site.machine.weights.extend(numaherd_linux::weights::parse(given.text())?);
        }
        return Ok(intent);
    }
    let request = if let Some(mount) = text.strip_prefix("mpol=") {
        kernel_text::parse_mount(mount, &site.room.memory)?
    } else if let Some(mapping) = numaherd_linux::memory::numa_maps::parse(text) {
        kernel_text::parse_map(&mapping.policy)?
    } else {
        kernel_text::parse_mount(text, &site.room.memory).with_context(
            || "a policy is given as numactl's options, as mpol=…, or as a line of numa_maps",
        )?
    };
    Ok(Intent { policy: Some(request), ..Intent::default() })
}

/// What the kernel makes of it.
fn made(intent: &Intent, site: &Site) -> Result<Option<Policy>, PolicyError> {
    let Some(request) = &intent.policy else { return Ok(None) };
    let mut policy = Policy::new(request, &site.room)?;
    if let (Some(policy), Some(home)) = (&mut policy, intent.home) {
        policy.set_home(home, &site.topology.nodes.iter().map(|node| node.id).collect())?;
    }
    Ok(policy)
}

fn explain(
    text: &str,
    intent: &Intent,
    site: &Site,
    from: NodeId,
    then: Option<&NodeSet>,
) -> Explanation {
    let request = intent.policy.as_ref();
    let made = made(intent, site);
    let refusal = made.as_ref().err().map(|error| {
        let errno = match error.errno() {
            Errno::Invalid => "EINVAL",
            Errno::NotSupported => "EOPNOTSUPP",
        };
        format!("{error} ({errno})")
    });
    let policy = made.ok().flatten();
    // what numactl has no words for: home nodes, and nodes that are static or relative
    let flags = request.map_or(Flags::NONE, |request| request.flags);
    let numactl =
        (intent.home.is_none() && !flags.fixes_nodes()).then(|| intent.words(&site.universes));
    let rebound = then.zip(policy.clone()).map(|(cpuset, mut policy)| {
        policy.rebind(cpuset);
        let room = Room { allowed: cpuset.clone(), memory: site.room.memory.clone() };
        let pages = (0..SHOWN_PAGES).filter_map(|index| {
            let page = Page { index, local: from };
            site.machine.place(Some(&policy), page, &room.allowed, &NodeSet::new())
        });
        Rebound { cpuset: cpuset.clone(), kernel: policy.to_string(), first_pages: pages.collect() }
    });
    let accepted = refusal.is_none();
    Explanation {
        text: text.to_string(),
        machine: site.name.clone(),
        cpuset: site.room.allowed.clone(),
        touched_from: from,
        kernel: policy.as_ref().map(Policy::to_string),
        numactl: numactl.flatten().map(|words| words.join(" ")).filter(|text| !text.is_empty()),
        mount: request.and_then(kernel_text::format_mount),
        means: meaning(policy.as_ref(), refusal.as_deref()),
        first_pages: if accepted { site.first_pages(policy.as_ref(), from) } else { Vec::new() },
        stand_in: if accepted { site.stand_in(policy.as_ref(), from) } else { Vec::new() },
        refusal,
        then: rebound,
    }
}

/// In words.
fn meaning(policy: Option<&Policy>, refusal: Option<&str>) -> String {
    if let Some(refusal) = refusal {
        return format!("the kernel refuses it: {refusal}");
    }
    let Some(policy) = policy else {
        return "no policy here: that of the next scope counts, the task's or else the node of the CPU that touches".into();
    };
    let several = if policy.nodes().len() == 1 { "node" } else { "nodes" };
    let nodes = format!("{several} {}", policy.nodes());
    let near = match policy.home() {
        Some(home) => format!("the nearest to node {home}"),
        None => "the nearest to the CPU".to_string(),
    };
    let mut text = match policy.mode() {
        Mode::Default | Mode::Local => {
            "the node of the CPU that touches first, others when it is full".into()
        }
        Mode::Preferred => format!("{nodes} first, others when it is full"),
        Mode::Bind if policy.nodes().len() == 1 => {
            format!("{nodes} only; when it is full, a process is killed")
        }
        Mode::Bind => {
            format!("{nodes} only, {near} first; when they are full, a process is killed")
        }
        Mode::Interleave => {
            format!("pages in turn over {nodes}, by their place in the address space or file")
        }
        Mode::PreferredMany => {
            format!("{nodes} first, {near} before the others; all when they are full")
        }
        Mode::WeightedInterleave => {
            format!("pages in turn over {nodes}, as many in a row as each one's weight")
        }
    };
    // preferred nodes are the kernel's exception, whatever the flags say
    if matches!(policy.mode(), Mode::Preferred | Mode::PreferredMany) {
        text += "; its nodes stay these numbers when the cpuset changes";
    } else if policy.flags().has(Flags::STATIC) {
        text += "; the nodes stay these numbers when the cpuset changes";
    } else if policy.flags().has(Flags::RELATIVE) {
        text += "; the nodes count within the cpuset, and anew when it changes";
    } else if !policy.nodes().is_empty() {
        text += "; when the cpuset changes, the nodes move to the same places of the new one";
    }
    if policy.flags().has(Flags::BALANCING) {
        text += "; the kernel's balancing may move pages among them";
    }
    text
}

fn table(explanation: &Explanation, site: &Site) -> String {
    let mut out = String::new();
    let Explanation { text, machine, cpuset, touched_from, .. } = explanation;
    // writing to a String cannot fail
    let _ =
        writeln!(out, "{text}\non {machine}, cpuset {cpuset}, touched from node {touched_from}\n");
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(out, "{name:<16}{value}");
    };
    line("means", &explanation.means);
    if explanation.refusal.is_some() {
        return out;
    }
    line("the kernel says", explanation.kernel.as_deref().unwrap_or("default"));
    if let Some(words) = explanation.numactl.as_deref().filter(|words| !words.is_empty()) {
        line("numactl", words);
    }
    if let Some(mount) = &explanation.mount {
        line("tmpfs", &format!("mpol={mount}"));
    }
    let _ = writeln!(out, "\nthe first pages ({SHOWN_PAGES}, from an address that begins a round)");
    out += &picture(&explanation.first_pages, &site.topology);
    let nodes = |all: &[NodeId]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let full = match explanation.stand_in.as_slice() {
        [] => "no node stands in: when full, the kernel kills a process".to_string(),
        all => format!("when the first page's node is full, in this order: {}", nodes(all)),
    };
    let _ = writeln!(out, "{full}");
    if let Some(then) = &explanation.then {
        let _ = writeln!(out, "\nin cpuset {}: {}", then.cpuset, then.kernel);
        out += &picture(&then.first_pages, &site.topology);
    }
    out
}

/// One line a node, one column a page.
fn picture(pages: &[NodeId], topology: &Topology) -> String {
    let mut out = String::new();
    for node in topology.memory_nodes() {
        let marks: String =
            pages.iter().map(|page| if *page == node.id { '#' } else { '.' }).collect();
        let share = pages.iter().filter(|page| **page == node.id).count();
        let _ = writeln!(out, "  node {:<3} {marks}  {share}", node.id);
    }
    out
}

fn csv(explanation: &Explanation) -> String {
    let mut out = String::from("page,node\n");
    for (page, node) in explanation.first_pages.iter().enumerate() {
        let _ = writeln!(out, "{page},{node}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str, cpuset: Option<&str>, then: Option<&str>) -> (Explanation, String) {
        let mut site = Site::of_machine("2x4").unwrap();
        if let Some(cpuset) = cpuset {
            site = site.within(cpuset.parse().unwrap()).unwrap();
        }
        let intent = read(text, &mut site).unwrap();
        let then = then.map(|list| list.parse().unwrap());
        let from = site.touching(None, &intent).unwrap();
        let explanation = explain(text, &intent, &site, from, then.as_ref());
        let table = table(&explanation, &site);
        (explanation, table)
    }

    #[test]
    fn every_way_to_write_a_policy_comes_to_the_same() {
        for text in [
            "-m 1",
            "numactl --membind=1 ls -l",
            "mpol=bind:1",
            "bind:1",
            "7f00a000 bind:1 anon=1 N1=1 kernelpagesize_kB=4",
        ] {
            let (explanation, _) = explained(text, None, None);
            assert_eq!(explanation.kernel.as_deref(), Some("bind:1"), "{text}");
            assert_eq!(explanation.numactl.as_deref(), Some("--membind=1"));
            assert_eq!(explanation.mount.as_deref(), Some("bind:1"));
            assert!(explanation.stand_in.is_empty());
        }
    }

    #[test]
    fn the_picture_shows_pages_in_turn() {
        let (explanation, table) = explained("--interleave=all", None, None);
        assert_eq!(explanation.first_pages[..3], [NodeId(0), NodeId(1), NodeId(0)]);
        assert!(table.contains("node 1   .#.#.#"), "{table}");
        assert!(table.contains("full, in this order: 1"), "{table}");
        let (weighted, _) = explained("-w 0-1 --weights 0=3,1=1", None, None);
        // three on node 0, one on node 1, and again
        let shown: Vec<u32> = weighted.first_pages[..8].iter().map(|node| node.0).collect();
        assert_eq!(shown, [0, 0, 0, 1, 0, 0, 0, 1]);
    }

    #[test]
    fn the_cpus_that_touch_and_the_home_node_count() {
        // 2x4: CPUs 4 to 7 are node 1's
        for text in ["-N 1 -l", "-C 5 -l", "-N 0 -C 5 -l", "-N 1 -m 0-1", "-P 0-1 --home-node 1"] {
            let (explanation, _) = explained(text, None, None);
            assert_eq!(explanation.first_pages[0], NodeId(1), "{text}");
        }
        let (explanation, _) = explained("-C 5 -N 0 -l", None, None);
        assert_eq!((explanation.touched_from, explanation.first_pages[0]), (NodeId(0), NodeId(0)));
        let (explanation, _) = explained("-i 0-1 --home-node 1", None, None);
        assert!(explanation.refusal.unwrap().ends_with("(EOPNOTSUPP)"));
    }

    #[test]
    fn a_refusal_is_told_and_a_changed_cpuset_too() {
        let (explanation, _) = explained("mpol=bind:1", Some("0"), None);
        assert!(explanation.refusal.unwrap().ends_with("(EINVAL)"));
        let (explanation, _) = explained("-m 0", Some("0"), Some("1"));
        assert_eq!(explanation.then.unwrap().kernel, "bind:1");
        let mut site = Site::of_machine("2x4").unwrap();
        for text in ["-m 9", "-m 0 ls", "mpol=bind", "what"] {
            assert!(read(text, &mut site).is_err(), "{text}");
        }
    }
}
