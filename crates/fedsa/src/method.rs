//! What a method is to the engine: its settings, which build its two halves and the protocol between them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::local::Client;
use crate::message::{Part, TELL, Unit};
use crate::protocol::{Gather, Len, Protocol, ReplySpec};
use crate::schedule::StepSize;
use crate::server::Server;
use crate::uplink::{LinkFacts, Uplink};

/// The two halves of a method and the protocol between them, for one run.
pub struct Method {
    /// The agents' half.
    pub client: Box<dyn Client>,
    /// The server's half.
    pub server: Box<dyn Server>,
    /// What travels between them.
    pub protocol: Protocol,
}

impl Setting<'_> {
    /// The number of agents N.
    pub fn agents(&self) -> usize {
        self.weights.len()
    }
}

/// Checks that a method's halves can work over a link.
///
/// # Errors
/// When the method needs something that its link does not deliver, with the reason.
pub fn check_link(settings: &dyn MethodSettings, client: &dyn Client, protocol: &Protocol, uplink: &Uplink, d: usize) -> Result<()> {
    protocol.check()?;
    let link = uplink.facts();
    if link.is_robust {
        check_robust(settings, protocol, &link)?;
    }
    settings.check_link(&link)?;
    check_parts(client, protocol, uplink, d)?;
    if protocol.wants_each_anywhere() && link.is_sum_only {
        let what = "the method needs each agent's message, and over the air only their sum arrives";
        return Err(Error::new("uplink", what, "a link that delivers one message per agent"));
    }
    if client.facts().agents.is_some() { check_alone(protocol, &link) } else { check_lanes(client, &link) }
}

/// Checks that what the method sends can be sent by lanes, encoded, and corrected by error feedback.
fn check_parts(client: &dyn Client, protocol: &Protocol, uplink: &Uplink, d: usize) -> Result<()> {
    let wants = || protocol.exchanges.iter().flat_map(|exchange| &exchange.replies);
    let is_vector = |replies: &[ReplySpec]| matches!(replies, [want] if want.len == Len::Exactly(d) && want.part.unit() == Unit::Vector);
    if client.facts().agents.is_none() && !protocol.exchanges.iter().all(|exchange| is_vector(&exchange.replies)) {
        let what = "agents that work side by side in lanes, and an exchange that wants other than one vector of d components";
        return Err(Error::new("protocol", what, "agents that compute alone (ByAgent)"));
    }
    if let Some(want) = wants().find(|want| uplink.error_feedback && want.part.may_be_encoded() && want.len != Len::Exactly(d)) {
        let what = format!("error feedback adds up vectors of d = {d} components, and the method sends {} of another length", want.part);
        return Err(Error::new("uplink.error_feedback", what, "error_feedback = false, for a method that sends anything else"));
    }
    if !protocol.encodes() && (uplink.error_feedback || !uplink.codec.is_exact()) {
        let what = "nothing that the method sends may be altered by a codec";
        return Err(Error::new("uplink.codec", what, "no codec and no error_feedback; a bit-budget tells agents how much they may send"));
    }
    if !protocol.encodes() && uplink.alters_vectors() {
        let what = "clip and noise alter what a codec may alter, and the method sends nothing of that kind";
        return Err(Error::new("uplink.media", what, "a link without them"));
    }
    check_acknowledged(client, protocol)
}

/// Checks that the server of a method can take another mean of the answers than the weighted one.
fn check_robust(settings: &dyn MethodSettings, protocol: &Protocol, link: &LinkFacts) -> Result<()> {
    let refused =
        |what: String| Err(Error::new("uplink.aggregation", what, "`mean`, or a method that averages directions, operators or gradients"));
    if link.is_sum_only {
        return refused("over the air only the sum of the answers arrives, and a robust mean needs each one".into());
    }
    if matches!(settings.shape().drift, Drift::ControlVariate { .. }) {
        return refused("the agents' control variates sum to zero only if v is the mean of what agents send".into());
    }
    let mut wants = protocol.exchanges.iter().flat_map(|exchange| &exchange.replies);
    let is_averaged =
        |want: &ReplySpec| want.gather == Gather::Sum && [Part::Direction, Part::Operator, Part::Gradient].contains(&want.part);
    match wants.find(|want| !is_averaged(want)) {
        None => Ok(()),
        Some(ReplySpec { part, gather: Gather::Each, .. }) => {
            refused(format!("the server of the method uses {part} of each agent, and not their mean"))
        }
        Some(ReplySpec { part, .. }) => {
            refused(format!("the method needs the mean of {part}, for which a robust mean of each number does not stand"))
        }
    }
}

