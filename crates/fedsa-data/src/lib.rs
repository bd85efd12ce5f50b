//! File formats: problems (`.npz`), data sets (LIBSVM, CSV, Parquet, IDX), logs and tables (Parquet, CSV, TSV), traces (Parquet),
//! delays (text), weights (JSON).
//!
//! Only this crate reads and writes these formats; other crates use plain structs. The `key` of an error is the file. Rows count from
//! 0, as in a data frame; lines of text count from 1, as in an editor.
//!
//! No content of a file makes a reader panic. Files read as a whole may take at most half of the available memory, which [`machine`]
//! determines.

pub mod appended;
pub mod atomic;
mod batch;
pub mod cells;
pub mod datasets;
mod decimals;
pub mod delays;
mod field;
pub mod find;
mod given;
mod input;
pub mod linear_model;
mod lines;
pub mod logs;
pub mod machine;
pub mod memory;
mod memory_log;
mod nested;
pub mod npz;
mod parquet;
pub use parquet::THREAD as PARQUET_THREAD;
pub mod public;
pub mod regular;
mod separated;
mod store;
pub mod table;
pub mod trace;
pub mod weights;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, ErrorCode, ErrorKind, Result, quoted, shown};
use fedsa::problem::arrays::Arrays;
use fedsa::uplink::stage::delay::Row;
use fedsa_problems::Files;
use fedsa_problems::logs::by_policy::KnownPolicy;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::{LeftOutRows, LogForm};
use fedsa_problems::logs::source::{KnownOfLog, LogSource};
use fedsa_problems::rows::dataset::{Dataset, Wanted};
use given::Given;
use sha2::{Digest, Sha256};

/// The files of this machine, from which problems read.
#[derive(Debug)]
pub struct DiskFiles {
    /// The folders of the search for files.
    pub places: find::Places,
    /// The checksum of all data read so far except logs, in the order of reading.
    noted: AtomicU32,
    logs: Mutex<Logs>,
    /// Data that are in memory.
    given: Given,
    /// The data sets read so far: the file, checksum and number of rows of each, in the order of the first reading.
    datasets: Mutex<Vec<(PathBuf, u32, usize)>>,
    /// The bytes still available for small logs kept in memory.
    room: Arc<AtomicUsize>,
    /// Cancels the building of problems.
    cancel: Cancel,
}

/// The opened logs, each once, in the order of the requests.
#[derive(Debug, Default)]
struct Logs {
    all: Vec<logs::FileLog>,
    /// The position of a log, by its path, its name, and its form.
    positions: HashMap<(PathBuf, String, String), usize>,
    /// The positions of the logs whose agents are named in a column, by files and form. Such files are read as a whole.
    by_agent: HashMap<(Vec<String>, String), Vec<usize>>,
}

/// The most transitions between two checks of the token. Products of a thousand features take half a second for this many transitions.
const PIECE: usize = 1024;

/// A log whose reading stops when a token is cancelled.
struct Stoppable<S> {
    log: S,
    cancel: Cancel,
}

impl<S: LogSource> LogSource for Stoppable<S> {
    fn name(&self) -> &str {
        self.log.name()
    }
    fn columns(&self) -> &[String] {
        self.log.columns()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        self.log.read(&mut |batch| {
            if batch.len() <= PIECE {
                self.cancel.check()?;
                return see(batch);
            }
            for first in (0..batch.len()).step_by(PIECE) {
                self.cancel.check()?;
                see(&batch.part(first..batch.len().min(first + PIECE)))?;
            }
            Ok(())
        })
    }
    fn known(&self) -> Option<&KnownOfLog> {
        self.log.known()
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        self.log.left_out()
    }
    fn next_follows(&self) -> bool {
        self.log.next_follows()
    }
    fn located(&self, e: Error) -> Error {
        if e.kind() == ErrorKind::Cancelled { e } else { self.log.located(e) }
    }
}

impl DiskFiles {
    /// The files in these folders.
    pub fn new(places: find::Places) -> Self {
        let room = Arc::new(AtomicUsize::new(logs::MAX_KEPT));
        Self {
            places,
            noted: AtomicU32::new(0),
            logs: Mutex::default(),
            given: Given::default(),
            datasets: Mutex::default(),
            room,
            cancel: Cancel::never(),
        }
    }

