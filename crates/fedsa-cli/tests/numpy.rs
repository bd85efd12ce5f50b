//! Independent computations in NumPy give the same stationary laws, linear
//! systems, roots, limits of FedLSA and radii. Files that NumPy writes are read.
//!
//! Needs a Python with NumPy: runs only where `FEDSA_PYTHON` names one, as `cargo xtask test` does.

use std::path::Path;
use std::process::Command;

use crate::common::Folder;

/// Runs `check_problem.py`; `None` where there is no Python with NumPy.
fn python(folder: &Folder, args: &[&str]) -> Option<String> {
    let interpreter = fedsa_testing::python()?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/numpy/check_problem.py");
    let output = Command::new(interpreter).arg(script).args(args).current_dir(folder.path("")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    Some(out.into_owned())
}

/// Exports a problem, asks for its theory, and has NumPy check both; `source` holds the
/// problem's arrays where the export is not its own source.
fn checked(folder: &Folder, name: &str, problem: &str, source: Option<&str>) {
    let methods: String = [("fedlsa", 0.1, 7), ("fedlsa", 0.01, 100), ("scafflsa", 0.1, 5), ("scafflsa", 0.2, 20), ("fedhsa", 0.1, 10)]
        .map(|(kind, eta, h)| {
            format!("[[method]]\nkind = \"{kind}\"\nlabel = \"{kind} {eta} {h}\"\nstep_size = {eta}\nlocal_steps = {h}\n")
        })
        .concat();
    let file = format!("{name}.toml");
    folder.write(&file, format!("[problem]\n{problem}\n{methods}[run]\nrounds = 1\n"));
    let export = format!("{name}-export.npz");
    folder.run(&["export", &file, "--npz", &export]).exits(0);
    let theory = folder.run(&["theory", &file, "--json"]).exits(0).stdout;
    folder.write(&format!("{name}.json"), theory);
    if let Some(said) = python(folder, &["check", source.unwrap_or(&export), &export, &format!("{name}.json")]) {
        println!("{name}: {}", said.trim());
    }
}

#[test]
fn generated_problems_are_what_numpy_computes() {
    let folder = Folder::new();
    for heterogeneity in ["identical", "low", "two-kernels", "independent"] {
        for policy in ["one-action", "uniform"] {
            let problem = format!("kind = \"garnet\"\nagents = 5\nheterogeneity = \"{heterogeneity}\"\npolicy = \"{policy}\"\nseed = 3");
            checked(&folder, &format!("{heterogeneity}-{policy}"), &problem, None);
        }
    }
    checked(&folder, "mrp", "kind = \"mrp\"\nagents = 4\nstates = 20\nfeatures = 5\nkernel = \"per-agent\"\nrewards = \"per-agent\"", None);
    let own = "kind = \"mrp\"\nagents = 3\nstates = 8\nfeatures = 3\ngamma = [0.3, 0.9]\nfeature_scope = \"per-agent\"\nfeature_law = \"uniform\"";
    checked(&folder, "mrp-own", own, None);
    checked(&folder, "linear", "kind = \"linear\"\nagents = 4\ndim = 3\nscale = 0.7\nspread = 2.0", None);
}

#[test]
fn files_that_numpy_wrote_are_read() {
    let folder = Folder::new();
    if python(&folder, &["make", "."]).is_none() {
        return;
    }
    for name in ["mdp", "shared_policy", "compressed", "fortran", "float32", "big_endian", "ints", "successor", "linear"] {
        let source = format!("{name}.npz");
        checked(&folder, name, &format!("kind = \"file\"\npath = \"{source}\""), Some(&source));
    }
}
