//! Predictions as data, for runs interrupted during the comparison with theory.

use std::collections::BTreeMap;

use fedsa_theory::Accuracy;
use fedsa_theory::exact_mse::MeanSquare;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The version of the layout.
const LAYOUT: u32 = 1;

/// Computed predictions of a plan's cells. Unknown ones are not stored, because finding that again takes little time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptPredictions {
    layout: u32,
    /// The version of the program that computed them; another version may compute other bits.
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

/// [`Accuracy`] without names of variants, as checkpoints need it.
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
    /// Whether they have this layout and come from this version.
    pub fn is_current(&self) -> bool {
        let Self { layout, version, .. } = Self::default();
        (layout, &version) == (self.layout, &self.version)
    }

    /// The predictions of a cell.
    pub(super) fn of(&self, plan: &Plan, cell: usize) -> Option<&KeptCell> {
        if self.cells.is_empty() { None } else { self.cells.get(&identity(plan, cell)) }
    }

    /// The same, mutable.
    pub(super) fn entry(&mut self, plan: &Plan, cell: usize) -> &mut KeptCell {
        self.cells.entry(identity(plan, cell)).or_default()
    }
}

/// Identifies the settings of a cell and its recorded rounds, on which predictions depend.
fn identity(plan: &Plan, cell: usize) -> String {
    let planned = &plan.cells[cell];
    let mut hasher = crc32fast::Hasher::new();
    planned.grid.iter().for_each(|round| hasher.update(&round.to_le_bytes()));
    format!("{} rounds {} recorded {:08x}", planned.identity, planned.run.rounds, hasher.finalize())
}
