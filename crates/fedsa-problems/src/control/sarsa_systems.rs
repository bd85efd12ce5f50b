//! SARSA's mean systems under the policy of theta.

use faer::Mat;

use super::environment::Environment;
use super::learners::{Behaviour, Learners};
use fedsa::linalg;
use fedsa::problem::policy_systems::PolicySystems;
use fedsa::problem::systems::System;

/// Adds the system `A = Phi' X (I - gamma K) Phi`, `b = Phi' X r` of an environment, times a weight.
pub(super) fn add_system(agents: &Learners, environment: &Environment, weight: f64, theta: &[f64], a: &mut Mat<f64>, b: &mut [f64]) {
    let (d, mut under) = (b.len(), Behaviour::default());
    agents.behave(environment, theta, &mut under);
    // sum_a pi phi of each state.
    let mut means = Mat::<f64>::zeros(d, environment.states);
    for (pair, pi) in under.policy.iter().enumerate() {
        agents.rows.add(pair, *pi, means.col_as_slice_mut(pair / environment.actions));
    }
    let mut row = vec![0.0; d];
    for (pair, pi) in under.policy.iter().enumerate() {
        let x = weight * under.law[pair / environment.actions] * pi;
        if x == 0.0 {
            continue;
        }
        row.fill(0.0);
        environment.moves(pair).for_each(|(next, p)| linalg::add_scaled(&mut row, -agents.gamma * p, means.col_as_slice(next)));
        agents.rows.add(pair, 1.0, &mut row);
        for (i, phi) in agents.rows.entries(pair) {
            row.iter().enumerate().for_each(|(j, y)| a[(i, j)] += x * phi * y);
        }
        agents.rows.add(pair, x * environment.rewards[pair], b);
    }
}

impl PolicySystems for Learners {
    fn system(&self, c: usize, theta: &[f64]) -> System {
        let d = theta.len();
        let (mut a, mut b) = (Mat::zeros(d, d), vec![0.0; d]);
        add_system(self, self.environment(c), 1.0, theta, &mut a, &mut b);
        System { a, b }
    }

    /// `Phi' X Phi`.
    fn gram(&self, c: usize, theta: &[f64]) -> Mat<f64> {
        let (d, environment, mut under) = (theta.len(), self.environment(c), Behaviour::default());
        self.behave(environment, theta, &mut under);
        let mut gram = Mat::zeros(d, d);
        for (pair, pi) in under.policy.iter().enumerate() {
            let x = under.law[pair / environment.actions] * pi;
            for (i, phi) in self.rows.entries(pair) {
                self.rows.entries(pair).for_each(|(j, y)| gram[(i, j)] += x * phi * y);
            }
        }
        gram
    }
}
