//! The `sarsa` problem: on-policy SARSA, an operator that chooses its own samples.
//!
//! The action values are `q(s, a) = phi(s, a)^T theta`, and agents act by a policy pi that follows them. A sample is a step
//! (s, a, r, s', a') of the agent in its own environment under the policy of its own iterate, and
//!
//! ```text
//! g_c(theta, z) = (r + gamma phi(s', a')^T theta - phi(s, a)^T theta) phi(s, a)
//! gbar_c(theta) = sum_i x_i delta_i phi_i,    x_i = mu(s) pi(a|s),    delta_i = r_i + gamma sum_s' P(s'|i) v(s') - q_i
//! ```
//!
//! where mu is the stationary law of the states under pi, and v(s) the mean of q(s, a) over pi. The mean operators are nonlinear, because mu,
//! pi and v depend on theta.
//!
//! **Roots.** If exploration is positive and features are independent, there is a root, and all roots are within a known distance of 0. At
//! low temperatures there may be several. With T = 0 the policy jumps where the
//! best action changes, and there may be no root: the problem then runs without one.
//!
//! **Next actions.** Trajectories have the state (s, a) and go on with the action a' of the target (`carry`), or the state s, with the action
//! drawn when it is used (`redraw`); `expected` replaces `phi(s', a')^T theta` by v(s'). All have the same mean and different noise.
//!
//! **Improvement.** The policy is that of the agent's iterate in each local step, or that of the round's model during the whole round.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::environment::{self, Environment, MAX_STATES};
use super::features::PairRows;
use super::learners::{Behaviour, Learners};
use super::policy::SoftPolicy;
use super::sarsa_root;
pub use super::sarsa_step::NextAction;
use super::sarsa_step::Step;
use crate::linear::file;
use crate::memory::{self, MemoryEstimate};
use crate::nonlinear::q_learning::PairFeatures;
use crate::td::garnet::{Garnet, Heterogeneity, Policy};
use crate::td::td0::draw_state;
use crate::{Files, ProblemSettings};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Isa, Lanes, flat, flat_mut};
use fedsa::problem::arrays::Arrays;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::policy_systems::PolicySystems;
use fedsa::problem::root::Root;
use fedsa::problem::{Field, Problem, Sampled, StepKernel, equal_weights};
use fedsa::random::{ALL, Stream};
use fedsa::sampling::{ChainStart, Law, Sampling};

/// When the policy follows theta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ImproveEvery {
    /// At each local step.
    #[default]
    Step,
    /// At the start of a round.
    Round,
}

/// The `sarsa` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Sarsa {
    /// An `.npz` file with P (n, S, A, S), R (n, S, A), gamma, and Phi (S, A, d) unless tabular; then no other environment is drawn. Agent c
    /// has environment c mod n.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Agents N.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub agents: usize,
    /// Different environments, which agents take in turn; by default each agent has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = crate::MAX_AGENTS)))]
    pub environments: Option<usize>,
    /// States.
    #[cfg_attr(feature = "schema", schemars(range(min = 2, max = MAX_STATES)))]
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
    /// As in `garnet`.
    pub heterogeneity: Heterogeneity,
    /// Seed of environments and features.
    pub seed: u64,
    /// T of the softmax policy; 0 for the greedy one.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub temperature: f64,
    /// Probability of a uniform action.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub exploration: f64,
    /// The action in the target.
    pub next_action: NextAction,
    /// When the policy follows theta.
    pub improve_every: ImproveEvery,
}

fedsa::settings::setters! { Sarsa {
    with_path(path: impl Into<Option<String>>) = path.into();
    with_agents(agents: usize) = agents;
    with_environments(environments: impl Into<Option<usize>>) = environments.into();
    with_states(states: usize) = states;
    with_actions(actions: usize) = actions;
    with_branching(branching: usize) = branching;
    with_feature_law(feature_law: PairFeatures) = feature_law;
    with_features(features: impl Into<Option<usize>>) = features.into();
    with_gamma(gamma: f64) = gamma;
    with_heterogeneity(heterogeneity: Heterogeneity) = heterogeneity;
    with_seed(seed: u64) = seed;
    with_temperature(temperature: f64) = temperature;
    with_exploration(exploration: f64) = exploration;
    with_next_action(next_action: NextAction) = next_action;
    with_improve_every(improve_every: ImproveEvery) = improve_every;
} }

