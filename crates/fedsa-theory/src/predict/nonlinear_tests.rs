//! Numbers of S1 and G were computed apart from this code, with NumPy.

use std::sync::Arc;

use super::*;
use crate::Accuracy;
use crate::predict::FloorCache;
use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa::linalg::Mat;
use fedsa::method::MethodSettings as _;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::law::FiniteLaw;
use fedsa::problem::{Facts, Field, Problem, Sampled};
use fedsa::random::Stream;
use fedsa::sampling::Sampling;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlin::FedLin;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::control::sarsa::{ImproveEvery, NextAction, Sarsa};
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::LogSource;
use fedsa_problems::{Files, ProblemSettings as _};

/// Three states and two actions; two environments.
struct S1;

impl Files for S1 {
    fn arrays(&self, _: &str) -> Result<Arrays> {
        let (mut p, mut r) = (Vec::new(), Vec::new());
        for (c, s, a) in (0..2usize).flat_map(|c| (0..3usize).flat_map(move |s| (0..2usize).map(move |a| (c, s, a)))) {
            let row: Vec<f64> = (0..3).map(|t| (1 + (2 * s + 3 * a + 4 * t + c * (s + 2 * t)) % 5) as f64).collect();
            let sum: f64 = row.iter().sum();
            p.extend(row.iter().map(|p| p / sum));
            r.push(((s + 2 * a + 2 * c) % 3) as f64 - (a * c) as f64 / 2.0);
        }
        let mut arrays = Arrays::new();
        arrays.insert("P", Array::new(vec![2, 3, 2, 3], p)?);
        arrays.insert("R", Array::new(vec![2, 3, 2], r)?);
        arrays.insert("gamma", Array::scalar(0.8));
        Ok(arrays)
    }
    fn logs(&self, _: &[String], _: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        Err(Error::new("", "no logs", ""))
    }
}

fn s1(agents: usize, law: Law, next_action: NextAction, improve_every: ImproveEvery) -> Arc<dyn Field> {
    let settings = Sarsa::default().with_path("s1".to_string()).with_agents(agents).with_temperature(0.5).with_exploration(0.1);
    let settings = settings.with_next_action(next_action).with_improve_every(improve_every);
    settings.field(&S1, Sampling::default().with_kind(law), Isa::best()).unwrap()
}

fn is_near(found: f64, expected: f64, relative: f64) {
    assert!((found - expected).abs() <= relative * expected.abs(), "{found} {expected}");
}

#[test]
fn radii_at_the_root_are_those_of_numpy() {
    let field = s1(2, Law::Mean, NextAction::Carry, ImproveEvery::Step);
    let radius = |shape| Forecast::new(&field, shape).radius().unwrap();
    is_near(radius(FedLsa::new(0.5, 10).shape()), 0.835391415, 1e-8);
    is_near(radius(Scafflsa::new(0.5, 10).shape()), 0.827335779, 1e-8);
    is_near(radius(FedHsa::new(0.5, 10).shape()), 0.828728566, 1e-8);
}

#[test]
fn limits_without_noise_are_those_of_numpy() {
    let field = s1(2, Law::Mean, NextAction::Carry, ImproveEvery::Step);
    let of = |shape| Forecast::new(&field, shape);
    is_near(of(FedLsa::new(0.1, 10).shape()).bias_sq().unwrap().sqrt(), 0.573510883216, 1e-10);
    assert_eq!(of(Scafflsa::new(0.1, 10).shape()).bias_sq().unwrap(), 0.0);
    // The floor without noise is the bias.
    let floor = of(FedLsa::new(0.1, 10).shape()).predicted_floor().unwrap();
    assert_eq!((floor.accuracy, floor.value.noise), (Accuracy::LeadingOrder, 0.0));
    is_near(floor.value.mse().sqrt(), 0.573510883216, 1e-10);
}

/// A policy that follows theta in local steps multiplies the drift, which the exact limit shows too.
#[test]
fn the_drift_is_that_of_the_policy_in_local_steps() {
    for (improve_every, first, tolerance) in [(ImproveEvery::Step, 2.92, 0.005), (ImproveEvery::Round, 0.0004, 0.00006)] {
        let field = s1(2, Law::Mean, NextAction::Carry, improve_every);
        let of = Forecast::new(&field, FedLsa::new(1e-3, 10).shape());
        let order = of.nonlinear_order().unwrap().0;
        assert!((order.drift[0] - first).abs() < tolerance, "{:?}", order.drift);
        let exact: Vec<f64> = of.nonlinear_bias().unwrap().iter().map(|x| x / 1e-3).collect();
        let scale = linalg::norm(&order.drift);
        assert!(linalg::distance_sq(&exact, &order.drift).sqrt() < 0.01 * scale, "{exact:?} {:?}", order.drift);
    }
}

