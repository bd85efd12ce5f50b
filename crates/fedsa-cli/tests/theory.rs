//! `fedsa theory`: the page for people, its numbers against the JSON and against runs, and its pictures.

mod common;

use common::{Folder, SMALL};
use fedsa_experiment::bundled::ALL;
use fedsa_experiment::numbers::{self, number};
use serde_json::Value;

/// The page, and the JSON of the same command.
fn both(folder: &Folder, args: &[&str]) -> (String, Value) {
    let page = folder.run(&[&["theory"], args].concat()).exits(0).stdout;
    let json = folder.run(&[&["theory"], args, &["--json"]].concat()).exits(0).stdout;
    (page, serde_json::from_str(&json).unwrap())
}

/// The lines of the section of a method, as one line.
#[track_caller]
fn section(page: &str, title: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let at = lines.windows(2).position(|pair| pair[0].starts_with(title) && pair[1].starts_with("---"));
    let first = at.unwrap_or_else(|| panic!("no section `{title}` in\n{page}"));
    let rest = &lines[first + 2..];
    let end = rest.windows(2).position(|pair| pair[1].starts_with("---")).unwrap_or(rest.len());
    rest[..end].join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
}

#[test]
fn the_page_has_the_numbers_of_the_json() {
    let folder = Folder::with(SMALL);
    let (page, json) = both(&folder, &["small.toml"]);
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    let problem = &json["problems"][0];
    let text = section(&page, "Problem");
    says(&text, &["4 agents, 3 components; independent samples, one a step.", "Constants"]);
    for (symbol, value) in
        [("C_A", &problem["constants"]["c_a"]), ("sigma_omega", &problem["constants"]["sigma_omega"]), ("mu", &problem["fedhsa"]["mu"])]
    {
        says(&text, &[&format!("{symbol} {} ", number(value.as_f64().unwrap()))]);
    }
    for (i, label) in ["FedLSA", "SCAFFLSA"].into_iter().enumerate() {
        let (method, text) = (&json["methods"][i], section(&page, label));
        let value = |key: &str| method[key].as_f64().unwrap();
        says(
            &text,
            &[
                &format!("The error stays at {} in the end (exact), the floor.", number(value("floor"))),
                &format!("samples {} ", number(value("noise"))),
                &format!(
                    "the radius of a noiseless round is {}, that of the second moments {}.",
                    numbers::radius(value("radius")),
                    numbers::radius(value("mean_square_radius"))
                ),
                "stable up to step_size = ",
                "H = 10 (as in the file)",
            ],
        );
    }
    let fedlsa = &json["methods"][0];
    says(
        &section(&page, "FedLSA"),
        &[&format!("bias {} ", number(fedlsa["bias2"].as_f64().unwrap())), "fedhsa, the same step", "scafflsa, the same step"],
    );
    says(&section(&page, "SCAFFLSA"), &["bias 0 0% none: control variates remove it"]);
    assert!(!folder.path("out").exists());
}

/// A changed setting of the table is a forecast for a file with that change.
#[test]
fn changed_settings_have_the_floors_of_files_with_them() {
    let folder = Folder::with(SMALL);
    let (page, _) = both(&folder, &["small.toml"]);
    let text = section(&page, "FedLSA");
    let changes = [
        ("half the step, 0.05", "method.FedLSA.step_size=0.05"),
        ("half the local steps, 5", "method.FedLSA.local_steps=5"),
        ("4 samples a step", "sampling.batch=4"),
    ];
    for (what, set) in changes {
        let json = both(&folder, &["small.toml", "--set", set]).1;
        let value = |key: &str| number(json["methods"][0][key].as_f64().unwrap());
        says(&text, &[&format!("{what} {} {} {} ", value("floor"), value("bias2"), value("noise"))]);
    }
    let scafflsa = both(&folder, &["small.toml"]).1;
    says(&text, &[&format!("scafflsa, the same step {} 0 ", number(scafflsa["methods"][1]["floor"].as_f64().unwrap()))]);
}

