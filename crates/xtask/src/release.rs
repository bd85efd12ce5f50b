//! `cargo xtask release`: the files of a release, checked.

use std::process::Command;

use crate::{cargo, package, passes, root};

/// The tool that checks the licences of all dependencies against `deny.toml`.
const DENY: &str = "0.20.2";

/// Crates that are not published.
const PRIVATE: [&str; 5] = ["fedsa-fuzz", "fedsa-python", "fedsa-testing", "outside", "xtask"];

/// Checks that all files name the version, checks licences, packs and builds each public crate (`target/package`), and makes the wheel and
/// the source distribution (`target/dist`).
///
/// # Errors
/// When a file names another version, a licence is not allowed, there are uncommitted changes, or something cannot be built.
pub fn run() -> Result<(), String> {
    let version = env!("CARGO_PKG_VERSION");
    for (file, start) in [("CHANGELOG.md", format!("## [{version}] - ")), ("CITATION.cff", format!("version: {version}"))] {
        let text = std::fs::read_to_string(root().join(file)).map_err(|e| format!("{file}: {e}"))?;
        let line = text.lines().find(|line| line.starts_with(&start)).ok_or_else(|| format!("{file}: no line begins with `{start}`"))?;
        eprintln!("{file}: {line}");
    }
    licences()?;
    let private = PRIVATE.iter().flat_map(|name| ["--exclude", name]);
    passes(cargo(&["package", "--locked", "--workspace"]).args(private))?;
    let dist = root().join("target/dist");
    package::distribute(&dist)?;
    eprintln!("crates of {version} are in target/package, the wheel and the source distribution in {}", dist.display());
    Ok(())
}

/// Installs the checker of licences below `target`, if it is not there, and runs it.
fn licences() -> Result<(), String> {
    let tools = root().join("target/tools");
    let deny = tools.join("bin/cargo-deny");
    let installed = Command::new(&deny).arg("--version").output().is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(DENY));
    if !installed {
        let install = ["install", "cargo-deny", "--locked", "--no-default-features", "--version", DENY, "--root"];
        passes(cargo(&install).arg(&tools))?;
    }
    passes(Command::new(&deny).args(["check", "licenses"]).current_dir(root()))
}
