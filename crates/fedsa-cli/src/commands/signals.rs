//! Ctrl-C, SIGTERM, and SIGHUP of a terminal that is closed.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LazyLock, Once};

use fedsa::cancel::Cancel;

use super::warn;
use crate::error::INTERRUPTED;

/// Cancelled by the first signal.
static CANCEL: LazyLock<Cancel> = LazyLock::new(Cancel::new);
/// The current phase of the command.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Before as u8);

/// The phases of a command, which determine the effect of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// No runs are in progress; nothing can be resumed.
    Before,
    /// Runs are in progress; they can end and save their last completed round.
    Working,
    /// All runs have ended and are saved; their results are being computed.
    Ending,
    /// A tuning searches settings; the search can end, and finished pilot runs are saved.
    Searching,
}

/// Sets the phase of the command.
pub fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

/// Installs the signal handlers. While runs are in progress, the first signal asks them to end, and a
/// second one ends the process at once. In other phases the first signal ends the process at once. This is
/// safe at any time, because files are written atomically.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(e) = install() {
            warn(format!("warning: Ctrl-C ends this run without a checkpoint: {e}"));
        }
    });
}

/// Cancelled by the first signal while runs are in progress.
pub fn cancel() -> &'static Cancel {
    &CANCEL
}

/// Makes a write beyond the limit on file sizes fail with an error, like a full disk,
/// instead of killing the process.
pub fn survive_file_limits() {
    #[cfg(unix)]
    {
        // Only the existence of a handler matters. Without one, the process is killed as before.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    }
}

#[cfg(unix)]
fn install() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    // `nohup` ignores the signal, and it stays ignored.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || signals.forever().for_each(|_| interrupt()))?;
    Ok(())
}

/// Whether the process was started with a signal ignored; false if the system does not provide this.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

#[cfg(not(unix))]
fn install() -> std::io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn interrupt() {
    let phase = PHASE.load(Ordering::SeqCst);
    let is_searching = phase == Phase::Searching as u8;
    if phase != Phase::Working as u8 && !is_searching {
        warn(match phase == Phase::Ending as u8 {
            true => "interrupted: all runs had ended; the same command with --resume makes their results",
            false => "interrupted",
        });
        std::process::exit(i32::from(INTERRUPTED));
    }
    // One thread handles all signals.
    if CANCEL.is_cancelled() {
        warn("interrupted again: ended without further checkpoints");
        std::process::exit(i32::from(INTERRUPTED));
    }
    CANCEL.cancel();
    let what = if is_searching { "the search ends" } else { "the last completed rounds are being saved" };
    warn(format!("interrupting: {what} (a second Ctrl-C ends at once)"));
}
