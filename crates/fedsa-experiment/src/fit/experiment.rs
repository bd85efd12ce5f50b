//! Turns the settings of a fit into an experiment: each setting becomes a key.

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::rows::preparation::AgentWeights;
use fedsa_problems::rows::preparation::partition::Partition;
use toml::{Table, Value};

use super::settings::{AGENTS, AUTO, FitSettings, LOCAL_STEPS, Model};
use crate::choose::LossChoice;
use crate::config::Experiment;
use crate::made::{Made, Section, has_no_such_setting, secure_sums, takes, text};
use crate::numbers;

/// The counts by which methods are compared.
const COSTS: [&str; 4] = ["exchanges", "vectors_up", "bits_up", "hessians"];

impl FitSettings {
    /// The experiment of the settings, without reading the data.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn experiment(&self) -> Result<Experiment, Error> {
        self.check_model()?;
        self.check_choice()?;
        if self.inference.is_some() {
            self.check_inference(self.ridge.unwrap_or(0.0), self.weighting == AgentWeights::Rows)?;
            self.check_clusters()?;
        }
        self.experiment_by(None)
    }

    /// The experiment with this choice for [`AUTO`].
    ///
    /// # Errors
    /// As [`FitSettings::experiment`].
    pub(super) fn experiment_by(&self, choice: Option<&LossChoice>) -> Result<Experiment, Error> {
        self.made(choice)?.experiment(&self.changes, &self.kinds)
    }

    /// The experiment as a table, with the setting that each key comes from.
    fn made(&self, choice: Option<&LossChoice>) -> Result<Made> {
        let named = self.named()?;
        if let Some(rows) = self.batch
            && let Some(kind) = named.iter().find(|kind| self.needs_all_rows(kind))
        {
            let what = format!("{rows}, and {} uses all rows of an agent in every round", quoted(kind));
            return Err(Error::new("batch", what, "no `batch`, or methods that draw rows, such as fedlsa"));
        }
        let mut made = Made::new("fit", format!("{} by {}", self.model.name(), named.join(", ")));
        made.add(self.problem()?);
        let mut sampling = Section::new("sampling");
        sampling.put_as("sampling", "kind", &self.sampling)?;
        sampling.put("batch", self.batch)?;
        made.add(sampling);
        for (i, kind) in named.iter().enumerate() {
            let setting = if i == 0 && (self.method.is_some() || self.compare.is_empty()) { "method" } else { "compare" };
            let mut method = self.method_of(i, kind, setting, named.len() == 1, choice)?;
            method.put_as("secure_sums", "uplink.media", self.secure_sums.map(secure_sums))?;
            made.add_method(method);
        }
        let mut run = Section::new("run");
        run.put_as("max_rounds", "rounds", self.max_rounds)?;
        run.put_as("seed", "seeds[0]", self.seed)?;
        run.fix("record.every", 1)?;
        run.put_as("tol", "stop.residual", (self.tol != 0.0).then_some(self.tol))?;
        made.add(run);
        let mut figure = Section::new("figure");
        figure.fix("x", COSTS)?;
        figure.fix("y", "residual")?;
        figure.fix("columns", 2)?;
        made.add(figure);
        Ok(made)
    }

    /// `[problem]`.
    fn problem(&self) -> Result<Section> {
        let mut problem = Section::new("problem");
        problem.put_as("model", "kind", if self.is_plain() { self.model.name() } else { "glm" })?;
        problem.put_as("model", "family", (!self.is_plain()).then(|| self.model.family()))?;
        problem.put("data", &self.data)?;
        problem.put("ridge", self.mu())?;
        problem.put("partition", self.dealing())?;
        problem.put("group", self.group.as_ref())?;
        problem.put("seed", self.seed)?;
        // With these partitions, files or groups determine the number of agents.
        let decides = matches!(self.dealing(), Partition::Files | Partition::ByColumn);
        problem.put("agents", self.agents.or((!decides).then_some(AGENTS)))?;
        problem.put("target", self.target.as_ref())?;
        problem.put("positive", self.positive.as_deref().map(class))?;
        problem.put("reference", self.reference.as_deref().map(class))?;
        problem.put("dispersion", self.dispersion)?;
        problem.put("huber_delta", self.huber_delta)?;
        problem.put("offset", self.offset.as_ref())?;
        problem.put("row_weights", self.row_weights.as_ref())?;
        problem.put("drop", (!self.drop.is_empty()).then_some(&self.drop))?;
        problem.put("categorical", (!self.categorical.is_empty()).then_some(&self.categorical))?;
        problem.put("divide_by", self.divide_by)?;
        problem.put("standardise", self.standardise.then_some(true))?;
        problem.put("intercept", self.has_intercept(false).then_some(true))?;
        problem.put("penalise_intercept", self.penalise_intercept.then_some(true))?;
        problem.put_as("pca", "pca.dim", self.pca)?;
        problem.put("weighting", self.weighting)?;
        problem.put("holdout", self.holdout)?;
        Ok(problem)
    }

    /// `[[method]]` of one kind. In a comparison, the step size applies to methods without a default step size, and the number of local
    /// steps to methods with local steps.
    ///
    /// # Errors
    /// When the only method lacks a given setting.
    fn method_of(&self, i: usize, kind: &str, setting: &'static str, is_alone: bool, choice: Option<&LossChoice>) -> Result<Section> {
        let mut method = Section::new(format!("method[{i}]"));
        if kind == AUTO {
            self.auto_method(&mut method, setting, is_alone, choice)?;
            return Ok(method);
        }
        method.put_as(setting, "kind", kind)?;
        method.fix("label", kind)?;
        if let Some(step_size) = self.step_size {
            let may_have = takes(&self.kinds, kind, "step_size");
            if is_alone && !may_have {
                return Err(has_no_such_setting(kind, "step_size", numbers::typed(step_size)));
            }
            method.put("step_size", (may_have && (is_alone || !self.needs_all_rows(kind))).then_some(step_size))?;
        }
        let makes_steps = takes(&self.kinds, kind, "local_steps");
        if let Some(steps) = self.local_steps.filter(|_| is_alone && !makes_steps) {
            return Err(has_no_such_setting(kind, "local_steps", steps));
        }
        method.put("local_steps", makes_steps.then_some(self.local_steps.unwrap_or(LOCAL_STEPS)))?;
        Ok(method)
    }

    /// `[[method]]` of the choice. Before the data are read it is a method that may be chosen.
    fn auto_method(&self, method: &mut Section, setting: &'static str, is_alone: bool, choice: Option<&LossChoice>) -> Result<()> {
        let given = [("step_size", self.step_size.map(numbers::typed)), ("local_steps", self.local_steps.map(|steps| steps.to_string()))];
        if let (true, Some((setting, Some(given)))) = (is_alone, given.into_iter().find(|(_, given)| given.is_some())) {
            let what = format!("{given}, and the methods that {AUTO} chooses have no such setting");
            return Err(Error::new(setting, what, format!("no `{setting}`, or a method with local steps, such as fedlsa")));
        }
        // Costs over links are not compared; the unread choice needs sums only.
        let (kind, settings): (_, Table) = match choice.filter(|_| self.secure_sums.is_none()) {
            Some(choice) => (choice.kind, choice.settings.clone()),
            None => LossChoice::unread(self.tol, self.model == Model::LeastSquares),
        };
        method.put_as(setting, "kind", kind)?;
        method.fix("label", AUTO)?;
        settings.into_iter().try_for_each(|(key, value)| method.fix(&key, value))
    }
}

/// A class, as a number if its text is one.
fn class(text_of: &str) -> Value {
    text_of.parse::<f64>().ok().filter(|x| x.is_finite()).map_or_else(|| text(text_of), Value::Float)
}
