//! TD on logs with features of every kind: read in batches, dependent, with a ridge, scaled, logged, and sparse tiles.

use std::sync::Arc;

use crate::common::{bits, distance, method, run};
use fedsa::error::Result;
use fedsa::kernel::Isa;
use fedsa::linalg::{self, Mat};
use fedsa::problem::Field;
use fedsa::problem::arrays::Arrays;
use fedsa::problem::root::{Root, RootSource};
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_problems::features::{FeatureMap, FeatureSpec, Ranges, SPARSE_ABOVE};
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::replay::{Logs, Scaling, Sources};
use fedsa_problems::logs::source::{Inputs, LogSource};
use fedsa_problems::{Files, NoFiles, ProblemSettings};

const GAMMA: f64 = 0.9;

/// Logs that are read in batches of a size.
#[derive(Clone)]
struct Batches(Vec<Log>, usize);

struct Batched(Log, usize);

impl LogSource for Batched {
    fn name(&self) -> &str {
        &self.0.name
    }
    fn columns(&self) -> &[String] {
        &self.0.columns
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        let first: Vec<usize> = (0..self.0.len()).step_by(self.1).collect();
        first.into_iter().try_for_each(|first| see(&self.0.filtered(|row| (first..first + self.1).contains(&row))))
    }
}

impl Files for Batches {
    fn arrays(&self, path: &str) -> Result<Arrays> {
        NoFiles.arrays(path)
    }
    fn logs(&self, _: &[String], _: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        Ok(self.0.iter().map(|log| Box::new(Batched(log.clone(), self.1)) as Box<dyn LogSource>).collect())
    }
}

/// Random walks of two columns in the unit square, three agents; episodes of 7 end in a terminal state or are cut, in turns.
fn walks() -> Vec<Log> {
    let mut s = stream(11, Purpose::Fresh, 0, 0);
    let log = |(c, n): (usize, usize)| {
        let (mut at, mut states, mut next) = ([0.5, 0.5], Vec::new(), Vec::new());
        for t in 0..n {
            if t % 7 == 0 {
                at = [s.uniform(), s.uniform()];
            }
            states.extend(at);
            at = at.map(|x: f64| (x + 0.2 * s.normal()).clamp(0.0, 1.0));
            next.extend(at);
        }
        Log {
            name: format!("agent {c}"),
            columns: ["s_x", "s_y"].map(String::from).to_vec(),
            rewards: (0..n).map(|_| s.normal()).collect(),
            states,
            next,
            done: (0..n).map(|t| t % 14 == 6).collect(),
            truncated: None,
            breaks: None,
            actions: None,
            episode: Some((0..n).map(|t| (t / 7) as i64).collect()),
            ratio: Some((0..n).map(|_| 2.0 * s.uniform()).collect()),
        }
    };
    [(0, 400), (1, 900), (2, 77)].into_iter().map(log).collect()
}

fn settings(features: &str) -> Logs {
    let ranges: Ranges = ["s_x", "s_y"].into_iter().map(|column| (column.to_string(), (0.0, 1.0))).collect();
    Logs::new(Sources::One(String::new()), features.parse().unwrap(), GAMMA).with_ranges(ranges)
}

fn of(settings: &Logs, logs: &[Log], kind: Law) -> Arc<dyn Field> {
    settings.field(&Batches(logs.to_vec(), 100), Sampling::default().with_kind(kind), Isa::best()).unwrap()
}

/// `Abar` and `bbar` of one log by their definition, with ratios and without traces.
fn system(log: &Log, map: &FeatureMap) -> (Mat<f64>, Vec<f64>) {
    let (d, n) = (map.len(), log.len() as f64);
    let (mut a, mut b) = (Mat::zeros(d, d), vec![0.0; d]);
    let (mut phi, mut next) = (vec![0.0; d], vec![0.0; d]);
    for t in 0..log.len() {
        map.eval(log.state(t), &mut phi);
        map.eval(log.next_state(t), &mut next);
        let gamma = if log.done[t] { 0.0 } else { GAMMA };
        let ratio = log.ratio.as_ref().map_or(1.0, |ratio| ratio[t]);
        for i in (0..d).filter(|i| phi[*i] != 0.0) {
            b[i] += ratio * phi[i] * log.rewards[t] / n;
            (0..d).for_each(|j| a[(i, j)] += ratio * phi[i] * (phi[j] - gamma * next[j]) / n);
        }
    }
    (a, b)
}

