//! Who watches runs.

use std::sync::Arc;

use super::plan::Plan;
use super::results::{Recorded, SeedResult};

/// What an experiment does next.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Stage<'a> {
    /// Its problems are built.
    Building,
    /// Everything has been checked, and nothing is written yet.
    Planned(&'a Arc<Plan>),
    /// Its runs begin; from here on files are written, where it has a folder.
    Running,
    /// Its runs have ended, or were interrupted.
    Ended,
    /// Its results are compared with theory, and the figure is drawn.
    Comparing,
}

/// What is computed one after the other before runs and after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computed {
    /// `theta*` of the problems, while the experiment is built.
    Roots,
    /// What theory predicts of the methods, while results are compared with it.
    Predictions,
    /// The value of the policy, after an evaluation.
    PolicyValue,
}

impl Computed {
    /// In words: `computing roots`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Roots => "computing roots",
            Self::Predictions => "computing predictions",
            Self::PolicyValue => "estimating the policy's value",
        }
    }
}

/// Callbacks for the progress of a plan's runs. Several threads call them, but for [`RunObserver::stage`].
pub trait RunObserver: Sync {
    /// The next stage begins. The thread calls it that runs the experiment.
    fn stage(&self, _stage: Stage<'_>) {}
    /// The k-th of about n roots, predictions or values is computed next; k begins with 1. What an earlier run has kept is not counted.
    fn computing(&self, _what: Computed, _k: usize, _n: usize) {}
    /// Agents have done `steps` further local steps.
    fn advanced(&self, _steps: f64) {}
    /// An earlier run had already done `steps` local steps.
    fn found(&self, _steps: f64) {}
    /// A seed of a cell recorded a round.
    fn recorded(&self, _cell: usize, _seed: u64, _row: &Recorded) {}
    /// A seed of a cell has ended.
    fn ended(&self, _cell: usize, _result: &SeedResult) {}
    /// Something failed, but the run continues without it.
    fn warned(&self, _what: &str) {}
}

/// An observer that does nothing.
pub struct Unobserved;

impl RunObserver for Unobserved {}
