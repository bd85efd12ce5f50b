//! Measures second-order methods on w8a, which is found as `fedsa fit libsvm/w8a` finds it. `cargo xtask bench` runs it.
//!
//! Prints one JSON object a line: the seconds of what is measured on one thread and on two, and the peer beside it.

#[path = "../../../benchmarks/machine.rs"]
mod machine;

use std::hint::black_box;
use std::sync::Arc;

use faer::Mat;
use fedsa::eigenpairs::Eigenpairs;
use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::method::MethodSettings;
use fedsa::problem::Field;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::uplink::Uplink;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_methods::fednl::{Compression, FedNl};
use fedsa_methods::shed::Shed;
use fedsa_problems::logs::replay::Sources;
use fedsa_problems::rows::regression::Logistic;
use machine::{Machine, Work, least, reading};
use rayon::prelude::*;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let data = || Sources::One("libsvm/w8a".into());
    let files = DiskFiles::new(Places::from_env(""));
    let sampling = Sampling::default().with_kind(Law::Mean);
    let of = |settings: &Logistic| -> Result<(Arc<dyn Field>, Work), Failure> {
        let prepared = settings.prepare(&files)?;
        let work = Work::of(&prepared.train.rows);
        Ok((settings.field_of(prepared.train, prepared.weights, sampling, Isa::best())?, work))
    };
    let (many, of_many) = of(&Logistic { agents: Some(142), samples: Some(350), ridge: 1e-3, intercept: true, ..Logistic::new(data()) })?;
    // First, so that the peak of memory is that of this problem alone.
    fednl_to_the_end(&many);
    let machine = Machine::measured();
    fednl(&many, &machine, &of_many);
    drop(many);
    let eight = Logistic { agents: Some(8), ridge: 1e-5, ..Logistic::new(data()) };
    rows(&eight);
    let (eight, of_eight) = of(&eight)?;
    shed(&eight);
    hessians(&eight, &machine, &of_eight);
    agents(&eight);
    pairs(&eight);
    Ok(())
}

fn report(name: &str, [one, two]: [f64; 2], more: serde_json::Value) {
    let mut result = serde_json::json!({ "one_s": one, "two_s": two, "speedup": one / two });
    result.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    println!("{}", serde_json::json!({ "name": name, "result": result }));
}

/// Reading the file, and reading it and handing its rows to the agents. The second and later readings of each: the file is in memory.
fn rows(settings: &Logistic) {
    let files = || DiskFiles::new(Places::from_env(""));
    let read = least(5, || {
        black_box(settings.read(&files()).expect("it was read before"));
    });
    let prepared = least(5, || {
        black_box(settings.prepare(&files()).expect("it was prepared before"));
    });
    report("reading w8a", read, serde_json::json!({}));
    report("reading w8a, with its rows at 8 agents", prepared, serde_json::json!({}));
}

