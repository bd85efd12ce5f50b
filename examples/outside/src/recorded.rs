//! A problem on data that the program has in memory: the value of each state of a walk, by temporal differences.
//!
//! `g_c(theta, z) = (r_z + gamma theta_{s'_z} - theta_{s_z}) e_{s_z}`, z uniform on the moves of the agent's walk.
//!
//! The settings are keys of a file and the walks. Only the keys are written to files, and only they are in the hash that nodes compare:
//! every program that continues a run, and every node, needs the same walks.

use std::sync::Arc;

use fedsa::error::require;
use fedsa::prelude::*;
use fedsa::problem::{Facts, Sampled, equal_weights};
use fedsa::random::Stream;
use fedsa::registry::Kind;
use fedsa_problems::memory::MemoryEstimate;
use fedsa_problems::{Files, ProblemSettings};
use serde::{Deserialize, Serialize};

/// A move of a walk: from a state, with a reward, to a state.
pub type Move = (usize, f64, usize);

/// The keys of `[problem]`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Keys {
    /// gamma.
    pub gamma: f64,
}

/// The keys and the walks.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
struct Recorded {
    keys: Keys,
    #[serde(skip)]
    walks: Arc<Vec<Vec<Move>>>,
}

/// The kind of problems on these walks, one for each agent.
pub fn kind(walks: Vec<Vec<Move>>) -> Kind<dyn ProblemSettings> {
    let walks = Arc::new(walks);
    Kind::<dyn ProblemSettings>::new("recorded", "values of states from walks in memory", move |keys: Keys| {
        require((0.0..1.0).contains(&keys.gamma), "gamma", keys.gamma, "in [0, 1)")?;
        Ok(Box::new(Recorded { keys, walks: Arc::clone(&walks) }))
    })
}

impl ProblemSettings for Recorded {
    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        let dim = 1 + self.walks.iter().flatten().map(|(from, _, to)| *from.max(to)).max().unwrap_or(0);
        let (weights, recorded) = (equal_weights(self.walks.len()), self.clone());
        Ok(Arc::new(Sampled::new(Values { recorded, dim, weights }, sampling, isa)?))
    }

    fn memory(&self, _: &dyn Files, _: Sampling, _: usize) -> Result<MemoryEstimate> {
        Ok(MemoryEstimate { peak: 0.0, kept: 0.0, sizes: format!("{} walks that are in memory", self.walks.len()) })
    }
}

/// The values of the states on the walks.
struct Values {
    recorded: Recorded,
    dim: usize,
    weights: Vec<f64>,
}

impl Values {
    /// The state that a move leaves, and its temporal difference.
    fn difference(&self, (from, reward, to): Move, theta: &[f64]) -> (usize, f64) {
        (from, reward + self.recorded.keys.gamma * theta[to] - theta[from])
    }
}

impl Facts for Values {}

impl Problem for Values {
    type Obs = usize;
    fn dim(&self) -> usize {
        self.dim
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn sample(&self, c: usize, _: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = (stream.uniform() * self.recorded.walks[c].len() as f64) as usize;
    }
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let (from, difference) = self.difference(self.recorded.walks[c][*z], theta);
        out.fill(0.0);
        out[from] = difference;
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        let walk = &self.recorded.walks[c];
        out.fill(0.0);
        for at in walk {
            let (from, difference) = self.difference(*at, theta);
            out[from] += difference / walk.len() as f64;
        }
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}
