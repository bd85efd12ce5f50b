//! Gradient temporal differences: GTD2 and TDC, which converge off-policy, where TD may diverge.
//!
//! The iterate is `x = (theta, u)`, 2 d numbers: weights, and an estimate of `C^-1 (b - A theta)`. `f` and `fn` are the features of a state
//! and of the next one (0 after the end of an episode). `rho` is the importance ratio, and `kappa` is the ratio of the two steps. The TD
//! error is `delta = r + gamma <fn, theta> - <f, theta>`.
//!
//! ```text
//! TD     g = rho delta f
//! GTD2   g = (rho (f - gamma fn) <f, u>,           kappa (rho delta f - <f, u> f))
//! TDC    g = (rho (delta f - gamma fn <f, u>),     kappa (rho delta f - <f, u> f))
//! ```
//!
//! (Sutton et al. 2009, "Fast gradient-descent methods for temporal-difference learning with linear function approximation", sections 4 and
//! 5, with a ratio on every term that depends on the action.) With `A = E rho f (f - gamma fn)^T`, `b = E rho r f` and `C = E f f^T` the
//! means are
//!
//! ```text
//! GTD2   (A^T u,                         kappa (b - A theta - C u))
//! TDC    (b - A theta - (C - A^T) u,     kappa (b - A theta - C u))
//! ```
//!
//! TDC's mean uses `E rho f f^T = C`, since `E[rho | s] = 1`. On logged transitions `E rho f f^T` is only near C. Mean sampling uses C.
//! Under i.i.d. and Markov sampling, TDC's mean is the mean of its samples, with `E rho f f^T` in the first line. Both means have the same
//! root if A is regular.
//!
//! The root of both operators minimises the projected Bellman error ([`fedsa::problem::projected`]), and equals TD's root if A is regular.
//! The mean over agents has the same form, with the means of A, b and C, so all first-order methods apply.
//!
//! A ridge EPS replaces A by `A + EPS I`, in samples and in means. Value errors are errors of theta.

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::linear::affine::Linear;
use crate::logs::log_means::Means;
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::projected::ProjectedBellman;
use fedsa::problem::root::{Root, RootSource};
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Problem, StepKernel};
use fedsa::random::Stream;
use fedsa::sampling::Law;

/// Temporal-difference operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TdOperator {
    /// TD, dimension d; may diverge off-policy.
    #[default]
    Td,
    /// GTD2, dimension 2 d; its mean converges for every `kappa` if features are independent.
    Gtd2,
    /// TDC (TD with gradient correction), dimension 2 d; faster than GTD2, but needs a large enough `kappa`.
    Tdc,
}

impl TdOperator {
    /// Whether the iterate has a second half u.
    pub fn has_auxiliary(self) -> bool {
        self != Self::Td
    }

    /// The dimension of the iterate for d features.
    pub fn dim(self, d: usize) -> usize {
        if self.has_auxiliary() { 2 * d } else { d }
    }
}

/// An operator with its settings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientRule {
    /// The operator.
    pub operator: TdOperator,
    /// The step of u divided by the step of theta, from 1e-12 to 1e12.
    pub kappa: f64,
    /// EPS: `A + EPS I` replaces A.
    pub ridge: f64,
}

impl GradientRule {
    /// The rule for `kappa` as in the settings: 1 if absent, and for GTD2 and TDC only.
    ///
    /// # Errors
    /// When kappa is not from 1e-12 to 1e12, or given with TD (key `kappa`).
    pub fn of(operator: TdOperator, kappa: Option<f64>, ridge: f64) -> Result<Self> {
        let given = kappa.unwrap_or(1.0);
        require((1e-12..=1e12).contains(&given), "kappa", given, "a number from 1e-12 to 1e12")?;
        if let (TdOperator::Td, Some(kappa)) = (operator, kappa) {
            let what = format!("{kappa} beside the operator td, which has one step");
            return Err(Error::new("kappa", what, "no kappa, or gtd2 or tdc as the operator"));
        }
        Ok(Self { operator, kappa: given, ridge })
    }

    /// The mean system of an agent: of dimension d for TD, otherwise 2 d. `first` replaces C in the first line of TDC.
    fn system(&self, means: &Means, first: &Mat<f64>) -> System {
        let (Means { system: System { a, b }, gram }, d) = (means, means.system.b.len());
        let Self { operator, kappa, ridge } = *self;
        let a = |i: usize, j: usize| a[(i, j)] + if i == j { ridge } else { 0.0 };
        if operator == TdOperator::Td {
            return System { a: Mat::from_fn(d, d, a), b: b.clone() };
        }
        let is_tdc = operator == TdOperator::Tdc;
        let entry = |i: usize, j: usize| match (i < d, j < d) {
            (true, true) => {
                if is_tdc {
                    a(i, j)
                } else {
                    0.0
                }
            }
            (true, false) => (if is_tdc { first[(i, j - d)] } else { 0.0 }) - a(j - d, i),
            (false, true) => kappa * a(i - d, j),
            (false, false) => kappa * gram[(i - d, j - d)],
        };
        let top = |b: &f64| if is_tdc { *b } else { 0.0 };
        System { a: Mat::from_fn(2 * d, 2 * d, entry), b: b.iter().map(top).chain(b.iter().map(|b| kappa * b)).collect() }
    }
}

