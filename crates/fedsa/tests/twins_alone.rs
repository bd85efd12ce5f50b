//! Slow twins of methods whose agents compute alone: LSTD, FedNL, and backtracking line searches, in plain loops from their formulas.

use std::sync::Arc;

use crate::common::{field, linear, link, method, run};
use crate::twins::{differ_by_rounding, nineteen};
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{Law, Sampling};
use fedsa::server::Participation;
use fedsa::uplink::MessageKey;
use fedsa_problems::linear::file::ArrayFile;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::LogSource;
use fedsa_problems::{Files, NoFiles, ProblemSettings as _};

const SEED: u64 = 5;

/// The solution of a regular system by Gaussian elimination with the largest pivot of each column, and a bound of its condition number
/// in the maximum norm.
fn solve(a: &[Vec<f64>], b: &[f64]) -> (Vec<f64>, f64) {
    let d = b.len();
    let norm = |m: &[Vec<f64>]| m.iter().map(|row| row[..d].iter().map(|x| x.abs()).sum::<f64>()).fold(0.0, f64::max);
    // The right sides: b, and the identity for the inverse.
    let mut rows: Vec<Vec<f64>> = (0..d)
        .map(|i| {
            let unit = (0..d).map(|j| f64::from(u8::from(i == j)));
            a[i].iter().copied().chain([b[i]]).chain(unit).collect()
        })
        .collect();
    for k in 0..d {
        let pivot = (k..d).max_by(|i, j| rows[*i][k].abs().total_cmp(&rows[*j][k].abs())).unwrap();
        rows.swap(k, pivot);
        let by = rows[k][k];
        rows[k].iter_mut().for_each(|x| *x /= by);
        let from = rows[k].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != k) {
            let factor = row[k];
            row.iter_mut().zip(&from).for_each(|(x, y)| *x -= factor * y);
        }
    }
    let inverse: Vec<Vec<f64>> = rows.iter().map(|row| row[d + 1..].to_vec()).collect();
    (rows.iter().map(|row| row[d]).collect(), norm(a) * norm(&inverse))
}

fn participants(m: Option<usize>, n: usize, t: u64) -> Vec<usize> {
    Participation { m, agents: n, seed: SEED }.of(t).unwrap_or_else(|| (0..n).collect())
}

/// `A_c` and `b_c` of an agent whose mean operator is `b_c - A_c theta`.
fn system(field: &Arc<dyn Field>, c: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
    let d = field.dim();
    let at = |theta: &[f64]| {
        let mut g = vec![0.0; d];
        assert!(field.mean(c, theta, &mut g));
        g
    };
    let b = at(&vec![0.0; d]);
    let column = |j: usize| at(&(0..d).map(|i| f64::from(u8::from(i == j))).collect::<Vec<_>>());
    let columns: Vec<Vec<f64>> = (0..d).map(column).collect();
    ((0..d).map(|i| (0..d).map(|j| b[i] - columns[j][i]).collect()).collect(), b)
}

