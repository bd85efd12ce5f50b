//! Legends: samples of the lines next to their names, in aligned columns.

use super::point::Point;
use super::scene::{Anchor, Mark, Scene};
use super::sheet::Sheet;
use super::style::{self, CURVE_WIDTH, LEVEL_WIDTH, Overlap, REFERENCE_WIDTH};
use super::text::Font;
use super::{Panel, PlottedCurve, Style};

/// The symbol of a curve or a level in the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LegendSymbol {
    Curve { style: Style, color: usize, band: bool, overlap: Overlap },
    Level { color: usize, dash: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub label: String,
    pub look: LegendSymbol,
}

/// The entries of a panel, each once, by rank and then in their order.
pub(super) fn entries(panel: &Panel, overlap: impl Fn(&PlottedCurve) -> Overlap) -> Vec<Entry> {
    let curves = panel.curves.iter().map(|c| {
        let look = LegendSymbol::Curve { style: c.style, color: c.color, band: c.band.is_some(), overlap: overlap(c) };
        Entry { label: c.label.clone(), look }
    });
    let levels = panel.levels.iter().map(|l| Entry { label: l.label.clone(), look: LegendSymbol::Level { color: l.color, dash: l.dash } });
    let mut entries = Vec::new();
    for entry in curves.chain(levels) {
        if !entry.label.trim().is_empty() && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries.sort_by_key(rank);
    entries
}

/// The order of entries: measured curves, predicted curves, levels, references.
fn rank(entry: &Entry) -> usize {
    match entry.look {
        LegendSymbol::Curve { style: Style::Reference, .. } => 3,
        LegendSymbol::Level { .. } => 2,
        LegendSymbol::Curve { style: Style::Dashed, .. } => 1,
        LegendSymbol::Curve { .. } => 0,
    }
}

/// One legend for all panels, if every label has the same symbol in all panels and the largest panel has at least half of
/// the entries.
pub(super) fn shared(panels: &[Vec<Entry>]) -> Option<Vec<Entry>> {
    let mut union: Vec<Entry> = Vec::new();
    for entry in panels.iter().flatten() {
        if !union.contains(entry) {
            match union.iter_mut().find(|other| other.label == entry.label) {
                None => union.push(entry.clone()),
                // A curve may have a band in one panel but none in another, for example with a single seed.
                Some(other) => other.look = with_band(other.look, entry.look)?,
            }
        }
    }
    let largest = panels.iter().map(Vec::len).max().unwrap_or(0);
    union.sort_by_key(rank);
    (union.len() <= 2 * largest).then_some(union)
}

/// The symbol with a band, if two symbols differ only in it.
fn with_band(a: LegendSymbol, b: LegendSymbol) -> Option<LegendSymbol> {
    let banded = |look| match look {
        LegendSymbol::Curve { style, color, overlap, .. } => LegendSymbol::Curve { style, color, band: true, overlap },
        level => level,
    };
    (banded(a) == banded(b)).then_some(banded(a))
}

/// Entries broken into lines and arranged in columns.
pub(super) struct Legend {
    rows: Vec<Vec<(LegendSymbol, Vec<String>)>>,
    column_widths: Vec<f64>,
    font: Font,
    pub height: f64,
}

const SAMPLE: f64 = 30.0;
const SAMPLE_GAP: f64 = 7.0;
const COLUMN_GAP: f64 = 22.0;
const ROW_GAP: f64 = 2.0;
const WIDEST_LABEL: f64 = 330.0;
const LINES: usize = 3;

impl Legend {
    /// A legend with as few rows as `width` allows.
    pub fn new(entries: &[Entry], width: f64, font: Font) -> Legend {
        let label_width = (width - SAMPLE - SAMPLE_GAP).clamp(font.size, WIDEST_LABEL);
        let set: Vec<_> = entries.iter().map(|e| (e.look, font.wrap(&e.label, label_width, LINES))).collect();
        let entry_widths: Vec<f64> =
            set.iter().map(|(_, lines)| SAMPLE + SAMPLE_GAP + lines.iter().map(|line| font.width(line)).fold(0.0, f64::max)).collect();
        let widths_in = |columns: usize| -> Vec<f64> {
            (0..columns).map(|column| entry_widths.iter().skip(column).step_by(columns).copied().fold(0.0, f64::max)).collect()
        };
        // Starts from one row, with the number of columns that fills the last row best.
        let column_widths = (1..=set.len())
            .map(|rows| widths_in(set.len().div_ceil(rows)))
            .find(|widths| total(widths) <= width)
            .unwrap_or_else(|| widths_in(1));
        let rows: Vec<Vec<_>> = set.chunks(column_widths.len()).map(<[_]>::to_vec).collect();
        let height = rows.iter().map(|row| row_height(row, font)).sum();
        Legend { rows, column_widths, font, height }
    }

    pub fn width(&self) -> f64 {
        total(&self.column_widths)
    }

    pub fn draw(&self, scene: &mut Scene, (left, top): Point, sheet: &Sheet) {
        let font = self.font;
        let mut y = top;
        for row in &self.rows {
            let mut x = left;
            for ((look, lines), width) in row.iter().zip(&self.column_widths) {
                sample(scene, *look, (x, y + font.baseline() - font.half_capital()), sheet);
                scene.paragraph((x + SAMPLE + SAMPLE_GAP, y), lines, font, Anchor::Start, sheet.colors.ink);
                x += width + COLUMN_GAP;
            }
            y += row_height(row, font);
        }
    }
}

fn total(column_widths: &[f64]) -> f64 {
    column_widths.iter().sum::<f64>() + column_widths.len().saturating_sub(1) as f64 * COLUMN_GAP
}

fn row_height(row: &[(LegendSymbol, Vec<String>)], font: Font) -> f64 {
    row.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0) as f64 * font.leading() + ROW_GAP
}

