//! The theorems of the sources as functions of a problem, with their constants and assumptions.
//!
//! A [`Bound`] is a list of named terms whose sum bounds an error, and of assumptions, each with the numbers that decide it. A
//! [`CorollaryChoice`] holds the settings with which a corollary reaches a target mean-square error. Where a source prints a wrong
//! statement, the function of that name is the corrected one. The tests contain the printed one (suffix `_printed`) with instances on
//! which it fails, and the statements that `theory` does not show. Statements with unknown constants are [`BoundShape`]s, to be fitted.
//!
//! | statement | function | deviation |
//! | --- | --- | --- |
//! | \[S\] A 2 | [`Contraction`] | A 3 implies it with a/2 only |
//! | \[S\] Theorems 4.1, A.5, Lemma A.4 | [`fedlsa::theorem_a5`]; the lemma: tests of [`fedlsa`] | third term |
//! | \[S\] Lemma C.3, eq. 16 | tests of [`fedlsa`] | a factor `||Abar_c||^2 / 2` |
//! | \[S\] Corollaries 4.4, 4.5 (A.6, A.7) | [`fedlsa::corollary_4_4`], [`fedlsa::corollary_4_5`] | constants |
//! | \[S\] Theorems 5.1, B.2 | [`random_talk::theorem_5_1`] | B.2: `sigma_omega` |
//! | \[S\] Corollary 5.2 (B.3) | [`random_talk::corollary_5_2`] | constants of B.3 |
//! | \[S\] Theorems 5.3, B.5 | [`scafflsa::theorem_5_3`] | the limit of H; B.5: `sigma_omega` |
//! | \[S\] Corollary 5.4 (B.6) | [`scafflsa::corollary_5_4`] | the factor of `Delta_heter` |
//! | \[S\] Lemma 3.1, Corollaries 4.6, 5.5 | [`td`] | L |
//! | \[F\] Theorems 1 and 2, Corollary 1 | [`fedhsa`]; the corollary: its tests | a shape |
//! | \[T\] Theorems 4.2 to 4.4, Corollary 4.1 | [`fedtd`]; the corollary: its tests | shapes, and the constants of the proofs |
//! | \[T\] Theorems 5.3 and 5.4 | [`delayed`] | constants of the proofs |
//!
//! Bounds are loose. This table has the medians of bound over exact value, each on 200 random problems with different agents, noise in
//! A and some nearly singular agents. The ratio of a corollary is its target over the mean-square error that its settings reach. The
//! tests print the smallest and largest ratios too.
//!
//! | statement | median | statement | median |
//! | --- | --- | --- | --- |
//! | \[S\] Theorem A.5 (root of the mean square) | 2.8 | Corollary 4.4 | 46 |
//! | with the bias (root of the mean square) | 2.3 | Corollary 4.5 | 170 |
//! | Lemma A.4 | 24 | Corollary 5.2 | 13 |
//! | Lemma C.3 | 20 | Corollary 5.4 | 1100 |
//! | Theorem 5.1 | 2.7 | Corollary 4.3 (root of the mean square) | 53 |
//! | Theorem 5.3 while the start is forgotten | 99 | Corollary 4.6 | 3e5 |
//! | Theorem 5.3, settled | 230 | Corollary 5.5 | 2e6 |
//! | Lemma 3.1: `C_A`, `Sigma_A`, L, 1/a | 4.7, 43, 6.5, 3.2 | Lemma 3.1: `sigma_eps`, `v_heter` | 1400, 55 |
//! | \[T\] Theorem 4.2 | 250 | \[T\] Theorem 5.3 | 3e5 |
//! | \[T\] Theorem 4.3 | 1.6e4 | \[T\] Theorem 5.4 | 20 |
//! | \[T\] Theorem 4.4 | 6.5 | \[T\] Corollary 4.1 | 3e7 |
//! | \[T\] Theorem 4.2 along one agent's chain | 17 | \[T\] Theorem 4.2 with a quantiser | 250 |
//!
//! The statements of \[F\] have unknown constants. Exact floors and rates have the slopes of their shapes: in alpha, N and H with
//! independent samples, in alpha and H along chains.
//!
//! Settings chosen by exact theory need fewer rounds. This table has the medians of the corollaries' rounds over the rounds that
//! [`tune`](crate::tune) counts by exact theory, on 40 of the problems with the fewest moments. A test in `tune::search` prints the
//! smallest and largest ratios too
//! (`the_exact_theory_needs_this_many_times_fewer_rounds_than_the_corollaries`). "Best" are the settings of [`tune::search()`](crate::tune::search())
//! with at most as many rounds and local steps, on problems where the corollary has at most 60 local steps.
//!
//! | corollary | exact rounds of its own settings | exact rounds of the best settings |
//! | --- | --- | --- |
//! | \[S\] 4.5, FedLSA | 3.6 | 14 |
//! | \[S\] 5.4, SCAFFLSA | 20 | 1400 |
//!
//! In bounds of \[S\], N counts agents of equal weight. With weights `p_c` it is `1 / max p_c`, because the variance of a mean is
//! `sum p_c^2 x_c <= max p_c sum p_c x_c`.

