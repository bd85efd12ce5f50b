//! The layout of a figure: panels on a grid, ranges of their axes, legends and notes.

use super::axis::{Axis, Ticks, scaled};
use super::legend::{self, Entry, Legend};
use super::scene::{Anchor, Mark, Scene};
use super::style::*;
use super::text::Font;
use super::trace::Window;
use super::{Curve, Figure, Panel, Style};

/// Of a picture, for which the sizes of text are chosen: it fills a page of 900 pixels, or is less.
const WIDTH: f64 = 900.0;
const SINGLE_WIDTH: f64 = 720.0;
const MARGIN: f64 = 14.0;
const COLUMN_GAP: f64 = 16.0;
const ROW_GAP: f64 = 14.0;
const NARROWEST_PANEL: f64 = 90.0;
const TICK_LENGTH: f64 = 4.0;
const TICK_GAP: f64 = 7.0;
/// How far a label under the x axis may stand out on either side.
const OVERHANG: f64 = 12.0;
const AXIS_MARGIN: f64 = 0.04;
/// Points and corners in the whole picture, so that an SVG stays below a megabyte.
const BUDGET: usize = 60_000;
const LONGEST_TITLE: usize = 3;
const LONGEST_NOTE: usize = 12;

/// How curves are drawn.
struct Pen {
    width: f64,
    /// Points that each line, band or set of markers may have.
    budget: usize,
}

/// A panel with what its layout needs to know.
struct Prepared<'a> {
    panel: &'a Panel,
    x: Axis,
    y: Axis,
    y_ticks: Ticks,
    title: Vec<String>,
    x_label: Vec<String>,
    y_label: Vec<String>,
    legend: Legend,
    notes: Vec<String>,
}

