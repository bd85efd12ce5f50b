//! The importance weights of episodes at each step, as sums that agents send.

/// The most steps of an episode for which weights are kept.
pub(super) const HORIZON: usize = 1 << 14;

/// The weights `rho_{0:t}` of episodes at each step. A finished episode keeps its last weight.
#[derive(Debug, Clone, Default)]
pub(super) struct Weights {
    /// The sums of weights and of their squares at step t, over episodes that continue.
    going: Vec<(f64, f64)>,
    /// The sum of weights times errors at step t.
    errors: Vec<f64>,
    /// Whether an episode is longer than [`HORIZON`].
    is_long: bool,
    /// The number of episodes that have a step t.
    count: Vec<f64>,
    /// The sums of last weights of episodes with t steps.
    ended: Vec<(f64, f64)>,
}

impl Weights {
    /// The weights of n episodes of one step, each 1.
    pub fn even(n: f64) -> Self {
        Self { going: vec![(n, n)], errors: vec![0.0], is_long: false, count: vec![n], ended: Vec::new() }
    }

    /// The sums as numbers, for episodes of at most `steps` steps: six for each step, and three more.
    pub fn numbers(&self, steps: usize) -> Vec<f64> {
        let pair = |all: &[(f64, f64)], t: usize| all.get(t).copied().unwrap_or_default();
        let one = |all: &[f64], t: usize| all.get(t).copied().unwrap_or_default();
        let at = |t: usize| {
            let (going, ended) = (pair(&self.going, t), pair(&self.ended, t));
            [going.0, going.1, one(&self.errors, t), one(&self.count, t), ended.0, ended.1]
        };
        let (last, of_last) = (pair(&self.ended, steps), f64::from(self.is_long));
        (0..steps).flat_map(at).chain([last.0, last.1, of_last]).collect()
    }

    /// The length of [`Weights::numbers`].
    pub fn length(steps: usize) -> usize {
        6 * steps + 3
    }

    /// The sums of such numbers.
    pub fn of_numbers(numbers: &[f64]) -> Self {
        let (rows, rest) = numbers.as_chunks::<6>();
        let mut all = Self::default();
        for [going, going_squares, error, count, ended, ended_squares] in rows {
            all.going.push((*going, *going_squares));
            all.errors.push(*error);
            all.count.push(*count);
            all.ended.push((*ended, *ended_squares));
        }
        if let [last, squares, is_long] = rest {
            all.ended.push((*last, *squares));
            all.is_long = *is_long > 0.0;
        }
        all
    }

    pub fn see(&mut self, t: usize, weight: f64, error: f64) {
        if t >= HORIZON {
            self.is_long = true;
            return;
        }
        if self.going.len() <= t {
            self.going.resize(t + 1, (0.0, 0.0));
            self.errors.resize(t + 1, 0.0);
            self.count.resize(t + 1, 0.0);
        }
        // Without weight, no value counts, finite or not.
        self.errors[t] += if weight == 0.0 { 0.0 } else { weight * error };
        self.going[t].0 += weight;
        self.going[t].1 += weight * weight;
        self.count[t] += 1.0;
    }

    pub fn end(&mut self, len: usize, weight: f64) {
        if len >= HORIZON {
            return;
        }
        if self.ended.len() <= len {
            self.ended.resize(len + 1, (0.0, 0.0));
        }
        self.ended[len].0 += weight;
        self.ended[len].1 += weight * weight;
    }

    pub fn join(&mut self, other: &Self) {
        let add = |to: &mut Vec<(f64, f64)>, from: &[(f64, f64)]| {
            to.resize(to.len().max(from.len()), (0.0, 0.0));
            to.iter_mut().zip(from).for_each(|(a, b)| *a = (a.0 + b.0, a.1 + b.1));
        };
        add(&mut self.going, &other.going);
        add(&mut self.ended, &other.ended);
        for (to, from) in [(&mut self.count, &other.count), (&mut self.errors, &other.errors)] {
            to.resize(to.len().max(from.len()), 0.0);
            to.iter_mut().zip(from).for_each(|(a, b)| *a += b);
        }
        self.is_long |= other.is_long;
    }

    /// At each step the sum of weights, finished episodes included, and the sum of weights times errors; `None` if an episode is longer
    /// than [`HORIZON`].
    pub fn sums(&self) -> Option<Vec<(f64, f64)>> {
        let mut kept = 0.0;
        let at = |(t, (going, error)): (usize, (&(f64, f64), &f64))| {
            kept += self.ended.get(t).map_or(0.0, |ended| ended.0);
            (going.0 + kept, *error)
        };
        (!self.is_long).then(|| self.going.iter().zip(&self.errors).enumerate().map(at).collect())
    }

    /// The smallest effective sample size `(sum w)^2 / sum w^2` up to the step by which half of the discounted steps have been made.
    pub fn effective(&self, gamma: f64) -> f64 {
        let spent = self.count.iter().scan(1.0, |discount, count| {
            let weight = *discount * count;
            *discount *= gamma;
            Some(weight)
        });
        let spent: Vec<f64> = spent.collect();
        let half = 0.5 * spent.iter().sum::<f64>();
        let (mut so_far, mut kept, mut least) = (0.0, (0.0, 0.0), f64::INFINITY);
        for (t, (sum, squares)) in self.going.iter().enumerate() {
            let ended = self.ended.get(t).copied().unwrap_or_default();
            kept = (kept.0 + ended.0, kept.1 + ended.1);
            let (sum, squares) = (sum + kept.0, squares + kept.1);
            let size = sum * sum / squares;
            least = least.min(if size.is_finite() { size } else { 0.0 });
            so_far += spent[t];
            if so_far >= half {
                break;
            }
        }
        if least.is_finite() { least } else { 0.0 }
    }
}
