//! One panel: its grid, curves, levels and frame, its labels, and the notes below it.

use super::axis::{Axis, Ticks};
use super::legend::Legend;
use super::overlap::Overlaps;
use super::point::Point;
use super::scene::{Anchor, Dash, Mark, Scene};
use super::sheet::Sheet;
use super::style::*;
use super::trace::Window;
use super::{Level, Panel, PlottedCurve, Style};

pub(super) const TICK_LENGTH: f64 = 4.0;
pub(super) const TICK_GAP: f64 = 7.0;

/// Settings for drawing curves.
pub(super) struct CurvePen<'a> {
    pub sheet: &'a Sheet,
    pub overlaps: &'a Overlaps,
    pub width: f64,
    /// The largest number of points of each line, band or set of markers.
    pub budget: usize,
}

/// The labels, legend and notes around a panel's window, broken into lines.
pub(super) struct Drawn {
    pub sheet: Sheet,
    pub y_ticks: Ticks,
    pub are_y_ticks_named: bool,
    pub are_x_ticks_named: bool,
    pub title: Vec<String>,
    pub x_label: Vec<String>,
    pub y_label: Vec<String>,
    pub legend: Legend,
    pub notes: Vec<String>,
}

impl Drawn {
    pub fn height_above(&self) -> f64 {
        self.title.len() as f64 * self.sheet.fonts.panel_title.leading() + 4.0
    }

    pub fn height_beneath(&self) -> f64 {
        let legend = if self.legend.height > 0.0 { 4.0 + self.legend.height } else { 0.0 };
        let notes = if self.notes.is_empty() { 0.0 } else { 3.0 + self.notes.len() as f64 * self.sheet.fonts.note.leading() };
        self.axis_height() + self.x_label.len() as f64 * self.sheet.fonts.axis_label.leading() + legend + notes
    }

    fn axis_height(&self) -> f64 {
        if self.are_x_ticks_named { TICK_GAP + self.sheet.fonts.tick.leading() } else { 0.0 }
    }

    /// Draws everything; the label of the vertical axis begins at `left`.
    pub fn draw(&self, scene: &mut Scene, panel: &Panel, window: &Window, left: f64, pen: &CurvePen) {
        let x_ticks = fitting_ticks(&window.x, window.width, &self.sheet);
        grid(scene, window, &x_ticks, &self.y_ticks, pen.sheet.colors);
        draw_data(scene, panel, window, pen);
        self.draw_around(scene, window, &x_ticks, left);
    }

    /// Draws the frame and its surroundings; the label of the vertical axis begins at `left`.
    pub fn draw_around(&self, scene: &mut Scene, window: &Window, x_ticks: &Ticks, left: f64) {
        let sheet = &self.sheet;
        let (colors, fonts) = (sheet.colors, sheet.fonts);
        self.frame(scene, window, x_ticks, colors);

        let title_top = window.top - 4.0 - self.title.len() as f64 * fonts.panel_title.leading();
        scene.paragraph((window.left, title_top), &self.title, fonts.panel_title, Anchor::Start, colors.ink);
        let middle = window.top + window.height / 2.0;
        for (i, line) in self.y_label.iter().enumerate() {
            let x = left + fonts.axis_label.baseline() + i as f64 * fonts.axis_label.leading();
            scene.upward_text((x, middle), line, fonts.axis_label, Anchor::Middle, colors.ink);
        }
        let mut y = window.bottom() + self.axis_height();
        let center = window.left + window.width / 2.0;
        y = scene.paragraph((center, y), &self.x_label, fonts.axis_label, Anchor::Middle, colors.ink);
        if self.legend.height > 0.0 {
            self.legend.draw(scene, (window.left, y + 4.0), sheet);
            y += 4.0 + self.legend.height;
        }
        scene.paragraph((window.left, y + 3.0), &self.notes, fonts.note, Anchor::Start, colors.soft_ink);
    }