pub(super) fn scene(figure: &Figure) -> Scene {
    let panels = &figure.panels;
    let columns = figure.columns.unwrap_or_else(|| usual_columns(panels.len())).clamp(1, panels.len().max(1));
    let panel_height = match columns {
        1 => 340.0,
        2 => 250.0,
        3 => 195.0,
        4 => 165.0,
        _ => 140.0,
    };
    let axes: Vec<(Axis, Axis)> = panels.iter().map(axes).collect();
    let y_ticks: Vec<Ticks> = axes.iter().map(|(_, y)| y.ticks((panel_height / (2.6 * TICK.size)) as usize, panel_height)).collect();
    let y_labels: Vec<Vec<String>> = (0..panels.len())
        .map(|i| match i % columns > 0 && panels[i].y_label == panels[i - 1].y_label {
            true => Vec::new(),
            false => AXIS_LABEL.wrap(&panels[i].y_label, panel_height, 2),
        })
        .collect();

    // Left of each column's panels there is room for the widest labels in it.
    let aside = |i: usize| {
        let widest = y_ticks[i].major.iter().map(|(_, label)| TICK.width(label)).fold(0.0, f64::max);
        widest + TICK_GAP + y_labels[i].len() as f64 * AXIS_LABEL.leading() + 4.0
    };
    let asides: Vec<f64> = (0..columns).map(|column| (column..panels.len()).step_by(columns).map(aside).fold(0.0, f64::max)).collect();
    let wanted = if columns == 1 { SINGLE_WIDTH } else { WIDTH };
    let around = 2.0 * MARGIN + asides.iter().sum::<f64>() + (columns - 1) as f64 * COLUMN_GAP;
    let panel_width = ((wanted - around) / columns as f64).max(NARROWEST_PANEL);
    let width = panel_width * columns as f64 + around;
    let content = width - 2.0 * MARGIN;

    let entries: Vec<Vec<Entry>> = panels.iter().map(legend::entries).collect();
    let shared = legend::shared(&entries);
    let prepared: Vec<Prepared> = panels
        .iter()
        .zip(axes)
        .zip(y_ticks)
        .zip(y_labels)
        .enumerate()
        .map(|(i, (((panel, (x, y)), y_ticks), y_label))| {
            let told_below = panels.get(i + columns).is_some_and(|below| below.x_label == panel.x_label);
            let own_legend: &[Entry] = if shared.is_some() { &[] } else { &entries[i] };
            Prepared {
                panel,
                x,
                y,
                y_ticks,
                title: PANEL_TITLE.wrap(&panel.title, panel_width, LONGEST_TITLE),
                x_label: if told_below { Vec::new() } else { AXIS_LABEL.wrap(&panel.x_label, panel_width, 2) },
                y_label,
                legend: Legend::new(own_legend, panel_width),
                notes: paragraphs(&panel.notes, NOTE, panel_width),
            }
        })
        .collect();

    let mut scene = Scene::new(&figure.title, width);
    let mut y = MARGIN;
    y = scene.paragraph((MARGIN, y), &TITLE.wrap(&figure.title, content, LONGEST_TITLE), TITLE, Anchor::Start, INK);
    if let Some(subtitle) = &figure.subtitle {
        y = scene.paragraph((MARGIN, y), &SUBTITLE.wrap(subtitle, content, LONGEST_NOTE), SUBTITLE, Anchor::Start, SOFT_INK);
    }
    if y > MARGIN {
        y += 8.0;
    }

    let pen = Pen {
        width: if columns <= 2 { CURVE_WIDTH } else { FINE_CURVE_WIDTH },
        budget: BUDGET / panels.iter().flat_map(|panel| &panel.curves).map(parts).sum::<usize>().max(1),
    };
    for row in prepared.chunks(columns) {
        let title_height = highest(row, |p| p.title.len() as f64 * PANEL_TITLE.leading() + 4.0);
        let top = y + title_height;
        let mut left = MARGIN;
        for (prepared, aside) in row.iter().zip(&asides) {
            left += aside;
            let window = Window { left, top, width: panel_width, height: panel_height, x: prepared.x, y: prepared.y };
            prepared.draw(&mut scene, &window, left - aside, &pen);
            left += panel_width + COLUMN_GAP;
        }
        y = top + panel_height + highest(row, Prepared::height_beneath) + ROW_GAP;
    }

    if let Some(entries) = shared.filter(|entries| !entries.is_empty()) {
        let legend = Legend::new(&entries, content);
        legend.draw(&mut scene, (MARGIN + ((content - legend.width()) / 2.0).max(0.0), y));
        y += legend.height + ROW_GAP;
    }
    y = scene.paragraph((MARGIN, y), &paragraphs(&figure.notes, NOTE, content), NOTE, Anchor::Start, SOFT_INK);
    scene.height = y + MARGIN;
    scene
}

pub(super) fn paragraphs(notes: &[String], font: Font, width: f64) -> Vec<String> {
    notes.iter().flat_map(|note| font.wrap(note, width, LONGEST_NOTE)).collect()
}

fn usual_columns(panels: usize) -> usize {
    match panels {
        0 | 1 => 1,
        2 | 4 => 2,
        3 | 5 | 6 | 9 => 3,
        10 => 5,
        _ => 4,
    }
}

fn highest<'a>(row: &[Prepared<'a>], height: impl Fn(&Prepared<'a>) -> f64) -> f64 {
    row.iter().map(height).fold(0.0, f64::max)
}

