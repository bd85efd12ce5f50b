//! Outliers among applicants. Features are scaled by all agents' ranges: a very wide range would make the others' states indistinguishable.
//! Very long rows would give most columns of the model to one agent.

use std::collections::BTreeSet;

use super::{ColumnSummary, Enrolment};
use crate::error::{Error, quoted};
use crate::protocol::refused;

/// The largest accepted reach of a range from the common middle, relative to the median reach. No honest difference between agents is as
/// large, but placeholders for missing numbers, such as 1e30, are.
const FURTHEST: f64 = 1e6;

/// The accepted ranges, in words.
pub(super) const FAR_ENOUGH: &str = "ranges that are at most a million times as wide as those of most agents";

/// With fewer agents it is unknown which one is wrong.
const LEAST: usize = 3;

impl Enrolment {
    /// The agents, with the reason, whose range of one of these columns reaches more than a million times as far from the median middle as
    /// the median reach. None if fewer than three have applied, or most have a constant column.
    pub fn outliers(&self, names: &[String]) -> Vec<(String, Error)> {
        let Ok((taken, _)) = self.numbered(None) else { return Vec::new() };
        let mut found: Vec<(String, Error)> = Vec::new();
        for name in names {
            let of = |columns: &[ColumnSummary]| columns.iter().find(|column| column.name == *name)?.range();
            let ranges: Vec<(&str, (f64, f64))> = taken.iter().filter_map(|(who, one)| Some((*who, of(&one.columns)?))).collect();
            if ranges.len() < LEAST {
                continue;
            }
            let middle = median(ranges.iter().map(|(_, (low, high))| 0.5 * low + 0.5 * high));
            let reach = |(low, high): (f64, f64)| (high - middle).max(middle - low);
            let usual = median(ranges.iter().map(|(_, range)| reach(*range)));
            let known: BTreeSet<String> = found.iter().map(|(who, _)| who.clone()).collect();
            let is_far = |range: (f64, f64)| usual > 0.0 && reach(range) > FURTHEST * usual;
            found.extend(ranges.iter().filter(|(who, range)| is_far(*range) && !known.contains(*who)).map(|(who, (low, high))| {
                let what = format!(
                    "column `{}`: a range from {low:?} to {high:?}, and most agents' are within {usual:?} of {middle:?}",
                    quoted(name)
                );
                ((*who).to_string(), refused(what, FAR_ENOUGH))
            }));
        }
        found
    }
}

impl Enrolment {
    /// The agents, with the reason, whose last unnamed column is more than `limit` times the median last column. None if fewer than three
    /// have applied.
    pub fn wide(&self, limit: f64) -> Vec<(String, Error)> {
        let Ok((taken, _)) = self.numbered(None) else { return Vec::new() };
        let columns = taken.first().map_or(0, |(_, one)| one.columns.len());
        let mut found = Vec::new();
        for i in 0..columns {
            let ends = taken.iter().filter_map(|(who, one)| Some((*who, f64::from(one.columns[i].counted()?.last))));
            if ends.clone().count() < LEAST {
                continue;
            }
            let usual = median(ends.clone().map(|(_, last)| last));
            found.extend(ends.filter(|(_, last)| *last > limit * usual).map(|(who, last)| {
                let what = format!("rows that end with column {last}, and those of most agents end with column {usual} or before");
                (who.to_string(), refused(what, &format!("rows that end at most {limit} times as far as those of most agents")))
            }));
        }
        found
    }
}

/// Describes an agent's range of a column that reaches too far beyond the founding range.
pub(super) fn beyond(founded: &[ColumnSummary], own: &[ColumnSummary], name: &str) -> Option<String> {
    let of = |columns: &[ColumnSummary]| columns.iter().find(|column| column.name == name)?.range();
    let ((low, high), (own_low, own_high)) = (of(founded)?, of(own)?);
    let (middle, usual) = (0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low);
    let reach = (own_high - middle).max(middle - own_low);
    (usual > 0.0 && reach > FURTHEST * usual).then(|| {
        format!("column `{}`: a range from {own_low:?} to {own_high:?}, and the federation's is from {low:?} to {high:?}", quoted(name))
    })
}

/// The median of some numbers, the lower one of two.
pub(super) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    let middle = numbers.len().saturating_sub(1) / 2;
    *numbers.select_nth_unstable_by(middle, f64::total_cmp).1
}
