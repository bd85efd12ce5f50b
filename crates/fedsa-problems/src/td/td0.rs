//! TD(0) with linear features on finite sets of transitions: Markov reward processes and logs. [`mod@crate::td::traces`] adds
//! eligibility traces.
//!
//! `g = (r + gamma phi(s')^T theta - phi(s)^T theta) phi(s)`, so
//! `A(z) = phi(s) (phi(s) - gamma phi(s'))^T`, `b(z) = phi(s) r` (\[S\] eq. 12).

use std::sync::Arc;

use faer::Mat;

use crate::kernel::dense::{self, Dense};
use crate::kernel::td::{self, Column, Tables, Transition, TransitionTable};
use fedsa::error::Result;
use fedsa::kernel::{Chunk, Isa, LANES, Lanes, chunks, dot, flat};
use fedsa::linalg;
use fedsa::parallel;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::facts::{Facts, TdFacts};
use fedsa::problem::law::{self, FiniteLaw};
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Problem, StepKernel};
use fedsa::random::Stream;
use fedsa::sampling::{ChainStart, Law, Sampling};

/// Feature rows, zero-padded to whole chunks, followed by one row of zeros (the value after a terminal state).
#[derive(Debug, Clone)]
pub struct Features {
    d: usize,
    rows: Arc<[Chunk]>,
}

impl Features {
    /// The feature vectors `values`, d components each, one after the other.
    pub fn new(d: usize, values: &[f64]) -> Self {
        assert!(d > 0 && values.len().is_multiple_of(d));
        let width = chunks(d);
        let mut rows = Vec::with_capacity((values.len() / d + 1) * width);
        for row in values.chunks(d) {
            rows.extend(fedsa::kernel::to_chunks(row));
        }
        rows.resize(rows.len() + width, Chunk::default());
        Self { d, rows: rows.into() }
    }

    /// The number of components d.
    pub fn dim(&self) -> usize {
        self.d
    }

    /// The number of rows, without the row of zeros.
    pub fn len(&self) -> usize {
        self.rows.len() / chunks(self.d) - 1
    }

    /// Whether there are no rows other than the row of zeros.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of the row of zeros.
    pub fn zero(&self) -> u32 {
        self.len() as u32
    }

    /// Row `i` with its padding.
    #[inline(always)]
    pub fn row(&self, i: u32) -> &[f64] {
        let width = chunks(self.d);
        flat(&self.rows[i as usize * width..][..width])
    }
}

/// The transitions of one kind of agents.
#[derive(Debug, Clone)]
pub struct Transitions {
    /// The feature rows.
    pub features: Arc<Features>,
    /// The discount factor gamma, in [0, 1).
    pub gamma: f64,
    /// The transitions.
    pub transitions: Arc<[Transition]>,
    /// The probability of each transition under the stationary law; empty if all are equally likely.
    pub mass: Vec<f64>,
    /// The moves of a Markov trajectory over the transitions.
    pub chain: Trajectory,
}

/// The moves of a Markov trajectory over transitions.
#[derive(Debug, Clone)]
pub enum Trajectory {
    /// States `0..n`: transition i leaves state `phi` with probability `p[i]` and enters state `next`.
    States {
        /// The stationary law of the states, S numbers.
        law: Vec<f64>,
        /// The probability of each transition, given its state.
        p: Vec<f64>,
    },
    /// The transitions in their order, repeated from the first one.
    Replay,
}

/// Federated TD(0) over tables of transitions.
#[derive(Debug)]
pub struct Td {
    d: usize,
    kinds: Vec<Transitions>,
    /// The tables from which each kind draws transitions; none with mean sampling.
    tables: Tables,
    /// Each kind's mean operator for the kernel, with mean sampling only.
    dense: Vec<Dense>,
    systems: Systems,
    gram: Mat<f64>,
    sampling: Sampling,
    takes_least_norm: bool,
}

impl Td {
    /// The H local steps with one sample per step.
    fn steps(&self, blocks: &mut [Lanes], etas: &[f64], isa: Isa) {
        td::local_phase(blocks, &self.tables, &self.systems.kind_of, etas, isa);
    }

