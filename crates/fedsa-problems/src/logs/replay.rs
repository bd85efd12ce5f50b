//! Logged transitions `(s, r, s', done)`, replayed in order (Markov) or drawn at random (i.i.d.).
//!
//! With mean sampling, logs are read in batches and only their mean operators are kept; tile codings with many tiles are sparse. If
//! features are linearly dependent, the root is the solution of least norm.
//!
//! An agent need not visit every feature: its own system may be singular if the pooled one is regular, unless `require_regular_agents`
//! refuses it.
//!
//! The root is the solution of least-squares temporal differences, LSTD(lambda), on the pooled data ([`mod@crate::td::traces`]). With
//! `operator = "gtd2"` or `"tdc"` the iterate is (theta, u), and the root minimises the projected Bellman error
//! ([`crate::td::gradient_td`]).
//!
//! States are clipped to the features' ranges. I.i.d. sampling draws with replacement. Markov sampling replays a log in order, and starts
//! again at its end. `p_c = N_c / sum N_c`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::features::{FeatureMap, FeatureSpec, MAX_FEATURES, Ranges, SPARSE_ABOVE};
use crate::kernel::td::Transition;
use crate::linear::ridge::Ridge;
use crate::logs::autoreset::without_resets;
use crate::logs::by_policy::by_policy;
use crate::logs::log::Log;
use crate::logs::log_form::{BadRows, LogForm};
use crate::logs::log_means::{LogMeans, Means};
use crate::logs::source::whole;
use crate::logs::sparse::SparseTd;
use crate::logs::survey::{LogFacts, Surveyed};
use crate::memory::{self, MemoryEstimate, Moves, TableSizes, check_transitions};
use crate::noise::{self, Noise};
use crate::td::gradient_samples::{GradientTd, WeightedTransitions};
use crate::td::gradient_td::{GradientFacts, GradientMeans, GradientRule, TdOperator};
use crate::td::td0::{Features, Td, Trajectory, Transitions};
use crate::td::traces::{self, Traces};
use crate::{Files, ProblemSettings};
use fedsa::error::{Error, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::privacy::unit::{PrivacyUnit, UnitClip};
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Field, Problem, field};
use fedsa::sampling::{Law, Sampling};
use fedsa::settings::choice;

pub use crate::logs::log_means::TraceRule;

/// The `logs` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Logs {
    /// Files, globs, folders or data sets; one agent per file.
    pub path: Sources,
    /// Feature map.
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
    /// Decay of eligibility traces; 0 is TD(0).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub lambda: f64,
    /// TD, GTD2 or TDC.
    #[serde(default, skip_serializing_if = "is_default")]
    pub operator: TdOperator,
    /// Step ratio of u to theta; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1e-12, max = 1e12)))]
    pub kappa: Option<f64>,
    /// Adds `ridge I` to every `A_c`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub ridge: f64,
    /// Shortens the part of each transition or episode in the sums of A and b, for privacy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<UnitClip>,
    /// Scaling of features.
    #[serde(default, skip_serializing_if = "is_default")]
    pub scaling: Scaling,
    /// Use logged importance ratios.
    #[serde(default = "yes")]
    pub ratios: bool,
    /// A `policy.json` to evaluate by logs with `action` and `behaviour`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Clips importance ratios to this value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub max_importance_ratio: Option<f64>,
    /// Refuse singular agents.
    #[serde(default)]
    pub require_regular_agents: bool,
    /// Held-out share of episodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub holdout: f64,
    /// Seed of the held-out episodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holdout_seed: u64,
    /// Additive noise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

