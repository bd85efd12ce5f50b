//! SHED against the theory of its chapter, and over links.

use std::sync::Arc;

use crate::common::{EXACT, computing_alone, distance, engine, field, linear, link, method, run_for, run_from};
use faer::linalg::solvers::Solve;
use fedsa::eigenpairs::Eigenpairs;
use fedsa::error::Result;
use fedsa::linalg::Mat;
use fedsa::method::{MethodSettings, MethodShape, Needs, Setting};
use fedsa::metrics::Metrics;
use fedsa::problem::Field;
use fedsa::protocol::Protocol;
use fedsa::random::{Purpose, stream};
use fedsa::record::OutputRule;
use fedsa::sampling::Law;
use fedsa::schedule::renewal::{Pairs, Renewal};
use fedsa::server::Server;
use fedsa::uplink::Uplink;
use fedsa_methods::shed::Shed;
use fedsa_problems::ProblemSettings;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_theory::shed as theory;

const SEED: u64 = 5;
const LS: &str = r#"{"renewal": {"schedule": "once"}, "rho": "midpoint", "step": "unit"}"#;

/// Least squares of agents whose eigenvectors differ, with eigenvalues over some powers of ten.
fn least_squares<const D: usize>(agents: usize, seed: u64) -> LinearSystems {
    let mut draws = stream(seed, Purpose::Pairs, 7, 0);
    let mut agent = || {
        let rows: Vec<[f64; D]> = (0..2 * D).map(|_| std::array::from_fn(|j| draws.normal() * 0.5f64.powi(j as i32))).collect();
        let entry = |i: usize, j: usize| rows.iter().map(|x| x[i] * x[j]).sum::<f64>() / (2 * D) as f64;
        let a: [[f64; D]; D] = std::array::from_fn(|i| std::array::from_fn(|j| entry(i.max(j), i.min(j))));
        (a, std::array::from_fn(|_| draws.normal()))
    };
    linear(&(0..agents).map(|_| agent()).collect::<Vec<_>>())
}

fn logistic(agents: usize, dim: usize, ridge: f64) -> Arc<dyn Field> {
    field(&RandomLogistic::default().with_agents(agents).with_dim(dim).with_points(4 * dim).with_ridge(ridge), Law::Mean)
}

/// Each agent's weight and the eigenvalues of its Hessian at theta.
fn spectra(field: &Arc<dyn Field>, theta: &[f64]) -> Vec<(f64, Vec<f64>)> {
    let (objective, d) = (field.facts().objective().unwrap(), field.dim());
    let one = |c: usize| {
        let mut h = Mat::zeros(d, d);
        objective.hessian(c, theta, &mut h);
        (field.weights()[c], Eigenpairs::leading(&h, d).values)
    };
    (0..field.agents()).map(one).collect()
}

/// `sum_c p_c f(l of agent c)`.
fn mean(spectra: &[(f64, Vec<f64>)], f: impl Fn(&[f64]) -> f64) -> f64 {
    spectra.iter().map(|(p, values)| p * f(values)).sum()
}

/// `||theta_t - theta*||` for t = 0, 1, .., rounds.
fn errors(field: &Arc<dyn Field>, method: &dyn MethodSettings, rounds: u64) -> Vec<f64> {
    let root = field.root().unwrap();
    let mut run = run_from(field, method, SEED, &vec![0.0; field.dim()]);
    let mut errors = vec![distance(run.theta(), root)];
    for _ in 0..rounds {
        run.step();
        errors.push(distance(run.theta(), root));
    }
    errors
}

