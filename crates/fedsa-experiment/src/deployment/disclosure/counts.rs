//! Counts of values: whether few rows differ from all others in a column.

use std::collections::BTreeMap;

use fedsa_problems::rows::dataset::{Dataset, Labels};
use fedsa_problems::rows::preparation::texts::level_name;

/// For each column, the values that almost all rows may have. A value that all but k - 1 of the rows have occurs in the first k of them.
pub(super) struct Commonest {
    /// The least number k of rows that may differ.
    least: u64,
    rows: u64,
    columns: Vec<Column>,
}

#[derive(Clone, Default)]
struct Column {
    /// The number of numbers other than 0.
    nonzero: u64,
    /// Such numbers of the first rows, with the number of rows that have them.
    values: Vec<(f64, u64)>,
    is_ignored: bool,
}

impl Commonest {
    /// No rows yet of `width` columns. With `least` of 0 nothing is counted.
    pub fn new(width: usize, least: u64) -> Self {
        Self { least, rows: 0, columns: if least == 0 { Vec::new() } else { vec![Column::default(); width] } }
    }

    /// Counts a row: its columns and numbers, without which a column is 0.
    pub fn see(&mut self, row: impl IntoIterator<Item = (usize, f64)>) {
        if self.least == 0 {
            return;
        }
        let is_first = self.rows < 2 * self.least;
        self.rows += 1;
        for (j, x) in row.into_iter().filter(|(_, x)| *x != 0.0) {
            let column = &mut self.columns[j];
            column.nonzero += 1;
            match column.values.iter_mut().find(|(value, _)| *value == x) {
                Some((_, rows)) => *rows += 1,
                None if is_first => column.values.push((x, 1)),
                None => {}
            }
        }
    }

    /// Leaves columns out of the result.
    pub fn ignore(&mut self, is_ignored: impl Fn(usize) -> bool) {
        self.columns.iter_mut().enumerate().for_each(|(j, column)| column.is_ignored = is_ignored(j));
    }

    /// The first column in which at least one row, and fewer than `least`, differ from a value of more than half of the rows, or have the
    /// rarer of two values.
    pub fn few(&self) -> Option<usize> {
        self.columns.iter().position(|column| {
            let zeros = (column.nonzero < self.rows).then_some(self.rows - column.nonzero);
            let hits = || column.values.iter().map(|(_, rows)| *rows).chain(zeros);
            // Of few rows all values are known.
            let is_binary = self.rows <= 2 * self.least && hits().count() == 2;
            let is_few = |hits: u64| (1..self.least).contains(&(self.rows - hits)) && (2 * hits > self.rows || is_binary);
            !column.is_ignored && hits().any(is_few)
        })
    }
}

/// The fitted rows of data sets.
pub(super) struct Fitted<'a> {
    sets: &'a [Dataset],
    /// Whether each row of all sets is fitted.
    is_fitted: Vec<bool>,
}

impl<'a> Fitted<'a> {
    /// The rows `fitted` among those of all sets.
    pub fn new(sets: &'a [Dataset], fitted: &[usize]) -> Self {
        let mut is_fitted = vec![false; sets.iter().map(|set| set.rows.len()).sum()];
        fitted.iter().for_each(|row| is_fitted[*row] = true);
        Self { sets, is_fitted }
    }

