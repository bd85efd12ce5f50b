//! Transformations of features: division by a number, standardisation, principal components, a column of ones.
//!
//! Every step is affine, so a model of the features is also a model of the files' columns ([`Transform::on_columns`]).

use std::borrow::Cow;

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatMut, MatRef, Par};
use serde::{Deserialize, Serialize};

use super::moments::{self, FeatureScales};
use super::partition::{Pool, starts};
use crate::rows::dataset::{Columns, Dataset, Rows};
use crate::rows::regression::gram;
use fedsa::cancel::Cancel;
use fedsa::columns::RunningMoments;
use fedsa::eigenpairs::Eigenpairs;
use fedsa::error::{Error, Result, require};
use fedsa::linalg;
use fedsa::parallel;

/// Principal components.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Pca {
    /// Components.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub dim: usize,
    /// Centre features first.
    #[serde(default = "yes")]
    pub centre: bool,
    /// Data of the fit; the subspace is the same up to rounding.
    #[serde(default)]
    pub fit: PcaFit,
}

impl Pca {
    /// With `dim` components, centred, fitted federatedly.
    pub fn new(dim: usize) -> Self {
        Self { dim, centre: true, fit: PcaFit::default() }
    }
}

fedsa::settings::setters! { Pca {
    with_dim(dim: usize) = dim;
    with_centre(centre: bool) = centre;
    with_fit(fit: PcaFit) = fit;
} }

fn yes() -> bool {
    true
}

impl Pca {
    /// The kind of fit and the number of columns, for messages.
    pub(crate) fn text(&self, columns: usize) -> String {
        let centred = if self.centre { "" } else { " without centring" };
        let fit = if self.fit == PcaFit::Union { "on the union" } else { "federatedly" };
        format!("PCA of {columns} features{centred} fitted {fit}")
    }
}

/// Data that principal components are fitted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Fit"))]
#[serde(rename_all = "kebab-case")]
pub enum PcaFit {
    /// Sums of the agents' second moments.
    #[default]
    Federated,
    /// All agents' rows in one place.
    Union,
}

/// The most columns for principal components, which decompose a symmetric matrix of this size.
const MAX_COLUMNS: usize = 5000;
/// Rows per task.
const BLOCK: usize = 256;

/// A fitted transformation of features.
#[derive(Debug, Clone)]
pub struct Transform {
    /// The divisor of features.
    pub divide_by: f64,
    /// The mean subtracted from each column afterwards; empty for sparse rows, or without standardisation.
    pub means: Vec<f64>,
    /// The standard deviation that then divides each column, 1 for a constant one; empty without standardisation.
    pub deviations: Vec<f64>,
    /// Principal components.
    pub components: Option<Components>,
    /// Whether a column of ones is added as the last one.
    pub intercept: bool,
    /// The names of the columns.
    pub columns: Columns,
    /// The number of columns D.
    pub width: usize,
}

/// Principal components of D columns.
#[derive(Debug, Clone)]
pub struct Components {
    /// The settings.
    pub pca: Pca,
    /// The mean subtracted first, D numbers; zeros without centring.
    pub means: Vec<f64>,
    /// The components, D x dim with orthonormal columns, by decreasing second moment. The entry of largest absolute value in each is
    /// positive.
    pub vectors: Mat<f64>,
    /// The second moment along each, dim numbers.
    pub moments: Vec<f64>,
}

/// Sums of `of(i, x)` over the numbers x of column i of each agent's rows, weighted by row, added in the agents' order.
fn sums(rows: &Rows, first: &[usize], weights: &[f64], of: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    let d = rows.columns();
    let mut all = vec![0.0; d];
    for at in first.windows(2) {
        let mut own = vec![0.0; d];
        for j in at[0]..at[1] {
            let weight = weight_of(weights, j);
            rows.row(j).filter(|_| weight != 0.0).for_each(|(i, x)| own[i] += weight * of(i, x));
        }
        all.iter_mut().zip(&own).for_each(|(all, own)| *all += own);
    }
    all
}

/// The weight of a row: 1 without given weights.
fn weight_of(weights: &[f64], row: usize) -> f64 {
    weights.get(row).copied().unwrap_or(1.0)
}

/// The least and the greatest number of each column over rows with weight, including zeros that are not stored.
fn extremes(rows: &Rows, weights: &[f64]) -> Vec<(f64, f64)> {
    let d = rows.columns();
    let (mut ends, mut stored) = (vec![(f64::INFINITY, f64::NEG_INFINITY); d], vec![0; d]);
    let counts = |j: &usize| weight_of(weights, *j) != 0.0;
    let count = (0..rows.len()).filter(counts).count();
    for j in (0..rows.len()).filter(counts) {
        for (i, x) in rows.row(j) {
            ends[i] = (ends[i].0.min(x), ends[i].1.max(x));
            stored[i] += 1;
        }
    }
    let with_zeros = |((least, most), stored): ((f64, f64), usize)| {
        if stored < count { (least.min(0.0), most.max(0.0)) } else { (least, most) }
    };
    ends.into_iter().zip(stored).map(with_zeros).collect()
}