    /// The same with these logs in memory, one per agent, for problems with an empty list of files.
    #[must_use]
    pub fn with_logs<L: Into<logs::MemoryLog>>(self, given: Vec<L>) -> Self {
        let logs: Vec<logs::MemoryLog> = given.into_iter().map(Into::into).collect();
        let checksums = logs.iter().map(|one| logs::checksum(&one.log)).collect();
        Self { given: Given::of_logs(logs, checksums), ..self }
    }

    /// The same with these data sets in memory. The first problem that reads data sets takes them, whatever files it names.
    #[must_use]
    pub fn with_datasets(self, given: Vec<Dataset>) -> Self {
        let checksums = given.iter().map(datasets::checksum).collect();
        Self { given: Given::of_sets(given, checksums), ..self }
    }

    /// The checksums of the data in memory, without names of logs and data sets; `None` without such data.
    pub fn given_identity(&self) -> Option<&str> {
        self.given.identity()
    }

    /// The same, but reading stops when the token is cancelled: logs after the current batch of transitions, other files at their end,
    /// generated problems after an agent.
    #[must_use]
    pub fn with_cancel(self, cancel: &Cancel) -> Self {
        Self { cancel: cancel.clone(), ..self }
    }

    /// A checksum of all data read from files so far; 0 if nothing was read.
    ///
    /// A log counts with its contents from its first complete reading on. The number of readings, the batches and the order of logs do
    /// not matter. A data set read again with the same contents counts once.
    pub fn digest(&self) -> u32 {
        let noted = self.noted.load(Ordering::Relaxed);
        let mut sums: Vec<Option<u32>> = self.opened().all.iter().map(logs::FileLog::checksum).collect();
        let datasets = self.datasets.lock().unwrap_or_else(PoisonError::into_inner);
        sums.extend(datasets.iter().map(|(_, sum, _)| Some(*sum)));
        if sums.iter().all(Option::is_none) {
            return noted;
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&noted.to_le_bytes());
        sums.iter().for_each(|sum| hasher.update(&sum.unwrap_or(0).to_le_bytes()));
        hasher.finalize()
    }

    /// The files of data sets read so far, without folders, and the number of rows of each, in the order of the first reading.
    pub fn rows_read(&self) -> Vec<(String, usize)> {
        let datasets = self.datasets.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |path: &Path| shown(path.file_name().unwrap_or_default().to_string_lossy());
        datasets.iter().map(|(path, _, rows)| (name(path), *rows)).collect()
    }

    /// The SHA-256 hash of the bytes of all files of logs and data sets read so far, in the order of the first reading.
    ///
    /// # Errors
    /// When one cannot be read again.
    pub fn contents(&self) -> Result<[u8; 32]> {
        let mut paths: Vec<PathBuf> = self.opened().all.iter().map(|log| log.key().0).collect();
        let datasets = self.datasets.lock().unwrap_or_else(PoisonError::into_inner);
        paths.extend(datasets.iter().map(|(path, ..)| path.clone()));
        let mut all = Sha256::new();
        for path in paths {
            let hash = regular::opened(&path, u64::MAX).and_then(|(file, _)| public::verify::sha256(file));
            all.update(hash.map_err(|e| unreadable(&path, &e))?);
        }
        Ok(all.finalize().into())
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stoppable(&self, log: impl LogSource + 'static) -> Box<dyn LogSource> {
        Box::new(Stoppable { log, cancel: self.cancel.clone() })
    }

    fn note<'a>(&self, name: &str, numbers: impl IntoIterator<Item = &'a f64>) {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.noted.load(Ordering::Relaxed).to_le_bytes());
        hasher.update(name.as_bytes());
        numbers.into_iter().for_each(|x| hasher.update(&x.to_le_bytes()));
        self.noted.store(hasher.finalize(), Ordering::Relaxed);
    }

    /// A vector from a file: `theta` of an `.npz`, or a list of numbers, or the
    /// `theta` of an object, in a `.json`.
    ///
    /// # Errors
    /// When the file cannot be read or contains no vector.
    pub fn vector(&self, source: &str) -> Result<Vec<f64>> {
        let path = self.places.locate(source)?;
        let numbers = if path.extension().is_some_and(|e| e == "json") {
            theta_from_json(&read(&path)?).map_err(|e| about(&path, e))?
        } else {
            npz::read(&path)?.get("theta").map_err(|e| about(&path, e))?.data().to_vec()
        };
        self.note("theta", &numbers);
        Ok(numbers)
    }
}