fn map(settings: &Logs, logs: &[Log]) -> FeatureMap {
    settings.map(&settings.survey(&Batches(logs.to_vec(), 100)).unwrap()).unwrap()
}

fn close(x: &[f64], y: &[f64], tolerance: f64) {
    let size = linalg::norm_sq(y).sqrt();
    assert!(distance(x, y) <= tolerance * (1.0 + size), "{} of {size}", distance(x, y));
}

#[test]
fn means_do_not_depend_on_batches() {
    let logs = walks();
    for (features, lambda) in [
        ("fourier:2", 0.0),
        ("fourier:2", 0.7),
        ("tiles:5x15", 0.0),
        ("tiles:5x15", 0.4),
        ("tiles:4x20(s_y) * tiles:2x15", 0.0),
        (MIXED, 0.0),
    ] {
        let settings = settings(features).with_lambda(lambda);
        let theta: Vec<f64> = (0..map(&settings, &logs).len()).map(|i| (i as f64).sin()).collect();
        let means = |size: usize| {
            let sampling = Sampling::default().with_kind(Law::Mean);
            let field = settings.field(&Batches(logs.clone(), size), sampling, Isa::best()).unwrap();
            let mut out = vec![0.0; field.dim()];
            (0..3)
                .flat_map(|c| {
                    assert!(field.mean(c, &theta, &mut out));
                    bits(&out)
                })
                .collect::<Vec<_>>()
        };
        let whole = means(usize::MAX / 2);
        for size in [1, 7, 100, 256] {
            assert_eq!(means(size), whole, "{features}, lambda {lambda}, batches of {size}");
        }
    }
}

#[test]
fn sparse_tiles_have_the_operators_of_their_definition() {
    let logs = walks();
    for (tiles, ridge) in [("tiles:5x15", 0.0), ("tiles:5x15", 0.25), ("tiles:4x60@1200", 0.0), ("tiles:4x20(s_x) * tiles:2x15(s_y)", 0.25)]
    {
        let settings = settings(tiles).with_ridge(ridge);
        let map = map(&settings, &logs);
        assert!(map.len() > SPARSE_ABOVE && map.sparse().is_some());
        let theta: Vec<f64> = (0..map.len()).map(|i| (i as f64).sin()).collect();
        let fields: Vec<_> = [Law::Mean, Law::Iid, Law::Markov].map(|law| of(&settings, &logs, law)).into();
        for (c, log) in logs.iter().enumerate() {
            let (mut a, b) = system(log, &map);
            (0..map.len()).for_each(|i| a[(i, i)] += ridge);
            let product = linalg::mat_vec(&a, &theta);
            let operator: Vec<f64> = b.iter().zip(&product).map(|(b, x)| b - x).collect();
            for field in &fields {
                let mut out = vec![f64::NAN; map.len()];
                assert!(field.mean(c, &theta, &mut out));
                close(&out, &operator, 1e-14);
                let linear = field.facts().linear_operators().unwrap();
                linear.product(c, &theta, &mut out);
                close(&out, &product, 1e-14);
                linear.offset(c, &mut out);
                close(&out, &b, 1e-14);
                let mut entries = Mat::<f64>::zeros(map.len(), map.len());
                let mut last = None;
                linear.entries(c, &mut |i, j, x| {
                    assert!(last < Some((i, j)) && x != 0.0, "entries come row by row, none twice");
                    last = Some((i, j));
                    entries[(i, j)] = x;
                });
                assert!((&entries - &a).norm_max() < 1e-14);
            }
        }
        assert!(fields.iter().all(|field| field.systems().is_none() && field.solution().unwrap_err().contains("sparse")));
    }
}

/// A product of tiles and a map without zeros: 4200 features, of which 60 are active.
const MIXED: &str = "tiles:1x70(s_y) * fourier:59";

