//! Numbers of S1 and S2 were computed apart from this code, with NumPy.

use super::*;
use fedsa::linalg;
use fedsa::problem::arrays::Array;
use fedsa::problem::root::RootSource;
use fedsa::random::{Purpose, stream};

/// Three states, two actions, two agents, whose kernels differ by `shift` of a state and the next one; tabular or four features.
fn agents(shift: fn(usize, usize) -> usize, temperature: f64, sampling: Sampling, next_action: NextAction, is_tabular: bool) -> Agents {
    let (mut p, mut r) = (Vec::new(), Vec::new());
    for (c, s, a) in (0..2usize).flat_map(|c| (0..3usize).flat_map(move |s| (0..2usize).map(move |a| (c, s, a)))) {
        let row: Vec<f64> = (0..3).map(|t| (1 + (2 * s + 3 * a + 4 * t + c * shift(s, t)) % 5) as f64).collect();
        let sum: f64 = row.iter().sum();
        p.extend(row.iter().map(|p| p / sum));
        r.push(((s + 2 * a + 2 * c) % 3) as f64 - (a * c) as f64 / 2.0);
    }
    let mut arrays = Arrays::new();
    arrays.insert("P", Array::new(vec![2, 3, 2, 3], p).unwrap());
    arrays.insert("R", Array::new(vec![2, 3, 2], r).unwrap());
    arrays.insert("gamma", Array::scalar(0.8));
    if !is_tabular {
        let phi = |s: usize, a: usize| [1.0, ((s + a) as f64).cos(), a as f64, ((2 * s + a) as f64).sin()].map(|x| x / 2.0);
        let all: Vec<f64> = (0..6).flat_map(|i| phi(i / 2, i % 2)).collect();
        arrays.insert("Phi", Array::new(vec![3, 2, 4], all).unwrap());
    }
    let Drawn { kinds, rows, gamma } = read(&arrays).unwrap();
    let policy = SoftPolicy { temperature, exploration: 0.1 };
    let learners = Learners { kinds, rows, gamma, policy, weights: equal_weights(2) };
    Agents { learners, next_action, is_frozen: false, sampling }
}

fn s1(law: Law, next_action: NextAction, is_tabular: bool) -> Agents {
    agents(|s, t| s + 2 * t, 0.5, Sampling::default().with_kind(law), next_action, is_tabular)
}

fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= tolerance), "{found:?} {expected:?}");
}

const THETA: [f64; 6] = [1.0, -1.0, 0.5, 2.0, 0.0, -0.5];
const ROOT: [f64; 6] = [4.99634553399, 5.29756261282, 4.51100077766, 4.78274741541, 5.53229666041, 4.28624150571];

#[test]
fn means_jacobians_and_the_root_are_those_of_numpy() {
    let agents = s1(Law::Mean, NextAction::Carry, true);
    let mut g = [0.0; 6];
    agents.mean(0, &THETA, &mut g);
    let expected = [-0.0509201667143, 0.0585515679201, 0.0534528857887, -0.487338431693, 0.644416831099, 0.224130668898];
    assert_near(&g, &expected, 1e-12);
    let jacobian = sarsa_root::jacobian(&agents.learners, 0, &THETA);
    assert_near(&[jacobian[(0, 3)]], &[0.092583380992], 1e-12);
    let trace: f64 = (0..6).map(|i| jacobian[(i, i)]).sum();
    assert_near(&[trace], &[-0.801992751591 + 0.0247325718304 + 0.629114843244], 3e-12);
    let root = sarsa_root::search(&agents.learners, &Cancel::never()).unwrap();
    assert_near(&root.theta, &ROOT, 1e-10);
    assert_eq!(root.source, RootSource::Searched { starts: 8, found: 1, stable: 1 });
}

#[test]
fn jacobians_are_derivatives_of_means() {
    for is_tabular in [true, false] {
        let agents = s1(Law::Mean, NextAction::Carry, is_tabular);
        let d = agents.dim();
        for c in 0..2 {
            let jacobian = sarsa_root::jacobian(&agents.learners, c, &THETA[..d]);
            for k in 0..d {
                let at = |step: f64| {
                    let (mut theta, mut g) = (THETA[..d].to_vec(), vec![0.0; d]);
                    theta[k] += step;
                    agents.mean(c, &theta, &mut g);
                    g
                };
                let slope: Vec<f64> = at(1e-5).iter().zip(at(-1e-5)).map(|(above, below)| (above - below) / 2e-5).collect();
                assert_near(&slope, jacobian.col_as_slice(k), 1e-9);
            }
        }
    }
}

