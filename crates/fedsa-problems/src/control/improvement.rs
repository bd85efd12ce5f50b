//! Better policies from logged transitions with actions, `(s, a, r, s')`.
//!
//! `psi(s, a)` has the features of the state in the block of the action, so that `q(s, a) = psi(s, a)^T theta` with d = K m weights of K actions
//! and m features. For agent c, over its rows:
//!
//! ```text
//! gbar_c(theta) = mean psi (r + gamma max_a q(s', a) - q(s, a)) - EPS theta = b_c - (G_c + EPS I - gamma C_c(theta)) theta
//! G_c = mean psi psi^T,   b_c = mean psi r,   C_c(theta) = mean psi psi(s', a')^T over rows that did not end their episodes
//! ```
//!
//! with the greedy action a' of theta in s' ([`greedy`](super::greedy::greedy): ties go to the lowest action). The operator is continuous, and
//! linear for a fixed policy. A root is a fixed point of least-squares policy iteration (LSPI) and of fitted Q-iteration. It need not
//! exist, and there may be several: the field's root is the one at which LSPI settles from the values of the policy that acted.
//!
//! The features of all rows are in memory. Operators are means over all rows: the sampling must be `mean`.
//!
//! Sources: Lagoudakis and Parr (2003); Ernst, Geurts and Wehenkel (2005).

use std::collections::BTreeMap;
use std::sync::Arc;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::action_log::{self, ActionLog, add_ridge};
use super::pessimism::{Caution, Coverage, Pessimism};
use crate::features::{FeatureMap, FeatureSpec, MAX_FEATURES, Ranges};
use crate::logs::log_form::{BadRows, LogForm};
use crate::logs::replay::{Logs, Scaling, Sources};
use crate::logs::survey::Surveyed;
use crate::memory::{self, MemoryEstimate};
use crate::rows::preparation::AgentWeights;
use crate::{Files, ProblemSettings};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::policy_systems::PolicySystems;
use fedsa::problem::root::{Root, RootSource};
use fedsa::problem::systems::System;
use fedsa::problem::{Facts, Field, Problem, equal_weights, field};
use fedsa::random::Stream;
use fedsa::sampling::{Law, Sampling};

/// The `improvement` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Improvement {
    /// Files, globs, folders or data sets; one agent per file.
    pub path: Sources,
    /// Names of the actions; the logs number them from 0.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub actions: Vec<String>,
    /// Feature map of states.
    #[serde(deserialize_with = "fedsa::registry::table")]
    pub features: FeatureSpec,
    /// Ranges that clip states, `{ s_0 = [low, high] }`; from the data by default.
    #[serde(default, skip_serializing_if = "Ranges::is_empty")]
    pub ranges: Ranges,
    /// Names in the files, such as `{ reward = "r" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// Column of agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_column: Option<String>,
    /// Treatment of unreadable rows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub bad_rows: BadRows,
    /// Keep rows of automatic resets.
    #[serde(default, skip_serializing_if = "is_default")]
    pub keep_autoreset_rows: bool,
    /// Discount factor; 1 only if all episodes end.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub gamma: f64,
    /// Adds `ridge I` to every `G_c`.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub ridge: f64,
    /// Lowers the values of actions that few rows are behind: none, lcb:KAPPA or support:ROWS.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pessimism: Pessimism,
    /// Scaling of features.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scaling: Scaling,
    /// Weights of the agents.
    #[serde(default, skip_serializing_if = "is_default")]
    pub weighting: AgentWeights,
    /// Held-out share of episodes.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub holdout: f64,
    /// Seed of the held-out episodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holdout_seed: u64,
}

fedsa::settings::setters! { Improvement {
    with_path(path: Sources) = path;
    with_actions(actions: Vec<String>) = actions;
    with_features(features: FeatureSpec) = features;
    with_ranges(ranges: Ranges) = ranges;
    with_columns(columns: BTreeMap<String, String>) = columns;
    with_agent_column(agent_column: impl Into<Option<String>>) = agent_column.into();
    with_bad_rows(bad_rows: BadRows) = bad_rows;
    with_keep_autoreset_rows(keep_autoreset_rows: bool) = keep_autoreset_rows;
    with_gamma(gamma: f64) = gamma;
    with_ridge(ridge: f64) = ridge;
    with_pessimism(pessimism: Pessimism) = pessimism;
    with_scaling(scaling: Scaling) = scaling;
    with_weighting(weighting: AgentWeights) = weighting;
    with_holdout(holdout: f64) = holdout;
    with_holdout_seed(holdout_seed: u64) = holdout_seed;
} }

