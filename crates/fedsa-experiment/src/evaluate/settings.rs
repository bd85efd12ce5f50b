//! What an evaluation is asked for, and the experiment that this comes to.

use std::collections::BTreeMap;

use fedsa::error::{Error, Result};
use fedsa::problem::features::FeatureSpec;
use fedsa::problem::log_form::{BadRows, LogForm};
use toml::{Table, Value};

use crate::choose::{Choice, TOL};
use crate::config::{Experiment, SweepPoint};
use crate::kinds::Kinds;
use crate::made::{self, Changes, Keys, count, table, takes, text, texts, whole};

/// The kind of method that accelerates another one, and the one that it accelerates here: without a bias, and without state
/// of the agents, in which acceleration brings less.
const ANDERSON: &str = "anderson";
pub const ANDERSON_BASE: &str = "fedhsa";

/// The operator by default.
const TD: &str = "td";

/// The step size and the local steps by default, for methods with local steps.
pub const STEP_SIZE: f64 = 1.0;
pub const LOCAL_STEPS: u64 = 100;

/// What is asked for. Errors name the setting at fault, or the key of the experiment that the settings come to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EvaluateSettings {
    /// Logs of transitions: files, globs, folders or names of data sets.
    pub logs: Vec<String>,
    /// The names of columns in the files, by those that logs have ([`LogForm::columns`](fedsa::problem::log_form::LogForm::columns)).
    pub columns: BTreeMap<String, String>,
    /// The column that names the agent of each row; none by default: each file is an agent.
    pub agent_column: Option<String>,
    /// What is done with rows that cannot be read: refused by default.
    pub bad_rows: BadRows,
    /// Keep rows that automatic resets of environments wrote: ends whose next state is the first state of the next episode, and rows after ends
    /// that only reset. By default they are recognised, left out and counted.
    pub keep_autoreset_rows: bool,
    /// The features of states. By default those that were logged; else the first of `fourier:3`, `fourier:2` and `fourier:1` with at most
    /// 64 features, else `polynomial:2` with at most 100, else `polynomial:1`.
    pub features: Option<FeatureSpec>,
    /// Choose features by their error on held-out episodes, among [`CANDIDATES`](super::CANDIDATES) with at most this many; none by default, and
    /// not beside `features`.
    pub choose_features: Option<usize>,
    /// The lowest and the highest value of state columns; taken from the data where they are not given.
    pub ranges: BTreeMap<String, [f64; 2]>,
    /// The discount factor; 0.99 by default.
    pub gamma: f64,
    /// The decay of eligibility traces, from 0 to 1; 0 by default.
    pub lambda: f64,
    /// The operator, by the names of experiment files: `td` by default, `gtd2` or `tdc`.
    pub operator: String,
    /// The ratio of the two steps of `gtd2` and `tdc`; 1 by default.
    pub kappa: Option<f64>,
    /// `eps I` is added to the matrix of every agent. By default relative to the features' size
    /// ([`Logs::default_ridge`](fedsa::problem::logs::Logs::default_ridge)), which is known once the logs are read.
    pub ridge: Option<f64>,
    /// The largest importance ratio, to which larger ones are clipped; none by default.
    pub clip_ratios: Option<f64>,
    /// How features are scaled, by the names of experiment files.
    pub scaling: Option<String>,
    /// The method, a kind or a preset; by default the one that reaches `tol` with the fewest bits.
    pub method: Option<String>,
    /// Whether the matrices `A_c` stay with the agents, so that `lstd` is not chosen; false by default.
    pub keep_matrices: bool,
    /// How transitions are drawn, by the names of experiment files: `mean` by default, `iid` or `markov`.
    pub sampling: String,
    /// The step size of methods with local steps; 1 by default.
    pub step_size: Option<f64>,
    /// The local steps of a round, for methods with local steps; 100 by default.
    pub local_steps: Option<u64>,
    /// The most rounds; 20000 by default.
    pub rounds: u64,
    /// The norm of the mean operator at which runs stop, as a multiple of its norm at zero weights; 0 for never. By default 1e-12, or what
    /// rounding allows.
    pub tol: Option<f64>,
    /// The seed of the run and of held-out episodes; 0 by default.
    pub seed: u64,
    /// The share of each agent's episodes that is held out; none by default.
    pub holdout: Option<f64>,
    /// The level of the intervals of the policy's value; 0.95 by default.
    pub level: f64,
    /// Logs of another policy, whose value is compared with that of the policy of `logs`; none by default.
    pub against: Vec<String>,
    /// The one or two state columns over which the value function is drawn; by default those along which it varies most.
    pub value_columns: Vec<String>,
    /// What is changed in the experiment that the settings come to.
    pub changes: Changes,
    /// The kinds of methods that there are; fedsa's own by default.
    pub kinds: Kinds,
}

