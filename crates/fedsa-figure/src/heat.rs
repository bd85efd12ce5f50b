//! The layout of heat maps: windows of coloured cells with their axes, each with a colour bar on its right.

use std::collections::BTreeMap;

use super::axis::{Axis, Ticks, scaled};
use super::chart::below_picture;
use super::legend::Legend;
use super::panel::{Drawn, TICK_GAP, TICK_LENGTH, fitting_ticks};
use super::scene::{Anchor, Mark, Scene};
use super::sheet::Sheet;
use super::style::Colors;
use super::trace::Window;
use super::{HeatMap, HeatMaps, RenderOptions};

/// The default width of one map, and of several side by side.
const SINGLE_WIDTH: f64 = 600.0;
const WIDTH: f64 = 960.0;
/// Maps side by side are at least this wide; otherwise they are placed below each other.
const NARROWEST_SLOT: f64 = 250.0;
const NARROWEST_WINDOW: f64 = 90.0;
const COLUMN_GAP: f64 = 20.0;
const ROW_GAP: f64 = 14.0;
const BAR_GAP: f64 = 12.0;
const BAR: f64 = 14.0;
/// The height of the tip at an end of the colour bar.
const TIP: f64 = 9.0;
const LONGEST_TITLE: usize = 3;
/// The number of different colours. Neighbouring cells of one colour become one rectangle, which keeps files small.
const SHADES: usize = 96;
/// Cells reach this far into their neighbours, in pixels, so that the background does not show between them.
const OVERLAP: f64 = 0.5;

/// A map with the sizes of the parts around its window.
struct Placed<'a> {
    map: &'a HeatMap,
    axes: [Axis; 2],
    bar: Bar,
    y_ticks: Ticks,
    y_label: Vec<String>,
    z_label: Vec<String>,
    /// The widths left and right of the window.
    before: f64,
    after: f64,
}

/// The scale of the colours.
struct Bar {
    axis: Axis,
    ticks: Ticks,
    /// Whether values lie below and above the scale.
    beyond: (bool, bool),
}

pub(super) fn scene(picture: &HeatMaps, look: &RenderOptions) -> Scene {
    let sheet = Sheet::of(look);
    let (colors, font, margin) = (sheet.colors, sheet.fonts.title, sheet.margin);
    let count = picture.maps.len().max(1);
    let page = sheet.width.unwrap_or(if count == 1 { SINGLE_WIDTH } else { WIDTH });
    let columns = (((page - 2.0 * margin + COLUMN_GAP) / (NARROWEST_SLOT + COLUMN_GAP)) as usize).clamp(1, count.min(2));
    let gaps = (columns - 1) as f64 * COLUMN_GAP;
    let slot = (page - 2.0 * margin - gaps) / columns as f64;
    let height = (0.66 * slot - 40.0).clamp(140.0, 420.0);
    let placed: Vec<Placed> = picture.maps.iter().map(|map| place(map, height, &sheet)).collect();
    let widest = |of: fn(&Placed) -> f64| placed.iter().map(of).fold(0.0, f64::max);
    let (before, after) = (widest(|p| p.before), widest(|p| p.after));
    let width = (slot - before - after).max(NARROWEST_WINDOW);
    let slot = before + width + after;
    let content = columns as f64 * slot + gaps;

    let mut scene = sheet.blank(&picture.title, content + 2.0 * margin);
    let told: Vec<&str> = std::iter::once(&picture.caption).chain(&picture.notes).map(String::as_str).filter(|s| !s.is_empty()).collect();
    scene.description = told.join(" ");
    let mut y =
        scene.paragraph((margin, margin), &font.wrap(sheet.title(&picture.title), content, LONGEST_TITLE), font, Anchor::Start, colors.ink);
    if y > margin {
        y += 8.0;
    }
    for row in placed.chunks(columns) {
        let drawn: Vec<Drawn> = row.iter().map(|placed| surroundings(placed, width, &sheet)).collect();
        let highest = |of: fn(&Drawn) -> f64| drawn.iter().map(of).fold(0.0, f64::max);
        let top = y + highest(Drawn::height_above);
        for (column, (placed, drawn)) in row.iter().zip(&drawn).enumerate() {
            let left = margin + column as f64 * (slot + COLUMN_GAP) + before;
            let [x, y] = placed.axes;
            let window = Window { left, top, width, height, x, y };
            cells(&mut scene, placed, &window, colors);
            rings(&mut scene, placed, &window, colors);
            drawn.draw_around(&mut scene, &window, &fitting_ticks(&window.x, width, &sheet), left - placed.before);
            bar(&mut scene, placed, &window, &sheet);
        }
        y = top + height + highest(Drawn::height_beneath) + ROW_GAP;
    }
    y = below_picture(&mut scene, y, content, sheet.below(&picture.caption, &picture.notes), &sheet);
    scene.height = y + margin;
    sheet.fitted(scene)
}

