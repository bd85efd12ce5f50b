//! Means and standard deviations of features, from the moments of each agent's rows, joined in the agents' order.

use fedsa::columns::RunningMoments;

use super::quality::LabelledRows;
use crate::rows::dataset::Rows;

/// The means and standard deviations of features, 1 for a constant one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FeatureScales {
    /// The means.
    pub means: Vec<f64>,
    /// The standard deviations.
    pub deviations: Vec<f64>,
}

impl FeatureScales {
    /// The scales of features with these moments. A feature whose numbers are all equal has no spread at all.
    pub fn new(features: &[RunningMoments]) -> Self {
        let (means, deviations): (Vec<f64>, Vec<f64>) = features.iter().map(|moments| moments.mean_and_deviation()).unzip();
        Self { means, deviations: deviations.into_iter().map(|x| if x > 0.0 { x } else { 1.0 }).collect() }
    }
}

/// The moments of the columns of one agent's dense rows; none for sparse rows.
pub fn moments_of(part: &LabelledRows) -> Vec<RunningMoments> {
    let Rows::Dense { d, values } = &part.rows else { return Vec::new() };
    of_rows(*d, part.rows.len(), |j, out| {
        out.copy_from_slice(&values[j * d..][..*d]);
        part.weight(j)
    })
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
