//! Colours, dashes and markers.

use std::f64::consts::TAU;

use super::point::Point;
use super::scene::{Dash, Mark, Rgb};
use super::{Fill, Theme, Tone};

pub(super) const CURVE_WIDTH: f64 = 1.8;
pub(super) const FINE_CURVE_WIDTH: f64 = 1.4;
pub(super) const LEVEL_WIDTH: f64 = 1.3;
pub(super) const REFERENCE_WIDTH: f64 = 1.2;
pub(super) const BAR_WIDTH: f64 = 1.2;
pub(super) const MARKER_RADIUS: f64 = 3.4;
pub(super) const CLOUD_RADIUS: f64 = 1.5;

/// The colours of a theme.
#[derive(Debug)]
pub(super) struct Colors {
    pub background: Rgb,
    pub ink: Rgb,
    pub soft_ink: Rgb,
    pub frame: Rgb,
    pub major_grid: Rgb,
    pub minor_grid: Rgb,
    /// A reference that is neither measured nor predicted.
    pub reference: Rgb,
    pub band_opacity: f64,
    palette: [Rgb; 8],
    /// The colour towards which a prediction's colour is shifted from its curve's, for contrast.
    contrast: Rgb,
    /// The background of a cell of a heat map without a value.
    pub no_value: Rgb,
    /// The scale of shades, from the smallest to the largest value.
    shades: [Rgb; 3],
    statuses: [Rgb; 4],
}

/// The colours of Okabe and Ito, which are distinguishable with any colour vision; the yellow is darkened for white paper.
const LIGHT: Colors = Colors {
    background: (0xff, 0xff, 0xff),
    ink: (0x1a, 0x1a, 0x1a),
    soft_ink: (0x55, 0x55, 0x55),
    frame: (0x4d, 0x4d, 0x4d),
    major_grid: (0xdc, 0xdc, 0xdc),
    minor_grid: (0xf0, 0xf0, 0xf0),
    reference: (0x80, 0x80, 0x80),
    band_opacity: 0.2,
    palette: [
        (0x00, 0x72, 0xb2),
        (0xd5, 0x5e, 0x00),
        (0x00, 0x9e, 0x73),
        (0xcc, 0x79, 0xa7),
        (0xe6, 0x9f, 0x00),
        (0x56, 0xb4, 0xe9),
        (0x00, 0x00, 0x00),
        (0xa8, 0x9c, 0x00),
    ],
    contrast: (0x00, 0x00, 0x00),
    no_value: (0xc8, 0xc8, 0xc8),
    shades: [(0xf3, 0xf8, 0xfc), (0x6b, 0xae, 0xd6), (0x08, 0x3b, 0x66)],
    statuses: [(0xc9, 0xea, 0xde), (0xfb, 0xe6, 0xb5), (0xf5, 0xc4, 0xa6), (0xec, 0xec, 0xec)],
};

/// The same hues, lighter.
const DARK: Colors = Colors {
    background: (0x14, 0x17, 0x1c),
    ink: (0xe8, 0xe8, 0xe8),
    soft_ink: (0xb0, 0xb4, 0xba),
    frame: (0x9a, 0x9f, 0xa6),
    major_grid: (0x3a, 0x3f, 0x47),
    minor_grid: (0x25, 0x29, 0x30),
    reference: (0x8c, 0x92, 0x9a),
    band_opacity: 0.28,
    palette: [
        (0x4c, 0x9f, 0xea),
        (0xf0, 0x7c, 0x35),
        (0x2a, 0xc4, 0x98),
        (0xe3, 0x95, 0xc3),
        (0xf5, 0xb8, 0x3d),
        (0xa9, 0xdc, 0xfb),
        (0xf0, 0xf0, 0xf0),
        (0xcf, 0xc4, 0x45),
    ],
    contrast: (0xff, 0xff, 0xff),
    no_value: (0x50, 0x54, 0x5a),
    shades: [(0x1d, 0x26, 0x30), (0x2f, 0x6c, 0x99), (0xa6, 0xd8, 0xf5)],
    statuses: [(0x1f, 0x4a, 0x3c), (0x57, 0x47, 0x18), (0x68, 0x36, 0x1c), (0x2a, 0x2e, 0x34)],
};

/// The colours of heat maps: viridis, with evenly increasing lightness, legible with any colour vision and in print.
const VIRIDIS: [Rgb; 9] = [
    (0x44, 0x01, 0x54),
    (0x47, 0x2d, 0x7b),
    (0x3b, 0x52, 0x8b),
    (0x2c, 0x72, 0x8e),
    (0x21, 0x90, 0x8c),
    (0x27, 0xad, 0x81),
    (0x5d, 0xc8, 0x63),
    (0xaa, 0xdc, 0x32),
    (0xfd, 0xe7, 0x25),
];

