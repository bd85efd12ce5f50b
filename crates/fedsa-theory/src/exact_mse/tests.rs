//! Tests of both methods by direct computation: the joint second moment of all
//! agents' iterates, sample by sample and step by step.

use faer::prelude::*;

use super::*;
use crate::RoundSetting;
use crate::testing::{Draw, Finite, federation};
use fedsa::linalg::Mat;
use fedsa::problem::systems::{Moments, Systems};
use fedsa::uplink::stage::delay::Before;

/// The joint second moment of `(l_1 .. l_N, theta, xi_1 .. xi_N, 1)`, l_c the local iterates.
struct Naive<'a> {
    kinds: &'a [Finite],
    systems: &'a Systems,
    setting: RoundSetting,
    /// Whether the controls move (SCAFFLSA) or stay (FedLSA).
    controls: bool,
    moment: Mat<f64>,
}

impl<'a> Naive<'a> {
    fn new(kinds: &'a [Finite], systems: &'a Systems, setting: RoundSetting, controls: bool, theta: &[f64], xi: &[Vec<f64>]) -> Self {
        let start: Vec<f64> = (0..xi.len()).flat_map(|_| theta).chain(theta).chain(xi.iter().flatten()).copied().chain([1.0]).collect();
        let moment = Mat::from_fn(start.len(), start.len(), |i, j| start[i] * start[j]);
        Self { kinds, systems, setting, controls, moment }
    }

    fn agents(&self) -> usize {
        self.systems.weights.len()
    }

    /// The coordinate of component i of l_c (block c), theta (block N) or xi_c (block N + 1 + c).
    fn at(&self, block: usize, i: usize) -> usize {
        block * self.systems.dim() + i
    }

    /// The matrix of one step of all agents with the samples `z`.
    fn step(&self, z: &[usize]) -> Mat<f64> {
        let (n, d, eta) = (self.agents(), self.systems.dim(), self.setting.step_size);
        let side = self.moment.nrows();
        let mut m = Mat::<f64>::identity(side, side);
        for c in 0..n {
            let (a, b) = &self.kinds[self.systems.kind_of[c] as usize].samples[z[c]];
            for i in 0..d {
                for j in 0..d {
                    m[(self.at(c, i), self.at(c, j))] -= eta * a[(i, j)];
                }
                m[(self.at(c, i), self.at(n + 1 + c, i))] += eta;
                m[(self.at(c, i), side - 1)] += eta * b[i];
            }
        }
        m
    }

    /// The matrix of the server's step and the start of the next round.
    fn talk(&self) -> Mat<f64> {
        let (n, d, alpha, span) = (self.agents(), self.systems.dim(), self.setting.server_step, self.setting.span());
        let side = self.moment.nrows();
        let mut m = Mat::<f64>::identity(side, side);
        for i in 0..d {
            let mut mean = vec![0.0; side];
            for (c, p) in self.systems.weights.iter().enumerate() {
                mean[self.at(c, i)] += p;
            }
            let theta = self.at(n, i);
            for j in 0..side {
                let moved = alpha * mean[j] + if j == theta { 1.0 - alpha } else { 0.0 };
                m[(theta, j)] = moved;
                (0..n).for_each(|c| m[(self.at(c, i), j)] = moved);
                if self.controls {
                    // xi_c += v - v_c = (mean_c l_c - l_c) / E.
                    for c in 0..n {
                        let own = f64::from(j == self.at(c, i));
                        m[(self.at(n + 1 + c, i), j)] += (mean[j] - own) / span;
                    }
                }
            }
        }
        m
    }

    fn round(&mut self) {
        let samples: Vec<usize> = self.systems.kind_of.iter().map(|k| self.kinds[*k as usize].samples.len()).collect();
        let count: usize = samples.iter().product();
        for _ in 0..self.setting.local_steps {
            let mut next = Mat::<f64>::zeros(self.moment.nrows(), self.moment.nrows());
            for joint in 0..count {
                let mut rest = joint;
                let z: Vec<usize> = samples.iter().map(|m| (rest % m, rest /= m).0).collect();
                let m = self.step(&z);
                next += Scale(1.0 / count as f64) * (&m * &self.moment * m.transpose());
            }
            self.moment = next;
        }
        let talk = self.talk();
        self.moment = &talk * &self.moment * talk.transpose();
    }

