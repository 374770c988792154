//! numactl's lists of nodes and CPUs.
//!
//! ```text
//! list   = [ "!" ] [ "+" ] part { "," part }
//! part   = number [ "-" number ] | "all" | device      (all and device: last, nodes only: device)
//! device = netdev:NAME | file:PATH | ip:HOST | block:NAME | pci:[SEG:]BUS:DEV[.FUNC]
//! ```
//!
//! `!` inverts within the machine's nodes or CPUs, `+` counts within what may be used, numbers
//! are C's (`0x1f`, `017`). The empty list is the empty set. What a device means is for the
//! caller to find out. Rules as observed of numactl 2.0.16.
//!
//! ```
//! use numaherd_mempolicy::lists::{Universe, parse_nodes};
//! let universe = Universe { allowed: "1,3".parse().unwrap(), configured: 4 };
//! let no_device = |_: &str| None;
//! assert_eq!(parse_nodes("+0-1", &universe, no_device).unwrap().to_string(), "1,3");
//! assert_eq!(parse_nodes("!1", &universe, no_device).unwrap().to_string(), "0,2-3");
//! ```

use numaherd_model::{CpuId, CpuSet, IdSet, Member, NodeId, NodeSet};

/// What a list is read against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Universe<T: Member> {
    /// What may be named: the task's own, or with --all the machine's.
    pub allowed: IdSet<T>,
    /// How many there are: inverting concerns the numbers below.
    pub configured: u32,
}

/// A list that numactl refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Neither a number nor a word that is known.
    #[error("unparseable {kind} description `{text}'")]
    Unparseable {
        /// "node" or "cpu".
        kind: &'static str,
        /// From where on.
        text: String,
    },
    /// A number that may not be used.
    #[error("{kind} argument {number} is out of range")]
    OutOfRange {
        /// "node" or "cpu".
        kind: &'static str,
        /// The number.
        number: u64,
    },
    /// A range without its end.
    #[error("missing {kind} argument {text}")]
    MissingEnd {
        /// "node" or "cpu".
        kind: &'static str,
        /// From where on.
        text: String,
    },
    /// Something behind the list.
    #[error("`{text}' does not belong into a list of {kind}s")]
    Trailing {
        /// "node" or "cpu".
        kind: &'static str,
        /// What is too much.
        text: String,
    },
    /// The device's node cannot be found.
    #[error("{problem}")]
    Device {
        /// Why.
        problem: String,
    },
}

/// What a device's name came to: None if it is none, else its nodes or what is wrong.
pub type Resolved = Option<Result<NodeSet, String>>;

/// Reads a list of nodes; `resolve` finds the nodes of devices.
///
/// # Errors
/// numactl would refuse it.
pub fn parse_nodes(
    text: &str,
    universe: &Universe<NodeId>,
    resolve: impl Fn(&str) -> Resolved,
) -> Result<NodeSet, ListError> {
    parse(text, universe, "node", |rest| {
        if rest == "all" {
            return Some(Ok(universe.allowed.clone()));
        }
        let named = rest.starts_with(|c: char| c.is_ascii_alphabetic());
        let found = if named { resolve(rest) } else { None };
        found.map(|found| found.map_err(|problem| ListError::Device { problem }))
    })
}

/// Reads a list of CPUs.
///
/// # Errors
/// numactl would refuse it.
pub fn parse_cpus(text: &str, universe: &Universe<CpuId>) -> Result<CpuSet, ListError> {
    parse(text, universe, "cpu", |rest| (rest == "all").then(|| Ok(universe.allowed.clone())))
}

fn parse<T: Member>(
    text: &str,
    universe: &Universe<T>,
    kind: &'static str,
    word: impl Fn(&str) -> Option<Result<IdSet<T>, ListError>>,
) -> Result<IdSet<T>, ListError> {
    if text.is_empty() {
        return Ok(IdSet::new());
    }
    let (inverted, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (relative, mut rest) = text.strip_prefix('+').map_or((false, text), |rest| (true, rest));
    let mut set = IdSet::new();
    loop {
        if let Some(found) = word(rest) {
            let found = found?;
            if rest == "all" {
                set = found;
            } else {
                set.extend(found.iter());
            }
            break;
        }
        let one = |rest| number(rest, &universe.allowed, relative);
        let Some((first, behind)) = one(rest) else {
            return Err(ListError::Unparseable { kind, text: rest.to_string() });
        };
        let member = |number| {
            let found = u32::try_from(number).ok().map(T::from_number);
            let found = found.filter(|id| universe.allowed.contains(*id));
            found.ok_or(ListError::OutOfRange { kind, number })
        };
        set.insert(member(first)?);
        rest = behind;
        if let Some(end) = rest.strip_prefix('-') {
            let Some((last, behind)) = one(end) else {
                return Err(ListError::MissingEnd { kind, text: end.to_string() });
            };
            member(last)?;
            let between = |id: &T| (first..=last).contains(&u64::from(id.number()));
            set.extend(universe.allowed.iter().filter(between));
            rest = behind;
        }
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.is_empty() => break,
            None => return Err(ListError::Trailing { kind, text: rest.to_string() }),
        }
    }
    if inverted {
        invert(&mut set, universe);
    }
    Ok(set)
}

fn invert<T: Member>(set: &mut IdSet<T>, universe: &Universe<T>) {
    for id in (0..universe.configured).map(T::from_number) {
        if set.contains(id) {
            set.remove(id);
        } else {
            set.insert(id);
        }
    }
}

