//! Linear operators: problems whose mean operators are affine, `gbar_c(theta) = b_c - A_c theta`.
//!
//! Methods that solve `sum_c p_c A_c theta = sum_c p_c b_c` at the server ask agents for products `A_c q`, or for `A_c` and `b_c`.

use crate::linalg;
use crate::problem::systems::Systems;

/// The agents' `Abar_c`, d x d, and `bbar_c`, d numbers. All are means over the agent's whole law.
pub trait LinearOperators: Send + Sync {
    /// `out = Abar_c q`, d numbers.
    fn product(&self, c: usize, q: &[f64], out: &mut [f64]);
    /// `out = bbar_c`, d numbers.
    fn offset(&self, c: usize, out: &mut [f64]);
    /// Calls `see` with row, column and value of the entries of `Abar_c` that are not 0, row by row.
    fn entries(&self, c: usize, see: &mut dyn FnMut(usize, usize, f64));
}

impl LinearOperators for Systems {
    fn product(&self, c: usize, q: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&linalg::mat_vec(&self.of(c).a, q));
    }
    fn offset(&self, c: usize, out: &mut [f64]) {
        out.copy_from_slice(&self.of(c).b);
    }
    fn entries(&self, c: usize, see: &mut dyn FnMut(usize, usize, f64)) {
        let a = &self.of(c).a;
        for i in 0..a.nrows() {
            for j in 0..a.ncols() {
                if a[(i, j)] != 0.0 {
                    see(i, j, a[(i, j)]);
                }
            }
        }
    }
}
