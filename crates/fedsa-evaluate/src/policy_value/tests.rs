//! Compares values of policies with independent computations: a slow twin written from the definitions, and the truth of a chain.

use fedsa::random::{Purpose, Stream, stream};
use fedsa_problems::features::{FeatureMap, FeatureSpec, Ranges};
use fedsa_problems::logs::log::{Break, Log, LoggedActions};
use fedsa_problems::logs::source::in_memory;

use super::folds::FoldDraw;
use super::twin::{self, TwinEpisode, TwinRow};
use super::*;

pub(super) const GAMMA: f64 = 0.9;
pub(super) const STATES: usize = 6;
/// The probability that an episode ends with a transition.
const ENDS: f64 = 0.1;

/// A chain of six states and two actions. `p[a][s]` is the law of the next state, `r[a][s]` the mean reward.
pub(super) struct Chain {
    p: [[[f64; STATES]; STATES]; 2],
    r: [[f64; STATES]; 2],
    /// The probability of the second action under the behaviour policy and the evaluated policy.
    acts: [f64; STATES],
    evaluated: [f64; STATES],
    start: [f64; STATES],
    /// The features of each state: a constant, the true value, and one more.
    pub phi: [[f64; 3]; STATES],
}

impl Chain {
    /// With ratios from 0.6 to 1.7, whose products have a variance, or with the evaluated policy as behaviour policy.
    pub fn new(is_off_policy: bool) -> Self {
        let mut s = stream(5, Purpose::Fresh, 0, 0);
        let law = |s: &mut Stream| {
            let weights: [f64; STATES] = std::array::from_fn(|_| s.uniform().powi(2));
            let sum: f64 = weights.iter().sum();
            weights.map(|w| w / sum)
        };
        let p = std::array::from_fn(|_| std::array::from_fn(|_| law(&mut s)));
        let r = std::array::from_fn(|_| std::array::from_fn(|_| s.normal()));
        let acts: [f64; STATES] = std::array::from_fn(|_| 0.5 + 0.1 * s.uniform());
        let evaluated = if is_off_policy { std::array::from_fn(|_| 0.35 + 0.4 * s.uniform()) } else { acts };
        let mut chain = Self { p, r, acts, evaluated, start: law(&mut s), phi: [[1.0; 3]; STATES] };
        let v = chain.values();
        chain.phi = std::array::from_fn(|i| [1.0, v[i], s.normal()]);
        chain
    }

    /// The values of the evaluated policy, by iteration.
    fn values(&self) -> [f64; STATES] {
        let mut v = [0.0; STATES];
        for _ in 0..2000 {
            let q = |a: usize, s: usize| self.r[a][s] + GAMMA * (1.0 - ENDS) * dot(&self.p[a][s], &v);
            v = std::array::from_fn(|s| (1.0 - self.evaluated[s]) * q(0, s) + self.evaluated[s] * q(1, s));
        }
        v
    }

    /// The same chain whose evaluated policy is the one that acts.
    pub fn acting(&self) -> Self {
        Self { evaluated: self.acts, ..*self }
    }

    /// The probability of the second action in each state under the evaluated policy, and under the one that acts.
    pub fn laws(&self) -> [[f64; STATES]; 2] {
        [self.evaluated, self.acts]
    }

    pub fn truth(&self) -> f64 {
        dot(&self.start, &self.values())
    }

    /// A log of `episodes`, at most `most` transitions each.
    pub fn log(&self, episodes: usize, most: usize, s: &mut Stream) -> Log {
        let mut log = empty(3);
        log.ratio = (self.acts != self.evaluated).then(Vec::new);
        for episode in 0..episodes {
            let mut state = drawn(&self.start, s);
            for step in 0..most {
                let a = usize::from(s.uniform() < self.acts[state]);
                let following = drawn(&self.p[a][state], s);
                let ends = s.uniform() < ENDS;
                log.states.extend(self.phi[state]);
                log.next.extend(self.phi[following]);
                log.rewards.push(self.r[a][state] + 0.5 * s.normal());
                log.done.push(ends);
                log.truncated.as_mut().unwrap().push(!ends && step + 1 == most);
                log.episode.as_mut().unwrap().push(episode as i64);
                let of = |law: &[f64; STATES]| if a == 1 { law[state] } else { 1.0 - law[state] };
                log.ratio.iter_mut().for_each(|ratio| ratio.push(of(&self.evaluated) / of(&self.acts)));
                let law = |state: usize| [1.0 - self.evaluated[state], self.evaluated[state]];
                let actions = log.actions.as_mut().unwrap();
                actions.taken.push(a as u32);
                actions.here.extend(law(state));
                actions.next.extend(law(following));
                state = following;
                if ends {
                    break;
                }
            }
        }
        log
    }
}

