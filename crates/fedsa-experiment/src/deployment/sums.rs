//! The sums that an agent sends after the last round: vectors of numbers, which the server adds in the agents' order.
//!
//! Of rows, with this agent's weight p:
//!
//! ```text
//! fitted rows            rows, weights, loss, hits (rows::preparation::quality::QualitySums)
//! held-out rows          the same
//! objective              p f(theta)
//! operator               p gbar(theta), d numbers
//! inference              fedsa_evaluate::inference::sums_of_agent, with `federation.inference`
//! ```
//!
//! Of logs: the stages of the value of the policy (fedsa_evaluate::policy_value::ValueStages).

use fedsa::enrolment::{self, ColumnSummary, Sums};
use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa_data::DiskFiles;
use fedsa_evaluate::inference::{self, CovarianceKind};
use fedsa_evaluate::policy_value::{AfterStages, PolicyValueSettings, ValueStages};
use fedsa_problems::Files as _;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::rows::preparation::quality::QualitySums;
use fedsa_problems::rows::preparation::{AgentWeights, Prepared};

use super::agent::{LocalAgent, OwnRows};
use super::levels::{self, LevelsForm};
use super::{Deployment, Source, improvement_of};
use crate::config::Experiment;
use crate::made;

/// The numbers of the quality on fitted and on held-out rows.
const QUALITY: usize = 8;

impl Deployment {
    /// The sums that this federation's server asks for after the last round, in words; `None` if it asks for none: they would have no
    /// noise beside the private sums of the rounds.
    pub(super) fn sums_asked(&self) -> Option<String> {
        if self.terms.has_privacy() {
            return None;
        }
        match (self.source, self.inference()) {
            (Source::Logs, _) if improvement_of(&self.experiment).is_ok_and(|of| of.is_some()) => None,
            (Source::Rows, None) => Some("quality".into()),
            (Source::Rows, Some(covariance)) => Some(format!("quality, inference {}", covariance.name())),
            (Source::Logs, _) => Some("value of the policy".into()),
            (Source::Generated, _) => None,
        }
    }

    /// Refuses inference for losses for which it would be wrong, as a fit in one process does.
    pub(super) fn check_inference(&self) -> Result<()> {
        if self.inference().is_none() {
            return Ok(());
        }
        let refused = |key: &str, what: &str, help: &str| Err(Error::new(key, format!("{what}, beside inference"), help));
        if self.terms.has_privacy() {
            return refused(
                "federation.inference",
                "the privacy of the rounds: standard errors have no noise",
                "no `inference`, or no `privacy`",
            );
        }
        if self.source != Source::Rows {
            return refused("federation.inference", "a problem without rows", "no `inference`, or a problem of rows, such as logistic");
        }
        let (how, (_, problem)) = (levels::preparation(&self.experiment)?, made::problem_of(&self.experiment));
        let ridge = problem.get("ridge").and_then(|ridge| ridge.as_float().or(ridge.as_integer().map(|whole| whole as f64)));
        if ridge.unwrap_or(0.0) != 0.0 {
            return refused("problem.ridge", "a ridge", "`ridge = 0`, or no `inference`");
        }
        if how.weighting != AgentWeights::Rows {
            return refused("problem.weighting", "agents that count equally", "`weighting = \"rows\"`, or no `inference`");
        }
        if !how.family.has_likelihood() {
            return refused("problem.family", "a model without a likelihood", "a model with one, or no `inference`");
        }
        Ok(())
    }

    /// The stages of the value of the policy, with d features.
    pub(super) fn stages(&self, logs: &Logs, d: usize) -> ValueStages {
        let settings = PolicyValueSettings::default().with_level(self.waiting().level).with_ridge(logs.ridge).with_seed(self.seed());
        ValueStages::new(logs.rule(), settings, d)
    }

    /// The covariance of standard errors, if asked for.
    pub(super) fn inference(&self) -> Option<CovarianceKind> {
        self.waiting().inference
    }
}

/// The sums of a question for the seeds of masks, in words.
pub(super) fn seeds_of(what: &str) -> String {
    format!("seeds of {what}")
}

