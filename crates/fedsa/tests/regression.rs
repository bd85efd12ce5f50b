//! Logistic and least-squares regression on data sets: methods of first and second order, and optima of real data.

use std::sync::Arc;
use std::time::Instant;

use crate::common::{Sets, distance, logistic, method, run_for};
use faer::Mat;
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::problem::Field;
use fedsa::sampling::{Law, Sampling};
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows};
use fedsa_problems::rows::preparation::AgentWeights;
use fedsa_problems::rows::preparation::partition::Partition;
use fedsa_problems::rows::preparation::transform::{Pca, PcaFit};
use fedsa_problems::rows::regression::Logistic;
use fedsa_problems::{NoFiles, ProblemSettings};

fn field_of(problem: &dyn ProblemSettings, kind: Law, batch: usize) -> Arc<dyn Field> {
    problem.field(&NoFiles, Sampling::default().with_kind(kind).with_batch(batch), Isa::best()).unwrap()
}

#[test]
fn methods_of_first_and_second_order_reach_the_same_optimum() {
    for sparse in [false, true] {
        let field = field_of(&*logistic(5, 12, 4, sparse), Law::Mean, 1);
        let root = field.root().unwrap().to_vec();
        for (kind, settings, rounds) in [
            ("newton", "{}", 12),
            ("scafflsa", r#"{"step_size": 0.3, "local_steps": 4}"#, 6000),
            ("fedhsa", r#"{"step_size": 0.3, "local_steps": 4}"#, 6000),
        ] {
            let run = run_for(&field, &*method(kind, settings), 0, &[0.0; 5], rounds);
            assert!(distance(run.theta(), &root) < 1e-12, "{kind}: {:e}", distance(run.theta(), &root));
        }
    }
}

/// The variance of a mean of k samples is that of one, over k; without correlations a floor follows it at small steps.
#[test]
fn mini_batches_lower_the_floor_by_their_size() {
    let problem = logistic(5, 12, 4, true);
    let floor = |batch: usize| {
        let field = field_of(&*problem, Law::Iid, batch);
        let root = field.root().unwrap().to_vec();
        let scafflsa = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 4}"#);
        let mut mean = crate::common::Mean::default();
        for seed in 0..30 {
            let mut run = crate::common::run_from(&field, &*scafflsa, seed, &root);
            (0..1500).for_each(|_| {
                run.step();
            });
            let mut sum = 0.0;
            for _ in 0..300 {
                run.step();
                sum += distance(run.theta(), &root).powi(2) / 300.0;
            }
            mean.see(sum);
        }
        mean
    };
    let (one, eight) = (floor(1), floor(8));
    let ratio = one.value() / eight.value();
    let error = ratio * ((one.error() / one.value()).powi(2) + (eight.error() / eight.value()).powi(2)).sqrt();
    // The noise is not the same all over the floor: 10%.
    assert!((ratio - 8.0).abs() < 4.0 * error + 0.8, "{ratio} +- {error}");
}

/// LIBSVM text with all columns to `d`.
fn libsvm(name: &str, d: usize) -> Option<Dataset> {
    let text = std::fs::read_to_string(fedsa_testing::data()?.join(name)).unwrap();
    let (mut starts, mut index, mut value, mut labels) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        labels.push(words.next().unwrap().parse().unwrap());
        for (i, x) in words.map(|word| word.split_once(':').unwrap()) {
            index.push(i.parse::<u32>().unwrap() - 1);
            value.push(x.parse().unwrap());
        }
        starts.push(index.len());
    }
    let columns = (0..d).map(|i| i.to_string()).collect();
    let rows = Rows::Sparse { d, starts, index, value };
    Some(Dataset {
        name: name.into(),
        columns,
        rows,
        targets: Some(Labels::Numbers(labels)),
        groups: None,
        texts: Vec::new(),
        notes: Vec::new(),
    })
}

