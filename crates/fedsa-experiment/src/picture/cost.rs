//! Costs of reaching a level of the metric: over a coordinate, or as a table.

use super::caption::SeedCounts;
use super::*;
use crate::config::schema::CostLevel;
use crate::numbers::typed;
use fedsa_figure::{Fill, TableCell};

/// The largest number of points that a note names.
const MAX_PLACES: usize = 12;

pub(super) fn cost(plan: &Plan, results: &Results) -> Chart {
    let spec = &plan.experiment.figure;
    let (axis, levels) = (spec.coordinate().expect("validated"), spec.cost_levels());
    let (metric, paid) = (metrics(plan)[0], paid(spec.cost.as_deref()));
    let by = spec.panels.clone().unwrap_or_default();
    let mut figure = empty(plan);
    let groups = panels(plan, &by);
    let all = levels.len() * groups.len();
    figure.notes.extend(left_out(MAX_PANELS.min(all), all, "panels"));
    let mut costs = Costs { plan, results, axis, by: &by, metric, paid, seeds: SeedCounts::default() };
    for (level, (title, points)) in levels.iter().flat_map(|level| groups.iter().map(move |group| (*level, group))).take(MAX_PANELS) {
        figure.panels.push(costs.panel(title, points, level));
    }
    costs.seeds.note_in(&mut figure.panels);
    let mean = "the mean over seeds of that count at the first recorded round at which the mean over seeds of";
    figure.caption = format!("Points: {mean} {} is at most the level; {}.", metric_text(metric), costs.seeds.text());
    figure
}

/// The common data of panels of costs.
struct Costs<'a> {
    plan: &'a Plan,
    results: &'a Results,
    /// The coordinate on the horizontal axis, and the panels' coordinates.
    axis: &'a str,
    by: &'a [String],
    metric: &'a str,
    paid: &'static Count,
    seeds: SeedCounts,
}

impl Costs<'_> {
    /// The panel of some points: a line per method and combination of the other coordinates.
    fn panel(&mut self, title: &str, points: &[usize], level: CostLevel) -> Panel {
        self.seeds.panel();
        let (plan, axis) = (self.plan, self.axis);
        let mut panel = along(plan, axis, until(title, self.metric, level), self.paid.axis.to_string());
        let (mut color, mut left) = (0, 0);
        // Methods that do not reach the level, grouped by the points at which they fail.
        let mut missed: Lines<&str> = Lines::default();
        let methods = methods(plan);
        for (m, label) in methods.iter().copied() {
            let (lines, never) = self.of_method(m, points, level);
            // If there are too many lines, the same number of each method is drawn.
            let most = color + (MAX_CURVES / methods.len()).max(1);
            for (label, mut line) in lines.into_vec() {
                if color >= most.min(MAX_CURVES) {
                    left += 1;
                    continue;
                }
                line.sort_by(|a, b| a.0.total_cmp(&b.0));
                let (x, y) = line.into_iter().unzip();
                panel.curves.push(PlottedCurve { label, color, x, y, band: None, style: Style::LinePoints });
                color += 1;
            }
            if !never.is_empty() {
                let more = never.len().saturating_sub(MAX_PLACES);
                let places: Vec<String> = never.iter().take(MAX_PLACES).map(f64::to_string).collect();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                missed.add(format!("{axis} = {}{more}", places.join(", ")), label);
            }
        }
        if let Some(slope) = plan.experiment.figure.slope.filter(|_| panel.x_log) {
            panel.curves.extend(reference(slope, &panel.curves));
        }
        if left > 0 {
            panel.notes.push(format!("Shown: {color} of {} lines, the first of each method", color + left));
        }
        let notes = missed.into_vec().into_iter().map(|(places, labels)| format!("Not reached at {places}: {}", labels.join("; ")));
        panel.notes.extend(capped(notes.collect(), MAX_PANEL_NOTES, "more"));
        panel
    }

    /// The costs of the method `m` by the names of its lines, and the places where it does not reach the level.
    fn of_method(&mut self, m: usize, points: &[usize], level: CostLevel) -> (Lines<(f64, f64)>, Vec<f64>) {
        let plan = self.plan;
        let (mut lines, mut never) = (Lines::default(), Vec::new());
        for planned in points.iter().map(|point| &plan.points[*point]) {
            let Some(x) = planned.point.number(self.axis) else { continue };
            let cell = planned.cells[m];
            self.seeds.add(plan, self.results, cell);
            let rest = planned.point.coordinates.iter().filter(|(n, _)| n != self.axis && !self.by.contains(n));
            let name = curve_name(&plan.labels[m], rest.map(|(n, v)| coordinate_text(n, v)), None);
            match self.results.cost(cell, self.metric, level, self.paid) {
                Some(y) => lines.add(name, (x, y)),
                None => never.push(x),
            }
        }
        (lines, never)
    }
}

