//! What the machine does at most, for benchmarks: times beside which others are seen.

use std::hint::black_box;
use std::time::Instant;

use faer::Mat;
use fedsa_problems::rows::dataset::Rows;
use rayon::prelude::*;

/// Pools of one thread and of two.
fn pools() -> [rayon::ThreadPool; 2] {
    [1, 2].map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of threads"))
}

/// The least seconds of some repetitions of work on one thread and on two, in turn, so that what else the machine does falls on both.
pub fn least(repetitions: usize, work: impl Fn() + Sync) -> [f64; 2] {
    let pools = pools();
    let mut least = [f64::INFINITY; 2];
    for _ in 0..repetitions {
        for (pool, least) in pools.iter().zip(&mut least) {
            let start = Instant::now();
            pool.install(&work);
            *least = least.min(start.elapsed().as_secs_f64());
        }
    }
    least
}

/// What two threads of the machine do at most, as measured in this run: multiply-adds a second of products of matrices that stay in the
/// cache.
pub struct Machine {
    multiply_adds: [f64; 2],
}

impl Machine {
    /// Measures it.
    pub fn measured() -> Self {
        const SIDE: usize = 256;
        let matrix = Mat::from_fn(SIDE, SIDE, |i, j| ((i * 31 + j * 17) % 101) as f64 / 101.0);
        let products = least(10, || {
            rayon::broadcast(|_| {
                black_box(&matrix * &matrix);
            });
        });
        let threads = [1.0, 2.0];
        Self { multiply_adds: [0, 1].map(|i| threads[i] * (SIDE as f64).powi(3) / products[i]) }
    }

    /// The least seconds on one thread and on two of work with so many multiply-adds, and of reading that takes so long.
    pub fn floor(&self, multiply_adds: f64, reading: [f64; 2]) -> [f64; 2] {
        [0, 1].map(|i| (multiply_adds / self.multiply_adds[i]).max(reading[i]))
    }
}

/// The seconds on one thread and on two of reading so many bytes: as many are read again and again, from a cache if they fit into it.
pub fn reading(bytes: f64) -> [f64; 2] {
    let words = vec![1u64; ((bytes / 8.0) as usize).max(1)];
    least(200, || {
        let share = words.len().div_ceil(rayon::current_num_threads());
        black_box(words.par_chunks(share).map(|words| words.iter().fold(0u64, |a, b| a ^ b)).reduce(|| 0, |a, b| a ^ b));
    })
}

/// What passes over all rows of a problem cost.
pub struct Work {
    /// Stored numbers.
    pub stored: f64,
    /// Their bytes: those of sparse rows have a column each.
    pub bytes: f64,
    /// Multiply-adds of the sums of the lower triangles of `w x x^T`.
    pub outer: f64,
}

impl Work {
    /// That of these rows.
    pub fn of(rows: &Rows) -> Self {
        let (lengths, bytes): (Vec<f64>, f64) = match rows {
            Rows::Dense { d, values } => (vec![*d as f64; values.len() / d], 8.0),
            Rows::Sparse { starts, .. } => (starts.windows(2).map(|row| (row[1] - row[0]) as f64).collect(), 12.0),
        };
        let stored: f64 = lengths.iter().sum();
        Self { stored, bytes: bytes * stored, outer: lengths.iter().map(|n| n * (n + 1.0) / 2.0).sum() }
    }
}
