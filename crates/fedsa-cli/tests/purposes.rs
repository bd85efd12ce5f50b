//! What a folder was taken for: runs, fits, evaluations and tunings do not go on in each other's folders, what one has written is all
//! there, and a caller of the library has the results whether or not they were there before.

use crate::common::{Folder, Output, SMALL, finish};
use crate::tune::quantised;
use fedsa::cancel::Cancel;
use fedsa::error::{ErrorCode, ErrorKind};
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::evaluate::{Evaluation, PictureWords};
use fedsa_experiment::fit::Fit;
use fedsa_experiment::run::{Job, RunOutcome};
use fedsa_experiment::tune::{TuneOutcome, TuneSettings, tune};
use fedsa_experiment::{EvaluateSettings, FitSettings, IfExists, RunSettings, Unobserved};

const ROWS: &str = "a,b,y\n1,2,0\n2,1,1\n3,5,0\n4,2,1\n0,1,0\n5,1,1\n2,7,0\n6,3,1\n1,1,1\n2,2,0\n";
const FIT: [&str; 10] = ["fit", "rows.csv", "--target", "y", "--agents", "2", "--ridge", "1e-2", "--method", "newton"];
const TUNE: [&str; 11] = [
    "tune",
    "small.toml",
    "--max-local-steps",
    "30",
    "--target-mse",
    "0.05",
    "--methods",
    "fedlsa",
    "--max-rounds",
    "2000",
    "--budget=10m",
];

/// An experiment to run and to tune, and rows to fit.
fn folder() -> Folder {
    let folder = Folder::with(&quantised());
    folder.write("other.toml", SMALL);
    folder.write("rows.csv", ROWS);
    folder
}

/// Runs `first` and then `then`, all in the folder `out`.
fn on(folder: &Folder, first: &[&str], then: &[&str], out: &str) -> Output {
    folder.run(&[first, then, &["--out", out]].concat())
}

/// Removes files, as of what was interrupted.
fn without(folder: &Folder, names: &[&str]) {
    names.iter().for_each(|name| std::fs::remove_file(folder.path(name)).unwrap());
}

/// The files of a folder with their contents.
fn contents(folder: &Folder, out: &str) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let all = folder.everything().into_iter().filter(|(path, ..)| path.starts_with(folder.path(out)) && !path.ends_with("lock"));
    all.map(|(path, bytes, _)| (path, bytes)).collect()
}

#[test]
fn a_tuning_does_not_go_on_from_a_run_nor_a_run_from_a_tuning() {
    let folder = folder();
    on(&folder, &["run", "other.toml"], &["-q"], "ran").exits(0);
    on(&folder, &TUNE, &["-q"], "tuned").exits(0);
    for is_finished in [true, false] {
        let before = (contents(&folder, "ran"), contents(&folder, "tuned"));
        let which = if is_finished { "a finished" } else { "an interrupted" };
        let message = on(&folder, &TUNE, &["--resume"], "ran").exits(2).message();
        assert!(message.contains(&format!("ran holds {which} run, not a tuning")), "{message}");
        let message = on(&folder, &["run", "other.toml"], &["--resume"], "tuned").exits(2).message();
        assert!(message.contains(&format!("tuned holds {which} tuning, not a run")), "{message}");
        let message = on(&folder, &["run", "other.toml"], &[], "tuned").exits(2).message();
        assert!(message.contains(&format!("tuned holds {which} tuning")), "{message}");
        for args in [&["plot", "tuned"][..], &["diff", "tuned", "ran"]] {
            let message = folder.run(args).exits(2).message();
            assert!(message.contains("this is the folder of a tuning") && !message.contains("No such file"), "{message}");
        }
        assert!((contents(&folder, "ran"), contents(&folder, "tuned")) == before, "nothing is written");
        if is_finished {
            without(&folder, &["ran/summary.json", "tuned/summary.json", "tuned/tuned.toml"]);
        }
    }
    on(&folder, &TUNE, &["--resume"], "ran").exits(2);
    on(&folder, &["run", "other.toml"], &["--resume"], "tuned").exits(2);
    on(&folder, &["run", "other.toml"], &["--resume", "-q"], "ran").exits(0);
    on(&folder, &TUNE, &["--resume", "-q"], "tuned").exits(0);
    folder.read("ran/summary.json");
    folder.read("tuned/tuned.toml");
}

