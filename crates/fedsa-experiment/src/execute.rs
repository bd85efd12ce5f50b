//! Runs all seeds of all cells, in parallel over runs and within runs.

mod framed;
mod saved;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::federation::Federation;
use fedsa::metrics::Metrics;
use fedsa::problem::Field;
use fedsa::problem::copies::Copies;
use fedsa::record::Outcome;
use fedsa::round::Run;
use fedsa::session::{self, Record, Session};
use fedsa_data::machine;

use super::observer::{OwnMetrics, RunObserver};
use super::plan::{Plan, PlannedCell};
use super::results::{OwnValues, Recorded, Results, SeedResult};
use crate::config::schema::ControlsStart;
use crate::folder::RunFolder;
pub use framed::{CHECKPOINT, framed, read_framed, unframed, write_framed};
pub(crate) use saved::Saved;
pub use saved::{ENDED, Earlier};
use saved::{End, MAX_STATES, Saving, checkpoint_name, full_name};

/// The inputs of [`execute`] in addition to the plan: interruption, checkpoints and progress.
pub struct RunControl<'a> {
    /// Ends the runs early: Ctrl-C or SIGTERM.
    pub cancel: &'a Cancel,
    /// The folder of checkpoints. Without it none are written, and an interrupted run is lost.
    pub folder: Option<&'a RunFolder>,
    /// The interval between checkpoints of a run.
    pub every: Duration,
    /// The checkpoints of an earlier run, from which the runs continue.
    pub earlier: &'a Earlier,
    /// The observer of progress.
    pub observer: &'a dyn RunObserver,
    /// Whether runs come one after another in the file's order, each on all threads, so that their times are comparable.
    pub in_turn: bool,
}

/// The result of [`execute`].
pub enum Executed {
    /// All runs ended. Their final states are saved, unless too large, so that `--resume` can add rounds.
    Done(Results),
    /// Interrupted.
    Interrupted(Interrupted),
}

/// The numbers of runs after an interruption.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Interrupted {
    /// Runs that had ended and are saved.
    pub ended: usize,
    /// Runs that had ended but could not be saved; they will run again.
    pub lost: usize,
    /// Runs that are saved at their last completed round.
    pub kept: usize,
    /// Runs whose last completed round could not be saved, and that will continue from an older checkpoint or the start: method, point and
    /// seed, and the round of the checkpoint.
    pub behind: Vec<(String, u64)>,
    /// Runs that had not begun.
    pub waiting: usize,
}

/// One seed of one cell.
#[derive(Clone, Copy)]
struct SeedJob {
    cell: usize,
    /// Index of the seed in the cell.
    at: usize,
    seed: u64,
    work: f64,
}

/// The cost of a plan: local steps of all agents over all runs.
pub fn total_work(plan: &Plan) -> f64 {
    (0..plan.cells.len()).map(|c| plan.cells[c].work(plan.field(c)) * plan.cells[c].seeds().len() as f64).sum()
}

/// The final states of runs.
struct EndedRuns {
    /// By cell and seed, including unread ones of an earlier run.
    states: BTreeMap<(usize, u64), Arc<Saved>>,
    /// Their size in bytes.
    bytes: usize,
    /// The time of the last write, and whether there are new states since.
    written: Instant,
    is_new: bool,
    /// The number of full files; their states are no longer in `states`.
    full: usize,
}

/// State that the threads share.
struct Shared<'a> {
    plan: &'a Plan,
    metrics: Vec<Arc<Metrics>>,
    control: &'a RunControl<'a>,
    /// Cancelled with the runs, and when one of them fails.
    stop: Cancel,
    failed: Mutex<Option<Error>>,
    left: Mutex<Interrupted>,
    /// Results, by cell.
    slots: Mutex<Vec<Vec<Option<SeedResult>>>>,
    ended: Mutex<EndedRuns>,
    /// Whether a checkpoint could not be written; reported once.
    warned: AtomicBool,
}

