//! Processes whose memory, or whose tasks, are better left where they are.
//!
//! | left alone | seen by |
//! |---|---|
//! | memory that somebody else handles page by page | an open `userfaultfd` |
//! | memory that a device reads and writes | an open `/dev/vfio/…`, `/dev/infiniband/…`, `/dev/kfd`, `/dev/dri/renderD…`, `/dev/uio…` or `/dev/mem` |
//! | memory that its owner locked, a good part of it | `VmLck` and `VmRSS` in `status` |
//! | memory that is pinned (io_uring's buffers, RDMA, vhost-vdpa), a good part of it | `VmPin` there |
//! | tasks that their group's quota keeps off the CPU | `nr_throttled` in `cpu.stat`, version 2 |
//!
//! | tasks most of whose memory takes no hinting faults | `HugetlbPages` in `status`, `numa_maps` |
//!
//! The kernel would move locked pages and those under a userfaultfd: each costs the owner a fault
//! that it did all it could to avoid. Pages pinned by a device it refuses, every time anew. A task
//! under a quota looks idle when it is not, and may be stopped while it holds what others wait for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use numaherd_model::Bytes;

use crate::ReadError;
use crate::cgroup::{self, Mounts};
use crate::file::{kib, text_if_present};
use crate::memory::maps;
use crate::memory::numa_maps::first_policy;
use crate::memory::residence::Unseen;
use crate::sys::pages;

/// Locked or pinned memory from which a process's is left alone, per mille of what is resident. Guessed: a
/// database locks nearly all of its memory, a key agent a few pages.
const MUCH_LOCKED_PERMILLE: u64 = 100;

/// Base pages of a process's first mapping that may be walked for its first line, every few seconds. At 60 to 140 ns each
/// (measured: see `live/walk.rs`) that is half a millisecond.
const MOST_WALKED: u64 = 4096;

/// What a link in `/proc/PID/fd` points at, and what that means for moving pages.
const FILES: [(&str, &str); 7] = [
    ("anon_inode:[userfaultfd]", "its memory is handled through a userfaultfd"),
    ("/dev/vfio/", "a device works on its memory (VFIO)"),
    ("/dev/infiniband/", "a device works on its memory (RDMA)"),
    // Each page of a user pointer that moves stops all its queues on the graphics card (ROCm), or has the mover wait until
    // the card is done with it (i915).
    ("/dev/kfd", "a device works on its memory (ROCm)"),
    ("/dev/dri/renderD", "a device may work on its memory (a graphics card)"),
    // Drivers in user space tell a device addresses in RAM, and nothing pins the pages: what moved is somebody else's.
    ("/dev/uio", "a device works on its memory (UIO)"),
    ("/dev/mem", "a device may work on its memory (/dev/mem)"),
];

/// Files that are looked at before others have their turn: a proxy has a million of them open, and each takes a
/// microsecond or two. Guessed.
const FILES_AT_ONCE: usize = 1024;

/// Why a process's pages are to stay, if they are, for how much is locked or pinned: one short file. What may not be looked
/// at says nothing.
#[must_use]
pub fn locked(root: &Path, tgid: u32) -> Option<&'static str> {
    let path = root.join(format!("proc/{tgid}/status"));
    let status = text_if_present(&path).ok().flatten().unwrap_or_default();
    let kib = |name: &str| kib(&status, name).unwrap_or(0);
    let resident = kib("VmRSS:");
    let is_much = |part: u64| part > 0 && part * 1000 >= resident * MUCH_LOCKED_PERMILLE;
    // Not their sum: what is pinned may be locked too.
    match (kib("VmLck:"), kib("VmPin:")) {
        (locked, pinned) if pinned > locked && is_much(pinned) => {
            Some("much of its memory is pinned")
        }
        (locked, _) if is_much(locked) => Some("much of its memory is locked"),
        _ => None,
    }
}

/// The same for who else handles its memory, by the files that it has open. `beat` is called now and then.
#[must_use]
pub fn handled(root: &Path, tgid: u32, beat: &mut dyn FnMut()) -> Option<&'static str> {
    let links = std::fs::read_dir(root.join(format!("proc/{tgid}/fd"))).into_iter().flatten();
    links.flatten().enumerate().find_map(|(nth, link)| {
        if nth % FILES_AT_ONCE == FILES_AT_ONCE - 1 {
            beat();
        }
        let target = std::fs::read_link(link.path()).ok()?;
        let target = target.to_str()?;
        FILES.iter().find(|(name, _)| target.starts_with(name)).map(|(_, why)| *why)
    })
}

