//! Markov reward processes: transition law, rewards, features, discount.

use std::sync::Arc;

use faer::Mat;
use faer::linalg::solvers::Solve;
use serde::{Deserialize, Serialize};

use super::memory::{self, MemoryEstimate, Moves, TableSizes, check_transitions, reward_process};
use super::noise::{self, Noise};
use super::td::{Features, Td, Trajectory, Transitions};
use super::{Field, Files, ProblemSettings, equal_weights};
use crate::error::{BadInput, Result, require};
use crate::kernel::Isa;
use crate::kernel::td::Transition;
use crate::random::{ALL, Purpose, stream};
use crate::sampling::Sampling;

/// Rows of a transition matrix must sum to 1 within this.
pub const ROW_SUM_TOLERANCE: f64 = 1e-8;

/// One way a step can go: to `next` with probability `p`, for `reward`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Successor {
    /// The successor.
    pub next: u32,
    /// Its probability given the state.
    pub p: f64,
    /// The reward of this step.
    pub reward: f64,
}

/// A finite Markov reward process; an MDP under a policy, with actions folded into the outcomes.
#[derive(Debug, Clone, PartialEq)]
pub struct Mrp {
    /// The outcomes of each state, S of them; zero probabilities left out.
    pub states: Vec<Vec<Successor>>,
    /// The discount factor, in [0, 1).
    pub gamma: f64,
}

impl Mrp {
    /// From dense arrays: `p` is S x S, `reward` gives r(s, s').
    pub fn dense(n: usize, p: &[f64], reward: impl Fn(usize, usize) -> f64, gamma: f64) -> Self {
        let row = |s: usize| (0..n).filter(move |t| p[s * n + t] != 0.0);
        let states =
            (0..n).map(|s| row(s).map(|t| Successor { next: t as u32, p: p[s * n + t], reward: reward(s, t) }).collect()).collect();
        Self { states, gamma }
    }

    /// The states of the one closed class, in increasing order.
    ///
    /// # Errors
    /// When there are several closed classes: the stationary law is then not unique.
    pub fn closed_class(&self) -> Result<Vec<usize>> {
        let n = self.states.len();
        let arrows = || {
            let each = self.states.iter().enumerate().flat_map(|(s, row)| row.iter().map(move |o| (s, o)));
            each.filter(|(_, o)| o.p > 0.0).map(|(s, o)| (s as u32, o.next as usize))
        };
        // The sources of the arrows into state t are `sources[ends[t - 1]..ends[t]]`.
        let mut ends = vec![0; n + 1];
        arrows().for_each(|(_, t)| ends[t + 1] += 1);
        (0..n).for_each(|t| ends[t + 1] += ends[t]);
        let mut sources = vec![0; ends[n]];
        for (s, t) in arrows() {
            sources[ends[t]] = s;
            ends[t] += 1;
        }
        let sources = |t: usize| &sources[t.checked_sub(1).map_or(0, |t| ends[t])..ends[t]];
        // A state is in a closed class when every state that it reaches reaches it;
        // a state that does not is a step closer to one.
        let mut state = 0;
        let (class, reaches) = loop {
            let successors = |s: usize| self.states[s].iter().filter(|o| o.p > 0.0).map(|o| o.next as usize);
            let reached = reachable(n, state, successors);
            let reaches = reachable(n, state, |s| sources(s).iter().map(|t| *t as usize));
            match (0..n).find(|t| reached[*t] && !reaches[*t]) {
                Some(t) => state = t,
                None => break (reached, reaches),
            }
        };
        let members: Vec<usize> = (0..n).filter(|s| class[*s]).collect();
        match reaches.iter().position(|r| !r) {
            None => Ok(members),
            Some(s) => Err(BadInput::new(
                "P",
                format!("the chain has several closed classes (state {s} never reaches state {})", members[0]),
                "a chain with one closed class, so that its stationary law is unique",
            )),
        }
    }

    /// The stationary law, S; zero on transient states.
    ///
    /// # Errors
    /// As [`Mrp::closed_class`].
    pub fn stationary(&self) -> Result<Vec<f64>> {
        let class = self.closed_class()?;
        let m = class.len();
        let mut at = vec![usize::MAX; self.states.len()];
        class.iter().enumerate().for_each(|(i, s)| at[*s] = i);
        // (P - I)^T pi = 0 with the last equation replaced by sum pi = 1.
        let mut a = Mat::<f64>::zeros(m, m);
        for (i, s) in class.iter().enumerate() {
            a[(i, i)] -= 1.0;
            for o in &self.states[*s] {
                if o.p > 0.0 {
                    a[(at[o.next as usize], i)] += o.p;
                }
            }
        }
        (0..m).for_each(|i| a[(m - 1, i)] = 1.0);
        let rhs = Mat::from_fn(m, 1, |i, _| f64::from(i + 1 == m));
        let x = a.partial_piv_lu().solve(rhs);
        let mut law = vec![0.0; self.states.len()];
        let total: f64 = (0..m).map(|i| x[(i, 0)].max(0.0)).sum();
        class.iter().enumerate().for_each(|(i, s)| law[*s] = x[(i, 0)].max(0.0) / total);
        if law.iter().all(|p| p.is_finite()) {
            Ok(law)
        } else {
            Err(BadInput::new("P", "the stationary law is not finite", "a transition matrix whose rows sum to 1"))
        }
    }

