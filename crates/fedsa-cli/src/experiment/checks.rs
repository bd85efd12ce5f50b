//! `[[check]]`: what is measured against what is expected.
//!
//! | kind | holds when |
//! | --- | --- |
//! | `floor` | the method's floor is within `tolerance` (relative) and `se` standard errors of `expected`: a number or a predicted quantity |
//! | `ratio` | floor of `over` / floor of `method`, paired by seed, lies between `min` and `max`, or within `tolerance` of 1 |
//! | `reaches` | the metric is at most `max` after the last round, or `by` a round, for every seed |
//! | `curve` | the mean over seeds of mse or error follows the exact mean-square error: at least 95% of the rounds within 3 standard errors, all within 5; a `tolerance` (relative) is added to both |
//! | `slope` | log floor against log `along` has slope `expected` within `tolerance` |
//! | `spread` | floors `along` a coordinate stay within `tolerance` of the first one's, paired by seed |
//! | `rounds` | rounds until the metric falls to `max` times the floor of `over`, over the same of `over`, within `tolerance` of 1 |
//! | `predicted` | a predicted quantity, named by `metric`, is `expected` within `tolerance` (relative) |
//! | `final` | the metric (or `distance`, the root of mse) after the last round, or `by` a round, is `expected` within `tolerance` (relative), or at most `max` |
//! | `gap` | the difference of the floors of `method` and `over` falls at least `min` times from the first to the last value of `along` |
//! | `peak` | the largest value of the metric, of the mean over seeds from round `after` on, lies between `min` and `max` |
//! | `cost` | what `over` has sent when its mean metric first falls to `level`, over the same of `method`, lies between `min` and `max`; `cost` names what is counted, `bits_up` by default |
//! | `scaffnew` | mse or lyapunov of control variates with random talk on `Abar_c = a I` follows the exact recursion of Theorem B.4 |

use std::collections::HashMap;

use fedsa::error::{BadInput, Result, require};
use fedsa::methods::Drift;
use fedsa::problem::systems::System;
use fedsa::theory::scaffnew::{Scaffnew, ScaffnewState};
use serde::Serialize;
use serde_json::json;
use toml::Value;

use super::link_checks;
use super::plan::{Plan, ResolvedStart};
use super::predict::{Predictor, QUANTITIES};
use super::results::{Estimate, METRICS, PREDICTED_METRICS, Results};
use crate::config::schema::Controls;
use crate::config::{Check, Experiment, nearest};

/// The outcome of a check.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// Its name.
    pub name: String,
    /// What was measured.
    pub measured: serde_json::Value,
    /// What was expected.
    pub expected: serde_json::Value,
    /// What was allowed.
    pub tolerance: serde_json::Value,
    /// Whether it held.
    pub pass: bool,
    /// Why it is expected to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_to_fail: Option<String>,
    /// Whether `pass` is as expected.
    pub as_expected: bool,
    /// Why it could not be measured, or where it is worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What one check comes to at its points: a measured and an expected number, and how far apart they may be.
pub(super) struct Measured {
    pub measured: f64,
    pub expected: String,
    pub tolerance: String,
    pub pass: bool,
    pub place: String,
}

type Measure = fn(&Context<'_>, &Check) -> Result<Vec<Measured>>;

/// One kind of check.
struct Kind {
    name: &'static str,
    /// Keys it cannot do without.
    needs: &'static [&'static str],
    /// Keys of which it needs at least one, if there are any.
    needs_one: &'static [&'static str],
    /// Further keys that mean something to it.
    takes: &'static [&'static str],
    measure: Measure,
}

/// The keys that every check may have.
const COMMON: &[&str] = &["kind", "name", "method", "at", "min_eta_h", "max_eta_h", "bias_over_noise", "expected_to_fail"];

