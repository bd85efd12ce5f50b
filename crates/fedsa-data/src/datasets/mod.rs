//! Data sets of rows with targets: LIBSVM, CSV, Parquet and IDX files. All but Parquet may be compressed with gzip or zstd.
//!
//! A file is read once, as a stream: besides its rows, only a buffer and one line are in memory. The size of the file and the machine's
//! memory limit the memory of the rows (`Room`).
//!
//! | format | recognised by | columns | target | group |
//! | --- | --- | --- | --- | --- |
//! | Parquet | `.parquet`, or its first bytes | by name | a column, of numbers or of text | likewise |
//! | CSV, TSV | `.csv`, `.tsv`, also before `.gz` and `.zst` | by name, from the header | a column, of numbers or of text | likewise |
//! | IDX | its first bytes | `1`, `2`, .. | the file `labels` next to `images` | another file next to it |
//! | LIBSVM | everything else | `1`, `2`, .. | the label | a column |
//!
//! Each format has a module. `sources` finds files by name, `labels` collects targets and groups.

mod idx;
mod labels;
mod layout;
mod libsvm;
mod part;
mod sources;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text_tests;

use std::path::{Path, PathBuf};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, quoted};
use fedsa::note::{Note, NoteCode};
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows, Wanted};

use super::store::Store;
use super::{about, listed, name_of, shown};
use crate::input::{self, Room};
use crate::memory::MemoryTable;
use part::{Beside, Columns, Part, disk, no_features, no_rows};
use sources::Format;

/// Reads the data sets named by the sources, in their order; files of a folder or glob come in natural order.
///
/// # Errors
/// When a source is not found, a file is listed twice or cannot be read, or two files have different columns; or when cancelled, which
/// is checked after each file.
pub(super) fn read(sources: &[String], places: &super::find::Places, wanted: &Wanted, cancel: &Cancel) -> Result<Vec<(PathBuf, Dataset)>> {
    let paths = sources::files(sources, places)?;
    let mut parts: Vec<(PathBuf, Part)> = Vec::new();
    for path in paths {
        let expected = parts.first().and_then(|(_, part)| match &part.columns {
            Columns::Named(names) => Some(&names[..]),
            Columns::Numbered { .. } => None,
        });
        let part = read_file(&path, wanted, expected).map_err(|e| about(&path, e))?;
        parts.push((path, part));
        cancel.check()?;
    }
    count_from_zero(&mut parts, wanted, cancel)?;
    dropped_somewhere(&mut parts)?;
    same_columns(&mut parts)?;
    let datasets = parts.into_iter().map(|(path, part)| {
        let dataset = part.finish(name_of(&path), wanted).map_err(|e| about(&path, e))?;
        Ok((path, dataset))
    });
    datasets.collect()
}

/// If the indices of one LIBSVM file count from 0, rereads the files whose indices were assumed to count from 1.
fn count_from_zero(parts: &mut [(PathBuf, Part)], wanted: &Wanted, cancel: &Cancel) -> Result<()> {
    let is_zero_based = |part: &Part| matches!(part.columns, Columns::Numbered { zero_based: true, .. });
    if !parts.iter().any(|(_, part)| is_zero_based(part)) {
        return Ok(());
    }
    for (path, part) in parts {
        if matches!(part.rows, Rows::Sparse { .. }) && !is_zero_based(part) {
            *part = libsvm::read(&disk(path)?, wanted, true).map_err(|e| about(path, e))?;
            cancel.check()?;
        }
    }
    Ok(())
}

/// The source as an absolute path, so that it does not depend on the working directory; unchanged if there is no such file.
pub fn absolute(source: &str, places: &super::find::Places) -> String {
    sources::absolute(source, places)
}

/// The files named by the sources, as [`Files::datasets`](fedsa_problems::Files::datasets) reads them: in the order of the sources;
/// files of a folder or glob come in natural order.
///
/// # Errors
/// When a source is not found, a folder holds no data or several formats, or a file is listed twice.
pub fn files(sources: &[String], places: &super::find::Places) -> Result<Vec<PathBuf>> {
    sources::files(sources, places)
}

/// Whether the file name belongs to a table: `.csv`, `.tsv`, also before `.gz` and `.zst`, or `.parquet`.
pub fn is_table(path: &Path) -> bool {
    matches!(Format::by_name(path), Some(Format::Csv | Format::Parquet))
}

fn read_file(path: &Path, wanted: &Wanted, expected: Option<&[String]>) -> Result<Part> {
    let store = disk(path)?;
    let format = Format::of(path, &store)?;
    let beside = Beside { open: &|what| idx::beside(path, what), words: &|| idx::words_beside(path) };
    read_store(&store, format, wanted, expected, beside)
}

