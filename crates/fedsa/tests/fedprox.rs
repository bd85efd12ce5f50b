//! FedProx: its limit on linear systems by dense solves, and FedLSA where nothing pulls.

use crate::common::{bits, distance, field, method, problems, run_for, small_garnet};
use faer::Scale;
use fedsa::linalg::{self, Mat};
use fedsa::method::MethodSettings;
use fedsa::problem::systems::Systems;
use fedsa::sampling::Law;
use fedsa_problems::td::garnet::Heterogeneity;

fn fedprox(eta: f64, h: usize, mu: f64, alpha: f64) -> Box<dyn MethodSettings> {
    method("fedprox", &format!(r#"{{"step_size": {eta}, "local_steps": {h}, "proximal_mu": {mu}, "global_step_size": {alpha}}}"#))
}

fn fedlsa(eta: f64, h: usize, alpha: f64) -> Box<dyn MethodSettings> {
    method("fedlsa", &format!(r#"{{"step_size": {eta}, "local_steps": {h}, "global_step_size": {alpha}}}"#))
}

/// The root of `sum_c p_c W_c (b_c - A_c theta)`.
fn weighted_root(systems: &Systems, weight: impl Fn(&Mat<f64>) -> Mat<f64>) -> Vec<f64> {
    let d = systems.dim();
    let (mut left, mut right) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
    for (c, p) in systems.weights.iter().enumerate() {
        let own = systems.of(c);
        let w = weight(&own.a);
        left += Scale(*p) * (&w * &own.a);
        right.iter_mut().zip(linalg::mat_vec(&w, &own.b)).for_each(|(r, x)| *r += p * x);
    }
    linalg::solve(&left, &right).unwrap()
}

/// `u_h = (I - eta (A_c + mu I)) u_{h-1} + eta g_c(theta_t)`, u the move since the round's start: `u_H = W_c g_c(theta_t)` with W_c a sum
/// of powers, and a round rests where the mean of these moves is 0.
#[test]
fn without_noise_it_lands_where_a_dense_solve_says() {
    for heterogeneity in [Heterogeneity::TwoKernels, Heterogeneity::Independent] {
        let field = field(&small_garnet(5, heterogeneity), Law::Mean);
        let (systems, d) = (field.systems().unwrap(), field.dim());
        for (eta, h, mu, alpha) in [(0.5, 2, 0.3, 1.0), (0.5, 7, 0.3, 0.6), (0.2, 40, 1.0, 1.0), (0.5, 7, 0.02, 1.0)] {
            let of_steps = |a: &Mat<f64>| {
                let one = Mat::<f64>::identity(d, d);
                let step = &one - Scale(eta) * (a + Scale(mu) * &one);
                (1..h).fold(one.clone(), |sum, _| &one + &step * sum)
            };
            let limit = weighted_root(systems, of_steps);
            let run = run_for(&field, &*fedprox(eta, h, mu, alpha), 5, &vec![0.3; d], 20_000);
            let off = distance(run.theta(), &limit) / distance(&limit, &vec![0.0; d]);
            assert!(off < 1e-11, "{heterogeneity:?}, eta {eta}, H {h}, mu {mu}: {off:e}");
        }
    }
}

/// With many steps a round solves the proximal problems, `theta_c = theta_t + (A_c + mu I)^-1 g_c(theta_t)`; the stronger the pull, the
/// nearer to the root it rests.
#[test]
fn with_many_steps_agents_solve_their_proximal_problems() {
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Mean);
    let (systems, root, d) = (field.systems().unwrap(), field.root().unwrap(), field.dim());
    let mut before = distance(run_for(&field, &*fedlsa(0.5, 400, 1.0), 5, &vec![0.0; d], 3000).theta(), root);
    for mu in [0.2, 0.5, 2.0] {
        let solved = |a: &Mat<f64>| linalg::solve_columns(&(a + Scale(mu) * Mat::<f64>::identity(d, d)), &Mat::identity(d, d)).unwrap();
        let limit = weighted_root(systems, solved);
        // It stays there; from elsewhere it moves.
        let moved = |start: &[f64]| distance(run_for(&field, &*fedprox(0.4, 400, mu, 1.0), 5, start, 100).theta(), start);
        let size = distance(&limit, &vec![0.0; d]);
        assert!(moved(&limit) < 1e-11 * size && moved(&vec![0.0; d]) > 0.01 * size, "mu {mu}: {:e}", moved(&limit));
        let bias = distance(&limit, root);
        assert!(bias < 0.9 * before, "mu {mu}: {bias:e} after {before:e}");
        before = bias;
    }
}

/// Without a pull it is FedLSA. A pull that is too small for any bit shows the same of steps that are made one at a time: their samples go on
/// from step to step.
#[test]
fn without_a_pull_it_is_fedlsa_bit_for_bit() {
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        for (name, problem) in problems(19) {
            let field = field(&*problem, law);
            let start = vec![0.3; field.dim()];
            let theta = |method: &dyn MethodSettings| bits(run_for(&field, method, 5, &start, 20).theta());
            let expected = theta(&*fedlsa(0.05, 7, 0.9));
            assert_eq!(theta(&*fedprox(0.05, 7, 0.0, 0.9)), expected, "{name}, {law:?}");
            assert_eq!(theta(&*fedprox(0.05, 7, 1e-300, 0.9)), expected, "{name}, {law:?}");
            assert_eq!(theta(&*fedprox(0.05, 1, 5.0, 0.9)), theta(&*fedlsa(0.05, 1, 0.9)), "{name}, {law:?}");
            assert_ne!(theta(&*fedprox(0.05, 7, 1.0, 0.9)), expected, "{name}, {law:?}");
        }
    }
}

#[test]
fn a_pull_that_pushes_is_refused_and_theory_says_what_it_does_not_know() {
    let settings = |mu: f64| fedprox(0.05, 7, mu, 1.0);
    assert_eq!(method("fedprox", r#"{"step_size": 0.1, "local_steps": 2, "proximal_mu": -1.0}"#).check(3).unwrap_err().key, "proximal_mu");
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Iid);
    let of = |mu: f64| fedsa_theory::predict::Forecast::over(&field, &*settings(mu), &fedsa::uplink::Uplink::default());
    assert!(of(0.5).limit().is_err() && of(0.5).radius().is_err() && of(0.5).floor().is_err() && of(0.5).bias_sq().is_err());
    assert!(of(0.0).limit().is_ok() && of(0.0).floor().is_ok());
}
