//! Transition logs: one Parquet or CSV file per agent, read in batches.
//!
//! Columns go by name: the state in `s_*` and the state that followed in
//! `next_*`, paired by what follows the prefix (`s_0` with `next_0`, `s_speed`
//! with `next_speed`); `reward`; `done` (true or false, or 1 or 0: the episode
//! terminated, not merely was cut short); optionally `episode` (an integer) and
//! `ratio` (an importance ratio, at least 0).
//! `action` and all other columns are not needed and not read. State columns
//! are in natural order of their names, whatever their order in the file.
//!
//! Features that were logged are in `phi_*`, and those of the state that followed in `phi_next_*`, paired in the same way.
//! With [`Inputs::Features`] they are read in place of `s_*` and `next_*`, which are then not needed.
//!
//! A log is opened by its header or footer, and read as often as needed, a batch of rows at a time ([`FileLog`]). Small
//! logs are kept in memory once they were read.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::SystemTime;

use crc32fast::Hasher;
use fedsa::error::{BadInput, Result, quoted};
use fedsa::problem::log::Log;
use fedsa::problem::source::{Inputs, LogSource, whole};
use fedsa::problem::survey::LogFacts;

use super::find::{self, Places, extension_of, natural_order};
use super::parquet::{Columns, Numbers, contained, contained_while};
use super::store::{Store, StoreReader};
use super::{about, listed, name_of, regular, setting, shown, unreadable};

/// The extensions of the formats that logs come in.
pub const EXTENSIONS: [&str; 2] = ["parquet", "csv"];

/// The most transitions of a batch.
const BATCH: usize = 8192;
/// The most bytes of a batch with more than one transition.
const BATCH_BYTES: usize = 2 << 20;
/// The most bytes of a log that is kept in memory.
const KEPT: usize = 16 << 20;
/// The most bytes of all logs of a [`DiskFiles`](super::DiskFiles) that are kept in memory.
pub(super) const MOST_KEPT: usize = 128 << 20;
/// The longest line of a CSV, in bytes: a line is in memory as a whole.
const LONGEST_LINE: usize = 64 << 20;

