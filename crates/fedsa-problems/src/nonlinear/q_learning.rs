//! The `q-learning` problem: federated Q-learning with linear features on Garnet MDPs, under a fixed behaviour policy.
//!
//! The action values are `Q(s, a) = phi(s, a)^T theta`. A sample is a step (s, a, r, s') of the behaviour policy, and
//!
//! ```text
//! g_c(theta, z) = (r + gamma max_a' phi(s', a')^T theta - phi(s, a)^T theta) phi(s, a)
//! ```
//!
//! (\[F\]: "policy evaluation and control"; Watkins 1989 with one-hot features). The operators are piecewise linear, neither gradients nor
//! smooth. Their Jacobian uses the greedy actions, the first one among ties. Newton's method with it is policy iteration.
//!
//! **Environments** are Garnet MDPs: every state and action has `branching` successors, and agents differ by the presets of
//! `heterogeneity`. Agents share rewards r(s, a) ~ U(0, 1) before the preset changes them. Kernels are drawn again until the chain has one
//! closed class of at least `min_class` states, by default all.
//!
//! **Behaviour policy**, the same for all agents: with probability `exploration` an action drawn uniformly, otherwise the state's own
//! action, which is drawn once.
//!
//! **The root.** Tabular features, the default, are one for each pair of a state and an action. The mean operator then belongs to the mean
//! MDP, in which a random agent makes each step. Exactly one root exists if every pair is visited.
//!
//! With other features there may be no root, or several. Newton's method searches for one from 0, and from the point where projected value
//! iteration settles. Exactly one root is certified ([`Facts::monotone`]) if the matrix `(1 - gamma kappa / 2) G - gamma / (2 kappa) M` is
//! positive definite, with `G = sum_c p_c E phi(s, a) phi(s, a)^T`, `M = sum_c p_c E sum_a' phi(s', a') phi(s', a')^T` and
//! `kappa = 1 / sqrt(min pi(a|s))`. This holds for `gamma < kappa^-1`, which is `1 / sqrt(A)` for the uniform policy.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::kernel::td::{self, Transition, TransitionTable};
use crate::memory::{self, MemoryEstimate, Moves, TableSizes, reward_process};
use crate::noise::{self, Noise};
use crate::td::garnet::{Garnet, Heterogeneity, Policy};
use crate::td::mrp::Mrp;
use crate::td::random_mrp::FeatureLaw;
use crate::td::td0::Features;
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Chunk, Isa, dot};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::facts::{Facts, Monotone, least_eigenvalue};
use fedsa::problem::law::{Chain, FiniteLaw};
use fedsa::problem::{Field, Problem, equal_weights};
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};

/// Features of state-action pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PairFeatures {
    /// One feature for each pair.
    #[default]
    Tabular,
    /// U(0, 1) entries.
    Uniform,
    /// U(0, 1) entries, each row scaled to sum 1.
    Simplex,
    /// Orthonormal columns.
    Orthonormal,
}

impl PairFeatures {
    /// The law of features that are drawn; `None` for tabular ones.
    pub(crate) fn drawn(self) -> Option<FeatureLaw> {
        match self {
            Self::Tabular => None,
            Self::Uniform => Some(FeatureLaw::Uniform),
            Self::Simplex => Some(FeatureLaw::Simplex),
            Self::Orthonormal => Some(FeatureLaw::Orthonormal),
        }
    }

    /// Checks the number of features of all pairs; only tabular features say it themselves.
    ///
    /// # Errors
    /// When it is missing, or out of range.
    pub(crate) fn check(self, features: Option<usize>, states: usize, actions: usize) -> Result<()> {
        let (pairs, is_tabular) = (states.saturating_mul(actions), self == Self::Tabular);
        match features {
            None if is_tabular => {}
            None => {
                let what = "the number of features is missing: only tabular ones say it themselves";
                return Err(Error::new("features", what, "features = .., or feature_law = \"tabular\""));
            }
            Some(d) if is_tabular => {
                require(d == pairs, "features", d, &format!("states times actions = {pairs} tabular features, or another feature_law"))?;
            }
            Some(d) => require((1..=pairs).contains(&d), "features", d, &format!("between 1 and states times actions = {pairs}"))?,
        }
        Ok(())
    }
}