impl DiskFiles {
    /// A trace of delays from a text file.
    ///
    /// # Errors
    /// When the file cannot be read or is not a trace.
    pub fn delays(&self, source: &str) -> Result<Vec<Row>> {
        let rows = self.places.locate(source).and_then(|path| delays::read(&path)).map_err(setting)?;
        self.note_delays(&rows);
        Ok(rows)
    }

    fn note_delays(&self, rows: &[Row]) {
        for row in rows {
            let taus = match row {
                Row::All(tau) => std::slice::from_ref(tau),
                Row::Each(taus) => taus,
            };
            let numbers: Vec<f64> = taus.iter().map(|tau| *tau as f64).collect();
            self.note(&format!("delays of {}", numbers.len()), &numbers);
        }
    }
}

/// A vector from the bytes of a JSON file: a list of numbers, or the list `theta` of an object.
///
/// # Errors
/// When the bytes are not JSON, or contain no such list.
pub fn theta_from_json(file: &[u8]) -> Result<Vec<f64>> {
    let bad = |e: String| Error::data("", e, "a list of numbers, or an object with a list `theta`");
    let value: serde_json::Value = serde_json::from_slice(file).map_err(|e| bad(format!("not JSON: {e}")))?;
    let list = value.get("theta").unwrap_or(&value).as_array().ok_or_else(|| bad("no list of numbers".into()))?;
    list.iter().map(|x| x.as_f64().ok_or_else(|| bad(format!("{} is not a number", quoted(x.to_string()))))).collect()
}

/// Turns an error about a file into an error about the setting that names the file.
fn setting(e: Error) -> Error {
    within_words(e).about("path")
}

impl Files for DiskFiles {
    fn cancel(&self) -> &Cancel {
        &self.cancel
    }
    fn arrays(&self, path: &str) -> Result<Arrays> {
        let arrays = self.places.locate(path).and_then(|path| npz::read(&path)).map_err(setting)?;
        self.cancel.check()?;
        for (name, array) in arrays.iter() {
            self.note(&format!("{name}{:?}", array.shape()), array.data());
        }
        Ok(arrays)
    }
    fn logs(&self, sources: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        if sources.is_empty() && !self.given.logs.is_empty() {
            return Ok(self.given.logs.iter().map(|log| self.stoppable(Arc::clone(log))).collect());
        }
        let request = (sources.to_vec(), format!("{form:?}"));
        let known = self.opened().by_agent.get(&request).cloned();
        if let Some(positions) = known {
            let known = self.opened();
            return Ok(positions.into_iter().map(|position| self.stoppable(known.all[position].clone())).collect());
        }
        let opened = logs::open(sources, &self.places, form, &self.room).map_err(setting)?;
        let known = &mut *self.opened();
        let mut positions = Vec::with_capacity(opened.len());
        for log in opened {
            let position = *known.positions.entry(log.key()).or_insert(known.all.len());
            if position == known.all.len() {
                known.all.push(log);
            }
            positions.push(position);
        }
        let sources = positions.iter().map(|position| self.stoppable(known.all[*position].clone())).collect();
        if form.agent_column.is_some() {
            known.by_agent.insert(request, positions);
        }
        Ok(sources)
    }
    fn policy(&self, path: &str) -> Result<Arc<dyn KnownPolicy>> {
        let bytes = self.places.locate(path).and_then(|path| read(&path)).map_err(|e| setting(e).about("policy"))?;
        let model = weights::from_json(&bytes).map_err(|e| within_words(e).about("policy"))?;
        let weights::FittedModel::Policy(policy) = model else {
            return Err(Error::data("policy", format!("{}: weights without actions", quoted(path)), "the policy.json of fedsa improve"));
        };
        self.note("policy", bytes.iter().map(|byte| f64::from(*byte)).collect::<Vec<_>>().iter());
        Ok(Arc::new(policy))
    }
    fn datasets(&self, sources: &[String], wanted: &Wanted) -> Result<Vec<Dataset>> {
        if let Some(given) = self.given.take_sets() {
            return Ok(given);
        }
        let read = datasets::read(sources, &self.places, wanted, &self.cancel);
        let read = read.map_err(|e| if e.kind() == ErrorKind::Cancelled { e } else { setting(e).about("data") })?;
        let mut known = self.datasets.lock().unwrap_or_else(PoisonError::into_inner);
        for (path, dataset) in &read {
            let seen = (path.clone(), datasets::checksum(dataset), dataset.rows.len());
            if !known.contains(&seen) {
                known.push(seen);
            }
        }
        Ok(read.into_iter().map(|(_, dataset)| dataset).collect())
    }
}

