//! Stability: spectral radii of noiseless rounds, and the largest stable step.
//!
//! On a linear problem one noiseless round is a linear map of the method's state (in no source). If its spectral radius is
//! below 1, the mean iterate converges; if it is above 1, the method diverges, with noise or without. Noise in `A(z)` can
//! make the mean square diverge at smaller steps: see [`exact_mse`](super::exact_mse).

mod control_variates;
mod edge;

pub use control_variates::ControlVariates;
pub(crate) use control_variates::Group;
pub use edge::{RESOLUTION, RadiusStability, edge_below, edge_between, largest_stable_step, stable_step_below};

use faer::c64;
use faer::prelude::*;

use crate::RoundSetting;
use crate::fedlsa::FedLsaMean;
use crate::map::spectral_radius;
use crate::phase::AffinePhase;
use crate::work;
use fedsa::error::{Error, Result};
use fedsa::linalg::{self, Mat};
use fedsa::problem::systems::Systems;

/// FedHSA: `I - alpha_g Sbar Abar` with `Sbar = sum p_c S_c`, a map of theta (d x d).
pub fn global_memory_map(systems: &Systems, setting: &RoundSetting) -> Mat<f64> {
    let d = systems.dim();
    let mut sbar = Mat::<f64>::zeros(d, d);
    for (system, weight) in systems.kinds.iter().zip(systems.kind_weights()) {
        sbar += Scale(weight) * AffinePhase::new(&system.a, setting.step_size, setting.local_steps).sum;
    }
    Mat::<f64>::identity(d, d) - Scale(setting.server_step) * (sbar * systems.mean().a)
}

/// `Sbar Abar` and `C = sum p_c S_c Abar_c`, and their mixture: `mixing Sbar Abar + (1 - mixing) C`.
fn mixed_memory_map(systems: &Systems, setting: &RoundSetting, mixing: f64) -> Result<Mat<f64>> {
    let d = systems.dim();
    let all = Mat::<f64>::identity(d, d) - global_memory_map(systems, &setting.with_server_step(1.0)?);
    if mixing == 1.0 {
        return Ok(all);
    }
    Ok(Scale(mixing) * all + Scale(1.0 - mixing) * FedLsaMean::new(systems, &setting.with_server_step(1.0)?)?.pull())
}

/// The radius of FedHSA's mean round if messages arrive with independent factors of mean `gain` in both exchanges, and the
/// participants of a round are the same in both. With their weights `w_c`,
/// `E sum_{c,c'} w_c w_c' S_c gbar_c' = mixing Sbar gbar + (1 - mixing) sum p_c S_c gbar_c`; `mixing` is 1 if all agents
/// participate, and `N (m - 1) / (m (N - 1))` with m of N agents of equal weight. The round is
/// `I - alpha_g gain^2 (mixing Sbar Abar + (1 - mixing) sum p_c S_c Abar_c)`.
///
/// # Errors
/// When the mean system has no unique root; as [`spectral_radius`].
pub fn global_memory_radius_over(systems: &Systems, setting: &RoundSetting, gain: f64, mixing: f64) -> Result<f64> {
    if gain == 1.0 && mixing == 1.0 {
        return global_memory_radius(systems, setting);
    }
    let d = systems.dim();
    let pull = Scale(setting.server_step * gain * gain) * mixed_memory_map(systems, setting, mixing)?;
    spectral_radius(&(Mat::<f64>::identity(d, d) - pull))
}

/// The bias of FedHSA's limit (d), which is 0 if `mixing` is 1. Otherwise G contains a participant's own operator more often than the
/// operators of other agents, and the bias is the u with `(mixing Sbar Abar + (1 - mixing) sum p_c S_c Abar_c) u = (1 - mixing) rho_H`.
///
/// # Errors
/// When the mean system or the limit's system is singular.
pub fn global_memory_bias(systems: &Systems, setting: &RoundSetting, mixing: f64) -> Result<Vec<f64>> {
    if mixing == 1.0 {
        return Ok(vec![0.0; systems.dim()]);
    }
    let rho = FedLsaMean::new(systems, setting)?.rho;
    let right: Vec<f64> = rho.iter().map(|x| (1.0 - mixing) * x).collect();
    linalg::solve(&mixed_memory_map(systems, setting, mixing)?, &right)
}