impl Default for Sarsa {
    fn default() -> Self {
        Self {
            path: None,
            agents: 10,
            environments: None,
            states: 10,
            actions: 2,
            branching: 2,
            feature_law: PairFeatures::Tabular,
            features: None,
            gamma: 0.8,
            heterogeneity: Heterogeneity::Independent,
            seed: 0,
            temperature: 1.0,
            exploration: 0.0,
            next_action: NextAction::Carry,
            improve_every: ImproveEvery::Step,
        }
    }
}

impl Sarsa {
    /// The Garnet problem whose uniform policy takes every action.
    fn garnet(&self) -> Garnet {
        Garnet {
            agents: self.environments.unwrap_or(self.agents),
            states: self.states,
            actions: self.actions,
            branching: self.branching,
            features: 1,
            gamma: self.gamma,
            seed: self.seed,
            policy: Policy::Uniform,
            heterogeneity: self.heterogeneity,
            min_class: Some(self.states),
            ..Garnet::default()
        }
    }

    /// The settings that a file replaces, at their defaults.
    fn without_environment(&self) -> Self {
        let Self { path, agents, temperature, exploration, next_action, improve_every, .. } = self.clone();
        Self { path, agents, temperature, exploration, next_action, improve_every, ..Self::default() }
    }

    fn policy(&self) -> SoftPolicy {
        SoftPolicy { temperature: self.temperature, exploration: self.exploration }
    }

    /// The environments that are drawn, or those of the file.
    fn given(&self, files: &dyn Files) -> Result<Drawn> {
        let Some(path) = &self.path else { return self.drawn(files.cancel()) };
        read(&files.arrays(path)?).map_err(|e| {
            let what = format!("{path}: {e}");
            e.saying(what).about("path")
        })
    }

    /// The environments that are drawn, with the features.
    fn drawn(&self, cancel: &Cancel) -> Result<Drawn> {
        let (garnet, pairs) = (self.garnet(), self.states * self.actions);
        let kinds = with_one_class(environment::draw(&garnet, cancel)?)?;
        let Some(law) = self.feature_law.drawn() else {
            return Ok(Drawn { kinds, rows: PairRows::tabular(pairs), gamma: self.gamma });
        };
        let d = self.features.unwrap_or(pairs);
        let drawn = law.draw(pairs, d, self.seed, ALL);
        let values: Vec<f64> = (0..pairs as u32).flat_map(|i| drawn.row(i)[..d].to_vec()).collect();
        Ok(Drawn { kinds, rows: PairRows::new(d, &values), gamma: self.gamma })
    }
}

/// Environments with the features of their pairs.
struct Drawn {
    kinds: Vec<Environment>,
    rows: PairRows,
    gamma: f64,
}

/// The environments of a file.
fn read(arrays: &Arrays) -> Result<Drawn> {
    let (kinds, gamma) = environment::read(arrays)?;
    let (states, actions) = (kinds[0].states, kinds[0].actions);
    let pairs = states * actions;
    let rows = match file::find(arrays, "Phi")? {
        None => PairRows::tabular(pairs),
        Some(phi) => match *phi.shape() {
            [s, a, d] if s == states && a == actions && d >= 1 => PairRows::new(d, phi.data()),
            _ => return Err(file::wrong_shape("Phi", phi, &format!("({states}, {actions}, d)"))),
        },
    };
    Ok(Drawn { kinds: with_one_class(kinds)?, rows, gamma })
}

/// Environments whose stationary laws are unique.
fn with_one_class(kinds: Vec<Environment>) -> Result<Vec<Environment>> {
    kinds.into_iter().map(Environment::with_one_class).collect()
}

