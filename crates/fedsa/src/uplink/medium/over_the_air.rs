//! Over-the-air computation (\[T\] eq. 4.4): `v = (1/N) sum h_i g_i + w`.
//!
//! The gains `h_i` are independent over agents and exchanges; `w ~ N(0, s_w^2 / N^2 I)`,
//! N the number of agents that were asked. The server gets the sum only.

use serde::{Deserialize, Serialize};

use super::{Medium, Settings};
use crate::error::{Result, require};
use crate::random::Stream;
use crate::uplink::Uplink;

/// Analogue messages that add up on their way.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OverTheAir {
    /// The law of the channel gains.
    #[serde(default, deserialize_with = "crate::registry::table")]
    pub gain: Gain,
    /// The standard deviation `s_w` of the receiver's noise.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
    pub receiver_noise: f64,
}

/// The law of a channel's gain h.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Gain {
    /// `h = scale sqrt(x^2 + y^2)`, x, y standard normal; mean `scale sqrt(pi/2)`.
    Rayleigh {
        /// By default `sqrt(2/pi)`, so that the mean is 1.
        #[serde(default = "unit_mean")]
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
        scale: f64,
    },
    /// `h = sqrt((line_of_sight + scale x)^2 + (scale y)^2)`.
    Rician {
        /// The amplitude of the direct path.
        #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
        line_of_sight: f64,
        /// The scale of the scattered paths.
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
        scale: f64,
    },
    /// Always the same.
    Constant {
        /// h.
        #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
        value: f64,
    },
}

fn unit_mean() -> f64 {
    (2.0 / std::f64::consts::PI).sqrt()
}

impl Default for Gain {
    fn default() -> Self {
        Gain::Rayleigh { scale: unit_mean() }
    }
}

impl Gain {
    fn draw(&self, stream: &mut Stream) -> f64 {
        match *self {
            Gain::Rayleigh { scale } => scale * stream.normal().hypot(stream.normal()),
            Gain::Rician { line_of_sight, scale } => (line_of_sight + scale * stream.normal()).hypot(scale * stream.normal()),
            Gain::Constant { value } => value,
        }
    }
}

impl Medium for OverTheAir {
    fn gain(&self, _: &mut [u64], stream: &mut Stream) -> f64 {
        self.gain.draw(stream)
    }
    fn receive(&self, mean: &mut [f64], agents: usize, stream: &mut Stream) {
        if self.receiver_noise > 0.0 {
            let std = self.receiver_noise / agents as f64;
            mean.iter_mut().for_each(|x| *x += std * stream.normal());
        }
    }
    fn is_sum_only(&self) -> bool {
        true
    }
}

impl Settings for OverTheAir {
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
        link.push(Box::new(*self), "over-the-air")
    }
}