fedsa::settings::setters! { Logs {
    with_path(path: Sources) = path;
    with_features(features: FeatureSpec) = features;
    with_ranges(ranges: Ranges) = ranges;
    with_columns(columns: BTreeMap<String, String>) = columns;
    with_agent_column(agent_column: impl Into<Option<String>>) = agent_column.into();
    with_bad_rows(bad_rows: BadRows) = bad_rows;
    with_keep_autoreset_rows(keep_autoreset_rows: bool) = keep_autoreset_rows;
    with_gamma(gamma: f64) = gamma;
    with_lambda(lambda: f64) = lambda;
    with_operator(operator: TdOperator) = operator;
    with_kappa(kappa: impl Into<Option<f64>>) = kappa.into();
    with_ridge(ridge: f64) = ridge;
    with_clip(clip: impl Into<Option<UnitClip>>) = clip.into();
    with_scaling(scaling: Scaling) = scaling;
    with_ratios(ratios: bool) = ratios;
    with_policy(policy: impl Into<Option<String>>) = policy.into();
    with_max_importance_ratio(max_importance_ratio: impl Into<Option<f64>>) = max_importance_ratio.into();
    with_require_regular_agents(require_regular_agents: bool) = require_regular_agents;
    with_holdout(holdout: f64) = holdout;
    with_holdout_seed(holdout_seed: u64) = holdout_seed;
    with_noise(noise: impl Into<Option<Noise>>) = noise.into();
} }

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

fn is_default<T: Default + PartialEq>(x: &T) -> bool {
    *x == T::default()
}

fn yes() -> bool {
    true
}

/// How features are scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Scaling {
    /// No scaling.
    #[default]
    None,
    /// Equal mean squares over all agents' transitions, with sum 1. This changes step sizes and condition numbers, but no values, if
    /// features are linearly independent and there is no ridge.
    EqualSquares,
}

/// One source or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Sources {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

choice!(Sources, "a path, a glob or the name of a data set in quotes, or a list of them",
    text String => |path| Ok(Sources::One(path)),
    list Vec<String> => |paths| Ok(Sources::Many(paths)),
);

impl Sources {
    /// The sources as a list.
    pub fn list(&self) -> Vec<String> {
        match self {
            Sources::One(path) => vec![path.clone()],
            Sources::Many(paths) => paths.clone(),
        }
    }
}

impl Logs {
    /// TD(0) on all transitions of these logs, with default settings.
    pub fn new(path: Sources, features: FeatureSpec, gamma: f64) -> Self {
        Self {
            clip: None,
            path,
            features,
            ranges: Ranges::new(),
            columns: BTreeMap::new(),
            agent_column: None,
            bad_rows: BadRows::Refuse,
            keep_autoreset_rows: false,
            gamma,
            lambda: 0.0,
            operator: TdOperator::Td,
            kappa: None,
            ridge: 0.0,
            scaling: Scaling::None,
            ratios: true,
            policy: None,
            max_importance_ratio: None,
            require_regular_agents: false,
            holdout: 0.0,
            holdout_seed: 0,
            noise: None,
        }
    }

    /// Opens the logs and reads them once ([`Surveyed`]).
    ///
    /// # Errors
    /// When a log cannot be read or used, gamma or lambda is not in [0, 1], gamma is 1 and an episode does not terminate, the ridge is
    /// negative, or all importance ratios are 0.
    pub fn survey(&self, files: &dyn Files) -> Result<Surveyed> {
        self.survey_in(files, &self.form())
    }

