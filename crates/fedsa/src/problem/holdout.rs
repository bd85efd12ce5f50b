//! Held-out episodes: how good value functions are on episodes that they were not fitted to.
//!
//! Two errors of values `v(s) = phi(s)' theta`, each a root mean square over an agent's held-out transitions:
//!
//! - **Against Monte-Carlo returns**: `v(s_i) - G_i` with `G_i = sum_k gamma^k r_{i+k}` to the end of the episode. Only
//!   episodes that terminate (`done`) have returns; transitions of episodes that were cut short are left out and counted.
//! - **Projected Bellman error**: `sqrt(dbar' C^+ dbar)` with `dbar = mean phi rho delta`, `delta = r + gamma v(s') - v(s)`,
//!   `C = mean phi phi'` and its pseudo-inverse. It is the norm of `Pi (T v - v)`, `Pi` the projection on the features
//!   under the distribution of the held-out states. Noise of few episodes makes it positive even for perfect weights.
//!
//! Standard errors are over episodes, which are taken to be independent: each error is linearised in what single episodes
//! contribute to it (the ratio estimator for the first, the delta method for the second).

use std::ops::Range;

use faer::Mat;

use super::features::FeatureMap;
use super::log::Log;
use super::log_means::TraceRule;
use super::source::{LogSource, read_checked};
use crate::error::{BadInput, Result, quoted, require};
use crate::linalg;
use crate::parallel;
use crate::random::{Purpose, stream};

/// The episodes of a log as ranges of rows.
///
/// # Errors
/// When the log has no episodes, an episode comes back after another, or goes on after it terminated.
pub fn episodes(log: &Log) -> Result<Vec<Range<usize>>> {
    let numbers = numbers(log)?;
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for (row, number) in numbers.iter().enumerate() {
        match found.last_mut() {
            Some(last) if numbers[row - 1] == *number => {
                if log.done[row - 1] {
                    return Err(goes_on(&log.name, row, *number));
                }
                last.end = row + 1;
            }
            _ if !seen.insert(*number) => return Err(bad_episode(&log.name, row, *number, "comes back after another")),
            _ => found.push(row..row + 1),
        }
    }
    Ok(found)
}

/// The episode of each transition.
fn numbers(log: &Log) -> Result<&[i64]> {
    log.episode.as_deref().ok_or_else(|| {
        let what = format!("{} has no column `episode`", quoted(&log.name));
        BadInput::data("holdout", what, "logs whose column `episode` numbers the episodes: whole episodes are held out")
    })
}

fn goes_on(name: &str, row: usize, number: i64) -> BadInput {
    bad_episode(name, row, number, "goes on after it terminated")
}

fn bad_episode(name: &str, row: usize, number: i64, what: &str) -> BadInput {
    BadInput::data(
        "holdout",
        format!("{}: row {row}: episode {number} {what}", quoted(name)),
        "a column `episode` in which each episode has a number of its own, in rows that follow each other",
    )
}

/// A log without the episodes that are held out.
struct Rest {
    source: Box<dyn LogSource>,
    /// Whether each episode is held out.
    held: Vec<bool>,
}

/// Calls `see` with the transitions of the episodes that `keep` accepts by their number.
fn read_some(source: &dyn LogSource, keep: &dyn Fn(usize) -> bool, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
    // The last transition's episode in the file, and its number.
    let mut last: Option<(i64, usize)> = None;
    source.read(&mut |log| {
        let all = log.episode.as_deref().unwrap_or_default();
        let numbers: Vec<usize> = all
            .iter()
            .map(|episode| {
                let number = match last {
                    None => 0,
                    Some((before, number)) => number + usize::from(before != *episode),
                };
                last = Some((*episode, number));
                number
            })
            .collect();
        let some = log.filtered(|row| numbers.get(row).is_some_and(|number| keep(*number)));
        if some.is_empty() { Ok(()) } else { see(&some) }
    })
}

