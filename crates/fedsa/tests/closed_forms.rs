//! Noiseless runs against closed forms: limits, roots, and methods that coincide.

use std::sync::Arc;

use crate::common::{EXACT, bits, distance, engine, field, linear, method, methods, problems, run_for, run_from, small_garnet};
use faer::Scale;
use fedsa::linalg::{self, Mat};
use fedsa::metrics::Metrics;
use fedsa::problem::Field;
use fedsa::problem::systems::Systems;
use fedsa::random::{Purpose, stream};
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::noise::Noise;
use fedsa_problems::td::garnet::Heterogeneity;
use fedsa_theory::RoundSetting;
use fedsa_theory::fedlsa::FedLsaMean;
use fedsa_theory::stability::{control_variates_radius, global_memory_radius, plain_radius, random_talk_radius};

const HETEROGENEITIES: [Heterogeneity; 4] =
    [Heterogeneity::Identical, Heterogeneity::Low, Heterogeneity::TwoKernels, Heterogeneity::Independent];

/// The rounds after which a factor `radius` a round has made `1e-16` of 1.
fn rounds_to_rest(radius: f64) -> u64 {
    assert!(radius < 0.9999, "a setting that settles: {radius}");
    (1e-16f64.ln() / radius.ln()).ceil() as u64 + 10
}

