//! `adaptive-newton`: against dense matrices, where its answer is known, and what it costs.

use std::sync::Arc;

use crate::common::{EXACT, distance, field, linear, link, method, run};
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa_problems::ProblemSettings;
use fedsa_problems::linear::quadratic::Quadratic;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

type Matrix = Vec<Vec<f64>>;

fn product(m: &Matrix, v: &[f64]) -> Vec<f64> {
    m.iter().map(|row| row.iter().zip(v).map(|(a, b)| a * b).sum()).collect()
}

fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inverse by Gauss and Jordan.
fn inverse(m: &Matrix) -> Matrix {
    let d = m.len();
    let mut rows: Matrix = (0..d).map(|i| (0..2 * d).map(|j| if j < d { m[i][j] } else { f64::from(j - d == i) }).collect()).collect();
    for i in 0..d {
        let best = (i..d).max_by(|a, b| rows[*a][i].abs().total_cmp(&rows[*b][i].abs())).unwrap();
        rows.swap(i, best);
        let pivot = rows[i][i];
        rows[i].iter_mut().for_each(|x| *x /= pivot);
        let row = rows[i].clone();
        for (_, other) in rows.iter_mut().enumerate().filter(|(k, _)| *k != i) {
            let factor = other[i];
            other.iter_mut().zip(&row).for_each(|(x, y)| *x -= factor * y);
        }
    }
    rows.into_iter().map(|row| row[d..].to_vec()).collect()
}

fn quadratics() -> Arc<dyn Field> {
    field(&Quadratic::default().with_agents(5).with_dim(6).with_greatest_eigenvalue(12.0), Law::Mean)
}

/// The agents' matrices and offsets, by products with unit vectors.
fn systems(field: &dyn Field) -> Vec<(Matrix, Vec<f64>)> {
    let (d, objective) = (field.dim(), field.facts().objective().unwrap());
    let gradient = |c: usize, theta: &[f64]| {
        let mut g = vec![0.0; d];
        objective.gradient(c, theta, &mut g);
        g
    };
    let one = |c: usize| {
        let at_zero = gradient(c, &vec![0.0; d]);
        let columns: Matrix = (0..d).map(|j| gradient(c, &(0..d).map(|i| f64::from(i == j)).collect::<Vec<_>>())).collect();
        let a = (0..d).map(|i| (0..d).map(|j| columns[j][i] - at_zero[i]).collect()).collect();
        (a, at_zero.iter().map(|g| -g).collect())
    };
    (0..field.agents()).map(one).collect()
}

/// The iterates of the method from its formulas with dense matrices: `W` is updated by the formula of BFGS from the initial matrix of
/// the round over all pairs, where the method has two loops. On quadratics whose first trial step is accepted in every round.
fn twin(field: &dyn Field, by_agents: bool, rounds: usize) -> Vec<Vec<f64>> {
    let all = systems(field);
    let (d, n) = (field.dim(), all.len() as f64);
    let mean = |i: usize, j: usize| all.iter().map(|(a, _)| a[i][j]).sum::<f64>() / n;
    let a: Matrix = (0..d).map(|i| (0..d).map(|j| mean(i, j)).collect()).collect();
    let b: Vec<f64> = (0..d).map(|i| all.iter().map(|system| system.1[i]).sum::<f64>() / n).collect();
    let inverses: Vec<Matrix> = all.iter().map(|system| inverse(&system.0)).collect();
    let first: Matrix = if by_agents {
        (0..d).map(|i| (0..d).map(|j| inverses.iter().map(|m| m[i][j]).sum::<f64>() / n).collect()).collect()
    } else {
        inverse(&a)
    };
    let gradient = |x: &[f64]| -> Vec<f64> { product(&a, x).iter().zip(&b).map(|(ax, b)| ax - b).collect() };
    let (mut x, mut scale) = (vec![0.0; d], 1.0_f64);
    let (mut g, mut pairs) = (gradient(&x), Vec::<(Vec<f64>, Vec<f64>)>::new());
    let mut path = vec![x.clone()];
    for _ in 1..rounds {
        let mut w: Matrix = first.iter().map(|row| row.iter().map(|x| scale * x).collect()).collect();
        for (s, y) in &pairs {
            let (u, r) = (product(&w, y), 1.0 / inner(s, y));
            let c = r * r * inner(y, &u) + r;
            for (i, row) in w.iter_mut().enumerate() {
                for (j, w) in row.iter_mut().enumerate() {
                    *w += c * s[i] * s[j] - r * (s[i] * u[j] + u[i] * s[j]);
                }
            }
        }
        let p: Vec<f64> = product(&w, &g).iter().map(|x| -x).collect();
        let to: Vec<f64> = x.iter().zip(&p).map(|(x, p)| x + p).collect();
        let next = gradient(&to);
        let (before, after) = (inner(&g, &p), inner(&next, &p));
        let minimum = if after > before { before / (before - after) } else { 2.0 };
        scale = (scale * minimum.clamp(0.4, 1.6).sqrt()).clamp(0.02, 1.0);
        // Half of the sum of both slopes is the change of a parabola along p.
        assert!(0.5 * (before + after) <= 1e-4 * before, "the twin has no shorter steps");
        pairs.push((p.clone(), next.iter().zip(&g).map(|(a, b)| a - b).collect()));
        (x, g) = (to, next);
        path.push(x.clone());
    }
    path
}

