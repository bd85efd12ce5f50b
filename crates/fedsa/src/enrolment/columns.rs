//! What agents say of their columns, and what that makes of all agents' columns.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorCode, Result, quoted};

/// The most categories of a column; one with more is no column of categories.
const MOST_CATEGORIES: usize = 10_000;

/// The most bytes of a name.
const LONGEST_NAME: usize = 1_000;

/// What is known of the numbers of one column, of one agent or of several: enough for ranges, means and standard deviations of all rows,
/// without a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// The name.
    pub name: String,
    /// The number of numbers, n.
    pub count: u64,
    /// The smallest number.
    pub min: f64,
    /// The largest number.
    pub max: f64,
    /// The mean of all n numbers.
    pub mean: f64,
    /// The sum of squared distances from the mean.
    pub squares: f64,
    /// The different texts of a column of categories; `None` for numbers.
    pub categories: Option<BTreeSet<String>>,
}

impl ColumnSummary {
    /// Of numbers.
    ///
    /// # Errors
    /// When there are none, or one is not finite.
    pub fn of_numbers(name: impl Into<String>, numbers: impl IntoIterator<Item = f64>) -> Result<Self> {
        let name = name.into();
        let mut all = Self { name, count: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, mean: 0.0, squares: 0.0, categories: None };
        for x in numbers {
            all.count += 1;
            (all.min, all.max) = (all.min.min(x), all.max.max(x));
            let away = x - all.mean;
            all.mean += away / all.count as f64;
            all.squares += away * (x - all.mean);
        }
        all.check().map_err(|e| e.coded(ErrorCode::Data))?;
        Ok(all)
    }

    /// The same with a range that covers this one too, of which there are other numbers, such as those of next states.
    #[must_use]
    pub fn covering(self, low: f64, high: f64) -> Self {
        Self { min: self.min.min(low), max: self.max.max(high), ..self }
    }

    /// Of categories, each of which occurs in one row or more; `count` is the number of rows.
    ///
    /// # Errors
    /// When there are none, or too many.
    pub fn of_categories(name: impl Into<String>, count: u64, categories: BTreeSet<String>) -> Result<Self> {
        let all = Self { name: name.into(), count, min: 0.0, max: 0.0, mean: 0.0, squares: 0.0, categories: Some(categories) };
        all.check().map_err(|e| e.coded(ErrorCode::Data))?;
        Ok(all)
    }

    /// The standard deviation over all n numbers.
    pub fn deviation(&self) -> f64 {
        (self.squares / self.count as f64).sqrt()
    }

    /// Refuses what no numbers have.
    pub(super) fn check(&self) -> Result<()> {
        let Self { name, count, min, max, mean, squares, categories } = self;
        let refused = |what: String, accepted: &str| Err(Error::refused_message(format!("column `{}`: {what}", quoted(name)), accepted));
        if name.len() > LONGEST_NAME {
            return refused(format!("a name of {} bytes", name.len()), "names of at most 1,000 bytes");
        }
        if !(1..=1 << 53).contains(count) {
            return refused(format!("{count} rows"), "one row or more, at most 2^53");
        }
        if !(min.is_finite() && max.is_finite() && squares.is_finite() && min <= mean && mean <= max && *squares >= 0.0) {
            return refused(format!("minimum {min}, mean {mean}, maximum {max}, squares {squares}"), "those of finite numbers");
        }
        match categories {
            Some(all) if all.is_empty() || all.len() > MOST_CATEGORIES || all.iter().any(|one| one.len() > LONGEST_NAME) => {
                refused(format!("{} categories", all.len()), "1 to 10,000 categories of at most 1,000 bytes")
            }
            _ => Ok(()),
        }
    }

    /// Of the rows of both.
    fn join(&mut self, other: &Self) {
        let (n, m) = (self.count as f64, other.count as f64);
        let away = other.mean - self.mean;
        (self.min, self.max) = (self.min.min(other.min), self.max.max(other.max));
        // Rounding must not take the mean out of the range.
        self.mean = (self.mean + away * (m / (n + m))).clamp(self.min, self.max);
        self.squares += other.squares + away * away * (n * m / (n + m));
        self.count += other.count;
        if let (Some(all), Some(others)) = (&mut self.categories, &other.categories) {
            all.extend(others.iter().cloned());
        }
    }
}

