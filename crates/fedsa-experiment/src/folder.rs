//! The folder of a run: what of it is ours, who writes to it, and what may be replaced.
//!
//! A run's folder holds the outputs, and a folder `.fedsa` with what the program needs for itself:
//!
//! - `manifest.json`: every output with the digests of the contents that were written under its
//!   name. A file is the program's if its contents have one of these digests; anything else in the
//!   folder is the user's and is neither deleted nor replaced.
//! - `lock`: locked by the process that writes to the folder, and free when that process ends,
//!   however it ends.
//! - checkpoints and the states of finished runs.
//!
//! A folder without a manifest, of an earlier version or copied without `.fedsa`, is a run's if it has the
//! `config.toml` and `summary.json` of one; the outputs are then known by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use fedsa::error::{BadInput, Result};
use fedsa_data::atomic::{self, Existing, at, kind_of};
use fedsa_data::{MachineFailure, name_of, regular};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use crate::error::Failure;

/// The folder for the program's own files.
const OWN: &str = ".fedsa";
const MANIFEST: &str = "manifest.json";
/// The output that is written last.
const SUMMARY: &str = "summary.json";
const LOCK: &str = "lock";
/// The version of the manifest's layout.
const FORMAT: u64 = 1;

/// The names that outputs can have.
const OUTPUTS: &[&str] =
    &["summary.json", "config.toml", "trace.parquet", "theta.npz", "figure.svg", "figure.png", "figure.pdf", "weights.json", "weights.npz"];
/// Where earlier versions kept checkpoints, and how these began.
const LEGACY_CHECKPOINTS: &str = "checkpoint";
const LEGACY_MAGIC: &[u8] = b"fedsack1";
/// How every `config.toml` begins.
pub const CONFIG_HEAD: &str = "# What ran: ";

/// What the program wrote into a folder.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Manifest {
    format: u64,
    /// The version of the program.
    fedsa: String,
    /// Marks what this run writes piece by piece, and so without a digest.
    run: String,
    /// For every output, the lengths and digests of what was written under its name.
    outputs: BTreeMap<String, BTreeSet<String>>,
}

/// What a folder holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Nothing, or there is no folder.
    Nothing,
    /// Files that are not a run's.
    Foreign,
    /// A run that was not finished.
    Unfinished,
    /// A finished run.
    Finished,
}

/// A folder as it was found. Where a run's lock is there, it is held from here on.
#[derive(Debug)]
pub struct Found {
    path: PathBuf,
    /// What it holds.
    pub holds: Holds,
    /// The name of something in it that is not the program's, if that is all it holds.
    pub foreign: Option<String>,
    /// Of a run of this version.
    manifest: Option<Manifest>,
    /// Of a finished run without a manifest, what stands in for it.
    adopted: Option<Manifest>,
    lock: Option<File>,
}

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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What tells contents from others: their length, and their SHA-256 digest.
pub fn digest(bytes: &[u8]) -> String {
    format!("{}:{}", bytes.len(), hex(&Sha256::digest(bytes)))
}

/// The same of a regular file, if `may_be` says that it may have that length; nothing when it cannot be read.
fn digest_of(path: &Path, may_be: impl Fn(u64) -> bool) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok().filter(|there| there.is_file() && may_be(there.len()))?.len();
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    // It may grow meanwhile.
    let mut left = Read::by_ref(&mut file).take(length);
    loop {
        match left.read(&mut buffer).ok()? {
            0 => return Some(format!("{length}:{}", hex(&hasher.finalize()))),
            n => hasher.update(&buffer[..n]),
        }
    }
}

fn is_file(path: &Path) -> bool {
    at(path).is_ok_and(|there| there.is_some_and(|there| there.is_file()))
}

fn is_folder(path: &Path) -> bool {
    at(path).is_ok_and(|there| there.is_some_and(|there| there.is_dir()))
}

