//! The folder of a run in progress: writing its files, and removing temporary ones.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fedsa::error::{Error, ErrorCode};
use fedsa_data::atomic::{self, Existing, at};
use fedsa_data::name_of;

use super::GROWING;
use super::checkpoints::{ENDED_CHECKPOINT, PREDICTIONS, RUN_CHECKPOINT, is_checkpoint};
use super::lock::is_busy;
use super::marker::{FolderPurpose, Marker};
use super::parts::remove_parts;
use super::{LOCK, MARKER, OUT, OWN, SUMMARY, names_in};

/// The folder of a run in progress. Only this process writes to it.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    marker: Mutex<Marker>,
    /// Folders that were created for this run, the outermost first.
    made: Vec<PathBuf>,
    /// The lock, held until it is released or this value is dropped.
    lock: File,
    /// The marker at the release of the lock, if it was released.
    released: Mutex<Option<Released>>,
}

/// The marker on the disk, if there was one.
#[derive(Debug)]
struct Released(Option<Marker>);

impl RunFolder {
    /// The folder at `path`, with its marker, the folders created for it, and its lock.
    pub(super) fn new(path: PathBuf, marker: Marker, made: Vec<PathBuf>, lock: File) -> Self {
        Self { path, marker: Mutex::new(marker), made, lock, released: Mutex::default() }
    }

    /// Removes the files of an earlier run and writes the marker. With `keep`, only half-written
    /// files are removed.
    pub(super) fn prepare(&self, keep: bool, purpose: Option<FolderPurpose>) -> io::Result<()> {
        // Another process that tries to use the folder shows this in its message.
        self.lock.set_len(0)?;
        (&self.lock).write_all(format!("{}\n", std::process::id()).as_bytes())?;
        for name in names_in(&self.own())?.iter() {
            if atomic::is_temporary(name) || (!keep && is_checkpoint(&self.own(), name)) {
                std::fs::remove_file(self.own().join(name))?;
            }
        }
        let mut marker = self.marker.lock().expect("no panics under the lock");
        if !keep {
            // The summary is removed first: without it the folder does not count as a finished run.
            let known: Vec<String> = std::iter::once(SUMMARY.to_string()).chain(marker.outputs.iter().cloned()).collect();
            for name in known.iter().filter(|name| marker.wrote(&self.path, name)) {
                std::fs::remove_file(self.path.join(name))?;
            }
            tidy(&self.path, &marker);
            marker.outputs.clear();
        }
        marker.take(purpose);
        self.write_marker(&marker)
    }

