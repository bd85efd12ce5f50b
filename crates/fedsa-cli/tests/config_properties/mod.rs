//! The reader of experiment files returns a plan or a message with help for every text,
//! and the resolved `config.toml` describes the same plan.

mod inputs;

use crate::common::{Folder, SMALL, edited, mrp, npz_bytes};
use fedsa::error::{Error, ErrorCode};
use fedsa::kernel::Isa;
use fedsa_cli::error::ShownError;
use fedsa_data::find::Places;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::{Plan, resolve};
use inputs::*;
use proptest::prelude::*;
use std::collections::HashMap;
use std::path::Path;
use toml::Value;

const EVERYTHING: &str = include_str!("../common/everything.toml");

const FILE: &str = r#"[problem]
kind = "file"
path = "data/p.npz"

[[method]]
kind = "scafflsa"
label = "file"
step_size = 0.1
local_steps = 5
start = "../start.json"

[[method]]
kind = "fedlsa"
step_size = 0.1
local_steps = 5

[run]
rounds = 6
start = "limit"

[[variant]]
label = "npz"

[[variant]]
label = "logs"
set = { "problem" = { kind = "logs", path = "data/*.csv", gamma = 0.9, features = { kind = "polynomial", order = 1 } }, "sampling.kind" = "mean" }
"#;

const LOG: &str = "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n";

/// A folder with files that experiments in its folder `here` refer to.
fn files() -> Folder {
    let folder = Folder::new();
    folder.write("here/data/p.npz", npz_bytes(&mrp()));
    folder.write("here/data/a1.csv", LOG);
    folder.write("here/data/a2.csv", LOG.replace("0.7", "0.4"));
    folder.write("start.json", "[0.5, 1]");
    folder
}

/// Whether the plan can be built quickly.
fn is_tiny(experiment: &Experiment) -> bool {
    fn tiny(value: &Value) -> bool {
        match value {
            Value::Integer(i) => i.abs() <= 40,
            Value::Array(items) => items.len() <= 40 && items.iter().all(tiny),
            Value::Table(table) => table.iter().all(|(key, value)| matches!(key.as_str(), "run" | "seed" | "local_steps") || tiny(value)),
            _ => true,
        }
    }
    experiment.points.len() <= 20 && experiment.points.iter().all(|point| point.table().values().all(tiny))
}

fn assert_helpful(failure: &Error) {
    let help = &failure.help;
    assert!(!failure.what.trim().is_empty() && !help.trim().is_empty(), "{failure:?}");
    // Messages of the TOML parser are not checked.
    let words: &[&str] = if failure.code() == ErrorCode::NotToml { &[] } else { &["usize", "u64", "struct ", "untagged"] };
    for word in words {
        assert!(!failure.what.contains(word) && !help.contains(word), "{failure:?}");
    }
    // The excerpt can be printed: places lie within the text, at boundaries of characters.
    let _ = format!("{:?}", miette::Report::new(ShownError::from(failure.clone())));
}

/// A plan, or a message with help.
fn plan(document: Result<Document, Error>, base: &Path) -> Option<Plan> {
    let plan = document.and_then(Experiment::read).and_then(|experiment| match is_tiny(&experiment) {
        true => Plan::new(experiment, base, Isa::best(), &HashMap::new()).map(Some),
        false => experiment.settings().map(|_| None),
    });
    match plan {
        Ok(plan) => plan,
        Err(failure) => {
            assert_helpful(&failure);
            None
        }
    }
}

fn parsed(text: &str, quick: bool) -> Result<Document, Error> {
    let mut document = Document::parse("mutated.toml", text)?;
    if quick {
        document.make_quick()?;
    }
    Ok(document)
}

const TEXTS: [&str; 3] = [SMALL, EVERYTHING, FILE];

#[test]
fn the_files_to_be_mutated_are_valid() {
    let folder = files();
    for text in TEXTS {
        for quick in [false, true] {
            let plan = plan(parsed(text, quick), &folder.path("here")).expect("a plan");
            assert!(!plan.cells.is_empty());
        }
    }
}

