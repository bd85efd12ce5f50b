//! The trait of kinds of checks.

use fedsa::error::Result;

use super::facts::{Context, PlanFacts};
use super::verdict::Measured;
use crate::config::Check;

/// How one kind of check is measured and stated.
pub trait CheckKind: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Checks that a cell at a point can answer a check.
    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()>;
    /// The measured values, one per point or group of points of the check.
    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>>;
    /// The statement in words.
    fn text(&self, check: &Check) -> String;
}
