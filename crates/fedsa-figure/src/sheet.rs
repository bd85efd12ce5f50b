//! The design of a picture: its colours, the sizes of its letters and page, and whether lines differ without colours.
//!
//! A layout places marks in its own pixels. For print or slides, the scene with its letters is then scaled to the page, so that letters
//! have the sheet's size in points on paper.

use super::point::Point;
use super::scene::{Dash, Mark, Scene};
use super::style::{self, Colors, Overlap};
use super::text::{Family, Font};
use super::{FigureStyle, RenderOptions, Style};

/// The letters of a picture's parts.
#[derive(Debug)]
pub(super) struct Fonts {
    pub title: Font,
    pub panel_title: Font,
    pub axis_label: Font,
    pub tick: Font,
    pub legend: Font,
    pub caption: Font,
    pub note: Font,
    pub cell: Font,
    pub head: Font,
    /// The font families of an SVG. None is wider than the embedded family, which measured the texts.
    pub families: &'static str,
}

const SCREEN: Fonts = Fonts {
    title: Font::bold(Family::Sans, 16.0),
    panel_title: Font::bold(Family::Sans, 12.5),
    axis_label: Font::regular(Family::Sans, 12.5),
    tick: Font::regular(Family::Sans, 11.5),
    legend: Font::regular(Family::Sans, 12.5),
    caption: Font::regular(Family::Sans, 12.0),
    note: Font::regular(Family::Sans, 11.0),
    cell: Font::regular(Family::Sans, 12.0),
    head: Font::bold(Family::Sans, 12.0),
    families: "DejaVu Sans, Verdana, sans-serif",
};

/// One size, as in papers; the page's scale turns it into the size of the style.
const PAPER: Fonts = Fonts {
    title: Font::bold(Family::Serif, 12.0),
    panel_title: Font::bold(Family::Serif, 12.0),
    axis_label: Font::regular(Family::Serif, 12.0),
    tick: Font::regular(Family::Serif, 12.0),
    legend: Font::regular(Family::Serif, 12.0),
    caption: Font::regular(Family::Serif, 12.0),
    note: Font::regular(Family::Serif, 12.0),
    cell: Font::regular(Family::Serif, 12.0),
    head: Font::bold(Family::Serif, 12.0),
    families: "Nimbus Roman, TeX Gyre Termes, Times New Roman, Tinos, Liberation Serif, Times, serif, DejaVu Sans",
};

const SLIDES: Fonts = Fonts { families: "Latin Modern Sans, Helvetica, Arial, DejaVu Sans, Verdana, sans-serif", ..SCREEN };

/// The size of a page in CSS pixels, 96 in an inch.
#[derive(Clone, Copy, Debug)]
struct Page {
    width: f64,
    /// None if the height follows from the contents.
    height: Option<f64>,
    /// Pixels of the page per pixel of the layout.
    scale: f64,
}

const INCH: f64 = 96.0;

impl FigureStyle {
    fn page(self) -> Page {
        match self {
            // 12 pixels are 9 points.
            FigureStyle::Neurips => Page { width: 5.5 * INCH, height: None, scale: 1.0 },
            FigureStyle::Ieee => Page { width: 3.5 * INCH, height: None, scale: 8.0 / 9.0 },
            FigureStyle::Slides => Page { width: 1280.0, height: Some(720.0), scale: 2.0 },
        }
    }

    fn fonts(self) -> &'static Fonts {
        match self {
            FigureStyle::Neurips | FigureStyle::Ieee => &PAPER,
            FigureStyle::Slides => &SLIDES,
        }
    }
}

/// The sheet on which a picture is laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sheet {
    pub colors: &'static Colors,
    pub fonts: &'static Fonts,
    /// The room around everything, in the layout's pixels.
    pub margin: f64,
    /// The preferred width of a layout in its pixels, if given.
    pub width: Option<f64>,
    style: Option<FigureStyle>,
    page: Option<Page>,
}

impl Sheet {
    pub fn of(look: &RenderOptions) -> Self {
        let colors = look.theme.colors();
        let Some(style) = look.style else {
            return Self { colors, fonts: &SCREEN, margin: 14.0, width: look.width, style: None, page: None };
        };
        let page = look.width.map_or(style.page(), |width| {
            let usual = style.page();
            Page { width, height: usual.height.map(|height| height * width / usual.width), scale: usual.scale }
        });
        let margin = if page.height.is_some() { 14.0 } else { 4.0 };
        Self { colors, fonts: style.fonts(), margin, width: Some(page.width / page.scale), style: Some(style), page: Some(page) }
    }

