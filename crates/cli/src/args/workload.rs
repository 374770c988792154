//! A workload and its parameters on the command line. Names and defaults are the workloads'.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use numaherd_workloads::{Kind, Layout, Params, Start, Tie};

use super::OnOff;

/// A workload and its parameters.
#[derive(Args, Clone)]
pub struct WorkloadArgs {
    /// The workload
    #[arg(value_parser = names(), value_name = "WORKLOAD")]
    pub name: Kind,
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
    let value =
        |kind: Kind| PossibleValue::new(kind.name()).aliases(kind.aliases()).help(kind.summary());
    PossibleValuesParser::new(Kind::all().map(value))
        .try_map(|name| Kind::find(&name).ok_or("no such workload"))
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

impl WorkloadArgs {
    /// Whether what is given goes together.
    ///
    /// # Errors
    /// `--processes` of a workload that has as many as it has.
    pub fn check(&self) -> anyhow::Result<()> {
        let name = self.name.name();
        let has_any = self.processes.is_none() || self.name == Kind::JbbLike;
        if !has_any {
            misuse!("--processes is for jbb-like: {name} has as many as it has");
        }
        Ok(())
    }

    /// Memory of one process.
    pub fn size_bytes(&self) -> usize {
        // Whatever the number of CPUs.
        self.size.unwrap_or(self.name.defaults(1, self.quick).size_bytes)
    }

    /// With the workload's defaults where nothing is given.
    pub fn params(&self, tie: TieArg, layout: &Layout) -> Params {
        let defaults = self.name.defaults(layout.cpus().len(), self.quick);
        Params {
            threads: self.threads.unwrap_or(defaults.threads),
            processes: self.processes,
            size_bytes: self.size_bytes(),
            loops: self.loops.unwrap_or(defaults.loops),
            limit_ns: self.seconds.map(|seconds| (seconds * 1e9) as u64),
            huge_pages: self.thp.map(|thp| thp == OnOff::On),
            tie: match tie {
                TieArg::Free => Tie::Free,
                TieArg::Bind => Tie::Bind,
                TieArg::Inverse => Tie::Inverse,
                TieArg::Interleave => Tie::Interleave,
            },
            start: match self.start {
                None => defaults.start,
                Some(StartArg::FirstTouch) => Start::FirstTouch,
                Some(StartArg::OneNode) => Start::OneNode,
                Some(StartArg::Placed) => Start::Placed,
                Some(StartArg::Inverse) => Start::Inverse,
            },
        }
    }

    /// As words for another command line.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![self.name.name().to_string()];
        let mut add = |option: &str, value: Option<String>| {
            words.extend(value.into_iter().flat_map(|value| [option.to_string(), value]));
        };
        add("--threads", self.threads.map(|n| n.to_string()));
        add("--processes", self.processes.map(|n| n.to_string()));
        add("--size", self.size.map(|n| n.to_string()));
        add("--loops", self.loops.map(|n| n.to_string()));
        add("--seconds", self.seconds.map(|s| s.to_string()));
        let name = |value: Option<PossibleValue>| value.map(|v| v.get_name().to_string());
        add("--thp", name(self.thp.and_then(|thp| thp.to_possible_value())));
        add("--start", name(self.start.and_then(|start| start.to_possible_value())));
        words.extend(self.quick.then(|| "--quick".to_string()));
        words
    }
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
}
