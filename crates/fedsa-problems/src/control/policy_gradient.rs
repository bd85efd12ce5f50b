//! The `policy-gradient` problem: REINFORCE with a softmax policy of all states and actions.
//!
//! Theta has a component for each pair of a state s and an action a, and all agents act by `pi(a|s) = softmax(theta(s, .))(a)`. Agent c
//! wants a large return in its own environment,
//!
//! ```text
//! J_c(theta)      = E sum_{t < n} gamma^t u_t,    u_t = r(s_t, a_t) - lam log pi(a_t|s_t),    s_0 ~ rho
//! gbar_c(theta)   = grad J_c(theta)
//! g_c(theta, z)   = sum_{t < n} (sum_{k >= t} gamma^k u_k) grad log pi(a_t|s_t)
//! ```
//!
//! A sample z is an episode of n = `length` steps under the policy of the agent's own iterate. Its mean is the gradient of the return of n
//! steps, which is another objective than the discounted return without an end: the difference is about `gamma^n`. Without a length the
//! operators are means of the latter, and cannot be sampled.
//!
//! **Constants.** Policies do not depend on `mean_a theta(s, a)`. Operators and samples therefore contain `-(1/S) mean_a theta(s, a)`, so that
//! the root is isolated. Iterates that start centred stay so. The losses `-J_c` have the term `(A / 2S) sum_s (mean_a theta(s, a))^2`.
//!
//! **Roots** are stationary points of the mean return, which is not concave: the one with the largest return is taken of the maxima
//! that a search finds. Without entropy the best policy is often deterministic: theta then grows without end, and there is no root. With
//! different environments the best common policy may be mixed.

use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::environment::{self, Environment, MAX_STATES};
use super::policy_gradient_root;
use super::returns::Returns;
use crate::linear::file;
use crate::memory::{self, MemoryEstimate};
use crate::td::garnet::{Garnet, Heterogeneity, Policy};
use crate::td::td0::draw_state;
use crate::{Files, ProblemSettings};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorKind, Result, require};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::arrays::Arrays;
use fedsa::problem::facts::Facts;
use fedsa::problem::objective::Objective;
use fedsa::problem::root::Root;
use fedsa::problem::{Field, Problem, Sampled, equal_weights};
use fedsa::random::Stream;
use fedsa::sampling::{Law, Sampling};

/// The `policy-gradient` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct PolicyGradient {
    /// An `.npz` file with P (n, S, A, S), R (n, S, A), gamma, and rho (S,) unless uniform; then no other environment is drawn. Agent c has
    /// environment c mod n.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Two environments of two states whose best common policy is mixed, instead of those that are drawn.
    pub fork: bool,
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
    /// Discount factor.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub gamma: f64,
    /// As in `garnet`.
    pub heterogeneity: Heterogeneity,
    /// Seed of environments.
    pub seed: u64,
    /// lam, the weight of the entropy of the policy in returns.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub entropy: f64,
    /// Steps of an episode; required unless means are used. Episodes do not end by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = MAX_LENGTH)))]
    pub length: Option<usize>,
}

fedsa::settings::setters! { PolicyGradient {
    with_path(path: impl Into<Option<String>>) = path.into();
    with_fork(fork: bool) = fork;
    with_agents(agents: usize) = agents;
    with_states(states: usize) = states;
    with_actions(actions: usize) = actions;
    with_branching(branching: usize) = branching;
    with_gamma(gamma: f64) = gamma;
    with_heterogeneity(heterogeneity: Heterogeneity) = heterogeneity;
    with_seed(seed: u64) = seed;
    with_entropy(entropy: f64) = entropy;
    with_length(length: impl Into<Option<usize>>) = length.into();
} }

/// The most steps of an episode.
const MAX_LENGTH: usize = 10_000;

impl Default for PolicyGradient {
    fn default() -> Self {
        Self {
            path: None,
            fork: false,
            agents: 10,
            states: 10,
            actions: 2,
            branching: 2,
            gamma: 0.8,
            heterogeneity: Heterogeneity::Independent,
            seed: 0,
            entropy: 0.1,
            length: None,
        }
    }
}

/// Environments with the law of the first state.
struct Given {
    kinds: Vec<Environment>,
    start: Vec<f64>,
    gamma: f64,
}

impl PolicyGradient {
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

    /// The settings that a file or `fork` replaces, at their defaults.
    fn without_environment(&self) -> Self {
        let Self { path, fork, agents, entropy, length, .. } = self.clone();
        Self { path, fork, agents, entropy, length, ..Self::default() }
    }

