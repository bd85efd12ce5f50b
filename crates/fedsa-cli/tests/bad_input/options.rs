//! Options of the command line.

use super::*;

#[test]
fn options_that_set_keys_are_checked() {
    let folder = Folder::with(SMALL);
    let set = |value: &str, expected: &[&str]| refused(&folder, &["run", "small.toml", "--set", value], expected);
    set("run.rounds", &["--set: `run.rounds` has no `=`", "--set KEY=VALUE"]);
    set("=3", &["an empty part in a dotted key"]);
    set("run.round=3", &["run.round: unknown key `round`; did you mean `rounds`? (set by --set run.round=3)"]);
    set("run.rounds=abc", &["run.rounds: \"abc\" is not accepted (set by --set run.rounds=abc)", "a whole number"]);
    set("run.rounds=3\nseeds=4", &["run.rounds: \"3\\nseeds=4\" is not accepted"]);
    set("problem.agents=-1", &["problem.agents: -1 is not accepted (set by --set problem.agents=-1)"]);
    set("method.Nobody.step_size=1", &["there is no method `Nobody`", "one of FedLSA, SCAFFLSA, or *"]);
    set("method.SCAFFLSA.step_size=-1", &["method[1].step_size: -1 is not accepted (set by --set method.SCAFFLSA.step_size=-1)"]);
    set("method.*.local_steps=0", &["method[0].local_steps: 0 is not accepted (set by --set"]);
    set("method.FedLSA=3", &["`FedLSA` is a whole table", "a key within it"]);
    set("id.x=3", &["--set: id: \"small\" is not a table"]);
    set("problem=3", &["problem: 3 is not a table", "(set by --set problem=3)"]);
    let bad = |args: &[&str], expected: &[&str]| {
        let all: Vec<&str> = ["run", "small.toml"].iter().chain(args).copied().collect();
        refused(&folder, &all, expected)
    };
    bad(&["--rounds", "0"], &["run.rounds: 0 is not accepted (set by --rounds 0)", "between 1 and"]);
    bad(&["--seeds", "0"], &["run.seeds: 0 seeds (set by --seeds 0)"]);
    bad(&["--seeds", "-1"], &["invalid value '-1' for '--seeds <N>'"]);
    bad(&["--threads", "0"], &["invalid value '0' for '--threads <N>'"]);
    bad(&["--checkpoint-every", "-1"], &["not a number of seconds"]);
    bad(&["--resume", "--overwrite"], &["cannot be used with"]);
    bad(&["--frobnicate"], &["unexpected argument '--frobnicate'"]);
    // An option without effect is refused.
    let swept = Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"run.rounds\"\nvalues = [5, 6]\n"));
    let expected = ["run.rounds: a sweep or variant sets this key at every point", "(set by --rounds 3)", "--set sweep.0.values"];
    refused(&swept, &["run", "small.toml", "--rounds", "3"], &expected);
    swept.run(&["run", "small.toml", "--set", "sweep.0.values=[3]", "-q"]).exits(0);
}

#[test]
fn integers_beyond_the_largest_are_reported_as_too_large() {
    let folder = Folder::with(SMALL);
    let large = "18446744073709551615";
    for set in [
        "method.FedLSA.uplink.media=[{kind=\"delay\",law=\"constant\",rounds=18446744073709551615}]",
        "sampling={kind=\"markov\",batch=18446744073709551615}",
        "run.seeds=[1, 18446744073709551615]",
        "run.rounds=18446744073709551615",
    ] {
        let expected = format!("--set: the number {large} is too large");
        refused(&folder, &["check", "small.toml", "--set", set], &[&expected, "9223372036854775807"]);
    }
    for number in ["18446744073709551616", "0xFFFF_FFFF_FFFF_FFFF", "1e400", "99999999999999999999999999999999999999999999"] {
        let expected = format!("--set: the number {number} is too large");
        refused(&folder, &["check", "small.toml", "--set", &format!("run.start=[{number}, 1e500]")], &[&expected]);
    }
    refused_edit("rounds = 20", "rounds = 18446744073709551615", &["the number 18446744073709551615 is too large"]);
    let small = "--set: the number -9223372036854775809 is too small";
    refused(&folder, &["check", "small.toml", "--set", "run.seeds=[-9223372036854775809]"], &[small]);
    let sweep = format!("sampling.batch=1,{large}");
    refused(&folder, &["check", "small.toml", "--sweep", &sweep], &[&format!("--sweep: the number {large} is too large")]);
    // Digits inside a text are not a number.
    folder.run(&["check", "small.toml", "--set", "title=run 18446744073709551615"]).exits(0);
}

