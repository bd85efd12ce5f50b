//! L-BFGS: BFGS from the last m difference pairs.
//!
//! ```text
//! round t:   g_t = sum_c p_c grad f_c(theta_t)                                        (exchange 0)
//!            s = theta_t - theta_{t-1},  y = g_t - g_{t-1};  if s^T y > 0 the pair is kept, and the oldest of more than m dropped
//!            p = -W g_t by two loops over the pairs, from W = (s^T y / y^T y) I with the latest
//!            theta_{t+1} = theta_t + eta p,  eta by backtracking                       (exchange 1)
//! ```
//! The server keeps 2 m d numbers; agents keep nothing. Source: Liu and Nocedal (1989), with which \[T\] section 2.6 compares (\[87\]);
//! Nocedal and Wright (2006), algorithms 7.4 and 7.5.
//!
//! Over links: a pair is used only if both gradients include every agent, because means over different agents differ by more than
//! curvature. A gradient that lacks agents still gives a step. If a codec rounds gradients, y contains the rounding errors, and pairs
//! without positive curvature are skipped. Refused over the air, and over `delay` and `late`.

use fedsa::error::{Result, require};
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
pub struct Lbfgs {
    /// Difference pairs at the server.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub memory: usize,
    /// Most halvings.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// Armijo constant.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

fedsa::settings::setters! { Lbfgs {
    with_memory(memory: usize) = memory;
    with_halvings(halvings: usize) = halvings;
    with_decrease(decrease: f64) = decrease;
} }

impl Default for Lbfgs {
    fn default() -> Self {
        Self { memory: 10, halvings: 20, decrease: 1e-4 }
    }
}

descent::moves_along!(Lbfgs);

impl DescentSettings for Lbfgs {
    fn check_ranges(&self) -> Result<()> {
        require((1..=1000).contains(&self.memory), "memory", self.memory, "between 1 and 1000")?;
        descent::check_search(self.halvings, self.decrease)
    }

    fn rule(&self) -> Box<dyn Direction> {
        Box::new(directions::LbfgsDirection::new(self.memory))
    }

    fn length(&self) -> Length {
        Length::Search(LineSearch::new(Trials::new(0.5, self.halvings, self.decrease)))
    }

    /// The pairs.
    fn rule_memory(&self, d: usize) -> f64 {
        16.0 * self.memory as f64 * d as f64
    }
}
