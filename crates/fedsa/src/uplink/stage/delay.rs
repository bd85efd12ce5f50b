//! Delays: old models (pull) and late answers (push).
//!
//! **Pull** (\[T\] eq. 4.7): in round k the server uses agent i's direction at `theta_{(k - tau_ik)+}` with that round's sample. A
//! direction may be used twice or never, so this medium needs methods whose agents keep no state between rounds. Past models and past
//! states of the agents' chains are kept; directions are computed on use.
//!
//! **Push**: an answer arrives tau rounds after its question. In one round, any number of an agent's answers may arrive.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, require};
use crate::random::Stream;
use crate::settings::choice;

/// A law of delays in rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "law", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Delay {
    /// Constant.
    Constant {
        /// Delay tau.
        #[cfg_attr(feature = "schema", schemars(range(max = MAX_DELAY)))]
        rounds: u64,
    },
    /// Uniform on `min..=max`, per agent and round.
    Uniform {
        /// Smallest delay.
        #[serde(default = "one")]
        min: u64,
        /// Largest delay.
        #[cfg_attr(feature = "schema", schemars(range(max = MAX_DELAY)))]
        max: u64,
    },
    /// Geometric on 0, 1, .. with this mean, truncated at `max`.
    Geometric {
        /// Mean before truncation.
        #[cfg_attr(feature = "schema", schemars(range(min = 0)))]
        mean: f64,
        /// Largest delay; `10 mean` by default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(max = MAX_DELAY)))]
        max: Option<u64>,
    },
    /// `delays[t]` in round t, then the last entry.
    Trace {
        /// Delays by round.
        delays: Vec<Row>,
    },
    /// 1, 2, .., `length` at the end of every period, otherwise uniform on `0..=short`.
    Stall {
        /// Rounds per period.
        period: u64,
        /// Rounds per stall.
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        length: u64,
        /// Largest delay otherwise.
        #[serde(default)]
        short: u64,
    },
    /// `rounds` with this probability, otherwise 0.
    Spikes {
        /// Probability of a spike.
        #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
        probability: f64,
        /// Delay of a spike.
        #[cfg_attr(feature = "schema", schemars(range(max = MAX_DELAY)))]
        rounds: u64,
    },
}

fn one() -> u64 {
    1
}

/// The delays of one round of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Row {
    /// The same for all agents.
    All(u64),
    /// One per agent.
    Each(Vec<u64>),
}

choice!(Row, "delays in rounds, at least 0: one per round for all agents, or a list of one per agent",
    whole u64 => |delay| Ok(Row::All(delay)),
    list Vec<u64> => |delays| Ok(Row::Each(delays)),
);

impl Row {
    fn longest(&self) -> u64 {
        match self {
            Row::All(tau) => *tau,
            Row::Each(taus) => taus.iter().copied().max().unwrap_or(0),
        }
    }
}

/// The longest accepted delay. Past rounds are kept for as long.
pub const MAX_DELAY: u64 = 1_000_000;

impl Delay {
    /// The delay of agent `c` in round t, drawn from the agent's stream.
    pub fn of(&self, t: u64, c: usize, stream: &mut Stream) -> u64 {
        let uniform = |stream: &mut Stream, min: u64, max: u64| min + (stream.uniform() * (max - min + 1) as f64) as u64;
        match self {
            Delay::Constant { rounds } => *rounds,
            Delay::Uniform { min, max } => uniform(stream, *min, *max),
            Delay::Geometric { mean, .. } => {
                let u = 1.0 - stream.uniform();
                // P(delay >= k) = (mean / (1 + mean))^k; the logarithm of that ratio must not round to 0.
                let drawn = if *mean > 0.0 { (u.ln() / -(1.0 / mean).ln_1p()).floor() as u64 } else { 0 };
                drawn.min(self.max())
            }
            Delay::Trace { delays } => match &delays[(t as usize).min(delays.len() - 1)] {
                Row::All(tau) => *tau,
                Row::Each(taus) => taus[c],
            },
            Delay::Stall { period, length, short } => {
                let calm = period - length;
                match t % period {
                    phase if phase >= calm => phase - calm + 1,
                    _ => uniform(stream, 0, *short),
                }
            }
            Delay::Spikes { probability, rounds } => {
                if stream.uniform() < *probability {
                    *rounds
                } else {
                    0
                }
            }
        }
    }