    /// [`Logs::survey`] of files of another layout.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn survey_in(&self, files: &dyn Files, form: &LogForm) -> Result<Surveyed> {
        self.check()?;
        let policy = self.policy.as_ref().map(|path| files.policy(path)).transpose()?;
        let form = &form.clone().with_actions(policy.as_ref().map(|policy| policy.actions()).or(form.actions));
        let sources = without_resets(files.logs(&self.path.list(), form)?, self.keep_autoreset_rows);
        let sources = match &policy {
            Some(policy) => by_policy(sources, policy)?,
            None => sources,
        };
        let logs = Surveyed::new(sources, self.holdout, self.holdout_seed)?;
        if self.gamma == 1.0 {
            logs.check_all_end()?;
        }
        // All samples would vanish, and every method would converge where it starts.
        if self.ratios && logs.facts.iter().all(|log| log.mean_ratio == Some(0.0)) {
            let what = "all importance ratios are 0: the policy that is evaluated never takes the actions of these logs";
            return Err(Error::data("path", what, "logs of a policy that takes the actions of the one that is evaluated"));
        }
        let logs = match self.max_importance_ratio {
            None => logs,
            Some(level) if !self.ratios => {
                let what = format!("{level}, and importance ratios are not used");
                return Err(Error::new("max_importance_ratio", what, "ratios = true"));
            }
            Some(level) => logs.with_clipped_ratios(level)?,
        };
        // Rows out of order have no traces.
        let is_shuffled = |log: &&LogFacts| log.transitions > 1 && log.cut_off == log.transitions - 1;
        if self.lambda > 0.0
            && let Some(log) = logs.facts.iter().find(is_shuffled)
        {
            let what = format!("{}, and no state of {} is the next state of the row before", self.lambda, quoted(&log.name));
            return Err(Error::data("lambda", what, "0, or rows in the order of time; with a column `episode` states need not be equal"));
        }
        Ok(logs)
    }

    /// The layout of the files.
    pub fn form(&self) -> LogForm {
        LogForm::from(self.features.inputs())
            .with_columns(self.columns.clone())
            .with_agent_column(self.agent_column.clone())
            .with_bad_rows(self.bad_rows)
            .with_keep_autoreset_rows(self.keep_autoreset_rows)
    }

    /// The feature map on these logs. It reads them once more if features are scaled.
    ///
    /// # Errors
    /// When a range is invalid, or there are too many features.
    pub fn map(&self, logs: &Surveyed) -> Result<FeatureMap> {
        let map = logs.map(&self.features, &self.ranges)?;
        let map = match self.scaling {
            Scaling::None => map,
            Scaling::EqualSquares => {
                dense_or_refused(&map, "their scales differ")?;
                let scale = logs.equal_squares(&map)?;
                map.with_scale(scale)?
            }
        };
        if map.sparse().is_some() && self.lambda > 0.0 {
            dense_or_refused(&map, "traces are not sparse")?;
        }
        if self.operator.has_auxiliary() && 2 * map.len() > MAX_FEATURES {
            let spec = quoted(map.spec().to_string());
            let what = format!("{} of {spec}, and gtd2 and tdc have dense systems of twice as many numbers", map.len());
            return Err(Error::new("features", what, format!("at most {} features there", MAX_FEATURES / 2)));
        }
        Ok(map)
    }

    /// The number of active features of a state, if this map has sparse systems before scaling.
    fn sparse(&self, map: &FeatureMap) -> Option<usize> {
        let is_plain = self.lambda == 0.0 && self.scaling == Scaling::None && !self.operator.has_auxiliary();
        map.sparse().filter(|_| is_plain).map(|(m, _)| m)
    }

    /// The operator with its settings; refuses settings that do not fit it.
    fn gradient_rule(&self) -> Result<GradientRule> {
        let rule = GradientRule::of(self.operator, self.kappa, self.ridge)?;
        if self.operator.has_auxiliary() && self.lambda > 0.0 {
            return Err(Error::new(
                "operator",
                format!("gtd2 or tdc with lambda = {}", self.lambda),
                "td as the operator, or `lambda` = 0",
            ));
        }
        Ok(rule)
    }

    /// The field of GTD2 or TDC.
    fn gradient_field(&self, logs: &Surveyed, map: &FeatureMap, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let (rule, weights, singular) = (self.gradient_rule()?, logs.weights(), !self.require_regular_agents);
        let means = Means::of_all(&logs.sources, map, self.rule())?;
        let agents = (0..means.len() as u32).collect();
        if sampling.kind == Law::Mean {
            let facts = GradientFacts::new(rule, &means, None, agents, weights);
            return noise::field(GradientMeans::new(facts), self.noise.as_ref(), sampling, isa, singular);
        }
        let kinds = parallel::try_map(logs.sources.len(), |c| {
            let log = whole(&*logs.sources[c])?;
            check_transitions("path", log.len() as f64)?;
            let ratio = log.ratio.clone().filter(|_| self.ratios).unwrap_or_default();
            Ok::<_, Error>(WeightedTransitions { transitions: transitions(&log, map, self.gamma), ratio })
        })?;
        let first = GradientTd::weighted_grams(&kinds);
        let problem = GradientTd::new(rule, kinds, &means, first.as_deref(), agents, weights, sampling)?;
        noise::field(problem, self.noise.as_ref(), sampling, isa, singular)
    }

    /// The LSTD solution of all agents' transitions, d numbers; if not unique, the solution of least norm.
    ///
    /// # Errors
    /// When a log cannot be read, or sums overflow.
    pub fn pooled_solution(&self, logs: &Surveyed, map: &FeatureMap) -> Result<Vec<f64>> {
        let kinds: Vec<System> = Means::of_all(&logs.sources, map, self.rule())?.into_iter().map(|means| means.system).collect();
        let kind_of = (0..kinds.len() as u32).collect();
        Ok(Systems::new(kinds, kind_of, logs.weights()).with_ridge(self.ridge).least_root().theta)
    }

    /// The number of model components for states with these columns, with values `seen` in these ranges.
    ///
    /// # Errors
    /// As [`FeatureSpec::ranges`] and [`FeatureMap::new`].
    pub fn dim_of(&self, columns: &[String], seen: &[(f64, f64)]) -> Result<usize> {
        let ranges = self.features.ranges(columns, seen, &self.ranges)?;
        Ok(self.operator.dim(FeatureMap::new(&self.features, columns, &ranges)?.len()))
    }

    /// Checks how units are shortened.
    fn check_units(&self) -> Result<()> {
        let Some(UnitClip { unit, norm }) = self.clip else { return Ok(()) };
        require(norm > 0.0 && norm.is_finite(), "clip.norm", norm, "a positive norm")?;
        require(unit != PrivacyUnit::Agent, "clip.unit", unit.name(), "row or episode")?;
        // A trace has features of earlier rows.
        let is_possible = !(self.operator.has_auxiliary() || unit == PrivacyUnit::Row && self.lambda > 0.0);
        require(is_possible, "clip.unit", unit.name(), "episode with traces (`lambda`), and the operator td")?;
        let is_public = self.scaling == Scaling::None && self.ridge == 0.0 && !self.features.needs_statistics();
        let what = "scaling, ridge or features that depend on all rows or add to their parts";
        if is_public {
            Ok(())
        } else {
            Err(Error::new("clip", what, "scaling = \"none\", ridge = 0, and features without statistics of the data"))
        }
    }

    /// Refuses ranges from the data where units are shortened: a row would change the features of all others.
    fn check_ranges(&self, logs: &Surveyed) -> Result<()> {
        let needs = self.features.needs(logs.columns())?;
        let open = logs.columns().iter().zip(needs).find(|(name, needs)| needs.range && !self.ranges.contains_key(*name));
        match open.filter(|_| self.clip.is_some()) {
            Some((name, _)) => {
                Err(Error::new("ranges", format!("no range of `{name}`, beside `clip`"), "a range that does not come from the data"))
            }
            None => Ok(()),
        }
    }

    /// The update rule of traces.
    pub fn rule(&self) -> TraceRule {
        TraceRule { gamma: self.gamma, lambda: self.lambda, ratios: self.ratios, clip: self.clip }
    }
}

