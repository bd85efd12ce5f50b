//! Samples whose law depends on the iterate: they are drawn at the agent's own iterate, and chains go on along it.
//!
//! Agents have two states. A state is drawn anew with probability `r_c`, and is then 1 with probability `q_c(theta) = a_c + e_c . theta`,
//! which is the stationary law that theta induces. A sample is `g_c(theta, s) = m_c + b_c s - theta`, so that
//! `gbar_c(theta) = m_c + b_c q_c(theta) - theta`. Iterates of FedLSA with step sizes of at most 1 are convex combinations of `m_c` and
//! `m_c + b_c`, between which all `q_c` are probabilities. Expectations of states and iterates follow a linear recursion, which is exact.

use std::sync::Arc;

use crate::common::{EXACT, Halves, bits, distance, engine, link, method, methods, run};
use fedsa::kernel::Isa;
use fedsa::problem::{Field, Problem, Sampled, equal_weights};
use fedsa::random::{Purpose, Stream, stream};
use fedsa::record::OutputRule;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;

const D: usize = 2;

/// One agent.
#[derive(Clone, Copy)]
struct Of {
    m: [f64; D],
    b: [f64; D],
    a: f64,
    e: [f64; D],
    r: f64,
}

/// Even agents and odd ones.
const KINDS: [Of; 2] = [
    Of { m: [-0.5, 0.5], b: [2.0, -1.0], a: 0.45, e: [0.15, -0.1], r: 0.3 },
    Of { m: [0.7, -1.0], b: [-1.0, 3.0], a: 0.55, e: [-0.05, 0.2], r: 0.6 },
];

impl Of {
    /// `q_c(theta)`.
    fn share(&self, theta: &[f64]) -> f64 {
        self.a + self.e[0] * theta[0] + self.e[1] * theta[1]
    }

    /// The next state of a chain in state `s`, or a state drawn from the stationary law at theta.
    fn next(&self, s: Option<u64>, theta: &[f64], u: f64) -> u64 {
        let q = self.share(theta);
        match s {
            None => u64::from(u < q),
            Some(_) if u < self.r => u64::from(u < self.r * q),
            Some(s) => s,
        }
    }

    /// `g_c(theta, s)`.
    fn operator(&self, s: f64, theta: &[f64]) -> [f64; D] {
        std::array::from_fn(|i| self.m[i] + self.b[i] * s - theta[i])
    }
}

/// The problem.
struct TwoStates {
    weights: Vec<f64>,
    has_chain: bool,
    /// Whether states are drawn by the law that theta = 0 induces, whatever theta is.
    is_fixed: bool,
}

impl Problem for TwoStates {
    type Obs = u64;
    fn dim(&self) -> usize {
        D
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(self.has_chain)
    }
    fn start_chain(&self, c: usize, stream: &mut Stream, chain: &mut [u64]) {
        chain.iter_mut().for_each(|s| *s = KINDS[c % 2].next(None, &[0.0; D], stream.uniform()));
    }
    fn is_state(&self, _: usize, chain: &[u64]) -> bool {
        chain.iter().all(|s| *s < 2)
    }
    fn sample(&self, c: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut u64) {
        assert_eq!(theta.len(), D);
        let theta = if self.is_fixed { &[0.0; D] } else { theta };
        *z = KINDS[c % 2].next(chain.first().copied(), theta, stream.uniform());
        chain.iter_mut().for_each(|s| *s = *z);
    }
    fn apply(&self, c: usize, theta: &[f64], z: &u64, out: &mut [f64]) {
        out.copy_from_slice(&KINDS[c % 2].operator(*z as f64, theta));
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        let of = KINDS[c % 2];
        out.copy_from_slice(&of.operator(of.share(if self.is_fixed { &[0.0; D] } else { theta }), theta));
        true
    }
}

fn field_of(agents: usize, kind: Law, batch: usize, is_fixed: bool, isa: Isa) -> Arc<dyn Field> {
    let problem = TwoStates { weights: equal_weights(agents), has_chain: kind == Law::Markov, is_fixed };
    Arc::new(Sampled::new(problem, Sampling::default().with_kind(kind).with_batch(batch), isa).unwrap())
}

fn field(agents: usize, kind: Law) -> Arc<dyn Field> {
    field_of(agents, kind, 1, false, Isa::best())
}

