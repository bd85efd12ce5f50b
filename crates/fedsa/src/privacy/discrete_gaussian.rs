//! Exact discrete Gaussian noise `N_Z(0, sigma^2)`: `P(x)` is proportional to `exp(-x^2 / (2 sigma^2))` on the integers.
//!
//! The sampler is that of Canonne, Kamath and Steinke (2020, Algorithms 1 to 3): a discrete Laplace number y is kept with the probability
//! `exp(-(|y| - sigma^2/t)^2 / (2 sigma^2))`, `t = floor(sigma) + 1`. Every decision compares a uniform number with a ratio of integers,
//! of which 64 random bits are read at a time, as many as the comparison needs. So no probability is rounded. Floating-point numbers
//! settle a comparison only where their error bound allows it; otherwise large integers do.
//!
//! The time of a draw depends on its value. Who can measure single draws of an agent learns about its noise.

use std::convert::Infallible;

use num_bigint::BigUint;
use rand::rand_core::{Rng, TryRng};

use crate::error::{Result, require};

/// The least variance: below, the probability of another number than 0 is less than `exp(-2^31)`.
pub const LEAST_VARIANCE: f64 = 1.0 / 4_294_967_296.0;
/// The largest variance, `2^112`: a standard deviation of `2^56`, so that all draws are inside `i64`.
pub const MOST_VARIANCE: f64 = 5_192_296_858_534_827_628_530_496_329_220_096.0;
/// Draws of more than about this many times `t` are made again. Their probability is below `exp(-2000)`.
const FARTHEST: u64 = 63;
/// `2^-49`. The relative error of the probability that floating-point numbers give is below this: ten roundings of at most `2^-53`.
const ERROR: f64 = 1.0 / 562_949_953_421_312.0;

/// `N_Z(0, sigma^2)` for one variance.
///
/// The variance is the binary fraction that the `f64` is, exactly: any rational number of this form, integers among them.
///
/// ```
/// use fedsa::privacy::discrete_gaussian::DiscreteGaussian;
/// use fedsa::random::{Purpose, stream};
///
/// # fn main() -> fedsa::error::Result<()> {
/// let noise = DiscreteGaussian::new(6.25)?;
/// let mut keyed = stream(7, Purpose::Altered, 1, 0);
/// let drawn: i64 = noise.sample(&mut keyed);
/// let secret: i64 = noise.try_sample(&mut rand::rngs::SysRng).expect("a machine with a source of entropy");
/// assert!(drawn.abs() < 50 && secret.abs() < 50);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DiscreteGaussian {
    /// `sigma^2 = numerator / denominator`; the denominator is a power of two.
    numerator: u128,
    denominator: u128,
    /// `floor(sigma) + 1`.
    t: u64,
    /// `1 / (2 n d t^2)` to five roundings.
    scale: f64,
}

impl DiscreteGaussian {
    /// Noise with `sigma^2 = sigma_squared`.
    ///
    /// # Errors
    /// When it is below [`LEAST_VARIANCE`] or above [`MOST_VARIANCE`].
    pub fn new(sigma_squared: f64) -> Result<Self> {
        let fits = (LEAST_VARIANCE..=MOST_VARIANCE).contains(&sigma_squared);
        require(fits, "sigma_squared", sigma_squared, "a variance from 2^-32 to 2^112")?;
        let (mut numerator, mut denominator) = (sigma_squared, 1);
        while numerator.fract() != 0.0 {
            (numerator, denominator) = (2.0 * numerator, 2 * denominator);
        }
        let numerator = numerator as u128;
        let t = (numerator / denominator).isqrt() as u64 + 1;
        let scale = 0.5 / (numerator as f64 * denominator as f64) / (t as f64 * t as f64);
        Ok(Self { numerator, denominator, t, scale })
    }

    /// A draw.
    pub fn sample<R: Rng + ?Sized>(&self, random: &mut R) -> i64 {
        let drawn: Result<i64, Infallible> = self.try_sample(random);
        drawn.unwrap_or_else(|never| match never {})
    }

    /// A draw from a source that may fail, such as the system's.
    ///
    /// # Errors
    /// When the source fails.
    pub fn try_sample<R: TryRng + ?Sized>(&self, random: &mut R) -> Result<i64, R::Error> {
        loop {
            if let Some(y) = self.laplace(random)?
                && self.keeps(y.unsigned_abs(), random)?
            {
                return Ok(y);
            }
        }
    }

