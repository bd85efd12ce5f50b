//! Importance averaging: shares of old values, a slow twin, nodes, and refusals.

use std::sync::Arc;

use crate::common::{Halves, bits, field, link, method, run, run_from};
use fedsa::kernel::Isa;
use fedsa::method::MethodSettings;
use fedsa::problem::{Facts, Field, Problem, equal_weights, field as field_of};
use fedsa::random::Stream;
use fedsa::round::check_needs;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::noise::Noise;
use fedsa_problems::nonlinear::q_learning::{PairFeatures, QLearning};

fn importance(eta: &str, h: usize) -> Box<dyn MethodSettings> {
    method("importance-averaging", &format!(r#"{{"step_size": {eta}, "local_steps": {h}}}"#))
}

/// Agent c moves the entry `visits[c][k]` towards `targets[c]` in its step k.
struct Table {
    visits: Vec<Vec<usize>>,
    targets: Vec<f64>,
    weights: Vec<f64>,
    entries: usize,
}

impl Table {
    fn field(visits: Vec<Vec<usize>>, targets: Vec<f64>, entries: usize) -> Arc<dyn Field> {
        let weights = equal_weights(targets.len());
        let table = Self { visits, targets, weights, entries };
        field_of(table, Sampling::default().with_kind(Law::Markov), Isa::best(), true).unwrap()
    }
}

impl Facts for Table {
    fn is_table(&self) -> bool {
        true
    }
}

impl Problem for Table {
    type Obs = usize;
    fn dim(&self) -> usize {
        self.entries
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        1
    }
    fn sample(&self, c: usize, _: &[f64], chain: &mut [u64], _: &mut Stream, z: &mut usize) {
        *z = self.visits[c][chain[0] as usize % self.visits[c].len()];
        chain[0] += 1;
    }
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        out.fill(0.0);
        out[*z] = self.targets[c] - theta[*z];
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

/// One of two agents visits an entry n times: `(1 + (1 - eta)^n) / 2` of the old value is left by equal weights, and
/// `2 / (1 + (1 - eta)^-n)` by importance.
#[test]
fn an_entry_that_one_agent_visits_follows_it() {
    for n in [1, 50, 20_000] {
        let field = Table::field(vec![vec![0], vec![1]], vec![0.0; 2], 2);
        let kept = 0.9f64.powi(n);
        let fedlsa = method("fedlsa", &format!(r#"{{"step_size": 0.1, "local_steps": {n}}}"#));
        for (method, expected) in [(fedlsa, (1.0 + kept) / 2.0), (importance("0.1", n as usize), 2.0 / (1.0 + 1.0 / kept))] {
            let mut run = run_from(&field, &*method, 1, &[1.0; 2]);
            run.step();
            assert!(run.theta().iter().all(|x| (x - expected).abs() < 1e-13), "{n}: {:?}, {expected}", run.theta());
        }
    }
}

/// Three agents with visits of their own and decreasing step sizes, in plain loops.
#[test]
fn rounds_are_those_of_the_slow_twin() {
    let visits = vec![vec![0, 0, 1, 3], vec![1, 2, 1, 1, 0], vec![2, 0, 2]];
    let (targets, d, h) = ([1.0, -2.0, 0.5], 4, 7);
    let field = Table::field(visits.clone(), targets.to_vec(), d);
    let mut run = run_from(&field, &*importance(r#"{"c": 2.0, "t0": 5, "per": "step"}"#, h), 1, &[0.3, -0.1, 0.7, 0.2]);
    let (mut theta, mut step) = (vec![0.3, -0.1, 0.7, 0.2], vec![0usize; 3]);
    for t in 0..5 {
        let (mut all, mut moved) = (vec![0.0; d], vec![0.0; d]);
        for c in 0..3 {
            let (mut own, mut weight) = (theta.clone(), vec![1.0; d]);
            for k in 0..h {
                let (eta, i) = (2.0 / ((t * h + k) as f64 + 5.0), visits[c][step[c] % visits[c].len()]);
                own[i] += eta * (targets[c] - own[i]);
                weight[i] /= 1.0 - eta;
                step[c] += 1;
            }
            for i in 0..d {
                all[i] += weight[i];
                moved[i] += weight[i] * own[i];
            }
        }
        theta = (0..d).map(|i| moved[i] / all[i]).collect();
        run.step();
        assert!(run.theta().iter().zip(&theta).all(|(x, y)| (x - y).abs() < 1e-13), "round {t}: {:?}, {theta:?}", run.theta());
    }
}

/// Nodes give the bits of the engine, over links that lose and alter messages too.
#[test]
fn nodes_give_the_bits_of_the_engine() {
    for law in [Law::Iid, Law::Markov] {
        let field = field(&QLearning::default(), law);
        let method = importance("0.2", 6);
        check_needs(&*method, &*field).unwrap();
        let quantised = link(r#"{"kind": "quantised", "bits": 9}"#, false, &[]).unwrap();
        let lossy = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
        let fed_back = link(r#"{"kind": "top-k", "fraction": 0.3}"#, true, &[]).unwrap();
        for uplink in [Uplink::default(), quantised, lossy, fed_back] {
            let (mut alone, mut halves) = (run(&field, &*method, &uplink, 3), Halves::new(&field, &*method, &uplink, 3).unwrap());
            for _ in 0..6 {
                alone.step();
                halves.round();
            }
            assert_eq!(bits(alone.theta()), bits(halves.server.theta()));
            assert!(alone.theta().iter().any(|x| *x != 0.0));
        }
    }
}

#[test]
fn problems_and_links_without_visits_are_refused() {
    let method = importance("0.2", 6);
    let mean = field(&QLearning::default(), Law::Mean);
    let drawn = field(&QLearning::default().with_feature_law(PairFeatures::Uniform).with_features(3), Law::Iid);
    let noise = Noise::default().with_std(0.1);
    let noisy = field(&QLearning::default().with_noise(noise), Law::Iid);
    for field in [&mean, &drawn, &noisy] {
        assert!(check_needs(&*method, &**field).unwrap_err().what.contains("visits of entries of a table"));
    }
    let table = field(&QLearning::default(), Law::Iid);
    let sums = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "secure-sum", "bound": 100.0}"#]).unwrap();
    assert!(Halves::new(&table, &*method, &sums, 3).is_err());
    assert_eq!(importance("1.0", 6).check(3).unwrap_err().key, "step_size");
}
