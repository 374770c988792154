//! Names of the kernel's functions by address: `/proc/kallsyms`.

use std::path::Path;

use crate::file::{self, ReadError};

const EXPECTED: &str = "'ADDRESS TYPE NAME'";

/// The kernel's functions.
#[derive(Clone, Debug, Default)]
pub struct Symbols(Vec<(u64, String)>);

impl Symbols {
    /// Empty where the kernel hides addresses from us, which it does without CAP_SYSLOG.
    ///
    /// # Errors
    /// The file cannot be read, or is not the kernel's.
    pub fn read(root: &Path) -> Result<Symbols, ReadError> {
        let path = root.join("proc/kallsyms");
        let text = file::text(&path)?;
        parse(&text).map_err(|(line, found)| ReadError::parse(&path, line, EXPECTED, &found))
    }

    /// Whether no function is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The function that has an address in it, as far as beginnings tell.
    #[must_use]
    pub fn name(&self, address: u64) -> Option<&str> {
        let behind = self.0.partition_point(|(begins, _)| *begins <= address);
        Some(self.0[behind.checked_sub(1)?].1.as_str())
    }
}

fn parse(text: &str) -> Result<Symbols, (usize, String)> {
    let mut functions = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = || (index + 1, line.to_string());
        let mut words = line.split_ascii_whitespace();
        let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next())
        else {
            return Err(wrong());
        };
        let address = u64::from_str_radix(address, 16).map_err(|_| wrong())?;
        // Code: of the kernel or of a module, weak or not.
        if address != 0 && matches!(kind, "t" | "T" | "w" | "W") {
            functions.push((address, name.to_string()));
        }
    }
    // Of several names of one address the first stays the first.
    functions.sort_by_key(|(address, _)| *address);
    functions.dedup_by_key(|(address, _)| *address);
    Ok(Symbols(functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_the_function_that_begins_before_it() {
        let text = "ffffffff81000100 T migrate_pages\nffffffff81000080 t rmap_walk\n\
                    ffffffff81000080 t alias\nffffffff81000090 d data\n\
                    ffffffffc0000000 t helper\t[module]\n";
        let symbols = parse(text).unwrap();
        let name = |address| symbols.name(address);
        assert_eq!(name(0xffff_ffff_8100_0080), Some("rmap_walk"));
        assert_eq!(name(0xffff_ffff_8100_00ff), Some("rmap_walk"));
        assert_eq!(name(0xffff_ffff_8100_0100), Some("migrate_pages"));
        assert_eq!(name(0xffff_ffff_c000_0001), Some("helper"));
        assert_eq!(name(0xffff_ffff_8100_007f), None);
    }

    #[test]
    fn hidden_addresses_are_no_names_and_other_text_is_told() {
        let hidden = parse("0000000000000000 T migrate_pages\n").unwrap();
        assert!(hidden.is_empty() && hidden.name(1).is_none());
        assert_eq!(parse("0 T a\nx y z\n").unwrap_err(), (2, "x y z".to_string()));
        assert_eq!(parse("12\n").unwrap_err().0, 1);
    }
}
