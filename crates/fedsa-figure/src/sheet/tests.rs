//! Requirements on pictures for papers and slides.

use std::collections::HashMap;

use crate::scene::{Mark, Scene};
use crate::{
    CellTable, Chart, FigureStyle, Format, HeatMap, HeatMaps, Level, Panel, PlottedCurve, Provenance, RenderOptions, Style, TableCell,
};

fn look(style: FigureStyle) -> RenderOptions {
    RenderOptions { style: Some(style), ..RenderOptions::default() }
}

fn line(color: usize, style: Style) -> PlottedCurve {
    let x: Vec<f64> = (0..60).map(f64::from).collect();
    let y = x.iter().map(|x| (-x / 20.0).exp()).collect();
    PlottedCurve { label: format!("method {color}"), color, x, y, style, ..PlottedCurve::default() }
}

fn of_curves(curves: Vec<PlottedCurve>, levels: Vec<Level>) -> Chart {
    let panel = Panel {
        title: "a panel".into(),
        x_label: "rounds".into(),
        y_label: "error".into(),
        y_log: true,
        curves,
        levels,
        ..Panel::default()
    };
    Chart {
        title: "A title".into(),
        panels: vec![panel],
        caption: "Means over 3 seeds.".into(),
        notes: vec!["A note.".into()],
        ..Chart::default()
    }
}

/// The appearance of lines and markers without colours and places: dashes, shapes, and whether shapes have the background inside.
fn without_colours(scene: &Scene) -> Vec<String> {
    let mut seen = Vec::new();
    for mark in &scene.marks {
        match mark {
            // The frame and the grid are solid, as is the first curve, which has markers.
            Mark::Line { dash, .. } if !dash.lengths.is_empty() => seen.push(format!("dashes {:.0?}", dash.lengths)),
            Mark::Polygon { points, color } if points.len() > 2 => {
                let n = points.len() as f64;
                let middle = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
                let shape: Vec<(f64, f64)> =
                    points.iter().map(|p| ((p.0 - middle.0).round() + 0.0, (p.1 - middle.1).round() + 0.0)).collect();
                seen.push(format!("shape {shape:?} {}", *color == scene.background));
            }
            Mark::Disc { radius, color, .. } => seen.push(format!("disc {radius:.1} {}", *color == scene.background)),
            _ => {}
        }
    }
    seen.sort();
    seen.dedup();
    seen
}

/// The pairs of lines of a panel that look the same without colours.
fn alike(look: &RenderOptions) -> Vec<(String, String)> {
    let alone = |name: String, mut curve: Option<PlottedCurve>, mut level: Option<Level>| {
        // Without a label, a line is in the panel and not in the legend.
        curve.iter_mut().for_each(|curve| curve.label.clear());
        level.iter_mut().for_each(|level| level.label.clear());
        let chart = of_curves(curve.into_iter().collect(), level.into_iter().collect());
        (name, without_colours(&crate::chart::scene(&chart, look)))
    };
    let curves = [Style::Line, Style::Dashed].into_iter().flat_map(|style| (0..24).map(move |color| (style, color)));
    let mut lines: Vec<(String, Vec<String>)> =
        curves.map(|(style, i)| alone(format!("{style:?} {i}"), Some(line(i, style)), None)).collect();
    let levels = (0..24).flat_map(|color| (0..3).map(move |dash| Level { label: String::new(), y: 0.5, color, dash }));
    lines.extend(levels.map(|level| alone(format!("level {} {}", level.color, level.dash), None, Some(level))));
    let mut first: HashMap<Vec<String>, String> = HashMap::new();
    lines.into_iter().filter_map(|(name, seen)| Some((first.insert(seen, name.clone())?, name))).collect()
}

#[test]
fn every_pair_of_lines_differs_without_colours() {
    for style in FigureStyle::ALL {
        assert_eq!(alike(&look(style)), [], "{style:?}");
    }
    assert!(alike(&RenderOptions::default()).len() > 24, "on a screen, colours tell lines apart");
}

#[test]
fn samples_in_a_legend_are_those_of_the_lines() {
    let scene_of = |label: &str, style: FigureStyle, curve: Style, i: usize| {
        let curve = PlottedCurve { label: label.into(), ..line(i, curve) };
        without_colours(&crate::chart::scene(&of_curves(vec![curve], Vec::new()), &look(style)))
    };
    for style in FigureStyle::ALL {
        for (curve, i) in [(Style::Line, 0), (Style::Line, 7), (Style::Dashed, 8), (Style::LinePoints, 3), (Style::Points, 6)] {
            let shapes = |seen: Vec<String>| seen.into_iter().filter(|mark| !mark.starts_with("dashes")).collect::<Vec<_>>();
            assert_eq!(shapes(scene_of("name", style, curve, i)), shapes(scene_of("", style, curve, i)), "{style:?} {curve:?} {i}");
        }
    }
}

