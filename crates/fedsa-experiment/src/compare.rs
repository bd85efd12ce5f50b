//! Comparison of two finished runs: settings, results and checks that differ.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fedsa::error::Result;
use fedsa_data::find::Places;
use fedsa_data::logs;
use fedsa_evaluate::policy_value::ValueEstimate;
use serde_json::{Map, Value as Json, json};
use toml::Value;

use crate::evaluate::difference_json;
use crate::finished::{self, Difference, FinishedRun};

/// The compared numbers of a result, by their names in `summary.json`.
pub const NUMBERS: &[&str] = &["floor_mean", "final_mean", "residual_mean", "error_floor_mean", "rounds"];

/// One thing in two runs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Pair<T> {
    /// Its name: a method at a point, or a check.
    pub name: String,
    /// Its value in the first run.
    pub a: T,
    /// Its value in the second run.
    pub b: T,
}

/// A result of one run: the [`NUMBERS`] that it has, `bits_up`, and its outcome, as in `summary.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side(Map<String, Json>);

impl Side {
    /// How the run ended; `None` if the result is missing.
    pub fn outcome(&self) -> Option<&str> {
        self.0.get("outcome").and_then(Json::as_str).or(self.0.get("status").and_then(Json::as_str))
    }

    /// A number, if known.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Json::as_f64)
    }
}

/// Two runs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Comparison {
    /// Their folders.
    pub folders: [PathBuf; 2],
    /// The settings that differ.
    pub settings: Vec<Difference>,
    /// The results of both, by method and point.
    pub results: Vec<Pair<Side>>,
    /// The coefficients of both, if both are fits.
    pub coefficients: Vec<Pair<ComparedCoefficient>>,
    /// The values of the policies by estimate, if both are evaluations.
    pub policy_values: Vec<PolicyValuePair>,
    /// Whether both evaluate the same logs; their values are then not compared.
    pub have_same_logs: bool,
    /// The checks whose outcomes differ, in words.
    pub checks: Vec<Pair<Option<String>>>,
}

/// A coefficient of a fit; `None` if it is missing or has no standard error.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ComparedCoefficient {
    /// The estimate.
    pub estimate: Option<f64>,
    /// Its standard error, if the fit has inference.
    pub se: Option<f64>,
}

/// The reference levels and classes in the summary of a fit, by column; classes have an empty name.
fn references(summary: &Json) -> Vec<(String, String)> {
    let fit = &summary["fit"];
    let class = fit["reference"].as_str().map(|class| (String::new(), class.to_string()));
    let levels = fit["levels"].as_array().into_iter().flatten().filter(|level| level["reference"] == true);
    let level = |level: &Json| Some((level["column"].as_str()?.to_string(), level["name"].as_str()?.to_string()));
    class.into_iter().chain(levels.filter_map(level)).collect()
}

/// The differing references of two fits: the column (empty for classes) and both references.
fn other_references(a: &Json, b: &Json) -> Vec<(String, [String; 2])> {
    let other = references(b);
    let pair = |(column, a): (String, String)| {
        let (_, b) = other.iter().find(|(name, b)| *name == column && *b != a)?;
        Some((column, [a, b.clone()]))
    };
    references(a).into_iter().filter_map(pair).collect()
}

/// The coefficients of two summaries by name, and by class if there are several; those of the first come first. If both fits differ in a
/// reference, its name becomes part of the coefficient's name, because the contrasts differ.
fn coefficients(a: &Json, b: &Json, others: &[(String, [String; 2])]) -> Vec<Pair<ComparedCoefficient>> {
    let of = |summary: &Json, side: usize| -> Vec<(String, ComparedCoefficient)> {
        let inferred = summary["inference"]["coefficients"].as_array();
        let all = inferred.or(summary["fit"]["coefficients"].as_array()).map_or(&[][..], Vec::as_slice);
        let one = |c: &Json| {
            let (name, class) = (c["name"].as_str().unwrap_or_default(), c["class"].as_str());
            let is_of = |column: &str| if column.is_empty() { class.is_some() } else { name.starts_with(&format!("{column}=")) };
            let others = others.iter().filter(|(column, _)| is_of(column));
            let against: String = others.map(|(_, references)| format!(" against {}", references[side])).collect();
            let name = class.map_or(name.to_string(), |class| format!("{class}: {name}")) + &against;
            (name, ComparedCoefficient { estimate: c["estimate"].as_f64(), se: c["se"].as_f64() })
        };
        all.iter().map(one).collect()
    };
    let (a, b) = (of(a, 0), of(b, 1));
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    let find = |all: &[(String, ComparedCoefficient)], name: &str| {
        all.iter().find(|(other, _)| other == name).map(|(_, c)| *c).unwrap_or_default()
    };
    let only_b = b.iter().filter(|(name, _)| a.iter().all(|(other, _)| other != name));
    let names = a.iter().chain(only_b).map(|(name, _)| name.clone());
    names.map(|name| Pair { a: find(&a, &name), b: find(&b, &name), name }).collect()
}

