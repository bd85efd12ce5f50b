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

use super::environment::Environment;
use super::features::PairRows;
use super::learners::{Behaviour, Learners};
use super::policy::SoftPolicy;
use super::sarsa_root;
use crate::linear::file;
use crate::memory::{self, MemoryEstimate};
use crate::nonlinear::q_learning::PairFeatures;
use crate::td::garnet::{Garnet, Heterogeneity, Policy};
use crate::td::td0::draw_state;
use crate::{Files, ProblemSettings};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Isa, Lanes, flat, flat_mut};
use fedsa::parallel;
use fedsa::problem::arrays::Arrays;
use fedsa::problem::facts::Facts;
use fedsa::problem::root::Root;
use fedsa::problem::{Field, Problem, Sampled, StepKernel, equal_weights};
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};

/// The action in the target of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NextAction {
    /// Drawn, and the next action of the trajectory.
    #[default]
    Carry,
    /// Drawn for the target only.
    Redraw,
    /// Its mean: the target has v(s').
    Expected,
}

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

/// The most states: independent samples and Jacobians take a linear solve of this size.
const MAX_STATES: usize = 200;

impl Default for Sarsa {
    fn default() -> Self {
        Self {
            path: None,
            agents: 10,
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
            agents: self.agents,
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

    /// The environments that are drawn, with the features.
    fn drawn(&self, cancel: &Cancel) -> Result<Drawn> {
        let (garnet, pairs) = (self.garnet(), self.states * self.actions);
        let plan = garnet.plan();
        let mut s = stream(self.seed, Purpose::Reward, 0, ALL);
        let rewards: Vec<f64> = (0..pairs).map(|_| s.uniform()).collect();
        let shared = garnet.shared(&plan)?;
        let kinds = parallel::try_map(garnet.kinds(&plan), |c| {
            cancel.check()?;
            let mrp = garnet.agent(&plan, &shared, &rewards, c)?;
            let each = || mrp.states.iter().flat_map(|row| row.chunks(self.branching));
            let moves: Vec<Vec<(u32, f64)>> =
                each().map(|row| row.iter().map(|to| (to.next, to.p * self.actions as f64)).collect()).collect();
            Environment::new(self.actions, &moves, each().map(|row| row[0].reward).collect())
        })?;
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
    let (p, r) = (file::get(arrays, "P")?, file::get(arrays, "R")?);
    let &[kinds, states, actions, next] = p.shape() else { return Err(file::wrong_shape("P", p, "(n, S, A, S)")) };
    if kinds == 0 || actions == 0 || states != next || !(1..=MAX_STATES).contains(&states) {
        return Err(file::wrong_shape("P", p, &format!("(n, S, A, S) with at most {MAX_STATES} states")));
    }
    if r.shape() != [kinds, states, actions] {
        return Err(file::wrong_shape("R", r, &format!("({kinds}, {states}, {actions})")));
    }
    file::probabilities("P", p)?;
    let gamma = file::scalar(file::get(arrays, "gamma")?, "gamma")?;
    require((0.0..1.0).contains(&gamma), "gamma", gamma, "in [0, 1)")?;
    let pairs = states * actions;
    let rows = match file::find(arrays, "Phi")? {
        None => PairRows::tabular(pairs),
        Some(phi) => match *phi.shape() {
            [s, a, d] if s == states && a == actions && d >= 1 => PairRows::new(d, phi.data()),
            _ => return Err(file::wrong_shape("Phi", phi, &format!("({states}, {actions}, d)"))),
        },
    };
    let environment = |c: usize| {
        let row = |p: &[f64]| p.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(t, p)| (t as u32, *p)).collect();
        let moves: Vec<Vec<(u32, f64)>> = p.data()[c * pairs * states..][..pairs * states].chunks(states).map(row).collect();
        Environment::new(actions, &moves, r.data()[c * pairs..][..pairs].to_vec())
    };
    Ok(Drawn { kinds: parallel::try_map(kinds, environment)?, rows, gamma })
}

impl ProblemSettings for Sarsa {
    fn check(&self) -> Result<()> {
        require((0.0..1e300).contains(&self.temperature), "temperature", self.temperature, "at least 0")?;
        require((0.0..=1.0).contains(&self.exploration), "exploration", self.exploration, "in [0, 1]")?;
        let explores = self.temperature > 0.0 || self.exploration > 0.0;
        require(explores, "exploration", self.exploration, "positive if temperature = 0, so that every action is taken")?;
        if self.path.is_some() {
            require(
                (1..=crate::MAX_AGENTS).contains(&self.agents),
                "agents",
                self.agents,
                &format!("between 1 and {}", crate::MAX_AGENTS),
            )?;
            let what = "a file beside settings of environments that are drawn";
            let help = "with a file only agents, temperature, exploration, next_action and improve_every";
            return if *self == self.without_environment() { Ok(()) } else { Err(Error::new("path", what, help)) };
        }
        self.garnet().check()?;
        require(self.states <= MAX_STATES, "states", self.states, &format!("at most {MAX_STATES}"))?;
        PairFeatures::check(self.feature_law, self.features, self.states, self.actions)
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        let Drawn { kinds, rows, gamma } = match &self.path {
            None => self.drawn(files.cancel())?,
            Some(path) => read(&files.arrays(path)?).map_err(|e| {
                let what = format!("{path}: {e}");
                e.saying(what).about("path")
            })?,
        };
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
        let (kinds, n, pairs, moves, d) = match &self.path {
            None => {
                let garnet = self.garnet();
                let pairs = self.states * self.actions;
                (garnet.kinds(&garnet.plan()), self.states, pairs, pairs * self.branching, self.features.unwrap_or(pairs))
            }
            Some(path) => {
                let Drawn { kinds, rows, .. } = read(&files.arrays(path)?)?;
                let moves = kinds.iter().map(|kind| kind.moves_in_all()).max().unwrap_or(0);
                (kinds.len(), kinds[0].states, kinds[0].pairs(), moves, rows.dim())
            }
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

/// A step of an agent, with the working memory of its draws.
#[derive(Default)]
pub(super) struct Step {
    pair: usize,
    next: usize,
    /// The pair in the target; none with its mean.
    next_pair: Option<usize>,
    /// The probabilities of the actions in the next state.
    actions: Vec<f64>,
    under: Behaviour,
}

impl Agents {
    /// A sample under the policy of `of`, d components.
    #[inline(always)]
    fn sample_under(&self, c: usize, of: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut Step) {
        let environment = self.learners.environment(c);
        let pair_in =
            |state: usize, actions: &[f64], stream: &mut Stream| state * environment.actions + draw_state(actions, stream) as usize;
        let carries = self.next_action == NextAction::Carry;
        z.pair = match chain.first() {
            None => {
                self.learners.behave(environment, of, &mut z.under);
                let state = draw_state(&z.under.law, stream) as usize;
                pair_in(state, &z.under.policy[environment.pairs_of(state)], stream)
            }
            Some(pair) if carries => *pair as usize,
            Some(state) => {
                self.learners.actions_in(environment.pairs_of(*state as usize), of, &mut z.actions);
                pair_in(*state as usize, &z.actions, stream)
            }
        };
        z.next = environment.draw(z.pair, stream);
        self.learners.actions_in(environment.pairs_of(z.next), of, &mut z.actions);
        z.next_pair = (self.next_action != NextAction::Expected).then(|| pair_in(z.next, &z.actions, stream));
        if let Some(at) = chain.first_mut() {
            *at = z.next_pair.filter(|_| carries).unwrap_or(z.next) as u64;
        }
    }

    /// `out = g_c(theta, z)`.
    #[inline(always)]
    fn operator(&self, c: usize, theta: &[f64], z: &Step, out: &mut [f64]) {
        let environment = self.learners.environment(c);
        let mean = || environment.pairs_of(z.next).zip(&z.actions).map(|(pair, pi)| pi * self.learners.rows.dot(pair, theta)).sum();
        let target = z.next_pair.map_or_else(mean, |pair| self.learners.rows.dot(pair, theta));
        let error = self.learners.gamma.mul_add(target, environment.rewards[z.pair]) - self.learners.rows.dot(z.pair, theta);
        out.fill(0.0);
        self.learners.rows.add(z.pair, error, out);
    }

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
                        self.sample_under(agent, of, chain, &mut stream, &mut z);
                        self.operator(agent, theta, &z, &mut g);
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
        self.sample_under(c, theta, chain, stream, z);
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &Step, out: &mut [f64]) {
        self.operator(c, theta, z, out);
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