/// The root under the law that theta itself induces, by Cramer's rule: `(I - B) theta = u`, `B = sum_c p_c b_c e_c'` and
/// `u = sum_c p_c (m_c + b_c a_c)`. The root under the law of theta = 0 is u.
fn roots() -> ([f64; D], [f64; D]) {
    let mean = |of: &dyn Fn(&Of) -> f64| (of(&KINDS[0]) + of(&KINDS[1])) / 2.0;
    let u = [0, 1].map(|i| mean(&|of| of.m[i] + of.b[i] * of.a));
    let x = [0, 1].map(|i| [0, 1].map(|j| f64::from(i == j) - mean(&|of| of.b[i] * of.e[j])));
    let det = x[0][0] * x[1][1] - x[0][1] * x[1][0];
    ([(u[0] * x[1][1] - x[0][1] * u[1]) / det, (x[0][0] * u[1] - u[0] * x[1][0]) / det], u)
}

/// The limit of the expectation of FedLSA's model with two agents: states and iterates by the linear recursion of their expectations.
fn limit(eta: f64, steps: usize, has_chain: bool) -> [f64; D] {
    let (mut theta, mut s) = ([0.0; D], [0.5; 2]);
    for _ in 0..20_000 {
        let mut sum = [0.0; D];
        for (of, s) in KINDS.iter().zip(&mut s) {
            let (mut own, r) = (theta, if has_chain { of.r } else { 1.0 });
            for _ in 0..steps {
                *s += r * (of.share(&own) - *s);
                let g = of.operator(*s, &own);
                own = [0, 1].map(|i| own[i] + eta * g[i]);
            }
            sum = [0, 1].map(|i| sum[i] + own[i] / 2.0);
        }
        theta = sum;
    }
    theta
}