fn by_period(kind: &str, eta: f64, h: u64, alpha: f64) -> Box<dyn fedsa::method::MethodSettings> {
    method(kind, &format!(r#"{{"step_size": {eta}, "local_steps": {h}, "global_step_size": {alpha}}}"#))
}

/// \[F\] Proposition 1, its `A_i = -Abar_i`: the bias of Local SA at H = 2,
/// `eta (2 A + eta A2)^-1 mean A_i^2 (theta*_i - theta*)`, `A = mean A_i`, `A2 = mean A_i^2`.
fn proposition_1(systems: &Systems, eta: f64) -> Vec<f64> {
    let d = systems.dim();
    let root = systems.root().unwrap();
    let (mut left, mut right) = (Mat::<f64>::zeros(d, d), vec![0.0; d]);
    for (c, p) in systems.weights.iter().enumerate() {
        let a = Scale(-1.0) * &systems.of(c).a;
        let square = &a * &a;
        let local = systems.local_root(systems.kind_of[c] as usize).unwrap();
        let away: Vec<f64> = local.iter().zip(&root).map(|(x, y)| x - y).collect();
        right.iter_mut().zip(linalg::mat_vec(&square, &away)).for_each(|(r, x)| *r += eta * p * x);
        left += Scale(*p) * (Scale(2.0) * a + Scale(eta) * square);
    }
    linalg::solve(&left, &right).unwrap()
}

#[test]
fn fedlsa_lands_on_its_limit() {
    for heterogeneity in HETEROGENEITIES {
        let field = field(&small_garnet(5, heterogeneity), Law::Mean);
        let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
        for (eta, h, alpha) in [(1.0, 2, 1.0), (1.0, 2, 0.6), (0.5, 7, 1.0), (1.0, 40, 1.3), (0.05, 1000, 1.0)] {
            let what = format!("{heterogeneity:?}, eta {eta}, H {h}, alpha_g {alpha}");
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            let limit = FedLsaMean::new(systems, &setting).unwrap().limit().unwrap();
            let rounds = rounds_to_rest(plain_radius(systems, &setting).unwrap());
            let run = run_for(&field, &*by_period("fedlsa", eta, h, alpha), 0, &[1.0; 4], rounds);
            let off = distance(run.theta(), &limit);
            assert!(off <= 1e-10 * linalg::norm_sq(&limit).sqrt(), "{what}: {off:e}");
            // The limit is not the root, and the run can tell them apart.
            assert!(off <= 1e-3 * distance(&limit, root), "{what}: {off:e} of {:e}", distance(&limit, root));
            if h == 2 {
                let bias = proposition_1(systems, eta);
                let by_paper: Vec<f64> = root.iter().zip(&bias).map(|(r, b)| r + b).collect();
                assert!(distance(run.theta(), &by_paper) <= 1e-10 * linalg::norm_sq(&limit).sqrt(), "{what}: Proposition 1");
            }
        }
    }
}

#[test]
fn without_local_steps_there_is_no_bias() {
    let field = field(&small_garnet(5, Heterogeneity::Independent), Law::Mean);
    let rounds = rounds_to_rest(plain_radius(field.systems().unwrap(), &RoundSetting::new(2.0, 1).unwrap()).unwrap());
    let run = run_for(&field, &*by_period("fedlsa", 2.0, 1, 1.0), 0, &[1.0; 4], rounds);
    assert!(distance(run.theta(), field.root().unwrap()).powi(2) < 1e-20);
}

#[test]
fn methods_with_memory_reach_the_root_where_their_radius_says_so() {
    for heterogeneity in HETEROGENEITIES {
        let field = field(&small_garnet(5, heterogeneity), Law::Mean);
        let (systems, metrics) = (field.systems().unwrap(), Metrics::new(&field));
        for (eta, h, alpha) in [(1.0, 2, 1.0), (1.0, 20, 1.0), (1.0, 20, 0.7), (0.05, 1000, 1.0)] {
            let setting = RoundSetting::new(eta, h).unwrap().with_server_step(alpha).unwrap();
            let p = 1.0 / h as f64;
            let random =
                method("scafflsa-random", &format!(r#"{{"step_size": {eta}, "talk_probability": {p}, "global_step_size": {alpha}}}"#));
            let cases = [
                ("scafflsa", by_period("scafflsa", eta, h, alpha), control_variates_radius(systems, &setting).unwrap()),
                ("fedhsa", by_period("fedhsa", eta, h, alpha), global_memory_radius(systems, &setting).unwrap()),
                ("scaffold", by_period("scaffold", eta, h, alpha), control_variates_radius(systems, &setting).unwrap()),
                ("fedlin", by_period("fedlin", eta, h, alpha), global_memory_radius(systems, &setting).unwrap()),
                ("scafflsa-random", random, random_talk_radius(systems, eta, p, alpha).unwrap()),
            ];
            for (kind, settings, radius) in cases {
                // Over its coins, random talk follows its mean round only on average.
                let rounds = rounds_to_rest(radius) * if kind == "scafflsa-random" { 2 } else { 1 };
                let run = run_for(&field, &*settings, 0, &[1.0; 4], rounds);
                let seen = metrics.observe(&run, None, 0.0);
                let what = format!("{kind}, {heterogeneity:?}, eta {eta}, H {h}, alpha_g {alpha}, radius {radius}, {rounds} rounds");
                assert!(seen.mse.unwrap() < 1e-20, "{what}: {:e}", seen.mse.unwrap());
                if !["fedhsa", "fedlin"].contains(&kind) {
                    // xi_c ends at xi*_c = -gbar_c(theta*).
                    assert!(seen.control_error.unwrap() < 1e-20, "{what}: {:e}", seen.control_error.unwrap());
                }
            }
        }
    }
}

#[test]
fn control_variates_converge_when_few_agents_take_part() {
    let field = field(&small_garnet(9, Heterogeneity::Independent), Law::Mean);
    let metrics = Metrics::new(&field);
    let run_of = |m: usize, rounds| {
        let settings = method("scafflsa", &format!(r#"{{"step_size": 0.2, "local_steps": 10, "participants": {m}}}"#));
        run_for(&field, &*settings, 0, &[1.0; 4], rounds)
    };
    // A lone participant is its round's mean, v = v_c to rounding: no control ever moves.
    assert!(run_of(1, 1000).controls().unwrap().iter().flatten().all(|xi| xi.abs() < 1e-13));
    for m in [2, 4, 8] {
        let seen = metrics.observe(&run_of(m, 40_000), None, 0.0);
        assert!(seen.mse.unwrap() < 1e-20 && seen.control_error.unwrap() < 1e-20, "m = {m}: {seen:?}");
    }
}

#[test]
fn agents_count_by_their_weights() {
    let field = crate::common::unequal(Law::Mean);
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    let counts = [5.0, 20.0, 75.0, 11.0];
    assert!(field.weights().iter().zip(counts).all(|(p, n)| (p - n / 111.0).abs() < 1e-16));
    let setting = RoundSetting::new(0.2, 5).unwrap();
    let limit = FedLsaMean::new(systems, &setting).unwrap().limit().unwrap();
    assert!(distance(&limit, root) > 1e-3);
    let theta = |kind| run_for(&field, &*by_period(kind, 0.2, 5, 1.0), 0, &[1.0; 3], 2000).theta().to_vec();
    assert!(distance(&theta("fedlsa"), &limit) < 1e-12);
    assert!(distance(&theta("scafflsa"), root) < 1e-12);
    assert!(distance(&theta("fedhsa"), root) < 1e-12);
    // Nobody's weight is the same under equal weights.
    let equal = Systems::new(systems.kinds.clone(), systems.kind_of.clone(), vec![0.25; 4]);
    assert!(distance(&equal.root().unwrap(), root) > 1e-3);
}

#[test]
fn outputs_are_means_of_iterates() {
    let field = field(&small_garnet(5, Heterogeneity::TwoKernels), Law::Iid);
    let settings = by_period("fedlsa", 0.5, 3, 1.0);
    let mut runs: Vec<Run> = [OutputRule::Last, OutputRule::Average, OutputRule::TailAfter(7)]
        .into_iter()
        .map(|rule| engine(&field, &*settings, &EXACT, rule, 1, vec![1.0; 4]).unwrap())
        .collect();
    let mut iterates: Vec<Vec<f64>> = Vec::new();
    for t in 1..=20 {
        runs.iter_mut().for_each(Run::step);
        iterates.push(runs[0].theta().to_vec());
        let mean = |of: &[Vec<f64>]| (0..4).map(|i| of.iter().map(|x| x[i]).sum::<f64>() / of.len() as f64).collect::<Vec<_>>();
        assert_eq!(runs[0].output(), runs[0].theta());
        assert!(distance(runs[1].output(), &mean(&iterates)) < 1e-14);
        let tail = if t <= 7 { iterates[t - 1].clone() } else { mean(&iterates[7..]) };
        assert!(distance(runs[2].output(), &tail) < 1e-14, "round {t}");
    }
}

#[test]
fn one_agent_under_fedhsa_is_local_sa_to_the_bit() {
    // G is the agent's own g_c(theta_t, z_{c,0}): 0 + 1 g over 1, all exact. The drift
    // G - g_c is +0, and g + 0 is what a step without drift adds too.
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        for (name, problem) in problems(1) {
            let field = field(&*problem, law);
            let start = vec![0.3; field.dim()];
            let theta = |kind| bits(run_for(&field, &*by_period(kind, 0.05, 7, 0.8), 5, &start, 20).theta());
            assert_eq!(theta("fedhsa"), theta("fedlsa"), "{name}, {law:?}");
        }
    }
}

/// The largest distance between the iterates of two runs over `rounds` rounds,
/// in units of the largest iterate.
fn apart(mut a: Run, mut b: Run, rounds: u64) -> f64 {
    let (mut apart, mut size) = (0.0f64, 0.0f64);
    for _ in 0..rounds {
        a.step();
        b.step();
        apart = apart.max(distance(a.theta(), b.theta()));
        size = size.max(linalg::norm_sq(a.theta()).sqrt());
    }
    apart / size
}

#[test]
fn identical_agents_leave_control_variates_nothing_to_do() {
    // Seven agents of one system: every v_c is the same number, v differs from it by
    // the rounding of a mean of seven, and xi stays at that rounding.
    let one = ([[1.0, 0.6], [-0.4, 0.5]], [1.0, -2.0]);
    let field = field(&linear(&[one; 7]), Law::Mean);
    let start = [3.0, 4.0];
    for h in [1, 2, 30] {
        let (plain, controlled) = (by_period("fedlsa", 0.1, h, 1.0), by_period("scafflsa", 0.1, h, 1.0));
        let off = apart(run_from(&field, &*plain, 0, &start), run_from(&field, &*controlled, 0, &start), 300);
        assert!(off < 1e-13, "H = {h}: {off:e}");
    }
}

#[test]
fn with_one_local_step_fedlsa_scafflsa_and_fedhsa_are_one_method() {
    // H = 1: v_c = g_c(theta_t, z) + xi_c and sum p_c xi_c = 0, so v is FedLSA's; FedHSA's
    // step is eta (g_c + G - g_c) = eta G. The same samples, so equal to rounding.
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        for (name, problem) in problems(19) {
            let field = field(&*problem, law);
            let start = vec![0.3; field.dim()];
            let run = |kind| run_from(&field, &*by_period(kind, 0.05, 1, 0.9), 5, &start);
            for kind in ["scafflsa", "fedhsa"] {
                let off = apart(run("fedlsa"), run(kind), 200);
                assert!(off < 1e-12, "{kind} on {name}, {law:?}: {off:e}");
            }
        }
    }
}

#[test]
fn talking_after_every_step_is_a_period_of_one() {
    let random = method("scafflsa-random", r#"{"step_size": 0.05, "talk_probability": 1.0, "global_step_size": 0.9}"#);
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        for (name, problem) in problems(19) {
            let field = field(&*problem, law);
            let start = vec![0.3; field.dim()];
            let (a, b) = (run_for(&field, &*random, 5, &start, 50), run_for(&field, &*by_period("scafflsa", 0.05, 1, 0.9), 5, &start, 50));
            // The gain p H = 1 is exact, and so is all else.
            assert_eq!(bits(a.theta()), bits(b.theta()), "{name}, {law:?}");
        }
    }
}

#[test]
fn a_ball_that_holds_everything_projects_nothing() {
    let projected = method("projected-td", r#"{"step_size": 0.05, "local_steps": 7, "radius": 1e100, "global_step_size": 0.9}"#);
    let tight = method("projected-td", r#"{"step_size": 0.05, "local_steps": 7, "radius": 0.01, "global_step_size": 0.9}"#);
    for (name, problem) in problems(19) {
        let field = field(&*problem, Law::Iid);
        let start = vec![0.3; field.dim()];
        let theta = |settings: &dyn fedsa::method::MethodSettings| run_for(&field, settings, 5, &start, 50).theta().to_vec();
        assert_eq!(bits(&theta(&*projected)), bits(&theta(&*by_period("fedlsa", 0.05, 7, 0.9))), "{name}");
        assert!((linalg::norm_sq(&theta(&*tight)).sqrt() - 0.01).abs() < 1e-15, "{name}");
    }
}

#[test]
fn one_step_with_a_global_step_size_is_one_step_of_their_product() {
    for (name, problem) in problems(19) {
        let field = field(&*problem, Law::Iid);
        let start = vec![0.3; field.dim()];
        let run = |eta, alpha| run_from(&field, &*by_period("fedlsa", eta, 1, alpha), 5, &start);
        let off = apart(run(0.1, 0.5), run(0.05, 1.0), 200);
        assert!(off < 1e-13, "{name}: {off:e}");
    }
}

/// Agents `A_c = I + G/4`, offsets `b_c + k u_c` with `sum_c u_c = 0`, Gauss-Markov noise.
fn disagreeing(agents: usize, k: f64) -> LinearSystems {
    const D: usize = 3;
    let mut s = stream(11, Purpose::System, 0, 0);
    let mut draw = || -> [f64; D] { std::array::from_fn(|_| s.normal()) };
    let a: Vec<[[f64; D]; D]> = (0..agents)
        .map(|_| {
            let g: [[f64; D]; D] = std::array::from_fn(|_| draw());
            std::array::from_fn(|i| std::array::from_fn(|j| f64::from(i == j) + g[i][j] / 4.0))
        })
        .collect();
    let b: Vec<[f64; D]> = (0..agents).map(|_| draw()).collect();
    let mut u: Vec<[f64; D]> = (0..agents).map(|_| draw()).collect();
    for i in 0..D {
        let mean = u.iter().map(|u| u[i]).sum::<f64>() / agents as f64;
        u.iter_mut().for_each(|u| u[i] -= mean);
    }
    let agents: Vec<_> = (0..agents).map(|c| (a[c], std::array::from_fn(|i| b[c][i] + k * u[c][i]))).collect();
    linear(&agents).with_noise(Noise::new(0.5, 0.7, 2))
}

#[test]
fn fedhsa_does_not_see_disagreement_that_cancels_and_local_sa_does() {
    // Offsets that sum to zero cancel in G and in g_c(theta) - g_c(theta_t).
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        let fields: Vec<Arc<dyn Field>> = [0.0, 1.0, 10.0, 100.0].iter().map(|k| field(&disagreeing(6, *k), law)).collect();
        let start = [1.0; 3];
        for field in &fields[1..] {
            let run = |field| run_from(field, &*by_period("fedhsa", 0.1, 10, 1.0), 5, &start);
            let off = apart(run(&fields[0]), run(field), 300);
            assert!(off < 1e-9, "{law:?}: {off:e}");
        }
        // The bias of Local SA is affine in k, and so is its iterate on the same samples.
        let theta: Vec<Vec<f64>> =
            fields.iter().map(|field| run_for(field, &*by_period("fedlsa", 0.1, 10, 1.0), 5, &start, 300).theta().to_vec()).collect();
        let slope: Vec<f64> = theta[1].iter().zip(&theta[0]).map(|(x, y)| x - y).collect();
        assert!(linalg::norm_sq(&slope).sqrt() > 1e-3, "{law:?}: {slope:?}");
        for (k, theta_k) in [(10.0, &theta[2]), (100.0, &theta[3])] {
            let affine: Vec<f64> = theta[0].iter().zip(&slope).map(|(x, s)| x + k * s).collect();
            assert!(distance(theta_k, &affine) < 1e-9 * k, "{law:?}, k = {k}");
        }
    }
}

#[test]
fn unstable_settings_end_as_diverged_and_stable_ones_do_not() {
    let one = field(&linear(&[([[4.0]], [1.0])]), Law::Mean);
    let status = |eta: f64| run_for(&one, &*by_period("fedlsa", eta, 3, 1.0), 0, &[0.0], 2000).diverged();
    assert_eq!(status(0.49), None);
    // |1 - 4 eta|^3 a round, from 1/4 off: past 1e8 (1 + 1/4) after so many.
    let rounds = (1e8f64 * 1.25 / 0.25).ln() / (3.0 * 1.04f64.ln());
    assert_eq!(status(0.51), Some(rounds.ceil() as u64));
    // Overflow and NaN in one round count too.
    for (kind, settings) in methods(None) {
        let far = run_for(&one, &*settings, 0, &[f64::MAX], 1);
        let is_projected = format!("{settings:?}").contains("ProjectedTd");
        assert!(is_projected || far.diverged() == Some(1), "{kind}: {:?}", far.diverged());
    }
}
