//! Per-decision importance sampling with fitted values as control variate, and the doubly robust value.
//!
//! ```text
//! V_i = v(s_0) + sum_t gamma^t rho_{0:t} (r_t + gamma v(s_{t+1}) - q(s_t, a_t)),     rho_{0:t} = rho_0 .. rho_t
//! ```
//!
//! with v = 0 after a terminal end, and q = v where actions are not described. v and q are fitted on the episodes of other folds, so that
//! they are fixed for episode i. The value is the mean of `V_i`, its standard error that of the mean. An episode that was cut short ends
//! with `gamma^T rho_{0:T-1} v(s_T)`, which is bootstrapped: it has the bias of v there.

use super::super::log::EpisodeEnd;
use super::super::source::LogSource;
use super::estimates::{EstimateTable, ValueEstimate, WeightedValue};
use super::folds::{EpisodeSums, FOLDS, FitRule, FoldDraw};
use super::walk::{Step, View, Walk, dot, walk};
use crate::error::Result;
use crate::parallel;

/// The most steps of an episode at which weights are looked at.
const HORIZON: usize = 1 << 14;

/// The weights `rho_{0:t}` of episodes at each step. An episode that has ended keeps its last weight.
#[derive(Debug, Clone, Default)]
struct Weights {
    /// The sum of weights at step t, and of their squares, of episodes that go on.
    going: Vec<(f64, f64)>,
    /// The number of episodes that have a step t.
    count: Vec<f64>,
    /// The sums of last weights of episodes with t steps.
    ended: Vec<(f64, f64)>,
}

impl Weights {
    fn see(&mut self, t: usize, weight: f64) {
        if t >= HORIZON {
            return;
        }
        if self.going.len() <= t {
            self.going.resize(t + 1, (0.0, 0.0));
            self.count.resize(t + 1, 0.0);
        }
        self.going[t].0 += weight;
        self.going[t].1 += weight * weight;
        self.count[t] += 1.0;
    }

    fn end(&mut self, len: usize, weight: f64) {
        if len >= HORIZON {
            return;
        }
        if self.ended.len() <= len {
            self.ended.resize(len + 1, (0.0, 0.0));
        }
        self.ended[len].0 += weight;
        self.ended[len].1 += weight * weight;
    }

    fn join(&mut self, other: &Self) {
        let add = |to: &mut Vec<(f64, f64)>, from: &[(f64, f64)]| {
            to.resize(to.len().max(from.len()), (0.0, 0.0));
            to.iter_mut().zip(from).for_each(|(a, b)| *a = (a.0 + b.0, a.1 + b.1));
        };
        add(&mut self.going, &other.going);
        add(&mut self.ended, &other.ended);
        self.count.resize(self.count.len().max(other.count.len()), 0.0);
        self.count.iter_mut().zip(&other.count).for_each(|(a, b)| *a += b);
    }

    /// The smallest effective sample size `(sum w)^2 / sum w^2` up to the step by which half of the discounted steps have been made.
    fn effective(&self, gamma: f64) -> f64 {
        let spent = self.count.iter().scan(1.0, |discount, count| {
            let weight = *discount * count;
            *discount *= gamma;
            Some(weight)
        });
        let spent: Vec<f64> = spent.collect();
        let half = 0.5 * spent.iter().sum::<f64>();
        let (mut so_far, mut kept, mut least) = (0.0, (0.0, 0.0), f64::INFINITY);
        for (t, (sum, squares)) in self.going.iter().enumerate() {
            let ended = self.ended.get(t).copied().unwrap_or_default();
            kept = (kept.0 + ended.0, kept.1 + ended.1);
            let (sum, squares) = (sum + kept.0, squares + kept.1);
            let size = sum * sum / squares;
            least = least.min(if size.is_finite() { size } else { 0.0 });
            so_far += spent[t];
            if so_far >= half {
                break;
            }
        }
        if least.is_finite() { least } else { 0.0 }
    }
}

/// The episodes of an agent, or of all.
#[derive(Debug, Clone, Default)]
struct Episodes {
    /// `V_i`.
    values: Vec<f64>,
    /// The sum of the returns with v = q = 0.
    plain: f64,
    /// How many were cut short, and the sum of what is bootstrapped there.
    cut: usize,
    bootstrapped: f64,
    weights: Weights,
}

