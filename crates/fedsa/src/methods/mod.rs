//! One file per published method: its mathematics, its source, and the halves that it combines.
//!
//! `docs/src/extend/parts.md` in the repository explains how to add a method.

pub mod adaptive_newton;
pub mod agd;
pub mod anderson;
pub mod bfgs;
pub mod control_rule;
pub mod delayed_sa;
pub mod descent;
pub mod done;
pub mod fedhsa;
pub mod fedlin;
pub mod fedlsa;
pub mod fednl;
pub mod fedtd;
pub mod gd;
pub mod giant;
pub mod gmres;
pub mod lbfgs;
pub mod lstd;
pub mod newton;
pub mod one_shot;
pub mod projected_td;
pub mod q_shed;
pub mod scafflsa;
pub mod scafflsa_random;
pub mod scaffold;
pub mod shed;

use std::sync::Arc;

use crate::error::{Error, Result, require};
use crate::local::{Agent, Client};
use crate::protocol::{Give, Len, Protocol};
use crate::registry::{Kind, kind};
use crate::schedule::{LocalSteps, StepSchedule, StepSize};
use crate::server::average::Tell;
use crate::server::{Average, Participation, Server};
use crate::uplink::{LinkFacts, Uplink};
use control_rule::ControlRule;

/// The two halves of a method and the protocol between them, for one run.
pub struct Method {
    /// The agents' half.
    pub client: Half,
    /// The server's half.
    pub server: Box<dyn Server>,
    /// What travels between them.
    pub protocol: Protocol,
}

/// The agents' half of a method, in one of two forms.
pub enum Half {
    /// Agents compute side by side in lanes: H local steps with a drift.
    Lanes(Box<dyn Client>),
    /// Each agent computes alone, with a state of its own. The function makes an agent from its number in the federation.
    Each(MakeAgent),
}

/// Makes the agent with a number.
pub type MakeAgent = Box<dyn Fn(usize) -> Box<dyn Agent> + Send + Sync>;

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
pub fn check_link(settings: &dyn MethodSettings, client: &Half, protocol: &Protocol, uplink: &Uplink, d: usize) -> Result<()> {
    protocol.check()?;
    let link = uplink.facts();
    settings.check_link(&link)?;
    check_parts(client, protocol, uplink, d)?;
    if protocol.wants_each_anywhere() && link.is_sum_only {
        let what = "the method needs each agent's message, and over the air only their sum arrives";
        return Err(Error::new("uplink", what, "a link that delivers one message per agent"));
    }
    match client {
        Half::Lanes(client) => check_lanes(&**client, &link),
        Half::Each(_) => check_each(protocol, &link),
    }
}

/// Checks that what the method sends can be sent by lanes, encoded, and corrected by error feedback.
fn check_parts(client: &Half, protocol: &Protocol, uplink: &Uplink, d: usize) -> Result<()> {
    let wants = || protocol.exchanges.iter().flat_map(|exchange| &exchange.wants);
    if let Half::Lanes(_) = client
        && !protocol.exchanges.iter().all(|exchange| exchange.wants.len() == 1 && exchange.wants[0].len == Len::Exactly(d))
    {
        let what = "agents that work side by side in lanes, and an exchange that wants other than one vector of d components";
        return Err(Error::new("protocol", what, "agents that compute alone (Half::Each)"));
    }
    if let Some(want) = wants().find(|want| uplink.error_feedback && want.part.may_be_encoded() && want.len != Len::Exactly(d)) {
        let what = format!("error feedback adds up vectors of d = {d} components, and the method sends {} of another length", want.part);
        return Err(Error::new("uplink.error_feedback", what, "error_feedback = false, for a method that sends anything else"));
    }
    if !protocol.encodes() && (uplink.error_feedback || !uplink.codec.is_exact()) {
        let what = "nothing that the method sends may be altered by a codec";
        return Err(Error::new("uplink.codec", what, "no codec and no error_feedback; a bit-budget tells agents how much they may send"));
    }
    Ok(())
}

