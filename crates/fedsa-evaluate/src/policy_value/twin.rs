//! The computations of sections 1 and 2 with plain loops: rows, episodes as lists of rows, Gaussian elimination.

use super::tests::{GAMMA, dot};

/// One row: phi, phi' (zeros after an end), reward, ratio, and whether the episode terminates with it.
#[derive(Clone)]
pub struct TwinRow {
    pub phi: Vec<f64>,
    pub next: Vec<f64>,
    pub reward: f64,
    pub ratio: f64,
}

/// An episode: the agent, its rows in parts without gaps, and whether it has its start.
#[derive(Clone)]
pub struct TwinEpisode {
    pub agent: usize,
    pub fold: usize,
    pub parts: Vec<Vec<TwinRow>>,
    pub has_start: bool,
    /// Whether the first part ends in a terminal state.
    pub ends: bool,
}

pub struct TwinFit {
    pub lambda: f64,
    pub ridge: f64,
}

pub fn solve(a: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut m: Vec<Vec<f64>> = a.iter().zip(b).map(|(row, b)| row.iter().copied().chain([*b]).collect()).collect();
    for k in 0..n {
        let pivot = (k..n).max_by(|i, j| m[*i][k].abs().total_cmp(&m[*j][k].abs())).unwrap();
        m.swap(k, pivot);
        for i in (0..n).filter(|i| *i != k) {
            let factor = m[i][k] / m[k][k];
            let row = m[k].clone();
            m[i].iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
        }
    }
    (0..n).map(|i| m[i][n] / m[i][i]).collect()
}

impl TwinFit {
    /// `(A_i, b_i)` of one episode, with the ridge of its rows.
    pub fn system(&self, unit: &TwinEpisode) -> (Vec<Vec<f64>>, Vec<f64>) {
        let d = unit.parts[0][0].phi.len();
        let (mut a, mut b) = (vec![vec![0.0; d]; d], vec![0.0; d]);
        for part in &unit.parts {
            let mut z = vec![0.0; d];
            for row in part {
                for (z, phi) in z.iter_mut().zip(&row.phi) {
                    *z = row.ratio * (GAMMA * self.lambda * *z + phi);
                }
                for i in 0..d {
                    b[i] += z[i] * row.reward;
                    (0..d).for_each(|j| a[i][j] += z[i] * (row.phi[j] - GAMMA * row.next[j]));
                    a[i][i] += self.ridge;
                }
            }
        }
        (a, b)
    }

    pub fn sum(&self, units: &[&TwinEpisode]) -> (Vec<Vec<f64>>, Vec<f64>) {
        let d = units[0].parts[0][0].phi.len();
        let (mut a, mut b) = (vec![vec![0.0; d]; d], vec![0.0; d]);
        for unit in units {
            let (ai, bi) = self.system(unit);
            for i in 0..d {
                b[i] += bi[i];
                (0..d).for_each(|j| a[i][j] += ai[i][j]);
            }
        }
        (a, b)
    }

    pub fn theta(&self, units: &[&TwinEpisode]) -> Vec<f64> {
        let (a, b) = self.sum(units);
        solve(&a, &b)
    }

    /// The value of the start states among `of`, fitted to `units`.
    pub fn value(&self, units: &[&TwinEpisode], of: impl Fn(&TwinEpisode) -> bool) -> f64 {
        let theta = self.theta(units);
        let starts: Vec<f64> =
            units.iter().filter(|unit| unit.has_start && of(unit)).map(|unit| dot(&unit.parts[0][0].phi, &theta)).collect();
        starts.iter().sum::<f64>() / starts.len() as f64
    }

