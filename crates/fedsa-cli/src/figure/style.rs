//! Colours, dashes, markers and fonts.

use std::f64::consts::TAU;

use super::scene::{Mark, Point, Rgb};
use super::text::Font;
use super::{Fill, Status};

pub(super) const INK: Rgb = (0x1a, 0x1a, 0x1a);
pub(super) const SOFT_INK: Rgb = (0x55, 0x55, 0x55);
pub(super) const FRAME: Rgb = (0x4d, 0x4d, 0x4d);
pub(super) const MAJOR_GRID: Rgb = (0xdc, 0xdc, 0xdc);
pub(super) const MINOR_GRID: Rgb = (0xf0, 0xf0, 0xf0);
pub(super) const WHITE: Rgb = (0xff, 0xff, 0xff);

pub(super) const TITLE: Font = Font::bold(16.0);
pub(super) const SUBTITLE: Font = Font::regular(13.0);
pub(super) const PANEL_TITLE: Font = Font::bold(12.5);
pub(super) const AXIS_LABEL: Font = Font::regular(12.5);
pub(super) const TICK: Font = Font::regular(11.5);
pub(super) const LEGEND: Font = Font::regular(12.5);
pub(super) const NOTE: Font = Font::regular(11.0);

pub(super) const CURVE_WIDTH: f64 = 1.8;
pub(super) const FINE_CURVE_WIDTH: f64 = 1.4;
pub(super) const LEVEL_WIDTH: f64 = 1.3;
pub(super) const MARKER_RADIUS: f64 = 3.4;
pub(super) const BAND_OPACITY: f64 = 0.2;

/// Okabe and Ito's colours, which people with any colour vision tell apart; the yellow darkened, to be seen on white.
const PALETTE: [Rgb; 8] = [
    (0x00, 0x72, 0xb2),
    (0xd5, 0x5e, 0x00),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x79, 0xa7),
    (0xe6, 0x9f, 0x00),
    (0x56, 0xb4, 0xe9),
    (0x00, 0x00, 0x00),
    (0xa8, 0x9c, 0x00),
];

/// One for each turn through the palette.
const TURN_DASHES: [&[f64]; 4] = [&[], &[2.0, 2.5], &[9.0, 2.5, 2.0, 2.5], &[9.0, 2.5, 2.0, 2.5, 2.0, 2.5]];
const DASHED: [&[f64]; 2] = [&[8.0, 4.0], &[14.0, 4.0]];
/// Of levels: dashes, dots, and dashes with dots.
const LEVEL_DASHES: [&[f64]; 3] = [&[7.0, 3.5], &[1.6, 2.4], &[9.0, 2.5, 1.6, 2.5]];

pub(super) fn color(index: usize) -> Rgb {
    PALETTE[index % PALETTE.len()]
}

/// Of a level: darker than its curve, to be seen upon it.
pub(super) fn level_color(index: usize) -> Rgb {
    mix(color(index), (0, 0, 0), 0.35)
}

pub(super) fn level_dash(index: usize) -> &'static [f64] {
    LEVEL_DASHES[index % LEVEL_DASHES.len()]
}

fn turn(index: usize) -> usize {
    index / PALETTE.len()
}

pub(super) fn solid_dash(index: usize) -> &'static [f64] {
    TURN_DASHES[turn(index) % TURN_DASHES.len()]
}

pub(super) fn broken_dash(index: usize) -> &'static [f64] {
    DASHED[turn(index) % DASHED.len()]
}

/// The marker of a colour: every colour of a turn has its own shape or orientation beside its neighbours.
pub(super) fn marker(index: usize, (x, y): Point) -> Mark {
    let color = color(index);
    let polygon = |corners: usize, radius: f64, first: f64| {
        let corner = |i| {
            let angle = first + i as f64 / corners as f64;
            (x + radius * (TAU * angle).cos(), y + radius * (TAU * angle).sin())
        };
        Mark::Polygon { points: (0..corners).map(corner).collect(), color }
    };
    let r = MARKER_RADIUS;
    match (index + turn(index)) % 5 {
        0 => Mark::Disc { center: (x, y), radius: r, color },
        1 => polygon(4, 1.25 * r, 0.125),
        2 => polygon(3, 1.4 * r, -0.25),
        3 => polygon(4, 1.35 * r, 0.0),
        _ => polygon(3, 1.4 * r, 0.25),
    }
}

/// A cell's background, and the ink that is legible on it.
pub(super) fn cell_colors(fill: Fill) -> (Option<Rgb>, Rgb) {
    const LIGHT: Rgb = (0xf3, 0xf8, 0xfc);
    const MIDDLE: Rgb = (0x6b, 0xae, 0xd6);
    const DARK: Rgb = (0x08, 0x3b, 0x66);
    const WHITE_IS_LEGIBLE: f64 = 0.7;
    match fill {
        Fill::Shade(shade) if !shade.is_nan() => {
            let shade = shade.clamp(0.0, 1.0);
            let background = if shade < 0.5 { mix(LIGHT, MIDDLE, 2.0 * shade) } else { mix(MIDDLE, DARK, 2.0 * shade - 1.0) };
            (Some(background), if shade > WHITE_IS_LEGIBLE { WHITE } else { INK })
        }
        Fill::None | Fill::Shade(_) => (None, INK),
        Fill::Status(Status::Good) => (Some((0xc9, 0xea, 0xde)), INK),
        Fill::Status(Status::Warning) => (Some((0xfb, 0xe6, 0xb5)), INK),
        Fill::Status(Status::Bad) => (Some((0xf5, 0xc4, 0xa6)), INK),
        Fill::Status(Status::Absent) => (Some((0xec, 0xec, 0xec)), SOFT_INK),
    }
}

pub(super) fn mix(from: Rgb, to: Rgb, part: f64) -> Rgb {
    let channel = |from: u8, to: u8| (f64::from(from) + part * (f64::from(to) - f64::from(from))).round() as u8;
    (channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}
