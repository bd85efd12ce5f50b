//! The leading order in eta of the mean-square error of nonlinear operators, whose samples may depend on theta.
//!
//! Let `nu_theta` be the solution of `(I - K) nu = f - gbar`, with the kernel K of an agent's trajectory and the mean f of `g(theta, z)`
//! given its state. At theta*, with the covariance `Sigma_c` of an agent's samples summed over all lags:
//!
//! ```text
//! covariance eta V1:   J V1 + V1 J^T + sum_c p_c^2 Sigma_c = 0
//! mean eta beta:       -J beta = h + gbar''[V1] / 2 + sum_c p_c { C_c(1) - ((1 - p_c)/H) sum_{l=1..H} C_c(l) }
//! C_c(l) = Cov(d nu(x_l), g(z_0)), contracted over theta
//! ```
//!
//! `h = (H-1)/2 sum_c p_c J_c gbar_c(theta*)` for FedLSA and 0 otherwise. The floor `eta tr V1 + eta^2 |beta|^2` leaves out terms of
//! relative size O(eta).
//!
//! **Laws that are kept in a round** (`improve_every = "round"`). `J_c` in h is the derivative under a fixed law. The part of `C_c` that
//! comes from the law acts from the next round on: it enters as `(p_c/H) sum_{l=1..H} C_c(l)`.
//!
//! **Noise within a round** spreads local iterates, which moves their mean by an amount that does not fall with N (`local_noise`). Under
//! laws that are kept in a round local operators are linear, and there is no such part. FedHSA's noise of the correction in the variance, of
//! order (eta H)^2, is left out.

use faer::Scale;

use super::local_noise::{Curvature, LocalNoise};
use super::{Kind, Near};
use crate::markov::leading_order::{applied, continuous_lyapunov};
use crate::phase::power_and_sum;
use crate::unknown::unknown;
use crate::{RoundSetting, work};
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::method::Drift;
use fedsa::problem::law::FiniteLaw;
use fedsa::sampling::{Law, Sampling};

/// Differences of Jacobians, and of laws, by this step relative to the size of theta.
const STEP: f64 = 6e-6;

/// The leading order of the mean and the covariance.
#[derive(Debug, Clone)]
pub struct NonlinearOrder {
    /// The covariance is `eta V1 + O(eta^2)` (d x d).
    pub v1: Mat<f64>,
    /// The part of beta that the drift of local steps causes (d).
    pub drift: Vec<f64>,
    /// The part of beta that noise causes (d).
    pub noise: Vec<f64>,
    /// The bias by the spread of local iterates within a round, not divided by eta: to leading order in eta, and with all powers of eta in
    /// the linear part of the steps (d each).
    pub spread: [Vec<f64>; 2],
}

