//! Observers of runs.

use std::sync::Arc;

use fedsa::error::Result;

use super::plan::Plan;
use super::results::{Recorded, SeedResult};

/// The stages of an experiment.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Stage<'a> {
    /// Its problems are built.
    Building,
    /// Everything is checked, and nothing is written yet.
    Planned(&'a Arc<Plan>),
    /// Its runs begin; from here on files are written, if it has a folder.
    Running,
    /// Its runs ended or were interrupted.
    Ended,
    /// Its results are compared with theory, and the figure is drawn.
    Comparing,
}

/// Computations one after the other, before and after runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Computed {
    /// `theta*` of the problems, while they are built.
    Roots,
    /// Predictions for the methods, while results are compared with them.
    Predictions,
    /// The value of the policy, after an evaluation.
    PolicyValue,
}

impl Computed {
    /// The computation in words: `computing roots`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Roots => "computing roots",
            Self::Predictions => "computing predictions",
            Self::PolicyValue => "estimating the policy's value",
        }
    }
}

/// Callbacks for the progress of a plan's runs. Several threads call them, except [`RunObserver::stage`].
pub trait RunObserver: Sync {
    /// The next stage begins. Called by the thread that runs the experiment.
    fn stage(&self, _stage: Stage<'_>) {}
    /// The k-th of about n roots, predictions or values is next; k begins with 1. Results of an earlier run do not count.
    fn computing(&self, _what: Computed, _k: usize, _n: usize) {}
    /// Agents completed `steps` further local steps.
    fn advanced(&self, _steps: f64) {}
    /// An earlier run had completed `steps` local steps.
    fn found(&self, _steps: f64) {}
    /// A seed of a cell recorded a round.
    fn recorded(&self, _cell: usize, _seed: u64, _row: &Recorded) {}
    /// A seed of a cell has ended.
    fn ended(&self, _cell: usize, _result: &SeedResult) {}
    /// Something failed, but the run continues without it.
    fn warned(&self, _what: &str) {}
    /// Metrics of the caller in addition to fedsa's.
    fn own_metrics(&self) -> Option<&dyn OwnMetrics> {
        None
    }
}

/// Metrics of the caller: functions of the output at recorded rounds.
pub trait OwnMetrics: Sync {
    /// Their names, none of them of a column of traces. Without names only iterates are kept.
    fn names(&self) -> Arc<[String]>;
    /// Their values at a recorded round of a seed of a cell, in the order of the names. Called once for each recorded round, also of an
    /// earlier run that is continued.
    ///
    /// # Errors
    /// When a metric fails, which ends the run.
    fn measure(&self, cell: usize, seed: u64, round: u64, theta: &[f64]) -> Result<Vec<f64>>;
    /// Whether the results keep the iterates.
    fn keeps_iterates(&self) -> bool;
}

/// An observer that does nothing.
pub struct Unobserved;

impl RunObserver for Unobserved {}
