//! Quasi-Newton steps with the cheapest source of curvature: `fedsa fit --method auto`.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(y_t),  f = sum_c p_c f_c(y_t)  at the trial point y_t = theta_t + s p     (exchange 0)
//!            f <= f(theta_t) + 1e-4 s p^T grad f(theta_t)?  theta_{t+1} = y_t;  else theta stays, a shorter s, and the round ends
//!            q by the first loop of L-BFGS over the last m pairs (s, y), from g
//!            r = c q;   r = c sum_c p_c H_c^-1 q (exchange 1, as in GIANT);   or   r = c H^-1 q with a whole Hessian H (exchange 2, once)
//!            p from r by the second loop
//! ```
//! A round takes 2 vectors per agent with curvature of gradients, 4 with curvature of the agents, and 2 with a whole Hessian, which takes
//! `(d + 1) / 2` vectors once. Trial points bring their gradients, so no losses along a step are sent: `lbfgs` takes 3 vectors per round
//! and `giant` 5. The pairs correct the directions of agents that differ, and Hessians of earlier iterates. A rule chooses the source from
//! the server's record: the decrease of the gradient norm compared with the traffic ([`curvature::MatrixChoice::moved`]). It knows nothing
//! of the data but d and the settings.
//!
//! The initial matrix has a factor c. For gradients it is `s^T y / y^T y` of the last pair. Otherwise it follows the minimum of a parabola
//! along the last direction, because a mean of inverses is larger than the inverse of the mean. If rounding hides the decrease of the loss
//! (1e-12 of it), it is enough if the slope falls to 0.9 of its value (Hager and Zhang 2005). Sources: \[T\] section 2.6 for GIANT (Wang et
//! al. 2018) and L-BFGS (Liu and Nocedal 1989; Nocedal and Wright 2006, algorithm 7.4, with this kind of initial matrix).
//!
//! For a quadratic objective (least squares) with a cheap Hessian, gradient and Hessian come in one exchange (3), and
//! `theta_1 = theta_0 - H^-1 g` is the minimum up to rounding. Nothing verifies it: the next round measures the rest.
//!
//! If an agent's loss or gradient overflows at a trial point, the agent answers with 1e300 and a gradient of 0. The server rejects the
//! point and shortens the step to a tenth.
//!
//! **Wrong answers.** A wrong answer at theta could leave a loss that no later point falls below. The server therefore asks at theta again,
//! once, after too many rejections, or if no convex function has the values and gradients at theta and at a rejected point. If the answers
//! differ, it restarts there. A step that contradicts convexity gives no pair. The server requests the Hessian of a quadratic objective
//! again if the Hessian misses the difference y of two gradients by half of it.
//!
//! Hessians are sent as non-zero entries with indices if that is shorter. The server keeps 2 m d numbers, and d (d + 1) / 2 for a Hessian.
//! Over links that lose messages, the server repeats a question in the next round unless all agents answer. Refused over the air, and over
//! `delay` and `late`.

mod client;
pub mod curvature;
mod server;

use fedsa::error::{Result, require};
use fedsa::local::{ByAgent, Client};
use fedsa::message::Part;
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::server::Server;
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use super::descent::{self, DescentSettings};
use super::giant::Giant;
use crate::at_work;
use crate::local::descent::LocalSolve;
use client::AdaptiveNewtonAgent;
use curvature::{InitialMatrix, PriorKnowledge};
use server::AdaptiveNewtonServer;

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AdaptiveNewton {
    /// First source of curvature.
    pub first: InitialMatrix,
    /// Keep this source.
    pub keep: bool,
    /// Target gradient norm, for predicted costs.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub tolerance: f64,
    /// Hessians are constant, as in least squares.
    pub quadratic: bool,
    /// Difference pairs at the server.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub memory: usize,
    /// Largest d for which agents send whole Hessians.
    pub largest_hessian: usize,
    /// Most reductions.
    #[cfg_attr(feature = "schema", schemars(range(max = 60)))]
    pub shrinks: u32,
}

