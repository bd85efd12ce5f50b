//! Accelerated gradients: Nesterov's momentum, from constants of the problem or with adaptive restarts.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(y_t)
//!            x_{t+1} = y_t - s g,   y_{t+1} = x_{t+1} + beta (x_{t+1} - x_t)
//! ```
//! theta is x. With `strong_convexity` mu, `beta = (1 - sqrt(mu s)) / (1 + sqrt(mu s))`, and with s = 1 / L the loss falls by the factor
//! `1 - sqrt(mu / L)` per round (Nesterov 2004, theorem 2.2.3). By default the momentum grows as without strong convexity, and restarts if
//! x moves against the gradient (O'Donoghue and Candes 2015). It needs no unknown constant and has the same rate up to a factor. A given
//! `momentum` stays constant: the comparisons of \[T\] section 2.6 (\[144\], GIANT) tune step and momentum by hand.
//!
//! Without a `step_size`, the step is halved until the loss falls by `s / 2 ||g||^2`, as a step 1 / L does (Beck and Teboulle 2009). If all
//! agents answer, later rounds keep the halved step. Beyond a round's most halvings, the next round continues from x.
//!
//! One exchange per round, two with backtracking. With a fixed step it works over every link but `delay` and `late`. Lost messages make the
//! step shorter, and momentum spreads the error over later rounds.

use fedsa::error::{Error, Result, require};
use serde::{Deserialize, Serialize};

use super::descent::{self, DescentSettings};
use crate::local::line_search::{LineSearch, Trials};
use crate::server::descent::{Direction, Length};
use crate::server::directions::{AcceleratedDirection, Momentum};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AcceleratedGradient {
    /// Fixed step; backtracking by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub step_size: Option<f64>,
    /// Strong convexity mu, which sets the momentum; at most 1 / `step_size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub strong_convexity: Option<f64>,
    /// Constant momentum. Without it and `strong_convexity`, momentum restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub momentum: Option<f64>,
    /// Longest step of backtracking.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub longest_step: f64,
    /// Most halvings per round.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
}

fedsa::settings::setters! { AcceleratedGradient {
    with_step_size(step_size: impl Into<Option<f64>>) = step_size.into();
    with_strong_convexity(strong_convexity: impl Into<Option<f64>>) = strong_convexity.into();
    with_momentum(momentum: impl Into<Option<f64>>) = momentum.into();
    with_longest_step(longest_step: f64) = longest_step;
    with_halvings(halvings: usize) = halvings;
} }

impl Default for AcceleratedGradient {
    fn default() -> Self {
        Self { step_size: None, strong_convexity: None, momentum: None, longest_step: 1.0, halvings: 20 }
    }
}

descent::moves_along!(AcceleratedGradient);

impl DescentSettings for AcceleratedGradient {
    fn check_ranges(&self) -> Result<()> {
        let positive = |key, x: Option<f64>| x.map_or(Ok(()), |x| descent::check_positive(key, x));
        positive("step_size", self.step_size)?;
        positive("strong_convexity", self.strong_convexity)?;
        descent::check_positive("longest_step", self.longest_step)?;
        descent::check_search(self.halvings, 0.25)?;
        if let (Some(mu), Some(step)) = (self.strong_convexity, self.step_size) {
            let accepted = format!("at most {}: mu <= L <= 1 / step_size", 1.0 / step);
            require(mu * step <= 1.0, "strong_convexity", mu, &accepted)?;
        }
        match (self.momentum, self.strong_convexity) {
            (Some(beta), Some(_)) => {
                let what = format!("momentum = {beta} beside strong_convexity, which decides it");
                Err(Error::new("momentum", what, "one of the two"))
            }
            (Some(beta), None) => require((0.0..1.0).contains(&beta), "momentum", beta, "at least 0 and below 1"),
            _ => Ok(()),
        }
    }

    fn asks_ahead(&self) -> bool {
        true
    }

    fn rule(&self) -> Box<dyn Direction> {
        let momentum = match (self.momentum, self.strong_convexity) {
            (Some(beta), _) => Momentum::Constant(beta),
            (None, Some(mu)) => Momentum::Convexity(mu),
            (None, None) => Momentum::Restarted,
        };
        Box::new(AcceleratedDirection::new(momentum, self.step_size.unwrap_or(self.longest_step)))
    }

    /// The rule's direction is already -s g.
    fn length(&self) -> Length {
        match self.step_size {
            None => Length::Search(LineSearch::new(Trials::new(0.5, self.halvings, 0.5))),
            Some(_) => Length::Fixed(1.0),
        }
    }
}
