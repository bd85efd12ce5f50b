//! `[[check]]`: what is measured against what is expected.
//!
//! A kind is an entry of `KINDS`: its keys, what it needs of a run (`possible`), how it is
//! measured and what it states in words. [`validate`] looks at a check's keys, [`unmeasured`] at
//! whether the plan can answer it at all, [`measure`] at the results.
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

mod against_theory;
mod floors;
mod links;
mod verdict;

use std::collections::HashMap;
use std::path::Path;

use fedsa::error::{BadInput, Result, quoted, require};
use fedsa::kernel::Isa;
use fedsa::methods::Drift;
use toml::Value;

pub use verdict::Verdict;
use verdict::{About, Measured};

use super::plan::Plan;
use super::predict::{Predictor, QUANTITIES};
use super::results::{METRICS, PREDICTED_METRICS, Results};
use crate::config::schema::{ExpectedStatus, Unmeasured};
use crate::config::{Check, Document, Experiment, nearest, short};
use crate::error::Failure;

/// Whether a cell, at a point, can answer a check.
type Possible = fn(&Facts<'_>, &Check, usize, usize) -> Result<()>;
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
    possible: Possible,
    measure: Measure,
    /// The statement in words.
    text: fn(&Check) -> String,
}

/// The keys that every check may have.
const COMMON: &[&str] = &["kind", "name", "method", "at", "min_eta_h", "max_eta_h", "bias_over_noise", "expected_to_fail", "unmeasured"];

const KINDS: &[Kind] = &[
    Kind {
        name: "floor",
        needs: &["expected"],
        needs_one: &[],
        takes: &["metric", "tolerance", "se", "larger"],
        possible: floors::floor_possible,
        measure: floors::floor,
        text: floors::floor_text,
    },
    Kind {
        name: "ratio",
        needs: &["over"],
        needs_one: &["min", "max", "tolerance"],
        takes: &["metric", "se"],
        possible: floors::ratio_possible,
        measure: floors::ratio,
        text: floors::ratio_text,
    },
    Kind {
        name: "reaches",
        needs: &["max"],
        needs_one: &[],
        takes: &["metric", "by"],
        possible: floors::reaches_possible,
        measure: floors::reaches,
        text: floors::reaches_text,
    },
    Kind {
        name: "curve",
        needs: &[],
        needs_one: &[],
        takes: &["metric", "tolerance"],
        possible: against_theory::curve_possible,
        measure: against_theory::curve,
        text: against_theory::curve_text,
    },
    Kind {
        name: "slope",
        needs: &["along", "expected", "tolerance"],
        needs_one: &[],
        takes: &["metric"],
        possible: floors::slope_possible,
        measure: floors::slope,
        text: floors::slope_text,
    },
    Kind {
        name: "spread",
        needs: &["along", "tolerance"],
        needs_one: &[],
        takes: &["metric", "se"],
        possible: floors::spread_possible,
        measure: floors::spread,
        text: floors::spread_text,
    },
    Kind {
        name: "rounds",
        needs: &["over", "max", "tolerance"],
        needs_one: &[],
        takes: &["metric", "expected"],
        possible: links::rounds_possible,
        measure: links::rounds,
        text: links::rounds_text,
    },
    Kind {
        name: "predicted",
        needs: &["metric", "expected", "tolerance"],
        needs_one: &[],
        takes: &[],
        possible: against_theory::predicted_possible,
        measure: against_theory::predicted,
        text: against_theory::predicted_text,
    },
    Kind {
        name: "final",
        needs: &[],
        needs_one: &["expected", "min", "max"],
        takes: &["metric", "tolerance", "se", "larger", "by"],
        possible: floors::final_possible,
        measure: floors::last,
        text: floors::final_text,
    },
    Kind {
        name: "gap",
        needs: &["over", "along", "min"],
        needs_one: &[],
        takes: &["metric"],
        possible: links::gap_possible,
        measure: links::gap,
        text: links::gap_text,
    },
    Kind {
        name: "peak",
        needs: &[],
        needs_one: &["min", "max"],
        takes: &["metric", "after"],
        possible: links::peak_possible,
        measure: links::peak,
        text: links::peak_text,
    },
    Kind {
        name: "cost",
        needs: &["over", "level"],
        needs_one: &["min", "max"],
        takes: &["metric", "cost"],
        possible: links::cost_possible,
        measure: links::cost,
        text: links::cost_text,
    },
    Kind {
        name: "scaffnew",
        needs: &[],
        needs_one: &[],
        takes: &["metric"],
        possible: against_theory::scaffnew_possible,
        measure: against_theory::scaffnew,
        text: against_theory::scaffnew_text,
    },
];

