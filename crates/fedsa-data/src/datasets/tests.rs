use std::io::Write;

use fedsa_problems::Files;
use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::DiskFiles;
use crate::find::Places;
use crate::trace::{Trace, TraceColumn, to_bytes};

fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn target(name: &str) -> Wanted {
    Wanted::default().with_target(name)
}

fn group(name: &str) -> Wanted {
    Wanted::default().with_group(name)
}

fn unlabelled() -> Wanted {
    Wanted::default().with_may_lack_target(true)
}

fn dropping(name: &str) -> Wanted {
    Wanted::default().with_drop(vec![name.into()])
}

fn numbers(x: &[f64]) -> Option<Labels> {
    Some(Labels::Numbers(x.to_vec()))
}

fn sparse(d: usize, rows: &[&[(u32, f64)]]) -> Rows {
    let (mut starts, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        row.iter().for_each(|(j, x)| {
            index.push(*j);
            value.push(*x);
        });
        starts.push(index.len());
    }
    Rows::Sparse { d, starts, index, value }
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|name| (*name).to_string()).collect()
}

/// The names of the columns.
fn listed(set: &Dataset) -> Vec<String> {
    set.columns.iter().map(|name| name.into_owned()).collect()
}

/// Files in a folder, read by their names.
struct Folder(tempfile::TempDir);

impl Folder {
    fn with(files: &[(&str, &[u8])]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        }
        Self(dir)
    }

    fn files(&self) -> DiskFiles {
        DiskFiles::new(Places { base: "/nowhere".into(), data: vec![self.0.path().into()] })
    }

    fn read(&self, sources: &[&str], wanted: &Wanted) -> Result<Vec<Dataset>> {
        self.files().datasets(&names(sources), wanted)
    }
}

#[test]
fn libsvm_lines_are_rows() {
    let text = "\u{feff}# made by hand\n+1 1:0.5 3:-2e-3 # a comment\n\n-1\n  \t\n1\t2:1\t4:0\r\n2 5:1";
    let set = from_libsvm(text.into(), &Wanted::default()).unwrap();
    assert_eq!(set.rows, sparse(5, &[&[(0, 0.5), (2, -2e-3)], &[], &[(1, 1.0)], &[(4, 1.0)]]));
    assert_eq!(listed(&set), ["1", "2", "3", "4", "5"]);
    assert_eq!((set.targets, set.groups), (numbers(&[1.0, -1.0, 1.0, 2.0]), None));
    assert_eq!(from_libsvm(zipped(text.as_bytes()), &Wanted::default()).unwrap().rows, set.rows);
    // Columns by number: columns that are not features are dropped, the others keep their names.
    let wanted = target("5").with_group("3").with_drop(vec!["1".into()]);
    let set = from_libsvm(text.into(), &wanted).unwrap();
    assert_eq!(listed(&set), ["2", "4"]);
    assert_eq!(set.rows, sparse(2, &[&[], &[], &[(0, 1.0)], &[]]));
    assert_eq!((set.targets, set.groups), (numbers(&[0.0, 0.0, 0.0, 1.0]), numbers(&[-2e-3, 0.0, 0.0, 0.0])));
    let set = from_libsvm("1:2 3:4\n2:1\n".into(), &unlabelled()).unwrap();
    assert_eq!((set.targets, set.rows), (None, sparse(3, &[&[(0, 2.0), (2, 4.0)], &[(1, 1.0)]])));
    assert_eq!(from_libsvm(text.into(), &unlabelled()).unwrap().targets.unwrap().len(), 4);
}

