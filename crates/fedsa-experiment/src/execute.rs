//! Runs all seeds of all cells, in parallel over runs and within runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::{BadInput, Code, Error, Result};
use fedsa::federation::Federation;
use fedsa::metrics::Metrics;
use fedsa::record::{Outcome, OutputRule};
use fedsa::round::Run;
use fedsa::session::{self, Record, Session};
use fedsa_data::machine;
use fedsa_data::regular;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::observer::RunObserver;
use super::plan::{Plan, PlannedCell};
use super::results::{Recorded, Results, SeedResult};
use crate::config::schema::ControlsStart;
use crate::folder::{self, RunFolder};

/// The inputs of [`execute`] beside the plan: interruption, checkpoints and progress.
pub struct RunControl<'a> {
    /// Ends the runs early: Ctrl-C or SIGTERM.
    pub cancel: &'a Cancel,
    /// Where checkpoints go; without a folder none are written, and an interrupted run is lost.
    pub folder: Option<&'a RunFolder>,
    /// The interval between checkpoints of a run.
    pub every: Duration,
    /// The checkpoints of an earlier run, from which the runs continue.
    pub earlier: &'a Earlier,
    /// The observer of progress.
    pub observer: &'a dyn RunObserver,
}

/// The result of [`execute`].
pub enum Executed {
    /// All runs ended. Their final states are saved, unless they are too large, so that `--resume` can add
    /// rounds.
    Done(Results),
    /// Interrupted.
    Interrupted(Interrupted),
}

/// What an interruption leaves: numbers of runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Runs that had ended and are saved.
    pub ended: usize,
    /// Runs that had ended but could not be saved; they will run again.
    pub lost: usize,
    /// Runs that are saved at their last completed round.
    pub kept: usize,
    /// Runs whose last completed round could not be saved, and that continue from an older checkpoint or the start:
    /// method, point and seed, and the round of the checkpoint.
    pub behind: Vec<(String, u64)>,
    /// Runs that had not begun.
    pub waiting: usize,
}

/// The state of one seed of a cell in a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Saved {
    /// Identifies the run, independently of its number of rounds.
    identity: String,
    seed: u64,
    /// The number of rounds that were requested.
    rounds: u64,
    /// Rounds done.
    round: u64,
    rows: Vec<Recorded>,
    /// The run's state after these rounds; `None` if the run has ended and its state is too large to keep.
    #[serde(with = "serde_bytes")]
    state: Option<Vec<u8>>,
    /// The wall time of these rounds, in seconds.
    seconds: f64,
    /// How the run ended, if it has.
    end: Option<End>,
}

/// [`Saved`] without copies: a state may fill much of the memory.
#[derive(Serialize)]
struct Saving<'a> {
    identity: &'a str,
    seed: u64,
    rounds: u64,
    round: u64,
    rows: &'a [Recorded],
    state: Option<&'a serde_bytes::Bytes>,
    seconds: f64,
    end: Option<&'a End>,
}

/// How one seed of a cell ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct End {
    theta: Vec<f64>,
    /// The number of rounds after which it was found to have diverged, if it has.
    diverged: Option<u64>,
    stopped: bool,
}

/// The checkpoints of an earlier run of an experiment.
#[derive(Debug, Default)]
pub struct Earlier {
    folder: Option<PathBuf>,
    /// The states of runs that had ended, by cell and seed.
    ended: BTreeMap<(usize, u64), Saved>,
}

/// The file with the states of runs that have ended.
pub const ENDED: &str = "ended.ckpt";

/// The name of a full file with such states; one file for all could be too large.
fn full_name(index: usize) -> String {
    format!("{}{index}{}", folder::ENDED_CHECKPOINT, folder::CHECKPOINT)
}

/// The largest size of a file of states, and of the states that are kept of a finished run, in bytes.
const MOST_STATES: usize = 64 << 20;

fn checkpoint_name(cell: usize, seed: u64) -> String {
    format!("{}{cell}-{seed}{}", folder::RUN_CHECKPOINT, folder::CHECKPOINT)
}

