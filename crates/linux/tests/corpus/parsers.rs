//! Every parser of memory policies on one text. What is read must read back from what it prints;
//! nothing may panic.

use numaherd_linux::memory::numa_maps;
use numaherd_linux::weights;
use numaherd_mempolicy::intent::{Intent, Universes};
use numaherd_mempolicy::lists::{self, parse_cpus, parse_nodes};
use numaherd_mempolicy::numactl::Options;
use numaherd_mempolicy::{Policy, Room, kernel_text};

/// Gives `text` to all of them.
pub fn all(text: &str) {
    let memory = "0-1,3".parse().unwrap();
    let universes = Universes::whole("0-1,3".parse().unwrap(), "0-7,64".parse().unwrap());
    if let Ok(nodes) = parse_nodes(text, &universes.nodes, |_| None) {
        assert_eq!(nodes.to_string().parse().as_ref(), Ok(&nodes));
        let printed = lists::format(&nodes, &universes.nodes).unwrap();
        assert_eq!(parse_nodes(&printed, &universes.nodes, |_| None), Ok(nodes));
    }
    if let Ok(cpus) = parse_cpus(text, &universes.cpus) {
        let printed = lists::format(&cpus, &universes.cpus).unwrap();
        assert_eq!(parse_cpus(&printed, &universes.cpus), Ok(cpus));
    }
    if let Ok(request) = kernel_text::parse_mount(text, &memory) {
        if let Some(printed) = kernel_text::format_mount(&request) {
            assert_eq!(kernel_text::parse_mount(&printed, &memory).as_ref(), Ok(&request));
        }
        let room = Room { allowed: memory.clone(), memory: memory.clone() };
        if let Ok(Some(mut policy)) = Policy::new(&request, &room) {
            let read = kernel_text::parse_map(&policy.to_string()).unwrap();
            assert_eq!((&read.nodes, read.mode), (policy.nodes(), policy.mode()));
            policy.rebind(&"3".parse().unwrap());
        }
    }
    let _ = kernel_text::parse_map(text);
    let _ = numa_maps::parse(text);
    let _ = weights::parse(text);
    let words: Vec<String> = text.split('\n').map(str::to_string).collect();
    let mut options = Options::with_ours(&words);
    if let Ok(intent) = Intent::read(&mut options, &universes, |_| None) {
        let printed = intent.words(&universes).expect("what was read from lists can be written");
        let again = Intent::read(&mut Options::with_ours(&printed), &universes, |_| None);
        assert_eq!(again.as_ref(), Ok(&intent));
    }
}