/// Algorithm 1: exact after d - 1 pairs, and no step exceeds c_t (Theorem 2.2), for any number of pairs a round.
#[test]
fn shed_ls_is_exact_after_all_pairs_and_within_its_factor() {
    for seed in 0..10 {
        let field = field(&least_squares::<8>(5, seed), Law::Mean);
        let (d, spectra) = (8, spectra(&field, &[0.0; 8]));
        let each = r#"{"renewal": {"schedule": "once"}, "rho": "midpoint", "step": "unit", "pairs": [1, 2, 3, 1, 5]}"#;
        for (settings, pairs) in [(LS, [1; 5]), (each, [1, 2, 3, 1, 5])] {
            let errors = errors(&field, &*method("shed", settings), d as u64 + 2);
            let size = distance(&[0.0; 8], field.root().unwrap());
            assert!(errors[d - 1] < 1e-10 * size && errors[d - 2] > 1e-9 * size, "{errors:?}");
            let mut before = 1.0;
            for t in 0..d - 1 {
                let rhos = spectra.iter().zip(pairs).map(|((p, values), k)| p * theory::midpoint(values, ((t + 1) * k).min(d - 1)));
                let c = theory::federated_factor(mean(&spectra, |values| values[d - 1]), rhos.sum());
                assert!(c <= before && errors[t + 1] <= c * errors[t] + 1e-12 * size, "round {t}: {} {c}", errors[t + 1] / errors[t]);
                before = c;
            }
        }
        // rho = l_{q+1} is exact as well, and slower.
        let next = errors(&field, &*method("shed", &LS.replace("midpoint", "next")), d as u64 - 1);
        assert!(next[d - 1] < 1e-10);
    }
}

/// `hessian_error` of one agent after t rounds is what the t pairs leave, `sum_{j > t} (l_j - rho)^2 / sum_j l_j^2`; without an approximation, or
/// where the Hessian changes, there is none.
#[test]
fn the_error_of_the_approximation_is_that_of_the_pairs_that_are_left() {
    let alone = field(&least_squares::<8>(1, 3), Law::Mean);
    let metrics = Metrics::new(&alone);
    let values = &spectra(&alone, &[0.0; 8])[0].1;
    let square: f64 = values.iter().map(|l| l * l).sum();
    let shed = r#"{"renewal": {"schedule": "once"}, "step": "unit"}"#;
    let mut run = run_from(&alone, &*method("shed", shed), SEED, &[0.0; 8]);
    assert_eq!(metrics.observe(&run, None, 0.0).hessian_error, None);
    for q in 1..8 {
        run.step();
        let left: f64 = values[q..].iter().map(|l| (l - values[q]).powi(2)).sum();
        let error = metrics.observe(&run, None, 0.0).hessian_error.unwrap();
        assert!((error - left / square).abs() < 1e-13, "{q} pairs: {error}, {}", left / square);
    }
    let newton = run_for(&alone, &*method("newton", "{}"), SEED, &[0.0; 8], 1);
    assert_eq!(metrics.observe(&newton, None, 0.0).hessian_error, None);
    let changes = logistic(2, 4, 0.1);
    let run = run_for(&changes, &*method("shed", "{}"), SEED, &[0.0; 4], 1);
    assert_eq!(Metrics::new(&changes).observe(&run, None, 0.0).hessian_error, None);
}

/// What an agent sends: a gradient a round and each of d - 1 vectors once; losses where there is a line search; one Hessian.
#[test]
fn the_ledger_counts_pairs_as_vectors() {
    let field = field(&least_squares::<8>(5, 1), Law::Mean);
    let (n, d, rounds) = (5, 8, 10);
    let ledger = run_for(&field, &*method("shed", LS), SEED, &[0.0; 8], rounds).ledger();
    assert_eq!((ledger.vectors_up, ledger.matrices_up, ledger.exchanges), (n * (rounds + d - 1), 0, rounds));
    // Round, index and rho in each answer, and each eigenvalue once.
    assert_eq!(ledger.scalars_up, n * (3 * rounds + d - 1));
    assert_eq!((ledger.calls.hessians, ledger.calls.gradients, ledger.calls.losses), (n, n * rounds, 0));
    // Header, three parts, numbers; the question is the model alone.
    assert_eq!(ledger.bits_up, 8 * n * (rounds * (27 + 3 * 6 + 8 * (d + 3)) + 8 * (d - 1) * (d + 1)));
    assert_eq!(ledger.bits_down, 8 * n * rounds * (27 + 6 + 8 * d));
    let ledger =
        run_for(&field, &*method("shed", r#"{"renewal": {"schedule": "every", "period": 1}, "pairs": 3}"#), SEED, &[0.0; 8], 4).ledger();
    assert_eq!((ledger.vectors_up, ledger.calls.hessians, ledger.exchanges), (4 * n * 4, 4 * n, 8));
    assert_eq!((ledger.calls.losses, ledger.scalars_up), (4 * n * 22, 4 * n * (6 + 23)));
    let own = r#"{"renewal_of_agents": [{"schedule": "once"}, {"schedule": "every", "period": 2}, {"schedule": "fibonacci"},
                 {"schedule": "rounds", "rounds": [0, 5]}, {"schedule": "rounds", "rounds": [0]}]}"#;
    // Rounds 0..9: once, 5, Fibonacci 0, 1, 3, 6, twice, once.
    assert_eq!(run_for(&field, &*method("shed", own), SEED, &[0.0; 8], 10).ledger().calls.hessians, 1 + 5 + 4 + 2 + 1);
}

