//! Facts of columns on which machines with their own data must agree: codes of levels, moments of numbers.

use serde::{Deserialize, Serialize};

/// The largest number of levels of a categorical column.
pub const MAX_LEVELS: usize = 1000;
/// The largest number of classes.
pub const MAX_CLASSES: usize = 10_000;

/// The type of a column's levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Numbers, all of them.
    Numbers,
    /// Texts, all of them.
    Texts,
    /// Numbers and texts.
    Mixed,
}

/// The type of levels; `None` without levels.
pub fn coding<'a>(mut levels: impl Iterator<Item = &'a str>) -> Option<Coding> {
    let first = level_number(levels.next()?).is_some();
    let all_alike = levels.all(|level| level_number(level).is_some() == first);
    Some(match (all_alike, first) {
        (false, _) => Coding::Mixed,
        (true, true) => Coding::Numbers,
        (true, false) => Coding::Texts,
    })
}

/// The value of a level that is a number; `None` for codes such as `007`, and for ids with more digits than a double has.
pub fn level_number(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_code = whole.len() > 1 && whole.starts_with('0');
    if !are_digits(whole) || !are_digits(fraction) || is_code {
        return None;
    }
    let x = text.parse::<f64>().ok().filter(|x| x.is_finite())? + 0.0;
    let is_exact = x.abs().to_string().split('.').next() == Some(whole);
    is_exact.then_some(x)
}

/// The running mean and spread of numbers (Welford 1962; joined by Chan et al. 1979).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningMoments {
    n: f64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl RunningMoments {
    /// Adds a number.
    pub fn see(&mut self, x: f64) {
        self.n += 1.0;
        let away = x - self.mean;
        self.mean += away / self.n;
        self.squares += away * (x - self.mean);
    }

    /// The moments of all these numbers.
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        numbers.into_iter().for_each(|x| moments.see(x));
        moments
    }

    /// The moments of numbers with this count, which may be a sum of weights, this mean, and this sum of squared distances from it.
    pub fn of_parts(n: f64, mean: f64, squares: f64) -> Self {
        Self { n, mean, squares }
    }

    /// Whether some numbers can have these moments.
    pub(crate) fn are_possible(self) -> bool {
        self.n > 0.0 && self.n.is_finite() && self.mean.is_finite() && self.squares >= 0.0 && self.squares.is_finite()
    }

    /// Whether numbers in this range, ends included, can have these moments.
    pub(crate) fn are_of(self, low: f64, high: f64) -> bool {
        /// The largest exact count.
        const MOST: f64 = (1u64 << 53) as f64;
        let is_count = self.n.fract() == 0.0 && (1.0..=MOST).contains(&self.n);
        // The spread is largest if all numbers are at the ends of the range. Tolerances cover rounding.
        let most = self.n * ((high - self.mean) * (self.mean - low) + 1e-12 * low.abs().max(high.abs()).powi(2)) * 1.001;
        let is_spread = (0.0..=most).contains(&self.squares) && self.squares.is_finite();
        is_count && (high - low).is_finite() && (low..=high).contains(&self.mean) && is_spread
    }

    /// The moments of both together.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        let n = self.n + other.n;
        if self.n == 0.0 || other.n == 0.0 {
            return if self.n == 0.0 { other } else { self };
        }
        let away = other.mean - self.mean;
        Self { n, mean: self.mean + away * (other.n / n), squares: self.squares + other.squares + away * away * (self.n * other.n / n) }
    }

    /// The count of numbers.
    pub fn count(self) -> usize {
        self.n as usize
    }

    /// The mean, and the standard deviation over all n numbers.
    pub fn mean_and_deviation(self) -> (f64, f64) {
        (self.mean, (self.squares / self.n).sqrt())
    }
}
