//! Methods that improve a policy: `lspi` and `fitted-q`, on logged transitions with actions and on SARSA. Numbers of the two agents with eight
//! rows each were computed apart from this code, with NumPy.

use std::sync::Arc;

use crate::common::{Halves, InMemory, bits, distance, field, link, method, run, run_from, small_garnet};
use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::method::MethodSettings;
use fedsa::node::Todo;
use fedsa::problem::Field;
use fedsa::round::{Run, check_needs};
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_problems::ProblemSettings as _;
use fedsa_problems::control::improvement::{Improvement, period};
use fedsa_problems::control::sarsa::Sarsa;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log::{Log, LoggedActions};
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::td::garnet::Heterogeneity;

const SEED: u64 = 5;

/// A walk on [0, 1]: the last row of agent 0 is terminal, and the logs of the others go no further.
fn walk(c: usize) -> Log {
    let mut s = 0.2 + 0.3 * (c % 2) as f64;
    let (mut states, mut next, mut rewards, mut taken) = (vec![], vec![], vec![], vec![]);
    for i in 0..8 {
        let a = (i * (i + 1) / 2 + c) % 2;
        let after = (s + (2.0 * a as f64 - 1.0) / 4.0 + c as f64 / 20.0 - (i % 3) as f64 / 20.0).clamp(0.0, 1.0);
        states.push(s);
        next.push(after);
        rewards.push(1.0 - (after - 0.6).abs() - a as f64 / 10.0);
        taken.push(a as u32);
        s = after;
    }
    Log {
        name: format!("agent {c}"),
        columns: vec!["s_0".into()],
        states,
        rewards,
        next,
        done: (0..8).map(|i| c == 0 && i == 7).collect(),
        truncated: None,
        breaks: None,
        episode: None,
        ratio: None,
        actions: Some(LoggedActions { taken, ..LoggedActions::none(2) }),
    }
}

