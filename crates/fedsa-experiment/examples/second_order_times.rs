//! Measures the seconds that second-order methods take to the target of `cross/second-order`, and draws them beside what the machine could do.
//!
//! `cargo run --release -p fedsa-experiment --example second_order_times -- PICTURE.svg` runs each method alone, on two threads. Prints a
//! table in Markdown.

#[path = "../../../benchmarks/machine.rs"]
mod machine;

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::time::Instant;

use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::metrics::Metrics;
use fedsa::round::Run;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::{Plan, PlannedCell, bundled};
use fedsa_figure::{Chart, Format, Panel, PlottedCurve, Provenance, RenderOptions, Style};
use fedsa_problems::rows::regression::Logistic;
use machine::{Machine, Work, reading};

const ID: &str = "cross/second-order";

/// What a method took.
struct Took {
    seconds: f64,
    /// The least seconds that the machine needs for what its agents computed.
    floor: f64,
    rounds: u64,
    residual: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let out = std::env::args().nth(1).ok_or("the path of the picture to write, such as times.svg")?;
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global()?;
    let machine = Machine::measured();
    let text = bundled::ALL.iter().find(|own| own.id == ID).ok_or("no such experiment")?.text;
    let experiment = Experiment::read(Document::parse(ID, text)?)?;
    let plan = Plan::new(experiment, Path::new(""), Isa::best(), &HashMap::new())?;
    let files = DiskFiles::new(Places::from_env(""));
    let mut panels = Vec::new();
    println!("| data | method | rounds | seconds | floor, seconds | gradient |\n| --- | --- | --- | --- | --- | --- |");
    for (i, point) in plan.points.iter().enumerate() {
        let mut problem = plan.resolved(i)["problem"].as_table().ok_or("a table")?.clone();
        problem.remove("kind");
        let settings: Logistic = toml::Value::Table(problem).try_into()?;
        let work = Work::of(&settings.prepare(&files)?.train.rows);
        let pass = reading(work.bytes);
        let took: Vec<Took> = point.cells.iter().map(|cell| measured(&plan, &plan.cells[*cell], &work, &machine, pass)).collect();
        for (label, Took { seconds, floor, rounds, residual }) in plan.labels.iter().zip(&took) {
            println!("| {} | {label} | {rounds} | {seconds:.3} | {floor:.4} | {residual:.1e} |", point.point.label);
        }
        panels.push(panel(&point.point.label, &plan.labels, &took, plan.cells[point.cells[0]].run.stop.residual.unwrap_or(0.0)));
    }
    let chart = Chart {
        title: "Seconds to the same gradient".into(),
        panels,
        columns: Some(2),
        caption: "Seconds of two threads until the norm of the gradient is 1e-9 (dots), or of 400 rounds without reaching it, and the seconds \
                  that two threads need at least for the products with rows that the agents computed: multiply-adds at the rate of products of \
                  matrices in the cache, or reading all rows once an exchange, whichever takes longer."
            .into(),
        ..Chart::default()
    };
    let picture = chart.render(Format::Svg, &RenderOptions::default(), &Provenance { id: ID, config: text });
    Ok(std::fs::write(&out, picture)?)
}

/// Runs a method to the target, or for all rounds; the seconds are those of rounds alone, without what measures the gradient. `pass` are the
/// seconds of reading all rows once.
fn measured(plan: &Plan, cell: &PlannedCell, work: &Work, machine: &Machine, pass: [f64; 2]) -> Took {
    let field = &plan.fields[cell.field].field;
    let metrics = Metrics::new(field);
    let start = cell.start.of(0, field.dim());
    let federation = Federation::builder(&*cell.method.settings).uplink(&cell.uplink).start(start).on(&**field).expect("it was planned");
    let mut run = Run::new(field, &federation).expect("it was planned");
    let target = cell.run.stop.residual.unwrap_or(0.0);
    let (mut seconds, mut residual) = (0.0, f64::INFINITY);
    while residual > target && run.round() < cell.run.rounds && run.diverged().is_none() {
        let start = Instant::now();
        run.step();
        seconds += start.elapsed().as_secs_f64();
        residual = metrics.observe(&run, None, 0.0).residual.unwrap_or(f64::NAN);
    }
    let (ledger, agents) = (run.ledger(), field.agents() as f64);
    // A search along a direction takes a product of each row with it; a gradient and a product with a Hessian take two.
    let searches = ledger.exchanges.saturating_sub(run.round()) as f64;
    let twice = (ledger.calls.gradients + ledger.calls.hessian_vectors) as f64 / agents;
    let hessians = ledger.calls.hessians as f64 / agents;
    let multiply_adds = (2.0 * twice + searches) * work.stored + hessians * work.outer;
    // In an exchange an agent reads its rows at least once; products after that may find them in a cache.
    let read = pass.map(|seconds| seconds * ledger.exchanges as f64);
    Took { seconds, floor: machine.floor(multiply_adds, read)[1], rounds: run.round(), residual }
}

/// The methods as rows, the first one on top.
fn panel(title: &str, labels: &[String], took: &[Took], target: f64) -> Panel {
    let rows = || took.iter().rev().enumerate();
    let points = |label: &str, color: usize, seconds: &dyn Fn(&Took) -> Option<f64>| {
        let (x, y) = rows().filter_map(|(row, took)| Some((seconds(took)?, row as f64))).unzip();
        PlottedCurve { label: label.into(), color, x, y, style: Style::Points, ..PlottedCurve::default() }
    };
    let reached = |took: &Took| took.residual <= target;
    let curves = vec![
        points("measured", 0, &|took| reached(took).then_some(took.seconds)),
        points("400 rounds, target not reached", 1, &|took| (!reached(took)).then_some(took.seconds)),
        points("the machine's floor", 2, &|took| Some(took.floor)),
    ];
    Panel {
        title: title.into(),
        x_label: "seconds".into(),
        x_log: true,
        y_names: labels.iter().rev().cloned().collect(),
        curves,
        ..Panel::default()
    }
}
