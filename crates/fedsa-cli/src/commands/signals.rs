//! Ctrl-C, SIGTERM, and SIGHUP of a terminal that goes away.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Once};

use super::warn;
use crate::error::INTERRUPTED;

/// Set by the first signal.
static INTERRUPT: AtomicBool = AtomicBool::new(false);
/// What a command is doing.
static PHASE: AtomicU8 = AtomicU8::new(Phase::Before as u8);

/// What a command is doing when it is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Nothing that leaves anything to go on from.
    Before,
    /// Runs are under way, which can end with their last completed round kept.
    Working,
    /// All runs have ended, and are saved; their results are being made.
    Ending,
}

/// Says what the command does from here on.
pub fn enter(phase: Phase) {
    PHASE.store(phase as u8, Ordering::SeqCst);
}

/// Watches for signals from here on. While runs are under way the first signal asks them to end, and a
/// second one ends the process at once; at other times the first one does. Files are written
/// atomically, so that no moment is a bad one.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(e) = install() {
            warn(format!("warning: Ctrl-C ends this run without a checkpoint: {e}"));
        }
    });
}

/// Set by the first signal while runs are under way.
pub fn flag() -> &'static AtomicBool {
    &INTERRUPT
}

/// Lets writing to a file that is at the limit on file sizes fail with an error, as a full disk
/// does, instead of killing the process.
pub fn survive_file_limits() {
    #[cfg(unix)]
    {
        // Only that there is a handler matters. Without one the process dies as it did before.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    }
}

#[cfg(unix)]
fn install() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    // `nohup` has it ignored, and so it stays.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || signals.forever().for_each(|_| interrupt()))?;
    Ok(())
}

/// Whether the process was started with a signal ignored, as far as the system tells.
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
    if phase != Phase::Working as u8 {
        warn(match phase == Phase::Ending as u8 {
            true => "interrupted: all runs had ended; the same command with --resume makes their results",
            false => "interrupted",
        });
        std::process::exit(i32::from(INTERRUPTED));
    }
    if INTERRUPT.swap(true, Ordering::SeqCst) {
        warn("interrupted again: ended without further checkpoints");
        std::process::exit(i32::from(INTERRUPTED));
    }
    warn("interrupting: the last completed rounds are being saved (a second Ctrl-C ends at once)");
}
