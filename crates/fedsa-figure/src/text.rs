//! The fonts: their metrics, line breaking and numerals.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

use super::point::Point;

const SANS_BYTES: &[u8] = include_bytes!("../assets/DejaVuSans.ttf");
const SANS_BOLD_BYTES: &[u8] = include_bytes!("../assets/DejaVuSans-Bold.ttf");
const SERIF_BYTES: &[u8] = include_bytes!("../assets/Tinos-Regular.ttf");
const SERIF_BOLD_BYTES: &[u8] = include_bytes!("../assets/Tinos-Bold.ttf");

static SANS: LazyLock<Face> = LazyLock::new(|| parse(SANS_BYTES));
static SANS_BOLD: LazyLock<Face> = LazyLock::new(|| parse(SANS_BOLD_BYTES));
static SERIF: LazyLock<Face> = LazyLock::new(|| parse(SERIF_BYTES));
static SERIF_BOLD: LazyLock<Face> = LazyLock::new(|| parse(SERIF_BOLD_BYTES));

fn parse(bytes: &'static [u8]) -> Face<'static> {
    Face::parse(bytes, 0).expect("the bundled fonts are valid")
}

/// An embedded family: DejaVu Sans, or Tinos, which has the metrics of Times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    Sans,
    Serif,
}

/// A family in one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Typeface {
    pub family: Family,
    pub bold: bool,
}

impl Typeface {
    pub fn face(self) -> &'static Face<'static> {
        match (self.family, self.bold) {
            (Family::Sans, false) => &SANS,
            (Family::Sans, true) => &SANS_BOLD,
            (Family::Serif, false) => &SERIF,
            (Family::Serif, true) => &SERIF_BOLD,
        }
    }

    /// The font as a file.
    pub fn bytes(self) -> &'static [u8] {
        match (self.family, self.bold) {
            (Family::Sans, false) => SANS_BYTES,
            (Family::Sans, true) => SANS_BOLD_BYTES,
            (Family::Serif, false) => SERIF_BYTES,
            (Family::Serif, true) => SERIF_BOLD_BYTES,
        }
    }

    /// The glyph of a character, or the glyph for missing characters.
    pub fn glyph(self, c: char) -> GlyphId {
        self.face().glyph_index(c).unwrap_or_default()
    }

    /// The advance of a glyph, in ems.
    pub fn advance(self, glyph: GlyphId) -> f64 {
        f64::from(self.face().glyph_hor_advance(glyph).unwrap_or(0)) / f64::from(self.face().units_per_em())
    }

    fn has(self, c: char) -> bool {
        self.glyph(c).0 != 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Font {
    /// Pixels per em.
    pub size: f64,
    pub typeface: Typeface,
}

impl Font {
    pub const fn regular(family: Family, size: f64) -> Self {
        Font { size, typeface: Typeface { family, bold: false } }
    }

    pub const fn bold(family: Family, size: f64) -> Self {
        Font { size, typeface: Typeface { family, bold: true } }
    }

    /// The typeface of a character: the font's, or the sans-serif one if only it has the character.
    fn typeface_of(self, c: char) -> Typeface {
        let sans = Typeface { family: Family::Sans, ..self.typeface };
        if !self.typeface.has(c) && sans.has(c) { sans } else { self.typeface }
    }

    /// A text in runs of one typeface each.
    pub fn runs(self, text: &str) -> impl Iterator<Item = (Typeface, &str)> {
        let mut rest = text;
        std::iter::from_fn(move || {
            let typeface = self.typeface_of(rest.chars().next()?);
            let end = rest.char_indices().find(|(_, c)| self.typeface_of(*c) != typeface).map_or(rest.len(), |(at, _)| at);
            let (run, after) = rest.split_at(end);
            rest = after;
            Some((typeface, run))
        })
    }

    /// The distance between baselines, in pixels.
    pub fn leading(self) -> f64 {
        1.3 * self.size
    }

    /// The distance from the top of a line to its baseline, in pixels.
    pub fn baseline(self) -> f64 {
        1.0 * self.size
    }

    /// The distance from a baseline to the middle of the capital letters, in pixels.
    pub fn half_capital(self) -> f64 {
        0.365 * self.size
    }

    pub fn width(self, text: &str) -> f64 {
        let advance = |c: char| {
            let typeface = self.typeface_of(c);
            typeface.advance(typeface.glyph(c))
        };
        self.size * text.chars().map(advance).sum::<f64>()
    }

    /// Whether the font, or its fallback, has every character of a text.
    pub fn has_glyphs(self, text: &str) -> bool {
        text.chars().all(|c| self.typeface_of(c).has(c))
    }

    /// Draws the outlines of a text whose baseline starts at (0, 0), with y downwards.
    pub fn outline(self, text: &str, pen: &mut dyn OutlinePen) {
        let mut x = 0.0;
        for (typeface, run) in self.runs(text) {
            let scale = self.size / f64::from(typeface.face().units_per_em());
            for glyph in run.chars().map(|c| typeface.glyph(c)) {
                typeface.face().outline_glyph(glyph, &mut Scaled { pen: &mut *pen, x, scale });
                x += typeface.advance(glyph) * self.size;
            }
        }
    }

    /// `text` in at most `limit` lines no wider than `width`, broken between words, or anywhere if there are no spaces. An ellipsis
    /// replaces text that does not fit.
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

/// A receiver of closed outlines.
pub(super) trait OutlinePen {
    fn start(&mut self, at: Point);
    fn line(&mut self, to: Point);
    fn quadratic(&mut self, control: Point, to: Point);
    fn cubic(&mut self, first: Point, second: Point, to: Point);
    fn close(&mut self);
}

/// Passes a glyph to a pen, moved and scaled.
struct Scaled<'a> {
    pen: &'a mut dyn OutlinePen,
    x: f64,
    scale: f64,
}

impl Scaled<'_> {
    fn at(&self, x: f32, y: f32) -> Point {
        (self.x + f64::from(x) * self.scale, -f64::from(y) * self.scale)
    }
}

