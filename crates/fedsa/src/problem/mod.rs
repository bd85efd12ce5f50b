//! Problems: the agents' operators, their samples, their roots.
//!
//! A problem provides `sample` and `apply` ([`Problem`]). Local rules, the round loop and the record use it as a [`Field`], a problem with
//! its sampling. Mean operators and all other knowledge of a problem ([`Facts`]) are optional.

pub mod arrays;
pub mod batched;
pub mod calls;
pub mod copies;
pub mod facts;
pub mod law;
pub mod linear_operators;
pub mod newton;
pub mod objective;
pub mod policy_systems;
pub mod projected;
pub mod root;
mod sampled;
pub mod systems;

use std::sync::Arc;

use faer::Mat;

use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::{Isa, LANES, Lanes};
use crate::linalg;
use crate::parallel;
use crate::random::Stream;
use crate::sampling::{Law, Sampling};
use crate::sums;
use facts::Unknown;
use root::Root;
use systems::{Moments, Systems};

pub use batched::{BatchCall, BatchOperators, Batched};
pub use facts::Facts;
pub use linear_operators::LinearOperators;
pub use objective::Objective;
pub use policy_systems::PolicySystems;
pub use sampled::{Sampled, field};

/// A problem's own kernel: `theta += eta_h (g_c(theta, z_h) + drift)` for every `eta_h`, in every lane of these blocks.
pub type StepKernel<P> = fn(&P, &mut [Lanes], &[f64], Isa);

/// N agents' operators `gbar_c`, seen through samples `g_c(theta, z)`.
///
/// An operator points where theta should move. Building a problem fixes whether `sample` draws independently or along a chain.
pub trait Problem: Sized + Send + Sync + 'static {
    /// One observation z. The kernel reuses it as a buffer.
    type Obs: Default;

    /// The dimension d of theta.
    fn dim(&self) -> usize;
    /// The agents' weights `p_c`, N of them, summing to 1.
    fn weights(&self) -> &[f64];
    /// The number of words of state of one agent's sampling process; 0 for independent draws.
    fn chain_len(&self) -> usize {
        0
    }
    /// The initial state of agent `c`'s sampling process.
    fn start_chain(&self, _c: usize, _stream: &mut Stream, _chain: &mut [u64]) {}
    /// Whether agent `c`'s sampling process can be in this state, read from a checkpoint.
    fn is_state(&self, _c: usize, _chain: &[u64]) -> bool {
        true
    }
    /// Draws z for agent `c` and advances its process. `theta` is the agent's iterate `theta_{c,h}` of d components, where the sample will
    /// be used; it is the same for a batch.
    ///
    /// The law of z may depend on theta, for example if theta is the agent's policy. `gbar_c(theta)` is then the mean of `g_c(theta, z)`
    /// over the law that theta induces, and [`Facts::jacobian`] includes the derivative of that law. Omit what assumes one law for all
    /// theta: [`Facts::law`], [`Facts::moments`], [`Problem::local_phase`].
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut Self::Obs);
    /// `out = g_c(theta, z)`; theta and out have d components.
    fn apply(&self, c: usize, theta: &[f64], z: &Self::Obs, out: &mut [f64]);
    /// `out = gbar_c(theta)`, and true. Problems whose operators can only be sampled omit this function. The result false (unknown mean
    /// operators) must not depend on c or theta.
    fn mean(&self, _c: usize, _theta: &[f64], _out: &mut [f64]) -> bool {
        false
    }
    /// Further knowledge of the problem: linear systems, Jacobians, the law of a sample, an objective.
    fn facts(&self) -> &dyn Facts {
        &Unknown
    }
    /// The problem's own fast kernel for the H local steps: on mean operators under [`Law::Mean`], otherwise with one sample per step.
    /// Without one, [`generic::local_phase`](crate::kernel::generic::local_phase) makes the steps.
    fn local_phase(&self, _law: Law) -> Option<StepKernel<Self>> {
        None
    }
}

