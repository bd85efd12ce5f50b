//! Masks: pseudorandom words that are added to an agent's integers modulo 2^w.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::grid::SumGrid;
use super::keys::{KEY_BYTES, PairKeys, Seed, random_bytes};
use crate::error::Result;
use crate::message::TELL;
use crate::uplink::codec::bits::{self, packed_len};

/// An agent's seed in one exchange, which it keeps until it reveals it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MaskedAnswer {
    /// The round.
    pub round: u64,
    /// The exchange.
    pub exchange: u8,
    /// The hash of the question.
    pub question: [u8; 32],
    /// The seed of the agent's own mask.
    pub own: Seed,
}

impl MaskedAnswer {
    /// A fresh seed of the agent's own mask.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn fresh(round: u64, exchange: u8, question: [u8; 32]) -> Result<Self> {
        Ok(Self { round, exchange, question, own: random_bytes()? })
    }

    /// The masks of sums outside the rounds, for a question with these bytes.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn outside_rounds(question: &[u8]) -> Result<Self> {
        Self::fresh(u64::from(u32::MAX), TELL, Sha256::digest(question).into())
    }

    /// Whether these are the masks of [`MaskedAnswer::outside_rounds`] for this question.
    pub fn is_outside_rounds(&self, question: &[u8]) -> bool {
        self.exchange == TELL && self.question == *Sha256::digest(question)
    }

    /// The hash of all that the answer depends on beside the agent's data: of the question, and of the round if that `is_new` content.
    pub fn content(&self, is_new: bool) -> [u8; 32] {
        let round = if is_new { self.round } else { u64::MAX };
        Sha256::new().chain_update(self.question).chain_update(round.to_le_bytes()).chain_update([self.exchange]).finalize().into()
    }

    /// Adds all masks of the agent to its words: `y = q + G(b) + sum_{j > i} G(k_ij) - sum_{j < i} G(k_ij)` modulo 2^w.
    pub fn mask(&self, pairs: &PairKeys, grid: SumGrid, words: &mut [u64]) {
        add_mask(&self.own, grid, true, words);
        for j in 0..pairs.agents() {
            if let Some(seed) = pairs.seed(j, self.round, self.exchange, &self.question) {
                add_mask(&seed, grid, j > pairs.agent(), words);
            }
        }
    }

    /// What the agent reveals when the agents `answered` (by number) have answered: its own seed, then the seeds that it has with the
    /// others, by number.
    pub fn revealed(&self, pairs: &PairKeys, answered: &[bool]) -> Vec<u8> {
        let mut out = self.own.to_vec();
        for j in (0..pairs.agents()).filter(|j| !answered[*j]) {
            if let Some(seed) = pairs.seed(j, self.round, self.exchange, &self.question) {
                out.extend((j as u32).to_le_bytes());
                out.extend(seed);
            }
        }
        out
    }
}

/// The length of what an agent reveals if `missing` agents did not answer, in bytes.
pub(crate) fn revealed_len(missing: usize) -> usize {
    KEY_BYTES + missing * (4 + KEY_BYTES)
}

/// Subtracts from the sum of masked answers what agent i has revealed. False if these are not its own seed and its seeds with the agents
/// that did not answer, and the sum is then undefined.
pub(crate) fn subtract(revealed: &[u8], i: usize, answered: &[bool], grid: SumGrid, sum: &mut [u64]) -> bool {
    let Some((own, rest)) = revealed.split_first_chunk::<KEY_BYTES>() else { return false };
    let mut missing = (0..answered.len()).filter(|j| !answered[*j]);
    add_mask(own, grid, false, sum);
    for entry in rest.chunks(4 + KEY_BYTES) {
        let Some((number, seed)) = entry.split_first_chunk::<4>() else { return false };
        let (Ok(seed), Some(j)) = (seed.try_into(), missing.next()) else { return false };
        if u32::from_le_bytes(*number) as usize != j {
            return false;
        }
        add_mask(seed, grid, j < i, sum);
    }
    missing.next().is_none()
}

