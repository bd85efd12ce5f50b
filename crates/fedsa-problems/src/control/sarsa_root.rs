//! Roots and Jacobians of SARSA's mean operators.
//!
//! The search runs from 0, from roots at higher temperatures, and from random points. From each start it makes soft policy iterations
//! `theta <- theta + w (A^-1 b - theta)`, with the agents' mean system under the policy of theta. The share w begins at 1 and is halved when
//! the residual has not fallen for ten steps: at low temperatures the whole step cycles. Newton's method ends it. Newton's method alone
//! stalls or finds unstable roots.

use faer::Mat;

use super::learners::{Behaviour, Learners};
use super::root_search::{LEAST_SHARE, damped, distinct};
use super::sarsa_systems::add_system;
use fedsa::cancel::Cancel;
use fedsa::linalg;
use fedsa::problem::newton::CERTIFIED;
use fedsa::problem::root::{Root, RootSource};
use fedsa::random::{ALL, Purpose, stream};

/// Random starts, and temperatures above the wanted one, each twice the one below.
const RANDOM: u32 = 6;
const TEMPERATURES: i32 = 6;
const ITERATIONS: usize = 2000;
const NEWTON_STEPS: usize = 50;

/// `gbar` of all agents at theta, with its scale `||b|| + ||A theta||`, and the system `A`.
fn system(agents: &Learners, theta: &[f64]) -> (Mat<f64>, Vec<f64>, f64) {
    let d = agents.rows.dim();
    let (mut a, mut b) = (Mat::zeros(d, d), vec![0.0; d]);
    for (environment, weight) in agents.kinds.iter().zip(agents.kind_weights()) {
        add_system(agents, environment, weight, theta, &mut a, &mut b);
    }
    let moved = linalg::mat_vec(&a, theta);
    let scale = linalg::norm(&b) + linalg::norm(&moved);
    (a, linalg::minus(&b, &moved), scale)
}

/// The Jacobian of the mean operator of a kind: the three parts of SARSA's Jacobian are those of TD, of the policy in the target, and of the
/// law of the pairs.
pub(super) fn jacobian(agents: &Learners, kind: usize, theta: &[f64]) -> Mat<f64> {
    let (environment, rows, d) = (&agents.kinds[kind], &agents.rows, theta.len());
    let (states, actions, pairs) = (environment.states, environment.actions, environment.pairs());
    let mut under = Behaviour::default();
    agents.behave(environment, theta, &mut under);
    let Behaviour { policy, law, .. } = &under;
    let delta = agents.errors(environment, policy, theta);
    // The derivative of pi in each pair, and of v in each state.
    let (mut of_policy, mut of_value) = (Mat::<f64>::zeros(d, pairs), Mat::<f64>::zeros(d, states));
    for state in 0..states {
        let mut p: Vec<f64> = environment.pairs_of(state).map(|pair| rows.dot(pair, theta)).collect();
        let q = p.clone();
        agents.policy.soften(&mut p);
        let mut mean = vec![0.0; d];
        environment.pairs_of(state).zip(&p).for_each(|(pair, p)| rows.add(pair, *p, &mut mean));
        for ((pair, p), q) in environment.pairs_of(state).zip(&p).zip(&q) {
            let slope = agents.policy.slope() * p;
            let column = of_policy.col_as_slice_mut(pair);
            rows.add(pair, slope, column);
            linalg::add_scaled(column, -slope, &mean);
            linalg::add_scaled(of_value.col_as_slice_mut(state), *q, column);
            rows.add(pair, policy[pair], of_value.col_as_slice_mut(state));
        }
    }
    // d mu = mu' dP (I - P + 1 mu')^-1.
    let mut of_moves = Mat::<f64>::zeros(states, d);
    for pair in 0..pairs {
        for (next, p) in environment.moves(pair) {
            let share = law[pair / actions] * p;
            (0..d).for_each(|k| of_moves[(next, k)] += share * of_policy[(k, pair)]);
        }
    }
    let kernel = environment.kernel(policy);
    let m = Mat::from_fn(states, states, |t, s| f64::from(u8::from(s == t)) - kernel[(s, t)] + law[t]);
    let of_law = linalg::solve_columns(&m, &of_moves).unwrap_or_else(|_| Mat::full(states, d, f64::NAN));
    let (mut out, mut row) = (Mat::zeros(d, d), vec![0.0; d]);
    for pair in 0..pairs {
        let (state, pi) = (pair / actions, policy[pair]);
        let x = law[state] * pi;
        row.fill(0.0);
        environment.moves(pair).for_each(|(next, p)| linalg::add_scaled(&mut row, x * agents.gamma * p, of_value.col_as_slice(next)));
        rows.add(pair, -x, &mut row);
        linalg::add_scaled(&mut row, delta[pair] * law[state], of_policy.col_as_slice(pair));
        (0..d).for_each(|k| row[k] += delta[pair] * pi * of_law[(state, k)]);
        for (i, phi) in rows.entries(pair) {
            row.iter().enumerate().for_each(|(k, y)| out[(i, k)] += phi * y);
        }
    }
    out
}

