//! Metrics over rounds.

use std::collections::BTreeSet;

use super::super::results::quantile;
use super::caption::{self, BandKind, PREDICTED, SeedCounts};
use super::*;

/// Settings for drawing the seeds of a cell as a curve.
#[derive(Clone, Copy)]
struct Drawing<'a> {
    plan: &'a Plan,
    results: &'a Results,
    predictor: &'a Predictor,
    /// The horizontal axis of the panel.
    axis: Axis,
    x_log: bool,
    centre: CurveCentre,
    spread: BandKind,
}

pub(super) fn curves(plan: &Plan, results: &Results, predictor: &Predictor) -> Chart {
    let spec = &plan.experiment.figure;
    let all: Vec<String> =
        plan.points.iter().flat_map(|p| p.point.coordinates.iter().map(|(n, _)| n)).collect::<BTreeSet<_>>().into_iter().cloned().collect();
    let by = spec.panels.clone().unwrap_or(all);
    let metrics = metrics(plan);
    let mut axes: Vec<&str> = spec.x.as_ref().map_or(vec!["round"], |x| x.list().iter().map(String::as_str).collect());
    // With several axes, an axis along which no method moves makes an empty panel, such as Hessians of first-order methods.
    let axis_of = |name: &str| Axis::named(name).expect("validated");
    let is_paid = |axis: &str| {
        let moves = |row: &Recorded| axis_of(axis).at(row).is_some_and(|x| x > 0.0);
        results.cells.iter().flatten().any(|seed| seed.rows.last().is_some_and(moves))
    };
    if axes.iter().any(|axis| is_paid(axis)) {
        axes.retain(|axis| is_paid(axis));
    }
    let drawing = Drawing {
        plan,
        results,
        predictor,
        axis: axis_of(axes[0]),
        x_log: spec.x_log.unwrap_or(false),
        centre: spec.centre.unwrap_or(CurveCentre::Mean),
        spread: BandKind::of(spec),
    };
    let mut figure = empty(plan);
    let mut seeds = SeedCounts::default();
    let groups = panels(plan, &by);
    let count = groups.len() * axes.len();
    figure.notes.extend(left_out(MAX_PANELS.min(count), count, "panels"));
    let each = groups.iter().flat_map(|(title, points)| axes.iter().map(move |axis| (title, points, *axis)));
    for (title, points, axis) in each.take(MAX_PANELS) {
        seeds.panel();
        figure.panels.push(Drawing { axis: axis_of(axis), ..drawing }.panel(title, points, &metrics, &by, &mut seeds));
    }
    seeds.note_in(&mut figure.panels);
    // Markers distinguish several lines in addition to colours.
    for panel in &mut figure.panels {
        let lines = panel.curves.iter().filter(|curve| curve.style == Style::Line && !curve.label.is_empty()).count();
        if lines > 1 {
            panel.curves.iter_mut().filter(|curve| curve.style == Style::Line).for_each(|curve| curve.style = Style::Marked);
        }
    }
    figure.caption = caption::curves(&seeds, drawing.centre, drawing.spread);
    let has_prediction = |panel: &Panel| !panel.levels.is_empty() || panel.curves.iter().any(|curve| curve.style == Style::Dashed);
    if figure.panels.iter().any(has_prediction) {
        figure.caption.push_str(PREDICTED);
    }
    if figure.panels.iter().any(|panel| panel.lower.is_some()) {
        figure.caption.push_str(" Lower panels: the measured mean over the predicted one, with the same bands.");
    }
    if drawing.stops_early(&figure) {
        figure.caption.push_str(" A line ends where the first of its seeds stops.");
    }
    figure
}

/// A panel while it is filled, with the panel of ratios below it.
struct Filled {
    panel: Panel,
    ratios: Panel,
    /// Whether all predicted curves are exact.
    all_exact: bool,
    /// The drawn levels, each of a method and a quantity.
    levels: BTreeSet<String>,
    doubts: Vec<String>,
}

impl Filled {
    /// Adds the note on a prediction that may be far off.
    fn doubt(&mut self, name: &str, accuracy: Option<Accuracy>) {
        self.doubts.extend(accuracy.and_then(|known| doubt(name, known)).filter(|note| !self.doubts.contains(note)));
    }
}