impl Manifest {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = hex(&Sha256::digest(format!("{} {}", now.as_nanos(), std::process::id())))[..16].to_string();
        Self { format: FORMAT, fedsa: env!("CARGO_PKG_VERSION").into(), run, outputs: BTreeMap::new() }
    }

    /// The manifest of a folder; nothing where there is none that can be read.
    fn of(path: &Path) -> Option<Self> {
        /// The largest manifest that is read.
        const MOST: u64 = 64 << 20;
        let own = path.join(OWN);
        let file = own.join(MANIFEST);
        if !is_folder(&own) || !is_file(&file) {
            return None;
        }
        let manifest: Self = serde_json::from_slice(&regular::read(&file, MOST).ok()?).ok()?;
        // Nothing outside of the folder, and nothing that is no output, becomes the program's by being named here.
        let is_sound = manifest.format == FORMAT && manifest.outputs.keys().all(|name| OUTPUTS.contains(&name.as_str()));
        is_sound.then_some(manifest)
    }

    /// The manifest of a finished run that has none. Its summary has the digests of the other outputs; those of earlier
    /// versions are known by their names.
    fn adopting(path: &Path) -> Self {
        let summary = regular::read_text(&path.join(SUMMARY)).ok().and_then(|text| serde_json::from_str::<Json>(&text).ok());
        let digests = summary.as_ref().and_then(|summary| summary["files"].as_object());
        let digest_there = |name: &str| digest_of(&path.join(name), |_| true);
        let known = |name: &&str| match digests {
            Some(digests) if **name != *SUMMARY => digests.get(*name).and_then(|digest| digest.as_str().map(str::to_string)),
            _ => digest_there(name),
        };
        let outputs = OUTPUTS.iter().filter(|name| is_file(&path.join(name)));
        let outputs = outputs.filter_map(|name| Some(((*name).to_string(), BTreeSet::from([known(name)?]))));
        Self { outputs: outputs.collect(), ..Self::new() }
    }

    /// Whether a file in the folder is what the program wrote there.
    fn wrote(&self, folder: &Path, name: &str) -> bool {
        let path = folder.join(name);
        if !is_file(&path) {
            return false;
        }
        let is_known = |known: &BTreeSet<String>| {
            let may_be = |length: u64| known.iter().any(|digest| digest.split(':').next() == Some(&length.to_string()));
            digest_of(&path, may_be).is_some_and(|digest| known.contains(&digest))
        };
        self.outputs.get(name).is_some_and(is_known) || (name == GROWING && self.grew(&path))
    }

    /// Whether a file is one that grows while the run is under way.
    fn grew(&self, path: &Path) -> bool {
        let mut head = Vec::new();
        let read = File::open(path).map(|file| file.take(256).read_to_end(&mut head));
        read.is_ok() && String::from_utf8_lossy(&head).lines().next().is_some_and(|line| line == self.mark())
    }

    /// The first line of a file that grows.
    fn mark(&self) -> String {
        format!("{{\"fedsa\":\"{}\",\"run\":\"{}\"}}", self.fedsa, self.run)
    }
}