/// Facts about the operator of all agents.
#[derive(Debug)]
pub struct GradientFacts {
    rule: GradientRule,
    systems: Systems,
    /// `C` of all agents, padded with zeros for u.
    gram: Mat<f64>,
    /// A (with the ridge) and b of every kind.
    td: Systems,
    /// C of all agents.
    c: Mat<f64>,
    /// Whether the first line of TDC uses C.
    is_exact: bool,
}

impl GradientFacts {
    /// Facts from the kinds' means and the agents' weights. `first` has a matrix per kind that replaces C in the first line of TDC; without
    /// it, C is used.
    pub(crate) fn new(rule: GradientRule, means: &[Means], first: Option<&[Mat<f64>]>, kind_of: Vec<u32>, weights: Vec<f64>) -> Self {
        let d = means[0].system.b.len();
        let systems = |kinds: Vec<System>| Systems::new(kinds, kind_of.clone(), weights.clone());
        let of = |k: usize| rule.system(&means[k], first.map_or(&means[k].gram, |first| &first[k]));
        let own = systems((0..means.len()).map(of).collect());
        let td = systems(means.iter().map(|means| means.system.clone()).collect()).with_ridge(rule.ridge);
        let mut c = Mat::zeros(d, d);
        for (mean, w) in means.iter().zip(own.kind_weights()) {
            c += faer::Scale(w) * &mean.gram;
        }
        let n = rule.operator.dim(d);
        let gram = Mat::from_fn(n, n, |i, j| if i < d && j < d { c[(i, j)] } else { 0.0 });
        Self { rule, systems: own, gram, td, c, is_exact: first.is_none() }
    }

    /// The law of a sample, from the probabilities of transitions and their features.
    pub(crate) fn law<'a>(&self, mass: Vec<f64>, transition: impl Fn(usize) -> FeatureStep<'a> + Send + Sync + 'a) -> FiniteLaw<'a> {
        let (rule, d) = (self.rule, self.c.nrows());
        let n = rule.operator.dim(d);
        FiniteLaw::linear(n, mass, move |z, a, b| {
            let FeatureStep { phi, next, gamma, reward, ratio } = transition(z);
            let psi = |j: usize| (-gamma).mul_add(next[j], phi[j]);
            let td = |i: usize, j: usize| ratio * phi[i] * psi(j) + if i == j { rule.ridge } else { 0.0 };
            for i in 0..d {
                let td_part = ratio * reward * phi[i];
                for j in 0..d {
                    match rule.operator {
                        TdOperator::Td => a[i * n + j] = td(i, j),
                        TdOperator::Gtd2 => (a[i * n + j], a[i * n + d + j]) = (0.0, -td(j, i)),
                        TdOperator::Tdc => {
                            let correction = ratio * gamma * next[i] * phi[j];
                            (a[i * n + j], a[i * n + d + j]) = (td(i, j), correction - if i == j { rule.ridge } else { 0.0 });
                        }
                    }
                    if rule.operator.has_auxiliary() {
                        (a[(d + i) * n + j], a[(d + i) * n + d + j]) = (rule.kappa * td(i, j), rule.kappa * phi[i] * phi[j]);
                    }
                }
                b[i] = if rule.operator == TdOperator::Gtd2 { 0.0 } else { td_part };
                if rule.operator.has_auxiliary() {
                    b[d + i] = rule.kappa * td_part;
                }
            }
        })
    }
}

/// A transition in the form that the operators take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeatureStep<'a> {
    /// The features of the state, d numbers or more.
    pub phi: &'a [f64],
    /// The features of the next state, d numbers or more.
    pub next: &'a [f64],
    pub gamma: f64,
    pub reward: f64,
    pub ratio: f64,
}

