//! Compares files on disk with a public data set.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::registry::{PublicFile, PublicSet};
use crate::find::Places;

/// The state of a file on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// The right file.
    Good(PathBuf),
    /// No file.
    Missing,
    /// A different file: its path and SHA-256.
    Differs(PathBuf, String),
    /// An unreadable file: its path and the reason.
    Unreadable(PathBuf, String),
}

impl FileState {
    /// The state in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Good(_) => "ok",
            Self::Missing => "missing",
            Self::Differs(..) => "differs",
            Self::Unreadable(..) => "unreadable",
        }
    }

    /// The data set to which a different file belongs.
    pub fn other_set(&self) -> Option<&'static PublicSet> {
        match self {
            Self::Differs(_, sha256) => PublicSet::with_file(sha256).map(|(set, _)| set),
            _ => None,
        }
    }
}

/// The state of a file in the folders of data sets. The first folder with a file of this name counts, as for commands that read it. In
/// the set's alternative folder, only the right file counts.
pub fn state(set: &PublicSet, file: &PublicFile, places: &Places) -> FileState {
    let name = file.path.rsplit('/').next().unwrap_or(file.path);
    let own = places.data.iter().map(|folder| folder.join(file.path)).find(|path| path.symlink_metadata().is_ok());
    if let Some(path) = own {
        return state_at(&path, file);
    }
    let other = set.also_in.into_iter().flat_map(|other| places.data.iter().map(move |folder| folder.join(other).join(name)));
    other.map(|path| state_at(&path, file)).find(|state| matches!(state, FileState::Good(_))).unwrap_or(FileState::Missing)
}

/// The state of a file at a path.
pub fn state_at(path: &Path, file: &PublicFile) -> FileState {
    match crate::regular::opened(path, u64::MAX).and_then(|(opened, _)| sha256(opened)) {
        Ok(found) if found == file.sha256 => FileState::Good(path.into()),
        Ok(found) => FileState::Differs(path.into(), found),
        Err(e) if e.kind() == io::ErrorKind::NotFound => FileState::Missing,
        Err(e) => FileState::Unreadable(path.into(), e.to_string()),
    }
}

/// The SHA-256 of a file, hexadecimal.
///
/// # Errors
/// When the file cannot be read.
pub fn sha256(mut file: File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => hasher.update(&buffer[..read]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
