//! A uniform quantiser for vectors with components in \[-1, 1\], refined bit by bit (\[T\] section 3.4.1).
//!
//! With b bits, a component lies in one of `2^b` cells of width `D = 2^-(b - 1)`, and is decoded as the middle of its cell. Each further
//! bit halves the cell, so later bits refine earlier ones. The grid has an offset in each component, a uniform number u that both ends draw
//! (subtractive dither). The cells divide a circle on which -1 and 1 are the same point:
//!
//! ```text
//! y = (x + 1)/2 + u mod 1,   code = floor(y 2^b),   x^ = 2 ((code + 1/2)/2^b - u) - 1, plus 2 if that is below -1
//! ```
//!
//! For any x, the error `x^ - x` is then uniform on `[-D/2, D/2]`, with mean 0 and variance `D^2/12`, at every b, and independent between
//! components.
//!
//! The cell that contains the point -1 = 1 has values from both ends of \[-1, 1\]. It is decoded at the end with more of it. A component at
//! the other end, with a magnitude above `1 - D/2`, is *across*: x^ would be off by almost 2, and the encoder reports it. Vectors of norm 1
//! have at most three such components, and with more than a few bits rarely any. (A grid without the circle would not help: `2^b` cells of
//! width D cover \[-1, 1\] in one way only, which leaves no dither.)

use fedsa::random::{Key, Purpose, Stream};

/// The most bits of a component.
pub const MAX_BITS: u32 = 32;
/// The number of possible vectors; indices are below it.
pub const MAX_VECTORS: usize = 1 << 16;
/// The most components across in a vector of norm 1: those above 1/2 in magnitude, at most three, or four of 1/2 up to rounding.
pub const MAX_ACROSS: usize = 4;

/// The stream of the offsets of vector `index`, in the order of its components. The vectors belong to the Hessian that the agent computed
/// in round `round`.
///
/// # Panics
/// When the vector's index is not below [`MAX_VECTORS`].
pub fn offsets(seed: u64, round: u64, agent: usize, index: usize) -> Stream {
    assert!(index < MAX_VECTORS);
    Key::new(seed, Purpose::Grid, MAX_VECTORS as u64 * round + index as u64).stream(agent)
}

/// The codes of all components with [`MAX_BITS`] bits; codes with fewer bits are their leading bits ([`leading`]). Components outside \[-1,
/// 1\] count as its ends.
pub fn codes(x: &[f64], mut offsets: Stream) -> Vec<u32> {
    let code = |x: &f64| {
        let y = 0.5 * (x.clamp(-1.0, 1.0) + 1.0) + offsets.uniform();
        ((y - y.floor()) * 2f64.powi(MAX_BITS as i32)) as u32
    };
    x.iter().map(code).collect()
}

/// The first `bits` of a code's [`MAX_BITS`].
pub fn leading(code: u32, bits: u32) -> u32 {
    code.checked_shr(MAX_BITS - bits).unwrap_or(0)
}

/// The bits of a code from `from` to `to`, which refine a component from `from` to `to` bits.
pub fn between(code: u32, from: u32, to: u32) -> u32 {
    leading(code.checked_shl(from).unwrap_or(0), to - from)
}

/// The code of `from` bits with `more` bits after it.
pub fn refined(code: u32, from: u32, more: u32, more_bits: u32) -> u32 {
    if from == 0 { more } else { code << more_bits | more }
}

/// The middle of a cell, in \[-1, 1\].
fn middle(code: u32, bits: u32, offset: f64) -> f64 {
    let y = (f64::from(code) + 0.5) * 2f64.powi(-(bits as i32));
    let x = 2.0 * (y - offset) - 1.0;
    if x < -1.0 { x + 2.0 } else { x }
}

/// Decodes codes of `bits` bits, at least 1; `across` lists the components that are across.
pub fn decode(codes: &[u32], bits: u32, across: &[u16], mut offsets: Stream) -> Vec<f64> {
    let mut x: Vec<f64> = codes.iter().map(|code| middle(*code, bits, offsets.uniform())).collect();
    for i in across {
        if let Some(x) = x.get_mut(usize::from(*i)) {
            *x -= 2.0f64.copysign(*x);
        }
    }
    x
}

/// The components of a vector that are across at a number of bits; `codes` are its codes of [`MAX_BITS`] bits.
pub fn across(x: &[f64], codes: &[u32], bits: u32, mut offsets: Stream) -> Vec<u16> {
    let is_across =
        |(_, (x, code)): &(usize, (&f64, &u32))| (x.clamp(-1.0, 1.0) - middle(leading(**code, bits), bits, offsets.uniform())).abs() > 1.0;
    x.iter().zip(codes).enumerate().filter(is_across).map(|(i, _)| i as u16).take(MAX_ACROSS).collect()
}

#[cfg(test)]
mod tests {
    use fedsa::linalg::norm_sq;
    use fedsa::random::stream;
    use proptest::prelude::*;

    use super::*;

    /// A vector of norm 1, partly in one component.
    fn unit(n: usize, large: f64, seed: u64) -> Vec<f64> {
        let mut draws = stream(seed, Purpose::Fresh, 0, 0);
        let mut x: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
        let at = (draws.uniform() * n as f64) as usize;
        x[at] += large * (n as f64).sqrt() * draws.normal();
        let length = norm_sq(&x).sqrt();
        x.iter().map(|x| x / length).collect()
    }

