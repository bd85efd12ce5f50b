//! What no round may change: the sum of the control variates, and the agents that do not take part.

use std::sync::Arc;

use crate::common::{Mean, bits, field, follows, method, methods, problems_under, run_from};
use fedsa::problem::Field;
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa::schedule::{LocalSteps, StepSchedule, StepSize};
use fedsa::server::Participation;

/// The largest modulus.
fn largest<'a>(x: impl IntoIterator<Item = &'a f64>) -> f64 {
    x.into_iter().fold(0.0, |m, x| m.max(x.abs()))
}

/// How far rounding may carry `sum_c p_c xi_c`, round by round. With u = 2^-53, component by component:
///
/// - the server's v is a sum of N products, eight to a block and the blocks pairwise, over the
///   weight asked: off by at most (8 + log2(N/8) + 3) u max|v_c|;
/// - told v, an agent does `xi += gain (v - v_c)`: u |xi| + 3 u gain |v - v_c|;
/// - told by the next model, its v is `(theta_{t+1} - theta_t) / (alpha_g E)`, and theta_{t+1} was
///   rounded by u |theta_{t+1}| when v was added: that over alpha_g E more, and 4 u |v|.
///
/// The errors of v are the same for all agents and do not average out. As |v_c| <= |v| + |v - v_c| and
/// gain (v - v_c) is what xi_c changes by, 20 u covers every factor at N < 256.
struct Rounding {
    bound: f64,
    theta: Vec<f64>,
    controls: Vec<Vec<f64>>,
}

impl Rounding {
    const UNITS: f64 = 20.0 / (1u64 << 53) as f64;

    fn new(run: &Run) -> Self {
        Self { bound: 0.0, theta: run.theta().to_vec(), controls: run.controls().unwrap() }
    }

    /// Sees the run after a round of `span` = alpha_g E and of that gain.
    fn see(&mut self, run: &Run, span: f64, gain: f64, told: bool) {
        let controls = run.controls().unwrap();
        let moved: Vec<f64> = self.theta.iter().zip(run.theta()).map(|(x, y)| y - x).collect();
        let changed = largest(&controls.iter().flatten().zip(self.controls.iter().flatten()).map(|(x, y)| x - y).collect::<Vec<_>>());
        let v = largest(&moved) / span;
        let rounded_theta = if told { 0.0 } else { (largest(run.theta()) + largest(&self.theta)) / span };
        self.bound += Self::UNITS * (gain * (v + rounded_theta) + changed + largest(controls.iter().flatten()));
        self.theta = run.theta().to_vec();
        self.controls = controls;
    }

    fn sum(&self, field: &Arc<dyn Field>) -> f64 {
        let d = field.dim();
        let sums: Vec<f64> = (0..d).map(|i| self.controls.iter().zip(field.weights()).map(|(xi, p)| p * xi[i]).sum()).collect();
        largest(&sums)
    }
}