/// 1, or the power of two that scales numbers up to `largest` to about 1, if their squares would overflow or underflow. The multiplication
/// is exact.
pub fn moderate(largest: f64) -> f64 {
    const FAR: f64 = 400.0;
    let exponent = largest.log2().floor();
    if exponent.is_finite() && exponent.abs() > FAR { (-exponent).min(1000.0).exp2() } else { 1.0 }
}

/// The rule for features.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransformRule<'a> {
    /// Their divisor.
    pub divide_by: f64,
    /// Whether to standardise them.
    pub standardise: bool,
    /// Principal components.
    pub pca: Option<Pca>,
    /// Whether to add a column of ones.
    pub intercept: bool,
    /// The means and standard deviations of all agents' features, if there are other agents' rows.
    pub known: Option<&'a FeatureScales>,
}

impl Transform {
    /// Fits the transformation `how` to the rows of all agents. `weights` has the rows' weights in means and deviations; empty means equal
    /// weights.
    pub(super) fn fit(
        how: &TransformRule<'_>,
        sets: &[Dataset],
        pool: &Pool<'_>,
        (agents, weights): (&[Vec<usize>], &[f64]),
        cancel: &Cancel,
    ) -> Result<Self> {
        let width = sets.iter().map(|set| set.rows.columns()).max().unwrap_or(0);
        let columns = sets.iter().max_by_key(|set| set.rows.columns()).map(|set| set.columns.clone()).unwrap_or_default();
        let mut transform = Self {
            divide_by: how.divide_by,
            means: Vec::new(),
            deviations: Vec::new(),
            components: None,
            intercept: false,
            columns,
            width,
        };
        let d = width;
        if let Some(pca) = how.pca {
            require(pca.dim <= d, "pca.dim", pca.dim, &format!("at most the number of columns, {d}"))?;
            require(d <= MAX_COLUMNS, "pca", format!("principal components of {d} columns"), &format!("at most {MAX_COLUMNS} columns"))?;
        }
        require(d > 0, "data", "rows without columns", "at least one feature")?;
        if let Some(FeatureScales { means, deviations }) = how.known.filter(|_| how.standardise) {
            (transform.means, transform.deviations) = (means.clone(), deviations.clone());
        } else if how.standardise || how.pca.is_some() {
            let first = starts(agents);
            let mut rows = transform.apply(pool.gather(sets, agents));
            cancel.check()?;
            if how.standardise {
                transform.standardise(&rows, &first, weights, cancel)?;
                rows = transform.scaled(rows, 1.0);
                cancel.check()?;
            }
            if let Some(pca) = how.pca {
                transform.components = Some(Components::fit(pca, rows, &first)?);
            }
        }
        transform.intercept = how.intercept;
        Ok(transform)
    }

    /// Means and standard deviations, from the moments of each agent's rows ([`moments`](super::moments)). The standard deviation is the
    /// population's, `sqrt(mean (x - mean)^2)`. The mean of a constant column is exact. A row of weight w counts as w rows.
    fn standardise(&mut self, rows: &Rows, first: &[usize], weights: &[f64], cancel: &Cancel) -> Result<()> {
        let Rows::Dense { d, values } = rows else { return self.divide_sparse(rows, first, weights, cancel) };
        let ends = extremes(rows, weights);
        // Sums of the largest numbers would overflow, and squares of the smallest underflow.
        let scales: Vec<f64> = ends.iter().map(|(least, most)| moderate(least.abs().max(most.abs()))).collect();
        cancel.check()?;
        let mut all = vec![RunningMoments::default(); *d];
        for at in first.windows(2) {
            let own = moments::of_rows(*d, at[1] - at[0], |j, out| {
                let row = &values[(at[0] + j) * d..][..*d];
                out.iter_mut().zip(row.iter().zip(&scales)).for_each(|(out, (x, scale))| *out = x * scale);
                weight_of(weights, at[0] + j)
            });
            all.iter_mut().zip(own).for_each(|(all, own)| *all = all.join(own));
            cancel.check()?;
        }
        for (i, (moments, (least, most))) in all.into_iter().zip(ends).enumerate() {
            let (mean, deviation) = moments.mean_and_deviation();
            // The rounding error of the mean may exceed a small deviation, so only equal numbers count as constant.
            self.means.push(if least == most { least } else { mean / scales[i] });
            self.deviations.push(if least == most { 1.0 } else { deviation / scales[i] });
        }
        Ok(())
    }