impl LogSource for Rest {
    fn name(&self) -> &str {
        self.source.name()
    }
    fn columns(&self) -> &[String] {
        self.source.columns()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        read_some(&*self.source, &|episode| !self.held[episode], see)
    }
    fn located(&self, e: BadInput) -> BadInput {
        self.source.located(e)
    }
}

/// The number of episodes of a log.
fn count(source: &dyn LogSource) -> Result<usize> {
    let (mut count, mut last): (usize, Option<(i64, bool)>) = (0, None);
    read_checked(source, &mut |batch| {
        let numbers = numbers(batch.log)?;
        for (i, &number) in numbers.iter().enumerate() {
            match last {
                Some((before, true)) if before == number => return Err(goes_on(&batch.log.name, batch.first + i, number)),
                Some((before, _)) if before == number => {}
                _ => count += 1,
            }
            last = Some((number, batch.log.done[i]));
        }
        Ok(())
    })?;
    Ok(count)
}

/// Logs for the fit, and those that are held out.
pub type HoldoutSplit = (Vec<Box<dyn LogSource>>, Vec<Log>);

/// Splits logs into those for the fit and those that are held out: of each agent's E episodes, `share E` drawn at random are
/// held out, rounded to a whole number from 1 to E - 1. What is held out is kept in memory.
///
/// # Errors
/// When the share is not in (0, 1), a log cannot be read, as [`episodes`], or an agent has fewer than two episodes.
pub fn split(sources: Vec<Box<dyn LogSource>>, share: f64, seed: u64) -> Result<HoldoutSplit> {
    require(share > 0.0 && share < 1.0, "holdout", share, "a share of the episodes above 0 and below 1")?;
    let one = |agent: usize, source: Box<dyn LogSource>| -> Result<(Box<dyn LogSource>, Log)> {
        let count = count(&*source)?;
        if count < 2 {
            let what = format!("{} has a single episode", quoted(source.name()));
            return Err(BadInput::data("holdout", what, "at least two episodes an agent: one for the fit, and one that is held out"));
        }
        let drawn = ((share * count as f64).round() as usize).clamp(1, count - 1);
        let mut order: Vec<usize> = (0..count).collect();
        let mut draws = stream(seed, Purpose::Holdout, 0, agent);
        for i in 0..drawn {
            order.swap(i, i + (draws.uniform() * (count - i) as f64) as usize);
        }
        let mut held = vec![false; count];
        order[..drawn].iter().for_each(|episode| held[*episode] = true);
        let mut all: Option<Log> = None;
        read_some(&*source, &|episode| held[episode], &mut |log| {
            match &mut all {
                None => all = Some(log.clone()),
                Some(all) => all.append(log),
            }
            Ok(())
        })?;
        Ok((Box::new(Rest { source, held }), all.expect("an episode is held out")))
    };
    parallel::map_into(sources, one).into_iter().collect()
}

/// The mean square of an error over the transitions of one or several agents, and how episodes contribute to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Errors {
    /// One for each agent.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// The number of transitions.
    count: f64,
    mean_square: f64,
    /// What each episode adds to the sum of squares, less its share of the mean.
    episodes: Vec<f64>,
    /// The mean square of what the errors are differences of: rewards, values and returns.
    size: f64,
}

/// Errors below this share of the size of what they are differences of are roundings: values are solutions of linear systems.
const ROUNDING: f64 = 1e-9;

impl Errors {
    fn new(count: usize, mean_square: f64, episodes: Vec<f64>, size: f64) -> Self {
        Self { parts: vec![Part { count: count as f64, mean_square, episodes, size }] }
    }

