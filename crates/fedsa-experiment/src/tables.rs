//! Tables of a report: cells are values, and columns determine their form.

use crate::numbers;

/// A table of a report.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SummaryTable {
    /// Its title.
    pub title: String,
    /// The columns.
    pub columns: Vec<SummaryColumn>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<SummaryCell>>,
    /// Explanations.
    pub notes: Vec<String>,
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SummaryColumn {
    /// Its head, with the unit if there is one.
    pub head: &'static str,
    /// The form of its numbers.
    pub shown: Shown,
    /// Whether its cells are left-aligned; otherwise they are right-aligned.
    pub is_left: bool,
}

/// The form of the numbers in a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As whole numbers, in groups of three digits.
    Whole,
    /// With at most this many significant digits.
    Digits(usize),
    /// With this many digits after the point.
    Decimals(usize),
    /// With about three significant digits.
    Short,
    /// With about three significant digits; probabilities within rounding of 0 are bounds.
    Probability,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum SummaryCell {
    /// Unknown.
    Missing,
    /// A text.
    Text(String),
    /// A number.
    Number(f64),
    /// A number with its standard error, if known.
    Estimate(f64, Option<f64>),
}

impl From<f64> for SummaryCell {
    fn from(x: f64) -> Self {
        Self::Number(x)
    }
}

impl From<Option<f64>> for SummaryCell {
    fn from(x: Option<f64>) -> Self {
        x.map_or(Self::Missing, Self::Number)
    }
}

impl From<&str> for SummaryCell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl SummaryColumn {
    /// A right-aligned column.
    pub const fn right(head: &'static str, shown: Shown) -> Self {
        Self { head, shown, is_left: false }
    }

    /// A left-aligned column.
    pub const fn left(head: &'static str, shown: Shown) -> Self {
        Self { head, shown, is_left: true }
    }

    /// The text of a cell.
    fn text(&self, cell: &SummaryCell) -> String {
        let number = |x: f64| match self.shown {
            Shown::Whole => numbers::thousands(x),
            Shown::Digits(most) => numbers::digits(x, most),
            Shown::Decimals(count) => format!("{x:.count$}"),
            Shown::Short => numbers::number(x),
            Shown::Probability => numbers::probability(x),
        };
        match cell {
            SummaryCell::Missing => "-".into(),
            SummaryCell::Text(text) => text.clone(),
            SummaryCell::Number(x) | SummaryCell::Estimate(x, None) => number(*x),
            SummaryCell::Estimate(x, Some(se)) => format!("{} ({})", number(*x), number(*se)),
        }
    }
}

impl SummaryTable {
    /// A table without rows.
    pub fn new(title: impl Into<String>, columns: Vec<SummaryColumn>) -> Self {
        Self { title: title.into(), columns, rows: Vec::new(), notes: Vec::new() }
    }

    /// As lines of text: the heads, followed by the rows, in columns.
    pub fn lines(&self) -> Vec<String> {
        let heads = self.columns.iter().map(|column| column.head.to_string()).collect();
        let row = |cells: &Vec<SummaryCell>| self.columns.iter().zip(cells).map(|(column, cell)| column.text(cell)).collect();
        let rows: Vec<Vec<String>> = [heads].into_iter().chain(self.rows.iter().map(row)).collect();
        let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |row: &Vec<String>| {
            let padded = row.iter().zip(&widths).zip(&self.columns).map(|((cell, width), column)| match column.is_left {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            });
            padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
        };
        rows.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_stand_below_each_other_and_show_what_their_columns_say() {
        let columns = vec![
            SummaryColumn::left("method", Shown::Short),
            SummaryColumn::right("rounds", Shown::Whole),
            SummaryColumn::right("MB", Shown::Decimals(2)),
            SummaryColumn::left("error", Shown::Short),
        ];
        let mut table = SummaryTable::new("costs", columns);
        table.rows.push(vec!["giant".into(), 12_345.0.into(), 0.5.into(), SummaryCell::Estimate(0.25, Some(0.5))]);
        table.rows.push(vec!["a".into(), 7.0.into(), None.into(), SummaryCell::Missing]);
        assert_eq!(table.lines(), ["method  rounds    MB  error", "giant   12,345  0.50  0.25 (0.5)", "a            7     -  -"]);
    }
}