    /// `(||E theta - theta*||^2, E ||theta - theta*||^2)`.
    fn errors(&self) -> (f64, f64) {
        let root = self.systems.root().unwrap();
        let last = self.moment.nrows() - 1;
        let (mut bias, mut mse) = (0.0, 0.0);
        for (i, r) in root.iter().enumerate() {
            let k = self.at(self.agents(), i);
            let mean = self.moment[(k, last)];
            bias += (mean - r).powi(2);
            mse += self.moment[(k, k)] - 2.0 * r * mean + r * r;
        }
        (bias, mse)
    }

    /// `E ||theta - theta*||^2 + E^2 sum p_c ||xi_c - xi*_c||^2`.
    fn lyapunov(&self) -> f64 {
        let (root, last) = (self.systems.root().unwrap(), self.moment.nrows() - 1);
        let mut controls = 0.0;
        for (c, p) in self.systems.weights.iter().enumerate() {
            for (i, push) in self.systems.of(c).mean(&root).iter().enumerate() {
                // xi*_c = -gbar_c(theta*).
                let k = self.at(self.agents() + 1 + c, i);
                controls += p * (self.moment[(k, k)] + 2.0 * push * self.moment[(k, last)] + push * push);
            }
        }
        self.errors().1 + self.setting.span().powi(2) * controls
    }
}

fn close(got: f64, want: f64, what: &str) {
    assert!((got - want).abs() < 1e-10 * want.abs().max(1.0), "{what}: {got} {want}");
}

/// Two kinds, three samples each, d = 2.
fn tiny(seed: u64, copies: &[usize]) -> (Vec<Finite>, Systems, Vec<Moments>) {
    let kinds = Draw::new(seed).finite(copies.len(), 2, 3);
    let (systems, moments) = federation(&kinds, copies);
    (kinds, systems, moments)
}

#[test]
fn fedlsa_is_the_naive_recursion() {
    for (seed, copies, weights, h, alpha) in
        [(30, [1, 1], vec![0.5, 0.5], 2, 1.0), (31, [1, 1], vec![0.3, 0.7], 3, 0.8), (32, [2, 1], vec![0.2, 0.3, 0.5], 5, 1.2)]
    {
        let (kinds, mut systems, moments) = tiny(seed, &copies);
        systems.weights = weights;
        let setting = RoundSetting::new(0.3, h).unwrap().with_server_step(alpha).unwrap();
        let theory = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
        let theta_0 = [1.0, -0.5];
        let curve = theory.curve(&theta_0, &(0..=60).collect::<Vec<_>>()).unwrap();
        let xi = vec![vec![0.0; 2]; systems.weights.len()];
        let mut naive = Naive::new(&kinds, &systems, setting, false, &theta_0, &xi);
        for (t, point) in curve.iter().enumerate() {
            let (bias, mse) = naive.errors();
            close(point.bias_sq(), bias, &format!("bias at round {t}"));
            close(point.mse(), mse, &format!("error at round {t}"));
            naive.round();
        }
        let floor = theory.floor().unwrap();
        let (bias, mse) = naive.errors();
        close(floor.bias_sq(), bias, "bias of the floor");
        close(floor.mse(), mse, "floor");
        close(floor.mse_around(&theory.mean().bias().unwrap()), mse - bias, "noise around the limit");
        assert!(floor.noise > 1e-3 && floor.bias_sq() > 1e-7, "{floor:?}");
    }
}

