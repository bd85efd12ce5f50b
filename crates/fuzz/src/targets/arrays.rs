//! Arrays in `.npz`, and the problems that are made of them.

use super::files::expanding;
use crate::mutate::Rng;
use crate::{Corpus, Target, Verdict, refused};
use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays, count};
use fedsa::sampling::{Law, Sampling};
use fedsa_data::npz;
use fedsa_problems::linear::file::ArrayFile;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::LogSource;
use fedsa_problems::{Files, ProblemSettings};
use std::io::{Cursor, Write};
use std::sync::Arc;
use zip::CompressionMethod;
use zip::write::{SimpleFileOptions, ZipWriter};

/// Arrays of an `.npz`.
pub const NPZ: Target = Target { name: "npz", about: "arrays of an .npz", corpora: npz_corpora, run: read_npz, memory: expanding };

/// A `.npy`.
fn npy(descr: &str, fortran_order: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((dict.len() as u16).to_le_bytes());
    out.extend(dict.bytes());
    out.extend(data);
    out
}

/// Arrays of every type and order.
fn npys() -> Vec<Vec<u8>> {
    let doubles: Vec<u8> = (0..6).flat_map(|i| (f64::from(i) - 2.5).to_le_bytes()).collect();
    let floats: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_be_bytes()).collect();
    let small: Vec<u8> = (0..24).collect();
    let counts: Vec<u8> = [1i64, -2, 1 << 53].into_iter().flat_map(i64::to_be_bytes).collect();
    let mut all = vec![
        npy("<f8", false, "(2, 3)", &doubles),
        npy("<f8", true, "(3, 2)", &doubles),
        npy(">f4", true, "(2, 3)", &floats),
        npy("<i4", false, "(2, 3)", &small),
        npy(">i8", false, "(3,)", &counts),
        npy("<u2", true, "(2, 3, 2)", &small),
        npy("|i1", false, "(2, 3, 4)", &small),
        npy("|b1", true, "(24, 1)", &small),
        npy("<f8", false, "()", &doubles[..8]),
        npy("<f8", true, "(0, 5)", &[]),
    ];
    // Format 2.0 has a length of four bytes.
    let mut second = all[0][..6].to_vec();
    second.extend([2, 0, all[0][8], all[0][9], 0, 0]);
    second.extend(&all[0][10..]);
    all.push(second);
    all
}

/// An archive of these files.
fn zipped(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in entries {
        let options = SimpleFileOptions::default().compression_method(method);
        archive.start_file(*name, options).and_then(|()| Ok(archive.write_all(data)?)).expect("an archive in memory");
    }
    archive.finish().expect("an archive in memory").into_inner()
}

fn npz_corpora() -> Vec<Corpus> {
    let all = npys();
    let names = ["P.npy", "gamma.npy", "notes.txt"];
    let entries: Vec<(&str, &[u8])> = names.iter().zip(&all).map(|(name, data)| (*name, &data[..])).collect();
    let archives = [CompressionMethod::Stored, CompressionMethod::Deflated].map(|method| zipped(&entries, method));
    // Arrays are mutated inside an archive that is whole, archives as they are.
    let inside = Corpus::bytes(all).sealed(|rng, data| {
        let method = *rng.pick(&[CompressionMethod::Stored, CompressionMethod::Deflated]);
        zipped(&[("x.npy", &data)], method)
    });
    vec![inside, Corpus::bytes(archives.to_vec()).sealed(with_checksums)]
}

/// The checksums of entries that are stored, put right in half of the cases.
fn with_checksums(rng: &mut Rng, file: Vec<u8>) -> Vec<u8> {
    if rng.one_in(2) { file } else { checksummed(file) }
}

/// The checksums of entries that are stored, put right.
fn checksummed(mut file: Vec<u8>) -> Vec<u8> {
    let u16_at = |file: &[u8], at: usize| file.get(at..at + 2).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let u32_at = |file: &[u8], at: usize| file.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    // Entries of the central directory: how long each is, where it is, and its checksum in both places.
    let places: Vec<usize> = file.windows(4).enumerate().filter(|(_, w)| w == b"PK\x01\x02").map(|(at, _)| at).collect();
    for at in places {
        let sum = || {
            let (stored, len, local) = (u16_at(&file, at + 10)? == 0, u32_at(&file, at + 20)?, u32_at(&file, at + 42)?);
            let data = local + 30 + u16_at(&file, local + 26)? + u16_at(&file, local + 28)?;
            let data = file.get(data..data + len)?;
            stored.then(|| (crc32fast::hash(data).to_le_bytes(), local))
        };
        if let Some((sum, local)) = sum() {
            file[at + 16..at + 20].copy_from_slice(&sum);
            file[local + 14..local + 18].copy_from_slice(&sum);
        }
    }
    file
}

fn same_arrays(a: &Arrays, b: &Arrays) -> bool {
    let bits = |array: &Array| array.data().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    a.len() == b.len() && a.iter().zip(b.iter()).all(|((m, x), (n, y))| m == n && x.shape() == y.shape() && bits(x) == bits(y))
}

