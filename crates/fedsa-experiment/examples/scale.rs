//! Measures how the seconds, the memory and the bits of a run grow with the number of agents, the dimension, local steps, rows and rounds, and
//! draws them.
//!
//! `cargo run --release -p fedsa-experiment --example scale -- PICTURE.svg` runs each point in a process of its own, so that its memory is its
//! own. Prints a table of exponents in Markdown: slopes of least squares through the logarithms of the upper half of each axis and of the
//! whole, because what is small has costs of its own.

use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use fedsa::federation::Federation;
use fedsa::kernel::Isa;
use fedsa::round::Run;
use fedsa_experiment::Plan;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_figure::{Chart, Format, Panel, PlottedCurve, Provenance, RenderOptions, Style};

const ID: &str = "scale";

/// The seconds that the rounds of a point take at the least, unless there are [`MOST_ROUNDS`].
const LEAST_SECONDS: f64 = 0.5;
const MOST_ROUNDS: u64 = 20_000;

/// First-order methods on agents that share two kernels.
fn garnet(method: &str, agents: u64, d: u64, local_steps: u64, rounds: u64) -> String {
    format!(
        "id = \"{ID}\"\n[problem]\nkind = \"garnet\"\nheterogeneity = \"two-kernels\"\nagents = {agents}\nstates = {}\nfeatures = {d}\n\
         [sampling]\nkind = \"iid\"\n[[method]]\nkind = \"{method}\"\nstep_size = 0.01\nlocal_steps = {local_steps}\n[run]\nrounds = {rounds}\n",
        30.max(2 * d)
    )
}

/// Second-order methods on rows of one's own.
fn rows(method: &str, agents: u64, d: u64, points: u64, rounds: u64) -> String {
    format!(
        "id = \"{ID}\"\n[problem]\nkind = \"random-logistic\"\nagents = {agents}\ndim = {d}\npoints = {points}\nridge = 0.001\n\
         [sampling]\nkind = \"mean\"\n[[method]]\nkind = \"{method}\"\n[run]\nrounds = {rounds}\n"
    )
}

/// What grows along an axis, by the size.
type Settings = fn(&str, u64) -> String;

/// An axis: its name, its sizes over two decades, its methods, and the settings of a size.
struct Axis {
    name: &'static str,
    sizes: [u64; 5],
    methods: &'static [&'static str],
    settings: Settings,
    /// Whether seconds are those of all rounds, and not of one.
    is_rounds: bool,
}

const FIRST_ORDER: &[&str] = &["fedlsa", "scafflsa"];
const SECOND_ORDER: &[&str] = &["newton", "fib-shed"];

const AXES: [Axis; 7] = [
    Axis {
        name: "agents (d = 8, 10 steps)",
        sizes: [10_000, 31_623, 100_000, 316_228, 1_000_000],
        methods: FIRST_ORDER,
        settings: |method, n| garnet(method, n, 8, 10, MOST_ROUNDS),
        is_rounds: false,
    },
    Axis {
        name: "dimension (100 agents, 10 steps)",
        sizes: [8, 25, 80, 253, 800],
        methods: FIRST_ORDER,
        settings: |method, d| garnet(method, 100, d, 10, MOST_ROUNDS),
        is_rounds: false,
    },
    Axis {
        name: "local steps (100 agents, d = 8)",
        sizes: [10, 32, 100, 316, 1000],
        methods: FIRST_ORDER,
        settings: |method, h| garnet(method, 100, 8, h, MOST_ROUNDS),
        is_rounds: false,
    },
    Axis {
        name: "rounds (100 agents, d = 8, 10 steps)",
        sizes: [1_000, 3_162, 10_000, 31_623, 100_000],
        methods: FIRST_ORDER,
        settings: |method, rounds| garnet(method, 100, 8, 10, rounds),
        is_rounds: true,
    },
    Axis {
        name: "agents (d = 50, 200 rows each)",
        sizes: [8, 25, 80, 253, 800],
        methods: SECOND_ORDER,
        settings: |method, n| rows(method, n, 50, 200, 40),
        is_rounds: false,
    },
    Axis {
        name: "dimension (8 agents, 1000 rows each)",
        sizes: [8, 25, 80, 253, 800],
        methods: SECOND_ORDER,
        settings: |method, d| rows(method, 8, d, 1000, 40),
        is_rounds: false,
    },
    Axis {
        name: "rows of each of 8 agents (d = 50)",
        sizes: [20, 63, 200, 632, 2000],
        methods: SECOND_ORDER,
        settings: |method, n| rows(method, 8, 50, n, 40),
        is_rounds: false,
    },
];

/// What is measured at a point.
const QUANTITIES: [&str; 3] = ["seconds", "memory, MiB", "bits up a round"];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["point", axis, method, size] => point(&AXES[axis.parse::<usize>()?], method, size.parse()?),
        [picture] => all(picture),
        _ => Err("usage: scale PICTURE.svg".into()),
    }
}