#[test]
fn what_is_not_known_has_its_reason() {
    let folder = Folder::with(SMALL);
    let varies = both(&folder, &["small.toml", "--set", "method.FedLSA.step_size={ c = 0.1, t0 = 10 }"]).0;
    says(&section(&varies, "FedLSA"), &["the step size varies"]);
    for (set, why) in [("sampling.kind=\"markov\"", "samples are not i.i.d."), ("problem.features=25", "more than 24 features")] {
        let text = section(&folder.run(&["theory", "small.toml", "--set", set, "--set", "problem.states=40"]).exits(0).stdout, "Problem");
        says(&text, &[&format!("not known: {why}")]);
    }
    // A step that is too large.
    let wild = folder.run(&["theory", "small.toml", "--set", "method.*.step_size=50"]).exits(0).stdout;
    says(
        &section(&wild, "FedLSA"),
        &["This step is UNSTABLE: the radius of a noiseless round is ", "below the present one", "the error grows along one direction"],
    );
    // Methods without local steps: rates from the eigenvalues of Hessians.
    let shed = common::edited(
        &common::with_problem("kind = \"linear\"\nagents = 3\ndim = 4").replace("\"iid\"", "\"mean\""),
        "kind = \"fedlsa\"\nlabel = \"FedLSA\"\nstep_size = 0.1\nlocal_steps = 10\n",
        "kind = \"shed-ls\"\nlabel = \"SHED\"\n",
    );
    let folder = Folder::with(&shed);
    // A_c = I for all agents: every factor is 0.
    says(
        &section(&folder.run(&["theory", "small.toml"]).exits(0).stdout, "SHED"),
        &["eigenvalues from mu = 1 to L = 1", "c(q)", "after 3 rounds all pairs are there"],
    );
}

/// Rounds and costs to a target against runs.
#[test]
fn targets_are_reached_when_the_page_says_so() {
    let folder = Folder::new();
    let edited = common::edited(
        &SMALL.replace("\"iid\"", "\"mean\""),
        "kind = \"scafflsa\"\nlabel = \"SCAFFLSA\"",
        "kind = \"fedhsa\"\nlabel = \"FedHSA\"",
    );
    folder.write("small.toml", edited);
    let (page, json) = both(&folder, &["small.toml", "--target-mse", "0.01"]);
    let target = &json["methods"][1]["target"];
    assert_eq!(
        (&target["reached"], &target["accuracy"]["status"], &target["mse"]),
        (&true.into(), &"exact".into(), &0.01.into()),
        "{target}"
    );
    let rounds = target["rounds"].as_f64().unwrap();
    says(
        &section(&page, "FedHSA"),
        &[&format!("is reached after {} rounds, read from the predicted curve (exact).", numbers::thousands(rounds))],
    );
    // The run stops there, and its ledger is what was predicted.
    let stop = [
        "run",
        "small.toml",
        "--out",
        "o",
        "-q",
        "--rounds",
        "100000",
        "--seeds",
        "1",
        "--set",
        "run.stop={ mse = 0.01 }",
        "--set",
        "run.record={ every = 1 }",
    ];
    folder.run(&[&stop[..], &["--set", "method.FedLSA.expect=\"misses-target\"", "--set", "run.rounds=100000"]].concat());
    let summary = folder.json("o/summary.json");
    let result = summary["results"].as_array().unwrap().iter().find(|result| result["method"] == "FedHSA").unwrap();
    assert_eq!(result["rounds"].as_f64().unwrap(), rounds);
    for key in ["exchanges", "samples", "bits_up", "bits_down"] {
        assert_eq!(result["ledger"][key].as_f64().unwrap(), target[key].as_f64().unwrap(), "{key}");
    }
    // FedLSA's bias is in the way, or its noise.
    let bias = json["methods"][0]["bias2"].as_f64().unwrap();
    let low = format!("{}", 0.5 * bias);
    let (page, json) = both(&folder, &["small.toml", "--target-mse", &low]);
    assert_eq!(json["methods"][0]["target"]["obstacle"]["kind"], "bias");
    says(&section(&page, "FedLSA"), &[&format!("is not reached: the squared bias {} alone is larger", number(bias))]);
    let noisy = Folder::with(SMALL);
    let (page, json) = both(&noisy, &["small.toml", "--target-mse", "1e-9"]);
    assert_eq!(json["methods"][1]["target"]["obstacle"]["kind"], "noise");
    says(&section(&page, "SCAFFLSA"), &["the noise is in the way"]);
    // Without the option the JSON has no such field.
    assert!(both(&noisy, &["small.toml"]).1["methods"][0].get("target").is_none());
}