impl Earlier {
    /// The checkpoints in a folder.
    ///
    /// # Errors
    /// When the states of a finished run are damaged.
    pub fn of(path: &Path) -> Result<Self> {
        let mut ended: BTreeMap<(usize, u64), Saved> = BTreeMap::new();
        let full = (0..).map(|index| folder::own_path(path, &full_name(index))).take_while(|file| file.exists());
        for file in full.chain(Some(folder::own_path(path, ENDED)).filter(|file| file.exists())) {
            for (cell, saved) in read_framed::<Vec<(usize, Saved)>>(&file)? {
                let key = (cell, saved.seed);
                if ended.get(&key).is_none_or(|before| before.round <= saved.round) {
                    ended.insert(key, saved);
                }
            }
        }
        Ok(Self { folder: Some(path.to_path_buf()), ended })
    }

    /// Checks that the runs of a plan can continue from these checkpoints.
    ///
    /// # Errors
    /// When a checkpoint is damaged or belongs to another run, or when more rounds were requested but the results
    /// of the first rounds depend on the number of rounds.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        for (cell, planned) in plan.cells.iter().enumerate() {
            for seed in planned.seeds() {
                if let Some(saved) = self.checkpoint(cell, planned, seed, plan.field(cell).dim())? {
                    saved.may_go_on(planned)?;
                }
            }
        }
        Ok(())
    }

    /// The checkpoint of a seed of a run with vectors of `d` numbers, if there is one.
    fn checkpoint(&self, cell: usize, planned: &PlannedCell, seed: u64, d: usize) -> Result<Option<Saved>> {
        let Some(path) = self.folder.as_ref().map(|folder| folder::own_path(folder, &checkpoint_name(cell, seed))) else { return Ok(None) };
        let own: Option<Saved> = path.exists().then(|| read_framed(&path)).transpose()?;
        // A run that had ended may have continued with more rounds; its own file is then the newer one.
        let saved = match (own, self.ended.get(&(cell, seed))) {
            (Some(own), Some(ended)) if own.round <= ended.round => ended.clone(),
            (Some(own), _) => own,
            (None, Some(ended)) => ended.clone(),
            (None, None) => return Ok(None),
        };
        if saved.identity != planned.identity || saved.seed != seed {
            let from = if path.exists() { path } else { path.with_file_name(ENDED) };
            let what = format!("{}: the checkpoint belongs to another run, not to {}, seed {seed}", from.display(), planned.method.label);
            let help = "the same experiment as before, with unchanged input files";
            return Err(BadInput::format(CHECKPOINT, what, help).coded(Code::OtherRun));
        }
        if !saved.is_sound(planned.run.rounds, d) {
            return Err(BadInput::format(CHECKPOINT, format!("{}: its parts contradict each other", path.display()), INTACT));
        }
        Ok(Some(saved))
    }
}

impl Saved {
    /// Checks that a new run of `planned.run.rounds` rounds would pass through this state.
    fn may_go_on(&self, planned: &PlannedCell) -> Result<()> {
        let (had, wanted) = (self.rounds, planned.run.rounds);
        if had == wanted {
            return Ok(());
        }
        let label = &planned.method.label;
        let refused = |what: String, help: &str| Err(BadInput::format(CHECKPOINT, format!("{label}: {what}"), help).coded(Code::OtherRun));
        if let OutputRule::TailAfter(_) = planned.output {
            let what = format!("its output averages the last share of the rounds, which are other rounds of {wanted} than of {had}");
            return refused(what, "output = \"last\" or \"average\", or a run from the start in another folder");
        }
        let recorded = |round: &u64| self.rows.binary_search_by_key(round, |row| row.round).is_ok();
        let until = self.rows.last().map_or(0, |row| row.round);
        match planned.grid.iter().filter(|round| **round <= until).find(|round| !recorded(round)) {
            None => Ok(()),
            Some(missing) => {
                let what = format!("a run of {wanted} rounds records round {missing}, but the run of {had} rounds did not");
                refused(what, "recorded rounds that do not depend on their number: record = { every = K } or a list, from the start")
            }
        }
    }

    /// Whether the parts of the state agree with each other, with `rounds` rounds and with vectors of `d` numbers.
    /// The checksum alone detects accidental damage only.
    fn is_sound(&self, rounds: u64, d: usize) -> bool {
        let last = self.rows.last().map(|row| row.round);
        self.round <= self.rounds.min(rounds)
            && self.seconds.is_finite()
            && self.seconds >= 0.0
            && self.rows.first().is_some_and(|row| row.round == 0)
            && self.rows.is_sorted_by(|a, b| a.round < b.round)
            && self.end.as_ref().map_or(last <= Some(self.round), |end| last == Some(self.round) && end.theta.len() == d)
    }

