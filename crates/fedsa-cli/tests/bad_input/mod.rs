//! Bad input: a clear message that names file, line and value and says what would
//! be accepted; exit status 2; nothing written. All tests run the real program.

mod data_files;
mod figures;
mod files;
mod keys;
mod links;
mod memory;
mod options;

use crate::common::{Folder, SMALL, arrays, edited, mrp, mrp_with, npz_bytes, small, with_problem};
use fedsa::problem::arrays::Arrays;

/// Words that only the program's author would understand.
const INTERNAL: &[&str] =
    &["panicked", "struct ", "enum ", "usize", "u64", "f64", "untagged", "Error", "Some(", "Err(", "unwrap", "backtrace"];

/// Runs the program, which must refuse: status 2, all of `expected` in the message, nothing changed.
#[track_caller]
fn refused(folder: &Folder, args: &[&str], expected: &[&str]) -> String {
    let before = folder.everything();
    let output = folder.run(args).exits(2);
    let message = output.message();
    for text in expected {
        assert!(message.contains(text), "{args:?}: `{text}` is not in\n{}", output.stderr);
    }
    for word in INTERNAL {
        assert!(!message.contains(word), "{args:?}: `{word}` is in\n{}", output.stderr);
    }
    assert!(folder.everything() == before, "{args:?}: something was written\n{}", output.stderr);
    message
}

/// A file that `run` and `check` must refuse alike, at a line.
#[track_caller]
fn refused_file(text: &str, line: &str, expected: &[&str]) {
    let folder = Folder::with(text);
    let at = 1 + text.lines().position(|l| l.trim() == line).unwrap_or_else(|| panic!("no line `{line}`"));
    let place = format!("[small.toml:{at}:");
    let expected: Vec<&str> = expected.iter().copied().chain([place.as_str(), "help: "]).collect();
    let run = refused(&folder, &["run", "small.toml"], &expected);
    let check = refused(&folder, &["check", "small.toml"], &expected);
    assert_eq!(run, check);
}

/// [`SMALL`] with a line replaced by `to`; the message must show the last line of `to`.
#[track_caller]
fn refused_edit(from: &str, to: &str, expected: &[&str]) {
    refused_file(&small(from, to), to.lines().last().unwrap(), expected);
}

/// [`SMALL`] with text appended.
#[track_caller]
fn refused_end(more: &str, line: &str, expected: &[&str]) {
    refused_file(&format!("{SMALL}\n{more}\n"), line, expected);
}

const LOGS: &str = "kind = \"logs\"\npath = \"log.csv\"\ngamma = 0.9\nfeatures = { kind = \"fourier\", order = 1 }";

#[track_caller]
fn refused_line(folder: &Folder, line: &str, expected: &[&str]) {
    let text = folder.text("small.toml");
    let at = 1 + text.lines().position(|l| l == line).unwrap();
    refused(folder, &["run", "small.toml"], &[expected, &[&format!("[small.toml:{at}:")]].concat());
}
