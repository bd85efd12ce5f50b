//! SCAFFLSA's exact mean-square error with a fixed period.

use std::collections::HashMap;

use faer::prelude::*;

use super::evolution::{Evolution, offset};
use super::phase_noise::{check, phase_noise};
use super::{ExactMse, MeanSquare, diverges, is_positive_definite, unstable};
use crate::RoundSetting;
use crate::fixed_point::fixed_point;
use crate::map::{DENSE, LinearMap, at_rounds, spectral_radius};
use crate::phase::{AffinePhase, step};
use crate::stability::{ControlVariates, Group};
use crate::symmetric::{pack, packed_index, packed_len};
use crate::work;
use fedsa::error::{Result, require};
use fedsa::linalg::Mat;
use fedsa::problem::systems::{Moments, Systems};

/// The control variates `xi_c` at the start of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum InitialControls {
    /// `xi_c = 0`, the default of the method.
    Zero,
    /// The fixed point `xi*_c = -gbar_c(theta*)`.
    Root,
    /// One vector (d) for each agent, with `sum p_c xi_c = 0`.
    Given(Vec<Vec<f64>>),
}

/// Agents of the same kind with the same weight and the same initial control.
#[derive(Debug, Clone)]
struct Class {
    kind: usize,
    /// The number of agents n.
    agents: f64,
    /// The sum of the agents' weights w.
    weight: f64,
    /// `x_c = xi_c - xi*_c` at the start (d).
    start: Vec<f64>,
}

/// The exact second moments of SCAFFLSA under i.i.d. samples, `batch` of them averaged in each step.
///
/// The whole state is `(u, x_1 .. x_N, 1)` with `x_c = xi_c - xi*_c`. Agents with the same system, weight and initial control are
/// exchangeable and form a class. So two parts are enough: the second moment Y of `y = (u, xbar_1 .. xbar_K, 1)`, with one mean control
/// for each class, and for each class the second moment `W_k` of a member's deviation from the mean. The deviations are uncorrelated
/// with y:
///
/// ```text
/// Y   <- L Y L^T + sum_k B_k (V_k / n_k) B_k^T
/// W_k <- (I - S_k/E) W_k (I - S_k/E)^T + (1 - 1/n_k) V_k / E^2
/// ```
///
/// L is the mean round. `V_k` is the conditional covariance of a member's local phase, a linear map of the (u, x_c, 1) block of Y with
/// `W_k` added to its x_c block. `B_k e` adds `alpha_g w_k e` to u and `(w_k - [j = k]) e / E` to `xbar_j`.
///
/// Noise n of the mean, where controls are made afresh, adds `alpha_g E n` to u and n to every control ([`ScafflsaMse::with_noise`]). Cost:
/// one map for each distinct kind, once, then `O((K d)^2 d)` per round.
#[derive(Debug, Clone)]
pub struct ScafflsaMse {
    dim: usize,
    setting: RoundSetting,
    classes: Vec<Class>,
    /// The mean round on `(u, xbar_1 .. xbar_K)`.
    round: ControlVariates,
    /// `I - S_k / E` of every class.
    within: Vec<Mat<f64>>,
    /// The conditional covariance of a local phase on `(u, 1, x)`, of every kind.
    noises: Vec<Mat<f64>>,
    root: Vec<f64>,
    /// The variance of the noise in each component of the mean.
    mean_noise: f64,
}

impl ScafflsaMse {
    /// The recursion for the given agents and initial controls; `moments[k]` belongs to `systems.kinds[k]`.
    ///
    /// # Errors
    /// When the mean system has no unique root, the moments do not fit, or the weighted sum of the given controls is not 0.
    pub fn new(systems: &Systems, moments: &[Moments], setting: &RoundSetting, batch: u64, controls: &InitialControls) -> Result<Self> {
        check(systems, moments, batch)?;
        let (d, eta) = (systems.dim(), setting.step_size);
        let root = systems.root()?;
        // -xi*_c = gbar_c(theta*) of every kind.
        let pushes: Vec<Vec<f64>> = systems.kinds.iter().map(|k| k.mean(&root)).collect();
        let classes = classes(systems, &pushes, controls)?;
        let noises = work::map(systems.kinds.len(), |k| {
            // One mean step on (u, 1, x): u - eta Abar u + eta x.
            let (system, mut f) = (&systems.kinds[k], Mat::<f64>::identity(2 * d + 1, 2 * d + 1));
            f.get_mut(..d, ..d).copy_from(step(&system.a, eta));
            (0..d).for_each(|i| f[(i, d + 1 + i)] = eta);
            phase_noise(system, &moments[k], &root, batch, setting, &f)
        })?;
        let gains: Vec<Mat<f64>> =
            (systems.kinds.iter()).map(|k| Scale(1.0 / setting.span()) * AffinePhase::new(&k.a, eta, setting.local_steps).sum).collect();
        let groups = (classes.iter())
            .map(|c| {
                let (gain, a) = (&gains[c.kind], &systems.kinds[c.kind].a);
                Group { weight: c.weight, agents: c.agents as usize, pull: gain * a, gain: gain.clone() }
            })
            .collect();
        let within = classes.iter().map(|c| Mat::<f64>::identity(d, d) - &gains[c.kind]).collect();
        let round = ControlVariates::of_groups(d, groups, setting);
        Ok(Self { dim: d, setting: *setting, classes, round, within, noises, root, mean_noise: 0.0 })
    }

