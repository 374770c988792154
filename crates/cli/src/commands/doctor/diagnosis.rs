//! From facts to what they mean: a pure function, tested by table.
//!
//! A finding says what is there, and if that limits what numaherd can do, what to do about it.

use numaherd_bpf::Choice;
use numaherd_linux::host::Host;
use numaherd_model::Topology;
use serde::Serialize;

/// What was found on this machine.
#[derive(Clone, Debug)]
pub struct Facts {
    pub host: Host,
    pub topology: Topology,
    pub root: bool,
    /// Capabilities in effect.
    pub rights: Rights,
    /// `kernel.numa_balancing`; None on a kernel without it.
    pub numa_balancing: Option<u64>,
    /// What the fault stream could be.
    pub faults: Choice,
    /// The kernel's answer where opening the stream was tried.
    pub opened: Option<Result<(), String>>,
    /// What keeps accesses from being sampled, if so.
    pub sampling: Result<(), String>,
    /// Whether they can be sampled, but not without CAP_SYS_ADMIN.
    pub sampling_takes_admin: bool,
    /// What counts memory traffic, in words, or why nothing does.
    pub traffic: Result<&'static str, String>,
    /// Whether the kernel's scan periods can be read.
    pub scan_periods: bool,
    /// Where undo journals go, and why they cannot, if so.
    pub journals: (String, Option<String>),
    /// Runs that left something to put back.
    pub left: Vec<String>,
    /// Journals that cannot be read.
    pub unreadable: Vec<String>,
    /// Runs that go on, in words, and whether each has switched the kernel's balancing off.
    pub living: Vec<(String, bool)>,
    /// The kernel the lab would boot, or what the lab lacks.
    pub lab: Result<String, String>,
}

/// Capabilities that matter here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rights {
    pub read: bool,
    pub ptrace: bool,
    pub nice: bool,
    pub bpf: bool,
    pub perfmon: bool,
    pub admin: bool,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As good as it gets.
    Ok,
    /// Something works only in part.
    Limited,
    /// Something does not work at all.
    Missing,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub topic: &'static str,
    pub state: State,
    /// What is there, in words.
    pub found: String,
    /// What to do for more.
    pub remedy: Option<String>,
}

/// A capability, whether we have it, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Privilege {
    pub capability: &'static str,
    pub held: bool,
    pub needed_for: &'static str,
}

/// What a command can do here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ability {
    pub command: &'static str,
    pub state: State,
    /// What it would go by or do.
    pub uses: String,
}

fn ok(topic: &'static str, found: impl Into<String>) -> Finding {
    Finding { topic, state: State::Ok, found: found.into(), remedy: None }
}

fn less(
    topic: &'static str,
    state: State,
    found: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding { topic, state, found: found.into(), remedy: Some(remedy.into()) }
}

impl Facts {
    fn one_node(&self) -> bool {
        self.topology.cpu_nodes().count() < 2
    }

    fn tiering(&self) -> bool {
        self.numa_balancing.is_some_and(|mode| mode & 2 != 0)
    }

    /// Why there are no hinting faults with addresses, if so.
    fn no_faults(&self) -> Option<String> {
        match (&self.faults, &self.opened) {
            (Choice::Unavailable { reason }, _) => Some(reason.clone()),
            (Choice::WithoutAddresses { .. }, _) => {
                Some("this kernel's faults come without addresses".into())
            }
            (_, Some(Err(error))) => Some(error.clone()),
            _ => None,
        }
    }

    /// All findings, in the order in which a reader needs them.
    pub fn findings(&self) -> Vec<Finding> {
        let mut found = vec![ok("kernel", self.host.release.clone()), self.nodes()];
        if self.topology.distances.is_empty() && self.topology.nodes.len() > 1 {
            let told = "the firmware gives none: 10 and 20 are assumed";
            found.push(less("distances", State::Limited, told, "look for a firmware with a SLIT"));
        }
        found.extend([self.balancing(), self.stream(), self.samples(), self.traffic()]);
        found.extend([self.periods(), self.others()]);
        found.push(self.counts());
        found.extend((!self.host.schedstat).then(|| {
            let told = "how long threads wait for a CPU is not counted: a placed one that is crowded out is seen late";
            less("waiting", State::Limited, told, "sysctl kernel.task_delayacct=1")
        }));
        found.extend(self.host.rivals.iter().map(|(name, pid)| {
            let told = format!("{name} runs (process {pid}) and places processes too");
            less("rivals", State::Limited, told, format!("stop {name} while balance runs"))
        }));
        found.push(if self.host.cgroup2 {
            ok("control groups", "version 2: balance --cgroup works")
        } else {
            let remedy = "boot with systemd.unified_cgroup_hierarchy=1";
            less("control groups", State::Limited, "no version 2: no balance --cgroup", remedy)
        });
        found.extend([self.undo(), self.lab()]);
        found.extend(
            self.living.iter().map(|(run, _)| ok("balance", format!("{run} is under way"))),
        );
        found
    }

