//! Summaries of agents' columns, and of all agents' columns together.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::columns::MAX_CLASSES;
use crate::columns::RunningMoments;
use crate::columns::{Coding, MAX_LEVELS, coding};
use crate::error::{Error, ErrorCode, Result, quoted};

/// The largest length of a name, in bytes.
const LONGEST_NAME: usize = 1_000;

/// The summary of a column of one or several agents, without rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// The name.
    pub name: String,
    /// Its content.
    pub content: ColumnContent,
}

/// The content of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ColumnContent {
    /// Numbers.
    Numbers {
        /// The smallest and the largest number.
        range: (f64, f64),
        /// Their count, mean and spread.
        moments: RunningMoments,
    },
    /// Categories, which become features.
    Categories(DistinctValues),
    /// Labels of classes.
    Labels(DistinctValues),
    /// The columns 1, 2, .. of rows that end with their last number that is not 0.
    Counted(CountedColumns),
    /// Count, mean and spread of numbers, without their range. The count may be a sum of weights.
    Moments(RunningMoments),
}

impl ColumnContent {
    /// The largest number of distinct categories, or labels.
    fn most_values(&self) -> usize {
        if matches!(self, Self::Labels(_)) { MAX_CLASSES } else { MAX_LEVELS }
    }

    /// The error about too many values of a column.
    fn refused_values(&self, name: &str, n: usize) -> Error {
        let (what, accepted) = match self {
            Self::Labels(_) => ("labels", "1 to 10,000 labels of at most 1,000 bytes, all numbers or all names"),
            _ => ("categories", "1 to 1,000 categories of at most 1,000 bytes, all numbers or all texts"),
        };
        Error::refused_message(format!("column `{}`: {n} {what}", quoted(name)), accepted)
    }
}

/// The unnamed columns of sparse rows; an agent's own rows may lack the last ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CountedColumns {
    /// The number of rows.
    pub rows: u64,
    /// The last column of any row, from 1.
    pub last: u32,
    /// The number of stored numbers.
    pub stored: u64,
}

impl CountedColumns {
    /// A summary of `rows` rows with this last column and `stored` stored numbers.
    pub fn new(rows: u64, last: u32, stored: u64) -> Self {
        Self { rows, last, stored }
    }

    fn is_possible(&self) -> bool {
        let cells = u128::from(self.rows) * u128::from(self.last);
        (1..=1 << 53).contains(&self.rows) && u128::from(self.stored) <= cells
    }
}

/// The distinct values of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DistinctValues {
    /// The values as texts, with the number of rows of each.
    #[serde(deserialize_with = "few_names")]
    pub rows: BTreeMap<String, u64>,
    /// Whether they are numbers, for all agents.
    pub are_numbers: bool,
}

impl DistinctValues {
    /// Values by their number of rows.
    pub fn new(rows: BTreeMap<String, u64>, are_numbers: bool) -> Self {
        Self { rows, are_numbers }
    }

    /// The number of rows, saturating.
    pub fn count(&self) -> u64 {
        self.rows.values().fold(0, |sum, rows| sum.saturating_add(*rows))
    }

    /// The sorted values: numbers by size, texts alphabetically.
    pub fn sorted(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.rows.keys().map(String::as_str).collect();
        if self.are_numbers {
            let number = |name: &str| name.parse::<f64>().unwrap_or(f64::NAN);
            names.sort_by(|a, b| number(a).total_cmp(&number(b)));
        }
        names
    }

    /// Whether there are rows and values, not too many, of the declared type.
    fn are_possible(&self) -> bool {
        // Each number has only one text, so none occurs twice.
        let is_number = |name: &String| name.parse().is_ok_and(|x: f64| x.is_finite() && (x + 0.0).to_string() == *name);
        let is_one = |(name, rows): (&String, &u64)| *rows > 0 && !is_long(name) && (!self.are_numbers || is_number(name));
        !self.rows.is_empty() && self.rows.iter().all(is_one)
    }

    fn join(&mut self, other: &Self) {
        self.are_numbers &= other.are_numbers;
        other.rows.iter().for_each(|(name, rows)| *self.rows.entry(name.clone()).or_default() += rows);
    }
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

