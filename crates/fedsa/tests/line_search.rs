//! Line searches near the optimum, where decreases are below the rounding errors of losses, and whole steps would expand.

use std::sync::Arc;

use crate::common::{EXACT, distance, field, linear, method, run, run_from};
use faer::Mat;
use fedsa::linalg::norm_sq;
use fedsa::problem::{Field, Objective};
use fedsa::sampling::Law;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

type Matrix = Vec<Vec<f64>>;

/// Agents with few rows that differ: their Hessians are nearly singular, each along other directions.
fn differing(dim: usize, points: usize, shift: f64) -> Arc<dyn Field> {
    field(&RandomLogistic::default().with_agents(5).with_dim(dim).with_points(points).with_ridge(1e-5).with_shift(shift), Law::Mean)
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn loss(field: &dyn Field, theta: &[f64]) -> f64 {
    let objective = field.facts().objective().unwrap();
    (0..field.agents()).map(|c| objective.loss(c, theta)).sum::<f64>() / field.agents() as f64
}

/// The mean gradient.
fn gradient(field: &dyn Field, theta: &[f64]) -> Vec<f64> {
    let (objective, mut sum, mut g) = (field.facts().objective().unwrap(), vec![0.0; theta.len()], vec![0.0; theta.len()]);
    for c in 0..field.agents() {
        objective.gradient(c, theta, &mut g);
        sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / field.agents() as f64);
    }
    sum
}

fn hessian(objective: &dyn Objective, c: usize, theta: &[f64]) -> Matrix {
    let d = theta.len();
    let mut h = Mat::zeros(d, d);
    objective.hessian(c, theta, &mut h);
    (0..d).map(|i| (0..d).map(|j| h[(i.max(j), i.min(j))]).collect()).collect()
}

/// `m^-1 b` by Gauss's elimination.
fn solve(m: &Matrix, b: &[f64]) -> Vec<f64> {
    let d = b.len();
    let mut rows: Matrix = m.iter().zip(b).map(|(row, b)| row.iter().copied().chain([*b]).collect()).collect();
    for i in 0..d {
        let best = (i..d).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs())).unwrap();
        rows.swap(i, best);
        let row = rows[i].clone();
        for (k, other) in rows.iter_mut().enumerate().filter(|(k, _)| *k != i) {
            let factor = other[i] / row[i];
            other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
            assert!(k < d && factor.is_finite());
        }
    }
    (0..d).map(|i| rows[i][d] / rows[i][i]).collect()
}

/// The mean of the agents' own Newton directions for g.
fn mean_direction(field: &dyn Field, theta: &[f64], g: &[f64]) -> Vec<f64> {
    let (objective, mut p) = (field.facts().objective().unwrap(), vec![0.0; g.len()]);
    for c in 0..field.agents() {
        let own = solve(&hessian(objective, c, theta), g);
        p.iter_mut().zip(&own).for_each(|(p, own)| *p -= own / field.agents() as f64);
    }
    p
}

/// The relative residuals `||g(theta_t)|| / ||g(0)||` of GIANT by its formulas, whose line search knows the decrease of the loss to its last
/// digits: where it is small against the loss, from the slopes at both ends of the step, as on a quadratic function.
fn giant_by_hand(field: &dyn Field, rounds: usize) -> Vec<f64> {
    let mut theta = vec![0.0; field.dim()];
    let first = norm_sq(&gradient(field, &theta)).sqrt();
    let round = |_| {
        let g = gradient(field, &theta);
        let p = mean_direction(field, &theta, &g);
        let (before, slope) = (loss(field, &theta), inner(&g, &p));
        let at = |s: f64| theta.iter().zip(&p).map(|(x, p)| x + s * p).collect::<Vec<f64>>();
        let rise = |s: f64| match -s * slope > 1e-8 * before {
            true => loss(field, &at(s)) - before,
            false => 0.5 * s * (slope + inner(&gradient(field, &at(s)), &p)),
        };
        let s = (0..10).map(|k| 0.25f64.powi(k)).find(|s| rise(*s) <= 0.1 * s * slope).unwrap_or(0.25f64.powi(9));
        theta = at(s);
        norm_sq(&gradient(field, &theta)).sqrt() / first
    };
    (0..rounds).map(round).collect()
}

/// The relative residuals of the engine.
fn residuals(field: &Arc<dyn Field>, kind: &str, settings: &str, start: &[f64], rounds: usize) -> Vec<f64> {
    let mut engine = run_from(field, &*method(kind, settings), 5, start);
    let first = norm_sq(&gradient(&**field, start)).sqrt();
    let round = |_| {
        engine.step();
        norm_sq(&gradient(&**field, engine.theta())).sqrt() / first
    };
    (0..rounds).map(round).collect()
}

/// The first round after which the residual is at most `goal`.
fn reached(residuals: &[f64], goal: f64) -> Option<usize> {
    residuals.iter().position(|residual| *residual <= goal)
}