impl EvaluateSettings {
    /// The defaults on these logs. Fields are public: set those that are to differ, or use the builder methods.
    pub fn new(logs: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            logs: logs.into_iter().map(Into::into).collect(),
            columns: BTreeMap::new(),
            agent_column: None,
            bad_rows: BadRows::Refuse,
            keep_autoreset_rows: false,
            features: None,
            choose_features: None,
            ranges: BTreeMap::new(),
            gamma: 0.99,
            lambda: 0.0,
            operator: TD.into(),
            kappa: None,
            ridge: None,
            clip_ratios: None,
            scaling: None,
            method: None,
            keep_matrices: false,
            sampling: "mean".into(),
            step_size: None,
            local_steps: None,
            rounds: 20_000,
            tol: None,
            seed: 0,
            holdout: None,
            level: 0.95,
            against: Vec::new(),
            value_columns: Vec::new(),
            changes: Changes::default(),
            kinds: Kinds::default(),
        }
    }
}

made::with! { EvaluateSettings:
    /// The same with columns of these names in the files.
    with_columns(columns: BTreeMap<String, String>) = columns;
    /// The same with this column of agents.
    with_agent_column(agent_column: Option<String>) = agent_column;
    /// The same that does this with rows that cannot be read.
    with_bad_rows(bad_rows: BadRows) = bad_rows;
    /// The same that keeps rows that automatic resets wrote, or not.
    with_keep_autoreset_rows(keep_autoreset_rows: bool) = keep_autoreset_rows;
    /// The same with these features.
    with_features(features: FeatureSpec) = Some(features);
    /// The same with features that are chosen, at most this many.
    with_choose_features(choose_features: usize) = Some(choose_features);
    /// The same with these ranges of state columns.
    with_ranges(ranges: BTreeMap<String, [f64; 2]>) = ranges;
    /// The same with this discount factor.
    with_gamma(gamma: f64) = gamma;
    /// The same with this decay of traces.
    with_lambda(lambda: f64) = lambda;
    /// The same with this operator.
    with_operator(operator: impl Into<String>) = operator.into();
    /// The same with this ratio of the two steps.
    with_kappa(kappa: Option<f64>) = kappa;
    /// The same with this ridge.
    with_ridge(ridge: impl Into<Option<f64>>) = ridge.into();
    /// The same with ratios of at most this.
    with_clip_ratios(clip_ratios: Option<f64>) = clip_ratios;
    /// The same with features scaled in this way.
    with_scaling(scaling: impl Into<String>) = Some(scaling.into());
    /// The same with this method.
    with_method(method: impl Into<String>) = Some(method.into());
    /// The same with matrices that stay with the agents, or not.
    with_keep_matrices(keep_matrices: bool) = keep_matrices;
    /// The same with transitions drawn in this way.
    with_sampling(sampling: impl Into<String>) = sampling.into();
    /// The same with this step size.
    with_step_size(step_size: f64) = Some(step_size);
    /// The same with this many local steps.
    with_local_steps(local_steps: u64) = Some(local_steps);
    /// The same with at most this many rounds.
    with_rounds(rounds: u64) = rounds;
    /// The same that stops at this residual.
    with_tol(tol: f64) = Some(tol);
    /// The same with this seed.
    with_seed(seed: u64) = seed;
    /// The same with this share of each agent's episodes held out.
    with_holdout(holdout: f64) = Some(holdout);
    /// The same with intervals of this level.
    with_level(level: f64) = level;
    /// The same that compares with the policy of these logs.
    with_against(against: Vec<String>) = against;
    /// The same with the value drawn over these columns.
    with_value_columns(value_columns: Vec<String>) = value_columns;
    /// The same with these changes of its experiment.
    with_changes(changes: Changes) = changes;
    /// The same that knows these kinds of methods.
    with_kinds(kinds: Kinds) = kinds;
}

/// The rounds of LSTD over a link that brings everything: the first one solves the system, and further ones solve it again. Twice the one,
/// as of methods that are chosen.
const LSTD_ROUNDS: u64 = 2;

/// Whether the first round hears all agents, over a clear link.
fn hears_all(point: &SweepPoint) -> bool {
    point.sections().method(0).is_some_and(|method| method.get("uplink").is_none() && method.get("participants").is_none())
}

