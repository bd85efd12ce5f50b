//! The figure of an experiment.

mod caption;
mod cost;
mod curves;
mod lines;
mod scaling;
mod table;

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::error::{ErrorKind, Result, require};
use fedsa::note::{Note, NoteCode};
use fedsa::record::{COUNTS, Count};
use fedsa_theory::Accuracy;
use toml::Value;

use self::lines::Lines;
use super::axis::Axis;
use super::checks::Verdict;
use super::plan::Plan;
use super::predict::Predictor;
use super::results::{Estimate, Recorded, Results, paid};
use crate::config::Experiment;
use crate::config::schema::{self, Band, CurveCentre, ExpectedStatus, FigureKind};
use crate::{names, numbers};
pub use fedsa_figure::heat_color;
use fedsa_figure::{CellTable, Chart, Format, HeatMaps, Level, Panel, PlottedCurve, Provenance, RenderOptions, Style, number_text};

/// The largest numbers of panels, of curves or levels per panel, and of rows and columns of a table. The first ones are drawn.
const MAX_PANELS: usize = 24;
const MAX_CURVES: usize = 24;
const MAX_ROWS: usize = 150;
const MAX_COLUMNS: usize = 32;
/// The largest number of notes of one sort under a panel, and of notes under a picture.
const MAX_PANEL_NOTES: usize = 6;
const MAX_NOTES: usize = 12;

/// The names of quantities in legends, with how they are known.
fn quantity_text(quantity: &str, accuracy: Option<Accuracy>) -> String {
    let name = match quantity {
        "bias2" => return "predicted bias²".into(),
        "noise" | "noise_leading_order" => "noise",
        "floor" | "floor_leading_order" => "floor",
        "floor_bias2" | "bias2_leading_order" => "bias²",
        "finite_floor" => "floor of these rounds",
        other => return other.into(),
    };
    match accuracy {
        None | Some(Accuracy::Exact) => format!("exact {name}"),
        Some(other) => format!("predicted {name} ({other})"),
    }
}

/// The note on a prediction that may be far off.
fn doubt(name: &str, accuracy: Accuracy) -> Option<String> {
    accuracy.warning().map(|warning| format!("{name}: {warning}"))
}

/// The least accurate of some predictions.
fn worst(accuracies: impl Iterator<Item = Accuracy>) -> Option<Accuracy> {
    accuracies.reduce(Accuracy::or_worse)
}

/// The dash pattern of a quantity's level; quantities of one method have the same colour.
fn quantity_dash(quantity: &str) -> usize {
    match quantity {
        "bias2" => 0,
        "noise" => 1,
        _ => 2,
    }
}

/// The names of metrics on axes.
fn metric_text(metric: &str) -> &str {
    fedsa::metrics::metric(metric).map_or(metric, |metric| metric.axis)
}

/// The picture of an experiment.
#[derive(Debug)]
pub enum Picture {
    /// Panels of curves.
    Chart(Chart),
    /// A table of numbers.
    Table(CellTable),
    /// Values over two variables.
    Heat(HeatMaps),
}

impl Picture {
    /// The bytes of the picture's file.
    pub fn render(&self, format: Format, look: &RenderOptions, about: &Provenance) -> Vec<u8> {
        match self {
            Picture::Chart(figure) => figure.render(format, look, about),
            Picture::Table(table) => table.render(format, look, about),
            Picture::Heat(maps) => maps.render(format, look, about),
        }
    }
}

/// A picture with everything that its files need.
#[derive(Debug, Clone)]
pub struct DrawnFigure {
    picture: Arc<Picture>,
    look: RenderOptions,
    id: String,
    config: String,
}

impl Picture {
    /// The text below the picture in a paper: title, caption and notes.
    pub fn told(&self) -> String {
        let (title, caption, notes) = match self {
            Picture::Chart(chart) => (&chart.title, &chart.caption, &chart.notes),
            Picture::Table(table) => (&table.title, &table.caption, &table.notes),
            Picture::Heat(maps) => (&maps.title, &maps.caption, &maps.notes),
        };
        let sentence = |text: &String| if text.ends_with(['.', '!', '?']) { text.clone() } else { format!("{text}.") };
        [title, caption].into_iter().chain(notes).filter(|text| !text.is_empty()).map(sentence).collect::<Vec<_>>().join(" ")
    }
}

impl DrawnFigure {
    /// The picture of an experiment. `config` is the text of `config.toml`, which files contain as metadata.
    pub fn new(experiment: &Experiment, picture: Picture, config: &str) -> Self {
        let (id, config) = (experiment.id.clone(), config.to_string());
        Self { picture: Arc::new(picture), look: look(&experiment.figure), id, config }
    }