const KINDS: &[Kind] = &[
    Kind { name: "floor", needs: &["expected"], needs_one: &[], takes: &["metric", "tolerance", "se", "larger"], measure: floor },
    Kind { name: "ratio", needs: &["over"], needs_one: &["min", "max", "tolerance"], takes: &["metric", "se"], measure: ratio },
    Kind { name: "reaches", needs: &["max"], needs_one: &[], takes: &["metric", "by"], measure: reaches },
    Kind { name: "curve", needs: &[], needs_one: &[], takes: &["metric", "tolerance"], measure: curve },
    Kind { name: "slope", needs: &["along", "expected", "tolerance"], needs_one: &[], takes: &["metric"], measure: slope },
    Kind { name: "spread", needs: &["along", "tolerance"], needs_one: &[], takes: &["metric", "se"], measure: spread },
    Kind { name: "rounds", needs: &["over", "max", "tolerance"], needs_one: &[], takes: &["metric", "expected"], measure: rounds },
    Kind { name: "predicted", needs: &["metric", "expected", "tolerance"], needs_one: &[], takes: &[], measure: predicted },
    Kind {
        name: "final",
        needs: &[],
        needs_one: &["expected", "min", "max"],
        takes: &["metric", "tolerance", "se", "larger", "by"],
        measure: last,
    },
    Kind { name: "gap", needs: &["over", "along", "min"], needs_one: &[], takes: &["metric"], measure: link_checks::gap },
    Kind { name: "peak", needs: &[], needs_one: &["min", "max"], takes: &["metric", "after"], measure: link_checks::peak },
    Kind { name: "cost", needs: &["over", "level"], needs_one: &["min", "max"], takes: &["metric", "cost"], measure: link_checks::cost },
    Kind { name: "scaffnew", needs: &[], needs_one: &[], takes: &["metric"], measure: scaffnew },
];

/// The names of the kinds.
pub fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

/// Checks that the checks of a file can be measured at all.
///
/// # Errors
/// When one has an unknown kind, metric or method, lacks a key, or has one that means nothing to it.
pub fn validate(experiment: &Experiment, labels: &[String]) -> Result<()> {
    for (i, check) in experiment.checks.iter().enumerate() {
        validate_one(experiment, labels, check).map_err(|e| e.inside(&format!("check[{i}]")))?;
    }
    Ok(())
}

/// The keys that a check has.
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

/// Refuses a name that is not one of those known.
fn known(key: &str, name: &str, names: &[&str]) -> Result<()> {
    if names.contains(&name) {
        return Ok(());
    }
    let near = nearest(name, names.iter().copied()).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let help = if names.is_empty() { "a sweep first".to_string() } else { format!("one of {}", names.join(", ")) };
    Err(BadInput::new(key, format!("there is no {key} `{name}`{near}"), help))
}