#[test]
fn what_is_wrong_with_libsvm_is_named_with_its_line() {
    for (text, message) in [
        ("1 2:2 2:3\n", "line 1: index 2 after index 2: indices increase, and each is there once"),
        ("1 2:2 1:3\n", "line 1: index 1 after index 2: indices increase, and each is there once"),
        ("1 qid:7 1:3\n", "line 1: `qid:7` makes it a file of rankings, which are not read"),
        ("1 1:nan\n", "line 1, column 1: `nan` is not a finite number"),
        ("\n1 1:1 2:-inf\n", "line 2, column 2: `-inf` is not a finite number"),
        ("1 1:1e999\n", "line 1, column 1: `1e999` is not a finite number"),
        ("1 1:\n", "line 1, column 1: an empty field is not a finite number"),
        ("1 1:0x1\n", "line 1, column 1: `0x1` is not a finite number"),
        ("1 x:1\n", "line 1: `x:1`: the index is not a whole number below 2^32"),
        ("1 4294967296:1\n", "line 1: `4294967296:1`: the index is not a whole number below 2^32"),
        ("1 -1:1\n", "line 1: `-1:1`: the index is not a whole number below 2^32"),
        ("1 17\n", "line 1: `17` is not INDEX:VALUE"),
        ("1:1\n", "line 1: `1:1` stands where a label is expected"),
        ("nan 1:1\n", "line 1: the label `nan` is not a finite number"),
        ("1,2 1:1\n", "line 1: `1,2`: several labels of a row are not read, nor are tables without the extension .csv"),
        ("\n\n# only words\n", "there are no rows in it"),
        ("", "there are no rows in it"),
        ("1\n1\n", "there are rows, but no row has a feature"),
    ] {
        let e = from_libsvm(text.into(), &Wanted::default()).unwrap_err();
        assert!(e.to_string() == message && !e.help.is_empty(), "{text:?}: {e}");
    }
    for (text, line) in [("1:1\n\n2:1\n", 2), ("\n1:1\n", 1)] {
        let e = from_libsvm(text.into(), &unlabelled()).unwrap_err();
        assert!(e.what.starts_with(&format!("line {line} is empty")), "{text:?}: {e}");
    }
    let e = from_libsvm("1:1\n1 1:1\n".into(), &unlabelled()).unwrap_err();
    assert_eq!(e.what, "line 2: it has a label, but the lines above have none");
    let e = from_libsvm("1 1:1\n".into(), &target("year")).unwrap_err();
    assert_eq!(e.what, "there is no column `year`");
    let e = from_libsvm("1 1:1\n".into(), &group("2")).unwrap_err();
    assert_eq!(e.what, "there is no column `2`: there are 1 columns");
    // An index of a few bytes does not make names of gigabytes.
    let set = from_libsvm("1 4294967295:1\n".into(), &dropping("7")).unwrap();
    assert_eq!((set.columns.len(), set.rows.columns()), (4_294_967_294, 4_294_967_294));
    let name = |j: usize| set.columns.name(j).map(|name| name.into_owned());
    assert_eq!([5, 6, 4_294_967_293].map(name), ["6", "8", "4294967295"].map(|name| Some(name.to_string())));
    assert_eq!(name(4_294_967_294), None);
    assert!(!set.columns.are_counted());
    let e = from_libsvm(vec![b'7'; input::LONGEST_LINE + 1], &Wanted::default()).unwrap_err();
    assert_eq!(e.what, "line 1: a line of more than 16777216 bytes");
}

const TABLE: &str = "id, a,label,site,b\n7, 1.5,yes,north,2\n8,-1e-3, no,south,0\n9,0,yes,north,1\n";

#[test]
fn tables_have_features_a_target_and_a_group() {
    let wanted = dropping("id").with_group("site");
    let labels = |all: &[&str], of: &[u32]| Some(Labels::Names { names: names(all), of: of.to_vec() });
    for bytes in [TABLE.as_bytes().to_vec(), TABLE.replace('\n', "\r\n").into(), zipped(TABLE.as_bytes())] {
        let set = from_csv(bytes, &wanted).unwrap();
        assert_eq!(listed(&set), ["a", "b"]);
        assert_eq!(set.rows, Rows::Dense { d: 2, values: vec![1.5, 2.0, -1e-3, 0.0, 0.0, 1.0] });
        assert_eq!((set.targets, set.groups), (labels(&["yes", "no"], &[0, 1, 0]), labels(&["north", "south"], &[0, 1, 0])));
    }
    let set = from_csv("x,target\n1,3\n2,4.5\n".into(), &Wanted::default()).unwrap();
    assert_eq!((set.targets, set.rows.columns()), (numbers(&[3.0, 4.5]), 1));
    // One name after numbers makes all of them names, as written.
    let set = from_csv("x,target\n1,07\n2,7\n3,b7\n".into(), &Wanted::default()).unwrap();
    assert_eq!(set.targets, labels(&["07", "7", "b7"], &[0, 1, 2]));
    assert_eq!(listed(&from_csv("x,y\n1,2\n".into(), &unlabelled()).unwrap()), ["x", "y"]);
    assert_eq!(from_csv("x,y\n1,2\n".into(), &target("z").with_may_lack_target(true)).unwrap().targets, None);
    assert_eq!(listed(&from_csv(",x,y\n0,1,2\n".into(), &target("y").with_drop(vec![String::new()])).unwrap()), ["x"]);
}