/// The loss at the optimum of w8a, 8 agents of equal weight with rows in the file's order, is that of SciPy's L-BFGS-B and Newton steps on the same
/// losses.
#[test]
fn the_optimum_of_w8a_is_that_of_an_independent_solver() {
    let Some(set) = libsvm("libsvm/w8a", 300) else { return };
    let settings = Logistic { agents: Some(8), ridge: 1e-5, weighting: AgentWeights::Equal, ..Logistic::new(Sources::One("w8a".into())) };
    let prepared = settings.prepare(&Sets(vec![set])).unwrap();
    let start = Instant::now();
    let field = settings.field_of(prepared.train, prepared.weights, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap();
    println!("w8a: optimum in {:?}", start.elapsed());
    let root = field.root().unwrap();
    let gradient = linalg::norm_sq(&field.mean_operator(root).unwrap()).sqrt();
    assert!(gradient <= 1e-12, "{gradient:e}");
    let loss = field.mean_loss(root).unwrap();
    assert!((loss - 0.121_423_288_194_673_3).abs() < 1e-15 * 10.0, "{loss:?}");
    let objective = field.facts().objective().unwrap();
    let (mut h, mut g) = (Mat::zeros(300, 300), vec![0.0; 300]);
    let start = Instant::now();
    (0..8).for_each(|c| objective.hessian(c, root, &mut h));
    println!("w8a: Hessians of all rows in {:?}", start.elapsed());
    let start = Instant::now();
    (0..8).for_each(|c| objective.gradient(c, root, &mut g));
    println!("w8a: gradients of all rows in {:?}", start.elapsed());
    let start = Instant::now();
    let mut losses = [0.0; 21];
    let steps: Vec<f64> = (0..21).map(|k| 0.5f64.powi(k)).collect();
    (0..8).for_each(|c| objective.losses_along(c, root, &g, &steps, &mut losses));
    println!("w8a: 21 losses of all rows in {:?}", start.elapsed());
}

/// Not a test of numbers: what Hessians of dense rows cost beside a product of matrices of the same size.
#[test]
#[ignore = "measures time"]
fn dense_hessians_run_at_the_speed_of_matrix_products() {
    let (agents, n, d) = (4, 500, 300);
    let settings = Logistic { agents: Some(agents), ridge: 0.1, ..Logistic::new(Sources::One("x".into())) };
    let field = settings.field(&Sets(vec![crate::common::data_set(agents * n, d, false, true)]), Sampling::default(), Isa::best()).unwrap();
    let objective = field.facts().objective().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let best = |see: &mut dyn FnMut()| {
        let once = |see: &mut dyn FnMut()| {
            let start = Instant::now();
            see();
            start.elapsed().as_secs_f64()
        };
        (0..30).map(|_| once(see)).fold(f64::INFINITY, f64::min)
    };
    let theta = vec![0.01; d];
    let (mut h, mut g, x) = (Mat::zeros(d, d), vec![0.0; d], Mat::<f64>::from_fn(n, d, |i, j| (i + j) as f64));
    pool.install(|| {
        let hessian = best(&mut || objective.hessian(0, &theta, &mut h));
        let gradient = best(&mut || objective.gradient(0, &theta, &mut g));
        let mut product = Mat::<f64>::zeros(d, d);
        let whole = best(&mut || {
            faer::linalg::matmul::matmul(&mut product, faer::Accum::Replace, x.transpose(), &x, 1.0, faer::Par::Seq);
        });
        // Half of the products are needed.
        let flops = (n * d * d) as f64;
        println!(
            "Hessian {:.1} us, {:.1} GFlop/s of n d^2; X'X {:.1} us, {:.1} GFlop/s of 2 n d^2; gradient {:.1} us, {:.1} GFlop/s",
            1e6 * hessian,
            flops / hessian / 1e9,
            1e6 * whole,
            2.0 * flops / whole / 1e9,
            1e6 * gradient,
            4.0 * (n * d) as f64 / gradient / 1e9
        );
    });
}

/// Bytes of Fashion-MNIST, which are not in order: `images` and `labels` files without compression, in the folder `FEDSA_RAW`.
fn fashion() -> Option<Dataset> {
    let folder = std::path::PathBuf::from(std::env::var("FEDSA_RAW").ok()?);
    let (images, labels) = (std::fs::read(folder.join("images")).ok()?, std::fs::read(folder.join("labels")).ok()?);
    let values = images[16..].iter().map(|x| f64::from(*x)).collect();
    let labels = Labels::Numbers(labels[8..].iter().map(|x| f64::from(*x)).collect());
    let columns = (0..784).map(|i| i.to_string()).collect();
    Some(Dataset {
        name: "fashion".into(),
        columns,
        rows: Rows::Dense { d: 784, values },
        targets: Some(labels),
        groups: None,
        texts: Vec::new(),
        notes: Vec::new(),
    })
}

/// Losses at the optima of the thesis' settings, for several scales and centrings.
#[test]
#[ignore = "prints numbers of a large data set"]
fn optima_of_fashion_mnist() {
    let Some(set) = fashion() else { return };
    for (divide_by, centre, partition, ridge) in [
        (255.0, false, Partition::Shuffled, 1e-6),
        (255.0, true, Partition::Shuffled, 1e-6),
        (255.0, false, Partition::Shuffled, 1e-5),
        (255.0, false, Partition::ByLabel, 1e-6),
    ] {
        let settings = Logistic {
            agents: Some(28),
            samples: Some(500),
            ridge,
            divide_by,
            positive: Some(fedsa_problems::rows::preparation::targets::ClassLabel::Number(1.0)),
            pca: Some(Pca::new(300).with_centre(centre).with_fit(PcaFit::Union)),
            partition,
            ..Logistic::new(Sources::One("x".into()))
        };
        let start = Instant::now();
        let prepared = settings.prepare(&Sets(vec![set.clone()])).unwrap();
        let ready = start.elapsed();
        let field = settings.field_of(prepared.train, prepared.weights, Sampling::default(), Isa::best()).unwrap();
        let root = field.root().unwrap();
        println!(
            "/{divide_by} centre {centre} {partition:?} ridge {ridge:e}: f* = {:.6}, prepared in {ready:?}, optimum in {:?}",
            field.mean_loss(root).unwrap(),
            start.elapsed() - ready
        );
    }
}
