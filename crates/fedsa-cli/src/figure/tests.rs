//! What every picture must satisfy, whatever its data.

use proptest::prelude::*;

use super::axis::Axis;
use super::scene::{Anchor, Mark, Scene};
use super::trace::Window;
use super::*;

const MEGABYTE: usize = 1_000_000;

fn curve(label: &str, color: usize, y: Vec<f64>) -> Curve {
    Curve { label: label.to_string(), color, x: (0..y.len()).map(|i| i as f64).collect(), y, ..Curve::default() }
}

fn labels(axis: Axis, count: usize) -> Vec<String> {
    axis.ticks(count, 300.0).major.into_iter().map(|(_, label)| label).collect()
}

fn texts(scene: &Scene) -> Vec<&str> {
    let texts = scene.marks.iter().filter_map(|mark| match mark {
        Mark::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Left, top, right and bottom of every text's capitals.
fn text_boxes(scene: &Scene) -> Vec<(String, [f64; 4])> {
    let place = |mark: &Mark| {
        let Mark::Text { at, text, font, anchor, upward, .. } = mark else { return None };
        let width = font.width(text);
        let before = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let rise = 2.0 * font.half_capital();
        let (x, y) = *at;
        let corners = match upward {
            true => [x - rise, y + before - width, x, y + before],
            false => [x - before, y - rise, x - before + width, y],
        };
        Some((text.clone(), corners))
    };
    scene.marks.iter().filter_map(place).collect()
}

fn assert_legible(scene: &Scene) {
    let boxes = text_boxes(scene);
    for (i, (text, [left, top, right, bottom])) in boxes.iter().enumerate() {
        let inside = *left >= 0.0 && *top >= 0.0 && *right <= scene.width && *bottom <= scene.height;
        assert!(inside, "{text:?} reaches out of the picture: {left} {top} {right} {bottom}");
        for (other, [other_left, other_top, other_right, other_bottom]) in &boxes[..i] {
            let apart = right <= other_left || other_right <= left || bottom <= other_top || other_bottom <= top;
            assert!(apart, "{text:?} overlaps {other:?}");
        }
    }
}

fn number() -> impl Strategy<Value = f64> {
    let special = prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, f64::MAX, f64::MIN, 5e-324]);
    prop_oneof![6 => (-30.0..5.0).prop_map(|e| 10f64.powf(e)), 2 => -1e3..1e3, 1 => special, 1 => prop::num::f64::ANY]
}

fn label() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[A-Za-zθξη²‖·<&>\"' =]{0,20}", 1 => "[a-z]{0,200}", 1 => "\\PC{0,300}", 1 => any::<String>()]
}

fn any_curve() -> impl Strategy<Value = Curve> {
    let style = prop::sample::select(vec![Style::Line, Style::Dashed, Style::Points, Style::LinePoints]);
    let numbers = || prop::collection::vec(number(), 0..30);
    (label(), 0_usize..40, numbers(), numbers(), prop::option::of((numbers(), numbers())), style)
        .prop_map(|(label, color, x, y, band, style)| Curve { label, color, x, y, band, style })
}

fn any_panel() -> impl Strategy<Value = Panel> {
    let level = (label(), number(), 0_usize..10, 0_usize..5).prop_map(|(label, y, color, dash)| Level { label, y, color, dash });
    let labels = (label(), label(), label());
    let data = (prop::collection::vec(any_curve(), 0..4), prop::collection::vec(level, 0..3));
    let range = prop::option::of((number(), number()));
    let notes = prop::collection::vec(label(), 0..2);
    (labels, any::<(bool, bool)>(), data, range, notes).prop_map(
        |((title, x_label, y_label), (x_log, y_log), (curves, levels), y_range, notes)| Panel {
            title,
            x_label,
            y_label,
            x_log,
            y_log,
            curves,
            levels,
            y_range,
            notes,
        },
    )
}

fn any_figure() -> impl Strategy<Value = Figure> {
    let panels = prop::collection::vec(any_panel(), 0..7);
    (label(), prop::option::of(label()), panels, prop::option::of(0_usize..8), prop::collection::vec(label(), 0..3))
        .prop_map(|(title, subtitle, panels, columns, notes)| Figure { title, subtitle, panels, columns, notes })
}

