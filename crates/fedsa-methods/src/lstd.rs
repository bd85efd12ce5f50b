//! Federated LSTD: every agent sends its linear system once, and the server solves the mean system.
//!
//! ```text
//! round t:   A = sum_c p_c A_c,  b = sum_c p_c b_c            (one exchange; sums over all rounds so far)
//!            theta_{t+1} = A^-1 b                              (the solution of minimum norm where A is singular)
//! ```
//! Over a link that neither changes nor loses messages, the first round is enough. Over others the server sums the systems that arrive in
//! all rounds. The errors of an unbiased codec or a receiver average out. An agent that arrives in a share of the rounds counts with that
//! share, so the solution tends to `theta*` if all agents arrive equally often.
//!
//! A late system (push) is as good as a timely one, because it depends on no model. It counts once, in the round of its arrival. With a
//! constant lateness of tau rounds, the solution is `theta*` after tau + 1 rounds. With varying lateness, the numbers of systems that have
//! arrived differ between agents by at most the longest lateness, and the error falls as 1/t. Until a first system arrives, theta is
//! `theta_0`.
//!
//! Source: Bradtke and Barto (1996), least-squares temporal differences; the mean over agents is the LSTD solution of the pooled data.

use fedsa::error::{Result, require};
use fedsa::linalg;
use fedsa::local::{Agent, ByAgent, Client, LocalContext};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::protocol::{Exchange, Gather, Len, Protocol, ReplySpec};
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, Next, Participation, Received, Server};
use serde::{Deserialize, Serialize};

use crate::local::without_state;

/// The settings of federated LSTD.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Lstd {
    /// Participants; all by default.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

fedsa::settings::setters! { Lstd {
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl MethodSettings for Lstd {
    fn check(&self, agents: usize) -> Result<()> {
        let m = self.participants.unwrap_or(agents);
        require((1..=agents).contains(&m), "participants", m, &format!("between 1 and the number of agents, {agents}"))
    }

    /// The d (d + 1) numbers of a system have 32-bit indices.
    fn largest_dimension(&self) -> usize {
        (1 << 16) - 1
    }

    fn needs(&self) -> Needs {
        Needs::LinearOperators
    }

    /// The sum, a system of each agent in transit, and scratch memory of the solver.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * (d * (d + 1)) as f64 * (agents as f64 + 4.0)
    }

    /// A factorisation, divided among the agents.
    fn work(&self, _: usize, d: usize) -> f64 {
        (d as f64).powi(3) / 2.0 + 4.0 * (d as f64).powi(2)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = ReplySpec { part: Part::System, len: Len::Exactly(d * (d + 1)), gather: Gather::Sum };
        Protocol { exchanges: vec![Exchange { replies: vec![want], ..Exchange::default() }], ..Protocol::default() }
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        let d = setting.start.len();
        ByAgent::boxed(move |_| Box::new(SystemAgent { d }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let d = setting.start.len();
        let participation = Participation { m: self.participants, agents: setting.agents(), seed: setting.seed };
        Box::new(LstdServer { theta: setting.start.clone(), sum: vec![0.0; d * (d + 1)], participation })
    }

    fn shape(&self) -> MethodShape {
        MethodShape { participants: self.participants, ..MethodShape::without_local_steps() }
    }
}

/// Sends `A_c` row by row, followed by `b_c`: d (d + 1) numbers, or the non-zero ones with their indices if that is shorter.
#[derive(Debug, Clone, Copy)]
pub struct SystemAgent {
    /// The dimension d.
    pub d: usize,
}

impl Agent for SystemAgent {
    fn answer(&mut self, at: &LocalContext<'_>, _: &Message) -> Result<Vec<(Part, Body)>> {
        Ok(vec![(Part::System, at.system(self.d))])
    }
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        without_state(bytes)
    }
}

/// Sums the agents' systems that arrive, and solves.
#[derive(Debug, Clone)]
pub struct LstdServer {
    /// `theta_t`, d components.
    pub theta: Vec<f64>,
    /// The sum over rounds of the weighted systems that arrived: A row by row, then b; d (d + 1) numbers.
    pub sum: Vec<f64>,
    /// The participants.
    pub participation: Participation,
}

impl Server for LstdServer {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: self.participation.of(t), down: Message { round: t, exchange: 0, parts: Vec::new() }, own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let d = self.theta.len();
        // In the first rounds of a late link there is nothing to solve.
        if got.sum(Part::System).iter().all(|x| *x == 0.0) {
            return Next::Done { tell: None };
        }
        self.sum.iter_mut().zip(got.sum(Part::System)).for_each(|(sum, x)| *sum += x / got.asked);
        let (a, b) = self.sum.split_at(d * d);
        self.theta = linalg::solve_or_least(&linalg::from_rows(d, d, a), b);
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn state(&self) -> Vec<u8> {
        packed(&(&self.theta, &self.sum))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        (self.theta, self.sum) = unpacked(state)?;
        Ok(())
    }
}
