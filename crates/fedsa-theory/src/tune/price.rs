//! The cost of a method's rounds.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Family, SearchChoice, SearchStart};
use crate::cost::Goal;
use crate::cost::{Network, RoundCost};
use fedsa::error::{Error, Result};
use fedsa::federation::Federation;
use fedsa::problem::Field;
use fedsa::record::Ledger;
use fedsa::round::Run;

/// The cost of a number of rounds.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SearchCost {
    /// Rounds.
    pub rounds: u64,
    /// Bits of all messages, up and down.
    pub bits: f64,
    /// Samples of all agents.
    pub samples: f64,
    /// Seconds of messages, if their time is known. Computation is not included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl SearchCost {
    /// The part to minimise.
    pub fn of(&self, goal: Goal) -> f64 {
        match goal {
            Goal::Rounds => self.rounds as f64,
            Goal::Bits => self.bits,
            Goal::Samples => self.samples,
            // Unknown seconds were rejected before.
            Goal::Seconds => self.seconds.unwrap_or(f64::INFINITY),
        }
    }

    /// Compares two costs: by the part to minimise, then by samples, then by bits.
    pub fn compare(&self, other: &SearchCost, goal: Goal) -> Ordering {
        let key = |cost: &SearchCost| [cost.of(goal), cost.samples, cost.bits];
        let (a, b) = (key(self), key(other));
        a.iter().zip(&b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// The cost of a family's round, from the ledger of a few executed rounds. With random numbers of local steps it is the mean. Counts do
/// not depend on step sizes. They are exact if all rounds after the first cost the same; over fading budgets they are means over these
/// rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Bits of the first round, and of each later one.
    bits: (f64, f64),
    /// Exchanges of the first round, and of each later one.
    exchanges: (f64, f64),
    /// Samples of a round with no local steps, and of each local step.
    samples: (f64, f64),
    network: Option<Network>,
}

/// The number of executed rounds.
const ROUNDS: u64 = 33;

impl Price {
    /// The price of a family's rounds.
    ///
    /// # Errors
    /// When the method cannot work over its link.
    pub fn of(field: &Arc<dyn Field>, family: &Family, start: &SearchStart) -> Result<Self> {
        let theta = start.theta.clone().unwrap_or_else(|| vec![0.0; field.dim()]);
        let settings =
            |local_steps: u64| family.settings(&SearchChoice { family: 0, step_size: TINY, local_steps, server_step: 1.0 }, field.agents());
        // Ledgers after the first round and the last.
        let ledgers = |local_steps: u64| -> Result<(Ledger, Ledger)> {
            let settings = settings(local_steps)?;
            let federation = Federation::new(&*settings, &family.link, field.weights(), 0, theta.clone())?.with_output(start.output);
            let mut run = Run::new(field, &federation)?;
            run.step();
            let first = run.ledger();
            (1..ROUNDS).for_each(|_| run.step());
            if run.round() != ROUNDS {
                return Err(Error::not_known("", "a run with a tiny step diverges", "a start near the root"));
            }
            Ok((first, run.ledger()))
        };
        let (first, last) = ledgers(1)?;
        let bits = |ledger: &Ledger| (ledger.bits_up + ledger.bits_down) as f64;
        // The mean of random numbers of local steps is known; a few rounds would not give it.
        let samples = |local_steps: u64, last: &Ledger| -> Result<f64> {
            let mean = RoundCost::new(&**field, &*settings(local_steps)?, &family.link).map(|cost| cost.samples);
            Ok(mean.unwrap_or(last.samples as f64 / ROUNDS as f64))
        };
        let one = samples(1, &last)?;
        let two = if family.has_local_steps { samples(2, &ledgers(2)?.1)? } else { one };
        let of = |count: &dyn Fn(&Ledger) -> f64| (count(&first), (count(&last) - count(&first)) / (ROUNDS - 1) as f64);
        let exchanges = of(&|ledger| ledger.exchanges as f64);
        Ok(Self { bits: of(&bits), exchanges, samples: (2.0 * one - two, two - one), network: None })
    }

    /// The same on a network, if the time of messages is known.
    #[must_use]
    pub fn on(self, network: Option<Network>) -> Self {
        Self { network, ..self }
    }

    /// The cost of rounds with H local steps.
    pub fn cost(&self, rounds: u64, local_steps: u64) -> SearchCost {
        let each = if self.samples.1 == 0.0 { self.samples.0 } else { self.samples.0 + self.samples.1 * local_steps as f64 };
        let of = |(first, later): (f64, f64)| if rounds == 0 { 0.0 } else { first + (rounds - 1) as f64 * later };
        let bits = of(self.bits);
        let seconds = self.network.map(|network| network.seconds(of(self.exchanges), bits));
        SearchCost { rounds, bits, samples: rounds as f64 * each, seconds }
    }

    /// The most rounds whose cost is at most `cost`.
    pub fn affordable(&self, cost: f64, goal: Goal, local_steps: u64, most: u64) -> u64 {
        let is_paid = |rounds: u64| self.cost(rounds, local_steps).of(goal) <= cost;
        let (mut low, mut high) = (0, most);
        if is_paid(high) {
            return high;
        }
        // `low` rounds are affordable, `high` are not.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if is_paid(middle) { low = middle } else { high = middle }
        }
        low
    }
}

/// A step size at which no method diverges.
const TINY: f64 = 1e-9;
