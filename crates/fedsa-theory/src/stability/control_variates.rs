//! SCAFFLSA's mean round as a map of the model and of the mean controls of identical agents.

use faer::prelude::*;

use crate::RoundSetting;
use crate::map::{LinearMap, spectral_radius_within};
use crate::phase::AffinePhase;
use fedsa::error::{Result, require};
use fedsa::linalg::{self, Mat};
use fedsa::parallel;
use fedsa::problem::systems::Systems;

/// Agents with the same local phase, represented by their weighted mean control.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The sum of the agents' weights, `w_k`.
    pub weight: f64,
    /// The number of agents.
    pub agents: usize,
    /// `S_k / E`, the coefficient of the control in the direction, d x d.
    pub gain: Mat<f64>,
    /// `S_k Abar_k / E`, minus the coefficient of u in the direction, d x d.
    pub pull: Mat<f64>,
}

/// The number of columns that [`ControlVariates::apply_to`] processes at once.
const COLUMNS: usize = 64;

/// SCAFFLSA: a map of the state `(u, x_1 .. x_K)`, where `u = theta - theta*` and `x_k` is the weighted mean over the agents of kind k
/// of `x_c = xi_c - xi*_c`:
///
/// ```text
/// v_k = (S_k / E) (x_k - Abar_k u),   v = sum w_k v_k
/// u  <- u + alpha_g E0 v,             x_k <- x_k + v - v_k
/// ```
///
/// Fixed period: `E = E0 = eta H`. Random talk with probability p, in the mean over the geometric number H of steps: the control
/// changes by `(p / eta) (eta H) (v - v_c)`, so `S_k` belongs to the mean local phase and `E = E0 = eta / p`.
///
/// The weighted sum of the controls does not change, and is 0 in every run. The map first projects the state on this subspace (`x_k -=
/// sum w_j x_j`), so that the eigenvalue 1 of the conserved sum becomes 0. Within a kind, each agent's deviation from the mean follows
/// `I - S_k / E`; [`radius`](ControlVariates::radius) includes these deviations.
#[derive(Debug, Clone)]
pub struct ControlVariates {
    pub(crate) dim: usize,
    pub(crate) groups: Vec<Group>,
    /// `alpha_g E`.
    stride: f64,
    /// The share of `v - v_k` by which controls change.
    share: f64,
    /// Whether controls are recomputed in each round (`rule = "afresh"`), so that their sum need not be 0.
    afresh: bool,
    /// The mean factor with which answers arrive under `afresh`; otherwise `gain` and `pull` of the groups contain it.
    arrives: f64,
}

impl ControlVariates {
    /// SCAFFLSA with a fixed period (\[S\] Alg. 2/4; gain 1).
    pub fn fixed_period(systems: &Systems, setting: &RoundSetting) -> Self {
        let phases: Vec<AffinePhase> =
            systems.kinds.iter().map(|k| AffinePhase::new(&k.a, setting.step_size, setting.local_steps)).collect();
        Self::new(systems, &phases, setting.span(), setting.server_step)
    }

    /// The expected round of SCAFFLSA with random talk of probability `p` after every step of size `eta` (\[S\] Alg. 2/3).
    /// `None` if an agent's expected local phase is infinite: see [`AffinePhase::geometric`].
    ///
    /// # Errors
    /// When `p` is not in (0, 1] or a system is not finite.
    pub fn random_talk(systems: &Systems, eta: f64, p: f64, server_step: f64) -> Result<Option<Self>> {
        require(p > 0.0 && p <= 1.0, "probability", p, "in (0, 1]")?;
        let phases: Option<Vec<AffinePhase>> = systems.kinds.iter().map(|k| AffinePhase::geometric(&k.a, eta, p)).collect::<Result<_>>()?;
        Ok(phases.map(|phases| Self::new(systems, &phases, eta / p, server_step)))
    }

    fn new(systems: &Systems, phases: &[AffinePhase], span: f64, server_step: f64) -> Self {
        let mut agents = vec![0; systems.kinds.len()];
        systems.kind_of.iter().for_each(|k| agents[*k as usize] += 1);
        let groups = (systems.kind_weights().into_iter().zip(agents).zip(phases).zip(&systems.kinds))
            .filter(|(((_, agents), _), _)| *agents > 0)
            .map(|(((weight, agents), phase), system)| {
                let gain = Scale(1.0 / span) * &phase.sum;
                Group { weight, agents, pull: &gain * &system.a, gain }
            })
            .collect();
        Self { dim: systems.dim(), groups, stride: server_step * span, share: 1.0, afresh: false, arrives: 1.0 }
    }

    /// The mean round if each direction arrives with a factor of mean `gain`, drawn independently in each round, and an agent subtracts
    /// from v its own direction as received (*acknowledged*): `v_k` becomes `gain v_k`.
    #[must_use]
    pub fn arriving(mut self, gain: f64) -> Self {
        for group in &mut self.groups {
            group.gain = Scale(gain) * &group.gain;
            group.pull = Scale(gain) * &group.pull;
        }
        self
    }

    /// The mean round if controls change by a share of `v - v_c`. If m of N agents of equal weight participate, drawn
    /// uniformly, the share is `(m - 1) / (N - 1)` in the mean.
    #[must_use]
    pub fn moving_by(mut self, share: f64) -> Self {
        self.share *= share;
        self
    }

