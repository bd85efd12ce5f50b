//! Transition logs: one Parquet or CSV file per agent, read in batches.
//!
//! Columns go by name: the state in `s_*` and the state that followed in
//! `next_*`, paired by what follows the prefix (`s_0` with `next_0`, `s_speed`
//! with `next_speed`); `reward`; `done` (true or false, or 1 or 0: the episode
//! terminated, not merely was cut short); optionally `episode` (an integer) and
//! `ratio` (an importance ratio, at least 0), or `target` and `behaviour`, the probabilities
//! of the action that was taken, of which it is the ratio.
//! `action` and all other columns are not needed and not read. State columns
//! are in natural order of their names, whatever their order in the file.
//!
//! Features that were logged are in `phi_*`, and those of the state that followed in `phi_next_*`, paired in the same way.
//! With [`Inputs::Features`] they are read in place of `s_*` and `next_*`, which are then not needed.
//!
//! A log is opened by its header or footer, and read as often as needed, a batch of rows at a time ([`FileLog`]). Small
//! logs are kept in memory once they were read.

mod columns;
mod layout;
mod lines;
mod ratios;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crc32fast::Hasher;
use fedsa::error::{Error, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::source::{Inputs, LogSource, whole};
use fedsa::problem::survey::LogFacts;

use super::find::{self, Places, extension_of, natural_order};
use columns::{LogColumns, read_parquet};
use layout::{Layout, row_bytes};
pub(super) use lines::bad_line;
use lines::{open_csv, read_csv};

use super::parquet::contained;
use super::store::Store;
use super::{about, name_of, regular, setting, shown, unreadable};

/// The extensions of the formats that logs come in.
pub const EXTENSIONS: [&str; 2] = ["parquet", "csv"];

/// The most transitions of a batch.
const BATCH: usize = 8192;
/// The most bytes of a log that is kept in memory.
const KEPT: usize = 16 << 20;
/// The most bytes of all logs of a [`DiskFiles`](super::DiskFiles) that are kept in memory.
pub(super) const MOST_KEPT: usize = 128 << 20;

/// Opens the logs of all agents, in natural order of their paths (`agent_2`
/// before `agent_10`). A source is a path, a glob, a directory or the name of
/// a data set ([`Places::files`]). A log is named after its file, without the
/// extension if these names are distinct. `room` is what small logs may still take that are kept in memory, in bytes.
///
/// # Errors
/// When there is no source, one is not found, a file is listed twice or cannot be opened, columns are missing, or two files'
/// state columns differ.
pub(super) fn open(sources: &[String], places: &Places, inputs: Inputs, room: &Arc<AtomicUsize>) -> Result<Vec<FileLog>> {
    let paths = paths_of(sources, places)?;
    let opened = paths.iter().zip(short_names(&paths)).map(|(path, name)| FileLog::open(path, name, inputs, room));
    let logs = opened.collect::<Result<Vec<_>>>()?;
    let Some(FileLog(first)) = logs.first() else {
        return Err(Error::data("", "no logs", "evaluation needs the transitions of at least one agent"));
    };
    if let Some(FileLog(log)) = logs.iter().find(|FileLog(log)| log.columns != first.columns) {
        let what = format!(
            "its state columns are {}, but those of {} are {}",
            quoted(log.columns.join(", ")),
            name_of(&first.path),
            quoted(first.columns.join(", "))
        );
        return Err(Error::data(shown(name_of(&log.path)), what, "all agents must log the same state columns"));
    }
    Ok(logs)
}

/// Whether all logs have columns `phi_*`, features that were logged.
///
/// # Errors
/// When a source is not found, a file is listed twice or cannot be opened.
pub fn has_features(sources: &[String], places: &Places) -> Result<bool> {
    let (state, next) = Inputs::Features.prefixes();
    for path in paths_of(sources, places)? {
        let (store, _) = disk(&path)?;
        let names = Format::of(&path)?.names(&store).map_err(|e| about(&path, e))?;
        if !names.iter().any(|name| name.starts_with(state) && !name.starts_with(next)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The files of all sources, in the order of the sources; those of a folder or of a glob in natural order.
pub(super) fn paths_in_order(sources: &[String], places: &Places) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for source in sources {
        paths.extend(places.files(source, &EXTENSIONS)?);
    }
    Ok(paths)
}

/// The files of all sources, in natural order of their paths.
pub(super) fn paths_of(sources: &[String], places: &Places) -> Result<Vec<PathBuf>> {
    let mut paths = paths_in_order(sources, places)?;
    paths.sort_by(|a, b| natural_order(&name_of(a), &name_of(b)));
    find::each_once(&paths, "log", "one log per agent")?;
    Ok(paths)
}

/// The files' names without directory and extension, or their paths if two of these names
/// are equal.
pub(super) fn short_names(paths: &[PathBuf]) -> Vec<String> {
    let stems: Vec<String> = paths.iter().map(|path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()).collect();
    let all_differ = stems.iter().collect::<std::collections::BTreeSet<_>>().len() == stems.len();
    if all_differ { stems } else { paths.iter().map(|path| name_of(path)).collect() }
}

/// The formats of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Parquet,
    Csv,
}

impl Format {
    fn of(path: &Path) -> Result<Self> {
        match extension_of(path).as_deref() {
            Some("parquet") => Ok(Self::Parquet),
            Some("csv") => Ok(Self::Csv),
            _ => Err(Error::data(shown(name_of(path)), "not a known format of logs", "a file with the extension .parquet or .csv")),
        }
    }

    /// The names of all columns of a file.
    fn names(self, file: &Store) -> Result<Vec<String>> {
        match self {
            Self::Parquet => contained(file.clone(), |file| Ok(file.names())),
            Self::Csv => Ok(open_csv(file)?.1),
        }
    }

    /// The state columns of a log.
    fn columns(self, file: &Store, inputs: Inputs) -> Result<Vec<String>> {
        match self {
            Self::Parquet => contained(file.clone(), |file| Ok(LogColumns::new(file, inputs)?.layout.columns)),
            Self::Csv => Ok(Layout::new(&open_csv(file)?.1, inputs)?.columns),
        }
    }

    /// Calls `see` with all transitions, in batches of at most `most`.
    fn read(self, file: Store, inputs: Inputs, name: &str, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        match self {
            Self::Parquet => read_parquet(file, inputs, name, most, see),
            Self::Csv => read_csv(&file, inputs, name, most, see),
        }
    }
}

/// A log in a file. It is read in batches, and a small one is kept in memory once it was read.
///
/// Errors are about the setting `path`.
#[derive(Debug, Clone)]
pub struct FileLog(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    /// The agent's name.
    name: String,
    format: Format,
    inputs: Inputs,
    columns: Vec<String>,
    stamp: Stamp,
    /// The checksum of its contents, once they were read completely.
    checksum: OnceLock<u32>,
    /// What a pass over it told.
    facts: OnceLock<LogFacts>,
    /// Its batches, if they are kept.
    kept: OnceLock<Vec<Log>>,
    /// The bytes that logs may still take that are kept.
    room: Arc<AtomicUsize>,
}

/// What tells whether a file is still the same: its length, and when it was modified.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stamp(u64, Option<SystemTime>);

impl Stamp {
    fn of(file: &std::fs::Metadata) -> Self {
        Self(file.len(), file.modified().ok())
    }
}

/// A regular file on the disk.
fn disk(path: &Path) -> Result<(Store, Stamp)> {
    let (file, metadata) = regular::opened(path, u64::MAX).map_err(|e| unreadable(path, &e))?;
    Ok((Store::Disk(Arc::new(file), metadata.len()), Stamp::of(&metadata)))
}

impl FileLog {
    /// Opens a log. Its columns are checked, its transitions are not read.
    fn open(path: &Path, name: String, inputs: Inputs, room: &Arc<AtomicUsize>) -> Result<Self> {
        let format = Format::of(path)?;
        let (store, stamp) = disk(path)?;
        let columns = format.columns(&store, inputs).map_err(|e| about(path, e))?;
        let (path, room) = (path.to_path_buf(), room.clone());
        let (checksum, facts, kept) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Self(Arc::new(Opened { path, name, format, inputs, columns, stamp, checksum, facts, kept, room })))
    }

    /// What tells it from other logs.
    pub(super) fn key(&self) -> (PathBuf, String, &'static str) {
        (self.0.path.clone(), self.0.name.clone(), self.0.inputs.prefixes().0)
    }

    /// A checksum of the columns that are read; none before they were read completely.
    pub(super) fn checksum(&self) -> Option<u32> {
        self.0.checksum.get().copied()
    }
}

impl Opened {
    fn check_unchanged(&self, stamp: Stamp) -> Result<()> {
        if stamp == self.stamp {
            return Ok(());
        }
        let what = "it has changed since it was opened";
        Err(Error::data(shown(name_of(&self.path)), what, "a file that stays as it is while it is read; start again"))
    }

    /// Reads the file. The result of `see` comes second, because it is not about the file.
    fn read(&self, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<Result<()>> {
        let (store, stamp) = disk(&self.path)?;
        self.check_unchanged(stamp)?;
        let mut checksum = self.checksum.get().is_none().then(Checksum::default);
        let mut kept = Some(Kept::default());
        let mut seen = Ok(());
        let read = self.format.read(store, self.inputs, &self.name, most, &mut |batch| {
            if let Some(checksum) = &mut checksum {
                checksum.see(batch);
            }
            kept = kept.take().and_then(|kept| kept.with(batch, self.room.load(Ordering::Relaxed)));
            see(batch).inspect_err(|e| seen = Err(e.clone()))
        });
        if seen.is_err() {
            return Ok(seen);
        }
        // Whoever writes to a file while it is read makes it unreadable, too.
        let now = self.path.metadata().map_err(|e| unreadable(&self.path, &e))?;
        self.check_unchanged(Stamp::of(&now))?;
        read.map_err(|e| about(&self.path, e))?;
        if let Some(checksum) = checksum {
            // Another thread that has read it at the same time has found the same.
            let _ = self.checksum.set(checksum.finish(&self.columns));
        }
        if let Some(Kept { batches, bytes }) = kept {
            let fits = self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |room| room.checked_sub(bytes)).is_ok();
            if fits && self.kept.set(batches).is_err() {
                self.room.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        Ok(Ok(()))
    }
}

impl LogSource for FileLog {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn columns(&self) -> &[String] {
        &self.0.columns
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        match self.0.kept.get() {
            Some(batches) => batches.iter().try_for_each(see),
            None => self.0.read(BATCH, see).map_err(setting)?,
        }
    }
    fn facts(&self) -> Option<&OnceLock<LogFacts>> {
        Some(&self.0.facts)
    }
    fn located(&self, e: Error) -> Error {
        setting(about(&self.0.path, e.about("")))
    }
}

/// The batches of a log that may be kept in memory.
#[derive(Default)]
struct Kept {
    batches: Vec<Log>,
    bytes: usize,
}

impl Kept {
    /// With one more batch, if all of them are small enough.
    fn with(mut self, batch: &Log, room: usize) -> Option<Self> {
        self.bytes += batch.len() * row_bytes(batch.columns.len());
        if self.bytes > KEPT.min(room) {
            return None;
        }
        self.batches.push(batch.clone());
        Some(self)
    }
}

/// The checksum of a log's contents. Each column, and all states, have a checksum of their own, so that it does not depend on
/// where batches end.
#[derive(Default)]
struct Checksum {
    rows: u64,
    /// Of states, next states, rewards, `done`, `episode`, `ratio`.
    parts: [Hasher; 6],
    bytes: Vec<u8>,
}

impl Checksum {
    fn see(&mut self, log: &Log) {
        self.rows += log.len() as u64;
        for (i, numbers) in [(0, Some(&log.states)), (1, Some(&log.next)), (2, Some(&log.rewards)), (5, log.ratio.as_ref())] {
            self.update(i, numbers.map_or(&[], Vec::as_slice), |x| x.to_le_bytes());
        }
        self.update(3, &log.done, |done| [u8::from(done)]);
        self.update(4, log.episode.as_deref().unwrap_or_default(), i64::to_le_bytes);
    }

    fn update<T: Copy, const N: usize>(&mut self, part: usize, values: &[T], bytes: impl Fn(T) -> [u8; N]) {
        self.bytes.resize(values.len() * N, 0);
        self.bytes.chunks_exact_mut(N).zip(values).for_each(|(out, value)| out.copy_from_slice(&bytes(*value)));
        self.parts[part].update(&self.bytes);
    }

    fn finish(self, columns: &[String]) -> u32 {
        let mut all = Hasher::new();
        all.update(columns.join(",").as_bytes());
        all.update(&self.rows.to_le_bytes());
        self.parts.into_iter().for_each(|part| all.update(&part.finalize().to_le_bytes()));
        all.finalize()
    }
}

/// A log without a name that is in memory.
struct InMemory {
    file: Store,
    format: Format,
    inputs: Inputs,
    columns: Vec<String>,
}

impl LogSource for InMemory {
    fn name(&self) -> &'static str {
        ""
    }
    fn columns(&self) -> &[String] {
        &self.columns
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        self.format.read(self.file.clone(), self.inputs, "", BATCH, see)
    }
}

/// A whole log from a file in memory, checked.
fn from_bytes(file: Vec<u8>, format: Format, inputs: Inputs) -> Result<Log> {
    let file = Store::from(file);
    let columns = format.columns(&file, inputs)?;
    whole(&InMemory { file, format, inputs, columns })
}

/// A log (without a name) from the bytes of a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, columns are missing or of the wrong type, or as [`Log::check`].
pub fn from_parquet(file: Vec<u8>, inputs: Inputs) -> Result<Log> {
    from_bytes(file, Format::Parquet, inputs)
}

/// A log (without a name) from the bytes of a CSV file with a header.
///
/// # Errors
/// When a line has too many or too few fields, a field has the wrong type for its column, or as [`Log::check`].
pub fn from_csv(file: Vec<u8>, inputs: Inputs) -> Result<Log> {
    from_bytes(file, Format::Csv, inputs)
}

#[cfg(test)]
mod ratio_tests;
#[cfg(test)]
mod tests;
