//! Comparison with the joint system of all agents, written out step by step, and with the recursions of i.i.d. samples.

use faer::prelude::*;

use super::*;
use crate::exact_mse::{ExactMse, FedLsaMse, ScafflsaMse};
use crate::testing::Draw;
use fedsa::problem::law::NoiseLaw;
use fedsa::problem::systems::{Moments, System};
use fedsa::sampling::ChainStart;

fn systems(seed: u64, weights: Vec<f64>, kind_of: Vec<u32>, d: usize) -> Systems {
    let mut draw = Draw::new(seed);
    let kinds = (0..=*kind_of.iter().max().unwrap()).map(|_| System { a: draw.stable_matrix(d), b: draw.vector(d) }).collect();
    Systems::new(kinds, kind_of, weights)
}

/// Noise with a memory of this radius.
fn noise(seed: u64, d: usize, radius: f64, from_zero: bool) -> NoiseLaw {
    let m = Draw::new(seed).matrix(d);
    let m = Scale(radius / linalg::spectral_radius(&m).unwrap()) * m;
    let std = 0.7;
    let covariance = linalg::discrete_lyapunov(&m, &(Scale(std * std) * Mat::<f64>::identity(d, d)));
    let start = if from_zero { Mat::zeros(d, d) } else { covariance.clone() };
    NoiseLaw { memory: m, std, covariance, start }
}

fn sampling(kind: Law, batch: usize) -> Sampling {
    Sampling::default().with_kind(kind).with_batch(batch).with_start(ChainStart::Stationary)
}

/// All agents: theta, their controls and their noise.
#[derive(Clone)]
struct All {
    theta: Vec<f64>,
    xi: Vec<Vec<f64>>,
    x: Vec<Vec<f64>>,
}

/// One round of a method as it is run, with the normal numbers `w` of every agent, step and sample.
fn run_round(
    all: &All,
    systems: &Systems,
    laws: &[NoiseLaw],
    batch: usize,
    setting: &RoundSetting,
    rule: Drift,
    mut w: impl FnMut() -> Vec<f64>,
) -> All {
    let (n, d, h) = (systems.weights.len(), all.theta.len(), setting.local_steps as usize);
    let mut next = all.clone();
    // Every agent's noise of every step, the mean of a batch.
    let noises: Vec<Vec<Vec<f64>>> = (0..n)
        .map(|c| {
            let mut of_step = || {
                let mut mean = vec![0.0; d];
                for _ in 0..batch {
                    let (w, law) = (w(), &laws[if laws.len() == 1 { 0 } else { c }]);
                    let moved = linalg::mat_vec(&law.memory, &next.x[c]);
                    next.x[c] = moved.iter().zip(w).map(|(m, w)| m + law.std * w).collect();
                    (0..d).for_each(|i| mean[i] += next.x[c][i] / batch as f64);
                }
                mean
            };
            (0..h + usize::from(rule == Drift::GlobalMemory { fresh: 1 })).map(|_| of_step()).collect()
        })
        .collect();
    let sample = |c: usize, theta: &[f64], step: usize| -> Vec<f64> {
        systems.of(c).mean(theta).iter().zip(&noises[c][step]).map(|(g, x)| g + x).collect()
    };
    let mut global = vec![0.0; d];
    for c in 0..n {
        let g = sample(c, &all.theta, 0);
        (0..d).for_each(|i| global[i] += systems.weights[c] * g[i]);
    }
    let directions: Vec<Vec<f64>> = (0..n)
        .map(|c| {
            let first = sample(c, &all.theta, 0);
            let drift: Vec<f64> = match rule {
                Drift::Zero => vec![0.0; d],
                Drift::GlobalMemory { .. } => (0..d).map(|i| global[i] - first[i]).collect(),
                _ => all.xi[c].clone(),
            };
            let mut theta = all.theta.clone();
            for step in 0..h {
                let g = sample(c, &theta, step + usize::from(rule == Drift::GlobalMemory { fresh: 1 }));
                (0..d).for_each(|i| theta[i] += setting.step_size * (g[i] + drift[i]));
            }
            (0..d).map(|i| (theta[i] - all.theta[i]) / setting.span()).collect()
        })
        .collect();
    let mean: Vec<f64> = (0..d).map(|i| (0..n).map(|c| systems.weights[c] * directions[c][i]).sum()).collect();
    for i in 0..d {
        next.theta[i] += setting.server_step * setting.span() * mean[i];
        for (xi, direction) in next.xi.iter_mut().zip(&directions) {
            xi[i] += mean[i] - direction[i];
        }
    }
    next
}

