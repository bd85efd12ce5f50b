//! Agents that act by the action values that they learn.

use std::ops::Range;

use super::environment::{Environment, Workspace};
use super::features::PairRows;
use super::policy::SoftPolicy;
use fedsa::linalg;

/// All agents with their policy; agent c has environment c mod n.
#[derive(Debug, Clone)]
pub(super) struct Learners {
    pub kinds: Vec<Environment>,
    pub rows: PairRows,
    pub gamma: f64,
    pub policy: SoftPolicy,
    /// The agents' weights.
    pub weights: Vec<f64>,
}

/// A policy of all states with its stationary law.
#[derive(Default)]
pub(super) struct Behaviour {
    /// The probability of each pair's action.
    pub policy: Vec<f64>,
    /// The stationary law of the states.
    pub law: Vec<f64>,
    work: Workspace,
}

impl Learners {
    #[inline(always)]
    pub fn environment(&self, c: usize) -> &Environment {
        &self.kinds[c % self.kinds.len()]
    }

    /// The same agents with another temperature.
    pub fn at_temperature(&self, temperature: f64) -> Self {
        Self { policy: SoftPolicy { temperature, ..self.policy }, ..self.clone() }
    }

    /// The weight of each kind of agents.
    pub fn kind_weights(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.kinds.len()];
        self.weights.iter().enumerate().for_each(|(c, p)| sums[c % self.kinds.len()] += p);
        sums
    }

    /// Writes the action values of a state.
    #[inline(always)]
    fn values_in(&self, pairs: Range<usize>, theta: &[f64], out: &mut Vec<f64>) {
        out.clear();
        out.extend(pairs.map(|pair| self.rows.dot(pair, theta)));
    }

    /// Writes the probabilities of the actions in a state.
    #[inline(always)]
    pub fn actions_in(&self, pairs: Range<usize>, theta: &[f64], out: &mut Vec<f64>) {
        self.values_in(pairs, theta, out);
        self.policy.soften(out);
        self.policy.explore(out);
    }

    /// Writes the policy of theta with its stationary law.
    pub fn behave(&self, environment: &Environment, theta: &[f64], out: &mut Behaviour) {
        let Behaviour { policy, law, work } = out;
        self.values_in(0..environment.pairs(), theta, policy);
        for actions in policy.chunks_mut(environment.actions) {
            self.policy.soften(actions);
            self.policy.explore(actions);
        }
        environment.stationary(policy, work, law);
    }

    /// `delta_i` of every pair under a policy.
    pub fn errors(&self, environment: &Environment, policy: &[f64], theta: &[f64]) -> Vec<f64> {
        let q: Vec<f64> = (0..environment.pairs()).map(|pair| self.rows.dot(pair, theta)).collect();
        let v: Vec<f64> = q.chunks(environment.actions).zip(policy.chunks(environment.actions)).map(|(q, pi)| linalg::dot(q, pi)).collect();
        let after = |pair| environment.moves(pair).map(|(next, p)| p * v[next]).sum::<f64>();
        (0..environment.pairs()).map(|pair| environment.rewards[pair] + self.gamma * after(pair) - q[pair]).collect()
    }
}