/// A problem with its sampling.
pub trait Field: Send + Sync {
    /// The dimension d.
    fn dim(&self) -> usize;
    /// The weights `p_c`.
    fn weights(&self) -> &[f64];
    /// The number of agents N.
    fn agents(&self) -> usize {
        self.weights().len()
    }
    /// Words of state of one agent's sampling process.
    fn chain_len(&self) -> usize;
    /// How samples are drawn.
    fn sampling(&self) -> Sampling;
    /// The initial state of agent `c`'s sampling process.
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]);
    /// Whether agent `c`'s sampling process can be in this state, read from a checkpoint.
    fn is_state(&self, c: usize, chain: &[u64]) -> bool;
    /// `theta += eta_h (g_c(theta, z_h) + drift)` for every `eta_h`, in every lane of these blocks.
    fn local_phase(&self, blocks: &mut [Lanes], etas: &[f64]);
    /// `g_c(theta, z)` of every lane with the next sample of its stream, into `lanes.observed`. The lane's process and stream advance only
    /// if `advance`.
    fn observe(&self, blocks: &mut [Lanes], advance: bool);
    /// Whether calls are expensive, so that the participants of an exchange share each call.
    fn prefers_one_call(&self) -> bool {
        false
    }
    /// `out = gbar_c(theta)`, and true; false if operators can only be sampled.
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool;
    /// `gbar_c(theta)` of every agent, N d numbers, if that takes one call and the mean operators are known.
    fn means_in_one_call(&self, _theta: &[f64]) -> Option<Vec<f64>> {
        None
    }
    /// Whether the mean operators are known.
    fn has_mean(&self) -> bool;
    /// Further knowledge of the problem.
    fn facts(&self) -> &dyn Facts;
    /// `theta*` and its source, or the reason why it is unknown; computed on the first call.
    fn solution(&self) -> std::result::Result<&Root, &str>;
    /// Computes `theta*` now, for [`Field::solution`], unless it has been computed before. An unknown root is no error.
    ///
    /// # Errors
    /// When cancelled; the next call begins again.
    fn solve(&self, cancel: &Cancel) -> Result<()>;
    /// Sets `theta*` from a checkpoint, because factorisations may differ in the last bits between instruction sets. Has no effect once the
    /// field has computed it.
    fn set_root(&self, root: Vec<f64>);
    /// The same field on the portable generic kernel, the slow reference for all others.
    fn generic(&self) -> Arc<dyn Field>;
    /// The failure of operators that are evaluated elsewhere; results computed since are void.
    fn failure(&self) -> Option<Error> {
        None
    }
    /// Forgets [`Field::failure`]; the caller has gone back to a state before it.
    fn recover(&self) {}

    /// `theta*`, if known.
    fn root(&self) -> Option<&[f64]> {
        self.solution().ok().map(|root| &root.theta[..])
    }
    /// The linear systems, when every `gbar_c` is affine.
    fn systems(&self) -> Option<&Systems> {
        self.facts().systems()
    }
    /// [`Facts::moments`] of a kind of agents, computed once unless all kinds' moments take much memory.
    fn second_moments(&self, kind: usize) -> Option<Arc<Moments>>;
    /// Second moments of one sample of a kind of agents, if samples are independent.
    fn moments(&self, kind: usize) -> Option<Moments> {
        (self.sampling().kind == Law::Iid).then(|| self.second_moments(kind).map(Arc::unwrap_or_clone)).flatten()
    }
}

/// Functions that are compiled once, not per kind of problem.
impl dyn Field + '_ {
    /// Checks that the start of the sampling processes has not failed.
    ///
    /// # Errors
    /// [`Field::failure`], which is then forgotten.
    pub(crate) fn started(&self) -> Result<()> {
        let failure = self.failure();
        self.recover();
        failure.map_or(Ok(()), Err)
    }
    /// `sum_c p_c f_c(theta)`, computed in parallel and summed in the agents' order; `None` if operators are not minus gradients.
    pub fn mean_loss(&self, theta: &[f64]) -> Option<f64> {
        let objective = self.facts().objective()?;
        let losses: Vec<f64> = parallel::map(self.agents(), |c| self.weights()[c] * objective.loss(c, theta));
        Some(losses.iter().sum())
    }
    /// `sum_c p_c f_c(theta)` and `sum_c p_c gbar_c(theta)`, with the bits of `mean_loss` and `mean_operator`, but with shared work done
    /// once. `None` if one is unknown, and for linear systems.
    pub fn mean_loss_and_operator(&self, theta: &[f64]) -> Option<(f64, Vec<f64>)> {
        if self.systems().is_some() || self.prefers_one_call() || !self.has_mean() {
            return None;
        }
        let (objective, d, n) = (self.facts().objective()?, self.dim(), self.agents());
        let block = |i: usize| {
            let (mut sum, mut g, mut losses) = (vec![0.0; d], vec![0.0; d], Vec::with_capacity(LANES));
            for (c, p) in self.weights().iter().enumerate().skip(i * LANES).take(LANES) {
                losses.push(p * objective.loss_and_gradient(c, theta, &mut g));
                g.iter_mut().for_each(|g| *g = -*g);
                sums::accumulate(&mut sum, *p, &g);
            }
            (losses, sum)
        };
        let (losses, sums): (Vec<_>, Vec<_>) = parallel::map(n.div_ceil(LANES), block).into_iter().unzip();
        let mut sums = sums.concat();
        sums::pairwise(&mut sums, d);
        sums.truncate(d);
        Some((losses.iter().flatten().sum(), sums))
    }
    /// `sum_c p_c gbar_c(theta)`, d numbers, in parallel and in the order of [`sums`]; `None` if operators can only be sampled.
    pub fn mean_operator(&self, theta: &[f64]) -> Option<Vec<f64>> {
        if let Some(systems) = self.systems() {
            return Some(systems.mean().mean(theta));
        }
        let d = self.dim();
        let all = self.means_in_one_call(theta);
        let block = |i: usize, sum: &mut [f64]| {
            let (first, mut g) = (i * LANES, vec![0.0; d]);
            for (c, p) in self.weights().iter().enumerate().skip(first).take(LANES) {
                match &all {
                    Some(all) => g.copy_from_slice(&all[c * d..][..d]),
                    None => _ = self.mean(c, theta, &mut g),
                }
                sums::accumulate(sum, *p, &g);
            }
        };
        self.has_mean().then(|| {
            let mut blocks = vec![0.0; self.agents().div_ceil(LANES) * d];
            parallel::each_chunk(&mut blocks, d, &block);
            sums::pairwise(&mut blocks, d);
            blocks.truncate(d);
            blocks
        })
    }
}

/// Equal weights `1/N`.
pub fn equal_weights(agents: usize) -> Vec<f64> {
    vec![1.0 / agents as f64; agents]
}

/// The squared norm of value errors, `(theta - root)^T gram (theta - root)`.
pub fn value_error(gram: &Mat<f64>, theta: &[f64], root: &[f64]) -> f64 {
    let u = crate::linalg::minus(theta, root);
    linalg::mat_vec(gram, &u).iter().zip(&u).map(|(x, y)| x * y).sum()
}
