//! Shared parts of the server rules of SHED and Q-SHED: the agents' spectra, the held pairs, Hessians approximated by pairs, and
//! Newton-type steps with them.

use faer::Mat;
use fedsa::error::Result;
use fedsa::kernel::{Isa, products};
use fedsa::linalg;
use fedsa::message::{Body, Message, Part};
use fedsa::parallel;
use fedsa::protocol::refused;
use fedsa::server::{Broadcast, ClientUpdate, Next, Received, by_agent};
use fedsa::triangle::entries;
use serde::{Deserialize, Serialize};

use crate::local::line_search::{LineSearch, Trials};

/// A `Hhat` with diagonal entries up to this counts as 0: no agent has a positive eigenvalue.
pub const NOTHING: f64 = 1e-290;
/// Entries of a triangle per summation task.
const CHUNK: usize = 4096;

/// The largest difference between 1 and the squared norm of an eigenvector.
pub const UNIT: f64 = 1e-8;
/// The largest inner product of two eigenvectors of one Hessian.
pub const ORTHOGONAL: f64 = 1e-6;
/// The largest accepted eigenvalue: sums of a few stay finite.
pub const LARGEST: f64 = 1e150;
/// The rounding error of eigenvalues, relative to the largest one.
pub const ROUNDING: f64 = 1e-10;

/// The eigenvalues of an answer ([`Part::Eigenvalues`]): the round of the Hessian, the index of the first eigenvalue, rho, and the
/// eigenvalues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spectrum<'a> {
    /// The round of the Hessian.
    pub round: u64,
    /// The index of the first of these eigenvalues.
    pub first: usize,
    /// rho, which replaces the later eigenvalues.
    pub rho: f64,
    /// The eigenvalues, decreasing, none below rho.
    pub values: &'a [f64],
}

impl<'a> Spectrum<'a> {
    /// Reads the numbers of an answer about a Hessian with d rows.
    ///
    /// # Errors
    /// When there are more than d - 1 eigenvalues with the earlier ones, or they do not decrease to a positive rho, are above [`LARGEST`],
    /// or NaN.
    pub fn read(numbers: &'a [f64], d: usize) -> Result<Self> {
        let [round, first, rho, values @ ..] = numbers else { return Err(refused("no round, index and rho", "eigenvalues")) };
        let largest = u64::from(u32::MAX);
        if !is_index(*round, largest) || !is_index(*first, largest) || *first + values.len() as f64 > d as f64 - 1.0 {
            let what = format!("{} eigenvalues from index {first} of the Hessian of round {round}", values.len());
            return Err(refused(what, &format!("at most {} eigenvalues", d - 1)));
        }
        let least = values.last().copied().unwrap_or(f64::INFINITY);
        // False for NaN too.
        if !(*rho > 0.0 && least >= *rho && values.is_sorted_by(|a, b| a >= b)) {
            return Err(refused(format!("eigenvalues down to {least} with rho = {rho}"), "decreasing eigenvalues above a positive rho"));
        }
        let largest = values.first().copied().unwrap_or(*rho);
        if largest > LARGEST {
            return Err(refused(format!("an eigenvalue or rho of {largest:e}"), &format!("at most {LARGEST:e}")));
        }
        Ok(Self { round: *round as u64, first: *first as usize, rho: *rho, values })
    }
}

/// The held data of one agent, with pairs of type P.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StoredPairs<P> {
    /// The round of the Hessian; `None` before its first pairs.
    pub round: Option<u64>,
    /// rho.
    pub rho: f64,
    /// The pairs.
    pub pairs: P,
    /// Their sums, computed from the pairs with the same bits.
    #[serde(skip)]
    pub sums: PairSums,
}

/// The held data of each agent.
#[derive(Debug, Clone)]
pub struct HeldPairs<P> {
    /// The agents' weights `p_c`.
    pub weights: Vec<f64>,
    /// The agents' pairs.
    pub of: Vec<StoredPairs<P>>,
}

impl<P: Clone + Default + Send> HeldPairs<P> {
    /// For agents with these weights, before their first answers.
    pub fn new(weights: Vec<f64>) -> Self {
        let n = weights.len();
        Self { weights, of: vec![StoredPairs::default(); n] }
    }

    /// Handles the answers that arrived.
    pub fn take(&mut self, updates: &[ClientUpdate], take: impl Fn(usize, &mut StoredPairs<P>, &ClientUpdate) + Sync) {
        let of_agents = by_agent(updates, self.of.len());
        let mut agents: Vec<_> = self.of.iter_mut().zip(of_agents).collect();
        parallel::each_mut(&mut agents, |c, (held, update)| update.iter().for_each(|update| take(c, held, update)));
    }

