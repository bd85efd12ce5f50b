//! Bernoulli erasures (\[T\] sec. 4.2): the server divides by N, not by the number received.

use serde::{Deserialize, Serialize};

use super::{Act, Channel, GainLaw, LinkStage};
use crate::error::{Result, require};
use crate::random::Stream;

/// Messages arrive independently with probability `success`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Erasure {
    /// Probability of arrival.
    #[cfg_attr(feature = "schema", schemars(range(max = 1), extend("exclusiveMinimum" = 0)))]
    pub success: f64,
}

impl Erasure {
    /// Messages arrive with this probability.
    pub const fn new(success: f64) -> Self {
        Self { success }
    }
}

crate::settings::setters! { Erasure {
    with_success(success: f64) = success;
} }

impl LinkStage for Erasure {
    fn act(&self) -> Act<'_> {
        Act::Weakens(self)
    }
    fn check(&self) -> Result<()> {
        require((0.0..=1.0).contains(&self.success), "success", self.success, "a probability, in [0, 1]")
    }
}

impl Channel for Erasure {
    fn gain(&self, _: &mut [u64], stream: &mut Stream) -> f64 {
        f64::from(stream.uniform() < self.success)
    }
    fn gain_law(&self) -> GainLaw {
        GainLaw { moments: Some((self.success, self.success)), share_arriving: self.success }
    }
}
