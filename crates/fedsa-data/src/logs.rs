//! Transition logs: Parquet, CSV or TSV files, one per agent or with a column that names the agent, read in batches. Text may be
//! compressed with gzip or zstd; the content identifies the format.
//!
//! Columns go by name; other columns are not read. [`LogForm::columns`] gives other names.
//!
//! - `s_*` and `next_*`: the state and the next state, paired by the rest of the name (`s_0` with `next_0`, `s_speed` with
//!   `next_speed`). State columns come in natural order of their names, whatever their order in the file.
//! - `reward` or `rewards`.
//! - `done`, true or false, or 1 or 0: the episode terminated and was not merely truncated. `terminated`, `terminals` and `terminal`
//!   have the same meaning and take precedence.
//! - `truncated` or `timeouts`, optional.
//! - `episode`, optional: an integer.
//! - `ratio`, optional: an importance ratio, at least 0. Instead, `target` and `behaviour` may give the probabilities of the action
//!   taken, whose ratio it is.
//! - `action`, the number of the action taken, with `target_0`, `target_1`, .. and `target_next_0`, ..: the probabilities of all
//!   actions under the evaluated policy, in the state and in the next state. With [`LogForm::actions`], `action` without them, and
//!   `behaviour` if there is one.
//!
//! If the rows of several environments (`env`) or episodes are interleaved, they are put in order in memory (`groups`): the rows of an
//! environment follow each other.
//!
//! Without `next_*` the next state is the state of the following row of the episode. `episode` or `truncated` must then mark the ends
//! of episodes. The last row of an episode that did not end is omitted (`following`).
//!
//! Logged features are in `phi_*` and, for the next state, in `phi_next_*`, paired in the same way. With [`Inputs::Features`] they
//! replace `s_*` and `next_*`, which are then not needed.
//!
//! Opening a log reads its header or footer. The log is then read as often as needed, a batch of rows at a time ([`FileLog`]). Small
//! logs stay in memory after the first reading.

mod ahead;
mod cached;
mod columns;
mod first_pass;
mod following;
mod format;
mod groups;
mod header;
mod layout;
mod memory;
mod ratios;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use fedsa::error::{Error, Result, quoted};
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::{LeftOutRows, LogForm};
use fedsa_problems::logs::source::{Inputs, KnownOfLog, LogSource, whole};

use super::find::{self, Places, natural_order, unpacked_name};
use cached::{CachedBatches, Checksum};
use format::{BATCH, Format};
use groups::{Arranged, Whole};
pub(super) use header::Header;

pub use super::memory_log::MemoryLog;

use super::store::Store;
use super::{about, name_of, regular, setting, shown, unreadable};

/// The checksum of a log in memory, equal to the checksum of a file with the same transitions.
pub(crate) fn checksum(log: &Log) -> u32 {
    let mut sum = Checksum::default();
    sum.see(log);
    sum.finish(&log.columns)
}

/// The extensions of log formats; `.gz` or `.zst` may follow text extensions.
pub const EXTENSIONS: [&str; 3] = ["parquet", "csv", "tsv"];

/// The most bytes that all logs of a [`DiskFiles`](super::DiskFiles) may keep in memory.
pub(super) const MAX_KEPT: usize = 128 << 20;

