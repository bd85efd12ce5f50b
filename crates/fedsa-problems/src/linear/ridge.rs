//! A ridge `EPS I` added to every agent's matrix: `g_c(theta, z) - EPS theta`.

use crate::linear::affine::Linear;
use fedsa::problem::facts::Facts;
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::systems::Systems;
use fedsa::problem::{Problem, StepKernel};
use fedsa::random::Stream;
use fedsa::sampling::Law;

/// A linear problem with a ridge.
#[derive(Debug)]
pub struct Ridge<P> {
    problem: P,
    ridge: f64,
    /// The mean operators with the ridge.
    means: Linear,
}

impl<P: Problem> Ridge<P> {
    /// Adds a ridge to a problem; `ridge` is at least 0.
    ///
    /// # Panics
    /// When the problem has no linear systems.
    pub fn new(problem: P, ridge: f64) -> Self {
        let systems = problem.facts().systems().expect("a linear problem").clone();
        Self { problem, ridge, means: Linear::new(systems.with_ridge(ridge)) }
    }
}

impl<P: Problem> Problem for Ridge<P> {
    type Obs = P::Obs;
    fn dim(&self) -> usize {
        self.problem.dim()
    }
    fn weights(&self) -> &[f64] {
        self.problem.weights()
    }
    fn chain_len(&self) -> usize {
        self.problem.chain_len()
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.problem.start_chain(c, stream, chain);
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.problem.is_state(c, chain)
    }
    #[inline(always)]
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut P::Obs) {
        self.problem.sample(c, theta, chain, stream, z);
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &P::Obs, out: &mut [f64]) {
        self.problem.apply(c, theta, z, out);
        out.iter_mut().zip(theta).for_each(|(out, theta)| *out = (-self.ridge).mul_add(*theta, *out));
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.means.mean(c, theta, out)
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        (law == Law::Mean).then_some(|problem, blocks, etas, isa| problem.means.mean_steps(blocks, etas, isa))
    }
}

impl<P: Problem> Facts for Ridge<P> {
    fn base(&self) -> Option<&dyn Facts> {
        Some(self.problem.facts())
    }
    fn systems(&self) -> Option<&Systems> {
        self.means.systems()
    }
    /// The law of the problem, with the ridge in every sample.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        Some(self.problem.facts().law(kind)?.with_ridge(self.ridge))
    }
    fn export(&self) -> Option<fedsa::problem::arrays::Arrays> {
        None
    }
}