#[test]
fn what_is_wrong_with_a_table_is_named_with_line_and_column() {
    let site = |wanted: Wanted| wanted.with_group("site");
    for (text, wanted, message) in [
        (
            "a,site,target\n1,x,0\n2,3,1\n",
            Wanted::default(),
            "line 3, column `site`: `3` in a column that begins with a text, `x` in line 2",
        ),
        ("a,site,target\n1,2,0\n2,x,1\n", Wanted::default(), "line 3, column `site`: `x` is not a finite number"),
        ("a,site,target\n1,NA,0\n2,x,1\n", Wanted::default(), "line 2, column `site`: `NA` is a missing value"),
        (TABLE, site(target("c")), "there is no column `c`: the columns are `id`, `a`, `label`, `site`, `b`"),
        (TABLE, group("c"), "there is no column `c`: the columns are `id`, `a`, `label`, `site`, `b`"),
        (TABLE, dropping("c"), "there is no column `c`: the columns are `id`, `a`, `label`, `site`, `b`"),
        (TABLE, site(dropping("site")), "the column `site` is dropped, but it is the target or the group"),
        ("a,target\n1,2\nNaN,3\n", Wanted::default(), "line 3, column `a`: `NaN` is a missing value"),
        ("a,target\n,2\n", Wanted::default(), "line 2, column `a`: an empty field is not a finite number"),
        ("a,target\n1,\n", Wanted::default(), "line 2, column `target`: an empty field is not a finite number"),
        ("a,target\n1,inf\n", Wanted::default(), "line 2, column `target`: `inf` is not a finite number"),
        ("a,target\n1,2,3\n", Wanted::default(), "line 2: 3 fields, but the header has 2"),
        ("a,a,target\n1,2,3\n", Wanted::default(), "two columns are called `a`"),
        ("a,b\n1,2\n", Wanted::default(), "there is no column `target`: the columns are `a`, `b`"),
        ("a,label,target\n1,2,3\n", Wanted::default(), "there is a column `target` and a column `label`"),
        (",a,target\n1,2,3\n", Wanted::default(), "column 1 has no name"),
        ("1,2\n3,4\n", Wanted::default(), "line 1: `1` is a number where the name of a column is expected"),
        ("a,target\n", Wanted::default(), "there are no rows in it"),
        ("target\n1\n", Wanted::default(), "there are rows, but no row has a feature"),
        ("target\n", Wanted::default(), "there are no rows in it"),
        ("a,target\n1,2\n", dropping("a"), "there are rows, but no row has a feature"),
        ("a\n1\n", dropping("a").with_may_lack_target(true), "there are rows, but no row has a feature"),
        ("", Wanted::default(), "line 1: there are no names of columns"),
    ] {
        let e = from_csv(text.into(), &wanted).unwrap_err();
        assert!(e.to_string() == message && !e.help.is_empty(), "{text:?}: {e}");
    }
    let mut text = String::from("x,target\n");
    (0..70_000).for_each(|i| text += &format!("1,{i}\n"));
    let e = from_csv((text.clone() + "1,a\n").into(), &Wanted::default()).unwrap_err();
    assert_eq!(e.what, "line 70002, column `target`: `a` is not a number, as the fields above it are");
    assert_eq!(from_csv(text.into(), &Wanted::default()).unwrap().targets.unwrap().len(), 70_000);
}

#[test]
fn parquet_is_read_as_csv_is() {
    let text = |words: &[&str]| TraceColumn::Str(names(words));
    let table = |b: f64| {
        let columns = vec![
            ("id".into(), TraceColumn::I64(vec![7, 8, 9])),
            ("a".into(), TraceColumn::F64(vec![1.5, -1e-3, 0.0])),
            ("label".into(), text(&["yes", "no", "yes"])),
            ("site".into(), text(&["north", "south", "north"])),
            ("b".into(), TraceColumn::F64(vec![2.0, 0.0, b])),
        ];
        to_bytes(&Trace::new(columns).unwrap()).unwrap()
    };
    let wanted = dropping("id").with_group("site");
    assert_eq!(from_parquet(table(1.0), &wanted), from_csv(TABLE.into(), &wanted));
    let e = from_parquet(table(f64::NAN), &wanted).unwrap_err();
    assert_eq!(e.what, "row 3, column `b`: `NaN` is not a finite number");
    let e = from_parquet(table(f64::NAN), &Wanted::default().with_target("b")).unwrap_err();
    assert_eq!(e.what, "row 3, column `b`: `NaN` is not a finite number");
    // Columns of text are categories of both.
    let set = from_parquet(table(1.0), &Wanted::default()).unwrap();
    assert_eq!(set.texts.len(), 1);
    assert_eq!(Ok(set), from_csv(TABLE.into(), &Wanted::default()));
    assert!(from_parquet(table(1.0)[..200].to_vec(), &wanted).is_err());
    let only = to_bytes(&Trace::new(vec![("target".into(), TraceColumn::F64(vec![1.0, 2.0]))]).unwrap()).unwrap();
    assert_eq!(from_parquet(only, &Wanted::default()).unwrap_err().what, "there are rows, but no row has a feature");
    // More rows than one batch.
    let n = 10_000;
    let long = vec![
        ("x".into(), TraceColumn::F64((0..n).map(f64::from).collect())),
        ("target".into(), TraceColumn::I64((0..i64::from(n)).collect())),
    ];
    let set = from_parquet(to_bytes(&Trace::new(long).unwrap()).unwrap(), &Wanted::default()).unwrap();
    let values: Vec<f64> = (0..n).map(f64::from).collect();
    assert_eq!((set.targets, set.rows), (numbers(&values), Rows::Dense { d: 1, values }));
}

