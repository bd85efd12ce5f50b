//! Floors as numbers: a row per combination of coordinates, a column per method.

use super::caption::SeedCounts;
use super::*;
use fedsa_figure::{Fill, TableCell, Tone};

/// Shades cover this many decades below the largest number of a group of rows. In a table without groups that spans more
/// decades, each row has its own shades.
const DECADES: f64 = 8.0;
/// Squared errors below this value are rounding errors; above its inverse, a method has diverged.
const LEAST: f64 = 1e-30;

pub(super) fn table(plan: &Plan, results: &Results) -> CellTable {
    let spec = &plan.experiment.figure;
    let metric = metrics(plan)[0];
    // The coordinate of the columns, and the coordinates of the groups of rows.
    let (across, several) = (spec.coordinate(), plan.labels.len() > 1);
    let by = spec.panels.clone().unwrap_or_default();
    let text = |point: usize, is_wanted: &dyn Fn(&str) -> bool| {
        let chosen = plan.points[point].point.coordinates.iter().filter(|(n, _)| is_wanted(n));
        chosen.map(|(n, v)| coordinate_text(n, v)).collect::<Vec<_>>().join(", ")
    };
    let head_of = |point: usize| text(point, &|name| Some(name) == across);
    let name_of = |point: usize| text(point, &|name| Some(name) != across && !by.iter().any(|b| b == name));
    let mut heads: Lines<()> = Lines::default();
    (0..plan.points.len()).for_each(|point| heads.add(head_of(point), ()));
    let heads: Vec<String> = heads.into_vec().into_iter().map(|(head, _)| head).collect();
    let columns: Vec<(&str, usize)> = heads.iter().flat_map(|head| (0..plan.labels.len()).map(move |m| (head.as_str(), m))).collect();

    let mut out = CellTable { title: plan.experiment.title.clone(), ..CellTable::default() };
    out.notes.extend(left_out(MOST_COLUMNS.min(columns.len()), columns.len(), "columns"));
    let columns = &columns[..MOST_COLUMNS.min(columns.len())];
    out.columns.push(metric_text(metric).to_string());
    out.columns.extend(columns.iter().map(|(head, m)| match (head.is_empty(), several) {
        (true, _) => plan.labels[*m].clone(),
        (false, true) => format!("{head}, {}", plan.labels[*m]),
        (false, false) => (*head).to_string(),
    }));
    let mut shown = Shown { plan, results, metric, seeds: SeedCounts::default(), reasons: Vec::new(), has_least: false, has_most: false };
    let (mut count, mut all, mut blocks, mut by_row) = (0, 0, 0, false);
    for (group, points) in panels(plan, &by) {
        let mut rows: Lines<usize> = Lines::default();
        points.into_iter().for_each(|point| rows.add(name_of(point), point));
        let rows = rows.into_vec();
        all += rows.len();
        let rows = &rows[..rows.len().min(MOST_ROWS - count)];
        if rows.is_empty() {
            continue;
        }
        count += rows.len();
        blocks += 1;
        if !group.is_empty() {
            out.rows.push(vec![TableCell { text: group, fill: Fill::Group }]);
        }
        // A row may lack a value of the columns' coordinate, because variants have their own sweeps.
        let cells: Vec<Vec<Option<usize>>> = rows
            .iter()
            .map(|(_, points)| {
                let at: HashMap<String, usize> = points.iter().rev().map(|point| (head_of(*point), *point)).collect();
                columns.iter().map(|(head, m)| Some(plan.points[*at.get(*head)?].cells[*m])).collect()
            })
            .collect();
        let floors = |cells: &[Option<usize>]| -> Vec<f64> { cells.iter().flatten().filter_map(|cell| shown.floor(*cell)).collect() };
        let of_rows: Vec<Scale> = cells.iter().map(|cells| Scale::of(&floors(cells))).collect();
        let of_block = Scale::of(&floors(&cells.concat()));
        by_row = by.is_empty() && of_block.decades > DECADES;
        for (((name, _), cells), of_row) in rows.iter().zip(cells).zip(of_rows) {
            let scale = if by_row { of_row } else { of_block };
            let mut row = vec![TableCell { text: name.clone(), fill: Fill::None }];
            row.extend(cells.into_iter().map(|cell| cell.map_or_else(TableCell::default, |cell| shown.cell(cell, &scale))));
            out.rows.push(row);
        }
    }
    out.notes.extend(left_out(count, all, "rows"));
    let within = match (by_row, blocks) {
        (true, _) => "in its row",
        (false, 2..) => "in its block",
        _ => "of all",
    };
    out.caption = format!(
        "Numbers: mean over {} of floors, each seed's mean over the last fifth of the rounds. Stronger shades are larger \
         numbers, by a logarithmic scale that ends {DECADES} decades below the largest one {within}.",
        shown.seeds.text()
    );
    if shown.has_least {
        out.caption.push_str(" Values below 10⁻³⁰ are zero up to rounding.");
    }
    if shown.has_most {
        out.caption.push_str(" Values above 10³⁰ have diverged, although they have not overflowed.");
    }
    let reasons = shown.reasons.iter().enumerate().map(|(i, reason)| format!("({}) {reason}", i + 1)).collect();
    out.notes.extend(capped(reasons, MOST_NOTES, "more reasons"));
    out
}

