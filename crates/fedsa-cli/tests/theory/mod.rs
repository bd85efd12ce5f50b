//! `fedsa theory`: the page for people, its numbers against the JSON and against runs, and its pictures.

mod bundled;
mod refusals;

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
        "id = \"unknown\"\nproblem = { kind = \"sarsa\", temperature = 0.0, exploration = 0.1 }\nmethod = [{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }]\nrun.rounds = 10",
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
