//! Keyed randomness: every draw is a function of (seed, purpose, round, agent).
//!
//! Draws do not depend on the thread, the lane, other methods or the order of evaluation. Each key opens its own xoshiro256++ stream
//! (Blackman and Vigna 2021), whose four words are hashes of the key.

use std::convert::Infallible;

use rand::rand_core::TryRng;

/// The purpose of a stream, part of its key, so that streams never overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// The samples of an agent's local steps.
    Sample = 1,
    /// A sample outside the local steps.
    Fresh,
    /// Draws shared by all agents (random communication).
    Coin,
    /// The participants of a round.
    Participants,
    /// The initial iterate.
    Start,
    /// The initial state of an agent's sampling process.
    Chain,
    /// A problem's transition kernel, shared or an agent's own.
    Kernel,
    /// An agent's perturbation of a shared kernel.
    Perturbation,
    /// A problem's rewards.
    Reward,
    /// A problem's features.
    Feature,
    /// A problem's policy.
    Policy,
    /// A problem's discount factors.
    Discount,
    /// A problem's matrices and offsets.
    System,
    /// The matrix of additive noise.
    Noise,
    /// A codec's dither.
    Codec,
    /// The effects of media on messages.
    Medium,
    /// A receiver's noise.
    Receiver,
    /// The number of bits that a link carries.
    Budget,
    /// The delay of models or answers.
    Delay,
    /// The iterate that is the output.
    Output,
    /// The held-out episodes.
    Holdout,
    /// The number of eigenpairs that an agent sends, and the start of iterations for eigenpairs.
    Pairs,
    /// The rounding of a compressor of matrices, and its choice of entries.
    Compressor,
    /// The offsets of a quantiser's grid.
    Grid,
    /// The start vectors of iterations for eigenpairs of operators without a matrix, also of the search for missed ones.
    Lanczos,
    /// The fold of an episode in a cross-fit.
    Fold,
    /// Draws of a user's client rule, besides samples.
    Rule,
    /// Alterations of agents' messages by stages of a link.
    Altered,
    /// The noise of differential privacy in simulations.
    PrivacyNoise,
}

/// The agent of draws that all agents share.
pub const ALL: usize = usize::MAX;

/// Weyl increment: the golden ratio times 2^64, odd.
const WEYL: u64 = 0x9e37_79b9_7f4a_7c15;

/// A bijective mixer of 64 bits (the finaliser of SplitMix64).
#[inline(always)]
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The key of a round: opens one stream per agent.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// The key of (seed, purpose, round); draws outside rounds use round 0.
    #[inline]
    pub fn new(seed: u64, purpose: Purpose, round: u64) -> Self {
        let a = mix(mix(seed ^ 0x6a09_e667_f3bc_c908) ^ mix((purpose as u64).wrapping_mul(WEYL)));
        let b = mix(a ^ 0xbb67_ae85_84ca_a73b);
        let t = round.wrapping_add(1).wrapping_mul(WEYL);
        Self { high: mix(a ^ mix(t)), low: mix(b.wrapping_add(mix(!t))) }
    }

    /// The key of (seed, purpose, round, exchange).
    #[inline]
    pub fn of_exchange(seed: u64, purpose: Purpose, round: u64, exchange: u8) -> Self {
        Self::new(seed, purpose, 256 * round + u64::from(exchange))
    }

    /// The stream of one agent, or of [`ALL`].
    ///
    /// Two agents of one key never share a state: both mixers are bijections.
    #[inline(always)]
    pub fn stream(&self, agent: usize) -> Stream {
        Stream { s: self.words((agent as u64).wrapping_mul(WEYL)) }
    }

    /// The words of the stream of an agent whose number times [`WEYL`] is `c`.
    #[inline(always)]
    fn words(&self, c: u64) -> [u64; 4] {
        let s0 = mix(self.high.wrapping_add(c));
        let s1 = mix(self.low ^ c);
        [s0, s1, mix(s0 ^ 0x3c6e_f372_fe94_f82b), mix(s1 ^ 0xa54f_f53a_5f1d_36f1) | 1]
    }
}

/// The stream of (seed, purpose, round, agent).
pub fn stream(seed: u64, purpose: Purpose, round: u64, agent: usize) -> Stream {
    Key::new(seed, purpose, round).stream(agent)
}

/// One xoshiro256++ generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    s: [u64; 4],
}

impl Default for Stream {
    fn default() -> Self {
        stream(0, Purpose::Fresh, 0, ALL)
    }
}

impl Stream {
    /// The next 64 random bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u64 {
        let mut s = Streams::<1> { s: self.s.map(|w| [w]) };
        let [out] = s.bits();
        self.s = s.s.map(|[w]| w);
        out
    }

    /// One of the numbers below n; the relative error of its probability is at most `n / 2^64`.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A uniform number in [0, 1), a multiple of 2^-53.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A standard normal number.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        rand_distr::Distribution::sample(&rand_distr::StandardNormal, self)
    }
}

impl TryRng for Stream {
    type Error = Infallible;
    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.bits() >> 32) as u32)
    }
    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.bits())
    }
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// The output of xoshiro256++ in a state with these first and last words.
#[inline(always)]
const fn output(s0: u64, s3: u64) -> u64 {
    s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0)
}

/// `L` generators side by side, laid out so that the compiler makes vectors of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams<const L: usize> {
    s: [[u64; L]; 4],
}

