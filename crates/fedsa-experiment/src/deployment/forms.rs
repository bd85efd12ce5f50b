//! The forms of agents' data, which must be equal: names of columns, classes, and the scaling of features.

use fedsa::error::quoted;
use fedsa_data::linear_model::Predicts;
use fedsa_problems::rows::preparation::Prepared;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use toml::{Table, Value};

use crate::fit::model;

/// The form of logs.
#[derive(Serialize, Deserialize)]
pub(super) struct LogsForm {
    pub columns: Vec<String>,
}

/// The form of rows: the model with zero weights, and the map from weights of features to weights of columns.
#[derive(Serialize, Deserialize)]
pub(super) struct RowsForm {
    pub model: Json,
    /// Whether the last weight belongs to a column of ones.
    pub intercept: bool,
    pub divide_by: f64,
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