#[test]
fn the_noise_to_leading_order_is_that_of_numpy() {
    for (law, next_action, first) in [
        (Law::Iid, NextAction::Carry, None),
        (Law::Markov, NextAction::Carry, Some(-0.473243974)),
        (Law::Markov, NextAction::Redraw, Some(-0.082913811)),
    ] {
        let field = s1(1, law, next_action, ImproveEvery::Step);
        let order = Forecast::new(&field, FedLsa::new(0.02, 1).shape()).nonlinear_order().unwrap().0;
        if next_action == NextAction::Carry {
            is_near((0..6).map(|i| order.v1[(i, i)]).sum(), 1.55299118955, 1e-9);
        }
        if let Some(first) = first {
            is_near(order.noise[0], first, 1e-6);
        }
    }
}

#[test]
fn floors_to_leading_order_are_those_of_numpy() {
    let floor = |agents, shape| {
        let field = s1(agents, Law::Markov, NextAction::Carry, ImproveEvery::Step);
        Forecast::new(&field, shape).leading_order_floor().unwrap().mse()
    };
    is_near(floor(1, FedLsa::new(0.02, 1).shape()), 0.03142, 2e-4);
    is_near(floor(2, FedLsa::new(0.02, 5).shape()), 0.03280, 2e-4);
}

#[test]
fn parts_add_up_to_the_floor() {
    let field = s1(2, Law::Markov, NextAction::Carry, ImproveEvery::Step);
    let forecast = Forecast::new(&field, FedLsa::new(0.02, 5).shape());
    let parts = forecast.limits(&FloorCache::default()).unwrap();
    let (floor, mixing) = (forecast.floor().unwrap(), parts.mixing.unwrap());
    is_near(parts.floor, floor.mse(), 1e-12);
    is_near(parts.bias + parts.samples.unwrap() + mixing, parts.floor, 1e-12);
    assert!(parts.bias > 0.0 && mixing != 0.0 && (parts.link, parts.participation) == (None, None), "{parts:?}");
}

/// The correction of FedLin has a sample of its own, and not that of the first step.
#[test]
fn corrections_with_samples_of_their_own_have_no_floor_along_trajectories() {
    let floor = |law, shape| Forecast::new(&s1(2, law, NextAction::Carry, ImproveEvery::Step), shape).leading_order_floor();
    for shape in [FedLin::new(0.02, 5).shape(), FedHsa::new(0.02, 5).with_correction_batch(3).shape()] {
        let why = floor(Law::Markov, shape).unwrap_err().to_string();
        assert!(why.contains("a sample of its own"), "{why}");
        floor(Law::Iid, shape).unwrap();
    }
    floor(Law::Markov, FedHsa::new(0.02, 5).shape()).unwrap();
}

/// With one local step the policy of the round is that of the step.
#[test]
fn with_one_step_a_policy_that_is_kept_in_the_round_changes_nothing() {
    for agents in [1, 2] {
        let floor = |improve_every| {
            let field = s1(agents, Law::Markov, NextAction::Carry, improve_every);
            Forecast::new(&field, FedLsa::new(0.02, 1).shape()).leading_order_floor().unwrap()
        };
        let (step, round) = (floor(ImproveEvery::Step), floor(ImproveEvery::Round));
        is_near(round.noise, step.noise, 1e-9);
        assert!(linalg::distance_sq(&round.bias, &step.bias) < 1e-16 * linalg::norm_sq(&step.bias), "{round:?} {step:?}");
    }
}

/// Logistic losses of four types of agents with eight rows each.
struct G {
    weights: Vec<f64>,
    /// The type of agent 0.
    first: usize,
}

impl G {
    fn kind(&self, c: usize) -> usize {
        (c + self.first) % 4
    }

    /// A row of a type of agents.
    fn row(c: usize, j: usize) -> ([f64; 2], f64) {
        let y = if (j + c % 4).is_multiple_of(3) { -1.0 } else { 1.0 };
        let (k, j) = ((c % 4) as f64, j as f64);
        ([2.0 * (j + 1.0 + k).cos(), 1.0 + 2.0 * (2.0 * j + 2.0 * k).sin()], y)
    }
}

const RIDGE: f64 = 0.1;

impl Problem for G {
    type Obs = usize;
    fn dim(&self) -> usize {
        2
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = (8.0 * stream.uniform()) as usize;
    }
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let (x, y) = Self::row(self.kind(c), *z);
        let pull = y / (1.0 + (y * (x[0] * theta[0] + x[1] * theta[1])).exp());
        (0..2).for_each(|i| out[i] = pull * x[i] - RIDGE * theta[i]);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        let mut g = [0.0; 2];
        out.fill(0.0);
        for z in 0..8 {
            self.apply(c, theta, &z, &mut g);
            linalg::add_scaled(out, 0.125, &g);
        }
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for G {
    fn kind_of(&self) -> Option<Vec<u32>> {
        Some((0..self.weights.len()).map(|c| self.kind(c) as u32).collect())
    }
    fn law(&self, c: usize) -> Option<FiniteLaw<'_>> {
        Some(FiniteLaw::new(2, vec![0.125; 8], move |z, theta, out| self.apply(c + 4 - self.first, theta, &z, out)))
    }
    fn jacobian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) -> bool {
        *out = Mat::from_fn(2, 2, |i, j| if i == j { -RIDGE } else { 0.0 });
        for z in 0..8 {
            let x = Self::row(self.kind(c), z).0;
            let p = 1.0 / (1.0 + (x[0] * theta[0] + x[1] * theta[1]).exp());
            *out -= Mat::from_fn(2, 2, |i, j| 0.125 * p * (1.0 - p) * x[i] * x[j]);
        }
        true
    }
}

