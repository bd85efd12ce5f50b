//! What is drawn and where: marks in CSS pixels, from the upper left corner.

use super::text::Font;

pub(super) type Point = (f64, f64);
pub(super) type Rgb = (u8, u8, u8);

#[derive(Clone, Debug)]
pub(super) struct Scene {
    pub title: String,
    pub width: f64,
    pub height: f64,
    pub marks: Vec<Mark>,
}

#[derive(Clone, Debug)]
pub(super) enum Mark {
    /// `dash` alternates lengths drawn and skipped; empty for a solid line.
    Line {
        points: Vec<Point>,
        color: Rgb,
        width: f64,
        dash: &'static [f64],
    },
    /// A translucent ribbon: x, upper and lower y, with x increasing.
    Ribbon {
        edges: Vec<(f64, f64, f64)>,
        color: Rgb,
    },
    /// A filled convex polygon.
    Polygon {
        points: Vec<Point>,
        color: Rgb,
    },
    Disc {
        center: Point,
        radius: f64,
        color: Rgb,
    },
    /// One line of text; `at` is on its baseline.
    Text {
        at: Point,
        text: String,
        font: Font,
        anchor: Anchor,
        upward: bool,
        color: Rgb,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Scene {
    pub fn new(title: &str, width: f64) -> Self {
        Scene { title: title.to_string(), width, height: 0.0, marks: Vec::new() }
    }

    pub fn line(&mut self, points: Vec<Point>, color: Rgb, width: f64) {
        self.marks.push(Mark::Line { points, color, width, dash: &[] });
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
            self.marks.push(Mark::Text { at, text: text.to_string(), font, anchor, upward, color });
        }
    }

    /// Lines of text from `top` down; returns where they end.
    pub fn paragraph(&mut self, (x, top): Point, lines: &[String], font: Font, anchor: Anchor, color: Rgb) -> f64 {
        for (i, line) in lines.iter().enumerate() {
            self.text((x, top + font.baseline() + i as f64 * font.leading()), line, font, anchor, color);
        }
        top + lines.len() as f64 * font.leading()
    }
}