    /// [`mean_hessian`] with d rows, over the agents with held pairs.
    pub fn hessian(&self, d: usize) -> Option<Mat<f64>> {
        let held = self.weights.iter().zip(&self.of).filter(|(_, held)| held.round.is_some());
        let shares: Vec<HessianShare<'_>> = held.map(|(p, held)| HessianShare { weight: *p, rho: held.rho, sums: &held.sums }).collect();
        mean_hessian(d, &shares)
    }

    /// The same for other agents: `from` gives each one's old index, or `None` for a new agent. The held data of an agent are dropped if
    /// `is_kept` is false for its new and old index.
    #[must_use]
    pub fn regrouped(&self, from: &[Option<usize>], is_kept: impl Fn(usize, usize) -> bool) -> Self {
        let of = |(new, old): (usize, &Option<usize>)| match old {
            Some(old) if is_kept(new, *old) => self.of[*old].clone(),
            _ => StoredPairs::default(),
        };
        Self { weights: self.weights.clone(), of: from.iter().enumerate().map(of).collect() }
    }
}

/// `S_c = sum l_j v_j v_j^T` and `P_c = sum v_j v_j^T` of an agent: their lower triangles, column by column. Both are sums in the order of
/// the pairs, so adding pairs one by one gives the bits of adding all.
#[derive(Debug, Clone, Default)]
pub struct PairSums {
    s: Vec<f64>,
    p: Vec<f64>,
}

impl PairSums {
    /// The sums of no pairs, for vectors of d components.
    pub fn new(d: usize) -> Self {
        Self { s: vec![0.0; entries(d)], p: vec![0.0; entries(d)] }
    }

    /// Replaces the sums by those of these pairs, whose vectors have d components.
    pub fn replace(&mut self, d: usize, pairs: &[(f64, &[f64])]) {
        assert!(pairs.iter().all(|(_, v)| v.len() == d));
        let Some(((l, v), rest)) = pairs.split_first() else { return *self = Self::new(d) };
        // Reuses their memory.
        self.s.resize(entries(d), 0.0);
        self.p.resize(entries(d), 0.0);
        products::set_pair(Isa::best(), &mut self.s, &mut self.p, *l, v);
        self.add_all(rest);
    }

    /// Whether the sums have not been computed.
    pub fn is_empty(&self) -> bool {
        self.s.is_empty()
    }

    /// Adds a pair.
    pub fn add(&mut self, l: f64, v: &[f64]) {
        products::add_pair(Isa::best(), &mut self.s, &mut self.p, l, v);
    }

    /// Adds pairs one after the other, several per pass over the sums.
    pub fn add_all(&mut self, pairs: &[(f64, &[f64])]) {
        let (fours, rest) = pairs.as_chunks::<4>();
        for four in fours {
            products::add_four_pairs(Isa::best(), &mut self.s, &mut self.p, four.map(|(l, _)| l), four.map(|(_, v)| v));
        }
        rest.iter().for_each(|(l, v)| self.add(*l, v));
    }
}

/// An agent's share of the mean Hessian.
pub struct HessianShare<'a> {
    /// Its weight `p_c`.
    pub weight: f64,
    /// `rho_c`.
    pub rho: f64,
    /// `S_c` and `P_c`.
    pub sums: &'a PairSums,
}