#[test]
fn scafflsa_is_the_naive_recursion() {
    for (seed, copies, weights, h, alpha) in
        [(33, [1, 1], vec![0.5, 0.5], 2, 1.0), (34, [1, 1], vec![0.3, 0.7], 3, 0.8), (35, [2, 1], vec![0.3, 0.3, 0.4], 4, 1.1)]
    {
        let (kinds, mut systems, moments) = tiny(seed, &copies);
        systems.weights = weights;
        let n = systems.weights.len();
        let setting = RoundSetting::new(0.25, h).unwrap().with_server_step(alpha).unwrap();
        let theta_0 = [1.0, -0.5];
        // Different initial controls split the exchangeable agents of the third case into classes.
        let mut given: Vec<Vec<f64>> = (0..n).map(|c| vec![c as f64, -0.3]).collect();
        for i in 0..2 {
            let mean: f64 = systems.weights.iter().zip(&given).map(|(p, xi)| p * xi[i]).sum();
            given.iter_mut().for_each(|xi| xi[i] -= mean);
        }
        let root = systems.root().unwrap();
        let optimal: Vec<Vec<f64>> = (0..n).map(|c| systems.of(c).mean(&root).iter().map(|g| -g).collect()).collect();
        for (controls, xi) in [
            (InitialControls::Zero, vec![vec![0.0; 2]; n]),
            (InitialControls::Root, optimal),
            (InitialControls::Given(given.clone()), given),
        ] {
            let theory = ScafflsaMse::new(&systems, &moments, &setting, 1, &controls).unwrap();
            let curve = theory.curve(&theta_0, &(0..=60).collect::<Vec<_>>()).unwrap();
            let lyapunov = theory.lyapunov(&theta_0, &(0..=60).collect::<Vec<_>>()).unwrap();
            let mut naive = Naive::new(&kinds, &systems, setting, true, &theta_0, &xi);
            for (t, point) in curve.iter().enumerate() {
                let (bias, mse) = naive.errors();
                close(point.bias_sq(), bias, &format!("bias at round {t}"));
                close(point.mse(), mse, &format!("error at round {t}"));
                close(lyapunov[t], naive.lyapunov(), &format!("Lyapunov function at round {t}"));
                naive.round();
            }
            (0..200).for_each(|_| naive.round());
            close(theory.floor().unwrap().mse(), naive.errors().1, "floor");
        }
    }
}

#[test]
fn a_batch_is_a_sample_of_means() {
    let (kinds, systems, moments) = tiny(36, &[1, 1]);
    let pairs: Vec<Finite> = (kinds.iter())
        .map(|kind| {
            let pair = |i: usize, j: usize| {
                let ((a, b), (a2, b2)) = (&kind.samples[i], &kind.samples[j]);
                (Scale(0.5) * (a + a2), b.iter().zip(b2).map(|(x, y)| 0.5 * (x + y)).collect())
            };
            Finite { samples: (0..9).map(|ij| pair(ij / 3, ij % 3)).collect() }
        })
        .collect();
    let (same_systems, pair_moments) = federation(&pairs, &[1, 1]);
    let setting = RoundSetting::new(0.3, 4).unwrap();
    let by_batch = FedLsaMse::new(&systems, &moments, &setting, 2).unwrap().floor().unwrap();
    let by_pairs = FedLsaMse::new(&same_systems, &pair_moments, &setting, 1).unwrap().floor().unwrap();
    close(by_batch.mse(), by_pairs.mse(), "FedLSA");
    let controlled = |s, m, batch| ScafflsaMse::new(s, m, &setting, batch, &InitialControls::Zero).unwrap().floor().unwrap();
    close(controlled(&systems, &moments, 2).mse(), controlled(&same_systems, &pair_moments, 1).mse(), "SCAFFLSA");
}

