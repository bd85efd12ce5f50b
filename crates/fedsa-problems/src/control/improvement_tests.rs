//! Numbers of two agents with eight rows each (L1) were computed apart from this code, with NumPy.

use super::*;
use crate::NoFiles;
use crate::control::greedy::greedy;
use crate::logs::log::{Break, Log, LoggedActions};
use crate::logs::source::{LogSource, in_memory};
use fedsa::linalg::distance_sq;
use fedsa::problem::arrays::Arrays;
use fedsa::random::{Purpose, stream};

/// Logs in memory.
struct Given(Vec<Log>);

impl Files for Given {
    fn arrays(&self, path: &str) -> Result<Arrays> {
        NoFiles.arrays(path)
    }
    fn logs(&self, _: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        assert!(form.actions.is_some());
        Ok(in_memory(self.0.clone()))
    }
}

/// A walk on [0, 1]: the last row of agent 0 is terminal, and the log of agent 1 goes no further.
fn walk(c: usize) -> Log {
    let mut s = 0.2 + 0.3 * c as f64;
    let mut log = empty(format!("agent {c}"));
    for i in 0..8 {
        let a = (i * (i + 1) / 2 + c) % 2;
        let next = (s + (2.0 * a as f64 - 1.0) / 4.0 + c as f64 / 20.0 - (i % 3) as f64 / 20.0).clamp(0.0, 1.0);
        push(&mut log, s, a as u32, 1.0 - (next - 0.6).abs() - a as f64 / 10.0, next, c == 0 && i == 7);
        s = next;
    }
    log
}

fn empty(name: String) -> Log {
    Log {
        name,
        columns: vec!["s_0".into()],
        states: vec![],
        rewards: vec![],
        next: vec![],
        done: vec![],
        truncated: None,
        breaks: None,
        episode: None,
        ratio: None,
        actions: Some(LoggedActions::none(2)),
    }
}

fn push(log: &mut Log, state: f64, action: u32, reward: f64, next: f64, done: bool) {
    log.states.push(state);
    log.rewards.push(reward);
    log.next.push(next);
    log.done.push(done);
    log.actions.as_mut().unwrap().taken.push(action);
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|action| format!("action {action}")).collect()
}

fn settings(ridge: f64) -> Improvement {
    Improvement::new(Sources::One(String::new()), names(2), FeatureSpec::Identity { bias: true }, 0.9).with_ridge(ridge)
}

fn improving(settings: &Improvement, logs: Vec<Log>) -> Improving {
    let logs = settings.survey(&Given(logs)).unwrap();
    settings.agents(&logs, &settings.map(&logs).unwrap()).unwrap()
}

fn l1(ridge: f64) -> Improving {
    improving(&settings(ridge), vec![walk(0), walk(1)])
}

/// Policy iteration until a policy repeats.
fn iterated(agents: &Improving, mut theta: Vec<f64>) -> Vec<Vec<f64>> {
    let mut iterates = Vec::new();
    while period(&iterates).is_none() {
        let System { a, b } = agents.mean_system(&theta);
        theta = linalg::solve(&a, &b).unwrap();
        iterates.push(theta.clone());
    }
    iterates
}

fn behaviour(agents: &Improving) -> Vec<f64> {
    let System { a, b } = agents.mean_behaviour();
    linalg::solve(&a, &b).unwrap()
}

fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= tolerance), "{found:?} {expected:?}");
}

const ROOT: [f64; 4] = [1.99314957911, 1.0951731905, 2.70594400708, 0.744398378907];

#[test]
fn policy_iteration_settles_where_numpy_does() {
    let agents = l1(0.1);
    // The last solve repeats the one before.
    let from_zero = iterated(&agents, vec![0.0; 4]);
    assert_eq!((from_zero.len(), period(&from_zero)), (3, Some(1)));
    assert_near(&from_zero[2], &ROOT, 1e-11);
    let from_behaviour = iterated(&agents, behaviour(&agents));
    assert_eq!((from_behaviour.len(), period(&from_behaviour)), (2, Some(1)));
    assert_near(&from_behaviour[1], &ROOT, 1e-11);
    assert!(!agents.is_diverged(&ROOT));
    let root = agents.settled(&Cancel::never()).unwrap();
    assert_near(&root.theta, &ROOT, 1e-11);
    assert_eq!(root.source, RootSource::Searched { starts: 1, found: 1, stable: 1 });
}

