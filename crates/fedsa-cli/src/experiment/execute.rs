//! Runs all seeds of all cells, in parallel whichever way fills the cores.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fedsa::error::{BadInput, Result};
use fedsa::record::Metrics;
use fedsa::round::{Run, Status};
use indicatif::{ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::plan::{Cell, Plan};
use super::results::{Results, Row, SeedResult, metric};
use crate::config::schema::Controls;
use crate::files::atomic;

/// How a run of everything is steered from outside.
pub struct Control {
    /// Set by Ctrl-C.
    pub interrupted: &'static AtomicBool,
    /// Where checkpoints go.
    pub checkpoints: PathBuf,
    /// How often a run writes one.
    pub every: Duration,
    /// Whether to go on from those that are there.
    pub resume: bool,
    /// The progress bar.
    pub progress: ProgressBar,
}

impl Control {
    /// Checks the checkpoints that the runs of a plan would go on from.
    ///
    /// # Errors
    /// When one is damaged, or of another run.
    pub fn check_resumable(&self, plan: &Plan) -> Result<()> {
        if !self.resume {
            return Ok(());
        }
        for (cell, planned) in plan.cells.iter().enumerate() {
            for seed in planned.seeds() {
                self.checkpoint(cell, planned, seed)?;
            }
        }
        Ok(())
    }

    fn path(&self, cell: usize, seed: u64) -> PathBuf {
        self.checkpoints.join(format!("{cell}-{seed}.ckpt"))
    }

    /// The checkpoint of a seed, if it is to go on from one.
    fn checkpoint(&self, cell: usize, planned: &Cell, seed: u64) -> Result<Option<Saved>> {
        let path = self.path(cell, seed);
        if !self.resume || !path.exists() {
            return Ok(None);
        }
        let saved: Saved = read_framed(&path)?;
        if saved.fingerprint != planned.fingerprint || saved.seed != seed {
            let what = format!("{}: a checkpoint of another run", path.display());
            let help = "the very experiment that was interrupted, and input files that have not changed since";
            return Err(BadInput::new("--resume", what, help));
        }
        Ok(Some(saved))
    }
}

/// What became of it.
pub enum Outcome {
    /// All runs ended.
    Done(Results),
    /// Interrupted, checkpoints written.
    Interrupted,
}

/// A progress bar for a plan; hidden unless on a terminal.
pub fn progress_bar(plan: &Plan, quiet: bool) -> ProgressBar {
    let total: f64 = (0..plan.cells.len()).map(|c| plan.cells[c].work(plan.field(c)) * plan.cells[c].seeds().len() as f64).sum();
    let bar = ProgressBar::new((total / UNIT).ceil() as u64);
    if quiet {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar.set_message(plan.experiment.id.clone());
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {percent:>3}% · {elapsed} · {eta} left").expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar
}

/// Local steps per unit of the progress bar.
const UNIT: f64 = 1000.0;

/// One seed of one cell.
#[derive(Clone, Copy)]
struct Job {
    cell: usize,
    /// Index of the seed in the cell.
    at: usize,
    seed: u64,
    work: f64,
}

/// Runs everything.
///
/// # Errors
/// When a checkpoint cannot be read or written.
pub fn execute(plan: &Plan, control: &Control) -> Result<Outcome> {
    let mut jobs = Vec::new();
    let mut slots: Vec<Vec<Option<SeedResult>>> = Vec::new();
    for (cell, planned) in plan.cells.iter().enumerate() {
        let seeds = planned.seeds();
        slots.push(vec![None; seeds.len()]);
        let work = planned.work(plan.field(cell));
        jobs.extend(seeds.into_iter().enumerate().map(|(at, seed)| Job { cell, at, seed, work }));
    }
    // The longest first, so that the last ones to end are short.
    jobs.sort_by(|a, b| b.work.total_cmp(&a.work));
    let slots = Mutex::new(slots);
    let failed: Mutex<Option<BadInput>> = Mutex::new(None);
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let metrics: Vec<Metrics<'_>> = plan.fields.iter().map(|f| Metrics::new(&*f.field)).collect();
    // Threads take whole runs while there are any; then they help those under way.
    rayon::scope(|scope| {
        for _ in 0..rayon::current_num_threads() {
            scope.spawn(|_| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if control.interrupted.load(Ordering::Relaxed) || failed.lock().expect("no panics under the lock").is_some() {
                        return;
                    }
                    match run(plan, &metrics[plan.cells[job.cell].field], job, control, began) {
                        Ok(result) => slots.lock().expect("no panics under the lock")[job.cell][job.at] = result,
                        Err(e) => *failed.lock().expect("no panics under the lock") = Some(e),
                    }
                }
            });
        }
    });
    control.progress.finish_and_clear();
    if let Some(e) = failed.into_inner().expect("no panics under the lock") {
        return Err(e);
    }
    let cells: Option<Vec<Vec<SeedResult>>> =
        slots.into_inner().expect("no panics under the lock").into_iter().map(|seeds| seeds.into_iter().collect()).collect();
    Ok(cells.map_or(Outcome::Interrupted, |cells| Outcome::Done(Results { cells })))
}