    fn nodes(&self) -> Finding {
        let (all, cpus) = (self.topology.nodes.len(), self.topology.cpu_nodes().count());
        let memory = self.topology.memory_nodes().count();
        let told = format!("{all}: {cpus} with CPUs, {memory} with memory");
        if self.one_node() {
            let told = format!("{told}; with CPUs on one node only there is nothing to balance");
            let remedy = "'numaherd lab run -- CMD' has a machine with two";
            return less("nodes", State::Limited, told, remedy);
        }
        ok("nodes", told)
    }

    fn balancing(&self) -> Finding {
        let topic = "kernel balancing";
        match self.numa_balancing {
            None => less(
                topic,
                State::Missing,
                "this kernel has none, so there are no hinting faults",
                "boot a kernel built with CONFIG_NUMA_BALANCING=y",
            ),
            Some(mode) if mode & 2 != 0 => less(
                topic,
                State::Limited,
                format!(
                    "mode {mode}: the kernel moves pages between memory tiers, so we move none"
                ),
                "'sysctl kernel.numa_balancing=1', if tiering is not wanted",
            ),
            Some(0) => match self.living.iter().find(|(_, switched_off)| *switched_off) {
                Some((run, _)) => {
                    ok(topic, format!("switched off by {run}, until that ends or needs it"))
                }
                None => less(
                    topic,
                    State::Limited,
                    match self.sampling {
                        Ok(()) => {
                            "off, so there are no hinting faults: samples of accesses have to do"
                        }
                        Err(_) => "off, so there are no hinting faults",
                    },
                    "'sysctl kernel.numa_balancing=1', or 'balance --tune-kernel'",
                ),
            },
            Some(_) => ok(topic, "on: hinting faults exist, and the kernel moves pages too"),
        }
    }

    fn stream(&self) -> Finding {
        let topic = "hinting faults";
        match self.no_faults() {
            Some(reason) => {
                let (why, remedy) = reason.rsplit_once(": ").unwrap_or((&reason, "see above"));
                let told = format!("none: {why}");
                less(topic, State::Missing, told, remedy)
            }
            None if self.opened.is_none() => {
                ok(topic, "should load (not tried: there is nothing to balance)")
            }
            None => ok(topic, "with addresses, through BPF: loaded and attached"),
        }
    }

    fn samples(&self) -> Finding {
        let topic = "samples of accesses";
        match &self.sampling {
            Ok(()) => ok(topic, "by the CPU clock, beside faults and where there are none"),
            Err(why) => less(
                topic,
                State::Limited,
                format!(
                    "none ({why}): faults alone tell who uses what, and processes in huge pages of the \
                     reserve are left alone"
                ),
                match self.rights.perfmon {
                    true => "run as root, or 'sysctl kernel.perf_event_paranoid=2'",
                    false => "run as root or with CAP_PERFMON, on 64-bit x86",
                },
            ),
        }
    }

    fn traffic(&self) -> Finding {
        let topic = "memory traffic";
        match &self.traffic {
            Ok(by) => ok(
                topic,
                format!(
                    "counted {by}: nodes are given what their memory carries, with balance --measured"
                ),
            ),
            Err(why) => less(
                topic,
                State::Limited,
                format!("not counted ({why}): what a node's memory carries is no limit"),
                match self.rights.perfmon {
                    true => "none in most virtual machines: on bare metal, or with a virtual PMU",
                    false => "run as root or with CAP_PERFMON",
                },
            ),
        }
    }

    fn periods(&self) -> Finding {
        let topic = "scan periods";
        if self.scan_periods {
            return ok(topic, "can be read; balance --tune-kernel sets them");
        }
        let remedy = match (&self.host.lockdown, self.root) {
            (Some(_), _) => {
                "none with lockdown, which closes debugfs even to root (Secure Boot switches it on)"
            }
            (None, true) => "mount debugfs at /sys/kernel/debug",
            (None, false) => "run as root",
        };
        less(topic, State::Limited, "not to be seen: --tune-kernel leaves them alone", remedy)
    }

    fn others(&self) -> Finding {
        let topic = "other users' processes";
        if !self.host.numa_maps {
            let remedy = "boot a kernel built with CONFIG_NUMA=y";
            return less(topic, State::Missing, "no /proc/PID/numa_maps: nobody's memory", remedy);
        }
        let hidden = self.host.hidepid.as_ref().map(|mode| format!(", /proc hides them ({mode})"));
        match (self.rights.ptrace, self.rights.nice) {
            (true, true) => ok(topic, "can be looked into and placed"),
            (true, false) => less(
                topic,
                State::Limited,
                "can be looked into, not placed",
                "run as root or with CAP_SYS_NICE",
            ),
            (false, _) => less(
                topic,
                State::Limited,
                format!("only your own can be looked into{}", hidden.unwrap_or_default()),
                "run as root or with CAP_SYS_PTRACE",
            ),
        }
    }