/// `Hhat = sum_c p_c (S_c - rho_c P_c + rho_c I)` over these agents, divided by their weight: the lower triangle, d x d. `None` if there
/// are none.
pub fn mean_hessian(d: usize, held: &[HessianShare<'_>]) -> Option<Mat<f64>> {
    let (mut weight, mut rho) = (0.0, 0.0);
    for share in held {
        weight += share.weight;
        rho += share.weight * share.rho;
    }
    if weight == 0.0 {
        return None;
    }
    // Each entry is a sum in the agents' order, on any thread.
    let mut sum = vec![0.0f64; entries(d)];
    parallel::each_chunk(&mut sum, CHUNK, &|k, sum| {
        let at = k * CHUNK..k * CHUNK + sum.len();
        for HessianShare { weight: p, rho, sums } in held {
            products::add_both(Isa::best(), sum, *p, &sums.s[at.clone()], -p * rho, &sums.p[at.clone()]);
        }
        sum.iter_mut().for_each(|sum| *sum /= weight);
    });
    let mut h = Mat::zeros(d, d);
    let mut at = 0;
    for j in 0..d {
        let column = h.col_as_slice_mut(j);
        column[j..].copy_from_slice(&sum[at..at + d - j]);
        column[j] += rho / weight;
        at += d - j;
    }
    Some(h)
}

/// The step `-Hhat^-1 g`; `-g` if Hhat is 0 or singular to working precision, or not finite. `None` without Hhat, or if g is 0.
pub fn direction(h: Option<Mat<f64>>, g: &[f64]) -> Option<Vec<f64>> {
    let h = h.filter(|_| g.iter().any(|g| *g != 0.0))?;
    let minus: Vec<f64> = g.iter().map(|g| -g).collect();
    // NaN stays. The floor of agents without positive eigenvalues is positive, and would give steps of 1e307.
    let largest = (0..g.len()).map(|j| h[(j, j)]).fold(0.0f64, |most, x| if x > most || x.is_nan() { x } else { most });
    if !(NOTHING..f64::INFINITY).contains(&largest) {
        return Some(minus);
    }
    Some(linalg::solve_definite(&h, &minus).unwrap_or(minus))
}

/// Renewals by the norm of the mean gradient (GN-SHED), and the server's state for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trigger {
    /// The factor b.
    pub factor: f64,
    /// The least number of rounds between renewals.
    pub min_distance: u64,
    /// The round of the last renewal decided on.
    renewal: u64,
    /// `||g_{t-2}||` and `||g_{t-1}||`, if known; an incomplete gradient has no norm.
    norms: Vec<f64>,
}

impl Trigger {
    /// Before the first round, with a renewal in round 0.
    pub fn new(factor: f64, min_distance: u64) -> Self {
        Self { factor, min_distance, renewal: 0, norms: Vec::new() }
    }

    /// Handles `||g_t||` (`None` if some agent's gradient is missing), and decides on a renewal in round t + 1, at the latest after `span`
    /// rounds.
    ///
    /// \[T\] sec. 2.5.1 tests the norm of round t for a renewal in round t. The norm is unknown before the agents have answered, so the
    /// renewal takes place in the next round.
    pub fn see(&mut self, t: u64, norm: Option<f64>, span: usize) {
        let distance = t + 1 - self.renewal;
        let slows = match (&self.norms[..], norm) {
            ([g2, g1], Some(g)) => g1 - g < self.factor * (g2 - g1),
            _ => false,
        };
        if distance >= span as u64 || slows && distance >= self.min_distance {
            self.renewal = t + 1;
        }
        match norm {
            None => self.norms.clear(),
            Some(g) => {
                self.norms.push(g);
                self.norms.drain(..self.norms.len().saturating_sub(2));
            }
        }
    }

    /// The round of the last renewal decided on.
    pub fn renewal(&self) -> u64 {
        self.renewal
    }
}

/// The iterate of a rule with approximated Hessians, and its step lengths.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewtonSteps {
    /// `theta_t`.
    pub theta: Vec<f64>,
    /// The line search; `None` if every step is 1.
    pub search: Option<LineSearch>,
    /// Renewals by the gradient's norm, if chosen.
    pub trigger: Option<Trigger>,
}

impl NewtonSteps {
    /// At `theta_0`, with a line search or whole steps, and renewals that do not depend on the gradient.
    pub fn new(theta: Vec<f64>, trials: Option<Trials>) -> Self {
        Self { theta, search: trials.map(LineSearch::new), trigger: None }
    }

    /// The question that opens round t: the model, and the round of the last renewal if the server decides on it.
    pub fn question(&self, t: u64) -> Message {
        let mut down = Message::one(t, 0, Part::Model, self.theta.clone());
        down.parts.extend(self.trigger.as_ref().map(|trigger| (Part::Renewal, Body::Numbers(vec![trigger.renewal as f64]))));
        down
    }

    /// Handles the agents' gradients, the part `gradient` of the first exchange; returns the mean of those that arrived. All pairs
    /// of a Hessian are sent within `span` rounds.
    pub fn see(&mut self, got: &Received<'_>, gradient: Part, span: usize) -> Vec<f64> {
        // If the downlink alters models, gradients are at the model that agents decoded.
        self.theta = got.down.part(Part::Model).to_vec();
        let g = got.mean(gradient);
        let is_whole = got.arrived.is_empty();
        self.search.iter_mut().for_each(|search| search.begin(&g, is_whole));
        if let Some(trigger) = &mut self.trigger {
            trigger.see(got.round, is_whole.then(|| linalg::norm_sq(&g).sqrt()), span);
        }
        g
    }