/// Reads a file.
fn read_store(store: &Store, format: Format, wanted: &Wanted, expected: Option<&[String]>, beside: Beside<'_>) -> Result<Part> {
    let mut room = Room::of(store.len());
    match format {
        Format::Parquet => table::of_parquet(store, wanted, expected, &mut room),
        Format::Csv => table::of_lines(input::open(store)?, wanted, expected, &mut room),
        Format::Idx => idx::read(store, wanted, beside, &mut room),
        Format::Libsvm => libsvm::read(store, wanted, false),
    }
    .and_then(with_rows)
}

/// Rejects a part without rows or without features.
fn with_rows(part: Part) -> Result<Part> {
    if part.rows.is_empty() {
        // Dense rows without columns have no count, but their targets and groups do.
        let labels = [&part.targets, &part.groups].into_iter().flatten().map(Labels::len).max();
        let has_rows = labels.map_or(matches!(part.rows, Rows::Dense { d: 0, .. }), |rows| rows > 0);
        return Err(if has_rows { no_features() } else { no_rows() });
    }
    Ok(part)
}

/// Rejects a column to drop that no file has.
fn dropped_somewhere(parts: &mut [(PathBuf, Part)]) -> Result<()> {
    let Some(((first, part), others)) = parts.split_first_mut() else { return Ok(()) };
    let is_nowhere = |(name, _): &(String, Error)| others.iter().all(|(_, other)| other.lacking.iter().any(|(lacking, _)| lacking == name));
    match part.lacking.drain(..).find(is_nowhere) {
        Some((_, e)) => Err(about(first, e)),
        None => Ok(()),
    }
}

/// Gives sparse rows of all files the largest number of columns.
///
/// # Errors
/// When the columns of two files differ.
fn same_columns(parts: &mut [(PathBuf, Part)]) -> Result<()> {
    let widest = parts.iter().filter(|(_, part)| matches!(part.rows, Rows::Sparse { .. })).map(|(_, part)| part.columns.width()).max();
    for (_, part) in parts.iter_mut() {
        if let (Rows::Sparse { .. }, Columns::Numbered { width, .. }, Some(widest)) = (&part.rows, &mut part.columns, widest) {
            *width = widest;
        }
    }
    let Some(((first, part), others)) = parts.split_first() else { return Ok(()) };
    for (path, other) in others {
        if let Some(difference) = part.columns.differ(&other.columns) {
            let what = format!("{difference} than {}", shown(name_of(first)));
            return Err(Error::data(shown(name_of(path)), what, "files with the same columns"));
        }
    }
    Ok(())
}

impl Part {
    /// The data set of a single part. A column to drop that the part lacks is an error.
    fn alone(mut self, name: String, wanted: &Wanted) -> Result<Dataset> {
        match self.lacking.pop() {
            Some((_, e)) => Err(e),
            None => self.finish(name, wanted),
        }
    }

    fn finish(self, name: String, wanted: &Wanted) -> Result<Dataset> {
        let Self { columns, mut rows, targets, groups, texts, decimal_comma, .. } = self;
        let may_end_before = wanted.may_end_before && matches!(rows, Rows::Sparse { .. });
        let columns = columns.names(may_end_before)?;
        if let Rows::Sparse { d, .. } = &mut rows {
            *d = columns.len();
        }
        if columns.is_empty() && !may_end_before {
            return Err(no_features());
        }
        debug_assert_eq!(rows.columns(), columns.len());
        let note = |what: String| Note::new(NoteCode::DecimalComma, format!("{}: {what}", shown(&name)));
        let notes = decimal_comma.map(note).into_iter().collect();
        Ok(Dataset { name, columns, rows, targets, groups, texts, notes })
    }
}

/// Reads a file in memory; `beside` has the companion files of an IDX file, by name.
fn from_bytes(file: Vec<u8>, format: Format, wanted: &Wanted, beside: &[(&str, Vec<u8>)]) -> Result<Dataset> {
    let open = |what: &str| {
        let file = beside.iter().find(|(name, _)| *name == what);
        Ok(file.map(|(name, bytes)| ((*name).to_string(), Store::from(bytes.clone()))))
    };
    let words = || beside.iter().map(|(name, _)| (*name).to_string()).collect();
    read_store(&Store::from(file), format, wanted, None, Beside { open: &open, words: &words })?.alone(String::new(), wanted)
}

impl MemoryTable<'_> {
    /// The table as a data set, by the rules for files.
    ///
    /// # Errors
    /// When a column is missing or of the wrong type, or a number is missing or not finite.
    pub fn dataset(&self, wanted: &Wanted) -> Result<Dataset> {
        let read = table::of_memory(self, wanted, &mut Room::of(0)).and_then(with_rows);
        let set = read.and_then(|part| part.alone(self.name.clone(), wanted));
        set.map_err(|e| if e.key.is_empty() { e.about(quoted(&self.name)) } else { e })
    }
}