#[test]
fn options_that_another_option_replaces_are_checked_first() {
    let folder = Folder::with(SMALL);
    let bad = |set: &str, option: &str, expected: &str| {
        let text = format!("{expected} (set by --set {set})");
        refused(&folder, &["run", "small.toml", "--set", set, option, "1"], &[&text]);
    };
    bad("run.seeds=[1,1]", "--seeds", "run.seeds: the seed 1 is given twice");
    bad("run.seeds=0", "--seeds", "run.seeds: 0 seeds");
    bad("run.rounds=0", "--rounds", "run.rounds: 0 is not accepted");
    bad("run.rounds=many", "--rounds", "run.rounds: \"many\" is not accepted");
    folder.run(&["check", "small.toml", "--set", "run.seeds=[1, 3]", "--seeds", "1"]).exits(0).says("2 different runs");
}

#[test]
fn a_kind_that_an_option_sets_is_named_where_keys_do_not_fit_it() {
    let linear = Folder::with(&with_problem("kind = \"linear\"\nagents = 4\ndim = 3"));
    let set = ["check", "small.toml", "--set", "method.*.kind=\"newton\""];
    let because = "(kind set by --set method.*.kind=\"newton\")";
    let expected = ["method[0].step_size: unknown key `step_size`", because, "small.toml:14:", "--unset method.*.step_size"];
    refused(&linear, &set, &expected);
    let expected = ["method[0].local_steps: unknown key `local_steps`", "(kind set by --set method.FedLSA.kind=qfedtd)", "--unset"];
    refused(&linear, &["check", "small.toml", "--set", "method.FedLSA.kind=qfedtd"], &expected);
    let expected = ["method[0]: the key `radius` is missing (kind set by --set method.FedLSA.kind=projected-td)"];
    refused(&linear, &["check", "small.toml", "--set", "method.FedLSA.kind=projected-td"], &expected);
    let expected = ["problem.min_class: unknown key `min_class`", "(kind set by --set problem.kind=mrp)"];
    refused(&Folder::with(SMALL), &["check", "small.toml", "--set", "problem.kind=mrp"], &expected);
    // A key that is wrong with any kind is not blamed on the option.
    let message = refused(&linear, &["check", "small.toml", "--set", "method.FedLSA.kind=scafflsa", "--rounds", "0"], &["--rounds 0"]);
    assert!(!message.contains("kind set by"), "{message}");
}

