//! Options read as getopt_long reads them, intents as numactl means them, and back again.

use proptest::prelude::*;

use numaherd_model::{CpuId, NodeId, NodeSet};

use super::*;
use crate::intent::{Intent, Universes, requested};
use crate::{Flags, Mode};

fn words(line: &str) -> Vec<String> {
    line.split(' ').filter(|word| !word.is_empty()).map(str::to_string).collect()
}

type Read = Vec<Result<(Key, Option<String>), OptionError>>;

fn keys(line: &str) -> (Read, Vec<String>) {
    let words = words(line);
    let mut options = Options::new(&words);
    let read = options.by_ref().map(|given| given.map(|given| (given.key, given.value))).collect();
    (read, options.rest().to_vec())
}

#[test]
fn options_end_at_the_command() {
    let (read, rest) = keys("-sm0 --interleave 1 -C 2 -- -l ls -a");
    let given: Vec<_> = read.into_iter().map(Result::unwrap).collect();
    let value = |text: &str| Some(text.to_string());
    assert_eq!(
        given,
        [
            (Key::Show, None),
            (Key::Membind, value("0")),
            (Key::Interleave, value("1")),
            (Key::Physcpubind, value("2")),
        ]
    );
    assert_eq!(rest, ["-l", "ls", "-a"]);
    assert_eq!(keys("-l - -s").1, ["-", "-s"]);
    assert_eq!(keys("-- -- x").1, ["--", "x"]);
}

#[test]
fn names_are_shortened_as_long_as_one_is_left() {
    let key = |line: &str| keys(line).0.remove(0).map(|(key, _)| key).map_err(|e| e.to_string());
    assert_eq!(key("--inter=0"), Ok(Key::Interleave));
    assert_eq!(key("--preferred=0"), Ok(Key::Preferred), "exact, though a longer one exists");
    assert_eq!(key("--dump"), Ok(Key::Dump));
    assert!(key("--pref=0").unwrap_err().contains("ambiguous"));
    assert!(key("--sh").unwrap_err().contains("'--show' '--shm'"));
    assert!(key("--nothing").unwrap_err().contains("unrecognized"));
    assert!(key("-m").unwrap_err().contains("requires an argument"));
    assert!(key("--show=1").unwrap_err().contains("doesn't allow"));
    assert!(key("-x").unwrap_err().contains("unrecognized"));
    assert!(key("--explain").is_err(), "ours are not numactl's");
}

fn universes() -> Universes {
    Universes::whole("0-3".parse().unwrap(), "0-7".parse().unwrap())
}

fn intent(line: &str) -> Result<Intent, String> {
    let words = words(line);
    let mut options = Options::with_ours(&words);
    Intent::read(&mut options, &universes(), |_| None).map_err(|error| error.to_string())
}

#[test]
fn words_name_only_what_may_be_named() {
    let mut universes = universes();
    universes.nodes.allowed = "1,3".parse().unwrap();
    let words = |nodes: &str| {
        let policy = Some(requested(Mode::Bind, nodes.parse().unwrap(), Flags::NONE));
        Intent { policy, ..Intent::default() }.words(&universes)
    };
    assert_eq!(words("1").unwrap(), ["--membind=1"]);
    assert_eq!(words("0,2-3").unwrap(), ["--membind=!1"]);
    assert_eq!(words("2").unwrap(), ["--all", "--membind=2"]);
    assert_eq!(words("9"), None);
}

#[test]
fn intents_are_those_of_numactl() {
    let words = |line| intent(line).unwrap().words(&universes()).unwrap();
    assert_eq!(words("-N 0 -m same ls"), ["--cpunodebind=0", "--membind=0"]);
    assert_eq!(
        words("-N 0 -C +0-1 -l ls"),
        ["--physcpubind=0-1", "--localalloc"],
        "the last counts"
    );
    assert_eq!(words("-P 0-1 --home-node 1 ls"), ["--preferred-many=0-1", "--home-node=1"]);
    assert_eq!(intent("-b -m 0 ls").unwrap().policy.unwrap().flags, Flags::BALANCING);
    assert_eq!(intent("-i !all ls").unwrap().policy.unwrap().mode, Mode::Default);
    for (line, problem) in [
        ("-m 0 -i 1", "Conflicting policies"),
        ("-p 0-1", "takes one node"),
        ("-m 9", "<9> is invalid"),
        ("-N same", "same needs previous"),
        ("-C 0 -a", "must be before"),
        ("-m 0 -b", "must be before"),
        ("--shm /x", "only options that concern a process"),
        ("--home-node 0-1", "takes one node"),
    ] {
        let error = intent(line).unwrap_err();
        assert!(error.contains(problem), "{line}: {error}");
    }
}

proptest! {
    #[test]
    fn what_is_asked_for_reads_back(
        request in crate::policy::tests::any_request(),
        cpus in proptest::option::of(proptest::collection::btree_set(0u32..8, 1..5)),
        cpu_nodes in proptest::option::of(proptest::collection::btree_set(0u32..4, 1..3)),
        home in proptest::option::of(0u32..4),
    ) {
        let nodes: NodeSet = request.nodes.iter().filter(|node| node.0 < 4).collect();
        let balancing = if request.flags.has(Flags::BALANCING) { Flags::BALANCING } else { Flags::NONE };
        let sensible = match request.mode {
            Mode::Preferred => nodes.len() == 1,
            Mode::Local | Mode::Default => nodes.is_empty(),
            _ => !nodes.is_empty(),
        };
        prop_assume!(sensible);
        let wanted = Intent {
            policy: Some(requested(request.mode, nodes, balancing)),
            home: home.map(NodeId),
            cpu_nodes: cpu_nodes.filter(|_| cpus.is_none()).map(|ids| ids.into_iter().map(NodeId).collect()),
            cpus: cpus.map(|ids| ids.into_iter().map(CpuId).collect()),
        };
        let words = wanted.words(&universes()).unwrap();
        let read = Intent::read(&mut Options::with_ours(&words), &universes(), |_| None).unwrap();
        prop_assert_eq!(read, wanted);
    }

    #[test]
    fn no_words_panic(line in proptest::collection::vec("-{0,2}[a-zA-Z=0-9,!+-]{0,12}", 0..6)) {
        let mut options = Options::with_ours(&line);
        let _ = Intent::read(&mut options, &universes(), |_| None);
        prop_assert!(options.rest().len() <= line.len());
    }
}
