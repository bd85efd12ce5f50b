//! The pictures that a run leaves, as a user asks for them.

use crate::common::{Folder, SMALL, small};

fn svg(folder: &Folder) -> String {
    folder.text("out/small/figure.svg")
}

/// The texts of a picture, one after the other: lines of a paragraph are joined by spaces.
fn texts(svg: &str) -> String {
    let parts = svg.split("<text ").skip(1).filter_map(|part| part.split_once('>')?.1.split_once("</text>"));
    parts.map(|(text, _)| text).collect::<Vec<_>>().join(" ")
}

/// Runs [`SMALL`] with more at its end, and returns what its picture says.
#[track_caller]
fn says(more: &str, expected: &[&str]) -> String {
    let folder = Folder::with(&format!("{SMALL}\n{more}\n"));
    let output = folder.run(&["run", "small.toml"]);
    assert!(output.status < 2, "{}", output.stderr);
    let said = texts(&svg(&folder));
    for text in expected {
        assert!(said.contains(text), "`{text}` is not in\n{said}");
    }
    said
}

#[test]
fn a_file_chooses_formats_colours_and_sizes() {
    let figure = "[figure]\nformats = [\"pdf\", \"svg\"]\ntheme = \"dark\"\nwidth = 600";
    let folder = Folder::with(&format!("{SMALL}\n{figure}\n"));
    folder.run(&["run", "small.toml"]).exits(0);
    assert!(folder.read("out/small/figure.pdf").starts_with(b"%PDF"));
    assert!(!folder.path("out/small/figure.png").exists());
    assert!(svg(&folder).contains("width=\"600\"") && svg(&folder).contains("fill=\"#14171c\""));
    // By a flag; what was there before goes.
    folder.run(&["run", "small.toml", "--overwrite", "--set", "figure.formats=[\"png\"]", "--set", "figure.dpi=96"]).exits(0);
    assert!(!folder.path("out/small/figure.pdf").exists() && !folder.path("out/small/figure.svg").exists());
    let png = folder.read("out/small/figure.png");
    assert_eq!(u32::from_be_bytes(png[16..20].try_into().unwrap()), 600);
}

#[test]
fn a_finished_run_is_drawn_again_for_a_paper() {
    let folder = Folder::with(SMALL);
    folder.run(&["run", "small.toml"]).exits(0);
    let output = folder.run(&["plot", "out/small", "--style", "ieee"]).exits(0);
    assert!(output.stdout.contains("For the caption: ") && output.stdout.contains("Lines: mean over 2 seeds"), "{}", output.stdout);
    assert!(svg(&folder).contains("width=\"252pt\"") && !texts(&svg(&folder)).contains("Lines:"));
    assert!(folder.read("out/small/figure.pdf").starts_with(b"%PDF"));
    // What is drawn is chosen, with all keys of the figure at once.
    folder.run(&["plot", "out/small", "--set", "figure={y_log = false, methods = [\"FedLSA\"]}"]).exits(0);
    assert!(svg(&folder).contains("width=\"720\"") && texts(&svg(&folder)).contains("Lines: mean over 2 seeds"));
}

#[test]
fn an_axis_along_which_no_method_moves_has_no_panel() {
    let said = says("[figure]\nx = [\"round\", \"hessians\"]", &["communication round"]);
    assert!(!said.contains("Hessian"), "{said}");
}

#[test]
fn a_picture_tells_the_configuration_that_ran() {
    let folder = Folder::with(SMALL);
    folder.run(&["run", "small.toml"]).exits(0);
    let config = folder.text("out/small/config.toml");
    let escaped = config.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;");
    assert!(svg(&folder).contains(&escaped) && svg(&folder).contains("id=\"small\""));
    let png = folder.read("out/small/figure.png");
    assert!(png.windows(config.len()).any(|window| window == config.as_bytes()));
}

#[test]
fn a_caption_says_what_lines_and_bands_are() {
    says("", &["Lines: mean over 2 seeds; bands: one standard deviation"]);
    says("[figure]\nband = \"error\"", &["Lines: mean over 2 seeds; bands: one standard error of the mean"]);
    let alone = says("[figure]\nband = \"none\"", &["Lines: mean over 2 seeds."]);
    assert!(!alone.contains("band"), "{alone}");
    says("[figure]\ncentre = \"median\"", &["Lines: median over 2 seeds; bands: from the 10% to the 90% quantile"]);
    // Where a prediction is drawn, the band is a standard error.
    says("[figure]\nlevels = { FedLSA = [\"floor\"] }", &["bands: one standard error of the mean", "Thin dashes: what theory predicts."]);
    let folder = Folder::with(&small("seeds = 2", "seeds = 1"));
    folder.run(&["run", "small.toml"]).exits(0);
    let said = texts(&svg(&folder));
    assert!(said.contains("Lines: one run, of a single seed.") && !said.contains("band"), "{said}");
}