#[test]
fn control_variates_sum_to_zero() {
    let flat = StepSize::Constant(0.05);
    let fixed = |size| StepSchedule { size, local: LocalSteps::Fixed(7) };
    let decay = |per| serde_json::from_str::<StepSize>(&format!(r#"{{"c": 0.5, "t0": 10, "power": 0.7, "per": "{per}"}}"#)).unwrap();
    let seed = 5;
    let settings = [
        ("scafflsa", r#""step_size": 0.05, "local_steps": 7"#, 1.0, fixed(flat)),
        ("scafflsa", r#""step_size": 0.05, "local_steps": 7, "global_step_size": 0.8"#, 0.8, fixed(flat)),
        ("scafflsa", r#""step_size": {"c": 0.5, "t0": 10, "power": 0.7}, "local_steps": 7"#, 1.0, fixed(decay("round"))),
        ("scafflsa", r#""step_size": {"c": 0.5, "t0": 10, "power": 0.7, "per": "step"}, "local_steps": 7"#, 1.0, fixed(decay("step"))),
        (
            "scafflsa-random",
            r#""step_size": 0.05, "talk_probability": 0.2"#,
            1.0,
            StepSchedule { size: flat, local: LocalSteps::Geometric { talk: 0.2, seed } },
        ),
    ];
    for law in [Law::Iid, Law::Markov] {
        let mut fields: Vec<_> = problems_under(law, 19).into_iter().map(|(name, problem)| (name, field(&*problem, law))).collect();
        fields.push(("logs of unequal lengths", crate::common::unequal(law)));
        for (name, field) in fields {
            for (kind, json, alpha, steps) in &settings {
                for participants in [None, Some(field.agents() / 2 + 1), Some(2)] {
                    let m = participants.map_or(String::new(), |m| format!(r#", "participants": {m}"#));
                    let mut run = run_from(&field, &*method(kind, &format!("{{{json}{m}}}")), seed, &vec![1.0; field.dim()]);
                    let mut rounding = Rounding::new(&run);
                    for t in 0..300 {
                        run.step();
                        let phase = steps.of(t);
                        let gain = if *kind == "scafflsa" { 1.0 } else { 0.2 * phase.len as f64 };
                        rounding.see(&run, alpha * phase.sum, gain, participants.is_some());
                        let sum = rounding.sum(&field);
                        let what = format!("{kind} {json} on {name}, {law:?}, participants {participants:?}, round {t}");
                        assert!(sum <= rounding.bound, "{what}: {sum:e} > {:e}", rounding.bound);
                    }
                    // The bound says something: the controls themselves are far above it.
                    assert!(largest(rounding.controls.iter().flatten()) > 1e7 * rounding.bound, "{kind} on {name}");
                }
            }
        }
    }
}

/// What a saved run begins with: the version of its layout, the hash of its settings, the agents' memory, and their chains.
type Saved = (u32, u64, Vec<f64>, Vec<u64>);

fn saved(run: &Run) -> Saved {
    postcard::take_from_bytes(&run.save().unwrap()).unwrap().0
}

#[test]
fn agents_that_do_not_take_part_stand_still() {
    let (agents, m, seed) = (19, 10, 5);
    for law in [Law::Iid, Law::Markov] {
        for (name, problem) in problems_under(law, agents) {
            let field = field(&*problem, law);
            for (kind, settings) in methods(Some(m)) {
                let mut run = run_from(&field, &*settings, seed, &vec![0.0; field.dim()]);
                let mut before = saved(&run);
                let participation = Participation { m: Some(m), agents, seed };
                let mut chains_that_moved = 0;
                for t in 0..20 {
                    run.step();
                    let after = saved(&run);
                    let taking_part = participation.of(t).unwrap();
                    let (memory, chain) = (after.2.len() / agents, after.3.len() / agents);
                    for c in 0..agents {
                        let kept = |s: &Saved| bits(&s.2[c * memory..(c + 1) * memory]);
                        let place = |s: &Saved| s.3[c * chain..(c + 1) * chain].to_vec();
                        let what = format!("{kind} on {name}, {law:?}, round {t}, agent {c}");
                        if taking_part.contains(&c) {
                            assert!(memory == 0 || kept(&before) != kept(&after), "{what}");
                            chains_that_moved += usize::from(place(&before) != place(&after));
                        } else {
                            assert_eq!(kept(&before), kept(&after), "{what}");
                            assert_eq!(place(&before), place(&after), "{what}");
                        }
                    }
                    before = after;
                }
                // Not all: a chain may stay in its state, or come back to it.
                assert!(before.3.is_empty() || chains_that_moved > m, "{kind} on {name}, {law:?}: {chains_that_moved}");
            }
        }
    }
}

#[test]
fn participants_are_uniform_and_independent() {
    let (agents, m, rounds) = (10, 3, 40_000u64);
    let participation = Participation { m: Some(m), agents, seed: 7 };
    let mut single = vec![Mean::default(); agents];
    let mut pair = vec![Mean::default(); agents * agents];
    let mut overlap = Mean::default();
    let mut last: Vec<usize> = Vec::new();
    for t in 0..rounds {
        let drawn = participation.of(t).unwrap();
        assert!(drawn.len() == m && drawn.windows(2).all(|w| w[0] < w[1]) && drawn[m - 1] < agents, "{drawn:?}");
        for c in 0..agents {
            single[c].see(f64::from(u8::from(drawn.contains(&c))));
            for other in 0..c {
                pair[c * agents + other].see(f64::from(u8::from(drawn.contains(&c) && drawn.contains(&other))));
            }
        }
        if t > 0 {
            overlap.see(drawn.iter().filter(|c| last.contains(c)).count() as f64);
        }
        last = drawn;
    }
    let (n, m) = (agents as f64, m as f64);
    let mut off: Vec<f64> = single.iter().map(|s| s.off(m / n)).collect();
    off.extend(
        (0..agents).flat_map(|c| (0..c).map(move |o| (c, o))).map(|(c, o)| pair[c * agents + o].off(m * (m - 1.0) / (n * (n - 1.0)))),
    );
    // Of the m drawn in one round, m^2 / N are drawn again in the next.
    off.push(overlap.off(m * m / n));
    follows(&off).unwrap();
    // Everyone at m = N, and where m is not given.
    assert_eq!(Participation { m: Some(10), agents: 10, seed: 7 }.of(0), None);
    assert_eq!(Participation { m: None, agents: 10, seed: 7 }.of(0), None);
}

#[test]
fn coins_are_geometric_and_shared() {
    let p: f64 = 0.15;
    let steps = StepSchedule { size: StepSize::Constant(0.1), local: LocalSteps::Geometric { talk: p, seed: 3 } };
    let mut length = Mean::default();
    let mut at: Vec<Mean> = vec![Mean::default(); 12];
    for t in 0..400_000 {
        let phase = steps.of(t);
        assert!(phase.len >= 1 && (phase.sum - 0.1 * phase.len as f64).abs() < 1e-15 * phase.sum.max(1.0));
        length.see(phase.len as f64);
        at.iter_mut().enumerate().for_each(|(k, at)| at.see(f64::from(u8::from(phase.len == k + 1))));
    }
    let mut off = vec![length.off(1.0 / p)];
    off.extend(at.iter().enumerate().map(|(k, at)| at.off(p * (1.0 - p).powi(k as i32))));
    follows(&off).unwrap();
}

#[test]
fn schedules_fill_what_they_sum() {
    let decay = |per| serde_json::from_str::<StepSize>(&format!(r#"{{"c": 3.0, "t0": 4, "power": 0.5, "per": "{per}"}}"#)).unwrap();
    let mut etas = Vec::new();
    for (size, expected) in [
        (decay("round"), [3.0 / 9f64.sqrt(); 3]),
        // Round 5 of three steps holds the steps 15, 16, 17.
        (decay("step"), [3.0 / 19f64.sqrt(), 3.0 / 20f64.sqrt(), 3.0 / 21f64.sqrt()]),
        (StepSize::Constant(0.25), [0.25; 3]),
    ] {
        let phase = StepSchedule { size, local: LocalSteps::Fixed(3) }.of(5);
        phase.fill(1..3, &mut etas);
        assert!(etas.iter().zip(&expected[1..]).all(|(x, y)| (x - y).abs() < 1e-15), "{etas:?} {expected:?}");
        phase.fill(0..3, &mut etas);
        assert!(etas.iter().zip(expected).all(|(x, y)| (x - y).abs() < 1e-15), "{etas:?} {expected:?}");
        assert!((phase.sum - etas.iter().sum::<f64>()).abs() < 1e-15);
    }
}

#[test]
fn a_schedule_that_leaves_the_numbers_is_refused_or_stops() {
    let decay =
        |t0: f64, power: f64| serde_json::from_str::<StepSize>(&format!(r#"{{"c": 1.0, "t0": {t0:e}, "power": {power}}}"#)).unwrap();
    for (t0, first) in [(1e200, "0"), (1e-200, "inf")] {
        let e = decay(t0, 2.0).check().unwrap_err();
        assert!(e.to_string().contains(&format!("c / t0^power = {first}")), "{e}");
    }
    // What falls below every number goes on as steps that change nothing, not as 0 / 0.
    let vanishing = decay(1.0, 400.0);
    vanishing.check().unwrap();
    let phase = StepSchedule { size: vanishing, local: LocalSteps::Fixed(3) }.of(100);
    assert!(phase.sum > 0.0 && phase.sum < 1e-300, "{:e}", phase.sum);
}
