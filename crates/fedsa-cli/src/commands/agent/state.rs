//! The folder with the state of an agent, locked by one process at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use fedsa::error::{Error, ErrorKind};
use fedsa_data::atomic::{self, Existing};
use fedsa_data::regular;

/// The file with the state.
const STATE: &str = "agent.state";
/// The lock file.
const LOCK: &str = "agent.lock";

/// The locked folder.
pub struct StateFolder {
    path: PathBuf,
    _lock: File,
}

impl StateFolder {
    /// Locks the folder, and creates it with permissions for this user only if it is missing.
    ///
    /// # Errors
    /// When another process has locked it, or it cannot be written to.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |e: io::Error| {
            let what = format!("the folder {} cannot be used: {e}", path.display());
            Error::machine(what, "--state DIR, a folder that you may write to")
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(failed)?;
        let lock = File::options().create(true).append(true).open(path.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_path_buf(), _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let what = format!("{} is that of an agent that runs", path.display());
                Err(Error::new("--state", what, "another folder, or stop that agent"))
            }
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The state, if one was saved.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path.join(STATE);
        match regular::read(&path, u64::MAX - 1) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::machine(format!("{} cannot be read: {e}", path.display()), "a state that you may read")),
        }
    }

    /// Saves a state, which is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written. The earlier state then remains.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.path.join(STATE);
        atomic::write(&path, bytes, &self.path, Existing::ReplaceByPrivate).map_err(|e| atomic::unwritable(&path, &e))
    }

    /// An error about the state, with help. Nothing is deleted.
    pub fn named(&self, e: Error) -> Error {
        let path = self.path.join(STATE).display().to_string();
        if e.kind() != ErrorKind::Format {
            return e.about(path);
        }
        let help =
            "the settings, data and version of that agent, or an intact copy of its state; or another --state, with which it applies anew";
        let what = format!("the state in {path} is damaged or not ours: {}", e.what);
        let mut e = e.saying(what).about("--state");
        e.help = help.into();
        e
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn one_process_has_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/state");
        let one = StateFolder::open(&path).unwrap();
        assert!(StateFolder::open(&path).err().unwrap().what.contains("an agent that runs"));
        assert_eq!(one.read().unwrap(), None);
        one.write(b"first").unwrap();
        one.write(b"second").unwrap();
        drop(one);
        assert_eq!(StateFolder::open(&path).unwrap().read().unwrap(), Some(b"second".to_vec()));
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"mine").unwrap();
        assert!(StateFolder::open(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
