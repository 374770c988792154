//! Balances of other users, by their command lines: their journals are theirs, and not to be trusted by who has more rights.
//!
//! What another user's balance looks after is left to it as far as it is that user's: two balancers would take each other's
//! masks for their owner's, and the last to end would leave them so.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use clap::Parser as _;
use numaherd_linux::cgroup;
use numaherd_linux::process::TaskReader;
use numaherd_linux::sys::identity;

use crate::args::{Balance, Cli, Command};
use crate::commands::balance::only_says;

/// What processes of ours are called.
pub const NAME: &str = "numaherd";

/// The processes that balances of other users look after, of which `ours` are all of that name, and why they are left
/// alone.
pub fn strangers(ours: &[u32]) -> BTreeMap<u32, String> {
    let root = Path::new("/");
    let mut reader = TaskReader::new(root);
    let mut theirs = BTreeMap::new();
    for &pid in ours {
        let Ok(Some(user)) = reader.effective_user(pid) else { continue };
        if user == identity::effective_user() {
            continue;
        }
        let line = std::fs::read(root.join(format!("proc/{pid}/cmdline"))).unwrap_or_default();
        let Some(balance) = balance(&line) else { continue };
        let why = format!("a balance of user {user} (process {pid}) looks after it");
        let all = looked_after(&mut reader, pid, &balance);
        let is_theirs =
            |tgid: &u32| matches!(reader.effective_user(*tgid), Ok(Some(of)) if of == user);
        theirs.extend(all.into_iter().filter(is_theirs).map(|tgid| (tgid, why.clone())));
    }
    theirs
}

/// What a command line asks for, if it is for a balance that acts.
fn balance(line: &[u8]) -> Option<Balance> {
    let words = line.strip_suffix(b"\0").unwrap_or(line).split(|byte| *byte == 0);
    let cli = Cli::try_parse_from(words.map(|word| OsString::from_vec(word.into()))).ok()?;
    match cli.command {
        Command::Balance(balance) if !only_says(&balance) => Some(balance),
        _ => None,
    }
}

/// Those that it may look after, of whomever.
fn looked_after(reader: &mut TaskReader, pid: u32, balance: &Balance) -> BTreeSet<u32> {
    if balance.all {
        return reader.processes().unwrap_or_default().into_iter().collect();
    }
    let mut all = BTreeSet::new();
    for group in &balance.cgroup {
        let folder = cgroup::find(Path::new("/"), group).ok().flatten();
        let members = folder.and_then(|folder| cgroup::processes(&folder).ok().flatten());
        all.extend(members.unwrap_or_default());
    }
    for root in balance.pid.iter().copied().chain([pid]) {
        all.extend(reader.tree(root).unwrap_or_default());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_balance_that_acts_is_one() {
        let of = |line: &str| balance(line.replace(' ', "\0").as_bytes());
        let pids = |line: &str| of(line).map(|balance| balance.pid);
        assert_eq!(pids("numaherd balance -p 7 --pid=9 "), Some(vec![7, 9]));
        assert_eq!(pids("/opt/numaherd balance -v -- sleep 9 "), Some(Vec::new()));
        assert!(of("numaherd balance --all --apply ").is_some_and(|balance| balance.all));
        for other in ["balance --all", "balance --dry-run -p 7", "status", "balance -p x", ""] {
            assert!(of(&format!("numaherd {other} ")).is_none(), "{other}");
        }
        assert!(balance(b"").is_none());
    }

    #[test]
    fn what_it_names_or_started_is_looked_after() {
        let mut reader = TaskReader::new("/".as_ref());
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let of = |reader: &mut TaskReader, pid, line: &str| {
            looked_after(reader, pid, &balance(line.replace(' ', "\0").as_bytes()).unwrap())
        };
        let me = std::process::id();
        let started = of(&mut reader, me, "numaherd balance -- sleep 60");
        assert!(started.contains(&child.id()) && !started.contains(&1));
        let named = of(&mut reader, u32::MAX >> 1, &format!("numaherd balance -p {}", child.id()));
        assert!(named.contains(&child.id()) && !named.contains(&me));
        assert!(of(&mut reader, me, "numaherd balance --all --apply").contains(&1));
        child.kill().unwrap();
        child.wait().unwrap();
        // Nobody else's are ours.
        assert!(strangers(&[me]).is_empty());
    }
}