    fn own(&self) -> PathBuf {
        self.path.join(OWN)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Abandons the folder before anything ran. If the folder was created for this run, its files and the created
    /// folders are removed.
    pub fn abandon(&self) {
        if !self.made.iter().any(|folder| *folder == self.own()) {
            return;
        }
        let marker = self.marker.lock().expect("no panics under the lock");
        for name in marker.outputs.iter().filter(|name| marker.wrote(&self.path, name)) {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        for name in names_in(&self.own()).unwrap_or_default() {
            if [MARKER, LOCK].contains(&&*name) || is_checkpoint(&self.own(), &name) {
                let _ = std::fs::remove_file(self.own().join(name));
            }
        }
        remove_empty(&self.made);
    }

    fn write_marker(&self, marker: &Marker) -> io::Result<()> {
        let text = format!("{}\n", serde_json::to_string_pretty(marker).expect("plain data"));
        atomic::write(&self.own().join(MARKER), text.as_bytes(), &self.own(), Existing::Replace)
    }

    /// Writes outputs in this order, each atomically. Their names are written to the marker first, so that the program
    /// knows them even if it is killed in between.
    ///
    /// # Errors
    /// When the disk is full, the folder cannot be written to, or a foreign file has the name of an
    /// output.
    pub fn write(&self, outputs: &[(String, Vec<u8>)]) -> Result<(), Error> {
        let mut marker = self.marker.lock().expect("no panics under the lock");
        for (name, _) in outputs {
            let path = self.path.join(name);
            let there = at(&path).map_err(|e| atomic::unwritable(&path, &e))?;
            if there.is_some() && !marker.wrote(&self.path, name) {
                let e = io::Error::new(io::ErrorKind::AlreadyExists, "a file with this name exists that fedsa did not write");
                return Err(atomic::unwritable(&path, &e));
            }
        }
        marker.outputs.extend(outputs.iter().map(|(name, _)| name.clone()));
        self.write_marker(&marker).map_err(|e| atomic::unwritable(&self.own().join(MARKER), &e))?;
        for (name, bytes) in outputs {
            let path = self.path.join(name);
            atomic::write(&path, bytes, &self.own(), Existing::Replace).map_err(|e| atomic::unwritable(&path, &e))?;
        }
        Ok(())
    }

    /// Removes the program's outputs that `is_stale` selects. The next writing of the marker omits them.
    pub fn remove(&self, is_stale: impl Fn(&str) -> bool) {
        let mut marker = self.marker.lock().expect("no panics under the lock");
        for name in marker.outputs.iter().filter(|name| is_stale(name) && marker.wrote(&self.path, name)) {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        let lost: Vec<String> = marker.lost(&self.path).into_iter().map(String::from).collect();
        marker.outputs.retain(|name| !lost.contains(name));
    }

    /// Creates the file to which lines are appended during the run; an earlier one of the program is replaced. Its first line identifies
    /// this run.
    ///
    /// # Errors
    /// When it cannot be written, or a foreign file has its name.
    pub fn grow(&self) -> Result<File, Error> {
        let marker = self.marker.lock().expect("no panics under the lock");
        let path = self.path.join(GROWING);
        let begin = || {
            if marker.wrote(&self.path, GROWING) {
                std::fs::remove_file(&path)?;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            writeln!(file, "{}", marker.first_line())?;
            Ok(file)
        };
        begin().map_err(|e: io::Error| atomic::unwritable(&path, &e))
    }

    /// Writes one of the program's own files, such as a checkpoint.
    ///
    /// # Errors
    /// When the disk is full or the folder cannot be written to.
    pub fn write_own(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.own().join(name);
        atomic::write(&path, bytes, &self.own(), Existing::Replace).map_err(|e| atomic::unwritable(&path, &e))
    }

    /// Removes the files that only running needs.
    pub fn tidy(&self) {
        let marker = self.marker.lock().expect("no panics under the lock");
        tidy(&self.path, &marker);
    }

    /// Releases the lock, so that another process may write to the folder.
    pub fn release(&self) {
        let mut released = self.released.lock().expect("no panics under the lock");
        if released.is_none() {
            *released = Some(Released(Marker::of(&self.path)));
            let _ = self.lock.unlock();
        }
    }

    /// Takes the lock again, if it was released.
    ///
    /// # Errors
    /// When another process writes to the folder, or has written to it.
    pub fn hold(&self) -> Result<(), Error> {
        let mut released = self.released.lock().expect("no panics under the lock");
        let Some(Released(before)) = &*released else { return Ok(()) };
        match self.lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(is_busy(&self.path)),
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(e)) => return Err(unusable(&self.own().join(LOCK), &e)),
        }
        if Marker::of(&self.path) == *before {
            *released = None;
            return Ok(());
        }
        let _ = self.lock.unlock();
        let what = format!("something else has been written to {} in the meantime", self.path.display());
        Err(Error::new(OUT, what, "another folder").coded(ErrorCode::OutputExists))
    }
}

/// The path of a folder, for messages.
impl std::fmt::Display for RunFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name_of(&self.path))
    }
}

/// The failure of the first write to a folder. A path that cannot be a folder is bad input. A refused write, a full disk or too many open
/// files are failures of the machine, as for single files.
pub fn unusable(path: &Path, e: &io::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, NotADirectory};
    let is_place = [AlreadyExists, InvalidFilename, InvalidInput, NotADirectory];
    if !is_place.contains(&e.kind()) {
        return atomic::unwritable(path, e);
    }
    Error::new(OUT, format!("{} cannot be written: {e}", path.display()), "a folder that you may write to").coded(ErrorCode::OutputUnusable)
}

/// Creates a folder and its parents, and records those that it created.
pub fn make_folders(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
    missing.reverse();
    for folder in missing {
        match std::fs::create_dir(folder) {
            Ok(()) => made.push(folder.to_path_buf()),
            // Another process created it in the meantime.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Removes folders that are empty, the innermost first.
pub fn remove_empty(made: &[PathBuf]) {
    made.iter().rev().for_each(|folder| {
        let _ = std::fs::remove_dir(folder);
    });
}

/// Removes files that a finished run does not need. Failures are ignored.
pub fn tidy(folder: &Path, marker: &Marker) {
    if marker.wrote(folder, GROWING) {
        let _ = std::fs::remove_file(folder.join(GROWING));
    }
    let own = folder.join(OWN);
    for name in names_in(&own).unwrap_or_default() {
        let is_passing = name.starts_with(RUN_CHECKPOINT) || name.starts_with(ENDED_CHECKPOINT) || name == PREDICTIONS;
        if is_passing && is_checkpoint(&own, &name) {
            let _ = std::fs::remove_file(own.join(name));
        }
    }
    remove_parts(folder);
}
