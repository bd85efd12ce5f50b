//! TD(lambda) and importance ratios on logs: means against straight loops over transitions, replay against the same recursion
//! by hand, nodes and restored runs against the engine, and TD(lambda) against the solution of LSTD(lambda).

use std::sync::Arc;

use crate::common::{Halves, InMemory, bits, method, run, run_from};
use fedsa::error::Result;
use fedsa::kernel::{Isa, Lanes};
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream, stream};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::ProblemSettings;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log::{Break, Log};
use fedsa_problems::logs::replay::{Logs, Sources};

const GAMMA: f64 = 0.9;

fn settings(lambda: f64) -> Logs {
    Logs::new(Sources::One(String::new()), FeatureSpec::Identity { bias: false }, GAMMA).with_lambda(lambda).with_keep_autoreset_rows(true)
}

fn of(logs: &[Log], settings: &Logs, kind: Law) -> Result<Arc<dyn Field>> {
    settings.field(&InMemory(logs.to_vec()), Sampling::default().with_kind(kind), Isa::best())
}

/// A log of `n` random transitions of three columns: terminations, truncations, and ratios from 0 to 2.
fn random(c: usize, n: usize, s: &mut Stream) -> Log {
    let mut numbers = |n: usize| (0..n).map(|_| 0.5 * s.normal()).collect::<Vec<f64>>();
    let (states, rewards, next) = (numbers(3 * n), numbers(n), numbers(3 * n));
    Log {
        name: format!("agent {c}"),
        columns: ["x", "y", "z"].map(String::from).to_vec(),
        states,
        rewards,
        next,
        done: (0..n).map(|t| t % 13 == 12).collect(),
        truncated: None,
        breaks: None,
        actions: None,
        episode: Some((0..n).map(|t| (t / 13 * 2 + usize::from(t % 13 > 4)) as i64).collect()),
        ratio: Some((0..n).map(|_| 2.0 * s.uniform()).collect()),
    }
}

/// Four agents of unequal length; one shorter and two longer than a block of the accumulation.
fn some() -> Vec<Log> {
    let mut s = stream(3, Purpose::Fresh, 0, 0);
    [40, 700, 300, 77].into_iter().enumerate().map(|(c, n)| random(c, n, &mut s)).collect()
}

fn without_ratios(mut logs: Vec<Log>) -> Vec<Log> {
    logs.iter_mut().for_each(|log| log.ratio = None);
    logs
}

/// A log without episodes whose rows follow each other, but for every so many.
fn without_episodes(log: Log, every: usize) -> Log {
    let mut log = Log { episode: None, ..log };
    let k = log.columns.len();
    (1..log.len()).filter(|t| t % every != 0).for_each(|t| log.states[t * k..(t + 1) * k].copy_from_slice(&log.next[(t - 1) * k..t * k]));
    log
}

/// A log of which some episodes were truncated, and of which rows were left out.
fn with_breaks(log: Log) -> Log {
    let kind = |t: usize| match t % 11 {
        3 => Break::LeftOut,
        8 => Break::Stream,
        _ => Break::None,
    };
    let breaks = (0..log.len()).map(kind).collect();
    Log { truncated: Some((0..log.len()).map(|t| t % 7 == 5).collect()), breaks: Some(breaks), ..log }
}

/// The trace at every transition: a sum over the transitions of its episode so far, not the recursion.
fn traces(log: &Log, lambda: f64) -> Vec<[f64; 3]> {
    let rho = |t: usize| log.ratio.as_ref().map_or(1.0, |ratio| ratio[t]);
    let goes_on = |u: usize| match &log.episode {
        Some(episode) => episode[u] == episode[u + 1],
        None => log.next_state(u) == log.state(u + 1),
    };
    let is_cut = |u: usize| {
        let is_truncated = log.truncated.as_ref().is_some_and(|truncated| truncated[u]);
        is_truncated || log.breaks.as_ref().is_some_and(|breaks| breaks[u + 1] != Break::None)
    };
    let same = |s: usize, t: usize| (s..t).all(|u| !log.done[u] && !is_cut(u) && goes_on(u));
    (0..log.len())
        .map(|t| {
            let mut z = [0.0; 3];
            for s in (0..=t).filter(|s| same(*s, t)) {
                let weight = (s..=t).map(rho).product::<f64>() * (GAMMA * lambda).powi((t - s) as i32);
                z.iter_mut().zip(log.state(s)).for_each(|(z, x)| *z += weight * x);
            }
            z
        })
        .collect()
}

