//! `cargo xtask mutants`: faults put into correct code, one at a time, each of which the named tests must notice.
//!
//! `mutants.toml` lists them. The faults are made in a copy of the sources, a git worktree below `target/mutants`, which has the present
//! state of the committed files and of the changes to them; files that git does not know are not in it. They are built in a target folder
//! of their own: cargo cannot tell the copy's crates from the workspace's, and would take one for the other.
//!
//! ```toml
//! [[mutant]]
//! id = "short-name"
//! fault = "what is wrong with the code, in words"
//! file = "crates/fedsa/src/a.rs"
//! before = "text that occurs once in the file"
//! after = "what takes its place"
//! package = "fedsa"                       # the default
//! program = "suites"                      # the default; "lib" for the unit tests
//! tests = ["links::", "twins::fedlsa"]    # in each of these groups a test must fail; two are two independent tests.
//!                                         # "nodes::|session::" is one group: the tests whose names contain one of both
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::root;

const LIST: &str = include_str!("../mutants.toml");

/// Tests of a fault that run longer than this are stopped: the fault is noticed, because they do not end.
const LONGEST: Duration = Duration::from_secs(300);
/// The same for all tests without a fault.
const LONGEST_OF_ALL: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, PartialEq)]
struct Mutant {
    id: String,
    fault: String,
    file: String,
    before: String,
    after: String,
    package: String,
    program: String,
    tests: Vec<String>,
}

/// What came of a mutant.
#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    /// The tests that failed.
    Noticed(Vec<String>),
    /// The groups of tests none of which failed.
    Missed(Vec<String>),
    /// Nothing was found out: the reason.
    Unclear(String),
}

/// Which tests passed, and which failed.
type Tests = BTreeMap<String, bool>;

fn read(list: &str) -> Result<Vec<Mutant>, String> {
    let table: toml::Table = list.parse().map_err(|e| format!("mutants.toml: {e}"))?;
    let all = table.get("mutant").and_then(toml::Value::as_array).ok_or("mutants.toml: no [[mutant]]")?;
    all.iter().map(one).collect()
}

fn one(entry: &toml::Value) -> Result<Mutant, String> {
    const KEYS: [&str; 8] = ["id", "fault", "file", "before", "after", "package", "program", "tests"];
    let id = entry.get("id").and_then(toml::Value::as_str).unwrap_or("without id");
    if let Some(key) = entry.as_table().into_iter().flat_map(|table| table.keys()).find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!("mutants.toml, {id}: there is no key `{key}`"));
    }
    let find = |key: &str| entry.get(key).and_then(toml::Value::as_str).map(String::from);
    let text = |key: &str| find(key).ok_or_else(|| format!("mutants.toml, {id}: no text `{key}`"));
    let tests = entry.get("tests").and_then(toml::Value::as_array).map_or(&[][..], Vec::as_slice);
    let tests: Vec<String> = tests.iter().filter_map(|test| test.as_str().map(String::from)).collect();
    if tests.is_empty() {
        return Err(format!("mutants.toml, {id}: no `tests`"));
    }
    Ok(Mutant {
        id: text("id")?,
        fault: text("fault")?,
        file: text("file")?,
        before: text("before")?,
        after: text("after")?,
        package: find("package").unwrap_or_else(|| "fedsa".into()),
        program: find("program").unwrap_or_else(|| "suites".into()),
        tests,
    })
}

/// The text of the file with the fault.
fn faulty(mutant: &Mutant, text: &str) -> Result<String, String> {
    match text.matches(&mutant.before).count() {
        1 if mutant.after != mutant.before => Ok(text.replacen(&mutant.before, &mutant.after, 1)),
        1 => Err("the text after is the text before".into()),
        n => Err(format!("the text before occurs {n} times in {}", mutant.file)),
    }
}

/// Runs the mutants whose names contain one of `ids`, all of them without any.
///
/// # Errors
/// When a fault was not noticed, a test fails without fault, or a mutant cannot be made.
pub fn run(ids: &[&str]) -> Result<(), String> {
    let all = read(LIST)?;
    if ids == ["--list"] {
        all.iter().for_each(|mutant| println!("{:<32} {}", mutant.id, mutant.fault));
        return Ok(());
    }
    let chosen: Vec<&Mutant> = all.iter().filter(|mutant| ids.is_empty() || ids.iter().any(|id| mutant.id.contains(id))).collect();
    if chosen.is_empty() {
        return Err(format!("no mutant is called {}; --list names all", ids.join(" or ")));
    }
    let sources = copied()?;
    let mut failed = correct(&chosen, &sources)?;
    let mut rows = Vec::new();
    for (i, mutant) in chosen.iter().enumerate() {
        eprintln!("=== {} of {}: {} ({})", i + 1, chosen.len(), mutant.id, mutant.fault);
        let start = Instant::now();
        let outcome = noticed(mutant, &sources).unwrap_or_else(Outcome::Unclear);
        failed |= !matches!(outcome, Outcome::Noticed(_));
        rows.push((mutant.id.as_str(), outcome, start.elapsed()));
        eprintln!("{}", rows.last().map_or(String::new(), |(id, outcome, time)| row(id, outcome, *time)));
    }
    println!();
    rows.iter().for_each(|(id, outcome, time)| println!("{}", row(id, outcome, *time)));
    if failed { Err("not every fault was noticed by the tests that are to notice it".into()) } else { Ok(()) }
}