#[test]
fn simulation_agrees() {
    let (kinds, systems, moments) = tiny(37, &[2, 1]);
    let setting = RoundSetting::new(0.5, 3).unwrap();
    let (eta, span, n) = (setting.step_size, setting.span(), 3);
    let theta_0 = vec![1.0, 1.0];
    let rounds = [1, 3, 8];
    let root = systems.root().unwrap();
    let mut draw = Draw::new(38);
    let runs = 20_000;
    for controls in [false, true] {
        let want = if controls {
            ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap().curve(&theta_0, &rounds).unwrap()
        } else {
            FedLsaMse::new(&systems, &moments, &setting, 1).unwrap().curve(&theta_0, &rounds).unwrap()
        };
        let mut sums = [[0.0f64; 2]; 3];
        for _ in 0..runs {
            let (mut theta, mut xi) = (theta_0.clone(), vec![vec![0.0; 2]; n]);
            for t in 1..=rounds[2] {
                let ends: Vec<Vec<f64>> = (0..n)
                    .map(|c| {
                        let kind = &kinds[systems.kind_of[c] as usize];
                        (0..3).fold(theta.clone(), |l, _| kind.step(draw.index(3), &l, eta, &xi[c]))
                    })
                    .collect();
                for i in 0..2 {
                    theta[i] = ends.iter().map(|e| e[i]).sum::<f64>() / n as f64;
                    if controls {
                        (0..n).for_each(|c| xi[c][i] += (theta[i] - ends[c][i]) / span);
                    }
                }
                if let Some(k) = rounds.iter().position(|r| *r == t) {
                    let error = linalg::distance_sq(&theta, &root);
                    sums[k][0] += error;
                    sums[k][1] += error * error;
                }
            }
        }
        for (sum, want) in sums.iter().zip(&want) {
            let mean = sum[0] / f64::from(runs);
            let se = ((sum[1] / f64::from(runs) - mean * mean) / f64::from(runs)).sqrt();
            assert!((mean - want.mse()).abs() < 4.0 * se, "{mean} +- {se}, {}", want.mse());
        }
    }
}

#[test]
fn classes_of_agents_are_the_agents() {
    // Twelve agents of two kinds: as two classes, and as twelve, whose controls differ in a last bit.
    let (_, systems, moments) = tiny(39, &[7, 5]);
    let setting = RoundSetting::new(0.2, 6).unwrap();
    let apart = (0..12).map(|c| vec![1e-30 * f64::from(c), -1e-30 * f64::from(c)]).collect::<Vec<_>>();
    let mean: f64 = apart.iter().map(|xi| xi[0]).sum::<f64>() / 12.0;
    let apart = apart.iter().map(|xi| vec![xi[0] - mean, xi[1] + mean]).collect();
    let few = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
    let many = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Given(apart)).unwrap();
    let rounds = [0, 1, 2, 10, 40];
    let curves = (few.curve(&[1.0, 0.0], &rounds).unwrap(), many.curve(&[1.0, 0.0], &rounds).unwrap());
    for (a, b) in curves.0.iter().zip(&curves.1) {
        close(a.mse(), b.mse(), "curve");
    }
    // 729 numbers in the state of twelve: the floor comes from BiCGStab, the radius from Arnoldi.
    close(few.floor().unwrap().mse(), many.floor().unwrap().mse(), "floor");
    close(few.radius().unwrap(), many.radius().unwrap(), "radius");
}

#[test]
fn long_gaps_are_leapt_over() {
    let (_, systems, moments) = tiny(40, &[1, 1]);
    let setting = RoundSetting::new(0.001, 2).unwrap();
    let theory = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
    let (leaps, steps) =
        (theory.curve(&[1.0, 0.0], &[700, 1400]).unwrap(), theory.curve(&[1.0, 0.0], &(0..=1400).collect::<Vec<_>>()).unwrap());
    close(leaps[0].mse(), steps[700].mse(), "leap");
    close(leaps[1].mse(), steps[1400].mse(), "second leap");
}

#[test]
fn the_mean_square_has_a_limit_of_its_own() {
    // A(z) in {3, -1}: E (1 - eta A)^2 = 1 - 2 eta + 5 eta^2 < 1 below eta = 0.4; the mean alone would allow eta = 2.
    let agent = || Finite { samples: vec![(Mat::full(1, 1, 3.0), vec![1.0]), (Mat::full(1, 1, -1.0), vec![0.0])] };
    let (systems, moments) = federation(&[agent()], &[1]);
    for (eta, stable) in [(0.39, true), (0.41, false)] {
        let setting = RoundSetting::new(eta, 7).unwrap();
        let theory = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
        close(theory.radius().unwrap(), (1.0f64 - 2.0 * eta + 5.0 * eta * eta).powi(7), "radius");
        assert_eq!(theory.floor().is_ok(), stable);
        let controlled = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
        close(controlled.radius().unwrap(), theory.radius().unwrap(), "one agent has no control");
        assert_eq!(controlled.floor().is_ok(), stable);
    }
}

