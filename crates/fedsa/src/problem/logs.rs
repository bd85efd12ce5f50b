//! Logged transitions `(s, r, s', done)`, replayed in order (Markov) or drawn at random (i.i.d.).
//!
//! The root is least-squares temporal differences (LSTD) on the pooled data.
//! States are clipped to the features' ranges; i.i.d. draws are with replacement;
//! Markov replay wraps at the end; `p_c = N_c / sum N_c`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::features::{FeatureMap, FeatureSpec, Ranges, ranges_of};
use super::log::Log;
use super::td::{Chain, Features, Td, Transitions};
use super::{Field, Files, Settings, field};
use crate::error::{BadInput, Result, require};
use crate::kernel::Isa;
use crate::kernel::td::Transition;
use crate::sampling::Sampling;

/// The `logs` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Logs {
    /// Files, globs, a folder, or the name of a data set; one agent a file.
    pub path: Sources,
    /// The feature map.
    #[serde(deserialize_with = "crate::registry::table")]
    pub features: FeatureSpec,
    /// The range of state columns, `{ s_0 = [low, high] }`; from the data where absent.
    #[serde(default, skip_serializing_if = "Ranges::is_empty")]
    pub ranges: Ranges,
    /// The discount factor.
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub gamma: f64,
    /// Refuse agents whose own system is singular even though the pooled one is
    /// not; usually harmless, since an agent need not visit every feature.
    #[serde(default)]
    pub require_regular_agents: bool,
}

/// One source or several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged, expecting = "a path, a glob or the name of a data set in quotes, or a list of them")]
pub enum Sources {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Sources {
    /// As a list.
    pub fn list(&self) -> Vec<String> {
        match self {
            Sources::One(path) => vec![path.clone()],
            Sources::Many(paths) => paths.clone(),
        }
    }
}

impl Logs {
    /// The logs and the feature map that these settings come to.
    ///
    /// # Errors
    /// When a log cannot be read, a range is bad, or gamma is not in [0, 1).
    pub fn read(&self, files: &dyn Files) -> Result<(Vec<Log>, FeatureMap)> {
        require((0.0..1.0).contains(&self.gamma), "gamma", self.gamma, "in [0, 1)")?;
        let logs = files.logs(&self.path.list())?;
        let columns = &logs.first().ok_or_else(|| BadInput::new("path", "no logs", "one file per agent"))?.columns;
        let ranges = match self.features {
            FeatureSpec::Identity { .. } => self.ranges.clone(),
            _ => ranges_of(&logs, &self.ranges)?,
        };
        let map = FeatureMap::new(&self.features, columns, &ranges).map_err(|e| if e.key.is_empty() { e.inside("features") } else { e })?;
        Ok((logs, map))
    }
}

/// One agent's transitions as rows of features: `phi(s_i)`, then `phi(s'_i)`.
pub fn transitions(log: &Log, map: &FeatureMap, gamma: f64) -> Transitions {
    let (n, d) = (log.len(), map.len());
    let mut values = vec![0.0; 2 * n * d];
    let (phi, next) = values.split_at_mut(n * d);
    for i in 0..n {
        map.eval(log.state(i), &mut phi[i * d..(i + 1) * d]);
        map.eval(log.next_state(i), &mut next[i * d..(i + 1) * d]);
    }
    let features = Arc::new(Features::new(d, &values));
    let next = |i: usize| if log.done[i] { features.zero() } else { (n + i) as u32 };
    let transitions = (0..n).map(|i| Transition { phi: i as u32, next: next(i), reward: log.rewards[i] }).collect();
    Transitions { gamma, transitions, mass: Vec::new(), chain: Chain::Replay, features }
}

impl Settings for Logs {
    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        use rayon::prelude::*;
        let (logs, map) = self.read(files)?;
        let total: usize = logs.iter().map(Log::len).sum();
        let kinds: Vec<Transitions> = logs.par_iter().map(|log| transitions(log, &map, self.gamma)).collect();
        let weights = logs.iter().map(|log| log.len() as f64 / total as f64).collect();
        let td = Td::new(kinds, (0..logs.len() as u32).collect(), weights, sampling)?;
        field(td, sampling, isa, !self.require_regular_agents)
    }
}
