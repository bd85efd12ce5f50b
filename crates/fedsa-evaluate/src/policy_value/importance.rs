//! Per-decision importance sampling with fitted values as control variate, and the doubly robust value.
//!
//! ```text
//! V_i = v(s_0) + sum_t gamma^t rho_{0:t} (r_t + gamma v(s_{t+1}) - q(s_t, a_t)),     rho_{0:t} = rho_0 .. rho_t
//! ```
//!
//! with v = 0 after a terminal end, and q = v if actions are not described. v and q are fitted on the episodes of other folds, so that
//! they are fixed for episode i. The value is the mean of `V_i`. If all episodes terminate, its standard error is the error of the
//! mean. A truncated episode ends with the bootstrapped term `gamma^T rho_{0:T-1} v(s_T)`, which has the bias of v and the error of its
//! weights (`cut`).

use fedsa::error::Result;
use fedsa::parallel;
use fedsa_problems::logs::log::EpisodeEnd;
use fedsa_problems::logs::source::LogSource;

use super::cut::{Bootstrapped, ByWeights, by_weights};
use super::estimates::{EstimateTable, FEWEST_EPISODES, ValueEstimate, WeightedValue};
use super::folds::{self, EpisodeSums, FOLDS, FitRule, FoldDraw};
use super::normalised::Normaliser;
use super::walk::{Step, View, Walk, dot, walk};
use super::weights::Weights;

/// The episodes of an agent, or of all.
#[derive(Debug, Clone, Default)]
pub(super) struct Episodes {
    /// `V_i`; of all agents only their number and sum.
    pub values: Vec<f64>,
    /// The number of `V_i`, and their sum, which is added agent by agent.
    pub count: usize,
    pub sum: f64,
    /// The sum of the returns with v = q = 0.
    pub plain: f64,
    /// The sum of `v(s_0)`.
    pub starts: f64,
    pub cut: Bootstrapped,
    pub weights: Weights,
}

impl Episodes {
    fn join(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.plain += other.plain;
        self.starts += other.starts;
        self.cut.join(&other.cut);
        self.weights.join(&other.weights);
    }

    /// The mean of `V_i`, with this standard error.
    pub fn estimate(&self, se: f64, gamma: f64, level: f64) -> ValueEstimate {
        ValueEstimate::new(self.mean(), se, self.count, self.weights.effective(gamma), level)
    }

    /// J.
    pub fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// An episode under construction.
struct Sum<'a> {
    theta: &'a [f64],
    value: f64,
    plain: f64,
    /// `rho_{0:t}` and `gamma^t`.
    weight: f64,
    discount: f64,
    /// The features of the state after the last transition; empty if it is terminal.
    following: Vec<f64>,
    len: usize,
}

impl<'a> Sum<'a> {
    fn new(theta: &'a [f64], start: &[f64]) -> Self {
        Self { theta, value: dot(start, theta), plain: 0.0, weight: 1.0, discount: 1.0, following: Vec::new(), len: 0 }
    }

    fn add(&mut self, step: &Step<'_>, gamma: f64, weights: &mut Weights) {
        self.weight *= step.ratio;
        let error = step.error(gamma, self.theta);
        weights.see(self.len, self.weight, error);
        let factor = self.discount * self.weight;
        // Without weight or discount, no value counts, finite or not.
        if factor != 0.0 {
            self.value += factor * error;
            self.plain += factor * step.reward;
        }
        self.following.clear();
        self.following.extend(step.next.unwrap_or_default());
        self.discount *= gamma;
        self.len += 1;
    }

    fn end(self, end: EpisodeEnd, episodes: &mut Episodes) {
        episodes.weights.end(self.len, self.weight);
        episodes.values.push(self.value);
        episodes.plain += self.plain;
        if end != EpisodeEnd::Terminated {
            episodes.cut.add(self.discount * self.weight, self.theta, &self.following);
        }
    }
}

