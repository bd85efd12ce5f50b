//! Media: what happens to messages between the agents and the server.
//!
//! Media are stacked in the order of the file. All random choices are keyed by
//! (seed, round and exchange, agent), so that results do not depend on who computes them.

pub mod bit_budget;
pub mod delay;
pub mod erasure;
pub mod gilbert_elliott;
pub mod over_the_air;

use crate::random::Stream;

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