    /// A summary of numbers with these moments. The range covers them, and possibly others, such as next states.
    ///
    /// # Errors
    /// When no numbers can have these moments.
    pub fn new(name: impl Into<String>, range: (f64, f64), moments: RunningMoments) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Numbers { range, moments } }.checked()
    }

    /// Of categories.
    ///
    /// # Errors
    /// When there are none, or more than 1,000.
    pub fn of_categories(name: impl Into<String>, values: DistinctValues) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Categories(values) }.checked()
    }

    /// Of labels of classes.
    ///
    /// # Errors
    /// When there are none, or more than 10,000.
    pub fn of_labels(name: impl Into<String>, values: DistinctValues) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Labels(values) }.checked()
    }

    /// The moments of numbers.
    ///
    /// # Errors
    /// When there are no numbers, or their squares are not finite.
    pub fn of_moments(name: impl Into<String>, moments: RunningMoments) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Moments(moments) }.checked()
    }

    /// The moments of numbers without a range.
    pub fn moments(&self) -> Option<RunningMoments> {
        if let ColumnContent::Moments(moments) = self.content { Some(moments) } else { None }
    }

    /// A summary of unnamed columns.
    ///
    /// # Errors
    /// When there are none, or rows store too many numbers.
    pub fn of_counted(name: impl Into<String>, columns: CountedColumns) -> Result<Self> {
        Self { name: name.into(), content: ColumnContent::Counted(columns) }.checked()
    }

    /// Checks a column of this end's own data.
    fn checked(self) -> Result<Self> {
        self.check().map_err(|e| e.coded(ErrorCode::Data))?;
        Ok(self)
    }

    /// The range of numbers.
    pub fn range(&self) -> Option<(f64, f64)> {
        match self.content {
            ColumnContent::Numbers { range, .. } => Some(range),
            _ => None,
        }
    }

    /// The number of rows.
    pub(super) fn count(&self) -> u64 {
        match &self.content {
            ColumnContent::Numbers { moments, .. } => moments.count() as u64,
            ColumnContent::Categories(values) | ColumnContent::Labels(values) => values.count(),
            ColumnContent::Counted(columns) => columns.rows,
            // Weights need not be whole numbers.
            ColumnContent::Moments(_) => 0,
        }
    }

    /// The distinct values of categories or labels.
    pub fn values(&self) -> Option<&DistinctValues> {
        match &self.content {
            ColumnContent::Numbers { .. } | ColumnContent::Counted(_) | ColumnContent::Moments(_) => None,
            ColumnContent::Categories(values) | ColumnContent::Labels(values) => Some(values),
        }
    }

    /// The summary of unnamed columns.
    pub fn counted(&self) -> Option<&CountedColumns> {
        if let ColumnContent::Counted(columns) = &self.content { Some(columns) } else { None }
    }

    /// Checks that values are possible, such as the number of categories.
    ///
    /// # Errors
    /// When a value is impossible.
    pub fn check(&self) -> Result<()> {
        let refused =
            |what: String, accepted: &str| Err(Error::refused_message(format!("column `{}`: {what}", quoted(&self.name)), accepted));
        if is_long(&self.name) {
            return refused(format!("a name of {} bytes", self.name.len()), "names of at most 1,000 bytes");
        }
        match &self.content {
            ColumnContent::Numbers { range: (low, high), moments }
                if !(low.is_finite() && high.is_finite() && moments.are_of(*low, *high)) =>
            {
                refused(
                    format!("numbers from {low:?} to {high:?} with {moments:?}"),
                    "one finite number or more, at most 2^53, with a mean and a spread that numbers of this range have",
                )
            }
            ColumnContent::Categories(values) | ColumnContent::Labels(values) if !(1..=1 << 53).contains(&values.count()) => {
                refused(format!("{} rows", values.count()), "one row or more, and at most 2^53")
            }
            ColumnContent::Categories(values) | ColumnContent::Labels(values)
                if values.rows.len() > self.content.most_values() || !values.are_possible() =>
            {
                Err(self.content.refused_values(&self.name, values.rows.len()))
            }
            ColumnContent::Counted(columns) if !columns.is_possible() => refused(
                format!("{} rows, the last column {}, {} numbers", columns.rows, columns.last, columns.stored),
                "one row or more, and at most as many numbers as rows have columns",
            ),
            ColumnContent::Moments(moments) if !moments.are_possible() => {
                refused(format!("numbers with {moments:?}"), "numbers above a count of 0, with a mean and a spread that are finite")
            }
            _ => Ok(()),
        }
    }

    /// Adds the rows of another column; [`difference`] has refused other types.
    fn join(&mut self, other: &Self) {
        match (&mut self.content, &other.content) {
            (ColumnContent::Numbers { range, moments }, ColumnContent::Numbers { range: others, moments: of_others }) => {
                *range = (range.0.min(others.0), range.1.max(others.1));
                *moments = moments.join(*of_others);
            }
            (ColumnContent::Categories(values), ColumnContent::Categories(others))
            | (ColumnContent::Labels(values), ColumnContent::Labels(others)) => values.join(others),
            (ColumnContent::Moments(moments), ColumnContent::Moments(others)) => *moments = moments.join(*others),
            (ColumnContent::Counted(columns), ColumnContent::Counted(others)) => {
                *columns = CountedColumns {
                    rows: columns.rows + others.rows,
                    last: columns.last.max(others.last),
                    stored: columns.stored + others.stored,
                }
            }
            _ => {}
        }
    }

    /// Whether both are categories, one of them with numbers and texts. As in one process, only pure numbers and pure texts do not mix.
    fn may_be_coded_as(&self, other: &Self) -> bool {
        let (ColumnContent::Categories(a), ColumnContent::Categories(b)) = (&self.content, &other.content) else { return false };
        let is_mixed = |values: &DistinctValues| coding(values.rows.keys().map(String::as_str)) == Some(Coding::Mixed);
        self.name == other.name && (is_mixed(a) || is_mixed(b))
    }

    /// The name and the type, in words.
    pub(super) fn form(&self) -> (&str, &'static str) {
        let kind = match &self.content {
            ColumnContent::Numbers { .. } => "numbers",
            ColumnContent::Categories(values) if values.are_numbers => "categories that are numbers",
            ColumnContent::Categories(_) => "categories that are texts",
            ColumnContent::Labels(values) if values.are_numbers => "labels that are numbers",
            ColumnContent::Labels(_) => "labels that are names",
            ColumnContent::Counted(_) => "numbered columns",
            ColumnContent::Moments(_) => "numbers with moments",
        };
        (&self.name, kind)
    }
}

