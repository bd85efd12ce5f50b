//! What it takes to reach a level of the metric, along a coordinate.

use super::*;

pub(super) fn cost(plan: &Plan, results: &Results) -> Figure {
    let spec = &plan.experiment.figure;
    let (axis, levels) = (spec.x.as_deref().expect("validated"), spec.level.as_ref().expect("validated").list());
    let (metric, paid) = (metrics(plan)[0], spec.cost.as_deref().unwrap_or("bits_up"));
    let by = spec.panels.clone().unwrap_or_default();
    let mut figure = Figure { title: plan.experiment.title.clone(), columns: spec.columns, ..Figure::default() };
    for (level, (title, points)) in levels.iter().flat_map(|level| panels(plan, &by).into_iter().map(move |panel| (*level, panel))) {
        let mut panel = Panel {
            title: std::iter::once(title)
                .filter(|t| !t.is_empty())
                .chain([format!("until {} ≤ {level}", metric_text(metric))])
                .collect::<Vec<_>>()
                .join(", "),
            x_label: coordinate_label(axis),
            y_label: axis_text(paid).to_string(),
            x_log: spec.x_log.unwrap_or(true),
            y_log: true,
            y_range: spec.y_range.map(|[a, b]| (a, b)),
            ..Panel::default()
        };
        let mut color = 0;
        for (m, label) in plan.labels.iter().enumerate() {
            let (mut lines, mut missed) = (Vec::new(), Vec::new());
            for planned in points.iter().map(|point| &plan.points[*point]) {
                let Some(x) = planned.point.number(axis) else { continue };
                let rest = planned.point.coordinates.iter().filter(|(n, _)| n != axis && !by.contains(n));
                let name = curve_name(label, rest.map(|(n, v)| coordinate_text(n, v)), None);
                match results.cost(planned.cells[m], metric, level, count_of(paid)) {
                    Some(y) => add_to(&mut lines, name, (x, y)),
                    None => missed.push(x.to_string()),
                }
            }
            for (label, line) in lines {
                let (x, y) = line.into_iter().unzip();
                panel.curves.push(Curve { label, color, x, y, band: None, style: Style::LinePoints });
                color += 1;
            }
            if !missed.is_empty() {
                panel.notes.push(format!("{label} does not get there at {}", missed.join(", ")));
            }
        }
        figure.panels.push(panel);
    }
    figure
}
