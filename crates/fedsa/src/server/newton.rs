//! Newton's step of the mean objective, and the length of this step.

use faer::Mat;
use faer::linalg::solvers::Solve;

use super::{Ask, Next, Received, Server, foreign_state, restored_theta};
use crate::error::Result;
use crate::linalg;
use crate::message::{Message, Part};

/// Solves with the mean of the agents' Hessians, and backtracks along the step by the mean of their losses.
///
/// The rule keeps the last Hessian that arrived from each agent, N d (d + 1) / 2 numbers. It replaces a lost Hessian, so
/// that a lost message delays the agent's share of the curvature and does not remove it.
#[derive(Debug, Clone)]
pub struct NewtonServer {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The trial steps s, from 0 and 1 downwards.
    pub trials: Vec<f64>,
    /// The share of the decrease predicted by the gradient that a step must bring (Armijo), in (0, 1/2).
    pub decrease: f64,
    /// The last Hessian of each agent, as a lower triangle; empty before the first.
    pub hessians: Vec<Vec<f64>>,
    /// The round's step p.
    pub step: Option<Vec<f64>>,
}

impl NewtonServer {
    /// The step `p = -H^-1 g`; `-g` if H is not positive definite. `None` if no Hessian has arrived or g is 0.
    fn direction(&self, g: &[f64]) -> Option<Vec<f64>> {
        let d = g.len();
        let mut h = Mat::<f64>::zeros(d, d);
        let mut weight = 0.0;
        for (p, lower) in self.weights.iter().zip(&self.hessians).filter(|(_, lower)| !lower.is_empty()) {
            weight += p;
            for i in 0..d {
                for j in 0..=i {
                    h[(i, j)] += p * lower[i * (i + 1) / 2 + j];
                }
            }
        }
        if weight == 0.0 || g.iter().all(|g| *g == 0.0) {
            return None;
        }
        for i in 0..d {
            for j in 0..=i {
                h[(i, j)] /= weight;
                h[(j, i)] = h[(i, j)];
            }
        }
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        match h.llt(faer::Side::Lower) {
            Ok(factor) => {
                let p = factor.solve(linalg::column(&minus));
                let p: Vec<f64> = (0..d).map(|i| p[(i, 0)]).collect();
                Some(if p.iter().all(|x| x.is_finite()) { p } else { minus })
            }
            Err(_) => Some(minus),
        }
    }
}

impl Server for NewtonServer {
    fn open(&mut self, t: u64) -> Ask {
        self.step = None;
        Ask { to: None, down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == 0 {
            for letter in got.letters {
                self.hessians[letter.agent] = letter.part(Part::Hessian).to_vec();
            }
            let g = got.mean(Part::Gradient);
            let Some(p) = self.direction(&g) else { return Next::Done { tell: None } };
            self.step = Some(p.clone());
            return Next::Ask(Ask { to: None, down: Message::one(got.round, 1, Part::Step, p), own: None });
        }
        // theta_{t+1} = theta_t + s p with the first s for which f(theta_t + s p) <= f(theta_t) + decrease s p^T grad f(theta_t);
        // losses and slope are those of the same agents.
        let losses = got.mean(Part::Losses);
        let slope = losses[self.trials.len()];
        if let Some(p) = self.step.take() {
            // Without any answer losses and slope are zero, and nothing is a decrease.
            let is_enough = |(s, loss): &(&f64, &f64)| slope < 0.0 && **loss <= losses[0] + self.decrease * **s * slope;
            if let Some((s, _)) = self.trials.iter().zip(&losses).skip(1).find(is_enough) {
                self.theta.iter_mut().zip(&p).for_each(|(x, p)| *x = s.mul_add(*p, *x));
            }
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<Vec<f64>> {
        [self.theta.clone(), self.step.clone().unwrap_or_default()].into_iter().chain(self.hessians.iter().cloned()).collect()
    }

    fn restore(&mut self, mut state: Vec<Vec<f64>>, _: u64) -> Result<()> {
        let d = self.theta.len();
        let theta = restored_theta(&mut state, d)?;
        if state.len() != 1 + self.weights.len() {
            return Err(foreign_state());
        }
        let hessians = state.split_off(1);
        let fits = hessians.iter().all(|lower| lower.is_empty() || lower.len() == d * (d + 1) / 2);
        let step = match &state[0][..] {
            [] => None,
            p if p.len() == d => Some(p.to_vec()),
            _ => return Err(foreign_state()),
        };
        if !fits {
            return Err(foreign_state());
        }
        (self.theta, self.step, self.hessians) = (theta, step, hessians);
        Ok(())
    }
}
