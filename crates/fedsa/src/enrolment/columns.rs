//! What agents say of their columns, and what that makes of all agents' columns.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorCode, Result, quoted};
use crate::problem::features::RunningMoments;

/// The most categories of a column; one with more is no column of categories.
const MOST_CATEGORIES: usize = 10_000;

/// The most bytes of a name.
const LONGEST_NAME: usize = 1_000;

/// What is known of one column, of one agent or of several, without a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// The name.
    pub name: String,
    /// What it holds.
    pub content: ColumnContent,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ColumnContent {
    /// Numbers.
    Numbers {
        /// The smallest, and the largest one.
        range: (f64, f64),
        /// Their count, mean and spread.
        moments: RunningMoments,
    },
    /// Texts, which are categories.
    Categories {
        /// The number of rows.
        count: u64,
        /// The different texts.
        names: BTreeSet<String>,
    },
}

impl ColumnSummary {
    /// Of numbers.
    ///
    /// # Errors
    /// When there are none, or one is not finite.
    pub fn of_numbers(name: impl Into<String>, numbers: impl IntoIterator<Item = f64>) -> Result<Self> {
        let mut range = (f64::INFINITY, f64::NEG_INFINITY);
        let moments = RunningMoments::of(numbers.into_iter().inspect(|x| range = (range.0.min(*x), range.1.max(*x))));
        Self::new(name, range, moments)
    }

    /// Of numbers with these moments. The range covers them, and may cover others, such as those of next states.
    ///
    /// # Errors
    /// When no numbers have them.
    pub fn new(name: impl Into<String>, range: (f64, f64), moments: RunningMoments) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Numbers { range, moments } }.checked()
    }

    /// Of categories, each of which occurs in one row or more; `count` is the number of rows.
    ///
    /// # Errors
    /// When there are none, or too many.
    pub fn of_categories(name: impl Into<String>, count: u64, names: BTreeSet<String>) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Categories { count, names } }.checked()
    }

    /// The column, of this end's own data.
    fn checked(self) -> Result<Self> {
        self.check().map_err(|e| e.coded(ErrorCode::Data))?;
        Ok(self)
    }

    /// The range of numbers.
    pub fn range(&self) -> Option<(f64, f64)> {
        match self.content {
            ColumnContent::Numbers { range, .. } => Some(range),
            ColumnContent::Categories { .. } => None,
        }
    }

    /// Refuses what no column has.
    pub(super) fn check(&self) -> Result<()> {
        let refused =
            |what: String, accepted: &str| Err(Error::refused_message(format!("column `{}`: {what}", quoted(&self.name)), accepted));
        if is_long(&self.name) {
            return refused(format!("a name of {} bytes", self.name.len()), "names of at most 1,000 bytes");
        }
        match &self.content {
            ColumnContent::Numbers { range: (low, high), moments }
                if !(low.is_finite() && high.is_finite() && moments.are_of(*low, *high)) =>
            {
                refused(format!("numbers from {low} to {high} with {moments:?}"), "one finite number or more, and at most 2^53")
            }
            ColumnContent::Categories { count, .. } if !(1..=1 << 53).contains(count) => {
                refused(format!("{count} rows"), "one row or more, and at most 2^53")
            }
            ColumnContent::Categories { names, .. }
                if !(1..=MOST_CATEGORIES).contains(&names.len()) || names.iter().any(|name| is_long(name)) =>
            {
                refused(format!("{} categories", names.len()), "1 to 10,000 categories of at most 1,000 bytes")
            }
            _ => Ok(()),
        }
    }

    /// Of the rows of both. Columns of other types are refused before ([`difference`]).
    fn join(&mut self, other: &Self) {
        match (&mut self.content, &other.content) {
            (ColumnContent::Numbers { range, moments }, ColumnContent::Numbers { range: others, moments: of_others }) => {
                *range = (range.0.min(others.0), range.1.max(others.1));
                *moments = moments.join(*of_others);
            }
            (ColumnContent::Categories { count, names }, ColumnContent::Categories { count: others, names: of_others }) => {
                *count += others;
                names.extend(of_others.iter().cloned());
            }
            _ => {}
        }
    }

    /// What distinguishes it from others: the name, and the type in words.
    pub(super) fn form(&self) -> (&str, &'static str) {
        let kind = match self.content {
            ColumnContent::Numbers { .. } => "numbers",
            ColumnContent::Categories { .. } => "categories",
        };
        (&self.name, kind)
    }
}