    /// The recursion with independent noise of this variance in each component of the mean of what agents send, `v_c - xi_c`, from which
    /// they make their controls afresh (`rule = "afresh"`). The sum of the controls is then the noise of the last round.
    #[must_use]
    pub fn with_noise(self, variance: f64) -> Self {
        let mean_noise = self.mean_noise + variance;
        Self { round: self.round.made_anew(1.0), mean_noise, ..self }
    }

    /// Whether the weighted sum of the controls is 0 in every round.
    fn conserves(&self) -> bool {
        self.mean_noise == 0.0
    }

    /// The Lyapunov function of Theorem B.5 of \[S\], `E psi_t = E ||theta_t - theta*||^2 + (eta H)^2 E sum p_c ||xi_c - xi*_c||^2`,
    /// at each of `rounds` (ascending), from `theta_0` (d).
    ///
    /// # Errors
    /// When the rounds are not in ascending order, or `theta_0` has another length.
    pub fn lyapunov(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<f64>> {
        let d = self.dim;
        let start = self.start(&offset(theta_0, &self.root)?);
        let mut curve = Vec::with_capacity(rounds.len());
        at_rounds(self, start, rounds, |state| {
            let state = self.second(state);
            let block = |k: usize| (k * d..(k + 1) * d).map(|i| state.y[(i, i)]).sum::<f64>();
            // A member's second moment is the second moment of the class mean plus that of its deviation.
            let controls = self.classes.iter().zip(&state.within).enumerate();
            let controls: f64 = controls.map(|(k, (class, w))| class.weight * (block(k + 1) + trace(w))).sum();
            curve.push(block(0) + self.setting.span().powi(2) * controls);
        })?;
        Ok(curve)
    }

    /// The second moments at the start, `theta_0 - theta* = u` (d).
    fn start(&self, u: &[f64]) -> Vec<f64> {
        let y: Vec<f64> = u.iter().chain(self.classes.iter().flat_map(|c| &c.start)).copied().chain([1.0]).collect();
        Second { y: Mat::from_fn(y.len(), y.len(), |i, j| y[i] * y[j]), within: self.no_deviations() }.flat()
    }

    /// Whether the radius is below 1, without eigenvalues where the iteration for a fixed point converges: see
    /// [`is_positive_definite`]. The noise itself may be 0 at the root, and then does not excite all modes.
    fn converges(&self) -> Result<bool> {
        let (d, last) = (self.dim, self.side() - 1);
        let identity = |n: usize| Mat::<f64>::identity(n, n);
        let mut source = Second { y: identity(last + 1), within: self.no_deviations() };
        source.y[(last, last)] = 0.0;
        let several = |k: &usize| self.classes[*k].agents > 1.0;
        (0..self.classes.len()).filter(several).for_each(|k| source.within[k] = identity(d));
        let Ok(fixed) = fixed_point(&Homogeneous(self), &source.flat()) else { return Ok(self.radius()? < 1.0) };
        let fixed = self.second(&fixed);
        Ok(is_positive_definite(fixed.y.get(..last, ..last))
            && (0..self.classes.len()).filter(several).all(|k| is_positive_definite(fixed.within[k].as_ref())))
    }

    /// The rows of Y: `d (K + 1) + 1`.
    fn side(&self) -> usize {
        self.dim * (self.classes.len() + 1) + 1
    }

    fn no_deviations(&self) -> Vec<Mat<f64>> {
        vec![Mat::zeros(self.dim, self.dim); self.classes.len()]
    }

    /// A state from its flat form.
    fn second(&self, flat: &[f64]) -> Second {
        let (n, d) = (self.side(), self.dim);
        let (y, rest) = flat.split_at(n * n);
        Second {
            y: MatRef::from_column_major_slice(y, n, n).to_owned(),
            within: rest.chunks_exact(d * d).map(|w| MatRef::from_column_major_slice(w, d, d).to_owned()).collect(),
        }
    }

    /// One round of the second moments.
    fn advance(&self, now: &Second) -> Second {
        let (d, last) = (self.dim, self.side() - 1);
        let (alpha, span) = (self.setting.server_step, self.setting.span());
        // L Y L^T = L (L Y)^T for the symmetric Y.
        let mut y = self.round.apply_to(&self.round.apply_to(&now.y).transpose().to_owned());
        let mut within = Vec::with_capacity(now.within.len());
        // G_k = w_k V_k / n_k, the covariance of the mean noise with the noise of class k; G = sum w_k G_k.
        let mut shared = Vec::with_capacity(self.classes.len());
        let mut total = Mat::<f64>::zeros(d, d);
        for (k, class) in self.classes.iter().enumerate() {
            let covariance = self.phase_covariance(k, now, last);
            let keep = &self.within[k];
            let deviation = (1.0 - 1.0 / class.agents) / (span * span);
            within.push(keep * &now.within[k] * keep.transpose() + Scale(deviation) * &covariance);
            let mean = Scale(1.0 / class.agents) * covariance;
            let mut own = y.get_mut((k + 1) * d..(k + 2) * d, (k + 1) * d..(k + 2) * d);
            own += Scale(1.0 / (span * span)) * &mean;
            let with_mean = Scale(class.weight) * mean;
            total += Scale(class.weight) * &with_mean;
            shared.push(with_mean);
        }
        let at = |block: usize| block * d..(block + 1) * d;
        if self.mean_noise > 0.0 {
            let added = self.mean_noise * now.y[(last, last)];
            let by = |block: usize| if block == 0 { alpha * span } else { 1.0 };
            for j in 0..=self.classes.len() {
                for i in 0..=self.classes.len() {
                    (0..d).for_each(|a| y[(i * d + a, j * d + a)] += by(i) * by(j) * added);
                }
            }
        }
        let mut uu = y.get_mut(at(0), at(0));
        uu += Scale(alpha * alpha) * &total;
        for (j, gj) in shared.iter().enumerate() {
            let cross = Scale(alpha / span) * (&total - gj);
            let mut ux = y.get_mut(at(0), at(j + 1));
            ux += &cross;
            let mut xu = y.get_mut(at(j + 1), at(0));
            xu += &cross;
            // The blocks (x_i, x_j) for all i, column by column.
            for b in 0..d {
                let column = &mut y.col_as_slice_mut((j + 1) * d + b)[d..last];
                let (total, gj) = (total.col_as_slice(b), gj.col_as_slice(b));
                for (block, gi) in column.chunks_exact_mut(d).zip(&shared) {
                    for (((y, total), gi), gj) in block.iter_mut().zip(total).zip(gi.col_as_slice(b)).zip(gj) {
                        *y += (total - gi - gj) / (span * span);
                    }
                }
            }
        }
        Second { y, within }
    }

    /// `V_k`: the conditional covariance of a member's local phase from the state `now`, d x d.
    fn phase_covariance(&self, k: usize, now: &Second, last: usize) -> Mat<f64> {
        let d = self.dim;
        // The coordinates (u, 1, x_c) within y.
        let place = |i: usize| match i {
            i if i < d => i,
            i if i == d => last,
            i => (k + 1) * d + i - d - 1,
        };
        let start = pack(2 * d + 1, |i, j| {
            let deviation = if i > d { now.within[k][(i - d - 1, j - d - 1)] } else { 0.0 };
            now.y[(place(i), place(j))] + deviation
        });
        let noise = &self.noises[self.classes[k].kind];
        let mut packed = vec![0.0; noise.nrows()];
        for (j, x) in start.iter().enumerate() {
            packed.iter_mut().zip(noise.col_as_slice(j)).for_each(|(p, t)| *p += t * x);
        }
        Mat::from_fn(d, d, |i, j| packed[packed_index(i, j)])
    }
}

impl ExactMse for ScafflsaMse {
    /// Large maps are not formed as matrices.
    fn radius(&self) -> Result<f64> {
        spectral_radius(&Homogeneous(self))
    }