/// The `q-learning` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct QLearning {
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
    /// Features of pairs.
    pub feature_law: PairFeatures,
    /// Features d; required unless tabular.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub features: Option<usize>,
    /// Discount factor.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub gamma: f64,
    /// Probability of a uniform action.
    #[cfg_attr(feature = "schema", schemars(range(max = 1), extend("exclusiveMinimum" = 0)))]
    pub exploration: f64,
    /// As in `garnet`.
    pub heterogeneity: Heterogeneity,
    /// Least size of the closed class; all states by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_class: Option<usize>,
    /// Seed.
    pub seed: u64,
    /// Additive noise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { QLearning {
    with_agents(agents: usize) = agents;
    with_states(states: usize) = states;
    with_actions(actions: usize) = actions;
    with_branching(branching: usize) = branching;
    with_feature_law(feature_law: PairFeatures) = feature_law;
    with_features(features: impl Into<Option<usize>>) = features.into();
    with_gamma(gamma: f64) = gamma;
    with_exploration(exploration: f64) = exploration;
    with_heterogeneity(heterogeneity: Heterogeneity) = heterogeneity;
    with_min_class(min_class: impl Into<Option<usize>>) = min_class.into();
    with_seed(seed: u64) = seed;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

impl Default for QLearning {
    fn default() -> Self {
        Self {
            agents: 10,
            states: 10,
            actions: 2,
            branching: 2,
            feature_law: PairFeatures::Tabular,
            features: None,
            gamma: 0.8,
            exploration: 1.0,
            heterogeneity: Heterogeneity::Independent,
            min_class: None,
            seed: 0,
            noise: None,
        }
    }
}

impl QLearning {
    /// The Garnet problem whose uniform policy takes every action.
    fn garnet(&self) -> Garnet {
        Garnet {
            agents: self.agents,
            states: self.states,
            actions: self.actions,
            branching: self.branching,
            features: 1,
            gamma: self.gamma,
            seed: self.seed,
            policy: Policy::Uniform,
            heterogeneity: self.heterogeneity,
            min_class: Some(self.min_class.unwrap_or(self.states)),
            ..Garnet::default()
        }
    }

    /// The number of state-action pairs.
    fn pairs(&self) -> usize {
        self.states.saturating_mul(self.actions)
    }

    /// The number of features d.
    fn dim(&self) -> usize {
        self.features.unwrap_or(self.pairs())
    }

    fn draw_features(&self) -> Features {
        let n = self.pairs();
        match self.feature_law.drawn() {
            Some(law) => law.draw(n, self.dim(), self.seed, ALL),
            None => Features::new(n, &(0..n * n).map(|i| f64::from(i / n == i % n)).collect::<Vec<f64>>()),
        }
    }

    /// The behaviour policy: the probability of every action, state by state.
    fn behaviour(&self) -> Vec<f64> {
        let mut s = stream(self.seed, Purpose::Policy, 0, ALL);
        let uniform = self.exploration / self.actions as f64;
        (0..self.states)
            .flat_map(|_| {
                let own = (s.uniform() * self.actions as f64) as usize;
                (0..self.actions).map(move |a| uniform + if a == own { 1.0 - self.exploration } else { 0.0 })
            })
            .collect()
    }
}

