//! No content of a file makes a reader panic.

use std::io::{Cursor, Write};
use std::sync::Arc;

use fedsa::error::is_control;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa_data::trace::{Trace, TraceColumn};
use fedsa_data::{datasets, delays, logs, npz, theta_from_json, trace};
use fedsa_problems::logs::source::Inputs;
use fedsa_problems::rows::dataset::Wanted;
use parquet::basic::Compression;
use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use zip::write::{SimpleFileOptions, ZipWriter};

#[derive(Debug, Clone, Copy)]
enum Reader {
    Npz,
    CsvLog,
    ParquetLog,
    Trace,
    Libsvm,
    CsvRows,
    ParquetRows,
    Idx,
}

/// Reads the bytes; the result does not matter, but there must be one.
fn survives(reader: Reader, bytes: &[u8]) {
    match reader {
        Reader::Npz => drop(npz::from_bytes(bytes)),
        Reader::CsvLog => [Inputs::States, Inputs::Features].into_iter().for_each(|inputs| drop(logs::from_csv(bytes.to_vec(), inputs))),
        Reader::ParquetLog => drop(logs::from_parquet(bytes.to_vec(), Inputs::States)),
        Reader::Trace => drop(trace::from_bytes(bytes.to_vec())),
        Reader::Libsvm => drop(datasets::from_libsvm(bytes.to_vec(), &lenient())),
        Reader::CsvRows => drop(datasets::from_csv(bytes.to_vec(), &lenient())),
        Reader::ParquetRows => drop(datasets::from_parquet(bytes.to_vec(), &lenient())),
        Reader::Idx => drop(datasets::from_idx(bytes.to_vec(), &[("labels", bytes.to_vec())], &lenient())),
    }
}

/// What most files have.
fn lenient() -> Wanted {
    Wanted::default().with_may_lack_target(true)
}

/// Packed with gzip.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Two images of two rows and three columns.
const IMAGES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const LIBSVM: &str = "+1 1:0.5 3:-2e-3 # a comment\n-1\n1 2:1 4:0\n";