    /// A discrete Laplace number of scale t, or none: another attempt is needed.
    fn laplace<R: TryRng + ?Sized>(&self, random: &mut R) -> Result<Option<i64>, R::Error> {
        let rest = below(self.t, random)?;
        if !exp_minus(|random| is_below(rest, self.t, random), random)? {
            return Ok(None);
        }
        let mut whole = 0;
        while exp_minus(|_| Ok(true), random)? {
            whole += 1;
        }
        let is_negative = random.try_next_u64()? >> 63 == 1;
        if whole > FARTHEST || (is_negative && whole == 0 && rest == 0) {
            return Ok(None);
        }
        // Below 64 t < 2^63.
        let size = (rest + whole * self.t) as i64;
        Ok(Some(if is_negative { -size } else { size }))
    }

    /// True with the probability `exp(-gamma)`, `gamma = (y - sigma^2/t)^2 / (2 sigma^2) = (y t d - n)^2 / (2 n d t^2)`.
    fn keeps<R: TryRng + ?Sized>(&self, y: u64, random: &mut R) -> Result<bool, R::Error> {
        // Both terms are below 2^121: y t d < 64 t^2 d with t <= 2^56 + 1, and t^2 d < 2^86 where d > 1.
        let z = (u128::from(y) * u128::from(self.t) * self.denominator).abs_diff(self.numerator);
        let gamma = (z as f64) * (z as f64) * self.scale;
        // exp(-gamma) = exp(-gamma/m)^m, for any m >= gamma.
        let parts = (gamma * (1.0 + ERROR)).ceil().max(1.0);
        let share = gamma / parts;
        for _ in 0..parts as u64 {
            if !exp_minus(|random| self.is_below_share(share, z, parts as u64, random), random)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True with the probability `gamma / m`, which `share` is within [`ERROR`].
    fn is_below_share<R: TryRng + ?Sized>(&self, share: f64, z: u128, parts: u64, random: &mut R) -> Result<bool, R::Error> {
        let word = random.try_next_u64()?;
        // The uniform number is in [bits, bits + 1] 2^-53.
        let bits = (word >> 11) as f64;
        let at = share * 9_007_199_254_740_992.0;
        if bits + 1.0 <= at * (1.0 - 2.0 * ERROR) {
            return Ok(true);
        }
        if bits >= at * (1.0 + 2.0 * ERROR) {
            return Ok(false);
        }
        let z = BigUint::from(z);
        let all = BigUint::from(2 * self.numerator) * self.denominator * self.t * self.t * parts;
        is_below_large(word, &z * &z, &all, random)
    }
}

/// A uniform number below n.
fn below<R: TryRng + ?Sized>(n: u64, random: &mut R) -> Result<u64, R::Error> {
    // Lemire (2019): the high half of a product, where the low half is not among the 2^64 mod n first ones.
    loop {
        let product = u128::from(random.try_next_u64()?) * u128::from(n);
        let low = product as u64;
        if low >= n || low >= n.wrapping_neg() % n {
            return Ok((product >> 64) as u64);
        }
    }
}

/// True with the probability a / b, for `a <= b`.
fn is_below<R: TryRng + ?Sized>(a: u64, b: u64, random: &mut R) -> Result<bool, R::Error> {
    // U = (w + U') / 2^64 with 64 bits w. It is below a/b where U' is below (a 2^64 - w b) / b.
    let (mut a, b) = (u128::from(a), u128::from(b));
    loop {
        let taken = u128::from(random.try_next_u64()?) * b;
        let Some(left) = (a << 64).checked_sub(taken).filter(|left| *left > 0) else { return Ok(false) };
        if left >= b {
            return Ok(true);
        }
        a = left;
    }
}

/// [`is_below`] for large integers, where the first 64 bits of the uniform number are given.
fn is_below_large<R: TryRng + ?Sized>(first: u64, mut a: BigUint, b: &BigUint, random: &mut R) -> Result<bool, R::Error> {
    let mut word = first;
    loop {
        let (all, taken) = (a << 64u32, b * word);
        if all <= taken {
            return Ok(false);
        }
        a = all - taken;
        if a >= *b {
            return Ok(true);
        }
        word = random.try_next_u64()?;
    }
}

/// True with the probability exp(-p), where `ratio` is true with the probability p <= 1.
fn exp_minus<R: TryRng + ?Sized>(ratio: impl Fn(&mut R) -> Result<bool, R::Error>, random: &mut R) -> Result<bool, R::Error> {
    // The first k at which a draw of probability p/k fails is odd with the probability exp(-p).
    let mut k = 1;
    while (k == 1 || is_below(1, k, random)?) && ratio(random)? {
        k += 1;
    }
    Ok(k % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream, stream};

    fn random(seed: u64) -> Stream {
        stream(seed, Purpose::Fresh, 0, 0)
    }

    /// The probabilities of -reach .. reach, and the second and fourth moment.
    fn law(sigma_squared: f64, reach: i64) -> (Vec<f64>, f64, f64) {
        let weight = |x: i64| (-(x as f64).powi(2) / (2.0 * sigma_squared)).exp();
        let total: f64 = (-200..=200).map(weight).sum();
        let moment = |k: i32| (-200..=200).map(|x| (x as f64).powi(k) * weight(x)).sum::<f64>() / total;
        ((-reach..=reach).map(|x| weight(x) / total).collect(), moment(2), moment(4))
    }

    /// |z| of a mean of n draws.
    const FEW: f64 = 4.0;

    #[test]
    fn small_variances_have_the_exact_law() {
        assert!((law(0.25, 3).1 - 0.215_012_675_088_1).abs() < 1e-13);
        let n = 400_000;
        for (seed, sigma_squared, reach) in [(1, 0.25, 1), (2, 1.0, 3), (3, 2.0 / 3.0, 2), (4, 7.3, 10), (5, 100.0, 40), (6, 0.01, 0)] {
            let (law, variance, fourth) = law(sigma_squared, reach);
            let noise = DiscreteGaussian::new(sigma_squared).unwrap();
            let mut random = random(seed);
            let mut seen = vec![0.0; law.len()];
            let (mut outside, mut square) = (0.0, 0.0);
            for _ in 0..n {
                let x = noise.sample(&mut random);
                square += (x * x) as f64;
                match usize::try_from(x + reach).ok().and_then(|at| seen.get_mut(at)) {
                    Some(count) => *count += 1.0,
                    None => outside += 1.0,
                }
            }
            // Chi-square with as many degrees of freedom as there are cells less one: the last cell is all the rest.
            let rest = 1.0 - law.iter().sum::<f64>();
            let of = |seen: f64, p: f64| {
                let expected = f64::from(n) * p;
                // What cannot happen did not.
                if expected < 1e-9 && seen == 0.0 { 0.0 } else { (seen - expected).powi(2) / expected.max(1e-9) }
            };
            let chi = seen.iter().zip(&law).map(|(s, p)| of(*s, *p)).sum::<f64>() + of(outside, rest);
            let free = law.len() as f64;
            assert!(chi <= free + FEW * (2.0 * free).sqrt(), "{sigma_squared}: {chi} with {free} degrees");
            let error = ((fourth - variance * variance) / f64::from(n)).sqrt();
            assert!((square / f64::from(n) - variance).abs() <= FEW * error, "{sigma_squared}: {square}");
        }
    }

    #[test]
    fn large_variances_have_gaussian_moments() {
        let n = 100_000;
        for (seed, sigma_squared) in [(1, 1234.5678), (2, 1e6), (3, 2f64.powi(60)), (4, 3.3e17), (5, MOST_VARIANCE), (6, 65_536.25)] {
            let noise = DiscreteGaussian::new(sigma_squared).unwrap();
            let mut random = random(10 + seed);
            let mut moments = [0.0f64; 5];
            for _ in 0..n {
                let z = noise.sample(&mut random) as f64 / sigma_squared.sqrt();
                let mut power = z;
                for moment in &mut moments {
                    *moment += power / f64::from(n);
                    power *= z;
                }
            }
            // Means of z^k are 0, 1, 0, 3, 0, their variances 1, 2, 15, 96, 945.
            for (k, (mean, variance)) in [(0.0, 1.0f64), (1.0, 2.0), (0.0, 15.0), (3.0, 96.0), (0.0, 945.0)].into_iter().enumerate() {
                let error = (variance / f64::from(n)).sqrt();
                assert!((moments[k] - mean).abs() <= FEW * error, "{sigma_squared}: moment {}: {}", k + 1, moments[k]);
            }
        }
    }

    /// Words that are given, for comparisons that need many bits.
    struct Words<'a>(&'a [u64]);

    impl TryRng for Words<'_> {
        type Error = Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Infallible> {
            unreachable!("only words of 64 bits are read")
        }
        fn try_next_u64(&mut self) -> Result<u64, Infallible> {
            let (first, rest) = self.0.split_first().expect("a word");
            self.0 = rest;
            Ok(*first)
        }
        fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Infallible> {
            unreachable!("only words of 64 bits are read")
        }
    }

