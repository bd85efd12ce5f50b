//! No two files of a crate import each other, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use crate::crate_rules::CRATES;
use crate::imports::{Arrows, Names, Source, imports, imports_of, read};

/// Sets of files that import each other.
fn circles(arrows: &Arrows) -> Vec<Vec<String>> {
    let reach = |from: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_string()]);
        while let Some(file) = next.pop() {
            for to in arrows.get(&file).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = arrows.keys().map(|file| (file.as_str(), reach(file))).collect();
    let mut found: Vec<Vec<String>> = Vec::new();
    for (file, reaches) in &reached {
        if !reaches.contains(*file) || found.iter().flatten().any(|in_one| in_one == file) {
            continue;
        }
        found.push(reaches.iter().filter(|other| reached[other.as_str()].contains(*file)).cloned().collect());
    }
    found
}

#[test]
fn no_files_import_each_other() {
    let mut wrong = Vec::new();
    for name in CRATES {
        wrong.extend(circles(&imports_of(name)).iter().map(|circle| format!("{name}: {}", circle.join(", "))));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn circles_are_found() {
    let files = [
        ("", "lib.rs", "mod a;\nmod b;\nmod c;\npub use c::inner::{Thing, thing};"),
        ("a", "a.rs", "use crate::b::two;\n/// use crate::c;\nfn one() { let _ = \"crate::c::three\"; }"),
        ("b", "b.rs", "use crate::{Thing as That};\nfn two() {}"),
        ("c", "c/mod.rs", "pub mod inner;\nfn three() {}"),
        (
            "c inner",
            "c/inner.rs",
            "pub struct Thing;\npub fn thing() { super::super::a::one() }\n#[cfg(test)]\nmod tests { use crate::c::three; }",
        ),
    ];
    let all = |files: &[(&str, &str, &str)]| -> BTreeMap<Names, Source> {
        let module = |names: &str| names.split_whitespace().map(str::to_string).collect();
        files.iter().map(|(module_, file, text)| (module(module_), read(file.to_string(), text))).collect()
    };
    assert_eq!(circles(&imports(&all(&files))), [["a.rs", "b.rs", "c/inner.rs"]]);
    assert!(circles(&imports(&all(&files[..4]))).is_empty());
}
