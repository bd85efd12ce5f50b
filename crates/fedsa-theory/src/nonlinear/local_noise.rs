//! How the noise of samples spreads local iterates within a round, and how that moves the mean of theta.
//!
//! After h local steps agent c is away from its noiseless course, and the covariance of its iterate differs by `Q_h` from that of the model,
//! `eta V1`. Over a curved operator a round then moves by
//!
//! ```text
//! N_c = sum_{h<H} eta B^(H-1-h) gbar_c''[Q_h] / 2,      B = I + eta J_c,   S_h = eta sum_{k<h} B^k
//! ```
//!
//! more, and the mean of theta by `M^-1 sum_c p_c N_c`. More agents do not lower it: each local iterate has the noise of one agent. With the
//! covariance `C_c` of a sample at theta*, `C = sum_c p_c^2 C_c`, `D_c = C + (1 - 2 p_c) C_c` and `own_h = eta^2 sum_{k<h} B^k C_c B^k'`, `Q_h` is
//! `eta (B^h V1 B^h' - V1)` and
//!
//! | method | the rest of `Q_h` | M |
//! | --- | --- | --- |
//! | FedLSA | `own_h` | `-sum_c p_c S_H J_c` |
//! | SCAFFLSA, Scaffold | `own_h + S_h Z S_h'`, `Z = R Z R' + eta^2 sum_{k<H} B^k D_c B^k' / (eta H)^2`, `R = I - S_H / (eta H)` | `-J`, with `S_H^-1 N_c` for `N_c` |
//! | FedLin, with m samples in the correction | `own_h + S_h D_c S_h' / m` | `-sum_c p_c S_H J` |
//! | FedHSA, which repeats the first step's sample | `own_(h-1) + S_h (C - p_c^2 C_c) S_h' + X C_c X'`, `X = (1 - p_c) S_h - eta B^(h-1)` | `-sum_c p_c S_H J` |
//!
//! To leading order in eta, B is I. With many agents `Q_h` is then a multiple of `eta^2 C_c`, on average over h:
//! `(H-1)/2`, `(H-1)/2 + (H-1)(2H-1)/(6H)`, `(H^2-1)/3` and `(H-1)(H-2)/3`. So control variates raise this bias.
//!
//! Third and higher derivatives of the operators are left out. Along trajectories samples depend on each other; there only FedHSA's correction
//! counts, with `Q_h = S_h D_c S_h'`.
//!
//! Source: Mangold et al. (2025), \[arXiv 2503.07594\], for Scaffold's bias; the formulas are our own.

use faer::Scale;

use super::{Kind, Near};
use crate::{RoundSetting, work};
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::method::Drift;

/// The noise of an agent in its round.
pub(super) struct LocalNoise<'a> {
    pub drift: Drift,
    /// `J_c`, and J of the mean operator, d x d.
    pub jacobian: &'a Mat<f64>,
    pub mean_jacobian: &'a Mat<f64>,
    /// `V1`, d x d.
    pub v1: &'a Mat<f64>,
    /// `C_c`, d x d.
    pub own: &'a Mat<f64>,
    /// `sum_c p_c^2 C_c`, d x d.
    pub all: &'a Mat<f64>,
    /// `p_c`.
    pub weight: f64,
    /// Whether samples are independent.
    pub is_independent: bool,
}

/// The derivatives of an agent's Jacobian by each component of theta at the root, d matrices.
pub(super) struct Curvature(Vec<Mat<f64>>);

impl Curvature {
    pub fn new(near: &Near<'_>, kind: &Kind, steps: &[f64]) -> Result<Self> {
        let d = near.dim();
        work::charge((2 * d * near.field.facts().step_work().unwrap_or(d * d)) as f64)?;
        let slope = |k: usize| {
            let at = |sign: f64| {
                let mut theta = near.root.to_vec();
                theta[k] += sign * steps[k];
                near.jacobian(kind, &theta)
            };
            Scale(0.5 / steps[k]) * (at(1.0) - at(-1.0))
        };
        Ok(Self((0..d).map(slope).collect()))
    }

    /// `gbar_c''[V]` (d) for a symmetric V.
    pub fn bend(&self, v: &Mat<f64>) -> Vec<f64> {
        let mut bend = vec![0.0; self.0.len()];
        for (k, slope) in self.0.iter().enumerate() {
            let column: Vec<f64> = (0..v.nrows()).map(|i| v[(i, k)]).collect();
            linalg::add_scaled(&mut bend, 1.0, &linalg::mat_vec(slope, &column));
        }
        bend
    }
}

