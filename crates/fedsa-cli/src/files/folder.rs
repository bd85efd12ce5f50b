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
//! Versions before 0.2 wrote no manifest: there a folder with their `config.toml` and `summary.json`
//! is a run's, and the outputs are known by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fedsa::error::{BadInput, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::atomic::{self, Existing, at, kind_of};
use super::name_of;
use crate::error::{Failure, MachineFailure};

/// The folder for the program's own files.
const OWN: &str = ".fedsa";
const MANIFEST: &str = "manifest.json";
const LOCK: &str = "lock";
/// The version of the manifest's layout.
const FORMAT: u64 = 1;

/// What earlier versions wrote, by name.
const LEGACY_OUTPUTS: &[&str] =
    &["summary.json", "config.toml", "trace.parquet", "theta.npz", "figure.svg", "figure.png", "weights.json", "weights.npz"];
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
    /// For every output, the digests of what was written under its name.
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

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest of a regular file; nothing when it is none or cannot be read.
fn digest_of(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

impl Manifest {
    fn new() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let run = digest(format!("{} {}", now.as_nanos(), std::process::id()).as_bytes())[..16].to_string();
        Self { format: FORMAT, fedsa: env!("CARGO_PKG_VERSION").into(), run, outputs: BTreeMap::new() }
    }

    /// The manifest of a folder; nothing where there is none that can be read.
    fn of(path: &Path) -> Option<Self> {
        let own = path.join(OWN);
        let file = own.join(MANIFEST);
        let is_ours = at(&own).ok()??.is_dir() && at(&file).ok()??.is_file();
        let manifest: Self = serde_json::from_slice(&std::fs::read(file).ok().filter(|_| is_ours)?).ok()?;
        (manifest.format == FORMAT).then_some(manifest)
    }

    /// Whether a file in the folder is what the program wrote there.
    fn wrote(&self, folder: &Path, name: &str) -> bool {
        let path = folder.join(name);
        if !at(&path).is_ok_and(|found| found.is_some_and(|found| found.is_file())) {
            return false;
        }
        let digests = self.outputs.get(name);
        digests.is_some_and(|known| digest_of(&path).is_some_and(|digest| known.contains(&digest))) || (name == GROWING && self.grew(&path))
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
    let text = |name: &str| {
        let is_file = at(&path.join(name)).is_ok_and(|found| found.is_some_and(|found| found.is_file()));
        is_file.then(|| std::fs::read_to_string(path.join(name)).ok()).flatten()
    };
    let summary = text("summary.json").and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
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
    let file = OpenOptions::new().read(true).write(true).create(make).truncate(false).open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(Some(Lock::Held)),
        // Some network file systems know no locks; the run is worth more than the guard.
        Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => {}
        Err(TryLockError::Error(e)) => return Err(e),
    }
    Ok(Some(Lock::Free(file)))
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
pub fn look(path: &Path) -> Result<Found> {
    let unusable = |what: String| {
        BadInput::new("--out", format!("{} cannot be used: {what}", path.display()), "the path of a folder that you may write to")
    };
    let found = |holds, foreign, manifest, lock| Ok(Found { path: path.to_path_buf(), holds, foreign, manifest, lock });
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => match at(path).ok().flatten() {
            Some(link) => return Err(unusable(format!("{} that leads nowhere", kind_of(&link)))),
            None => return found(Holds::Nothing, None, None, None),
        },
        Err(e) => return Err(unusable(e.to_string())),
        Ok(there) if !there.is_dir() => return Err(unusable(format!("this is {}, not a folder", kind_of(&there)))),
        Ok(_) => {}
    }
    let names = names_in(path).map_err(|e| unusable(e.to_string()))?;
    let own = path.join(OWN);
    let lock = match at(&own) {
        Ok(Some(there)) if there.is_dir() => match take_lock(&own, false).map_err(|e| unusable(e.to_string()))? {
            Some(Lock::Held) => return Err(is_busy(path)),
            Some(Lock::Free(lock)) => Some(lock),
            None => None,
        },
        Ok(_) => None,
        Err(e) => return Err(unusable(e.to_string())),
    };
    let (holds, foreign, manifest) = contents(path, &names);
    found(holds, foreign, manifest, lock)
}

/// What a folder with these names in it holds, and the name of something that is not the program's
/// where that is all.
fn contents(path: &Path, names: &[String]) -> (Holds, Option<String>, Option<Manifest>) {
    if let Some(manifest) = Manifest::of(path) {
        let holds = if manifest.wrote(path, "summary.json") { Holds::Finished } else { Holds::Unfinished };
        return (holds, None, Some(manifest));
    }
    if is_legacy_run(path) {
        return (Holds::Finished, None, None);
    }
    // A run that was killed before it wrote its manifest leaves no more than its lock.
    let own = path.join(OWN);
    let is_barren = at(&own).is_ok_and(|there| there.is_some_and(|there| there.is_dir()))
        && names_in(&own).is_ok_and(|inside| inside.iter().all(|name| name == LOCK || atomic::is_temporary(name)));
    match names.iter().find(|name| *name != OWN || !is_barren) {
        Some(name) => (Holds::Foreign, Some(name.clone()), None),
        None => (Holds::Nothing, None, None),
    }
}

/// What a folder holds, without regard to who writes to it.
pub fn holds(path: &Path) -> Holds {
    names_in(path).map_or(Holds::Nothing, |names| contents(path, &names).0)
}