/// ErrorCode derived by serde reads a list as a table, entry by entry; no table of an experiment file does.
#[test]
fn no_table_is_read_from_a_list() {
    let folder = files();
    let mut count = 0;
    for text in [SMALL, EVERYTHING, FILE, TABLES] {
        let whole = Value::Table(text.parse().unwrap());
        assert!(plan(Ok(Document::of_table(whole.as_table().unwrap().clone(), Vec::new())), &folder.path("here")).is_some());
        let mut places = Vec::new();
        tables(&whole, &mut Vec::new(), &mut places);
        for place in places.iter().filter(|place| !place.is_empty() && place[0] != "quick") {
            let mut changed = whole.clone();
            let table = value_at(&mut changed, place);
            let entries = |table: &Value| table.as_table().unwrap().values().cloned().collect::<Vec<_>>();
            *table = Value::Array(entries(table));
            let document = Document::of_table(changed.as_table().unwrap().clone(), Vec::new());
            let read =
                Experiment::read(document).and_then(|experiment| Plan::new(experiment, &folder.path("here"), Isa::best(), &HashMap::new()));
            let failure = read.err().unwrap_or_else(|| panic!("{place:?} is read from a list:\n{changed}"));
            assert_helpful(&failure);
            count += 1;
        }
    }
    assert!(count > 60, "{count} tables");
}

#[test]
fn sweeps_are_told_apart_by_the_shortest_ends_of_their_keys() {
    let names = |sweeps: &str| {
        let experiment = Experiment::read(Document::parse("x", &format!("{SMALL}\n{sweeps}")).unwrap()).unwrap();
        let names: Vec<String> = experiment.points.last().unwrap().coordinates.iter().map(|(name, _)| name.clone()).collect();
        names.join(" ")
    };
    let sweep = |key: &str, more: &str| format!("[[sweep]]\nkey = '{key}'\nvalues = [0.1, 0.2]\n{more}\n");
    let (a, b) = (sweep("method.FedLSA.step_size", ""), sweep("method.SCAFFLSA.step_size", ""));
    assert_eq!(names(&a), "step_size");
    assert_eq!(names(&format!("{a}{b}")), "FedLSA.step_size SCAFFLSA.step_size");
    assert_eq!(names(&format!("{a}{}", sweep("method.SCAFFLSA.step_size", "name = 'step_size'"))), "FedLSA.step_size step_size");
    assert_eq!(names(&format!("{}{}", sweep("problem.seed", ""), sweep("method.FedLSA.uplink.seed", ""))), "problem.seed uplink.seed");
    // A key has one name in all variants, and those that never meet need none of their own.
    let variant = |label: &str, keys: &[&str]| {
        let sweeps: Vec<String> = keys.iter().map(|key| format!("{{ key = '{key}', values = [0.1, 0.2] }}")).collect();
        format!("[[variant]]\nlabel = '{label}'\nsweep = [{}]\n", sweeps.join(", "))
    };
    let (fed, scaff) = ("method.FedLSA.step_size", "method.SCAFFLSA.step_size");
    assert_eq!(names(&format!("{}{}", variant("x", &[fed]), variant("y", &[scaff]))), "variant step_size");
    assert_eq!(names(&format!("{}{}", variant("x", &[fed, scaff]), variant("y", &[fed]))), "variant FedLSA.step_size");
}

/// What identifies a plan.
fn identity(plan: &Plan) -> Vec<String> {
    let fields = plan.fields.iter().map(|f| f.fingerprint.clone());
    let points = plan.points.iter().map(|p| format!("{} {} {:?}", p.point.label, p.field, p.cells));
    let cells = plan.cells.iter().map(|c| format!("{} {} {:?} {} {:?}", c.identity, c.run.rounds, c.run.seeds, c.method.label, c.grid));
    fields.chain(points).chain(cells).chain(plan.labels.iter().cloned()).collect()
}

