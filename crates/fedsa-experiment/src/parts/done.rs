//! The results of finished parts: one file each, and the results of all together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::regular;
use serde::{Deserialize, Serialize};

use super::list::{NamedPart, POINTS, PointList, SweepPart};
use super::record::{ProgramVersion, SweepRecord, refuse_version};
use crate::execute::{Earlier, Saved, unframed};
use crate::folder::{self, OUT, PartNames};
use crate::plan::Plan;

/// The results of a part.
#[derive(Serialize, Deserialize)]
pub(super) struct DonePart {
    pub program: ProgramVersion,
    /// The identity of its sweep ([`SweepRecord`]).
    pub sweep: String,
    pub part: SweepPart,
    /// `theta*` of its problems by fingerprint.
    pub roots: BTreeMap<String, Vec<f64>>,
    /// How its runs ended.
    pub states: Vec<Saved>,
}

impl DonePart {
    /// The part of this name in a folder.
    ///
    /// # Errors
    /// When its file cannot be read, is damaged, of another version, or does not match its name.
    pub fn read(out: &Path, name: &str) -> Result<Self> {
        let path = folder::part_file(out, name);
        let bytes = regular::read(&path, u64::MAX - 1)
            .map_err(|e| Error::data(path.display().to_string(), format!("cannot be read: {e}"), DAMAGED).coded(ErrorCode::Unreadable))?;
        Self::of_bytes(&bytes, &path.display().to_string()).and_then(|done| {
            let fits = done.part.name() == name;
            if fits {
                Ok(done)
            } else {
                Err(damaged(&path.display().to_string(), &format!("it holds {}, not what its name says", done.part)))
            }
        })
    }

    /// The part in the bytes of a file that messages call `name`.
    ///
    /// # Errors
    /// When they are damaged, or of another version.
    pub fn of_bytes(bytes: &[u8], name: &str) -> Result<Self> {
        let done: Self = unframed(bytes).map_err(|what| damaged(name, &what))?;
        refuse_version(&done.program, &format!("{name} is a part"))?;
        Ok(done)
    }

    /// Refuses a part of another sweep.
    ///
    /// # Errors
    /// When it belongs to one.
    pub fn refuse_foreign(&self, sweep: &SweepRecord, out: &Path) -> Result<()> {
        if self.sweep == sweep.identity {
            return self.part.check(sweep.points);
        }
        let what = format!("{} is a part of another sweep", folder::part_file(out, &self.part.name()).display());
        Err(Error::format(OUT, what, "parts of one file and its options; move this one away").coded(ErrorCode::OtherRun))
    }
}

const DAMAGED: &str = "an intact part; delete this file to run its points again";

fn damaged(path: &str, what: &str) -> Error {
    Error::format(path, format!("this part is damaged: {what}"), DAMAGED)
}

/// The parts of these names except `own`, as far as names describe them.
///
/// # Errors
/// When a name is not a part's.
pub(super) fn others(out: &Path, names: &PartNames, own: &str) -> Result<Vec<(String, NamedPart)>> {
    let strange = |name: &str| {
        let what = format!("{} was not written by fedsa, and is where parts of sweeps are", folder::parts_path(out).join(name).display());
        Error::new(OUT, what, "that file moved away; or another folder").coded(ErrorCode::OutputUnusable)
    };
    if let Some(name) = &names.strange {
        return Err(strange(name));
    }
    let all: BTreeSet<&String> = names.done.iter().chain(&names.begun).filter(|name| *name != own).collect();
    all.into_iter().map(|name| Ok((name.clone(), NamedPart::read(name).ok_or_else(|| strange(name))?))).collect()
}

/// The part with this name.
///
/// # Errors
/// When its file is damaged.
pub(super) fn exact(out: &Path, name: &str, part: NamedPart, is_done: bool) -> Result<SweepPart> {
    match part {
        NamedPart::Known(part) => Ok(part),
        NamedPart::Within(_) if is_done => Ok(DonePart::read(out, name)?.part),
        // A part that another process takes at this moment does not say it yet.
        NamedPart::Within(bounds) => {
            Ok(folder::purpose_of(&folder::part_folder(out, name)).and_then(|said| said.parse().ok()).unwrap_or(bounds))
        }
    }
}

/// The parts in a folder, and whether they are finished; none without parts.
///
/// # Errors
/// When the folder cannot be read, or something else is among the parts.
pub fn parts_in(out: &Path) -> Result<Vec<(SweepPart, bool)>> {
    let names = names_of(out)?;
    let all = others(out, &names, "")?.into_iter();
    all.map(|(name, part)| {
        let is_done = names.done.contains(&name);
        Ok((exact(out, &name, part, is_done)?, is_done))
    })
    .collect()
}

fn names_of(out: &Path) -> Result<PartNames> {
    folder::names_of_parts(out).map_err(|e| Error::machine(format!("{}: {e}", out.display()), "a folder that can be read"))
}

/// All parts of a sweep.
pub struct Gathered {
    /// `theta*` of all problems by fingerprint. If parts of several machines differ in the last bits, the part with the first points
    /// counts.
    pub(crate) roots: HashMap<String, Vec<f64>>,
    states: Vec<(SweepPart, Vec<Saved>)>,
}

