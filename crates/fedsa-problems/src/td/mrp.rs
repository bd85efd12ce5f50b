//! Markov reward processes (transition law, rewards, discount), and federations of them.

use std::sync::Arc;

use faer::Mat;
use faer::linalg::solvers::Solve;

use crate::kernel::td::Transition;
use crate::noise::{self, Noise};
use crate::td::td0::{Features, Td, Trajectory, Transitions};
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::kernel::Isa;
use fedsa::parallel;
use fedsa::problem::Field;
use fedsa::sampling::Sampling;

/// A possible step: to `next` with probability `p`, with `reward`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Successor {
    /// The successor.
    pub next: u32,
    /// Its probability in this state.
    pub p: f64,
    /// The reward of this step.
    pub reward: f64,
}

/// A finite Markov reward process, or an MDP under a policy, with actions folded into the outcomes.
#[derive(Debug, Clone, PartialEq)]
pub struct Mrp {
    /// The outcomes of each of the S states, without zero probabilities.
    pub states: Vec<Vec<Successor>>,
    /// The discount factor, in [0, 1).
    pub gamma: f64,
}

impl Mrp {
    /// From dense arrays: `p` is S x S, `reward` gives r(s, s').
    pub fn dense(n: usize, p: &[f64], reward: impl Fn(usize, usize) -> f64, gamma: f64) -> Self {
        let row = |s: usize| (0..n).filter(move |t| p[s * n + t] != 0.0);
        let states =
            (0..n).map(|s| row(s).map(|t| Successor { next: t as u32, p: p[s * n + t], reward: reward(s, t) }).collect()).collect();
        Self { states, gamma }
    }

    /// The states of the one closed class, in increasing order.
    ///
    /// # Errors
    /// When there are several closed classes, so that the stationary law is not unique.
    pub fn closed_class(&self) -> Result<Vec<usize>> {
        let n = self.states.len();
        let arrows = || {
            let each = self.states.iter().enumerate().flat_map(|(s, row)| row.iter().map(move |o| (s, o)));
            each.filter(|(_, o)| o.p > 0.0).map(|(s, o)| (s as u32, o.next as usize))
        };
        // The sources of edges into state t are `sources[ends[t - 1]..ends[t]]`.
        let mut ends = vec![0; n + 1];
        arrows().for_each(|(_, t)| ends[t + 1] += 1);
        (0..n).for_each(|t| ends[t + 1] += ends[t]);
        let mut sources = vec![0; ends[n]];
        for (s, t) in arrows() {
            sources[ends[t]] = s;
            ends[t] += 1;
        }
        let sources = |t: usize| &sources[t.checked_sub(1).map_or(0, |t| ends[t])..ends[t]];
        // A state is in a closed class if every state that it reaches also reaches it; a state that does not is a step closer to one.
        let mut state = 0;
        let (class, reaches) = loop {
            let successors = |s: usize| self.states[s].iter().filter(|o| o.p > 0.0).map(|o| o.next as usize);
            let reached = reachable(n, state, successors);
            let reaches = reachable(n, state, |s| sources(s).iter().map(|t| *t as usize));
            match (0..n).find(|t| reached[*t] && !reaches[*t]) {
                Some(t) => state = t,
                None => break (reached, reaches),
            }
        };
        let members: Vec<usize> = (0..n).filter(|s| class[*s]).collect();
        match reaches.iter().position(|r| !r) {
            None => Ok(members),
            Some(s) => Err(Error::new(
                "P",
                format!("the chain has several closed classes (state {s} never reaches state {})", members[0]),
                "a chain with one closed class, so that its stationary law is unique",
            )),
        }
    }

