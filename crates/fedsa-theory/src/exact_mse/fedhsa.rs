//! FedHSA's exact mean-square error.

use std::collections::HashMap;

use faer::prelude::*;

use super::phase_noise::{check, phase_noise, step_noise};
use super::recursion::{Recursion, Recursive};
use crate::RoundSetting;
use crate::phase::{AffinePhase, step};
use crate::stability::global_memory_map;
use crate::symmetric::{congruence, pack, packed_index, packed_len};
use crate::work;
use fedsa::error::Result;
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::{Moments, System, Systems};

/// The exact second moments of FedHSA under i.i.d. samples, `batch` of them averaged in each step (in no source).
///
/// With `g_c = -[A, w]` at the first sample and `x = (u, 1)`, `G = Gbar + sum p_e dg_e` moves agent c by `Psi_c (G - g_c) x`, where
/// `Psi_c = eta sum_k prod_{j>k} B_j` contains the samples after the first only and is independent of all first samples. So the sum
/// over agents of `p_c Psi_c G x` is
///
/// ```text
/// sum_c p_c [ Psi_c (Gbar + p_c dg_c) + (Psbar - p_c E Psi_c) dg_c ] x + sum_{c != e} p_c p_e dPsi_c dg_e x
/// ```
///
/// The terms of the first sum are independent between agents. The terms of the second are uncorrelated with all others and with each
/// other. Every sample occurs at most twice in a product of two terms, so second moments of `(A, b)` are enough. With
/// `m_t = (E theta_t - theta*, 1)` and the covariance `C_t` of `theta_t`,
///
/// ```text
/// C_{t+1} = M C_t M^T + Q(m_t m_t^T + C_t)      Q = alpha_g^2 ( sum_c p_c^2 V_c + sum_{c != e} p_c^2 p_e^2 P_c G_e )
/// V_c(X) = J_c G_c(X) J_c^T + T_c(X)            J_c = eta p_c D^{H-1} - (1 - p_c) S_{H-1} + Psbar - p_c E Psi_c
/// ```
///
/// with `G_c(X) = E[dg_c X dg_c^T]`, `P_c(Z) = E[dPsi_c Z dPsi_c^T]`, and `T_c` the covariance that the steps after the first add. The
/// bias tends to 0.
///
/// Noise n of the sum of operators moves agent c by `Psi_c n`, so that it adds `alpha_g^2 (Psbar S Psbar^T + sum_c p_c^2 P_c(S))` with its
/// covariance S; noise of the mean direction adds `alpha_g^2 E^2` times its covariance ([`FedHsaMse::with_noise`]). Cost: one matrix of
/// size (3d+1)^2/2 x d^2/2 for each distinct agent, once, then `(d+1)^4` per round.
#[derive(Debug, Clone)]
pub struct FedHsaMse {
    root: Vec<f64>,
    /// M, d x d.
    round: Mat<f64>,
    /// `C -> M C M^T + Q(C)`, packed d squared.
    covariance: Mat<f64>,
    /// `m m^T -> Q(m m^T)`, packed d x packed (d+1).
    source: Mat<f64>,
    /// The covariance that noise of variance 1 in each component of the sum of operators adds, packed.
    by_operator: Vec<f64>,
    /// `alpha_g^2 E^2`: the variance that noise of variance 1 in each component of the mean direction adds.
    by_direction: f64,
}

/// The parts that all agents of a kind share. Maps act on packed matrices.
struct Kind {
    /// `gbar = -[Abar, wbar]`, d x (d+1).
    g: Mat<f64>,
    /// `E Psi`, d x d.
    psi: Mat<f64>,
    /// `D^{H-1}` and `S_{H-1}`, d x d.
    rest: AffinePhase,
    /// The covariance that H - 1 steps add, as a map of the second moment of `(u, 1, q)` at their start; q is the drift.
    noise: Mat<f64>,
    /// `X -> E[dg X dg^T]`.
    g_noise: Mat<f64>,
    /// `Z -> E[dPsi Z dPsi^T]`.
    psi_noise: Mat<f64>,
}

impl Kind {
    fn new(system: &System, moments: &Moments, root: &[f64], batch: u64, setting: &RoundSetting) -> Self {
        let (d, eta) = (root.len(), setting.step_size);
        let push = system.mean(root);
        let g = Mat::from_fn(d, d + 1, |i, j| if j < d { -system.a[(i, j)] } else { push[i] });
        let after = RoundSetting { local_steps: setting.local_steps - 1, ..*setting };
        // One mean step on (u, 1, q): u - eta Abar u - eta wbar + eta q.
        let mut f = Mat::<f64>::identity(2 * d + 1, 2 * d + 1);
        f.get_mut(..d, ..d).copy_from(step(&system.a, eta));
        for i in 0..d {
            f[(i, d)] = eta * push[i];
            f[(i, d + 1 + i)] = eta;
        }
        let noise = if after.local_steps == 0 {
            Mat::zeros(packed_len(d), packed_len(2 * d + 1))
        } else {
            phase_noise(system, moments, root, batch, &after, &f)
        };
        // Psi z is the end of H - 1 steps from u = eta z with q = z, without w.
        let mut from = Mat::<f64>::zeros(2 * d + 1, d);
        (0..d).for_each(|i| (from[(i, i)], from[(d + 1 + i, i)]) = (eta, 1.0));
        Self {
            psi: AffinePhase::new(&system.a, eta, setting.local_steps).sum,
            rest: AffinePhase::new(&system.a, eta, after.local_steps),
            psi_noise: &noise * rectangular(&from),
            g_noise: step_noise(system, moments, root, batch),
            g,
            noise,
        }
    }

