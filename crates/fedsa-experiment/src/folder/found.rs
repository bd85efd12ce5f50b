//! An existing folder: its files, those of the program among them, and whether a run may use it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fedsa::error::{Error, ErrorCode, Result};
use fedsa_data::atomic::{self, at, kind_of};
use fedsa_data::regular;
use serde_json::Value as Json;

use super::checkpoints::is_checkpoint;
use super::lock::{Lock, is_busy, is_locked, take_lock};
use super::marker::{FolderPurpose, FolderWork, Marker};
use super::parts::{PARTS, has_parts, is_part_under_way};
use super::run::{RunFolder, make_folders, remove_empty, tidy, unusable};
use super::{CONFIG_HEAD, Holds, LOCK, MARKER, OUT, OWN, SUMMARY, is_file, is_folder, names_in};

/// An inspected folder. If it contains the lock of a run, this value holds the lock.
#[derive(Debug)]
pub struct Found {
    path: PathBuf,
    /// The contents of the folder.
    pub holds: Holds,
    /// The name of a foreign file, if the folder contains only foreign files.
    pub foreign: Option<String>,
    /// The marker, if there is one.
    marker: Option<Marker>,
    /// A substitute for the marker, for a copy without one.
    adopted: Option<Marker>,
    /// The new purpose of the folder, if it differs from the previous one.
    purpose: Option<FolderPurpose>,
    lock: Option<File>,
}

/// Inspects a folder, which need not exist. Nothing is written.
///
/// # Errors
/// When it is not a folder, cannot be read, or another process is writing to it.
pub fn look(path: &Path) -> Result<Found, Error> {
    let bad = |what: String| {
        Error::new(OUT, format!("{} cannot be used: {what}", path.display()), "the path of a folder that you may write to")
            .coded(ErrorCode::OutputUnusable)
    };
    let found = |holds, foreign, marker: Option<Marker>, lock| {
        let adopted = (holds == Holds::Finished && marker.is_none()).then(|| Marker::of_copy(path));
        Ok(Found { path: path.to_path_buf(), holds, foreign, marker, adopted, purpose: None, lock })
    };
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match at(path).ok().flatten() {
            Some(link) => return Err(bad(format!("{} that leads nowhere", kind_of(&link)))),
            None => return found(Holds::Nothing, None, None, None),
        },
        Err(e) => return Err(unusable(path, &e)),
        Ok(there) if !there.is_dir() => return Err(bad(format!("this is {}, not a folder", kind_of(&there)))),
        Ok(_) => {}
    }
    let names = names_in(path).map_err(|e| unusable(path, &e))?;
    let own = path.join(OWN);
    let lock = match at(&own) {
        Ok(Some(there)) if there.is_dir() => match take_lock(&own, false).map_err(|e| unusable(path, &e))? {
            Some(Lock::Held) => return Err(is_busy(path)),
            Some(Lock::Free(lock)) => Some(lock),
            None => None,
        },
        Ok(_) => None,
        Err(e) => return Err(unusable(path, &e)),
    };
    let (holds, foreign, marker) = contents(path, &names);
    found(holds, foreign, marker, lock)
}

/// The contents of a folder with these names in it, and the name of a foreign file if all files
/// are foreign.
fn contents(path: &Path, names: &[String]) -> (Holds, Option<String>, Option<Marker>) {
    if let Some(marker) = Marker::of(path) {
        let holds = if marker.is_finished(path) { Holds::Finished } else { Holds::Unfinished };
        return (holds, None, Some(marker));
    }
    if is_copied_run(path) {
        return (Holds::Finished, None, None);
    }
    let is_barren = is_barren(&path.join(OWN));
    if is_barren && has_parts(path) {
        return (Holds::Unfinished, None, None);
    }
    match names.iter().find(|name| *name != OWN || !is_barren) {
        Some(name) => (Holds::Foreign, Some(name.clone()), None),
        None => (Holds::Nothing, None, None),
    }
}