impl OutlineBuilder for Scaled<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        self.pen.start(self.at(x, y));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.pen.line(self.at(x, y));
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.pen.quadratic(self.at(x1, y1), self.at(x, y));
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.pen.cubic(self.at(x1, y1), self.at(x2, y2), self.at(x, y));
    }

    fn close(&mut self) {
        self.pen.close();
    }
}

/// The unbreakable parts of a text: words, and relations such as `H = 10`.
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

/// A text on one line, without characters that XML forbids, cut to 1000 characters.
pub(super) fn clean(text: &str) -> String {
    const LONGEST: usize = 1000;
    text.chars().take(LONGEST).map(|c| if c.is_control() || forbidden(c) { ' ' } else { c }).collect()
}

pub(super) fn forbidden(c: char) -> bool {
    (c.is_control() && !matches!(c, '\n' | '\t')) || matches!(c, '\u{FFFE}' | '\u{FFFF}')
}

/// `10ⁿ`.
pub(super) fn power_of_ten(exponent: i32) -> String {
    let digit = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' => '⁰',
        // The other superscripts are consecutive.
        c => char::from_u32(0x2070 + c as u32 - '0' as u32).expect("a superscript digit"),
    };
    let exponent: String = exponent.to_string().chars().map(digit).collect();
    format!("10{exponent}")
}

/// A number as text with a typographic minus sign.
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

/// A number with two digits: `0`, `0.042`, `3.2`, `510`, `6.1×10⁻⁷`.
pub fn number_text(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return decimal(value, 0);
    }
    // Rounded to two digits before the exponent is taken: 9.96 is 10.
    let written = format!("{value:.1e}");
    let (digits, power) = written.split_once('e').expect("a number in scientific notation");
    let power: i32 = power.parse().expect("a power of ten");
    match power {
        -2..=3 => decimal(written.parse().expect("a number"), (1 - power).max(0) as usize),
        _ => format!("{}×{}", digits.replace('-', "−"), power_of_ten(power)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRADIENT: &str = "gradient ‖∇f(θ)‖²";

    #[test]
    fn only_letters_that_the_serif_font_lacks_are_sans_serif() {
        let serif = Font::regular(Family::Serif, 12.0);
        let runs: Vec<(Family, &str)> = serif.runs(GRADIENT).map(|(typeface, run)| (typeface.family, run)).collect();
        assert_eq!(runs, [(Family::Serif, "gradient ‖"), (Family::Sans, "∇"), (Family::Serif, "f(θ)‖²")]);
        assert!(serif.has_glyphs(GRADIENT) && !serif.has_glyphs("\u{10ffff}"));
        // The width is the sum over the runs, which also gives the place of the last letter.
        let widths = runs.iter().map(|(family, run)| Font::regular(*family, 12.0).width(run));
        assert!((serif.width(GRADIENT) - widths.sum::<f64>()).abs() < 1e-9);
        let mut right = Rightmost(0.0);
        serif.outline(GRADIENT, &mut right);
        let room = serif.width(GRADIENT) - right.0;
        assert!((0.0..1.0).contains(&room), "{room}");
        assert!(Font::regular(Family::Sans, 12.0).runs(GRADIENT).eq([(Typeface { family: Family::Sans, bold: false }, GRADIENT)]));
    }

    struct Rightmost(f64);

    impl OutlinePen for Rightmost {
        fn start(&mut self, at: Point) {
            self.0 = self.0.max(at.0);
        }

        fn line(&mut self, to: Point) {
            self.start(to);
        }

        fn quadratic(&mut self, _: Point, to: Point) {
            self.start(to);
        }

        fn cubic(&mut self, _: Point, _: Point, to: Point) {
            self.start(to);
        }

        fn close(&mut self) {}
    }
}