/// The title of a panel or a block of rows.
fn until(title: &str, metric: &str, level: CostLevel) -> String {
    let until = format!("until {} ≤ {}", metric_text(metric), level_text(level));
    if title.is_empty() { until } else { format!("{title}, {until}") }
}

fn level_text(level: CostLevel) -> String {
    let of = if level.is_relative { " of its value at round 0" } else { "" };
    format!("{}{of}", typed(level.value))
}

/// A count in a table; whole numbers of up to four digits are unchanged.
fn count_text(count: f64) -> String {
    if count.fract() == 0.0 && count < 1e4 { count.to_string() } else { number_text(count) }
}

/// A row per method and combination of coordinates, a column per count.
pub(super) fn costs(plan: &Plan, results: &Results) -> CellTable {
    let spec = &plan.experiment.figure;
    let levels = spec.cost_levels();
    let metric = metrics(plan)[0];
    let one = spec.cost.as_deref();
    // Without samples, their column would be 0 throughout.
    let draws = plan.fields.iter().any(|field| field.field.sampling().samples_per_step() > 0);
    let is_usual = |count: &&Count| count.is_usual && (draws || count.name != "samples");
    let counts: Vec<&Count> = one.map_or_else(|| COUNTS.iter().filter(is_usual).collect(), |_| vec![paid(one)]);
    let by = spec.panels.clone().unwrap_or_default();
    let (mut seeds, mut count, mut all) = (SeedCounts::default(), 0, 0);
    let mut out = CellTable { title: plan.experiment.title.clone(), ..CellTable::default() };
    out.columns.push("method".into());
    out.columns.extend(counts.iter().map(|count| count.column.to_string()));
    out.columns.push(format!("{}{metric} at the end", if spec.relative { "relative " } else { "" }));
    let groups = panels(plan, &by);
    for (level, (title, points)) in levels.iter().flat_map(|level| groups.iter().map(move |group| (*level, group))) {
        // One level for all groups is in the caption.
        let head = if levels.len() == 1 && !title.is_empty() { title.clone() } else { until(title, metric, level) };
        out.rows.push(vec![TableCell { text: head, fill: Fill::Group }]);
        let methods = methods(plan);
        let cells = points.iter().flat_map(|point| methods.iter().map(|(m, label)| (*point, *label, plan.points[*point].cells[*m])));
        for (point, label, cell) in cells {
            all += 1;
            if count == MAX_ROWS {
                continue;
            }
            count += 1;
            seeds.add(plan, results, cell);
            let rest = plan.points[point].point.coordinates.iter().filter(|(name, _)| !by.contains(name));
            let name = curve_name(label, rest.map(|(name, value)| coordinate_text(name, value)), None);
            let mut row = vec![TableCell { text: name, fill: Fill::None }];
            row.extend(counts.iter().map(|paid| {
                let spent = || results.spent(cell, paid).map_or("not run".into(), |spent| format!("> {}", count_text(spent)));
                let text = results.cost(cell, metric, level, paid).map_or_else(spent, count_text);
                TableCell { text, fill: Fill::None }
            }));
            row.push(TableCell { text: results.end(cell, metric, spec.relative).map_or(String::new(), number_text), fill: Fill::None });
            out.rows.push(row);
        }
    }
    out.notes.extend(left_out(count, all, "rows"));
    out.caption = format!(
        "Numbers: the mean over seeds of each count at the first recorded round at which the mean over seeds of {metric} is at most {}; \
         > n: not reached when n had been spent. Last column: the mean over seeds of {metric} after the last round{}; {}.",
        if let [one] = levels[..] { level_text(one) } else { "the level".into() },
        if spec.relative { ", over that at round 0" } else { "" },
        seeds.text(),
        metric = metric_text(metric),
    );
    out
}