/// What distinguishes the columns of two agents, in words; `None` if they have the same names and types in the same order.
pub(super) fn difference(a: &[ColumnSummary], b: &[ColumnSummary]) -> Option<String> {
    if a.len() != b.len() {
        return Some(format!("{} columns in place of {}", b.len(), a.len()));
    }
    let at = a.iter().zip(b).position(|(a, b)| a.name != b.name || a.categories.is_some() != b.categories.is_some())?;
    let kind = |one: &ColumnSummary| if one.categories.is_some() { "categories" } else { "numbers" };
    let said = |one: &ColumnSummary| format!("`{}` of {}", quoted(&one.name), kind(one));
    Some(format!("column {} is {} in place of {}", at + 1, said(&b[at]), said(&a[at])))
}

/// The columns of all agents, in the agents' order.
pub(super) fn joined<'a>(mut all: impl Iterator<Item = &'a [ColumnSummary]>) -> Vec<ColumnSummary> {
    let mut columns = all.next().unwrap_or_default().to_vec();
    for agent in all {
        columns.iter_mut().zip(agent).for_each(|(one, other)| one.join(other));
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_all_are_those_of_all_rows() {
        let rows: Vec<f64> = (0..1000).map(|i| 1e6 + f64::from(i * 37 % 101) / 7.0).collect();
        let parts = [&rows[..1], &rows[1..500], &rows[500..]];
        let each: Vec<Vec<ColumnSummary>> =
            parts.iter().map(|part| vec![ColumnSummary::of_numbers("x", part.iter().copied()).unwrap()]).collect();
        let all = &joined(each.iter().map(Vec::as_slice))[0];
        let mean = rows.iter().sum::<f64>() / 1000.0;
        let squares: f64 = rows.iter().map(|x| (x - mean).powi(2)).sum();
        assert_eq!((all.count, all.min, all.max), (1000, 1e6, 1e6 + 100.0 / 7.0));
        assert!((all.mean - mean).abs() < 1e-9 && (all.squares / squares - 1.0).abs() < 1e-9, "{all:?}");
        assert!((all.deviation() - (squares / 1000.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn categories_are_those_of_any_agent() {
        let of = |texts: &[&str]| vec![ColumnSummary::of_categories("c", 5, texts.iter().map(|t| (*t).into()).collect()).unwrap()];
        let (a, b) = (of(&["red", "blue"]), of(&["green", "red"]));
        let all = joined([&a[..], &b[..]].into_iter());
        assert_eq!(all[0].categories.as_ref().unwrap().iter().collect::<Vec<_>>(), ["blue", "green", "red"]);
        assert_eq!(all[0].count, 10);
        let numbers = vec![ColumnSummary::of_numbers("c", [1.0]).unwrap()];
        assert_eq!(difference(&a, &b), None);
        assert_eq!(difference(&a, &numbers).unwrap(), "column 1 is `c` of numbers in place of `c` of categories");
    }

    #[test]
    fn what_no_numbers_have_is_refused() {
        let good = ColumnSummary::of_numbers("x", [1.0, 2.0]).unwrap();
        let bad = [
            ColumnSummary { count: 0, ..good.clone() },
            ColumnSummary { count: 1 << 60, ..good.clone() },
            ColumnSummary { min: f64::NAN, ..good.clone() },
            ColumnSummary { max: f64::INFINITY, ..good.clone() },
            ColumnSummary { mean: 3.0, ..good.clone() },
            ColumnSummary { squares: -1.0, ..good.clone() },
            ColumnSummary { name: "x".repeat(2000), ..good.clone() },
            ColumnSummary { categories: Some(BTreeSet::new()), ..good.clone() },
        ];
        assert!(good.check().is_ok() && bad.iter().all(|one| one.check().is_err()));
        assert!(ColumnSummary::of_numbers("x", [1.0, f64::NAN]).is_err() && ColumnSummary::of_numbers("x", []).is_err());
    }
}
