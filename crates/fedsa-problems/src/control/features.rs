//! Features of pairs of a state and an action: rows of which only the entries other than zero are kept.

/// One row of d components for each pair.
#[derive(Debug, Clone)]
pub(crate) struct PairRows {
    d: usize,
    /// The entries of pair i are `starts[i]..starts[i + 1]`.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl PairRows {
    /// The rows of `values`, d components each, one after the other.
    pub fn new(d: usize, values: &[f64]) -> Self {
        let mut rows = Self { d, starts: vec![0], columns: Vec::new(), values: Vec::new() };
        for row in values.chunks(d) {
            rows.push(row.iter().enumerate().filter(|(_, x)| **x != 0.0).map(|(j, x)| (j as u32, *x)));
        }
        rows
    }

    /// One feature for each of n pairs.
    pub fn tabular(n: usize) -> Self {
        let mut rows = Self { d: n, starts: vec![0], columns: Vec::new(), values: Vec::new() };
        (0..n as u32).for_each(|i| rows.push([(i, 1.0)].into_iter()));
        rows
    }

    fn push(&mut self, row: impl Iterator<Item = (u32, f64)>) {
        for (column, value) in row {
            self.columns.push(column);
            self.values.push(value);
        }
        self.starts.push(self.columns.len());
    }

    /// The dimension d.
    pub fn dim(&self) -> usize {
        self.d
    }

    /// The entries of a row: components and values.
    #[inline(always)]
    pub fn entries(&self, pair: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let entries = self.starts[pair]..self.starts[pair + 1];
        self.columns[entries.clone()].iter().zip(&self.values[entries]).map(|(j, x)| (*j as usize, *x))
    }

    /// The number of entries of all rows.
    pub fn entries_in_all(&self) -> usize {
        self.values.len()
    }

    /// `phi_i^T theta`.
    #[inline(always)]
    pub fn dot(&self, pair: usize, theta: &[f64]) -> f64 {
        self.entries(pair).map(|(j, x)| x * theta[j]).sum()
    }

    /// `y += a phi_i`.
    #[inline(always)]
    pub fn add(&self, pair: usize, a: f64, y: &mut [f64]) {
        self.entries(pair).for_each(|(j, x)| y[j] += a * x);
    }
}
