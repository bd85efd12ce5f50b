//! A scene as SVG or PNG, drawn with plotters.
//!
//! Plotters' backends count in whole units and draw solid lines, so a vector picture is drawn in tenths of a pixel, a
//! bitmap in fractions that are averaged afterwards, and dashes are cut here.

use std::fmt::Debug;

use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBAColor, ShapeStyle, TextStyle};

use super::scene::{Anchor, Mark, Point, Rgb, Scene};
use super::style::{BAND_OPACITY, WHITE};
use super::text::{FAMILY, Font, clean};

/// What differs between the backends.
#[derive(Clone, Copy)]
struct Ground {
    /// Units in a CSS pixel.
    unit: f64,
    bitmap: bool,
}

const VECTOR: Ground = Ground { unit: 10.0, bitmap: false };

/// A place in a backend's units.
type Place = (i32, i32);

fn sure<E: Debug>(drawn: Result<(), E>) {
    drawn.expect("drawing into memory with a registered font cannot fail");
}

pub(super) fn svg(scene: &Scene) -> String {
    let mut drawn = String::new();
    {
        let size = ((scene.width * VECTOR.unit).ceil() as u32, (scene.height * VECTOR.unit).ceil() as u32);
        let mut backend = SVGBackend::with_string(&mut drawn, size);
        paint(scene, VECTOR, &mut backend);
        sure(backend.present());
    }
    tidy(&drawn, scene)
}

/// Plotters' elements under our own header: the picture's size in pixels, round joins, a title for readers of the text,
/// and lines of one kind in a row joined to one path.
fn tidy(drawn: &str, scene: &Scene) -> String {
    let (width, height) = (scene.width.ceil(), scene.height.ceil());
    let (full_width, full_height) = (width * VECTOR.unit, height * VECTOR.unit);
    let title = clean(&scene.title).replace('&', "&amp;").replace('<', "&lt;");
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {full_width} {full_height}\" \
         stroke-linejoin=\"round\" role=\"img\">\n<title>{title}</title>\n"
    );
    let mut lines = drawn.lines().skip(1);
    let mut open_path = None;
    while let Some(line) = lines.next() {
        let polyline = line.strip_prefix("<polyline ").and_then(|rest| rest.split_once(" points=\""));
        if let Some((look, points)) = polyline {
            if open_path != Some(look) {
                close(&mut svg, &mut open_path);
                svg.push_str(&format!("<path {look} d=\""));
                open_path = Some(look);
            }
            svg.push('M');
            svg.push_str(points.trim_end_matches("\"/>").trim_end());
            continue;
        }
        close(&mut svg, &mut open_path);
        svg.push_str(line);
        if line.starts_with("<text ") {
            // The text without the line breaks around it.
            svg.extend(lines.by_ref().take(2));
        }
        svg.push('\n');
    }
    svg
}

fn close(svg: &mut String, open_path: &mut Option<&str>) {
    if open_path.take().is_some() {
        svg.push_str("\"/>\n");
    }
}

pub(super) fn png(scene: &Scene) -> Vec<u8> {
    // Two dots to a CSS pixel, for fine screens, each the average of nine, unless the picture is enormous.
    const DOTS: f64 = 2.0;
    const LARGEST: f64 = 30e6;
    let area = scene.width * scene.height;
    let fine = [3_usize, 2, 1].into_iter().find(|fine| area * (DOTS * *fine as f64).powi(2) <= LARGEST);
    let dots = if fine.is_some() { DOTS } else { (LARGEST / area).sqrt() };
    let fine = fine.unwrap_or(1);
    let size = |length: f64| (length * dots).ceil().max(1.0) as usize;
    let (width, height) = (size(scene.width), size(scene.height));
    let (full_width, full_height) = (width * fine, height * fine);

    let mut buffer = vec![0; 3 * full_width * full_height];
    {
        let mut backend = BitMapBackend::with_buffer(&mut buffer, (full_width as u32, full_height as u32));
        paint(scene, Ground { unit: dots * fine as f64, bitmap: true }, &mut backend);
        sure(backend.present());
    }
    encode(&averaged(&buffer, full_width, fine), width, height)
}