    /// A chart that is of no experiment.
    pub fn of_chart(chart: Chart, id: &str) -> Self {
        let (id, config) = (id.to_string(), String::new());
        Self { picture: Arc::new(Picture::Chart(chart)), look: RenderOptions::default(), id, config }
    }

    /// The bytes of the picture's file.
    pub fn render(&self, format: Format) -> Vec<u8> {
        self.picture.render(format, &self.look, &Provenance { id: &self.id, config: &self.config })
    }
}

/// The resolution of PNG files for papers and slides.
const PRINTED_DPI: f64 = 300.0;

/// The rendering options of a `[figure]` table.
pub fn look(figure: &schema::FigureSpec) -> RenderOptions {
    let usual = if figure.style.is_some() { PRINTED_DPI } else { RenderOptions::default().dpi };
    RenderOptions { width: figure.width, dpi: figure.dpi.unwrap_or(usual), theme: figure.theme, style: figure.style }
}

/// The formats of a `[figure]` table, each once.
pub fn formats(figure: &schema::FigureSpec) -> Vec<Format> {
    let usual = if figure.style.is_some() { &Format::ALL[..] } else { &[Format::Svg, Format::Png] };
    let wanted = figure.formats.as_deref().unwrap_or(usual);
    Format::ALL.into_iter().filter(|format| wanted.contains(format)).collect()
}

/// The text of a swept value in titles of panels.
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
        Value::Float(x) if !numbers::is_plain(*x) => format!("{name} = {}", numbers::typed(*x)),
        other => format!("{name} = {other}"),
    }
}

fn coordinate_label(name: &str) -> String {
    match name {
        "agents" => "number of agents N".into(),
        "step_size" => "step size η".into(),
        "local_steps" => "local steps H".into(),
        other => other.to_string(),
    }
}

/// Draws the figure.
pub fn draw(plan: &Plan, results: &Results, predictor: &Predictor, verdicts: &[Verdict], quick: bool) -> Picture {
    let mut picture = match plan.experiment.figure.kind {
        FigureKind::Curves => {
            let chart = curves::curves(plan, results, predictor);
            if has_lines(&chart) { Picture::Chart(chart) } else { Picture::Table(instead(table::table(plan, results))) }
        }
        FigureKind::Scaling => Picture::Chart(scaling::scaling(plan, results, predictor)),
        FigureKind::Cost if plan.experiment.figure.x.is_none() => Picture::Table(cost::costs(plan, results)),
        FigureKind::Cost => Picture::Chart(cost::cost(plan, results)),
        FigureKind::Table => Picture::Table(table::table(plan, results)),
    };
    let notes = match &mut picture {
        Picture::Chart(figure) => &mut figure.notes,
        Picture::Table(table) => &mut table.notes,
        Picture::Heat(maps) => &mut maps.notes,
    };
    let said = verdicts.iter().filter_map(|verdict| verdict.note(quick)).collect();
    notes.extend(capped(said, MAX_NOTES, "more about checks"));
    picture
}

/// Whether the curves of a chart are visible: at least one has two points, positive ones on logarithmic axes.
fn has_lines(chart: &Chart) -> bool {
    let drawn = |panel: &Panel, curve: &PlottedCurve| curve.y.iter().filter(|y| y.is_finite() && (!panel.y_log || **y > 0.0)).count();
    chart.panels.iter().any(|panel| panel.curves.iter().any(|curve| drawn(panel, curve) >= 2))
}

/// The table in place of curves that would be points.
fn instead(mut table: CellTable) -> CellTable {
    table.notes.push("A table, and no curves over rounds: no method has errors above 0 in two recorded rounds.".into());
    table
}

/// The first notes, followed by the number of remaining ones.
fn capped(mut notes: Vec<String>, most: usize, more: &str) -> Vec<String> {
    let left = notes.len().saturating_sub(most);
    if left > 0 {
        notes.truncate(most);
        notes.push(format!("… and {left} {more}"));
    }
    notes
}

/// The note that only `shown` of `all` are drawn.
fn left_out(shown: usize, all: usize, what: &str) -> Option<String> {
    let say = || format!("Shown: the first {shown} of {all} {what}. summary.json and trace.parquet have all numbers.");
    (shown < all).then(say)
}

/// A chart without panels, with the settings of the file.
fn empty(plan: &Plan) -> Chart {
    let spec = &plan.experiment.figure;
    Chart { title: plan.experiment.title.clone(), columns: spec.columns, share_y: spec.share_y, ..Chart::default() }
}

