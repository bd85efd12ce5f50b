//! The value of a policy from sums over the episodes of agents elsewhere, stage by stage: each stage needs the sums of those before.
//!
//! ```text
//! 0  agents, transitions, with ratios, of these without clipping, clipped, agents with wrong ratios,
//!    rows out of order (cut + jumps), episodes longer than 2^k steps (k = 0..14);
//!    for each of 5 folds: A (d x d, by columns), b, transitions, starts, features of start states
//! 1  squares by fitted values, sums of mean ratios and of their squares;
//!    episodes, sum of V, returns, v(s_0), cut episodes, bootstrapped values and features; with ratios the weights by step
//! 2  squares of V; with ratios the sum of h of the self-normalised estimate
//! 3  squares of h
//! ```
//!
//! Without ratios, stage 2 is the last one. The estimates are those of all agents together: values of single agents are not in the sums.

use fedsa::error::{Error, Result};
use fedsa::linalg;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::logs::log_summary::EpisodeSummary;
use fedsa_problems::logs::ratio_means::WrongRatios;
use fedsa_problems::logs::survey::Surveyed;

use super::cut::{self, Bootstrapped, ByWeights};
use super::estimates::{EstimateTable, FittedValue, WeightedValue};
use super::fitted::{self, Fit, Squares, Starts};
use super::folds::{self, EpisodeSums, FOLDS, FitRule, FoldDraw};
use super::importance::{self, Episodes};
use super::normalised::Normaliser;
use super::walk::{View, Walk, walk};
use super::weights::{HORIZON, Weights};
use super::{MAX_FEATURES, PolicyValue, PolicyValueSettings, ValueEstimate};
use fedsa_problems::logs::log_means::TraceRule;

/// Episodes are counted by their lengths up to 2^14, the horizon of weights.
const LENGTHS: usize = 15;
/// The counts before the folds.
const COUNTS: usize = 7 + LENGTHS;
/// The numbers of stage 1 before the bootstrapped features.
const EPISODES: usize = 9;

/// A value computed stage by stage. Both ends have the same rule and settings.
#[derive(Debug, Clone, Copy)]
pub struct ValueStages {
    rule: TraceRule,
    settings: PolicyValueSettings,
    /// The number of features d.
    d: usize,
}

/// What follows from the sums of some stages.
#[derive(Debug)]
pub enum AfterStages {
    /// The number of numbers that every agent sends in the next stage.
    Next(usize),
    /// The value; the reason why there is none.
    Done(std::result::Result<Box<PolicyValue>, &'static str>),
}

/// The sums of stage 0.
struct First<'a> {
    counts: &'a [f64],
    folds: Vec<EpisodeSums>,
    total: EpisodeSums,
}

impl First<'_> {
    fn has_ratios(&self) -> bool {
        self.counts[2] > 0.0
    }

    /// The most steps of an episode for which weights are kept: a power of two.
    fn steps(&self) -> usize {
        (0..LENGTHS).find(|k| self.counts[7 + k] == 0.0).map_or(HORIZON, |k| 1 << k)
    }

    fn no_value(&self) -> Option<&'static str> {
        if 2.0 * self.counts[6] > self.counts[1] && self.counts[1] > self.counts[0] {
            return Some("rows are not in the order of time, so that the starts of episodes are unknown");
        }
        if self.counts[5] > 0.0 {
            return Some("importance ratios of an agent do not fit these policies: their mean is not near 1");
        }
        (self.total.starts == 0.0).then_some("no log has the start of an episode")
    }
}

impl ValueStages {
    /// The value of a policy under this rule, with d features. The ridge refers to each transition.
    pub fn new(rule: TraceRule, settings: PolicyValueSettings, d: usize) -> Self {
        Self { rule, settings, d }
    }

    fn fit_rule(&self) -> FitRule {
        FitRule { trace: self.rule, weighted: true, ridge: self.settings.ridge, is_relative: self.settings.is_relative }
    }

