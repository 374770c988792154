//! Balances of other users, by their command lines: their journals are theirs, and not to be trusted by who has more rights.
//!
//! What another user's balance looks after is left to it as far as it is that user's: two balancers would take each other's
//! masks for their owner's, and the last to end would leave them so. Nothing that it names is opened, and who does not say
//! in time how it was started is passed over: any program may call itself so, to hold up who has more rights.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use clap::Parser as _;
use numaherd_linux::process::TaskReader;
use numaherd_model::ProcessId;

use crate::args::{Balance, Cli, Command};
use crate::commands::balance::only_says;

/// What processes of ours are called.
pub const NAME: &str = "numaherd";

/// Processes of that name that are asked; there are hardly ever two. Guessed.
const MOST_ASKED: usize = 32;

/// Of `busy` processes those that balances of other users than `own` look after, and why they are left alone. Balances are
/// found among `namesakes`, the processes that are called as we are.
pub fn strangers(
    reader: &mut TaskReader,
    own: u32,
    namesakes: &[u32],
    busy: &[ProcessId],
) -> BTreeMap<u32, String> {
    let mut theirs = BTreeMap::new();
    for &pid in namesakes.iter().take(MOST_ASKED) {
        let Ok(Some(user)) = reader.effective_user(pid) else { continue };
        if user == own {
            continue;
        }
        let line = reader.command_line(pid).unwrap_or_default();
        let Some(balance) = balance(&line) else { continue };
        // Who is in its groups is not asked: it may be that all of its user's are.
        let started: BTreeSet<u32> = match balance.all || !balance.cgroup.is_empty() {
            true => busy.iter().map(|process| process.tgid).collect(),
            false => {
                let roots = balance.pid.iter().copied().chain([pid]);
                roots.flat_map(|root| reader.tree(root).unwrap_or_default()).collect()
            }
        };
        let why = format!("a balance of user {user} (process {pid}) looks after it");
        for tgid in busy.iter().map(|process| process.tgid).filter(|tgid| started.contains(tgid)) {
            if matches!(reader.effective_user(tgid), Ok(Some(of)) if of == user) {
                theirs.insert(tgid, why.clone());
            }
        }
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

    /// Users 5 and 6, and we are 0. Process 30 is a child of 10, and 40 is one of 20.
    #[test]
    fn what_a_balance_of_another_user_names_and_started_is_left_to_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: String, text: String| {
            let path = root.path().join("proc").join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (pid, parent, user) in
            [(1, 0, 0), (10, 1, 5), (20, 1, 5), (30, 10, 5), (40, 20, 5), (50, 1, 6), (60, 1, 0)]
        {
            let zeros = " 0".repeat(46);
            put(format!("{pid}/task/{pid}/stat"), format!("{pid} (x) S {parent}{zeros}\n"));
            put(format!("{pid}/status"), format!("Uid:\t9\t{user}\t9\t9\n"));
            let children = match pid {
                10 => "30 ",
                20 => "40 ",
                _ => "",
            };
            put(format!("{pid}/task/{pid}/children"), children.into());
        }
        let all = [20, 30, 40, 50, 60].map(|tgid| ProcessId { tgid, start: 0 });
        let left = |own: u32, line: &str, busy: &[ProcessId]| {
            put("10/cmdline".into(), line.replace(' ', "\0"));
            let mut reader = TaskReader::new(root.path());
            strangers(&mut reader, own, &[10, 99], busy).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(left(0, "numaherd balance -- x ", &all), [30]);
        // It may name whom it likes, and only its own are left to it.
        assert_eq!(left(0, "numaherd balance -p 20 -p 50 -p 60 ", &all), [20, 30, 40]);
        assert_eq!(left(0, "numaherd balance --all --apply ", &all), [20, 30, 40]);
        assert_eq!(left(0, "numaherd balance --cgroup /dev/zero ", &all), [20, 30, 40]);
        assert_eq!(left(0, "numaherd balance --all --apply ", &all[1..2]), [30]);
        assert_eq!(left(0, "numaherd balance --all ", &all), [0; 0]);
        assert_eq!(left(5, "numaherd balance --all --apply ", &all), [0; 0], "our own");
    }
}
