//! The server half of SHED: the agents' eigenpairs, a Newton-type step from them, and its length.

use faer::Mat;
use fedsa::error::Result;
use fedsa::linalg;
use fedsa::message::{Body, Part};
use fedsa::protocol::refused;
use fedsa::saved::{packed, unpacked};
use fedsa::server::{Broadcast, ClientUpdate, Next, Received, Server};
use serde::{Deserialize, Serialize};

use super::woodbury::{self, Woodbury, lengths};
use crate::server::approximation::{HeldPairs, NOTHING, NewtonSteps, ORTHOGONAL, ROUNDING, Spectrum, StoredPairs, UNIT, direction};

/// Keeps each agent's pairs, and steps by the mean of the Hessians that they approximate.
///
/// The rule also keeps `S_c = sum l_j v_j v_j^T` and `P_c = sum v_j v_j^T` of each agent, to which a new pair adds one term. A round costs
/// d^2 multiply-adds per agent and new pair, 2 d^2 per agent, and one Cholesky factorisation. Both sums are in the order of the pairs, so a
/// restart computes them from the pairs with the same bits.
#[derive(Debug, Clone)]
pub struct ShedServer {
    /// `theta_t` and the step lengths.
    pub steps: NewtonSteps,
    /// The held pairs of the agents.
    held: HeldPairs<Pairs>,
    /// The agents' vectors, if steps are computed from vectors only; then `held` has neither vectors nor sums.
    woodbury: Option<Woodbury>,
    /// The rounds in which all pairs are sent, for renewals by the gradient norm.
    span: usize,
}

/// The pairs of one agent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Pairs {
    values: Vec<f64>,
    /// d numbers per value.
    vectors: Vec<f64>,
}

impl StoredPairs<Pairs> {
    /// Accepts an answer that continues the held pairs: further pairs of the same Hessian, or the first pairs of any.
    fn take(&mut self, t: u64, values: &[f64], vectors: &[f64], d: usize) -> bool {
        let Some(keep) = self.prefix(t, values, d).filter(|keep| self.continues(*keep, vectors, d)) else { return false };
        let is_cut = keep < self.pairs.values.len();
        self.go_on(keep, values);
        self.pairs.vectors.truncate(keep * d);
        self.pairs.vectors.extend(vectors);
        let from = if is_cut || self.sums.is_empty() { 0 } else { keep };
        self.sum_from(from, d);
        true
    }

    /// The number of held pairs that these values follow: the pairs of the same Hessian up to their index, or 0. `None` if they do not
    /// follow, or increase. NaN is accepted, because the run has diverged.
    fn prefix(&self, t: u64, values: &[f64], d: usize) -> Option<usize> {
        let [round, first, rho, values @ ..] = values else { return None };
        // False for NaN too.
        let fits = *round >= 0.0 && *round <= t as f64 && *first >= 0.0 && *rho > 0.0;
        let (round, first) = (*round as u64, *first as usize);
        let goes_on = self.round == Some(round) && first <= self.pairs.values.len();
        if !fits || !(first == 0 || goes_on) || first + values.len() >= d.max(1) {
            return None;
        }
        let increases = match (self.pairs.values[..first].last(), values.first()) {
            (Some(last), Some(next)) => *next > last + ROUNDING * self.pairs.values[0].abs(),
            _ => false,
        };
        (!increases).then_some(first)
    }

    /// Stores the round, rho and values of an answer that follows the first `keep` pairs.
    fn go_on(&mut self, keep: usize, values: &[f64]) {
        self.pairs.values.truncate(keep);
        (self.round, self.rho) = (Some(values[0] as u64), values[2]);
        self.pairs.values.extend(&values[3..]);
    }

    /// Whether these vectors can follow the first `keep` ones of one Hessian: they are orthogonal. NaN is accepted.
    fn continues(&self, keep: usize, vectors: &[f64], d: usize) -> bool {
        vectors.chunks_exact(d).enumerate().all(|(j, v)| {
            // The held vectors, then the new ones before this one.
            let before = |i: usize| if i < keep { &self.pairs.vectors[i * d..][..d] } else { &vectors[(i - keep) * d..][..d] };
            linalg::dots(keep + j, before, v).iter().all(|product| !(product.abs() > ORTHOGONAL))
        })
    }

    /// Adds the pairs from index `from` on to the sums of the earlier ones; from index 0 on, starts new sums.
    fn sum_from(&mut self, from: usize, d: usize) {
        let pairs = self.pairs.values[from..].iter().copied().zip(self.pairs.vectors[from * d..].chunks_exact(d.max(1)));
        let pairs: Vec<_> = pairs.collect();
        if from == 0 { self.sums.replace(d, &pairs) } else { self.sums.add_all(&pairs) }
    }
}

