//! Parts of the searches for roots of SARSA and of policy gradients.

use fedsa::cancel::Cancel;
use fedsa::linalg;

/// The least share w of a step.
pub(super) const LEAST_SHARE: f64 = 1e-4;
/// Roots are different if they are further apart than this, relative to their size.
const APART: f64 = 1e-6;

/// The point that at most `steps` steps `theta <- theta + w n(theta)` reach; they end where the residual is at most `close` of its scale.
/// `at` gives the residual at a point, its scale, and how n is computed.
///
/// w is halved when the residual has not fallen in ten steps, and steps end when it is below `least_w`.
///
/// `None` if cancelled, if the residual is not finite, or if there is no n.
pub(super) fn damped<S: FnOnce() -> Option<Vec<f64>>>(
    mut theta: Vec<f64>,
    [mut w, least_w]: [f64; 2],
    steps: usize,
    close: f64,
    cancel: &Cancel,
    at: impl Fn(&[f64]) -> (f64, f64, S),
) -> Option<Vec<f64>> {
    let (mut least, mut since) = (f64::INFINITY, 0);
    for _ in 0..steps {
        let (residual, scale, n) = at(&theta);
        if cancel.is_cancelled() || !residual.is_finite() {
            return None;
        }
        if residual <= close * scale {
            break;
        }
        if residual < least {
            (least, since) = (residual, 0);
        } else {
            since += 1;
        }
        if since == 10 {
            // A cycle may meet a low residual by chance: compared with it, no smaller w would lower the residual in ten steps.
            (w, least, since) = (0.5 * w, residual, 0);
        }
        if w < least_w {
            break;
        }
        linalg::add_scaled(&mut theta, w, &n()?);
    }
    Some(theta)
}

/// The roots that are not near an earlier one.
pub(super) fn distinct(found: impl IntoIterator<Item = Vec<f64>>) -> Vec<Vec<f64>> {
    let mut roots: Vec<Vec<f64>> = Vec::new();
    for root in found {
        let is_new = |old: &Vec<f64>| linalg::distance_sq(old, &root).sqrt() > APART * (1.0 + linalg::norm(&root));
        if roots.iter().all(is_new) {
            roots.push(root);
        }
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_low_residual_by_chance_does_not_make_steps_ever_smaller() {
        let calls = Cell::new(0);
        // The whole step doubles |theta|, and half of it halves |theta|.
        let at = |theta: &[f64]| {
            calls.set(calls.get() + 1);
            let (residual, n) = (if calls.get() == 1 { 2e-12 } else { theta[0].abs() }, vec![-3.0 * theta[0]]);
            (residual, 1.0, move || Some(n))
        };
        let end = damped(vec![1.0], [1.0, LEAST_SHARE], 1000, 1e-12, &Cancel::never(), at).unwrap();
        assert!(end[0].abs() <= 1e-12, "{end:?}");
    }
}
