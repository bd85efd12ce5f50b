//! Samples that take one of n values: an index, drawn uniformly or along a chain with a uniform stationary law.

use crate::index_chain;
use fedsa::error::{Error, Result, require};
use fedsa::problem::law::{Chain, FiniteLaw};
use fedsa::random::Stream;
use fedsa::sampling::{ChainStart, Law, Sampling};

/// An index in `0..n`. A trajectory draws a new index uniformly with probability `1 / mixing_time`, and otherwise stays. The transition
/// matrix `P = (1 - 1/mixing_time) I + 1/(n mixing_time) 1 1^T` is symmetric and doubly stochastic, with the second eigenvalue
/// `1 - 1 / mixing_time`. A sample sees the index before the move.
#[derive(Debug, Clone, Copy)]
pub(super) struct LazyIndex {
    n: usize,
    mixing_time: f64,
    sampling: Sampling,
}

impl LazyIndex {
    /// An index of `n` values, n at least 1.
    ///
    /// # Errors
    /// When the mixing time is below 1 or so long that the chain counts as reducible, or trajectories start at an index out of range.
    pub(super) fn new(n: usize, mixing_time: f64, sampling: Sampling) -> Result<Self> {
        index_chain::check_mixing_time(mixing_time)?;
        if let ChainStart::State(s) = sampling.start {
            require((s as usize) < n, "start", s, &format!("a state below {n}")).map_err(|e| e.inside("sampling"))?;
        }
        Ok(Self { n, mixing_time, sampling })
    }

    /// The number of words of its state.
    pub(super) fn words(&self) -> usize {
        usize::from(self.sampling.kind == Law::Markov)
    }

    fn uniform(&self, stream: &mut Stream) -> u64 {
        (stream.uniform() * self.n as f64) as u64
    }

    pub(super) fn start(&self, stream: &mut Stream, chain: &mut [u64]) {
        if let Some(state) = chain.first_mut() {
            *state = match self.sampling.start {
                ChainStart::State(s) => u64::from(s),
                ChainStart::Stationary => self.uniform(stream),
            };
        }
    }

    pub(super) fn is_state(&self, chain: &[u64]) -> bool {
        chain.iter().all(|state| *state < self.n as u64)
    }

    /// The next sample.
    #[inline(always)]
    pub(super) fn sample(&self, chain: &mut [u64], stream: &mut Stream) -> usize {
        match chain.first_mut() {
            None => self.uniform(stream) as usize,
            Some(state) => {
                let seen = *state as usize;
                if stream.uniform() * self.mixing_time < 1.0 {
                    *state = self.uniform(stream);
                }
                seen
            }
        }
    }

    /// The stationary probabilities of the moves, and the chain. A sample is a move `z = s n + t` and sees the index s.
    pub(super) fn moves(&self) -> (Vec<f64>, Chain) {
        let (n, anew) = (self.n, 1.0 / self.mixing_time);
        let (from, to): (Vec<u32>, Vec<u32>) = (0..n as u32).flat_map(|s| (0..n as u32).map(move |t| (s, t))).unzip();
        let p: Vec<f64> = from.iter().zip(&to).map(|(s, t)| anew / n as f64 + if s == t { 1.0 - anew } else { 0.0 }).collect();
        let mass = p.iter().map(|p| p / n as f64).collect();
        (mass, Chain { from, to, p, law: vec![1.0 / n as f64; n] })
    }

    /// The law of a sample in R^d; `operator` writes the operator at an index.
    pub(super) fn law<'a>(&self, d: usize, operator: impl Fn(usize, &[f64], &mut [f64]) + Send + Sync + 'a) -> FiniteLaw<'a> {
        let (n, (mass, chain)) = (self.n, self.moves());
        FiniteLaw::new(d, mass, move |z, theta, out| operator(z / n, theta, out)).with_chain(chain)
    }
}

/// The error about a mixing time with samples that do not follow a chain.
pub(super) fn without_effect(mixing_time: f64, sampling: &Sampling) -> Option<Error> {
    (mixing_time != 1.0 && sampling.kind != Law::Markov).then(|| {
        let what = "a mixing time, and no chain: samples are not those of a trajectory";
        Error::new("mixing_time", what, "no mixing_time, or kind = \"markov\" in [sampling]")
    })
}