    /// The H local steps on the mean operators.
    pub(crate) fn mean_steps(&self, blocks: &mut [Lanes], etas: &[f64], isa: Isa) {
        for lanes in blocks {
            let last = lanes.len - 1;
            let systems: [&Dense; LANES] = std::array::from_fn(|l| &self.dense[self.kind_of(lanes.agents[l.min(last)])]);
            dense::local_phase(lanes, &systems[..lanes.len], etas, isa);
        }
    }

    /// Agents of the given kinds; `kind_of` and `weights` have one entry per agent.
    ///
    /// # Errors
    /// When the sampling starts chains in a state out of range.
    pub fn new(kinds: Vec<Transitions>, kind_of: Vec<u32>, weights: Vec<f64>, sampling: Sampling) -> Result<Self> {
        Self::with_means(kinds, kind_of, weights, sampling, |_, kind| kind.means())
    }

    /// Agents whose kinds have given means: `Abar`, `bbar` and `Phi^T D Phi` of a kind, by its index.
    ///
    /// # Errors
    /// As [`Td::new`].
    pub(crate) fn with_means(
        kinds: Vec<Transitions>,
        kind_of: Vec<u32>,
        weights: Vec<f64>,
        sampling: Sampling,
        means: impl Fn(usize, &Transitions) -> (System, Mat<f64>) + Sync,
    ) -> Result<Self> {
        let d = kinds[0].features.d;
        let is_mean = sampling.kind == Law::Mean;
        let of = |number: usize| {
            let kind = &kinds[number];
            let (system, gram) = means(number, kind);
            let dense = is_mean.then(|| Dense::new(&system));
            let table = (!is_mean).then(|| kind.table(sampling.kind));
            (system, gram, table, dense)
        };
        let built: Vec<_> = parallel::map(kinds.len(), of);
        let mut systems = Systems::new(Vec::with_capacity(built.len()), kind_of, weights);
        let (mut tables, mut dense, mut grams) = (Vec::new(), Vec::new(), Vec::new());
        for (system, gram, table, matrix) in built {
            systems.kinds.push(system);
            grams.push(gram);
            tables.extend(table);
            dense.extend(matrix);
        }
        let mut gram = Mat::zeros(d, d);
        for (g, w) in grams.iter().zip(systems.kind_weights()) {
            gram += faer::Scale(w) * g;
        }
        if let (Law::Markov, ChainStart::State(s)) = (sampling.kind, sampling.start) {
            let fewest = tables.iter().map(TransitionTable::states).min().unwrap_or(0);
            fedsa::error::require((s as usize) < fewest, "start", s, &format!("a state below {fewest}"))
                .map_err(|e| e.inside("sampling"))?;
        }
        Ok(Self { d, kinds, tables: Tables::new(tables), dense, systems, gram, sampling, takes_least_norm: false })
    }

    /// The same problem with the least-norm solution as root if the mean system is singular.
    #[must_use]
    pub(crate) fn with_least_norm(self) -> Self {
        Self { takes_least_norm: true, ..self }
    }

    /// The index of agent `c`'s kind.
    #[inline(always)]
    pub(crate) fn kind_of(&self, c: usize) -> usize {
        self.systems.kind_of[c] as usize
    }

    /// The table from which agent `c` draws.
    #[inline(always)]
    pub(crate) fn table(&self, c: usize) -> &TransitionTable {
        // Mean sampling draws nothing and has no tables.
        &self.tables[self.kind_of(c)]
    }

    /// `theta*`.
    ///
    /// # Errors
    /// When the mean system is singular.
    pub fn root(&self) -> Result<Vec<f64>> {
        self.systems.root()
    }

    /// The transitions of a kind of agents.
    pub(crate) fn kind(&self, kind: usize) -> &Transitions {
        &self.kinds[kind]
    }