fn walks(agents: usize, ridge: f64) -> Arc<dyn Field> {
    let settings = Improvement::new(
        Sources::One(String::new()),
        ["left", "right"].map(String::from).to_vec(),
        FeatureSpec::Identity { bias: true },
        0.9,
    )
    .with_ridge(ridge);
    let logs = InMemory((0..agents).map(walk).collect());
    settings.field(&logs, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap()
}

/// The iterates after each of these rounds.
fn iterates(mut run: Run, rounds: usize) -> Vec<Vec<f64>> {
    (0..rounds)
        .map(|_| {
            run.step();
            run.theta().to_vec()
        })
        .collect()
}

const ROOT: [f64; 4] = [1.99314957911, 1.0951731905, 2.70594400708, 0.744398378907];
const FROM_START: &str = r#"{"first": "start"}"#;

#[test]
fn policy_iteration_settles_and_repeats_bit_for_bit() {
    let field = walks(2, 0.1);
    assert!(distance(field.root().unwrap(), &ROOT) < 1e-10);
    // One solve for the behaviour's values, one to the root, and one that repeats it; from 0 two to the root.
    for settings in ["{}", FROM_START] {
        let all = iterates(run(&field, &*method("lspi", settings), &Uplink::default(), SEED), 3);
        assert!(distance(&all[1], &ROOT) < 1e-10, "{settings} {all:?}");
        assert_eq!((period(&all[..2]), period(&all)), (None, Some(1)), "{settings}");
    }
    // With less ridge, two policies alternate; a share of the way changes no fixed point, and there is none here.
    let all = iterates(run(&walks(2, 0.001), &*method("lspi", FROM_START), &Uplink::default(), SEED), 20);
    assert_eq!(period(&all), Some(2));
}

#[test]
fn fitted_q_iteration_finds_the_root_of_policy_iteration() {
    let field = walks(2, 0.1);
    for (settings, rounds) in [("{}", 250), (FROM_START, 250), (r#"{"global_step_size": 0.5}"#, 500)] {
        let mut run = run(&field, &*method("fitted-q", settings), &Uplink::default(), SEED);
        (0..rounds).for_each(|_| run.step());
        assert!(distance(run.theta(), &ROOT) < 1e-9, "{settings} {:?}", run.theta());
    }
    // A matrix of each agent for the first policy, one with the first operators, then d numbers.
    let mut run = run(&field, &*method("fitted-q", "{}"), &Uplink::default(), SEED);
    let ledger: Vec<_> = (0..4)
        .map(|_| {
            run.step();
            let of = run.ledger();
            (of.exchanges, of.matrices_up, of.vectors_up)
        })
        .collect();
    assert_eq!(ledger, [(1, 2, 0), (2, 4, 2), (3, 4, 4), (4, 4, 6)]);
}

/// The mean of a matrix over agents, each as rows.
fn rows_of(m: &linalg::Mat<f64>, factor: f64) -> Vec<Vec<f64>> {
    (0..m.nrows()).map(|i| (0..m.ncols()).map(|j| factor * m[(i, j)]).collect()).collect()
}

/// Gaussian elimination with the largest pivot of each column.
fn solve(a: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let d = b.len();
    let mut rows: Vec<Vec<f64>> = a.iter().zip(b).map(|(row, b)| row.iter().copied().chain([*b]).collect()).collect();
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
    rows.iter().map(|row| row[d]).collect()
}

/// Policy iteration is Newton's method on the mean of the operators that arrive, and fitted Q-iteration steps by their mean over all agents,
/// in the metric of the Gram matrices.
#[test]
fn methods_that_improve_a_policy_are_their_slow_twins() {
    let field = walks(5, 0.1);
    let (n, d, p) = (5, field.dim(), field.weights().to_vec());
    let mean = |c: usize, theta: &[f64]| {
        let mut g = vec![0.0; d];
        assert!(field.mean(c, theta, &mut g));
        g
    };
    for success in [1.0, 0.6] {
        let uplink = link(r#"{"kind": "exact"}"#, false, &[&format!(r#"{{"kind": "erasure", "success": {success}}}"#)]).unwrap();
        let arrives = |t: u64, exchange: u8, agent: usize| {
            let place = MessageKey { seed: SEED, round: t, exchange, agent };
            place.stream(fedsa::random::Purpose::Medium).uniform() < success
        };
        let mut engine = run(&field, &*method("lspi", FROM_START), &uplink, SEED);
        let mut theta = vec![0.0; d];
        for t in 0..6 {
            engine.step();
            let (mut j, mut g) = (vec![vec![0.0; d]; d], vec![0.0; d]);
            for c in (0..n).filter(|c| arrives(t, 0, *c)) {
                let mut jacobian = linalg::Mat::zeros(d, d);
                assert!(field.facts().jacobian(c, &theta, &mut jacobian));
                for (j, row) in j.iter_mut().zip(rows_of(&jacobian, -p[c])) {
                    j.iter_mut().zip(row).for_each(|(j, x)| *j += x);
                }
                g.iter_mut().zip(mean(c, &theta)).for_each(|(g, x)| *g += p[c] * x);
            }
            if g.iter().any(|g| *g != 0.0) {
                theta.iter_mut().zip(solve(&j, &g)).for_each(|(theta, x)| *theta += x);
            }
            assert!(distance(engine.theta(), &theta) < 1e-9 * (1.0 + linalg::norm(&theta)), "{success}, round {t}");
        }
        let mut engine = run(&field, &*method("fitted-q", FROM_START), &uplink, SEED);
        let (mut theta, mut gram) = (vec![0.0; d], None);
        for t in 0..30 {
            engine.step();
            let exchange = u8::from(gram.is_none());
            let there: Vec<usize> = (0..n).filter(|c| arrives(t, exchange, *c)).collect();
            if there.len() == n && gram.is_none() {
                let mut sum = vec![vec![0.0; d]; d];
                for (c, p) in p.iter().enumerate() {
                    for (sum, row) in sum.iter_mut().zip(rows_of(&field.facts().policy_systems().unwrap().gram(c, &theta), *p)) {
                        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
                    }
                }
                gram = Some(sum);
            }
            if let Some(gram) = &gram {
                let mut g = vec![0.0; d];
                there.iter().for_each(|c| g.iter_mut().zip(mean(*c, &theta)).for_each(|(g, x)| *g += p[*c] * x));
                theta.iter_mut().zip(solve(gram, &g)).for_each(|(theta, x)| *theta += x);
            }
            assert!(distance(engine.theta(), &theta) < 1e-9 * (1.0 + linalg::norm(&theta)), "{success}, round {t}");
        }
        assert!(gram.is_some(), "all agents arrive in one of the rounds");
    }
}

/// Halves that exchange bytes give the engine's bits, also over links that round, and a server that is saved in between goes on.
#[test]
fn halves_that_exchange_bytes_improve_a_policy_as_the_engine_does() {
    let rounding = link(r#"{"kind": "quantised", "bits": 20}"#, false, &[]).unwrap();
    for uplink in [Uplink::default(), rounding] {
        for (kind, settings) in [("lspi", "{}"), ("lspi", r#"{"global_step_size": 0.5}"#), ("fitted-q", "{}"), ("fitted-q", FROM_START)] {
            let (field, method) = (walks(3, 0.1), method(kind, settings));
            let mut engine = run(&field, &*method, &uplink, SEED);
            let mut halves = Halves::new(&field, &*method, &uplink, SEED).unwrap();
            for t in 0..6 {
                engine.step();
                halves.round();
                assert_eq!(bits(halves.server.theta()), bits(engine.theta()), "{kind} {settings}, round {t}");
            }
        }
    }
}

/// On SARSA, rounds of `lspi` are soft policy iterations, and `fitted-q` makes preconditioned steps: both find its root.
#[test]
fn sarsa_is_solved_by_policy_iteration() {
    let field = field(&Sarsa::default().with_agents(4).with_states(5), Law::Mean);
    let root = field.root().unwrap();
    for (kind, settings, rounds) in [("lspi", "{}", 60), ("lspi", r#"{"global_step_size": 0.5}"#, 120), ("fitted-q", "{}", 2000)] {
        let mut run = run_from(&field, &*method(kind, settings), SEED, &vec![0.0; field.dim()]);
        (0..rounds).for_each(|_| run.step());
        let apart = distance(run.theta(), root) / (1.0 + linalg::norm(root));
        assert!(apart < 1e-9, "{kind} {settings}: {apart:e}");
    }
    // The mean of the systems gives the mean operator.
    let systems = field.facts().policy_systems().unwrap();
    let theta: Vec<f64> = (0..field.dim()).map(|i| (i as f64).sin()).collect();
    for c in 0..4 {
        let (mut g, mut of_system) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
        assert!(field.mean(c, &theta, &mut g));
        systems.operator(c, &theta, &mut of_system);
        assert!(distance(&g, &of_system) < 1e-13);
        assert!(systems.behaviour(c).is_none());
    }
}

#[test]
fn problems_without_a_policy_and_wrong_shares_are_refused() {
    let garnet = field(&small_garnet(3, Heterogeneity::Independent), Law::Mean);
    let why = |settings: &dyn MethodSettings| -> Error { check_needs(settings, &*garnet).unwrap_err() };
    for kind in ["lspi", "fitted-q"] {
        assert!(why(&*method(kind, "{}")).to_string().contains("the method improves a policy"));
        assert!(check_needs(&*method(kind, "{}"), &*walks(2, 0.1)).is_ok());
        for share in [0.0, 1.5] {
            let settings = method(kind, &format!(r#"{{"global_step_size": {share}}}"#));
            assert!(settings.check(3).unwrap_err().to_string().starts_with("global_step_size"));
        }
    }
}

/// The first question asks for the system of the policy that logged the data: answers to it say nothing about the iterate.
#[test]
fn servers_know_the_residual_of_all_rounds_but_the_first() {
    let field = walks(2, 0.1);
    for kind in ["lspi", "fitted-q"] {
        let mut halves = Halves::new(&field, &*method(kind, "{}"), &Uplink::default(), SEED).unwrap();
        for round in 0..4 {
            let Todo::Ask { to, bytes } = halves.server.open() else { panic!("a question") };
            for (c, bytes) in to.iter().zip(&bytes) {
                let answer = halves.nodes[*c].handle(bytes).unwrap().unwrap();
                halves.server.take(*c, &answer).unwrap();
            }
            let expected = (round > 0).then(|| linalg::norm(&field.mean_operator(halves.server.theta()).unwrap()));
            let known = halves.server.residual();
            let is_near = known.zip(expected).is_none_or(|(x, y)| (x - y).abs() < 1e-12);
            assert!(is_near && known.is_some() == expected.is_some(), "{kind}, round {round}: {known:?}, {expected:?}");
            assert_eq!(halves.server.close(), Todo::RoundOver);
        }
    }
}
