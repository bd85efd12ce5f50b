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
//! **Messages.** In the source two vectors travel each way: x and c down, `y_c - x` and `c_c^+ - c_c` up. The second one up follows from
//! the first: `c_c^+ - c_c = -c - v_c`, and the server knows c. Agents therefore send `v_c` only, and the server computes
//! `c^+ = c - sum_S p_c (c + v_c)` from sums.
//!
//! - *With all agents* `sum p_c = 1`, so `c^+ = -v`: agents compute c from the next model, and only the model travels down. With the drift
//!   `xi_c = c_c - c`, the update becomes `xi_c^+ = c_c - c - v_c + v = xi_c + v - v_c`, SCAFFLSA's update. The halves are those of
//!   [`super::scafflsa`] with its rule `auto`, over every link.
//! - *With m of N agents* the two methods differ. Scaffold's c changes by the participants' share, and the next question brings c to
//!   non-participants, so all drifts change in every round. SCAFFLSA's drifts change only for participants, by `v - v_c`, and at m = 1
//!   never. The question contains theta and c, two vectors. No codec changes c, because its errors would stay in the drifts. Agents keep
//!   `c_c` and its last change.
//!
//! **Lost answers** (m of N): an agent whose answer was lost counts as a non-participant: neither `c_c` nor its share of c changes. Its
//! next question tells the agent ([`fedsa::message::Part::Counted`]). An answer changed by a codec counts as decoded, at both ends.
//! `c = sum_c p_c c_c` therefore holds over codecs, budgets and losses. If only sums arrive, or answers arrive late, the ends cannot agree,
//! and such links are refused. The server node keeps copies of `c_c`, and sends it to an agent that returns from an older state, or from
//! none ([`fedsa::node`]).

use fedsa::error::{Error, Result};
use fedsa::local::{AgentBatch, AgentMemory, Client, ClientFacts, Controls, Outbox};
use fedsa::message::{Body, Message, Part};
use fedsa::method::{ControlRule, MethodSettings, MethodShape, MissingUpdate, Setting};
use fedsa::protocol::{Gather, Len, Protocol};
use fedsa::random::Purpose;
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::{StepSchedule, StepSize};
use fedsa::server::{Broadcast, Next, Received, Server, ServerFacts};
use fedsa::uplink::LinkFacts;
use serde::{Deserialize, Serialize};

use super::scafflsa::Scafflsa;
use crate::server::Average;
use crate::{averaging, check_common, fixed, one};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Scaffold {
    /// Step size `eta`.
    pub step_size: StepSize,
    /// Local steps H.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_LOCAL_STEPS)))]
    pub local_steps: usize,
    /// Server step `alpha_g`.
    #[serde(default = "one")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub global_step_size: f64,
    /// Participants; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub participants: Option<usize>,
}

fedsa::settings::setters! { Scaffold {
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

    /// SCAFFLSA with the same settings, which equals Scaffold if all agents participate.
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
        let mut protocol = Protocol::directions(d, Gather::Sum);
        protocol.exchanges[0].down.push((Part::ServerControl, Len::Exactly(d)));
        protocol.exchanges[0].own = vec![(Part::Counted, Len::Exactly(1))];
        protocol
    }

    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client> {
        if !self.is_partial(setting.agents()) {
            return self.with_all().client(setting);
        }
        Box::new(ServerControl { steps: fixed(self.step_size, self.local_steps) })
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        if !self.is_partial(setting.agents()) {
            return self.with_all().server(setting);
        }
        let average = averaging(setting, fixed(self.step_size, self.local_steps), self.global_step_size, self.participants);
        Box::new(ServerControlled::new(average, setting.weights))
    }

    fn lost(&self, agents: usize, link: &LinkFacts) -> MissingUpdate {
        self.with_all().lost(agents, link)
    }

    /// SCAFFLSA's shape. With `participants` the round differs, and the theory does not cover it.
    fn shape(&self) -> MethodShape {
        MethodShape { participants: self.participants, is_linear: self.participants.is_none(), ..self.with_all().shape() }
    }
}

/// The question contains `theta_t` and the server's control c. An agent makes H local steps with drift `c_c - c`, sends `v_c`, and sets
/// `c_c += -c - v_c` once it knows that the server counted `v_c`. The server changes c by the same amount times `p_c`, so that
/// `c = sum_c p_c c_c` after every round. The next question tells an agent that its last answer was lost ([`Part::Counted`]), and it then
/// keeps `c_c`.
#[derive(Debug, Clone)]
pub struct ServerControl {
    /// Step sizes and local steps.
    pub steps: StepSchedule,
}

// The vectors that an agent keeps: c_c, and the change of c_c by its last answer, if the server counted it.
const CONTROL: usize = 0;
const CHANGE: usize = 1;

