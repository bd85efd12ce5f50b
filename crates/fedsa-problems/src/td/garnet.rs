//! Garnet problems (Archibald et al. 1995, in the form of Geist and Scherrer 2014; \[S\] sec. 6).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::memory::{self, MemoryEstimate, Moves, TableSizes, reward_process};
use crate::noise::{self, Noise};
use crate::td::mrp::{FederatedTd, Mrp, Successor};
use crate::td::random_mrp::FeatureLaw;
use crate::{Files, ProblemSettings, check_counts};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::problem::{Field, equal_weights};
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::sampling::Sampling;

/// Presets of `kernels`, `perturbation`, `opposite_rewards` and `reward_perturbation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Heterogeneity {
    /// One kernel plus U(0, 0.0002); equal rewards.
    Identical,
    /// One kernel plus U(0, 0.02); rewards r + U(0, 0.02).
    Low,
    /// Two kernels plus U(0, 0.02), rewards r and -r, alternating by agent.
    TwoKernels,
    /// A kernel per agent; equal rewards.
    #[default]
    Independent,
}

/// Kernels before perturbation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kernels {
    /// One for all agents.
    One,
    /// Two, alternating by agent.
    Two,
    /// One per agent.
    Independent,
}

/// Evaluated policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// One action per state, drawn once (the authors' scripts).
    #[default]
    OneAction,
    /// All actions with equal probability (the text of \[S\]).
    Uniform,
}

/// The `garnet` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Garnet {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// States.
    #[cfg_attr(feature = "schema", schemars(range(min = 2, max = crate::settings::MAX_STATES)))]
    pub states: usize,
    /// Actions.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub actions: usize,
    /// Successors of a state and action, at most `states`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub branching: usize,
    /// Features d, at most `states`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub features: usize,
    /// Discount factor.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub gamma: f64,
    /// Seed.
    pub seed: u64,
    /// Evaluated policy.
    pub policy: Policy,
    /// Differences between agents.
    pub heterogeneity: Heterogeneity,
    /// Kernels, instead of the preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernels: Option<Kernels>,
    /// Adds U(0, this) to non-zero probabilities, instead of the preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub perturbation: Option<f64>,
    /// Rewards -r for odd agents, instead of the preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opposite_rewards: Option<bool>,
    /// Adds U(0, this) to rewards, instead of the preset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub reward_perturbation: Option<f64>,
    /// Least size of the closed class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_class: Option<usize>,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { Garnet {
    with_agents(agents: usize) = agents;
    with_states(states: usize) = states;
    with_actions(actions: usize) = actions;
    with_branching(branching: usize) = branching;
    with_features(features: usize) = features;
    with_gamma(gamma: f64) = gamma;
    with_seed(seed: u64) = seed;
    with_policy(policy: Policy) = policy;
    with_heterogeneity(heterogeneity: Heterogeneity) = heterogeneity;
    with_kernels(kernels: impl Into<Option<Kernels>>) = kernels.into();
    with_perturbation(perturbation: impl Into<Option<f64>>) = perturbation.into();
    with_opposite_rewards(opposite_rewards: impl Into<Option<bool>>) = opposite_rewards.into();
    with_reward_perturbation(reward_perturbation: impl Into<Option<f64>>) = reward_perturbation.into();
    with_min_class(min_class: impl Into<Option<usize>>) = min_class.into();
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for Garnet {
    fn default() -> Self {
        Self {
            agents: 100,
            states: 30,
            actions: 2,
            branching: 2,
            features: 8,
            gamma: 0.95,
            seed: 0,
            policy: Policy::OneAction,
            heterogeneity: Heterogeneity::Independent,
            kernels: None,
            perturbation: None,
            opposite_rewards: None,
            reward_perturbation: None,
            min_class: None,
            noise: None,
        }
    }
}

/// The settings of the preset with the overrides.
pub(crate) struct Plan {
    kernels: Kernels,
    perturbation: f64,
    opposite: bool,
    reward_perturbation: f64,
}

impl Garnet {
    fn min_class(&self) -> usize {
        self.min_class.unwrap_or((self.states / 2 + 1).min(16))
    }