/// Against sums over all features of all rows: systems of so many features are not formed here.
#[test]
fn products_with_dense_maps_have_the_operators_of_their_definition() {
    let (logs, settings) = (walks(), settings(MIXED).with_ridge(0.25));
    let map = map(&settings, &logs);
    assert_eq!((map.len(), map.sparse(), map.is_mixed()), (4200, Some((60, 1.0)), true));
    let theta: Vec<f64> = (0..map.len()).map(|i| (i as f64).sin()).collect();
    let fields: Vec<_> = [Law::Mean, Law::Iid].map(|law| of(&settings, &logs, law)).into();
    for (c, log) in logs.iter().enumerate() {
        let (mut b, mut product) = (vec![0.0; map.len()], vec![0.0; map.len()]);
        let (mut phi, mut next) = (vec![0.0; map.len()], vec![0.0; map.len()]);
        for t in 0..log.len() {
            map.eval(log.state(t), &mut phi);
            map.eval(log.next_state(t), &mut next);
            if log.done[t] {
                next.fill(0.0);
            }
            let weight = log.ratio.as_ref().map_or(1.0, |ratio| ratio[t]) / log.len() as f64;
            let fall = linalg::dot(&phi, &theta) - settings.gamma * linalg::dot(&next, &theta);
            linalg::add_scaled(&mut b, weight * log.rewards[t], &phi);
            linalg::add_scaled(&mut product, weight * fall, &phi);
        }
        linalg::add_scaled(&mut product, 0.25, &theta);
        let operator: Vec<f64> = b.iter().zip(&product).map(|(b, x)| b - x).collect();
        for field in &fields {
            let mut out = vec![f64::NAN; map.len()];
            assert!(field.mean(c, &theta, &mut out));
            close(&out, &operator, 1e-13);
            let linear = field.facts().linear_operators().unwrap();
            linear.product(c, &theta, &mut out);
            close(&out, &product, 1e-13);
            linear.offset(c, &mut out);
            close(&out, &b, 1e-13);
            out.fill(0.0);
            linear.entries(c, &mut |i, j, x| out[i] += x * theta[j]);
            close(&out, &product, 1e-13);
        }
    }
    // The least squares of GMRES are those of the same operators.
    let field = of(&settings, &logs, Law::Mean);
    let mut engine = run(&field, &*method("gmres", "{}"), &Uplink::default(), 0);
    let residual = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
    let before = residual(&vec![0.0; map.len()]);
    (0..80).for_each(|_| engine.step());
    assert!(residual(engine.theta()) < 1e-6 * before, "{} of {before}", residual(engine.theta()));
}

