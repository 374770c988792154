//! Rows of words: as a table for people and as CSV.
//!
//! ```
//! use numaherd_report::Listing;
//! let mut listing = Listing::new(["pid", "local"]);
//! listing.row(["7", "50 %"]);
//! assert_eq!(listing.table(), "| pid | local |\n|-----|-------|\n| 7   | 50 %  |\n");
//! assert_eq!(listing.csv().unwrap(), "pid,local\n7,50 %\n");
//! ```

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

/// Rows below a head.
#[derive(Clone, Debug)]
pub struct Listing {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Listing {
    /// Without rows so far.
    #[must_use]
    pub fn new<const N: usize>(head: [&str; N]) -> Listing {
        Listing { head: head.into_iter().map(String::from).collect(), rows: Vec::new() }
    }

    /// Adds a row; one cell for each word of the head.
    pub fn row<const N: usize>(&mut self, cells: [impl Into<String>; N]) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds a column before the one at `index`, or at the end; one cell for each row.
    pub fn column(&mut self, index: usize, head: &str, cells: impl IntoIterator<Item = String>) {
        self.head.insert(index.min(self.head.len()), head.into());
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.insert(index.min(row.len()), cell);
        }
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As a table, all columns aligned to the left.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN);
        table.set_header(&self.head);
        for row in &self.rows {
            table.add_row(row);
        }
        format!("{table}\n")
    }

    /// As CSV, whose names are words joined by `_`.
    ///
    /// # Errors
    /// A row with more or fewer cells than the head.
    pub fn csv(&self) -> Result<String, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(self.head.iter().map(|name| name.replace(' ', "_")))?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        let bytes = writer.into_inner().map_err(|error| error.into_error())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_with_a_comma_is_quoted_and_a_short_row_is_refused() {
        let mut listing = Listing::new(["pid", "told"]);
        assert!(listing.is_empty());
        listing.row(["7", "here, and \"there\""]);
        assert_eq!(listing.csv().unwrap(), "pid,told\n7,\"here, and \"\"there\"\"\"\n");
        listing.row(["8"]);
        assert!(listing.csv().is_err());
    }

    #[test]
    fn names_of_columns_are_one_word_in_csv() {
        let mut listing = Listing::new(["run", "changed since"]);
        listing.row(["9-8", "by hand"]);
        assert_eq!(listing.csv().unwrap(), "run,changed_since\n9-8,by hand\n");
        assert!(listing.table().starts_with("| run | changed since |"));
    }

    #[test]
    fn a_column_comes_before_the_one_it_was_told_or_at_the_end() {
        let mut listing = Listing::new(["b"]);
        listing.row(["2"]);
        listing.column(9, "c", ["3".to_string()]);
        listing.column(0, "a", ["1".to_string()]);
        assert_eq!(listing.csv().unwrap(), "a,b,c\n1,2,3\n");
    }
}