impl Found {
    /// The output of this name, if it is there and the program's: of a folder of a run.
    pub fn own(&self, name: &str) -> Option<Vec<u8>> {
        let ours = match &self.manifest {
            Some(manifest) => manifest.wrote(&self.path, name),
            None => self.holds == Holds::Finished && LEGACY_OUTPUTS.contains(&name),
        };
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
        let is_foreign = |name: &&&str| {
            let there = at(&self.path.join(name)).ok().flatten();
            let ours = match &self.manifest {
                Some(manifest) => manifest.wrote(&self.path, name),
                None => self.holds == Holds::Finished && LEGACY_OUTPUTS.contains(name) && there.as_ref().is_some_and(|f| f.is_file()),
            };
            there.is_some() && !ours
        };
        let Some(name) = outputs.iter().find(is_foreign) else { return Ok(()) };
        let path = self.path.join(name);
        let what = match self.manifest.as_ref().is_some_and(|m| m.outputs.contains_key(*name)) {
            true => format!("{} was changed after fedsa wrote it", path.display()),
            false => format!("{} is not fedsa's, and has the name of an output", path.display()),
        };
        Err(BadInput::new("--out", what, "another folder, or move that file away; it is not overwritten"))
    }

    /// Makes the folder this process's, to run in. `keep` keeps what an earlier run left.
    ///
    /// # Errors
    /// When the folder cannot be made or written to (bad input: nothing was written then), or another
    /// process was faster.
    pub fn claim(self, keep: bool) -> Result<RunFolder, Failure> {
        let Found { path, holds, manifest, lock, .. } = self;
        let unusable = |path: &Path, e: &io::Error| {
            BadInput::new("--out", format!("{} cannot be written: {e}", path.display()), "a folder that you may write to")
        };
        let own = path.join(OWN);
        let mut made = Vec::new();
        make_folders(&own, &mut made).map_err(|e| {
            remove_empty(&made);
            unusable(&path, &e)
        })?;
        let taken = match lock {
            Some(lock) => Ok(Some(Lock::Free(lock))),
            None => take_lock(&own, true),
        };
        let lock = match taken {
            Ok(Some(Lock::Free(lock))) => lock,
            Ok(_) => return Err(is_busy(&path).into()),
            Err(e) => {
                remove_empty(&made);
                return Err(unusable(&own.join(LOCK), &e).into());
            }
        };
        let folder = RunFolder { path, manifest: Mutex::new(manifest.clone().unwrap_or_else(Manifest::new)), made, lock };
        folder.prepare(keep, holds, manifest.is_some()).map_err(|e| {
            let failure = unusable(&folder.path, &e);
            folder.abandon();
            Failure::from(failure)
        })?;
        Ok(folder)
    }
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
        for name in names_in(&self.own())?.iter().filter(|name| atomic::is_temporary(name) || (!keep && name.ends_with(".ckpt"))) {
            std::fs::remove_file(self.own().join(name))?;
        }
        let mut manifest = self.manifest.lock().expect("no panics under the lock");
        if !keep {
            // The summary first: without it the folder is not a finished run's.
            let known: Vec<String> = std::iter::once("summary.json".to_string()).chain(manifest.outputs.keys().cloned()).collect();
            for name in known.iter().filter(|name| manifest.wrote(&self.path, name)) {
                std::fs::remove_file(self.path.join(name))?;
            }
            tidy(&self.path, &manifest);
            if holds == Holds::Finished && !has_manifest {
                remove_legacy(&self.path)?;
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

    /// Gives up the folder before anything was written to it but the manifest: folders that were made
    /// for it are removed.
    pub fn abandon(&self) {
        if self.made.iter().any(|folder| *folder == self.own()) {
            let _ = std::fs::remove_file(self.own().join(MANIFEST));
            let _ = std::fs::remove_file(self.own().join(LOCK));
            remove_empty(&self.made);
        }
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
/// The file that grows while runs are under way.
pub const GROWING: &str = "trace.jsonl";

/// Removes what a finished run does not need; what cannot be removed does no harm.
fn tidy(folder: &Path, manifest: &Manifest) {
    if manifest.wrote(folder, GROWING) {
        let _ = std::fs::remove_file(folder.join(GROWING));
    }
    let own = folder.join(OWN);
    for name in names_in(&own).unwrap_or_default().iter().filter(|name| name.starts_with(RUN_CHECKPOINT)) {
        let _ = std::fs::remove_file(own.join(name));
    }
}

/// The path of one of the program's own files in a run's folder.
pub fn own_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(OWN).join(name)
}

/// Removes the outputs of an earlier version, which had no manifest, and its checkpoints.
fn remove_legacy(path: &Path) -> io::Result<()> {
    let is_file = |path: &Path| at(path).is_ok_and(|found| found.is_some_and(|found| found.is_file()));
    for path in LEGACY_OUTPUTS.iter().map(|name| path.join(name)).filter(|path| is_file(path)) {
        std::fs::remove_file(path)?;
    }
    let checkpoints = path.join(LEGACY_CHECKPOINTS);
    if at(&checkpoints)?.is_some_and(|found| found.is_dir()) {
        for name in names_in(&checkpoints)? {
            let path = checkpoints.join(name);
            let begins = || {
                let mut head = Vec::new();
                File::open(&path).and_then(|file| file.take(8).read_to_end(&mut head)).is_ok_and(|_| head == LEGACY_MAGIC)
            };
            if is_file(&path) && begins() {
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
