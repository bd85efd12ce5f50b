//! The Python package: its wheel, and its tests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{passes, python, root};

/// What builds the wheel.
const MATURIN: &str = "maturin==1.16.0";

/// What tests of the package use.
const PACKAGES: &[&str] = &[
    python::NUMPY,
    MATURIN,
    "pytest==9.2.0",
    "mypy==2.4.1",
    "pandas==3.1.1",
    "polars==2.1.0",
    "pyarrow==26.0.1",
    "pyright==1.1.414",
    "tqdm==4.70.1",
    "scikit-learn==1.9.1",
    "statsmodels==0.15.0",
    "gymnasium==1.4.0",
    "h5py==3.16.0",
    "nbclient==0.11.0",
    "ipykernel==7.4.0",
];

/// Builds the wheel in the release profile and in the folder of all other builds, and installs it into the virtual environment; the path of the
/// interpreter.
///
/// # Errors
/// When there is no Python 3 here, packages cannot be had, or it cannot be built.
pub fn install() -> Result<PathBuf, String> {
    let python = python::interpreter(PACKAGES)?;
    let wheels = root().join("target/wheels");
    build(&python, &wheels, "--quiet")?;
    let wheel = made(&wheels, "whl")?;
    install_wheel(&python, &wheel)?;
    Ok(python)
}

/// Builds the wheel and the source distribution into an empty folder.
///
/// # Errors
/// When there is no Python 3 here, maturin cannot be had, or they cannot be built.
pub fn distribute(folder: &Path) -> Result<(), String> {
    build(&python::interpreter(&[MATURIN])?, folder, "--sdist")
}

/// Builds the wheel in the release profile into an empty folder, with one more option of maturin.
fn build(python: &Path, folder: &Path, option: &str) -> Result<(), String> {
    // Of earlier versions there may be others.
    let _ = std::fs::remove_dir_all(folder);
    let mut build = Command::new(python);
    build.args(["-m", "maturin", "build", "--release", "--locked", option, "--interpreter"]).arg(python).arg("--out").arg(folder);
    passes(build.current_dir(root()))
}

/// What tests of federations use, in an environment of its own: Flower pins what other packages need newer.
const FLOWER: &[&str] = &["flwr==1.41.0", "pytest==9.2.0", python::NUMPY];
/// The same with Flower's simulation, which the slow tests try.
const SIMULATION: &[&str] = &["flwr[simulation]==1.41.0", "pytest==9.2.0", python::NUMPY];

/// Runs the tests of federations on Flower, on the wheel that [`install`] has built; the slow ones too with `all`. Debian's nginx is installed where
/// it is missing and can be.
///
/// # Errors
/// When packages cannot be had, or a test fails.
pub fn test_flower(all: bool) -> Result<(), String> {
    // Debian has it where only root's path leads.
    if !["nginx", "/usr/sbin/nginx"].iter().any(|name| Command::new(name).arg("-v").output().is_ok()) {
        install_debian(&["nginx-light"]);
    }
    let (environment, packages) = if all { ("simulation", SIMULATION) } else { ("flower", FLOWER) };
    test_apart(environment, packages, "python/flower_tests", all)
}

/// Installs packages of Debian, where they can be. Tests say so if what they need is missing then.
fn install_debian(packages: &[&str]) {
    let mut install = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    install.extend(packages);
    for args in [vec!["update", "--quiet"], install] {
        let _ = Command::new("apt-get").args(args).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null()).status();
    }
}

/// What tests of reports use, in an environment of its own.
const BROWSER: &[&str] = &["playwright==1.65.2", "axe-playwright-python==0.1.8", "pyarrow==26.0.1", "pytest==9.2.0", python::NUMPY];

/// Runs the tests of reports in Chromium, on the wheel that [`install`] has built; the slow ones too with `all`. Debian's Chromium is installed where
/// it is missing and can be.
///
/// # Errors
/// When packages cannot be had, or a test fails.
pub fn test_browser(all: bool) -> Result<(), String> {
    let is_there = ["chromium", "chromium-browser"].iter().any(|name| Command::new(name).arg("--version").output().is_ok());
    if !is_there {
        install_debian(&["chromium", "fonts-dejavu-core"]);
    }
    test_apart("browser", BROWSER, "python/browser_tests", all)
}

/// Runs the tests of a folder on the wheel that [`install`] has built, in an environment of their own with these packages.
fn test_apart(environment: &str, packages: &[&str], folder: &str, all: bool) -> Result<(), String> {
    let python = python::environment(environment, packages)?;
    install_wheel(&python, &made(&root().join("target/wheels"), "whl")?)?;
    let mut tests = Command::new(&python);
    tests.args(["-m", "pytest", "--quiet", folder]);
    if all {
        tests.arg("--all");
    }
    passes(tests.current_dir(root()).env_remove("PYTHONPATH"))
}

fn install_wheel(python: &Path, wheel: &Path) -> Result<(), String> {
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall"]).arg(wheel);
    passes(&mut install)
}

/// Makes the source distribution, installs it as users do, with the libraries that are compiled already, and runs the program from it.
///
/// # Errors
/// When it lacks something, or cannot be built.
fn from_sources(python: &Path) -> Result<(), String> {
    let folder = root().join("target/sdist");
    let _ = std::fs::remove_dir_all(&folder);
    let mut pack = Command::new(python);
    passes(pack.args(["-m", "maturin", "sdist", "--out"]).arg(&folder).current_dir(root()))?;
    let packed = made(&folder, "gz")?;
    let installed = folder.join("installed");
    let mut install = Command::new(python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "--target"]);
    // Without isolation the build finds maturin on the path.
    let bin = python.parent().map(Path::to_path_buf).into_iter();
    let path = std::env::join_paths(bin.chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())));
    let path = path.map_err(|e| e.to_string())?;
    passes(install.arg(&installed).arg(&packed).env("CARGO_TARGET_DIR", root().join("target")).env("PATH", path))?;
    let mut run = Command::new(python);
    passes(run.args(["-m", "fedsa", "reproduce", "--list"]).env("PYTHONPATH", &installed).current_dir(&folder))
}

/// The file with this extension in a folder.
fn made(folder: &Path, extension: &str) -> Result<PathBuf, String> {
    let found = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let file = found.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == extension));
    file.ok_or_else(|| format!("there is no .{extension} in {}", folder.display()))
}

/// Runs the tests of the installed package and the examples in its documentation, the slow ones too with `all`, and installs it from the
/// source distribution.
///
/// # Errors
/// When one fails.
pub fn test(python: &Path, all: bool) -> Result<(), String> {
    let mut tests = Command::new(python);
    // What is in the repository is not imported: tests are about what was installed.
    tests.args([
        "-m",
        "pytest",
        "--quiet",
        "--doctest-modules",
        "--import-mode=append",
        "--ignore-glob=*/fedsa/flower.py",
        "python/tests",
        "--pyargs",
        "fedsa",
    ]);
    if all {
        tests.arg("--all");
    }
    passes(tests.current_dir(root()).env_remove("PYTHONPATH"))?;
    from_sources(python)
}
