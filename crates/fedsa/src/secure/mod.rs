//! Secure sums: the server learns the sum of the agents' vectors and no single one.
//!
//! An agent rounds `p_c x_c` to integers ([`SumGrid`]) and adds masks modulo 2^w: one of its own, and one with every other agent
//! ([`PairKeys`]). Masks of a pair cancel in the sum. In a second exchange the agents that answered reveal the seeds of the masks that do not
//! cancel: each its own, and those that it has with agents that did not answer. Either a pair's seed or an agent's own seed is revealed,
//! never both, so single answers stay masked.
//!
//! The server is honest but curious. It follows the protocol and keeps everything; with all agents but one it knows the answer of that
//! one. No cryptographer has reviewed this protocol. Not here: secret shares (a round is lost if an agent answers and then vanishes), signed
//! keys (a server that replaces the agents' keys is not noticed), sparse graphs of pairs, secret weights, rounds with some of the agents.

mod difference;
mod exact;
mod grid;
mod keys;
mod masks;

pub use difference::DifferenceRule;
pub use exact::ExactSum;
pub(crate) use grid::WORD_COUNT;
pub use grid::{MAX_BITS, MIN_BITS, SumGrid};
pub(crate) use keys::no_random_numbers;
pub use keys::{KEY_BYTES, MAX_PAIRED, PairKeys, PublicKey, Secret, Seed, random_bytes};
pub(crate) use masks::{MaskedAnswer, pack, revealed_len, subtract, unpack};
