//! The interface of a closure's round.

use faer::{Mat, MatRef};

/// The closure's round of a method: the map of all `M_c`, linear with the constants in the last entry of each `M_c(i)`.
pub(super) trait Round: Send + Sync {
    /// The number D of components of the state, of which the last is 1 and the first d are u.
    fn side(&self) -> usize;

    /// The stationary law of each agent's (or class's) chain.
    fn laws(&self) -> Vec<&[f64]>;

    /// The approximate multiplications of a round, one per nanosecond.
    fn work(&self) -> f64;

    /// One round. Column i of `now[c]` is `M_c(i)`, packed.
    fn round(&self, now: &[MatRef<'_, f64>]) -> Vec<Mat<f64>>;
}
