//! The `baird` problem: Baird's seven-star example, in which off-policy TD diverges.
//!
//! Seven states and eight dependent features: state i of the upper six has the value `2 theta_i + theta_8`, the lower one
//! `theta_7 + 2 theta_8` (Baird 1995; Sutton & Barto 2018, "Reinforcement learning: an introduction", section 11.2). The acting policy
//! takes the solid action, to the lower state, with probability `solid`, and otherwise the dashed one, to one of the upper states. The
//! evaluated policy always takes the solid action: ratios are `1 / solid` and 0.
//!
//! The example has rewards 0, so all values are 0. The weights of value 0 form a line, and the part of theta (and of u) along it does not
//! change. Values and the projected Bellman error therefore go to 0, but theta need not. The usual start is theta = (1, 1, 1, 1, 1, 1, 10,
//! 1), with eight zeros for u.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::logs::log_means::Means;
use crate::memory::{self, MemoryEstimate, Moves, TableSizes};
use crate::noise::{self, Noise};
use crate::td::gradient_samples::{GradientTd, WeightedTransitions};
use crate::td::gradient_td::{GradientFacts, GradientMeans, GradientRule, TdOperator};
use crate::td::mrp::Mrp;
use crate::td::td0::Features;
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::problem::{Field, equal_weights};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{Law, Sampling};

/// The number of states.
const STATES: usize = 7;
/// The number of features d.
const FEATURES: usize = 8;

/// Baird's seven-star example.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Baird {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// TD, GTD2 or TDC.
    pub operator: TdOperator,
    /// Step ratio of u to theta; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1e-12, max = 1e12)))]
    pub kappa: Option<f64>,
    /// Discount factor.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub gamma: f64,
    /// Acting policy's probability of the solid action.
    #[cfg_attr(feature = "schema", schemars(range(min = 1e-6), extend("exclusiveMaximum" = 1)))]
    pub solid: f64,
    /// Mean reward.
    pub reward: f64,
    /// Agents' rewards are `reward + spread N(0, 1)`.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub spread: f64,
    /// Seed.
    pub seed: u64,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { Baird {
    with_agents(agents: usize) = agents;
    with_operator(operator: TdOperator) = operator;
    with_kappa(kappa: impl Into<Option<f64>>) = kappa.into();
    with_gamma(gamma: f64) = gamma;
    with_solid(solid: f64) = solid;
    with_reward(reward: f64) = reward;
    with_spread(spread: f64) = spread;
    with_seed(seed: u64) = seed;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for Baird {
    fn default() -> Self {
        Self {
            agents: 1,
            operator: TdOperator::Td,
            kappa: None,
            gamma: 0.99,
            solid: 1.0 / STATES as f64,
            reward: 0.0,
            spread: 0.0,
            seed: 0,
            noise: None,
        }
    }
}

impl Baird {
    /// The transitions of agents with this reward, and their ratios.
    fn kind(&self, features: &Arc<Features>, reward: f64) -> Result<WeightedTransitions> {
        let lower = STATES - 1;
        let dashed = (1.0 - self.solid) / lower as f64;
        let p: Vec<f64> = (0..STATES * STATES).map(|i| if i % STATES == lower { self.solid } else { dashed }).collect();
        let transitions = Mrp::dense(STATES, &p, |_, _| reward, self.gamma).transitions(Arc::clone(features))?;
        let ratio = transitions.transitions.iter().map(|t| if t.next as usize == lower { 1.0 / self.solid } else { 0.0 }).collect();
        Ok(WeightedTransitions { transitions, ratio })
    }
}

/// The features of all states, one row each.
fn features() -> Features {
    let mut rows = [[0.0; FEATURES]; STATES];
    for (state, row) in rows.iter_mut().enumerate() {
        let (own, common) = if state + 1 < STATES { (2.0, 1.0) } else { (1.0, 2.0) };
        (row[state], row[FEATURES - 1]) = (own, common);
    }
    Features::new(FEATURES, rows.as_flattened())
}

impl ProblemSettings for Baird {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        crate::check_counts(self.agents, 1, STATES)?;
        require((0.0..1.0).contains(&self.gamma), "gamma", self.gamma, "in [0, 1)")?;
        require((1e-6..1.0).contains(&self.solid), "solid", self.solid, "a probability from 1e-6, below 1")?;
        require(self.reward.abs() <= 1e300, "reward", format!("{:?}", self.reward), "from -1e300 to 1e300")?;
        crate::check_spread(self.spread)?;
        GradientRule::of(self.operator, self.kappa, 0.0).map(|_| ())
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.noise.as_ref()?.without_effect(sampling)
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let rule = GradientRule::of(self.operator, self.kappa, 0.0)?;
        let features = Arc::new(features());
        // Agents with the same reward share their tables.
        let count = if self.spread == 0.0 { 1 } else { self.agents };
        let reward = |c: usize| {
            let draw = || stream(self.seed, Purpose::Reward, 0, c).normal();
            self.reward + if self.spread == 0.0 { 0.0 } else { self.spread * draw() }
        };
        let kinds = (0..count).map(|c| self.kind(&features, reward(c))).collect::<Result<Vec<_>>>()?;
        let means: Vec<Means> = kinds.iter().map(WeightedTransitions::means).collect();
        let kind_of = (0..self.agents).map(|c| c.min(count - 1) as u32).collect();
        let weights = equal_weights(self.agents);
        if sampling.kind == Law::Mean {
            let facts = GradientFacts::new(rule, &means, None, kind_of, weights);
            return noise::field(GradientMeans::new(facts), self.noise.as_ref(), sampling, isa, true);
        }
        // E[rho | s] = 1 holds exactly, so that TDC's samples have the mean with C.
        let problem = GradientTd::new(rule, kinds, &means, None, kind_of, weights, sampling)?;
        noise::field(problem, self.noise.as_ref(), sampling, isa, true)
    }

    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (agents, kinds) = (self.agents as f64, if self.spread == 0.0 { 1.0 } else { self.agents as f64 });
        let (states, transitions) = (STATES as f64, (STATES * STATES) as f64);
        let sizes = TableSizes {
            agents,
            kinds,
            d: FEATURES as f64,
            rows: states,
            shared: true,
            transitions: kinds * transitions,
            most: transitions,
            chain: Moves::States { states, outcomes: states },
            making: 24.0 * transitions,
            source: 0.0,
            solved: false,
        };
        let (peak, kept) = sizes.memory(sampling, threads);
        let own = memory::log_means(kinds, self.operator.dim(FEATURES) as f64, threads).1 + 8.0 * kinds * transitions + 12.0 * agents;
        let text = format!("{}, {STATES} states, d = {FEATURES}", memory::agents(self.agents));
        let sizes = noise::with_noise((peak + 2.0 * own, kept + own), self.noise.as_ref(), self.agents, self.operator.dim(FEATURES));
        Ok(MemoryEstimate::new(sizes, text))
    }
}