/// At a low temperature there are several roots, and not all are stable.
#[test]
fn low_temperatures_have_several_roots() {
    let agents = agents(|_, t| t + 1, 0.02, Sampling::default().with_kind(Law::Mean), NextAction::Carry, true);
    let root = sarsa_root::search(&agents.learners, &Cancel::never()).unwrap();
    // Policy iteration reaches the two stable ones; an eigenvalue of a third one is positive.
    assert_eq!(root.source, RootSource::Searched { starts: 8, found: 2, stable: 2 });
    assert_near(&root.theta, &[5.34, 5.53, 4.85, 4.97, 5.79, 4.52], 0.01);
}

/// The limit of FedLSA without noise is a fixed point of the mean of the agents' local steps, at a known distance from the root.
#[test]
fn local_steps_that_improve_the_policy_end_away_from_the_root() {
    let agents = s1(Law::Mean, NextAction::Carry, true);
    let mut theta = ROOT.to_vec();
    for _ in 0..2000 {
        let mut next = vec![0.0; 6];
        for c in 0..2 {
            let (mut own, mut g) = (theta.clone(), [0.0; 6]);
            for _ in 0..10 {
                agents.mean(c, &own, &mut g);
                linalg::add_scaled(&mut own, 0.1, &g);
            }
            linalg::add_scaled(&mut next, 0.5, &own);
        }
        theta = next;
    }
    assert_near(&[linalg::distance_sq(&theta, &ROOT).sqrt()], &[0.573510883216], 1e-9);
}

/// Samples at a fixed theta have the mean operator as their mean: independent ones, and along trajectories of each kind.
#[test]
fn samples_have_the_mean_operator_as_their_mean() {
    const BLOCKS: usize = 200;
    const SIZE: usize = 1000;
    for is_tabular in [true, false] {
        for (law, next_action) in [Law::Iid, Law::Markov]
            .into_iter()
            .flat_map(|law| [NextAction::Carry, NextAction::Redraw, NextAction::Expected].map(|next| (law, next)))
        {
            let agents = s1(law, next_action, is_tabular);
            let d = agents.dim();
            let theta = &THETA[..d];
            for c in 0..2 {
                let mut stream = stream(7, Purpose::Sample, 0, c);
                let (mut z, mut g, mut chain) = (Step::default(), vec![0.0; d], vec![0; agents.chain_len()]);
                agents.start_chain(c, &mut stream, &mut chain);
                let mut means = vec![vec![0.0; d]; BLOCKS];
                for mean in &mut means {
                    for _ in 0..SIZE {
                        agents.sample(c, theta, &mut chain, &mut stream, &mut z);
                        agents.apply(c, theta, &z, &mut g);
                        linalg::add_scaled(mean, 1.0 / SIZE as f64, &g);
                    }
                }
                let mut exact = vec![0.0; d];
                agents.mean(c, theta, &mut exact);
                for (k, exact) in exact.iter().enumerate() {
                    let (mean, square) = means.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x[k], squares + x[k] * x[k]));
                    let (mean, square) = (mean / BLOCKS as f64, square / BLOCKS as f64);
                    let se = ((square - mean * mean) / (BLOCKS - 1) as f64).sqrt();
                    assert!((mean - exact).abs() < 4.5 * se, "{law:?} {next_action:?} {is_tabular} {c} {k}: {mean} {exact} {se}");
                }
            }
        }
    }
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    let refused = |settings: Sarsa| settings.check().unwrap_err().to_string();
    assert!(refused(Sarsa::default().with_temperature(0.0)).contains("exploration"));
    assert!(refused(Sarsa::default().with_path("a.npz".to_string()).with_states(4)).contains("beside"));
    assert!(refused(Sarsa::default().with_states(300)).contains("states"));
    assert!(refused(Sarsa::default().with_feature_law(PairFeatures::Simplex)).contains("features"));
    Sarsa::default().with_temperature(0.0).with_exploration(0.1).check().unwrap();
    Sarsa::default().with_path("a.npz".to_string()).with_agents(3).with_temperature(2.0).check().unwrap();
}
