//! Held-out episodes: a random share of each agent's episodes, which the agent does not use.

use std::ops::Range;

use crate::logs::left_out::LeftOutRows;
use crate::logs::log::Log;
use crate::logs::source::{LogSource, read_checked};
use fedsa::error::{Error, Result, quoted, require};
use fedsa::parallel;
use fedsa::random::{Purpose, stream};

/// The episodes of a log as ranges of rows.
///
/// # Errors
/// When the log has no episodes, an episode resumes after another one, or continues after it terminated.
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
        Error::data(
            "holdout",
            what,
            "logs whose column `episode` numbers the episodes, because whole episodes are held out; or a holdout of 0",
        )
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

/// A log without its held-out episodes.
struct Rest {
    source: Box<dyn LogSource>,
    /// Whether each episode is held out.
    held: Vec<bool>,
}

/// Calls `see` with the transitions of the episodes whose index `keep` accepts.
fn read_some(source: &dyn LogSource, keep: &dyn Fn(usize) -> bool, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
    // The last transition's episode number in the file, and its index.
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

/// The logs for the fit, and the held-out logs.
pub type HoldoutSplit = (Vec<Box<dyn LogSource>>, Vec<Log>);

/// Splits logs into a part for the fit and a held-out part. Of each agent's E episodes, `share E` drawn at random are held out, rounded to
/// a whole number from 1 to E - 1. The held-out part is kept in memory.
///
/// # Errors
/// As [`episodes`]; when the share is not in (0, 1), a log cannot be read, or an agent has fewer than two episodes.
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
    use super::*;
    use crate::logs::source::tests::InBatches;
    use crate::logs::source::whole;

    /// `times` episodes of a chain 3, 2, 1 with reward -1 per step; the last is cut after two steps.
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

    /// [`super::split`] of logs read in small batches.
    fn split(logs: &[Log], share: f64, seed: u64) -> Result<(Vec<Log>, Vec<Log>)> {
        let sources = logs.iter().map(|log| Box::new(InBatches(log.clone(), 7)) as Box<dyn LogSource>).collect();
        let (fit, held) = super::split(sources, share, seed)?;
        Ok((fit.iter().map(|source| whole(&**source)).collect::<Result<_>>()?, held))
    }

    #[test]
    fn whole_episodes_are_held_out_by_the_seed() {
        let logs = [chain(49), chain(19)];
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
        // Even a tiny share holds out one episode, and one is left.
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