fn validate_one(experiment: &Experiment, labels: &[String], check: &Check) -> Result<()> {
    let names: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
    known("kind", &check.kind, &names).map_err(|e| BadInput { what: e.what.replace("no kind", "no check of the kind"), ..e })?;
    let kind = KINDS.iter().find(|k| k.name == check.kind).expect("known");
    let given = given(check);
    if let Some(key) = ["method"].iter().chain(kind.needs).find(|key| !given.contains(key)) {
        return Err(BadInput::new(
            "",
            format!("the key `{key}` is missing"),
            format!("{key} = .., which a check of kind {} needs", kind.name),
        ));
    }
    if !kind.needs_one.is_empty() && !kind.needs_one.iter().any(|key| given.contains(key)) {
        let keys = kind.needs_one.join(", ");
        return Err(BadInput::new("", format!("a check of kind {} needs one of {keys}", kind.name), keys));
    }
    let means = |key: &str| [COMMON, kind.needs, kind.needs_one, kind.takes].iter().any(|keys| keys.contains(&key));
    if let Some(key) = given.iter().find(|key| !means(key)) {
        let keys: Vec<&str> = [COMMON, kind.needs, kind.needs_one, kind.takes].concat();
        return Err(BadInput::new(
            *key,
            format!("this means nothing to a check of kind {}", kind.name),
            format!("the keys {}", keys.join(", ")),
        ));
    }
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    for (key, label) in [("method", &check.method), ("over", &check.over)] {
        label.as_ref().map_or(Ok(()), |label| known("method", label, &labels).map_err(|e| BadInput { key: key.into(), ..e }))?;
    }
    let against_theory = matches!(check.expected, Some(Value::String(_)));
    let metrics = match check.kind.as_str() {
        "predicted" => QUANTITIES.to_vec(),
        "final" => [METRICS, &["distance"]].concat(),
        "scaffnew" => vec!["mse", "lyapunov"],
        // What theory predicts is a mean-square error, and no other metric.
        "curve" => PREDICTED_METRICS.to_vec(),
        "floor" if against_theory => PREDICTED_METRICS.to_vec(),
        _ => METRICS.to_vec(),
    };
    check.metric.as_ref().map_or(Ok(()), |metric| {
        known("metric", metric, &metrics).map_err(|e| match METRICS.contains(&metric.as_str()) {
            true => BadInput { what: format!("theory says nothing of `{metric}`"), ..e },
            false => e,
        })
    })?;
    for (key, x) in [("min", check.min), ("max", check.max), ("tolerance", check.tolerance), ("se", check.se)] {
        require(x.is_none_or(|x| !x.is_nan()), key, f64::NAN, "a number")?;
    }
    if let (Some(min), Some(max)) = (check.min, check.max) {
        require(min <= max, "max", max, &format!("at least min = {min}"))?;
    }
    check.cost.as_ref().map_or(Ok(()), |cost| known("cost", cost, super::picture::AXES))?;
    if let Some(level) = check.level {
        require(level > 0.0 && level.is_finite(), "level", level, "a positive level of the metric")?;
    }
    let mut swept: Vec<&str> = Vec::new();
    for (name, _) in experiment.points.iter().flat_map(|p| &p.coordinates) {
        if !swept.contains(&name.as_str()) {
            swept.push(name);
        }
    }
    for (key, name) in check.at.keys().map(|name| (format!("at.{name}"), name)).chain(check.along.iter().map(|name| ("along".into(), name)))
    {
        known("coordinate", name, &swept).map_err(|e| BadInput { key, ..e })?;
    }
    let at_all = experiment.points.iter().any(|p| p.is_at(&check.at));
    let wanted: Vec<String> = check.at.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    if !at_all {
        return Err(BadInput::new("at", format!("no point is at {}", wanted.join(", ")), "values that are swept"));
    }
    match &check.expected {
        Some(Value::String(q)) if check.kind == "floor" => known("expected", q, QUANTITIES).map_err(|e| BadInput {
            what: e.what.replace("no expected", "no predicted quantity"),
            help: format!("a number, or {}", e.help),
            ..e
        }),
        Some(v) if v.as_float().is_none_or(|x| !x.is_finite()) && v.as_integer().is_none() => {
            Err(BadInput::new("expected", format!("{v} is not accepted"), "a number"))
        }
        _ => Ok(()),
    }
}

/// What checks look at.
pub(super) struct Context<'a> {
    pub plan: &'a Plan,
    pub results: &'a Results,
    pub predictor: &'a Predictor<'a>,
}

/// Measures all checks.
pub fn measure(plan: &Plan, results: &Results, predictor: &Predictor<'_>) -> Vec<Verdict> {
    let context = Context { plan, results, predictor };
    plan.experiment.checks.iter().map(|check| context.verdict(check)).collect()
}

