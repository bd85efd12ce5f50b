//! Values of policies on logs of eight CartPoles with different physics, with default features: whether intervals cover the truth.

use fedsa::cancel::Cancel;
use fedsa::note::NoteCode;
use fedsa::random::{Purpose, Stream, stream};
use fedsa_evaluate::policy_value::{PolicyValue, ValueEstimate};
use fedsa_experiment::evaluate::{EvaluateSettings, Evaluated, Evaluation};
use fedsa_experiment::observer::Unobserved;
use fedsa_experiment::run::RunSettings;
use fedsa_problems::logs::log::Log;

const GAMMA: f64 = 0.95;
/// Gravity, mass of the cart, mass of the pole, half its length, force.
const PHYSICS: [[f64; 5]; 8] = [
    [9.8, 1.0, 0.1, 0.5, 10.0],
    [9.8, 1.0, 0.1, 1.0, 10.0],
    [5.0, 1.0, 0.1, 0.5, 10.0],
    [15.0, 1.0, 0.1, 0.5, 10.0],
    [9.8, 2.0, 0.1, 0.5, 10.0],
    [9.8, 1.0, 0.5, 0.5, 10.0],
    [9.8, 1.0, 0.1, 0.5, 6.0],
    [9.8, 1.0, 0.1, 0.5, 15.0],
];

/// The probability with which a policy takes the better action, and a random one otherwise; and the most steps of an episode.
#[derive(Clone, Copy)]
struct Case {
    skill: f64,
    most: usize,
    episodes: usize,
}

fn step([x, v, angle, w]: [f64; 4], right: bool, [gravity, cart, pole, length, force]: [f64; 5]) -> [f64; 4] {
    const TAU: f64 = 0.02;
    let push = if right { force } else { -force };
    let (sin, cos) = angle.sin_cos();
    let all = cart + pole;
    let turn = (push + pole * length * w * w * sin) / all;
    let bend = (gravity * sin - cos * turn) / (length * (4.0 / 3.0 - pole * cos * cos / all));
    let pull = turn - pole * length * bend * cos / all;
    [x + TAU * v, v + TAU * pull, angle + TAU * w, w + TAU * bend]
}

/// Plays an episode; calls `see` with state, next state and whether it has ended.
fn play(case: Case, physics: [f64; 5], draws: &mut Stream, see: &mut dyn FnMut([f64; 4], [f64; 4], bool)) {
    let mut state: [f64; 4] = std::array::from_fn(|_| 0.1 * draws.uniform() - 0.05);
    for _ in 0..case.most {
        let better = state[2] + 0.3 * state[3] > 0.0;
        let right = if draws.uniform() < case.skill { better } else { draws.uniform() < 0.5 };
        let next = step(state, right, physics);
        let ended = next[0].abs() > 2.4 || next[2].abs() > 12f64.to_radians();
        see(state, next, ended);
        if ended {
            return;
        }
        state = next;
    }
}

fn log(case: Case, agent: usize, seed: u64) -> Log {
    let mut log = Log {
        name: format!("robot_{agent}"),
        columns: ["s_x", "s_v", "s_angle", "s_w"].map(String::from).to_vec(),
        states: Vec::new(),
        rewards: Vec::new(),
        next: Vec::new(),
        done: Vec::new(),
        truncated: None,
        breaks: None,
        episode: None,
        ratio: None,
        actions: None,
    };
    let (mut draws, mut truncated, mut number) = (stream(seed, Purpose::Fresh, 2, agent), Vec::new(), Vec::new());
    for episode in 0..case.episodes {
        play(case, PHYSICS[agent], &mut draws, &mut |state, next, ended| {
            log.states.extend(state);
            log.next.extend(next);
            log.rewards.push(1.0);
            log.done.push(ended);
            truncated.push(false);
            number.push(episode as i64);
        });
        *truncated.last_mut().unwrap() = !log.done.last().unwrap();
    }
    (log.truncated, log.episode) = (Some(truncated), Some(number));
    log
}

