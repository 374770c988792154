//! So many of something, in words.

use std::fmt::Display;

/// A count with its noun, in the plural but for one of it: `1 thread`, `3 processes`, `0 affinities`.
#[must_use]
pub fn counted(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    if count == "1" {
        return format!("{count} {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{count} {stem}ies"),
        None if noun.ends_with("ss") => format!("{count} {noun}es"),
        None => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pages;

    #[test]
    fn one_is_no_plural() {
        assert_eq!(counted(1, "thread"), "1 thread");
        assert_eq!([0, 2, 11].map(|n| counted(n, "run")), ["0 runs", "2 runs", "11 runs"]);
        assert_eq!(counted(Pages(1), "page"), "1 page");
        let irregular = [counted(2, "process"), counted(3, "affinity"), counted(1, "affinity")];
        assert_eq!(irregular, ["2 processes", "3 affinities", "1 affinity"]);
    }
}
