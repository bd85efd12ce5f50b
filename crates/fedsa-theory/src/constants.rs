//! The constants in the theorems of \[S\], computed for a problem.

use faer::Side;
use faer::prelude::*;
use serde::{Deserialize, Serialize};

use fedsa::error::{Error, Result, require};
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::{Moments, System, Systems};

/// The constants of \[S\] A 1 to A 3 and of its bounds, for one problem.
///
/// "max" is over the agents' kinds, "mean" is weighted by `p_c`. Constants that depend on second moments are `None` if
/// these are not given. Constants that depend on the agents' own roots `theta*_c` are `None` if an agent's system is
/// singular.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constants {
    /// `C_A = max ||Abar_c||` (A 1, 2-norm).
    pub c_a: f64,
    /// `a = min lambda_min(sym Abar_c)`, the largest a with `a I <= sym(Abar_c)` (A 3, left).
    /// Negative or zero when the assumption does not hold.
    pub a: f64,
    /// The smallest L with `E A_c^T A_c <= L sym(Abar_c)` (A 3, right; the source prints this inequality reversed). Requires
    /// `a > 0`.
    pub l: Option<f64>,
    /// `max ||Sigma_A||`, `Sigma_A = E (A - Abar)^T (A - Abar)` (\[S\] eq. 6, 2-norm).
    pub sigma_a: Option<f64>,
    /// `max (||Abar_c||^2 + ||Sigma_A||)`, in the condition on the step size of Theorem B.5.
    pub square_norm: Option<f64>,
    /// `sigma_eps = mean tr Sigma_eps`, `Sigma_eps` the covariance of
    /// `eps(z) = (A(z) - Abar) theta*_c - (b(z) - bbar)` (\[S\] eq. 5, 18).
    pub sigma_eps: Option<f64>,
    /// `sigma_omega = mean tr Sigma_omega`, `omega(z)` the same at `theta*`.
    pub sigma_omega: Option<f64>,
    /// `v_heter = mean ||Sigma_A|| ||theta*_c - theta*||^2` (\[S\] eq. 18).
    pub v_heter: Option<f64>,
    /// `Delta_heter = mean ||Abar_c (theta*_c - theta*)||^2 = mean ||gbar_c(theta*)||^2`.
    pub delta_heter: f64,
}

impl Constants {
    /// The constants of a problem; `moments[k]` are the second moments of single samples of `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system has no unique root.
    pub fn new(systems: &Systems, moments: Option<&[Moments]>) -> Result<Self> {
        let root = systems.root()?;
        let weights = systems.kind_weights();
        let kinds = systems.kinds.len();
        let local_roots: Option<Vec<Vec<f64>>> = (0..kinds).map(|k| systems.local_root(k).ok()).collect();
        let mean = |f: &dyn Fn(usize) -> f64| (0..kinds).map(|k| weights[k] * f(k)).sum::<f64>();
        let max = |f: &dyn Fn(usize) -> f64| (0..kinds).map(f).fold(f64::NEG_INFINITY, f64::max);
        let norm = |k: usize| linalg::norm2(&systems.kinds[k].a);

        let mut lowest = Vec::with_capacity(kinds);
        for system in &systems.kinds {
            lowest.push(symmetric_eigenvalues(&symmetric_part(&system.a))?[0]);
        }
        let a = lowest.into_iter().fold(f64::INFINITY, f64::min);

        let sigma_as: Option<Vec<f64>> =
            moments.map(|m| systems.kinds.iter().zip(m).map(|(s, m)| linalg::norm2(&noise_of_a(s, m))).collect());
        let l = match moments {
            Some(moments) if a > 0.0 => {
                let mut l: f64 = 0.0;
                for (system, moments) in systems.kinds.iter().zip(moments) {
                    l = l.max(smoothness(system, moments)?);
                }
                Some(l)
            }
            _ => None,
        };
        let sigma_at = |k: usize, theta: &[f64]| moments.map(|m| noise_trace(&systems.kinds[k], &m[k], theta));
        Ok(Self {
            c_a: max(&norm),
            a,
            l,
            sigma_a: sigma_as.as_ref().map(|s| max(&|k| s[k])),
            square_norm: sigma_as.as_ref().map(|s| max(&|k| norm(k) * norm(k) + s[k])),
            sigma_eps: (local_roots.as_ref()).and_then(|r| (0..kinds).map(|k| Some(weights[k] * sigma_at(k, &r[k])?)).sum::<Option<f64>>()),
            sigma_omega: (0..kinds).map(|k| Some(weights[k] * sigma_at(k, &root)?)).sum(),
            v_heter: (sigma_as.as_ref().zip(local_roots.as_ref())).map(|(s, r)| mean(&|k| s[k] * linalg::distance_sq(&r[k], &root))),
            delta_heter: mean(&|k| linalg::norm_sq(&systems.kinds[k].mean(&root))),
        })
    }

