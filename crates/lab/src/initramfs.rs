//! The guest's first file system: busybox, a few modules, and an init script that puts the
//! host's files in place and hands over to the agent.
//!
//! The host's root is mounted read-only below an overlay whose writes stay in the guest's
//! memory. Shares are mounted over it for real: what is written there is written here.

use std::path::Path;

use cpio::NewcBuilder;

use crate::LabError;
use crate::firmware::Table;

/// Tag of the 9p export of the plugin's counters, and where the guest sees them.
pub const COUNTERS_TAG: &str = "counters";
const COUNTERS_DIR: &str = "/run/numaherd-lab";
/// Tag of the 9p export of the host's root.
pub const ROOT_TAG: &str = "hostroot";

/// Tag of the `index`th writable share.
pub fn share_tag(index: usize) -> String {
    format!("share{index}")
}

/// Builds the archive (cpio, "newc").
///
/// # Errors
/// A file that cannot be read.
pub fn build(
    busybox: &Path,
    modules: &[std::path::PathBuf],
    shares: &[&Path],
    agent: &[String],
    tables: &[Table],
    counters: bool,
) -> Result<Vec<u8>, LabError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(LabError::io(format!("cannot read {}", path.display())))
    };
    let mut archive = Archive { bytes: Vec::new(), inode: 0 };
    // The kernel looks for them at the beginning, long before it unpacks the rest.
    for (name, table) in tables {
        archive.add(&format!("kernel/firmware/acpi/{name}"), 0o100_644, table)?;
    }
    for dir in ["bin", "dev", "proc", "sys", "modules", "host", "rw", "root"] {
        archive.add(dir, 0o040_755, &[])?;
    }
    archive.add("bin/busybox", 0o100_755, &read(busybox)?)?;
    for (order, path) in modules.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("modules/{order:02}-{name}"), 0o100_644, &read(path)?)?;
    }
    archive.add("init", 0o100_755, init_script(shares, agent, counters).as_bytes())?;
    cpio::newc::trailer(archive.bytes).map_err(LabError::io("cannot build the initramfs"))
}

struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<(), LabError> {
        self.inode += 1;
        let entry = NewcBuilder::new(name).mode(mode).ino(self.inode).nlink(1);
        let mut writer = entry.write(std::mem::take(&mut self.bytes), content.len() as u32);
        std::io::Write::write_all(&mut writer, content)
            .and_then(|()| writer.finish())
            .map(|bytes| self.bytes = bytes)
            .map_err(LabError::io("cannot build the initramfs"))
    }
}