    /// The bias is 0.
    fn floor(&self) -> Result<MeanSquare> {
        let radius = self.round.radius()?;
        if radius >= 1.0 {
            return Err(unstable(radius * radius));
        }
        if !self.noises.iter().all(Mat::is_all_finite) {
            return Err(unstable(f64::INFINITY));
        }
        if Homogeneous(self).dim() <= DENSE {
            let radius = self.radius()?;
            if radius >= 1.0 {
                return Err(unstable(radius));
            }
        } else if !self.converges()? {
            return Err(diverges());
        }
        let n = self.side();
        let constant = Second { y: Mat::from_fn(n, n, |i, j| f64::from(i == n - 1 && j == n - 1)), within: self.no_deviations() };
        let mut source = self.advance(&constant);
        source.y[(n - 1, n - 1)] = 0.0;
        let floor = self.second(&fixed_point(&Homogeneous(self), &source.flat())?);
        Ok(MeanSquare::floor(vec![0.0; self.dim], (0..self.dim).map(|i| floor.y[(i, i)]).sum()))
    }

    fn curve(&self, theta_0: &[f64], rounds: &[u64]) -> Result<Vec<MeanSquare>> {
        let start = self.start(&offset(theta_0, &self.root)?);
        let mut curve = Vec::with_capacity(rounds.len());
        let last = self.side() - 1;
        at_rounds(self, start, rounds, |state| {
            // Y is the first, column-major block of the state.
            let entry = |i: usize, j: usize| state[j * (last + 1) + i];
            let bias: Vec<f64> = (0..self.dim).map(|i| entry(i, last)).collect();
            let noise = (0..self.dim).map(|i| entry(i, i) - bias[i] * bias[i]).sum();
            curve.push(MeanSquare { bias, noise });
        })?;
        Ok(curve)
    }

