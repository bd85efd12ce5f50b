//! Secure sums: the server learns only the sum of what agents send ([`crate::secure`]).

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, require};
use crate::privacy::accounting::{epsilon, rho};
use crate::privacy::sensitivity::{Relation, clipped, on_grid};
use crate::privacy::shares::NoiseShares;
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
    /// Differential privacy of all data of an agent. `bound` is then the norm to which agents shorten what they send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<Privacy>,
}

/// (epsilon, delta) differential privacy with the unit `agent`: of which every agent adds a share of integer noise to what it sends.
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
    /// What changes: an agent's data are missing, or others.
    #[serde(default)]
    pub relation: Relation,
}

/// What a grid depends on besides the stage.
#[derive(Debug, Clone, Copy)]
pub struct Summed<'a> {
    /// The agents' weights, which sum to 1.
    pub weights: &'a [f64],
    /// The number of components of a vector.
    pub dim: usize,
    /// The exchanges of a round, each of which releases a sum.
    pub exchanges: usize,
}

fn default_bits() -> u32 {
    32
}

fn default_least_agents() -> usize {
    3
}

impl Privacy {
    /// epsilon at delta for this number of rounds; noise of the least number of agents that suffice.
    pub fn new(epsilon: f64, delta: f64, rounds: u64) -> Self {
        Self { epsilon, delta, rounds, honest: None, relation: Relation::default() }
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
    pub fn unit(&self) -> &'static str {
        match self.relation {
            Relation::Removed => "all data of an agent, which are missing or not",
            Relation::Replaced => "all data of an agent, in place of any others",
        }
    }
}

crate::settings::setters! { Privacy {
    with_honest(honest: Option<u32>) = honest;
    with_relation(relation: Relation) = relation;
} }

impl SecureSum {
    /// Sums of numbers in `[-bound, bound]` with 32 bits, of at least three agents.
    pub fn new(bound: f64) -> Self {
        Self { bound, bits: default_bits(), least_agents: default_least_agents(), privacy: None }
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
        let sensitivity = clipped(of.weights.iter().copied().fold(0.0, f64::max), self.bound, privacy.relation);
        let honest = privacy.honest.unwrap_or(self.least_agents as u32);
        // Noise in steps grows with the scale, and a sum with its noise must not leave its bits.
        for scale in (plain.scale() - self.bits as i32..=plain.scale()).rev() {
            let noise = NoiseShares::new(on_grid(sensitivity, scale, of.dim, privacy.relation), each, honest)?;
            let tail = noise.tail(agents, of.dim * of.exchanges, privacy.rounds);
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