impl Context<'_> {
    fn verdict(&self, check: &Check) -> Verdict {
        let kind = KINDS.iter().find(|k| k.name == check.kind).expect("validated");
        let measured = (kind.measure)(self, check).and_then(|all| match all.is_empty() {
            true => Err(BadInput::new("", "no point that the check is about", "")),
            false => Ok(all),
        });
        let name = check.name.clone().unwrap_or_else(|| describe(check));
        let (measured, expected, tolerance, pass, note) = match measured {
            Err(e) => (json!(null), json!(null), json!(null), false, Some(e.to_string())),
            Ok(all) => {
                // The points that fail, else the first, speak for all.
                let failing: Vec<&Measured> = all.iter().filter(|m| !m.pass).collect();
                let shown = failing.first().copied().unwrap_or(&all[0]);
                let others = match (all.len(), failing.len()) {
                    (1, _) => shown.place.clone(),
                    (n, 0) => format!("holds at all {n} points; shown: {}", shown.place),
                    (n, k) => format!("fails at {k} of {n} points; shown: {}", shown.place),
                };
                let note = (!others.is_empty()).then_some(others);
                (json!(finite(shown.measured)), json!(shown.expected), json!(shown.tolerance), failing.is_empty(), note)
            }
        };
        let as_expected = pass == check.expected_to_fail.is_none();
        Verdict { name, measured, expected, tolerance, pass, expected_to_fail: check.expected_to_fail.clone(), as_expected, note }
    }

    /// The points a check is about, with the cell of a method.
    pub fn cells(&self, check: &Check, label: &str) -> Result<Vec<(usize, usize)>> {
        let method = self.plan.labels.iter().position(|l| l == label).expect("validated");
        let mut out = Vec::new();
        for (i, planned) in self.plan.points.iter().enumerate().filter(|(_, p)| p.point.is_at(&check.at)) {
            let cell = planned.cells[method];
            if self.plan.cells[cell].refused.is_some() {
                continue;
            }
            let shape = self.plan.cells[cell].shape();
            let eta_h = shape.step_size.largest() * shape.local_steps;
            // 0.1 * 1000 is 100.00000000000001.
            let slack = 1.0 + 1e-9;
            if check.min_eta_h.is_some_and(|x| eta_h * slack < x) || check.max_eta_h.is_some_and(|x| eta_h > x * slack) {
                continue;
            }
            if let Some(times) = check.bias_over_noise
                && self.predictor.number(cell, "bias2")? <= times * self.predictor.number(cell, "noise")?
            {
                continue;
            }
            out.push((i, cell));
        }
        Ok(out)
    }

    pub fn place(&self, point: usize) -> String {
        self.plan.points[point].point.label.clone()
    }

    pub fn floors(&self, cell: usize, metric: &str) -> Result<Vec<f64>> {
        let label = &self.plan.cells[cell].method.label;
        if !self.results.is_ok(cell) {
            return Err(BadInput::new("", format!("{label} diverged"), ""));
        }
        self.results.floors(cell, metric).ok_or_else(|| BadInput::new("", format!("{metric} is not known for {label}"), ""))
    }

    /// The same point's cell of another method.
    pub fn other(&self, point: usize, label: &str) -> usize {
        let method = self.plan.labels.iter().position(|l| l == label).expect("validated");
        self.plan.points[point].cells[method]
    }
}

fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

fn describe(check: &Check) -> String {
    let mut text = check.kind.clone();
    for part in [&check.method, &check.over].into_iter().flatten() {
        text.push(' ');
        text.push_str(part);
    }
    for (name, value) in &check.at {
        text.push_str(&format!(" {name}={value}"));
    }
    text
}

pub(super) fn metric_of(check: &Check) -> &str {
    check.metric.as_deref().unwrap_or("mse")
}

/// How far a measured value may be from an expected one.
fn allowed(check: &Check, expected: f64, se: f64) -> f64 {
    let relative = check.tolerance.unwrap_or(0.0) * expected.abs();
    let random = check.se.unwrap_or(3.0) * se;
    if check.larger { relative.max(random) } else { relative + random }
}

fn tolerance_text(check: &Check) -> String {
    let join = if check.larger { "or" } else { "and" };
    format!("{:.3}% {join} {} SE", 100.0 * check.tolerance.unwrap_or(0.0), check.se.unwrap_or(3.0))
}

