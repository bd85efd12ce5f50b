//! The lock of a folder, to which one process at a time writes.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::Duration;

use fedsa::error::{Error, ErrorCode};
use fedsa_data::atomic::at;

use super::{LOCK, OUT, OWN};

/// Whether another process holds a lock.
pub enum Lock {
    /// This process holds the lock.
    Free(File),
    /// Another process holds the lock.
    Held,
}

/// Takes the lock in a folder's `.fedsa`. With `make`, a missing lock file is created.
pub fn take_lock(own: &Path, make: bool) -> io::Result<Option<Lock>> {
    let path = own.join(LOCK);
    let found = at(&path)?;
    if found.is_none() && !make {
        return Ok(None);
    }
    if found.is_some_and(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the lock is not a file"));
    }
    // A process that only tests the lock holds it briefly.
    for attempt in 0.. {
        let file = OpenOptions::new().read(true).write(true).create(make).truncate(false).open(&path)?;
        match file.try_lock() {
            // A run that was abandoned in the meantime has removed its lock file.
            Ok(()) if !is_same(&file, &path) => {}
            Ok(()) => return Ok(Some(Lock::Free(file))),
            Err(TryLockError::WouldBlock) if attempt >= ATTEMPTS => return Ok(Some(Lock::Held)),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            // Some network file systems have no locks; the run continues without one.
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Unsupported => return Ok(Some(Lock::Free(file))),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    unreachable!("the loop has no other end")
}

/// The number of attempts to take a lock that is held.
const ATTEMPTS: u32 = 5;

/// Whether an open file still has this name.
fn is_same(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let (Ok(open), Ok(Some(there))) = (file.metadata(), at(path)) else { return false };
        (open.dev(), open.ino()) == (there.dev(), there.ino())
    }
    #[cfg(not(unix))]
    {
        path.exists() && file.metadata().is_ok()
    }
}

/// The error for a folder to which another process writes.
pub fn is_busy(path: &Path) -> Error {
    let pid = std::fs::read_to_string(path.join(OWN).join(LOCK)).unwrap_or_default();
    let process = pid.trim().parse::<u32>().map_or(String::new(), |pid| format!(" (process {pid})"));
    let what = format!("another fedsa{process} is writing to {}", path.display());
    Error::new(OUT, what, "another folder, or the same one when that run has ended").coded(ErrorCode::OutputBusy)
}

/// Whether a process holds the lock of a folder.
pub fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path.join(OWN).join(LOCK)) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}