impl ProblemSettings for QLearning {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        self.garnet().check()?;
        let pairs = self.pairs();
        require(pairs <= u32::MAX as usize, "actions", self.actions, "fewer than 2^32 pairs of a state and an action")?;
        PairFeatures::check(self.feature_law, self.features, self.states, self.actions)?;
        crate::check_size("features", &[pairs, self.dim()])?;
        crate::check_size("agents", &[self.agents.min(64), self.dim(), self.dim()])?;
        let in_range = self.exploration > 0.0 && self.exploration <= 1.0;
        require(in_range, "exploration", self.exploration, "in (0, 1], so that every action is taken")
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.noise.as_ref()?.without_effect(sampling)
    }

    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        if let ChainStart::State(s) = sampling.start {
            require((s as usize) < self.states, "start", s, &format!("a state below {}", self.states)).map_err(|e| e.inside("sampling"))?;
        }
        let garnet = self.garnet();
        let plan = garnet.plan();
        let mut s = stream(self.seed, Purpose::Reward, 0, ALL);
        let rewards: Vec<f64> = (0..self.pairs()).map(|_| s.uniform()).collect();
        let (shared, kinds, policy) = (garnet.shared(&plan)?, garnet.kinds(&plan), self.behaviour());
        let features = Arc::new(self.draw_features());
        let kinds = parallel::try_map(kinds, |c| {
            let mut mrp = garnet.agent(&plan, &shared, &rewards, c)?;
            // The uniform policy gave all actions equal shares.
            for (row, policy) in mrp.states.iter_mut().zip(policy.chunks(self.actions)) {
                for (action, pi) in row.chunks_mut(self.branching).zip(policy) {
                    action.iter_mut().for_each(|o| o.p *= pi * self.actions as f64);
                }
            }
            Environment::new(&mrp, self.actions, self.branching, sampling.kind)
        })?;
        let least = policy.iter().copied().fold(1.0, f64::min);
        let problem = Control::new(kinds, features, self, least, sampling);
        noise::field(problem, self.noise.as_ref(), sampling, isa, false)
    }

    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let garnet = self.garnet();
        let kinds = garnet.kinds(&garnet.plan()) as f64;
        let (n, pairs, d, outcomes) = (self.states as f64, self.pairs() as f64, self.dim() as f64, (self.actions * self.branching) as f64);
        let sizes = TableSizes {
            agents: self.agents as f64,
            kinds,
            d: 1.0,
            rows: 0.0,
            shared: true,
            transitions: kinds * n * outcomes,
            most: n * outcomes,
            chain: Moves::States { states: n, outcomes },
            making: reward_process(n, n * outcomes, n),
            source: 2.0 * (40.0 * n + 24.0 * n * outcomes),
            solved: false,
        };
        let (peak, kept) = sizes.memory(sampling, threads);
        let parts = memory::vectors(pairs + 1.0, d) + 2.0 * memory::matrix(d, d);
        let root = memory::jacobians(self.agents as f64, d, threads);
        let text = format!("{} ({kinds} distinct), {} states, {} actions, d = {d}", memory::agents(self.agents), self.states, self.actions);
        let sizes = noise::with_noise((peak + parts + root, kept + parts), self.noise.as_ref(), self.agents, self.dim());
        Ok(MemoryEstimate::new(sizes, text))
    }
}

/// The environment of one kind of agents under the behaviour policy.
#[derive(Debug)]
struct Environment {
    /// Steps, grouped by pair. `phi` is the index of the pair (s, a), s A + a; `next` is the state s'.
    steps: Arc<[Transition]>,
    /// The stationary probability of each step.
    mass: Vec<f64>,
    /// The probability of each step, given its state.
    p: Vec<f64>,
    /// The stationary law of the states.
    law: Vec<f64>,
    /// The table from which steps are drawn; none with mean sampling.
    table: Option<TransitionTable>,
}