/// `||Hhat^-1 g||` at theta, with the first q pairs of each agent's Hessian at `renewed` and rho the next eigenvalue.
fn full_step(field: &Arc<dyn Field>, renewed: &[f64], theta: &[f64], q: usize) -> f64 {
    let (objective, d) = (field.facts().objective().unwrap(), field.dim());
    let (mut hhat, mut gradient) = (Mat::<f64>::zeros(d, d), Mat::<f64>::zeros(d, 1));
    for (c, p) in field.weights().iter().enumerate() {
        let (mut h, mut g) = (Mat::zeros(d, d), vec![0.0; d]);
        objective.hessian(c, renewed, &mut h);
        objective.gradient(c, theta, &mut g);
        let pairs = Eigenpairs::leading(&h, d);
        let rho = theory::next(&pairs.values, q);
        let entry = |i: usize, k: usize| (0..q).map(|j| (pairs.values[j] - rho) * pairs.vector(j)[i] * pairs.vector(j)[k]).sum::<f64>();
        hhat += Mat::from_fn(d, d, |i, k| p * (entry(i, k) + if i == k { rho } else { 0.0 }));
        (0..d).for_each(|i| gradient[(i, 0)] += p * g[i]);
    }
    hhat.partial_piv_lu().solve(gradient).norm_l2()
}

/// Theorem 2.5, with an upper bound of L: a third derivative of the logistic loss is at most `||x||^3 / (6 sqrt 3)`, and
/// `sum ||x||^2` of an agent's points is four times the trace of its Hessian at 0.
#[test]
fn steps_with_outdated_hessians_stay_within_their_bound() {
    let (d, points, ridge) = (6, 3, 0.05);
    let field = field(&RandomLogistic::default().with_agents(12).with_dim(d).with_points(points).with_ridge(ridge), Law::Mean);
    let root = field.root().unwrap();
    let at_zero = spectra(&field, &vec![0.0; d]);
    let lipschitz = mean(&at_zero, |values| {
        let squares = 4.0 * points as f64 * (values.iter().sum::<f64>() - ridge * d as f64);
        squares.powf(1.5) / points as f64 / (6.0 * 3f64.sqrt())
    });
    let renewal = Renewal::Fibonacci;
    let mut run = run_from(&field, &Shed::default(), SEED, &vec![0.0; d]);
    let (mut at_renewal, mut of_renewal) = (vec![0.0; d], at_zero);
    for t in 0..25 {
        let theta = run.theta().to_vec();
        if renewal.last(t, d) == Some(t) {
            (at_renewal, of_renewal) = (theta.clone(), spectra(&field, &theta));
        }
        let q = (t - renewal.last(t, d).unwrap() + 1) as usize;
        run.step();
        // The step's length, from how far theta moved; at the end that is as far as rounding errors.
        let length = full_step(&field, &at_renewal, &theta, q.min(d - 1));
        let step = if length > 1e-12 { distance(run.theta(), &theta) / length } else { 1.0 };
        assert!(length < 1e-7 || (step.log2() - step.log2().round()).abs() < 1e-3, "round {t}: a step of {step}");
        let norm = mean(&spectra(&field, &theta), |values| values[0]);
        // (2.23) and (2.24), from the eigenvalues of the Hessians in use.
        let bound = {
            let (least, rho) = (mean(&of_renewal, |v| v[d - 1]), mean(&of_renewal, |v| theory::next(v, q.min(d - 1))));
            let moved = distance(&theta, &at_renewal);
            let linear = theory::federated_factor(least, rho) + (lipschitz * moved + (1.0 - step) * norm) / rho;
            let error = distance(&theta, root);
            linear * error + step * lipschitz / (2.0 * rho) * error * error
        };
        assert!(distance(run.theta(), root) <= bound + 1e-13, "round {t}: a step of {step}");
    }
    assert!(distance(run.theta(), root) < 1e-10);
}

