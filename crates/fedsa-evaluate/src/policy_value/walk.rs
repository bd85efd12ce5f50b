//! A log in the form that estimators of values need: features, ratios, and the starts and ends of episodes.

use fedsa::error::Result;
use fedsa::kernel::{Isa, products};
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::block_features::BlockFeatures;
use fedsa_problems::logs::episode::{EpisodeEvent, read_episodes};
use fedsa_problems::logs::log::{Break, EpisodeEnd, Log};
use fedsa_problems::logs::log_means::TraceRule;
use fedsa_problems::logs::source::LogSource;

/// The features of which values are linear functions: of states, or of actions in states.
#[derive(Debug, Clone, Copy)]
pub(super) struct View<'a> {
    pub map: &'a FeatureMap,
    /// The number of actions K; `None` for features of states. An action's features are the state's in the block of the action, d K
    /// numbers. A state's features are then the mean over actions under the evaluated policy.
    pub actions: Option<usize>,
    /// The number of agents whose logs are read at the same time.
    pub agents: usize,
}

impl View<'_> {
    /// The number of features.
    pub fn len(&self) -> usize {
        self.map.len() * self.actions.unwrap_or(1)
    }

    /// The features of a state whose actions have these probabilities.
    fn mean(&self, phi: &[f64], law: &[f64], out: &mut [f64]) {
        for (block, p) in out.chunks_exact_mut(phi.len()).zip(law) {
            block.iter_mut().zip(phi).for_each(|(out, x)| *out = p * x);
        }
    }

    /// The features of an action.
    fn of_action(&self, phi: &[f64], action: usize, out: &mut [f64]) {
        out.fill(0.0);
        out[action * phi.len()..(action + 1) * phi.len()].copy_from_slice(phi);
    }
}

/// The features of one transition's actions, as in [`Step`].
struct ActionFeatures {
    here: Vec<f64>,
    acted: Vec<f64>,
    next: Vec<f64>,
}

impl ActionFeatures {
    fn set(&mut self, view: &View<'_>, log: &Log, i: usize, here: &[f64], next: &[f64]) {
        let Some(actions) = &log.actions else { return };
        let row = i * actions.count..(i + 1) * actions.count;
        view.mean(here, &actions.here[row.clone()], &mut self.here);
        view.mean(next, &actions.next[row], &mut self.next);
        view.of_action(here, actions.taken[i] as usize, &mut self.acted);
    }
}

/// One transition.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    /// The features of the state, of which `v(s)` is a linear function.
    pub here: &'a [f64],
    /// The features of the action in it, of which `q(s, a)` is a linear function; the state's features if actions are not described.
    pub acted: &'a [f64],
    /// The features of the next state; `None` if the episode terminated.
    pub next: Option<&'a [f64]>,
    pub reward: f64,
    /// The importance ratio; 1 if none are used.
    pub ratio: f64,
    /// Whether it is the first of a part, where traces restart.
    pub begins: bool,
    /// Whether it is the first of its episode.
    pub starts: bool,
    /// Whether it belongs to another episode than the transition before. If episodes have numbers, parts separated by omitted rows
    /// belong to the same episode.
    pub is_new: bool,
}

impl Step<'_> {
    /// `out = q's features - gamma (the next state's features)`.
    pub fn difference(&self, gamma: f64, out: &mut [f64]) {
        match self.next {
            None => out.copy_from_slice(self.acted),
            Some(next) => products::along(Isa::best(), out, self.acted, -gamma, next),
        }
    }

    /// `delta = r + gamma v(s') - q(s, a)` at these weights.
    pub fn error(&self, gamma: f64, theta: &[f64]) -> f64 {
        let next = self.next.map_or(0.0, |next| gamma * dot(next, theta));
        self.reward + next - dot(self.acted, theta)
    }
}

/// The events of [`walk`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Walk<'a> {
    /// The next transition.
    Step(Step<'a>),
    /// The part of an episode with the last transition has ended.
    End(EpisodeEnd),
}

/// Calls `see` with the transitions of a log.
///
/// # Errors
/// When the log cannot be read.
pub(super) fn walk(source: &dyn LogSource, view: View<'_>, rule: TraceRule, see: &mut dyn FnMut(Walk<'_>)) -> Result<()> {
    let mut features = BlockFeatures::new(view.map, view.agents);
    let mut last: Option<(Option<i64>, EpisodeEnd)> = None;
    let blank = || vec![0.0; view.actions.map_or(0, |_| view.len())];
    let mut actions = ActionFeatures { here: blank(), acted: blank(), next: blank() };
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
                // After omitted rows the episode may still be the one before.
                let is_same = || last.is_some_and(|(before, end)| end == EpisodeEnd::Cut && number.is_some() && before == number);
                let is_new = begins && (starts || log.break_before(i) == Break::Stream || !is_same());
                last = Some((number, EpisodeEnd::Cut));
                let [here, next] = features.of(log, i);
                let (value, acted, after) = if view.actions.is_some() {
                    actions.set(&view, log, i, here, next);
                    (&actions.here[..], &actions.acted[..], &actions.next[..])
                } else {
                    (here, here, next)
                };
                see(Walk::Step(Step {
                    here: value,
                    acted,
                    next: (!log.done[i]).then_some(after),
                    reward: log.rewards[i],
                    ratio: rule.ratio(batch, i),
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
