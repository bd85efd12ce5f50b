//! Runs one part of a sweep: it continues after an interruption, and runs only once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::atomic::{self, Existing};

use super::done::{DonePart, exact, others, overlaps};
use super::list::{NamedPart, SEED_RANGE, SweepPart};
use super::record::SweepRecord;
use crate::config::Experiment;
use crate::execute::{Earlier, Executed, Interrupted, RunControl, execute, framed};
use crate::folder::{self, FolderPurpose, FolderWork, Holds, OUT, RunFolder};
use crate::plan::PlanControl;
use crate::run::{self, CONFIG, RunSettings};
use crate::{Computed, Plan, RunObserver, Stage, resolve};

/// How a part ended.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PartOutcome {
    /// Its runs ended now.
    Done(RanPart),
    /// It was done before, or the folder has the merged results. Nothing ran.
    AlreadyDone,
    /// It was cancelled; the folder has what was computed.
    Interrupted(Interrupted),
}

/// The cost of a part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RanPart {
    /// The number of its runs.
    pub runs: usize,
    /// The wall time, in seconds.
    pub seconds: f64,
}

/// A part of a sweep with its settings.
struct PartJob<'a> {
    experiment: &'a Experiment,
    part: &'a SweepPart,
    settings: &'a RunSettings,
    out: &'a Path,
    sweep: SweepRecord,
    name: String,
}

/// Runs a part of an experiment's sweep in the folder of the settings, where other processes may run other parts at the same time. A
/// finished part does not run again; an interrupted one continues. The settings' treatment of an existing run has no effect.
///
/// # Errors
/// On bad input: points that do not exist, or are in another part; a folder with something else. When the machine fails.
pub fn run_part(
    experiment: &Experiment,
    part: &SweepPart,
    settings: &RunSettings,
    observer: &dyn RunObserver,
    cancel: &Cancel,
) -> Result<PartOutcome, Error> {
    let began = Instant::now();
    let no_folder = || Error::new(OUT, "a part of a sweep needs a folder", "a folder, the same one for all parts");
    let (out, _) = settings.folder.as_ref().ok_or_else(no_folder)?;
    part.check(experiment.points.len())?;
    let sweep = SweepRecord::of(experiment, &settings.base, settings.quick);
    let job = PartJob { experiment, part, settings, out, sweep, name: part.name() };
    if job.is_done()? {
        return Ok(PartOutcome::AlreadyDone);
    }
    observer.stage(Stage::Building);
    let working = folder::part_folder(out, &job.name);
    let found = folder::look(&working)?;
    found.refuse_own()?;
    let (earlier, roots) = (Earlier::of(&working)?, run::roots(&working)?);
    let plan = job.plan(&roots, observer, cancel)?;
    earlier.check(&plan)?;
    observer.stage(Stage::Planned(&plan));
    // From here on files are written.
    let purpose = FolderPurpose { further: Some(part.to_string()), ..FolderPurpose::new(FolderWork::Run, job.sweep.identity.clone()) };
    let folder = found.purposed(purpose).claim(true)?;
    if !job.begin(&folder, &plan).inspect_err(|_| folder.abandon())? {
        folder.abandon();
        return Ok(PartOutcome::AlreadyDone);
    }
    observer.stage(Stage::Running);
    let every = settings.checkpoint_every;
    let control = RunControl { cancel, folder: Some(&folder), every, earlier: &earlier, observer, in_turn: settings.in_turn };
    let worked = execute(&plan, &control);
    observer.stage(Stage::Ended);
    match worked? {
        Executed::Interrupted(left) => Ok(PartOutcome::Interrupted(left)),
        Executed::Done(results) => {
            job.finish(&plan, &working)?;
            Ok(PartOutcome::Done(RanPart { runs: results.cells.iter().map(Vec::len).sum(), seconds: began.elapsed().as_secs_f64() }))
        }
    }
}

