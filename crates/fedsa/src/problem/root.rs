//! Roots `theta*` of mean operators, and where they come from.

/// Where a root comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootSource {
    /// A linear solve of the mean system.
    Linear,
    /// The solution of least norm of a mean system that is singular.
    LeastNorm {
        /// The effective rank of the mean system ([`crate::linalg::LeastNorm::rank`]).
        rank: usize,
    },
    /// Newton's method with Jacobians that the problem knows.
    Newton,
    /// Newton's method with Jacobians by central differences of the mean operators.
    Differences,
    /// Given from outside: a checkpoint.
    Given,
}

/// A root of the mean operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Root {
    /// `theta*`, d numbers.
    pub theta: Vec<f64>,
    /// Where it comes from.
    pub source: RootSource,
}

/// The most components of theta: a step factorises a d x d matrix.
pub const MAX_DIM: usize = 2000;
