//! A problem joined with its sampling.

use std::sync::{Arc, OnceLock};

use super::facts::Facts;
use super::root::{Root, RootSource};
use super::{Field, Problem, StepKernel};
use crate::cancel::Cancel;
use crate::error::{Error, Result};
use crate::kernel::{Isa, Lanes, generic};
use crate::parallel;
use crate::problem::newton;
use crate::problem::systems::{Moments, Systems};
use crate::random::Stream;
use crate::sampling::{Law, Sampling};

/// The root of a field, by one linear solve, or by Newton's method from 0 ([`newton::newton`]) and, if that fails, from
/// [`Facts::near_root`].
///
/// # Errors
/// Why it is unknown, or that it was cancelled.
fn solved(field: &dyn Field, cancel: &Cancel) -> std::result::Result<Root, String> {
    let (facts, d) = (field.facts(), field.dim());
    if let Some(root) = facts.own_root(cancel) {
        return root;
    }
    match facts.systems() {
        Some(systems) if facts.takes_least_norm() => Ok(systems.least_root()),
        Some(systems) => match systems.root() {
            Ok(theta) => Ok(Root { theta, source: RootSource::Linear }),
            Err(e) => Err(e.to_string()),
        },
        None if facts.linear_operators().is_some() => {
            Err(format!("the root of {d} sparse equations is not computed: the residual says how near a point is to it"))
        }
        None => newton::newton(field, &vec![0.0; d], cancel).or_else(|why| match facts.near_root() {
            Some(start) => newton::newton(field, &start, cancel).map_err(|_| why),
            None => Err(why),
        }),
    }
}

/// The root of a field, computed on first use.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptRoot(OnceLock<std::result::Result<Root, String>>);

impl KeptRoot {
    /// `theta*`, or why it is unknown.
    pub fn of(&self, field: &dyn Field) -> std::result::Result<&Root, &str> {
        kept(&self.0, || solved(field, &Cancel::never())).as_ref().map_err(String::as_str)
    }

    /// Computes it, unless it is known.
    ///
    /// # Errors
    /// When it was cancelled.
    pub fn solve(&self, field: &dyn Field, cancel: &Cancel) -> Result<()> {
        if self.0.get().is_none() {
            let root = solved(field, cancel);
            // A cancelled computation has no result.
            cancel.check()?;
            let _ = self.0.set(root);
        }
        Ok(())
    }

    /// Sets the root of a checkpoint. Has no effect if a root is set.
    pub fn set(&self, theta: Vec<f64>) {
        let _ = self.0.set(Ok(Root { theta, source: RootSource::Given }));
    }
}

/// The value of `cell`, computed outside the cell: a thread of the pool that waits during the computation takes another task, and may come
/// here again. Threads that compute it at once get the same bits, and the first value is kept.
fn kept<T>(cell: &OnceLock<T>, compute: impl FnOnce() -> T) -> &T {
    if cell.get().is_none() {
        let _ = cell.set(compute());
    }
    cell.get().expect("it was just set")
}

/// A problem and a sampling make a field.
#[derive(Debug)]
pub struct Sampled<P> {
    problem: Arc<P>,
    sampling: Sampling,
    isa: Isa,
    /// The problem's own kernel for this sampling, if it has one; cached, because a local phase of one step takes nanoseconds.
    own: Option<StepKernel<P>>,
    /// Whether the problem's own kernels are skipped.
    generic: bool,
    has_mean: bool,
    root: KeptRoot,
    /// The cached second moments of each kind; empty if they would take more than [`KEPT_MOMENTS`].
    moments: Vec<OnceLock<Option<Arc<Moments>>>>,
}

/// The largest cache of second moments, in bytes.
const KEPT_MOMENTS: usize = 1 << 28;

impl<P: Problem> Sampled<P> {
    /// Joins a problem (built for `sampling`) with its sampling.
    ///
    /// # Errors
    /// When the batch is out of range, or mean operators are wanted but unknown.
    pub fn new(problem: P, sampling: Sampling, isa: Isa) -> Result<Self> {
        sampling.check().map_err(|e| e.inside("sampling"))?;
        let d = problem.dim();
        let has_mean = problem.mean(0, &vec![0.0; d], &mut vec![0.0; d]);
        if sampling.kind == Law::Mean && !has_mean {
            let what = "mean, and the operators of this problem can only be sampled: their means are not known";
            return Err(Error::new("sampling.kind", what, "iid or markov"));
        }
        let kinds = problem.facts().systems().map_or(0, |systems| systems.kinds.len());
        let is_kept = kinds.saturating_mul(8 * (d * d + d).saturating_pow(2)) <= KEPT_MOMENTS;
        let moments = (0..if is_kept { kinds } else { 0 }).map(|_| OnceLock::new()).collect();
        let own = (sampling.samples_per_step() <= 1).then(|| problem.local_phase(sampling.kind)).flatten();
        Ok(Self { problem: Arc::new(problem), sampling, isa, own, generic: false, has_mean, root: KeptRoot::default(), moments })
    }