    fn evolution(self: Box<Self>, theta_0: &[f64]) -> Result<Evolution> {
        let start = self.second(&self.start(&offset(theta_0, &self.root)?));
        let diagonal = (0..self.dim).map(|i| packed_index(i, i)).collect();
        let reduced = Reduced(*self);
        let start = reduced.of(&start);
        Ok(Evolution::of_moments(Box::new(reduced), start, diagonal))
    }
}

/// The approximate nanoseconds for a round of the second moments with classes of d components. It is within a factor of two of
/// measurements from 1 to 30 classes and from d = 2 to 20.
pub(crate) fn round_work(classes: f64, d: f64) -> f64 {
    let side = d * (classes + 1.0) + 1.0;
    let noise = (2.0 * d + 1.0) * (d + 1.0) * 0.5 * d * (d + 1.0);
    // Small matrices of each class, passes over the moments, and the noise of each class, whose matrix is read from memory.
    4000.0 + 2500.0 * classes + 24.0 * side.powi(2) + 0.5 * classes * noise
}

/// The second moments of a state: of `(u, xbar_1 .. xbar_K, 1)`, and of the deviations within each class.
struct Second {
    y: Mat<f64>,
    within: Vec<Mat<f64>>,
}

impl Second {
    fn flat(&self) -> Vec<f64> {
        std::iter::once(&self.y).chain(&self.within).flat_map(|m| m.col_iter().flat_map(|c| c.iter().copied())).collect()
    }
}

fn trace(m: &Mat<f64>) -> f64 {
    (0..m.nrows()).map(|i| m[(i, i)]).sum()
}

impl LinearMap for ScafflsaMse {
    fn dim(&self) -> usize {
        self.side() * self.side() + self.classes.len() * self.dim * self.dim
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&self.advance(&self.second(x)).flat());
    }

    fn work(&self) -> f64 {
        round_work(self.classes.len() as f64, self.dim as f64)
    }
}

/// The map of second moments on the numbers that determine them. Symmetric matrices are packed. The mean control of the last class
/// follows from the others where their weighted sum is 0. The only agent of a class does not deviate from its mean.
struct Reduced(ScafflsaMse);

impl Reduced {
    /// The rows of Y, without the last class where it follows from the others: `(u, xbar_1 .. xbar_(K-1), 1)`.
    fn side(&self) -> usize {
        self.0.side() - if self.0.conserves() { self.0.dim } else { 0 }
    }

    /// The row of Y for row i of the reduced state: the last class is before the final 1.
    fn place(&self, i: usize) -> usize {
        if i + 1 == self.side() { self.0.side() - 1 } else { i }
    }

