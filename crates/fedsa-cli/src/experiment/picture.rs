//! The figure of an experiment.

mod cost;
mod table;

use std::collections::{BTreeSet, HashMap};

use fedsa::error::{Result, require};
use fedsa::round::Status;
use toml::Value;

use super::checks::Verdict;
use super::plan::Plan;
use super::predict::{Predictor, QUANTITIES};
use super::results::{Estimate, METRICS, PREDICTED_METRICS, Results, Row, quantile};
use crate::config::Experiment;
use crate::config::schema::{CurveCentre, FigureKind};
use crate::figure::{Curve, Figure, Level, Panel, Style, Table};

/// What is counted along the rounds.
pub(super) const AXES: &[&str] = &["round", "exchanges", "samples", "bits_up", "bits_down", "vectors_up", "messages"];

/// Checks that the figure can be drawn.
///
/// # Errors
/// When it names an unknown axis, metric, coordinate, method or quantity.
pub fn validate(experiment: &Experiment, labels: &[String]) -> Result<()> {
    let figure = &experiment.figure;
    let coordinates: Vec<&str> = experiment.points.iter().flat_map(|p| &p.coordinates).map(|(n, _)| n.as_str()).collect();
    let check = || {
        if let Some(x) = &figure.x {
            let known = match figure.kind {
                FigureKind::Curves => AXES.contains(&x.as_str()),
                FigureKind::Scaling | FigureKind::Cost | FigureKind::Table => coordinates.contains(&x.as_str()),
            };
            let accepted = if figure.kind == FigureKind::Curves { AXES.join(", ") } else { "a coordinate that is swept".into() };
            require(known, "x", format!("\"{x}\""), &accepted)?;
        }
        let along = matches!(figure.kind, FigureKind::Scaling | FigureKind::Cost);
        require(!along || figure.x.is_some(), "x", "missing", "given: the coordinate along which something is drawn")?;
        let is_cost = figure.kind == FigureKind::Cost;
        let levels = figure.level.as_ref().map_or(&[][..], |level| level.list());
        let good = if is_cost { !levels.is_empty() && levels.iter().all(|x| *x > 0.0 && x.is_finite()) } else { figure.level.is_none() };
        let shown = figure.level.as_ref().map_or("missing".into(), |_| format!("{levels:?}"));
        require(good, "level", shown, "positive levels of the metric for kind = \"cost\", and none for other kinds")?;
        if let Some(cost) = &figure.cost {
            let known = is_cost && AXES.contains(&cost.as_str());
            require(known, "cost", format!("\"{cost}\""), &format!("with kind = \"cost\", one of {}", AXES.join(", ")))?;
        }
        for y in figure.y.iter().flat_map(|y| y.list()) {
            require(METRICS.contains(&y), "y", format!("\"{y}\""), &format!("one of {}", METRICS.join(", ")))?;
        }
        for name in figure.panels.iter().flatten() {
            require(coordinates.contains(&name.as_str()), "panels", format!("\"{name}\""), "coordinates that are swept")?;
        }
        let shown = figure.y.as_ref().map_or(vec!["mse"], |y| y.list());
        let predicted = shown.iter().any(|y| PREDICTED_METRICS.contains(y));
        for (key, given) in [("levels", !figure.levels.is_empty()), ("exact", !figure.exact.is_empty())] {
            let accepted = format!("a figure of {}, which theory predicts", PREDICTED_METRICS.join(" or "));
            require(predicted || !given, key, format!("a prediction beside {}", shown.join(", ")), &accepted)?;
        }
        let levels = figure.levels.keys().map(|label| ("levels", label));
        for (key, label) in levels.chain(figure.exact.iter().map(|label| ("exact", label))) {
            require(labels.contains(label), key, format!("\"{label}\""), &format!("a method's label: {}", labels.join(", ")))?;
        }
        for quantity in figure.levels.values().flatten() {
            require(
                QUANTITIES.contains(&quantity.as_str()),
                "levels",
                format!("\"{quantity}\""),
                &format!("one of {}", QUANTITIES.join(", ")),
            )?;
        }
        Ok(())
    };
    check().map_err(|e: fedsa::error::BadInput| e.inside("figure"))
}

/// What quantities are called in legends.
fn quantity_text(quantity: &str) -> &str {
    match quantity {
        "bias2" => "predicted bias²",
        "noise" => "exact noise",
        "floor" => "exact floor",
        other => other,
    }
}

/// The dashes of a quantity's level: quantities of one method share its colour.
fn quantity_dash(quantity: &str) -> usize {
    match quantity {
        "bias2" => 0,
        "noise" => 1,
        _ => 2,
    }
}

