//! The results of an experiment, compared with theory and drawn.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa::note::{Note, NoteCode};
use fedsa::problem::arrays::Arrays;
use fedsa::record::Outcome;
use fedsa_data::regular;
use fedsa_data::trace::Trace;
use serde_json::{Value as Json, json};

use super::{CONFIG, IfExists, predictions};
use crate::checks::{self, Verdict};
use crate::config::{Experiment, validate};
use crate::folder::{self, FolderPurpose, FolderWork, RunFolder};
use crate::made::Changes;
use crate::observer::RunObserver;
use crate::output;
use crate::picture::{self, DrawnFigure, Picture};
use crate::plan::Plan;
use crate::predict::{KeptPredictions, Predictor};
use crate::results::{OWN_METRICS, Results};
use crate::summary::{self, Summary};

/// Whether everything is as expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedRun {
    /// Whether every check and every outcome is as expected, except notes.
    pub as_expected: bool,
    /// With quick settings, the number of unexpected checks and outcomes, which are then excused.
    pub excused: usize,
}

impl EndedRun {
    /// The end of finished runs. Quick settings may be too small for a check or an expected divergence, and changes of the file may leave a
    /// check unmeasured: such results are notes. The outcome of the cell `settled` does not count.
    fn of(plan: &Plan, results: &Results, verdicts: &[Verdict], quick: bool, settled: Option<usize>) -> Self {
        let (mut excused, mut failures) = (0, 0);
        let mut count = |as_expected: bool, is_note: bool| match (as_expected, is_note) {
            (true, _) => {}
            (false, true) => excused += 1,
            (false, false) => failures += 1,
        };
        verdicts.iter().for_each(|v| count(v.as_expected && !v.excused, v.is_note(quick)));
        let cells = (0..results.cells.len()).filter(|cell| settled != Some(*cell));
        cells.for_each(|cell| count(results.as_expected(plan, cell), quick && results.is_ok(cell)));
        Self { as_expected: failures == 0, excused }
    }

    /// The end of the finished run in a folder.
    pub(super) fn of_summary(out: &Path) -> Self {
        let summary = regular::read(&out.join("summary.json"), u64::MAX - 1).ok();
        let summary: Option<Json> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let field = |name: &str| summary.as_ref().and_then(|s| s.get(name)?.as_u64());
        Self { as_expected: field("exit_status") == Some(0), excused: field("excused").unwrap_or(0) as usize }
    }
}

/// The results of an experiment.
#[non_exhaustive]
pub struct Ran {
    /// The plan that ran.
    pub plan: Arc<Plan>,
    /// The recorded rounds and the outputs of all runs.
    pub results: Results,
    /// The predictions.
    pub predictor: Predictor,
    /// The checks, measured.
    pub verdicts: Vec<Verdict>,
    /// The figure.
    pub picture: Picture,
    /// Whether the quick settings applied.
    pub quick: bool,
    /// Whether everything is as expected.
    pub ended: EndedRun,
    /// The wall time, in seconds.
    pub seconds: f64,
    began: Instant,
    /// Program, machine and time, taken once, so that all copies of the results agree.
    provenance: Json,
    /// A cell of the first point that only led to a result found by other means.
    settled: Option<usize>,
    /// Notes for readers of the results.
    notes: Vec<Note>,
    /// Further keys of `summary.json`.
    further: serde_json::Map<String, Json>,
    written: Written,
}

/// The inputs of the files of results.
pub(super) struct Written {
    /// The folder of the run, if it has one.
    pub folder: Option<RunFolder>,
    /// Files that it may have in addition to the usual ones.
    pub extra: Vec<String>,
    /// Whether existing outputs have the same settings.
    pub is_same: bool,
    /// The text of `config.toml`.
    pub config: String,
    /// The purpose of a folder with the results.
    pub purpose: FolderPurpose,
}

/// The inputs of a comparison with theory in addition to the results.
pub(super) struct Comparing<'a> {
    /// For each check, why it is not measured, if it is not.
    pub unmeasured: &'a [Option<String>],
    /// The predictions of an earlier, interrupted run.
    pub kept: KeptPredictions,
    pub observer: &'a dyn RunObserver,
    pub cancel: &'a Cancel,
}

