//! GTD2 and TDC against loops over transitions that are written from the formulas, their fixed points against a solve of the normal
//! equations, and Baird's example, on which TD diverges.

use std::sync::Arc;

use crate::common::{InMemory, method, run_for};
use fedsa::error::Result;
use fedsa::kernel::{Isa, Lanes, flat};
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::problem::root::RootSource;
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::replay::{Logs, Sources};
use fedsa_problems::td::baird::Baird;
use fedsa_problems::td::gradient_td::TdOperator::{self, Gtd2, Td, Tdc};
use fedsa_problems::{NoFiles, ProblemSettings};

const GAMMA: f64 = 0.9;
/// The number of features of the logs.
const D: usize = 3;

type Matrix = Vec<Vec<f64>>;

fn settings(operator: TdOperator, kappa: f64) -> Logs {
    let logs = Logs::new(Sources::One(String::new()), FeatureSpec::Identity { bias: false }, GAMMA).with_operator(operator);
    if operator == Td { logs } else { logs.with_kappa(kappa) }
}

fn of(logs: &[Log], settings: &Logs, kind: Law) -> Result<Arc<dyn Field>> {
    settings.field(&InMemory(logs.to_vec()), Sampling::default().with_kind(kind).with_start(start(kind)), Isa::best())
}

fn start(kind: Law) -> ChainStart {
    if kind == Law::Markov { ChainStart::State(0) } else { ChainStart::Stationary }
}

/// Three agents' random transitions, with terminations and ratios from 0 to 2. The third column is the sum of the first two where
/// features are `dependent`.
fn logs(dependent: bool) -> Vec<Log> {
    let mut s = stream(5, Purpose::Fresh, 0, 0);
    let log = |(c, n): (usize, usize)| {
        let mut state = |n: usize| -> Vec<f64> {
            let row = |_| {
                let x = [0; D].map(|_| 0.5 * s.normal());
                [x[0], x[1], if dependent { x[0] + x[1] } else { x[2] }]
            };
            (0..n).flat_map(row).collect()
        };
        let (states, next) = (state(n), state(n));
        Log {
            name: format!("agent {c}"),
            columns: ["x", "y", "z"].map(String::from).to_vec(),
            states,
            rewards: (0..n).map(|_| s.normal()).collect(),
            next,
            done: (0..n).map(|t| t % 11 == 10).collect(),
            truncated: None,
            breaks: None,
            actions: None,
            episode: None,
            ratio: Some((0..n).map(|_| 2.0 * s.uniform()).collect()),
        }
    };
    [60, 25, 41].into_iter().enumerate().map(log).collect()
}