/// How much of a process's own memory can take hinting faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// That share, per mille.
    pub permille: u32,
    /// What most of the rest is.
    pub cause: Unseen,
    /// What is resident of it in pages that page tables are walked for.
    pub resident: Bytes,
    /// And in huge pages of the reserve.
    pub reserve: Bytes,
}

/// How much of a process's own memory can take hinting faults, per mille, and what most of the rest
/// is; None where it has none, or may not be looked at.
///
/// Cheap, for a look at every process: a memory policy of the process shows in the first line of
/// `numa_maps`, and the kernel walks no more page tables than that line is about. Where that is many (a JVM's heap
/// lies below its program), it is not read. That policy and those of single mappings are seen by `Residence`, which
/// reads all of it.
#[must_use]
pub fn coverage(root: &Path, tgid: u32) -> Option<Coverage> {
    let folder = root.join(format!("proc/{tgid}"));
    let status = text_if_present(&folder.join("status")).ok().flatten()?;
    let kib = |name: &str| kib(&status, name).unwrap_or(0);
    let (seen, huge) = (kib("RssAnon:") + kib("RssShmem:"), kib("HugetlbPages:"));
    let permille = (seen * 1000).checked_div(seen + huge)? as u32;
    let (resident, reserve) = (resident_of(&status), Bytes(huge << 10));
    let walked = maps::first_len(root, tgid).map(|len| len.min(resident).pages(pages::size()).0);
    if walked.is_none_or(|pages| pages <= MOST_WALKED) && has_policy(&folder.join("numa_maps")) {
        return Some(Coverage { permille: 0, cause: Unseen::Policy, resident, reserve });
    }
    Some(Coverage { permille, cause: Unseen::Hugetlb, resident, reserve })
}

/// What is resident of a process in pages that page tables are walked for; none where that cannot be told. Nothing is
/// walked for it.
#[must_use]
pub fn resident(root: &Path, tgid: u32) -> Bytes {
    let status = text_if_present(&root.join(format!("proc/{tgid}/status"))).ok().flatten();
    resident_of(&status.unwrap_or_default())
}

fn resident_of(status: &str) -> Bytes {
    let kib = |name: &str| kib(status, name).unwrap_or(0);
    Bytes((kib("RssAnon:") + kib("RssShmem:") + kib("RssFile:")) << 10)
}

/// Whether the first mapping, and with it every one without a policy of its own, has a policy that
/// keeps its pages from taking faults.
fn has_policy(numa_maps: &Path) -> bool {
    let policy = first_policy(numa_maps, 64);
    policy.is_some_and(|policy| policy != "default" && !policy.contains("balancing"))
}

/// How a group fares with its quota of CPU time, since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Periods in which it had a quota and ran; none where the kernel does not say.
    pub periods: u64,
    /// Those in which it ran out.
    pub throttled: u64,
}

/// The quotas of a process's groups, by their folders.
pub type Quotas = BTreeMap<PathBuf, Quota>;

/// A group that runs out in fewer of its periods, per mille, does not lack CPU time: a burst now and then is what quotas
/// are made for. Guessed.
const MUCH_THROTTLED_PERMILLE: u64 = 50;

impl Quota {
    /// Whether it ran out in a good part of the periods since `then`.
    #[must_use]
    pub fn runs_out_since(&self, then: &Quota) -> bool {
        let throttled = self.throttled.saturating_sub(then.throttled);
        let periods = self.periods.saturating_sub(then.periods);
        throttled > 0 && throttled.saturating_mul(1000) >= periods * MUCH_THROTTLED_PERMILLE
    }
}

/// How each of a process's groups fares with its quota of CPU time.
///
/// # Errors
/// A file is there and cannot be read.
pub fn throttles(root: &Path, mounts: &mut Mounts, tgid: u32) -> Result<Quotas, ReadError> {
    let mut quotas = Quotas::new();
    let folders = cgroup::of_process(root, mounts, tgid)?;
    let all = folders.into_iter().chain(cgroup::of_process_by_cpu(root, mounts, tgid)?);
    for folder in all.flatten() {
        if quotas.contains_key(&folder) {
            continue;
        }
        let text = text_if_present(&folder.join("cpu.stat"))?.unwrap_or_default();
        let count =
            |name| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        if let Some(throttled) = count("nr_throttled ") {
            quotas.insert(folder, Quota { periods: count("nr_periods ").unwrap_or(0), throttled });
        }
    }
    Ok(quotas)
}