impl ShedServer {
    /// At `theta_0`, without pairs.
    pub fn new(steps: NewtonSteps, weights: Vec<f64>) -> Self {
        Self { span: steps.theta.len(), steps, held: HeldPairs::new(weights), woodbury: None }
    }

    /// With at most `most` pairs of one Hessian.
    #[must_use]
    pub fn up_to(self, most: usize) -> Self {
        Self { span: most + 1, ..self }
    }

    /// With steps from vectors only, without d x d matrices.
    #[must_use]
    pub fn of_vectors(self) -> Self {
        let woodbury = Some(Woodbury::new(self.held.weights.len(), self.steps.theta.len()));
        Self { woodbury, ..self }
    }

    /// Handles the answers that arrived.
    fn take(&mut self, t: u64, updates: &[ClientUpdate]) {
        let d = self.steps.theta.len();
        let Some(woodbury) = &mut self.woodbury else {
            return self.held.take(updates, |_, held, update| {
                held.take(t, update.part(Part::Eigenvalues), update.part(Part::Eigenvectors), d);
            });
        };
        for update in updates {
            let (held, values) = (&mut self.held.of[update.agent], update.part(Part::Eigenvalues));
            let vectors = update.parts.iter().find(|(part, _)| *part == Part::Eigenvectors).map(|(_, body)| body);
            if let Some((keep, vectors)) = held.prefix(t, values, d).zip(vectors)
                && woodbury.replace(update.agent, keep, vectors, ORTHOGONAL)
            {
                held.go_on(keep, values);
            }
        }
    }

    /// The state with the held pairs, and with the vectors if steps are computed from them only.
    fn packed(&self, held: &HeldPairs<Pairs>, vectors: impl Iterator<Item = Option<Vec<Body>>>) -> Vec<u8> {
        packed(&(&self.steps, held.of.iter().zip(vectors).collect::<Vec<_>>()))
    }

    /// The step `-Hhat^-1 g`, see [`direction`].
    fn direction(&self, g: &[f64]) -> Option<Vec<f64>> {
        let Some(woodbury) = &self.woodbury else { return direction(self.hessian(), g) };
        let shares = self.held.weights.iter().zip(&self.held.of).map(|(weight, held)| {
            held.round.map(|_| woodbury::LowRankShare { weight: *weight, rho: held.rho, values: &held.pairs.values })
        });
        woodbury.direction(&shares.collect::<Vec<_>>(), g, NOTHING)
    }
}