    fn given(&self, files: &dyn Files) -> Result<Given> {
        let named = |path: &str, e: Error| {
            if e.kind() == ErrorKind::Cancelled {
                return e;
            }
            let what = format!("{path}: {e}");
            e.saying(what).about("path")
        };
        match &self.path {
            Some(path) => files.arrays(path).and_then(|arrays| read(&arrays).map_err(|e| named(path, e))),
            None if self.fork => Ok(fork()),
            None => drawn(&self.garnet(), files.cancel()),
        }
    }
}

fn drawn(garnet: &Garnet, cancel: &Cancel) -> Result<Given> {
    let kinds = environment::draw(garnet, cancel)?;
    Ok(Given { kinds, start: equal_weights(garnet.states), gamma: garnet.gamma })
}

/// The environments of a file.
fn read(arrays: &Arrays) -> Result<Given> {
    let (kinds, gamma) = environment::read(arrays)?;
    let states = kinds[0].states;
    let start = match file::find(arrays, "rho")? {
        None => equal_weights(states),
        Some(rho) if rho.shape() == [states] => {
            file::probabilities("rho", rho)?;
            rho.data().to_vec()
        }
        Some(rho) => return Err(file::wrong_shape("rho", rho, &format!("({states},)"))),
    };
    Ok(Given { kinds, start, gamma })
}

/// State 0, and state 1, which is never left and has the reward 1. From state 0, action 0 of one environment leads to state 1; action 1 of
/// the other one does with probability 1/2. All else stays. An agent alone would take one action always, and agents together need both.
fn fork() -> Given {
    let (stay, forward) = (vec![(0, 1.0)], vec![(1, 1.0)]);
    let or_not = vec![(0, 0.5), (1, 0.5)];
    let environment = |first, second| Environment::new(2, &[first, second, forward.clone(), forward.clone()], vec![0.0, 0.0, 1.0, 1.0]);
    let kinds = vec![environment(forward.clone(), stay.clone()), environment(stay.clone(), or_not)];
    Given { kinds, start: vec![1.0, 0.0], gamma: 0.9 }
}

impl ProblemSettings for PolicyGradient {
    fn check(&self) -> Result<()> {
        require((0.0..1e300).contains(&self.entropy), "entropy", self.entropy, "at least 0")?;
        if let Some(length) = self.length {
            require((1..=MAX_LENGTH).contains(&length), "length", length, &format!("between 1 and {MAX_LENGTH}"))?;
        }
        if self.fork || self.path.is_some() {
            let agents = format!("between 1 and {}", crate::MAX_AGENTS);
            require((1..=crate::MAX_AGENTS).contains(&self.agents), "agents", self.agents, &agents)?;
            let key = if self.fork { "fork" } else { "path" };
            let is_one = !(self.fork && self.path.is_some());
            let what = "beside settings of other environments";
            let help = "with a file or fork only agents, entropy and length";
            return if is_one && *self == self.without_environment() { Ok(()) } else { Err(Error::new(key, what, help)) };
        }
        self.garnet().check()?;
        require(self.states <= MAX_STATES, "states", self.states, &format!("at most {MAX_STATES}"))?;
        crate::check_size("actions", &[self.states, self.actions, self.states, self.actions])
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.check()?;
        match sampling.kind {
            Law::Markov => {
                let what = "markov, and the samples of this problem are episodes, which do not depend on each other";
                return Err(Error::new("sampling.kind", what, "iid or mean"));
            }
            Law::Iid if self.length.is_none() => {
                return Err(Error::new(
                    "length",
                    "missing, and samples are episodes of this length",
                    "length = .., or sampling.kind = \"mean\"",
                ));
            }
            _ => {}
        }
        let Given { kinds, start, gamma } = self.given(files)?;
        let returns = Returns { kinds, start, gamma, entropy: self.entropy, length: self.length };
        Ok(Arc::new(Sampled::new(Agents { returns, weights: equal_weights(self.agents), sampling }, sampling, isa)?))
    }

    fn memory(&self, files: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.check()?;
        let (kinds, n, pairs, moves) = if self.fork || self.path.is_some() {
            let Given { kinds, .. } = self.given(files)?;
            let moves = kinds.iter().map(Environment::moves_in_all).max().unwrap_or(0);
            (kinds.len(), kinds[0].states, kinds[0].pairs(), moves)
        } else {
            let (garnet, pairs) = (self.garnet(), self.states * self.actions);
            (garnet.kinds(&garnet.plan()), self.states, pairs, pairs * self.branching)
        };
        let (kinds, n, d, moves) = (kinds as f64, n as f64, pairs as f64, moves as f64);
        let kept = kinds * (20.0 * moves + 16.0 * d + 40.0 * n) + 8.0 * self.agents as f64;
        let values = memory::vectors(self.length.unwrap_or(1) as f64, n) + 4.0 * memory::matrix(d, d);
        let text = format!("{} ({kinds} distinct), {n} states, {d} pairs", memory::agents(self.agents));
        Ok(MemoryEstimate::new((kept + threads as f64 * values, kept), text))
    }
}

