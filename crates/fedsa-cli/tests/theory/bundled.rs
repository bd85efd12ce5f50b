//! Pages of bundled experiments, and theorems.

use super::*;

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
