//! `-v` and `--log FILE`: the steps of the program, one per line.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use fedsa::error::Error;
use fedsa_data::atomic;
use log::{LevelFilter, Log, Metadata, Record};

use super::warn;

struct Logger {
    began: Instant,
    /// The lowest level of messages on standard error.
    shown: LevelFilter,
    file: Option<Mutex<File>>,
    /// Whether the file could not be written; reported once.
    failed: AtomicBool,
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("fedsa")
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // Warnings are printed where they occur.
        if record.level() <= self.shown && record.level() > log::Level::Warn {
            warn(format!("[{:8.2} s] {}", self.began.elapsed().as_secs_f64(), record.args()));
        }
        if let Some(file) = &self.file {
            let time = humantime::format_rfc3339_millis(SystemTime::now());
            let mut file = file.lock().expect("no panics under the lock");
            // The program continues if the log cannot be written.
            if let Err(e) = writeln!(file, "{time} {:5} {}", record.level(), record.args())
                && !self.failed.swap(true, Ordering::Relaxed)
            {
                warn(format!("warning: the log cannot be written: {e}"));
            }
        }
    }

    fn flush(&self) {}
}

/// Whether a file is empty or starts like a log: with a time, a level, and the program's name.
fn is_log(path: &Path) -> std::io::Result<bool> {
    let mut head = [0; 64];
    let mut read = 0;
    let mut file = File::open(path)?;
    while read < head.len() {
        match file.read(&mut head[read..])? {
            0 => break,
            n => read += n,
        }
    }
    let line = String::from_utf8_lossy(&head[..read]);
    let words: Vec<&str> = line.split_ascii_whitespace().take(3).collect();
    Ok(read == 0 || matches!(words[..], [time, "INFO", "fedsa"] if humantime::parse_rfc3339(time).is_ok()))
}

/// Starts logging: on standard error with the detail of `verbose`, and with all details to a file. The first line has the arguments of
/// the program.
///
/// # Errors
/// When the file cannot be opened or is not a log. An existing log is appended to, never replaced.
pub fn start(verbose: u8, file: Option<&Path>, args: &[OsString]) -> Result<(), Error> {
    let shown = match verbose {
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    if verbose == 0 && file.is_none() {
        return Ok(());
    }
    let opened = file.map(|path| {
        let bad = |e: &dyn std::fmt::Display| Error::new("--log", format!("{}: {e}", path.display()), "the path of a file to add to");
        match atomic::at(path) {
            Err(e) => return Err(bad(&e)),
            Ok(Some(there)) if !there.is_file() => return Err(bad(&format!("this is {}", atomic::kind_of(&there)))),
            Ok(Some(_)) if !is_log(path).map_err(|e| bad(&e))? => {
                return Err(bad(&"there is a file of this name that is not a log of fedsa"));
            }
            Ok(_) => {}
        }
        File::options().create(true).append(true).open(path).map(Mutex::new).map_err(|e| bad(&e))
    });
    let logger = Logger { began: Instant::now(), shown, file: opened.transpose()?, failed: AtomicBool::new(false) };
    let level = if logger.file.is_some() { LevelFilter::Debug } else { shown };
    // A process has one logger; a second call has no effect.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
    log::info!(
        "fedsa {} {}",
        env!("CARGO_PKG_VERSION"),
        args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    );
    Ok(())
}