/// The resolved file of a plan comes to the same plan, and to itself, from any folder.
fn assert_resolves(plan: &Plan, base: &Path) {
    let resolved = resolve::file(&plan.experiment, &Places::from_env(base)).unwrap();
    let nowhere = Path::new("");
    let again = Experiment::read(Document::parse("config.toml", &resolved).unwrap()).unwrap();
    let again = Plan::new(again, nowhere, Isa::best(), &HashMap::new()).unwrap_or_else(|e| panic!("{e}\n{resolved}"));
    assert_eq!(identity(&again), identity(plan), "{resolved}");
    assert_eq!(resolve::file(&again.experiment, &Places::from_env(nowhere)).unwrap(), resolved);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_are_read_or_refused(which in 0..TEXTS.len(), changes in prop::collection::vec(change(), 1..5), quick in any::<bool>()) {
        let folder = files();
        let text = changes.iter().fold(TEXTS[which].to_string(), |text, change| changed(&text, change));
        plan(parsed(&text, quick), &folder.path("here"));
    }

    #[test]
    fn keys_set_at_random_are_read_or_refused(which in 0..TEXTS.len(), sets in prop::collection::vec((dotted(), value()), 1..4), quick in any::<bool>()) {
        let folder = files();
        let document = parsed(TEXTS[which], quick).and_then(|mut document| {
            for (key, value) in &sets {
                fedsa_cli::commands::set(&mut document, &format!("{key}={value}"))?;
            }
            Ok(document)
        });
        plan(document, &folder.path("here"));
    }

    #[test]
    fn keys_removed_at_random_are_read_or_refused(which in 0..TEXTS.len(), keys in prop::collection::vec(dotted(), 1..4), quick in any::<bool>()) {
        let folder = files();
        let document = parsed(TEXTS[which], quick).and_then(|mut document| {
            keys.iter().try_for_each(|key| fedsa_cli::commands::unset(&mut document, key))?;
            Ok(document)
        });
        plan(document, &folder.path("here"));
    }

    /// The same in the text: entries put into `[quick]` and into a variant.
    #[test]
    fn assignments_at_random_are_read_or_refused(which in 0..TEXTS.len(), sets in prop::collection::vec((dotted(), value()), 1..4)) {
        let folder = files();
        let text = TEXTS[which].split("[quick]").next().unwrap();
        let entries: String = sets.iter().map(|(key, value)| format!("'{}' = {value}\n", key.replace('\'', ""))).collect();
        plan(parsed(&format!("{text}\n[quick]\n{entries}"), true), &folder.path("here"));
        plan(parsed(&format!("{text}\n[[variant]]\nlabel = \"x\"\n[variant.set]\n{entries}"), false), &folder.path("here"));
    }

    #[test]
    fn any_text_is_refused_with_help(text in "(\\[problem\\]|\\[\\[method\\]\\]|\\[run\\]|kind|=|\"garnet\"|\"fedlsa\"|rounds|\n|[ -~]){0,40}") {
        plan(parsed(&text, false), Path::new(""));
        let mut document = Document::parse("small.toml", SMALL).unwrap();
        if let Err(failure) = fedsa_cli::commands::set(&mut document, &text) {
            assert_helpful(&failure);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn resolved_files_come_to_the_same_plan(text in valid()) {
        let folder = files();
        let base = folder.path("here");
        let Some(plan) = plan(parsed(&text, false), &base) else { return Ok(()) };
        assert_resolves(&plan, &base);
    }
}

#[test]
fn resolved_files_of_the_examples_come_to_the_same_plan() {
    let folder = files();
    let base = folder.path("here");
    for text in TEXTS {
        for quick in [false, true] {
            assert_resolves(&plan(parsed(text, quick), &base).expect("a plan"), &base);
        }
    }
}

#[test]
fn what_ran_can_be_run_again_from_anywhere() {
    let folder = files();
    // A file with the name of a start is not read as a start.
    folder.write("here/zero", "not a start");
    folder.write("here/stationary", "not a start either");
    for (i, text) in TEXTS.iter().enumerate() {
        for (options, name) in [(&[][..], "all"), (&["--quick"], "quick"), (&["--set", "method.*.step_size=0.05"], "set")] {
            if name == "quick" && !text.contains("[quick]") {
                continue;
            }
            let (file, first, second) = (format!("here/{i}.toml"), format!("first-{i}-{name}"), format!("second-{i}-{name}"));
            folder.write(&file, text);
            let options: Vec<&str> = if text.contains("variant") && name == "set" { Vec::new() } else { options.to_vec() };
            let ran = folder.run(&[&["run", file.as_str(), "--out", first.as_str(), "-q"], &options[..]].concat());
            // A target that was not reached is a status, not bad input.
            assert!(ran.status < 2, "{file} {name}: {}", ran.stderr);
            folder.write("elsewhere/deeper/.keep", "");
            let mut command = folder.command(&["run", &format!("../../{first}/config.toml"), "--out", &format!("../../{second}"), "-q"]);
            command.current_dir(folder.path("elsewhere/deeper"));
            // With --quick, failed checks are notes; in the resolved file they count.
            let again = crate::common::finish(command);
            assert!(again.status == ran.status || name == "quick" && again.status < 2, "{file} {name}: {}", again.stderr);
            for result in ["trace.parquet", "theta.npz", "config.toml"] {
                assert!(folder.read(&format!("{first}/{result}")) == folder.read(&format!("{second}/{result}")), "{file} {name}: {result}");
            }
        }
    }
}

/// Numbers at the edges of what a key may hold: `check`, which also searches for stable steps, and a
/// run of two rounds end by themselves, with a result or a message.
#[test]
fn extreme_numbers_are_run_or_refused() {
    const NUMBERS: &[&str] = &["1e306", "-1e306", "1e-306", "5e-324", "1e154", "0.9999999999999999"];
    const COUNTS: &[&str] = &["9223372036854775807", "4294967296", "1000000000", "0"];
    let problems = [
        ("kind = \"garnet\"\nagents = 2\nstates = 5\nfeatures = 2\nmin_class = 1", "agents states actions features", "gamma perturbation"),
        ("kind = \"mrp\"\nagents = 2\nstates = 5\nfeatures = 2", "states", "gamma"),
        (
            "kind = \"linear\"\nagents = 2\ndim = 2\nnoise = { std = 0.1, radius = 0.5 }",
            "agents dim",
            "scale spread noise.std noise.radius",
        ),
        ("kind = \"random-logistic\"\nagents = 2\ndim = 2\npoints = 3", "agents dim points", "ridge spread shift"),
        ("kind = \"fixed-point\"\nagents = 2\ndim = 2", "agents dim outcomes", "contraction spread offsets additive multiplicative"),
        ("kind = \"q-learning\"\nagents = 2\nstates = 4", "agents states actions branching features", "gamma exploration"),
        ("kind = \"sarsa\"\nagents = 2\nstates = 4", "agents states actions branching features", "gamma exploration temperature"),
        ("kind = \"policy-gradient\"\nagents = 2\nstates = 4\nlength = 5", "agents states actions branching length", "gamma entropy"),
        ("kind = \"baird\"\nagents = 2\noperator = \"tdc\"", "agents", "kappa gamma solid reward spread"),
        ("kind = \"switching\"\nagents = 2\ndim = 2\nspread = 1.0", "agents dim", "mixing_time spread"),
        (
            "kind = \"quadratic\"\nagents = 2\ndim = 2\nnoise = { std = 0.1, radius = 0.5 }",
            "agents dim",
            "least_eigenvalue greatest_eigenvalue spread disagreement",
        ),
        (
            "kind = \"finite-sum\"\nagents = 2\nterms = 3\ndim = 2",
            "agents terms dim",
            "least_eigenvalue term_spread spread disagreement mixing_time",
        ),
    ];
    let ends = |text: &str, set: &str| {
        let folder = Folder::with(text);
        for args in [&["check", "small.toml"][..], &["run", "small.toml", "--force", "-q"]] {
            let mut command = folder.command(&[args, &["--set", set, "--threads", "2"]].concat());
            command.env("FEDSA_MEMORY", "1G");
            let output = crate::common::finish_soon(command);
            assert!((0..=2).contains(&output.status) && !output.stderr.contains("panicked"), "{set}: {}\n{}", output.status, output.stderr);
            assert!(output.status != 2 || output.stderr.contains("help:"), "{set}\n{}", output.stderr);
            assert!(output.status == 2 || !output.stdout.contains("NaN"), "{set}\n{}", output.stdout);
        }
    };
    for (problem, counts, numbers) in problems {
        let text = edited(&crate::common::with_problem(problem), "rounds = 20\nseeds = 2", "rounds = 2");
        for (keys, values) in [(counts, COUNTS), (numbers, NUMBERS)] {
            for (key, value) in keys.split(' ').flat_map(|key| values.iter().map(move |value| (key, value))) {
                ends(&text, &format!("problem.{key}={value}"));
            }
        }
    }
    let text = edited(&crate::common::with_problem(problems[2].0), "rounds = 20\nseeds = 2", "rounds = 2");
    for value in NUMBERS {
        for key in ["step_size", "global_step_size", "step_size={ c = 1.0, t0"] {
            let end = if key.contains('{') { " }" } else { "" };
            ends(&text, &format!("method.*.{key}={value}{end}"));
        }
        ends(&text, &format!("run.stop={{ residual = {value} }}"));
    }
}
