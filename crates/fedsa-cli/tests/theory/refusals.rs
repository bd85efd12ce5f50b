//! What is refused, not known, or left out.

use super::*;

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

/// A hundred distinct agents: scans end by counted work, and the page says where.
#[test]
fn scans_that_are_cut_short_are_named() {
    let folder = Folder::with(bundled("scafflsa/fig1-high"));
    let few = ["--unset", "sweep", "--unset", "check", "--set", "problem.agents=32"];
    let page = folder.run(&[&["theory", "--full", "small.toml", "--target-mse", "1e-3"][..], &few].concat()).exits(0).stdout;
    let text = section(&page, "SCAFFLSA");
    says(&text, &["The largest stable step is not computed", "takes too long", "H = 10000 (as in the file)", "was cut short at "]);
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