/// The value of an agent's start states, from episodes of their own.
fn truth(case: Case, agent: usize, episodes: usize) -> f64 {
    let long = Case { most: 240, ..case };
    let mut draws = stream(1, Purpose::Fresh, 3, agent);
    let of = |_| {
        let (mut value, mut weight) = (0.0, 1.0);
        play(long, PHYSICS[agent], &mut draws, &mut |_, _, _| {
            value += weight;
            weight *= GAMMA;
        });
        value
    };
    (0..episodes).map(of).sum::<f64>() / episodes as f64
}

fn settings() -> EvaluateSettings {
    EvaluateSettings { gamma: GAMMA, ..EvaluateSettings::default() }
}

fn value(settings: &EvaluateSettings, logs: Vec<Log>) -> PolicyValue {
    let evaluation = Evaluation::of_logs(settings, logs, &Cancel::new()).unwrap();
    evaluation.policy_value().unwrap().unwrap()
}

fn evaluated(settings: &EvaluateSettings, logs: Vec<Log>) -> Evaluated {
    let (observer, cancel) = (Unobserved, Cancel::new());
    let evaluation = Evaluation::of_logs(settings, logs, &cancel).unwrap();
    evaluation.run(RunSettings::default(), &observer, &cancel).unwrap().results(&observer, &cancel).unwrap()
}

/// One CartPole, 60 short episodes, default features: without a ridge the value is not even possible.
#[test]
fn values_of_a_cart_pole_are_possible_by_default() {
    let case = Case { skill: 0.0, most: 16, episodes: 60 };
    let truth = truth(case, 0, 20_000);
    let all = |e: &PolicyValue| [e.fitted.table.all, e.importance.table.all];
    let (mut before, mut now, mut covered) = (0.0f64, 0.0f64, 0);
    for seed in 0..8 {
        let logs = || vec![log(case, 0, seed)];
        for e in all(&value(&settings(), logs())) {
            assert!((0.0..=20.0).contains(&e.estimate), "{seed}: {e:?}");
            covered += usize::from(e.low <= truth && truth <= e.high);
            now = now.max(e.se);
        }
        before = all(&value(&EvaluateSettings { ridge: Some(0.0), ..settings() }, logs())).iter().fold(before, |most, e| most.max(e.se));
    }
    // The two estimates of a log are nearly the same: 10 of 16 are four standard errors of eight logs below .95.
    assert!(covered > 10, "{covered} of 16");
    // No return exceeds 20.
    assert!(now < 20.0 && before > 20.0, "{before} {now}");
}

#[test]
fn impossible_values_are_noted() {
    let case = Case { skill: 0.0, most: 16, episodes: 60 };
    let notes = |ridge: Option<f64>, seed| {
        let evaluated = evaluated(&EvaluateSettings { ridge, ..settings() }, vec![log(case, 0, seed)]);
        evaluated.ran.notes().iter().map(|note| note.code).collect::<Vec<_>>()
    };
    let without: Vec<_> = (0..8).flat_map(|seed| notes(Some(0.0), seed)).collect();
    assert!(without.contains(&NoteCode::ValueErrorLarge) && without.contains(&NoteCode::ValueImpossible), "{without:?}");
    let long = evaluated(&settings(), vec![log(Case { skill: 0.0, most: 500, episodes: 60 }, 0, 1)]);
    assert!(!long.ran.notes().iter().any(|note| note.code == NoteCode::ValueErrorLarge), "{:?}", long.ran.notes());
}

/// The ridge by default is a number in the resolved settings, and does not depend on who asks.
#[test]
fn the_default_ridge_is_written_into_the_settings() {
    let case = Case { skill: 0.0, most: 40, episodes: 20 };
    let found = evaluated(&settings(), vec![log(case, 0, 1)]);
    let ridge = found.data.settings.ridge;
    assert!(ridge > 0.0 && ridge < 1e-2, "{ridge}");
    assert!(found.ran.config().contains(&format!("ridge = {ridge}")), "{}", found.ran.config());
    let again = evaluated(&EvaluateSettings { ridge: Some(ridge), ..settings() }, vec![log(case, 0, 1)]);
    assert_eq!(again.theta(), found.theta());
    assert_eq!(evaluated(&EvaluateSettings { ridge: Some(0.0), ..settings() }, vec![log(case, 0, 1)]).data.settings.ridge, 0.0);
}