#[test]
fn keys_are_removed_on_the_command_line() {
    let linear = Folder::with(&with_problem("kind = \"linear\"\nagents = 4\ndim = 3").replace("\"iid\"", "\"mean\""));
    let newton = ["--set", "method.*.kind=newton", "--unset", "method.*.step_size", "--unset", "method.*.local_steps"];
    let with = |args: &[&'static str]| [args, &newton[..]].concat();
    linear.run(&with(&["check", "small.toml"])).exits(0).says("FedLSA: newton, ");
    linear.run(&with(&["run", "small.toml", "-q"])).exits(0);
    // What ran is written as it is with --set, and runs again.
    let config = linear.text("out/small/config.toml");
    assert!(config.contains("kind = \"newton\"") && !config.contains("step_size"), "{config}");
    linear.run(&["run", "out/small/config.toml", "--out", "again", "-q"]).exits(0);
    assert!(linear.read("again/config.toml") == linear.read("out/small/config.toml"));
    assert!(linear.read("again/trace.parquet") == linear.read("out/small/trace.parquet"));
    // Presets: what a file says no longer replaces what the preset says. Defaults return.
    let folder = Folder::with(&small("label = \"FedLSA\"", "label = \"FedLSA\"\nglobal_step_size = 0.5"));
    let output = folder.run(&["check", "small.toml", "--unset", "method.0.global_step_size"]).exits(0);
    assert!(output.stdout.contains("global_step_size = 1.0") && !output.stdout.contains("global_step_size = 0.5"), "{}", output.stdout);
    // Of several methods those that have the key; quick settings too; --unset before --set.
    folder.run(&["check", "small.toml", "--unset", "method.*.global_step_size"]).exits(0);
    folder.run(&["check", "small.toml", "--unset", "run.rounds", "--set", "run.rounds=5"]).exits(0).says("rounds = 5,");
    folder.run(&["theory", "small.toml", "--unset", "run.seeds"]).exits(0);
    let swept =
        Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"run.rounds\"\nvalues = [5, 6]\n[quick]\n\"run.stop\" = {{ mse = 1.0 }}\n"));
    swept.run(&["check", "small.toml", "--unset", "sweep"]).exits(0).says("1 point x 2 methods");
    swept.run(&["check", "small.toml", "--quick", "--unset", "run.stop"]).exits(0);
    let bad = |key: &str, expected: &[&str]| refused(&swept, &["run", "small.toml", "--unset", key], expected);
    bad("run.round", &["--unset: run.round is not set; did you mean `rounds`?", "one of rounds, seeds"]);
    bad("method.FedLSA.uplink.media", &["--unset: method[0].uplink is not set"]);
    bad("method.*.radius", &["--unset: method[0].radius is not set"]);
    bad("method.Nobody.step_size", &["--unset: there is no method `Nobody`", "one of FedLSA, SCAFFLSA, or *"]);
    bad("method.FedLSA", &["--unset: method: `FedLSA` is a whole table", "a key within it"]);
    bad("id.x", &["--unset: id: \"small\" is not a table"]);
    bad("", &["an empty part in a dotted key"]);
    bad("run.rounds=5", &["--unset: `run.rounds=5` has a value", "--unset KEY"]);
    bad("quick.run.rounds", &["--unset: `quick.run.rounds` is a quick setting"]);
    bad("method.FedLSA.step_size", &["the key `step_size` is missing (at rounds=5) (removed by --unset method.FedLSA.step_size)"]);
    // What a sweep sets at every point cannot be removed.
    bad("run.rounds", &["run.rounds: a sweep or variant sets this key at every point", "(removed by --unset run.rounds)"]);
    swept.run(&["run", "small.toml", "--help"]).exits(0).says("--unset <KEY>");
}

#[test]
fn missing_data_sets_are_told_with_how_to_get_them() {
    let folder = Folder::with(&with_problem(&LOGS.replace("log.csv", "transitions/mountaincar")));
    let expected = ["problem.path: transitions/mountaincar: there is no such file or directory", "FEDSA_DATA", "[small.toml:5:"];
    refused(&folder, &["run", "small.toml"], &expected);
    refused(&folder, &["evaluate", "transitions/mountaincar"], &["transitions/mountaincar: there is no such file", "FEDSA_DATA"]);
    refused(&folder, &["reproduce", "cross/logs"], &["transitions/mountaincar", "FEDSA_DATA", "experiments/cross/logs.toml:"]);
    let mut command = folder.command(&["run", "small.toml"]);
    command.env("FEDSA_DATA", folder.path("nowhere"));
    let output = crate::common::finish(command).exits(2);
    assert!(output.message().contains("nor is it in"), "{}", output.stderr);
    assert!(output.stderr.contains("nowhere"));
}

#[test]
fn flags_of_evaluate_are_named_in_its_messages() {
    let folder = Folder::new();
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0,1,0\n0.5,1,0,1\n");
    let bad = |args: &[&str], expected: &[&str]| {
        let all: Vec<&str> = ["evaluate", "a.csv", "--features", "fourier:1", "--out", "out"].iter().chain(args).copied().collect();
        refused(&folder, &all, expected)
    };
    bad(&["--step-size", "-1"], &["--step-size: -1 is not accepted", "a positive number"]);
    bad(&["--gamma", "1.5"], &["--gamma: 1.5 is not accepted"]);
    bad(&["--local-steps", "0"], &["--local-steps: 0 is not accepted"]);
    bad(&["--max-rounds", "0"], &["--max-rounds: 0 is not accepted"]);
    bad(&["--ridge", "-1"], &["--ridge: -1 is not accepted"]);
    bad(&["--scaling", "unit"], &["--scaling", "unit"]);
    bad(&["--tol", "-1"], &["--tol: -1 is not accepted"]);
    bad(&["--method", "fedhs"], &["--method: there is no method `fedhs`; did you mean `fedhsa`?"]);
    bad(&["--sampling", "idd"], &["--sampling: unknown value `idd`; did you mean `iid`?"]);
    bad(&["--ranges", "s_0"], &["--ranges", "`s_0` is not COLUMN=LOW:HIGH"]);
    bad(&["--ranges", "s_9=0:1"], &["--ranges: there is no state column `s_9`"]);
    bad(&["--method", "projected-td"], &["--set: projected-td needs it", "--set method.projected-td.radius=VALUE"]);
    bad(&["--set", "run.round=1"], &["unknown key `round`", "(set by --set run.round=1)"]);
    let message = bad(&["--method", "fedhsa", "--step-size", "1000"], &["--step-size: ", "fedhsa is unstable with these settings"]);
    let step = message.split("stable up to step_size = ").nth(1).unwrap().split(';').next().unwrap();
    folder
        .run(&[
            "evaluate",
            "a.csv",
            "--features",
            "fourier:1",
            "--method",
            "fedhsa",
            "--max-rounds",
            "3",
            "--tol",
            "0",
            "--step-size",
            step,
        ])
        .exits(0);
    refused(
        &folder,
        &["evaluate", "a.csv", "--features", "forier:3", "--overwrite"],
        &["--features: `forier:3` names no features", "fourier:ORDER"],
    );
}

