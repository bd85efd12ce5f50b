//! Measures how fast logs are read. `cargo xtask bench` runs it.
//!
//! Without arguments it writes a log of 2e6 transitions of two state columns to a temporary folder in all formats, and reads
//! each file in a process of its own. Prints one JSON object a line: the seconds of the first and the fastest of three readings
//! in batches and of the whole into memory, and of the mean operator of 16 Fourier features from a file that is not kept in
//! memory (two passes, features and sums); those of plain reading of the bytes; and the largest resident set.
//!
//! `write FILE TRANSITIONS` writes a Parquet log of another length, to try what fits.

use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use fedsa::kernel::Isa;
use fedsa::sampling::{Law, Sampling};
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::replay::{Logs, Sources};
use fedsa_problems::logs::source::{read_checked, whole};
use fedsa_problems::{Files, ProblemSettings};
use parquet::basic::Compression;
use parquet::data_type::{BoolType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

type Failure = Box<dyn std::error::Error>;

const TRANSITIONS: usize = 2_000_000;

fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => all(),
        ["batches", file] => in_batches(file),
        ["whole", file] => in_one(file),
        ["means", file] => means(file),
        ["write", file, transitions] => write_parquet(Path::new(file), Compression::UNCOMPRESSED, transitions.parse()?),
        _ => Err("usage: reading [batches FILE | whole FILE | means FILE | write FILE TRANSITIONS]".into()),
    }
}

/// Column `j` of the log in row `i`: s_0, s_1, next_0, next_1, reward.
fn value(i: usize, j: usize) -> f64 {
    let (row, column) = if j < 4 { (i + j / 2, j % 2) } else { (i, 2) };
    ((row * 3 + column) as f64 * 0.618_033_988_75).fract() - 0.5
}

fn is_done(i: usize) -> bool {
    i % 200 == 199
}

fn write_parquet(path: &Path, compression: Compression, transitions: usize) -> Result<(), Failure> {
    const GROUP: usize = 1 << 20;
    let schema = "message log { required double s_0; required double s_1; required double next_0; required double next_1;
        required double reward; required boolean done; }";
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let schema = Arc::new(parse_message_type(schema)?);
    let mut writer = SerializedFileWriter::new(std::fs::File::create(path)?, schema, properties)?;
    for start in (0..transitions).step_by(GROUP) {
        let rows = start..transitions.min(start + GROUP);
        let mut group = writer.next_row_group()?;
        for j in 0..5 {
            let mut column = group.next_column()?.ok_or("five columns")?;
            let values: Vec<f64> = rows.clone().map(|i| value(i, j)).collect();
            column.typed::<DoubleType>().write_batch(&values, None, None)?;
            column.close()?;
        }
        let mut column = group.next_column()?.ok_or("a sixth column")?;
        column.typed::<BoolType>().write_batch(&rows.map(is_done).collect::<Vec<_>>(), None, None)?;
        column.close()?;
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn write_csv(path: &Path) -> Result<(), Failure> {
    use std::io::Write;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    writeln!(file, "s_0,s_1,next_0,next_1,reward,done")?;
    for i in 0..TRANSITIONS {
        (0..5).try_for_each(|j| write!(file, "{},", value(i, j)))?;
        writeln!(file, "{}", u8::from(is_done(i)))?;
    }
    Ok(file.flush()?)
}

fn all() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    for (name, compression) in [
        ("Parquet", Some(Compression::UNCOMPRESSED)),
        ("Parquet, snappy", Some(Compression::SNAPPY)),
        ("Parquet, zstd", Some(Compression::ZSTD(Default::default()))),
        ("CSV", None),
    ] {
        let path = folder.path().join(if compression.is_some() { "log.parquet" } else { "log.csv" });
        match compression {
            Some(compression) => write_parquet(&path, compression, TRANSITIONS)?,
            None => write_csv(&path)?,
        }
        for how in ["batches", "whole", "means"] {
            let output = Command::new(std::env::current_exe()?).arg(how).arg(&path).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
            print!("{{\"name\": \"{name}, {how}\", \"result\": {}}}", String::from_utf8_lossy(&output.stdout).trim_end());
            println!();
        }
    }
    Ok(())
}

/// The seconds of the fastest of three calls, and of the first.
fn seconds(mut call: impl FnMut() -> Result<(), Failure>) -> Result<(f64, f64), Failure> {
    let mut once = || -> Result<f64, Failure> {
        let start = Instant::now();
        call()?;
        Ok(start.elapsed().as_secs_f64())
    };
    let first = once()?;
    Ok((first.min(once()?).min(once()?), first))
}

fn in_batches(file: &str) -> Result<(), Failure> {
    let files = DiskFiles::new(Places::from_env(""));
    let log = files.logs(&[file.into()], &LogForm::default())?.remove(0);
    let mut sum = 0.0;
    let (best, first) = seconds(|| {
        let mut rows = 0;
        read_checked(&*log, &mut |batch| {
            rows += batch.log.len();
            sum += batch.log.rewards[0];
            Ok(())
        })?;
        assert_eq!(rows, TRANSITIONS);
        Ok(())
    })?;
    black_box(sum);
    report(file, best, first)
}

fn in_one(file: &str) -> Result<(), Failure> {
    let (best, first) = seconds(|| {
        let log = DiskFiles::new(Places::from_env("")).logs(&[file.into()], &LogForm::default())?.remove(0);
        assert_eq!(whole(&*log)?.len(), TRANSITIONS);
        Ok(())
    })?;
    report(file, best, first)
}

fn means(file: &str) -> Result<(), Failure> {
    let logs = Logs::new(Sources::One(file.into()), FeatureSpec::Fourier { order: 3, scaled: false }, 0.99);
    let sampling = Sampling::default().with_kind(Law::Mean);
    let (best, first) = seconds(|| {
        let field = logs.field(&DiskFiles::new(Places::from_env("")), sampling, Isa::best())?;
        assert_eq!(field.dim(), 16);
        Ok(())
    })?;
    report(file, best, first)
}

fn report(file: &str, best: f64, first: f64) -> Result<(), Failure> {
    let peak = peak_mib();
    let mut buffer = vec![0; 1 << 16];
    let (plain, _) = seconds(|| {
        let mut file = std::fs::File::open(file)?;
        while file.read(&mut buffer)? > 0 {
            black_box(&buffer);
        }
        Ok(())
    })?;
    let (rate, mib) = (TRANSITIONS as f64 / best, std::fs::metadata(file)?.len() as f64 / f64::from(1 << 20));
    let peak = peak.map_or("null".into(), |peak| peak.to_string());
    println!(
        "{{\"per_second\": {rate:.0}, \"seconds\": {best:.4}, \"first_s\": {first:.4}, \"plain_s\": {plain:.4}, \"mib\": {mib:.1}, \
         \"peak_mib\": {peak}}}"
    );
    Ok(())
}

/// The largest resident set of this process so far, where the system tells.
fn peak_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().split(' ').next()?.parse().ok()?;
    Some(kib / 1024)
}