/// Steps that touch active tiles only are the steps of the generic kernel: to the bit without drift, to rounding with it.
#[test]
fn sparse_steps_are_those_of_the_generic_kernel() {
    let logs = walks();
    for (law, features) in
        [(Law::Iid, "tiles:5x15"), (Law::Markov, "tiles:5x15"), (Law::Iid, "tiles:4x20(s_y) * tiles:2x15"), (Law::Markov, MIXED)]
    {
        for (kind, steps) in [("fedlsa", 40), ("fedhsa", 40), ("scafflsa", 25)] {
            let method = method(kind, &format!(r#"{{"step_size": 0.4, "local_steps": {steps}}}"#));
            let uplink = Uplink::default();
            let theta = |field: &Arc<dyn Field>| {
                let mut run = run(field, &*method, &uplink, 3);
                (0..6).for_each(|_| run.step());
                run.theta().to_vec()
            };
            let settings = settings(features);
            let fast = theta(&of(&settings, &logs, law));
            let slow = theta(&of(&settings, &logs, law).generic());
            if kind == "fedlsa" {
                assert_eq!(bits(&fast), bits(&slow), "{kind} {law:?}");
            } else {
                close(&fast, &slow, 1e-13);
            }
            assert!(linalg::norm_sq(&fast) > 0.1);
        }
    }
}

/// The mean of many samples at one point is the mean operator, ratios included.
#[test]
fn sparse_samples_have_their_mean() {
    let logs = walks();
    let field = of(&settings("tiles:5x15"), &logs, Law::Iid);
    let theta: Vec<f64> = (0..field.dim()).map(|i| (i as f64).sin()).collect();
    let mut mean = vec![0.0; field.dim()];
    for c in 0..3 {
        field.mean(c, &theta, &mut mean);
        // Along a direction in which all tiles take part.
        let along = |g: &[f64]| g.iter().enumerate().map(|(i, g)| g * (1.0 + (0.7 * i as f64).cos())).sum::<f64>();
        let mut seen = crate::common::Mean::default();
        crate::common::noise_of(&field, c, &theta, 20_000).iter().for_each(|noise| seen.see(along(noise)));
        assert!(seen.off(0.0) < 4.0, "agent {c}: {} standard errors", seen.off(0.0));
        assert!(seen.error() > 0.0 && along(&mean) != 0.0);
    }
}

/// Agents that visit few of the tiles answer with few numbers that are not 0: of dense features, and of sparse ones.
#[test]
fn gmres_takes_answers_that_are_mostly_zeros() {
    let logs: Vec<Log> = walks().iter().map(|log| log.filtered(|row| row < 150)).collect();
    // A space that starts anew converges more slowly.
    let cases = [("tiles:1x30", "{}", 1e-10), ("tiles:5x15", "{}", 1e-10), ("tiles:5x15", r#"{"restart": 120}"#, 1e-3)];
    for (features, gmres, most) in cases {
        let field = of(&settings(features), &logs, Law::Mean);
        let (gmres, uplink) = (method("gmres", gmres), Uplink::default());
        let mut engine = run(&field, &*gmres, &uplink, 0);
        let mut halves = crate::common::Halves::new(&field, &*gmres, &uplink, 0).unwrap();
        for _ in 0..500 {
            engine.step();
            halves.round();
        }
        assert_eq!(bits(engine.theta()), bits(halves.server.theta()), "{features}");
        assert_eq!(halves.ledger, crate::common::on_the_wire(engine.ledger()), "{features}");
        let residual = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
        let left = residual(engine.theta()) / residual(&vec![0.0; field.dim()]);
        println!("{features} {gmres:?}: {left:.1e}");
        assert!(left < most, "{features} {gmres:?}: {left}");
        let dense = 500 * 3 * 8 * 8 * field.dim() as u64;
        assert!(engine.ledger().bits_up < dense * 2 / 3, "answers are sent sparse: {} of {dense}", engine.ledger().bits_up);
    }
}

/// The least-norm solution of the pooled system by definition: limits of ridges are found at ever smaller ones.
#[test]
fn dependent_features_have_the_solution_of_least_norm() {
    let logs = walks();
    let settings = settings("tiles:3x4");
    let map = map(&settings, &logs);
    assert_eq!(map.len(), 48);
    let field = of(&settings, &logs, Law::Mean);
    let Ok(Root { theta: root, source: RootSource::LeastNorm { rank } }) = field.solution() else { panic!("{:?}", field.solution()) };
    // Three tilings share their constant, and more.
    assert!((16..46).contains(rank), "{rank}");
    let (mut a, mut b) = (Mat::<f64>::zeros(48, 48), vec![0.0; 48]);
    for (log, p) in logs.iter().zip(field.weights()) {
        let own = system(log, &map);
        a += linalg::Mat::from_fn(48, 48, |i, j| p * own.0[(i, j)]);
        b.iter_mut().zip(own.1).for_each(|(b, own)| *b += p * own);
    }
    close(&linalg::mat_vec(&a, root), &b, 1e-12);
    // Least norm: nothing of the null space of A, which features of no state are in.
    let gap = a.transpose() * &a;
    let values = gap.self_adjoint_eigen(faer::Side::Lower).unwrap();
    let (vectors, sizes) = (values.U(), values.S().column_vector());
    let mut order: Vec<usize> = (0..48).collect();
    order.sort_by(|i, j| sizes[*i].abs().total_cmp(&sizes[*j].abs()));
    let (null, rest) = order.split_at(48 - rank);
    assert!(sizes[rest[0]] > 1e4 * sizes[null[null.len() - 1]].abs(), "{sizes:?}");
    for k in null {
        let part: f64 = (0..48).map(|i| vectors[(i, *k)] * root[i]).sum();
        assert!(part.abs() < 1e-8, "{part}");
    }
    let residual = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
    let uplink = Uplink::default();
    for (kind, rounds) in [("lstd", 1), ("gmres", rank + 2)] {
        let mut run = run(&field, &*method(kind, "{}"), &uplink, 0);
        (0..rounds).for_each(|_| run.step());
        assert!(residual(run.theta()) < 1e-12 * residual(&[0.0; 48]), "{kind}: {}", residual(run.theta()));
    }
    // Long after it is at the solution it is still there, although what is left of the residual is rounding.
    let mut long = run(&field, &*method("gmres", "{}"), &uplink, 0);
    (0..rank + 300).for_each(|_| long.step());
    assert!(distance(long.theta(), root) < 1e-7 * linalg::norm_sq(root).sqrt(), "{}", distance(long.theta(), root));
    let more = of(&self::settings("tiles:6x6"), &logs, Law::Mean);
    let mut long = run(&more, &*method("gmres", "{}"), &uplink, 0);
    (0..500).for_each(|_| long.step());
    let root = more.root().unwrap();
    assert!(distance(long.theta(), root) < 1e-6 * linalg::norm_sq(root).sqrt(), "{}", distance(long.theta(), root));
    // The same of many more tiles, whose systems are sparse: restricted to the tiles that are visited it is dense.
    let field = of(&self::settings("tiles:5x15"), &logs, Law::Mean);
    let mut run = run(&field, &*method("lstd", "{}"), &uplink, 0);
    run.step();
    let residual = |theta: &[f64]| linalg::norm_sq(&field.mean_operator(theta).unwrap()).sqrt();
    assert!(residual(run.theta()) < 1e-10 * residual(&vec![0.0; field.dim()]), "{}", residual(run.theta()));
}

#[test]
fn a_ridge_is_added_to_means_samples_and_laws() {
    let logs = walks();
    let (without, with) = (settings("fourier:1"), settings("fourier:1").with_ridge(0.5));
    let theta = [0.3, -1.0, 2.0, 0.5];
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        let (plain, ridge) = (of(&without, &logs, law), of(&with, &logs, law));
        for c in 0..3 {
            let (mut a, mut b) = (vec![0.0; 4], vec![0.0; 4]);
            assert!(plain.mean(c, &theta, &mut a) && ridge.mean(c, &theta, &mut b));
            let expected: Vec<f64> = a.iter().zip(theta).map(|(g, theta)| g - 0.5 * theta).collect();
            close(&b, &expected, 1e-14);
            ridge.facts().linear_operators().unwrap().product(c, &theta, &mut b);
            plain.facts().linear_operators().unwrap().product(c, &theta, &mut a);
            close(&b, &a.iter().zip(theta).map(|(x, theta)| x + 0.5 * theta).collect::<Vec<_>>(), 1e-14);
            if law != Law::Mean {
                // Samples without ridge, less the ridge.
                let noise = |field: &Arc<dyn Field>| crate::common::noise_of(field, c, &theta, 50);
                for (x, y) in noise(&plain).iter().zip(&noise(&ridge)) {
                    close(y, x, 1e-13);
                }
                close(&ridge.facts().law(c).unwrap().mean(&theta), &expected, 1e-12);
            }
        }
        let root = ridge.root().unwrap();
        assert!(linalg::norm_sq(&ridge.mean_operator(root).unwrap()).sqrt() < 1e-13);
    }
}

#[test]
fn scaled_features_have_equal_squares_and_the_same_values() {
    let logs: Vec<Log> = walks().into_iter().map(|log| Log { ratio: None, ..log }).collect();
    let plain = settings("polynomial:2");
    let scaled = plain.clone().with_scaling(Scaling::EqualSquares);
    let (a, b) = (map(&plain, &logs), map(&scaled, &logs));
    let mut squares = vec![0.0; b.len()];
    let (mut phi, mut other) = (vec![0.0; b.len()], vec![0.0; b.len()]);
    for log in &logs {
        for t in 0..log.len() {
            b.eval(log.state(t), &mut phi);
            squares.iter_mut().zip(&phi).for_each(|(sum, x)| *sum += x * x / 1377.0);
        }
    }
    close(&squares, &[1.0 / 6.0; 6], 1e-13);
    let roots = [&plain, &scaled].map(|settings| of(settings, &logs, Law::Mean).root().unwrap().to_vec());
    for t in 0..20 {
        a.eval(logs[0].state(t), &mut phi);
        b.eval(logs[0].state(t), &mut other);
        let value = |phi: &[f64], theta: &[f64]| phi.iter().zip(theta).map(|(x, w)| x * w).sum::<f64>();
        assert!((value(&phi, &roots[0]) - value(&other, &roots[1])).abs() < 1e-10);
    }
}

#[test]
fn features_that_were_logged_are_taken_as_they_are() {
    let logs = walks();
    let renamed: Vec<Log> = logs.iter().map(|log| Log { columns: ["phi_a", "phi_b"].map(String::from).to_vec(), ..log.clone() }).collect();
    let of = |features: &str, logs: &[Log]| {
        let settings = settings(features).with_ranges(Ranges::new());
        of(&settings, logs, Law::Mean).root().unwrap().to_vec()
    };
    assert_eq!(bits(&of("columns", &renamed)), bits(&of("identity", &logs)));
    let spec = FeatureSpec::Columns {};
    assert_eq!((spec.inputs(), spec.inputs().prefixes()), (Inputs::Features, ("phi_", "phi_next_")));
    let with_ranges = FeatureMap::new(&spec, &renamed[0].columns, &Ranges::from([("phi_a".into(), (0.0, 1.0))]));
    assert!(with_ranges.unwrap_err().what.starts_with("a range of `phi_a`"));
}

#[test]
fn what_does_not_go_together_is_refused() {
    let logs = Batches(walks(), 100);
    let refused = |settings: &Logs, kind: Law| {
        let sampling = Sampling::default().with_kind(kind);
        settings.field(&logs, sampling, Isa::best()).err().expect("refused").to_string()
    };
    let huge = settings("tiles:8x200");
    assert_eq!(refused(&huge.clone().with_lambda(0.5), Law::Mean), "features: 320000 of tiles:8x200, and traces are not sparse");
    assert!(refused(&huge.with_scaling(Scaling::EqualSquares), Law::Mean).contains("their scales differ"));
    assert!(refused(&settings("fourier:1").with_ridge(-1.0), Law::Mean).starts_with("ridge: "));
    assert!(refused(&settings("fourier:1").with_ridge(f64::NAN), Law::Iid).starts_with("ridge: "));
    let regular = settings("tiles:5x15").with_require_regular_agents(true);
    assert!(refused(&regular, Law::Mean).starts_with("require_regular_agents: "));
    // What is scaled is dense, and its memory is that of dense matrices.
    let scaled = settings("tiles:5x15").with_scaling(Scaling::EqualSquares);
    for (settings, dense) in [(&scaled, true), (&settings("tiles:5x15"), false)] {
        let memory = settings.memory(&logs, Sampling::default().with_kind(Law::Mean), 2).unwrap();
        assert_eq!(memory.kept > 3.0 * 8.0 * 1125.0 * 1125.0, dense, "{memory:?}");
    }
    let other = Batches(vec![walks()[0].clone(), Log { columns: vec!["s_x".into(), "s_z".into()], ..walks()[1].clone() }], 100);
    let e = settings("fourier:1").field(&other, Sampling::default().with_kind(Law::Mean), Isa::best()).err().unwrap();
    assert_eq!(e.to_string(), "agent 1: its state columns are s_x, s_z, but those of agent 0 are s_x, s_y");
}

/// Quantiles and moments are those of all agents' states; numbers by the definitions of NumPy, `quantile` and `std`.
#[test]
fn statistics_are_those_of_the_states_of_all_agents() {
    let logs = walks();
    let column = |j: usize| -> Vec<f64> {
        let mut all: Vec<f64> = logs.iter().flat_map(|log| (0..log.len()).map(|t| log.state(t)[j]).collect::<Vec<_>>()).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let quantiles = map(&settings("radial:4:quantiles"), &logs);
    let moments = map(&settings("standardised"), &logs);
    assert_eq!((quantiles.len(), moments.len()), (16, 3));
    for (j, name) in ["s_x", "s_y"].into_iter().enumerate() {
        let all = column(j);
        let n = all.len() as f64;
        for (c, centre) in quantiles.statistics().centres[name].iter().enumerate() {
            let place = (c as f64 + 0.5) / 4.0 * (n - 1.0);
            let (below, above) = (all[place as usize], all[place as usize + 1]);
            close(&[*centre], &[below + place.fract() * (above - below)], 1e-15);
        }
        let mean = all.iter().sum::<f64>() / n;
        let std = (all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n).sqrt();
        let (found_mean, found_std) = moments.statistics().moments[name];
        close(&[found_mean, found_std], &[mean, std], 1e-13);
    }
    // Nothing of it depends on batches, nor on which kernels fields take.
    for features in ["radial:4:quantiles", "standardised", "fourier:2:scaled", "radial:3:quantiles(s_y) * standardised"] {
        let settings = settings(features);
        let field = of(&settings, &logs, Law::Mean);
        let map = map(&settings, &logs);
        let (mut a, mut b) = (Mat::<f64>::zeros(map.len(), map.len()), vec![0.0; map.len()]);
        for (log, p) in logs.iter().zip(field.weights()) {
            let (own_a, own_b) = system(log, &map);
            a += linalg::Mat::from_fn(map.len(), map.len(), |i, j| p * own_a[(i, j)]);
            b.iter_mut().zip(own_b).for_each(|(b, own)| *b += p * own);
        }
        let mean = field.systems().unwrap().mean();
        close(&mean.b, &b, 1e-13);
        (0..map.len()).for_each(|j| close(mean.a.col_as_slice(j), a.col_as_slice(j), 1e-13));
    }
}
