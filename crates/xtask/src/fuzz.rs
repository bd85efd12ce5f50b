//! `cargo xtask fuzz`: mutated input for every reader and decoder.

use crate::cargo;

/// What the crates are built with beside optimisation, so that arithmetic which overflows and
/// assumptions that do not hold are found. The dependencies stay as they are.
const CHECKS: [&str; 2] = ["overflow-checks", "debug-assertions"];

/// Runs the fuzzer with these options.
///
/// # Errors
/// When it found something, or the options are not its own.
pub fn run(options: &[&str]) -> Result<(), String> {
    let mut command = cargo(&["run", "--release", "--package", "fedsa-fuzz"]);
    for package in ["fedsa", "fedsa-methods", "fedsa-evaluate", "fedsa-data", "fedsa-experiment", "fedsa-cli"] {
        for check in CHECKS {
            command.args(["--config", &format!("profile.release.package.{package}.{check}=true")]);
        }
    }
    let status = command.arg("--").args(options).status().map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err("the fuzzer found something, or did not run".into()) }
}