    fn frame(&self, scene: &mut Scene, window: &Window, x_ticks: &Ticks, colors: &Colors) {
        let tick = self.sheet.fonts.tick;
        let (left, right, top, bottom) = (window.left, window.right(), window.top, window.bottom());
        for (at, label) in &x_ticks.major {
            let x = left + at * window.width;
            scene.line(vec![(x, bottom), (x, bottom + TICK_LENGTH)], colors.frame, 1.0);
            if self.are_x_ticks_named {
                let label_x = left + label_center(*at, label, window.width, &self.sheet);
                scene.text((label_x, bottom + TICK_GAP + tick.baseline()), label, tick, Anchor::Middle, colors.ink);
            }
        }
        for (at, label) in &self.y_ticks.major {
            let y = bottom - at * window.height;
            scene.line(vec![(left - TICK_LENGTH, y), (left, y)], colors.frame, 1.0);
            if self.are_y_ticks_named {
                scene.text((left - TICK_GAP, y + tick.half_capital()), label, tick, Anchor::End, colors.ink);
            }
        }
        scene.line(vec![(left, top), (right, top), (right, bottom), (left, bottom), (left, top)], colors.frame, 1.0);
    }
}

/// The largest number of ticks whose labels have room.
pub(super) fn fitting_ticks(axis: &Axis, width: f64, sheet: &Sheet) -> Ticks {
    let tick = sheet.fonts.tick;
    let most = (width / (4.0 * tick.size)).ceil() as usize;
    let fits = |ticks: &Ticks| {
        let ends = |(at, label): &(f64, String)| {
            let (center, half) = (label_center(*at, label, width, sheet), tick.width(label) / 2.0);
            (center - half, center + half)
        };
        ticks.major.windows(2).all(|pair| ends(&pair[1]).0 - ends(&pair[0]).1 >= 0.8 * tick.size)
    };
    (1..=most).rev().map(|count| axis.ticks(count, width)).find(fits).unwrap_or_default()
}

/// The position of a label: under its tick, or shifted if it would reach into the neighbouring panel.
fn label_center(at: f64, label: &str, width: f64, sheet: &Sheet) -> f64 {
    let (half, overhang) = (sheet.fonts.tick.width(label) / 2.0, sheet.overhang());
    (at * width).min(width + overhang - half).max(half - overhang)
}

fn grid(scene: &mut Scene, window: &Window, x: &Ticks, y: &Ticks, colors: &Colors) {
    let column = |at: f64| window.left + at * window.width;
    let row = |at: f64| window.bottom() - at * window.height;
    let upright = |at: f64| vec![(column(at), window.top), (column(at), window.bottom())];
    let level = |at: f64| vec![(window.left, row(at)), (window.right(), row(at))];
    for at in &x.minor {
        scene.line(upright(*at), colors.minor_grid, 0.8);
    }
    for at in &y.minor {
        scene.line(level(*at), colors.minor_grid, 0.8);
    }
    for (at, _) in &x.major {
        scene.line(upright(*at), colors.major_grid, 0.8);
    }
    for (at, _) in &y.major {
        scene.line(level(*at), colors.major_grid, 0.8);
    }
}