/// A run that was killed before its first round has no settings in its folder, and goes on as itself only.
#[test]
fn a_run_without_its_settings_is_known_by_the_marker() {
    let folder = folder();
    folder.write("more.toml", SMALL.replace("rounds = 20", "rounds = 30"));
    folder.write("else.toml", SMALL.replace("states = 10", "states = 11"));
    on(&folder, &["run", "other.toml"], &["-q"], "ran").exits(0);
    without(&folder, &["ran/summary.json", "ran/config.toml"]);
    let message = on(&folder, &["run", "else.toml"], &["--resume"], "ran").exits(2).message();
    assert!(message.contains("ran holds an interrupted run of other settings"), "{message}");
    on(&folder, &["run", "more.toml"], &["--resume", "-q"], "ran").exits(0);
    assert_eq!(folder.json("ran/summary.json")["results"][0]["rounds"], 30);
}

#[test]
fn pilots_stay_where_the_machine_fails() {
    let folder = folder();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_fedsa")]).args(TUNE).args(["--out", "tuned"]);
    shell.current_dir(folder.path("")).env("NO_COLOR", "1");
    let failed = finish(shell).exits(3);
    assert!(failed.message().contains("tune.ckpt cannot be written"), "{}", failed.stderr);
    let resumed = on(&folder, &TUNE, &["--resume"], "tuned").exits(0);
    assert!(resumed.stderr.contains("pilot runs are known from before"), "{}", resumed.stderr);
}

#[test]
fn a_fit_does_not_go_on_as_a_run_and_old_weights_do_not_stay() {
    let folder = folder();
    on(&folder, &FIT, &["--max-rounds", "2", "-q"], "o").exits(1);
    assert_eq!(folder.json("o/weights.json")["rounds"], 2);
    let before = contents(&folder, "o");
    let run = ["run", "o/config.toml", "--rounds", "3", "--resume", "-q"];
    let message = on(&folder, &run, &[], "o").exits(2).message();
    assert!(message.contains("o holds a finished fit, not a run"), "{message}");
    assert!(contents(&folder, "o") == before, "nothing is written");
    on(&folder, &FIT, &["--max-rounds", "3", "--resume", "-q"], "o").exits(1);
    assert_eq!(folder.json("o/weights.json")["rounds"], 3);
    folder.write("fit.toml", folder.text("o/config.toml"));
    on(&folder, &["run", "fit.toml", "--rounds", "4", "-q"], &["--overwrite"], "o").exits(1);
    assert!(!folder.path("o/weights.json").exists() && !folder.path("o/weights.npz").exists());
}

#[test]
fn an_output_that_was_lost_is_written_again() {
    let folder = folder();
    on(&folder, &FIT, &["-q"], "o").exits(0);
    for name in ["weights.json", "trace.parquet", "config.toml", "figure.svg"] {
        let before = folder.read(&format!("o/{name}"));
        without(&folder, &[&format!("o/{name}")]);
        let again = on(&folder, &FIT, &["--resume"], "o").exits(0);
        assert!(!again.stdout.contains("already done"), "{name}: {}", again.stdout);
        assert!(folder.read(&format!("o/{name}")) == before, "{name}");
        on(&folder, &FIT, &["--resume"], "o").exits(0).says("already done");
    }
    // What another command has drawn of the same results stays, and what nobody can draw again is not waited for.
    folder.run(&["plot", "o", "--set", "figure.formats=[\"pdf\"]"]).exits(0).says("figure.pdf");
    without(&folder, &["o/weights.json"]);
    on(&folder, &FIT, &["--resume", "-q"], "o").exits(0);
    folder.read("o/weights.json");
    assert!(folder.path("o/figure.pdf").exists());
    without(&folder, &["o/figure.pdf"]);
    on(&folder, &FIT, &["--resume"], "o").exits(0);
    on(&folder, &FIT, &["--resume"], "o").exits(0).says("already done");
}

/// The results of before.
fn before<T>(outcome: RunOutcome<T>) -> T {
    let RunOutcome::AlreadyDone(done) = outcome else { panic!("it was done before") };
    assert!(done.ended.as_expected);
    done.load(&Unobserved, &Cancel::never()).unwrap()
}

/// The results of now.
fn now<T>(outcome: RunOutcome<T>) -> T {
    if let RunOutcome::Done(results) = outcome { *results } else { panic!("nobody interrupts") }
}

