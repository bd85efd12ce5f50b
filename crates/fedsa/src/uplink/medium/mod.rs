//! Media: what happens to messages between the agents and the server.
//!
//! Media are stacked in the order of the file. All random choices are keyed by
//! (seed, round and exchange, agent), so that results do not depend on who computes them.

pub mod bit_budget;
pub mod delay;
pub mod erasure;
pub mod gilbert_elliott;
pub mod over_the_air;

use super::Uplink;
use crate::error::Result;
use crate::random::Stream;
use crate::registry::{Kind, kind};

pub use delay::Delay;

/// A medium that weakens or loses messages.
pub trait Medium: erased_serde::Serialize + std::fmt::Debug + Send + Sync {
    /// The number of words that the medium remembers per agent.
    fn memory(&self) -> usize {
        0
    }
    /// Sets an agent's memory at the start of a run.
    fn start(&self, _memory: &mut [u64], _stream: &mut Stream) {}
    /// The factor by which a message arrives; 0 when it is lost.
    fn gain(&self, memory: &mut [u64], stream: &mut Stream) -> f64;
    /// `E h` and `E h^2` of its factor h, where factors are independent over agents and exchanges.
    fn gain_moments(&self) -> Option<(f64, f64)> {
        None
    }
    /// The share of messages that arrive, weakened or not.
    fn share_arriving(&self) -> f64 {
        1.0
    }
    /// The standard deviation of N w, w the noise that the receiver adds to each component of the mean over N agents.
    fn noise_std(&self) -> f64 {
        0.0
    }
    /// Adds the receiver's noise to the mean over `agents` agents.
    fn receive(&self, _mean: &mut [f64], _agents: usize, _stream: &mut Stream) {}
    /// Whether the server gets only the sum of the messages that arrive.
    fn is_sum_only(&self) -> bool {
        false
    }
}

erased_serde::serialize_trait_object!(Medium);

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
