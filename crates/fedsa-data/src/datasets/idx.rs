//! IDX files: big-endian arrays of numbers, as in MNIST.
//!
//! The first dimension is the row; the others are flattened into columns `1`, `2`, .., in the order of the file. Labels and groups are
//! one-dimensional files in the same folder. For `train-images-idx3-ubyte.gz` the labels are in `train-labels-idx1-ubyte.gz`; for
//! `images-idx3-ubyte` the writers are in `writers-idx1-ubyte`.

use std::io::{self, Read};
use std::path::Path;

use fedsa::error::{Error, Result, quoted};
use fedsa::settings::{did_you_mean, nearest};
use fedsa_problems::rows::dataset::{Labels, Rows, Wanted};

use super::part::{Beside, Columns, Part, disk, no_features, no_rows, not_finite};
use crate::input::{Input, Room, broken, open};
use crate::store::Store;
use crate::{about, name_of, shown};

/// The most dimensions.
const MAX_DIMENSIONS: u8 = 8;
/// The number of bytes decoded at a time; a multiple of every number's size.
const STEP: usize = 32 << 10;

/// The most extra bytes that are counted.
const MAX_COUNTED: u64 = 64 << 20;
/// The accepted magic numbers.
const ACCEPTED: &str = "0x00000803 (images: unsigned bytes in 3 dimensions) or 0x00000801 (labels: unsigned bytes in 1 dimension); \
    other types have 09, 0b, 0c, 0d or 0e in place of 08, and the last byte is the number of dimensions, from 1 to 8";

/// The type of the numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    U8,
    I8,
    I16,
    I32,
    F32,
    F64,
}

impl Kind {
    fn of(code: u8) -> Option<Self> {
        Some(match code {
            0x08 => Self::U8,
            0x09 => Self::I8,
            0x0b => Self::I16,
            0x0c => Self::I32,
            0x0d => Self::F32,
            0x0e => Self::F64,
            _ => return None,
        })
    }

    fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Adds the numbers of these bytes to `out`.
    fn decode(self, bytes: &[u8], out: &mut Vec<f64>) {
        match self {
            Self::U8 => out.extend(bytes.iter().map(|byte| f64::from(*byte))),
            Self::I8 => out.extend(bytes.iter().map(|byte| f64::from(byte.cast_signed()))),
            Self::I16 => out.extend(bytes.as_chunks().0.iter().map(|x| f64::from(i16::from_be_bytes(*x)))),
            Self::I32 => out.extend(bytes.as_chunks().0.iter().map(|x| f64::from(i32::from_be_bytes(*x)))),
            Self::F32 => out.extend(bytes.as_chunks().0.iter().map(|x| f64::from(f32::from_be_bytes(*x)))),
            Self::F64 => out.extend(bytes.as_chunks().0.iter().map(|x| f64::from_be_bytes(*x))),
        }
    }
}

/// The number of dimensions that a file with this start has, if it is an IDX file.
pub(super) fn dimensions(start: &[u8]) -> Option<u8> {
    match start {
        [0, 0, kind, dimensions @ 1..=MAX_DIMENSIONS, ..] if Kind::of(*kind).is_some() => Some(*dimensions),
        _ => None,
    }
}

/// The sizes that a file claims.
#[derive(Debug)]
struct Header {
    /// The first four bytes.
    magic: [u8; 4],
    kind: Kind,
    /// The size of each dimension.
    sizes: Vec<usize>,
    /// The number of rows.
    n: usize,
    /// The number of entries of a row.
    d: usize,
}

impl Header {
    /// Reads the header. Its claims are checked against the size of the file, unless the file is compressed.
    fn read(input: &mut Input, file: u64) -> Result<Self> {
        let mut start = [0; 4];
        input.read_exact(&mut start).map_err(|e| broken("its header", &e))?;
        let (Some(dimensions), Some(kind)) = (dimensions(&start), Kind::of(start[2])) else {
            return Err(Error::data("", format!("its magic number {} is that of no IDX file", hexadecimal(start)), ACCEPTED));
        };
        let mut sizes = Vec::new();
        for _ in 0..dimensions {
            let mut size = [0; 4];
            input.read_exact(&mut size).map_err(|e| broken("its header", &e))?;
            sizes.push(u32::from_be_bytes(size) as usize);
        }
        let (n, d) = (sizes[0], sizes[1..].iter().try_fold(1, |d: usize, size| d.checked_mul(*size)));
        let bytes = d.and_then(|d| d.checked_mul(n)?.checked_mul(kind.size()));
        let header = Self { magic: start, kind, sizes, n, d: d.unwrap_or(0) };
        match bytes {
            Some(bytes) if input.packed || bytes as u64 == file.saturating_sub(header.length()) => Ok(header),
            _ if input.packed => Err(header.wrong_size(&format!("{file} in the packed file"))),
            _ => Err(header.wrong_size(&file.to_string())),
        }
    }

