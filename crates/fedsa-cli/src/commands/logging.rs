//! `-v` and `--log FILE`: what the program does, line by line.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use fedsa::error::BadInput;
use log::{LevelFilter, Log, Metadata, Record};

use super::warn;

struct Logger {
    began: Instant,
    /// The least severe messages that go to standard error.
    shown: LevelFilter,
    file: Option<Mutex<File>>,
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
            // A log that cannot be written is no reason to stop.
            let _ = writeln!(file, "{time} {:5} {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// Shows what the program does on standard error, `verbose` times in detail, and all of it in a file.
///
/// # Errors
/// When the file cannot be opened; it is added to, never replaced.
pub fn start(verbose: u8, file: Option<&Path>) -> Result<(), BadInput> {
    let shown = match verbose {
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    if verbose == 0 && file.is_none() {
        return Ok(());
    }
    let opened = file.map(|path| {
        let bad = |e: &dyn std::fmt::Display| BadInput::new("--log", format!("{}: {e}", path.display()), "the path of a file to add to");
        if path.metadata().is_ok_and(|there| !there.is_file()) {
            return Err(bad(&"this is no regular file"));
        }
        File::options().create(true).append(true).open(path).map(Mutex::new).map_err(|e| bad(&e))
    });
    let logger = Logger { began: Instant::now(), shown, file: opened.transpose()? };
    let level = if logger.file.is_some() { LevelFilter::Debug } else { shown };
    // There is one logger a process; a second call would change nothing.
    if log::set_boxed_logger(Box::new(logger)).is_ok() {
        log::set_max_level(level);
    }
    log::info!("fedsa {} {}", env!("CARGO_PKG_VERSION"), std::env::args().skip(1).collect::<Vec<_>>().join(" "));
    Ok(())
}