    /// Calls `see` with the set and the position of each row.
    pub fn each(&self, see: &mut dyn FnMut(&'a Dataset, usize)) {
        let rows = self.sets.iter().flat_map(|set| (0..set.rows.len()).map(move |i| (set, i)));
        rows.zip(&self.is_fitted).filter(|(_, is_fitted)| **is_fitted).for_each(|((set, i), _)| see(set, i));
    }

    /// Calls `see` with the target of each row that is a number.
    pub fn numbers(&self, see: &mut dyn FnMut(f64)) {
        self.each(&mut |set, i| {
            if let Some(Labels::Numbers(numbers)) = &set.targets {
                see(numbers[i]);
            }
        });
    }

    /// Calls `see` with the set and the number of each row in a column.
    fn values(&self, column: &str, see: &mut dyn FnMut(&'a Dataset, f64)) {
        self.each(&mut |set, i| {
            let Some(at) = set.columns.position(column) else { return };
            see(set, set.rows.row(i).find(|(j, _)| *j == at).map_or(0.0, |(_, x)| x));
        });
    }

    /// The number of rows that equal weights would need for the same variance as those of a column, `(sum w)^2 / sum w^2` (Kish 1965).
    pub fn effective(&self, weights: &str) -> f64 {
        let (mut largest, mut sum, mut squares) = (0.0f64, 0.0, 0.0);
        self.values(weights, &mut |_, w| largest = largest.max(w));
        self.values(weights, &mut |_, w| {
            sum += w / largest;
            squares += (w / largest).powi(2);
        });
        if squares > 0.0 { sum * sum / squares } else { 0.0 }
    }

    /// The number of rows of each label.
    pub fn of_labels(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        self.each(&mut |set, i| {
            let label = match &set.targets {
                Some(Labels::Numbers(numbers)) => (numbers[i] + 0.0).to_string(),
                Some(Labels::Names { names, of }) => names[of[i] as usize].clone(),
                None => return,
            };
            *counts.entry(label).or_default() += 1;
        });
        counts
    }

    /// The number of rows of each level of a column of categories.
    pub fn of_category(&self, column: &str) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        self.values(column, &mut |set, x| {
            let x = x + 0.0;
            let text = set.texts.iter().find(|text| text.column == column);
            *counts.entry(text.map_or_else(|| x.to_string(), |text| level_name(&text.names[x as usize]))).or_default() += 1;
        });
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rule in words, by sorting: some value is not that of 1 to k - 1 rows, and has more than half of all rows, or is one of two.
    fn is_few(column: &[f64], least: u64) -> bool {
        let mut counts: Vec<(f64, u64)> = Vec::new();
        for x in column {
            match counts.iter_mut().find(|(value, _)| value == x) {
                Some((_, rows)) => *rows += 1,
                None => counts.push((*x, 1)),
            }
        }
        let n = column.len() as u64;
        counts.iter().any(|(_, rows)| (1..least).contains(&(n - rows)) && (2 * rows > n || counts.len() == 2))
    }

    fn found(column: &[f64], least: u64) -> bool {
        let (mut dense, mut sparse) = (Commonest::new(2, least), Commonest::new(2, least));
        for x in column {
            dense.see([(0, 7.0), (1, *x)]);
            sparse.see([(0, 7.0), (1, *x)].into_iter().filter(|(_, x)| *x != 0.0));
        }
        assert_eq!(dense.few(), sparse.few());
        assert_ne!(dense.few(), Some(0), "a constant column tells nothing");
        dense.few() == Some(1)
    }

    /// All columns of up to seven rows and three values, of which one may be 0.
    #[test]
    fn small_columns_are_judged_as_by_sorting() {
        for (least, n) in (1..=4).flat_map(|least| (1..=7u32).map(move |n| (least, n))) {
            for (values, code) in
                [[0.0, 1.0, -2.5], [3.0, 1.0, 2.0]].iter().flat_map(|values| (0..3usize.pow(n)).map(move |code| (values, code)))
            {
                let column: Vec<f64> = (0..n).map(|i| values[code / 3usize.pow(i) % 3]).collect();
                assert_eq!(found(&column, least), is_few(&column, least), "{column:?} {least}");
            }
        }
    }

    #[test]
    fn few_rows_among_many_are_found_wherever_they_are() {
        for few in 0..=4 {
            for (common, rare) in [(0.0, 1.0), (5.0, 0.0), (5.0, 6.0)] {
                for first in [0, 1, 50, 100 - few] {
                    let mut column = vec![common; 100];
                    column[first..first + few].iter_mut().enumerate().for_each(|(i, x)| *x = if i % 2 == 0 { rare } else { rare - 9.0 });
                    assert_eq!(found(&column, 3), (1..3).contains(&few), "{few} rows from {first} are {rare} or so, others {common}");
                }
            }
        }
        // Numbers that all differ have no commonest value.
        let all: Vec<f64> = (0..100).map(f64::from).collect();
        assert!(!found(&all, 3) && !found(&all[..3], 3) && found(&[0.0, 0.0, 1.0, 1.0], 3));
    }

    #[test]
    fn ignored_columns_and_no_rule_find_nothing() {
        let mut counted = Commonest::new(2, 3);
        (0..10).for_each(|i| counted.see([(1, if i == 4 { 1.0 } else { 2.0 })]));
        assert_eq!(counted.few(), Some(1));
        counted.ignore(|j| j == 1);
        assert_eq!(counted.few(), None);
        let mut none = Commonest::new(1, 0);
        none.see([(0, 1.0)]);
        assert_eq!(none.few(), None);
    }
}
