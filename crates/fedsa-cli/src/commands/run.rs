//! `fedsa run`: an experiment file to tables and pictures.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fedsa::error::BadInput;
use fedsa::kernel::Isa;
use fedsa::round::Status;

use super::check::refuse_unstable;
use super::{load, say};
use crate::args::{Common, RunArgs};
use crate::config::Experiment;
use crate::error::{DONE, Failure, INTERRUPTED, NOT_AS_EXPECTED};
use crate::experiment::checks::{self, Verdict};
use crate::experiment::execute::{progress_bar, read_framed, write_framed};
use crate::experiment::{Control, Outcome, Plan, Predictor, Results, execute, output, picture, resolve};
use crate::files::atomic;
use crate::files::find::Places;

/// Set by Ctrl-C or a termination signal.
static INTERRUPT: AtomicBool = AtomicBool::new(false);

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    let (experiment, base) = load(&args.file, &args.overrides, args.quick)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(&experiment.id));
    let job = Job { experiment, base: &base, out: &out, common: &args.common, quick: args.quick };
    Ok(job.run(&|_, _| Ok(Vec::new()))?.status)
}

/// How an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The exit status.
    pub status: u8,
    /// How many checks and statuses are not as expected, which with quick settings are notes.
    pub notes: usize,
}

/// An experiment to be run into a folder.
pub struct Job<'a> {
    /// The experiment.
    pub experiment: Experiment,
    /// What its relative paths are relative to.
    pub base: &'a Path,
    /// The folder.
    pub out: &'a Path,
    /// The options.
    pub common: &'a Common,
    /// Whether the settings are the quick ones: failed checks are then notes.
    pub quick: bool,
}

/// Further files of a finished run: names and contents.
pub type Extra<'a> = &'a dyn Fn(&Plan, &Results) -> fedsa::error::Result<Vec<(&'static str, Vec<u8>)>>;

/// What a folder holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Folder {
    /// No run.
    Empty,
    /// A run that was not finished.
    Unfinished,
    /// A finished run.
    Finished,
}

impl Folder {
    /// Of a folder that need not exist.
    pub fn of(out: &Path) -> Self {
        match (out.join("summary.json").exists(), out.join("config.toml").exists()) {
            (true, _) => Folder::Finished,
            (_, true) => Folder::Unfinished,
            _ => Folder::Empty,
        }
    }
}

impl Job<'_> {
    /// Runs it, and writes `extra` files beside the usual ones.
    ///
    /// # Errors
    /// On bad input; nothing is then written.
    pub fn run(self, extra: Extra<'_>) -> Result<Ended, Failure> {
        let began = Instant::now();
        let Job { experiment, base, out, common, quick } = self;
        let checkpoints = out.join("checkpoint");
        experiment.settings()?;
        let config = resolve::file(&experiment, &Places::from_env(base))?;
        let before = Folder::of(out);
        if common.resume {
            may_resume(out, before, &config)?;
        } else if before != Folder::Empty && !common.overwrite {
            let held = if before == Folder::Finished { "a finished run" } else { "an interrupted run" };
            let what = format!("{} holds {held}", out.display());
            return Err(
                BadInput::new("--out", what, "another folder, --resume to go on with this run, or --overwrite to replace it").into()
            );
        }
        if common.resume && before == Folder::Finished {
            // Left by a run that was killed at its very end.
            let _ = std::fs::remove_dir_all(&checkpoints);
            if !common.quiet {
                say(format!("{}: already done, in {}", experiment.id, out.display()));
            }
            return Ok(ended_of_summary(out));
        }
        let roots = if common.resume { read_roots(&checkpoints)? } else { HashMap::new() };
        let plan = Plan::new(experiment, base, Isa::best(), &roots)?;
        refuse_unstable(&plan, common.force)?;
        let mut control = Control {
            interrupted: &INTERRUPT,
            checkpoints: checkpoints.clone(),
            every: Duration::from_secs_f64(common.checkpoint_every),
            resume: common.resume,
            progress: indicatif::ProgressBar::hidden(),
        };
        control.check_resumable(&plan)?;
        // From here on things are written.
        atomic::create_dir(&checkpoints)?;
        clear(out, &checkpoints, common.resume);
        atomic::write(&out.join("config.toml"), config.as_bytes())?;
        write_roots(&checkpoints, &plan)?;
        watch_interrupts();
        control.progress = progress_bar(&plan, common.quiet);
        let results = match execute(&plan, &control)? {
            Outcome::Done(results) => results,
            Outcome::Interrupted => {
                let line = format!("interrupted; the same command with --resume goes on from {}", out.display());
                let _ = writeln!(std::io::stderr(), "{line}");
                return Ok(Ended { status: INTERRUPTED, notes: 0 });
            }
        };
        let predictor = Predictor::new(&plan);
        let verdicts = checks::measure(&plan, &results, &predictor);
        let picture = picture::draw(&plan, &results, &predictor, &verdicts, quick);
        let seconds = began.elapsed().as_secs_f64();
        let Ended { status, notes } = ended(&plan, &results, &verdicts, quick);
        let mut summary = output::summary(&plan, &results, &predictor, &verdicts, seconds);
        summary["exit_status"] = serde_json::json!(status);
        summary["notes"] = serde_json::json!(notes);
        for (name, bytes) in extra(&plan, &results)? {
            atomic::write(&out.join(name), &bytes)?;
        }
        output::write(out, &plan, &results, &summary, &picture)?;
        // Not needed any more; a leftover does no harm.
        let _ = std::fs::remove_dir_all(&checkpoints);
        if !common.quiet {
            report(&plan, &results, &verdicts, out, seconds, quick);
        }
        Ok(Ended { status, notes })
    }
}

