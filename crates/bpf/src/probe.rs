//! What this kernel and our rights allow: facts first, the decision as a pure function of them.
//!
//! | fact | read from |
//! |------|-----------|
//! | functions, their ids and argument counts | `/sys/kernel/btf/vmlinux` (Linux 5.2) |
//! | rights | `CapEff` in `/proc/self/status` |
//! | whether pages are armed at all | `/proc/sys/kernel/numa_balancing` |
//! | width of a packed CPU number | `/sys/devices/system/cpu/kernel_max` |
//! | whether pids are the kernel's own | `/proc/self/ns/pid` (Linux 3.8) |

use std::path::Path;

use crate::btf::{self, Found, Function, TaskIds};
use crate::event::cpu_bits;

/// The arguments our BPF program counts on: `task_numa_fault(last_cpupid, mem_node, pages,
/// flags)`, since Linux 3.13.
const TASK_NUMA_FAULT_ARGUMENTS: u32 = 4;
/// `mpol_misplaced(…, …, address)`, since Linux 3.8.
const MPOL_MISPLACED_ARGUMENTS: u32 = 3;

/// `wake_up_new_task(child)`, since Linux 2.6.
const WAKE_UP_NEW_TASK_ARGUMENTS: u32 = 1;

/// Capability numbers of include/uapi/linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What `/proc/self/ns/pid` names in the first PID namespace of all: PROC_PID_INIT_INO of
/// include/linux/proc_ns.h.
const FIRST_PIDS: &str = "pid:[4026531836]";

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// What is wrong with the kernel's BTF file, if anything; it may be missing.
    pub btf_problem: Option<String>,
    /// `task_numa_fault`; None where the kernel has no such function.
    pub task_numa_fault: Option<Function>,
    /// `mpol_misplaced`.
    pub mpol_misplaced: Option<Function>,
    /// `exit_signals`, which every task that ends comes through.
    pub exit_signals: Option<Function>,
    /// `wake_up_new_task`, by which every task that is born comes.
    pub wake_up_new_task: Option<Function>,
    /// Where a `task_struct` has its ids.
    pub task_ids: Option<TaskIds>,
    /// Whether we hold CAP_SYS_ADMIN, or both CAP_BPF and CAP_PERFMON.
    pub privileged: bool,
    /// `kernel.numa_balancing`; None on a kernel built without it.
    pub numa_balancing: Option<u32>,
    /// Bits the kernel keeps for a CPU number.
    pub cpu_bits: Option<u32>,
    /// Whether we are in a PID namespace other than the first, so that the kernel's pids are not those we know.
    pub own_pids: bool,
}

/// By what births are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Births {
    /// BTF id of `wake_up_new_task`.
    pub function: u32,
    /// Where a `task_struct` has its ids.
    pub ids: TaskIds,
}

/// What can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Faults with the address of each.
    WithAddresses {
        /// Bits the kernel keeps for a CPU number.
        cpu_bits: Option<u32>,
        /// BTF ids of `task_numa_fault` and `mpol_misplaced`.
        functions: [u32; 2],
        /// And of `exit_signals`, by which those that end are counted, where there is one.
        exits: Option<u32>,
        /// By what births are told, where that can be.
        births: Option<Births>,
    },
    /// Faults without addresses: who uses which node, not which region.
    WithoutAddresses {
        /// Bits the kernel keeps for a CPU number.
        cpu_bits: Option<u32>,
        /// BTF id of `task_numa_fault`.
        function: u32,
    },
    /// No faults.
    Unavailable {
        /// One line: why, and what to do about it.
        reason: String,
    },
}

