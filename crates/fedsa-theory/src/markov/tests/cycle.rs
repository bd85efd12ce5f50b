//! One agent whose chain is a deterministic cycle, such as a replayed log: exact, from its periodic orbits.
//!
//! The maps over states hold too; tests compare them with the orbits. The state alone decides the affine map of a step, so an orbit of
//! L steps has the error `u = Phi u + phi` at its start, d x d.

use faer::prelude::*;

use crate::map::spectral_radius;
use crate::markov::{MarkovAgent, MarkovFloor};
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};

/// The orbits of a cycle.
#[derive(Debug, Clone)]
pub struct Cycle {
    /// The spectral radius of the mean's map per step. The second moment's map has its square.
    pub r1: f64,
    /// The floor of a start drawn from the stationary law, if r1 < 1.
    pub floor: Option<MarkovFloor>,
}

impl Cycle {
    /// The orbits of an agent whose states have one move each. A step takes the mean of `batch` samples, so there are several orbits if
    /// K and the batch have a common divisor.
    pub fn new(agent: &MarkovAgent, eta: f64, batch: u64) -> Result<Self> {
        let (k, d) = (agent.states, agent.dim);
        let mut seen = vec![false; k];
        let (mut r1, mut bias, mut mse) = (0.0f64, vec![0.0; d], 0.0);
        for start in 0..k {
            if seen[start] {
                continue;
            }
            // The product of the steps' matrices, scaled to norm 1 so that long logs do not underflow.
            let (mut product, mut log, mut shift) = (Mat::<f64>::identity(d, d), 0.0, vec![0.0; d]);
            let (mut steps, mut at) = (0, start);
            while !std::mem::replace(&mut seen[at], true) {
                let (matrix, vector, next) = step(agent, at, eta, batch);
                product = &matrix * &product;
                let size = product.norm_l2();
                if size > 0.0 {
                    product = Scale(1.0 / size) * product;
                    log += size.ln();
                }
                let moved = linalg::mat_vec(&matrix, &shift);
                shift = moved.iter().zip(&vector).map(|(x, v)| x + v).collect();
                (steps, at) = (steps + 1, next);
            }
            r1 = r1.max(((spectral_radius(&product)?.ln() + log) / f64::from(steps)).exp());
            if r1 >= 1.0 {
                continue;
            }
            let mut u = linalg::solve(&(Mat::<f64>::identity(d, d) - Scale(log.exp()) * product), &shift)?;
            for _ in 0..steps {
                bias.iter_mut().zip(&u).for_each(|(bias, u)| *bias += u / k as f64);
                mse += linalg::norm_sq(&u) / k as f64;
                let (matrix, vector, next) = step(agent, at, eta, batch);
                u = linalg::mat_vec(&matrix, &u).iter().zip(&vector).map(|(x, v)| x + v).collect();
                at = next;
            }
        }
        Ok(Self { r1, floor: (r1 < 1.0).then_some(MarkovFloor { bias, mse }) })
    }
}

/// A step from a state: its matrix, its shift, and the state after it.
fn step(agent: &MarkovAgent, from: usize, eta: f64, batch: u64) -> (Mat<f64>, Vec<f64>, usize) {
    let d = agent.dim;
    let (mut matrix, mut shift, mut at) = (Mat::<f64>::identity(d, d), vec![0.0; d], from);
    let share = eta / batch as f64;
    for _ in 0..batch {
        // Moves are sorted by the state that they leave, one for each.
        let m = &agent.moves[at];
        matrix -= Scale(share) * &m.a;
        shift.iter_mut().zip(&m.w).for_each(|(shift, w)| *shift -= share * w);
        at = m.to as usize;
    }
    (matrix, shift, at)
}