/// The names of the kinds.
pub fn kinds() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

fn kind_of(check: &Check) -> &'static Kind {
    KINDS.iter().find(|k| k.name == check.kind).expect("validated")
}

/// Checks the keys of the checks of a file.
///
/// # Errors
/// When a check has an unknown kind, metric or method, lacks a key, or has one that means nothing
/// to it or is out of range; unless options of the command line change the file, also when it is
/// about points that there are not.
pub fn validate(experiment: &Experiment, labels: &[String]) -> Result<()> {
    for (i, check) in experiment.checks.iter().enumerate() {
        let valid = validate_one(labels, check).and_then(|()| {
            match experiment.document.origins.is_empty() && check.unmeasured == Unmeasured::Error {
                true => validate_points(experiment, check, true),
                // What is swept may have been changed: whether there are such points is for `unmeasured` to say.
                false => Ok(()),
            }
        });
        valid.map_err(|e| e.inside(&format!("check[{i}]")))?;
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
    Err(BadInput::new(key, format!("there is no {key} `{}`{near}", quoted(name)), help))
}

fn validate_one(labels: &[String], check: &Check) -> Result<()> {
    let names: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
    known("kind", &check.kind, &names).map_err(|e| BadInput { what: e.what.replace("no kind", "no check of the kind"), ..e })?;
    let kind = kind_of(check);
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
            true => BadInput { what: format!("theory says nothing of `{}`", quoted(metric)), ..e },
            false => e,
        })
    })?;
    validate_numbers(check)?;
    check.cost.as_ref().map_or(Ok(()), |cost| known("cost", cost, super::picture::AXES))?;
    if let Some(level) = check.level {
        require(level > 0.0 && level.is_finite(), "level", level, "a positive level of the metric")?;
    }
    match &check.expected {
        Some(Value::String(q)) if check.kind == "floor" => known("expected", q, QUANTITIES).map_err(|e| BadInput {
            what: e.what.replace("no expected", "no predicted quantity"),
            help: format!("a number, or {}", e.help),
            ..e
        })?,
        Some(v) if v.as_float().is_none_or(|x| !x.is_finite()) && v.as_integer().is_none() => {
            return Err(BadInput::new("expected", format!("{} is not accepted", short(v)), "a number"));
        }
        _ => {}
    }
    validate_together(check)
}

