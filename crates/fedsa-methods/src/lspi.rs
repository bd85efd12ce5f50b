//! Federated least-squares policy iteration (LSPI): every round, agents send their systems under the policy of theta, and the server solves.
//!
//! ```text
//! round t:   A = sum_c p_c A_c(theta_t),  b = sum_c p_c b_c(theta_t)      (one exchange)
//!            theta_{t+1} = theta_t + alpha_g (A^-1 b - theta_t)           (the solution of minimum norm where A is singular)
//! ```
//! `gbar_c(theta) = b_c(theta) - A_c(theta) theta`. On logged transitions the policy of theta is greedy,
//! `A_c(theta) = G_c + EPS I - gamma C_c(theta)`, and `b_c` does not depend on theta. For SARSA the policy is soft, and rounds are soft policy
//! iterations.
//!
//! Round 0 solves for the values of the policy that logged the data, if the problem knows its system, instead of those of the policy of
//! `theta_0`: from `theta_0 = 0` the policies of the first rounds are often bad, and cycles are more frequent.
//!
//! A system depends on theta by the policy alone. With `alpha_g = 1` the iterate therefore repeats, bit for bit over links that do not alter
//! messages, as soon as a round meets a policy of an earlier round: the last one if policy iteration has settled, an older one if it goes
//! round in a cycle. With `alpha_g < 1` it may settle where it cycles otherwise.
//!
//! G travels in every round as part of A, which has as many numbers as C alone; b adds d numbers. An agent whose message is lost counts as
//! zero in A and in b, so a round solves the system of the agents that arrived.
//!
//! Source: Lagoudakis and Parr (2003), least-squares policy iteration; the mean over agents is LSPI on the pooled data.

use fedsa::error::{Result, require};
use fedsa::local::{Agent, ByAgent, Client, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Protocol};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server};
use serde::{Deserialize, Serialize};

pub use crate::first_policy::FirstPolicy;
use crate::first_policy::{solution, system_exchange};
use crate::local::without_state;

/// The settings of federated least-squares policy iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Lspi {
    /// First policy.
    pub first: FirstPolicy,
    /// Share of the way to the solution.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0), range(max = 1)))]
    pub global_step_size: f64,
}

impl Default for Lspi {
    fn default() -> Self {
        Self { first: FirstPolicy::default(), global_step_size: 1.0 }
    }
}

fedsa::settings::setters! { Lspi {
    with_first(first: FirstPolicy) = first;
    with_global_step_size(global_step_size: f64) = global_step_size;
} }

/// The exchange for the system under the policy of theta.
const OF_MODEL: u8 = 0;
/// The exchange for the system under the policy that logged the data.
const OF_BEHAVIOUR: u8 = 1;

impl MethodSettings for Lspi {
    fn check(&self, _: usize) -> Result<()> {
        let alpha = self.global_step_size;
        require(alpha > 0.0 && alpha <= 1.0, "global_step_size", alpha, "a number above 0, and at most 1")
    }

    /// The d (d + 1) numbers of a system have 32-bit indices.
    fn largest_dimension(&self) -> usize {
        (1 << 16) - 1
    }

    fn needs(&self) -> Needs {
        Needs::PolicySystems
    }

    /// For each agent a system that it computes and one in transit, and scratch memory of the solver.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * (d * (d + 1)) as f64 * (2.0 * agents as f64 + 4.0)
    }

    /// A factorisation, divided among the agents.
    fn work(&self, _: usize, d: usize) -> f64 {
        (d as f64).powi(3) / 2.0 + 4.0 * (d as f64).powi(2)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let exchange = system_exchange(setting.start.len());
        let mut exchanges = vec![Exchange { may_open: false, ..exchange.clone() }];
        if self.first == FirstPolicy::Behaviour {
            exchanges.push(exchange);
        }
        Protocol { exchanges, ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        ByAgent::boxed(|_| Box::new(PolicyAgent))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let has_begun = self.first == FirstPolicy::Start;
        Box::new(LspiServer { theta: setting.start.clone(), alpha_g: self.global_step_size, has_begun })
    }

    fn shape(&self) -> MethodShape {
        MethodShape { alpha_g: self.global_step_size, ..MethodShape::without_local_steps() }
    }
}

/// Answers a model theta with `A_c(theta)` row by row, followed by `b_c(theta)`: d (d + 1) numbers, or the non-zero ones with their indices if
/// that is shorter. In the exchange for the behaviour, the system is that of the policy that logged the agent's data.
#[derive(Debug, Clone, Copy, Default)]
pub struct PolicyAgent;

impl Agent for PolicyAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        let theta = down.part(Part::Model);
        let system = if down.exchange == OF_BEHAVIOUR { at.behaviour_system(theta) } else { at.policy_system(theta) };
        Ok(vec![(Part::System, system)])
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        without_state(bytes)
    }
}

/// Solves the sum of the agents' systems that arrive.
#[derive(Debug, Clone)]
pub struct LspiServer {
    /// `theta_t`, d components.
    pub theta: Vec<f64>,
    /// The share `alpha_g` of the way to the solution.
    pub alpha_g: f64,
    /// Whether theta has the values of the first policy.
    pub has_begun: bool,
}

impl Server for LspiServer {
    fn open(&mut self, t: u64) -> Broadcast {
        let exchange = if self.has_begun { OF_MODEL } else { OF_BEHAVIOUR };
        Broadcast { to: None, down: Message::one(t, exchange, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if let Some(solution) = solution(self.theta.len(), got.sum(Part::System)) {
            // The first policy's values are wanted as they are. The weighted mean is the solution, bit for bit, if alpha_g is 1.
            let alpha = if got.exchange == OF_BEHAVIOUR { 1.0 } else { self.alpha_g };
            self.theta.iter_mut().zip(&solution).for_each(|(theta, x)| *theta = (1.0 - alpha) * *theta + alpha * x);
            self.has_begun = true;
        } else if got.arrived.is_empty() {
            // No logged row has a known next action.
            self.has_begun = true;
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Theta is of all agents' data, and the behaviour of other agents need not be asked for.
    fn regrouped(&self, _: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        Some(self.state())
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, self.has_begun))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.has_begun) = unpacked(state)?;
        Ok(())
    }
}
