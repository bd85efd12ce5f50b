//! The formats of logs, identified by content.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

use fedsa::error::{Error, Result};
use fedsa_problems::logs::log_form::LogForm;

use super::ahead::{self, Ahead};
use super::columns::{LogColumns, each_whole};
use super::first_pass::{FirstPass, Rows};
use super::layout::Layout;
use crate::batch::{As, Batches};
use crate::find::extension_of;
use crate::lines::Lines;
use crate::parquet::{ParquetFile, contained, contained_while};
use crate::separated::{self, Opened};
use crate::store::Store;
use crate::{input, unreadable};

/// The most transitions of a batch.
pub(super) const BATCH: usize = 8192;

/// The name of the thread that reads lines.
const THREAD: &str = "fedsa-csv";

/// The formats of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Csv,
}

/// A request to read a log.
struct Request<'a> {
    form: &'a LogForm,
    name: &'a str,
    /// The most rows of a batch.
    most: usize,
    ahead: Ahead,
}

impl Request<'_> {
    /// Reads a table with these column names. `open` opens the table for the columns to read.
    fn read<'t>(&self, names: &[String], open: impl FnOnce(&LogColumns, usize) -> Result<Box<dyn Batches + 't>>) -> Result<FirstPass> {
        let layout = Layout::new(names, self.form)?;
        let (empty, most) = (layout.empty(self.name), layout.batch(self.most));
        let columns = LogColumns::new(names, layout);
        let mut table = open(&columns, most)?;
        // If the receiver stops because of an error, it reports this error.
        columns.read(&mut *table, &mut || self.ahead.batch(|| Rows::new(empty.clone())), &mut |rows| self.ahead.hand_on(rows))
    }

    fn read_parquet(&self, file: &ParquetFile) -> Result<FirstPass> {
        self.read(&file.names(), |columns, most| {
            columns.check_types(|column| file.data_type(column))?;
            let wanted: Vec<usize> = columns.wanted.iter().map(|(column, _)| *column).collect();
            Ok(Box::new(file.batches(&wanted, most)?))
        })
    }

    fn read_lines(&self, file: &Store) -> Result<FirstPass> {
        let opened = lines(file)?;
        let names = opened.names.clone();
        self.read(&names, |columns, most| {
            Ok(Box::new(Lines::new(opened, most).of_columns(columns.wanted.clone()).skipping(columns.layout.skips)))
        })
    }
}

fn lines(file: &Store) -> Result<Opened> {
    separated::open(input::open(file)?)
}

impl Format {
    /// Parquet by its first bytes or its name, else text.
    pub fn of(path: &Path, store: &Store) -> Result<Self> {
        const MAGIC: &[u8] = b"PAR1";
        let length = MAGIC.len().min(usize::try_from(store.len()).unwrap_or(usize::MAX));
        let start = store.bytes(0, length).map_err(|e| unreadable(path, &e))?;
        let is_parquet = start == MAGIC || extension_of(path).is_some_and(|extension| extension == "parquet");
        Ok(if is_parquet { Self::Parquet } else { Self::Csv })
    }

    /// The names of all columns of a file.
    pub fn names(self, file: &Store) -> Result<Vec<String>> {
        match self {
            Self::Parquet => contained(file.clone(), |file| Ok(file.names())),
            Self::Csv => Ok(lines(file)?.names),
        }
    }

    /// The positions of a log's columns.
    pub fn layout(self, file: &Store, form: &LogForm) -> Result<Layout> {
        match self {
            Self::Parquet => contained(file.clone(), |file| {
                let layout = Layout::new(&file.names(), form)?;
                LogColumns::new(&file.names(), layout.clone()).check_types(|column| file.data_type(column)).map(|()| layout)
            }),
            Self::Csv => Layout::new(&lines(file)?.names, form),
        }
    }

    /// Calls `see` with all transitions, in batches of at most `most`. A separate thread decodes the file while the calling thread
    /// processes the batch before.
    pub fn read(self, file: Store, form: &LogForm, name: &str, most: usize, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<FirstPass> {
        let (ahead, behind) = ahead::both();
        let request = Request { form, name, most, ahead };
        let (read, seen) = match self {
            Self::Parquet => contained_while(file, move |file| request.read_parquet(file), move || behind.see(see)),
            Self::Csv => thread::scope(|scope| {
                let read = thread::Builder::new().name(THREAD.into());
                let spawned = read.spawn_scoped(scope, move || request.read_lines(&file));
                // If the thread cannot be spawned, its sender is dropped, and `see` gets no batches.
                let seen = behind.see(see);
                let read = match spawned {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    Err(e) => Err(Error::machine(format!("no thread to read it on: {e}"), "memory for one more thread")),
                };
                (read, seen)
            }),
        };
        seen.and(read)
    }

    /// Calls `see` with the episode of each row, as far as rows can be read.
    pub fn each_episode(self, file: &Store, column: usize, see: &mut (dyn FnMut(i64) + Send)) -> Result<()> {
        match self {
            Self::Parquet => contained(file.clone(), |file| each_whole(&mut file.batches(&[column], BATCH)?, see)),
            // Errors are ignored here: reading the transitions reports them.
            Self::Csv => {
                let lines = Lines::new(lines(file)?, BATCH).of_columns(vec![(column, As::Whole)]).skipping(true);
                each_whole(&mut { lines }, see).or(Ok(()))
            }
        }
    }
}
