//! NumPy's `.npz`: a zip archive of `.npy` arrays.
//!
//! This module has its own reader of the `.npy` format; `docs/src/inside/decisions/index.md` gives the
//! reason.

use std::io::{Cursor, Read, Write};
use std::path::Path;

use fedsa::error::{Error, Result, quoted};
use fedsa::problem::arrays::{Array, Arrays, count, shape_text};
use zip::read::ZipArchive;
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, DateTime};

use super::{about, exact, shown};

/// The longest header of an array; NumPy's own limit.
const MAX_HEADER: usize = 10_000;
/// The first bytes of an array, before the version of the format.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads all arrays of an `.npz` as doubles.
///
/// Entries may be floats of 4 or 8 bytes, integers of any size or booleans, of
/// either byte order, in C or Fortran order, stored or deflated.
///
/// # Errors
/// When the file cannot be read, is not an `.npz`, or contains arrays of another
/// type or integers that a double cannot represent exactly.
pub fn read(path: &Path) -> Result<Arrays> {
    from_bytes(&super::read(path)?).map_err(|e| about(path, e))
}

/// As [`read`], for a file in memory.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(file: &[u8]) -> Result<Arrays> {
    if file.is_empty() {
        return Err(unreadable(&"the file is empty"));
    }
    let mut archive = ZipArchive::new(Cursor::new(file)).map_err(|e| unreadable(&e))?;
    let mut arrays = Arrays::new();
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(|e| unreadable(&e))?;
        // Other files in the archive are ignored, as NumPy does.
        let Some(name) = entry.name().strip_suffix(".npy").map(str::to_string) else { continue };
        let limit = entry.size().min(super::size_limit() as u64);
        let array = read_array(entry, limit).map_err(|e| e.about(quoted(&name)))?;
        arrays.insert(name, array);
    }
    Ok(arrays)
}

/// The bytes of an `.npz` that `np.load` reads, without compression and time stamps. Equal arrays give equal bytes.
///
/// # Errors
/// When there are more arrays or longer names than an archive can contain.
pub fn to_bytes(arrays: &Arrays) -> Result<Vec<u8>> {
    let bad = |e: &dyn std::fmt::Display| {
        Error::data("", format!("no .npz can hold these arrays: {}", shown(e)), "fewer arrays with shorter names")
    };
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, array) in arrays.iter() {
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .last_modified_time(DateTime::DEFAULT)
            .unix_permissions(0o644)
            .large_file(size_of_val(array.data()) > u32::MAX as usize - MAX_HEADER);
        archive.start_file(format!("{name}.npy"), options).map_err(|e| bad(&e))?;
        archive.write_all(&header_of(array)).map_err(|e| bad(&e))?;
        for block in array.data().chunks(1 << 13) {
            let bytes: Vec<u8> = block.iter().flat_map(|v| v.to_le_bytes()).collect();
            archive.write_all(&bytes).map_err(|e| bad(&e))?;
        }
    }
    Ok(archive.finish().map_err(|e| bad(&e))?.into_inner())
}

/// The header of an array of doubles: format 1.0, the length a multiple of 64.
fn header_of(array: &Array) -> Vec<u8> {
    let dict = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {}, }}", shape_text(array.shape()));
    let prefix = MAGIC.len() + 4;
    let total = (prefix + dict.len() + 1).next_multiple_of(64);
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    header.extend(((total - prefix) as u16).to_le_bytes());
    header.extend(dict.bytes());
    header.resize(total - 1, b' ');
    header.push(b'\n');
    header
}

fn unreadable(why: &dyn std::fmt::Display) -> Error {
    Error::data("", format!("not a readable .npz: {}", shown(why)), "a file that np.savez or np.savez_compressed wrote")
}

fn truncated(e: std::io::Error) -> Error {
    Error::data("", format!("the array is damaged: {}", shown(e)), "a file that np.savez or np.savez_compressed wrote")
}

/// Reads one array that unpacks to at most `limit` bytes.
fn read_array(mut entry: impl Read, limit: u64) -> Result<Array> {
    let header = Header::read(&mut entry)?;
    let n = count(&header.shape);
    let bytes = n.and_then(|n| n.checked_mul(header.kind.width())).map(|bytes| bytes as u64);
    let (Some(n), Some(_)) = (n, bytes.filter(|bytes| *bytes <= limit)) else {
        let what = format!("the header claims the shape {}, but there are too few bytes", shape_text(&header.shape));
        return Err(Error::data("", what, "an array that is not damaged"));
    };
    let width = header.kind.width();
    let mut data = Vec::with_capacity(n);
    let mut block = vec![0; (1 << 13) * width];
    while data.len() < n {
        let block = &mut block[..(n - data.len()).min(1 << 13) * width];
        entry.read_exact(block).map_err(truncated)?;
        for item in block.chunks_exact(width) {
            data.push(header.number(item, data.len())?);
        }
    }
    // At the end the archive compares checksums.
    if entry.read(&mut [0]).map_err(truncated)? != 0 {
        let what = format!("there are more bytes than the shape {} needs", shape_text(&header.shape));
        return Err(Error::data("", what, "an array that is not damaged"));
    }
    if header.fortran_order {
        data = c_order(&header.shape, &data);
    }
    Array::new(header.shape, data)
}