#[test]
fn results_are_there_while_others_go_on_and_when_they_were_there_before() {
    let folder = folder();
    let cancel = Cancel::never();
    let settings = |name: &str| RunSettings::default().in_folder(folder.path(name), IfExists::Resume);
    let begin = |name: &str| RunSettings::default().in_folder(folder.path(name), IfExists::Refuse);

    let job = |settings| Job::new(Experiment::read(Document::parse("small.toml", SMALL).unwrap()).unwrap(), settings);
    let ran = now(job(begin("ran")).run(&Unobserved, &cancel).unwrap());
    let busy = job(settings("ran")).run(&Unobserved, &cancel).map(|_| ()).unwrap_err();
    assert_eq!(busy.code(), ErrorCode::OutputBusy, "it is not written yet");
    ran.write(Vec::new()).unwrap();
    let files = contents(&folder, "ran");
    let again = before(job(settings("ran")).run(&Unobserved, &cancel).unwrap());
    assert_eq!(again.config(), ran.config());
    for (a, b) in ran.results.cells.iter().flatten().zip(again.results.cells.iter().flatten()) {
        assert_eq!((&a.theta, a.seed, a.seconds), (&b.theta, b.seed, b.seconds));
    }
    again.write(Vec::new()).unwrap();
    assert!(contents(&folder, "ran") == files);
    ran.write(Vec::new()).unwrap();
    // Whoever writes there meanwhile is not disturbed.
    let more = SMALL.replace("rounds = 20", "rounds = 25");
    let longer = Experiment::read(Document::parse("small.toml", &more).unwrap()).unwrap();
    let longer = now(Job::new(longer, settings("ran")).run(&Unobserved, &cancel).unwrap());
    assert!(ran.write(Vec::new()).is_err());
    longer.write(Vec::new()).unwrap();
    assert!(ran.write(Vec::new()).is_err());
    assert_eq!(folder.json("ran/summary.json")["results"][0]["rounds"], 25);

    let rows = folder.path("rows.csv").display().to_string();
    let fit = || {
        Fit::new(
            &FitSettings { target: Some("y".into()), agents: Some(2), method: Some("newton".into()), ..FitSettings::new([&rows]) },
            &cancel,
        )
        .unwrap()
    };
    let fitted = now(fit().run(begin("fit"), &Unobserved, &cancel).unwrap());
    fitted.write().unwrap();
    assert_eq!(before(fit().run(settings("fit"), &Unobserved, &cancel).unwrap()).json(), fitted.json());

    folder.write("log.csv", "s_0,next_0,reward,done\n0,1,2,0\n1,0.2,1,0\n0.2,1,0,1\n0.7,0.1,1,0\n");
    let log = folder.path("log.csv").display().to_string();
    let evaluation = || Evaluation::new(&EvaluateSettings { gamma: 0.5, ..EvaluateSettings::new([&log]) }, &cancel).unwrap();
    let evaluated = now(evaluation().run(begin("values"), &Unobserved, &cancel).unwrap());
    evaluated.write(&PictureWords::default()).unwrap();
    assert_eq!(before(evaluation().run(settings("values"), &Unobserved, &cancel).unwrap()).json(), evaluated.json());
}

#[test]
fn a_tuning_leaves_its_folder_free_once_it_is_written() {
    let folder = folder();
    let experiment = Experiment::read(Document::parse("small.toml", &quantised()).unwrap()).unwrap();
    let options = TuneSettings { max_local_steps: 30, methods: vec!["fedlsa".into()], max_rounds: 2000, ..TuneSettings::new(0.05) };
    let tuned = |if_exists| {
        let settings = RunSettings::default().in_folder(folder.path("tuned"), if_exists);
        tune(&experiment, &options, &settings, &mut |_| (), &Cancel::never())
    };
    let Ok(TuneOutcome::Done(mut answer)) = tuned(IfExists::Refuse) else { panic!("nobody interrupts") };
    answer.write().unwrap();
    let Ok(TuneOutcome::Done(mut again)) = tuned(IfExists::Resume) else { panic!("it is free") };
    again.write().unwrap();
    assert_eq!(answer.write().unwrap_err().code(), ErrorCode::OutputExists, "another tuning has gone on there");
}

/// Nothing that was computed is kept without a folder, nor before anything ran.
#[test]
fn a_call_that_is_cancelled_ends_in_one_way() {
    let folder = folder();
    let cancel = Cancel::new();
    cancel.cancel();
    let experiment = || Experiment::read(Document::parse("small.toml", SMALL).unwrap()).unwrap();
    for settings in [RunSettings::default(), RunSettings::default().in_folder(folder.path("out"), IfExists::Refuse)] {
        let ended = Job::new(experiment(), settings).run(&Unobserved, &cancel).map(|_| ());
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
    }
    assert!(!folder.path("out").exists());
    let tuned = tune(&experiment(), &TuneSettings::new(0.05), &RunSettings::default(), &mut |_| (), &cancel).map(|_| ());
    assert_eq!(tuned.unwrap_err().kind(), ErrorKind::Cancelled);
}
