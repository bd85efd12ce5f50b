//! 32 bits per component: each number is rounded to the nearest f32, ties to even.
//!
//! The error of a component is at most `2^-24 |x|`, or at most `2^-150` below the smallest normal f32. A finite number beyond the largest f32,
//! `(2 - 2^-23) 2^127`, becomes the largest f32 of the same sign; infinities and NaN are kept. Rounding is deterministic, and therefore biased.
//! Payload: n f32, little endian.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Codec, CodecSettings, malformed};
use crate::error::Result;
use crate::random::Stream;

/// Sends the nearest f32.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Float32 {}

impl CodecSettings for Float32 {
    fn check(&self) -> Result<()> {
        Ok(())
    }
    fn build(&self) -> Arc<dyn Codec> {
        Arc::new(*self)
    }
}

impl Codec for Float32 {
    fn tag(&self) -> u8 {
        1
    }
    fn encoded_len(&self, n: usize, budget: Option<u32>) -> Option<usize> {
        budget.is_none_or(|bits| bits >= 32).then_some(4 * n)
    }
    fn encode(&self, x: &[f64], _: Option<u32>, _: &mut Stream, out: &mut Vec<u8>) {
        let start = out.len();
        out.resize(start + 4 * x.len(), 0);
        for (b, x) in out[start..].chunks_exact_mut(4).zip(x) {
            b.copy_from_slice(&narrow(*x).to_le_bytes());
        }
    }
    fn decode(&self, bytes: &[u8], _: &mut Stream, out: &mut [f64]) -> Result<usize> {
        let taken = out.len().checked_mul(4).and_then(|len| bytes.get(..len));
        let taken = taken.ok_or_else(|| malformed(format!("{} bytes for {} numbers", bytes.len(), out.len())))?;
        for (out, b) in out.iter_mut().zip(taken.chunks_exact(4)) {
            *out = f64::from(f32::from_le_bytes(b.try_into().expect("four bytes")));
        }
        Ok(taken.len())
    }
    fn min_len(&self, n: usize) -> usize {
        n.saturating_mul(4)
    }
    fn is_unbiased(&self) -> bool {
        false
    }
}

/// The nearest f32; the nearest finite one if x is finite.
#[inline]
fn narrow(x: f64) -> f32 {
    let nearest = x as f32;
    if nearest.is_infinite() && x.is_finite() { f32::MAX.copysign(nearest) } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_the_range_stop_at_its_end() {
        assert_eq!(narrow(1e300), f32::MAX);
        assert_eq!(narrow(-f64::MAX), -f32::MAX);
        assert_eq!(narrow(f64::from(f32::MAX)), f32::MAX);
        assert_eq!(narrow(f64::NEG_INFINITY), f32::NEG_INFINITY);
        assert!(narrow(f64::NAN).is_nan());
        assert_eq!(narrow(-1e-300).to_bits(), (-0.0f32).to_bits());
    }
}
