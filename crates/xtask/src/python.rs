//! A Python of our own: a virtual environment under `target/` with pinned packages.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What tests call.
pub const NUMPY: &str = "numpy==2.3.5";
/// What tests hold the JSON schema of experiment files to.
pub const JSONSCHEMA: &str = "jsonschema==4.26.0";
/// What the benchmark compares with.
pub const JAX: &str = "jax[cpu]==0.8.1";

/// The interpreter of the virtual environment, which holds `packages`; made when missing.
///
/// # Errors
/// When there is no Python 3 here, or the packages cannot be had.
pub fn interpreter(packages: &[&str]) -> Result<PathBuf, String> {
    environment("python", packages)
}

/// The interpreter of the virtual environment of this name.
///
/// # Errors
/// As [`interpreter`].
pub fn environment(name: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let venv = crate::root().join("target").join(name);
    let python = if cfg!(windows) { venv.join("Scripts/python.exe") } else { venv.join("bin/python") };
    if !python.exists() {
        let system = if cfg!(windows) { "python" } else { "python3" };
        run(Command::new(system).args(["-m", "venv"]).arg(&venv))?;
    }
    // What was installed before, one package a line.
    let list = venv.join("installed.txt");
    let mut installed = std::fs::read_to_string(&list).unwrap_or_default();
    for package in packages {
        if !installed.lines().any(|line| line == *package) {
            run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]))?;
            installed += &format!("{package}\n");
        }
    }
    std::fs::write(&list, installed).map_err(|e| format!("{}: {e}", list.display()))?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}")),
        Err(e) => Err(format!("{command:?}: {e}")),
    }
}