    /// The approximate size in bytes.
    fn size(&self) -> usize {
        let theta = self.end.as_ref().map_or(0, |end| end.theta.len() * size_of::<f64>());
        self.state.as_ref().map_or(0, Vec::len) + self.rows.len() * size_of::<Recorded>() + theta
    }

    /// Whether the run is over. It continues if it did all its rounds and more rounds are requested now. A shorter run
    /// checks its target after its last round too; in a longer run that round may not be recorded.
    fn is_over(&self, planned: &PlannedCell) -> bool {
        let is_recorded = planned.grid.binary_search(&self.round).is_ok();
        let is_at_end = self.round >= planned.run.rounds;
        self.end.as_ref().is_some_and(|end| (end.stopped && is_recorded) || end.diverged.is_some() || is_at_end)
    }
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
    /// By cell and seed, including those of an earlier run that were not read yet.
    states: BTreeMap<(usize, u64), Saved>,
    /// Their size in bytes.
    bytes: usize,
    /// When the states were last written, and whether there are new ones since.
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
    left: Mutex<Interrupted>,
    ended: Mutex<EndedRuns>,
    /// Whether a checkpoint could not be written; reported once.
    warned: AtomicBool,
}

/// Runs all seeds of all cells of a plan.
///
/// # Errors
/// When a checkpoint cannot be read.
pub fn execute(plan: &Plan, control: &RunControl<'_>) -> Result<Executed> {
    let mut jobs = Vec::new();
    let mut slots: Vec<Vec<Option<SeedResult>>> = Vec::new();
    for (cell, planned) in plan.cells.iter().enumerate() {
        let seeds = planned.seeds();
        slots.push(vec![None; seeds.len()]);
        let work = planned.work(plan.field(cell));
        jobs.extend(seeds.into_iter().enumerate().map(|(at, seed)| SeedJob { cell, at, seed, work }));
    }
    // The longest runs start first, so that the last runs to end are short.
    jobs.sort_by(|a, b| b.work.total_cmp(&a.work));
    let slots = Mutex::new(slots);
    let failed: Mutex<Option<BadInput>> = Mutex::new(None);
    let next = AtomicUsize::new(0);
    let shared = Shared {
        plan,
        metrics: plan.fields.iter().map(|f| Arc::new(Metrics::new(&f.field))).collect(),
        control,
        left: Mutex::default(),
        ended: Mutex::new(EndedRuns {
            bytes: control.earlier.ended.values().map(Saved::size).sum(),
            states: control.earlier.ended.clone(),
            written: Instant::now(),
            is_new: false,
            full: 0,
        }),
        warned: AtomicBool::new(false),
    };
    // Threads take whole runs while there are any, then they help running ones.
    rayon::scope(|scope| {
        for _ in 0..rayon::current_num_threads() {
            scope.spawn(|_| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if failed.lock().expect("no panics under the lock").is_some() {
                        return;
                    }
                    if control.cancel.is_cancelled() {
                        shared.left.lock().expect("no panics under the lock").waiting += 1;
                        continue;
                    }
                    match shared.run(job) {
                        Ok(result) => slots.lock().expect("no panics under the lock")[job.cell][job.at] = result,
                        Err(e) => *failed.lock().expect("no panics under the lock") = Some(e),
                    }
                }
            });
        }
    });
    if let Some(e) = failed.into_inner().expect("no panics under the lock") {
        return Err(e);
    }
    let mut ended_runs = shared.ended.into_inner().expect("no panics under the lock");
    let kept = keep_ended(control, &mut ended_runs);
    if let Err(e) = &kept {
        control.observer.warned(&format!("the states of runs that have ended could not be kept: {}", e.what));
    }
    let slots = slots.into_inner().expect("no panics under the lock");
    let ended = slots.iter().flatten().filter(|slot| slot.is_some()).count();
    let cells: Option<Vec<Vec<SeedResult>>> = slots.into_iter().map(|seeds| seeds.into_iter().collect()).collect();
    let Some(cells) = cells else {
        let left = shared.left.into_inner().expect("no panics under the lock");
        let (ended, lost) = if kept.is_ok() { (ended, 0) } else { (0, ended) };
        return Ok(Executed::Interrupted(Interrupted { ended, lost, ..left }));
    };
    Ok(Executed::Done(Results { cells }))
}

