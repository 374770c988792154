//! What the TOML reader says of a wrong file, in our words: line, field, what was expected.
//!
//! The reader knows a place in the text and a sentence; the field is found in the text: the table
//! above that place, and the key on its line.

use numaherd_model::places::header;

use crate::SimError;

/// At its line.
pub(crate) fn told(path: &str, text: &str, error: &toml::de::Error) -> SimError {
    let mut at = error.span().map_or(0, |span| span.start).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let line = text[..at].matches('\n').count() + 1;
    let said = error.message().trim().replace('\n', " ");
    SimError::Parse {
        path: path.into(),
        line,
        expected: in_our_words(&field(text, line), line, &said, value(text, line)),
    }
}

/// What was expected, with what is on that line (from 1), where it is this key's and that is not told already.
pub(crate) fn with_found(text: &str, line: usize, key: &str, expected: String) -> String {
    let is_key = |line: &str| line.split('=').next().is_some_and(|name| name.trim() == key);
    let here = text.lines().nth(line.saturating_sub(1)).is_some_and(is_key);
    match value(text, line).filter(|_| here && !expected.contains(", found ")) {
        // A list goes on on further lines.
        Some(value) if !value.is_empty() && !value.ends_with(['[', ',']) => {
            format!("{expected}, found {value}")
        }
        _ => expected,
    }
}

/// What stands for a key's value on a line (from 1), if a key does.
fn value(text: &str, line: usize) -> Option<&str> {
    let (_, value) = text.lines().nth(line - 1)?.split_once('=')?;
    Some(value.split('#').next().unwrap_or(value).trim())
}

/// The table above a line (from 1), and the key on it.
fn field(text: &str, line: usize) -> String {
    let mut table = "";
    let mut key = None;
    for (number, line_text) in (1..=line).zip(text.lines()) {
        let line_text = line_text.trim();
        if let Some(name) = header(line_text) {
            table = name;
            key = None;
        } else if let Some((name, _)) = line_text.split_once('=') {
            key = Some(name.trim());
        }
        if number == line && !line_text.contains('=') && line_text.starts_with('[') {
            break;
        }
    }
    match key {
        Some(key) if table.is_empty() => key.into(),
        Some(key) => format!("{table}.{key}"),
        None => table.into(),
    }
}

/// `invalid type: X, expected Y` → `field: Y, found X`, and the like.
fn in_our_words(field: &str, line: usize, said: &str, value: Option<&str>) -> String {
    let table = field.rsplit_once('.').map_or("", |(table, _)| table);
    for start in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((found, expected)) =
            said.strip_prefix(start).and_then(|rest| rest.split_once(", expected "))
        {
            let expected = match (start, expected) {
                ("invalid value: ", "u32") => "a whole number, 0 to 4294967295",
                (_, expected) => plain(expected),
            };
            return format!("{field}: {expected}, found {found}");
        }
    }
    for start in ["unknown field ", "unknown variant "] {
        if let Some((found, expected)) =
            said.strip_prefix(start).and_then(|rest| rest.split_once(", expected "))
        {
            let of_table = start == "unknown field ";
            let place = if of_table { table } else { field };
            let place = if place.is_empty() { "in the file" } else { place };
            return format!("{place}: {expected}, found {found}");
        }
    }
    if let Some(missing) = said.strip_prefix("missing field ") {
        let missing = missing.trim_matches('`');
        // It is told at its table's head; one of the file itself at the start of the file.
        let dot = if field.is_empty() || line == 1 { "" } else { "." };
        let table = if dot.is_empty() { "" } else { field };
        return format!("{table}{dot}{missing}, which is missing");
    }
    // What the reader took it for is of no help.
    let no_value =
        ["invalid ", "string values must be", "unexpected key or value", "integer number"];
    if let Some(value) = value.filter(|_| no_value.iter().any(|start| said.starts_with(start))) {
        let found = if value.is_empty() { "nothing" } else { value };
        return format!(
            "{field}: text in quotes, true or false, a number or a list, found {found}"
        );
    }
    match field {
        "" => format!("sound TOML: {said}"),
        field => format!("{field}: {said}"),
    }
}

/// Rust's names of types, for people.
fn plain(expected: &str) -> &str {
    match expected {
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_told_with_what_was_expected() {
        let text = "[cpu]\ncores = 0 # none\nslit = [\n[10],\n]\n";
        let of = |line, key, expected: &str| with_found(text, line, key, expected.into());
        assert_eq!(of(2, "cores", "cpu.cores: 1 or more"), "cpu.cores: 1 or more, found 0");
        assert_eq!(of(2, "cores", "1 or more, found none"), "1 or more, found none");
        assert_eq!((of(2, "other", "x"), of(3, "slit", "x")), ("x".into(), "x".into()));
    }

    #[test]
    fn a_field_is_the_table_above_and_the_key_on_the_line() {
        let text = "title = \"t\"\n[cpu] # all\n[[node]]\nid = 0\ncpus = 2\nslit = [\n  [10],\n]\n";
        let of = |line| field(text, line);
        assert_eq!([of(1), of(2), of(4), of(5)], ["title", "cpu", "node.id", "node.cpus"]);
        assert_eq!(of(7), "node.slit", "in a list over several lines");
    }
}