/// Checks that agents which compute alone can answer over a link.
fn check_alone(protocol: &Protocol, link: &LinkFacts) -> Result<()> {
    let refused = |what: &str, help: &str| Err(Error::new("uplink", what, help));
    if !protocol.depends_on_model() {
        return match link.stale {
            Some(_) => refused(
                "what the agents of the method send depends on no model, so that a delay (pull) would change nothing",
                "late (push), or a link without delay",
            ),
            None => Ok(()),
        };
    }
    if link.stale.is_some() || link.late.is_some() {
        return refused(
            "the agents of the method compute at one iterate, and over this link answers are to older iterates",
            "a link without delay and late",
        );
    }
    Ok(())
}

/// Checks that agents whose state depends on which of their answers counted can begin anew: with a copy of their control variate, or because
/// they compute alone and say everything again.
fn check_acknowledged(client: &dyn Client, protocol: &Protocol) -> Result<()> {
    let computes_alone = client.facts().agents.is_some() && !protocol.tells_what_counted(TELL);
    if !protocol.acknowledges() || client.copied_controls().is_some() || computes_alone {
        return Ok(());
    }
    let what = "Part::Counted for agents that cannot begin anew";
    Err(Error::new(
        "protocol",
        what,
        "control variates of which a server can hold copies, or agents that compute alone and are told nothing",
    ))
}

/// Checks that agents in lanes, who may remember rounds, can answer over a link.
fn check_lanes(client: &dyn Client, link: &LinkFacts) -> Result<()> {
    let refused = |what: &str, help: &str| Err(Error::new("uplink", what, help));
    if client.facts().remembers_rounds && link.stale.is_some() {
        return refused(
            "a delay (pull) uses a direction twice or never, and the method's agents remember what they sent",
            "late (push), or a method without agent state such as fedlsa or fedtd",
        );
    }
    if client.copied_controls().is_some() && link.is_sum_only {
        return refused(
            "rule = \"acknowledged\" needs to know which messages are in a round's mean, which over the air is unknown",
            "rule = \"auto\" or \"afresh\"",
        );
    }
    if client.copied_controls().is_some() && link.late.is_some() {
        return refused(
            "rule = \"acknowledged\" keeps one message of an agent until a mean includes it, and over this link several are on their way",
            "rule = \"auto\" or \"afresh\"",
        );
    }
    Ok(())
}

/// The run for which a method is built.
#[derive(Debug, Clone)]
pub struct Setting<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The agents' weights `p_c`, N of them.
    pub weights: &'a [f64],
    /// `theta_0`, d components.
    pub start: Vec<f64>,
    /// The facts of the link.
    pub link: LinkFacts,
    /// Whether the server moves theta after each round of the method (Anderson acceleration): agents cannot learn from the next model
    /// what a round did.
    pub is_accelerated: bool,
}

/// The settings of one method: the keys of `[[method]]` except `kind`, `label`, links and expectations. They build the
/// method's halves and its protocol.
pub trait MethodSettings: erased_serde::Serialize + std::fmt::Debug + Shared + Send + Sync {
    /// Checks ranges for N agents. It is called before the functions below.
    ///
    /// # Errors
    /// When a setting is out of range; names the setting.
    fn check(&self, agents: usize) -> Result<()>;
    /// The largest d that messages of the method can hold.
    fn largest_dimension(&self) -> usize {
        u32::MAX as usize
    }