    /// Continues after the first exchange: an exchange for the step length along `p`, or the step itself; neither without p.
    pub fn along(&mut self, round: u64, p: Option<Vec<f64>>) -> Next {
        let Some(p) = p else { return Next::Done { tell: None } };
        if self.search.is_some() {
            return Next::Ask(Broadcast { to: None, down: Message::one(round, 1, Part::Step, p), own: None });
        }
        self.step(1.0, &p);
        Next::Done { tell: None }
    }

    /// The step after the exchange for its length: none if no answer arrived, because losses and slope are then zero.
    pub fn after_losses(&mut self, got: &Received<'_>) -> Next {
        if let Some(s) = self.search.as_mut().and_then(|search| search.step(got, Some(1.0))) {
            self.step(s, got.down.part(Part::Step));
        }
        Next::Done { tell: None }
    }

    /// `theta += s p`.
    fn step(&mut self, s: f64, p: &[f64]) {
        linalg::go_along(&mut self.theta, s, p);
    }
}

/// Whether a number is whole, and between 0 and `most`.
fn is_index(x: f64, most: u64) -> bool {
    x >= 0.0 && x <= most as f64 && x.fract() == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If no agent has a positive eigenvalue, the step is -g. If one has, the others add nothing.
    #[test]
    fn without_curvature_the_step_is_the_gradient() {
        let (g, none) = ([1.0, -2.0], PairSums::new(2));
        let of = |rhos: &[f64]| {
            let held: Vec<HessianShare<'_>> = rhos.iter().map(|rho| HessianShare { weight: 0.5, rho: *rho, sums: &none }).collect();
            direction(mean_hessian(2, &held), &g)
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::MIN_POSITIVE]), Some(vec![-1.0, 2.0]));
        assert_eq!(of(&[f64::MIN_POSITIVE, 8.0]), Some(vec![-0.25, 0.5]));
        assert_eq!(of(&[f64::INFINITY, 8.0]), Some(vec![-1.0, 2.0]));
    }

    /// Old sums leave no trace, for any number of pairs.
    #[test]
    fn replaced_sums_are_those_of_the_pairs_alone() {
        let vectors: Vec<Vec<f64>> = (0..6).map(|j| (0..11).map(|i| ((i * (j + 2)) as f64).cos()).collect()).collect();
        let pairs: Vec<(f64, &[f64])> = vectors.iter().enumerate().map(|(j, v)| (j as f64 - 2.5, &v[..])).collect();
        for count in 0..=6 {
            for d in [11, 5] {
                let some: Vec<_> = pairs[..count].iter().map(|(l, v)| (*l, &v[..d])).collect();
                let (mut old, mut expected) = (PairSums::default(), PairSums::new(d));
                old.replace(11, &pairs);
                old.replace(d, &some);
                some.iter().for_each(|(l, v)| expected.add(*l, v));
                let bits = |x: &[f64]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!((bits(&old.s), bits(&old.p)), (bits(&expected.s), bits(&expected.p)), "{count} of {d}");
            }
        }
    }

    /// The sum in pieces equals the sum in the agents' order, for triangles of more than one piece.
    #[test]
    fn the_hessian_is_a_sum_in_the_order_of_agents() {
        let (n, d) = (3, 120);
        let one = |c: usize| {
            let vector: Vec<f64> = (0..d).map(|i| ((i * (c + 2)) as f64).sin() / 8.0).collect();
            let mut sums = PairSums::new(d);
            sums.add(7.0 + c as f64, &vector);
            sums
        };
        let sums: Vec<PairSums> = (0..n).map(one).collect();
        let p = 1.0 / n as f64;
        let held: Vec<HessianShare<'_>> =
            sums.iter().enumerate().map(|(c, sums)| HessianShare { weight: p, rho: 0.1 + c as f64, sums }).collect();
        let h = mean_hessian(d, &held).unwrap();
        let mut at = 0;
        let (weight, rho) = held.iter().fold((0.0, 0.0), |(weight, rho), held| (weight + p, rho + p * held.rho));
        for j in 0..d {
            for i in j..d {
                let sum = held.iter().fold(0.0, |sum, held| sum + (p * held.sums.s[at] + -p * held.rho * held.sums.p[at]));
                let expected = if i == j { sum / weight + rho / weight } else { sum / weight };
                assert_eq!(h[(i, j)], expected);
                at += 1;
            }
        }
    }
}