impl LocalAgent {
    /// The answer to a question about sums, or about the seed of their mask.
    pub(super) fn sums(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        let Some(joined) = self.joined() else {
            return Err(Error::refused_message("a question about sums before this agent was admitted", "an invitation, or an admission"));
        };
        let none = || Error::refused_message("a question about sums, which these settings do not ask for", "questions of rounds");
        let what = self.deployment().sums_asked().ok_or_else(none)?;
        let is_masked = self.deployment().terms.has_secure_sums();
        if let Some(numbers) = enrolment::asked(joined.federation(), &seeds_of(&what), bytes).ok().filter(|_| is_masked) {
            let masked = enrolment::question(joined.federation(), &what, &numbers);
            let seed = self.node()?.unmask_sums(&masked)?;
            return enrolment::answer(bytes, Sums::Seed(seed));
        }
        let theta = enrolment::asked(joined.federation(), &what, bytes)?;
        let (weight, agent, dim) = (joined.weight(), joined.number(), joined.federation().dim());
        let numbers = match self.deployment().source {
            Source::Rows if theta.len() != dim => {
                let what = format!("a question about sums at {} components", theta.len());
                return Err(Error::refused_message(what, format!("{dim} components")));
            }
            Source::Rows => self.sums_of_rows(&theta, weight)?,
            Source::Logs => self.sums_of_logs(&theta, agent)?,
            Source::Generated => {
                return Err(Error::refused_message("a question about sums, which this problem has not", "questions of rounds"));
            }
        };
        let sums = if is_masked { Sums::Masked(self.node()?.mask_sums(bytes, &numbers)?) } else { Sums::Plain(numbers) };
        enrolment::answer(bytes, sums)
    }

    /// The next stage of the value of the policy, after these sums of the stages before, one after the other.
    fn sums_of_logs(&self, before: &[f64], agent: usize) -> Result<Vec<f64>> {
        let (logs, surveyed) = self.surveyed()?;
        let map = logs.map(&surveyed).map_err(|e| e.inside("problem"))?;
        let stages = self.deployment().stages(&logs, map.len());
        let (mut rest, mut stage) = (before, Vec::new());
        while let (AfterStages::Next(n), false) = (stages.after(&stage), rest.is_empty()) {
            let Some((own, after)) = rest.split_at_checked(n) else { break };
            stage.push(own.to_vec());
            rest = after;
        }
        if !rest.is_empty() || !matches!(stages.after(&stage), AfterStages::Next(_)) {
            return Err(Error::refused_message("a question with sums of other stages", "the sums of earlier stages, one after the other"));
        }
        stages.of_agent(&surveyed, &map, agent, &stage)
    }

    fn sums_of_rows(&mut self, theta: &[f64], p: f64) -> Result<Vec<f64>> {
        let covariance = self.deployment().inference();
        let field = self.own_field()?;
        let prepared = self.prepared()?;
        let quality = |part| QualitySums::of(part, &prepared.targets, theta).numbers();
        let mut out = [quality(&prepared.train), quality(&prepared.held_out)].concat();
        out.push(p * field.facts().objective().map_or(f64::NAN, |objective| objective.loss(0, theta)));
        let mut operator = vec![0.0; theta.len()];
        field.mean(0, theta, &mut operator);
        out.extend(operator.iter().map(|g| p * g));
        if let Some(covariance) = covariance {
            out.extend(inference::sums_of_agent(prepared, theta, covariance));
        }
        Ok(out)
    }
}

impl OwnRows {
    /// The prepared rows, with what these columns of all agents tell.
    pub(super) fn prepared(self, experiment: &Experiment, files: &DiskFiles, columns: Option<&[ColumnSummary]>) -> Result<Prepared> {
        let how = levels::of_all(levels::preparation(experiment)?, LevelsForm::of(&self.levels), columns);
        how.prepare_sets(self.sets, files.cancel())
    }
}

/// The sum of the vectors of all agents, read.
#[derive(Debug, Clone, Copy)]
pub(super) struct SumsOfRows<'a> {
    pub train: QualitySums,
    pub held_out: QualitySums,
    pub objective: f64,
    pub gradient_norm: f64,
    pub inference: &'a [f64],
}

/// The number of numbers of a vector of sums of rows, beside inference, for d components.
pub(super) fn numbers_of_rows(d: usize) -> usize {
    QUALITY + 1 + d
}

impl<'a> SumsOfRows<'a> {
    /// The sums of a vector of [`numbers_of_rows`] and those of inference.
    pub fn read(numbers: &'a [f64], d: usize) -> Self {
        let four = |at: usize| QualitySums::of_numbers([numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]]);
        let (operator, inference) = numbers[QUALITY + 1..].split_at(d);
        let gradient_norm = linalg::norm_sq(operator).sqrt();
        Self { train: four(0), held_out: four(4), objective: numbers[QUALITY], gradient_norm, inference }
    }
}
