//! Predictions as data, for a run that is interrupted while its results are compared with theory.

use std::collections::BTreeMap;

use fedsa_theory::Accuracy;
use fedsa_theory::exact_mse::MeanSquare;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The number of this layout. It changes with what is kept.
const LAYOUT: u32 = 1;

/// Predictions of a plan's cells that were computed. What is not known is not kept: to find that out again takes less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptPredictions {
    layout: u32,
    /// The version of the program that computed them: another one may compute other bits.
    version: String,
    cells: BTreeMap<String, KeptCell>,
}

/// The predictions of one cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptCell {
    /// By quantity: the number, and how it is known.
    pub numbers: BTreeMap<String, (f64, Option<KeptAccuracy>)>,
    pub curve: Option<Vec<MeanSquare>>,
    pub curve_accuracy: Option<KeptAccuracy>,
}

/// [`Accuracy`] in a form that names no variants, as checkpoints need it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum KeptAccuracy {
    Exact,
    Closure(f64),
    LeadingOrder,
}

impl From<Accuracy> for KeptAccuracy {
    fn from(accuracy: Accuracy) -> Self {
        match accuracy {
            Accuracy::Exact => Self::Exact,
            Accuracy::Closure { eps_squared } => Self::Closure(eps_squared),
            Accuracy::LeadingOrder => Self::LeadingOrder,
        }
    }
}

impl From<KeptAccuracy> for Accuracy {
    fn from(kept: KeptAccuracy) -> Self {
        match kept {
            KeptAccuracy::Exact => Self::Exact,
            KeptAccuracy::Closure(eps_squared) => Self::Closure { eps_squared },
            KeptAccuracy::LeadingOrder => Self::LeadingOrder,
        }
    }
}

impl Default for KeptPredictions {
    fn default() -> Self {
        Self { layout: LAYOUT, version: env!("CARGO_PKG_VERSION").into(), cells: BTreeMap::new() }
    }
}

impl KeptPredictions {
    /// Whether they have this layout and were computed by this version.
    pub fn is_current(&self) -> bool {
        let Self { layout, version, .. } = Self::default();
        (layout, &version) == (self.layout, &self.version)
    }

    /// Those of a cell.
    pub(super) fn of(&self, plan: &Plan, cell: usize) -> Option<&KeptCell> {
        if self.cells.is_empty() { None } else { self.cells.get(&identity(plan, cell)) }
    }

    /// The same, to be changed.
    pub(super) fn entry(&mut self, plan: &Plan, cell: usize) -> &mut KeptCell {
        self.cells.entry(identity(plan, cell)).or_default()
    }
}

/// What the predictions of a cell depend on: its settings, and the rounds that are recorded.
fn identity(plan: &Plan, cell: usize) -> String {
    let planned = &plan.cells[cell];
    let mut hasher = crc32fast::Hasher::new();
    planned.grid.iter().for_each(|round| hasher.update(&round.to_le_bytes()));
    format!("{} rounds {} recorded {:08x}", planned.identity, planned.run.rounds, hasher.finalize())
}