mod contraction;
pub mod delayed;
pub mod fedhsa;
pub mod fedlsa;
pub mod fedtd;
pub mod random_talk;
pub mod scafflsa;
pub mod td;
#[cfg(test)]
pub(crate) mod testing;

pub use contraction::Contraction;

use serde::Serialize;

use fedsa::error::{Error, Result, require};
use fedsa::problem::systems::Systems;

/// A part of a bound.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    /// The cause of the part.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// A condition of a statement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Assumption {
    /// The assumption's name in its source, or the condition as a formula.
    pub name: &'static str,
    /// Whether it holds.
    pub holds: bool,
    /// The numbers that decide it.
    pub text: String,
}

impl Assumption {
    /// `what <= limit`.
    fn at_most(name: &'static str, what: &str, value: f64, limit: f64) -> Self {
        // Settings that a corollary puts at the limit are within it up to rounding.
        let holds = value <= limit * (1.0 + 1e-12);
        let against = if holds { "at most" } else { "above" };
        Self { name, holds, text: format!("{what} = {value:.4e}, {against} {limit:.4e}") }
    }

    /// `what > 0`.
    fn positive(name: &'static str, what: &str, value: f64) -> Self {
        let holds = value > 0.0;
        let against = if holds { "above" } else { "not above" };
        Self { name, holds, text: format!("{what} = {value:.4e}, {against} 0") }
    }
}

/// A bound of an error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// The statement in its source.
    pub statement: &'static str,
    /// The quantity that is bounded.
    pub of: &'static str,
    /// The parts, whose sum is the bound.
    pub terms: Vec<Term>,
    /// The conditions of the statement.
    pub assumptions: Vec<Assumption>,
}

impl Bound {
    fn new(statement: &'static str, of: &'static str, terms: &[(&'static str, f64)], assumptions: Vec<Assumption>) -> Self {
        let terms = terms.iter().map(|(name, value)| Term { name, value: *value }).collect();
        Self { statement, of, terms, assumptions }
    }

    /// The sum of the terms. It bounds the error only if all assumptions hold.
    pub fn value(&self) -> f64 {
        self.terms.iter().map(|term| term.value).sum()
    }
}

/// A bound `C_rate exp(-rate t) + sum C_k floor_k` with unknown factors C. It predicts how its parts change with the settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BoundShape {
    /// The statement in its source.
    pub statement: &'static str,
    /// The exponent per round up to a factor: the initial error falls as `exp(-rate t)`.
    pub rate: f64,
    /// The parts of the floor up to a factor each; the first is the leading one.
    pub floor: Vec<Term>,
    /// The conditions of the statement. Limits with unknown factors are left out.
    pub assumptions: Vec<Assumption>,
}

/// How often agents communicate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// After every H local steps.
    Fixed(u64),
    /// After each local step with this probability.
    Random(f64),
}

/// The settings that a corollary chooses for a target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CorollaryChoice {
    /// The statement in its source.
    pub statement: &'static str,
    /// eps^2, the mean-square error to reach.
    pub target: f64,
    /// eta.
    pub step_size: f64,
    /// H or p.
    pub period: Period,
    /// The number of rounds; expected under random talk.
    pub rounds: f64,
    /// The samples of each agent, as many as its local steps.
    pub samples: f64,
    /// The conditions of the statement.
    pub assumptions: Vec<Assumption>,
}

impl CorollaryChoice {
    /// T rounds of H steps.
    fn fixed(
        statement: &'static str,
        target: f64,
        step_size: f64,
        local_steps: u64,
        rounds: f64,
        assumptions: Vec<Assumption>,
    ) -> Result<Self> {
        let samples = rounds * local_steps as f64;
        Self { statement, target, step_size, period: Period::Fixed(local_steps), rounds, samples, assumptions }.countable()
    }

    /// Rejects numbers that no run can have.
    fn countable(self) -> Result<Self> {
        const MOST: f64 = 9e15;
        let numbers_are_fine = self.step_size > 0.0 && self.step_size.is_finite() && self.samples <= MOST;
        require(numbers_are_fine, "target", self.target, "a mean-square error that less than 9e15 samples of an agent reach")?;
        Ok(self)
    }
}

/// `1 / max p_c`: N for agents of equal weight.
pub(crate) fn effective_agents(systems: &Systems) -> f64 {
    1.0 / systems.weights.iter().copied().fold(0.0, f64::max)
}

/// The fewest rounds T with `factor^T start <= end`, for a factor `1 - shrink` in [0, 1); 0 if start is small enough.
fn rounds_until(start: f64, end: f64, shrink: f64) -> f64 {
    if start <= end { 0.0 } else { ((start / end).ln() / -(-shrink).ln_1p()).ceil().max(1.0) }
}

/// Rejects a target that is not a positive number.
fn check_target(target: f64) -> Result<()> {
    require(target > 0.0 && target.is_finite(), "target", target, "a positive mean-square error")
}

/// The error for a constant of a bound that the problem does not have.
fn unknown_constant(what: &str, why: &str) -> Error {
    Error::not_known("", format!("{what} is not known: {why}"), "a linear problem whose constants are known")
}
