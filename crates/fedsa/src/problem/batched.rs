//! Operators of another language or process, evaluated for many agents in one call because calls are expensive.
//!
//! Implement [`BatchOperators`]; [`Batched`] turns them into a field. Local steps of first-order methods then take one call per step for
//! all agents of an exchange ([`Field::prefers_one_call`]). Results equal single evaluations, bit for bit.

use std::sync::Arc;

use faer::Mat;

use super::Field;
use super::facts::Facts;
use super::root::{Root, RootSource};
use super::sampled::KeptRoot;
use crate::cancel::Cancel;
use crate::error::{Error, Failure, Result};
use crate::kernel::{Isa, Lanes, flat, flat_mut, generic};
use crate::problem::systems::Moments;
use crate::random::Stream;
use crate::sampling::{ChainStart, Law, Sampling};

/// The arguments of a call: n rows, one for each agent. No agent is in a call twice.
#[derive(Debug)]
pub struct BatchCall<'a> {
    /// The agents' places in the data, increasing.
    pub agents: &'a [usize],
    /// Their iterates, n d numbers.
    pub theta: &'a [f64],
    /// The states of their sampling processes, n [`BatchOperators::state_len`] words, to be advanced.
    pub states: &'a mut [u64],
    /// Their random streams, to be advanced.
    pub streams: &'a mut [Stream],
    /// `g_c(theta_c, z_c)`, n d numbers, to be written.
    pub out: &'a mut [f64],
}

/// N agents' operators, evaluated for some agents in one call. An agent's results must not depend on the other agents of the call.
///
/// A call that fails ends the round, which does not count ([`Field::failure`]).
pub trait BatchOperators: Send + Sync + 'static {
    /// The dimension d of theta.
    fn dim(&self) -> usize;
    /// The agents' weights `p_c`, N of them, summing to 1.
    fn weights(&self) -> &[f64];
    /// The number of words of state of one agent's sampling process; 0 for independent draws.
    fn state_len(&self) -> usize {
        0
    }
    /// Writes the initial state of agent `c`'s sampling process.
    ///
    /// # Errors
    /// When there is no initial state, with the reason.
    fn start(&self, _c: usize, _stream: &mut Stream, _state: &mut [u64]) -> Result<()> {
        Ok(())
    }
    /// Whether agent `c`'s sampling process can be in this state, read from a checkpoint.
    fn is_state(&self, _c: usize, _state: &[u64]) -> bool {
        true
    }
    /// For each agent of the call: draws a sample, advances the process, and evaluates the operator. The law of the sample may depend on
    /// the agent's iterate.
    ///
    /// # Errors
    /// When the operators cannot be evaluated, with the reason.
    fn sample(&self, call: BatchCall<'_>) -> Result<()>;
    /// Whether the mean operators are known.
    fn has_mean(&self) -> bool {
        false
    }
    /// Writes `gbar_c(theta_c)` of these agents, n d numbers.
    ///
    /// # Errors
    /// When the operators cannot be evaluated, with the reason.
    fn mean(&self, _agents: &[usize], _theta: &[f64], _out: &mut [f64]) -> Result<()> {
        Err(Error::not_known("mean", "the mean operators are not known", "samples"))
    }
    /// Whether the Jacobians of the mean operators are known.
    fn has_jacobian(&self) -> bool {
        false
    }
    /// Writes the Jacobian of `gbar_c` at theta, d x d row by row.
    ///
    /// # Errors
    /// When the operators cannot be evaluated, with the reason.
    fn jacobian(&self, _c: usize, _theta: &[f64], _out: &mut [f64]) -> Result<()> {
        Err(Error::not_known("jacobian", "the Jacobians are not known", "differences"))
    }
    /// `theta*`, d components, if known without computation.
    fn root(&self) -> Option<&[f64]> {
        None
    }
}

/// Operators with the first failure of their calls.
struct Operators<O> {
    inner: O,
    /// The reason of the first failed call.
    failure: Failure,
}

impl<O: BatchOperators> Operators<O> {
    /// Calls the operators, unless a call has failed; returns whether it succeeded.
    fn call(&self, call: impl FnOnce(&O) -> Result<()>) -> bool {
        self.failure.unless_failed(|| call(&self.inner)).is_some()
    }