/// What metrics are called on axes.
fn metric_text(metric: &str) -> &str {
    match metric {
        "mse" => "‖θ − θ*‖²",
        "error" => "‖θ − centre‖²",
        "residual" => "‖mean ḡ(θ)‖",
        "value_error" => "value error²",
        "control_error" => "mean ‖ξ − ξ*‖²",
        "lyapunov" => "ψ",
        other => other,
    }
}

fn axis_text(axis: &str) -> &str {
    match axis {
        "round" => "communication round t",
        "samples" => "samples, all agents",
        "bits_up" => "bits sent up, all agents",
        "bits_down" => "bits sent down, all agents",
        "vectors_up" => "vectors sent up, all agents",
        other => other,
    }
}

/// The count of a recorded round that an axis shows.
pub(super) fn count_of(axis: &str) -> fn(&Row) -> f64 {
    match axis {
        "exchanges" => |row| row.ledger.exchanges as f64,
        "samples" => |row| row.ledger.samples as f64,
        "bits_up" => |row| row.ledger.bits_up as f64,
        "bits_down" => |row| row.ledger.bits_down as f64,
        "vectors_up" => |row| row.ledger.vectors_up as f64,
        "messages" => |row| row.ledger.messages as f64,
        _ => |row| row.round as f64,
    }
}

fn axis_value(row: &Row, axis: &str) -> f64 {
    count_of(axis)(row)
}

/// What is shown: curves, or a table.
pub enum Picture {
    /// Panels of curves.
    Chart(Figure),
    /// Numbers.
    Table(Table),
}

impl Picture {
    /// As SVG.
    pub fn svg(&self) -> String {
        match self {
            Picture::Chart(figure) => figure.svg(),
            Picture::Table(table) => table.svg(),
        }
    }

    /// As PNG.
    pub fn png(&self) -> Vec<u8> {
        match self {
            Picture::Chart(figure) => figure.png(),
            Picture::Table(table) => table.png(),
        }
    }
}

/// A swept value as panels show it.
fn coordinate_text(name: &str, value: &Value) -> String {
    let name = match name {
        "step_size" => "η",
        "local_steps" => "H",
        "agents" => "N",
        "talk_probability" => "p",
        other => other,
    };
    match value {
        Value::String(s) => s.clone(),
        other => format!("{name} = {other}"),
    }
}

/// Draws the figure.
pub fn draw(plan: &Plan, results: &Results, predictor: &Predictor<'_>, verdicts: &[Verdict], quick: bool) -> Picture {
    let mut picture = match plan.experiment.figure.kind {
        FigureKind::Curves => Picture::Chart(curves(plan, results, predictor)),
        FigureKind::Scaling => Picture::Chart(scaling(plan, results, predictor)),
        FigureKind::Cost => Picture::Chart(cost::cost(plan, results)),
        FigureKind::Table => Picture::Table(table::table(plan, results)),
    };
    let notes = match &mut picture {
        Picture::Chart(figure) => &mut figure.notes,
        Picture::Table(table) => &mut table.notes,
    };
    notes.extend(verdicts.iter().filter_map(|verdict| verdict.note(quick)));
    picture
}

/// Panels by the values of some coordinates, each with the points that have them.
fn panels(plan: &Plan, by: &[String]) -> Vec<(String, Vec<usize>)> {
    let mut out: Vec<(String, Vec<usize>)> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for (i, planned) in plan.points.iter().enumerate() {
        let parts = planned.point.coordinates.iter().filter(|(n, _)| by.contains(n)).map(|(n, v)| coordinate_text(n, v));
        let title = parts.collect::<Vec<_>>().join(", ");
        let at = *index.entry(title.clone()).or_insert_with(|| {
            out.push((title, Vec::new()));
            out.len() - 1
        });
        out[at].1.push(i);
    }
    out
}