    /// The transitions under the stationary law, with `features` as rows for the states.
    ///
    /// # Errors
    /// As [`Mrp::stationary`].
    pub fn transitions(&self, features: Arc<Features>) -> Result<Transitions> {
        let law = self.stationary()?;
        let n = self.states.iter().map(Vec::len).sum();
        let (mut transitions, mut mass, mut p) = (Vec::with_capacity(n), Vec::with_capacity(n), Vec::with_capacity(n));
        for (s, row) in self.states.iter().enumerate() {
            for o in row {
                transitions.push(Transition { phi: s as u32, next: o.next, reward: o.reward });
                mass.push(law[s] * o.p);
                p.push(o.p);
            }
        }
        Ok(Transitions { features, gamma: self.gamma, transitions: transitions.into(), mass, chain: Trajectory::States { law, p } })
    }
}

/// Which of `n` states arrows lead to from state `from`, itself included.
fn reachable<A: Iterator<Item = usize>>(n: usize, from: usize, arrows: impl Fn(usize) -> A) -> Vec<bool> {
    let mut seen = vec![false; n];
    let mut todo = vec![from];
    seen[from] = true;
    while let Some(s) = todo.pop() {
        for t in arrows(s) {
            if !std::mem::replace(&mut seen[t], true) {
                todo.push(t);
            }
        }
    }
    seen
}

/// The indices of transitions grouped by the state they leave.
pub(super) fn by_state(transitions: &[Transition], states: usize) -> Vec<Vec<u32>> {
    let mut out = vec![Vec::new(); states];
    for (z, t) in transitions.iter().enumerate() {
        out[t.phi as usize].push(z as u32);
    }
    out
}

/// A federation of Markov reward processes, described so that each kind is made when asked for.
pub struct FederatedTd<'a> {
    /// The number of distinct processes.
    pub kinds: usize,
    /// The kind of every agent.
    pub kind_of: Vec<u32>,
    /// The agents' weights.
    pub weights: Vec<f64>,
    /// The process of a kind.
    pub mrp: &'a (dyn Fn(usize) -> Result<Mrp> + Sync),
    /// The features of a kind.
    pub features: &'a (dyn Fn(usize) -> Arc<Features> + Sync),
    /// Accept agents whose own system is singular, as long as the mean is not.
    pub allow_singular_agents: bool,
}

impl FederatedTd<'_> {
    /// The field of federated TD(0) on these processes.
    ///
    /// # Errors
    /// When a chain has several closed classes, or a system is singular that must not be; names the agent.
    pub fn field(&self, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        self.field_with_noise(None, sampling, isa)
    }

    /// The same with additive noise, where there is some.
    ///
    /// # Errors
    /// As [`FederatedTd::field`], and when the noise is out of range.
    pub fn field_with_noise(&self, noise: Option<&Noise>, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        noise::field(self.td(sampling)?, noise, sampling, isa, self.allow_singular_agents)
    }

    /// Federated TD(0) on these processes, without its sampling.
    ///
    /// # Errors
    /// When a chain has several closed classes; names the agent.
    pub fn td(&self, sampling: Sampling) -> Result<Td> {
        use rayon::prelude::*;
        let kinds: Vec<Result<Transitions>> = (0..self.kinds)
            .into_par_iter()
            .map(|k| {
                let agent = || self.kind_of.iter().position(|x| *x as usize == k).unwrap_or(0);
                let named = |e: BadInput| BadInput { what: format!("agent {}: {}", agent(), e.what), ..e };
                (self.mrp)(k).map_err(named)?.transitions((self.features)(k)).map_err(named)
            })
            .collect();
        // Of several errors the first agent's, whichever thread was faster.
        let kinds: Vec<Transitions> = kinds.into_iter().collect::<Result<_>>()?;
        Td::new(kinds, self.kind_of.clone(), self.weights.clone(), sampling)
    }
}

/// What is drawn once for all agents, or once for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// One for all agents.
    #[default]
    Shared,
    /// One per agent.
    PerAgent,
}

impl Scope {
    /// The agent whose stream is drawn from.
    pub fn of(self, c: usize) -> usize {
        if self == Scope::Shared { ALL } else { c }
    }
}

/// The law of random features.
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
                let q = crate::linalg::from_rows(n, d, &values).qr().compute_thin_Q();
                values = crate::linalg::to_rows(&q);
            }
        }
        Features::new(d, &values)
    }
}