/// The mean and covariance of all agents' states along the rounds, without any structure: the round is an affine map of
/// (theta, xi, x, w), whose matrix is found from unit vectors.
fn by_force(
    systems: &Systems,
    laws: &[NoiseLaw],
    batch: usize,
    setting: &RoundSetting,
    rule: Drift,
    theta_0: &[f64],
    rounds: u64,
) -> Vec<MeanSquare> {
    let (n, d) = (systems.weights.len(), theta_0.len());
    let (size, normals) = (d * (2 * n + 1), n * d * batch * (setting.local_steps as usize + 1));
    let unpack = |s: &[f64]| {
        let block = |k: usize| s[k * d..(k + 1) * d].to_vec();
        All { theta: block(0), xi: (0..n).map(|c| block(1 + c)).collect(), x: (0..n).map(|c| block(1 + n + c)).collect() }
    };
    let step = |s: &[f64], w: &[f64]| -> Vec<f64> {
        let mut at = 0;
        let draw = || {
            at += d;
            w[at - d..at].to_vec()
        };
        let all = run_round(&unpack(s), systems, laws, batch, setting, rule, draw);
        all.theta.into_iter().chain(all.xi.into_iter().flatten()).chain(all.x.into_iter().flatten()).collect()
    };
    let (zero, still) = (vec![0.0; size], vec![0.0; normals]);
    let offset = step(&zero, &still);
    let unit = |n: usize, j: usize| (0..n).map(|i| f64::from(i == j)).collect::<Vec<f64>>();
    let minus = |s: Vec<f64>| s.iter().zip(&offset).map(|(s, o)| s - o).collect::<Vec<f64>>();
    let columns: Vec<Vec<f64>> = (0..size).map(|j| minus(step(&unit(size, j), &still))).collect();
    let f = Mat::from_fn(size, size, |i, j| columns[j][i]);
    let columns: Vec<Vec<f64>> = (0..normals).map(|j| minus(step(&zero, &unit(normals, j)))).collect();
    let e = Mat::from_fn(size, normals, |i, j| columns[j][i]);
    let added = &e * e.transpose();
    let mut covariance = Mat::<f64>::zeros(size, size);
    for c in 0..n {
        covariance
            .get_mut((1 + n + c) * d..(2 + n + c) * d, (1 + n + c) * d..(2 + n + c) * d)
            .copy_from(&laws[if laws.len() == 1 { 0 } else { c }].start);
    }
    let root = systems.root().unwrap();
    let mut mean = zero.clone();
    mean[..d].copy_from_slice(theta_0);
    let mut curve = Vec::new();
    for _ in 0..=rounds {
        let bias = (0..d).map(|i| mean[i] - root[i]).collect();
        curve.push(MeanSquare { bias, noise: (0..d).map(|i| covariance[(i, i)]).sum() });
        mean = step(&mean, &still);
        covariance = &f * &covariance * f.transpose() + &added;
    }
    curve
}

const RULES: [Drift; 4] =
    [Drift::Zero, Drift::GlobalMemory { fresh: 0 }, Drift::GlobalMemory { fresh: 1 }, Drift::ControlVariate { talk: None }];

