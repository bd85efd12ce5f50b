//! The bytes of the states that runs, nodes, enrolments and agents save.
//!
//! | what | type |
//! | --- | --- |
//! | the version of the layout | u32, as postcard writes it |
//! | the state | postcard |
//! | CRC-32 (IEEE 802.3) of all bytes before, little endian | u32 |
//!
//! The checksum detects damage by a failing disk, but not deliberate changes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 4;

/// The name and version of a saved layout.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The name in errors, such as `node`.
    pub name: &'static str,
    /// The version, which rises with every change of the bytes. Other versions are refused.
    pub version: u32,
}

impl Layout {
    /// A state as bytes.
    pub fn write(&self, state: &impl Serialize) -> Vec<u8> {
        sealed(postcard::to_stdvec(&(self.version, state)).expect("plain data serialises"))
    }

    /// The state in bytes that [`Layout::write`] returned.
    ///
    /// # Errors
    /// Of the kind [`crate::error::ErrorKind::Format`], when the bytes are damaged or have another version, which the error names.
    pub fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        let Self { name, version } = self;
        let Ok((other, _)) = postcard::take_from_bytes::<u32>(bytes) else { return Err(self.foreign()) };
        if other != *version {
            let what = format!("a saved {name} of layout {other}; this version has {version}");
            return Err(self.error(what, "a state that this version saved"));
        }
        let Some((text, checksum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else { return Err(self.foreign()) };
        if crc32fast::hash(text) != u32::from_le_bytes(*checksum) {
            return Err(self.error(format!("a saved {name} that is damaged: its checksum does not match"), "an intact copy of the state"));
        }
        match postcard::take_from_bytes::<(u32, T)>(text) {
            Ok(((_, state), [])) => Ok(state),
            _ => Err(self.foreign()),
        }
    }

    /// The error about bytes that are a state of something else.
    pub fn foreign(&self) -> Error {
        let name = self.name;
        self.error(format!("not a state of this {name}"), &format!("a state that the same {name} saved, with the same settings"))
    }

    fn error(&self, what: String, help: &str) -> Error {
        Error::format(format!("saved {}", self.name), what, help)
    }
}

/// A part of a state, such as a rule's state, as bytes.
///
/// # Panics
/// When the state is not plain data.
pub fn packed(state: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(state).expect("plain data serialises")
}

/// The part in bytes that [`packed`] returned.
///
/// # Errors
/// When the bytes are of another type.
pub fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((state, [])) => Ok(state),
        _ => Err(Error::format("checkpoint", "not the state of this rule", "a checkpoint of the same settings")),
    }
}

/// Bytes with their checksum behind them.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const THIS: Layout = Layout { name: "node", version: 300 };

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let state = (7u64, vec![0.5, -1.0], Some("text".to_string()));
        assert_eq!(THIS.read::<(u64, Vec<f64>, Option<String>)>(&THIS.write(&state)).unwrap(), state);
    }

    #[test]
    fn every_flipped_bit_and_every_lost_byte_is_noticed() {
        let bytes = THIS.write(&(7u64, vec![0.5, -1.0]));
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(THIS.read::<(u64, Vec<f64>)>(&damaged).unwrap_err().kind(), ErrorKind::Format, "bit {bit}");
        }
        assert!((0..bytes.len()).all(|n| THIS.read::<(u64, Vec<f64>)>(&bytes[..n]).is_err()));
    }

    #[test]
    fn other_versions_and_other_contents_are_refused() {
        // The states of earlier versions had no checksum.
        let older = THIS.read::<u64>(&postcard::to_stdvec(&(3u32, 7u64)).unwrap()).unwrap_err();
        assert_eq!((older.kind(), older.what.contains("layout 3; this version has 300")), (ErrorKind::Format, true), "{older}");
        let longer = THIS.read::<u64>(&THIS.write(&(7u64, 1u8))).unwrap_err();
        assert!(longer.what.contains("not a state of this node"), "{longer}");
    }
}
