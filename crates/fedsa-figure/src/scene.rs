//! The scene: marks with their positions in CSS pixels, from the upper left corner. The backends (`svg`, `raster`, `pdf`) draw
//! the same scene.

use super::point::Point;
use super::text::Font;

pub(super) type Rgb = (u8, u8, u8);

#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub title: String,
    /// A description of the picture for screen readers.
    pub description: String,
    pub background: Rgb,
    /// The families of fonts that an SVG asks for.
    pub families: &'static str,
    /// Whether an SVG states its size in points, as on paper.
    pub in_points: bool,
    pub width: f64,
    pub height: f64,
    pub marks: Vec<Mark>,
}

/// The dash pattern of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dash {
    /// Lengths drawn and skipped in turn; empty for a solid line.
    pub lengths: Vec<f64>,
    /// The offset into the pattern at which a line starts.
    pub start: f64,
}

impl Dash {
    pub fn solid() -> Dash {
        Dash::default()
    }

    pub fn of(lengths: &[f64]) -> Dash {
        Dash { lengths: lengths.to_vec(), start: 0.0 }
    }

    /// The pattern for a jagged line: longer dashes, so that they are visible and not too many.
    pub fn stretched(&self, points: &[Point]) -> Dash {
        let total: f64 = points.windows(2).map(|pair| (pair[1].0 - pair[0].0).hypot(pair[1].1 - pair[0].1)).sum();
        let extent = |coordinate: fn(&Point) -> f64| {
            let coordinates = points.iter().map(coordinate);
            coordinates.clone().fold(f64::NEG_INFINITY, f64::max) - coordinates.fold(f64::INFINITY, f64::min)
        };
        let smooth = 1.5 * (extent(|p| p.0) + extent(|p| p.1));
        // Dashes grow with the square root of the line's relative length; for very long lines linearly, to limit their number.
        let jagged = if smooth > 0.0 { (total / smooth).max(1.0) } else { 1.0 };
        let stretch = jagged.sqrt().max(jagged / 10.0);
        Dash { lengths: self.lengths.iter().map(|length| length * stretch).collect(), start: self.start * stretch }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Mark {
    Line {
        points: Vec<Point>,
        color: Rgb,
        width: f64,
        dash: Dash,
    },
    /// A translucent ribbon: x, upper and lower y, with x increasing.
    Ribbon {
        edges: Vec<(f64, f64, f64)>,
        color: Rgb,
        opacity: f64,
    },
    /// A filled polygon.
    Polygon {
        points: Vec<Point>,
        color: Rgb,
    },
    /// Upright rectangles of one colour: left, top, right, bottom.
    Rectangles {
        rectangles: Vec<[f64; 4]>,
        color: Rgb,
    },
    Disc {
        center: Point,
        radius: f64,
        color: Rgb,
    },
    Text(Text),
}

impl Mark {
    fn scale(&mut self, scale: f64, shift: Point) {
        let (x, y) = (|x: &mut f64| *x = *x * scale + shift.0, |y: &mut f64| *y = *y * scale + shift.1);
        let all = |points: &mut [Point]| {
            for (a, b) in points {
                x(a);
                y(b);
            }
        };
        match self {
            Mark::Line { points, width, dash, .. } => {
                all(points);
                *width = hundredths(*width * scale);
                dash.lengths.iter_mut().for_each(|length| *length *= scale);
                dash.start *= scale;
            }
            Mark::Ribbon { edges, .. } => {
                for (at, top, bottom) in edges {
                    x(at);
                    y(top);
                    y(bottom);
                }
            }
            Mark::Polygon { points, .. } => all(points),
            Mark::Rectangles { rectangles, .. } => {
                for [left, top, right, bottom] in rectangles {
                    x(left);
                    y(top);
                    x(right);
                    y(bottom);
                }
            }
            Mark::Disc { center, radius, .. } => {
                all(std::slice::from_mut(center));
                *radius *= scale;
            }
            Mark::Text(text) => {
                all(std::slice::from_mut(&mut text.at));
                text.font.size = hundredths(text.font.size * scale);
            }
        }
    }
}

/// A hundredth of a pixel is finer than visible.
fn hundredths(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

/// One line of text.
#[derive(Clone, Debug)]
pub(super) struct Text {
    /// On the baseline.
    pub at: Point,
    pub text: String,
    pub font: Font,
    pub anchor: Anchor,
    /// Reads from bottom to top.
    pub upward: bool,
    pub color: Rgb,
}

impl Text {
    /// The distance from the start of the text to its anchor.
    pub fn before(&self) -> f64 {
        match self.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => self.font.width(&self.text) / 2.0,
            Anchor::End => self.font.width(&self.text),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Scene {
    pub fn new(title: &str, width: f64, background: Rgb, families: &'static str) -> Self {
        let (title, description, marks) = (title.to_string(), String::new(), Vec::new());
        Scene { title, description, background, families, in_points: false, width, height: 0.0, marks }
    }

    /// The scene with all lengths times `scale`, then moved.
    pub fn scaled(mut self, scale: f64, shift: Point) -> Self {
        self.width *= scale;
        self.height *= scale;
        self.marks.iter_mut().for_each(|mark| mark.scale(scale, shift));
        self
    }

    pub fn line(&mut self, points: Vec<Point>, color: Rgb, width: f64) {
        self.marks.push(Mark::Line { points, color, width, dash: Dash::solid() });
    }

    pub fn rectangle(&mut self, (left, top): Point, (right, bottom): Point, color: Rgb) {
        let points = vec![(left, top), (right, top), (right, bottom), (left, bottom)];
        self.marks.push(Mark::Polygon { points, color });
    }

    pub fn text(&mut self, at: Point, text: &str, font: Font, anchor: Anchor, color: Rgb) {
        self.push_text(at, text, font, anchor, false, color);
    }

    /// Text that reads from bottom to top.
    pub fn upward_text(&mut self, at: Point, text: &str, font: Font, anchor: Anchor, color: Rgb) {
        self.push_text(at, text, font, anchor, true, color);
    }

    fn push_text(&mut self, at: Point, text: &str, font: Font, anchor: Anchor, upward: bool, color: Rgb) {
        if !text.is_empty() {
            self.marks.push(Mark::Text(Text { at, text: super::text::clean(text), font, anchor, upward, color }));
        }
    }

    /// Adds lines of text from `top` down; returns the y at which they end.
    pub fn paragraph(&mut self, (x, top): Point, lines: &[String], font: Font, anchor: Anchor, color: Rgb) -> f64 {
        for (i, line) in lines.iter().enumerate() {
            self.text((x, top + font.baseline() + i as f64 * font.leading()), line, font, anchor, color);
        }
        top + lines.len() as f64 * font.leading()
    }
}