    fn first<'a>(&self, sums: &'a [f64]) -> First<'a> {
        let (counts, rest) = sums.split_at(COUNTS);
        let of = |numbers: &[f64]| sums_of(self.d, numbers);
        let folds: Vec<EpisodeSums> = rest.chunks_exact(fold_numbers(self.d)).map(of).collect();
        let total = EpisodeSums::total(&folds, self.d);
        First { counts, folds, total }
    }

    /// The sums of an agent in the next stage, after these sums of all agents in the stages before. `logs` are those of the agent with
    /// this number.
    ///
    /// # Errors
    /// When the log cannot be read; when there is no such stage.
    pub fn of_agent(&self, logs: &Surveyed, map: &FeatureMap, agent: usize, before: &[Vec<f64>]) -> Result<Vec<f64>> {
        let (view, rule) = (View { map, actions: None, agents: 1 }, self.fit_rule());
        let draw = || FoldDraw::new(self.settings.seed, agent);
        let [source] = &logs.sources[..] else { return Err(Error::data("data", "several logs", "one log, which is one agent's")) };
        let Some(first) = before.first() else {
            let mut out = self.counts(logs, view)?;
            folds::of_agent(&**source, view, rule, &mut draw())?.iter().for_each(|fold| push(fold, &mut out));
            return Ok(out);
        };
        let first = self.first(first);
        let thetas = importance::weights_of_folds(&first.folds, &first.total, rule);
        let episodes = importance::of_agent(&**source, view, rule, &thetas, draw())?;
        let Some(second) = before.get(1) else {
            let fit = Fit::new(first.total.clone(), rule);
            let starts = Starts::new(fit.sums.starts, fit.sums.mean_start(), &fit);
            let squares = Squares::of(&**source, view, &fit, &starts, None)?;
            return Ok(self.second_of(&first, &squares, &episodes));
        };
        let all = self.second(&first, second);
        let by_weights = cut::by_weights(&logs.sources, view, rule, &first.total, &[&all.cut], &[all.count])?;
        let h = || match Normaliser::new(&all.weights, all.count, self.rule.gamma).filter(|_| first.has_ratios()) {
            Some(by) => importance::influences(&**source, view, rule, &thetas, draw(), &[&by]).map(|mut all| all.remove(0)),
            None => Ok(Vec::new()),
        };
        let n = all.count as f64;
        match before.get(2) {
            None => {
                let squares = by_weights[0].squares(&episodes.values, all.mean(), n);
                Ok(if first.has_ratios() { vec![squares, h()?.iter().sum()] } else { vec![squares] })
            }
            Some(third) => Ok(vec![by_weights[0].squares(&h()?, third[1] / n, n)]),
        }
    }

    /// The value, or the next stage, after these sums of all agents in the stages before.
    pub fn after(&self, before: &[Vec<f64>]) -> AfterStages {
        if self.d > MAX_FEATURES {
            return AfterStages::Done(Err("there are too many features"));
        }
        let Some(first) = before.first() else { return AfterStages::Next(COUNTS + FOLDS * fold_numbers(self.d)) };
        let first = self.first(first);
        if let Some(why) = first.no_value() {
            return AfterStages::Done(Err(why));
        }
        let weights = if first.has_ratios() { Weights::length(first.steps()) } else { 0 };
        match (before.len(), first.has_ratios()) {
            (1, _) => AfterStages::Next(EPISODES + self.d + weights),
            (2, has_ratios) => AfterStages::Next(1 + usize::from(has_ratios)),
            (3, true) => AfterStages::Next(1),
            _ => AfterStages::Done(Ok(Box::new(self.value(&first, before)))),
        }
    }

    fn counts(&self, logs: &Surveyed, view: View<'_>) -> Result<Vec<f64>> {
        let facts = &logs.facts[0];
        let summary = EpisodeSummary::of(&*logs.sources[0], self.rule.gamma)?;
        let has_ratios = self.rule.ratios && facts.effective_size.is_some();
        let (n, clipping) = (facts.transitions as f64, facts.clipping.filter(|_| has_ratios));
        let with_ratios = if has_ratios { n } else { 0.0 };
        let is_wrong = has_ratios && logs.wrong_ratios().iter().any(|wrong| matches!(wrong, WrongRatios::Mean(..)));
        let unclipped = if clipping.is_none() { with_ratios } else { 0.0 };
        let mut out = vec![1.0, n, with_ratios, unclipped, clipping.map_or(0.0, |clipping| clipping.clipped as f64)];
        out.extend([f64::from(is_wrong), (summary.cut + summary.jumps) as f64]);
        let mut lengths = [0.0; LENGTHS];
        let mut open: Option<usize> = None;
        let mut end = |len: usize| (0..LENGTHS).filter(|k| len > 1 << k).for_each(|k| lengths[k] += 1.0);
        walk(&*logs.sources[0], view, self.rule, &mut |event| match event {
            Walk::Step(step) if step.starts => open = Some(1),
            Walk::Step(_) => open = open.map(|len| len + 1),
            Walk::End(_) => open.take().into_iter().for_each(&mut end),
        })?;
        out.extend(lengths);
        Ok(out)
    }

    fn second_of(&self, first: &First<'_>, squares: &Squares, episodes: &Episodes) -> Vec<f64> {
        let Episodes { count, sum, plain, starts, cut, weights, .. } = episodes;
        let mut out = vec![squares.all, squares.ratios.0, squares.ratios.1, *count as f64, *sum, *plain, *starts];
        out.extend([cut.count as f64, cut.value]);
        let mut features = cut.features.clone();
        features.resize(self.d, 0.0);
        out.extend(features);
        if first.has_ratios() {
            out.extend(weights.numbers(first.steps()));
        }
        out
    }

    /// The episodes of all agents.
    fn second(&self, first: &First<'_>, sums: &[f64]) -> Episodes {
        let (head, rest) = sums.split_at(EPISODES);
        let (features, weights) = rest.split_at(self.d);
        let is_cut = features.iter().any(|x| *x != 0.0);
        let cut = Bootstrapped { count: head[7] as usize, value: head[8], features: if is_cut { features.to_vec() } else { Vec::new() } };
        // Without ratios every episode has the weight 1 at every step.
        let even = || Weights::even(head[3]);
        let weights = if first.has_ratios() { Weights::of_numbers(weights) } else { even() };
        Episodes { values: Vec::new(), count: head[3] as usize, sum: head[4], plain: head[5], starts: head[6], cut, weights }
    }

    fn value(&self, first: &First<'_>, before: &[Vec<f64>]) -> PolicyValue {
        let (level, gamma, rule) = (self.settings.level, self.rule.gamma, self.fit_rule());
        let table = |all: ValueEstimate| EstimateTable { all, own: Vec::new(), shared: Vec::new() };
        let (second, third) = (&before[1], &before[2]);
        let fit = Fit::new(first.total.clone(), rule);
        let starts = Starts::new(fit.sums.starts, fit.sums.mean_start(), &fit);
        let by_fit = starts.estimate(fitted::correction(starts.count) * second[0], fitted::effective((second[1], second[2])), level);
        let fitted = FittedValue { table: table(by_fit), own_weights: Vec::new(), interval: fit.kind, start: starts.mean };
        let all = self.second(first, second);
        let n = all.count as f64;
        let not_known = cut::not_known_of_all(rule, &first.total, &all.cut, all.count);
        let se = ByWeights::of_all(third[0], n, not_known);
        let normaliser = Normaliser::new(&all.weights, all.count, gamma).filter(|_| first.has_ratios());
        let self_normalised = normaliser.zip(before.get(3)).map(|(by, squares)| {
            let se = ByWeights::of_all(squares[0], n, not_known);
            table(ValueEstimate::new(by.value(all.starts / n), se, all.count, all.weights.effective(gamma), level))
        });
        let importance = WeightedValue {
            table: table(all.estimate(se, gamma, level)),
            plain: all.plain / n,
            cut: all.cut.count,
            bootstrapped: all.cut.value / n,
            self_normalised,
        };
        let counts = first.counts;
        let clipped = (first.has_ratios() && counts[3] == 0.0).then(|| counts[4] / counts[2]);
        let has_ratios = first.has_ratios();
        PolicyValue { level, fitted, importance, doubly_robust: None, has_ratios, clipped, unclipped: None }
    }
}

/// The numbers of a fold.
fn fold_numbers(d: usize) -> usize {
    d * d + 2 * d + 2
}

fn push(sums: &EpisodeSums, out: &mut Vec<f64>) {
    (0..sums.b.len()).for_each(|j| out.extend_from_slice(sums.a.col_as_slice(j)));
    out.extend_from_slice(&sums.b);
    out.extend([sums.transitions, sums.starts]);
    out.extend_from_slice(&sums.start);
}

fn sums_of(d: usize, numbers: &[f64]) -> EpisodeSums {
    let (a, rest) = numbers.split_at(d * d);
    let (b, rest) = rest.split_at(d);
    let mut sums = EpisodeSums::zero(d);
    (0..d).for_each(|j| linalg::add_scaled(sums.a.col_as_slice_mut(j), 1.0, &a[j * d..][..d]));
    (sums.b, sums.transitions, sums.starts, sums.start) = (b.to_vec(), rest[0], rest[1], rest[2..].to_vec());
    sums
}
