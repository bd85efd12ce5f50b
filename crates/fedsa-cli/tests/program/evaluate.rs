//! `fedsa evaluate`, and logs.

use super::*;

#[test]
fn logs_are_exported_as_linear_systems() {
    let folder = Folder::with(&crate::common::with_problem(
        "kind = \"logs\"\npath = \"a.csv\"\ngamma = 0.9\nfeatures = { kind = \"identity\", bias = true }",
    ));
    folder.write("a.csv", LOG);
    folder.run(&["export", "small.toml", "--npz", "p.npz"]).exits(0).says("p.npz: A, b, format, theta_local, theta_star, weights");
}

const LOG: &str = "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n";

#[test]
fn evaluate_gives_weights_from_logs() {
    let folder = Folder::new();
    for i in 0..3 {
        folder.write(&format!("logs/agent_{i}.csv"), LOG.replace("0.7", &format!("0.{}", 4 + i)));
    }
    // Methods of one step a round, and presets, have no number of local steps.
    let single = ["evaluate", "logs", "--features", "polynomial:1", "--gamma", "0.9", "--max-rounds", "3", "--method"];
    for method in ["fedtd", "qfedtd", "delayed-sa", "dasa"] {
        // Three rounds are too few, so the run misses its target.
        folder.run(&[&single[..], &[method, "--out", method]].concat()).exits(1).says("NOT as expected: the residual is ");
    }
    let refused = folder.run(&[&single[..], &["fedtd", "--out", "n", "--local-steps", "5"]].concat()).exits(2).message();
    assert!(refused.contains("--local-steps: 5, and fedtd has no such setting"), "{refused}");
    let args =
        ["evaluate", "logs", "--features", "polynomial:1", "--ranges", "s_0=-1:1", "--gamma", "0.9", "--local-steps", "5", "--out", "o"];
    let auto = folder.run(&[&args[..10], &["--out", "auto"]].concat()).exits(0);
    auto.says("lstd: 1 round, ")
        .says("the fewest bits to 1e-12")
        .says("  gmres: at most 3 rounds")
        .says("  fedhsa (step size 1, 5 local steps): about ");
    let args = [&args[..], &["--method", "fedhsa"]].concat();
    let output = folder.run(&args).exits(0);
    assert!(output.stdout.contains("2 weights after ") && output.stdout.contains("o/weights.json"), "{}", output.stdout);
    let weights = folder.json("o/weights.json");
    assert_eq!((&weights["format"], &weights["gamma"], &weights["method"]), (&1.into(), &0.9.into(), &"fedhsa".into()));
    assert_eq!(weights["agents"][2], serde_json::json!({ "name": "agent_2", "transitions": 4 }));
    assert_eq!((&weights["columns"], &weights["ranges"]), (&serde_json::json!(["s_0"]), &serde_json::json!({ "s_0": [-1.0, 1.0] })));
    assert_eq!((weights["features"].as_array().unwrap().len(), weights["theta"].as_array().unwrap().len()), (2, 2));
    assert!(weights["distance_to_lstd"].as_f64().unwrap() < 1e-9, "{weights}");
    let arrays = npz::read(&folder.path("o/weights.npz")).unwrap();
    assert_eq!(
        arrays.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        ["format", "gamma", "lstd", "theta"],
        "no errors of weights from 12 transitions"
    );
    // It stopped at its target, and its config.toml is the experiment.
    assert_eq!(folder.json("o/summary.json")["results"][0]["stopped_at_target"], 1);
    folder.run(&["run", "o/config.toml", "--out", "again", "-q"]).exits(0);
    assert!(folder.read("o/trace.parquet") == folder.read("again/trace.parquet"));
    // Files one by one, in any order; a glob; other methods and settings.
    let same = |logs: &[&str], out: &str| {
        folder
            .run(&[&["evaluate"], logs, &args[2..8], &["--method", "fedhsa", "--local-steps", "5", "--out", out, "-q"]].concat())
            .exits(0);
        assert!(folder.read(&format!("{out}/trace.parquet")) == folder.read("o/trace.parquet"), "{out}");
    };
    same(&["logs/agent_2.csv", "logs/agent_0.csv", "logs/agent_1.csv"], "files");
    same(&["logs/agent_*.csv"], "glob");
    for method in ["fedlsa", "scafflsa", "scafflsa-random"] {
        let options = [
            "evaluate",
            "logs",
            "--features",
            "polynomial:1",
            "--method",
            method,
            "--max-rounds",
            "50",
            "--sampling",
            "iid",
            "--out",
            method,
        ];
        folder.run(&options).exits(1).says("2 weights after 50 rounds");
    }
    let output = folder.run(&["evaluate", "logs", "--features", "polynomial:1", "--out", "o", "--max-rounds", "3"]).exits(2).message();
    assert!(output.contains("o holds a finished evaluation"), "{output}");
}

