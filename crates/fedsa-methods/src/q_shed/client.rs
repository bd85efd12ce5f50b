//! The client half of Q-SHED: gradients, and eigenvectors of a Hessian, refined by as many bits as the link carries.

use std::sync::Arc;

use faer::Mat;
use fedsa::eigenpairs::Eigenpairs;
use fedsa::error::{Error, Result};
use fedsa::local::{Agent, LocalContext};
use fedsa::message::{Body, LastAnswer, Message, Part};
use fedsa::schedule::renewal::Renewal;
use serde::{Deserialize, Serialize};

use crate::bit_allocation::{CountRule, allocate};
use crate::local::Point;
use crate::local::line_search::Trials;
use crate::local::refinement::{BitWriter, More, Refinement, checksum};
use crate::local::renewal::{FLOOR, due, foreign};
use crate::nested_grid;

/// Vectors that get the bits of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum BitRule {
    /// The vectors that bring the server's Hessian closest, among the first `min(q + B, d - 1)` (\[T\] eq. 3.21, 3.23).
    Optimal,
    /// The best of `optimal` for every number of vectors up to this one (exact search, \[T\] eq. 3.21).
    Exact,
    /// The first vectors, each with the most bits; remaining bits are unused (NQ-SHED).
    FirstVectors,
    /// The vectors of `optimal`, sent unquantised with their first bit (ideal-SHED).
    Ideal,
}

/// The method's parameters, known to all agents.
#[derive(Debug, Clone, PartialEq)]
pub struct QShedPlan {
    /// The renewal schedule of the agents.
    pub renewal: Renewal,
    /// The vectors that get the bits.
    pub rule: BitRule,
    /// The most bits per component, over all rounds since the renewal.
    pub max_bits: u32,
    /// Bits per component and round, if the link has no budget.
    pub budget: u64,
    /// The trial steps.
    pub trials: Trials,
}

/// An agent: its last computations and messages.
pub struct QShedAgent {
    plan: Arc<QShedPlan>,
    saved: State,
    /// The eigenpairs of the Hessian at the last renewal. Pairs whose vectors may still need bits are saved.
    kept: Option<HessianPairs>,
}

/// The saved state of an agent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// The last model of a question, for the line search.
    point: Point,
    /// The round of the last renewal, and theta in that round.
    renewed: Option<(u64, Vec<f64>)>,
    /// The round of its last answer.
    answered: Option<u64>,
    /// The bits per component of each eigenvector of this Hessian at the server, if the last answer counted.
    bits: Vec<u32>,
    /// The bits at the server otherwise.
    before: Vec<u32>,
}

/// The saved eigenpairs of an agent.
#[derive(Serialize, Deserialize)]
struct SavedRest {
    values: Vec<f64>,
    /// The index of the first saved eigenvector.
    first: usize,
    /// One eigenvector after the other.
    vectors: Vec<f64>,
}

/// The eigenpairs of one Hessian.
struct HessianPairs {
    /// All eigenvalues, raised to the floor.
    values: Vec<f64>,
    /// The index of the first known eigenvector.
    first: usize,
    /// The eigenvectors from there on, one per column; vectors that are never sent may be missing.
    vectors: Mat<f64>,
}

impl HessianPairs {
    fn new(hessian: &Mat<f64>) -> Self {
        let Eigenpairs { values, vectors } = Eigenpairs::leading(hessian, hessian.nrows());
        let floor = (FLOOR * values[0]).max(f64::MIN_POSITIVE);
        // NaN stays and must be sent, because the run has diverged.
        let values = values.iter().map(|l| if *l < floor { floor } else { *l }).collect();
        Self { values, first: 0, vectors }
    }

    fn vector(&self, i: usize) -> &[f64] {
        self.vectors.col_as_slice(i - self.first)
    }

    /// The number of first eigenvectors that may be sent at all: those up to the last eigenvalue above the least one, up to rounding.
    fn most(&self) -> usize {
        let d = self.values.len();
        let least = self.values[d - 1] + d as f64 * f64::EPSILON * self.values[0];
        self.values.iter().take_while(|l| **l > least).count()
    }

    /// The pairs to save if the server holds `held` vectors with all their bits; `None` if they are not finite.
    fn rest(&self, held: usize) -> Option<SavedRest> {
        let first = held.max(self.first);
        let vectors: Vec<f64> = (first..self.most()).flat_map(|i| self.vector(i)).copied().collect();
        let is_finite = self.values.iter().chain(&vectors).all(|x| x.is_finite());
        is_finite.then(|| SavedRest { values: self.values.clone(), first, vectors })
    }

