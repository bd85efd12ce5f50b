//! Closed forms for methods on linear problems.
//!
//! Functions compute numbers from [`Systems`](fedsa::problem::systems::Systems) and [`Moments`](fedsa::problem::systems::Moments),
//! without randomness, and give the same result for any number of threads.
//!
//! One agent's mean operator is `gbar_c(theta) = bbar_c - Abar_c theta`. H local steps of size eta are determined by two matrices
//! ([`phase`]):
//!
//! ```text
//! D_c^H = (I - eta Abar_c)^H            S_c = eta sum_{k<H} (I - eta Abar_c)^k
//! theta_{c,H} = D_c^H theta + S_c (bbar_c + drift) = theta + S_c (gbar_c(theta) + drift)
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | [`phase`] | the mean of H local steps |
//! | [`fedlsa`] | FedLSA's mean iterate, and its limit |
//! | [`stability`] | spectral radii of rounds, and the largest stable step |
//! | [`exact_mse`] | the mean-square error under i.i.d. samples, its bias and its noise |
//! | [`markov`] | the mean-square error under Markov samples |
//! | [`nonlinear`] | nonlinear operators near a root: radii, limits, and floors to leading order |
//! | [`gauss_markov`] | the mean-square error under additive Gauss-Markov noise |
//! | [`link`] | the effect of a link on a round's mean and variance |
//! | [`predict`] | which closed form applies to a method, and its value |
//! | [`privacy`] | errors under the noise of private releases, and plans for a budget |
//! | [`bounds`] | the theorems and corollaries of the sources as functions of a problem |
//! | [`constants`] | the constants in the theorems of \[S\] |
//! | [`fedhsa_bounds`] | the constants of \[F\], and the schedule of its Corollary 1 |
//! | [`shed`] | convergence factors and rates of steps with a few eigenpairs (\[T\] chapter 2) |
//! | [`map`], [`fixed_point`] | spectral radius, trajectory and fixed point of a linear map |
//! | [`work`] | counts of operations, with which computations end at the same place on every machine |
//! | [`tune`] | the settings of methods that reach a mean-square error at the least cost |
//!
//! \[S\] is SCAFFLSA (arXiv 2402.04114), \[F\] is FedHSA.

mod accuracy;
pub mod bounds;
pub mod constants;
pub mod cost;
pub mod exact_mse;
pub mod fedhsa_bounds;
pub mod fedlsa;
pub mod fixed_point;
pub mod gauss_markov;
pub mod link;
pub mod map;
pub mod markov;
pub mod nonlinear;
pub mod phase;
pub mod predict;
pub mod privacy;
pub mod shed;
pub mod stability;
mod symmetric;
pub mod tune;
pub mod unknown;
pub mod work;

#[cfg(test)]
mod testing;

/// Callers keep these values and send them to other threads, so these types own their data.
#[cfg(test)]
const _: () = {
    const fn is_owned<T: Send + Sync + 'static>() {}
    is_owned::<cost::Candidate>();
    is_owned::<exact_mse::Evolution>();
    is_owned::<predict::FloorCache>();
    is_owned::<predict::Forecast>();
    is_owned::<predict::MeanSquareRadius>();
    is_owned::<predict::Outlook>();
    is_owned::<predict::Quantity>();
    is_owned::<stability::ControlVariates>();
    is_owned::<tune::Effort>();
    is_owned::<tune::Family>();
    is_owned::<tune::SearchResult>();
};

pub use accuracy::{Accuracy, DOUBTFUL};

use fedsa::error::{Result, require};

/// The settings of a round with a fixed period and a constant step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundSetting {
    /// The local step size eta.
    pub step_size: f64,
    /// The number of local steps H in a round.
    pub local_steps: u64,
    /// The server's step alpha_g on the mean of the agents' changes; 1 in \[S\].
    pub server_step: f64,
}

impl RoundSetting {
    /// `H = local_steps` steps of size `eta = step_size`; the server's step alpha_g is 1.
    ///
    /// # Errors
    /// When the step size is not positive and finite, or `local_steps` is 0.
    pub fn new(step_size: f64, local_steps: u64) -> Result<Self> {
        require(step_size > 0.0 && step_size.is_finite(), "step_size", step_size, "a positive number")?;
        require(local_steps >= 1, "local_steps", local_steps, "at least 1")?;
        Ok(Self { step_size, local_steps, server_step: 1.0 })
    }

    /// The same round with the server's step `alpha_g = server_step`.
    ///
    /// # Errors
    /// When the step is not positive and finite.
    pub fn with_server_step(self, server_step: f64) -> Result<Self> {
        require(server_step > 0.0 && server_step.is_finite(), "server_step", server_step, "a positive number")?;
        Ok(Self { server_step, ..self })
    }

    /// The sum of a round's step sizes, `E = eta H`.
    pub fn span(&self) -> f64 {
        self.step_size * self.local_steps as f64
    }
}