#[test]
fn iterates_are_those_of_dense_matrices() {
    let field = quadratics();
    for (first, by_agents) in [("agents", true), ("hessians", false)] {
        let method = method("adaptive-newton", &format!(r#"{{"first": "{first}", "keep": true, "tolerance": 1e-300}}"#));
        let mut engine = run(&field, &*method, &EXACT, 5);
        for (t, expected) in twin(&*field, by_agents, if by_agents { 7 } else { 3 }).iter().enumerate() {
            engine.step();
            let apart = distance(engine.theta(), expected);
            assert!(apart <= 1e-9 * (1.0 + linalg::norm_sq(expected).sqrt()), "{first}, round {t}: {apart:e}");
        }
    }
}

/// Each source of curvature leads to the root, and the rule does with all of them.
#[test]
fn every_source_reaches_the_root() {
    let logistic = RandomLogistic::default().with_agents(6).with_dim(5).with_points(40);
    let problems: [(&str, Arc<dyn Field>); 2] =
        [("quadratics", quadratics()), ("logistic", field(&logistic as &dyn ProblemSettings, Law::Mean))];
    for (name, field) in problems {
        for settings in [
            r#""first": "gradients", "keep": true"#,
            r#""first": "agents", "keep": true"#,
            r#""first": "hessians", "keep": true"#,
            r#""memory": 3"#,
        ] {
            let method = method("adaptive-newton", &format!(r#"{{"tolerance": 1e-11, {settings}}}"#));
            let mut engine = run(&field, &*method, &EXACT, 5);
            (0..60).for_each(|_| engine.step());
            let error = distance(engine.theta(), field.root().unwrap());
            assert!(error < 1e-8, "{settings} on {name}: {error:e}");
        }
    }
}

/// A Hessian of a quadratic objective is sent once, with the gradient: the first round is at the root.
#[test]
fn a_quadratic_takes_one_hessian() {
    let field = quadratics();
    for settings in [r#"{"first": "hessians", "keep": true, "quadratic": true}"#, r#"{"quadratic": true}"#] {
        let mut engine = run(&field, &*method("adaptive-newton", settings), &EXACT, 5);
        engine.step();
        assert!(distance(engine.theta(), field.root().unwrap()) < 1e-12);
        let ledger = engine.ledger();
        // A gradient and a Hessian of each of 5 agents, in one exchange.
        assert_eq!((ledger.exchanges, ledger.vectors_up, ledger.matrices_up, ledger.calls.hessians), (1, 5, 5, 5));
        // What rounding leaves is measured from there, with gradients alone.
        (0..3).for_each(|_| engine.step());
        assert!(distance(engine.theta(), field.root().unwrap()) < 1e-12);
        let ledger = engine.ledger();
        assert_eq!((ledger.exchanges, ledger.matrices_up), (4, 5));
    }
    // Where Hessians are not known to be the same, the second round is at the root.
    let late = method("adaptive-newton", r#"{"first": "hessians", "keep": true, "largest_hessian": 6}"#);
    let mut engine = run(&field, &*late, &EXACT, 5);
    (0..2).for_each(|_| engine.step());
    assert!(distance(engine.theta(), field.root().unwrap()) < 1e-12);
}

/// A question that some agents have not answered is repeated, and the answer is that of all.
#[test]
fn lost_answers_are_asked_for_again() {
    let systems = [([[2.0, 0.5], [0.5, 1.0]], [1.0, 0.0]), ([[1.0, 0.0], [0.0, 3.0]], [0.0, -2.0])];
    let field = field(&linear(&systems), Law::Mean);
    let erasure = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.8}"#]).unwrap();
    let mut engine = run(&field, &*method("adaptive-newton", "{}"), &erasure, 5);
    (0..80).for_each(|_| engine.step());
    assert!(distance(engine.theta(), field.root().unwrap()) < 1e-8, "{:?}", engine.theta());
}

#[test]
fn settings_out_of_range_are_refused() {
    for (settings, key) in [(r#"{"tolerance": 0.0}"#, "tolerance"), (r#"{"memory": 0}"#, "memory"), (r#"{"shrinks": 61}"#, "shrinks")] {
        assert_eq!(method("adaptive-newton", settings).check(3).unwrap_err().key, key);
    }
    let large = method("adaptive-newton", r#"{"largest_hessian": 70000}"#);
    assert_eq!(large.check(3).unwrap_err().key, "largest_hessian");
}