/// Whether one of a process's groups has CPUs for itself among which the scheduler balances nothing: it, or the nearest
/// one above it that is a partition at all, is an isolated one in force.
///
/// # Errors
/// A file is there and cannot be read.
pub fn is_isolated(root: &Path, mounts: &mut Mounts, tgid: u32) -> Result<bool, ReadError> {
    for folders in cgroup::of_process(root, mounts, tgid)? {
        for folder in folders {
            let path = folder.join("cpuset.cpus.partition");
            match text_if_present(&path)?.unwrap_or_default().trim() {
                "isolated" => return Ok(true),
                "root" => break,
                // A member of what is above it; one that is "invalid" is no more than that.
                _ => {}
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    /// By what is locked and by files, as whoever moves pages asks.
    fn pages_stay(root: &Path, tgid: u32) -> Option<&'static str> {
        locked(root, tgid).or_else(|| handled(root, tgid, &mut || {}))
    }

    #[test]
    fn a_process_whose_memory_is_locked_or_handled_by_others_is_left_alone() {
        let root = tempfile::tempdir().unwrap();
        let status = |locked: u64| format!("Name:\tx\nVmLck:\t{locked} kB\nVmRSS:\t5000 kB\n");
        put(root.path(), "proc/7/status", &status(64));
        let fd = root.path().join("proc/7/fd");
        std::fs::create_dir_all(&fd).unwrap();
        let open = |number: &str, target: &str| {
            std::os::unix::fs::symlink(target, fd.join(number)).unwrap();
        };
        open("1", "/dev/null");
        assert_eq!(pages_stay(root.path(), 7), None);
        open("9", "anon_inode:[userfaultfd]");
        assert!(pages_stay(root.path(), 7).unwrap().contains("userfaultfd"));
        std::fs::remove_file(fd.join("9")).unwrap();
        open("10", "/dev/vfio/42");
        assert!(pages_stay(root.path(), 7).unwrap().contains("VFIO"));
        for (device, why) in [
            ("/dev/kfd", "ROCm"),
            ("/dev/dri/renderD128", "graphics card"),
            ("/dev/uio0", "UIO"),
            ("/dev/mem", "/dev/mem"),
        ] {
            std::fs::remove_file(fd.join("10")).unwrap();
            open("10", device);
            assert!(pages_stay(root.path(), 7).is_some_and(|told| told.contains(why)), "{device}");
        }
        for device in ["/dev/dri/card0", "/dev/shm/x"] {
            std::fs::remove_file(fd.join("10")).unwrap();
            open("10", device);
            assert_eq!(pages_stay(root.path(), 7), None, "{device}");
        }
        put(root.path(), "proc/7/status", &status(500));
        assert!(pages_stay(root.path(), 7).unwrap().contains("locked"));
        assert_eq!(pages_stay(root.path(), 8), None);
    }

    #[test]
    fn pinned_memory_stays_as_locked_memory_does() {
        let root = tempfile::tempdir().unwrap();
        let stays = |locked: u64, pinned: u64| {
            let text = format!("VmLck:\t{locked} kB\nVmPin:\t{pinned} kB\nVmRSS:\t5000 kB\n");
            put(root.path(), "proc/7/status", &text);
            pages_stay(root.path(), 7).unwrap_or_default()
        };
        assert!(stays(0, 500).contains("pinned") && stays(600, 500).contains("locked"));
        // The larger counts, not both together.
        assert_eq!([stays(0, 499), stays(499, 499)], [""; 2]);
    }

    #[test]
    fn others_have_their_turn_while_many_files_are_looked_at() {
        let root = tempfile::tempdir().unwrap();
        let fd = root.path().join("proc/7/fd");
        std::fs::create_dir_all(&fd).unwrap();
        for nth in 0..2 * FILES_AT_ONCE + 1 {
            std::os::unix::fs::symlink("/dev/null", fd.join(nth.to_string())).unwrap();
        }
        let mut beats = 0;
        assert_eq!(handled(root.path(), 7, &mut || beats += 1), None);
        assert_eq!(beats, 2);
    }

    #[test]
    fn a_userfaultfd_of_our_own_is_seen_where_we_may_have_one() {
        // SAFETY: the call takes flags and answers a descriptor or an error; no memory is touched.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) };
        if fd < 0 {
            return;
        }
        let why = pages_stay("/".as_ref(), std::process::id());
        // SAFETY: the descriptor is ours and used by nobody else.
        unsafe { libc::close(fd as i32) };
        assert!(why.unwrap().contains("userfaultfd"));
    }

    #[test]
    fn huge_pages_of_the_reserve_and_a_policy_hide_memory() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(coverage(root.path(), 7), None);
        let status = "RssAnon:\t2048 kB\nRssShmem:\t1024 kB\nHugetlbPages:\t9216 kB\n";
        put(root.path(), "proc/7/status", status);
        // 3 of 12 MiB
        let (resident, reserve) = (Bytes(3 << 20), Bytes(9 << 20));
        let seen = Coverage { permille: 250, cause: Unseen::Hugetlb, resident, reserve };
        assert_eq!(coverage(root.path(), 7), Some(seen));
        for (policy, permille) in [
            ("default", 250),
            ("bind:0", 0),
            ("prefer (many):0-1", 0),
            ("interleave:0-1", 0),
            ("bind=balancing:0", 250),
        ] {
            let maps = format!("5580a3c4e000 {policy} file=/bin/x mapped=9 N0=9\n");
            put(root.path(), "proc/7/numa_maps", &maps);
            assert_eq!(coverage(root.path(), 7).unwrap().permille, permille, "{policy}");
        }
    }

    /// Such as that of a JVM with compressed pointers.
    #[test]
    fn a_heap_that_is_the_first_mapping_is_not_walked() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/7/numa_maps", "6c0000000 bind:0 anon=9 N0=9\n");
        let of = |resident: u64, first: u64| {
            put(root.path(), "proc/7/status", &format!("RssAnon:\t{resident} kB\n"));
            let end = (0x6_c000_0000_u64) + (first << 10);
            put(root.path(), "proc/7/maps", &format!("6c0000000-{end:x} rw-p 00000000 00:00 0 \n"));
            let cause = coverage(root.path(), 7).unwrap().cause;
            (cause, super::resident(root.path(), 7).0 >> 10)
        };
        let most = MOST_WALKED * (pages::size().0 >> 10);
        assert_eq!(of(8 * most, 4 * most), (Unseen::Hugetlb, 8 * most));
        // A small one, and a large one of which little is there.
        assert_eq!(of(8 * most, most), (Unseen::Policy, 8 * most));
        assert_eq!(of(most, 4 * most), (Unseen::Policy, most));
    }

    #[test]
    fn we_have_no_policy_and_can_be_seen() {
        let seen = coverage("/".as_ref(), std::process::id()).unwrap();
        assert_eq!(seen.permille, 1000);
        assert!(seen.resident > Bytes(0));
    }

    /// By all of a process's groups together.
    fn throttled(root: &Path, tgid: u32) -> u64 {
        let quotas = throttles(root, &mut Mounts::default(), tgid).unwrap();
        quotas.values().map(|quota| quota.throttled).sum()
    }

    #[test]
    fn a_quota_is_run_out_of_by_the_share_of_its_periods() {
        let then = Quota { periods: 1000, throttled: 300 };
        let since = |periods: u64, throttled: u64| {
            let now = Quota { periods: 1000 + periods, throttled: 300 + throttled };
            now.runs_out_since(&then)
        };
        assert!(!since(100, 1) && !since(100, 4) && since(100, 5));
        assert!(!since(0, 0) && !since(100, 0));
        // A kernel that says nothing of periods.
        assert!(since(0, 1));
        // A group that was made anew.
        assert!(!Quota::default().runs_out_since(&then));
    }

    #[test]
    fn a_quota_counts_wherever_it_is_set_above() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put(root.path(), "proc/7/cgroup", "0::/a.slice/b\n");
        put(root.path(), "sys/fs/cgroup/a.slice/b/cpu.stat", "usage_usec 5\nnr_throttled 3\n");
        put(root.path(), "sys/fs/cgroup/a.slice/cpu.stat", "nr_periods 9\nnr_throttled 4\n");
        put(root.path(), "sys/fs/cgroup/cpu.stat", "usage_usec 5\n");
        let of = |tgid| throttled(root.path(), tgid);
        assert_eq!((of(7), of(8)), (7, 0));
        let quotas = throttles(root.path(), &mut Mounts::default(), 7).unwrap();
        let above = quotas[&root.path().join("sys/fs/cgroup/a.slice")];
        assert_eq!(above, Quota { periods: 9, throttled: 4 });
    }

    /// Where quotas are of version 1, the group of version 2 has a cpu.stat too, without them.
    #[test]
    fn a_quota_of_version_1_counts_as_well() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| put(root.path(), path, text);
        put(
            "proc/mounts",
            "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
             cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,nosuid,cpu,cpuacct 0 0\n",
        );
        put("proc/7/cgroup", "4:cpu,cpuacct:/pods/a:b\n1:name=systemd:/x\n0::/pods/a:b\n");
        put("proc/8/cgroup", "5:cpuacct:/pods/a:b\n0::/pods/a:b\n");
        put("sys/fs/cgroup/unified/pods/a:b/cpu.stat", "usage_usec 5\n");
        put("sys/fs/cgroup/cpu,cpuacct/pods/a:b/cpu.stat", "nr_periods 9\nnr_throttled 3\n");
        put("sys/fs/cgroup/cpu,cpuacct/pods/cpu.stat", "nr_throttled 1\n");
        let of = |tgid| throttled(root.path(), tgid);
        assert_eq!((of(7), of(8)), (4, 0));
    }

    /// As libvirt has it: the machine's threads are shared out among groups below its own.
    #[test]
    fn a_quota_of_any_thread_counts_where_they_are_shared_out() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| put(root.path(), path, text);
        put(
            "proc/mounts",
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ncgroup /cpu cgroup rw,cpu 0 0\n",
        );
        for version_2 in [true, false] {
            let line = |group: &str| match version_2 {
                true => format!("0::/vm/{group}\n"),
                false => format!("4:cpu:/vm/{group}\n"),
            };
            put("proc/7/cgroup", &line("emulator"));
            put("proc/7/task/7/cgroup", &line("emulator"));
            put("proc/7/task/8/cgroup", &line("vcpu0"));
            put("proc/7/task/9/cgroup", &line("vcpu0"));
            let base = if version_2 { "sys/fs/cgroup" } else { "cpu" };
            put(&format!("{base}/vm/emulator/cgroup.type"), "threaded\n");
            put(&format!("{base}/vm/emulator/cpu.stat"), "nr_throttled 1\n");
            put(&format!("{base}/vm/vcpu0/cpu.stat"), "nr_throttled 20\n");
            put(&format!("{base}/vm/cpu.stat"), "nr_throttled 300\n");
            assert_eq!(throttled(root.path(), 7), 321, "{version_2}");
        }
        // Of a process whose threads are all in one group only that is looked at.
        put("proc/7/cgroup", "0::/vm/emulator\n");
        put("sys/fs/cgroup/vm/emulator/cgroup.type", "domain\n");
        assert_eq!(throttled(root.path(), 7), 301);
    }

    #[test]
    fn members_of_an_isolated_partition_are_isolated_and_other_partitions_balance() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "proc/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
        put(root.path(), "proc/7/cgroup", "0::/a/b\n");
        let of = |above: &str, own: &str| {
            put(root.path(), "sys/fs/cgroup/a/cpuset.cpus.partition", &format!("{above}\n"));
            put(root.path(), "sys/fs/cgroup/a/b/cpuset.cpus.partition", &format!("{own}\n"));
            is_isolated(root.path(), &mut Mounts::default(), 7).unwrap()
        };
        assert!(of("member", "isolated") && of("isolated", "member") && of("root", "isolated"));
        assert!(of("isolated", "root invalid (Cpu list in cpuset.cpus not exclusive)"));
        assert!(!of("isolated", "root") && !of("member", "member") && !of("member", "root"));
        assert!(!of("isolated invalid (Parent is not a partition root)", "member"));
        assert!(!is_isolated(root.path(), &mut Mounts::default(), 8).unwrap());
    }
}