    /// The errors of several agents as one: mean squares are weighted by transitions.
    pub fn of_all<'a>(agents: impl IntoIterator<Item = &'a Self>) -> Self {
        Self { parts: agents.into_iter().flat_map(|errors| errors.parts.iter().cloned()).collect() }
    }

    fn count(&self) -> f64 {
        self.parts.iter().map(|part| part.count).sum()
    }

    /// The mean over transitions of a number of each part; `None` without transitions.
    fn mean(&self, of: impl Fn(&Part) -> f64) -> Option<f64> {
        let sum: f64 = self.parts.iter().map(|part| part.count * of(part)).sum();
        (self.count() > 0.0).then(|| sum / self.count())
    }

    fn mean_square(&self) -> Option<f64> {
        self.mean(|part| part.mean_square)
    }

    /// The root mean square; `None` without transitions.
    pub fn rms(&self) -> Option<f64> {
        self.mean_square().map(|square| square.max(0.0).sqrt())
    }

    /// The root mean square below which errors, and differences of errors, are roundings.
    pub fn rounding(&self) -> f64 {
        ROUNDING * self.mean(|part| part.size).unwrap_or(0.0).sqrt()
    }

    /// The standard error of the root mean square; `None` with a single episode, or if the error is 0.
    pub fn standard_error(&self) -> Option<f64> {
        let (scale, apart) = (self.scale()?, self.apart());
        self.spread(|part, episode| scale * self.parts[part].episodes[episode], |part| scale * apart(part))
    }

    /// `self.rms() - other.rms()` with its standard error, for two errors on the same episodes.
    pub fn minus(&self, other: &Self) -> (Option<f64>, Option<f64>) {
        let difference = self.rms().zip(other.rms()).map(|(a, b)| a - b);
        let error = self.scale().zip(other.scale()).and_then(|(a, b)| {
            let (mine, others) = (self.apart(), other.apart());
            self.spread(
                |part, episode| a * self.parts[part].episodes[episode] - b * other.parts[part].episodes[episode],
                |part| a * mine(part) - b * others(part),
            )
        });
        (difference, error)
    }

    /// The number of agents with a single episode beside others, whose spread is not known by themselves.
    pub fn single_episodes(&self) -> usize {
        if self.parts.len() < 2 { 0 } else { self.parts.iter().filter(|part| part.episodes.len() == 1).count() }
    }

    /// What an agent's sum of squares is above the mean of all agents.
    fn apart(&self) -> impl Fn(usize) -> f64 {
        let mean = self.mean_square().unwrap_or(0.0);
        move |part| self.parts[part].count * (self.parts[part].mean_square - mean)
    }

    /// The derivative of the root mean square by the sum of squares.
    fn scale(&self) -> Option<f64> {
        self.rms().filter(|rms| *rms > 0.0).map(|rms| 0.5 / (rms * self.count()))
    }

    /// The standard deviation of a sum of independent contributions of the episodes. A single episode of an agent has nothing to differ
    /// from but the other agents (`apart`): that is more than it would differ from episodes of its own, and the result is at least the
    /// standard deviation.
    fn spread(&self, contribution: impl Fn(usize, usize) -> f64, apart: impl Fn(usize) -> f64) -> Option<f64> {
        let with_any: Vec<usize> = (0..self.parts.len()).filter(|p| self.parts[*p].count > 0.0).collect();
        let (single, several): (Vec<usize>, Vec<usize>) = with_any.into_iter().partition(|p| self.parts[*p].episodes.len() == 1);
        if several.is_empty() && single.len() < 2 {
            return None;
        }
        let of_several = |p: &usize| {
            let episodes = self.parts[*p].episodes.len();
            (0..episodes).map(|e| contribution(*p, e).powi(2)).sum::<f64>() * unbiased(episodes)
        };
        let of_single: f64 = single.iter().map(|p| apart(*p).powi(2)).sum();
        let variance = several.iter().map(of_several).sum::<f64>() + of_single * unbiased(single.len());
        Some(variance.sqrt()).filter(|x| x.is_finite())
    }
}

/// What a sum of squares around a mean of `n` is multiplied by, so that its mean is the variance's.
fn unbiased(n: usize) -> f64 {
    if n < 2 { 1.0 } else { n as f64 / (n - 1) as f64 }
}

