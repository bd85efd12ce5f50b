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
use fedsa::privacy::unit::{ClippedUnits, PrivacyUnit, UnitClip};
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
    /// How the part of each transition or episode in the sums of A and b is shortened.
    pub clip: Option<UnitClip>,
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
    /// A and b of the episodes before, if episodes are shortened.
    before: Option<System>,
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
        let by_episode = rule.clip.is_some_and(|clip| clip.unit == PrivacyUnit::Episode);
        let before = by_episode.then(|| System { a: Mat::zeros(d, d), b: vec![0.0; d] });
        Self { features, isa, rule, n: 0, a, b: vec![0.0; d], before, gram, trace, traces: block(), psis: block(), phis: block(), used: 0 }
    }

    fn add(&mut self, batch: &LogBatch<'_>) {
        for i in 0..batch.log.len() {
            if self.used == BLOCK {
                self.multiply();
            }
            if self.before.is_some() && batch.begins(i) {
                self.end_episode();
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
        let trace = self.traces.col_as_slice_mut(self.used);
        trace.copy_from_slice(&self.trace);
        if let Some(clip) = self.rule.clip.filter(|clip| clip.unit == PrivacyUnit::Row) {
            // The part of the row is (z psi^T, r z).
            let factor = clip.factor(linalg::norm(trace) * linalg::norm(psi).hypot(log.rewards[i]));
            trace.iter_mut().for_each(|z| *z *= factor);
        }
        products::add_scaled(isa, &mut self.b, log.rewards[i], trace);
        self.used += 1;
    }

    /// Adds the sums of the last episode, shortened, to those before.
    fn end_episode(&mut self) {
        self.multiply();
        let (Some(before), Some(clip)) = (&mut self.before, self.rule.clip) else { return };
        let factor = clip.factor((self.a.squared_norm_l2() + linalg::norm_sq(&self.b)).sqrt());
        before.a += faer::Scale(factor) * &self.a;
        before.b.iter_mut().zip(&self.b).for_each(|(sum, b)| *sum += factor * b);
        self.a.fill(0.0);
        self.b.fill(0.0);
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
        self.end_episode();
        if let Some(System { a, b }) = self.before {
            (self.a, self.b) = (a, b);
        }
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
    /// How the units of each agent are shortened in the means, if they are.
    units: Vec<ClippedUnits>,
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
        Self { linear: Linear::new(systems), gram, units: Vec::new() }
    }

    /// The same of means of so many rows of each agent, in which units are shortened.
    #[must_use]
    pub fn with_clip(self, clip: Option<UnitClip>, rows: impl Iterator<Item = u64>) -> Self {
        let units = clip.map_or_else(Vec::new, |clip| rows.map(|rows| ClippedUnits { clip, rows }).collect());
        Self { units, ..self }
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
    fn clipped_units(&self, c: usize) -> Option<ClippedUnits> {
        self.units.get(c).copied()
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        Some(&self.gram)
    }
    fn takes_least_norm(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{FeatureMap, FeatureSpec, Ranges};
    use crate::logs::log::Log;
    use fedsa::random::{Purpose, stream};

    /// A log of episodes of different lengths, with rewards of different sizes.
    fn log() -> Log {
        let (n, mut s) = (70, stream(3, Purpose::Fresh, 0, 0));
        let mut numbers = || (0..n).map(|_| s.normal()).collect::<Vec<f64>>();
        let (states, rewards) = (numbers(), numbers());
        let next = (0..n).map(|i| states[(i + 1) % n]).collect();
        Log {
            name: "a".into(),
            columns: vec!["s_0".into()],
            states,
            rewards: rewards.into_iter().enumerate().map(|(i, r)| r * (1 + i % 5) as f64).collect(),
            next,
            done: (0..n).map(|i| [3, 4, 20, 41, 69].contains(&i)).collect(),
            truncated: None,
            breaks: None,
            episode: None,
            ratio: None,
            actions: None,
        }
    }

    /// The system from the definition: each unit's `(sum z psi^T, sum r z)`, shortened, then summed and divided by n.
    fn slow(log: &Log, map: &FeatureMap, rule: TraceRule) -> Vec<f64> {
        let (d, n) = (map.len(), log.rewards.len());
        let phi = |x: f64| {
            let mut out = vec![0.0; d];
            map.eval(&[x], &mut out);
            out
        };
        let clip = rule.clip.unwrap();
        let (mut sum, mut unit, mut z) = (vec![0.0; d * d + d], vec![0.0; d * d + d], vec![0.0; d]);
        for i in 0..n {
            let (now, next) = (phi(log.states[i]), phi(log.next[i]));
            for k in 0..d {
                z[k] = rule.decay() * z[k] + now[k];
            }
            for k in 0..d {
                for l in 0..d {
                    unit[k * d + l] += z[k] * (now[l] - if log.done[i] { 0.0 } else { rule.gamma * next[l] });
                }
                unit[d * d + k] += log.rewards[i] * z[k];
            }
            let ends = log.done[i] || i + 1 == n;
            if ends || clip.unit == PrivacyUnit::Row {
                let norm = unit.iter().map(|x| x * x).sum::<f64>().sqrt();
                let factor = if norm > clip.norm { clip.norm / norm } else { 1.0 };
                sum.iter_mut().zip(&unit).for_each(|(sum, x)| *sum += factor * x / n as f64);
                unit.fill(0.0);
            }
            if ends {
                z.fill(0.0);
            }
        }
        sum
    }

    #[test]
    fn units_are_shortened_as_defined() {
        let (log, spec) = (log(), FeatureSpec::Fourier { order: 2, scaled: false });
        let map = FeatureMap::new(&spec, &log.columns, &Ranges::from([("s_0".into(), (-3.0, 3.0))])).unwrap();
        for (unit, lambda) in [(PrivacyUnit::Row, 0.0), (PrivacyUnit::Episode, 0.0), (PrivacyUnit::Episode, 0.7)] {
            for norm in [0.5, 3.0, 20.0, 1e6] {
                let rule = TraceRule { gamma: 0.9, lambda, ratios: true, clip: Some(UnitClip { unit, norm }) };
                let means = Means::of(&log, &map, rule, 1).unwrap();
                let d = map.len();
                let own = (0..d).flat_map(|i| (0..d).map(move |j| (i, j))).map(|(i, j)| means.system.a[(i, j)]);
                let own: Vec<f64> = own.chain(means.system.b.iter().copied()).collect();
                let want = slow(&log, &map, rule);
                assert!(own.iter().zip(&want).all(|(x, y)| (x - y).abs() < 1e-12 * norm.min(30.0)), "{unit:?} {lambda} {norm}");
                // The least norm shortens, and the largest changes nothing.
                let free = Means::of(&log, &map, TraceRule { clip: None, ..rule }, 1).unwrap();
                let moved = (&free.system.a - &means.system.a).norm_l2();
                assert!(norm > 0.5 || moved > 0.01, "{moved}");
                assert!(norm < 1e6 || moved < 1e-12, "{moved}");
            }
        }
    }
}
