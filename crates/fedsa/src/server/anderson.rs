//! Moves theta after each round of another server rule: Anderson acceleration with a safeguard.

use std::collections::VecDeque;

use super::{Ask, Next, Own, Received, Server};
use crate::error::Result;
use crate::kernel::dot;
use crate::linalg::norm_sq;
use crate::message::{Body, Part};
use crate::saved::{packed, unpacked};
use serde::{Deserialize, Serialize};

/// The base's server, and the iterates and residuals of its last rounds.
pub struct AndersonServer {
    /// The rule whose rounds are the map G.
    base: Box<dyn Server>,
    /// m: the largest number of differences.
    memory: usize,
    /// How often the smallest residual a residual may be.
    safeguard: f64,
    /// r.
    ridge: f64,
    /// The rounds that are combined, the newest last, at most m + 1.
    history: VecDeque<Point>,
    /// Whether theta was moved, and the residual there is not yet known.
    is_moved: bool,
    /// Whether all answers of the round under way arrived so far.
    is_whole: bool,
}

/// A round of the map.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Point {
    /// `theta_i`.
    theta: Vec<f64>,
    /// `f_i = G(theta_i) - theta_i`.
    residual: Vec<f64>,
}

impl Point {
    fn size(&self) -> f64 {
        norm_sq(&self.residual).sqrt()
    }

    /// `G(theta_i)`.
    fn image(&self) -> Vec<f64> {
        self.theta.iter().zip(&self.residual).map(|(x, f)| x + f).collect()
    }
}

fn minus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x - y).collect()
}

impl AndersonServer {
    /// Accelerates the rounds of `base`, which must accept [`Server::move_to`].
    pub fn new(base: Box<dyn Server>, memory: usize, safeguard: f64, ridge: f64) -> Self {
        Self { base, memory, safeguard, ridge, history: VecDeque::new(), is_moved: false, is_whole: true }
    }

    /// `theta_{t+1}`, if it is not `G(theta_t)`.
    fn next(&mut self, now: Point) -> Option<Vec<f64>> {
        let size = now.size();
        if !size.is_finite() {
            return None;
        }
        let was_moved = std::mem::take(&mut self.is_moved);
        let best = self.history.iter().min_by(|a, b| a.size().total_cmp(&b.size())).cloned();
        if let Some(best) = best.filter(|best| size > self.safeguard * best.size()) {
            self.history.clear();
            let image = was_moved.then(|| best.image());
            self.history.push_back(if was_moved { best } else { now });
            return image;
        }
        if self.history.len() > self.memory {
            self.history.pop_front();
        }
        self.history.push_back(now);
        let next = self.combined()?;
        self.is_moved = next.iter().all(|x| x.is_finite());
        self.is_moved.then_some(next)
    }

    /// `g_t - (X + F) gamma`; `None` without usable differences.
    fn combined(&self) -> Option<Vec<f64>> {
        let now = self.history.back()?;
        let (d, k) = (now.theta.len(), self.history.len() - 1);
        // Orthonormal columns of [F; r I], each column of F of length 1, the newest first; R; what each column moves theta by.
        let mut basis: Vec<Vec<f64>> = Vec::new();
        let (mut upper, mut moves) = (Vec::new(), Vec::new());
        for j in (0..k).rev() {
            let (before, after) = (&self.history[j], &self.history[j + 1]);
            let mut column = minus(&after.residual, &before.residual);
            let length = norm_sq(&column).sqrt();
            if length == 0.0 {
                continue;
            }
            let mut change = minus(&after.theta, &before.theta);
            change.iter_mut().zip(&column).for_each(|(x, f)| *x = (*x + f) / length);
            column.iter_mut().for_each(|f| *f /= length);
            column.resize(d + k, 0.0);
            column[d + j] = self.ridge;
            let mut above = vec![0.0; basis.len()];
            // Twice: once leaves errors of the size of the condition number.
            for _ in 0..2 {
                for (q, above) in basis.iter().zip(&mut above) {
                    let part = dot(q, &column);
                    *above += part;
                    column.iter_mut().zip(q).for_each(|(f, q)| *f -= part * q);
                }
            }
            let rest = norm_sq(&column).sqrt();
            if rest <= f64::EPSILON {
                continue;
            }
            above.push(rest);
            basis.push(column.iter().map(|f| f / rest).collect());
            upper.push(above);
            moves.push(change);
        }
        if basis.is_empty() {
            return None;
        }
        let mut gamma: Vec<f64> = basis.iter().map(|q| dot(&q[..d], &now.residual)).collect();
        for j in (0..gamma.len()).rev() {
            gamma[j] /= upper[j][j];
            let x = gamma[j];
            gamma[..j].iter_mut().zip(&upper[j]).for_each(|(y, r)| *y -= r * x);
        }
        let mut next = now.image();
        for (gamma, change) in gamma.iter().zip(&moves) {
            next.iter_mut().zip(change).for_each(|(x, change)| *x -= gamma * change);
        }
        Some(next)
    }
}

impl Server for AndersonServer {
    fn open(&mut self, t: u64) -> Ask {
        self.is_whole = true;
        self.base.open(t)
    }

    fn own(&self, t: u64) -> Option<Own> {
        self.base.own(t)
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        self.is_whole &= got.arrived.iter().all(|arrived| *arrived);
        let theta = self.base.theta().to_vec();
        let next = self.base.receive(got);
        // With lost answers the round is one of another map: the base's step is taken. That the iterate before was accelerated
        // is not forgotten: its harm may show only in the next whole round (floors over lossy links are larger otherwise).
        if self.is_whole && matches!(next, Next::Done { .. }) {
            let residual = minus(self.base.theta(), &theta);
            if let Some(theta) = self.next(Point { theta, residual }) {
                self.base.move_to(theta);
            }
        }
        next
    }

    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        self.base.accepts(exchange, parts)
    }

    fn theta(&self) -> &[f64] {
        self.base.theta()
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.history, self.is_moved, self.is_whole, self.base.state()))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let (history, is_moved, is_whole, base): (_, _, _, Vec<u8>) = unpacked(state)?;
        self.base.restore(&base)?;
        (self.history, self.is_moved, self.is_whole) = (history, is_moved, is_whole);
        Ok(())
    }
}
