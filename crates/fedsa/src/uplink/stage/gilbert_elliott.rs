//! Losses in bursts: a two-state Markov channel per agent (Gilbert 1960, Elliott 1963).

use serde::{Deserialize, Serialize};

use super::{Act, Channel, GainLaw, LinkStage};
use crate::error::{Result, require};
use crate::random::Stream;

/// Each agent's channel is good or bad; it changes before each message.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GilbertElliott {
    /// Probability of turning bad.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub to_bad: f64,
    /// Probability of turning good; bursts last 1/this on average.
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub to_good: f64,
    /// Probability of arrival while good.
    #[serde(default = "always")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub success_good: f64,
    /// Probability of arrival while bad.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub success_bad: f64,
}

impl GilbertElliott {
    /// Messages arrive while the channel is good, and are lost while it is bad.
    pub fn new(to_bad: f64, to_good: f64) -> Self {
        Self { to_bad, to_good, success_good: always(), success_bad: 0.0 }
    }
}

crate::settings::setters! { GilbertElliott {
    with_to_bad(to_bad: f64) = to_bad;
    with_to_good(to_good: f64) = to_good;
    with_success_good(success_good: f64) = success_good;
    with_success_bad(success_bad: f64) = success_bad;
} }

fn always() -> f64 {
    1.0
}

impl GilbertElliott {
    /// The stationary probability of being bad.
    fn bad(&self) -> f64 {
        self.to_bad / (self.to_bad + self.to_good)
    }

    /// The share of messages that arrive.
    pub fn success(&self) -> f64 {
        let bad = self.bad();
        (1.0 - bad) * self.success_good + bad * self.success_bad
    }
}

impl LinkStage for GilbertElliott {
    fn act(&self) -> Act<'_> {
        Act::Weakens(self)
    }
    fn check(&self) -> Result<()> {
        let all =
            [("to_bad", self.to_bad), ("to_good", self.to_good), ("success_good", self.success_good), ("success_bad", self.success_bad)];
        for (key, p) in all {
            require((0.0..=1.0).contains(&p), key, p, "a probability, in [0, 1]")?;
        }
        let accepted = "positive, unless to_bad is: the channel must be able to change";
        require(self.to_bad + self.to_good > 0.0, "to_good", self.to_good, accepted)
    }
}

impl Channel for GilbertElliott {
    fn memory(&self) -> usize {
        1
    }
    fn start(&self, memory: &mut [u64], stream: &mut Stream) {
        memory[0] = u64::from(stream.uniform() < self.bad());
    }
    fn gain(&self, memory: &mut [u64], stream: &mut Stream) -> f64 {
        let bad = memory[0] == 1;
        let turns = stream.uniform() < if bad { self.to_good } else { self.to_bad };
        let bad = bad != turns;
        memory[0] = u64::from(bad);
        f64::from(stream.uniform() < if bad { self.success_bad } else { self.success_good })
    }
    /// Losses are independent only if the channel's successive states are, or if both states have the same `success`.
    fn gain_law(&self) -> GainLaw {
        let (forgets, p) = (self.to_bad + self.to_good == 1.0 || self.success_good == self.success_bad, self.success());
        GainLaw { moments: forgets.then_some((p, p)), share_arriving: p }
    }
}
