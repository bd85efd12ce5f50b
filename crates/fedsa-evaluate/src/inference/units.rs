//! Columns in units near their sizes, so that squares of their numbers are numbers: powers of two, which round nothing.

use std::borrow::Cow;

use fedsa_problems::rows::dataset::Rows;
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::preparation::transform::moderate;

/// What each column is multiplied by: 1 where its numbers are moderate.
pub(super) struct ColumnUnits {
    factors: Vec<f64>,
}

impl ColumnUnits {
    /// Those of the columns of rows.
    pub fn of(part: &LabelledRows) -> Self {
        Self { factors: part.column_sizes().into_iter().map(moderate).collect() }
    }

    /// What column i is multiplied by.
    pub fn factor(&self, i: usize) -> f64 {
        self.factors[i]
    }

    fn are_one(&self) -> bool {
        self.factors.iter().all(|factor| *factor == 1.0)
    }

    /// The rows in these units; theta is then that of [`ColumnUnits::within`].
    pub fn apply<'a>(&self, part: &'a LabelledRows) -> Cow<'a, LabelledRows> {
        if self.are_one() {
            return Cow::Borrowed(part);
        }
        let mut part = part.clone();
        match &mut part.rows {
            Rows::Dense { d, values } => {
                values.chunks_mut((*d).max(1)).for_each(|row| row.iter_mut().zip(&self.factors).for_each(|(x, factor)| *x *= factor));
            }
            Rows::Sparse { index, value, .. } => value.iter_mut().zip(&*index).for_each(|(x, i)| *x *= self.factors[*i as usize]),
        }
        Cow::Owned(part)
    }

    /// The theta of rows in these units that predicts what `theta` does of the rows as they are; blocks of d numbers.
    pub fn within(&self, theta: &[f64]) -> Vec<f64> {
        theta.iter().zip(self.factors.iter().cycle()).map(|(x, factor)| x / factor).collect()
    }

    /// The theta of the rows as they are.
    pub fn without(&self, theta: &[f64]) -> Vec<f64> {
        theta.iter().zip(self.factors.iter().cycle()).map(|(x, factor)| x * factor).collect()
    }
}
