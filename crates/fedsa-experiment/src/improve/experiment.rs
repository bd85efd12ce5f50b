//! Turns the settings of an improvement into an experiment: each setting becomes a key.

use fedsa::error::{Error, Result};
use fedsa_problems::control::pessimism::Pessimism;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::BadRows;

use super::settings::{ImproveMethod, ImproveSettings};
use crate::config::Experiment;
use crate::made::{Made, Section, count, secure_sums};

impl ImproveSettings {
    /// The experiment of the settings, without reading the logs; features that the settings do not name are those of the state itself.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn experiment(&self) -> Result<Experiment, Error> {
        self.check()?;
        let features = self.named_features()?.unwrap_or(FeatureSpec::Identity { bias: true });
        self.experiment_with(&features, self.ridge.unwrap_or(0.0), self.logs.len())
    }

    /// The experiment of the settings, with these features and this ridge.
    pub(super) fn experiment_with(&self, features: &FeatureSpec, ridge: f64, agents: usize) -> Result<Experiment, Error> {
        let kind = self.method.kind();
        let mut made = Made::new("improve", format!("A policy by {kind} from {}", count(agents, "agent")));
        made.add(self.problem(features, ridge)?);
        let mut sampling = Section::new("sampling");
        sampling.fix("kind", "mean")?;
        made.add(sampling);
        let mut method = Section::new("method[0]");
        method.put_as("method", "kind", kind)?;
        method.put_as("secure_sums", "uplink.media", self.secure_sums.map(secure_sums))?;
        made.add_method(method);
        let mut run = Section::new("run");
        run.put_as("max_rounds", "rounds", self.rounds())?;
        run.put_as("seed", "seeds[0]", self.seed)?;
        run.put_as("tol", "stop.relative_residual", (self.tol != 0.0).then_some(self.tol))?;
        if self.method == ImproveMethod::Lspi {
            run.fix("record.every", 1)?;
        }
        made.add(run);
        made.experiment(&self.changes, &self.kinds)
    }

    /// `[problem]`.
    fn problem(&self, features: &FeatureSpec, ridge: f64) -> Result<Section> {
        let mut problem = Section::new("problem");
        problem.fix("kind", "improvement")?;
        problem.put_as("logs", "path", &self.logs)?;
        problem.put("actions", &self.actions)?;
        problem.put("features", features)?;
        problem.put("ranges", (!self.ranges.is_empty()).then_some(&self.ranges))?;
        problem.put("gamma", self.gamma)?;
        problem.put("columns", (!self.columns.is_empty()).then_some(&self.columns))?;
        problem.put("agent_column", self.agent_column.as_ref())?;
        problem.put("bad_rows", (self.bad_rows != BadRows::default()).then_some(self.bad_rows))?;
        problem.put("keep_autoreset_rows", self.keep_autoreset_rows.then_some(true))?;
        problem.put("ridge", (ridge != 0.0).then_some(ridge))?;
        problem.put("pessimism", (self.pessimism != Pessimism::None).then_some(self.pessimism))?;
        problem.put("holdout", (self.holdout != 0.0).then_some(self.holdout))?;
        problem.put_as("seed", "holdout_seed", (self.holdout != 0.0).then_some(self.seed))?;
        Ok(problem)
    }
}