    /// `gbar_c(theta_c)` of these agents; NaN if a call fails.
    fn means(&self, agents: &[usize], theta: &[f64], out: &mut [f64]) -> bool {
        let is_known = self.inner.has_mean();
        if is_known && !self.call(|operators| operators.mean(agents, theta, out)) {
            out.fill(f64::NAN);
        }
        is_known
    }
}

impl<O: BatchOperators> Facts for Operators<O> {
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        let (d, is_known) = (theta.len(), self.inner.has_jacobian());
        if is_known {
            let mut rows = vec![0.0; d * d];
            if !self.call(|operators| operators.jacobian(c, theta, &mut rows)) {
                rows.fill(f64::NAN);
            }
            out.copy_from(crate::linalg::from_rows(d, d, &rows));
        }
        is_known
    }
    fn own_root(&self, _: &Cancel) -> Option<std::result::Result<Root, String>> {
        Some(Ok(Root { theta: self.inner.root()?.to_vec(), source: RootSource::Given }))
    }
}

/// The field of operators that are evaluated in batches.
pub struct Batched<O> {
    operators: Arc<Operators<O>>,
    sampling: Sampling,
    isa: Isa,
    root: KeptRoot,
}

impl<O: BatchOperators> Batched<O> {
    /// Joins operators with their sampling.
    ///
    /// # Errors
    /// - The batch is out of range.
    /// - Mean operators are wanted but unknown.
    /// - Sampling is i.i.d. and samples have a state, or Markov and they have none.
    /// - A start of trajectories is set; the operators decide it themselves.
    pub fn new(operators: O, sampling: Sampling, isa: Isa) -> Result<Self> {
        sampling.check().map_err(|e| e.inside("sampling"))?;
        let has_state = operators.state_len() > 0;
        let refused = match sampling.kind {
            Law::Mean if !operators.has_mean() => {
                Some(("mean, and the operators can only be sampled: their means are not known", "iid or markov"))
            }
            Law::Iid if has_state => Some(("iid, and samples depend on the state of a process", "markov")),
            Law::Markov if !has_state => Some(("markov, and samples have no state", "iid")),
            _ => None,
        };
        if let Some((what, help)) = refused {
            return Err(Error::new("sampling.kind", what, help));
        }
        if sampling.start != ChainStart::Stationary {
            return Err(Error::new("sampling.start", "a start, and the operators say themselves where they start", "no start"));
        }
        let operators = Arc::new(Operators { inner: operators, failure: Failure::default() });
        Ok(Self { operators, sampling, isa, root: KeptRoot::default() })
    }

    /// The operators.
    pub fn operators(&self) -> &O {
        &self.operators.inner
    }

    /// Evaluates the rows' operators: each the mean of a batch of samples, or the mean operator; zeros if a call fails.
    fn evaluate(&self, rows: &mut Gathered) {
        let batch = self.sampling.samples_per_step();
        let Gathered { agents, theta, states, streams, g, one, .. } = rows;
        let done = if batch == 0 {
            self.operators.call(|operators| operators.mean(agents, theta, g))
        } else {
            (0..batch).all(|i| {
                let out = if i == 0 { &mut *g } else { &mut *one };
                let call = BatchCall { agents, theta, states, streams, out };
                let done = self.operators.call(|operators| operators.sample(call));
                if i > 0 {
                    g.iter_mut().zip(one.iter()).for_each(|(g, one)| *g += one);
                }
                done
            })
        };
        if !done {
            g.fill(0.0);
        }
        if batch > 1 {
            g.iter_mut().for_each(|g| *g /= batch as f64);
        }
    }

    fn gather(&self, blocks: &[Lanes]) -> Gathered {
        let mut rows = Gathered::default();
        rows.gather(blocks, self.dim(), self.sampling.samples_per_step() > 1);
        rows
    }
}

/// The lanes of some blocks as consecutive rows.
#[derive(Default)]
struct Gathered {
    agents: Vec<usize>,
    theta: Vec<f64>,
    drift: Vec<f64>,
    states: Vec<u64>,
    streams: Vec<Stream>,
    g: Vec<f64>,
    /// A further sample of a batch.
    one: Vec<f64>,
}

