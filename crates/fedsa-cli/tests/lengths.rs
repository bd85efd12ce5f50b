//! Files have at most 600 lines, functions at most 60, their signatures included.

use std::collections::BTreeSet;

use crate::crate_rules::{CRATES, folder, sources};

const MAX_LINES_OF_A_FILE: usize = 600;
const MAX_LINES_OF_A_FUNCTION: usize = 60;

/// The crates of `crates/` beside those of the program.
const OTHERS: [&str; 4] = ["fedsa-python", "fuzz", "testing", "xtask"];

/// The name of the function that begins in a line.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let is_of_it = |word: &str| ["const", "async", "unsafe", "extern", "\"C\""].contains(&word) || word.starts_with("pub");
    before.split(' ').filter(|word| !word.is_empty()).all(is_of_it).then(|| after.split(['(', '<']).next())?
}

/// The functions of a file with their numbers of lines. Formatted code closes a function where its signature begins.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let length = |first: usize| {
        let indent = &lines[first][..lines[first].len() - lines[first].trim_start().len()];
        let mut is_open = false;
        let ends = |line: &str| {
            is_open |= line.ends_with('{');
            !is_open && line.ends_with([';', '}']) || line.strip_prefix(indent) == Some("}")
        };
        lines[first..].iter().copied().position(ends).map_or(lines.len() - first, |last| last + 1)
    };
    lines.iter().enumerate().filter_map(|(i, line)| Some((function(line)?, length(i)))).collect()
}

#[test]
fn nothing_is_too_long() {
    let mut long = BTreeSet::new();
    let mut all = 0;
    for name in CRATES.into_iter().chain(OTHERS) {
        let mut files = Vec::new();
        sources(&folder(name).join("src"), &mut files);
        for path in files {
            let file = format!("{name}/{}", path.strip_prefix(folder(name)).unwrap().display());
            let text = std::fs::read_to_string(&path).unwrap();
            if text.lines().count() > MAX_LINES_OF_A_FILE {
                long.insert(file.clone());
            }
            let functions = functions(&text);
            all += functions.len();
            long.extend(
                functions.into_iter().filter(|(_, lines)| *lines > MAX_LINES_OF_A_FUNCTION).map(|(name, _)| format!("{file} {name}")),
            );
        }
    }
    assert!(all > 3000, "functions are read: {all}");
    assert!(long.is_empty(), "too long: {long:#?}");
}

#[test]
fn lengths_are_found() {
    let text = "fn a() {}\npub(super) const fn b<T>(\n    x: T,\n) -> T {\n    if x {\n    }\n    x\n}\nimpl A {\n    fn c(&self) -> u8;\n    fn d(\n    ) -> u8;\n\
                }\n// of fn e\nlet f: fn (u8) = g;\n";
    assert_eq!(functions(text), [("a", 1), ("b", 7), ("c", 1), ("d", 2)]);
}
