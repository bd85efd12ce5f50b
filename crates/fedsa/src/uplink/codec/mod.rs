//! Codecs: one agent's vector to bytes and back.
//!
//! A codec has no state: the link keeps the stored errors of error feedback. Random choices come from a stream that both ends can open, so
//! a dither or the indices of random components need not be sent.

pub(crate) mod bits;
mod exact;
mod float32;
pub mod quantised;
pub mod sparse;

pub use exact::{Exact, ExactSettings};
pub use float32::Float32;
pub use quantised::{Quantised, Rounding};
pub use sparse::{RandK, TopK};

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::random::Stream;
use crate::registry::{Kind, kind};

/// Turns a vector into bytes and back.
pub trait Codec: erased_serde::Serialize + std::fmt::Debug + Send + Sync {
    /// The codec's number in messages, below 254.
    fn tag(&self) -> u8;
    /// The number of bytes of `n` encoded numbers if the link carries `budget` bits per
    /// component (without a limit if absent); `None` if the link cannot carry them.
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize>;
    /// Appends the [`Codec::encoded_len`] bytes of `x` to `out`. The length must not be `None`.
    fn encode(&self, x: &[f64], budget: Option<u32>, stream: &mut Stream, out: &mut Vec<u8>);
    /// Reads `out.len()` numbers from the start of `bytes`; returns how many bytes they took. `stream` is the encoder's stream from its
    /// start.
    ///
    /// # Errors
    /// When this codec did not produce the bytes.
    fn decode(&self, bytes: &[u8], stream: &mut Stream, out: &mut [f64]) -> Result<usize>;
    /// The smallest number of bytes of `n` encoded numbers. It limits what a decoder may allocate.
    fn min_len(&self, n: usize) -> usize;
    /// Whether decoding restores every bit; the engine then skips encoding.
    fn is_exact(&self) -> bool {
        false
    }
    /// Whether `E decode(encode(x)) = x`.
    fn is_unbiased(&self) -> bool;
    /// Checks the settings for vectors of `d` components.
    ///
    /// # Errors
    /// When a setting needs more components; names the setting.
    fn check_dim(&self, _d: usize) -> Result<()> {
        Ok(())
    }
    /// Checks that the codec can be used with error feedback.
    ///
    /// # Errors
    /// When the stored error of vectors of `d` components always grows without bound.
    fn check_feedback(&self, _d: usize) -> Result<()> {
        Ok(())
    }
}

erased_serde::serialize_trait_object!(Codec);

/// The settings of one codec: the keys of `codec` except `kind`.
pub trait CodecSettings: erased_serde::Serialize + Send + Sync {
    /// Checks ranges.
    ///
    /// # Errors
    /// When a setting is out of range; names the setting.
    fn check(&self) -> Result<()>;
    /// Builds the codec from checked settings.
    fn build(&self) -> Arc<dyn Codec>;
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
pub(crate) fn malformed(what: impl Into<String>) -> Error {
    Error::refused_message(what, "the bytes of a message made by the same codec")
}
