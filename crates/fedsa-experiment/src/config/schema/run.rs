//! `[run]`: rounds, seeds, starts, recorded rounds, and when a run stops.

use std::collections::HashSet;

use fedsa::error::{Error, Result, require};
use fedsa::message::MAX_ROUNDS;
use fedsa::session::StoppingCriteria;
use fedsa::settings::choice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The `[run]` table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RunSpec {
    /// The number of rounds T.
    #[schemars(range(min = 1, max = MAX_ROUNDS))]
    pub rounds: u64,
    /// The number n of seeds 0, 1, .., n - 1, or a list of seeds.
    #[serde(default)]
    pub seeds: Seeds,
    /// `theta_0`.
    #[serde(default)]
    pub start: StartSpec,
    /// The recorded rounds.
    #[serde(default)]
    pub record: Grid,
    /// Targets at which a run stops early.
    #[serde(default, skip_serializing_if = "Stop::is_never")]
    pub stop: Stop,
    /// Treatment of methods that cannot work over their link.
    #[serde(default, skip_serializing_if = "Refused::is_error")]
    pub refused: Refused,
}

/// Treatment of methods that cannot work over their link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Refused {
    /// The file is bad input.
    #[default]
    Error,
    /// The method does not run; results give the reason.
    Skip,
}

impl Refused {
    fn is_error(&self) -> bool {
        *self == Refused::Error
    }
}

/// The number of seeds, or a list of seeds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Seeds {
    /// 0, 1, .., n - 1.
    Count(u64),
    /// The given seeds.
    List(Vec<u64>),
}

choice!(Seeds, "a count of seeds, or a list of seeds, whole numbers of at least 0",
    whole u64 => |n| Ok(Seeds::Count(n)),
    list Vec<u64> => |seeds| Ok(Seeds::List(seeds)),
);

/// The largest number of seeds.
const MAX_SEEDS: usize = 10_000_000;
/// The largest number of recorded rounds per run.
const MAX_RECORDED: u64 = 10_000_000;

impl Default for Seeds {
    fn default() -> Self {
        Seeds::Count(1)
    }
}

impl Seeds {
    /// The number of seeds.
    pub fn count(&self) -> usize {
        match self {
            Seeds::Count(n) => usize::try_from(*n).unwrap_or(usize::MAX),
            Seeds::List(seeds) => seeds.len(),
        }
    }

    pub(in crate::config) fn check(&self) -> Result<()> {
        let accepted = format!("a count from 1 to {MAX_SEEDS}, or a list of different seeds");
        if !(1..=MAX_SEEDS).contains(&self.count()) {
            return Err(Error::new("seeds", format!("{} seeds", self.count()), accepted));
        }
        // Counted seeds differ.
        let Seeds::List(seeds) = self else { return Ok(()) };
        let mut seen = HashSet::new();
        match seeds.iter().find(|seed| !seen.insert(**seed)) {
            None => Ok(()),
            Some(twice) => Err(Error::new("seeds", format!("the seed {twice} is given twice"), accepted)),
        }
    }

    /// All seeds.
    pub fn list(&self) -> Vec<u64> {
        match self {
            Seeds::Count(n) => (0..*n).collect(),
            Seeds::List(seeds) => seeds.clone(),
        }
    }
}

/// `theta_0`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Start")]
pub enum StartSpec {
    /// zero, root, root+1, normal, limit (FedLSA's), or an `.npz` or `.json` file.
    Name(String),
    /// The d components.
    List(Vec<f64>),
}

choice!(StartSpec, "zero, root, root+1, normal, limit or a file in quotes, or a list of numbers",
    text String => |name| Ok(StartSpec::Name(name)),
    list Vec<f64> => |theta| Ok(StartSpec::List(theta)),
);

impl Default for StartSpec {
    fn default() -> Self {
        StartSpec::Name("zero".into())
    }
}

/// The recorded rounds, in addition to round 0 and the last.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Grid {
    /// These rounds.
    List(Vec<u64>),
    /// A constant interval, or a number of recorded rounds.
    Table(GridTable),
}

choice!(Grid, "{ every = K }, { points = K, spacing = \"even\" or \"log\" }, or a list of rounds",
    list Vec<u64> => |list| Ok(Grid::List(list)),
    table GridTable => |table| Ok(Grid::Table(table)),
);

