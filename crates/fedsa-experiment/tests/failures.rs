//! A run that fails ends the others, and what all have come to until then is kept.

use std::path::Path;
use std::time::Duration;

use fedsa::cancel::Cancel;
use fedsa::kernel::Isa;
use fedsa::session::Recorded;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::execute::{ENDED, Earlier, Executed, RunControl};
use fedsa_experiment::folder::{RunFolder, look, own_path};
use fedsa_experiment::{Plan, RunObserver, Unobserved, execute};

const NEAR: &str = r#"kind = "garnet", agents = 2, states = 5, features = 2"#;
const SUM: &str = r#"kind = "finite-sum", agents = 24, terms = 3, dim = 10"#;

/// A plan of three seeds, in a folder where the checkpoint of one of them is damaged.
fn with_damage(path: &Path, problem: &str, rounds: u64, damaged: u64) -> (Plan, RunFolder) {
    let text = format!(
        "id = \"three\"\nproblem = {{ {problem} }}\nsampling = {{ kind = \"iid\" }}\n\
         method = [{{ kind = \"fedlsa\", step_size = 0.001, local_steps = 2 }}]\n\
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
    let e = failure(&path, &with_damage(&path, NEAR, 10, 1), 1);
    assert!(e.what.contains("run-0-1.ckpt"), "{e}");
    assert!(own_path(&path, ENDED).exists(), "the first seed had ended");
}

/// The other seeds would take years.
#[test]
fn a_failure_ends_runs_that_are_under_way() {
    for (problem, threads) in [(NEAR, 2), (SUM, 2)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let e = failure(&path, &with_damage(&path, problem, 1_000_000_000, 1), threads);
        assert!(e.what.contains("run-0-1.ckpt"), "{e}");
    }
}

/// Seeds that were interrupted go on to the bits of seeds that ran in turn.
#[test]
fn interrupted_seeds_are_kept_and_go_on() {
    let plan = |rounds: u64| {
        let text = format!(
            "id = \"sum\"\nproblem = {{ {SUM} }}\nsampling = {{ kind = \"markov\" }}\n\
             method = [{{ kind = \"fedlsa\", step_size = 0.003, local_steps = 3 }}, {{ kind = \"fedhsa\", step_size = 0.003, local_steps = 3 }}]\n\
             run = {{ rounds = {rounds}, seeds = 5, record = {{ every = 2 }} }}\n"
        );
        let experiment = Document::parse("sum.toml", &text).and_then(Experiment::read).unwrap();
        Plan::new(experiment, Path::new(""), Isa::best(), &Default::default()).unwrap()
    };
    let whole = plan(8);
    let results = |plan: &Plan, path: Option<&Path>, in_turn, cancel: &Cancel, observer: &dyn RunObserver| {
        let folder = path.map(|path| look(path).unwrap().claim(true).unwrap());
        let earlier = path.map_or_else(Earlier::default, |path| Earlier::of(path).unwrap());
        let every = Duration::ZERO;
        execute(plan, &RunControl { cancel, folder: folder.as_ref(), every, earlier: &earlier, observer, in_turn }).unwrap()
    };
    let never = Cancel::new();
    let Executed::Done(expected) = results(&whole, None, true, &never, &Unobserved) else { panic!("not interrupted") };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let stop = Stopping { cancel: Cancel::new(), at: 4 };
    let Executed::Interrupted(left) = results(&whole, Some(&path), false, &stop.cancel, &stop) else { panic!("interrupted") };
    assert!(left.kept > 0 && left.behind.is_empty(), "{left:?}");
    let Executed::Done(again) = results(&whole, Some(&path), false, &never, &Unobserved) else { panic!("not interrupted") };
    for (cell, expected) in again.cells.iter().zip(&expected.cells) {
        for (seed, expected) in cell.iter().zip(expected) {
            assert_eq!((&seed.theta, &seed.rows), (&expected.theta, &expected.rows));
        }
    }
}

/// Ends all runs when one of them has recorded a round.
struct Stopping {
    cancel: Cancel,
    at: u64,
}

impl RunObserver for Stopping {
    fn recorded(&self, _: usize, _: u64, row: &Recorded) {
        if row.round == self.at {
            self.cancel.cancel();
        }
    }
}
