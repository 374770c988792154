//! Where a field stands in a TOML file: what is wrong with a machine or workload is told at its line.

use serde::Deserialize;

/// Two figures, and no more: a tuple takes the first two of a longer list without a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<T>")]
pub struct Pair<T>(pub T, pub T);

impl<T> TryFrom<Vec<T>> for Pair<T> {
    type Error = String;

    fn try_from(list: Vec<T>) -> Result<Pair<T>, String> {
        let pair = <[T; 2]>::try_from(list);
        let [a, b] = pair.map_err(|list| format!("a list of length 2, found {}", list.len()))?;
        Ok(Pair(a, b))
    }
}

/// The table that a line begins, whatever comment stands after it.
#[must_use]
pub fn header(line: &str) -> Option<&str> {
    let line = line.trim();
    let list = line.strip_prefix("[[").and_then(|rest| rest.split_once("]]"));
    let (name, after) = list.or_else(|| line.strip_prefix('[')?.split_once(']'))?;
    let name = name.trim();
    // Unlike a row of a list.
    let named = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let after = after.trim();
    (named && (after.is_empty() || after.starts_with('#'))).then_some(name)
}

/// The line of a field in a TOML text, from 1: the first such key within its table, else the table, else 1. `nth`
/// is which of the tables of that name, from 0.
#[must_use]
pub fn line_of(text: &str, field: &str, nth: usize) -> usize {
    let (table, key) = field.rsplit_once('.').unwrap_or((field, ""));
    let lines = text.lines().zip(1..);
    let mut tables = lines.clone().filter(|(line, _)| header(line) == Some(table));
    let Some((_, head)) = tables.nth(nth) else { return 1 };
    let inside = lines.skip(head).take_while(|(line, _)| header(line).is_none());
    let mut keys = inside.filter(|(line, _)| line.split('=').next().map(str::trim) == Some(key));
    keys.next().map_or(head, |(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_of_two() {
        let pair = |list: &[u32]| Pair::try_from(list.to_vec());
        assert_eq!(pair(&[3, 4]), Ok(Pair(3, 4)));
        assert_eq!(pair(&[3, 4, 5]), Err("a list of length 2, found 3".into()));
        assert_eq!(pair(&[3]), Err("a list of length 2, found 1".into()));
    }

    #[test]
    fn a_field_is_found_in_its_table() {
        let text = "title = \"t\"\n[cpu] # all\n[[node]]\nid = 0\ncpus = 2\n[[node]]\nid = 0\n";
        let of = |field, nth| line_of(text, field, nth);
        assert_eq!([of("cpu", 0), of("node.id", 0), of("node.cpus", 0)], [2, 4, 5]);
        assert_eq!([of("node.id", 1), of("node.cpus", 1)], [7, 6], "its table, without such a key");
        assert_eq!([of("node", 2), of("links.between", 0)], [1, 1], "no such table");
        assert_eq!(header("  [10, 21], # a row"), None);
    }
}