    /// The problem.
    pub fn problem(&self) -> &P {
        &self.problem
    }

    #[inline]
    fn batch(&self) -> usize {
        self.sampling.samples_per_step()
    }

    /// The instruction set of the generic kernel.
    fn generic_isa(&self) -> Isa {
        if self.generic { Isa::Portable } else { self.isa }
    }
}

impl<P: Problem> Field for Sampled<P> {
    fn dim(&self) -> usize {
        self.problem.dim()
    }
    fn weights(&self) -> &[f64] {
        self.problem.weights()
    }
    fn chain_len(&self) -> usize {
        self.problem.chain_len()
    }
    fn sampling(&self) -> Sampling {
        self.sampling
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        self.problem.start_chain(c, stream, chain);
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.problem.is_state(c, chain)
    }
    fn local_phase(&self, blocks: &mut [Lanes], etas: &[f64]) {
        match self.own {
            Some(own) => own(&self.problem, blocks, etas, self.isa),
            None => blocks.iter_mut().for_each(|lanes| generic::local_phase(&*self.problem, lanes, etas, self.batch(), self.generic_isa())),
        }
    }
    fn observe(&self, blocks: &mut [Lanes], advance: bool) {
        blocks.iter_mut().for_each(|lanes| generic::observe(&*self.problem, lanes, advance, self.batch(), self.generic_isa()));
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.problem.mean(c, theta, out)
    }
    fn has_mean(&self) -> bool {
        self.has_mean
    }
    fn facts(&self) -> &dyn Facts {
        self.problem.facts()
    }
    fn second_moments(&self, kind: usize) -> Option<Arc<Moments>> {
        let new = || self.facts().moments(kind).map(Arc::new);
        self.moments.get(kind).map_or_else(new, |cell| kept(cell, new).clone())
    }
    fn solution(&self) -> std::result::Result<&Root, &str> {
        self.root.of(self)
    }
    fn solve(&self, cancel: &Cancel) -> Result<()> {
        self.root.solve(self, cancel)
    }
    fn set_root(&self, theta: Vec<f64>) {
        self.root.set(theta);
    }
    fn generic(&self) -> Arc<dyn Field> {
        let Self { problem, sampling, isa, has_mean, root, moments, .. } = self;
        let (problem, root, moments) = (Arc::clone(problem), root.clone(), moments.clone());
        Arc::new(Self { problem, sampling: *sampling, isa: *isa, own: None, generic: true, has_mean: *has_mean, root, moments })
    }
}

/// Joins a linear problem with its sampling; refuses singular agents unless `allow_singular_agents`.
///
/// # Errors
/// When the mean system, or one agent's, is singular; names the agent.
pub fn field<P: Problem>(problem: P, sampling: Sampling, isa: Isa, allow_singular_agents: bool) -> Result<Arc<dyn Field>> {
    if let (Some(systems), false) = (problem.facts().systems(), allow_singular_agents) {
        no_singular_agent(systems)?;
    }
    Ok(Arc::new(Sampled::new(problem, sampling, isa)?))
}

fn no_singular_agent(systems: &Systems) -> Result<()> {
    parallel::try_map(systems.kinds.len(), |k| systems.local_root(k).map(|_| ())).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    /// `gbar(theta) = 1 - theta - theta^3`.
    struct Cubic;

    impl Problem for Cubic {
        type Obs = ();
        fn dim(&self) -> usize {
            1
        }
        fn weights(&self) -> &[f64] {
            &[1.0]
        }
        fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, (): &mut ()) {}
        fn apply(&self, c: usize, theta: &[f64], (): &(), out: &mut [f64]) {
            self.mean(c, theta, out);
        }
        fn mean(&self, _: usize, theta: &[f64], out: &mut [f64]) -> bool {
            out[0] = 1.0 - theta[0] - theta[0].powi(3);
            true
        }
    }

    #[test]
    fn a_root_that_was_cancelled_is_computed_again() {
        let field = Sampled::new(Cubic, Sampling::default(), Isa::best()).unwrap();
        let cancel = Cancel::new();
        cancel.cancel();
        assert_eq!(field.solve(&cancel).unwrap_err().kind(), ErrorKind::Cancelled);
        field.solve(&Cancel::new()).unwrap();
        let root = field.solution().unwrap().theta[0];
        assert!((1.0 - root - root.powi(3)).abs() < 1e-14);
        // A known root needs no time.
        field.solve(&cancel).unwrap();
    }
}