/// `phi`, `phi'` (zeros after the end), reward and ratio.
fn step(log: &Log, t: usize) -> (Vec<f64>, Vec<f64>, f64, f64) {
    let next = if log.done[t] { vec![0.0; D] } else { log.next_state(t).to_vec() };
    (log.state(t).to_vec(), next, log.rewards[t], log.ratio.as_ref().unwrap()[t])
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// The operator at a transition, from its definition, with the ridge EPS that makes A of `A + EPS I`.
fn by_definition(operator: TdOperator, kappa: f64, eps: f64, log: &Log, t: usize, x: &[f64]) -> Vec<f64> {
    let (f, fnext, r, rho) = step(log, t);
    let (theta, u) = x.split_at(D);
    let delta = r + GAMMA * dot(&fnext, theta) - dot(&f, theta);
    let along = dot(&f, u);
    let top = |i: usize| match operator {
        Gtd2 => rho * (f[i] - GAMMA * fnext[i]) * along + eps * u[i],
        _ => rho * (delta * f[i] - GAMMA * fnext[i] * along) - eps * theta[i] + eps * u[i],
    };
    let bottom = |i: usize| kappa * (rho * delta * f[i] - eps * theta[i] - along * f[i]);
    (0..D).map(top).chain((0..D).map(bottom)).collect()
}

fn close(x: &[f64], y: &[f64], what: &str) {
    assert_eq!(x.len(), y.len());
    x.iter().zip(y).for_each(|(x, y)| assert!((x - y).abs() <= 1e-12 * (1.0 + y.abs()), "{what}: {x} {y}"));
}

#[test]
fn samples_are_the_operators_at_the_transitions_of_the_log() {
    let (logs, x) = (logs(false), [0.3, -1.0, 2.0, 0.7, -0.2, 1.1]);
    for (operator, kappa, eps) in [(Gtd2, 1.0, 0.0), (Gtd2, 0.3, 0.25), (Tdc, 4.0, 0.0), (Tdc, 0.3, 0.25)] {
        let field = of(&logs, &settings(operator, kappa).with_ridge(eps), Law::Markov).unwrap();
        assert_eq!(field.dim(), 2 * D);
        for (c, log) in logs.iter().enumerate() {
            let mut lanes = Lanes::new(2 * D, field.chain_len());
            (lanes.len, lanes.agents[0]) = (1, c);
            lanes.set_stream(0, stream(2, Purpose::Sample, 0, c));
            field.start_chain(c, &mut stream(2, Purpose::Chain, 0, c), &mut lanes.chains[..field.chain_len()]);
            lanes.theta_mut(0)[..2 * D].copy_from_slice(&x);
            for step in 0..log.len() + 5 {
                field.observe(std::slice::from_mut(&mut lanes), true);
                let expected = by_definition(operator, kappa, eps, log, step % log.len(), &x);
                close(&flat(&lanes.observed)[..2 * D], &expected, &format!("{operator:?}, agent {c}, step {step}"));
            }
        }
    }
}

/// `A` (with the ridge), `b`, `C` and `E rho f f'` of a log, by sums over its transitions.
fn means(log: &Log, eps: f64) -> (Matrix, Vec<f64>, Matrix, Matrix) {
    let n = log.len() as f64;
    let zeros = || vec![vec![0.0; D]; D];
    let (mut a, mut b, mut c, mut weighted) = (zeros(), vec![0.0; D], zeros(), zeros());
    for t in 0..log.len() {
        let (f, fnext, r, rho) = step(log, t);
        for i in 0..D {
            b[i] += rho * r * f[i] / n;
            for j in 0..D {
                a[i][j] += rho * f[i] * (f[j] - GAMMA * fnext[j]) / n;
                c[i][j] += f[i] * f[j] / n;
                weighted[i][j] += rho * f[i] * f[j] / n;
            }
        }
    }
    (0..D).for_each(|i| a[i][i] += eps);
    (a, b, c, weighted)
}

fn times(m: &Matrix, x: &[f64]) -> Vec<f64> {
    m.iter().map(|row| dot(row, x)).collect()
}

fn transposed(m: &Matrix) -> Matrix {
    (0..m[0].len()).map(|j| m.iter().map(|row| row[j]).collect()).collect()
}

/// The mean operator in terms of A, b, C, and the matrix in place of C in the first line of TDC.
fn mean_operator(operator: TdOperator, kappa: f64, parts: (&Matrix, &[f64], &Matrix), first: &Matrix, x: &[f64]) -> Vec<f64> {
    let ((a, b, c), (theta, u)) = (parts, x.split_at(D));
    let (a_theta, a_u, c_u, first_u) = (times(a, theta), times(&transposed(a), u), times(c, u), times(first, u));
    let top = |i: usize| if operator == Gtd2 { a_u[i] } else { b[i] - a_theta[i] - first_u[i] + a_u[i] };
    (0..D).map(top).chain((0..D).map(|i| kappa * (b[i] - a_theta[i] - c_u[i]))).collect()
}

/// Mean sampling takes C; the mean of TDC's samples has `E rho f f'` in its place.
#[test]
fn means_have_the_closed_form_with_c_or_with_that_of_the_samples() {
    let (logs, x) = (logs(false), [0.3, -1.0, 2.0, 0.7, -0.2, 1.1]);
    for (operator, kappa, eps) in [(Gtd2, 1.0, 0.0), (Gtd2, 0.3, 0.25), (Tdc, 4.0, 0.0), (Tdc, 0.3, 0.25)] {
        let settings = settings(operator, kappa).with_ridge(eps);
        for kind in [Law::Mean, Law::Iid, Law::Markov] {
            let field = of(&logs, &settings, kind).unwrap();
            for (agent, log) in logs.iter().enumerate() {
                let (a, b, c, weighted) = means(log, eps);
                let expected = mean_operator(operator, kappa, (&a, &b, &c), if kind == Law::Mean { &c } else { &weighted }, &x);
                let mut out = [0.0; 2 * D];
                assert!(field.mean(agent, &x, &mut out));
                close(&out, &expected, &format!("{operator:?}, {kind:?}"));
                close(&field.systems().unwrap().of(agent).mean(&x), &expected, &format!("{operator:?}, {kind:?}, system"));
                if kind != Law::Mean {
                    let n = log.len();
                    let sum = (0..n).fold(vec![0.0; 2 * D], |mut sum, t| {
                        let g = by_definition(operator, kappa, eps, log, t, &x);
                        sum.iter_mut().zip(g).for_each(|(sum, g)| *sum += g / n as f64);
                        sum
                    });
                    close(&out, &sum, &format!("{operator:?}, mean of samples"));
                    let law = field.facts().law(agent).unwrap();
                    close(&law.mean(&x), &sum, &format!("{operator:?}, mean of the law"));
                }
            }
        }
    }
}

/// Gauss-Jordan with full pivoting: a solution of `m x = b` with free variables at 0.
fn solved(m: &Matrix, b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let mut rows: Matrix = m.iter().zip(b).map(|(row, b)| row.iter().copied().chain([*b]).collect()).collect();
    let mut pivots: Vec<(usize, usize)> = Vec::new();
    loop {
        let free = |used: &[(usize, usize)], i: usize, j: usize| used.iter().all(|(row, column)| *row != i && *column != j);
        let candidates = (0..n).flat_map(|i| (0..n).map(move |j| (i, j))).filter(|(i, j)| free(&pivots, *i, *j));
        let Some((i, j)) = candidates.max_by(|x, y| rows[x.0][x.1].abs().total_cmp(&rows[y.0][y.1].abs())) else { break };
        if rows[i][j].abs() < 1e-10 {
            break;
        }
        let scale = rows[i][j];
        rows[i].iter_mut().for_each(|x| *x /= scale);
        for other in (0..n).filter(|other| *other != i) {
            let (factor, pivot) = (rows[other][j], rows[i].clone());
            rows[other].iter_mut().zip(pivot).for_each(|(x, y)| *x -= factor * y);
        }
        pivots.push((i, j));
    }
    let mut x = vec![0.0; n];
    pivots.iter().for_each(|(i, j)| x[*j] = rows[*i][n]);
    x
}

/// The pooled A, b and C of logs, weighted by their rows.
fn pooled(logs: &[Log]) -> (Matrix, Vec<f64>, Matrix) {
    let total: usize = logs.iter().map(Log::len).sum();
    let (mut a, mut b, mut c) = (vec![vec![0.0; D]; D], vec![0.0; D], vec![vec![0.0; D]; D]);
    for log in logs {
        let (own_a, own_b, own_c, _) = means(log, 0.0);
        let p = log.len() as f64 / total as f64;
        for i in 0..D {
            b[i] += p * own_b[i];
            for j in 0..D {
                a[i][j] += p * own_a[i][j];
                c[i][j] += p * own_c[i][j];
            }
        }
    }
    (a, b, c)
}

#[test]
fn the_root_is_that_of_td_where_a_is_regular() {
    let logs = logs(false);
    let (a, b, _) = pooled(&logs);
    let root = solved(&a, &b);
    for operator in [Gtd2, Tdc] {
        for kind in [Law::Mean, Law::Iid] {
            let field = of(&logs, &settings(operator, 2.0), kind).unwrap();
            let found = field.solution().unwrap();
            assert_eq!(found.source, RootSource::Linear);
            let (theta, u) = found.theta.split_at(D);
            // The condition of the block system is about the square of that of A, some 10.
            assert!(theta.iter().zip(&root).all(|(x, y)| (x - y).abs() < 1e-11), "{theta:?} {root:?}");
            assert!(u.iter().all(|u| u.abs() < 1e-11), "{u:?}");
        }
        let td = of(&logs, &settings(Td, 1.0), Law::Mean).unwrap();
        close(td.root().unwrap(), &root, "TD");
    }
}

/// Features that depend on each other make A and C singular. The root then is where `A' C^+ (b - A theta) = 0`: with two independent
/// features in place of three, of which the values are the same.
#[test]
fn where_a_is_singular_the_root_minimises_the_projected_error() {
    let logs = logs(true);
    let (a, b, c) = pooled(&logs);
    // In the first two features alone.
    let two = |m: &Matrix| -> Matrix { m[..2].iter().map(|row| row[..2].to_vec()).collect() };
    let independent = solved(&two(&a), &b[..2]);
    for operator in [Gtd2, Tdc] {
        let field = of(&logs, &settings(operator, 2.0), Law::Mean).unwrap();
        let found = field.solution().unwrap();
        assert_eq!(found.source, RootSource::LeastNorm { rank: 4 });
        let (theta, u) = found.theta.split_at(D);
        // (x, y, x + y) theta = x (theta_0 + theta_2) + y (theta_1 + theta_2).
        close(&[theta[0] + theta[2], theta[1] + theta[2]], &independent, "values");
        // Of least norm: orthogonal to (1, 1, -1), which changes no value.
        assert!((theta[0] + theta[1] - theta[2]).abs() < 1e-12 && u.iter().all(|u| u.abs() < 1e-12), "{theta:?} {u:?}");
        let error = field.facts().projected_bellman().unwrap();
        assert!(error.error(theta) < 1e-24);
        // At other weights: (b - A theta)' C^+ (b - A theta), with a solution of C y = b - A theta.
        for theta in [[0.0; D], [1.0, -0.5, 2.0]] {
            let g: Vec<f64> = b.iter().zip(times(&a, &theta)).map(|(b, x)| b - x).collect();
            let expected = dot(&g, &solved(&c, &g));
            assert!((error.error(&theta) - expected).abs() < 1e-12 * (1.0 + expected), "{} {expected}", error.error(&theta));
        }
    }
}

/// A chain of one agent on which A has no inverse although the features are independent: the value of the second state enters
/// nowhere but in a row of zeros. Then the minimum is not 0 in general.
#[test]
fn the_projected_error_may_have_a_minimum_above_zero() {
    // Two states with one feature each. From the first the process ends; the second is never followed by the evaluated policy.
    let log = Log {
        name: "one".into(),
        columns: vec!["x".into(), "y".into()],
        states: vec![1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0],
        rewards: vec![1.0, 2.0, 3.0, 4.0],
        next: vec![0.0, 1.0 / GAMMA, 0.0, 1.0 / GAMMA, 0.0, 1.0 / GAMMA, 0.0, 1.0 / GAMMA],
        done: vec![false; 4],
        truncated: None,
        breaks: None,
        actions: None,
        episode: None,
        ratio: Some(vec![1.0, 1.0, 1.0, 1.0]),
    };
    // A = [[1, -1], [0, 0]] / 2, b = (1.5, 3.5) / 2, C = I / 2: the minimum is at theta_0 - theta_1 = 1.5, of size 2 * 1.75^2.
    for operator in [Gtd2, Tdc] {
        let field = of(std::slice::from_ref(&log), &settings(operator, 1.0), Law::Mean).unwrap();
        let found = field.solution().unwrap();
        assert_eq!(found.source, RootSource::LeastNorm { rank: 3 });
        close(&found.theta, &[0.75, -0.75, 0.0, 3.5], "root");
        assert!((field.facts().projected_bellman().unwrap().error(&found.theta[..2]) - 2.0 * 1.75f64.powi(2)).abs() < 1e-12);
        let mut g = [1.0; 4];
        assert!(field.mean(0, &found.theta, &mut g));
        assert!(g.iter().all(|g| g.abs() < 1e-12), "{g:?}");
    }
}

/// Sutton et al. 2009, theorem 1: `-A_block` of GTD2 is stable for every kappa. That of TDC need not be.
#[test]
fn the_eigenvalues_of_gtd2_are_in_the_right_half_plane_for_every_kappa() {
    let least = |operator, kappa, logs: &[Log]| {
        let mean = of(logs, &settings(operator, kappa), Law::Mean).unwrap().systems().unwrap().mean();
        linalg::eigenvalues(&mean.a).unwrap().iter().map(|(re, _)| *re).fold(f64::INFINITY, f64::min)
    };
    let unstable = unstable();
    assert!(least(Td, 1.0, &unstable) < 0.0, "TD is stable");
    for kappa in [0.01, 0.1, 1.0, 10.0, 100.0] {
        for logs in [&logs(false), &unstable] {
            assert!(least(Gtd2, kappa, logs) > 1e-6, "kappa = {kappa}");
        }
    }
    assert!(least(Tdc, 0.01, &unstable) < 0.0 && least(Tdc, 100.0, &unstable) > 0.0);
}

/// The example of w and 2 w (Tsitsiklis & Van Roy 1996), beside two states with a feature each: the evaluated policy goes from the first
/// state to the second, and stays there; both are logged equally often.
fn unstable() -> Vec<Log> {
    vec![Log {
        name: "w, 2w".into(),
        columns: ["x", "y", "z"].map(String::from).to_vec(),
        states: vec![1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        rewards: vec![1.0, 0.0, -1.0, 0.5],
        next: vec![2.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.5, 0.0],
        done: vec![false; 4],
        truncated: None,
        breaks: None,
        actions: None,
        episode: None,
        ratio: Some(vec![1.0, 1.0, 0.8, 1.2]),
    }]
}

/// All first-order methods that reach the root elsewhere reach that of TD.
#[test]
fn methods_reach_the_root_where_td_diverges() {
    let logs = unstable();
    let root = of(&logs, &settings(Td, 1.0), Law::Mean).unwrap().root().unwrap().to_vec();
    let td = of(&logs, &settings(Td, 1.0), Law::Mean).unwrap();
    let gone = run_for(&td, &FedLsa::new(0.3, 5), 0, &[0.0; D], 2000);
    assert!(!(linalg::norm_sq(gone.theta()) < 1e6), "TD does not diverge");
    for (operator, kappa) in [(Gtd2, 1.0), (Tdc, 30.0)] {
        let field = of(&logs, &settings(operator, kappa), Law::Mean).unwrap();
        let eta = if operator == Tdc { 0.02 } else { 0.3 };
        let all = [
            method("fedlsa", &format!(r#"{{"step_size": {eta}, "local_steps": 20}}"#)),
            method("scafflsa", &format!(r#"{{"step_size": {eta}, "local_steps": 20}}"#)),
            method("fedhsa", &format!(r#"{{"step_size": {eta}, "local_steps": 20}}"#)),
            method("lstd", "{}"),
        ];
        for method in all {
            let run = run_for(&field, &*method, 0, &[0.0; 2 * D], 30_000);
            let away = linalg::distance_sq(&run.theta()[..D], &root).sqrt();
            assert!(away < 1e-6, "{operator:?}, {method:?}: {away}");
        }
    }
}

fn baird(operator: TdOperator, kappa: Option<f64>, kind: Law) -> Arc<dyn Field> {
    let baird = Baird::default().with_agents(3).with_operator(operator).with_kappa(kappa);
    baird.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
}

/// The usual start, theta = (1, .., 1, 10, 1) and u = 0.
fn baird_start(operator: TdOperator) -> Vec<f64> {
    let mut x = vec![1.0; 8];
    x[6] = 10.0;
    x.resize(operator.dim(8), 0.0);
    x
}

/// The values of the seven states, from the book's picture.
fn values(theta: &[f64]) -> Vec<f64> {
    (0..6).map(|i| 2.0 * theta[i] + theta[7]).chain([theta[6] + 2.0 * theta[7]]).collect()
}

#[test]
fn td_diverges_on_bairds_example_and_gtd2_and_tdc_converge() {
    let td = baird(Td, None, Law::Mean);
    let gone = run_for(&td, &FedLsa::new(0.05, 10), 0, &baird_start(Td), 2000);
    assert!(!(values(gone.theta()).iter().all(|v| v.abs() < 1e6)), "TD does not diverge: {:?}", values(gone.theta()));
    for (operator, kappa) in [(Gtd2, 1.0), (Tdc, 5.0)] {
        let field = baird(operator, Some(kappa), Law::Mean);
        let error = field.facts().projected_bellman().unwrap();
        let start = baird_start(operator);
        let run = run_for(&field, &Scafflsa::new(0.2, 200), 0, &start, 30_000);
        let (before, after) = (error.error(&start[..8]), error.error(&run.theta()[..8]));
        assert!(before > 1.0 && after < 1e-12 * before, "{operator:?}: {before} {after}");
        assert!(values(run.theta()).iter().all(|v| v.abs() < 1e-4), "{operator:?}: {:?}", values(run.theta()));
        // The part of theta that changes no value stays as it was.
        let null = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0, -2.0];
        assert!(values(&null).iter().all(|v| *v == 0.0));
        let (began, ended) = (dot(&null, &start[..8]), dot(&null, &run.theta()[..8]));
        assert!((began - ended).abs() < 1e-9 * began.abs() && began.abs() > 1.0, "{began} {ended}");
        assert!(linalg::norm_sq(&run.theta()[..8]).sqrt() > 1.0, "theta does not go to 0");
    }
}

/// The projected error of Baird's example from A, b and C that are sums over states and actions.
#[test]
fn the_parts_of_bairds_example_are_sums_over_states_and_actions() {
    let (solid, gamma, reward) = (0.3, 0.95, 0.7);
    let rows: Vec<Vec<f64>> =
        (0..7).map(|s| (0..8).map(|j| values(&(0..8).map(|k| f64::from(k == j)).collect::<Vec<_>>())[s]).collect()).collect();
    let settings = Baird::default().with_solid(solid).with_gamma(gamma).with_reward(reward);
    for (operator, kind) in [(Td, Law::Mean), (Td, Law::Markov), (Gtd2, Law::Mean), (Tdc, Law::Mean), (Tdc, Law::Iid)] {
        let settings = settings.clone().with_operator(operator);
        let field = settings.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap();
        let n = operator.dim(8);
        let x: Vec<f64> = (0..n).map(|i| 0.3 - 0.17 * i as f64).collect();
        let (theta, u) = x.split_at(8);
        let mut expected = vec![0.0; n];
        // The behaviour enters the lower state with probability `solid` from everywhere.
        let law = |s: usize| if s == 6 { solid } else { (1.0 - solid) / 6.0 };
        for (s, t) in (0..7).flat_map(|s| (0..7).map(move |t| (s, t))) {
            let (w, rho) = (law(s) * law(t), if t == 6 { 1.0 / solid } else { 0.0 });
            let (f, next) = (&rows[s], &rows[t]);
            let delta = reward + gamma * dot(next, theta) - dot(f, theta);
            let along = if u.is_empty() { 0.0 } else { dot(f, u) };
            for i in 0..8 {
                expected[i] += w * match operator {
                    Td => rho * delta * f[i],
                    Gtd2 => rho * (f[i] - gamma * next[i]) * along,
                    Tdc => rho * (delta * f[i] - gamma * next[i] * along),
                };
                if operator != Td {
                    expected[8 + i] += w * (rho * delta * f[i] - along * f[i]);
                }
            }
        }
        let mut g = vec![0.0; n];
        assert!(field.mean(0, &x, &mut g));
        close(&g, &expected, &format!("{operator:?}, {kind:?}"));
        // The values are r / (1 - gamma) everywhere, and the norm of value errors is that of the states that are seen.
        let root = field.root().unwrap();
        assert!(values(root).iter().all(|v| (v - reward / (1.0 - gamma)).abs() < 1e-9), "{operator:?}: {:?}", values(root));
        let squares: f64 = values(&x).iter().enumerate().map(|(s, v)| law(s) * v * v).sum();
        let zero = vec![0.0; n];
        let error = fedsa::problem::value_error(field.facts().gram().unwrap(), &x, &zero);
        assert!((error - squares).abs() < 1e-12 * squares, "{error} {squares}");
    }
}

/// Along one trajectory, sample by sample.
#[test]
fn samples_bring_tdc_to_the_values_of_bairds_example() {
    let field = baird(Tdc, Some(10.0), Law::Markov);
    let error = field.facts().projected_bellman().unwrap();
    let start = baird_start(Tdc);
    let run = run_for(&field, &Scafflsa::new(0.002, 50), 1, &start, 20_000);
    let (before, after) = (error.error(&start[..8]), error.error(&run.theta()[..8]));
    assert!(after < 1e-3 * before, "{before} {after}");
    let td = run_for(&baird(Td, None, Law::Markov), &Scafflsa::new(0.002, 50), 1, &baird_start(Td), 20_000);
    assert!(!(values(td.theta()).iter().all(|v| v.abs() < 1e3)), "TD does not diverge: {:?}", values(td.theta()));
}

#[test]
fn what_does_not_go_with_an_operator_is_refused() {
    let logs = logs(false);
    let refused = |settings: &Logs| {
        let e = of(&logs, settings, Law::Mean).map(|_| ()).unwrap_err();
        (e.key.clone(), e.what.clone())
    };
    for kappa in [0.0, -1.0, 1e13, f64::NAN, f64::INFINITY] {
        assert_eq!(refused(&settings(Gtd2, kappa)).0, "kappa");
    }
    assert_eq!(refused(&settings(Td, 1.0).with_kappa(2.0)), ("kappa".into(), "2 beside the operator td, which has one step".into()));
    assert_eq!(refused(&settings(Tdc, 1.0).with_lambda(0.5)), ("operator".into(), "gtd2 or tdc with lambda = 0.5".into()));
    let key = |baird: Baird| baird.field(&NoFiles, Sampling::default(), Isa::best()).map(|_| ()).unwrap_err().key;
    assert_eq!(key(Baird::default().with_solid(0.0)), "solid");
    assert_eq!(key(Baird::default().with_solid(1.0)), "solid");
    assert_eq!(key(Baird::default().with_kappa(1.0)), "kappa");
    assert_eq!(key(Baird::default().with_gamma(1.0)), "gamma");
    assert_eq!(key(Baird::default().with_agents(0)), "agents");
}