impl ProblemSettings for Sarsa {
    fn check(&self) -> Result<()> {
        require((0.0..1e300).contains(&self.temperature), "temperature", self.temperature, "at least 0")?;
        require((0.0..=1.0).contains(&self.exploration), "exploration", self.exploration, "in [0, 1]")?;
        let explores = self.temperature > 0.0 || self.exploration > 0.0;
        require(explores, "exploration", self.exploration, "positive if temperature = 0, so that every action is taken")?;
        require((1..=crate::MAX_AGENTS).contains(&self.agents), "agents", self.agents, &format!("between 1 and {}", crate::MAX_AGENTS))?;
        if self.path.is_some() {
            let what = "a file beside settings of environments that are drawn";
            let help = "with a file only agents, temperature, exploration, next_action and improve_every";
            return if *self == self.without_environment() { Ok(()) } else { Err(Error::new("path", what, help)) };
        }
        self.garnet().check()?;
        if let Some(environments) = self.environments {
            let most = self.agents;
            require((1..=most).contains(&environments), "environments", environments, &format!("between 1 and the {most} agents"))?;
        }
        require(self.states <= MAX_STATES, "states", self.states, &format!("at most {MAX_STATES}"))?;
        PairFeatures::check(self.feature_law, self.features, self.states, self.actions)
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let Drawn { kinds, rows, gamma } = self.given(files)?;
        let (states, is_frozen) = (kinds[0].states, self.improve_every == ImproveEvery::Round);
        if let ChainStart::State(s) = sampling.start {
            require((s as usize) < states, "start", s, &format!("a state below {states}")).map_err(|e| e.inside("sampling"))?;
        }
        if is_frozen && sampling.batch > 1 {
            return Err(Error::new("improve_every", "round, and steps with several samples", "`sampling.batch = 1`, or \"step\""));
        }
        let (policy, next_action, weights) = (self.policy(), self.next_action, equal_weights(self.agents));
        Ok(Arc::new(Sampled::new(
            Agents { learners: Learners { kinds, rows, gamma, policy, weights }, next_action, is_frozen, sampling },
            sampling,
            isa,
        )?))
    }

    fn memory(&self, files: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (kinds, n, pairs, moves, d) = if self.path.is_some() {
            let Drawn { kinds, rows, .. } = self.given(files)?;
            let moves = kinds.iter().map(Environment::moves_in_all).max().unwrap_or(0);
            (kinds.len(), kinds[0].states, kinds[0].pairs(), moves, rows.dim())
        } else {
            let (garnet, pairs) = (self.garnet(), self.states * self.actions);
            (garnet.kinds(&garnet.plan()), self.states, pairs, pairs * self.branching, self.features.unwrap_or(pairs))
        };
        let (kinds, n, pairs, moves, d) = (kinds as f64, n as f64, pairs as f64, moves as f64, d as f64);
        let kept = kinds * (20.0 * moves + 16.0 * pairs + 40.0 * n) + memory::vectors(pairs, d) + 8.0 * self.agents as f64;
        let root = memory::matrix(pairs, d) + 3.0 * memory::matrix(d.max(n), d.max(n));
        let text = format!("{} ({kinds} distinct), {n} states, {pairs} pairs, d = {d}", memory::agents(self.agents));
        Ok(MemoryEstimate::new((kept + threads as f64 * root, kept), text))
    }
}

/// SARSA of all agents.
#[derive(Debug)]
pub(super) struct Agents {
    learners: Learners,
    next_action: NextAction,
    /// Whether the policy is that of the round's model.
    is_frozen: bool,
    sampling: Sampling,
}

impl Agents {
    /// `out = gbar_c(theta)` under the policy of `of`.
    fn mean_under(&self, c: usize, theta: &[f64], of: &[f64], under: &mut Behaviour, out: &mut [f64]) {
        let environment = self.learners.environment(c);
        self.learners.behave(environment, of, under);
        out.fill(0.0);
        for (pair, delta) in self.learners.errors(environment, &under.policy, theta).into_iter().enumerate() {
            self.learners.rows.add(pair, under.law[pair / environment.actions] * under.policy[pair] * delta, out);
        }
    }