    /// The error `r + gamma phi(s')^T theta - phi(s)^T theta` of agent `c` at a transition, as the kernels compute it.
    #[inline(always)]
    pub(crate) fn error(&self, c: usize, theta: &[f64], z: &Transition) -> f64 {
        let source = self.transitions(c);
        let (phi, next) = (source.features.row(z.phi), source.features.row(z.next));
        let mut sums = [0.0f64; 8];
        for (k, theta) in theta.chunks(8).enumerate() {
            for (i, theta) in theta.iter().enumerate() {
                let psi = (-source.gamma).mul_add(next[8 * k + i], phi[8 * k + i]);
                sums[i] = theta.mul_add(psi, sums[i]);
            }
        }
        z.reward - fedsa::kernel::tree(sums)
    }

    /// The transitions of agent `c`.
    #[inline(always)]
    pub fn transitions(&self, c: usize) -> &Transitions {
        &self.kinds[self.kind_of(c)]
    }
}

/// The weighted sums of the transitions that leave one state.
struct State {
    phi: u32,
    mass: f64,
    reward: f64,
}

/// Sums of `phi psi^T`, `phi phi^T` and `phi r`.
struct Means {
    a: Mat<f64>,
    gram: Mat<f64>,
    b: Vec<f64>,
}

impl Means {
    /// Adds some states. The columns of `phi` and `next` are their features and their sums of next features; the function
    /// overwrites them.
    fn add(&mut self, gamma: f64, states: &[State], phi: &mut Mat<f64>, next: &mut Mat<f64>) {
        for (k, state) in states.iter().enumerate() {
            let (phi, next) = (phi.col_as_slice(k), next.col_as_slice_mut(k));
            // sum of w psi = mass phi - gamma sum of w phi'.
            next.iter_mut().zip(phi).for_each(|(sum, x)| *sum = (-gamma).mul_add(*sum, state.mass * x));
            self.b.iter_mut().zip(phi).for_each(|(b, x)| *b += state.reward * x);
        }
        linalg::add_outer(&mut self.a, phi.subcols(0, states.len()), next.subcols(0, states.len()));
        for (k, state) in states.iter().enumerate() {
            let (phi, weighted) = (phi.col_as_slice(k), next.col_as_slice_mut(k));
            weighted.iter_mut().zip(phi).for_each(|(weighted, x)| *weighted = state.mass * x);
        }
        linalg::add_outer(&mut self.gram, phi.subcols(0, states.len()), next.subcols(0, states.len()));
    }
}

impl Transitions {
    /// The probability of transition `i`.
    pub(crate) fn mass(&self, i: usize) -> f64 {
        self.mass.get(i).copied().unwrap_or(1.0 / self.transitions.len() as f64)
    }

    /// Merges the facts of earlier kinds with this one's; `None` if this is no Markov reward process.
    fn join(&self, facts: TdFacts) -> Option<TdFacts> {
        let Trajectory::States { p, .. } = &self.chain else { return None };
        let covariance = self.means().1;
        let nu = linalg::eigenvalues(&covariance).ok()?.iter().map(|(re, _)| *re).fold(facts.nu, f64::min);
        let mut facts = TdFacts { gamma: facts.gamma.max(self.gamma), nu, ..facts };
        for (t, _) in self.transitions.iter().zip(p).filter(|(_, p)| **p > 0.0) {
            facts.least_reward = facts.least_reward.min(t.reward);
            facts.largest_reward = facts.largest_reward.max(t.reward);
        }
        // The final row of zeros does not matter.
        let norms = (0..self.features.len() as u32).map(|s| linalg::norm_sq(&self.features.row(s)[..self.features.d]).sqrt());
        facts.feature_norm = norms.fold(facts.feature_norm, f64::max);
        Some(facts)
    }

    /// `psi = phi(s) - gamma phi(s')`, as the kernels compute it.
    #[inline(always)]
    pub(crate) fn psi(&self, t: &Transition, i: usize) -> f64 {
        (-self.gamma).mul_add(self.features.row(t.next)[i], self.features.row(t.phi)[i])
    }