    fn several(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.classes.len()).filter(|k| self.0.classes[*k].agents > 1.0)
    }

    fn of(&self, state: &Second) -> Vec<f64> {
        let mut out = pack(self.side(), |i, j| state.y[(self.place(i), self.place(j))]);
        self.several().for_each(|k| out.extend(pack(self.0.dim, |i, j| state.within[k][(i, j)])));
        out
    }

    fn expanded(&self, x: &[f64]) -> Second {
        let (d, side, last) = (self.0.dim, self.side(), self.0.classes.len() - 1);
        let mut y = Mat::<f64>::zeros(self.0.side(), self.0.side());
        for j in 0..side {
            for i in 0..side {
                y[(self.place(i), self.place(j))] = x[packed_index(i, j)];
            }
        }
        let mut within = self.0.no_deviations();
        let rest = x[packed_len(side)..].chunks_exact(packed_len(d));
        self.several().zip(rest).for_each(|(k, w)| within[k] = Mat::from_fn(d, d, |i, j| w[packed_index(i, j)]));
        if !self.0.conserves() {
            return Second { y, within };
        }
        // xbar_K = -sum of w_k xbar_k / w_K, in the rows and then in the columns.
        let shares: Vec<f64> = self.0.classes[..last].iter().map(|class| -class.weight / self.0.classes[last].weight).collect();
        let from = (last + 1) * d;
        for b in 0..y.ncols() {
            let column = y.col_as_slice_mut(b);
            for a in 0..d {
                column[from + a] = shares.iter().enumerate().map(|(k, share)| share * column[(k + 1) * d + a]).sum();
            }
        }
        for b in 0..d {
            for i in 0..y.nrows() {
                y[(i, from + b)] = shares.iter().enumerate().map(|(k, share)| share * y[(i, (k + 1) * d + b)]).sum();
            }
        }
        Second { y, within }
    }
}

impl LinearMap for Reduced {
    fn dim(&self) -> usize {
        packed_len(self.side()) + self.several().count() * packed_len(self.0.dim)
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&self.of(&self.0.advance(&self.expanded(x))));
    }

    fn work(&self) -> f64 {
        self.0.work()
    }
}

/// The linear part of the map of second moments, on symmetric matrices.
struct Homogeneous<'a>(&'a ScafflsaMse);

impl LinearMap for Homogeneous<'_> {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn apply(&self, x: &[f64], out: &mut [f64]) {
        let last = self.0.side() - 1;
        let mut state = self.0.second(x);
        let symmetric = |m: &Mat<f64>| Mat::from_fn(m.nrows(), m.nrows(), |i, j| 0.5 * (m[(i, j)] + m[(j, i)]));
        state.y = symmetric(&state.y);
        // The only agent of its class does not deviate from the mean.
        for (w, class) in state.within.iter_mut().zip(&self.0.classes) {
            *w = if class.agents > 1.0 { symmetric(w) } else { Mat::zeros(self.0.dim, self.0.dim) };
        }
        for i in 0..=last {
            state.y[(i, last)] = 0.0;
            state.y[(last, i)] = 0.0;
        }
        out.copy_from_slice(&self.0.advance(&state).flat());
    }

    fn work(&self) -> f64 {
        self.0.work()
    }
}

/// The classes of agents, in the order of their first members.
fn classes(systems: &Systems, pushes: &[Vec<f64>], controls: &InitialControls) -> Result<Vec<Class>> {
    let d = systems.dim();
    if let InitialControls::Given(given) = controls {
        require(given.len() == systems.weights.len(), "controls", given.len(), "one vector for each agent")?;
        let largest = given.iter().flatten().fold(0.0, |m: f64, x| m.max(x.abs()));
        for i in 0..d {
            let sum: f64 = systems.weights.iter().zip(given).map(|(p, xi)| p * xi[i]).sum();
            require(sum.abs() <= 1e-12 * largest, "controls", sum, "vectors whose weighted sum is 0")?;
        }
    }
    let mut classes: Vec<Class> = Vec::new();
    let mut index: HashMap<(u32, u64, Vec<u64>), usize> = HashMap::new();
    for (c, (kind, weight)) in systems.kind_of.iter().zip(&systems.weights).enumerate() {
        let own: &[f64] = if let InitialControls::Given(given) = controls { &given[c] } else { &[] };
        let key = (*kind, weight.to_bits(), own.iter().map(|x| x.to_bits()).collect());
        let k = *index.entry(key).or_insert_with(|| {
            let kind = *kind as usize;
            let start = match controls {
                InitialControls::Zero => pushes[kind].clone(),
                InitialControls::Root => vec![0.0; d],
                InitialControls::Given(_) => own.iter().zip(&pushes[kind]).map(|(xi, g)| xi + g).collect(),
            };
            classes.push(Class { kind, agents: 0.0, weight: 0.0, start });
            classes.len() - 1
        });
        classes[k].agents += 1.0;
        classes[k].weight += weight;
    }
    Ok(classes)
}
