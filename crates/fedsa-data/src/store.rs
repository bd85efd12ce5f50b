//! The bytes of a file: in memory, or on disk and read where needed.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::sync::Arc;

use bytes::Bytes;

/// The bytes of a file.
#[derive(Debug, Clone)]
pub(super) enum Store {
    Memory(Bytes),
    /// On disk, with its length at opening; bytes added later are not read.
    Disk(Arc<File>, u64),
}

impl From<Vec<u8>> for Store {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Memory(bytes.into())
    }
}

impl Store {
    /// The number of bytes.
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Disk(_, length) => *length,
        }
    }

    /// Reads bytes from `at` on into `out`, and returns their number: 0 at the end.
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.len().saturating_sub(at)).unwrap_or(usize::MAX);
        let most = out.len().min(left);
        let out = &mut out[..most];
        match self {
            Self::Memory(bytes) => out.copy_from_slice(&bytes[at as usize..][..most]),
            // The reader opened the file itself, so nothing else moves its position.
            Self::Disk(file, _) => {
                let mut file = &**file;
                file.seek(SeekFrom::Start(at))?;
                return file.read(out);
            }
        }
        Ok(most)
    }

    /// `length` bytes from `at` on.
    ///
    /// # Errors
    /// When the file ends earlier, or cannot be read.
    pub(super) fn bytes(&self, at: u64, length: usize) -> io::Result<Bytes> {
        if at.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "it ends before its parts do"));
        }
        match self {
            Self::Memory(bytes) => Ok(bytes.slice(at as usize..at as usize + length)),
            Self::Disk(..) => {
                let mut out = vec![0; length];
                self.reader_at(at).read_exact(&mut out)?;
                Ok(out.into())
            }
        }
    }

    /// The bytes from `at` on.
    pub(super) fn reader_at(&self, at: u64) -> StoreReader {
        StoreReader { store: self.clone(), at }
    }
}

/// A reading position in a file.
#[derive(Debug)]
pub(super) struct StoreReader {
    store: Store,
    at: u64,
}

impl Read for StoreReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.store.read_at(self.at, out)?;
        self.at += read as u64;
        Ok(read)
    }
}
