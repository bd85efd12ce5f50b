//! Roots `theta*` of mean operators, and their sources.

/// The source of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootSource {
    /// A linear solve of the mean system.
    Linear,
    /// The solution of least norm of a singular mean system.
    LeastNorm {
        /// The effective rank of the mean system ([`crate::linalg::LeastNorm::rank`]).
        rank: usize,
    },
    /// Newton's method with Jacobians that the problem knows.
    Newton,
    /// Newton's method with Jacobians by central differences of the mean operators.
    Differences,
    /// The problem's own search from several starts: the root is stable, and there may be others.
    Searched {
        /// The number of starts.
        starts: u32,
        /// The number of roots that were found.
        found: u32,
        /// The number of these that are stable.
        stable: u32,
    },
    /// Read from a checkpoint.
    Given,
}

/// A root of the mean operator.
#[derive(Debug, Clone, PartialEq)]
pub struct Root {
    /// `theta*`, d numbers.
    pub theta: Vec<f64>,
    /// Its source.
    pub source: RootSource,
}

/// The largest number of components of theta for Newton's method, whose steps factorise a d x d matrix.
pub const MAX_DIM: usize = 2000;