/// Reads names, but only as many as a check needs to refuse them, so that a malicious message takes no memory.
fn few_names<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<BTreeMap<String, u64>, D::Error> {
    deserializer.deserialize_map(FewNames)
}

struct FewNames;

impl<'de> Visitor<'de> for FewNames {
    type Value = BTreeMap<String, u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names with their rows")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut names: A) -> std::result::Result<BTreeMap<String, u64>, A::Error> {
        let mut kept = BTreeMap::new();
        while let Some((name, rows)) = names.next_entry::<String, u64>()? {
            if kept.len() <= MAX_CLASSES {
                kept.insert(name, rows);
            }
        }
        Ok(kept)
    }
}

fn is_long(name: &str) -> bool {
    name.len() > LONGEST_NAME
}

/// The first difference between two agents' columns, in words; `None` if names and types are the same in the same order.
pub(super) fn difference(a: &[ColumnSummary], b: &[ColumnSummary]) -> Option<String> {
    let is_same = |i: usize| matches!((a.get(i), b.get(i)), (Some(a), Some(b)) if a.form() == b.form() || a.may_be_coded_as(b));
    let at = (0..a.len().max(b.len())).find(|i| !is_same(*i))?;
    let said = |all: &[ColumnSummary]| all.get(at).map_or("none".into(), |one| format!("`{}` of {}", quoted(&one.name), one.form().1));
    Some(format!("column {} is {} in place of {}", at + 1, said(b), said(a)))
}

