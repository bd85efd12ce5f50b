//! A scene as PNG: paths and outlines of letters, filled by tiny-skia.

use tiny_skia::{FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};

use super::about::Provenance;
use super::point::Point;
use super::scene::{Dash, Mark, Rgb, Scene, Text};
use super::text::OutlinePen;

/// CSS pixels in an inch.
const CSS_DPI: f64 = 96.0;
/// The largest number of dots; the resolution of a larger picture is reduced.
const MAX_DOTS: f64 = 30e6;

pub(super) fn render(scene: &Scene, dpi: f64, about: &Provenance) -> Vec<u8> {
    let area = scene.width.ceil() * scene.height.ceil();
    let dots = (dpi / CSS_DPI).min((MAX_DOTS / area).sqrt());
    let size = |length: f64| (length.ceil() * dots).ceil().max(1.0) as u32;
    let mut pixmap = Pixmap::new(size(scene.width), size(scene.height)).expect("a size that is neither zero nor enormous");
    pixmap.fill(ink(scene.background, 1.0));
    let mut canvas = Canvas { pixmap, scale: Transform::from_scale(dots as f32, dots as f32) };
    scene.marks.iter().for_each(|mark| canvas.draw(mark));
    encode(&canvas.pixmap, dots * CSS_DPI, scene, about)
}

fn ink((r, g, b): Rgb, opacity: f64) -> tiny_skia::Color {
    let mut color = tiny_skia::Color::from_rgba8(r, g, b, 255);
    color.set_alpha(opacity as f32);
    color
}

fn encode(pixmap: &Pixmap, dpi: f64, scene: &Scene, about: &Provenance) -> Vec<u8> {
    const INCHES_IN_A_METRE: f64 = 1.0 / 0.0254;
    // The picture is opaque: the alpha channel is 255 everywhere.
    let image: Vec<u8> = pixmap.data().chunks_exact(4).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, pixmap.width(), pixmap.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let dots = (dpi * INCHES_IN_A_METRE).round() as u32;
    encoder.set_pixel_dims(Some(png::PixelDimensions { xppu: dots, yppu: dots, unit: png::Unit::Meter }));
    let entries = [
        ("Title", super::text::clean(&scene.title)),
        ("Description", super::text::clean(&scene.description)),
        ("Software", Provenance::software()),
        ("Experiment", super::text::clean(about.id)),
        ("Source", about.source()),
    ];
    for (keyword, text) in entries.into_iter().filter(|(_, text)| !text.is_empty()) {
        encoder.add_itxt_chunk(keyword.to_string(), text).expect("a keyword of Latin letters");
    }
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(&image)?;
        writer.finish()
    });
    written.expect("writing into memory cannot fail");
    bytes
}

struct Canvas {
    pixmap: Pixmap,
    scale: Transform,
}

impl Canvas {
    fn draw(&mut self, mark: &Mark) {
        match mark {
            Mark::Line { points, color, width, dash } => self.stroke(points, *color, *width, dash),
            Mark::Ribbon { edges, color, opacity } => {
                let upper = edges.iter().map(|(x, top, _)| (*x, *top));
                let lower = edges.iter().rev().map(|(x, _, bottom)| (*x, *bottom));
                self.fill(polygon(upper.chain(lower), true), *color, *opacity, Transform::identity());
            }
            Mark::Polygon { points, color } => {
                self.fill(polygon(points.iter().copied(), true), *color, 1.0, Transform::identity());
            }
            Mark::Rectangles { rectangles, color } => {
                let mut path = PathBuilder::new();
                let edges = rectangles.iter().map(|edges| edges.map(|edge| edge as f32));
                let all = edges.filter_map(|[left, top, right, bottom]| Rect::from_ltrb(left, top, right, bottom));
                all.for_each(|rectangle| path.push_rect(rectangle));
                self.fill(path.finish(), *color, 1.0, Transform::identity());
            }
            Mark::Disc { center: (x, y), radius, color } => {
                let path = PathBuilder::from_circle(*x as f32, *y as f32, *radius as f32);
                self.fill(path, *color, 1.0, Transform::identity());
            }
            Mark::Text(text) => self.letter(text),
        }
    }

    fn stroke(&mut self, points: &[Point], color: Rgb, width: f64, dash: &Dash) {
        let Some(path) = polygon(points.iter().copied(), false) else { return };
        let lengths: Vec<f32> = dash.lengths.iter().map(|length| *length as f32).collect();
        let dash = StrokeDash::new(lengths, dash.start as f32);
        let stroke = Stroke { width: width as f32, line_join: LineJoin::Round, dash, ..Stroke::default() };
        let mut paint = Paint::default();
        paint.set_color(ink(color, 1.0));
        self.pixmap.stroke_path(&path, &paint, &stroke, self.scale, None);
    }

    fn fill(&mut self, path: Option<Path>, color: Rgb, opacity: f64, place: Transform) {
        let Some(path) = path else { return };
        let mut paint = Paint::default();
        paint.set_color(ink(color, opacity));
        self.pixmap.fill_path(&path, &paint, FillRule::Winding, place.post_concat(self.scale), None);
    }

    fn letter(&mut self, text: &Text) {
        let mut outline = Outline(PathBuilder::new());
        text.font.outline(&text.text, &mut outline);
        let (x, y) = (text.at.0 as f32, text.at.1 as f32);
        let place = match text.upward {
            true => Transform::from_row(0.0, -1.0, 1.0, 0.0, x, y + text.before() as f32),
            false => Transform::from_translate(x - text.before() as f32, y),
        };
        self.fill(outline.0.finish(), text.color, 1.0, place);
    }
}

fn polygon(points: impl Iterator<Item = Point>, closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (i, (x, y)) in points.enumerate() {
        match i {
            0 => path.move_to(x as f32, y as f32),
            _ => path.line_to(x as f32, y as f32),
        }
    }
    if closed {
        path.close();
    }
    path.finish()
}

struct Outline(PathBuilder);

impl OutlinePen for Outline {
    fn start(&mut self, (x, y): Point) {
        self.0.move_to(x as f32, y as f32);
    }

    fn line(&mut self, (x, y): Point) {
        self.0.line_to(x as f32, y as f32);
    }

    fn quadratic(&mut self, (a, b): Point, (x, y): Point) {
        self.0.quad_to(a as f32, b as f32, x as f32, y as f32);
    }

    fn cubic(&mut self, (a, b): Point, (c, d): Point, (x, y): Point) {
        self.0.cubic_to(a as f32, b as f32, c as f32, d as f32, x as f32, y as f32);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