fn is_default<T: Default + PartialEq>(x: &T) -> bool {
    *x == T::default()
}

impl Improvement {
    /// All transitions of these logs with these actions, with default settings.
    pub fn new(path: Sources, actions: Vec<String>, features: FeatureSpec, gamma: f64) -> Self {
        Self {
            path,
            actions,
            features,
            ranges: Ranges::new(),
            columns: BTreeMap::new(),
            agent_column: None,
            bad_rows: BadRows::Refuse,
            keep_autoreset_rows: false,
            gamma,
            ridge: 0.0,
            pessimism: Pessimism::None,
            scaling: Scaling::None,
            weighting: AgentWeights::Rows,
            holdout: 0.0,
            holdout_seed: 0,
        }
    }

    /// The settings of the same logs without their actions.
    pub fn logs(&self) -> Logs {
        Logs::new(self.path.clone(), self.features.clone(), self.gamma)
            .with_ranges(self.ranges.clone())
            .with_columns(self.columns.clone())
            .with_agent_column(self.agent_column.clone())
            .with_bad_rows(self.bad_rows)
            .with_keep_autoreset_rows(self.keep_autoreset_rows)
            .with_ridge(self.ridge)
            .with_scaling(self.scaling)
            .with_ratios(false)
            .with_holdout(self.holdout)
            .with_holdout_seed(self.holdout_seed)
    }

    /// The layout of the files.
    pub fn form(&self) -> LogForm {
        self.logs().form().with_actions(Some(self.actions.len()))
    }

    /// Opens the logs and reads them once ([`Surveyed`]).
    ///
    /// # Errors
    /// When a log cannot be read or used, a setting is out of range, or gamma is 1 and an episode does not terminate.
    pub fn survey(&self, files: &dyn Files) -> Result<Surveyed> {
        self.check()?;
        self.logs().survey_in(files, &self.form())
    }

    /// The feature map of states on these logs. It reads them once more if features are scaled.
    ///
    /// # Errors
    /// When a range is invalid, or there are too many features of all actions.
    pub fn map(&self, logs: &Surveyed) -> Result<FeatureMap> {
        let map = self.logs().map(logs)?;
        self.check_features(&map)?;
        Ok(map)
    }

    fn check_features(&self, map: &FeatureMap) -> Result<()> {
        let (m, spec) = (map.len(), quoted(map.spec().to_string()));
        let what = format!("{m} features of {spec} for each of {} actions", self.actions.len());
        let help = format!("at most {MAX_FEATURES} in all: systems of pairs of a state and an action are dense");
        require(m.saturating_mul(self.actions.len()) <= MAX_FEATURES, "features", what, &help)
    }

    /// The agents' rows, with the features of their states.
    ///
    /// # Errors
    /// When a log cannot be read, or its sums overflow.
    pub fn agents(&self, logs: &Surveyed, map: &FeatureMap) -> Result<Improving> {
        let n = logs.sources.len();
        let read = |c: usize| {
            let log = ActionLog::read(&*logs.sources[c], map, self.actions.len(), logs.facts[c].transitions, n)?;
            let fit = log.fit();
            if !(fit.a.norm_l1().is_finite() && fit.b.iter().all(|x| x.is_finite())) {
                let what = format!("{}: products of its features and rewards overflow", quoted(&logs.facts[c].name));
                return Err(Error::data("path", what, "smaller numbers"));
            }
            Ok((log, fit))
        };
        let (agents, fits): (Vec<ActionLog>, Vec<System>) = parallel::try_map_shared(n, read)?.into_iter().unzip();
        let weights = match self.weighting {
            AgentWeights::Rows => logs.weights(),
            AgentWeights::Equal => equal_weights(n),
        };
        let d = agents[0].dim();
        let mut gram = Mat::zeros(d, d);
        fits.iter().zip(&weights).for_each(|(fit, p)| gram += faer::Scale(*p) * &fit.a);
        let (agents, fits) = (Arc::new(agents), Arc::new(fits));
        let mut improving = Improving { agents, fits, weights, gamma: self.gamma, ridge: self.ridge, gram, caution: None };
        improving.set_ridge(self.ridge, self.pessimism)?;
        Ok(improving)
    }