    /// The decoded vector after these successive numbers of bits.
    fn received(x: &[f64], steps: &[u32], seed: u64) -> Vec<f64> {
        let grid = || offsets(seed, 3, 1, 7);
        let sent = codes(x, grid());
        let (mut bits, mut held) = (0, vec![0; x.len()]);
        for more in steps {
            let digits = sent.iter().map(|code| between(*code, bits, bits + more));
            assert!(digits.clone().all(|digit| u64::from(digit) < 1 << more));
            held = held.iter().zip(digits).map(|(held, digit)| refined(*held, bits, digit, *more)).collect();
            bits += more;
        }
        decode(&held, bits, &across(x, &sent, bits, grid()), grid())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// Any division of bits among messages gives the same decoded vector, bit for bit, within half a cell.
        #[test]
        fn refinements_nest_and_errors_stay_within_half_a_cell(
            n in 1usize..40, large in 0.0f64..4.0, seed in 0u64..1000, first in 1u32..20, second in 1u32..=12,
        ) {
            let x = unit(n, large, seed);
            let whole = received(&x, &[first + second], seed);
            prop_assert_eq!(&received(&x, &[first, second], seed), &whole);
            prop_assert_eq!(&received(&x, &vec![1; (first + second) as usize], seed), &whole);
            for (bits, decoded) in [(first, received(&x, &[first], seed)), (first + second, whole)] {
                let half = 2f64.powi(-(bits as i32)) + 1e-15;
                prop_assert!(x.iter().zip(&decoded).all(|(x, y)| (x - y).abs() <= half), "{} bits: {:?} {:?}", bits, x, decoded);
            }
        }
    }

    #[test]
    fn the_ends_are_told_apart() {
        for bits in 1..=MAX_BITS {
            for seed in 0..100 {
                for x in [[1.0, 0.0], [-1.0, 0.0], [0.5f64.sqrt(), -(0.5f64.sqrt())]] {
                    let half = 2f64.powi(-(bits as i32)) + 1e-15;
                    let decoded = received(&x, &[bits], seed);
                    assert!(x.iter().zip(&decoded).all(|(x, y)| (x - y).abs() <= half), "{bits} bits: {decoded:?}");
                }
            }
        }
        // The most possible.
        let most =
            (0..3000).map(|seed| across(&[0.5; 4], &codes(&[0.5; 4], offsets(seed, 0, 0, 0)), 1, offsets(seed, 0, 0, 0)).len()).max();
        assert!(most.is_some_and(|most| most <= MAX_ACROSS));
        let three = [-0.575, 0.575, 0.575, 0.09];
        assert!((0..3000).any(|seed| across(&three, &codes(&three, offsets(seed, 0, 0, 0)), 1, offsets(seed, 0, 0, 0)).len() == 2));
    }

    /// Over many offsets the error of a component has mean 0, variance `D^2/12` and fourth moment `D^4/80`, for any value of the component,
    /// and errors of two components are uncorrelated.
    #[test]
    fn errors_are_uniform_on_a_cell() {
        let x = [0.06, -0.3, 0.9, -0.1, 0.0, 0.29];
        for bits in [1, 2, 3, 5, 16] {
            let cell = 2f64.powi(1 - bits);
            let count = 40_000;
            let mut sums = [[0.0; 4]; 6];
            for seed in 0..count {
                let decoded = received(&x, &[bits as u32], seed);
                let e: Vec<f64> = decoded.iter().zip(&x).map(|(y, x)| (y - x) / cell).collect();
                for (i, sums) in sums.iter_mut().enumerate() {
                    [e[i], e[i].powi(2), e[i].powi(4), e[i] * e[(i + 1) % 6]].iter().zip(sums).for_each(|(e, sum)| *sum += e);
                }
            }
            // Means and variances of powers of a uniform number on [-1/2, 1/2].
            let expected = [(0.0, 1.0 / 12.0), (1.0 / 12.0, 1.0 / 180.0), (1.0 / 80.0, 1.0 / 2304.0 - 1.0 / 6400.0), (0.0, 1.0 / 144.0)];
            for (i, sums) in sums.iter().enumerate() {
                for (k, (sum, (mean, variance))) in sums.iter().zip(expected).enumerate() {
                    let off = (sum / count as f64 - mean) / (variance / count as f64).sqrt();
                    assert!(off.abs() < 4.5, "{bits} bits, component {i}, moment {k}: {off} standard errors");
                }
            }
        }
    }

    #[test]
    fn offsets_are_those_of_their_vector_alone() {
        let draw = |seed, round, agent, index| offsets(seed, round, agent, index).uniform().to_bits();
        let all =
            [draw(1, 2, 3, 0), draw(2, 2, 3, 0), draw(1, 3, 3, 0), draw(1, 2, 4, 0), draw(1, 2, 3, 1), draw(1, 1, 3, MAX_VECTORS - 1)];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| b != a));
        }
    }

    /// Codes and indices of no encoder are decoded without panic, to bounded numbers.
    #[test]
    fn any_codes_are_decoded() {
        for bits in 1..=MAX_BITS {
            let decoded = decode(&[0, u32::MAX >> (32 - bits), 1], bits, &[0, 2, 2, 9, u16::MAX], offsets(0, 0, 0, 0));
            assert!(decoded.iter().all(|x| x.abs() <= 4.0), "{decoded:?}");
        }
    }
}
