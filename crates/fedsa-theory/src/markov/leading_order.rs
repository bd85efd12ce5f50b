//! The leading order in eta of the mean-square error under Markov samples.
//!
//! With the autocovariances of the samples at theta* (agent c's chain P, its law pi, `w~ = w - wbar`, `A~ = A - Abar`):
//!
//! ```text
//! a(j) = sum_i pi_i P_ij w~(i,j)     n(l) = sum_m P_lm w~(l,m)     An(l) = sum_m P_lm A~(l,m)     Z = (I - P + 1 pi^T)^-1
//! Sigma_c = C0 + U + U^T,  C0 = E w~ w~^T,  U = sum_jl a(j) Z_jl n(l)^T
//! R_c(l) = E[A~(z_l) w~(z_0)] = sum_jm (P^(l-1))_jm An(m) a(j),   S_c = sum_{l >= 1} R_c(l)
//! covariance eta V1:   Abar V1 + V1 Abar^T = sum_c p_c^2 Sigma_c
//! mean eta beta:       Abar beta = sum_c p_c { h_c + (1/H) sum_{h<H} [ p_c S_c + (1 - p_c) (L_h - D_h) ] },  L_h = sum_{l=1..h} R_c(l)
//! ```
//!
//! `h_c = (H-1)/2 Abar_c wbar_c` for FedLSA and 0 otherwise; `D_h = 0` (FedLSA), `h R_c(h)` (FedHSA), `(h/H) sum_{j=1..H} R_c(h+j)`
//! (SCAFFLSA). The floor `eta tr V1 + eta^2 |beta|^2` leaves out terms of relative size O(eta), about `eta ||A|| (tau + H/2)`,
//! `tau = lambda / (1 - lambda)`.

use faer::prelude::*;

use super::{AgentClass, MarkovAgent, MarkovFloor, MarkovRule};
use crate::{RoundSetting, work};
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};

/// The leading order of mean and covariance for a method and its settings.
#[derive(Debug, Clone)]
pub struct LeadingOrder {
    eta: f64,
    /// The bias is `eta beta + O(eta^2)` (d).
    pub(super) beta: Vec<f64>,
    /// The covariance is `eta V1 + O(eta^2)` (d x d).
    pub(super) v1: Mat<f64>,
    /// V1 of independent samples with the same law.
    v1_independent: Mat<f64>,
}

impl LeadingOrder {
    /// The leading order for samples of batch 1.
    ///
    /// # Errors
    /// When the server's step is not 1, the mean matrix is singular, a chain has more than 4000 states, or all chains are
    /// deterministic cycles: then V1 = 0, and the floor of order eta^2 is not known.
    pub fn new(classes: &[AgentClass], setting: &RoundSetting, rule: MarkovRule) -> Result<Self> {
        super::check(classes, setting)?;
        if classes.iter().all(|c| c.agent.is_deterministic()) && classes.iter().any(|c| c.agent.states > 1) {
            return Err(Error::not_known(
                "",
                "deterministic cycles of samples: the covariance of order eta is 0, and that of order eta^2 is not known",
                "chains with random moves",
            ));
        }
        let d = classes[0].agent.dim;
        let mut mean_a = Mat::<f64>::zeros(d, d);
        let (mut shift, mut noise, mut independent) = (vec![0.0; d], Mat::<f64>::zeros(d, d), Mat::<f64>::zeros(d, d));
        for class in classes.iter().filter(|c| c.count > 0) {
            work::check()?;
            let (p, n) = (class.agent.weight, class.count as f64);
            let of = Correlations::new(&class.agent)?;
            mean_a += Scale(n * p) * &of.mean_a;
            noise += Scale(n * p * p) * (&of.instant + &of.lagged + of.lagged.transpose());
            independent += Scale(n * p * p) * &of.instant;
            let own = of.shift(p, setting.local_steps, rule);
            shift.iter_mut().zip(own).for_each(|(sum, x)| *sum += n * p * x);
        }
        let beta = linalg::solve(&mean_a, &shift)?;
        Ok(Self {
            eta: setting.step_size,
            beta,
            v1: continuous_lyapunov(&mean_a, &noise)?,
            v1_independent: continuous_lyapunov(&mean_a, &independent)?,
        })
    }

    /// `tr V1` of these samples and of independent ones. The ratio is the factor by which correlation multiplies the noise.
    pub fn traces(&self) -> (f64, f64) {
        let trace = |m: &Mat<f64>| (0..m.nrows()).map(|i| m[(i, i)]).sum();
        (trace(&self.v1), trace(&self.v1_independent))
    }

    /// The floor `eta tr V1 + eta^2 |beta|^2` and the bias `eta beta`.
    pub fn floor(&self) -> MarkovFloor {
        let bias: Vec<f64> = self.beta.iter().map(|x| self.eta * x).collect();
        let mse = self.eta * self.traces().0 + linalg::norm_sq(&bias);
        MarkovFloor { bias, mse }
    }
}

/// One agent's correlations of samples at theta*.
struct Correlations<'a> {
    agent: &'a MarkovAgent,
    mean_a: Mat<f64>,
    mean_w: Vec<f64>,
    /// `C0` (d x d).
    instant: Mat<f64>,
    /// `U` (d x d).
    lagged: Mat<f64>,
    /// `a(j)` (K x d).
    before: Mat<f64>,
    /// `An(l)` (K x d^2, row-major).
    after: Mat<f64>,
    /// `S_c` (d).
    total: Vec<f64>,
}

