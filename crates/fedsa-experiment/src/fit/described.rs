//! The description of a model in `summary.json`, for lists, comparisons and reports.

use fedsa::error::quoted;
use fedsa_data::linear_model::{LinearModel, Predicts};
use fedsa_evaluate::inference::Inference;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::columns::{Category, ColumnLevels};
use fedsa_problems::rows::preparation::targets::Targets;
use serde_json::{Value as Json, json};

/// The largest number of coefficients in the list.
const MAX_LISTED: usize = 1000;

/// `fit` of `summary.json`; `rows` are the numbers of fitted and of held-out rows.
pub(crate) fn json(prepared: &Prepared, rows: [usize; 2], model: &LinearModel, inference: Option<&Inference>) -> Json {
    let (positive, reference) = match &prepared.targets {
        Targets::Classes { positive, negative, .. } => (Some(positive.to_string()), negative.as_ref().map(ToString::to_string)),
        Targets::Many { classes, .. } => (None, classes.first().map(ToString::to_string)),
        Targets::Numbers { .. } => (None, None),
    };
    json!({
        "model": model.to_json()["model"],
        "n": rows[0],
        "held_out_rows": rows[1],
        "positive": positive,
        "reference": reference,
        "levels": levels(prepared),
        "aic": inference.map(|inference| inference.aic),
        // With inference, `inference` lists the coefficients, with their standard errors.
        "coefficients": coefficients(model).filter(|_| inference.is_none()).map(|all| all.into_iter().map(one).collect::<Vec<_>>()),
    })
}

/// The levels of all categorical columns, each with its number of rows, and whether it is the reference level.
fn levels(prepared: &Prepared) -> Vec<Json> {
    let of = |(levels, category): (&ColumnLevels, &Category)| {
        let one = |(name, rows): (&String, &u64)| {
            let is_reference = category.reference.as_ref() == Some(name);
            json!({ "column": levels.column, "name": name, "rows": rows, "reference": is_reference })
        };
        levels.levels.iter().zip(&levels.counts).map(one).collect::<Vec<_>>()
    };
    prepared.levels.iter().zip(&prepared.categories).flat_map(of).collect()
}

/// A coefficient: its class if there are several, its name, and its estimate.
pub(super) type Named = (Option<String>, String, f64);

fn one((class, name, estimate): Named) -> Json {
    let mut one = json!({ "name": name, "estimate": estimate });
    if let Some(class) = class {
        one["class"] = json!(class);
    }
    one
}

/// The coefficients of the data's columns, the intercept first; `None` if there are too many to list.
pub(super) fn coefficients(model: &LinearModel) -> Option<Vec<Named>> {
    let (further, classes) = match &model.predicts {
        Predicts::Classes { classes, further } => (&further[..], classes.iter().skip(1).map(|class| Some(class.to_string())).collect()),
        _ => (&[][..], vec![None]),
    };
    if model.coefficients.len() * classes.len() > MAX_LISTED {
        return None;
    }
    let blocks =
        std::iter::once((&model.coefficients, model.intercept)).chain(further.iter().map(|(block, intercept)| (block, *intercept)));
    let names: Vec<String> = match &model.columns {
        Some(columns) => columns.iter().map(quoted).collect(),
        None => (1..=model.coefficients.len()).map(|i| i.to_string()).collect(),
    };
    let named = |((coefficients, intercept), class): ((&Vec<f64>, f64), Option<String>)| {
        let intercept = (intercept != 0.0).then(|| (class.clone(), "intercept".to_string(), intercept));
        let of = names.iter().zip(coefficients).map(|(name, x)| (class.clone(), name.clone(), *x)).collect::<Vec<_>>();
        intercept.into_iter().chain(of).collect::<Vec<_>>()
    };
    Some(blocks.zip(classes).flat_map(named).collect())
}