/// Writes the final states that were not written yet.
fn keep_ended(control: &RunControl<'_>, ended: &mut EndedRuns) -> Result<(), Error> {
    if !ended.is_new {
        return Ok(());
    }
    ended.written = Instant::now();
    write_ended(control, ENDED, &ended.states)?;
    ended.is_new = false;
    Ok(())
}

fn write_ended(control: &RunControl<'_>, name: &str, states: &BTreeMap<(usize, u64), Saved>) -> Result<(), Error> {
    let states: Vec<(usize, &Saved)> = states.iter().map(|((cell, _), saved)| (*cell, saved)).collect();
    control.folder.map_or(Ok(()), |folder| write_framed(folder, name, &states))
}

/// Whether a copy of a run's state fits into memory.
fn fits(bytes: usize) -> bool {
    // Saving makes copies; part of the free memory is left.
    let free = machine::available().ok().flatten().map(|available| available.bytes);
    free.is_none_or(|free| 8.0 * bytes as f64 <= free)
}

/// The number of local steps between reports of progress.
const UNIT: f64 = 1000.0;

/// One seed of a cell under way: reports its progress, and keeps its states.
struct Seed<'a, 's> {
    shared: &'s Shared<'a>,
    job: &'s SeedJob,
    cell: &'s PlannedCell,
    per_round: f64,
    /// Local steps that were not reported yet.
    pending: f64,
    last_saved: Instant,
    /// The last round that is on the disk.
    on_disk: u64,
}

impl session::Observer for Seed<'_, '_> {
    fn recorded(&mut self, row: &Recorded) {
        self.shared.control.observer.recorded(self.job.cell, self.job.seed, row);
    }

    fn advanced(&mut self) {
        self.pending += self.per_round;
    }