#[test]
fn curve_and_floor_are_those_of_the_whole_joint_system() {
    let systems = systems(5, vec![0.5, 0.2, 0.3], vec![0, 1, 0], 2);
    let theta_0 = [1.5, -0.5];
    for (rule, h, alpha, batch, from_zero) in RULES.into_iter().flat_map(|rule| {
        [(rule, 1, 1.0, 1, false), (rule, 3, 1.0, 1, true), (rule, 3, 0.8, 1, false), (rule, 2, 1.0, 3, false), (rule, 4, 1.1, 2, true)]
    }) {
        // One law for all agents; with a server step other than 1, one law for each.
        let of = |c: u64| noise(6 + c, 2, 0.8 - 0.3 * c as f64, from_zero);
        let laws = if alpha == 1.0 { vec![of(0)] } else { vec![of(0), of(1), of(2)] };
        let setting = RoundSetting::new(0.15, h).unwrap().with_server_step(alpha).unwrap();
        let what = format!("{rule:?}, H = {h}, alpha_g = {alpha}, batch {batch}, from zero: {from_zero}");
        let force = by_force(&systems, &laws, batch, &setting, rule, &theta_0, 300);
        let exact = GaussMarkov::new(&systems, &laws, sampling(Law::Markov, batch), &setting, rule).unwrap();
        let rounds: Vec<u64> = (0..=300).collect();
        let curve = exact.curve(&theta_0, &InitialControls::Zero, &rounds).unwrap();
        for (t, (got, want)) in curve.iter().zip(&force).enumerate() {
            assert!((got.noise - want.noise).abs() < 1e-12 * want.noise.max(1e-3), "{what}: round {t}, {} {}", got.noise, want.noise);
            let away = linalg::distance_sq(&got.bias, &want.bias).sqrt();
            assert!(away < 1e-12, "{what}: round {t}, the bias is {away:e} off");
        }
        let (got, want) = (exact.floor().unwrap(), &force[300]);
        assert!((got.noise - want.noise).abs() < 1e-11 * want.noise, "{what}: floor {} {}", got.noise, want.noise);
        assert!(linalg::distance_sq(&got.bias, &want.bias).sqrt() < 1e-9, "{what}");
    }
}

/// Second moments of samples `(A, b + x)`, where x has this covariance.
fn moments(system: &System, covariance: &Mat<f64>) -> Moments {
    let (d, System { a, b }) = (system.b.len(), system);
    Moments {
        aa: linalg::kron(a, a),
        ab: Mat::from_fn(d * d, d, |r, j| a[(r / d, j)] * b[r % d]),
        bb: Mat::from_fn(d, d, |i, k| b[i] * b[k] + covariance[(i, k)]),
    }
}

#[test]
fn noise_without_memory_is_that_of_independent_samples() {
    let systems = systems(8, vec![0.4, 0.35, 0.25], vec![0, 1, 2], 3);
    let setting = RoundSetting::new(0.2, 4).unwrap().with_server_step(0.9).unwrap();
    let (theta_0, rounds) = ([1.0, 0.0, -2.0], [0, 1, 2, 7, 50, 400]);
    let white = noise(9, 3, 0.0, false);
    let coloured = noise(9, 3, 0.7, false);
    for (law, kind, batch) in [(&white, Law::Markov, 2), (&white, Law::Iid, 1), (&coloured, Law::Iid, 3)] {
        let all: Vec<Moments> = systems.kinds.iter().map(|kind| moments(kind, &law.covariance)).collect();
        let of = |rule| GaussMarkov::new(&systems, std::slice::from_ref(law), sampling(kind, batch), &setting, rule).unwrap();
        let close = |got: &MeanSquare, want: &MeanSquare, what: &str| {
            assert!((got.noise - want.noise).abs() <= 1e-12 * want.noise, "{what}: {} {}", got.noise, want.noise);
            assert!(linalg::distance_sq(&got.bias, &want.bias).sqrt() < 1e-12, "{what}");
        };
        let fedlsa = FedLsaMse::new(&systems, &all, &setting, batch as u64).unwrap();
        close(&of(Drift::Zero).floor().unwrap(), &fedlsa.floor().unwrap(), "FedLSA");
        let pairs = of(Drift::Zero).curve(&theta_0, &InitialControls::Zero, &rounds).unwrap();
        pairs.iter().zip(fedlsa.curve(&theta_0, &rounds).unwrap()).for_each(|(got, want)| close(got, &want, "FedLSA's curve"));
        for controls in [
            InitialControls::Zero,
            InitialControls::Root,
            InitialControls::Given(vec![vec![1.0, 0.0, 0.5], vec![-1.6, 0.0, -0.8], vec![0.64, 0.0, 0.32]]),
        ] {
            let scafflsa = ScafflsaMse::new(&systems, &all, &setting, batch as u64, &controls).unwrap();
            close(&of(Drift::ControlVariate { talk: None }).floor().unwrap(), &scafflsa.floor().unwrap(), "SCAFFLSA");
            let pairs = of(Drift::ControlVariate { talk: None }).curve(&theta_0, &controls, &rounds).unwrap();
            pairs.iter().zip(scafflsa.curve(&theta_0, &rounds).unwrap()).for_each(|(got, want)| close(got, &want, "SCAFFLSA's curve"));
        }
    }
}

