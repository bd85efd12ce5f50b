//! Secure sums: the server learns only the sum of what agents send ([`crate::secure`]).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, require};
use crate::privacy::accounting::{epsilon, rho};
use crate::privacy::sensitivity::{Relation, clipped, on_grid};
use crate::privacy::shares::NoiseShares;
use crate::privacy::unit::PrivacyUnit;
use crate::secure::SumGrid;

/// Agents round what they send to a common grid and mask it; a second exchange of each question removes the masks from the sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SecureSum {
    /// Largest absolute number that an agent sends; larger ones are clipped and counted.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub bound: f64,
    /// Bits of each number of a sum, 8 to 50.
    #[serde(default = "default_bits")]
    #[cfg_attr(feature = "schema", schemars(range(min = 8, max = 50)))]
    pub bits: u32,
    /// Answers below which a sum stays unknown.
    #[serde(default = "default_least_agents")]
    #[cfg_attr(feature = "schema", schemars(range(min = 2)))]
    pub least_agents: usize,
    /// Differential privacy. `bound` is then the norm to which agents shorten what they send, and the norm of the parts of rows and episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
}

/// (epsilon, delta) differential privacy: every agent adds a share of integer noise to what it sends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Privacy {
    /// epsilon of all rounds together.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    pub epsilon: f64,
    /// delta, far below one over the number of agents.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1)))]
    pub delta: f64,
    /// Rounds for which this is enough; agents answer no later ones.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub rounds: u64,
    /// Agents whose noise is counted on; by default `least_agents`. The noise of the others comes on top.
    #[serde(default)]
    pub honest: Option<u32>,
    /// What changes: a unit's data are missing, or others.
    #[serde(default)]
    pub relation: Relation,
    /// Whose data are protected; row and episode need `rows`, and `clip` of the problem.
    #[serde(default, skip_serializing_if = "is_agent")]
    pub unit: PrivacyUnit,
    /// Rows of all agents together, at least; for the units row and episode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub rows: Option<u64>,
}

fn is_agent(unit: &PrivacyUnit) -> bool {
    *unit == PrivacyUnit::Agent
}

/// What a grid depends on besides the stage.
#[derive(Debug, Clone, Copy)]
pub struct Summed<'a> {
    /// The agents' weights, which sum to 1.
    pub weights: &'a [f64],
    /// The most numbers of a sum.
    pub numbers: usize,
    /// The exchanges of a round, each of which releases a sum.
    pub exchanges: usize,
}

fn default_bits() -> u32 {
    32
}

fn default_least_agents() -> usize {
    3
}

/// The relative errors of weights and of norms that the sensitivity of rows covers.
const SLACK: f64 = 1e-9;

impl Privacy {
    /// epsilon at delta for this number of rounds; noise of the least number of agents that suffice.
    pub fn new(epsilon: f64, delta: f64, rounds: u64) -> Self {
        Self { epsilon, delta, rounds, honest: None, relation: Relation::default(), unit: PrivacyUnit::default(), rows: None }
    }

    /// The epsilon that the first rounds spend, at delta.
    ///
    /// # Errors
    /// When epsilon or delta is out of range.
    pub fn spent(&self, rounds: u64) -> Result<f64> {
        let all = rho(self.epsilon, self.delta)?;
        epsilon(all * rounds as f64 / self.rounds as f64, self.delta)
    }

    /// What is protected, in words.
    pub fn protected(&self) -> String {
        let relation = match self.relation {
            Relation::Removed => "missing or not",
            Relation::Replaced => "in place of any other",
        };
        format!("{}, {relation}", self.unit.name())
    }

    /// By how much a unit changes a mean of messages, as a norm: of agents with weights of at most `largest`, whose messages or parts of
    /// units have norms of at most `bound`.
    ///
    /// A mean of n parts of norm C that is summed in any order has an error of at most `n u C`, with the rounding unit u = 2^-53. Two data
    /// sets together have twice that, so the sensitivity of a row is `C / n (1 + 2 n^2 u)`, not `C / n`. No agent has more than
    /// `2 p_c rows` rows ([`Privacy::check_rows`]).
    fn sensitivity(&self, largest: f64, bound: f64) -> f64 {
        match self.rows {
            None => clipped(largest, bound, self.relation),
            Some(rows) => {
                let most = 2.0 * largest * rows as f64;
                self.relation.of_norm(bound / rows as f64 * (1.0 + SLACK) * (1.0 + most * most * f64::EPSILON))
            }
        }
    }