/// With less ridge two policies alternate. Fitted Q-iteration would diverge under the one that always takes action 1.
#[test]
fn a_cycle_is_found_with_the_radii_of_its_policies() {
    let agents = l1(0.001);
    let iterates = iterated(&agents, vec![0.0; 4]);
    assert_eq!(period(&iterates), Some(2));
    let mut seen = 0;
    for theta in &iterates[iterates.len() - 2..] {
        let choices: Vec<u32> = agents.logs().iter().flat_map(|log| log.choices(theta)).flatten().collect();
        let (radius, expected, tolerance) = match choices.iter().all(|action| *action == 1) {
            true => (agents.radius(theta).unwrap(), 1.02874472094, 1e-10),
            false => (agents.radius(theta).unwrap(), 0.7347, 5e-5),
        };
        seen += usize::from(expected > 1.0);
        assert!((radius - expected).abs() < tolerance, "{radius}");
    }
    assert_eq!(seen, 1);
    let why = agents.settled(&Cancel::never()).unwrap_err();
    assert!(why.contains("cycle of 2"), "{why}");
    // Values of 10 times the largest return are no values.
    let far: Vec<f64> = iterates[0].iter().map(|x| 1e4 * x).collect();
    assert!(agents.is_diverged(&far) && !agents.is_diverged(&[0.0; 4]));
}

/// Logs of three agents with all sorts of ends: numbers of episodes, truncations, terminal rows, rows that were left out.
fn mixed() -> Vec<Log> {
    let mut draws = stream(5, Purpose::Fresh, 0, 0);
    let lengths = [5, 23, 40];
    lengths
        .into_iter()
        .enumerate()
        .map(|(c, n)| {
            let mut log = empty(format!("agent {c}"));
            log.actions = Some(LoggedActions::none(3));
            log.columns.push("s_1".into());
            let mut state = [draws.uniform(), draws.uniform()];
            for i in 0..n {
                let next = [draws.uniform(), draws.uniform()];
                log.states.extend(state);
                log.next.extend(next);
                log.rewards.push(draws.normal());
                log.done.push(i % 7 == 4);
                log.actions.as_mut().unwrap().taken.push((3.0 * draws.uniform()) as u32);
                state = if i % 7 == 4 || i % 11 == 8 { [draws.uniform(), draws.uniform()] } else { next };
            }
            match c {
                0 => log.truncated = Some((0..n).map(|i| i % 11 == 8).collect()),
                1 => log.episode = Some((0..n).map(|i| (i / 6) as i64).collect()),
                _ => log.breaks = Some((0..n).map(|i| if i == 17 { Break::LeftOut } else { Break::None }).collect()),
            }
            log
        })
        .collect()
}

fn mixed_settings() -> Improvement {
    let features = FeatureSpec::Polynomial { order: 2 };
    Improvement::new(Sources::One(String::new()), names(3), features, 0.8).with_ridge(0.03)
}

