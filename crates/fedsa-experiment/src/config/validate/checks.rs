//! Validation of a check's keys and numbers.

use fedsa::error::{Error, ErrorCode, Result, quoted, require};
use toml::Value;

use super::check_kinds::{self, CheckRules, rules_of};
use crate::config::schema::Unmeasured;
use crate::config::{Check, Experiment, nearest, short};
use crate::names::{self, QUANTITIES};

/// The keys that every check may have.
const COMMON: &[&str] = &["kind", "name", "method", "at", "min_eta_h", "max_eta_h", "bias_over_noise", "expected_to_fail", "unmeasured"];

/// Validates the keys of a file's checks.
///
/// # Errors
/// When a check has an unknown kind, metric or method, lacks a key, or has a key of another kind or out of range; also when it names
/// missing points, unless options of the command line change the file.
pub fn validate(experiment: &Experiment, labels: &[String]) -> Result<()> {
    for (i, check) in experiment.checks.iter().enumerate() {
        let valid = validate_one(labels, check).and_then(|()| {
            match experiment.document.origins.is_empty() && check.unmeasured == Unmeasured::Error {
                true => validate_points(experiment, check, true),
                // Options may have changed the sweeps; `unmeasured` then checks the points.
                false => Ok(()),
            }
        });
        valid.map_err(|e| e.inside(&format!("check[{i}]")))?;
    }
    Ok(())
}

/// The keys that are given in a check.
fn given(check: &Check) -> Vec<&'static str> {
    let all = [
        ("method", check.method.is_some()),
        ("over", check.over.is_some()),
        ("metric", check.metric.is_some()),
        ("along", check.along.is_some()),
        ("expected", check.expected.is_some()),
        ("tolerance", check.tolerance.is_some()),
        ("se", check.se.is_some()),
        ("larger", check.larger),
        ("min", check.min.is_some()),
        ("max", check.max.is_some()),
        ("by", check.by.is_some()),
        ("after", check.after.is_some()),
        ("level", check.level.is_some()),
        ("cost", check.cost.is_some()),
    ];
    all.into_iter().filter(|(_, given)| *given).map(|(key, _)| key).collect()
}

/// Refuses a name that is not in `names`.
fn known(key: &str, noun: &str, name: &str, names: &[&str]) -> Result<()> {
    if names.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, names.iter().copied()).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let help = if names.is_empty() { "a sweep first".to_string() } else { format!("one of {}", names.join(", ")) };
    Err(Error::new(key, format!("there is no {noun} `{}`{near}", quoted(name)), help).coded(ErrorCode::UnknownName))
}

fn validate_one(labels: &[String], check: &Check) -> Result<()> {
    known("kind", "check of the kind", &check.kind, &check_kinds::names())?;
    let rules = rules_of(check);
    let CheckRules { name, needs, needs_one, takes, .. } = *rules;
    let given = given(check);
    if let Some(key) = ["method"].iter().chain(needs).find(|key| !given.contains(key)) {
        return Err(Error::missing_key(key, format!("{key} = .., which a check of kind {} needs", name)));
    }
    if !needs_one.is_empty() && !needs_one.iter().any(|key| given.contains(key)) {
        let keys = needs_one.join(", ");
        return Err(Error::new("", format!("a check of kind {} needs one of {keys}", name), keys));
    }
    let means = |key: &str| [COMMON, needs, needs_one, takes].iter().any(|keys| keys.contains(&key));
    if let Some(key) = given.iter().find(|key| !means(key)) {
        let keys: Vec<&str> = [COMMON, needs, needs_one, takes].concat();
        return Err(Error::new(*key, format!("this is not a key of a check of kind {}", name), format!("the keys {}", keys.join(", ")))
            .coded(ErrorCode::NotForKind));
    }
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    for (key, label) in [("method", &check.method), ("over", &check.over)] {
        label.as_ref().map_or(Ok(()), |label| known(key, "method", label, &labels))?;
    }
    let metrics = (rules.metrics)(check);
    check.metric.as_ref().map_or(Ok(()), |metric| {
        known("metric", "metric", metric, &metrics).map_err(|e| match fedsa::metrics::metric(metric).is_some() {
            true => e.saying(format!("theory does not predict `{}`", quoted(metric))),
            false => e,
        })
    })?;
    validate_numbers(check)?;
    check.cost.as_ref().map_or(Ok(()), |cost| known("cost", "cost", cost, &names::counts()))?;
    if let Some(level) = check.level {
        require(level > 0.0 && level.is_finite(), "level", level, "a positive level of the metric")?;
    }
    match &check.expected {
        Some(Value::String(q)) if rules.may_expect_quantities => {
            known("expected", "predicted quantity", q, &QUANTITIES).map_err(|e| {
                let help = format!("a number, or {}", e.help);
                e.helped(help)
            })?;
        }
        Some(v) if v.as_float().is_none_or(|x| !x.is_finite()) && v.as_integer().is_none() => {
            return Err(Error::new("expected", format!("{} is not accepted", short(v)), "a number"));
        }
        _ => {}
    }
    validate_together(check)
}

