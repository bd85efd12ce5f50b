//! Federations: the method, link, weights, seed, start and problem description that all ends share.
//!
//! The engine ([`crate::round::Run`]), the server ([`crate::node::ServerNode`]) and agents ([`crate::node::ClientNode`]) are built
//! from one [`Federation`], with the same checks.

mod canonical;
pub mod description;
pub mod rules;

use std::sync::Arc;

pub use description::Description;
pub use rules::{AnswerRules, Faults, MissingAnswers};

use crate::error::{Error, Result, require};
use crate::linalg::norm_sq;
use crate::local::Client;
use crate::method::{ControlRule, MethodSettings, MissingUpdate, Needs, Setting, check_link};
use crate::problem::Field;
use crate::problem::copies::Combination;
use crate::protocol::{Masks, Protocol};
use crate::record::OutputRule;
use crate::secure::{MAX_PAIRED, PublicKey, SumGrid};
use crate::uplink::Uplink;
use crate::uplink::stage::secure_sum::Summed;

/// The settings that all ends of a federation share. Clones share large parts.
#[derive(Clone)]
pub struct Federation {
    method: Arc<dyn MethodSettings>,
    uplink: Arc<Uplink>,
    weights: Arc<[f64]>,
    seed: u64,
    start: Arc<[f64]>,
    output: OutputRule,
    /// The combination of copies of theta that is the output, if start has copies.
    combination: Option<Arc<Combination>>,
    /// `||theta*||`, or 0.
    root: f64,
    problem: Option<Arc<Description>>,
    rules: AnswerRules,
    /// The number of epochs before: how often agents have joined or left.
    epoch: u64,
    /// Distinguishes runs with the same settings.
    run: u64,
    /// The agents' public keys in this epoch, for secure sums; otherwise empty.
    keys: Arc<[PublicKey]>,
}

impl std::fmt::Debug for Federation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { method, uplink, weights, seed, start, output, problem, .. } = self;
        f.debug_struct("Federation")
            .field("method", method)
            .field("uplink", uplink)
            .field("agents", &weights.len())
            .field("seed", seed)
            .field("dim", &start.len())
            .field("output", output)
            .field("problem", problem)
            .finish()
    }
}

impl Federation {
    /// A federation of N agents with `weights` `p_c`, which run a method over a link from `theta_0 = start`, d components. Its
    /// output is the last iterate ([`Federation::with_output`]).
    ///
    /// # Errors
    /// - A weight is not positive, the weights do not sum to 1, or `start` is not finite.
    /// - Settings are out of range.
    /// - The link does not fit N agents and d components, or the method cannot work over it.
    pub fn new(
        method: &dyn MethodSettings,
        uplink: &Uplink,
        weights: impl Into<Arc<[f64]>>,
        seed: u64,
        start: impl Into<Arc<[f64]>>,
    ) -> Result<Self> {
        let (method, uplink) = (method.shared(), Arc::new(uplink.clone()));
        let (weights, start): (Arc<[f64]>, Arc<[f64]>) = (weights.into(), start.into());
        require(!weights.is_empty(), "weights", "[]", "one weight for each agent")?;
        require(weights.len() < u32::MAX as usize, "weights", weights.len(), "fewer than 2^32 - 1 agents")?;
        let are_weights = weights.iter().all(|p| *p > 0.0 && p.is_finite());
        require(are_weights, "weights", "a weight that is not positive", "positive numbers")?;
        let sum: f64 = weights.iter().sum();
        require((sum - 1.0).abs() <= 1e-9, "weights", format!("a sum of {sum}"), "weights that sum to 1")?;
        require(!start.is_empty(), "start", "[]", "one component or more")?;
        require(start.iter().all(|x| x.is_finite()), "start", "a number that is not finite", "finite numbers")?;
        method.check(weights.len())?;
        check_dimension(&*method, start.len())?;
        let all = Self {
            method,
            uplink,
            weights,
            seed,
            start,
            output: OutputRule::Last,
            combination: None,
            root: 0.0,
            problem: None,
            rules: AnswerRules::default(),
            epoch: 0,
            run: 0,
            keys: Arc::new([]),
        };
        let setting = all.setting();
        all.uplink.check(all.agents(), all.dim(), all.method.protocol(&setting).encodes())?;
        all.client()?;
        all.grid_of().map_err(|e| e.inside("uplink.media"))?;
        Ok(all)
    }

    /// Builds a federation on the data of a field. Defaults: a clear link, `theta_0 = 0`, seed 0, and the last iterate as output.
    pub fn builder(method: &dyn MethodSettings) -> Builder {
        Builder {
            method: method.shared(),
            uplink: Uplink::default(),
            seed: 0,
            start: None,
            output: OutputRule::Last,
            problem: None,
            run: 0,
        }
    }