    fn wants_state(&mut self) -> bool {
        if self.pending < UNIT {
            return false;
        }
        self.shared.control.observer.advanced(std::mem::take(&mut self.pending));
        self.last_saved.elapsed() >= self.shared.control.every
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
    /// Runs one seed to its end; `None` if interrupted.
    fn run(&self, job: &SeedJob) -> Result<Option<SeedResult>> {
        let RunControl { cancel, observer, earlier, .. } = *self.control;
        let cell = &self.plan.cells[job.cell];
        let mut session = self.session(job)?;
        if let Some(saved) = earlier.checkpoint(job.cell, cell, job.seed, self.plan.field(job.cell).dim())? {
            if saved.is_over(cell) {
                saved.rows.iter().for_each(|row| observer.recorded(job.cell, job.seed, row));
                observer.found(job.work);
                return Ok(Some(self.end(job, saved)));
            }
            if let Saved { round, rows, state: Some(carrier), seconds, .. } = saved {
                let state = session::State { round, rows, carrier, seconds };
                session.restore(state).map_err(|e| e.inside(&checkpoint_name(job.cell, job.seed)))?;
                session.rows().iter().for_each(|row| observer.recorded(job.cell, job.seed, row));
            }
        }
        let (rounds, found) = (cell.run.rounds, session.round());
        let per_round = job.work / rounds as f64;
        observer.found(per_round * found as f64);
        let mut seed = Seed { shared: self, job, cell, per_round, pending: 0.0, last_saved: Instant::now(), on_disk: found };
        let outcome = session.advance(&cell.run.stop.until(rounds), cancel, &mut seed)?;
        if outcome == Outcome::Interrupted {
            self.leave(job, session.round(), seed.on_disk);
            return Ok(None);
        }
        observer.advanced(seed.pending + per_round * (rounds - session.round()) as f64);
        let stopped = outcome == Outcome::Converged;
        let end = End { theta: session.output().to_vec(), diverged: session.diverged(), stopped };
        let state = (session.carrier().state_len() <= MOST_STATES).then(|| session.carrier().save()).transpose()?;
        let saved = Saved {
            identity: cell.identity.clone(),
            seed: job.seed,
            rounds,
            round: session.round(),
            rows: session.rows().to_vec(),
            state,
            seconds: session.seconds(),
            end: Some(end),
        };
        Ok(Some(self.end(job, saved)))
    }

    /// The session of a seed, at its start.
    fn session(&self, job: &SeedJob) -> Result<Session<Run>> {
        let (field, cell) = (self.plan.shared_field(job.cell), &self.plan.cells[job.cell]);
        let metrics = Arc::clone(&self.metrics[cell.field]);
        let start = cell.start.of(job.seed, field.dim());
        let federation = Federation::new(&*cell.method.settings, &cell.uplink, field.weights(), job.seed, start)?;
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

    /// Records how a run ended, and keeps its state for further rounds.
    fn end(&self, job: &SeedJob, saved: Saved) -> SeedResult {
        let End { theta, diverged, stopped } = saved.end.clone().expect("of a run that has ended");
        let result = SeedResult { seed: job.seed, rows: saved.rows.clone(), theta, diverged, stopped, seconds: Some(saved.seconds) };
        self.control.observer.ended(job.cell, &result);
        let mut ended = self.ended.lock().expect("no panics under the lock");
        let EndedRuns { states, bytes, is_new, written, full } = &mut *ended;
        *bytes += saved.size();
        *bytes -= states.insert((job.cell, job.seed), saved).map_or(0, |before| before.size());
        *is_new = true;
        if *bytes > MOST_STATES {
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
        result
    }

    fn could_not_save(&self, e: &Error) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            self.control.observer.warned(&format!("a checkpoint could not be written; the run goes on and tries again: {}", e.what));
        }
    }

    /// Writes a checkpoint and returns whether that worked. The run continues either way.
    fn save(&self, job: &SeedJob, saved: &Saving<'_>) -> bool {
        let Some(folder) = self.control.folder else { return false };
        let written = write_framed(folder, &checkpoint_name(job.cell, job.seed), saved);
        written.map_err(|e| self.could_not_save(&e)).is_ok()
    }

    /// Counts an interrupted run that has done `round` rounds, with a checkpoint of round `on_disk`.
    fn leave(&self, job: &SeedJob, round: u64, on_disk: u64) {
        let mut left = self.left.lock().expect("no panics under the lock");
        match round {
            0 => left.waiting += 1,
            _ if round == on_disk => left.kept += 1,
            _ => left.behind.push((format!("{}, seed {}", self.plan.cells[job.cell].method.label, job.seed), on_disk)),
        }
    }
}

/// The first bytes of a checkpoint.
const MAGIC: &[u8; 8] = b"fedsack4";
const _: () = assert!(MAGIC[0] == folder::CHECKPOINT_MAGIC[0] && folder::CHECKPOINT_MAGIC.len() < MAGIC.len());

/// The bytes of a checkpoint: version, checksum, data.
pub fn framed(data: &impl Serialize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    // Room for the checksum.
    let body = bytes.len() + 4;
    bytes.resize(body, 0);
    let mut bytes = postcard::to_extend(data, bytes).expect("plain data serialises");
    let sum = crc32fast::hash(&bytes[body..]);
    bytes[MAGIC.len()..body].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Writes a checkpoint.
///
/// # Errors
/// When it cannot be written.
pub fn write_framed(folder: &RunFolder, name: &str, data: &impl Serialize) -> Result<(), Error> {
    folder.write_own(name, &framed(data))
}

/// Reads what [`write_framed`] wrote.
///
/// # Errors
/// When the file cannot be read, is damaged, or belongs to another version.
pub fn read_framed<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bad = |what: &str| BadInput::format(CHECKPOINT, format!("{}: {what}", path.display()), INTACT);
    let bytes = regular::read(path, u64::MAX - 1).map_err(|e| bad(&format!("cannot be read: {e}")))?;
    unframed(&bytes).map_err(|what| bad(&what))
}

/// The help for a damaged checkpoint.
const INTACT: &str = "an intact checkpoint; delete this one to run its part again from the start";

/// The key of errors about what an earlier run has saved.
pub const CHECKPOINT: &str = "checkpoint";

/// The data in a checkpoint's bytes.
///
/// # Errors
/// The reason why the bytes are not a valid checkpoint.
pub fn unframed<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, String> {
    let body = bytes.strip_prefix(MAGIC).ok_or("truncated, or not a checkpoint of this version")?;
    let (sum, body) = body.split_at_checked(4).ok_or("the checkpoint is truncated")?;
    if crc32fast::hash(body).to_le_bytes() != *sum {
        return Err("the checkpoint is truncated or damaged (its checksum differs)".into());
    }
    postcard::from_bytes(body).map_err(|_| "not a checkpoint of this version".into())
}
