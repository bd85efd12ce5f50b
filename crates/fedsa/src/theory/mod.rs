//! What theory says about a linear problem, in closed form, and about others near their root.
//!
//! Pure mathematics: [`Systems`](crate::problem::systems::Systems) and
//! [`Moments`](crate::problem::systems::Moments) in, numbers out; no input or
//! output, no randomness, the same result for any number of threads. [`local`] makes such
//! systems of other problems.
//!
//! One agent's mean operator is `gbar_c(theta) = bbar_c - Abar_c theta`. Of H
//! local steps of size eta two matrices are all that remains ([`leg`]):
//!
//! ```text
//! D_c^H = (I - eta Abar_c)^H            S_c = eta sum_{k<H} (I - eta Abar_c)^k
//! theta_{c,H} = D_c^H theta + S_c (bbar_c + drift) = theta + S_c (gbar_c(theta) + drift)
//! ```
//!
//! | module | answers |
//! | --- | --- |
//! | [`leg`] | what H local steps do |
//! | [`fedlsa`] | where FedLSA's mean iterate is, and where it ends |
//! | [`stability`] | whether a setting can work, and the largest step that does |
//! | [`local`] | the same near the root of nonlinear operators |
//! | [`exact_mse`] | the mean-square error under i.i.d. samples, its bias and its noise |
//! | [`link`] | what a link does to a round's mean and variance |
//! | [`predict`] | which of these applies to a method, and what it comes to |
//! | [`constants`] | the constants that the theorems of \[S\] are stated in |
//! | [`scaffnew`] | Theorem B.4 of \[S\], made exact |
//! | [`map`], [`fixed_point`] | spectral radius, trajectory and fixed point of a linear map |
//!
//! \[S\] is SCAFFLSA (arXiv 2402.04114), \[F\] is FedHSA.

pub mod constants;
pub mod exact_mse;
pub mod fedlsa;
pub mod fixed_point;
pub mod leg;
pub mod link;
pub mod local;
pub mod map;
pub mod predict;
pub mod scaffnew;
pub mod stability;
mod symmetric;

#[cfg(test)]
mod testing;

use crate::error::{Result, require};

/// The settings of a round with a fixed period and a constant step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundSetting {
    /// The local step size eta.
    pub step_size: f64,
    /// The number of local steps H between two talks.
    pub local_steps: u64,
    /// The server's step alpha_g on the mean of the agents' changes; 1 in \[S\].
    pub server_step: f64,
}

impl RoundSetting {
    /// `H = local_steps` steps of size `eta = step_size`, the server taking the plain mean (alpha_g = 1).
    ///
    /// # Errors
    /// When the step is not positive and finite, or there is no local step.
    pub fn new(step_size: f64, local_steps: u64) -> Result<Self> {
        require(step_size > 0.0 && step_size.is_finite(), "step_size", step_size, "a positive number")?;
        require(local_steps >= 1, "local_steps", local_steps, "at least 1")?;
        Ok(Self { step_size, local_steps, server_step: 1.0 })
    }

    /// The same round with the server's step alpha_g.
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
