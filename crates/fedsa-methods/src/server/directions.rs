//! Directions from mean gradients: the gradient, Nesterov's, and quasi-Newton directions.

use fedsa::error::Result;
use fedsa::linalg::{along, dot, minus};
use fedsa::saved::{packed, unpacked};
use serde::{Deserialize, Serialize};

use super::descent::Direction;
use super::history::{History, StepPair, is_curved};

/// `-g`: gradient descent with a fixed step, and methods whose agents compute the direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gradient;

impl Direction for Gradient {
    fn direction(&mut self, _: &[f64], g: &[f64], _: bool) -> Vec<f64> {
        g.iter().map(|g| -g).collect()
    }
}

/// The smallest share of the longest step at which a search may begin.
const SHORTEST: f64 = 1e-90;

/// The first trial step after a search that ended at the share `last` of the step: the next one it would have tried.
fn shorter(step: f64, last: f64) -> f64 {
    (0.5 * last * step).max(SHORTEST.min(step))
}

/// The share of the longest step along -g at which a search begins: 1, unless even the smallest trial step was too long. Without this state
/// a failed search would fail forever, because its point and direction stay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Scale(f64);

impl Default for Scale {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Scale {
    /// `-longest scale g`.
    fn direction(self, longest: f64, g: &[f64]) -> Vec<f64> {
        g.iter().map(|g| -longest * self.0 * g).collect()
    }

    /// After a step along -g: if the first trial step was good, the next search begins with a longer one.
    fn moved(&mut self, step: f64) {
        if step == 1.0 {
            self.0 = (2.0 * self.0).min(1.0);
        }
    }

    /// After a search along -g without a step. Gradients and losses of different agents say nothing about the length.
    fn failed(&mut self, last: f64, is_whole: bool) {
        if is_whole {
            self.0 = shorter(self.0, last);
        }
    }
}

/// `-longest g` with backtracking: gradient descent.
#[derive(Debug, Clone, PartialEq)]
pub struct Steepest {
    /// The longest step.
    longest: f64,
    scale: Scale,
}

impl Steepest {
    /// The rule before its first round.
    pub fn new(longest: f64) -> Self {
        Self { longest, scale: Scale::default() }
    }
}

impl Direction for Steepest {
    fn direction(&mut self, _: &[f64], g: &[f64], _: bool) -> Vec<f64> {
        self.scale.direction(self.longest, g)
    }

    fn unit(&self) -> Option<f64> {
        Some(self.scale.0)
    }

    fn moved(&mut self, _: &[f64], _: &[f64], step: f64, _: bool) {
        self.scale.moved(step);
    }

    fn failed(&mut self, _: &[f64], last: f64, is_whole: bool) {
        self.scale.failed(last, is_whole);
    }

    fn state(&self) -> Vec<u8> {
        packed(&self.scale)
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.scale = unpacked(state)?;
        Ok(())
    }
}

/// The rule for Nesterov's momentum beta.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Momentum {
    /// A constant.
    Constant(f64),
    /// `(1 - sqrt(mu s)) / (1 + sqrt(mu s))` with the step s, for strongly convex objectives (Nesterov 2004, eq. 2.2.22).
    Convexity(f64),
    /// `(k_t - 1) / k_{t+1}`, `k_{t+1} = (1 + sqrt(1 + 4 k_t^2)) / 2`, and k restarts at 1 if the iterate moves against the gradient
    /// (O'Donoghue and Candes 2015, the gradient scheme).
    Restarted,
}

/// Accelerated gradients: `x_{t+1} = y_t - s grad f(y_t)`, `y_{t+1} = x_{t+1} + beta (x_{t+1} - x_t)`.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceleratedDirection {
    /// The rule for beta.
    pub momentum: Momentum,
    /// The step s; a line search with the losses of all agents shortens it for good.
    step: f64,
    /// k of [`Momentum::Restarted`].
    k: f64,
    /// `y_t`; empty before the first round, where it equals `x_0`.
    y: Vec<f64>,
    /// The gradient of this round; empty before the first.
    gradient: Vec<f64>,
}