/// The columns of a log.
fn wanted(inputs: Inputs) -> String {
    let (state, next) = inputs.prefixes();
    format!("the columns `{state}*` and `{next}*` in pairs, `reward` and `done`; optionally `episode` and `ratio`")
}

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
        return Err(BadInput::data("", "no logs", "evaluation needs the transitions of at least one agent"));
    };
    if let Some(FileLog(log)) = logs.iter().find(|FileLog(log)| log.columns != first.columns) {
        let what = format!(
            "its state columns are {}, but those of {} are {}",
            quoted(log.columns.join(", ")),
            name_of(&first.path),
            quoted(first.columns.join(", "))
        );
        return Err(BadInput::data(shown(name_of(&log.path)), what, "all agents must log the same state columns"));
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
            _ => Err(BadInput::data(shown(name_of(path)), "not a known format of logs", "a file with the extension .parquet or .csv")),
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
        Err(BadInput::data(shown(name_of(&self.path)), what, "a file that stays as it is while it is read; start again"))
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
    fn located(&self, e: BadInput) -> BadInput {
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

/// The bytes of a transition with `k` state columns, at most.
fn row_bytes(k: usize) -> usize {
    16 * k + 25
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

/// The checksum of a log's contents, which is that of a file with the same contents.
pub(super) fn checksum(log: &Log) -> u32 {
    let mut checksum = Checksum::default();
    checksum.see(log);
    checksum.finish(&log.columns)
}

/// The positions of a log's columns in a file.
struct Layout {
    /// The names of the state columns.
    columns: Vec<String>,
    states: Vec<usize>,
    next: Vec<usize>,
    reward: usize,
    done: usize,
    episode: Option<usize>,
    ratio: Option<usize>,
}

impl Layout {
    fn new(names: &[String], inputs: Inputs) -> Result<Self> {
        let (state_prefix, next_prefix) = inputs.prefixes();
        let found = || {
            if names.is_empty() { "an empty file".into() } else { format!("the columns are {}", listed(names.iter().map(String::as_str))) }
        };
        let find = |name: &str| {
            let mut places = names.iter().enumerate().filter(|(_, other)| *other == name).map(|(i, _)| i);
            match (places.next(), places.next()) {
                (Some(_), Some(_)) => Err(BadInput::data("", format!("two columns are called `{}`", quoted(name)), wanted(inputs))),
                (place, _) => Ok(place),
            }
        };
        let missing = |name: &str| BadInput::data("", format!("there is no column `{}`: {}", quoted(name), found()), wanted(inputs));
        let require = |name: &str| find(name)?.ok_or_else(|| missing(name));

        // `phi_next_1` begins with `phi_` too, but is no feature.
        let is_state = |name: &&String| name.starts_with(state_prefix) && !name.starts_with(next_prefix);
        let mut columns: Vec<String> = names.iter().filter(is_state).cloned().collect();
        columns.sort_by(|a, b| natural_order(a, b));
        if columns.is_empty() {
            return Err(missing(&format!("{state_prefix}*")));
        }
        let after = |column: &String| column.replacen(state_prefix, next_prefix, 1);
        let states = columns.iter().map(|column| require(column)).collect::<Result<_>>()?;
        let next = columns.iter().map(|column| require(&after(column))).collect::<Result<_>>()?;
        let known: HashSet<&str> = columns.iter().filter_map(|column| column.strip_prefix(state_prefix)).collect();
        if let Some(suffix) = names.iter().filter_map(|name| name.strip_prefix(next_prefix)).find(|suffix| !known.contains(suffix)) {
            return Err(missing(&format!("{state_prefix}{suffix}")));
        }
        let (reward, done) = (require("reward")?, require("done")?);
        Ok(Self { states, next, reward, done, episode: find("episode")?, ratio: find("ratio")?, columns })
    }

    /// A batch without transitions.
    fn empty(&self, name: &str) -> Log {
        Log {
            name: name.into(),
            columns: self.columns.clone(),
            states: Vec::new(),
            rewards: Vec::new(),
            next: Vec::new(),
            done: Vec::new(),
            episode: self.episode.map(|_| Vec::new()),
            ratio: self.ratio.map(|_| Vec::new()),
        }
    }

    /// The number of transitions of a batch.
    fn batch(&self, most: usize) -> usize {
        most.min(BATCH_BYTES / row_bytes(self.columns.len())).max(1)
    }
}

/// The flag `done` from a number, which must be 0 or 1.
fn flag(value: f64) -> Option<bool> {
    [(0.0, false), (1.0, true)].iter().find(|(number, _)| *number == value).map(|(_, flag)| *flag)
}

/// The number of an episode from a double.
fn whole_number(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() <= (1u64 << f64::MANTISSA_DIGITS) as f64).then_some(value as i64)
}

const FLAGS: &str = "true or false, or 1 or 0";
const WHOLE: &str = "a whole number";
const RATIO: &str = "a finite number that is at least 0";

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

/// A column of a Parquet file.
struct LogColumn<'a> {
    numbers: Numbers<'a>,
    name: String,
}

impl LogColumn<'_> {
    fn error(&self, e: BadInput) -> BadInput {
        e.about("").prefixed(format!("column `{}`", quoted(&self.name)))
    }

    fn fill(&mut self, out: &mut [f64]) -> Result<()> {
        self.numbers.fill(out).map_err(|e| self.error(e))
    }

    /// Adds the next `n` rows, the first of which is row `first`, to `out`.
    fn convert<T>(
        &mut self,
        (first, n): (usize, usize),
        scratch: &mut Vec<f64>,
        out: &mut Vec<T>,
        convert: impl Fn(f64) -> Option<T>,
        wanted: &str,
    ) -> Result<()> {
        scratch.resize(n, 0.0);
        self.fill(scratch)?;
        out.clear();
        for (i, value) in scratch.iter().enumerate() {
            let not = || self.error(BadInput::data("", format!("row {} is {value}", first + i), wanted));
            out.push(convert(*value).ok_or_else(not)?);
        }
        Ok(())
    }
}

/// The columns of a log in a Parquet file, read side by side.
struct LogColumns<'a> {
    layout: Layout,
    states: Vec<LogColumn<'a>>,
    next: Vec<LogColumn<'a>>,
    reward: LogColumn<'a>,
    done: LogColumn<'a>,
    episode: Option<LogColumn<'a>>,
    ratio: Option<LogColumn<'a>>,
    scratch: Vec<f64>,
}

impl<'a> LogColumns<'a> {
    fn new(file: &'a Columns, inputs: Inputs) -> Result<Self> {
        let names = file.names();
        let layout = Layout::new(&names, inputs)?;
        file.plausible(row_bytes(layout.columns.len()))?;
        file.side_by_side(2 * layout.columns.len() + 4)?;
        let column = |i: &usize| -> Result<LogColumn<'a>> {
            let name = names[*i].clone();
            let in_column = |e: BadInput| e.about("").prefixed(format!("column `{}`", quoted(&name)));
            Ok(LogColumn { numbers: Numbers::new(file, *i).map_err(in_column)?, name })
        };
        Ok(Self {
            states: layout.states.iter().map(column).collect::<Result<_>>()?,
            next: layout.next.iter().map(column).collect::<Result<_>>()?,
            reward: column(&layout.reward)?,
            done: column(&layout.done)?,
            episode: layout.episode.as_ref().map(column).transpose()?,
            ratio: layout.ratio.as_ref().map(column).transpose()?,
            layout,
            scratch: Vec::new(),
        })
    }

    /// Reads the next `n` rows, the first of which is row `first`, in place of those of `log`.
    fn fill(&mut self, log: &mut Log, first: usize, n: usize) -> Result<()> {
        let (k, scratch) = (self.layout.columns.len(), &mut self.scratch);
        scratch.resize(n, 0.0);
        for (columns, out) in [(&mut self.states, &mut log.states), (&mut self.next, &mut log.next)] {
            out.resize(n * k, 0.0);
            for (j, column) in columns.iter_mut().enumerate() {
                column.fill(scratch)?;
                out[j..].iter_mut().step_by(k).zip(&*scratch).for_each(|(out, value)| *out = *value);
            }
        }
        log.rewards.resize(n, 0.0);
        self.reward.fill(&mut log.rewards)?;
        self.done.convert((first, n), scratch, &mut log.done, flag, FLAGS)?;
        if let (Some(column), Some(out)) = (&mut self.episode, &mut log.episode) {
            column.convert((first, n), scratch, out, whole_number, WHOLE)?;
        }
        if let (Some(column), Some(out)) = (&mut self.ratio, &mut log.ratio) {
            out.resize(n, 0.0);
            column.fill(out)?;
        }
        Ok(())
    }
}

