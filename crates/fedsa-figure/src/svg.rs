//! A scene as SVG: a header with the metadata, then one element per mark. Text stays text.

use std::fmt::Write;

use super::about::Provenance;
use super::point::Point;
use super::scene::{Anchor, Dash, Mark, Rgb, Scene, Text};

/// The namespace of the metadata's elements; a name, not an address.
const NAMESPACE: &str = "urn:fedsa:picture";

pub(super) fn render(scene: &Scene, about: &Provenance) -> Vec<u8> {
    let (width, height) = (scene.width.ceil(), scene.height.ceil());
    let size = |pixels: f64| if scene.in_points { format!("{}pt", 0.75 * pixels) } else { pixels.to_string() };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\" \
         role=\"img\" font-family=\"{}\" fill=\"none\" stroke-linejoin=\"round\">\n<title>{}</title>\n",
        size(width),
        size(height),
        scene.families,
        escaped(&super::text::clean(&scene.title))
    );
    if !scene.description.is_empty() {
        line(&mut svg, format_args!("<desc>{}</desc>", escaped(&super::text::clean(&scene.description))));
    }
    let (id, software, source) = (escaped(&super::text::clean(about.id)), Provenance::software(), escaped(&about.source()));
    line(&mut svg, format_args!("<metadata>\n<f:picture xmlns:f=\"{NAMESPACE}\" id=\"{id}\" software=\"{software}\">"));
    line(&mut svg, format_args!("<f:config>{source}</f:config>\n</f:picture>\n</metadata>"));
    line(&mut svg, format_args!("<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>", hex(scene.background)));
    let mut open: Option<String> = None;
    for mark in &scene.marks {
        // Neighbouring lines with the same look become one path.
        let look = match mark {
            Mark::Line { color, width, dash, .. } => Some(stroke(*color, *width, dash)),
            _ => None,
        };
        if open.is_some() && open != look {
            svg.push_str("\"/>\n");
            open = None;
        }
        if let (Some(look), None) = (&look, &open) {
            let _ = write!(svg, "<path {look} d=\"");
            open = Some(look.clone());
        }
        draw(&mut svg, mark);
    }
    svg.push_str(if open.is_some() { "\"/>\n</svg>\n" } else { "</svg>\n" });
    svg.into_bytes()
}

fn line(svg: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(svg, "{text}");
}

fn draw(svg: &mut String, mark: &Mark) {
    match mark {
        Mark::Line { points, .. } => trail(svg, points.iter().copied()),
        Mark::Ribbon { edges, color, opacity } => {
            let _ = write!(svg, "<path fill=\"{}\" fill-opacity=\"{opacity}\" d=\"", hex(*color));
            let upper = edges.iter().map(|(x, top, _)| (*x, *top));
            let lower = edges.iter().rev().map(|(x, _, bottom)| (*x, *bottom));
            trail(svg, upper.chain(lower));
            svg.push_str("Z\"/>\n");
        }
        Mark::Polygon { points, color } => {
            let _ = write!(svg, "<path fill=\"{}\" d=\"", hex(*color));
            trail(svg, points.iter().copied());
            svg.push_str("Z\"/>\n");
        }
        Mark::Rectangles { rectangles, color } => {
            let _ = write!(svg, "<path fill=\"{}\" d=\"", hex(*color));
            for [left, top, right, bottom] in rectangles {
                let (width, height) = (short(right - left), short(bottom - top));
                let _ = write!(svg, "M{} {}h{width}v{height}h-{width}z", short(*left), short(*top));
            }
            svg.push_str("\"/>\n");
        }
        Mark::Disc { center: (x, y), radius, color } => {
            line(
                svg,
                format_args!("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>", short(*x), short(*y), short(*radius), hex(*color)),
            );
        }
        Mark::Text(text) => lettering(svg, text),
    }
}

fn lettering(svg: &mut String, Text { at: (x, y), text, font, anchor, upward, color }: &Text) {
    let (x, y) = (short(*x), short(*y));
    match upward {
        true => svg.push_str(&format!("<text transform=\"translate({x} {y}) rotate(-90)\"")),
        false => svg.push_str(&format!("<text x=\"{x}\" y=\"{y}\"")),
    }
    svg.push_str(match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    });
    let weight = if font.typeface.bold { " font-weight=\"bold\"" } else { "" };
    line(svg, format_args!(" font-size=\"{}\"{weight} fill=\"{}\">{}</text>", font.size, hex(*color), escaped(text)));
}

/// `Mx yLx y ...`
fn trail(svg: &mut String, points: impl Iterator<Item = Point>) {
    for (i, (x, y)) in points.enumerate() {
        let _ = write!(svg, "{}{} {}", if i == 0 { 'M' } else { 'L' }, short(x), short(y));
    }
}

fn stroke(color: Rgb, width: f64, dash: &Dash) -> String {
    let mut look = format!("stroke=\"{}\" stroke-width=\"{width}\"", hex(color));
    if !dash.lengths.is_empty() {
        let lengths: Vec<String> = dash.lengths.iter().map(|length| short(*length)).collect();
        let _ = write!(look, " stroke-dasharray=\"{}\"", lengths.join(" "));
        if dash.start != 0.0 {
            let _ = write!(look, " stroke-dashoffset=\"{}\"", short(dash.start));
        }
    }
    look
}

/// A tenth of a pixel is finer than visible.
fn short(x: f64) -> String {
    let tenths = (x * 10.0).round() / 10.0;
    // No -0.
    format!("{}", if tenths == 0.0 { 0.0 } else { tenths })
}

fn hex((r, g, b): Rgb) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
