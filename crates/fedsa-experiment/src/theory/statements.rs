//! Statements of the sources' theorems about a method, and the exact values.

use fedsa::error::Error;
use fedsa_theory::bounds::CorollaryChoice;
use fedsa_theory::predict::Statement;

use super::Allowance;
use super::problem::ProblemTheory;
use super::reason::KnownOrReason;
use crate::Predictor;
use crate::plan::ResolvedStart;

/// Statements of theorems about a method.
#[derive(Debug, Clone)]
pub struct Theorems {
    /// The rounds after which they are evaluated: the file's number.
    pub rounds: u64,
    /// The theorems, each with its conditions.
    pub statements: KnownOrReason<Vec<Statement>>,
    /// The settings that corollaries choose for the target; none if they do not apply.
    pub choices: Vec<CorollaryChoice>,
}

pub(super) fn of_cell(
    predictor: &Predictor,
    cell: usize,
    problem: &ProblemTheory,
    target: Option<f64>,
    allowance: &mut Allowance,
) -> Theorems {
    let planned = &predictor.plan().cells[cell];
    let start = match &planned.start {
        ResolvedStart::Fixed(theta_0) => Ok(theta_0),
        ResolvedStart::Normal => Err(Error::new("", "the start is random", "")),
    };
    let tau = problem.mixing_time().ok_or_else(|| Error::new("", "the mixing time of the samples is not known", ""));
    let of = predictor.forecast(cell);
    let statements = allowance.compute("the theorems of the papers", 0.5, || of.statements(start.clone()?, planned.run.rounds, tau?));
    let corollaries = |target: f64| {
        let chosen = || of.corollaries(start.clone()?, target);
        allowance.compute("the corollaries of the papers", 0.5, chosen).unwrap_or_default()
    };
    Theorems { rounds: planned.run.rounds, statements, choices: target.map_or(Vec::new(), corollaries) }
}