/// The bytes that the contents of a file may take in memory: half of the available memory, and at least 64 MiB.
fn size_limit() -> usize {
    const SMALL: usize = 64 << 20;
    (room() / 2).max(SMALL)
}

/// The available memory in bytes; `usize::MAX` if it is not known.
fn room() -> usize {
    // Invalid values of the variable are rejected elsewhere.
    machine::available().ok().flatten().map_or(usize::MAX, |available| available.bytes as usize)
}

/// Reads a whole data file. Its contents need about as much memory again as the file.
fn read(path: &Path) -> Result<Vec<u8>> {
    regular::read(path, (room() / 2) as u64).map_err(|e| unreadable(path, &e))
}

/// The error for a file that cannot be opened or read.
fn unreadable(path: &Path, e: &std::io::Error) -> Error {
    let code = if e.kind() == std::io::ErrorKind::NotFound { ErrorCode::NoFile } else { ErrorCode::Unreadable };
    let help = match e.kind() {
        std::io::ErrorKind::NotFound => "the path of a file that is there",
        std::io::ErrorKind::PermissionDenied => "a file that you may read",
        std::io::ErrorKind::InvalidInput => "a regular file; save the output of a pipe to a file first",
        std::io::ErrorKind::FileTooLarge => "a file that fits twice into the available memory",
        _ => "a file that can be read",
    };
    Error::data(shown(name_of(path)), format!("cannot be read: {e}"), help).coded(code)
}

/// The name of a file in messages.
pub fn name_of(path: &Path) -> String {
    path.display().to_string()
}

/// Turns an error inside a file into an error about the file; the message includes the key of the error.
fn about(path: &Path, e: Error) -> Error {
    within_words(e).about(shown(name_of(path)))
}

/// An error whose message includes its key, because another key replaces it.
fn within_words(e: Error) -> Error {
    if e.key.is_empty() {
        e
    } else {
        let key = e.key.clone();
        e.prefixed(key)
    }
}

/// Names for a message: `a`, `b`, `c`; at most the first 30.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 30;
    let mut names = names.into_iter().map(|name| format!("`{}`", quoted(name)));
    let mut shown: Vec<String> = names.by_ref().take(MOST).collect();
    if names.next().is_some() {
        shown.push("..".into());
    }
    shown.join(", ")
}

/// An integer as a double, if a double can represent it exactly.
fn exact(v: i128) -> Option<f64> {
    (v.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS).then_some(v as f64)
}

#[cfg(test)]
mod tests {
    use fedsa_problems::logs::log::Break;
    use fedsa_problems::rows::dataset::{Columns, Labels, Rows};

    use super::*;

    #[test]
    fn numbers_in_json_are_read_to_the_last_bit() {
        let theta = [1.0000000000000001e125, -0.1, 5e-324, 1.7976931348623157e308];
        assert_eq!(theta_from_json(format!("{{\"theta\": {theta:?}}}").as_bytes()).unwrap(), theta);
    }

    #[test]
    fn the_shape_of_a_trace_is_in_its_checksum() {
        let digest = |rows: &[Row]| {
            let files = DiskFiles::new(find::Places::from_env(Path::new(".")));
            files.note_delays(rows);
            files.digest()
        };
        let (each, all) = ([Row::Each(vec![1, 2]), Row::Each(vec![3, 4])], [1, 2, 3, 4].map(Row::All));
        assert_ne!(digest(&each), digest(&all));
        assert_eq!(digest(&each), digest(&each.clone()));
    }

    /// Sums over the transitions of a log in memory take minutes with a thousand features.
    #[test]
    fn a_log_in_memory_is_read_until_the_token_is_cancelled() {
        let n = 5 * PIECE + 3;
        let numbers: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let log = Log {
            name: "agent".into(),
            columns: vec!["s_0".into()],
            states: numbers.clone(),
            rewards: numbers.clone(),
            next: numbers.iter().map(|x| x + 1.0).collect(),
            done: vec![false; n],
            truncated: None,
            breaks: None,
            episode: None,
            ratio: None,
            actions: None,
        };
        let token = Cancel::new();
        let files = DiskFiles::new(find::Places::from_env("")).with_logs(vec![log]).with_cancel(&token);
        let [source] = &files.logs(&[], &LogForm::default()).unwrap()[..] else { panic!("one log") };
        let mut seen = Vec::new();
        source
            .read(&mut |batch| {
                assert!(batch.len() <= PIECE);
                seen.extend_from_slice(&batch.rewards);
                Ok(())
            })
            .unwrap();
        assert_eq!(seen, numbers);
        let mut batches = 0;
        let e = source.read(&mut |_| {
            batches += 1;
            token.cancel();
            Ok(())
        });
        assert_eq!((e.unwrap_err().kind(), batches), (ErrorKind::Cancelled, 1));
    }