/// A category, a label or a numbered column that `founded` lacks, in words.
pub(super) fn unknown_value(founded: &[ColumnSummary], own: &[ColumnSummary]) -> Option<String> {
    let of = |(known, own): (&ColumnSummary, &ColumnSummary)| {
        if let (Some(known), Some(own)) = (known.counted(), own.counted()) {
            return (own.last > known.last).then(|| format!("a column {}, and the last one is {}", own.last, known.last));
        }
        let known = known.values()?;
        let other = own.values()?.rows.keys().find(|name| !known.rows.contains_key(*name))?;
        Some(format!("column `{}`: `{}`", quoted(&own.name), quoted(other)))
    };
    founded.iter().zip(own).find_map(of)
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
        let values = |texts: &[&str], are_numbers| DistinctValues::new(texts.iter().map(|t| ((*t).into(), 5)).collect(), are_numbers);
        let of = |texts: &[&str]| vec![ColumnSummary::of_categories("c", values(texts, false)).unwrap()];
        let (a, b) = (of(&["red", "blue"]), of(&["green", "red"]));
        let all = joined([&a[..], &b[..]].into_iter());
        let all = all[0].values().unwrap();
        assert_eq!((all.count(), all.rows["red"], all.sorted()), (20, 10, vec!["blue", "green", "red"]));
        // Numbers are sorted by size, in any order of agents.
        let [few, many] =
            [&["10", "-1"][..], &["9", "10", "2.5"]].map(|texts| vec![ColumnSummary::of_labels("y", values(texts, true)).unwrap()]);
        for order in [[&few[..], &many], [&many, &few]] {
            assert_eq!(joined(order.into_iter())[0].values().unwrap().sorted(), ["-1", "2.5", "9", "10"]);
        }
        let names = vec![ColumnSummary::of_labels("y", values(&["1"], false)).unwrap()];
        assert!(difference(&few, &names).unwrap().ends_with("`y` of labels that are names in place of `y` of labels that are numbers"));
        for two in ["1.0", "-0", "NaN", "one"] {
            assert!(ColumnSummary::of_labels("y", values(&["1", two], true)).is_err(), "{two}");
        }
        assert_eq!(unknown_value(&a, &b).unwrap(), "column `c`: `green`");
        assert_eq!(
            (unknown_value(&few, &names), unknown_value(&many, &few).unwrap()),
            (Some("column `y`: `1`".into()), "column `y`: `-1`".into())
        );
        assert_eq!(difference(&a, &[]).unwrap(), "column 1 is none in place of `c` of categories that are texts");
        assert_eq!(difference(&[], &few).unwrap(), "column 1 is `y` of labels that are numbers in place of none");
        let numbers = vec![ColumnSummary::of_numbers("c", [1.0]).unwrap()];
        assert_eq!(difference(&a, &b), None);
        assert_eq!(difference(&a, &numbers).unwrap(), "column 1 is `c` of numbers in place of `c` of categories that are texts");
    }

    #[test]
    fn what_no_numbers_have_is_refused() {
        // As read from another end's bytes.
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
            numbers((1.0, 2.0), moments(2.0, 1.5, 1e300)),
            numbers((1.0, 2.0), moments(2.0, 1.5, 0.51)),
            numbers((2.0, 1.0), moments(2.0, 1.5, 0.5)),
            numbers((-1e308, 1e308), moments(2.0, 0.0, 0.0)),
            ColumnSummary { name: "x".repeat(2000), ..numbers((1.0, 2.0), good) },
            ColumnSummary { name: "x".into(), content: ColumnContent::Categories(DistinctValues::new(BTreeMap::new(), false)) },
            ColumnSummary { name: "x".into(), content: ColumnContent::Labels(DistinctValues::new([("a".into(), 0)].into(), false)) },
            ColumnSummary { name: "x".into(), content: ColumnContent::Categories(DistinctValues::new([("a".into(), 1)].into(), true)) },
        ];
        assert!(bad.iter().all(|one| one.check().is_err()));
        assert!(ColumnSummary::of_numbers("x", [1.0, f64::NAN]).is_err() && ColumnSummary::of_numbers("x", []).is_err());
        // Numbers at both ends have the largest spread, and far from 0 their rounding errors are large.
        for two in [[0.1, 0.7], [-1e9, 3.0], [1e16, 1e16 + 2.0], [1e150, -1e150]] {
            for n in [2, 3, 1000] {
                assert!(ColumnSummary::of_numbers("x", two.into_iter().cycle().take(n)).is_ok(), "{two:?} {n}");
            }
        }
    }
}
