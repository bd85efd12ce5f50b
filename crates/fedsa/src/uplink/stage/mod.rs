//! Stages: what happens to messages between the agents and the server. Files call them media.
//!
//! Messages pass the stages in the order of the file. All random choices are keyed by (seed, round and exchange, agent), so results do not
//! depend on which process computes them.

pub mod bit_budget;
pub mod clip;
pub mod delay;
pub mod erasure;
pub mod gilbert_elliott;
pub mod over_the_air;
pub mod secure_sum;
pub mod sent_noise;

use crate::error::{Result, require};
use crate::random::Stream;
use crate::registry::{Kind, kind};
use bit_budget::BitBudget;
use delay::{Late, Pull};
use secure_sum::SecureSum;

pub use delay::Delay;

/// The kinds of stages, by the name that `kind` gives.
pub const KINDS: &[Kind<dyn LinkStage>] = &[
    kind!("erasure", "a message arrives with some probability", erasure::Erasure),
    kind!("gilbert-elliott", "losses in bursts", gilbert_elliott::GilbertElliott),
    kind!("over-the-air", "analogue sum with fading and receiver noise", over_the_air::OverTheAir),
    kind!("delay", "the server uses directions at stale models (pull)", delay::Pull),
    kind!("late", "answers arrive rounds after they were asked for (push)", delay::Late),
    kind!("bit-budget", "bits a component that the link carries this round", bit_budget::BitBudget),
    kind!("clip", "an agent shortens a vector that is longer than some norm", clip::Clip),
    kind!("secure-sum", "the server learns the sum of the answers and no single one", secure_sum::SecureSum),
    kind!("noise", "each agent adds Gaussian noise to what it sends, for simulation", sent_noise::SentNoise),
];

/// One stage of a link; the type is also its settings.
pub trait LinkStage: erased_serde::Serialize + std::fmt::Debug + Send + Sync {
    /// The stage's effect.
    fn act(&self) -> Act<'_>;
    /// Checks ranges.
    ///
    /// # Errors
    /// When a setting is out of range; names the setting.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

erased_serde::serialize_trait_object!(LinkStage);

/// A stage's effect, which determines who knows of it.
#[derive(Clone, Copy)]
pub enum Act<'a> {
    /// An agent alters its message before it sends it. As over a codec, its memory takes the decoded message (`Client::sent`).
    Alters(&'a dyn Alteration),
    /// A limit on the bits that an agent may send. The agent knows it.
    Limits(&'a BitBudget),
    /// Messages are weakened or lost on their way. The agent does not know.
    Weakens(&'a dyn Channel),
    /// Messages are weakened or lost, and the server gets only their sum.
    AddsUp {
        /// The channel that weakens them.
        channel: &'a dyn Channel,
        /// The standard deviation of N w, with w the receiver's Gaussian noise in each component of the mean over N agents.
        receiver_noise: f64,
    },
    /// Messages are rounded to a grid and masked: the server gets only their sum, and knows which ones are in it.
    Masks(&'a SecureSum),
    /// The server uses directions at old models.
    Pulls(&'a Pull),
    /// Answers arrive late.
    Delays(&'a Delay),
}

impl<'a> Act<'a> {
    /// The channel that weakens or loses messages, if the stage is one.
    pub fn channel(self) -> Option<&'a dyn Channel> {
        match self {
            Self::Weakens(channel) | Self::AddsUp { channel, .. } => Some(channel),
            Self::Alters(_) | Self::Limits(_) | Self::Masks(_) | Self::Pulls(_) | Self::Delays(_) => None,
        }
    }
}

/// How an agent alters what it sends.
pub trait Alteration {
    /// Alters a vector before it is sent, with the stream of the agent's message.
    fn alter(&self, x: &mut [f64], stream: &mut Stream);
    /// The standard deviation per component, if the alteration only adds noise. Theory assumes that the noise has mean 0, is independent
    /// over components, agents and exchanges, and arrives with the factor of its message.
    fn noise(&self) -> Option<f64> {
        None
    }
}

/// How messages are weakened or lost.
pub trait Channel {
    /// The number of words that the channel remembers per agent.
    fn memory(&self) -> usize {
        0
    }
    /// Sets an agent's memory at the start of a run.
    fn start(&self, _memory: &mut [u64], _stream: &mut Stream) {}
    /// The factor by which a message arrives; 0 when it is lost.
    fn gain(&self, memory: &mut [u64], stream: &mut Stream) -> f64;
    /// The law of this factor.
    fn gain_law(&self) -> GainLaw;
}

/// The law of the factors by which messages arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GainLaw {
    /// `E h` and `E h^2` of a factor h; `None` if factors are not independent over agents and exchanges.
    pub moments: Option<(f64, f64)>,
    /// The share of messages that arrive, weakened or not.
    pub share_arriving: f64,
}

// `Act` names the types of these stages, so their implementations are here.

impl LinkStage for BitBudget {
    fn act(&self) -> Act<'_> {
        Act::Limits(self)
    }
    /// `Uplink::check` checks whether the budget carries a message, which depends on the method.
    fn check(&self) -> Result<()> {
        require(self.bits > 0.0 && self.bits.is_finite(), "bits", self.bits, "a positive number of bits a component")?;
        require(self.fading_snr.is_none_or(|s| s > 0.0 && s.is_finite()), "fading_snr", self.fading_snr.unwrap_or(0.0), "positive")
    }
}

impl LinkStage for Pull {
    fn act(&self) -> Act<'_> {
        Act::Pulls(self)
    }
    fn check(&self) -> Result<()> {
        self.delay.check()
    }
}

impl LinkStage for Late {
    fn act(&self) -> Act<'_> {
        Act::Delays(&self.0)
    }
    fn check(&self) -> Result<()> {
        self.0.check()
    }
}

impl LinkStage for SecureSum {
    fn act(&self) -> Act<'_> {
        Act::Masks(self)
    }
    fn check(&self) -> Result<()> {
        self.check_ranges()
    }
}