/// The radius of FedHSA's mean round if each message is lost with probability `1 - success`. The agent's last received operator
/// replaces a lost one, and zero a lost direction. With `G_t = success gbar(theta_t) + (1 - success) G_{t-1}`,
///
/// ```text
/// u <- u + alpha_g success Sbar G_t        G_t = -success Abar u + (1 - success) G_{t-1}
/// ```
///
/// # Errors
/// As [`spectral_radius`].
pub fn last_operators_radius(systems: &Systems, setting: &RoundSetting, success: f64) -> Result<f64> {
    if success == 1.0 {
        return global_memory_radius(systems, setting);
    }
    let d = systems.dim();
    let mut sbar = Mat::<f64>::zeros(d, d);
    for (system, weight) in systems.kinds.iter().zip(systems.kind_weights()) {
        sbar += Scale(weight) * AffinePhase::new(&system.a, setting.step_size, setting.local_steps).sum;
    }
    let (abar, identity) = (systems.mean().a, Mat::<f64>::identity(d, d));
    let step = Scale(setting.server_step * success) * sbar;
    let mut map = Mat::<f64>::zeros(2 * d, 2 * d);
    map.get_mut(..d, ..d).copy_from(&identity - Scale(success) * (&step * &abar));
    map.get_mut(..d, d..).copy_from(Scale(1.0 - success) * &step);
    map.get_mut(d.., ..d).copy_from(Scale(-success) * &abar);
    map.get_mut(d.., d..).copy_from(Scale(1.0 - success) * identity);
    spectral_radius(&map)
}

/// The radius of FedLSA's round.
///
/// # Errors
/// When the mean system has no unique root.
pub fn plain_radius(systems: &Systems, setting: &RoundSetting) -> Result<f64> {
    spectral_radius(&FedLsaMean::new(systems, setting)?.round_map())
}

/// The radius of FedHSA's round.
///
/// # Errors
/// As [`spectral_radius`].
pub fn global_memory_radius(systems: &Systems, setting: &RoundSetting) -> Result<f64> {
    spectral_radius(&global_memory_map(systems, setting))
}

/// The radius of SCAFFLSA's round with a fixed period, on `sum p_c xi_c = 0`.
///
/// # Errors
/// As [`spectral_radius`].
pub fn control_variates_radius(systems: &Systems, setting: &RoundSetting) -> Result<f64> {
    ControlVariates::fixed_period(systems, setting).radius()
}

/// The radius of SCAFFLSA's expected round with random talk; infinite if the expectation is infinite.
///
/// # Errors
/// As [`ControlVariates::random_talk`] and [`spectral_radius`].
pub fn random_talk_radius(systems: &Systems, eta: f64, p: f64, server_step: f64) -> Result<f64> {
    ControlVariates::random_talk(systems, eta, p, server_step)?.map_or(Ok(f64::INFINITY), |map| map.radius())
}