/// The entries of an array in C order, given those in Fortran order.
fn c_order(shape: &[usize], data: &[f64]) -> Vec<f64> {
    let mut index = vec![0; shape.len()];
    let mut from = 0; // the place of `index` in Fortran order
    let strides: Vec<usize> = shape.iter().scan(1, |stride, size| Some(std::mem::replace(stride, *stride * size))).collect();
    let mut out = Vec::with_capacity(data.len());
    for _ in 0..data.len() {
        out.push(data[from]);
        for j in (0..shape.len()).rev() {
            index[j] += 1;
            from += strides[j];
            if index[j] < shape[j] {
                break;
            }
            from -= strides[j] * shape[j];
            index[j] = 0;
        }
    }
    out
}

/// The type of an array's entries.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Bool,
    Signed(usize),
    Unsigned(usize),
    Float4,
    Float8,
}

impl Kind {
    /// From NumPy's code without the byte order: `f8`.
    fn parse(code: &str) -> Option<Self> {
        let size = || code.get(1..)?.parse().ok().filter(|size| [1, 2, 4, 8].contains(size));
        Some(match (code.get(..1)?, code) {
            (_, "b1") => Self::Bool,
            (_, "f4") => Self::Float4,
            (_, "f8") => Self::Float8,
            ("i", _) => Self::Signed(size()?),
            ("u", _) => Self::Unsigned(size()?),
            _ => return None,
        })
    }

    /// The bytes of an entry.
    fn width(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::Float4 => 4,
            Self::Float8 => 8,
            Self::Signed(width) | Self::Unsigned(width) => width,
        }
    }
}

/// The header of a `.npy`.
struct Header {
    kind: Kind,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    fn read(entry: &mut impl Read) -> Result<Self> {
        let mut start = [0; 8];
        entry.read_exact(&mut start).map_err(truncated)?;
        let bad = |what: String| Error::data("", what, "an array as np.save writes it");
        let Some([major, _minor]) = start.strip_prefix(MAGIC) else { return Err(bad("not a NumPy array".into())) };
        let mut length = [0; 4];
        let digits = match major {
            1 => 2,
            2 | 3 => 4,
            _ => return Err(bad(format!("version {major} of NumPy's format is unknown"))),
        };
        entry.read_exact(&mut length[..digits]).map_err(truncated)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(bad(format!("a header of {length} bytes")));
        }
        let mut text = vec![0; length];
        entry.read_exact(&mut text).map_err(truncated)?;
        let text = String::from_utf8_lossy(&text);
        let (descr, fortran_order, shape) =
            parse_dict(&text).ok_or_else(|| bad(format!("its header is not understood: {}", quoted(text.trim()))))?;
        let wrong_type = || {
            let help = "floats (f4, f8), integers (i1 to i8, u1 to u8) or booleans: use .astype(float)";
            Error::data("", format!("entries of type {}", quoted(&descr)), help)
        };
        let code = descr.strip_prefix(['<', '>', '|', '=']).ok_or_else(wrong_type)?;
        let kind = Kind::parse(code).ok_or_else(wrong_type)?;
        Ok(Self { kind, big_endian: descr.starts_with('>'), fortran_order, shape })
    }

    /// Entry `i` (in the order of the file) from its bytes.
    fn number(&self, item: &[u8], i: usize) -> Result<f64> {
        // Little-endian, in the low bytes of eight.
        let mut bytes = [0; 8];
        for (to, j) in bytes.iter_mut().zip(0..item.len()) {
            *to = item[if self.big_endian { item.len() - 1 - j } else { j }];
        }
        let bits = u64::from_le_bytes(bytes);
        let integer = match self.kind {
            Kind::Float8 => return Ok(f64::from_bits(bits)),
            Kind::Float4 => return Ok(f64::from(f32::from_bits(bits as u32))),
            Kind::Bool => i128::from(bits != 0),
            Kind::Unsigned(_) => i128::from(bits),
            Kind::Signed(width) => {
                let unused = 64 - 8 * width as u32;
                i128::from((bits << unused).cast_signed() >> unused)
            }
        };
        let what = || format!("entry {i} is {integer}, which a double does not hold exactly");
        exact(integer).ok_or_else(|| Error::data("", what(), "integers up to 2^53, or floats"))
    }
}