#[test]
fn many_distinct_agents_are_summed_to_the_same_floor() {
    // 11 kinds in 2 dimensions by both ways: the Lyapunov equation and the limit of the curve.
    let n = 11;
    let systems = systems(12, vec![1.0 / n as f64; n], (0..n as u32).collect(), 2);
    let setting = RoundSetting::new(0.1, 5).unwrap();
    let law = noise(13, 2, 0.9, false);
    let exact =
        GaussMarkov::new(&systems, std::slice::from_ref(&law), sampling(Law::Markov, 1), &setting, Drift::ControlVariate { talk: None })
            .unwrap();
    let (solved, summed) = (exact.floor().unwrap().noise, exact.summed_noise(exact.radius().unwrap()).unwrap());
    assert!((solved - summed).abs() < 1e-12 * solved, "{solved} {summed}");
}

#[test]
fn what_has_no_floor_is_refused() {
    let systems = systems(14, vec![1.0], vec![0], 2);
    let law = noise(15, 2, 0.5, false);
    let of = |eta: f64, kind: Law| {
        let setting = RoundSetting::new(eta, 2).unwrap();
        GaussMarkov::new(&systems, std::slice::from_ref(&law), sampling(kind, 1), &setting, Drift::GlobalMemory { fresh: 0 })
    };
    assert!(of(9.0, Law::Markov).unwrap().floor().unwrap_err().what.contains("diverges"));
    assert!(of(0.1, Law::Mean).unwrap_err().what.contains("no noise"));
    let curve = of(0.1, Law::Iid).unwrap().curve(&[0.0, 0.0], &InitialControls::Zero, &[3, 2]);
    assert!(curve.unwrap_err().what.contains("ascending"));
    // One agent, whose methods are all the same.
    let setting = RoundSetting::new(0.3, 3).unwrap();
    let floor = |rule| {
        GaussMarkov::new(&systems, std::slice::from_ref(&law), sampling(Law::Markov, 1), &setting, rule).unwrap().floor().unwrap().noise
    };
    assert!(
        (floor(Drift::Zero) - floor(Drift::GlobalMemory { fresh: 0 })).abs() < 1e-13
            && (floor(Drift::Zero) - floor(Drift::ControlVariate { talk: None })).abs() < 1e-13
    );
}

#[test]
fn the_curves_of_a_hundred_distinct_agents_end_at_their_floors() {
    let systems = systems(16, vec![0.01; 100], (0..100).collect(), 10);
    let law = noise(17, 10, 1.0 / 1.2, false);
    let setting = RoundSetting::new(0.02, 10).unwrap();
    for rule in RULES {
        let exact = GaussMarkov::new(&systems, std::slice::from_ref(&law), sampling(Law::Markov, 1), &setting, rule).unwrap();
        let floor = exact.floor().unwrap();
        let last = &exact.curve(&[0.0; 10], &InitialControls::Zero, &[1500]).unwrap()[0];
        assert!((last.noise - floor.noise).abs() < 1e-9 * floor.noise, "{rule:?}: {} {}", last.noise, floor.noise);
    }
}