/// The list that reads as `set`: plain if all of it may be named, else inverted. None if no list
/// reads so.
///
/// Worked example: of 4 nodes 1 and 3 may be named; `1,3` stays `1,3`, and `0,2-3` is `!1`.
#[must_use]
pub fn format<T: Member>(set: &IdSet<T>, universe: &Universe<T>) -> Option<String> {
    if set.is_subset(&universe.allowed) {
        return Some(set.to_string());
    }
    let mut named = set.clone();
    invert(&mut named, universe);
    let can_be_read = !named.is_empty() && named.is_subset(&universe.allowed);
    can_be_read.then(|| format!("!{named}"))
}

/// A number at the beginning and what is behind it; relative ones count within `allowed`, and
/// what lies behind its last is a number that no set has.
fn number<'t, T: Member>(
    text: &'t str,
    allowed: &IdSet<T>,
    relative: bool,
) -> Option<(u64, &'t str)> {
    let (value, rest) = c_number(text)?;
    if !relative {
        return Some((value, rest));
    }
    let found = usize::try_from(value).ok().and_then(|nth| allowed.iter().nth(nth));
    Some((found.map_or(u64::MAX, |id| u64::from(id.number())), rest))
}

/// A number as C's strtoul reads it with base 0: blanks, a sign, 0x and 0 as prefixes. Too large
/// ones and negative ones come out as numbers that no set has.
#[must_use]
pub fn c_number(text: &str) -> Option<(u64, &str)> {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c');
    let text = text.trim_start_matches(blank);
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = text.strip_prefix("0x").or(text.strip_prefix("0X"));
    let hex = hex.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit()));
    let (digits, base) = match hex {
        Some(rest) => (rest, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let end = digits.find(|c: char| !c.is_digit(base)).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let value = u64::from_str_radix(&digits[..end], base).unwrap_or(u64::MAX);
    Some((if negative { value.wrapping_neg() } else { value }, &digits[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(text: &str) -> Result<String, String> {
        let universe = Universe { allowed: "0-3".parse().unwrap(), configured: 4 };
        let devices = |text: &str| match text {
            "netdev:eth0" => Some(Ok("2".parse().unwrap())),
            "netdev:lo" => Some(Err("it has no node".into())),
            _ => None,
        };
        let read = parse_nodes(text, &universe, devices);
        read.map(|set| set.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_are_read_as_numactl_reads_them() {
        for (text, expected) in [
            ("", ""),
            ("0", "0"),
            ("0,2-3", "0,2-3"),
            ("3-1", "3"), // a range that runs backwards is its beginning
            ("all", "0-3"),
            ("1,all", "0-3"),
            ("!0", "1-3"),
            ("!all", ""),
            ("+1-2", "1-2"),
            ("!+0", "1-3"),
            ("0x1,010", "?"), // octal 8
            ("0x1,02", "1-2"),
            ("0, 1", "0-1"),
            ("netdev:eth0", "2"),
            ("0,netdev:eth0", "0,2"),
        ] {
            let read = nodes(text).unwrap_or("?".into());
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn refusals_say_why() {
        for (text, problem) in [
            ("x", "unparseable node description `x'"),
            ("0,", "unparseable node description `'"),
            ("9", "node argument 9 is out of range"),
            ("-1", "out of range"),
            ("0-", "missing node argument"),
            ("0-9", "node argument 9 is out of range"),
            ("0 ", "` ' does not belong"),
            ("all,0", "unparseable"),
            ("netdev:lo", "it has no node"),
            ("08", "`8' does not belong"),
        ] {
            let error = nodes(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn relative_numbers_count_within_what_is_allowed() {
        let universe = Universe { allowed: "4,6-7".parse().unwrap(), configured: 8 };
        let cpus = |text| parse_cpus(text, &universe).map(|set| set.to_string());
        assert_eq!(cpus("+0,2").unwrap(), "4,7");
        assert_eq!(cpus("+0-2").unwrap(), "4,6-7");
        assert!(cpus("+3").is_err());
        assert_eq!(cpus("!4,6").unwrap(), "0-3,5,7");
        let list = |set: &str| format::<CpuId>(&set.parse().unwrap(), &universe);
        assert_eq!(list("4,7").unwrap(), "4,7");
        assert_eq!(list("0-3,5,7").unwrap(), "!4,6");
        // 5 could be left out only by naming it, and it may not be named
        assert_eq!(list("0-4,6-7"), None);
    }

    proptest! {
        #[test]
        fn plain_lists_read_back(ids in proptest::collection::btree_set(0u32..64, 1..20)) {
            let set: NodeSet = ids.into_iter().map(NodeId).collect();
            let universe = Universe { allowed: "0-63".parse().unwrap(), configured: 64 };
            prop_assert_eq!(parse_nodes(&set.to_string(), &universe, |_| None).unwrap(), set);
        }

        /// Whatever a list comes to can be written as a list again, inverted ones too.
        #[test]
        fn what_is_read_can_be_written(
            allowed in proptest::collection::btree_set(0u32..12, 1..9),
            configured in 0u32..12,
            text in "!?[0-9](,[0-9]|-[0-9]){0,3}",
        ) {
            let allowed: NodeSet = allowed.into_iter().map(NodeId).collect();
            let universe = Universe { allowed, configured };
            if let Ok(set) = parse_nodes(&text, &universe, |_| None) {
                let written = format(&set, &universe).expect("it was read from a list");
                prop_assert_eq!(parse_nodes(&written, &universe, |_| None).unwrap(), set);
            }
        }

        #[test]
        fn no_text_panics(text in "[0-9a-z!+,: x-]{0,20}|\\PC{0,20}") {
            let universe = Universe { allowed: "0-3".parse().unwrap(), configured: 4 };
            let _ = parse_nodes(&text, &universe, |_| None);
        }
    }
}
