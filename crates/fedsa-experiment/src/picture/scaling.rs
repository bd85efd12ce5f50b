//! Floors along a coordinate.

use super::caption::{self, BandKind, PREDICTED, SeedCounts};
use super::*;
use crate::names;

pub(super) fn scaling(plan: &Plan, results: &Results, predictor: &Predictor) -> Chart {
    let spec = &plan.experiment.figure;
    let metrics = metrics(plan);
    let by = spec.panels.clone().unwrap_or_default();
    // Floors are compared with predictions: their band is a standard error by default.
    let spread = if spec.band.is_none() { BandKind::Error } else { BandKind::of(spec) };
    let mut figure = empty(plan);
    let groups = panels(plan, &by);
    figure.notes.extend(left_out(MAX_PANELS.min(groups.len()), groups.len(), "panels"));
    let axis = spec.coordinate().expect("validated");
    let predicted_metric = metrics.iter().copied().find(|metric| names::predicted_metrics().contains(metric));
    let seeds = SeedCounts::default();
    let mut floors = Floors { plan, results, predictor, axis, by: &by, metrics: &metrics, predicted_metric, spread, seeds };
    figure.panels.extend(groups.into_iter().take(MAX_PANELS).map(|(title, points)| floors.panel(title, &points)));
    floors.seeds.note_in(&mut figure.panels);
    figure.caption = caption::scaling(&floors.seeds, spread);
    if figure.panels.iter().any(|panel| panel.curves.iter().any(|curve| curve.style == Style::Dashed)) {
        figure.caption.push_str(PREDICTED);
    }
    figure
}

/// The common data of panels of floors.
struct Floors<'a> {
    plan: &'a Plan,
    results: &'a Results,
    predictor: &'a Predictor,
    /// The coordinate on the horizontal axis, and the panels' coordinates.
    axis: &'a str,
    by: &'a [String],
    metrics: &'a [&'a str],
    /// The first metric that theory predicts.
    predicted_metric: Option<&'a str>,
    spread: BandKind,
    seeds: SeedCounts,
}

impl Floors<'_> {
    /// The panel of some points.
    fn panel(&mut self, title: String, points: &[usize]) -> Panel {
        self.seeds.panel();
        let (plan, metrics) = (self.plan, self.metrics);
        let mut panel = along(plan, self.axis, title, y_label(metrics));
        let (mut color, mut left, mut doubts) = (0, 0, Vec::<String>::new());
        let methods = methods(plan);
        for (m, label) in methods.iter().copied() {
            let lines = self.lines(m, points);
            // If there are too many lines, the same number of each method is drawn.
            let most = color + (MAX_CURVES / methods.len()).max(1).min(MAX_CURVES.saturating_sub(color));
            left += (lines.len() * metrics.len()).saturating_sub(most - color);
            for (rest, mut line) in lines {
                line.sort_by(|a, b| a.1.total_cmp(&b.1));
                let rest = (!rest.is_empty()).then_some(rest);
                for metric in metrics.iter().take(most - color) {
                    line.iter().for_each(|(cell, _)| self.seeds.add(plan, self.results, *cell));
                    if Some(*metric) == self.predicted_metric {
                        self.add_predicted(&mut panel, &mut doubts, label, rest.as_ref(), &line, color);
                    }
                    let name = curve_name(label, rest.iter().cloned(), (metrics.len() > 1).then_some(*metric));
                    panel.curves.push(measured(self.results, &line, metric, &name, color, self.spread));
                    color += 1;
                }
            }
        }
        if let Some(slope) = plan.experiment.figure.slope.filter(|_| panel.x_log) {
            panel.curves.extend(reference(slope, &panel.curves));
        }
        if left > 0 {
            panel.notes.push(format!("Shown: {color} of {} lines, the first of each method", color + left));
        }
        panel.notes.extend(capped(doubts, MAX_PANEL_NOTES, "more closures with a large eps²"));
        panel
    }

    /// The cells of the method `m` with their places on the axis, a line per combination of the coordinates that are neither axis nor panel.
    fn lines(&self, m: usize, points: &[usize]) -> Vec<(String, Vec<(usize, f64)>)> {
        let mut lines: Lines<(usize, f64)> = Lines::default();
        for planned in points.iter().map(|point| &self.plan.points[*point]) {
            let Some(x) = planned.point.number(self.axis) else { continue };
            let rest = planned.point.coordinates.iter().filter(|(n, _)| n != self.axis && !self.by.contains(n));
            lines.add(rest.map(|(n, v)| coordinate_text(n, v)).collect::<Vec<_>>().join(", "), (planned.cells[m], x));
        }
        lines.into_vec()
    }

    /// Adds the predicted quantities of a line that the file names, and notes on those that may be far off.
    fn add_predicted(
        &self,
        panel: &mut Panel,
        doubts: &mut Vec<String>,
        label: &str,
        rest: Option<&String>,
        line: &[(usize, f64)],
        color: usize,
    ) {
        let predictor = self.predictor;
        for quantity in self.plan.experiment.figure.levels.get(label).into_iter().flatten() {
            let accuracy = worst(line.iter().filter_map(|(cell, _)| predictor.accuracy(*cell, quantity)));
            let name = curve_name(&format!("{label}: {}", quantity_text(quantity, accuracy)), rest.into_iter().cloned(), None);
            let values = line.iter().filter_map(|(cell, x)| Some((*x, predictor.number(*cell, quantity).ok()?)));
            let (x, y): (Vec<f64>, Vec<f64>) = values.unzip();
            if !x.is_empty() {
                let of = curve_name(label, rest.into_iter().cloned(), None);
                doubts.extend(accuracy.and_then(|known| doubt(&of, known)).filter(|note| !doubts.contains(note)));
                panel.curves.push(PlottedCurve { label: name, color, x, y, band: None, style: Style::Dashed });
            }
        }
    }
}

/// The floors of cells at the given values of the axis.
fn measured(results: &Results, line: &[(usize, f64)], metric: &str, label: &str, color: usize, spread: BandKind) -> PlottedCurve {
    let mut curve = PlottedCurve { label: label.to_string(), color, style: Style::LinePoints, ..PlottedCurve::default() };
    let (mut low, mut high) = (Vec::new(), Vec::new());
    let mut has_band = false;
    for (cell, x) in line.iter().filter(|(cell, _)| results.is_ok(*cell)) {
        let Some(floors) = results.floors(*cell, metric) else { continue };
        let Estimate { mean, se } = Estimate::of(&floors);
        let reach = if spread == BandKind::Deviation { se * (floors.len() as f64).sqrt() } else { se };
        has_band |= floors.len() > 1 && spread != BandKind::Nothing;
        curve.x.push(*x);
        curve.y.push(mean);
        low.push(mean - reach);
        high.push(mean + reach);
    }
    curve.band = has_band.then_some((low, high));
    curve
}
