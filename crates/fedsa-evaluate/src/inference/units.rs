//! Units of columns near their sizes, so that squares of their numbers stay in range. Units are powers of two, which cause no rounding.

use std::borrow::Cow;

use fedsa_problems::rows::dataset::Rows;
use fedsa_problems::rows::preparation::quality::LabelledRows;
use fedsa_problems::rows::preparation::transform::moderate;

/// The factor of each column: 1 if its numbers are moderate.
pub(super) struct ColumnUnits {
    factors: Vec<f64>,
}

impl ColumnUnits {
    /// The units of the columns of these rows.
    pub fn of(part: &LabelledRows) -> Self {
        Self { factors: part.column_sizes().into_iter().map(moderate).collect() }
    }

    /// The units of d columns as they are.
    pub fn ones(d: usize) -> Self {
        Self { factors: vec![1.0; d] }
    }

    /// The factor of column i.
    pub fn factor(&self, i: usize) -> f64 {
        self.factors[i]
    }

    fn are_one(&self) -> bool {
        self.factors.iter().all(|factor| *factor == 1.0)
    }

    /// The rows in these units; their theta is [`ColumnUnits::within`].
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

    /// The theta for rows in these units with the same predictions as `theta` for the original rows; blocks of d numbers.
    pub fn within(&self, theta: &[f64]) -> Vec<f64> {
        theta.iter().zip(self.factors.iter().cycle()).map(|(x, factor)| x / factor).collect()
    }

    /// The theta for the original rows.
    pub fn without(&self, theta: &[f64]) -> Vec<f64> {
        theta.iter().zip(self.factors.iter().cycle()).map(|(x, factor)| x * factor).collect()
    }
}
