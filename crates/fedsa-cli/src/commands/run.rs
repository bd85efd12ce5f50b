//! `fedsa run`: an experiment file to tables and pictures.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fedsa::error::BadInput;
use fedsa::kernel::Isa;

use super::check::refuse_unstable;
use super::load;
use crate::args::{Common, RunArgs};
use crate::config::Experiment;
use crate::error::{DONE, Failure, INTERRUPTED, NOT_AS_EXPECTED};
use crate::experiment::checks::{self, Verdict};
use crate::experiment::execute::progress_bar;
use crate::experiment::{Control, Outcome, Plan, Predictor, Results, execute, output, picture};
use crate::files::atomic;

/// Set by Ctrl-C or a termination signal.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let (experiment, base) = load(&args.file, &args.overrides, args.quick)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(&experiment.id));
    let finished = experiment_in(experiment, &base, &out, &args.common, false)?;
    Ok(finished.status)
}

/// What an experiment came to.
pub struct Finished {
    /// The exit status.
    pub status: u8,
    /// The plan and its results, unless interrupted or done before.
    pub results: Option<(Plan, Results)>,
}

/// Runs an experiment into a folder. With `lenient` failed checks are notes.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn experiment_in(experiment: Experiment, base: &Path, out: &Path, common: &Common, lenient: bool) -> Result<Finished, Failure> {
    let began = Instant::now();
    let checkpoints = out.join("checkpoint");
    let state = folder_state(out);
    match state {
        Folder::Finished if common.resume => {
            if !common.quiet {
                println!("{}: already done, in {}", experiment.id, out.display());
            }
            return Ok(Finished { status: status_of_summary(out), results: None });
        }
        Folder::Finished | Folder::Unfinished if !common.resume && !common.overwrite => {
            let what = format!("{} holds {}", out.display(), if state == Folder::Finished { "another run" } else { "an interrupted run" });
            return Err(BadInput::new("--out", what, "another folder, --resume to go on with it, or --overwrite to replace it").into());
        }
        Folder::Empty if common.resume => {
            let what = format!("{} holds no interrupted run", out.display());
            return Err(BadInput::new("--resume", what, "the folder of an interrupted run").into());
        }
        _ => {}
    }
    let roots = if common.resume { read_roots(&checkpoints) } else { HashMap::new() };
    let plan = Plan::new(experiment, base, Isa::best(), &roots)?;
    refuse_unstable(&plan, common.force)?;
    let config = output::resolved(&plan, base);
    if common.resume {
        let before = std::fs::read_to_string(out.join("config.toml")).unwrap_or_default();
        if before != config {
            let what = format!("{} holds an interrupted run of other settings", out.display());
            return Err(BadInput::new("--resume", what, "the very file and options of the interrupted run (see its config.toml)").into());
        }
    }
    // From here on things are written.
    atomic::create_dir(&checkpoints)?;
    if common.overwrite {
        clear(out, &checkpoints);
    }
    atomic::write(&out.join("config.toml"), config.as_bytes())?;
    write_roots(&checkpoints, &plan)?;
    watch_interrupts();
    let control = Control {
        interrupted: &INTERRUPT,
        checkpoints: checkpoints.clone(),
        every: Duration::from_secs_f64(common.checkpoint_every),
        resume: common.resume,
        progress: progress_bar(&plan, common.quiet),
    };
    control.progress.set_message(plan.experiment.id.clone());
    let results = match execute(&plan, &control)? {
        Outcome::Done(results) => results,
        Outcome::Interrupted => {
            eprintln!("interrupted; go on with the same command and --resume ({})", out.display());
            return Ok(Finished { status: INTERRUPTED, results: None });
        }
    };
    let predictor = Predictor::new(&plan);
    let verdicts = checks::measure(&plan, &results, &predictor);
    let figure = picture::draw(&plan, &results, &predictor, &verdicts);
    let seconds = began.elapsed().as_secs_f64();
    let summary = output::summary(&plan, &results, &predictor, &verdicts, seconds);
    output::write(out, &plan, &results, &summary, &figure)?;
    // Not needed any more; a leftover does no harm.
    let _ = std::fs::remove_dir_all(&checkpoints);
    if !common.quiet {
        report(&plan, &results, &verdicts, out, seconds, lenient);
    }
    let as_expected = verdicts.iter().all(|v| v.as_expected) && results.all_as_expected(&plan);
    let status = if as_expected || lenient { DONE } else { NOT_AS_EXPECTED };
    Ok(Finished { status, results: Some((plan, results)) })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Folder {
    Empty,
    Unfinished,
    Finished,
}

