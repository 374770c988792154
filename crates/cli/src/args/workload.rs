//! A workload and its parameters on the command line. Names and defaults are the workloads'.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Args, Command, Error, ValueEnum};
use numaherd_model::stem;
use numaherd_workloads::{Kind, Layout, Params, Start, Tie};

use super::OnOff;

/// A workload that comes with numaherd, and its parameters.
#[derive(Args, Clone)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_parser = names(), value_name = "WORKLOAD")]
    pub name: Kind,
    #[command(flatten)]
    pub given: Parameters,
}

/// Other parameters than the workload's own.
#[derive(Args, Clone)]
pub struct Parameters {
    /// Threads of all processes together [default: one per CPU, or as the workload has it]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub threads: Option<usize>,
    /// Processes of jbb-like [default: one per node]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub processes: Option<usize>,
    /// Memory of one process: bytes, or with K, M or G
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    pub size: Option<usize>,
    /// Rounds of each thread: passes over its memory, transactions, processes
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub loops: Option<usize>,
    /// Run for a fixed time instead of a fixed number of rounds
    #[arg(long, value_name = "S", value_parser = parse_seconds, conflicts_with_all = ["loops", "quick"])]
    pub seconds: Option<f64>,
    /// Huge pages: ask for them or refuse them [default: as the system has it]
    #[arg(long, value_enum)]
    pub thp: Option<OnOff>,
    /// Where threads and memory are when the timed part begins, for placements that tie nothing
    #[arg(long, value_enum)]
    pub start: Option<StartArg>,
    /// A sixth of the loops, of phases a twelfth: some four seconds in the lab
    #[arg(long)]
    pub quick: bool,
}

/// Every name, with the field's spellings.
fn names() -> impl TypedValueParser<Value = Kind> {
    PossibleValuesParser::new(Kind::all().map(value))
        .try_map(|name| Kind::find(&name).ok_or("no such workload"))
}

fn value(kind: Kind) -> PossibleValue {
    PossibleValue::new(kind.name()).aliases(kind.aliases()).help(kind.summary())
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A workload that comes with numaherd.
    Known(Kind),
    /// A user's own, which only the simulator can run: the path of its file.
    Own(String),
}

impl Subject {
    /// Takes every name, and what can be a file's.
    pub fn parser() -> impl TypedValueParser<Value = Subject> {
        SubjectParser
    }

    /// As results have it.
    pub fn name(&self) -> String {
        match self {
            Subject::Known(kind) => kind.name().into(),
            Subject::Own(path) => stem(path),
        }
    }

    /// What results say that it was told, of a run with so many threads. Of a user's own, what is not given the file
    /// says.
    pub fn told(&self, given: &Parameters, threads: usize) -> numaherd_report::Parameters {
        match self {
            Subject::Known(name) => {
                WorkloadArgs { name: *name, given: given.clone() }.told(threads)
            }
            Subject::Own(_) => numaherd_report::Parameters {
                threads,
                processes: None,
                size_bytes: given.size,
                loops: given.loops,
                seconds: None,
                thp: name(given.thp),
                start: name(given.start),
            },
        }
    }
}

#[derive(Clone)]
struct SubjectParser;

impl TypedValueParser for SubjectParser {
    type Value = Subject;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        text: &OsStr,
    ) -> Result<Subject, Error> {
        match text.to_str() {
            Some(path) if path.ends_with(".toml") || path.ends_with(".json") => {
                Ok(Subject::Own(path.into()))
            }
            _ => names().parse_ref(command, arg, text).map(Subject::Known),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Kind::all().into_iter().map(value)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartArg {
    /// The main thread touches everything first, wherever it runs
    FirstTouch,
    /// All memory on the first node
    OneNode,
    /// Every thread together with its memory, and then set free
    Placed,
    /// Every thread on another node than its memory, and then set free
    Inverse,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TieArg {
    /// Not at all
    #[default]
    Free,
    /// The natural static placement
    Bind,
    /// Its mirror: memory on the other node
    Inverse,
    /// Memory interleaved over all nodes with CPUs
    Interleave,
}

pub(super) fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(n) if (1..=1_000_000_000).contains(&n) => Ok(n),
        _ => Err("a whole number from 1 to 1000000000".into()),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("seconds, such as 30 or 0.5".into()),
    }
}

pub(super) fn parse_size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1usize << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    bytes.filter(|n| *n > 0).ok_or_else(|| "bytes, such as 67108864 or 64M".into())
}

impl Parameters {
    /// Whether what is given is for a workload of a user's own.
    ///
    /// # Errors
    /// What only those that come with numaherd have.
    pub fn check_own(&self, path: &str) -> anyhow::Result<()> {
        if self.processes.is_some() {
            misuse!("--processes is for jbb-like: {path} has as many as it says");
        }
        if self.quick {
            misuse!("--quick is for the workloads that come with numaherd: give --loops of {path}");
        }
        Ok(())
    }
}

