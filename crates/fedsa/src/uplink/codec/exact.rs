//! 64 bits per component, unaltered.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Codec, CodecSettings, malformed};
use crate::error::Result;
use crate::random::Stream;

/// Sends f64 unaltered.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Exact;

/// The settings of [`Exact`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExactSettings {}

impl CodecSettings for ExactSettings {
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn build(&self) -> Arc<dyn Codec> {
        Arc::new(Exact)
    }
}

impl Codec for Exact {
    fn tag(&self) -> u8 {
        0
    }
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize> {
        budget.is_none_or(|bits| bits >= 64).then_some(8 * n)
    }
    fn encode(&self, x: &[f64], _: Option<u32>, _: &mut Stream, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + 8 * x.len(), 0);
        for (b, x) in out[start..].chunks_exact_mut(8).zip(x) {
            b.copy_from_slice(&x.to_le_bytes());
        }
    }
    fn decode(&self, bytes: &[u8], _: &mut Stream, out: &mut [f64]) -> Result<usize> {
        let taken = out.len().checked_mul(8).and_then(|len| bytes.get(..len));
        let taken = taken.ok_or_else(|| malformed(format!("{} bytes for {} numbers", bytes.len(), out.len())))?;
        for (out, b) in out.iter_mut().zip(taken.chunks_exact(8)) {
            *out = f64::from_le_bytes(b.try_into().expect("eight bytes"));
        }
        Ok(taken.len())
    }
    fn min_len(&self, n: usize) -> usize {
        n.saturating_mul(8)
    }
    fn is_exact(&self) -> bool {
        true
    }
    fn is_unbiased(&self) -> bool {
        true
    }
}