impl Prepared<'_> {
    fn height_beneath(&self) -> f64 {
        let legend = if self.legend.height > 0.0 { 4.0 + self.legend.height } else { 0.0 };
        let notes = if self.notes.is_empty() { 0.0 } else { 3.0 + self.notes.len() as f64 * NOTE.leading() };
        TICK_GAP + TICK.leading() + self.x_label.len() as f64 * AXIS_LABEL.leading() + legend + notes
    }

    fn draw(&self, scene: &mut Scene, window: &Window, left: f64, pen: &Pen) {
        let x_ticks = fitting_ticks(&self.x, window.width);
        grid(scene, window, &x_ticks, &self.y_ticks);
        self.draw_data(scene, window, pen);
        frame(scene, window, &x_ticks, &self.y_ticks);

        let title_top = window.top - 4.0 - self.title.len() as f64 * PANEL_TITLE.leading();
        scene.paragraph((window.left, title_top), &self.title, PANEL_TITLE, Anchor::Start, INK);
        let middle = window.top + window.height / 2.0;
        for (i, line) in self.y_label.iter().enumerate() {
            let x = left + AXIS_LABEL.baseline() + i as f64 * AXIS_LABEL.leading();
            scene.upward_text((x, middle), line, AXIS_LABEL, Anchor::Middle, INK);
        }
        let mut y = window.bottom() + TICK_GAP + TICK.leading();
        let center = window.left + window.width / 2.0;
        y = scene.paragraph((center, y), &self.x_label, AXIS_LABEL, Anchor::Middle, INK);
        if self.legend.height > 0.0 {
            self.legend.draw(scene, (window.left, y + 4.0));
            y += 4.0 + self.legend.height;
        }
        scene.paragraph((window.left, y + 3.0), &self.notes, NOTE, Anchor::Start, SOFT_INK);
    }

    fn draw_data(&self, scene: &mut Scene, window: &Window, pen: &Pen) {
        let before = scene.marks.len();
        for curve in &self.panel.curves {
            if let Some((low, high)) = &curve.band {
                let ribbons = window.ribbons(&curve.x, low, high, pen.budget / 2);
                scene.marks.extend(ribbons.into_iter().map(|edges| Mark::Ribbon { edges, color: color(curve.color) }));
            }
        }
        for curve in &self.panel.curves {
            draw_curve(scene, window, curve, pen);
        }
        for level in &self.panel.levels {
            let inside = window.y_at(level.y).filter(|y| (window.top..=window.bottom()).contains(y));
            scene.marks.extend(inside.map(|y| Mark::Line {
                points: vec![(window.left, y), (window.right(), y)],
                color: level_color(level.color),
                width: LEVEL_WIDTH,
                dash: level_dash(level.dash),
            }));
        }
        if scene.marks.len() == before {
            let middle = (window.left + window.width / 2.0, window.top + window.height / 2.0);
            scene.text(middle, "nothing to show", NOTE, Anchor::Middle, SOFT_INK);
        }
    }
}

/// How many drawings a curve is made of.
fn parts(curve: &Curve) -> usize {
    1 + usize::from(curve.band.is_some()) + usize::from(curve.style == Style::LinePoints)
}

fn draw_curve(scene: &mut Scene, window: &Window, curve: &Curve, pen: &Pen) {
    let ink = color(curve.color);
    if curve.style != Style::Points {
        let dash = if curve.style == Style::Dashed { broken_dash(curve.color) } else { solid_dash(curve.color) };
        let pieces = window.pieces(&curve.x, &curve.y, pen.budget);
        let end = pieces.last().and_then(|piece| piece.last()).copied();
        for points in pieces {
            scene.marks.push(match points[..] {
                [center] => Mark::Disc { center, radius: pen.width, color: ink },
                _ => Mark::Line { points, color: ink, width: pen.width, dash },
            });
        }
        if let Some((x, y)) = end.filter(|(_, y)| *y == window.top && rises_out(window, curve)) {
            let points = vec![(x - 4.0, y + 7.0), (x + 4.0, y + 7.0), (x, y)];
            scene.marks.push(Mark::Polygon { points, color: ink });
        }
    }
    if matches!(curve.style, Style::Points | Style::LinePoints) {
        // A marker is written with about as many bytes as ten corners of a line.
        let points = window.points(&curve.x, &curve.y, pen.budget / 10);
        scene.marks.extend(points.into_iter().map(|at| marker(curve.color, at)));
    }
}

/// Whether the curve's last value is too large for the window.
fn rises_out(window: &Window, curve: &Curve) -> bool {
    let last = curve.x.iter().zip(&curve.y).rev().find_map(|(_, y)| window.y_at(*y));
    last.is_some_and(|y| y < window.top)
}