    /// The largest step size under A 3, `1 / L`.
    pub fn largest_step(&self) -> Option<f64> {
        self.l.map(|l| 1.0 / l)
    }
}

/// `sym(A) = (A + A^T) / 2`.
pub(super) fn symmetric_part(a: &Mat<f64>) -> Mat<f64> {
    Scale(0.5) * (a + a.transpose())
}

pub(super) fn symmetric_eigenvalues(m: &Mat<f64>) -> Result<Vec<f64>> {
    m.self_adjoint_eigenvalues(Side::Lower)
        .map_err(|_| Error::not_known("", "eigenvalues of a matrix that is not finite", "all entries must be finite numbers"))
}

/// `E A^T A`, d x d.
pub(super) fn mean_square_of_a(moments: &Moments) -> Mat<f64> {
    let d = moments.bb.nrows();
    Mat::from_fn(d, d, |j, l| (0..d).map(|i| moments.aa[(i * d + i, j * d + l)]).sum())
}

/// `Sigma_A = E A^T A - Abar^T Abar`; 0 if it is within rounding.
pub(super) fn noise_of_a(system: &System, moments: &Moments) -> Mat<f64> {
    let square = mean_square_of_a(moments);
    let noise = &square - system.a.transpose() * &system.a;
    if noise.norm_max() <= rounding(system) * square.norm_max() { Mat::zeros(noise.nrows(), noise.ncols()) } else { noise }
}

/// The relative rounding error of a variance, which is a difference of sums of d products.
fn rounding(system: &System) -> f64 {
    4.0 * system.b.len() as f64 * f64::EPSILON
}

/// The smallest L with `E A^T A <= L sym(Abar)`, for a positive definite `sym(Abar)`:
/// the largest eigenvalue of `R^-1 E[A^T A] R^-T`, `sym(Abar) = R R^T`.
pub(super) fn smoothness(system: &System, moments: &Moments) -> Result<f64> {
    let r = symmetric_part(&system.a).llt(Side::Lower).map_err(|_| {
        Error::not_known("", "the symmetric part of a mean matrix is not positive definite", "positive definite symmetric parts")
    })?;
    let mut half = mean_square_of_a(moments);
    r.L().solve_lower_triangular_in_place(&mut half);
    let mut whole = half.transpose().to_owned();
    r.L().solve_lower_triangular_in_place(&mut whole);
    let eigenvalues = symmetric_eigenvalues(&symmetric_part(&whole))?;
    Ok(eigenvalues[eigenvalues.len() - 1])
}

/// The trace of the covariance of `A(z) theta - b(z)`; 0 if it is within rounding.
pub(super) fn noise_trace(system: &System, moments: &Moments, theta: &[f64]) -> f64 {
    let d = theta.len();
    let square = mean_square_of_a(moments);
    let quadratic: f64 = theta.iter().zip(linalg::mat_vec(&square, theta)).map(|(x, y)| x * y).sum();
    let cross: f64 = (0..d).flat_map(|i| (0..d).map(move |j| (i, j))).map(|(i, j)| moments.ab[(i * d + i, j)] * theta[j]).sum();
    let constant: f64 = (0..d).map(|i| moments.bb[(i, i)]).sum();
    let trace = quadratic - 2.0 * cross + constant - linalg::norm_sq(&system.mean(theta));
    if trace <= rounding(system) * (quadratic + 2.0 * cross.abs() + constant) { 0.0 } else { trace }
}