    /// Local steps under the policy of the model from which the round started.
    fn frozen_phase(&self, blocks: &mut [Lanes], etas: &[f64], _: Isa) {
        let d = self.learners.rows.dim();
        let (mut z, mut g) = (Step::default(), vec![0.0; d]);
        for lanes in blocks {
            let of = &flat(&lanes.start)[..d];
            for l in 0..lanes.len {
                let (agent, mut stream) = (lanes.agents[l], lanes.streams.get(l));
                let chunks = l * lanes.width..(l + 1) * lanes.width;
                let chain = &mut lanes.chains[l * lanes.chain_len..][..lanes.chain_len];
                let (theta, drift) = (&mut flat_mut(&mut lanes.theta[chunks.clone()])[..d], flat(&lanes.drift[chunks]));
                for eta in etas {
                    if self.sampling.kind == Law::Mean {
                        self.mean_under(agent, theta, of, &mut z.under, &mut g);
                    } else {
                        self.learners.draw(self.next_action, agent, of, chain, &mut stream, &mut z);
                        self.learners.operator(agent, theta, &z, &mut g);
                    }
                    theta.iter_mut().zip(&g).zip(drift).for_each(|((theta, g), drift)| *theta = eta.mul_add(g + drift, *theta));
                }
                lanes.streams.set(l, stream);
            }
        }
    }
}

impl Problem for Agents {
    type Obs = Step;

    fn dim(&self) -> usize {
        self.learners.rows.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.learners.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(self.sampling.kind == Law::Markov)
    }
    /// A state of the stationary law under the policy of theta = 0, with one of its actions.
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let Some(at) = chain.first_mut() else { return };
        let (environment, mut under) = (self.learners.environment(c), Behaviour::default());
        self.learners.behave(environment, &vec![0.0; self.learners.rows.dim()], &mut under);
        let state = match self.sampling.start {
            ChainStart::State(s) => s as usize,
            ChainStart::Stationary => draw_state(&under.law, stream) as usize,
        };
        *at = match self.next_action {
            NextAction::Carry => state * environment.actions + draw_state(&under.policy[environment.pairs_of(state)], stream) as usize,
            _ => state,
        } as u64;
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        let environment = self.learners.environment(c);
        let most = if self.next_action == NextAction::Carry { environment.pairs() } else { environment.states };
        chain.iter().all(|at| *at < most as u64)
    }
    #[inline(always)]
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut Step) {
        self.learners.draw(self.next_action, c, theta, chain, stream, z);
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &Step, out: &mut [f64]) {
        self.learners.operator(c, theta, z, out);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.mean_under(c, theta, theta, &mut Behaviour::default(), out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, _: Law) -> Option<StepKernel<Self>> {
        self.is_frozen.then_some(Self::frozen_phase)
    }
}

impl Facts for Agents {
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        out.copy_from(sarsa_root::jacobian(&self.learners, c % self.learners.kinds.len(), theta));
        true
    }
    fn law_at(&self, c: usize, theta: &[f64]) -> Option<FiniteLaw<'_>> {
        self.learners.law_of_step(self.next_action, c, theta, self.sampling.kind == Law::Markov)
    }
    fn keeps_law_in_rounds(&self) -> bool {
        self.is_frozen
    }
    fn policy_systems(&self) -> Option<&dyn PolicySystems> {
        Some(&self.learners)
    }
    fn kind_of(&self) -> Option<Vec<u32>> {
        Some((0..self.learners.weights.len()).map(|c| (c % self.learners.kinds.len()) as u32).collect())
    }
    fn own_root(&self, cancel: &Cancel) -> Option<std::result::Result<Root, String>> {
        Some(sarsa_root::search(&self.learners, cancel))
    }
    /// The policy in one or two states; for means and independent samples that of all states with a linear solve.
    fn step_work(&self) -> Option<usize> {
        let (states, actions, pairs) = (self.learners.kinds[0].states, self.learners.kinds[0].actions, self.learners.kinds[0].pairs());
        let row = self.learners.rows.entries_in_all().div_ceil(pairs);
        let of_policy = |states: usize| states * actions * (row + 20);
        Some(if self.sampling.kind == Law::Markov { of_policy(2) } else { of_policy(states) + states.pow(3) / 3 })
    }
}

#[cfg(test)]
#[path = "sarsa_tests.rs"]
mod tests;
