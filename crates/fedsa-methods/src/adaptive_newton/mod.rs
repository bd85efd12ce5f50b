//! Quasi-Newton steps whose curvature comes from where it costs the least: `fedsa fit --method auto`.
//!
//! ```text
//! round t:   g = sum_c p_c grad f_c(y_t),  f = sum_c p_c f_c(y_t)  at the trial point y_t = theta_t + s p     (exchange 0)
//!            f <= f(theta_t) + 1e-4 s p^T grad f(theta_t)?  theta_{t+1} = y_t;  else theta stays, a shorter s, and the round ends
//!            q by the first loop of L-BFGS over the last m pairs (s, y), from g
//!            r = c q;   r = c sum_c p_c H_c^-1 q (exchange 1, as in GIANT);   or   r = c H^-1 q with a whole Hessian H (exchange 2, once)
//!            p from r by the second loop
//! ```
//! A round costs an agent 2 vectors with curvature of gradients alone, 4 with that of agents, and 2 with that of a whole Hessian, which
//! costs `(d + 1) / 2` vectors when it is sent. Trial points bring their gradients, so that no losses along a step are sent: `lbfgs`
//! takes 3 vectors a round and `giant` 5. The pairs correct agents' directions where agents differ, and Hessians that are no longer those
//! of the iterate. Which curvature serves is decided by a rule of what the server has seen, the decrease of the gradient's norm for
//! what travelled ([`curvature::MatrixChoice::moved`]); nothing of the data is known to it but d, and what the settings say.
//!
//! The initial matrix has a factor c: for gradients `s^T y / y^T y` of the last pair, else it follows the minimum of the parabola along
//! the last direction, because a mean of inverses is larger than the inverse of the mean. Where rounding hides the decrease of the
//! loss (1e-12 of it), a slope that falls to 0.9 is enough (Hager and Zhang 2005). Sources: \[T\] section 2.6 for GIANT (Wang et al.
//! 2018) and L-BFGS (Liu and Nocedal 1989; Nocedal and Wright 2006, algorithm 7.4, with an initial matrix as there).
//!
//! Of a quadratic objective (least squares) whose Hessian is cheap, gradient and Hessian come in one exchange (3), and
//! `theta_1 = theta_0 - H^-1 g` is its minimum but for rounding, which nothing verifies: the next round measures what is left.
//!
//! Where an agent's loss or gradient overflows at a trial point, it answers with 1e300 and a gradient of 0: the point is refused, and
//! the step shortened to a tenth.
//!
//! **Wrong answers.** An agent that once answered wrongly would leave a loss that no later point falls below. A refused point whose loss and
//! gradient no convex function has together with those at theta, or too many refusals, therefore make the server ask at theta again, once;
//! if the answers are others, it begins anew there. A step that contradicts convexity gives no pair. The Hessian of a quadratic
//! objective is asked for again where it misses the difference y of two gradients by half of it.
//!
//! Hessians are sent as their entries that are not 0 with places, where that is shorter. The server keeps 2 m d numbers, and d (d + 1) / 2
//! of a Hessian. Over links that lose messages a question without answers of all agents is repeated in the next round. Refused over the
//! air, and over `delay` and `late`.

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

/// The settings of the method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct AdaptiveNewton {
    /// First source of curvature.
    pub first: InitialMatrix,
    /// Whether to keep this source.
    pub keep: bool,
    /// Target norm of the gradient, for predicting costs.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub tolerance: f64,
    /// Whether Hessians are constant, as in least squares.
    pub quadratic: bool,
    /// Difference pairs at the server.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1000)))]
    pub memory: usize,
    /// Largest d with which agents send whole Hessians.
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
    /// What the rule knows of vectors of d components.
    pub fn prior(&self, dim: usize) -> PriorKnowledge {
        let may_whole = dim <= self.largest_hessian;
        let first = if self.first == InitialMatrix::Hessians && !may_whole { InitialMatrix::Agents } else { self.first };
        let may = InitialMatrix::ALL.map(|source| if self.keep { source == first } else { source != InitialMatrix::Hessians || may_whole });
        PriorKnowledge { dim, tolerance: self.tolerance, is_quadratic: self.quadratic, first, may }
    }

    /// How agents compute directions of their own.
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

    /// A model and a gradient of each agent, what agents that answer at one time compute with, the pairs, and the Hessians on their way.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        let whole = self.prior(d).may[InitialMatrix::Hessians.place()];
        let square = if whole { (d as f64).powi(2) } else { 0.0 };
        let n = agents as f64;
        16.0 * n * d as f64 + at_work(agents) * Self::solve(d).memory(d) + 16.0 * self.memory as f64 * d as f64 + (4.0 * n + 12.0) * square
    }

    /// Products with a matrix for the gradient and the loss, and the agent's own direction.
    fn work(&self, _: usize, d: usize) -> f64 {
        2.0 * (d as f64).powi(2) + Self::solve(d).work(d)
    }

    fn shape(&self) -> MethodShape {
        MethodShape::without_local_steps()
    }
}