/// Checks that numbers are finite, and that runs can meet them.
fn validate_numbers(check: &Check) -> Result<()> {
    let bounds = [("min", check.min), ("max", check.max), ("min_eta_h", check.min_eta_h), ("max_eta_h", check.max_eta_h)];
    for (key, x) in bounds {
        require(x.is_none_or(f64::is_finite), key, x.unwrap_or(0.0), "a finite number")?;
    }
    for (key, x) in [("tolerance", check.tolerance), ("se", check.se), ("bias_over_noise", check.bias_over_noise)] {
        require(x.is_none_or(|x| x >= 0.0 && x.is_finite()), key, x.unwrap_or(0.0), "a finite number of at least 0")?;
    }
    // Metrics and their ratios are never negative.
    require(check.max.is_none_or(|max| max >= 0.0), "max", check.max.unwrap_or(0.0), "at least 0, as metrics and their ratios are")?;
    for (low, high, key) in [(check.min, check.max, "max"), (check.min_eta_h, check.max_eta_h, "max_eta_h")] {
        if let (Some(low), Some(high)) = (low, high) {
            require(low <= high, key, high, &format!("at least {} = {low}", key.replace("max", "min")))?;
        }
    }
    for (key, text) in [("name", &check.name), ("expected_to_fail", &check.expected_to_fail)] {
        require(text.as_ref().is_none_or(|text| !text.trim().is_empty()), key, "an empty text", "a text, or no such key")?;
    }
    Ok(())
}

/// Refuses keys that another key makes ineffective, and statements that no run can meet.
fn validate_together(check: &Check) -> Result<()> {
    let rules = rules_of(check);
    let given = given(check);
    let range = ["min", "max"].into_iter().find(|key| given.contains(key));
    let ignored = rules.ignored_beside_range.iter().find(|key| given.contains(key));
    if let (Some(bound), Some(key)) = (range, ignored) {
        let what = format!("a check of kind {} ignores this beside {bound}", check.kind);
        return Err(Error::new(*key, what, format!("{key}, or {bound}")));
    }
    if check.larger && (check.tolerance.is_none() || check.se == Some(0.0)) {
        let what = "only one of a tolerance and standard errors is given, so that there is no larger one";
        return Err(Error::new("larger", what, "a tolerance and a number of standard errors beside it"));
    }
    if let (Some(method), Some(over)) = (&check.method, &check.over) {
        require(method != over, "over", format!("`{}`, which is the method itself,", quoted(over)), "the label of another method")?;
    }
    let expected = check.number();
    match (rules.accepts)(expected) {
        // `None` if `expected` is the name of a quantity or absent.
        Err(accepted) if !expected.is_nan() => require(false, "expected", expected, accepted),
        _ => Ok(()),
    }
}

/// Checks that a check has at least one point; with `all`, that every value it names belongs to a point.
pub fn validate_points(experiment: &Experiment, check: &Check, all: bool) -> Result<()> {
    let mut swept: Vec<&str> = Vec::new();
    for (name, _) in experiment.points.iter().flat_map(|p| &p.coordinates) {
        if !swept.contains(&name.as_str()) {
            swept.push(name);
        }
    }
    for (key, name) in check.at.keys().map(|name| (format!("at.{name}"), name)).chain(check.along.iter().map(|name| ("along".into(), name)))
    {
        known(&key, "coordinate", name, &swept)?;
    }
    if !experiment.points.iter().any(|p| p.is_at(&check.at)) {
        let wanted: Vec<String> = check.at.iter().map(|(name, value)| format!("{} = {}", quoted(name), short(value))).collect();
        return Err(Error::new("at", format!("no point is at {}", wanted.join(", ")), "values that are swept"));
    }
    for (name, value) in check.at.iter().filter(|_| all) {
        for (i, one) in value.as_array().into_iter().flatten().enumerate() {
            let at = [(name.clone(), one.clone())].into();
            if !experiment.points.iter().any(|p| p.is_at(&at)) {
                return Err(Error::new(
                    format!("at.{name}[{i}]"),
                    format!("no point is at {} = {}", quoted(name), short(one)),
                    "values that are swept",
                ));
            }
        }
    }
    Ok(())
}
