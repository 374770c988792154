//! Ctrl-C and its kin as a flag that long work looks at.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_linux::sys::signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that is set when the user wants us to stop. A hangup that is ignored (by `nohup`) stays so.
pub fn flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    let ignored = |signal: &i32| *signal == SIGHUP && signal::is_ignored(SIGHUP);
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !ignored(signal)) {
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}