/// `phi - gamma phi'`, without the second part where nothing follows.
fn psi(log: &Log, t: usize) -> [f64; 3] {
    let gamma = if log.done[t] { 0.0 } else { GAMMA };
    std::array::from_fn(|i| log.state(t)[i] - gamma * log.next_state(t)[i])
}

#[test]
fn means_are_sums_of_traces_over_transitions() {
    let close = |x: f64, y: f64| assert!((x - y).abs() <= 1e-12 * (1.0 + y.abs()), "{x} {y}");
    let whole: Vec<Log> = some().into_iter().map(|log| without_episodes(log, 17)).collect();
    let broken = [some(), whole.clone()].map(|logs| logs.into_iter().map(with_breaks).collect());
    for logs in [some(), without_ratios(some()), whole].into_iter().chain(broken) {
        for lambda in [0.0, 0.5, 1.0] {
            let field = of(&logs, &settings(lambda), Law::Mean).unwrap();
            for (c, log) in logs.iter().enumerate() {
                let (traces, n) = (traces(log, lambda), log.len() as f64);
                let system = field.systems().unwrap().of(c);
                let mean = |of: &dyn Fn(usize) -> f64| (0..log.len()).map(of).sum::<f64>() / n;
                (0..3).for_each(|i| close(system.b[i], mean(&|t| traces[t][i] * log.rewards[t])));
                let pairs = (0..3).flat_map(|i| (0..3).map(move |j| (i, j)));
                pairs.for_each(|(i, j)| close(system.a[(i, j)], mean(&|t| traces[t][i] * psi(log, t)[j])));
                close(field.weights()[c], n / 1117.0);
            }
            // The norm of value errors is that of the logged states, whatever weighs their transitions.
            let gram = field.facts().gram().unwrap();
            let squares: f64 = logs.iter().flat_map(|log| &log.states).map(|x| x * x).sum();
            close((0..3).map(|i| gram[(i, i)]).sum(), squares / 1117.0);
        }
    }
}

/// Samples of one agent, one after the other, at theta.
fn samples(field: &Arc<dyn Field>, c: usize, theta: &[f64], n: usize) -> Vec<Vec<f64>> {
    let mut lanes = Lanes::new(3, field.chain_len());
    (lanes.len, lanes.agents[0]) = (1, c);
    lanes.set_stream(0, stream(2, Purpose::Sample, 0, c));
    field.start_chain(c, &mut stream(2, Purpose::Chain, 0, c), &mut lanes.chains[..field.chain_len()]);
    lanes.theta_mut(0)[..3].copy_from_slice(theta);
    (0..n)
        .map(|_| {
            field.observe(std::slice::from_mut(&mut lanes), true);
            assert!(field.is_state(c, &lanes.chains[..field.chain_len()]));
            fedsa::kernel::flat(&lanes.observed)[..3].to_vec()
        })
        .collect()
}

