//! Ctrl-C and SIGTERM while runs are under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};

use super::warn;
use crate::error::INTERRUPTED;

/// Set by the first signal.
static INTERRUPT: AtomicBool = AtomicBool::new(false);
/// Whether runs are under way that can end with their last completed round kept.
static AT_WORK: AtomicBool = AtomicBool::new(false);

/// Watches for signals from here on; the flag is set by the first. While runs are under way the
/// first signal asks them to end, and a second one ends the process at once; at other times the
/// first one does. Files are written atomically, so that no moment is a bad one.
pub fn watch() -> &'static AtomicBool {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(e) = install() {
            warn(format!("warning: Ctrl-C ends this run without a checkpoint: {e}"));
        }
    });
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

/// Says whether runs are under way.
pub fn set_at_work(at_work: bool) {
    AT_WORK.store(at_work, Ordering::SeqCst);
}

#[cfg(unix)]
fn install() -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || signals.forever().for_each(|_| interrupt()))?;
    Ok(())
}

#[cfg(not(unix))]
fn install() -> std::io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn interrupt() {
    if !AT_WORK.load(Ordering::SeqCst) {
        warn("interrupted; the same command with --resume goes on from the last checkpoints");
        std::process::exit(i32::from(INTERRUPTED));
    }
    if INTERRUPT.swap(true, Ordering::SeqCst) {
        warn("interrupted again: ended without further checkpoints");
        std::process::exit(i32::from(INTERRUPTED));
    }
    warn("interrupting: the last completed rounds are being saved (a second Ctrl-C ends at once)");
}
