//! The value of the start states from fitted values, `J = m' theta` with m the mean features of the n start states.
//!
//! Its standard error is over episodes. With `g_i = sum_t z_t delta_t` at the fitted weights, episode i contributes `e_i = A^-1 g_i` to
//! the weights, and to the value
//!
//! ```text
//! h_i = (phi(s_{i,0})' theta - J) / n + m' e_i,     se^2 = n / (n - 1) sum_i h_i^2
//! ```
//!
//! This includes the start states, the weights and their covariance. The infinitesimal `e_i` is too small for few episodes. Then the
//! weights are fitted again without each episode in turn, theta_(i): `e_i = theta - theta_(i)`, and `h_i = (phi(s_{i,0})' theta - J) /
//! n + (m - phi(s_{i,0}) / n)' e_i`, which is `(n - 1) / n (J - J_(i))`. If the other episodes do not determine some features of an
//! episode, theta_(i) is not known, and the episode keeps the infinitesimal `e_i` and `h_i`.
//!
//! A ridge eps shrinks the value from n_t transitions by `eps n_t m' A^-1 theta` to first order. The specification has no ridge here.
//! The square of the shrinkage is added to `se^2`: otherwise the interval of a value without noise would not cover it. The square of
//! the undetermined part ([`left_open`]) is added for any ridge.

use faer::Mat;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::parallel;
use fedsa_problems::logs::source::LogSource;

use super::estimates::{EstimateTable, FittedValue, IntervalKind, ValueEstimate};
use super::folds::{AgentSums, EpisodeSums, FitRule, left_open};
use super::walk::{Step, View, Walk, dot, walk};

/// The most episodes for which each is omitted in turn.
pub(super) const MAX_LEFT_OUT: f64 = 400.0;
/// The most work for this: episodes times the cube of the number of features.
const MAX_WORK: f64 = 4e9;

/// A fit, and the quantities for its errors.
pub(super) struct Fit {
    pub sums: EpisodeSums,
    rule: FitRule,
    pub theta: Vec<f64>,
    /// `A^-1`, or the pseudo-inverse.
    inverse: Mat<f64>,
    /// Directions that the data do not determine.
    null: Vec<Vec<f64>>,
    /// The reduction of the weights by the ridge to first order, `eps n_t A^-1 theta`.
    shrinkage: Vec<f64>,
    pub kind: IntervalKind,
}

impl Fit {
    pub fn new(sums: EpisodeSums, rule: FitRule) -> Self {
        let d = sums.b.len();
        let solved = linalg::least_norm(&sums.matrix(rule.ridge), &Mat::identity(d, d));
        let theta = linalg::mat_vec(&solved.x, &sums.b);
        let leaves_out = sums.starts <= MAX_LEFT_OUT && sums.starts * (d as f64).powi(3) <= MAX_WORK;
        // A ridge sets directions to 0 that the data do not determine.
        let null = if rule.ridge > 0.0 { sums.undetermined() } else { solved.null };
        let kind = if leaves_out { IntervalKind::Jackknife } else { IntervalKind::Influence };
        let mut shrinkage = linalg::mat_vec(&solved.x, &theta);
        shrinkage.iter_mut().for_each(|x| *x *= rule.ridge * sums.transitions);
        Self { sums, rule, theta, inverse: solved.x, null, shrinkage, kind }
    }

    /// The contribution of an episode to the weights: their change without it, or `A^-1 g`.
    pub fn change(&self, episode: &Episode) -> Change {
        // (A - A_i)^-1 = A^-1 (I - A_i A^-1)^-1.
        let d = self.theta.len();
        let rest = |a: &Mat<f64>| Mat::<f64>::identity(d, d) - a * &self.inverse;
        let left_out = episode.matrix.as_ref().and_then(|a| linalg::solve_if_regular(&rest(a), &episode.score));
        let is_left_out = left_out.is_some();
        Change { weights: linalg::mat_vec(&self.inverse, &left_out.unwrap_or_else(|| episode.score.clone())), is_left_out }
    }
}

/// The contribution of an episode to the weights, `e_i`.
pub(super) struct Change {
    weights: Vec<f64>,
    /// Whether it is `theta - theta_(i)` rather than the infinitesimal change.
    is_left_out: bool,
}

/// The sums of an episode at some weights.
pub(super) struct Episode {
    /// `g_i`, less `eps theta` for each transition under a ridge.
    pub score: Vec<f64>,
    /// `A_i`, if episodes are omitted in turn.
    matrix: Option<Mat<f64>>,
    /// The features of its start state, if it has one.
    pub start: Option<Vec<f64>>,
    /// The ratios of its transitions, their sum and number.
    ratios: f64,
    len: f64,
}