    /// `Abar`, `bbar` and `Phi^T D Phi`.
    ///
    /// Transitions from the same state have the same `phi`. Weighted sums of next features and rewards are therefore computed first for
    /// each state, with `T d` operations for T transitions. Matrix products then take `S d^2` operations for S states.
    fn means(&self) -> (System, Mat<f64>) {
        /// The number of states in a matrix product.
        const STATES: usize = 256;
        let d = self.features.d;
        let mut sums = Means { a: Mat::zeros(d, d), gram: Mat::zeros(d, d), b: vec![0.0; d] };
        // A column for each state: phi, and the weighted sum of phi'.
        let (mut phi, mut next) = (Mat::zeros(d, STATES), Mat::zeros(d, STATES));
        let mut states: Vec<State> = Vec::with_capacity(STATES);
        for (z, t) in self.transitions.iter().enumerate() {
            let w = self.mass(z);
            if w == 0.0 {
                continue;
            }
            if states.last().is_none_or(|state| state.phi != t.phi) {
                if states.len() == STATES {
                    sums.add(self.gamma, &states, &mut phi, &mut next);
                    states.clear();
                }
                phi.col_as_slice_mut(states.len()).copy_from_slice(&self.features.row(t.phi)[..d]);
                next.col_as_slice_mut(states.len()).fill(0.0);
                states.push(State { phi: t.phi, mass: 0.0, reward: 0.0 });
            }
            let column = next.col_as_slice_mut(states.len() - 1);
            linalg::add_scaled(column, w, self.features.row(t.next));
            let state = states.last_mut().expect("just added");
            state.mass += w;
            state.reward += w * t.reward;
        }
        sums.add(self.gamma, &states, &mut phi, &mut next);
        (System { a: sums.a, b: sums.b }, sums.gram)
    }

    /// The law of one transition, and the Markov chain whose moves are transitions.
    pub fn sample_law(&self) -> FiniteLaw<'_> {
        self.weighted_law(|_| 1.0)
    }

    /// The same with `A` and `b` of each transition multiplied by a weight.
    pub(crate) fn weighted_law<'a>(&'a self, weight: impl Fn(usize) -> f64 + Send + Sync + 'a) -> FiniteLaw<'a> {
        let (d, n) = (self.features.d, self.transitions.len());
        let mass = (0..n).map(|z| self.mass(z)).collect();
        let law = FiniteLaw::linear(d, mass, move |z, a, b| {
            let t = &self.transitions[z];
            let phi = &self.features.row(t.phi)[..d];
            let psi: Vec<f64> = (0..d).map(|i| self.psi(t, i)).collect();
            for ((row, phi), b) in a.chunks_mut(d).zip(phi).zip(b) {
                let phi = weight(z) * phi;
                row.iter_mut().zip(&psi).for_each(|(a, psi)| *a = phi * psi);
                *b = phi * t.reward;
            }
        });
        law.with_chain(self.moves())
    }

    /// The Markov chain whose moves are transitions.
    pub(crate) fn moves(&self) -> law::Chain {
        let n = self.transitions.len();
        match &self.chain {
            Trajectory::States { law, p } => law::Chain {
                from: self.transitions.iter().map(|t| t.phi).collect(),
                to: self.transitions.iter().map(|t| t.next).collect(),
                p: p.clone(),
                law: law.clone(),
            },
            Trajectory::Replay => law::Chain {
                from: (0..n as u32).collect(),
                to: (0..n as u32).map(|z| (z + 1) % n as u32).collect(),
                p: vec![1.0; n],
                law: vec![1.0 / n as f64; n],
            },
        }
    }

    /// The table that the kernels draw from.
    fn table(&self, law: Law) -> TransitionTable {
        let rows = Arc::clone(&self.features.rows);
        let all: Vec<u32> = (0..self.transitions.len() as u32).collect();
        let mut columns = Vec::new();
        let (bits, successors) = match (law, &self.chain) {
            (Law::Markov, Trajectory::Replay) => {
                // An alias table has at least two columns; both hold the same transition.
                columns = all.iter().flat_map(|z| [Column::one(*z); 2]).collect();
                let n = all.len() as u32;
                (1, all.iter().map(|z| (z + 1) % n).collect())
            }
            (Law::Markov, Trajectory::States { law, p }) => {
                let outcomes = by_state(&self.transitions, law.len());
                let bits = td::column_bits(outcomes.iter().map(Vec::len).max().unwrap_or(1));
                for z in &outcomes {
                    let p: Vec<f64> = z.iter().map(|z| p[*z as usize]).collect();
                    td::alias(&p, z, bits, &mut columns);
                }
                (bits, self.transitions.iter().map(|t| t.next).collect())
            }
            _ => {
                let bits = td::column_bits(all.len());
                let p: Vec<f64> = (0..all.len()).map(|i| self.mass(i)).collect();
                td::alias(&p, &all, bits, &mut columns);
                (bits, Vec::new())
            }
        };
        TransitionTable::new(self.gamma, bits, columns, Arc::clone(&self.transitions), successors, rows, chunks(self.features.d))
    }
}

