//! Validation of the figure's keys.

use std::collections::HashMap;
use std::fmt::Display;

use fedsa::error::{Error, Result, require};
use fedsa::record;
use toml::Value;

use crate::axis::Axis;
use crate::config::schema::FigureKind::{Cost, Curves, Scaling, Table as Numbers};
use crate::config::schema::{Band, CurveCentre, FigureKind, FigureSpec};
use crate::config::{Experiment, SweepPoint};
use crate::names::{self, QUANTITIES};

const WIDTHS: std::ops::RangeInclusive<f64> = 300.0..=4000.0;
const DPIS: std::ops::RangeInclusive<f64> = 24.0..=1200.0;

/// Checks that the figure can be drawn.
///
/// # Errors
/// When it names an unknown axis, metric, coordinate, method or quantity, has a value that cannot be drawn, or has a key
/// of another kind.
pub fn validate(experiment: &Experiment, labels: &[String]) -> Result<()> {
    let figure = &experiment.figure;
    named(experiment, labels).and_then(|()| kinds(figure)).and_then(|()| values(experiment)).map_err(|e| e.inside("figure"))
}

fn kind_name(kind: FigureKind) -> &'static str {
    match kind {
        Curves => "curves",
        Scaling => "scaling",
        Cost => "cost",
        Numbers => "table",
    }
}

/// Checks the names in the figure's keys.
fn named(experiment: &Experiment, labels: &[String]) -> Result<()> {
    let figure = &experiment.figure;
    let coordinates: HashMap<&str, &Value> =
        experiment.points.iter().flat_map(|p| &p.coordinates).map(|(n, value)| (n.as_str(), value)).collect();
    let axes = figure.x.as_ref().map_or(&[][..], |x| x.list());
    require(figure.x.is_none() || !axes.is_empty(), "x", "[]", "at least one axis")?;
    let twice = (1..axes.len()).any(|i| axes[..i].contains(&axes[i]));
    require(!twice, "x", format!("{axes:?}"), "each axis once")?;
    let has_one = figure.kind == Curves || axes.len() <= 1;
    require(has_one, "x", format!("{axes:?}"), &format!("one axis for kind = \"{}\"", kind_name(figure.kind)))?;
    for x in axes {
        let known = if figure.kind == Curves { names::axes().contains(&x.as_str()) } else { coordinates.contains_key(x.as_str()) };
        let accepted = if figure.kind == Curves { names::axes().join(", ") } else { "a coordinate that is swept".into() };
        require(known, "x", format!("\"{x}\""), &accepted)?;
    }
    if figure.kind == Curves && axes.iter().any(|x| x == Axis::SECONDS) {
        let kind_of = |point: &SweepPoint| point.sections().problem.as_ref()?.get("kind")?.as_str().map(str::to_string);
        let are_there = experiment.points.iter().all(|point| kind_of(point).as_deref() == Some("elsewhere"));
        let accepted = format!("the results of a federation of machines; or {}", names::counts().join(", "));
        require(are_there, "x", format!("\"{}\" of a run in one process, which takes none that are its own", Axis::SECONDS), &accepted)?;
    }
    require(figure.kind != Scaling || figure.x.is_some(), "x", "missing", "given: the coordinate along which something is drawn")?;
    if let Some(cost) = &figure.cost {
        let known = figure.kind == Cost && record::count(cost).is_some();
        require(known, "cost", format!("\"{cost}\""), &format!("with kind = \"cost\", one of {}", names::counts().join(", ")))?;
    }
    let shown = figure.y.as_ref().map_or(vec!["mse"], |y| y.list());
    require(!shown.is_empty(), "y", "[]", &format!("at least one of {}", names::metrics().join(", ")))?;
    let accepted: Vec<&str> = names::metrics().into_iter().chain(figure.own.iter().map(String::as_str)).collect();
    for y in &shown {
        require(accepted.contains(y), "y", format!("\"{y}\""), &format!("one of {}", accepted.join(", ")))?;
    }
    let twice = (1..shown.len()).find(|i| shown[..*i].contains(&shown[*i]));
    require(twice.is_none(), "y", format!("{shown:?}"), "each metric once")?;
    let is_one = matches!(figure.kind, Curves | Scaling) || shown.len() == 1;
    require(is_one, "y", format!("{shown:?}"), &format!("one metric for kind = \"{}\"", kind_name(figure.kind)))?;
    chosen("methods", figure.methods.as_ref(), labels.iter())?;
    chosen("points", figure.points.as_ref(), experiment.points.iter().map(|point| &point.label))?;
    for name in figure.panels.iter().flatten() {
        require(coordinates.contains_key(name.as_str()), "panels", format!("\"{name}\""), "coordinates that are swept")?;
    }
    let predicted = shown.iter().any(|y| names::predicted_metrics().contains(y));
    for (key, given) in [("levels", !figure.levels.is_empty()), ("exact", !figure.exact.is_empty())] {
        let accepted = format!("a figure of {}, which theory predicts", names::predicted_metrics().join(" or "));
        require(predicted || !given, key, format!("a prediction beside {}", shown.join(", ")), &accepted)?;
    }
    let levels = figure.levels.keys().map(|label| ("levels", label));
    for (key, label) in levels.chain(figure.exact.iter().map(|label| ("exact", label))) {
        require(labels.contains(label), key, format!("\"{label}\""), &format!("a method's label: {}", labels.join(", ")))?;
    }
    for quantity in figure.levels.values().flatten() {
        let known = QUANTITIES.contains(&quantity.as_str());
        require(known, "levels", format!("\"{quantity}\""), &format!("one of {}", QUANTITIES.join(", ")))?;
    }
    Ok(())
}

