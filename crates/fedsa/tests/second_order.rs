//! The methods that move along directions of mean gradients, and FedNL: their rates, and what they do where the answer is known.

use std::sync::Arc;

use crate::common::{EXACT, OnSets, data_set, distance, engine, field, linear, link, method, run};
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_problems::ProblemSettings;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::linear::quadratic::Quadratic;
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::rows::dataset::{Labels, Rows};
use fedsa_problems::rows::preparation::partition::Partition;
use fedsa_problems::rows::regression::Logistic;

/// Errors `||theta_t - theta*||` after each of `rounds` rounds, the start's first.
fn errors(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, rounds: usize) -> Vec<f64> {
    let mut engine = run(field, method, uplink, 5);
    let root = field.root().unwrap();
    let mut all = vec![distance(engine.theta(), root)];
    for _ in 0..rounds {
        engine.step();
        all.push(distance(engine.theta(), root));
    }
    all
}

/// Diagonal systems, alike at both agents, so that eigenvalues are written out.
fn diagonal(values: [f64; 3]) -> LinearSystems {
    let a = std::array::from_fn(|i| std::array::from_fn(|j| if i == j { values[i] } else { 0.0 }));
    linear(&[(a, [1.0, -2.0, 3.0]), (a, [0.5, 1.0, -1.0])])
}

/// Five agents that differ, definite.
fn quadratics() -> Quadratic {
    Quadratic::default().with_agents(5).with_dim(8).with_greatest_eigenvalue(30.0)
}

fn logistic() -> RandomLogistic {
    RandomLogistic::default().with_agents(6).with_dim(5).with_points(40)
}

