//! Kinds of a crate that is no member of the workspace (`examples/outside`): it is built with the workspace's target folder and
//! lock file, its own tests run, and its program does with its kinds what fedsa does with its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Folder;
use serde_json::Value as Json;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The crate, copied to a folder of its own below `target` with the workspace's lock file, so that the versions of all
/// libraries are those of the workspace.
fn copied() -> PathBuf {
    let (from, to) = (root().join("examples/outside"), Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside"));
    let same = |path: &Path, bytes: &[u8]| std::fs::read(path).is_ok_and(|there| there == bytes);
    for file in ["Cargo.toml", "src/lib.rs", "src/main.rs", "src/rows.rs", "src/fedprox.rs", "src/projected_fedhsa.rs", "tests/kinds.rs"] {
        let text = std::fs::read_to_string(from.join(file)).unwrap();
        let text = text.replace("../../crates", root().join("crates").to_str().unwrap());
        std::fs::create_dir_all(to.join(file).parent().unwrap()).unwrap();
        // A file that is written anew is compiled anew.
        if !same(&to.join(file), text.as_bytes()) {
            std::fs::write(to.join(file), text).unwrap();
        }
    }
    std::fs::copy(root().join("Cargo.lock"), to.join("Cargo.lock")).unwrap();
    to
}

/// The versions of the libraries in a lock file.
fn versions(lock: &Path) -> Vec<(String, String)> {
    let lock: toml::Table = std::fs::read_to_string(lock).unwrap().parse().unwrap();
    let text = |package: &toml::Value, key: &str| package.get(key).and_then(toml::Value::as_str).map(str::to_string);
    let packages = lock["package"].as_array().unwrap().iter().filter(|package| package.get("source").is_some());
    packages.map(|package| (text(package, "name").unwrap(), text(package, "version").unwrap())).collect()
}

/// Builds the crate and runs its tests; the path of its program.
fn built() -> PathBuf {
    let (copy, target) = (copied(), Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap());
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--release", "--offline", "--manifest-path"]).arg(copy.join("Cargo.toml"));
    // The crates of the workspace are compiled again, because they belong to another one now: without optimisation,
    // which takes less than a minute of two cores the first time, and changes no number.
    for name in ["fedsa", "fedsa-theory", "fedsa-data", "fedsa-experiment", "fedsa-cli"] {
        cargo.arg("--config").arg(format!("profile.release.package.{name}.opt-level=0"));
    }
    let done = cargo.env("CARGO_TARGET_DIR", target).output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}\n{}", said(&done.stdout), said(&done.stderr));
    assert!(said(&done.stdout).contains("nodes_that_exchange_bytes_give_the_engines_numbers ... ok"), "{}", said(&done.stdout));
    let of_workspace = versions(&root().join("Cargo.lock"));
    for library in versions(&copy.join("Cargo.lock")) {
        assert!(of_workspace.contains(&library), "{library:?} is not the workspace's");
    }
    target.join("release").join(format!("outside{}", std::env::consts::EXE_SUFFIX))
}

