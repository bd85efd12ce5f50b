//! Assumption A 2 of \[S\].

use serde::Serialize;

use super::{Assumption, unknown_constant};
use crate::constants::{mean_square_of_a, smoothness, symmetric_eigenvalues, symmetric_part};
use fedsa::error::Result;
use fedsa::problem::systems::{Moments, Systems};

/// a and eta_inf of A 2. For every agent and every step size eta up to eta_inf, h steps with samples of `A_c(z)` contract the root of
/// the mean square by `(1 - eta a)^h`.
///
/// By independence of samples this is `q(eta) <= 1 - eta a` for one step,
/// `q(eta)^2 = max_c lambda_max(E (I - eta A_c)^T (I - eta A_c))`. As a norm of an affine function q is convex with q(0) = 1, so that
/// `a(eta) = (1 - q(eta)) / eta` is the largest a for all steps up to eta.
///
/// Deviation: \[S\] says that A 3 implies A 2 with the same a. Lemma C.5 bounds the square, by `1 - eta a`, so that A 3 with a and L
/// implies A 2 with a/2 and eta_inf = 1/L.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Contraction {
    /// a. Not positive if the assumption does not hold.
    pub a: f64,
    /// The largest step size eta_inf.
    pub largest_step: f64,
}

impl Contraction {
    /// The largest a for steps up to eta, and at most `1 / (2 eta)`, as A 2 asks.
    ///
    /// # Errors
    /// When eigenvalues cannot be computed.
    pub fn up_to(systems: &Systems, moments: &[Moments], eta: f64) -> Result<Self> {
        let mut a = 0.5 / eta;
        for (system, moments) in systems.kinds.iter().zip(moments) {
            // 1 - q^2 = eta lambda_min(2 sym(Abar) - eta E A^T A), without cancellation.
            let pull = faer::Scale(2.0) * symmetric_part(&system.a) - faer::Scale(eta) * mean_square_of_a(moments);
            let lowest = symmetric_eigenvalues(&symmetric_part(&pull))?[0];
            a = a.min(lowest / (1.0 + (1.0 - eta * lowest).max(0.0).sqrt()));
        }
        Ok(Self { a, largest_step: eta })
    }

    /// With `eta_inf = 1 / L` of A 3.
    ///
    /// # Errors
    /// When A 3 does not hold: the symmetric part of an agent's mean matrix is not positive definite.
    pub fn new(systems: &Systems, moments: &[Moments]) -> Result<Self> {
        let mut l = 0.0f64;
        for (system, moments) in systems.kinds.iter().zip(moments) {
            l = l.max(smoothness(system, moments).map_err(|e| unknown_constant("L of A 3", &e.what))?);
        }
        Self::up_to(systems, moments, 1.0 / l)
    }

    /// A 2 at the step size eta.
    pub(super) fn assumptions(&self, eta: f64) -> Vec<Assumption> {
        vec![
            Assumption::positive("A 2", "a", self.a),
            Assumption::at_most("eta <= eta_inf (A 2)", "eta", eta, self.largest_step),
            Assumption::at_most("eta_inf a <= 1/2 (A 2)", "eta_inf a", self.largest_step * self.a, 0.5),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::testing;
    use crate::constants::Constants;
    use crate::testing::{Finite, federation};
    use fedsa::linalg::{self, Mat};

    /// `E^{1/2} ||(I - eta A)u||^2`, the largest over agents, by enumeration.
    fn stretch(kinds: &[Finite], eta: f64, u: &[f64]) -> f64 {
        let of = |agent: &Finite| {
            let each = agent.samples.iter().map(|(a, _)| {
                let au = linalg::mat_vec(a, u);
                u.iter().zip(au).map(|(u, au)| (u - eta * au).powi(2)).sum::<f64>()
            });
            (each.sum::<f64>() / agent.samples.len() as f64).sqrt()
        };
        kinds.iter().map(of).fold(0.0, f64::max)
    }

    #[test]
    fn a_is_the_largest_of_a_2() {
        for case in testing::cases(60) {
            let best = Contraction::new(&case.systems, &case.moments).unwrap();
            let constants = Constants::new(&case.systems, Some(&case.moments)).unwrap();
            assert!((best.largest_step * constants.l.unwrap() - 1.0).abs() < 1e-12);
            // At least half of the a of A 3, and at most all of it.
            assert!(best.a >= 0.5 * constants.a * (1.0 - 1e-9) && best.a <= constants.a * (1.0 + 1e-9), "{best:?} {constants:?}");
            let d = case.systems.dim();
            for share in [0.01, 0.3, 1.0] {
                let eta = share * best.largest_step;
                let here = Contraction::up_to(&case.systems, &case.moments, eta).unwrap();
                assert!(here.a >= best.a * (1.0 - 1e-9));
                let mut most = 0.0f64;
                for k in 0..400 {
                    let angle = f64::from(k) * 0.0157;
                    let u = if d == 1 { vec![1.0] } else { vec![angle.cos(), angle.sin()] };
                    most = most.max(stretch(&case.kinds, eta, &u));
                }
                assert!(most <= 1.0 - eta * here.a + 1e-12 && most <= 1.0 - eta * best.a + 1e-12);
                // The grid of directions comes close to the bound, unless eta a is at its limit.
                assert!(eta * here.a > 0.499 || most >= 1.0 - eta * here.a - 1e-4 * eta, "{most} {}", 1.0 - eta * here.a);
            }
        }
    }

    #[test]
    fn a_3_does_not_imply_a_2_with_its_a() {
        // A(z) in {3, -1}: a = 1 and L = 5 in A 3, and E (1 - eta A)^2 = 0.8 at eta = 1/5, above (1 - eta a)^2 = 0.64.
        let agent = Finite { samples: vec![(Mat::full(1, 1, 3.0), vec![1.0]), (Mat::full(1, 1, -1.0), vec![0.0])] };
        let (systems, moments) = federation(&[agent], &[1]);
        let constants = Constants::new(&systems, Some(&moments)).unwrap();
        assert!((constants.a - 1.0).abs() < 1e-15 && (constants.l.unwrap() - 5.0).abs() < 1e-12);
        let a = Contraction::new(&systems, &moments).unwrap().a;
        assert!((1.0 - 0.2 * a - 0.8f64.sqrt()).abs() < 1e-12 && a < 0.53);
        assert!(Contraction::up_to(&systems, &moments, 0.41).unwrap().a < 0.0);
    }
}
