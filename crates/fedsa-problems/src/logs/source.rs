//! Logs that are read in batches, as often as needed, so that they need not fit into memory.

use std::sync::{Arc, OnceLock};

use crate::logs::left_out::{LeftOutRows, ResetRows};
use crate::logs::log::{Break, EpisodeEnd, Episodes, LastTransition, Log};
use crate::logs::log_facts::LogFacts;
use fedsa::error::{Error, Result};

/// The columns of a log that are the state, the input of a feature map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inputs {
    /// State columns: `s_*`, followed by `next_*`.
    #[default]
    States,
    /// Logged features: `phi_*`, followed by `phi_next_*`.
    Features,
}

impl Inputs {
    /// The prefixes of the column names of a state and of a next state.
    pub const fn prefixes(self) -> (&'static str, &'static str) {
        match self {
            Inputs::States => ("s_", "next_"),
            Inputs::Features => ("phi_", "phi_next_"),
        }
    }
}

/// Facts from passes over a log.
#[derive(Debug, Default)]
pub struct KnownOfLog {
    pub(crate) facts: OnceLock<LogFacts>,
    pub(crate) resets: OnceLock<ResetRows>,
}

/// One agent's log, which can be read from its start as often as needed.
pub trait LogSource: Send + Sync {
    /// The agent's name in messages and tables.
    fn name(&self) -> &str;
    /// The names of the state columns, k.
    fn columns(&self) -> &[String];
    /// Calls `see` with all transitions, in non-empty batches, in their order. All batches have [`LogSource::name`],
    /// [`LogSource::columns`], and the same optional columns. Numbers may be unchecked.
    ///
    /// # Errors
    /// When the log cannot be read, or the first error of `see`.
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()>;
    /// The store of facts about the log, so that it need not be read again for them.
    fn known(&self) -> Option<&KnownOfLog> {
        None
    }
    /// The rows that the reader has left out so far.
    fn left_out(&self) -> Vec<LeftOutRows> {
        Vec::new()
    }
    /// Whether the reader took each next state from the following row, because the log has no columns of next states.
    fn next_follows(&self) -> bool {
        false
    }
    /// An error of [`read_checked`] in this log, with the place in the user's terms: for a file, its name.
    fn located(&self, e: Error) -> Error {
        e
    }
}

impl LogSource for Log {
    fn name(&self) -> &str {
        &self.name
    }
    fn columns(&self) -> &[String] {
        &self.columns
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        if self.is_empty() { Ok(()) } else { see(self) }
    }
}

impl<S: LogSource> LogSource for Arc<S> {
    fn name(&self) -> &str {
        (**self).name()
    }
    fn columns(&self) -> &[String] {
        (**self).columns()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        (**self).read(see)
    }
    fn known(&self) -> Option<&KnownOfLog> {
        (**self).known()
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        (**self).left_out()
    }
    fn next_follows(&self) -> bool {
        (**self).next_follows()
    }
    fn located(&self, e: Error) -> Error {
        (**self).located(e)
    }
}

/// Logs in memory as sources.
pub fn in_memory(logs: Vec<Log>) -> Vec<Box<dyn LogSource>> {
    logs.into_iter().map(|log| Box::new(log) as Box<dyn LogSource>).collect()
}

/// Consecutive transitions of a log, with the context before them.
#[derive(Debug, Clone, Copy)]
pub struct LogBatch<'a> {
    /// The transitions.
    pub log: &'a Log,
    /// The row of the first.
    pub first: usize,
    /// How the transitions before the first ended; `None` if it continues their episode, or is the first of the log.
    pub end_before: Option<EpisodeEnd>,
    /// Whether the first is cut off from the previous transition ([`Log::is_cut_off`]).
    pub is_cut_off: bool,
}

impl LogBatch<'_> {
    /// Whether a trace starts at transition `i` of the batch ([`Log::begins`]).
    pub fn begins(&self, i: usize) -> bool {
        if i == 0 { self.first == 0 || self.end_before.is_some() } else { self.log.begins(i) }
    }

    /// Whether transition `i` of the batch is the first of an episode ([`Log::starts`]).
    pub fn starts(&self, i: usize) -> bool {
        self.begins(i) && self.log.break_before(i) != Break::LeftOut
    }

    /// How the transitions before transition `i` of the batch ended; `None` if it continues their episode, or is the first of the
    /// log.
    pub fn end_before(&self, i: usize) -> Option<EpisodeEnd> {
        if i == 0 { self.end_before } else { self.log.end_before(i) }
    }

    /// The number of transitions that are cut off from the previous one.
    pub fn cut_off(&self) -> usize {
        usize::from(self.is_cut_off) + (1..self.log.len()).filter(|i| self.log.is_cut_off(*i)).count()
    }
}

/// The last transition of a batch, for the next batch.
struct KeptTransition {
    end: Option<EpisodeEnd>,
    episode: Option<i64>,
    next: Vec<f64>,
}

impl KeptTransition {
    fn of(log: &Log) -> Self {
        let LastTransition { end, episode, next } = LastTransition::of(log, log.len() - 1);
        Self { end, episode, next: next.to_vec() }
    }

    fn view(&self) -> LastTransition<'_> {
        LastTransition { end: self.end, episode: self.episode, next: &self.next }
    }
}

