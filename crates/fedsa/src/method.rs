//! Methods: settings that build two halves and the protocol between them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::local::Client;
use crate::message::{Part, TELL};
use crate::privacy::unit::PrivacyUnit;
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
    /// The protocol between them.
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
/// With the reason, when the link does not deliver what the method needs.
pub fn check_link(settings: &dyn MethodSettings, client: &dyn Client, protocol: &Protocol, uplink: &Uplink, d: usize) -> Result<()> {
    protocol.check()?;
    let link = uplink.facts();
    if link.is_robust {
        check_robust(settings, protocol, &link)?;
    }
    settings.check_link(&link)?;
    check_parts(client, protocol, uplink, d)?;
    if protocol.wants_each_anywhere() && link.is_sum_only {
        let what = "the method needs each agent's message, and over this link only their sum arrives";
        let help = "a link that delivers one message per agent, or a method that needs sums only: fedlsa, scafflsa, fedhsa, lstd, gd, lbfgs or newton";
        return Err(Error::new("uplink", what, help));
    }
    if uplink.secure_sum().is_some() && settings.shape().participants.is_some() {
        let what = "secure-sum with some of the agents in a round, whose masks would not be those of all";
        return Err(Error::new("participants", what, "all agents, or a link without secure-sum"));
    }
    if uplink.privacy().is_some() {
        check_private(settings, protocol, uplink)?;
    }
    if client.facts().agents.is_some() { check_alone(protocol, &link) } else { check_lanes(client, &link) }
}

/// Checks that noise in the sums makes the method's rounds private: all that agents send is a vector that can be shortened, and their state
/// is made of own data and of sums that were released.
fn check_private(settings: &dyn MethodSettings, protocol: &Protocol, uplink: &Uplink) -> Result<()> {
    let refused = |what: &str, help: &str| Err(Error::new("uplink.media.privacy", what, help));
    let mut wants = protocol.exchanges.iter().flat_map(|exchange| &exchange.replies);
    if let Some(privacy) = uplink.privacy().filter(|privacy| privacy.unit != PrivacyUnit::Agent) {
        if !wants.all(|want| want.part == Part::System) {
            return refused("the method sends more than sums over rows", "lstd for the units row and episode; or `unit = \"agent\"`");
        }
        return if privacy.rounds == 1 { Ok(()) } else { refused("several releases of the same sums", "`rounds = 1`") };
    }
    if !wants.all(|want| [Part::Direction, Part::Operator, Part::System].contains(&want.part)) {
        return refused(
            "the method sends more than directions, operators and systems",
            "fedlsa, fedtd, scafflsa, fedhsa, another first-order method, or lstd",
        );
    }
    if uplink.error_feedback {
        return refused("error feedback adds errors of earlier messages, which are not shortened", "error_feedback = false");
    }
    match settings.lost(uplink.secure_sum().map_or(1, |sum| sum.least_agents), &uplink.facts()) {
        MissingUpdate::Controls(rule) if rule != ControlRule::Afresh => {
            refused("control variates that keep what was sent contain noise of others", "rule = \"afresh\"")
        }
        MissingUpdate::Last => refused("the last message of an agent would be released again", "missing = \"zero\""),
        _ => Ok(()),
    }
}

