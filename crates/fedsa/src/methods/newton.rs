//! Newton's method with backtracking: gradients summed, Hessians from each agent.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(theta_t),  H = sum_c p_c Hess f_c(theta_t)      (first exchange)
//!            p = -H^-1 g                        (-g where H is not positive definite)
//!            L(s) = sum_c p_c f_c(theta_t + s p),  s in {0, 1, 1/2, .., 2^-K},
//!            D = sum_c p_c p^T grad f_c(theta_t)                                      (second exchange)
//!            theta_{t+1} = theta_t + s p,  the first s > 0 with L(s) <= L(0) + a s D; theta_t if there is none
//! ```
//! For problems with an objective: gbar_c = -grad f_c, as linear ones with symmetric `A_c`. The row of losses includes
//! s = 0 and the slope, because an agent that is missing counts as zero in all of them alike. An agent's last Hessian is kept
//! and counts where a new one is missing; a gradient that is missing counts as zero, so that over a link that loses
//! messages a round steps to the root of the agents that arrived, and does not settle. Source: Newton's method, Armijo (1966); the exchanges are those on which the
//! methods with Hessian eigenvectors (\[T\] chapter 2) build.

use serde::{Deserialize, Serialize};

use super::{Half, MethodSettings, MethodShape, Needs, Setting, descent};
use crate::error::Result;
use crate::local::line_search::{LineSearch, Trials};
use crate::local::newton::NewtonAgent;
use crate::message::Part;
use crate::protocol::{Exchange, Give, Len, Protocol, Want};
use crate::server::{Server, newton};

/// The settings of Newton's method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Newton {
    /// How often a step may be halved.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub halvings: usize,
    /// a: the share of the promised decrease that a step must bring, in (0, 1/2).
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 0.5)))]
    pub decrease: f64,
}

crate::settings::setters! { Newton {
    with_halvings(halvings: usize) = halvings;
    with_decrease(decrease: f64) = decrease;
} }

impl Default for Newton {
    fn default() -> Self {
        Self { halvings: 20, decrease: 1e-4 }
    }
}

impl Newton {
    /// The trial steps: 0, 1, 1/2, ..
    fn trials(&self) -> Trials {
        Trials::new(0.5, self.halvings, self.decrease)
    }
}

impl MethodSettings for Newton {
    fn check(&self, _: usize) -> Result<()> {
        descent::check_search(self.halvings, self.decrease)
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = |part, len, give| Want { part, len: Len::Exactly(len), give };
        let first = Exchange {
            down: vec![(Part::Model, Len::Exactly(d))],
            own: Vec::new(),
            wants: vec![want(Part::Gradient, d, Give::Sum), want(Part::Hessian, d * (d + 1) / 2, Give::Each)],
            may_open: false,
        };
        let second = Exchange {
            down: vec![(Part::Step, Len::Exactly(d))],
            own: Vec::new(),
            wants: vec![want(Part::Losses, self.trials().answer_len(), Give::Sum)],
            may_open: false,
        };
        Protocol { exchanges: vec![first, second], ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Half {
        let trials = self.trials();
        Half::Each(Box::new(move |_| Box::new(NewtonAgent::new(trials.clone()))))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(newton::NewtonServer {
            theta: setting.start.clone(),
            weights: setting.weights.to_vec(),
            search: LineSearch::new(self.trials()),
            hessians: vec![Vec::new(); setting.agents()],
        })
    }

    /// Of each agent the last Hessian at the server and another on its way, both lower triangles, and the one that it
    /// computed.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        let d = d as f64;
        agents as f64 * (16.0 * d * (d + 1.0) / 2.0 + 8.0 * d * d)
    }

    /// A product with a matrix for each loss, for the gradient, and for the Hessian, which is then copied.
    fn work(&self, _: usize, d: usize) -> f64 {
        (self.trials().losses() as f64 + 3.0) * (d as f64).powi(2)
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_work_are_those_of_hessians_and_losses() {
        let newton = Newton::default();
        // Two triangles of 3 numbers and a square of 4, for 5 agents.
        assert_eq!(newton.memory(5, 2), 5.0 * 8.0 * (3.0 + 3.0 + 4.0));
        assert_eq!(newton.work(1, 10), 2500.0);
        assert!(Newton { halvings: 60, ..newton }.work(1, 10) > 2.0 * newton.work(1, 10));
    }
}
