//! Measured results, and their statistics over seeds.

mod falling;

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::record::counts::USUAL_COST;
use fedsa::record::{self, Count};
pub use fedsa::session::Recorded;
use serde::{Deserialize, Serialize};

use super::plan::Plan;
use crate::config::schema::{CostLevel, ExpectedStatus};

/// The result of one seed of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// The recorded rounds.
    pub rows: Vec<Recorded>,
    /// The output after the last round, d components.
    pub theta: Vec<f64>,
    /// The number of rounds after which divergence was found, if it was.
    pub diverged: Option<u64>,
    /// Whether it stopped at its target.
    pub stopped: bool,
    /// The wall time from the beginning of its first round to the end of its last, with metrics, in seconds. Other runs may have shared the
    /// processors. `None` for runs read from their trace.
    pub seconds: Option<f64>,
    /// The caller's metrics.
    #[serde(skip)]
    pub own: OwnValues,
    /// The outputs at the recorded rounds, d numbers each, if they are kept.
    #[serde(skip)]
    pub iterates: Vec<f64>,
}

/// The key of `summary.json` with the names of the caller's metrics.
pub const OWN_METRICS: &str = "own_metrics";

/// The caller's metrics at the recorded rounds of a seed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OwnValues {
    /// The names.
    pub names: Arc<[String]>,
    /// A value for each name, at each recorded round.
    pub values: Vec<Vec<f64>>,
}

/// All runs: for each cell, its seeds in order.
pub struct Results {
    /// By cell.
    pub cells: Vec<Vec<SeedResult>>,
}

/// The share of the rounds, at the end, that a floor averages.
pub const FLOOR_SHARE: f64 = 0.2;

/// Whether round t of `last` rounds belongs to the floor.
pub fn in_tail(t: u64, last: u64) -> bool {
    t as f64 > (1.0 - FLOOR_SHARE) * last as f64 || t == last
}

/// A mean with its standard error over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error; 0 for one seed.
    pub se: f64,
}

impl Estimate {
    /// The mean and its standard error of values, one per seed.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let var = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0).max(1.0);
        Self { mean, se: (var / n).sqrt() }
    }
}

/// The count with this validated name; without a name, the default cost.
pub fn paid(name: Option<&str>) -> &'static Count {
    record::count(name.unwrap_or(USUAL_COST)).expect("validated")
}

/// The quantile q of sorted values, interpolated linearly; the median of an even
/// number of values is the mean of the middle two.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() - 1) as f64 * q;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // Equal neighbours may be infinite.
    if low == high { low } else { low + (at - at.floor()) * (high - low) }
}

impl SeedResult {
    /// The mean of a metric over the last fifth of the rounds.
    pub fn floor(&self, name: &str) -> Option<f64> {
        let last = self.rows.last()?.round;
        let tail = self.curve(name).filter(|(row, _)| in_tail(row.round, last));
        let values: Vec<f64> = tail.map(|(_, value)| value).collect::<Option<_>>()?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// A metric after the last round.
    pub fn last(&self, name: &str) -> Option<f64> {
        self.by(None, name)
    }

    /// A metric at the last recorded round up to `round`, or at the last of all.
    pub fn by(&self, round: Option<u64>, name: &str) -> Option<f64> {
        self.curve(name).rfind(|(row, _)| round.is_none_or(|t| row.round <= t))?.1
    }

    /// The recorded rounds with the values of a metric, fedsa's or the caller's.
    pub fn curve<'a>(&'a self, name: &'a str) -> impl DoubleEndedIterator<Item = (&'a Recorded, Option<f64>)> {
        let own = self.own.names.iter().position(|own| own == name);
        let value = move |i: usize| own.and_then(|at| self.own.values.get(i)?.get(at).copied());
        self.rows.iter().enumerate().map(move |(i, row)| (row, value(i).or_else(|| row.metric(name))))
    }
}

impl Results {
    /// The floors of a cell's seeds; `None` if the cell did not run or a floor is unknown.
    pub fn floors(&self, cell: usize, name: &str) -> Option<Vec<f64>> {
        let floors: Option<Vec<f64>> = self.cells[cell].iter().map(|seed| seed.floor(name)).collect();
        floors.filter(|floors| !floors.is_empty())
    }

    /// The share by which a metric still falls over the last fifth of the rounds; `None` if it has reached its floor. `falling::falls_by`
    /// has the rule and its error rate.
    pub fn falls_by(&self, cell: usize, name: &str) -> Option<f64> {
        let curve = |seed: &SeedResult| seed.curve(name).map(|(row, value)| Some((row.round as f64, value?))).collect();
        let curves: Vec<Vec<(f64, f64)>> = self.cells[cell].iter().map(curve).collect::<Option<_>>()?;
        falling::falls_by(&curves)
    }