    /// The derivative of a value by the logarithm of the ridge, which is minus the reduction by the ridge to first order.
    pub fn by_ridge(&self, value: impl Fn(&Self) -> f64) -> f64 {
        const STEP: f64 = 1e-3;
        let at = |factor: f64| value(&Self { ridge: self.ridge * factor, ..*self });
        // Central differences with two step sizes, whose errors of order two cancel.
        let slope = |h: f64| (at(1.0 + h) - at(1.0 - h)) / (2.0 * h);
        (4.0 * slope(STEP) - slope(2.0 * STEP)) / 3.0
    }

    /// `h_i` of section 1 for the start states among `of`.
    pub fn influences(&self, units: &[&TwinEpisode], of: impl Fn(&TwinEpisode) -> bool) -> Vec<f64> {
        let (a, _) = self.sum(units);
        let (theta, d) = (self.theta(units), a.len());
        let starts: Vec<&&TwinEpisode> = units.iter().filter(|unit| unit.has_start && of(unit)).collect();
        let (n, j) = (starts.len() as f64, self.value(units, &of));
        let m: Vec<f64> = (0..d).map(|i| starts.iter().map(|unit| unit.parts[0][0].phi[i]).sum::<f64>() / n).collect();
        let one = |unit: &&TwinEpisode| {
            let (ai, bi) = self.system(unit);
            let g: Vec<f64> = (0..d).map(|i| bi[i] - dot(&ai[i], &theta)).collect();
            let own = if unit.has_start && of(unit) { (dot(&unit.parts[0][0].phi, &theta) - j) / n } else { 0.0 };
            own + dot(&m, &solve(&a, &g))
        };
        units.iter().map(one).collect()
    }
}

/// `V_i` of section 2 under `v = phi' theta`, its bootstrapped part, and the weights `rho_{0:t}`.
pub fn weighted(unit: &TwinEpisode, theta: &[f64]) -> (f64, f64, Vec<f64>) {
    let rows = &unit.parts[0];
    let v = |phi: &[f64]| dot(phi, theta);
    let (mut value, mut weights) = (v(&rows[0].phi), Vec::new());
    for (t, row) in rows.iter().enumerate() {
        weights.push(rows[..=t].iter().map(|row| row.ratio).product::<f64>());
        value += GAMMA.powi(t as i32) * weights[t] * (row.reward + GAMMA * v(&row.next) - v(&row.phi));
    }
    let last = rows.last().unwrap();
    let boot = if unit.ends { 0.0 } else { GAMMA.powi(rows.len() as i32) * weights.last().unwrap() * v(&last.next) };
    (value, boot, weights)
}

/// D, the mean over the episodes among `of` of `gamma^T rho_{0:T-1} phi(s_T)`, where `rho(i)` is `rho_{0:T-1}` of unit i.
pub fn bootstrapped(units: &[&TwinEpisode], of: impl Fn(&TwinEpisode) -> bool, rho: impl Fn(usize) -> f64) -> Vec<f64> {
    let n = units.iter().filter(|unit| unit.has_start && of(unit)).count() as f64;
    let mut all = vec![0.0; units[0].parts[0][0].phi.len()];
    for (i, unit) in units.iter().enumerate().filter(|(_, unit)| unit.has_start && !unit.ends && of(unit)) {
        let rows = &unit.parts[0];
        let factor = GAMMA.powi(rows.len() as i32) * rho(i) / n;
        all.iter_mut().zip(&rows.last().unwrap().next).for_each(|(sum, x)| *sum += factor * x);
    }
    all
}

/// The derivative of `D' theta` by the logarithm of the ridge, for the episodes among `of`.
pub fn ends_by_ridge(fit: &TwinFit, units: &[&TwinEpisode], of: impl Fn(&TwinEpisode) -> bool, rho: impl Fn(usize) -> f64) -> f64 {
    let ends = bootstrapped(units, of, rho);
    fit.by_ridge(|fit| dot(&ends, &fit.theta(units)))
}