impl Problem for Td {
    /// A transition's index within its agent's table.
    type Obs = Transition;

    fn dim(&self) -> usize {
        self.d
    }
    fn weights(&self) -> &[f64] {
        &self.systems.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(self.sampling.kind == Law::Markov)
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        let Some(state) = chain.first_mut() else { return };
        let kind = self.transitions(c);
        *state = match (self.sampling.start, &kind.chain) {
            (ChainStart::State(s), _) => u64::from(s),
            (ChainStart::Stationary, Trajectory::Replay) => stream.below(kind.transitions.len()) as u64,
            (ChainStart::Stationary, Trajectory::States { law, .. }) => draw_state(law, stream),
        };
    }
    fn is_state(&self, c: usize, chain: &[u64]) -> bool {
        let states = self.tables.get(self.kind_of(c)).map_or(0, TransitionTable::states) as u64;
        chain.iter().all(|state| *state < states)
    }
    #[inline(always)]
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut Transition) {
        let table = self.table(c);
        *z = table.transitions()[table.draw(chain, stream)];
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &Transition, out: &mut [f64]) {
        let error = self.error(c, theta, z);
        let phi = self.transitions(c).features.row(z.phi);
        out.iter_mut().zip(phi).for_each(|(out, phi)| *out = error * phi);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        match self.dense.get(self.kind_of(c)) {
            Some(dense) => dense.mean(theta, out),
            None => out.copy_from_slice(&self.systems.of(c).mean(theta)),
        }
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
    fn local_phase(&self, law: Law) -> Option<StepKernel<Self>> {
        Some(if law == Law::Mean { Self::mean_steps } else { Self::steps })
    }
}

impl Facts for Td {
    fn systems(&self) -> Option<&Systems> {
        Some(&self.systems)
    }
    /// A sample is a transition: `A = phi psi^T`, `b = r phi`.
    fn law(&self, kind: usize) -> Option<FiniteLaw<'_>> {
        Some(self.kinds[kind].sample_law())
    }
    fn gram(&self) -> Option<&Mat<f64>> {
        Some(&self.gram)
    }
    fn takes_least_norm(&self) -> bool {
        self.takes_least_norm
    }
    fn stationary(&self, kind: usize) -> Option<&[f64]> {
        match &self.kinds[kind].chain {
            Trajectory::States { law, .. } => Some(law),
            Trajectory::Replay => None,
        }
    }
    fn td(&self) -> Option<TdFacts> {
        let none =
            TdFacts { gamma: 0.0, nu: f64::INFINITY, least_reward: f64::INFINITY, largest_reward: f64::NEG_INFINITY, feature_norm: 0.0 };
        self.kinds.iter().try_fold(none, |facts, kind| kind.join(facts))
    }
    fn export(&self) -> Option<Arrays> {
        let agents = self.systems.kind_of.len();
        // Logs have no transition probabilities, and too many transitions for a matrix of their states.
        if self.kinds.iter().any(|k| !matches!(k.chain, Trajectory::States { .. })) {
            return None;
        }
        let first = &self.kinds[0];
        let n = first.features.len();
        let shared = self.kinds.iter().all(|k| Arc::ptr_eq(&k.features, &first.features));
        let (mut p, mut r, mut phi) = (vec![0.0; agents * n * n], vec![0.0; agents * n * n], Vec::new());
        for c in 0..agents {
            let source = self.transitions(c);
            let Trajectory::States { p: conditional, .. } = &source.chain else { return None };
            for (t, q) in source.transitions.iter().zip(conditional) {
                let at = (c * n + t.phi as usize) * n + t.next as usize;
                p[at] += q;
                r[at] += q * t.reward;
            }
            if c == 0 || !shared {
                (0..n as u32).for_each(|s| phi.extend_from_slice(&source.features.row(s)[..self.d]));
            }
        }
        // The expected reward of a step from s to s'.
        p.iter().zip(&mut r).filter(|(p, _)| **p > 0.0).for_each(|(p, r)| *r /= p);
        let array = |shape: &[usize], data| Array::new(shape.to_vec(), data).expect("as many numbers as the shape says");
        let mut arrays = Arrays::new();
        arrays.insert("P", array(&[agents, n, n], p));
        arrays.insert("R", array(&[agents, n, n], r));
        arrays.insert("Phi", if shared { array(&[n, self.d], phi) } else { array(&[agents, n, self.d], phi) });
        arrays.insert("gamma", array(&[agents], (0..agents).map(|c| self.transitions(c).gamma).collect()));
        Some(arrays)
    }
}