impl Ran {
    /// Compares results with theory, and draws them; `None` after a cancellation.
    pub(super) fn new(
        plan: Arc<Plan>,
        results: Results,
        comparison: Comparing<'_>,
        quick: bool,
        began: Instant,
        written: Written,
    ) -> Option<Self> {
        let Comparing { unmeasured, kept, observer, cancel } = comparison;
        let predictor = Predictor::new(&plan).with_cancel(cancel).with_kept(kept);
        let compare = || {
            let verdicts = checks::measure(&plan, &results, &predictor, unmeasured);
            let picture = picture::draw(&plan, &results, &predictor, &verdicts, quick);
            let missing = picture::missing_predictions(&plan, &predictor);
            (verdicts, picture, missing)
        };
        let (verdicts, picture, missing) =
            predictions::while_comparing(&plan, &predictor, written.folder.as_ref(), observer, cancel, compare);
        if cancel.is_cancelled() {
            return None;
        }
        // Later requests are part of the results, which are complete.
        let predictor = predictor.with_cancel(&Cancel::never());
        let ended = EndedRun::of(&plan, &results, &verdicts, quick, None);
        let (seconds, provenance, further) = (began.elapsed().as_secs_f64(), output::provenance(), serde_json::Map::new());
        let (settled, mut notes) = (None, summary::notes_of(&plan, &results));
        notes.extend(missing);
        Some(Self {
            plan,
            results,
            predictor,
            verdicts,
            picture,
            quick,
            ended,
            seconds,
            began,
            provenance,
            settled,
            notes,
            further,
            written,
        })
    }

    /// The report.
    pub fn summary(&self) -> Summary {
        let Self { plan, results, predictor, verdicts, quick, seconds, .. } = self;
        let mut summary = Summary::of(plan, results, predictor, verdicts, *quick, *seconds);
        summary.notes.clone_from(&self.notes);
        if let Some(cell) = &self.settled {
            let at = plan.points[0].cells.iter().position(|of| of == cell);
            if let Some(entry) = at.and_then(|at| summary.entries.get_mut(at)) {
                (entry.outcome, entry.as_expected, entry.reason, entry.remedy) = (Some(Outcome::Converged), true, None, None);
            }
        }
        summary
    }

    /// Marks a cell of the first point whose result was found by other means: its run's outcome does not count, and the note states the
    /// means.
    pub(crate) fn settle(&mut self, cell: usize, note: String) {
        self.ended = EndedRun::of(&self.plan, &self.results, &self.verdicts, self.quick, Some(cell));
        self.settled = Some(cell);
        self.add_notes([Note::new(NoteCode::EstimateByNewton, note)]);
    }

    /// Notes for readers of the results, the same in all interfaces.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Adds new notes.
    pub fn add_notes(&mut self, notes: impl IntoIterator<Item = Note>) {
        for note in notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
    }

    /// The text of the settings, `config.toml`, with defaults.
    pub fn config(&self) -> &str {
        &self.written.config
    }

    /// `summary.json`, as it is written.
    pub fn summary_json(&self) -> Json {
        let mut summary = output::summary(&self.plan, &self.results, &self.predictor, &self.verdicts, self.seconds);
        summary["provenance"] = self.provenance.clone();
        summary["quick"] = json!(self.quick);
        summary["exit_status"] = json!(u8::from(!self.ended.as_expected));
        summary["excused"] = json!(self.ended.excused);
        summary["notes"] = summary::notes_json(&self.notes);
        if !self.results.own_names().is_empty() {
            summary[OWN_METRICS] = json!(self.results.own_names());
        }
        self.further.iter().for_each(|(key, value)| summary[key] = value.clone());
        summary
    }

    /// A row for each recorded round of each run, as in `trace.parquet`.
    ///
    /// # Errors
    /// Never for results of this version.
    pub fn trace(&self) -> Result<Trace, Error> {
        output::trace_table(&self.plan, &self.results)
    }

    /// The final outputs and roots, as in `theta.npz`.
    ///
    /// # Errors
    /// When they are too large.
    pub fn outputs(&self) -> Result<Arrays, Error> {
        output::theta(&self.plan, &self.results)
    }

    /// The iterates at recorded rounds, as in `iterates.npz`; empty if they are not kept.
    ///
    /// # Errors
    /// When they are too large.
    pub fn iterates(&self) -> Result<Arrays, Error> {
        output::iterates(&self.plan, &self.results)
    }