/// Reads a log in Parquet. The file is unpacked on a thread of its own while the caller's thread sees the batch before.
fn read_parquet(file: Store, inputs: Inputs, name: &str, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
    let (send, sent) = mpsc::sync_channel::<Log>(1);
    // Batches that were seen go back to be filled again.
    let (give_back, returned) = mpsc::channel::<Log>();
    let read = move |file: &Columns| {
        let mut columns = LogColumns::new(file, inputs)?;
        let most = columns.layout.batch(most);
        for first in (0..file.rows()).step_by(most) {
            let mut log = returned.try_recv().unwrap_or_else(|_| columns.layout.empty(name));
            columns.fill(&mut log, first, most.min(file.rows() - first))?;
            if send.send(log).is_err() {
                // `see` has returned an error.
                break;
            }
        }
        Ok(())
    };
    let (read, seen) = contained_while(file, read, move || {
        for log in sent {
            see(&log)?;
            // Nobody takes it back after the last batch.
            let _ = give_back.send(log);
        }
        Ok(())
    });
    seen.and(read)
}

/// What is read of a CSV until [`Line::begin`]: at most [`LONGEST_LINE`] bytes.
struct Line {
    file: StoreReader,
    left: usize,
}

impl Line {
    fn begin(&mut self) {
        self.left = LONGEST_LINE;
    }
}

impl Read for Line {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {LONGEST_LINE} bytes")));
        }
        let most = out.len().min(self.left);
        let read = self.file.read(&mut out[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// Opens a CSV, and reads the names of its columns.
fn open_csv(file: &Store) -> Result<(csv::Reader<Line>, Vec<String>)> {
    const BUFFER: usize = 64 << 10;
    let line = Line { file: file.reader_at(0), left: LONGEST_LINE };
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(BUFFER).from_reader(line);
    let names: Vec<String> = reader.headers().map_err(|e| bad_line(&e, 1))?.iter().map(|name| name.trim().to_string()).collect();
    if let [only] = &names[..]
        && let Some(separator) = [';', '\t', '|'].into_iter().find(|c| only.contains(*c))
    {
        let what = format!("line 1 has a single field, `{}`", quoted(only));
        return Err(BadInput::data("", what, format!("fields that are separated by commas, not by {separator:?}")));
    }
    Ok((reader, names))
}

fn read_csv(file: &Store, inputs: Inputs, name: &str, most: usize, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
    let (mut reader, names) = open_csv(file)?;
    let layout = Layout::new(&names, inputs)?;
    let most = layout.batch(most);
    let mut log = layout.empty(name);
    let mut record = csv::StringRecord::new();
    loop {
        reader.get_mut().begin();
        if !reader.read_record(&mut record).map_err(|e| bad_line(&e, reader.position().line()))? {
            break;
        }
        add_record(&mut log, &layout, &names, &record)?;
        if log.len() == most {
            see(&log)?;
            clear(&mut log);
        }
    }
    if log.is_empty() { Ok(()) } else { see(&log) }
}

/// Adds the transition of a line.
fn add_record(log: &mut Log, layout: &Layout, names: &[String], record: &csv::StringRecord) -> Result<()> {
    // The reader has checked that every line has a field for every name. Fields are trimmed here, because the reader would
    // copy every line to trim it.
    let field = |i: usize| record[i].trim();
    let not = |i: usize, wanted: &str| {
        let (line, field) = (record.position().map_or(0, csv::Position::line), field(i));
        let what = if field.is_empty() { "nothing".into() } else { format!("`{}`", quoted(field)) };
        BadInput::data(
            "",
            format!("line {line}, column `{}`: {what} is not {wanted}", quoted(&names[i])),
            format!("{wanted} on every line"),
        )
    };
    let finite = |i: usize| field(i).parse().ok().filter(|v: &f64| v.is_finite());
    let number = |i: usize| finite(i).ok_or_else(|| not(i, "a finite number"));
    for &i in &layout.states {
        log.states.push(number(i)?);
    }
    for &i in &layout.next {
        log.next.push(number(i)?);
    }
    log.rewards.push(number(layout.reward)?);
    log.done.push(match field(layout.done) {
        text if text.eq_ignore_ascii_case("true") => true,
        text if text.eq_ignore_ascii_case("false") => false,
        text => text.parse().ok().and_then(flag).ok_or_else(|| not(layout.done, FLAGS))?,
    });
    if let (Some(i), Some(episodes)) = (layout.episode, &mut log.episode) {
        episodes.push(finite(i).and_then(whole_number).ok_or_else(|| not(i, WHOLE))?);
    }
    if let (Some(i), Some(ratios)) = (layout.ratio, &mut log.ratio) {
        ratios.push(finite(i).filter(|rho| *rho >= 0.0).ok_or_else(|| not(i, RATIO))?);
    }
    Ok(())
}

/// Removes the transitions; their memory is used again.
fn clear(log: &mut Log) {
    [&mut log.states, &mut log.next, &mut log.rewards].into_iter().chain(&mut log.ratio).for_each(Vec::clear);
    log.done.clear();
    log.episode.iter_mut().for_each(Vec::clear);
}

/// An error of the CSV reader; `line` is where the reader is.
pub(super) fn bad_line(e: &csv::Error, line: u64) -> BadInput {
    let line = e.position().map_or(line, csv::Position::line);
    match e.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            BadInput::data("", format!("line {line}: {len} fields, but the header has {expected_len}"), "as many fields on every line")
        }
        csv::ErrorKind::Utf8 { .. } => BadInput::data("", format!("line {line}: not UTF-8"), "text in UTF-8"),
        _ => BadInput::data("", format!("line {line}: {}", shown(e)), "comma-separated values with a header"),
    }
}

