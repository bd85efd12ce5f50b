//! A masked sum between its two exchanges.

use serde::{Deserialize, Serialize};

use super::handed_in::Reply;
use crate::message::{Body, Part};
use crate::secure::{SumGrid, subtract};
use crate::server::Broadcast;

/// A sum of masked answers that waits for the seeds of its masks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct MaskedSum {
    /// The question that was answered.
    pub ask: Broadcast,
    /// Whether the answer of each agent is in the sum.
    pub answered: Vec<bool>,
    /// The masked sum modulo 2^w.
    pub words: Vec<u64>,
}

/// What follows the end of an exchange with masks.
pub(super) enum Unmasking {
    /// The question for seeds.
    Ask(Broadcast),
    /// The sums, one part after the other, and whether each participant's answer is in them.
    Sums(Vec<f64>, Vec<bool>),
}

/// The sum without masks, and the number of clipped numbers in it; `None` if seeds are missing.
pub(super) fn unmasked(masked: &MaskedSum, grid: SumGrid, asked: &[usize], replies: &[Option<Reply>]) -> Option<(Vec<f64>, u64)> {
    if replies.len() != asked.len() {
        return None;
    }
    let mut words = masked.words.clone();
    for (c, reply) in asked.iter().zip(replies) {
        let [(Part::Seeds, Body::Packed(seeds))] = &reply.as_ref()?.parts[..] else { return None };
        if !subtract(seeds, *c, &masked.answered, grid, &mut words) {
            return None;
        }
    }
    let clipped = words.pop()?;
    Some((words.into_iter().map(|word| grid.value(word)).collect(), clipped))
}