fn is_long(name: &str) -> bool {
    name.len() > LONGEST_NAME
}

/// What distinguishes the columns of two agents, in words; `None` if they have the same names and types in the same order.
pub(super) fn difference(a: &[ColumnSummary], b: &[ColumnSummary]) -> Option<String> {
    if a.len() != b.len() {
        return Some(format!("{} columns in place of {}", b.len(), a.len()));
    }
    let at = a.iter().zip(b).position(|(a, b)| a.form() != b.form())?;
    let said = |one: &ColumnSummary| format!("`{}` of {}", quoted(&one.name), one.form().1);
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
        let ColumnContent::Numbers { range, moments } = all.content else { panic!("{all:?}") };
        let mean = rows.iter().sum::<f64>() / 1000.0;
        let squares: f64 = rows.iter().map(|x| (x - mean).powi(2)).sum();
        assert_eq!((moments.count(), range), (1000, (1e6, 1e6 + 100.0 / 7.0)));
        let (found, deviation) = moments.mean_and_deviation();
        assert!((found - mean).abs() < 1e-9, "{all:?}");
        assert!((deviation - (squares / 1000.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn categories_are_those_of_any_agent() {
        let of = |texts: &[&str]| vec![ColumnSummary::of_categories("c", 5, texts.iter().map(|t| (*t).into()).collect()).unwrap()];
        let (a, b) = (of(&["red", "blue"]), of(&["green", "red"]));
        let all = joined([&a[..], &b[..]].into_iter());
        let ColumnContent::Categories { count, names } = &all[0].content else { panic!("{all:?}") };
        assert_eq!((*count, names.iter().map(String::as_str).collect::<Vec<_>>()), (10, vec!["blue", "green", "red"]));
        let numbers = vec![ColumnSummary::of_numbers("c", [1.0]).unwrap()];
        assert_eq!(difference(&a, &b), None);
        assert_eq!(difference(&a, &numbers).unwrap(), "column 1 is `c` of numbers in place of `c` of categories");
    }

    #[test]
    fn what_no_numbers_have_is_refused() {
        // As postcard reads them from another end.
        let moments = |n: f64, mean: f64, squares: f64| -> RunningMoments {
            postcard::from_bytes(&postcard::to_stdvec(&(n, mean, squares)).unwrap()).unwrap()
        };
        let numbers = |range, moments| ColumnSummary { name: "x".into(), content: ColumnContent::Numbers { range, moments } };
        let good = moments(2.0, 1.5, 0.5);
        assert_eq!(numbers((1.0, 2.0), good), ColumnSummary::of_numbers("x", [1.0, 2.0]).unwrap());
        let bad = [
            numbers((1.0, 2.0), moments(0.0, 1.5, 0.5)),
            numbers((1.0, 2.0), moments(1e18, 1.5, 0.5)),
            numbers((1.0, 2.0), moments(1.5, 1.5, 0.5)),
            numbers((1.0, 2.0), moments(f64::NAN, 1.5, 0.5)),
            numbers((f64::NAN, 2.0), good),
            numbers((1.0, f64::INFINITY), good),
            numbers((1.0, 2.0), moments(2.0, 3.0, 0.5)),
            numbers((1.0, 2.0), moments(2.0, 1.5, -1.0)),
            ColumnSummary { name: "x".repeat(2000), ..numbers((1.0, 2.0), good) },
            ColumnSummary { name: "x".into(), content: ColumnContent::Categories { count: 1, names: BTreeSet::new() } },
            ColumnSummary { name: "x".into(), content: ColumnContent::Categories { count: 0, names: ["a".into()].into() } },
        ];
        assert!(bad.iter().all(|one| one.check().is_err()));
        assert!(ColumnSummary::of_numbers("x", [1.0, f64::NAN]).is_err() && ColumnSummary::of_numbers("x", []).is_err());
    }
}