impl Episodes {
    fn join(&mut self, other: Self) {
        self.values.extend(other.values);
        self.plain += other.plain;
        self.cut += other.cut;
        self.bootstrapped += other.bootstrapped;
        self.weights.join(&other.weights);
    }

    fn estimate(&self, gamma: f64, level: f64) -> ValueEstimate {
        let n = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / n;
        let squares: f64 = self.values.iter().map(|x| (x - mean).powi(2)).sum();
        let se = if n > 1.0 { (squares / (n - 1.0) / n).sqrt() } else { f64::NAN };
        ValueEstimate::new(mean, se, self.values.len(), self.weights.effective(gamma), level)
    }
}

/// An episode in the making.
struct Sum<'a> {
    theta: &'a [f64],
    value: f64,
    plain: f64,
    /// `rho_{0:t}` and `gamma^t`.
    weight: f64,
    discount: f64,
    /// `v(s')` after the last transition.
    following: f64,
    len: usize,
}

impl<'a> Sum<'a> {
    fn new(theta: &'a [f64], start: &[f64]) -> Self {
        Self { theta, value: dot(start, theta), plain: 0.0, weight: 1.0, discount: 1.0, following: 0.0, len: 0 }
    }

    fn add(&mut self, step: &Step<'_>, gamma: f64, weights: &mut Weights) {
        self.weight *= step.ratio;
        weights.see(self.len, self.weight);
        let factor = self.discount * self.weight;
        // Without weight or discount nothing counts, whatever it is.
        if factor != 0.0 {
            self.value += factor * step.error(gamma, self.theta);
            self.plain += factor * step.reward;
        }
        self.following = step.next.map_or(0.0, |next| dot(next, self.theta));
        self.discount *= gamma;
        self.len += 1;
    }

    fn end(self, end: EpisodeEnd, episodes: &mut Episodes) {
        episodes.weights.end(self.len, self.weight);
        episodes.values.push(self.value);
        episodes.plain += self.plain;
        if end != EpisodeEnd::Terminated {
            episodes.cut += 1;
            episodes.bootstrapped += self.discount * self.weight * self.following;
        }
    }
}

/// The episodes of an agent with a start, with the weights of each fold.
fn of_agent(source: &dyn LogSource, view: View<'_>, rule: FitRule, thetas: &[Vec<f64>], mut draw: FoldDraw) -> Result<Episodes> {
    let (mut episodes, mut fold, mut sum) = (Episodes::default(), 0, None);
    walk(source, view, rule.trace, &mut |event| match event {
        Walk::Step(step) => {
            if step.is_new {
                fold = draw.next();
            }
            if step.starts {
                sum = Some(Sum::new(&thetas[fold], step.here));
            }
            if let Some(sum) = &mut sum {
                sum.add(&step, rule.trace.gamma, &mut episodes.weights);
            }
        }
        Walk::End(end) => {
            if let Some(sum) = sum.take() {
                sum.end(end, &mut episodes);
            }
        }
    })?;
    Ok(episodes)
}

/// The value by importance sampling, with what is fitted to `folds` as control variate. `None` without start states.
///
/// # Errors
/// When a log cannot be read.
pub(super) fn weighted(
    sources: &[Box<dyn LogSource>],
    view: View<'_>,
    rule: FitRule,
    folds: &[EpisodeSums],
    seed: u64,
    level: f64,
) -> Result<Option<WeightedValue>> {
    let total = EpisodeSums::total(folds, folds[0].b.len());
    let thetas = parallel::map(FOLDS, |k| {
        let mut others = total.clone();
        others.add(-1.0, &folds[k]);
        others.some_weights(rule.ridge)
    });
    let agents = parallel::try_map(sources.len(), |c| of_agent(&*sources[c], view, rule, &thetas, FoldDraw::new(seed, c)))?;
    let gamma = rule.trace.gamma;
    let mut named = Vec::new();
    let mut all = Episodes::default();
    for (source, own) in sources.iter().zip(agents) {
        if !own.values.is_empty() {
            named.push((source.name().to_string(), own.estimate(gamma, level)));
        }
        all.join(own);
    }
    let n = all.values.len();
    if n == 0 {
        return Ok(None);
    }
    let table = EstimateTable { all: all.estimate(gamma, level), agents: named };
    Ok(Some(WeightedValue { table, plain: all.plain / n as f64, cut: all.cut, bootstrapped: all.bootstrapped / n as f64 }))
}
