//! The bytes of enrolment: the kind, the version, a value, and a checksum.

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::protocol::refused;

/// The version of the protocol of enrolment and rounds. Ends of other versions are refused; the error names both versions.
pub const VERSION: u16 = 8;

/// The start of every message of enrolment, and of no message of a round ([`crate::message`] has its version there).
const MAGIC: [u8; 4] = *b"fsaE";

/// The largest length of a message, in bytes.
pub(super) const LONGEST: usize = 1 << 26;

/// The accepted length, in words.
pub(super) const ACCEPTED: &str = "at most 64 MiB";

const FRONT: usize = MAGIC.len() + 2 + 1;
const CHECKSUM: usize = 4;

/// The kinds of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Invitation = 1,
    Application = 2,
    Admission = 3,
    Epoch = 4,
    Farewell = 5,
    Question = 6,
    Answer = 7,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Invitation => "an invitation",
            Kind::Application => "an application",
            Kind::Admission => "an admission",
            Kind::Epoch => "an announcement of an epoch",
            Kind::Farewell => "a farewell",
            Kind::Question => "a question about sums",
            Kind::Answer => "sums",
        }
    }
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    *Sha256::digest(bytes).first_chunk().expect("32 bytes")
}

/// A value as bytes.
pub(super) fn written(kind: Kind, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &[kind as u8]].concat();
    bytes = postcard::to_extend(value, bytes).expect("plain data serialises");
    bytes.extend(checksum(&bytes));
    bytes
}

/// Whether bytes are a message of enrolment, not of a round.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Whether bytes are a message of enrolment of this kind.
pub(super) fn is_of(kind: Kind, bytes: &[u8]) -> bool {
    is_one(bytes) && bytes.get(FRONT - 1) == Some(&(kind as u8))
}

/// Decodes a value.
///
/// # Errors
/// When the bytes are damaged or not a message of this kind and version.
pub(super) fn read<T: DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T> {
    let expected = || format!("{} of this version", kind.name());
    if bytes.len() < FRONT + CHECKSUM || !is_one(bytes) {
        return Err(refused("bytes that are no message of enrolment", &expected()));
    }
    if bytes.len() > LONGEST {
        return Err(refused(format!("{} bytes", bytes.len()), ACCEPTED));
    }
    let (body, end) = bytes.split_at(bytes.len() - CHECKSUM);
    let version = u16::from_le_bytes([bytes[MAGIC.len()], bytes[MAGIC.len() + 1]]);
    if version != VERSION {
        return Err(refused(format!("version {version} of the protocol"), &format!("version {VERSION}, which this end has")));
    }
    if checksum(body) != end {
        return Err(refused("damaged bytes", &expected()));
    }
    if body[FRONT - 1] != kind as u8 {
        return Err(refused("another message of enrolment", &expected()));
    }
    match postcard::take_from_bytes(&body[FRONT..]) {
        Ok((value, [])) => Ok(value),
        _ => Err(refused("bytes without a value", &expected())),
    }
}