fn idx(kind: u8, sizes: &[u32], data: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, kind, sizes.len() as u8];
    sizes.iter().for_each(|size| out.extend(size.to_be_bytes()));
    out.extend(data);
    out
}

#[test]
fn idx_files_of_every_type_become_rows() {
    let flat = |numbers: Vec<Vec<u8>>| numbers.concat();
    for (kind, data) in [
        (0x08, vec![1, 2, 3, 4, 5, 6]),
        (0x09, vec![1, 2, 3, 4, 5, 6]),
        (0x0b, flat((1..7i16).map(|x| x.to_be_bytes().into()).collect())),
        (0x0c, flat((1..7i32).map(|x| x.to_be_bytes().into()).collect())),
        (0x0d, flat((1..7u8).map(|x| f32::from(x).to_be_bytes().into()).collect())),
        (0x0e, flat((1..7u8).map(|x| f64::from(x).to_be_bytes().into()).collect())),
    ] {
        let images = idx(kind, &[3, 1, 2], &data);
        let beside = [("labels", idx(0x08, &[3], &[7, 8, 7])), ("writers", zipped(&idx(0x0b, &[3], &[0, 1, 1, 0, 0xff, 0xff])))];
        let set = from_idx(images.clone(), &beside, &group("writers")).unwrap();
        assert_eq!(set.rows, Rows::Dense { d: 2, values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0] });
        assert_eq!(listed(&set), ["1", "2"]);
        assert_eq!((set.targets, set.groups), (numbers(&[7.0, 8.0, 7.0]), numbers(&[1.0, 256.0, -1.0])));
        let set = from_idx(zipped(&images), &beside, &dropping("1")).unwrap();
        assert_eq!((listed(&set), set.rows), (names(&["2"]), Rows::Dense { d: 1, values: vec![2.0, 4.0, 6.0] }));
        let set = from_idx(images.clone(), &[], &unlabelled()).unwrap();
        assert_eq!(set.targets, None);
    }
    assert_eq!(from_idx(idx(0x09, &[1, 1], &[0xff]), &[], &unlabelled()).unwrap().rows, Rows::Dense { d: 1, values: vec![-1.0] });
}