/// What h local steps do.
struct Steps<'a> {
    eta: f64,
    /// `C_c`.
    sample: &'a Mat<f64>,
    /// B.
    step: Mat<f64>,
    /// `B^h`, and `eta B^(h-1)`, which is 0 at first.
    power: Mat<f64>,
    last: Mat<f64>,
    /// `S_h`.
    sum: Mat<f64>,
    /// `own_h`.
    own: Mat<f64>,
}

impl<'a> Steps<'a> {
    fn new(jacobian: &Mat<f64>, eta: f64, sample: &'a Mat<f64>) -> Self {
        let d = jacobian.nrows();
        let (one, zero) = (Mat::<f64>::identity(d, d), Mat::<f64>::zeros(d, d));
        Self { eta, sample, step: &one + Scale(eta) * jacobian, power: one, last: zero.clone(), sum: zero.clone(), own: zero }
    }

    fn advance(&mut self) -> Result<()> {
        work::charge(3.0 * (self.step.nrows() as f64).powi(3))?;
        self.last = Scale(self.eta) * &self.power;
        self.sum += &self.last;
        self.own += squared(&self.last, self.sample);
        self.power = &self.step * &self.power;
        Ok(())
    }
}

/// `X C X'`.
fn squared(x: &Mat<f64>, c: &Mat<f64>) -> Mat<f64> {
    x * c * x.transpose()
}

impl LocalNoise<'_> {
    /// Z: the covariance of control variates, which the samples of the round before make.
    fn of_controls(&self, jacobian: &Mat<f64>, setting: &RoundSetting) -> Result<Mat<f64>> {
        let (change, d) = (self.of_change(), jacobian.nrows());
        let mut steps = Steps::new(jacobian, setting.step_size, &change);
        for _ in 0..setting.local_steps {
            steps.advance()?;
        }
        let per_round = 1.0 / (setting.step_size * setting.local_steps as f64);
        let left = Mat::<f64>::identity(d, d) - Scale(per_round) * steps.sum;
        Ok(linalg::discrete_lyapunov(&left, &(Scale(per_round * per_round) * steps.own)))
    }

    /// `D_c`, the covariance of what a sample of all agents has more than the agent's own.
    fn of_change(&self) -> Mat<f64> {
        self.all + Scale(1.0 - 2.0 * self.weight) * self.own
    }

    /// The agent's part of `sum_c p_c N_c` (d) and of M (d x d), without `p_c`: to leading order in eta, or with all powers.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn push(&self, curvature: &Curvature, is_leading: bool, setting: &RoundSetting) -> Result<(Vec<f64>, Mat<f64>)> {
        let (d, p, own, eta) = (self.own.nrows(), self.weight, self.own, setting.step_size);
        let none = Mat::zeros(d, d);
        let jacobian = if is_leading { &none } else { self.jacobian };
        // The covariance of the drift, apart from samples of the local steps.
        let drift = match self.drift {
            Drift::ControlVariate { .. } if self.is_independent => self.of_controls(jacobian, setting)?,
            Drift::GlobalMemory { fresh: 0 } if self.is_independent => self.all - Scale(p * p) * own,
            Drift::GlobalMemory { fresh } => Scale(1.0 / fresh.max(1) as f64) * self.of_change(),
            _ => none.clone(),
        };
        let repeats = self.drift == Drift::GlobalMemory { fresh: 0 };
        let slope = self.jacobian * self.v1 + self.v1 * self.jacobian.transpose();
        let (mut steps, mut push) = (Steps::new(jacobian, eta, own), vec![0.0; d]);
        for h in 0..setting.local_steps {
            work::charge(7.0 * (d as f64).powi(3))?;
            let mut q = squared(&steps.sum, &drift);
            if self.is_independent {
                q += &steps.own;
                q +=
                    if is_leading { Scale(h as f64 * eta * eta) * &slope } else { Scale(eta) * (squared(&steps.power, self.v1) - self.v1) };
                if repeats {
                    let twice = Scale(1.0 - p) * &steps.sum - &steps.last;
                    q += squared(&twice, own) - squared(&steps.last, own);
                }
            }
            push = linalg::mat_vec(&steps.step, &push);
            linalg::add_scaled(&mut push, 0.5 * eta, &curvature.bend(&q));
            steps.advance()?;
        }
        Ok(match self.drift {
            Drift::ControlVariate { .. } => (linalg::solve(&steps.sum, &push)?, -self.jacobian),
            Drift::GlobalMemory { .. } => (push, -&steps.sum * self.mean_jacobian),
            _ => (push, -&steps.sum * self.jacobian),
        })
    }
}
