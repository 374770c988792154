//! Holds numaherd to its two truths, on a machine with several nodes:
//!
//! - `lines COUNT SEED NUMACTL OURS`: on generated command lines, ours does what numactl does:
//!   same exit code, same output, same policy and CPUs of the child. Children run [`probe`].
//! - `policies COUNT SEED`: what the kernel makes of random policies and cpuset changes is what
//!   the crate `mempolicy` predicts, down to the node of every page.
//! - `asserts SEED`: what three of numactl's own tests look at and cannot fail for (`move_pages`
//!   compares the request with itself, `tshared` and `randmap` only print).
//!
//! All run in the emulated machine (`make conformance`): they need root, cgroup 2 with cpusets,
//! and change only their own group. Each difference is one line; the last line is the count.

use std::process::ExitCode;

#[path = "conform/asserts.rs"]
mod asserts;
#[path = "conform/lines.rs"]
mod lines;
#[path = "conform/policies.rs"]
mod policies;

/// The group the tests put themselves into.
const GROUP: &str = "/sys/fs/cgroup/numaherd-conform";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let different = match words.as_slice() {
        ["probe"] => {
            lines::probe();
            return ExitCode::SUCCESS;
        }
        ["lines", count, seed, numactl, ours] => {
            lines::run(count.parse().unwrap(), seed.parse().unwrap(), numactl, ours)
        }
        ["asserts", seed] => asserts::run(seed.parse().unwrap()),
        ["policies", count, seed] => policies::run(count.parse().unwrap(), seed.parse().unwrap()),
        _ => {
            eprintln!(
                "usage: conform lines COUNT SEED NUMACTL OURS | conform policies COUNT SEED | conform asserts SEED"
            );
            return ExitCode::from(2);
        }
    };
    ExitCode::from(u8::from(different > 0))
}

/// Makes our group, with this process in it.
fn enter_group() {
    std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpuset").unwrap();
    std::fs::create_dir_all(GROUP).unwrap();
    // Whatever a part before this one has left there: all CPUs and nodes again.
    set_group("cpus", "\n");
    set_group("mems", "\n");
    std::fs::write(format!("{GROUP}/cgroup.procs"), std::process::id().to_string()).unwrap();
}

/// Sets one of the group's cpuset files.
fn set_group(file: &str, list: &str) {
    std::fs::write(format!("{GROUP}/cpuset.{file}"), list)
        .unwrap_or_else(|error| panic!("cpuset.{file} = {list}: {error}"));
}