#[cfg(test)]
mod tests {
    use fedsa::linalg;
    use fedsa::problem::Files;
    use fedsa::problem::features::{FeatureMap, FeatureSpec, Ranges};
    use parquet::basic::Compression;
    use parquet::data_type::{BoolType, DoubleType, Int64Type};
    use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use proptest::prelude::*;

    use super::*;
    use crate::DiskFiles;

    const CSV: &str = "episode,s_b,s_a,action,next_a,next_b,reward,done\n\
                       0, 1.5,2,0,3,4.25,-1,False\n\
                       1,-1e-3,0,1,5,6,0.5,1\n";

    fn expected() -> Log {
        Log {
            name: String::new(),
            columns: vec!["s_a".into(), "s_b".into()],
            states: vec![2.0, 1.5, 0.0, -1e-3],
            rewards: vec![-1.0, 0.5],
            next: vec![3.0, 4.25, 5.0, 6.0],
            done: vec![false, true],
            episode: Some(vec![0, 1]),
            ratio: None,
        }
    }

    fn csv_error(text: &str) -> String {
        let e = from_csv(text.into(), Inputs::States).unwrap_err();
        assert!(!e.help.is_empty());
        e.to_string()
    }

    #[test]
    fn columns_go_by_name() {
        let read = |text: &str| from_csv(text.into(), Inputs::States).unwrap();
        assert_eq!(read(CSV), expected());
        assert_eq!(read(&format!("\u{feff}{CSV}")), expected(), "a byte order mark");
        assert_eq!(read(&CSV.replace('\n', "\r\n")), expected());
    }

    #[test]
    fn what_is_wrong_with_a_csv_is_named_with_its_place() {
        assert_eq!(csv_error(""), "there is no column `s_*`: an empty file");
        assert_eq!(csv_error("s_0,next_0,reward,done\n"), "a log without transitions");
        assert_eq!(csv_error("s_0,next_0,done\n1,2,0\n"), "there is no column `reward`: the columns are `s_0`, `next_0`, `done`");
        assert_eq!(
            csv_error("s_0,s_1,next_0,reward,done\n"),
            "there is no column `next_1`: the columns are `s_0`, `s_1`, `next_0`, `reward`, `done`"
        );
        assert!(csv_error("s_0,next_0,next_1,reward,done\n").starts_with("there is no column `s_1`"));
        assert_eq!(csv_error("s_0,s_0,next_0,reward,done\n"), "two columns are called `s_0`");
        let head = "s_0,next_0,reward,done,episode\n0,0,0,0,0\n";
        for (line, message) in [
            ("0,x,0,0,0", "line 3, column `next_0`: `x` is not a finite number"),
            ("NaN,0,0,0,0", "line 3, column `s_0`: `NaN` is not a finite number"),
            ("0,0,,0,0", "line 3, column `reward`: nothing is not a finite number"),
            ("0,0,0,2,0", "line 3, column `done`: `2` is not true or false, or 1 or 0"),
            ("0,0,0,0,0.5", "line 3, column `episode`: `0.5` is not a whole number"),
            ("0,0,0,0", "line 3: 4 fields, but the header has 5"),
        ] {
            assert_eq!(csv_error(&format!("{head}{line}\n")), message);
        }
        let head_with_ratio = "s_0,next_0,reward,done,ratio\n0,0,0,0,1.5\n";
        assert_eq!(from_csv(format!("{head_with_ratio}0,0,0,0,0\n").into(), Inputs::States).unwrap().ratio, Some(vec![1.5, 0.0]));
        for bad in ["-0.5", "inf", "NaN", "x"] {
            let message = format!("line 3, column `ratio`: `{bad}` is not a finite number that is at least 0");
            assert_eq!(csv_error(&format!("{head_with_ratio}0,0,0,0,{bad}\n")), message);
        }
        assert_eq!(
            csv_error(&format!("{head}0,0,0,0,1\n0,0,0,0,0\n")),
            "row 2, `episode`: episode 0 goes on after episode 1",
            "rows are transitions, from 0"
        );
        let mut bytes = head.as_bytes().to_vec();
        bytes.extend(b"0,0,\xff,0,0\n");
        assert_eq!(from_csv(bytes, Inputs::States).unwrap_err().to_string(), "line 3: not UTF-8");
    }

