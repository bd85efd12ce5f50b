//! The folder of an unfinished run: what is written to it, and what is removed at the end.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fedsa::error::BadInput;
use fedsa_data::atomic::{self, Existing, at};
use fedsa_data::{MachineFailure, name_of};

use super::checkpoints::{ENDED_CHECKPOINT, RUN_CHECKPOINT, is_checkpoint, remove_old_checkpoints};
use super::manifest::{Manifest, digest};
use super::{Holds, LOCK, MANIFEST, OWN, SUMMARY, names_in};
use crate::error::Failure;

/// The file that grows while runs are under way.
pub const GROWING: &str = "trace.jsonl";

/// The folder of a run under way: this process alone writes to it.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    manifest: Mutex<Manifest>,
    /// Folders that were made for this run, the outermost first.
    made: Vec<PathBuf>,
    /// Held until the process ends.
    lock: File,
}

impl RunFolder {
    /// The folder at `path`, with what is known to be the program's, the folders that were made for it, and its lock.
    pub(super) fn new(path: PathBuf, manifest: Manifest, made: Vec<PathBuf>, lock: File) -> Self {
        Self { path, manifest: Mutex::new(manifest), made, lock }
    }

    /// Clears away what an earlier run left, and writes the manifest. With `keep` only half-written
    /// files go.
    pub(super) fn prepare(&self, keep: bool, holds: Holds, has_manifest: bool) -> io::Result<()> {
        // For the message of the next process that comes.
        self.lock.set_len(0)?;
        (&self.lock).write_all(format!("{}\n", std::process::id()).as_bytes())?;
        for name in names_in(&self.own())?.iter() {
            if atomic::is_temporary(name) || (!keep && is_checkpoint(&self.own(), name)) {
                std::fs::remove_file(self.own().join(name))?;
            }
        }
        let mut manifest = self.manifest.lock().expect("no panics under the lock");
        if !keep {
            // The summary first: without it the folder is not a finished run's.
            let known: Vec<String> = std::iter::once(SUMMARY.to_string()).chain(manifest.outputs.keys().cloned()).collect();
            for name in known.iter().filter(|name| manifest.wrote(&self.path, name)) {
                std::fs::remove_file(self.path.join(name))?;
            }
            tidy(&self.path, &manifest);
            if holds == Holds::Finished && !has_manifest {
                remove_old_checkpoints(&self.path)?;
            }
            *manifest = Manifest::new();
        }
        self.write_manifest(&manifest)
    }