/// `{ every = 10 }`, or `{ points = 200, spacing = "log" }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct GridTable {
    /// The interval between recorded rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub every: Option<u64>,
    /// The largest number of recorded rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub points: Option<u64>,
    /// The spacing of `points`; `even` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spacing: Option<Spacing>,
}

/// The spacing of recorded rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Even.
    #[default]
    Even,
    /// Even in the logarithm.
    Log,
}

impl Default for Grid {
    fn default() -> Self {
        Grid::Table(GridTable { every: None, points: Some(500), spacing: Some(Spacing::Even) })
    }
}

impl Grid {
    /// The recorded rounds of a run of `rounds`, increasing, including 0 and the last round.
    pub fn rounds(&self, rounds: u64) -> Vec<u64> {
        let mut out: Vec<u64> = match self {
            Grid::List(list) => list.iter().copied().filter(|t| *t <= rounds).collect(),
            Grid::Table(GridTable { every: Some(k), .. }) => (0..=rounds / k).map(|i| i * k).collect(),
            Grid::Table(GridTable { points, spacing, .. }) => {
                let n = points.unwrap_or(500).min(rounds);
                match spacing.unwrap_or_default() {
                    Spacing::Even => (0..=n).map(|i| (u128::from(i) * u128::from(rounds) / u128::from(n.max(1))) as u64).collect(),
                    Spacing::Log => (0..=n).map(|i| (rounds as f64).powf(i as f64 / n.max(1) as f64).round() as u64).collect(),
                }
            }
        };
        out.extend([0, rounds]);
        out.sort_unstable();
        out.dedup();
        out
    }

    pub(in crate::config) fn check(&self, rounds: u64) -> Result<()> {
        let t = match self {
            Grid::Table(table) => table,
            Grid::List(list) => {
                let mut seen = HashSet::new();
                let late = list.iter().position(|t| *t > rounds);
                let twice = list.iter().position(|t| !seen.insert(*t));
                let Some(i) = late.or(twice) else { return Ok(()) };
                let what = match late {
                    Some(_) => format!("the round {} of a run of {rounds}", list[i]),
                    None => format!("the round {} is given twice", list[i]),
                };
                return Err(Error::new(format!("record[{i}]"), what, format!("different rounds, at most rounds = {rounds}")));
            }
        };
        require(t.every.is_none_or(|k| k >= 1), "record.every", t.every.unwrap_or(0), "at least 1")?;
        require(t.points.is_none_or(|n| n >= 1), "record.points", t.points.unwrap_or(0), "at least 1")?;
        if t.every.is_some() && t.points.is_some() {
            return Err(Error::new("record", "both every and points", "every or points"));
        }
        if t.every.is_some() && t.spacing.is_some() {
            return Err(Error::new("record.spacing", "a spacing of every so many rounds", "points = K beside spacing, or every alone"));
        }
        let recorded = t.every.map_or(t.points.unwrap_or(500).min(rounds), |k| rounds / k);
        let what = format!("{recorded} recorded rounds");
        require(recorded <= MAX_RECORDED, "record", what, &format!("at most {MAX_RECORDED}: every = {}", rounds / MAX_RECORDED + 1))
    }
}

/// Targets: a run stops at the first recorded round that reaches one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Stop {
    /// The largest `||theta - theta*||^2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub mse: Option<f64>,
    /// The largest `||mean gbar(theta)||`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub residual: Option<f64>,
    /// The largest `||mean gbar(theta)||`, as a multiple of its first value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub relative_residual: Option<f64>,
    /// The largest `f(theta) - f(theta*)`; for problems with losses.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub gap: Option<f64>,
}

impl Stop {
    /// These targets as a session's criteria, for a run of `rounds`.
    pub fn until(&self, rounds: u64) -> StoppingCriteria {
        let mut until = StoppingCriteria::rounds(rounds);
        (until.mse, until.residual, until.relative_residual, until.gap) = (self.mse, self.residual, self.relative_residual, self.gap);
        until
    }

    /// Whether there is no target.
    pub fn is_never(&self) -> bool {
        *self == Stop::default()
    }
}