/// The episodes of an agent with a start, using the weights of each fold.
pub(super) fn of_agent(source: &dyn LogSource, view: View<'_>, rule: FitRule, thetas: &[Vec<f64>], mut draw: FoldDraw) -> Result<Episodes> {
    let (mut episodes, mut fold, mut sum) = (Episodes::default(), 0, None);
    walk(source, view, rule.trace, &mut |event| match event {
        Walk::Step(step) => {
            if step.is_new {
                fold = draw.next();
            }
            if step.starts {
                let begun = Sum::new(&thetas[fold], step.here);
                episodes.starts += begun.value;
                sum = Some(begun);
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
    (episodes.count, episodes.sum) = (episodes.values.len(), episodes.values.iter().sum());
    Ok(episodes)
}

/// The weights of each fold, from the sums of the other folds.
pub(super) fn weights_of_folds(folds: &[EpisodeSums], total: &EpisodeSums, rule: FitRule) -> Vec<Vec<f64>> {
    parallel::map(FOLDS, |k| {
        let mut others = total.clone();
        others.add(-1.0, &folds[k]);
        others.some_weights(rule.ridge)
    })
}

/// `h_i` of the episodes of an agent under some normalisers.
pub(super) fn influences(
    source: &dyn LogSource,
    view: View<'_>,
    rule: FitRule,
    thetas: &[Vec<f64>],
    mut draw: FoldDraw,
    by: &[&Normaliser],
) -> Result<Vec<Vec<f64>>> {
    let (mut found, mut fold) = (vec![Vec::new(); by.len()], 0);
    // The number of steps, the weight and `h_i` so far of an episode with a start.
    let mut open: Option<(usize, f64, Vec<f64>)> = None;
    walk(source, view, rule.trace, &mut |event| match event {
        Walk::Step(step) => {
            if step.is_new {
                fold = draw.next();
            }
            let theta = &thetas[fold];
            if step.starts {
                open = Some((0, 1.0, vec![dot(step.here, theta); by.len()]));
            }
            if let Some((t, weight, h)) = &mut open {
                *weight *= step.ratio;
                let error = step.error(rule.trace.gamma, theta);
                h.iter_mut().zip(by).for_each(|(h, by)| *h += by.step(*t, *weight, error));
                *t += 1;
            }
        }
        Walk::End(_) => {
            if let Some((len, weight, h)) = open.take() {
                found.iter_mut().zip(h).zip(by).for_each(|((all, h), by)| all.push(h + by.end(len, weight)));
            }
        }
    })?;
    Ok(found)
}

/// The episodes of each agent and of all, and their contributions through fitted weights.
struct Summed<'a> {
    agents: &'a [Episodes],
    all: &'a Episodes,
    by_weights: &'a [ByWeights],
}

/// The self-normalised estimates of agents, and of all.
fn self_normalised(
    sources: &[Box<dyn LogSource>],
    view: View<'_>,
    rule: FitRule,
    (thetas, seed): (&[Vec<f64>], u64),
    summed: &Summed<'_>,
    level: f64,
) -> Result<Option<EstimateTable>> {
    let gamma = rule.trace.gamma;
    let Summed { agents, all, by_weights } = summed;
    let of = |episodes: &Episodes| Normaliser::new(&episodes.weights, episodes.count, gamma);
    let (Some(common), Some(own)) = (of(all), agents.iter().map(of).collect::<Option<Vec<_>>>()) else { return Ok(None) };
    let found = parallel::try_map_shared(sources.len(), |c| {
        influences(&*sources[c], view, rule, thetas, FoldDraw::new(seed, c), &[&common, &own[c]])
    })?;
    let estimate = |by: &Normaliser, episodes: &Episodes, se: f64| {
        let n = episodes.count;
        ValueEstimate::new(by.value(episodes.starts / n as f64), se, n, episodes.weights.effective(gamma), level)
    };
    let named = (0..sources.len()).filter(|c| !agents[*c].values.is_empty());
    let of_agent = |c: usize| estimate(&own[c], &agents[c], by_weights[c].of_agent(&found[c][1], all.count));
    let named = named.map(|c| (sources[c].name().to_string(), of_agent(c))).collect();
    let mean = found.iter().map(|by| by[0].iter().sum::<f64>()).sum::<f64>() / all.count as f64;
    let values: Vec<&[f64]> = found.iter().map(|by| &by[0][..]).collect();
    let se = error_of_all(by_weights, &values, mean, all.count);
    Ok(Some(EstimateTable { all: estimate(&common, all, se), own: Vec::new(), shared: named }))
}

/// The standard error for all n episodes with this mean of their values, agent by agent.
fn error_of_all(agents: &[ByWeights], values: &[&[f64]], mean: f64, n: usize) -> f64 {
    let squares = agents.iter().zip(values).map(|(agent, values)| agent.squares(values, mean, n as f64)).sum();
    ByWeights::of_all(squares, n as f64, ByWeights::not_known(agents))
}

/// An agent's entry of a table under shared weights.
fn named_one(shared: &[(String, ValueEstimate)], source: &dyn LogSource) -> Option<ValueEstimate> {
    shared.iter().find(|(name, _)| name == source.name()).map(|(_, estimate)| *estimate)
}

/// The value by importance sampling, with values fitted to `folds` as control variate. `None` without start states.
///
/// # Errors
/// When a log cannot be read.
pub(super) fn weighted(
    sources: &[Box<dyn LogSource>],
    view: View<'_>,
    rule: FitRule,
    folds: &[EpisodeSums],
    seed: u64,
    (level, has_ratios): (f64, bool),
) -> Result<Option<WeightedValue>> {
    let total = EpisodeSums::total(folds, folds[0].b.len());
    let thetas = weights_of_folds(folds, &total, rule);
    let agents = parallel::try_map_shared(sources.len(), |c| of_agent(&*sources[c], view, rule, &thetas, FoldDraw::new(seed, c)))?;
    let mut all = Episodes::default();
    agents.iter().for_each(|own| all.join(own));
    let n = all.count;
    if n == 0 {
        return Ok(None);
    }
    let cut: Vec<&Bootstrapped> = agents.iter().map(|own| &own.cut).collect();
    let counts: Vec<usize> = agents.iter().map(|own| own.values.len()).collect();
    let by_weights = by_weights(sources, view, rule, &total, &cut, &counts)?;
    let gamma = rule.trace.gamma;
    let named = sources.iter().zip(agents.iter().zip(&by_weights)).filter(|(_, (own, _))| !own.values.is_empty());
    let named = named
        .map(|(source, (own, by_weights))| (source.name().to_string(), own.estimate(by_weights.of_agent(&own.values, n), gamma, level)));
    let shared = named.collect();
    let values: Vec<&[f64]> = agents.iter().map(|own| &own.values[..]).collect();
    let se = error_of_all(&by_weights, &values, all.mean(), n);
    let table = EstimateTable { all: all.estimate(se, gamma, level), own: Vec::new(), shared };
    let summed = Summed { agents: &agents, all: &all, by_weights: &by_weights };
    let self_normalised = match has_ratios {
        true => self_normalised(sources, view, rule, (&thetas, seed), &summed, level)?,
        false => None,
    };
    let (mut table, mut self_normalised) = (table, self_normalised);
    for (c, own) in agents.iter().enumerate().filter(|(_, own)| !own.values.is_empty()) {
        // Without bootstrapping, the weights of other agents bring no bias.
        let (of_own, of_normalised) = if own.cut.count == 0 || sources.len() == 1 {
            (named_one(&table.shared, &*sources[c]), self_normalised.as_ref().and_then(|table| named_one(&table.shared, &*sources[c])))
        } else if own.values.len() >= FEWEST_EPISODES {
            let alone = std::slice::from_ref(&sources[c]);
            let found = folds::sums(alone, view, rule, seed, f64::INFINITY)?;
            let own = EpisodeSums::total(&found.folds, view.len()).transitions;
            let found = weighted(alone, view, rule.of_part(own, total.transitions), &found.folds, seed, (level, has_ratios))?;
            found.map_or((None, None), |found| (Some(found.table.all), found.self_normalised.map(|table| table.all)))
        } else {
            (None, None)
        };
        let name = sources[c].name();
        table.own.extend(of_own.map(|own| (name.to_string(), own)));
        if let Some(table) = &mut self_normalised {
            table.own.extend(of_normalised.map(|own| (name.to_string(), own)));
        }
    }
    let [plain, bootstrapped] = [all.plain, all.cut.value].map(|sum| sum / n as f64);
    Ok(Some(WeightedValue { table, plain, cut: all.cut.count, bootstrapped, self_normalised }))
}
