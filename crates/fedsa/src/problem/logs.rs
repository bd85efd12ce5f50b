//! Logged transitions `(s, r, s', done)`, replayed in order (Markov) or drawn at random (i.i.d.).
//!
//! The root is least-squares temporal differences (LSTD) on the pooled data; with eligibility traces it is that of
//! LSTD(lambda) ([`mod@super::traces`]).
//! States are clipped to the features' ranges. I.i.d. sampling draws with replacement.
//! Markov sampling replays a log in order, and starts again at its end. `p_c = N_c / sum N_c`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::features::{FeatureMap, FeatureSpec, Ranges, ranges_of};
use super::holdout;
use super::log::Log;
use super::memory::{self, MemoryEstimate, Moves, TableSizes, check_transitions};
use super::source::{Inputs, whole};
use super::td::{Features, Td, Trajectory, Transitions};
use super::traces::{self, Traces};
use super::{Field, Files, ProblemSettings, field};
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
    /// The decay lambda of eligibility traces, in [0, 1]; it moves the root. 0 is TD(0).
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1)))]
    pub lambda: f64,
    /// Use importance ratios where logs have them.
    #[serde(default = "yes")]
    pub ratios: bool,
    /// Refuse agents whose own system is singular even though the pooled one is
    /// not; usually harmless, since an agent need not visit every feature.
    #[serde(default)]
    pub require_regular_agents: bool,
    /// The share of each agent's episodes that are held out of the data, drawn at random; 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0), extend("exclusiveMaximum" = 1)))]
    pub holdout: f64,
    /// The seed of that draw.
    #[serde(default, skip_serializing_if = "is_default")]
    pub holdout_seed: u64,
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

fn is_default(x: &u64) -> bool {
    *x == 0
}