#[test]
fn what_is_wrong_with_idx_files_is_named() {
    let images = idx(0x08, &[2, 2], &[1, 2, 3, 4]);
    let error = |file: &[u8], wanted: &Wanted| from_idx(file.to_vec(), &[("labels", idx(0x08, &[2], &[0, 1]))], wanted).unwrap_err().what;
    let plain = Wanted::default();
    let sizes =
        |there: &str| format!("its header claims 2 x 2 numbers of 1 byte: with the header 16 bytes are expected, and there are {there}");
    let longer = [&images[..], &[0; 3]].concat();
    assert_eq!(error(&images[..15], &plain), sizes("15"));
    assert_eq!(error(&longer, &plain), sizes("19"));
    assert_eq!(error(&zipped(&images[..15]), &plain), sizes("15, unpacked"));
    assert_eq!(error(&zipped(&longer), &plain), sizes("19, unpacked"));
    let doubles = "its header claims 1 x 2 numbers of 8 bytes: with the header 28 bytes are expected, and there are 27";
    assert_eq!(error(&idx(0x0e, &[1, 2], &[0; 15]), &plain), doubles);
    let e = from_idx(b"\0\0\x07\x03abc".to_vec(), &[], &plain).unwrap_err();
    assert_eq!(e.what, "its magic number 0x00000703 is that of no IDX file");
    assert!(e.help.contains("0x00000803 (images") && e.help.contains("0x00000801 (labels"), "{}", e.help);
    for magic in [[0, 0, 8, 0], [0, 0, 8, 9], [3, 8, 0, 0]] {
        let what = error(&[&magic[..], &[0; 12]].concat(), &plain);
        assert_eq!(what, format!("its magic number 0x{:08x} is that of no IDX file", u32::from_be_bytes(magic)));
    }
    let packed = zipped(&images);
    for end in 2..packed.len() {
        let what = error(&packed[..end], &plain);
        assert!(what.contains("truncated"), "{end}: {what}");
    }
    let mut damaged = packed.clone();
    let at = damaged.len() - 6;
    damaged[at] ^= 1;
    assert!(error(&damaged, &plain).contains("the packed data are damaged"), "{}", error(&damaged, &plain));
    assert_eq!(error(&images, &target("writers")), "there is no file `writers` beside it");
    assert_eq!(error(&images, &group("writers")), "there is no file `writers` beside it");
    let e = from_idx(images.clone(), &[("labels", idx(0x08, &[2], &[7, 8])), ("writers", Vec::new())], &group("writer")).unwrap_err();
    assert_eq!((e.what.as_str(), e.help.as_str()), {
        ("there is no file `writer` beside it; did you mean `writers`?", "one of the words of the files that are there: labels, writers")
    });
    assert_eq!(error(&images, &dropping("3")), "there is no column `3`");
    assert_eq!(error(&idx(0x08, &[2], &[1, 2]), &plain), {
        "its magic number 0x00000801 is that of one number for each of 2 rows: labels, not data"
    });
    assert_eq!(error(&idx(0x08, &[3, 1], &[1, 2, 3]), &plain), "labels: 2 numbers for 3 rows");
    let e = from_idx(images.clone(), &[("labels", images.clone())], &plain).unwrap_err();
    assert_eq!(e.what, "labels: its magic number 0x00000802 is that of an array of 2 dimensions");
    assert!(e.help.contains("0x00000801"), "{}", e.help);
    assert_eq!(error(&idx(0x0d, &[2, 1], &[0, 0, 0, 0, 0x7f, 0x80, 0, 0]), &plain), "row 2, column 1: `inf` is not a finite number");
    assert_eq!(error(&idx(0x08, &[u32::MAX, u32::MAX, u32::MAX], &[1]), &plain), {
        "its header claims 4294967295 x 4294967295 x 4294967295 numbers of 1 byte: with the header \
         79228162458924105385300197391 bytes are expected, and there are 17"
    });
    let claims = error(&zipped(&idx(0x08, &[60_000, 28, 28], &[1])), &plain);
    assert_eq!(claims, {
        "its header claims 60000 x 28 x 28 numbers of 1 byte: with the header 47040016 bytes are expected, and there are 17, unpacked"
    });
    assert_eq!(error(&idx(0x08, &[0, 2], &[]), &unlabelled()), "there are no rows in it");
    assert_eq!(error(&idx(0x08, &[2, 0], &[]), &plain), "there are rows, but no row has a feature");
    let both = unlabelled().with_drop(names(&["1", "2"]));
    assert_eq!(error(&images, &both), "there are rows, but no row has a feature");
}

#[test]
fn every_member_of_a_gzip_file_is_read() {
    let halves = [zipped(b"1 1:1\n-1 2"), zipped(b""), zipped(b":3\n")].concat();
    let set = from_libsvm(halves.clone(), &Wanted::default()).unwrap();
    assert_eq!(set.rows, sparse(2, &[&[(0, 1.0)], &[(1, 3.0)]]));
    let (first, last) = (zipped(b"1 1:1\n-1 2").len(), halves.len());
    for end in (2..last).filter(|end| *end != first && *end != first + zipped(b"").len()) {
        let e = from_libsvm(halves[..end].to_vec(), &Wanted::default()).unwrap_err();
        assert!(e.what.contains("truncated") || e.what.contains("damaged"), "{end}: {e}");
    }
    let packed = zipped(TABLE.as_bytes());
    let wanted = dropping("id").with_group("site");
    let e = from_csv(packed[..packed.len() - 9].to_vec(), &wanted).unwrap_err();
    assert!(e.what.contains("the file ends too early: it is truncated"), "{e}");
}

