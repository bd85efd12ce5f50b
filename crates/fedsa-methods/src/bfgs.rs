//! BFGS: the server learns an inverse Hessian from the differences of mean gradients.
//!
//! ```text
//! round t:   g_t = sum_c p_c grad f_c(theta_t)                                        (exchange 0)
//!            s = theta_t - theta_{t-1},  y = g_t - g_{t-1};  if s^T y > 0:
//!            W <- (I - r s y^T) W (I - r y s^T) + r s s^T,  r = 1 / s^T y
//!            theta_{t+1} = theta_t - eta W g_t,  eta by backtracking                   (exchange 1)
//! ```
//! W starts as `(s^T y / y^T y) I` with the first pair; before it the direction is -g. The server keeps W, d^2 numbers; agents keep
//! nothing. Source: Broyden, Fletcher, Goldfarb, Shanno (1970); Nocedal and Wright (2006), algorithm 6.1 with (6.17) and (6.20).
//!
//! Over links: a pair is used only if both gradients include every agent, because means over different agents differ by more than
//! curvature. A gradient that lacks agents still gives a step. If a codec rounds gradients, y contains the rounding errors, and pairs
//! without positive curvature are skipped. Refused over the air, and over `delay` and `late`.

use fedsa::error::Result;
use serde::{Deserialize, Serialize};

use super::descent::{self, DescentSettings};
use crate::local::line_search::{LineSearch, Trials};
use crate::server::descent::{Direction, Length};
use crate::server::directions;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Bfgs {
    /// Most halvings.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

fedsa::settings::setters! { Bfgs {
    with_halvings(halvings: usize) = halvings;
    with_decrease(decrease: f64) = decrease;
} }

impl Default for Bfgs {
    fn default() -> Self {
        Self { halvings: 20, decrease: 1e-4 }
    }
}

descent::moves_along!(Bfgs);

impl DescentSettings for Bfgs {
    fn check_ranges(&self) -> Result<()> {
        descent::check_search(self.halvings, self.decrease)
    }

    fn rule(&self) -> Box<dyn Direction> {
        Box::new(directions::BfgsDirection::default())
    }

    fn length(&self) -> Length {
        Length::Search(LineSearch::new(Trials::new(0.5, self.halvings, self.decrease)))
    }

    /// W.
    fn rule_memory(&self, d: usize) -> f64 {
        8.0 * (d as f64).powi(2)
    }
}
