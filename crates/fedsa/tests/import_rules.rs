//! Which module may import which: the test reads the sources as text, and compares imports with a table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The modules of the crate, and which others each may name.
///
/// Only `federation`, `coordinator`, `round` and `node` see several stages of problem -> local -> uplink -> server.
const MAY_USE: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("note", &[]),
    ("columns", &[]),
    ("settings", &["error"]),
    ("registry", &["error", "settings"]),
    ("random", &[]),
    ("linalg", &["error", "kernel"]),
    ("triangle", &["linalg"]),
    ("eigenpairs", &["kernel", "linalg", "random"]),
    ("parallel", &[]),
    ("cancel", &["error"]),
    ("saved", &["error"]),
    ("privacy", &["error"]),
    ("sampling", &["error", "settings"]),
    ("schedule", &["error", "random", "settings"]),
    ("kernel", &["random", "problem"]),
    ("problem", &["cancel", "error", "random", "linalg", "parallel", "privacy", "sampling", "kernel", "sums", "triangle"]),
    (
        "uplink",
        &["error", "kernel", "linalg", "message", "parallel", "privacy", "protocol", "random", "registry", "secure", "settings", "sums"],
    ),
    ("secure", &["error", "linalg", "message", "privacy", "random", "uplink"]),
    ("sums", &["kernel"]),
    ("message", &["error", "random", "uplink"]),
    ("protocol", &["error", "message", "secure", "uplink"]),
    ("local", &["cancel", "eigenpairs", "error", "kernel", "linalg", "message", "problem", "random", "schedule", "triangle"]),
    ("server", &["error", "message", "random", "sums"]),
    ("method", &["error", "local", "message", "privacy", "protocol", "schedule", "server", "uplink"]),
    ("record", &["message", "problem", "random"]),
    ("federation", &["error", "linalg", "local", "problem", "protocol", "record", "sampling", "secure", "uplink", "method"]),
    ("enrolment", &["columns", "coordinator", "error", "federation", "protocol", "record", "saved", "secure", "uplink", "method"]),
    (
        "coordinator",
        &["error", "federation", "linalg", "message", "parallel", "protocol", "random", "record", "secure", "server", "uplink"],
    ),
    ("metrics", &["coordinator", "error", "linalg", "parallel", "problem"]),
    (
        "round",
        &[
            "cancel",
            "coordinator",
            "error",
            "federation",
            "kernel",
            "local",
            "message",
            "metrics",
            "parallel",
            "problem",
            "random",
            "record",
            "saved",
            "secure",
            "server",
            "sums",
            "uplink",
        ],
    ),
    (
        "node",
        &[
            "coordinator",
            "error",
            "federation",
            "kernel",
            "local",
            "message",
            "metrics",
            "problem",
            "protocol",
            "random",
            "record",
            "sampling",
            "saved",
            "secure",
            "server",
            "uplink",
        ],
    ),
    ("session", &["cancel", "coordinator", "error", "metrics", "node", "record", "round"]),
];

/// Input, output and surroundings that a library has no business with.
const FORBIDDEN: &[&str] =
    &["std::fs", "std::io", "std::env", "std::net", "std::process", "println!", "print!", "eprint!", "dbg!", "File::"];

/// Where hand-written kernels are: nothing else is `unsafe`.
const UNSAFE: &[&str] = &["kernel/", "uplink/codec/quantised.rs"];

/// The code of a source file: no comments, and no tests, which come last.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().expect("a first piece");
    text.lines().map(|line| line.split("//").next().expect("a first piece")).collect::<Vec<_>>().join("\n")
}