    fn counts(&self) -> Finding {
        let topic = "the kernel's own counts";
        if self.host.task_counts {
            return ok(
                topic,
                "each task's faults by node, for everybody (/proc/PID/task/TID/sched)",
            );
        }
        let remedy = "boot a kernel built with CONFIG_SCHED_DEBUG=y";
        less(topic, State::Limited, "not shown by this kernel", remedy)
    }

    fn undo(&self) -> Finding {
        let (folder, problem) = &self.journals;
        if let Some(problem) = problem {
            let told =
                format!("no journal can be kept in {folder} ({problem}), so balance refuses");
            return less("undo", State::Missing, told, "set NUMAHERD_STATE to a folder of yours");
        }
        let (mut told, mut remedies) = (Vec::new(), Vec::new());
        if !self.left.is_empty() {
            told.push(format!("left by runs that died: {}", self.left.join(", ")));
            remedies.push("'numaherd restore'");
        }
        if !self.unreadable.is_empty() {
            let journals = self.unreadable.join(", ");
            told.push(format!("cannot be read, so what it holds is not put back: {journals}"));
            remedies.push(
                "'restore' of the numaherd that wrote the journal, or remove it once all is as it should be",
            );
        }
        if !told.is_empty() {
            return less("undo", State::Limited, told.join("; "), remedies.join("; "));
        }
        ok("undo", format!("journals go to {folder}; nothing is left to put back"))
    }

    fn lab(&self) -> Finding {
        match &self.lab {
            Ok(kernel) => ok("lab", format!("ready: boots {kernel}")),
            Err(lacks) => less(
                "lab",
                State::Missing,
                lacks.clone(),
                "'make build' in a checkout brings it; production hosts need no lab",
            ),
        }
    }

    /// The least capabilities for each use, for whoever is not root.
    pub fn privileges(&self) -> Vec<Privilege> {
        let Rights { read, ptrace, nice, bpf, perfmon, admin } = self.rights;
        let row = |capability, held, needed_for| Privilege { capability, held, needed_for };
        vec![
            row("CAP_SYS_PTRACE", ptrace, "seeing where other users' memory lies"),
            row("CAP_DAC_READ_SEARCH", read, "seeing which processes handle their own memory"),
            row("CAP_BPF", bpf || admin, "hinting faults"),
            row("CAP_PERFMON", perfmon || admin, "hinting faults, samples of accesses"),
            row("CAP_SYS_NICE", nice, "placing other users' tasks, moving shared pages"),
            match self.sampling_takes_admin {
                true => {
                    row("CAP_SYS_ADMIN", admin, "--tune-kernel, as user root; samples of accesses")
                }
                false => row("CAP_SYS_ADMIN", admin && self.root, "--tune-kernel, as user root"),
            },
        ]
    }

    /// What each command can do here.
    pub fn abilities(&self) -> Vec<Ability> {
        let row = |command, state, uses: &str| Ability { command, state, uses: uses.into() };
        let none = (State::Missing, "there is one node with CPUs, so it ends at once");
        let faults = self.no_faults().is_none();
        let (state, uses) = match (faults, self.host.task_counts && self.host.numa_maps) {
            (true, _) if self.rights.ptrace => (State::Ok, "hinting faults, where pages lie"),
            (true, _) => (State::Limited, "hinting faults; of other users no pages"),
            (false, true) => (State::Limited, "the kernel's own counts, where pages lie"),
            (false, false) => (State::Limited, "where pages lie"),
        };
        let status = row("status, advise", state, uses);
        let (state, uses) = match (self.one_node(), &self.journals.1, faults) {
            (true, ..) => none,
            (_, Some(_), _) => (State::Missing, "it keeps no undo journal, so it changes nothing"),
            (_, _, true) if self.tiering() => {
                (State::Limited, "places tasks by hinting faults, moves no pages")
            }
            (_, _, true) => (State::Ok, "places tasks and pages by hinting faults"),
            (_, _, false) if self.sampling.is_ok() && self.tiering() => {
                (State::Limited, "places tasks by sampled accesses, moves no pages")
            }
            (_, _, false) if self.sampling.is_ok() => {
                (State::Ok, "places tasks and pages by sampled accesses")
            }
            (_, _, false) => (State::Limited, "places whole processes by where their pages lie"),
        };
        let balance = row("balance", state, uses);
        let (state, uses) = match &self.lab {
            Ok(_) => (State::Ok, "an emulated machine"),
            Err(_) => (State::Missing, "needs the lab (see above)"),
        };
        let lab = row("lab, compare --on lab", state, uses);
        vec![row("topology", State::Ok, "/sys"), status, balance, lab]
    }
}
