//! Means and standard deviations of features, from the moments of each agent's rows, joined in the agents' order.
//!
//! The feature of a level is 1 in a share q of the rows, so its mean is q and its deviation `sqrt(q (1 - q))`.

use fedsa::columns::RunningMoments;

use super::Preparation;
use super::columns::Category;
use super::levels::RowLevels;
use crate::rows::dataset::Dataset;

/// The means and standard deviations of features, 1 for a constant one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FeatureScales {
    /// The means.
    pub means: Vec<f64>,
    /// The standard deviations.
    pub deviations: Vec<f64>,
}

impl FeatureScales {
    /// The scales of columns with these moments, then those of the levels, which have rows as in `levels`. A column whose numbers are all
    /// equal has no spread at all.
    pub fn new(plain: &[RunningMoments], categories: &[Category], levels: &RowLevels) -> Self {
        let mut all = Self::default();
        plain.iter().for_each(|moments| all.push(moments.mean_and_deviation()));
        for (category, own) in categories.iter().zip(&levels.categories) {
            let rows: u64 = own.counts.iter().sum();
            for (level, count) in own.levels.iter().zip(&own.counts) {
                if category.reference.as_ref() != Some(level) {
                    all.push(of_level(*count as f64, rows as f64));
                }
            }
        }
        all
    }

    fn push(&mut self, (mean, deviation): (f64, f64)) {
        self.means.push(mean);
        self.deviations.push(if deviation > 0.0 { deviation } else { 1.0 });
    }
}

/// The mean and the deviation of a feature that is 1 in `count` of n rows, and 0 in the others.
pub(super) fn of_level(count: f64, n: f64) -> (f64, f64) {
    let share = count / n;
    (share, (share * (1.0 - share)).sqrt())
}

/// The moments of d columns over the rows of one agent. `see(j, out)` writes row j, for j below n, and returns its weight.
pub(super) fn of_rows(d: usize, n: usize, see: impl Fn(usize, &mut [f64]) -> f64) -> Vec<RunningMoments> {
    let (mut row, mut count) = (vec![0.0; d], 0.0);
    // Differences from the first row: a column of equal numbers has exactly this mean, and no spread.
    let mut first: Option<Vec<f64>> = None;
    let mut means = vec![0.0; d];
    for j in 0..n {
        let weight = see(j, &mut row);
        if weight == 0.0 {
            continue;
        }
        let first = first.get_or_insert_with(|| row.clone());
        count += weight;
        means.iter_mut().zip(row.iter().zip(&*first)).for_each(|(sum, (x, first))| *sum += weight * (x - first));
    }
    let Some(first) = first else { return vec![RunningMoments::default(); d] };
    means.iter_mut().zip(&first).for_each(|(sum, first)| *sum = first + *sum / count);
    let mut squares = vec![0.0; d];
    for j in 0..n {
        let weight = see(j, &mut row);
        squares.iter_mut().zip(row.iter().zip(&means)).for_each(|(sum, (x, mean))| *sum += weight * (x - mean).powi(2));
    }
    means.into_iter().zip(squares).map(|(mean, squares)| RunningMoments::of_parts(count, mean, squares)).collect()
}

impl Preparation {
    /// The moments of an agent's plain columns, divided by `divide_by`, over these rows of `sets`, each row with its weight, if rows have
    /// weights. `levels` are the levels of the rows.
    pub fn moments_of(&self, sets: &[Dataset], levels: &RowLevels, fitted: &[usize], weights: &[f64]) -> Vec<RunningMoments> {
        // The position of each column of a file among the plain ones.
        let places: Vec<Vec<Option<usize>>> = sets
            .iter()
            .map(|set| {
                let of = |name: &str| levels.names.as_ref().and_then(|names| names.iter().position(|own| own == name));
                match &levels.names {
                    Some(_) => set.columns.iter().map(|name| of(&name)).collect(),
                    None => (0..set.rows.columns()).map(|i| (i < levels.plain).then_some(i)).collect(),
                }
            })
            .collect();
        let starts: Vec<usize> = sets.iter().scan(0, |n, set| Some(std::mem::replace(n, *n + set.rows.len()))).collect();
        let see = |j: usize, out: &mut [f64]| {
            let row = fitted[j];
            let file = starts.partition_point(|start| *start <= row) - 1;
            out.fill(0.0);
            for (i, x) in sets[file].rows.row(row - starts[file]) {
                if let Some(Some(at)) = places[file].get(i) {
                    out[*at] = x / self.divide_by;
                }
            }
            weights.get(j).copied().unwrap_or(1.0)
        };
        of_rows(levels.plain, fitted.len(), see)
    }
}
