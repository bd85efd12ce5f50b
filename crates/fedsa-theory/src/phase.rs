//! The mean of a local phase, H local steps.

use faer::linalg::solvers::DenseSolveCore;
use faer::prelude::*;

use crate::work;
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};

/// The two matrices of a local phase that starts at theta with a constant drift: `theta_H = theta + sum (gbar(theta) + drift)`,
/// and the derivative of `theta_H` with respect to theta is `propagator`.
#[derive(Debug, Clone)]
pub struct AffinePhase {
    /// `D^H = (I - eta A)^H`, d x d.
    pub propagator: Mat<f64>,
    /// `S = eta sum_{k<H} (I - eta A)^k`, d x d; `D^H = I - S A`.
    pub sum: Mat<f64>,
}

impl AffinePhase {
    /// The local phase of `h` steps of size `eta` under the mean matrix `a` (d x d).
    ///
    /// By repeated doubling, `O(d^3 log h)`, without the inverse of `a`, so a singular or nearly singular `a` does not reduce accuracy.
    pub fn new(a: &Mat<f64>, eta: f64, h: u64) -> Self {
        let (propagator, sum) = power_and_sum(&step(a, eta), h);
        Self { propagator, sum: Scale(eta) * sum }
    }

    /// The mean local phase when the number of steps is geometric on {1, 2, ..} with
    /// success probability `p` (random talk: a shared coin after every step):
    ///
    /// ```text
    /// E S   = eta sum_k P(H > k) D^k = eta (I - (1-p) D)^-1        D = I - eta A
    /// E D^H = sum_h p (1-p)^(h-1) D^h = p D (I - (1-p) D)^-1
    /// ```
    ///
    /// `None` when the expectations are infinite: `(1-p) D` has an eigenvalue
    /// on or outside the unit circle.
    ///
    /// # Errors
    /// When `a` is not finite.
    pub fn geometric(a: &Mat<f64>, eta: f64, p: f64) -> Result<Option<Self>> {
        let d = step(a, eta);
        if (1.0 - p) * linalg::spectral_radius(&d)? >= 1.0 {
            return Ok(None);
        }
        let n = a.nrows();
        // I - (1-p) D = p I + (1-p) eta A.
        let resolvent = (Scale(p) * Mat::<f64>::identity(n, n) + Scale((1.0 - p) * eta) * a).partial_piv_lu().inverse();
        Ok(Some(Self { propagator: Scale(p) * (&d * &resolvent), sum: Scale(eta) * resolvent }))
    }
}

/// The matrix of one step, `D = I - eta A`, d x d.
pub fn step(a: &Mat<f64>, eta: f64) -> Mat<f64> {
    Mat::<f64>::identity(a.nrows(), a.nrows()) - Scale(eta) * a
}

/// `(m^n, sum_{k<n} m^k)` by doubling: `sum_{k<2n} = sum_{k<n} + m^n sum_{k<n}`. A cancelled computation ([`work::until`]) ends early
/// with wrong matrices.
pub fn power_and_sum(m: &Mat<f64>, n: u64) -> (Mat<f64>, Mat<f64>) {
    let identity = Mat::<f64>::identity(m.nrows(), m.nrows());
    let mut power = identity.clone();
    let mut sum = Mat::<f64>::zeros(m.nrows(), m.nrows());
    for bit in bits_from_highest(n).take_while(|_| !work::is_cancelled()) {
        sum = &sum + &power * &sum;
        power = &power * &power;
        if bit {
            sum = &identity + m * &sum;
            power = m * &power;
        }
    }
    (power, sum)
}

/// The binary digits of `n`, the highest first; none for 0.
pub(crate) fn bits_from_highest(n: u64) -> impl Iterator<Item = bool> {
    (0..u64::BITS - n.leading_zeros()).rev().map(move |i| n >> i & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Draw, max_difference};

    /// The definition, term by term.
    fn by_loop(a: &Mat<f64>, eta: f64, h: u64) -> AffinePhase {
        let d = step(a, eta);
        let mut power = Mat::<f64>::identity(a.nrows(), a.nrows());
        let mut sum = Mat::<f64>::zeros(a.nrows(), a.nrows());
        for _ in 0..h {
            sum += &power;
            power = &d * &power;
        }
        AffinePhase { propagator: power, sum: Scale(eta) * sum }
    }

    #[test]
    fn doubling_is_the_loop() {
        let a = Draw::new(1).stable_matrix(4);
        for h in [0, 1, 2, 3, 7, 8, 1000, 1023] {
            let (fast, slow) = (AffinePhase::new(&a, 0.05, h), by_loop(&a, 0.05, h));
            assert!(max_difference(&fast.propagator, &slow.propagator) < 1e-12, "H = {h}");
            assert!(max_difference(&fast.sum, &slow.sum) < 1e-12, "H = {h}");
        }
    }

    #[test]
    fn a_singular_matrix_costs_nothing() {
        let a = linalg::from_rows(2, 2, &[1.0, 1.0, 1.0, 1.0]);
        let phase = AffinePhase::new(&a, 0.1, 10_000);
        // Eigenvalues 2 along (1,1), where the sum is (1 - .8^H)/2, and 0 along (1,-1), where it is eta H.
        let (along, across) = (0.5, 1000.0);
        let want = linalg::from_rows(2, 2, &[along + across, along - across, along - across, along + across].map(|x| x / 2.0));
        assert!(max_difference(&phase.sum, &want) < 1e-9);
    }

    #[test]
    fn geometric_expectations_are_the_series() {
        let a = Draw::new(2).stable_matrix(3);
        let (eta, p) = (0.2, 0.15);
        let mean = AffinePhase::geometric(&a, eta, p).unwrap().unwrap();
        let (mut propagator, mut sum) = (Mat::<f64>::zeros(3, 3), Mat::<f64>::zeros(3, 3));
        for h in 1..400 {
            let phase = AffinePhase::new(&a, eta, h);
            let weight = p * (1.0 - p).powi(h as i32 - 1);
            propagator += Scale(weight) * phase.propagator;
            sum += Scale(weight) * phase.sum;
        }
        assert!(max_difference(&mean.propagator, &propagator) < 1e-12);
        assert!(max_difference(&mean.sum, &sum) < 1e-12);
        assert!(AffinePhase::geometric(&a, 20.0, 0.01).unwrap().is_none());
    }
}