    #[test]
    fn comparisons_read_as_many_bits_as_they_need() {
        // 1/3 is 0.0101.. in binary digits: words 0x5555.., each of which leaves 1/3 again.
        let third = 0x5555_5555_5555_5555;
        for (words, want) in [
            (&[third - 1][..], true),
            (&[third + 1][..], false),
            (&[third, third, third - 1][..], true),
            (&[third, third, third + 1][..], false),
        ] {
            let mut random = Words(words);
            assert_eq!(is_below(1, 3, &mut random), Ok(want));
            assert!(random.0.is_empty());
            let mut random = Words(&words[1..]);
            assert_eq!(is_below_large(words[0], BigUint::from(1u32) << 200u32, &(BigUint::from(3u32) << 200u32), &mut random), Ok(want));
            assert!(random.0.is_empty());
        }
        assert_eq!(is_below(0, 7, &mut Words(&[0])), Ok(false));
        assert_eq!(is_below(7, 7, &mut Words(&[u64::MAX])), Ok(true));
        assert_eq!(is_below(u64::MAX - 1, u64::MAX, &mut Words(&[u64::MAX - 1, 0])), Ok(true));
        // 2^64 mod 3 = 1: the word 0, whose product has the low half 0, is refused.
        assert_eq!(below(3, &mut Words(&[0, third + 1])), Ok(1));
        assert_eq!(below(1, &mut Words(&[5])), Ok(0));
    }