impl Drawing<'_> {
    /// The panel of some points, still empty.
    fn empty_panel(&self, title: &str, metrics: &[&str]) -> Filled {
        let spec = &self.plan.experiment.figure;
        let panel = Panel {
            title: title.to_string(),
            x_label: self.axis.title().into(),
            y_label: y_label(metrics),
            x_log: self.x_log,
            x_whole: matches!(self.axis, Axis::Count(_)),
            y_log: spec.is_y_log(),
            y_range: spec.y_range.map(|[a, b]| (a, b)),
            ..Panel::default()
        };
        let mut ratios = Panel {
            x_label: panel.x_label.clone(),
            y_label: "measured / exact".into(),
            x_log: panel.x_log,
            x_whole: panel.x_whole,
            ..Panel::default()
        };
        ratios.levels.push(Level { y: 1.0, color: 6, ..Level::default() });
        Filled { panel, ratios, all_exact: true, levels: BTreeSet::new(), doubts: Vec::new() }
    }

    /// The panel of some points.
    fn panel(&self, title: &str, points: &[usize], metrics: &[&str], by: &[String], seeds: &mut SeedCounts) -> Panel {
        let spec = &self.plan.experiment.figure;
        let mut filled = self.empty_panel(title, metrics);
        let mut notes = Vec::<String>::new();
        let methods = methods(self.plan);
        let cells = points.len() * metrics.len() * methods.len();
        // If there are too many curves, the same number of each method is drawn.
        let of_each = (MAX_CURVES / methods.len()).max(1);
        let several = methods.iter().flat_map(|(m, label)| {
            let all = points.iter().flat_map(move |point| metrics.iter().map(move |metric| (*m, *label, *point, *metric)));
            all.take(of_each)
        });
        for (color, (m, label, point, metric)) in several.take(MAX_CURVES).enumerate() {
            let planned = &self.plan.points[point];
            let cell = planned.cells[m];
            seeds.add(self.plan, self.results, cell);
            let rest = planned.point.coordinates.iter().filter(|(n, _)| !by.contains(n));
            let name = curve_name(label, rest.map(|(n, v)| coordinate_text(n, v)), (metrics.len() > 1).then_some(metric));
            filled.panel.curves.push(self.measured(cell, metric, &name, color));
            if fedsa::metrics::metric(metric).is_some_and(|metric| metric.is_predicted) {
                if spec.exact.contains(label) {
                    self.add_exact(&mut filled, cell, metric, &name, color);
                }
                self.add_levels(&mut filled, cell, label, &name, color);
            }
            notes.extend(status_note(self.plan, self.results, cell).filter(|note| !notes.contains(note)));
        }
        let Filled { mut panel, mut ratios, all_exact, doubts, .. } = filled;
        if let Some(slope) = spec.slope {
            panel.curves.extend(reference(slope, &panel.curves));
        }
        let shown = MAX_CURVES.min(of_each * methods.len());
        if cells > shown {
            panel.notes.push(format!("Shown: {shown} of {cells} curves, the first of each method"));
        }
        panel.notes.extend(capped(notes, MAX_PANEL_NOTES, "more that are refused or diverge"));
        panel.notes.extend(capped(doubts, MAX_PANEL_NOTES, "more closures with a large eps²"));
        if !all_exact {
            ratios.y_label = "measured / predicted".into();
        }
        if spec.ratios && !ratios.curves.is_empty() {
            panel.lower = Some(Box::new(ratios));
        }
        panel
    }

    /// Adds the predicted curve of a cell, and the ratio of the measured one to it.
    fn add_exact(&self, filled: &mut Filled, cell: usize, metric: &str, name: &str, color: usize) {
        let exact = self.exact(cell, metric, name, color);
        let accuracy = exact.as_ref().and_then(|_| self.predictor.curve_accuracy(cell).ok());
        filled.all_exact &= exact.is_none() || accuracy == Some(Accuracy::Exact);
        filled.doubt(name, accuracy);
        filled.ratios.curves.extend(exact.as_ref().map(|exact| self.ratio(cell, metric, exact, name, color)));
        filled.panel.curves.extend(exact);
    }

    /// Adds the predicted levels of a method that the file names, each once.
    fn add_levels(&self, filled: &mut Filled, cell: usize, label: &str, name: &str, color: usize) {
        for quantity in self.plan.experiment.figure.levels.get(label).into_iter().flatten() {
            let Ok(y) = self.predictor.number(cell, quantity) else { continue };
            let accuracy = self.predictor.accuracy(cell, quantity);
            let text = format!("{label}: {}", quantity_text(quantity, accuracy));
            if filled.levels.insert(format!("{label}: {quantity}")) {
                filled.panel.levels.push(Level { label: text, y, color, dash: quantity_dash(quantity) });
                filled.doubt(name, accuracy);
            }
        }
    }

    /// A metric of a cell at the rounds that the axis can show, one value per seed.
    fn data(&self, cell: usize, metric: &str) -> Vec<(Recorded, Vec<f64>)> {
        self.results.curve(cell, metric).into_iter().filter(|(row, _)| !self.x_log || row.round > 0).collect()
    }

    /// The centre of values, one per seed, with the edges of the band.
    fn middle(&self, values: &[f64]) -> (f64, f64, f64) {
        if self.centre == CurveCentre::Median {
            let mut sorted = values.to_vec();
            sorted.sort_by(f64::total_cmp);
            return (quantile(&sorted, 0.5), quantile(&sorted, 0.1), quantile(&sorted, 0.9));
        }
        let Estimate { mean, se } = Estimate::of(values);
        match self.spread {
            BandKind::Deviation => {
                // Positive, for logarithmic axes.
                let sd = se * (values.len() as f64).sqrt();
                (mean, (mean - sd).max(values.iter().copied().fold(f64::INFINITY, f64::min)), mean + sd)
            }
            _ => (mean, mean - se, mean + se),
        }
    }

    fn curve(&self, cell: usize, label: &str, color: usize, points: impl Iterator<Item = (f64, (f64, f64, f64))>) -> PlottedCurve {
        let mut curve = PlottedCurve { label: label.to_string(), color, ..PlottedCurve::default() };
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for (x, (middle, below, above)) in points {
            curve.x.push(x);
            curve.y.push(middle);
            low.push(below);
            high.push(above);
        }
        let has_band = self.results.cells[cell].len() > 1 && self.spread != BandKind::Nothing;
        curve.band = has_band.then_some((low, high));
        curve
    }

    fn measured(&self, cell: usize, metric: &str, label: &str, color: usize) -> PlottedCurve {
        let data = self.data(cell, metric);
        self.curve(cell, label, color, data.iter().filter_map(|(row, values)| Some((self.axis.at(row)?, self.middle(values)))))
    }

    /// A cell's exact mean-square error at the measured rounds, over the same axis. Costs in samples or bits come from the ledger of the
    /// measured rounds.
    fn exact(&self, cell: usize, metric: &str, name: &str, color: usize) -> Option<PlottedCurve> {
        let exact = self.predictor.mse(cell, &self.predictor.curve(cell).ok()?, metric);
        let grid = &self.plan.cells[cell].grid;
        let at = |row: &Recorded| Some((self.axis.at(row)?, exact[grid.binary_search(&row.round).ok()?]));
        let (x, y) = self.data(cell, metric).iter().filter_map(|(row, _)| at(row)).unzip();
        let accuracy = self.predictor.curve_accuracy(cell).ok()?;
        Some(PlottedCurve { label: format!("{name}, {accuracy}"), color, x, y, band: None, style: Style::Dashed })
    }

    /// The ratio of a measured to an exact curve.
    fn ratio(&self, cell: usize, metric: &str, exact: &PlottedCurve, label: &str, color: usize) -> PlottedCurve {
        let over: HashMap<u64, f64> = exact.x.iter().zip(&exact.y).map(|(x, y)| (x.to_bits(), *y)).collect();
        let at = |(row, values): &(Recorded, Vec<f64>)| {
            let x = self.axis.at(row)?;
            let exact = over.get(&x.to_bits())?;
            let (middle, low, high) = self.middle(values);
            Some((x, (middle / exact, low / exact, high / exact)))
        };
        let data = self.data(cell, metric);
        self.curve(cell, label, color, data.iter().filter_map(at))
    }

    /// Whether seeds of one drawn cell end at different rounds.
    fn stops_early(&self, figure: &Chart) -> bool {
        let ends_apart = |seeds: &Vec<super::super::results::SeedResult>| {
            let last = |seed: &super::super::results::SeedResult| seed.rows.last().map(|row| row.round);
            seeds.iter().any(|seed| seed.stopped) && seeds.windows(2).any(|pair| last(&pair[0]) != last(&pair[1]))
        };
        !figure.panels.is_empty() && self.results.cells.iter().any(ends_apart)
    }
}