/// How good several value functions are on one agent's held-out episodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The number of held-out episodes.
    pub episodes: usize,
    /// The number of their transitions.
    pub transitions: usize,
    /// The number of episodes that did not terminate, and so have no returns.
    pub episodes_cut: usize,
    /// The number of their transitions.
    pub transitions_cut: usize,
    /// The projected Bellman error of each value function.
    pub bellman: Vec<Errors>,
    /// The error of each value function against Monte-Carlo returns.
    pub returns: Vec<Errors>,
}

/// The Monte-Carlo returns of a log; `None` in episodes that did not terminate. With importance ratios they are weighted per
/// decision, `G_i = rho_i (r_i + gamma G_{i+1})`: their mean given the state is the value under the policy that is evaluated.
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
        }
    }
    Ok(all)
}

fn ratio(log: &Log, rule: TraceRule, row: usize) -> f64 {
    log.ratio.as_ref().filter(|_| rule.ratios).map_or(1.0, |ratio| ratio[row])
}

/// Judges value functions, given by their weights, on the held-out log of one agent.
///
/// # Errors
/// As [`episodes`].
pub fn judge(log: &Log, map: &FeatureMap, rule: TraceRule, thetas: &[&[f64]]) -> Result<Judged> {
    let (n, d, gamma) = (log.len(), map.len(), rule.gamma);
    let episodes = episodes(log)?;
    let returns = returns(log, rule)?;
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
    let mut deltas = vec![vec![0.0; n]; thetas.len()];
    let mut misses = vec![vec![0.0; n]; thetas.len()];
    let mut means = vec![vec![0.0; d]; thetas.len()];
    // The mean squares of what deltas and misses are differences of.
    let (mut in_deltas, mut in_misses) = (vec![0.0; thetas.len()], vec![0.0; thetas.len()]);
    let with_return = returns.iter().flatten().count();
    let mut gram = vec![0.0; d * d];
    for row in 0..n {
        map.eval(log.state(row), &mut phi);
        if log.done[row] {
            next.fill(0.0);
        } else {
            map.eval(log.next_state(row), &mut next);
        }
        for (j, theta) in thetas.iter().enumerate() {
            let value = dot(&phi, theta);
            let (weight, following) = (ratio(log, rule, row), gamma * dot(&next, theta));
            deltas[j][row] = weight * (log.rewards[row] + following - value);
            in_deltas[j] += weight * weight * (log.rewards[row].powi(2) + following * following + value * value) / n as f64;
            misses[j][row] = returns[row].map_or(0.0, |g| value - g);
            in_misses[j] += returns[row].map_or(0.0, |g| (value * value + g * g) / with_return as f64);
        }
        for (x, line) in phi.iter().zip(gram.chunks_exact_mut(d)).filter(|(x, _)| **x != 0.0) {
            line.iter_mut().zip(&phi).for_each(|(c, y)| *c += x * y / n as f64);
        }
        for (mean, delta) in means.iter_mut().zip(&deltas) {
            mean.iter_mut().zip(&phi).for_each(|(m, x)| *m += x * delta[row] / n as f64);
        }
    }
    let gram: Mat<f64> = linalg::from_rows(d, d, &gram);
    let directions: Vec<Vec<f64>> = means.iter().map(|mean| linalg::solve_or_least(&gram, mean)).collect();
    // What each transition contributes. The derivative of dbar' C^-1 dbar by its weight is 2 w'phi delta - (w'phi)^2.
    let mut parts = vec![vec![0.0; n]; thetas.len()];
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
    let whole: Vec<&Range<usize>> = episodes.iter().filter(|episode| log.done[episode.end - 1]).collect();
    Ok(Judged {
        episodes: episodes.len(),
        transitions: n,
        episodes_cut: episodes.len() - whole.len(),
        transitions_cut: n - with_return,
        bellman: bellman.collect(),
        returns: misses.iter().zip(in_misses).map(|(miss, size)| against_returns(miss, &whole, with_return, size)).collect(),
    })
}