impl PartJob<'_> {
    /// Whether nothing is left to run.
    ///
    /// # Errors
    /// When the folder has something else, or another part with these runs.
    fn is_done(&self) -> Result<bool> {
        let found = folder::look(self.out)?;
        found.refuse_own()?;
        if !found.has_parts() {
            return match found.holds {
                Holds::Nothing => Ok(false),
                Holds::Finished if found.own(CONFIG).is_some_and(|ran| self.is_config(&ran)) => Ok(true),
                _ => Err(run::is_taken(self.out, &found)),
            };
        }
        drop(found);
        if let Some(there) = SweepRecord::read(self.out)? {
            there.refuse_other(&self.sweep, self.out)?;
        }
        if !self.is_there()? {
            self.refuse_overlap()?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Whether a finished run with these settings is this sweep.
    fn is_config(&self, ran: &[u8]) -> bool {
        let places = fedsa_data::find::Places::from_env(&self.settings.base);
        resolve::file(self.experiment, &places).is_ok_and(|config| config.as_bytes() == ran)
    }

    /// Whether the part is done.
    ///
    /// # Errors
    /// When its file is damaged or foreign.
    fn is_there(&self) -> Result<bool> {
        if !folder::part_file(self.out, &self.name).exists() {
            return Ok(false);
        }
        DonePart::read(self.out, &self.name)?.refuse_foreign(&self.sweep, self.out)?;
        folder::remove_part_folder(self.out, &self.name);
        Ok(true)
    }

    /// Refuses a part that shares a run with another one.
    fn refuse_overlap(&self) -> Result<()> {
        let names = folder::names_of_parts(self.out).map_err(|e| atomic::unwritable(self.out, &e))?;
        for (name, other) in others(self.out, &names, &self.name)? {
            if let NamedPart::Within(bounds) = &other
                && self.part.overlap(bounds).is_none()
            {
                continue;
            }
            let other = exact(self.out, &name, other, names.done.contains(&name))?;
            if let Some(point) = self.part.overlap(&other) {
                return Err(overlaps(self.part, &other, point));
            }
        }
        Ok(())
    }

    /// The plan of the part.
    fn plan(&self, roots: &HashMap<String, Vec<f64>>, observer: &dyn RunObserver, cancel: &Cancel) -> Result<Arc<Plan>> {
        let RunSettings { base, isa, force, .. } = self.settings;
        let solving = |k: usize, n: usize| observer.computing(Computed::Roots, k, n);
        let control = PlanControl { cancel, solving: Some(&solving) };
        let mut plan = Plan::with_problem(self.experiment.at_points(self.part.points.iter()), base, *isa, roots, None, &control)?;
        if let Some(seeds) = self.part.seeds {
            let all: Vec<u64> = plan.cells.iter().flat_map(|cell| cell.run.seeds.list()).collect();
            plan = plan.with_seeds(|seed| seeds.has(seed));
            if all.iter().all(|seed| !seeds.has(*seed)) {
                let shown = |seed: Option<&u64>| seed.map_or(String::new(), u64::to_string);
                let accepted = format!("seeds of these points, which are from {} to {}", shown(all.iter().min()), shown(all.iter().max()));
                return Err(Error::new(SEED_RANGE, format!("there is no seed in {seeds}"), accepted).coded(ErrorCode::OutOfRange));
            }
        }
        run::refuse_plan(&plan, *force, cancel)?;
        Ok(Arc::new(plan))
    }

    /// Writes the first files of the part, and returns whether it is to run: others may have begun since the folder was inspected.
    fn begin(&self, folder: &RunFolder, plan: &Plan) -> Result<bool> {
        self.sweep.keep(self.out)?.refuse_other(&self.sweep, self.out)?;
        if folder::part_file(self.out, &self.name).exists() {
            return Ok(false);
        }
        self.refuse_overlap()?;
        run::write_roots(folder, plan)?;
        Ok(true)
    }

    /// Writes the part's file, and removes its folder.
    fn finish(&self, plan: &Plan, working: &Path) -> Result<()> {
        let roots = plan.fields.iter().filter_map(|f| Some((f.fingerprint.clone(), f.field.root()?.to_vec()))).collect();
        let earlier = Earlier::of(working)?;
        if !earlier.has_all(plan) {
            let what = format!("what {} has come to cannot be written to {}", self.part, self.out.display());
            return Err(Error::machine(what, "some space on the disk, then the same call again, which goes on from there"));
        }
        let (program, sweep, part) = (self.sweep.program.clone(), self.sweep.identity.clone(), self.part.clone());
        let done = DonePart { program, sweep, part, roots, states: earlier.into_ended() };
        write_part(self.out, &self.name, &framed(&done))?;
        folder::remove_part_folder(self.out, &self.name);
        Ok(())
    }
}

fn write_part(out: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let path = folder::part_file(out, name);
    atomic::write(&path, bytes, &folder::parts_path(out), Existing::Replace).map_err(|e| atomic::unwritable(&path, &e))
}

/// Adds a part that ran in a folder of another machine: `bytes` is the content of its file ([`file_of_part`]). An existing part stays.
///
/// # Errors
/// When the bytes are damaged, of another sweep or version, when the part overlaps with another one, and when it cannot be written.
pub fn add_part(experiment: &Experiment, settings: &RunSettings, bytes: &[u8]) -> Result<(), Error> {
    let no_folder = || Error::new(OUT, "parts of a sweep need a folder", "a folder, the same one for all parts");
    let (out, _) = settings.folder.as_ref().ok_or_else(no_folder)?;
    let DonePart { sweep: of, part, .. } = DonePart::of_bytes(bytes, "these bytes")?;
    let sweep = SweepRecord::of(experiment, &settings.base, settings.quick);
    if of != sweep.identity {
        return Err(Error::format(OUT, format!("{part} is of another sweep"), "parts of one experiment").coded(ErrorCode::OtherRun));
    }
    part.check(experiment.points.len())?;
    let job = PartJob { experiment, part: &part, settings, out, sweep, name: part.name() };
    if job.is_done()? {
        return Ok(());
    }
    std::fs::create_dir_all(folder::parts_path(out)).map_err(|e| atomic::unwritable(out, &e))?;
    job.sweep.keep(out)?.refuse_other(&job.sweep, out)?;
    write_part(out, &job.name, bytes)
}

/// The file of a finished part in a folder; [`add_part`] takes its bytes.
pub fn file_of_part(out: &Path, part: &SweepPart) -> PathBuf {
    folder::part_file(out, &part.name())
}