/// Checks that the method's parts can be encoded, and corrected by error feedback.
fn check_parts(client: &dyn Client, protocol: &Protocol, uplink: &Uplink, d: usize) -> Result<()> {
    let wants = || protocol.exchanges.iter().flat_map(|exchange| &exchange.replies);
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

/// Checks that the method's server can use a robust mean of the answers.
fn check_robust(settings: &dyn MethodSettings, protocol: &Protocol, link: &LinkFacts) -> Result<()> {
    let refused =
        |what: String| Err(Error::new("uplink.aggregation", what, "`mean`, or a method that averages directions, operators or gradients"));
    if link.is_sum_only {
        return refused("over this link only the sum of the answers arrives, and a robust mean needs each one".into());
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

/// Checks that agents whose state depends on counted answers can start again: with a copy of their control variate, or because they compute
/// alone and resend everything.
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

/// Checks that agents in lanes, which may remember rounds, can answer over a link.
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
            "rule = \"acknowledged\" needs to know which messages are in a round's mean, which over a link that delivers only sums is unknown to single agents",
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
    /// Whether the server moves theta after each round of the method (Anderson acceleration), so that agents cannot infer a round's update
    /// from the next model.
    pub is_accelerated: bool,
}

/// The settings of one method: the keys of `[[method]]` except `kind`, `label`, links and expectations. They build the
/// method's halves and its protocol.
pub trait MethodSettings: erased_serde::Serialize + std::fmt::Debug + Shared + Send + Sync {
    /// Checks ranges for N agents; called before the functions below.
    ///
    /// # Errors
    /// When a setting is out of range; names the setting.
    fn check(&self, agents: usize) -> Result<()>;
    /// The largest d that the method's messages support.
    fn largest_dimension(&self) -> usize {
        u32::MAX as usize
    }

    /// The facts of a problem that the method needs, in addition to samples.
    fn needs(&self) -> Needs {
        Needs::Samples
    }
    /// Checks the method's own requirements on a link, besides those of its protocol ([`check_link`]).
    ///
    /// # Errors
    /// With the reason, when the method cannot work over the link.
    fn check_link(&self, _link: &LinkFacts) -> Result<()> {
        Ok(())
    }
    /// The protocol between the halves. By default models down, and directions up whose sum is enough.
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
    /// The bytes that N agents which compute alone and their server keep for vectors of d components, besides the vectors that every run
    /// has.
    fn memory(&self, _agents: usize, _d: usize) -> f64 {
        0.0
    }
    /// The multiply-adds of each of N agents in a round besides local steps, including its share of the server's work.
    fn work(&self, _agents: usize, _d: usize) -> f64 {
        0.0
    }
    /// The method's shape in theory.
    fn shape(&self) -> MethodShape;
    /// The effect of missing answers on the method's memory over a link, in theory.
    fn lost(&self, _agents: usize, _link: &LinkFacts) -> MissingUpdate {
        MissingUpdate::Zero
    }
}

erased_serde::serialize_trait_object!(MethodSettings);

/// Settings that a federation shares with its ends; every `Clone` type has it.
pub trait Shared {
    /// A copy of the settings.
    fn shared(&self) -> Arc<dyn MethodSettings>;
}

impl<S: MethodSettings + Clone + 'static> Shared for S {
    fn shared(&self) -> Arc<dyn MethodSettings> {
        Arc::new(self.clone())
    }
}

/// The facts of a problem that a method needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Only samples.
    Samples,
    /// Losses, gradients or Hessians.
    Objective,
    /// `A_c` and `b_c` of linear operators, or products with them.
    LinearOperators,
    /// Linear systems under the policy that theta determines.
    PolicySystems,
    /// Samples that each change one entry of a table.
    Table,
}

/// The shape of a method in theory: its drift, and the settings that determine its rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MethodShape {
    /// The drift that a local step adds to the operator.
    pub drift: Drift,
    /// The step size.
    pub step_size: StepSize,
    /// H; with random communication its mean, 1/p.
    pub local_steps: f64,
    /// The global step size.
    pub alpha_g: f64,
    /// m of N.
    pub participants: Option<usize>,
    /// Whether theory may use its formulas: on linear problems a noiseless round is linear, with local steps that have this drift and the
    /// server's move `theta += alpha_g E v` (E: the sum of the round's step sizes, v: the mean direction). False for any other server, also
    /// one with memory such as momentum, and for rounds that are not linear. Theory then says `not known`.
    pub is_linear: bool,
}

/// The effect of missing answers on a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingUpdate {
    /// They count as zero.
    Zero,
    /// Operators count as the agent's last one that arrived; directions as zero.
    Last,
    /// Directions count as zero, and control variates follow this rule, never `auto`.
    Controls(ControlRule),
}

/// The drift of a local step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Drift {
    /// None.
    Zero,
    /// `xi_c`.
    ControlVariate {
        /// The probability of communicating after a step, for random communication.
        talk: Option<f64>,
    },
    /// `G - g_c(theta_t, z_{c,0})`.
    GlobalMemory {
        /// The samples of an agent's operator that no local step uses: 0 if it is that of the first step (FedHSA), 1 for FedLin. This
        /// changes the mean square of a round, not its mean.
        fresh: usize,
    },
    /// There are no local steps.
    NoSteps,
}

impl MethodShape {
    /// The shape of a method without local steps, outside the theory of first-order methods.
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

/// The update of control variates over links that alter, lose or delay messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ControlRule {
    /// `afresh` if only sums arrive, messages are late, or the downlink alters models; otherwise `acknowledged`. With m of N: `literal` if
    /// messages are only late, `acknowledged` if models are altered.
    #[default]
    Auto,
    /// As in \[S\], over any link.
    Literal,
    /// Agents subtract their message as decoded, or nothing if it was lost; `literal` over an exact link.
    Acknowledged,
    /// Agents send `c_c = v_c - xi_c`: stable, but biased with m of N, because control variates are old and other agents' drifts are
    /// missing.
    Afresh,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::local::ByAgent;

    /// A method that runs no round.
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
