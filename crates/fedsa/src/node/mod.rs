//! The halves of a method across machines: bytes in, bytes out.
//!
//! [`ClientNode`] is one agent, [`ServerNode`] is the server. The caller carries the bytes between them, for example
//! through threads or Flower. The results are those of the in-process engine, bit for bit (`tests/conformance.rs`). Nodes
//! also contain the two ends of a simulated link: the agent's end (budget, codec, error feedback) and the server's end
//! (losses, noise, late answers). Old models (pull) exist in the engine only, because no real federation has them.
//!
//! The network may lose, repeat, delay, reorder and damage messages, and nodes may die and be restored from a saved
//! state. A node refuses a message that does not belong to this federation at this point, states the reason, and is
//! unchanged. A repeated question gets the same bytes again. A missing answer counts as zero in its round, or as
//! [`crate::federation::AnswerRules`] say; over a link with `law = "network"` it counts in the round in which it comes.
//!
//! Agents join and leave between two rounds ([`ServerNode::regrouped`], [`ClientNode::regrouped`]).
//!
//! What participants are told at the end of a round travels with their next questions, and an agent that gets it again does not act on it
//! twice. [`ServerNode::finish`] tells those who are asked no more.
//!
//! Save the server node ([`ServerNode::save`]) after every [`ServerNode::open`] and [`ServerNode::close`], before sending
//! what they return. A server that restarts without its saved state starts a new federation and needs another seed.
//!
//! # What was counted
//!
//! Agents of some methods keep what their answers have changed: control variates, learned Hessians, which eigenpairs they have sent. Their
//! states must contain the answers that the server counted, and no others. One mechanism serves all of these methods:
//!
//! - An agent takes its last answer for counted, unless its next message says which one counted last ([`crate::message::Part::Counted`]). A
//!   network that loses nothing has no such parts.
//! - Both ends keep a mark of the agent's state, a hash of the answers that it contains. Each answer contains the mark of the state
//!   from which it was computed. The server refuses an answer with another mark: the agent missed a message, or was restored from an older
//!   state.
//! - The next question then brings the agent up to date. With control variates it contains the server's copy of the agent's own, d numbers
//!   more ([`crate::message::Part::Control`]); otherwise it says that no answer counts, and the agent begins anew.
//!
//! The server node keeps a copy of every agent's control variate, N d numbers, and updates the copies by the agents' formula with the answers
//! that it decoded. `sum_c p_c xi_c = 0` holds for these copies. This is so under `rule = "acknowledged"`, which `auto` is unless answers are
//! late or only sums arrive; and for Scaffold with some of the agents, whose server changes c by the answers that change the copies, so that
//! `sum_c p_c c_c = c`. Under `afresh` the error of a lost message lasts one round; under `literal`, which `auto` is if answers are late and
//! some of the agents participate, it stays.

mod client;
mod copies;
mod marks;
mod pending_tells;
mod server;
mod shared;

pub use client::ClientNode;
pub use server::{Progress, ServerNode, Todo};

pub use crate::federation::Federation;
use crate::protocol::refused;
use crate::random::{Key, Purpose};
use crate::saved::Layout;
use crate::uplink::MessageKey;

/// Saved nodes.
const LAYOUT: Layout = Layout { name: "node", version: 9 };

fn place(seed: u64, round: u64, exchange: u8, agent: usize) -> MessageKey {
    MessageKey { seed, round, exchange, agent }
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