/// Checks that labels exist.
fn chosen<'a>(key: &str, wanted: Option<&Vec<String>>, all: impl Iterator<Item = &'a String>) -> Result<()> {
    const MAX_NAMED: usize = 12;
    let Some(wanted) = wanted else { return Ok(()) };
    // A file without sweeps has one point, without a label.
    let all: Vec<&String> = all.filter(|label| !label.is_empty()).collect();
    let refused = match wanted.iter().find(|label| !all.contains(label)) {
        Some(unknown) => format!("\"{unknown}\""),
        None if wanted.is_empty() => "[]".into(),
        None => return Ok(()),
    };
    let named: Vec<&str> = all.iter().take(MAX_NAMED).map(|label| label.as_str()).collect();
    if all.is_empty() {
        return require(false, key, refused, &format!("no {key} here: nothing is swept"));
    }
    let more = if all.len() > named.len() { format!(" and {} more", all.len() - named.len()) } else { String::new() };
    require(false, key, refused, &format!("labels of {key}: {}{more}", named.join(", ")))
}

/// Refuses keys that the figure's kind does not have.
fn kinds(figure: &FigureSpec) -> Result<()> {
    let rows: [(&str, bool, &[FigureKind]); 13] = [
        ("level", figure.level.is_some(), &[Cost]),
        ("relative", figure.relative, &[Cost]),
        ("centre", figure.centre.is_some(), &[Curves]),
        ("band", figure.band.is_some(), &[Curves, Scaling]),
        ("levels", !figure.levels.is_empty(), &[Curves, Scaling]),
        ("exact", !figure.exact.is_empty(), &[Curves]),
        ("ratios", figure.ratios, &[Curves]),
        ("slope", figure.slope.is_some(), &[Curves, Scaling, Cost]),
        ("x_log", figure.x_log.is_some(), &[Curves, Scaling, Cost]),
        ("y_log", figure.y_log.is_some(), &[Curves, Scaling, Cost]),
        ("y_range", figure.y_range.is_some(), &[Curves, Scaling, Cost]),
        ("share_y", figure.share_y.is_some(), &[Curves, Scaling, Cost]),
        ("columns", figure.columns.is_some(), &[Curves, Scaling, Cost]),
    ];
    for (key, given, kinds) in rows {
        if given && !kinds.contains(&figure.kind) {
            let kinds = kinds.iter().map(|kind| kind_name(*kind)).collect::<Vec<_>>().join(", ");
            let what = format!("this is not a key of a figure of kind {}", kind_name(figure.kind));
            return Err(Error::new(key, what, format!("no such key here; it is for the kinds {kinds}")));
        }
        // Costs without a coordinate are a table.
        if given && figure.kind == Cost && figure.x.is_none() && !matches!(key, "level" | "relative") {
            let what = "this is not a key of a table of costs".to_string();
            return Err(Error::new(
                key,
                what,
                "x = a coordinate that is swept, along which costs are drawn; or no such key here".to_string(),
            ));
        }
    }
    let is_median = figure.centre == Some(CurveCentre::Median);
    let goes_with = !is_median || matches!(figure.band, None | Some(Band::None));
    require(goes_with, "band", "one around a mean", "\"none\" with centre = \"median\", which has quantiles for a band")?;
    require(
        !figure.ratios || !figure.exact.is_empty(),
        "ratios",
        "true without `exact`",
        "the labels of methods in `exact`, whose ratios are drawn",
    )?;
    require(!figure.ratios || !is_median, "ratios", "true for medians", "centre = \"mean\": theory predicts means")
}