    /// The problem of these rows.
    ///
    /// # Errors
    /// When the sampling is not `mean`.
    pub fn field_of(&self, improving: Improving, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        require_mean(sampling)?;
        field(improving, sampling, isa, true)
    }

    /// The memory of the problem on these logs.
    ///
    /// # Errors
    /// When there are too many features of all actions.
    pub fn memory_of(&self, logs: &Surveyed, map: &FeatureMap, threads: usize) -> Result<MemoryEstimate> {
        self.check_features(map)?;
        let (agents, m) = (logs.facts.len() as f64, map.len() as f64);
        let d = m * self.actions.len() as f64;
        // Rows share the state between them, unless their episode is cut off there.
        let bytes = |rows: f64, cut: f64| 8.0 * m * (rows + cut) + 24.0 * rows;
        let total = logs.transitions() as f64;
        let rows = bytes(total, logs.facts.iter().map(|log| log.cut_off as f64).sum());
        let kept = rows + (agents + 1.0) * memory::matrix(d, d);
        // Each thread sums one agent's rows, sorted by their actions.
        let most = logs.facts.iter().map(|log| log.transitions).max().unwrap_or(0) as f64;
        let at_work = (threads as f64).min(agents).max(1.0);
        let k = map.columns().len() as f64;
        let held: f64 = logs.held.iter().map(|log| (16.0 * k + 37.0) * log.len() as f64).sum();
        let peak = kept + at_work * (24.0 * most + 3.0 * memory::matrix(m, 256.0) + memory::matrix(d, d)) + 2.0 * held;
        let text = format!("{}, {total} transitions, {} actions, d = {d}", memory::agents(logs.facts.len()), self.actions.len());
        Ok(MemoryEstimate::new((peak, kept), text))
    }
}

fn require_mean(sampling: Sampling) -> Result<()> {
    require(sampling.kind == Law::Mean, "sampling.kind", "iid or markov, and policies are improved with means over all rows", "mean")
}

impl ProblemSettings for Improvement {
    fn check(&self) -> Result<()> {
        let (k, help) = (self.actions.len(), format!("a name for each action, between 1 and {MAX_ACTIONS}"));
        let are_named = (1..=MAX_ACTIONS).contains(&k) && self.actions.iter().all(|name| !name.is_empty());
        require(are_named, "actions", format!("{k} names, or one without letters"), &help)?;
        let twice = self.actions.iter().enumerate().find(|(i, name)| self.actions[..*i].contains(name));
        require(twice.is_none(), "actions", twice.map_or(String::new(), |(_, name)| format!("{} twice", quoted(name))), &help)?;
        self.logs().check()
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        require_mean(sampling)?;
        let logs = self.survey(files)?;
        let map = self.map(&logs)?;
        self.field_of(self.agents(&logs, &map)?, sampling, isa)
    }

    fn memory(&self, files: &dyn Files, _: Sampling, threads: usize) -> Result<MemoryEstimate> {
        let logs = self.survey(files)?;
        self.memory_of(&logs, &logs.map(&self.features, &self.ranges)?, threads)
    }
}

/// Agents that improve a policy from their logged rows. Clones share the rows.
#[derive(Debug, Clone)]
pub struct Improving {
    agents: Arc<Vec<ActionLog>>,
    /// `G_c` without the ridge, and `b_c`.
    fits: Arc<Vec<System>>,
    weights: Vec<f64>,
    gamma: f64,
    ridge: f64,
    /// `sum_c p_c G_c`, without the ridge.
    gram: Mat<f64>,
    caution: Option<Caution>,
}

/// The most actions.
const MAX_ACTIONS: usize = 1000;
/// `|q|` of more than this many times the largest return means that values diverge.
const BEYOND: f64 = 10.0;
/// The most solves of policy iteration for the root.
const SOLVES: usize = 200;