/// How often intervals cover: of all agents by fitted values and by returns, of single agents by both, and of single agents under shared
/// weights.
fn coverage(case: Case, repetitions: u64) -> [(usize, usize); 5] {
    let truths: Vec<f64> = (0..8).map(|agent| truth(case, agent, 20_000)).collect();
    let mean = truths.iter().sum::<f64>() / 8.0;
    let covers = |e: &ValueEstimate, truth: f64| e.low <= truth && truth <= e.high;
    let of = |agents: &[(String, ValueEstimate)]| {
        let agent = |name: &str| name.trim_start_matches("robot_").parse::<usize>().unwrap();
        (agents.iter().filter(|(name, e)| covers(e, truths[agent(name)])).count(), agents.len())
    };
    let found = fedsa::parallel::map(repetitions as usize, |seed| {
        let found = value(&settings(), (0..8).map(|agent| log(case, agent, seed as u64)).collect());
        let (fitted, returns) = (&found.fitted.table, &found.importance.table);
        let all = |e: &ValueEstimate| (usize::from(covers(e, mean)), 1);
        [all(&fitted.all), all(&returns.all), of(&fitted.own), of(&returns.own), of(&fitted.shared)]
    });
    let mut sums = [(0, 0); 5];
    found.iter().for_each(|one| sums.iter_mut().zip(one).for_each(|(sum, one)| *sum = (sum.0 + one.0, sum.1 + one.1)));
    sums
}

const CASES: [(&str, Case); 4] = [
    ("random policy, whole episodes", Case { skill: 0.0, most: 240, episodes: 24 }),
    ("random policy, cut after 20 steps", Case { skill: 0.0, most: 20, episodes: 24 }),
    ("a policy of middling skill, cut after 40 steps", Case { skill: 0.4, most: 40, episodes: 24 }),
    ("a policy of middling skill, cut after 100 steps", Case { skill: 0.4, most: 100, episodes: 24 }),
];

/// The least coverage of 95% intervals by fitted values and by returns. What the features cannot represent is not in the intervals of fitted
/// values, and with whole episodes it lowers coverage to .89 in 200 repetitions.
const LEAST: [f64; 2] = [0.85, 0.93];

fn share((covered, count): (usize, usize)) -> f64 {
    covered as f64 / count as f64
}

/// Intervals of all agents and of each cover in a few repetitions, within four standard errors of what they do in many.
#[test]
fn intervals_of_eight_cart_poles_cover() {
    let repetitions = 12;
    for (name, case) in [CASES[0], CASES[1]] {
        let found = coverage(case, repetitions);
        for (k, one) in found.iter().take(4).enumerate() {
            let error = (0.95 * 0.05 / one.1 as f64).sqrt();
            assert!(share(*one) > LEAST[k % 2] - 4.0 * error, "{name} {k}: {found:?}");
        }
        // These are no intervals of single agents.
        assert!(share(found[4]) < 0.85, "{name}: {found:?}");
    }
}

/// The numbers of the book (evidence, values of policies), within four standard errors. Fitted values of all agents have the error of the
/// features, which is not in their intervals: much of it is seen in the last case.
#[test]
#[ignore = "200 repetitions"]
fn intervals_of_eight_cart_poles_cover_in_200_repetitions() {
    let book = [[0.915, 0.975, 0.890, 0.948], [0.970, 0.985, 0.949, 0.957], [0.985, 0.930, 0.948, 0.933], [0.460, 0.965, 0.912, 0.892]];
    for ((name, case), book) in CASES.into_iter().zip(book) {
        let found = coverage(case, 200);
        println!("{name}: {:?}", found.map(share));
        for ((k, one), book) in found.iter().take(4).enumerate().zip(book) {
            let error = (book * (1.0 - book) / one.1 as f64).sqrt();
            assert!((share(*one) - book).abs() < 4.0 * error + 1e-3, "{name} {k}: {found:?}");
        }
    }
}
