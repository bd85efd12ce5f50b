//! The record of a run: the ledger, the output rule, metrics, and the outcome.

pub mod counts;
pub mod metrics;
pub mod outcome;

use serde::{Deserialize, Serialize};

use crate::message::{Body, Part, Unit};
use crate::problem::calls::Calls;
use crate::random::{ALL, Purpose, stream};

pub use counts::{COUNTS, Count, count};
pub use metrics::{METRICS, Metric, Metrics, Observation, metric};
pub use outcome::{Missed, OUTCOMES, Outcome};

/// Counts since the start of a run, over all agents.
///
/// A message counts once, when it is sent, whether it arrives, arrives late or is lost. A
/// message that the link's budget does not carry is not sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Exchanges: a message down to the participants and their answers. A message at the end of
    /// a round counts as an exchange without answers.
    pub exchanges: u64,
    /// Samples drawn by all agents.
    pub samples: u64,
    /// Messages in both directions.
    pub messages: u64,
    /// Bits from agents to the server: eight times the encoded bytes, headers included.
    pub bits_up: u64,
    /// Bits from the server to agents.
    pub bits_down: u64,
    /// Vectors of d components from agents to the server.
    pub vectors_up: u64,
    /// Matrices, or corrections of one, from agents to the server.
    pub matrices_up: u64,
    /// Single numbers from agents to the server, as the losses of a line search.
    pub scalars_up: u64,
    /// Evaluations of operators, losses and derivatives by all agents.
    pub calls: Calls,
}

impl Ledger {
    /// Counts messages to agents, and the sum of their bytes.
    pub(crate) fn down(&mut self, agents: usize, bytes: usize) {
        self.messages += agents as u64;
        self.bits_down += 8 * bytes as u64;
    }

    /// Whether these counts can grow without an overflow.
    pub(crate) fn is_possible(&self) -> bool {
        let Self { exchanges, samples, messages, bits_up, bits_down, vectors_up, matrices_up, scalars_up, calls } = *self;
        let counts = [exchanges, samples, messages, bits_up, bits_down, vectors_up, matrices_up, scalars_up];
        counts.into_iter().chain(calls.all()).all(|count| count <= u64::MAX / 2)
    }

    /// Counts the answers of an exchange.
    pub(crate) fn up(&mut self, sent: &Sent) {
        self.messages += sent.messages;
        self.bits_up += 8 * sent.bytes;
        self.vectors_up += sent.vectors;
        self.matrices_up += sent.matrices;
        self.scalars_up += sent.scalars;
        self.samples += sent.samples;
        self.calls.add(sent.calls);
    }
}

/// Counts of the agents' answers in one exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Messages that were sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Vectors of d components in them.
    pub vectors: u64,
    /// Matrices in them.
    pub matrices: u64,
    /// Single numbers in them.
    pub scalars: u64,
    /// Samples drawn.
    pub samples: u64,
    /// Calls of problems.
    pub calls: Calls,
}

impl Sent {
    /// Counts one message with these parts, of a run with models of d components, and this number of bytes.
    pub fn message(&mut self, bytes: usize, parts: &[(Part, Body)], d: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
        for (part, body) in parts {
            match part.unit() {
                Unit::Vector => self.vectors += 1,
                Unit::Vectors => self.vectors += (body.len() / d) as u64,
                Unit::Matrix => self.matrices += 1,
                Unit::Scalars => self.scalars += body.len() as u64,
                Unit::Nothing => {}
            }
        }
    }

    /// The sum of both.
    pub fn and(mut self, other: Self) -> Self {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.vectors += other.vectors;
        self.matrices += other.matrices;
        self.scalars += other.scalars;
        self.samples += other.samples;
        self.calls.add(other.calls);
        self
    }
}

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
}

impl Output {
    /// Before the first round.
    pub fn new(rule: OutputRule, start: &[f64], seed: u64) -> Self {
        let mean = if rule == OutputRule::Last { Vec::new() } else { start.to_vec() };
        // theta_0 has weight w_0, the sum of all weights so far.
        Self { rule, count: 0, mean, total: 1.0, seed }
    }

    /// The number of numbers that it keeps.
    pub(crate) fn len(&self) -> usize {
        self.mean.len()
    }

    /// Whether this can be a later state of `start`.
    pub(crate) fn continues(&self, start: &Self) -> bool {
        let seen = self.count == 0 || self.rule != OutputRule::Last;
        self.rule == start.rule && self.seed == start.seed && self.mean.len() == start.mean.len() && seen && self.count <= u64::MAX / 2
    }

    /// Adds `theta_t`.
    pub fn see(&mut self, theta: &[f64], t: u64) {
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

    /// Replaces the drawn iterate with probability `w_t / W_t`. Each iterate has then been
    /// drawn with a probability proportional to its weight. Ratios of weights do not overflow.
    fn draw(&mut self, theta: &[f64], t: u64, q: f64) {
        self.count += 1;
        self.total = self.total * q + 1.0;
        if stream(self.seed, Purpose::Output, t, ALL).uniform() * self.total < 1.0 {
            self.mean.copy_from_slice(theta);
        }
    }

    /// The output when the server's iterate is `theta`.
    pub fn value<'a>(&'a self, theta: &'a [f64]) -> &'a [f64] {
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