/// An empty panel over a coordinate.
fn along(plan: &Plan, axis: &str, title: String, y_label: String) -> Panel {
    Panel {
        title,
        x_label: coordinate_label(axis),
        y_label,
        x_log: is_log(plan, axis),
        x_binary: is_binary(plan, axis),
        y_log: plan.experiment.figure.is_y_log(),
        y_range: plan.experiment.figure.y_range.map(|[a, b]| (a, b)),
        ..Panel::default()
    }
}

/// Panels by the values of some coordinates, each with the points that have them.
fn panels(plan: &Plan, by: &[String]) -> Vec<(String, Vec<usize>)> {
    let mut out = Lines::default();
    let are_shown = |label: &String| plan.experiment.figure.points.as_ref().is_none_or(|points| points.contains(label));
    for (i, planned) in plan.points.iter().enumerate().filter(|(_, planned)| are_shown(&planned.point.label)) {
        let parts = planned.point.coordinates.iter().filter(|(n, _)| by.contains(n)).map(|(n, v)| coordinate_text(n, v));
        out.add(parts.collect::<Vec<_>>().join(", "), i);
    }
    out.into_vec()
}

/// The methods that are drawn: their places among all, with their labels.
fn methods(plan: &Plan) -> Vec<(usize, &String)> {
    let are_shown = |label: &String| plan.experiment.figure.methods.as_ref().is_none_or(|methods| methods.contains(label));
    plan.labels.iter().enumerate().filter(|(_, label)| are_shown(label)).collect()
}

/// Refuses an axis of seconds for results of an earlier version, which have none.
///
/// # Errors
/// When there is such an axis.
pub fn check_axes(experiment: &Experiment, results: &Results) -> Result<()> {
    let spec = &experiment.figure;
    let wanted = spec.kind == FigureKind::Curves && spec.x.as_ref().is_some_and(|x| x.list().iter().any(|x| x == Axis::SECONDS));
    let what = format!("\"{}\", which the trace of this run does not have", Axis::SECONDS);
    require(!wanted || results.have_seconds(), "figure.x", what, &names::counts().join(", "))
}