fn sample(scene: &mut Scene, look: LegendSymbol, (x, y): Point, sheet: &Sheet) {
    let colors = sheet.colors;
    let middle = (x + SAMPLE / 2.0, y);
    let points = vec![(x, y), (x + SAMPLE, y)];
    match look {
        LegendSymbol::Level { color, dash } => {
            let (index, dash) = (color, sheet.level_dash(color, dash));
            scene.marks.push(Mark::Line { points, color: colors.prediction(index), width: LEVEL_WIDTH, dash });
            scene.marks.extend(sheet.predicted_markers(index, [middle]));
        }
        LegendSymbol::Curve { style: Style::Reference, .. } => {
            scene.marks.push(Mark::Line { points, color: colors.reference, width: REFERENCE_WIDTH, dash: style::reference_dash() });
        }
        LegendSymbol::Curve { style: Style::Dashed, color: index, overlap, .. } => {
            let (color, dash) = (colors.prediction(index), sheet.predicted_dash(index, overlap));
            scene.marks.push(Mark::Line { points, color, width: LEVEL_WIDTH, dash });
            scene.marks.extend(sheet.predicted_markers(index, [middle]));
        }
        LegendSymbol::Curve { style: drawn, color: index, band, overlap } => {
            let (color, drawn) = (colors.curve(index), sheet.drawn_as(drawn));
            if band && drawn == Style::Points {
                let bar = vec![(x + SAMPLE / 2.0, y - 7.0), (x + SAMPLE / 2.0, y + 7.0)];
                scene.line(bar, color, style::BAR_WIDTH);
            } else if band {
                let tint = style::mix(colors.background, color, colors.band_opacity);
                scene.rectangle((x, y - 4.5), (x + SAMPLE, y + 4.5), tint);
            }
            if drawn == Style::Cloud {
                let at = [(0.3, -3.0), (0.5, 1.0), (0.65, -2.0), (0.4, 3.0)].map(|(part, up)| (x + part * SAMPLE, y + up));
                let color = colors.cloud(index);
                scene.marks.extend(at.map(|center| Mark::Disc { center, radius: style::CLOUD_RADIUS, color }));
            } else if drawn != Style::Points {
                scene.marks.push(Mark::Line {
                    points,
                    color,
                    width: CURVE_WIDTH,
                    dash: style::sample_dash(sheet.curve_dash(index, overlap), SAMPLE),
                });
            }
            match drawn {
                Style::Points => scene.marks.extend(sheet.point_marker(index, middle, 1.0)),
                Style::LinePoints | Style::Marked => scene.marks.push(sheet.marker(index, middle, 1.0)),
                _ => {}
            }
        }
    }
}
