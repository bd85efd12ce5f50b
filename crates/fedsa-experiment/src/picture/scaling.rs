//! Floors along a coordinate.

use super::caption::{self, BandKind, PREDICTED, SeedCounts};
use super::*;
use crate::names;

pub(super) fn scaling(plan: &Plan, results: &Results, predictor: &Predictor) -> Chart {
    let spec = &plan.experiment.figure;
    let axis = spec.coordinate().expect("validated");
    let metrics = metrics(plan);
    let predicted_metric = metrics.iter().copied().find(|metric| names::predicted_metrics().contains(metric));
    let by = spec.panels.clone().unwrap_or_default();
    // Floors are compared with predictions: their band is a standard error by default.
    let spread = if spec.band.is_none() { BandKind::Error } else { BandKind::of(spec) };
    let mut figure = empty(plan);
    let mut seeds = SeedCounts::default();
    let groups = panels(plan, &by);
    figure.notes.extend(left_out(MOST_PANELS.min(groups.len()), groups.len(), "panels"));
    for (title, points) in groups.into_iter().take(MOST_PANELS) {
        seeds.panel();
        let mut panel = along(plan, axis, title, y_label(&metrics));
        let (mut color, mut left, mut doubts) = (0, 0, Vec::<String>::new());
        for (m, label) in plan.labels.iter().enumerate() {
            // One line per metric and combination of the coordinates that are neither axis nor panel.
            let mut lines: Lines<(usize, f64)> = Lines::default();
            for point in &points {
                let planned = &plan.points[*point];
                let Some(x) = planned.point.number(axis) else { continue };
                let rest = planned.point.coordinates.iter().filter(|(n, _)| n != axis && !by.contains(n));
                lines.add(rest.map(|(n, v)| coordinate_text(n, v)).collect::<Vec<_>>().join(", "), (planned.cells[m], x));
            }
            let lines = lines.into_vec();
            // If there are too many lines, the same number of each method is drawn.
            let most = color + (MOST_CURVES / plan.labels.len()).max(1).min(MOST_CURVES.saturating_sub(color));
            left += (lines.len() * metrics.len()).saturating_sub(most - color);
            for (rest, mut line) in lines {
                line.sort_by(|a, b| a.1.total_cmp(&b.1));
                let rest = || (!rest.is_empty()).then(|| rest.clone()).into_iter();
                for metric in metrics.iter().take(most - color) {
                    line.iter().for_each(|(cell, _)| seeds.add(plan, results, *cell));
                    if Some(*metric) == predicted_metric {
                        for quantity in spec.levels.get(label).into_iter().flatten() {
                            let accuracy = worst(line.iter().filter_map(|(cell, _)| predictor.accuracy(*cell, quantity)));
                            let name = curve_name(&format!("{label}: {}", quantity_text(quantity, accuracy)), rest(), None);
                            let values = line.iter().filter_map(|(cell, x)| Some((*x, predictor.number(*cell, quantity).ok()?)));
                            let (x, y): (Vec<f64>, Vec<f64>) = values.unzip();
                            if !x.is_empty() {
                                let of = curve_name(label, rest(), None);
                                doubts.extend(accuracy.and_then(|known| doubt(&of, known)).filter(|note| !doubts.contains(note)));
                                panel.curves.push(PlottedCurve { label: name, color, x, y, band: None, style: Style::Dashed });
                            }
                        }
                    }
                    let name = curve_name(label, rest(), (metrics.len() > 1).then_some(*metric));
                    panel.curves.push(measured(results, &line, metric, &name, color, spread));
                    color += 1;
                }
            }
        }
        if let Some(slope) = spec.slope.filter(|_| panel.x_log) {
            panel.curves.extend(reference(slope, &panel.curves));
        }
        if left > 0 {
            panel.notes.push(format!("Shown: {color} of {} lines, the first of each method", color + left));
        }
        panel.notes.extend(capped(doubts, MOST_PANEL_NOTES, "more closures with a large eps²"));
        figure.panels.push(panel);
    }
    seeds.note_in(&mut figure.panels);
    figure.caption = caption::scaling(&seeds, spread);
    if figure.panels.iter().any(|panel| panel.curves.iter().any(|curve| curve.style == Style::Dashed)) {
        figure.caption.push_str(PREDICTED);
    }
    figure
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