    /// The mean round if agents send `c_c = v_c - xi_c`, which arrive with a factor of mean `gain`, and controls are recomputed in each
    /// round (*afresh*). With `c_k = v_k - xi_k` and the mean `gain sum w_k c_k` in place of v,
    ///
    /// ```text
    /// u <- u + alpha_g E0 gain (v - xbar),    x_k <- x_k - v_k + gain (v - xbar),    xbar = sum w_k x_k
    /// ```
    ///
    /// on the whole space: losses move `xbar` away from 0, and the rule brings it back.
    #[must_use]
    pub fn made_anew(mut self, gain: f64) -> Self {
        (self.afresh, self.arrives) = (true, gain);
        self
    }

    /// The map for given groups, with a fixed period.
    pub(crate) fn of_groups(dim: usize, groups: Vec<Group>, setting: &RoundSetting) -> Self {
        Self { dim, groups, stride: setting.server_step * setting.span(), share: 1.0, afresh: false, arrives: 1.0 }
    }

    /// Applies the map to every column of `y`; rows beyond the state are unchanged.
    pub(crate) fn apply_to(&self, y: &Mat<f64>) -> Mat<f64> {
        let starts: Vec<usize> = (0..y.ncols()).step_by(COLUMNS).collect();
        let images = parallel::map(starts.len(), |i| self.apply_to_few(y.get(.., starts[i]..y.ncols().min(starts[i] + COLUMNS))));
        let mut out = Mat::<f64>::zeros(y.nrows(), y.ncols());
        for (start, image) in starts.iter().zip(&images) {
            out.get_mut(.., *start..start + image.ncols()).copy_from(image);
        }
        out
    }

    /// Applies the map to a few columns, which fit into the cache together with the intermediate results.
    fn apply_to_few(&self, y: MatRef<'_, f64>) -> Mat<f64> {
        let (d, columns) = (self.dim, y.ncols());
        let block = |k: usize| (k + 1) * d..(k + 2) * d;
        let mut sum = Mat::<f64>::zeros(d, columns);
        for (k, group) in self.groups.iter().enumerate() {
            sum += Scale(group.weight) * y.get(block(k), ..);
        }
        let u = y.get(0..d, ..);
        let mut out = y.to_owned();
        let mut mean = Mat::<f64>::zeros(d, columns);
        for (k, group) in self.groups.iter().enumerate() {
            let control = if self.afresh { y.get(block(k), ..).to_owned() } else { y.get(block(k), ..) - &sum };
            let v = &group.gain * &control - &group.pull * u;
            mean += Scale(group.weight) * &v;
            out.get_mut(block(k), ..).copy_from(if self.share == 1.0 { control - v } else { control - Scale(self.share) * v });
        }
        if self.afresh {
            mean = Scale(self.arrives) * (mean - sum);
        }
        let moved = if self.share == 1.0 { mean.clone() } else { Scale(self.share) * &mean };
        for k in 0..self.groups.len() {
            let mut x = out.get_mut(block(k), ..);
            x += &moved;
        }
        let mut u = out.get_mut(0..d, ..);
        u += Scale(self.stride) * mean;
        out
    }

    /// The transpose: `G L` for the blocks of `G = (G_u, G_1 .. G_K)`, d x d each. Controls change by all of `v - v_c`.
    pub(crate) fn respond(&self, g: &[Mat<f64>]) -> Vec<Mat<f64>> {
        let d = self.dim;
        // The coefficients of the mean direction v, of every v_k, and of every control after the projection.
        let moved = g[1..].iter().fold(Scale(self.stride) * &g[0], |sum, g| sum + g);
        let mut of_u = g[0].clone();
        let mut sum = Mat::<f64>::zeros(d, d);
        let mut out = vec![Mat::new()];
        for (group, g) in self.groups.iter().zip(&g[1..]) {
            let direction = Scale(group.weight) * &moved - g;
            of_u -= &direction * &group.pull;
            let control = g + direction * &group.gain;
            sum += &control;
            out.push(control);
        }
        for (group, control) in self.groups.iter().zip(&mut out[1..]) {
            *control -= Scale(group.weight) * &sum;
        }
        out[0] = of_u;
        out
    }

    /// The spectral radius over all agents: the maximum of the radius of the kinds' means and the radii of `I - share S_k / E` for
    /// every kind of two agents or more.
    ///
    /// # Errors
    /// As [`spectral_radius`](crate::map::spectral_radius).
    pub fn radius(&self) -> Result<f64> {
        self.radius_within(f64::INFINITY).map(|(radius, _)| radius)
    }

    /// [`radius`](Self::radius) within about `most` multiplications, and the number used.
    ///
    /// # Errors
    /// As [`radius`](Self::radius), and when it would take more.
    pub(crate) fn radius_within(&self, most: f64) -> Result<(f64, f64)> {
        let (mut radius, mut work) = spectral_radius_within(self, self.work(), most)?;
        for group in self.groups.iter().filter(|g| g.agents >= 2) {
            let within = Mat::<f64>::identity(self.dim, self.dim) - Scale(self.share) * &group.gain;
            let (other, more) = spectral_radius_within(&within, 0.0, f64::INFINITY)?;
            (radius, work) = (radius.max(other), work + more);
        }
        Ok((radius, work))
    }
}

impl LinearMap for ControlVariates {
    fn work(&self) -> f64 {
        // Two small products for each group, which cost more than their multiplications.
        self.groups.len() as f64 * (2.0 * (self.dim as f64).powi(2) + 1000.0)
    }

    fn dim(&self) -> usize {
        self.dim * (self.groups.len() + 1)
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        out.copy_from_slice(self.apply_to(&linalg::column(x)).col_as_slice(0));
    }
}
