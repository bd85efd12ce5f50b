//! Kinds of a crate that uses nothing but what fedsa's crates show to all (`examples/outside`): its program does with its kinds what
//! fedsa does with its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Folder;
use serde_json::Value as Json;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Builds the crate's program, mostly of what is compiled already, and returns its path. The crate's own tests run with those of the
/// workspace.
fn built() -> PathBuf {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let done = cargo.current_dir(root()).args(["build", "--release", "--offline", "--package", "outside"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.join("release").join(format!("outside{}", std::env::consts::EXE_SUFFIX))
}

#[test]
fn the_crate_takes_nothing_from_the_workspace() {
    let manifest: toml::Table = std::fs::read_to_string(root().join("examples/outside/Cargo.toml")).unwrap().parse().unwrap();
    for table in ["package", "dependencies", "dev-dependencies"] {
        for (key, value) in manifest[table].as_table().unwrap() {
            assert!(value.get("workspace").is_none(), "{table}.{key}");
        }
    }
    assert!(!manifest.contains_key("lints"));
    // As docs/src/extend/parts.md tells authors.
    let names: Vec<&String> = manifest["dependencies"].as_table().unwrap().keys().collect();
    assert_eq!(names, ["fedsa", "fedsa-methods", "fedsa-problems", "fedsa-cli", "schemars", "serde"]);
}

/// The lines of code of a file: neither empty nor comments.
fn lines_of_code(file: &str) -> usize {
    let text = std::fs::read_to_string(root().join("examples/outside/src").join(file)).unwrap();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// The program of the other crate, with its experiment in a folder.
struct Outside {
    program: PathBuf,
    folder: Folder,
}

impl Outside {
    fn new() -> Self {
        let (program, folder) = (built(), Folder::new());
        let experiment = std::fs::read_to_string(root().join("examples/outside/outside.toml")).unwrap();
        folder.write("outside.toml", &experiment);
        Self { program, folder }
    }

    /// Runs the program, which must end with this status: what it prints, and its errors as one line, without the frame around excerpts.
    fn run(&self, args: &[&str], status: i32) -> (String, String) {
        let done = Command::new(&self.program).args(args).current_dir(self.folder.path("")).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&done.stdout).into_owned(), String::from_utf8_lossy(&done.stderr).into_owned());
        assert_eq!(done.status.code(), Some(status), "{args:?}\n{out}\n{err}");
        let plain = err.replace(|c: char| ('\u{2500}'..='\u{257f}').contains(&c) || c == '·', " ");
        (out, plain.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

#[test]
fn kinds_of_another_crate_are_kinds_like_all_others() {
    for file in ["rows.rs", "pulled.rs", "projected_fedhsa.rs", "momentum.rs", "recorded.rs"] {
        assert!(lines_of_code(file) < 80, "{file}: {}", lines_of_code(file));
    }
    let outside = Outside::new();
    assert_runs(&outside);
    assert_holds_data(&outside);
    assert_goes_on(&outside);
    assert_knows_names(&outside);
    // The program without them refuses their names.
    let refused = outside.folder.run(&["check", "outside.toml"]).exits(2);
    assert!(refused.message().contains("there is no problem `rows`"), "{}", refused.message());
}

/// A run over three links: checks, the ledger, figures, predictions.
fn assert_runs(outside: &Outside) {
    assert!(outside.run(&["check", "outside.toml"], 0).0.contains("ok"));
    outside.run(&["run", "outside.toml", "--out", "a", "-q"], 0);
    let summary = outside.folder.json("a/summary.json");
    assert_eq!(summary["passed"], true, "{:#}", summary["checks"]);
    assert!(summary["checks"].as_array().unwrap().len() >= 2);
    for file in ["trace.parquet", "config.toml", "figure.svg"] {
        assert!(!outside.folder.read(&format!("a/{file}")).is_empty(), "{file}");
    }
    let result = |method: &str, point: &str| {
        let all = summary["results"].as_array().unwrap();
        all.iter().find(|it| it["method"] == method && it["point"].as_str().unwrap().contains(point)).unwrap().clone()
    };
    let bits = |method: &str, point: &str| result(method, point)["ledger"]["bits_up"].as_f64().unwrap();
    assert!(bits("Pulled", "8 bits") < 0.9 * bits("Pulled", "exact"));
    assert_eq!(bits("projected FedHSA", "exact"), 2.0 * bits("Pulled", "exact"));
    let theory: Json = serde_json::from_str(&outside.run(&["theory", "outside.toml", "--json"], 0).0).unwrap();
    let entry = |method: &str| theory["methods"].as_array().unwrap().iter().find(|entry| entry["method"] == method).unwrap().clone();
    assert!(entry("FedLSA")["floor"].as_f64().unwrap() > 0.0 && entry("Pulled")["floor"].as_f64().is_none());
}

/// A problem on data that the program holds.
fn assert_holds_data(outside: &Outside) {
    let recorded = std::fs::read_to_string(root().join("examples/outside/recorded.toml")).unwrap();
    outside.folder.write("recorded.toml", &recorded);
    outside.run(&["run", "recorded.toml", "--out", "r", "-q"], 0);
    assert_eq!(outside.folder.json("r/summary.json")["passed"], true, "{}", outside.folder.text("r/summary.json"));
    outside.run(&["run", "r/config.toml", "--out", "s", "-q"], 0);
    assert!(outside.folder.read("r/trace.parquet") == outside.folder.read("s/trace.parquet"), "config.toml is the same experiment");
    let (_, wrong) = outside.run(&["check", "recorded.toml", "--set", "problem.gamma=1"], 2);
    assert!(wrong.contains("problem.gamma") && wrong.contains("in [0, 1)"), "{wrong}");
    let (_, unknown) = outside.run(&["check", "recorded.toml", "--set", "problem.gama=0.5"], 2);
    assert!(unknown.contains("did you mean `gamma`?"), "{unknown}");
}

/// Folders with such runs: continued, drawn again, listed, compared.
fn assert_goes_on(outside: &Outside) {
    // A check may fail after so few rounds.
    let mut few = Command::new(&outside.program);
    few.args(["run", "outside.toml", "--out", "b", "-q", "--rounds", "100"]).current_dir(outside.folder.path(""));
    assert!(few.output().unwrap().status.code().is_some_and(|status| status < 2));
    outside.run(&["run", "outside.toml", "--out", "b", "-q", "--resume", "--rounds", "400"], 0);
    assert!(outside.folder.read("a/trace.parquet") == outside.folder.read("b/trace.parquet"), "continued runs are the same");
    outside.run(&["run", "a/config.toml", "--out", "c", "-q"], 0);
    assert!(outside.folder.read("a/trace.parquet") == outside.folder.read("c/trace.parquet"), "config.toml is the same experiment");
    outside.run(&["plot", "a", "--set", "title=again"], 0);
    assert!(outside.run(&["list", "."], 0).0.contains("finished"));
    outside.run(&["diff", "a", "b"], 0);
}

/// Errors, the schema and the help know the kinds.
fn assert_knows_names(outside: &Outside) {
    let (_, unknown) = outside.run(&["check", "outside.toml", "--set", "problem.kind=row"], 2);
    assert!(unknown.contains("there is no problem `row`; did you mean `rows`?") && unknown.contains("garnet"), "{unknown}");
    let (_, unknown) = outside.run(&["check", "outside.toml", "--set", "method.Pulled.kind=puled"], 2);
    assert!(unknown.contains("did you mean `pulled`?") && unknown.contains("projected-fedhsa"), "{unknown}");
    let (_, wrong) = outside.run(&["check", "outside.toml", "--set", "method.Pulled.proximal=-1"], 2);
    assert!(wrong.contains("method[1].proximal") && wrong.contains("at least 0"), "{wrong}");
    let (schema, _) = outside.run(&["schema"], 0);
    for word in ["\"rows\"", "\"recorded\"", "\"pulled\"", "\"projected-fedhsa\"", "\"proximal\"", "\"garnet\"", "\"quantised\""] {
        assert!(schema.contains(word), "{word}");
    }
    assert!(!schema.contains("x-of-kinds"));
    assert!(outside.run(&["evaluate", "--help"], 0).0.contains("projected-fedhsa"));
}
