//! The layout of a chart: panels on a grid, legends, a caption and notes.

use super::axis::{Axis, Ticks};
use super::legend::{self, Entry, Legend};
use super::overlap::Overlaps;
use super::panel::{CurvePen, Drawn, TICK_GAP};
use super::range::{self, Axes};
use super::scene::{Anchor, Scene};
use super::sheet::Sheet;
use super::style::*;
use super::text::Font;
use super::trace::Window;
use super::{Chart, Panel, RenderOptions, Style};

/// The largest default width of a picture in pixels; text sizes are chosen for it.
const WIDTH: f64 = 900.0;
const SINGLE_WIDTH: f64 = 720.0;
const COLUMN_GAP: f64 = 16.0;
const ROW_GAP: f64 = 14.0;
/// The gap above a lower panel; the outermost labels of both vertical axes do not touch.
const LOWER_GAP: f64 = 14.0;
const NARROWEST_PANEL: f64 = 90.0;
/// The height of a row with a name, if there is room.
const NAMED_ROW: f64 = 24.0;
/// The height of a lower panel, relative to its upper panel.
const LOWER_HEIGHT: f64 = 0.42;
/// The largest number of points and corners in a picture, so that an SVG stays below a megabyte.
const BUDGET: usize = 60_000;
/// The least height of a panel on a page of a given height.
const LOWEST_PANEL: f64 = 60.0;
const LONGEST_TITLE: usize = 3;
const LONGEST_NOTE: usize = 12;

/// A row of panels. A row of lower panels follows the row of their upper panels.
struct Row<'a> {
    is_lower: bool,
    slots: Vec<Option<Slot<'a>>>,
}

/// A panel at its position on the grid.
struct Slot<'a> {
    panel: &'a Panel,
    axes: Axes,
    /// Whether its left neighbour has the same vertical axis and label.
    is_led: bool,
    /// The panel whose legend and notes are drawn below it.
    tells: Option<&'a Panel>,
    /// Whether its horizontal axis has tick labels, and whether it has a name.
    x_ticks: bool,
    x_label: bool,
}

/// The panels of a chart on their grid, and the sizes of its parts.
struct Layout<'a> {
    sheet: Sheet,
    rows: Vec<Row<'a>>,
    columns: usize,
    /// The height of an upper panel.
    height: f64,
    panel_width: f64,
    /// The room left of each column's panels, for its widest labels.
    asides: Vec<f64>,
    /// The width of the picture, and the width inside its margins.
    width: f64,
    content: f64,
}

impl<'a> Layout<'a> {
    fn new(figure: &'a Chart, sheet: Sheet, height: Option<f64>) -> Self {
        let (columns, wanted) = columns(figure, &sheet);
        // The height follows from the approximate width of the panels.
        let usual = 90.0 + 0.37 * ((wanted - 2.0 * sheet.margin) / columns as f64 - 50.0).clamp(NARROWEST_PANEL, 1600.0);
        // All names of rows must have room, and rows are at most `NAMED_ROW` apart.
        let names = figure.panels.iter().map(|panel| panel.y_names.len()).max().unwrap_or(0);
        let usual =
            if names > 0 { usual.min(60.0 + NAMED_ROW * names as f64).max(sheet.fonts.tick.leading() * names as f64) } else { usual };
        let mut layout = Self {
            sheet,
            rows: rows(figure, columns),
            columns,
            height: height.unwrap_or(usual),
            panel_width: 0.0,
            asides: Vec::new(),
            width: 0.0,
            content: 0.0,
        };
        let aside = |row: &Row, column: usize| Some(layout.aside(row, row.slots.get(column)?.as_ref()?));
        let asides: Vec<f64> =
            (0..columns).map(|column| layout.rows.iter().filter_map(|row| aside(row, column)).fold(0.0, f64::max)).collect();
        let around = 2.0 * sheet.margin + asides.iter().sum::<f64>() + (columns - 1) as f64 * COLUMN_GAP;
        layout.asides = asides;
        layout.panel_width = ((wanted - around) / columns as f64).max(NARROWEST_PANEL);
        layout.width = layout.panel_width * columns as f64 + around;
        layout.content = layout.width - 2.0 * sheet.margin;
        layout
    }