/// Checks that numbers are numbers, and of a size that can be met.
fn validate_numbers(check: &Check) -> Result<()> {
    let bounds = [("min", check.min), ("max", check.max), ("min_eta_h", check.min_eta_h), ("max_eta_h", check.max_eta_h)];
    for (key, x) in bounds {
        require(x.is_none_or(f64::is_finite), key, x.unwrap_or(0.0), "a finite number")?;
    }
    for (key, x) in [("tolerance", check.tolerance), ("se", check.se), ("bias_over_noise", check.bias_over_noise)] {
        require(x.is_none_or(|x| x >= 0.0 && x.is_finite()), key, x.unwrap_or(0.0), "a finite number of at least 0")?;
    }
    // Metrics are not negative, nor are their ratios.
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

/// Refuses keys that would be ignored beside others, and statements that no run can meet.
fn validate_together(check: &Check) -> Result<()> {
    let ignored = |key: &str, beside: &str| {
        let what = format!("a check of kind {} ignores this beside {beside}", check.kind);
        Err(BadInput::new(key, what, format!("{key}, or {beside}")))
    };
    let range = if check.min.is_some() { Some("min") } else { check.max.map(|_| "max") };
    let kind = check.kind.as_str();
    match (kind, range) {
        ("ratio", Some(bound)) if check.tolerance.is_some() => return ignored("tolerance", bound),
        ("final", Some(bound)) => {
            let given = given(check);
            if let Some(key) = ["expected", "tolerance", "se", "larger"].iter().find(|key| given.contains(key)) {
                return ignored(key, bound);
            }
        }
        _ => {}
    }
    if check.larger && (check.tolerance.is_none() || check.se == Some(0.0)) {
        let what = "there is no larger one of a tolerance and standard errors where only one of them is allowed";
        return Err(BadInput::new("larger", what, "a tolerance and a number of standard errors beside it"));
    }
    if let (Some(method), Some(over)) = (&check.method, &check.over) {
        require(method != over, "over", format!("`{}`, which is the method itself,", quoted(over)), "the label of another method")?;
    }
    let expected = number_of(check);
    let positive = match kind {
        "rounds" => Some(expected > 0.0),
        "floor" | "final" => Some(expected >= 0.0),
        _ => None,
    };
    // No number where it is the name of a quantity, or absent.
    let accepted = if kind == "rounds" { "a positive number" } else { "at least 0, as metrics are" };
    require(expected.is_nan() || positive != Some(false), "expected", expected, accepted)
}

/// Checks that there are points that a check is about; with `all`, that each value it names is one of theirs.
fn validate_points(experiment: &Experiment, check: &Check, all: bool) -> Result<()> {
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
    if !experiment.points.iter().any(|p| p.is_at(&check.at)) {
        let wanted: Vec<String> = check.at.iter().map(|(name, value)| format!("{} = {}", quoted(name), short(value))).collect();
        return Err(BadInput::new("at", format!("no point is at {}", wanted.join(", ")), "values that are swept"));
    }
    for (name, value) in check.at.iter().filter(|_| all) {
        for (i, one) in value.as_array().into_iter().flatten().enumerate() {
            let at = [(name.clone(), one.clone())].into();
            if !experiment.points.iter().any(|p| p.is_at(&at)) {
                return Err(BadInput::new(
                    format!("at.{name}[{i}]"),
                    format!("no point is at {} = {}", quoted(name), short(one)),
                    "values that are swept",
                ));
            }
        }
    }
    Ok(())
}

/// What is known of a plan before anything runs.
pub(super) struct Facts<'a> {
    pub plan: &'a Plan,
    pub predictor: &'a Predictor<'a>,
}