fn drawn(law: &[f64; STATES], s: &mut Stream) -> usize {
    let mut u = s.uniform();
    law.iter()
        .position(|p| {
            u -= p;
            u < 0.0
        })
        .unwrap_or(STATES - 1)
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn empty(d: usize) -> Log {
    Log {
        name: "agent".into(),
        columns: (0..d).map(|j| format!("s_{j}")).collect(),
        states: Vec::new(),
        rewards: Vec::new(),
        next: Vec::new(),
        done: Vec::new(),
        truncated: Some(Vec::new()),
        breaks: None,
        actions: Some(LoggedActions::none(2)),
        episode: Some(Vec::new()),
        ratio: None,
    }
}

pub(super) fn named(logs: Vec<Log>) -> Surveyed {
    let logs = logs.into_iter().enumerate().map(|(c, log)| Log { name: format!("agent_{c}"), ..log }).collect();
    Surveyed::new(in_memory(logs), 0.0, 0).unwrap()
}

fn identity(log: &Log) -> FeatureMap {
    FeatureMap::new(&FeatureSpec::Identity { bias: false }, &log.columns, &Ranges::new()).unwrap()
}

pub(super) fn rule(lambda: f64) -> TraceRule {
    TraceRule { gamma: GAMMA, lambda, ratios: true, clip: None }
}

pub(super) fn value_of(logs: &[Log], lambda: f64, settings: &PolicyValueSettings) -> PolicyValue {
    let map = identity(&logs[0]);
    PolicyValue::of(&named(logs.to_vec()), &map, rule(lambda), settings).unwrap().unwrap()
}

pub(super) fn close(a: f64, b: f64, what: &str) {
    assert!((a - b).abs() <= 1e-9 * (1.0 + b.abs()) || a.is_nan() && b.is_nan(), "{what}: {a} is not {b}");
}

/// The episodes of logs whose rows have the number `episode`, with a gap before each row in `gaps`.
pub(super) fn units(logs: &[Log], seed: u64) -> Vec<TwinEpisode> {
    let mut all: Vec<TwinEpisode> = Vec::new();
    for (agent, log) in logs.iter().enumerate() {
        let mut draw = FoldDraw::new(seed, agent);
        for i in 0..log.len() {
            let number = log.episode.as_ref().unwrap();
            let gap = log.breaks.as_ref().is_some_and(|breaks| breaks[i] == Break::LeftOut);
            let zero = vec![0.0; log.columns.len()];
            let next = if log.done[i] { zero } else { log.next_state(i).to_vec() };
            let ratio = log.ratio.as_ref().map_or(1.0, |ratio| ratio[i]);
            let row = TwinRow { phi: log.state(i).to_vec(), next, reward: log.rewards[i], ratio };
            if i == 0 || number[i] != number[i - 1] {
                all.push(TwinEpisode { agent, fold: draw.next(), parts: vec![vec![row]], has_start: !gap, ends: false });
            } else if gap {
                all.last_mut().unwrap().parts.push(vec![row]);
            } else {
                all.last_mut().unwrap().parts.last_mut().unwrap().push(row);
            }
            let unit = all.last_mut().unwrap();
            if unit.parts.len() == 1 {
                unit.ends = log.done[i];
            }
        }
    }
    all
}

/// Three agents with truncated episodes; one agent has few.
pub(super) fn three(chain: &Chain) -> Vec<Log> {
    [(25, 12, 1), (9, 30, 2), (22, 1, 3)]
        .map(|(episodes, most, seed)| chain.log(episodes, most, &mut stream(seed, Purpose::Fresh, 0, 0)))
        .into()
}

fn sum_of_squares(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

/// Section 1 by influence, for all, by agent, and with own weights; logs with gaps within an episode.
#[test]
fn fitted_values_are_those_of_the_slow_twin() {
    for (off, lambda, ridge) in [(false, 0.0, 0.0), (true, 0.0, 0.0), (true, 0.6, 0.0), (false, 0.8, 0.05), (true, 0.0, 0.1)] {
        let mut logs = three(&Chain::new(off));
        let gap = logs[0].episode.as_ref().unwrap().windows(2).position(|pair| pair[0] == pair[1]).unwrap() + 1;
        let mut breaks = vec![Break::None; logs[0].len()];
        (breaks[gap], breaks[0]) = (Break::LeftOut, Break::LeftOut);
        logs[0].breaks = Some(breaks);
        let settings = PolicyValueSettings { ridge, ..PolicyValueSettings::default() };
        let found = value_of(&logs, lambda, &settings).fitted;
        let all = units(&logs, 0);
        let every: Vec<&TwinEpisode> = all.iter().collect();
        let fit = twin::TwinFit { lambda, ridge };
        assert_eq!(found.interval, IntervalKind::Jackknife);
        // The first episode of the first agent has lost its start, and is omitted as a whole.
        assert_eq!((found.table.all.episodes, all.len()), (55, 56));
        let value = fit.value(&every, |_| true);
        close(found.table.all.estimate, value, "the value");
        let n = 55.0;
        let left_out = |i: usize| every.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, unit)| *unit).collect::<Vec<_>>();
        let h: Vec<f64> = (0..every.len())
            .map(|i| {
                let change = value - fit.value(&left_out(i), |_| true);
                if every[i].has_start { (n - 1.0) / n * change } else { change }
            })
            .collect();
        let shrinkage = fit.by_ridge(|fit| fit.value(&every, |_| true));
        close(found.table.all.se, (n / (n - 1.0) * sum_of_squares(&h)).sqrt().hypot(shrinkage), "the jackknife");
        close(found.table.all.high, value + t_quantile(0.95, n - 1.0) * found.table.all.se, "the interval");
        for (c, (name, estimate)) in found.table.shared.iter().enumerate() {
            assert_eq!(*name, format!("agent_{c}"));
            let is_own = |unit: &TwinEpisode| unit.agent == c;
            let value = fit.value(&every, is_own);
            close(estimate.estimate, value, "an agent's value");
            let own = every.iter().filter(|unit| unit.has_start && is_own(unit)).count() as f64;
            let square = |i: usize| {
                let change = value - fit.value(&left_out(i), is_own);
                match (is_own(every[i]), every[i].has_start) {
                    (true, true) => (own - 1.0) / own * change * change,
                    (true, false) => own / (own - 1.0) * change * change,
                    (false, _) => n / (n - 1.0) * change * change,
                }
            };
            let error = (0..every.len()).map(square).sum::<f64>().sqrt();
            close(estimate.se, error.hypot(fit.by_ridge(|fit| fit.value(&every, is_own))), "an agent's error");
        }
        let with_own: Vec<&str> = found.table.own.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(with_own, ["agent_0", "agent_2"], "where there are 20 episodes");
        if lambda == 0.0 {
            let own: Vec<&TwinEpisode> = every.iter().filter(|unit| unit.agent == 0).copied().collect();
            close(found.table.own[0].1.estimate, fit.value(&own, |_| true), "the own value");
        }
    }
}