/// How finished runs ended. Quick settings may be too small for a check to hold, or for an
/// expected divergence to show: that is noted then, and does not count.
fn ended(plan: &Plan, results: &Results, verdicts: &[Verdict], quick: bool) -> Ended {
    let (mut notes, mut failures) = (0, 0);
    let mut count = |as_expected: bool, is_note: bool| match (as_expected, is_note) {
        (true, _) => {}
        (false, true) => notes += 1,
        (false, false) => failures += 1,
    };
    verdicts.iter().for_each(|v| count(v.as_expected, quick));
    (0..results.cells.len()).for_each(|cell| count(results.as_expected(plan, cell), quick && results.is_ok(cell)));
    Ended { status: if failures == 0 { DONE } else { NOT_AS_EXPECTED }, notes }
}

/// Checks that what a folder holds is a run of this very experiment.
fn may_resume(out: &Path, before: Folder, config: &str) -> Result<(), BadInput> {
    if before == Folder::Empty {
        let what = format!("{} holds no interrupted run", out.display());
        return Err(BadInput::new("--resume", what, "the folder of an interrupted run, or no --resume to begin one"));
    }
    let ran = std::fs::read_to_string(out.join("config.toml")).unwrap_or_default();
    if ran == config {
        return Ok(());
    }
    let held = if before == Folder::Finished { "a finished run" } else { "an interrupted run" };
    let differs = ran.lines().zip(config.lines()).find(|(a, b)| a != b);
    let differs = differs.map_or(String::new(), |(a, b)| format!(": it had `{a}` where there is `{b}` now"));
    let what = format!("{} holds {held} of other settings{differs}", out.display());
    Err(BadInput::new("--resume", what, "the very file and options of that run, which its config.toml shows"))
}

/// What a finished folder says of how its experiment ended.
fn ended_of_summary(out: &Path) -> Ended {
    let summary = std::fs::read(out.join("summary.json")).ok();
    let summary: Option<serde_json::Value> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let field = |name: &str| summary.as_ref().and_then(|s| s.get(name)?.as_u64());
    let status = if field("exit_status") == Some(u64::from(DONE)) { DONE } else { NOT_AS_EXPECTED };
    Ended { status, notes: field("notes").unwrap_or(0) as usize }
}

