//! `run`, and `numactl`: start a command under a policy and on CPUs, or put a policy on shared
//! memory.
//!
//! Options take effect one after the other, as in numactl: what `--show` prints is what the
//! options before it did, and what is wrong behind it never matters. The policy is this process's
//! own until it becomes the command, so a failure leaves nothing behind.

mod object;
mod show;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::CommandFactory;
use numaherd_linux::sys::{affinity, mempolicy};
use numaherd_linux::weights;
use numaherd_mempolicy::intent::{Intent, IntentError, Lists, Universes, mode_of, requested};
use numaherd_mempolicy::lists::Resolved;
use numaherd_mempolicy::numactl::{Given, Key, Options};
use numaherd_mempolicy::placing::Weights;
use numaherd_mempolicy::{Flags, Mode, Request};
use numaherd_model::{CpuSet, NodeId, NodeSet, Topology};

use crate::output::{Misuse, one_line};
use crate::{drop_in, start};
use object::{Object, Place};

const USAGE: &str = "usage: numactl [--all | -a] [--balancing | -b] [--interleave= | -i <nodes>]
               [--weighted-interleave= | -w <nodes>] [--preferred= | -p <node>]
               [--preferred-many= | -P <nodes>] [--physcpubind= | -C <cpus>]
               [--cpunodebind= | -N <nodes>] [--membind= | -m <nodes>]
               [--localalloc | -l] command args ...
       numactl [--show | -s]
       numactl [--hardware | -H]
       numactl [--length | -L <length>] [--offset | -o <offset>] [--shmmode | -M <shmmode>]
               [--strict | -t] [--shmid | -I <id>] [--huge | -u] [--touch | -T]
               --shm | -S <shmkeyfile> or --file | -f <tmpfsfile>
               memory policy [--verify | -V] [--dump | -d] [--dump-nodes | -D]

<nodes> and <cpus> are lists such as 0,2-3 or all; ! before one inverts it, + makes it relative to
the cpuset. A node can also be netdev:DEV, file:PATH, ip:HOST, block:PATH or pci:[seg:]bus:dev[:func].
<length> can have g (GB), m (MB) or k (KB) suffixes.";

/// Why it ends before the command is started.
enum Stop {
    /// The command line is wrong; nothing to say means that the usage says it.
    Usage(String),
    /// It could not be done.
    Failed(String),
    /// It is done.
    Done(ExitCode),
}

type Step<T> = Result<T, Stop>;

fn failed(error: impl std::fmt::Display) -> Stop {
    Stop::Failed(error.to_string())
}

fn refused(error: &anyhow::Error) -> Stop {
    let line = one_line(error);
    if error.is::<Misuse>() { Stop::Usage(line) } else { Stop::Failed(line) }
}

/// As numactl; `words` are those behind its name.
pub fn numactl(words: &[OsString]) -> ExitCode {
    let stop = interpret(words, false);
    match stop {
        Stop::Usage(line) => {
            if !line.is_empty() {
                say!("numactl: {line}");
            }
            say!("{USAGE}");
            ExitCode::from(1)
        }
        Stop::Failed(line) => {
            say!("numactl: {line}");
            ExitCode::from(1)
        }
        Stop::Done(code) => code,
    }
}

/// As `numaherd run`; `words` are those behind it.
pub fn ours(words: &[OsString]) -> ExitCode {
    match interpret(words, true) {
        Stop::Usage(line) => {
            let line = if line.is_empty() { "the command is missing" } else { line.as_str() };
            say!("numaherd: {line} (--help says more)");
            ExitCode::from(2)
        }
        Stop::Failed(line) => {
            say!("numaherd: {line}");
            ExitCode::from(1)
        }
        Stop::Done(code) => code,
    }
}

/// Reads the options and does what they say, up to and with the command.
fn interpret(words: &[OsString], ours: bool) -> Stop {
    let texts: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut options = if ours { Options::with_ours(&texts) } else { Options::new(&texts) };
    let (topology, universes) = match drop_in::here() {
        Ok(here) => here,
        Err(error) => return Stop::Failed(one_line(&error)),
    };
    let mut session = Session::new(&topology, &universes, ours);
    // wherever it stands, nothing may be done before it
    session.explain = options.clone().flatten().any(|given| given.key == Key::Explain);
    for given in options.by_ref() {
        let step = match given {
            Ok(given) => session.take(&given),
            Err(error) => Err(Stop::Usage(error.to_string())),
        };
        if let Err(stop) = step {
            return stop;
        }
    }
    let command = &words[words.len() - options.rest().len()..];
    session.end(command)
}

