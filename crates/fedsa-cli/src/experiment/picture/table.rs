//! Floors in numbers: a row per combination of coordinates, a column per method.

use super::*;
use crate::figure::{Cell, Fill, Status as Tone, Table};

pub(super) fn table(plan: &Plan, results: &Results) -> Table {
    let spec = &plan.experiment.figure;
    let metric = metrics(plan)[0];
    // What makes columns beside the methods, and what makes groups of rows.
    let (across, several) = (spec.x.as_deref(), plan.labels.len() > 1);
    let by = spec.panels.clone().unwrap_or_default();
    let mut heads: Vec<String> = Vec::new();
    let text = |point: usize, is_wanted: &dyn Fn(&str) -> bool| {
        let chosen = plan.points[point].point.coordinates.iter().filter(|(n, _)| is_wanted(n));
        chosen.map(|(n, v)| coordinate_text(n, v)).collect::<Vec<_>>().join(", ")
    };
    let head_of = |point: usize| text(point, &|name| Some(name) == across);
    let name_of = |point: usize| text(point, &|name| Some(name) != across && !by.iter().any(|b| b == name));
    for head in (0..plan.points.len()).map(head_of) {
        if !heads.contains(&head) {
            heads.push(head);
        }
    }
    let finite = |x: &f64| x.is_finite() && *x > 0.0;
    let floor = |cell: usize| results.floors(cell, metric).map(|floors| Estimate::of(&floors).mean);
    let logs: Vec<f64> = (0..plan.cells.len()).filter(|c| results.is_ok(*c)).filter_map(floor).filter(finite).map(f64::log10).collect();
    // What is this far below the largest is as good as 0.
    const DECADES: f64 = 24.0;
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min).max(high - DECADES);
    let shade = |x: f64| if finite(&x) && high > low { ((x.log10() - low) / (high - low)).clamp(0.0, 1.0) } else { 0.0 };

    let mut reasons: Vec<&str> = Vec::new();
    let mut cell_of = |point: usize, m: usize| {
        let cell = plan.points[point].cells[m];
        if let Some(reason) = &plan.cells[cell].refused {
            let at = reasons.iter().position(|r| r == reason).unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            return Cell { text: format!("refused ({})", at + 1), fill: Fill::Status(Tone::Absent) };
        }
        if !results.is_ok(cell) {
            let tone = if results.as_expected(plan, cell) { Tone::Warning } else { Tone::Bad };
            return Cell { text: "diverges".into(), fill: Fill::Status(tone) };
        }
        match floor(cell) {
            Some(x) => Cell { text: format!("{x:.1e}"), fill: Fill::Shade(shade(x)) },
            None => Cell { text: "not known".into(), fill: Fill::Status(Tone::Absent) },
        }
    };
    let mut out = Table { title: plan.experiment.title.clone(), ..Table::default() };
    out.columns.push(metric_text(metric).to_string());
    for head in &heads {
        out.columns.extend(plan.labels.iter().map(|label| match (head.is_empty(), several) {
            (true, _) => label.clone(),
            (false, true) => format!("{head}, {label}"),
            (false, false) => head.clone(),
        }));
    }
    let plain = |text: String| Cell { text, fill: Fill::None };
    for (group, points) in panels(plan, &by) {
        if !group.is_empty() {
            out.rows.push(vec![plain(group)]);
        }
        let mut rows: Vec<(String, Vec<usize>)> = Vec::new();
        points.into_iter().for_each(|point| add_to(&mut rows, name_of(point), point));
        for (name, points) in rows {
            let mut row = vec![plain(name)];
            // A row may lack a value of the coordinate that makes columns: variants have sweeps of their own.
            for head in &heads {
                match points.iter().find(|point| head_of(**point) == *head) {
                    Some(point) => row.extend((0..plan.labels.len()).map(|m| cell_of(*point, m))),
                    None => row.extend(plan.labels.iter().map(|_| Cell::default())),
                }
            }
            out.rows.push(row);
        }
    }
    out.notes = reasons.iter().enumerate().map(|(i, reason)| format!("({}) {reason}", i + 1)).collect();
    out
}