/// The constants that Lemma 3.1 of \[S\] gives to TD(0) with linear features, `||phi|| <= 1`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TdConstants {
    /// The discount factor gamma.
    pub gamma: f64,
    /// nu, the smallest eigenvalue of the agents' feature covariances `E phi phi^T` (TD 2).
    pub nu: f64,
    /// `C_A = 1 + gamma` (eq. 9).
    pub c_a: f64,
    /// The bound `2 (1 + gamma)^2` of `||Sigma_A||` (eq. 9).
    pub sigma_a: f64,
    /// `a = (1 - gamma) nu / 2` (eq. 11).
    pub a: f64,
    /// `eta_inf = (1 - gamma) / 4`, the largest step of A 2 (eq. 11).
    pub eta_inf: f64,
    /// `L = (1 + gamma) / ((1 - gamma)^2 nu)`, as printed (eq. 11).
    pub l: f64,
    /// `(1 + gamma)^2 / (1 - gamma)`, with which `E A^T A <= L sym(Abar)` already holds.
    pub l_sharp: f64,
}

impl TdConstants {
    /// Lemma 3.1 at the discount `gamma` and the smallest eigenvalue `nu`.
    ///
    /// # Errors
    /// When gamma is not in [0, 1) or nu not positive.
    pub fn new(gamma: f64, nu: f64) -> Result<Self> {
        require((0.0..1.0).contains(&gamma), "gamma", gamma, "in [0, 1)")?;
        require(nu > 0.0 && nu.is_finite(), "nu", nu, "positive: the features must be linearly independent")?;
        Ok(Self {
            gamma,
            nu,
            c_a: 1.0 + gamma,
            sigma_a: 2.0 * (1.0 + gamma).powi(2),
            a: (1.0 - gamma) * nu / 2.0,
            eta_inf: (1.0 - gamma) / 4.0,
            l: (1.0 + gamma) / ((1.0 - gamma).powi(2) * nu),
            l_sharp: (1.0 + gamma).powi(2) / (1.0 - gamma),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Draw, federation};

    #[test]
    fn constants_are_their_definitions() {
        let agents = Draw::new(20).finite(3, 3, 4);
        let (systems, moments) = federation(&agents, &[1, 1, 1]);
        let constants = Constants::new(&systems, Some(&moments)).unwrap();
        let root = systems.root().unwrap();
        let (mut eps, mut omega, mut heter, mut delta, mut sigma_a) = (0.0, 0.0, 0.0, 0.0, 0.0f64);
        for (c, agent) in agents.iter().enumerate() {
            let local = systems.local_root(c).unwrap();
            let system = &systems.kinds[c];
            let spread = |theta: &[f64]| -> f64 {
                let mean = system.mean(theta);
                let each = |(a, b): &(Mat<f64>, Vec<f64>)| -> f64 {
                    let at = linalg::mat_vec(a, theta);
                    (0..3).map(|i| (b[i] - at[i] - mean[i]).powi(2)).sum()
                };
                agent.samples.iter().map(each).sum::<f64>() / 4.0
            };
            let mut noise = Mat::<f64>::zeros(3, 3);
            for (a, _) in &agent.samples {
                let away = a - &system.a;
                noise += Scale(0.25) * (away.transpose() * &away);
            }
            let offset: Vec<f64> = local.iter().zip(&root).map(|(x, y)| x - y).collect();
            eps += spread(&local) / 3.0;
            omega += spread(&root) / 3.0;
            heter += linalg::norm2(&noise) * linalg::norm_sq(&offset) / 3.0;
            delta += linalg::norm_sq(&linalg::mat_vec(&system.a, &offset)) / 3.0;
            sigma_a = sigma_a.max(linalg::norm2(&noise));
        }
        for (got, want) in [
            (constants.sigma_eps.unwrap(), eps),
            (constants.sigma_omega.unwrap(), omega),
            (constants.v_heter.unwrap(), heter),
            (constants.delta_heter, delta),
            (constants.sigma_a.unwrap(), sigma_a),
        ] {
            assert!((got - want).abs() < 1e-12 * want.max(1.0), "{got} {want}");
        }
    }

    #[test]
    fn the_assumptions_hold_with_equality_somewhere() {
        let agents = Draw::new(21).finite(2, 3, 5);
        let (systems, moments) = federation(&agents, &[1, 1]);
        let constants = Constants::new(&systems, Some(&moments)).unwrap();
        let l = constants.l.unwrap();
        assert!((constants.largest_step().unwrap() * l - 1.0).abs() < 1e-15);
        let mut gaps = [f64::INFINITY; 2];
        for (system, moments) in systems.kinds.iter().zip(&moments) {
            let sym = symmetric_part(&system.a);
            let below = &sym - Scale(constants.a) * Mat::<f64>::identity(3, 3);
            let above = Scale(l) * &sym - mean_square_of_a(moments);
            gaps[0] = gaps[0].min(symmetric_eigenvalues(&below).unwrap()[0]);
            gaps[1] = gaps[1].min(symmetric_eigenvalues(&above).unwrap()[0]);
        }
        assert!(gaps.iter().all(|g| g.abs() < 1e-12), "{gaps:?}");
    }

    #[test]
    fn lemma_3_1_bounds_a_td_problem() {
        // Three states on a biased cycle, normalised features in the plane; A(z) = phi (phi - gamma phi')^T.
        let gamma = 0.8;
        let phi = [[1.0, 0.0], [0.6, 0.8], [0.0, -0.9]];
        let kernel = [[0.1, 0.7, 0.2], [0.2, 0.2, 0.6], [0.8, 0.1, 0.1]];
        let mut law = [1.0 / 3.0; 3];
        for _ in 0..200 {
            law = std::array::from_fn(|t| (0..3).map(|s| law[s] * kernel[s][t]).sum());
        }
        let d = 2;
        let mut covariance = Mat::<f64>::zeros(d, d);
        let (mut a, mut aa) = (Mat::<f64>::zeros(d, d), Mat::<f64>::zeros(d * d, d * d));
        for s in 0..3 {
            covariance += Mat::from_fn(d, d, |i, j| law[s] * phi[s][i] * phi[s][j]);
            for t in 0..3 {
                let sample = Mat::from_fn(d, d, |i, j| phi[s][i] * (phi[s][j] - gamma * phi[t][j]));
                let p = law[s] * kernel[s][t];
                a += Scale(p) * &sample;
                aa += Mat::from_fn(d * d, d * d, |r, c| p * sample[(r / d, c / d)] * sample[(r % d, c % d)]);
            }
        }
        let nu = symmetric_eigenvalues(&covariance).unwrap()[0];
        let moments = Moments { aa, ab: Mat::zeros(d * d, d), bb: Mat::zeros(d, d) };
        let systems = Systems::new(vec![System { a, b: vec![0.0; d] }], vec![0], vec![1.0]);
        let measured = Constants::new(&systems, Some(&[moments])).unwrap();
        let lemma = TdConstants::new(gamma, nu).unwrap();
        assert!(measured.c_a <= lemma.c_a && measured.sigma_a.unwrap() <= lemma.sigma_a);
        assert!(measured.a >= lemma.a && measured.l.unwrap() <= lemma.l_sharp && lemma.l_sharp <= lemma.l);
        assert!(TdConstants::new(1.0, nu).is_err() && TdConstants::new(0.9, 0.0).is_err());
    }

    #[test]
    fn singular_agents_and_missing_moments_leave_gaps() {
        let mut systems = Draw::new(22).systems(2, 2);
        systems.kinds[0].a = linalg::from_rows(2, 2, &[1.0, 0.0, 0.0, 0.0]);
        let constants = Constants::new(&systems, None).unwrap();
        assert!(constants.v_heter.is_none() && constants.l.is_none() && constants.sigma_omega.is_none());
        assert!(constants.a <= 1e-12 && constants.delta_heter > 0.0);
        let json = serde_json::to_string(&constants).unwrap();
        assert_eq!(serde_json::from_str::<Constants>(&json).unwrap(), constants);
    }
}