fn started(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> Run {
    Federation::builder(method)
        .uplink(uplink)
        .seed(0)
        .on(&**field)
        .and_then(|federation| Run::new(field, &federation))
        .expect("an exact link suits every method")
}

/// A whole Fib-SHED fit: 345 rounds, which take the gradient to 1e-9.
fn shed(field: &Arc<dyn Field>) {
    let uplink = Uplink::default();
    let fit = least(3, || {
        let mut run = started(field, &Shed::default(), &uplink);
        (0..345).for_each(|_| run.step());
        black_box(run.theta());
    });
    report("Fib-SHED, 8 agents, 345 rounds", fit, serde_json::json!({}));
}

/// FedNL with the largest 8 d entries.
fn top_k() -> FedNl {
    FedNl::default().with_compressor(Compression::TopK)
}

/// The norm of the mean gradient.
fn gradient_norm(field: &Arc<dyn Field>, theta: &[f64]) -> f64 {
    let objective = field.facts().objective().expect("an objective");
    let (mut mean, mut one) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
    for (c, p) in field.weights().iter().enumerate() {
        objective.gradient(c, theta, &mut one);
        mean.iter_mut().zip(&one).for_each(|(mean, one)| *mean += p * one);
    }
    mean.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// A run of FedNL until the norm of the gradient is at most 1e-12: its rounds, which are counted in a run that is not measured, its seconds
/// without reading the data, and on Linux the peak of the memory of the process after the first run, with reading.
fn fednl_to_the_end(field: &Arc<dyn Field>) {
    let (uplink, method) = (Uplink::default(), top_k());
    let mut run = started(field, &method, &uplink);
    let rounds = (1..=100).find(|_| {
        run.step();
        gradient_norm(field, run.theta()) <= 1e-12
    });
    drop(run);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let seconds = least(5, || {
        let mut run = started(field, &method, &uplink);
        (0..rounds.unwrap_or(100)).for_each(|_| run.step());
        black_box(run.theta());
    });
    report("FedNL Top-K(8 d), 142 agents, to 1e-12", seconds, serde_json::json!({ "rounds": rounds, "peak": peak.map(str::trim) }));
}

/// A round of FedNL in the middle of a run. The floor is that of one pass over the rows for margins, gradients and Hessians, and of
/// reading and writing the learned Hessians' supports at both ends once.
fn fednl(field: &Arc<dyn Field>, machine: &Machine, work: &Work) {
    let (uplink, method) = (Uplink::default(), top_k());
    let run = |rounds: usize| {
        least(3, || {
            let mut run = started(field, &method, &uplink);
            (0..rounds).for_each(|_| run.step());
            black_box(run.theta());
        })
    };
    let (few, many) = (run(4), run(20));
    let objective = field.facts().objective().expect("an objective");
    let support = |c: usize| objective.hessian_support(c).map_or(field.dim() * (field.dim() + 1) / 2, |support| support.len());
    let supports: usize = (0..field.agents()).map(support).sum();
    let floor = machine.floor(work.outer + 2.0 * work.stored, reading(work.bytes + 4.0 * 8.0 * supports as f64));
    let more = serde_json::json!({ "floor_s": floor, "multiply_adds": work.outer, "supports": supports });
    report("FedNL Top-K(8 d), 142 agents, a round", [0, 1].map(|i| (many[i] - few[i]) / 16.0), more);
}

/// The Hessians of all agents at theta = 0, and the product of dense matrices of the same sizes.
fn hessians(field: &Arc<dyn Field>, machine: &Machine, work: &Work) {
    let (objective, d, n) = (field.facts().objective().expect("an objective"), field.dim(), field.agents());
    let theta = vec![0.0; d];
    let ours = least(5, || {
        (0..n).into_par_iter().for_each(|c| {
            let mut out = Mat::zeros(d, d);
            objective.hessian(c, &theta, &mut out);
            black_box(&out);
        });
    });
    let rows = Mat::from_fn(49_749 / n, d, |i, j| ((i * 31 + j * 17) % 101) as f64 / 101.0);
    let dense = least(2, || {
        (0..n).into_par_iter().for_each(|_| {
            black_box(rows.transpose() * &rows);
        });
    });
    report(
        "Hessians of 8 agents",
        ours,
        serde_json::json!({ "dense_product_s": dense, "floor_s": machine.floor(work.outer, reading(work.bytes)) }),
    );
}

/// What the agents of a Fib-SHED round with a renewal compute, without the server: gradients, Hessians, their eigenpairs and the losses
/// of a line search.
fn agents(field: &Arc<dyn Field>) {
    let (objective, d, n) = (field.facts().objective().expect("an objective"), field.dim(), field.agents());
    let (theta, p) = (vec![0.0; d], vec![1e-3; d]);
    let steps: Vec<f64> = (0..21).map(|k| 0.5f64.powi(k)).collect();
    let all = least(5, || {
        (0..n).into_par_iter().for_each(|c| {
            let (mut gradient, mut hessian, mut losses) = (vec![0.0; d], Mat::zeros(d, d), vec![0.0; steps.len()]);
            objective.gradient(c, &theta, &mut gradient);
            objective.hessian(c, &theta, &mut hessian);
            objective.losses_along(c, &theta, &p, &steps, &mut losses);
            black_box((gradient, losses, Eigenpairs::leading(&hessian, d)));
        });
    });
    report("The agents' part of a round with a renewal", all, serde_json::json!({}));
}

/// The ten leading eigenpairs of an agent's Hessian, and all of them.
fn pairs(field: &Arc<dyn Field>) {
    let (objective, d) = (field.facts().objective().expect("an objective"), field.dim());
    let mut hessian = Mat::zeros(d, d);
    objective.hessian(0, &vec![0.0; d], &mut hessian);
    let [ten, all] = [10, d].map(|m| {
        least(5, || {
            black_box(Eigenpairs::leading(&hessian, m).values.len());
        })
    });
    report("ten eigenpairs of 300", ten, serde_json::json!({ "all_s": all }));
}
