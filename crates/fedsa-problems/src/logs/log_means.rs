//! The mean operators of TD(lambda) on logs, summed in one pass over their transitions.
//!
//! ```text
//! Abar = (1/n) sum_t z_t (phi_t - gamma phi'_t)^T + EPS I,   bbar = (1/n) sum_t z_t r_t
//! ```
//!
//! with the traces `z_t` of [`mod@crate::td::traces`], equal to `phi_t` if lambda is 0 and ratios are 1. It takes memory for one block of
//! transitions and the sums, not for the logs.

use faer::Mat;

use crate::features::FeatureMap;
use crate::linear::affine::Linear;
use crate::logs::block_features::BlockFeatures;
use crate::logs::source::{LogBatch, LogSource, read_checked};
use fedsa::error::{Error, Result, quoted};
use fedsa::kernel::{Isa, products};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Problem, StepKernel};
use fedsa::random::Stream;
use fedsa::sampling::Law;

/// The update rule of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TraceRule {
    /// The discount factor gamma.
    pub gamma: f64,
    /// `lambda`.
    pub lambda: f64,
    /// Whether importance ratios are used, if logged.
    pub ratios: bool,
}

impl TraceRule {
    /// `gamma lambda`.
    pub fn decay(&self) -> f64 {
        self.gamma * self.lambda
    }

    /// The importance ratio of transition `i` of a batch.
    pub fn ratio(&self, batch: &LogBatch<'_>, i: usize) -> f64 {
        batch.log.ratio.as_ref().filter(|_| self.ratios).map_or(1.0, |ratio| ratio[i])
    }
}

/// The sums over one agent's transitions.
struct Sums<'a> {
    features: BlockFeatures<'a>,
    isa: Isa,
    rule: TraceRule,
    /// Transitions so far.
    n: usize,
    a: Mat<f64>,
    b: Vec<f64>,
    gram: Mat<f64>,
    trace: Vec<f64>,
    /// Columns of one block: traces, `psi = phi - gamma phi'`, and phi.
    traces: Mat<f64>,
    psis: Mat<f64>,
    phis: Mat<f64>,
    used: usize,
}

/// The number of transitions in a matrix product.
const BLOCK: usize = 256;

impl<'a> Sums<'a> {
    /// `agents` is the number of agents whose logs are read at the same time.
    fn new(map: &'a FeatureMap, rule: TraceRule, agents: usize) -> Self {
        let d = map.len();
        let block = || Mat::<f64>::zeros(d, BLOCK);
        let (a, gram, trace) = (Mat::zeros(d, d), Mat::zeros(d, d), vec![0.0; d]);
        let (features, isa) = (BlockFeatures::new(map, agents), Isa::best());
        Self { features, isa, rule, n: 0, a, b: vec![0.0; d], gram, trace, traces: block(), psis: block(), phis: block(), used: 0 }
    }

    fn add(&mut self, batch: &LogBatch<'_>) {
        for i in 0..batch.log.len() {
            if self.used == BLOCK {
                self.multiply();
            }
            self.add_one(batch, i);
        }
        self.n += batch.log.len();
    }

    /// Adds transition `i` of a batch to the block.
    fn add_one(&mut self, batch: &LogBatch<'_>, i: usize) {
        let (log, isa, TraceRule { gamma, .. }) = (batch.log, self.isa, self.rule);
        let [phi, next] = self.features.of(log, i);
        self.phis.col_as_slice_mut(self.used).copy_from_slice(phi);
        let psi = self.psis.col_as_slice_mut(self.used);
        if log.done[i] {
            psi.copy_from_slice(phi);
        } else {
            products::along(isa, psi, phi, -gamma, next);
        }
        if batch.begins(i) {
            self.trace.fill(0.0);
        }
        products::lengthen(isa, &mut self.trace, self.rule.decay(), self.rule.ratio(batch, i), phi);
        self.traces.col_as_slice_mut(self.used).copy_from_slice(&self.trace);
        products::add_scaled(isa, &mut self.b, log.rewards[i], &self.trace);
        self.used += 1;
    }

