//! Predictions under the noise of releases against reference numbers, slow recursions and draws.

use std::sync::Arc;

use faer::prelude::*;

use super::*;
use crate::exact_mse::InitialControls;
use crate::phase::AffinePhase;
use crate::predict::Forecast;
use fedsa::kernel::Isa;
use fedsa::linalg::{self, Mat};
use fedsa::method::ControlRule::{self, Acknowledged, Afresh, Literal};
use fedsa::method::{MethodSettings, MethodShape};
use fedsa::privacy::accounting;
use fedsa::privacy::sensitivity::{LstdRow, Relation};
use fedsa::problem::systems::{System, Systems};
use fedsa::problem::{Field, Sampled};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa::uplink::stage::sent_noise::SentNoise;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::linear::affine::Linear;

fn field(systems: Systems) -> Arc<dyn Field> {
    Arc::new(Sampled::new(Linear::new(systems), Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap())
}

fn two() -> Systems {
    let of = |a: [f64; 4], b: [f64; 2]| System { a: linalg::from_rows(2, 2, &a), b: b.to_vec() };
    let kinds = vec![of([1.0, 0.2, -0.1, 0.6], [1.0, 0.0]), of([0.5, -0.3, 0.2, 0.9], [0.0, 1.0])];
    Systems::new(kinds, vec![0, 1], vec![0.5, 0.5])
}

/// Ten kinds, each `copies` times, of equal weight.
fn ten(copies: usize) -> Systems {
    let kind = |c: usize| {
        let c = c as f64;
        System { a: linalg::from_rows(2, 2, &[0.8 + 0.08 * c, 0.2, -0.1, 0.5 + 0.05 * c]), b: vec![1.0 - 0.2 * c, 0.1 * c] }
    };
    let n = 10 * copies;
    Systems::new((0..10).map(kind).collect(), (0..n as u32).map(|c| c % 10).collect(), vec![1.0 / n as f64; n])
}

fn shapes(step: f64, h: usize) -> [(MethodShape, u32); 3] {
    [(FedLsa::new(step, h).shape(), 1), (Scafflsa::new(step, h).shape(), 1), (FedHsa::new(step, h).shape(), 2)]
}

#[test]
fn floors_under_the_noise_of_releases_have_the_reference_numbers() {
    let field = field(two());
    for ((shape, _), want) in shapes(0.1, 5).into_iter().zip(["0.037093394148", "0.030720639442", "0.064320351942"]) {
        let of = Forecast::new(&field, shape).with_release_noise(0.04).unwrap();
        let floor = of.floor().unwrap();
        assert_eq!(format!("{:.12}", floor.mse()), want);
        // The curve ends at the floor, and a run over the map of moments follows the curve.
        let rounds: Vec<u64> = (0..=300).collect();
        let curve = of.curve(&[1.0, -1.0], &InitialControls::Zero, &rounds).unwrap();
        assert!((curve[300].mse() / floor.mse() - 1.0).abs() < 1e-9);
        let evolution = of.evolution(&[1.0, -1.0], &InitialControls::Zero).unwrap();
        let mut state = evolution.start().to_vec();
        for point in &curve {
            assert!((evolution.mse(&state) - point.mse()).abs() < 1e-12);
            let before = state.clone();
            evolution.map().apply(&before, &mut state);
        }
        // The floor's part of the releases is all but the bias.
        let limits = of.limits(&crate::predict::FloorCache::default()).unwrap();
        assert!((limits.link.unwrap() - (floor.mse() - limits.bias)).abs() < 1e-14 && limits.samples.is_none());
    }
}

/// One round of SCAFFLSA on `(u, x_1, .., x_N)` without samples, kept to the letter: the map, and how noise of the mean enters.
fn literal_round(systems: &Systems, step: f64, h: u64) -> (Mat<f64>, Mat<f64>) {
    let (d, n, span) = (systems.dim(), systems.weights.len(), step * h as f64);
    let size = d * (n + 1);
    let mut map = Mat::<f64>::identity(size, size);
    let mut noise = Mat::<f64>::zeros(size, d);
    let mut mean = Mat::<f64>::zeros(d, size);
    for c in 0..n {
        let of = AffinePhase::new(&systems.of(c).a, step, h);
        let mut direction = Mat::<f64>::zeros(d, size);
        direction.get_mut(.., ..d).copy_from(Scale(-1.0 / span) * (&of.sum * &systems.of(c).a));
        direction.get_mut(.., (c + 1) * d..(c + 2) * d).copy_from(Scale(1.0 / span) * &of.sum);
        let mut own = map.get_mut((c + 1) * d..(c + 2) * d, ..);
        own -= &direction;
        mean += Scale(systems.weights[c]) * direction;
    }
    for block in 0..=n {
        let by = if block == 0 { span } else { 1.0 };
        let mut rows = map.get_mut(block * d..(block + 1) * d, ..);
        rows += Scale(by) * &mean;
        (0..d).for_each(|i| noise[(block * d + i, i)] = by);
    }
    (map, noise)
}

#[test]
fn controls_kept_to_the_letter_accumulate_the_noise() {
    let systems = two();
    let growth = literal_growth(&systems, 0.04).unwrap();
    assert_eq!(format!("{growth:.9}"), "0.141592920");
    let (map, noise) = literal_round(&systems, 0.1, 5);
    let mut moments = Mat::<f64>::zeros(6, 6);
    let mut before = 0.0;
    for round in 0..400 {
        moments = &map * &moments * map.transpose() + Scale(0.04) * (&noise * noise.transpose());
        let error = moments[(0, 0)] + moments[(1, 1)];
        assert!(round < 399 || (error - before - growth).abs() < 1e-10, "{}", error - before);
        before = error;
    }
    // A forecast says so.
    let uplink = Uplink::default().with_media(vec![Arc::new(SentNoise::new(0.2))]);
    let said = |rule: ControlRule| {
        let method = Scafflsa::new(0.1, 5).with_rule(rule);
        Forecast::over(&field(two()), &method, &uplink).floor().map(|floor| floor.mse())
    };
    assert!(said(Literal).unwrap_err().what.contains("grows in every round"));
    assert!(said(Acknowledged).unwrap_err().what.contains("made afresh"));
    // Two agents of weight 1/2 with noise of variance 0.04 each.
    let half = Forecast::new(&field(two()), Scafflsa::new(0.1, 5).shape()).with_release_noise(0.02).unwrap();
    assert!((said(Afresh).unwrap() / half.floor().unwrap().mse() - 1.0).abs() < 1e-12);
}

/// The squared mu of all means of T rounds together, if the first agent's b changes by 1: two scalar agents of weight 1/2, noise of
/// variance 2 in every message. `afresh`: their controls are made from released means; else from their own noisy messages.
fn loss(a: [f64; 2], step: f64, h: u64, rounds: usize, afresh: bool) -> (f64, Vec<f64>) {
    // Linear functions of (1, noise of every message): the number of columns.
    let columns = 1 + 2 * rounds;
    let add = |x: &[f64], by: f64, y: &[f64]| -> Vec<f64> { x.iter().zip(y).map(|(x, y)| x + by * y).collect() };
    let span = step * h as f64;
    let gain = a.map(|a| (0..h).map(|k| step * (1.0 - step * a).powi(k as i32)).sum::<f64>() / span);
    let zero = vec![0.0; columns];
    // The difference between the two data sets is in column 0.
    let (mut u, mut x) = (zero.clone(), [zero.clone(), zero.clone()]);
    let (mut means, mut alone) = (Vec::new(), Vec::new());
    for t in 0..rounds {
        let mut sum = zero.clone();
        let mut sent = Vec::new();
        for c in 0..2 {
            let mut pull = add(&x[c], -a[c], &u);
            pull[0] += f64::from(c == 0);
            let direction = add(&zero, gain[c], &pull);
            let clean = if afresh { add(&direction, -1.0, &x[c]) } else { direction };
            let mut noisy = clean.clone();
            noisy[1 + 2 * t + c] += 2f64.sqrt();
            sum = add(&sum, 0.5, &noisy);
            // Given the released means, agents whose controls are afresh send what data and means determine.
            sent.push(if afresh { clean } else { noisy });
        }
        u = add(&u, span, &sum);
        for c in 0..2 {
            x[c] = if afresh { add(&sum, -1.0, &sent[c]) } else { add(&add(&x[c], 1.0, &sum), -1.0, &sent[c]) };
        }
        means.push(sum);
    }
    let covariance = Mat::from_fn(rounds, rounds, |i, j| linalg::dot(&means[i][1..], &means[j][1..]));
    let difference: Vec<f64> = means.iter().map(|mean| mean[0]).collect();
    let mu = linalg::dot(&difference, &linalg::solve(&covariance, &difference).unwrap());
    // What a round releases given the earlier ones, if nothing else were hidden: the agent's own recursion.
    let mut own = 0.0;
    for _ in 0..rounds {
        let direction = gain[0] * (1.0 + own);
        let sent = if afresh { direction - own } else { direction };
        alone.push((0.5 * sent).powi(2));
        own = if afresh { -sent } else { own - sent };
    }
    (mu, alone)
}

#[test]
fn only_controls_made_afresh_compose() {
    let (of, rounds) = ([1.0, 0.2], 10);
    let (mu, alone) = loss(of, 0.2, 5, rounds, true);
    assert_eq!(format!("{mu:.6}"), "2.286383");
    assert!((mu - alone.iter().sum::<f64>()).abs() < 1e-12, "the sum of the rounds");
    let (mu, alone) = loss(of, 0.2, 5, rounds, false);
    assert_eq!(format!("{mu:.6}"), "1.433654");
    let largest = rounds as f64 * alone.iter().copied().fold(0.0, f64::max);
    assert_eq!(format!("{largest:.6}"), "1.130035");
    assert!(mu > largest, "hidden noise enters later sums");
}

fn budget(clip: f64, agents: usize) -> AgentBudget {
    AgentBudget { epsilon: 1.0, delta: 1e-5, relation: Relation::Removed, clip, largest_weight: 1.0 / agents as f64 }
}

#[test]
fn a_budget_is_the_noise_that_spends_it() {
    let of = budget(2.0, 1000);
    assert_eq!(format!("{:.10}", of.rho().unwrap()), "0.0305565952");
    assert!((of.noise(5, 1).unwrap() - 5.0 * 4e-6 / (2.0 * of.rho().unwrap())).abs() < 1e-18);
    for (rounds, releases) in [(5, 1), (7, 2)] {
        let variance = of.noise(rounds, releases).unwrap();
        let spent = of.spent(rounds * u64::from(releases), variance).unwrap();
        assert!((spent - 1.0).abs() < 1e-9, "{spent}");
        assert!(of.spent(rounds, variance).unwrap() < 1.0 + 1e-9);
    }
    let replaced = AgentBudget { relation: Relation::Replaced, ..of };
    assert!((replaced.noise(5, 1).unwrap() / of.noise(5, 1).unwrap() - 4.0).abs() < 1e-12);
    for (bad, key) in [
        (AgentBudget { epsilon: 0.0, ..of }, "epsilon"),
        (AgentBudget { delta: 1.0, ..of }, "delta"),
        (AgentBudget { clip: 0.0, ..of }, "clip"),
        (AgentBudget { largest_weight: 1.5, ..of }, "weights"),
    ] {
        assert_eq!(bad.noise(1, 1).unwrap_err().key, key);
    }
}

#[test]
fn a_thousand_agents_have_the_reference_errors_and_ten_have_none() {
    let (many, few) = (field(ten(100)), field(ten(1)));
    let start = [0.0; 2];
    let range = PlanRange { step_sizes: vec![0.1], local_steps: vec![1, 2, 3, 5, 7, 10, 15, 20, 30, 50], max_rounds: 20, refine: false };
    let mut best_of_ten = f64::INFINITY;
    for ((shape, releases), want) in shapes(0.1, 10).into_iter().zip(["4.18e-3", "8.77e-4", "2.45e-3"]) {
        let forecast = Forecast::new(&many, shape);
        let plan = AgentPlan { forecast: forecast.clone(), start: &start, noise: budget(2.0, 1000).noise(1, releases).unwrap() };
        let choice = plan.choice(0.1, 10, 5).unwrap();
        assert_eq!(format!("{:.2e}", choice.mse), want);
        assert!((choice.noise / budget(2.0, 1000).noise(5, releases).unwrap() - 1.0).abs() < 1e-14);
        let forecast = Forecast::new(&few, shape);
        let plan = AgentPlan { forecast: forecast.clone(), start: &start, noise: budget(1.5, 10).noise(1, releases).unwrap() };
        best_of_ten = best_of_ten.min(plan.best(&range).unwrap().mse);
    }
    assert_eq!(format!("{best_of_ten:.3}"), "0.299");
    assert_eq!(format!("{:.3}", linalg::norm_sq(few.root().unwrap())), "0.382");
}

#[test]
fn plans_find_the_least_error_and_the_agents_for_one() {
    let (field, start) = (field(ten(100)), [0.0; 2]);
    for (shape, releases) in shapes(0.1, 10) {
        let forecast = Forecast::new(&field, shape);
        let plan =
            |agents: usize| AgentPlan { forecast: forecast.clone(), start: &start, noise: budget(2.0, agents).noise(1, releases).unwrap() };
        let range = PlanRange { step_sizes: vec![0.05, 0.1, 0.2], local_steps: vec![1, 5, 10, 20], max_rounds: 25, refine: false };
        let coarse = plan(1000).best(&range).unwrap();
        for (step, h, t) in [(0.1, 10, 5), (0.05, 20, 9), (coarse.step_size, coarse.local_steps, (coarse.rounds - 1).max(1))] {
            assert!(plan(1000).choice(step, h, t).unwrap().mse >= coarse.mse);
        }
        let fine = plan(1000).best(&PlanRange { refine: true, ..range.clone() }).unwrap();
        assert!(fine.mse < coarse.mse);
        assert!((plan(1000).choice(fine.step_size, fine.local_steps, fine.rounds).unwrap().mse / fine.mse - 1.0).abs() < 1e-12);
        // As many agents as are needed reach the target, and one fewer does not.
        let target = 0.01;
        let needed = plan(1000).agents_needed(target, &range).unwrap();
        assert!(needed.choice.mse <= target * (1.0 + 1e-9) && needed.agents > 100 && needed.agents < 1000, "{needed:?}");
        let n = needed.agents as usize;
        assert!(plan(n).best(&range).unwrap().mse <= target * (1.0 + 1e-9));
        assert!(plan(n - 1).best(&range).unwrap().mse > target);
    }
    // FedLSA's bias leaves no number of agents for a small error with a large step.
    let forecast = Forecast::new(&field, FedLsa::new(0.1, 10).shape());
    let plan = AgentPlan { forecast: forecast.clone(), start: &start, noise: budget(2.0, 1000).noise(1, 1).unwrap() };
    let range = PlanRange { step_sizes: vec![0.2], local_steps: vec![50], max_rounds: 30, refine: false };
    let e = plan.agents_needed(1e-6, &range).unwrap_err();
    assert!(e.key == "target" && e.what.contains("however many agents"), "{e:?}");
    // A step with which everything diverges.
    let wild = PlanRange { step_sizes: vec![1e200], ..range };
    assert!(plan.best(&wild).is_err());
}

#[test]
fn estimates_are_exact_for_small_steps() {
    // One scalar agent: u <- (1 - a) u + E s n with a = E lambda.
    let (lambda, sensitivity, rho, rounds) = (0.7, 0.3, 0.05, 20_000u64);
    let variance = rounds as f64 * sensitivity * sensitivity / (2.0 * rho);
    for kappa in [6.0f64, 200.0] {
        let a = kappa / rounds as f64;
        let of_last = (a / lambda).powi(2) * variance / (1.0 - (1.0 - a).powi(2));
        let estimate = last_iterate_estimate(kappa, 1, sensitivity, rho, lambda);
        assert!((of_last / estimate - 1.0).abs() < 0.01, "{of_last} {estimate}");
        // The mean of n stationary iterates whose correlation is (1 - a)^k.
        let n = rounds as f64 / 2.0;
        let averaged = of_last / n * (1.0 + 2.0 * (1..n as i32).map(|k| (1.0 - f64::from(k) / n) * (1.0 - a).powi(k)).sum::<f64>());
        let estimate = averaged_estimate(1, sensitivity, rho, lambda);
        assert!(averaged <= estimate && (kappa < 100.0 || averaged > 0.98 * estimate), "{kappa}: {averaged} {estimate}");
    }
    let (clip, kappa, target) = (2.0, 8.0, 1e-3);
    let agents = agents_estimate(clip, lambda, kappa, 3, rho, target);
    assert!((last_iterate_estimate(kappa, 3, clip / agents, rho, lambda) / target - 1.0).abs() < 1e-12);
}

fn normals(random: &mut Stream, n: usize) -> Vec<f64> {
    (0..n).map(|_| random.normal()).collect()
}

/// The mean-square error of one release and its standard error, over draws of the noise.
fn drawn(of: &OneRelease, ridge: f64, draws: usize, seed: u64) -> (f64, f64) {
    let d = of.b.len();
    let root = linalg::solve(&of.a, &of.b).unwrap();
    let mut random = stream(seed, Purpose::Fresh, 0, 0);
    let (mut sum, mut square) = (0.0, 0.0);
    for _ in 0..draws {
        let (noise, shift) = (normals(&mut random, d * d), normals(&mut random, d));
        let of_entry = |i: usize, j: usize| match of.kind {
            MatrixNoise::Independent => noise[i * d + j],
            MatrixNoise::Symmetric if i == j => noise[i * d + i],
            MatrixNoise::Symmetric => noise[i.max(j) * d + i.min(j)] / 2f64.sqrt(),
        };
        let a = Mat::from_fn(d, d, |i, j| of.a[(i, j)] + of.matrix_noise * of_entry(i, j) + if i == j { ridge } else { 0.0 });
        let b: Vec<f64> = of.b.iter().zip(shift).map(|(b, e)| b + of.vector_noise * e).collect();
        let error = linalg::distance_sq(&linalg::solve(&a, &b).unwrap(), &root);
        sum += error;
        square += error * error;
    }
    let (n, mean) = (draws as f64, sum / draws as f64);
    (mean, ((square / n - mean * mean) / n).sqrt())
}

fn small_system() -> (Mat<f64>, Vec<f64>) {
    (linalg::from_rows(3, 3, &[1.0, 0.3, -0.2, 0.1, 0.8, 0.2, 0.0, -0.3, 0.9]), vec![0.8, -0.5, 0.4])
}

#[test]
fn one_release_has_the_error_of_draws() {
    let (a, b) = small_system();
    let square = &a * a.transpose();
    for (seed, kind, a, noise, ridge) in [
        (1, MatrixNoise::Independent, &a, 0.01, 0.0),
        (2, MatrixNoise::Independent, &a, 0.05, 0.1),
        (3, MatrixNoise::Symmetric, &square, 0.01, 0.0),
        (4, MatrixNoise::Symmetric, &square, 0.04, 0.2),
    ] {
        let of = OneRelease { a: a.clone(), b: b.clone(), kind, matrix_noise: noise, vector_noise: 1.5 * noise };
        let predicted = of.error(ridge).unwrap();
        let (mean, error) = drawn(&of, ridge, 40_000, seed);
        assert!(predicted.spread < 0.35, "{}", predicted.spread);
        // Terms of fourth order are within 6 % at a spread of 0.35, and fall with its square.
        let rest = 0.06 * (predicted.spread / 0.35).powi(2) * predicted.mse();
        assert!((mean - predicted.mse()).abs() <= 3.5 * error + rest, "{kind:?} {noise}: {mean} +- {error}, {}", predicted.mse());
        // Without the terms of A's noise the prediction does not fit. The bias of a large ridge hides them.
        if ridge > 0.1 {
            continue;
        }
        let without = OneRelease { matrix_noise: 0.0, ..of }.error(ridge).unwrap().mse();
        assert!((mean - without).abs() > 5.0 * error + rest, "{kind:?}: {mean} {without}");
    }
}

#[test]
fn lstd_under_a_row_budget_has_the_error_of_draws() {
    // 20,000 rows, d = 3, epsilon 0.5 at 1e-6; sums of rows with features of norm 1 and rewards in [-1, 1].
    let (a, b) = small_system();
    let (rows, share) = (20_000.0, 0.2);
    let of_row = LstdRow { discount: 0.9, reward: 1.0, nonnegative: false };
    let scale = of_row.best_scale(1.0);
    let noise = of_row.sensitivity(scale, Relation::Removed) / (2.0 * accounting::rho(0.5, 1e-6).unwrap()).sqrt();
    let of = OneRelease {
        a: Scale(share * rows) * &a,
        b: b.iter().map(|b| share * rows * b).collect(),
        kind: MatrixNoise::Independent,
        matrix_noise: noise,
        vector_noise: noise / scale,
    };
    let predicted = of.error(0.0).unwrap();
    let (mean, error) = drawn(&of, 0.0, 40_000, 9);
    assert!((mean - predicted.mse()).abs() <= 3.5 * error, "{mean} +- {error}, {}", predicted.mse());
    assert!(predicted.mse() > 1e-5 && predicted.mse() < 1e-2, "{}", predicted.mse());
    // Means instead of sums, with their noise, are the same.
    let means = OneRelease {
        a: Scale(1.0 / rows) * &of.a,
        b: of.b.iter().map(|b| b / rows).collect(),
        matrix_noise: noise / rows,
        vector_noise: noise / scale / rows,
        ..of
    };
    assert!((means.error(0.0).unwrap().mse() / predicted.mse() - 1.0).abs() < 1e-12);
}

#[test]
fn the_best_ridge_has_the_least_error() {
    let (a, b) = small_system();
    let of = OneRelease { a: a.clone(), b, kind: MatrixNoise::Independent, matrix_noise: 0.05, vector_noise: 0.2 };
    let best = of.best_ridge().unwrap();
    assert!(best.ridge > 0.0 && best.mse() < of.error(0.0).unwrap().mse());
    for factor in [0.5, 0.9, 1.1, 2.0] {
        assert!(of.error(factor * best.ridge).unwrap().mse() > best.mse());
    }
    // A = a I: d (s_b^2 + s_A^2 |theta|^2) / (a |theta|^2).
    let (size, d, root) = (2.0, 4, [0.5, -1.0, 0.25, 1.5]);
    let diagonal = Mat::from_fn(d, d, |i, j| if i == j { size } else { 0.0 });
    let b = root.iter().map(|x| size * x).collect();
    let of = OneRelease { a: diagonal, b, kind: MatrixNoise::Independent, matrix_noise: 0.01, vector_noise: 0.1 };
    let square = linalg::norm_sq(&root);
    let want = d as f64 * (0.01 + 1e-4 * square) / (size * square);
    let found = of.best_ridge().unwrap().ridge;
    assert!((found / want - 1.0).abs() < 0.05, "{found} {want}");
    // Too much noise has no prediction, and a ridge that is large enough has one.
    let wild = OneRelease { matrix_noise: 1.0, ..of };
    let e = wild.error(0.0).unwrap_err();
    assert!(e.what.contains("singular"), "{e:?}");
    assert!(wild.best_ridge().unwrap().spread <= 1.0);
    assert_eq!(wild.error(-1.0).unwrap_err().key, "ridge");
}
