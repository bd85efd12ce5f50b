//! Additive noise has the covariance, the memory and the start that its settings say.

use crate::common::{Mean, field, follows, noise_of};
use fedsa::kernel::Isa;
use fedsa::linalg::{self, Mat};
use fedsa::problem::Field;
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::{Noise, NoiseStart};
use fedsa_problems::scope::Scope;
use fedsa_problems::{NoFiles, ProblemSettings};
use std::sync::Arc;

#[test]
fn additive_noise_has_its_covariance_and_its_memory() {
    const D: usize = 3;
    const AGENTS: usize = 400;
    for (law, radius) in [(Law::Iid, 0.0), (Law::Iid, 0.7), (Law::Markov, 0.0), (Law::Markov, 0.7)] {
        let noise = Noise::new(0.3, radius, 6);
        let settings = LinearSystems::default().with_agents(AGENTS).with_dim(D).with_noise(noise);
        let noisy = field(&settings, law);
        // M is a Gaussian matrix scaled to its spectral radius; Sigma = M Sigma M^T + std^2 I.
        let mut m = Mat::<f64>::zeros(D, D);
        if radius > 0.0 {
            let mut s: Stream = stream(6, Purpose::Noise, 0, ALL);
            let g = Mat::from_fn(D, D, |_, _| s.normal());
            m = faer::Scale(radius / linalg::spectral_radius(&g).unwrap()) * g;
        }
        let mut sigma = Mat::<f64>::zeros(D, D);
        for _ in 0..400 {
            sigma = &m * &sigma * m.transpose() + faer::Scale(0.09) * Mat::<f64>::identity(D, D);
        }
        let lagged = if law == Law::Markov { &m * &sigma } else { Mat::zeros(D, D) };
        let (mut now, mut next) = (vec![Mean::default(); D * D], vec![Mean::default(); D * D]);
        for agent in 0..AGENTS {
            // One number an agent: agents are independent, the steps of one are not.
            let x = noise_of(&noisy, agent, &[0.0; D], 200);
            for (i, j) in (0..D).flat_map(|i| (0..D).map(move |j| (i, j))) {
                now[i * D + j].see(x.iter().map(|x| x[i] * x[j]).sum::<f64>() / 200.0);
                next[i * D + j].see(x.windows(2).map(|w| w[1][i] * w[0][j]).sum::<f64>() / 199.0);
            }
        }
        let off = |means: &[Mean], want: &Mat<f64>| -> Vec<f64> { (0..D * D).map(|k| means[k].off(want[(k / D, k % D)])).collect() };
        follows(&[off(&now, &sigma), off(&next, &lagged)].concat()).unwrap_or_else(|e| panic!("{law:?}, radius {radius}: {e}"));
        if radius > 0.0 {
            let white = faer::Scale(0.09) * Mat::<f64>::identity(D, D);
            assert!(follows(&off(&now, &white)).is_err(), "the memory of the noise shows");
        }
        if law == Law::Iid {
            let stated = noisy.moments(0).unwrap();
            let b = linalg::column(&noisy.systems().unwrap().kinds[0].b);
            assert!((stated.bb - &b * b.transpose() - sigma).norm_max() < 1e-12);
        }
    }
}

#[test]
fn noise_matrices_per_agent_differ_and_have_their_radius_and_covariance() {
    const D: usize = 4;
    let of = |agents| {
        let noise = Noise::new(0.3, 0.7, 6).with_memory(Scope::PerAgent);
        field(&LinearSystems::default().with_agents(agents).with_dim(D).with_noise(noise), Law::Iid)
    };
    let (few, many) = (of(2), of(5));
    let matrices = |field: &Arc<dyn Field>| field.facts().export().unwrap().get("noise_memory").unwrap().clone();
    assert_eq!(matrices(&many).shape(), [5, D, D]);
    assert_eq!(matrices(&few).data(), &matrices(&many).data()[..2 * D * D], "agents are the first of one pool");
    for (c, m) in matrices(&many).data().chunks(D * D).enumerate() {
        let m = linalg::from_rows(D, D, m);
        assert!((linalg::spectral_radius(&m).unwrap() - 0.7).abs() < 1e-13);
        let b = linalg::column(&many.systems().unwrap().kinds[c].b);
        let sigma = many.moments(c).unwrap().bb - &b * b.transpose();
        let next = &m * &sigma * m.transpose() + faer::Scale(0.09) * Mat::<f64>::identity(D, D);
        assert!((sigma - next).norm_max() < 1e-12, "agent {c}");
    }
}

/// The covariance over agents of the first x of a trajectory, `M E[x_0 x_0^T] M^T + std^2 I`.
#[test]
fn noise_starts_where_it_is_said_to_start() {
    const AGENTS: usize = 4000;
    let rows = vec![vec![0.8, 0.3], vec![0.0, 0.5]];
    let m = Mat::from_fn(2, 2, |i, j| rows[i][j]);
    let white = faer::Scale(0.25) * Mat::<f64>::identity(2, 2);
    let sigma = linalg::discrete_lyapunov(&m, &white);
    let after = |start: &Mat<f64>| &m * start * m.transpose() + &white;
    let state = ChainStart::State(0);
    for (start, trajectories, want) in [
        (NoiseStart::AsSampling, ChainStart::Stationary, sigma.clone()),
        (NoiseStart::AsSampling, state, white.clone()),
        (NoiseStart::Zero, ChainStart::Stationary, white.clone()),
        (NoiseStart::Random, state, after(&Mat::identity(2, 2))),
        (NoiseStart::Stationary, state, sigma.clone()),
    ] {
        let noise = Noise::new(0.5, 0.0, 0).with_matrix(rows.clone()).with_start(start);
        let settings = LinearSystems::default().with_agents(AGENTS).with_dim(2).with_noise(noise);
        let sampling = Sampling::default().with_kind(Law::Markov).with_start(trajectories);
        let noisy = settings.field(&NoFiles, sampling, Isa::best()).unwrap();
        let mut seen = [Mean::default(); 4];
        for c in 0..AGENTS {
            let x = &noise_of(&noisy, c, &[0.0; 2], 1)[0];
            (0..4).for_each(|k| seen[k].see(x[k / 2] * x[k % 2]));
        }
        let off: Vec<f64> = (0..4).map(|k| seen[k].off(want[(k / 2, k % 2)])).collect();
        follows(&off).unwrap_or_else(|e| panic!("{start:?} {trajectories:?}: {e}"));
    }
}

#[test]
fn noise_matrices_that_are_not_stable_are_refused() {
    let refused = |noise: Noise, texts: &[&str]| {
        let settings = LinearSystems::default().with_agents(2).with_dim(2).with_noise(noise);
        let e = settings.field(&NoFiles, Sampling::default(), Isa::best()).err().unwrap();
        texts.iter().for_each(|text| assert!(e.to_string().contains(text), "{e}"));
    };
    let given = |rows: [[f64; 2]; 2]| Noise::new(1.0, 0.0, 0).with_matrix(rows.map(|row| row.to_vec()).to_vec());
    refused(given([[0.0, 2.0], [0.6, 0.0]]), &["noise.matrix: a matrix of spectral radius 1.0954"]);
    refused(given([[0.0, 0.0], [0.6, 0.0]]).with_radius(0.5), &["noise.radius: a radius beside a matrix"]);
    refused(given([[0.0; 2]; 2]).with_matrix(vec![vec![0.5]]), &["noise.matrix: 1 rows of 1 numbers"]);
}