/// Collects the facts below `root`. Whatever cannot be read counts as missing.
#[must_use]
pub fn probe(root: &Path) -> Probe {
    let text = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let number = |path: &str| text(path)?.trim().parse::<u32>().ok();
    let names = ["task_numa_fault", "mpol_misplaced", "exit_signals", "wake_up_new_task"];
    let found = std::fs::read(root.join("sys/kernel/btf/vmlinux"))
        .map_err(|error| error.to_string())
        .and_then(|bytes| btf::find(&bytes, names).map_err(|error| error.to_string()));
    let (btf_problem, found) = match found {
        Ok(found) => (None, found),
        Err(problem) => (Some(problem), Found { functions: [None; 4], ids: None }),
    };
    let [task_numa_fault, mpol_misplaced, exit_signals, wake_up_new_task] = found.functions;
    Probe {
        btf_problem,
        task_numa_fault,
        mpol_misplaced,
        exit_signals,
        wake_up_new_task,
        task_ids: found.ids,
        privileged: text("proc/self/status").is_some_and(|status| may_load(&status)),
        numa_balancing: number("proc/sys/kernel/numa_balancing"),
        cpu_bits: number("sys/devices/system/cpu/kernel_max").map(cpu_bits),
        own_pids: std::fs::read_link(root.join("proc/self/ns/pid"))
            .is_ok_and(|target| target != Path::new(FIRST_PIDS)),
    }
}

/// Whether the effective capabilities of a `/proc/PID/status` suffice to load tracing programs.
fn may_load(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    let has = |capability: u32| bits >> capability & 1 == 1;
    has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))
}