/// Adds the mask `G(seed)` to words of w bits, or subtracts it: the key stream of ChaCha20 (RFC 8439) with nonce and counter 0, read as
/// little-endian words of `ceil(w / 8)` bytes modulo 2^w.
fn add_mask(seed: &Seed, grid: SumGrid, is_added: bool, words: &mut [u64]) {
    const WORDS: usize = 256;
    let width = grid.bits().div_ceil(8) as usize;
    let mut cipher = ChaCha20::new(seed.into(), &[0; 12].into());
    let mut stream = [0; 8 * WORDS];
    for words in words.chunks_mut(WORDS) {
        let stream = &mut stream[..width * words.len()];
        stream.fill(0);
        cipher.apply_keystream(stream);
        for (word, bytes) in words.iter_mut().zip(stream.chunks_exact(width)) {
            let mut mask = [0; 8];
            mask[..width].copy_from_slice(bytes);
            let mask = u64::from_le_bytes(mask);
            *word = if is_added { word.wrapping_add(mask) } else { word.wrapping_sub(mask) } & grid.largest_word();
        }
    }
}

/// The bytes of words of w bits.
pub(crate) fn pack(words: &[u64], grid: SumGrid) -> Vec<u8> {
    let mut bytes = vec![0; packed_len(words.len(), grid.bits())];
    bits::pack(words, grid.bits(), &mut bytes);
    bytes
}

/// `n` words of w bits.
pub(crate) fn unpack(bytes: &[u8], n: usize, grid: SumGrid) -> Vec<u64> {
    let mut words = vec![0; n];
    bits::unpack(bytes, grid.bits(), &mut words);
    words
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::keys::{PublicKey, Secret};
    use super::*;

    fn all_pairs(n: usize) -> Vec<PairKeys> {
        let secrets: Vec<Secret> = (0..n).map(|i| Secret::of_bytes([i as u8 + 1; 32])).collect();
        let publics: Vec<PublicKey> = secrets.iter().map(Secret::public).collect();
        secrets.iter().enumerate().map(|(i, secret)| PairKeys::new(secret, i, &publics, &[3; 32], 0).unwrap()).collect()
    }

    #[test]
    fn the_stream_is_that_of_the_standard() {
        // RFC 8439, appendix A.1, test vector 1: key, nonce and counter 0.
        let (mut words, grid) = ([0; 2], SumGrid::new(32, 1.0, 3, 0.0).unwrap());
        add_mask(&[0; 32], grid, true, &mut words);
        assert_eq!(words, [0xade0_b876, 0x903d_f1a0]);
        // A word of 20 bits takes three bytes.
        let (mut words, grid) = ([0; 2], SumGrid::new(20, 1.0, 3, 0.0).unwrap());
        add_mask(&[0; 32], grid, true, &mut words);
        assert_eq!(words, [0x0_b876, 0x1_a0ad]);
    }

    proptest! {
        #[test]
        fn sums_of_those_who_answered_come_out_and_nothing_else(
            n in 2usize..7, missing in 0u32..64, bits in 8u32..=50, len in 1usize..600, seed in 0u8..255,
        ) {
            let answered: Vec<bool> = (0..n).map(|i| missing >> i & 1 == 0).collect();
            let grid = SumGrid::new(bits, 1.0, n, 0.0).unwrap();
            let pairs = all_pairs(n);
            let (mut sum, mut plain) = (vec![0u64; len], vec![0u64; len]);
            let mut masked = Vec::new();
            for (i, pairs) in pairs.iter().enumerate().filter(|(i, _)| answered[*i]) {
                let q: Vec<u64> = (0..len).map(|k| grid.word((k as f64 + i as f64 - 7.0) % 5.0)).collect();
                let answer = MaskedAnswer { round: 4, exchange: 1, question: [seed; 32], own: [i as u8 ^ seed; 32] };
                let mut y = q.clone();
                answer.mask(pairs, grid, &mut y);
                let sent = unpack(&pack(&y, grid), len, grid);
                prop_assert_eq!(&sent, &y);
                let add = |sum: &mut [u64], x: &[u64]| sum.iter_mut().zip(x).for_each(|(s, x)| *s = (*s + x) & grid.largest_word());
                add(&mut sum, &sent);
                add(&mut plain, &q);
                masked.push((i, answer, pairs));
            }
            for (i, answer, pairs) in &masked {
                let revealed = answer.revealed(pairs, &answered);
                prop_assert_eq!(revealed.len(), revealed_len(answered.iter().filter(|a| !**a).count()));
                prop_assert!(subtract(&revealed, *i, &answered, grid, &mut sum));
                prop_assert!(!subtract(&revealed[1..], *i, &answered, grid, &mut sum.clone()));
                let mut others = answered.clone();
                others[(i + 1) % n] ^= true;
                prop_assert!(!subtract(&revealed, *i, &others, grid, &mut sum.clone()), "an answer to another set of agents");
            }
            prop_assert_eq!(sum, plain);
        }
    }
}