impl Episode {
    fn new(d: usize, is_left_out: bool) -> Self {
        let matrix = is_left_out.then(|| Mat::zeros(d, d));
        Self { score: vec![0.0; d], matrix, start: None, ratios: 0.0, len: 0.0 }
    }

    fn add(&mut self, step: &Step<'_>, trace: &[f64], psi: &mut [f64], rule: FitRule, theta: &[f64]) {
        let FitRule { trace: rule, ridge, .. } = rule;
        if step.starts {
            self.start = Some(step.here.to_vec());
        }
        linalg::add_scaled(&mut self.score, step.error(rule.gamma, theta), trace);
        if ridge > 0.0 {
            linalg::add_scaled(&mut self.score, -ridge, theta);
        }
        if let Some(a) = &mut self.matrix {
            step.difference(rule.gamma, psi);
            for (j, psi) in psi.iter().enumerate().filter(|(_, psi)| **psi != 0.0) {
                linalg::add_scaled(a.col_as_slice_mut(j), *psi, trace);
            }
            (0..psi.len()).for_each(|i| a[(i, i)] += ridge);
        }
        self.ratios += step.ratio;
        self.len += 1.0;
    }
}

/// Calls `see` with the episodes of a log, at weights theta of a fit; with their matrices if they are omitted in turn.
pub(super) fn episodes(
    source: &dyn LogSource,
    view: View<'_>,
    rule: FitRule,
    theta: &[f64],
    are_left_out: bool,
    see: &mut dyn FnMut(&Episode),
) -> Result<()> {
    let d = view.len();
    let (mut trace, mut psi) = (vec![0.0; d], vec![0.0; d]);
    let mut episode = Episode::new(d, are_left_out);
    walk(source, view, rule.trace, &mut |event| {
        if let Walk::Step(step) = event {
            if step.is_new && episode.len > 0.0 {
                see(&episode);
                episode = Episode::new(d, are_left_out);
            }
            rule.lengthen(&mut trace, &step);
            episode.add(&step, &trace, &mut psi, rule, theta);
        }
    })?;
    see(&episode);
    Ok(())
}

/// Start states whose mean value is estimated, of all agents or of one.
pub(super) struct Starts {
    pub count: f64,
    pub mean: Vec<f64>,
    value: f64,
    /// The reduction of the value by the ridge, plus its undetermined part; NaN if the data do not determine the value.
    not_known: f64,
}

impl Starts {
    pub fn new(count: f64, mean: Vec<f64>, fit: &Fit) -> Self {
        let (value, shrinkage) = (dot(&mean, &fit.theta), dot(&mean, &fit.shrinkage));
        Self { count, not_known: shrinkage.hypot(left_open(&fit.null, &mean, &fit.theta)), mean, value }
    }

    /// `h_i` of an episode whose start state is among these.
    pub fn influence(&self, episode: &Episode, change: &Change, fit: &Fit) -> f64 {
        let mut all = dot(&self.mean, &change.weights);
        if let Some(start) = &episode.start {
            all += (dot(start, &fit.theta) - self.value) / self.count;
            if change.is_left_out {
                all -= dot(start, &change.weights) / self.count;
            }
        }
        all
    }

    /// The estimate from the sum of squares of the episodes' contributions.
    pub fn estimate(&self, squares: f64, effective: f64, level: f64) -> ValueEstimate {
        ValueEstimate::new(self.value, squares.sqrt().hypot(self.not_known), self.count as usize, effective, level)
    }
}

/// `n / (n - 1)`.
pub(super) fn correction(n: f64) -> f64 {
    if n > 1.0 { n / (n - 1.0) } else { f64::NAN }
}

/// The sums over an agent's episodes.
pub(super) struct Squares {
    /// Squared contributions to the value of all start states, and of the agent's own.
    pub all: f64,
    own: f64,
    /// The sum of `(m_c' e_i)^2`.
    own_weights: f64,
    /// `sum_i e_i e_i'`; none with one agent.
    changes: Option<Mat<f64>>,
    /// The sums of the mean ratios of episodes, and of their squares.
    pub ratios: (f64, f64),
}

impl Squares {
    pub fn of(source: &dyn LogSource, view: View<'_>, fit: &Fit, all: &Starts, own: Option<&Starts>) -> Result<Self> {
        let (d, several) = (fit.theta.len(), own.is_some());
        let mut squares = Self { all: 0.0, own: 0.0, own_weights: 0.0, changes: None, ratios: (0.0, 0.0) };
        let mut changes = Mat::zeros(d * usize::from(several), d * usize::from(several));
        episodes(source, view, fit.rule, &fit.theta, fit.kind == IntervalKind::Jackknife, &mut |episode| {
            let change = fit.change(episode);
            squares.all += all.influence(episode, &change, fit).powi(2);
            let ratio = episode.ratios / episode.len;
            if episode.start.is_some() {
                squares.ratios.0 += ratio;
                squares.ratios.1 += ratio * ratio;
            }
            if let Some(own) = own {
                squares.own += own.influence(episode, &change, fit).powi(2);
                squares.own_weights += dot(&own.mean, &change.weights).powi(2);
                for (j, factor) in change.weights.iter().enumerate() {
                    linalg::add_scaled(changes.col_as_slice_mut(j), *factor, &change.weights);
                }
            }
        })?;
        squares.changes = several.then_some(changes);
        Ok(squares)
    }

