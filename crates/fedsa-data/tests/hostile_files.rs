//! No content of a file makes a reader panic, nor allocate more than the file
//! justifies.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Cursor, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use fedsa::error::is_control;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::dataset::Wanted;
use fedsa::problem::source::Inputs;
use fedsa_data::trace::{Trace, TraceColumn};
use fedsa_data::{datasets, delays, logs, npz, theta_from_json, trace};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use zip::write::{SimpleFileOptions, ZipWriter};

/// The system's allocator, and how many bytes are and at most were in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        PEAK.fetch_max(IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size(), Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests take turns, so that one does not measure another's memory.
static TURN: Mutex<()> = Mutex::new(());

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

/// Reads the bytes; the result does not matter, but there must be one, and it
/// must not take memory that the file does not justify: a page or a column of
/// the 64 MiB that small files may unpack to, twice.
fn survives(reader: Reader, bytes: &[u8]) {
    let before = IN_USE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
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
    let used = PEAK.load(Ordering::Relaxed) - before;
    assert!(used < (130 << 20) + 2200 * bytes.len(), "{reader:?}: {used} bytes of memory for a file of {}", bytes.len());
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
    let _turn = TURN.lock();
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
    let _turn = TURN.lock();
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
    let _turn = TURN.lock();
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

/// A Parquet file with this schema and nothing else, `elements` of it.
fn parquet_footer(elements: u32, schema: &[u8]) -> Vec<u8> {
    let mut file = b"PAR1".to_vec();
    let start = file.len();
    file.extend([0x15, 0x02, 0x19, 0xfc]); // version: 1; schema: a long list of structs
    let mut size = elements;
    while size >= 0x80 {
        file.push(size as u8 | 0x80);
        size >>= 7;
    }
    file.push(size as u8);
    file.extend(schema);
    file.extend([0x16, 0x00, 0x19, 0x0c, 0x00]); // num_rows: 0; row_groups: none
    let length = (file.len() - start) as u32;
    file.extend(length.to_le_bytes());
    file.extend(b"PAR1");
    file
}

#[test]
fn a_deeply_nested_schema_is_survived() {
    let _turn = TURN.lock();
    // On an ordinary stack of 2 MiB a depth of 2000 is too much.
    let depth = 200_000;
    // Of each element the repetition (required), an empty name, one child.
    let group = [0x35, 0x00, 0x18, 0x00, 0x15, 0x02, 0x00];
    let leaf = [0x15, 0x0a, 0x25, 0x00, 0x18, 0x01, b'a', 0x00];
    let mut schema = group.repeat(depth);
    schema.extend(leaf);
    survives(Reader::ParquetLog, &parquet_footer(depth as u32 + 1, &schema));
}

/// The file with the number at `at`, coded as Thrift does, made 2^31 - 1.
fn with_largest_number(file: &[u8], at: usize) -> Vec<u8> {
    let end = at + 1 + file[at..].iter().position(|byte| byte & 0x80 == 0).unwrap();
    [&file[..at], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &file[end..]].concat()
}

#[test]
fn the_sizes_that_pages_claim_are_not_believed() {
    let _turn = TURN.lock();
    let refused = |file: &[u8], why: &str| {
        survives(Reader::Trace, file);
        let e = trace::from_bytes(file.to_vec()).unwrap_err();
        assert!(e.what.contains(why), "{e}");
    };
    // The first page begins after the four bytes of magic with two numbers,
    // its type and the size that it unpacks to, each after a byte 0x15.
    let several_pages = Trace::new(vec![("n".into(), TraceColumn::I64((0..100_000).map(|i| i * i).collect()))]);
    let file = trace::to_bytes(&several_pages.unwrap()).unwrap();
    assert_eq!(file[4..7], [0x15, 0x00, 0x15]);
    refused(&with_largest_number(&file, 7), "a page claims to unpack to 2147483647 bytes");

    // A page with a dictionary: in its own header (0x4c) the number of entries.
    let words = Trace::new(vec![("word".into(), TraceColumn::Str((0..100_000).map(|i| (i % 7).to_string()).collect()))]);
    let file = trace::to_bytes(&words.unwrap()).unwrap();
    assert_eq!(file[4..7], [0x15, 0x04, 0x15]);
    let count = 4 + file[4..].windows(3).position(|bytes| bytes == [0x4c, 0x15, 0x0e]).unwrap() + 2;
    refused(&with_largest_number(&file, count), "claims to hold 2147483647 entries");
}

/// A log of these row groups of 2^20 rows, in which every number is 1 and a dictionary makes them a few bytes; `columns` state
/// columns.
fn repetitive_log(columns: usize, groups: usize) -> Vec<u8> {
    let numbers = |prefix: &str| (0..columns).map(|i| format!("required double {prefix}{i};")).collect::<String>();
    let schema = format!("message log {{ {} {} required double reward; required double done; }}", numbers("s_"), numbers("next_"));
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(Default::default())).build();
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let ones = vec![1.0; 1 << 20];
    for _ in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            column.typed::<DoubleType>().write_batch(&ones, None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

#[test]
fn more_rows_than_the_size_justifies_are_refused_before_they_are_read() {
    let _turn = TURN.lock();
    for (columns, groups, is_plausible) in [(1, 1, true), (1, 2, false), (8, 1, false)] {
        let file = repetitive_log(columns, groups);
        assert!(file.len() < 100_000, "{}", file.len());
        survives(Reader::ParquetLog, &file);
        match logs::from_parquet(file, Inputs::States) {
            Ok(log) => assert!(is_plausible && log.len() == groups << 20),
            Err(e) => assert!(!is_plausible && e.what.contains("which is not plausible"), "{e}"),
        }
    }
}

#[test]
fn an_archive_of_zeros_unpacks_to_what_it_says() {
    let _turn = TURN.lock();
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

#[test]
fn packed_data_sets_take_no_more_than_their_size_justifies() {
    let _turn = TURN.lock();
    // Rows without numbers, rows of names that are all different, one endless line, a table of zeros.
    let many_names: String = (0..400_000).map(|i| format!("{i}x,1\n")).collect();
    for (reader, file) in [
        (Reader::Libsvm, packed("1\n".repeat(20 << 20).as_bytes())),
        (Reader::Libsvm, packed("1 1:1 2:1 3:1 4:1 5:1 6:1\n".repeat(2 << 20).as_bytes())),
        (Reader::Libsvm, packed(&vec![b' '; 64 << 20])),
        (Reader::CsvRows, packed(format!("label,x\n{}", many_names).as_bytes())),
        (Reader::CsvRows, packed(format!("label,x\n\"{}", " ".repeat(64 << 20)).as_bytes())),
        (Reader::CsvRows, packed(format!("x,y,z,u\n{}", "0,0,0,0\n".repeat(4 << 20)).as_bytes())),
        (Reader::Idx, packed(&[&[0, 0, 8, 2, 0, 1, 0, 0, 0, 0, 3, 0][..], &vec![0; 3 << 24]].concat())),
    ] {
        survives(reader, &file);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _turn = TURN.lock();
        use Reader::{CsvLog, CsvRows, Idx, Libsvm, Npz, ParquetLog, ParquetRows, Trace};
        for reader in [Npz, CsvLog, ParquetLog, Trace, Libsvm, CsvRows, ParquetRows, Idx] {
            survives(reader, &bytes);
        }
    }

    #[test]
    fn any_text_is_survived(rows in "(s_0|next_0|reward|done|,|\n|[0-9a-z.\"\u{fffd}-]){0,60}") {
        let _turn = TURN.lock();
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
        let _turn = TURN.lock();
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