/// The colour of a value of a heat map, from 0 to 1: red, green and blue.
pub fn heat_color(value: f64) -> (u8, u8, u8) {
    let last = (VIRIDIS.len() - 1) as f64;
    let place = value.clamp(0.0, 1.0) * last;
    let below = place.floor().min(last - 1.0);
    mix(VIRIDIS[below as usize], VIRIDIS[below as usize + 1], place - below)
}

impl Theme {
    pub(super) fn colors(self) -> &'static Colors {
        match self {
            Theme::Light => &LIGHT,
            Theme::Dark => &DARK,
        }
    }
}

impl Colors {
    pub fn curve(&self, index: usize) -> Rgb {
        self.palette[index % self.palette.len()]
    }

    /// The colour of a curve's prediction.
    pub fn prediction(&self, index: usize) -> Rgb {
        mix(self.curve(index), self.contrast, 0.35)
    }

    /// The colour of a value of a heat map, from 0 to 1.
    pub fn heat(&self, value: f64, is_faint: bool) -> Rgb {
        let color = heat_color(value);
        if is_faint { mix(color, self.background, 0.6) } else { color }
    }

    /// The colour of the points of a cloud.
    pub fn cloud(&self, index: usize) -> Rgb {
        mix(self.curve(index), self.background, 0.55)
    }

    /// A cell's background, and a text colour that is legible on it.
    pub fn cell(&self, fill: Fill) -> (Option<Rgb>, Rgb) {
        let [light, middle, dark] = self.shades;
        match fill {
            Fill::Shade(shade) if !shade.is_nan() => {
                let shade = shade.clamp(0.0, 1.0);
                let background = if shade < 0.5 { mix(light, middle, 2.0 * shade) } else { mix(middle, dark, 2.0 * shade - 1.0) };
                let is_clearer = contrast(self.background, background) > contrast(self.ink, background);
                (Some(background), if is_clearer { self.background } else { self.ink })
            }
            Fill::None | Fill::Group | Fill::Shade(_) => (None, self.ink),
            Fill::Status(status) => {
                let index = match status {
                    Tone::Good => 0,
                    Tone::Warning => 1,
                    Tone::Bad => 2,
                    Tone::Absent => 3,
                };
                (Some(self.statuses[index]), if status == Tone::Absent { self.soft_ink } else { self.ink })
            }
        }
    }

    /// A marker of one of the shapes. If curves coincide, the lower ones have larger markers.
    pub fn marker(&self, shape: usize, index: usize, (x, y): Point, size: f64) -> Mark {
        let color = self.curve(index);
        let r = MARKER_RADIUS * size;
        let polygon = |corners: usize, radius: f64, first: f64| {
            let corner = |i| {
                let angle = first + i as f64 / corners as f64;
                (x + radius * (TAU * angle).cos(), y + radius * (TAU * angle).sin())
            };
            Mark::Polygon { points: (0..corners).map(corner).collect(), color }
        };
        match shape % SHAPES {
            0 => Mark::Disc { center: (x, y), radius: r, color },
            1 => polygon(4, 1.25 * r, 0.125),
            2 => polygon(3, 1.4 * r, -0.25),
            3 => polygon(4, 1.35 * r, 0.0),
            _ => polygon(3, 1.4 * r, 0.25),
        }
    }

    /// The same marker with the background inside it.
    pub fn hollow_marker(&self, shape: usize, index: usize, at: Point, size: f64) -> [Mark; 2] {
        let mut inside = self.marker(shape, index, at, 0.55 * size);
        if let Mark::Disc { color, .. } | Mark::Polygon { color, .. } = &mut inside {
            *color = self.background;
        }
        [self.marker(shape, index, at, size), inside]
    }
}

/// The number of markers of different shapes.
const SHAPES: usize = 5;
/// The dash patterns of lines that differ without colours. With the markers they give 25 combinations.
const GREY_DASHES: [&[f64]; 5] = [&[], &[7.0, 3.0], &[2.0, 2.5], &[9.0, 2.5, 2.0, 2.5], &[9.0, 2.5, 2.0, 2.5, 2.0, 2.5]];
const DOT: [f64; 2] = [1.6, 2.4];
/// The dash patterns, one for each repetition of the palette.
const TURN_DASHES: [&[f64]; 4] = [&[], &[2.0, 2.5], &[9.0, 2.5, 2.0, 2.5], &[9.0, 2.5, 2.0, 2.5, 2.0, 2.5]];
const PREDICTED: [&[f64]; 2] = [&[5.0, 3.5], &[11.0, 3.5]];
/// The dash patterns of levels: dashes, dots, and dashes with dots.
const LEVEL_DASHES: [&[f64]; 3] = [&[7.0, 3.5], &[1.6, 2.4], &[9.0, 2.5, 1.6, 2.5]];
const REFERENCE: &[f64] = &[1.5, 3.0];