fn read_npz(data: &[u8]) -> Verdict {
    let arrays = match npz::from_bytes(data) {
        Ok(arrays) => arrays,
        Err(e) => return refused(&e),
    };
    for (name, array) in arrays.iter() {
        assert_eq!(count(array.shape()), Some(array.data().len()), "{name}");
    }
    match npz::to_bytes(&arrays) {
        Ok(again) => assert!(same_arrays(&npz::from_bytes(&again).expect("what was just written"), &arrays)),
        Err(e) => return refused(&e),
    }
    if let Err(e) = arrays.get("theta") {
        refused(&e);
    }
    Verdict::Accepted
}

/// Problems of arrays, as `kind = "file"` takes them.
pub const ARRAYS: Target =
    Target { name: "arrays", about: "problems of the arrays of an .npz", corpora: problems, run: read_problem, memory: expanding };

fn problems() -> Vec<Corpus> {
    let array = |shape: &[usize], data: &[f64]| Array::new(shape.to_vec(), data.to_vec()).expect("as many numbers as the shape says");
    let arrays = |named: &[(&str, Array)]| {
        let mut arrays = Arrays::new();
        named.iter().for_each(|(name, array)| arrays.insert(*name, array.clone()));
        npz::to_bytes(&arrays).expect("small arrays")
    };
    let p = array(&[2, 2, 2], &[0.5, 0.5, 0.25, 0.75, 1.0, 0.0, 0.5, 0.5]);
    let phi = array(&[2, 1], &[1.0, 0.5]);
    let r = array(&[2, 2], &[1.0, 0.0, 0.5, -1.0]);
    let policy = array(&[2, 2], &[0.5, 0.5, 0.25, 0.75]);
    let with_actions = array(&[1, 2, 2, 2], &[0.5, 0.5, 0.25, 0.75, 0.125, 0.875, 0.5, 0.5]);
    let a = array(&[2, 2, 2], &[1.0, 0.0, 0.5, 2.0, 1.5, 0.25, 0.0, 1.0]);
    let b = array(&[2, 2], &[1.0, -1.0, 0.5, 0.0]);
    let gamma = Array::scalar(0.9);
    let weights = array(&[2], &[0.25, 0.75]);
    let seeds = vec![
        arrays(&[("P", p.clone()), ("R", r.clone()), ("Phi", phi.clone()), ("gamma", gamma.clone())]),
        arrays(&[("P", p), ("R", r), ("Phi", phi.clone()), ("gamma", array(&[2], &[0.5, 0.9])), ("weights", weights.clone())]),
        arrays(&[("P", with_actions), ("policy", policy), ("R", array(&[1, 2], &[1.0, 0.0])), ("Phi", phi), ("gamma", gamma)]),
        arrays(&[("A", a.clone()), ("b", b.clone()), ("weights", weights)]),
        arrays(&[("A", a), ("b", b), ("noise_std", Array::scalar(0.5)), ("noise_memory", array(&[2, 2], &[0.5, 0.0, 0.25, 0.0]))]),
    ];
    vec![Corpus::bytes(seeds).sealed(|_, data| checksummed(data))]
}

/// Arrays that were read, as a problem's files.
struct InMemory(Arrays);

impl Files for InMemory {
    fn arrays(&self, _: &str) -> Result<Arrays> {
        Ok(self.0.clone())
    }
    fn logs(&self, _: &[String], _: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        Ok(Vec::new())
    }
}

fn read_problem(data: &[u8]) -> Verdict {
    let arrays = match npz::from_bytes(data) {
        Ok(arrays) => arrays,
        Err(e) => return refused(&e),
    };
    let settings = ArrayFile::new("p.npz").with_allow_singular_agents(data.len().is_multiple_of(2));
    let kind = [Law::Iid, Law::Markov, Law::Mean][data.len() / 2 % 3];
    match settings.field(&InMemory(arrays), Sampling::default().with_kind(kind), Isa::best()) {
        Ok(field) => {
            check_field(&field);
            Verdict::Accepted
        }
        Err(e) => refused(&e),
    }
}

/// What everything that works on a field relies on.
fn check_field(field: &Arc<dyn Field>) {
    let sum: f64 = field.weights().iter().sum();
    assert!(field.dim() >= 1 && field.agents() >= 1 && (sum - 1.0).abs() < 1e-9, "weights that sum to {sum}");
    assert!(field.weights().iter().all(|p| *p >= 0.0 && p.is_finite()));
    // A mean that is singular has none.
    if let Some(root) = field.root() {
        assert!(root.len() == field.dim() && root.iter().all(|x| x.is_finite()), "{root:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_whose_bytes_were_changed_is_whole_again() {
        let inside = npy("|u1", false, "(3,)", &[1, 2, 3]);
        let mut file = zipped(&[("x.npy", &inside)], CompressionMethod::Stored);
        let at = file.windows(3).position(|bytes| bytes == [1, 2, 3]).expect("the data");
        file[at] = 7;
        assert!(npz::from_bytes(&file).is_err());
        assert_eq!(npz::from_bytes(&checksummed(file)).unwrap().get("x").unwrap().data(), [7.0, 2.0, 3.0]);
    }
}
