//! Data sets of rows: LIBSVM, CSV, IDX, packed with gzip or not.

use std::io::Write;

use fedsa_data::datasets;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows, Wanted};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::mutate::Rng;
use crate::{Corpus, Target, Verdict, refused};

/// The memory that a reader of packed files may use: what some kilobytes unpack to at most, with room.
const fn expanding(_len: usize) -> usize {
    1 << 30
}

/// Packed with gzip, in one of three cases.
fn sometimes_packed(rng: &mut Rng, data: Vec<u8>) -> Vec<u8> {
    if !rng.one_in(3) {
        return data;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&data).and_then(|()| encoder.finish()).expect("memory")
}

/// What most files have.
fn lenient() -> Wanted {
    Wanted::default().with_may_lack_target(true)
}

/// What holds for every data set.
fn check(set: &Dataset) {
    set.check().expect("finite numbers, and a label for each row");
    let (n, d) = (set.rows.len(), set.rows.columns());
    assert!(n >= 1 && d >= 1 && set.columns.len() == d);
    if let Rows::Sparse { starts, index, value, .. } = &set.rows {
        assert!(starts[0] == 0 && starts.is_sorted() && starts[n] == index.len() && index.len() == value.len());
        let increases = |i: usize| index[starts[i]..starts[i + 1]].is_sorted_by(|a, b| a < b);
        assert!((0..n).all(increases) && index.iter().all(|j| (*j as usize) < d) && !value.contains(&0.0));
    }
    for labels in [&set.targets, &set.groups].into_iter().flatten() {
        if let Labels::Names { names, of } = labels {
            assert!(of.iter().all(|i| (*i as usize) < names.len()));
        }
    }
}

/// LIBSVM text.
pub const LIBSVM: Target =
    Target { name: "libsvm", about: "data sets in LIBSVM text", corpora: libsvm_corpora, run: read_libsvm, memory: expanding };

fn libsvm_corpora() -> Vec<Corpus> {
    let seeds = ["+1 1:0.5 3:-2e-3 # a comment\n-1\n\n1 2:1 4:0\r\n2 5:1", "\u{feff}0 1:0.18257 2:0.18257\n1 68:1\n", "1:1 7:2\n3:0.5\n"];
    let words = ["qid:1", "1:", ":1", "0:1", "4294967295:1", "nan", "inf", "1e400", "#", "\n", "+1", "-1", "1,2"];
    vec![Corpus::text(seeds, &words).sealed(sometimes_packed)]
}

fn read_libsvm(data: &[u8]) -> Verdict {
    let set = match datasets::from_libsvm(data.to_vec(), &lenient()) {
        Ok(set) => set,
        Err(e) => return refused(&e),
    };
    check(&set);
    // What was read is read again from what is written of it. The last column may hold nothing but zeros.
    let mut text = String::new();
    for i in 0..set.rows.len() {
        if let Some(Labels::Numbers(labels)) = &set.targets {
            text += &format!("{:?}", labels[i]);
        }
        let mut numbers: Vec<(usize, f64)> = set.rows.row(i).collect();
        if numbers.last().is_none_or(|(j, _)| j + 1 < set.rows.columns()) {
            numbers.push((set.rows.columns() - 1, 0.0));
        }
        numbers.iter().for_each(|(j, x)| text += &format!(" {}:{x:?}", j + 1));
        text += "\n";
    }
    assert_eq!(datasets::from_libsvm(text.clone().into(), &lenient()).as_ref(), Ok(&set), "{text}");
    Verdict::Accepted
}

/// Tables in CSV as data sets.
pub const ROWS_CSV: Target = Target { name: "rows-csv", about: "data sets in CSV", corpora: csv_corpora, run: read_csv, memory: expanding };

fn csv_corpora() -> Vec<Corpus> {
    let seeds = [
        "id,a,label,site,b\n7,1.5,yes,north,2\n8,-1e-3,no,south,0\n",
        "x,target,id,site\r\n1,2,3,4\r\n-1,2.5,3,\"a, b\"\r\n",
        "site,id,\"x, y\"\n1,2,3\n",
    ];
    let words = ["id", "site", "target", "label", "NaN", "inf", "1e400", "\"", "\"\"", ",", "\n", ";"];
    vec![Corpus::text(seeds, &words).sealed(sometimes_packed)]
}

fn read_csv(data: &[u8]) -> Verdict {
    let wanted = lenient().with_group("site").with_drop(vec!["id".into()]);
    match datasets::from_csv(data.to_vec(), &wanted) {
        Ok(set) => {
            check(&set);
            assert!(set.groups.is_some() && !set.columns.iter().any(|name| name == "id" || name == "site"));
            Verdict::Accepted
        }
        Err(e) => refused(&e),
    }
}

/// IDX files; the input is both the images and, if it has one dimension, the labels.
pub const IDX: Target = Target { name: "idx", about: "data sets in IDX", corpora: idx_corpora, run: read_idx, memory: expanding };

fn idx_corpora() -> Vec<Corpus> {
    let file = |kind: u8, sizes: &[u32], size: usize| {
        let mut out = vec![0, 0, kind, sizes.len() as u8];
        sizes.iter().for_each(|size| out.extend(size.to_be_bytes()));
        out.extend((0..sizes.iter().product::<u32>() as usize * size).map(|i| (i % 100) as u8));
        out
    };
    let seeds = vec![
        file(8, &[2, 2, 3], 1),
        file(9, &[3, 2], 1),
        file(0xb, &[2, 2], 2),
        file(0xc, &[2, 1], 4),
        file(0xd, &[2, 3], 4),
        file(0xe, &[1, 2], 8),
    ];
    vec![Corpus::bytes(seeds).sealed(sometimes_packed)]
}

fn read_idx(data: &[u8]) -> Verdict {
    match datasets::from_idx(data.to_vec(), &[("writers", data.to_vec())], &lenient()) {
        Ok(set) => {
            check(&set);
            let wanted = lenient().with_group("writers");
            let e = datasets::from_idx(data.to_vec(), &[("writers", data.to_vec())], &wanted);
            assert!(e.is_err(), "images are no labels");
            Verdict::Accepted
        }
        Err(e) => refused(&e),
    }
}