/// As many ticks as have room for their labels.
fn fitting_ticks(axis: &Axis, width: f64) -> Ticks {
    let most = (width / (4.0 * TICK.size)).ceil() as usize;
    let fits = |ticks: &Ticks| {
        let ends = |(at, label): &(f64, String)| {
            let (center, half) = (label_center(*at, label, width), TICK.width(label) / 2.0);
            (center - half, center + half)
        };
        ticks.major.windows(2).all(|pair| ends(&pair[1]).0 - ends(&pair[0]).1 >= 0.8 * TICK.size)
    };
    (1..=most).rev().map(|count| axis.ticks(count, width)).find(fits).unwrap_or_default()
}

/// Under its tick, unless it would then reach into the neighbouring panel.
fn label_center(at: f64, label: &str, width: f64) -> f64 {
    let half = TICK.width(label) / 2.0;
    (at * width).min(width + OVERHANG - half).max(half - OVERHANG)
}

fn grid(scene: &mut Scene, window: &Window, x: &Ticks, y: &Ticks) {
    let column = |at: f64| window.left + at * window.width;
    let row = |at: f64| window.bottom() - at * window.height;
    let upright = |at: f64| vec![(column(at), window.top), (column(at), window.bottom())];
    let level = |at: f64| vec![(window.left, row(at)), (window.right(), row(at))];
    for at in &x.minor {
        scene.line(upright(*at), MINOR_GRID, 0.8);
    }
    for at in &y.minor {
        scene.line(level(*at), MINOR_GRID, 0.8);
    }
    for (at, _) in &x.major {
        scene.line(upright(*at), MAJOR_GRID, 0.8);
    }
    for (at, _) in &y.major {
        scene.line(level(*at), MAJOR_GRID, 0.8);
    }
}

fn frame(scene: &mut Scene, window: &Window, x: &Ticks, y: &Ticks) {
    let (left, right, top, bottom) = (window.left, window.right(), window.top, window.bottom());
    for (at, label) in &x.major {
        let x = left + at * window.width;
        scene.line(vec![(x, bottom), (x, bottom + TICK_LENGTH)], FRAME, 1.0);
        let label_x = left + label_center(*at, label, window.width);
        scene.text((label_x, bottom + TICK_GAP + TICK.baseline()), label, TICK, Anchor::Middle, INK);
    }
    for (at, label) in &y.major {
        let y = bottom - at * window.height;
        scene.line(vec![(left - TICK_LENGTH, y), (left, y)], FRAME, 1.0);
        scene.text((left - TICK_GAP, y + TICK.half_capital()), label, TICK, Anchor::End, INK);
    }
    scene.line(vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], FRAME, 1.0);
}

fn axes(panel: &Panel) -> (Axis, Axis) {
    let shown = |curve: &Curve| -> Vec<(f64, f64)> {
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
            // An edge may be nearly zero or nearly infinite; the curve says how far to follow it.
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
    let fixed = panel.y_range.and_then(|range| Axis::exactly(range, panel.y_log));
    (Axis::around(x_range.0, panel.x_log, 0.02), fixed.unwrap_or_else(|| Axis::around(y_range.0, panel.y_log, AXIS_MARGIN)))
}

#[derive(Default)]
struct Range(Option<(f64, f64)>);

impl Range {
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            let (low, high) = self.0.unwrap_or((value, value));
            self.0 = Some((low.min(value), high.max(value)));
        }
    }
}

/// The range of a curve's values, on the axis's scale. Of one that diverges, only the beginning of its ascent or descent.
fn sober_range(values: impl Iterator<Item = f64> + Clone, log: bool) -> Option<(f64, f64)> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = sober_maximum(values.clone(), log)?;
    let low = if log { low } else { -sober_maximum(values.map(|v| -v), false)? };
    Some((low.min(high), high))
}

/// The largest value; but if a curve ends in one that is out of all proportion to its start, a few times the start.
fn sober_maximum(values: impl Iterator<Item = f64> + Clone, log: bool) -> Option<f64> {
    // No quantity here is as large for a good reason.
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
