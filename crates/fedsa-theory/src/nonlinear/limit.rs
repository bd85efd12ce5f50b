//! The limit of FedLSA's rounds without noise, by Newton's method.
//!
//! A round of FedLSA moves theta by `F(theta) = sum_c p_c (Phi_c(theta) - theta)`, where `Phi_c` makes H local steps
//! `theta_{h+1} = theta_h + eta gbar_c(theta_h)`. Its derivative follows from `D <- (I + eta J_c(theta_h)) D`. Agents that keep the law of
//! the round's model make the steps of a linear system; its dependence on the model is taken by differences.

use faer::Scale;

use super::{Kind, Near};
use crate::phase::AffinePhase;
use crate::unknown::unknown;
use crate::{RoundSetting, work};
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};

const NEWTON_STEPS: usize = 60;
/// The largest move of a round at the limit, relative to `|theta| + sum_c p_c |Phi_c(theta) - theta|`.
const LEAST_MOVE: f64 = 1e-12;

impl Near<'_> {
    /// The limit of FedLSA's rounds without noise (d), reached from the root.
    ///
    /// # Errors
    /// When Newton's method does not converge, or it takes too long.
    pub fn limit(&self, setting: &RoundSetting) -> Result<Vec<f64>> {
        let keeps = self.keeps_laws();
        let round = |theta: &[f64]| if keeps { self.kept_round(theta, setting) } else { self.round(theta, setting, true) };
        let moved = |theta: &[f64]| if keeps { self.kept_move(theta, setting) } else { self.round(theta, setting, false).map(|r| r.0) };
        let mut theta = self.root.to_vec();
        let (mut f, mut slope) = round(&theta)?;
        for _ in 0..NEWTON_STEPS {
            let (norm, scale) = (linalg::norm(&f.sum), linalg::norm(&theta) + f.size);
            if norm <= LEAST_MOVE * scale {
                return Ok(theta);
            }
            let step = linalg::solve(&slope, &f.sum)?;
            // The longest of the step, its half, .. that lowers the move of a round.
            let next = (0..12).find_map(|k| {
                let mut next = theta.clone();
                linalg::add_scaled(&mut next, -(0.5f64.powi(k)), &step);
                let falls = |f: &Move| linalg::norm(&f.sum) < norm;
                moved(&next).map(|f| falls(&f).then_some(next)).transpose()
            });
            match next.transpose()? {
                Some(next) => theta = next,
                // Nothing lowers it but rounding.
                None if norm <= 1e3 * LEAST_MOVE * scale => return Ok(theta),
                None => break,
            }
            (f, slope) = round(&theta)?;
        }
        Err(unknown("Newton's method found no limit of the rounds"))
    }

    /// The move of a round from theta, with its derivative (d x d; 0 unless `with_slope`).
    fn round(&self, theta: &[f64], setting: &RoundSetting, with_slope: bool) -> Result<(Move, Mat<f64>)> {
        let (d, eta) = (self.dim(), setting.step_size);
        let (mut f, mut slope) = (Move::new(d), Mat::<f64>::zeros(d, d));
        let each = self.field.facts().step_work().unwrap_or(d * d) as f64;
        for kind in &self.kinds {
            let (mut local, mut g, mut product) = (theta.to_vec(), vec![0.0; d], Mat::<f64>::identity(d, d));
            for _ in 0..setting.local_steps {
                work::charge(if with_slope { (each + (d * d) as f64) * (d + 1) as f64 } else { each })?;
                if with_slope {
                    product = &product + Scale(eta) * (self.jacobian(kind, &local) * &product);
                }
                self.field.mean(kind.agent, &local, &mut g);
                linalg::add_scaled(&mut local, eta, &g);
            }
            f.add(kind, &linalg::minus(&local, theta));
            slope += Scale(kind.weight) * (product - Mat::<f64>::identity(d, d));
        }
        Ok((f, slope))
    }

    /// The move of a round from theta under the laws of theta.
    fn kept_move(&self, theta: &[f64], setting: &RoundSetting) -> Result<Move> {
        let d = self.dim();
        let mut f = Move::new(d);
        for kind in &self.kinds {
            let law = self.field.facts().law_at(kind.agent, theta).ok_or_else(|| unknown("the law of samples"))?;
            work::charge((law.mass().len() * d * (d + 1)) as f64 + (d * d * d) as f64 * 4.0 * (setting.local_steps as f64).log2())?;
            // The mean operator under this law is linear.
            let b = law.mean(&vec![0.0; d]);
            let mut a = Mat::zeros(d, d);
            for j in 0..d {
                let mut at = vec![0.0; d];
                at[j] = 1.0;
                law.mean(&at).iter().zip(&b).enumerate().for_each(|(i, (g, b))| a[(i, j)] = b - g);
            }
            let phase = AffinePhase::new(&a, setting.step_size, setting.local_steps);
            f.add(kind, &linalg::mat_vec(&phase.sum, &law.mean(theta)));
        }
        Ok(f)
    }

    /// [`Near::kept_move`] with its derivative by central differences.
    fn kept_round(&self, theta: &[f64], setting: &RoundSetting) -> Result<(Move, Mat<f64>)> {
        let d = self.dim();
        let mut slope = Mat::zeros(d, d);
        for j in 0..d {
            let step = f64::EPSILON.cbrt() * theta[j].abs().max(1.0);
            let at = |sign: f64| {
                let mut theta = theta.to_vec();
                theta[j] += sign * step;
                self.kept_move(&theta, setting)
            };
            let difference = linalg::minus(&at(1.0)?.sum, &at(-1.0)?.sum);
            (0..d).for_each(|i| slope[(i, j)] = difference[i] / (2.0 * step));
        }
        Ok((self.kept_move(theta, setting)?, slope))
    }
}

/// The move of a round.
struct Move {
    /// `sum_c p_c (Phi_c(theta) - theta)` (d).
    sum: Vec<f64>,
    /// `sum_c p_c |Phi_c(theta) - theta|`.
    size: f64,
}

impl Move {
    fn new(d: usize) -> Self {
        Self { sum: vec![0.0; d], size: 0.0 }
    }

    fn add(&mut self, kind: &Kind, own: &[f64]) {
        linalg::add_scaled(&mut self.sum, kind.weight, own);
        self.size += kind.weight * linalg::norm(own);
    }
}