impl Gathered {
    fn gather(&mut self, blocks: &[Lanes], d: usize, has_batch: bool) {
        for lanes in blocks {
            for l in 0..lanes.len {
                self.agents.push(lanes.agents[l]);
                self.theta.extend(&lanes.theta(l)[..d]);
                self.drift.extend(&flat(&lanes.drift[l * lanes.width..][..lanes.width])[..d]);
                self.states.extend(&lanes.chains[l * lanes.chain_len..][..lanes.chain_len]);
                self.streams.push(lanes.stream(l));
            }
        }
        self.g = vec![0.0; self.theta.len()];
        self.one = vec![0.0; if has_batch { self.theta.len() } else { 0 }];
    }

    /// Calls `put` with each lane, and the place of its row.
    fn scatter(&self, blocks: &mut [Lanes], put: impl Fn(&Self, &mut Lanes, usize, usize)) {
        let mut row = 0;
        for lanes in blocks {
            for l in 0..lanes.len {
                put(self, lanes, l, row);
                row += 1;
            }
        }
    }

    /// Sets the process and stream of lane `l` from a row.
    fn advance(&self, lanes: &mut Lanes, l: usize, row: usize) {
        let words = lanes.chain_len;
        lanes.chains[l * words..][..words].copy_from_slice(&self.states[row * words..][..words]);
        lanes.set_stream(l, self.streams[row]);
    }
}

impl<O: BatchOperators> Field for Batched<O> {
    fn dim(&self) -> usize {
        self.operators.inner.dim()
    }
    fn weights(&self) -> &[f64] {
        self.operators.inner.weights()
    }
    fn chain_len(&self) -> usize {
        self.operators.inner.state_len()
    }
    fn sampling(&self) -> Sampling {
        self.sampling
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        if !self.operators.call(|operators| operators.start(c, stream, chain)) {
            chain.fill(0);
        }
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        self.operators.inner.is_state(c, chain)
    }
    fn local_phase(&self, blocks: &mut [Lanes], etas: &[f64]) {
        let d = self.dim();
        let mut rows = self.gather(blocks);
        for eta in etas {
            self.evaluate(&mut rows);
            generic::step(self.isa, *eta, &rows.g, &rows.drift, &mut rows.theta);
        }
        rows.scatter(blocks, |rows, lanes, l, row| {
            lanes.theta_mut(l)[..d].copy_from_slice(&rows.theta[row * d..][..d]);
            rows.advance(lanes, l, row);
        });
    }
    fn observe(&self, blocks: &mut [Lanes], advance: bool) {
        let d = self.dim();
        let mut rows = self.gather(blocks);
        self.evaluate(&mut rows);
        rows.scatter(blocks, |rows, lanes, l, row| {
            let width = lanes.width;
            flat_mut(&mut lanes.observed[l * width..][..width])[..d].copy_from_slice(&rows.g[row * d..][..d]);
            if advance {
                rows.advance(lanes, l, row);
            }
        });
    }
    fn prefers_one_call(&self) -> bool {
        true
    }
    fn means_in_one_call(&self, theta: &[f64]) -> Option<Vec<f64>> {
        let agents: Vec<usize> = (0..self.agents()).collect();
        let mut all = vec![0.0; agents.len() * theta.len()];
        self.operators.means(&agents, &theta.repeat(agents.len()), &mut all).then_some(all)
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.operators.means(&[c], theta, out)
    }
    fn has_mean(&self) -> bool {
        self.operators.inner.has_mean()
    }
    fn facts(&self) -> &dyn Facts {
        &*self.operators
    }
    fn second_moments(&self, _: usize) -> Option<Arc<Moments>> {
        None
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
        let Self { operators, sampling, root, .. } = self;
        Arc::new(Self { operators: Arc::clone(operators), sampling: *sampling, isa: Isa::Portable, root: root.clone() })
    }
    fn failure(&self) -> Option<Error> {
        self.operators.failure.get()
    }
    fn recover(&self) {
        self.operators.failure.clear();
    }
}