fn curves(plan: &Plan, results: &Results, predictor: &Predictor<'_>) -> Figure {
    let spec = &plan.experiment.figure;
    let all: Vec<String> = plan.points.iter().flat_map(|p| p.point.coordinates.iter().map(|(n, _)| n.clone())).collect();
    let by = spec.panels.clone().unwrap_or(all);
    let axis = spec.x.as_deref().unwrap_or("round");
    let metrics = metrics(plan);
    let mut figure = Figure { title: plan.experiment.title.clone(), columns: spec.columns, ..Figure::default() };
    for (title, points) in panels(plan, &by) {
        let mut panel = Panel {
            title,
            x_label: axis_text(axis).into(),
            y_label: y_label(&metrics),
            x_log: spec.x_log.unwrap_or(false),
            y_log: true,
            y_range: spec.y_range.map(|[a, b]| (a, b)),
            ..Panel::default()
        };
        let mut levels: BTreeSet<String> = BTreeSet::new();
        let mut color = 0;
        for (m, label) in plan.labels.iter().enumerate() {
            for (point, metric) in points.iter().flat_map(|p| metrics.iter().map(move |metric| (p, *metric))) {
                let cell = plan.points[*point].cells[m];
                let rest = plan.points[*point].point.coordinates.iter().filter(|(n, _)| !by.contains(n));
                let rest = rest.map(|(n, v)| coordinate_text(n, v));
                let name = curve_name(label, rest, (metrics.len() > 1).then_some(metric));
                panel.curves.push(curve(results, cell, metric, axis, &name, color, spec.centre, panel.x_log));
                let predicted = PREDICTED_METRICS.contains(&metric);
                if predicted && spec.exact.contains(label) {
                    panel.curves.extend(exact_curve(plan, results, predictor, cell, metric, axis, &name, color));
                }
                for quantity in spec.levels.get(label).into_iter().flatten().filter(|_| predicted) {
                    let text = format!("{label}: {}", quantity_text(quantity));
                    if let Ok(y) = predictor.number(cell, quantity)
                        && levels.insert(text.clone())
                    {
                        panel.levels.push(Level { label: text, y, color, dash: quantity_dash(quantity) });
                    }
                }
                color += 1;
                if let Some(note) = status_note(plan, results, cell) {
                    panel.notes.push(note);
                }
            }
        }
        figure.panels.push(panel);
    }
    figure
}

/// A cell's exact mean-square error at the rounds that were measured, along the same axis:
/// what rounds cost in samples or bits is known from their ledger.
#[allow(clippy::too_many_arguments, reason = "what a curve is drawn from")]
fn exact_curve(
    plan: &Plan,
    results: &Results,
    predictor: &Predictor<'_>,
    cell: usize,
    metric: &str,
    axis: &str,
    name: &str,
    color: usize,
) -> Option<Curve> {
    let exact = predictor.mse(cell, &predictor.curve(cell).ok()?, metric);
    let grid = &plan.cells[cell].grid;
    let at = |row: &Row| Some((axis_value(row, axis), exact[grid.binary_search(&row.round).ok()?]));
    let (x, y) = results.curve(cell, metric).iter().filter_map(|(row, _)| at(row)).unzip();
    Some(Curve { label: format!("{name}, exact"), color, x, y, band: None, style: Style::Dashed })
}

/// What is drawn: mse, or the residual where theta* is not known, unless the file says otherwise.
fn metrics(plan: &Plan) -> Vec<&str> {
    match &plan.experiment.figure.y {
        Some(y) => y.list(),
        None if plan.fields.iter().all(|f| f.field.root().is_some()) => vec!["mse"],
        None => vec!["residual"],
    }
}

fn y_label(metrics: &[&str]) -> String {
    metrics.iter().map(|m| metric_text(m)).collect::<Vec<_>>().join("  and  ")
}

/// A curve's entry in the legend.
fn curve_name(label: &str, rest: impl Iterator<Item = String>, metric: Option<&str>) -> String {
    std::iter::once(label.to_string()).chain(metric.map(|m| metric_text(m).to_string())).chain(rest).collect::<Vec<_>>().join(", ")
}

/// Says of a cell that diverged when it did, and whether that was expected.
fn status_note(plan: &Plan, results: &Results, cell: usize) -> Option<String> {
    let round = results.cells[cell].iter().find_map(|s| match s.status {
        Status::Diverged { round } => Some(round),
        Status::Ok => None,
    });
    let label = &plan.cells[cell].method.label;
    if let Some(reason) = &plan.cells[cell].refused {
        return Some(format!("{label} is refused: {reason}"));
    }
    match (round, results.as_expected(plan, cell)) {
        (Some(round), true) => Some(format!("{label} diverges (round {round}), as expected")),
        (Some(round), false) => Some(format!("{label} diverged in round {round}")),
        (None, false) => Some(format!("{label} was expected to diverge and did not")),
        (None, true) => None,
    }
}

#[allow(clippy::too_many_arguments, reason = "what a curve is drawn from")]
fn curve(results: &Results, cell: usize, metric: &str, axis: &str, label: &str, color: usize, centre: CurveCentre, x_log: bool) -> Curve {
    let data: Vec<(Row, Vec<f64>)> = results.curve(cell, metric).into_iter().filter(|(row, _)| !x_log || row.round > 0).collect();
    let x = data.iter().map(|(row, _)| axis_value(row, axis)).collect();
    let (mut y, mut low, mut high) = (Vec::new(), Vec::new(), Vec::new());
    for (_, values) in &data {
        let (middle, a, b) = match centre {
            CurveCentre::Mean => {
                // One standard deviation over seeds, kept positive for logarithmic axes.
                let Estimate { mean, se } = Estimate::of(values);
                let sd = se * (values.len() as f64).sqrt();
                (mean, (mean - sd).max(values.iter().copied().fold(f64::INFINITY, f64::min)), mean + sd)
            }
            CurveCentre::Median => {
                let mut sorted = values.clone();
                sorted.sort_by(f64::total_cmp);
                (quantile(&sorted, 0.5), quantile(&sorted, 0.1), quantile(&sorted, 0.9))
            }
        };
        y.push(middle);
        low.push(a);
        high.push(b);
    }
    let band = (results.cells[cell].len() > 1).then_some((low, high));
    Curve { label: label.to_string(), color, x, y, band, style: Style::Line }
}