impl Gathered {
    /// All parts in a folder.
    ///
    /// # Errors
    /// When a part is damaged, foreign, of another version, or overlaps with another one; when points are missing.
    pub(super) fn of(out: &Path, sweep: &SweepRecord) -> Result<Self> {
        refuse_version(&sweep.program, &format!("{} holds parts of a sweep", out.display()))?;
        let names = names_of(out)?;
        others(out, &names, "")?;
        let mut parts = Vec::new();
        for name in &names.done {
            let done = DonePart::read(out, name)?;
            done.refuse_foreign(sweep, out)?;
            parts.push(done);
        }
        parts.sort_by_key(|done| done.part.points.iter().next());
        refuse_overlap(&parts)?;
        let mut is_there = vec![false; sweep.points];
        parts.iter().flat_map(|done| done.part.points.iter()).for_each(|point| is_there[point] = true);
        let missing = PointList::of((0..sweep.points).filter(|point| !is_there[*point]));
        if missing.count() > 0 {
            return Err(incomplete(out, &missing, None, &names));
        }
        let mut roots = HashMap::new();
        let mut states = Vec::new();
        for DonePart { part, roots: own, states: ended, .. } in parts {
            for (problem, root) in own {
                roots.entry(problem).or_insert(root);
            }
            states.push((part, ended));
        }
        Ok(Self { roots, states })
    }

    /// The states of all runs of the plan.
    ///
    /// # Errors
    /// When runs are missing, or belong to other settings or data.
    pub(crate) fn of_plan(self, out: &Path, plan: &Plan) -> Result<Earlier> {
        let mut cells: HashMap<&str, Vec<usize>> = HashMap::new();
        plan.cells.iter().enumerate().for_each(|(cell, planned)| cells.entry(&planned.identity).or_default().push(cell));
        let mut ended: BTreeMap<(usize, u64), Arc<Saved>> = BTreeMap::new();
        for (part, states) in self.states {
            for saved in states {
                let Some(cells) = cells.get(saved.identity.as_str()) else {
                    let what = format!("{} of {} ran on other data or settings than those here now", part, out.display());
                    let help = "the input files as they were for all parts; or another folder, in which all parts run again";
                    return Err(Error::format(OUT, what, help).coded(ErrorCode::OtherRun));
                };
                let saved = Arc::new(saved);
                for cell in cells.iter().filter(|cell| plan.cells[**cell].run.rounds == saved.rounds) {
                    ended.insert((*cell, saved.seed), Arc::clone(&saved));
                }
            }
        }
        let lacks = |cell: usize| plan.cells[cell].seeds().into_iter().find(|seed| !ended.contains_key(&(cell, *seed)));
        let missing: Vec<Option<u64>> = (0..plan.cells.len()).map(lacks).collect();
        let of_point = |point: &usize| plan.points[*point].cells.iter().find_map(|cell| missing[*cell]);
        let points = PointList::of((0..plan.points.len()).filter(|point| of_point(point).is_some()));
        if let Some(seed) = points.iter().next().and_then(|point| of_point(&point)) {
            let names = folder::names_of_parts(out).unwrap_or_default();
            return Err(incomplete(out, &points, Some(seed), &names));
        }
        Ok(Earlier::of_ended(ended))
    }
}

/// Refuses parts with a common run.
fn refuse_overlap(parts: &[DonePart]) -> Result<()> {
    let mut of_point: HashMap<usize, Vec<&SweepPart>> = HashMap::new();
    for done in parts {
        for point in done.part.points.iter() {
            let before = of_point.entry(point).or_default();
            if let Some(other) = before.iter().find(|other| other.overlap(&done.part).is_some()) {
                return Err(overlaps(&done.part, other, point));
            }
            before.push(&done.part);
        }
    }
    Ok(())
}

/// The error about two parts with a common point.
pub(super) fn overlaps(part: &SweepPart, other: &SweepPart, point: usize) -> Error {
    let what = format!("point {point} is in two parts: {part}, and {other}");
    Error::new(POINTS, what, "parts without common points, or with other seeds of them")
}

/// The error about unfinished points, or points without a seed.
fn incomplete(out: &Path, missing: &PointList, seed: Option<u64>, names: &PartNames) -> Error {
    const SHOWN: usize = 8;
    let count = missing.count();
    let text = PointList::of(missing.iter().take(SHOWN)).to_string();
    let text = if count > SHOWN { format!("{text} and {} more", count - SHOWN) } else { text };
    let lack = seed.map_or(String::new(), |seed| format!(" with seed {seed}"));
    let begun: Vec<String> = names
        .begun
        .iter()
        .filter_map(|name| match NamedPart::read(name)? {
            NamedPart::Known(part) | NamedPart::Within(part) => Some(part.to_string()),
        })
        .collect();
    let begun = if begun.is_empty() { String::new() } else { format!("; begun and not done: {}", begun.join("; ")) };
    let (points, are) = if count == 1 { ("point", "is") } else { ("points", "are") };
    let what = format!("{points} {text} of {} {are} not done{lack}{begun}", out.display());
    Error::new(OUT, what, format!("these points run too: `points = {missing}`"))
}
