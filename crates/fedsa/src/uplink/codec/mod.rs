//! Codecs: one agent's vector to bytes and back.
//!
//! A codec is pure: what it remembers from message to message (error feedback)
//! belongs to the link. Its random choices come from a stream that both ends can
//! open, so that a dither can be subtracted where it was not sent.

mod exact;

pub use exact::Exact;

use crate::error::{BadInput, Result};
use crate::random::Stream;

/// Turns a vector into bytes and back.
pub trait Codec: Send + Sync {
    /// Its number in messages.
    fn tag(&self) -> u8;
    /// The bytes that `n` numbers take when the link carries `budget` bits a
    /// component this time (any number when absent); `None` when it cannot carry them.
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize>;
    /// Appends the bytes of `x` to `out`: as many as [`Codec::encoded_len`] says,
    /// which must not be `None`.
    fn encode(&self, x: &[f64], budget: Option<u32>, stream: &mut Stream, out: &mut Vec<u8>);
    /// Reads `out.len()` numbers from the start of `bytes`; returns how many bytes they took.
    /// `stream` is the encoder's, opened anew.
    ///
    /// # Errors
    /// When the bytes are not this codec's. Never panics.
    fn decode(&self, bytes: &[u8], stream: &mut Stream, out: &mut [f64]) -> Result<usize>;
    /// Fewest bytes that `n` numbers take: what a decoder may allocate for is bounded by it.
    fn min_len(&self, n: usize) -> usize;
    /// Whether decoding gives back every bit, so that the bytes need not be made
    /// where nobody sends them.
    fn is_exact(&self) -> bool {
        false
    }
    /// Whether `E decode(encode(x)) = x`.
    fn is_unbiased(&self) -> bool;
}

/// The error of a decoder.
pub(crate) fn malformed(what: impl Into<String>) -> BadInput {
    BadInput::new("message", what, "the bytes of a message made by the same codec")
}
