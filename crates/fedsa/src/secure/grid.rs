//! The grid of secure sums: weighted numbers become integers of w bits.

use crate::error::{Result, require};
use crate::linalg::{self, power_of_two as power};
use crate::message::{HEADER_BYTES, PART_HEADER_BYTES};
use crate::privacy::discrete_gaussian::DiscreteGaussian;
use crate::random::Stream;
use crate::uplink::codec::bits::packed_len;

/// The smallest number of bits of a sum.
pub const MIN_BITS: u32 = 8;

/// The largest number of bits of a sum. Sums of such integers are exact in `f64` in any order, and what an agent keeps has the share that
/// it sent ([`SumGrid::share`]).
pub const MAX_BITS: u32 = 50;

/// The words of an answer beside its numbers: the number of clipped numbers.
pub(crate) const WORD_COUNT: usize = 1;

/// The common grid of all agents' numbers: a number x of an agent with the weight p becomes the integer `rint(2^f p x)`.
///
/// f is the largest integer with `2^f B + N / 2 + t <= 2^(w - 1) - 1`, for numbers in `[-B, B]`, N agents and noise of at most t steps. No
/// sum then leaves the w bits: weights sum to 1, and rounding adds at most half a step for each agent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SumGrid {
    bits: u32,
    bound: f64,
    scale: i32,
    /// The variance of the noise that an agent adds to each number, in squared steps; 0 for none.
    noise: f64,
}

impl SumGrid {
    /// The grid of w = `bits` bits for N = `agents` agents with numbers in `[-bound, bound]`, and noise of at most `tail` steps.
    ///
    /// # Errors
    /// When the bits or the bound are out of range, or the bits are too few for so many agents; names the smallest number of bits.
    pub fn new(bits: u32, bound: f64, agents: usize, tail: f64) -> Result<Self> {
        let accepted = format!("{MIN_BITS} to {MAX_BITS} bits");
        require((MIN_BITS..=MAX_BITS).contains(&bits), "bits", bits, &accepted)?;
        require((1e-100..=1e100).contains(&bound), "bound", bound, "the largest absolute number that an agent sends, 1e-100 to 1e100")?;
        let room = |bits: u32| power(bits as i32 - 1) - 1.0 - 0.5 * agents as f64 - tail;
        if room(bits) < 1.0 {
            let least = (bits..=MAX_BITS).find(|bits| room(*bits) >= 1.0);
            let accepted = least.map_or("fewer agents, or less noise".into(), |least| format!("{least} bits or more for {agents} agents"));
            require(false, "bits", bits, &accepted)?;
        }
        let mut scale = (room(bits) / bound).log2().floor() as i32 + 1;
        while bound * power(scale) > room(bits) {
            scale -= 1;
        }
        Ok(Self { bits, bound, scale, noise: 0.0 })
    }

    /// The grid of whole numbers below 2^32 in absolute value, with room for the sum over 2^17 agents.
    pub(crate) const fn whole_numbers() -> Self {
        Self { bits: MAX_BITS, bound: 4_294_967_296.0, scale: 0, noise: 0.0 }
    }

    /// The grid with another scale, on which agents add noise of this variance in squared steps. B is then the norm to which agents shorten
    /// what they send.
    #[must_use]
    pub fn with_noise(self, scale: i32, noise: f64) -> Self {
        Self { scale, noise, ..self }
    }

    /// Whether agents add noise.
    pub fn is_private(self) -> bool {
        self.noise > 0.0
    }

    /// The variance of the noise in each number of a sum over so many agents.
    pub fn noise_variance(self, agents: usize) -> f64 {
        agents as f64 * self.noise * power(-self.scale).powi(2)
    }

    /// The largest rounding error of a sum over so many agents: half a step for each of them.
    pub fn rounding(self, agents: usize) -> f64 {
        0.5 * agents as f64 * power(-self.scale)
    }

    /// Draws of an agent's noise as integers.
    ///
    /// # Errors
    /// When the variance is too large.
    pub(crate) fn noise(self) -> Result<Option<DiscreteGaussian>> {
        self.is_private().then(|| DiscreteGaussian::new(self.noise)).transpose()
    }

    /// Shortens a vector to the norm B if agents add noise, and otherwise counts the numbers outside `[-B, B]`.
    pub(crate) fn shorten(self, x: &mut [f64]) -> u64 {
        if self.is_private() {
            linalg::shorten(x, self.bound);
            return 0;
        }
        x.iter().filter(|x| self.clips(**x)).count() as u64
    }

