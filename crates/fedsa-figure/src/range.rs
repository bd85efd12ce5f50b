//! The ranges of panels' axes, and the panels that share an axis.

use super::axis::{Axis, scaled};
use super::{Panel, Style};

const X_MARGIN: f64 = 0.02;
/// The margin of a range, which gives room for markers.
const X_MARGIN_OF_POINTS: f64 = 0.035;
const Y_MARGIN: f64 = 0.04;
/// The part of a shared axis that each panel must fill, unless sharing is set explicitly.
const SENSIBLE: f64 = 0.2;

/// The two axes of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes {
    pub x: Axis,
    pub y: Axis,
}

/// The axes of panels, given row by row. `share` determines whether panels of the same quantity share the vertical
/// axis. By default they do if each fills a good part of it; otherwise each row of panels is tried separately.
pub(super) fn axes(panels: &[Option<&Panel>], columns: usize, share: Option<bool>) -> Vec<Option<Axes>> {
    let mut ranges: Vec<(Range, Range)> = panels.iter().map(|panel| panel.map_or_else(Default::default, ranges)).collect();
    let shareable =
        |i: &usize| panels[*i].is_some_and(|panel| panel.y_range.is_none() && panel.y_names.is_empty()) && ranges[*i].1.0.is_some();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for i in (0..panels.len()).filter(shareable) {
        let is_like = |a: usize, b: usize| match (panels[a], panels[b]) {
            (Some(a), Some(b)) => a.y_label == b.y_label && a.y_log == b.y_log,
            _ => false,
        };
        match groups.iter_mut().find(|group| is_like(group[0], i)) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    for group in groups.iter().filter(|_| share != Some(false)) {
        let within: Vec<Range> = group.iter().map(|i| ranges[*i].1).collect();
        if share == Some(true) || is_sensible(&within) {
            group.iter().for_each(|i| ranges[*i].1 = union(&within));
            continue;
        }
        for row in group.chunk_by(|a, b| a / columns == b / columns) {
            let within: Vec<Range> = row.iter().map(|i| ranges[*i].1).collect();
            if is_sensible(&within) {
                row.iter().for_each(|i| ranges[*i].1 = union(&within));
            }
        }
    }
    let axes = panels.iter().zip(ranges).map(|(panel, (x, y))| {
        let panel = (*panel)?;
        let fixed = panel.y_range.and_then(|range| Axis::exactly(range, panel.y_log));
        let names = (!panel.y_names.is_empty()).then(|| Axis::exactly((-0.5, panel.y_names.len() as f64 - 0.5), false)).flatten();
        let y = names.or(fixed).unwrap_or_else(|| Axis::around(y.0, panel.y_log, Y_MARGIN));
        let has_points = panel.curves.iter().any(|curve| matches!(curve.style, Style::Points | Style::LinePoints | Style::Cloud));
        let margin = if has_points { X_MARGIN_OF_POINTS } else { X_MARGIN };
        Some(Axes { x: Axis::around(x.0, panel.x_log, margin).with_binary_ticks(panel.x_binary).with_whole_ticks(panel.x_whole), y })
    });
    axes.collect()
}

fn union(ranges: &[Range]) -> Range {
    let mut all = Range::default();
    ranges.iter().filter_map(|range| range.0).for_each(|(low, high)| {
        all.add(low);
        all.add(high);
    });
    all
}

fn is_sensible(ranges: &[Range]) -> bool {
    let span = |range: &Range| range.0.map_or(0.0, |(low, high)| 0.5 * high - 0.5 * low);
    let whole = span(&union(ranges));
    ranges.len() > 1 && ranges.iter().all(|range| span(range) >= SENSIBLE * whole)
}

fn ranges(panel: &Panel) -> (Range, Range) {
    let shown = |curve: &super::PlottedCurve| -> Vec<(f64, f64)> {
        let points = curve.x.iter().zip(&curve.y);
        points.filter_map(|(x, y)| Some((scaled(*x, panel.x_log)?, scaled(*y, panel.y_log)?))).collect()
    };
    let mut x_range = Range::default();
    let mut y_range = Range::default();
    for curve in &panel.curves {
        let points = shown(curve);
        points.iter().for_each(|(x, _)| x_range.add(*x));
        let Some((low, high)) = sober_range(points.iter().map(|(_, y)| *y), panel.y_log) else {
            continue;
        };
        y_range.add(low);
        y_range.add(high);
        if let Some((lower, upper)) = &curve.band {
            // An edge may be close to zero or infinite; the curve limits the visible part of the band.
            let reach = if panel.y_log { 1.0 } else { high - low };
            let edges = curve.y.iter().zip(lower).zip(upper);
            for ((y, lower), upper) in edges {
                if let Some(y) = scaled(*y, panel.y_log).filter(|y| (low..=high).contains(y)) {
                    scaled(*lower, panel.y_log).into_iter().for_each(|edge| y_range.add(edge.max(y - reach)));
                    scaled(*upper, panel.y_log).into_iter().for_each(|edge| y_range.add(edge.min(y + reach)));
                }
            }
        }
    }
    for level in &panel.levels {
        scaled(level.y, panel.y_log).into_iter().for_each(|y| y_range.add(y));
    }
    (x_range, y_range)
}

#[derive(Clone, Copy, Debug, Default)]
struct Range(Option<(f64, f64)>);

impl Range {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            let (low, high) = self.0.unwrap_or((value, value));
            self.0 = Some((low.min(value), high.max(value)));
        }
    }
}

/// The range of a curve's values on the axis's scale. For a curve that diverges, only the start of its ascent or descent.
fn sober_range(values: impl Iterator<Item = f64> + Clone, log: bool) -> Option<(f64, f64)> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = sober_maximum(values.clone(), log)?;
    let low = if log { low } else { -sober_maximum(values.map(|v| -v), false)? };
    Some((low.min(high), high))
}

/// The largest value; for a curve whose last value is far larger than its start, a multiple of the start.
fn sober_maximum(values: impl Iterator<Item = f64> + Clone, log: bool) -> Option<f64> {
    // Values of this size occur only after divergence.
    const SOBER: f64 = 1e12;
    let last = values.clone().last()?;
    let highest = values.clone().fold(f64::NEG_INFINITY, f64::max);
    let start = values.clone().find(|v| log || *v != 0.0).unwrap_or(0.0);
    let (sober, kept) = match log {
        true => (SOBER.log10().max(start + 12.0), start + 3.0),
        false => (SOBER.max(start.abs() * SOBER), 10.0 * start.abs()),
    };
    Some(if last == highest && highest > sober { kept } else { highest })
}
