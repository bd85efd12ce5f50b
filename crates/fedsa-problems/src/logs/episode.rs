//! Episodes of a log while it is read: where each begins, and how it ended.
//!
//! An episode begins after `done` or `truncated`, at a change of `episode`, or at a state other than the previous next state
//! ([`Log::begins`]). Transitions after left-out rows form a part of an episode without its start. The end of a part is known with the next
//! transition, or at the end of the log.
//!
//! [`Log::begins`]: crate::logs::log::Log::begins

use crate::logs::log::EpisodeEnd;
use crate::logs::source::{LogBatch, LogSource, read_checked};
use fedsa::error::Result;

/// Consecutive transitions of an episode: a part, or the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpisodePart {
    /// The row of the first transition.
    pub first: usize,
    /// The number of transitions.
    pub len: usize,
    /// Whether the first transition starts its episode ([`Log::starts`](crate::logs::log::Log::starts)).
    pub has_start: bool,
    /// How it ended.
    pub end: EpisodeEnd,
}

impl EpisodePart {
    /// Whether this is a whole episode that terminated.
    pub fn is_complete(&self) -> bool {
        self.has_start && self.end == EpisodeEnd::Terminated
    }
}

/// An event of [`read_episodes`].
#[derive(Debug, Clone, Copy)]
pub enum EpisodeEvent<'a> {
    /// The next transition.
    Step {
        /// The batch with it.
        batch: &'a LogBatch<'a>,
        /// Its index in the batch.
        i: usize,
        /// Whether it is the first of an episode.
        starts: bool,
        /// Whether it is the first of a part.
        begins: bool,
    },
    /// The end of the last transition's part.
    End(EpisodePart),
}

/// Reads a whole log, transition by transition and part by part: first transitions, further transitions, ends.
///
/// # Errors
/// As [`read_checked`], or the first error of `see`.
pub fn read_episodes(source: &dyn LogSource, see: &mut dyn FnMut(EpisodeEvent<'_>) -> Result<()>) -> Result<()> {
    let mut part = EpisodePart { first: 0, len: 0, has_start: false, end: EpisodeEnd::Cut };
    let mut last = EpisodeEnd::Cut;
    read_checked(source, &mut |batch| {
        for i in 0..batch.log.len() {
            let (begins, starts) = (batch.begins(i), batch.starts(i));
            if begins {
                if part.len > 0 {
                    see(EpisodeEvent::End(EpisodePart { end: batch.end_before(i).unwrap_or(EpisodeEnd::Cut), ..part }))?;
                }
                part = EpisodePart { first: batch.first + i, len: 0, has_start: starts, end: EpisodeEnd::Cut };
            }
            part.len += 1;
            see(EpisodeEvent::Step { batch: &batch, i, starts, begins })?;
        }
        last = batch.log.marked_end(batch.log.len() - 1).unwrap_or(EpisodeEnd::Cut);
        Ok(())
    })?;
    see(EpisodeEvent::End(EpisodePart { end: last, ..part }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::log::{Break, Log};
    use crate::logs::source::tests::InBatches;

    /// Twelve transitions along a line, one state each.
    fn line() -> Log {
        Log {
            name: "agent".into(),
            columns: vec!["s_x".into()],
            states: (0..12).map(f64::from).collect(),
            rewards: vec![1.0; 12],
            next: (1..13).map(f64::from).collect(),
            done: vec![false; 12],
            truncated: None,
            breaks: None,
            actions: None,
            episode: None,
            ratio: None,
        }
    }

    fn marked(rows: &[usize]) -> Vec<bool> {
        (0..12).map(|row| rows.contains(&row)).collect()
    }

    /// The parts of a log as text: the rows, with `s` for a start, and the end.
    fn parts(log: &Log) -> String {
        let of = |size: usize| {
            let (mut text, mut steps) = (Vec::new(), Vec::new());
            read_episodes(&InBatches(log.clone(), size), &mut |event| {
                match event {
                    EpisodeEvent::Step { batch, i, starts, begins } => {
                        assert_eq!(begins, steps.is_empty(), "{size}");
                        assert!(begins || !starts);
                        steps.push(batch.first + i);
                    }
                    EpisodeEvent::End(part) => {
                        assert_eq!(steps, (part.first..part.first + part.len).collect::<Vec<_>>(), "{size}");
                        let start = if part.has_start { "s" } else { "" };
                        text.push(format!("{}-{}{start} {:?}", part.first, part.first + part.len - 1, part.end));
                        steps.clear();
                    }
                }
                Ok(())
            })
            .unwrap();
            text.join(", ")
        };
        let whole = of(12);
        assert!((1..12).all(|size| of(size) == whole), "{whole}");
        whole
    }

    #[test]
    fn parts_end_as_they_are_marked() {
        assert_eq!(parts(&line()), "0-11s Cut");
        let log = Log { done: marked(&[3, 11]), truncated: Some(marked(&[3, 6])), ..line() };
        assert_eq!(parts(&log), "0-3s Terminated, 4-6s Truncated, 7-11s Terminated");
        let log = Log { truncated: Some(marked(&[11])), episode: Some((0..12).map(|row| row / 5).collect()), ..line() };
        assert_eq!(parts(&log), "0-4s Truncated, 5-9s Truncated, 10-11s Truncated");
    }

    #[test]
    fn parts_end_where_rows_do_not_follow() {
        let mut log = line();
        log.states[4] = -1.0;
        assert_eq!(parts(&log), "0-3s Cut, 4-11s Cut");
        // A truncation explains the change of state, and nothing is cut off.
        let log = Log { truncated: Some(marked(&[3])), ..log };
        assert_eq!((parts(&log), (1..12).any(|i| log.is_cut_off(i))), ("0-3s Truncated, 4-11s Cut".into(), false));
    }

    #[test]
    fn breaks_end_parts_and_rows_that_were_left_out_hide_starts() {
        let breaks = |row: usize, kind: Break| {
            let mut breaks = vec![Break::None; 12];
            breaks[row] = kind;
            Some(breaks)
        };
        let left_out = Log { breaks: breaks(5, Break::LeftOut), ..line() };
        assert_eq!(parts(&left_out), "0-4s Cut, 5-11 Cut");
        assert_eq!(parts(&Log { episode: Some(vec![7; 12]), ..left_out.clone() }), "0-4s Cut, 5-11 Cut");
        assert_eq!(parts(&Log { done: marked(&[4]), ..left_out }), "0-4s Terminated, 5-11 Cut");
        assert_eq!(parts(&Log { breaks: breaks(0, Break::LeftOut), ..line() }), "0-11 Cut");
        let stream = Log { breaks: breaks(5, Break::Stream), ..line() };
        assert_eq!(parts(&stream), "0-4s Cut, 5-11s Cut");
        assert_eq!((stream.cut_off_count(), stream.begins(5), stream.begins(6)), (0, true, false));
    }

    impl Log {
        fn cut_off_count(&self) -> usize {
            (0..self.len()).filter(|i| self.is_cut_off(*i)).count()
        }
    }

    #[test]
    fn complete_episodes_have_a_start_and_a_terminal_state() {
        let part = |has_start: bool, end: EpisodeEnd| EpisodePart { first: 0, len: 1, has_start, end }.is_complete();
        assert!(part(true, EpisodeEnd::Terminated));
        assert!(!part(false, EpisodeEnd::Terminated) && !part(true, EpisodeEnd::Truncated) && !part(true, EpisodeEnd::Cut));
    }
}