    pub(crate) fn plan(&self) -> Plan {
        let (kernels, perturbation, opposite, reward_perturbation) = match self.heterogeneity {
            Heterogeneity::Identical => (Kernels::One, 0.0002, false, 0.0),
            Heterogeneity::Low => (Kernels::One, 0.02, false, 0.02),
            Heterogeneity::TwoKernels => (Kernels::Two, 0.02, true, 0.0),
            Heterogeneity::Independent => (Kernels::Independent, 0.0, false, 0.0),
        };
        Plan {
            kernels: self.kernels.unwrap_or(kernels),
            perturbation: self.perturbation.unwrap_or(perturbation),
            opposite: self.opposite_rewards.unwrap_or(opposite),
            reward_perturbation: self.reward_perturbation.unwrap_or(reward_perturbation),
        }
    }

    /// The number of distinct agents. Equal agents share their tables.
    pub(crate) fn kinds(&self, plan: &Plan) -> usize {
        let periodic = match (plan.kernels, plan.opposite) {
            _ if plan.perturbation > 0.0 || plan.reward_perturbation > 0.0 => None,
            (Kernels::Independent, _) => None,
            (Kernels::One, false) => Some(1),
            (Kernels::Two, _) | (Kernels::One, true) => Some(2),
        };
        periodic.map_or(self.agents, |k| k.min(self.agents))
    }

    /// The number of successors of a state under the policy.
    fn outcomes(&self) -> f64 {
        let actions = if self.policy == Policy::Uniform { self.actions } else { 1 };
        actions as f64 * self.branching as f64
    }

    /// The approximate number of states in the closed class. With c random successors per state, the share x of states that many others
    /// reach solves `x = 1 - exp(-c x)`. With one successor the closed class is a cycle.
    fn closed_states(&self) -> f64 {
        let (n, c) = (self.states as f64, self.outcomes());
        let share = (0..100).fold(1.0, |x: f64, _| 1.0 - (-c * x).exp());
        (share * n + 3.0 * n.sqrt()).max(self.min_class() as f64).min(n)
    }

    /// Kernel `kernel` under the policy, without rewards, drawn again until its chain has one closed class of at least `min_class` states.
    fn kernel(&self, kernel: usize) -> Result<Mrp> {
        const ATTEMPTS: u64 = 1000;
        for attempt in 0..ATTEMPTS {
            let mut s = stream(self.seed, Purpose::Kernel, attempt, kernel);
            let mut policy = stream(self.seed, Purpose::Policy, attempt, kernel);
            let mut successors = Vec::with_capacity(self.actions * self.branching);
            let states = (0..self.states)
                .map(|_| {
                    successors.clear();
                    (0..self.actions).for_each(|_| self.successors(&mut s, &mut successors));
                    let action = (policy.uniform() * self.actions as f64) as usize;
                    let taken = match self.policy {
                        Policy::OneAction => action..action + 1,
                        Policy::Uniform => 0..self.actions,
                    };
                    let p = 1.0 / (taken.len() * self.branching) as f64;
                    let taken = &successors[taken.start * self.branching..taken.end * self.branching];
                    taken.iter().map(|next| Successor { next: *next, p, reward: 0.0 }).collect()
                })
                .collect();
            let mrp = Mrp { states, gamma: self.gamma };
            if mrp.closed_class().is_ok_and(|class| class.len() >= self.min_class()) {
                return Ok(mrp);
            }
        }
        let what = format!("no kernel with one closed class of {} states in {ATTEMPTS} draws", self.min_class());
        Err(fedsa::error::Error::new("min_class", what, "a smaller min_class, or a larger branching"))
    }

    /// The kernels that agents share, before perturbation; empty if every agent has its own.
    pub(crate) fn shared(&self, plan: &Plan) -> Result<Vec<Mrp>> {
        match plan.kernels {
            Kernels::One => Ok(vec![self.kernel(0)?]),
            Kernels::Two => Ok(vec![self.kernel(0)?, self.kernel(1)?]),
            Kernels::Independent => Ok(Vec::new()),
        }
    }