/// What the options have come to so far.
struct Session<'a> {
    topology: &'a Topology,
    lists: Lists<'a, fn(&str) -> Resolved>,
    /// Whether it is `run`, and not numactl.
    ours: bool,
    explain: bool,
    balancing: Flags,
    policy: Option<Request>,
    home: Option<NodeId>,
    /// The machine's, so they are set last of all.
    weights: Weights,
    /// The CPUs that the last option bound to.
    cpus: Option<CpuSet>,
    strict: bool,
    /// Where the object is to be found, and its first option.
    place: Place,
    place_option: Option<&'static str>,
    object: Option<Object>,
    /// What --verify found wrong.
    wrong: bool,
}

impl<'a> Session<'a> {
    fn new(topology: &'a Topology, universes: &'a Universes, ours: bool) -> Self {
        Session {
            topology,
            lists: Lists::new(universes, drop_in::device),
            ours,
            explain: false,
            balancing: Flags::NONE,
            policy: None,
            home: None,
            weights: Weights::new(),
            cpus: None,
            strict: false,
            place: Place::default(),
            place_option: None,
            object: None,
            wrong: false,
        }
    }

    /// Who speaks on standard error.
    fn name(&self) -> &'static str {
        if self.ours { "numaherd" } else { "numactl" }
    }

    fn take(&mut self, given: &Given) -> Step<()> {
        match given.key {
            Key::Help => return Err(Stop::Done(help())),
            Key::Show => return Err(Stop::Done(show::show(self.topology, self.name()))),
            Key::Hardware => {
                self.no_policy_yet()?;
                put!("{}", numaherd_linux::numactl::hardware(self.topology));
                return Err(Stop::Done(ExitCode::SUCCESS));
            }
            Key::All => self.lists.widen().map_err(|error| Stop::Usage(error.to_string()))?,
            Key::Balancing => {
                self.no_policy_yet()?;
                self.balancing = Flags::BALANCING;
            }
            Key::Explain => {}
            Key::Strict => self.strict = true,
            Key::Weights => {
                let weights = weights::parse(given.text());
                self.weights = weights.map_err(|error| Stop::Usage(error.to_string()))?;
            }
            Key::HomeNode => self.home = Some(self.one_node(given.text())?),
            Key::Cpunodebind => self.bind_cpus_of(given.text())?,
            Key::Physcpubind => self.bind_cpus(given.text())?,
            Key::Shm
            | Key::File
            | Key::Length
            | Key::Offset
            | Key::Shmmode
            | Key::Shmid
            | Key::Huge => self.take_place(given)?,
            Key::Touch | Key::Verify | Key::Dump | Key::DumpNodes => {
                self.look_at_object(given.key)?
            }
            key => {
                let mode = mode_of(key).ok_or_else(|| Stop::Usage(format!("{key:?}")))?;
                self.set_policy(mode, given)?;
            }
        }
        Ok(())
    }

    fn no_policy_yet(&self) -> Step<()> {
        match self.policy {
            Some(_) => Err(Stop::Usage("specify policy after --shm/--file".into())),
            None => Ok(()),
        }
    }

    fn nodes(&mut self, text: &str) -> Step<NodeSet> {
        self.lists.nodes(text).map_err(|error| refused_list(&error, self.ours))
    }

    fn one_node(&mut self, text: &str) -> Step<NodeId> {
        let nodes = self.nodes(text)?;
        let one = nodes.first().filter(|_| nodes.len() == 1);
        one.ok_or_else(|| Stop::Usage(format!("one node is wanted, not '{text}'")))
    }

    fn set_policy(&mut self, mode: Mode, given: &Given) -> Step<()> {
        let conflict = || Stop::Usage("Conflicting policies".into());
        // numactl looks at lists first, but not at those of --membind
        if mode == Mode::Bind && self.policy.is_some() {
            return Err(conflict());
        }
        if mode == Mode::PreferredMany && !self.ours && libnuma_misses_preferred_many() {
            return Err(Stop::Failed("preferred-many requested without kernel support".into()));
        }
        let nodes = if mode == Mode::Local { NodeSet::new() } else { self.nodes(given.text())? };
        if self.policy.is_some() {
            return Err(conflict());
        }
        // Interleaving over nothing takes the policy away: that is how numactl says default.
        let takes_away = mode == Mode::Interleave && given.text().is_empty();
        if self.ours && mode != Mode::Local && nodes.is_empty() && !takes_away {
            return Err(Stop::Usage(format!("'{}' names no node", given.text())));
        }
        if mode == Mode::Preferred && nodes.len() != 1 {
            let several = "--preferred takes one node; for several there is --preferred-many";
            return Err(Stop::Usage(several.into()));
        }
        let request = requested(mode, nodes, self.balancing);
        self.policy = Some(request.clone());
        if self.explain {
            return Ok(());
        }
        match &self.object {
            Some(object) => object.bind(&request, self.strict).map_err(failed),
            None => set_own(request),
        }
    }

    fn bind_cpus_of(&mut self, text: &str) -> Step<()> {
        self.no_object("-c/--cpubind/--cpunodebind")?;
        let nodes = self.nodes(text)?;
        let members = self.topology.nodes.iter().filter(|node| nodes.contains(node.id));
        self.run_on(&members.flat_map(|node| node.cpus.iter()).collect())
    }

    fn bind_cpus(&mut self, text: &str) -> Step<()> {
        self.no_object("-C/--physcpubind")?;
        let cpus = self.lists.cpus(text).map_err(|error| refused_list(&error, self.ours))?;
        self.run_on(&cpus)
    }

    fn run_on(&mut self, cpus: &CpuSet) -> Step<()> {
        self.cpus = Some(cpus.clone());
        if self.explain { Ok(()) } else { affinity::set(0, cpus).map_err(failed) }
    }

    /// CPUs cannot be bound where shared memory is meant.
    fn no_object(&self, option: &str) -> Step<()> {
        match (self.place_option, &self.object) {
            (Some(before), _) => {
                Err(Stop::Usage(format!("{before} shm option is not allowed before {option}")))
            }
            (None, Some(_)) => Err(Stop::Usage("cannot do --cpubind on shared memory".into())),
            (None, None) => Ok(()),
        }
    }

    /// A size: as the original reads it, which takes what is none for 0, or strictly.
    fn size(&self, given: &Given) -> Step<u64> {
        let text = given.text();
        let size = if self.ours { drop_in::strict_size(text) } else { Some(drop_in::size(text)) };
        size.ok_or_else(|| Stop::Usage(format!("'{text}' is no size: bytes, or with k, m or g")))
    }

    fn take_place(&mut self, given: &Given) -> Step<()> {
        let mut before_object = |option: &'static str| {
            if self.object.is_some() {
                let line = format!("{option} must be before shared memory specification");
                return Err(Stop::Usage(line));
            }
            self.place_option = Some(option);
            Ok(())
        };
        match given.key {
            Key::Length => {
                before_object("--length")?;
                self.place.len = self.size(given)?;
            }
            Key::Offset => {
                before_object("--offset")?;
                self.place.offset = self.size(given)?;
            }
            Key::Huge => {
                before_object("--huge")?;
                self.place.huge = true;
            }
            Key::Shmmode => {
                before_object("--shmmode")?;
                let mode = u32::from_str_radix(given.text(), 8);
                self.place.mode = mode.map_err(|_| not_a_number("--shmmode", given.text()))?;
            }
            Key::Shmid => match numaherd_mempolicy::lists::c_number(given.text()) {
                // only the low 8 bits make the key
                Some((id, "")) => self.place.id = (id & 0xff) as i32,
                _ => return Err(not_a_number("--shmid", given.text())),
            },
            _ => self.attach(given)?,
        }
        Ok(())
    }

    fn attach(&mut self, given: &Given) -> Step<()> {
        if self.cpus.is_some() {
            return Err(Stop::Usage("cannot do --cpubind on shared memory".into()));
        }
        self.no_policy_yet()?;
        if self.explain {
            return Ok(());
        }
        let attached = if given.key == Key::Shm {
            Object::segment(given.text(), &self.place, self.name())
        } else {
            Object::file(given.text(), &self.place)
        };
        self.object = Some(attached.map_err(|error| refused(&error))?);
        Ok(())
    }

    fn look_at_object(&mut self, key: Key) -> Step<()> {
        if self.explain {
            return Ok(());
        }
        let (name, usage) = match key {
            Key::Touch => ("--touch", true),
            Key::Verify => ("--verify", true),
            Key::Dump => ("--dump", false),
            _ => ("--dump-nodes", false),
        };
        let Some(object) = self.object.as_mut() else {
            return Err(if usage {
                Stop::Usage(format!("{name} must be after shared memory specification"))
            } else {
                Stop::Failed(format!("Cannot do {name} without shared memory."))
            });
        };
        match key {
            Key::Touch => object.touch(),
            Key::Verify => {
                let policy = self.policy.as_ref();
                let policy = policy.ok_or_else(|| failed("Need a policy first to verify"))?;
                self.wrong |= !object.verify(policy).map_err(failed)?;
            }
            Key::Dump => object.dump().map_err(failed)?,
            _ => object.dump_nodes().map_err(failed)?,
        }
        Ok(())
    }

    /// The options are over.
    fn end(mut self, command: &[OsString]) -> Stop {
        if self.explain {
            let Session { policy, home, cpus, .. } = self;
            let intent = Intent { policy, home, cpu_nodes: None, cpus };
            return super::policy::explain_here(&intent, self.weights)
                .map_or_else(|error| refused(&error), Stop::Done);
        }
        if let Some(object) = self.object.take() {
            if !command.is_empty() {
                return Stop::Usage(String::new());
            }
            let home = self.home.map_or(Ok(()), |home| object.set_home(home));
            if let Err(stop) = home.map_err(failed).and_then(|()| set_weights(&self.weights)) {
                return stop;
            }
            return Stop::Done(ExitCode::from(u8::from(self.wrong)));
        }
        if self.home.is_some() {
            return Stop::Usage(
                "--home-node goes with --shm or --file: the kernel has home nodes for ranges of memory, not for processes".into(),
            );
        }
        if self.strict {
            say!("{}: warning. Strict flag for process ignored.", self.name());
        }
        if let Some(option) = self.place_option {
            return Stop::Usage(format!("shm related option {option} for process"));
        }
        let [program, arguments @ ..] = command else { return Stop::Usage(String::new()) };
        let before = match set_weights(&self.weights) {
            Ok(before) => before,
            Err(stop) => return stop,
        };
        let error = start::command(program, arguments).exec();
        weights::put_back("/".as_ref(), &self.weights, &before);
        let name = program.to_string_lossy();
        if !self.ours {
            return Stop::Failed(format!("execution of `{name}': {}", start::plain(&error)));
        }
        say!("numaherd: cannot run {name}: {}", start::plain(&error));
        Stop::Done(ExitCode::from(start::code(&error)))
    }
}

