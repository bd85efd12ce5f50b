//! The files that a user names by a path, a glob, a folder, or the name of a data set.

use std::io::Read;
use std::path::{Path, PathBuf};

use fedsa::error::{Error, Result};

use super::part::disk;
use super::{idx, libsvm};
use crate::find::{self, Places, natural_order};
use crate::input;
use crate::public::registry::{PublicFile, SETS};
use crate::store::Store;
use crate::{name_of, shown, unreadable};

/// The formats of data sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Parquet,
    Csv,
    Idx,
    Libsvm,
}

/// The endings that may follow a data set's name in a file name.
const ENDINGS: [&str; 13] = [
    "-images-idx3-ubyte.gz",
    "-images-idx3-ubyte",
    ".csv.gz",
    ".csv.zst",
    ".csv",
    ".tsv.gz",
    ".tsv.zst",
    ".tsv",
    ".parquet",
    ".libsvm",
    ".svm",
    ".gz",
    ".zst",
];

impl Format {
    /// The format by the name of a file.
    pub(super) fn by_name(path: &Path) -> Option<Self> {
        match crate::find::inner_extension(path)?.as_str() {
            "csv" | "tsv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }

    /// The format of a file that the user names.
    ///
    /// # Errors
    /// When the file cannot be read, or has the extension of something else.
    pub(super) fn of(path: &Path, store: &Store) -> Result<Self> {
        match Self::by_name(path) {
            Some(Self::Csv) if start(store)?.starts_with(b"PAR1") => return Ok(Self::Parquet),
            Some(format) => return Ok(format),
            None => (),
        }
        let other = ["npz", "npy", "json", "toml", "zip", "bz2", "xz", "tar", "tgz", "xlsx", "arrow", "feather", "h5", "mat"];
        if let Some(extension) = crate::find::extension_of(path).filter(|extension| other.contains(&extension.as_str())) {
            let help = "a LIBSVM, CSV (.csv, .tsv), Parquet (.parquet) or IDX file; all but Parquet packed with gzip or zstd, or not";
            return Err(Error::data("", format!("no data sets are read from files with the extension .{extension}"), help));
        }
        let start = start(store)?;
        Ok(match start {
            _ if idx::dimensions(&start).is_some() => Self::Idx,
            _ if start.starts_with(b"PAR1") => Self::Parquet,
            // An unknown magic number: the reader reports it.
            _ if named_dimensions(path).is_some() && !libsvm::looks_so(&start) => Self::Idx,
            _ => Self::Libsvm,
        })
    }

    /// The format of a file in a folder; `None` if it is not data: a licence, a list of checksums, labels of images.
    fn of_member(path: &Path) -> Result<Option<Self>> {
        if let Some(format) = Self::by_name(path) {
            return Ok(Some(format));
        }
        // An incomplete download of `fedsa data fetch`.
        if crate::find::extension_of(path).is_some_and(|extension| extension == "part") {
            return Ok(None);
        }
        let start = start(&disk(path)?)?;
        Ok(match idx::dimensions(&start) {
            Some(1) => None,
            Some(_) => Some(Self::Idx),
            None if start.starts_with(b"PAR1") => Some(Self::Parquet),
            None if libsvm::looks_so(&start) => Some(Self::Libsvm),
            // Images with an unknown magic number are rejected by the reader, not skipped.
            None => named_dimensions(path).is_some_and(|dimensions| dimensions > 1).then_some(Self::Idx),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Csv => "CSV",
            Self::Idx => "IDX",
            Self::Libsvm => "LIBSVM",
        }
    }
}

/// The number of dimensions in the name of an IDX file: 3 for `train-images-idx3-ubyte.gz`.
fn named_dimensions(path: &Path) -> Option<u8> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    match name.rsplit_once("idx")?.1.as_bytes() {
        [dimensions @ b'1'..=b'8', b'-', ..] => Some(dimensions - b'0'),
        _ => None,
    }
}

/// The first bytes of a file, uncompressed.
fn start(store: &Store) -> Result<Vec<u8>> {
    const MOST: u64 = 1024;
    let mut start = Vec::new();
    match input::open(store)?.take(MOST).read_to_end(&mut start) {
        // The reader rejects a file that is damaged further on.
        Err(e) if start.is_empty() => Err(input::broken("its start", &e)),
        _ => Ok(start),
    }
}

/// The files of all sources, in the order of the sources; files of a folder or glob come in natural order.
///
/// # Errors
/// When there is no source, one is not found, a folder holds no data or several formats, or a file is listed twice.
pub(super) fn files(sources: &[String], places: &Places) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for source in sources {
        paths.extend(of_source(source, places)?);
    }
    if paths.is_empty() {
        return Err(Error::data("", "no data", "at least one file"));
    }
    find::each_once(&paths, "file", "each file once")?;
    Ok(paths)
}

fn of_source(source: &str, places: &Places) -> Result<Vec<PathBuf>> {
    match places.locate(source) {
        Ok(folder) if folder.is_dir() => members(&folder),
        Ok(file) => Ok(vec![file]),
        Err(_) if source.contains(['*', '?', '[']) => {
            let mut files = places.matches(source).map_err(missing)?;
            files.sort_by(|a, b| natural_order(&name_of(a), &name_of(b)));
            Ok(files)
        }
        Err(e) => match begun(source, places) {
            Some((file, _)) => Ok(vec![file]),
            None => elsewhere(source, places).ok_or_else(|| missing(e)),
        },
    }
}

/// The file whose name begins with `source`, and the rest of its name: `fashion-mnist/train` is
/// `fashion-mnist/train-images-idx3-ubyte.gz`.
fn begun(source: &str, places: &Places) -> Option<(PathBuf, &'static str)> {
    let found = |ending: &&'static str| Some((places.locate(&format!("{source}{ending}")).ok()?, *ending));
    if source.is_empty() { None } else { ENDINGS.iter().find_map(found) }
}

/// The source as an absolute path, as [`Places::absolute`]; `source` may be the beginning of a file name.
pub(super) fn absolute(source: &str, places: &Places) -> String {
    let ending = if places.locate(source).is_ok() { None } else { begun(source, places).map(|(_, ending)| ending) };
    let Some(ending) = ending else { return places.absolute(source) };
    let file = places.absolute(&format!("{source}{ending}"));
    file.strip_suffix(ending).unwrap_or(&file).to_string()
}

/// The files of a public data set in its alternative folder, which is named after another set, if they have the expected sizes.
fn elsewhere(source: &str, places: &Places) -> Option<Vec<PathBuf>> {
    let (set, other, rest) = SETS.iter().find_map(|set| {
        let rest = source.strip_prefix(set.name).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
        Some((set, set.also_in?, rest))
    })?;
    let found = of_source(&format!("{other}{rest}"), places).ok()?;
    let is_of_set = |path: &PathBuf| {
        let length = path.metadata().map(|file| file.len()).ok();
        let named = |file: &PublicFile| path.file_name().is_some_and(|name| file.path.rsplit('/').next() == name.to_str());
        set.files.iter().any(|file| named(file) && Some(file.size) == length)
    };
    found.iter().all(is_of_set).then_some(found)
}

/// The error for a missing source.
fn missing(e: Error) -> Error {
    let help = "a file, a folder or a glob; or the name of a data set (FOLDER/NAME, such as libsvm/w8a) in the folder that the \
                environment variable FEDSA_DATA names or in the cache: `fedsa data list` lists those that `fedsa data fetch` gets";
    e.helped(help)
}

/// The data files of a folder, which have one format. Hidden files and folders are skipped.
fn members(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<(PathBuf, Format)> = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| unreadable(folder, &e))? {
        let path = entry.map_err(|e| unreadable(folder, &e))?.path();
        let hidden = path.file_name().is_none_or(|name| name.to_string_lossy().starts_with('.'));
        if !hidden
            && !path.is_dir()
            && let Some(format) = Format::of_member(&path)?
        {
            found.push((path, format));
        }
    }
    let bad = |what: String, help: &str| Err(Error::data(shown(name_of(folder)), what, help));
    found.sort_by(|(a, _), (b, _)| natural_order(&name_of(a), &name_of(b)));
    let Some((first, format)) = found.first() else {
        return bad("the folder holds no data".into(), "a folder with LIBSVM, CSV (.csv, .tsv), Parquet (.parquet) or IDX files");
    };
    if let Some((other, another)) = found.iter().find(|(_, another)| another != format) {
        let name = |path: &Path| shown(path.file_name().unwrap_or_default().to_string_lossy());
        let what = format!("the folder holds {} ({}) and {} ({})", format.name(), name(first), another.name(), name(other));
        return bad(what, "files of one format: name them, or give a glob");
    }
    Ok(found.into_iter().map(|(path, _)| path).collect())
}
