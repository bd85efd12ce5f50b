//! Requirements on every picture, for any data.

use proptest::prelude::*;

use super::axis::Axis;
use super::scene::{Mark, Scene};
use super::style::Overlap;
use super::trace::Window;
use super::*;

const MEGABYTE: usize = 1_000_000;

impl Chart {
    fn scene(&self) -> Scene {
        chart::scene(self, &RenderOptions::default())
    }

    fn write(&self, format: Format) -> Vec<u8> {
        self.render(format, &RenderOptions::default(), &Provenance::default())
    }

    fn svg(&self) -> String {
        String::from_utf8(self.write(Format::Svg)).unwrap()
    }
}

fn curve(label: &str, color: usize, y: Vec<f64>) -> PlottedCurve {
    PlottedCurve { label: label.to_string(), color, x: (0..y.len()).map(|i| i as f64).collect(), y, ..PlottedCurve::default() }
}

fn labels(axis: Axis, count: usize) -> Vec<String> {
    axis.ticks(count, 300.0).major.into_iter().map(|(_, label)| label).collect()
}

pub(super) fn texts(scene: &Scene) -> Vec<&str> {
    let texts = scene.marks.iter().filter_map(|mark| match mark {
        Mark::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Left, top, right and bottom of every text's capitals.
fn text_boxes(scene: &Scene) -> Vec<(String, [f64; 4])> {
    let place = |mark: &Mark| {
        let Mark::Text(text) = mark else { return None };
        let (width, before) = (text.font.width(&text.text), text.before());
        let rise = 2.0 * text.font.half_capital();
        let (x, y) = text.at;
        let corners = match text.upward {
            true => [x - rise, y + before - width, x, y + before],
            false => [x - before, y - rise, x - before + width, y],
        };
        Some((text.text.clone(), corners))
    };
    scene.marks.iter().filter_map(place).collect()
}

pub(super) fn assert_legible(scene: &Scene) {
    let boxes = text_boxes(scene);
    for (i, (text, [left, top, right, bottom])) in boxes.iter().enumerate() {
        let inside = *left >= 0.0 && *top >= 0.0 && *right <= scene.width && *bottom <= scene.height;
        assert!(inside, "{text:?} reaches out of the picture of {} by {}: {left} {top} {right} {bottom}", scene.width, scene.height);
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

fn any_curve() -> impl Strategy<Value = PlottedCurve> {
    let style = prop::sample::select(vec![Style::Line, Style::Dashed, Style::Points, Style::LinePoints, Style::Reference, Style::Cloud]);
    let numbers = || prop::collection::vec(number(), 0..30);
    (label(), 0_usize..40, numbers(), numbers(), prop::option::of((numbers(), numbers())), style)
        .prop_map(|(label, color, x, y, band, style)| PlottedCurve { label, color, x, y, band, style })
}

fn any_panel() -> impl Strategy<Value = Panel> {
    let level = (label(), number(), 0_usize..10, 0_usize..5).prop_map(|(label, y, color, dash)| Level { label, y, color, dash });
    let labels = (label(), label(), label());
    let data = (prop::collection::vec(any_curve(), 0..4), prop::collection::vec(level, 0..3));
    let range = prop::option::of((number(), number()));
    let names = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(label(), 0..40)];
    let notes = prop::collection::vec(label(), 0..2);
    (labels, any::<[bool; 4]>(), data, (range, names), notes).prop_map(
        |((title, x_label, y_label), [x_log, y_log, x_binary, x_whole], (curves, levels), (y_range, y_names), notes)| Panel {
            title,
            x_label,
            y_label,
            x_log,
            y_log,
            x_binary,
            x_whole,
            curves,
            levels,
            y_names,
            y_range,
            notes,
            lower: None,
        },
    )
}

fn any_figure() -> impl Strategy<Value = Chart> {
    let panel = (any_panel(), prop::option::of(any_panel())).prop_map(|(panel, lower)| Panel { lower: lower.map(Box::new), ..panel });
    let panels = prop::collection::vec(panel, 0..7);
    let texts = (label(), label(), prop::collection::vec(label(), 0..3));
    (texts, panels, prop::option::of(0_usize..8), prop::option::of(any::<bool>()))
        .prop_map(|((title, caption, notes), panels, columns, share_y)| Chart { title, panels, columns, share_y, caption, notes })
}

fn any_table() -> impl Strategy<Value = CellTable> {
    let status = prop::sample::select(vec![Tone::Good, Tone::Warning, Tone::Bad, Tone::Absent]);
    let fill = prop_oneof![Just(Fill::None), number().prop_map(Fill::Shade), status.prop_map(Fill::Status)];
    let cell = (label(), fill).prop_map(|(text, fill)| TableCell { text, fill });
    let rows = prop::collection::vec(prop::collection::vec(cell, 0..14), 0..8);
    (label(), prop::collection::vec(label(), 0..14), rows, label(), prop::collection::vec(label(), 0..2))
        .prop_map(|(title, columns, rows, caption, notes)| CellTable { title, columns, rows, caption, notes })
}

fn any_heat_maps() -> impl Strategy<Value = HeatMaps> {
    let range = || prop_oneof![3 => Just((-1.2, 0.6)), 1 => (number(), number())];
    let rows = prop::collection::vec(prop::collection::vec(number(), 0..6), 0..6);
    let faint = prop::collection::vec(prop::collection::vec(any::<bool>(), 0..6), 0..6);
    let data = (range(), range(), rows, prop::option::of(range()), faint);
    let scales = (any::<[bool; 3]>(), prop::collection::vec((number(), number()), 0..3));
    let labels = (label(), label(), label(), label());
    let map = (labels, data, scales).prop_map(|((title, x_label, y_label, z_label), (x, y, z, z_range, faint), (logs, rings))| {
        let [x_log, y_log, z_log] = logs;
        HeatMap { title, x_label, y_label, z_label, x, y, x_log, y_log, z_log, z, z_range, faint, rings }
    });
    (label(), prop::collection::vec(map, 0..4), label(), prop::collection::vec(label(), 0..2))
        .prop_map(|(title, maps, caption, notes)| HeatMaps { title, maps, caption, notes })
}

fn any_look() -> impl Strategy<Value = RenderOptions> {
    let theme = prop::sample::select(vec![Theme::Light, Theme::Dark]);
    let style = prop::option::of(prop::sample::select(FigureStyle::ALL.to_vec()));
    (prop::option::of(300.0..4000.0), 24.0..200.0, theme, style).prop_map(|(width, dpi, theme, style)| RenderOptions {
        width,
        dpi,
        theme,
        style,
    })
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn any_figure_is_laid_out_legibly(figure in any_figure(), look in any_look()) {
        assert_legible(&chart::scene(&figure, &look));
    }

    #[test]
    fn any_table_is_laid_out_legibly(table in any_table(), look in any_look()) {
        assert_legible(&table::scene(&table, &look));
    }

    #[test]
    fn any_heat_map_is_laid_out_legibly(maps in any_heat_maps(), look in any_look()) {
        assert_legible(&heat::scene(&maps, &look));
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
    fn any_figure_is_written(figure in any_figure(), look in any_look(), config in label()) {
        let about = Provenance { id: "any", config: &config };
        let svg = String::from_utf8(figure.render(Format::Svg, &look, &about)).unwrap();
        prop_assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.len() < MEGABYTE);
        prop_assert!(figure.render(Format::Png, &look, &about).starts_with(b"\x89PNG"));
        prop_assert!(figure.render(Format::Pdf, &look, &about).starts_with(b"%PDF"));
    }

    #[test]
    fn any_heat_map_is_written(maps in any_heat_maps(), look in any_look()) {
        let write = |format| maps.render(format, &look, &Provenance::default());
        prop_assert!(write(Format::Svg).ends_with(b"</svg>\n"));
        prop_assert!(write(Format::Png).starts_with(b"\x89PNG"));
        prop_assert!(write(Format::Pdf).starts_with(b"%PDF"));
    }

    #[test]
    fn any_table_is_written(table in any_table(), look in any_look()) {
        let write = |format| table.render(format, &look, &Provenance::default());
        prop_assert!(write(Format::Svg).ends_with(b"</svg>\n"));
        prop_assert!(write(Format::Png).starts_with(b"\x89PNG"));
        prop_assert!(write(Format::Pdf).starts_with(b"%PDF"));
    }
}

#[test]
fn the_same_figure_gives_the_same_bytes() {
    let points: Vec<f64> = (0..500).map(|i| (f64::from(i) * 0.1).sin()).collect();
    let mut cloud = curve("b", 9, points.clone());
    cloud.style = Style::Points;
    let curves = vec![curve("a", 0, points.clone()), curve("c", 2, points), cloud];
    let figure = Chart { panels: vec![Panel { curves, ..Panel::default() }; 3], ..Chart::default() };
    for format in Format::ALL {
        assert!(figure.write(format) == figure.clone().write(format), "{format:?}");
    }
}

#[test]
fn rows_can_have_names_instead_of_numbers() {
    let points = PlottedCurve { x: vec![1.0, 100.0], y: vec![0.0, 1.0], style: Style::Points, ..PlottedCurve::default() };
    let named = |n: usize| Panel {
        x_log: true,
        y_names: (0..n).map(|i| format!("row {i}")).collect(),
        curves: vec![points.clone()],
        ..Panel::default()
    };
    let scene = |panels| Chart { panels, ..Chart::default() }.scene();
    let two = scene(vec![named(2), named(2)]);
    assert_eq!(texts(&two).iter().filter(|text| text.starts_with("row")).count(), 2, "the panels share the axis");
    let height = |name: &str| text_boxes(&two).into_iter().find(|(text, _)| text == name).unwrap().1[1];
    assert!(height("row 1") < height("row 0"), "row 0 is the lowest");
    let many = scene(vec![named(100)]);
    assert_legible(&many);
    assert_eq!(texts(&many).iter().filter(|text| text.starts_with("row")).count(), 100, "the picture grows with its rows");
}

#[test]
fn the_title_of_a_lower_panel_is_below_the_upper_panel() {
    let lower = Panel { title: "a lower panel has a title of several lines when it is a long one ".repeat(4), ..Panel::default() };
    let panel = Panel { lower: Some(Box::new(lower)), ..Panel::default() };
    let figure = Chart { panels: vec![panel.clone(), panel], ..Chart::default() };
    for style in [None, Some(FigureStyle::Slides), Some(FigureStyle::Ieee)] {
        let scene = chart::scene(&figure, &RenderOptions { style, ..RenderOptions::default() });
        assert_legible(&scene);
        let foot = |text: &str| text_boxes(&scene).into_iter().find(|(other, _)| other.starts_with(text)).unwrap().1[3];
        let frame = |mark: &Mark| match mark {
            Mark::Line { points, .. } if points.len() == 5 => Some(points.iter().map(|point| point.1).fold(0.0, f64::max)),
            _ => None,
        };
        let upper = scene.marks.iter().filter_map(frame).fold(f64::INFINITY, f64::min);
        assert!(upper < foot("a lower"), "{style:?}: the title ends at {}, the upper panel at {upper}", foot("a lower"));
    }
}

#[test]
fn points_with_a_band_have_bars() {
    let curve = PlottedCurve { band: Some((vec![0.0, f64::NAN], vec![2.0, 3.0])), style: Style::Points, ..curve("a", 0, vec![1.0, 1.5]) };
    let marks =
        |curve: PlottedCurve| Chart { panels: vec![Panel { curves: vec![curve], ..Panel::default() }], ..Chart::default() }.scene().marks;
    let bars = |curve: PlottedCurve| {
        let is_bar = |mark: &Mark| matches!(mark, Mark::Line { width, .. } if *width == style::BAR_WIDTH);
        marks(curve).iter().filter(|mark| is_bar(mark)).count()
    };
    // For the point with a known bar, and in the legend.
    assert_eq!((bars(curve.clone()), bars(PlottedCurve { style: Style::LinePoints, ..curve.clone() })), (2, 0));
    assert!(!marks(curve).iter().any(|mark| matches!(mark, Mark::Ribbon { .. })));
}

#[test]
fn a_line_of_one_point_has_a_marker() {
    let discs = |y: Vec<f64>| {
        let panel = Panel { curves: vec![curve("", 0, y)], ..Panel::default() };
        let marks = Chart { panels: vec![panel], ..Chart::default() }.scene().marks;
        marks.iter().filter_map(|mark| if let Mark::Disc { radius, .. } = mark { Some(*radius) } else { None }).collect::<Vec<_>>()
    };
    assert_eq!(discs(vec![0.5]), [style::MARKER_RADIUS]);
    assert_eq!(discs(vec![f64::NAN, 0.5, f64::NAN]), [style::MARKER_RADIUS]);
    assert!(discs(vec![0.5, 1.0]).is_empty());
    // The end of a line does not count.
    assert_eq!(discs(vec![0.5, 1.0, f64::NAN, 1.5]), [style::CURVE_WIDTH]);
}

#[test]
fn a_million_points_in_every_curve_make_a_small_picture_that_keeps_the_extremes() {
    let jagged: Vec<f64> = (0..1_000_000_u64).map(|i| if i == 777_777 { 50.0 } else { (i * 7919 % 1000) as f64 / 1000.0 }).collect();
    let curves: Vec<PlottedCurve> = (0..6).map(|color| curve("jagged", color, jagged.clone())).collect();
    let figure = Chart { panels: vec![Panel { curves, ..Panel::default() }], ..Chart::default() };
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
        PlottedCurve { band: Some((jagged.iter().map(|y| 0.5 * y).collect(), jagged.clone())), style, ..curve }
    };
    let panel = Panel { curves: (8..16).map(full).collect(), ..Panel::default() };
    let figure = Chart { panels: vec![panel; 24], ..Chart::default() };
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
    assert_eq!(labels(exactly(3e-3, 6e-2, true), 6), ["0.005", "0.01", "0.02", "0.05"]);
    assert_eq!(labels(exactly(-1.0, 1.0, false), 5), ["−1.0", "−0.5", "0", "0.5", "1.0"]);
    assert_eq!(labels(exactly(0.0, 1e6, false), 5), ["0", "2×10⁵", "4×10⁵", "6×10⁵", "8×10⁵", "10⁶"]);
}

#[test]
fn a_small_range_around_zero_fills_its_axis() {
    assert_eq!(labels(Axis::around(Some((-0.07, 0.07)), false, 0.0), 4), ["−0.05", "0", "0.05"]);
    assert_eq!(labels(Axis::around(Some((0.0, 0.0)), false, 0.0), 2), ["−1", "0", "1"]);
}

#[test]
fn ticks_of_powers_of_two_are_powers_of_two() {
    let whole = |low, high| Axis::exactly((low, high), false).unwrap().with_whole_ticks(true).ticks(8, 400.0);
    assert_eq!(whole(0.0, 2.0).major.iter().map(|(_, label)| &label[..]).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert_eq!(whole(0.0, 16.0).major.len(), 9);
    let binary = |low, high| Axis::exactly((low, high), true).unwrap().with_binary_ticks(true);
    assert_eq!(labels(binary(1.0, 33.0), 8), ["1", "2", "4", "8", "16", "32"]);
    assert_eq!(labels(binary(1.0, 1024.0), 6), ["1", "4", "16", "64", "256", "1024"]);
}

#[test]
fn numbers_are_written_with_two_digits() {
    let cases =
        [(0.0, "0"), (8.04e-220, "8.0×10⁻²²⁰"), (9.96, "10"), (0.04249, "0.042"), (3.24e-7, "3.2×10⁻⁷"), (512.3, "510"), (1.0, "1.0")];
    for (value, text) in cases {
        assert_eq!(number_text(value), text);
    }
}

#[test]
fn a_diverging_curve_does_not_flatten_the_others() {
    let converging = curve("converges", 0, (0..100).map(|t| (-0.1 * f64::from(t)).exp()).collect());
    let diverging = curve("diverges", 1, (0..100).map(|t| 10f64.powi(3 * t)).collect());
    let mut panel = Panel { y_log: true, curves: vec![converging, diverging], ..Panel::default() };
    for (log, shown) in [(true, "10⁻⁴"), (false, "4")] {
        panel.y_log = log;
        let scene = Chart { panels: vec![panel.clone()], ..Chart::default() }.scene();
        assert!(texts(&scene).contains(&shown), "{:?}", texts(&scene));
    }
}

#[test]
fn a_legend_is_shared_only_where_names_mean_the_same() {
    let panel = |label: &str, color| Panel { curves: vec![curve(label, color, vec![1.0, 2.0])], ..Panel::default() };
    let count = |panels: Vec<Panel>| {
        let scene = Chart { panels, ..Chart::default() }.scene();
        texts(&scene).into_iter().filter(|text| *text == "SCAFFLSA").count()
    };
    assert_eq!(count(vec![panel("SCAFFLSA", 0), panel("SCAFFLSA", 0)]), 1);
    assert_eq!(count(vec![panel("SCAFFLSA", 0), panel("SCAFFLSA", 1)]), 2);
}

#[test]
fn lines_are_broken_between_words_and_shortened_with_an_ellipsis() {
    let font = sheet::Sheet::of(&RenderOptions::default()).fonts.legend;
    let width = font.width("heterogeneity, H");
    assert_eq!(font.wrap("High heterogeneity, H = 10", width, 3), ["High", "heterogeneity,", "H = 10"]);
    let short = font.wrap(&"word ".repeat(100), font.width("word word"), 2);
    assert_eq!(short.len(), 2);
    assert!(short[1].ends_with('…') && font.width(&short[1]) <= font.width("word word"));
}

#[test]
fn an_svg_holds_text_as_text_and_no_markup_of_a_label() {
    let figure = Chart { title: "a < b & \"c\"\u{7}".to_string(), ..Chart::default() };
    let svg = figure.svg();
    assert!(svg.contains(">a &lt; b &amp; &quot;c&quot; </text>") || svg.contains(">a &lt; b &amp; &quot;c&quot;</text>"), "{svg}");
    assert!(svg.contains("sans-serif"));
    assert!(!svg.contains('\u{7}'));
}

#[test]
fn files_tell_version_experiment_and_configuration() {
    let figure = Chart { title: "a title".into(), caption: "Lines: mean over 5 seeds.".into(), ..Chart::default() };
    let config = "title = \"θ < 1\"\n[run]\nrounds = 20\n";
    let about = Provenance { id: "some/id", config };
    let version = format!("fedsa {}", env!("CARGO_PKG_VERSION"));

    let svg = String::from_utf8(figure.render(Format::Svg, &RenderOptions::default(), &about)).unwrap();
    assert!(svg.contains("<title>a title</title>") && svg.contains("<desc>Lines: mean over 5 seeds.</desc>"), "{svg}");
    assert!(svg.contains(&version) && svg.contains("id=\"some/id\""));
    assert!(svg.contains("title = &quot;θ &lt; 1&quot;\n[run]\nrounds = 20\n"));

    let png = figure.render(Format::Png, &RenderOptions::default(), &about);
    let reader = png::Decoder::new(std::io::Cursor::new(&png)).read_info().unwrap();
    let text: Vec<(String, String)> =
        reader.info().utf8_text.iter().map(|chunk| (chunk.keyword.clone(), chunk.get_text().unwrap())).collect();
    let entry = |keyword: &str| text.iter().find(|(known, _)| known == keyword).unwrap().1.as_str();
    assert_eq!((entry("Title"), entry("Software"), entry("Experiment")), ("a title", version.as_str(), "some/id"));
    assert_eq!((entry("Source"), entry("Description")), (config, "Lines: mean over 5 seeds."));
    // 192 dots per inch.
    assert_eq!(reader.info().pixel_dims.unwrap().xppu, 7559);

    let pdf = figure.render(Format::Pdf, &RenderOptions::default(), &about);
    let holds = |text: &str| pdf.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("/Title (a title)") && holds(&format!("/Producer ({version})")) && holds("(config.toml)"));
}

#[test]
fn a_long_configuration_is_cut_and_its_digest_told() {
    let config = "θ".repeat(40_000);
    let about = Provenance { id: "", config: &config };
    let source = about.source();
    assert!(source.len() < 70_000 && source.contains("the whole has 80000 bytes and the CRC-32 "), "{}", &source[source.len() - 100..]);
    assert_eq!(Provenance { id: "", config: "a\u{1}b\n" }.source(), "a b\n", "what XML forbids is left out");
}

#[test]
fn a_dark_picture_has_the_marks_of_a_light_one() {
    let figure = Chart { panels: vec![Panel { curves: vec![curve("a", 6, vec![1.0, 2.0])], ..Panel::default() }], ..Chart::default() };
    let [light, dark] =
        [Theme::Light, Theme::Dark].map(|theme| chart::scene(&figure, &RenderOptions { theme, ..RenderOptions::default() }));
    assert_eq!(light.marks.len(), dark.marks.len());
    // Every colour of text and curves contrasts with the background.
    let luminance = |(r, g, b): scene::Rgb| 0.3 * f64::from(r) + 0.6 * f64::from(g) + 0.1 * f64::from(b);
    for (scene, theme) in [(light, Theme::Light), (dark, Theme::Dark)] {
        let ground = luminance(scene.background);
        for mark in &scene.marks {
            if let Mark::Text(text) = mark {
                assert!((luminance(text.color) - ground).abs() > 100.0, "{theme:?}");
            }
        }
        for index in 0..8 {
            assert!((luminance(theme.colors().curve(index)) - ground).abs() > 60.0, "{theme:?} {index}");
        }
    }
}

#[test]
fn panels_that_measure_the_same_share_their_range_where_that_is_sensible() {
    let panel = |low: f64, high: f64| Panel { y_log: true, curves: vec![curve("a", 0, vec![high, low])], ..Panel::default() };
    let tops = |panels: &[Panel], share: Option<bool>| -> Vec<f64> {
        let panels: Vec<Option<&Panel>> = panels.iter().map(Some).collect();
        let axes = range::axes(&panels, 2, share);
        axes.iter().map(|axes| (1e3 * axes.unwrap().y.fraction(0.7).unwrap()).round()).collect()
    };
    let near = [panel(1e-3, 1.0), panel(1e-2, 10.0)];
    let [a, b] = tops(&near, None)[..] else { panic!() };
    assert_eq!(a, b);
    assert_ne!(tops(&near, Some(false))[0], tops(&near, Some(false))[1]);
    // If one panel would be a line at the bottom of the other, it has its own range, unless sharing is set explicitly.
    let apart = [panel(1e-30, 1.0), panel(0.5, 1.0)];
    assert_ne!(tops(&apart, None)[0], tops(&apart, None)[1]);
    assert_eq!(tops(&apart, Some(true))[0], tops(&apart, Some(true))[1]);
    // Rows with similar ranges share by row.
    let rows = [panel(1e-3, 1.0), panel(1e-2, 1.0), panel(1e20, 1e23), panel(1e21, 1e23)];
    let shared = tops(&rows, None);
    assert!(shared[0] == shared[1] && shared[2] == shared[3] && shared[0] != shared[2], "{shared:?}");
}

#[test]
fn curves_that_coincide_are_all_seen() {
    let slope = |offset: f64| (0..50).map(|i| f64::from(i) + offset).collect::<Vec<f64>>();
    let curves = vec![curve("a", 0, slope(0.0)), curve("b", 1, slope(0.01)), curve("c", 2, slope(30.0)), curve("d", 3, slope(0.02))];
    let axis = Axis::exactly((0.0, 100.0), false).unwrap();
    let window = Window { left: 0.0, top: 0.0, width: 300.0, height: 200.0, x: axis, y: axis };
    let panel = Panel { curves, ..Panel::default() };
    let overlaps = overlap::Overlaps::of(std::iter::once((&panel, window)));
    let depths: Vec<Overlap> = panel.curves.iter().map(|curve| overlaps.at(curve)).collect();
    let overlap = |depth, most| Overlap { depth, most };
    assert_eq!(depths, [overlap(0, 2), overlap(1, 2), overlap(0, 0), overlap(2, 2)]);
    // Each upper curve has gaps where the lower ones show.
    let shares: Vec<f64> = depths.iter().map(|o| style::curve_dash(0, *o).lengths.first().copied().unwrap_or(f64::INFINITY)).collect();
    assert!(shares[0] > shares[1] && shares[1] > shares[3] && shares[3] > 0.0, "{shares:?}");
}

#[test]
fn levels_that_coincide_take_turns() {
    let levels = [0, 1].map(|color| Level { label: format!("level {color}"), y: 1.0, color, dash: 2 }).to_vec();
    let figure = Chart { panels: vec![Panel { levels, ..Panel::default() }], ..Chart::default() };
    let scene = figure.scene();
    let dashes: Vec<&scene::Dash> = scene
        .marks
        .iter()
        .filter_map(|mark| match mark {
            Mark::Line { dash, points, .. } if dash.lengths.iter().sum::<f64>() > 20.0 && points.len() == 2 => Some(dash),
            _ => None,
        })
        .collect();
    assert_eq!(dashes.len(), 2, "{dashes:?}");
    assert!(dashes[0].lengths == dashes[1].lengths && dashes[0].start != dashes[1].start);
}

#[test]
fn a_png_has_two_dots_to_a_pixel_of_the_svg_unless_told_otherwise() {
    let figure = Chart { panels: vec![Panel::default(), Panel::default()], ..Chart::default() };
    let scene = figure.scene();
    for (dpi, dots) in [(192.0, 2.0), (96.0, 1.0), (300.0, 3.125)] {
        let bytes = figure.render(Format::Png, &RenderOptions { dpi, ..RenderOptions::default() }, &Provenance::default());
        let reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
        assert_eq!(f64::from(reader.info().width), (dots * scene.width.ceil()).ceil());
        assert_eq!(f64::from(reader.info().height), (dots * scene.height.ceil()).ceil());
    }
}

#[test]
fn an_enormous_table_is_still_a_picture_of_bounded_size() {
    let row = vec![TableCell { text: "1.0".to_string(), fill: Fill::Shade(0.5) }; 3];
    let table = CellTable { rows: vec![row; 20_000], ..CellTable::default() };
    let bytes = table.render(Format::Png, &RenderOptions::default(), &Provenance::default());
    let reader = png::Decoder::new(std::io::Cursor::new(&bytes)).read_info().unwrap();
    assert!(u64::from(reader.info().width) * u64::from(reader.info().height) < 31_000_000);
}

#[test]
fn a_legend_names_what_is_measured_before_what_is_predicted() {
    let predicted = PlottedCurve { style: Style::Dashed, ..curve("predicted", 0, vec![1.0, 2.0]) };
    let slope = PlottedCurve { style: Style::Reference, ..curve("slope", 0, vec![1.0, 2.0]) };
    let level = Level { label: "level".into(), y: 1.0, ..Level::default() };
    let curves = vec![slope, predicted, curve("measured", 0, vec![5.0, 6.0])];
    let figure = Chart { panels: vec![Panel { curves, levels: vec![level], ..Panel::default() }], ..Chart::default() };
    let scene = figure.scene();
    let named: Vec<&str> = texts(&scene).into_iter().filter(|text| text.chars().all(char::is_alphabetic)).collect();
    assert_eq!(named, ["measured", "predicted", "level", "slope"]);
}
