//! Sensitivity: by how much one unit changes what is released, as a bound of the 2-norm of the difference.
//!
//! | release | unit | sensitivity, unit removed |
//! | --- | --- | --- |
//! | mean of directions or operators, clipped to the norm C | agent | `p_max C` ([`clipped`]) |
//! | LSTD sums (A, c b) of rows | row | [`LstdRow`] |
//! | LSTD sums (A, c b) of episodes, each clipped to the norm C | episode | `C` ([`clipped`] with weight 1) |
//! | sums of u u^T of least squares, u = (x, y) | row | `X^2 + Y^2` ([`least_squares`]) |
//! | sums of logistic gradients | row | `X` ([`logistic_gradient`]) |
//! | sums of logistic Hessians | row | `X^2 / 4` ([`logistic_hessian`]) |
//! | sums of (g, c H) of a logistic model | row | `sqrt(X^2 + c^2 X^4 / 16)` ([`logistic_pair`]) |
//!
//! A symmetric matrix is released as `svec`: its lower triangle with off-diagonal entries times sqrt 2, whose 2-norm is the Frobenius norm.
//! X bounds the norm of a row's features, Y the size of its target. Callers clip rows to these bounds. The bounds are settings: they must
//! not be computed from the data.

use serde::{Deserialize, Serialize};

/// How two data sets differ that must not be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// One has the data of a unit that the other lacks. The number of agents and their weights are public.
    #[default]
    Removed,
    /// A unit has other data.
    Replaced,
}

impl Relation {
    /// The sensitivity of a sum to which a unit contributes a vector of norm at most `norm`: twice the norm if the unit is replaced.
    pub fn of_norm(self, norm: f64) -> f64 {
        match self {
            Self::Removed => norm,
            Self::Replaced => 2.0 * norm,
        }
    }
}

/// The sensitivity of `sum p_c v_c` with weights at most `weight` and vectors clipped to the norm `clip`.
pub fn clipped(weight: f64, clip: f64, relation: Relation) -> f64 {
    relation.of_norm(weight * clip)
}

/// Bounds on a row of a trajectory for LSTD: `A = phi (phi - gamma phi')^T`, `b = r phi` with `|phi|, |phi'| <= 1`, `|r| <= reward`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LstdRow {
    /// gamma.
    pub discount: f64,
    /// R, the largest size of a reward.
    pub reward: f64,
    /// Whether features are at least 0. Then `phi^T phi' >= 0`.
    pub nonnegative: bool,
}

impl LstdRow {
    /// The largest norm of a row's A.
    fn of_matrix(&self) -> f64 {
        if self.nonnegative { 1f64.hypot(self.discount) } else { 1.0 + self.discount }
    }

    /// The sensitivity of the sums `(A, c b)` at `scale` c: `sqrt((1 + gamma)^2 + c^2 R^2)`, and `sqrt(1 + gamma^2 + c^2 R^2)` with
    /// features of at least 0.
    pub fn sensitivity(&self, scale: f64, relation: Relation) -> f64 {
        relation.of_norm(self.of_matrix().hypot(scale * self.reward))
    }

    /// The scale c with the least error of theta, if `size` is the norm of theta: the noise of theta is that of `b - A theta`, whose
    /// variance grows with `Delta^2 (1/c^2 + size^2)`, so that `c^2 = (1 + gamma) / (R size)`. `size` is a guess: it must not be computed
    /// from the data.
    pub fn best_scale(&self, size: f64) -> f64 {
        (self.of_matrix() / (self.reward * size)).sqrt()
    }
}

/// The sensitivity of the sum of `svec(u u^T)`, `u = (x, y)`, with `|x| <= features` and `|y| <= target`. Two rows differ the most where
/// they are orthogonal.
pub fn least_squares(features: f64, target: f64, relation: Relation) -> f64 {
    let square = features * features + target * target;
    match relation {
        Relation::Removed => square,
        Relation::Replaced => std::f64::consts::SQRT_2 * square,
    }
}

/// The sensitivity of the sum of logistic gradients `(sigma(x^T theta) - y) x`, y in {0, 1}, `|x| <= features`.
pub fn logistic_gradient(features: f64, relation: Relation) -> f64 {
    relation.of_norm(features)
}

/// The sensitivity of the sum of `svec` of logistic Hessians `sigma (1 - sigma) x x^T`, `|x| <= features`.
pub fn logistic_hessian(features: f64, relation: Relation) -> f64 {
    relation.of_norm(0.25 * features * features)
}