/// Episodes whose start states no other episode visits, in pairs that share the next state. The value of the start states is the mean
/// return, and its error is the error of a mean.
#[test]
fn an_episode_that_alone_visits_a_state_counts_in_full() {
    let n = 24;
    let d = n + n / 2;
    let mut s = stream(3, Purpose::Fresh, 0, 0);
    let mut log = Log { actions: None, ..empty(d) };
    let one_hot = |state: usize| (0..d).map(move |j| f64::from(u8::from(j == state)));
    let mut returns = Vec::new();
    for episode in 0..n {
        let (first, then) = (s.normal(), s.normal());
        for (state, following, reward, ends) in [(episode, n + episode / 2, first, false), (n + episode / 2, 0, then, true)] {
            log.states.extend(one_hot(state));
            log.next.extend(one_hot(following));
            log.rewards.push(reward);
            log.done.push(ends);
            log.truncated.as_mut().unwrap().push(false);
            log.episode.as_mut().unwrap().push(episode as i64);
        }
        returns.push(first + GAMMA * then);
    }
    let count = n as f64;
    let mean = returns.iter().sum::<f64>() / count;
    let deviations: Vec<f64> = returns.iter().map(|x| x - mean).collect();
    let found = value_of(&[log], 0.0, &PolicyValueSettings::default()).fitted;
    assert_eq!(found.interval, IntervalKind::Jackknife);
    close(found.table.all.estimate, mean, "the value");
    close(found.table.all.se, (sum_of_squares(&deviations) / (count - 1.0) / count).sqrt(), "the error");
}

