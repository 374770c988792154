//! What this host can carry, measured, and the dilation of time that follows.
//!
//! One QEMU per host CPU runs a boot sector that walks memory under the very plugin, charging
//! nothing; the plugin's own count of instructions over a short while is the host's capacity.
//! That takes a second, needs no kernel, and sees the host as loaded as it is now.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::LabError;
use crate::charge::PluginConfig;
use crate::counters::CounterFile;
use crate::machine::Machine;
use crate::standing;
use crate::tools::Tools;

/// Share of the measured capacity that a machine may ask for. Measured: kernel code and eight
/// CPUs taking turns on two cores cost more than the boot sector's loop, and another process
/// may come to want a core.
const USABLE_SHARE: f64 = 0.4;

/// How long instructions are counted.
const WINDOW: Duration = Duration::from_millis(500);

/// How long the firmware may take until the loop runs.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where the loop keeps writing: 1 MiB from here, more than any emulated cache.
const BOOT_SECTOR: &[u8] = &[
    0xfa, // cli
    0x31, 0xc0, // xor ax, ax
    0x8e, 0xd8, // mov ds, ax
    0x0f, 0x01, 0x16, 0x40, 0x7c, // lgdt [0x7c40]
    0x66, 0xb8, 0x01, 0x00, 0x00, 0x00, // mov eax, 1
    0x0f, 0x22, 0xc0, // mov cr0, eax
    0xea, 0x18, 0x7c, 0x08, 0x00, // jmp 0x08:0x7c18
    // 0x7c18, 32-bit code from here
    0xb8, 0x10, 0x00, 0x00, 0x00, // mov eax, 0x10
    0x8e, 0xd8, // mov ds, ax
    0x0f, 0x1f, 0x84, 0x00, 0x00, 0x01, 0x48, 0x4e, // the marker "charging on"
    // 0x7c27: outer
    0xbf, 0x00, 0x00, 0x20, 0x00, // mov edi, 0x200000
    // 0x7c2c: inner
    0x89, 0x07, // mov [edi], eax
    0x89, 0x47, 0x08, // mov [edi + 8], eax
    0x83, 0xc7, 0x10, // add edi, 16
    0x81, 0xff, 0x00, 0x00, 0x30, 0x00, // cmp edi, 0x300000
    0x72, 0xf0, // jb inner
    0xeb, 0xe9, // jmp outer
    0x90, 0x90, // 0x7c40: the table's limit and address
    0x17, 0x00, 0x48, 0x7c, 0x00, 0x00, 0x00, 0x00, // limit 23, base 0x7c48
    0, 0, 0, 0, 0, 0, 0, 0, // null
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xcf, 0x00, // code, flat
    0xff, 0xff, 0x00, 0x00, 0x00, 0x92, 0xcf, 0x00, // data, flat
];

/// What the host can carry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Emulated instructions a second, on all its CPUs together.
    pub instructions_per_second: f64,
}

impl Capacity {
    /// Measures the host as it is now.
    ///
    /// # Errors
    /// QEMU or the plugin does not start.
    pub fn measure(machine: &Machine, tools: &Tools, plugin: &Path) -> Result<Capacity, LabError> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let dir = tempfile::tempdir().map_err(LabError::io("cannot make a temporary folder"))?;
        let mut probes = Vec::new();
        for index in 0..cpus {
            probes.push(Probe::start(machine, tools, plugin, dir.path(), index)?);
        }
        let files =
            probes.iter_mut().map(Probe::wait_until_running).collect::<Result<Vec<_>, _>>()?;
        let count = |file: &CounterFile| file.now().map(|now| now.instructions());
        let failed = || LabError::io("cannot read the plugin's counters");
        let mut rates = 0.0;
        let begin = Instant::now();
        let before: Vec<u64> =
            files.iter().map(count).collect::<Result<_, _>>().map_err(failed())?;
        thread::sleep(WINDOW);
        for (file, before) in files.iter().zip(before) {
            let done = count(file).map_err(failed())? - before;
            rates += done as f64 / begin.elapsed().as_secs_f64();
        }
        Ok(Capacity { instructions_per_second: rates })
    }

    /// Real seconds per guest second at which the host carries all CPUs of the machine at full
    /// speed, rounded up to a quarter so that equal hosts get equal machines.
    ///
    /// Worked example: 8 CPUs × 100 million a second on a host that carries 500 million: 800 ÷
    /// (500 × 0.4) = 4.
    #[must_use]
    pub fn dilation(&self, machine: &Machine) -> f64 {
        let needed = machine.instructions_per_second();
        let dilation = needed / (self.instructions_per_second * USABLE_SHARE);
        (dilation.max(1.0) * 4.0).ceil() / 4.0
    }
}

/// One QEMU that runs the boot sector; ended when dropped.
struct Probe {
    child: Child,
    stats: PathBuf,
    log: PathBuf,
}

impl Probe {
    fn start(
        machine: &Machine,
        tools: &Tools,
        plugin: &Path,
        dir: &Path,
        index: usize,
    ) -> Result<Probe, LabError> {
        let failed = || LabError::io("cannot prepare the measurement of this host");
        let stats = dir.join(format!("stats{index}"));
        let config = dir.join(format!("config{index}"));
        let disk = dir.join(format!("disk{index}"));
        let log = dir.join(format!("log{index}"));
        let json = serde_json::to_vec(&PluginConfig::free(machine, &stats));
        std::fs::write(&config, json.map_err(std::io::Error::from).map_err(failed())?)
            .map_err(failed())?;
        std::fs::write(&disk, boot_disk()).map_err(failed())?;
        let output = std::fs::File::create(&log).map_err(failed())?;
        let child = standing::qemu(tools)
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-m", "64M"])
            .args(["-accel", "tcg,thread=multi", "-machine", "pc"])
            .arg("-drive")
            .arg(format!("file={},format=raw,if=ide", disk.display()))
            .arg("-plugin")
            .arg(format!("file={},config={}", plugin.display(), config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(failed())?;
        standing::prefer(child.id());
        Ok(Probe { child, stats, log })
    }

    fn wait_until_running(&mut self) -> Result<CounterFile, LabError> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Ok(file) = CounterFile::open(&self.stats)
                && file.charging().unwrap_or(false)
            {
                return Ok(file);
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let said = log.lines().next_back().unwrap_or("QEMU said nothing");
        Err(LabError::Agent { problem: format!("this host cannot be measured: {said}") })
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The boot sector on a disk of one track.
fn boot_disk() -> Vec<u8> {
    let mut disk = vec![0; 64 << 10];
    disk[..BOOT_SECTOR.len()].copy_from_slice(BOOT_SECTOR);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lies_where_the_code_says() {
        assert_eq!(BOOT_SECTOR[0x40..0x42], [0x17, 0x00]);
        assert_eq!(BOOT_SECTOR[0x18], 0xb8);
        assert_eq!(boot_disk()[510..512], [0x55, 0xaa]);
    }

    #[test]
    fn dilation_follows_from_capacity_and_never_speeds_time_up() {
        let machine = Machine::find("2x4").unwrap();
        let dilation = |rate| Capacity { instructions_per_second: rate }.dilation(&machine);
        assert_eq!(dilation(5e8), 4.0);
        assert_eq!(dilation(7e8), 3.0);
        assert_eq!(dilation(1e12), 1.0);
    }
}