/// Refuses more features than dense systems may have.
fn dense_or_refused(map: &FeatureMap, why: &str) -> Result<()> {
    if map.len() <= MAX_FEATURES {
        return Ok(());
    }
    let what = format!("{} of {}, and {why}", map.len(), quoted(map.spec().to_string()));
    Err(Error::new("features", what, format!("at most {MAX_FEATURES} features there")))
}

/// One agent's transitions as rows of features: `phi(s_i)`, then `phi(s'_i)`.
pub fn transitions(log: &Log, map: &FeatureMap, gamma: f64) -> Transitions {
    let (n, d) = (log.len(), map.len());
    let mut values = vec![0.0; 2 * n * d];
    let (phi, next) = values.split_at_mut(n * d);
    for i in 0..n {
        map.eval(log.state(i), &mut phi[i * d..(i + 1) * d]);
        map.eval(log.next_state(i), &mut next[i * d..(i + 1) * d]);
    }
    let features = Arc::new(Features::new(d, &values));
    let next = |i: usize| if log.done[i] { features.zero() } else { (n + i) as u32 };
    let transitions = (0..n).map(|i| Transition { phi: i as u32, next: next(i), reward: log.rewards[i] }).collect();
    Transitions { gamma, transitions, mass: Vec::new(), chain: Trajectory::Replay, features }
}