impl Environment {
    fn new(mrp: &Mrp, actions: usize, branching: usize, sampling: Law) -> Result<Self> {
        let law = mrp.stationary()?;
        let each = || mrp.states.iter().enumerate().flat_map(|(s, row)| row.iter().enumerate().map(move |(k, o)| (s, k, o)));
        let step = |(s, k, o): (usize, usize, &crate::td::mrp::Successor)| Transition {
            phi: (s * actions + k / branching) as u32,
            next: o.next,
            reward: o.reward,
        };
        let steps: Arc<[Transition]> = each().map(step).collect();
        let p: Vec<f64> = each().map(|(_, _, o)| o.p).collect();
        let mass: Vec<f64> = each().map(|(s, _, o)| law[s] * o.p).collect();
        let all: Vec<u32> = (0..steps.len() as u32).collect();
        let table = (sampling != Law::Mean).then(|| {
            let (mut columns, a_state) = (Vec::new(), actions * branching);
            let (bits, successors) = if sampling == Law::Markov {
                let bits = td::column_bits(a_state);
                p.chunks(a_state).zip(all.chunks(a_state)).for_each(|(p, z)| td::alias(p, z, bits, &mut columns));
                (bits, steps.iter().map(|step| step.next).collect())
            } else {
                let bits = td::column_bits(all.len());
                td::alias(&mass, &all, bits, &mut columns);
                (bits, Vec::new())
            };
            // Neither its kernel nor its feature rows are used.
            let unused: Arc<[Chunk]> = vec![Chunk::default(); law.len() * actions].into();
            TransitionTable::new(0.0, bits, columns, Arc::clone(&steps), successors, unused, 1)
        });
        Ok(Self { steps, mass, p, law, table })
    }

    /// The steps of each visited pair, with their masses.
    fn pairs(&self) -> impl Iterator<Item = (u32, &[Transition], &[f64])> {
        let mut at = 0;
        self.steps.chunk_by(|x, y| x.phi == y.phi).filter_map(move |steps| {
            let mass = &self.mass[at..at + steps.len()];
            at += steps.len();
            mass.iter().any(|w| *w > 0.0).then_some((steps[0].phi, steps, mass))
        })
    }
}

/// Q-learning of all agents.
#[derive(Debug)]
struct Control {
    kinds: Vec<Environment>,
    /// The row of the pair (s, a) is s A + a.
    features: Arc<Features>,
    actions: usize,
    /// Whether features are tabular.
    is_table: bool,
    gamma: f64,
    /// `sum_c p_c E phi phi^T`, d x d: the norm for errors of action values.
    gram: Mat<f64>,
    /// The least probability of an action.
    least: f64,
    sampling: Sampling,
    weights: Vec<f64>,
}

impl Control {
    fn new(kinds: Vec<Environment>, features: Arc<Features>, settings: &QLearning, least: f64, sampling: Sampling) -> Self {
        let weights = equal_weights(settings.agents);
        let d = features.dim();
        let (actions, gamma, is_table) = (settings.actions, settings.gamma, settings.feature_law == PairFeatures::Tabular);
        let mut control = Self { kinds, features, actions, is_table, gamma, gram: Mat::zeros(d, d), least, sampling, weights };
        let of_kinds = control.kind_weights();
        for (kind, w) in of_kinds.iter().enumerate() {
            control.gram += faer::Scale(*w) * control.grams(kind).0;
        }
        control
    }

