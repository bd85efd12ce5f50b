//! The sums over an agent's episodes for the fit of values, separately for each fold of a cross-fit.
//!
//! ```text
//! A_k = sum_i sum_t z_t (x_t - gamma y_t)',   b_k = sum_i sum_t z_t r_t     over the episodes i of fold k
//! ```
//!
//! with `x_t` the features of the state or action, `y_t` the features of the next state (0 after a terminal end), and the trace `z_t =
//! rho_t (gamma lambda z_{t-1} + x_t)`. Agents send these sums and the sums of the features of start states.

use faer::Mat;
use fedsa::error::Result;
use fedsa::kernel::{Isa, products};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::random::{Purpose, Stream, stream};
use fedsa_problems::logs::log_means::TraceRule;
use fedsa_problems::logs::source::LogSource;

use super::walk::{Step, View, Walk, walk};

/// K, the number of folds.
pub const FOLDS: usize = 5;

/// The folds of an agent's episodes, in their order. Each block of [`FOLDS`] episodes is assigned to all folds in a random order.
pub(super) struct FoldDraw {
    seed: u64,
    agent: usize,
    count: usize,
    order: [usize; FOLDS],
}

impl FoldDraw {
    pub fn new(seed: u64, agent: usize) -> Self {
        Self { seed, agent, count: 0, order: [0; FOLDS] }
    }

    /// The fold of the next episode.
    pub fn next(&mut self) -> usize {
        let at = self.count % FOLDS;
        if at == 0 {
            let mut draws: Stream = stream(self.seed, Purpose::Fold, (self.count / FOLDS) as u64, self.agent);
            self.order = std::array::from_fn(|i| i);
            (0..FOLDS).for_each(|i| self.order.swap(i, i + (draws.uniform() * (FOLDS - i) as f64) as usize));
        }
        self.count += 1;
        self.order[at]
    }
}

/// The settings of the fit of values to transitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct FitRule {
    /// Discount, traces and ratios.
    pub trace: TraceRule,
    /// Whether ratios weight the transitions in the fit.
    pub weighted: bool,
    /// The fit adds `eps I` for each transition.
    pub ridge: f64,
    /// Whether the sum of the ridge stays the same for a part of the transitions.
    pub is_relative: bool,
}

impl FitRule {
    /// The rule for a fit to `own` of `all` transitions.
    pub fn of_part(self, own: f64, all: f64) -> Self {
        if self.is_relative { Self { ridge: self.ridge * all / own, ..self } } else { self }
    }

    /// Extends the trace by the next transition.
    pub fn lengthen(&self, trace: &mut [f64], step: &Step<'_>) {
        if step.begins {
            trace.fill(0.0);
        }
        products::lengthen(Isa::best(), trace, self.trace.decay(), if self.weighted { step.ratio } else { 1.0 }, step.acted);
    }
}

/// The sums over some episodes.
#[derive(Debug, Clone)]
pub(super) struct EpisodeSums {
    pub a: Mat<f64>,
    pub b: Vec<f64>,
    pub transitions: f64,
    /// The number of episodes with a start, and the sum of the features of their start states.
    pub starts: f64,
    pub start: Vec<f64>,
}

impl EpisodeSums {
    pub fn zero(d: usize) -> Self {
        Self { a: Mat::zeros(d, d), b: vec![0.0; d], transitions: 0.0, starts: 0.0, start: vec![0.0; d] }
    }

    /// Adds `factor` times other sums.
    pub fn add(&mut self, factor: f64, other: &Self) {
        self.a += faer::Scale(factor) * &other.a;
        linalg::add_scaled(&mut self.b, factor, &other.b);
        self.transitions += factor * other.transitions;
        self.starts += factor * other.starts;
        linalg::add_scaled(&mut self.start, factor, &other.start);
    }

    /// The total.
    pub fn total<'a>(all: impl IntoIterator<Item = &'a Self>, d: usize) -> Self {
        let mut total = Self::zero(d);
        all.into_iter().for_each(|one| total.add(1.0, one));
        total
    }

    /// The mean features of start states.
    pub fn mean_start(&self) -> Vec<f64> {
        self.start.iter().map(|x| x / self.starts).collect()
    }

    /// Directions of the weights that the data do not determine, for any ridge.
    pub fn undetermined(&self) -> Vec<Vec<f64>> {
        linalg::least_norm(&self.matrix(0.0), &Mat::zeros(self.b.len(), 0)).null
    }

    /// The matrix of the fit: A with the ridge.
    pub fn matrix(&self, ridge: f64) -> Mat<f64> {
        let mut a = self.a.clone();
        (0..self.b.len()).for_each(|i| a[(i, i)] += ridge * self.transitions);
        a
    }

    /// Weights that fit, not necessarily unique.
    pub fn some_weights(&self, ridge: f64) -> Vec<f64> {
        some_solution(&self.matrix(ridge), &self.b)
    }
}