/// Checks that agents which compute alone can answer over a link.
fn check_each(protocol: &Protocol, link: &LinkFacts) -> Result<()> {
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

/// Checks that agents in lanes, who may remember rounds, can answer over a link.
fn check_lanes(client: &dyn Client, link: &LinkFacts) -> Result<()> {
    let refused = |what: &str, help: &str| Err(Error::new("uplink", what, help));
    if client.remembers_rounds() && link.stale.is_some() {
        return refused(
            "a delay (pull) uses a direction twice or never, and the method's agents remember what they sent",
            "late (push), or a method without agent state such as fedlsa or fedtd",
        );
    }
    if client.controls().is_some() && link.is_sum_only {
        return refused(
            "rule = \"acknowledged\" needs to know which messages are in a round's mean, which over the air is unknown",
            "rule = \"auto\" or \"afresh\"",
        );
    }
    if client.controls().is_some() && link.late.is_some() {
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
    /// Whether the server moves theta after each round of the method ([`anderson`]): agents cannot learn from the next model
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
        Protocol::directions(setting.start.len(), Give::Sum)
    }
    /// The agents' half.
    fn client(&self, setting: &Setting<'_>) -> Half;
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
    fn lost(&self, _agents: usize, _link: &LinkFacts) -> Lost {
        Lost::Zero
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
pub enum Lost {
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
    pub(crate) fn without_local_steps() -> Self {
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

/// The kinds of methods, by the name that `kind` gives.
pub const KINDS: &[Kind<dyn MethodSettings>] = &[
    kind!("fedlsa", "local steps, then averaging (Local SA)", fedlsa::FedLsa, "fedavg"),
    kind!("scafflsa", "control variates, a talk every H steps", scafflsa::Scafflsa),
    kind!("scafflsa-random", "control variates, talks at random", scafflsa_random::ScafflsaRandom),
    kind!("fedhsa", "the mean operator of the round's start as memory", fedhsa::FedHsa),
    kind!("scaffold", "control variates of the agents and of the server", scaffold::Scaffold),
    kind!("fedlin", "FedHSA with a sample of its own in the first local step", fedlin::FedLin),
    kind!("one-shot", "all local steps first, then one average", one_shot::OneShot),
    kind!("fedtd", "one direction an agent and round (federated TD over channels)", fedtd::FedTd),
    kind!("delayed-sa", "directions at stale models", delayed_sa::DelayedSa),
    kind!("delay-adaptive-sa", "directions at stale models that are near enough", delayed_sa::DelayAdaptiveSa),
    kind!("dasa", "the half of the directions whose models are nearest", delayed_sa::Dasa),
    kind!("projected-td", "FedLSA projected on a ball", projected_td::ProjectedTd),
    kind!("lstd", "every agent sends its linear system, the server solves", lstd::Lstd),
    kind!("gmres", "a Krylov space of the mean operator at the server", gmres::Gmres),
    kind!("anderson", "Anderson acceleration of another method's rounds", anderson::Anderson),
    kind!("newton", "Newton steps with backtracking, for problems with an objective", newton::Newton),
    kind!("shed", "Newton-type steps from a few Hessian eigenpairs a round", shed::Shed),
    kind!("q-shed", "the same with eigenvectors quantised by as many bits as the link carries", q_shed::QShed),
    kind!("gd", "gradient descent, by a fixed step or with backtracking", gd::GradientDescent),
    kind!("agd", "Nesterov's accelerated gradients", agd::AcceleratedGradient),
    kind!("bfgs", "BFGS at the server, with backtracking", bfgs::Bfgs),
    kind!("lbfgs", "limited-memory BFGS at the server, with backtracking", lbfgs::Lbfgs),
    kind!("giant", "the mean of the agents' own Newton directions", giant::Giant),
    kind!(
        "adaptive-newton",
        "quasi-Newton steps with curvature of the agents or of whole Hessians, whichever pays",
        adaptive_newton::AdaptiveNewton
    ),
    kind!("done", "the mean of the agents' own Newton directions, by Richardson's iteration", done::Done),
    kind!("fednl", "a Hessian learned from compressed corrections", fednl::FedNl),
];

/// How many of N agents that compute alone answer at one time, about: as many as there are threads.
pub(crate) fn at_work(agents: usize) -> f64 {
    agents.min(rayon::current_num_threads()) as f64
}

/// A global step size of 1.
pub(crate) fn one() -> f64 {
    1.0
}

/// Checks the settings that first-order methods share, for N agents.
///
/// # Errors
/// When a step size is not positive, H is not between 1 and [`MAX_LOCAL_STEPS`], or m is not between 1 and N; names the setting.
pub fn check_common(step_size: &StepSize, local_steps: usize, alpha_g: f64, participants: Option<usize>, agents: usize) -> Result<()> {
    step_size.check()?;
    require((1..=MAX_LOCAL_STEPS).contains(&local_steps), "local_steps", local_steps, &format!("between 1 and {MAX_LOCAL_STEPS}"))?;
    require(alpha_g > 0.0 && alpha_g.is_finite(), "global_step_size", alpha_g, "a positive number")?;
    let m = participants.unwrap_or(agents);
    require((1..=agents).contains(&m), "participants", m, &format!("between 1 and the number of agents, {agents}"))
}

/// The largest accepted number of local steps in one round.
pub const MAX_LOCAL_STEPS: usize = 100_000_000;

/// The averaging server that first-order methods share: `theta += alpha_g E v` over m of N participants. A method may set its
/// fields, such as `radius` and `operators_first`.
pub fn averaging(setting: &Setting<'_>, steps: StepSchedule, alpha_g: f64, participants: Option<usize>) -> Average {
    Average {
        theta: setting.start.clone(),
        steps,
        alpha_g,
        participation: Participation { m: participants, agents: setting.agents(), seed: setting.seed },
        operators_first: false,
        table: None,
        table_rounds: Vec::new(),
        weights: Vec::new(),
        tell: Tell::Nothing,
        included: None,
        radius: None,
    }
}

/// H local steps in every round.
pub fn fixed(size: StepSize, h: usize) -> StepSchedule {
    StepSchedule { size, local: LocalSteps::Fixed(h) }
}
