//! numastat's table: a column of names, columns of figures aligned to the right, cut into
//! sections where the screen ends.

/// Width of a column, the blank before it included.
const COLUMN: usize = 16;

/// A table of figures.
pub struct Grid {
    head: Vec<String>,
    corner: String,
    /// A line of dashes below the head.
    ruled: bool,
    decimals: usize,
    rows: Vec<(String, Vec<Option<f64>>)>,
    total: Option<Vec<Option<f64>>>,
    widths: Vec<usize>,
}

impl Grid {
    /// A table with these columns, behind that of the names.
    pub fn new(head: Vec<String>, decimals: usize, ruled: bool) -> Grid {
        let widths = vec![COLUMN; head.len() + 1];
        Grid { head, corner: String::new(), ruled, decimals, rows: Vec::new(), total: None, widths }
    }

    /// The head of the column of names.
    pub fn corner(&mut self, name: &str) {
        self.corner = name.to_string();
    }

    /// Adds a row; a figure that is not known has no say.
    pub fn row(&mut self, name: &str, values: Vec<Option<f64>>) {
        self.rows.push((name.to_string(), values));
    }

    /// The last row, below a line.
    pub fn total(&mut self, values: Vec<Option<f64>>) {
        self.total = Some(values);
    }

    /// Makes columns as narrow as what stands in them, at least 4 wide, and a blank before it.
    pub fn narrow(&mut self) {
        let longest = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0).max(4);
        let named = self.rows.iter().map(|(name, _)| name.len());
        let total = self.total.as_ref().map(|_| "Total".len());
        let names = longest(&mut named.chain(total).chain([self.corner.len()]));
        let mut widths = vec![names];
        for at in 0..self.head.len() {
            let all = self.rows.iter().map(|(_, values)| values).chain(&self.total);
            let cells = all.map(|values| self.figure(values[at]).len());
            widths.push(longest(&mut cells.chain([self.head[at].len()])));
        }
        self.widths = widths.into_iter().map(|width| (width + 1).min(COLUMN)).collect();
    }

    /// Gives names more room, up to 24, so that those of processes are not cut.
    pub fn widen_names(&mut self) {
        let longest = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        self.widths[0] = (longest.max(COLUMN) + 1).min(24);
    }

    /// Rows with the largest figure in a column first.
    pub fn sort(&mut self, column: usize) {
        let key = |values: &[Option<f64>]| values.get(column).copied().flatten().unwrap_or(0.0);
        self.rows.sort_by(|(_, a), (_, b)| key(b).total_cmp(&key(a)));
    }

    fn figure(&self, value: Option<f64>) -> String {
        value.map_or(String::new(), |value| format!("{value:.*}", self.decimals))
    }

    /// The table; rows without any figure are left out, with `skip_zeros` those of zeros too.
    pub fn text(&self, screen: usize, skip_zeros: bool) -> String {
        let seen = |value: &Option<f64>| value.is_some_and(|v| !skip_zeros || v != 0.0);
        let rows: Vec<_> = self.rows.iter().filter(|(_, values)| values.iter().any(seen)).collect();
        if self.rows.iter().all(|(_, values)| values.iter().all(Option::is_none)) {
            return "Table has no data.\n".to_string();
        }
        if rows.is_empty() && self.total.is_none() {
            return "Table has no non-zero data.\n".to_string();
        }
        let columns: Vec<usize> = (0..self.head.len())
            .filter(|&at| rows.iter().any(|(_, values)| seen(&values[at])))
            .collect();
        let mut text = String::new();
        let mut left = columns.as_slice();
        while !left.is_empty() {
            let count = self.fitting(left, screen);
            if !text.is_empty() {
                text.push('\n');
            }
            self.section(&mut text, &rows, &left[..count]);
            left = &left[count..];
        }
        text
    }

    /// How many columns fit beside the names; at least one.
    fn fitting(&self, columns: &[usize], screen: usize) -> usize {
        let mut used = self.widths[0];
        let fits = columns.iter().take_while(|&&at| {
            used += self.widths[at + 1];
            used <= screen
        });
        fits.count().max(1)
    }

    fn section(&self, text: &mut String, rows: &[&(String, Vec<Option<f64>>)], columns: &[usize]) {
        let mut line = |name: &str, cell: &dyn Fn(usize) -> String| {
            let width = self.widths[0];
            *text += &format!("{name:<width$.width$}");
            for &at in columns {
                *text += &format!("{:>1$.1$}", cell(at), self.widths[at + 1]);
            }
            text.push('\n');
        };
        let dashes = |width: usize| "-".repeat(width - 1);
        line(&self.corner, &|at| self.head[at].clone());
        if self.ruled {
            let below = if self.corner.is_empty() { String::new() } else { dashes(self.widths[0]) };
            line(&below, &|at| dashes(self.widths[at + 1]));
        }
        for (name, values) in rows {
            line(name, &|at| self.figure(values[at]));
        }
        if let Some(total) = &self.total {
            line(&dashes(self.widths[0]), &|at| dashes(self.widths[at + 1]));
            line("Total", &|at| self.figure(total[at]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(vec!["Node 0".into(), "Node 1".into()], 2, true);
        grid.row("Huge", vec![Some(0.0), Some(0.0)]);
        grid.row("Heap", vec![Some(1.5), Some(0.0)]);
        grid.row("Gone", vec![None, None]);
        grid
    }

    #[test]
    fn columns_are_sixteen_wide_or_as_narrow_as_they_can_be() {
        let wide = grid().text(80, false);
        assert_eq!(
            wide.lines().next().unwrap(),
            "                          Node 0          Node 1"
        );
        assert_eq!(
            wide.lines().nth(1).unwrap(),
            "                 --------------- ---------------"
        );
        assert_eq!(wide.lines().count(), 4, "{wide}");
        let mut narrow = grid();
        narrow.narrow();
        assert_eq!(narrow.text(80, false).lines().next().unwrap(), "      Node 0 Node 1");
        assert_eq!(narrow.text(80, true).lines().last().unwrap(), "Heap    1.50");
    }

    #[test]
    fn sections_are_cut_where_the_screen_ends() {
        // 16 + 16 fit into 32, 48 do not
        let cut = grid().text(32, false);
        assert_eq!(cut.lines().filter(|line| line.is_empty()).count(), 1, "{cut}");
        assert_eq!(cut.lines().count(), 9, "{cut}");
    }

    #[test]
    fn rows_are_sorted_and_nothing_is_said_to_be_nothing() {
        let mut sorted = grid();
        sorted.sort(0);
        assert!(sorted.text(80, false).lines().nth(2).unwrap().starts_with("Heap"));
        let mut empty = Grid::new(vec!["Node 0".into()], 2, true);
        empty.row("Huge", vec![Some(0.0)]);
        assert_eq!(empty.text(80, true), "Table has no non-zero data.\n");
    }
}
