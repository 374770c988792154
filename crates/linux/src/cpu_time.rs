//! Time that each CPU has been busy, from `/proc/stat`.
//!
//! Busy is user, nice, system, interrupts and what guests took; idle, waiting for devices and
//! stolen time are not. Counted since boot, in clock ticks of mostly 10 ms.
//!
//! Source: the kernel's Documentation/filesystems/proc.rst, "Miscellaneous kernel statistics".

use std::collections::BTreeMap;
use std::path::Path;

use numaherd_model::{CpuId, Nanos};

use crate::file::{Buffer, ReadError};
use crate::sys::clock;

/// Columns that are busy time, without the CPU's name: user, nice, system, irq, softirq. Guests'
/// time is in user and nice already.
const BUSY_COLUMNS: [usize; 5] = [0, 1, 2, 5, 6];

/// Busy time of every online CPU; empty where there is no such file.
///
/// # Errors
/// The file cannot be read, or a CPU's line is none.
pub fn read(root: &Path) -> Result<BTreeMap<CpuId, Nanos>, ReadError> {
    let path = root.join("proc/stat");
    let mut buffer = Buffer::default();
    let Some(bytes) = buffer.read(&path)? else {
        return Ok(BTreeMap::new());
    };
    let text = String::from_utf8_lossy(bytes);
    // The first line is the sum; each CPU has one of its own after it.
    let lines = text.lines().enumerate().skip(1).take_while(|(_, line)| line.starts_with("cpu"));
    let tick = clock::tick().0;
    lines
        .map(|(index, line)| {
            let expected = "'cpuN' and its times";
            parse(line)
                .map(|(cpu, ticks)| (cpu, Nanos(ticks.saturating_mul(tick))))
                .ok_or_else(|| ReadError::parse(&path, index + 1, expected, line))
        })
        .collect()
}

/// A CPU and its busy ticks.
fn parse(line: &str) -> Option<(CpuId, u64)> {
    let (name, times) = line.split_once(' ')?;
    let cpu = CpuId(name.strip_prefix("cpu")?.parse().ok()?);
    let times: Option<Vec<u64>> =
        times.split_ascii_whitespace().map(|time| time.parse().ok()).collect();
    let times = times?;
    let busy: Option<u64> =
        BUSY_COLUMNS.iter().map(|&column| times.get(column)).sum::<Option<u64>>();
    Some((cpu, busy?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_is_not_busy() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let stat = "cpu  11 2 3 400 5 6 7 8 9 0\ncpu0 1 2 3 400 5 6 7 8 9 0\ncpu17 10 0 0 0 0 0 0\nintr 5 6\n";
        std::fs::write(root.path().join("proc/stat"), stat).unwrap();
        let tick = clock::tick().0;
        let expected = [(CpuId(0), Nanos(19 * tick)), (CpuId(17), Nanos(10 * tick))];
        assert_eq!(read(root.path()).unwrap().into_iter().collect::<Vec<_>>(), expected);
        std::fs::write(root.path().join("proc/stat"), "cpu 1\ncpu0 1 2 3 4\n").unwrap();
        assert!(read(root.path()).unwrap_err().to_string().contains("line 2"));
    }

    #[test]
    fn every_cpu_of_this_machine_has_its_time() {
        let cpus = crate::topology::read("/".as_ref()).unwrap().cpus().len();
        assert_eq!(read("/".as_ref()).unwrap().len(), cpus);
    }
}
