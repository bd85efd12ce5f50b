//! A log as estimators of values see it: features, ratios, and where episodes begin and end.

use super::super::episode::{EpisodeEvent, read_episodes};
use super::super::features::FeatureMap;
use super::super::log::{Break, EpisodeEnd};
use super::super::log_means::TraceRule;
use super::super::source::LogSource;
use crate::error::Result;

/// One transition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    /// The features of the state, of which `v(s)` is a linear function.
    pub here: &'a [f64],
    /// The features of what was done in it, of which `q(s, a)` is: those of the state where actions are not described.
    pub acted: &'a [f64],
    /// The features of the next state; `None` where the episode terminated.
    pub next: Option<&'a [f64]>,
    pub reward: f64,
    /// The importance ratio, 1 where none are used.
    pub ratio: f64,
    /// Whether it is the first of a part, where traces start anew.
    pub begins: bool,
    /// Whether it is the first of its episode.
    pub starts: bool,
    /// Whether it belongs to another episode than the transition before. Parts that rows were left out between are of one episode where
    /// it has a number.
    pub is_new: bool,
}

impl Step<'_> {
    /// `out = q's features - gamma (those of the next state)`.
    pub fn difference(&self, gamma: f64, out: &mut [f64]) {
        out.copy_from_slice(self.acted);
        if let Some(next) = self.next {
            out.iter_mut().zip(next).for_each(|(psi, y)| *psi = (-gamma).mul_add(*y, *psi));
        }
    }

    /// `delta = r + gamma v(s') - q(s, a)` at these weights.
    pub fn error(&self, gamma: f64, theta: &[f64]) -> f64 {
        let next = self.next.map_or(0.0, |next| gamma * dot(next, theta));
        self.reward + next - dot(self.acted, theta)
    }
}

/// What [`walk`] tells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Walk<'a> {
    /// The next transition.
    Step(Step<'a>),
    /// The part of an episode that the last transition belongs to has ended.
    End(EpisodeEnd),
}

/// Walks along a log.
///
/// # Errors
/// When it cannot be read.
pub(super) fn walk(source: &dyn LogSource, map: &FeatureMap, rule: TraceRule, see: &mut dyn FnMut(Walk<'_>)) -> Result<()> {
    let d = map.len();
    let (mut here, mut next) = (vec![0.0; d], vec![0.0; d]);
    // The next state of the transition before, whose features are in `next`; empty after a terminal state.
    let mut following: Vec<f64> = Vec::new();
    let mut last: Option<(Option<i64>, EpisodeEnd)> = None;
    read_episodes(source, &mut |event| {
        match event {
            EpisodeEvent::End(part) => {
                if let Some((_, end)) = &mut last {
                    *end = part.end;
                }
                see(Walk::End(part.end));
            }
            EpisodeEvent::Step { batch, i, starts, begins } => {
                let log = batch.log;
                let number = log.episode.as_ref().map(|all| all[i]);
                // After rows that were left out the episode may still be the one before.
                let is_same = || last.is_some_and(|(before, end)| end == EpisodeEnd::Cut && number.is_some() && before == number);
                let is_new = begins && (starts || log.break_before(i) == Break::Stream || !is_same());
                last = Some((number, EpisodeEnd::Cut));
                if following == log.state(i) {
                    std::mem::swap(&mut here, &mut next);
                } else {
                    map.eval(log.state(i), &mut here);
                }
                following.clear();
                if !log.done[i] {
                    map.eval(log.next_state(i), &mut next);
                    following.extend(log.next_state(i));
                }
                see(Walk::Step(Step {
                    here: &here,
                    acted: &here,
                    next: (!log.done[i]).then_some(&next[..]),
                    reward: log.rewards[i],
                    ratio: rule.ratio(&batch, i),
                    begins,
                    starts,
                    is_new,
                }));
            }
        }
        Ok(())
    })
}

/// `phi' theta`.
pub(super) fn dot(phi: &[f64], theta: &[f64]) -> f64 {
    phi.iter().zip(theta).map(|(x, w)| x * w).sum()
}
