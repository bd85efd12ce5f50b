//! Which crate may use which: the test reads manifests and sources as text, and compares them with a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate, the other crates of this workspace that it may use, libraries that it must not use, and
/// what its code must not name.
struct Rule {
    name: &'static str,
    uses: &'static [&'static str],
    without: &'static [&'static str],
    never: &'static [&'static [&'static str]],
}

/// The crates of which the program is built.
pub const CRATES: [&str; 10] = [
    "fedsa",
    "fedsa-problems",
    "fedsa-methods",
    "fedsa-evaluate",
    "fedsa-theory",
    "fedsa-data",
    "fedsa-figure",
    "fedsa-experiment",
    "fedsa-report",
    "fedsa-cli",
];

/// Libraries of the command line and the terminal.
const TERMINAL: &[&str] = &["clap", "clap_complete", "clap_mangen", "miette", "indicatif", "textwrap", "signal-hook", "log"];

/// The same without clap, of which the types of tasks derive their options.
const BELOW_OPTIONS: &[&str] = &["clap_complete", "clap_mangen", "miette", "indicatif", "textwrap", "signal-hook", "log"];

/// What reaches the terminal, or ends the process.
const SPEAKS: &[&str] = &["println!", "print!(", "eprint!(", "dbg!", "stdout()", "stderr()", "stdin()", "process::exit", "panic::set_hook"];

/// Files, networks and the environment, with which the engine, its methods and its evaluations have no business.
const READS: &[&str] = &["std::fs", "std::io", "std::env", "std::net", "std::process", "File::"];

const RULES: &[Rule] = &[
    Rule { name: "fedsa-methods", uses: &["fedsa"], without: TERMINAL, never: &[SPEAKS, READS] },
    Rule { name: "fedsa-problems", uses: &["fedsa"], without: TERMINAL, never: &[SPEAKS, READS] },
    Rule { name: "fedsa-evaluate", uses: &["fedsa", "fedsa-problems"], without: TERMINAL, never: &[SPEAKS, READS] },
    Rule { name: "fedsa-theory", uses: &["fedsa", "fedsa-methods"], without: TERMINAL, never: &[SPEAKS] },
    Rule { name: "fedsa-figure", uses: &[], without: TERMINAL, never: &[SPEAKS] },
    Rule { name: "fedsa-data", uses: &["fedsa", "fedsa-evaluate", "fedsa-problems"], without: TERMINAL, never: &[SPEAKS] },
    Rule {
        name: "fedsa-experiment",
        uses: &["fedsa", "fedsa-data", "fedsa-evaluate", "fedsa-figure", "fedsa-methods", "fedsa-problems", "fedsa-theory"],
        without: BELOW_OPTIONS,
        never: &[SPEAKS],
    },
    Rule { name: "fedsa-report", uses: &["fedsa", "fedsa-data", "fedsa-experiment"], without: TERMINAL, never: &[SPEAKS] },
    // What the program shows it takes from the crates below; it reads and draws nothing itself.
    Rule {
        name: "fedsa-cli",
        uses: &[
            "fedsa",
            "fedsa-data",
            "fedsa-evaluate",
            "fedsa-experiment",
            "fedsa-figure",
            "fedsa-methods",
            "fedsa-problems",
            "fedsa-report",
            "fedsa-theory",
        ],
        without: &["parquet", "zip", "csv", "tiny-skia", "pdf-writer", "toml_edit"],
        never: &[],
    },
];

pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// The dependencies of a manifest, those of its tests aside.
fn dependencies(manifest: &str) -> Vec<String> {
    let manifest: toml::Table = manifest.parse().unwrap();
    let of = |table: Option<&toml::Value>| -> Vec<String> {
        table.and_then(|t| t.get("dependencies")?.as_table()).map(|t| t.keys().cloned().collect()).unwrap_or_default()
    };
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let mut all = of(Some(&toml::Value::Table(manifest.clone())));
    all.extend(targets.into_iter().flat_map(|targets| targets.values()).flat_map(|target| of(Some(target))));
    all
}

/// What is wrong with the manifest of a crate.
fn wrong_dependencies(rule: &Rule, manifest: &str) -> Vec<String> {
    let forbidden = |name: &String| {
        rule.without.contains(&name.as_str()) || name.starts_with("fedsa") && !rule.uses.contains(&name.as_str()) || name == "xtask"
    };
    dependencies(manifest).into_iter().filter(forbidden).map(|name| format!("{} uses {name}", rule.name)).collect()
}

/// What is wrong with a source file; its tests come last, and may print.
fn wrong_words(rule: &Rule, file: &str, text: &str) -> Vec<String> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().expect("a first piece");
    let code: Vec<&str> = code.lines().map(|line| line.split("//").next().expect("a first piece")).collect();
    let code = code.join("\n");
    rule.never.iter().copied().flatten().filter(|word| code.contains(**word)).map(|word| format!("{file}: {word}")).collect()
}

pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn crates_know_only_what_they_may() {
    let mut wrong = Vec::new();
    for rule in RULES {
        wrong.extend(wrong_dependencies(rule, &std::fs::read_to_string(folder(rule.name).join("Cargo.toml")).unwrap()));
        let mut files = Vec::new();
        sources(&folder(rule.name).join("src"), &mut files);
        assert!(files.len() > 1, "{}", rule.name);
        for file in files {
            wrong.extend(wrong_words(rule, &file.display().to_string(), &std::fs::read_to_string(&file).unwrap()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The code of a file without comments and tests, line by line.
pub fn lines_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().expect("a first piece");
    code.lines().map(|line| line.split("//").next().expect("a first piece")).enumerate()
}

/// Whether a line names an option of a program: two hyphens and a letter.
fn names_an_option(line: &str) -> bool {
    let bytes = line.as_bytes();
    // Those that the library gives to another program, which downloads, are not ours.
    let is_ours = !line.trim_start().starts_with("curl.args(");
    is_ours && bytes.windows(3).enumerate().any(|(i, w)| w[..2] == *b"--" && w[2].is_ascii_lowercase() && (i == 0 || bytes[i - 1] != b'-'))
}

/// Whether a line looks for words in what an error says.
fn reads_words(line: &str) -> bool {
    let fields = [".what", ".help"];
    let looks = [
        ".contains(",
        ".starts_with(",
        ".ends_with(",
        ".strip_prefix(",
        ".strip_suffix(",
        ".split(",
        ".split_once(",
        ".find(",
        ".replace(",
    ];
    fields.iter().any(|field| looks.iter().any(|look| line.contains(&format!("{field}{look}"))))
}

/// What is wrong with the files of these crates: the lines of which `is_wrong` is true.
fn wrong_lines(crates: &[&str], is_wrong: fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in crates {
        let mut files = Vec::new();
        sources(&folder(name).join("src"), &mut files);
        for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
            let text = std::fs::read_to_string(file).unwrap();
            let found = lines_of_code(&text).filter(|(_, line)| is_wrong(line));
            wrong.extend(found.map(|(i, line)| format!("{}:{}: {}", file.display(), i + 1, line.trim())));
        }
    }
    wrong
}

#[test]
fn libraries_name_no_option_of_the_program() {
    let wrong = wrong_lines(
        &["fedsa", "fedsa-methods", "fedsa-evaluate", "fedsa-theory", "fedsa-data", "fedsa-experiment", "fedsa-figure"],
        names_an_option,
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(names_an_option("\"use --set key\"") && !names_an_option("a - -b --- c --"));
}

#[test]
fn no_code_reads_the_words_of_an_error() {
    let wrong = wrong_lines(&CRATES, reads_words);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(reads_words("if e.what.starts_with(\"unknown\") {") && !reads_words("e.saying(e.what.clone())"));
}

#[test]
fn what_is_forbidden_is_found() {
    let manifest = "[dependencies]\nfedsa.workspace = true\nfedsa-experiment.workspace = true\nclap = \"4\"\n\
                    [target.'cfg(unix)'.dependencies]\nindicatif = \"0.18\"\n[dev-dependencies]\nmiette = \"7\"\n";
    let wrong = ["fedsa-data uses fedsa-experiment", "fedsa-data uses clap", "fedsa-data uses indicatif"];
    let data = RULES.iter().find(|rule| rule.name == "fedsa-data").unwrap();
    let mut found = wrong_dependencies(data, manifest);
    found.sort();
    let mut expected = wrong.map(String::from).to_vec();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(wrong_words(data, "a.rs", "fn f() {\n    eprintln!(\"x\");\n}"), ["a.rs: println!"]);
    assert!(wrong_words(data, "a.rs", "// println!\n#[cfg(test)]\nmod tests {\n    println!()\n}").is_empty());
}

/// The libraries that a command of cargo compiles, with their features.
fn features(options: &[&str]) -> BTreeMap<String, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--offline", "--prefix", "none", "--no-dedupe", "--format", "{p}\t{f}"]).args(options);
    let done = cargo.current_dir(folder("..")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8(done.stdout).unwrap();
    // A package that is listed again is marked in the column of features.
    let line = |line: &str| line.trim_end_matches(" (*)").split_once('\t').map(|(name, with)| (name.to_string(), with.to_string()));
    text.lines().filter_map(line).collect()
}

/// A library that tests build with other features is compiled a second time, and with it all that uses it.
#[test]
fn tests_use_the_libraries_that_the_program_is_built_from() {
    let tested = features(&["--workspace", "--edges", "normal,build,dev"]);
    let built = features(&["--package", "fedsa-cli", "--edges", "normal,build"]);
    assert!(built.len() > 100, "{}", built.len());
    for (library, with) in built {
        assert_eq!(tested[&library], with, "{library}");
    }
}
