//! Pictures of results: panels of curves ([`Chart`]), heat maps ([`HeatMaps`]) and shaded tables ([`CellTable`]), as SVG, PNG
//! or PDF.
//!
//! The data model is in data units; this module computes the layout. The same input gives the same bytes.
//! All numbers are accepted. A value that an axis cannot show (NaN, an infinity, or a value of at most zero on a
//! logarithmic axis) interrupts the line.
//!
//! A picture is made in two steps: a layout (`chart` with its `panel`s, `heat`, `table`) places marks in a `scene`, and a backend
//! (`svg`, `raster`, `pdf`) writes the scene. Colours, dashes and markers are in `style`, sizes of pages and letters in `sheet`.

mod about;
mod axis;
mod chart;
mod heat;
mod legend;
mod overlap;
mod panel;
mod pdf;
mod point;
mod range;
mod raster;
mod scene;
mod sheet;
mod style;
mod svg;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod trace;

use schemars::JsonSchema;
use serde::Deserialize;

pub use about::Provenance;
pub use style::heat_color;
pub use text::number_text;

/// Panels on a grid, filled row by row. They share one legend below them if their legends agree.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub title: String,
    pub panels: Vec<Panel>,
    /// The number of panels per row, reduced if the width is too small; by default chosen from the number of panels.
    pub columns: Option<usize>,
    /// Whether panels of the same quantity share one vertical range; by default they do if each fills a good part of it.
    pub share_y: Option<bool>,
    /// The text under the picture that explains lines, points and bands.
    pub caption: String,
    /// Small text under the caption, one paragraph each.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct Panel {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub x_log: bool,
    pub y_log: bool,
    /// Whether the horizontal axis shows counts, so that its ticks are whole numbers.
    pub x_whole: bool,
    /// Whether ticks of a logarithmic x axis are at 1, 2, 4, 8 and so on.
    pub x_binary: bool,
    pub curves: Vec<PlottedCurve>,
    pub levels: Vec<Level>,
    /// The names of the rows 0, 1, .. of a panel whose vertical axis has names instead of numbers; row 0 is the lowest.
    pub y_names: Vec<String>,
    /// Fixed range of the y axis. Ignored if empty, or not positive on a logarithmic axis.
    pub y_range: Option<(f64, f64)>,
    /// Small text under the panel.
    pub notes: Vec<String>,
    /// A lower panel below this one, with the same x axis. Its legend and notes are not shown.
    pub lower: Option<Box<Panel>>,
}

#[derive(Clone, Debug, Default)]
pub struct PlottedCurve {
    /// The legend's entry; no entry if empty.
    pub label: String,
    /// Index into the palette of eight colours. Larger indices repeat the colours with other dashes and markers.
    pub color: usize,
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    /// Lower and upper edge at each `x`, shaded where `x` rises; for points, a bar at each.
    pub band: Option<(Vec<f64>, Vec<f64>)>,
    pub style: Style,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Measured: a line. If lines coincide, the upper ones are dashed so that all are visible.
    #[default]
    Line,
    /// The same with a few markers, which distinguish curves without colours.
    Marked,
    /// Predicted: thin dashes over the measured lines.
    Dashed,
    Points,
    LinePoints,
    /// Small faint dots under everything else, for thousands of points.
    Cloud,
    /// Neither measured nor predicted: thin grey dots.
    Reference,
}

/// A predicted value: a thin dashed line across the panel.
#[derive(Clone, Debug, Default)]
pub struct Level {
    pub label: String,
    pub y: f64,
    pub color: usize,
    /// Index into the dash patterns of levels, which distinguishes levels of one colour.
    pub dash: usize,
}

/// Heat maps side by side, each with its colour bar.
#[derive(Clone, Debug, Default)]
pub struct HeatMaps {
    pub title: String,
    pub maps: Vec<HeatMap>,
    /// The text under the maps that explains them.
    pub caption: String,
    pub notes: Vec<String>,
}

