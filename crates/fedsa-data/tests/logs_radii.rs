//! Theory and runs on logged transitions of agents whose physics differ: where FedLSA
//! ends, which periods SCAFFLSA survives, and that random talk has no such windows.
//!
//! Needs the logs: runs only where `FEDSA_DATA` names a folder with `transitions/`.

use std::sync::Arc;

use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_data::{DiskFiles, find::Places};
use fedsa_problems::ProblemSettings;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::replay::{Logs, Sources};
use fedsa_theory::RoundSetting;
use fedsa_theory::fedlsa::FedLsaMean;
use fedsa_theory::stability::{control_variates_radius, global_memory_radius, random_talk_radius};

/// The field of an environment's logs, mean sampling; none where the data are not.
fn field(name: &str, order: u32, ranges: &[(&str, f64, f64)]) -> Option<Arc<dyn Field>> {
    fedsa_testing::data()?;
    let settings = Logs::new(Sources::One(format!("transitions/{name}")), FeatureSpec::Fourier { order, scaled: false }, 0.99)
        .with_ranges(ranges.iter().map(|(column, low, high)| (column.to_string(), (*low, *high))).collect());
    Some(settings.field(&DiskFiles::new(Places::from_env("")), Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap())
}

fn mountaincar() -> Option<Arc<dyn Field>> {
    field("mountaincar", 3, &[("s_0", -1.2, 0.6), ("s_1", -0.07, 0.07)])
}

fn cartpole() -> Option<Arc<dyn Field>> {
    field("cartpole", 1, &[("s_0", -2.4, 2.4), ("s_1", -3.0, 3.0), ("s_2", -0.21, 0.21), ("s_3", -3.5, 3.5)])
}

/// A number as printed: right to half a unit of its last digit.
fn printed(got: f64, want: &str) {
    let digits = want.split('.').nth(1).map_or(0, str::len) as i32;
    let value: f64 = want.parse().unwrap();
    assert!((got - value).abs() <= 0.5001 * 10f64.powi(-digits), "{got} for {want}");
}

const PERIODS: [u64; 3] = [100, 1000, 10_000];

fn assert_theory(field: &Arc<dyn Field>, norm: &str, limits: [&str; 3], radii: [&str; 3]) {
    let (systems, root) = (field.systems().unwrap(), field.root().unwrap());
    printed(linalg::norm_sq(root).sqrt(), norm);
    for ((h, limit), radius) in PERIODS.into_iter().zip(limits).zip(radii) {
        let setting = RoundSetting::new(1.0, h).unwrap();
        printed(FedLsaMean::new(systems, &setting).unwrap().bias_sq().unwrap().sqrt(), limit);
        printed(control_variates_radius(systems, &setting).unwrap(), radius);
        assert!(global_memory_radius(systems, &setting).unwrap() < 1.0, "FedHSA at H = {h}");
    }
}

#[test]
fn mountaincar_is_as_computed_elsewhere() {
    let Some(field) = mountaincar() else { return };
    assert_theory(&field, "289.02", ["1.465", "7.759", "9.149"], ["0.9919", "1.0245", "0.9975"]);
    assert!(random_talk_radius(field.systems().unwrap(), 1.0, 1e-3, 1.0).unwrap() < 1.0);
}

#[test]
fn cartpole_is_as_computed_elsewhere() {
    let Some(field) = cartpole() else { return };
    assert_theory(&field, "191.46", ["23.55", "61.33", "72.20"], ["0.99967", "0.99666", "0.98984"]);
}

fn run(field: &Arc<dyn Field>, uplink: &Uplink, kind: &str, json: &str, rounds: u64) -> Run {
    let entry = fedsa_methods::KINDS.iter().find(|k| k.is_called(kind)).unwrap();
    let table: fedsa::settings::Value = serde_json::from_str(json).expect("JSON");
    let method: Box<dyn MethodSettings> = (entry.read)(&table).unwrap();
    let federation = Federation::builder(&*method).uplink(uplink).on(&**field).unwrap();
    let mut run = Run::new(field, &federation).unwrap();
    (0..rounds).for_each(|_| run.step());
    run
}

fn left(run: &Run, field: &Arc<dyn Field>) -> f64 {
    linalg::distance_sq(run.theta(), field.root().unwrap()).sqrt()
}

#[test]
fn runs_do_what_the_radii_say() {
    let Some(field) = mountaincar() else { return };
    let link = Uplink::default();
    let period = |h: u64| format!(r#"{{"step_size": 1.0, "local_steps": {h}}}"#);
    let stable = run(&field, &link, "scafflsa", &period(100), 3000);
    assert!(left(&stable, &field) < 1e-8, "{:e}", left(&stable, &field));
    // The radius is 1.0245 per round: the run diverges within a few thousand rounds.
    let unstable = run(&field, &link, "scafflsa", &period(1000), 3000);
    assert!(unstable.diverged().is_some());
    // Random talk of the same mean period converges.
    let random = run(&field, &link, "scafflsa-random", r#"{"step_size": 1.0, "talk_probability": 0.001}"#, 1000);
    println!("random talk {:e}, fixed period {:e}", left(&random, &field), left(&stable, &field));
    assert!(left(&random, &field) < 1e-9, "{:e}", left(&random, &field));
    // FedLSA stays at its limit, FedHSA at the root.
    let limit = FedLsaMean::new(field.systems().unwrap(), &RoundSetting::new(1.0, 1000).unwrap()).unwrap().limit().unwrap();
    let plain = run(&field, &link, "fedlsa", &period(1000), 600);
    assert!(linalg::distance_sq(plain.theta(), &limit).sqrt() < 1e-8, "{:e}", linalg::distance_sq(plain.theta(), &limit).sqrt());
    let memory = run(&field, &link, "fedhsa", &period(100), 6000);
    assert!(left(&memory, &field) < 1e-8, "{:e}", left(&memory, &field));
}

/// `||mean operator at theta|| / ||mean operator at 0||`.
fn residual(field: &Arc<dyn Field>, theta: &[f64]) -> f64 {
    let norm = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
    norm(theta) / norm(&vec![0.0; theta.len()])
}

/// `gmres` is at a relative residual of 1e-13 after at most d + 1 exchanges, recomputed from the weights, whatever the
/// condition of the mean system; `lstd` after one.
#[test]
fn solvers_are_as_computed_elsewhere() {
    let mountain = [("s_0", -1.2, 0.6), ("s_1", -0.07, 0.07)];
    let pole = [("s_0", -2.4, 2.4), ("s_1", -3.0, 3.0), ("s_2", -0.21, 0.21), ("s_3", -3.5, 3.5)];
    // (logs, order, d, condition number as computed elsewhere)
    for (name, order, ranges, d, condition) in [
        ("mountaincar", 3, &mountain[..], 16, None),
        ("mountaincar", 7, &mountain, 64, Some(5.2e5)),
        ("cartpole", 3, &pole, 256, Some(2.4e8)),
    ] {
        let Some(field) = field(name, order, ranges) else { return };
        assert_eq!(field.dim(), d);
        let mean = field.systems().unwrap().mean();
        if let Some(expected) = condition {
            let found = linalg::condition(&mean.a);
            assert!((found / expected - 1.0).abs() < 0.02, "{name}, order {order}: {found:e} for {expected:e}");
        }
        let link = Uplink::default();
        let gmres = run(&field, &link, "gmres", "{}", d as u64 + 1);
        let found = residual(&field, gmres.theta());
        println!("{name}, order {order}: gmres {found:e} after {} exchanges", gmres.ledger().exchanges);
        assert!(found < 1e-13 && gmres.ledger().exchanges == d as u64 + 1);
        let lstd = run(&field, &link, "lstd", "{}", 1);
        let found = residual(&field, lstd.theta());
        println!("{name}, order {order}: lstd {found:e}");
        assert!(found < 1e-13, "{found:e}");
        if order == 3 && name == "mountaincar" {
            // Below 0.3 Mbit up.
            println!("{} and {} bits up", lstd.ledger().bits_up, gmres.ledger().bits_up);
            assert!(lstd.ledger().bits_up < 300_000 && gmres.ledger().bits_up < 300_000);
        }
    }
}