/// The mean of the models of rounds, over seeds, and its standard error.
fn simulated(field: &Arc<dyn Field>, steps: usize, rounds: u64) -> ([f64; D], [f64; D]) {
    const SEEDS: u64 = 48;
    let method = method("fedlsa", &format!(r#"{{"step_size": 0.0625, "local_steps": {steps}}}"#));
    let means: Vec<[f64; D]> = fedsa::parallel::map(SEEDS as usize, |seed| {
        let mut engine = run(field, &*method, &EXACT, seed as u64);
        (0..400).for_each(|_| engine.step());
        let mut sum = [0.0; D];
        for _ in 0..rounds {
            engine.step();
            sum = [0, 1].map(|i| sum[i] + engine.theta()[i]);
        }
        sum.map(|x| x / rounds as f64)
    });
    let n = SEEDS as f64;
    let mean = [0, 1].map(|i| means.iter().map(|x| x[i]).sum::<f64>() / n);
    let error = [0, 1].map(|i| (means.iter().map(|x| (x[i] - mean[i]).powi(2)).sum::<f64>() / (n - 1.0) / n).sqrt());
    (mean, error)
}

#[test]
fn the_root_is_that_of_the_law_that_theta_induces() {
    let (root, fixed) = roots();
    for kind in [Law::Iid, Law::Markov] {
        assert!(distance(field(2, kind).root().unwrap(), &root) < 1e-11);
        assert!(distance(field_of(2, kind, 1, true, Isa::best()).root().unwrap(), &fixed) < 1e-11);
    }
    assert!(distance(&root, &fixed) > 0.1);
    // With one local step the expectation has no bias, whatever the chains remember.
    for has_chain in [false, true] {
        assert!(distance(&limit(0.0625, 1, has_chain), &root) < 1e-12);
        assert!(distance(&limit(0.0625, 5, has_chain), &root) > 1e-3, "agents differ");
    }
    // One law for all theta is not known, nor what follows from one.
    let of = field(2, Law::Iid);
    assert!(of.facts().law(0).is_none() && of.facts().moments(0).is_none() && of.moments(0).is_none());
}

#[test]
fn models_settle_where_their_own_law_has_its_root() {
    let (root, fixed) = roots();
    for kind in [Law::Iid, Law::Markov] {
        for (steps, rounds) in [(1, 10_000), (5, 4_000)] {
            let want = limit(0.0625, steps, kind == Law::Markov);
            let (mean, error) = simulated(&field(2, kind), steps, rounds);
            for i in 0..D {
                let off = (mean[i] - want[i]) / error[i];
                assert!(off.abs() < 4.0, "{kind:?}, {steps} steps: {mean:?} with errors {error:?}, not {want:?}");
            }
            assert!((mean[1] - fixed[1]).abs() > 10.0 * error[1], "{kind:?}, {steps} steps: the errors {error:?} tell no roots apart");
            assert!(steps > 1 || distance(&want, &root) < 1e-12);
        }
    }
}

// ------------------------------------------------------------------------------------------------ a slow twin

/// Two agents by hand.
struct Twin {
    theta: [f64; D],
    chains: [Option<u64>; 2],
    batch: usize,
}

const SEED: u64 = 9;
/// Local steps of a round.
const STEPS: usize = 4;
/// A power of two, so that the sum of the step sizes is exact.
const ETA: f64 = 0.0625;

impl Twin {
    fn new(kind: Law, batch: usize) -> Self {
        let chain = |c: usize| KINDS[c].next(None, &[0.0; D], stream(SEED, Purpose::Chain, 0, c).uniform());
        Self { theta: [0.0; D], chains: [0, 1].map(|c| (kind == Law::Markov).then(|| chain(c))), batch }
    }

    /// The mean of a batch of samples, all drawn at `theta`.
    fn observed(&self, c: usize, theta: &[f64; D], chain: &mut Option<u64>, draws: &mut Stream) -> [f64; D] {
        let mut sum = [0.0; D];
        for i in 0..self.batch {
            let s = KINDS[c].next(*chain, theta, draws.uniform());
            *chain = chain.map(|_| s);
            let g = KINDS[c].operator(s as f64, theta);
            sum = if i == 0 { g } else { [0, 1].map(|i| sum[i] + g[i]) };
        }
        if self.batch > 1 { sum.map(|x| x / self.batch as f64) } else { sum }
    }

    /// What agents observe at the model with their first samples of round t.
    fn operators(&self, t: u64) -> [[f64; D]; 2] {
        let draws = |c: usize| stream(SEED, Purpose::Sample, t, c);
        [0, 1].map(|c| self.observed(c, &self.theta, &mut self.chains[c].clone(), &mut draws(c)))
    }

    /// The agents' directions at the model in round t, with FedHSA's drift if a mean operator is given; chains go on.
    fn directions(&mut self, t: u64, mean: Option<[f64; D]>) -> [[f64; D]; 2] {
        let first = self.operators(t);
        [0, 1].map(|c| {
            let drift = [0, 1].map(|i| mean.map_or(0.0, |mean| mean[i] - first[c][i]));
            let (mut own, mut chain, mut draws) = (self.theta, self.chains[c], stream(SEED, Purpose::Sample, t, c));
            for _ in 0..STEPS {
                let g = self.observed(c, &own, &mut chain, &mut draws);
                own = [0, 1].map(|i| ETA.mul_add(g[i] + drift[i], own[i]));
            }
            self.chains[c] = chain;
            [0, 1].map(|i| (own[i] - self.theta[i]) / (ETA * STEPS as f64))
        })
    }

    fn go(&mut self, v: [f64; D]) {
        self.theta = [0, 1].map(|i| self.theta[i] + ETA * STEPS as f64 * v[i]);
    }
}

/// `sum_c p_c x_c`.
fn mean(x: [[f64; D]; 2]) -> [f64; D] {
    [0, 1].map(|i| 0.5 * x[0][i] + 0.5 * x[1][i])
}

const METHODS: [(&str, bool); 2] = [("fedlsa", false), ("fedhsa", true)];
const SETTINGS: &str = r#"{"step_size": 0.0625, "local_steps": 4}"#;

#[test]
fn two_agents_are_those_computed_by_hand() {
    for (kind, batch) in [(Law::Iid, 1), (Law::Markov, 1), (Law::Markov, 3)] {
        for (name, has_drift) in METHODS {
            let method = method(name, SETTINGS);
            let mut engine = run(&field_of(2, kind, batch, false, Isa::best()), &*method, &EXACT, SEED);
            let mut fixed = run(&field_of(2, kind, batch, true, Isa::best()), &*method, &EXACT, SEED);
            let mut twin = Twin::new(kind, batch);
            let mut apart = 0.0f64;
            for t in 0..60 {
                let given = has_drift.then(|| mean(twin.operators(t)));
                let v = mean(twin.directions(t, given));
                twin.go(v);
                engine.step();
                fixed.step();
                assert_eq!(bits(engine.theta()), bits(&twin.theta), "{name}, {kind:?}, batches of {batch}, round {t}");
                apart = apart.max(distance(engine.theta(), fixed.theta()));
            }
            assert!(apart > 0.01, "{name}, {kind:?}: theta decided no sample");
        }
    }
}

/// Pull: an answer of a past round is that at its model, from where the chain was then and along the iterates of that round. Chains go on
/// along the iterates of each round, whether its answer is used or not, and whoever shares the block.
#[test]
fn over_a_delay_answers_are_those_of_their_round() {
    const DELAYS: [[u64; 2]; 7] = [[0, 0], [0, 1], [2, 0], [1, 1], [0, 3], [2, 2], [1, 0]];
    let rounds: Vec<[u64; 2]> = DELAYS.iter().cycle().copied().take(40).collect();
    let medium = format!(r#"{{"kind": "delay", "law": "trace", "delays": {rounds:?}}}"#);
    let uplink = link(r#"{"kind": "exact"}"#, false, &[&medium]).unwrap();
    for kind in [Law::Iid, Law::Markov] {
        for (name, has_drift) in METHODS {
            let mut engine = run(&field(2, kind), &*method(name, SETTINGS), &uplink, SEED);
            let (mut twin, mut operators, mut directions) = (Twin::new(kind, 1), Vec::new(), Vec::new());
            for (t, delays) in rounds.iter().enumerate() {
                let used = |past: &[[[f64; D]; 2]]| mean([0, 1].map(|c| past[t.saturating_sub(delays[c] as usize)][c]));
                operators.push(twin.operators(t as u64));
                let given = has_drift.then(|| used(&operators));
                directions.push(twin.directions(t as u64, given));
                twin.go(used(&directions));
                engine.step();
                assert_eq!(bits(engine.theta()), bits(&twin.theta), "{name}, {kind:?}, round {t}");
            }
        }
    }
}

/// What the server recomputes at an old model (pull) is what the agent sent then (push), where every delay stays.
#[test]
fn pull_and_push_are_one() {
    let each: Vec<usize> = (0..19).map(|c| (5 * c) % 7).collect();
    let [pull, push] = [r#""kind": "delay", "before": "nothing""#, r#""kind": "late""#].map(|kind| {
        let medium = format!(r#"{{{kind}, "law": "trace", "delays": [{each:?}]}}"#);
        link(r#"{"kind": "exact"}"#, false, &[&medium]).unwrap()
    });
    for kind in [Law::Iid, Law::Markov] {
        let method = method("fedlsa", SETTINGS);
        let [mut pull, mut push] = [&pull, &push].map(|uplink| run(&field(19, kind), &*method, uplink, SEED));
        for t in 0..30 {
            pull.step();
            push.step();
            assert!(distance(pull.theta(), push.theta()) < 1e-13, "{kind:?}, round {t}");
        }
    }
}

// ------------------------------------------------------------------------------------------------ every carrier

#[test]
fn nodes_and_restored_runs_have_the_numbers_of_the_engine() {
    let lossy = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
    for kind in [Law::Iid, Law::Markov] {
        for (name, method) in methods(None).into_iter().chain(methods(Some(10))) {
            for uplink in [&Uplink::default(), &lossy] {
                let (fast, slow) = (field(19, kind), field_of(19, kind, 1, false, Isa::Portable));
                let start = || vec![0.0; D];
                let Ok(mut whole) = engine(&fast, &*method, uplink, OutputRule::Last, SEED, start()) else { continue };
                let mut halves = Halves::new(&slow, &*method, uplink, SEED).unwrap();
                let mut again = run(&fast, &*method, uplink, SEED);
                for t in 0..8 {
                    whole.step();
                    halves.round();
                    assert_eq!(bits(halves.server.theta()), bits(whole.theta()), "{name}, {kind:?}, round {t}");
                    if t == 3 {
                        again.restore(&whole.save().unwrap()).unwrap();
                    } else if t > 3 {
                        again.step();
                    }
                }
                assert_eq!(again.save().unwrap(), whole.save().unwrap(), "{name}, {kind:?}");
            }
        }
    }
}

#[test]
fn threads_have_the_numbers_of_one() {
    let media = [None, Some(r#"{"kind": "delay", "law": "uniform", "max": 3}"#), Some(r#"{"kind": "erasure", "success": 0.6}"#)];
    let all = |threads: usize| -> Vec<Vec<u8>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut out = Vec::new();
            for (medium, agents) in media.iter().flat_map(|medium| [(medium, 203), (medium, 8)]) {
                let uplink = link(r#"{"kind": "exact"}"#, false, medium.as_slice()).unwrap();
                for name in ["fedlsa", "fedlin", "scafflsa"] {
                    // Long rounds are shared out among threads.
                    let steps = if agents == 8 { 20_000 } else { 500 };
                    let method = method(name, &format!(r#"{{"step_size": 0.001, "local_steps": {steps}}}"#));
                    let Ok(mut run) = engine(&field(agents, Law::Markov), &*method, &uplink, OutputRule::Last, SEED, vec![0.0; D]) else {
                        continue;
                    };
                    (0..5).for_each(|_| run.step());
                    out.push(run.save().unwrap());
                }
            }
            out
        })
    };
    let one = all(1);
    assert!(one.len() > 12);
    for threads in [2, 7] {
        assert_eq!(all(threads), one, "{threads} threads");
    }
}