#[test]
fn replay_gives_the_samples_of_the_traces_and_starts_anew_where_it_wraps() {
    let (logs, theta) = (some(), [0.3, -1.0, 2.0]);
    for lambda in [0.0, 0.8, 1.0] {
        let start = Sampling::default().with_kind(Law::Markov).with_start(ChainStart::State(0));
        let field = settings(lambda).field(&InMemory(logs.clone()), start, Isa::best()).unwrap();
        assert_eq!(field.chain_len(), if lambda > 0.0 { 4 } else { 1 });
        for (c, log) in logs.iter().enumerate() {
            let traces = traces(log, lambda);
            for (step, g) in samples(&field, c, &theta, 2 * log.len() + 5).iter().enumerate() {
                let t = step % log.len();
                let error = log.rewards[t] - psi(log, t).iter().zip(theta).map(|(psi, theta)| psi * theta).sum::<f64>();
                for i in 0..3 {
                    let expected = error * traces[t][i];
                    assert!((g[i] - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "agent {c}, step {step}: {} {expected}", g[i]);
                }
            }
        }
    }
}

#[test]
fn states_of_chains_are_checked() {
    let logs = some();
    let field = of(&logs, &settings(0.8), Law::Markov).unwrap();
    let state = |t: u64, z: [f64; 3]| field.is_state(0, &[t, z[0].to_bits(), z[1].to_bits(), z[2].to_bits()]);
    assert!(state(3, [1.0, -2.0, 0.5]) && state(0, [0.0; 3]));
    assert!(!state(40, [0.0; 3]), "beyond the log");
    assert!(!state(3, [1.0, f64::NAN, 0.5]));
    assert!(!state(0, [1.0, 0.0, 0.0]) && !state(13, [1.0, 0.0, 0.0]), "a trace that should have started anew");
}

#[test]
fn ratios_of_one_give_the_bits_of_no_ratios() {
    let mut ones = some();
    ones.iter_mut().for_each(|log| log.ratio = Some(vec![1.0; log.len()]));
    let plain = without_ratios(some());
    for law in [Law::Iid, Law::Markov] {
        let method = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
        let end = |logs: &[Log], settings: &Logs| {
            let field = of(logs, settings, law).unwrap();
            let mut run = run(&field, &*method, &crate::common::EXACT, 5);
            (0..20).for_each(|_| run.step());
            bits(run.theta())
        };
        assert_eq!(end(&ones, &settings(0.0)), end(&plain, &settings(0.0)));
        // Ratios that are left out are those of logs without them.
        let off = settings(0.0).with_ratios(false);
        assert_eq!(end(&some(), &off), end(&plain, &settings(0.0)));
    }
}

#[test]
fn the_moments_of_weighted_transitions_are_known() {
    let logs = some();
    let field = of(&logs, &settings(0.0), Law::Iid).unwrap();
    let moments = field.moments(0).unwrap();
    let log = &logs[0];
    let rho = log.ratio.as_ref().unwrap();
    let expected = (0..40).map(|t| (rho[t] * log.rewards[t] * log.state(t)[1]).powi(2)).sum::<f64>() / 40.0;
    assert!((moments.bb[(1, 1)] - expected).abs() < 1e-14, "{} {expected}", moments.bb[(1, 1)]);
    // Traces under replay have no law of a single transition.
    assert!(of(&logs, &settings(0.5), Law::Markov).unwrap().facts().law(0).is_none());
}

#[test]
fn lambda_out_of_range_and_traces_of_single_transitions_are_refused() {
    let refused = |lambda: f64, law: Law| of(&some(), &settings(lambda), law).err().expect("an error");
    for lambda in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        let e = refused(lambda, Law::Mean);
        assert!(e.key == "lambda" && e.help.starts_with("in [0, 1]"), "{e}");
    }
    let e = refused(0.5, Law::Iid);
    assert_eq!(e.to_string(), "lambda: 0.5 under iid sampling: single transitions that are drawn independently have no traces");
    // 700 transitions of one episode at a ratio of 10.
    let endless = |log: Log| Log { ratio: Some(vec![10.0; log.len()]), done: vec![false; log.len()], ..without_episodes(log, usize::MAX) };
    let logs: Vec<Log> = some().into_iter().map(endless).collect();
    let e = of(&logs, &settings(1.0), Law::Mean).err().expect("an error");
    assert!(e.what.contains("agent 1: traces at lambda = 1 overflow"), "{e}");
    // Rows none of which follows the one before.
    let shuffled: Vec<Log> = some().into_iter().map(|log| Log { episode: None, done: vec![false; log.len()], ..log }).collect();
    assert!(of(&shuffled, &settings(0.0), Law::Mean).is_ok());
    let e = of(&shuffled, &settings(0.5), Law::Mean).err().expect("an error");
    assert_eq!(e.to_string(), "lambda: 0.5, and no state of agent 0 is the next state of the row before");
}