/// The Jacobian of the mean of all agents.
fn mean_jacobian(agents: &Learners, theta: &[f64]) -> Mat<f64> {
    let mut sum = Mat::zeros(theta.len(), theta.len());
    for (kind, weight) in agents.kind_weights().into_iter().enumerate() {
        sum += faer::Scale(weight) * jacobian(agents, kind, theta);
    }
    sum
}

/// The root that soft policy iterations and then Newton's method reach from a start.
fn settled(agents: &Learners, theta: Vec<f64>, cancel: &Cancel) -> Option<Vec<f64>> {
    let mut theta = damped(theta, [1.0, LEAST_SHARE], ITERATIONS, 1e-8, cancel, |theta| {
        let (a, g, scale) = system(agents, theta);
        (linalg::norm(&g), scale, move || linalg::solve(&a, &g).ok())
    })?;
    for _ in 0..NEWTON_STEPS {
        let (_, g, scale) = system(agents, &theta);
        if linalg::norm(&g) <= CERTIFIED * scale {
            return Some(theta);
        }
        let step = linalg::solve(&mean_jacobian(agents, &theta), &g).ok()?;
        if cancel.is_cancelled() || step.iter().any(|x| !x.is_finite()) {
            return None;
        }
        linalg::add_scaled(&mut theta, -1.0, &step);
    }
    None
}

/// Whether all eigenvalues of the Jacobian have negative real parts.
fn is_stable(agents: &Learners, theta: &[f64]) -> bool {
    linalg::eigenvalues(&mean_jacobian(agents, theta)).is_ok_and(|all| all.iter().all(|(re, _)| *re < 0.0))
}

/// The stable root that is found first, with the number of roots.
///
/// # Errors
/// Why there is none.
pub(super) fn search(agents: &Learners, cancel: &Cancel) -> Result<Root, String> {
    if agents.policy.temperature == 0.0 {
        return Err("the mean operator jumps where the greedy action changes, and may have no root".into());
    }
    let d = agents.rows.dim();
    // Action values are at most this large.
    let rewards = agents.kinds.iter().flat_map(|kind| &kind.rewards).fold(0.0f64, |most, r| most.max(r.abs()));
    let reach = rewards / (1.0 - agents.gamma);
    let mut draws = stream(0, Purpose::Start, 0, ALL);
    let mut starts = vec![vec![0.0; d]];
    let mut warm = vec![0.0; d];
    for k in (1..=TEMPERATURES).rev() {
        let temperature = agents.policy.temperature * 2f64.powi(k);
        match settled(&agents.at_temperature(temperature), warm.clone(), cancel) {
            Some(root) => warm = root,
            None => break,
        }
    }
    starts.push(warm);
    starts.extend((0..RANDOM).map(|_| (0..d).map(|_| reach * (2.0 * draws.uniform() - 1.0)).collect()));
    let count = starts.len() as u32;
    let mut roots = distinct(starts.into_iter().filter_map(|start| settled(agents, start, cancel)));
    let stable: Vec<bool> = roots.iter().map(|root| is_stable(agents, root)).collect();
    let found = roots.len() as u32;
    match stable.iter().position(|stable| *stable) {
        Some(first) => {
            let stable = stable.iter().filter(|stable| **stable).count() as u32;
            Ok(Root { theta: roots.swap_remove(first), source: RootSource::Searched { starts: count, found, stable } })
        }
        None if found == 0 => Err(format!("policy iteration found none from {count} starts")),
        None => Err(format!("policy iteration found {found} from {count} starts, and none is stable")),
    }
}