    /// The number of dimensions.
    fn dimensions(&self) -> usize {
        self.sizes.len()
    }

    /// The length of the header in bytes.
    fn length(&self) -> u64 {
        4 + 4 * self.sizes.len() as u64
    }

    /// The error for a file whose size differs from its header; `there` is its size in bytes, as text.
    fn wrong_size(&self, there: &str) -> Error {
        let sizes = self.sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
        let of = if self.kind.size() == 1 { "1 byte".into() } else { format!("{} bytes", self.kind.size()) };
        let all = self.sizes.iter().try_fold(self.kind.size() as u128, |bytes, size| bytes.checked_mul(*size as u128));
        let all = all.and_then(|bytes| bytes.checked_add(u128::from(self.length())));
        let all = all.map_or_else(|| "more than 2^128".into(), |bytes| bytes.to_string());
        let what = format!("its header claims {sizes} numbers of {of}: with the header {all} bytes are expected, and there are {there}");
        Error::data("", what, "a complete IDX file: get it again")
    }
}

/// The first four bytes of a file as in the format's documentation: `0x00000803`.
fn hexadecimal(magic: [u8; 4]) -> String {
    format!("0x{:08x}", u32::from_be_bytes(magic))
}

/// All numbers of a file.
fn numbers(store: &Store, room: &mut Room) -> Result<(Header, Vec<f64>)> {
    let mut input = open(store)?;
    let header = Header::read(&mut input, store.len())?;
    let (n, d, size) = (header.n, header.d, header.kind.size());
    let total = n.saturating_mul(d);
    room.take(total.saturating_mul(size_of::<f64>()), || format!("its {n} rows of {d} numbers"))?;
    let unpacked = if input.packed { ", unpacked" } else { "" };
    let there = |bytes: usize| format!("{}{unpacked}", header.length() + bytes as u64);
    // The header of a compressed file may claim more than the file contains: the vector grows instead.
    let mut out = Vec::with_capacity(if input.packed { 0 } else { total });
    let mut bytes = vec![0; STEP];
    while out.len() < total {
        let now = &mut bytes[..STEP.min((total - out.len()) * size)];
        let read = input.fill(now).map_err(|e| broken(&format!("row {} of {n}", out.len() / d.max(1)), &e))?;
        if read < now.len() {
            return Err(header.wrong_size(&there(out.len() * size + read)));
        }
        let first = out.len();
        header.kind.decode(now, &mut out);
        if let Some(i) = out[first..].iter().position(|x| !x.is_finite()) {
            let (row, column) = ((first + i) / d, (first + i) % d);
            let place = format!("row {}, column {}", row + 1, column + 1);
            return Err(not_finite(&place, &out[first + i].to_string(), "finite numbers: leave such rows out"));
        }
    }
    // Reading to the end also checks the checksums of compressed files.
    let more = io::copy(&mut (&mut input).take(MAX_COUNTED), &mut io::sink()).map_err(|e| broken("its end", &e))?;
    if more > 0 {
        let least = if more == MAX_COUNTED { "at least " } else { "" };
        return Err(header.wrong_size(&format!("{least}{}", there(total * size + more as usize))));
    }
    Ok((header, out))
}

/// The error for a missing file of labels; files for `words` exist.
fn missing(word: &str, words: &[String]) -> Error {
    let near = nearest(word, words.iter().map(String::as_str));
    let what = format!("there is no file `{}` beside it{}", quoted(word), did_you_mean(near));
    let help = match words.is_empty() {
        true => "beside X-images-idx3-ubyte a file X-labels-idx1-ubyte, packed with gzip or not; or with another word".to_string(),
        false => format!("one of the words of the files that are there: {}", words.join(", ")),
    };
    Error::data("", what, help)
}