    /// The pairs of [`HessianPairs::rest`], for a Hessian with d rows; `None` if they are invalid.
    fn of_rest(SavedRest { values, first, vectors }: SavedRest, d: usize) -> Option<Self> {
        let columns = vectors.len() / d.max(1);
        let is_finite = values.iter().chain(&vectors).all(|x| x.is_finite());
        let is_spectrum = values.len() == d && d > 0 && values.is_sorted_by(|a, b| a >= b) && values[d - 1] > 0.0;
        if !is_finite || !is_spectrum || vectors.len() != columns * d {
            return None;
        }
        let kept = Self { values, first, vectors: Mat::from_fn(d, columns, |i, j| vectors[j * d + i]) };
        (columns == kept.most().saturating_sub(first)).then_some(kept)
    }

    /// The total bits of each vector after a round with a budget of this many per component; `before` are the bits at the server.
    fn bits_after(&self, before: &[u32], plan: &QShedPlan, budget: u64) -> Vec<u32> {
        let QShedPlan { rule, max_bits, .. } = *plan;
        if !self.values[0].is_finite() {
            return before.to_vec();
        }
        // The optimum does not depend on the scale; with this scale, squares are finite.
        let scaled = || self.values.iter().map(|l| l / self.values[0]).collect::<Vec<f64>>();
        let mut after = match rule {
            BitRule::Optimal | BitRule::Ideal => allocate(&scaled(), before, max_bits, budget, CountRule::Heuristic),
            BitRule::Exact => allocate(&scaled(), before, max_bits, budget, CountRule::Exact),
            BitRule::FirstVectors => {
                let whole = usize::try_from(budget / u64::from(max_bits)).unwrap_or(usize::MAX);
                let mut after = before.to_vec();
                after.resize(before.len().saturating_add(whole).min(self.values.len() - 1), max_bits);
                after
            }
        };
        // A vector without bits adds nothing, nor does one whose eigenvalue is the least one, up to rounding. One whose eigenvalue equals
        // the next one adds nothing yet. It is still sent, because the pairs after a group of equal ones follow it.
        let most = self.most();
        let adds = |after: &[u32]| after.last() != Some(&0) && after.len() <= most;
        while after.len() > before.len() && !adds(&after) {
            after.pop();
        }
        after
    }

    /// The refinement of vectors from `before` to `after` bits, and the bits themselves. `round` is the round of the Hessian.
    fn refine(&self, at: &LocalContext<'_>, round: u64, before: &[u32], after: &[u32]) -> (Refinement, Vec<u8>) {
        let bits_before = |i: usize| before.get(i).copied().unwrap_or(0);
        let changed = |i: &usize| after[*i] > bits_before(*i);
        let start = (0..after.len()).find(changed).unwrap_or(0);
        let end = (start..after.len()).rev().find(changed).map_or(start, |last| last + 1);
        let mut digits = BitWriter::default();
        let mut one = |i: usize| {
            let (from, to) = (bits_before(i), after[i]);
            if to == from {
                return More::default();
            }
            let v = self.vector(i);
            let grid = || nested_grid::offsets(at.seed(), round, at.agent, i);
            let codes = nested_grid::codes(v, grid());
            codes.iter().for_each(|code| digits.push(nested_grid::between(*code, from, to), to - from));
            More { bits: to - from, across: nested_grid::across(v, &codes, to, grid()) }
        };
        let more = (start..end).map(&mut one).collect();
        (Refinement { base: checksum(before), start, more }, digits.finish())
    }

    /// The same for unquantised vectors: those that get their first bits.
    fn whole(&self, before: &[u32], after: &[u32]) -> (Refinement, Vec<f64>) {
        let bits_before = |i: usize| before.get(i).copied().unwrap_or(0);
        let more = (0..after.len()).map(|i| More { bits: after[i] - bits_before(i), across: Vec::new() }).collect();
        let new = (0..after.len()).filter(|i| bits_before(*i) == 0 && after[*i] > 0);
        let vectors = new.flat_map(|i| self.vector(i)).copied().collect();
        (Refinement { base: checksum(before), start: 0, more }, vectors)
    }
}

impl QShedAgent {
    /// The agent before its first round.
    pub fn new(plan: Arc<QShedPlan>) -> Self {
        Self { plan, saved: State::default(), kept: None }
    }

    /// The bits of each vector at the server at the time of a question.
    fn held(&mut self, down: &Message) -> Vec<u32> {
        match down.last_answer(self.saved.answered) {
            LastAnswer::Counted => std::mem::take(&mut self.saved.bits),
            LastAnswer::Lost => std::mem::take(&mut self.saved.before),
            LastAnswer::NoneCounts => Vec::new(),
        }
    }

