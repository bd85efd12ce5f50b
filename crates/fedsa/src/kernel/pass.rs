//! The answers of many agents in one pass over what they keep.
//!
//! With few steps a round, most of an agent's time is not steps: streams are opened, controls moved, directions sent and summed. A rule
//! whose answer is no more than this describes it as data, and a kernel that has a pass answers for all its agents at once, with the bits
//! of block after block.

use super::{Chunk, rows::ControlMove};
use crate::random::Key;

/// An exchange with consecutive agents over a link that alters nothing: each starts at `start`, makes its steps with its control as drift,
/// and sends `v = (theta_H - start) / sum`.
pub struct Pass<'a> {
    /// Opens the agents' streams.
    pub(crate) key: &'a Key,
    /// The number of the first agent.
    pub(crate) first: usize,
    /// The number d of components.
    pub(crate) d: usize,
    /// The iterate at which all start, in whole chunks.
    pub(crate) start: &'a [Chunk],
    /// The step sizes.
    pub(crate) etas: &'a [f64],
    /// The sum of the step sizes.
    pub(crate) sum: f64,
    /// The agents' weights.
    pub(crate) weights: &'a [f64],
    /// The agents' controls, if they have any; otherwise they have no drift.
    pub(crate) controls: Option<ControlMoves>,
    /// What agents keep, `stride` chunks each: a control, the last answer, and the last model if that is kept.
    pub(crate) memory: &'a mut [Chunk],
    /// The number of chunks that an agent keeps.
    pub(crate) stride: usize,
    /// The agents' sampling processes.
    pub(crate) chains: &'a mut [u64],
    /// The weighted sums of the answers of eight agents, d numbers each.
    pub(crate) sums: &'a mut [f64],
}

/// How controls move.
#[derive(Debug, Clone, Copy)]
pub struct ControlMoves {
    /// By how much they move before the steps, if they move then.
    pub moves: Option<ControlMove>,
    /// Whether agents send, and subtract as their own share, `v - xi` in place of v.
    pub afresh: bool,
    /// Whether agents keep the model.
    pub has_base: bool,
}

impl Pass<'_> {
    /// The agents.
    pub(crate) fn agents(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.weights.len()
    }

    /// Some of the agents of this pass, from the `from`-th on, a multiple of eight.
    pub(crate) fn part(&mut self, from: usize, len: usize) -> Pass<'_> {
        let words = self.chains.len() / self.weights.len();
        let (first, last) = (from / super::LANES, (from + len).div_ceil(super::LANES));
        Pass {
            first: self.first + from,
            weights: &self.weights[from..from + len],
            memory: &mut self.memory[from * self.stride..(from + len) * self.stride],
            chains: &mut self.chains[from * words..(from + len) * words],
            sums: &mut self.sums[first * self.d..last * self.d],
            ..*self
        }
    }
}