/// Decides from the facts alone.
#[must_use]
pub fn choose(probe: &Probe) -> Choice {
    let unavailable = |reason: String| Choice::Unavailable { reason };
    match probe.numa_balancing {
        None => {
            return unavailable(
                "this kernel has no /proc/sys/kernel/numa_balancing: boot one built with \
                 CONFIG_NUMA_BALANCING=y"
                    .to_string(),
            );
        }
        Some(mode) if mode & 1 == 0 => {
            return unavailable(format!(
                "kernel.numa_balancing is {mode}, so the kernel arms no pages: run \
                 'sysctl kernel.numa_balancing={}'",
                mode | 1
            ));
        }
        Some(_) => {}
    }
    if let Some(problem) = &probe.btf_problem {
        return unavailable(format!(
            "cannot use /sys/kernel/btf/vmlinux ({problem}): boot a kernel built with \
             CONFIG_DEBUG_INFO_BTF=y"
        ));
    }
    let Some(Function { id: function, arguments }) = probe.task_numa_fault else {
        return unavailable(
            "this kernel's BTF has no function task_numa_fault: boot a distribution kernel"
                .to_string(),
        );
    };
    if arguments != TASK_NUMA_FAULT_ARGUMENTS {
        return unavailable(format!(
            "this kernel's task_numa_fault takes {arguments} arguments, not \
             {TASK_NUMA_FAULT_ARGUMENTS}: a newer numaherd may know it"
        ));
    }
    // Before the rights: with them, faults of strangers would be taken for those of whoever has the same pid here.
    if probe.own_pids {
        return unavailable(
            "this is a PID namespace of its own: run numaherd on the host, or in a container with \
             the host's PIDs (hostPID)"
                .to_string(),
        );
    }
    if !probe.privileged {
        return unavailable(
            "loading BPF programs needs CAP_BPF and CAP_PERFMON: run as root".to_string(),
        );
    }
    let cpu_bits = probe.cpu_bits;
    match probe.mpol_misplaced {
        Some(Function { id, arguments: MPOL_MISPLACED_ARGUMENTS }) => {
            let exits = probe.exit_signals.map(|function| function.id);
            let birth = probe.wake_up_new_task;
            let birth = birth.filter(|birth| birth.arguments == WAKE_UP_NEW_TASK_ARGUMENTS);
            let births = birth.zip(probe.task_ids);
            let births = births.map(|(birth, ids)| Births { function: birth.id, ids });
            Choice::WithAddresses { cpu_bits, functions: [function, id], exits, births }
        }
        _ => Choice::WithoutAddresses { cpu_bits, function },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(id: u32, arguments: u32) -> Option<Function> {
        Some(Function { id, arguments })
    }

    fn good() -> Probe {
        Probe {
            btf_problem: None,
            task_numa_fault: function(4, 4),
            mpol_misplaced: function(6, 3),
            exit_signals: function(8, 1),
            wake_up_new_task: function(10, 1),
            task_ids: Some(TaskIds { pid: 12, tgid: 16 }),
            privileged: true,
            numa_balancing: Some(1),
            cpu_bits: Some(13),
            own_pids: false,
        }
    }

    #[test]
    fn a_stock_kernel_and_root_give_addresses() {
        let births = Some(Births { function: 10, ids: TaskIds { pid: 12, tgid: 16 } });
        let with = |exits, births| Choice::WithAddresses {
            cpu_bits: Some(13),
            functions: [4, 6],
            exits,
            births,
        };
        let addresses = with(Some(8), births);
        assert_eq!(choose(&good()), addresses);
        assert_eq!(choose(&Probe { exit_signals: None, ..good() }), with(None, births));
        for other in [
            Probe { task_ids: None, ..good() },
            Probe { wake_up_new_task: function(10, 2), ..good() },
            Probe { wake_up_new_task: None, ..good() },
        ] {
            assert_eq!(choose(&other), with(Some(8), None));
        }
        // tiering on top of balancing changes nothing
        let tiering = Probe { numa_balancing: Some(3), ..good() };
        assert_eq!(choose(&tiering), addresses);
    }

    #[test]
    fn without_a_usable_mpol_misplaced_there_are_no_addresses() {
        for mpol_misplaced in [None, function(6, 2), function(6, 4)] {
            let probe = Probe { mpol_misplaced, cpu_bits: None, ..good() };
            let without = Choice::WithoutAddresses { cpu_bits: None, function: 4 };
            assert_eq!(choose(&probe), without);
        }
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let no_btf = Some("No such file or directory (os error 2)".to_string());
        let table = [
            (Probe { numa_balancing: None, ..good() }, "CONFIG_NUMA_BALANCING=y"),
            (Probe { numa_balancing: Some(0), ..good() }, "sysctl kernel.numa_balancing=1"),
            // 2 is tiering alone: no pages are armed for balancing; it stays
            (Probe { numa_balancing: Some(2), ..good() }, "sysctl kernel.numa_balancing=3"),
            (Probe { btf_problem: no_btf, ..good() }, "CONFIG_DEBUG_INFO_BTF=y"),
            (Probe { task_numa_fault: None, ..good() }, "boot a distribution kernel"),
            (Probe { task_numa_fault: function(4, 5), ..good() }, "takes 5 arguments, not 4"),
            (Probe { privileged: false, ..good() }, "run as root"),
            (Probe { own_pids: true, ..good() }, "hostPID"),
            (Probe::default(), "CONFIG_NUMA_BALANCING=y"),
        ];
        for (probe, part) in table {
            match choose(&probe) {
                Choice::Unavailable { reason } => {
                    assert!(reason.contains(part), "'{reason}' lacks '{part}'");
                    assert!(!reason.contains('\n') && !reason.contains("  "), "'{reason}'");
                }
                other => panic!("{probe:?} gave {other:?}"),
            }
        }
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        // bits 21, 38 and 39, alone and together
        let table = [
            ("CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n", false),
            ("CapEff:\t000001ffffffffff\n", true),
            ("CapEff:\t0000000000200000\n", true),
            ("CapEff:\t0000008000000000\n", false),
            ("CapEff:\t000000c000000000\n", true),
            ("CapEff:\tzzz\n", false),
            ("", false),
        ];
        for (status, expected) in table {
            assert_eq!(may_load(status), expected, "{status:?}");
        }
    }

    #[test]
    fn facts_are_read_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, bytes: &[u8]| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        let missing = probe(root.path());
        assert!(missing.btf_problem.is_some());
        assert_eq!(missing.numa_balancing, None);

        let functions = [
            ("task_numa_fault", 4),
            ("mpol_misplaced", 3),
            ("exit_signals", 1),
            ("wake_up_new_task", 1),
        ];
        let btf = btf::tests::btf_with(&functions);
        put("sys/kernel/btf/vmlinux", &btf);
        put("proc/self/status", b"Name:\tx\nCapEff:\t000001ffffffffff\n");
        put("proc/sys/kernel/numa_balancing", b"1\n");
        put("sys/devices/system/cpu/kernel_max", b"8191\n");
        assert_eq!(probe(root.path()), good());

        let own_pids = |link: &str| {
            let path = root.path().join("proc/self/ns/pid");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let _ = std::fs::remove_file(&path);
            std::os::unix::fs::symlink(link, path).unwrap();
            probe(root.path()).own_pids
        };
        assert_eq!(["pid:[4026531836]", "pid:[4026532281]"].map(own_pids), [false, true]);
    }
}
