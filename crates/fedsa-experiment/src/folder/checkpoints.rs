//! The names of checkpoints, and how the program recognises them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::{OWN, is_file};

/// The prefix of the names of checkpoints of single runs.
pub const RUN_CHECKPOINT: &str = "run-";
/// The prefix of the names of full files with the states of ended runs.
pub const ENDED_CHECKPOINT: &str = "ended-";
/// The file with predictions, while results are compared with theory.
pub const PREDICTIONS: &str = "predictions.ckpt";
/// The file with the pilots of a tuning.
pub const PILOTS: &str = "tune.ckpt";
/// The extension of checkpoints.
pub const CHECKPOINT: &str = ".ckpt";
/// The first bytes of every checkpoint of any version.
pub const CHECKPOINT_MAGIC: &[u8] = b"fedsack";
/// Whether a file is a checkpoint that the program wrote, by its name and its first bytes.
pub fn is_checkpoint(folder: &Path, name: &str) -> bool {
    name.ends_with(CHECKPOINT) && begins_with(&folder.join(name), CHECKPOINT_MAGIC)
}

fn begins_with(path: &Path, magic: &[u8]) -> bool {
    let mut head = Vec::new();
    let mut read = || File::open(path)?.take(magic.len() as u64).read_to_end(&mut head);
    is_file(path) && read().is_ok() && head == magic
}

/// The path of one of the program's own files in a run's folder.
pub fn own_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(OWN).join(name)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    /// The form of states in checkpoints: bytes, because a list of numbers would take seconds for states of 100 MB.
    #[derive(Serialize, Deserialize)]
    struct State(#[serde(with = "serde_bytes")] Option<Vec<u8>>);

    #[test]
    fn bytes_of_a_state_are_those_of_a_list() {
        for bytes in [None, Some(Vec::new()), Some(vec![0, 255, 128]), Some(vec![7; 1000])] {
            let written = postcard::to_stdvec(&State(bytes.clone())).unwrap();
            assert_eq!(written, postcard::to_stdvec(&bytes).unwrap());
            assert_eq!(postcard::from_bytes::<State>(&written).unwrap().0, bytes);
        }
        assert!(postcard::from_bytes::<State>(&[1, 9, 0]).is_err());
    }
}
