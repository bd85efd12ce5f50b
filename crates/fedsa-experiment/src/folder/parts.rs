//! Parts of a sweep that run separately, in the program's own folder: a file for each finished part, and for each other part a folder like
//! that of a run, with its lock and its checkpoints.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use fedsa_data::atomic;

use super::lock::is_locked;
use super::{OWN, is_file, is_folder, names_in};

/// The folder of parts.
pub const PARTS: &str = "parts";
/// The extension of the file of a finished part.
const DONE: &str = ".part";
/// The file that identifies the experiment of the parts.
const SWEEP: &str = "sweep.json";

/// The names of the parts in a folder.
#[derive(Debug, Clone, Default)]
pub struct PartNames {
    /// The finished parts.
    pub done: BTreeSet<String>,
    /// The unfinished parts.
    pub begun: BTreeSet<String>,
    /// A name that is no part's.
    pub strange: Option<String>,
}

/// The folder of the parts of a run's folder.
pub fn parts_path(out: &Path) -> PathBuf {
    out.join(OWN).join(PARTS)
}

/// The file that identifies the experiment of the parts.
pub fn sweep_path(out: &Path) -> PathBuf {
    parts_path(out).join(SWEEP)
}

/// The folder of an unfinished part.
pub fn part_folder(out: &Path, name: &str) -> PathBuf {
    parts_path(out).join(name)
}

/// The file of a finished part.
pub fn part_file(out: &Path, name: &str) -> PathBuf {
    parts_path(out).join(format!("{name}{DONE}"))
}

/// Whether a folder has parts.
pub fn has_parts(out: &Path) -> bool {
    is_file(&sweep_path(out)) || names_of_parts(out).is_ok_and(|names| !names.done.is_empty() || !names.begun.is_empty())
}

/// The names of the parts in a folder; none without parts.
///
/// # Errors
/// When it cannot be read.
pub fn names_of_parts(out: &Path) -> io::Result<PartNames> {
    let (path, mut found) = (parts_path(out), PartNames::default());
    let names = match names_in(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        names => names?,
    };
    for name in names.into_iter().filter(|name| name != SWEEP && !atomic::is_temporary(name)) {
        match name.strip_suffix(DONE) {
            Some(part) => drop(found.done.insert(part.to_string())),
            None if is_folder(&path.join(&name)) => drop(found.begun.insert(name)),
            None => found.strange = Some(name),
        }
    }
    // A part that was killed after it wrote its file leaves its folder.
    found.begun.retain(|name| !found.done.contains(name));
    Ok(found)
}

/// Whether a process runs a part.
pub fn is_part_under_way(out: &Path) -> bool {
    let names = names_of_parts(out).unwrap_or_default();
    names.begun.iter().any(|name| is_locked(&part_folder(out, name)))
}

/// Removes the folder of a finished part. A failure is ignored, because the part's file counts.
pub fn remove_part_folder(out: &Path, name: &str) {
    let _ = std::fs::remove_dir_all(part_folder(out, name));
}

/// Removes all parts. Failures are ignored.
pub(super) fn remove_parts(out: &Path) {
    if is_folder(&parts_path(out)) {
        let _ = std::fs::remove_dir_all(parts_path(out));
    }
}
