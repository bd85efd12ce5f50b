//! The halves of a method across machines: bytes in, bytes out.
//!
//! [`ClientNode`] is one agent, [`ServerNode`] is the server. The caller carries the bytes between them, for example
//! through threads or Flower. The results are those of the in-process engine, bit for bit (`tests/conformance.rs`). Nodes
//! also contain the two ends of a simulated link: the agent's end (budget, codec, error feedback) and the server's end
//! (losses, noise, late answers). Old models (pull) exist in the engine only, because no real federation has them.
//!
//! The network may lose, repeat, delay, reorder and damage messages, and nodes may die and be restored from a saved
//! state. A node refuses a message that does not belong to this federation at this point, states the reason, and is
//! unchanged. A repeated question gets the same bytes again. A missing answer counts as zero in its round.
//!
//! Save the server node ([`ServerNode::save`]) after every [`ServerNode::open`] and [`ServerNode::close`], before sending
//! what they return. A server that restarts without its saved state starts a new federation and needs another seed.
//!
//! # Control variates
//!
//! The server node keeps a copy of every agent's control variate, N d numbers, and updates the copies by the agents'
//! formula with the answers that it decoded. `sum_c p_c xi_c = 0` holds for these copies. An agent whose control is older
//! than a question assumes (it missed a message, or was restored from an older state or from none) answers
//! [`crate::message::Part::Behind`]. An answer contains the checksum of the earlier answer that its control assumes to be
//! included; if the server counted another one, it refuses the answer. In both cases the agent's next question contains its
//! control, d numbers more. A network that loses no messages has no such messages.
//!
//! This holds under `rule = "acknowledged"`, which `auto` is unless answers are late or only sums arrive. Under `afresh` the
//! error of a lost message lasts one round; under `literal`, which `auto` is if answers are late and some of the agents
//! participate, it stays.

mod client;
mod server;

pub use client::ClientNode;
pub use server::{Progress, ServerNode, Todo};

use crate::error::{BadInput, Result, require};
use crate::linalg::norm_sq;
use crate::methods::{Half, MethodSettings, Setting, check_link};
use crate::protocol::{Protocol, refused};
use crate::random::{Key, Purpose};
use crate::round::Held;
use crate::uplink::{Place, Uplink};

/// The settings that all ends of a federation share.
#[derive(Clone)]
pub struct Federation<'a> {
    settings: Held<'a, dyn MethodSettings + 'a>,
    uplink: Held<'a, Uplink>,
    weights: Vec<f64>,
    seed: u64,
    start: Vec<f64>,
    /// `||theta*||`, or 0.
    root: f64,
    digest: u64,
}

impl<'a> Federation<'a> {
    /// A federation of N agents with `weights` `p_c`, which run a method over a link from `theta_0 = start`, d components.
    ///
    /// # Errors
    /// When a weight is not positive, the weights do not sum to 1, or `start` is not finite; when settings are out of range;
    /// when the link does not suit N agents and d components, or has old models (pull).
    pub fn new(
        settings: impl Into<Held<'a, dyn MethodSettings + 'a>>,
        uplink: impl Into<Held<'a, Uplink>>,
        weights: Vec<f64>,
        seed: u64,
        start: Vec<f64>,
    ) -> Result<Self> {
        let (settings, uplink): (Held<'a, dyn MethodSettings + 'a>, Held<'a, Uplink>) = (settings.into(), uplink.into());
        require(!weights.is_empty(), "weights", "[]", "one weight for each agent")?;
        require(weights.len() < u32::MAX as usize, "weights", weights.len(), "fewer than 2^32 - 1 agents")?;
        let are_weights = weights.iter().all(|p| *p > 0.0 && p.is_finite());
        require(are_weights, "weights", "a weight that is not positive", "positive numbers")?;
        let sum: f64 = weights.iter().sum();
        require((sum - 1.0).abs() <= 1e-9, "weights", format!("a sum of {sum}"), "weights that sum to 1")?;
        require(!start.is_empty(), "start", "[]", "one component or more")?;
        require(start.iter().all(|x| x.is_finite()), "start", "a number that is not finite", "finite numbers")?;
        if uplink.delay.is_some() {
            let what = "only the in-process engine can compute at old models, because no real federation has them";
            return Err(BadInput::new("uplink.media", what, "a link without delay (pull); late (push) is its counterpart"));
        }
        settings.check(weights.len())?;
        let digest = digest(&format!("{settings:?} {uplink:?} {weights:?} {seed} {start:?}", settings = &*settings, uplink = &*uplink));
        let all = Self { settings, uplink, weights, seed, start, root: 0.0, digest };
        all.uplink.check(all.weights.len(), all.start.len(), all.settings.protocol(&all.setting()).encodes())?;
        Ok(all)
    }

    /// Says where the root is, d components. A server has diverged when its iterate is far from everything it knows: without
    /// the root it knows `theta_0` only ([`crate::round::DIVERGED`]).
    #[must_use]
    pub fn with_root(self, root: &[f64]) -> Self {
        Self { root: norm_sq(root).sqrt(), ..self }
    }

    /// The hash of all settings. Messages contain it, and a node refuses messages of another federation.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn setting(&self) -> Setting<'_> {
        Setting { seed: self.seed, weights: &self.weights, start: self.start.clone(), link: self.uplink.facts(), is_accelerated: false }
    }

    /// The client half and the protocol.
    ///
    /// # Errors
    /// When the method cannot work over this link.
    fn client(&self) -> Result<(Half, Protocol)> {
        let setting = self.setting();
        let (client, protocol) = (self.settings.client(&setting), self.settings.protocol(&setting));
        check_link(&*self.settings, &client, &protocol, &self.uplink, self.start.len())?;
        Ok((client, protocol))
    }
}

/// FNV-1a, 64 bits.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The version of the layout of saved nodes, their first field.
const LAYOUT: u32 = 2;

/// The error about bytes that are not a saved node of this federation and kind.
fn foreign() -> BadInput {
    BadInput::format("saved node", "not a state of this node", "a state that the same node of the same federation saved")
}

fn place(seed: u64, round: u64, exchange: u8, agent: usize) -> Place {
    Place { seed, round, exchange, agent }
}

/// The name of a round and exchange in error messages.
fn point(round: u64, exchange: u8) -> String {
    if exchange == crate::message::TELL { format!("what is told of round {round}") } else { format!("round {round} exchange {exchange}") }
}

/// Opens the stream of a codec's random choices, which both ends share.
fn codec_stream(seed: u64, agent: usize) -> impl Fn(u64, u8) -> crate::random::Stream {
    move |round, exchange| place(seed, round, exchange, agent).stream(Purpose::Codec)
}

/// The key of an agent's chain.
fn chain_stream(seed: u64, agent: usize) -> crate::random::Stream {
    Key::new(seed, Purpose::Chain, 0).stream(agent)
}

const _: () = assert!(crate::kernel::LANES == 8, "the order of sums is part of the wire contract");