fn place<'a>(map: &'a HeatMap, height: f64, sheet: &Sheet) -> Placed<'a> {
    let (tick, axis_label) = (sheet.fonts.tick, sheet.fonts.axis_label);
    let exactly = |range, log| Axis::exactly(range, log).unwrap_or_else(|| Axis::around(None, log, 0.0));
    let scaled = |z: f64| scaled(z, map.z_log);
    let finite = || map.z.iter().flatten().copied().filter(|z| scaled(*z).is_some());
    let all = finite().fold(None, |range: Option<(f64, f64)>, z| Some(range.map_or((z, z), |(low, high)| (low.min(z), high.max(z)))));
    let on_scale = |(low, high): (f64, f64)| Some((scaled(low)?, scaled(high)?)).filter(|(low, high)| low <= high);
    let range = map.z_range.and_then(on_scale).or_else(|| all.and_then(on_scale));
    let axis = Axis::around(range, map.z_log, 0.0);
    let is_outside = |z: f64| axis.fraction(z).unwrap_or(0.5);
    let beyond = (finite().any(|z| is_outside(z) < -1e-9), finite().any(|z| is_outside(z) > 1.0 + 1e-9));
    let count = (height / (2.6 * tick.size)) as usize;
    let (x, y) = (exactly(map.x, map.x_log), exactly(map.y, map.y_log));
    let (y_ticks, ticks) = (y.ticks(count, height), axis.ticks(count, height));
    let widest = |ticks: &Ticks| ticks.major.iter().map(|(_, label)| tick.width(label)).fold(0.0, f64::max);
    let lines = |label: &str| axis_label.wrap(label, height, 2);
    let across = |lines: &[String]| lines.len() as f64 * axis_label.leading();
    let (y_label, z_label) = (lines(&map.y_label), lines(&map.z_label));
    let before = TICK_GAP + widest(&y_ticks) + across(&y_label) + 4.0;
    let after = BAR_GAP + BAR + TICK_GAP + widest(&ticks) + 4.0 + across(&z_label);
    Placed { map, axes: [x, y], bar: Bar { axis, ticks, beyond }, y_ticks, y_label, z_label, before, after }
}

fn surroundings(placed: &Placed, width: f64, sheet: &Sheet) -> Drawn {
    let fonts = sheet.fonts;
    Drawn {
        sheet: *sheet,
        y_ticks: placed.y_ticks.clone(),
        are_y_ticks_named: true,
        are_x_ticks_named: true,
        title: fonts.panel_title.wrap(&placed.map.title, width + placed.after, LONGEST_TITLE),
        x_label: fonts.axis_label.wrap(&placed.map.x_label, width, 2),
        y_label: placed.y_label.clone(),
        legend: Legend::new(&[], width, fonts.legend),
        notes: Vec::new(),
    }
}

/// One of the colours of values, or none for a value that is not finite.
fn shade(axis: &Axis, value: f64) -> Option<usize> {
    axis.fraction(value).map(|at| ((at * SHADES as f64) as usize).min(SHADES - 1))
}

fn heat(colors: &Colors, shade: usize, is_faint: bool) -> super::scene::Rgb {
    colors.heat((shade as f64 + 0.5) / SHADES as f64, is_faint)
}

