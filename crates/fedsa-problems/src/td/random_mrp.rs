//! The `mrp` problem: random Markov reward processes (\[F\] sec. 6.2, \[T\] sec. 4.4).
//!
//! Keys:
//! - sizes: `agents` N, `states` S, `features` d; `gamma` and `seed`;
//! - shared or per agent: `kernel`, `rewards`, `feature_scope`;
//! - laws: `kernel_law`, `kernel_rank`, `stay`, `reward_range`, `feature_law`;
//! - `base_agents`, a number of agents that the others copy; `noise`, additive noise.
//!
//! Every draw depends on the problem's seed and the agent, so agent c is the same for every N.
//!
//! \[F\] sec. 6.2 has 100 states, features of rank 50, discount factors and features per agent. The formulas of that text are lost; "rank"
//! there means the rank of the *feature matrix*, d = 50. The authors' script draws the entries of P as a sum of two U(0, 1) and the rewards
//! as 2 U(0, 1): `kernel_law = "triangular"`, `reward_range = [0, 2]`. `kernel_rank` sets the rank of P itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::index_chain::is_gap;
use crate::memory::{self, MemoryEstimate, Moves, TableSizes, check_transitions, reward_process};
use crate::noise::{self, Noise};
use crate::scope::Scope;
use crate::td::mrp::{FederatedTd, Mrp};
use crate::td::td0::Features;
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::problem::{Field, equal_weights};
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::sampling::Sampling;
use fedsa::settings::choice;

/// Law of random features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FeatureLaw {
    /// U(0, 1) entries.
    #[default]
    Uniform,
    /// U(0, 1) entries, each row scaled to sum 1.
    Simplex,
    /// Orthonormal columns.
    Orthonormal,
}

impl FeatureLaw {
    /// `n` rows of `d` features.
    pub fn draw(self, n: usize, d: usize, seed: u64, agent: usize) -> Features {
        let mut s = stream(seed, Purpose::Feature, 0, agent);
        let mut values: Vec<f64> = (0..n * d).map(|_| if self == FeatureLaw::Orthonormal { s.normal() } else { s.uniform() }).collect();
        match self {
            FeatureLaw::Uniform => {}
            FeatureLaw::Simplex => {
                for row in values.chunks_mut(d) {
                    let sum: f64 = row.iter().sum();
                    row.iter_mut().for_each(|x| *x /= sum);
                }
            }
            FeatureLaw::Orthonormal => {
                let q = fedsa::linalg::from_rows(n, d, &values).qr().compute_thin_Q();
                values = fedsa::linalg::to_rows(&q);
            }
        }
        Features::new(d, &values)
    }
}

/// Discount factor: one number, or drawn per agent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Discount {
    /// One for all agents.
    One(f64),
    /// U(low, high) per agent.
    Uniform([f64; 2]),
}

choice!(Discount, "a number in [0, 1), or [low, high]",
    number f64 => |gamma| Ok(Discount::One(gamma)),
    list [f64; 2] => |range| Ok(Discount::Uniform(range)),
);

impl Discount {
    /// # Errors
    /// Outside [0, 1).
    pub fn check(self) -> Result<()> {
        let (low, high) = match self {
            Discount::One(g) => (g, g),
            Discount::Uniform([low, high]) => (low, high),
        };
        require(low >= 0.0 && low <= high && high < 1.0, "gamma", format!("{low}..{high}"), "in [0, 1), a number or [low, high]")
    }

    fn of(self, seed: u64, c: usize) -> f64 {
        match self {
            Discount::One(g) => g,
            Discount::Uniform([low, high]) => low + (high - low) * stream(seed, Purpose::Discount, 0, c).uniform(),
        }
    }
}

/// Law of the entries behind a random transition matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum KernelLaw {
    /// U(0, 1).
    #[default]
    Uniform,
    /// The sum of two U(0, 1).
    Triangular,
}

impl KernelLaw {
    fn draw(self, s: &mut Stream) -> f64 {
        match self {
            KernelLaw::Uniform => s.uniform(),
            KernelLaw::Triangular => s.uniform() + s.uniform(),
        }
    }
}