impl WorkloadArgs {
    /// Whether what is given goes together.
    ///
    /// # Errors
    /// `--processes` of a workload that has as many as it has.
    pub fn check(&self) -> anyhow::Result<()> {
        let name = self.name.name();
        let has_any = self.given.processes.is_none() || self.name == Kind::JbbLike;
        if !has_any {
            misuse!("--processes is for jbb-like: {name} has as many as it has");
        }
        Ok(())
    }

    /// Memory of one process.
    pub fn size_bytes(&self) -> usize {
        // Whatever the number of CPUs.
        self.given.size.unwrap_or(self.name.defaults(1, self.given.quick).size_bytes)
    }

    /// With the workload's defaults where nothing is given.
    pub fn params(&self, tie: TieArg, layout: &Layout) -> Params {
        let defaults = self.name.defaults(layout.cpus().len(), self.given.quick);
        Params {
            threads: self.given.threads.unwrap_or(defaults.threads),
            processes: self.given.processes,
            size_bytes: self.size_bytes(),
            loops: self.given.loops.unwrap_or(defaults.loops),
            limit_ns: self.given.seconds.map(|seconds| (seconds * 1e9) as u64),
            huge_pages: self.given.thp.map(|thp| thp == OnOff::On),
            tie: match tie {
                TieArg::Free => Tie::Free,
                TieArg::Bind => Tie::Bind,
                TieArg::Inverse => Tie::Inverse,
                TieArg::Interleave => Tie::Interleave,
            },
            start: match self.given.start {
                None => defaults.start,
                Some(StartArg::FirstTouch) => Start::FirstTouch,
                Some(StartArg::OneNode) => Start::OneNode,
                Some(StartArg::Placed) => Start::Placed,
                Some(StartArg::Inverse) => Start::Inverse,
            },
        }
    }

    /// As results have them, of a run with so many threads.
    pub fn told(&self, threads: usize) -> numaherd_report::Parameters {
        // The number of CPUs counts for nothing but threads.
        let params = self.params(TieArg::Free, &Layout { nodes: Vec::new() });
        let start = match params.start {
            Start::FirstTouch => StartArg::FirstTouch,
            Start::OneNode => StartArg::OneNode,
            Start::Placed => StartArg::Placed,
            Start::Inverse => StartArg::Inverse,
        };
        numaherd_report::Parameters {
            threads,
            processes: params.processes,
            size_bytes: Some(params.size_bytes),
            loops: params.limit_ns.is_none().then_some(params.loops),
            seconds: self.given.seconds,
            thp: name(self.given.thp),
            start: name(Some(start)),
        }
    }

    /// As words for another command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.name.name().to_string()];
        let mut add = |option: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [option.to_string(), value]));
        };
        add("--threads", self.given.threads.map(|n| n.to_string()));
        add("--processes", self.given.processes.map(|n| n.to_string()));
        add("--size", self.given.size.map(|n| n.to_string()));
        add("--loops", self.given.loops.map(|n| n.to_string()));
        add("--seconds", self.given.seconds.map(|s| s.to_string()));
        add("--thp", name(self.given.thp));
        add("--start", name(self.given.start));
        words.extend(self.given.quick.then(|| "--quick".to_string()));
        words
    }
}

/// As the command line has it.
fn name(value: Option<impl ValueEnum>) -> Option<String> {
    value?.to_possible_value().map(|value| value.get_name().to_string())
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};

    use super::*;

    fn parse(words: &[&str]) -> WorkloadArgs {
        let command = WorkloadArgs::augment_args(clap::Command::new("bench").no_binary_name(true));
        WorkloadArgs::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn arguments_survive_being_words() {
        let given: &[&[&str]] = &[
            &["numa02"],
            &["numa01_THREAD_ALLOC", "--thp", "off", "--quick"],
            &["jbb-like", "--threads", "8", "--processes", "4", "--seconds", "2.5"],
            &["stream", "--size", "6291456", "--loops", "3", "--start", "placed"],
        ];
        for words in given {
            let once = parse(words).words();
            let again: Vec<&str> = once.iter().map(String::as_str).collect();
            assert_eq!(parse(&again).words(), once);
            assert_eq!(once[1..], words[1..]);
        }
        assert_eq!(parse(given[1]).words()[0], "numa01_thread_alloc");
    }

    /// What results tell of a run is what gives the same run again.
    #[test]
    fn parameters_are_told_as_options() {
        let told = |words: &[&str]| parse(words).told(8).to_string();
        assert_eq!(
            told(&["numa02"]),
            "--threads 8 --size 67108864 --loops 960 --start first-touch"
        );
        let all = "--threads 8 --processes 4 --size 1048576 --seconds 2.5 --thp off --start placed";
        let words: Vec<&str> = std::iter::once("jbb-like").chain(all.split(' ')).collect();
        assert_eq!(told(&words), all);
    }
}
