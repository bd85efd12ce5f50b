//! Methods on policy gradients, beside numbers that were computed apart from this code, with NumPy.

use std::sync::Arc;

use crate::common::{distance, field, method, run, run_for};
use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::round::check_needs;
use fedsa::sampling::{Law, Sampling};
use fedsa_problems::control::policy_gradient::PolicyGradient;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::source::LogSource;
use fedsa_problems::{Files, NoFiles, ProblemSettings};

/// A file of two environments of three states and two actions; the first state has the law (1, 2, 3) / 6.
struct Pg1;

impl Files for Pg1 {
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
        arrays.insert("rho", Array::new(vec![3], [1.0, 2.0, 3.0].map(|x| x / 6.0).to_vec())?);
        Ok(arrays)
    }
    fn logs(&self, sources: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        NoFiles.logs(sources, form)
    }
}

fn pg1(agents: usize, sampling: Sampling) -> Arc<dyn Field> {
    let length = (sampling.kind == Law::Iid).then_some(40);
    let settings = PolicyGradient::default().with_path("pg1.npz".to_string()).with_agents(agents).with_entropy(0.5).with_length(length);
    settings.field(&Pg1, sampling, Isa::best()).unwrap()
}

const LONG_ROUNDS: &str = r#"{"step_size": 0.1, "local_steps": 10}"#;

#[test]
fn without_noise_methods_end_where_numpy_says() {
    let field = pg1(2, Sampling::default().with_kind(Law::Mean));
    let root = field.root().unwrap();
    let after = |kind: &str, rounds: u64| distance(run_for(&field, &*method(kind, LONG_ROUNDS), 0, &[0.0; 6], rounds).theta(), root);
    assert!((after("fedlsa", 3000) - 0.20198).abs() < 1e-5, "{}", after("fedlsa", 3000));
    let (before, at) = (after("fedhsa", 190), after("fedhsa", 191));
    assert!(before.powi(2) > 1e-20 && at.powi(2) < 1e-20, "{before:e} {at:e}");
    assert!(after("scafflsa", 3000) < 1e-10, "{:e}", after("scafflsa", 3000));
}

/// The gap is that of the returns, and FedLSA's is small on the fork.
#[test]
fn fedlsa_finds_a_mixed_policy() {
    let field = field(&PolicyGradient::default().with_fork(true).with_agents(2).with_entropy(0.0), Law::Mean);
    let best = -field.mean_loss(field.root().unwrap()).unwrap();
    assert!((best - 7.57148869802242).abs() < 1e-12, "{best}");
    for (local_steps, expected) in [(10, 1.6e-5), (100, 5.7e-5)] {
        let method = method("fedlsa", &format!(r#"{{"step_size": 0.1, "local_steps": {local_steps}}}"#));
        let theta = run_for(&field, &*method, 0, &[0.0; 4], 20_000 / local_steps).theta().to_vec();
        let gap = best + field.mean_loss(&theta).unwrap();
        assert!((gap / expected - 1.0).abs() < 0.05, "{local_steps} {gap:e}");
    }
}

/// Returns are not concave: Newton's method would go to saddles.
#[test]
fn methods_that_need_convex_losses_are_refused() {
    let field = pg1(2, Sampling::default().with_kind(Law::Mean));
    for (kind, method) in crate::common::computing_alone() {
        let refused = check_needs(&*method, &*field).unwrap_err().to_string();
        assert!(
            refused.contains(if ["lstd", "gmres", "lspi", "fitted-q"].contains(&kind) { "linear" } else { "convex" }),
            "{kind}: {refused}"
        );
    }
    check_needs(&*method("fedhsa", LONG_ROUNDS), &*field).unwrap();
}

/// Where agents differ and rounds are long, one sample as the correction of a round costs more than the drift.
#[test]
#[ignore = "many rounds of 50 agents"]
fn corrections_of_one_sample_cost_more_than_the_drift() {
    let field = pg1(50, Sampling::default().with_batch(10));
    let root = field.root().unwrap();
    let bias = |kind: &str| {
        let mut run = run(&field, &*method(kind, LONG_ROUNDS), &crate::common::EXACT, 3);
        let (settle, count) = (100, 2000);
        let mut mean = [0.0; 6];
        for t in 0..settle + count {
            run.step();
            if t >= settle {
                mean.iter_mut().zip(run.theta()).for_each(|(mean, theta)| *mean += theta / f64::from(count));
            }
        }
        distance(&mean, root).powi(2)
    };
    for (kind, expected) in [("fedlsa", 0.028), ("scafflsa", 0.008), ("fedhsa", 0.052)] {
        assert!((bias(kind) - expected).abs() < 0.004, "{kind}: {}", bias(kind));
    }
}
