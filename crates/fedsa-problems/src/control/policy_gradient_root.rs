//! Roots of mean policy gradients: stationary policies of the mean return.
//!
//! The search follows the natural direction, in which theta(s, a) rises by its gradient per visit,
//!
//! ```text
//! n(s, a) = sum_c p_c d_c(s) (q_c(s, a) - v_c(s)) / sum_c p_c d_c(s),    theta <- theta + (w / lam) n
//! ```
//!
//! With w = 1 and one environment this is soft policy iteration. The share w is halved when n has not fallen in ten steps. Newton's method
//! follows if n has not vanished, or if there is no entropy. A point is a root if n vanishes: the gradient also vanishes where a policy becomes deterministic, at infinity.
//!
//! The search starts from 0, from roots with more entropy, and from random points. Without entropy it goes through roots with less and less.

use faer::Mat;

use super::returns::Returns;
use super::root_search::{LEAST_SHARE, damped, distinct};
use fedsa::cancel::Cancel;
use fedsa::linalg;
use fedsa::problem::newton::CERTIFIED;
use fedsa::problem::root::{Root, RootSource};
use fedsa::random::{ALL, Purpose, stream};

/// Random starts.
const RANDOM: usize = 6;
/// Problems with more entropy, each with twice that of the one below. Without entropy, problems with some, each with a quarter of the one
/// above.
const MORE: i32 = 6;
const LESS: i32 = 7;
const ITERATIONS: usize = 1000;
const NEWTON_STEPS: usize = 50;
/// The w from random points.
const RANDOM_SHARE: f64 = 0.25;
/// Eigenvalues of the Jacobian up to this share of the largest one are 0 to rounding.
const ROUNDING: f64 = 1e-9;

/// The mean of all agents at a point.
struct Point {
    value: f64,
    /// The mean operator.
    g: Vec<f64>,
    /// The natural direction.
    natural: Vec<f64>,
    /// Its largest component, and the scale of the values from which it is computed.
    residual: f64,
    scale: f64,
    /// The discounted visits of each state.
    visits: Vec<f64>,
}

/// Subtracts the mean over the actions of each state.
fn centre(theta: &mut [f64], actions: usize) {
    for theta in theta.chunks_mut(actions) {
        let mean = theta.iter().sum::<f64>() / actions as f64;
        theta.iter_mut().for_each(|x| *x -= mean);
    }
}

fn at(returns: &Returns, weights: &[f64], theta: &[f64]) -> Point {
    let actions = returns.kinds[0].actions;
    let (mut value, mut scale) = (0.0, 0.0f64);
    let (mut gains, mut visits, mut policy) = (vec![0.0; theta.len()], vec![0.0; returns.start.len()], Vec::new());
    for (kind, weight) in weights.iter().enumerate() {
        let own = returns.gains(kind, theta);
        value += weight * own.value;
        scale = scale.max(own.scale);
        linalg::add_scaled(&mut gains, *weight, &own.gains);
        linalg::add_scaled(&mut visits, *weight, &own.visits);
        policy = own.policy;
    }
    let mut g: Vec<f64> = policy.iter().zip(&gains).map(|(pi, gain)| pi * gain).collect();
    returns.centre(theta, &mut g);
    let mut natural: Vec<f64> = gains
        .iter()
        .enumerate()
        .map(|(pair, gain)| if visits[pair / actions] > 0.0 { gain / visits[pair / actions] } else { 0.0 })
        .collect();
    let residual = natural.iter().fold(0.0f64, |most, n| if n.is_nan() { f64::NAN } else { most.max(n.abs()) });
    centre(&mut natural, actions);
    Point { value, g, natural, residual, scale, visits }
}

/// The Jacobian of the mean operator.
fn mean_jacobian(returns: &Returns, weights: &[f64], theta: &[f64]) -> Mat<f64> {
    let mut sum = Mat::zeros(theta.len(), theta.len());
    for (kind, weight) in weights.iter().enumerate() {
        sum += faer::Scale(*weight) * returns.jacobian(kind, theta);
    }
    sum
}