impl AcceleratedDirection {
    /// The rule before its first round, with the step s or the longest trial step.
    pub fn new(momentum: Momentum, step: f64) -> Self {
        Self { momentum, step, k: 1.0, y: Vec::new(), gradient: Vec::new() }
    }
}

impl Direction for AcceleratedDirection {
    fn point(&self, theta: &[f64]) -> Vec<f64> {
        if self.y.is_empty() { theta.to_vec() } else { self.y.clone() }
    }

    fn direction(&mut self, _: &[f64], g: &[f64], _: bool) -> Vec<f64> {
        self.gradient = g.to_vec();
        g.iter().map(|g| -self.step * g).collect()
    }

    /// Gradients are at extrapolated points, and a step that was too long is shortened for good.
    fn unit(&self) -> Option<f64> {
        None
    }

    /// The loss rises along the extrapolation: retry from the iterate itself. If it also rises from there, every step was too long.
    fn failed(&mut self, theta: &[f64], last: f64, is_whole: bool) {
        if is_whole && (self.y.is_empty() || self.y == theta) {
            self.step = shorter(self.step, last);
        }
        (self.y, self.k) = (theta.to_vec(), 1.0);
    }

    fn moved(&mut self, from: &[f64], to: &[f64], step: f64, is_whole: bool) {
        // Losses of different agents say nothing about later steps.
        if is_whole {
            self.step *= step;
        }
        let by = minus(to, from);
        let beta = match self.momentum {
            Momentum::Constant(beta) => beta,
            Momentum::Convexity(mu) => {
                let root = (mu * self.step).min(1.0).sqrt();
                (1.0 - root) / (1.0 + root)
            }
            Momentum::Restarted if dot(&self.gradient, &by) > 0.0 => {
                self.k = 1.0;
                0.0
            }
            Momentum::Restarted => {
                let next = 0.5 * (1.0 + (4.0 * self.k * self.k + 1.0).sqrt());
                let beta = (self.k - 1.0) / next;
                self.k = next;
                beta
            }
        };
        self.y = along(to, beta, &by);
    }

    fn state(&self) -> Vec<u8> {
        packed(&(self.step, self.k, &self.y, &self.gradient))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.step, self.k, self.y, self.gradient) = unpacked(state)?;
        Ok(())
    }
}

/// The last point with its gradient, for curvature pairs `s = x_{t+1} - x_t`, `y = g_{t+1} - g_t`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Last {
    x: Vec<f64>,
    g: Vec<f64>,
}

impl Last {
    /// The pair from the last point to this one, if the curvature along it is positive. Both gradients must include every agent, because
    /// the difference of means over different agents is no curvature. Stores the current point.
    fn pair(&mut self, x: &[f64], g: &[f64], is_whole: bool) -> Option<StepPair> {
        if !is_whole {
            *self = Self::default();
            return None;
        }
        let last = std::mem::replace(self, Self { x: x.to_vec(), g: g.to_vec() });
        let (s, y) = (minus(x, &last.x), minus(g, &last.g));
        is_curved(&s, &y).then_some((s, y))
    }
}

/// The BFGS method with the inverse Hessian W as a d x d matrix (Nocedal and Wright 2006, eq. 6.17):
/// `W <- (I - r s y^T) W (I - r y s^T) + r s s^T`, `r = 1 / s^T y`, from `W = (s^T y / y^T y) I` before the first pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BfgsDirection {
    /// W, d^2 numbers; empty before the first pair.
    inverse: Vec<f64>,
    last: Last,
    /// For searches along -g, before the first pair.
    scale: Scale,
}