/// Whether a folder `.fedsa` without a marker can belong to the program: it has only the lock of a run that was killed before it wrote its
/// marker, or parts of a sweep before their merge.
fn is_barren(own: &Path) -> bool {
    is_folder(own)
        && names_in(own).is_ok_and(|inside| inside.iter().all(|name| [LOCK, PARTS].contains(&&**name) || atomic::is_temporary(name)))
}

/// The contents of a folder, whether or not a process writes to it.
pub fn holds(path: &Path) -> Holds {
    names_in(path).map_or(Holds::Nothing, |names| contents(path, &names).0)
}

/// Whether a process is writing to a folder.
pub fn is_under_way(path: &Path) -> bool {
    is_locked(path) || is_part_under_way(path)
}

/// The kind of work that wrote to a folder, if known.
pub fn work_in(path: &Path) -> Option<FolderWork> {
    Some(Marker::of(path)?.purpose?.work)
}

/// The requests of a folder's work outside the keys of its experiment, in words.
pub fn purpose_of(path: &Path) -> Option<String> {
    Marker::of(path)?.purpose?.further
}

/// The names of the unchanged outputs in a folder, in order.
pub fn outputs(path: &Path) -> Vec<String> {
    let marker = Marker::of(path).unwrap_or_else(|| Marker::of_copy(path));
    marker.outputs.iter().filter(|name| marker.wrote(path, name)).cloned().collect()
}

/// Whether a folder without a marker has the outputs of a finished run.
fn is_copied_run(path: &Path) -> bool {
    let text = |name: &str| is_file(&path.join(name)).then(|| regular::read_text(&path.join(name)).ok()).flatten();
    let summary = text(SUMMARY).and_then(|text| serde_json::from_str::<Json>(&text).ok());
    let config = text("config.toml");
    config.is_some_and(|config| config.starts_with(CONFIG_HEAD)) && summary.is_some_and(|s| s["fedsa"].is_string() && s["format"].is_u64())
}

impl Found {
    /// The marker, or its substitute.
    fn known(&self) -> Option<&Marker> {
        self.marker.as_ref().or(self.adopted.as_ref())
    }

    /// The kind of work that wrote to the folder, if known.
    pub fn work(&self) -> Option<FolderWork> {
        self.purpose().map(|purpose| purpose.work)
    }

    /// The purpose of the folder; unknown for copies without a marker.
    pub fn purpose(&self) -> Option<&FolderPurpose> {
        self.marker.as_ref().and_then(|marker| marker.purpose.as_ref())
    }

    /// Whether it contains unmerged parts of a sweep.
    pub fn has_parts(&self) -> bool {
        has_parts(&self.path)
    }

    /// The contents of the folder in words, for messages.
    pub fn text(&self) -> String {
        self.holds.text(self.work())
    }

    /// Whether an output of the program is missing.
    pub fn has_lost(&self) -> bool {
        self.known().is_some_and(|marker| !marker.lost(&self.path).is_empty())
    }

    /// The same, with this purpose.
    #[must_use]
    pub fn purposed(self, purpose: FolderPurpose) -> Self {
        Self { purpose: Some(purpose), ..self }
    }

    /// The output of this name, if it exists in the folder of a run and belongs to the program.
    pub fn own(&self, name: &str) -> Option<Vec<u8>> {
        let ours = self.known().is_some_and(|marker| marker.wrote(&self.path, name));
        ours.then(|| std::fs::read(self.path.join(name)).ok()).flatten()
    }

    /// Removes files that a finished run of this version needed only while it ran.
    pub fn tidy(&self) {
        if let (Some(marker), Holds::Finished, Some(_)) = (&self.marker, self.holds, &self.lock) {
            tidy(&self.path, marker);
        }
    }

