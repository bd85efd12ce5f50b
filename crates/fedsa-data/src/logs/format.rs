//! The formats of logs, told by content.

use std::path::Path;

use fedsa::error::Result;
use fedsa::problem::log_form::LogForm;

use super::columns::{LogColumns, each_episode as each_row_episode, read_parquet};
use super::layout::Layout;
use super::lines::{each_episode as each_line_episode, open_csv, read_csv};
use super::told::{Rows, Told};
use crate::find::extension_of;
use crate::parquet::contained;
use crate::store::Store;
use crate::unreadable;

/// The most transitions of a batch.
pub(super) const BATCH: usize = 8192;

/// The formats of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Csv,
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
            Self::Csv => Ok(open_csv(file)?.names),
        }
    }

    /// Where the columns of a log are.
    pub fn layout(self, file: &Store, form: &LogForm) -> Result<Layout> {
        match self {
            Self::Parquet => contained(file.clone(), |file| Ok(LogColumns::new(file, form)?.layout)),
            Self::Csv => Layout::new(&open_csv(file)?.names, form),
        }
    }

    /// Calls `see` with all transitions, in batches of at most `most`.
    pub fn read(self, file: Store, form: &LogForm, name: &str, most: usize, see: &mut dyn FnMut(&Rows) -> Result<()>) -> Result<Told> {
        match self {
            Self::Parquet => read_parquet(file, form, name, most, see),
            Self::Csv => read_csv(&file, form, name, most, see),
        }
    }

    /// Calls `see` with the episode of each row, as far as rows can be read.
    pub fn each_episode(self, file: &Store, column: usize, see: &mut (dyn FnMut(i64) + Send)) -> Result<()> {
        match self {
            Self::Parquet => contained(file.clone(), |file| each_row_episode(file, column, see)),
            Self::Csv => each_line_episode(file, column, see),
        }
    }
}
