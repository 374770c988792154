//! Other balancers at work: two on the same tasks would take each other's CPUs for their owner's.

use anyhow::{Result, bail};
use numaherd_model::ProcessId;

use crate::living::{living, looks_after, told};
use crate::session::journals;

/// Refuses processes that another run looks after, and tells of runs that may come to do so.
///
/// # Errors
/// One of `named` is another run's; or the folder of journals cannot be read.
pub fn check(named: &[ProcessId], broad: bool) -> Result<()> {
    for left in living(&journals())? {
        if let Some(twice) = named.iter().find(|process| looks_after(&left, **process)) {
            bail!(
                "process {} is looked after by {} already: end that first",
                twice.tgid,
                told(&left)
            );
        }
        if broad || left.about.contains(EVERY) || left.about.contains(GROUP) {
            say!(
                "numaherd: {} goes on, too: what both look after is moved to and fro",
                told(&left)
            );
        }
    }
    Ok(())
}

/// As runs tell whom they look after.
pub const EVERY: &str = "every busy process";
pub const GROUP: &str = "control group ";