impl Near<'_> {
    /// The leading order for a method with this drift, over a clear link with all agents and the server's step 1.
    ///
    /// # Errors
    /// When the law of samples is not known, the root is not stable, or it takes too long.
    pub fn leading_order(&self, sampling: Sampling, setting: &RoundSetting, method: Drift) -> Result<NonlinearOrder> {
        let (d, keeps, is_sampled) = (self.dim(), self.keeps_laws(), sampling.kind != Law::Mean);
        let mean_jacobian = self.mean_jacobian();
        let a = -&mean_jacobian;
        let (mut total, mut shift, mut drift) = (Mat::<f64>::zeros(d, d), vec![0.0; d], vec![0.0; d]);
        let mut all = Mat::<f64>::zeros(d, d);
        let mut instants = Vec::new();
        for kind in &self.kinds {
            if method == Drift::Zero {
                let own = if keeps { self.kept_jacobian(kind)? } else { kind.jacobian.clone() };
                linalg::add_scaled(&mut drift, kind.weight * (setting.local_steps as f64 - 1.0) / 2.0, &linalg::mat_vec(&own, &kind.mean));
            }
            if is_sampled {
                let noise = self.noise(kind, sampling, setting, keeps)?;
                total += Scale(kind.square) * &noise.long_run;
                all += Scale(kind.square) * &noise.instant;
                linalg::add_scaled(&mut shift, 1.0, &noise.shift);
                instants.push(noise.instant);
            }
        }
        let v1 = continuous_lyapunov(&a, &total)?;
        let mut spread = [(vec![0.0; d], Mat::<f64>::zeros(d, d)), (vec![0.0; d], Mat::zeros(d, d))];
        for (kind, own) in self.kinds.iter().zip(&instants) {
            let curvature = Curvature::new(self, kind, &self.steps())?;
            linalg::add_scaled(&mut shift, 0.5 * kind.weight, &curvature.bend(&v1));
            if !keeps {
                let (weight, is_independent) = (kind.square / kind.weight.max(f64::MIN_POSITIVE), sampling.kind == Law::Iid);
                let (jacobian, mean_jacobian, v1, all) = (&kind.jacobian, &mean_jacobian, &v1, &all);
                let noise = LocalNoise { drift: method, jacobian, mean_jacobian, v1, own, all, weight, is_independent };
                for ((push, pull), is_leading) in spread.iter_mut().zip([true, false]) {
                    let of = noise.push(&curvature, is_leading, setting)?;
                    linalg::add_scaled(push, kind.weight, &of.0);
                    *pull += Scale(kind.weight) * of.1;
                }
            }
        }
        let found =
            |(push, pull): &(Vec<f64>, Mat<f64>)| if instants.is_empty() || keeps { Ok(vec![0.0; d]) } else { linalg::solve(pull, push) };
        let spread = [found(&spread[0])?, found(&spread[1])?];
        Ok(NonlinearOrder { v1, drift: linalg::solve(&a, &drift)?, noise: linalg::solve(&a, &shift)?, spread })
    }

    /// The sizes of steps for differences in each component.
    fn steps(&self) -> Vec<f64> {
        self.root.iter().map(|x| STEP * x.abs().max(1.0)).collect()
    }

    fn law(&self, kind: &Kind, theta: &[f64]) -> Result<FiniteLaw<'_>> {
        let facts = self.field.facts();
        facts.law_at(kind.agent, theta).or_else(|| facts.law(kind.number)).ok_or_else(|| unknown("the law of samples near the root"))
    }

    /// The derivative of the mean operator under the law of the root, d x d.
    fn kept_jacobian(&self, kind: &Kind) -> Result<Mat<f64>> {
        let (law, d) = (self.law(kind, self.root)?, self.dim());
        let mut jacobian = Mat::zeros(d, d);
        for (j, step) in self.steps().into_iter().enumerate() {
            let difference = linalg::minus(&law.mean(&moved(self.root, j, step)), &law.mean(&moved(self.root, j, -step)));
            (0..d).for_each(|i| jacobian[(i, j)] = difference[i] / (2.0 * step));
        }
        Ok(jacobian)
    }

    /// The noise of agents of a kind.
    fn noise(&self, kind: &Kind, sampling: Sampling, setting: &RoundSetting, keeps: bool) -> Result<Noise> {
        let (law, d) = (self.law(kind, self.root)?, self.dim());
        work::charge((law.mass().len() * d * d) as f64)?;
        let instant = Scale(1.0 / sampling.batch as f64) * law.covariance(self.root);
        let Some(chain) = law.chain().filter(|_| sampling.kind == Law::Markov) else {
            return Ok(Noise { long_run: instant.clone(), instant, shift: vec![0.0; d] });
        };
        if sampling.batch > 1 {
            return Err(unknown("leading order for batches of Markov samples"));
        }
        let states = chain.law.len();
        work::charge(d as f64 * (states as f64).powi(3))?;
        let before = before(&law, self.root);
        let nu = values(&law, self.root)?;
        let lagged = before.transpose() * &nu;
        let long_run = &instant + &lagged + lagged.transpose();
        // d nu, with the law of the moved point, and with that of the root.
        let (mut all, mut own) = (Mat::<f64>::zeros(states, d * d), Mat::<f64>::zeros(states, d * d));
        for (k, step) in self.steps().into_iter().enumerate() {
            let (above, below) = (moved(self.root, k, step), moved(self.root, k, -step));
            let write = |to: &mut Mat<f64>, above: Mat<f64>, below: Mat<f64>| {
                for s in 0..states {
                    (0..d).for_each(|i| to[(s, i * d + k)] = (above[(s, i)] - below[(s, i)]) / (2.0 * step));
                }
            };
            write(&mut all, values(&self.law(kind, &above)?, &above)?, values(&self.law(kind, &below)?, &below)?);
            if keeps {
                write(&mut own, values(&law, &above)?, values(&law, &below)?);
            }
        }
        // C(1), and the mean of C(1), .. C(H).
        let sum = power_and_sum(&chain.matrix()?, setting.local_steps).1;
        let both = |of: &Mat<f64>| (applied(&before, of), applied(&before, &(Scale(1.0 / setting.local_steps as f64) * (&sum * of))));
        let (w, s) = (kind.weight, kind.square);
        let mut shift = vec![0.0; d];
        let (next, mean) = both(if keeps { &own } else { &all });
        linalg::add_scaled(&mut shift, w, &next);
        linalg::add_scaled(&mut shift, s - w, &mean);
        if keeps {
            linalg::add_scaled(&mut shift, s, &linalg::minus(&both(&all).1, &mean));
        }
        Ok(Noise { instant, long_run, shift })
    }
}

/// The noise of a kind of agents at the root.
struct Noise {
    /// The covariance of one step's samples, d x d.
    instant: Mat<f64>,
    /// `Sigma_c`, d x d.
    long_run: Mat<f64>,
    /// `sum_c p_c { C_c(1) - ((1 - p_c)/H) sum_l C_c(l) }` over the agents of the kind (d).
    shift: Vec<f64>,
}

fn moved(theta: &[f64], k: usize, step: f64) -> Vec<f64> {
    let mut theta = theta.to_vec();
    theta[k] += step;
    theta
}

/// `sum of pi(z) (g(theta, z) - gbar)` over the samples that enter each state of the chain, K x d.
fn before(law: &FiniteLaw<'_>, theta: &[f64]) -> Mat<f64> {
    let (chain, mean, d) = (law.chain().expect("a chain"), law.mean(theta), law.dim());
    let (mut before, mut g) = (Mat::zeros(chain.law.len(), d), vec![0.0; d]);
    for (z, mass) in law.mass().iter().enumerate() {
        law.operator(z, theta, &mut g);
        (0..d).for_each(|i| before[(chain.to[z] as usize, i)] += mass * (g[i] - mean[i]));
    }
    before
}

/// `nu_theta` of each state, K x d.
fn values(law: &FiniteLaw<'_>, theta: &[f64]) -> Result<Mat<f64>> {
    work::check()?;
    let (chain, mean, d) = (law.chain().expect("a chain"), law.mean(theta), law.dim());
    let (mut next, mut g) = (Mat::zeros(chain.law.len(), d), vec![0.0; d]);
    for (z, p) in chain.p.iter().enumerate() {
        law.operator(z, theta, &mut g);
        (0..d).for_each(|i| next[(chain.from[z] as usize, i)] += p * (g[i] - mean[i]));
    }
    let (p, states) = (chain.matrix()?, chain.law.len());
    let resolvent = Mat::from_fn(states, states, |i, j| f64::from(u8::from(i == j)) - p[(i, j)] + chain.law[j]);
    linalg::solve_columns(&resolvent, &next)
}