    fn height_of(&self, row: &Row) -> f64 {
        if row.is_lower { (LOWER_HEIGHT * self.height).max(70.0) } else { self.height }
    }

    fn y_ticks_of(&self, row: &Row, slot: &Slot) -> Ticks {
        let height = self.height_of(row);
        match &slot.panel.y_names[..] {
            [] => slot.axes.y.ticks((height / (2.6 * self.sheet.fonts.tick.size)) as usize, height),
            names => named_ticks(names, &slot.axes.y, height, self.sheet.fonts.tick),
        }
    }

    fn y_label_of(&self, row: &Row, slot: &Slot) -> Vec<String> {
        match slot.is_led {
            true => Vec::new(),
            false => self.sheet.fonts.axis_label.wrap(&slot.panel.y_label, self.height_of(row), 2),
        }
    }

    /// The room that the labels of a panel's vertical axis need.
    fn aside(&self, row: &Row, slot: &Slot) -> f64 {
        let label = |ticks: Ticks| ticks.major.iter().map(|(_, label)| self.sheet.fonts.tick.width(label)).fold(0.0, f64::max);
        let ticks = if slot.is_led { 0.0 } else { TICK_GAP + label(self.y_ticks_of(row, slot)) };
        ticks + self.y_label_of(row, slot).len() as f64 * self.sheet.fonts.axis_label.leading() + 4.0
    }

    fn window(&self, row: &Row, slot: &Slot, left: f64, top: f64) -> Window {
        Window { left, top, width: self.panel_width, height: self.height_of(row), x: slot.axes.x, y: slot.axes.y }
    }

    /// A panel without its curves; `entries` are the entries of the legend below it.
    fn drawn(&self, row: &Row, slot: &Slot, entries: &[Entry]) -> Drawn {
        Drawn {
            sheet: self.sheet,
            y_ticks: self.y_ticks_of(row, slot),
            are_y_ticks_named: !slot.is_led,
            are_x_ticks_named: slot.x_ticks,
            title: self.sheet.fonts.panel_title.wrap(&slot.panel.title, self.panel_width, LONGEST_TITLE),
            x_label: if slot.x_label { self.sheet.fonts.axis_label.wrap(&slot.panel.x_label, self.panel_width, 2) } else { Vec::new() },
            y_label: self.y_label_of(row, slot),
            legend: Legend::new(entries, self.panel_width, self.sheet.fonts.legend),
            notes: slot.tells.map_or_else(Vec::new, |panel| paragraphs(&panel.notes, self.sheet.fonts.note, self.panel_width)),
        }
    }

    /// Draws a row of panels below `y`; returns the y at which they end.
    fn draw_row(&self, scene: &mut Scene, row: &Row, drawn: &[Option<Drawn>], y: f64, pen: &CurvePen) -> f64 {
        let highest = |height: fn(&Drawn) -> f64| drawn.iter().flatten().map(height).fold(0.0, f64::max);
        // A lower panel without a title follows its upper one closely.
        let is_close = row.is_lower && drawn.iter().flatten().all(|drawn| drawn.title.is_empty());
        let top = y + if is_close { 0.0 } else { highest(Drawn::height_above) };
        let mut left = self.sheet.margin;
        for (column, aside) in self.asides.iter().enumerate() {
            left += aside;
            if let (Some(Some(slot)), Some(Some(drawn))) = (row.slots.get(column), drawn.get(column)) {
                drawn.draw(scene, slot.panel, &self.window(row, slot, left, top), left - aside, pen);
            }
            left += self.panel_width + COLUMN_GAP;
        }
        top + self.height_of(row) + highest(Drawn::height_beneath)
    }
}