impl<'a> Shared<'a> {
    fn new(plan: &'a Plan, control: &'a RunControl<'a>, slots: Vec<Vec<Option<SeedResult>>>) -> Self {
        let ended = EndedRuns {
            bytes: control.earlier.ended.values().map(|saved| saved.size()).sum(),
            states: control.earlier.ended.clone(),
            written: Instant::now(),
            is_new: false,
            full: 0,
        };
        Self {
            plan,
            metrics: plan.fields.iter().map(|f| Arc::new(Metrics::new(&f.field))).collect(),
            control,
            stop: control.cancel.child(),
            failed: Mutex::default(),
            left: Mutex::default(),
            slots: Mutex::new(slots),
            ended: Mutex::new(ended),
            warned: AtomicBool::new(false),
        }
    }
}

/// All seeds of a plan, and slots for their results by cell. The longest runs come first, so that the last ones to end are short, unless
/// they run in turn.
fn jobs(plan: &Plan, in_turn: bool) -> (Vec<SeedJob>, Vec<Vec<Option<SeedResult>>>) {
    let (mut jobs, mut slots) = (Vec::new(), Vec::new());
    for (cell, planned) in plan.cells.iter().enumerate() {
        let seeds = planned.seeds();
        slots.push(vec![None; seeds.len()]);
        let work = planned.work(plan.field(cell));
        jobs.extend(seeds.into_iter().enumerate().map(|(at, seed)| SeedJob { cell, at, seed, work }));
    }
    if !in_turn {
        jobs.sort_by(|a, b| b.work.total_cmp(&a.work));
    }
    (jobs, slots)
}

/// Runs all seeds of all cells of a plan.
///
/// # Errors
/// When a checkpoint cannot be read. The other runs are then interrupted and saved.
pub fn execute(plan: &Plan, control: &RunControl<'_>) -> Result<Executed> {
    let (jobs, slots) = jobs(plan, control.in_turn);
    let next = AtomicUsize::new(0);
    let shared = Shared::new(plan, control, slots);
    // Threads take whole runs while any remain, and then help running ones.
    rayon::scope(|scope| {
        let at_once = if control.in_turn { 1 } else { rayon::current_num_threads() };
        for _ in 0..at_once {
            scope.spawn(|_| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    shared.run(job).unwrap_or_else(|e| shared.fail(e));
                }
            });
        }
    });
    let mut ended_runs = shared.ended.into_inner().expect("no panics under the lock");
    let kept = keep_ended(control, &mut ended_runs);
    if let Err(e) = &kept {
        control.observer.warned(&format!("the states of runs that have ended could not be kept: {}", e.what));
    }
    if let Some(e) = shared.failed.into_inner().expect("no panics under the lock") {
        return Err(e);
    }
    let slots = shared.slots.into_inner().expect("no panics under the lock");
    let ended = slots.iter().flatten().filter(|slot| slot.is_some()).count();
    let cells: Option<Vec<Vec<SeedResult>>> = slots.into_iter().map(|seeds| seeds.into_iter().collect()).collect();
    let Some(cells) = cells else {
        let left = shared.left.into_inner().expect("no panics under the lock");
        let (ended, lost) = if kept.is_ok() { (ended, 0) } else { (0, ended) };
        return Ok(Executed::Interrupted(Interrupted { ended, lost, ..left }));
    };
    Ok(Executed::Done(Results { cells }))
}

/// Writes the final states that are not written yet.
fn keep_ended(control: &RunControl<'_>, ended: &mut EndedRuns) -> Result<(), Error> {
    if !ended.is_new {
        return Ok(());
    }
    ended.written = Instant::now();
    write_ended(control, ENDED, &ended.states)?;
    ended.is_new = false;
    Ok(())
}

fn write_ended(control: &RunControl<'_>, name: &str, states: &BTreeMap<(usize, u64), Arc<Saved>>) -> Result<(), Error> {
    let states: Vec<(usize, &Saved)> = states.iter().map(|((cell, _), saved)| (*cell, &**saved)).collect();
    control.folder.map_or(Ok(()), |folder| write_framed(folder, name, &states))
}

/// Whether a copy of a run's state fits into memory.
fn fits(bytes: usize) -> bool {
    // Saving copies states; part of the free memory stays free.
    let free = machine::available().ok().flatten().map(|available| available.bytes);
    free.is_none_or(|free| 8.0 * bytes as f64 <= free)
}

