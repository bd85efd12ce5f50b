//! Sweeps over two keys: numbers on a grid.

use serde_json::{Value as Json, json};

use crate::run::ReportedRun;

/// The quantities of which a heat map is drawn, with their names.
const QUANTITIES: [(&str, &str); 4] = [
    ("floor_mean", "mean error of the last fifth"),
    ("final_mean", "error at the end"),
    ("residual_mean", "residual at the end"),
    ("rounds", "rounds"),
];

/// The least points of a sweep that is drawn as a map.
const FEWEST: usize = 6;

/// The maps of a run that is a sweep over exactly two keys; `None` otherwise. `assets/report.js` draws them.
pub fn maps(run: &ReportedRun) -> Option<Json> {
    let results = run.summary["results"].as_array()?;
    let first = results.first()?["coordinates"].as_object()?;
    let mut varying: Vec<(String, Vec<Json>)> = first.keys().map(|key| (key.clone(), Vec::new())).collect();
    for result in results {
        for (key, values) in &mut varying {
            let value = &result["coordinates"][key.as_str()];
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    varying.retain(|(_, values)| values.len() > 1);
    let [(x, xs), (y, ys)] = &varying[..] else { return None };
    if xs.len() * ys.len() < FEWEST || xs.iter().chain(ys).any(Json::is_null) {
        return None;
    }
    let (xs, ys) = (sorted(xs.clone()), sorted(ys.clone()));
    let mut maps = Vec::new();
    let mut methods: Vec<&str> = Vec::new();
    for method in results.iter().filter_map(|result| result["method"].as_str()) {
        if !methods.contains(&method) {
            methods.push(method);
        }
    }
    for method in methods {
        for (key, name) in QUANTITIES {
            let mut cells = vec![Json::Null; xs.len() * ys.len()];
            for result in results.iter().filter(|result| result["method"] == method) {
                let at = |values: &[Json], key: &str| values.iter().position(|value| *value == result["coordinates"][key]);
                if let (Some(i), Some(j)) = (at(&xs, x), at(&ys, y)) {
                    let outcome = result["outcome"].as_str().unwrap_or_default();
                    let value = if matches!(outcome, "diverged" | "refused") { json!(outcome) } else { result[key].clone() };
                    cells[j * xs.len() + i] = value;
                }
            }
            if cells.iter().any(Json::is_number) {
                maps.push(json!({ "method": method, "quantity": name, "cells": cells }));
            }
        }
    }
    Some(json!({ "x": x, "y": y, "xs": xs, "ys": ys, "maps": maps }))
}

/// Numbers in their order; others as they come.
fn sorted(mut values: Vec<Json>) -> Vec<Json> {
    if values.iter().all(Json::is_number) {
        values.sort_by(|a, b| a.as_f64().unwrap_or(f64::NAN).total_cmp(&b.as_f64().unwrap_or(f64::NAN)));
    }
    values
}