/// Each channel's mean over squares of `fine` by `fine` pixels.
fn averaged(buffer: &[u8], full_width: usize, fine: usize) -> Vec<u8> {
    let width = full_width / fine;
    let mut image = Vec::with_capacity(buffer.len() / (fine * fine));
    let mut sums = vec![0_u32; 3 * width];
    for rows in buffer.chunks_exact(3 * full_width * fine) {
        sums.fill(0);
        for row in rows.chunks_exact(3 * full_width) {
            for (square, sum) in row.chunks_exact(3 * fine).zip(sums.chunks_exact_mut(3)) {
                for pixel in square.chunks_exact(3) {
                    for (sum, channel) in sum.iter_mut().zip(pixel) {
                        *sum += u32::from(*channel);
                    }
                }
            }
        }
        let count = (fine * fine) as u32;
        image.extend(sums.iter().map(|sum| ((sum + count / 2) / count) as u8));
    }
    image
}

fn encode(image: &[u8], width: usize, height: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(image)?;
        writer.finish()
    });
    written.expect("writing into memory cannot fail");
    bytes
}

fn paint<B: DrawingBackend>(scene: &Scene, ground: Ground, backend: &mut B) {
    let (width, height) = backend.get_size();
    sure(backend.draw_rect((0, 0), (width as i32, height as i32), &filled(WHITE, 1.0), true));
    for mark in &scene.marks {
        ground.mark(mark, backend);
    }
}

fn filled((r, g, b): Rgb, opacity: f64) -> ShapeStyle {
    ShapeStyle { color: RGBAColor(r, g, b, opacity), filled: true, stroke_width: 1 }
}

impl Ground {
    fn place(&self, (x, y): Point) -> Place {
        ((x * self.unit).round() as i32, (y * self.unit).round() as i32)
    }

    fn length(&self, length: f64) -> u32 {
        (length * self.unit).round().max(1.0) as u32
    }

    fn mark<B: DrawingBackend>(&self, mark: &Mark, backend: &mut B) {
        match mark {
            Mark::Line { points, color, width, dash } => {
                let style = ShapeStyle { stroke_width: self.length(*width), ..filled(*color, 1.0) };
                match dash.is_empty() {
                    true => self.stroke(points, &style, backend),
                    false => dashes(points, dash).iter().for_each(|piece| self.stroke(piece, &style, backend)),
                }
            }
            Mark::Ribbon { edges, color } => self.ribbon(edges, &filled(*color, BAND_OPACITY), backend),
            Mark::Polygon { points, color } => {
                sure(backend.fill_polygon(points.iter().map(|p| self.place(*p)), &filled(*color, 1.0)));
            }
            Mark::Disc { center, radius, color } => {
                sure(backend.draw_circle(self.place(*center), self.length(*radius), &filled(*color, 1.0), true));
            }
            Mark::Text { at, text, font, anchor, upward, color } => {
                let text = Lettering { text: &clean(text), font: *font, anchor: *anchor, upward: *upward };
                let color = filled(*color, 1.0).color;
                if self.bitmap { self.dotted_text(text, *at, color, backend) } else { self.named_text(text, *at, color, backend) }
            }
        }
    }

    /// Text to be set by whoever shows the picture.
    fn named_text<B: DrawingBackend>(&self, lettering: Lettering, at: Point, color: RGBAColor, backend: &mut B) {
        // How plotters' SVG counts: the size of a font of one em, and the baseline below the top of a text in ems.
        const SIZE_PER_EM: f64 = 1.24;
        const BASELINE: f64 = 0.76;
        let Lettering { text, font, anchor, upward } = lettering;
        let h_pos = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let lift = BASELINE * font.size;
        let (top, transform) = match upward {
            true => ((at.0 - lift, at.1), FontTransform::Rotate270),
            false => ((at.0, at.1 - lift), FontTransform::None),
        };
        let weight = if font.bold { FontStyle::Bold } else { FontStyle::Normal };
        let described = FontDesc::new(FontFamily::Name(FAMILY), font.size * self.unit * SIZE_PER_EM, weight).transform(transform);
        let style = TextStyle { pos: Pos::new(h_pos, VPos::Top), ..described.color(&color) };
        sure(backend.draw_text(text, &style, self.place(top)));
    }