    /// Checks that an agent with weight p and so many rows is as the sensitivity assumes: a row counts by at most `1 / rows`.
    ///
    /// # Errors
    /// When it has too few or too many rows.
    pub(crate) fn check_rows(&self, weight: f64, own: u64) -> Result<()> {
        let (all, own) = (self.rows.unwrap_or(1) as f64, own as f64);
        if weight * all <= own * (1.0 + SLACK) && own <= 2.0 * weight * all {
            return Ok(());
        }
        let what = format!("{all}, and an agent with {own} rows has the weight {weight}");
        Err(Error::new(
            "uplink.media.privacy.rows",
            what,
            "the rows of all agents, or up to half as many, with agents weighted by their rows",
        ))
    }
}

crate::settings::setters! { Privacy {
    with_honest(honest: Option<u32>) = honest;
    with_relation(relation: Relation) = relation;
    with_unit(unit: PrivacyUnit) = unit;
    with_rows(rows: impl Into<Option<u64>>) = rows.into();
} }

impl SecureSum {
    /// Sums of numbers in `[-bound, bound]` with 32 bits, of at least three agents.
    pub fn new(bound: f64) -> Self {
        Self { bound, bits: default_bits(), least_agents: default_least_agents(), privacy: None }
    }

    /// Whether the rounding of sums is far below what a method can notice.
    pub(crate) fn is_fine(&self) -> bool {
        self.bits >= 40 && self.privacy.is_none()
    }

    /// Checks ranges.
    ///
    /// # Errors
    /// When a setting is out of range; names the setting.
    pub(super) fn check_ranges(&self) -> Result<()> {
        require(self.least_agents >= 2, "least_agents", self.least_agents, "2 agents or more")?;
        if let Some(privacy) = self.privacy {
            require(privacy.rounds >= 1, "privacy.rounds", privacy.rounds, "one round or more")?;
            let honest = privacy.honest.unwrap_or(1);
            let accepted = format!("1 to {}, the least number of agents in a sum", self.least_agents);
            require((1..=self.least_agents as u32).contains(&honest), "privacy.honest", honest, &accepted)?;
            if (privacy.unit == PrivacyUnit::Agent) != privacy.rows.is_none() || privacy.rows == Some(0) {
                let what =
                    format!("{}, and the unit is {}", privacy.rows.map_or("no number".into(), |n| n.to_string()), privacy.unit.name());
                return Err(Error::new("privacy.rows", what, "the rows of all agents together, for the units row and episode only"));
            }
            rho(privacy.epsilon, privacy.delta).map_err(|e| e.inside("privacy"))?;
        }
        SumGrid::new(self.bits, self.bound, self.least_agents, 0.0).map(|_| ())
    }

    /// The grid, and with `privacy` the noise of an agent in its steps.
    ///
    /// # Errors
    /// When bits are too few for so many agents, or for the noise; when a number is out of range.
    pub fn grid(&self, of: Summed<'_>) -> Result<SumGrid> {
        let agents = of.weights.len();
        let plain = SumGrid::new(self.bits, self.bound, agents, 0.0)?;
        let Some(privacy) = self.privacy else { return Ok(plain) };
        let releases = (privacy.rounds * of.exchanges as u64) as f64;
        let each = rho(privacy.epsilon, privacy.delta).map_err(|e| e.inside("privacy"))? / releases;
        let sensitivity = privacy.sensitivity(of.weights.iter().copied().fold(0.0, f64::max), self.bound);
        // Without a row, an agent still sends a vector, which is rounded as well.
        let rounding = if privacy.unit == PrivacyUnit::Agent { privacy.relation } else { Relation::Replaced };
        let honest = privacy.honest.unwrap_or(self.least_agents as u32);
        // Noise in steps grows with the scale, and a sum with its noise must not leave its bits.
        for scale in (plain.scale() - self.bits as i32..=plain.scale()).rev() {
            let noise = NoiseShares::new(on_grid(sensitivity, scale, of.numbers, rounding), each, honest)?;
            let tail = noise.tail(agents, of.numbers * of.exchanges, privacy.rounds);
            if SumGrid::new(self.bits, self.bound, agents, tail).is_ok_and(|grid| grid.scale() >= scale) {
                return Ok(plain.with_noise(scale, noise.share_variance()));
            }
        }
        Err(Error::new("bits", format!("{} bits, which the noise exceeds", self.bits), "more bits, or a larger `epsilon`"))
    }
}

crate::settings::setters! { SecureSum {
    with_bits(bits: u32) = bits;
    with_least_agents(least_agents: usize) = least_agents;
    with_privacy(privacy: Option<Privacy>) = privacy;
} }
