//! Writing a file so that after a crash there is the old one or the new one,
//! never half of one.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use fedsa::error::{BadInput, Result};

use super::name_of;

/// How the names of files begin that are being written.
const TEMPORARY: &str = ".fedsa-";

/// Whether a file of this name was being written when a program was killed.
pub fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}

/// Replaces the contents of `path`, atomically and durably: the bytes go to a
/// new file in the same directory, reach the disk, and only then take the name.
/// Missing directories are created.
///
/// # Errors
/// When the directory cannot be made or written to, or the disk is full; what
/// was there before is then untouched.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    create_dir(dir)?;
    replace(dir, path, bytes).map_err(|e| unwritable(path, &e))
}

fn replace(dir: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY);
    // By default temporary files are for their owner only; this one will be a
    // result like any other, so the user's umask decides.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    // The name is on disk once the directory is; other systems cannot open one.
    if cfg!(unix) {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// Creates a directory and its parents, if need be.
///
/// # Errors
/// When that cannot be done, say because a file is in the way.
pub fn create_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|e| unwritable(dir, &e))
}

fn unwritable(path: &Path, e: &io::Error) -> BadInput {
    let help = match e.kind() {
        io::ErrorKind::StorageFull => "a disk with space left",
        _ => "a place that you may write to: choose another with --out",
    };
    BadInput::new(name_of(path), format!("cannot be written: {e}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/file");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
    }

    #[cfg(unix)]
    #[test]
    fn a_result_has_the_permissions_of_any_other_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |name: &str| dir.path().join(name).metadata().unwrap().permissions().mode();
        write(&dir.path().join("ours"), b"").unwrap();
        std::fs::write(dir.path().join("theirs"), b"").unwrap();
        assert_eq!(mode("ours"), mode("theirs"));
    }

    #[test]
    fn a_place_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        write(&file, b"kept").unwrap();
        // A file where a directory should be, and the other way round.
        for path in [file.join("x"), dir.path().to_path_buf()] {
            let e = write(&path, b"new").unwrap_err();
            assert!(e.to_string().contains("cannot be written"), "{e}");
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"kept");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