    /// The number of first vectors that the server holds with all their bits.
    fn whole(&self, bits: &[u32]) -> usize {
        bits.iter().take_while(|bits| **bits == self.plan.max_bits).count()
    }

    /// Recomputes the pairs of the last renewal if the saved ones lack some that the server needs, because the agent restarts from its
    /// first pair.
    fn compute_again(&mut self, at: &LocalContext<'_>, held: &[u32]) {
        let whole = self.whole(held);
        let is_there = self.kept.as_ref().is_some_and(|kept| kept.first <= whole);
        let Some((_, theta)) = self.saved.renewed.as_ref().filter(|_| !is_there) else { return };
        let d = theta.len();
        let mut hessian = Mat::zeros(d, d);
        at.hessian_again(theta, &mut hessian);
        self.kept = Some(HessianPairs::new(&hessian));
    }

    /// Sends the gradient at theta_t and the next bits.
    fn bits_and_gradient(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        let (t, theta) = (at.round, down.part(Part::Model));
        let d = theta.len();
        let due = due(&self.plan.renewal, down, d)?;
        if self.saved.renewed.as_ref().is_some_and(|(_, theta)| theta.len() != d) {
            return Err(foreign("a model of another length"));
        }
        // if t in I:
        if self.saved.renewed.as_ref().is_none_or(|(own, _)| *own < due) {
            //   H_c = Hess f_c(theta_t), k_t = t, no vector has bits
            let mut hessian = Mat::zeros(d, d);
            at.hessian(theta, &mut hessian);
            self.kept = Some(HessianPairs::new(&hessian));
            self.saved = State { renewed: Some((t, theta.to_vec())), ..State::default() };
        }
        let before = self.held(down);
        self.compute_again(at, &before);
        let (round, kept) = match (&self.saved.renewed, &self.kept) {
            (Some((round, _)), Some(kept)) => (*round, kept),
            _ => unreachable!("an agent renews in its first round"),
        };
        // b_t = b_{t-1} + the allocation of B_t bits;  q_t = the last vector with a bit;  rho = l_{q+1}
        let budget = at.bits.map_or(self.plan.budget, |bits| bits / d as u64);
        let after = kept.bits_after(&before, &self.plan, budget);
        let (first, q) = (before.len(), after.len());
        // U = { the new bits, l_j for q_{t-1} < j <= q_t, grad f_c(theta_t), rho }
        let mut values = vec![round as f64, first as f64, kept.values[q]];
        values.extend(&kept.values[first..q]);
        let (refinement, content) = if self.plan.rule == BitRule::Ideal {
            let (refinement, vectors) = kept.whole(&before, &after);
            (refinement, (Part::Eigenvectors, Body::Numbers(vectors)))
        } else {
            let (refinement, digits) = kept.refine(at, round, &before, &after);
            (refinement, (Part::Digits, Body::Packed(digits)))
        };
        let (point, renewed) = (Point::asked(at, down), self.saved.renewed.take());
        self.saved = State { point, renewed, answered: Some(t), bits: after, before };
        Ok(vec![
            (Part::ExactGradient, Body::Numbers(self.saved.point.gradient.clone())),
            (Part::Eigenvalues, Body::Numbers(values)),
            (Part::Refinement, Body::Packed(refinement.pack())),
            content,
        ])
    }
}

impl Agent for QShedAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == 0 {
            return self.bits_and_gradient(at, down);
        }
        self.saved.point.losses(at, &self.plan.trials, down.part(Part::Step))
    }

    fn save(&self) -> Vec<u8> {
        let bytes = postcard::to_stdvec(&self.saved).expect("plain data serialises");
        match self.kept.as_ref().and_then(|kept| kept.rest(self.whole(&self.saved.before))) {
            Some(rest) => postcard::to_extend(&rest, bytes).expect("plain data serialises"),
            None => bytes,
        }
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (saved, rest): (State, _) = postcard::take_from_bytes(bytes).map_err(|_| bad_state())?;
        let State { point: Point { theta, gradient }, renewed, bits, before, .. } = &saved;
        let d = renewed.as_ref().map_or(0, |(_, theta)| theta.len());
        let are = |bits: &[u32]| bits.len() < d.max(1) && bits.iter().all(|bits| *bits <= self.plan.max_bits) && bits.last() != Some(&0);
        let are_bits = are(bits) && are(before) && before.iter().zip(bits).all(|(before, after)| before <= after);
        let fits =
            theta.len() == d && gradient.len() == d && are_bits && renewed.as_ref().is_none_or(|(round, _)| d > 0 && *round < 1 << 32);
        // Numbers may be infinite or NaN if the agent was asked far from where its loss can be computed.
        if !fits || before.len() > bits.len() {
            return Err(bad_state());
        }
        let kept = if rest.is_empty() {
            None
        } else {
            let (pairs, rest): (SavedRest, _) = postcard::take_from_bytes(rest).map_err(|_| bad_state())?;
            Some(HessianPairs::of_rest(pairs, d).filter(|_| rest.is_empty()).ok_or_else(bad_state)?)
        };
        (self.saved, self.kept) = (saved, kept);
        Ok(())
    }
}

