//! Rows of numbers, dense or sparse.

/// The rows of a data set, n x d, dense or sparse.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// All numbers.
    Dense {
        /// The number of columns d.
        d: usize,
        /// Row by row, n d numbers.
        values: Vec<f64>,
    },
    /// The non-zero numbers (compressed sparse rows).
    Sparse {
        /// The number of columns d.
        d: usize,
        /// Where each row starts in `index` and `value`; n + 1 numbers, the first 0.
        starts: Vec<usize>,
        /// The columns of the numbers, increasing within a row.
        index: Vec<u32>,
        /// The numbers.
        value: Vec<f64>,
    },
}

impl Rows {
    /// No rows of d columns, dense.
    pub fn dense(d: usize) -> Self {
        Rows::Dense { d, values: Vec::new() }
    }

    /// No rows, sparse. d grows with the columns of added rows.
    pub fn sparse() -> Self {
        Rows::Sparse { d: 0, starts: vec![0], index: Vec::new(), value: Vec::new() }
    }

    /// The number of columns d.
    pub fn columns(&self) -> usize {
        let (Rows::Dense { d, .. } | Rows::Sparse { d, .. }) = self;
        *d
    }

    /// The number of rows n.
    pub fn len(&self) -> usize {
        match self {
            Rows::Dense { d, values } => values.len().checked_div(*d).unwrap_or(0),
            Rows::Sparse { starts, .. } => starts.len() - 1,
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The stored numbers of row `i`, with their columns.
    pub fn row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let (index, value) = match self {
            Rows::Dense { d, values } => (None, &values[i * d..][..*d]),
            Rows::Sparse { starts, index, value, .. } => {
                let at = starts[i]..starts[i + 1];
                (Some(&index[at.clone()]), &value[at])
            }
        };
        value.iter().enumerate().map(move |(k, x)| (index.map_or(k, |index| index[k] as usize), *x))
    }

    /// The number of stored numbers.
    pub fn stored(&self) -> usize {
        let (Rows::Dense { values: stored, .. } | Rows::Sparse { value: stored, .. }) = self;
        stored.len()
    }

    /// Their size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Rows::Dense { values, .. } => size_of_val(&values[..]),
            Rows::Sparse { starts, index, value, .. } => size_of_val(&starts[..]) + size_of_val(&index[..]) + size_of_val(&value[..]),
        }
    }

    /// Whether rows are sparse and all stored numbers are 1 or -1.
    pub fn are_units(&self) -> bool {
        matches!(self, Rows::Sparse { value, .. } if value.iter().all(|x| x.abs() == 1.0))
    }

    /// The same rows, dense.
    #[must_use]
    pub fn into_dense(self) -> Self {
        if matches!(self, Rows::Dense { .. }) {
            return self;
        }
        let d = self.columns();
        let mut values = vec![0.0; self.len() * d];
        for j in 0..self.len() {
            self.row(j).for_each(|(i, x)| values[j * d + i] = x);
        }
        Rows::Dense { d, values }
    }

    /// The same rows, sparse.
    #[must_use]
    pub fn to_sparse(&self) -> Self {
        let (mut starts, mut index, mut value) = (vec![0], Vec::new(), Vec::new());
        for j in 0..self.len() {
            for (i, x) in self.row(j).filter(|(_, x)| *x != 0.0) {
                index.push(i as u32);
                value.push(x);
            }
            starts.push(index.len());
        }
        Rows::Sparse { d: self.columns(), starts, index, value }
    }
}