/// The names in a folder, sorted.
fn names_in(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Whether a folder without a manifest is the folder of a finished run of an earlier version.
fn is_legacy_run(path: &Path) -> bool {
    let text = |name: &str| is_file(&path.join(name)).then(|| regular::read_text(&path.join(name)).ok()).flatten();
    let summary = text(SUMMARY).and_then(|text| serde_json::from_str::<Json>(&text).ok());
    let config = text("config.toml");
    config.is_some_and(|config| config.starts_with(CONFIG_HEAD)) && summary.is_some_and(|s| s["fedsa"].is_string() && s["format"].is_u64())
}

/// Whether another process holds a lock.
enum Lock {
    Free(File),
    Held,
}

/// Takes the lock in a folder's `.fedsa`, which is made if `make` and there is none.
fn take_lock(own: &Path, make: bool) -> io::Result<Option<Lock>> {
    let path = own.join(LOCK);
    let found = at(&path)?;
    if found.is_none() && !make {
        return Ok(None);
    }
    if found.is_some_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the lock is no file"));
    }
    // Who only looks whether the lock is held holds it for a moment.
    for attempt in 0.. {
        let file = OpenOptions::new().read(true).write(true).create(make).truncate(false).open(&path)?;
        match file.try_lock() {
            // A run that was given up meanwhile took its lock with it.
            Ok(()) if !is_same(&file, &path) => {}
            Ok(()) => return Ok(Some(Lock::Free(file))),
            Err(TryLockError::WouldBlock) if attempt >= ATTEMPTS => return Ok(Some(Lock::Held)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            // Some network file systems know no locks; the run is worth more than the guard.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => return Ok(Some(Lock::Free(file))),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    unreachable!("the loop has no other end")
}

/// How often a lock that is held is tried again.
const ATTEMPTS: u32 = 5;

/// Whether an open file is what has a name.
fn is_same(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (Ok(open), Ok(Some(there))) = (file.metadata(), at(path)) else { return false };
        (open.dev(), open.ino()) == (there.dev(), there.ino())
    }
    #[cfg(not(unix))]
    {
        path.exists() && file.metadata().is_ok()
    }
}

/// The refusal of a folder to which another process writes.
fn is_busy(path: &Path) -> BadInput {
    let pid = std::fs::read_to_string(path.join(OWN).join(LOCK)).unwrap_or_default();
    let process = pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (process {pid})"));
    let what = format!("another fedsa{process} is writing to {}", path.display());
    BadInput::new("--out", what, "another folder, or the same one when that run has ended")
}

/// Whether a process is writing to a folder at the moment.
pub fn is_under_way(path: &Path) -> bool {
    let Ok(file) = File::open(path.join(OWN).join(LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// What a folder holds. Nothing is written; the folder need not exist.
///
/// # Errors
/// When it is no folder, cannot be read, or another process is writing to it.
pub fn look(path: &Path) -> Result<Found, Failure> {
    let bad = |what: String| {
        BadInput::new("--out", format!("{} cannot be used: {what}", path.display()), "the path of a folder that you may write to").into()
    };
    let found = |holds, foreign, manifest: Option<Manifest>, lock| {
        let adopted = (holds == Holds::Finished && manifest.is_none()).then(|| Manifest::adopting(path));
        Ok(Found { path: path.to_path_buf(), holds, foreign, manifest, adopted, lock })
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
            Some(Lock::Held) => return Err(is_busy(path).into()),
            Some(Lock::Free(lock)) => Some(lock),
            None => None,
        },
        Ok(_) => None,
        Err(e) => return Err(unusable(path, &e)),
    };
    let (holds, foreign, manifest) = contents(path, &names);
    found(holds, foreign, manifest, lock)
}

/// What a folder with these names in it holds, and the name of something that is not the program's
/// where that is all.
fn contents(path: &Path, names: &[String]) -> (Holds, Option<String>, Option<Manifest>) {
    if let Some(manifest) = Manifest::of(path) {
        let holds = if manifest.wrote(path, SUMMARY) { Holds::Finished } else { Holds::Unfinished };
        return (holds, None, Some(manifest));
    }
    if is_legacy_run(path) {
        return (Holds::Finished, None, None);
    }
    let is_barren = is_barren(&path.join(OWN));
    match names.iter().find(|name| *name != OWN || !is_barren) {
        Some(name) => (Holds::Foreign, Some(name.clone()), None),
        None => (Holds::Nothing, None, None),
    }
}

/// Whether a folder without a manifest can be the program's own: a run that was killed before it wrote its
/// manifest leaves no more than its lock.
fn is_barren(own: &Path) -> bool {
    is_folder(own) && names_in(own).is_ok_and(|inside| inside.iter().all(|name| name == LOCK || atomic::is_temporary(name)))
}

/// What a folder holds, without regard to who writes to it.
pub fn holds(path: &Path) -> Holds {
    names_in(path).map_or(Holds::Nothing, |names| contents(path, &names).0)
}

impl Found {
    /// What is known to be the program's.
    fn known(&self) -> Option<&Manifest> {
        self.manifest.as_ref().or(self.adopted.as_ref())
    }

    /// The output of this name, if it is there and the program's: of a folder of a run.
    pub fn own(&self, name: &str) -> Option<Vec<u8>> {
        let ours = self.known().is_some_and(|manifest| manifest.wrote(&self.path, name));
        ours.then(|| std::fs::read(self.path.join(name)).ok()).flatten()
    }

    /// Clears away what a run that was finished left under way, if it is of this version.
    pub fn tidy(&self) {
        if let (Some(manifest), Holds::Finished, Some(_)) = (&self.manifest, self.holds, &self.lock) {
            tidy(&self.path, manifest);
        }
    }

    /// Refuses to go on where an output would take the name of something that is not the program's.
    ///
    /// # Errors
    /// When there is such a thing; names it.
    pub fn refuse_foreign(&self, outputs: &[&str]) -> Result<()> {
        self.refuse_own()?;
        let is_foreign = |name: &&&str| {
            let there = at(&self.path.join(name)).ok().flatten();
            there.is_some() && !self.known().is_some_and(|manifest| manifest.wrote(&self.path, name))
        };
        let Some(name) = outputs.iter().find(is_foreign) else { return Ok(()) };
        let path = self.path.join(name);
        let what = match self.known().is_some_and(|m| m.outputs.contains_key(*name)) {
            true => format!("{} was changed after fedsa wrote it", path.display()),
            false => format!("{} is not fedsa's, and has the name of an output", path.display()),
        };
        Err(BadInput::new("--out", what, "another folder, or move that file away; it is not overwritten"))
    }

    /// Refuses a folder in which something else has the name of the program's own folder, or the program's own folder
    /// is damaged: then nothing can be proved to be the program's.
    ///
    /// # Errors
    /// When that is so; says what is wrong.
    pub fn refuse_own(&self) -> Result<()> {
        let (own, manifest) = (self.path.join(OWN), self.path.join(OWN).join(MANIFEST));
        if self.manifest.is_some() || is_barren(&own) || at(&own).is_ok_and(|there| there.is_none()) {
            return Ok(());
        }
        let is_ours = is_folder(&own) && names_in(&own).is_ok_and(|names| names.iter().any(|name| is_checkpoint(&own, name)));
        let what = match at(&manifest).ok().flatten().filter(|_| is_folder(&own)) {
            Some(there) if there.is_file() => {
                format!("{} is damaged, or of another version of fedsa", manifest.display())
            }
            Some(there) => format!("{} is {}, not the file that fedsa wrote", manifest.display(), kind_of(&there)),
            None if is_ours => format!("{} is missing: it says which files are fedsa's", manifest.display()),
            None => format!("{} is not fedsa's, and has the name of the folder that a run keeps for itself", own.display()),
        };
        Err(BadInput::new("--out", what, "another folder, or move this one away; nothing in it is changed"))
    }

    /// Makes the folder this process's, to run in. `keep` keeps what an earlier run left.
    ///
    /// # Errors
    /// When the folder cannot be made or written to, or another process was faster. Nothing was written then.
    pub fn claim(self, keep: bool) -> Result<RunFolder, Failure> {
        let Found { path, holds, manifest, adopted, lock, .. } = self;
        let own = path.join(OWN);
        let mut made = Vec::new();
        make_folders(&own, &mut made).map_err(|e| {
            remove_empty(&made);
            unusable(&path, &e)
        })?;
        // Without a lock another process may have run here since.
        let may_have_changed = lock.is_none();
        let taken = match lock {
            Some(lock) => Ok(Some(Lock::Free(lock))),
            None => take_lock(&own, true),
        };
        let lock = match taken {
            Ok(Some(Lock::Free(lock))) => lock,
            Ok(_) => return Err(is_busy(&path).into()),
            Err(e) => {
                remove_empty(&made);
                return Err(unusable(&own.join(LOCK), &e));
            }
        };
        if may_have_changed {
            let (holds_now, _, manifest_now) = contents(&path, &names_in(&path).map_err(|e| unusable(&path, &e))?);
            if (holds_now, &manifest_now) != (holds, &manifest) {
                let what = format!("another fedsa has written to {} meanwhile", path.display());
                return Err(BadInput::new("--out", what, "another folder, --resume, or --overwrite to replace what is there now").into());
            }
            if manifest.is_none() && !is_barren(&own) {
                return Err(unusable(&own, &io::Error::new(io::ErrorKind::AlreadyExists, "it is not fedsa's")));
            }
        }
        let has_manifest = manifest.is_some();
        let known = manifest.or(adopted).unwrap_or_else(Manifest::new);
        let folder = RunFolder { path, manifest: Mutex::new(known), made, lock };
        folder.prepare(keep, holds, has_manifest).map_err(|e| {
            let failure = unusable(&folder.path, &e);
            folder.abandon();
            failure
        })?;
        Ok(folder)
    }
}

/// The failure to write to a folder before anything was: a place that cannot be used is bad input; a full disk, or too
/// many open files, are not.
fn unusable(path: &Path, e: &io::Error) -> Failure {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem};
    let is_place = [AlreadyExists, InvalidFilename, InvalidInput, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem];
    if !is_place.contains(&e.kind()) {
        return atomic::unwritable(path, e).into();
    }
    BadInput::new("--out", format!("{} cannot be written: {e}", path.display()), "a folder that you may write to").into()
}

/// Makes a folder and those around it, and notes which it made.
fn make_folders(path: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
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
fn remove_empty(made: &[PathBuf]) {
    made.iter().rev().for_each(|folder| {
        let _ = std::fs::remove_dir(folder);
    });
}

impl RunFolder {
    /// Clears away what an earlier run left, and writes the manifest. With `keep` only half-written
    /// files go.
    fn prepare(&self, keep: bool, holds: Holds, has_manifest: bool) -> io::Result<()> {
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
                let e = io::Error::new(io::ErrorKind::AlreadyExists, "something that is not fedsa's has this name");
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

/// The beginning of the names of checkpoints of single runs.
pub const RUN_CHECKPOINT: &str = "run-";
/// The beginning of the names of full files with the states of runs that have ended.
pub const ENDED_CHECKPOINT: &str = "ended-";
/// The end of the names of checkpoints.
pub const CHECKPOINT: &str = ".ckpt";
/// How the bytes of every checkpoint begin, whatever its version.
pub const CHECKPOINT_MAGIC: &[u8] = b"fedsack";
/// The file that grows while runs are under way.
pub const GROWING: &str = "trace.jsonl";

/// Removes what a finished run does not need; what cannot be removed does no harm.
fn tidy(folder: &Path, manifest: &Manifest) {
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

/// Whether a file is a checkpoint that the program wrote, by its name and its first bytes.
fn is_checkpoint(folder: &Path, name: &str) -> bool {
    name.ends_with(CHECKPOINT) && begins_with(&folder.join(name), CHECKPOINT_MAGIC)
}

fn begins_with(path: &Path, magic: &[u8]) -> bool {
    let mut head = Vec::new();
    let mut read = || File::open(path)?.take(magic.len() as u64).read_to_end(&mut head);
    is_file(path) && read().is_ok() && head == magic
}

/// The path of one of the program's own files in a run's folder.
pub fn own_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(OWN).join(name)
}

/// Removes the checkpoints of an earlier version, which had no manifest.
fn remove_old_checkpoints(path: &Path) -> io::Result<()> {
    let checkpoints = path.join(LEGACY_CHECKPOINTS);
    if at(&checkpoints)?.is_some_and(|found| found.is_dir()) {
        for name in names_in(&checkpoints)? {
            let path = checkpoints.join(name);
            if begins_with(&path, LEGACY_MAGIC) {
                std::fs::remove_file(&path)?;
            }
        }
        let _ = std::fs::remove_dir(&checkpoints);
    }
    Ok(())
}

/// How messages call a folder's contents.
impl std::fmt::Display for Holds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Holds::Nothing => "no run",
            Holds::Foreign => "files that are not fedsa's",
            Holds::Unfinished => "an interrupted run",
            Holds::Finished => "a finished run",
        })
    }
}

/// The path of a folder, for messages.
impl std::fmt::Display for RunFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name_of(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_another_process_has_used_meanwhile_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d");
        let (first, second) = (look(&path).unwrap(), look(&path).unwrap());
        let run = second.claim(false).unwrap();
        run.write(&[(SUMMARY.into(), b"{}".to_vec())]).unwrap();
        run.release();
        let e = first.claim(false).unwrap_err();
        assert!(e.what.contains("another fedsa has written to"), "{e}");
        assert_eq!(holds(&path), Holds::Finished, "what the other did stays");
        // Who looks now sees it, and has the lock.
        let found = look(&path).unwrap();
        assert_eq!(found.holds, Holds::Finished);
        assert!(look(&path).is_err(), "held by the one who looked");
        found.claim(false).unwrap().abandon();
    }

    #[test]
    fn a_file_of_another_length_is_not_read_to_be_told_from_ours() {
        let dir = tempfile::tempdir().unwrap();
        let run = look(&dir.path().join("d")).unwrap().claim(false).unwrap();
        run.write(&[(SUMMARY.into(), b"{}".to_vec())]).unwrap();
        let path = run.path().join(SUMMARY);
        // Reading a sparse file of this length would take a day.
        File::create(&path).unwrap().set_len(1 << 43).unwrap();
        assert_eq!(holds(run.path()), Holds::Unfinished);
    }
}