impl GradientRule {
    /// `out = g(x)` for a transition; x and out have the operator's dimension.
    #[inline(always)]
    pub(crate) fn apply(&self, step: FeatureStep<'_>, x: &[f64], out: &mut [f64]) {
        let d = if self.operator.has_auxiliary() { x.len() / 2 } else { x.len() };
        let FeatureStep { phi, next, gamma, reward, ratio } = step;
        let (phi, next, (theta, u)) = (&phi[..d], &next[..d], x.split_at(d));
        let (mut error, mut along) = ([0.0f64; 8], [0.0f64; 8]);
        for ((phi, next), theta) in phi.chunks(8).zip(next.chunks(8)).zip(theta.chunks(8)) {
            for (((sum, phi), next), theta) in error.iter_mut().zip(phi).zip(next).zip(theta) {
                *sum = theta.mul_add((-gamma).mul_add(*next, *phi), *sum);
            }
        }
        for (phi, u) in phi.chunks(8).zip(u.chunks(8)) {
            for ((sum, phi), u) in along.iter_mut().zip(phi).zip(u) {
                *sum = u.mul_add(*phi, *sum);
            }
        }
        let weighted = ratio * (reward - fedsa::kernel::tree(error));
        let along = fedsa::kernel::tree(along);
        let (top, bottom) = out.split_at_mut(d);
        match self.operator {
            TdOperator::Td => top.iter_mut().zip(phi).for_each(|(g, phi)| *g = weighted * phi),
            TdOperator::Gtd2 => {
                let scale = ratio * along;
                top.iter_mut().zip(phi).zip(next).for_each(|((g, phi), next)| *g = scale * (-gamma).mul_add(*next, *phi));
            }
            TdOperator::Tdc => {
                let scale = ratio * gamma * along;
                top.iter_mut().zip(phi).zip(next).for_each(|((g, phi), next)| *g = weighted.mul_add(*phi, -(scale * next)));
            }
        }
        let scale = self.kappa * (weighted - along);
        bottom.iter_mut().zip(phi).for_each(|(g, phi)| *g = scale * phi);
        if self.ridge > 0.0 {
            self.add_ridge(x, out);
        }
    }

    /// Subtracts the ridge's term from `out`.
    fn add_ridge(&self, x: &[f64], out: &mut [f64]) {
        let d = if self.operator.has_auxiliary() { x.len() / 2 } else { x.len() };
        let (theta, u) = x.split_at(d);
        let (top, bottom) = out.split_at_mut(d);
        if self.operator != TdOperator::Gtd2 {
            top.iter_mut().zip(theta).for_each(|(g, theta)| *g = (-self.ridge).mul_add(*theta, *g));
        }
        top.iter_mut().zip(u).for_each(|(g, u)| *g = self.ridge.mul_add(*u, *g));
        bottom.iter_mut().zip(theta).for_each(|(g, theta)| *g = (-self.kappa * self.ridge).mul_add(*theta, *g));
    }
}

impl Facts for GradientFacts {
    fn systems(&self) -> Option<&Systems> {
        Some(&self.systems)
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        Some(&self.gram)
    }
    fn takes_least_norm(&self) -> bool {
        true
    }
    fn projected_bellman(&self) -> Option<ProjectedBellman> {
        ProjectedBellman::new(self.td.mean(), &self.c)
    }
    fn td_systems(&self) -> Option<&Systems> {
        self.rule.operator.has_auxiliary().then_some(&self.td)
    }
    /// The minimum of the projected Bellman error, by a solve of dimension d. Two cases solve their own systems for the least norm: a ridge
    /// with singular `A + EPS I`, and TDC with another matrix than C in its mean.
    fn own_root(&self, _: &Cancel) -> Option<std::result::Result<Root, String>> {
        if !(self.rule.operator.has_auxiliary() && self.is_exact) {
            return None;
        }
        let d = self.c.nrows();
        let error = self.projected_bellman()?;
        let found = error.minimiser();
        if self.rule.ridge > 0.0 && found.rank < d {
            return None;
        }
        let rank = if found.rank == d { 2 * d } else { found.rank + error.feature_rank() };
        let source = if rank == 2 * d { RootSource::Linear } else { RootSource::LeastNorm { rank } };
        let theta = found.theta.into_iter().chain(found.auxiliary).collect();
        Some(Ok(Root { theta, source }))
    }
}

/// The mean operators of GTD2, TDC, or TD with ratios, without samples.
#[derive(Debug)]
pub struct GradientMeans {
    linear: Linear,
    facts: GradientFacts,
}

impl GradientMeans {
    /// The operators with these facts.
    pub(crate) fn new(facts: GradientFacts) -> Self {
        Self { linear: Linear::new(facts.systems.clone()), facts }
    }
}

impl Problem for GradientMeans {
    type Obs = ();
    fn dim(&self) -> usize {
        self.linear.dim()
    }
    fn weights(&self) -> &[f64] {
        self.linear.weights()
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, (): &mut ()) {}
    #[inline(always)]
    fn apply(&self, c: usize, x: &[f64], z: &(), out: &mut [f64]) {
        self.linear.apply(c, x, z, out);
    }
    #[inline(always)]
    fn mean(&self, c: usize, x: &[f64], out: &mut [f64]) -> bool {
        self.linear.mean(c, x, out)
    }
    fn facts(&self) -> &dyn Facts {
        &self.facts
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        (law == Law::Mean).then_some(|problem, blocks, etas, isa| problem.linear.mean_steps(blocks, etas, isa))
    }
}
