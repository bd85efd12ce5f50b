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

mod errors;
mod judge;

use std::ops::Range;

use super::left_out::LeftOutRows;
use super::log::Log;
use super::source::{LogSource, read_checked};
use crate::error::{Error, Result, quoted, require};
use crate::parallel;
use crate::random::{Purpose, stream};
pub use errors::Errors;
pub use judge::{Judged, judge, returns};

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
        Error::data("holdout", what, "logs whose column `episode` numbers the episodes: whole episodes are held out")
    })
}

fn goes_on(name: &str, row: usize, number: i64) -> Error {
    bad_episode(name, row, number, "goes on after it terminated")
}

fn bad_episode(name: &str, row: usize, number: i64, what: &str) -> Error {
    Error::data(
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
    fn left_out(&self) -> Vec<LeftOutRows> {
        self.source.left_out()
    }
    fn next_follows(&self) -> bool {
        self.source.next_follows()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        read_some(&*self.source, &|episode| !self.held[episode], see)
    }
    fn located(&self, e: Error) -> Error {
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
            return Err(Error::data("holdout", what, "at least two episodes an agent: one for the fit, and one that is held out"));
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

#[cfg(test)]
mod tests {
    use super::super::features::{FeatureMap, FeatureSpec, Ranges};
    use super::super::log::Break;
    use super::super::log_means::TraceRule;
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
            truncated: None,
            breaks: None,
            actions: None,
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
        let broken = Log { breaks: Some(vec![Break::None, Break::LeftOut, Break::None]), ..log.clone() };
        assert_eq!(returns(&broken, off).unwrap(), [None, Some(-2.0), Some(-1.0)], "what came between is not known");
        let judged = judge(&broken, &identity(), off, &[&[-2.0]]).unwrap();
        assert_eq!((judged.episodes_cut, judged.transitions_cut), (0, 1));
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
