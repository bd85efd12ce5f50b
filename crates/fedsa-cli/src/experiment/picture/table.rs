//! Floors in numbers: a row per combination of coordinates, a column per method.

use super::*;
use crate::figure::{Cell, Fill, Status as Tone, Table};

pub(super) fn table(plan: &Plan, results: &Results) -> Table {
    let spec = &plan.experiment.figure;
    let metric = metrics(plan)[0];
    // What makes columns beside the methods.
    let (across, several) = (spec.x.as_deref(), plan.labels.len() > 1);
    let mut rows: Vec<(String, Vec<usize>)> = Vec::new();
    let mut heads: Vec<String> = Vec::new();
    for (i, planned) in plan.points.iter().enumerate() {
        let text = |wanted: bool| {
            let chosen = planned.point.coordinates.iter().filter(|(n, _)| (Some(n.as_str()) == across) == wanted);
            chosen.map(|(n, v)| coordinate_text(n, v)).collect::<Vec<_>>().join(", ")
        };
        add_to(&mut rows, text(false), i);
        let head = text(true);
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
    for (name, points) in &rows {
        let mut row = vec![Cell { text: name.clone(), fill: Fill::None }];
        // A row may lack a value of the coordinate that makes columns: variants have sweeps of their own.
        for head in &heads {
            let has = |point: &&usize| {
                let coordinates = &plan.points[**point].point.coordinates;
                let own = coordinates.iter().find(|(n, _)| Some(n.as_str()) == across);
                own.map_or(String::new(), |(n, v)| coordinate_text(n, v)) == *head
            };
            match points.iter().find(has) {
                Some(point) => row.extend((0..plan.labels.len()).map(|m| cell_of(*point, m))),
                None => row.extend(plan.labels.iter().map(|_| Cell::default())),
            }
        }
        out.rows.push(row);
    }
    out.notes = reasons.iter().enumerate().map(|(i, reason)| format!("({}) {reason}", i + 1)).collect();
    out
}