fn floor(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    cells
        .into_iter()
        .map(|(point, cell)| {
            let expected = match check.expected.as_ref().expect("validated") {
                Value::String(quantity) => ctx.predictor.number(cell, quantity)?,
                number => number.as_float().or(number.as_integer().map(|i| i as f64)).expect("validated"),
            };
            let Estimate { mean, se } = Estimate::of(&ctx.floors(cell, metric_of(check))?);
            Ok(Measured {
                measured: mean,
                expected: format!("{expected:.6e}"),
                tolerance: tolerance_text(check),
                pass: (mean - expected).abs() <= allowed(check, expected, se),
                place: ctx.place(point),
            })
        })
        .collect()
}

fn ratio(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    cells
        .into_iter()
        .map(|(point, cell)| {
            let over = ctx.other(point, check.over.as_deref().expect("validated"));
            let (below, above) = (ctx.floors(cell, metric_of(check))?, ctx.floors(over, metric_of(check))?);
            let Estimate { mean, se } = paired(&above, &below);
            let (low, high) = match check.tolerance {
                Some(t) => (1.0 - t, 1.0 + t),
                None => (check.min.unwrap_or(f64::NEG_INFINITY), check.max.unwrap_or(f64::INFINITY)),
            };
            // A stated range of a ratio near 1 allows for noise; a factor to be beaten does not.
            let allows = check.tolerance.is_some() || check.se.is_some();
            let slack = if allows { check.se.unwrap_or(3.0) * se } else { 0.0 };
            Ok(Measured {
                measured: mean,
                expected: range_text(low, high),
                tolerance: format!("{slack:.3e} (standard error {se:.1e})"),
                pass: mean >= low - slack && mean <= high + slack,
                place: ctx.place(point),
            })
        })
        .collect()
}

/// The ratio of means with the standard error of paired samples.
fn paired(above: &[f64], below: &[f64]) -> Estimate {
    let mean = Estimate::of(above).mean / Estimate::of(below).mean;
    let scale = Estimate::of(below).mean;
    let residuals: Vec<f64> = above.iter().zip(below).map(|(a, b)| (a - mean * b) / scale).collect();
    Estimate { mean, se: Estimate::of(&residuals).se }
}

pub(super) fn range_text(low: f64, high: f64) -> String {
    match (low.is_finite(), high.is_finite()) {
        (true, true) => format!("{low:.4} to {high:.4}"),
        (true, false) => format!("at least {low}"),
        (false, true) => format!("at most {high}"),
        (false, false) => "anything".into(),
    }
}

fn reaches(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    let max = check.max.expect("validated");
    cells
        .into_iter()
        .map(|(point, cell)| {
            let worst = ctx.results.cells[cell].iter().map(|seed| seed.by(check.by, metric_of(check)));
            let worst = worst.map(|x| x.unwrap_or(f64::NAN)).fold(0.0, |a: f64, b| if b.is_nan() || b > a { b } else { a });
            Ok(Measured {
                measured: worst,
                expected: format!("at most {max:e}{}", check.by.map_or(String::new(), |t| format!(" by round {t}"))),
                tolerance: "none".into(),
                pass: worst <= max,
                place: ctx.place(point),
            })
        })
        .collect()
}

fn curve(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    cells
        .into_iter()
        .map(|(point, cell)| {
            let exact = ctx.predictor.curve(cell)?;
            let exact = ctx.predictor.mse(cell, &exact, metric_of(check));
            let grid = &ctx.plan.cells[cell].grid;
            let slack = check.tolerance.unwrap_or(0.0);
            let measured = ctx.results.curve(cell, metric_of(check));
            let deviations: Vec<f64> = measured
                .iter()
                .filter(|(row, _)| row.round > 0)
                .filter_map(|(row, values)| {
                    let expected = exact[grid.binary_search(&row.round).ok()?];
                    Some(in_standard_errors(values, expected, slack * expected))
                })
                .collect();
            followed(&deviations, "the exact curve", slack, ctx.place(point))
        })
        .collect()
}