/// The contents of a checkpoint.
#[derive(Serialize, Deserialize)]
struct Saved {
    fingerprint: String,
    seed: u64,
    rows: Vec<Row>,
    /// Done, or the run's state.
    state: std::result::Result<SeedResult, Vec<u8>>,
}

/// Runs one job to its end; `None` when interrupted.
fn run(plan: &Plan, metrics: &Metrics<'_>, job: &Job, control: &Control, began: Instant) -> Result<Option<SeedResult>> {
    let (field, cell) = (plan.field(job.cell), &plan.cells[job.cell]);
    let path = control.path(job.cell, job.seed);
    let start = cell.start.of(job.seed, field.dim());
    let mut run = Run::new(field, &*cell.method.settings, &cell.uplink, cell.output, job.seed, start)?;
    if cell.method.controls == Controls::Ideal {
        let ideal: Option<Vec<Vec<f64>>> = (0..field.agents()).map(|c| metrics.ideal_control(c).map(<[f64]>::to_vec)).collect();
        run.set_controls(&ideal.unwrap_or_default());
    }
    let mut rows: Vec<Row> = Vec::new();
    if let Some(saved) = control.checkpoint(job.cell, cell, job.seed)? {
        rows = saved.rows;
        match saved.state {
            Ok(done) => {
                control.progress.inc((job.work / UNIT) as u64);
                return Ok(Some(done));
            }
            Err(state) => run.restore(&state).map_err(|e| e.inside(&path.display().to_string()))?,
        }
    }
    let save = |rows: &[Row], state| {
        let saved = Saved { fingerprint: cell.fingerprint.clone(), seed: job.seed, rows: rows.to_vec(), state };
        write_framed(&path, &saved)
    };
    let mut last_saved = Instant::now();
    let mut reported = 0.0;
    let per_round = job.work / cell.run.rounds as f64;
    let mut pending = per_round * run.round() as f64;
    let mut stopped = false;
    let shape = cell.shape();
    let control_weight = (shape.step_size.largest() * shape.local_steps).powi(2);
    loop {
        let t = run.round();
        let ended = t == cell.run.rounds || run.status() != Status::Ok;
        if rows.last().is_none_or(|row| row.round < t) && (ended || cell.grid.binary_search(&t).is_ok()) {
            let seen = metrics.observe(&run, cell.centre.as_deref(), control_weight);
            rows.push(Row { round: t, ledger: run.ledger(), seen });
            let below = |target: Option<f64>, name| target.is_some_and(|x| metric(&seen, name).is_some_and(|y| y <= x));
            let relative = cell.run.stop.relative_residual.map(|x| x * rows[0].seen.residual);
            stopped = below(cell.run.stop.mse, "mse") || below(cell.run.stop.residual, "residual") || below(relative, "residual");
        }
        if ended || stopped {
            break;
        }
        if control.interrupted.load(Ordering::Relaxed) {
            save(&rows, Err(run.save()))?;
            return Ok(None);
        }
        if pending >= UNIT {
            control.progress.inc((pending / UNIT) as u64);
            reported += (pending / UNIT).floor() * UNIT;
            pending %= UNIT;
            if last_saved.elapsed() >= control.every {
                save(&rows, Err(run.save()))?;
                last_saved = Instant::now();
            }
        }
        run.step();
        pending += per_round;
    }
    control.progress.inc(((job.work - reported) / UNIT) as u64);
    let result = SeedResult { seed: job.seed, rows, theta: run.output().to_vec(), status: run.status(), stopped };
    // What is quickly done again needs no file.
    if began.elapsed() >= control.every {
        save(&[], Ok(result.clone()))?;
    }
    Ok(Some(result))
}

/// The first bytes of a checkpoint.
const MAGIC: &[u8; 8] = b"fedsack1";

/// Writes a checkpoint: its version, a checksum, the data.
///
/// # Errors
/// When it cannot be written.
pub fn write_framed(path: &Path, data: &impl Serialize) -> Result<()> {
    let body = postcard::to_stdvec(data).expect("plain data serialises");
    let mut bytes = MAGIC.to_vec();
    bytes.extend(crc32fast::hash(&body).to_le_bytes());
    bytes.extend(&body);
    atomic::write(path, &bytes)
}

/// Reads what [`write_framed`] wrote.
///
/// # Errors
/// When it cannot be read, is damaged, or of another version.
pub fn read_framed<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bad = |what: &str| {
        let help = "an intact checkpoint; delete this one to run its part again from the start, or use --overwrite to run everything again";
        BadInput::new("--resume", format!("{}: {what}", path.display()), help)
    };
    let bytes = std::fs::read(path).map_err(|e| bad(&format!("cannot be read: {e}")))?;
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("truncated, or not a checkpoint of this version"))?;
    let Some((sum, body)) = body.split_at_checked(4) else { return Err(bad("the checkpoint is truncated")) };
    if crc32fast::hash(body).to_le_bytes() != *sum {
        return Err(bad("the checkpoint is truncated or damaged (its checksum differs)"));
    }
    postcard::from_bytes(body).map_err(|_| bad("not a checkpoint of this version"))
}
