//! `cargo xtask test`: everything that must hold of a commit.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::{book, cargo, package, python, root};

enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Runs the steps one after the other, all of them whatever their outcome.
///
/// # Errors
/// When a step failed.
pub fn run(all: bool) -> Result<(), String> {
    let is_ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
    let mut summary = Vec::new();
    let mut step = |name: &'static str, work: &mut dyn FnMut() -> Outcome| {
        eprintln!("\n=== {name}");
        let start = Instant::now();
        let outcome = match work() {
            Outcome::Skipped if is_ci => Outcome::Failed,
            outcome => outcome,
        };
        summary.push((name, outcome, start.elapsed()));
    };
    step("format", &mut || passes(&mut cargo(&["fmt", "--all", "--check"])));
    step("paths", &mut paths);
    step("book", &mut || match book::check() {
        Ok(()) => Outcome::Passed,
        Err(what) => {
            eprintln!("{what}");
            Outcome::Failed
        }
    });
    step("lints", &mut || passes(&mut cargo(&["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"])));
    step("documentation", &mut || {
        passes(cargo(&["doc", "--release", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"))
    });
    let mut python = None;
    step("python", &mut || match python::interpreter(&[python::NUMPY, python::JSONSCHEMA]) {
        Ok(interpreter) => {
            python = Some(interpreter);
            Outcome::Passed
        }
        Err(why) => {
            eprintln!("{why}\nno Python with NumPy and jsonschema here: tests that call it are skipped");
            Outcome::Skipped
        }
    });
    let skipped = root().join("target/skipped-tests.txt");
    let _ = std::fs::remove_file(&skipped);
    let tests = |targets: &[&str]| {
        let mut tests = cargo(&["test", "--release", "--workspace", "--no-fail-fast"]);
        tests.args(targets).env("FEDSA_SKIPPED_TESTS", &skipped);
        if all {
            tests.args(["--", "--include-ignored"]);
        }
        if let Some(python) = &python {
            tests.env("FEDSA_PYTHON", python);
        }
        passes(&mut tests)
    };
    // Without the examples, which have no tests: that they compile is seen by the lints.
    step("tests", &mut || tests(&["--tests"]));
    step("examples in the documentation", &mut || tests(&["--doc"]));

    let _ = all.then(|| step("a round on one page", &mut page));
    package_steps(&mut step, python.is_some(), all);
    tell_skipped(&skipped);
    tell(&summary);
    let failed: Vec<&str> = summary.iter().filter(|(_, o, _)| matches!(o, Outcome::Failed)).map(|(name, ..)| *name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Counts the functions and files of a round. A backtrace names them in the development profile only.
fn page() -> Outcome {
    passes(&mut cargo(&["test", "--package", "fedsa", "--test", "suites", "page::"]))
}

/// The steps of the Python package. The program's tests have compiled what the wheel is made of.
fn package_steps(step: &mut dyn FnMut(&'static str, &mut dyn FnMut() -> Outcome), has_python: bool, all: bool) {
    let mut installed = None;
    step("wheel of the Python package", &mut || match package::install() {
        Ok(interpreter) => {
            installed = Some(interpreter);
            Outcome::Passed
        }
        Err(why) => {
            eprintln!("{why}");
            if has_python { Outcome::Failed } else { Outcome::Skipped }
        }
    });
    let has_wheel = installed.is_some();
    step("tests of the Python package", &mut || of_wheel(installed.as_ref().map(|interpreter| package::test(interpreter, all))));
    step("tests of federations on Flower", &mut || of_wheel(has_wheel.then(|| package::test_flower(all))));
    step("tests of reports in a browser", &mut || of_wheel(has_wheel.then(|| package::test_browser(all))));
}

/// The outcome of tests that need the wheel; without it they are skipped.
fn of_wheel(tests: Option<Result<(), String>>) -> Outcome {
    match tests {
        None => Outcome::Skipped,
        Some(Ok(())) => Outcome::Passed,
        Some(Err(why)) => {
            eprintln!("{why}");
            Outcome::Failed
        }
    }
}

/// Prints the names of the tests that were skipped, which a file lists.
fn tell_skipped(file: &Path) {
    let skipped = std::fs::read_to_string(file).unwrap_or_default();
    let skipped: BTreeSet<&str> = skipped.lines().collect();
    if !skipped.is_empty() {
        eprintln!("\n=== {} tests were skipped (under CI=true they fail)", skipped.len());
        skipped.iter().for_each(|test| eprintln!("{test}"));
    }
}

/// Prints the outcome and the time of every step.
fn tell(summary: &[(&str, Outcome, Duration)]) {
    eprintln!("\n=== summary");
    for (name, outcome, time) in summary {
        let word = match outcome {
            Outcome::Passed => "ok",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "skipped",
        };
        eprintln!("{word:<8} {:>7.1} s  {name}", time.as_secs_f64());
    }
    let total: Duration = summary.iter().map(|(_, _, time)| *time).sum();
    eprintln!("{:<8} {:>7.1} s", "total", total.as_secs_f64());
}

fn passes(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Outcome::Passed,
        Ok(_) => Outcome::Failed,
        Err(e) => {
            eprintln!("{command:?}: {e}");
            Outcome::Failed
        }
    }
}

/// Committed files hold no absolute paths of the machine they were written on: neither
/// this repository's folder or those around it, nor the home folder.
fn paths() -> Outcome {
    let listed = Command::new("git").current_dir(root()).args(["ls-files", "-z"]).output();
    let Ok(listed) = listed else {
        eprintln!("no git here");
        return Outcome::Skipped;
    };
    if !listed.status.success() {
        eprintln!("no git repository here");
        return Outcome::Skipped;
    }
    let home = std::env::var("HOME").unwrap_or_default();
    let around = root().ancestors().map(|folder| folder.to_string_lossy().into_owned()).collect::<Vec<_>>();
    // Folders that every machine has say nothing of this one.
    let everywhere = ["", "/", "/home", "/Users", "/opt", "/root", "/tmp", "/usr", "/usr/local", "/usr/src", "/var", "/mnt", "/srv"];
    let ours: Vec<String> =
        around.into_iter().chain([home]).filter(|folder| !everywhere.contains(&folder.as_str())).map(|folder| folder + "/").collect();
    let mut found = false;
    for file in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|file| !file.is_empty()) {
        let Ok(text) = std::fs::read_to_string(root().join(file)) else { continue };
        for (number, line) in text.lines().enumerate() {
            if let Some(folder) = ours.iter().find(|folder| holds_path(line, folder)) {
                eprintln!("{file}:{}: a path of this machine, below {folder}", number + 1);
                found = true;
            }
        }
    }
    if found { Outcome::Failed } else { Outcome::Passed }
}

/// Whether `line` holds an absolute path that starts with `folder`.
fn holds_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.~/".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::holds_path;

    #[test]
    fn absolute_paths_are_told_from_relative_ones() {
        for line in ["/some/where/x", "see \"/some/where/x\"", "path=/some/where/"] {
            assert!(holds_path(line, "/some/where/"), "{line}");
        }
        for line in ["../some/where/x", "a/some/where/x", "/some/wherever", "https://a.b/some/where/"] {
            assert!(!holds_path(line, "/some/where/"), "{line}");
        }
    }
}