#[test]
fn evaluate_says_what_it_read_and_how_long_it_takes() {
    let folder = Folder::new();
    for i in 0..2 {
        folder.write(&format!("logs/agent_{i}.csv"), LOG.replace("0.7", &format!("0.{}", 4 + i)));
    }
    let run = |args: &[&str]| folder.run(&[&["evaluate", "logs"], args].concat());
    let common = ["--features", "polynomial:1", "--gamma", "0.9", "--local-steps", "5", "--method", "fedhsa"];
    run(&[&common[..], &["--out", "a"]].concat())
        .exits(0)
        .says("2 agents, 8 transitions, 1 state column\n  4 episodes: 2 ended, 0 truncated, 2 with no end in the log\n")
        .says("  discounted returns of the 2 that ended or were truncated (gamma 0.9): 2.9 on average, spread 0\n")
        .says("  shares of the transitions: agent_0 50%, agent_1 50%\n")
        .says("  s_0 from 0 to 1, from the data\n2 features of polynomial:1\n")
        .says("will need about ")
        .says(" rounds until the residual is 1e-12 of that at zero weights");
    run(&[&common[..], &["--ranges", "s_0=-1:2", "--max-rounds", "3", "--out", "b"]].concat())
        .says("  s_0 from -1 to 2, as given\n")
        .says("  --max-rounds allows 3, less than a second: it will stop before the target");
    assert_eq!(folder.json("a/summary.json")["title"], "Policy evaluation by fedhsa from 2 agents");
    assert_eq!(run(&[&common[..], &["--out", "c", "-q"]].concat()).exits(0).stdout, "");
    // The number of rounds that is predicted is the one that it takes.
    let slow =
        ["--features", "polynomial:1", "--gamma", "0.9", "--local-steps", "1", "--method", "fedhsa", "--max-rounds", "5000", "--out", "d"];
    let said = run(&[&slow[..], &["--set", "run.record={ every = 1 }"]].concat()).stdout;
    let predicted: f64 = said.split("will need about ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "").parse().unwrap();
    let took = folder.json("d/weights.json")["rounds"].as_f64().unwrap();
    assert!((predicted / took - 1.0).abs() < 0.2, "{predicted} {took}");
    assert_eq!(folder.json("d/weights.json")["outcome"], "converged");
    // So is the number of remaining rounds after a stop, and the files contain the outcome.
    let short = [&slow[..8], &["--max-rounds", "30", "--out", "short"]].concat();
    let said = run(&short[..]).exits(1).stdout;
    let left: f64 = said.split("it takes at least about ").nth(1).unwrap().split(' ').next().unwrap().replace(',', "").parse().unwrap();
    assert!(((left + 30.0) / took - 1.0).abs() < 0.2, "{left} {took}");
    let weights = folder.json("short/weights.json");
    assert_eq!((weights["outcome"].as_str(), weights["rounds"].as_u64()), (Some("max-rounds"), Some(30)));
    assert!(weights["residual"].as_f64() > weights["residual_asked"].as_f64() && weights["bits"].as_u64() > Some(0), "{weights:#}");
    // FedLSA has a limit of its own, and noise has no end.
    run(&[&common[..6], &["--method", "fedlsa", "--max-rounds", "3", "--out", "e"]].concat())
        .says("fedlsa will not reach the target (the residual is 1e-12");
    run(&[&common[..], &["--sampling", "iid", "--max-rounds", "3", "--out", "f"]].concat()).says("it ends when the residual is 1e-12");
    // Defaults by the number of columns; rewards that are all 0.
    run(&["--gamma", "0.9", "--max-rounds", "3", "--local-steps", "1", "--out", "g"])
        .says("4 features of fourier:3, the default for 1 state column");
    for i in 0..2 {
        folder.write(&format!("zero/agent_{i}.csv"), "s_0,next_0,reward,done\n0,1,0,0\n1,0.2,0,0\n0.2,1,0,1\n0.7,0.1,0,0\n");
    }
    let zero = folder.run(&["evaluate", "zero", "--features", "polynomial:1", "--out", "z"]).exits(0);
    zero.says("all rewards are 0, and so are the values").says("2 weights after 0 rounds");
    let help = folder.run(&["evaluate", "--help"]).exits(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("fedhsa, ") && help.contains("delay-adaptive-sa") && help.contains("asyncfedtd"), "{help}");
}

#[test]
fn evaluate_takes_lambda_and_importance_ratios() {
    let folder = Folder::new();
    let rows: String = (0..40)
        .map(|t| {
            let (x, next) = (f64::from(t * 7 % 11) / 10.0, f64::from((t + 1) * 7 % 11) / 10.0);
            format!("{x},{next},{},{},{},{}\n", x * x, u8::from(t % 10 == 9), t / 5, if t == 3 { 50.0 } else { 0.5 })
        })
        .collect();
    folder.write("log.csv", format!("s_0,next_0,reward,done,episode,ratio\n{rows}"));
    let run = |args: &[&str]| {
        folder.run(
            &[
                &[
                    "evaluate",
                    "log.csv",
                    "--features",
                    "polynomial:1",
                    "--step-size",
                    "0.01",
                    "--max-rounds",
                    "3",
                    "--tol",
                    "0",
                    "--gamma",
                    "0.9",
                    "--ridge",
                    "0",
                    "--keep-autoreset-rows",
                ],
                args,
            ]
            .concat(),
        )
    };
    let root = |out: &str| folder.json(&format!("{out}/weights.json"))["lstd"].to_string();
    run(&["--out", "a"])
        .exits(0)
        .says("the importance ratios of 1 agent are used: --set problem.ratios=false leaves them out\n")
        .says("  warning: log: the ratios leave an effective sample size of 1.92 of 40 transitions");
    run(&["--out", "b", "--set", "problem.ratios=false"]).exits(0).says("the importance ratios of 1 agent are not used");
    run(&["--out", "c", "--lambda", "0.8"]).exits(0);
    assert_eq!(folder.json("c/weights.json")["lambda"], 0.8);
    assert!(root("a") != root("b") && root("a") != root("c"));
    let wrong = run(&["--lambda", "1.5", "--out", "d"]).exits(2).message();
    assert!(wrong.contains("lambda") && wrong.contains("1.5") && wrong.contains("in [0, 1]"), "{wrong}");
    let iid = run(&["--lambda", "0.5", "--sampling", "iid", "--out", "d"]).exits(2).message();
    assert!(iid.contains("drawn independently have no traces"), "{iid}");
}

#[test]
fn dependent_features_have_weights_of_least_norm_or_a_ridge() {
    let folder = Folder::new();
    // The second column is twice the first.
    folder.write("log.csv", "s_0,s_1,next_0,next_1,reward,done\n0,0,1,2,2,0\n1,2,0.2,0.4,1,0\n0.2,0.4,1,2,0,1\n0.7,1.4,0.1,0.2,1,0\n");
    let run = |args: &[&str]| folder.run(&[&["evaluate", "log.csv", "--features"], args].concat()).exits(0);
    run(&["polynomial:1", "--ridge", "0", "--out", "a"])
        .says("  note: 2 of 3 directions of these features are independent on these transitions: ");
    let weights = |out: &str| folder.json(&format!("{out}/weights.json"));
    let least = weights("a");
    let theta: Vec<f64> = least["theta"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    // Scaled to their ranges both columns are the same feature.
    assert!((theta[1] - theta[2]).abs() < 1e-9 && theta[1] != 0.0, "{theta:?}");
    assert_eq!((&least["rank"], &least["outcome"], &least["ridge"]), (&2.into(), &"converged".into(), &0.0.into()));
    run(&["tiles:1x9", "--ridge", "0", "--out", "b"])
        .says("directions of these features are independent")
        .says("; a positive --ridge makes it unique");
    let output = run(&["polynomial:1", "--ridge", "0.1", "--out", "c"]);
    assert!(!output.stdout.contains("independent"), "{}", output.stdout);
    assert_eq!((&weights("c")["rank"], &weights("c")["ridge"]), (&3.into(), &0.1.into()));
    run(&["identity:bias", "--scaling", "equal-squares", "--out", "d"]);
    let scale: Vec<f64> = weights("d")["scale"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
    assert!((scale[1] - 2.0 * scale[2]).abs() < 1e-12 && scale.len() == 3, "{scale:?}");
    let refused = folder.run(&["evaluate", "log.csv", "--set", "uplink={ media = [{ kind = \"erasure\", probability = 0.5 }] }"]).exits(2);
    assert!(refused.message().contains("--method auto with --set uplink"), "{}", refused.stderr);
    // Features that were logged are the default.
    folder.write("phi.csv", "phi_a,phi_b,s_0,phi_next_a,phi_next_b,next_0,reward,done\n1,0,3,0.5,1,4,1,0\n0.5,1,4,0,2,5,1,1\n");
    let output = folder.run(&["evaluate", "phi.csv", "--out", "e"]).exits(0);
    output.says("1 agent, 2 transitions, 2 feature columns\n").says("2 features of columns, the default for logs that have them");
    assert_eq!(weights("e")["columns"], serde_json::json!(["phi_a", "phi_b"]));
    folder.run(&["predict", "e/weights.json", "phi.csv", "--out", "v.csv"]).exits(0);
}

/// The example of the design, on the real logs.
#[test]
fn evaluate_reaches_the_pooled_solution_of_real_logs() {
    let Some(data) = fedsa_testing::data() else { return };
    let folder = Folder::new();
    let args = [
        "--features",
        "fourier:3",
        "--ranges",
        "s_0=-1.2:0.6,s_1=-0.07:0.07",
        "--gamma",
        "0.99",
        "--method",
        "fedhsa",
        "--sampling",
        "mean",
        "--step-size",
        "1",
        "--local-steps",
        "100",
        "--max-rounds",
        "20000",
        "--ridge",
        "0",
        "--out",
        "o",
    ];
    // The shell expands the pattern; here it is done by hand.
    let logs = std::path::Path::new(&data).join("transitions/mountaincar");
    let logs: Vec<String> = (0..8).map(|i| logs.join(format!("agent_{i}.parquet")).display().to_string()).collect();
    let logs: Vec<&str> = std::iter::once("evaluate").chain(logs.iter().map(String::as_str)).collect();
    folder.run(&[&logs[..], &args].concat()).exits(0).says("16 weights after");
    let weights = folder.json("o/weights.json");
    let number = |key: &str| weights[key].as_f64().unwrap();
    assert!((number("lstd_norm") - 289.02).abs() < 0.005, "{}", number("lstd_norm"));
    assert!(number("distance_to_lstd") < 1e-6 && number("residual") < 1e-10, "{weights:#}");
    assert_eq!(weights["agents"].as_array().unwrap().len(), 8);
    // By the name of the data set, the same.
    let mut command = folder.command(&[&["evaluate", "transitions/mountaincar"], &args[..args.len() - 1], &["named"]].concat());
    command.env("FEDSA_DATA", &data);
    crate::common::finish(command).exits(0);
    assert!(folder.read("named/trace.parquet") == folder.read("o/trace.parquet"));
}

#[test]
fn a_log_is_one_agent_by_whatever_path() {
    let folder = Folder::new();
    folder.write("a.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n");
    folder.write("b.csv", "s_0|next_0|reward|done\n0|1|2|0\n");
    let message = folder.run(&["evaluate", "a.csv", "./a.csv"]).exits(2).message();
    assert!(message.contains("this log is given twice"), "{message}");
    let message = folder.run(&["evaluate", "b.csv"]).exits(2).message();
    assert!(message.contains("separated by commas, semicolons or tabs, not by '|'"), "{message}");
    let message = folder.run(&["evaluate", "a.csv", "--ranges", "s_0=0:1,s_0=0:2"]).exits(2).message();
    assert!(message.contains("`s_0` comes twice"), "{message}");
}
