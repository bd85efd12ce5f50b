//! Samples of GTD2, TDC, and TD with importance ratios, on finite sets of transitions ([`crate::td::gradient_td`]).

use faer::Mat;

use crate::logs::log_means::Means;
use crate::td::gradient_td::{FeatureStep, GradientFacts, GradientRule};
use crate::td::td0::{Td, Trajectory, Transitions};
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::Problem;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::System;
use fedsa::random::Stream;
use fedsa::sampling::Sampling;

/// Transitions with their importance ratios.
#[derive(Debug, Clone)]
pub struct WeightedTransitions {
    /// The transitions.
    pub transitions: Transitions,
    /// The ratio of each, in their order; empty if all are 1.
    pub ratio: Vec<f64>,
}

impl WeightedTransitions {
    #[inline(always)]
    fn ratio(&self, z: usize) -> f64 {
        self.ratio.get(z).copied().unwrap_or(1.0)
    }

    /// `E weight f h^T` for a weight of a transition and a vector h of its features.
    fn products(&self, weight: impl Fn(usize) -> f64, right: impl Fn(usize, usize) -> f64) -> Mat<f64> {
        /// The number of transitions in a matrix product.
        const BLOCK: usize = 256;
        let (all, d) = (&self.transitions, self.transitions.features.dim());
        let mut sum = Mat::zeros(d, d);
        let numbers: Vec<usize> = (0..all.transitions.len()).collect();
        for block in numbers.chunks(BLOCK) {
            let row = |k: usize| all.features.row(all.transitions[block[k]].phi);
            let left = Mat::from_fn(d, block.len(), |i, k| all.mass(block[k]) * weight(block[k]) * row(k)[i]);
            let right = Mat::from_fn(d, block.len(), |j, k| right(block[k], j));
            linalg::add_outer(&mut sum, left.as_ref(), right.as_ref());
        }
        sum
    }

    /// `E rho f f^T`.
    pub(crate) fn weighted_gram(&self) -> Mat<f64> {
        let all = &self.transitions;
        self.products(|z| self.ratio(z), |z, j| all.features.row(all.transitions[z].phi)[j])
    }

    /// A, b and C.
    pub(crate) fn means(&self) -> Means {
        let (all, d) = (&self.transitions, self.transitions.features.dim());
        let a = self.products(|z| self.ratio(z), |z, j| all.psi(&all.transitions[z], j));
        let gram = self.products(|_| 1.0, |z, j| all.features.row(all.transitions[z].phi)[j]);
        let mut b = vec![0.0; d];
        for (z, t) in all.transitions.iter().enumerate() {
            linalg::add_scaled(&mut b, all.mass(z) * self.ratio(z) * t.reward, &all.features.row(t.phi)[..d]);
        }
        Means { system: System { a, b }, gram }
    }

    /// Transition `z` in the form that the operators take.
    #[inline(always)]
    fn step(&self, z: usize) -> FeatureStep<'_> {
        let all = &self.transitions;
        let t = &all.transitions[z];
        FeatureStep {
            phi: all.features.row(t.phi),
            next: all.features.row(t.next),
            gamma: all.gamma,
            reward: t.reward,
            ratio: self.ratio(z),
        }
    }
}

/// GTD2, TDC, or TD with ratios, over tables of transitions.
#[derive(Debug)]
pub struct GradientTd {
    rule: GradientRule,
    kinds: Vec<WeightedTransitions>,
    /// The draws of transitions.
    td: Td,
    facts: GradientFacts,
    dim: usize,
}

impl GradientTd {
    /// Agents of the given kinds with their means A, b and C; `kind_of` and `weights` have one entry per agent. `first` as in
    /// [`GradientFacts::new`].
    ///
    /// # Errors
    /// When the sampling starts chains in a state out of range.
    pub(crate) fn new(
        rule: GradientRule,
        kinds: Vec<WeightedTransitions>,
        means: &[Means],
        first: Option<&[Mat<f64>]>,
        kind_of: Vec<u32>,
        weights: Vec<f64>,
        sampling: Sampling,
    ) -> Result<Self> {
        let dim = rule.operator.dim(means[0].system.b.len());
        let facts = GradientFacts::new(rule, means, first, kind_of.clone(), weights.clone());
        let transitions = kinds.iter().map(|kind| kind.transitions.clone()).collect();
        let td = Td::with_means(transitions, kind_of, weights, sampling, |k, _| (means[k].system.clone(), means[k].gram.clone()))?;
        Ok(Self { rule, kinds, td, facts, dim })
    }

    /// The matrices `E rho f f^T` of all kinds, which the means of TDC's samples contain; `None` if they equal C.
    pub(crate) fn weighted_grams(kinds: &[WeightedTransitions]) -> Option<Vec<Mat<f64>>> {
        kinds.iter().any(|kind| !kind.ratio.is_empty()).then(|| parallel::map(kinds.len(), |k| kinds[k].weighted_gram()))
    }
}

impl Problem for GradientTd {
    /// The index of a transition.
    type Obs = usize;

    fn dim(&self) -> usize {
        self.dim
    }
    fn weights(&self) -> &[f64] {
        self.td.weights()
    }
    fn chain_len(&self) -> usize {
        self.td.chain_len()
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.td.start_chain(c, stream, chain);
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.td.is_state(c, chain)
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = self.td.table(c).draw(chain, stream);
    }
    #[inline(always)]
    fn apply(&self, c: usize, x: &[f64], z: &usize, out: &mut [f64]) {
        self.rule.apply(self.kinds[self.td.kind_of(c)].step(*z), x, out);
    }
    fn mean(&self, c: usize, x: &[f64], out: &mut [f64]) -> bool {
        let systems = self.facts.systems().expect("a linear problem");
        out.copy_from_slice(&systems.of(c).mean(x));
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for GradientTd {
    fn base(&self) -> Option<&dyn Facts> {
        Some(&self.facts)
    }
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        let source = &self.kinds[kind];
        let mass = (0..source.transitions.transitions.len()).map(|z| source.transitions.mass(z)).collect();
        Some(self.facts.law(mass, move |z| source.step(z)).with_chain(source.transitions.moves()))
    }
    fn stationary(&self, kind: usize) -> Option<&[f64]> {
        match &self.kinds[kind].transitions.chain {
            Trajectory::States { law, .. } => Some(law),
            Trajectory::Replay => None,
        }
    }
}
