//! Atomic writes: after a crash there is either the complete old file or the complete
//! new file.

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use fedsa::error::Error;

use super::name_of;

/// The prefix of the names of temporary files.
const TEMPORARY: &str = ".fedsa-";

/// The treatment of an existing file of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Keep it; the new file is not written.
    Keep,
    /// Replace it if it is a regular file.
    Replace,
    /// It is replaced, by a file that only its owner can read and write: a state.
    ReplaceByPrivate,
}

/// Writes a file atomically and durably: the bytes go to a new file in the folder `temporaries`,
/// reach the disk, and only then take the name. `temporaries` must be on the same file system.
///
/// # Errors
/// When the disk is full, the folder cannot be written to, or the name is taken: by anything with
/// [`Existing::Keep`], otherwise by anything but a regular file, such as a symbolic link. An existing
/// file is then unchanged, and no temporary file is left.
pub fn write(path: &Path, bytes: &[u8], temporaries: &Path, existing: Existing) -> io::Result<()> {
    if let Some(found) = at(path)?
        && (existing == Existing::Keep || !found.is_file())
    {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is {} of this name", kind_of(&found))));
    }
    // Errors should not name the temporary file.
    let plain = |e: io::Error| io::Error::from(e.kind());
    let mut file = temporary(temporaries, existing).map_err(plain)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(plain)?;
    match existing {
        Existing::Keep => file.persist_noclobber(path).map_err(|e| e.error)?,
        Existing::Replace | Existing::ReplaceByPrivate => file.persist(path).map_err(|e| e.error)?,
    };
    sync_folder(folder_of(path))
}

/// The metadata of the entry with this name, without following a symbolic link; `None` if the name is free.
///
/// # Errors
/// When the metadata cannot be read, for example because a parent folder may not be searched.
pub fn at(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// A kind of file in words: `a symbolic link`.
pub fn kind_of(found: &Metadata) -> &'static str {
    match found.file_type() {
        kind if kind.is_file() => "a file",
        kind if kind.is_dir() => "a folder",
        kind if kind.is_symlink() => "a symbolic link",
        _ => "a device, pipe or socket",
    }
}

fn temporary(folder: &Path, existing: Existing) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY);
    // By default only the owner can read temporary files. This one becomes a
    // result, so the user's umask applies.
    #[cfg(unix)]
    if existing != Existing::ReplaceByPrivate {
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}

/// Whether this is the name of a temporary file, which a killed program may leave.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}

/// The folder of a file.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Syncs the folder, which makes a new name durable. Only Unix can open a folder.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

/// The error for a path that cannot be written.
pub fn unwritable(path: &Path, e: &io::Error) -> Error {
    let help = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space on the disk, then run the same command again",
        io::ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f), then run the same command again",
        io::ErrorKind::AlreadyExists => "move it away, then run the same command again",
        _ => "choose a place that you may write to",
    };
    Error::machine(format!("{} cannot be written: {e}", name_of(path)), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        write(&path, b"one", dir.path(), Existing::Keep).unwrap();
        write(&path, b"two", dir.path(), Existing::Replace).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        write(&path, b"three", dir.path(), Existing::ReplaceByPrivate).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        #[cfg(unix)]
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn a_result_has_the_permissions_of_any_other_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode();
        write(&dir.path().join("ours"), b"", dir.path(), Existing::Keep).unwrap();
        std::fs::write(dir.path().join("theirs"), b"").unwrap();
        assert_eq!(mode("ours"), mode("theirs"));
    }

    #[cfg(unix)]
    #[test]
    fn what_is_there_stays_unless_it_is_a_file_that_may_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (file, folder, link, lost) = (dir.path().join("file"), dir.path().join("d"), dir.path().join("link"), dir.path().join("lost"));
        std::fs::write(&file, b"kept").unwrap();
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &lost).unwrap();
        let cases = [
            (&file, Existing::Keep, "a file"),
            (&folder, Existing::Replace, "a folder"),
            (&link, Existing::Replace, "a symbolic link"),
            (&link, Existing::Keep, "a symbolic link"),
            (&lost, Existing::Keep, "a symbolic link"),
        ];
        for (path, existing, what) in cases {
            let e = write(path, b"new", dir.path(), existing).unwrap_err();
            assert!(e.to_string().contains(what), "{path:?}: {e}");
            assert!(unwritable(path, &e).what.contains("cannot be written"));
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        assert!(link.symlink_metadata().unwrap().is_symlink());
        // A folder that is a file, and one that does not exist.
        assert!(write(&file.join("x"), b"", dir.path(), Existing::Keep).is_err());
        assert!(write(&dir.path().join("no/x"), b"", dir.path(), Existing::Keep).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4, "nothing was added");
    }
}