#[test]
fn bytes_after_a_gzip_stream_are_told_from_one_that_is_truncated() {
    let after = "there are bytes after the end of the gzip stream";
    let images = zipped(&idx(0x08, &[1, 2], &[1, 2]));
    let members = [zipped(b"1 1:1\n"), zipped(b"1 2:1\n")].concat();
    for tail in [&b"\0"[..], b"\0\0\0\0", b"\n", b"words\n", b"\x1f\0", &[7; 100_000]] {
        for packed in [zipped(b"1 1:1\n"), members.clone()] {
            let e = from_libsvm([&packed[..], tail].concat(), &Wanted::default()).unwrap_err();
            assert_eq!(e.what, after, "{tail:.4?}");
        }
        let e = from_csv([&zipped(b"x,target\n1,2\n")[..], tail].concat(), &Wanted::default()).unwrap_err();
        assert_eq!(e.what, after, "{tail:.4?}");
        assert_eq!(from_idx([&images[..], tail].concat(), &[], &unlabelled()).unwrap_err().what, after, "{tail:.4?}");
    }
    // A member that has begun is one that is truncated.
    for tail in [&b"\x1f"[..], b"\x1f\x8b", b"\x1f\x8b\x08\0"] {
        let e = from_libsvm([&members[..], tail].concat(), &Wanted::default()).unwrap_err();
        assert!(e.what.ends_with("the file ends too early: it is truncated"), "{tail:?}: {e}");
    }
    // The positions of member ends do not matter to lines, tables and rows of numbers.
    let halves = |bytes: &[u8]| [zipped(&bytes[..bytes.len() / 2]), zipped(&bytes[bytes.len() / 2..])].concat();
    let wanted = dropping("id").with_group("site");
    assert_eq!(from_csv(halves(TABLE.as_bytes()), &wanted), from_csv(TABLE.into(), &wanted));
    let file = idx(0x08, &[2, 2], &[1, 2, 3, 4]);
    assert_eq!(from_idx(halves(&file), &[], &unlabelled()), from_idx(file, &[], &unlabelled()));
    // The member boundary may lie anywhere in a block of bytes.
    let long: Vec<u8> = (0..40_000).flat_map(|i| format!("{} {}:1\n", i % 2, i % 7 + 1).into_bytes()).collect();
    let each: Vec<u8> = long.chunks(997).flat_map(zipped).collect();
    assert_eq!(from_libsvm(each, &Wanted::default()), from_libsvm(long, &Wanted::default()));
}

#[test]
fn images_with_another_magic_number_are_refused_and_not_passed_over() {
    let good = idx(0x08, &[1, 2], &[1, 2]);
    let folder = Folder::with(&[
        ("d/a-images-idx3-ubyte", &good),
        ("d/a-labels-idx1-ubyte", &idx(0x08, &[1], &[5])),
        ("d/b-images-idx3-ubyte", b"\0\0\x05\x03\0\0\0\x01"),
        ("d/b-labels-idx1-ubyte", &idx(0x08, &[1], &[5])),
    ]);
    for source in ["d", "d/b-images-idx3-ubyte", "d/b"] {
        let e = folder.read(&[source], &Wanted::default()).unwrap_err();
        assert!(e.what.contains("b-images-idx3-ubyte: its magic number 0x00000503 is that of no IDX file"), "{source}: {e}");
    }
    assert_eq!(folder.read(&["d/a"], &Wanted::default()).unwrap().len(), 1);
}

fn zipped_images() -> Vec<u8> {
    zipped(&idx(0x08, &[1, 2], &[1, 2]))
}

fn zipped_labels() -> Vec<u8> {
    zipped(&idx(0x08, &[1], &[5]))
}

/// Files of every format, among others that are not data.
fn folder_of_formats() -> Folder {
    let (images, labels) = (zipped_images(), zipped_labels());
    Folder::with(&[
        ("libsvm/a", b"1 2:1\n"),
        ("libsvm/a.t", b"1 3:1\n"),
        ("libsvm/README.md", b"words\n"),
        ("libsvm/b.part", b"1 2:"),
        ("fashion/train-images-idx3-ubyte.gz", &images),
        ("fashion/train-labels-idx1-ubyte.gz", &labels),
        ("fashion/t10k-images-idx3-ubyte.gz", &images),
        ("fashion/t10k-labels-idx1-ubyte.gz", &labels),
        ("fashion/LICENSE", b"The MIT License\n"),
        ("digits/images-idx3-ubyte", &idx(0x08, &[1, 2], &[1, 2])),
        ("digits/labels-idx1-ubyte.gz", &labels),
        ("digits/writers-idx1-ubyte.gz", &zipped(&idx(0x08, &[1], &[9]))),
        ("song/timbre.csv.gz", &zipped(b"x,target\n1,2\n")),
        ("song/SHA256SUMS", b"1a2b  timbre.csv.gz\n"),
        ("mixed/a.csv", b"x,target\n1,2\n"),
        ("mixed/b", b"1 2:1\n"),
        ("words/README", b"words\n"),
        ("agents/agent_10.csv", b"x,y,target\n1,2,3\n"),
        ("agents/agent_2.csv", b"target,y,x\n6,5,4\n"),
        ("others/a.csv", b"x,target\n1,2\n"),
        ("others/b.csv", b"z,target\n1,2\n"),
        ("others/c.npz", b"PK"),
    ])
}

