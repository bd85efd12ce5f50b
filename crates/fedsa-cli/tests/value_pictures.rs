//! The pictures that `fedsa evaluate` leaves: the value function, predicted values against returns, and what methods cost.

use crate::common::Folder;

/// Logs of this many agents, of eleven episodes that terminate and one that is cut, with this many state columns.
fn with_logs(agents: usize, columns: usize) -> Folder {
    let mut state = 1u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let folder = Folder::new();
    let heads = |prefix: &str| (0..columns).map(|j| format!("{prefix}_{j}")).collect::<Vec<_>>().join(",");
    let text = |x: &[f64]| x.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
    for agent in 0..agents {
        let mut log = format!("episode,{},{},reward,done\n", heads("s"), heads("next"));
        for episode in 0..12 {
            let mut x: Vec<f64> = (0..columns).map(|_| uniform()).collect();
            for step in 0..10 {
                let next: Vec<f64> = x.iter().map(|x| 0.7 * x + 0.3 * uniform()).collect();
                let done = u8::from(step == 9 && episode < 11);
                log += &format!("{episode},{},{},{},{done}\n", text(&x), text(&next), x[columns - 1] + 0.1 * x[0]);
                x = next;
            }
        }
        folder.write(&format!("logs/{agent}.csv"), log);
    }
    folder
}

/// Runs `evaluate` into the folder `o`.
fn evaluate(folder: &Folder, more: &[&str]) -> crate::common::Output {
    folder.run(&[&["evaluate", "logs", "--gamma", "0.9", "--out", "o", "-q"], more].concat())
}

fn names(folder: &Folder) -> Vec<String> {
    let all = std::fs::read_dir(folder.path("o")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|name| [".svg", ".png", ".pdf"].iter().any(|end| name.ends_with(end))).collect();
    names.sort();
    names
}

/// The texts of a picture, joined by spaces.
fn texts(folder: &Folder, name: &str) -> String {
    let svg = folder.text(&format!("o/{name}.svg"));
    let parts = svg.split("<text ").skip(1).filter_map(|part| part.split_once('>')?.1.split_once("</text>"));
    parts.map(|(text, _)| text).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn says(folder: &Folder, name: &str, expected: &[&str]) {
    let said = texts(folder, name);
    expected.iter().for_each(|text| assert!(said.contains(text), "`{text}` is not in\n{said}"));
}

#[test]
fn pictures_are_written_in_the_formats_of_the_figure_and_only_where_they_show_something() {
    let folder = with_logs(2, 2);
    evaluate(&folder, &["--holdout", "0.25"]).exits(0);
    let all = ["figure", "methods", "returns", "value"];
    assert_eq!(names(&folder), all.map(|name| [format!("{name}.png"), format!("{name}.svg")]).concat());
    says(&folder, "value", &["Value function over s_0 and s_1", "value v(s)", "standard error of v(s)", "Faded cells: no logged state"]);
    says(&folder, "returns", &["return G", "transitions of", "held-out transitions"]);
    says(&folder, "methods", &["lstd", "gmres", "rounds", "bits, up and down", "step size 1, 100 local steps"]);
    // They tell what ran, as the figure does.
    let config = folder.text("o/config.toml").replace('"', "&quot;").replace('<', "&lt;").replace('>', "&gt;");
    let (svg, root) = (folder.text("o/value.svg"), folder.path("").display().to_string());
    assert!(config.contains(&root) && !svg.contains(&root), "folders of this machine stay here");
    config.lines().filter(|line| !line.contains(&root)).for_each(|line| assert!(svg.contains(line), "{line}"));
    // Without held-out episodes and without a choice of a method there is one picture; the others go.
    evaluate(&folder, &["--method", "lstd", "--overwrite", "--set", "figure.formats=[\"pdf\"]"]).exits(0);
    assert_eq!(names(&folder), ["figure.pdf", "value.pdf"]);
    assert!(folder.read("o/value.pdf").starts_with(b"%PDF"));
}

#[test]
fn the_same_logs_give_the_same_pictures_and_a_file_of_the_users_is_kept() {
    let folder = with_logs(2, 2);
    let pictures = |folder: &Folder| names(folder).iter().map(|name| folder.read(&format!("o/{name}"))).collect::<Vec<_>>();
    evaluate(&folder, &["--holdout", "0.25"]).exits(0);
    let before = pictures(&folder);
    evaluate(&folder, &["--holdout", "0.25", "--overwrite"]).exits(0);
    assert!(pictures(&folder) == before);
    folder.write("other/value.svg", "mine");
    let refused = folder.run(&["evaluate", "logs", "--out", "other", "--overwrite"]).exits(2).message();
    assert!(refused.contains("value.svg was not written by fedsa"), "{refused}");
    assert_eq!(folder.text("other/value.svg"), "mine");
}

#[test]
fn one_column_has_a_curve_and_of_many_two_are_chosen_or_named() {
    let folder = with_logs(2, 1);
    evaluate(&folder, &[]).exits(0);
    says(&folder, "value", &["Value function over s_0", "Band: two standard errors on either side."]);

    let folder = with_logs(2, 3);
    evaluate(&folder, &["--features", "identity:bias"]).exits(0);
    says(&folder, "value", &["Value function over s_", "and s_2", "medians over the logged states: s_", "the value varies most"]);
    evaluate(&folder, &["--features", "identity:bias", "--value-columns", "s_1,s_0", "--overwrite"]).exits(0);
    says(&folder, "value", &["Value function over s_1 and s_0", "s_2 = 0."]);
    evaluate(&folder, &["--value-columns", "s_2", "--overwrite"]).exits(0);
    says(&folder, "value", &["Value function over s_2", "s_0 = 0.", "s_1 = 0."]);
    let refused = evaluate(&folder, &["--value-columns", "s_3", "--overwrite"]).exits(2).message();
    assert!(refused.contains("--value-columns: there is no state column `s_3`") && refused.contains("s_0, s_1, s_2"), "{refused}");
}

#[test]
fn a_run_that_diverged_has_no_pictures_of_values() {
    let folder = with_logs(2, 2);
    let diverges =
        ["--features", "identity:bias", "--method", "fedlsa", "--step-size", "1e3", "--max-rounds", "400", "--tol", "0", "--force"];
    let status = evaluate(&folder, &[&diverges[..], &["--holdout", "0.25"]].concat()).status;
    assert_eq!((status, names(&folder)), (1, vec!["figure.png".to_string(), "figure.svg".into()]));
}

#[test]
fn many_agents_share_a_panel() {
    let folder = with_logs(60, 2);
    evaluate(&folder, &["--holdout", "0.5"]).exits(0);
    says(&folder, "returns", &["all 60 agents", "evenly taken"]);
}