fn bad_state() -> Error {
    Error::format("checkpoint", "not the state of an agent of Q-SHED", "a checkpoint of the same settings")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rule: BitRule, max_bits: u32) -> QShedPlan {
        QShedPlan { renewal: Renewal::Once, rule, max_bits, budget: 0, trials: Trials::new(0.5, 1, 0.1) }
    }

    fn diagonal(values: &[f64]) -> HessianPairs {
        let n = values.len();
        HessianPairs::new(&Mat::from_fn(n, n, |i, j| if i == j { values[i] } else { 0.0 }))
    }

    #[test]
    fn first_vectors_have_all_bits_or_none() {
        let kept = diagonal(&[5.0, 4.0, 3.0, 2.0, 1.0]);
        let plan = plan(BitRule::FirstVectors, 16);
        assert_eq!(kept.bits_after(&[], &plan, 15), Vec::<u32>::new());
        assert_eq!(kept.bits_after(&[], &plan, 47), [16, 16]);
        assert_eq!(kept.bits_after(&[16, 16], &plan, 16), [16; 3]);
        assert_eq!(kept.bits_after(&[16, 16], &plan, u64::MAX), [16; 4]);
        assert_eq!(kept.bits_after(&[16; 4], &plan, 100), [16; 4]);
    }

    /// Values below the floor, equal values and no positive value: vectors that add nothing get no bits.
    #[test]
    fn vectors_that_add_nothing_get_no_bits() {
        for rule in [BitRule::Optimal, BitRule::Exact, BitRule::FirstVectors, BitRule::Ideal] {
            let plan = plan(rule, 4);
            let after = diagonal(&[3.0, 1.0, 1e-20, -2.0, -3.0]).bits_after(&[], &plan, 100);
            assert_eq!(after, [4, 4], "{rule:?}");
            for values in [[1.0; 4], [-1.0; 4], [0.0; 4]] {
                assert_eq!(diagonal(&values).bits_after(&[], &plan, 100), Vec::<u32>::new(), "{rule:?}");
            }
            assert_eq!(diagonal(&[f64::NAN, 1.0]).bits_after(&[], &plan, 9), Vec::<u32>::new());
            assert_eq!(diagonal(&[2.0]).bits_after(&[], &plan, 9), Vec::<u32>::new());
        }
    }

    /// Groups of equal eigenvalues, exactly or up to rounding, that exceed one round's capacity are passed in several rounds, by every
    /// rule; groups at the end of the spectrum are not sent.
    #[test]
    fn groups_of_equal_eigenvalues_are_passed() {
        for rule in [BitRule::Optimal, BitRule::Exact, BitRule::FirstVectors, BitRule::Ideal] {
            for (group, tail) in [(3, 1), (40, 1), (40, 10)] {
                for noise in [0.0, 1e-15] {
                    let values: Vec<f64> = (0..group).map(|j| 5.0 - noise * j as f64).chain(vec![0.01; tail]).collect();
                    let (kept, plan) = (diagonal(&values), plan(rule, 16));
                    let mut bits = Vec::new();
                    for _ in 0..group {
                        let after = kept.bits_after(&bits, &plan, 16);
                        assert!(
                            after.iter().map(|bits| u64::from(*bits)).sum::<u64>() <= bits.iter().map(|b| u64::from(*b)).sum::<u64>() + 16
                        );
                        bits = after;
                    }
                    assert_eq!(bits, vec![16; group], "{rule:?} {noise}");
                    assert_eq!(kept.bits_after(&bits, &plan, 16), bits);
                }
            }
        }
    }

    /// The optimum does not depend on the scale of the Hessian, however large or small.
    #[test]
    fn bits_do_not_depend_on_the_scale() {
        let values = [0.21, 0.11, 0.06, 0.03, 0.02, 0.01];
        let at = |scale: f64| diagonal(&values.map(|l| scale * l)).bits_after(&[], &plan(BitRule::Optimal, 16), 12);
        assert!(at(1.0).iter().sum::<u32>() == 12 && at(1.0).is_sorted_by(|a, b| a >= b));
        assert_eq!((at(2f64.powi(600)), at(2f64.powi(-600))), (at(1.0), at(1.0)));
    }
}