    fn kind_weights(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.kinds.len()];
        self.weights.iter().enumerate().for_each(|(c, p)| sums[c % self.kinds.len()] += p);
        sums
    }

    #[inline(always)]
    fn environment(&self, c: usize) -> &Environment {
        &self.kinds[c % self.kinds.len()]
    }

    #[inline(always)]
    fn q(&self, pair: u32, theta: &[f64]) -> f64 {
        dot(theta, &self.features.row(pair)[..theta.len()])
    }

    /// The greedy action of a state, the first one among ties, and its value.
    #[inline(always)]
    fn greedy(&self, state: u32, theta: &[f64]) -> (u32, f64) {
        let first = state * self.actions as u32;
        let mut best = (first, self.q(first, theta));
        for pair in first + 1..first + self.actions as u32 {
            let value = self.q(pair, theta);
            if value > best.1 {
                best = (pair, value);
            }
        }
        best
    }

    /// `out = g(theta, step)`.
    #[inline(always)]
    fn operator(&self, step: &Transition, theta: &[f64], out: &mut [f64]) {
        let error = self.gamma.mul_add(self.greedy(step.next, theta).1, step.reward) - self.q(step.phi, theta);
        out.iter_mut().zip(self.features.row(step.phi)).for_each(|(out, phi)| *out = error * phi);
    }

    /// `E phi(s, a) phi(s, a)^T` and `E sum_a' phi(s', a') phi(s', a')^T` of a kind.
    fn grams(&self, kind: usize) -> (Mat<f64>, Mat<f64>) {
        let environment = &self.kinds[kind];
        let gram = |weight: &[f64]| {
            let d = self.features.dim();
            let scaled = Mat::from_fn(d, weight.len(), |i, pair| weight[pair] * self.features.row(pair as u32)[i]);
            let plain = Mat::from_fn(d, weight.len(), |i, pair| self.features.row(pair as u32)[i]);
            let mut out = Mat::zeros(d, d);
            linalg::add_outer(&mut out, scaled.as_ref(), plain.as_ref());
            out
        };
        let mut visits = vec![0.0; environment.law.len() * self.actions];
        environment.pairs().for_each(|(pair, _, mass)| visits[pair as usize] = mass.iter().sum());
        let states: Vec<f64> = environment.law.iter().flat_map(|law| std::iter::repeat_n(*law, self.actions)).collect();
        (gram(&visits), gram(&states))
    }
}

impl Problem for Control {
    /// A step.
    type Obs = Transition;

