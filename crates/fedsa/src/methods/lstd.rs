//! Federated LSTD: every agent sends its linear system once, and the server solves the mean system.
//!
//! ```text
//! round t:   A = sum_c p_c A_c,  b = sum_c p_c b_c            (one exchange; sums over all rounds so far)
//!            theta_{t+1} = A^-1 b                              (the solution of minimum norm where A is singular)
//! ```
//! Over a link that neither alters nor loses messages the first round is enough. Over others the server adds up what arrives
//! in all rounds: what an unbiased codec or a receiver adds averages out, and an agent that is heard in a share of the rounds
//! counts with that share, so that the solution tends to `theta*` where all agents are heard equally often. A system that
//! arrives late (push) is as good as one in time, because it depends on no model: it counts once, in the round in which it
//! arrives, and with a constant lateness of tau rounds the solution is `theta*` after tau + 1 rounds. Where lateness varies, the
//! numbers of an agent's systems that have arrived differ by at most the longest lateness, and the error falls as 1/t. Until a
//! first system arrives, theta is `theta_0`. Source: Bradtke and Barto (1996), least-squares temporal differences; the mean over
//! agents is the LSTD solution of the pooled data.

use serde::{Deserialize, Serialize};

use super::{Half, MethodSettings, MethodShape, Needs, Setting};
use crate::error::{Result, require};
use crate::local::linear::SystemAgent;
use crate::message::Part;
use crate::protocol::{Exchange, Give, Len, Protocol, Want};
use crate::server::{Participation, Server, lstd};

/// The settings of federated LSTD.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Lstd {
    /// m: how many agents take part in a round; all when absent.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

crate::settings::setters! { Lstd {
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl MethodSettings for Lstd {
    fn check(&self, agents: usize) -> Result<()> {
        let m = self.participants.unwrap_or(agents);
        require((1..=agents).contains(&m), "participants", m, &format!("between 1 and the number of agents, {agents}"))
    }

    /// The d (d + 1) numbers of a system are numbered with 32 bits.
    fn largest_dimension(&self) -> usize {
        (1 << 16) - 1
    }

    fn needs(&self) -> Needs {
        Needs::LinearOperators
    }

    /// The sum, a system of each agent on its way, and what solving takes.
    fn memory(&self, agents: usize, d: usize) -> f64 {
        8.0 * (d * (d + 1)) as f64 * (agents as f64 + 4.0)
    }

    /// A factorisation, in the shares of the agents.
    fn work(&self, _: usize, d: usize) -> f64 {
        (d as f64).powi(3) / 2.0 + 4.0 * (d as f64).powi(2)
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        let d = setting.start.len();
        let want = Want { part: Part::System, len: Len::Exactly(d * (d + 1)), give: Give::Sum };
        Protocol { exchanges: vec![Exchange { wants: vec![want], ..Exchange::default() }], ..Protocol::default() }
    }

    fn client(&self, setting: &Setting<'_>) -> Half {
        let d = setting.start.len();
        Half::Each(Box::new(move |_| Box::new(SystemAgent { d })))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let d = setting.start.len();
        let participation = Participation { m: self.participants, agents: setting.agents(), seed: setting.seed };
        Box::new(lstd::LstdServer { theta: setting.start.clone(), sum: vec![0.0; d * (d + 1)], participation })
    }

    fn shape(&self) -> MethodShape {
        MethodShape { participants: self.participants, ..MethodShape::without_local_steps() }
    }
}