impl Improving {
    /// [`action_log::check_taken`] of the agents' rows.
    ///
    /// # Errors
    /// As there.
    pub fn check_actions(&self, names: &[String]) -> Result<()> {
        action_log::check_taken(&self.agents, names)
    }

    /// The agents' rows.
    pub fn logs(&self) -> &[ActionLog] {
        &self.agents
    }

    /// The mean system of all agents under the policy of theta.
    pub fn mean_system(&self, theta: &[f64]) -> System {
        self.mean_of(|c| self.system(c, theta))
    }

    /// The mean system of the policies that acted.
    pub fn mean_behaviour(&self) -> System {
        self.mean_of(|c| self.behaviour_of(c))
    }

    fn behaviour_of(&self, c: usize) -> System {
        self.agents[c].behaviour(self.gamma, self.ridge)
    }

    fn mean_of(&self, of: impl Fn(usize) -> System) -> System {
        let d = self.dim();
        let (mut a, mut b) = (Mat::zeros(d, d), vec![0.0; d]);
        for (c, p) in self.weights.iter().enumerate() {
            let system = of(c);
            a += faer::Scale(*p) * &system.a;
            linalg::add_scaled(&mut b, *p, &system.b);
        }
        System { a, b }
    }

    /// The largest `|q|` in logged states that values of a policy can have: 10 times the largest absolute reward, divided by 1 - gamma.
    pub fn largest_plausible_value(&self) -> f64 {
        BEYOND * self.agents.iter().map(ActionLog::largest_reward).fold(0.0, f64::max) / (1.0 - self.gamma)
    }

    /// Whether `|q|` in a logged state is beyond [`Improving::largest_plausible_value`], or not finite.
    pub fn is_diverged(&self, theta: &[f64]) -> bool {
        let most = self.largest_plausible_value();
        self.agents.iter().map(|agent| agent.largest_value(theta)).any(|value| value.is_nan() || value > most)
    }

    /// The spectral radius of `gamma (G + EPS I)^-1 C(theta)`, with the means of all agents: a sweep of fitted Q-iteration multiplies errors by
    /// about this number if the policy stays that of theta.
    ///
    /// # Errors
    /// When G + EPS I is singular.
    pub fn radius(&self, theta: &[f64]) -> Result<f64> {
        let g = self.with_ridge();
        let next = &g - &self.mean_system(theta).a;
        linalg::spectral_radius(&linalg::solve_columns(&g, &next)?)
    }
}

/// How many rounds ago policy iteration had the last of these iterates: 1 if it has settled, more if it goes round in a cycle. The iterates are
/// solutions of systems that depend on a policy alone, and repeat bit for bit with it.
pub fn period(iterates: &[Vec<f64>]) -> Option<usize> {
    let (last, before) = iterates.split_last()?;
    let is_same = |other: &Vec<f64>| other.iter().zip(last).all(|(x, y)| x.to_bits() == y.to_bits());
    before.iter().rev().position(is_same).map(|i| i + 1)
}

impl Problem for Improving {
    type Obs = ();

    fn dim(&self) -> usize {
        self.agents[0].dim()
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, _: &mut ()) {}
    fn apply(&self, c: usize, theta: &[f64], (): &(), out: &mut [f64]) {
        self.agents[c].operator(self.gamma, self.ridge, theta, out);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.agents[c].operator(self.gamma, self.ridge, theta, out);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl PolicySystems for Improving {
    fn system(&self, c: usize, theta: &[f64]) -> System {
        let mut system = self.fits[c].clone();
        self.agents[c].add_next(-self.gamma, theta, &mut system.a);
        self.agents[c].lower_targets(self.gamma, theta, &mut system.b);
        add_ridge(&mut system.a, self.ridge);
        system
    }
    fn behaviour(&self, c: usize) -> Option<System> {
        Some(self.behaviour_of(c))
    }
    fn gram(&self, c: usize, _: &[f64]) -> Mat<f64> {
        let mut gram = self.fits[c].a.clone();
        add_ridge(&mut gram, self.ridge);
        gram
    }
    fn operator(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.agents[c].operator(self.gamma, self.ridge, theta, out);
    }
}

impl Facts for Improving {
    fn policy_systems(&self) -> Option<&dyn PolicySystems> {
        Some(self)
    }
    /// That of a fixed policy: the greedy action changes only where two actions have equal values.
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        out.copy_from(faer::Scale(-1.0) * &self.system(c, theta).a);
        true
    }
    fn own_root(&self, cancel: &Cancel) -> Option<std::result::Result<Root, String>> {
        Some(self.settled(cancel))
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        Some(&self.gram)
    }
    /// The values of all actions in each next state, and of the action in each state.
    fn step_work(&self) -> Option<usize> {
        let rows = self.agents.iter().map(ActionLog::len).sum::<usize>().div_ceil(self.agents.len());
        Some(rows * (self.dim() + self.agents[0].features()))
    }
}

/// How policy iteration ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyEnding {
    /// The policy no longer changes.
    Settled,
    /// It goes round among so many policies.
    Cycle(usize),
    /// It changes until the last solve.
    Unsettled,
    /// Values are beyond what rewards allow, or not finite.
    Diverged,
}

