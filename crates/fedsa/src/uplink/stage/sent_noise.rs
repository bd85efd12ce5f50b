//! Noise that agents add to what they send, for simulation. Anyone with the run's seed can compute it, so it gives no privacy.

use serde::{Deserialize, Serialize};

use super::{Act, Alteration, LinkStage};
use crate::error::{Result, require};
use crate::random::Stream;

/// `x + e`, `e ~ N(0, std^2 I)` independent over messages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SentNoise {
    /// Standard deviation per component.
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub std: f64,
}

impl SentNoise {
    /// Noise with this standard deviation in each component.
    pub const fn new(std: f64) -> Self {
        Self { std }
    }
}

crate::settings::setters! { SentNoise {
    with_std(std: f64) = std;
} }

impl LinkStage for SentNoise {
    fn act(&self) -> Act<'_> {
        Act::Alters(self)
    }
    fn check(&self) -> Result<()> {
        require(self.std >= 0.0 && self.std.is_finite(), "std", self.std, "a standard deviation, at least 0")
    }
}

impl Alteration for SentNoise {
    fn alter(&self, x: &mut [f64], stream: &mut Stream) {
        x.iter_mut().for_each(|x| *x += self.std * stream.normal());
    }
    fn noise(&self) -> Option<f64> {
        Some(self.std)
    }
}