/// The method that an experiment is made with.
#[derive(Clone)]
pub(super) struct Method {
    pub kind: String,
    /// Its settings, if they are not those of the evaluation.
    settings: Option<Table>,
    /// The number of rounds that suffices, where it is known.
    rounds: Option<u64>,
    /// The residual to reach, as a multiple of that at zero weights; 0 for none.
    tol: f64,
}

impl Method {
    /// The method that the settings name; one that could be chosen, before the data are known.
    pub fn before(settings: &EvaluateSettings) -> Self {
        let kind = match settings.method.as_deref() {
            Some(kind) => kind,
            // Samples are for methods that take steps.
            None if settings.sampling != "mean" => "fedhsa",
            None => "lstd",
        };
        Self { kind: kind.into(), settings: None, rounds: None, tol: settings.tol.unwrap_or(TOL) }
    }

    /// One with local steps that could be chosen.
    pub fn with_steps(settings: &EvaluateSettings) -> Self {
        Self { kind: "fedhsa".into(), ..Self::before(settings) }
    }

    /// The one that was chosen.
    pub fn chosen(choice: &Choice) -> Self {
        Self { kind: choice.kind.into(), settings: Some(choice.settings.clone()), rounds: choice.rounds(), tol: choice.tol }
    }
}

impl EvaluateSettings {
    /// H of methods with local steps.
    pub fn local_steps(&self) -> u64 {
        self.local_steps.unwrap_or(LOCAL_STEPS)
    }

    /// The step size of methods with local steps.
    pub fn step_size(&self) -> f64 {
        self.step_size.unwrap_or(STEP_SIZE)
    }

    /// How the files of logs are laid out.
    pub fn form(&self) -> LogForm {
        LogForm::default()
            .with_columns(self.columns.clone())
            .with_agent_column(self.agent_column.clone())
            .with_bad_rows(self.bad_rows)
            .with_keep_autoreset_rows(self.keep_autoreset_rows)
    }

