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
//! Over links: a pair is used only if both gradients include every agent, because means over different agents differ by more than
//! curvature; a step from a gradient that lacks agents is along it all the same. Where a codec rounds gradients, y
//! contains the rounding errors, and pairs without positive curvature are left out. Refused over the air, and over `delay` and
//! `late`.

use serde::{Deserialize, Serialize};

use super::{Half, MethodSettings, Needs, Setting, Shape, descent};
use crate::error::Result;
use crate::local::line_search::Trials;
use crate::protocol::Protocol;
use crate::server::descent::{Descent, Length};
use crate::server::{Server, directions};
use crate::uplink::LinkFacts;

/// The settings of BFGS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Bfgs {
    /// How often a step may be halved.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// a: the share of the promised decrease that a step must bring, in (0, 1/2).
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

impl Default for Bfgs {
    fn default() -> Self {
        Self { halvings: 20, decrease: 1e-4 }
    }
}

impl Bfgs {
    fn trials(&self) -> Trials {
        Trials::new(0.5, self.halvings, self.decrease)
    }
}

impl MethodSettings for Bfgs {
    fn check(&self, _: usize) -> Result<()> {
        descent::check_search(self.halvings, self.decrease)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        descent::check_exact_losses(link)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        descent::protocol(setting.start.len(), false, Some(&self.trials()))
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        descent::client(Some(self.trials()), None)
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let rule = Box::new(directions::Bfgs::default());
        Box::new(Descent::new(setting.start.clone(), rule, false, Length::Search(self.trials())))
    }

    /// The matrix at the server beside the agents' vectors.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * (d as f64).powi(2) + descent::memory(agents, d)
    }

    fn work(&self, d: usize) -> f64 {
        descent::work(d, Some(&self.trials()), 0)
    }

    fn shape(&self) -> Shape {
        Shape::without_local_steps()
    }
}