/// The lines of code of a file: neither empty nor comments.
fn lines_of_code(file: &str) -> usize {
    let text = std::fs::read_to_string(root().join("examples/outside/src").join(file)).unwrap();
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn kinds_of_another_crate_are_kinds_like_all_others() {
    for file in ["rows.rs", "fedprox.rs", "projected_fedhsa.rs"] {
        assert!(lines_of_code(file) < 80, "{file}: {}", lines_of_code(file));
    }
    let program = built();
    let folder = Folder::new();
    let experiment = std::fs::read_to_string(root().join("examples/outside/outside.toml")).unwrap();
    folder.write("outside.toml", &experiment);
    let run = |args: &[&str], status: i32| {
        let done = Command::new(&program).args(args).current_dir(folder.path("")).output().unwrap();
        let (out, err) = (String::from_utf8_lossy(&done.stdout).into_owned(), String::from_utf8_lossy(&done.stderr).into_owned());
        assert_eq!(done.status.code(), Some(status), "{args:?}\n{out}\n{err}");
        // As one line, without the frame around excerpts.
        let plain = err.replace(|c: char| ('\u{2500}'..='\u{257f}').contains(&c) || c == '·', " ");
        (out, plain.split_whitespace().collect::<Vec<_>>().join(" "))
    };

    // A run over three links: checks, the ledger, figures, predictions.
    assert!(run(&["check", "outside.toml"], 0).0.contains("ok"));
    run(&["run", "outside.toml", "--out", "a", "-q"], 0);
    let summary = folder.json("a/summary.json");
    assert_eq!(summary["passed"], true, "{:#}", summary["checks"]);
    assert!(summary["checks"].as_array().unwrap().len() >= 2);
    for file in ["trace.parquet", "config.toml", "figure.svg"] {
        assert!(!folder.read(&format!("a/{file}")).is_empty(), "{file}");
    }
    let result = |method: &str, point: &str| {
        let all = summary["results"].as_array().unwrap();
        all.iter().find(|it| it["method"] == method && it["point"].as_str().unwrap().contains(point)).unwrap().clone()
    };
    let bits = |method: &str, point: &str| result(method, point)["ledger"]["bits_up"].as_f64().unwrap();
    assert!(bits("FedProx", "8 bits") < 0.9 * bits("FedProx", "exact"));
    assert_eq!(bits("projected FedHSA", "exact"), 2.0 * bits("FedProx", "exact"));
    let theory: Json = serde_json::from_str(&run(&["theory", "outside.toml", "--json"], 0).0).unwrap();
    let entry = |method: &str| theory["methods"].as_array().unwrap().iter().find(|entry| entry["method"] == method).unwrap().clone();
    assert!(entry("FedLSA")["floor"].as_f64().unwrap() > 0.0 && entry("FedProx")["floor"].as_f64().is_none());

    // Folders with such runs: continued, drawn again, listed, compared.
    // A check may fail after so few rounds.
    let mut few = Command::new(&program);
    few.args(["run", "outside.toml", "--out", "b", "-q", "--rounds", "100"]).current_dir(folder.path(""));
    assert!(few.output().unwrap().status.code().is_some_and(|status| status < 2));
    run(&["run", "outside.toml", "--out", "b", "-q", "--resume", "--rounds", "400"], 0);
    assert!(folder.read("a/trace.parquet") == folder.read("b/trace.parquet"), "continued runs are the same");
    run(&["run", "a/config.toml", "--out", "c", "-q"], 0);
    assert!(folder.read("a/trace.parquet") == folder.read("c/trace.parquet"), "config.toml is the same experiment");
    run(&["plot", "a", "--set", "title=again"], 0);
    assert!(run(&["list", "."], 0).0.contains("finished"));
    run(&["diff", "a", "b"], 0);

    // Errors, the schema and the help know the kinds.
    let (_, unknown) = run(&["check", "outside.toml", "--set", "problem.kind=row"], 2);
    assert!(unknown.contains("there is no problem `row`; did you mean `rows`?") && unknown.contains("garnet"), "{unknown}");
    let (_, unknown) = run(&["check", "outside.toml", "--set", "method.FedProx.kind=fedpros"], 2);
    assert!(unknown.contains("did you mean `fedprox`?") && unknown.contains("projected-fedhsa"), "{unknown}");
    let (_, wrong) = run(&["check", "outside.toml", "--set", "method.FedProx.proximal=-1"], 2);
    assert!(wrong.contains("method[1].proximal") && wrong.contains("at least 0"), "{wrong}");
    let (schema, _) = run(&["schema"], 0);
    for word in ["\"rows\"", "\"fedprox\"", "\"projected-fedhsa\"", "\"proximal\"", "\"garnet\"", "\"quantised\""] {
        assert!(schema.contains(word), "{word}");
    }
    assert!(!schema.contains("x-of-kinds"));
    assert!(run(&["evaluate", "--help"], 0).0.contains("projected-fedhsa"));

    // The program without them refuses their names.
    let refused = folder.run(&["check", "outside.toml"]).exits(2);
    assert!(refused.message().contains("there is no problem `rows`"), "{}", refused.message());
}
