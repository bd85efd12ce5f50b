//! Turns the settings of an evaluation into an experiment: each setting becomes a key.

use fedsa::error::{Error, Result};
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::BadRows;
use fedsa_problems::logs::replay::Scaling;
use fedsa_problems::td::gradient_td::TdOperator;
use toml::Table;

use super::settings::EvaluateSettings;
use crate::choose::{Choice, TOL};
use crate::config::{Experiment, SweepPoint};
use crate::made::{Made, Section, count, has_no_such_setting, secure_sums, takes};

/// The kind of method that accelerates another one, and the method that it accelerates here: a method without bias whose agents have no
/// state, because state reduces the gain.
const ANDERSON: &str = "anderson";
pub const ANDERSON_BASE: &str = "fedhsa";

/// The rounds of LSTD if the first round hears all agents ([`hears_all`]): twice the one round that suffices, as for a chosen method
/// ([`Choice::rounds`]).
const LSTD_ROUNDS: u64 = 2;

/// Whether the first round hears all agents, over a link that does not change messages.
fn hears_all(point: &SweepPoint) -> bool {
    point.sections().method(0).is_some_and(|method| method.get("uplink").is_none() && method.get("participants").is_none())
}

/// The method of an experiment.
#[derive(Clone)]
pub(super) struct Method {
    pub kind: String,
    /// Its settings, if they differ from the evaluation's.
    settings: Option<Table>,
    /// The number of rounds that suffices, if it is known.
    rounds: Option<u64>,
    /// The residual to reach, as a multiple of the residual at zero weights; 0 for none.
    tol: f64,
}

impl Method {
    /// The method that the settings name. Without one, a method that could be chosen, because the data are unknown.
    pub fn before(settings: &EvaluateSettings) -> Self {
        let kind = match settings.named_method() {
            Some(kind) => kind,
            // Only methods that take steps use samples.
            None if settings.sampling != "mean" => "fedhsa",
            None => "lstd",
        };
        Self { kind: kind.into(), settings: None, rounds: None, tol: settings.tol.unwrap_or(TOL) }
    }

    /// A method with local steps that could be chosen.
    pub fn with_steps(settings: &EvaluateSettings) -> Self {
        Self { kind: "fedhsa".into(), ..Self::before(settings) }
    }

    /// The method that was chosen.
    pub fn chosen(choice: &Choice) -> Self {
        Self { kind: choice.kind.into(), settings: Some(choice.settings.clone()), rounds: choice.rounds(), tol: choice.tol }
    }
}

impl EvaluateSettings {
    /// The experiment of the settings, without reading the logs. Without features in the settings, its features do not depend on the data.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn experiment(&self) -> Result<Experiment, Error> {
        self.check()?;
        let features = self.named_features()?.unwrap_or(FeatureSpec::Identity { bias: false });
        self.experiment_with(&Method::before(self), &features, self.logs.len())
    }

    /// The experiment of the settings, with this method and these features.
    pub(super) fn experiment_with(&self, method: &Method, features: &FeatureSpec, agents: usize) -> Result<Experiment, Error> {
        let made = |method| self.made(method, features, agents)?.experiment(&self.changes, &self.kinds);
        let experiment = made(method)?;
        let solves = method.kind == "lstd" && method.rounds.is_none() && experiment.points.iter().all(|point| hears_all(point));
        if solves { made(&Method { rounds: Some(LSTD_ROUNDS), ..method.clone() }) } else { Ok(experiment) }
    }

    /// The experiment as a table, with the setting that each key comes from.
    fn made(&self, method: &Method, features: &FeatureSpec, agents: usize) -> Result<Made> {
        let kind = method.kind.as_str();
        let mut made = Made::new("evaluate", format!("Policy evaluation by {kind} from {}", count(agents, "agent")));
        made.add(self.problem(features)?);
        let mut sampling = Section::new("sampling");
        sampling.put_as("sampling", "kind", &self.sampling)?;
        made.add(sampling);
        made.add_method(self.method_section(method)?);
        let mut run = Section::new("run");
        run.put_as("max_rounds", "rounds", method.rounds.map_or(self.max_rounds, |rounds| rounds.min(self.max_rounds)))?;
        run.put_as("seed", "seeds[0]", self.seed)?;
        run.put_as("tol", "stop.relative_residual", (method.tol != 0.0).then_some(method.tol))?;
        // Methods that solve or accelerate need few rounds; the target is then checked in every round.
        if ["lstd", "gmres", "newton", ANDERSON].contains(&kind) {
            run.fix("record.every", 1)?;
        }
        made.add(run);
        Ok(made)
    }

    /// `[problem]`.
    fn problem(&self, features: &FeatureSpec) -> Result<Section> {
        let mut problem = Section::new("problem");
        problem.fix("kind", "logs")?;
        problem.put_as("logs", "path", &self.logs)?;
        problem.put("features", features)?;
        problem.put("ranges", (!self.ranges.is_empty()).then_some(&self.ranges))?;
        problem.put("gamma", self.gamma)?;
        problem.put("lambda", self.lambda)?;
        problem.put("columns", (!self.columns.is_empty()).then_some(&self.columns))?;
        problem.put("agent_column", self.agent_column.as_ref())?;
        problem.put("bad_rows", (self.bad_rows != BadRows::default()).then_some(self.bad_rows))?;
        problem.put("keep_autoreset_rows", self.keep_autoreset_rows.then_some(true))?;
        problem.put("operator", (self.operator != TdOperator::default()).then_some(self.operator))?;
        problem.put("kappa", self.kappa)?;
        problem.put("ridge", self.ridge.filter(|ridge| *ridge != 0.0))?;
        problem.put("policy", self.policy.as_ref())?;
        problem.put("max_importance_ratio", self.max_importance_ratio)?;
        problem.put("scaling", (self.scaling != Scaling::default()).then_some(self.scaling))?;
        problem.put("holdout", self.holdout)?;
        problem.put_as("seed", "holdout_seed", self.holdout.map(|_| self.seed))?;
        Ok(problem)
    }

    /// `[[method]]`.
    fn method_section(&self, chosen: &Method) -> Result<Section> {
        let kind = chosen.kind.as_str();
        let mut method = Section::new("method[0]");
        method.put_as("method", "kind", kind)?;
        method.put_as("secure_sums", "uplink.media", self.secure_sums.map(secure_sums))?;
        if let Some(settings) = &chosen.settings {
            settings.iter().try_for_each(|(key, value)| method.fix(key, value))?;
            return Ok(method);
        }
        if kind == ANDERSON {
            // The settings are for the base method.
            method.fix("base.kind", ANDERSON_BASE)?;
            method.put_as("step_size", "base.step_size", self.step_size())?;
            method.put_as("local_steps", "base.local_steps", self.local_steps())?;
            return Ok(method);
        }
        // Methods without local steps, or with one per round, lack these keys. Settings of them are then errors, unless the method is to be
        // chosen: they may be for other candidates.
        let is_named = self.named_method().is_some();
        if takes(&self.kinds, kind, "step_size") {
            method.put("step_size", self.step_size())?;
        } else if let (true, Some(given)) = (is_named, self.step_size) {
            return Err(has_no_such_setting(kind, "step_size", given));
        }
        if kind == "scafflsa-random" {
            method.put_as("local_steps", "talk_probability", 1.0 / self.local_steps() as f64)?;
        } else if takes(&self.kinds, kind, "local_steps") {
            method.put("local_steps", self.local_steps())?;
        } else if let (true, Some(given)) = (is_named, self.local_steps) {
            return Err(has_no_such_setting(kind, "local_steps", given));
        }
        Ok(method)
    }
}
