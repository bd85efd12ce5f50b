//! Gradient descent: mean gradients, by a fixed step or with federated backtracking.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t)
//!            theta_{t+1} = theta_t - eta g,   eta fixed, or the first of e, e/2, e/4, .. with
//!            f(theta_t - eta g) <= f(theta_t) - a eta ||g||^2
//! ```
//! If no trial step is short enough, the next round's search begins below the last one. If decreases are below the rounding errors of
//! losses, slopes bound the steps ([`mod@crate::local::line_search`]).
//!
//! On quadratics with eigenvalues in \[mu, L\] and eta = 2 / (L + mu), the error falls by (L - mu) / (L + mu) per round. One exchange per
//! round, two with backtracking. With a fixed step it works over every link but `delay` and `late`; lost messages make the step shorter.
//! Source: Cauchy (1847), Armijo (1966).

use fedsa::error::Result;
use serde::{Deserialize, Serialize};

use super::descent::{self, DescentSettings};
use crate::local::line_search::{LineSearch, Trials};
use crate::server::descent::{Direction, Length};
use crate::server::directions::{Gradient, Steepest};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct GradientDescent {
    /// Fixed step; backtracking by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub step_size: Option<f64>,
    /// Longest step of backtracking.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub longest_step: f64,
    /// Most halvings.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

fedsa::settings::setters! { GradientDescent {
    with_step_size(step_size: impl Into<Option<f64>>) = step_size.into();
    with_longest_step(longest_step: f64) = longest_step;
    with_halvings(halvings: usize) = halvings;
    with_decrease(decrease: f64) = decrease;
} }

impl Default for GradientDescent {
    fn default() -> Self {
        Self { step_size: None, longest_step: 1.0, halvings: 20, decrease: 1e-4 }
    }
}

descent::moves_along!(GradientDescent);

impl DescentSettings for GradientDescent {
    fn check_ranges(&self) -> Result<()> {
        self.step_size.map_or(Ok(()), |step| descent::check_positive("step_size", step))?;
        descent::check_positive("longest_step", self.longest_step)?;
        descent::check_search(self.halvings, self.decrease)
    }

    fn rule(&self) -> Box<dyn Direction> {
        match self.step_size {
            None => Box::new(Steepest::new(self.longest_step)),
            Some(_) => Box::new(Gradient),
        }
    }

    fn length(&self) -> Length {
        match self.step_size {
            None => Length::Search(LineSearch::new(Trials::new(0.5, self.halvings, self.decrease))),
            Some(step) => Length::Fixed(step),
        }
    }
}
