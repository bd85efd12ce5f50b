//! The weights of a federation with everything needed to apply them: `weights.json`, as written by evaluations and fits.
//!
//! The server has no data. Agents state the form of their data when they apply: names of columns, classes, and the scaling of features. All
//! forms must be equal.

use fedsa::enrolment::Membership;
use fedsa::error::{Result, quoted};
use fedsa_data::linear_model::{LinearModel, Predicts};
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::replay::Logs;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::columns::Category;
use fedsa_problems::rows::preparation::levels::RowLevels;
use fedsa_problems::rows::preparation::targets::Targets;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use super::levels::{self, no_form};
use super::{Deployment, Source, settings_of};
use crate::evaluate::NAMED;
use crate::fit::{model, predicts};
use crate::results::{SeedResult, paid};
use crate::run::Ran;

/// The form of logs.
#[derive(Serialize, Deserialize)]
struct LogsForm {
    columns: Vec<String>,
}

/// The form of rows: the model with zero weights, and the map from weights of features to weights of columns.
#[derive(Serialize, Deserialize)]
struct RowsForm {
    model: Json,
    /// Whether the last weight belongs to a column of ones.
    intercept: bool,
    divide_by: f64,
    /// The number of weights.
    dim: usize,
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
    /// `weights.json` of an ended federation, for `fedsa predict`; `None` for a generated problem.
    ///
    /// # Errors
    /// When the agents' statement is no form of such data.
    pub fn weights(&self, membership: &Membership, ran: &Ran) -> Result<Option<Json>> {
        let result = &ran.results.cells[0][0];
        let mut weights = match (self.source, membership.form()) {
            (Source::Generated, _) | (_, None) => return Ok(None),
            (Source::Logs, Some(form)) => self.of_logs(membership, serde_json::from_str(form).map_err(|_| no_form())?, result)?,
            (Source::Rows, Some(form)) if !membership.columns().is_empty() => {
                let how = levels::preparation(&self.experiment)?;
                self.of_levels(levels::levels_of(levels::form(form)?, membership.columns(), &how), &result.theta)?
            }
            (Source::Rows, Some(form)) => of_rows(serde_json::from_str(form).map_err(|_| no_form())?, &result.theta).ok_or_else(no_form)?,
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
            "outcome": result.outcome(&planned.run.stop).name(),
            "rounds": counted("round"),
            "exchanges": counted("exchanges"),
            "vectors_up": counted("vectors_up"),
            "bits_up": counted("bits_up"),
            "bits": counted("bits"),
            "residual": residual,
            "gradient_norm": residual,
        });
        weights.as_object_mut().expect("an object").extend(common.as_object().cloned().expect("an object"));
        Ok(Some(weights))
    }

    /// The model of rows with these levels of all agents.
    fn of_levels(&self, levels: RowLevels, theta: &[f64]) -> Result<Json> {
        let how = levels::preparation(&self.experiment)?;
        if levels::dim(&how, &levels)? != theta.len() {
            return Err(no_form());
        }
        let targets = how.targets.of_classes(levels.classes.as_deref())?;
        let targets = targets.unwrap_or(Targets::Numbers { offset: 0.0, scale: 1.0 });
        let outputs = targets.outputs();
        let categories = levels.features(how.intercept);
        let columns = levels.names.map(|names| names.into_iter().chain(categories.iter().flat_map(Category::features)).collect());
        let mut blocks = theta.chunks(theta.len() / outputs).map(|block| {
            let (weights, constant) = match block.split_last() {
                Some((last, rest)) if how.intercept => (rest, *last),
                _ => (block, 0.0),
            };
            (weights.iter().map(|w| w / how.divide_by).collect::<Vec<_>>(), constant)
        });
        let (coefficients, intercept) = blocks.next().ok_or_else(no_form)?;
        let predicts = predicts(&targets, how.family, blocks.collect());
        let (target, offset) = (how.wanted.target, how.special.offset);
        let model = LinearModel { columns, coefficients, intercept, predicts, target, offset, categories };
        Ok(with_theta(model.to_json(), theta))
    }

    /// The weights of a value function.
    fn of_logs(&self, membership: &Membership, form: LogsForm, result: &SeedResult) -> Result<Json> {
        let logs: Logs = settings_of(&self.experiment)?;
        // Ranges cover all agents' columns, if features need them.
        let range = |name: &String| membership.columns().iter().find(|column| column.name == *name).and_then(|column| column.range());
        let seen: Vec<(f64, f64)> = form.columns.iter().map(|name| range(name).unwrap_or_default()).collect();
        let map = FeatureMap::new(&logs.features, &form.columns, &logs.features.ranges(&form.columns, &seen, &logs.ranges)?)?;
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
}

/// The model of rows of this form; `None` if the weights do not fit it.
fn of_rows(form: RowsForm, theta: &[f64]) -> Option<Json> {
    let RowsForm { mut model, intercept, divide_by, dim } = form;
    let further = model.get("further").and_then(Json::as_array).map(Vec::len);
    let classes = model.get("classes").and_then(Json::as_array).map_or(2, Vec::len);
    let outputs = if further.is_some() { classes.checked_sub(1)? } else { 1 };
    if theta.len() != dim || outputs == 0 || dim % outputs != 0 || dim == 0 {
        return None;
    }
    let of_block = |block: &[f64]| {
        let (weights, constant) = match block.split_last() {
            Some((last, rest)) if intercept => (rest, *last),
            _ => (block, 0.0),
        };
        (weights.iter().map(|w| finite(w / divide_by)).collect::<Vec<_>>(), finite(constant))
    };
    let mut blocks = theta.chunks(dim / outputs).map(of_block);
    let (coefficients, constant) = blocks.next()?;
    let object = model.as_object_mut()?;
    object.insert("coefficients".into(), json!(coefficients));
    object.insert("intercept".into(), constant);
    if further.is_some() {
        let rest: Vec<Json> =
            blocks.map(|(coefficients, intercept)| json!({ "coefficients": coefficients, "intercept": intercept })).collect();
        object.insert("further".into(), json!(rest));
    }
    let model = with_theta(model, theta);
    // The form is a model once its weights are finite.
    let is_finite = theta.iter().all(|x| x.is_finite());
    (!is_finite || LinearModel::from_json(&model).is_ok()).then_some(model)
}

/// A model with all its weights, without its quality, which only the rows tell.
fn with_theta(mut model: Json, theta: &[f64]) -> Json {
    for key in ["train", "objective", "holdout"] {
        model[key] = Json::Null;
    }
    model["theta"] = json!(theta.iter().map(|x| finite(*x)).collect::<Vec<_>>());
    model
}

fn finite(x: f64) -> Json {
    if x.is_finite() { json!(x) } else { json!(null) }
}