    /// `V_c` of an agent of weight p, packed d x packed (d+1). `g` and `psi` are the sums Gbar and Psbar.
    fn covariance(&self, p: f64, g: &Mat<f64>, psi: &Mat<f64>, eta: f64) -> Mat<f64> {
        let d = psi.nrows();
        // The mean of (u_1, 1, q), and how it moves with r = dg x: u_1 = u + eta Gbar x + eta p r, q = (Gbar - gbar) x - (1 - p) r.
        let mut mean = Mat::<f64>::zeros(2 * d + 1, d + 1);
        let mut by_r = Mat::<f64>::zeros(2 * d + 1, d);
        mean.get_mut(..d, ..).copy_from(Scale(eta) * g);
        mean.get_mut(d + 1.., ..).copy_from(g - &self.g);
        mean[(d, d)] = 1.0;
        for i in 0..d {
            mean[(i, i)] += 1.0;
            (by_r[(i, i)], by_r[(d + 1 + i, i)]) = (eta * p, p - 1.0);
        }
        let own = Scale(eta * p) * &self.rest.propagator + Scale(p - 1.0) * &self.rest.sum + psi - Scale(p) * &self.psi;
        let first = congruence(&own) + &self.noise * rectangular(&by_r);
        first * &self.g_noise + &self.noise * rectangular(&mean)
    }
}

impl FedHsaMse {
    /// The recursion for the given agents over a clear link; `moments[k]` belongs to `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system has no unique root or the moments do not fit.
    pub fn new(systems: &Systems, moments: &[Moments], setting: &RoundSetting, batch: u64) -> Result<Self> {
        check(systems, moments, batch)?;
        let (d, eta, alpha) = (systems.dim(), setting.step_size, setting.server_step);
        let root = systems.root()?;
        let kinds: Vec<Kind> = work::map(systems.kinds.len(), |k| Kind::new(&systems.kinds[k], &moments[k], &root, batch, setting))?;
        let (mut g, mut psi) = (Mat::<f64>::zeros(d, d + 1), Mat::<f64>::zeros(d, d));
        for (kind, w) in kinds.iter().zip(systems.kind_weights()) {
            g += Scale(w) * &kind.g;
            psi += Scale(w) * &kind.psi;
        }
        // Agents of one kind and weight are alike.
        let mut alike: Vec<(usize, f64, f64)> = Vec::new();
        let mut index: HashMap<(u32, u64), usize> = HashMap::new();
        for (kind, p) in systems.kind_of.iter().zip(&systems.weights) {
            let k = *index.entry((*kind, p.to_bits())).or_insert_with(|| {
                alike.push((*kind as usize, *p, 0.0));
                alike.len() - 1
            });
            alike[k].2 += 1.0;
        }
        let own: Vec<Mat<f64>> = work::map(alike.len(), |i| {
            let (kind, p, n) = alike[i];
            let (kind, p2) = (&kinds[kind], p * p);
            // An agent forms no pair with itself.
            Scale(n * p2) * kind.covariance(p, &g, &psi, eta) - Scale(n * p2 * p2) * (&kind.psi_noise * &kind.g_noise)
        })?;
        let mut source = Mat::<f64>::zeros(packed_len(d), packed_len(d + 1));
        own.iter().for_each(|own| source += own);
        let (mut psi_noise, mut g_noise) =
            (Mat::<f64>::zeros(packed_len(d), packed_len(d)), Mat::<f64>::zeros(packed_len(d), packed_len(d + 1)));
        for (kind, p, n) in &alike {
            psi_noise += Scale(n * p * p) * &kinds[*kind].psi_noise;
            g_noise += Scale(n * p * p) * &kinds[*kind].g_noise;
        }
        let identity = pack(d, |i, j| f64::from(i == j));
        let (drift, spread) = (&psi * psi.transpose(), linalg::mat_vec(&psi_noise, &identity));
        let by_operator = pack(d, |i, j| alpha * alpha * (drift[(i, j)] + spread[packed_index(i, j)]));
        source = Scale(alpha * alpha) * (source + psi_noise * g_noise);
        let round = global_memory_map(systems, setting);
        let covariance = congruence(&round) + source.get(.., ..packed_len(d));
        Ok(Self { root, round, covariance, source, by_operator, by_direction: (alpha * setting.span()).powi(2) })
    }

    /// The same recursion with independent noise of these variances in each component of the sum of operators and of the mean direction.
    #[must_use]
    pub fn with_noise(mut self, operator: f64, direction: f64) -> Self {
        let d = self.root.len();
        let constant = self.source.col_as_slice_mut(packed_index(d, d));
        constant.iter_mut().zip(&self.by_operator).for_each(|(to, added)| *to += operator * added);
        (0..d).for_each(|i| constant[packed_index(i, i)] += direction * self.by_direction);
        self
    }
}

/// The mean has no shift, and the bias is 0.
impl Recursive for FedHsaMse {
    fn recursion(&self) -> Recursion<'_> {
        let (covariance, source, root) = (&self.covariance, &self.source, &self.root[..]);
        Recursion { mean: self.round.clone(), shift: vec![0.0; root.len()], covariance, source, root, bias: None }
    }
}

/// The matrix of `X -> F X F^T`, packed m x packed n for an m x n matrix F.
fn rectangular(f: &Mat<f64>) -> Mat<f64> {
    let (m, n) = (f.nrows(), f.ncols());
    let mut out = Mat::<f64>::zeros(packed_len(m), packed_len(n));
    for j in 0..n {
        for i in 0..=j {
            let half = if i == j { 0.5 } else { 1.0 };
            let (fi, fj) = (f.col_as_slice(i), f.col_as_slice(j));
            let image = pack(m, |a, b| half * (fi[a] * fj[b] + fj[a] * fi[b]));
            out.col_as_slice_mut(packed_index(i, j)).copy_from_slice(&image);
        }
    }
    out
}