/// The differing settings of inference, which are no settings of the experiment.
fn inference(a: &Json, b: &Json) -> Vec<Difference> {
    let text = |summary: &Json, key: &str| match &summary["inference"][key] {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let differ = |key: &&str| text(a, key) != text(b, key);
    let difference = |key: &str| Difference { key: format!("inference.{key}"), a: text(a, key), b: text(b, key) };
    ["covariance", "level"].iter().filter(|key| differ(key)).map(|key| difference(key)).collect()
}

/// The values of two policies by one estimate.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PolicyValuePair {
    /// The estimate: `fitted`, `importance` or `doubly_robust`.
    pub name: String,
    /// The value of the first.
    pub a: ValueEstimate,
    /// The value of the second.
    pub b: ValueEstimate,
    /// `a - b`, for independent logs.
    pub difference: ValueEstimate,
    /// The level of the intervals, taken from the first.
    pub level: f64,
}

/// The values that both summaries have.
fn policy_values(a: &Json, b: &Json) -> Vec<PolicyValuePair> {
    let (a, b) = (&a["policy_value"], &b["policy_value"]);
    let Some(level) = a["level"].as_f64() else { return Vec::new() };
    let read = |value: &Json, name: &str| {
        let all = &value[name]["all"];
        let number = |key: &str| all[key].as_f64();
        let (episodes, effective) = (all["episodes"].as_u64()? as usize, number("effective_episodes").unwrap_or(f64::NAN));
        Some(ValueEstimate::new(number("estimate")?, number("se").unwrap_or(f64::NAN), episodes, effective, level))
    };
    let pair = |name: &str| {
        let (a, b) = (read(a, name)?, read(b, name)?);
        Some(PolicyValuePair { name: name.into(), a, b, difference: a.minus(&b, level), level })
    };
    ["fitted", "importance", "doubly_robust"].into_iter().filter_map(pair).collect()
}

/// Whether both runs read a log.
fn have_logs_in_common(a: &FinishedRun, b: &FinishedRun) -> Result<bool> {
    let places = Places::from_env("");
    let files = |run: &FinishedRun| -> Result<BTreeSet<PathBuf>> {
        let table = run.settings()?;
        let path = table.get("problem").and_then(|problem| problem.get("path")).cloned();
        let sources: Vec<String> = match path {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(|one| one.as_str().map(String::from)).collect(),
            _ => Vec::new(),
        };
        Ok(places.distinct(&sources, &logs::EXTENSIONS))
    };
    Ok(!files(a)?.is_disjoint(&files(b)?))
}

/// Compares the finished runs in two folders.
///
/// # Errors
/// When a folder has no finished run.
pub fn compare(a: &Path, b: &Path) -> Result<Comparison> {
    let folders = [a.to_path_buf(), b.to_path_buf()];
    let (a, b) = (FinishedRun::read(a)?, FinishedRun::read(b)?);
    let mut settings = finished::differences(&a.settings()?, &b.settings()?);
    settings.extend(inference(&a.summary, &b.summary));
    let references = other_references(&a.summary, &b.summary);
    settings.extend(references.iter().map(|(column, [a, b])| {
        let key = if column.is_empty() { "the reference class".into() } else { format!("the reference of {column}") };
        Difference { key, a: Some(a.clone()), b: Some(b.clone()) }
    }));
    // Values of the same logs are not independent.
    let are_evaluations = [&a, &b].iter().all(|run| run.summary["policy_value"].is_object());
    let have_same_logs = are_evaluations && have_logs_in_common(&a, &b)?;
    Ok(Comparison {
        folders,
        settings,
        results: results(&a.summary, &b.summary),
        coefficients: coefficients(&a.summary, &b.summary, &references),
        policy_values: if have_same_logs { Vec::new() } else { policy_values(&a.summary, &b.summary) },
        have_same_logs,
        checks: checks(&a.summary, &b.summary),
    })
}

