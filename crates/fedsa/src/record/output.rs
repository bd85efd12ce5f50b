//! Output rules: the function of the server's iterates that a method returns.

use serde::{Deserialize, Serialize};

use crate::problem::copies::Combination;
use crate::random::{ALL, Purpose, stream};

/// The output of a method: a function of the server's iterates.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OutputRule {
    /// `theta_t`.
    #[default]
    Last,
    /// The mean of `theta_1..theta_t` (Polyak and Ruppert).
    Average,
    /// The mean of the iterates after this round.
    TailAfter(u64),
    /// One of the iterates, drawn with weights `q^-(t+1)`, q in (0, 1]: \[T\] Theorem 5.3
    /// with `q = 1 - alpha mu / 2`.
    Weighted(f64),
}

/// The output of a run so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    rule: OutputRule,
    count: u64,
    /// The average so far, or the iterate drawn so far.
    mean: Vec<f64>,
    /// `W_t / w_t`, the sum of weights over the last one.
    total: f64,
    seed: u64,
    /// The combination of copies, and its value so far.
    combined: Option<(Combination, Vec<f64>)>,
}

impl Output {
    /// Before the first round.
    pub fn new(rule: OutputRule, start: &[f64], seed: u64) -> Self {
        let mean = if rule == OutputRule::Last { Vec::new() } else { start.to_vec() };
        // theta_0 has weight w_0, the sum of all weights so far.
        Self { rule, count: 0, mean, total: 1.0, seed, combined: None }
    }

    /// The output that combines copies of theta.
    #[must_use]
    pub fn combining(mut self, combination: Option<Combination>, start: &[f64]) -> Self {
        self.combined = combination.map(|combination| {
            let value = combination.of(start);
            (combination, value)
        });
        self
    }

    /// The number of stored numbers.
    pub(crate) fn len(&self) -> usize {
        self.mean.len()
    }

    /// Adds `theta_t`.
    pub fn see(&mut self, theta: &[f64], t: u64) {
        self.add(theta, t);
        if let Some((combination, mut value)) = self.combined.take() {
            value.clone_from(&combination.of(self.of_iterates(theta)));
            self.combined = Some((combination, value));
        }
    }

    fn add(&mut self, theta: &[f64], t: u64) {
        let counts = match self.rule {
            OutputRule::Last => return,
            OutputRule::Average => true,
            OutputRule::TailAfter(from) => t > from,
            OutputRule::Weighted(q) => return self.draw(theta, t, q),
        };
        if counts {
            self.count += 1;
            let n = self.count as f64;
            self.mean.iter_mut().zip(theta).for_each(|(m, x)| *m += (x - *m) / n);
        }
    }

    /// Replaces the drawn iterate with probability `w_t / W_t`, so that each iterate is drawn with a probability proportional to its
    /// weight. Ratios of weights do not overflow.
    fn draw(&mut self, theta: &[f64], t: u64, q: f64) {
        self.count += 1;
        self.total = self.total * q + 1.0;
        if stream(self.seed, Purpose::Output, t, ALL).uniform() * self.total < 1.0 {
            self.mean.copy_from_slice(theta);
        }
    }

    /// The output when the server's iterate is `theta`.
    pub fn value<'a>(&'a self, theta: &'a [f64]) -> &'a [f64] {
        match &self.combined {
            Some((_, value)) => value,
            None => self.of_iterates(theta),
        }
    }

    fn of_iterates<'a>(&'a self, theta: &'a [f64]) -> &'a [f64] {
        if self.count == 0 { theta } else { &self.mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawn_iterate_has_the_law_of_its_weights() {
        const T: u64 = 7;
        let (q, seeds) = (0.7f64, 40_000);
        let weight = |t: u64| q.powi(-(t as i32 + 1));
        let total: f64 = (0..=T).map(weight).sum();
        let mut counts = [0.0f64; T as usize + 1];
        for seed in 0..seeds {
            let mut output = Output::new(OutputRule::Weighted(q), &[0.0], seed);
            (1..=T).for_each(|t| output.see(&[t as f64], t));
            counts[output.value(&[f64::NAN])[0] as usize] += 1.0;
        }
        for (t, count) in counts.into_iter().enumerate() {
            let p = weight(t as u64) / total;
            let se = (p * (1.0 - p) / seeds as f64).sqrt();
            assert!((count / seeds as f64 - p).abs() <= 4.0 * se, "theta_{t}: {count} of {seeds}, {p} expected");
        }
    }

    #[test]
    fn weights_beyond_the_largest_number_are_no_matter() {
        // The weights themselves would be 2^5000.
        let mut output = Output::new(OutputRule::Weighted(0.5), &[0.0], 1);
        (1..=5000).for_each(|t| output.see(&[t as f64], t));
        assert!(output.total == 2.0 && output.value(&[f64::NAN])[0] > 4900.0);
    }
}