    /// The figure, redrawn with these changes of the figure and the title.
    ///
    /// # Errors
    /// When a change cannot be used.
    pub fn drawn(&self, changes: &Changes) -> Result<DrawnFigure, Error> {
        let mut document = self.plan.experiment.document.clone();
        changes.apply(&mut document)?;
        let mut experiment = Experiment::read(document)?;
        experiment.figure.own = self.results.own_names().to_vec();
        validate::experiment(&experiment, &self.plan.labels).map_err(|e| experiment.document.failure(e))?;
        picture::check_axes(&experiment, &self.results).map_err(|e| experiment.document.failure(e))?;
        let plan = self.plan.drawn_as(experiment);
        let picture = picture::draw(&plan, &self.results, &self.predictor, &self.verdicts, self.quick);
        Ok(DrawnFigure::new(&plan.experiment, picture, self.config()))
    }

    /// Includes the time since the comparison with theory in `seconds`.
    pub(crate) fn took_until_now(&mut self) {
        self.seconds = self.began.elapsed().as_secs_f64();
    }

    /// Adds a key to `summary.json`.
    pub(crate) fn add_to_summary(&mut self, key: &str, value: Json) {
        self.further.insert(key.into(), value);
    }

    /// The usual files with their contents, the summary last; without `config.toml`.
    ///
    /// # Errors
    /// When the trace or the outputs are too large for their formats.
    pub fn files(&self, summary: &Json) -> Result<Vec<(String, Vec<u8>)>, Error> {
        output::files(&self.plan, &self.results, summary, &self.picture, self.config())
    }

    /// Writes the results into the folder of the run, after the files `further`; nothing without a folder. Others may then use the folder.
    ///
    /// # Errors
    /// When files cannot be made or written. The runs remain in the folder and can be resumed.
    pub fn write(&self, further: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        let Some(folder) = &self.written.folder else { return Ok(()) };
        let written = self.write_to(folder, further).map_err(|e| self.unfinished(e));
        // Others may continue the run while the caller has the results.
        folder.release();
        written
    }

    fn write_to(&self, folder: &RunFolder, further: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        folder.hold()?;
        let mut files = further;
        files.extend(self.files(&self.summary_json())?);
        // Older outputs would count as outputs of these results. Pictures of the same results stay.
        let is_written = |name: &str| name == CONFIG || files.iter().any(|(written, _)| written == name);
        let is_stale = |name: &str| !self.written.is_same || self.written.extra.iter().any(|extra| extra == name);
        folder.remove(|name| !is_written(name) && is_stale(name));
        folder.write(&files)?;
        folder.tidy();
        Ok(())
    }

    /// Writes the results of a run without a folder into one, after the files `further`.
    ///
    /// # Errors
    /// When the folder has something else and must not be replaced, or cannot be written to.
    pub fn write_into(&self, path: &Path, if_exists: IfExists, further: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
        let files = || {
            let mut files = vec![(CONFIG.to_string(), self.config().as_bytes().to_vec())];
            files.extend(further);
            files.extend(self.files(&self.summary_json())?);
            Ok(files)
        };
        write_files(path, if_exists, self.written.purpose.clone(), files)
    }

    /// The failure of a run whose results could not be written, with what remains of it.
    pub fn unfinished(&self, e: Error) -> Error {
        let Some(folder) = &self.written.folder else { return e };
        let help = format!("{}, with `resume`, which goes on from {}", e.help, folder.path().display());
        Error::machine(e.to_string(), help)
    }
}

/// Writes the files of a finished run, for example from another folder, into a folder.
///
/// # Errors
/// As [`Ran::write_into`].
pub fn write_finished(path: &Path, if_exists: IfExists, files: Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    // No run continues from it, because its identity is unknown.
    write_files(path, if_exists, FolderPurpose::new(FolderWork::Run, ""), || Ok(files))
}

fn write_files(
    path: &Path,
    if_exists: IfExists,
    purpose: FolderPurpose,
    files: impl FnOnce() -> Result<Vec<(String, Vec<u8>)>, Error>,
) -> Result<(), Error> {
    let found = folder::look(path)?;
    found.refuse_own()?;
    if if_exists != IfExists::Overwrite && found.holds != folder::Holds::Nothing {
        return Err(super::is_taken(path, &found));
    }
    let files = files()?;
    found.refuse_foreign(&files.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())?;
    let folder = found.purposed(purpose).claim(false)?;
    folder.write(&files)?;
    folder.tidy();
    Ok(())
}