fn npz_file(method: zip::CompressionMethod) -> Vec<u8> {
    let mut arrays = Arrays::new();
    arrays.insert("P", Array::new(vec![2, 2], vec![0.5; 4]).unwrap());
    arrays.insert("gamma", Array::scalar(0.9));
    let stored = npz::to_bytes(&arrays).unwrap();
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut entries = zip::ZipArchive::new(Cursor::new(stored)).unwrap();
    for i in 0..entries.len() {
        let mut entry = entries.by_index(i).unwrap();
        archive.start_file(entry.name(), SimpleFileOptions::default().compression_method(method)).unwrap();
        std::io::copy(&mut entry, &mut archive).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

/// A log with a column of every type that logs may have.
fn parquet_log(compression: Compression, version: WriterVersion, dictionary: bool) -> Vec<u8> {
    let schema = "message log { required double s_0; optional double next_0; required float s_1; required float next_1;
        required int32 s_2; optional int64 next_2; required double reward; required boolean done; required int64 episode (UINT_64);
        required double ratio; }";
    let properties =
        WriterProperties::builder().set_compression(compression).set_writer_version(version).set_dictionary_enabled(dictionary).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(parse_message_type(schema).unwrap()), Arc::new(properties)).unwrap();
    for episode in [0, 2] {
        let mut group = writer.next_row_group().unwrap();
        for i in 0..10 {
            let mut column = group.next_column().unwrap().unwrap();
            match i {
                0 | 6 | 9 => column.typed::<DoubleType>().write_batch(&[1.0, 2.0, 1.0], None, None),
                1 => column.typed::<DoubleType>().write_batch(&[1.0, 2.0, 1.0], Some(&[1, 1, 1]), None),
                2 | 3 => column.typed::<FloatType>().write_batch(&[1.0, 2.0, 1.0], None, None),
                4 => column.typed::<Int32Type>().write_batch(&[1, -2, 3], None, None),
                5 => column.typed::<Int64Type>().write_batch(&[1, -2, 3], Some(&[1, 1, 1]), None),
                7 => column.typed::<BoolType>().write_batch(&[false, false, true], None, None),
                _ => column.typed::<Int64Type>().write_batch(&[episode, episode, episode + 1], None, None),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn trace_file() -> Vec<u8> {
    let table = Trace::new(vec![
        ("method".into(), TraceColumn::Str(["a", "b", "a"].map(String::from).into())),
        ("round".into(), TraceColumn::I64(vec![1, 2, 3])),
        ("mse".into(), TraceColumn::OptF64(vec![None, Some(1.0), Some(2.0)])),
        ("residual".into(), TraceColumn::F64(vec![1.0, 2.0, 3.0])),
    ]);
    trace::to_bytes(&table.unwrap()).unwrap()
}

/// A data set of one feature, and names as targets.
fn rows_file() -> Vec<u8> {
    let labels = TraceColumn::Str(["a", "b", "a"].map(String::from).into());
    let table = Trace::new(vec![("label".into(), labels), ("x".into(), TraceColumn::F64(vec![1.0, 2.0, 3.0]))]);
    trace::to_bytes(&table.unwrap()).unwrap()
}

/// A valid file of every kind.
fn valid_files() -> Vec<(Reader, Vec<u8>)> {
    use zip::CompressionMethod::{Deflated, Stored};
    let csv = "s_0,next_0,reward,done,episode\n1,2.5,-1,false,0\n2.5,\"3\",1e3,1,0\n";
    let (v1, v2) = (WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0);
    vec![
        (Reader::Npz, npz_file(Stored)),
        (Reader::Npz, npz_file(Deflated)),
        (Reader::CsvLog, csv.into()),
        (Reader::ParquetLog, parquet_log(Compression::UNCOMPRESSED, v2, false)),
        (Reader::ParquetLog, parquet_log(Compression::SNAPPY, v1, true)),
        (Reader::ParquetLog, parquet_log(Compression::ZSTD(Default::default()), v1, false)),
        (Reader::Trace, trace_file()),
        (Reader::Libsvm, LIBSVM.into()),
        (Reader::Libsvm, packed(LIBSVM.as_bytes())),
        (Reader::CsvRows, "x,label,\"y\"\n1,a,2.5\n-1e3,\"b, c\",0\n".into()),
        (Reader::ParquetRows, rows_file()),
        (Reader::Idx, IMAGES.into()),
        (Reader::Idx, packed(IMAGES)),
    ]
}

#[test]
fn the_files_to_be_damaged_are_valid() {
    for (reader, bytes) in valid_files() {
        match reader {
            Reader::Npz => assert_eq!(npz::from_bytes(&bytes).unwrap().len(), 2),
            Reader::CsvLog => assert_eq!(logs::from_csv(bytes, Inputs::States).unwrap().len(), 2),
            Reader::ParquetLog => {
                let log = logs::from_parquet(bytes, Inputs::States).unwrap();
                log.check().unwrap();
                assert_eq!((log.len(), log.state(1), log.next_state(4)), (6, &[2.0, 2.0, -2.0][..], &[2.0, 2.0, -2.0][..]));
                assert_eq!(log.ratio.as_deref(), Some(&[1.0, 2.0, 1.0, 1.0, 2.0, 1.0][..]));
                assert_eq!((&log.done[..3], &log.episode.unwrap()[..3]), (&[false, false, true][..], &[0, 0, 1][..]));
            }
            Reader::Trace => assert_eq!(trace::from_bytes(bytes).unwrap().rows(), 3),
            Reader::Libsvm => assert_eq!(datasets::from_libsvm(bytes, &lenient()).unwrap().rows.len(), 3),
            Reader::CsvRows => assert_eq!(datasets::from_csv(bytes, &lenient()).unwrap().rows.len(), 2),
            Reader::ParquetRows => assert_eq!(datasets::from_parquet(bytes, &lenient()).unwrap().rows.columns(), 1),
            Reader::Idx => assert_eq!(datasets::from_idx(bytes, &[], &lenient()).unwrap().rows.columns(), 6),
        }
    }
}

/// Files that end early, and files with flipped bits; each at every `every`-th byte.
fn damage(every: usize) {
    for (reader, bytes) in valid_files() {
        for end in (0..bytes.len()).step_by(every) {
            survives(reader, &bytes[..end]);
        }
        let mut damaged = bytes.clone();
        for i in (0..bytes.len()).step_by(every) {
            for bit in [0, 3, 7] {
                damaged[i] = bytes[i] ^ (1 << bit);
                survives(reader, &damaged);
            }
            damaged[i] = bytes[i];
        }
    }
}

#[test]
fn truncations_and_flipped_bits_are_survived() {
    damage(7);
}

#[test]
#[ignore = "every byte"]
fn every_truncation_and_flipped_bits_in_every_byte_are_survived() {
    damage(1);
}

#[test]
fn messages_about_hostile_content_are_short_and_printable() {
    let hostile = format!("\u{1b}[31m\r\u{202e}{}", "x".repeat(100_000));
    let mut arrays = Arrays::new();
    (0..1000).for_each(|i| arrays.insert(format!("{i}{:.200}", hostile), Array::scalar(1.0)));
    let table =
        Trace::new(vec![(format!("s_{hostile}"), TraceColumn::F64(vec![1.0])), (hostile.clone(), TraceColumn::F64(vec![1.0]))]).unwrap();
    let many_columns = (0..10_000).map(|i| format!("column {i}")).collect::<Vec<_>>().join(",");
    for e in [
        logs::from_csv(hostile.clone().into(), Inputs::States).unwrap_err(),
        logs::from_csv(format!("s_{hostile},reward,done\n1,2,3\n").into(), Inputs::States).unwrap_err(),
        logs::from_csv(format!("s_0,next_0,reward,done\n{hostile},2,3,0\n").into(), Inputs::States).unwrap_err(),
        logs::from_csv(many_columns.into(), Inputs::States).unwrap_err(),
        logs::from_parquet(trace::to_bytes(&table).unwrap(), Inputs::States).unwrap_err(),
        delays::from_bytes(hostile.as_bytes()).unwrap_err(),
        datasets::from_libsvm(hostile.clone().into(), &lenient()).unwrap_err(),
        datasets::from_libsvm(format!("1 {hostile}:1\n").into(), &lenient()).unwrap_err(),
        datasets::from_libsvm(format!("1 1:{hostile}\n").into(), &lenient()).unwrap_err(),
        datasets::from_csv(format!("{hostile},b\n{hostile},1\n").into(), &lenient()).unwrap_err(),
        datasets::from_csv("x,y\n1,2\n".into(), &lenient().with_group(hostile.clone())).unwrap_err(),
        datasets::from_parquet(trace::to_bytes(&table).unwrap(), &lenient().with_drop(vec![format!("not {hostile}")])).unwrap_err(),
        datasets::from_idx(IMAGES.into(), &[], &Wanted::default().with_target(hostile.clone())).unwrap_err(),
        theta_from_json(format!("[{:?}]", "x".repeat(100_000)).as_bytes()).unwrap_err(),
        npz::from_bytes(&npz_entry(&format!("{{'descr': '{:.200}', 'fortran_order': False, 'shape': (1,), }}", hostile))).unwrap_err(),
        npz::from_bytes(&npz_entry(&format!("{{'descr': {:.200}", hostile))).unwrap_err(),
        npz::from_bytes(&npz_entry(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({}), }}", "9, ".repeat(1000))))
            .unwrap_err(),
        arrays.get("theta").unwrap_err(),
    ] {
        for text in [e.to_string(), e.help] {
            assert!(text.len() < 3000 && !text.chars().any(is_control) && !text.is_empty(), "{text:?}");
        }
    }
}

/// An archive with one array with this header and no data.
fn npz_entry(dict: &str) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("x.npy", SimpleFileOptions::default()).unwrap();
    archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
    archive.write_all(&(dict.len() as u16).to_le_bytes()).unwrap();
    archive.write_all(dict.as_bytes()).unwrap();
    archive.finish().unwrap().into_inner()
}

#[test]
fn an_archive_of_zeros_unpacks_to_what_it_says() {
    // The most that deflate can do, from booleans that become doubles.
    let n = 4 << 20;
    let header = format!("{{'descr': '|b1', 'fortran_order': False, 'shape': ({n},), }}\n");
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    archive.start_file("x.npy", SimpleFileOptions::default()).unwrap();
    archive.write_all(b"\x93NUMPY\x01\x00").unwrap();
    archive.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
    archive.write_all(header.as_bytes()).unwrap();
    archive.write_all(&vec![0; n]).unwrap();
    let bytes = archive.finish().unwrap().into_inner();
    assert_eq!(npz::from_bytes(&bytes).unwrap().get("x").unwrap().shape(), [n]);
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            use Reader::{CsvLog, CsvRows, Idx, Libsvm, Npz, ParquetLog, ParquetRows, Trace};
        for reader in [Npz, CsvLog, ParquetLog, Trace, Libsvm, CsvRows, ParquetRows, Idx] {
            survives(reader, &bytes);
        }
    }

    #[test]
    fn any_text_is_survived(rows in "(s_0|next_0|reward|done|,|\n|[0-9a-z.\"\u{fffd}-]){0,60}") {
            survives(Reader::CsvLog, rows.as_bytes());
        survives(Reader::CsvLog, format!("s_0,next_0,reward,done\n{rows}").as_bytes());
    }

    /// Several bytes replaced by others that headers give a meaning to.
    #[test]
    fn damaged_files_are_survived(
        file in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![Just(0), Just(0x7f), Just(0xff), any::<u8>()]), 1..6),
        splice in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
            let files = valid_files();
        let (reader, mut bytes) = files[file.index(files.len())].clone();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some((from, to)) = splice {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            bytes.drain(from.min(to)..from.max(to));
        }
        survives(reader, &bytes);
    }
}
