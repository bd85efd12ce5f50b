//! The weights of a federation with everything needed to apply them: `weights.json`, as written by evaluations and fits.
//!
//! The server has no data. Agents state the form of their data when they apply: names of columns, classes, and the scaling of features. All
//! forms must be equal.

use fedsa::enrolment::Membership;
use fedsa::error::{Result, quoted};
use fedsa_data::linear_model::Predicts;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::quality::FitQuality;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use super::afterwards::{Afterwards, Found};
use super::levels::{self, no_form};
use super::{Deployment, Source, settings_of};
use crate::evaluate::NAMED;
use crate::fit::{self, model};
use crate::outcome::Outcome;
use crate::results::{SeedResult, paid};
use crate::run::Ran;

/// The form of logs.
#[derive(Serialize, Deserialize)]
pub(super) struct LogsForm {
    columns: Vec<String>,
}

/// The form of rows: the model with zero weights, and the map from weights of features to weights of columns.
#[derive(Serialize, Deserialize)]
pub(super) struct RowsForm {
    pub model: Json,
    /// Whether the last weight belongs to a column of ones.
    intercept: bool,
    divide_by: f64,
    /// The number of weights.
    pub dim: usize,
}

/// The form of logs with these state columns.
pub(super) fn form_of_logs(columns: &[String]) -> String {
    json!(LogsForm { columns: columns.to_vec() }).to_string()
}

/// The form of an agent's rows, for a problem with these settings.
pub(super) fn form_of_rows(prepared: &Prepared, problem: &Table) -> String {
    let outputs = prepared.train.family.outputs();
    let (intercept, divide_by) = (prepared.transform.intercept, prepared.transform.divide_by);
    let dim = outputs * prepared.train.rows.columns();
    let named = |key: &str| problem.get(key).and_then(Value::as_str).map(String::from);
    let mut model = model(prepared, &vec![0.0; dim], named("target"), named("offset"));
    model.coefficients.clear();
    if let Predicts::Classes { further, .. } = &mut model.predicts {
        further.clear();
    }
    json!(RowsForm { model: model.to_json(), intercept, divide_by, dim }).to_string()
}

/// The first column by which a form of data differs from the usual one, in words.
pub(super) fn difference_of_forms(usual: &str, own: &str) -> Option<String> {
    let names = |text: &str| -> Option<Vec<String>> {
        let form: Json = serde_json::from_str(text).ok()?;
        let names = [&form["columns"], &form["names"], &form["model"]["columns"]].into_iter().find(|names| names.is_array())?;
        serde_json::from_value(names.clone()).ok()
    };
    let (usual, own) = (names(usual)?, names(own)?);
    let at = (0..usual.len().max(own.len())).find(|i| usual.get(*i) != own.get(*i))?;
    let said = |names: &[String]| names.get(at).map_or("none".into(), |name| format!("`{}`", quoted(name)));
    Some(format!("column {} is {} in place of {}", at + 1, said(&own), said(&usual)))
}

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
            Source::Logs => json!(members.iter().map(|one| json!({ "name": one.sender, "rows": one.rows })).collect::<Vec<_>>()),
            _ => json!(members.len()),
        };
        let residual = result.rows.iter().rev().find_map(|row| row.seen.residual);
        let common = json!({
            "agents": agents,
            "method": planned.method.label,
            "outcome": if found.inference.is_some() { Outcome::Converged } else { result.outcome(&planned.run.stop) }.name(),
            "rounds": counted("round"),
            "exchanges": counted("exchanges"),
            "vectors_up": counted("vectors_up"),
            "bits_up": counted("bits_up"),
            "bits": counted("bits"),
            "residual": residual,
            "gradient_norm": found.gradient_norm.or(residual),
        });
        weights.as_object_mut().expect("an object").extend(common.as_object().cloned().expect("an object"));
        Ok(Some(weights))
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
        let (theta, auxiliary) = result.theta.split_at(map.len().min(result.theta.len()));
        let numbers = |theta: &[f64]| theta.iter().map(|x| finite(*x)).collect::<Vec<_>>();
        Ok(json!({
            "format": 1,
            "features": (map.len() <= NAMED).then(|| map.names()),
            "feature_map": map.spec(),
            "columns": map.columns(),
            "file_columns": Some(&logs.columns).filter(|columns| !columns.is_empty()),
            "ranges": map.ranges(),
            "gamma": logs.gamma,
            "lambda": logs.lambda,
            "operator": logs.operator,
            "ridge": logs.ridge,
            "theta": numbers(theta),
            "auxiliary": Some(auxiliary).filter(|u| !u.is_empty()).map(numbers),
        }))
    }

    /// The features of the agents' states, from the columns of all.
    pub(super) fn features(&self, membership: &Membership, form: &LogsForm) -> Result<(Logs, FeatureMap)> {
        let logs: Logs = settings_of(&self.experiment)?;
        // Ranges cover all agents' columns, if features need them.
        let range = |name: &String| membership.columns().iter().find(|column| column.name == *name).and_then(|column| column.range());
        let seen: Vec<(f64, f64)> = form.columns.iter().map(|name| range(name).unwrap_or_default()).collect();
        let map = FeatureMap::new(&logs.features, &form.columns, &logs.features.ranges(&form.columns, &seen, &logs.ranges)?)?;
        Ok((logs, map))
    }
}

fn finite(x: f64) -> Json {
    if x.is_finite() { json!(x) } else { json!(null) }
}
