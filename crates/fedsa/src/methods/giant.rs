//! GIANT: the mean of the agents' own Newton directions for the mean gradient.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t)                                          (exchange 0)
//!            p = -sum_c p_c H_c^-1 g,  H_c = Hess f_c(theta_t), by conjugate gradients  (exchange 1)
//!            theta_{t+1} = theta_t + s p, s the first of 1, 1/4, .., 4^-9 with
//!            f(theta_t + s p) <= f(theta_t) + a s g^T p, a = 0.1;  4^-9 if there is none   (exchange 2)
//! ```
//! A step of the harmonic mean of the local Hessians: Newton's where all agents are alike, and the wrong one where they are not. No
//! Hessian is formed or sent; an agent computes products with its own. If no trial step lowers the loss enough, the last is taken,
//! and the metric `failed_searches` counts it. Source: Wang, Roosta-Khorasani, Xu and Mahoney (2018), algorithm 1
//! (\[144\] of \[T\]).
//!
//! Over links: a missing direction counts as zero and makes the step shorter; local Hessians are positive definite on
//! strongly convex losses, so that every mean of them is a direction of descent for the mean gradient that was sent. Refused over
//! the air, and over `delay` and `late`.

use serde::{Deserialize, Serialize};

use super::{Half, MethodSettings, Needs, Setting, Shape, descent};
use crate::error::{Result, require};
use crate::local::descent::LocalSolve;
use crate::local::line_search::Trials;
use crate::protocol::Protocol;
use crate::server::Server;
use crate::server::descent::{Descent, Length};
use crate::server::directions::Gradient;
use crate::uplink::LinkFacts;

/// The settings of GIANT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Giant {
    /// The relative residual at which conjugate gradients stop.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub cg_tolerance: f64,
    /// The most products of conjugate gradients with the local Hessian.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub cg_steps: usize,
    /// The factor from one trial step to the next, in (0, 1).
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1)))]
    pub shrink: f64,
    /// How often a step may shrink; the smallest step is at least 1e-30.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub shrinks: usize,
    /// a: the share of the promised decrease that a step must bring, in (0, 1/2).
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

impl Default for Giant {
    fn default() -> Self {
        Self { cg_tolerance: 1e-6, cg_steps: 1000, shrink: 0.25, shrinks: 9, decrease: 0.1 }
    }
}

impl Giant {
    fn trials(&self) -> Trials {
        Trials::new(self.shrink, self.shrinks, self.decrease)
    }
}

impl MethodSettings for Giant {
    fn check(&self, _: usize) -> Result<()> {
        require((0.0..1.0).contains(&self.cg_tolerance), "cg_tolerance", self.cg_tolerance, "at least 0 and below 1")?;
        require((1..=1_000_000).contains(&self.cg_steps), "cg_steps", self.cg_steps, "between 1 and 1000000")?;
        descent::check_shrinking_search(self.shrink, self.shrinks, self.decrease)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        descent::check_exact_losses(link)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        descent::protocol(setting.start.len(), true, Some(&self.trials()))
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        let solve = LocalSolve::Cg { tolerance: self.cg_tolerance, steps: self.cg_steps };
        descent::client(Some(self.trials()), Some(solve))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let length = Length::SearchOrLast(self.trials());
        Box::new(Descent::new(setting.start.clone(), Box::new(Gradient { scale: 1.0 }), true, length))
    }

    fn memory(&self, agents: usize, d: usize) -> f64 {
        descent::memory(agents, d)
    }

    /// As many products as conjugate gradients take without rounding.
    fn work(&self, d: usize) -> f64 {
        descent::work(d, Some(&self.trials()), self.cg_steps.min(d))
    }

    fn shape(&self) -> Shape {
        Shape::without_local_steps()
    }
}
