//! Whether files on the disk are those of a public data set.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::registry::{PublicFile, PublicSet};
use crate::find::Places;

/// What is on the disk of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileState {
    /// The file.
    Good(PathBuf),
    /// Nothing.
    Missing,
    /// Something else: where, and its SHA-256.
    Differs(PathBuf, String),
    /// Something that cannot be read: where, and why.
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

    /// The data set of which the file is that is there in place of another.
    pub fn other_set(&self) -> Option<&'static PublicSet> {
        match self {
            Self::Differs(_, sha256) => PublicSet::with_file(sha256).map(|(set, _)| set),
            _ => None,
        }
    }
}

/// The state of a file in the folders of data sets. The first folder that has a file of this name counts, as it does for
/// commands that read it. In the other folder that a set may be in, only the file itself counts.
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
/// When it cannot be read.
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
