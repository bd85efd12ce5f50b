//! Pictures of results: panels of curves ([`Figure`]) and shaded tables ([`Table`]), as SVG or PNG.
//!
//! The data model says what is shown, in data units; where it goes is decided here. The same input gives the same bytes.
//! Numbers of every kind are accepted: what an axis cannot show (NaN, infinities, zero and less on a logarithmic axis)
//! breaks the line there.
//!
//! A picture is made in two steps: a layout (`chart`, `table`) places marks in a `scene`, and `paint` draws the
//! scene with plotters' backends.

mod axis;
mod chart;
mod legend;
mod paint;
mod scene;
mod style;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod trace;

/// Panels on a grid, filled row by row, with one legend beneath them where their legends agree.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    pub title: String,
    pub subtitle: Option<String>,
    pub panels: Vec<Panel>,
    /// Panels in a row; chosen from their number if absent.
    pub columns: Option<usize>,
    /// Small text under the picture, one paragraph each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Panel {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x_log: bool,
    pub y_log: bool,
    pub curves: Vec<Curve>,
    pub levels: Vec<Level>,
    /// Fixed range of the y axis. Ignored if it is empty, or not positive on a logarithmic axis.
    pub y_range: Option<(f64, f64)>,
    /// Small text under the panel.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Curve {
    /// The legend's entry; none if empty.
    pub label: String,
    /// Index into the palette of eight colours. Past them the colours repeat with other dashes and markers.
    pub color: usize,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    /// Lower and upper edge at each `x`, shaded.
    pub band: Option<(Vec<f64>, Vec<f64>)>,
    pub style: Style,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Line,
    Dashed,
    Points,
    LinePoints,
}

/// A predicted value: a thin dashed line across the panel.
#[derive(Clone, Debug, Default)]
pub struct Level {
    pub label: String,
    pub y: f64,
    pub color: usize,
    /// Index into the dashes of levels: several levels of one colour differ in it.
    pub dash: usize,
}

/// A matrix of results. The first column holds the rows' names.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Cell {
    pub text: String,
    pub fill: Fill,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    #[default]
    None,
    /// From 0 (light) to 1 (dark); the caller chooses the scale, such as a logarithm of the value.
    Shade(f64),
    Status(Status),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Good,
    Warning,
    Bad,
    /// Not applicable, or not run.
    Absent,
}

/// Whether the pictures' font can show a text.
#[cfg(test)]
pub(crate) fn has_glyphs(text: &str) -> bool {
    style::AXIS_LABEL.has_glyphs(text) && style::TITLE.has_glyphs(text)
}

impl Figure {
    pub fn svg(&self) -> String {
        paint::svg(&chart::scene(self))
    }

    pub fn png(&self) -> Vec<u8> {
        paint::png(&chart::scene(self))
    }
}

impl Table {
    pub fn svg(&self) -> String {
        paint::svg(&table::scene(self))
    }

    pub fn png(&self) -> Vec<u8> {
        paint::png(&table::scene(self))
    }
}