/// Many episodes use the influence function.
#[test]
fn influences_are_those_of_the_slow_twin() {
    for (off, lambda, ridge) in [(false, 0.0, 0.0), (true, 0.5, 0.02)] {
        let chain = Chain::new(off);
        let logs: Vec<Log> = [(300, 1), (150, 2)].map(|(n, seed)| chain.log(n, 8, &mut stream(seed, Purpose::Fresh, 0, 0))).into();
        let found = value_of(&logs, lambda, &PolicyValueSettings { ridge, ..PolicyValueSettings::default() }).fitted;
        assert_eq!(found.interval, IntervalKind::Influence);
        let (all, fit) = (units(&logs, 0), twin::TwinFit { lambda, ridge });
        let every: Vec<&TwinEpisode> = all.iter().collect();
        let h = fit.influences(&every, |_| true);
        close(h.iter().sum(), 0.0, "influences sum to nothing");
        let shrinkage = fit.by_ridge(|fit| fit.value(&every, |_| true));
        close(found.table.all.se, (450.0 / 449.0 * sum_of_squares(&h)).sqrt().hypot(shrinkage), "the error");
        let h = fit.influences(&every, |unit| unit.agent == 1);
        let (others, own) = h.split_at(300);
        let square = 150.0 / 149.0 * sum_of_squares(own) + 450.0 / 449.0 * sum_of_squares(others);
        close(
            found.table.shared[1].1.se,
            square.sqrt().hypot(fit.by_ridge(|fit| fit.value(&every, |unit| unit.agent == 1))),
            "the error of an agent",
        );
        let ratio = |unit: &TwinEpisode| unit.parts[0].iter().map(|row| row.ratio).sum::<f64>() / unit.parts[0].len() as f64;
        let ratios: Vec<f64> = every.iter().map(|unit| ratio(unit)).collect();
        close(found.table.all.effective_episodes, ratios.iter().sum::<f64>().powi(2) / sum_of_squares(&ratios), "the effective number");
    }
}