fn sizes_of_letters(scene: &Scene) -> (f64, f64) {
    let sizes = scene.marks.iter().filter_map(|mark| if let Mark::Text(text) = mark { Some(text.font.size) } else { None });
    sizes.fold((f64::INFINITY, 0.0), |(low, high), size| (low.min(size), high.max(size)))
}

#[test]
fn pages_and_letters_have_the_sizes_that_papers_and_slides_ask_for() {
    let chart = of_curves((0..3).map(|i| line(i, Style::Line)).collect(), Vec::new());
    let head = |style| String::from_utf8(chart.render(Format::Svg, &look(style), &Provenance::default())).unwrap();
    for (style, width, families) in [
        (FigureStyle::Neurips, "396pt", "Times New Roman"),
        (FigureStyle::Ieee, "252pt", "Times New Roman"),
        (FigureStyle::Slides, "960pt", "Helvetica"),
    ] {
        let svg = head(style);
        assert!(svg.contains(&format!("width=\"{width}\"")) && svg.contains(families), "{}", &svg[..400]);
        assert_eq!(svg.contains(">A title</text>"), style == FigureStyle::Slides, "the caption of a paper has the title");
        assert!(!svg.contains(">A note.</text>") && svg.contains("<desc>Means over 3 seeds. A note.</desc>"));
    }
    assert!(head(FigureStyle::Slides).contains("height=\"540pt\""));
    let points = |style| sizes_of_letters(&crate::chart::scene(&chart, &look(style)));
    // In CSS pixels, 4 of which are 3 points.
    assert_eq!(points(FigureStyle::Neurips), (12.0, 12.0));
    assert_eq!(points(FigureStyle::Ieee), (10.67, 10.67));
    assert!(points(FigureStyle::Slides).0 >= 22.0);
}

#[test]
fn every_picture_fits_its_page() {
    let curves = |n: usize| (0..n).map(|i| line(i, Style::Line)).collect();
    let panel =
        |n| Panel { title: "a panel".into(), x_label: "rounds".into(), y_label: "error".into(), curves: curves(n), ..Panel::default() };
    let charts = [1, 2, 4, 9].map(|count| Chart { panels: vec![panel(6); count], title: "A title".into(), ..Chart::default() });
    let cell = |text: &str| TableCell { text: text.into(), ..TableCell::default() };
    let wide =
        CellTable { columns: vec!["a column with a name".into(); 20], rows: vec![vec![cell("1.234e-5"); 20]; 40], ..CellTable::default() };
    let map = HeatMap { x: (0.0, 1.0), y: (0.0, 1.0), z: vec![vec![1.0, 2.0]], x_label: "x".into(), ..HeatMap::default() };
    let maps = HeatMaps { maps: vec![map; 3], ..HeatMaps::default() };
    for style in FigureStyle::ALL {
        let look = look(style);
        let mut scenes: Vec<Scene> = charts.iter().map(|chart| crate::chart::scene(chart, &look)).collect();
        scenes.extend([crate::table::scene(&wide, &look), crate::heat::scene(&maps, &look)]);
        for scene in scenes {
            let page = match style {
                FigureStyle::Neurips => (528.0, scene.height),
                FigureStyle::Ieee => (336.0, scene.height),
                FigureStyle::Slides => (1280.0, 720.0),
            };
            assert_eq!((scene.width, scene.height), page, "{style:?}");
            crate::tests::assert_legible(&scene);
        }
    }
}

#[test]
fn panels_fill_the_height_of_a_slide() {
    for count in [1, 2, 4] {
        let curves = vec![line(0, Style::Line), line(1, Style::Line)];
        let panel = Panel { x_label: "rounds".into(), curves, ..Panel::default() };
        let chart = Chart { panels: vec![panel; count], ..Chart::default() };
        let scene = crate::chart::scene(&chart, &look(FigureStyle::Slides));
        let lowest =
            scene.marks.iter().filter_map(|mark| if let Mark::Text(text) = mark { Some(text.at.1) } else { None }).fold(0.0, f64::max);
        assert!(lowest > 640.0, "{count}: {lowest}");
    }
}

#[test]
fn the_fonts_of_papers_are_embedded() {
    let chart = of_curves(vec![line(0, Style::Line)], Vec::new());
    let pdf = |chart: &Chart, look: &RenderOptions| {
        String::from_utf8_lossy(&chart.render(Format::Pdf, look, &Provenance::default())).into_owned()
    };
    let paper = pdf(&chart, &look(FigureStyle::Ieee));
    assert!(paper.contains("FEDSAS+Tinos") && !paper.contains("DejaVu"));
    assert!(paper.contains("/MediaBox [0 0 252 "), "a column of 3.5 inches");
    // A label that Tinos lacks appears in the other font.
    let mut rare = chart.clone();
    rare.panels[0].x_label = "\u{2207}f".into();
    assert!(pdf(&rare, &look(FigureStyle::Ieee)).contains("FEDSAR+DejaVuSans"));
    assert!(!pdf(&chart, &RenderOptions::default()).contains("Tinos"));
}
