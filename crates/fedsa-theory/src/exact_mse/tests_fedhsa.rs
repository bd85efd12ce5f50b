//! Tests of FedHSA's recursion by enumeration of all samples of a round.

use faer::prelude::*;

use super::*;
use crate::RoundSetting;
use crate::testing::{Draw, Finite, federation};
use fedsa::linalg::Mat;
use fedsa::problem::systems::Systems;

/// The rounds of FedHSA on `(theta, 1)`, one for each choice of all agents' samples, equally likely.
fn all_rounds(kinds: &[Finite], systems: &Systems, setting: &RoundSetting) -> Vec<Mat<f64>> {
    let (d, h, n) = (systems.dim(), setting.local_steps as usize, systems.weights.len());
    let letters = kinds[0].samples.len();
    let mut rounds = Vec::new();
    for word in 0..letters.pow((n * h) as u32) {
        let z = |c: usize, k: usize| word / letters.pow((c * h + k) as u32) % letters;
        let kind = |c: usize| &kinds[systems.kind_of[c] as usize];
        let image = |theta: &[f64]| -> Vec<f64> {
            let direction = |c: usize, k: usize, at: &[f64]| -> Vec<f64> {
                let stepped = kind(c).step(z(c, k), at, 1.0, &vec![0.0; d]);
                stepped.iter().zip(at).map(|(x, y)| x - y).collect()
            };
            let firsts: Vec<Vec<f64>> = (0..n).map(|c| direction(c, 0, theta)).collect();
            let mean: Vec<f64> = (0..d).map(|i| (0..n).map(|c| systems.weights[c] * firsts[c][i]).sum()).collect();
            let mut next = theta.to_vec();
            for (c, first) in firsts.iter().enumerate() {
                let drift: Vec<f64> = (0..d).map(|i| mean[i] - first[i]).collect();
                let end = (0..h).fold(theta.to_vec(), |l, k| kind(c).step(z(c, k), &l, setting.step_size, &drift));
                (0..d).for_each(|i| next[i] += setting.server_step * systems.weights[c] * (end[i] - theta[i]));
            }
            next
        };
        // The round is affine.
        let mut matrix = Mat::<f64>::zeros(d + 1, d + 1);
        let at_0 = image(&vec![0.0; d]);
        matrix[(d, d)] = 1.0;
        for j in 0..d {
            let unit: Vec<f64> = (0..d).map(|i| f64::from(i == j)).collect();
            let at_j = image(&unit);
            (0..d).for_each(|i| matrix[(i, j)] = at_j[i] - at_0[i]);
        }
        (0..d).for_each(|i| matrix[(i, d)] = at_0[i]);
        rounds.push(matrix);
    }
    rounds
}

/// The mean of samples of two draws of a finite agent.
fn pairs_of(kind: &Finite) -> Finite {
    let m = kind.samples.len();
    let pair = |i: usize, j: usize| {
        let ((a, b), (a2, b2)) = (&kind.samples[i], &kind.samples[j]);
        (Scale(0.5) * (a + a2), b.iter().zip(b2).map(|(x, y)| 0.5 * (x + y)).collect())
    };
    Finite { samples: (0..m * m).map(|ij| pair(ij / m, ij % m)).collect() }
}