pub(super) fn level_dash(index: usize) -> Dash {
    Dash::of(LEVEL_DASHES[index % LEVEL_DASHES.len()])
}

/// The dash pattern of a line that differs from other indices by its dashes or its markers. Neighbours differ by both.
pub(super) fn grey_dash(index: usize) -> Dash {
    Dash::of(GREY_DASHES[(grey_shape(index) + index / SHAPES) % GREY_DASHES.len()])
}

/// The shape of the markers of such a line.
pub(super) fn grey_shape(index: usize) -> usize {
    index % SHAPES
}

/// A dash pattern with one dot for each earlier line with markers of this shape.
pub(super) fn with_dots(mut dash: Dash, index: usize) -> Dash {
    (0..index / SHAPES).for_each(|_| dash.lengths.extend(DOT));
    dash
}

/// Whether the index is every second line with markers of this shape.
pub(super) fn is_second_of_shape(index: usize) -> bool {
    index / SHAPES % 2 == 1
}

/// The shape of the markers of an index. Neighbouring colours have different shapes or orientations.
pub(super) fn shape(index: usize) -> usize {
    (index + turn(index)) % SHAPES
}

fn turn(index: usize) -> usize {
    index / LIGHT.palette.len()
}

/// The position of a curve among coinciding curves: `depth` curves lie below it, `most` below the uppermost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Overlap {
    pub depth: usize,
    pub most: usize,
}

/// The dash pattern of a measured curve. The lowest of several coinciding curves is solid; the upper ones leave gaps, so
/// that each is visible for an equal share of the length.
pub(super) fn curve_dash(index: usize, overlap: Overlap) -> Dash {
    let Overlap { depth, most } = overlap;
    if depth == 0 || turn(index) > 0 {
        return Dash::of(TURN_DASHES[turn(index) % TURN_DASHES.len()]);
    }
    let unit = (14.0 / (most as f64 + 1.0)).max(4.0);
    // Two curves share the length unevenly, because dashes longer than their gaps are easier to read.
    let skipped = if most == 1 { 0.36 * 2.0 * unit } else { depth as f64 * unit };
    let drawn = (most + 1) as f64 * unit - skipped;
    Dash { lengths: vec![drawn, skipped], start: drawn }
}

/// The dash pattern for the legend: repeated twice within the short sample.
pub(super) fn sample_dash(dash: Dash, length: f64) -> Dash {
    let period: f64 = dash.lengths.iter().sum();
    let scale = if period > 0.5 * length { 0.5 * length / period } else { 1.0 };
    let lengths: Vec<f64> = dash.lengths.iter().map(|part| part * scale).collect();
    // The sample begins and ends in the middle of a dash.
    let start = lengths.first().map_or(0.0, |drawn| drawn / 2.0);
    Dash { lengths, start }
}

/// The factor by which markers of a curve below others are enlarged.
pub(super) fn marker_size(overlap: Overlap) -> f64 {
    1.0 + 0.22 * (overlap.most - overlap.depth).min(4) as f64
}

/// The dash pattern of a predicted curve; curves below it are visible in its gaps.
pub(super) fn predicted_dash(index: usize, overlap: Overlap) -> Dash {
    let dash = Dash::of(PREDICTED[turn(index) % PREDICTED.len()]);
    Dash { start: 0.5 * overlap.depth as f64 * dash.lengths.iter().sum::<f64>(), ..dash }
}

pub(super) fn reference_dash() -> Dash {
    Dash::of(REFERENCE)
}

/// The ratio of two colours' luminances (WCAG), from 1 to 21.
fn contrast(a: Rgb, b: Rgb) -> f64 {
    let luminance = |(r, g, b): Rgb| {
        let linear = |channel: u8| (f64::from(channel) / 255.0).powf(2.2);
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05
    };
    let (a, b) = (luminance(a), luminance(b));
    a.max(b) / a.min(b)
}

pub(super) fn mix(from: Rgb, to: Rgb, part: f64) -> Rgb {
    let channel = |from: u8, to: u8| (f64::from(from) + part * (f64::from(to) - f64::from(from))).round() as u8;
    (channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}