/// Section 2, for all and by agent.
#[test]
fn weighted_returns_are_those_of_the_slow_twin() {
    for (off, lambda, ridge) in [(false, 0.0, 0.0), (true, 0.0, 0.0), (true, 0.4, 0.0), (true, 0.0, 0.05)] {
        let logs = three(&Chain::new(off));
        let found = value_of(&logs, lambda, &PolicyValueSettings { seed: 7, ridge, ..PolicyValueSettings::default() });
        assert_eq!(found.has_ratios, off);
        let (found, all, fit) = (found.importance, units(&logs, 7), twin::TwinFit { lambda, ridge });
        let of_fold = |k: usize| fit.theta(&all.iter().filter(|unit| unit.fold != k).collect::<Vec<_>>());
        let thetas: Vec<Vec<f64>> = (0..FOLDS).map(of_fold).collect();
        let of = |units: &[&TwinEpisode]| -> Vec<(f64, f64, Vec<f64>)> {
            units.iter().map(|unit| twin::weighted(unit, &thetas[unit.fold])).collect()
        };
        let every: Vec<&TwinEpisode> = all.iter().collect();
        let all_values: Vec<f64> = of(&every).iter().map(|v| v.0).collect();
        let rho = |i: usize| every[i].parts[0].iter().map(|row| row.ratio).product::<f64>();
        let of_agent = |agent: Option<usize>| move |unit: &TwinEpisode| agent.is_none_or(|c| unit.agent == c);
        let parts = |agent: Option<usize>| twin::by_weights(&fit, &every, of_agent(agent), rho);
        let shrinkage = |agent| twin::ends_by_ridge(&fit, &every, of_agent(agent), rho);
        let check = |estimate: &ValueEstimate, agent: Option<usize>, units: &[&TwinEpisode]| {
            let (values, n) = (of(units), units.len() as f64);
            let mean = values.iter().map(|v| v.0).sum::<f64>() / n;
            close(estimate.estimate, mean, "the mean");
            let se = twin::error(&every, of_agent(agent), &all_values, &parts(agent));
            close(estimate.se, se.hypot(shrinkage(agent)), "its error");
            close(estimate.low, mean - t_quantile(0.95, n - 1.0) * estimate.se, "its interval");
            // Sizes at each step, up to the step by which half of the discounted steps have been made.
            let longest = values.iter().map(|v| v.2.len()).max().unwrap();
            let steps = |t: usize| GAMMA.powi(t as i32) * values.iter().filter(|v| v.2.len() > t).count() as f64;
            let half = 0.5 * (0..longest).map(steps).sum::<f64>();
            let last = (0..longest).find(|t| (0..=*t).map(steps).sum::<f64>() >= half).unwrap();
            let size = |t: usize| {
                let w: Vec<f64> = values.iter().map(|v| v.2[t.min(v.2.len() - 1)]).collect();
                w.iter().sum::<f64>().powi(2) / sum_of_squares(&w)
            };
            close(estimate.effective_episodes, (0..=last).map(size).fold(f64::INFINITY, f64::min), "the effective number");
        };
        check(&found.table.all, None, &every);
        assert_eq!(found.self_normalised.is_some(), off);
        let sets = std::iter::once(every.clone())
            .chain((0..3).map(|c| every.iter().filter(|unit| unit.agent == c).copied().collect::<Vec<&TwinEpisode>>()));
        let tables = found.self_normalised.iter();
        let estimates = tables.flat_map(|table| std::iter::once(&table.all).chain(table.shared.iter().map(|(_, own)| own)));
        for ((estimate, set), agent) in estimates.zip(sets).zip([None, Some(0), Some(1), Some(2)]) {
            let (value, slopes) = twin::self_normalised(&set, &thetas);
            close(estimate.estimate, value, "self-normalised");
            // Slopes as values whose mean is 0.
            let mut slopes = slopes.into_iter().map(|slope| slope * set.len() as f64);
            let is_own = of_agent(agent);
            let values: Vec<f64> = every.iter().map(|unit| if is_own(unit) { slopes.next().unwrap() } else { 0.0 }).collect();
            close(estimate.se, twin::error(&every, is_own, &values, &parts(agent)).hypot(shrinkage(agent)), "its error");
        }
        for (c, (_, estimate)) in found.table.shared.iter().enumerate() {
            check(estimate, Some(c), &every.iter().filter(|unit| unit.agent == c).copied().collect::<Vec<_>>());
        }
        let n = every.len() as f64;
        close(found.bootstrapped, of(&every).iter().map(|v| v.1).sum::<f64>() / n, "what is bootstrapped");
        assert_eq!(found.cut, all.iter().filter(|unit| !unit.ends).count());
        let plain = every.iter().map(|unit| twin::weighted(unit, &[0.0; 3]).0);
        close(found.plain, plain.sum::<f64>() / n, "without control variate");
    }
}