impl Facts<'_> {
    /// Whether a check can be measured.
    fn possible(&self, check: &Check) -> Result<()> {
        validate_points(&self.plan.experiment, check, false)?;
        let cells = self.cells(check, false)?;
        if cells.is_empty() {
            let what = match self.refusal(check) {
                Some(reason) => format!("{} is refused at every point: {reason}", method_of(check)),
                None => "no point has the eta H that the check is about".to_string(),
            };
            return Err(BadInput::new("", what, "a check about a point that is run"));
        }
        let shown = |e: BadInput, point: usize| BadInput { what: format!("{}{}", e.what, self.at(point)), ..e };
        for (point, cell) in &cells {
            (kind_of(check).possible)(self, check, *point, *cell).map_err(|e| shown(e, *point))?;
            if check.bias_over_noise.is_some() {
                for quantity in ["bias2", "noise"] {
                    let known = self.predictor.knows(*cell, quantity).map_err(|e| BadInput { key: "bias_over_noise".into(), ..e });
                    known.map_err(|e| shown(e, *point))?;
                }
            }
        }
        if check.along.is_some() {
            self.groups(check, &cells)?;
        }
        Ok(())
    }

    /// The points that a check is about, with the method's cell; `by_theory` leaves out those
    /// that predictions exclude.
    fn cells(&self, check: &Check, by_theory: bool) -> Result<Vec<(usize, usize)>> {
        let method = self.method(method_of(check));
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
            if let Some(times) = check.bias_over_noise.filter(|_| by_theory)
                && self.predictor.number(cell, "bias2")? <= times * self.predictor.number(cell, "noise")?
            {
                continue;
            }
            out.push((i, cell));
        }
        Ok(out)
    }

    /// Why the method of a check is refused, if it is at all points.
    fn refusal(&self, check: &Check) -> Option<String> {
        let method = self.method(method_of(check));
        let mut at = self.plan.points.iter().filter(|p| p.point.is_at(&check.at)).map(|p| &self.plan.cells[p.cells[method]].refused);
        let first = at.next()?.clone()?;
        at.all(Option::is_some).then_some(first)
    }

    /// Groups points that agree in all coordinates but one; each group in the file's order.
    fn groups(&self, check: &Check, cells: &[(usize, usize)]) -> Result<Vec<Vec<(usize, usize)>>> {
        let along = check.along.as_deref().expect("validated");
        /// The points and cells that have the same other coordinates.
        type Group = Vec<(usize, usize)>;
        let mut groups: Vec<Group> = Vec::new();
        let mut index: HashMap<Vec<(String, String)>, usize> = HashMap::new();
        for (point, cell) in cells {
            let coordinates = &self.plan.points[*point].point.coordinates;
            let others = coordinates.iter().filter(|(n, _)| n != along).map(|(n, v)| (n.clone(), v.to_string()));
            let at = *index.entry(others.collect()).or_insert_with(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            groups[at].push((*point, *cell));
        }
        groups.retain(|members| members.len() >= 2);
        match groups.is_empty() {
            true => Err(BadInput::new("along", format!("{along} has one value only"), "a coordinate with two values or more")),
            false => Ok(groups),
        }
    }

    fn method(&self, label: &str) -> usize {
        self.plan.labels.iter().position(|l| l == label).expect("validated")
    }

    /// The cell that `over` names at a point.
    fn over(&self, check: &Check, point: usize) -> Result<usize> {
        let over = over_of(check);
        let cell = self.plan.points[point].cells[self.method(over)];
        match &self.plan.cells[cell].refused {
            Some(reason) => Err(BadInput::new("over", format!("{over} is refused: {reason}"), "a method that is run at these points")),
            None => Ok(cell),
        }
    }

    /// A point's name.
    fn place(&self, point: usize) -> String {
        self.plan.points[point].point.label.clone()
    }

    /// The name of points that differ along a coordinate only.
    fn place_of_group(&self, check: &Check, point: usize) -> String {
        let along = check.along.as_deref().unwrap_or_default();
        self.plan.points[point].point.label_without(along)
    }

    /// A point's name in a sentence.
    fn at(&self, point: usize) -> String {
        let place = self.place(point);
        if place.is_empty() { place } else { format!(" (at {place})") }
    }

    /// Whether a metric is known of a cell.
    fn metric(&self, cell: usize, metric: &str) -> Result<()> {
        let (field, planned) = (self.plan.field(cell), &self.plan.cells[cell]);
        let label = &planned.method.label;
        let root = || match field.root() {
            Some(_) => Ok(()),
            None => Err(BadInput::new("metric", format!("{metric} is not known: theta* is not known"), "metric = \"residual\"")),
        };
        match metric {
            "residual" if field.has_mean() => Ok(()),
            "residual" => {
                let what = "residual is not known: the operators can only be sampled";
                Err(BadInput::new("metric", what, "another metric, such as error"))
            }
            "error" if planned.centre.is_some() => Ok(()),
            "mse" | "error" => root(),
            "value_error" if field.facts().gram().is_none() => {
                let what = "value_error is not known: the problem is no reward process";
                Err(BadInput::new("metric", what, "another metric, such as mse"))
            }
            "control_error" | "lyapunov" if !matches!(planned.method.settings.shape().drift, Drift::ControlVariate { .. }) => {
                let what = format!("{metric} is not known: {label} has no control variates");
                Err(BadInput::new("metric", what, "another metric, or a method of the SCAFFLSA kinds"))
            }
            _ => root(),
        }
    }

    /// Whether a cell has floors of a metric.
    fn floor(&self, cell: usize, metric: &str) -> Result<()> {
        self.metric(cell, metric)?;
        let method = &self.plan.cells[cell].method;
        match method.expect {
            Some(ExpectedStatus::Diverges) => {
                let what = format!("{} is expected to diverge, and has no floor then", method.label);
                Err(BadInput::new("", what, "a check about points where it does not"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a cell has several seeds, which standard errors need.
    fn several_seeds(&self, cell: usize, key: &str) -> Result<()> {
        if self.plan.cells[cell].run.seeds.count() >= 2 {
            return Ok(());
        }
        let help = match key {
            "se" => "at least two seeds under [run], or a tolerance instead of se",
            _ => "at least two seeds under [run]",
        };
        Err(BadInput::new(key, "standard errors need at least two seeds, and there is one", help))
    }

    /// Whether a round is one of the run.
    fn round(&self, cell: usize, key: &str, round: Option<u64>) -> Result<()> {
        let last = self.plan.cells[cell].run.rounds;
        match round.filter(|t| *t > last) {
            Some(t) => Err(BadInput::new(key, format!("round {t} is beyond the last, {last}"), format!("a round from 0 to {last}"))),
            None => Ok(()),
        }
    }
}

/// Refuses a figure of a metric that no run has.
fn figure_is_measured(plan: &Plan) -> Result<()> {
    let predictor = Predictor::new(plan);
    let facts = Facts { plan, predictor: &predictor };
    let cells = || (0..plan.cells.len()).filter(|cell| plan.cells[*cell].refused.is_none());
    for metric in plan.experiment.figure.y.iter().flat_map(|y| y.list()) {
        let reasons: Option<Vec<BadInput>> = cells().map(|cell| facts.metric(cell, metric).err()).collect();
        if let Some(first) = reasons.and_then(|reasons| reasons.into_iter().next()) {
            return Err(BadInput { key: "figure.y".into(), ..first });
        }
    }
    Ok(())
}

/// For each check of a plan, why it is not measured, if it is not: options of the command line leave
/// it no seeds, rounds or points, or the check says that it may be so.
///
/// # Errors
/// When a check can never be measured, at its line.
pub fn unmeasured(plan: &Plan, base: &Path) -> Result<Vec<Option<String>>, Failure> {
    figure_is_measured(plan).map_err(|e| plan.experiment.document.failure(e))?;
    let mut reasons = lacks(plan);
    let document = &plan.experiment.document;
    // The file without options, looked at only where it matters.
    let mut plain: Option<Option<(Document, Vec<Option<BadInput>>)>> = None;
    for (i, check) in plan.experiment.checks.iter().enumerate() {
        let Some(reason) = reasons[i].clone() else { continue };
        let own = format!("check[{i}]");
        let set_here = document.origins.iter().any(|origin| origin.key.starts_with(&own));
        if check.unmeasured == Unmeasured::Note {
            continue;
        }
        if document.origins.is_empty() || set_here {
            return Err(document.failure(reason.inside(&own)));
        }
        let as_written = plain.get_or_insert_with(|| {
            let document = Document::parse(&document.name, &document.text).ok()?;
            let experiment = Experiment::read(document.clone()).ok()?;
            // A file that comes to nothing without options leaves nothing to compare with.
            let plan = Plan::new(experiment, base, Isa::best(), &HashMap::new()).ok()?;
            Some((document, lacks(&plan)))
        });
        if let Some((document, never)) = as_written
            && let Some(Some(never)) = never.get(i)
        {
            return Err(document.failure(never.clone().inside(&own)));
        }
    }
    Ok(reasons.iter_mut().map(|reason| reason.take().map(|e| e.what)).collect())
}

/// For each check of a plan, why it cannot be measured, if it cannot.
fn lacks(plan: &Plan) -> Vec<Option<BadInput>> {
    let predictor = Predictor::new(plan);
    let facts = Facts { plan, predictor: &predictor };
    plan.experiment.checks.iter().map(|check| facts.possible(check).err()).collect()
}

/// What checks look at.
pub(super) struct Context<'a> {
    pub facts: Facts<'a>,
    pub results: &'a Results,
}

/// Measures all checks but those that are `unmeasured`.
pub fn measure(plan: &Plan, results: &Results, predictor: &Predictor<'_>, unmeasured: &[Option<String>]) -> Vec<Verdict> {
    let context = Context { facts: Facts { plan, predictor }, results };
    let checks = plan.experiment.checks.iter().zip(unmeasured);
    checks
        .map(|(check, why)| match why {
            Some(why) => Verdict::excused(about(check), why.clone()),
            None => Verdict::of(about(check), (kind_of(check).measure)(&context, check)),
        })
        .collect()
}

/// What a check is called, and what it states.
pub fn name(check: &Check) -> String {
    check.name.clone().unwrap_or_else(|| statement(check))
}

fn about(check: &Check) -> About {
    About {
        name: check.name.clone(),
        kind: check.kind.clone(),
        method: method_of(check).to_string(),
        statement: statement(check),
        expected_to_fail: check.expected_to_fail.clone(),
    }
}

/// What a check states, in words.
pub fn statement(check: &Check) -> String {
    let at: Vec<String> = check.at.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let at = if at.is_empty() { String::new() } else { format!(" (at {})", at.join(", ")) };
    format!("{}{at}", (kind_of(check).text)(check))
}

impl Context<'_> {
    /// The points that a check is about, with the method's cell.
    pub fn cells(&self, check: &Check) -> Result<Vec<(usize, usize)>> {
        self.facts.cells(check, true)
    }

    /// The floors of a cell's seeds.
    pub fn floors(&self, cell: usize, metric: &str) -> Result<Vec<f64>> {
        let label = &self.facts.plan.cells[cell].method.label;
        if !self.results.is_ok(cell) {
            return Err(BadInput::new("", format!("{label} diverged"), ""));
        }
        self.results.floors(cell, metric).ok_or_else(|| BadInput::new("", format!("{metric} is not known for {label}"), ""))
    }

    /// A metric of every seed at the last recorded round that is not after `round`, or at the last.
    pub fn by(&self, cell: usize, round: Option<u64>, metric: &str) -> Result<Vec<f64>> {
        let label = &self.facts.plan.cells[cell].method.label;
        let values: Option<Vec<f64>> = self.results.cells[cell].iter().map(|seed| seed.by(round, metric)).collect();
        values.ok_or_else(|| BadInput::new("", format!("{metric} is not known for {label}"), ""))
    }
}

fn metric_of(check: &Check) -> &str {
    check.metric.as_deref().unwrap_or("mse")
}

fn method_of(check: &Check) -> &str {
    check.method.as_deref().expect("validated")
}

fn over_of(check: &Check) -> &str {
    check.over.as_deref().expect("validated")
}

/// The number that is expected; none where it is the name of a quantity, or absent.
fn number_of(check: &Check) -> f64 {
    let value = check.expected.as_ref();
    value.and_then(|v| v.as_float().or(v.as_integer().map(|i| i as f64))).unwrap_or(f64::NAN)
}

/// The range that is asked for, in words.
fn range_of(check: &Check) -> String {
    verdict::range(check.min.unwrap_or(f64::NEG_INFINITY), check.max.unwrap_or(f64::INFINITY))
}

/// The standard error of a mean over seeds; one seed has none.
fn standard_error(values: &[f64], se: f64) -> Option<f64> {
    (values.len() > 1).then_some(se)
}