    #[test]
    fn floating_point_numbers_settle_a_comparison_as_integers_do() {
        let mut random = random(30);
        for sigma_squared in [0.25, 2.0 / 3.0, 7.3, 1234.5678, 1e12 / 7.0, 2f64.powi(60), 2f64.powi(111) / 3.0] {
            let noise = DiscreteGaussian::new(sigma_squared).unwrap();
            for _ in 0..200 {
                let y = below(3 * noise.t, &mut random).unwrap_or_else(|never| match never {});
                let z = (u128::from(y) * u128::from(noise.t) * noise.denominator).abs_diff(noise.numerator);
                let (square, mut all) = (BigUint::from(z) * z, BigUint::from(2 * noise.numerator) * noise.denominator * noise.t * noise.t);
                let gamma = z as f64 * z as f64 * noise.scale;
                let parts = (gamma * (1.0 + ERROR)).ceil().max(1.0);
                all *= parts as u64;
                assert!(square <= all);
                // Words around the ratio and far from it, and the words after them.
                let exact = u64::try_from((&square << 64u32) / &all).unwrap_or(u64::MAX);
                for step in [0i64, 1, -1, 1 << 11, -(1 << 11), 1 << 13, -(1 << 13), 1 << 14, -(1 << 14), 1 << 20, -(1 << 20), 1 << 62] {
                    let first = exact.saturating_add_signed(step);
                    let (mut a, mut b) = (random, random);
                    let quick = noise.is_below_share(gamma / parts, z, parts as u64, &mut Words(&[first, a.bits(), a.bits(), a.bits()]));
                    let slow = is_below_large(first, square.clone(), &all, &mut Words(&[b.bits(), b.bits(), b.bits()]));
                    assert_eq!(quick, slow, "{sigma_squared}: {y}, {first}");
                }
            }
        }
    }

    #[test]
    fn variances_out_of_range_are_refused() {
        for bad in [0.0, -1.0, 1e-10, 3e34, f64::NAN, f64::INFINITY] {
            let e = DiscreteGaussian::new(bad).unwrap_err();
            assert_eq!((e.key.as_str(), e.help.contains("2^112")), ("sigma_squared", true));
        }
        for good in [LEAST_VARIANCE, MOST_VARIANCE, 0.1, 1e-9, 1e9 + 0.1] {
            let noise = DiscreteGaussian::new(good).unwrap();
            assert_eq!(noise.numerator as f64 / noise.denominator as f64, good);
            assert!(f64::from(noise.sample(&mut random(1)).unsigned_abs() as f32) < 8.0 * good.sqrt() + 1.0);
        }
        assert_eq!(DiscreteGaussian::new(16.0).unwrap().t, 5);
        assert_eq!(DiscreteGaussian::new(15.99).unwrap().t, 4);
    }

    #[test]
    #[ignore = "a measurement"]
    fn speed() {
        for sigma in [2.0, 1000.0, 2f64.powi(30), 2f64.powi(56)] {
            let noise = DiscreteGaussian::new(sigma * sigma).unwrap();
            let mut keyed = random(3);
            let n = 2_000_000;
            let from = std::time::Instant::now();
            let sum = (0..n).fold(0i64, |sum, _| sum.wrapping_add(noise.sample(&mut keyed)));
            let keyed = from.elapsed().as_secs_f64() / f64::from(n);
            let from = std::time::Instant::now();
            let few = 20_000;
            let other = (0..few).fold(0i64, |sum, _| sum.wrapping_add(noise.try_sample(&mut rand::rngs::SysRng).unwrap()));
            let system = from.elapsed().as_secs_f64() / f64::from(few);
            std::hint::black_box((sum, other));
            println!("sigma {sigma:.1e}: {:.2e} draws a second, system {:.2e}", 1.0 / keyed, 1.0 / system);
        }
    }
}