/// The end of policy iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyEnd {
    /// How it ended.
    pub ending: PolicyEnding,
    /// The weights of the last policy, or of all policies of a cycle; d numbers each.
    pub policies: Vec<Vec<f64>>,
}

impl Improving {
    /// Policy iteration on the mean of all agents' systems: from weights, or from the values of the policy that acted, with at most so many
    /// solves.
    pub fn policy_end(&self, start: Option<&[f64]>, solves: usize, cancel: &Cancel) -> PolicyEnd {
        let solve = |System { a, b }: System| linalg::solve_or_least(&a, &b);
        let mut iterates = vec![start.map_or_else(|| solve(self.mean_behaviour()), <[f64]>::to_vec)];
        let last = |mut iterates: Vec<Vec<f64>>, ending| PolicyEnd { ending, policies: iterates.split_off(iterates.len() - 1) };
        while iterates.len() <= solves && !cancel.is_cancelled() {
            let next = solve(self.mean_system(&iterates[iterates.len() - 1]));
            if next.iter().any(|x| !x.is_finite()) {
                return last(iterates, PolicyEnding::Diverged);
            }
            iterates.push(next);
            match period(&iterates) {
                None => continue,
                Some(1) => {
                    let diverges = self.is_diverged(&iterates[iterates.len() - 1]);
                    return last(iterates, if diverges { PolicyEnding::Diverged } else { PolicyEnding::Settled });
                }
                Some(n) => return PolicyEnd { ending: PolicyEnding::Cycle(n), policies: iterates.split_off(iterates.len() - n) },
            }
        }
        last(iterates, PolicyEnding::Unsettled)
    }

    /// The root at which policy iteration settles from the values of the policy that acted.
    ///
    /// # Errors
    /// Why there is none.
    fn settled(&self, cancel: &Cancel) -> std::result::Result<Root, String> {
        let mut end = self.policy_end(None, SOLVES, cancel);
        let from = "policy iteration from the logged policy's values";
        match end.ending {
            PolicyEnding::Settled => {
                let theta = end.policies.swap_remove(0);
                let eigenvalues = linalg::eigenvalues(&self.mean_system(&theta).a);
                let is_stable = eigenvalues.is_ok_and(|all| all.iter().all(|(re, _)| *re > 0.0));
                Ok(Root { theta, source: RootSource::Searched { starts: 1, found: 1, stable: u32::from(is_stable) } })
            }
            PolicyEnding::Cycle(n) => Err(format!("{from} goes round in a cycle of {n} policies")),
            PolicyEnding::Diverged => Err(format!("{from} leads beyond what rewards allow")),
            PolicyEnding::Unsettled => Err(format!("{from} does not settle within {SOLVES} solves")),
        }
    }

    /// Replaces the ridge, and what lowers the values of rare actions.
    ///
    /// # Errors
    /// When the fit does not tell how many rows are behind a pair, or its residuals have no standard deviation.
    pub fn set_ridge(&mut self, ridge: f64, pessimism: Pessimism) -> Result<()> {
        self.ridge = ridge;
        self.caution = match pessimism {
            Pessimism::None => None,
            Pessimism::Support(_) => Some(Caution { rule: pessimism, sigma: 0.0, coverage: self.coverage()? }),
            Pessimism::LowerBound(_) => Some(Caution { rule: pessimism, sigma: self.residual_deviation()?, coverage: self.coverage()? }),
        };
        let caution = self.caution.as_ref();
        Arc::make_mut(&mut self.agents).iter_mut().for_each(|agent| agent.set_caution(caution));
        Ok(())
    }

