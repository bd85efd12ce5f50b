//! What lies between an agent and the server.

pub mod codec;

use codec::{Codec, Exact};

/// A link: the codec of what agents send, and of what they are told.
pub struct Uplink {
    /// Of the agents' messages.
    pub codec: Box<dyn Codec>,
    /// Of the server's.
    pub downlink: Box<dyn Codec>,
}

impl Default for Uplink {
    fn default() -> Self {
        Self { codec: Box::new(Exact), downlink: Box::new(Exact) }
    }
}