    fn dotted_text<B: DrawingBackend>(&self, lettering: Lettering, at: Point, color: RGBAColor, backend: &mut B) {
        let Lettering { text, font, anchor, upward } = lettering;
        let font = Font { size: font.size * self.unit, ..font };
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => font.width(text) / 2.0,
            Anchor::End => font.width(text),
        };
        let (x, y) = self.place(at);
        font.rasterize(text, (-before, 0.0), |right, down, coverage| {
            let dot = if upward { (x + down, y - right) } else { (x + right, y + down) };
            sure(backend.draw_pixel(dot, color.mix(f64::from(coverage)).to_backend_color()));
        });
    }

    fn stroke<B: DrawingBackend>(&self, points: &[Point], style: &ShapeStyle, backend: &mut B) {
        if !self.bitmap {
            return sure(backend.draw_path(points.iter().map(|p| self.place(*p)), style));
        }
        // The bitmap backend makes one polygon of a thick line and leaves holes where it crosses itself.
        for pair in points.windows(2) {
            sure(backend.draw_path([self.place(pair[0]), self.place(pair[1])], style));
        }
        if points.len() > 2 && style.stroke_width > 2 {
            for joint in &points[1..points.len() - 1] {
                sure(backend.draw_circle(self.place(*joint), style.stroke_width / 2, style, true));
            }
        }
    }

    fn ribbon<B: DrawingBackend>(&self, edges: &[(f64, f64, f64)], style: &ShapeStyle, backend: &mut B) {
        let upper = edges.iter().map(|(x, top, _)| self.place((*x, *top)));
        let lower = edges.iter().map(|(x, _, bottom)| self.place((*x, *bottom)));
        if !self.bitmap {
            return sure(backend.fill_polygon(upper.chain(lower.rev()), style));
        }
        // Pixel column by column: the bitmap backend's polygons are for simpler shapes.
        for pair in edges.windows(2) {
            let ((left, top, bottom), (right, next_top, next_bottom)) = (pair[0], pair[1]);
            for column in (left * self.unit).ceil() as i32..(right * self.unit).ceil() as i32 {
                let part = (f64::from(column) / self.unit - left) / (right - left);
                let y = |a: f64, b: f64| ((a + part * (b - a)) * self.unit).round() as i32;
                sure(backend.draw_line((column, y(top, next_top)), (column, y(bottom, next_bottom)), style));
            }
        }
    }
}

struct Lettering<'a> {
    text: &'a str,
    font: Font,
    anchor: Anchor,
    upward: bool,
}

/// The drawn parts of a dashed line. On a jagged line they are longer: there are about as many as on a smooth one.
fn dashes(points: &[Point], dash: &[f64]) -> Vec<Vec<Point>> {
    let distance = |a: Point, b: Point| (b.0 - a.0).hypot(b.1 - a.1);
    let total: f64 = points.windows(2).map(|pair| distance(pair[0], pair[1])).sum();
    let extent = |coordinate: fn(&Point) -> f64| {
        let coordinates = points.iter().map(coordinate);
        coordinates.clone().fold(f64::NEG_INFINITY, f64::max) - coordinates.fold(f64::INFINITY, f64::min)
    };
    let smooth = 1.5 * (extent(|p| p.0) + extent(|p| p.1));
    let stretch = if total > smooth { total / smooth } else { 1.0 };

    let mut lengths = dash.iter().map(|length| length * stretch).cycle();
    let mut left = lengths.next().unwrap_or(f64::INFINITY);
    let mut drawing = true;
    let mut pieces = Vec::new();
    let mut piece: Vec<Point> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let mut rest = distance(from, to);
        while rest > left {
            let part = left / rest;
            from = (from.0 + part * (to.0 - from.0), from.1 + part * (to.1 - from.1));
            rest -= left;
            if drawing {
                piece.push(from);
                pieces.push(std::mem::take(&mut piece));
            } else {
                piece = vec![from];
            }
            drawing = !drawing;
            left = lengths.next().unwrap_or(f64::INFINITY);
        }
        left -= rest;
        if drawing {
            piece.push(to);
        }
    }
    if drawing && piece.len() > 1 {
        pieces.push(piece);
    }
    pieces
}