/// Dense random Markov reward processes (\[F\] sec. 6.2, \[T\] sec. 4.4).
///
/// P is a matrix K of positive numbers with rows scaled to sum 1. `kernel_law` draws the entries of K. With `kernel_rank` r it draws U (S x
/// r) and V (r x S) instead, and `K = U V`, so that P has at most the rank r. Rewards are r(s) ~ U(low, high).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct RandomMrp {
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// States S.
    #[cfg_attr(feature = "schema", schemars(range(min = 2, max = crate::settings::MAX_STATES)))]
    pub states: usize,
    /// Features d, at most `states`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub features: usize,
    /// Discount factor, or `[low, high]` drawn per agent.
    pub gamma: Discount,
    /// Seed.
    pub seed: u64,
    /// Whether agents share P.
    pub kernel: Scope,
    /// Law of the entries of K, U and V.
    pub kernel_law: KernelLaw,
    /// Rank r of P, at most `states`; full by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub kernel_rank: Option<usize>,
    /// Probability of staying: `stay I + (1 - stay) P` replaces P.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub stay: f64,
    /// Whether agents share rewards.
    pub rewards: Scope,
    /// Rewards are U(low, high).
    pub reward_range: [f64; 2],
    /// Whether agents share features.
    pub feature_scope: Scope,
    /// Law of features.
    pub feature_law: FeatureLaw,
    /// Distinct agents B: agent c copies agent c mod B.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub base_agents: Option<usize>,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { RandomMrp {
    with_agents(agents: usize) = agents;
    with_states(states: usize) = states;
    with_features(features: usize) = features;
    with_gamma(gamma: Discount) = gamma;
    with_seed(seed: u64) = seed;
    with_kernel(kernel: Scope) = kernel;
    with_kernel_law(kernel_law: KernelLaw) = kernel_law;
    with_kernel_rank(kernel_rank: impl Into<Option<usize>>) = kernel_rank.into();
    with_stay(stay: f64) = stay;
    with_rewards(rewards: Scope) = rewards;
    with_reward_range(reward_range: [f64; 2]) = reward_range;
    with_feature_scope(feature_scope: Scope) = feature_scope;
    with_feature_law(feature_law: FeatureLaw) = feature_law;
    with_base_agents(base_agents: impl Into<Option<usize>>) = base_agents.into();
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for RandomMrp {
    fn default() -> Self {
        Self {
            agents: 10,
            states: 100,
            features: 10,
            gamma: Discount::One(0.5),
            seed: 0,
            kernel: Scope::Shared,
            kernel_law: KernelLaw::Uniform,
            kernel_rank: None,
            stay: 0.0,
            rewards: Scope::Shared,
            reward_range: [0.0, 1.0],
            feature_scope: Scope::Shared,
            feature_law: FeatureLaw::Orthonormal,
            base_agents: None,
            noise: None,
        }
    }
}

