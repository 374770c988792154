//! Programs whose threads sleep for tenths of a second and go on: who was placed keeps its place.

use numaherd_sim::{Machine, Workload};

use super::{Job, Kernel};
use crate::args::SimPlacement;

/// Times that each thread may be placed or released in a minute: it is, at first; garbage is collected by threads that are
/// busy for an eighth of their time, and two to four of them are given up and found again. Without a memory for what is
/// usual it was 23 to 28 times.
const MOST_EACH: usize = 2;

/// How often a thread was placed or released.
fn moves(name: &str, text: &str, placement: SimPlacement) -> usize {
    let machine = &Machine::built_in("2x4").unwrap().unwrap();
    let workload = &Workload::parse_rt_app(name, name, text).unwrap();
    let (kernel, without) = (Kernel::Lab, &[][..]);
    let job = Job { machine, workload, placement, huge_pages: true, seed: 1, kernel, without };
    let finished = job.run(false).unwrap();
    let of_task = |what: &str| what.starts_with("place task") || what.starts_with("release task");
    finished.moves.iter().filter(|one| of_task(&one.what)).count()
}

#[test]
fn threads_that_sleep_for_a_moment_are_not_placed_over_and_over() {
    let programs = [
        ("collector", include_str!("../../../../workloads/rt-app/collector.json"), 10),
        ("server", include_str!("../../../../workloads/rt-app/server.json"), 12),
    ];
    for (name, text, threads) in programs {
        for placement in [SimPlacement::Herd, SimPlacement::HerdUntuned] {
            let moves = moves(name, text, placement);
            assert!(
                (1..=MOST_EACH * threads).contains(&moves),
                "{name} under {placement}: {moves}"
            );
        }
    }
}