/// The part of a value with these features that the data leave open if they do not determine some directions of the weights. It is the
/// part of the features in these directions times the largest weight, since an unknown weight may be as large as a known one. NaN if
/// the part exceeds a tenth of the features.
pub fn left_open(undetermined: &[Vec<f64>], phi: &[f64], theta: &[f64]) -> f64 {
    const MOST: f64 = 0.1;
    let part = undetermined.iter().map(|direction| linalg::dot(direction, phi).powi(2)).sum::<f64>().sqrt();
    let largest = theta.iter().fold(0.0, |most: f64, weight| most.max(weight.abs()));
    if part > MOST * linalg::norm_sq(phi).sqrt() { f64::NAN } else { part * largest }
}

/// The solution of a system, or of the system with a small ridge if it is singular.
pub(super) fn some_solution(a: &Mat<f64>, b: &[f64]) -> Vec<f64> {
    const SMALL: f64 = 1e-9;
    let with_more = || {
        let mut more = a.clone();
        let size = a.norm_max() * SMALL;
        (0..b.len()).for_each(|i| more[(i, i)] += size);
        linalg::solve_if_regular(&more, b)
    };
    linalg::solve_if_regular(a, b).or_else(with_more).unwrap_or_else(|| vec![0.0; b.len()])
}

/// The number of transitions in a matrix product.
const BLOCK: usize = 64;

/// [`EpisodeSums`] under construction.
struct Summing {
    sums: EpisodeSums,
    traces: Mat<f64>,
    psis: Mat<f64>,
    used: usize,
}

impl Summing {
    fn new(d: usize) -> Self {
        Self { sums: EpisodeSums::zero(d), traces: Mat::zeros(d, BLOCK), psis: Mat::zeros(d, BLOCK), used: 0 }
    }

    fn add(&mut self, step: &Step<'_>, trace: &[f64], gamma: f64) {
        if self.used == BLOCK {
            self.multiply();
        }
        self.traces.col_as_slice_mut(self.used).copy_from_slice(trace);
        step.difference(gamma, self.psis.col_as_slice_mut(self.used));
        linalg::add_scaled(&mut self.sums.b, step.reward, trace);
        self.sums.transitions += 1.0;
        if step.starts {
            self.sums.starts += 1.0;
            linalg::add_scaled(&mut self.sums.start, 1.0, step.here);
        }
        self.used += 1;
    }

    fn multiply(&mut self) {
        linalg::add_outer(&mut self.sums.a, self.traces.subcols(0, self.used), self.psis.subcols(0, self.used));
        self.used = 0;
    }
}

/// The sums of one agent, for each fold.
pub(super) fn of_agent(source: &dyn LogSource, view: View<'_>, rule: FitRule, draw: &mut FoldDraw) -> Result<Vec<EpisodeSums>> {
    let d = view.len();
    let mut folds: Vec<Summing> = (0..FOLDS).map(|_| Summing::new(d)).collect();
    let (mut trace, mut fold) = (vec![0.0; d], 0);
    walk(source, view, rule.trace, &mut |event| {
        if let Walk::Step(step) = event {
            if step.is_new {
                fold = draw.next();
            }
            rule.lengthen(&mut trace, &step);
            folds[fold].add(&step, &trace, rule.trace.gamma);
        }
    })?;
    folds.iter_mut().for_each(Summing::multiply);
    Ok(folds.into_iter().map(|fold| fold.sums).collect())
}

/// The result of [`sums`].
pub(super) struct AllSums {
    /// For each fold, over all agents.
    pub folds: Vec<EpisodeSums>,
    /// For each agent: the sums over its episodes if it has enough for its own fit, and the number of its starts with their mean
    /// features.
    pub agents: Vec<AgentSums>,
}

/// The sums of an agent.
pub(super) struct AgentSums {
    pub starts: f64,
    pub mean_start: Vec<f64>,
    pub own: Option<EpisodeSums>,
}

/// The sums of all agents. Agents are added in their order, for any number of threads. The sums of an agent are kept if it has at least
/// `fewest` episodes with a start.
///
/// # Errors
/// When a log cannot be read.
pub(super) fn sums(sources: &[Box<dyn LogSource>], view: View<'_>, rule: FitRule, seed: u64, fewest: f64) -> Result<AllSums> {
    let d = view.len();
    let mut all = AllSums { folds: vec![EpisodeSums::zero(d); FOLDS], agents: Vec::new() };
    for first in (0..sources.len()).step_by(parallel::threads()) {
        let count = parallel::threads().min(sources.len() - first);
        let group = parallel::try_map_shared(count, |i| of_agent(&*sources[first + i], view, rule, &mut FoldDraw::new(seed, first + i)))?;
        for folds in group {
            all.folds.iter_mut().zip(&folds).for_each(|(all, fold)| all.add(1.0, fold));
            let own = EpisodeSums::total(&folds, d);
            let (starts, mean_start) = (own.starts, own.mean_start());
            all.agents.push(AgentSums { starts, mean_start, own: (sources.len() > 1 && starts >= fewest).then_some(own) });
        }
    }
    Ok(all)
}