    /// The cost of a cell until the mean over seeds of a metric first fell to a level:
    /// the mean over seeds of a count at the first such recorded round.
    pub fn cost(&self, cell: usize, name: &str, level: CostLevel, count: &Count) -> Option<f64> {
        let curve = self.curve(cell, name);
        let level = level.value * if level.is_relative { self.start(cell, name)? } else { 1.0 };
        let (reached, _) = curve.iter().find(|(_, values)| Estimate::of(values).mean <= level)?;
        let at = |seed: &SeedResult| seed.rows.iter().find(|row| row.round == reached.round).map(|row| row.count(count) as f64);
        let counts: Option<Vec<f64>> = self.cells[cell].iter().map(at).collect();
        counts.map(|counts| Estimate::of(&counts).mean)
    }

    /// The mean over seeds of a count after the last round.
    pub fn spent(&self, cell: usize, count: &Count) -> Option<f64> {
        let spent: Option<Vec<f64>> = self.cells[cell].iter().map(|seed| Some(seed.rows.last()?.count(count) as f64)).collect();
        spent.filter(|spent| !spent.is_empty()).map(|spent| Estimate::of(&spent).mean)
    }

    /// The mean over seeds of a metric at round 0.
    fn start(&self, cell: usize, name: &str) -> Option<f64> {
        let values: Option<Vec<f64>> = self.cells[cell].iter().map(|seed| seed.by(Some(0), name)).collect();
        values.filter(|values| !values.is_empty()).map(|values| Estimate::of(&values).mean)
    }

    /// The mean over seeds of a metric at the last recorded round; divided by its mean at round 0 if `is_relative`.
    pub fn end(&self, cell: usize, name: &str, is_relative: bool) -> Option<f64> {
        let values: Option<Vec<f64>> = self.cells[cell].iter().map(|seed| seed.last(name)).collect();
        let end = values.filter(|values| !values.is_empty()).map(|values| Estimate::of(&values).mean)?;
        if is_relative { Some(end / self.start(cell, name)?) } else { Some(end) }
    }

    /// The mean over seeds of a cell's wall times, in seconds.
    pub fn seconds(&self, cell: usize) -> Option<f64> {
        let seconds: Option<Vec<f64>> = self.cells[cell].iter().map(|seed| seed.seconds).collect();
        seconds.filter(|seconds| !seconds.is_empty()).map(|seconds| Estimate::of(&seconds).mean)
    }

    /// Whether no seed of a cell diverged.
    pub fn is_ok(&self, cell: usize) -> bool {
        self.cells[cell].iter().all(|seed| seed.diverged.is_none())
    }

    /// The rounds that all seeds recorded, with the values of a metric, one per seed.
    pub fn curve(&self, cell: usize, name: &str) -> Vec<(Recorded, Vec<f64>)> {
        let seeds = &self.cells[cell];
        let mut at: HashMap<u64, Vec<f64>> = HashMap::new();
        for (row, value) in seeds.iter().flat_map(|seed| seed.curve(name)) {
            at.entry(row.round).or_default().extend(value);
        }
        let rows = seeds.first().map_or(&[][..], |s| &s.rows[..]);
        rows.iter().filter_map(|row| Some((*row, at.get(&row.round)?.clone()))).filter(|(_, v)| v.len() == seeds.len()).collect()
    }

    /// The names of the caller's metrics.
    pub fn own_names(&self) -> &[String] {
        self.cells.iter().flatten().next().map_or(&[], |seed| &seed.own.names)
    }

    /// Whether every recorded round has its seconds.
    pub fn have_seconds(&self) -> bool {
        self.cells.iter().flatten().flat_map(|seed| &seed.rows).all(|row| row.seconds.is_some())
    }

    /// Whether every run ended as expected.
    pub fn all_as_expected(&self, plan: &Plan) -> bool {
        (0..self.cells.len()).all(|cell| self.as_expected(plan, cell))
    }

    /// Whether a cell's runs ended as expected.
    pub fn as_expected(&self, plan: &Plan, cell: usize) -> bool {
        let stop = &plan.cells[cell].run.stop;
        let diverged = |s: &SeedResult| s.diverged.is_some();
        let missed = |s: &SeedResult| s.outcome(stop).missed().is_some();
        match plan.cells[cell].method.expect {
            Some(ExpectedStatus::Diverges) => self.cells[cell].iter().all(diverged) || plan.cells[cell].refused.is_some(),
            Some(ExpectedStatus::MissesTarget) => self.cells[cell].iter().all(missed) || plan.cells[cell].refused.is_some(),
            None | Some(ExpectedStatus::Ok) => !self.cells[cell].iter().any(|s| diverged(s) || missed(s)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(quantile(&[1.0, 3.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 3.0, 10.0], 0.5), 3.0);
        assert_eq!(quantile(&[0.0, 1.0, 2.0, 3.0], 0.5), 1.5);
        assert_eq!((quantile(&[0.0, 10.0], 0.1), quantile(&[7.0], 0.9)), (1.0, 7.0));
        assert_eq!(quantile(&[f64::INFINITY; 2], 0.5), f64::INFINITY);
    }
}
