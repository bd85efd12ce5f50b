//! Codecs: one agent's vector to bytes and back.
//!
//! A codec is pure: what it remembers from message to message (error feedback)
//! belongs to the link. Its random choices come from a stream that both ends can
//! open, so that a dither can be subtracted where it was not sent.

mod bits;
mod exact;
mod float32;
pub mod quantised;
pub mod sparse;

pub use exact::{Exact, ExactSettings};
pub use float32::Float32;
pub use quantised::{Quantised, Rounding};
pub use sparse::{RandK, TopK};

use crate::error::{BadInput, Result};
use crate::random::Stream;
use crate::registry::{Kind, kind};

/// Turns a vector into bytes and back.
pub trait Codec: std::fmt::Debug + Send + Sync {
    /// Its number in messages, below 254.
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
    /// # Errors
    /// When a setting, which it names, asks for more than vectors of `d` components have.
    fn check_dim(&self, _d: usize) -> Result<()> {
        Ok(())
    }
    /// # Errors
    /// When error feedback of vectors of `d` components grows without bound whatever they are.
    fn check_feedback(&self, _d: usize) -> Result<()> {
        Ok(())
    }
}

/// The settings of one codec: what `codec` holds beside `kind`.
pub trait CodecSettings: erased_serde::Serialize + Send + Sync {
    /// Checks ranges.
    ///
    /// # Errors
    /// When a setting is out of range; names it.
    fn check(&self) -> Result<()>;
    /// Builds the codec; settings are checked.
    fn build(&self) -> Box<dyn Codec>;
}

erased_serde::serialize_trait_object!(CodecSettings);

/// The kinds of codecs, by the name that `kind` gives.
pub const KINDS: &[Kind<dyn CodecSettings>] = &[
    kind!("exact", "64 bits a component", ExactSettings),
    kind!("float32", "32 bits a component, rounded to nearest", Float32),
    kind!("quantised", "b bits a component on a uniform grid", Quantised),
    kind!("top-k", "the k components of largest magnitude", TopK),
    kind!("rand-k", "k components at random", RandK),
];

/// The error of a decoder.
pub(crate) fn malformed(what: impl Into<String>) -> BadInput {
    BadInput::new("message", what, "the bytes of a message made by the same codec")
}