/// Sets this process's policy. Balancing is left out where the kernel does not know it.
fn set_own(request: Request) -> Step<()> {
    let refused = match mempolicy::set(&request) {
        Err(error) if request.flags.has(Flags::BALANCING) => {
            let plain = Request { flags: Flags::NONE, ..request.clone() };
            if error.errno() == Some(libc_invalid()) { mempolicy::set(&plain) } else { Err(error) }
        }
        result => result,
    };
    let Err(error) = refused else { return Ok(()) };
    let unknown = mempolicy::Feature::Mode(request.mode);
    if mempolicy::lacks(unknown) {
        let mode = request.mode.numactl_word();
        return Err(Stop::Failed(format!("{mode} requested without kernel support ({error})")));
    }
    Err(failed(error))
}

/// libnuma tries the mode with node 0 alone, and so does not find it in cpusets without that node.
fn libnuma_misses_preferred_many() -> bool {
    mempolicy::lacks(mempolicy::Feature::Mode(Mode::PreferredMany))
        || mempolicy::allowed().is_ok_and(|nodes| !nodes.contains(NodeId(0)))
}

/// EINVAL.
fn libc_invalid() -> i32 {
    22
}

fn not_a_number(option: &str, text: &str) -> Stop {
    Stop::Usage(format!("{option} takes a number, not '{text}'"))
}

/// numactl says on stdout which list is invalid, and libnuma on stderr why.
fn refused_list(error: &IntentError, ours: bool) -> Stop {
    match error {
        IntentError::List { list, source } if !ours => {
            say!("libnuma: Warning: {source}");
            putln!("<{list}> is invalid");
            Stop::Usage(String::new())
        }
        error => Stop::Usage(error.to_string()),
    }
}

fn set_weights(wanted: &Weights) -> Step<Weights> {
    if wanted.is_empty() {
        return Ok(Weights::default());
    }
    let before = weights::write("/".as_ref(), wanted).map_err(failed)?;
    for (node, weight) in wanted {
        let was = before.get(node).map_or("unknown".into(), ToString::to_string);
        say!("numaherd: weight of node {node} is {weight} now, was {was} (the whole machine's)");
    }
    Ok(before)
}

fn help() -> ExitCode {
    let mut cli = crate::args::Cli::command();
    // built as a whole, so that the usage says `numaherd run`
    cli.build();
    if let Some(run) = cli.find_subcommand_mut("run") {
        put!("{}", run.render_long_help());
    }
    ExitCode::SUCCESS
}