/// `psi(s, a)` from the feature map.
fn psi(map: &FeatureMap, state: &[f64], action: usize) -> Vec<f64> {
    let (m, mut out) = (map.len(), vec![0.0; 3 * map.len()]);
    map.eval(state, &mut out[action * m..(action + 1) * m]);
    out
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// The operator, the systems and the Gram matrix are those of the formulas, in plain loops over rows.
#[test]
fn operators_and_systems_are_their_slow_twins() {
    let (settings, logs) = (mixed_settings(), mixed());
    let surveyed = settings.survey(&Given(logs.clone())).unwrap();
    let map = settings.map(&surveyed).unwrap();
    let agents = settings.agents(&surveyed, &map).unwrap();
    let (d, gamma, ridge) = (3 * map.len(), 0.8, 0.03);
    assert_eq!((agents.dim(), agents.weights()), (d, &[5.0 / 68.0, 23.0 / 68.0, 40.0 / 68.0][..]));
    let mut draws = stream(6, Purpose::Fresh, 0, 0);
    for _ in 0..4 {
        let theta: Vec<f64> = (0..d).map(|_| 3.0 * draws.normal()).collect();
        for (c, log) in logs.iter().enumerate() {
            let n = log.len();
            let taken = &log.actions.as_ref().unwrap().taken;
            let mut g: Vec<f64> = theta.iter().map(|x| -ridge * x).collect();
            let (mut a, mut gram) = (Mat::<f64>::zeros(d, d), Mat::<f64>::zeros(d, d));
            let (mut acted, mut acted_b, mut used) = (Mat::<f64>::zeros(d, d), vec![0.0; d], 0);
            for i in 0..n {
                let here = psi(&map, log.state(i), taken[i] as usize);
                let q: Vec<f64> = (0..3).map(|action| dot(&psi(&map, log.next_state(i), action), &theta)).collect();
                let best = if log.done[i] { vec![0.0; d] } else { psi(&map, log.next_state(i), greedy(&q)) };
                let error = log.rewards[i] + gamma * dot(&best, &theta) - dot(&here, &theta);
                let goes_on = i + 1 < n && !log.begins(i + 1);
                let after = if goes_on { psi(&map, log.next_state(i), taken[i + 1] as usize) } else { vec![0.0; d] };
                let is_used = log.done[i] || goes_on;
                used += usize::from(is_used);
                for k in 0..d {
                    g[k] += here[k] * error / n as f64;
                    for l in 0..d {
                        gram[(k, l)] += here[k] * here[l] / n as f64;
                        a[(k, l)] += here[k] * (here[l] - gamma * best[l]) / n as f64;
                        if is_used {
                            acted[(k, l)] += here[k] * (here[l] - gamma * after[l]) / n as f64;
                        }
                    }
                    if is_used {
                        acted_b[k] += here[k] * log.rewards[i] / n as f64;
                    }
                }
            }
            assert_eq!(agents.logs()[c].rows_with_next_action(), used);
            assert!(used < n || c == 0);
            let mut found = vec![0.0; d];
            assert!(agents.mean(c, &theta, &mut found));
            assert_near(&found, &g, 1e-13);
            let system = agents.system(c, &theta);
            assert_near(&system.mean(&theta), &g, 1e-13);
            add_ridge(&mut a, ridge);
            add_ridge(&mut gram, ridge);
            add_ridge(&mut acted, ridge * used as f64 / n as f64);
            assert!((&system.a - &a).norm_max() < 1e-14);
            assert!((&PolicySystems::gram(&agents, c, &theta) - &gram).norm_max() < 1e-14);
            let known = agents.behaviour(c).unwrap();
            assert!((&known.a - &acted).norm_max() < 1e-14);
            assert_near(&known.b, &acted_b, 1e-14);
            let mut jacobian = Mat::zeros(d, d);
            assert!(agents.jacobian(c, &theta, &mut jacobian));
            assert!((&jacobian + &a).norm_max() < 1e-14);
        }
    }
}

/// The standard deviation of the temporal differences with logged next actions, in plain loops.
fn deviation(logs: &[Log], map: &FeatureMap, gamma: f64, theta: &[f64]) -> f64 {
    let (mut squares, mut used) = (0.0, 0);
    for log in logs {
        let taken = &log.actions.as_ref().unwrap().taken;
        for i in 0..log.len() {
            let goes_on = i + 1 < log.len() && !log.begins(i + 1);
            if log.done[i] || goes_on {
                let after = if log.done[i] { 0.0 } else { dot(&psi(map, log.next_state(i), taken[i + 1] as usize), theta) };
                squares += (log.rewards[i] + gamma * after - dot(&psi(map, log.state(i), taken[i] as usize), theta)).powi(2);
                used += 1;
            }
        }
    }
    (squares / (used - theta.len()) as f64).sqrt()
}

/// Targets that avoid rare actions are those of the formulas, in plain loops over all agents' rows.
#[test]
fn pessimistic_targets_are_their_slow_twins() {
    let (logs, gamma, ridge) = (mixed(), 0.8, 0.03);
    let pairs = |log: &Log| -> Vec<(Vec<f64>, usize)> {
        let taken = &log.actions.as_ref().unwrap().taken;
        (0..log.len()).map(|i| (log.state(i).to_vec(), taken[i] as usize)).collect()
    };
    let all: Vec<(Vec<f64>, usize)> = logs.iter().flat_map(pairs).collect();
    let plain = improving(&mixed_settings(), logs.clone());
    for rule in ["lcb:3", "support:25"] {
        let settings = mixed_settings().with_pessimism(rule.parse().unwrap());
        let surveyed = settings.survey(&Given(logs.clone())).unwrap();
        let map = settings.map(&surveyed).unwrap();
        let agents = settings.agents(&surveyed, &map).unwrap();
        let (d, n) = (3 * map.len(), all.len() as f64);
        let mut sum = Mat::<f64>::zeros(d, d);
        for (state, action) in &all {
            let x = psi(&map, state, *action);
            (0..d).for_each(|k| (0..d).for_each(|l| sum[(k, l)] += x[k] * x[l]));
        }
        let tenth_of_a_row = 0.1 * (0..d).map(|k| sum[(k, k)]).sum::<f64>() / n;
        add_ridge(&mut sum, tenth_of_a_row.min(n * ridge));
        let h = |state: &[f64], action: usize| {
            let x = psi(&map, state, action);
            dot(&x, &linalg::solve(&sum, &x).unwrap())
        };
        let sigma = deviation(&logs, &map, gamma, &behaviour(&agents));
        let lowered = |state: &[f64], theta: &[f64]| -> Vec<f64> {
            let h: Vec<f64> = (0..3).map(|action| h(state, action)).collect();
            let q = |action: usize| dot(&psi(&map, state, action), theta);
            let most = h.iter().map(|h| 1.0 / h).fold(0.0, f64::max);
            let of = |action: usize| match rule {
                "lcb:3" => q(action) - 3.0 * sigma * h[action].sqrt(),
                _ if 1.0 / h[action] >= most.min(25.0) => q(action),
                _ => f64::NEG_INFINITY,
            };
            (0..3).map(of).collect()
        };
        let (mut draws, mut changed) = (stream(6, Purpose::Fresh, 0, 0), 0);
        for _ in 0..3 {
            let theta: Vec<f64> = (0..d).map(|_| 0.1 * draws.normal()).collect();
            for (c, log) in logs.iter().enumerate() {
                let mut g: Vec<f64> = theta.iter().map(|x| -ridge * x).collect();
                for (i, (state, action)) in pairs(log).iter().enumerate() {
                    let next = lowered(log.next_state(i), &theta);
                    let after = if log.done[i] { 0.0 } else { next[greedy(&next)] };
                    let here = psi(&map, state, *action);
                    let error = log.rewards[i] + gamma * after - dot(&here, &theta);
                    (0..d).for_each(|k| g[k] += here[k] * error / log.len() as f64);
                }
                let mut found = vec![0.0; d];
                assert!(agents.mean(c, &theta, &mut found));
                assert_near(&found, &g, 1e-9);
                assert_near(&agents.system(c, &theta).mean(&theta), &g, 1e-9);
                changed += agents.logs()[c].choices(&theta).iter().zip(plain.logs()[c].choices(&theta)).filter(|(x, y)| **x != *y).count();
            }
        }
        assert!(changed > 10, "{rule}: {changed}");
    }
}

/// An action that nobody took has no row behind it, whatever the ridge.
#[test]
fn a_ridge_does_not_hide_that_an_action_was_never_taken() {
    let mut logs = mixed();
    logs.iter_mut().for_each(|log| log.actions.as_mut().unwrap().taken.fill(0));
    let settings = mixed_settings().with_ridge(10.0);
    let surveyed = settings.survey(&Given(logs.clone())).unwrap();
    let map = settings.map(&surveyed).unwrap();
    let coverage = settings.agents(&surveyed, &map).unwrap().coverage().unwrap();
    for i in 0..logs[0].len() {
        let mut phi = vec![0.0; map.len()];
        map.eval(logs[0].state(i), &mut phi);
        assert!(coverage.h(&phi, 1) > 1.0 && coverage.h(&phi, 0) < 1.0, "{i}");
    }
}

/// The weighted sums over agents are those of one agent with all rows, and the solution for the behaviour is that of the mean over the rows
/// whose next action is known.
#[test]
fn sums_over_agents_are_those_of_pooled_rows() {
    let settings = settings(0.05);
    let logs: Vec<Log> = (0..3).map(walk).collect();
    let mut pooled = Log { episode: Some(vec![0; 8]), ..logs[0].clone() };
    for (c, log) in logs.iter().enumerate().skip(1) {
        pooled.append(&Log { episode: Some(vec![c as i64; 8]), ..log.clone() });
    }
    let (apart, together) = (improving(&settings, logs), improving(&settings, vec![pooled]));
    let theta = [0.3, -1.0, 0.5, 0.7];
    for (x, y) in [(apart.mean_system(&theta), together.mean_system(&theta)), (apart.mean_behaviour(), together.mean_behaviour())] {
        assert!((&x.a - &y.a).norm_max() < 1e-15);
        assert_near(&x.b, &y.b, 1e-15);
    }
    assert!(distance_sq(&behaviour(&apart), &behaviour(&together)) < 1e-24);
    let used = together.logs()[0].rows_with_next_action();
    assert_eq!(used, 8 + 7 + 7);
    let equal = improving(&settings.with_weighting(AgentWeights::Equal), (0..3).map(walk).collect());
    assert_eq!(equal.weights(), [1.0 / 3.0; 3]);
}

/// States that are the next states of rows before are kept once.
#[test]
fn states_are_kept_once() {
    let agents = l1(0.1);
    assert_eq!(agents.logs()[0].states(), 8);
    assert_eq!(agents.logs()[1].states(), 9);
}

#[test]
fn an_action_that_no_row_has_is_named() {
    let mut only_first = walk(0);
    only_first.actions.as_mut().unwrap().taken.fill(0);
    let check = |logs: Vec<Log>| improving(&settings(0.1), logs).check_actions(&["stay".into(), "go".into()]);
    assert!(check(vec![only_first.clone(), only_first.clone()]).unwrap_err().to_string().contains("go: no row has this action, number 1"));
    // Each agent's own rows need not have all.
    check(vec![only_first, walk(1)]).unwrap();
}

#[test]
fn what_cannot_be_improved_is_refused() {
    let refused = |settings: &Improvement, law| {
        let sampling = Sampling::default().with_kind(law);
        let built = settings.field(&Given(vec![walk(0), walk(1)]), sampling, Isa::Portable);
        built.map(drop).unwrap_err().to_string()
    };
    for law in [Law::Iid, Law::Markov] {
        assert!(refused(&settings(0.1), law).starts_with("sampling.kind: iid or markov"));
    }
    assert!(refused(&settings(-1.0), Law::Mean).starts_with("ridge"));
    assert!(refused(&settings(0.1).with_actions(Vec::new()), Law::Mean).starts_with("actions"));
    let e = refused(&settings(0.1).with_actions(names(3)), Law::Mean);
    assert!(e.contains("agent 0: a log without the numbers of 3 actions"), "{e}");
    assert!(refused(&settings(0.1).with_gamma(1.0), Law::Mean).starts_with("gamma"));
}