#[test]
fn fedhsa_is_the_mean_over_all_samples() {
    /// Copies of two kinds, weights, H, alpha_g, d.
    type Case = (&'static [usize], &'static [f64], u64, f64, usize);
    let cases: [Case; 6] = [
        (&[1, 1], &[0.5, 0.5], 1, 1.0, 2),
        (&[1, 1], &[0.3, 0.7], 2, 0.8, 2),
        (&[1, 1], &[0.3, 0.7], 4, 1.0, 1),
        (&[2, 1], &[0.2, 0.3, 0.5], 3, 1.2, 2),
        (&[2, 2], &[0.25, 0.25, 0.25, 0.25], 2, 1.0, 3),
        (&[1, 0], &[1.0], 5, 1.0, 2),
    ];
    for (seed, (copies, weights, h, alpha, d)) in cases.into_iter().enumerate() {
        let kinds = Draw::new(90 + seed as u64).finite(2, d, 2);
        let (mut systems, moments) = federation(&kinds, copies);
        systems.weights = weights.to_vec();
        let setting = RoundSetting::new(0.3, h).unwrap().with_server_step(alpha).unwrap();
        let theory = FedHsaMse::new(&systems, &moments, &setting, 1).unwrap();
        let theta_0 = vec![1.5; d];
        let curve = theory.curve(&theta_0, &(0..=40).collect::<Vec<_>>()).unwrap();
        let rounds = all_rounds(&kinds, &systems, &setting);
        let root = systems.root().unwrap();
        let start: Vec<f64> = theta_0.iter().copied().chain([1.0]).collect();
        let mut moment = Mat::from_fn(d + 1, d + 1, |i, j| start[i] * start[j]);
        let errors = |moment: &Mat<f64>| {
            let bias: f64 = (0..d).map(|i| (moment[(i, d)] - root[i]).powi(2)).sum();
            let mse: f64 = (0..d).map(|i| moment[(i, i)] - 2.0 * root[i] * moment[(i, d)] + root[i] * root[i]).sum();
            (bias, mse)
        };
        let advance = |moment: &Mat<f64>| {
            let share = Scale(1.0 / rounds.len() as f64);
            rounds.iter().fold(Mat::<f64>::zeros(d + 1, d + 1), |sum, m| sum + share * (m * moment * m.transpose()))
        };
        for (t, point) in curve.iter().enumerate() {
            let (bias, mse) = errors(&moment);
            assert!((point.bias_sq() - bias).abs() < 1e-12 * bias.max(1.0), "case {seed}, bias at {t}: {} {bias}", point.bias_sq());
            assert!((point.mse() - mse).abs() < 1e-12 * mse.max(1.0), "case {seed}, error at {t}: {} {mse}", point.mse());
            moment = advance(&moment);
        }
        // The floor solves another equation than the curve.
        let floor = theory.floor().unwrap();
        assert!((theory.curve(&theta_0, &[2000]).unwrap()[0].mse() / floor.mse() - 1.0).abs() < 1e-10);
        assert!(floor.noise > 1e-3 && theory.radius().unwrap() < 1.0);
        if weights.len() == 1 || h == 1 {
            let plain = FedLsaMse::new(&systems, &moments, &setting, 1).unwrap().floor().unwrap();
            assert!((floor.mse() / plain.mse() - 1.0).abs() < 1e-11, "one agent or one step: {} {}", floor.mse(), plain.mse());
        }
    }
}

#[test]
fn a_batch_of_fedhsa_is_a_sample_of_means() {
    let kinds = Draw::new(97).finite(2, 2, 3);
    let (systems, moments) = federation(&kinds, &[2, 1]);
    let (same, pair_moments) = federation(&kinds.iter().map(pairs_of).collect::<Vec<_>>(), &[2, 1]);
    let setting = RoundSetting::new(0.3, 4).unwrap();
    let by_batch = FedHsaMse::new(&systems, &moments, &setting, 2).unwrap().floor().unwrap().mse();
    let by_pairs = FedHsaMse::new(&same, &pair_moments, &setting, 1).unwrap().floor().unwrap().mse();
    assert!((by_batch / by_pairs - 1.0).abs() < 1e-12, "{by_batch} {by_pairs}");
    assert!((FedHsaMse::new(&systems, &moments, &setting, 1).unwrap().floor().unwrap().mse() / by_batch - 1.0) > 0.5);
}

#[test]
fn fedhsa_has_a_floor_exactly_below_radius_one() {
    let spread = |s: f64| Finite { samples: vec![(Mat::full(1, 1, 1.0 + s), vec![1.0]), (Mat::full(1, 1, 1.0 - s), vec![0.0])] };
    let (systems, moments) = federation(&[spread(2.0), spread(4.0)], &[2, 1]);
    let mut seen = [0; 2];
    for step in 1..40 {
        let setting = RoundSetting::new(0.02 * f64::from(step), 3).unwrap();
        let theory = FedHsaMse::new(&systems, &moments, &setting, 1).unwrap();
        let stable = theory.radius().unwrap() < 1.0;
        assert_eq!(theory.floor().is_ok(), stable, "eta = {}", setting.step_size);
        seen[usize::from(stable)] += 1;
    }
    assert!(seen.iter().all(|n| *n > 3), "{seen:?}");
    let setting = RoundSetting::new(0.1, 3).unwrap();
    assert!(FedHsaMse::new(&systems, &moments[..1], &setting, 1).is_err());
    assert_eq!(FedHsaMse::new(&systems, &moments, &setting, 0).unwrap_err().key, "batch");
    assert_eq!(FedHsaMse::new(&systems, &moments, &setting, 1).unwrap().curve(&[0.0], &[2, 1]).unwrap_err().key, "rounds");
}