    fn own(&self) -> PathBuf {
        self.path.join(OWN)
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives up the folder before anything ran: if it was made for this run, what was written is removed, and
    /// folders that were made.
    pub fn abandon(&self) {
        if !self.made.iter().any(|folder| *folder == self.own()) {
            return;
        }
        let manifest = self.manifest.lock().expect("no panics under the lock");
        for name in manifest.outputs.keys().filter(|name| manifest.wrote(&self.path, name)) {
            let _ = std::fs::remove_file(self.path.join(name));
        }
        for name in names_in(&self.own()).unwrap_or_default() {
            if [MANIFEST, LOCK].contains(&&*name) || is_checkpoint(&self.own(), &name) {
                let _ = std::fs::remove_file(self.own().join(name));
            }
        }
        remove_empty(&self.made);
    }

    fn write_manifest(&self, manifest: &Manifest) -> io::Result<()> {
        let text = format!("{}\n", serde_json::to_string_pretty(manifest).expect("plain data"));
        atomic::write(&self.own().join(MANIFEST), text.as_bytes(), &self.own(), Existing::Replace)
    }

    /// Writes outputs, in this order, each atomically. The manifest knows their contents before they
    /// are there, so that they are the program's whenever it is killed.
    ///
    /// # Errors
    /// When the disk is full or the place cannot be written to, or something that is not the
    /// program's has the name of an output.
    pub fn write(&self, outputs: &[(String, Vec<u8>)]) -> Result<(), MachineFailure> {
        let mut manifest = self.manifest.lock().expect("no panics under the lock");
        for (name, _) in outputs {
            let path = self.path.join(name);
            let there = at(&path).map_err(|e| atomic::unwritable(&path, &e))?;
            if there.is_some() && !manifest.wrote(&self.path, name) {
                let e = io::Error::new(io::ErrorKind::AlreadyExists, "a file with this name exists that fedsa did not write");
                return Err(atomic::unwritable(&path, &e));
            }
        }
        for (name, bytes) in outputs {
            manifest.outputs.entry(name.clone()).or_default().insert(digest(bytes));
        }
        self.write_manifest(&manifest).map_err(|e| atomic::unwritable(&self.own().join(MANIFEST), &e))?;
        for (name, bytes) in outputs {
            let path = self.path.join(name);
            atomic::write(&path, bytes, &self.own(), Existing::Replace).map_err(|e| atomic::unwritable(&path, &e))?;
        }
        Ok(())
    }

    /// Removes an output, if it is there and the program's.
    pub fn remove(&self, name: &str) {
        let manifest = self.manifest.lock().expect("no panics under the lock");
        if manifest.wrote(&self.path, name) {
            let _ = std::fs::remove_file(self.path.join(name));
        }
    }

    /// Begins a file that grows while the run is under way; what the program wrote of it before is
    /// replaced. Its first line marks it as this run's.
    ///
    /// # Errors
    /// When it cannot be written, or something that is not the program's has the name.
    pub fn grow(&self) -> Result<File, MachineFailure> {
        let manifest = self.manifest.lock().expect("no panics under the lock");
        let path = self.path.join(GROWING);
        let begin = || {
            if manifest.wrote(&self.path, GROWING) {
                std::fs::remove_file(&path)?;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
            writeln!(file, "{}", manifest.mark())?;
            Ok(file)
        };
        begin().map_err(|e: io::Error| atomic::unwritable(&path, &e))
    }

    /// Writes one of the program's own files, such as a checkpoint.
    ///
    /// # Errors
    /// When the disk is full or the place cannot be written to.
    pub fn write_own(&self, name: &str, bytes: &[u8]) -> Result<(), MachineFailure> {
        let path = self.own().join(name);
        atomic::write(&path, bytes, &self.own(), Existing::Replace).map_err(|e| atomic::unwritable(&path, &e))
    }

    /// Clears away what was needed while the runs were under way.
    pub fn tidy(&self) {
        let manifest = self.manifest.lock().expect("no panics under the lock");
        tidy(&self.path, &manifest);
    }

    /// Ends the run: another process may write to the folder.
    pub fn release(self) {
        let _ = self.lock.unlock();
    }
}

/// The path of a folder, for messages.
impl std::fmt::Display for RunFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name_of(&self.path))
    }
}

/// The failure to write to a folder before anything was: a place that cannot be used is bad input; a full disk, or too
/// many open files, are not.
pub fn unusable(path: &Path, e: &io::Error) -> Failure {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    let is_place = [AlreadyExists, InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem];
    if !is_place.contains(&e.kind()) {
        return atomic::unwritable(path, e).into();
    }
    BadInput::new("--out", format!("{} cannot be written: {e}", path.display()), "a folder that you may write to").into()
}

/// Makes a folder and those around it, and notes which it made.
pub fn make_folders(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    let mut missing: Vec<&Path> = path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
    missing.reverse();
    for folder in missing {
        match std::fs::create_dir(folder) {
            Ok(()) => made.push(folder.to_path_buf()),
            // Another process made it in between.
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

/// Removes what a finished run does not need; what cannot be removed does no harm.
pub fn tidy(folder: &Path, manifest: &Manifest) {
    if manifest.wrote(folder, GROWING) {
        let _ = std::fs::remove_file(folder.join(GROWING));
    }
    let own = folder.join(OWN);
    for name in names_in(&own).unwrap_or_default() {
        let is_passing = name.starts_with(RUN_CHECKPOINT) || name.starts_with(ENDED_CHECKPOINT);
        if is_passing && is_checkpoint(&own, &name) {
            let _ = std::fs::remove_file(own.join(name));
        }
    }
}