/// The root that natural steps and then Newton's method reach from a start, with this w at first.
fn settled(returns: &Returns, weights: &[f64], mut theta: Vec<f64>, share: f64, cancel: &Cancel) -> Option<Vec<f64>> {
    if returns.entropy > 0.0 {
        let shares = [share, LEAST_SHARE].map(|w| w / returns.entropy);
        theta = damped(theta, shares, ITERATIONS, CERTIFIED, cancel, |theta| {
            let Point { natural, residual, scale, .. } = at(returns, weights, theta);
            (residual, scale, move || Some(natural))
        })?;
    }
    for _ in 0..NEWTON_STEPS {
        let Point { g, residual, scale, .. } = at(returns, weights, &theta);
        if residual <= CERTIFIED * scale {
            return Some(theta);
        }
        // Actions that are the same in every environment make the Jacobian singular without entropy.
        let step = linalg::solve_or_least(&mean_jacobian(returns, weights, &theta), &g);
        if cancel.is_cancelled() || !residual.is_finite() || step.iter().any(|x| !x.is_finite()) {
            return None;
        }
        linalg::add_scaled(&mut theta, -1.0, &step);
    }
    None
}

/// Whether no eigenvalue of the Jacobian is positive.
fn is_stable(returns: &Returns, weights: &[f64], theta: &[f64]) -> bool {
    let values = mean_jacobian(returns, weights, theta).self_adjoint_eigenvalues(faer::Side::Lower);
    values.is_ok_and(|all| {
        let size = all.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        all.iter().all(|x| *x <= ROUNDING * size)
    })
}

/// The root from a start, by way of problems with these entropies.
fn climbed(
    returns: &Returns,
    weights: &[f64],
    mut theta: Vec<f64>,
    share: f64,
    entropies: impl Iterator<Item = f64>,
    cancel: &Cancel,
) -> Option<Vec<f64>> {
    for entropy in entropies {
        match settled(&Returns { entropy, ..returns.clone() }, weights, theta.clone(), share, cancel) {
            Some(root) => theta = root,
            None => break,
        }
    }
    settled(returns, weights, theta, share, cancel)
}

/// The stable root with the largest mean return, with the number of roots; `weights` are those of the kinds.
///
/// # Errors
/// Why there is none.
pub(super) fn search(returns: &Returns, weights: &[f64], cancel: &Cancel) -> Result<Root, String> {
    let (d, lam, actions) = (returns.pairs(), returns.entropy, returns.kinds[0].actions);
    let Point { scale: reach, visits, .. } = at(returns, weights, &vec![0.0; d]);
    let mut draws = stream(0, Purpose::Start, 0, ALL);
    let mut start = |k: usize| {
        let mut theta: Vec<f64> = (0..d).map(|_| if k == 0 { 0.0 } else { 8.0 * draws.uniform() - 4.0 }).collect();
        centre(&mut theta, actions);
        // Nothing moves the components of states that are never visited.
        theta.iter_mut().enumerate().filter(|(pair, _)| visits[pair / actions] == 0.0).for_each(|(_, x)| *x = 0.0);
        theta
    };
    // Whole steps from random points alternate between policies, and end in saddles between them.
    let share = |k: usize| if k == 0 { 1.0 } else { RANDOM_SHARE };
    let found: Vec<Vec<f64>> = if lam > 0.0 {
        let warm = climbed(returns, weights, start(0), 1.0, (1..=MORE).rev().map(|k| lam * 2f64.powi(k)), cancel);
        let others = (0..=RANDOM).filter_map(|k| settled(returns, weights, start(k), share(k), cancel));
        warm.into_iter().chain(others).collect()
    } else {
        let less = |k: usize| (1 + k as i32 / 2..=LESS).map(|k| reach * 4f64.powi(-k));
        (0..=RANDOM + 1).filter_map(|k| climbed(returns, weights, start(k), share(k), less(k), cancel)).collect()
    };
    let mut roots = distinct(found);
    let (starts, found) = (RANDOM as u32 + 2, roots.len() as u32);
    roots.retain(|root| is_stable(returns, weights, root));
    let stable = roots.len() as u32;
    let value = |theta: &[f64]| at(returns, weights, theta).value;
    // The first of equal values.
    let best = |best: Vec<f64>, other: Vec<f64>| if value(&other) > value(&best) { other } else { best };
    match roots.into_iter().reduce(best) {
        Some(theta) => Ok(Root { theta, source: RootSource::Searched { starts, found, stable } }),
        None if found > 0 => Err(format!("{found} stationary policies were found from {starts} starts, and none is a maximum")),
        None if lam == 0.0 => {
            Err("no stationary policy with mixed actions was found: without entropy, deterministic policies lie at infinity".into())
        }
        None => Err(format!("no stationary policy was found from {starts} starts")),
    }
}