fn folder_state(out: &Path) -> Folder {
    if out.join("summary.json").exists() {
        Folder::Finished
    } else if out.join("config.toml").exists() {
        Folder::Unfinished
    } else {
        Folder::Empty
    }
}

/// The exit status that a finished folder stands for.
fn status_of_summary(out: &Path) -> u8 {
    let summary = std::fs::read(out.join("summary.json")).ok();
    let summary: Option<serde_json::Value> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let passed = summary.and_then(|s| s.get("passed")?.as_bool()).unwrap_or(false);
    if passed { DONE } else { NOT_AS_EXPECTED }
}

/// Removes what another run left, the summary first: without it the folder is not a finished one.
fn clear(out: &Path, checkpoints: &Path) {
    for name in ["summary.json", "trace.parquet", "theta.npz", "figure.svg", "figure.png"] {
        let _ = std::fs::remove_file(out.join(name));
    }
    for entry in std::fs::read_dir(checkpoints).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(entry.path());
    }
}

fn roots_path(checkpoints: &Path) -> PathBuf {
    checkpoints.join("roots.json")
}

/// `theta*` of every problem: found anew on another machine it may differ in the last bits.
fn write_roots(checkpoints: &Path, plan: &Plan) -> Result<(), BadInput> {
    let roots: HashMap<&str, Vec<u64>> =
        plan.fields.iter().filter_map(|f| Some((f.fingerprint.as_str(), f.field.root()?.iter().map(|x| x.to_bits()).collect()))).collect();
    atomic::write(&roots_path(checkpoints), &serde_json::to_vec(&roots).expect("plain data"))
}

fn read_roots(checkpoints: &Path) -> HashMap<String, Vec<f64>> {
    let bytes = std::fs::read(roots_path(checkpoints)).unwrap_or_default();
    let roots: HashMap<String, Vec<u64>> = serde_json::from_slice(&bytes).unwrap_or_default();
    roots.into_iter().map(|(k, bits)| (k, bits.into_iter().map(f64::from_bits).collect())).collect()
}

/// The first Ctrl-C asks for checkpoints and an end; the second ends at once.
fn watch_interrupts() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let handler = || {
            if INTERRUPT.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
        };
        if let Err(e) = ctrlc::set_handler(handler) {
            eprintln!("warning: Ctrl-C will not write a checkpoint: {e}");
        }
    });
}

fn report(plan: &Plan, results: &Results, verdicts: &[Verdict], out: &Path, seconds: f64, lenient: bool) {
    println!("{} in {seconds:.1} s: {}", plan.experiment.id, out.display());
    let few = plan.points.len() * plan.labels.len() <= 12;
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            let at = if planned.point.label.is_empty() { String::new() } else { format!(" at {}", planned.point.label) };
            let diverged = results.cells[*cell].iter().find_map(|s| match s.status {
                fedsa::round::Status::Diverged { round } => Some(round),
                fedsa::round::Status::Ok => None,
            });
            let expected = if results.as_expected(plan, *cell) { "as expected" } else { "NOT as expected" };
            match (diverged, results.floors(*cell, "mse")) {
                (Some(round), _) => println!("  {label}{at}: diverged in round {round}, {expected}"),
                (None, _) if !results.as_expected(plan, *cell) => println!("  {label}{at}: did not diverge, NOT as expected"),
                (None, Some(floors)) if few => {
                    let floor = crate::experiment::results::Estimate::of(&floors);
                    println!("  {label}{at}: floor {:.4e} +- {:.1e}", floor.mean, floor.se);
                }
                _ => {}
            }
        }
    }
    for v in verdicts {
        let word = match (v.pass, v.as_expected, lenient) {
            (true, true, _) => "ok",
            (false, true, _) => "fails as expected",
            (true, false, _) => "HOLDS, though expected to fail",
            (false, false, true) => "note: not met with the quick settings",
            (false, false, false) => "FAILED",
        };
        let note = v.note.as_ref().map_or(String::new(), |n| format!(" ({n})"));
        let measured = v.measured.as_f64().map_or("-".into(), |x| format!("{x:.4e}"));
        println!("  {word}: {} | measured {measured}, expected {}{note}", v.name, v.expected.as_str().unwrap_or("-"));
    }
}
