//! A summary of an agent's episodes, before any fit.

use crate::logs::episode::{EpisodeEvent, read_episodes};
use crate::logs::log::EpisodeEnd;
use crate::logs::source::LogSource;
use fedsa::columns::RunningMoments;
use fedsa::error::Result;

/// The episodes of one agent's log.
///
/// Parts of episodes whose start was left out ([`EpisodePart::has_start`](crate::logs::episode::EpisodePart::has_start)) count as episodes
/// with their end, but without a return.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub struct EpisodeSummary {
    /// The number of transitions.
    pub transitions: usize,
    /// The terminated episodes.
    pub ended: usize,
    /// The truncated episodes.
    pub truncated: usize,
    /// The episodes cut off by the end of the log or a gap.
    pub cut: usize,
    /// The transitions marked as both terminal and truncated, which count as terminal.
    pub both: usize,
    /// The transitions of numbered episodes that begin in another state than the previous next state of their episode: their rows are not
    /// in the order of time.
    pub jumps: usize,
    /// The transitions that follow an episode's marked end under its number; they start a new episode.
    pub resumed: usize,
    /// Discounted returns `sum_t gamma^t r_t` of terminated and truncated episodes.
    returns: RunningMoments,
    /// The least and the greatest reward; `None` without transitions.
    pub rewards: Option<(f64, f64)>,
    /// The least and the greatest of these returns, and 0.
    pub return_range: (f64, f64),
}

impl EpisodeSummary {
    /// Reads a log.
    ///
    /// # Errors
    /// When the log cannot be read or used.
    pub fn of(source: &dyn LogSource, gamma: f64) -> Result<Self> {
        let mut all = Self::default();
        let (mut value, mut weight) = (0.0, 1.0);
        // Of the previous row: whether it is marked as an end, its episode number, and its next state.
        let (mut ended, mut last, mut before): (bool, Option<i64>, Vec<f64>) = (false, None, Vec::new());
        read_episodes(source, &mut |event| {
            match event {
                EpisodeEvent::Step { batch, i, begins, .. } => {
                    let log = batch.log;
                    if begins {
                        (value, weight) = (0.0, 1.0);
                    }
                    let number = log.episode.as_ref().map(|all| all[i]);
                    all.jumps += usize::from(!begins && before != log.state(i));
                    all.resumed += usize::from(ended && number.is_some() && number == last);
                    value += weight * log.rewards[i];
                    weight *= gamma;
                    all.rewards = hull(all.rewards, Some((log.rewards[i], log.rewards[i])));
                    all.transitions += 1;
                    let is_truncated = log.truncated.as_ref().is_some_and(|truncated| truncated[i]);
                    all.both += usize::from(log.done[i] && is_truncated);
                    (ended, last) = (log.done[i] || is_truncated, number);
                    before.clear();
                    before.extend_from_slice(log.next_state(i));
                }
                EpisodeEvent::End(part) => {
                    match part.end {
                        EpisodeEnd::Terminated => all.ended += 1,
                        EpisodeEnd::Truncated => all.truncated += 1,
                        EpisodeEnd::Cut => all.cut += 1,
                    }
                    if part.has_start && part.end != EpisodeEnd::Cut {
                        all.returns.see(value);
                        all.return_range = (all.return_range.0.min(value), all.return_range.1.max(value));
                    }
                }
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// The number of episodes.
    pub fn episodes(&self) -> usize {
        self.ended + self.truncated + self.cut
    }

    /// The summary of all agents.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self {
            transitions: self.transitions + other.transitions,
            ended: self.ended + other.ended,
            truncated: self.truncated + other.truncated,
            cut: self.cut + other.cut,
            both: self.both + other.both,
            jumps: self.jumps + other.jumps,
            resumed: self.resumed + other.resumed,
            returns: self.returns.join(other.returns),
            rewards: hull(self.rewards, other.rewards),
            return_range: (self.return_range.0.min(other.return_range.0), self.return_range.1.max(other.return_range.1)),
        }
    }

    /// The number, the mean and the standard deviation (with the number as the divisor) of the returns of terminated and truncated
    /// episodes; `None` if there are none.
    pub fn returns(&self) -> Option<(usize, f64, f64)> {
        let (mean, deviation) = self.returns.mean_and_deviation();
        (self.returns.count() > 0).then_some((self.returns.count(), mean, deviation))
    }

    /// Whether most rows of `agents` agents are out of the order of time, so that episodes and their starts are unknown.
    pub fn is_shuffled(&self, agents: usize) -> bool {
        2 * (self.cut + self.jumps) > self.transitions && self.transitions > agents
    }
}

/// The smallest range that contains both.
fn hull(a: Option<(f64, f64)>, b: Option<(f64, f64)>) -> Option<(f64, f64)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::log::Log;

    fn log() -> Log {
        Log {
            name: "agent".into(),
            columns: vec!["s_x".into()],
            states: vec![0.0, 1.0, 0.0, 5.0, 7.0, 0.0, 1.0],
            rewards: vec![1.0, 2.0, 4.0, 8.0, 0.0, 3.0, 1.0],
            next: vec![1.0, 2.0, 5.0, 7.0, 0.0, 1.0, 2.0],
            done: vec![false, true, false, false, false, false, false],
            truncated: Some(vec![false, false, false, true, false, false, false]),
            breaks: None,
            episode: None,
            ratio: None,
            actions: None,
        }
    }

    /// Rows of numbered episodes out of order, and an episode that resumes after its end.
    #[test]
    fn rows_out_of_order_are_counted() {
        let numbered = |episode: Vec<i64>| EpisodeSummary::of(&Log { episode: Some(episode), ..log() }, 0.5).unwrap();
        let all = numbered(vec![1, 1, 2, 2, 3, 4, 4]);
        assert_eq!((all.jumps, all.resumed, all.is_shuffled(1)), (0, 0, false));
        // Row 2 begins a new episode with the number of the terminated one; row 4 begins in another state.
        let all = numbered(vec![1, 1, 1, 1, 4, 5, 5]);
        assert_eq!((all.jumps, all.resumed), (0, 1));
        let shuffled = Log { states: vec![9.0; 7], truncated: None, done: vec![false; 7], episode: Some(vec![1; 7]), ..log() };
        let all = EpisodeSummary::of(&shuffled, 0.5).unwrap();
        assert_eq!((all.jumps, all.is_shuffled(1)), (6, true));
    }

    #[test]
    fn episodes_are_counted_with_their_returns() {
        let all = EpisodeSummary::of(&log(), 0.5).unwrap();
        assert_eq!((all.transitions, all.ended, all.truncated, all.cut, all.episodes()), (7, 1, 1, 1, 3));
        // 1 + 2/2, and 4 + 8/2; the last episode extends beyond the log.
        assert_eq!(all.returns(), Some((2, 5.0, 3.0)));
        assert_eq!(all.both, 0);
        let more = all.join(EpisodeSummary::of(&Log { done: vec![true; 7], ..log() }, 0.5).unwrap());
        assert_eq!((more.transitions, more.ended, more.both), (14, 8, 1));
        let (count, mean, _) = more.returns().unwrap();
        assert!(count == 9 && (mean - (10.0 + 19.0) / 9.0).abs() < 1e-14, "{mean}");
    }
}
