//! QEMU's command line for a machine: a pure function, so that it can be looked at and tested.

use std::path::Path;

use crate::initramfs::{ROOT_TAG, share_tag};
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
    /// Plugin and its configuration, if memory is to have a distance.
    pub plugin: Option<(&'a Path, &'a Path)>,
    /// Folders of the host the guest may write to.
    pub shares: &'a [&'a Path],
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
        let mut numa = format!("node,nodeid={}", node.id);
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
    for (from, row) in machine.node.iter().zip(&machine.distance.slit) {
        for (to, distance) in machine.node.iter().zip(row) {
            add(&["-numa", &format!("dist,src={},dst={},val={distance}", from.id, to.id)]);
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
    add(&[
        "-append",
        "console=ttyS0 nokaslr mitigations=off quiet panic=-1 tsc=nowatchdog no_timer_check",
    ]);
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
    if let Some((plugin, config)) = files.plugin {
        add(&["-plugin", &format!("file={},config={}", path(plugin), path(config))]);
    }
    args
}

/// One socket per node with CPUs where they are all alike, so that no cache spans nodes.
fn smp(machine: &Machine) -> String {
    let cpus: Vec<u32> = machine.node.iter().map(|n| n.cpus).filter(|&c| c > 0).collect();
    match cpus.as_slice() {
        [first, rest @ ..] if rest.iter().all(|c| c == first) => {
            let threads = machine.cpu.threads_per_core;
            let cores = first / threads;
            format!("{},sockets={},cores={cores},threads={threads}", machine.cpus(), cpus.len())
        }
        _ => {
            let threads = machine.cpu.threads_per_core;
            let sockets = machine.cpus() / threads;
            format!("{},sockets={sockets},cores=1,threads={threads}", machine.cpus())
        }
    }
}

/// QEMU's option parser ends a value at a comma; a doubled one is a plain comma.
fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_2x4_has_two_sockets_and_all_four_distances() {
        let machine = Machine::find("2x4").unwrap();
        let here = Path::new("/a,b");
        let files = Files {
            kernel: here,
            initramfs: here,
            console: here,
            socket: here,
            plugin: None,
            shares: &[here],
        };
        let line = arguments(&machine, &files).join(" ");
        assert!(line.contains("-smp 8,sockets=2,cores=4,threads=1"), "{line}");
        assert!(line.contains("node,nodeid=1,cpus=4-7,memdev=m1"), "{line}");
        assert_eq!(line.matches("-numa dist,").count(), 4);
        assert!(line.contains("path=/a,,b,mount_tag=share0"), "{line}");
    }
}
