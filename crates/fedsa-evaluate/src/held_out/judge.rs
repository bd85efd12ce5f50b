//! Errors of value functions on the held-out log of one agent.

use std::ops::Range;

use faer::Mat;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::held_out::episodes;
use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::log_means::TraceRule;

use super::errors::Errors;

/// The errors of several value functions on one agent's held-out episodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The number of held-out episodes.
    pub episodes: usize,
    /// The number of their transitions.
    pub transitions: usize,
    /// The number of episodes that did not terminate and therefore have no returns.
    pub episodes_cut: usize,
    /// The number of their transitions.
    pub transitions_cut: usize,
    /// The projected Bellman error of each value function.
    pub bellman: Vec<Errors>,
    /// The error of each value function against Monte-Carlo returns.
    pub returns: Vec<Errors>,
}

/// The Monte-Carlo returns of a log; `None` in episodes that did not terminate, and before omitted rows. Importance ratios weight each
/// decision, `G_i = rho_i (r_i + gamma G_{i+1})`: their mean given the state is the value under the evaluated policy.
///
/// # Errors
/// As [`episodes`].
pub fn returns(log: &Log, rule: TraceRule) -> Result<Vec<Option<f64>>> {
    let mut all = vec![None; log.len()];
    for episode in episodes(log)?.into_iter().filter(|episode| log.done[episode.end - 1]) {
        let mut following = 0.0;
        for row in episode.rev() {
            following = ratio(log, rule, row) * (log.rewards[row] + rule.gamma * following);
            all[row] = Some(following);
            if log.break_before(row) != Break::None {
                break;
            }
        }
    }
    Ok(all)
}

fn ratio(log: &Log, rule: TraceRule, row: usize) -> f64 {
    log.ratio.as_ref().filter(|_| rule.ratios).map_or(1.0, |ratio| ratio[row])
}

/// Sums over the transitions of a log, for each value function.
struct Sums {
    /// Temporal differences, times the ratios, by row.
    deltas: Vec<Vec<f64>>,
    /// Values minus returns, by row; 0 where there is no return.
    misses: Vec<Vec<f64>>,
    /// The mean of `phi delta`.
    means: Vec<Vec<f64>>,
    /// The mean squares of the quantities whose differences are the deltas and misses.
    in_deltas: Vec<f64>,
    in_misses: Vec<f64>,
    /// The mean of `phi phi'`, d x d.
    gram: Vec<f64>,
}

impl Sums {
    fn of(log: &Log, map: &FeatureMap, rule: TraceRule, thetas: &[&[f64]], returns: &[Option<f64>]) -> Self {
        let (n, d, k) = (log.len(), map.len(), thetas.len());
        let with_return = returns.iter().flatten().count() as f64;
        let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
        let mut sums = Self {
            deltas: vec![vec![0.0; n]; k],
            misses: vec![vec![0.0; n]; k],
            means: vec![vec![0.0; d]; k],
            in_deltas: vec![0.0; k],
            in_misses: vec![0.0; k],
            gram: vec![0.0; d * d],
        };
        for (row, g) in returns.iter().enumerate() {
            map.eval(log.state(row), &mut phi);
            if log.done[row] {
                next.fill(0.0);
            } else {
                map.eval(log.next_state(row), &mut next);
            }
            for (j, theta) in thetas.iter().enumerate() {
                let (value, weight, following) = (dot(&phi, theta), ratio(log, rule, row), rule.gamma * dot(&next, theta));
                sums.deltas[j][row] = weight * (log.rewards[row] + following - value);
                sums.in_deltas[j] += weight * weight * (log.rewards[row].powi(2) + following * following + value * value) / n as f64;
                if let Some(g) = g {
                    sums.misses[j][row] = value - g;
                    sums.in_misses[j] += (value * value + g * g) / with_return;
                }
                sums.means[j].iter_mut().zip(&phi).for_each(|(m, x)| *m += x * sums.deltas[j][row] / n as f64);
            }
            for (x, line) in phi.iter().zip(sums.gram.chunks_exact_mut(d)).filter(|(x, _)| **x != 0.0) {
                line.iter_mut().zip(&phi).for_each(|(c, y)| *c += x * y / n as f64);
            }
        }
        sums
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// The errors of value functions, given by their weights, on the held-out log of one agent.
///
/// # Errors
/// As [`episodes`].
pub fn judge(log: &Log, map: &FeatureMap, rule: TraceRule, thetas: &[&[f64]]) -> Result<Judged> {
    let (n, d) = (log.len(), map.len());
    let episodes = episodes(log)?;
    let returns = returns(log, rule)?;
    let Sums { deltas, misses, means, in_deltas, in_misses, gram } = Sums::of(log, map, rule, thetas, &returns);
    let gram: Mat<f64> = linalg::from_rows(d, d, &gram);
    let directions: Vec<Vec<f64>> = means.iter().map(|mean| linalg::solve_or_least(&gram, mean)).collect();
    // The contribution of each transition. The derivative of dbar' C^-1 dbar by its weight is 2 w'phi delta - (w'phi)^2.
    let (mut parts, mut phi) = (vec![vec![0.0; n]; thetas.len()], vec![0.0; d]);
    for row in 0..n {
        map.eval(log.state(row), &mut phi);
        for ((part, w), delta) in parts.iter_mut().zip(&directions).zip(&deltas) {
            let along = dot(&phi, w);
            part[row] = 2.0 * along * delta[row] - along * along;
        }
    }
    let bellman = parts.iter().zip(directions.iter().zip(&means)).zip(in_deltas).map(|((part, (w, mean)), size)| {
        let square = dot(w, mean);
        let by_episode = episodes.iter().map(|episode| episode.clone().map(|row| part[row] - square).sum());
        Errors::new(n, square, by_episode.collect(), size)
    });
    let with_return = returns.iter().flatten().count();
    // For each terminated episode, the transitions with a return: all, or those after omitted rows.
    let has_return = |row: &usize| returns[*row].is_some();
    let whole: Vec<Range<usize>> = episodes.iter().filter_map(|episode| Some(episode.clone().find(has_return)?..episode.end)).collect();
    Ok(Judged {
        episodes: episodes.len(),
        transitions: n,
        episodes_cut: episodes.len() - whole.len(),
        transitions_cut: n - with_return,
        bellman: bellman.collect(),
        returns: misses.iter().zip(in_misses).map(|(miss, size)| against_returns(miss, &whole, with_return, size)).collect(),
    })
}

/// The errors against the returns of `with_return` transitions in whole episodes. `miss` is value minus return, for each transition.
fn against_returns(miss: &[f64], whole: &[Range<usize>], with_return: usize, size: f64) -> Errors {
    let squares: Vec<f64> = whole.iter().map(|episode| miss[episode.clone()].iter().map(|x| x * x).sum()).collect();
    let mean = if with_return == 0 { 0.0 } else { squares.iter().sum::<f64>() / with_return as f64 };
    let by_episode = squares.iter().zip(whole).map(|(sum, episode)| sum - mean * episode.len() as f64).collect();
    Errors::new(with_return, mean, by_episode, size)
}
