//! A run that fails ends the others, and what all have come to until then is kept.

use std::path::Path;
use std::time::Duration;

use fedsa::cancel::Cancel;
use fedsa::kernel::Isa;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::execute::{ENDED, Earlier, RunControl};
use fedsa_experiment::folder::{RunFolder, look, own_path};
use fedsa_experiment::{Plan, Unobserved, execute};

/// A plan of three seeds, in a folder where the checkpoint of one of them is damaged.
fn with_damage(path: &Path, rounds: u64, damaged: u64) -> (Plan, RunFolder) {
    let text = format!(
        "id = \"three\"\nproblem = {{ kind = \"garnet\", agents = 2, states = 5, features = 2 }}\nsampling = {{ kind = \"iid\" }}\n\
         method = [{{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }}]\n\
         run = {{ rounds = {rounds}, seeds = 3, record = {{ every = {rounds} }} }}\n"
    );
    let experiment = Document::parse("three.toml", &text).and_then(Experiment::read).unwrap();
    let plan = Plan::new(experiment, Path::new(""), Isa::best(), &Default::default()).unwrap();
    let folder = look(path).unwrap().claim(false).unwrap();
    std::fs::write(own_path(path, &format!("run-0-{damaged}.ckpt")), "damaged").unwrap();
    (plan, folder)
}

/// Executes the plan on so many threads; the error.
fn failure(path: &Path, (plan, folder): &(Plan, RunFolder), threads: usize) -> fedsa::error::Error {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let cancel = Cancel::new();
    let control = RunControl {
        cancel: &cancel,
        folder: Some(folder),
        every: Duration::from_secs(1_000_000),
        earlier: &Earlier::of(path).unwrap(),
        observer: &Unobserved,
        in_turn: false,
    };
    let failed = pool.install(|| execute(plan, &control)).map(|_| ()).unwrap_err();
    assert!(!cancel.is_cancelled(), "the token of the caller is the caller's");
    failed
}

#[test]
fn runs_that_had_ended_are_kept_where_another_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let e = failure(&path, &with_damage(&path, 10, 1), 1);
    assert!(e.what.contains("run-0-1.ckpt"), "{e}");
    assert!(own_path(&path, ENDED).exists(), "the first seed had ended");
}

/// The other seeds would take years.
#[test]
fn a_failure_ends_runs_that_are_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let e = failure(&path, &with_damage(&path, 1_000_000_000, 1), 2);
    assert!(e.what.contains("run-0-1.ckpt"), "{e}");
}