    /// What lowers the values of rare actions.
    pub fn caution(&self) -> Option<&Caution> {
        self.caution.as_ref()
    }

    /// The standard deviation of the temporal differences of the policy that acted, at its fitted values: of n rows, n - d are free.
    fn residual_deviation(&self) -> Result<f64> {
        let System { a, b } = self.mean_behaviour();
        let theta = linalg::solve_or_least(&a, &b);
        let of_agents = self.agents.iter().map(|agent| agent.residuals(self.gamma, &theta));
        let (sum, n) = of_agents.fold((0.0, 0), |(sum, n), (more, rows)| (sum + more, n + rows));
        let what = || format!("lcb, {n} rows with a known next action and {} weights", self.dim());
        if n <= self.dim() {
            return Err(Error::data("pessimism", what(), "more such rows than weights, for a standard deviation"));
        }
        Ok((sum / (n - self.dim()) as f64).sqrt())
    }

    /// The mean square of a component of psi.
    pub fn mean_square(&self) -> f64 {
        (0..self.dim()).map(|i| self.gram[(i, i)]).sum::<f64>() / self.dim() as f64
    }

    /// The degrees of freedom of the fit, `tr G (G + EPS I)^-1`.
    ///
    /// # Errors
    /// When they are not finite.
    pub fn degrees_of_freedom(&self) -> Result<f64> {
        let degrees = linalg::least_norm(&self.with_ridge(), &self.gram).x;
        let sum: f64 = (0..self.dim()).map(|i| degrees[(i, i)]).sum();
        require(sum.is_finite(), "ridge", self.ridge, "one with which G is regular")?;
        Ok(sum)
    }

    /// `G + EPS I`, d x d.
    fn with_ridge(&self) -> Mat<f64> {
        let mut g = self.gram.clone();
        add_ridge(&mut g, self.ridge);
        g
    }

    /// The rows of all agents behind pairs of a state and an action. G has a block of m x m numbers for each action.
    ///
    /// A ridge adds as much to h as `n EPS / |psi|^2` rows. In large logs this would hide that nobody took an action. So a ridge counts as at
    /// most a tenth of a row.
    ///
    /// # Errors
    /// When it is not finite.
    pub fn coverage(&self) -> Result<Coverage> {
        let (m, n) = (self.agents[0].features(), self.agents.iter().map(ActionLog::len).sum::<usize>() as f64);
        let mean_square = self.mean_square();
        // The mean of |psi|^2 is d times that of a component. Pairs in directions without rows have none behind them, without a ridge too.
        let ridge = self.ridge.min(0.1 * self.dim() as f64 * mean_square / n) + 1e-12 * mean_square;
        let of = |at: usize| {
            let mut g = faer::Scale(n) * self.gram.submatrix(at, at, m, m);
            add_ridge(&mut g, n * ridge);
            let inverse = linalg::least_norm(&g, &Mat::identity(m, m)).x;
            require(inverse.is_all_finite(), "ridge", self.ridge, "one with which G is regular")?;
            Ok(inverse)
        };
        (0..self.dim()).step_by(m).map(of).collect::<Result<_>>().map(Coverage)
    }

    /// The mean over the first states of all episodes of `q(s, a)` with the choice a of theta: the value of the policy as the fit has it, which
    /// is too good. NaN without the start of an episode.
    pub fn start_value(&self, theta: &[f64]) -> f64 {
        let (sum, count) = self.agents.iter().map(|agent| agent.start_values(theta)).fold((0.0, 0), |(x, n), (y, m)| (x + y, n + m));
        sum / count as f64
    }

    /// For each agent, the share of its logged states in which fewer than `least` rows are behind the action that the policy of theta chooses.
    pub fn rare_pairs(&self, coverage: &Coverage, theta: &[f64], least: f64) -> Vec<f64> {
        self.agents.iter().map(|agent| agent.rare_share(coverage, theta, least)).collect()
    }
}

#[cfg(test)]
#[path = "improvement_tests.rs"]
mod tests;