impl Server for ShedServer {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: None, down: self.steps.question(t), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        if got.exchange == 0 {
            self.take(got.round, got.updates);
            let g = self.steps.see(got, Part::Gradient, self.span);
            let p = self.direction(&g);
            return self.steps.along(got.round, p);
        }
        self.steps.after_losses(got)
    }

    /// Accepts vectors of norm 1 for all eigenvalues, and eigenvalues with a positive rho. Whether an answer continues the held pairs is
    /// checked on receipt; otherwise only its gradient counts.
    fn accepts(&self, exchange: u8, parts: &[(Part, Body)]) -> Result<()> {
        if exchange != 0 {
            return Ok(());
        }
        let numbers = |part| parts.iter().find(|(p, _)| *p == part).and_then(|(_, body)| body.numbers()).unwrap_or_default();
        let values = numbers(Part::Eigenvalues);
        let vectors = parts.iter().find(|(p, _)| *p == Part::Eigenvectors).map(|(_, body)| body);
        let vectors = vectors.filter(|body| self.woodbury.is_some() || body.numbers().is_some());
        let vectors = vectors.ok_or_else(|| refused("eigenvectors that are sparse", "eigenvectors that are written out"))?;
        // Numbers that are not finite end the run.
        if values.iter().any(|x| !x.is_finite()) || vectors.not_finite().is_some() {
            return Ok(());
        }
        let d = self.steps.theta.len();
        let Spectrum { first, values, .. } = Spectrum::read(values, d)?;
        if vectors.len() != values.len() * d {
            let what = format!("{} eigenvalues from index {first} with {} numbers of eigenvectors", values.len(), vectors.len());
            return Err(refused(what, &format!("a vector of {d} components for each eigenvalue")));
        }
        if !lengths(vectors, d).iter().all(|square| (square - 1.0).abs() <= UNIT) {
            return Err(refused("an eigenvector that is not of length 1", "eigenvectors of length 1"));
        }
        Ok(())
    }

    fn theta(&self) -> &[f64] {
        &self.steps.theta
    }

    /// `Hhat = sum_c p_c (S_c - rho_c P_c + rho_c I)` over the agents with held pairs, divided by their weight. `None` if there are none,
    /// or if no matrices are formed.
    fn hessian(&self) -> Option<Mat<f64>> {
        self.woodbury.is_none().then(|| self.held.hessian(self.steps.theta.len()))?
    }

    fn regrouped(&self, from: &[Option<usize>], _: &[f64]) -> Option<Vec<u8>> {
        let bodies = |c: &Option<usize>| self.woodbury.as_ref().map(|woodbury| c.map_or(Vec::new(), |c| woodbury.state(c)));
        Some(self.packed(&self.held.regrouped(from, |_, _| true), from.iter().map(bodies)))
    }

    fn state(&self) -> Vec<u8> {
        let bodies = |c: usize| self.woodbury.as_ref().map(|woodbury| woodbury.state(c));
        self.packed(&self.held, (0..self.held.of.len()).map(bodies))
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        type Held = (StoredPairs<Pairs>, Option<Vec<Body>>);
        let (steps, saved): (NewtonSteps, Vec<Held>) = unpacked(state)?;
        let d = steps.theta.len();
        let mut woodbury = self.woodbury.as_ref().map(|_| Woodbury::new(saved.len(), d));
        let held = saved.into_iter().enumerate().map(|(c, (mut held, bodies))| {
            for (j, body) in bodies.into_iter().flatten().enumerate() {
                woodbury.as_mut().map(|woodbury| woodbury.replace(c, j, &body, f64::INFINITY));
            }
            if woodbury.is_none() && held.round.is_some() {
                held.sum_from(0, d);
            }
            held
        });
        self.held.of = held.collect();
        (self.steps, self.woodbury) = (steps, woodbury);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

    fn server(agents: usize, d: usize) -> ShedServer {
        ShedServer::new(NewtonSteps { theta: vec![0.0; d], search: None, trigger: None }, vec![1.0 / agents as f64; agents])
    }

    /// A vector is rejected if it is not orthogonal to any of the held or new ones.
    #[test]
    fn each_vector_is_compared_with_all_before_it() {
        let d = 9;
        let unit = |i: usize| (0..d).map(move |k| f64::from(k == i));
        let held: Vec<f64> = (0..6).flat_map(unit).collect();
        let pairs = StoredPairs { pairs: Pairs { vectors: held.clone(), ..Pairs::default() }, ..StoredPairs::default() };
        let new = |i: usize, j: usize| unit(i).chain(unit(j)).collect::<Vec<f64>>();
        assert!(pairs.continues(6, &new(6, 7), d) && pairs.continues(2, &new(4, 3), d) && !pairs.continues(6, &new(7, 7), d));
        assert!((0..6).all(|i| !pairs.continues(6, &new(i, 7), d) && !pairs.continues(6, &new(8, i), d)));
    }

    #[test]
    fn pairs_that_are_not_of_one_hessian_are_not_taken() {
        let mut held = StoredPairs::default();
        // Round, index, rho and values.
        assert!(held.take(0, &[0.0, 0.0, 1.0, 3.0], &E[0], 3));
        assert!(!held.take(1, &[0.0, 1.0, 1.0, 2.0], &E[0], 3), "the vector that is held");
        assert!(!held.take(1, &[0.0, 1.0, 1.0, 4.0], &E[1], 3), "a larger value");
        assert!(!held.take(1, &[1.0, 0.0, 1.0, 3.0, 2.0], &[E[1], E[1]].concat(), 3), "one vector twice");
        assert_eq!((held.round, &held.pairs.values[..], &held.pairs.vectors[..]), (Some(0), &[3.0][..], &E[0][..]));
        assert!(held.take(1, &[0.0, 1.0, 1.0, 3.0], &E[1], 3), "a multiple eigenvalue");
        // Another Hessian has other vectors and values; so has an agent that restarts with this one.
        assert!(held.take(2, &[2.0, 0.0, 1.0, 9.0], &E[0], 3));
        assert_eq!(held.pairs.values, [9.0]);
        assert!(!held.take(2, &[0.0, 1.0, 1.0, 2.0], &E[1], 3), "the second pair of an earlier Hessian");
        assert!(held.take(3, &[0.0, 0.0, 1.0, 3.0, 2.0], &[E[0], E[1]].concat(), 3));
        assert_eq!((held.round, &held.pairs.values[..]), (Some(0), &[3.0, 2.0][..]));
    }

    #[test]
    fn answers_with_other_lengths_or_sizes_are_refused() {
        let accepts = |values: &[f64], vector: &[f64]| {
            let parts = [(Part::Eigenvalues, values.to_vec()), (Part::Eigenvectors, vector.to_vec())];
            server(1, 3).accepts(0, &parts.map(|(part, x)| (part, Body::Numbers(x))))
        };
        assert!(accepts(&[0.0, 0.0, 1.0, 3.0], &E[1]).is_ok());
        assert!(accepts(&[0.0, 0.0, 1.0, 3.0], &[0.6, 0.81, 0.0]).is_err());
        assert!(accepts(&[0.0, 0.0, 1.0, 3.0], &[0.0; 3]).is_err());
        assert!(accepts(&[0.0, 0.0, 1.0, 1e151], &E[1]).is_err() && accepts(&[0.0, 0.0, 1e151], &[]).is_err());
    }
}
