//! What machines and workloads are called that are read from files.

use std::path::Path;

/// A file's name without its folder and ending, as it can be printed.
///
/// ```
/// assert_eq!(numaherd_model::stem("machines/two\nlines.toml"), "two\\nlines");
/// ```
#[must_use]
pub fn stem(path: &str) -> String {
    let stem = Path::new(path).file_stem();
    printable(&stem.map_or_else(|| path.into(), |stem| stem.to_string_lossy()))
}

/// A name in which what would break a line or move the cursor is written as Rust writes it.
#[must_use]
pub fn printable(name: &str) -> String {
    let mut told = String::with_capacity(name.len());
    for character in name.chars() {
        match character.is_control() {
            true => told.extend(character.escape_default()),
            false => told.push(character),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(printable("a\nb\x1b[2J\t\u{7f}"), "a\\nb\\u{1b}[2J\\t\\u{7f}");
        assert_eq!(printable("Gerät 2 \\n"), "Gerät 2 \\n");
        assert_eq!((stem("/"), stem("a/b.c.toml")), ("/".into(), "b.c".into()));
    }
}
