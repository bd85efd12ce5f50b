//! Requirements on heat maps.

use super::scene as laid_out;
use crate::scene::{Mark, Rgb, Scene};
use crate::tests::{assert_legible, texts};
use crate::{Format, HeatMap, HeatMaps, Provenance, RenderOptions, Theme};

/// A map of `value` at the middles of n x n cells of the unit square.
fn heat_map(n: usize, value: impl Fn(f64, f64) -> f64) -> HeatMap {
    let middle = |cell: usize| (cell as f64 + 0.5) / n as f64;
    let z = (0..n).map(|row| (0..n).map(|column| value(middle(column), middle(row))).collect()).collect();
    HeatMap { x: (0.0, 1.0), y: (0.0, 1.0), z, ..HeatMap::default() }
}

/// The colour of the last rectangle that covers a point.
fn color_at(scene: &Scene, (x, y): (f64, f64)) -> Option<Rgb> {
    let covers = |[left, top, right, bottom]: &[f64; 4]| (*left..*right).contains(&x) && (*top..*bottom).contains(&y);
    let mut colors = scene.marks.iter().filter_map(|mark| match mark {
        Mark::Rectangles { rectangles, color } => rectangles.iter().any(covers).then_some(*color),
        _ => None,
    });
    colors.next_back()
}

/// Left, top, right and bottom of the first map's window.
fn window_of(scene: &Scene) -> [f64; 4] {
    let window = scene.marks.iter().find_map(|mark| match mark {
        Mark::Polygon { points, .. } => Some([points[0].0, points[0].1, points[2].0, points[2].1]),
        _ => None,
    });
    window.expect("the background of the cells")
}

#[test]
fn cells_have_the_colours_of_the_bar_and_faint_ones_are_faded() {
    let mut map = heat_map(4, |x, y| x + 10.0 * y);
    map.z[3][0] = f64::NAN;
    map.faint = vec![Vec::new(), vec![false, false, true]];
    let scene = laid_out(&HeatMaps { maps: vec![map], ..HeatMaps::default() }, &RenderOptions::default());
    let [left, top, right, bottom] = window_of(&scene);
    let cell = |column: f64, row: f64| {
        color_at(&scene, (left + (right - left) * (column + 0.5) / 4.0, bottom - (bottom - top) * (row + 0.5) / 4.0))
    };
    let colors = Theme::Light.colors();
    // The lowest value is at the lower left, the highest at the upper right.
    let near = |a: Rgb, b: Rgb| a.0.abs_diff(b.0) < 6 && a.1.abs_diff(b.1) < 6 && a.2.abs_diff(b.2) < 6;
    assert!(near(cell(0.0, 0.0).unwrap(), colors.heat(0.0, false)) && near(cell(3.0, 3.0).unwrap(), colors.heat(1.0, false)));
    assert_eq!(cell(0.0, 3.0), None);
    let value = (0.625 - 0.125 + 2.5) / 8.25;
    assert!(
        near(cell(2.0, 1.0).unwrap(), colors.heat(value, true)) && near(cell(1.0, 1.0).unwrap(), colors.heat(value - 0.25 / 8.25, false))
    );
    // The bar, from bottom to top.
    assert!(near(color_at(&scene, (right + 18.0, bottom - 1.0)).unwrap(), colors.heat(0.0, false)));
    assert!(near(color_at(&scene, (right + 18.0, top + 1.0)).unwrap(), colors.heat(1.0, false)));
}

#[test]
fn a_colour_bar_has_ticks_and_points_where_values_are_beyond() {
    let maps = |z_range| HeatMaps { maps: vec![HeatMap { z_range, ..heat_map(8, |x, _| 100.0 * x) }], ..HeatMaps::default() };
    let count = |z_range| {
        let scene = laid_out(&maps(z_range), &RenderOptions::default());
        (scene.marks.iter().filter(|mark| matches!(mark, Mark::Polygon { .. })).count(), texts(&scene).contains(&"40"))
    };
    // One polygon is the background.
    assert_eq!([None, Some((10.0, 100.0)), Some((10.0, 50.0))].map(count), [(1, true), (2, true), (3, true)]);
}

#[test]
fn logarithmic_maps_have_ticks_at_decades_and_rings_at_their_places() {
    let map = HeatMap {
        x: (0.001, 10.0),
        y: (1.0, 1e4),
        x_log: true,
        y_log: true,
        z_log: true,
        rings: vec![(0.1, 100.0), (1e3, 1.0)],
        ..heat_map(4, |x, y| 10f64.powf(4.0 * (x + y)))
    };
    let scene = laid_out(&HeatMaps { maps: vec![map], ..HeatMaps::default() }, &RenderOptions::default());
    let [left, top, right, bottom] = window_of(&scene);
    let discs: Vec<(f64, f64)> =
        scene.marks.iter().filter_map(|mark| if let Mark::Disc { center, .. } = mark { Some(*center) } else { None }).collect();
    // The middle of both axes; the second ring lies outside.
    let middle = (0.5 * (left + right), 0.5 * (top + bottom));
    assert!(discs.len() == 4 && discs.iter().all(|(x, y)| (x - middle.0).abs() < 1e-6 && (y - middle.1).abs() < 1e-6), "{discs:?}");
    // Equal ratios of values are equal steps of colour: the corner's value is 10, the opposite one's 10^7.
    let colors = Theme::Light.colors();
    let near = |a: Rgb, b: Rgb| a.0.abs_diff(b.0) < 6 && a.1.abs_diff(b.1) < 6 && a.2.abs_diff(b.2) < 6;
    let at = |share: f64| color_at(&scene, (left + share * (right - left), bottom - share * (bottom - top))).unwrap();
    assert!(near(at(0.125), colors.heat(0.0, false)) && near(at(0.375), colors.heat(1.0 / 3.0, false)), "{:?}", at(0.375));
}

#[test]
fn extreme_heat_maps_are_drawn() {
    let constant: [fn(f64, f64) -> f64; 6] =
        [|_, _| -5.0, |_, _| 0.0, |_, _| f64::NAN, |x, y| (x - y) * 1e300, |x, _| x * 1e-300, |x, y| 1e30 + x + y];
    for value in constant {
        let maps = HeatMaps { maps: vec![heat_map(8, value), heat_map(1, value)], ..HeatMaps::default() };
        assert_legible(&laid_out(&maps, &RenderOptions::default()));
    }
    // A constant map's value is in the middle of the bar.
    let scene = laid_out(&HeatMaps { maps: vec![heat_map(8, |_, _| -5.0)], ..HeatMaps::default() }, &RenderOptions::default());
    assert!(texts(&scene).contains(&"−5.0"), "{:?}", texts(&scene));
}

#[test]
fn heat_maps_are_small_and_the_same_input_gives_the_same_bytes() {
    let wild = |x: f64, y: f64| (50.0 * x * x).sin() * (70.0 * y).cos() + x;
    let mut map = heat_map(64, wild);
    map.faint = (0..64).map(|row| (0..64).map(|column| (row * column) % 7 == 0).collect()).collect();
    let maps = HeatMaps { maps: vec![map.clone(), map], ..HeatMaps::default() };
    for format in Format::ALL {
        let write = |maps: &HeatMaps| maps.render(format, &RenderOptions::default(), &Provenance::default());
        let bytes = write(&maps);
        assert!(bytes == write(&maps.clone()), "{format:?}");
        assert!(bytes.len() < 300_000, "{format:?}: {} bytes", bytes.len());
    }
}