fn row(id: &str, outcome: &Outcome, time: Duration) -> String {
    let (word, what) = match outcome {
        Outcome::Noticed(tests) => ("noticed", tests.join(", ")),
        Outcome::Missed(groups) => ("MISSED", format!("by {}", groups.join(", "))),
        Outcome::Unclear(why) => ("UNCLEAR", why.clone()),
    };
    format!("{word:<8} {:>6.1} s  {id:<32} {what}", time.as_secs_f64())
}

/// A worktree below `target` with the present sources. One that is there is brought up to date, so that what has not changed is not
/// built anew.
fn copied() -> Result<PathBuf, String> {
    let git = |folder: &Path, args: &[&str]| {
        let output = Command::new("git").current_dir(folder).args(args).output().map_err(|e| format!("git: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_string();
        if output.status.success() { Ok(text) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    };
    let sources = root().join("target/mutants/sources");
    // A commit of the changes, which leaves them where they are; empty if there are none.
    let changes = git(&root(), &["stash", "create"])?;
    let commit = if changes.is_empty() { git(&root(), &["rev-parse", "HEAD"])? } else { changes };
    if git(&sources, &["rev-parse", "--show-toplevel"]).is_ok_and(|top| Path::new(&top) == sources) {
        git(&sources, &["checkout", "--quiet", "--force", "--detach", &commit])?;
    } else {
        git(&root(), &["worktree", "prune"])?;
        git(&root(), &["worktree", "add", "--quiet", "--force", "--detach", &sources.to_string_lossy(), &commit])?;
    }
    Ok(sources)
}

/// Runs the tests without faults: a test that fails then, or a group without any, would say nothing. Returns whether there is one.
fn correct(chosen: &[&Mutant], sources: &Path) -> Result<bool, String> {
    let mut programs: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for mutant in chosen {
        programs.entry((&mutant.package, &mutant.program)).or_default().extend(mutant.tests.iter().cloned());
    }
    let mut failed = false;
    for ((package, program), mut groups) in programs {
        groups.sort();
        groups.dedup();
        eprintln!("=== {package}, {program}: without faults");
        let tests = tested(package, program, &groups, sources, LONGEST_OF_ALL)?.ok_or("the tests do not end")?;
        for group in &groups {
            let of: Vec<(&String, &bool)> = tests.iter().filter(|(name, _)| is_of(group, name)).collect();
            if of.is_empty() {
                println!("no test is called {group}");
            }
            of.iter().filter(|(_, passes)| !**passes).for_each(|(name, _)| println!("{name} fails without any fault"));
            failed |= of.is_empty() || of.iter().any(|(_, passes)| !**passes);
        }
    }
    Ok(failed)
}

/// Makes the fault, runs the tests, and takes the fault out again.
fn noticed(mutant: &Mutant, sources: &Path) -> Result<Outcome, String> {
    let file = sources.join(&mutant.file);
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", mutant.file))?;
    let write = |text: &str| fs::write(&file, text).map_err(|e| format!("{}: {e}", mutant.file));
    write(&faulty(mutant, &text)?)?;
    let tests = tested(&mutant.package, &mutant.program, &mutant.tests, sources, LONGEST);
    write(&text)?;
    Ok(judged(&mutant.tests, tests?.as_ref()))
}

/// Whether a test is one of a group, which names parts of names separated by `|`.
fn is_of(group: &str, test: &str) -> bool {
    group.split('|').any(|part| test.contains(part))
}

/// What the tests say of a fault; `None` where they did not end.
fn judged(groups: &[String], tests: Option<&Tests>) -> Outcome {
    let Some(tests) = tests else { return Outcome::Noticed(vec!["they do not end".into()]) };
    let failed: Vec<&String> = tests.iter().filter(|(_, passes)| !**passes).map(|(name, _)| name).collect();
    let missed: Vec<String> = groups.iter().filter(|group| !failed.iter().any(|name| is_of(group, name))).cloned().collect();
    if missed.is_empty() { Outcome::Noticed(failed.into_iter().cloned().collect()) } else { Outcome::Missed(missed) }
}

/// Builds a test program and runs some of its tests; `None` if they do not end.
///
/// # Errors
/// When the program cannot be built, or dies.
fn tested(package: &str, program: &str, groups: &[String], sources: &Path, longest: Duration) -> Result<Option<Tests>, String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(sources).env("CARGO_TARGET_DIR", root().join("target/mutants/target"));
    command.args(["test", "--profile", "quick", "--package", package]);
    match program {
        "lib" => command.arg("--lib"),
        name => command.args(["--test", name]),
    };
    let built = command.args(["--no-run", "--message-format=json-render-diagnostics"]).output().map_err(|e| format!("cargo: {e}"))?;
    if !built.status.success() {
        let text = String::from_utf8_lossy(&built.stderr);
        let first = text.lines().find(|line| line.starts_with("error")).unwrap_or("cargo failed");
        return Err(format!("it does not compile: {first}"));
    }
    let (program, folder) = executable(&String::from_utf8_lossy(&built.stdout)).ok_or("cargo names no test program")?;
    // The program itself and not cargo, so that it can be stopped.
    let mut tests = Command::new(program);
    tests
        .current_dir(folder)
        .args(groups.iter().flat_map(|group| group.split('|')))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .env("RUST_BACKTRACE", "0");
    let Some((text, is_success)) = ended(&mut tests, longest)? else { return Ok(None) };
    let found = parsed(&text);
    if !is_success && found.values().all(|passes| *passes) {
        return Err("the test program dies".into());
    }
    Ok(Some(found))
}

/// The test program that cargo's messages name, and the folder of its package.
fn executable(messages: &str) -> Option<(PathBuf, PathBuf)> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let of_tests = messages.filter(|message| message["profile"]["test"] == true);
    let mut named = of_tests.filter_map(|message| {
        let manifest = Path::new(message["manifest_path"].as_str()?);
        Some((message["executable"].as_str()?.into(), manifest.parent()?.to_path_buf()))
    });
    named.next_back()
}

/// What a command writes, and whether it succeeds; `None` if it takes longer. It is then stopped.
fn ended(command: &mut Command, longest: Duration) -> Result<Option<(String, bool)>, String> {
    let mut child = command.spawn().map_err(|e| format!("cargo: {e}"))?;
    let mut out = child.stdout.take().expect("a pipe");
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        // What was written until the end, whatever ends it.
        let _ = out.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("cargo: {e}"))? {
            return Ok(Some((reader.join().unwrap_or_default(), status.success())));
        }
        if start.elapsed() > longest {
            child.kill().map_err(|e| format!("cargo: {e}"))?;
            child.wait().map_err(|e| format!("cargo: {e}"))?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The tests that a test program names with their results.
fn parsed(text: &str) -> Tests {
    let one = |line: &str| {
        let (name, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
        // Tests that must panic have a note after their name.
        let name = name.split(" - ").next().unwrap_or(name).to_string();
        match result {
            "ok" => Some((name, true)),
            "FAILED" => Some((name, false)),
            _ => None,
        }
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_can_be_made_of_the_present_sources() {
        let all = read(LIST).unwrap();
        assert!(!all.is_empty());
        for (i, mutant) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other.id != mutant.id), "two mutants are called {}", mutant.id);
            let text = fs::read_to_string(root().join(&mutant.file)).unwrap_or_else(|e| panic!("{}: {}: {e}", mutant.id, mutant.file));
            faulty(mutant, &text).unwrap_or_else(|e| panic!("{}: {e}", mutant.id));
        }
    }

    #[test]
    fn a_fault_is_noticed_if_a_test_of_each_group_fails() {
        let groups = ["links::".to_string(), "twins::".to_string()];
        let tests = parsed("running 3 tests\ntest links::a ... ok\ntest links::b - should panic ... FAILED\ntest twins::c ... ok\n");
        assert_eq!(tests.len(), 3);
        assert_eq!(judged(&groups[..1], Some(&tests)), Outcome::Noticed(vec!["links::b".into()]));
        assert_eq!(judged(&groups, Some(&tests)), Outcome::Missed(vec!["twins::".into()]));
        assert_eq!(judged(&["twins::|links::".into()], Some(&tests)), Outcome::Noticed(vec!["links::b".into()]));
        assert!(matches!(judged(&groups, None), Outcome::Noticed(_)));
    }

    #[test]
    fn a_list_with_a_mistake_is_refused() {
        let entry =
            |more: &str| read(&format!("[[mutant]]\nid = \"a\"\nfault = \"b\"\nfile = \"c\"\nbefore = \"d\"\nafter = \"e\"\n{more}"));
        assert_eq!(entry("tests = [\"f\"]").unwrap()[0].program, "suites");
        for (more, message) in [("", "no `tests`"), ("tests = [\"f\"]\ntest = 1", "there is no key `test`")] {
            assert!(entry(more).unwrap_err().contains(message));
        }
        let mutant = &entry("tests = [\"f\"]").unwrap()[0];
        assert_eq!(faulty(mutant, "a d c").unwrap(), "a e c");
        assert!(faulty(mutant, "d d").is_err() && faulty(mutant, "").is_err());
    }
}