impl<'a> Correlations<'a> {
    fn new(agent: &'a MarkovAgent) -> Result<Self> {
        let (d, k) = (agent.dim, agent.states);
        let (mean_a, mean_w) = (agent.mean_a(), agent.mean_w());
        let mut instant = Mat::<f64>::zeros(d, d);
        let (mut before, mut next) = (Mat::<f64>::zeros(k, d), Mat::<f64>::zeros(k, d));
        let mut after = Mat::<f64>::zeros(k, d * d);
        for (q, m) in agent.charged() {
            let (from, to) = (m.from as usize, m.to as usize);
            let w: Vec<f64> = m.w.iter().zip(&mean_w).map(|(w, mean)| w - mean).collect();
            for i in 0..d {
                before[(to, i)] += q * w[i];
                next[(from, i)] += m.p * w[i];
                for j in 0..d {
                    instant[(i, j)] += q * w[i] * w[j];
                    after[(from, i * d + j)] += m.p * (m.a[(i, j)] - mean_a[(i, j)]);
                }
            }
        }
        // Z n and Z An from one factorisation.
        let p = agent.transition_matrix()?;
        let resolvent = Mat::from_fn(k, k, |i, j| f64::from(u8::from(i == j)) - p[(i, j)] + agent.stationary[j]);
        let right = Mat::from_fn(k, d + d * d, |i, j| if j < d { next[(i, j)] } else { after[(i, j - d)] });
        let solved = linalg::solve_columns(&resolvent, &right)?;
        let lagged = before.transpose() * solved.subcols(0, d);
        let total = applied(&before, &solved.subcols(d, d * d).to_owned());
        Ok(Self { agent, mean_a, mean_w, instant, lagged, before, after, total })
    }

    /// `R_c(1), .. R_c(n)`, d numbers each.
    fn products(&self, n: usize) -> Vec<Vec<f64>> {
        let mut after = self.after.clone();
        let mut products = Vec::with_capacity(n);
        for l in 0..n {
            if l > 0 {
                let mut moved = Mat::zeros(after.nrows(), after.ncols());
                for m in &self.agent.moves {
                    for j in 0..after.ncols() {
                        moved[(m.from as usize, j)] += m.p * after[(m.to as usize, j)];
                    }
                }
                after = moved;
            }
            products.push(applied(&self.before, &after));
        }
        products
    }

    /// The agent's contribution to `Abar beta`, without its weight p.
    fn shift(&self, p: f64, local_steps: u64, rule: MarkovRule) -> Vec<f64> {
        let steps = local_steps as f64;
        let mut shift: Vec<f64> = self.total.iter().map(|s| p * s).collect();
        if rule == MarkovRule::FedLsa {
            let drift = linalg::mat_vec(&self.mean_a, &self.mean_w);
            shift.iter_mut().zip(drift).for_each(|(s, x)| *s += (steps - 1.0) / 2.0 * x);
        }
        let h = local_steps as usize;
        let products = self.products(if rule == MarkovRule::Scafflsa { 2 * h } else { h });
        // `sum_h L_h` has R(l) for every h from l to H - 1.
        let mut add =
            |factor: f64, l: usize| shift.iter_mut().zip(&products[l - 1]).for_each(|(s, r)| *s += (1.0 - p) * factor / steps * r);
        (1..h).for_each(|l| add((h - l) as f64, l));
        match rule {
            MarkovRule::FedLsa => {}
            MarkovRule::FedHsa => (1..h).for_each(|l| add(-(l as f64), l)),
            // R(l) for all pairs h < H, j <= H with h + j = l.
            MarkovRule::Scafflsa => {
                for l in 1..2 * h {
                    let factor: usize = (l.saturating_sub(h)..h.min(l)).sum();
                    add(-(factor as f64) / steps, l);
                }
            }
        }
        shift
    }
}

/// `sum_j M(j) a(j)` for the matrices in the rows of `after` (K x d^2) and the vectors in the rows of `before` (K x d).
pub(crate) fn applied(before: &Mat<f64>, after: &Mat<f64>) -> Vec<f64> {
    let (k, d) = (before.nrows(), before.ncols());
    (0..d).map(|i| (0..k).map(|s| (0..d).map(|j| after[(s, i * d + j)] * before[(s, j)]).sum::<f64>()).sum()).collect()
}

/// The symmetric solution of `A V + V A^T = Q`, for a matrix A with eigenvalues in the right half-plane.
pub(crate) fn continuous_lyapunov(a: &Mat<f64>, q: &Mat<f64>) -> Result<Mat<f64>> {
    let d = a.nrows();
    // The Cayley transform `M = (A + c)^-1 (A - c)` gives `V = M V M^T + 2 c (A + c)^-1 Q (A + c)^-T`.
    let c = a.norm_l2() / (d as f64).sqrt();
    let one = Mat::<f64>::identity(d, d);
    let plus = a + Scale(c) * &one;
    let left = linalg::solve_columns(&plus, &(a - Scale(c) * &one))?;
    if linalg::spectral_radius(&left)? >= 1.0 {
        return Err(Error::not_known("", "a mean matrix with an eigenvalue of negative real part", "agents whose mean operator is stable"));
    }
    let half = linalg::solve_columns(&plus, q)?;
    let source = linalg::solve_columns(&plus, &half.transpose().to_owned())?;
    Ok(linalg::discrete_lyapunov(&left, &(Scale(2.0 * c) * source)))
}