/// The server adds up the systems that arrive, each round divided by the weight of those that it asked, and solves.
#[test]
fn lstd_is_its_slow_twin() {
    let field = nineteen(Law::Mean, 1);
    let (n, d, p) = (field.agents(), field.dim(), field.weights().to_vec());
    let systems: Vec<_> = (0..n).map(|c| system(&field, c)).collect();
    for success in [1.0, 0.5] {
        let uplink = link(r#"{"kind": "exact"}"#, false, &[&format!(r#"{{"kind": "erasure", "success": {success}}}"#)]).unwrap();
        for m in [None, Some(4)] {
            let settings = m.map_or("{}".into(), |m: usize| format!(r#"{{"participants": {m}}}"#));
            let method = method("lstd", &settings);
            let mut engine = run(&field, &*method, &uplink, SEED);
            let (mut a, mut b) = (vec![vec![0.0; d]; d], vec![0.0; d]);
            for t in 0..8 {
                engine.step();
                let asked = participants(m, n, t);
                let weight: f64 = asked.iter().map(|c| p[*c]).sum();
                for c in asked {
                    let place = MessageKey { seed: SEED, round: t, exchange: 0, agent: c };
                    if place.stream(Purpose::Medium).uniform() < success {
                        for i in 0..d {
                            (0..d).for_each(|j| a[i][j] += p[c] / weight * systems[c].0[i][j]);
                            b[i] += p[c] / weight * systems[c].1[i];
                        }
                    }
                }
                // Until a first system arrives theta stays.
                let nothing = a.iter().flatten().all(|x| *x == 0.0);
                let (theta, condition) = if nothing { (vec![0.0; d], 1.0) } else { solve(&a, &b) };
                // A solution is as exact as the sums, times the condition number.
                let roundings = ((t as usize + 1) * (n + 4) + d * d * d) * condition.ceil() as usize;
                let near = differ_by_rounding(engine.theta(), &theta, roundings, t);
                assert!(near.is_ok(), "participants {m:?}, success {success}, round {t}: {}", near.unwrap_err());
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------ FedNL

struct Given(Arrays);

impl Files for Given {
    fn arrays(&self, _: &str) -> fedsa::error::Result<Arrays> {
        Ok(self.0.clone())
    }
    fn logs(&self, paths: &[String], form: &LogForm) -> fedsa::error::Result<Vec<Box<dyn LogSource>>> {
        NoFiles.logs(paths, form)
    }
}

const N: usize = 5;
const D: usize = 3;

/// Quadratic objectives `theta^T A_c theta / 2 - b_c^T theta` of five agents of unequal weight, with positive definite `A_c` that differ.
fn quadratics() -> Arc<dyn Field> {
    let mut draws = stream(4, Purpose::Fresh, 1, 0);
    let mut a = Vec::new();
    for _ in 0..N {
        let lower: [[f64; D]; D] = std::array::from_fn(|_| std::array::from_fn(|_| draws.uniform() - 0.5));
        (0..D * D).for_each(|k| a.push(lower[(k / D).max(k % D)][(k / D).min(k % D)] + if k / D == k % D { 2.0 } else { 0.0 }));
    }
    let b: Vec<f64> = (0..N * D).map(|_| draws.normal()).collect();
    let mut arrays = Arrays::new();
    let mut put = |name: &str, shape: &[usize], data: Vec<f64>| arrays.insert(name, Array::new(shape.to_vec(), data).unwrap());
    put("A", &[N, D, D], a);
    put("b", &[N, D], b);
    put("weights", &[N], vec![1.0, 4.0, 2.0, 7.0, 3.0]);
    let settings = ArrayFile::new(String::new());
    settings.field(&Given(arrays), Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap()
}

/// `||M||_F`: numbers beside the diagonal are there twice.
fn frobenius(m: &[Vec<f64>]) -> f64 {
    m.iter().flatten().map(|x| x * x).sum::<f64>().sqrt()
}

/// The k numbers of the lower triangle of largest magnitude, and those across the diagonal.
fn largest(m: &[Vec<f64>], k: usize) -> Vec<Vec<f64>> {
    let mut places: Vec<(usize, usize)> = (0..D).flat_map(|i| (0..=i).map(move |j| (i, j))).collect();
    places.sort_by(|x, y| m[y.0][y.1].abs().total_cmp(&m[x.0][x.1].abs()));
    let mut kept = vec![vec![0.0; D]; D];
    for (i, j) in places.into_iter().take(k) {
        (kept[i][j], kept[j][i]) = (m[i][j], m[i][j]);
    }
    kept
}

/// What the twin knows of an agent: `H_c`, the distance that counts in M, the model and the gradient of its last answer.
#[derive(Clone)]
struct Known {
    learned: Vec<Vec<f64>>,
    distance: f64,
    model: Vec<f64>,
    gradient: Vec<f64>,
}

const MU: f64 = 0.5;

fn fednl_settings(rate: f64, k: usize, participants: Option<usize>) -> String {
    let partial = participants.map_or(String::new(), |m: usize| format!(r#", "participants": {m}"#));
    format!(
        r#"{{"compressor": "top-k", "k": {k}, "option": "shift", "first_hessian": "mu-identity", "mu": {MU}, "learning_rate": {rate},
            "step_size": 0.5{partial}}}"#
    )
}

impl Known {
    fn at_start() -> Self {
        let learned = (0..D).map(|i| (0..D).map(|j| if i == j { MU } else { 0.0 }).collect()).collect();
        Self { learned, distance: 0.0, model: vec![0.0; D], gradient: vec![0.0; D] }
    }

    /// The answer at theta of an agent with these `A_c` and `b_c`. Returns `H_c` and the distance after its correction, which count
    /// from the next round on.
    fn answer(&mut self, (a, b): &(Vec<Vec<f64>>, Vec<f64>), theta: &[f64], rate: f64, k: usize) -> (Vec<Vec<f64>>, f64) {
        let off: Vec<Vec<f64>> = (0..D).map(|i| (0..D).map(|j| a[i][j] - self.learned[i][j]).collect()).collect();
        let change = largest(&off, k);
        let (mut learned, mut left) = (self.learned.clone(), off.clone());
        for i in 0..D {
            for j in 0..D {
                learned[i][j] += rate * change[i][j];
                left[i][j] -= rate * change[i][j];
            }
        }
        (self.model, self.distance) = (theta.to_vec(), frobenius(&off));
        self.gradient = (0..D).map(|i| (0..D).map(|j| a[i][j] * theta[j]).sum::<f64>() - b[i]).collect();
        (learned, frobenius(&left))
    }
}

/// `M` and the right side of the server's system at theta.
fn servers_system(p: &[f64], agents: &[Known], theta: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
    let (mut matrix, mut right) = (vec![vec![0.0; D]; D], vec![0.0; D]);
    for (p, agent) in p.iter().zip(agents) {
        for i in 0..D {
            right[i] -= p * agent.gradient[i];
            for j in 0..D {
                let entry = agent.learned[i][j] + if i == j { agent.distance } else { 0.0 };
                matrix[i][j] += p * entry;
                right[i] += p * entry * (agent.model[j] - theta[j]);
            }
        }
    }
    (matrix, right)
}

/// In a round `p = M^-1 sum p_c [(H_c + l_c I)(w_c - theta) - grad f_c(w_c)]` with `M = sum p_c (H_c + l_c I)`; in the round of an
/// answer `H_c` and `l_c = ||H_c - Hess f_c||_F` are those before its correction, later those after it: `H_c += alpha C(Hess f_c - H_c)`.
#[test]
fn fednl_is_its_slow_twin() {
    let field = quadratics();
    let p = field.weights().to_vec();
    let systems: Vec<_> = (0..N).map(|c| system(&field, c)).collect();
    for (rate, k, m) in [(1.0, 2, None), (0.4, 2, None), (0.4, 6, None), (0.7, 1, Some(2)), (1.0, 3, Some(4))] {
        let method = method("fednl", &fednl_settings(rate, k, m));
        let uplink = link(r#"{"kind": "exact"}"#, false, &[]).unwrap();
        let mut engine = run(&field, &*method, &uplink, SEED);
        let mut theta = vec![0.0; D];
        let mut agents = vec![Known::at_start(); N];
        for t in 0..12 {
            engine.step();
            // Until each agent has answered all take part, which is so after the first round.
            let asked = participants(m.filter(|_| t > 0), N, t);
            let after: Vec<_> = asked.iter().map(|c| agents[*c].answer(&systems[*c], &theta, rate, k)).collect();
            let (matrix, right) = servers_system(&p, &agents, &theta);
            let (step, condition) = solve(&matrix, &right);
            (0..D).for_each(|i| theta[i] += 0.5 * step[i]);
            for (c, (learned, distance)) in asked.iter().zip(after) {
                (agents[*c].learned, agents[*c].distance) = (learned, distance);
            }
            let roundings = (t as usize + 1) * (N * (2 * D + 8) + D * D * D) * condition.ceil() as usize;
            let near = differ_by_rounding(engine.theta(), &theta, roundings, t);
            assert!(near.is_ok(), "rate {rate}, k {k}, participants {m:?}, round {t}: {}", near.unwrap_err());
        }
    }
}

// ------------------------------------------------------------------------------------------------ line searches

/// Along `-e g` on `f = a theta^2 / 2`, `f(theta - s e g) <= f(theta) - alpha s e g^2` says `s e a <= 2 (1 - alpha)`: of the steps 1, 1/2,
/// 1/4, .. the first one below that is taken.
#[test]
fn armijos_constant_decides_between_neighbouring_steps() {
    for (a, longest, alpha) in [(1.0, 1.7, 0.1), (1.0, 1.7, 0.2), (2.0, 2.2, 0.44), (2.0, 2.2, 0.46), (0.5, 3.1, 0.2), (0.5, 3.1, 0.25)] {
        let field = field(&linear(&[([[a]], [0.0]), ([[a]], [0.0])]), Law::Mean);
        let method = method("gd", &format!(r#"{{"longest_step": {longest}, "decrease": {alpha}}}"#));
        let start = 3.0;
        let mut engine = crate::common::run_from(&field, &*method, SEED, &[start]);
        engine.step();
        let mut s = 1.0;
        while s * longest * a > 2.0 * (1.0 - alpha) {
            s /= 2.0;
        }
        let expected = start * (1.0 - s * longest * a);
        assert!(
            (engine.theta()[0] - expected).abs() < 1e-14,
            "a {a}, longest {longest}, alpha {alpha}: {:?}, not {expected}",
            engine.theta()
        );
    }
}