#[test]
fn a_floor_exists_exactly_below_radius_one() {
    let spread = |s: f64| Finite { samples: vec![(Mat::full(1, 1, 1.0 + s), vec![1.0]), (Mat::full(1, 1, 1.0 - s), vec![0.0])] };
    let (systems, moments) = federation(&[spread(2.0), spread(4.0)], &[2, 1]);
    let mut seen = [0; 2];
    for step in 1..40 {
        let setting = RoundSetting::new(0.02 * f64::from(step), 3).unwrap();
        let plain = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
        assert_eq!(plain.floor().is_ok(), plain.radius().unwrap() < 1.0);
        let controlled = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
        let stable = controlled.radius().unwrap() < 1.0;
        assert_eq!(controlled.floor().is_ok(), stable, "eta = {}", setting.step_size);
        seen[usize::from(stable)] += 1;
    }
    assert!(seen.iter().all(|n| *n > 3), "{seen:?}");
}

/// `A(z)` is `1 + s` or `1 - s`, and b is 0: the root is 0, and there is no noise there.
fn without_rewards(spreads: &[f64]) -> (Systems, Vec<Moments>) {
    let one = |s: &f64| Finite { samples: [1.0 + s, 1.0 - s].map(|a| (Mat::full(1, 1, a), vec![0.0])).to_vec() };
    federation(&spreads.iter().map(one).collect::<Vec<_>>(), &vec![1; spreads.len()])
}

/// A floor without noise at the root exists exactly where the mean square converges; then it is 0.
fn without_noise(floor: fedsa::error::Result<MeanSquare>, radius: f64, seen: &mut [u32; 2], what: &str) {
    seen[usize::from(radius < 1.0)] += 1;
    match floor {
        Ok(floor) => assert!(radius < 1.0 && (0.0..1e-25).contains(&floor.noise) && floor.bias_sq() < 1e-25, "{what}: {radius}, {floor:?}"),
        Err(e) => assert!(radius >= 1.0, "{what}: {radius}, {e}"),
    }
}

#[test]
fn floors_without_noise_at_the_root_exist_exactly_below_radius_one() {
    let (systems, moments) = without_rewards(&[6.0, 9.0]);
    // Delays of 25 rounds and 18 kinds: radii from Arnoldi, while an auxiliary source decides on the floor.
    let many: Vec<f64> = (0..18).map(|k| 30.0 + 0.2 * f64::from(k)).collect();
    let (many, moments_of_many) = without_rewards(&many);
    let mut seen = [[0; 2]; 5];
    for step in 1..40 {
        let eta = 0.002 * f64::from(step);
        let at = |setting: RoundSetting, seen: &mut [[u32; 2]; 5]| {
            let plain = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
            without_noise(plain.floor(), plain.radius().unwrap(), &mut seen[0], &format!("FedLSA, {setting:?}"));
            for (k, tau) in [(1, 3), (2, 25)] {
                let delay = (tau, Before::First);
                let delayed = DelayedMse::new(&systems, Some(&moments), &setting, 1, &ArrivalLaw::clear(), delay).unwrap();
                without_noise(delayed.floor(), delayed.radius().unwrap(), &mut seen[k], &format!("a delay of {tau}, {setting:?}"));
            }
            for (k, systems, moments) in [(3, &systems, &moments), (4, &many, &moments_of_many)] {
                let controlled = ScafflsaMse::new(systems, moments, &setting, 1, &InitialControls::Zero).unwrap();
                let what = format!("{} agents with controls, {setting:?}", systems.weights.len());
                without_noise(controlled.floor(), controlled.radius().unwrap(), &mut seen[k], &what);
            }
        };
        at(RoundSetting::new(eta, 1).unwrap(), &mut seen);
        at(RoundSetting::new(eta, 3).unwrap(), &mut seen);
    }
    assert!(seen.iter().flatten().all(|n| *n > 3), "{seen:?}");
}

