//! Federated fitted Q-iteration: agents send their Gram matrices once, and then d numbers a round.
//!
//! ```text
//! first:     G = sum_c p_c G_c                                             (with the first operators)
//! round t:   g = sum_c p_c gbar_c(theta_t)                                 (one exchange)
//!            theta_{t+1} = theta_t + alpha_g G^-1 g
//! ```
//! On logged transitions `gbar_c(theta) = mean psi (r + gamma max_a q(s', a) - q(s, a)) - EPS theta` and `G_c` is `mean psi psi^T + EPS I`, so
//! that with `alpha_g = 1` the round fits the targets of `theta_t` by least squares. For SARSA, G is that of the policy of the round in
//! which it was asked for, and rounds are preconditioned steps.
//!
//! The fixed points are those of [least-squares policy iteration](crate::lspi), whatever G is. Close to one, errors shrink by the spectral
//! radius of `gamma G^-1 C` in a round; LSPI needs few rounds, of d times as many numbers. Round 0 solves for the values of the policy that
//! logged the data, if the problem knows its system, as in LSPI: d (d + 1) numbers once.
//!
//! G is used only if it includes all agents; rounds before do not move theta. An operator that is lost counts as zero.
//!
//! Source: Ernst, Geurts and Wehenkel (2005), fitted Q-iteration, here with linear features; the mean over agents is fitted Q-iteration on the
//! pooled data.

use faer::Mat;
use fedsa::error::{Result, require};
use fedsa::linalg;
use fedsa::local::{Agent, ByAgent, Client, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Received, Server};
use serde::{Deserialize, Serialize};

pub use crate::first_policy::FirstPolicy;
use crate::first_policy::{solution, system_exchange};
use crate::local::without_state;

/// The settings of federated fitted Q-iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FittedQ {
    /// First policy.
    pub first: FirstPolicy,
    /// Share of the way to the fitted values.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0), range(max = 1)))]
    pub global_step_size: f64,
}

impl Default for FittedQ {
    fn default() -> Self {
        Self { first: FirstPolicy::default(), global_step_size: 1.0 }
    }
}

fedsa::settings::setters! { FittedQ {
    with_first(first: FirstPolicy) = first;
    with_global_step_size(global_step_size: f64) = global_step_size;
} }

/// The exchange for operators.
const OPERATOR: u8 = 0;
/// The exchange for operators and Gram matrices.
const WITH_GRAM: u8 = 1;
/// The exchange for the system under the policy that logged the data.
const OF_BEHAVIOUR: u8 = 2;

impl MethodSettings for FittedQ {
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

    /// For each agent a matrix that it computes and one in transit, and G at the server with scratch memory of the solver.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * (d * (d + 1)) as f64 * (2.0 * agents as f64 + 4.0)
    }

    /// Cholesky's factorisation, divided among the agents.
    fn work(&self, _: usize, d: usize) -> f64 {
        (d as f64).powi(3) / 6.0 + 2.0 * (d as f64).powi(2)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = |part, len| ReplySpec { part, len: Len::Exactly(len), gather: Gather::Sum };
        let operators =
            Exchange { down: vec![(Part::Model, Len::Exactly(d))], replies: vec![want(Part::Operator, d)], ..Exchange::default() };
        let mut with_gram = Exchange { may_open: true, ..operators.clone() };
        with_gram.replies.push(want(Part::Hessian, d * (d + 1) / 2));
        let mut exchanges = vec![operators, with_gram];
        if self.first == FirstPolicy::Behaviour {
            exchanges.push(system_exchange(d));
        }
        Protocol { exchanges, ..Protocol::default() }
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        ByAgent::boxed(|_| Box::new(FittingAgent))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        Box::new(FittedQServer {
            theta: setting.start.clone(),
            alpha_g: self.global_step_size,
            has_begun: self.first == FirstPolicy::Start,
            gram: Vec::new(),
        })
    }

    fn shape(&self) -> MethodShape {
        MethodShape { alpha_g: self.global_step_size, ..MethodShape::without_local_steps() }
    }
}

/// Answers a model theta with `gbar_c(theta)`, d numbers, and if asked with the lower triangle of `G_c`, d (d + 1) / 2 numbers. In the exchange
/// for the behaviour, it sends the system of the policy that logged its data, d (d + 1) numbers. All may be sparse.
#[derive(Debug, Clone, Copy, Default)]
pub struct FittingAgent;

impl Agent for FittingAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        let theta = down.part(Part::Model);
        if down.exchange == OF_BEHAVIOUR {
            return Ok(vec![(Part::System, at.behaviour_system(theta))]);
        }
        let mut parts = vec![(Part::Operator, Body::of_numbers(at.policy_operator(theta)))];
        if down.exchange == WITH_GRAM {
            parts.push((Part::Hessian, at.policy_gram(theta)));
        }
        Ok(parts)
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        without_state(bytes)
    }
}

/// Steps by `G^-1 g`.
#[derive(Debug, Clone)]
pub struct FittedQServer {
    /// `theta_t`, d components.
    pub theta: Vec<f64>,
    /// The share `alpha_g` of the way to the fitted values.
    pub alpha_g: f64,
    /// Whether theta has the values of the first policy.
    pub has_begun: bool,
    /// The lower triangle of G, d (d + 1) / 2 numbers; empty until all agents have sent theirs.
    pub gram: Vec<f64>,
}

impl FittedQServer {
    /// `G^-1 g`, of least norm if G is not positive definite.
    fn fitted(&self, g: &[f64]) -> Vec<f64> {
        let d = g.len();
        let gram = Mat::from_fn(d, d, |i, j| self.gram[i.max(j) * (i.max(j) + 1) / 2 + i.min(j)]);
        linalg::solve_definite(&gram, g).unwrap_or_else(|| linalg::solve_or_least(&gram, g))
    }
}

impl Server for FittedQServer {
    fn open(&mut self, t: u64) -> Broadcast {
        let exchange = match self.gram.is_empty() {
            _ if !self.has_begun => OF_BEHAVIOUR,
            true => WITH_GRAM,
            false => OPERATOR,
        };
        Broadcast { to: None, down: Message::one(t, exchange, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == OF_BEHAVIOUR {
            if let Some(solution) = solution(self.theta.len(), got.sum(Part::System)) {
                (self.theta, self.has_begun) = (solution, true);
            } else if got.arrived.is_empty() {
                // No logged row has a known next action.
                self.has_begun = true;
            }
            return Next::Done { tell: None };
        }
        if got.exchange == WITH_GRAM && got.arrived.is_empty() {
            self.gram = got.mean(Part::Hessian);
        }
        if !self.gram.is_empty() {
            // Operators are those of the model that agents decoded.
            let step = self.fitted(&got.mean(Part::Operator));
            self.theta = linalg::along(got.down.part(Part::Model), self.alpha_g, &step);
        }
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    /// Theta is of all agents' data; G is asked for again.
    fn regrouped(&self, _: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        Some(packed(&(&self.theta, self.has_begun, Vec::<f64>::new())))
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, self.has_begun, &self.gram))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.has_begun, self.gram) = unpacked(state)?;
        Ok(())
    }
}