#[test]
fn files_are_found_by_the_names_of_data_sets() {
    let folder = folder_of_formats();
    let plain = Wanted::default();
    let is = |sources: &[&str], expected: &[(&str, usize, usize)]| {
        let sets = folder.read(sources, &plain).unwrap();
        let short = |set: &Dataset| set.name.rsplit('/').next().unwrap().to_string();
        let read: Vec<_> = sets.iter().map(|set| (short(set), set.rows.len(), set.rows.columns())).collect();
        let expected: Vec<_> = expected.iter().map(|(name, n, d)| (name.to_string(), *n, *d)).collect();
        assert_eq!(read, expected, "{sources:?}");
    };
    // Sparse files of one call have the columns of the widest.
    is(&["libsvm/a"], &[("a", 1, 2)]);
    is(&["libsvm/a.t", "libsvm/a"], &[("a.t", 1, 3), ("a", 1, 3)]);
    is(&["libsvm"], &[("a", 1, 3), ("a.t", 1, 3)]);
    is(&["fashion/train"], &[("train-images-idx3-ubyte.gz", 1, 2)]);
    is(&["fashion"], &[("t10k-images-idx3-ubyte.gz", 1, 2), ("train-images-idx3-ubyte.gz", 1, 2)]);
    is(&["song/timbre"], &[("timbre.csv.gz", 1, 1)]);
    is(&["song"], &[("timbre.csv.gz", 1, 1)]);
    is(&["agents"], &[("agent_2.csv", 1, 2), ("agent_10.csv", 1, 2)]);
    // Two columns here and there: dense next to sparse is fine.
    is(&["fashion/train", "libsvm/a"], &[("train-images-idx3-ubyte.gz", 1, 2), ("a", 1, 2)]);
    let digits = folder.read(&["digits"], &group("writers")).unwrap().remove(0);
    assert_eq!((digits.targets, digits.groups), (numbers(&[5.0]), numbers(&[9.0])));
    // Columns of later tables come in the order of the first.
    let agents = folder.read(&["agents"], &plain).unwrap();
    assert_eq!([listed(&agents[0]), listed(&agents[1])], [names(&["y", "x"]), names(&["y", "x"])]);
    assert_eq!(agents[1].rows, Rows::Dense { d: 2, values: vec![2.0, 1.0] });
}

#[test]
fn names_that_give_no_data_set_are_refused() {
    let folder = folder_of_formats();
    let error = |sources: &[&str]| folder.read(sources, &Wanted::default()).unwrap_err();
    for (sources, message) in [
        (&["libsvm/none"][..], "there is no such file or directory"),
        (&["libsvm/*.none"], "no file matches"),
        (&["mixed"], "the folder holds CSV (a.csv) and LIBSVM (b)"),
        (&["words"], "the folder holds no data"),
        (&["libsvm/a", "libsvm/../libsvm/a"], "there is no such file"),
        (&["libsvm/a", "libsvm"], "this file is given twice"),
        (&["others/a.csv", "others/b.csv"], "there is a column `z`, which the first file does not have"),
        (&["others/a.csv", "agents/agent_2.csv"], "there is a column `y`, which the first file does not have"),
        (&["libsvm/a", "others/a.csv"], "its columns have names, or have none, other than"),
        (&["others/c.npz"], "no data sets are read from files with the extension .npz"),
        (&[], "no data"),
    ] {
        let e = error(sources);
        assert!(e.key == "data" && e.what.contains(message) && !e.help.is_empty(), "{sources:?}: {e}");
    }
    assert!(error(&["libsvm/none"]).help.contains("fedsa data list"));
}

#[test]
fn a_folder_with_the_name_of_a_data_set_and_other_files_is_not_the_data_set() {
    let folder = Folder::with(&[
        ("fashion-mnist/train-images-idx3-ubyte.gz", &zipped_images()),
        ("fashion-mnist/train-labels-idx1-ubyte.gz", &zipped_labels()),
    ]);
    let plain = Wanted::default();
    assert!(folder.read(&["fashion-mnist/train"], &plain).is_ok());
    assert!(folder.read(&["fashion-mnist-unordered/train"], &plain).unwrap_err().what.contains("there is no such file"));
}

