//! The halves of a method across machines: bytes in, bytes out.
//!
//! [`ClientNode`] is one agent, [`ServerNode`] is the server. The caller carries the bytes between them, for example through threads or
//! Flower. Results equal the in-process engine's, bit for bit (`tests/conformance.rs`). Nodes also contain the two ends of a simulated
//! link: the agent's end (budget, codec, error feedback) and the server's end (losses, noise, late answers). Only the engine simulates old
//! models (pull).
//!
//! The network may lose, repeat, delay, reorder and damage messages, and nodes may be restored from a saved state. A node refuses a message
//! that does not belong to this federation at this point, with the reason, and does not change. A repeated question gets the same bytes
//! again. A missing or late answer counts as zero in its round, or by [`crate::federation::AnswerRules`].
//!
//! Agents join and leave between two rounds ([`ServerNode::regrouped`], [`ClientNode::regrouped`]).
//!
//! The message at the end of a round travels with the participants' next questions; agents act on it once. [`ServerNode::finish`] sends it
//! to agents without a next question.
//!
//! Save the server node ([`ServerNode::save`]) after every [`ServerNode::open`] and [`ServerNode::close`], before sending the returned
//! messages. A server that restarts without its saved state starts a new federation and needs another seed.
//!
//! # Secure sums
//!
//! Over a link with secure sums ([`crate::secure`]) agents mask their answers. A second exchange of each question, whose number is higher
//! by [`crate::protocol::UNMASKING`], removes the masks from the sum. If seeds do not come, the sum stays unknown and the round changes
//! nothing. Agents need the keys of their epoch ([`ClientNode::with_secret`]).
//!
//! # Counted answers
//!
//! Some methods' agents keep state that their answers change: control variates, learned Hessians, sent eigenpairs. These states must
//! contain the answers that the server counted, and no others:
//!
//! - An agent assumes that its last answer counted, unless its next message says which one counted last
//!   ([`crate::message::Part::Counted`]). Without losses there are no such parts.
//! - Both ends keep a mark of the agent's state, a hash of the answers that it contains. Each answer contains the mark of its state. The
//!   server refuses an answer with another mark: the agent missed a message, or was restored from an older state.
//! - The next question then brings the agent up to date. With control variates it contains the server's copy of the agent's own, d more
//!   numbers ([`crate::message::Part::Control`]). Otherwise it says that no answer counted, and the agent starts again.
//!
//! Under `rule = "acknowledged"`, which `auto` chooses unless answers are late or only sums arrive, the server node keeps a copy of every
//! agent's control variate, N d numbers. It updates the copies by the agents' formula with the decoded answers, and `sum_c p_c xi_c = 0`
//! holds for them. With Scaffold and some of the agents, the server changes c by the same answers, so `sum_c p_c c_c = c`. Under `afresh`
//! the error of a lost message lasts one round. Under `literal`, which `auto` chooses if answers are late and some agents participate, it
//! stays.

mod client;
mod copies;
mod marks;
mod pending_tells;
mod server;
mod shared;

pub use client::ClientNode;
pub use server::{Progress, ServerNode, Todo};

pub use crate::federation::Federation;
use crate::protocol::{is_unmasking, masked_exchange, refused};
use crate::random::{Key, Purpose};
use crate::saved::Layout;
use crate::uplink::MessageKey;

/// Saved nodes.
const LAYOUT: Layout = Layout { name: "node", version: 11 };

fn place(seed: u64, round: u64, exchange: u8, agent: usize) -> MessageKey {
    MessageKey { seed, round, exchange, agent }
}

/// The name of a round and exchange in error messages.
fn point(round: u64, exchange: u8) -> String {
    match exchange {
        crate::message::TELL => format!("what is told of round {round}"),
        e if is_unmasking(e) => format!("the unmasking of round {round} exchange {}", masked_exchange(e)),
        e => format!("round {round} exchange {e}"),
    }
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
