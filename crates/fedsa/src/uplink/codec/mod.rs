//! Codecs: one agent's vector to bytes and back.

use crate::error::{BadInput, Result};
use crate::random::Stream;

/// Turns a vector into bytes and back.
pub trait Codec: Send + Sync {
    /// Its number in messages.
    fn tag(&self) -> u8;
    /// The bytes that `n` numbers take.
    fn encoded_len(&self, n: usize) -> usize;
    /// Appends the bytes of `x`.
    fn encode(&self, x: &[f64], stream: &mut Stream, out: &mut Vec<u8>);
    /// The `n` numbers at the start of `bytes`, and how many bytes they took.
    ///
    /// # Errors
    /// When the bytes are too short; never allocates more than they justify.
    fn decode(&self, bytes: &[u8], n: usize) -> Result<(Vec<f64>, usize)>;
    /// Whether decoding gives back every bit, so that the bytes need not be made
    /// where nobody sends them.
    fn is_exact(&self) -> bool {
        false
    }
}

/// 64 bits a component: every bit as it is.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exact;

impl Codec for Exact {
    fn tag(&self) -> u8 {
        0
    }
    fn encoded_len(&self, n: usize) -> usize {
        8 * n
    }
    fn encode(&self, x: &[f64], _: &mut Stream, out: &mut Vec<u8>) {
        x.iter().for_each(|x| out.extend(x.to_le_bytes()));
    }
    fn decode(&self, bytes: &[u8], n: usize) -> Result<(Vec<f64>, usize)> {
        let taken = n.checked_mul(8).and_then(|len| bytes.get(..len));
        let Some(taken) = taken else {
            return Err(BadInput::new("message", format!("{} bytes for {n} numbers", bytes.len()), "eight bytes a number"));
        };
        let values = taken.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect();
        Ok((values, taken.len()))
    }
    fn is_exact(&self) -> bool {
        true
    }
}