/// A state or an action drawn from its law.
#[inline(always)]
pub(crate) fn draw_state(law: &[f64], stream: &mut Stream) -> u64 {
    let u = stream.uniform();
    let mut below = 0.0;
    let drawn = law.iter().position(|p| {
        below += p;
        u < below
    });
    drawn.or_else(|| law.iter().rposition(|p| *p > 0.0)).unwrap_or(0) as u64
}

/// `phi^T theta` for a feature row, in the kernels' order.
pub fn value(features: &Features, row: u32, theta: &[f64]) -> f64 {
    dot(theta, &features.row(row)[..theta.len()])
}

/// The indices of transitions grouped by the state they leave.
pub(crate) fn by_state(transitions: &[Transition], states: usize) -> Vec<Vec<u32>> {
    let mut out = vec![Vec::new(); states];
    for (z, t) in transitions.iter().enumerate() {
        out[t.phi as usize].push(z as u32);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use fedsa::random::{Purpose, stream};

    /// The sums over states and the matrix products equal the sums over transitions that define the means.
    #[test]
    fn means_are_sums_over_transitions() {
        let (states, d, n) = (300, 5, 2000);
        let mut draw = stream(1, Purpose::Feature, 0, 0);
        let values: Vec<f64> = (0..states * d).map(|_| draw.normal()).collect();
        let features = Arc::new(Features::new(d, &values));
        let mut at = |n: usize| (draw.uniform() * n as f64) as u32;
        // Grouped by state, in runs, or unordered; some lead to the terminal state.
        let phis: Vec<u32> = (0..n as u32).map(|z| if z < 1500 { z / 5 } else { at(states) }).collect();
        let transitions: Arc<[Transition]> =
            phis.iter().map(|phi| Transition { phi: *phi, next: at(states + 1), reward: f64::from(at(7)) - 3.0 }).collect();
        let mass: Vec<f64> = (0..n).map(|z| if z % 7 == 0 { 0.0 } else { f64::from(at(9)) / n as f64 }).collect();
        let source = Transitions { features, gamma: 0.9, transitions, mass, chain: Trajectory::Replay };
        let (System { a, b }, gram) = source.means();
        let row = |i: u32| &source.features.row(i)[..d];
        let close = |x: f64, y: f64| assert!((x - y).abs() <= 1e-12 * (1.0 + y.abs()), "{x} {y}");
        for i in 0..d {
            let sum =
                |of: &dyn Fn(&Transition) -> f64| -> f64 { source.transitions.iter().zip(&source.mass).map(|(t, w)| w * of(t)).sum() };
            close(b[i], sum(&|t| row(t.phi)[i] * t.reward));
            for j in 0..d {
                close(a[(i, j)], sum(&|t| row(t.phi)[i] * (row(t.phi)[j] - 0.9 * row(t.next)[j])));
                close(gram[(i, j)], sum(&|t| row(t.phi)[i] * row(t.phi)[j]));
            }
        }
    }
}