#[test]
fn lstd_and_gmres_find_the_root_of_the_traces() {
    let logs = some();
    let field = of(&logs, &settings(0.8), Law::Mean).unwrap();
    for (kind, rounds) in [("lstd", 1), ("gmres", 4), ("fedhsa", 3000)] {
        let json = if kind == "fedhsa" { r#"{"step_size": 0.1, "local_steps": 5}"# } else { "{}" };
        let mut run = run(&field, &*method(kind, json), &crate::common::EXACT, 0);
        (0..rounds).for_each(|_| run.step());
        let away = crate::common::distance(run.theta(), field.root().unwrap());
        assert!(away < 1e-9, "{kind}: {away:e}");
    }
}

#[test]
fn nodes_and_restored_runs_give_the_engines_bits_with_traces() {
    let logs = some();
    let field = of(&logs, &settings(0.8), Law::Markov).unwrap();
    let generic = of(&logs, &settings(0.8), Law::Markov).unwrap().generic();
    for (kind, json) in [
        ("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#),
        ("scafflsa", r#"{"step_size": 0.05, "local_steps": 7}"#),
        ("fedhsa", r#"{"step_size": 0.05, "local_steps": 7, "participants": 3}"#),
        ("projected-td", r#"{"step_size": 0.05, "local_steps": 7, "radius": 0.5}"#),
        ("fedtd", r#"{"step_size": 0.05}"#),
    ] {
        let (method, link) = (method(kind, json), Uplink::default());
        let mut engine = run(&field, &*method, &link, 5);
        let mut twin = run(&generic, &*method, &link, 5);
        let mut halves = Halves::new(&field, &*method, &link, 5).unwrap();
        let mut saved = Vec::new();
        for round in 0..40 {
            if round == 17 {
                saved = engine.save().unwrap();
            }
            engine.step();
            twin.step();
            halves.round();
            assert_eq!(bits(engine.theta()), bits(halves.server.theta()), "{kind}, round {round}");
            assert_eq!(bits(engine.theta()), bits(twin.theta()), "{kind}, round {round}: the portable kernel");
        }
        let mut second = run(&field, &*method, &link, 5);
        second.restore(&saved).unwrap();
        (17..40).for_each(|_| second.step());
        assert_eq!(second.save(), engine.save(), "{kind}");
    }
}

/// Three agents, each with its own random walk of two features and a constant; episodes of 9 to 30 transitions that terminate
/// or are cut short.
fn walks() -> Vec<Log> {
    let walk = |c: usize| {
        let mut s = stream(11, Purpose::Fresh, 0, c);
        let (mut states, mut rewards, mut next) = (Vec::new(), Vec::new(), Vec::new());
        let (mut done, mut episodes, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
        for episode in 0..12 {
            let (mut x, mut v) = (s.normal(), s.normal());
            let length = 9 + (s.uniform() * 22.0) as usize;
            for t in 0..length {
                states.extend([1.0, x, v]);
                rewards.push(x - 0.3 * v * v + 0.2 * c as f64);
                (x, v) = (0.8 * x + 0.2 * v + 0.3 * s.normal(), 0.9 * v - 0.2 * x + 0.3 * s.normal());
                next.extend([1.0, x, v]);
                done.push(t + 1 == length && episode % 2 == 0);
                episodes.push(episode);
                ratio.push(0.6 + 0.8 * s.uniform());
            }
        }
        let columns = ["one", "x", "v"].map(String::from).to_vec();
        let name = format!("walk {c}");
        Log {
            name,
            columns,
            states,
            rewards,
            next,
            done,
            truncated: None,
            breaks: None,
            episode: Some(episodes),
            ratio: Some(ratio),
            actions: None,
        }
    };
    (0..3).map(walk).collect()
}

/// TD(lambda) under Markov replay ends at the solution of LSTD(lambda): a seed's end, at a random place of the log, has the
/// mean `theta* + c eta + O(eta^2)`, and the ends at two step sizes are extrapolated to 0.
#[test]
fn td_lambda_under_replay_is_within_three_standard_errors_of_lstd_lambda() {
    let logs = walks();
    let lambda = 0.8;
    let field = of(&logs, &settings(lambda), Law::Markov).unwrap();
    let (root, plain) = (field.root().unwrap(), of(&logs, &settings(0.0), Law::Markov).unwrap());
    let end = |eta: f64, seed: u64| {
        let method = method("fedlsa", &format!(r#"{{"step_size": {eta}, "local_steps": 1}}"#));
        // From 0, long enough for what is left of the start to vanish beside the spread of the seeds.
        let mut run = run_from(&field, &*method, seed, &[0.0; 3]);
        (0..400_000).for_each(|_| run.step());
        run.theta().to_vec()
    };
    let mut mean = [crate::common::Mean::default(); 3];
    for seed in 0..10 {
        let (coarse, fine) = (end(1e-3, seed), end(5e-4, seed));
        for i in 0..3 {
            mean[i].see(2.0 * fine[i] - coarse[i]);
        }
    }
    let off: Vec<f64> = (0..3).map(|i| mean[i].off(root[i])).collect();
    let errors: Vec<f64> = mean.iter().map(crate::common::Mean::error).collect();
    let elsewhere: Vec<f64> = (0..3).map(|i| mean[i].off(plain.root().unwrap()[i])).collect();
    println!("LSTD(0.8) {root:?}, standard errors {errors:?}: off by {off:?} of them; from LSTD(0) by {elsewhere:?}");
    assert!(off.iter().all(|z| z.abs() <= 3.0), "{off:?}");
    assert!(elsewhere.iter().any(|z| z.abs() > 6.0), "the test tells lambda = 0.8 from 0: {elsewhere:?}");
    assert!(linalg::distance_sq(root, plain.root().unwrap()).sqrt() > 0.01);
}

/// Clipped ratios are the ratios of other logs; the report says how many there are and what their mean loses.
#[test]
fn clipped_ratios_are_the_least_of_ratio_and_level() {
    let (logs, level) = (some(), 1.25);
    let by_hand: Vec<Log> = logs
        .iter()
        .map(|log| Log { ratio: log.ratio.as_ref().map(|all| all.iter().map(|rho| rho.min(level)).collect()), ..log.clone() })
        .collect();
    for (lambda, kind) in [(0.0, Law::Mean), (0.5, Law::Mean), (0.0, Law::Iid), (0.5, Law::Markov)] {
        let (clipped, other) =
            (of(&logs, &settings(lambda).with_max_importance_ratio(level), kind).unwrap(), of(&by_hand, &settings(lambda), kind).unwrap());
        let (clipped, other) = (clipped.systems().unwrap(), other.systems().unwrap());
        (0..logs.len()).for_each(|c| assert_eq!((&clipped.of(c).a, &clipped.of(c).b), (&other.of(c).a, &other.of(c).b)));
    }
    let survey = |settings: &Logs| settings.survey(&InMemory(logs.clone())).unwrap();
    let (plain, clipped) = (survey(&settings(0.0)), survey(&settings(0.0).with_max_importance_ratio(level)));
    for (c, (log, hand)) in logs.iter().zip(&by_hand).enumerate() {
        let mean = |log: &Log| log.ratio.as_ref().unwrap().iter().sum::<f64>() / log.len() as f64;
        let (before, after) = (&plain.facts[c], &clipped.facts[c]);
        let close = |x: Option<f64>, y: f64| assert!((x.unwrap() / y - 1.0).abs() < 1e-13, "{x:?} {y}");
        close(before.mean_ratio, mean(log));
        close(after.mean_ratio, mean(hand));
        close(after.effective_size, hand.effective_size().unwrap());
        let clipping = after.clipping.unwrap();
        close(Some(clipping.mean_before), mean(log));
        assert_eq!(clipping.clipped, log.ratio.as_ref().unwrap().iter().filter(|rho| **rho > level).count());
        assert!(clipping.clipped > 0 && before.clipping.is_none());
    }
    // Of held-out episodes too.
    let held = survey(&settings(0.0).with_max_importance_ratio(level).with_holdout(0.3)).held;
    assert!(held.iter().flat_map(|log| log.ratio.iter().flatten()).all(|rho| *rho <= level));
    for (logs, settings, key) in [
        (logs.clone(), settings(0.0).with_max_importance_ratio(0.0), "max_importance_ratio"),
        (logs.clone(), settings(0.0).with_max_importance_ratio(f64::NAN), "max_importance_ratio"),
        (logs.clone(), settings(0.0).with_max_importance_ratio(2.0).with_ratios(false), "max_importance_ratio"),
        (without_ratios(logs.clone()), settings(0.0).with_max_importance_ratio(2.0), "max_importance_ratio"),
    ] {
        assert_eq!(of(&logs, &settings, Law::Mean).map(|_| ()).unwrap_err().key, key);
    }
}