    fn effective(&self) -> f64 {
        effective(self.ratios)
    }
}

/// `(sum w)^2 / sum w^2`.
pub(super) fn effective((sum, squares): (f64, f64)) -> f64 {
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// The value of one agent's start states by its own fit.
fn own_value(source: &dyn LogSource, view: View<'_>, sums: EpisodeSums, rule: FitRule, level: f64) -> Result<(ValueEstimate, Vec<f64>)> {
    let (count, mean) = (sums.starts, sums.mean_start());
    let fit = Fit::new(sums, rule);
    let starts = Starts::new(count, mean, &fit);
    let squares = Squares::of(source, view, &fit, &starts, None)?;
    Ok((starts.estimate(correction(count) * squares.all, squares.effective(), level), fit.theta))
}

/// The value from fitted values. `None` without start states.
///
/// # Errors
/// When a log cannot be read.
pub(super) fn fitted(
    sources: &[Box<dyn LogSource>],
    view: View<'_>,
    fit: &Fit,
    agents: Vec<AgentSums>,
    level: f64,
) -> Result<Option<FittedValue>> {
    if fit.sums.starts == 0.0 {
        return Ok(None);
    }
    let n = fit.sums.starts;
    let all = Starts::new(n, fit.sums.mean_start(), fit);
    let own: Vec<Option<Starts>> =
        agents.iter().map(|own| (own.starts > 0.0).then(|| Starts::new(own.starts, own.mean_start.clone(), fit))).collect();
    let several = sources.len() > 1;
    let mut found = Vec::new();
    let mut changes: Option<Mat<f64>> = None;
    for first in (0..sources.len()).step_by(parallel::threads()) {
        let count = parallel::threads().min(sources.len() - first);
        let group = parallel::try_map_shared(count, |i| {
            let own = own[first + i].as_ref().filter(|_| several);
            Squares::of(&*sources[first + i], view, fit, &all, own)
        })?;
        for mut squares in group {
            changes = match (changes, squares.changes.take()) {
                (Some(sum), Some(own)) => Some(sum + own),
                (sum, own) => sum.or(own),
            };
            found.push(squares);
        }
    }
    let total = found.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.ratios.0, sum.1 + one.ratios.1));
    let squares: f64 = found.iter().map(|one| one.all).sum();
    let all_agents = all.estimate(correction(n) * squares, effective(total), level);
    let mut table = EstimateTable { all: all_agents, own: Vec::new(), shared: Vec::new() };
    for ((source, own), squares) in sources.iter().zip(&own).zip(&found) {
        let Some(own) = own else { continue };
        let estimate = match &changes {
            None => table.all,
            Some(changes) => {
                // The contributions of other agents' episodes to the weights.
                let others = dot(&own.mean, &linalg::mat_vec(changes, &own.mean)) - squares.own_weights;
                own.estimate(correction(own.count) * squares.own + correction(n) * others.max(0.0), squares.effective(), level)
            }
        };
        table.shared.push((source.name().to_string(), estimate));
    }
    let (own, mut own_weights) = own_values(sources, view, fit, agents, level)?;
    table.own = own;
    if !several {
        table.own.clone_from(&table.shared);
        own_weights = table.own.iter().map(|(name, _)| (name.clone(), fit.theta.clone())).collect();
    }
    Ok(Some(FittedValue { table, own_weights, interval: fit.kind, start: all.mean }))
}

/// Values and weights by agents' names.
type OwnValues = (Vec<(String, ValueEstimate)>, Vec<(String, Vec<f64>)>);

/// The values and weights of the agents with enough episodes for their own weights.
fn own_values(sources: &[Box<dyn LogSource>], view: View<'_>, fit: &Fit, agents: Vec<AgentSums>, level: f64) -> Result<OwnValues> {
    let fits = agents.into_iter().enumerate().filter_map(|(c, agent)| Some((c, agent.own?)));
    let fits: Vec<(usize, EpisodeSums)> = fits.collect();
    let own = parallel::map_into(fits, |_, (c, sums)| {
        let rule = fit.rule.of_part(sums.transitions, fit.sums.transitions);
        let (estimate, weights) = own_value(&*sources[c], view, sums, rule, level)?;
        let name = sources[c].name().to_string();
        Ok(((name.clone(), estimate), (name, weights)))
    });
    own.into_iter().collect()
}