/// The drawn metrics; by default mse, or the residual if theta* is unknown.
pub(super) fn metrics(plan: &Plan) -> Vec<&str> {
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

/// The note on a cell that diverged, or that was expected to diverge and did not.
fn status_note(plan: &Plan, results: &Results, cell: usize) -> Option<String> {
    let round = results.cells[cell].iter().find_map(|s| s.diverged);
    let label = &plan.cells[cell].method.label;
    if let Some(reason) = &plan.cells[cell].refused {
        return Some(format!("{label} is refused: {reason}"));
    }
    match (round, results.as_expected(plan, cell)) {
        (Some(round), true) => Some(format!("{label} diverges (round {round}), as expected")),
        (Some(round), false) => Some(format!("{label} diverged in round {round}")),
        (None, false) => match plan.cells[cell].method.expect {
            Some(ExpectedStatus::Diverges) => Some(format!("{label} was expected to diverge and did not")),
            _ => Some(format!("{label} did not end as expected: it missed its target, or reached one that it should miss")),
        },
        (None, true) => None,
    }
}

/// Whether ticks of a coordinate are at powers of two: if all its values are powers of two, or it counts bits.
fn is_binary(plan: &Plan, axis: &str) -> bool {
    let mut values: Vec<f64> = plan.points.iter().filter_map(|planned| planned.point.number(axis)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let is_power = |x: &f64| *x >= 1.0 && x.log2().fract() == 0.0;
    axis == "bits" || (values.len() > 2 && values.iter().all(is_power))
}

/// Whether a coordinate is drawn on a logarithmic axis; by default if all its values allow it.
fn is_log(plan: &Plan, axis: &str) -> bool {
    let positive = || plan.points.iter().filter_map(|planned| planned.point.number(axis)).all(|x| x > 0.0);
    plan.experiment.figure.x_log.unwrap_or_else(positive)
}

/// A line of the given slope on logarithmic axes, slightly above the curves; if some curves have about this slope, above
/// those.
fn reference(slope: f64, curves: &[PlottedCurve]) -> Option<PlottedCurve> {
    const AS_STEEP: f64 = 0.35;
    const ABOVE: f64 = 0.18;
    let logs = |curve: &PlottedCurve| -> Vec<(f64, f64)> {
        let points = curve.x.iter().zip(&curve.y).filter(|(x, y)| **x > 0.0 && **y > 0.0 && y.is_finite());
        points.map(|(x, y)| (x.log10(), y.log10())).collect()
    };
    let all: Vec<Vec<(f64, f64)>> = curves.iter().filter(|c| c.style != Style::Dashed).map(logs).filter(|c| c.len() > 1).collect();
    let steepness = |curve: &[(f64, f64)]| {
        let ((x, y), (to_x, to_y)) = (curve[0], curve[curve.len() - 1]);
        (to_y - y) / (to_x - x)
    };
    let steep: Vec<&Vec<(f64, f64)>> = all.iter().filter(|c| (steepness(c) - slope).abs() < AS_STEEP).collect();
    let followed: Vec<(f64, f64)> = if steep.is_empty() { all.concat() } else { steep.into_iter().flatten().copied().collect() };
    let height = followed.iter().map(|(x, y)| y - slope * x).max_by(f64::total_cmp)? + ABOVE;
    let low = followed.iter().map(|(x, _)| *x).min_by(f64::total_cmp)?;
    let high = followed.iter().map(|(x, _)| *x).max_by(f64::total_cmp)?;
    let x = vec![10f64.powf(low), 10f64.powf(high)];
    let y = vec![10f64.powf(height + slope * low), 10f64.powf(height + slope * high)];
    Some(PlottedCurve {
        label: format!("slope {}", slope.to_string().replace('-', "−")),
        x,
        y,
        style: Style::Reference,
        ..PlottedCurve::default()
    })
}

/// Why requested predictions are missing in the figure, each method and reason once.
pub fn missing_predictions(plan: &Plan, predictor: &Predictor) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    let figure = &plan.experiment.figure;
    let cells = plan.points.iter().flat_map(|point| plan.labels.iter().zip(&point.cells));
    for (label, cell) in cells.filter(|(_, cell)| plan.cells[**cell].refused.is_none()) {
        let curve = figure.exact.contains(label).then(|| ("curve", predictor.curve(*cell).err()));
        let levels = figure.levels.get(label).into_iter().flatten();
        let levels = levels.map(|quantity| (quantity.as_str(), predictor.number(*cell, quantity).err()));
        for (what, why) in curve.into_iter().chain(levels) {
            let Some(why) = why.filter(|why| why.kind() != ErrorKind::Cancelled) else { continue };
            let note = Note::new(NoteCode::PredictionMissing, format!("the figure has no predicted {what} of {label}: {}", why.what));
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::QUANTITIES;
    use fedsa::metrics::METRICS;
    use fedsa_figure::has_glyphs;

    #[test]
    fn the_font_has_what_axes_and_legends_say() {
        let metrics = METRICS.iter().map(|metric| metric.axis.to_string());
        let known = [Accuracy::Exact, Accuracy::Closure { eps_squared: 0.02 }, Accuracy::LeadingOrder];
        let quantities = QUANTITIES.iter().flat_map(|q| known.map(|known| quantity_text(q, Some(known))));
        let coordinates = ["step_size", "local_steps", "agents", "talk_probability"];
        let axes = COUNTS.iter().flat_map(|count| [count.axis, count.column]).map(str::to_string).chain(coordinates.map(coordinate_label));
        let values = coordinates.map(|name| coordinate_text(name, &Value::Integer(1)));
        for text in metrics.chain(quantities).chain(axes).chain(values) {
            assert!(has_glyphs(&text), "{text}");
        }
        assert!(!has_glyphs("\u{4e00}"), "what the font lacks is noticed");
        assert!(doubt("A", Accuracy::Closure { eps_squared: 0.2 }).is_some_and(|note| note.starts_with("A: ") && has_glyphs(&note)));
        assert_eq!(doubt("A", Accuracy::Closure { eps_squared: 0.02 }), None);
    }

    #[test]
    fn a_reference_lies_above_the_curves_that_are_as_steep() {
        let curve = |y: [f64; 2]| PlottedCurve { x: vec![1.0, 100.0], y: y.to_vec(), ..PlottedCurve::default() };
        let line = reference(-1.0, &[curve([1.0, 0.01]), curve([2.0, 0.02]), curve([50.0, 50.0])]).unwrap();
        assert_eq!((line.label.as_str(), &line.x[..]), ("slope −1", &[1.0, 100.0][..]));
        assert!(line.y[0] > 2.0 && line.y[0] < 4.0, "{:?}", line.y);
        assert!((line.y[0] / line.y[1] - 100.0).abs() < 1e-9);
        assert!(reference(-1.0, &[curve([f64::NAN, 0.0])]).is_none());
    }
}