/// The modules of the crate that the code of a file names. `file` is relative to `src`.
fn named(file: &Path, code: &str) -> Vec<String> {
    let depth = file.components().count() - usize::from(file.file_name().is_some_and(|name| name == "mod.rs"));
    // From the root of the crate, by name or by as many `super` as it takes.
    let roots = ["crate::".to_string(), "super::".repeat(depth)];
    let mut found = Vec::new();
    for root in roots {
        for (at, _) in code.match_indices(&root) {
            if code[..at].ends_with("super::") {
                continue;
            }
            let rest = &code[at + root.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().expect("a first piece").split(',').map(str::trim).collect(),
                None => vec![rest],
            };
            let module = |name: &str| name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("").to_string();
            found.extend(names.into_iter().map(module).filter(|name| MAY_USE.iter().any(|(m, _)| m == name)));
        }
    }
    found
}

/// What is wrong with a file.
fn violations(file: &Path, text: &str) -> Vec<String> {
    let code = code(text);
    let name = file.display().to_string();
    let module = name.split(['/', '.']).next().expect("a first piece");
    let mut wrong: Vec<String> = FORBIDDEN.iter().filter(|f| code.contains(**f)).map(|f| format!("{name}: {f}")).collect();
    if !UNSAFE.iter().any(|place| name.starts_with(place))
        && code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe")
    {
        wrong.push(format!("{name}: unsafe"));
    }
    match MAY_USE.iter().find(|(m, _)| *m == module) {
        // It names all that programs need.
        None if module == "prelude" => {}
        None => wrong.push(format!("{name}: a module without a row in the table")),
        Some((_, allowed)) => {
            let used = named(file, &code).into_iter().filter(|used| used != module && !allowed.contains(&used.as_str()));
            wrong.extend(used.map(|used| format!("{name}: {module} names {used}")));
        }
    }
    wrong
}

fn sources(folder: &Path, root: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, root, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.insert(path.strip_prefix(root).unwrap().to_path_buf(), std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn modules_know_only_what_they_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    sources(&root, &root, &mut files);
    let lib = files.remove(Path::new("lib.rs")).unwrap();
    for (module, _) in MAY_USE {
        assert!(lib.contains(&format!("pub mod {module};")), "{module} is in the table but not in lib.rs");
    }
    let wrong: Vec<String> = files.iter().flat_map(|(file, text)| violations(file, text)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_no_row_that_nobody_needs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    sources(&root, &root, &mut files);
    for (module, allowed) in MAY_USE {
        let belongs = |file: &Path| file.display().to_string().split(['/', '.']).next() == Some(module);
        let used: Vec<String> = files.iter().filter(|(file, _)| belongs(file)).flat_map(|(file, text)| named(file, &code(text))).collect();
        for other in *allowed {
            assert!(used.iter().any(|u| u == other), "{module} does not name {other}");
        }
    }
}

#[test]
fn what_is_forbidden_is_found() {
    let wrong = |file: &str, text: &str| violations(Path::new(file), text);
    assert_eq!(wrong("local/batch.rs", "use crate::server::Broadcast;"), ["local/batch.rs: local names server"]);
    assert_eq!(wrong("local/mod.rs", "use super::round::Run;"), ["local/mod.rs: local names round"]);
    assert_eq!(wrong("local/batch.rs", "use super::super::round::Run;"), ["local/batch.rs: local names round"]);
    assert_eq!(wrong("server.rs", "use crate::{message::Part, problem::Field};"), ["server.rs: server names problem"]);
    assert_eq!(wrong("problem/td/td0/td0.rs", "fn f() { crate::method::Drift; }"), ["problem/td/td0/td0.rs: problem names method"]);
    assert_eq!(wrong("record/mod.rs", "unsafe { x() }"), ["record/mod.rs: unsafe"]);
    assert_eq!(wrong("round.rs", "eprintln!(\"\");").len(), 1);
    assert_eq!(wrong("new/mod.rs", "").len(), 1);
    assert_eq!(wrong("theory/mod.rs", "#[cfg(test)]\nmod testing;\nuse crate::local;").len(), 1);
    assert!(wrong("local/batch.rs", "// crate::server\nuse super::{Batch};\n#[cfg(test)]\nmod tests { use crate::server; }").is_empty());
}
