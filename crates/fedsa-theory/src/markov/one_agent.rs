//! One agent under Markov samples: exact.
//!
//! With `m_k(i) = E[u_k 1{s_k = i}]` and `S_k(i) = E[u_k u_k^T 1{s_k = i}]` a step is a linear map of `(m(i), S(i), pi_i)` over the
//! states i. For one agent FedLSA, FedHSA and SCAFFLSA are the same. The error at the start of a round is the error after all steps of
//! the round before, for any H.

use super::registers::{Instruction, RoundMap};
use super::stationary::CellMap;
use super::{MarkovAgent, MarkovFloor};
use crate::symmetric::packed_len;
use fedsa::error::{Result, require};
use fedsa::sampling::ChainStart;

/// The exact mean and second moment of one agent's error. Each step takes the mean of `batch` consecutive samples, over which the
/// chain moves `batch` times.
///
/// Cost of a step: `2 nnz(P) d^3` operations for each sample. The floor solves for K d and then `K d (d+1)/2` unknowns.
#[derive(Debug, Clone)]
pub struct OneAgent {
    step: RoundMap,
}

impl OneAgent {
    /// One agent with steps of size eta.
    ///
    /// # Errors
    /// When eta is not positive and finite, or the batch is 0 or above 10^6.
    pub fn new(agent: &MarkovAgent, eta: f64, batch: u64) -> Result<Self> {
        require(eta > 0.0 && eta.is_finite(), "step_size", eta, "a positive number")?;
        super::check_samples(1, batch)?;
        let (steps, registers) = step(0, 0, 1, eta, batch);
        Ok(Self { step: RoundMap::new(&[agent], 1, registers.max(1), steps, false) })
    }

    /// The number of unknowns of the floor's second moments, `K d (d+1)/2`.
    pub fn unknowns(agent: &MarkovAgent) -> usize {
        agent.states.saturating_mul(packed_len(agent.dim))
    }

    pub(super) fn map(&self) -> &dyn CellMap {
        &self.step
    }

    /// The approximate multiplications of a step of the second moments, one per nanosecond.
    pub(crate) fn work(&self) -> f64 {
        self.map().second_work()
    }

    /// The floor of a chain that starts from the stationary law, which matters for periodic chains only.
    ///
    /// # Errors
    /// When the mean-square error diverges (r2 >= 1; names r2), or a linear solve does not converge.
    pub fn floor(&self) -> Result<MarkovFloor> {
        self.map().floor()
    }

    /// r2, the spectral radius of the second moment's map `S -> sum_i P_ij B S(i) B^T`. The floor exists if r2 < 1; `r1^2 <= r2`.
    ///
    /// # Errors
    /// When the leading eigenvalue does not converge.
    pub fn r2(&self) -> Result<f64> {
        self.map().second_radius()
    }

    /// The error after each of `steps` steps (ascending), from `offset = theta_0 - theta*` (d).
    ///
    /// # Errors
    /// When steps are not in ascending order, shapes differ, or the start is no state of the closed class.
    pub fn curve(&self, offset: &[f64], start: ChainStart, steps: &[u64]) -> Result<Vec<MarkovFloor>> {
        let d = self.step.dim();
        require(offset.len() == d, "theta_0", offset.len(), &format!("{d} numbers"))?;
        let q = self.step.start_law(start)?;
        self.map().curve(self.map().start(offset, &q), steps)
    }
}

/// One local step of an agent on register `at`, a mean of `batch` samples. It may use registers from `spare` on; the second result is
/// the number of registers needed.
pub(super) fn step(agent: usize, at: usize, spare: usize, eta: f64, batch: u64) -> (Vec<Instruction>, usize) {
    if batch == 1 {
        return (vec![Instruction::Sample { agent, into: at, at, scale: eta }], 0);
    }
    let mut steps = vec![Instruction::Combine { into: spare, terms: Vec::new() }];
    let sample = Instruction::Sample { agent, into: spare, at, scale: eta / batch as f64 };
    steps.extend((0..batch).map(|_| sample.clone()));
    steps.push(Instruction::Combine { into: at, terms: vec![(1.0, at), (1.0, spare)] });
    (steps, spare + 1)
}