    /// The process of agent `c`: a kernel of `shared` or its own, perturbed, with its rewards. `rewards` are all agents' rewards before
    /// signs and perturbations: one per state, or with the uniform policy one per state and action.
    pub(crate) fn agent(&self, plan: &Plan, shared: &[Mrp], rewards: &[f64], c: usize) -> Result<Mrp> {
        let mut mrp = if shared.is_empty() { self.kernel(c)? } else { shared[c % shared.len()].clone() };
        let mut noise = stream(self.seed, Purpose::Perturbation, 0, c);
        // The kernel P(s' | s, action) is perturbed and normalised for each action separately, so that the policy's action probabilities do
        // not change.
        for row in &mut mrp.states {
            let share = self.branching as f64 / row.len() as f64;
            for action in row.chunks_mut(self.branching) {
                action.iter_mut().for_each(|o| o.p += share * plan.perturbation * noise.uniform());
                let sum: f64 = action.iter().map(|o| o.p).sum();
                action.iter_mut().for_each(|o| o.p = o.p / sum * share);
            }
        }
        let mut noise = stream(self.seed, Purpose::Perturbation, 1, c);
        let sign = if plan.opposite && c % 2 == 1 { -1.0 } else { 1.0 };
        let a_state = rewards.len() / self.states;
        let outcomes = mrp.states.iter_mut().flat_map(|row| {
            let size = row.len() / a_state;
            row.chunks_mut(size)
        });
        for (outcomes, r) in outcomes.zip(rewards) {
            let reward = sign * r + plan.reward_perturbation * noise.uniform();
            outcomes.iter_mut().for_each(|o| o.reward = reward);
        }
        Ok(mrp)
    }

    /// Appends `branching` distinct random states to `out`.
    fn successors(&self, s: &mut Stream, out: &mut Vec<u32>) {
        let first = out.len();
        while out.len() < first + self.branching {
            let next = (s.uniform() * self.states as f64) as u32;
            if !out[first..].contains(&next) {
                out.push(next);
            }
        }
    }
}

impl ProblemSettings for Garnet {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        check_counts(self.agents, self.features, self.states)?;
        crate::check_size("agents", &[self.agents, self.features])?;
        require(self.actions >= 1, "actions", self.actions, "at least 1")?;
        let accepted = format!("between 1 and states = {}", self.states);
        require((1..=self.states).contains(&self.branching), "branching", self.branching, &accepted)?;
        crate::check_size("actions", &[self.states, self.actions, self.branching])?;
        crate::memory::check_transitions("actions", self.states as f64 * self.outcomes())?;
        require((0.0..1.0).contains(&self.gamma), "gamma", self.gamma, "in [0, 1)")?;
        require(self.min_class() <= self.states, "min_class", self.min_class(), &format!("at most states = {}", self.states))?;
        for (key, x) in [("perturbation", self.perturbation), ("reward_perturbation", self.reward_perturbation)] {
            require(x.is_none_or(|x| x >= 0.0 && x.is_finite()), key, x.unwrap_or(0.0), "at least 0")?;
        }
        Ok(())
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.noise.as_ref()?.without_effect(sampling)
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let plan = self.plan();
        let features = Arc::new(FeatureLaw::Simplex.draw(self.states, self.features, self.seed, ALL));
        let mut s = stream(self.seed, Purpose::Reward, 0, ALL);
        let rewards: Vec<f64> = (0..self.states).map(|_| s.uniform()).collect();
        let shared = self.shared(&plan)?;
        let (kinds, cancel) = (self.kinds(&plan), files.cancel());
        FederatedTd {
            kinds,
            kind_of: (0..self.agents).map(|c| (c % kinds) as u32).collect(),
            weights: equal_weights(self.agents),
            // An agent of 2000 states takes a third of a second.
            mrp: &|c| cancel.check().and_then(|()| self.agent(&plan, &shared, &rewards, c)),
            features: &|_| Arc::clone(&features),
            allow_singular_agents: false,
        }
        .field_with_noise(self.noise.as_ref(), sampling, isa)
    }
    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let plan = self.plan();
        let (n, kinds, outcomes) = (self.states as f64, self.kinds(&plan) as f64, self.outcomes());
        let shared = match plan.kernels {
            Kernels::One => 1.0,
            Kernels::Two => 2.0,
            Kernels::Independent => 0.0,
        };
        let sizes = TableSizes {
            agents: self.agents as f64,
            kinds,
            d: self.features as f64,
            rows: n,
            shared: true,
            transitions: kinds * n * outcomes,
            most: n * outcomes,
            chain: Moves::States { states: n, outcomes },
            // All actions of a state draw their successors, including actions that the policy never takes.
            making: reward_process(n, n * outcomes, self.closed_states()) + 4.0 * self.actions as f64 * self.branching as f64,
            // Kernels before perturbation.
            source: shared * (40.0 * n + 24.0 * n * outcomes),
            solved: true,
        };
        let text = format!("{} ({kinds} distinct), {} states, d = {}", memory::agents(self.agents), self.states, self.features);
        let sizes = noise::with_noise(sizes.memory(sampling, threads), self.noise.as_ref(), self.agents, self.features);
        Ok(MemoryEstimate::new(sizes, text))
    }
}