    /// Sets the output rule.
    #[must_use]
    pub fn with_output(self, output: OutputRule) -> Self {
        Self { output, ..self }
    }

    /// Sets the combination of copies of theta that is the output.
    #[must_use]
    pub fn combining(self, combination: Combination) -> Self {
        Self { combination: Some(Arc::new(combination)), ..self }
    }

    /// Sets the root, d components, for the test of divergence; by default it uses only `theta_0` ([`crate::coordinator::DIVERGED`]).
    #[must_use]
    pub fn with_root(self, root: &[f64]) -> Self {
        Self { root: norm_sq(root).sqrt(), ..self }
    }

    /// Sets the problem's description, so that agents with another problem are refused ([`Federation::digest`]).
    #[must_use]
    pub fn of_problem(self, problem: Description) -> Self {
        Self { problem: Some(Arc::new(problem)), ..self }
    }

    /// Sets the number of the run, 0 by default. Nodes refuse messages and states of another run with the same settings. It does not affect
    /// results. The starter of a run draws the number for all ends ([`crate::enrolment::Enrolment::with_run`]).
    #[must_use]
    pub fn of_run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// Sets the agents' public keys of this epoch, by number, which secure sums need.
    ///
    /// # Errors
    /// When there is not one key for each agent.
    pub fn with_keys(self, keys: impl Into<Arc<[PublicKey]>>) -> Result<Self> {
        let keys = keys.into();
        require(keys.len() == self.agents(), "keys", format!("{} keys", keys.len()), &format!("{} keys", self.agents()))?;
        Ok(Self { keys, ..self })
    }

    /// The agents' public keys ([`Federation::with_keys`]); empty without secure sums.
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// Sets how the server counts answers.
    ///
    /// # Errors
    /// When the method or the link does not support these rules.
    pub fn with_rules(self, rules: AnswerRules) -> Result<Self> {
        rules.check()?;
        let is_sum_only = self.uplink.facts().is_sum_only;
        if rules.need_single_answers() && is_sum_only {
            let what = "rules for single answers, and over this link only their sum arrives";
            return Err(Error::new("rules", what, "the default rules, or a link that delivers one message per agent"));
        }
        let keeps_sum = self.control_rule().is_some_and(|rule| rule != ControlRule::Afresh);
        if rules.missing == MissingAnswers::Reweighted && keeps_sum {
            let what = "`reweighted` with control variates, which sum to zero only if missing answers count as zero";
            return Err(Error::new("missing", what, "`zero`, or rule = \"afresh\""));
        }
        Ok(Self { rules, ..self })
    }

    /// The federation of the next epoch, after agents have joined or left: with these weights, and otherwise the same. Its hash differs, so
    /// that messages of earlier epochs are refused.
    ///
    /// # Errors
    /// As [`Federation::new`], and when a setting of the method does not fit the new number of agents.
    pub fn next_epoch(&self, weights: impl Into<Arc<[f64]>>) -> Result<Self> {
        self.at_epoch(weights, self.epoch + 1)
    }

    /// [`Federation::next_epoch`] for any later epoch.
    ///
    /// # Errors
    /// As [`Federation::next_epoch`].
    pub(crate) fn at_epoch(&self, weights: impl Into<Arc<[f64]>>, epoch: u64) -> Result<Self> {
        let Self { method, uplink, seed, start, .. } = self;
        let Self { weights, .. } = Self::new(&**method, uplink, weights, *seed, Arc::clone(start))?;
        Ok(Self { weights, epoch, keys: Arc::new([]), ..self.clone() })
    }

    /// The update rule of control variates over the link, if the method has any.
    fn control_rule(&self) -> Option<ControlRule> {
        match self.method.lost(self.agents(), &self.uplink.facts()) {
            MissingUpdate::Controls(rule) => Some(rule),
            MissingUpdate::Zero | MissingUpdate::Last => None,
        }
    }

    /// Whether agents subtract their computed direction from v, even if it did not arrive: only they then know their control variates.
    pub(crate) fn keeps_controls_literally(&self) -> bool {
        self.control_rule() == Some(ControlRule::Literal)
    }

    /// The epoch, 0 at the start: how often agents have joined or left.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The number of the run ([`Federation::of_run`]).
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Whether this is `other` in another epoch, with any agents.
    pub(crate) fn continues(&self, other: &Self) -> bool {
        let hash = |all: &Self| {
            let Self { method, uplink, seed, start, problem, run, .. } = all;
            description::digest(&(&**method, &**uplink, *seed, &**start, problem.as_deref(), run))
        };
        hash(self) == hash(other)
    }

    /// How the server counts answers.
    pub fn rules(&self) -> &AnswerRules {
        &self.rules
    }

    /// The number of agents N.
    pub fn agents(&self) -> usize {
        self.weights.len()
    }