    #[test]
    fn agents_are_read_in_natural_order_and_must_agree() {
        let dir = tempfile::tempdir().unwrap();
        let places = || Places { base: dir.path().into(), data: vec![] };
        let open = |given: &[String]| DiskFiles::new(places()).logs(given, Inputs::States);
        for i in [10, 9, 2] {
            std::fs::write(dir.path().join(format!("agent_{i}.csv")), CSV.replace("-1,", &format!("{i},"))).unwrap();
        }
        let names = |given: &[String]| open(given).unwrap().iter().map(|log| log.name().to_string()).collect::<Vec<_>>();
        let refused = |given: &[String]| open(given).err().unwrap();
        let given: Vec<String> = ["agent_10.csv", "agent_2.csv"].map(String::from).into();
        assert_eq!(names(&given), ["agent_2", "agent_10"]);
        assert_eq!(names(&["*.csv".into()]), ["agent_2", "agent_9", "agent_10"]);
        assert!(refused(&["*.csv".into(), "agent_9.csv".into()]).what.contains("twice"));
        assert_eq!(refused(&[]).what, "no logs");

        std::fs::write(dir.path().join("agent_11.csv"), CSV.replace("s_b", "s_c").replace("next_b", "next_c")).unwrap();
        let e = refused(&["*.csv".into()]);
        assert!(e.key == "path" && e.what.contains("agent_11.csv: its state columns"), "{e}");
        assert!(e.what.contains("s_a, s_c") && e.what.contains("agent_2.csv are s_a, s_b"), "{e}");

        std::fs::write(dir.path().join("x.txt"), CSV).unwrap();
        assert!(refused(&["x.txt".into()]).what.contains("format"));
    }

    #[test]
    fn logs_of_the_same_name_are_told_apart_by_their_paths() {
        let paths = ["a/log.csv", "b/log.csv"].map(PathBuf::from);
        assert_eq!(short_names(&paths), ["a/log.csv", "b/log.csv"]);
        assert_eq!(short_names(&paths[..1]), ["log"]);
    }

    /// The norm of the pooled LSTD solution: what a federation must agree on.
    fn lstd_norm(logs: &[Log], order: u32, ranges: &[(f64, f64)]) -> f64 {
        let gamma = 0.99;
        let ranges: Ranges = logs[0].columns.iter().cloned().zip(ranges.iter().copied()).collect();
        let map = FeatureMap::new(&FeatureSpec::Fourier { order }, &logs[0].columns, &ranges).unwrap();
        let d = map.len();
        let (mut a, mut b) = (vec![0.0; d * d], vec![0.0; d]);
        let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
        let total = logs.iter().map(Log::len).sum::<usize>() as f64;
        for log in logs {
            for t in 0..log.len() {
                map.eval(log.state(t), &mut phi);
                map.eval(log.next_state(t), &mut next);
                let gamma = if log.done[t] { 0.0 } else { gamma };
                for i in 0..d {
                    for j in 0..d {
                        a[i * d + j] += phi[i] * (phi[j] - gamma * next[j]) / total;
                    }
                    b[i] += phi[i] * log.rewards[t] / total;
                }
            }
        }
        let theta = linalg::solve(&linalg::from_rows(d, d, &a), &b).unwrap();
        linalg::norm_sq(&theta).sqrt()
    }

