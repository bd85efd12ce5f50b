//! The font: its metrics, line breaking and numerals.

use std::sync::LazyLock;

use ab_glyph::{Font as _, FontRef, PxScale};

use super::scene::Point;

/// As an SVG names it: our font where installed, else one no wider.
pub(super) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

static REGULAR: LazyLock<FontRef> = LazyLock::new(|| parse(include_bytes!("../../assets/DejaVuSans.ttf")));
static BOLD: LazyLock<FontRef> = LazyLock::new(|| parse(include_bytes!("../../assets/DejaVuSans-Bold.ttf")));

fn parse(bytes: &'static [u8]) -> FontRef<'static> {
    FontRef::try_from_slice(bytes).expect("the bundled fonts are valid")
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Font {
    /// Pixels per em.
    pub size: f64,
    pub bold: bool,
}

impl Font {
    pub const fn regular(size: f64) -> Self {
        Font { size, bold: false }
    }

    pub const fn bold(size: f64) -> Self {
        Font { size, bold: true }
    }

    /// From one baseline to the next.
    pub fn leading(self) -> f64 {
        1.3 * self.size
    }

    /// From the top of a line to its baseline.
    pub fn baseline(self) -> f64 {
        1.0 * self.size
    }

    /// From a baseline to the middle of the capitals above it.
    pub fn half_capital(self) -> f64 {
        0.365 * self.size
    }

    fn face(self) -> &'static FontRef<'static> {
        if self.bold { &BOLD } else { &REGULAR }
    }

    pub fn width(self, text: &str) -> f64 {
        let face = self.face();
        let units: f32 = text.chars().map(|c| face.h_advance_unscaled(face.glyph_id(c))).sum();
        f64::from(units) * self.size / units_per_em(face)
    }

    /// Whether the font has every character of a text.
    #[cfg(test)]
    pub fn has_glyphs(self, text: &str) -> bool {
        text.chars().all(|c| self.face().glyph_id(c).0 != 0)
    }

    /// Calls `dot` with the coverage of each pixel of a text whose baseline starts at `origin`.
    pub fn rasterize(self, text: &str, origin: Point, mut dot: impl FnMut(i32, i32, f32)) {
        let face = self.face();
        // The library's scale is the height of a line, not of an em.
        let scale = PxScale::from((self.size * f64::from(face.height_unscaled()) / units_per_em(face)) as f32);
        let mut x = origin.0;
        for letter in text.chars() {
            let id = face.glyph_id(letter);
            let glyph = id.with_scale_and_position(scale, (x as f32, origin.1 as f32));
            if let Some(outline) = face.outline_glyph(glyph) {
                let corner = outline.px_bounds().min;
                outline.draw(|right, down, coverage| dot(corner.x as i32 + right as i32, corner.y as i32 + down as i32, coverage));
            }
            x += f64::from(face.h_advance_unscaled(id)) * self.size / units_per_em(face);
        }
    }

    /// `text` in at most `limit` lines no wider than `width`, broken between words or, for want of spaces, anywhere;
    /// an ellipsis stands for what does not fit.
    pub fn wrap(self, text: &str, width: f64, limit: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        let mut line = String::new();
        for word in words(&clean(text)) {
            let joined = if line.is_empty() { word.clone() } else { format!("{line} {word}") };
            if self.width(&joined) <= width {
                line = joined;
                continue;
            }
            if !line.is_empty() {
                lines.push(std::mem::take(&mut line));
            }
            for letter in word.chars() {
                line.push(letter);
                if line.len() > letter.len_utf8() && self.width(&line) > width {
                    line.pop();
                    lines.push(std::mem::replace(&mut line, letter.to_string()));
                }
            }
            if lines.len() > limit {
                break;
            }
        }
        if !line.is_empty() {
            lines.push(line);
        }
        if lines.len() > limit {
            lines.truncate(limit);
            if let Some(last) = lines.last_mut() {
                while !last.is_empty() && self.width(&format!("{last}…")) > width {
                    last.pop();
                }
                last.push('…');
            }
        }
        lines
    }
}

fn units_per_em(face: &FontRef) -> f64 {
    f64::from(face.units_per_em().expect("the bundled fonts have a size"))
}

/// What a line is not broken within: words, with the sides of a relation such as `H = 10` kept together.
fn words(text: &str) -> Vec<String> {
    let relation = |word: &str| matches!(word, "=" | "≈" | "<" | ">" | "≤" | "≥" | "±" | "×" | "∝" | "→");
    let mut words: Vec<String> = Vec::new();
    let mut glued = false;
    for word in text.split_whitespace() {
        match words.last_mut() {
            Some(last) if glued || relation(word) => *last = format!("{last} {word}"),
            _ => words.push(word.to_string()),
        }
        glued = relation(word);
    }
    words
}

/// On one line, without what XML forbids, and of a sane length.
pub(super) fn clean(text: &str) -> String {
    const LONGEST: usize = 1000;
    let forbidden = |c: char| c.is_control() || matches!(c, '\u{FFFE}' | '\u{FFFF}');
    text.chars().take(LONGEST).map(|c| if forbidden(c) { ' ' } else { c }).collect()
}

/// `10ⁿ`.
pub(super) fn power_of_ten(exponent: i32) -> String {
    let digit = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' => '⁰',
        // The rest of the superscripts stand in a row.
        c => char::from_u32(0x2070 + c as u32 - '0' as u32).expect("a superscript digit"),
    };
    let exponent: String = exponent.to_string().chars().map(digit).collect();
    format!("10{exponent}")
}

/// With a proper minus sign.
pub(super) fn decimal(value: f64, places: usize) -> String {
    format!("{value:.places$}").replace('-', "−")
}

/// `number` times ten to the `power`, as `2.5×10⁻⁷`.
pub(super) fn scientific(number: i64, power: i32) -> String {
    let digits = number.unsigned_abs().to_string();
    let (leading, rest) = digits.split_at(1);
    let rest = rest.trim_end_matches('0');
    let factor = power_of_ten(power + digits.len() as i32 - 1);
    let sign = if number < 0 { "−" } else { "" };
    match (leading, rest) {
        ("1", "") => format!("{sign}{factor}"),
        (_, "") => format!("{sign}{leading}×{factor}"),
        _ => format!("{sign}{leading}.{rest}×{factor}"),
    }
}