fn any_table() -> impl Strategy<Value = Table> {
    let status = prop::sample::select(vec![Status::Good, Status::Warning, Status::Bad, Status::Absent]);
    let fill = prop_oneof![Just(Fill::None), number().prop_map(Fill::Shade), status.prop_map(Fill::Status)];
    let cell = (label(), fill).prop_map(|(text, fill)| Cell { text, fill });
    let rows = prop::collection::vec(prop::collection::vec(cell, 0..14), 0..8);
    (label(), prop::collection::vec(label(), 0..14), rows, prop::collection::vec(label(), 0..2))
        .prop_map(|(title, columns, rows, notes)| Table { title, columns, rows, notes })
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn any_figure_is_laid_out_legibly(figure in any_figure()) {
        assert_legible(&chart::scene(&figure));
    }

    #[test]
    fn any_table_is_laid_out_legibly(table in any_table()) {
        assert_legible(&table::scene(&table));
    }

    #[test]
    fn curves_stay_inside_their_window(x in prop::collection::vec(number(), 0..200), y in prop::collection::vec(number(), 0..200)) {
        let axis = |log| Axis::around(Some((-3.0, 2.0)), log, 0.0);
        let window = Window { left: 10.0, top: 20.0, width: 300.0, height: 200.0, x: axis(false), y: axis(true) };
        for (x, y) in window.pieces(&x, &y, 100).into_iter().flatten().chain(window.points(&x, &y, 100)) {
            prop_assert!((10.0..=310.0).contains(&x) && (20.0..=220.0).contains(&y), "({x}, {y})");
        }
        for (x, top, bottom) in window.ribbons(&x, &y, &x, 100).into_iter().flatten() {
            prop_assert!((10.0..=310.0).contains(&x));
            prop_assert!(20.0 <= top && top <= bottom && bottom <= 220.0);
        }
    }
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn any_figure_is_painted(figure in any_figure()) {
        let svg = figure.svg();
        prop_assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.len() < MEGABYTE);
        prop_assert!(figure.png().starts_with(b"\x89PNG"));
    }

    #[test]
    fn any_table_is_painted(table in any_table()) {
        prop_assert!(table.svg().ends_with("</svg>\n"));
        prop_assert!(table.png().starts_with(b"\x89PNG"));
    }
}

#[test]
fn the_same_figure_gives_the_same_bytes() {
    let points: Vec<f64> = (0..500).map(|i| (f64::from(i) * 0.1).sin()).collect();
    let mut cloud = curve("b", 9, points.clone());
    cloud.style = Style::Points;
    let figure = Figure { panels: vec![Panel { curves: vec![curve("a", 0, points), cloud], ..Panel::default() }], ..Figure::default() };
    assert_eq!(figure.svg(), figure.clone().svg());
    assert_eq!(figure.png(), figure.clone().png());
}

#[test]
fn a_million_points_in_every_curve_make_a_small_picture_that_keeps_the_extremes() {
    let jagged: Vec<f64> = (0..1_000_000_u64).map(|i| if i == 777_777 { 50.0 } else { (i * 7919 % 1000) as f64 / 1000.0 }).collect();
    let curves: Vec<Curve> = (0..6).map(|color| curve("jagged", color, jagged.clone())).collect();
    let figure = Figure { panels: vec![Panel { curves, ..Panel::default() }], ..Figure::default() };
    assert!(figure.svg().len() < MEGABYTE);

    let axis = |low, high| Axis::exactly((low, high), false).unwrap();
    let window = Window { left: 0.0, top: 0.0, width: 300.0, height: 100.0, x: axis(0.0, 1e6), y: axis(0.0, 50.0) };
    let curve = curve("jagged", 0, jagged);
    let pieces = window.pieces(&curve.x, &curve.y, 2000);
    assert_eq!(pieces.len(), 1);
    assert!(pieces[0].len() <= 2500, "{} points", pieces[0].len());
    let highest = pieces[0].iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!(highest.1, 0.0);
    assert!((highest.0 - 233.333).abs() < 0.01);
}

#[test]
fn the_fullest_figure_is_below_a_megabyte() {
    let jagged: Vec<f64> = (0..20_000_u64).map(|i| (i * 7919 % 1000) as f64).collect();
    let full = |color| {
        let curve = curve("full", color, jagged.clone());
        let style = [Style::LinePoints, Style::Dashed][color % 2];
        Curve { band: Some((jagged.iter().map(|y| 0.5 * y).collect(), jagged.clone())), style, ..curve }
    };
    let panel = Panel { curves: (8..16).map(full).collect(), ..Panel::default() };
    let figure = Figure { panels: vec![panel; 24], ..Figure::default() };
    let size = figure.svg().len();
    assert!(size < MEGABYTE, "{size} bytes");
}

#[test]
fn a_line_breaks_at_what_the_axis_cannot_show() {
    let axis = |low, high, log| Axis::exactly((low, high), log).unwrap();
    let window = Window { left: 0.0, top: 0.0, width: 100.0, height: 100.0, x: axis(0.0, 10.0, false), y: axis(1e-2, 1e2, true) };
    let y = [1.0, 10.0, f64::NAN, 1.0, 0.0, -3.0, 1.0, 1.0, f64::INFINITY, 1.0];
    let x: Vec<f64> = (0..10).map(f64::from).collect();
    let lengths: Vec<usize> = window.pieces(&x, &y, 1000).iter().map(Vec::len).collect();
    assert_eq!(lengths, [2, 1, 2, 1]);
}