    /// Standard deviations of sparse columns, which are not centred: that would make them dense.
    fn divide_sparse(&mut self, rows: &Rows, first: &[usize], weights: &[f64], cancel: &Cancel) -> Result<()> {
        let n: f64 = (0..rows.len()).map(|j| weight_of(weights, j)).sum();
        let ends = extremes(rows, weights);
        let scales: Vec<f64> = ends.iter().map(|(least, most)| moderate(least.abs().max(most.abs()))).collect();
        cancel.check()?;
        let mut means = sums(rows, first, weights, |i, x| x * scales[i]);
        means.iter_mut().for_each(|mean| *mean /= n);
        cancel.check()?;
        let squares = sums(rows, first, weights, |i, x| (x * scales[i] - means[i]).powi(2));
        cancel.check()?;
        let stored = sums(rows, first, weights, |_, _| 1.0);
        let deviation = |i: usize| {
            // Numbers that are not stored are 0.
            let variance = (squares[i] + (n - stored[i]) * means[i] * means[i]) / n;
            if ends[i].0 == ends[i].1 { 1.0 } else { variance.sqrt() / scales[i] }
        };
        self.deviations = (0..means.len()).map(deviation).collect();
        Ok(())
    }

    /// The rows, divided by a number and standardised.
    fn scaled(&self, mut rows: Rows, divide_by: f64) -> Rows {
        let of = |i: usize, x: f64| {
            let (mean, deviation) = (self.means.get(i).copied().unwrap_or(0.0), self.deviations.get(i).copied().unwrap_or(1.0));
            let (x, centred) = (x / divide_by, x / divide_by - mean);
            // The difference of two of the largest numbers may overflow.
            if centred.is_finite() { centred / deviation } else { x / deviation - mean / deviation }
        };
        match &mut rows {
            Rows::Dense { d, values } => {
                let d = (*d).max(1);
                parallel::each_chunk(values, d * BLOCK, &|_, block| {
                    block.chunks_mut(d).for_each(|row| row.iter_mut().enumerate().for_each(|(i, x)| *x = of(i, *x)));
                });
            }
            Rows::Sparse { index, value, .. } => value.iter_mut().zip(&*index).for_each(|(x, i)| *x = of(*i as usize, *x)),
        }
        rows
    }

    /// The features of rows as in files, n x d. Columns unknown to the fit are left out, missing ones are 0.
    pub fn apply(&self, rows: Rows) -> Rows {
        let rows = with_columns(rows, self.width);
        let rows = if self.means.is_empty() { rows } else { rows.into_dense() };
        let is_changed = self.divide_by != 1.0 || !self.deviations.is_empty();
        let rows = if is_changed { self.scaled(rows, self.divide_by) } else { rows };
        let rows = match &self.components {
            Some(components) => components.project(&rows.into_dense()),
            None => rows,
        };
        if self.intercept { with_ones(rows) } else { rows }
    }

    /// The model theta of the features as a model of the files' columns: weights w and a constant, with
    /// `w . x + constant = theta . features(x)`. theta has one component per feature.
    pub fn on_columns(&self, theta: &[f64]) -> (Vec<f64>, f64) {
        let (theta, mut constant) = match (self.intercept, theta.split_last()) {
            (true, Some((last, rest))) => (rest, *last),
            _ => (theta, 0.0),
        };
        let mut weights = match &self.components {
            Some(components) => {
                let weights = linalg::mat_vec(&components.vectors, theta);
                constant -= weights.iter().zip(&components.means).map(|(w, mean)| w * mean).sum::<f64>();
                weights
            }
            None => theta.to_vec(),
        };
        for (i, w) in weights.iter_mut().enumerate() {
            *w /= self.deviations.get(i).copied().unwrap_or(1.0);
            constant -= *w * self.means.get(i).copied().unwrap_or(0.0);
            *w /= self.divide_by;
        }
        (weights, constant)
    }

    /// A description, for messages.
    pub(super) fn note(&self) -> String {
        let mut note = String::new();
        if !self.deviations.is_empty() {
            note.push_str(if self.means.is_empty() { ", divided by standard deviations" } else { ", standardised" });
        }
        if let Some(Components { pca, means, .. }) = &self.components {
            note.push_str(&format!(", {}", pca.text(means.len())));
        }
        note
    }
}

