//! LSTD(lambda) on the real logs, and importance ratios from files.
//!
//! The solutions need the logs: they run only where `FEDSA_DATA` names a folder with `transitions/`.

use std::sync::Arc;

use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::sampling::{Law, Sampling};
use fedsa_data::{DiskFiles, find::Places};
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::replay::{Logs, Sources};
use fedsa_problems::logs::source::whole;
use fedsa_problems::{Files, ProblemSettings};

fn field(path: &str, features: FeatureSpec, ranges: &[(&str, f64, f64)], lambda: f64, law: Law) -> Result<Arc<dyn Field>> {
    let settings = Logs::new(Sources::One(path.into()), features, 0.99)
        .with_ranges(ranges.iter().map(|(column, low, high)| (column.to_string(), (*low, *high))).collect())
        .with_lambda(lambda);
    settings.field(&DiskFiles::new(Places::from_env("")), Sampling::default().with_kind(law), Isa::best())
}

/// The norms of the pooled solutions as computed elsewhere, to the printed digits.
#[test]
fn the_solutions_of_lstd_lambda_are_as_computed_elsewhere() {
    if fedsa_testing::data().is_none() {
        return;
    }
    let mountain = [("s_0", -1.2, 0.6), ("s_1", -0.07, 0.07)];
    let pole = [("s_0", -2.4, 2.4), ("s_1", -3.0, 3.0), ("s_2", -0.21, 0.21), ("s_3", -3.5, 3.5)];
    let lambdas = [0.0, 0.5, 0.9, 1.0];
    let mut wrong = Vec::new();
    for (name, order, ranges, norms) in [
        ("mountaincar", 3, &mountain[..], [289.0216, 291.5319, 302.3605, 322.0177]),
        ("cartpole", 1, &pole, [191.4582, 172.0443, 151.4835, 176.4806]),
    ] {
        for (lambda, expected) in lambdas.into_iter().zip(norms) {
            let field =
                field(&format!("transitions/{name}"), FeatureSpec::Fourier { order, scaled: false }, ranges, lambda, Law::Mean).unwrap();
            let norm = linalg::norm_sq(field.root().unwrap()).sqrt();
            println!("{name}, lambda = {lambda}: {norm:.6} for {expected}");
            if (norm - expected).abs() > 0.5001e-4 {
                wrong.push((name, lambda, norm, expected));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn ratios_weigh_transitions_under_every_sampling() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.csv");
    // One feature, always 1: A = (1 - gamma) mean(rho), b = mean(rho r), where nothing ends.
    std::fs::write(&path, "s_x,next_x,reward,done,ratio\n1,1,2,0,0.5\n1,1,4,0,0\n1,1,1,0,1.5\n").unwrap();
    let one = |law| field(path.to_str().unwrap(), FeatureSpec::Identity { bias: false }, &[], 0.0, law).unwrap();
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        let root = one(law).root().unwrap()[0];
        assert!((root - (0.5 * 2.0 + 1.5) / (2.0 * 0.01)).abs() < 1e-9, "{root}");
    }
}

#[test]
fn wrong_ratios_and_episodes_are_refused_with_file_and_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.csv");
    for (text, what) in [
        ("s_x,next_x,reward,done,ratio\n1,1,2,0,1\n1,1,2,0,-2\n", "line 3, column `ratio`: `-2` is not a finite number that is at least 0"),
        (
            "s_x,next_x,reward,done,episode\n1,1,2,0,0\n1,1,2,0,1\n2,1,2,0,0\n",
            "row 2, `episode`: episode 0 goes on after another one, in another state",
        ),
        ("s_x,next_x,reward,done,episode\n1,1,2,0,0.5\n", "line 2, column `episode`: `0.5` is not a whole number"),
    ] {
        std::fs::write(&path, text).unwrap();
        let files = DiskFiles::new(Places::from_env(""));
        let log = files.logs(&[path.to_str().unwrap().into()], &LogForm::default()).unwrap().remove(0);
        let e = whole(&*log).unwrap_err();
        assert!(e.key == "path" && e.what.contains(&format!("agent.csv: {what}")), "{e}");
        assert!(!e.help.is_empty());
    }
}
