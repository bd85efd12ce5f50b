//! Standard errors of LSTD weights and values, by batch means along trajectories.
//!
//! The weights solve `sum_c p_c gbar_c(theta) = 0` with `gbar_c` the mean of `g_{c,t}(theta) = b_t - A_t theta` over agent
//! c's log. Their covariance is the sandwich `A^-1 S A^-T`, `A = sum_c p_c A_c`, with `S` the covariance of
//! `sum_c p_c gbar_c`. Transitions that follow each other are dependent. Each log of n transitions is therefore cut into
//! about `sqrt(n)` batches of as many transitions, whose means are nearly independent, and
//! `S = sum_c p_c^2 B/(B - 1) sum_b (n_b/n)^2 (gbar_cb - gbar_c)(gbar_cb - gbar_c)'`.
//!
//! Agents are taken as given: how they differ is no source of error. Errors are too small where batches are shorter than the
//! memory of the chain.

use faer::Mat;

use super::features::FeatureMap;
use super::log::Log;
use crate::linalg;

/// The fewest transitions of an agent for which there are standard errors.
pub const FEWEST: usize = 16;

/// The covariance of the weights `theta`, d x d; `a` is the mean matrix A. In directions in which A is singular the
/// covariance is 0, as for the solution of least norm. `None` if an agent has fewer than [`FEWEST`] transitions, or weights
/// are not finite.
pub fn covariance(logs: &[Log], map: &FeatureMap, gamma: f64, a: &Mat<f64>, theta: &[f64]) -> Option<Mat<f64>> {
    if logs.iter().any(|log| log.len() < FEWEST) || theta.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let factor = factor(logs, map, gamma, theta, |n| n.isqrt());
    let x = linalg::solve_columns_or_least(a, &factor);
    Some(&x * x.transpose())
}

/// A matrix `U` with `U U' = S`: a column for each batch.
fn factor(logs: &[Log], map: &FeatureMap, gamma: f64, theta: &[f64], batches: impl Fn(usize) -> usize) -> Mat<f64> {
    let d = map.len();
    let total: usize = logs.iter().map(Log::len).sum();
    let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for log in logs {
        let (n, count) = (log.len(), batches(log.len()));
        let share = n as f64 / total as f64;
        // Sums over the batches.
        let mut sums = vec![vec![0.0; d]; count];
        let mut whole = vec![0.0; d];
        let first = |batch: usize| batch * n / count;
        for (batch, sum) in sums.iter_mut().enumerate() {
            for row in first(batch)..first(batch + 1) {
                map.eval(log.state(row), &mut phi);
                let value = |phi: &[f64]| phi.iter().zip(theta).map(|(x, w)| x * w).sum::<f64>();
                let mut delta = log.rewards[row] - value(&phi);
                if !log.done[row] {
                    map.eval(log.next_state(row), &mut next);
                    delta += gamma * value(&next);
                }
                sum.iter_mut().zip(&phi).for_each(|(s, x)| *s += x * delta);
            }
            whole.iter_mut().zip(&*sum).for_each(|(w, s)| *w += s);
        }
        let scale = share * (count as f64 / (count - 1) as f64).sqrt() / n as f64;
        for (batch, sum) in sums.into_iter().enumerate() {
            let part = (first(batch + 1) - first(batch)) as f64 / n as f64;
            columns.push(sum.iter().zip(&whole).map(|(s, w)| scale * (s - part * w)).collect());
        }
    }
    Mat::from_fn(d, columns.len(), |i, j| columns[j][i])
}

/// The standard errors of the weights: the root of the diagonal of their covariance.
pub fn standard_errors(covariance: &Mat<f64>) -> Vec<f64> {
    (0..covariance.nrows()).map(|i| covariance[(i, i)].max(0.0).sqrt()).collect()
}

