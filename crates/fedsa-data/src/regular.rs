//! Reads regular files only: reading from a pipe or a device may block or never end.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use crate::machine::bytes_text;

/// The largest text file to read (resolved experiments, summaries), in bytes.
const LARGEST_TEXT: u64 = 256 << 20;
/// The limit for files that claim to be shorter, in bytes: files of `/proc` claim the length 0.
const UNCLAIMED: u64 = 1 << 20;

/// The contents of a regular file of at most `most` bytes.
///
/// Only regular files are opened, because opening a pipe waits for a writer. At most the claimed
/// size of the file is read, or 1 MiB if it claims less.
///
/// # Errors
/// When it cannot be read, is not a regular file, or is too large.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (mut file, metadata) = opened(path, most)?;
    let claimed = metadata.len();
    let limit = claimed.max(UNCLAIMED.min(most));
    let mut bytes = Vec::new();
    let no_room = |_| io::Error::new(io::ErrorKind::OutOfMemory, format!("there is no memory for its {}", bytes_text(claimed as f64)));
    let is_too_much = crate::machine::available().ok().flatten().is_some_and(|available| claimed as f64 > available.bytes);
    if is_too_much || bytes.try_reserve_exact(usize::try_from(claimed).unwrap_or(usize::MAX)).is_err() {
        return Err(no_room(()));
    }
    Read::by_ref(&mut file).take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it holds more than the {claimed} bytes that it claims to hold")));
    }
    Ok(bytes)
}

/// Opens a regular file of at most `most` bytes, as [`read`] does.
///
/// # Errors
/// When it cannot be opened, is not a regular file, or is too large.
pub(crate) fn opened(path: &Path, most: u64) -> io::Result<(File, Metadata)> {
    check(&path.metadata()?, most)?;
    let file = open(path)?;
    // The file may have been replaced since its metadata was read.
    let metadata = file.metadata()?;
    check(&metadata, most)?;
    Ok((file, metadata))
}

/// The first bytes of a regular file, at most `most`.
///
/// # Errors
/// When it cannot be read, or is not a regular file.
pub fn start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    opened(path, u64::MAX)?.0.take(most).read_to_end(&mut start)?;
    Ok(start)
}

/// The text of a regular file of at most `LARGEST_TEXT` bytes.
///
/// # Errors
/// As [`read`]; when it is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path, LARGEST_TEXT)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.utf8_error()))
}

/// Rejects anything but a regular file of at most `most` bytes.
fn check(file: &Metadata, most: u64) -> io::Result<()> {
    if !file.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, not a regular file", kind(file))));
    }
    if file.len() > most { Err(too_large(file.len(), most)) } else { Ok(()) }
}

fn too_large(length: u64, most: u64) -> io::Error {
    let text = |bytes: u64| bytes_text(bytes as f64);
    io::Error::new(io::ErrorKind::FileTooLarge, format!("it has {}, and at most {} are read", text(length), text(most)))
}

#[cfg(unix)]
fn open(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // Opening does not block if the file has become a pipe.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    std::fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

#[cfg(not(unix))]
fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// The type of a file that is not a regular file.
fn kind(file: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = file.file_type();
        if kind.is_fifo() {
            return "a pipe";
        } else if kind.is_socket() {
            return "a socket";
        } else if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if file.is_dir() { "a directory" } else { "something else" }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let says = |name: &str| read(&path(name), 1 << 20).unwrap_err().to_string();
        rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        std::os::unix::fs::symlink(path("pipe"), path("link")).unwrap();
        std::os::unix::fs::symlink(path("loop"), path("loop")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        assert_eq!(says("pipe"), "it is a pipe, not a regular file");
        assert_eq!(says("link"), "it is a pipe, not a regular file");
        assert_eq!(says("socket"), "it is a socket, not a regular file");
        assert_eq!(says("."), "it is a directory, not a regular file");
        assert!(says("loop").contains("symbolic links"), "{}", says("loop"));
        assert!(says("none").contains("No such file"));
    }

    #[test]
    fn a_file_is_read_up_to_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 3000]).unwrap();
        assert_eq!(read(&path, 3000).unwrap(), [7; 3000]);
        assert_eq!(read(&path, 2999).unwrap_err().to_string(), "it has 3.0 kB, and at most 3.0 kB are read");
        // A sparse file takes no space on the disk.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path, 1 << 30).unwrap_err().to_string(), "it has 1.1 TB, and at most 1.1 GB are read");
    }

    #[test]
    fn what_claims_no_length_is_read_as_far_as_a_bound() {
        if cfg!(target_os = "linux") {
            assert_eq!(Path::new("/proc/self/status").metadata().unwrap().len(), 0);
            assert!(read(Path::new("/proc/self/status"), 1 << 20).unwrap().starts_with(b"Name:"));
            assert_eq!(
                read(Path::new("/proc/self/status"), 10).unwrap_err().to_string(),
                "it holds more than the 0 bytes that it claims to hold"
            );
        }
    }
}
