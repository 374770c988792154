//! QEMU's command line for a machine: a pure function, so that it can be looked at and tested.

use std::path::Path;

use crate::initramfs::{COUNTERS_TAG, ROOT_TAG, share_tag};
use crate::machine::Machine;

/// Files QEMU is given.
pub struct Files<'a> {
    /// Kernel image.
    pub kernel: &'a Path,
    /// First file system.
    pub initramfs: &'a Path,
    /// Where the guest's console goes.
    pub console: &'a Path,
    /// UNIX socket we listen on for the agent.
    pub socket: &'a Path,
    /// The plugin.
    pub plugin: Option<&'a Path>,
    /// What it charges, if memory is to have a distance.
    pub charge: Option<&'a Path>,
    /// Folder of the plugin's counters, for the guest to read.
    pub counters: Option<&'a Path>,
    /// Folders of the host the guest may write to.
    pub shares: &'a [&'a Path],
    /// More words for the kernel's command line.
    pub append: &'a str,
}

/// Arguments of `qemu-system-x86_64`.
pub fn arguments(machine: &Machine, files: &Files<'_>) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|w| (*w).to_string()));
    add(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    add(&["-accel", "tcg,thread=multi,tb-size=512"]);
    // Byte-wise string instructions (ERMS) would be charged a byte at a time.
    add(&["-machine", "pc", "-cpu", "max,-erms,-fsrm,-la57,l3-cache=off"]);
    add(&["-m", &format!("{}M", machine.memory_mib())]);
    add(&["-smp", &smp(machine)]);
    let mut first_cpu = 0;
    for (index, node) in machine.node.iter().enumerate() {
        let memory = format!("memory-backend-ram,id=m{index},size={}M", node.memory_mib);
        // QEMU numbers nodes without gaps; the kernel gets the ids from tables of ours.
        let mut numa = format!("node,nodeid={index}");
        if node.cpus > 0 {
            numa += &format!(",cpus={first_cpu}-{}", first_cpu + node.cpus - 1);
        }
        if node.memory_mib > 0 {
            add(&["-object", &memory]);
            numa += &format!(",memdev=m{index}");
        }
        add(&["-numa", &numa]);
        first_cpu += node.cpus;
    }
    for (from, row) in machine.distance.slit.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            add(&["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
        }
    }
    let path = |p: &Path| escape(&p.to_string_lossy());
    add(&[
        "-kernel",
        &files.kernel.to_string_lossy(),
        "-initrd",
        &files.initramfs.to_string_lossy(),
    ]);
    // no_timer_check: on a starved host the kernel may wait in vain for the first timer ticks.
    // skew_tick: ticks of all CPUs at once make them wait for locks whose holders this host does
    // not run just then. Measured: bound numa02 took 4 % longer without, on a quiet host.
    // norandmaps: QEMU finds translated code by its virtual address, so a program that is loaded
    // elsewhere each time is translated each time. Measured: a storm of forks took three times as
    // long without (beside other work), and filled the buffer of translated code again and again.
    let words = "console=ttyS0 nokaslr norandmaps mitigations=off quiet panic=-1 tsc=nowatchdog \
                 no_timer_check skew_tick=1";
    add(&["-append", format!("{words} {}", files.append).trim_end()]);
    add(&["-serial", &format!("file:{}", files.console.display())]);
    add(&["-device", "virtio-serial-pci"]);
    add(&["-chardev", &format!("socket,id=agent,path={}", path(files.socket))]);
    add(&["-device", "virtserialport,chardev=agent,name=numaherd"]);
    let root = format!(
        "local,path=/,mount_tag={ROOT_TAG},readonly=on,security_model=none,multidevs=remap"
    );
    add(&["-virtfs", &root]);
    for (index, share) in files.shares.iter().enumerate() {
        let tag = share_tag(index);
        let options = "security_model=none,multidevs=remap";
        add(&["-virtfs", &format!("local,path={},mount_tag={tag},{options}", path(share))]);
    }
    if let Some(counters) = files.counters {
        let options = "readonly=on,security_model=none";
        add(&[
            "-virtfs",
            &format!("local,path={},mount_tag={COUNTERS_TAG},{options}", path(counters)),
        ]);
    }
    if let Some(plugin) = files.plugin {
        let config = files.charge.map(|config| format!(",config={}", path(config)));
        add(&["-plugin", &format!("file={}{}", path(plugin), config.unwrap_or_default())]);
    }
    args
}

/// One socket per node with CPUs where they are all alike, so that no cache spans nodes.
fn smp(machine: &Machine) -> String {
    let (cpus, cores) = (machine.cpus(), cores_per_socket(machine));
    let threads = machine.cpu.threads_per_core;
    format!("{cpus},sockets={},cores={cores},threads={threads}", cpus / cores / threads)
}

/// A node's cores where all nodes that have CPUs have as many, else one.
pub fn cores_per_socket(machine: &Machine) -> u32 {
    let mut cpus = machine.node.iter().map(|n| n.cpus).filter(|&c| c > 0);
    let first = cpus.next().unwrap_or(1);
    if cpus.all(|c| c == first) { first / machine.cpu.threads_per_core } else { 1 }
}

/// QEMU's option parser ends a value at a comma; a doubled one is a plain comma.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QEMU's arguments for a machine of `machines/`, in one line; all files are `/a,b`.
    fn line(machine: &str, shares: &[&Path], append: &str) -> String {
        let here = Path::new("/a,b");
        let files = Files {
            kernel: here,
            initramfs: here,
            console: here,
            socket: here,
            plugin: None,
            charge: None,
            counters: None,
            shares,
            append,
        };
        arguments(&Machine::find(machine).unwrap(), &files).join(" ")
    }

    #[test]
    fn the_2x4_has_two_sockets_and_all_four_distances() {
        let line = line("2x4", &[Path::new("/a,b")], "");
        assert!(line.contains("-smp 8,sockets=2,cores=4,threads=1"), "{line}");
        assert!(line.contains("node,nodeid=1,cpus=4-7,memdev=m1"), "{line}");
        assert_eq!(line.matches("-numa dist,").count(), 4);
        assert!(line.contains("path=/a,,b,mount_tag=share0"), "{line}");
    }

    #[test]
    fn nodes_are_numbered_without_gaps_and_may_lack_memory() {
        let line = |name| line(name, &[], "numa_balancing=disable");
        let sparse = line("sparse");
        assert!(sparse.contains("-numa node,nodeid=1,memdev=m1"), "node 3 is the second: {sparse}");
        assert!(sparse.contains("-smp 8,sockets=8,cores=1,threads=1"), "{sparse}");
        let cpu_only = line("cpu-only");
        assert!(cpu_only.contains("-numa node,nodeid=1,cpus=3-4 "), "{cpu_only}");
        assert!(cpu_only.contains("skew_tick=1 numa_balancing=disable -serial"), "{cpu_only}");
    }
}
