//! The effect of an agent's noise on the end of its local phase.

use faer::prelude::*;

use crate::phase::{AffinePhase, bits_from_highest, step};
use fedsa::linalg::Mat;
use fedsa::problem::law::NoiseLaw;
use fedsa::sampling::{Law, Sampling};

/// The law of a step's noise, the mean of a batch, and of the noise after it, given the noise `x` before it:
///
/// ```text
/// mean = of_before x + e,    after = after x + f,    cov(e, f) = innovation
/// ```
pub(super) struct BatchLaw {
    /// The coefficient of x in the mean, d x d.
    of_before: Mat<f64>,
    /// The coefficient of x in the noise after the batch, d x d.
    after: Mat<f64>,
    /// The covariance of (e, f), 2d x 2d.
    innovation: Mat<f64>,
}

impl BatchLaw {
    /// The law under this sampling; independent draws have no memory.
    pub fn new(law: &NoiseLaw, sampling: Sampling) -> Self {
        let (d, k) = (law.covariance.nrows(), sampling.batch.max(1));
        let share = 1.0 / k as f64;
        if sampling.kind != Law::Markov {
            let mut innovation = Mat::<f64>::zeros(2 * d, 2 * d);
            innovation.get_mut(..d, ..d).copy_from(Scale(share) * &law.covariance);
            return Self { of_before: Mat::zeros(d, d), after: Mat::zeros(d, d), innovation };
        }
        // The sum of the batch so far, and the last noise: both change by M x + w.
        let (mut one, mut added) = (Mat::<f64>::zeros(2 * d, 2 * d), Mat::<f64>::zeros(2 * d, 2 * d));
        for (i, j) in [(0, 0), (0, d), (d, d)] {
            let mut block = one.get_mut(i..i + d, j..j + d);
            block.copy_from(if j == 0 { Mat::<f64>::identity(d, d) } else { law.memory.clone() });
        }
        for (i, j) in [(0, 0), (0, d), (d, 0), (d, d)] {
            (0..d).for_each(|l| added[(i + l, j + l)] = law.std * law.std);
        }
        let (power, mut innovation) = power_and_covariance(&one, &added, k as u64);
        let mut sums = innovation.get_mut(..d, ..);
        sums *= Scale(share);
        let mut sums = innovation.get_mut(.., ..d);
        sums *= Scale(share);
        Self { of_before: Scale(share) * power.get(..d, d..), after: power.get(d.., d..).to_owned(), innovation }
    }
}

/// `(T^n, sum_{j<n} T^j Q T^jT)` by doubling: the map of n steps `s <- T s + q`, and the covariance that they add.
pub(super) fn power_and_covariance(t: &Mat<f64>, q: &Mat<f64>, n: u64) -> (Mat<f64>, Mat<f64>) {
    let size = t.nrows();
    let (mut power, mut sum) = (Mat::<f64>::identity(size, size), Mat::<f64>::zeros(size, size));
    for bit in bits_from_highest(n) {
        sum = &sum + &power * &sum * power.transpose();
        power = &power * &power;
        if bit {
            sum = q + t * &sum * t.transpose();
            power = t * &power;
        }
    }
    (power, sum)
}

/// The noise of an agent in its round. Given the noise x before the round, a round adds `o = of_before x + e` to the end of its local
/// phase, and its noise after the round is `after x + f`: `E e e^T = own`, `E e f^T = cross`, `E f f^T = kept`.
#[derive(Debug, Clone)]
pub(super) struct LegNoise {
    pub of_before: Mat<f64>,
    pub own: Mat<f64>,
    pub cross: Mat<f64>,
    pub after: Mat<f64>,
    pub kept: Mat<f64>,
}

impl LegNoise {
    /// The local phase of `h` steps of size `eta` under the mean matrix `a`, with `drift` times the noise of the first sample added to
    /// its end. The first step uses the first sample, unless `fresh`: then that sample comes before the first step.
    pub fn new(a: &Mat<f64>, eta: f64, h: u64, law: &BatchLaw, drift: Option<&Mat<f64>>, fresh: bool) -> Self {
        let d = a.nrows();
        // One step of (r, x), where r is what the noise has added to the iterate.
        let mut one = Mat::<f64>::zeros(2 * d, 2 * d);
        one.get_mut(..d, ..d).copy_from(step(a, eta));
        one.get_mut(..d, d..).copy_from(Scale(eta) * &law.of_before);
        one.get_mut(d.., d..).copy_from(&law.after);
        let mut added = law.innovation.clone();
        let mut rows = added.get_mut(..d, ..);
        rows *= Scale(eta);
        let mut columns = added.get_mut(.., ..d);
        columns *= Scale(eta);
        let (rest, later) = power_and_covariance(&one, &added, if fresh { h } else { h - 1 });
        // The end of the local phase as a function of the first sample's noise and of the noise after it.
        let mut end = rest;
        let mut of_first = end.get_mut(..d, ..d);
        of_first *= Scale(if fresh { 0.0 } else { eta });
        if let Some(drift) = drift {
            of_first += drift;
        }
        let mut before = Mat::<f64>::zeros(2 * d, d);
        before.get_mut(..d, ..).copy_from(&law.of_before);
        before.get_mut(d.., ..).copy_from(&law.after);
        let before = &end * before;
        let covariance = &end * &law.innovation * end.transpose() + later;
        let block = |rows: usize, columns: usize| covariance.get(rows..rows + d, columns..columns + d).to_owned();
        Self {
            of_before: before.get(..d, ..).to_owned(),
            after: before.get(d.., ..).to_owned(),
            own: block(0, 0),
            cross: block(0, d),
            kept: block(d, d),
        }
    }

    /// `sum p_c S_c - S_k` for every kind: the effect of the first sample's noise on the end of FedHSA's local phase, through the
    /// drift `G - g_c(theta_t, z_c0)`. `S_c` adds a constant drift to the end of a local phase.
    pub fn of_drifts<'a>(kinds: impl Iterator<Item = (&'a Mat<f64>, f64)>, eta: f64, h: u64) -> Vec<Mat<f64>> {
        let (sums, weights): (Vec<Mat<f64>>, Vec<f64>) = kinds.map(|(a, weight)| (AffinePhase::new(a, eta, h).sum, weight)).unzip();
        let d = sums[0].nrows();
        let mut mean = Mat::<f64>::zeros(d, d);
        for (sum, weight) in sums.iter().zip(weights) {
            mean += Scale(weight) * sum;
        }
        sums.into_iter().map(|sum| &mean - sum).collect()
    }
}