    /// What the method needs of a problem besides samples.
    fn needs(&self) -> Needs {
        Needs::Samples
    }
    /// Checks what the method itself needs of a link, besides what follows from its protocol ([`check_link`]).
    ///
    /// # Errors
    /// When the method cannot work over the link, with the reason.
    fn check_link(&self, _link: &LinkFacts) -> Result<()> {
        Ok(())
    }
    /// What travels between the halves. By default models down and directions up, of which a sum is enough.
    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::directions(setting.start.len(), Gather::Sum)
    }
    /// The agents' half.
    fn client(&self, setting: &Setting<'_>) -> Box<dyn Client>;
    /// The server's half.
    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server>;
    /// Both halves and the protocol, for one run.
    fn build(&self, setting: &Setting<'_>) -> Method {
        Method { client: self.client(setting), server: self.server(setting), protocol: self.protocol(setting) }
    }
    /// The bytes that N agents which compute alone and their server keep for vectors of d components: beyond the
    /// vectors of a run, which are counted for every method.
    fn memory(&self, _agents: usize, _d: usize) -> f64 {
        0.0
    }
    /// The multiply-adds of each of N agents in a round, beside its local steps, with its share of what the server computes.
    fn work(&self, _agents: usize, _d: usize) -> f64 {
        0.0
    }
    /// What theory knows of the method.
    fn shape(&self) -> MethodShape;
    /// What answers that do not arrive do to its memory over a link, as theory sees it.
    fn lost(&self, _agents: usize, _link: &LinkFacts) -> MissingUpdate {
        MissingUpdate::Zero
    }
}

erased_serde::serialize_trait_object!(MethodSettings);

/// Settings as a value that a federation shares with its ends: what can be cloned has it.
pub trait Shared {
    /// A copy of the settings.
    fn shared(&self) -> Arc<dyn MethodSettings>;
}

impl<S: MethodSettings + Clone + 'static> Shared for S {
    fn shared(&self) -> Arc<dyn MethodSettings> {
        Arc::new(self.clone())
    }
}

/// What a method needs of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Samples alone.
    Samples,
    /// Losses, gradients or Hessians.
    Objective,
    /// `A_c` and `b_c` of linear operators, or products with them.
    LinearOperators,
}

/// What theory knows of a method: its drift, and the settings that determine its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MethodShape {
    /// The drift that a local step adds to the operator.
    pub drift: Drift,
    /// The step size.
    pub step_size: StepSize,
    /// H; with random talk the mean of H, 1/p.
    pub local_steps: f64,
    /// The global step size.
    pub alpha_g: f64,
    /// m of N.
    pub participants: Option<usize>,
    /// Whether a noiseless round is a linear map of the state on linear problems.
    pub is_linear: bool,
}

/// What answers that do not arrive do to a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingUpdate {
    /// They count as zero.
    Zero,
    /// Operators count as what arrived of the agent last; directions as zero.
    Last,
    /// Directions count as zero, and controls are kept by this rule, which is never `auto`.
    Controls(ControlRule),
}

/// The drift of a local step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Drift {
    /// None.
    Zero,
    /// `xi_c`.
    ControlVariate {
        /// The probability of talking after a step, for random talk.
        talk: Option<f64>,
    },
    /// `G - g_c(theta_t, z_{c,0})`.
    GlobalMemory {
        /// Whether the first local step draws a sample of its own (FedLin) instead of `z_{c,0}` (FedHSA). The mean of a round is
        /// the same, its mean square is not.
        fresh: bool,
    },
    /// There are no local steps.
    NoSteps,
}

impl MethodShape {
    /// The shape of a method without local steps, for which the theory of first-order methods makes no statement.
    pub fn without_local_steps() -> Self {
        Self {
            drift: Drift::NoSteps,
            step_size: StepSize::Constant(1.0),
            local_steps: 0.0,
            alpha_g: 1.0,
            participants: None,
            is_linear: false,
        }
    }
}

/// The `rule` setting: how control variates are kept over links that alter, lose or delay messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlRule {
    /// `acknowledged`; `afresh` if only sums arrive, messages arrive late, or the downlink alters models. With m of N participants,
    /// messages that are only late get `literal`, and altered models `acknowledged`.
    #[default]
    Auto,
    /// As in \[S\], whatever the link does.
    Literal,
    /// Agents subtract their own message as the server decoded it, or nothing if it was lost. Over an exact link this is `literal`.
    Acknowledged,
    /// Agents send `c_c = v_c - xi_c`: stable. With m of N participants it is biased, because controls are from an agent's last
    /// participation and the others' drifts are missing.
    Afresh,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::local::ByAgent;

    /// A method of which no round is made.
    #[derive(Debug, Clone, Serialize)]
    pub struct Unused {}

    impl MethodSettings for Unused {
        fn check(&self, _: usize) -> Result<()> {
            Ok(())
        }

        fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
            ByAgent::boxed(|_| unreachable!("no round is made"))
        }

        fn server(&self, _: &Setting<'_>) -> Box<dyn Server> {
            unreachable!("no round is made")
        }

        fn shape(&self) -> MethodShape {
            MethodShape::without_local_steps()
        }
    }
}