    /// The dimension d.
    pub fn dim(&self) -> usize {
        self.start.len()
    }

    /// The approximate memory of an end in bytes, before it is built: vectors of d components, and the method's state for `agents` agents
    /// (all at a server, one at an agent).
    pub fn memory(&self, agents: usize) -> f64 {
        // Iterates, a question and an answer with their bytes; per agent a control variate with a copy, and an answer.
        let vectors = 8.0 + 3.0 * agents as f64;
        8.0 * self.dim() as f64 * vectors + self.method.memory(agents, self.dim())
    }

    /// The weights `p_c`, N of them.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// `theta_0`, d components.
    pub fn start(&self) -> &[f64] {
        &self.start
    }

    /// The link.
    pub fn uplink(&self) -> &Arc<Uplink> {
        &self.uplink
    }

    /// The output rule.
    pub fn output(&self) -> OutputRule {
        self.output
    }

    /// The combination of copies of theta that is the output.
    pub(crate) fn combination(&self) -> Option<&Combination> {
        self.combination.as_deref()
    }

    /// The larger of `||theta_0||` and `||theta*||`.
    pub(crate) fn scale(&self) -> f64 {
        norm_sq(&self.start).sqrt().max(self.root)
    }

    /// The method's settings.
    pub(crate) fn method(&self) -> &dyn MethodSettings {
        &*self.method
    }

    pub(crate) fn setting(&self) -> Setting<'_> {
        Setting { seed: self.seed, weights: &self.weights, start: self.start.to_vec(), link: self.uplink.facts(), is_accelerated: false }
    }

    /// The client half and the protocol.
    ///
    /// # Errors
    /// When the method cannot work over this link.
    pub(crate) fn client(&self) -> Result<(Box<dyn Client>, Protocol)> {
        let setting = self.setting();
        let (client, mut protocol) = (self.method.client(&setting), self.method.protocol(&setting));
        protocol.masks = self.uplink.secure_sum().map(|sum| Masks::new(sum.bits, self.agents()));
        check_link(&*self.method, &*client, &protocol, &self.uplink, self.dim())?;
        Ok((client, protocol))
    }

    /// Checks that the link is possible between machines.
    ///
    /// # Errors
    /// When it has old models (pull), or secure sums of too many agents.
    pub(crate) fn check_real(&self) -> Result<()> {
        if self.uplink.pull().is_some() {
            let what = "only the in-process engine can compute at old models, because no real federation has them";
            return Err(Error::new("uplink.media", what, "a link without delay (pull); late (push) is its counterpart"));
        }
        if self.uplink.secure_sum().is_some() && self.agents() > MAX_PAIRED {
            let what = format!("secure sums of {} agents, of which each pair has a key", self.agents());
            return Err(Error::new("uplink.media", what, format!("at most {MAX_PAIRED} agents, or a link without secure-sum")));
        }
        Ok(())
    }

    /// Checks that the data of one or all agents fit the federation.
    ///
    /// # Errors
    /// When the dimension differs, or the problem lacks what the method needs.
    pub(crate) fn check_field(&self, field: &dyn Field) -> Result<()> {
        require(field.dim() == self.dim(), "start", format!("{} components", self.dim()), &format!("{} components", field.dim()))?;
        check_needs(&*self.method, field)
    }

    /// The hash of all settings. Messages contain it, and a node refuses messages of another federation.
    ///
    /// It covers the method with its settings, the link, weights, seed, start, epoch, run ([`Federation::of_run`]), and the problem's
    /// [`Description`], if any ([`Federation::of_problem`]), but neither data nor paths. It protects against mistakes, not against attacks.
    pub fn digest(&self) -> u64 {
        u64::from_le_bytes(*self.full_digest().first_chunk().expect("32 bytes"))
    }

    /// All bytes of this hash (SHA-256), to which the keys of pairs are bound. It covers the agents' public keys, if there are any.
    pub fn full_digest(&self) -> [u8; 32] {
        let Self { method, uplink, weights, seed, start, problem, epoch, run, keys, .. } = self;
        let settings = (&**method, &**uplink, &**weights, seed, &**start, problem.as_deref());
        match (epoch, run) {
            _ if !keys.is_empty() => description::full_digest(&(settings, epoch, run, &**keys)),
            (0, 0) => description::full_digest(&settings),
            (epoch, 0) => description::full_digest(&(settings, epoch)),
            (epoch, run) => description::full_digest(&(settings, epoch, run)),
        }
    }

    /// The grid of secure sums, if the link has them.
    pub fn grid(&self) -> Option<SumGrid> {
        self.grid_of().ok().flatten()
    }

    fn grid_of(&self) -> Result<Option<SumGrid>> {
        let protocol = self.method.protocol(&self.setting());
        let exchanges = protocol.exchanges.len();
        let numbers = (0..exchanges).map(|e| protocol.summed_len(e as u8)).max().unwrap_or(0);
        self.uplink.grid(Summed { weights: &self.weights, numbers, exchanges })
    }
}