/// The radius of `u_{t+1} = u_t - K sum_k pi_k u_{t-k}`: directions are k rounds old with probability `pi_k = law[k]`, drawn
/// independently in each round. `pull` is K, d x d. The eigenvalues are the roots of `z^(n+1) - z^n + lambda sum_k pi_k z^(n-k)` for
/// the eigenvalues lambda of K, where n is the longest delay.
///
/// # Errors
/// When an eigenvalue iteration does not converge.
pub fn delayed_radius(pull: &Mat<f64>, law: &[f64]) -> Result<f64> {
    if !pull.is_all_finite() {
        return Ok(f64::INFINITY);
    }
    let failed = || Error::not_known("", "the eigenvalues of a delayed round did not converge", "a smaller step size");
    let n = law.len();
    let of = |(re, im): (f64, f64)| -> Result<f64> {
        let first = |k: usize| f64::from(k == 0);
        let companion = |i: usize, j: usize| f64::from(i == j + 1);
        let roots = if im == 0.0 {
            Mat::from_fn(n, n, |i, j| if i == 0 { first(j) - re * law[j] } else { companion(i, j) }).eigenvalues()
        } else {
            let at = |i: usize, j: usize| {
                if i == 0 { c64::new(first(j) - re * law[j], -im * law[j]) } else { c64::new(companion(i, j), 0.0) }
            };
            Mat::from_fn(n, n, at).eigenvalues()
        };
        let roots = roots.map_err(|_| failed())?;
        Ok(roots.iter().fold(0.0, |r, z| r.max(z.re.hypot(z.im))))
    };
    // Conjugate eigenvalues have conjugate roots. A maximum does not depend on the order.
    let all: Vec<(f64, f64)> = linalg::eigenvalues(pull)?.into_iter().filter(|(_, im)| *im >= 0.0).collect();
    let radii: Vec<f64> = work::try_map(all.len(), |i| of(all[i]))?;
    Ok(radii.into_iter().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact_mse::{ExactMse as _, FedLsaMse};
    use crate::map::LinearMap as _;
    use crate::testing::{Draw, federation};
    use fedsa::problem::systems::System;

    /// One noiseless round of SCAFFLSA on all agents, `steps` local steps.
    fn round(systems: &Systems, theta: &mut [f64], xi: &mut [Vec<f64>], eta: f64, steps: usize, gain: f64, alpha: f64) {
        let span = eta * steps as f64;
        let directions: Vec<Vec<f64>> = (xi.iter().enumerate())
            .map(|(c, xi)| {
                let mut local = theta.to_vec();
                for _ in 0..steps {
                    let g = systems.of(c).mean(&local);
                    local.iter_mut().zip(g).zip(xi).for_each(|((x, g), drift)| *x += eta * (g + drift));
                }
                local.iter().zip(&*theta).map(|(x, y)| (x - y) / span).collect()
            })
            .collect();
        for i in 0..theta.len() {
            let v: f64 = systems.weights.iter().zip(&directions).map(|(p, v)| p * v[i]).sum();
            theta[i] += alpha * span * v;
            xi.iter_mut().zip(&directions).for_each(|(xi, vc)| xi[i] += gain * (v - vc[i]));
        }
    }

    /// The round as a matrix of `(theta, xi_1 .. xi_N)`, from its action on unit
    /// vectors, on the basis of `sum p_c xi_c = 0` that drops the last agent.
    fn reduced(systems: &Systems, act: impl Fn(&mut [f64], &mut [Vec<f64>])) -> Mat<f64> {
        let (d, n) = (systems.dim(), systems.weights.len());
        let mut homogeneous = systems.clone();
        homogeneous.kinds.iter_mut().for_each(|k| k.b.fill(0.0));
        Mat::from_fn(d * n, d * n, {
            let columns: Vec<Vec<f64>> = (0..d * n)
                .map(|j| {
                    let mut y = vec![0.0; d * n];
                    y[j] = 1.0;
                    let mut theta = y[..d].to_vec();
                    let mut xi: Vec<Vec<f64>> = (1..n).map(|c| y[c * d..(c + 1) * d].to_vec()).collect();
                    let last =
                        (0..d).map(|i| -(0..n - 1).map(|c| systems.weights[c] * xi[c][i]).sum::<f64>() / systems.weights[n - 1]).collect();
                    xi.push(last);
                    act(&mut theta, &mut xi);
                    theta.into_iter().chain(xi.into_iter().take(n - 1).flatten()).collect()
                })
                .collect();
            move |i, j| columns[j][i]
        })
    }

    fn with_shared_kinds(seed: u64) -> Systems {
        let mut systems = Draw::new(seed).systems(2, 3);
        systems.kinds.iter_mut().for_each(|k| k.b.fill(0.0));
        systems.kind_of = vec![0, 1, 1, 0, 1];
        systems.weights = vec![0.1, 0.2, 0.25, 0.3, 0.15];
        systems
    }

    #[test]
    fn fixed_period_radius_is_that_of_all_agents() {
        let systems = with_shared_kinds(10);
        for (eta, h, alpha) in [(0.1, 5, 1.0), (0.4, 20, 0.7), (0.3, 1, 1.0), (0.01, 2, 1.3)] {
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            let full = reduced(&systems, |theta, xi| round(&systems, theta, xi, eta, h as usize, 1.0, alpha));
            let want = linalg::spectral_radius(&full).unwrap();
            let got = control_variates_radius(&systems, &setting).unwrap();
            assert!((got - want).abs() < 1e-10, "{got} {want}");
        }
    }

    /// An agent's update of its control from v and its own direction, which arrived with a factor h.
    #[derive(Clone, Copy, PartialEq)]
    enum MarkovRule {
        Acknowledged,
        Afresh,
    }

    /// A noiseless round of SCAFFLSA: `takes` says which agents participate, and directions arrive with factors `h`.
    fn lossy(
        systems: &Systems,
        theta: &mut [f64],
        xi: &mut [Vec<f64>],
        setting: &RoundSetting,
        takes: &[bool],
        h: &[f64],
        rule: MarkovRule,
    ) {
        let (span, eta) = (setting.span(), setting.step_size);
        let asked: f64 = systems.weights.iter().zip(takes).filter(|(_, takes)| **takes).map(|(p, _)| p).sum();
        let sent: Vec<Vec<f64>> = (xi.iter().enumerate())
            .map(|(c, xi)| {
                let mut local = theta.to_vec();
                for _ in 0..setting.local_steps {
                    let g = systems.of(c).mean(&local);
                    local.iter_mut().zip(g).zip(xi).for_each(|((x, g), drift)| *x += eta * (g + drift));
                }
                let own = if rule == MarkovRule::Afresh { 1.0 } else { 0.0 };
                (0..theta.len()).map(|i| (local[i] - theta[i]) / span - own * xi[i]).collect()
            })
            .collect();
        for i in 0..theta.len() {
            let v: f64 = (0..h.len()).filter(|c| takes[*c]).map(|c| systems.weights[c] / asked * h[c] * sent[c][i]).sum();
            theta[i] += setting.server_step * span * v;
            for c in (0..h.len()).filter(|c| takes[*c]) {
                match rule {
                    MarkovRule::Acknowledged => xi[c][i] += v - h[c] * sent[c][i],
                    MarkovRule::Afresh => xi[c][i] = v - sent[c][i],
                }
            }
        }
    }

    /// The mean of rounds over factors of values 0.2 and 1.3, and over all choices of m participants.
    fn averaged(systems: &Systems, theta: &mut [f64], xi: &mut [Vec<f64>], setting: &RoundSetting, p: f64, m: usize, rule: MarkovRule) {
        let n = systems.weights.len();
        let flags = |word: usize| -> Vec<bool> { (0..n).map(|c| word >> c & 1 == 1).collect() };
        let subsets: Vec<Vec<bool>> = (0..1 << n).map(flags).filter(|f| f.iter().filter(|x| **x).count() == m).collect();
        let (start, controls) = (theta.to_vec(), xi.to_vec());
        theta.fill(0.0);
        xi.iter_mut().for_each(|xi| xi.fill(0.0));
        for takes in &subsets {
            for word in 0..1 << n {
                let h: Vec<f64> = flags(word).iter().map(|high| if *high { 1.3 } else { 0.2 }).collect();
                let probability: f64 = flags(word).iter().map(|high| if *high { p } else { 1.0 - p }).product();
                let weight = probability / subsets.len() as f64;
                let (mut theta_1, mut xi_1) = (start.clone(), controls.clone());
                lossy(systems, &mut theta_1, &mut xi_1, setting, takes, &h, rule);
                theta.iter_mut().zip(theta_1).for_each(|(sum, x)| *sum += weight * x);
                xi.iter_mut().flatten().zip(xi_1.into_iter().flatten()).for_each(|(sum, x)| *sum += weight * x);
            }
        }
    }

    #[test]
    fn lossy_rounds_of_control_variates_are_the_mean_of_all_that_may_happen() {
        let systems = with_shared_kinds(12);
        let alike = Systems::new(systems.kinds.clone(), systems.kind_of.clone(), vec![0.2; 5]);
        for (eta, h, alpha, p) in [(0.1, 5, 1.0, 0.5), (0.3, 2, 0.8, 0.3)] {
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            let gain = 0.2 + 1.1 * p;
            let full = reduced(&systems, |theta, xi| averaged(&systems, theta, xi, &setting, p, 5, MarkovRule::Acknowledged));
            let (got, want) = (
                ControlVariates::fixed_period(&systems, &setting).arriving(gain).radius().unwrap(),
                linalg::spectral_radius(&full).unwrap(),
            );
            assert!((got - want).abs() < 1e-10, "acknowledged: {got} {want}");
            for m in [2, 4] {
                let full = reduced(&alike, |theta, xi| averaged(&alike, theta, xi, &setting, p, m, MarkovRule::Acknowledged));
                let share = (m as f64 - 1.0) / 4.0;
                let (got, want) = (
                    ControlVariates::fixed_period(&alike, &setting).arriving(gain).moving_by(share).radius().unwrap(),
                    linalg::spectral_radius(&full).unwrap(),
                );
                assert!((got - want).abs() < 1e-10, "{m} of 5: {got} {want}");
            }
            // Afresh on the whole space.
            let (d, n) = (3, 5);
            let columns: Vec<Vec<f64>> = (0..d * (n + 1))
                .map(|j| {
                    let mut y = vec![0.0; d * (n + 1)];
                    y[j] = 1.0;
                    let (theta, xi) = y.split_at_mut(d);
                    let mut xi: Vec<Vec<f64>> = xi.chunks(d).map(<[f64]>::to_vec).collect();
                    averaged(&systems, theta, &mut xi, &setting, p, n, MarkovRule::Afresh);
                    theta.iter().copied().chain(xi.into_iter().flatten()).collect()
                })
                .collect();
            let want = linalg::spectral_radius(&Mat::from_fn(d * (n + 1), d * (n + 1), |i, j| columns[j][i])).unwrap();
            let got = ControlVariates::fixed_period(&systems, &setting).made_anew(gain).radius().unwrap();
            assert!((got - want).abs() < 1e-10, "afresh: {got} {want}");
        }
    }

    /// The mean of FedHSA's noiseless rounds over losses of both exchanges and all choices of m participants; `last` contains the
    /// operators that replace lost ones.
    fn fedhsa(
        systems: &Systems,
        theta: &[f64],
        last: Option<&[Vec<f64>]>,
        setting: &RoundSetting,
        p: f64,
        m: usize,
    ) -> (Vec<f64>, Vec<Vec<f64>>) {
        let (n, d, eta) = (systems.weights.len(), theta.len(), setting.step_size);
        let flags = |word: usize| -> Vec<bool> { (0..n).map(|c| word >> c & 1 == 1).collect() };
        let subsets: Vec<Vec<bool>> = (0..1 << n).map(flags).filter(|f| f.iter().filter(|x| **x).count() == m).collect();
        let (mut mean, mut kept) = (vec![0.0; d], vec![vec![0.0; d]; n]);
        for takes in &subsets {
            for (first, second) in (0..1 << n).flat_map(|a| (0..1 << n).map(move |b| (flags(a), flags(b)))) {
                let odds = |b: &[bool]| b.iter().map(|b| if *b { p } else { 1.0 - p }).product::<f64>();
                let weight = odds(&first) * odds(&second) / subsets.len() as f64;
                let asked: f64 = (0..n).filter(|c| takes[*c]).map(|c| systems.weights[c]).sum();
                let own: Vec<Vec<f64>> = (0..n).map(|c| systems.of(c).mean(theta)).collect();
                let missing = |c: usize| last.map_or(vec![0.0; d], |last| last[c].clone());
                let known: Vec<Vec<f64>> = (0..n).map(|c| if first[c] { own[c].clone() } else { missing(c) }).collect();
                let g: Vec<f64> =
                    (0..d).map(|i| (0..n).filter(|c| takes[*c]).map(|c| systems.weights[c] / asked * known[c][i]).sum()).collect();
                let mut next = theta.to_vec();
                for c in (0..n).filter(|c| takes[*c] && second[*c]) {
                    let mut local = theta.to_vec();
                    for _ in 0..setting.local_steps {
                        let at = systems.of(c).mean(&local);
                        (0..d).for_each(|i| local[i] += eta * (at[i] + g[i] - own[c][i]));
                    }
                    (0..d).for_each(|i| next[i] += setting.server_step * systems.weights[c] / asked * (local[i] - theta[i]));
                }
                mean.iter_mut().zip(next).for_each(|(sum, x)| *sum += weight * x);
                kept.iter_mut().flatten().zip(known.into_iter().flatten()).for_each(|(sum, x)| *sum += weight * x);
            }
        }
        (mean, kept)
    }

    #[test]
    fn lossy_rounds_of_global_memory_are_the_mean_of_all_that_may_happen() {
        let systems = Draw::new(13).systems(3, 2);
        let linear = {
            let mut s = systems.clone();
            s.kinds.iter_mut().for_each(|k| k.b.fill(0.0));
            s
        };
        for (eta, h, alpha, p) in [(0.1, 4, 1.0, 0.5), (0.3, 2, 0.8, 0.7)] {
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            for m in [2, 3] {
                let columns: Vec<Vec<f64>> =
                    (0..2).map(|j| fedhsa(&linear, &[f64::from(j == 0), f64::from(j == 1)], None, &setting, p, m).0).collect();
                let want = linalg::spectral_radius(&Mat::from_fn(2, 2, |i, j| columns[j][i])).unwrap();
                let mixing = 3.0 * (m as f64 - 1.0) / (m as f64 * 2.0);
                let got = global_memory_radius_over(&linear, &setting, p, mixing).unwrap();
                assert!((got - want).abs() < 1e-12, "{m} of 3: {got} {want}");
                // The limit of the mean.
                let root = systems.root().unwrap();
                let bias = global_memory_bias(&systems, &setting, mixing).unwrap();
                let limit: Vec<f64> = root.iter().zip(&bias).map(|(r, b)| r + b).collect();
                let next = fedhsa(&systems, &limit, None, &setting, p, m).0;
                assert!(linalg::distance_sq(&limit, &next).sqrt() < 1e-13, "{m} of 3");
                assert_eq!(linalg::norm_sq(&bias) > 1e-8, m == 2, "{bias:?}");
            }
            // The last operators replace lost ones: the state is theta and three operators.
            let columns: Vec<Vec<f64>> = (0..8)
                .map(|j| {
                    let unit: Vec<f64> = (0..8).map(|i| f64::from(i == j)).collect();
                    let last: Vec<Vec<f64>> = unit[2..].chunks(2).map(<[f64]>::to_vec).collect();
                    let (theta, kept) = fedhsa(&linear, &unit[..2], Some(&last), &setting, p, 3);
                    theta.into_iter().chain(kept.into_iter().flatten()).collect()
                })
                .collect();
            let want = linalg::spectral_radius(&Mat::from_fn(8, 8, |i, j| columns[j][i])).unwrap();
            let got = last_operators_radius(&linear, &setting, p).unwrap();
            // The operators' own map has the radius 1 - p, as the mean of all of them has.
            assert!((got - want).abs() < 1e-7, "the last: {got} {want}");
        }
    }

    #[test]
    fn delayed_radii_are_those_of_the_companion_form() {
        let mut draw = Draw::new(14);
        for law in [vec![0.0, 1.0], vec![0.2, 0.0, 0.5, 0.3], vec![0.0, 0.25, 0.25, 0.25, 0.25], vec![1.0]] {
            for size in [0.05, 0.4, 1.5] {
                let (pull, n) = (Scale(size) * draw.stable_matrix(3), law.len());
                let companion = Mat::from_fn(3 * n, 3 * n, |i, j| match i {
                    i if i < 3 => f64::from(i == j) - law[j / 3] * pull[(i, j % 3)],
                    i => f64::from(i == j + 3),
                });
                let (got, want) = (delayed_radius(&pull, &law).unwrap(), linalg::spectral_radius(&companion).unwrap());
                assert!((got - want).abs() < 1e-12, "{law:?}: {got} {want}");
            }
        }
        // The edge of a scalar operator: 2 sin(pi / (2 (2 tau + 1))).
        for tau in [1, 10, 100] {
            let edge = 2.0 * (std::f64::consts::PI / (2.0 * (2.0 * f64::from(tau) + 1.0))).sin();
            let mut law = vec![0.0; tau as usize + 1];
            law[tau as usize] = 1.0;
            assert!((delayed_radius(&Mat::full(1, 1, edge), &law).unwrap() - 1.0).abs() < 1e-12);
            assert!(delayed_radius(&Mat::full(1, 1, 0.99 * edge), &law).unwrap() < 1.0);
        }
    }

    #[test]
    fn random_talk_radius_is_that_of_the_mean_round() {
        let systems = with_shared_kinds(11);
        let (eta, p, alpha) = (0.15, 0.3, 0.9);
        let d = systems.dim() * systems.weights.len();
        let mut expected = Mat::<f64>::zeros(d, d);
        for h in 1..120 {
            let weight = p * (1.0f64 - p).powi(h - 1);
            let gain = p * f64::from(h);
            expected += Scale(weight) * reduced(&systems, |theta, xi| round(&systems, theta, xi, eta, h as usize, gain, alpha));
        }
        let want = linalg::spectral_radius(&expected).unwrap();
        let got = random_talk_radius(&systems, eta, p, alpha).unwrap();
        assert!((got - want).abs() < 1e-10, "{got} {want}");
        assert_eq!(random_talk_radius(&systems, 50.0, 0.01, 1.0).unwrap(), f64::INFINITY);
    }

    #[test]
    fn many_distinct_agents_are_left_to_arnoldi() {
        let systems = Draw::new(12).systems(70, 4);
        let setting = RoundSetting::new(0.2, 4).unwrap();
        let map = ControlVariates::fixed_period(&systems, &setting);
        assert_eq!(map.dim(), 284);
        let dense = linalg::spectral_radius(&map.to_matrix()).unwrap();
        assert!((map.radius().unwrap() - dense).abs() < 1e-9);
    }

    #[test]
    fn global_memory_is_the_round_of_fedhsa() {
        let systems = Draw::new(13).systems(3, 2);
        let setting = RoundSetting::new(0.2, 6).unwrap().with_server_step(0.5).unwrap();
        // u -> u + alpha mean_c (u_H - u), local steps with drift G - gbar_c(theta_t).
        let mean = systems.mean();
        let by_steps = Mat::from_fn(2, 2, {
            let columns: Vec<Vec<f64>> = (0..2)
                .map(|j| {
                    let start: Vec<f64> = (0..2).map(|i| f64::from(i == j)).collect();
                    let mut next = start.clone();
                    for kind in &systems.kinds {
                        let mut u = start.clone();
                        for _ in 0..6 {
                            let (own, own_start) = (linalg::mat_vec(&kind.a, &u), linalg::mat_vec(&kind.a, &start));
                            let global = linalg::mat_vec(&mean.a, &start);
                            (0..2).for_each(|i| u[i] += 0.2 * (-own[i] - global[i] + own_start[i]));
                        }
                        (0..2).for_each(|i| next[i] += 0.5 / 3.0 * (u[i] - start[i]));
                    }
                    next
                })
                .collect();
            move |i, j| columns[j][i]
        });
        assert!((by_steps - global_memory_map(&systems, &setting)).norm_max() < 1e-14);
    }

    #[test]
    fn control_variates_have_unstable_windows() {
        // Two equal agents in the plane whose matrix rotates, eigenvalues a +- i w. With z = eta H (a + i w) and eta small, their
        // difference follows |1 - (1 - e^-z) / z|, which rises above 1 and falls again as eta H grows.
        let (a, w, eta) = (0.05, 1.0, 1e-4);
        let system = System { a: linalg::from_rows(2, 2, &[a, w, -w, a]), b: vec![0.0; 2] };
        let systems = Systems::new(vec![system], vec![0, 0], vec![0.5; 2]);
        let radius = |h: u64| control_variates_radius(&systems, &RoundSetting::new(eta, h).unwrap()).unwrap();
        for (h, unstable) in [(20_000, false), (45_000, true), (70_000, false)] {
            let z = faer::c64::new(a, w) * eta * h as f64;
            let one = faer::c64::new(1.0, 0.0);
            let decay = faer::c64::new(z.im.cos(), -z.im.sin()) * (-z.re).exp();
            let want = (one - (one - decay) / z).norm().max(decay.norm());
            assert!((radius(h) - want).abs() < 1e-4, "{} {want}", radius(h));
            assert_eq!(radius(h) > 1.0, unstable, "H = {h}");
        }
        let edge = largest_stable_step(|eta| control_variates_radius(&systems, &RoundSetting::new(eta, 1000)?), 2.0, 1000.0).unwrap();
        assert!(edge > 0.002 && edge < 0.0045, "below the window, not above it: {edge}");
    }

    #[test]
    fn radii_agree_for_one_local_step() {
        // With H = 1 every method is the same map of theta, and talking always is talking after one step.
        let agents = Draw::new(23).finite(2, 2, 3);
        let (systems, moments) = federation(&agents, &[2, 1]);
        let setting = RoundSetting::new(0.2, 1).unwrap();
        let plain = plain_radius(&systems, &setting).unwrap();
        let others = [
            global_memory_radius(&systems, &setting),
            control_variates_radius(&systems, &setting),
            random_talk_radius(&systems, 0.2, 1.0, 1.0),
        ];
        for radius in others {
            assert!((radius.unwrap() - plain).abs() < 1e-12);
        }
        assert!(FedLsaMse::new(&systems, &moments, &setting, 1).unwrap().radius().unwrap() > plain * plain);
    }
}