/// Draws bands and clouds first, then references, measured curves (the lowest of coinciding ones first), markers, and predictions.
fn draw_data(scene: &mut Scene, panel: &Panel, window: &Window, pen: &CurvePen) {
    let before = scene.marks.len();
    for curve in &panel.curves {
        if let Some((low, high)) = &curve.band
            && curve.style != Style::Points
        {
            let ribbons = window.ribbons(&curve.x, low, high, pen.budget / 2);
            let (color, opacity) = (pen.sheet.colors.curve(curve.color), pen.sheet.colors.band_opacity);
            scene.marks.extend(ribbons.into_iter().map(|edges| Mark::Ribbon { edges, color, opacity }));
        }
    }
    for curve in panel.curves.iter().filter(|curve| curve.style == Style::Cloud) {
        let color = pen.sheet.colors.cloud(curve.color);
        let points = window.points(&curve.x, &curve.y, pen.budget / 10);
        scene.marks.extend(points.into_iter().map(|center| Mark::Disc { center, radius: CLOUD_RADIUS, color }));
    }
    let mut curves: Vec<&PlottedCurve> = panel.curves.iter().collect();
    let layer = |curve: &PlottedCurve| match curve.style {
        Style::Reference => 0,
        Style::Dashed => 2,
        _ => 1,
    };
    curves.sort_by_key(|curve| (layer(curve), pen.overlaps.at(curve).depth));
    for curve in curves.iter().filter(|c| layer(c) < 2) {
        draw_line(scene, window, curve, pen);
    }
    for curve in curves.iter().filter(|c| matches!(c.style, Style::Points | Style::LinePoints)) {
        draw_bars(scene, window, curve, pen);
        // A marker takes about as many bytes as ten corners of a line.
        let size = marker_size(pen.overlaps.at(curve)) * pen.width / CURVE_WIDTH;
        let points = window.points(&curve.x, &curve.y, pen.budget / 10);
        let marker = |at: Point| match curve.style {
            Style::Points => pen.sheet.point_marker(curve.color, at, size),
            _ => vec![pen.sheet.marker(curve.color, at, size)],
        };
        scene.marks.extend(points.into_iter().flat_map(marker));
    }
    for curve in curves.iter().filter(|c| pen.sheet.drawn_as(c.style) == Style::Marked) {
        let size = marker_size(pen.overlaps.at(curve)) * pen.width / CURVE_WIDTH;
        scene.marks.extend(places_of_markers(window, curve).into_iter().map(|at| pen.sheet.marker(curve.color, at, size)));
    }
    for curve in curves.iter().filter(|c| layer(c) == 2) {
        draw_line(scene, window, curve, pen);
        scene.marks.extend(pen.sheet.predicted_markers(curve.color, places_of_markers(window, curve)));
    }
    draw_levels(scene, &panel.levels, window, pen.sheet);
    if scene.marks.len() == before {
        let middle = (window.left + window.width / 2.0, window.top + window.height / 2.0);
        scene.text(middle, "nothing to show", pen.sheet.fonts.note, Anchor::Middle, pen.sheet.colors.soft_ink);
    }
}

/// The number of markers of a marked line: at its end, and at equal distances, shifted for each colour.
const MARKERS: usize = 5;

fn places_of_markers(window: &Window, curve: &PlottedCurve) -> Vec<Point> {
    let shift = (0.5 + 0.381_966 * curve.color as f64).fract();
    let wanted = |k: usize| window.left + window.width * (k as f64 + shift) / MARKERS as f64;
    let points: Vec<Point> = curve.x.iter().zip(&curve.y).filter_map(|(x, y)| window.place(*x, *y)).collect();
    let is_inside = |y: f64| (window.top..=window.bottom()).contains(&y);
    let between = points.windows(2).flat_map(|pair| {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        (0..MARKERS).map(wanted).filter(move |x| x0 <= *x && *x < x1).map(move |x| (x, y0 + (x - x0) / (x1 - x0) * (y1 - y0)))
    });
    let last = points.last().copied().filter(|(x, _)| (window.left..=window.right()).contains(x));
    // A curve that goes back and forth passes a place often: its first passages are enough.
    between.chain(last).filter(|(_, y)| is_inside(*y)).take(2 * MARKERS).collect()
}