    /// The stationary law, S; zero on transient states.
    ///
    /// # Errors
    /// As [`Mrp::closed_class`].
    pub fn stationary(&self) -> Result<Vec<f64>> {
        let class = self.closed_class()?;
        let m = class.len();
        let mut at = vec![usize::MAX; self.states.len()];
        class.iter().enumerate().for_each(|(i, s)| at[*s] = i);
        // (P - I)^T pi = 0 with the last equation replaced by sum pi = 1.
        let mut a = Mat::<f64>::zeros(m, m);
        for (i, s) in class.iter().enumerate() {
            a[(i, i)] -= 1.0;
            for o in &self.states[*s] {
                if o.p > 0.0 {
                    a[(at[o.next as usize], i)] += o.p;
                }
            }
        }
        (0..m).for_each(|i| a[(m - 1, i)] = 1.0);
        let rhs = Mat::from_fn(m, 1, |i, _| f64::from(i + 1 == m));
        let x = a.partial_piv_lu().solve(rhs);
        let mut law = vec![0.0; self.states.len()];
        let total: f64 = (0..m).map(|i| x[(i, 0)].max(0.0)).sum();
        class.iter().enumerate().for_each(|(i, s)| law[*s] = x[(i, 0)].max(0.0) / total);
        if law.iter().all(|p| p.is_finite()) {
            Ok(law)
        } else {
            Err(Error::new("P", "the stationary law is not finite", "a transition matrix whose rows sum to 1"))
        }
    }

    /// The transitions under the stationary law, with `features` as rows for the states.
    ///
    /// # Errors
    /// As [`Mrp::stationary`].
    pub fn transitions(&self, features: Arc<Features>) -> Result<Transitions> {
        let law = self.stationary()?;
        let n = self.states.iter().map(Vec::len).sum();
        let (mut transitions, mut mass, mut p) = (Vec::with_capacity(n), Vec::with_capacity(n), Vec::with_capacity(n));
        for (s, row) in self.states.iter().enumerate() {
            for o in row {
                transitions.push(Transition { phi: s as u32, next: o.next, reward: o.reward });
                mass.push(law[s] * o.p);
                p.push(o.p);
            }
        }
        Ok(Transitions { features, gamma: self.gamma, transitions: transitions.into(), mass, chain: Trajectory::States { law, p } })
    }
}

/// Marks the states, of `n`, that can be reached from state `from`, itself included.
fn reachable<A: Iterator<Item = usize>>(n: usize, from: usize, arrows: impl Fn(usize) -> A) -> Vec<bool> {
    let mut seen = vec![false; n];
    let mut todo = vec![from];
    seen[from] = true;
    while let Some(s) = todo.pop() {
        for t in arrows(s) {
            if !std::mem::replace(&mut seen[t], true) {
                todo.push(t);
            }
        }
    }
    seen
}

/// A federation of Markov reward processes, each of which is made on demand.
pub struct FederatedTd<'a> {
    /// The number of distinct processes.
    pub kinds: usize,
    /// The kind of every agent.
    pub kind_of: Vec<u32>,
    /// The agents' weights.
    pub weights: Vec<f64>,
    /// The process of a kind.
    pub mrp: &'a (dyn Fn(usize) -> Result<Mrp> + Sync),
    /// The features of a kind.
    pub features: &'a (dyn Fn(usize) -> Arc<Features> + Sync),
    /// Accept agents whose own system is singular; the mean must be regular.
    pub allow_singular_agents: bool,
}

impl FederatedTd<'_> {
    /// The field of federated TD(0) on these processes.
    ///
    /// # Errors
    /// When a chain has several closed classes, or a system is singular against the settings; the error names the agent.
    pub fn field(&self, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.field_with_noise(None, sampling, isa)
    }

    /// The same with additive noise, if any.
    ///
    /// # Errors
    /// As [`FederatedTd::field`], and when the noise is out of range.
    pub fn field_with_noise(&self, noise: Option<&Noise>, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        noise::field(self.td(sampling)?, noise, sampling, isa, self.allow_singular_agents)
    }

    /// Federated TD(0) on these processes, without its sampling.
    ///
    /// # Errors
    /// When a chain has several closed classes; the error names the agent.
    pub fn td(&self, sampling: Sampling) -> Result<Td> {
        let kinds = parallel::try_map(self.kinds, |k| {
            let agent = || self.kind_of.iter().position(|x| *x as usize == k).unwrap_or(0);
            let named = |e: Error| if e.kind() == ErrorKind::Cancelled { e } else { e.prefixed(format!("agent {}", agent())) };
            (self.mrp)(k).map_err(named)?.transitions((self.features)(k)).map_err(named)
        })?;
        Td::new(kinds, self.kind_of.clone(), self.weights.clone(), sampling)
    }
}