/// The scale of the shades of some numbers.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
    /// The number of decades that the numbers span.
    decades: f64,
}

impl Scale {
    fn of(floors: &[f64]) -> Self {
        let logs = || floors.iter().filter(|x| **x >= LEAST && **x <= 1.0 / LEAST).map(|x| x.log10());
        let (low, high) = (logs().fold(f64::INFINITY, f64::min), logs().fold(f64::NEG_INFINITY, f64::max));
        Scale { low: low.max(high - DECADES), high, decades: high - low }
    }

    fn shade(&self, x: f64) -> f64 {
        match x > 0.0 && self.high > self.low {
            true => ((x.log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0),
            false => 0.0,
        }
    }
}

/// Findings while a table is filled.
struct Shown<'a> {
    plan: &'a Plan,
    results: &'a Results,
    metric: &'a str,
    seeds: SeedCounts,
    /// The reasons why cells are refused.
    reasons: Vec<&'a str>,
    has_least: bool,
    has_most: bool,
}

impl Shown<'_> {
    fn floor(&self, cell: usize) -> Option<f64> {
        let floors = self.results.floors(cell, self.metric).filter(|_| self.results.is_ok(cell))?;
        Some(Estimate::of(&floors).mean)
    }

    fn cell(&mut self, cell: usize, scale: &Scale) -> TableCell {
        self.seeds.add(self.plan, self.results, cell);
        if let Some(reason) = &self.plan.cells[cell].refused {
            let at = self.reasons.iter().position(|r| r == reason).unwrap_or_else(|| {
                self.reasons.push(reason);
                self.reasons.len() - 1
            });
            return TableCell { text: format!("refused ({})", at + 1), fill: Fill::Status(Tone::Absent) };
        }
        if !self.results.is_ok(cell) {
            let tone = if self.results.as_expected(self.plan, cell) { Tone::Warning } else { Tone::Bad };
            return TableCell { text: "diverges".into(), fill: Fill::Status(tone) };
        }
        let Some(x) = self.floor(cell) else {
            return TableCell { text: "not known".into(), fill: Fill::Status(Tone::Absent) };
        };
        let is_least = x > 0.0 && x < LEAST;
        let is_most = x > 1.0 / LEAST;
        self.has_least |= is_least;
        self.has_most |= is_most;
        let text = match (is_least, is_most) {
            (true, _) => "< 10⁻³⁰".into(),
            (_, true) => "> 10³⁰".into(),
            _ => number_text(x),
        };
        TableCell { text, fill: Fill::Shade(scale.shade(x)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_end_eight_decades_below_the_largest_number() {
        let scale = Scale::of(&[1e-40, 1e-20, 1e-3, 1.0]);
        assert_eq!((scale.shade(1.0), scale.shade(1e-4), scale.shade(1e-20), scale.shade(0.0)), (1.0, 0.5, 0.0, 0.0));
        assert_eq!(scale.decades, 20.0, "values that are zero up to rounding do not count");
        assert_eq!(Scale::of(&[]).shade(1.0), 0.0);
    }
}