/// A discount factor: one number, or drawn uniformly per agent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a number in [0, 1), or [low, high]")]
pub enum Discount {
    /// The same for all.
    One(f64),
    /// U(low, high) per agent.
    Uniform([f64; 2]),
}

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

/// Dense random Markov reward processes (\[F\] sec. 6.2, \[T\] sec. 4.4).
///
/// P has U(0, 1) entries, rows normalised; rewards r(s) ~ U(low, high).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RandomMrp {
    /// The number of agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::problem::MAX_AGENTS)))]
    pub agents: usize,
    /// The number of states S.
    #[cfg_attr(feature = "schema", schemars(range(min = 2, max = crate::problem::MAX_STATES)))]
    pub states: usize,
    /// The number of features d.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub features: usize,
    /// The discount factor, a number or [low, high] drawn per agent.
    pub gamma: Discount,
    /// The problem's own seed.
    pub seed: u64,
    /// Transition matrices: shared or per-agent.
    pub kernel: Scope,
    /// Rewards: shared or per-agent.
    pub rewards: Scope,
    /// The range of rewards.
    pub reward_range: [f64; 2],
    /// Features: shared or per-agent.
    pub feature_scope: Scope,
    /// Features: uniform, simplex or orthonormal.
    pub feature_law: FeatureLaw,
}

impl Default for RandomMrp {
    fn default() -> Self {
        Self {
            agents: 10,
            states: 100,
            features: 10,
            gamma: Discount::One(0.5),
            seed: 0,
            kernel: Scope::Shared,
            rewards: Scope::Shared,
            reward_range: [0.0, 1.0],
            feature_scope: Scope::Shared,
            feature_law: FeatureLaw::Orthonormal,
        }
    }
}

impl ProblemSettings for RandomMrp {
    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        self.check()?;
        let n = self.states;
        let one_kind = self.is_one_kind();
        let shared = Arc::new(self.feature_law.draw(n, self.features, self.seed, ALL));
        FederatedTd {
            kinds: if one_kind { 1 } else { self.agents },
            kind_of: (0..self.agents as u32).map(|c| if one_kind { 0 } else { c }).collect(),
            weights: equal_weights(self.agents),
            mrp: &|c| Ok(self.mrp(c)),
            features: &|c| match self.feature_scope {
                Scope::Shared => Arc::clone(&shared),
                Scope::PerAgent => Arc::new(self.feature_law.draw(n, self.features, self.seed, c)),
            },
            allow_singular_agents: false,
        }
        .field(sampling, isa)
    }

    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let n = self.states as f64;
        let kinds = if self.is_one_kind() { 1.0 } else { self.agents as f64 };
        let sizes = TableSizes {
            agents: self.agents as f64,
            kinds,
            d: self.features as f64,
            rows: n,
            shared: self.feature_scope == Scope::Shared,
            transitions: kinds * n * n,
            most: n * n,
            chain: Moves::States { states: n, outcomes: n },
            making: reward_process(n, n * n, n),
            source: 0.0,
            solved: true,
        };
        let text = format!(
            "{} ({kinds} distinct), {} states with as many successors, d = {}",
            memory::agents(self.agents),
            self.states,
            self.features
        );
        Ok(MemoryEstimate::new(sizes.memory(sampling, threads), text))
    }
}

impl RandomMrp {
    fn check(&self) -> Result<()> {
        super::check_counts(self.agents, self.features, self.states)?;
        check_transitions("states", (self.states as f64).powi(2))?;
        let kernels = if self.kernel == Scope::Shared { 1 } else { self.agents };
        super::check_size("agents", &[kernels, self.states, self.states])?;
        super::check_size("agents", &[self.agents, self.features, self.features])?;
        self.gamma.check()?;
        let [low, high] = self.reward_range;
        // The width must be finite too.
        let is_range = low <= high && (high - low).is_finite();
        require(is_range, "reward_range", format!("[{low}, {high}]"), "[low, high], two numbers with a finite difference")
    }

    /// Whether nothing is drawn for each agent.
    fn is_one_kind(&self) -> bool {
        let all_shared = [self.kernel, self.rewards, self.feature_scope].iter().all(|s| *s == Scope::Shared);
        all_shared && matches!(self.gamma, Discount::One(_))
    }

    fn mrp(&self, c: usize) -> Mrp {
        let n = self.states;
        let mut s = stream(self.seed, Purpose::Kernel, 0, self.kernel.of(c));
        let mut p: Vec<f64> = (0..n * n).map(|_| s.uniform()).collect();
        for row in p.chunks_mut(n) {
            let sum: f64 = row.iter().sum();
            row.iter_mut().for_each(|x| *x /= sum);
        }
        let [low, high] = self.reward_range;
        let mut s = stream(self.seed, Purpose::Reward, 0, self.rewards.of(c));
        let r: Vec<f64> = (0..n).map(|_| low + (high - low) * s.uniform()).collect();
        Mrp::dense(n, &p, |s, _| r[s], self.gamma.of(self.seed, c))
    }
}