    #[test]
    fn real_logs_have_the_known_solutions() {
        if fedsa_testing::data().is_none() {
            return;
        }
        let files = DiskFiles::new(Places::from_env(""));
        let logs = |name: &str| -> Vec<Log> {
            let logs = files.logs(&[name.to_string()], Inputs::States).unwrap();
            logs.iter().map(|log| whole(&**log).unwrap()).collect()
        };
        let mountaincar = logs("transitions/mountaincar");
        assert_eq!(mountaincar.iter().map(Log::len).collect::<Vec<_>>(), [20_000; 8]);
        let norm = lstd_norm(&mountaincar, 3, &[(-1.2, 0.6), (-0.07, 0.07)]);
        assert!((norm - 289.02).abs() < 0.005, "{norm}");
        let cartpole = logs("transitions/cartpole/agent_*.parquet");
        let norm = lstd_norm(&cartpole, 1, &[(-2.4, 2.4), (-3.0, 3.0), (-0.21, 0.21), (-3.5, 3.5)]);
        assert!((norm - 191.46).abs() < 0.005, "{norm}");
    }

    /// A log of `n` transitions of two state columns, with episodes and ratios. The numbers are those of a sine.
    fn made(n: usize) -> Log {
        let numbers = |count: usize, seed: usize| (0..count).map(|i| ((i + seed) as f64).sin()).collect::<Vec<_>>();
        Log {
            name: String::new(),
            columns: vec!["s_1".into(), "s_10".into()],
            states: numbers(2 * n, 0),
            rewards: numbers(n, 7),
            next: numbers(2 * n, 2),
            done: (0..n).map(|i| i % 5 == 4).collect(),
            episode: Some((0..n).map(|i| i as i64 / 7).collect()),
            ratio: Some(numbers(n, 3).into_iter().map(f64::abs).collect()),
        }
    }

    fn as_csv(log: &Log) -> Vec<u8> {
        let mut text = "s_10,next_1,reward,done,s_1,next_10,episode,ratio".to_string();
        for i in 0..log.len() {
            let ((s, next), (episode, ratio)) = ((log.state(i), log.next_state(i)), (log.episode.as_ref(), log.ratio.as_ref()));
            let (reward, done) = (log.rewards[i], log.done[i]);
            text += &format!("\n{},{},{reward},{done},{},{},{},{}", s[1], next[0], s[0], next[1], episode.unwrap()[i], ratio.unwrap()[i]);
        }
        text.into()
    }

    /// With row groups and pages of these numbers of rows.
    fn as_parquet(log: &Log, compression: Compression, version: WriterVersion, dictionary: bool, group: usize, page: usize) -> Vec<u8> {
        let schema = "message log { required double s_1; optional double s_10; required double next_1; required double next_10;
            required double reward; required boolean done; optional int64 episode; required double ratio; }";
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_writer_version(version)
            .set_dictionary_enabled(dictionary)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_data_page_row_count_limit(page)
            .set_write_batch_size(page)
            .build();
        let schema = Arc::new(parse_message_type(schema).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
        for start in (0..log.len()).step_by(group) {
            let rows = start..log.len().min(start + group);
            let column = |all: &[f64], j: usize| rows.clone().map(|i| all[2 * i + j]).collect::<Vec<f64>>();
            let levels = vec![1; rows.len()];
            let doubles = [
                column(&log.states, 0),
                column(&log.states, 1),
                column(&log.next, 0),
                column(&log.next, 1),
                log.rewards[rows.clone()].to_vec(),
                Vec::new(),
                Vec::new(),
                log.ratio.as_ref().unwrap()[rows.clone()].to_vec(),
            ];
            let mut group = writer.next_row_group().unwrap();
            for (i, doubles) in doubles.iter().enumerate() {
                let mut column = group.next_column().unwrap().unwrap();
                match i {
                    1 => column.typed::<DoubleType>().write_batch(doubles, Some(&levels), None),
                    5 => column.typed::<BoolType>().write_batch(&log.done[rows.clone()], None, None),
                    6 => column.typed::<Int64Type>().write_batch(&log.episode.as_ref().unwrap()[rows.clone()], Some(&levels), None),
                    _ => column.typed::<DoubleType>().write_batch(doubles, None, None),
                }
                .unwrap();
                column.close().unwrap();
            }
            group.close().unwrap();
        }
        writer.into_inner().unwrap()
    }

