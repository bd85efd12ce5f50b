//! The one order in which messages are summed.

use crate::kernel::LANES;

/// The sum that every server rule gets. Weighted vectors are added in blocks of eight participants, in their order, then the blocks
/// pairwise, level by level.
///
/// `blocks` holds the blocks' sums, d numbers each; the result is left in the first d.
pub fn pairwise(blocks: &mut [f64], d: usize) {
    // A length known at compile time halves the time of the loop, which matters in rounds of one step.
    if d == 8 { add_levels(blocks, 8) } else { add_levels(blocks, d) }
}

#[inline(always)]
fn add_levels(blocks: &mut [f64], d: usize) {
    let mut n = blocks.len() / d;
    while n > 1 {
        for i in 0..n / 2 {
            let (to, from) = blocks.split_at_mut((2 * i + 1) * d);
            let from = &from[..d];
            if i == 0 {
                to.iter_mut().zip(from).for_each(|(to, y)| *to += y);
            } else {
                let (to, x) = to.split_at_mut(2 * i * d);
                to[i * d..][..d].iter_mut().zip(x.iter().zip(from)).for_each(|(to, (x, y))| *to = x + y);
            }
        }
        if n % 2 == 1 {
            blocks.copy_within((n - 1) * d..n * d, n / 2 * d);
        }
        n = n.div_ceil(2);
    }
}

/// Adds `weight x` to a block's sum.
pub fn accumulate(block: &mut [f64], weight: f64, x: &[f64]) {
    block.iter_mut().zip(x).for_each(|(sum, x)| *sum += weight * x);
}

/// [`pairwise`] over single messages, as a server across machines has them; `None` for a missing message.
pub fn sum<'a>(d: usize, messages: impl Iterator<Item = Option<(f64, &'a [f64])>>) -> Vec<f64> {
    let mut blocks = Vec::new();
    for (i, message) in messages.enumerate() {
        if i % LANES == 0 {
            blocks.resize(blocks.len() + d, 0.0);
        }
        if let Some((weight, x)) = message {
            let start = blocks.len() - d;
            accumulate(&mut blocks[start..], weight, x);
        }
    }
    blocks.resize(blocks.len().max(d), 0.0);
    pairwise(&mut blocks, d);
    blocks.truncate(d);
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of blocks, as the definition says.
    fn by_definition(blocks: &[f64], d: usize) -> Vec<f64> {
        let n = blocks.len() / d;
        if n == 1 {
            return blocks.to_vec();
        }
        let next: Vec<f64> = blocks
            .chunks(2 * d)
            .flat_map(|pair| (0..d).map(|k| if pair.len() == d { pair[k] } else { pair[k] + pair[d + k] }).collect::<Vec<_>>())
            .collect();
        by_definition(&next, d)
    }

    #[test]
    fn blocks_are_added_pairwise_level_by_level() {
        for (n, d) in (1..40).flat_map(|n| [1, 5, 8, 9].map(|d| (n, d))) {
            // Sums of these numbers in another order have other bits.
            let blocks: Vec<f64> = (0..n * d).map(|i| 1.0 / (1.0 + i as f64)).collect();
            let mut sums = blocks.clone();
            pairwise(&mut sums, d);
            assert_eq!(sums[..d], by_definition(&blocks, d), "{n} blocks, d = {d}");
        }
    }
}