/// Lemma 2.2: with periodic renewals the error falls at a linear rate, at most `abar_T`; Theorem 2.6 for losses that are not
/// quadratic, late.
#[test]
fn periodic_renewals_converge_at_their_rate() {
    let rate = |errors: &[f64], from: usize, to: usize| (errors[to] / errors[from]).powf(1.0 / (to - from) as f64);
    for seed in 0..5 {
        let field = field(&least_squares::<8>(5, seed), Law::Mean);
        let spectra = spectra(&field, &[0.0; 8]);
        for period in [2, 3, 5] {
            let settings = LS.replace(r#"{"schedule": "once"}"#, &format!(r#"{{"schedule": "every", "period": {period}}}"#));
            let bound = theory::periodic_rate(&spectra, period, theory::midpoint);
            let errors = errors(&field, &*method("shed", &settings), 4 * period as u64);
            let measured = rate(&errors, 0, 4 * period);
            assert!(measured <= bound && errors[4 * period] > 1e-13, "T = {period}: {measured} of {bound}");
        }
    }
    let field = logistic(5, 10, 0.01);
    let spectra = spectra(&field, field.root().unwrap());
    let period = 4;
    let errors = errors(&field, &*method("shed", r#"{"renewal": {"schedule": "every", "period": 4}}"#), 60);
    let last = (errors.iter().position(|e| *e < 1e-9).unwrap_or(60) / period) * period;
    let (measured, bound) = (rate(&errors, last - 2 * period, last), theory::periodic_rate(&spectra, period, theory::next));
    println!("logistic, T = 4: {measured} of {bound}, {last} rounds");
    assert!(measured <= bound && measured > 0.0);
}

/// Theorem 2.6, 3: Fib-SHED is super-linear. From period to period of d - 1 rounds the mean ratio of successive errors falls.
#[test]
fn fib_shed_is_superlinear() {
    for dim in [6, 12, 20] {
        let field = logistic(5, dim, 0.01);
        let errors = errors(&field, &Shed::default(), 60);
        let end = errors.iter().position(|e| *e < 1e-13).unwrap_or(60);
        let ratios: Vec<f64> = errors[..=end].windows(2).map(|e| e[1] / e[0]).collect();
        println!("d = {dim}: {end} rounds, last ratios {:?}", &ratios[ratios.len().saturating_sub(6)..]);
        let third = ratios.len() / 3;
        let geometric = |ratios: &[f64]| (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let (early, late) = (geometric(&ratios[third..2 * third]), geometric(&ratios[2 * third..]));
        assert!(end < 60 && late < 0.75 * early, "d = {dim}: {early} {late}");
        assert!(ratios.iter().copied().fold(f64::INFINITY, f64::min) < 0.4 * early, "d = {dim}: {early}");
    }
}

/// SHED with settings that [`MethodSettings::check`] refuses: distances below 3.
#[derive(Debug, Clone, serde::Serialize)]
struct Unchecked(Shed);

impl MethodSettings for Unchecked {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }
    fn needs(&self) -> Needs {
        self.0.needs()
    }
    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        self.0.protocol(setting)
    }
    fn client(&self, setting: &Setting<'_>) -> Box<dyn fedsa::local::Client> {
        self.0.client(setting)
    }
    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        self.0.server(setting)
    }
    fn shape(&self) -> MethodShape {
        self.0.shape()
    }
}

/// The rule of GN-SHED, taken literally, renews for ever; with a distance between renewals it does not.
#[test]
fn the_gradient_norm_rule_needs_its_guard() {
    let field = logistic(5, 30, 0.001);
    let with = |min_distance| Shed::default().with_renewal(Renewal::GradientNorm { factor: 0.95, min_distance });
    let after = |method: &Shed| {
        let mut run = engine(&field, &Unchecked(method.clone()), &EXACT, OutputRule::Last, SEED, vec![0.0; 30]).unwrap();
        (0..60).for_each(|_| run.step());
        (run.ledger().calls.hessians / 5, distance(run.theta(), field.root().unwrap()))
    };
    let ((literal, stalled), (guarded, error)) = (after(&with(1)), after(&with(12)));
    println!("literal: {literal} Hessians, error {stalled:e}; guarded: {guarded} Hessians, error {error:e}");
    assert!(literal >= 20 && guarded <= 1 + 60 / 12 && error < 1e-3 * stalled);
    assert!(with(1).check(5).is_err() && with(3).check(5).is_ok());
}

/// Over links that lose answers or round gradients, agents whose gradients at the root are zero bring the error to zero; others to
/// a floor. Every pair gets to the server as it is.
#[test]
fn links_that_lose_and_round_leave_the_pairs_intact() {
    let erasure = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
    let coarse = link(r#"{"kind": "quantised", "bits": 16}"#, false, &[]).unwrap();
    let different = least_squares::<6>(5, 2);
    let mut alike = different.clone();
    let solve = |a: &[Vec<f64>]| a.iter().map(|row| row.iter().sum::<f64>()).collect::<Vec<f64>>();
    // b_c = A_c 1: every agent's root is the vector of ones.
    alike.b = alike.a.iter().map(|a| solve(a)).collect();
    let error = |problem: &LinearSystems, link: &Uplink, settings: &str, rounds: u64| {
        let field = field(problem, Law::Mean);
        let method = method("shed", settings);
        let mut run = crate::common::run(&field, &*method, link, SEED);
        (0..rounds).for_each(|_| run.step());
        (distance(run.theta(), field.root().unwrap()), run.ledger())
    };
    for settings in [LS, "{}"] {
        // With renewals every d - 1 rounds, losses keep the last pairs from arriving: convergence is linear, and slower.
        let (zero, _) = error(&alike, &erasure, settings, 3000);
        assert!(zero < 1e-11, "{settings}: {zero:e}");
        let (floor, ledger) = error(&different, &erasure, settings, 300);
        let size = distance(&[0.0; 6], field(&different, Law::Mean).root().unwrap());
        assert!(floor > 1e-6 * size && floor < 3.0 * size, "{settings}: {floor:e} {size:e}");
        // Messages of their own are sent after losses only.
        assert!(ledger.bits_down > 8 * 5 * 300 * (27 + 6 + 8 * 6));
        // Rounding errors are a share of each agent's gradient.
        let (rounded, _) = error(&alike, &coarse, settings, 300);
        assert!(rounded < 1e-11, "{settings}: {rounded:e}");
        let (floor, _) = error(&different, &coarse, settings, 300);
        assert!(floor > 1e-9 * size && floor < 0.3 * size, "{settings}: {floor:e} {size:e}");
    }
    // Unit steps with all pairs at the server: the error is the mean of what the missing agents would have said.
    let (n, d) = (5u64, 6u64);
    let (_, ledger) = error(&different, &erasure, LS, 300);
    let sent_again = ledger.vectors_up - n * (300 + d - 1);
    assert!(sent_again > 0 && sent_again < n * d * 6, "{sent_again} vectors were sent again");
}

/// Indefinite agents of a convex mean, and agents without curvature.
#[test]
fn hessians_that_are_not_positive_definite_are_projected() {
    let indefinite = linear(&[
        ([[2.0, 0.0], [0.0, -0.5]], [1.0, 1.0]),
        ([[-0.5, 0.0], [0.0, 2.0]], [1.0, 0.0]),
        ([[-0.2, 0.0], [0.0, -0.1]], [0.5, 0.0]),
    ]);
    let field = crate::common::field(&indefinite, Law::Mean);
    let errors = errors(&field, &Shed::default(), 200);
    assert!(errors[200] < 1e-9, "{:e}", errors[200]);
}

#[test]
fn settings_are_checked_with_the_number_of_agents() {
    let bad = |settings: &str| {
        let e = method("shed", settings).check(3).unwrap_err();
        format!("{e}: {}", e.help)
    };
    let e = bad(r#"{"pairs": [1, 2]}"#);
    assert!(e.contains("3 agents"), "{e}");
    assert!(bad(r#"{"renewal_of_agents": [{"schedule": "once"}]}"#).contains("one schedule for each agent"));
    let server = r#"{"renewal_of_agents": [{"schedule": "once"}, {"schedule": "once"}, {"schedule": "gradient-norm"}]}"#;
    assert!(bad(server).contains("the server decides"));
    for settings in [r#"{"decrease": 0.5}"#, r#"{"shrink": 1.0}"#, r#"{"shrinks": 61}"#, r#"{"pairs": 0}"#] {
        bad(settings);
    }
    assert!(Shed::default().with_pairs(Pairs::Each(vec![1, 2])).check(usize::MAX).is_ok());
    for medium in [r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#, r#"{"kind": "late", "law": "uniform", "max": 3}"#] {
        let link = link(r#"{"kind": "exact"}"#, false, &[medium]).unwrap();
        let field = field(&least_squares::<3>(2, 1), Law::Mean);
        assert!(engine(&field, &Shed::default(), &link, OutputRule::Last, SEED, vec![0.0; 3]).is_err());
    }
    assert!(computing_alone().iter().any(|(kind, _)| *kind == "shed"));
}

/// A run of each of two settings of SHED for some rounds: the largest distance of their iterates, and that of the start from the last one.
fn apart(problem: &dyn ProblemSettings, uplink: &Uplink, [one, other]: [&str; 2], rounds: u64) -> (f64, f64) {
    let field = field(problem, Law::Mean);
    let (one, other) = (method("shed", one), method("shed", other));
    let (mut one, mut other) = (crate::common::run(&field, &*one, uplink, SEED), crate::common::run(&field, &*other, uplink, SEED));
    let mut most = 0.0f64;
    for _ in 0..rounds {
        one.step();
        other.step();
        most = most.max(distance(one.theta(), other.theta()));
    }
    assert_eq!(other.ledger().calls.hessians, 0);
    assert!(other.ledger().calls.hessian_vectors > 0 && one.ledger().calls.hessian_vectors == 0);
    (most, distance(one.theta(), &vec![0.0; field.dim()]))
}

/// Without matrices the iterates are those with matrices, to a multiple of the tolerance of the pairs: on dense rows and sparse ones, with a column
/// that has no ridge, rows that are fewer than columns, all schedules and choices of rho, over renewals and losses.
#[test]
fn products_give_the_iterates_of_hessians() {
    let dense = RandomLogistic::default().with_agents(4).with_dim(40).with_points(160).with_ridge(0.01);
    let few_rows = RandomLogistic::default().with_agents(4).with_dim(40).with_points(12).with_ridge(0.01);
    let problems: [(&str, Box<dyn ProblemSettings>); 4] = [
        ("dense", Box::new(dense)),
        ("fewer rows than columns", Box::new(few_rows)),
        ("sparse logistic", crate::common::logistic(4, 60, 40, true)),
        ("least squares", crate::common::least_squares(4, 60, 40, true)),
    ];
    let clear = link(r#"{"kind": "exact"}"#, false, &[]).unwrap();
    let erasure = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.7}"#]).unwrap();
    for (name, problem) in &problems {
        for settings in [
            "",
            r#""renewal": {"schedule": "once"}, "rho": "midpoint", "step": "unit""#,
            r#""renewal": {"schedule": "gradient-norm", "min_distance": 3}, "pairs": "random", "rho": "midpoint""#,
            r#""renewal": {"schedule": "every", "period": 5}, "pairs": 3, "max_pairs": 10"#,
        ] {
            for (uplink, lost) in [(&clear, false), (&erasure, true)] {
                for tolerance in [1e-4, 1e-10] {
                    let more = if settings.is_empty() { "" } else { ", " };
                    let formed = format!(r#"{{"curvature": "hessian"{more}{settings}}}"#);
                    let products = format!(r#"{{"curvature": "products", "pair_tolerance": {tolerance:e}{more}{settings}}}"#);
                    let (off, size) = apart(&**problem, uplink, [&formed, &products], 45);
                    let what = format!("{name}, {settings}, losses {lost}, tolerance {tolerance:e}: {:e}", off / size);
                    println!("{what}");
                    assert!(off <= 10.0 * tolerance * size, "{what}");
                }
            }
        }
    }
}

/// Schedules count the most pairs: at most so many rounds are between Fibonacci renewals, and no more vectors are sent of one Hessian.
#[test]
fn the_most_pairs_are_as_many_as_a_hessian_has() {
    let field = field(&least_squares::<8>(5, 1), Law::Mean);
    for curvature in ["hessian", "products"] {
        let once = format!(r#"{{"curvature": "{curvature}", "max_pairs": 3, "pairs": 2, "renewal": {{"schedule": "once"}}}}"#);
        let ledger = run_for(&field, &*method("shed", &once), SEED, &[0.0; 8], 10).ledger();
        assert_eq!(ledger.vectors_up, 5 * (10 + 3), "{curvature}");
        // Renewals in the rounds 0, 1, 3, 6, 9, ..
        let fibonacci = format!(r#"{{"curvature": "{curvature}", "max_pairs": 3}}"#);
        let ledger = run_for(&field, &*method("shed", &fibonacci), SEED, &[0.0; 8], 12).ledger();
        assert_eq!(ledger.vectors_up, 5 * (12 + 12), "{curvature}");
        if curvature == "hessian" {
            assert_eq!(ledger.calls.hessians, 5 * 5);
        }
    }
    assert!(method("shed", r#"{"max_pairs": 0}"#).check(3).is_err());
    // Settings without effect are refused.
    for (unused, key) in [
        (r#"{"curvature": "hessian", "pair_tolerance": 1e-3}"#, "pair_tolerance"),
        (r#"{"step": "unit", "shrink": 0.3}"#, "shrink"),
        (r#"{"step": "unit", "shrinks": 3}"#, "shrinks"),
        (r#"{"step": "unit", "decrease": 0.2}"#, "decrease"),
    ] {
        assert_eq!(method("shed", unused).check(3).unwrap_err().key, key);
    }
    assert!(
        method("shed", r#"{"pair_tolerance": 0.5}"#).check(3).is_err() && method("shed", r#"{"pair_tolerance": 0.0}"#).check(3).is_err()
    );
}

/// A run that is saved after any round and restored goes on with the same bits, also within the life of one Hessian's pairs, and where the next
/// ones start from them.
#[test]
fn runs_without_matrices_are_restored_bit_for_bit() {
    let sparse = crate::common::logistic(4, 60, 40, true);
    let dense = RandomLogistic::default().with_agents(3).with_dim(30).with_points(60).with_ridge(0.01);
    let erasure = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.7}"#]).unwrap();
    let settings = r#"{"curvature": "products", "pair_tolerance": 1e-5, "rho": "midpoint", "pairs": 2}"#;
    for problem in [&*sparse, &dense as &dyn ProblemSettings] {
        let field = field(problem, Law::Mean);
        let method = method("shed", settings);
        let new = || crate::common::run(&field, &*method, &erasure, SEED);
        let (mut whole, mut bytes) = (new(), Vec::new());
        for _ in 0..20 {
            bytes.push(whole.save().unwrap());
            whole.step();
        }
        for (round, bytes) in bytes.iter().enumerate() {
            let mut again = new();
            again.restore(bytes).unwrap();
            assert_eq!(&again.save().unwrap(), bytes, "round {round}");
            (round..20).for_each(|_| again.step());
            assert_eq!(crate::common::bits(again.theta()), crate::common::bits(whole.theta()), "round {round}");
            assert_eq!(again.ledger(), whole.ledger(), "round {round}");
        }
    }
}

/// Milliseconds for eigenpairs by n and their number; printed, not checked.
#[test]
#[ignore = "a measurement"]
fn milliseconds_of_eigenpairs() {
    for n in [256, 300, 600] {
        let mut draws = stream(5, Purpose::Pairs, 1, 0);
        let q = Mat::from_fn(n, n, |_, _| draws.normal()).qr().compute_thin_Q();
        for power in [0.5, 1.5] {
            let scaled = Mat::from_fn(n, n, |i, j| q[(i, j)] / (1.0 + j as f64).powf(power));
            let h = scaled * q.transpose();
            let h = Mat::from_fn(n, n, |i, j| h[(i.max(j), i.min(j))]);
            for m in [2, 5, 8, 10, 20, n] {
                let begin = std::time::Instant::now();
                (0..5).for_each(|_| assert!(Eigenpairs::leading(&h, m).values.len() >= m));
                println!("n = {n}, l_j = j^-{power}, m = {m}: {:.1} ms", begin.elapsed().as_secs_f64() * 200.0);
            }
        }
    }
}

/// Rounds until the gradient is 1e-9, and products of an agent, by the tolerance of pairs; printed, not checked.
#[test]
#[ignore = "a measurement"]
fn rounds_by_tolerance() {
    let agents = 8;
    let problem = RandomLogistic::default().with_agents(agents).with_dim(200).with_points(300).with_ridge(1e-4);
    let field = field(&problem, Law::Mean);
    let root = field.root().unwrap();
    let of = |settings: &str| {
        let method = method("shed", settings);
        let mut run = run_from(&field, &*method, SEED, &[0.0; 200]);
        while distance(run.theta(), root) > 1e-9 * distance(&[0.0; 200], root) && run.round() < 1000 {
            run.step();
        }
        (run.round(), run.ledger().calls.hessian_vectors / agents as u64)
    };
    println!("Hessians: {:?}", of(r#"{"curvature": "hessian"}"#));
    for tolerance in [1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1] {
        println!("{tolerance:e}: {:?}", of(&format!(r#"{{"curvature": "products", "pair_tolerance": {tolerance:e}}}"#)));
    }
}

/// Seconds of a whole fit; printed, not checked.
#[test]
#[ignore = "a measurement"]
fn seconds_of_a_fit() {
    for agents in [8] {
        let problem = RandomLogistic::default().with_agents(agents).with_dim(300).with_points(500).with_ridge(1e-5);
        let field = field(&problem, Law::Mean);
        for (name, settings) in
            [("fib-shed", "{}"), ("fib-shed+", r#"{"pairs": "random"}"#), ("gn-shed", r#"{"renewal": {"schedule": "gradient-norm"}}"#)]
        {
            let method = method("shed", settings);
            let mut run = run_from(&field, &*method, SEED, &vec![0.0; 300]);
            let begin = std::time::Instant::now();
            let mut out = vec![0.0; 300];
            let mut norm = f64::INFINITY;
            while norm > 1e-9 && run.round() < 600 {
                run.step();
                let mut g = vec![0.0; 300];
                for c in 0..agents {
                    field.facts().objective().unwrap().gradient(c, run.theta(), &mut out);
                    g.iter_mut().zip(&out).for_each(|(g, x)| *g += x / agents as f64);
                }
                norm = fedsa::linalg::norm_sq(&g).sqrt();
            }
            let hessians = run.ledger().calls.hessians / agents as u64;
            println!("{name}, N = {agents}: {} rounds, {hessians} Hessians, {norm:e}, {:.1} s", run.round(), begin.elapsed().as_secs_f64());
        }
    }
}