    /// What batches add up to, and the checksum.
    fn in_batches(file: &[u8], format: Format, most: usize) -> (Log, u32) {
        let (mut all, mut checksum): (Option<Log>, _) = (None, Checksum::default());
        format
            .read(file.to_vec().into(), Inputs::States, "", most, &mut |batch| {
                assert!((1..=most).contains(&batch.len()));
                checksum.see(batch);
                match &mut all {
                    None => all = Some(batch.clone()),
                    Some(all) => {
                        all.states.extend(&batch.states);
                        all.rewards.extend(&batch.rewards);
                        all.next.extend(&batch.next);
                        all.done.extend(&batch.done);
                        all.episode.as_mut().unwrap().extend(batch.episode.as_ref().unwrap());
                        all.ratio.as_mut().unwrap().extend(batch.ratio.as_ref().unwrap());
                    }
                }
                Ok(())
            })
            .unwrap();
        let all = all.unwrap();
        let checksum = checksum.finish(&all.columns);
        (all, checksum)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn batches_add_up_to_the_log_wherever_they_end(
            n in 1usize..300,
            most in prop_oneof![Just(1), Just(7), 1usize..400],
            (group, page) in (1usize..200, 1usize..50),
            compression in prop::sample::select(vec![Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())]),
            version in prop::sample::select(vec![WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]),
            dictionary in any::<bool>(),
        ) {
            let log = made(n);
            let parquet = as_parquet(&log, compression, version, dictionary, group, page);
            let (csv, checksum) = in_batches(&as_csv(&log), Format::Csv, most);
            prop_assert_eq!(&csv, &log);
            prop_assert_eq!(&in_batches(&parquet, Format::Parquet, most), &(log, checksum));
            prop_assert_eq!(from_parquet(parquet, Inputs::States).unwrap(), csv);
        }
    }

    #[test]
    fn rows_in_errors_are_those_of_the_file() {
        let with = |change: fn(&mut Log)| {
            let mut log = made(100);
            change(&mut log);
            as_parquet(&log, Compression::UNCOMPRESSED, WriterVersion::PARQUET_1_0, false, 40, 7)
        };
        let error = |file: Vec<u8>| from_parquet(file, Inputs::States).unwrap_err().to_string();
        assert_eq!(error(with(|log| log.states[2 * 90 + 1] = f64::NAN)), "row 90, `s_10`: NaN is not a finite number");
        assert_eq!(error(with(|log| log.ratio.as_mut().unwrap()[55] = -1.0)), "row 55, `ratio`: -1 is not an importance ratio");
        assert_eq!(error(with(|log| log.episode.as_mut().unwrap()[80] = 0)), "row 80, `episode`: episode 0 goes on after episode 11");
        assert_eq!(error(with(|log| log.episode.as_mut().unwrap()[80] = 1 << 60)), {
            format!("column `episode`: row 80: {} does not fit a double", 1u64 << 60)
        });
        // Batches of 9: line 80 is in the ninth.
        let csv = String::from_utf8(as_csv(&made(100))).unwrap().replacen("\n", "\n\n", 50);
        let line = csv.lines().nth(119).unwrap();
        let csv = csv.replace(line, &line.replace(",true,", ",maybe,").replace(",false,", ",maybe,"));
        let e = Format::Csv.read(Vec::from(csv).into(), Inputs::States, "", 9, &mut |_| Ok(())).unwrap_err();
        assert_eq!(e.what, "line 120, column `done`: `maybe` is not true or false, or 1 or 0");
    }

    #[test]
    fn logged_features_are_read_in_place_of_states() {
        let csv = "phi_10,phi_next_2,s_0,reward,phi_2,phi_next_10,done,next_1\n1,2,x,3,4,5,0,6\n";
        let log = from_csv(csv.into(), Inputs::Features).unwrap();
        assert_eq!(
            (&log.columns[..], &log.states[..], &log.next[..]),
            (&["phi_2".into(), "phi_10".into()][..], &[4.0, 1.0][..], &[2.0, 5.0][..])
        );
        let error = |text: &str| from_csv(text.into(), Inputs::Features).unwrap_err();
        assert_eq!(error("s_0,next_0,reward,done\n").to_string(), {
            "there is no column `phi_*`: the columns are `s_0`, `next_0`, `reward`, `done`"
        });
        assert!(error("s_0,next_0,reward,done\n").help.starts_with("the columns `phi_*` and `phi_next_*` in pairs"));
        let missing = |text: &str| error(text).what.split(':').next().unwrap().to_string();
        assert_eq!(missing("phi_1,phi_2,phi_next_2,reward,done\n"), "there is no column `phi_next_1`");
        assert_eq!(missing("phi_1,phi_next_1,phi_next_2,reward,done\n"), "there is no column `phi_2`");
        assert_eq!(missing("phi_next_1,reward,done\n"), "there is no column `phi_*`");
        assert_eq!(missing("phi_1,phi_1,phi_next_1,reward,done\n"), "two columns are called `phi_1`");
    }

    #[test]
    fn logs_with_features_are_told_from_others_by_their_header() {
        let dir = tempfile::tempdir().unwrap();
        let places = Places { base: dir.path().into(), data: vec![] };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("a.csv", "phi_1,phi_next_1,reward,done\nnot read\n");
        write("b.csv", "s_1,phi_next_1,next_1,reward,done\n");
        std::fs::write(dir.path().join("c.parquet"), as_parquet(&made(3), Compression::SNAPPY, WriterVersion::PARQUET_1_0, false, 9, 9))
            .unwrap();
        let has = |given: &[&str]| has_features(&given.iter().map(|name| name.to_string()).collect::<Vec<_>>(), &places).unwrap();
        assert!(has(&["a.csv"]));
        assert!(!has(&["b.csv"]) && !has(&["c.parquet"]) && !has(&["a.csv", "b.csv"]));
    }

    /// A log opened from a file with this text, and `room` bytes for logs that are kept.
    fn opened(path: &Path, room: usize) -> FileLog {
        FileLog::open(path, "agent".into(), Inputs::States, &Arc::new(AtomicUsize::new(room))).unwrap()
    }

    #[test]
    fn a_file_that_changes_is_refused_unless_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.csv");
        for room in [0, 1 << 20] {
            std::fs::write(&path, as_csv(&made(10))).unwrap();
            let log = opened(&path, room);
            let before = whole(&log).unwrap();
            assert_eq!(before, Log { name: "agent".into(), ..made(10) });
            std::fs::write(&path, as_csv(&made(11))).unwrap();
            match whole(&log) {
                Ok(again) => assert!(room > 0 && again == before),
                Err(e) => {
                    assert_eq!(room, 0);
                    assert!(e.key == "path" && e.what.ends_with("agent.csv: it has changed since it was opened"), "{e}");
                }
            }
        }
        // Before the first reading, during one, and with the same length.
        let log = opened(&path, 0);
        let file = std::fs::File::options().append(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(whole(&log).unwrap_err().what.contains("changed"));
        let log = opened(&path, 0);
        let e = log.read(&mut |_| {
            file.set_modified(SystemTime::now()).unwrap();
            Ok(())
        });
        assert!(e.unwrap_err().what.contains("changed"));
        let log = opened(&path, 0);
        std::fs::remove_file(&path).unwrap();
        assert!(whole(&log).unwrap_err().what.contains("cannot be read"));
    }

    #[test]
    fn small_logs_are_kept_while_there_is_room() {
        let dir = tempfile::tempdir().unwrap();
        let room = Arc::new(AtomicUsize::new(2500));
        let logs = [0, 1, 2].map(|i| {
            let path = dir.path().join(format!("{i}.csv"));
            std::fs::write(&path, as_csv(&made(20))).unwrap();
            FileLog::open(&path, i.to_string(), Inputs::States, &room).unwrap()
        });
        logs.iter().for_each(|log| drop(whole(log).unwrap()));
        let bytes = 20 * row_bytes(2);
        assert_eq!(logs.each_ref().map(|log| log.0.kept.get().is_some()), [true, true, false]);
        assert_eq!(room.load(Ordering::Relaxed), 2500 - 2 * bytes);
        let stop = |_: &Log| Err(BadInput::new("here", "enough", "no more"));
        assert_eq!(logs[2].read(&mut { stop }).unwrap_err().to_string(), "here: enough", "an error of the reader stays as it is");
    }

    #[test]
    fn the_checksum_is_one_of_the_contents_alone() {
        let dir = tempfile::tempdir().unwrap();
        let agents = || DiskFiles::new(Places { base: dir.path().into(), data: vec![] });
        let write = |name: &str, log: &Log| std::fs::write(dir.path().join(name), as_csv(log)).unwrap();
        write("a.csv", &made(20));
        write("b.csv", &made(30));
        let sources = ["*.csv".to_string()];
        let digest = |order: &[usize]| {
            let files = agents();
            let logs = files.logs(&sources, Inputs::States).unwrap();
            assert_eq!(files.digest(), 0, "nothing was read");
            order.iter().for_each(|i| drop(whole(&*logs[*i]).unwrap()));
            files.digest()
        };
        let expected = digest(&[0, 1]);
        for order in [&[1, 0][..], &[0, 1, 0, 1], &[1, 1, 0]] {
            assert_eq!(digest(order), expected, "{order:?}");
        }
        assert_ne!(digest(&[0]), expected);
        // Asked for twice, and read in parallel.
        let files = agents();
        let logs = [files.logs(&sources, Inputs::States).unwrap(), files.logs(&sources, Inputs::States).unwrap()].into_iter().flatten();
        std::thread::scope(|scope| logs.for_each(|log| drop(scope.spawn(move || whole(&*log).unwrap()))));
        assert_eq!(files.digest(), expected);
        // An incomplete reading does not count.
        let files = agents();
        let logs = files.logs(&sources, Inputs::States).unwrap();
        logs[0].read(&mut |_| Err(BadInput::new("", "enough", "no more"))).unwrap_err();
        assert_eq!(files.digest(), 0);
        for change in [
            |log: &mut Log| log.states[39] = 0.25,
            |log: &mut Log| log.next[0] = 0.25,
            |log: &mut Log| log.rewards[3] = 0.25,
            |log: &mut Log| log.done[3] = true,
            |log: &mut Log| log.episode.as_mut().unwrap()[19] = 9,
            |log: &mut Log| log.ratio.as_mut().unwrap()[0] = 0.25,
        ] {
            let mut log = made(20);
            change(&mut log);
            write("a.csv", &log);
            assert_ne!(digest(&[0, 1]), expected);
        }
    }
}