#[test]
fn a_band_that_reaches_zero_is_shaded_to_the_foot_of_a_logarithmic_axis() {
    let axis = |low, high, log| Axis::exactly((low, high), log).unwrap();
    let window = Window { left: 0.0, top: 0.0, width: 100.0, height: 100.0, x: axis(0.0, 1.0, false), y: axis(1e-2, 1e2, true) };
    let ribbons = window.ribbons(&[0.0, 1.0], &[-1.0, 0.0], &[1.0, 1e4], 100);
    assert_eq!(ribbons, [vec![(0.0, 50.0, 100.0), (50.0, 0.0, 100.0), (100.0, 0.0, 100.0)]]);
}

#[test]
fn ticks_read_as_a_person_would_write_them() {
    let exactly = |low, high, log| Axis::exactly((low, high), log).unwrap();
    assert_eq!(labels(exactly(1e-6, 1.0, true), 8), ["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "10⁰"]);
    assert_eq!(labels(exactly(1e-30, 1e5, true), 5), ["10⁻³⁰", "10⁻²⁰", "10⁻¹⁰", "10⁰"]);
    assert_eq!(labels(exactly(3e-3, 6e-2, true), 6), ["5×10⁻³", "10⁻²", "2×10⁻²", "5×10⁻²"]);
    assert_eq!(labels(exactly(-1.0, 1.0, false), 5), ["−1.0", "−0.5", "0", "0.5", "1.0"]);
    assert_eq!(labels(exactly(0.0, 1e6, false), 5), ["0", "2×10⁵", "4×10⁵", "6×10⁵", "8×10⁵", "10⁶"]);
}

#[test]
fn a_diverging_curve_does_not_flatten_the_others() {
    let converging = curve("converges", 0, (0..100).map(|t| (-0.1 * f64::from(t)).exp()).collect());
    let diverging = curve("diverges", 1, (0..100).map(|t| 10f64.powi(3 * t)).collect());
    let mut panel = Panel { y_log: true, curves: vec![converging, diverging], ..Panel::default() };
    for (log, shown) in [(true, "10⁻⁴"), (false, "5")] {
        panel.y_log = log;
        let scene = chart::scene(&Figure { panels: vec![panel.clone()], ..Figure::default() });
        assert!(texts(&scene).contains(&shown), "{:?}", texts(&scene));
    }
}

#[test]
fn a_legend_is_shared_only_where_names_mean_the_same() {
    let panel = |label: &str, color| Panel { curves: vec![curve(label, color, vec![1.0, 2.0])], ..Panel::default() };
    let count = |panels: Vec<Panel>| {
        let scene = chart::scene(&Figure { panels, ..Figure::default() });
        texts(&scene).into_iter().filter(|text| *text == "SCAFFLSA").count()
    };
    assert_eq!(count(vec![panel("SCAFFLSA", 0), panel("SCAFFLSA", 0)]), 1);
    assert_eq!(count(vec![panel("SCAFFLSA", 0), panel("SCAFFLSA", 1)]), 2);
}

#[test]
fn lines_are_broken_between_words_and_shortened_with_an_ellipsis() {
    let font = style::LEGEND;
    let width = font.width("heterogeneity, H");
    assert_eq!(font.wrap("High heterogeneity, H = 10", width, 3), ["High", "heterogeneity,", "H = 10"]);
    let short = font.wrap(&"word ".repeat(100), font.width("word word"), 2);
    assert_eq!(short.len(), 2);
    assert!(short[1].ends_with('…') && font.width(&short[1]) <= font.width("word word"));
}

#[test]
fn an_svg_holds_text_as_text_and_no_markup_of_a_label() {
    let figure = Figure { title: "a < b & \"c\"\u{7}".to_string(), ..Figure::default() };
    let svg = figure.svg();
    assert!(svg.contains(">a &lt; b &amp; &quot;c&quot;</text>"), "{svg}");
    assert!(svg.contains("sans-serif"));
    assert!(!svg.contains('\u{7}'));
}

#[test]
fn a_png_has_two_dots_to_a_pixel_of_the_svg() {
    let figure = Figure { panels: vec![Panel::default(), Panel::default()], ..Figure::default() };
    let scene = chart::scene(&figure);
    let bytes = figure.png();
    let reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
    assert_eq!(f64::from(reader.info().width), (2.0 * scene.width).ceil());
    assert_eq!(f64::from(reader.info().height), (2.0 * scene.height).ceil());
}

#[test]
fn an_enormous_table_is_still_a_picture_of_bounded_size() {
    let row = vec![Cell { text: "1.0".to_string(), fill: Fill::Shade(0.5) }; 3];
    let table = Table { rows: vec![row; 20_000], ..Table::default() };
    let bytes = table.png();
    let reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
    assert!(u64::from(reader.info().width) * u64::from(reader.info().height) < 31_000_000);
}
