//! Roots of nonlinear operators: a damped Newton method.

use faer::Mat;

use crate::cancel::Cancel;
use crate::linalg;
use crate::parallel;
use crate::problem::Field;
use crate::problem::root::{MAX_DIM, Root, RootSource};

/// The largest residual of a root found by Newton's method, relative to its scale.
pub const CERTIFIED: f64 = 1e-12;
/// The condition number above which a Jacobian by differences, with relative errors of about 1e-10, counts as singular.
const MAX_CONDITION: f64 = 1e9;
const SINGULAR: &str = "the Jacobian of the mean operator is singular, to its accuracy, where the operator vanishes";
/// The largest number of steps of all kinds.
const MAX_STEPS: usize = 300;
/// Armijo's share of the predicted decrease, and the number of halvings before another kind of step is taken.
const ARMIJO: f64 = 1e-4;
const HALVINGS: i32 = 12;

/// The mean over agents `sum_c p_c x_c` of vectors of `len` numbers, computed in parallel. Agents are summed in a fixed number of groups,
/// in the agents' order, and the groups pairwise: the same bits for any number of threads.
fn mean_in_groups(weights: &[f64], len: usize, x: impl Fn(usize, &mut [f64]) + Sync) -> Vec<f64> {
    const GROUPS: usize = 64;
    let size = weights.len().div_ceil(GROUPS).max(1);
    let mut groups = vec![0.0; weights.len().div_ceil(size) * len];
    parallel::each_chunk(&mut groups, len, &|i, group| {
        let mut one = vec![0.0; len];
        for (c, p) in weights.iter().enumerate().skip(i * size).take(size) {
            x(c, &mut one);
            crate::sums::accumulate(group, *p, &one);
        }
    });
    crate::sums::pairwise(&mut groups, len);
    groups.truncate(len);
    groups
}

/// The Jacobian of `gbar_c` at theta, d x d, and its source: the problem, or central differences with steps of `eps^(1/3) max(1,
/// |theta_j|)` and relative errors of about 1e-10. `None` if neither the Jacobian nor the mean operator is known.
pub fn jacobian(field: &dyn Field, c: usize, theta: &[f64]) -> Option<(Mat<f64>, RootSource)> {
    let d = theta.len();
    let mut out = Mat::zeros(d, d);
    if field.facts().jacobian(c, theta, &mut out) {
        return Some((out, RootSource::Newton));
    }
    let (mut at, mut above, mut below) = (theta.to_vec(), vec![0.0; d], vec![0.0; d]);
    for j in 0..d {
        let step = f64::EPSILON.cbrt() * theta[j].abs().max(1.0);
        at[j] = theta[j] + step;
        let high = at[j];
        let known = field.mean(c, &at, &mut above);
        at[j] = theta[j] - step;
        if !known || !field.mean(c, &at, &mut below) {
            return None;
        }
        let width = high - at[j];
        at[j] = theta[j];
        (0..d).for_each(|i| out[(i, j)] = (above[i] - below[i]) / width);
    }
    Some((out, RootSource::Differences))
}

/// The Jacobian of the mean operator `sum_c p_c gbar_c`, unless cancelled.
fn mean_jacobian(field: &dyn Field, theta: &[f64], cancel: &Cancel) -> Result<Mat<f64>, String> {
    let d = theta.len();
    let rows = mean_in_groups(field.weights(), d * d, |c, out| {
        // The unfinished result is not used.
        if cancel.is_cancelled() {
            return;
        }
        let (own, _) = jacobian(field, c, theta).expect("the mean operators are known");
        (0..d).for_each(|i| (0..d).for_each(|j| out[i * d + j] = own[(i, j)]));
    });
    if cancel.is_cancelled() { Err("Newton's method was cancelled".into()) } else { Ok(linalg::from_rows(d, d, &rows)) }
}

/// `||sum_c p_c gbar_c(theta)||`, with the vector.
fn residual(field: &dyn Field, theta: &[f64]) -> (Vec<f64>, f64) {
    let g = field.mean_operator(theta).expect("the mean operators are known");
    let norm = linalg::norm_sq(&g).sqrt();
    (g, norm)
}

/// `sum_c p_c ||gbar_c(theta)||`.
fn mean_size(field: &dyn Field, theta: &[f64]) -> f64 {
    let size = mean_in_groups(field.weights(), 1, |c, out| {
        let mut g = vec![0.0; theta.len()];
        field.mean(c, theta, &mut g);
        out[0] = linalg::norm_sq(&g).sqrt();
    });
    size[0]
}