#[test]
fn pictures_are_written_listed_and_not_replaced_unasked() {
    let folder = Folder::with(SMALL);
    let names = ["theory-curves.png", "theory-curves.svg", "theory-stability.png", "theory-stability.svg"];
    let output = folder.run(&["theory", "small.toml", "--out", "made/here"]).exits(0);
    let listed: Vec<&str> = output.stdout.lines().filter_map(|line| line.strip_prefix("made/here/")).collect();
    assert_eq!(listed.len(), 4, "{}", output.stdout);
    let there = |dir: &str| {
        let mut names: Vec<String> =
            std::fs::read_dir(folder.path(dir)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(there("made/here"), names, "and no temporary file");
    let curves = folder.text("made/here/theory-curves.svg");
    for text in ["FedLSA, exact", "SCAFFLSA: floor", "FedLSA: bias²", "rounds"] {
        assert!(curves.contains(text), "{text}");
    }
    let stability = folder.text("made/here/theory-stability.svg");
    for text in ["step size η", "local steps H", "rounds to a tenth", "FedLSA", "Rings: η = 0.1, H = 10."] {
        assert!(stability.contains(text), "{text}");
    }
    // The same pictures again, and only if asked.
    let before: Vec<Vec<u8>> = names.iter().map(|name| folder.read(&format!("made/here/{name}"))).collect();
    let refused = folder.run(&["theory", "small.toml", "--out", "made/here"]).exits(2);
    assert!(refused.message().contains("theory-curves.svg exists already") && refused.stdout.is_empty(), "{}", refused.stderr);
    let json = folder.run(&["theory", "small.toml", "--out", "made/here", "--overwrite", "--json"]).exits(0).stdout;
    assert!(serde_json::from_str::<Value>(&json).is_ok(), "JSON alone on standard output");
    let after: Vec<Vec<u8>> = names.iter().map(|name| folder.read(&format!("made/here/{name}"))).collect();
    assert!(before == after);
    folder.run(&["theory", "small.toml", "--out", "pdf", "--set", "figure.formats=[\"pdf\"]"]).exits(0);
    assert_eq!(there("pdf"), ["theory-curves.pdf", "theory-stability.pdf"]);
    // Beside a run, which is not touched.
    folder.run(&["run", "small.toml", "--out", "run", "-q"]).exits(0);
    folder.run(&["theory", "small.toml", "--out", "run"]).exits(0);
    folder.run(&["run", "small.toml", "--out", "run", "--overwrite", "-q"]).exits(0);
    assert!(folder.path("run/theory-curves.svg").exists() && folder.path("run/summary.json").exists());
}

#[test]
fn bad_options_are_refused_before_anything_is_written() {
    let folder = Folder::with(SMALL);
    folder.write("file", "x");
    for (args, why) in [
        (&["--target-mse", "0"][..], "not a positive number"),
        (&["--target-mse", "-1"], "not a positive number"),
        (&["--target-mse", "nan"], "not a positive number"),
        (&["--target-mse", "x"], "not a positive number"),
        (&["--out", "file"], "file is not a folder"),
        (&["--overwrite"], "--out <DIR>"),
    ] {
        let output = folder.run(&[&["theory", "small.toml"], args].concat()).exits(2);
        assert!(output.message().contains(why) && output.stdout.is_empty(), "{args:?}: {}", output.stderr);
    }
    std::fs::create_dir_all(folder.path("d/theory-curves.svg")).unwrap();
    let output = folder.run(&["theory", "small.toml", "--out", "d", "--overwrite"]).exits(2);
    assert!(output.message().contains("theory-curves.svg is a folder, which is not replaced"), "{}", output.stderr);
    assert!(!folder.path("d/theory-curves.png").exists());
}

/// Bundled experiments whose data are not here, or that are large, have fewer agents or none.
#[test]
#[ignore = "takes minutes"]
fn every_bundled_experiment_has_a_page() {
    let folder = Folder::new();
    let mut described = 0;
    for bundled in ALL {
        folder.write("b.toml", bundled.text);
        // The number of agents sets the time; sweeps over agents and lists for each agent keep theirs.
        let smaller = ["theory", "b.toml", "--target-mse", "1e-3", "--set", "problem.agents=3"];
        let few = bundled.text.contains("\nagents = ") && !bundled.text.contains("problem.agents");
        let output = folder.run(if few { &smaller } else { &smaller[..4] });
        assert!(!output.stderr.contains("panicked"), "{}: {}", bundled.id, output.stderr);
        match output.status {
            0 => {
                described += 1;
                assert!(
                    output.stdout.starts_with(&format!("{}: ", bundled.id)) && output.stdout.contains("\nProblem"),
                    "{}",
                    output.stdout
                );
                assert!(output.stdout.contains("Stability") || output.stdout.contains("stability"), "{}: {}", bundled.id, output.stdout);
            }
            status => assert_eq!(status, 2, "{}: {}", bundled.id, output.stderr),
        }
    }
    assert!(described >= 20, "{described}");
}