/// Policy gradients of all agents.
#[derive(Debug)]
struct Agents {
    returns: Returns,
    weights: Vec<f64>,
    sampling: Sampling,
}

/// An episode.
#[derive(Default)]
struct Episode {
    /// The policy, one probability a pair.
    policy: Vec<f64>,
    /// The pairs and discounted rewards `gamma^t u_t`.
    steps: Vec<(usize, f64)>,
}

impl Agents {
    fn kind(&self, c: usize) -> usize {
        c % self.returns.kinds.len()
    }
}

impl Problem for Agents {
    type Obs = Episode;

    fn dim(&self) -> usize {
        self.returns.pairs()
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    #[inline(always)]
    fn sample(&self, c: usize, theta: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut Episode) {
        let environment = &self.returns.kinds[self.kind(c)];
        self.returns.policy(theta, &mut z.policy);
        z.steps.clear();
        let (mut state, mut discount) = (draw_state(&self.returns.start, stream) as usize, 1.0);
        for _ in 0..self.returns.length.unwrap_or(0) {
            let pairs = environment.pairs_of(state);
            let pair = pairs.start + draw_state(&z.policy[pairs], stream) as usize;
            z.steps.push((pair, discount * self.returns.reward(environment, pair, z.policy[pair])));
            discount *= self.returns.gamma;
            state = environment.draw(pair, stream);
        }
    }
    /// theta is that of the sample, whose policy is known.
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &Episode, out: &mut [f64]) {
        let environment = &self.returns.kinds[self.kind(c)];
        out.fill(0.0);
        let mut rest = 0.0;
        for (pair, reward) in z.steps.iter().rev() {
            rest += reward;
            out[*pair] += rest;
            environment.pairs_of(pair / environment.actions).for_each(|other| out[other] -= rest * z.policy[other]);
        }
        self.returns.centre(theta, out);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.returns.operator(self.kind(c), theta, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Agents {
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
    fn kind_of(&self) -> Option<Vec<u32>> {
        Some((0..self.weights.len()).map(|c| self.kind(c) as u32).collect())
    }
    fn own_root(&self, cancel: &Cancel) -> Option<std::result::Result<Root, String>> {
        let mut weights = vec![0.0; self.returns.kinds.len()];
        self.weights.iter().enumerate().for_each(|(c, p)| weights[self.kind(c)] += p);
        Some(policy_gradient_root::search(&self.returns, &weights, cancel))
    }
    /// The policy, and the steps of an episode or the values of all states.
    fn step_work(&self) -> Option<usize> {
        let (environment, pairs) = (&self.returns.kinds[0], self.returns.pairs());
        let states = environment.states;
        let of_steps = match (self.sampling.kind, self.returns.length) {
            (Law::Mean, None) => states.pow(3) + environment.moves_in_all(),
            (Law::Mean, Some(length)) => 2 * length * (environment.moves_in_all() + pairs),
            (_, length) => length.unwrap_or(0) * (20 + 2 * environment.actions + states / 2),
        };
        Some(20 * pairs + of_steps)
    }
}

/// The losses `-J_c`, with the term that centres theta. They are not convex.
impl Objective for Agents {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.returns.off_centre(theta) - self.returns.gains(self.kind(c), theta).value
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.loss_and_gradient(c, theta, out);
    }
    fn loss_and_gradient(&self, c: usize, theta: &[f64], gradient: &mut [f64]) -> f64 {
        let value = self.returns.operator(self.kind(c), theta, gradient);
        gradient.iter_mut().for_each(|g| *g = -*g);
        self.returns.off_centre(theta) - value
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        out.copy_from(faer::Scale(-1.0) * self.returns.jacobian(self.kind(c), theta));
    }
    fn is_convex(&self) -> bool {
        false
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        linalg::mat_vec(&self.returns.jacobian(self.kind(c), theta), v).iter().zip(out).for_each(|(x, out)| *out = -x);
    }
}

#[cfg(test)]
#[path = "policy_gradient_tests.rs"]
mod tests;
