//! The server half of federated LSTD: the sum of all systems that arrived, and its solution.

use super::{Ask, Next, Participation, Received, Server};
use crate::error::Result;
use crate::linalg;
use crate::message::{Message, Part};
use crate::saved::{packed, unpacked};

/// Adds up what arrives of the agents' systems, and solves.
#[derive(Debug, Clone)]
pub struct LstdServer {
    /// `theta_t`, d components.
    pub theta: Vec<f64>,
    /// The sum over rounds of the weighted systems that arrived: A row by row, then b; d (d + 1) numbers.
    pub sum: Vec<f64>,
    /// Who takes part.
    pub participation: Participation,
}

impl Server for LstdServer {
    fn open(&mut self, t: u64) -> Ask {
        Ask { to: self.participation.of(t), down: Message { round: t, exchange: 0, parts: Vec::new() }, own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let d = self.theta.len();
        // Nothing new: in the first rounds of a link that is late there is nothing to solve.
        if got.sum(Part::System).iter().all(|x| *x == 0.0) {
            return Next::Done { tell: None };
        }
        self.sum.iter_mut().zip(got.sum(Part::System)).for_each(|(sum, x)| *sum += x / got.asked);
        let (a, b) = self.sum.split_at(d * d);
        self.theta = linalg::solve_or_least(&linalg::from_rows(d, d, a), b);
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.sum))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.sum) = unpacked(state)?;
        Ok(())
    }
}