/// The three values of a header's dictionary `{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }`; a type that is not a string
/// is returned as written.
fn parse_dict(text: &str) -> Option<(String, bool, Vec<usize>)> {
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    let mut rest = text.trim().strip_prefix('{')?.strip_suffix('}')?.trim();
    while !rest.is_empty() {
        let (key, after) = quoted_string(rest)?;
        let value = after.trim_start().strip_prefix(':')?.trim_start();
        let tail = match key {
            "descr" if value.starts_with('[') => {
                // A structured type is parsed for the message only.
                return Some((value.split_inclusive(']').next()?.into(), false, Vec::new()));
            }
            "descr" => {
                let (code, tail) = quoted_string(value)?;
                descr = Some(code.to_string());
                tail
            }
            "fortran_order" => {
                let (flag, tail) =
                    [(true, "True"), (false, "False")].iter().find_map(|(flag, name)| Some((*flag, value.strip_prefix(name)?)))?;
                fortran_order = Some(flag);
                tail
            }
            "shape" => {
                let (sizes, tail) = value.strip_prefix('(')?.split_once(')')?;
                // Python 2 wrote `3L`.
                let sizes = sizes.trim().trim_end_matches(',').split(',').map(|size| size.trim().trim_end_matches('L'));
                shape = Some(sizes.filter(|size| !size.is_empty()).map(|size| size.parse().ok()).collect::<Option<Vec<usize>>>()?);
                tail
            }
            _ => return None,
        };
        rest = tail.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some((descr?, fortran_order?, shape?))
}

/// A quoted string without escapes, and what follows it.
fn quoted_string(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    text[1..].split_once(quote)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A `.npy` with this dictionary and these bytes, zipped as `x`.
    fn zipped(dict: &str, data: &[u8], method: CompressionMethod) -> Vec<u8> {
        let mut npy = MAGIC.to_vec();
        npy.extend([1, 0]);
        npy.extend((dict.len() as u16).to_le_bytes());
        npy.extend(dict.bytes());
        npy.extend(data);
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        archive.start_file("x.npy", SimpleFileOptions::default().compression_method(method)).unwrap();
        archive.write_all(&npy).unwrap();
        archive.finish().unwrap().into_inner()
    }

    fn dict(descr: &str, fortran_order: &str, shape: &str) -> String {
        format!("{{'descr': {descr}, 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n")
    }

    fn one(dict: &str, data: &[u8]) -> Result<Array> {
        from_bytes(&zipped(dict, data, CompressionMethod::Deflated)).map(|arrays| arrays.get("x").unwrap().clone())
    }

    #[test]
    fn all_number_types_are_read() {
        let cases: [(&str, &[u8], f64); 14] = [
            ("'<f8'", &(-2.5f64).to_le_bytes(), -2.5),
            ("'>f8'", &(-2.5f64).to_be_bytes(), -2.5),
            ("'<f4'", &(-2.5f32).to_le_bytes(), -2.5),
            ("'>f4'", &(-2.5f32).to_be_bytes(), -2.5),
            ("'<i8'", &(-7i64).to_le_bytes(), -7.0),
            ("'>i8'", &(-7i64).to_be_bytes(), -7.0),
            ("'>i4'", &(-7i32).to_be_bytes(), -7.0),
            ("'<i2'", &(-7i16).to_le_bytes(), -7.0),
            ("'|i1'", &[0xf9], -7.0),
            ("'<u8'", &(1u64 << 53).to_le_bytes(), 9007199254740992.0),
            ("'>u4'", &(u32::MAX).to_be_bytes(), 4294967295.0),
            ("'<u2'", &[0xff, 0xff], 65535.0),
            ("\"|u1\"", &[0xff], 255.0),
            ("'|b1'", &[1], 1.0),
        ];
        for (descr, bytes, expected) in cases {
            let array = one(&dict(descr, "False", "()"), bytes).unwrap();
            assert_eq!((array.shape(), array.data()), (&[][..], &[expected][..]), "{descr}");
        }
    }

    #[test]
    fn fortran_order_becomes_c_order() {
        // a[i, j, k] = 100 i + 10 j + k, first index fastest.
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for k in 0..4 {
            for j in 0..3 {
                (0..2u8).for_each(|i| bytes.push(100 * i + 10 * j + k));
            }
        }
        for i in 0..2u8 {
            for j in 0..3 {
                (0..4).for_each(|k| expected.push(f64::from(100 * i + 10 * j + k)));
            }
        }
        let array = one(&dict("'|u1'", "True", "(2, 3, 4)"), &bytes).unwrap();
        assert_eq!((array.shape(), array.data()), (&[2, 3, 4][..], &expected[..]));
    }

    #[test]
    fn shapes_of_all_kinds_are_read() {
        for (text, shape) in [("()", vec![]), ("(2,)", vec![2]), ("(2,1)", vec![2, 1]), ("( 1L , 2L )", vec![1, 2])] {
            let n = count(&shape).unwrap();
            assert_eq!(one(&dict("'|u1'", "False", text), &vec![0; n]).unwrap().shape(), shape);
        }
        assert_eq!(one(&dict("'<f8'", "True", "(0, 5)"), &[]).unwrap().shape(), [0, 5]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let e = |dict: &str, data: &[u8]| {
            let e = one(dict, data).unwrap_err();
            assert!(!e.help.is_empty());
            e.to_string()
        };
        assert_eq!(e(&dict("'<c16'", "False", "()"), &[0; 16]), "x: entries of type <c16");
        assert_eq!(e(&dict("'|O'", "False", "()"), &[0; 16]), "x: entries of type |O");
        assert_eq!(e(&dict("[('a', '<f8')]", "False", "()"), &[0; 8]), "x: entries of type [('a', '<f8')]");
        assert!(e(&dict("'<f8'", "False", "(2,)"), &[0; 8]).starts_with("x: the array is damaged"));
        assert_eq!(e(&dict("'<f8'", "False", "()"), &[0; 9]), "x: there are more bytes than the shape () needs");
        assert_eq!(
            e(&dict("'<u8'", "False", "()"), &[0xff; 8]),
            "x: entry 0 is 18446744073709551615, which a double does not hold exactly"
        );
        for shape in ["(1000000000000,)", "(4294967296, 4294967296)", "(99999999999,)"] {
            assert!(e(&dict("'<f8'", "False", shape), &[0; 8]).contains("too few bytes"));
        }
        for dict in ["", "{}", "{'descr': '<f8'}", &dict("'<f8'", "0", "()"), &dict("'<f8'", "False", "(-1,)"), &"[".repeat(60)] {
            assert!(e(dict, &[0; 8]).starts_with("x: its header is not understood"), "{dict}");
        }
        assert!(from_bytes(b"not a zip").unwrap_err().what.starts_with("not a readable .npz"));
    }

    #[test]
    fn a_file_is_named_in_its_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("problem.npz");
        assert!(read(&path).unwrap_err().what.starts_with("cannot be read: "));
        std::fs::write(&path, zipped(&dict("'<c8'", "False", "()"), &[0; 8], CompressionMethod::Stored)).unwrap();
        let e = read(&path).unwrap_err();
        assert_eq!((e.key, e.what.as_str()), (path.display().to_string(), "x: entries of type <c8"));
    }

    #[test]
    fn the_bytes_depend_on_the_arrays_only() {
        let mut arrays = Arrays::new();
        arrays.insert("b", Array::new(vec![3], vec![1.0, 2.0, 3.0]).unwrap());
        arrays.insert("A", Array::scalar(0.5));
        let bytes = to_bytes(&arrays).unwrap();
        assert_eq!(bytes, to_bytes(&arrays).unwrap());
        assert_eq!(crc32fast::hash(&bytes), 3_650_323_884, "an archive as always");
    }

    proptest! {
        #[test]
        fn arrays_are_read_back_to_the_bit(
            named in prop::collection::btree_map("[a-zA-Z_][a-z0-9_]{0,8}", prop::collection::vec(0usize..4, 0..4), 0..4),
            bits in prop::collection::vec(any::<u64>(), 64),
        ) {
            let mut arrays = Arrays::new();
            for (name, shape) in named {
                let n = count(&shape).unwrap();
                arrays.insert(name, Array::new(shape, bits[..n].iter().map(|b| f64::from_bits(*b)).collect()).unwrap());
            }
            let back = from_bytes(&to_bytes(&arrays).unwrap()).unwrap();
            prop_assert_eq!(back.len(), arrays.len());
            for ((name, array), (name_back, array_back)) in arrays.iter().zip(back.iter()) {
                prop_assert_eq!((name, array.shape()), (name_back, array_back.shape()));
                let bits = |a: &Array| a.data().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(array), bits(array_back));
            }
        }

        #[test]
        fn no_header_makes_it_panic(text in "[{}()\\[\\]',: 0-9a-zTF<>|]{0,60}") {
            let _ = parse_dict(&text);
            let _ = parse_dict(&format!("{{'descr': '{text}', 'fortran_order': False, 'shape': ({text}), }}"));
        }
    }
}
