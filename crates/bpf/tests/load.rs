//! The running kernel accepts the programs, where it has the functions and we have the rights.

use numaherd_bpf::{Choice, FaultStream, Probe, choose, probe};
use numaherd_model::FaultSource;

#[test]
fn the_kernel_takes_both_forms_and_the_filter_changes() {
    // Loading does not need armed pages, so a machine with balancing switched off will do.
    let facts = Probe { numa_balancing: Some(1), ..probe("/".as_ref()) };
    let best = choose(&facts);
    let cpu_bits = facts.cpu_bits;
    if let Choice::Unavailable { reason } = &best {
        eprintln!("not tried here: {reason}");
        return;
    }
    let function = facts.task_numa_fault.unwrap().id;
    for choice in [best, Choice::WithoutAddresses { cpu_bits, function }] {
        let mut stream = match FaultStream::open_with_ring(&choice, 4096) {
            Err(error) if error.is_not_permitted() => {
                eprintln!("not tried here: {error}");
                return;
            }
            stream => stream.unwrap(),
        };
        assert_eq!(stream.with_addresses(), matches!(choice, Choice::WithAddresses { .. }));
        let me = std::process::id();
        for watched in [&[me][..], &[me, 1, me][..], &[1][..], &[][..], &[][..]] {
            stream.watch(watched).unwrap();
        }
        stream.drain(&mut Vec::new()).unwrap();
        assert_eq!(stream.lost(), 0);
    }
}