    /// The experiment of the settings, without reading the logs. Without features in the settings, it has some that do not depend on
    /// the data.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn experiment(&self) -> Result<Experiment, Error> {
        let features = self.features.as_ref().unwrap_or(&FeatureSpec::Identity { bias: false });
        self.experiment_with(&Method::before(self), features, self.logs.len())
    }

    /// The experiment of the settings, with this method and these features.
    pub(super) fn experiment_with(&self, method: &Method, features: &FeatureSpec, agents: usize) -> Result<Experiment, Error> {
        let made = |method| made::experiment(self.table(method, features, agents)?, self.keys(method), &self.changes, &self.kinds);
        let experiment = made(method)?;
        let solves = method.kind == "lstd" && method.rounds.is_none() && experiment.points.iter().all(|point| hears_all(point));
        if solves { made(&Method { rounds: Some(LSTD_ROUNDS), ..method.clone() }) } else { Ok(experiment) }
    }

    /// The keys of the experiment, with the settings from which they come.
    fn keys(&self, method: &Method) -> Keys {
        let all = [
            ("problem.path", "logs"),
            ("problem.columns", "columns"),
            ("problem.agent_column", "agent_column"),
            ("problem.bad_rows", "bad_rows"),
            ("problem.keep_autoreset_rows", "keep_autoreset_rows"),
            ("problem.features", "features"),
            ("problem.ranges", "ranges"),
            ("problem.gamma", "gamma"),
            ("problem.lambda", "lambda"),
            ("problem.operator", "operator"),
            ("problem.kappa", "kappa"),
            ("problem.ridge", "ridge"),
            ("problem.clip_ratios", "clip_ratios"),
            ("problem.scaling", "scaling"),
            ("problem.holdout", "holdout"),
            ("problem.holdout_seed", "seed"),
            ("sampling.kind", "sampling"),
            ("method[0].kind", "method"),
            ("run.rounds", "rounds"),
            ("run.seeds[0]", "seed"),
            ("run.stop.relative_residual", "tol"),
        ];
        let steps = [
            ("method[0].step_size", "step_size"),
            ("method[0].local_steps", "local_steps"),
            ("method[0].base.step_size", "step_size"),
            ("method[0].base.local_steps", "local_steps"),
            ("method[0].talk_probability", "local_steps"),
        ];
        // A method that was chosen brings its own.
        let steps = steps.into_iter().filter(|_| method.settings.is_none());
        all.into_iter().chain(steps).map(|(key, setting)| (key.to_string(), setting)).collect()
    }

    /// `[problem]`.
    fn problem(&self, features: &FeatureSpec) -> Result<Value> {
        let bounds = |[low, high]: &[f64; 2]| Value::Array(vec![Value::Float(*low), Value::Float(*high)]);
        let ranges = self.ranges.iter().map(|(column, range)| (column.clone(), bounds(range))).collect();
        let mut problem = vec![
            ("kind", text("logs")),
            ("path", texts(&self.logs)),
            ("features", Value::try_from(features).expect("plain settings")),
            ("ranges", Value::Table(ranges)),
            ("gamma", Value::Float(self.gamma)),
            ("lambda", Value::Float(self.lambda)),
        ];
        if !self.columns.is_empty() {
            let columns = self.columns.iter().map(|(name, field)| (name.clone(), text(field))).collect();
            problem.push(("columns", Value::Table(columns)));
        }
        problem.extend(self.agent_column.as_ref().map(|column| ("agent_column", text(column))));
        if self.bad_rows == BadRows::Skip {
            problem.push(("bad_rows", text("skip")));
        }
        if self.keep_autoreset_rows {
            problem.push(("keep_autoreset_rows", Value::Boolean(true)));
        }
        if self.operator != TD {
            problem.push(("operator", text(&self.operator)));
        }
        problem.extend(self.kappa.map(|kappa| ("kappa", Value::Float(kappa))));
        problem.extend(self.ridge.filter(|ridge| *ridge != 0.0).map(|ridge| ("ridge", Value::Float(ridge))));
        problem.extend(self.clip_ratios.map(|level| ("clip_ratios", Value::Float(level))));
        problem.extend(self.scaling.as_ref().map(|scaling| ("scaling", text(scaling))));
        if let Some(share) = self.holdout {
            problem.extend([("holdout", Value::Float(share)), ("holdout_seed", whole("seed", self.seed)?)]);
        }
        Ok(table(problem))
    }

    /// `[[method]]`.
    fn method_table(&self, chosen: &Method) -> Result<Table> {
        let kind = chosen.kind.as_str();
        let mut method = chosen.settings.clone().unwrap_or_default();
        method.insert("kind".into(), text(kind));
        if chosen.settings.is_some() {
            return Ok(method);
        }
        // A method without local steps, or with one in a round, has no such keys; a value that was given is refused, but
        // where the method is to be chosen, where it is one of other methods.
        let is_given = |is_given: bool| is_given && self.method.is_some();
        let local_steps = whole("local_steps", self.local_steps())?;
        if kind == ANDERSON {
            // The settings are those of its base.
            let base = vec![("kind", text(ANDERSON_BASE)), ("step_size", Value::Float(self.step_size())), ("local_steps", local_steps)];
            method.insert("base".into(), table(base));
            return Ok(method);
        }
        if is_given(self.step_size.is_some()) || takes(&self.kinds, kind, "step_size") {
            method.insert("step_size".into(), Value::Float(self.step_size()));
        }
        if kind == "scafflsa-random" {
            method.insert("talk_probability".into(), Value::Float(1.0 / self.local_steps() as f64));
        } else if is_given(self.local_steps.is_some()) || takes(&self.kinds, kind, "local_steps") {
            method.insert("local_steps".into(), local_steps);
        }
        Ok(method)
    }

    /// The experiment as a table.
    fn table(&self, method: &Method, features: &FeatureSpec, agents: usize) -> Result<Table> {
        let kind = method.kind.as_str();
        // Few rounds are recorded, and looked at for the target, one by one.
        let rounds = method.rounds.map_or(self.rounds, |rounds| rounds.min(self.rounds));
        let mut run = vec![("rounds", whole("rounds", rounds)?), ("seeds", Value::Array(vec![whole("seed", self.seed)?]))];
        if method.tol != 0.0 {
            run.push(("stop", table(vec![("relative_residual", Value::Float(method.tol))])));
        }
        // Methods that solve or accelerate need few rounds: each is looked at for the target.
        if ["lstd", "gmres", "newton", ANDERSON].contains(&kind) {
            run.push(("record", table(vec![("every", Value::Integer(1))])));
        }
        let entries = [
            ("id", text("evaluate")),
            ("title", Value::String(format!("Policy evaluation by {kind} from {}", count(agents, "agent")))),
            ("problem", self.problem(features)?),
            ("sampling", table(vec![("kind", text(&self.sampling))])),
            ("method", Value::Array(vec![Value::Table(self.method_table(method)?)])),
            ("run", table(run)),
        ];
        Ok(entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
    }
}
