//! `fedsa diff`: two finished runs beside each other.

use std::collections::BTreeMap;

use fedsa::error::{Error, Result};
use fedsa_experiment::finished::{self, FinishedRun};
use serde_json::{Value as Json, json};

use super::{say, say_json};
use crate::args::DiffArgs;
use crate::error::DONE;

/// The numbers of a result that are compared.
const NUMBERS: &[&str] = &["floor_mean", "final_mean", "residual_mean", "error_floor_mean", "rounds"];

/// Runs the command.
///
/// # Errors
/// When one of the folders holds no finished run.
pub fn diff(args: &DiffArgs) -> Result<u8, Error> {
    let (a, b) = (FinishedRun::read(&args.a)?, FinishedRun::read(&args.b)?);
    let settings = finished::differences(&a.settings()?, &b.settings()?);
    let settings: Vec<Json> = settings.into_iter().map(|d| json!({ "key": d.key, "a": d.a, "b": d.b })).collect();
    let (results, checks) = (results(&a.summary, &b.summary), checks(&a.summary, &b.summary));
    if args.json {
        let names = [args.a.display().to_string(), args.b.display().to_string()];
        say_json(&json!({ "a": names[0], "b": names[1], "settings": settings, "results": results, "checks": checks }));
        return Ok(DONE);
    }
    say(format!("a: {}\nb: {}", args.a.display(), args.b.display()));
    say(if settings.is_empty() { "settings: the same" } else { "settings that differ:" });
    let shown = |value: &Json| value.as_str().unwrap_or("not set").to_string();
    for entry in &settings {
        say(format!("  {}: {} | {}", shown(&entry["key"]), shown(&entry["a"]), shown(&entry["b"])));
    }
    say("results, a | b:");
    for entry in &results {
        say(format!("  {}", result_line(entry)));
    }
    if !checks.is_empty() {
        say("checks that differ, a | b:");
        checks.iter().for_each(|entry| say(format!("  {}: {} | {}", shown(&entry["name"]), shown(&entry["a"]), shown(&entry["b"]))));
    }
    Ok(DONE)
}

/// Method and point of a result.
fn name_of(result: &Json) -> String {
    let text = |key: &str| result[key].as_str().unwrap_or_default().to_string();
    match text("point") {
        point if point.is_empty() => text("method"),
        point => format!("{} at {point}", text("method")),
    }
}

fn results(a: &Json, b: &Json) -> Vec<Json> {
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
            Json::Object(out)
        };
        json!({ "name": name, "a": side(&x), "b": side(&y) })
    };
    names.into_iter().map(pair).collect()
}

fn result_line(entry: &Json) -> String {
    let mut parts = Vec::new();
    let (a, b) = (&entry["a"], &entry["b"]);
    let outcome = |side: &Json| side["outcome"].as_str().or(side["status"].as_str()).unwrap_or("absent").to_string();
    if outcome(a) != outcome(b) {
        parts.push(format!("{} | {}", outcome(a), outcome(b)));
    }
    for (key, text) in NUMBERS.iter().map(|key| (*key, key.trim_end_matches("_mean"))).chain([("bits_up", "bits up")]) {
        let (x, y) = (a[key].as_f64(), b[key].as_f64());
        let number = |x: Option<f64>| x.map_or("-".to_string(), fedsa_experiment::numbers::number);
        match (x, y) {
            (None, None) => {}
            (Some(x), Some(y)) if x == y => parts.push(format!("{text} the same, {}", number(Some(x)))),
            (Some(x), Some(y)) if x != 0.0 => {
                parts.push(format!("{text} {} | {} (b/a {})", number(Some(x)), number(Some(y)), number(Some(y / x))))
            }
            _ => parts.push(format!("{text} {} | {}", number(x), number(y))),
        }
    }
    format!("{}: {}", entry["name"].as_str().unwrap_or_default(), parts.join("; "))
}

fn checks(a: &Json, b: &Json) -> Vec<Json> {
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
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    names
        .into_iter()
        .filter(|name| a.get(*name) != b.get(*name))
        .map(|name| json!({ "name": name, "a": a.get(name), "b": b.get(name) }))
        .collect()
}