    fn dim(&self) -> usize {
        self.features.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(self.sampling.kind == Law::Markov)
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let Some(state) = chain.first_mut() else { return };
        *state = match self.sampling.start {
            ChainStart::State(s) => u64::from(s),
            ChainStart::Stationary => crate::td::td0::draw_state(&self.environment(c).law, stream),
        };
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        chain.iter().all(|state| *state < self.environment(c).law.len() as u64)
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut Transition) {
        let Some(table) = &self.environment(c).table else { return };
        *z = table.transitions()[table.draw(chain, stream)];
    }
    #[inline(always)]
    fn apply(&self, _: usize, theta: &[f64], z: &Transition, out: &mut [f64]) {
        self.operator(z, theta, out);
    }
    /// An allocation takes little time compared with the products with the features of all pairs.
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        let environment = self.environment(c);
        let values: Vec<f64> = (0..environment.law.len() as u32).map(|s| self.greedy(s, theta).1).collect();
        out.fill(0.0);
        for (pair, steps, mass) in environment.pairs() {
            let q = self.q(pair, theta);
            let error = |step: &Transition| self.gamma.mul_add(values[step.next as usize], step.reward) - q;
            let sum: f64 = steps.iter().zip(mass).map(|(step, w)| w * error(step)).sum();
            linalg::add_scaled(out, sum, self.features.row(pair));
        }
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Control {
    fn is_table(&self) -> bool {
        self.is_table && self.sampling.kind != Law::Mean && self.sampling.samples_per_step() == 1
    }
    /// `-sum of mass phi(s, a) (phi(s, a) - gamma phi(s', greedy a'))^T`.
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        let (environment, d) = (self.environment(c), theta.len());
        let greedy: Vec<u32> = (0..environment.law.len() as u32).map(|s| self.greedy(s, theta).0).collect();
        let each: Vec<_> = environment.pairs().collect();
        let phi = Mat::from_fn(d, each.len(), |i, k| self.features.row(each[k].0)[i]);
        let mut psi = Mat::zeros(d, each.len());
        for (k, (pair, steps, mass)) in each.iter().enumerate() {
            let column = psi.col_as_slice_mut(k);
            for (step, w) in steps.iter().zip(*mass) {
                linalg::add_scaled(column, self.gamma * w, self.features.row(greedy[step.next as usize]));
            }
            linalg::add_scaled(column, -mass.iter().sum::<f64>(), self.features.row(*pair));
        }
        out.fill(0.0);
        linalg::add_outer(out, phi.as_ref(), psi.as_ref());
        true
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        let environment = self.environment(c);
        let law = FiniteLaw::new(self.dim(), environment.mass.clone(), move |z, theta, out| {
            self.operator(&environment.steps[z], theta, out);
        });
        Some(law.with_chain(Chain {
            from: environment.steps.iter().map(|step| step.phi / self.actions as u32).collect(),
            to: environment.steps.iter().map(|step| step.next).collect(),
            p: environment.p.clone(),
            law: environment.law.clone(),
        }))
    }
    /// The point where projected value iteration settles, `theta <- theta + G^-1 gbar(theta)` with `G = sum_c p_c E phi phi^T`: the fit of
    /// the Bellman targets. It settles on some problems on which policy iteration cycles, and vice versa.
    fn near_root(&self) -> Option<Vec<f64>> {
        const ITERATIONS: usize = 10_000;
        const SETTLED: f64 = 1e-10;
        let d = self.dim();
        let inverse = linalg::solve_columns(&self.gram, &Mat::identity(d, d)).ok()?;
        let weights = self.kind_weights();
        let (mut theta, mut own) = (vec![0.0; d], vec![0.0; d]);
        for _ in 0..ITERATIONS {
            let mut g = vec![0.0; d];
            for (kind, w) in weights.iter().enumerate() {
                // The index of a kind is the index of its first agent.
                self.mean(kind, &theta, &mut own);
                linalg::add_scaled(&mut g, *w, &own);
            }
            let step = linalg::mat_vec(&inverse, &g);
            linalg::add_scaled(&mut theta, 1.0, &step);
            let size = linalg::norm_sq(&theta).sqrt();
            if !size.is_finite() {
                return None;
            }
            if linalg::norm_sq(&step).sqrt() <= SETTLED * size {
                return Some(theta);
            }
        }
        None
    }
    fn stationary(&self, c: usize) -> Option<&[f64]> {
        Some(&self.environment(c).law)
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        Some(&self.gram)
    }
    /// From `|max_a x_a - max_a y_a| <= ||x - y||` and `E |u v| <= kappa/2 E u^2 + 1/(2 kappa) E v^2`. Here u is the change of `Q(s, a)`,
    /// and v the change of all action values in s'.
    fn monotone(&self) -> Option<Monotone> {
        let kappa = 1.0 / self.least.sqrt();
        let d = self.dim();
        let (mut certificate, mut lipschitz) = (Mat::zeros(d, d), 0.0f64);
        for (kind, w) in self.kind_weights().iter().enumerate() {
            let (g, m) = self.grams(kind);
            let (size, next) = (linalg::norm2(&g), linalg::norm2(&m));
            lipschitz = lipschitz.max(size + self.gamma * (size * next).sqrt());
            certificate += faer::Scale(w * (1.0 - 0.5 * self.gamma * kappa)) * g - faer::Scale(w * self.gamma / (2.0 * kappa)) * m;
        }
        Monotone::of(least_eigenvalue(&certificate)?, lipschitz)
    }
    /// A row of features for each action of the next state, and for the state-action pair.
    fn step_work(&self) -> Option<usize> {
        let environment = &self.kinds[0];
        let pairs = environment.law.len() * self.actions;
        let rows = if self.sampling.kind == Law::Mean { 3 * pairs } else { self.actions + 2 };
        Some(rows * self.dim() + if self.sampling.kind == Law::Mean { 2 * environment.steps.len() } else { 20 })
    }
}