/// How much the whole step of GIANT, seen from the root, is too long: the spectral radius of `mean(H_c^-1) mean(H_c)` by the power iteration.
fn stretch(field: &dyn Field) -> f64 {
    let root = field.root().unwrap();
    let all: Vec<Matrix> = (0..field.agents()).map(|c| hessian(field.facts().objective().unwrap(), c, root)).collect();
    let (mut v, mut length) = (vec![1.0; field.dim()], 0.0);
    for _ in 0..200 {
        let product: Vec<f64> = (0..v.len()).map(|i| all.iter().map(|h| inner(&h[i], &v)).sum::<f64>() / all.len() as f64).collect();
        v = mean_direction(field, root, &product);
        length = norm_sq(&v).sqrt();
        v.iter_mut().for_each(|v| *v /= -length);
    }
    length
}

/// The rounds are about those of a search that rounding errors of losses do not reach.
#[test]
fn giant_goes_on_where_its_whole_step_expands() {
    for (dim, points, shift) in [(12, 80, 2.0), (8, 40, 2.0), (12, 100, 3.0), (12, 40, 4.0), (53, 182, 4.0)] {
        let field = differing(dim, points, shift);
        let stretch = stretch(&*field);
        assert!(stretch > 2.5, "{stretch}");
        let by_hand = reached(&giant_by_hand(&*field, 400), 1e-13).unwrap();
        for settings in ["{}", r#"{"gradients_ahead": true}"#, r#"{"cg_tolerance": 1e-12}"#] {
            let residuals = residuals(&field, "giant", settings, &vec![0.0; dim], 400);
            let rounds = reached(&residuals, 1e-13);
            assert!(rounds.is_some_and(|rounds| 10 * rounds <= 11 * by_hand), "d = {dim}, {settings}: {rounds:?}, by hand {by_hand}");
            assert!(residuals[350..].iter().all(|residual| *residual < 1e-13), "d = {dim}, {settings}: it stays there");
        }
    }
}

/// Two components, of which the whole step contracts one by 0.41 and expands the other one by 2. While the losses show the first one's decrease
/// the whole step is accepted, and later it is not.
#[test]
fn a_step_that_was_right_for_another_component_is_shortened() {
    let systems = [([[0.3, 0.0], [0.0, 0.1]], [3.0, 1.0]), ([[1.0, 0.0], [0.0, 1.0]], [-2.0, 2.0])];
    let alike = [([[0.2, 0.0], [0.0, 3.0]], [3.0, 1.0]), ([[0.2, 0.0], [0.0, 3.0]], [-2.0, 2.0])];
    for (kind, settings, systems) in [("giant", "{}", systems), ("giant", r#"{"shrink": 0.9}"#, systems), ("gd", "{}", alike)] {
        let field = field(&linear(&systems), Law::Mean);
        for seed in 0..20 {
            let start = [1.0 + 0.37 * f64::from(seed), -0.2 + 0.11 * f64::from(seed)];
            let mut engine = run_from(&field, &*method(kind, settings), 5, &start);
            (0..400).for_each(|_| engine.step());
            let error = distance(engine.theta(), field.root().unwrap());
            assert!(error < 1e-13, "{kind} {settings}, start {start:?}: {error:e}");
        }
    }
}

/// Hessians of a start far away are small; their step expands at the optimum.
#[test]
fn old_hessians_do_not_keep_shed_from_the_root() {
    let field = field(&RandomLogistic::default().with_agents(6).with_dim(5).with_points(40).with_ridge(1e-2), Law::Mean);
    let start = [3.0; 5];
    for (kind, settings) in [
        ("shed", r#"{"renewal": {"schedule": "once"}}"#),
        ("shed", r#"{"renewal": {"schedule": "once"}, "curvature": "products"}"#),
        ("q-shed", r#"{"renewal": {"schedule": "once"}}"#),
    ] {
        let residuals = residuals(&field, kind, settings, &start, 300);
        assert!(residuals[250..].iter().all(|residual| *residual < 1e-12), "{kind} {settings}: {:e}", residuals[299]);
    }
}

/// Every method with a line search comes as near as rounding errors of gradients allow, and stays there.
#[test]
fn searches_end_where_gradients_are_rounding_errors() {
    let field = field(&RandomLogistic::default().with_agents(6).with_dim(5).with_points(40), Law::Mean);
    for (kind, settings) in [
        ("newton", "{}"),
        ("giant", "{}"),
        ("gd", "{}"),
        ("gd", r#"{"longest_step": 1000.0}"#),
        ("agd", r#"{"longest_step": 1000.0}"#),
        ("bfgs", "{}"),
        ("lbfgs", "{}"),
        ("shed", "{}"),
        ("q-shed", "{}"),
        ("fednl", r#"{"line_search": true}"#),
        ("fednl", r#"{"line_search": true, "compressor": "top-k", "k": 4}"#),
    ] {
        let mut engine = run(&field, &*method(kind, settings), &EXACT, 5);
        let first = norm_sq(&gradient(&*field, engine.theta())).sqrt();
        (0..600).for_each(|_| engine.step());
        for _ in 0..20 {
            engine.step();
            let residual = norm_sq(&gradient(&*field, engine.theta())).sqrt() / first;
            assert!(residual < 1e-13, "{kind} {settings}: {residual:e}");
        }
    }
}
