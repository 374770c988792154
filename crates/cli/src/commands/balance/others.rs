//! Other balancers at work: two on the same tasks would take each other's CPUs for their owner's. So whoever looks after all
//! leaves others' alone ([`beside`](crate::living::beside)), and who is named twice is refused.

use anyhow::{Result, bail};
use numaherd_model::ProcessId;

use crate::living::{living, looks_after, told};
use crate::session::journals;

/// Refuses processes that another run looks after, and tells of runs that may come to do so.
///
/// # Errors
/// One of `named` is another run's; or the folder of journals cannot be read.
pub fn check(named: &[ProcessId], all: bool, broad: bool) -> Result<()> {
    for left in living(&journals())? {
        if let Some(twice) = named.iter().find(|process| looks_after(&left, **process)) {
            bail!(
                "process {} is looked after by {} already: end that first",
                twice.tgid,
                told(&left)
            );
        }
        let is_all = left.about.contains(EVERY);
        if broad || is_all || left.about.contains(GROUP) {
            // Whoever looks after all leaves alone what others have named, started or placed.
            let both = match all || is_all {
                true => "whom one has named, started or placed, the other leaves alone",
                false => "what both look after is moved to and fro",
            };
            say!("numaherd: {} goes on, too: {both}", told(&left));
        }
    }
    Ok(())
}

/// As runs tell whom they look after.
pub const EVERY: &str = "every busy process";
pub const GROUP: &str = "control group ";