/// Removes what another run left, the summary first: without it the folder is not a
/// finished one. What was half written when a run was killed goes in any case.
fn clear(out: &Path, checkpoints: &Path, keep: bool) {
    if !keep {
        for name in ["summary.json", "trace.parquet", "theta.npz", "figure.svg", "figure.png", "weights.json", "weights.npz"] {
            let _ = std::fs::remove_file(out.join(name));
        }
    }
    for dir in [out, checkpoints] {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if atomic::is_temporary(&name) || (!keep && name.ends_with(".ckpt")) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn roots_path(checkpoints: &Path) -> PathBuf {
    checkpoints.join("roots.ckpt")
}

/// `theta*` of every problem: found anew on another machine it may differ in the last bits.
fn write_roots(checkpoints: &Path, plan: &Plan) -> Result<(), BadInput> {
    let roots: HashMap<&str, &[f64]> = plan.fields.iter().filter_map(|f| Some((f.fingerprint.as_str(), f.field.root()?))).collect();
    write_framed(&roots_path(checkpoints), &roots)
}

/// The roots that an interrupted run left; none if it was killed before it did.
fn read_roots(checkpoints: &Path) -> Result<HashMap<String, Vec<f64>>, BadInput> {
    let path = roots_path(checkpoints);
    if path.exists() { read_framed(&path) } else { Ok(HashMap::new()) }
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
            let _ = writeln!(std::io::stderr(), "warning: Ctrl-C will not write a checkpoint: {e}");
        }
    });
}

/// The most results that a report lists one by one.
const LISTED: usize = 12;

fn report(plan: &Plan, results: &Results, verdicts: &[Verdict], out: &Path, seconds: f64, quick: bool) {
    say(format!("{} in {seconds:.1} s: {}", plan.experiment.id, out.display()));
    let few = plan.points.len() * plan.labels.len() <= LISTED;
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells) {
            let at = if planned.point.label.is_empty() { String::new() } else { format!(" at {}", planned.point.label) };
            let diverged = results.cells[*cell].iter().find_map(|s| match s.status {
                Status::Diverged { round } => Some(round),
                Status::Ok => None,
            });
            if plan.cells[*cell].refused.is_some() {
                continue;
            }
            let expected = if results.as_expected(plan, *cell) { "as expected" } else { "NOT as expected" };
            let is_note = quick && results.is_ok(*cell);
            match (diverged, results.floors(*cell, "mse")) {
                (Some(round), _) => {
                    let stable = match plan.cells[*cell].method.expect {
                        Some(_) => String::new(),
                        None => format!("; {}", super::check::stable_step_text(plan, *cell)),
                    };
                    say(format!("  {label}{at}: diverged in round {round}, {expected}{stable}"));
                }
                (None, _) if !results.as_expected(plan, *cell) && is_note => {
                    say(format!("  note: {label}{at} did not diverge with the quick settings, though expected to"));
                }
                (None, _) if !results.as_expected(plan, *cell) => say(format!("  {label}{at}: did not diverge, {expected}")),
                (None, Some(floors)) if few => {
                    let floor = crate::experiment::results::Estimate::of(&floors);
                    let error = if floors.len() > 1 { format!(" +- {:.1e}", floor.se) } else { String::new() };
                    say(format!("  {label}{at}: floor {:.4e}{error}", floor.mean));
                }
                _ => {}
            }
        }
    }
    for v in verdicts {
        let word = match (v.pass, v.as_expected, quick) {
            (true, true, _) => "ok",
            (false, true, _) => "fails as expected",
            (true, false, false) => "HOLDS, though expected to fail",
            (true, false, true) => "note: holds with the quick settings, though expected to fail",
            (false, false, true) => "note: not met with the quick settings",
            (false, false, false) => "FAILED",
        };
        let note = v.note.as_ref().map_or(String::new(), |n| format!(" ({n})"));
        let numbers = match (v.measured.as_f64(), v.expected.as_str()) {
            (Some(measured), Some(expected)) => format!(": measured {measured:.4e}, expected {expected}"),
            _ => ": could not be measured".to_string(),
        };
        say(format!("  {word}: {}{numbers}{note}", v.name));
    }
}
