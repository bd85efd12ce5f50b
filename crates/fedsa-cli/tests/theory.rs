//! `fedsa theory`: the page for people, its numbers against the JSON and against runs, and its pictures.

use crate::common::{Folder, SMALL, with_problem};
use fedsa_experiment::bundled::ALL;
use fedsa_experiment::numbers::{self, number};
use serde_json::Value;

/// The page, and the JSON of the same command.
fn both(folder: &Folder, args: &[&str]) -> (String, Value) {
    let page = folder.run(&[&["theory", "--full"], args].concat()).exits(0).stdout;
    let json = folder.run(&[&["theory"], args, &["--json"]].concat()).exits(0).stdout;
    (page, serde_json::from_str(&json).unwrap())
}

/// The lines of the section of a method, as one line.
#[track_caller]
fn section(page: &str, title: &str) -> String {
    let lines: Vec<&str> = page.lines().collect();
    let is_rule = |line: &str| !line.is_empty() && line.bytes().all(|c| c == b'-');
    let at = lines.windows(2).position(|pair| pair[0].starts_with(title) && is_rule(pair[1]));
    let first = at.unwrap_or_else(|| panic!("no section `{title}` in\n{page}"));
    let rest = &lines[first + 2..];
    let end = rest.windows(2).position(|pair| is_rule(pair[1])).unwrap_or(rest.len());
    rest[..end].join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    parts.iter().for_each(|part| assert!(text.contains(part), "`{part}` is not in\n{text}"));
}

/// The text of a bundled experiment.
fn bundled(id: &str) -> &'static str {
    ALL.iter().find(|bundled| bundled.id == id).unwrap().text
}

/// Three agents with quadratic losses, and one method over a link.
fn over(method: &str, media: &str) -> String {
    let problem = "kind = \"quadratic\"\nagents = 3\ndim = 4";
    let text = with_problem(problem);
    let start = text.find("[[method]]").unwrap();
    let end = start + text[start..].find("\n[run]").unwrap();
    format!("{}[[method]]\n{method}\nlabel = \"M\"\nuplink = {{ media = [{media}] }}\n{}", &text[..start], &text[end..])
}