impl<const L: usize> Streams<L> {
    #[cfg(test)]
    fn gather(streams: &[Stream; L]) -> Self {
        Self { s: std::array::from_fn(|w| std::array::from_fn(|l| streams[l].s[w])) }
    }

    /// [`Key::stream`] of `L` agents, the same words side by side.
    #[inline(always)]
    pub fn open(key: &Key, agents: &[usize; L]) -> Self {
        let [mut s0, mut s1, mut s2, mut s3] = [[0; L]; 4];
        for l in 0..L {
            [s0[l], s1[l], s2[l], s3[l]] = key.words((agents[l] as u64).wrapping_mul(WEYL));
        }
        Self { s: [s0, s1, s2, s3] }
    }

    /// The stream of lane `l`.
    #[inline(always)]
    pub fn get(&self, l: usize) -> Stream {
        Stream { s: self.s.map(|words| words[l]) }
    }

    /// Replaces the stream of lane `l`.
    #[inline(always)]
    pub fn set(&mut self, l: usize, stream: Stream) {
        self.s.iter_mut().zip(stream.s).for_each(|(words, word)| words[l] = word);
    }

    /// The streams of the first `M` lanes.
    #[inline(always)]
    pub fn first<const M: usize>(&self) -> Streams<M> {
        Streams { s: std::array::from_fn(|w| std::array::from_fn(|l| self.s[w][l])) }
    }

    /// Replaces the streams of the first `M` lanes.
    #[inline(always)]
    pub fn set_first<const M: usize>(&mut self, streams: &Streams<M>) {
        self.s.iter_mut().zip(&streams.s).for_each(|(words, to)| words[..M].copy_from_slice(to));
    }

    /// The next bits of every lane, step by step.
    #[inline(always)]
    pub fn fill(&mut self, out: &mut [[u64; L]]) {
        for out in out {
            *out = self.bits();
        }
    }

    /// The next 64 bits of every lane: one xoshiro256++ step.
    #[inline(always)]
    pub fn bits(&mut self) -> [u64; L] {
        let [s0, s1, s2, s3] = &mut self.s;
        let mut out = [0; L];
        for l in 0..L {
            out[l] = output(s0[l], s3[l]);
            let t = s1[l] << 17;
            s2[l] ^= s0[l];
            s3[l] ^= s1[l];
            s1[l] ^= s2[l];
            s0[l] ^= s3[l];
            s2[l] ^= t;
            s3[l] = s3[l].rotate_left(45);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    #[test]
    fn streams_are_xoshiro256plusplus() {
        let streams: [Stream; 8] = std::array::from_fn(|c| stream(7, Purpose::Sample, 3, c));
        let mut lanes = Streams::gather(&streams);
        let mut singles = streams;
        let mut references = streams.map(|x| {
            let bytes: Vec<u8> = x.s.iter().flat_map(|w| w.to_le_bytes()).collect();
            Xoshiro256PlusPlus::from_seed(bytes.try_into().unwrap())
        });
        for _ in 0..1000 {
            let out = lanes.bits();
            for l in 0..8 {
                assert_eq!(out[l], references[l].next_u64());
                assert_eq!(out[l], singles[l].bits());
            }
        }
        assert_eq!(lanes, Streams::gather(&singles));
    }

    #[test]
    fn streams_side_by_side_are_those_of_their_agents() {
        let agents = [3, 0, 8, 9, 1 << 40, 77, usize::MAX - 1, 5];
        let key = Key::new(11, Purpose::Sample, 9);
        let mut lanes = Streams::open(&key, &agents);
        agents.iter().enumerate().for_each(|(l, c)| assert_eq!(lanes.get(l), key.stream(*c)));
        let first = lanes.first::<4>();
        (0..4).for_each(|l| assert_eq!(first.get(l), key.stream(agents[l])));
        lanes.set(0, key.stream(1));
        assert_eq!(lanes.get(0), key.stream(1));
        lanes.set_first(&first);
        assert_eq!(lanes, Streams::open(&key, &agents));
    }

    #[test]
    fn neighbouring_keys_are_uncorrelated() {
        // First draws over agents, rounds, purposes and seeds: the mean of n
        // uniforms has standard error 1/sqrt(12 n).
        let n = 20_000;
        let keyed: [Box<dyn Fn(u64) -> Stream>; 4] = [
            Box::new(|i| stream(1, Purpose::Sample, 0, i as usize)),
            Box::new(|i| stream(1, Purpose::Sample, i, 5)),
            Box::new(|i| stream(i, Purpose::Sample, 0, 5)),
            Box::new(|i| stream(i, Purpose::Coin, i, ALL)),
        ];
        for draw in keyed {
            let u: Vec<f64> = (0..n).map(|i| draw(i).uniform() - 0.5).collect();
            let mean = u.iter().sum::<f64>() / n as f64;
            let lag = u.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / n as f64;
            assert!(mean.abs() < 5.0 / (12.0 * n as f64).sqrt(), "mean {mean}");
            assert!(lag.abs() < 5.0 / (12.0 * (n as f64).sqrt()), "lag-one product {lag}");
        }
    }

    #[test]
    fn the_draws_are_frozen() {
        // A change here changes every published result: bump the format version with it.
        let mut s = stream(42, Purpose::Sample, 1, 2);
        let drawn = [s.bits(), s.bits()];
        assert_eq!(drawn, FROZEN);
    }
    const FROZEN: [u64; 2] = [17_735_585_215_416_831_634, 15_828_078_094_163_939_329];
}
