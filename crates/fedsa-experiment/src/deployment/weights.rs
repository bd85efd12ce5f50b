//! The weights of a federation with everything needed to apply them: `weights.json`, as written by evaluations and fits.
//!
//! The server has no data. Agents state the form of their data when they apply: names of columns, classes, and the scaling of features. All
//! forms must be equal.

use fedsa::enrolment::Membership;
use fedsa::error::Result;
use fedsa_problems::control::improvement::PolicyEnding;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::quality::FitQuality;
use serde_json::{Value as Json, json};

use super::afterwards::{Afterwards, Found};
use super::forms::LogsForm;
use super::levels::{self, no_form};
use super::{Deployment, Source, improvement_of, logs_of};
use crate::evaluate::NAMED;
use crate::fit::{self, model};
use crate::improve::{POLICY, ending_name};
use crate::outcome::Outcome;
use crate::results::{SeedResult, paid};
use crate::run::Ran;

impl Deployment {
    /// `weights.json` of an ended federation, for `fedsa predict`; `None` for a generated problem. `after` has the sums after the last round.
    ///
    /// # Errors
    /// When the agents' statement is no form of such data.
    pub fn weights(&self, membership: &Membership, ran: &Ran, after: Option<&Afterwards>) -> Result<Option<Json>> {
        let result = &ran.results.cells[0][0];
        let found = after.map(Afterwards::found).unwrap_or_default();
        let mut weights = match (self.source, membership.form()) {
            (Source::Generated, _) | (_, None) => return Ok(None),
            (Source::Logs, Some(form)) => self.of_logs(membership, serde_json::from_str(form).map_err(|_| no_form())?, result)?,
            (Source::Rows, Some(_)) => {
                let Some(prepared) = self.rowless(membership)? else { return Ok(None) };
                let theta = found.inference.as_ref().map_or(&result.theta, |inference| &inference.theta);
                self.of_rows(&prepared, theta, &found)?
            }
        };
        let counted = |name: &str| result.rows.last().map_or(0, |row| row.count(paid(Some(name))));
        let (planned, members) = (&ran.plan.cells[0], membership.members());
        // Files of evaluations list the agents, files of fits count them.
        let agents = match self.source {
            Source::Logs => json!(members.iter().map(|one| json!({ "name": one.sender, "transitions": one.rows })).collect::<Vec<_>>()),
            _ => json!(members.len()),
        };
        let residual = result.rows.iter().rev().find_map(|row| row.seen.residual);
        let common = json!({
            "agents": agents,
            "method": planned.method.kind,
            "rounds": counted("round"),
            "exchanges": counted("exchanges"),
            "vectors_up": counted("vectors_up"),
            "bits_up": counted("bits_up"),
            "bits": counted("bits"),
            "residual": residual,
            "gradient_norm": found.gradient_norm.or(residual),
        });
        weights.as_object_mut().expect("an object").extend(common.as_object().cloned().expect("an object"));
        let outcome = if found.inference.is_some() { Outcome::Converged } else { result.outcome(&planned.run.stop) };
        match weights["actions"].is_null() {
            true => weights["outcome"] = json!(outcome.name()),
            false => weights["ending"] = json!(ending_name(ending(outcome))),
        }
        Ok(Some(weights))
    }

    /// The name of the file of [`Deployment::weights`].
    pub fn weights_name(&self) -> &'static str {
        if improvement_of(&self.experiment).is_ok_and(|of| of.is_some()) { POLICY } else { "weights.json" }
    }

    /// The model of rows, with its quality.
    fn of_rows(&self, prepared: &Prepared, theta: &[f64], found: &Found) -> Result<Json> {
        let how = levels::preparation(&self.experiment)?;
        let quality = |quality: &Option<FitQuality>| quality.as_ref().map(fit::quality_json);
        let mut json = model(prepared, theta, how.wanted.target, how.special.offset).to_json();
        json["train"] = json!(quality(&found.train));
        json["holdout"] = json!(quality(&found.held_out));
        json["objective"] = json!(found.objective.map(finite));
        json["theta"] = json!(theta.iter().map(|x| finite(*x)).collect::<Vec<_>>());
        Ok(json)
    }

    /// The weights of a value function.
    fn of_logs(&self, membership: &Membership, form: LogsForm, result: &SeedResult) -> Result<Json> {
        let (logs, map) = self.features(membership, &form)?;
        let actions = improvement_of(&self.experiment)?.map(|of| of.actions);
        let d = map.len() * actions.as_ref().map_or(1, Vec::len);
        let (theta, auxiliary) = result.theta.split_at(d.min(result.theta.len()));
        let numbers = |theta: &[f64]| theta.iter().map(|x| finite(*x)).collect::<Vec<_>>();
        let mut weights = json!({
            "format": 1,
            "actions": actions,
            "features": (map.len() <= NAMED).then(|| map.names()),
            "feature_map": map.spec(),
            "columns": map.columns(),
            "file_columns": Some(&logs.columns).filter(|columns| !columns.is_empty()),
            "ranges": map.ranges(),
            "gamma": logs.gamma,
            "ridge": logs.ridge,
            "theta": numbers(theta),
        });
        if actions.is_none() {
            weights["lambda"] = json!(logs.lambda);
            weights["operator"] = json!(logs.operator);
            weights["auxiliary"] = json!(Some(auxiliary).filter(|u| !u.is_empty()).map(numbers));
        }
        Ok(weights)
    }

    /// The features of the agents' states, from the columns of all.
    pub(super) fn features(&self, membership: &Membership, form: &LogsForm) -> Result<(Logs, FeatureMap)> {
        let logs = logs_of(&self.experiment)?;
        // Ranges cover all agents' columns, if features need them.
        let range = |name: &String| membership.columns().iter().find(|column| column.name == *name).and_then(|column| column.range());
        let seen: Vec<(f64, f64)> = form.columns.iter().map(|name| range(name).unwrap_or_default()).collect();
        let map = FeatureMap::new(&logs.features, &form.columns, &logs.features.ranges(&form.columns, &seen, &logs.ranges)?)?;
        Ok((logs, map))
    }
}

/// How policy iteration ended, as far as the rounds of a server show: a cycle does not settle.
fn ending(outcome: Outcome) -> PolicyEnding {
    match outcome {
        Outcome::Converged => PolicyEnding::Settled,
        Outcome::Diverged { .. } => PolicyEnding::Diverged,
        _ => PolicyEnding::Unsettled,
    }
}

fn finite(x: f64) -> Json {
    if x.is_finite() { json!(x) } else { json!(null) }
}