impl ProblemSettings for Logs {
    fn check(&self) -> Result<()> {
        crate::noise::check(self.noise.as_ref())?;
        require((0.0..=1.0).contains(&self.gamma), "gamma", self.gamma, "in [0, 1]")?;
        self.form().check()?;
        require((0.0..=1.0).contains(&self.lambda), "lambda", self.lambda, "in [0, 1]")?;
        require(self.ridge >= 0.0 && self.ridge.is_finite(), "ridge", self.ridge, "a finite number of at least 0")?;
        let accepted = "a share of the episodes above 0 and below 1, or 0 for none";
        require((0.0..1.0).contains(&self.holdout), "holdout", self.holdout, accepted)?;
        self.max_importance_ratio.map_or(Ok(()), crate::logs::survey::check_clip)?;
        self.check_units()?;
        self.gradient_rule().map(|_| ())
    }

    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["path"]
    }

    fn without_effect(&self, sampling: &Sampling) -> Option<Error> {
        self.noise.as_ref()?.without_effect(sampling)
    }

    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        traces::check_sampling(self.lambda, sampling)?;
        let logs = self.survey(files)?;
        self.check_ranges(&logs)?;
        let map = self.map(&logs)?;
        if self.operator.has_auxiliary() {
            return self.gradient_field(&logs, &map, sampling, isa);
        }
        if self.clip.is_some() && (sampling.kind != Law::Mean || self.sparse(&map).is_some()) {
            let help = format!("the sampling mean, with at most {SPARSE_ABOVE} features");
            return Err(Error::new("clip", "units that are shortened in sums, which samples and sparse features do not form", help));
        }
        let (rule, weights, singular) = (self.rule(), logs.weights(), !self.require_regular_agents);
        if self.sparse(&map).is_some() {
            if self.require_regular_agents {
                let help = format!("false, or at most {SPARSE_ABOVE} tiles");
                return Err(Error::new("require_regular_agents", "true, and sparse systems are not factorised", help));
            }
            if self.noise.is_some() {
                let help = format!("no noise, or at most {SPARSE_ABOVE} tiles");
                return Err(Error::new("noise", "noise that would change all components in every step, and systems are sparse", help));
            }
            return field(SparseTd::new(&logs.sources, &map, weights, rule, self.ridge, sampling)?, sampling, isa, true);
        }
        if sampling.kind == Law::Mean {
            let means = Means::of_all(&logs.sources, &map, rule)?;
            return noise::field(
                LogMeans::new(means, weights, self.ridge).with_clip(self.clip, logs.facts.iter().map(|of| of.transitions as u64)),
                self.noise.as_ref(),
                sampling,
                isa,
                singular,
            );
        }
        let logs = parallel::try_map(logs.sources.len(), |c| whole(&*logs.sources[c]))?;
        for log in &logs {
            check_transitions("path", log.len() as f64)?;
        }
        let kinds: Vec<Transitions> = parallel::map(logs.len(), |c| transitions(&logs[c], &map, self.gamma));
        let means = parallel::try_map_shared(logs.len(), |c| Means::of(&logs[c], &map, rule, logs.len()))?;
        if logs.iter().any(|log| traces::are_needed(log, rule)) {
            return self.joined(Traces::new(kinds, &logs, &means, weights, rule, sampling)?, sampling, isa, singular);
        }
        let of = |c: usize, _: &Transitions| (means[c].system.clone(), means[c].gram.clone());
        let td = Td::with_means(kinds, (0..logs.len() as u32).collect(), weights, sampling, of)?;
        self.joined(td.with_least_norm(), sampling, isa, singular)
    }
    fn memory(&self, files: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        traces::check_sampling(self.lambda, sampling)?;
        let logs = self.survey(files)?;
        let map = logs.map(&self.features, &self.ranges)?;
        let (k, d, agents) = (map.columns().len() as f64, map.len() as f64, logs.facts.len() as f64);
        let most = logs.facts.iter().map(|log| log.transitions).max().unwrap_or(0) as f64;
        let total = logs.transitions() as f64;
        let with_ratios = logs.facts.iter().filter(|log| log.effective_size.is_some());
        let ratios: f64 = with_ratios.map(|log| 8.0 * log.transitions as f64).sum();
        let text = format!(
            "{}, {} transitions, d = {} features of {} state columns",
            memory::agents(logs.facts.len()),
            total,
            map.len(),
            map.columns().len()
        );
        let source = total * (16.0 * k + 17.0) + ratios;
        // Held-out episodes are kept while the problem is built; gathering them takes a copy.
        let held = logs.held.iter().map(|log| (16.0 * k + 33.0) * log.len() as f64).sum::<f64>();
        let n = self.operator.dim(map.len()) as f64;
        let noisy = |sizes| noise::with_noise(sizes, self.noise.as_ref(), logs.facts.len(), n as usize);
        let with_held = |sizes| {
            let (peak, kept) = noisy(sizes);
            (peak + 2.0 * held, kept)
        };
        if let Some(m) = self.sparse(&map) {
            // Two 32-bit indices, and two 64-bit values.
            let each = if map.is_mixed() { 24.0 } else { 8.0 };
            let sizes = memory::sparse(agents, d, m as f64, each, most, total, sampling, source, threads);
            return Ok(MemoryEstimate::new(with_held(sizes), text));
        }
        if sampling.kind == Law::Mean {
            // gtd2 and tdc build their systems from the means of TD.
            let (peak, kept) = memory::log_means(agents, n, threads);
            let sizes = if self.operator.has_auxiliary() { (peak + memory::log_means(agents, d, threads).0, kept) } else { (peak, kept) };
            return Ok(MemoryEstimate::new(with_held(sizes), text));
        }
        // A copy of the ratios, and the starts of traces.
        let traces = if self.ratios { ratios } else { 0.0 } + if self.lambda > 0.0 { total } else { 0.0 };
        let sizes = TableSizes {
            agents,
            kinds: agents,
            d,
            rows: 2.0 * total / agents,
            shared: false,
            transitions: total,
            most,
            chain: Moves::Replay,
            // Features before the layout, and a copy of the transitions.
            making: 16.0 * most * d + 16.0 * most,
            source,
            solved: self.require_regular_agents,
        };
        let (peak, kept) = sizes.memory(sampling, threads);
        let own = if self.operator.has_auxiliary() { memory::log_means(agents, n, threads).0 } else { 0.0 };
        Ok(MemoryEstimate::new(with_held((peak + traces + own, kept + traces + own)), text))
    }
}

impl Logs {
    /// The field of a problem, with the ridge and the noise, if any.
    fn joined<P: Problem>(&self, problem: P, sampling: Sampling, isa: Isa, singular: bool) -> Result<Arc<dyn Field>> {
        if self.ridge > 0.0 {
            return noise::field(Ridge::new(problem, self.ridge), self.noise.as_ref(), sampling, isa, singular);
        }
        noise::field(problem, self.noise.as_ref(), sampling, isa, singular)
    }
}