    /// Adds the share of an agent with the weight p in x, with noise of its stream, to a sum.
    pub(crate) fn add_share(self, weight: f64, x: &[f64], noise: &mut Stream, sum: &mut [f64]) {
        sum.iter_mut().zip(x).for_each(|(sum, x)| *sum += self.share(weight, *x));
        if let Ok(Some(law)) = self.noise() {
            sum.iter_mut().for_each(|sum| *sum += law.sample(noise) as f64 * power(-self.scale));
        }
    }

    /// w, the bits of a sum.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// f: a step of the grid is `2^-f`.
    pub fn scale(self) -> i32 {
        self.scale
    }

    /// The length of a message with n numbers and the number of clipped ones, in bytes.
    pub fn masked_len(self, n: usize) -> usize {
        HEADER_BYTES + PART_HEADER_BYTES + packed_len(n + WORD_COUNT, self.bits)
    }

    /// Whether a number lies outside `[-B, B]`.
    pub fn clips(self, x: f64) -> bool {
        x.abs() > self.bound
    }

    /// `rint(2^f p x)`, half to even, with x clipped to `[-B, B]`; x is finite.
    pub fn integer(self, weight: f64, x: f64) -> f64 {
        (weight * x.clamp(-self.bound, self.bound) * power(self.scale)).round_ties_even()
    }

    /// The share of an agent in a sum as a multiple of the step: `2^-f rint(2^f p x)`. A number `y / p`, with y such a share, has the share
    /// y again, although the division rounds.
    pub fn share(self, weight: f64, x: f64) -> f64 {
        self.integer(weight, x) * power(-self.scale)
    }

    /// The sum whose integer has these w bits in two's complement.
    pub fn value(self, word: u64) -> f64 {
        let shift = 64 - self.bits;
        ((word << shift) as i64 >> shift) as f64 * power(-self.scale)
    }

    /// The w bits of an integer.
    pub fn word(self, integer: f64) -> u64 {
        integer as i64 as u64 & self.largest_word()
    }

    /// 2^w - 1.
    pub fn largest_word(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, stream};

    #[test]
    fn the_scale_is_the_largest_for_which_no_sum_leaves_the_bits() {
        // Computed separately.
        assert_eq!(SumGrid::new(32, 1.0, 10, 0.0).unwrap().scale(), 30);
        for (bits, bound, agents, tail) in
            [(8, 1.0, 3, 0.0), (16, 7.3, 1000, 40.0), (32, 1e-9, 100, 1e4), (50, 1e30, 17, 0.5), (20, 0.25, 2, 0.0)]
        {
            let grid = SumGrid::new(bits, bound, agents, tail).unwrap();
            let most = 2f64.powi(bits as i32 - 1) - 1.0;
            let needed = |f: i32| 2f64.powi(f) * bound + agents as f64 / 2.0 + tail;
            assert!(needed(grid.scale()) <= most && needed(grid.scale() + 1) > most, "{bits} {bound} {agents} {tail}");
        }
    }

    #[test]
    fn too_few_bits_name_the_least_that_are_enough() {
        let refused = SumGrid::new(8, 1.0, 1000, 0.0).unwrap_err();
        assert!(refused.help.contains("10 bits or more"), "{}", refused.help);
        assert!(SumGrid::new(10, 1.0, 1000, 0.0).is_ok() && SumGrid::new(9, 1.0, 1000, 0.0).is_err());
        assert!(SumGrid::new(7, 1.0, 3, 0.0).is_err() && SumGrid::new(51, 1.0, 3, 0.0).is_err() && SumGrid::new(32, 0.0, 3, 0.0).is_err());
    }

    #[test]
    fn sums_of_the_largest_numbers_stay_within_their_bits() {
        for (bits, agents) in [(8, 3), (12, 100), (50, 7)] {
            let grid = SumGrid::new(bits, 3.0, agents, 0.0).unwrap();
            for sign in [1.0, -1.0] {
                let p = 1.0 / agents as f64;
                let integer: f64 = (0..agents).map(|_| grid.integer(p, sign * 1e9)).sum();
                assert_eq!(grid.value(grid.word(integer)), (0..agents).map(|_| grid.share(p, sign * 1e9)).sum::<f64>());
                assert!(integer.abs() <= 2f64.powi(bits as i32 - 1) - 1.0);
            }
        }
    }

    #[test]
    fn what_the_agent_keeps_has_the_share_that_it_sent() {
        let mut draws = stream(5, Purpose::Noise, 0, 0);
        for bits in [8, 20, 50] {
            for agents in [3usize, 10, 127] {
                let grid = SumGrid::new(bits, 2.0, agents, 0.0).unwrap();
                for _ in 0..500 {
                    let (p, x) = (draws.uniform() / agents as f64, 3.0 * draws.normal());
                    let y = grid.share(p, x);
                    assert_eq!(grid.share(p, y / p).to_bits(), y.to_bits(), "{bits} {p} {x}");
                }
            }
        }
    }
}