/// Opens the logs of all agents, in natural order of their paths (`agent_2` before `agent_10`), or of the names in the agents' column.
/// A source is a path, a glob, a directory or the name of a data set ([`Places::files`]). A log is named after its file, without the
/// extension if these names are distinct. `room` is the number of bytes still available for small logs kept in memory.
///
/// # Errors
/// When there is no source, one is not found, a file is listed twice or cannot be opened, columns are missing, or the state columns of
/// two files differ.
pub(super) fn open(sources: &[String], places: &Places, form: &LogForm, room: &Arc<AtomicUsize>) -> Result<Vec<FileLog>> {
    let paths = paths_of(sources, places)?;
    if paths.is_empty() {
        return Err(Error::data("", "no logs", "evaluation needs the transitions of at least one agent"));
    }
    if form.agent_column.is_some() {
        return by_agent(&paths, form);
    }
    let opened = paths.iter().zip(short_names(&paths)).map(|(path, name)| FileLog::open(path, name, form, room));
    let logs = opened.collect::<Result<Vec<_>>>()?;
    let FileLog(first) = &logs[0];
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

/// The logs of the agents that a column of these files names.
fn by_agent(paths: &[PathBuf], form: &LogForm) -> Result<Vec<FileLog>> {
    let mut files = Vec::new();
    for path in paths {
        let (store, _) = disk(path)?;
        let format = Format::of(path, &store)?;
        format.layout(&store, form).map_err(|e| about(path, e))?;
        files.push(Whole::file(path, format, &|path| Ok(disk(path)?.0)));
    }
    Ok(groups::by_agent(&files, form)?.into_iter().map(|arranged| FileLog::in_memory(arranged, form)).collect())
}

/// Whether all logs have logged features, columns `phi_*`.
///
/// # Errors
/// When a source is not found, a file is listed twice or cannot be opened.
pub fn has_features(sources: &[String], places: &Places, form: &LogForm) -> Result<bool> {
    let (state, next) = Inputs::Features.prefixes();
    for path in paths_of(sources, places)? {
        let (store, _) = disk(&path)?;
        let format = Format::of(&path, &store)?;
        let header = format.names(&store).and_then(|names| Header::new(names, &form.columns)).map_err(|e| about(&path, e))?;
        if !header.roles.iter().any(|name| name.starts_with(state) && !name.starts_with(next)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The files of all sources, in the order of the sources; files of a folder or glob come in natural order.
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
    let stem = |path: &PathBuf| unpacked_name(path).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let stems: Vec<String> = paths.iter().map(stem).collect();
    let all_differ = stems.iter().collect::<std::collections::BTreeSet<_>>().len() == stems.len();
    if all_differ { stems } else { paths.iter().map(|path| name_of(path)).collect() }
}

/// A log in a file. It is read in batches; a small log stays in memory after the first reading.
///
/// Errors are about the setting `path`.
#[derive(Debug, Clone)]
pub struct FileLog(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    path: PathBuf,
    name: String,
    format: Format,
    form: LogForm,
    columns: Vec<String>,
    stamp: Stamp,
    /// The column of episodes.
    episode: Option<usize>,
    /// Whether there is a column of environments.
    has_env: bool,
    /// Whether the next state is the state of the following row.
    next_follows: bool,
    /// Whether rows must be reordered.
    is_side_by_side: OnceLock<bool>,
    /// The checksum of its contents, after the first complete reading.
    checksum: OnceLock<u32>,
    /// Facts from a pass over it.
    known: KnownOfLog,
    /// Its batches, if kept.
    kept: OnceLock<Vec<Log>>,
    /// The rows that its reader omitted.
    left_out: OnceLock<Vec<LeftOutRows>>,
    /// The bytes still available for kept logs.
    room: Arc<AtomicUsize>,
}

/// The length and modification time of a file, which show whether it has changed.
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
    /// Opens a log. This checks its columns, but reads no transitions.
    fn open(path: &Path, name: String, form: &LogForm, room: &Arc<AtomicUsize>) -> Result<Self> {
        let (store, stamp) = disk(path)?;
        let format = Format::of(path, &store)?;
        let layout = format.layout(&store, form).map_err(|e| about(path, e))?;
        let mut opened = Opened::new(path, name, format, form, stamp);
        (opened.episode, opened.has_env, opened.room) = (layout.episode, layout.keys[1].is_some(), room.clone());
        opened.next_follows = layout.follows();
        opened.columns = layout.columns;
        Ok(Self(Arc::new(opened)))
    }

    /// A log that was already read.
    fn in_memory(Arranged { log, path }: Arranged, form: &LogForm) -> Self {
        let mut opened = Opened::new(&path, log.log.name.clone(), Format::Csv, form, Stamp(0, None));
        opened.columns.clone_from(&log.log.columns);
        opened.next_follows = log.next_follows;
        opened.keep(log);
        Self(Arc::new(opened))
    }

    /// The key that identifies the log.
    pub(super) fn key(&self) -> (PathBuf, String, String) {
        (self.0.path.clone(), self.0.name.clone(), format!("{:?}", self.0.form))
    }

    /// A checksum of the columns read; `None` before the first complete reading.
    pub(super) fn checksum(&self) -> Option<u32> {
        self.0.checksum.get().copied()
    }
}

impl Opened {
    fn new(path: &Path, name: String, format: Format, form: &LogForm, stamp: Stamp) -> Self {
        Self {
            path: path.to_path_buf(),
            name,
            format,
            form: form.clone(),
            columns: Vec::new(),
            stamp,
            episode: None,
            has_env: false,
            next_follows: false,
            is_side_by_side: OnceLock::new(),
            checksum: OnceLock::new(),
            known: KnownOfLog::default(),
            kept: OnceLock::new(),
            left_out: OnceLock::new(),
            room: Arc::default(),
        }
    }

    /// Keeps a whole log of any size.
    fn keep(&self, MemoryLog { log, left_out, .. }: MemoryLog) {
        let mut checksum = Checksum::default();
        checksum.see(&log);
        // Another thread that read it at the same time has found the same.
        let _ = self.checksum.set(checksum.finish(&self.columns));
        let _ = self.left_out.set(left_out);
        let _ = self.kept.set(vec![log]);
    }

    fn check_unchanged(&self, stamp: Stamp) -> Result<()> {
        if stamp == self.stamp {
            return Ok(());
        }
        let what = "it has changed since it was opened";
        Err(Error::data(shown(name_of(&self.path)), what, "a file that stays as it is while it is read; start again"))
    }

    /// Whether environments or episodes are interleaved in the file, or rows lack their next states. The file is then read as a whole.
    fn is_side_by_side(&self, store: &Store) -> Result<bool> {
        if let Some(known) = self.is_side_by_side.get() {
            return Ok(*known);
        }
        let of_episodes = |column: usize| groups::is_interleaved(store, self.format, column).map_err(|e| about(&self.path, e));
        let is = self.has_env || self.next_follows || self.episode.map(of_episodes).transpose()?.unwrap_or(false);
        Ok(*self.is_side_by_side.get_or_init(|| is))
    }

    /// Reads the file. The inner result comes from `see`, because it is not about the file.
    fn read(&self, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<Result<()>> {
        let (store, stamp) = disk(&self.path)?;
        self.check_unchanged(stamp)?;
        if self.is_side_by_side(&store)? {
            let file = Whole::file(&self.path, self.format, &|path| Ok(disk(path)?.0));
            self.keep(groups::of_one(&file, &self.form, &self.name)?.log);
            return Ok(self.kept.get().into_iter().flatten().try_for_each(see));
        }
        let mut checksum = self.checksum.get().is_none().then(Checksum::default);
        let mut kept = Some(CachedBatches::default());
        let mut seen = Ok(());
        let read = self.format.read(store, &self.form, &self.name, most, &mut |rows| {
            let batch = &rows.log;
            if let Some(checksum) = &mut checksum {
                checksum.see(batch);
            }
            kept = kept.take().and_then(|kept| kept.with(batch, self.room.load(Ordering::Relaxed)));
            see(batch).inspect_err(|e| seen = Err(e.clone()))
        });
        if seen.is_err() {
            return Ok(seen);
        }
        // A write to the file during reading counts as unreadable too.
        let now = self.path.metadata().map_err(|e| unreadable(&self.path, &e))?;
        self.check_unchanged(Stamp::of(&now))?;
        let told = read.map_err(|e| about(&self.path, e))?;
        let _ = self.left_out.set(groups::left_out_of(&self.path, &told));
        if let Some(checksum) = checksum {
            // Another thread that read it at the same time has found the same.
            let _ = self.checksum.set(checksum.finish(&self.columns));
        }
        if let Some(CachedBatches { batches, bytes }) = kept {
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
    fn known(&self) -> Option<&KnownOfLog> {
        Some(&self.0.known)
    }
    fn next_follows(&self) -> bool {
        self.0.next_follows
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        self.0.left_out.get().cloned().unwrap_or_default()
    }
    fn located(&self, e: Error) -> Error {
        setting(about(&self.0.path, e.about("")))
    }
}

/// A log without a name in memory.
struct InMemory {
    file: Store,
    format: Format,
    form: LogForm,
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
        self.format.read(self.file.clone(), &self.form, "", BATCH, &mut |rows| see(&rows.log)).map(drop)
    }
}

/// A whole log from a file in memory, checked.
fn from_bytes(file: Vec<u8>, format: Format, form: &LogForm) -> Result<Log> {
    let file = Store::from(file);
    let layout = format.layout(&file, form)?;
    if layout.follows() {
        let log = groups::of_one(&Whole::file(Path::new(""), format, &|_| Ok(file.clone())), form, "")?.log.log;
        return log.check().map(|()| log);
    }
    let columns = layout.columns;
    whole(&InMemory { file, format, form: form.clone(), columns })
}

/// The logs of a file in memory with this form: one without a name, or one for each agent that a column names. The content identifies
/// the format. Rows are put in order as for files.
///
/// # Errors
/// As [`from_parquet`] and [`from_csv`].
pub fn from_form(file: Vec<u8>, form: &LogForm) -> Result<Vec<Log>> {
    form.check()?;
    let store = Store::from(file);
    let format = Format::of(Path::new(""), &store)?;
    let open = |_: &Path| Ok(store.clone());
    let file = Whole::file(Path::new(""), format, &open);
    let all = if form.agent_column.is_some() { groups::by_agent(&[file], form)? } else { vec![groups::of_one(&file, form, "")?] };
    let logs: Vec<Log> = all.into_iter().map(|arranged| arranged.log.log).collect();
    logs.iter().try_for_each(Log::check)?;
    Ok(logs)
}

/// A log (without a name) from the bytes of a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, columns are missing or of the wrong type, or as [`Log::check`].
pub fn from_parquet(file: Vec<u8>, inputs: Inputs) -> Result<Log> {
    from_bytes(file, Format::Parquet, &inputs.into())
}

/// A log (without a name) from the bytes of a CSV or TSV file with a header, which may be compressed with gzip or zstd.
///
/// # Errors
/// When a line has too many or too few fields, a field has the wrong type for its column, or as [`Log::check`].
pub fn from_csv(file: Vec<u8>, inputs: Inputs) -> Result<Log> {
    from_bytes(file, Format::Csv, &inputs.into())
}

#[cfg(test)]
mod action_tests;
#[cfg(test)]
mod form_tests;
#[cfg(test)]
mod ratio_tests;
#[cfg(test)]
mod tests;