fn g(agents: usize) -> Arc<dyn Field> {
    let problem = G { weights: vec![1.0 / agents as f64; agents], first: 0 };
    Arc::new(Sampled::new(problem, Sampling::default().with_kind(Law::Iid), Isa::best()).unwrap())
}

/// Noise within a round moves the mean of methods with control variates by an amount that does not fall with N. The numbers are NumPy's.
#[test]
fn control_variates_have_a_bias_that_more_agents_do_not_lower() {
    let (field, many) = (g(400), g(40_000));
    let root = field.root().unwrap();
    assert!((root[0] + 0.06713462).abs() < 1e-8 && (root[1] - 0.68115743).abs() < 1e-8, "{root:?}");
    let order = Forecast::new(&many, Scafflsa::new(0.1, 10).shape()).nonlinear_order().unwrap().0;
    for (i, (first, second)) in [(-0.01471271, -0.11930882), (0.08428259, 0.58012156)].into_iter().enumerate() {
        is_near(40_000.0 * order.noise[i], first, 1e-6);
        is_near(order.spread[0][i] / 0.01, second, 1e-4);
    }
    let bias = |field: &Arc<dyn Field>, shape| {
        let of = Forecast::new(field, shape);
        [of.leading_order_floor().unwrap().bias[1], of.floor().unwrap().bias[1]]
    };
    // The first part is that of 400 agents, the second that of infinitely many.
    let first = |eta: f64| eta * 0.08428259 * (1.0 / 400.0 - 1.0 / 40_000.0);
    let [leading, closure] = bias(&many, Scafflsa::new(0.1, 10).shape());
    is_near(leading + first(0.1), 0.005822, 2e-4);
    is_near(closure + first(0.1), 0.004296, 2e-4);
    let [leading, closure] = bias(&many, Scafflsa::new(0.05, 10).shape());
    is_near(leading + first(0.05), 0.001461, 5e-4);
    is_near(closure + first(0.05), 0.001242, 5e-4);
    is_near(bias(&many, FedHsa::new(0.1, 10).shape())[0] + first(0.1), 0.01896, 5e-4);
    is_near(bias(&many, FedLin::new(0.1, 10).shape())[0] + first(0.1), 0.02607, 5e-4);
    // Measured, with standard errors of 9e-6, 5e-6 and 4e-6.
    for (agents, eta, expected, se) in [(400, 0.1, 0.004291, 9e-6), (400, 0.05, 0.001237, 5e-6), (4, 0.025, 0.000776, 4e-6)] {
        let [_, closure] = bias(&g(agents), Scafflsa::new(eta, 10).shape());
        assert!((closure - expected).abs() < 3.0 * se, "{agents} {eta}: {closure}");
    }
    // At this step higher derivatives count too.
    is_near(bias(&field, FedHsa::new(0.1, 10).shape())[1], 0.01547, 0.09);
    is_near(bias(&field, FedLin::new(0.1, 10).shape())[1], 0.02006, 0.09);
}

/// One agent makes the same steps with every method and any number of them in a round.
#[test]
fn the_bias_of_one_agent_does_not_depend_on_the_method_or_the_local_steps() {
    let one = g(1);
    let bias = |shape| {
        let of = Forecast::new(&one, shape);
        [of.leading_order_floor().unwrap().bias, of.floor().unwrap().bias]
    };
    let [plain, _] = bias(FedLsa::new(0.01, 1).shape());
    for shape in
        [FedLsa::new(0.01, 10).shape(), Scafflsa::new(0.01, 10).shape(), FedHsa::new(0.01, 10).shape(), FedLin::new(0.01, 10).shape()]
    {
        let [leading, closure] = bias(shape);
        for i in 0..2 {
            is_near(leading[i], plain[i], 1e-6);
            is_near(closure[i], plain[i], 0.01);
        }
    }
}

/// The law of a kind of agents is asked for by the kind's number.
#[test]
fn laws_are_those_of_kinds() {
    let order = |of: &Arc<dyn Field>| Forecast::new(of, Scafflsa::new(0.1, 10).shape()).nonlinear_order().unwrap().0;
    let (straight, turned) = (g(8), {
        let problem = G { weights: vec![0.125; 8], first: 3 };
        Arc::new(Sampled::new(problem, Sampling::default().with_kind(Law::Iid), Isa::best()).unwrap()) as Arc<dyn Field>
    });
    let (straight, turned) = (order(&straight), order(&turned));
    assert!(linalg::distance_sq(&straight.spread[1], &turned.spread[1]) < 1e-20 * linalg::norm_sq(&straight.spread[1]));
}
