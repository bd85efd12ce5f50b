//! Scaffold (option II): control variates of the agents and of the server.
//!
//! ```text
//! round t:   S           = the participants; they get theta_t and c
//!            theta_{c,0} = theta_t
//!            theta_{c,h} = theta_{c,h-1} + eta (g_c(theta_{c,h-1}, z_{c,h}) + c_c - c),     h = 1..H
//!            v_c         = (theta_{c,H} - theta_t) / (eta H)                                (sent)
//!            theta_{t+1} = theta_t + alpha_g eta H v,   v = sum_S p_c v_c / sum_S p_c
//!            c_c^+       = c_c - c - v_c,               c in S
//!            c^+         = c + sum_S p_c (c_c^+ - c_c)
//! ```
//! Source: Karimireddy, Kale, Mohri, Reddi, Stich, Suresh, "SCAFFOLD: stochastic controlled averaging for federated
//! learning", ICML 2020, Algorithm 1 with option II, `c_c^+ = c_c - c + (x - y_c) / (K eta_l)`. Their gradient is `-g_c`, K is
//! H, and `|S| / N` times the mean over S is the sum above with `p_c = 1/N`. All controls are 0 at the start.
//!
//! **What is sent.** In the source two vectors travel each way: x and c down, `y_c - x` and `c_c^+ - c_c` up. The second one up
//! follows from the first: `c_c^+ - c_c = -c - v_c`, and the server knows c. Agents therefore send `v_c` alone, and the server
//! computes `c^+ = c - sum_S p_c (c + v_c)`, from sums.
//!
//! - *With all agents* `sum p_c = 1`, so that `c^+ = -v`: agents learn c from the next model, and only the model travels down.
//!   With `xi_c = c_c - c`, the drift, the update becomes `xi_c^+ = c_c - c - v_c + v = xi_c + v - v_c`, which is SCAFFLSA's.
//!   The halves are those of [`super::scafflsa`] with its rule `auto`, over every link.
//! - *With m of N agents* the two methods differ. Scaffold's c changes by the share of the participants, and c reaches agents
//!   that did not take part through the next question, so that all drifts change in every round; SCAFFLSA's change only for
//!   participants, by `v - v_c`, and at m = 1 never. The question contains theta and c, two vectors; c is not altered by
//!   a codec, because all of its errors would remain in the drifts. Agents keep `c_c` and its last change.
//!
//! **Lost answers** (m of N): an agent whose answer was lost counts as one that did not take part: neither `c_c` nor its share
//! of c changes. The agent is told with its next question ([`crate::message::Part::Included`]). An answer altered by a codec
//! counts as it was decoded, at both ends. `c = sum_c p_c c_c` therefore holds over codecs, budgets and losses. Where only
//! sums arrive, or answers arrive late, the ends cannot agree, and such links are refused. An agent that comes back from an older
//! state, or from none, is sent its `c_c` by the server node, which keeps copies ([`crate::node`]).

use serde::{Deserialize, Serialize};

use super::scafflsa::Scafflsa;
use super::{Half, Lost, MethodSettings, MethodShape, Setting, averaging, check_common, fixed, one};
use crate::error::{Error, Result};
use crate::local::ServerControl;
use crate::message::Part;
use crate::methods::control_rule::ControlRule;
use crate::protocol::{Give, Len, Protocol};
use crate::schedule::StepSize;
use crate::server::{Server, ServerControlled};
use crate::uplink::LinkFacts;

/// The settings of Scaffold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scaffold {
    /// `eta`.
    pub step_size: StepSize,
    /// H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::methods::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// m of the N agents take part in a round; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

crate::settings::setters! { Scaffold {
    with_step_size(step_size: impl Into<StepSize>) = step_size.into();
    with_local_steps(local_steps: usize) = local_steps;
    with_global_step_size(global_step_size: f64) = global_step_size;
    with_participants(participants: impl Into<Option<usize>>) = participants.into();
} }

impl Scaffold {
    /// With `alpha_g = 1` and all agents.
    pub fn new(step_size: impl Into<StepSize>, local_steps: usize) -> Self {
        Self { step_size: step_size.into(), local_steps, global_step_size: 1.0, participants: None }
    }

    /// SCAFFLSA with the same settings, which Scaffold is if all agents participate.
    fn with_all(&self) -> Scafflsa {
        let Self { step_size, local_steps, global_step_size, .. } = *self;
        Scafflsa { step_size, local_steps, global_step_size, participants: None, rule: ControlRule::Auto, control_step: 1.0 }
    }

    fn is_partial(&self, agents: usize) -> bool {
        self.participants.is_some_and(|m| m < agents)
    }
}

impl MethodSettings for Scaffold {
    fn check(&self, agents: usize) -> Result<()> {
        check_common(&self.step_size, self.local_steps, self.global_step_size, self.participants, agents)
    }

    fn check_link(&self, link: &LinkFacts) -> Result<()> {
        if self.participants.is_some() && (link.is_sum_only || link.late.is_some()) {
            let what = "with `participants` the server must know whose controls a round changed, and over this link it does not";
            return Err(Error::new("uplink", what, "a link that delivers one message per agent in its round, or all agents"));
        }
        Ok(())
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        if !self.is_partial(setting.agents()) {
            return self.with_all().protocol(setting);
        }
        let d = setting.start.len();
        let mut protocol = Protocol::directions(d, Give::Sum);
        protocol.exchanges[0].down.push((Part::ServerControl, Len::Exactly(d)));
        protocol.exchanges[0].own = vec![(Part::Included, Len::Exactly(1))];
        protocol
    }

    fn client(&self, setting: &Setting<'_>) -> Half {
        if !self.is_partial(setting.agents()) {
            return self.with_all().client(setting);
        }
        Half::Lanes(Box::new(ServerControl { steps: fixed(self.step_size, self.local_steps) }))
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        if !self.is_partial(setting.agents()) {
            return self.with_all().server(setting);
        }
        let average = averaging(setting, fixed(self.step_size, self.local_steps), self.global_step_size, self.participants);
        Box::new(ServerControlled::new(average, setting.weights))
    }

    fn lost(&self, agents: usize, link: &LinkFacts) -> Lost {
        self.with_all().lost(agents, link)
    }

    /// SCAFFLSA's. With `participants` the round is another one, of which theory makes no statement.
    fn shape(&self) -> MethodShape {
        MethodShape { participants: self.participants, is_linear: self.participants.is_none(), ..self.with_all().shape() }
    }
}
