//! A run that is interrupted while its results are compared with theory goes on from the predictions that it has kept.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use fedsa::cancel::Cancel;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::run::{Job, RunOutcome};
use fedsa_experiment::{Computed, IfExists, RunObserver, RunSettings};
use serde_json::Value;

const TEXT: &str = r#"
id = "compared"
[problem]
kind = "garnet"
agents = 3
states = 8
features = 2
[sampling]
kind = "iid"
[[method]]
kind = "fedlsa"
label = "a"
step_size = 0.1
local_steps = 4
[[method]]
kind = "scafflsa"
label = "b"
step_size = 0.1
local_steps = 4
[[method]]
kind = "fedhsa"
label = "c"
step_size = 0.1
local_steps = 4
[run]
rounds = 40
seeds = 2
[figure]
exact = ["a", "b", "c"]
levels = { a = ["floor", "bias2"], b = ["floor"], c = ["floor", "noise"] }
"#;

/// Notes which predictions are computed, and cancels when that many are.
struct Watch<'a> {
    heard: Mutex<Vec<(Computed, usize, usize)>>,
    cancels_at: Option<usize>,
    cancel: &'a Cancel,
}

impl RunObserver for Watch<'_> {
    fn computing(&self, what: Computed, k: usize, n: usize) {
        self.heard.lock().unwrap().push((what, k, n));
        if what == Computed::Predictions && self.cancels_at == Some(k) {
            self.cancel.cancel();
        }
    }
}

/// Runs the experiment in a folder, which a run that ends writes; the predictions that were computed, and the number of runs that had
/// ended if it was cancelled.
fn run(folder: &Path, if_exists: IfExists, cancels_at: Option<usize>) -> (Vec<(usize, usize)>, Option<usize>) {
    let cancel = Cancel::new();
    let watch = Watch { heard: Mutex::default(), cancels_at, cancel: &cancel };
    let experiment = Document::parse("compared.toml", TEXT).and_then(Experiment::read).unwrap();
    let outcome = Job::new(experiment, RunSettings::default().in_folder(folder, if_exists)).run(&watch, &cancel).unwrap();
    let ended = match outcome {
        RunOutcome::Done(ran) => {
            ran.write(Vec::new()).unwrap();
            None
        }
        RunOutcome::Interrupted(left) => {
            assert_eq!((left.lost, left.kept, left.waiting), (0, 0, 0));
            Some(left.ended)
        }
        _ => panic!("it was not done before"),
    };
    let heard = watch.heard.into_inner().unwrap();
    assert!(heard.contains(&(Computed::Roots, 1, 1)));
    (heard.iter().filter(|(what, ..)| *what == Computed::Predictions).map(|(_, k, n)| (*k, *n)).collect(), ended)
}

/// The files of a folder, without when it was written and how long that took.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        if path.extension().is_none_or(|extension| extension != "json") {
            return bytes;
        }
        let mut json: Value = serde_json::from_slice(&bytes).unwrap();
        without_times(&mut json);
        serde_json::to_vec(&json).unwrap()
    };
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    all.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), read(&path))).collect()
}

fn without_times(json: &mut Value) {
    match json {
        Value::Object(map) => {
            map.retain(|key, _| key != "seconds" && key != "provenance");
            map.values_mut().for_each(without_times);
        }
        Value::Array(list) => list.iter_mut().for_each(without_times),
        _ => {}
    }
}

#[track_caller]
fn assert_same(folder: &BTreeMap<String, Vec<u8>>, whole: &BTreeMap<String, Vec<u8>>) {
    assert_eq!(folder.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>());
    for (name, bytes) in folder {
        assert!(*bytes == whole[name], "{name} differs");
    }
}

#[test]
fn predictions_are_kept_over_an_interruption() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name);
    let kept = |name: &str| path(name).join(".fedsa/predictions.ckpt");
    assert_eq!(run(&path("whole"), IfExists::Refuse, None), (vec![(1, 3), (2, 3), (3, 3)], None));
    assert!(!kept("whole").exists());
    let whole = files(&path("whole"));
    assert!(whole.contains_key("figure.svg") && whole.contains_key("summary.json"));

    // The first method's predictions are there when those of the second begin.
    assert_eq!(run(&path("cut"), IfExists::Refuse, Some(2)).1, Some(6));
    assert!(kept("cut").exists() && !path("cut").join("summary.json").exists());
    assert_eq!(run(&path("cut"), IfExists::Resume, Some(2)).0.len(), 2, "b is computed, and then c begins");
    assert_eq!(run(&path("cut"), IfExists::Resume, None), (vec![(1, 3)], None), "only c is left");
    assert!(!kept("cut").exists());
    assert_same(&files(&path("cut")), &whole);

    // What cannot be read is computed again.
    run(&path("damaged"), IfExists::Refuse, Some(3));
    let mut bytes = std::fs::read(kept("damaged")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(kept("damaged"), bytes).unwrap();
    assert_eq!(run(&path("damaged"), IfExists::Resume, None).0.len(), 3);
    assert_same(&files(&path("damaged")), &whole);
}