/// The settings of a federation that are not the method's ([`Federation::builder`]).
#[must_use]
pub struct Builder {
    method: Arc<dyn MethodSettings>,
    uplink: Uplink,
    seed: u64,
    start: Option<Vec<f64>>,
    output: OutputRule,
    problem: Option<Description>,
    run: u64,
}

impl Builder {
    /// The link.
    pub fn uplink(self, uplink: &Uplink) -> Self {
        Self { uplink: uplink.clone(), ..self }
    }

    /// The seed.
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// `theta_0`, d components.
    pub fn start(self, start: impl Into<Vec<f64>>) -> Self {
        Self { start: Some(start.into()), ..self }
    }

    /// The output rule.
    pub fn output(self, output: OutputRule) -> Self {
        Self { output, ..self }
    }

    /// The problem's description, so that agents with another problem are refused.
    pub fn problem(self, problem: Description) -> Self {
        Self { problem: Some(problem), ..self }
    }

    /// The number of the run ([`Federation::of_run`]).
    pub fn run(self, run: u64) -> Self {
        Self { run, ..self }
    }

    /// The federation of the agents in a field.
    ///
    /// # Errors
    /// As [`Federation::new`]; and when the problem lacks what the method needs.
    pub fn on(self, field: &dyn Field) -> Result<Federation> {
        let federation = self.of(field.weights(), field.dim())?;
        federation.check_field(field)?;
        Ok(federation)
    }

    /// The federation of agents with these weights, with models of `dim` components.
    ///
    /// # Errors
    /// As [`Federation::new`].
    pub fn of(self, weights: &[f64], dim: usize) -> Result<Federation> {
        let start = self.start.unwrap_or_else(|| vec![0.0; dim]);
        let federation = Federation::new(&*self.method, &self.uplink, weights, self.seed, start)?.with_output(self.output).of_run(self.run);
        Ok(match self.problem {
            Some(problem) => federation.of_problem(problem),
            None => federation,
        })
    }
}

/// Checks that messages of the method support vectors of d components.
fn check_dimension(settings: &dyn MethodSettings, d: usize) -> Result<()> {
    let most = settings.largest_dimension();
    if d <= most {
        return Ok(());
    }
    let what = format!("messages of the method hold at most d = {most} components, and the problem has d = {d}");
    Err(Error::new("kind", what, "fewer features, or another method"))
}

/// Checks that the agents' data are shortened as the privacy of a link counts on, unless they are elsewhere.
///
/// # Errors
/// When they are not.
pub fn check_units(uplink: &Uplink, field: &dyn Field) -> Result<()> {
    let facts = field.facts();
    let mut all = field.weights().iter().enumerate();
    if facts.is_elsewhere() { Ok(()) } else { all.try_for_each(|(c, p)| uplink.check_units(*p, facts.clipped_units(c))) }
}

/// Checks that the problem has what the method needs.
///
/// # Errors
/// When the method needs an objective, convex losses, linear operators or systems of a policy, and the problem has none.
pub fn check_needs(settings: &dyn MethodSettings, field: &dyn Field) -> Result<()> {
    check_dimension(settings, field.dim())?;
    let facts = field.facts();
    if facts.is_elsewhere() {
        return Ok(());
    }
    match settings.needs() {
        Needs::Objective if facts.objective().is_none() => {
            let what = "the method needs losses, gradients and Hessians, and the problem's operators are not known to be gradients";
            Err(Error::new("kind", what, "a problem with an objective, such as linear systems with symmetric A_c"))
        }
        Needs::Objective if facts.objective().is_some_and(|objective| !objective.is_convex()) => {
            let what = "the method needs convex losses, and those of the problem are not: its steps may lead to saddles";
            Err(Error::new("kind", what, "a problem with convex losses, or a method that needs samples only"))
        }
        Needs::LinearOperators if facts.linear_operators().is_none() => {
            let what = "the method solves a linear system, and the problem's operators are not known to be linear";
            Err(Error::new("kind", what, "a linear problem, or a method that needs samples only"))
        }
        Needs::PolicySystems if facts.policy_systems().is_none() => {
            let what = "the method improves a policy, and the operators of the problem are not known to be linear for a fixed policy";
            Err(Error::new("kind", what, "improvement or sarsa as the problem, or a method that needs samples only"))
        }
        Needs::Table if !facts.is_table() => {
            let what = "the method counts the visits of entries of a table, and not every sample of the problem changes one entry alone";
            Err(Error::new("kind", what, "q-learning with tabular features and samples, one a step, or another method such as fedlsa"))
        }
        _ => Ok(()),
    }
}
