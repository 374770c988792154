//! What is wrong with a file, in our words: line, field, what was expected, what is there.
//!
//! What the TOML reader says is a place in the text and a sentence; what does not fit together is found later, by the
//! field's name. Both are looked up in what the reader made of the text ([`Places`]).

use numaherd_model::places::{self, Places};

use crate::SimError;
use crate::machine::file::HIGHEST_NODE;

/// What is wrong with a field.
#[derive(Debug)]
pub(crate) struct Wrong {
    field: &'static str,
    /// Which of each list on the way there, from 0: tables, then rows and figures.
    at: Vec<usize>,
    /// What was expected, with the field.
    expected: String,
}

impl Wrong {
    pub(crate) fn new(field: &'static str, at: &[usize], expected: impl AsRef<str>) -> Wrong {
        Wrong::told_as(field, at, format!("{field}: {}", expected.as_ref()))
    }

    /// One at which something else is told than its name.
    pub(crate) fn told_as(field: &'static str, at: &[usize], expected: String) -> Wrong {
        Wrong { field, at: at.to_vec(), expected }
    }

    /// With its place in the file, and what is there, unless that is told already.
    pub(crate) fn of_file(self, path: &str, text: &str) -> SimError {
        let places = Places::of(text);
        let Wrong { field, at, mut expected } = self;
        if let Some(value) = places.value(field, &at).filter(|_| !expected.contains(", found ")) {
            expected = format!("{expected}, found {value}");
        }
        SimError::Parse { path: path.into(), line: places.line(field, &at), expected }
    }
}

/// A file's bytes as text. `path` is only for messages.
///
/// # Errors
/// [`SimError::Parse`] with the line of the first byte that is not UTF-8.
pub fn text(path: &str, bytes: Vec<u8>) -> Result<String, SimError> {
    places::text(bytes).map_err(|wrong| SimError::Parse {
        path: path.into(),
        line: wrong.line,
        expected: wrong.to_string(),
    })
}

/// What the reader says, at its line.
pub(crate) fn told(path: &str, text: &str, error: &toml::de::Error) -> SimError {
    let places = Places::of(text);
    let said = error.message().trim().replace('\n', " ");
    // Without one the file as a whole is meant.
    let span = error.span().filter(|span| !span.is_empty() || span.start > 0);
    let place = span.as_ref().and_then(|span| places.at(span));
    let line = span.as_ref().map_or(1, |span| places.line_at(span.start));
    let field = place.as_ref().map_or("", |place| &place.field);
    let value = place.as_ref().map(|place| places.written(place));
    SimError::Parse { path: path.into(), line, expected: in_our_words(field, &said, value) }
}

/// `invalid type: X, expected Y` → `field: Y, found X`, and the like.
fn in_our_words(field: &str, said: &str, value: Option<&str>) -> String {
    let table = field.rsplit_once('.').map_or("", |(table, _)| table);
    for start in ["invalid type: ", "invalid value: ", "invalid length "] {
        if let Some((found, expected)) =
            said.strip_prefix(start).and_then(|rest| rest.rsplit_once(", expected "))
        {
            let expected = match (start, expected) {
                ("invalid value: ", "u32") => {
                    // As a number that can be read and is too large is told.
                    let (least, most) = range(field);
                    &format!("a whole number, {least} to {most}")
                }
                (_, expected) => plain(expected),
            };
            return format!("{field}: {expected}, found {found}");
        }
    }
    for start in ["unknown field ", "unknown variant "] {
        if let Some((found, expected)) =
            said.strip_prefix(start).and_then(|rest| rest.rsplit_once(", expected "))
        {
            let of_table = start == "unknown field ";
            let place = if of_table { table } else { field };
            let place = if place.is_empty() { "in the file" } else { place };
            return format!("{place}: {expected}, found {found}");
        }
    }
    if let Some(missing) = said.strip_prefix("missing field ") {
        // It is told at its table's head, and one of the file itself nowhere.
        let dot = if field.is_empty() { "" } else { "." };
        return format!("{field}{dot}{}, which is missing", missing.trim_matches('`'));
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

/// Of a field that is a whole number, the least and the most that it may be.
fn range(field: &str) -> (u32, u32) {
    match field {
        "node.id" => (0, HIGHEST_NODE),
        "process.threads" => (1, 1_000_000),
        "process.copies" | "process.at_once" => (1, 10_000),
        "process.rounds" | "process.each" | "process.phase.times" | "process.groups" => {
            (1, u32::MAX)
        }
        "cpu.threads_per_core" | "llc.cpus" => (1, u32::MAX),
        _ => (0, u32::MAX),
    }
}

/// Rust's names of types, for people.
fn plain(expected: &str) -> &str {
    match expected {
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        expected if expected.starts_with("struct ") => "a table",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_told_with_what_was_expected() {
        let text = "[cpu]\ncores = 0 # none\nslit = [\n[10], [20,\n30]]\n[[n]]\n";
        let said = |field, at: &[usize], expected: &str| {
            Wrong::new(field, at, expected).of_file("f", text).to_string()
        };
        assert_eq!(
            said("cpu.cores", &[], "1 or more"),
            "f:2: expected cpu.cores: 1 or more, found 0"
        );
        assert_eq!(
            said("cpu.cores", &[], "1, found none"),
            "f:2: expected cpu.cores: 1, found none"
        );
        assert_eq!(said("cpu.slit", &[1, 1], "10"), "f:5: expected cpu.slit: 10, found 30");
        assert_eq!(said("cpu.slit", &[], "2 rows"), "f:3: expected cpu.slit: 2 rows", "too long");
        assert_eq!(said("n.id", &[0], "x"), "f:6: expected n.id: x", "not there");
    }
}