pub(super) fn scene(figure: &Chart, look: &RenderOptions) -> Scene {
    let sheet = Sheet::of(look);
    let usual = Layout::new(figure, sheet, None);
    let scene = laid_out(figure, &usual);
    let Some(wanted) = sheet.height() else { return sheet.fitted(scene) };
    // On a page of a given height, the panels share the remaining height.
    let shares: f64 = usual.rows.iter().map(|row| if row.is_lower { LOWER_HEIGHT } else { 1.0 }).sum();
    let height = usual.height + (wanted - scene.height) / shares;
    sheet.fitted(laid_out(figure, &Layout::new(figure, sheet, Some(height.max(LOWEST_PANEL)))))
}

fn laid_out(figure: &Chart, layout: &Layout) -> Scene {
    let Layout { sheet, rows, content, .. } = layout;
    let (colors, fonts) = (sheet.colors, sheet.fonts);
    let seen = rows.iter().flat_map(|row| row.slots.iter().flatten().map(|slot| (slot.panel, layout.window(row, slot, 0.0, 0.0))));
    let overlaps = Overlaps::of(seen);
    let entries_of = |panel: &Panel| legend::entries(panel, |curve| overlaps.at(curve));
    let entries: Vec<Vec<Entry>> = figure.panels.iter().map(entries_of).collect();
    let shared = legend::shared(&entries);

    let mut scene = sheet.blank(&figure.title, layout.width);
    let told: Vec<&str> = std::iter::once(&figure.caption).chain(&figure.notes).map(String::as_str).filter(|s| !s.is_empty()).collect();
    scene.description = told.join(" ");
    let mut y = sheet.margin;
    y = scene.paragraph(
        (sheet.margin, y),
        &fonts.title.wrap(sheet.title(&figure.title), *content, LONGEST_TITLE),
        fonts.title,
        Anchor::Start,
        colors.ink,
    );
    if y > sheet.margin {
        y += 8.0;
    }
    let all_curves = figure.panels.iter().chain(figure.panels.iter().filter_map(|p| p.lower.as_deref())).flat_map(|p| &p.curves);
    let pen = CurvePen {
        sheet,
        overlaps: &overlaps,
        width: if layout.columns <= 2 { CURVE_WIDTH } else { FINE_CURVE_WIDTH },
        budget: BUDGET / all_curves.map(parts).sum::<usize>().max(1),
    };
    for (i, row) in rows.iter().enumerate() {
        let own = |slot: &Slot| slot.tells.filter(|_| shared.is_none()).map_or_else(Vec::new, entries_of);
        let draw = |slot: &Slot| layout.drawn(row, slot, &own(slot));
        let drawn: Vec<Option<Drawn>> = row.slots.iter().map(|slot| slot.as_ref().map(draw)).collect();
        let gap = if rows.get(i + 1).is_some_and(|next| next.is_lower) { LOWER_GAP } else { ROW_GAP };
        y = layout.draw_row(&mut scene, row, &drawn, y, &pen) + gap;
    }

    if let Some(entries) = shared.filter(|entries| !entries.is_empty()) {
        let legend = Legend::new(&entries, *content, fonts.legend);
        legend.draw(&mut scene, (sheet.margin + ((content - legend.width()) / 2.0).max(0.0), y), sheet);
        y += legend.height + ROW_GAP;
    }
    y = below_picture(&mut scene, y, *content, sheet.below(&figure.caption, &figure.notes), sheet);
    scene.height = y + sheet.margin;
    scene
}

/// Draws the caption and the notes from `y` down; returns the y at which they end.
pub(super) fn below_picture(scene: &mut Scene, y: f64, content: f64, (caption, notes): (&str, &[String]), sheet: &Sheet) -> f64 {
    let (colors, fonts, margin) = (sheet.colors, sheet.fonts, sheet.margin);
    let caption = fonts.caption.wrap(caption, content, LONGEST_NOTE);
    let mut y = scene.paragraph((margin, y), &caption, fonts.caption, Anchor::Start, colors.ink);
    if !caption.is_empty() && !notes.is_empty() {
        y += 4.0;
    }
    scene.paragraph((margin, y), &paragraphs(notes, fonts.note, content), fonts.note, Anchor::Start, colors.soft_ink)
}