fn scaling(plan: &Plan, results: &Results, predictor: &Predictor<'_>) -> Figure {
    let spec = &plan.experiment.figure;
    let axis = spec.x.as_deref().expect("validated");
    let metrics = metrics(plan);
    let predicted_metric = metrics.iter().copied().find(|metric| PREDICTED_METRICS.contains(metric));
    let by = spec.panels.clone().unwrap_or_default();
    let mut figure = Figure { title: plan.experiment.title.clone(), columns: spec.columns, ..Figure::default() };
    for (title, points) in panels(plan, &by) {
        let mut panel = Panel {
            title,
            x_label: coordinate_label(axis),
            y_label: y_label(&metrics),
            x_log: spec.x_log.unwrap_or(true),
            y_log: true,
            y_range: spec.y_range.map(|[a, b]| (a, b)),
            ..Panel::default()
        };
        let mut color = 0;
        for (m, label) in plan.labels.iter().enumerate() {
            // One line per metric and combination of what is neither the axis nor a panel.
            let mut lines: Vec<(String, Vec<(f64, Estimate)>)> = Vec::new();
            let mut predicted: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
            for (point, metric) in points.iter().flat_map(|p| metrics.iter().map(move |metric| (p, *metric))) {
                let (planned, cell) = (&plan.points[*point], plan.points[*point].cells[m]);
                let Some(x) = planned.point.number(axis) else { continue };
                let rest = planned.point.coordinates.iter().filter(|(n, _)| n != axis && !by.contains(n));
                let rest: Vec<String> = rest.map(|(n, v)| coordinate_text(n, v)).collect();
                if let (Some(floors), true) = (results.floors(cell, metric), results.is_ok(cell)) {
                    let name = curve_name(label, rest.iter().cloned(), (metrics.len() > 1).then_some(metric));
                    add_to(&mut lines, name, (x, Estimate::of(&floors)));
                }
                if Some(metric) == predicted_metric {
                    for quantity in spec.levels.get(label).into_iter().flatten() {
                        if let Ok(y) = predictor.number(cell, quantity) {
                            let name = curve_name(&format!("{label}: {}", quantity_text(quantity)), rest.iter().cloned(), None);
                            add_to(&mut predicted, name, (x, y));
                        }
                    }
                }
            }
            for (label, line) in predicted {
                let (x, y) = line.into_iter().unzip();
                panel.curves.push(Curve { label, color, x, y, band: None, style: Style::Dashed });
            }
            for (label, line) in lines {
                panel.curves.push(Curve {
                    label,
                    color,
                    x: line.iter().map(|(x, _)| *x).collect(),
                    y: line.iter().map(|(_, e)| e.mean).collect(),
                    band: Some((line.iter().map(|(_, e)| e.mean - e.se).collect(), line.iter().map(|(_, e)| e.mean + e.se).collect())),
                    style: Style::LinePoints,
                });
                color += 1;
            }
        }
        figure.panels.push(panel);
    }
    figure
}

fn coordinate_label(name: &str) -> String {
    match name {
        "agents" => "number of agents N".into(),
        "step_size" => "step size η".into(),
        "local_steps" => "local steps H".into(),
        other => other.to_string(),
    }
}

/// Adds a point to the line of that name, which is begun if there is none.
fn add_to<T>(lines: &mut Vec<(String, Vec<T>)>, name: String, point: T) {
    match lines.iter_mut().find(|(n, _)| *n == name) {
        Some((_, line)) => line.push(point),
        None => lines.push((name, vec![point])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::has_glyphs;

    #[test]
    fn the_font_has_what_axes_and_legends_say() {
        let metrics = METRICS.iter().map(|m| metric_text(m));
        let quantities = QUANTITIES.iter().map(|q| quantity_text(q));
        let coordinates = ["step_size", "local_steps", "agents", "talk_probability"];
        let axes = AXES.iter().map(|a| axis_text(a).to_string()).chain(coordinates.map(coordinate_label));
        let values = coordinates.map(|name| coordinate_text(name, &Value::Integer(1)));
        for text in metrics.chain(quantities).map(str::to_string).chain(axes).chain(values) {
            assert!(has_glyphs(&text), "{text}");
        }
        assert!(!has_glyphs("\u{4e00}"), "what the font lacks is noticed");
    }
}
