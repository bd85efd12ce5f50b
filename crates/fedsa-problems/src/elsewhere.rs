//! A placeholder for a problem whose data stay with the agents of a federation: the server knows its size and settings only.
//!
//! Results of a federation contain it so that they can be read, compared and drawn. It cannot be run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::memory::MemoryEstimate;
use crate::{Files, ProblemSettings};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::kernel::{Isa, Lanes};
use fedsa::problem::Field;
use fedsa::problem::facts::Facts;
use fedsa::problem::root::Root;
use fedsa::problem::systems::Moments;
use fedsa::random::Stream;
use fedsa::sampling::Sampling;
use fedsa::settings::Value;

/// The `elsewhere` problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Elsewhere {
    /// Dimension of the model.
    pub dim: usize,
    /// Agents' weights, with sum 1.
    pub weights: Vec<f64>,
    /// Settings of the agents' problem.
    #[cfg_attr(feature = "schema", schemars(with = "BTreeMap<String, schemars::Schema>"))]
    pub of: BTreeMap<String, Value>,
}

impl Elsewhere {
    /// A placeholder of dimension `dim`, with these agents' weights and the settings `of` the agents' problem.
    pub fn new(dim: usize, weights: Vec<f64>, of: BTreeMap<String, Value>) -> Self {
        Self { dim, weights, of }
    }
}

impl ProblemSettings for Elsewhere {
    fn field(&self, _: &dyn Files, sampling: Sampling, _: Isa) -> Result<Arc<dyn Field>> {
        require((1..=u32::MAX as usize).contains(&self.dim), "dim", self.dim, "at least 1, and below 2^32")?;
        let sum: f64 = self.weights.iter().sum();
        let are_weights = self.weights.iter().all(|p| *p > 0.0) && (sum - 1.0).abs() < 1e-9;
        require(are_weights, "weights", format!("{} numbers that sum to {sum}", self.weights.len()), "positive numbers that sum to 1")?;
        Ok(Arc::new(OutOfReach { dim: self.dim, weights: self.weights.clone(), sampling }))
    }
    fn memory(&self, _: &dyn Files, _: Sampling, _: usize) -> Result<MemoryEstimate> {
        let bytes = 8.0 * (self.dim + self.weights.len()) as f64;
        Ok(MemoryEstimate { peak: bytes, kept: bytes, sizes: "data that are elsewhere".into() })
    }
    fn own_to_each_end(&self) -> &'static [&'static str] {
        &["of", "weights"]
    }
}

/// A field of which only the shape is known. [`Field::failure`] says so.
struct OutOfReach {
    dim: usize,
    weights: Vec<f64>,
    sampling: Sampling,
}

/// The sample operator of such a field; it cannot be evaluated.
struct Nothing;

impl Facts for Nothing {
    fn is_elsewhere(&self) -> bool {
        true
    }
}

/// The reason in error messages.
const WHY: &str = "its data are with the agents of a federation";

impl Field for OutOfReach {
    fn dim(&self) -> usize {
        self.dim
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        0
    }
    fn sampling(&self) -> Sampling {
        self.sampling
    }
    fn start_chain(&self, _: usize, _: &mut Stream, _: &mut [u64]) {}
    fn is_state(&self, _: usize, _: &[u64]) -> bool {
        true
    }
    fn local_phase(&self, _: &mut [Lanes], _: &[f64]) {}
    fn observe(&self, _: &mut [Lanes], _: bool) {}
    fn mean(&self, _: usize, _: &[f64], _: &mut [f64]) -> bool {
        false
    }
    fn has_mean(&self) -> bool {
        false
    }
    fn facts(&self) -> &dyn Facts {
        &Nothing
    }
    fn solution(&self) -> std::result::Result<&Root, &str> {
        Err(WHY)
    }
    fn solve(&self, _: &Cancel) -> Result<()> {
        Ok(())
    }
    fn set_root(&self, _: Vec<f64>) {}
    fn generic(&self) -> Arc<dyn Field> {
        Arc::new(Self { dim: self.dim, weights: self.weights.clone(), sampling: self.sampling })
    }
    fn failure(&self) -> Option<Error> {
        Some(Error::new("problem.kind", format!("this problem cannot be run: {WHY}"), "a problem with data; the results of a federation"))
    }
    fn second_moments(&self, _: usize) -> Option<Arc<Moments>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoFiles;
    use fedsa::sampling::Law;

    #[test]
    fn nothing_is_known_but_the_shape() {
        let made = |dim, weights: &[f64]| {
            Elsewhere::new(dim, weights.to_vec(), BTreeMap::new()).field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::Portable)
        };
        let field = made(3, &[0.25, 0.75]).unwrap();
        assert_eq!((field.dim(), field.agents(), field.weights()), (3, 2, &[0.25, 0.75][..]));
        assert!(field.facts().is_elsewhere() && field.solution().is_err() && field.mean_operator(&[0.0; 3]).is_none());
        assert!(field.failure().unwrap().what.contains("cannot be run"));
        for (dim, weights) in [(0, &[1.0][..]), (3, &[]), (3, &[0.5, 0.6]), (3, &[1.5, -0.5]), (3, &[f64::NAN])] {
            assert!(made(dim, weights).is_err(), "{dim} {weights:?}");
        }
    }
}