/// The least number of local steps between reports of progress.
const UNIT: f64 = 1000.0;
/// The time between reports, to which the number of local steps is adapted: reading the clock takes as long as some steps.
const BETWEEN_REPORTS: Duration = Duration::from_millis(1);

/// One seed of a cell in progress: reports its progress, and saves its states.
struct Seed<'a, 's> {
    shared: &'s Shared<'a>,
    job: &'s SeedJob,
    cell: &'s PlannedCell,
    per_round: f64,
    /// Local steps that are not reported yet.
    pending: f64,
    /// The number of local steps until the next report.
    unit: f64,
    last_report: Instant,
    last_saved: Instant,
    /// The last round that is on the disk.
    on_disk: u64,
    own: Own<'a>,
}

/// The caller's metrics of a seed, and the iterates that they are of.
struct Own<'a> {
    metrics: Option<&'a dyn OwnMetrics>,
    values: Vec<Vec<f64>>,
    iterates: Vec<f64>,
}

impl<'a> Own<'a> {
    /// Those of the recorded rounds of a seed so far.
    fn of(metrics: Option<&'a dyn OwnMetrics>, job: &SeedJob, rows: &[Recorded], iterates: &[f64]) -> Result<Self> {
        let mut own = Self { metrics, values: Vec::new(), iterates: Vec::new() };
        let d = iterates.len() / rows.len().max(1);
        for (row, theta) in rows.iter().zip(iterates.chunks(d.max(1))) {
            own.add(job, row.round, theta)?;
        }
        Ok(own)
    }

    fn add(&mut self, job: &SeedJob, round: u64, theta: &[f64]) -> Result<()> {
        if let Some(metrics) = self.metrics {
            self.values.push(metrics.measure(job.cell, job.seed, round, theta)?);
            self.iterates.extend(theta);
        }
        Ok(())
    }
}

/// The iterates of the rows whose rounds are recorded.
fn kept(rows: &[Recorded], iterates: &[f64], is_recorded: impl Fn(u64) -> bool) -> Vec<f64> {
    let d = iterates.len() / rows.len().max(1);
    let all = rows.iter().zip(iterates.chunks(d.max(1)));
    all.filter(|(row, _)| is_recorded(row.round)).flat_map(|(_, theta)| theta).copied().collect()
}

impl session::Observer for Seed<'_, '_> {
    fn output(&mut self, round: u64, theta: &[f64]) -> Result<()> {
        self.own.add(self.job, round, theta)
    }

    fn recorded(&mut self, row: &Recorded) {
        self.shared.control.observer.recorded(self.job.cell, self.job.seed, row);
    }

    fn advanced(&mut self) {
        self.pending += self.per_round;
    }

    fn wants_state(&mut self) -> bool {
        if self.pending < self.unit {
            return false;
        }
        let now = Instant::now();
        let is_early = now - self.last_report < BETWEEN_REPORTS;
        self.unit = if is_early { 2.0 * self.unit } else { UNIT.max(self.unit / 2.0) };
        self.last_report = now;
        self.shared.control.observer.advanced(std::mem::take(&mut self.pending));
        now - self.last_saved >= self.shared.control.every
    }

    fn fits(&mut self, bytes: usize) -> bool {
        fits(bytes)
    }

    fn keep(&mut self, state: &session::State) -> bool {
        self.last_saved = Instant::now();
        let session::State { round, rows, carrier, seconds } = state;
        let state = Some(serde_bytes::Bytes::new(carrier));
        let saving = Saving {
            identity: &self.cell.identity,
            seed: self.job.seed,
            rounds: self.cell.run.rounds,
            round: *round,
            rows,
            iterates: &self.own.iterates,
            state,
            seconds: *seconds,
            end: None,
        };
        let is_kept = self.shared.save(self.job, &saving);
        if is_kept {
            self.on_disk = *round;
        }
        is_kept
    }
}