/// The errors against the returns of `with_return` transitions in whole episodes: `miss` is a value minus the return, for each transition.
fn against_returns(miss: &[f64], whole: &[&Range<usize>], with_return: usize, size: f64) -> Errors {
    let squares: Vec<f64> = whole.iter().map(|episode| miss[(*episode).clone()].iter().map(|x| x * x).sum()).collect();
    let mean = if with_return == 0 { 0.0 } else { squares.iter().sum::<f64>() / with_return as f64 };
    let by_episode = squares.iter().zip(whole).map(|(sum, episode)| sum - mean * episode.len() as f64).collect();
    Errors::new(with_return, mean, by_episode, size)
}

#[cfg(test)]
mod tests {
    use super::super::features::{FeatureSpec, Ranges};
    use super::super::source::tests::InBatches;
    use super::super::source::whole;
    use super::*;

    /// Episodes of a chain 3, 2, 1 with reward -1 a step, as often as asked for; the last is cut after two steps.
    fn chain(times: usize) -> Log {
        let mut log = Log {
            name: "chain".into(),
            columns: vec!["s_0".into()],
            states: Vec::new(),
            rewards: Vec::new(),
            next: Vec::new(),
            done: Vec::new(),
            episode: Some(Vec::new()),
            ratio: None,
        };
        for episode in 0..=times {
            for state in if episode == times { 2..4 } else { 1..4 }.rev() {
                log.states.push(f64::from(state));
                log.next.push(f64::from(state - 1));
                log.rewards.push(-1.0);
                log.done.push(state == 1);
                log.episode.as_mut().unwrap().push(episode as i64);
            }
        }
        log
    }

    fn rule(gamma: f64) -> TraceRule {
        TraceRule { gamma, lambda: 0.0, ratios: true }
    }

    /// Returns by hand, weighted per decision: the second decision of the chain has a ratio of 2, and the third one of 1/2.
    #[test]
    fn ratios_weigh_returns_and_bellman_errors() {
        let log = chain(1).filtered(|row| row < 3);
        let log = Log { ratio: Some(vec![1.0, 2.0, 0.5]), ..log };
        let last = -0.5;
        let second = 2.0 * (-1.0 + 0.9 * last);
        let first = -1.0 + 0.9 * second;
        assert_eq!(returns(&log, rule(0.9)).unwrap(), [Some(first), Some(second), Some(last)]);
        let off = TraceRule { ratios: false, ..rule(1.0) };
        assert_eq!(returns(&log, off).unwrap(), [Some(-3.0), Some(-2.0), Some(-1.0)]);
        // With v(s) = -2 s every delta is 1: the mean of rho s over the root of the mean of s^2.
        let judged = judge(&log, &identity(), rule(1.0), &[&[-2.0]]).unwrap();
        let expected = (3.0 + 4.0 + 0.5) / 3.0 / (14.0f64 / 3.0).sqrt();
        assert!((judged.bellman[0].rms().unwrap() - expected).abs() < 1e-14);
    }

    fn identity() -> FeatureMap {
        FeatureMap::new(&FeatureSpec::Identity { bias: false }, &["s_0".into()], &Ranges::new()).unwrap()
    }

    #[test]
    fn a_chain_has_the_errors_that_follow_by_hand() {
        // Without discount v(s) = -s is exact; v(s) = -2 s is off by s.
        let judged = judge(&chain(4), &identity(), rule(1.0), &[&[-1.0], &[-2.0]]).unwrap();
        assert_eq!((judged.episodes, judged.transitions, judged.episodes_cut, judged.transitions_cut), (5, 14, 1, 2));
        assert_eq!((judged.returns[0].rms(), judged.bellman[0].rms()), (Some(0.0), Some(0.0)));
        assert!((judged.returns[1].rms().unwrap() - (14.0f64 / 3.0).sqrt()).abs() < 1e-14);
        // All episodes are alike.
        assert!(judged.returns[1].standard_error().unwrap() < 1e-14);
        // delta = -1 - 2 (s - 1) + 2 s = 1: the mean of s delta over the root of the mean of s^2.
        let (sum, squares) = (4.0 * 6.0 + 5.0, 4.0 * 14.0 + 13.0);
        let expected = sum / 14.0 / (squares / 14.0f64).sqrt();
        assert!((judged.bellman[1].rms().unwrap() - expected).abs() < 1e-14);
        let (difference, _) = judged.returns[1].minus(&judged.returns[0]);
        assert_eq!(difference, judged.returns[1].rms());
    }