#[test]
fn panels_of_different_numbers_of_seeds_say_theirs() {
    let sweep = "[[sweep]]\nkeys = [\"problem.agents\", \"run.seeds\"]\nvalues = [[2, 3], [4, 5]]";
    says(sweep, &["mean over 3 or 5 seeds", "Over 3 seeds", "Over 5 seeds"]);
}

#[test]
fn ratios_to_the_exact_error_are_drawn_beneath() {
    let figure = "[figure]\nexact = [\"FedLSA\"]\nratios = true";
    says(figure, &["measured / exact", "FedLSA, exact", "Lower panels: the measured mean over the predicted one"]);
}

#[test]
fn a_claimed_slope_is_drawn() {
    let sweep = "[[sweep]]\nkey = \"problem.agents\"\nvalues = [1, 2, 4]\n[figure]\nkind = \"scaling\"\nx = \"agents\"";
    says(&format!("{sweep}\nslope = -1"), &["slope −1", "Points: mean over 2 seeds of floors", "bands: one standard error"]);
}

#[test]
fn costs_without_a_coordinate_are_numbers() {
    let figure = "[figure]\nkind = \"cost\"\nlevel = [400, 1e-99]";
    let expected =
        ["until ‖θ − θ*‖² ≤ 400", "bits up and down", "&gt; 20", "not reached when n had been spent", "first recorded round at which"];
    says(figure, &expected);
    let folder = Folder::with(&format!("{SMALL}\n{figure}\n"));
    folder.run(&["run", "small.toml"]).exits(0);
    let summary = folder.json("out/small/summary.json");
    for result in summary["results"].as_array().unwrap() {
        let costs = &result["costs"];
        assert_eq!((&costs[0]["level"], &costs[1]["level"]), (&400.0.into(), &1e-99.into()));
        assert!(costs[0]["round"].as_f64() < Some(20.0) && costs[0]["bits"].as_f64() > costs[0]["bits_up"].as_f64(), "{costs}");
        assert!(costs[1].get("round").is_none(), "{costs}");
    }
    // Relative to the start: the metric at the end is shown, and what was spent in vain.
    let relative = "[figure]\nkind = \"cost\"\nlevel = [0.9, 1e-99]\nrelative = true";
    says(relative, &["until ‖θ − θ*‖² ≤ 0.9 of its value at round 0", "relative mse at the end", "&gt; 20"]);
    let output = Folder::with(&format!("{SMALL}\n{figure}\nslope = 1\n")).run(&["check", "small.toml"]).exits(2);
    assert!(output.message().contains("this is not a key of a table of costs"), "{}", output.stderr);
}

#[test]
fn a_figure_of_what_nothing_measures_is_refused() {
    let text = SMALL.replace("kind = \"scafflsa\"", "kind = \"fedhsa\"");
    let check = |y: &str| Folder::with(&format!("{text}\n[figure]\ny = \"{y}\"\n")).run(&["check", "small.toml"]);
    let message = check("control_error").exits(2).message();
    assert!(message.contains("figure.y: control_error is not known: FedLSA has no control variates"), "{message}");
    check("value_error").exits(0);
}

#[test]
fn pictures_of_very_many_points_are_capped_with_a_note() {
    let values: Vec<String> = (0..300).map(|i| format!("{}", 0.01 + 1e-5 * f64::from(i))).collect();
    let text = small("rounds = 20", "rounds = 2");
    let sweep = format!("[[sweep]]\nkey = \"method.*.step_size\"\nvalues = [{}]\n", values.join(", "));
    for (figure, note) in [
        ("", "Shown: the first 24 of 300 panels."),
        ("panels = []", "Shown: 24 of 600 curves, the first of each method"),
        ("kind = \"table\"", "Shown: the first 150 of 300 rows."),
        ("kind = \"table\"\nx = \"step_size\"", "Shown: the first 32 of 600 columns."),
    ] {
        let folder = Folder::with(&format!("{text}\n{sweep}[figure]\nformats = [\"svg\"]\n{figure}\n"));
        folder.run(&["run", "small.toml", "--quiet"]).exits(0);
        let drawn = svg(&folder);
        assert!(texts(&drawn).contains(note), "`{note}` is not in\n{}", texts(&drawn));
        assert!(drawn.len() < 1_000_000, "{figure}: {} bytes", drawn.len());
    }
}

#[test]
fn several_axes_are_panels_side_by_side() {
    let said = says("[figure]\nx = [\"round\", \"samples\", \"bits\"]", &["Lines: mean over 2 seeds"]);
    let axes = ["round", "samples", "bits"].map(|name| fedsa::record::count(name).unwrap().axis);
    for axis in axes {
        assert_eq!(said.matches(axis).count(), 1, "`{axis}` in\n{said}");
    }
}
