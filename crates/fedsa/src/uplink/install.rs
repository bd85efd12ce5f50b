//! How each kind of medium is put on a link.

use std::sync::Arc;

use super::Uplink;
use super::medium::bit_budget::BitBudget;
use super::medium::delay::{Late, Pull};
use super::medium::erasure::Erasure;
use super::medium::gilbert_elliott::GilbertElliott;
use super::medium::over_the_air::{Gain, OverTheAir};
use super::medium::{bit_budget, delay, erasure, gilbert_elliott, over_the_air};
use crate::error::{Error, Result, require};
use crate::registry::{Kind, kind};

/// The settings of one kind of medium.
pub trait MediumSettings: erased_serde::Serialize {
    /// Adds the medium to a link, after the media that are there.
    ///
    /// # Errors
    /// When a setting is out of range, or the medium cannot be combined with the link.
    fn install(&self, link: &mut Uplink) -> Result<()>;
}

erased_serde::serialize_trait_object!(MediumSettings);

/// The kinds of media, by the name that `kind` gives.
pub const KINDS: &[Kind<dyn MediumSettings>] = &[
    kind!("erasure", "a message arrives with some probability", erasure::Erasure),
    kind!("gilbert-elliott", "losses in bursts", gilbert_elliott::GilbertElliott),
    kind!("over-the-air", "analogue sum with fading and receiver noise", over_the_air::OverTheAir),
    kind!("delay", "the server uses directions at stale models (pull)", delay::Pull),
    kind!("late", "answers arrive rounds after they were asked for (push)", delay::Late),
    kind!("bit-budget", "bits a component that the link carries this round", bit_budget::BitBudget),
];

impl MediumSettings for Erasure {
    fn install(&self, link: &mut Uplink) -> Result<()> {
        require((0.0..=1.0).contains(&self.success), "success", self.success, "a probability, in [0, 1]")?;
        link.push(Arc::new(*self), "erasure")
    }
}

impl MediumSettings for GilbertElliott {
    fn install(&self, link: &mut Uplink) -> Result<()> {
        let all =
            [("to_bad", self.to_bad), ("to_good", self.to_good), ("success_good", self.success_good), ("success_bad", self.success_bad)];
        for (key, p) in all {
            require((0.0..=1.0).contains(&p), key, p, "a probability, in [0, 1]")?;
        }
        require(
            self.to_bad + self.to_good > 0.0,
            "to_good",
            self.to_good,
            "positive, unless to_bad is: the channel must be able to change",
        )?;
        link.push(Arc::new(*self), "gilbert-elliott")
    }
}

impl MediumSettings for OverTheAir {
    fn install(&self, link: &mut Uplink) -> Result<()> {
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let (key, x, ok, accepted) = match self.gain {
            Gain::Rayleigh { scale } => ("gain.scale", scale, positive(scale), "positive"),
            Gain::Rician { line_of_sight, scale } if line_of_sight >= 0.0 => ("gain.scale", scale, positive(scale), "positive"),
            Gain::Rician { line_of_sight, .. } => ("gain.line_of_sight", line_of_sight, false, "at least 0"),
            Gain::Constant { value } => ("gain.value", value, positive(value), "positive"),
        };
        require(ok, key, x, accepted)?;
        let noise = self.receiver_noise;
        require(noise >= 0.0 && noise.is_finite(), "receiver_noise", noise, "a standard deviation, at least 0")?;
        link.push(Arc::new(*self), "over-the-air")
    }
}

impl MediumSettings for Pull {
    fn install(&self, link: &mut Uplink) -> Result<()> {
        self.delay.check()?;
        require(!self.delay.is_of_network(), "law", "network", "a law that says which model is used; network is one of late (push)")?;
        only_one(link)?;
        if link.error_feedback {
            let what = "a delay (pull) on a link with error feedback";
            return Err(Error::new(
                "",
                what,
                "late (push): with pull a direction may be used twice or never, which error feedback cannot follow",
            ));
        }
        link.delay = Some(self.clone());
        Ok(())
    }
}

impl MediumSettings for Late {
    fn install(&self, link: &mut Uplink) -> Result<()> {
        self.0.check()?;
        only_one(link)?;
        link.late = Some(self.0.clone());
        Ok(())
    }
}

fn only_one(link: &Uplink) -> Result<()> {
    let free = link.delay.is_none() && link.late.is_none();
    if free { link.per_agent("a delay") } else { Err(Error::new("", "two delays on one link", "one delay or late")) }
}

impl MediumSettings for BitBudget {
    fn install(&self, link: &mut Uplink) -> Result<()> {
        require(self.bits > 0.0 && self.bits.is_finite(), "bits", self.bits, "a positive number of bits a component")?;
        require(self.fading_snr.is_none_or(|s| s > 0.0 && s.is_finite()), "fading_snr", self.fading_snr.unwrap_or(0.0), "positive")?;
        if link.budget.is_some() {
            return Err(Error::new("", "two bit budgets on one link", "one"));
        }
        // Whether it carries a message depends on the method: `Uplink::check`.
        link.budget = Some(*self);
        Ok(())
    }
}