/// A duplicate feature makes systems singular, and changes no value and no error.
#[test]
fn dependent_features_change_nothing() {
    for episodes in [1, 20] {
        let chain = Chain::new(true);
        let logs: Vec<Log> =
            [(25 * episodes, 1), (30, 2)].map(|(n, seed)| chain.log(n, 20, &mut stream(seed, Purpose::Fresh, 0, 0))).into();
        let twice = |states: &[f64]| states.chunks_exact(3).flat_map(|s| [s[0], s[1], s[2], s[1]]).collect();
        let wide = |log: &Log| Log { columns: empty(4).columns, states: twice(&log.states), next: twice(&log.next), ..log.clone() };
        let doubled: Vec<Log> = logs.iter().map(wide).collect();
        let [a, b] = [&logs, &doubled].map(|logs| value_of(logs, 0.2, &PolicyValueSettings::default()));
        let near = |a: &ValueEstimate, b: &ValueEstimate, accuracy: f64| {
            assert!((a.estimate - b.estimate).abs() < accuracy && (a.se / b.se - 1.0).abs() < accuracy, "{a:?} {b:?}");
        };
        near(&a.fitted.table.all, &b.fitted.table.all, 1e-8);
        near(&a.fitted.table.shared[1].1, &b.fitted.table.shared[1].1, 1e-8);
        // Then the weights of folds have a small ridge.
        near(&a.importance.table.all, &b.importance.table.all, 1e-4);
    }
}

/// Episodes are dealt to folds evenly, by the seed.
#[test]
fn folds_are_even() {
    let folds = |seed: u64, agent: usize, n: usize| {
        let mut draw = FoldDraw::new(seed, agent);
        (0..n).map(|_| draw.next()).collect::<Vec<usize>>()
    };
    let drawn = folds(1, 2, 52);
    for k in 0..FOLDS {
        assert!((10..=11).contains(&drawn.iter().filter(|fold| **fold == k).count()));
    }
    assert_eq!(drawn, folds(1, 2, 52));
    assert_ne!(drawn, folds(2, 2, 52));
    assert_ne!(drawn, folds(1, 3, 52));
    // Agents with one episode each are in all folds.
    let firsts: std::collections::BTreeSet<usize> = (0..40).map(|agent| folds(0, agent, 1)[0]).collect();
    assert_eq!(firsts.len(), FOLDS);
}

#[test]
fn results_do_not_depend_on_threads() {
    let logs = three(&Chain::new(true));
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| value_of(&logs, 0.3, &PolicyValueSettings::default()))
    };
    let one = on(1);
    assert!(on(2) == one && on(5) == one);
}

/// A single episode, no start, invalid levels, and a single state.
#[test]
fn little_data_gives_no_interval_and_no_panic() {
    let chain = Chain::new(true);
    let one = chain.log(1, 5, &mut stream(1, Purpose::Fresh, 0, 0));
    let found = value_of(std::slice::from_ref(&one), 0.0, &PolicyValueSettings::default());
    assert!(found.fitted.table.all.se.is_nan() && found.importance.table.all.se.is_nan());
    assert!(found.importance.table.all.estimate.is_finite());
    let mut breaks = vec![Break::None; one.len()];
    breaks[0] = Break::LeftOut;
    let lost = named(vec![Log { breaks: Some(breaks), ..one.clone() }]);
    assert_eq!(PolicyValue::of(&lost, &identity(&one), rule(0.0), &PolicyValueSettings::default()).unwrap(), None);
    for level in [0.0, 1.0, f64::NAN, -0.5] {
        let settings = PolicyValueSettings::default().with_level(level);
        let e = PolicyValue::of(&named(vec![one.clone()]), &identity(&one), rule(0.0), &settings).unwrap_err();
        assert_eq!(e.key, "level");
    }
    let mut zero = chain.log(30, 5, &mut stream(1, Purpose::Fresh, 0, 0));
    zero.states.fill(0.0);
    zero.next.fill(0.0);
    let found = value_of(&[zero], 0.0, &PolicyValueSettings::default());
    assert_eq!((found.fitted.table.all.estimate, found.fitted.table.all.se), (0.0, 0.0));
}