    fn files() -> DiskFiles {
        DiskFiles::new(find::Places::from_env("."))
    }

    fn of_sets(sets: Vec<Dataset>) -> String {
        files().with_datasets(sets).given_identity().unwrap().to_string()
    }

    fn of_logs(log: Log) -> String {
        files().with_logs(vec![log]).given_identity().unwrap().to_string()
    }

    fn set(d: usize, names: &[&str], targets: Labels) -> Dataset {
        Dataset {
            name: "mine".into(),
            rows: Rows::Dense { d, values: vec![1.0, 2.0, 3.0, 4.0] },
            columns: Columns::Named(names.iter().map(ToString::to_string).collect()),
            targets: Some(targets),
            groups: None,
            texts: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn data_sets_that_differ_in_anything_have_other_digests() {
        let classes = |names: &[&str], of: &[u32]| Labels::Names { names: names.iter().map(ToString::to_string).collect(), of: of.into() };
        let two = || Labels::Numbers(vec![0.0, 1.0]);
        let one = set(2, &["a", "b"], two());
        let with_groups = Dataset { targets: None, groups: one.targets.clone(), ..one.clone() };
        let all = [
            vec![one.clone()],
            vec![one.clone(), one.clone()],
            vec![set(4, &["a", "b"], two())],
            vec![set(1, &["a", "b"], two())],
            vec![set(2, &["a,b"], two())],
            vec![set(2, &["b", "a"], two())],
            vec![set(2, &["a", "b"], Labels::Numbers(vec![1.0, 0.0]))],
            vec![set(2, &["a", "b"], classes(&["x", "y"], &[0, 1]))],
            vec![set(2, &["a", "b"], classes(&["x\ny"], &[0, 0]))],
            vec![with_groups],
            vec![Dataset { rows: one.rows.to_sparse(), ..one.clone() }],
            vec![Dataset { columns: Columns::Counted { width: 2, left_out: Vec::new() }, ..one.clone() }],
            vec![Dataset { columns: Columns::Counted { width: 3, left_out: vec![2] }, ..one.clone() }],
        ];
        let digests: Vec<String> = all.into_iter().map(of_sets).collect();
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "{i}");
        }
        let renamed = Dataset { name: "yours".into(), ..one };
        assert_eq!(of_sets(vec![renamed]), digests[0]);
    }

    #[test]
    fn logs_that_differ_in_anything_have_other_digests() {
        let log = |rewards: [f64; 2], episode: Option<Vec<i64>>, ratio: Option<Vec<f64>>| Log {
            name: "mine".into(),
            columns: vec!["s_0".into()],
            states: vec![0.0, 1.0],
            rewards: rewards.into(),
            next: vec![1.0, 2.0],
            done: vec![false, true],
            truncated: None,
            breaks: None,
            actions: None,
            episode,
            ratio,
        };
        let plain = log([0.0, 1.0], None, None);
        let all = [
            log([0.0, -0.0], None, None),
            log([0.0, 1.0], Some(vec![0, 0]), None),
            log([0.0, 1.0], None, Some(vec![0.0, 0.0])),
            Log { columns: vec!["s_1".into()], ..plain.clone() },
            Log { states: vec![0.0, 2.0], ..plain.clone() },
            Log { next: vec![0.0, 2.0], ..plain.clone() },
            Log { done: vec![true, true], ..plain.clone() },
            Log { truncated: Some(vec![false, false]), ..plain.clone() },
            Log { truncated: Some(vec![false, true]), ..plain.clone() },
            Log { breaks: Some(vec![Break::None; 2]), ..plain.clone() },
            Log { breaks: Some(vec![Break::None, Break::Stream]), ..plain.clone() },
            Log { breaks: Some(vec![Break::None, Break::LeftOut]), ..plain.clone() },
            plain,
        ];
        let digests: Vec<String> = all.into_iter().map(of_logs).collect();
        for (i, digest) in digests.iter().enumerate() {
            assert!(!digests[..i].contains(digest), "{i}");
        }
    }
}