/// Groups points that agree in all coordinates but one; each group in the file's order.
pub(super) fn groups(ctx: &Context<'_>, check: &Check) -> Result<Vec<Vec<(usize, usize)>>> {
    let along = check.along.as_deref().expect("validated");
    /// The points and cells that have the same other coordinates.
    type Group = Vec<(usize, usize)>;
    let mut groups: Vec<Group> = Vec::new();
    let mut index: HashMap<Vec<(String, String)>, usize> = HashMap::new();
    for (point, cell) in ctx.cells(check, check.method.as_deref().expect("validated"))? {
        let coordinates = &ctx.plan.points[point].point.coordinates;
        let key: Vec<(String, String)> = coordinates.iter().filter(|(n, _)| n != along).map(|(n, v)| (n.clone(), v.to_string())).collect();
        let at = *index.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push((point, cell));
    }
    Ok(groups.into_iter().filter(|members| members.len() >= 2).collect())
}

fn slope(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let along = check.along.as_deref().expect("validated");
    let expected = number_of(check);
    let tolerance = check.tolerance.expect("validated");
    groups(ctx, check)?
        .into_iter()
        .map(|members| {
            let mut points = Vec::new();
            for (point, cell) in &members {
                let x = ctx.plan.points[*point].point.number(along);
                let x = x.ok_or_else(|| BadInput::new("along", format!("{along} is not a number"), ""))?;
                let Estimate { mean, se } = Estimate::of(&ctx.floors(*cell, metric_of(check))?);
                points.push((x.ln(), mean.ln(), se / mean));
            }
            let (slope, se) = fit(&points);
            Ok(Measured {
                measured: slope,
                expected: format!("{expected}"),
                tolerance: format!("{tolerance} (standard error {se:.3})"),
                pass: (slope - expected).abs() <= tolerance,
                place: ctx.place(members[0].0),
            })
        })
        .collect()
}

