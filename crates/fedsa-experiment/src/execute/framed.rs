//! The bytes of checkpoints: a version, a checksum and data.

use std::path::Path;

use fedsa::error::{BadInput, Error, Result};
use fedsa_data::regular;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::folder::{self, RunFolder};

/// The first bytes of a checkpoint.
const MAGIC: &[u8; 8] = b"fedsack4";
const _: () = assert!(MAGIC[0] == folder::CHECKPOINT_MAGIC[0] && folder::CHECKPOINT_MAGIC.len() < MAGIC.len());

/// The bytes of a checkpoint: version, checksum, data.
pub fn framed(data: &impl Serialize) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    // Room for the checksum.
    let body = bytes.len() + 4;
    bytes.resize(body, 0);
    let mut bytes = postcard::to_extend(data, bytes).expect("plain data serialises");
    let sum = crc32fast::hash(&bytes[body..]);
    bytes[MAGIC.len()..body].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Writes a checkpoint.
///
/// # Errors
/// When it cannot be written.
pub fn write_framed(folder: &RunFolder, name: &str, data: &impl Serialize) -> Result<(), Error> {
    folder.write_own(name, &framed(data))
}

/// Reads what [`write_framed`] wrote.
///
/// # Errors
/// When the file cannot be read, is damaged, or belongs to another version.
pub fn read_framed<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bad = |what: &str| BadInput::format(CHECKPOINT, format!("{}: {what}", path.display()), INTACT);
    let bytes = regular::read(path, u64::MAX - 1).map_err(|e| bad(&format!("cannot be read: {e}")))?;
    unframed(&bytes).map_err(|what| bad(&what))
}

/// The help for a damaged checkpoint.
pub(super) const INTACT: &str = "an intact checkpoint; delete this one to run its part again from the start";

/// The key of errors about what an earlier run has saved.
pub const CHECKPOINT: &str = "checkpoint";

/// The data in a checkpoint's bytes.
///
/// # Errors
/// The reason why the bytes are not a valid checkpoint.
pub fn unframed<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, String> {
    let body = bytes.strip_prefix(MAGIC).ok_or("truncated, or not a checkpoint of this version")?;
    let (sum, body) = body.split_at_checked(4).ok_or("the checkpoint is truncated")?;
    if crc32fast::hash(body).to_le_bytes() != *sum {
        return Err("the checkpoint is truncated or damaged (its checksum differs)".into());
    }
    postcard::from_bytes(body).map_err(|_| "not a checkpoint of this version".into())
}