fn cells(scene: &mut Scene, Placed { map, bar, .. }: &Placed, window: &Window, colors: &Colors) {
    let corner = (window.left, window.top);
    scene.rectangle(corner, (window.right(), window.bottom()), colors.no_value);
    let mut by_look: BTreeMap<(usize, bool), Vec<[f64; 4]>> = BTreeMap::new();
    let rows = map.z.len() as f64;
    for (i, row) in map.z.iter().enumerate() {
        let looks: Vec<Option<(usize, bool)>> = (row.iter().enumerate())
            .map(|(j, z)| Some((shade(&bar.axis, *z)?, map.faint.get(i).and_then(|row| row.get(j)).copied().unwrap_or(false))))
            .collect();
        let y = |row: usize| window.bottom() - window.height * row as f64 / rows;
        let (top, bottom) = ((y(i + 1) - OVERLAP).max(window.top), (y(i) + OVERLAP).min(window.bottom()));
        let mut first = 0;
        for run in looks.chunk_by(|a, b| a == b) {
            let x = |cell: usize| window.left + window.width * cell as f64 / row.len() as f64;
            if let Some(look) = run[0] {
                let (left, right) = ((x(first) - OVERLAP).max(window.left), (x(first + run.len()) + OVERLAP).min(window.right()));
                by_look.entry(look).or_default().push([left, top, right, bottom]);
            }
            first += run.len();
        }
    }
    scene.marks.extend(
        by_look.into_iter().map(|((shade, is_faint), rectangles)| Mark::Rectangles { rectangles, color: heat(colors, shade, is_faint) }),
    );
}

/// Rings around marked places, dark with light edges on both sides, so that they are visible on every colour.
fn rings(scene: &mut Scene, Placed { map, .. }: &Placed, window: &Window, colors: &Colors) {
    for (x, y) in &map.rings {
        let (Some(right), Some(up)) = (window.x.fraction(*x), window.y.fraction(*y)) else { continue };
        if !(0.0..=1.0).contains(&right) || !(0.0..=1.0).contains(&up) {
            continue;
        }
        let center = (window.left + right * window.width, window.bottom() - up * window.height);
        for (radius, color) in [(6.5, colors.background), (5.5, colors.ink), (3.5, colors.background), (2.5, colors.ink)] {
            scene.marks.push(Mark::Disc { center, radius, color });
        }
    }
}

fn bar(scene: &mut Scene, placed: &Placed, window: &Window, sheet: &Sheet) {
    let (colors, fonts) = (sheet.colors, sheet.fonts);
    let (left, top, bottom) = (window.right() + BAR_GAP, window.top, window.bottom());
    let (right, middle) = (left + BAR, left + BAR / 2.0);
    for shade in 0..SHADES {
        let y = |shade: usize| bottom - window.height * shade as f64 / SHADES as f64;
        let rectangles = vec![[left, y(shade + 1), right, (y(shade) + OVERLAP).min(bottom)]];
        scene.marks.push(Mark::Rectangles { rectangles, color: heat(colors, shade, false) });
    }
    let mut outline = vec![(left, bottom), (left, top)];
    let (below, above) = placed.bar.beyond;
    if above {
        let points = vec![(left, top), (middle, top - TIP), (right, top)];
        outline.push((middle, top - TIP));
        scene.marks.push(Mark::Polygon { points, color: heat(colors, SHADES - 1, false) });
    }
    outline.extend([(right, top), (right, bottom)]);
    if below {
        let points = vec![(left, bottom), (middle, bottom + TIP), (right, bottom)];
        outline.push((middle, bottom + TIP));
        scene.marks.push(Mark::Polygon { points, color: heat(colors, 0, false) });
    }
    outline.push((left, bottom));
    scene.line(outline, colors.frame, 1.0);
    for (at, label) in &placed.bar.ticks.major {
        let y = bottom - at * window.height;
        scene.line(vec![(right, y), (right + TICK_LENGTH, y)], colors.frame, 1.0);
        scene.text((right + TICK_GAP, y + fonts.tick.half_capital()), label, fonts.tick, Anchor::Start, colors.ink);
    }
    let from = window.right() + placed.after - placed.z_label.len() as f64 * fonts.axis_label.leading();
    for (i, line) in placed.z_label.iter().enumerate() {
        let x = from + fonts.axis_label.baseline() + i as f64 * fonts.axis_label.leading();
        scene.upward_text((x, top + window.height / 2.0), line, fonts.axis_label, Anchor::Middle, colors.ink);
    }
}

#[cfg(test)]
mod tests;
