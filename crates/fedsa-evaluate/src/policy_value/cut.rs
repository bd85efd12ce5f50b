//! The contribution of fitted weights to the error of weighted returns, if episodes were truncated.
//!
//! For a terminated episode the mean of `V_i` does not depend on v, because its terms cancel. A truncated one ends with `gamma^T
//! rho_{0:T-1} v(s_T)`. The weights theta of v are fitted to nearly all episodes, so all episodes share their error. With D the mean
//! over episodes of `gamma^T rho_{0:T-1} phi(s_T)` (0 for terminated ones), episode i contributes to first order
//!
//! ```text
//! h_i = (V_i - J) / n + D' A^-1 g_i,     se^2 = n / (n - 1) sum_i h_i^2
//! ```
//!
//! with the scores `g_i` and the matrix A of the fit to all episodes (`fitted`). Each of the K folds has weights from the other K - 1,
//! whose matrix is (K - 1) / K of A; the two factors cancel over the folds. A ridge adds the square of `eps n_t D' A^-1 theta`, as in
//! `fitted`.
//!
//! The specification has only the error of the mean (section 2). In a task with six states and 300 episodes truncated after two steps,
//! nominal 95% intervals without the second part cover the truth in about a fifth of the repetitions.

use faer::{Mat, MatRef};
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::parallel;
use fedsa_problems::logs::source::LogSource;

use super::fitted::{correction, episodes};
use super::folds::{EpisodeSums, FitRule, left_open, some_solution};
use super::walk::{View, dot};

/// The bootstrapped part at the ends of episodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Bootstrapped {
    /// The number of truncated episodes.
    pub count: usize,
    /// The sums of `gamma^T rho_{0:T-1} v(s_T)` and of `gamma^T rho_{0:T-1} phi(s_T)` over them; the latter is empty without such
    /// episodes.
    pub value: f64,
    pub features: Vec<f64>,
}

impl Bootstrapped {
    /// Adds an episode with this `gamma^T rho_{0:T-1}`, the weights of its v, and the features of its last state.
    pub fn add(&mut self, factor: f64, theta: &[f64], phi: &[f64]) {
        self.count += 1;
        // Without weight or discount, no value counts, finite or not.
        if factor != 0.0 && !phi.is_empty() {
            self.value += factor * dot(phi, theta);
            self.features.resize(phi.len(), 0.0);
            linalg::add_scaled(&mut self.features, factor, phi);
        }
    }

    pub fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.value += other.value;
        if !other.features.is_empty() {
            self.features.resize(other.features.len(), 0.0);
            linalg::add_scaled(&mut self.features, 1.0, &other.features);
        }
    }
}

/// The contribution of an agent's episodes to the value of all agents and to the agent's own, through the weights.
#[derive(Debug, Clone, Default)]
pub(super) struct ByWeights {
    /// `D' A^-1 g_i` of each episode with a start, for all and for the agent; empty if no episode is truncated.
    with_start: Vec<[f64; 2]>,
    /// The sums of squares over episodes whose start is not known.
    without: [f64; 2],
    /// The sum of squares of the contributions of other agents' episodes to the agent's value.
    others: f64,
    /// The reduction of both values by the ridge, plus the part of the bootstrapped value that the data do not determine.
    not_known: [f64; 2],
}

impl ByWeights {
    /// The sum over an agent's episodes, `sum_i ((V_i - J) / n + x_i)^2` and that of episodes whose start is not known, for the value J of
    /// all n episodes.
    pub fn squares(&self, values: &[f64], mean: f64, n: f64) -> f64 {
        let part = |i: usize| self.with_start.get(i).map_or(0.0, |both| both[0]);
        let with_start: f64 = values.iter().enumerate().map(|(i, value)| ((value - mean) / n + part(i)).powi(2)).sum();
        with_start + self.without[0]
    }

    /// The standard error for all n episodes, from the sum of [`ByWeights::squares`] over agents.
    pub fn of_all(squares: f64, n: f64, not_known: f64) -> f64 {
        (correction(n) * squares).sqrt().hypot(not_known)
    }

    /// The part of the value of all agents that the data do not determine.
    pub fn not_known(agents: &[Self]) -> f64 {
        agents.first().map_or(0.0, |agent| agent.not_known[0])
    }

    /// The standard error of an agent with these `V_i`, with `n` episodes in all.
    pub fn of_agent(&self, values: &[f64], n: usize) -> f64 {
        let parts: Vec<f64> = self.with_start.iter().map(|both| both[1]).collect();
        let others = if self.others > 0.0 { correction(n as f64) * self.others } else { 0.0 };
        (squares(values, &parts, self.without[1]) + others).sqrt().hypot(self.not_known[1])
    }
}

/// `n / (n - 1) (sum_i ((V_i - J) / n + x_i)^2 + more)`, if parts x are given.
fn squares(values: &[f64], parts: &[f64], more: f64) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let part = |i: usize| parts.get(i).copied().unwrap_or(0.0);
    let sum: f64 = values.iter().enumerate().map(|(i, value)| ((value - mean) / n + part(i)).powi(2)).sum();
    correction(n) * (sum + more)
}