    /// Refuses a folder in which a foreign file has the name of an output.
    ///
    /// # Errors
    /// When there is such a file; the message names it.
    pub fn refuse_foreign(&self, outputs: &[&str]) -> Result<()> {
        self.refuse_own()?;
        let is_foreign = |name: &&&str| {
            let there = at(&self.path.join(name)).ok().flatten();
            there.is_some() && !self.known().is_some_and(|marker| marker.wrote(&self.path, name))
        };
        let Some(name) = outputs.iter().find(is_foreign) else { return Ok(()) };
        let path = self.path.join(name);
        let what = format!("{} was not written by fedsa, and has the name of an output", path.display());
        Err(Error::new(OUT, what, "another folder, or move that file away; it is not overwritten").coded(ErrorCode::OutputUnusable))
    }

    /// Refuses a folder if its `.fedsa` is foreign or damaged: the program can then not tell which files are its
    /// own.
    ///
    /// # Errors
    /// When `.fedsa` is foreign or damaged, with the reason.
    pub fn refuse_own(&self) -> Result<()> {
        let (own, marker) = (self.path.join(OWN), self.path.join(OWN).join(MARKER));
        if self.marker.is_some() || is_barren(&own) || at(&own).is_ok_and(|there| there.is_none()) {
            return Ok(());
        }
        let is_ours = is_folder(&own) && names_in(&own).is_ok_and(|names| names.iter().any(|name| is_checkpoint(&own, name)));
        let what = match at(&marker).ok().flatten().filter(|_| is_folder(&own)) {
            Some(there) if there.is_file() => {
                format!("{} is damaged, or of another version of fedsa", marker.display())
            }
            Some(there) => format!("{} is {}, not the file that fedsa wrote", marker.display(), kind_of(&there)),
            None if is_ours => format!("{} is missing: it names the files that fedsa wrote", marker.display()),
            None => format!("{} was not written by fedsa, and has the name of fedsa's own folder", own.display()),
        };
        Err(Error::new(OUT, what, "another folder, or move this one away; nothing in it is changed").coded(ErrorCode::OutputUnusable))
    }

    /// Takes the folder for a run of this process. With `keep`, the files of an earlier run stay.
    ///
    /// # Errors
    /// When the folder cannot be created or written to, or another process took it first. Nothing is written then.
    pub fn claim(self, keep: bool) -> Result<RunFolder, Error> {
        let Found { path, holds, marker, adopted, purpose, lock, .. } = self;
        let own = path.join(OWN);
        let mut made = Vec::new();
        make_folders(&own, &mut made).map_err(|e| {
            remove_empty(&made);
            unusable(&path, &e)
        })?;
        // Without a lock, another process may have run here in the meantime.
        let may_have_changed = lock.is_none();
        let taken = match lock {
            Some(lock) => Ok(Some(Lock::Free(lock))),
            None => take_lock(&own, true),
        };
        let lock = match taken {
            Ok(Some(Lock::Free(lock))) => lock,
            Ok(_) => return Err(is_busy(&path)),
            Err(e) => {
                remove_empty(&made);
                return Err(unusable(&own.join(LOCK), &e));
            }
        };
        if may_have_changed {
            let (holds_now, _, marker_now) = contents(&path, &names_in(&path).map_err(|e| unusable(&path, &e))?);
            if (holds_now, &marker_now) != (holds, &marker) {
                let what = format!("another fedsa process has written to {} in the meantime", path.display());
                return Err(Error::new(OUT, what, "another folder").coded(ErrorCode::OutputExists));
            }
            if marker.is_none() && !is_barren(&own) {
                return Err(unusable(&own, &io::Error::new(io::ErrorKind::AlreadyExists, "it was not written by fedsa")));
            }
        }
        let known = marker.or(adopted).unwrap_or_else(Marker::new);
        let folder = RunFolder::new(path, known, made, lock);
        folder.prepare(keep, purpose).map_err(|e| {
            let failure = unusable(folder.path(), &e);
            folder.abandon();
            failure
        })?;
        Ok(folder)
    }
}