/// The line of a curve, if it has one.
fn draw_line(scene: &mut Scene, window: &Window, curve: &PlottedCurve, pen: &CurvePen) {
    let overlap = pen.overlaps.at(curve);
    let (color, width, dash) = match curve.style {
        Style::Points | Style::Cloud => return,
        Style::Reference => (pen.sheet.colors.reference, REFERENCE_WIDTH, reference_dash()),
        Style::Dashed => (pen.sheet.colors.prediction(curve.color), LEVEL_WIDTH, pen.sheet.predicted_dash(curve.color, overlap)),
        Style::Line | Style::LinePoints | Style::Marked => {
            (pen.sheet.colors.curve(curve.color), pen.width, pen.sheet.curve_dash(curve.color, overlap))
        }
    };
    let pieces = window.pieces(&curve.x, &curve.y, pen.budget);
    let end = pieces.last().and_then(|piece| piece.last()).copied();
    // A line of a single point, as for a method of one round, gets a marker, because a dot of the line's width is hard to see.
    let is_alone = pieces.len() == 1 && curve.style == Style::Line;
    for points in pieces {
        let dash = dash.stretched(&points);
        scene.marks.push(match points[..] {
            [center] if is_alone => pen.sheet.marker(curve.color, center, marker_size(overlap) * pen.width / CURVE_WIDTH),
            [center] => Mark::Disc { center, radius: width, color },
            _ => Mark::Line { points, color, width, dash },
        });
    }
    if let Some((x, y)) = end.filter(|(_, y)| *y == window.top && rises_out(window, curve)) {
        let points = vec![(x - 4.0, y + 7.0), (x + 4.0, y + 7.0), (x, y)];
        scene.marks.push(Mark::Polygon { points, color });
    }
}

/// The bars of points with a band.
fn draw_bars(scene: &mut Scene, window: &Window, curve: &PlottedCurve, pen: &CurvePen) {
    let (Some((low, high)), Style::Points) = (&curve.band, curve.style) else { return };
    for ((&x, low), high) in curve.x.iter().zip(low).zip(high).take(pen.budget / 10) {
        for points in window.pieces(&[x, x], &[*low, *high], 4).into_iter().filter(|points| points.len() > 1) {
            scene.line(points, pen.sheet.colors.curve(curve.color), BAR_WIDTH);
        }
    }
}

/// Whether the curve's last value is too large for the window.
fn rises_out(window: &Window, curve: &PlottedCurve) -> bool {
    let last = curve.x.iter().zip(&curve.y).rev().find_map(|(_, y)| window.y_at(*y));
    last.is_some_and(|y| y < window.top)
}

/// Draws levels; the dashes of coinciding levels alternate along the line.
fn draw_levels(scene: &mut Scene, levels: &[Level], window: &Window, sheet: &Sheet) {
    const NEAR: f64 = 1.5;
    let inside = |level: &Level| window.y_at(level.y).filter(|y| (window.top..=window.bottom()).contains(y));
    let mut groups: Vec<Vec<(&Level, f64)>> = Vec::new();
    for (level, y) in levels.iter().filter_map(|level| Some((level, inside(level)?))) {
        match groups.iter_mut().find(|group| (group[0].1 - y).abs() < NEAR) {
            Some(group) => group.push((level, y)),
            None => groups.push(vec![(level, y)]),
        }
    }
    for group in groups {
        let period = |level: &Level| sheet.level_dash(level.color, level.dash).lengths.iter().sum::<f64>();
        let whole: f64 = group.iter().map(|(level, _)| period(level)).sum();
        let mut passed = 0.0;
        for (level, y) in group {
            let mut lengths = sheet.level_dash(level.color, level.dash).lengths;
            if let Some(gap) = lengths.last_mut() {
                *gap += whole - period(level);
            }
            let points: Vec<Point> = vec![(window.left, y), (window.right(), y)];
            let dash = Dash { lengths, start: if passed > 0.0 { whole - passed } else { 0.0 } };
            scene.marks.push(Mark::Line { points, color: sheet.colors.prediction(level.color), width: LEVEL_WIDTH, dash });
            let place = window.right() - window.width * (0.03 + 0.05 * (level.color % 10) as f64);
            scene.marks.extend(sheet.predicted_markers(level.color, [(place, y)]));
            passed += period(level);
        }
    }
}
