//! DONE: like GIANT, with Richardson's iteration for the agents' own Newton directions.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t)                                            (exchange 0)
//!            d_c <- d_c - alpha (H_c d_c + g), R times from 0,  H_c = Hess f_c(theta_t)   (exchange 1)
//!            theta_{t+1} = theta_t + eta sum_c p_c d_c
//! ```
//! `d_c` tends to `-H_c^-1 g` if `alpha < 2 / lambda_max(H_c)`: its error is `(I - alpha H_c)^R H_c^-1 g`. Two exchanges per round, without
//! line search. Without an alpha each agent estimates its own, which is not in the source.
//!
//! An agent with rows of at most 1,000 columns forms `H_c` if that is faster than the products with its rows. It then multiplies by the
//! matrix, at most 2 d^2 numbers while it answers. The ledger counts the products.
//!
//! Source: Dinh, Tran, Nguyen, Bao, Rezaei Balef, Zhou and Zomaya (2022), algorithm 1 (\[139\] of \[T\], which names it in sections 2.1 and
//! 2.6, without a figure).
//!
//! Over links: a missing direction counts as zero and makes the step shorter. Over the air sums are enough. Refused over `delay` and
//! `late`.

use fedsa::error::{Result, require};
use serde::{Deserialize, Serialize};

use super::descent::{self, DescentSettings};
use crate::local::descent::LocalSolve;
use crate::server::descent::{Direction, Length};
use crate::server::directions::Gradient;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Done {
    /// Step below 2 / L, L the largest Hessian eigenvalue; estimated by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub richardson_step: Option<f64>,
    /// Steps of the iteration.
    #[serde(default = "twenty")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub richardson_steps: usize,
    /// Server step size `eta`.
    #[serde(default = "super::one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub step_size: f64,
}

impl Default for Done {
    fn default() -> Self {
        Self { richardson_step: None, richardson_steps: twenty(), step_size: super::one() }
    }
}

fedsa::settings::setters! { Done {
    with_richardson_step(richardson_step: impl Into<Option<f64>>) = richardson_step.into();
    with_richardson_steps(richardson_steps: usize) = richardson_steps;
    with_step_size(step_size: f64) = step_size;
} }

fn twenty() -> usize {
    20
}

descent::moves_along!(Done);

impl DescentSettings for Done {
    fn check_ranges(&self) -> Result<()> {
        self.richardson_step.map_or(Ok(()), |step| descent::check_positive("richardson_step", step))?;
        require((1..=1_000_000).contains(&self.richardson_steps), "richardson_steps", self.richardson_steps, "between 1 and 1000000")?;
        descent::check_positive("step_size", self.step_size)
    }

    /// Unused: the agents compute the direction.
    fn rule(&self) -> Box<dyn Direction> {
        Box::new(Gradient)
    }

    fn length(&self) -> Length {
        Length::Fixed(self.step_size)
    }

    fn local_solve(&self, _: usize) -> Option<LocalSolve> {
        Some(LocalSolve::Richardson { size: self.richardson_step, steps: self.richardson_steps })
    }
}