    /// Episodes of random length, states and rewards.
    fn random(episodes: usize, seed: u64) -> Log {
        let mut s = stream(seed, Purpose::Fresh, 0, 0);
        let mut log = chain(0).filtered(|_| false);
        for episode in 0..episodes {
            let length = 1 + (s.uniform() * 6.0) as usize;
            let (level, mut x) = (s.normal(), s.normal());
            for step in 0..length {
                let following = 0.5 * x + s.normal();
                log.states.push(x);
                log.next.push(following);
                log.rewards.push(level + s.normal());
                log.done.push(step + 1 == length && s.uniform() < 0.8);
                log.episode.as_mut().unwrap().push(episode as i64);
                x = following;
            }
        }
        log
    }

    #[test]
    fn standard_errors_are_those_of_the_jackknife_and_of_repetition() {
        let map = FeatureMap::new(&FeatureSpec::Identity { bias: true }, &["s_0".into()], &Ranges::new()).unwrap();
        let theta: [&[f64]; 2] = [&[1.0, 0.5], &[-0.5, 1.0]];
        let log = random(400, 1);
        let judged = judge(&log, &map, rule(0.9), &theta).unwrap();
        // Each episode left out in turn.
        let rms = |judged: &Judged| {
            let [a, b] = [0, 1].map(|j| (judged.bellman[j].rms().unwrap(), judged.returns[j].rms().unwrap()));
            [a.0, a.1, b.0 - a.0, b.1 - a.1]
        };
        let whole = judged.returns[0].parts[0].episodes.len() as f64;
        let left_out: Vec<[f64; 4]> = (0..400)
            .map(
                |episode| rms(&judge(&log.filtered(|row| log.episode.as_ref().unwrap()[row] != episode), &map, rule(0.9), &theta).unwrap()),
            )
            .collect();
        let stated = [
            judged.bellman[0].standard_error(),
            judged.returns[0].standard_error(),
            judged.bellman[1].minus(&judged.bellman[0]).1,
            judged.returns[1].minus(&judged.returns[0]).1,
        ];
        for (i, stated) in stated.into_iter().enumerate() {
            let count = if i % 2 == 0 { 400.0 } else { whole };
            let all = rms(&judged)[i];
            let jackknife = ((count - 1.0) / count * left_out.iter().map(|x| (x[i] - all).powi(2)).sum::<f64>()).sqrt();
            assert!((stated.unwrap() / jackknife - 1.0).abs() < 0.02, "{i}: {stated:?} {jackknife}");
        }
    }

    /// An agent with a single episode among agents with many: its part is from how it differs from them.
    #[test]
    fn a_single_episode_of_one_agent_leaves_the_error_of_all_known() {
        let map = identity();
        let theta: [&[f64]; 2] = [&[1.0], &[-0.5]];
        let judged: Vec<Judged> = [(400, 5), (1, 6)]
            .map(|(episodes, seed)| {
                let mut log = random(episodes, seed);
                // The last row of the single episode ends it, so that it has returns.
                *log.done.last_mut().unwrap() = true;
                judge(&log, &map, rule(0.9), &theta).unwrap()
            })
            .into();
        assert_eq!(judged[1].bellman[0].standard_error(), None);
        fn bellman(judged: &Judged) -> &[Errors] {
            &judged.bellman
        }
        fn against_returns(judged: &Judged) -> &[Errors] {
            &judged.returns
        }
        for pick in [bellman, against_returns] {
            let of_all = |j: usize| Errors::of_all(judged.iter().map(|judged| &pick(judged)[j]));
            let (large, all) = (&pick(&judged[0])[0], of_all(0));
            assert_eq!((all.single_episodes(), large.single_episodes()), (1, 0));
            // One of 401 episodes changes little.
            let (se, of_large) = (all.standard_error().unwrap(), large.standard_error().unwrap());
            assert!((se / of_large - 1.0).abs() < 0.1, "{se}, {of_large}");
            assert!(all.minus(&of_all(1)).1.is_some());
            // Agents with an episode each are the sample.
            let single = &pick(&judged[1])[0];
            assert_eq!(Errors::of_all([single, single]).standard_error().map(|se| se < 1e-12), Some(true), "they are alike");
        }
    }