    /// The longest possible delay tau_max, in rounds.
    pub fn max(&self) -> u64 {
        match self {
            Delay::Constant { rounds } | Delay::Spikes { rounds, .. } => *rounds,
            Delay::Uniform { max, .. } => *max,
            Delay::Geometric { mean, max } => max.unwrap_or((10.0 * mean).ceil() as u64),
            Delay::Trace { delays } => delays.iter().map(Row::longest).max().unwrap_or(0),
            Delay::Stall { length, short, .. } => *length.max(short),
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Delay::Uniform { min, max } => require(min <= max, "min", min, &format!("at most max = {max}"))?,
            Delay::Geometric { mean, .. } => require(*mean >= 0.0 && mean.is_finite(), "mean", mean, "at least 0")?,
            Delay::Trace { delays } => require(!delays.is_empty(), "delays", "[]", "one delay per round")?,
            Delay::Stall { period, length, .. } => {
                require(*length >= 1 && length < period, "length", length, &format!("at least 1 and below period = {period}"))?;
            }
            Delay::Spikes { probability, .. } => {
                require((0.0..=1.0).contains(probability), "probability", probability, "a probability, in [0, 1]")?;
            }
            Delay::Constant { .. } => {}
        }
        if let Delay::Geometric { mean, max: None } = self {
            // Large means in exponent form: their digits beyond the precision of f64 are meaningless.
            let shown = if *mean < 1e15 { mean.to_string() } else { format!("{mean:e}") };
            let accepted = format!("at most {}, or max, a longest delay of at most {MAX_DELAY} rounds", MAX_DELAY / 10);
            return require(self.max() <= MAX_DELAY, "mean", shown, &accepted);
        }
        let key = match self {
            Delay::Constant { .. } | Delay::Spikes { .. } => "rounds",
            Delay::Uniform { .. } | Delay::Geometric { .. } => "max",
            Delay::Trace { .. } => "delays",
            Delay::Stall { length, short, .. } => {
                if length >= short {
                    "length"
                } else {
                    "short"
                }
            }
        };
        require(self.max() <= MAX_DELAY, key, self.max(), &format!("a delay of at most {MAX_DELAY} rounds"))
    }

    /// Checks a trace for this number of agents.
    ///
    /// # Errors
    /// When a row of a trace has neither one delay for all agents nor one per agent.
    pub fn check_agents(&self, agents: usize) -> Result<()> {
        let Delay::Trace { delays } = self else { return Ok(()) };
        let odd = delays.iter().enumerate().find_map(|(t, row)| match row {
            Row::Each(taus) if taus.len() != agents => Some((t, taus.len())),
            _ => None,
        });
        odd.map_or(Ok(()), |(t, n)| {
            let what = format!("{n} delays for {agents} agents in round {t} of the trace");
            Err(Error::new("delays", what, format!("one delay for all agents, or {agents}, one per agent")))
        })
    }

    /// Checks that a trace is long enough for a run.
    ///
    /// # Errors
    /// When the trace has fewer rounds than the run.
    pub fn check_rounds(&self, rounds: u64) -> Result<()> {
        match self {
            Delay::Trace { delays } if (delays.len() as u64) < rounds => {
                let what = format!("a trace of {} rounds for a run of {rounds}", delays.len());
                Err(Error::new("delays", what, "a trace at least as long as the run"))
            }
            _ => Ok(()),
        }
    }
}

/// The server's direction in rounds `t < tau`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Before {
    /// The direction at `theta_0` with the first sample (\[T\] eq. 4.7).
    #[default]
    First,
    /// None: theta does not change (\[T\] eq. 5.8).
    Nothing,
}

/// The `delay` medium (pull).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Pull {
    /// Direction of the first rounds.
    #[serde(default)]
    pub before: Before,
    /// The law.
    #[serde(flatten)]
    pub delay: Delay,
}

impl Pull {
    /// With these delays and the default `before`.
    pub fn new(delay: Delay) -> Self {
        Self { before: Before::default(), delay }
    }
}

crate::settings::setters! { Pull {
    with_before(before: Before) = before;
    with_delay(delay: Delay) = delay;
} }

/// The `late` medium (push).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Late(pub Delay);