#[test]
fn the_digest_counts_each_data_set_once() {
    let folder = Folder::with(&[("a", b"1 2:1\n"), ("b", b"1 2:2\n"), ("c.csv", b"x,target\n1,a\n"), ("d.csv", b"x,target\n1,b\n")]);
    let digest = |calls: &[&[&str]]| {
        let files = folder.files();
        calls.iter().for_each(|sources| drop(files.datasets(&names(sources), &Wanted::default()).unwrap()));
        files.digest()
    };
    assert_eq!(digest(&[]), 0);
    assert_eq!(digest(&[&["a"]]), digest(&[&["a"], &["a"]]));
    assert_eq!(digest(&[&["a", "b"]]), digest(&[&["a", "b"], &["b", "a"]]));
    let all = [
        digest(&[&["a"]]),
        digest(&[&["b"]]),
        digest(&[&["a", "b"]]),
        digest(&[&["b", "a"]]),
        digest(&[&["c.csv"]]),
        digest(&[&["d.csv"]]),
    ];
    for (i, x) in all.iter().enumerate() {
        assert!(!all[..i].contains(x) && *x != 0, "{i}");
    }
}

/// Doubles of every size, and whole numbers.
fn double() -> impl Strategy<Value = f64> {
    prop_oneof![prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO, (-9i32..9).prop_map(f64::from)]
}

proptest! {
    #[test]
    fn libsvm_is_read_as_it_was_written(
        rows in prop::collection::vec((double(), prop::collection::btree_map(0u32..40, double(), 0..6)), 1..20),
        packed in any::<bool>(),
        crlf in any::<bool>(),
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let line = |(label, row): &(f64, std::collections::BTreeMap<u32, f64>)| {
            let numbers: String = row.iter().map(|(j, x)| format!(" {}:{x:?}", j + 1)).collect();
            format!("{label:?}{numbers}{end}")
        };
        let text: String = rows.iter().map(line).collect();
        let bytes = if packed { zipped(text.as_bytes()) } else { text.into() };
        let d = rows.iter().filter_map(|(_, row)| row.keys().max()).max().map_or(0, |j| *j as usize + 1);
        let read = from_libsvm(bytes, &Wanted::default());
        if d == 0 {
            prop_assert!(read.is_err());
            return Ok(());
        }
        let set = read.unwrap();
        let kept: Vec<Vec<(u32, f64)>> = rows.iter().map(|(_, row)| row.iter().filter(|(_, x)| **x != 0.0).map(|(j, x)| (*j, *x)).collect()).collect();
        prop_assert_eq!(&set.rows, &sparse(d, &kept.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        prop_assert_eq!(&set.targets, &numbers(&rows.iter().map(|(label, _)| *label).collect::<Vec<_>>()));
        set.check().unwrap();
    }

    #[test]
    fn tables_are_read_as_they_were_written(
        rows in prop::collection::vec((prop::collection::vec(double(), 3), "[a-c,\"\n ]{1,4}x"), 1..20),
        packed in any::<bool>(),
    ) {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["x 1", "label", "\"x\"", "x,3"]).unwrap();
        for (x, label) in &rows {
            writer.write_record([format!("{:?}", x[0]), label.clone(), format!("{:e}", x[1]), x[2].to_string()]).unwrap();
        }
        let bytes = writer.into_inner().unwrap();
        let set = from_csv(if packed { zipped(&bytes) } else { bytes }, &Wanted::default()).unwrap();
        prop_assert_eq!(listed(&set), names(&["x 1", "\"x\"", "x,3"]));
        prop_assert_eq!(set.rows, Rows::Dense { d: 3, values: rows.iter().flat_map(|(x, _)| x.clone()).collect() });
        let Some(Labels::Names { names, of }) = set.targets else { panic!("no names") };
        for ((_, label), i) in rows.iter().zip(of) {
            prop_assert_eq!(label.trim(), &names[i as usize]);
        }
    }
}

#[test]
fn words_are_those_of_the_files_beside_images() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["t-images-idx3-ubyte.gz", "t-labels-idx1-ubyte.gz", "t-writers-idx1-ubyte", "u-other-idx1-ubyte", "t-a.b-idx1-ubyte"];
    names.iter().for_each(|name| std::fs::write(dir.path().join(name), b"").unwrap());
    assert_eq!(super::idx::words_beside(&dir.path().join(names[0])), ["labels", "writers"]);
}
