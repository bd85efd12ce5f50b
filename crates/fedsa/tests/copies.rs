//! Copies of theta that move on the same samples: each has the bits of a run of its own, and a linear twin is the linearised problem.

use std::sync::Arc;

use crate::common::{bits, distance, field, method, problems, run_for};
use fedsa::federation::Federation;
use fedsa::linalg::{self, Mat};
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::problem::copies::{Copies, CopyRule};
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa::uplink::Uplink;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

/// A run of copies from `start`, after some rounds.
fn copied(base: &Arc<dyn Field>, rule: CopyRule, method: &dyn MethodSettings, output: OutputRule, start: &[f64], rounds: u64) -> Run {
    let copies = Copies::new(base, rule).unwrap();
    let federation = Federation::new(method, &Uplink::default(), base.weights(), 5, copies.start(start)).unwrap();
    let federation = federation.with_output(output).combining(copies.combination());
    let mut run = Run::new(&(Arc::new(copies) as Arc<dyn Field>), &federation).unwrap();
    (0..rounds).for_each(|_| run.step());
    run
}

fn methods(eta: f64) -> Vec<Box<dyn MethodSettings>> {
    let of = |kind: &str| method(kind, &format!(r#"{{"step_size": {eta}, "local_steps": 4}}"#));
    ["fedlsa", "scafflsa", "fedhsa", "fedlin"].into_iter().map(of).collect()
}

/// Steps are powers of two apart, so that a copy's operator times its factor has the bits of a run with larger steps.
#[test]
fn a_copy_has_the_bits_of_a_run_with_its_step() {
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        for (name, problem) in problems(9) {
            let base = field(&*problem, law);
            let (d, start) = (base.dim(), vec![0.3; base.dim()]);
            if base.facts().law_at(0, &start).is_some() {
                assert!(Copies::new(&base, CopyRule::Two).is_err(), "{name}");
                continue;
            }
            for (k, method) in methods(0.01).iter().enumerate() {
                let run = copied(&base, CopyRule::Three, &**method, OutputRule::Last, &start, 7);
                let each: Vec<Vec<f64>> =
                    [0.01, 0.02, 0.04].map(|eta| run_for(&base, &*methods(eta)[k], 5, &start, 7).theta().to_vec()).to_vec();
                for (i, own) in each.iter().enumerate() {
                    assert_eq!(bits(&run.theta()[i * d..][..d]), bits(own), "{name}, {law:?}, method {k}, copy {i}");
                }
                let combined: Vec<f64> = (0..d).map(|i| 8.0 / 3.0 * each[0][i] - 2.0 * each[1][i] + each[2][i] / 3.0).collect();
                assert!(distance(run.output(), &combined) <= 1e-14 * linalg::norm(&combined), "{name}, {law:?}, method {k}");
            }
        }
    }
}

/// A run that is saved and goes on has the output of one that is not, and runs without copies refuse its states.
#[test]
fn a_restored_run_of_copies_goes_on_to_the_same_bits() {
    let base = field(&RandomLogistic::default().with_agents(3).with_dim(2).with_points(9), Law::Markov);
    let (start, method) = ([0.5, -0.5], &methods(0.05)[1]);
    for output in [OutputRule::Last, OutputRule::TailAfter(3)] {
        let whole = copied(&base, CopyRule::Three, &**method, output, &start, 9);
        let half = copied(&base, CopyRule::Three, &**method, output, &start, 4);
        let mut run = copied(&base, CopyRule::Three, &**method, output, &start, 0);
        run.restore(&half.save().unwrap()).unwrap();
        assert_eq!(bits(run.output()), bits(half.output()));
        (0..5).for_each(|_| run.step());
        assert_eq!(bits(run.output()), bits(whole.output()));
        assert!(run_for(&base, &**method, 5, &start, 4).restore(&half.save().unwrap()).is_err());
    }
}

/// Averages are combined as iterates are.
#[test]
fn averages_of_copies_are_combined() {
    let base = field(&RandomLogistic::default().with_agents(3).with_dim(2).with_points(9), Law::Iid);
    let (start, method) = ([0.5, -0.5], &methods(0.05)[1]);
    let tail = copied(&base, CopyRule::Two, &**method, OutputRule::TailAfter(2), &start, 4);
    let [two, three, four] = [2, 3, 4].map(|rounds| copied(&base, CopyRule::Two, &**method, OutputRule::Last, &start, rounds));
    let mean: Vec<f64> = three.output().iter().zip(four.output()).map(|(x, y)| (x + y) / 2.0).collect();
    assert!(distance(tail.output(), &mean) < 1e-14 && distance(two.output(), &mean) > 1e-4);
}

fn random_logistic() -> RandomLogistic {
    RandomLogistic::default().with_agents(3).with_dim(2).with_points(9).with_spread(2.0)
}

/// With mean operators a linear twin is a run on the linear systems of the Jacobians at theta*.
#[test]
fn a_linear_twin_is_a_run_on_the_linearised_problem() {
    let base = field(&random_logistic(), Law::Mean);
    let root = base.root().unwrap().to_vec();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for c in 0..3 {
        let (mut jacobian, mut mean) = (Mat::zeros(2, 2), vec![0.0; 2]);
        assert!(base.facts().jacobian(c, &root, &mut jacobian) && base.mean(c, &root, &mut mean));
        a.push((0..2).map(|i| (0..2).map(|j| -jacobian[(i, j)]).collect()).collect());
        linalg::add_scaled(&mut mean, -1.0, &linalg::mat_vec(&jacobian, &root));
        b.push(mean);
    }
    let linear = field(&LinearSystems::default().with_a(a).with_b(b), Law::Mean);
    for method in methods(0.3) {
        let run = copied(&base, CopyRule::LinearTwin, &*method, OutputRule::Last, &[0.9, -0.4], 5);
        let twin = run_for(&linear, &*method, 5, &[0.9, -0.4], 5);
        assert!(distance(&run.theta()[2..], twin.theta()) < 1e-12, "{:?} {:?}", run.theta(), twin.theta());
        let output: Vec<f64> = (0..2).map(|i| root[i] + run.theta()[i] - twin.theta()[i]).collect();
        assert!(distance(run.output(), &output) < 1e-12 && distance(run.output(), &root) > 1e-3);
    }
}

/// From theta* the first local step of a twin is that of theta: its samples are the same, at theta*.
#[test]
fn a_linear_twin_has_the_noise_at_the_root() {
    let base = field(&random_logistic(), Law::Iid);
    let root = base.root().unwrap().to_vec();
    let of = |steps: usize| method("fedlsa", &format!(r#"{{"step_size": 0.3, "local_steps": {steps}}}"#));
    let one = copied(&base, CopyRule::LinearTwin, &*of(1), OutputRule::Last, &root, 1);
    assert_eq!(bits(&one.theta()[..2]), bits(&one.theta()[2..]));
    assert!(distance(&one.theta()[..2], &root) > 1e-3);
    let two = copied(&base, CopyRule::LinearTwin, &*of(2), OutputRule::Last, &root, 1);
    let apart = distance(&two.theta()[..2], &two.theta()[2..]);
    assert!(apart > 1e-6 && apart < 0.3 * distance(&two.theta()[..2], &root), "{apart}");
}
