//! What tests of several crates share.
//!
//! A test that needs data or Python asks [`data`] or [`python`] for them. Where they are missing, the test is skipped: it
//! ends without a result, `cargo xtask test` counts it, and it fails under `CI=true`.

pub mod memory;
pub mod scaffnew;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// The environment variable that names the file to which skipped tests are added, a line each.
pub const LIST: &str = "FEDSA_SKIPPED_TESTS";

/// The folder with data sets that `FEDSA_DATA` names; `None`, with the test counted as skipped, where it names none.
///
/// # Panics
/// Under `CI=true`, where it names none.
pub fn data() -> Option<PathBuf> {
    needed("FEDSA_DATA", "the folder with data sets").map(PathBuf::from)
}

/// The Python that `FEDSA_PYTHON` names, which has NumPy and jsonschema; `None`, with the test counted as skipped, where it
/// names none.
///
/// # Panics
/// Under `CI=true`, where it names none.
pub fn python() -> Option<OsString> {
    needed("FEDSA_PYTHON", "a Python with NumPy and jsonschema")
}

fn needed(variable: &str, what: &str) -> Option<OsString> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    if value.is_none() {
        skipped(&format!("{variable} does not name {what}"));
    }
    value
}

/// Counts the test on this thread as skipped, with the reason. The test has to return then.
///
/// # Panics
/// Under `CI=true`, where no test may be skipped.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "CI=true, and the test cannot run: {why}");
    println!("skipped: {why}");
    if let Some(list) = std::env::var_os(LIST) {
        let mut list = std::fs::OpenOptions::new().create(true).append(true).open(&list).expect("a file to which tests can be added");
        // One write, so that lines of tests that end at the same time are not mixed.
        list.write_all(format!("{test}: {why}\n").as_bytes()).expect("a file to which tests can be added");
    }
}