#[test]
fn unstable_steps_are_refused_with_one_that_is_stable() {
    let kinds = [
        ("fedlsa", "local_steps = 10"),
        ("scafflsa", "local_steps = 10"),
        ("scafflsa-random", "talk_probability = 0.1"),
        ("fedhsa", "local_steps = 10"),
    ];
    for (kind, steps) in kinds {
        let text = small("kind = \"fedlsa\"", &format!("kind = \"{kind}\"")).replacen("local_steps = 10", steps, 1);
        let unstable = edited(&text, "step_size = 0.1", "step_size = 1000.0");
        let folder = Folder::with(&unstable);
        let expected =
            ["method[0].step_size: FedLSA is unstable with these settings", "the radius of a noiseless round is", "[small.toml:16:"];
        let message = refused(&folder, &["run", "small.toml"], &expected);
        refused(&folder, &["check", "small.toml"], &[&message]);
        let step: String =
            message.split("stable up to step_size = ").nth(1).unwrap().chars().take_while(|c| "0123456789.e-".contains(*c)).collect();
        let set = format!("method.FedLSA.step_size={step}");
        folder.run(&["check", "small.toml", "--set", &set]).exits(0).says("ok\n");
        // The named step is the largest one: a slightly larger one is refused.
        let more = format!("method.FedLSA.step_size={}", 1.01 * step.parse::<f64>().unwrap());
        refused(&folder, &["check", "small.toml", "--set", &more], &["unstable"]);
    }
}

#[test]
fn an_unstable_step_may_be_run_when_that_is_meant() {
    let folder = Folder::with(&small("step_size = 0.1", "step_size = 1000.0"));
    // With --force: the run ends with a status, not a NaN, and not as expected.
    let output = folder.run(&["run", "small.toml", "--force", "--out", "forced"]).exits(1);
    assert!(
        output.stdout.contains("FedLSA: diverged in round ") && output.stdout.contains("stable up to step_size = "),
        "{}",
        output.stdout
    );
    let result = &folder.json("forced/summary.json")["results"][0];
    assert_eq!((&result["status"], &result["as_expected"]), (&"diverged".into(), &false.into()));
    assert!(result["diverged_at_round"].as_u64().unwrap() >= 1 && result["largest_stable_step"].as_f64().unwrap() < 1000.0);
    folder.run(&["check", "small.toml", "--force"]).exits(0);
    // With expect = "diverges": the run ends as expected.
    folder.write("expected.toml", edited(&folder.text("small.toml"), "label = \"FedLSA\"", "label = \"FedLSA\"\nexpect = \"diverges\""));
    folder.run(&["check", "expected.toml"]).exits(0);
    folder.run(&["run", "expected.toml", "--out", "expected"]).exits(0).says("FedLSA: diverged in round");
    assert_eq!(folder.json("expected/summary.json")["passed"], true);
    // A sweep point: allowed, but not as expected.
    let swept = format!("{}\n[[sweep]]\nkey = \"method.FedLSA.step_size\"\nvalues = [0.1, 1000.0]\n", SMALL);
    folder.write("swept.toml", swept);
    folder.run(&["check", "swept.toml"]).exits(0).says("UNSTABLE");
    folder.run(&["run", "swept.toml", "--out", "swept"]).exits(1).says("FedLSA at step_size=1000.0: diverged");
    // With quick settings too, an unexpected divergence counts.
    let quick = format!("{}\n[quick]\n\"method.FedLSA.step_size\" = 1000.0\n", SMALL);
    folder.write("quick.toml", quick);
    refused(&folder, &["run", "quick.toml", "--quick", "--out", "quick"], &["FedLSA is unstable", "[quick.toml:"]);
}