/// A bit budget by itself alters nothing: agents that choose what they send by it deliver all of that.
#[test]
fn a_bit_budget_is_not_said_to_alter_what_it_does_not() {
    let budget = "{ kind = \"bit-budget\", bits = 5.5 }";
    let fading = "{ kind = \"bit-budget\", bits = 64, fading_snr = 2.0 }";
    let erasure = "{ kind = \"erasure\", success = 0.5 }";
    let alters = "alters, loses or delays messages";
    for (method, media, expected) in [
        ("kind = \"q-shed\"", budget.to_string(), "Kind q-shed, a link that carries 5 bits a component in an exchange.".to_string()),
        (
            "kind = \"q-shed\"",
            fading.to_string(),
            "a link that carries 64 log2(1 + 2 gamma) bits a component in an exchange, gamma ~ Exp(1).".into(),
        ),
        ("kind = \"q-shed\"", format!("{erasure}, {budget}"), format!("bits a component in an exchange and {alters}.")),
        ("kind = \"q-shed\"", erasure.to_string(), format!("a link that {alters}.")),
        // Where a codec encodes what agents send, a budget may carry no message.
        ("kind = \"fedlsa\"\nstep_size = 0.1\nlocal_steps = 1", fading.to_string(), format!("gamma ~ Exp(1) and {alters}.")),
    ] {
        let page = Folder::with(&over(method, &media)).run(&["theory", "--full", "small.toml"]).exits(0).stdout;
        says(&section(&page, "M"), &[&expected]);
    }
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
fn links_participation_and_mixing_have_parts_of_their_own() {
    let folder = Folder::with(SMALL);
    let lossy = "method.FedLSA.uplink={ media = [{ kind = \"erasure\", success = 0.5 }] }";
    let args = ["small.toml", "--set", lossy, "--set", "method.FedLSA.participants=2"];
    let (page, json) = both(&folder, &args);
    let text = section(&page, "FedLSA");
    says(
        &text,
        &[
            "link ",
            "it multiplies messages by 0.5",
            "participation ",
            "that 2 of 4 agents take part",
            "a clear link",
            "all agents in every round",
        ],
    );
    says(&text, &[&format!("The error stays at {} in the end", number(json["methods"][0]["floor"].as_f64().unwrap()))]);
    // A codec's error is not known; everything else is.
    let coded = "method.FedLSA.uplink={ codec = { kind = \"quantised\", bits = 4, rounding = \"stochastic\" } }";
    let text = section(&both(&folder, &["small.toml", "--set", coded]).0, "FedLSA");
    let clear = both(&folder, &["small.toml"]).1;
    let floor = number(clear["methods"][0]["floor"].as_f64().unwrap());
    says(&text, &[&format!("Without the randomness of the link the floor would be {floor}."), "depends on the vector that is sent"]);
    // Markov samples.
    let (page, json) = both(&folder, &["small.toml", "--set", "sampling.kind=\"markov\""]);
    let text = section(&page, "FedLSA");
    let method = &json["methods"][0];
    let mixing = method["floor"].as_f64().unwrap() - clear["methods"][0]["floor"].as_f64().unwrap();
    says(
        &text,
        &[
            &format!("mixing {} ", number(mixing)),
            "closure, eps²",
            "To leading order in the step size, the noise is ",
            "independent samples",
        ],
    );
    says(&section(&page, "Problem"), &["Samples forget: the second eigenvalue", "samples are not i.i.d."]);
}

#[test]
fn what_is_not_known_has_its_reason() {
    let folder = Folder::with(SMALL);
    let varies = both(&folder, &["small.toml", "--set", "method.FedLSA.step_size={ c = 0.1, t0 = 10 }"]).0;
    says(&section(&varies, "FedLSA"), &["the step size varies"]);
    for (set, why) in [("sampling.kind=\"markov\"", "samples are not i.i.d."), ("problem.features=25", "more than 24 features")] {
        let text = section(
            &folder.run(&["theory", "--full", "small.toml", "--set", set, "--set", "problem.states=40"]).exits(0).stdout,
            "Problem",
        );
        says(&text, &[&format!("not known: {why}")]);
    }
    // A step that is too large.
    let wild = folder.run(&["theory", "--full", "small.toml", "--set", "method.*.step_size=100"]).exits(0).stdout;
    says(&section(&wild, "FedLSA"), &["This step is UNSTABLE: the radius of a noiseless round is ", "below the present one"]);
    // Methods without local steps: rates from the eigenvalues of Hessians.
    let shed = crate::common::edited(
        &crate::common::with_problem("kind = \"linear\"\nagents = 3\ndim = 4").replace("\"iid\"", "\"mean\""),
        "kind = \"fedlsa\"\nlabel = \"FedLSA\"\nstep_size = 0.1\nlocal_steps = 10\n",
        "kind = \"shed-ls\"\nlabel = \"SHED\"\n",
    );
    let folder = Folder::with(&shed);
    // A_c = I for all agents: every factor is 0.
    says(
        &section(&folder.run(&["theory", "--full", "small.toml"]).exits(0).stdout, "SHED"),
        &["eigenvalues from mu = 1 to L = 1", "c(q)", "after 3 rounds all pairs are there"],
    );
}

/// Rounds and costs to a target against runs.
#[test]
fn targets_are_reached_when_the_page_says_so() {
    let folder = Folder::new();
    let edited = crate::common::edited(
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
        &[&format!("is first reached after {} rounds, read from the predicted curve (exact).", numbers::thousands(rounds))],
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

/// What a round takes is what the ledger counts, for methods and links with rounds of one cost.
#[test]
fn a_round_costs_what_the_ledger_counts() {
    let methods = [
        ("fedlsa", ""),
        ("fedhsa", ""),
        ("fedlin", ""),
        ("scafflsa", ""),
        ("scaffold", ""),
        ("scafflsa", "participants = 2\n"),
        (
            "fedlsa",
            "participants = 3\nuplink = { codec = { kind = \"quantised\", bits = 4 }, media = [{ kind = \"erasure\", success = 0.5 }] }\n",
        ),
        ("fedlsa", "uplink = { codec = { kind = \"quantised\", bits = 8 } }\ndownlink = { codec = { kind = \"float32\" } }\n"),
    ];
    let tables: Vec<String> = (methods.iter().enumerate())
        .map(|(i, (kind, more))| format!("[[method]]\nkind = \"{kind}\"\nlabel = \"m{i}\"\nstep_size = 0.01\nlocal_steps = 3\n{more}\n"))
        .collect();
    let (head, rest) = SMALL.split_once("[[method]]").unwrap();
    let run = &rest[rest.find("[run]").unwrap()..];
    let folder = Folder::with(&format!("{head}{}{}", tables.concat(), run.replace("rounds = 20\nseeds = 2", "rounds = 8\nseeds = 1")));
    // A page has the first eight methods.
    let page = folder.run(&["theory", "--full", "small.toml"]).exits(0).stdout;
    folder.run(&["run", "small.toml", "-q", "--out", "o"]).exits(0);
    let results = folder.json("o/summary.json")["results"].clone();
    for (i, (kind, more)) in methods.iter().enumerate().take(8) {
        let ledger = &results[i]["ledger"];
        let each = |key: &str| ledger[key].as_f64().unwrap() / 8.0;
        let (exchanges, plural) = (each("exchanges"), if each("exchanges") == 1.0 { "" } else { "s" });
        let text = format!(
            "A round takes {exchanges} exchange{plural}, {} samples of all agents, {} bits up and {} bits down.",
            numbers::thousands(each("samples")),
            numbers::thousands(each("bits_up")),
            numbers::thousands(each("bits_down"))
        );
        // The first rounds of scafflsa with some of the agents send less.
        if more != &"participants = 2\n" {
            says(&section(&page, &format!("m{i}")), &[&text]);
        } else {
            assert!(section(&page, &format!("m{i}")).contains("A round takes "), "{kind}");
        }
    }
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
    // Pictures with nothing to show are not written, and no folder is made for them; those of another file do not stay.
    folder.write(
        "unknown.toml",
        "id = \"unknown\"\nproblem.kind = \"q-learning\"\nmethod = [{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }]\nrun.rounds = 10",
    );
    for (out, overwrite) in [("none", &[][..]), ("pdf", &["--overwrite"])] {
        let args = ["theory", "unknown.toml", "--out", out, "--set", "figure.formats=[\"pdf\"]"];
        let output = folder.run(&[&args, overwrite].concat()).exits(0).stdout;
        assert!(output.contains("no theory-curves: ") && output.contains("no theory-stability: "), "{output}");
    }
    assert!(!folder.path("none").exists() && there("pdf").is_empty());
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

/// Whole files, with all their agents and points. Those whose data are not here are refused.
#[test]
#[ignore = "takes minutes"]
fn every_bundled_experiment_has_a_page() {
    let folder = Folder::new();
    for bundled in ALL {
        folder.write("b.toml", bundled.text);
        let began = std::time::Instant::now();
        let output = folder.run(&["theory", "--full", "b.toml", "--target-mse", "1e-3"]);
        println!("{}: {:.1} s", bundled.id, began.elapsed().as_secs_f64());
        if output.status != 0 {
            assert!(output.status == 2 && output.message().contains("there is no such file"), "{}: {}", bundled.id, output.stderr);
            continue;
        }
        let page = &output.stdout;
        assert!(page.starts_with(&format!("{}: ", bundled.id)) && page.contains("\nProblem"), "{page}");
        assert!(page.to_lowercase().contains("stability"), "{}: {page}", bundled.id);
        let brief = folder.run(&["theory", "b.toml", "--target-mse", "1e-3"]).exits(0).stdout;
        assert!(brief.lines().count() <= 25 && brief.lines().all(|line| line.chars().count() <= 100), "{}: {brief}", bundled.id);
    }
}

/// The default page: at most 25 lines of at most 100 characters, with the numbers of the JSON.
#[test]
fn the_short_page_has_at_most_25_lines() {
    let folder = Folder::with(SMALL);
    let json = both(&folder, &["small.toml"]).1;
    let brief = |args: &[&str]| folder.run(&[&["theory", "small.toml"], args].concat()).exits(0).stdout;
    let page = brief(&[]);
    let fits = |page: &str| page.lines().count() <= 25 && page.lines().all(|line| line.chars().count() <= 100);
    assert!(fits(&page), "{page}");
    for (i, label) in ["FedLSA", "SCAFFLSA"].into_iter().enumerate() {
        let value = |key: &str| json["methods"][i][key].as_f64().unwrap();
        let of = page.split("\n\n").find(|block| block.starts_with(&format!("{label}: "))).unwrap_or_else(|| panic!("{page}"));
        says(
            of,
            &[
                &format!("floor       {} (exact): ", number(value("floor"))),
                "helps most  ",
                &format!("stable      up to {}", numbers::rounded_down(value("largest_stable_step"))),
            ],
        );
    }
    says(&page, &["--full", "--target-mse"]);
    // A target has its costs, and what is in its way.
    let page = brief(&["--target-mse", "1e-9"]);
    says(&page, &["target      1e-9 is not reached: "]);
    // Many methods have a line each, and those that do not fit are counted.
    let swept = brief(&["--sweep", "problem.seed=1,2,3,4,5,6,7,8,9,10,11,12", "--target-mse", "0.1"]);
    assert!(fits(&swept), "{swept}");
    let rows = swept.lines().filter(|line| line.trim_start().starts_with("FedLSA,") || line.trim_start().starts_with("SCAFFLSA,")).count();
    says(&swept, &["rounds to 0.1", &format!("{} lines more with --full or --json.", 24 - rows)]);
    // What is not known has its reason once.
    let varies = brief(&["--set", "method.*.step_size={ c = 0.1, t0 = 10 }"]);
    says(&varies, &["floor       not known in closed form: the step size varies"]);
    let wild = brief(&["--set", "method.*.step_size=100"]);
    says(&wild, &["floor       DIVERGES (radius ", "below the present step"]);
    folder.run(&["theory", "small.toml", "--full", "--json"]).exits(2);
}

/// Three agents of eleven states: the joint chain has 13,310 unknowns, and a floor takes seconds. What does not fit is listed.
#[test]
fn what_takes_too_long_is_left_out_and_listed() {
    let folder =
        Folder::with(&SMALL.replace("agents = 4\nstates = 10\nfeatures = 3\nmin_class = 2", "agents = 3\nstates = 11\nfeatures = 4"));
    let markov = ["theory", "small.toml", "--set", "sampling.kind=\"markov\""];
    let page = folder.run(&markov).exits(0).stdout;
    says(&page, &["Left out, because it takes long (--full takes longer): "]);
    // The same on every machine, whatever else runs on it.
    assert_eq!(folder.run(&markov).exits(0).stdout, page);
}

/// One number, rounded to the safe side, wherever a page has it: Garnet with 5 agents, whose largest stable step is 17.537.
#[test]
fn a_page_has_one_largest_stable_step() {
    let garnet = "agents = 5\nstates = 18\nfeatures = 4\ngamma = 0.7\nheterogeneity = \"independent\"\nseed = 20261123";
    let text = SMALL.replace("agents = 4\nstates = 10\nfeatures = 3\nmin_class = 2", garnet).replace("local_steps = 10", "local_steps = 3");
    let folder = Folder::with(&text);
    let (page, json) = both(&folder, &["small.toml"]);
    let step = json["methods"][0]["largest_stable_step"].as_f64().unwrap();
    assert!((step - 17.537).abs() < 5e-4, "{step}");
    says(&section(&page, "FedLSA"), &["stable up to step_size = 17.53", "H = 3 (as in the file) up to 17.53"]);
    says(&folder.run(&["theory", "small.toml"]).exits(0).stdout, &["stable      up to 17.53,"]);
}

/// A hundred distinct agents: scans end by counted work, and the page says where.
#[test]
fn scans_that_are_cut_short_are_named() {
    let folder = Folder::with(bundled("scafflsa/fig1-high"));
    let few = ["--unset", "sweep", "--unset", "check", "--set", "problem.agents=32"];
    let page = folder.run(&[&["theory", "--full", "small.toml", "--target-mse", "1e-3"][..], &few].concat()).exits(0).stdout;
    let text = section(&page, "SCAFFLSA");
    says(&text, &["The largest stable step is not computed", "takes too long", "H = 10000 (as in the file)", "was cut short at "]);
}

/// The flagship and an experiment under Gauss-Markov noise.
#[test]
fn pages_of_bundled_experiments_have_the_numbers_of_the_json() {
    let folder = Folder::with(bundled("fedhsa/fig2-noisy"));
    let (page, json) = both(&folder, &["small.toml"]);
    let methods = json["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 4);
    for method in methods {
        let title = format!("{}, at {} (problem", method["method"].as_str().unwrap(), method["point"].as_str().unwrap());
        let text = section(&page, &title);
        let value = |key: &str| number(method[key].as_f64().unwrap());
        says(&text, &[&format!("The error stays at {} in the end (exact)", value("floor"))]);
        if method["bias2"].as_f64().unwrap() > 0.0 {
            says(&text, &[&format!("bias {} ", value("bias2"))]);
        }
        says(&text, &["mixing ", "stable up to step_size = "]);
    }
    says(
        &section(&page, "Problem 1"),
        &[
            "The noise remembers",
            &format!("forgets in about {} samples", number(json["problems"][0]["mixing"]["relaxation_time"].as_f64().unwrap())),
        ],
    );
    // A smaller figure 1.
    let folder = Folder::with(bundled("scafflsa/fig1-high"));
    let (page, json) = both(&folder, &["small.toml", "--set", "problem.agents=5"]);
    let first = &json["methods"][0];
    let text = section(&page, "FedLSA, at ");
    says(&text, &[&number(first["floor"].as_f64().unwrap()), &number(first["bias2"].as_f64().unwrap()), "The bias limits it"]);
}

/// Theorems beside exact values, in text and JSON.
#[test]
fn theorems_stand_beside_exact_values() {
    let small = ["--set", "method.*.step_size=0.0001", "--set", "method.*.local_steps=2"];
    let folder = Folder::with(&crate::common::edited(
        SMALL,
        "[run]",
        "[[method]]\nkind = \"fedhsa\"\nlabel = \"FedHSA\"\nstep_size = 0.1\nlocal_steps = 10\n\n[run]",
    ));
    let (page, json) = both(&folder, &[&["small.toml", "--target-mse", "0.5"][..], &small].concat());
    for (i, (label, name)) in
        [("FedLSA", "[S] Theorem A.5"), ("SCAFFLSA", "[S] Theorem 5.3"), ("FedHSA", "[F] Theorem 1")].into_iter().enumerate()
    {
        let statement = &json["methods"][i]["statements"][0];
        assert!(statement["statement"].as_str().unwrap().starts_with(name), "{statement}");
        let keys: Vec<&str> = statement.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["statement", "of", "terms", "value", "is_shape", "constants", "assumptions", "exact", "holds", "rounds"]);
        assert_eq!((&statement["holds"], &statement["rounds"]), (&true.into(), &20.into()), "{statement}");
        let text = section(&page, label);
        let (value, exact) = (statement["value"].as_f64().unwrap(), statement["exact"].as_f64().unwrap());
        says(&text, &["What the theorems of the papers say", "Its conditions hold: ", &number(exact)]);
        if name != "[F] Theorem 1" {
            assert!(exact <= value, "{statement}");
            says(&text, &[&format!("is at most {} ", number(value)), &format!("exactly it is {}", number(exact))]);
        }
    }
    says(&section(&page, "FedHSA"), &["up to factors that the source does not state"]);
    // The corollaries' choices, of methods that have some.
    let corollaries = |i: usize| -> Vec<&str> {
        let all = json["methods"][i]["target"]["corollaries"].as_array().unwrap();
        all.iter().map(|one| one["statement"].as_str().unwrap()).collect()
    };
    let of = |numbers: &[&str]| numbers.iter().map(|number| format!("[S] Corollary {number}, with constants")).collect::<Vec<_>>();
    assert_eq!([corollaries(0), corollaries(1), corollaries(2)], [of(&["4.4", "4.5", "4.6"]), of(&["5.4", "5.5"]), Vec::new()]);
    says(&section(&page, "SCAFFLSA"), &["Their corollaries choose", "[S] Corollary 5.4, with constants"]);
    // With the steps of the file a condition fails, which is named with its numbers.
    let (page, json) = both(&folder, &["small.toml"]);
    let statement = &json["methods"][1]["statements"][0];
    assert_eq!(statement["holds"], false);
    let failed: Vec<String> = statement["assumptions"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["holds"] == false)
        .map(|one| format!("{} ({})", one["name"].as_str().unwrap(), one["text"].as_str().unwrap()))
        .collect();
    assert!(!failed.is_empty());
    says(&section(&page, "SCAFFLSA"), &["does not apply, because ", &format!(": {}.", failed.join("; "))]);
    // Reasons in place of statements.
    let random = both(&folder, &["small.toml", "--set", "run.start=\"normal\""]).1;
    assert!(random["methods"][0]["statements"].is_null());
    assert_eq!(random["methods"][0]["unknown"]["statements"], serde_json::json!({ "code": "not-known", "text": "the start is random" }));
}

/// What is wrong with a command is said, and nothing is written.
#[test]
fn bad_files_and_settings_are_refused() {
    let folder = Folder::with(SMALL);
    folder.write("mine/theory-curves.svg", "mine");
    let before: Vec<_> = folder.everything().into_iter().map(|(path, ..)| path).collect();
    for (args, says) in [
        (&["none.toml"][..], "cannot be read"),
        (&["small.toml", "--set", "method.FedLSA.kind=fedlas"], "did you mean `fedlsa`"),
        (&["small.toml", "--set", "method.FedLSA.uplink={ codec = { kind = \"quantized\", bits = 4 } }"], "quantised"),
        (&["small.toml", "--set", "method.FedLSA.step_size=-1"], "step_size"),
        (&["small.toml", "--target-mse", "inf"], "not a positive number"),
        (&["small.toml", "--target-mse", "1e-400"], "not a positive number"),
        (&["small.toml", "--out", "mine"], "exists already"),
    ] {
        let output = folder.run(&[&["theory"], args].concat()).exits(2);
        let message = format!("{} {}", output.message(), output.stderr);
        assert!(message.contains(says) && output.stdout.is_empty(), "{args:?}: {message}");
    }
    let after: Vec<_> = folder.everything().into_iter().map(|(path, ..)| path).collect();
    assert_eq!(before, after);
    assert_eq!(folder.text("mine/theory-curves.svg"), "mine");
    // A target below the rounding of theta*: what rounding leaves is not the method's.
    for more in [&["--json"][..], &[]] {
        let args = [&["theory", "small.toml", "--target-mse", "1e-33", "--set", "sampling.kind=\"mean\""], more].concat();
        let output = folder.run(&args).exits(2);
        assert!(output.message().contains("below what rounding leaves of theta*") && output.stdout.is_empty(), "{}", output.stderr);
        assert!(output.message().contains("--target-mse"), "{}", output.stderr);
    }
}

/// A bias is 0 only where it is so whatever the step is, and a rate that is 1 to rounding gives no rounds.
#[test]
fn tiny_steps_have_no_bias_of_0_and_no_rounds() {
    let folder = Folder::with(SMALL);
    let step = |eta: &str| format!("method.FedLSA.step_size={eta}");
    // Small against the floor, and seen.
    let (page, json) = both(&folder, &["small.toml", "--set", &step("1e-9"), "--target-mse", "0.1"]);
    let bias = json["methods"][0]["bias2"].as_f64().unwrap();
    let text = section(&page, "FedLSA");
    assert!(bias > 0.0);
    says(&text, &[&format!("bias {} ", number(bias))]);
    // Below what rounding leaves, where the radius is 1 to rounding too.
    let (page, json) = both(&folder, &["small.toml", "--set", &step("1e-16"), "--target-mse", "0.1"]);
    let text = section(&page, "FedLSA");
    says(&text, &["below what rounding leaves of theta*", "the rate cannot be told from 1 at this precision"]);
    assert!(!text.contains("none:") && !text.contains("the bias is 0") && !text.contains("is first reached after"), "{text}");
    let target = &json["methods"][0]["target"];
    let why = target["unknown"]["reached"]["text"].as_str().unwrap();
    assert!(why.contains("cannot be told from 1") && target["reached"].is_null() && target.get("rounds").is_none(), "{target}");
    // The same system of all agents has none.
    let alike = ["small.toml", "--set", "problem.agents=1", "--set", &step("1e-9")];
    says(&section(&both(&folder, &alike).0, "FedLSA"), &["bias 0 0% none: all agents have the same operator"]);
}

#[test]
fn a_start_that_has_the_error_already_needs_no_round() {
    let folder = Folder::with(SMALL);
    let (page, json) = both(&folder, &["small.toml", "--target-mse", "1e6"]);
    let target = &json["methods"][0]["target"];
    let at_start = target["at_start"].as_f64().unwrap();
    let norm = json["problems"][0]["theta_star_norm"].as_f64().unwrap();
    assert!((at_start / (norm * norm) - 1.0).abs() < 1e-12, "{at_start} {norm}");
    assert_eq!((&target["reached"], target["rounds"].as_f64()), (&true.into(), Some(0.0)));
    let says_so = format!("The start has the mean-square error {} already, at most {}: no round is needed.", number(at_start), number(1e6));
    says(&section(&page, "FedLSA"), &[&says_so]);
    let random = both(&folder, &["small.toml", "--target-mse", "1e6", "--set", "run.start=\"normal\""]).0;
    says(&section(&random, "FedLSA"), &["already, on average over random starts"]);
}

/// The theorems on TD in text and JSON, over a link of each kind.
#[test]
fn theorems_on_td_stand_on_the_page_with_their_constants() {
    let problem = "kind = \"mrp\"\nagents = 3\nstates = 5\nfeatures = 2\nseed = 3\nreward_range = [0.0, 1.0]";
    let folder = Folder::with(&crate::common::with_problem(problem));
    let small = ["small.toml", "--set", "method.FedLSA.step_size=1e-7", "--set", "method.FedLSA.local_steps=1", "--target-mse", "0.1"];
    let links = [
        ("{ media = [] }", "[T] Theorem 4.2", "p, the probability that a message arrives = 1"),
        ("{ media = [{ kind = \"erasure\", success = 0.5 }] }", "[T] Theorem 4.2", "p, the probability that a message arrives = 0.5"),
        ("{ media = [{ kind = \"over-the-air\", receiver_noise = 0.5 }] }", "[T] Theorem 4.3", "s_w, the receiver's noise in N v = 0.5"),
        ("{ media = [{ kind = \"delay\", law = \"constant\", rounds = 3 }] }", "[T] Theorem 4.4", "tau_max, the longest delay = 3"),
    ];
    for (link, name, constant) in links {
        let uplink = format!("method.FedLSA.uplink={link}");
        let (page, json) = both(&folder, &[&small[..], &["--set", &uplink]].concat());
        let text = section(&page, "FedLSA");
        let all = json["methods"][0]["statements"].as_array().unwrap();
        let found = all.iter().find(|one| one["statement"] == name).unwrap_or_else(|| panic!("no {name} in {all:?}"));
        assert_eq!(found["holds"], true, "{found}");
        says(&text, &[&format!("{name}: after 20 rounds"), &format!("is at most {} (", number(found["value"].as_f64().unwrap()))]);
        says(&text, &["Its constants: omega, the least eigenvalue of the feature covariance = ", constant]);
        let omega = &found["constants"][0]["value"];
        assert_eq!(omega, &json["problems"][0]["td"]["nu"]);
        let corollary = all.iter().find(|one| one["statement"].as_str().unwrap().starts_with("[S] Corollary 4.3")).unwrap();
        assert_eq!(corollary["holds"] == true, link == links[0].0, "{corollary}");
        let chosen = json["methods"][0]["target"]["corollaries"].as_array().unwrap();
        assert_eq!(chosen.iter().any(|one| one["statement"] == "[S] Corollary 4.6, with constants"), link == links[0].0, "{chosen:?}");
    }
}

/// A prediction that a file asks for and that is not known is in the summary, with its reason; what it does not ask for is not.
#[test]
fn predictions_that_are_not_known_stay_in_the_summary() {
    let folder = Folder::with(SMALL);
    let ask = ["--set", "figure.levels={ FedLSA=[\"floor\", \"bias2\"], SCAFFLSA=[\"floor\"] }", "--set", "figure.exact=[\"FedLSA\"]"];
    let run = |out: &str, more: &[&str]| {
        folder.run(&[&["run", "small.toml", "-q", "--out", out], &ask[..], more].concat()).exits(0);
        folder.json(&format!("{out}/summary.json"))["results"].as_array().unwrap().clone()
    };
    let varies = run("varies", &["--set", "method.FedLSA.step_size={ c = 0.1, t0 = 10 }"]);
    for name in ["floor", "bias2"] {
        assert!(varies[0]["predicted"].get(name).is_some_and(Value::is_null), "{}", varies[0]);
    }
    for name in ["floor", "bias2", "curve"] {
        let reason = &varies[0]["predicted_unknown"][name];
        assert_eq!(reason["code"], "not-known");
        assert!(reason["text"].as_str().unwrap().contains("the step size varies"), "{name}: {reason}");
    }
    // The other method, and the same file with a constant step, have numbers and no such table.
    for result in [&varies[1], &run("known", &[])[0]] {
        assert!(result["predicted"]["floor"].as_f64().is_some() && result.get("predicted_unknown").is_none(), "{result}");
    }
}
