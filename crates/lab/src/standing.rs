//! How QEMU stands among this host's processes.
//!
//! It ends with us, and is a session of its own: Ctrl-C is for us to act on, and Linux divides a
//! CPU's time first among sessions (autogroups), only then among a session's processes. Where its
//! time matters, the session gets more weight than others, if we may: what the host cannot carry
//! in time, the emulated CPUs do late.

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::tools::Tools;

/// Nice value of a timed machine's session. Measured: with a core kept busy by another session at
/// 0, herd's runs of numa02 on `2x4` took 3.6 % longer against bind than on a quiet host, since
/// the emulated CPUs were late by 1 %; with −15 and builds beside it, they were late by 0.6 % at
/// most. −10 is 9.3 times the weight of 0.
const NICE: &str = "-10";
/// How long the session may take to begin.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(1);

/// QEMU, arguments to follow. Killed by the kernel when we end.
pub fn qemu(tools: &Tools) -> Command {
    let mut command = Command::new(&tools.setsid);
    command.arg(&tools.setpriv).args(["--pdeathsig", "KILL", "--"]).arg(&tools.qemu);
    command
}

/// Asks for more weight for this process's session, once it has one. Without the right to, or on
/// a kernel without autogroups, it stays as it is.
pub fn prefer(pid: u32) {
    let mut waited = Duration::ZERO;
    while !leads_a_session(Path::new("/proc"), pid) {
        if waited >= PATIENCE {
            return;
        }
        sleep(TICK);
        waited += TICK;
    }
    let _ = std::fs::write(format!("/proc/{pid}/autogroup"), NICE);
}

/// Before it does, the session is that of whoever started us, and not ours to change.
fn leads_a_session(proc: &Path, pid: u32) -> bool {
    let stat = std::fs::read_to_string(proc.join(format!("{pid}/stat"))).unwrap_or_default();
    // pid (name) state parent group session
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    behind_name.split_whitespace().nth(3).and_then(|word| word.parse().ok()) == Some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_ours_only_when_its_number_is_the_processs() {
        let proc = tempfile::tempdir().unwrap();
        let stat = |pid: u32, text: &str| {
            let folder = proc.path().join(pid.to_string());
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("stat"), text).unwrap();
            leads_a_session(proc.path(), pid)
        };
        assert!(stat(70, "70 (qemu (x) 3) S 9 70 70 0 -1"));
        assert!(!stat(71, "71 (setsid) S 9 9 9 0 -1"));
        assert!(!leads_a_session(proc.path(), 72), "it is gone");
    }
}