#[test]
fn agents_alike_have_no_noise_where_only_messages_are_lost() {
    let mut seen = [0; 2];
    for seed in 50..60 {
        for d in [1, 2, 3] {
            let agent = Finite { samples: vec![(Draw::new(seed).stable_matrix(d), Draw::new(seed + 100).vector(d))] };
            for copies in [1, 3] {
                let (systems, moments) = federation(std::slice::from_ref(&agent), &[copies]);
                let setting = RoundSetting::new(0.02, 2).unwrap();
                let arrivals = ArrivalLaw::by_factors(0.7, 0.7, 0.0, copies);
                let plain = FedLsaMse::arriving(&systems, None, &setting, 1, &arrivals).unwrap();
                without_noise(plain.floor(), plain.radius().unwrap(), &mut seen, "FedLSA");
                for tau in [1, 2, 4, 10] {
                    let delayed = DelayedMse::new(&systems, None, &setting, 1, &arrivals, (tau, Before::First)).unwrap();
                    without_noise(delayed.floor(), delayed.radius().unwrap(), &mut seen, &format!("a delay of {tau}, d = {d}"));
                }
                // No message is lost here, and samples do not differ.
                let controlled = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
                without_noise(controlled.floor(), controlled.radius().unwrap(), &mut seen, "controls");
            }
        }
    }
    assert!(seen[0] == 0 && seen[1] > 0);
}

#[test]
fn the_only_agent_of_its_class_has_no_deviation() {
    // One agent has no control; `I - S / E` of a rotation has a modulus above 1 all the same.
    let (decay, angle) = (0.95, 100f64.to_radians());
    let q = linalg::from_rows(2, 2, &[angle.cos(), -angle.sin(), angle.sin(), angle.cos()]);
    let a = Mat::<f64>::identity(2, 2) - Scale(decay) * q;
    let agent = Finite { samples: vec![(a.clone(), vec![1.0, 0.3]), (a, vec![-1.0, 0.1])] };
    let (systems, moments) = federation(&[agent], &[1]);
    let setting = RoundSetting::new(1.0, 3).unwrap();
    let plain = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
    let controlled = ScafflsaMse::new(&systems, &moments, &setting, 1, &InitialControls::Zero).unwrap();
    close(plain.radius().unwrap(), f64::powi(decay, 6), "radius of FedLSA");
    close(controlled.radius().unwrap(), f64::powi(decay, 6), "radius with a control");
    close(controlled.floor().unwrap().mse(), plain.floor().unwrap().mse(), "floor");
}

#[test]
fn what_does_not_fit_is_refused() {
    let (_, systems, moments) = tiny(41, &[1, 1]);
    let setting = RoundSetting::new(0.1, 3).unwrap();
    assert!(FedLsaMse::new(&systems, &moments[..1], &setting, 1).is_err());
    assert!(FedLsaMse::new(&systems, &moments, &setting, 0).is_err());
    let unbalanced = InitialControls::Given(vec![vec![1.0, 0.0], vec![0.0, 0.0]]);
    assert_eq!(ScafflsaMse::new(&systems, &moments, &setting, 1, &unbalanced).unwrap_err().key, "controls");
    let theory = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap();
    assert_eq!(theory.curve(&[0.0, 0.0], &[2, 1]).unwrap_err().key, "rounds");
    assert!(RoundSetting::new(0.0, 1).is_err() && RoundSetting::new(0.1, 0).is_err() && setting.with_server_step(-1.0).is_err());
}

/// The instance on which Theorem A.5 of \[S\] fails as printed: three scalar agents, multiplicative noise on one.
#[test]
fn the_error_around_the_limit_passes_the_bound_of_theorem_a5() {
    let agent = |a: f64, sd: f64, local_root: f64| Finite {
        samples: vec![(Mat::full(1, 1, a + sd), vec![a * local_root]), (Mat::full(1, 1, a - sd), vec![a * local_root])],
    };
    let (systems, moments) = federation(&[agent(0.013, 0.05, 0.0), agent(0.02, 0.0, 1.0), agent(0.01, 0.0, -2.0)], &[1, 1, 1]);
    let floor = FedLsaMse::new(&systems, &moments, &RoundSetting::new(0.1, 2).unwrap(), 1).unwrap().floor().unwrap();
    let rms = floor.noise.sqrt();
    assert!(rms > 1.6e-6 && rms < 1.7e-5, "{rms:e}");
    assert!((rms - 7.2e-6).abs() < 0.05e-6, "{rms:e}");
}