impl Shared<'_> {
    /// Runs a seed to its end.
    fn run(&self, job: &SeedJob) -> Result<()> {
        if self.stop.is_cancelled() {
            self.left.lock().expect("no panics under the lock").waiting += 1;
            return Ok(());
        }
        let Some((mut session, mut observer)) = self.begin(job)? else { return Ok(()) };
        let run = &self.plan.cells[job.cell].run;
        let outcome = session.advance(&run.stop.until(run.rounds), &self.stop, &mut observer)?;
        self.ended(&session, observer, outcome)
    }

    /// Starts a seed, or continues it from its checkpoint; `None` if an earlier run ended it.
    fn begin<'s>(&'s self, job: &'s SeedJob) -> Result<Option<(Session<Run>, Seed<'s, 's>)>> {
        let RunControl { observer, earlier, .. } = *self.control;
        let (cell, d, metrics) = (&self.plan.cells[job.cell], self.plan.field(job.cell).dim(), observer.own_metrics());
        let (mut from, mut iterates) = (None, Vec::new());
        let saved = earlier.checkpoint(job.cell, cell, job.seed, d)?;
        // Without its iterates, a run begins again.
        if let Some(saved) = saved.filter(|saved| metrics.is_none() || !saved.iterates.is_empty()) {
            if saved.is_over(cell) {
                let own = Own::of(metrics, job, &saved.rows, &saved.iterates)?;
                saved.rows.iter().for_each(|row| observer.recorded(job.cell, job.seed, row));
                observer.found(job.work);
                self.end(job, saved, own);
                return Ok(None);
            }
            if let Saved { round, rows, state: Some(carrier), seconds, iterates: before, .. } = Arc::unwrap_or_clone(saved) {
                iterates = kept(&rows, &before, |round| cell.grid.binary_search(&round).is_ok());
                from = Some(session::State { round, rows, carrier, seconds });
            }
        }
        let mut session = self.session(job)?;
        if let Some(state) = from {
            session.restore(state).map_err(|e| e.inside(&checkpoint_name(job.cell, job.seed)))?;
            session.rows().iter().for_each(|row| observer.recorded(job.cell, job.seed, row));
        }
        let own = Own::of(metrics, job, session.rows(), &iterates)?;
        let (rounds, found) = (cell.run.rounds, session.round());
        let per_round = job.work / rounds as f64;
        observer.found(per_round * found as f64);
        let now = Instant::now();
        let observer =
            Seed { shared: self, job, cell, per_round, pending: 0.0, unit: UNIT, last_report: now, last_saved: now, on_disk: found, own };
        Ok(Some((session, observer)))
    }

    /// Records the result of a seed.
    fn ended(&self, session: &Session<Run>, seed: Seed<'_, '_>, outcome: Outcome) -> Result<()> {
        let (job, cell, rounds) = (seed.job, seed.cell, seed.cell.run.rounds);
        if outcome == Outcome::Interrupted {
            self.leave(job, session.round(), seed.on_disk);
            return Ok(());
        }
        self.control.observer.advanced(seed.pending + seed.per_round * (rounds - session.round()) as f64);
        let stopped = outcome == Outcome::Converged;
        let end = End { theta: session.output().to_vec(), diverged: session.diverged(), stopped };
        let state = (session.carrier().state_len() <= MAX_STATES).then(|| session.carrier().save()).transpose()?;
        let saved = Saved {
            identity: cell.identity.clone(),
            seed: job.seed,
            rounds,
            round: session.round(),
            rows: session.rows().to_vec(),
            iterates: seed.own.iterates.clone(),
            state,
            seconds: session.seconds(),
            end: Some(end),
        };
        self.end(job, Arc::new(saved), seed.own);
        Ok(())
    }

    /// Stops all runs because of an error in one; the first error counts.
    fn fail(&self, e: Error) {
        self.failed.lock().expect("no panics under the lock").get_or_insert(e);
        self.stop.cancel();
    }

    /// The session of a seed, at its start.
    fn session(&self, job: &SeedJob) -> Result<Session<Run>> {
        let (field, cell) = (self.plan.shared_field(job.cell), &self.plan.cells[job.cell]);
        let metrics = Arc::clone(&self.metrics[cell.field]);
        let start = cell.start.of(job.seed, field.dim());
        let copies = cell.copies.map(|rule| Copies::new(field, rule)).transpose()?;
        let (start, combination) = match &copies {
            Some(copies) => (copies.start(&start), Some(copies.combination())),
            None => (start, None),
        };
        let mut federation = Federation::new(&*cell.method.settings, &cell.uplink, field.weights(), job.seed, start)?;
        if let Some(combination) = combination {
            federation = federation.combining(combination);
        }
        let field = &copies.map_or_else(|| Arc::clone(field), |copies| Arc::new(copies) as Arc<dyn Field>);
        let shape = cell.shape();
        let mut session = Session::new(Run::new(field, &federation.with_output(cell.output))?)
            .with_metrics(Arc::clone(&metrics))
            .recording(Record::At(cell.grid.clone()))
            .with_control_weight((shape.step_size.largest() * shape.local_steps).powi(2));
        if let Some(centre) = &cell.centre {
            session = session.around(centre.clone().into());
        }
        if cell.method.controls == ControlsStart::Ideal {
            session = session.prepared(Arc::new(move |run: &mut Run| {
                let agents = run.coordinator().federation().agents();
                let ideal: Option<Vec<Vec<f64>>> = (0..agents).map(|c| metrics.ideal_control(c).map(<[f64]>::to_vec)).collect();
                run.set_controls(&ideal.unwrap_or_default());
            }));
        }
        Ok(session)
    }

    /// Records how a run ended, and stores its state for further rounds.
    fn end(&self, job: &SeedJob, saved: Arc<Saved>, Own { metrics, values, iterates }: Own<'_>) {
        let End { theta, diverged, stopped } = saved.end.clone().expect("of a run that has ended");
        let own = metrics.map(|metrics| OwnValues { names: metrics.names(), values }).unwrap_or_default();
        let iterates = if metrics.is_some_and(OwnMetrics::keeps_iterates) { iterates } else { Vec::new() };
        let (rows, seconds) = (saved.rows.clone(), Some(saved.seconds));
        let result = SeedResult { seed: job.seed, rows, theta, diverged, stopped, seconds, own, iterates };
        self.control.observer.ended(job.cell, &result);
        self.slots.lock().expect("no panics under the lock")[job.cell][job.at] = Some(result);
        let mut ended = self.ended.lock().expect("no panics under the lock");
        let EndedRuns { states, bytes, is_new, written, full } = &mut *ended;
        *bytes += saved.size();
        *bytes -= states.insert((job.cell, job.seed), saved).map_or(0, |before| before.size());
        *is_new = true;
        if *bytes > MAX_STATES {
            match write_ended(self.control, &full_name(*full), states) {
                Ok(()) => {
                    states.clear();
                    (*bytes, *is_new, *written) = (0, false, Instant::now());
                    *full += 1;
                }
                Err(e) => self.could_not_save(&e),
            }
        } else if written.elapsed() >= self.control.every
            && let Err(e) = keep_ended(self.control, &mut ended)
        {
            self.could_not_save(&e);
        }
    }

    fn could_not_save(&self, e: &Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            self.control.observer.warned(&format!("a checkpoint could not be written; the run goes on and tries again: {}", e.what));
        }
    }

    /// Writes a checkpoint and returns whether that succeeded. The run continues either way.
    fn save(&self, job: &SeedJob, saved: &Saving<'_>) -> bool {
        let Some(folder) = self.control.folder else { return false };
        let written = write_framed(folder, &checkpoint_name(job.cell, job.seed), saved);
        written.map_err(|e| self.could_not_save(&e)).is_ok()
    }

    /// Counts an interrupted run with `round` completed rounds and a checkpoint of round `on_disk`.
    fn leave(&self, job: &SeedJob, round: u64, on_disk: u64) {
        let mut left = self.left.lock().expect("no panics under the lock");
        match round {
            0 => left.waiting += 1,
            _ if round == on_disk => left.kept += 1,
            _ => left.behind.push((format!("{}, seed {}", self.plan.cells[job.cell].method.label, job.seed), on_disk)),
        }
    }
}
