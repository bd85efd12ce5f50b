//! The history of a server rule: pairs of vectors, whose differences give the curvature.

use std::collections::VecDeque;

use fedsa::linalg::{dot, go_along};
use serde::{Deserialize, Serialize};

/// A step s and the difference y of the gradients at its ends, or an iterate and its residual.
pub type StepPair = (Vec<f64>, Vec<f64>);

/// The smallest cosine of the angle between s and y of a usable pair. For an objective of condition number kappa the cosine is at least
/// `2 sqrt(kappa) / (1 + kappa)`. Pairs of all kappa up to 1e20 pass, and pairs from rounding errors do not.
const MIN_COSINE: f64 = 1e-10;

/// Whether the curvature along s is positive: `s^T y > 0`, beyond rounding errors.
pub fn is_curved(s: &[f64], y: &[f64]) -> bool {
    dot(s, y) > MIN_COSINE * (dot(s, s) * dot(y, y)).sqrt()
}

/// Pairs, older ones first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The pairs.
    pub pairs: VecDeque<StepPair>,
}

impl History {
    /// Adds a pair, and keeps the `most` newest ones.
    pub fn push(&mut self, pair: StepPair, most: usize) {
        if self.pairs.len() >= most {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
    }

    /// `s^T y / y^T y` of the latest pair, the scale of an inverse Hessian that is a multiple of the identity.
    pub fn scale(&self) -> Option<f64> {
        self.pairs.back().map(|(s, y)| dot(s, y) / dot(y, y))
    }

    /// The first of the two loops over pairs (s, y) that multiply a vector by an inverse Hessian (Nocedal and Wright 2006, algorithm 7.4):
    /// turns g into q, and returns the coefficients of the pairs, latest first.
    pub fn first_loop(&self, q: &mut [f64]) -> Vec<f64> {
        let one = |(s, y): &StepPair| {
            let a = dot(s, q) / dot(s, y);
            go_along(q, -a, y);
            a
        };
        self.pairs.iter().rev().map(one).collect()
    }

    /// The second loop, from r, the initial inverse Hessian times q.
    pub fn second_loop(&self, r: &mut [f64], shares: &[f64]) {
        for ((s, y), a) in self.pairs.iter().zip(shares.iter().rev()) {
            let b = dot(y, r) / dot(s, y);
            go_along(r, a - b, s);
        }
    }
}