/// Runs one point in this process, and prints seconds, MiB and bits.
fn point(axis: &Axis, method: &str, size: u64) -> Result<(), Box<dyn Error>> {
    let text = (axis.settings)(method, size);
    let experiment = Experiment::read(Document::parse(ID, &text)?)?;
    let plan = Plan::new(experiment, Path::new(""), Isa::best(), &HashMap::new())?;
    let cell = &plan.cells[0];
    let field = &plan.fields[cell.field].field;
    let start = cell.start.of(0, field.dim());
    let federation = Federation::builder(&*cell.method.settings).uplink(&cell.uplink).start(start).on(&**field)?;
    let mut run = Run::new(field, &federation)?;
    if !axis.is_rounds {
        run.step();
    }
    let (began, first, bits) = (Instant::now(), run.round(), run.ledger().bits_up);
    while run.round() < cell.run.rounds && (axis.is_rounds || began.elapsed().as_secs_f64() < LEAST_SECONDS) {
        run.step();
    }
    let rounds = (run.round() - first) as f64;
    let seconds = began.elapsed().as_secs_f64() / if axis.is_rounds { 1.0 } else { rounds };
    println!("{seconds:e} {} {}", peak_mib()?, (run.ledger().bits_up - bits) as f64 / rounds);
    Ok(())
}

/// The most memory that this process has held so far.
fn peak_mib() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak of memory")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
}

/// Runs all points, prints the exponents and draws the picture.
fn all(picture: &str) -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let mut panels: Vec<Panel> = Vec::new();
    println!("| grows with | method | seconds | memory | bits | at the largest size |\n| --- | --- | --- | --- | --- | --- |");
    for (number, axis) in AXES.iter().enumerate() {
        let mut measured = Vec::new();
        for method in axis.methods {
            let mut points = Vec::new();
            for size in axis.sizes {
                let ran = Command::new(&program).args(["point", &number.to_string(), method, &size.to_string()]).output()?;
                if !ran.status.success() {
                    return Err(format!("{method} at {size}: {}", String::from_utf8_lossy(&ran.stderr)).into());
                }
                let numbers: Vec<f64> = String::from_utf8(ran.stdout)?.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
                points.push(numbers);
            }
            let slopes: Vec<String> = (0..QUANTITIES.len())
                .map(|k| {
                    let y: Vec<f64> = points.iter().map(|point| point[k]).collect();
                    format!("{:.2} ({:.2})", slope(&axis.sizes, &y), slope(&axis.sizes[2..], &y[2..]))
                })
                .collect();
            let last = &points[points.len() - 1];
            println!("| {} | {method} | {} | {:.2e} s, {:.0} MiB, {:.2e} bits |", axis.name, slopes.join(" | "), last[0], last[1], last[2]);
            measured.push((*method, points));
        }
        for (k, quantity) in QUANTITIES.iter().enumerate() {
            panels.push(panel(axis, k, quantity, &measured));
        }
    }
    let chart = Chart {
        title: "What a run costs, as its parts grow".into(),
        panels,
        columns: Some(3),
        share_y: Some(false),
        caption:
            "Seconds of a round (of all rounds where these grow), the most memory that the process held, and the bits that agents send a \
                  round. Each point is a process of its own on two threads."
                .into(),
        ..Chart::default()
    };
    let drawn = chart.render(Format::Svg, &RenderOptions::default(), &Provenance { id: ID, config: "" });
    Ok(std::fs::write(picture, drawn)?)
}

/// The exponent b of `y = a x^b`, by least squares of the logarithms.
fn slope(x: &[u64], y: &[f64]) -> f64 {
    let log: Vec<(f64, f64)> = x.iter().zip(y).map(|(x, y)| ((*x as f64).ln(), y.ln())).collect();
    let n = log.len() as f64;
    let (mean_x, mean_y) = (log.iter().map(|(x, _)| x).sum::<f64>() / n, log.iter().map(|(_, y)| y).sum::<f64>() / n);
    let products: f64 = log.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    products / log.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>()
}

/// One quantity along one axis.
fn panel(axis: &Axis, k: usize, quantity: &str, measured: &[(&str, Vec<Vec<f64>>)]) -> Panel {
    let x: Vec<f64> = axis.sizes.iter().map(|size| *size as f64).collect();
    let curve = |(color, (method, points)): (usize, &(&str, Vec<Vec<f64>>))| PlottedCurve {
        label: (*method).into(),
        color: if axis.methods == FIRST_ORDER { color } else { color + 2 },
        x: x.clone(),
        y: points.iter().map(|point| point[k]).collect(),
        style: Style::LinePoints,
        ..PlottedCurve::default()
    };
    Panel {
        title: axis.name.into(),
        x_label: axis.name.split(" (").next().unwrap_or_default().into(),
        y_label: quantity.into(),
        x_log: true,
        y_log: true,
        curves: measured.iter().enumerate().map(curve).collect(),
        ..Panel::default()
    }
}