/// A data set (without a name) from the bytes of a LIBSVM file.
///
/// # Errors
/// When a line is not `LABEL INDEX:VALUE ..`, or a number is not finite; names the line.
pub fn from_libsvm(file: Vec<u8>, wanted: &Wanted) -> Result<Dataset> {
    from_bytes(file, Format::Libsvm, wanted, &[])
}

/// A data set (without a name) from the bytes of a CSV file with a header.
///
/// # Errors
/// When a column is missing, or a feature's field is not a finite number; names the line and the column.
pub fn from_csv(file: Vec<u8>, wanted: &Wanted) -> Result<Dataset> {
    from_bytes(file, Format::Csv, wanted, &[])
}

/// A data set (without a name) from the bytes of a Parquet file.
///
/// # Errors
/// When it is not a Parquet file, a column is missing or of the wrong type, or a number is not finite.
pub fn from_parquet(file: Vec<u8>, wanted: &Wanted) -> Result<Dataset> {
    from_bytes(file, Format::Parquet, wanted, &[])
}

/// A data set (without a name) from the bytes of an IDX file and of its companion files by name, such as `labels`.
///
/// # Errors
/// When it is not an IDX file, is truncated, or the companion files have other numbers of rows.
pub fn from_idx(file: Vec<u8>, beside: &[(&str, Vec<u8>)], wanted: &Wanted) -> Result<Dataset> {
    from_bytes(file, Format::Idx, wanted, beside)
}

/// The error for a missing column.
fn no_column(name: &str, names: &[String]) -> Error {
    let found = listed(names.iter().map(String::as_str));
    Error::data("", format!("there is no column `{}`: the columns are {found}", quoted(name)), "the name of a column")
}

/// A checksum of the numbers, labels and names of columns of a data set. Lengths and kinds precede contents, so that different data
/// sets give different bytes. They have the same checksum by chance in one of 2^32 cases.
pub(super) fn checksum(dataset: &Dataset) -> u32 {
    let mut sum = Checksum { hasher: crc32fast::Hasher::new(), bytes: Vec::new() };
    use fedsa_problems::rows::dataset::Columns;
    match &dataset.columns {
        Columns::Named(names) => sum.texts(names),
        // There may be billions of columns.
        Columns::Counted { width, left_out } => {
            sum.hasher.update(b"counted");
            sum.update(&[*width], |x| (x as u64).to_le_bytes());
            sum.update(left_out, |x| (x as u64).to_le_bytes());
        }
    }
    match &dataset.rows {
        Rows::Dense { d, values } => {
            sum.update(&[*d], |x| (x as u64).to_le_bytes());
            sum.update(values, f64::to_le_bytes);
        }
        Rows::Sparse { d, starts, index, value } => {
            sum.hasher.update(b"sparse");
            sum.update(&[*d], |x| (x as u64).to_le_bytes());
            sum.update(starts, |x| (x as u64).to_le_bytes());
            sum.update(index, u32::to_le_bytes);
            sum.update(value, f64::to_le_bytes);
        }
    }
    sum.update(&[dataset.texts.len()], |n| (n as u64).to_le_bytes());
    for text in &dataset.texts {
        sum.texts(std::slice::from_ref(&text.column));
        sum.texts(&text.names);
    }
    for labels in [&dataset.targets, &dataset.groups] {
        match labels {
            None => sum.hasher.update(b"none"),
            Some(Labels::Numbers(numbers)) => sum.update(numbers, f64::to_le_bytes),
            Some(Labels::Names { names, of }) => {
                sum.hasher.update(b"names");
                sum.texts(names);
                sum.update(of, u32::to_le_bytes);
            }
        }
    }
    sum.hasher.finalize()
}

struct Checksum {
    hasher: crc32fast::Hasher,
    bytes: Vec<u8>,
}

impl Checksum {
    fn texts(&mut self, all: &[String]) {
        self.update(&[all.len()], |n| (n as u64).to_le_bytes());
        all.iter().for_each(|text| self.update(text.as_bytes(), |byte| [byte]));
    }

    fn update<T: Copy, const N: usize>(&mut self, values: &[T], bytes: impl Fn(T) -> [u8; N]) {
        const STEP: usize = 4096;
        self.hasher.update(&(values.len() as u64).to_le_bytes());
        for values in values.chunks(STEP) {
            self.bytes.resize(values.len() * N, 0);
            self.bytes.chunks_exact_mut(N).zip(values).for_each(|(out, value)| out.copy_from_slice(&bytes(*value)));
            self.hasher.update(&self.bytes);
        }
    }
}
