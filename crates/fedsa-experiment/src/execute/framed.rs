//! The bytes of checkpoints: a version, a checksum and data.

use std::path::Path;

use fedsa::error::{Error, Result};
use fedsa_data::regular;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::folder::{self, RunFolder};

/// The first bytes of a checkpoint.
const MAGIC: &[u8; 8] = b"fedsack5";
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
    let bad = |what: &str| Error::format(CHECKPOINT, format!("{}: {what}", path.display()), INTACT);
    let bytes = regular::read(path, u64::MAX - 1).map_err(|e| bad(&format!("cannot be read: {e}")))?;
    unframed(&bytes).map_err(|what| bad(&what))
}

/// The help for a damaged checkpoint.
pub(super) const INTACT: &str = "an intact checkpoint; delete this one to run its part again from the start";

/// The key of errors about the checkpoints of an earlier run.
pub const CHECKPOINT: &str = "checkpoint";

/// The data in a checkpoint's bytes.
///
/// # Errors
/// The reason why the bytes are not a valid checkpoint.
pub fn unframed<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<T, String> {
    let body = bytes.strip_prefix(MAGIC).ok_or_else(|| foreign(bytes))?;
    let (sum, body) = body.split_at_checked(4).ok_or("the checkpoint is truncated")?;
    if crc32fast::hash(body).to_le_bytes() != *sum {
        return Err("the checkpoint is truncated or damaged (its checksum differs)".into());
    }
    postcard::from_bytes(body).map_err(|_| "not a checkpoint of this version".into())
}

/// The error about bytes without the start of this version.
fn foreign(bytes: &[u8]) -> String {
    let version = |bytes: &[u8]| bytes.strip_prefix(folder::CHECKPOINT_MAGIC)?.first().copied().filter(u8::is_ascii_digit).map(char::from);
    match version(bytes).zip(version(MAGIC)) {
        Some((other, own)) => format!("a checkpoint of layout {other}; this version has {own}"),
        None => "truncated, or not a checkpoint of this version".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::error::ErrorKind;

    #[test]
    fn checkpoints_of_other_versions_name_both() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run-0-0.ckpt");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            read_framed::<u32>(&path)
        };
        let mut bytes = framed(&7u32);
        assert_eq!(read(&bytes).unwrap(), 7);
        for other in [b'3', b'6'] {
            bytes[MAGIC.len() - 1] = other;
            let e = read(&bytes).unwrap_err();
            let what = format!("a checkpoint of layout {}; this version has 5", char::from(other));
            assert!(e.kind() == ErrorKind::Format && e.what.contains(&what), "{e}");
        }
        for short in [&b""[..], b"fedsack", b"fedsackx and so on"] {
            assert!(read(short).unwrap_err().what.contains("truncated, or not a checkpoint"));
        }
    }
}