/// `W <- (I - r s y^T) W (I - r y s^T) + r s s^T`, expanded with `u = W y`:
/// `W - r (s u^T + u s^T) + (r^2 y^T u + r) s s^T`.
fn update_inverse(w: &mut [f64], s: &[f64], y: &[f64]) {
    let d = s.len();
    let u = times(w, y);
    let r = 1.0 / dot(s, y);
    let c = r * r * dot(y, &u) + r;
    for (j, row) in w.chunks_mut(d).enumerate() {
        for (i, w) in row.iter_mut().enumerate() {
            // Symmetric in (i, j), so that W stays exactly symmetric.
            *w += c * (s[i] * s[j]) - r * (s[i] * u[j] + u[i] * s[j]);
        }
    }
}

/// `W v` of a d x d matrix, row by row.
fn times(w: &[f64], v: &[f64]) -> Vec<f64> {
    w.chunks(v.len()).map(|row| dot(row, v)).collect()
}

impl Direction for BfgsDirection {
    fn direction(&mut self, x: &[f64], g: &[f64], is_whole: bool) -> Vec<f64> {
        let d = x.len();
        if let Some((s, y)) = self.last.pair(x, g, is_whole) {
            if self.inverse.is_empty() {
                let scale = dot(&s, &y) / dot(&y, &y);
                self.inverse = (0..d * d).map(|at| if at % (d + 1) == 0 { scale } else { 0.0 }).collect();
            }
            update_inverse(&mut self.inverse, &s, &y);
        }
        if self.inverse.is_empty() {
            return self.scale.direction(1.0, g);
        }
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        times(&self.inverse, &minus)
    }

    /// The next gradient corrects directions from pairs, but not directions along -g.
    fn unit(&self) -> Option<f64> {
        self.inverse.is_empty().then_some(self.scale.0)
    }

    fn moved(&mut self, _: &[f64], _: &[f64], step: f64, _: bool) {
        if self.inverse.is_empty() {
            self.scale.moved(step);
        }
    }

    /// Without a step the direction is useless, so the matrix restarts.
    fn failed(&mut self, _: &[f64], last: f64, is_whole: bool) {
        if self.inverse.is_empty() {
            self.scale.failed(last, is_whole);
        }
        *self = Self { scale: self.scale, ..Self::default() };
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.last, self.scale, &self.inverse))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.last, self.scale, self.inverse) = unpacked(state)?;
        Ok(())
    }
}

/// The L-BFGS method: the last m pairs, and the two loops of Liu and Nocedal (1989) from `(s^T y / y^T y) I` with the latest
/// pair.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LbfgsDirection {
    /// The number m of pairs.
    pub memory: usize,
    /// The pairs (s, y).
    history: History,
    last: Last,
    /// For searches along -g, without pairs.
    scale: Scale,
}

impl LbfgsDirection {
    /// The rule before its first round; it keeps m pairs.
    pub fn new(memory: usize) -> Self {
        Self { memory, ..Self::default() }
    }
}

impl Direction for LbfgsDirection {
    fn direction(&mut self, x: &[f64], g: &[f64], is_whole: bool) -> Vec<f64> {
        if let Some(pair) = self.last.pair(x, g, is_whole) {
            self.history.push(pair, self.memory);
        }
        let Some(scale) = self.history.scale() else { return self.scale.direction(1.0, g) };
        let mut p: Vec<f64> = g.iter().map(|g| -g).collect();
        let shares = self.history.first_loop(&mut p);
        p.iter_mut().for_each(|p| *p *= scale);
        self.history.second_loop(&mut p, &shares);
        p
    }

    /// The next gradient corrects directions from pairs, but not directions along -g.
    fn unit(&self) -> Option<f64> {
        self.history.pairs.is_empty().then_some(self.scale.0)
    }

    fn moved(&mut self, _: &[f64], _: &[f64], step: f64, _: bool) {
        if self.history.pairs.is_empty() {
            self.scale.moved(step);
        }
    }

    /// Without a step the direction is useless, so the pairs are dropped.
    fn failed(&mut self, _: &[f64], last: f64, is_whole: bool) {
        if self.history.pairs.is_empty() {
            self.scale.failed(last, is_whole);
        }
        *self = Self { scale: self.scale, ..Self::new(self.memory) };
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.last, self.scale, &self.history))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.last, self.scale, self.history) = unpacked(state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