    /// Adds the products of the block, and clears it.
    fn multiply(&mut self) {
        let used = self.used;
        linalg::add_outer(&mut self.a, self.traces.subcols(0, used), self.psis.subcols(0, used));
        linalg::add_outer(&mut self.gram, self.phis.subcols(0, used), self.phis.subcols(0, used));
        self.used = 0;
    }

    /// The means.
    fn finish(mut self) -> Means {
        self.multiply();
        let share = 1.0 / self.n as f64;
        self.b.iter_mut().for_each(|b| *b *= share);
        self.a *= faer::Scale(share);
        self.gram *= faer::Scale(share);
        Means { system: System { a: self.a, b: self.b }, gram: self.gram }
    }
}

/// `Abar`, `bbar`, and `Phi^T D Phi` without ratios, of one agent.
pub struct Means {
    /// `Abar` and `bbar`.
    pub system: System,
    /// `Phi^T D Phi`, d x d.
    pub gram: Mat<f64>,
}

impl Means {
    /// The means of one log; `agents` is the number of agents whose logs are read at the same time.
    ///
    /// # Errors
    /// When the log cannot be read, or its traces overflow.
    pub fn of(source: &dyn LogSource, map: &FeatureMap, rule: TraceRule, agents: usize) -> Result<Self> {
        let mut sums = Sums::new(map, rule, agents);
        read_checked(source, &mut |batch| {
            sums.add(&batch);
            Ok(())
        })?;
        let means = sums.finish();
        let System { a, b } = &means.system;
        if !(a.norm_l1().is_finite() && b.iter().all(|x| x.is_finite())) {
            return Err(overflow(source.name(), rule));
        }
        Ok(means)
    }

    /// The means of all logs.
    ///
    /// # Errors
    /// As [`Means::of`].
    pub fn of_all(sources: &[Box<dyn LogSource>], map: &FeatureMap, rule: TraceRule) -> Result<Vec<Self>> {
        parallel::try_map_shared(sources.len(), |c| Self::of(&*sources[c], map, rule, sources.len()))
    }
}

/// The error about sums that are not finite.
pub(crate) fn overflow(name: &str, rule: TraceRule) -> Error {
    let name = quoted(name);
    if rule.ratios && rule.lambda > 0.0 {
        let what = format!("{name}: traces at lambda = {} overflow, because they multiply importance ratios", rule.lambda);
        return Error::new("lambda", what, "a smaller lambda, or smaller ratios");
    }
    Error::data("path", format!("{name}: products of its features and rewards overflow"), "smaller numbers")
}

/// Logs of which only the mean operators are kept.
#[derive(Debug)]
pub struct LogMeans {
    linear: Linear,
    gram: Mat<f64>,
}

impl LogMeans {
    /// Agents with these means and weights, and a ridge of at least 0 added to every matrix.
    pub fn new(means: Vec<Means>, weights: Vec<f64>, ridge: f64) -> Self {
        let d = means[0].system.b.len();
        let mut gram = Mat::zeros(d, d);
        for (mean, w) in means.iter().zip(&weights) {
            gram += faer::Scale(*w) * &mean.gram;
        }
        let kind_of = (0..means.len() as u32).collect();
        let kinds = means.into_iter().map(|mean| mean.system).collect();
        let systems = Systems::new(kinds, kind_of, weights).with_ridge(ridge);
        Self { linear: Linear::new(systems), gram }
    }
}

impl Problem for LogMeans {
    type Obs = ();
    fn dim(&self) -> usize {
        self.linear.dim()
    }
    fn weights(&self) -> &[f64] {
        self.linear.weights()
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, _: &mut ()) {}
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &(), out: &mut [f64]) {
        self.linear.apply(c, theta, z, out);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.linear.mean(c, theta, out)
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        (law == Law::Mean).then_some(|problem, blocks, etas, isa| problem.linear.mean_steps(blocks, etas, isa))
    }
}

impl Facts for LogMeans {
    fn base(&self) -> Option<&dyn Facts> {
        Some(self.linear.facts())
    }
    /// Single transitions are not kept.
    fn law(&self, _: usize) -> Option<FiniteLaw<'_>> {
        None
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        Some(&self.gram)
    }
    fn takes_least_norm(&self) -> bool {
        true
    }
}