    #[test]
    fn what_is_rounding_is_told_by_the_size_of_the_values() {
        // Values that are exact up to a rounding in the last digits, of a size of 2e8.
        let mut log = chain(4);
        log.rewards.iter_mut().for_each(|r| *r *= 1e8);
        let judged = judge(&log, &identity(), rule(1.0), &[&[-1e8], &[-1e8 * (1.0 + 1e-14)], &[-1e8 * (1.0 + 1e-6)]]).unwrap();
        for errors in [&judged.returns, &judged.bellman] {
            let rounding = errors[0].rounding();
            assert!((0.1..1.0).contains(&rounding), "{rounding}");
            assert!(errors[1].rms().unwrap() < rounding && errors[2].rms().unwrap() > rounding);
        }
    }

    /// [`super::split`] of logs that are read in small batches.
    fn split(logs: &[Log], share: f64, seed: u64) -> Result<(Vec<Log>, Vec<Log>)> {
        let sources = logs.iter().map(|log| Box::new(InBatches(log.clone(), 7)) as Box<dyn LogSource>).collect();
        let (fit, held) = super::split(sources, share, seed)?;
        Ok((fit.iter().map(|source| whole(&**source)).collect::<Result<_>>()?, held))
    }

    #[test]
    fn whole_episodes_are_held_out_by_the_seed() {
        let logs = [random(50, 2), random(20, 3)];
        let (fit, held) = split(&logs, 0.2, 7).unwrap();
        for ((log, fit), held) in logs.iter().zip(&fit).zip(&held) {
            let numbers = |log: &Log| log.episode.clone().unwrap().into_iter().collect::<std::collections::BTreeSet<_>>();
            assert!(numbers(fit).is_disjoint(&numbers(held)));
            assert_eq!(numbers(held).len() * 5, numbers(log).len());
            assert_eq!(fit.len() + held.len(), log.len());
            fit.check().unwrap();
            held.check().unwrap();
        }
        assert_eq!(split(&logs, 0.2, 7).unwrap(), (fit, held));
        assert_ne!(split(&logs, 0.2, 8).unwrap().1, split(&logs, 0.2, 7).unwrap().1);
        // However small the share, one episode is held out, and one is left.
        assert_eq!(split(&logs, 1e-9, 0).unwrap().1[0].episode.as_ref().map(|e| e.iter().all(|x| *x == e[0])), Some(true));
        assert_eq!(episodes(&split(&logs, 0.999, 0).unwrap().0[1]).unwrap().len(), 1);
    }

    #[test]
    fn wrong_episodes_are_refused() {
        let log = chain(3);
        let with = |episode: Option<Vec<i64>>| split(&[Log { episode, ..log.clone() }], 0.5, 0).unwrap_err().to_string();
        assert_eq!(with(None), "holdout: chain has no column `episode`");
        assert_eq!(with(Some(vec![4; 11])), "holdout: chain: row 3: episode 4 goes on after it terminated");
        assert_eq!(with(Some(vec![0, 0, 0, 1, 1, 1, 0, 0, 0, 2, 2])), "chain: row 6, `episode`: episode 0 goes on after episode 1");
        let single = log.filtered(|row| row < 3);
        assert_eq!(split(&[single], 0.5, 0).unwrap_err().to_string(), "holdout: chain has a single episode");
        assert!(split(&[log], 1.0, 0).is_err());
    }
}