impl ProblemSettings for RandomMrp {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        crate::check_counts(self.agents, self.features, self.states)?;
        check_transitions("states", (self.states as f64).powi(2))?;
        if let Some(base) = self.base_agents {
            let divides = base >= 1 && self.agents.is_multiple_of(base);
            let accepted = format!("a divisor of agents = {}, so that there are as many copies of each agent", self.agents);
            require(divides, "base_agents", base, &accepted)?;
        }
        if let Some(rank) = self.kernel_rank {
            require((1..=self.states).contains(&rank), "kernel_rank", rank, &format!("between 1 and states = {}", self.states))?;
        }
        require((0.0..1.0).contains(&self.stay), "stay", self.stay, "in [0, 1)")?;
        let leaves = 1.0 - self.stay;
        if !is_gap(leaves) {
            let stay = self.stay;
            let what = format!("{stay:?} is not accepted: a chain that leaves with probability {leaves:.1e} is reducible to rounding");
            return Err(Error::new("stay", what, "in [0, 1), and at most 1 - 1e-9"));
        }
        let kernels = if self.kernel == Scope::Shared { 1 } else { self.base_agents.unwrap_or(self.agents) };
        crate::check_size("agents", &[kernels, self.states, self.states])?;
        crate::check_size("agents", &[self.agents, self.features, self.features])?;
        self.gamma.check()?;
        let [low, high] = self.reward_range;
        // The width must be finite too.
        let is_range = low <= high && (high - low).is_finite();
        require(is_range, "reward_range", format!("[{low}, {high}]"), "[low, high], two numbers with a finite difference")
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.noise.as_ref()?.without_effect(sampling)
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let n = self.states;
        let (kinds, cancel) = (self.kinds(), files.cancel());
        let shared = Arc::new(self.feature_law.draw(n, self.features, self.seed, ALL));
        FederatedTd {
            kinds,
            kind_of: (0..self.agents).map(|c| (c % kinds) as u32).collect(),
            weights: equal_weights(self.agents),
            mrp: &|c| cancel.check().map(|()| self.mrp(c)),
            features: &|c| match self.feature_scope {
                Scope::Shared => Arc::clone(&shared),
                Scope::PerAgent => Arc::new(self.feature_law.draw(n, self.features, self.seed, c)),
            },
            allow_singular_agents: false,
        }
        .field_with_noise(self.noise.as_ref(), sampling, isa)
    }

    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let n = self.states as f64;
        let kinds = self.kinds() as f64;
        // The factors of a low-rank kernel.
        let factors = self.kernel_rank.map_or(0.0, |r| 16.0 * n * r as f64);
        let sizes = TableSizes {
            agents: self.agents as f64,
            kinds,
            d: self.features as f64,
            rows: n,
            shared: self.feature_scope == Scope::Shared,
            transitions: kinds * n * n,
            most: n * n,
            chain: Moves::States { states: n, outcomes: n },
            making: reward_process(n, n * n, n) + factors,
            source: 0.0,
            solved: true,
        };
        let text = format!(
            "{} ({kinds} distinct), {} states with as many successors, d = {}",
            memory::agents(self.agents),
            self.states,
            self.features
        );
        let sizes = noise::with_noise(sizes.memory(sampling, threads), self.noise.as_ref(), self.agents, self.features);
        Ok(MemoryEstimate::new(sizes, text))
    }
}

impl RandomMrp {
    /// The number of distinct agents. Equal agents share their tables.
    fn kinds(&self) -> usize {
        let all_shared = [self.kernel, self.rewards, self.feature_scope].iter().all(|s| *s == Scope::Shared);
        if all_shared && matches!(self.gamma, Discount::One(_)) { 1 } else { self.base_agents.unwrap_or(self.agents) }
    }

    /// The entries of K, S x S, before rows are normalised.
    fn entries(&self, s: &mut Stream) -> Vec<f64> {
        let n = self.states;
        let mut drawn = |count: usize| -> Vec<f64> { (0..count).map(|_| self.kernel_law.draw(s)).collect() };
        let Some(rank) = self.kernel_rank else { return drawn(n * n) };
        let (u, v) = (drawn(n * rank), drawn(rank * n));
        let mut product = vec![0.0; n * n];
        for (row, u) in product.chunks_mut(n).zip(u.chunks(rank)) {
            u.iter().zip(v.chunks(n)).for_each(|(u, v)| row.iter_mut().zip(v).for_each(|(out, v)| *out += u * v));
        }
        product
    }

    fn mrp(&self, c: usize) -> Mrp {
        let n = self.states;
        let mut s = stream(self.seed, Purpose::Kernel, 0, self.kernel.of(c));
        let mut p = self.entries(&mut s);
        for (s, row) in p.chunks_mut(n).enumerate() {
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum);
            if self.stay > 0.0 {
                row.iter_mut().for_each(|x| *x *= 1.0 - self.stay);
                row[s] += self.stay;
            }
        }
        let [low, high] = self.reward_range;
        let mut s = stream(self.seed, Purpose::Reward, 0, self.rewards.of(c));
        let r: Vec<f64> = (0..n).map(|_| low + (high - low) * s.uniform()).collect();
        Mrp::dense(n, &p, |s, _| r[s], self.gamma.of(self.seed, c))
    }
}
