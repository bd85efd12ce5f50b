//! Legends: samples of the lines beside their names, in aligned columns.

use super::scene::{Anchor, Mark, Point, Scene};
use super::style::{self, BAND_OPACITY, CURVE_WIDTH, INK, LEGEND, LEVEL_WIDTH, WHITE};
use super::{Panel, Style};

/// How a curve or a level is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Curve { style: Style, color: usize, band: bool },
    Level { color: usize, dash: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub label: String,
    pub look: Look,
}

/// The entries of a panel, each once, in their order.
pub(super) fn entries(panel: &Panel) -> Vec<Entry> {
    let curves = panel.curves.iter().map(|c| {
        let look = Look::Curve { style: c.style, color: c.color, band: c.band.is_some() };
        Entry { label: c.label.clone(), look }
    });
    let levels = panel.levels.iter().map(|l| Entry { label: l.label.clone(), look: Look::Level { color: l.color, dash: l.dash } });
    let mut entries = Vec::new();
    for entry in curves.chain(levels) {
        if !entry.label.trim().is_empty() && !entries.contains(&entry) {
            entries.push(entry);
        }
    }
    entries
}

/// One legend for all panels, if a name means the same in all of them and each shows a good part of it.
pub(super) fn shared(panels: &[Vec<Entry>]) -> Option<Vec<Entry>> {
    let mut union: Vec<Entry> = Vec::new();
    for entry in panels.iter().flatten() {
        if !union.contains(entry) {
            if union.iter().any(|other| other.label == entry.label) {
                return None;
            }
            union.push(entry.clone());
        }
    }
    let largest = panels.iter().map(Vec::len).max().unwrap_or(0);
    // Curves before levels, as in a single panel.
    union.sort_by_key(|entry| matches!(entry.look, Look::Level { .. }));
    (union.len() <= 2 * largest).then_some(union)
}

/// Entries broken into lines and set in columns.
pub(super) struct Legend {
    rows: Vec<Vec<(Look, Vec<String>)>>,
    column_widths: Vec<f64>,
    pub height: f64,
}

const SAMPLE: f64 = 30.0;
const SAMPLE_GAP: f64 = 7.0;
const COLUMN_GAP: f64 = 22.0;
const ROW_GAP: f64 = 2.0;
const WIDEST_LABEL: f64 = 330.0;
const LINES: usize = 3;

impl Legend {
    /// In as few rows as `width` allows.
    pub fn new(entries: &[Entry], width: f64) -> Legend {
        let label_width = (width - SAMPLE - SAMPLE_GAP).clamp(LEGEND.size, WIDEST_LABEL);
        let set: Vec<_> = entries.iter().map(|e| (e.look, LEGEND.wrap(&e.label, label_width, LINES))).collect();
        let entry_widths: Vec<f64> =
            set.iter().map(|(_, lines)| SAMPLE + SAMPLE_GAP + lines.iter().map(|line| LEGEND.width(line)).fold(0.0, f64::max)).collect();
        let widths_in = |columns: usize| -> Vec<f64> {
            (0..columns).map(|column| entry_widths.iter().skip(column).step_by(columns).copied().fold(0.0, f64::max)).collect()
        };
        // From one row on, with the columns that fill the last row best.
        let column_widths = (1..=set.len())
            .map(|rows| widths_in(set.len().div_ceil(rows)))
            .find(|widths| total(widths) <= width)
            .unwrap_or_else(|| widths_in(1));
        let rows: Vec<Vec<_>> = set.chunks(column_widths.len()).map(<[_]>::to_vec).collect();
        let height = rows.iter().map(|row| row_height(row)).sum();
        Legend { rows, column_widths, height }
    }

    pub fn width(&self) -> f64 {
        total(&self.column_widths)
    }

    pub fn draw(&self, scene: &mut Scene, (left, top): Point) {
        let mut y = top;
        for row in &self.rows {
            let mut x = left;
            for ((look, lines), width) in row.iter().zip(&self.column_widths) {
                sample(scene, *look, (x, y + LEGEND.baseline() - LEGEND.half_capital()));
                scene.paragraph((x + SAMPLE + SAMPLE_GAP, y), lines, LEGEND, Anchor::Start, INK);
                x += width + COLUMN_GAP;
            }
            y += row_height(row);
        }
    }
}

fn total(column_widths: &[f64]) -> f64 {
    column_widths.iter().sum::<f64>() + column_widths.len().saturating_sub(1) as f64 * COLUMN_GAP
}

fn row_height(row: &[(Look, Vec<String>)]) -> f64 {
    row.iter().map(|(_, lines)| lines.len()).max().unwrap_or(0) as f64 * LEGEND.leading() + ROW_GAP
}

fn sample(scene: &mut Scene, look: Look, (x, y): Point) {
    let points = vec![(x, y), (x + SAMPLE, y)];
    match look {
        Look::Level { color, dash } => {
            let dash = style::level_dash(dash);
            scene.marks.push(Mark::Line { points, color: style::level_color(color), width: LEVEL_WIDTH, dash });
        }
        Look::Curve { style: drawn, color: index, band } => {
            let color = style::color(index);
            if band {
                let tint = style::mix(WHITE, color, BAND_OPACITY);
                scene.rectangle((x, y - 4.5), (x + SAMPLE, y + 4.5), tint);
            }
            let dash = match drawn {
                Style::Dashed => style::broken_dash(index),
                _ => style::solid_dash(index),
            };
            if drawn != Style::Points {
                scene.marks.push(Mark::Line { points, color, width: CURVE_WIDTH, dash });
            }
            if matches!(drawn, Style::Points | Style::LinePoints) {
                scene.marks.push(style::marker(index, (x + SAMPLE / 2.0, y)));
            }
        }
    }
}