/// Reads a whole log in batches, with the checks of [`Log::check`].
///
/// # Errors
/// As [`LogSource::read`] and [`Log::check`].
pub fn read_checked(source: &dyn LogSource, see: &mut dyn FnMut(LogBatch<'_>) -> Result<()>) -> Result<()> {
    let mut first = 0;
    let mut last: Option<KeptTransition> = None;
    let mut episodes = Episodes::default();
    source.read(&mut |log| {
        log.check_rows(first).map_err(|e| source.located(e))?;
        if let Some(numbers) = &log.episode {
            episodes.see(&log.name, numbers, first).map_err(|e| source.located(e))?;
        }
        let before = last.as_ref().map(KeptTransition::view);
        let end_before = before.and_then(|before| before.end_before(log, 0));
        let is_cut_off = before.is_some_and(|before| before.cuts_off(log, 0));
        see(LogBatch { log, first, end_before, is_cut_off })?;
        last = Some(KeptTransition::of(log));
        first += log.len();
        Ok(())
    })?;
    if first == 0 {
        return Err(source.located(Log::no_transitions(source.name())));
    }
    Ok(())
}

/// The whole log in memory, checked.
///
/// # Errors
/// As [`read_checked`].
pub fn whole(source: &dyn LogSource) -> Result<Log> {
    let mut all: Option<Log> = None;
    read_checked(source, &mut |batch| {
        match &mut all {
            None => all = Some(batch.log.clone()),
            Some(all) => all.append(batch.log),
        }
        Ok(())
    })?;
    Ok(all.expect("an empty log is refused"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A log that is read in batches of this size.
    pub(crate) struct InBatches(pub Log, pub usize);

    impl LogSource for InBatches {
        fn name(&self) -> &str {
            &self.0.name
        }
        fn columns(&self) -> &[String] {
            &self.0.columns
        }
        fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
            let all: Vec<usize> = (0..self.0.len()).collect();
            all.chunks(self.1).try_for_each(|rows| see(&self.0.filtered(|row| rows.contains(&row))))
        }
    }

    fn log() -> Log {
        Log {
            name: "agent".into(),
            columns: vec!["s_x".into()],
            states: (0..9).map(f64::from).collect(),
            rewards: vec![0.0; 9],
            next: (1..10).map(f64::from).collect(),
            done: [2, 5].iter().fold(vec![false; 9], |mut done, i| {
                done[*i] = true;
                done
            }),
            truncated: None,
            breaks: None,
            actions: None,
            episode: Some(vec![0, 0, 0, 1, 1, 1, 2, 2, 3]),
            ratio: None,
        }
    }

    #[test]
    fn batches_are_the_log() {
        let log = log();
        let begins: Vec<bool> = (0..9).map(|i| log.begins(i)).collect();
        for size in 1..=9 {
            let source = InBatches(log.clone(), size);
            assert_eq!(whole(&source).unwrap(), log);
            let mut seen = Vec::new();
            read_checked(&source, &mut |batch| {
                assert_eq!(batch.first, seen.len());
                seen.extend((0..batch.log.len()).map(|i| batch.begins(i)));
                Ok(())
            })
            .unwrap();
            assert_eq!(seen, begins, "{size}");
        }
    }

    /// Without episodes, a transition with an unexpected state is the first of an episode, wherever batches end.
    #[test]
    fn rows_that_do_not_follow_are_cut_off() {
        let mut log = Log { episode: None, ..log() };
        // Rows 1 and 8 begin elsewhere; row 3 follows a terminal transition, after which nothing is cut off.
        for row in [1, 3, 8] {
            log.states[row] += 0.5;
        }
        for size in 1..=9 {
            let (mut cut, mut begins) = (0, Vec::new());
            read_checked(&InBatches(log.clone(), size), &mut |batch| {
                cut += batch.cut_off();
                begins.extend((0..batch.log.len()).filter(|i| batch.begins(*i)).map(|i| batch.first + i));
                Ok(())
            })
            .unwrap();
            assert_eq!((cut, begins), (2, vec![0, 1, 3, 6, 8]), "{size}");
        }
        // Episode numbers, if any, decide.
        let numbered = Log { episode: Some(vec![0; 9]), done: vec![false; 9], ..log };
        assert_eq!((0..9).filter(|i| numbered.begins(*i)).count(), 1);
    }

    #[test]
    fn places_are_those_of_the_log() {
        for size in 1..=9 {
            let error = |change: &dyn Fn(&mut Log)| {
                let mut log = log();
                change(&mut log);
                let e = read_checked(&InBatches(log.clone(), size), &mut |_| Ok(())).unwrap_err();
                assert_eq!(Err(e.clone()), log.check(), "{size}");
                e.to_string()
            };
            assert_eq!(error(&|log| log.rewards[7] = f64::NAN), "agent: row 7, `reward`: NaN is not a finite number");
            let returns = error(&|log| log.episode = Some(vec![3, 3, 0, 1, 1, 2, 2, 1, 5]));
            assert_eq!(returns, "agent: row 7, `episode`: episode 1 goes on after episode 2");
            let returns = error(&|log| log.episode = Some(vec![0, 1, 2, 3, 9, 10, 10, 2, 5]));
            assert_eq!(returns, "agent: row 7, `episode`: episode 2 goes on after episode 10");
            assert_eq!(error(&|log| *log = log.filtered(|_| false)), "agent: a log without transitions");
        }
    }
}