/// Checks numbers.
fn values(experiment: &Experiment) -> Result<()> {
    let figure = &experiment.figure;
    if figure.kind == Cost {
        let levels = figure.level.as_ref().map_or(&[][..], |level| level.list());
        let shown = figure.level.as_ref().map_or("missing".into(), |_| format!("{levels:?}"));
        let good = !levels.is_empty() && levels.iter().all(|x| *x > 0.0 && x.is_finite());
        require(good, "level", shown, "positive levels of the metric, at least one")?;
    }
    if let Some([low, high]) = figure.y_range {
        let is_log = figure.is_y_log();
        let good = (low > 0.0 || !is_log && low.is_finite()) && low < high && high.is_finite();
        let accepted =
            if is_log { "[low, high] with 0 < low < high: the vertical axis is logarithmic" } else { "[low, high] with low < high" };
        require(good, "y_range", format!("[{low}, {high}]"), accepted)?;
    }
    let within = |key: &str, value: Option<f64>, range: &std::ops::RangeInclusive<f64>, unit: &str| match value {
        Some(x) => require(range.contains(&x), key, x, &format!("{} to {} {unit}", range.start(), range.end())),
        None => Ok(()),
    };
    within("width", figure.width, &WIDTHS, "pixels")?;
    within("dpi", figure.dpi, &DPIS, "dots to an inch")?;
    if let Some(columns) = figure.columns {
        require(columns > 0, "columns", columns, "at least 1 panel in a row")?;
    }
    if let Some(formats) = &figure.formats {
        let is_twice = (1..formats.len()).any(|i| formats[..i].contains(&formats[i]));
        require(!is_twice, "formats", format!("{formats:?}").to_lowercase(), "each format once")?;
        require(!formats.is_empty(), "formats", "[]", "at least one of \"svg\", \"png\", \"pdf\"")?;
    }
    if let Some(slope) = figure.slope {
        require(slope.is_finite(), "slope", slope, "a finite number")?;
        let is_log = figure.x_log.unwrap_or(figure.kind != Curves);
        require(is_log, "slope", "a slope on a linear axis", "x_log = true: a power law is straight on logarithmic axes")?;
        require(figure.is_y_log(), "slope", "a slope with y_log = false", "y_log = true: a power law is straight on logarithmic axes")?;
    }
    if let (Scaling | Cost, Some(x)) = (figure.kind, figure.coordinate()) {
        along(experiment, x)?;
    }
    Ok(())
}

/// Checks the values of the coordinate on the horizontal axis.
fn along(experiment: &Experiment, x: &str) -> Result<()> {
    let values = || experiment.points.iter().flat_map(|p| p.coordinates.iter().filter(|(name, _)| name == x).map(|(_, value)| value));
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
    if let Some(text) = values().find(|value| number(value).is_none()) {
        let what: &dyn Display = text;
        require(false, "x", format!("\"{x}\" with the value {what}"), "a coordinate whose values are numbers")?;
    }
    let is_log = experiment.figure.x_log == Some(true);
    if let Some(low) = values().filter_map(number).find(|value| is_log && !(*value > 0.0)) {
        require(false, "x_log", format!("true with {x} = {low}"), "x_log = false, or positive values")?;
    }
    Ok(())
}