/// Least squares: the slope of y over x, and its standard error from those of y.
pub fn fit(points: &[(f64, f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean_x = points.iter().map(|p| p.0).sum::<f64>() / n;
    let mean_y = points.iter().map(|p| p.1).sum::<f64>() / n;
    let sxx: f64 = points.iter().map(|p| (p.0 - mean_x).powi(2)).sum();
    let sxy: f64 = points.iter().map(|p| (p.0 - mean_x) * (p.1 - mean_y)).sum();
    let var: f64 = points.iter().map(|p| ((p.0 - mean_x) / sxx * p.2).powi(2)).sum();
    (sxy / sxx, var.sqrt())
}

fn number_of(check: &Check) -> f64 {
    let value = check.expected.as_ref();
    value.and_then(|v| v.as_float().or(v.as_integer().map(|i| i as f64))).unwrap_or(f64::NAN)
}

fn spread(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let tolerance = check.tolerance.expect("validated");
    let mut out = Vec::new();
    for members in groups(ctx, check)? {
        let first = ctx.floors(members[0].1, metric_of(check))?;
        for (point, cell) in &members[1..] {
            let Estimate { mean, se } = paired(&ctx.floors(*cell, metric_of(check))?, &first);
            out.push(Measured {
                measured: mean,
                expected: format!("1 (floor over that of {})", ctx.place(members[0].0)),
                tolerance: format!("{tolerance} and {} SE of {se:.1e}", check.se.unwrap_or(3.0)),
                pass: (mean - 1.0).abs() <= tolerance + check.se.unwrap_or(3.0) * se,
                place: ctx.place(*point),
            });
        }
    }
    Ok(out)
}

fn rounds(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (times, tolerance) = (check.max.expect("validated"), check.tolerance.expect("validated"));
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    cells
        .into_iter()
        .map(|(point, cell)| {
            let over = ctx.other(point, check.over.as_deref().expect("validated"));
            let level = times * Estimate::of(&ctx.floors(over, metric_of(check))?).mean;
            let until = |cell: usize| {
                let curve = ctx.results.curve(cell, metric_of(check));
                let first = curve.iter().find(|(_, values)| Estimate::of(values).mean <= level);
                first
                    .map(|(row, _)| row.round as f64)
                    .ok_or_else(|| BadInput::new("", format!("the level {level:.3e} is never reached"), ""))
            };
            let measured = until(cell)? / until(over)?;
            let expected = if check.expected.is_some() { number_of(check) } else { 1.0 };
            Ok(Measured {
                measured,
                expected: format!("{expected:.3} (rounds to {times} times the floor, over those of {})", ctx.plan.cells[over].method.label),
                tolerance: format!("{tolerance}"),
                pass: (measured - expected).abs() <= tolerance * expected,
                place: ctx.place(point),
            })
        })
        .collect()
}

fn predicted(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (expected, tolerance) = (number_of(check), check.tolerance.expect("validated"));
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    cells
        .into_iter()
        .map(|(point, cell)| {
            let measured = ctx.predictor.number(cell, check.metric.as_deref().expect("validated"))?;
            Ok(Measured {
                measured,
                expected: format!("{expected}"),
                tolerance: format!("{tolerance:e} relative"),
                pass: (measured - expected).abs() <= tolerance * expected.abs(),
                place: ctx.place(point),
            })
        })
        .collect()
}

fn last(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    let (name, root) = match check.metric.as_deref() {
        Some("distance") => ("mse", true),
        other => (other.unwrap_or("mse"), false),
    };
    cells
        .into_iter()
        .map(|(point, cell)| {
            let values: Option<Vec<f64>> = ctx.results.cells[cell].iter().map(|seed| seed.by(check.by, name)).collect();
            let values = values.ok_or_else(|| BadInput::new("", format!("{name} is not known"), ""))?;
            let values: Vec<f64> = values.into_iter().map(|x| if root { x.sqrt() } else { x }).collect();
            let Estimate { mean, se } = Estimate::of(&values);
            let (expected, pass) = match (check.min, check.max) {
                (Some(min), _) => (format!("at least {min:e}"), mean >= min && check.max.is_none_or(|max| mean <= max)),
                (None, Some(max)) => (format!("at most {max:e}"), mean <= max),
                (None, None) => (format!("{}", number_of(check)), (mean - number_of(check)).abs() <= allowed(check, number_of(check), se)),
            };
            Ok(Measured { measured: mean, expected, tolerance: tolerance_text(check), pass, place: ctx.place(point) })
        })
        .collect()
}

fn scaffnew(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let cells = ctx.cells(check, check.method.as_deref().expect("validated"))?;
    cells
        .into_iter()
        .map(|(point, cell)| {
            let (recursion, start) = theorem_b4(ctx, cell)?;
            let last = ctx.plan.cells[cell].run.rounds as usize;
            let talks = recursion.talks(start, last);
            let expected = |t: u64| match metric_of(check) {
                "lyapunov" => recursion.psi(&talks[t as usize]),
                _ => talks[t as usize].v,
            };
            let measured = ctx.results.curve(cell, metric_of(check));
            let after_start = measured.iter().filter(|(row, _)| row.round > 0);
            let deviations: Vec<f64> = after_start.map(|(row, values)| in_standard_errors(values, expected(row.round), 0.0)).collect();
            followed(&deviations, "the exact recursion", 0.0, ctx.place(point))
        })
        .collect()
}

/// How far the mean of values is from what is expected, beside `slack`.
fn in_standard_errors(values: &[f64], expected: f64, slack: f64) -> f64 {
    let Estimate { mean, se } = Estimate::of(values);
    let beyond = (mean - expected).abs() - slack;
    if beyond <= 0.0 { 0.0 } else { beyond / se }
}

/// The recursion of Theorem B.4 for a cell, and its start.
fn theorem_b4(ctx: &Context<'_>, cell: usize) -> Result<(Scaffnew, ScaffnewState)> {
    let accepted = "random talk of all agents, alike in weight, on `Abar_c = a I` with noise on b only, over a clear link, \
                    with a global step of 1, from a start that is the same for every seed";
    let other = |what: &str| BadInput::new("", what, accepted);
    let (field, planned) = (ctx.plan.field(cell), &ctx.plan.cells[cell]);
    let shape = planned.shape();
    let Drift::ControlVariate { talk: Some(p) } = shape.drift else { return Err(other("talks are not random")) };
    let systems = field.systems().ok_or_else(|| other("the operators are not linear"))?;
    let root = field.root().ok_or_else(|| other("theta* is not known"))?;
    if !shape.is_linear || shape.alpha_g != 1.0 || shape.participants.is_some_and(|m| m < field.agents()) {
        return Err(other("a round is not the theorem's"));
    }
    if planned.output != fedsa::record::OutputRule::Last {
        return Err(other("the output is not the last iterate"));
    }
    let weights = field.weights();
    if weights.iter().any(|p| (p - weights[0]).abs() > 1e-12 * weights[0]) {
        return Err(other("agents differ in weight"));
    }
    let d = field.dim();
    let scale = systems.kinds[0].a[(0, 0)];
    let is_scaled_identity = |s: &System| (0..d).all(|i| (0..d).all(|j| s.a[(i, j)] == if i == j { scale } else { 0.0 }));
    if !systems.kinds.iter().all(is_scaled_identity) {
        return Err(other("some Abar_c is not a I"));
    }
    // The mean over agents of the noise's second moment, E ||b||^2 - ||bbar||^2.
    let mut sigma = 0.0;
    for (k, (System { a, b }, weight)) in systems.kinds.iter().zip(systems.kind_weights()).enumerate() {
        let moments = field.moments(k).ok_or_else(|| other("the noise is not known"))?;
        let fixed = fedsa::linalg::kron(a, a);
        if (&moments.aa - &fixed).norm_max() > 1e-12 * fixed.norm_max() {
            return Err(other("A(z) is random"));
        }
        sigma += weight * (0..d).map(|i| moments.bb[(i, i)] - b[i] * b[i]).sum::<f64>();
    }
    let recursion = Scaffnew {
        agents: field.agents() as u64,
        eta: shape.step_size.constant().ok_or_else(|| other("the step varies"))?,
        a: scale,
        p,
        // A step averages a batch of samples.
        sigma: sigma / field.sampling().batch as f64,
    };
    let ResolvedStart::Fixed(theta) = &planned.start else { return Err(other("the start is random")) };
    let u = fedsa::linalg::distance_sq(theta, root);
    let controls = (0..field.agents()).map(|c| fedsa::linalg::norm_sq(&systems.of(c).mean(root)) / field.agents() as f64);
    let x = if planned.method.controls == Controls::Ideal { 0.0 } else { controls.sum() };
    Ok((recursion, ScaffnewState { u, v: u, c: 0.0, x }))
}

/// Whether deviations, in standard errors, are those of the right mean: 95% within three, all within five.
fn followed(deviations: &[f64], what: &str, slack: f64, place: String) -> Result<Measured> {
    if deviations.is_empty() {
        return Err(BadInput::new("", "no recorded rounds", ""));
    }
    let within = deviations.iter().filter(|d| **d <= 3.0).count() as f64 / deviations.len() as f64;
    // A deviation that is no number, as of a run that diverged, is the worst.
    let worst = deviations.iter().map(|d| if d.is_nan() { f64::INFINITY } else { *d }).fold(0.0, f64::max);
    Ok(Measured {
        measured: within,
        expected: format!("95% of {} rounds within 3 SE of {what}, all within 5 (worst {worst:.2})", deviations.len()),
        tolerance: format!("{:.1}% relative beside", 100.0 * slack),
        pass: within >= 0.95 && worst <= 5.0,
        place,
    })
}