/// The root of a mean operator with known values, by a damped Newton method from `start`.
///
/// A Newton step `J s = -gbar` is halved until the residual norm falls by Armijo's share, and the next step with the same Jacobian would
/// not be longer. The second condition is for operators that saturate: J is tiny, and a step far beyond the root may find a smaller
/// residual by chance. If the Jacobian is singular or no such step is found, an implicit pseudo-time step is taken instead, `(diag(1 /
/// delta) - J) s = gbar`, which follows the flow `theta' = gbar(theta)`. A component's pseudo-time step doubles while the operator's
/// component keeps its sign, and is divided by four when the sign changes.
///
/// The point is accepted if `||gbar|| <= 1e-12 scale`, `scale = ||gbar(start)|| + ||J||_F ||theta|| + sum_c p_c ||gbar_c(theta)||`, and the
/// Jacobian there is not singular, so that the root is isolated. Other roots may exist.
///
/// # Errors
/// The reason why no root is known: operators that can only be sampled, too many components, no convergence, a singular Jacobian, or
/// cancellation, which is checked in each step.
pub fn newton(field: &dyn Field, start: &[f64], cancel: &Cancel) -> Result<Root, String> {
    let d = field.dim();
    if !field.has_mean() {
        return Err("the operators can only be sampled".into());
    }
    if d > MAX_DIM {
        return Err(format!("theta has {d} components, and Newton's method is used up to {MAX_DIM}"));
    }
    let source = jacobian(field, 0, start).map_or(RootSource::Differences, |(_, source)| source);
    let mut theta = start.to_vec();
    let (mut g, mut norm) = residual(field, &theta);
    let at_start = norm;
    if !norm.is_finite() {
        return Err("the mean operator is not finite at the start of Newton's method".into());
    }
    let mut pace: Vec<f64> = Vec::new();
    for _ in 0..MAX_STEPS {
        let jacobian = mean_jacobian(field, &theta, cancel)?;
        if !jacobian.is_all_finite() {
            return Err(format!("the Jacobian is not finite at a point of norm {:.1e}", linalg::norm_sq(&theta).sqrt()));
        }
        let size = linalg::norm_sq(&theta).sqrt();
        let certified = norm <= CERTIFIED * (at_start + jacobian.norm_l2() * size + mean_size(field, &theta));
        let minus: Vec<f64> = g.iter().map(|g| -g).collect();
        let step = linalg::solve(&jacobian, &minus);
        let damped = step.as_ref().ok().and_then(|step| damped(field, &theta, norm, step, &jacobian, certified));
        if let Some(next) = damped {
            (theta, g, norm) = next;
            continue;
        }
        if certified {
            let isolated = step.is_ok() && (source == RootSource::Newton || linalg::condition(&jacobian) <= MAX_CONDITION);
            return if isolated { Ok(Root { theta, source }) } else { Err(SINGULAR.into()) };
        }
        if pace.is_empty() {
            pace = vec![size.max(1.0) / norm; d];
        }
        let shifted = Mat::from_fn(d, d, |i, j| if i == j { 1.0 / pace[i] } else { 0.0 } - jacobian[(i, j)]);
        let next = linalg::solve(&shifted, &g).ok().map(|s| theta.iter().zip(&s).map(|(x, s)| x + s).collect::<Vec<f64>>());
        match next.map(|next| measured(field, next)) {
            Some((next, ahead, below)) if below <= 2.0 * norm => {
                for ((pace, now), before) in pace.iter_mut().zip(&ahead).zip(&g) {
                    *pace *= if now * before > 0.0 { 2.0 } else { 0.25 };
                }
                (theta, g, norm) = (next, ahead, below);
            }
            _ => pace.iter_mut().for_each(|pace| *pace *= 0.25),
        }
        if !pace.iter().copied().all(f64::is_normal) {
            break;
        }
    }
    Err(format!("Newton's method did not converge: the residual is {norm:.1e}, {at_start:.1e} where it began"))
}

/// A point, the mean operator there, and its norm.
type Point = (Vec<f64>, Vec<f64>, f64);

fn measured(field: &dyn Field, theta: Vec<f64>) -> Point {
    let (g, norm) = residual(field, &theta);
    (theta, g, norm)
}

/// The longest of `step`, its half, its quarter, .. that lowers the residual `norm` by enough, and does not lengthen the next step with the
/// same Jacobian.
fn damped(field: &dyn Field, theta: &[f64], norm: f64, step: &[f64], jacobian: &Mat<f64>, certified: bool) -> Option<Point> {
    (0..=HALVINGS).find_map(|k| {
        let t = 0.5f64.powi(k);
        let next = measured(field, theta.iter().zip(step).map(|(x, s)| t.mul_add(*s, *x)).collect());
        let (_, g, below) = &next;
        // A certified root is improved while the residual at least halves.
        let falls = *below <= if certified { 0.5 } else { 1.0 - ARMIJO * t } * norm && norm > 0.0;
        let natural = || linalg::solve(jacobian, g).is_ok_and(|left| linalg::norm_sq(&left) <= linalg::norm_sq(step));
        (falls && natural()).then_some(next)
    })
}