fn paragraphs(notes: &[String], font: Font, width: f64) -> Vec<String> {
    notes.iter().flat_map(|note| font.wrap(note, width, LONGEST_NOTE)).collect()
}

/// The number of panels per row, and the preferred width of the picture.
fn columns(figure: &Chart, sheet: &Sheet) -> (usize, f64) {
    // The space next to a panel.
    const BESIDE: f64 = 60.0;
    let count = figure.panels.len().max(1);
    let mut columns = figure.columns.unwrap_or_else(|| usual_columns(count)).clamp(1, count);
    let Some(width) = sheet.width else {
        return (columns, if columns == 1 { SINGLE_WIDTH } else { WIDTH });
    };
    while columns > 1 && (width - 2.0 * sheet.margin) / (columns as f64) < NARROWEST_PANEL + BESIDE {
        columns -= 1;
    }
    (columns, width)
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

fn rows(figure: &Chart, columns: usize) -> Vec<Row<'_>> {
    let panels: Vec<Option<&Panel>> = figure.panels.iter().map(Some).collect();
    let lower: Vec<Option<&Panel>> = figure.panels.iter().map(|panel| panel.lower.as_deref()).collect();
    let axes = range::axes(&panels, columns, figure.share_y);
    let lower_axes = range::axes(&lower, columns, figure.share_y);
    // An upper and its lower panel share the horizontal axis.
    let lower_axes: Vec<Option<Axes>> =
        lower_axes.iter().zip(&axes).map(|(lower, above)| Some(Axes { x: above.as_ref()?.x, ..(*lower)? })).collect();
    let has_label_below =
        |i: usize, panel: &Panel| panels.get(i + columns).is_some_and(|below| below.is_some_and(|b| b.x_label == panel.x_label));
    let row = |first: usize, is_lower: bool| {
        let (panels, axes) = if is_lower { (&lower, &lower_axes) } else { (&panels, &axes) };
        let slot = |i: usize| {
            let (panel, own) = (panels[i]?, axes[i]?);
            let neighbour = if i > first { panels[i - 1].zip(axes[i - 1]) } else { None };
            let is_led = neighbour
                .is_some_and(|(left, its)| left.y_label == panel.y_label && left.y_names == panel.y_names && its.y.is_like(&own.y));
            let is_above = !is_lower && lower[i].is_some();
            Some(Slot {
                panel,
                axes: own,
                is_led,
                tells: if is_above { None } else { Some(&figure.panels[i]) },
                x_ticks: !is_above,
                x_label: !is_above && !has_label_below(i, panel),
            })
        };
        Row { is_lower, slots: (first..(first + columns).min(panels.len())).map(slot).collect() }
    };
    let mut rows = Vec::new();
    for first in (0..panels.len()).step_by(columns) {
        rows.push(row(first, false));
        if lower[first..].iter().take(columns).any(Option::is_some) {
            rows.push(row(first, true));
        }
    }
    rows
}

/// Ticks with names; every second or third if there is too little room.
fn named_ticks(names: &[String], axis: &Axis, height: f64, tick: Font) -> Ticks {
    const WIDEST: f64 = 160.0;
    let step = (names.len() as f64 * tick.leading() / height).ceil().max(1.0) as usize;
    let label = |name: &String| tick.wrap(name, WIDEST, 1).pop().unwrap_or_default();
    let all = names.iter().enumerate().step_by(step);
    Ticks { major: all.filter_map(|(row, name)| Some((axis.fraction(row as f64)?, label(name)))).collect(), minor: Vec::new() }
}

/// The number of marks of a curve.
fn parts(curve: &super::PlottedCurve) -> usize {
    1 + usize::from(curve.band.is_some()) + usize::from(curve.style == Style::LinePoints)
}