fn init_script(shares: &[&Path], agent: &[String], counters: bool) -> String {
    let (mut mount_shares, mut mount_late_shares) = (String::new(), String::new());
    for (i, path) in shares.iter().enumerate() {
        let options = "trans=virtio,version=9p2000.L,msize=262144,cache=mmap";
        let tag = share_tag(i);
        let place = quote(&path.to_string_lossy());
        let mount =
            format!("mount -t 9p -o {options} {tag} /root{place} || die 'cannot mount {tag}'\n");
        if is_below_the_guests_own(path) {
            mount_late_shares += &format!("$b mkdir -p /root{place}\n{mount}");
        } else {
            mount_shares += &mount;
        }
    }
    // Nothing of it is kept: it changes all the time.
    let mount_counters = match counters {
        true => format!(
            "$b mkdir /root{0}\nmount -t 9p -o {1},cache=none,ro {COUNTERS_TAG} /root{0} || die \
             'cannot mount the counters'\n",
            COUNTERS_DIR, "trans=virtio,version=9p2000.L,msize=262144"
        ),
        false => String::new(),
    };
    let agent: Vec<String> = agent.iter().map(|word| quote(word)).collect();
    // Switching off at once would lose what was written to a share and not carried over yet.
    let second = format!(
        "{}; sync; echo o > /proc/sysrq-trigger; while :; do sleep 1; done",
        agent.join(" ")
    );
    format!(
        r#"#!/bin/busybox sh
b=/bin/busybox
die() {{ echo "lab: $1" > /dev/console; echo o > /proc/sysrq-trigger; $b sleep 60; }}
mount() {{ $b mount "$@"; }}
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for m in /modules/*; do [ -e "$m" ] && $b insmod "$m" 2>/dev/console; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro {ROOT_TAG} /host || die 'cannot mount the host root'
mount -t tmpfs -o mpol=interleave tmpfs /rw
$b mkdir -p /rw/upper /rw/work
mount -t overlay -o lowerdir=/host,upperdir=/rw/upper,workdir=/rw/work overlay /root || die 'cannot lay the overlay'
{mount_shares}mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
$b mkdir -p /root/dev/pts /root/dev/shm
$b ln -s /proc/self/fd /root/dev/fd
for f in 0:stdin 1:stdout 2:stderr; do $b ln -s /proc/self/fd/${{f%:*}} /root/dev/${{f#*:}}; done
mount -t devpts devpts /root/dev/pts
mount -t tmpfs tmpfs /root/dev/shm
mount -t tmpfs tmpfs /root/run
{mount_late_shares}{mount_counters}mount -t debugfs debugfs /root/sys/kernel/debug
mount -t tracefs tracefs /root/sys/kernel/tracing
mount -t bpf bpf /root/sys/fs/bpf
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
$b ifconfig lo 127.0.0.1 up 2>/dev/null
$b hostname lab
exec $b switch_root /root /bin/sh -c {second}
"#,
        second = quote(&second),
    )
}

/// Whether what the guest mounts of its own would hide it, were it mounted before. `/run` and
/// `/dev` themselves are the guest's.
fn is_below_the_guests_own(path: &Path) -> bool {
    ["/run", "/dev"].iter().any(|own| path != Path::new(own) && path.starts_with(own))
}

/// One word for the shell, whatever it contains.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_quotes_and_spaces_stay_one_word() {
        assert_eq!(quote("it's here"), r"'it'\''s here'");
    }

    #[test]
    fn the_archive_holds_the_script_and_the_modules_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let module = dir.path().join("9p.ko");
        std::fs::write(&module, "module").unwrap();
        let share = dir.path().join("a b");
        let bytes = build(
            &module,
            std::slice::from_ref(&module),
            &[&share],
            &["agent".into(), "x y".into()],
            &[("srat.aml", b"SRAT".to_vec())],
            true,
        )
        .unwrap();
        let mut rest = bytes.as_slice();
        let mut names = Vec::new();
        loop {
            let reader = cpio::NewcReader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            names.push(reader.entry().name().to_string());
            rest = reader.finish().unwrap();
        }
        assert_eq!(names[0], "kernel/firmware/acpi/srat.aml");
        assert!(names.contains(&"modules/00-9p.ko".to_string()), "{names:?}");
        let script = init_script(&[&share], &["agent".into(), "x y".into()], true);
        let mounted = script.find("cache=none,ro counters /root/run/numaherd-lab");
        assert!(mounted > script.find("tmpfs /root/run\n"), "{script}");
        assert!(script.contains("share0 /root'") && script.contains("a b'"), "{script}");
        assert!(script.contains(r"'\''x y'\''"), "{script}");
    }

    #[test]
    fn a_share_below_run_or_dev_is_mounted_over_the_guests_own() {
        let shares = ["/run/user/0", "/dev/shm/it", "/run", "/srv"].map(Path::new);
        let script = init_script(&shares, &["agent".into()], false);
        let at = |line: &str| script.find(line).unwrap_or_else(|| panic!("{line}: {script}"));
        let own = at("tmpfs /root/run\n");
        assert!(at("share0 /root'/run/user/0'") > at("mkdir -p /root'/run/user/0'"), "{script}");
        assert!(at("mkdir -p /root'/run/user/0'") > own, "{script}");
        assert!(at("share1 /root'/dev/shm/it'") > at("tmpfs /root/dev/shm\n"), "{script}");
        assert!(at("agent'\\''; sync; echo o > /proc/sysrq-trigger") > own, "{script}");
        // A folder that holds them must not take their place.
        assert!(at("share2 /root'/run'") < own && at("share3 /root'/srv'") < own, "{script}");
    }
}