impl Comparison {
    /// The comparison as JSON.
    pub fn json(&self) -> Json {
        let names = self.folders.each_ref().map(|folder| folder.display().to_string());
        let settings: Vec<Json> = self.settings.iter().map(|d| json!({ "key": d.key, "a": d.a, "b": d.b })).collect();
        let results: Vec<Json> = self.results.iter().map(|pair| json!({ "name": pair.name, "a": pair.a.0, "b": pair.b.0 })).collect();
        let checks: Vec<Json> = self.checks.iter().map(|pair| json!({ "name": pair.name, "a": pair.a, "b": pair.b })).collect();
        let mut all = json!({ "a": names[0], "b": names[1], "settings": settings, "results": results, "checks": checks });
        if !self.coefficients.is_empty() {
            let side = |c: ComparedCoefficient| json!({ "estimate": c.estimate, "se": c.se });
            let pair = |pair: &Pair<ComparedCoefficient>| json!({ "name": pair.name, "a": side(pair.a), "b": side(pair.b) });
            all["coefficients"] = self.coefficients.iter().map(pair).collect();
        }
        for pair in &self.policy_values {
            let mut difference = difference_json(&pair.difference);
            difference["level"] = json!(pair.level);
            all["policy_value"][&pair.name] = json!({ "a": pair.a.estimate, "b": pair.b.estimate, "difference": difference });
        }
        all
    }
}

/// Method and point of a result.
fn name_of(result: &Json) -> String {
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_string();
    match text("point") {
        point if point.is_empty() => text("method"),
        point => format!("{} at {point}", text("method")),
    }
}

/// The results of two summaries, each method and point once.
fn results(a: &Json, b: &Json) -> Vec<Pair<Side>> {
    let list = |summary: &Json| summary["results"].as_array().cloned().unwrap_or_default();
    let (a, b) = (list(a), list(b));
    let mut names: Vec<String> = Vec::new();
    for name in a.iter().chain(&b).map(name_of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let find = |list: &[Json], name: &str| list.iter().find(|result| name_of(result) == name).cloned();
    let pair = |name: String| {
        let (x, y) = (find(&a, &name), find(&b, &name));
        let side = |result: &Option<Json>| {
            let mut out = serde_json::Map::new();
            for key in ["outcome", "status"].iter().chain(NUMBERS) {
                if let Some(value) = result.as_ref().and_then(|r| r.get(*key)) {
                    out.insert((*key).to_string(), value.clone());
                }
            }
            if let Some(bits) = result.as_ref().and_then(|r| r["ledger"]["bits_up"].as_f64()) {
                out.insert("bits_up".into(), json!(bits));
            }
            Side(out)
        };
        Pair { a: side(&x), b: side(&y), name }
    };
    names.into_iter().map(pair).collect()
}

/// The checks whose outcomes differ.
fn checks(a: &Json, b: &Json) -> Vec<Pair<Option<String>>> {
    let words = |summary: &Json| -> BTreeMap<String, String> {
        let word = |check: &Json| {
            let pass = match (&check["why"], &check["pass"]) {
                (Json::String(_), _) => "not measured",
                (_, pass) => {
                    if pass == true {
                        "holds"
                    } else {
                        "fails"
                    }
                }
            };
            format!("{pass}{}", if check["as_expected"] == true { "" } else { ", not as expected" })
        };
        let list = summary["checks"].as_array().cloned().unwrap_or_default();
        list.iter().map(|check| (check["name"].as_str().unwrap_or_default().to_string(), word(check))).collect()
    };
    let (a, b) = (words(a), words(b));
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names
        .into_iter()
        .filter(|name| a.get(*name) != b.get(*name))
        .map(|name| Pair { name: name.clone(), a: a.get(name).cloned(), b: b.get(name).cloned() })
        .collect()
}
