//! The mean-square error under Markov samples (in no source).
//!
//! # Conventions
//!
//! The chain of agent c is in state `s_k` before step k and moves to `s_{k+1}`; the sample of step k belongs to the move `(s_k,
//! s_{k+1})`. Samples of states (the switch) ignore where the move leads, samples of transitions (TD) do not. Only the number K of
//! *states* counts. Chains continue across rounds and are independent of each other.
//!
//! `u = theta - theta*` with the global root theta*; a move has `A` and `w = A theta* - b`, so that a step is `u <- u - eta (A u + w)`.
//! Its stationary means are `Abar_c` and `wbar_c`; `wbar_c` is not 0 if agents differ, and `sum p_c wbar_c = 0`. Errors refer to
//! `theta_t` at the start of a round.
//!
//! # What is exact
//!
//! | module | reach | kind of result |
//! | --- | --- | --- |
//! | [`one_agent`] | N = 1, batches too | exact |
//! | [`joint`] | the product of the agents' K up to some thousands | exact |
//! | [`closure`] | any number of agents; SCAFFLSA with (N+1) d up to about 60 | closure: relative error about `eps^2`, usually far below 1% |
//! | [`leading_order`] | all | leading order in eta: relative error O(eta), often 10 to 50% at steps in use |
//!
//! In some settings a method equals another, or a closure neglects nothing. These are computed and labelled accordingly:
//!
//! | setting (all agents, clear link) | equals |
//! | --- | --- |
//! | one agent, any method and H | FedLSA: [`one_agent`], exact |
//! | H = 1, FedHSA and SCAFFLSA | FedLSA: the drifts sum to 0 over the agents |
//! | matrices that are not random, any method | the closure is exact (`eps^2 = 0`) |
//! | independent samples of states, FedLSA and SCAFFLSA | the closure is exact (`eps^2 = 0`) |
//!
//! Two settings have no results under Markov samples. FedLin with H = 1 takes a second sample in a round, which moves the chain once
//! more (with independent samples it is FedLSA in law). SCAFFLSA with random talk of probability 1 is FedLSA, but is not recognised.
//! The closure of FedHSA is exact for independent samples too, but its `eps^2` counts the sample that it holds for H steps.
//!
//! A second moment that is split by the state of one agent only has no closed recursion. Given theta_t, which averages the pasts of all
//! agents, the agents' states are dependent.

pub mod chain;
pub mod closure;
pub mod joint;
pub mod leading_order;
pub mod one_agent;
mod registers;
mod stationary;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use chain::{AgentClass, MarkovAgent, Move};

use serde::{Deserialize, Serialize};

use crate::RoundSetting;
use fedsa::error::{Result, require};
use fedsa::linalg;

/// The methods with results under Markov samples. All are the same for one agent, and for one local step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkovRule {
    /// H local steps and the mean of the models.
    FedLsa,
    /// H local steps with the drift `G - g_c(theta_t, z_c0)`, where G is the mean of the agents' first directions.
    FedHsa,
    /// H local steps with the drift `xi_c`, a control variate with a fixed period.
    Scafflsa,
}

/// The stationary mean and second moment of `theta_t - theta*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MarkovFloor {
    /// The bias `E theta_t - theta*` (d).
    pub bias: Vec<f64>,
    /// The mean-square error `E ||theta_t - theta*||^2`.
    pub mse: f64,
}

impl MarkovFloor {
    /// The noise `E ||theta_t - E theta_t||^2`.
    pub fn noise(&self) -> f64 {
        self.mse - linalg::norm_sq(&self.bias)
    }
}

/// The largest number of samples of one agent in a round.
const MAX_SAMPLES: u64 = 1_000_000;

/// Checks that an agent's samples of a round are few enough to follow one by one.
fn check_samples(steps: u64, batch: u64) -> Result<()> {
    require(batch >= 1, "batch", batch, "at least 1")?;
    let samples = steps.saturating_mul(batch);
    require(samples <= MAX_SAMPLES, "local_steps", format!("{samples} samples a round"), &format!("at most {MAX_SAMPLES} samples a round"))
}

/// Checks the agents' shapes and weights, the number of local steps, and that the server's step is 1.
fn check(classes: &[AgentClass], setting: &RoundSetting) -> Result<()> {
    let step = setting.server_step;
    check_samples(setting.local_steps, 1)?;
    require(step == 1.0, "server_step", step, "1: the mean-square error under Markov samples is not known for others")?;
    let agents: usize = classes.iter().map(|c| c.count).sum();
    require(agents > 0, "agents", agents, "at least 1")?;
    let dims: Vec<usize> = classes.iter().map(|c| c.agent.dim).collect();
    require(dims.iter().all(|d| *d == dims[0]), "agents", format!("dimensions {dims:?}"), "agents of one dimension")?;
    let sum: f64 = classes.iter().map(|c| c.agent.weight * c.count as f64).sum();
    require((sum - 1.0).abs() < 1e-9, "weights", format!("a sum of {sum}"), "weights that sum to 1")
}