/// The sensitivity of the sum of `(g, c svec(H))` of a logistic model at `scale` c.
pub fn logistic_pair(features: f64, scale: f64, relation: Relation) -> f64 {
    relation.of_norm(features.hypot(0.25 * scale * features * features))
}

/// The sensitivity in steps of a grid of `2^bits` steps a unit: `2^f Delta` and what rounding n components to the grid adds, `sqrt(n)/2`
/// for each vector of the difference. What is summed must be rounded before it is summed.
pub fn on_grid(sensitivity: f64, bits: i32, components: usize, relation: Relation) -> f64 {
    sensitivity * 2f64.powi(bits) + relation.of_norm(0.5 * (components as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg;
    use crate::random::{Purpose, Stream, stream};
    use std::f64::consts::SQRT_2;

    /// The largest value found by random starts and ever smaller random moves.
    fn largest(parameters: usize, value: impl Fn(&[f64]) -> f64) -> f64 {
        let mut random = stream(5, Purpose::Fresh, parameters as u64, 0);
        let mut most = f64::NEG_INFINITY;
        for _ in 0..30 {
            let mut at: Vec<f64> = (0..parameters).map(|_| random.normal()).collect();
            let (mut here, mut reach) = (value(&at), 1.0);
            while reach > 1e-6 {
                let step = |x: &f64, random: &mut Stream| x + reach * random.normal();
                let moved: Vec<f64> = at.iter().map(|x| step(x, &mut random)).collect();
                let there = value(&moved);
                if there > here {
                    (at, here) = (moved, there);
                } else {
                    reach *= 0.98;
                }
            }
            most = most.max(here);
        }
        most
    }

    /// The vector, shortened to a norm of at most `most`.
    fn within(x: &[f64], most: f64) -> Vec<f64> {
        let shrink = (most / linalg::norm_sq(x).sqrt()).min(1.0);
        x.iter().map(|x| shrink * x).collect()
    }

    fn reaches(found: f64, bound: f64) {
        assert!(found <= bound * (1.0 + 1e-12) && found >= 0.999 * bound, "found {found}, bound {bound}");
    }

    /// A row's (A, c b) in two dimensions from six numbers.
    fn lstd(z: &[f64], of: &LstdRow, scale: f64) -> Vec<f64> {
        let sign = |x: &[f64]| -> Vec<f64> { if of.nonnegative { x.iter().map(|x| x.abs()).collect() } else { x.to_vec() } };
        let (phi, next) = (within(&sign(&z[..2]), 1.0), within(&sign(&z[2..4]), 1.0));
        let reward = z[4].clamp(-of.reward, of.reward);
        let moved = [phi[0] - of.discount * next[0], phi[1] - of.discount * next[1]];
        let mut out: Vec<f64> = phi.iter().flat_map(|p| moved.map(|m| p * m)).collect();
        out.extend(phi.iter().map(|p| scale * reward * p));
        out
    }

    #[test]
    fn lstd_rows_reach_their_bound() {
        for (discount, reward, nonnegative, scale) in
            [(0.9, 2.0, false, 0.7), (0.9, 2.0, true, 0.7), (0.0, 1.0, false, 1.0), (0.5, 0.3, true, 4.0)]
        {
            let of = LstdRow { discount, reward, nonnegative };
            reaches(largest(5, |z| linalg::norm_sq(&lstd(z, &of, scale)).sqrt()), of.sensitivity(scale, Relation::Removed));
            // Two rows differ by at most twice that. (Less: the matrices of rows of the largest norm are positive semidefinite.)
            let found = largest(10, |z| linalg::distance_sq(&lstd(&z[..5], &of, scale), &lstd(&z[5..], &of, scale)).sqrt());
            let bound = of.sensitivity(scale, Relation::Replaced);
            assert!(found <= bound && found > 0.6 * bound, "{found} {bound}");
        }
    }

    #[test]
    fn the_best_scale_of_lstd_has_the_least_noise() {
        for of in [LstdRow { discount: 0.9, reward: 2.0, nonnegative: false }, LstdRow { discount: 0.5, reward: 0.3, nonnegative: true }] {
            let size = 1.7;
            let noise = |c: f64| of.sensitivity(c, Relation::Removed).powi(2) * (1.0 / (c * c) + size * size);
            let best = of.best_scale(size);
            for other in [0.5, 0.9, 0.99, 1.01, 1.1, 2.0] {
                assert!(noise(other * best) > noise(best));
            }
        }
        let signed = LstdRow { discount: 0.9, reward: 2.0, nonnegative: false };
        assert!((signed.best_scale(1.7).powi(2) - 1.9 / (2.0 * 1.7)).abs() < 1e-15);
    }

    #[test]
    fn least_squares_reach_their_bound() {
        let (x, y) = (1.5, 0.8);
        let svec = |z: &[f64]| {
            let mut u = within(&z[..2], x);
            u.push(z[2].clamp(-y, y));
            let mut out = Vec::new();
            (0..3).for_each(|i| (0..=i).for_each(|j| out.push(u[i] * u[j] * if i == j { 1.0 } else { SQRT_2 })));
            out
        };
        reaches(largest(3, |z| linalg::norm_sq(&svec(z)).sqrt()), least_squares(x, y, Relation::Removed));
        // Rows of the largest norm are orthogonal only where X >= Y.
        reaches(largest(6, |z| linalg::distance_sq(&svec(&z[..3]), &svec(&z[3..])).sqrt()), least_squares(x, y, Relation::Replaced));
    }

    #[test]
    fn logistic_releases_reach_their_bounds() {
        let (features, scale) = (1.3, 0.9);
        // A row and theta as the margin's share: sigma is any number in (0, 1).
        let of = |z: &[f64], c: [f64; 2]| {
            let (x, s, y) = (within(&z[..2], features), 1.0 / (1.0 + (-z[2]).exp()), f64::from(z[3] > 0.0));
            let h = s * (1.0 - s);
            vec![
                c[0] * (s - y) * x[0],
                c[0] * (s - y) * x[1],
                c[1] * h * x[0] * x[0],
                c[1] * h * SQRT_2 * x[0] * x[1],
                c[1] * h * x[1] * x[1],
            ]
        };
        let alone = |c: [f64; 2]| largest(4, |z| linalg::norm_sq(&of(z, c)).sqrt());
        let pairs = |c: [f64; 2]| largest(8, |z| linalg::distance_sq(&of(&z[..4], c), &of(&z[4..], c)).sqrt());
        reaches(alone([1.0, 0.0]), logistic_gradient(features, Relation::Removed));
        reaches(pairs([1.0, 0.0]), logistic_gradient(features, Relation::Replaced));
        reaches(alone([0.0, 1.0]), logistic_hessian(features, Relation::Removed));
        let found = pairs([0.0, 1.0]);
        assert!(found <= logistic_hessian(features, Relation::Replaced) && found > 0.7 * logistic_hessian(features, Relation::Replaced));
        // A gradient is the largest where the Hessian is 0, so that both bounds are not reached together.
        let found = alone([1.0, scale]);
        assert!(
            found <= logistic_pair(features, scale, Relation::Removed) && found > 0.9 * logistic_pair(features, scale, Relation::Removed)
        );
        assert!(pairs([1.0, scale]) <= logistic_pair(features, scale, Relation::Replaced));
    }

    #[test]
    fn clipped_directions_reach_their_bound() {
        let (weight, clip) = (0.3, 2.5);
        let of = |z: &[f64]| within(z, clip).iter().map(|x| weight * x).collect::<Vec<f64>>();
        reaches(largest(3, |z| linalg::norm_sq(&of(z)).sqrt()), clipped(weight, clip, Relation::Removed));
        reaches(largest(6, |z| linalg::distance_sq(&of(&z[..3]), &of(&z[3..])).sqrt()), clipped(weight, clip, Relation::Replaced));
    }

    #[test]
    fn rounding_to_the_grid_adds_half_a_step_a_component() {
        let (clip, bits, n) = (1.0, 3, 4);
        let rounded = |z: &[f64]| within(z, clip).iter().map(|x| (x * 8.0).round_ties_even()).collect::<Vec<f64>>();
        let bound = on_grid(clip, bits, n, Relation::Removed);
        assert_eq!(bound, 9.0);
        let found = largest(n, |z| linalg::norm_sq(&rounded(z)).sqrt());
        assert!(found > 8.0 && found <= bound, "{found}");
        assert_eq!(on_grid(2.0 * clip, bits, n, Relation::Replaced), 18.0);
    }
}