#[test]
fn bundled_experiments_are_found_by_name() {
    let folder = Folder::new();
    let expected = ["no bundled experiment `scafflsa/fig1-hihg`; did you mean `scafflsa/fig1-high`?", "all, or one of"];
    refused(&folder, &["reproduce", "scafflsa/fig1-hihg"], &expected);
    refused(&folder, &["reproduce", "nonsense"], &["no bundled experiment `nonsense`"]);
    refused(&folder, &["reproduce"], &["required arguments", "<ID>"]);
    refused(&folder, &["reproduce", "scafflsa/fig1-high", "--set", "run.round=1"], &["unknown key `round`", "(set by --set run.round=1)"]);
    refused(&folder, &["completions", "tcsh"], &["invalid value 'tcsh'"]);
    refused(&folder, &["frobnicate"], &["unrecognized subcommand"]);
}

#[test]
fn sweeps_are_given_on_the_command_line() {
    let folder = Folder::with(SMALL);
    let says = |args: &[&str], text: &str| {
        folder.run(&[&["check", "small.toml"], args].concat()).exits(0).says(text);
    };
    says(&["--sweep", "method.*.step_size=0.01,0.1"], "at step_size=0.01 (problem 0)");
    says(&["--sweep", "run.rounds=5,10", "--sweep", "problem.agents=2,3"], "at rounds=10, agents=3");
    says(&["--sweep", "run.start=zero,root"], "at start=root");
    says(&["--sweep", "method.0.step_size={ c = 1.0, t0 = 20 }, 0.1", "--set", "method.0.expect=ok"], "2 points x 2 methods");
    says(&["--sweep", "run.seeds=[1, 2],[3]"], "2 points");
    let bad = |sweep: &str, expected: &[&str]| refused(&folder, &["run", "small.toml", "--sweep", sweep], expected);
    bad("run.rounds", &["--sweep: `run.rounds` has no `=`", "--sweep KEY=V1,V2"]);
    bad("run.rounds=1,,2", &["`run.rounds=1,,2` lacks a value"]);
    bad("run.rounds=", &["lacks a value"]);
    bad("=1", &["lacks a key"]);
    bad("run.rounds=5,5", &["two points are both at `rounds=5` (set by --sweep run.rounds=5,5)"]);
    // The option is named, and not a sweep of the file that is about another key.
    let twice = ["check", "small.toml", "--sweep", "method.FedLSA.step_size=0.1,0.1"];
    let swept = Folder::with(&format!("{SMALL}\n[[sweep]]\nkey = \"problem.agents\"\nvalues = [2, 4]\n"));
    let expected = ["are both at `agents=2, step_size=0.1` (set by --sweep method.FedLSA.step_size=0.1,0.1)"];
    assert!(!refused(&swept, &twice, &expected).contains("small.toml:"));
    bad("run.rounds=5,0", &["run.rounds: 0 is not accepted (at rounds=0) (set by --sweep run.rounds=5,0)"]);
    bad("run.rouns=5", &["unknown key `rouns`; did you mean `rounds`?", "(set by --sweep run.rouns=5)"]);
    bad("figure.x=round", &["`figure.x` is in none of the tables", "(set by --sweep figure.x=round)"]);
    refused(
        &folder,
        &["run", "small.toml", "--sweep", "run.rounds=5,6", "--rounds", "7"],
        &["the option has no effect", "(set by --rounds 7)"],
    );
    refused(
        &folder,
        &["run", "small.toml", "--sweep", "run.rounds=5", "--sweep", "run.rounds=6"],
        &["`run.rounds` is swept twice", "(set by --sweep run.rounds=6)"],
    );
    folder.run(&["run", "small.toml", "--sweep", "run.rounds=5,10", "-q", "--out", "out"]).exits(0);
    assert!(folder.text("out/config.toml").contains("key = \"run.rounds\"\nvalues = [5, 10]"), "{}", folder.text("out/config.toml"));
    assert_eq!(folder.json("out/summary.json")["results"].as_array().unwrap().len(), 4);
}