/// The same rows with `width` columns: further ones are dropped, missing ones are 0.
fn with_columns(rows: Rows, width: usize) -> Rows {
    match rows {
        Rows::Dense { d, values } if d != width => {
            let both = d.min(width);
            let mut all = vec![0.0; values.len().checked_div(d).unwrap_or(0) * width];
            all.chunks_mut(width.max(1)).zip(values.chunks(d.max(1))).for_each(|(to, row)| to[..both].copy_from_slice(&row[..both]));
            Rows::Dense { d: width, values: all }
        }
        Rows::Sparse { d, starts, index, value } if d > width => {
            let (mut ends, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
            for at in starts.windows(2) {
                let kept = (at[0]..at[1]).filter(|k| (index[*k] as usize) < width);
                kept.for_each(|k| {
                    indices.push(index[k]);
                    values.push(value[k]);
                });
                ends.push(indices.len());
            }
            Rows::Sparse { d: width, starts: ends, index: indices, value: values }
        }
        Rows::Sparse { starts, index, value, .. } => Rows::Sparse { d: width, starts, index, value },
        rows @ Rows::Dense { .. } => rows,
    }
}

/// The same rows with a last column of ones.
fn with_ones(rows: Rows) -> Rows {
    match rows {
        Rows::Dense { d, values } => {
            let n = values.len().checked_div(d).unwrap_or(0);
            let mut all = Vec::with_capacity(values.len() + n);
            for row in values.chunks(d.max(1)) {
                all.extend_from_slice(row);
                all.push(1.0);
            }
            Rows::Dense { d: d + 1, values: all }
        }
        Rows::Sparse { d, starts, index, value } => {
            let (mut indices, mut values) =
                (Vec::with_capacity(index.len() + starts.len()), Vec::with_capacity(value.len() + starts.len()));
            for at in starts.windows(2) {
                indices.extend_from_slice(&index[at[0]..at[1]]);
                values.extend_from_slice(&value[at[0]..at[1]]);
                indices.push(d as u32);
                values.push(1.0);
            }
            let starts = starts.iter().enumerate().map(|(j, start)| start + j).collect();
            Rows::Sparse { d: d + 1, starts, index: indices, value: values }
        }
    }
}

impl Components {
    fn fit(pca: Pca, rows: Rows, first: &[usize]) -> Result<Self> {
        let (d, n) = (rows.columns(), rows.len() as f64);
        let means = if pca.centre {
            let mut means = sums(&rows, first, &[], |_, x| x);
            means.iter_mut().for_each(|mean| *mean /= n);
            means
        } else {
            vec![0.0; d]
        };
        let Rows::Dense { mut values, .. } = rows.into_dense() else { unreachable!("dense rows") };
        values.chunks_mut(d).for_each(|row| row.iter_mut().zip(&means).for_each(|(x, mean)| *x -= mean));
        let parts = match pca.fit {
            PcaFit::Union => vec![0, values.len() / d],
            PcaFit::Federated => first.to_vec(),
        };
        let centred = Rows::Dense { d, values };
        let mut moments = Mat::<f64>::zeros(d, d);
        let weights = vec![1.0 / n; parts.windows(2).map(|at| at[1] - at[0]).max().unwrap_or(0)];
        // Agent after agent, in their order.
        let parts = parts.windows(2).map(|at| (at[0]..at[1], Cow::Borrowed(&weights[..at[1] - at[0]])));
        gram::of_parts(&centred, parts, &mut moments);
        let failed = || Error::new("pca", "the eigenvectors of the second moments were not found", "features that are finite and smaller");
        if !moments.is_all_finite() {
            return Err(failed());
        }
        // At least as many pairs as requested.
        let pairs = Eigenpairs::leading(&moments, pca.dim);
        if pairs.values.iter().any(|x| x.is_nan()) {
            return Err(failed());
        }
        let moments = pairs.values[..pca.dim].iter().map(|x| x.max(0.0)).collect();
        Ok(Self { pca, means, vectors: pairs.vectors.subcols(0, pca.dim).to_owned(), moments })
    }

    fn project(&self, rows: &Rows) -> Rows {
        let Rows::Dense { d, values } = rows else { unreachable!("dense rows") };
        let (width, k) = (self.means.len(), self.vectors.ncols());
        let mut out = vec![0.0; rows.len() * k];
        // Missing columns are 0, and columns unknown to the fit are left out.
        let both = width.min(*d);
        parallel::each_chunk(&mut out, k * BLOCK, &|i, out| {
            let n = out.len() / k;
            let block = &values[i * d * BLOCK..][..n * d];
            let mut centred = vec![0.0; n * width];
            for (to, row) in centred.chunks_mut(width).zip(block.chunks(*d)) {
                to[..both].copy_from_slice(&row[..both]);
                to.iter_mut().zip(&self.means).for_each(|(x, mean)| *x -= mean);
            }
            let centred = MatRef::from_row_major_slice(&centred, n, width);
            matmul(MatMut::from_row_major_slice_mut(out, n, k), Accum::Replace, centred, self.vectors.as_ref(), 1.0, Par::Seq);
        });
        Rows::Dense { d: k, values: out }
    }
}