/// `D' A^-1 g_i` of all units: the contribution of each through the weights. `of` selects the units whose value is estimated. `rho(i)`
/// is `rho_{0:T-1}` of unit i.
pub fn by_weights(fit: &TwinFit, units: &[&TwinEpisode], of: impl Fn(&TwinEpisode) -> bool, rho: impl Fn(usize) -> f64) -> Vec<f64> {
    let (a, _) = fit.sum(units);
    let (theta, d) = (fit.theta(units), a.len());
    let bootstrapped = bootstrapped(units, of, rho);
    let one = |unit: &&TwinEpisode| {
        let (ai, bi) = fit.system(unit);
        let g: Vec<f64> = (0..d).map(|i| bi[i] - dot(&ai[i], &theta)).collect();
        dot(&bootstrapped, &solve(&a, &g))
    };
    units.iter().map(one).collect()
}

/// The error of the mean of values of the units in `of`, with these parts through the weights; values of other units are not read.
pub fn error(units: &[&TwinEpisode], of: impl Fn(&TwinEpisode) -> bool, values: &[f64], parts: &[f64]) -> f64 {
    let starts = |i: usize| units[i].has_start;
    let n = (0..units.len()).filter(|i| starts(*i)).count() as f64;
    let own: Vec<usize> = (0..units.len()).filter(|i| starts(*i) && of(units[*i])).collect();
    let count = own.len() as f64;
    let mean = own.iter().map(|i| values[*i]).sum::<f64>() / count;
    let square = |i: usize| match (of(units[i]), starts(i)) {
        (true, true) => count / (count - 1.0) * ((values[i] - mean) / count + parts[i]).powi(2),
        (true, false) => count / (count - 1.0) * parts[i].powi(2),
        (false, _) => n / (n - 1.0) * parts[i].powi(2),
    };
    (0..units.len()).map(square).sum::<f64>().sqrt()
}

/// The mean of `V_i` with `n rho_{0:t} / sum_i rho_{0:t}` in place of `rho_{0:t}`, and the first-order contribution of each episode,
/// from central differences of the value in the count of an episode.
pub fn self_normalised(units: &[&TwinEpisode], thetas: &[Vec<f64>]) -> (f64, Vec<f64>) {
    let longest = units.iter().map(|unit| unit.parts[0].len()).max().unwrap();
    let v = |phi: &[f64], unit: &TwinEpisode| dot(phi, &thetas[unit.fold]);
    // The weight and the error of an episode at a step; after its end, the last weight and 0.
    let at = |unit: &TwinEpisode, t: usize| {
        let rows = &unit.parts[0];
        let weight = rows[..=t.min(rows.len() - 1)].iter().map(|row| row.ratio).product::<f64>();
        let error = rows.get(t).map_or(0.0, |row| row.reward + GAMMA * v(&row.next, unit) - v(&row.phi, unit));
        (weight, error)
    };
    let table: Vec<Vec<(f64, f64)>> = units.iter().map(|unit| (0..longest).map(|t| at(unit, t)).collect()).collect();
    let value = |counts: &[f64]| {
        let sum = |of: &dyn Fn(usize) -> f64| counts.iter().enumerate().map(|(i, count)| count * of(i)).sum::<f64>();
        let start = sum(&|i| v(&units[i].parts[0][0].phi, units[i])) / sum(&|_| 1.0);
        let step = |t: usize| GAMMA.powi(t as i32) * sum(&|i| table[i][t].0 * table[i][t].1) / sum(&|i| table[i][t].0);
        start + (0..longest).map(step).sum::<f64>()
    };
    let (n, ones) = (units.len(), vec![1.0; units.len()]);
    let slope = |i: usize| {
        let moved = |by: f64| value(&(0..n).map(|j| if i == j { 1.0 + by } else { 1.0 }).collect::<Vec<_>>());
        // Exact to the third order of a small step.
        let [a, b] = [1e-3, 2e-3].map(|by| (moved(by) - moved(-by)) / (2.0 * by));
        (4.0 * a - b) / 3.0
    };
    (value(&ones), (0..n).map(slope).collect())
}
