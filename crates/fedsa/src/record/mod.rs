//! What is kept of a run: the ledger, the output rule, metrics.

pub mod metrics;

use serde::{Deserialize, Serialize};

pub use metrics::{Metrics, Observation};

/// What was exchanged since the start, over all agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Exchanges: a message down to the participants and their answers; what they are
    /// told at a round's end is one too, without answers.
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
}

impl Ledger {
    /// A message of `bytes` to each of `agents`.
    pub(crate) fn down(&mut self, agents: usize, bytes: usize) {
        self.messages += agents as u64;
        self.bits_down += 8 * agents as u64 * bytes as u64;
    }

    /// An exchange's answers: `bytes` and `samples` in all.
    pub(crate) fn up(&mut self, agents: usize, bytes: u64, samples: u64) {
        self.exchanges += 1;
        self.messages += agents as u64;
        self.vectors_up += agents as u64;
        self.bits_up += 8 * bytes;
        self.samples += samples;
    }
}

/// Which function of the server's iterates a method gives out.
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
}

/// The output under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Output {
    rule: OutputRule,
    count: u64,
    mean: Vec<f64>,
}

impl Output {
    /// Before the first round.
    pub fn new(rule: OutputRule, start: &[f64]) -> Self {
        let mean = if rule == OutputRule::Last { Vec::new() } else { start.to_vec() };
        Self { rule, count: 0, mean }
    }

    /// Sees `theta_t`.
    pub fn see(&mut self, theta: &[f64], t: u64) {
        let counts = match self.rule {
            OutputRule::Last => return,
            OutputRule::Average => true,
            OutputRule::TailAfter(from) => t > from,
        };
        if counts {
            self.count += 1;
            let n = self.count as f64;
            self.mean.iter_mut().zip(theta).for_each(|(m, x)| *m += (x - *m) / n);
        }
    }

    /// The output when the server's iterate is `theta`.
    pub fn value<'a>(&'a self, theta: &'a [f64]) -> &'a [f64] {
        if self.count == 0 { theta } else { &self.mean }
    }
}