    /// Whether lines of a panel differ in dashes or markers, not only in colours.
    fn is_grey_safe(&self) -> bool {
        self.style.is_some()
    }

    /// The distance that a label under a horizontal axis may reach beyond its panel on either side.
    pub fn overhang(&self) -> f64 {
        self.margin - 2.0
    }

    /// The height of a layout in its pixels, if the page has one.
    pub fn height(&self) -> Option<f64> {
        self.page.and_then(|page| Some(page.height? / page.scale))
    }

    /// The title in the picture. Papers have it in their captions.
    pub fn title<'a>(&self, title: &'a str) -> &'a str {
        if matches!(self.style, Some(FigureStyle::Neurips | FigureStyle::Ieee)) { "" } else { title }
    }

    /// The caption and the notes below a picture. Papers and slides have their own; a file's description keeps these.
    pub fn below<'a>(&self, caption: &'a str, notes: &'a [String]) -> (&'a str, &'a [String]) {
        if self.style.is_some() { ("", &[]) } else { (caption, notes) }
    }

    /// The style of a curve: lines always have markers if colours alone must not distinguish them.
    pub fn drawn_as(&self, style: Style) -> Style {
        if self.is_grey_safe() && style == Style::Line { Style::Marked } else { style }
    }

    /// The dash pattern of a measured curve.
    pub fn curve_dash(&self, index: usize, overlap: Overlap) -> Dash {
        let own = style::grey_dash(index);
        match self.is_grey_safe() {
            true if !own.lengths.is_empty() || overlap.depth == 0 => own,
            _ => style::curve_dash(index, overlap),
        }
    }

    /// The dash pattern of a predicted curve.
    pub fn predicted_dash(&self, index: usize, overlap: Overlap) -> Dash {
        let dash = style::predicted_dash(index, overlap);
        if self.is_grey_safe() { style::with_dots(dash, index) } else { dash }
    }

    /// The dash pattern of a level.
    pub fn level_dash(&self, color: usize, dash: usize) -> Dash {
        let dash = style::level_dash(dash);
        if self.is_grey_safe() { style::with_dots(dash, color) } else { dash }
    }

    /// The markers of predicted curves and levels at these places; none if colours distinguish them.
    pub fn predicted_markers(&self, index: usize, places: impl IntoIterator<Item = Point>) -> Vec<Mark> {
        if !self.is_grey_safe() {
            return Vec::new();
        }
        places.into_iter().flat_map(|at| self.colors.hollow_marker(style::grey_shape(index), index, at, 0.9)).collect()
    }

    /// The marker of a measured curve.
    pub fn marker(&self, index: usize, at: Point, size: f64) -> Mark {
        let shape = if self.is_grey_safe() { style::grey_shape(index) } else { style::shape(index) };
        self.colors.marker(shape, index, at, size)
    }

    /// The marker of points without a line, which nothing else distinguishes.
    pub fn point_marker(&self, index: usize, at: Point, size: f64) -> Vec<Mark> {
        if self.is_grey_safe() && style::is_second_of_shape(index) {
            return self.colors.hollow_marker(style::grey_shape(index), index, at, size).to_vec();
        }
        vec![self.marker(index, at, size)]
    }

    /// An empty scene of this width in the layout's pixels.
    pub fn blank(&self, title: &str, width: f64) -> Scene {
        Scene::new(title, width, self.colors.background, self.fonts.families)
    }

    /// Scales a scene to the page; on a page of a given height, it is centred.
    pub fn fitted(&self, scene: Scene) -> Scene {
        let Some(page) = self.page else { return scene };
        let mut scale = page.scale.min(page.width / scene.width);
        if let Some(height) = page.height {
            scale = scale.min(height / scene.height);
        }
        let height = page.height.unwrap_or(scene.height * scale);
        let shift = ((page.width - scene.width * scale) / 2.0, (height - scene.height * scale) / 2.0);
        Scene { width: page.width, height, in_points: true, ..scene.scaled(scale, shift) }
    }
}

/// Whether every sheet can show a text.
pub(super) fn has_glyphs(text: &str) -> bool {
    [&SCREEN, &PAPER, &SLIDES].into_iter().all(|fonts| fonts.axis_label.has_glyphs(text) && fonts.title.has_glyphs(text))
}

#[cfg(test)]
mod tests;
