//! Floors as numbers: a row per combination of coordinates, a column per method.

use super::caption::SeedCounts;
use super::*;
use fedsa_figure::{Fill, TableCell, Tone};

/// The number of decades below the largest number of a group of rows that shades cover. In a table without groups that spans more decades,
/// each row has its own shades.
const DECADES: f64 = 8.0;
/// Squared errors below this value are rounding errors; above its inverse, a method has diverged.
const LEAST: f64 = 1e-30;

pub(super) fn table(plan: &Plan, results: &Results) -> CellTable {
    let spec = &plan.experiment.figure;
    let metric = metrics(plan)[0];
    let by = spec.panels.clone().unwrap_or_default();
    let layout = Layout { plan, across: spec.coordinate(), by: &by };
    let columns = layout.columns();
    let mut out = CellTable { title: plan.experiment.title.clone(), ..CellTable::default() };
    out.notes.extend(left_out(MAX_COLUMNS.min(columns.len()), columns.len(), "columns"));
    let columns = &columns[..MAX_COLUMNS.min(columns.len())];
    out.columns.push(metric_text(metric).to_string());
    out.columns.extend(columns.iter().map(|(head, m)| match (head.is_empty(), plan.labels.len() > 1) {
        (true, _) => plan.labels[*m].clone(),
        (false, true) => format!("{head}, {}", plan.labels[*m]),
        (false, false) => head.clone(),
    }));
    let mut shown = Shown { plan, results, metric, seeds: SeedCounts::default(), reasons: Vec::new(), has_least: false, has_most: false };
    let (mut count, mut all, mut blocks, mut by_row) = (0, 0, 0, false);
    for (group, points) in panels(plan, &by) {
        let rows = layout.rows(points);
        all += rows.len();
        let rows = &rows[..rows.len().min(MAX_ROWS - count)];
        if rows.is_empty() {
            continue;
        }
        count += rows.len();
        blocks += 1;
        if !group.is_empty() {
            out.rows.push(vec![TableCell { text: group, fill: Fill::Group }]);
        }
        by_row = shown.add_block(&mut out, rows, &layout.cells(rows, columns), by.is_empty());
    }
    out.notes.extend(left_out(count, all, "rows"));
    out.caption = shown.caption(match (by_row, blocks) {
        (true, _) => "in its row",
        (false, 2..) => "in its block",
        _ => "of all",
    });
    let reasons = shown.reasons.iter().enumerate().map(|(i, reason)| format!("({}) {reason}", i + 1)).collect();
    out.notes.extend(capped(reasons, MAX_NOTES, "more reasons"));
    out
}

/// The points of each row and column.
struct Layout<'a> {
    plan: &'a Plan,
    /// The coordinate of the columns, and the coordinates of the groups of rows.
    across: Option<&'a str>,
    by: &'a [String],
}

/// A row: its name and its points.
type TableRow = (String, Vec<usize>);

impl Layout<'_> {
    fn text(&self, point: usize, is_wanted: impl Fn(&str) -> bool) -> String {
        let chosen = self.plan.points[point].point.coordinates.iter().filter(|(n, _)| is_wanted(n));
        chosen.map(|(n, v)| coordinate_text(n, v)).collect::<Vec<_>>().join(", ")
    }

    /// The head of the columns of a point.
    fn head_of(&self, point: usize) -> String {
        self.text(point, |name| Some(name) == self.across)
    }

    /// The heads of all columns, each with its method.
    fn columns(&self) -> Vec<(String, usize)> {
        let mut heads: Lines<()> = Lines::default();
        (0..self.plan.points.len()).for_each(|point| heads.add(self.head_of(point), ()));
        let methods = methods(self.plan).into_iter().map(|(m, _)| m);
        heads.into_vec().into_iter().flat_map(|(head, _)| methods.clone().map(move |m| (head.clone(), m))).collect()
    }

    /// The rows of a group of points.
    fn rows(&self, points: Vec<usize>) -> Vec<TableRow> {
        let mut rows: Lines<usize> = Lines::default();
        let name_of = |point: usize| self.text(point, |name| Some(name) != self.across && !self.by.iter().any(|b| b == name));
        points.into_iter().for_each(|point| rows.add(name_of(point), point));
        rows.into_vec()
    }

    /// The cells of rows. A row may lack a value of the columns' coordinate, because variants have their own sweeps.
    fn cells(&self, rows: &[TableRow], columns: &[(String, usize)]) -> Vec<Vec<Option<usize>>> {
        let of_row = |(_, points): &TableRow| {
            let at: HashMap<String, usize> = points.iter().rev().map(|point| (self.head_of(*point), *point)).collect();
            columns.iter().map(|(head, m)| Some(self.plan.points[*at.get(head)?].cells[*m])).collect()
        };
        rows.iter().map(of_row).collect()
    }
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

impl Shown<'_> {
    /// Adds the rows of a group, shaded by their numbers; rows have their own shades if the only group spans many decades. Returns whether
    /// they do.
    fn add_block(&mut self, out: &mut CellTable, rows: &[TableRow], cells: &[Vec<Option<usize>>], is_only: bool) -> bool {
        let floors = |cells: &[Option<usize>]| -> Vec<f64> { cells.iter().flatten().filter_map(|cell| self.floor(*cell)).collect() };
        let of_rows: Vec<Scale> = cells.iter().map(|cells| Scale::of(&floors(cells))).collect();
        let of_block = Scale::of(&floors(&cells.concat()));
        let by_row = is_only && of_block.decades > DECADES;
        for (((name, _), cells), of_row) in rows.iter().zip(cells).zip(of_rows) {
            let scale = if by_row { of_row } else { of_block };
            let mut row = vec![TableCell { text: name.clone(), fill: Fill::None }];
            row.extend(cells.iter().map(|cell| cell.map_or_else(TableCell::default, |cell| self.cell(cell, &scale))));
            out.rows.push(row);
        }
        by_row
    }

    /// The meaning of the numbers and the shades; `within` names the set of the largest number.
    fn caption(&self, within: &str) -> String {
        let mut caption = format!(
            "Numbers: mean over {} of floors, each seed's mean over the last fifth of the rounds. Stronger shades are larger \
             numbers, by a logarithmic scale from the smallest to the largest one {within}, over at most {DECADES} decades.",
            self.seeds.text()
        );
        if self.has_least {
            caption.push_str(" Values below 10⁻³⁰ are zero up to rounding.");
        }
        if self.has_most {
            caption.push_str(" Values above 10³⁰ have diverged, although they have not overflowed.");
        }
        caption
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