impl Client for ServerControl {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts::keeping(2)
    }

    fn local_steps(&self, t: u64) -> usize {
        self.steps.of(t).len
    }

    fn controls(&self) -> Option<&dyn Controls> {
        Some(self)
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let of_server = down.part(Part::ServerControl);
        let phase = self.steps.of(down.round);
        batch.start_at(down.part(Part::Model));
        for l in batch.lanes() {
            let is_counted = batch.last(l, down.round).is_included;
            let agent = batch.lane::<2>(l);
            let [control, change] = agent.memory;
            for (i, control) in control.iter_mut().enumerate() {
                if is_counted {
                    *control += change[i];
                }
                agent.drift[i] = *control - of_server[i];
            }
        }
        batch.open_streams(Purpose::Sample, down.round);
        batch.steps(&phase);
        batch.send_directions(phase.sum, Part::Direction, out);
        for l in batch.lanes() {
            let (_, v) = out.sent(l).expect("every lane has sent");
            let agent = batch.lane::<2>(l);
            let [_, change] = agent.memory;
            for i in 0..v.len() {
                // After the steps, the drift holds -c for `sent`.
                agent.drift[i] = -of_server[i];
                change[i] = agent.drift[i] - v[i];
            }
        }
        Ok(())
    }

    /// The server counts the decoded answer.
    fn sent(&self, batch: &mut AgentBatch<'_>, _: &Message, sent: &Outbox) -> Result<()> {
        for l in batch.lanes() {
            let Some((_, sent)) = sent.sent(l) else { continue };
            let agent = batch.lane::<2>(l);
            let [_, change] = agent.memory;
            for (i, change) in change.iter_mut().enumerate() {
                *change = agent.drift[i] - sent[i];
            }
        }
        Ok(())
    }
}

impl Controls for ServerControl {
    /// `c_c`; the caller subtracts the server's c.
    fn of_agent(&self, memory: &AgentMemory<'_>, _: &[f64], _: u64, is_included: bool, control: &mut [f64]) {
        control.copy_from_slice(memory.vector(CONTROL));
        if is_included {
            control.iter_mut().zip(memory.vector(CHANGE)).for_each(|(control, change)| *control += change);
        }
    }

    /// The question contains c.
    fn is_told(&self) -> bool {
        false
    }

    /// Only the agent's own answers change its control.
    fn can_follow(&self, _: Option<u64>, _: u64) -> bool {
        true
    }

    fn put(&self, memory: &mut [&mut [f64]], control: &[f64], _: &[f64]) {
        memory[CONTROL].copy_from_slice(control);
        memory[CHANGE].fill(0.0);
    }

    /// c.
    fn shared(&self, down: &Message, _: &[f64]) -> Vec<f64> {
        down.part(Part::ServerControl).to_vec()
    }

    /// `c_c += -c - v_c`.
    fn settle(&self, _: u64, control: &mut [f64], of_server: &[f64], own: Option<&[f64]>) {
        let Some(v) = own else { return };
        control.iter_mut().zip(of_server.iter().zip(v)).for_each(|(control, (c, v))| *control += -c - v);
    }
}

/// [`Average`] with questions that also contain the server's control c. After a round `c += sum_c p_c (-c - v_c)` over the participants
/// whose answers arrived. Each summand is the change of the agent's own control, so that `c = sum_c p_c c_c` over all agents.
#[derive(Debug, Clone)]
pub struct ServerControlled {
    average: Average,
    weights: Vec<f64>,
    /// c, d components.
    control: Vec<f64>,
}

impl ServerControlled {
    /// The start of a run: c = 0. `weights` are the weights of all N agents.
    pub fn new(average: Average, weights: &[f64]) -> Self {
        let d = average.theta.len();
        Self { average, weights: weights.to_vec(), control: vec![0.0; d] }
    }

    /// The participants of round t.
    fn participants(&self, t: u64) -> Vec<usize> {
        self.average.participation.of(t).unwrap_or_else(|| (0..self.weights.len()).collect())
    }
}

impl Server for ServerControlled {
    fn open(&mut self, t: u64) -> Broadcast {
        let mut ask = self.average.open(t);
        ask.down.parts.push((Part::ServerControl, Body::Numbers(self.control.clone())));
        ask
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let mut arrived = 0.0;
        for (i, c) in self.participants(got.round).into_iter().enumerate() {
            if got.arrived.get(i).is_none_or(|arrived| *arrived) {
                arrived += self.weights[c];
            }
        }
        // c += sum p_c (-c - v_c) over the answers that arrived
        for (control, v) in self.control.iter_mut().zip(got.sum(Part::Direction)) {
            *control -= arrived * *control + v;
        }
        self.average.receive(got)
    }

    fn theta(&self) -> &[f64] {
        self.average.theta()
    }

    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts { control: Some(&self.control), ..ServerFacts::default() }
    }

    fn state(&self) -> Vec<u8> {
        packed(&(self.average.state(), &self.control))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        let (average, control): (Vec<u8>, _) = unpacked(state)?;
        self.average.restore(&average)?;
        self.control = control;
        Ok(())
    }
}
