//! A bit budget (\[T\] eq. 3.26): the number of bits per component that the link carries in an exchange.
//!
//! The budget is `B_i = floor(B)` bits, or with Rayleigh fading `B_i = floor(B log2(1 + gamma_i Gamma))`, `gamma_i ~ Exp(1)`. The agent
//! knows it before it encodes. If the budget carries no message, the agent sends none. An agent that packs its message itself (`q-shed`)
//! sends as much as the budget carries, possibly nothing.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::random::Stream;
use crate::uplink::codec::Codec;

/// A bit budget.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BitBudget {
    /// Bits per component B.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub bits: f64,
    /// Signal-to-noise ratio of Rayleigh fading, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub fading_snr: Option<f64>,
}

impl BitBudget {
    /// Without fading.
    pub const fn new(bits: f64) -> Self {
        Self { bits, fading_snr: None }
    }
}

crate::settings::setters! { BitBudget {
    with_bits(bits: f64) = bits;
    with_fading_snr(fading_snr: impl Into<Option<f64>>) = fading_snr.into();
} }

impl BitBudget {
    /// The number of bits per component in one exchange.
    pub fn draw(&self, stream: &mut Stream) -> u32 {
        self.at(stream.uniform())
    }

    /// The bits of an exchange whose `gamma_i` is `-ln(1 - u)`.
    fn at(&self, u: f64) -> u32 {
        let bits = match self.fading_snr {
            None => self.bits,
            Some(snr) => self.bits * (1.0 - snr * (1.0 - u).ln()).log2(),
        };
        // The cast saturates.
        bits.floor() as u32
    }
}

impl BitBudget {
    /// Checks that the budget can carry vectors of `d` components with this codec.
    ///
    /// # Errors
    /// When the budget never carries one.
    pub fn carries(&self, codec: &dyn Codec, d: usize) -> Result<()> {
        // The largest number that a stream draws.
        if codec.encoded_len(d, Some(self.at(1.0 - f64::EPSILON / 2.0))).is_some() {
            return Ok(());
        }
        if let Some(snr) = self.fading_snr {
            let shown = if snr < 1e-5 { format!("{snr:e}") } else { snr.to_string() };
            let never = format!("a budget of {} bits a component with fading_snr = {shown} never carries a message", self.bits);
            let help = "a larger fading_snr, more bits, or a codec that needs fewer bits (quantised)";
            return Err(Error::new("fading_snr", format!("no message arrives: {never} of this codec"), help));
        }
        let what = format!("a budget of {} bits a component never carries a message of this codec", self.bits);
        Err(Error::new("bits", what, "more bits, or a codec that needs fewer bits (quantised)"))
    }
}

impl BitBudget {
    /// The probability that the budget carries a message: `B log2(1 + gamma Gamma) >= b`, `gamma ~ Exp(1)`, with b the fewest bits per
    /// component that `carries` accepts.
    pub fn share_carried(&self, carries: impl Fn(u32) -> bool) -> f64 {
        let Some(snr) = self.fading_snr else { return f64::from(carries(self.bits.floor() as u32)) };
        let Some(fewest) = (0..=64).find(|bits| carries(*bits)) else { return 0.0 };
        (-((f64::from(fewest) / self.bits).exp2() - 1.0) / snr).exp()
    }
}
