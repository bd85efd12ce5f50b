//! Files that only grow. The caller remembers how many bytes count, in a file that it writes [as a whole](crate::atomic) afterwards.
//! After a crash, the next call cuts off the bytes behind these.

use std::fs::OpenOptions;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;

use crate::atomic;

/// Appends bytes durably after the first `kept` bytes of a file, which is created if missing. Bytes after the first `kept` are lost.
///
/// # Errors
/// When the disk is full, the file cannot be written to or has fewer bytes, or the name belongs to something else, such as a symbolic
/// link. The first `kept` bytes are then unchanged.
pub fn append(path: &Path, kept: u64, bytes: &[u8]) -> io::Result<()> {
    if let Some(found) = atomic::at(path)?.filter(|found| !found.is_file()) {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is {} of this name", atomic::kind_of(&found))));
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let found = file.metadata()?.len();
    if found < kept {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has {found} bytes, and {kept} were written")));
    }
    file.set_len(kept)?;
    file.seek(SeekFrom::Start(kept))?;
    file.write_all(bytes)?;
    file.sync_data()?;
    // With `kept` 0 the name may be new.
    if kept == 0 { atomic::sync_folder(atomic::folder_of(path)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_count_is_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        append(&path, 0, b"one\n").unwrap();
        append(&path, 4, b"two, and some that nobody remembers").unwrap();
        append(&path, 4, b"2\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n2\n");
        let e = append(&path, 7, b"x").unwrap_err();
        assert!(e.to_string().contains("6 bytes, and 7"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), b"one\n2\n");
        assert!(append(dir.path(), 0, b"x").is_err());
    }
}