/// Values on a grid over two variables, as colours.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// The quantity that the colours show, next to the colour bar.
    pub z_label: String,
    /// The ranges that the cells divide evenly, on a logarithmic axis by equal ratios.
    pub x: (f64, f64),
    pub y: (f64, f64),
    pub x_log: bool,
    pub y_log: bool,
    /// Whether the scale of the colours is logarithmic.
    pub z_log: bool,
    /// Rows of cells from the low end of y, each from the low end of x. Cells with values that are not finite are grey.
    pub z: Vec<Vec<f64>>,
    /// The range of the colours; by default the range of all values. Values beyond it have the colours of its ends, and the colour bar
    /// has a tip there.
    pub z_range: Option<(f64, f64)>,
    /// Whether each cell of `z` is drawn faded towards the background; cells without an entry are not.
    pub faint: Vec<Vec<bool>>,
    /// Places marked by a ring.
    pub rings: Vec<(f64, f64)>,
}

/// A matrix of results. The first column holds the rows' names.
#[derive(Clone, Debug, Default)]
pub struct CellTable {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<TableCell>>,
    /// The text under the table that explains the cells.
    pub caption: String,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct TableCell {
    pub text: String,
    pub fill: Fill,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Fill {
    #[default]
    None,
    /// The name of the following rows: bold.
    Group,
    /// From 0 (light) to 1 (dark); the caller chooses the scale, such as a logarithm of the value.
    Shade(f64),
    Status(Tone),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Warning,
    Bad,
    /// Not applicable, or not run.
    Absent,
}

/// Whether the pictures' font can show a text.
pub fn has_glyphs(text: &str) -> bool {
    sheet::has_glyphs(text)
}

/// The file format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// SVG, with text as text.
    Svg,
    Png,
    /// One page, with text that can be searched.
    Pdf,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 3] = [Format::Svg, Format::Png, Format::Pdf];

    /// The file name of a picture in this format.
    pub fn file_name(self, stem: &str) -> String {
        let extension = match self {
            Format::Svg => "svg",
            Format::Png => "png",
            Format::Pdf => "pdf",
        };
        format!("{stem}.{extension}")
    }
}

/// The colours of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Theme {
    /// Dark on white.
    #[default]
    Light,
    /// Light on nearly black.
    Dark,
}

/// Size, letters and lines for a publication; lines differ without colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FigureStyle {
    /// 5.5 inches wide, 9 point Times.
    Neurips,
    /// 3.5 inches wide (one column), 8 point Times.
    Ieee,
    /// 16:9, with large sans-serif letters.
    Slides,
}

impl FigureStyle {
    /// All of them.
    pub const ALL: [FigureStyle; 3] = [FigureStyle::Neurips, FigureStyle::Ieee, FigureStyle::Slides];
}

/// Rendering options.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RenderOptions {
    /// The width in CSS pixels; by default chosen from the number of columns. A table has the width of its contents.
    pub width: Option<f64>,
    /// Resolution of a PNG in dots per inch of 96 CSS pixels, reduced for pictures of more than 30 million dots.
    pub dpi: f64,
    /// The colours.
    pub theme: Theme,
    /// The publication format; by default for a screen.
    pub style: Option<FigureStyle>,
}

impl Default for RenderOptions {
    fn default() -> Self {
        RenderOptions { width: None, dpi: 192.0, theme: Theme::Light, style: None }
    }
}

impl Chart {
    /// The bytes of the picture's file.
    pub fn render(&self, format: Format, look: &RenderOptions, about: &Provenance) -> Vec<u8> {
        write(&chart::scene(self, look), format, look, about)
    }
}

impl HeatMaps {
    /// The bytes of the picture's file.
    pub fn render(&self, format: Format, look: &RenderOptions, about: &Provenance) -> Vec<u8> {
        write(&heat::scene(self, look), format, look, about)
    }
}

impl CellTable {
    /// The bytes of the picture's file.
    pub fn render(&self, format: Format, look: &RenderOptions, about: &Provenance) -> Vec<u8> {
        write(&table::scene(self, look), format, look, about)
    }
}

fn write(scene: &scene::Scene, format: Format, look: &RenderOptions, about: &Provenance) -> Vec<u8> {
    match format {
        Format::Svg => svg::render(scene, about),
        Format::Png => raster::render(scene, look.dpi, about),
        Format::Pdf => pdf::render(scene, about),
    }
}
