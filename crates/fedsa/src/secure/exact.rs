//! Secure sums of numbers of any size, for sums outside the rounds: a number is six integers of 32 bits, and integers are added exactly.

use super::grid::SumGrid;
use super::keys::PairKeys;
use super::masks::{MaskedAnswer, pack, revealed_len, subtract, unpack};
use crate::error::{Error, Result};
use crate::linalg::power_of_two;
use crate::uplink::codec::bits::packed_len;

/// The integers of a number.
const LIMBS: usize = 6;

/// The bits of an integer.
const LIMB_BITS: i32 = 32;

/// The unit of the last integer is `2^LOWEST`: what is smaller is cut off.
const LOWEST: i32 = -96;

/// Masked integers with room for the sum over [`super::MAX_PAIRED`] agents.
const GRID: SumGrid = SumGrid::whole_numbers();

/// Appends the integers of a number, the highest first: `x = sum_k limb_k 2^(32 k - 96)`, each with the sign of x.
fn split(x: f64, words: &mut Vec<u64>) {
    let mut rest = x;
    for k in (0..LIMBS as i32).rev() {
        let unit = power_of_two(LIMB_BITS * k + LOWEST);
        // Exact: the product has some of the bits of `rest`.
        let limb = (rest / unit).trunc();
        rest -= limb * unit;
        words.push(GRID.word(limb));
    }
}

/// The integers of an agent's numbers as words.
///
/// # Errors
/// When a number is not finite, or at least 2^96 in absolute value.
fn words_of(numbers: &[f64]) -> Result<Vec<u64>> {
    let largest = power_of_two(LIMB_BITS * LIMBS as i32 + LOWEST);
    if let Some(x) = numbers.iter().find(|x| !(x.abs() < largest)) {
        return Err(Error::data("data", format!("{x:e} among the sums over own rows"), "sums below 7.9e28: columns in larger units"));
    }
    let mut words = Vec::with_capacity(LIMBS * numbers.len());
    numbers.iter().for_each(|x| split(*x, &mut words));
    Ok(words)
}

/// The sum of the masked numbers of all agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactSum {
    words: Vec<u64>,
}

impl ExactSum {
    /// An agent's masked numbers.
    ///
    /// # Errors
    /// When a number is not finite, or too large.
    pub(crate) fn masked(numbers: &[f64], masks: &MaskedAnswer, pairs: &PairKeys) -> Result<Vec<u8>> {
        let mut words = words_of(numbers)?;
        masks.mask(pairs, GRID, &mut words);
        Ok(pack(&words, GRID))
    }

    /// The sum over no agent of this many numbers.
    pub fn new(count: usize) -> Self {
        Self { words: vec![0; LIMBS * count] }
    }

    /// Adds the masked numbers of an agent. False if they are not so many; nothing changes then.
    pub fn add(&mut self, masked: &[u8]) -> bool {
        if masked.len() != packed_len(self.words.len(), GRID.bits()) {
            return false;
        }
        let sent = unpack(masked, self.words.len(), GRID);
        self.words.iter_mut().zip(sent).for_each(|(sum, y)| *sum = sum.wrapping_add(y) & GRID.largest_word());
        true
    }

    /// Removes the mask of an agent's own seed, where all of `agents` agents are in the sum. False if the seed is none; nothing changes
    /// then.
    pub fn unmask(&mut self, agent: usize, agents: usize, seed: &[u8]) -> bool {
        seed.len() == revealed_len(0) && subtract(seed, agent, &vec![true; agents], GRID, &mut self.words)
    }

    /// The sums without masks, rounded, whatever the order of the agents.
    pub fn numbers(&self) -> Vec<f64> {
        let unit = power_of_two(LIMB_BITS);
        let joined = |limbs: &[u64]| limbs.iter().fold(0.0, |sum, limb| sum * unit + GRID.value(*limb)) * power_of_two(LOWEST);
        self.words.chunks_exact(LIMBS).map(joined).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum_of(numbers: &[Vec<f64>]) -> Vec<f64> {
        let mut sum = ExactSum::new(numbers[0].len());
        for one in numbers {
            assert!(sum.add(&pack(&words_of(one).unwrap(), GRID)));
        }
        sum.numbers()
    }

    #[test]
    fn numbers_of_all_sizes_come_back() {
        let numbers = [0.0, 1.0, -1.0, 0.1, -3.7e18, 1.8e19, 2.2e-10, -1e-10, 123_456_789.123_456_78, f64::EPSILON];
        assert_eq!(sum_of(&[numbers.to_vec()]), numbers);
        for bad in [f64::NAN, f64::INFINITY, power_of_two(96), -1e300] {
            assert!(words_of(&[1.0, bad]).is_err());
        }
        assert!(!ExactSum::new(2).add(&[0; 3]));
    }

    proptest! {
        #[test]
        fn sums_are_the_exact_ones_in_any_order(
            mut numbers in proptest::collection::vec((-1.0f64..1.0, -40i32..90), 1..100),
            turn in 0usize..100,
        ) {
            let column = |of: &[(f64, i32)]| of.iter().map(|(x, e)| vec![x * power_of_two(*e)]).collect::<Vec<_>>();
            let sum = sum_of(&column(&numbers))[0];
            let turned = turn % numbers.len();
            numbers.rotate_left(turned);
            prop_assert_eq!(sum_of(&column(&numbers))[0].to_bits(), sum.to_bits());
            // Compensated sums (Neumaier) as an independent computation.
            let (mut plain, mut lost, mut size) = (0.0f64, 0.0, 0.0f64);
            for (x, e) in &numbers {
                let x = x * power_of_two(*e);
                let next = plain + x;
                lost += if plain.abs() >= x.abs() { (plain - next) + x } else { (x - next) + plain };
                (plain, size) = (next, size + x.abs());
            }
            prop_assert!((sum - (plain + lost)).abs() <= 1e-15 * (plain + lost).abs() + 1e-30 * size + 1e-26);
        }
    }
}