fedsa::settings::setters! { AdaptiveNewton {
    with_first(first: InitialMatrix) = first;
    with_keep(keep: bool) = keep;
    with_tolerance(tolerance: f64) = tolerance;
    with_quadratic(quadratic: bool) = quadratic;
    with_memory(memory: usize) = memory;
    with_largest_hessian(largest_hessian: usize) = largest_hessian;
    with_shrinks(shrinks: u32) = shrinks;
} }

impl Default for AdaptiveNewton {
    fn default() -> Self {
        Self {
            first: InitialMatrix::Agents,
            keep: false,
            tolerance: 1e-9,
            quadratic: false,
            memory: 40,
            largest_hessian: 4096,
            shrinks: 20,
        }
    }
}

impl AdaptiveNewton {
    /// The rule's knowledge for d = `dim`.
    pub fn prior(&self, dim: usize) -> PriorKnowledge {
        let may_whole = dim <= self.largest_hessian;
        let first = if self.first == InitialMatrix::Hessians && !may_whole { InitialMatrix::Agents } else { self.first };
        let may = InitialMatrix::ALL.map(|source| if self.keep { source == first } else { source != InitialMatrix::Hessians || may_whole });
        PriorKnowledge { dim, tolerance: self.tolerance, is_quadratic: self.quadratic, first, may }
    }

    /// The agents' way to their Newton directions.
    fn solve(d: usize) -> LocalSolve {
        Giant::default().local_solve(d).expect("GIANT has directions of the agents")
    }
}

impl MethodSettings for AdaptiveNewton {
    fn check(&self, _: usize) -> Result<()> {
        descent::check_positive("tolerance", self.tolerance)?;
        require((1..=1000).contains(&self.memory), "memory", self.memory, "between 1 and 1000")?;
        require(self.largest_hessian <= 65_535, "largest_hessian", self.largest_hessian, "at most 65535")?;
        require(self.shrinks <= 60, "shrinks", self.shrinks, "at most 60")
    }

    fn needs(&self) -> Needs {
        Needs::Objective
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        descent::check_exact_losses(link)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let sum = |part, len| ReplySpec { part, len: Len::Exactly(len), gather: Gather::Sum };
        let exchange = |down: &[Part], replies, may_open| Exchange {
            down: down.iter().map(|part| (*part, Len::Exactly(d))).collect(),
            own: Vec::new(),
            replies,
            may_open,
        };
        let mut exchanges = vec![
            exchange(&[Part::Model], vec![sum(Part::Gradient, d), sum(Part::Losses, 1)], false),
            exchange(&[Part::Gradient], vec![sum(Part::Direction, d)], false),
        ];
        if self.prior(d).may[InitialMatrix::Hessians.place()] {
            let hessian = || sum(Part::Hessian, d * (d + 1) / 2);
            exchanges.push(exchange(&[], vec![hessian()], true));
            exchanges.push(exchange(&[Part::Model], vec![sum(Part::Gradient, d), sum(Part::Losses, 1), hessian()], true));
        }
        Protocol { exchanges, ..Protocol::default() }
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        let solve = Self::solve(setting.start.len());
        ByAgent::boxed(move |_| Box::new(AdaptiveNewtonAgent::new(solve)))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let prior = self.prior(setting.start.len());
        Box::new(AdaptiveNewtonServer::new(setting.start.clone(), prior, self.memory, self.shrinks))
    }

    /// A model and a gradient of each agent, scratch memory of agents that answer at the same time, the pairs, and Hessians in transit.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        let whole = self.prior(d).may[InitialMatrix::Hessians.place()];
        let square = if whole { (d as f64).powi(2) } else { 0.0 };
        let n = agents as f64;
        16.0 * n * d as f64 + at_work(agents) * Self::solve(d).memory(d) + 16.0 * self.memory as f64 * d as f64 + (4.0 * n + 12.0) * square
    }

    /// Matrix products for the gradient and the loss, and the agent's own direction.
    fn work(&self, _: usize, d: usize) -> f64 {
        2.0 * (d as f64).powi(2) + Self::solve(d).work(d)
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}