/// With the best fixed step the error of gradient descent falls by (L - mu) / (L + mu) a round, and not faster where both
/// extreme eigenvectors take part.
#[test]
fn gradient_descent_has_its_linear_rate() {
    let (mu, l) = (0.5, 4.0);
    let field = field(&diagonal([mu, 2.0, l]), Law::Mean);
    let gd = method("gd", &format!(r#"{{"step_size": {}}}"#, 2.0 / (l + mu)));
    let errors = errors(&field, &*gd, &EXACT, 60);
    let rate = (l - mu) / (l + mu);
    for (t, pair) in errors.windows(2).enumerate() {
        assert!(pair[1] <= rate * pair[0] * (1.0 + 1e-9), "round {t}: {} of {rate}", pair[1] / pair[0]);
    }
    let late = (errors[60] / errors[40]).powf(1.0 / 20.0);
    assert!((late - rate).abs() < 1e-6, "{late}, {rate}");
}

/// Nesterov's method is bounded by `f - f* <= (1 - sqrt(mu / L))^t (f_0 - f* + mu / 2 ||x_0 - x*||^2)`, and gradient descent is far
/// above this bound.
#[test]
fn accelerated_gradients_keep_their_bound() {
    let (mu, l) = (0.02, 4.0);
    let field = field(&diagonal([mu, 0.3, l]), Law::Mean);
    let root = field.root().unwrap().to_vec();
    let objective = field.facts().objective().unwrap();
    let loss = |theta: &[f64]| 0.5 * (objective.loss(0, theta) + objective.loss(1, theta));
    let best = loss(&root);
    let rounds = 200;
    let gap_of = |settings: &str, kind: &str| {
        let method = method(kind, settings);
        let mut engine = run(&field, &*method, &EXACT, 5);
        let gaps: Vec<f64> = (0..rounds)
            .map(|_| {
                engine.step();
                loss(engine.theta()) - best
            })
            .collect();
        gaps
    };
    let start = loss(&[0.0; 3]) - best + 0.5 * mu * distance(&[0.0; 3], &root).powi(2);
    let bound = |t: usize| start * (1.0 - (mu / l).sqrt()).powi(t as i32) + 1e-14 * best.abs();
    let constant = gap_of(&format!(r#"{{"step_size": {}, "strong_convexity": {mu}}}"#, 1.0 / l), "agd");
    for (t, gap) in constant.iter().enumerate() {
        assert!(*gap <= bound(t + 1), "round {t}: {gap:e}, {:e}", bound(t + 1));
    }
    let plain = gap_of(&format!(r#"{{"step_size": {}}}"#, 1.0 / l), "gd");
    assert!(plain[rounds - 1] > 100.0 * bound(rounds));
    // Restarts, without constants and with a step that is looked for, are nearly as fast.
    for settings in [format!(r#"{{"step_size": {}}}"#, 1.0 / l), "{}".into()] {
        let restarted = gap_of(&settings, "agd");
        assert!(restarted[rounds - 1] < 0.01 * plain[rounds - 1], "{settings}: {:e}", restarted[rounds - 1]);
    }
}

/// Quasi-Newton methods end at the root, in far fewer rounds than gradient descent by a fixed step; without backtracking they would be
/// exact on quadratics after d rounds.
#[test]
fn quasi_newton_methods_reach_the_root() {
    let problems: [(&str, Box<dyn ProblemSettings>); 2] = [("quadratics", Box::new(quadratics())), ("logistic", Box::new(logistic()))];
    for (name, problem) in problems {
        let field = field(&*problem, Law::Mean);
        let gd = errors(&field, &*method("gd", r#"{"step_size": 0.033}"#), &EXACT, 60)[60];
        for (kind, settings) in [("bfgs", "{}"), ("lbfgs", "{}"), ("lbfgs", r#"{"memory": 3}"#)] {
            let error = errors(&field, &*method(kind, settings), &EXACT, 60)[60];
            assert!(error < 1e-7 && error < 0.01 * gd, "{kind} {settings} on {name}: {error:e}, gd {gd:e}");
        }
    }
}

/// On agents that are alike the mean of local Newton directions is Newton's: one round on quadratics. On others it is not.
#[test]
fn giant_is_newton_on_agents_that_are_alike() {
    let a = [[2.0, 0.5, 0.0], [0.5, 3.0, -0.4], [0.0, -0.4, 1.0]];
    let field_of = |problem: &LinearSystems| field(problem, Law::Mean);
    let alike = field_of(&linear(&[(a, [1.0, 2.0, -1.0]), (a, [0.0, -3.0, 2.0]), (a, [4.0, 0.0, 1.0])]));
    let giant = method("giant", r#"{"cg_tolerance": 0.0, "cg_steps": 3}"#);
    let mut engine = run(&alike, &*giant, &EXACT, 5);
    engine.step();
    assert!(distance(engine.theta(), alike.root().unwrap()) < 1e-13);
    let ledger = engine.ledger();
    // Three exchanges; gradients and directions up; as many products as components.
    assert_eq!((ledger.exchanges, ledger.vectors_up, ledger.matrices_up, ledger.calls.hessians), (3, 6, 0, 0));
    assert!(ledger.calls.hessian_vectors <= 9 && ledger.calls.losses == 33);
    assert_eq!(engine.failed_searches(), Some(0));
    let b = [[20.0, 0.5, 0.0], [0.5, 0.3, -0.1], [0.0, -0.1, 9.0]];
    let others = field_of(&linear(&[(a, [1.0, 2.0, -1.0]), (b, [0.0, -3.0, 2.0])]));
    let errors = errors(&others, &*giant, &EXACT, 40);
    assert!(errors[1] > 1e-2 * errors[0] && errors[40] < 1e-6 * errors[0], "{errors:?}");
}

/// An exhausted line search takes the last trial step, and is counted: one trial, the whole step, where it overshoots.
#[test]
fn an_exhausted_line_search_takes_the_last_step_and_is_counted() {
    let (a, b) = ([[1.0, 0.0], [0.0, 0.01]], [[0.01, 0.0], [0.0, 1.0]]);
    let field = field(&linear(&[(a, [1.0, 1.0]), (b, [1.0, 1.0])]), Law::Mean);
    // The mean of inverses is 50 I, the mean Hessian about I / 2: the step is 25 times too long.
    let giant = method("giant", r#"{"shrinks": 0}"#);
    let mut engine = run(&field, &*giant, &EXACT, 5);
    engine.step();
    assert!(distance(engine.theta(), &[50.5, 50.5]) < 1e-9, "{:?}", engine.theta());
    assert_eq!(engine.failed_searches(), Some(1));
    // A method that stays instead.
    let gd = method("gd", r#"{"longest_step": 1000.0, "halvings": 1}"#);
    let mut engine = run(&field, &*gd, &EXACT, 5);
    engine.step();
    assert_eq!((engine.theta(), engine.failed_searches()), (&[0.0, 0.0][..], Some(1)));
}

/// DONE on agents that are alike: the error of a round is `(I - alpha H)^R`, and with a share eta of the step
/// `I - eta (I - (I - alpha H)^R)`.
#[test]
fn done_contracts_as_richardson_does() {
    let (low, high): (f64, f64) = (0.5, 4.0);
    let field = field(&diagonal([low, 1.0, high]), Law::Mean);
    for (steps, eta) in [(1, 1.0), (6, 1.0), (6, 0.5)] {
        let alpha = 0.3;
        let done = method("done", &format!(r#"{{"richardson_step": {alpha}, "richardson_steps": {steps}, "step_size": {eta}}}"#));
        let errors = errors(&field, &*done, &EXACT, 5);
        let factor = |h: f64| 1.0 - eta * (1.0 - (1.0 - alpha * h).powi(steps));
        let root = field.root().unwrap();
        let expected = |t: i32| [low, 1.0, high].iter().zip(root).map(|(h, x)| (factor(*h).powi(t) * x).powi(2)).sum::<f64>().sqrt();
        for (t, error) in errors.iter().enumerate() {
            assert!((error - expected(t as i32)).abs() < 1e-12 * errors[0], "R = {steps}, eta = {eta}, round {t}");
        }
    }
}

/// FedNL with whole corrections converges superlinearly: the ratio of successive errors falls towards 0. Option
/// shift does so too, because distances tend to 0.
#[test]
fn fednl_with_whole_corrections_is_superlinear() {
    let field = field(&logistic(), Law::Mean);
    for settings in [r#"{"compressor": "full"}"#, r#"{"compressor": "full", "option": "projection", "mu": 1e-3}"#] {
        let errors: Vec<f64> = errors(&field, &*method("fednl", settings), &EXACT, 30).into_iter().filter(|e| *e > 1e-13).collect();
        let ratios: Vec<f64> = errors.windows(2).map(|pair| pair[1] / pair[0]).collect();
        let last = ratios.len() - 1;
        assert!(errors.len() < 20 && ratios[last] < 0.02, "{settings}: {ratios:?}");
    }
}

/// On quadratics the true Hessian is learned: every compressor ends at the root, from either start, with all agents or some, with
/// and without a line search, and over a link that loses messages.
#[test]
fn fednl_reaches_the_root_with_every_compressor() {
    let lossy = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
    let problems: [(&str, Box<dyn ProblemSettings>, f64); 2] =
        [("quadratics", Box::new(quadratics()), 0.9), ("logistic", Box::new(logistic()), 1e-3)];
    for (name, problem, mu) in problems {
        let field = field(&*problem, Law::Mean);
        for compressor in [
            r#""rank-1""#,
            r#""rank-1", "pair_bits": 8"#,
            r#""top-k", "k": 8"#,
            r#""top-lek", "k": 8"#,
            r#""rand-k", "k": 12"#,
            r#""rand-seq-k", "k": 12"#,
            r#""natural""#,
            r#""full""#,
        ] {
            for option in [r#""shift""#.to_string(), format!(r#""projection", "mu": {mu}"#)] {
                let both = |rest: &str| method("fednl", &format!(r#"{{"compressor": {compressor}, "option": {option}{rest}}}"#));
                let error = errors(&field, &*both(""), &EXACT, 150)[150];
                assert!(error < 1e-10, "{compressor}, {option} on {name}: {error:e}");
                let error = errors(&field, &*both(r#", "line_search": true"#), &EXACT, 150)[150];
                assert!(error < 1e-7, "{compressor}, {option}, a line search on {name}: {error:e}");
                let error = errors(&field, &*both(r#", "participants": 2"#), &EXACT, 600)[600];
                assert!(error < 1e-9, "{compressor}, {option}, some agents on {name}: {error:e}");
                let error = errors(&field, &*both(""), &lossy, 400)[400];
                assert!(error < 1e-9, "{compressor}, {option}, erasure on {name}: {error:e}");
            }
            let shift = method("fednl", &format!(r#"{{"compressor": {compressor}, "first_hessian": "mu-identity", "mu": {mu}}}"#));
            let error = errors(&field, &*shift, &EXACT, 400)[400];
            assert!(error < 1e-9, "{compressor}, from mu I on {name}: {error:e}");
        }
    }
}

/// Agents in parallel whose Hessians use the same threads: while one waits its thread may answer for another. No panic, and the
/// bits are those of one thread.
#[test]
fn fednl_bears_threads_that_answer_for_several_agents() {
    let field = field(&RandomLogistic::default().with_agents(16).with_dim(100).with_points(400), Law::Mean);
    let method = method("fednl", r#"{"compressor": "top-k", "k": 300}"#);
    let on = |threads: usize| -> Vec<u64> {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let mut engine = run(&field, &*method, &EXACT, 5);
            for _ in 0..8 {
                engine.step();
            }
            engine.theta().iter().map(|x| x.to_bits()).collect()
        })
    };
    assert_eq!(on(4), on(1));
}

/// Ten agents with 40 rows of 20 features each, from a linear congruential generator.
fn generated_rows() -> Arc<dyn Field> {
    let mut s = 1u64;
    let mut uniform = || {
        s = (1_103_515_245 * s + 12_345) % (1 << 31);
        s as f64 / (1u64 << 31) as f64
    };
    let mut set = |c: usize| {
        let (mut values, mut labels) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let u: Vec<f64> = (0..21).map(|_| uniform()).collect();
            let x: Vec<f64> = (0..20).map(|q| (2.0 * u[q] - 1.0) / (20.0 - q as f64).sqrt() + (c as f64 / 10.0 - 0.45) / 2.0).collect();
            let score: f64 = x.iter().enumerate().map(|(q, x)| 2.0 * (q as f64).cos() * x).sum();
            labels.push(if u[20] < 1.0 / (1.0 + (-score).exp()) { 1.0 } else { -1.0 });
            values.extend(x);
        }
        let mut set = data_set(40, 20, false, true);
        (set.rows, set.targets) = (Rows::Dense { d: 20, values }, Some(Labels::Numbers(labels)));
        set.name = format!("agent_{c}");
        set
    };
    let sets = (0..10).map(&mut set).collect();
    let settings = Logistic { ridge: 1e-3, partition: Partition::Files, ..Logistic::new(Sources::One("data".into())) };
    field(&OnSets { settings, sets }, Law::Mean)
}

/// The rounds until the mean gradient is below 1e-9, and the numbers of entries sent after the first Hessians, are those of NumPy; of random
/// compressors about those, whose draws differ.
#[test]
fn compressors_need_the_rounds_that_numpy_needs() {
    let field = generated_rows();
    for (settings, expected) in [
        (r#"{"compressor": "top-k", "k": 20}"#, 23..=23),
        (r#"{"compressor": "top-k", "k": 20, "fresh": true}"#, 21..=21),
        (r#"{"compressor": "top-lek", "k": 20}"#, 52..=70),
        (r#"{"compressor": "rand-k", "k": 20}"#, 50..=66),
        (r#"{"compressor": "rand-seq-k", "k": 20}"#, 46..=62),
    ] {
        let mut engine = run(&field, &*method("fednl", settings), &EXACT, 5);
        let norm = |theta: &[f64]| fedsa::linalg::norm(&field.mean_operator(theta).unwrap());
        let mut rounds = 0;
        while norm(engine.theta()) > 1e-9 {
            engine.step();
            rounds += 1;
        }
        assert!(expected.contains(&rounds), "{settings}: {rounds}");
    }
}

/// The first step of FedNL from whole Hessians is Newton's.
#[test]
fn fednl_starts_with_newtons_step() {
    let field = field(&quadratics(), Law::Mean);
    let errors = errors(&field, &*method("fednl", "{}"), &EXACT, 1);
    assert!(errors[1] < 1e-12 * errors[0].max(1.0), "{errors:?}");
}

/// The messages of FedNL are counted as what they are.
#[test]
fn fednl_sends_what_its_settings_say() {
    let field = field(&logistic(), Law::Mean);
    let (n, d) = (6, 5);
    let triangle = d * (d + 1) / 2;
    // Bytes besides parts; of parts, six each; numbers.
    let message = |parts: &[u64]| 8 * n * (27 + parts.iter().map(|bytes| 6 + bytes).sum::<u64>());
    let first = message(&[8 * d, 8 * triangle]);
    let of = |change: u64| message(&[8 * d, 16, change]);
    for (compressor, change, vectors, matrices) in [
        (r#""rank-1""#, 8 * (d + 1), 2, 0),
        (r#""rank-1", "pair_bits": 23"#, (64 + 3 + 23 * d).div_ceil(8), 2, 0),
        (r#""top-k", "k": 9"#, 4 + 12 * 9, 1, 1),
        (r#""rand-k", "k": 9"#, 8 * 9, 1, 1),
        (r#""natural""#, (12 * triangle).div_ceil(8), 1, 1),
        (r#""full""#, 8 * triangle, 1, 1),
    ] {
        let method = method("fednl", &format!(r#"{{"compressor": {compressor}}}"#));
        let mut engine = run(&field, &*method, &EXACT, 5);
        engine.step();
        let ledger = engine.ledger();
        assert_eq!((ledger.bits_up, ledger.vectors_up, ledger.matrices_up, ledger.scalars_up), (first, n, n, 0), "{compressor}");
        engine.step();
        let ledger = engine.ledger();
        assert_eq!(ledger.bits_up, first + of(change), "{compressor}");
        assert_eq!((ledger.vectors_up, ledger.matrices_up, ledger.scalars_up), (n + n * vectors, n + n * matrices, 2 * n), "{compressor}");
        assert_eq!((ledger.calls.hessians, ledger.calls.gradients, ledger.exchanges), (2 * n, 2 * n, 2), "{compressor}");
    }
}

/// A link that carries fewer bits than a pair takes carries none, and the gradient all the same: from mu I the method is gradient descent.
/// One that carries enough changes nothing.
#[test]
fn pairs_wait_for_a_link_that_carries_them() {
    let field = field(&diagonal([0.5, 2.0, 4.0]), Law::Mean);
    let (n, d, mu) = (2, 3, 2.5);
    let settings =
        format!(r#"{{"compressor": "rank-1", "pair_bits": 16, "option": "projection", "mu": {mu}, "first_hessian": "mu-identity"}}"#);
    let fednl = method("fednl", &settings);
    let over = |bits: usize| link(r#"{"kind": "exact"}"#, false, &[&format!(r#"{{"kind": "bit-budget", "bits": {bits}}}"#)]).unwrap();
    let (narrow, wide) = (over(15), over(16));
    let mut waiting = run(&field, &*fednl, &narrow, 5);
    let gd = method("gd", &format!(r#"{{"step_size": {}}}"#, 1.0 / mu));
    let mut descent = run(&field, &*gd, &EXACT, 5);
    let (mut sending, mut free) = (run(&field, &*fednl, &wide, 5), run(&field, &*fednl, &EXACT, 5));
    for t in 0..4 {
        [&mut waiting, &mut descent, &mut sending, &mut free].into_iter().for_each(|run| run.step());
        assert!(distance(waiting.theta(), descent.theta()) < 1e-14, "round {t}");
        assert_eq!(sending.theta(), free.theta(), "round {t}");
    }
    let message = |change: u64| 8 * n * 4 * (27 + 3 * 6 + 8 * d + 16 + change);
    assert_eq!(waiting.ledger().bits_up, message(0));
    // Axes are eigenvectors: one component may be across.
    let pair = |across: u64| message((64 + 3 + 16 * across + 16 * d).div_ceil(8));
    assert!((pair(0)..=pair(1)).contains(&sending.ledger().bits_up));
    assert_eq!(sending.ledger().bits_up, free.ledger().bits_up);
    assert!(distance(sending.theta(), descent.theta()) > 1e-3);
}

/// Over links that fade an agent sends its pair in the rounds, and only in those, in which its link carries it; the method reaches the root.
#[test]
fn pairs_are_sent_when_fading_links_carry_them() {
    let field = field(&logistic(), Law::Mean);
    let (n, d, bits) = (6, 5, 20);
    let fednl = method("fednl", &format!(r#"{{"compressor": "rank-1", "pair_bits": {bits}}}"#));
    let fading = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "bit-budget", "bits": 24, "fading_snr": 1.0}"#]).unwrap();
    let mut engine = run(&field, &*fednl, &fading, 5);
    engine.step();
    let mut expected = engine.ledger().bits_up;
    let (mut pairs, rounds) = (0, 20);
    for round in 1..rounds {
        engine.step();
        for agent in 0..n {
            // The exchange of corrections.
            let allowance = fading.allowance(MessageKey { seed: 5, round, exchange: 1, agent }, d).unwrap();
            let carries = allowance >= (bits * d) as u64;
            pairs += u64::from(carries);
            expected += 8 * (27 + 3 * 6 + 8 * d + 16 + if carries { (64 + 3 + bits * d).div_ceil(8) } else { 0 }) as u64;
        }
    }
    assert_eq!(engine.ledger().bits_up, expected);
    let all = n as u64 * (rounds - 1);
    assert!(pairs > all / 4 && pairs < 3 * all / 4, "{pairs} of {all}");
    let root = field.root().unwrap();
    (0..100).for_each(|_| engine.step());
    assert!(distance(engine.theta(), root) < 1e-9, "{:e}", distance(engine.theta(), root));
}

/// What settings cannot be together is refused with the reason.
#[test]
fn settings_that_contradict_each_other_are_refused() {
    for (kind, settings, key) in [
        ("gd", r#"{"step_size": 0.0}"#, "step_size"),
        ("gd", r#"{"halvings": 61}"#, "halvings"),
        ("agd", r#"{"momentum": 0.5, "strong_convexity": 1.0}"#, "momentum"),
        ("agd", r#"{"step_size": 0.5, "strong_convexity": 3.0}"#, "strong_convexity"),
        ("lbfgs", r#"{"memory": 0}"#, "memory"),
        ("bfgs", r#"{"decrease": 0.5}"#, "decrease"),
        ("giant", r#"{"shrink": 1.0}"#, "shrink"),
        ("giant", r#"{"cg_steps": 0}"#, "cg_steps"),
        ("done", r#"{"richardson_step": -1.0}"#, "richardson_step"),
        ("fednl", r#"{"option": "projection"}"#, "mu"),
        ("fednl", r#"{"first_hessian": "mu-identity"}"#, "mu"),
        ("fednl", r#"{"compressor": "rank-1", "k": 3}"#, "k"),
        ("fednl", r#"{"compressor": "top-k", "k": 0}"#, "k"),
        ("fednl", r#"{"learning_rate": 1.5}"#, "learning_rate"),
        ("fednl", r#"{"pair_bits": 16}"#, "pair_bits"),
        ("fednl", r#"{"compressor": "rank-1", "pair_bits": 0}"#, "pair_bits"),
        ("fednl", r#"{"compressor": "rank-1", "pair_bits": 33}"#, "pair_bits"),
        ("fednl", r#"{"participants": 2, "line_search": true}"#, "participants"),
    ] {
        let e = method(kind, settings).check(4).unwrap_err().to_string();
        assert!(e.contains(key), "{kind} {settings}: {e}");
    }
    let air = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "over-the-air", "receiver_noise": 0.1}"#]).unwrap();
    let field = field(&quadratics(), Law::Mean);
    let over_the_air = |kind: &str, settings: &str| {
        let start = vec![0.0; field.dim()];
        engine(&field, &*method(kind, settings), &air, fedsa::record::OutputRule::Last, 5, start).err()
    };
    for (kind, settings) in [("gd", "{}"), ("agd", "{}"), ("bfgs", "{}"), ("lbfgs", "{}"), ("giant", "{}"), ("fednl", "{}")] {
        let refusal = over_the_air(kind, settings).unwrap().to_string();
        assert!(refusal.contains("over the air") || refusal.contains("over this link only their sum"), "{kind}: {refusal}");
    }
    for (kind, settings) in [("gd", r#"{"step_size": 0.1}"#), ("done", r#"{"richardson_step": 0.1}"#)] {
        assert!(over_the_air(kind, settings).is_none(), "{kind}");
    }
}
