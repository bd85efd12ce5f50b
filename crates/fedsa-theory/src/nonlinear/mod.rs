//! Nonlinear operators near a root theta* of their mean.
//!
//! With the agents' Jacobians `J_c` at theta*, the linear systems `A_c = -J_c`, `b_c = gbar_c(theta*) + A_c theta*` agree with the problem
//! to first order and have the same root ([`Near::linearised`]). The radius of a round at theta* is that of these systems. The limit of
//! FedLSA's rounds without noise is computed from the operators themselves ([`limit`]), and floors to leading order in the step size
//! ([`leading_order`]); noise within a round counts with all powers of the step size in the linear part of the steps (`local_noise`).

pub mod leading_order;
pub mod limit;
mod local_noise;

use fedsa::error::{Error, Result, require};
use fedsa::linalg::{self, Mat};
use fedsa::problem::Field;
use fedsa::problem::systems::{System, Systems};

use crate::unknown::unknown;
use crate::work;

/// The largest d.
const MAX_DIM: usize = 200;

/// A problem near its root.
pub struct Near<'a> {
    field: &'a dyn Field,
    root: &'a [f64],
    kinds: Vec<Kind>,
    /// The kind of each agent.
    kind_of: Vec<u32>,
}

/// Agents with the same operators.
struct Kind {
    /// One of them.
    agent: usize,
    /// The number of the kind.
    number: usize,
    /// The sum of their weights p_c.
    weight: f64,
    /// The sum of the squares of their weights.
    square: f64,
    /// `J_c` at the root, d x d.
    jacobian: Mat<f64>,
    /// `gbar_c` at the root (d).
    mean: Vec<f64>,
}

impl<'a> Near<'a> {
    /// The problem near the root that it finds.
    ///
    /// # Errors
    /// When it has no known root, or its Jacobians are not known.
    pub fn new(field: &'a dyn Field) -> Result<Self> {
        let root = field.solution().map_err(|why| unknown(&format!("no root is known: {why}")))?;
        let (root, facts, d) = (&root.theta[..], field.facts(), field.dim());
        require(d <= MAX_DIM, "", format!("{d} components of theta"), &format!("at most {MAX_DIM}"))
            .map_err(|e| Error::not_known("", e.what, &e.help))?;
        let kind_of = facts.kind_of().unwrap_or_else(|| (0..field.agents() as u32).collect());
        let mut kinds: Vec<Option<Kind>> = (0..=kind_of.iter().max().map_or(0, |k| *k as usize)).map(|_| None).collect();
        for (agent, (kind, p)) in kind_of.iter().zip(field.weights()).enumerate() {
            if let Some(kind) = &mut kinds[*kind as usize] {
                kind.weight += p;
                kind.square += p * p;
                continue;
            }
            work::charge(facts.step_work().unwrap_or(d * d) as f64 * d as f64)?;
            let (mut jacobian, mut mean) = (Mat::zeros(d, d), vec![0.0; d]);
            if !facts.jacobian(agent, root, &mut jacobian) || !field.mean(agent, root, &mut mean) {
                return Err(unknown("the operators are not linear, and their Jacobians are not known"));
            }
            kinds[*kind as usize] = Some(Kind { agent, number: *kind as usize, weight: *p, square: p * p, jacobian, mean });
        }
        // Kinds without agents have no number in what follows.
        let mut numbers = vec![0; kinds.len()];
        kinds.iter().enumerate().filter(|(_, kind)| kind.is_some()).zip(0..).for_each(|((old, _), new)| numbers[old] = new);
        let kind_of = kind_of.iter().map(|kind| numbers[*kind as usize]).collect();
        Ok(Self { field, root, kinds: kinds.into_iter().flatten().collect(), kind_of })
    }

    fn dim(&self) -> usize {
        self.root.len()
    }

    /// The linear systems that agree with the operators to first order at the root.
    pub fn linearised(&self) -> Systems {
        let system = |kind: &Kind| {
            let a = -&kind.jacobian;
            let mut b = linalg::mat_vec(&a, self.root);
            linalg::add_scaled(&mut b, 1.0, &kind.mean);
            System { a, b }
        };
        Systems::new(self.kinds.iter().map(system).collect(), self.kind_of.clone(), self.field.weights().to_vec())
    }

    /// `J_c` of a kind at theta, d x d.
    fn jacobian(&self, kind: &Kind, theta: &[f64]) -> Mat<f64> {
        let mut jacobian = Mat::zeros(self.dim(), self.dim());
        self.field.facts().jacobian(kind.agent, theta, &mut jacobian);
        jacobian
    }

    /// `J` of the mean operator at the root, d x d.
    fn mean_jacobian(&self) -> Mat<f64> {
        let mut mean = Mat::zeros(self.dim(), self.dim());
        self.kinds.iter().for_each(|kind| mean += faer::Scale(kind.weight) * &kind.jacobian);
        mean
    }

    /// Whether agents keep the law of a round's model during the round.
    fn keeps_laws(&self) -> bool {
        self.field.facts().keeps_law_in_rounds()
    }
}
