//! Stages: what happens to messages between the agents and the server. Files call them media.
//!
//! Stages are stacked in the order of the file. All random choices are keyed by
//! (seed, round and exchange, agent), so that results do not depend on who computes them.

pub mod bit_budget;
pub mod clip;
pub mod delay;
pub mod erasure;
pub mod gilbert_elliott;
pub mod over_the_air;
pub mod sent_noise;

use crate::error::{Result, require};
use crate::random::Stream;
use crate::registry::{Kind, kind};
use bit_budget::BitBudget;
use delay::{Late, Pull};

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
    kind!("noise", "each agent adds Gaussian noise to what it sends, for simulation", sent_noise::SentNoise),
];

/// One stage of a link, which is its settings too.
pub trait LinkStage: erased_serde::Serialize + std::fmt::Debug + Send + Sync {
    /// What the stage does.
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

/// What a stage does, and so who knows of it.
#[derive(Clone, Copy)]
pub enum Act<'a> {
    /// An agent alters what it sends, and knows what the server will decode: its memory takes that (`Client::sent`), as over a codec.
    Alters(&'a dyn Alteration),
    /// An agent may send so many bits, and knows how many.
    Limits(&'a BitBudget),
    /// Messages are weakened or lost on their way, which an agent does not know.
    Weakens(&'a dyn Channel),
    /// Messages are weakened or lost, and the server gets only their sum.
    AddsUp {
        /// What weakens them.
        channel: &'a dyn Channel,
        /// The standard deviation of N w, w the Gaussian noise that the receiver adds to each component of the mean over N agents.
        receiver_noise: f64,
    },
    /// The server uses directions at old models.
    Pulls(&'a Pull),
    /// Answers arrive late.
    Delays(&'a Delay),
}

impl<'a> Act<'a> {
    /// What weakens or loses messages, if the stage does.
    pub fn channel(self) -> Option<&'a dyn Channel> {
        match self {
            Self::Weakens(channel) | Self::AddsUp { channel, .. } => Some(channel),
            Self::Alters(_) | Self::Limits(_) | Self::Pulls(_) | Self::Delays(_) => None,
        }
    }
}

/// How an agent alters what it sends.
pub trait Alteration {
    /// Alters a vector before it is sent. The stream is that of the agent's message.
    fn alter(&self, x: &mut [f64], stream: &mut Stream);
    /// The standard deviation of each component of what is added, if that is noise and nothing else. Theory assumes that this noise has mean
    /// 0, is independent over components, agents and exchanges, and arrives with the factor of its message.
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
    /// `E h` and `E h^2` of a factor h, where factors are independent over agents and exchanges.
    pub moments: Option<(f64, f64)>,
    /// The share of messages that arrive, weakened or not.
    pub share_arriving: f64,
}

// These stages are what `Act` names, and so are here.

impl LinkStage for BitBudget {
    fn act(&self) -> Act<'_> {
        Act::Limits(self)
    }
    /// Whether it carries a message depends on the method: `Uplink::check`.
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
        self.delay.check()?;
        require(!self.delay.is_of_network(), "law", "network", "a law that says which model is used; network is one of late (push)")
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