fn yes() -> bool {
    true
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
    /// When a log cannot be read, a range is bad, gamma is not in [0, 1), or lambda not in [0, 1].
    pub fn read(&self, files: &dyn Files) -> Result<(Vec<Log>, FeatureMap)> {
        require((0.0..1.0).contains(&self.gamma), "gamma", self.gamma, "in [0, 1)")?;
        require((0.0..=1.0).contains(&self.lambda), "lambda", self.lambda, "in [0, 1]")?;
        let sources = files.logs(&self.path.list(), Inputs::States)?;
        let (logs, _) = self.split(sources.iter().map(|source| whole(&**source)).collect::<Result<_>>()?)?;
        let map = self.map(&logs)?;
        Ok((logs, map))
    }

    /// The logs of the data, and those that are held out, which are none unless `holdout` is set.
    ///
    /// # Errors
    /// As [`holdout::split`].
    pub fn split(&self, logs: Vec<Log>) -> Result<(Vec<Log>, Vec<Log>)> {
        if self.holdout == 0.0 {
            return Ok((logs, Vec::new()));
        }
        holdout::split(&logs, self.holdout, self.holdout_seed)
    }

    /// The feature map on these logs.
    ///
    /// # Errors
    /// When there are no logs, or a range is bad.
    pub fn map(&self, logs: &[Log]) -> Result<FeatureMap> {
        let columns = &logs.first().ok_or_else(|| BadInput::new("path", "no logs", "one file per agent"))?.columns;
        let ranges = match self.features {
            FeatureSpec::Identity { .. } => self.ranges.clone(),
            _ => ranges_of(logs, &self.ranges)?,
        };
        FeatureMap::new(&self.features, columns, &ranges).map_err(|e| if e.key.is_empty() { e.inside("features") } else { e })
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
    Transitions { gamma, transitions, mass: Vec::new(), chain: Trajectory::Replay, features }
}

/// The most features among which dependent ones are looked for.
const MOST_EXPLAINED: usize = 300;

/// An error of a linear system, with the features that depend on others, if there are some.
fn explained(e: BadInput, logs: &[Log], map: &FeatureMap) -> BadInput {
    if !e.key.is_empty() || map.len() > MOST_EXPLAINED {
        return e;
    }
    let dependent = dependent(logs, map);
    let names = map.names();
    let list = |which: &[usize]| {
        const SHOWN: usize = 5;
        let shown = which.iter().take(SHOWN).map(|i| format!("`{}`", names[*i])).collect::<Vec<_>>().join(", ");
        if which.len() > SHOWN { format!("{shown} and {} more", which.len() - SHOWN) } else { shown }
    };
    let mut help = Vec::new();
    if !dependent.zero.is_empty() {
        help.push(format!("these features are 0 in every transition: {}", list(&dependent.zero)));
    }
    if !dependent.others.is_empty() {
        help.push(format!("these are linear combinations of the features before them, on this data: {}", list(&dependent.others)));
    }
    if help.is_empty() {
        return e;
    }
    help.push("take fewer features, or others".into());
    BadInput { help: help.join("; "), ..e }
}

/// Features that add nothing to those before them.
struct Dependent {
    /// Zero in every state.
    zero: Vec<usize>,
    /// Linear combinations of others.
    others: Vec<usize>,
}

/// The features of the pooled data that depend on those before them: the pivots of a
/// Cholesky factorisation of `sum phi phi^T` that vanish.
fn dependent(logs: &[Log], map: &FeatureMap) -> Dependent {
    const VANISHED: f64 = 1e-10;
    let d = map.len();
    let (mut gram, mut phi) = (vec![0.0; d * d], vec![0.0; d]);
    for log in logs {
        for i in 0..log.len() {
            map.eval(log.state(i), &mut phi);
            for (x, row) in phi.iter().zip(gram.chunks_mut(d)).filter(|(x, _)| **x != 0.0) {
                row.iter_mut().zip(&phi).for_each(|(g, y)| *g += x * y);
            }
        }
    }
    let size: Vec<f64> = (0..d).map(|i| gram[i * d + i]).collect();
    let mut found = Dependent { zero: Vec::new(), others: Vec::new() };
    for j in 0..d {
        let pivot = gram[j * d + j];
        if size[j] == 0.0 {
            found.zero.push(j);
        } else if pivot <= VANISHED * size[j] {
            found.others.push(j);
        } else {
            // What the others have of feature j is taken off them.
            let row = gram[j * d..(j + 1) * d].to_vec();
            for i in j + 1..d {
                let factor = row[i] / pivot;
                gram[i * d..(i + 1) * d].iter_mut().zip(&row).for_each(|(g, r)| *g -= factor * r);
            }
        }
    }
    found
}

impl ProblemSettings for Logs {
    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Box<dyn Field>> {
        use rayon::prelude::*;
        traces::check_sampling(self.lambda, sampling)?;
        let (logs, map) = self.read(files)?;
        for log in &logs {
            check_transitions("path", log.len() as f64)?;
        }
        let total: usize = logs.iter().map(Log::len).sum();
        let kinds: Vec<Transitions> = logs.par_iter().map(|log| transitions(log, &map, self.gamma)).collect();
        let weights = logs.iter().map(|log| log.len() as f64 / total as f64).collect();
        let singular = !self.require_regular_agents;
        let field = if logs.iter().any(|log| traces::are_needed(log, self.lambda, self.ratios)) {
            let traces = Traces::new(kinds, &logs, weights, self.lambda, self.ratios, sampling)?;
            field(traces, sampling, isa, singular)
        } else {
            let td = Td::new(kinds, (0..logs.len() as u32).collect(), weights, sampling)?;
            field(td, sampling, isa, singular)
        };
        field.map_err(|e| explained(e, &logs, &map))
    }
    fn memory(&self, files: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        traces::check_sampling(self.lambda, sampling)?;
        let (logs, map) = self.read(files)?;
        let (k, d, agents) = (map.columns().len() as f64, map.len() as f64, logs.len() as f64);
        let most = logs.iter().map(Log::len).max().unwrap_or(0) as f64;
        let total = logs.iter().map(Log::len).sum::<usize>() as f64;
        let ratios: f64 = logs.iter().filter_map(|log| log.ratio.as_ref()).map(|ratio| 8.0 * ratio.len() as f64).sum();
        // Ratios once more, and where traces start.
        let traces = if self.ratios { ratios } else { 0.0 } + if self.lambda > 0.0 { total } else { 0.0 };
        let sizes = TableSizes {
            agents,
            kinds: agents,
            d,
            rows: 2.0 * total / agents,
            shared: false,
            transitions: total,
            most,
            chain: Moves::Replay,
            // Features before they are laid out, and the transitions once more.
            making: 16.0 * most * d + 16.0 * most,
            source: total * (16.0 * k + 17.0) + ratios,
            solved: self.require_regular_agents,
        };
        let text = format!(
            "{}, {} transitions, d = {} features of {} state columns",
            memory::agents(logs.len()),
            total,
            map.len(),
            map.columns().len()
        );
        let (peak, kept) = sizes.memory(sampling, threads);
        Ok(MemoryEstimate::new((peak + traces, kept + traces), text))
    }
}