/// The standard error of a value, `sqrt(phi' Cov phi)`, with the covariance of the weights row by row.
pub fn value_error(covariance: &[f64], phi: &[f64]) -> f64 {
    let rows = covariance.chunks_exact(phi.len()).zip(phi).filter(|(_, x)| **x != 0.0);
    rows.map(|(row, x)| x * row.iter().zip(phi).map(|(c, y)| c * y).sum::<f64>()).sum::<f64>().max(0.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::features::{FeatureSpec, Ranges};
    use super::*;
    use crate::random::{Purpose, stream};

    const GAMMA: f64 = 0.8;
    /// Two agents' kernels on three states, slow to mix.
    const KERNELS: [[[f64; 3]; 3]; 2] =
        [[[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]], [[0.6, 0.2, 0.2], [0.1, 0.85, 0.05], [0.05, 0.05, 0.9]]];
    const REWARDS: [f64; 3] = [1.0, 0.0, -2.0];

    /// A log of n transitions, with the `phi` of each state as its columns.
    fn simulated(kernel: &[[f64; 3]; 3], phi: &[Vec<f64>; 3], n: usize, seed: u64, agent: usize) -> Log {
        let mut s = stream(seed, Purpose::Fresh, 0, agent);
        let mut state = (s.uniform() * 3.0) as usize;
        let d = phi[0].len();
        let mut log = Log {
            name: String::new(),
            columns: (0..d).map(|j| format!("s_{j}")).collect(),
            states: Vec::new(),
            rewards: Vec::new(),
            next: Vec::new(),
            done: vec![false; n],
            episode: None,
            ratio: None,
        };
        for _ in 0..n {
            let u = s.uniform();
            let following = if u < kernel[state][0] { 0 } else { 1 + usize::from(u >= kernel[state][0] + kernel[state][1]) };
            log.states.extend(&phi[state]);
            log.next.extend(&phi[following]);
            log.rewards.push(REWARDS[state]);
            state = following;
        }
        log
    }

    /// `A` and `b` of samples `(weight, phi, reward, phi')`.
    fn system(d: usize, samples: impl Iterator<Item = (f64, Vec<f64>, f64, Vec<f64>)>) -> (Mat<f64>, Vec<f64>) {
        let (mut a, mut b) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
        for (weight, phi, reward, next) in samples {
            for i in 0..d {
                b[i] += weight * phi[i] * reward;
                (0..d).for_each(|j| a[(i, j)] += weight * phi[i] * (phi[j] - GAMMA * next[j]));
            }
        }
        (a, b)
    }

    /// The share of 95% intervals that contain the true weights and a true value, over many simulated pairs of logs.
    fn coverage(phi: &[Vec<f64>; 3], batches: impl Fn(usize) -> usize + Copy, repetitions: u64) -> Vec<f64> {
        let d = phi[0].len();
        let names: Vec<String> = (0..d).map(|j| format!("s_{j}")).collect();
        let map = FeatureMap::new(&FeatureSpec::Identity { bias: false }, &names, &Ranges::new()).unwrap();
        let lengths = [1500, 2500];
        // The truth, from the stationary laws.
        let truth = system(
            d,
            KERNELS.iter().zip(lengths).flat_map(|(kernel, n)| {
                let mut law = [1.0 / 3.0; 3];
                for _ in 0..2000 {
                    law = std::array::from_fn(|j| (0..3).map(|i| law[i] * kernel[i][j]).sum());
                }
                let pairs = (0..3).flat_map(move |i| (0..3).map(move |j| (i, j)));
                pairs.map(move |(i, j)| (n as f64 * law[i] * kernel[i][j], phi[i].clone(), REWARDS[i], phi[j].clone()))
            }),
        );
        let truth = linalg::solve(&truth.0, &truth.1).unwrap();
        let mut hits = vec![0.0; d + 1];
        for seed in 0..repetitions {
            let logs: Vec<Log> = (0..2).map(|c| simulated(&KERNELS[c], phi, lengths[c], seed, c)).collect();
            let total = lengths.iter().sum::<usize>() as f64;
            let rows = logs.iter().flat_map(|log| {
                (0..log.len()).map(move |i| (1.0 / total, log.state(i).to_vec(), log.rewards[i], log.next_state(i).to_vec()))
            });
            let (a, b) = system(d, rows);
            let theta = linalg::solve(&a, &b).unwrap();
            let x = linalg::solve_columns_or_least(&a, &factor(&logs, &map, GAMMA, &theta, batches));
            let covariance = &x * x.transpose();
            let errors = standard_errors(&covariance);
            for i in 0..d {
                hits[i] += f64::from(u8::from((theta[i] - truth[i]).abs() <= 1.959_964 * errors[i]));
            }
            let value = |theta: &[f64]| phi[1].iter().zip(theta).map(|(x, w)| x * w).sum::<f64>();
            let error = value_error(&linalg::to_rows(&covariance), &phi[1]);
            hits[d] += f64::from(u8::from((value(&theta) - value(&truth)).abs() <= 1.959_964 * error));
        }
        hits.iter().map(|hits| hits / repetitions as f64).collect()
    }

    #[test]
    fn intervals_cover_as_often_as_they_say() {
        const REPETITIONS: u64 = 2000;
        // The share that is measured is within three standard errors of that of all logs, which is then from 90% to 98%.
        let three = 3.0 * (0.95 * 0.05 / REPETITIONS as f64).sqrt();
        let tabular = [vec![1.0, 0.0, 0.0], vec![0.0, 1.0, 0.0], vec![0.0, 0.0, 1.0]];
        // Features that cannot represent the values: errors of transitions that follow each other are then dependent.
        let two = [vec![1.0, 0.0], vec![1.0, 0.3], vec![1.0, 1.0]];
        for phi in [&tabular, &two] {
            let covered = coverage(phi, |n| n.isqrt(), REPETITIONS);
            println!("coverage of 95% intervals: {covered:?}");
            assert!(covered.iter().all(|share| (0.90 + three..=0.98 - three).contains(share)), "{covered:?}");
        }
        // Batches of single transitions, as if these were independent, would not do.
        let naive = coverage(&[vec![1.0], vec![1.0], vec![1.0]], |n| n, 300);
        println!("with single transitions: {naive:?}");
        assert!(naive[0] < 0.8, "{naive:?}");
        let batched = coverage(&[vec![1.0], vec![1.0], vec![1.0]], |n| n.isqrt(), REPETITIONS);
        println!("with batches: {batched:?}");
        assert!((0.90 + three..=0.98 - three).contains(&batched[0]), "{batched:?}");
    }

    #[test]
    fn there_are_none_for_few_transitions() {
        let phi = [vec![1.0], vec![1.0], vec![1.0]];
        let map = FeatureMap::new(&FeatureSpec::Identity { bias: false }, &["s_0".into()], &Ranges::new()).unwrap();
        let of = |n: usize, theta: f64| covariance(&[simulated(&KERNELS[0], &phi, n, 0, 0)], &map, GAMMA, &Mat::identity(1, 1), &[theta]);
        assert!(of(FEWEST, 0.0).is_some() && of(FEWEST - 1, 0.0).is_none() && of(FEWEST, f64::NAN).is_none());
    }
}