/// Reads rows, and their labels and groups from the companion files.
///
/// # Errors
/// When a file is not an IDX file, is truncated, holds numbers that are not finite, or the number of labels is not the number of rows.
pub(super) fn read(store: &Store, wanted: &Wanted, beside: Beside<'_>, room: &mut Room) -> Result<Part> {
    let (header, mut values) = numbers(store, room)?;
    let (n, mut d) = (header.n, header.d);
    if header.dimensions() == 1 {
        let what = format!("its magic number {} is that of one number for each of {n} rows: labels, not data", hexadecimal(header.magic));
        return Err(Error::data("", what, "the file with the images, such as train-images-idx3-ubyte, whose magic number is 0x00000803"));
    }
    if values.is_empty() {
        return Err(if n == 0 { no_rows() } else { no_features() });
    }
    let width = d;
    let column = |name: &String| match name.parse::<usize>() {
        Ok(i) if (1..=width).contains(&i) => Ok(i - 1),
        _ => Err(Error::data("", format!("there is no column `{}`", quoted(name)), format!("a column from 1 to {width}"))),
    };
    let mut left_out = wanted.drop.iter().map(column).collect::<Result<Vec<_>>>()?;
    left_out.sort_unstable();
    left_out.dedup();
    if !left_out.is_empty() {
        let mut j = 0;
        values.retain(|_| {
            j = if j == width { 1 } else { j + 1 };
            left_out.binary_search(&(j - 1)).is_err()
        });
        d -= left_out.len();
    }
    let mut labels = |what: &str| match (beside.open)(what)? {
        None => Ok(None),
        Some((name, file)) => {
            let inside = |e: Error| e.about("").prefixed(shown(&name).to_string());
            let (header, labels) = numbers(&file, room).map_err(inside)?;
            if header.dimensions() != 1 {
                let (magic, dimensions) = (hexadecimal(header.magic), header.dimensions());
                let what = format!("{}: its magic number {magic} is that of an array of {dimensions} dimensions", shown(&name));
                return Err(Error::data("", what, "0x00000801: unsigned bytes in 1 dimension, one for each row"));
            }
            if labels.len() != n {
                let what = format!("{}: {} numbers for {n} rows", shown(&name), labels.len());
                return Err(Error::data("", what, "one number for each row"));
            }
            Ok(Some(Labels::Numbers(labels)))
        }
    };
    let missing = |what: &str| missing(what, &(beside.words)());
    let target = wanted.target.as_deref().filter(|name| !["label", "target"].contains(name)).unwrap_or("labels");
    let targets = labels(target)?;
    if targets.is_none() && !wanted.may_lack_target {
        return Err(missing(target));
    }
    let groups = wanted.group.as_deref().map(|group| labels(group)?.ok_or_else(|| missing(group))).transpose()?;
    Ok(Part {
        columns: Columns::Numbered { width, left_out, zero_based: false },
        rows: Rows::Dense { d, values },
        targets,
        groups,
        texts: Vec::new(),
        decimal_comma: None,
        lacking: Vec::new(),
    })
}

/// The words that replace `images` in the names of companion files of a file of images.
pub(super) fn words_beside(path: &Path) -> Vec<String> {
    let Some((before, after)) = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.split_once(IMAGES)) else {
        return Vec::new();
    };
    let after = one_dimension(after);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let word = |name: String| Some(name.strip_suffix(".gz").unwrap_or(&name).strip_prefix(before)?.strip_suffix(&after)?.to_string());
    let mut words: Vec<String> = names.filter_map(word).filter(|word| is_word(word)).map(|word| quoted(word).to_string()).collect();
    words.sort();
    words.dedup();
    words
}

const IMAGES: &str = "images";

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// The end of a one-dimensional file's name, uncompressed, from the name of images.
fn one_dimension(after: &str) -> String {
    let after = after.strip_suffix(".gz").unwrap_or(after);
    ["idx2", "idx3", "idx4"].iter().fold(after.to_string(), |text, idx| text.replace(idx, "idx1"))
}

/// The companion file for `what`, such as labels, of a file of images, and its name.
///
/// # Errors
/// When it exists but cannot be opened.
pub(super) fn beside(path: &Path, what: &str) -> Result<Option<(String, Store)>> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let Some(at) = name.rfind(IMAGES).filter(|_| is_word(what)) else { return Ok(None) };
    let (before, after) = (&name[..at], &name[at + IMAGES.len()..]);
    let one = one_dimension(after);
    for file in [format!("{before}{what}{one}.gz"), format!("{before}{what}{one}")] {
        let path = path.with_file_name(file);
        if path.symlink_metadata().is_ok() {
            return Ok(Some((name_of(&path), disk(&path).map_err(|e| about(&path, e.about("")))?)));
        }
    }
    Ok(None)
}
