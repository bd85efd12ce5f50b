//! Gradient descent: mean gradients, by a fixed step or with federated backtracking.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t)
//!            theta_{t+1} = theta_t - eta g,   eta fixed, or the first of e, e/2, e/4, .. with
//!            f(theta_t - eta g) <= f(theta_t) - a eta ||g||^2
//! ```
//! If no step down to the last is short enough, the next round's search begins below it. Where decreases are below the rounding
//! errors of losses, steps are at most the last one that lowered the loss by more.
//!
//! On quadratics with eigenvalues in \[mu, L\] and eta = 2 / (L + mu) the error falls by (L - mu) / (L + mu) a round. One
//! exchange a round, two with backtracking. With a fixed step it works over every link but `delay` and `late`; what is lost
//! makes the step shorter. Source: Cauchy (1847), Armijo (1966).

use serde::{Deserialize, Serialize};

use super::{Half, MethodSettings, Needs, Setting, Shape, descent};
use crate::error::Result;
use crate::local::line_search::Trials;
use crate::protocol::Protocol;
use crate::server::Server;
use crate::server::descent::{Descent, Direction, Length};
use crate::server::directions::{Gradient, Steepest};
use crate::uplink::LinkFacts;

/// The settings of gradient descent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct GradientDescent {
    /// eta, a fixed step; when absent each round looks for one by backtracking.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub step_size: Option<f64>,
    /// e: the longest step that backtracking tries.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub longest_step: f64,
    /// How often a step may be halved.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// a: the share of the promised decrease that a step must bring, in (0, 1/2).
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

impl Default for GradientDescent {
    fn default() -> Self {
        Self { step_size: None, longest_step: 1.0, halvings: 20, decrease: 1e-4 }
    }
}

impl GradientDescent {
    fn trials(&self) -> Option<Trials> {
        self.step_size.is_none().then(|| Trials::new(0.5, self.halvings, self.decrease))
    }
}

impl MethodSettings for GradientDescent {
    fn check(&self, _: usize) -> Result<()> {
        self.step_size.map_or(Ok(()), |step| descent::check_positive("step_size", step))?;
        descent::check_positive("longest_step", self.longest_step)?;
        descent::check_search(self.halvings, self.decrease)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        if self.step_size.is_some() { Ok(()) } else { descent::check_exact_losses(link) }
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        descent::protocol(setting.start.len(), false, self.trials().as_ref())
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        descent::client(self.trials(), None)
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let (rule, length): (Box<dyn Direction>, Length) = match (self.step_size, self.trials()) {
            (None, Some(trials)) => (Box::new(Steepest::new(self.longest_step)), Length::Search(trials)),
            (step, _) => (Box::new(Gradient { scale: 1.0 }), Length::Fixed(step.unwrap_or(1.0))),
        };
        Box::new(Descent::new(setting.start.clone(), rule, false, length))
    }

    fn memory(&self, agents: usize, d: usize) -> f64 {
        descent::memory(agents, d)
    }

    fn work(&self, d: usize) -> f64 {
        descent::work(d, self.trials().as_ref(), 0)
    }

    fn shape(&self) -> Shape {
        Shape::without_local_steps()
    }
}