/// The fit to all transitions, and the directions that they do not determine.
struct Directions {
    theta: Vec<f64>,
    matrix: Mat<f64>,
    undetermined: Vec<Vec<f64>>,
}

impl Directions {
    fn of(rule: FitRule, total: &EpisodeSums) -> Self {
        Self { theta: total.some_weights(rule.ridge), matrix: total.matrix(rule.ridge), undetermined: total.undetermined() }
    }
}

/// `A^-T D`.
fn towards(matrix: &Mat<f64>, cut: &Bootstrapped, n: usize) -> Vec<f64> {
    match cut.features.is_empty() || n == 0 {
        true => vec![0.0; matrix.nrows()],
        false => some_solution(&matrix.transpose().to_owned(), &cut.features.iter().map(|x| x / n as f64).collect::<Vec<_>>()),
    }
}

/// The reduction of a value by the ridge, plus the part of its bootstrapped part that the data do not determine.
fn not_determined(
    rule: FitRule,
    total: &EpisodeSums,
    (undetermined, theta): (&[Vec<f64>], &[f64]),
    cut: &Bootstrapped,
    n: usize,
    towards: &[f64],
) -> f64 {
    let open = left_open(undetermined, &cut.features, theta) / n.max(1) as f64;
    (rule.ridge * total.transitions * dot(towards, theta)).hypot(open)
}

/// [`ByWeights::not_known`] of n episodes of all agents with these bootstrapped parts.
pub(super) fn not_known_of_all(rule: FitRule, total: &EpisodeSums, cut: &Bootstrapped, n: usize) -> f64 {
    if cut.features.is_empty() {
        return 0.0;
    }
    let Directions { theta, matrix, undetermined } = Directions::of(rule, total);
    not_determined(rule, total, (&undetermined, &theta), cut, n, &towards(&matrix, cut, n))
}

/// The contributions of all agents' episodes through the weights fitted to `total`, if these are bootstrapped at the ends of the
/// agents' episodes. `counts` of the episodes have a start.
///
/// # Errors
/// When a log cannot be read.
pub(super) fn by_weights(
    sources: &[Box<dyn LogSource>],
    view: View<'_>,
    rule: FitRule,
    total: &EpisodeSums,
    cut: &[&Bootstrapped],
    counts: &[usize],
) -> Result<Vec<ByWeights>> {
    let mut all = Bootstrapped::default();
    cut.iter().for_each(|agent| all.join(agent));
    if all.features.is_empty() {
        return Ok(vec![ByWeights::default(); sources.len()]);
    }
    let (d, several) = (view.len(), sources.len() > 1);
    let Directions { theta, matrix, undetermined } = Directions::of(rule, total);
    let common = towards(&matrix, &all, counts.iter().sum());
    let own = (0..sources.len()).map(|c| if several { towards(&matrix, cut[c], counts[c]) } else { common.clone() });
    let own: Vec<Vec<f64>> = own.collect();
    let not_known = |cut: &Bootstrapped, n: usize, towards: &[f64]| not_determined(rule, total, (&undetermined, &theta), cut, n, towards);
    let of_agent = |c: usize| -> Result<(ByWeights, f64, Mat<f64>)> {
        let (mut found, mut own_squares) = (ByWeights::default(), 0.0);
        found.not_known = [not_known(&all, counts.iter().sum(), &common), not_known(cut[c], counts[c], &own[c])];
        let mut scores = Mat::zeros(d * usize::from(several), d * usize::from(several));
        episodes(&*sources[c], view, rule, &theta, false, &mut |episode| {
            let parts = [dot(&common, &episode.score), dot(&own[c], &episode.score)];
            own_squares += parts[1].powi(2);
            if episode.start.is_some() {
                found.with_start.push(parts);
            } else {
                found.without.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part * part);
            }
            if several {
                let score = MatRef::from_column_major_slice(&episode.score, d, 1);
                linalg::add_outer(&mut scores, score, score);
            }
        })?;
        Ok((found, own_squares, scores))
    };
    let (mut agents, mut own_squares) = (Vec::new(), Vec::new());
    let mut scores = Mat::<f64>::zeros(d * usize::from(several), d * usize::from(several));
    for first in (0..sources.len()).step_by(parallel::threads()) {
        let count = parallel::threads().min(sources.len() - first);
        for (found, squares, of_agent) in parallel::try_map(count, |i| of_agent(first + i))? {
            agents.push(found);
            own_squares.push(squares);
            scores += of_agent;
        }
    }
    if several {
        add_others(&mut agents, &own, &own_squares, &scores);
    }
    Ok(agents)
}

/// Adds the contributions of other agents' episodes, from the sum of the products of all scores and each agent's own sum of squares.
fn add_others(agents: &mut [ByWeights], own: &[Vec<f64>], own_squares: &[f64], scores: &Mat<f64>) {
    for ((agent, own), own_squares) in agents.iter_mut().zip(own).zip(own_squares) {
        agent.others = (dot(own, &linalg::mat_vec(scores, own)) - own_squares).max(0.0);
    }
}
