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
use std::sync::Arc;
use std::time::Instant;

use fedsa_experiment::Plan;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_figure::{Chart, Format, Panel, PlottedCurve, Provenance, RenderOptions, Style};
use fedsa_methods::prelude::*;

const ID: &str = "scale";

/// The seconds that the rounds of a point take at the least, unless there are [`MAX_ROUNDS`].
const MIN_SECONDS: f64 = 0.5;
const MAX_ROUNDS: u64 = 20_000;

/// First-order methods on agents that share two kernels.
fn garnet(method: &str, agents: u64, d: u64, local_steps: u64, rounds: u64) -> String {
    format!(
        "id = \"{ID}\"\n[problem]\nkind = \"garnet\"\nheterogeneity = \"two-kernels\"\nperturbation = 0.0\nreward_perturbation = 0.0\nagents = {agents}\nstates = {}\nfeatures = {d}\n\
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

/// First-order methods on rows of one's own: few, and of any length.
fn long_rows(method: &str, agents: u64, d: u64) -> String {
    rows(method, agents, d, 2, MAX_ROUNDS).replace("\"mean\"", "\"iid\"").replace("[run]", "step_size = 0.001\nlocal_steps = 1\n[run]")
}

/// What grows along an axis, by the size.
type Settings = fn(&str, u64) -> String;

/// An axis: its name, its sizes over two decades, its methods, and the settings of a size.
struct Axis {
    name: &'static str,
    sizes: [u64; 5],
    methods: &'static [&'static str],
    settings: Settings,
    seconds: Seconds,
}

/// What seconds are measured.
#[derive(Clone, Copy, PartialEq)]
enum Seconds {
    /// Of a round with all agents in the process.
    Round,
    /// Of all rounds.
    Rounds,
    /// Of a round at a server whose agents are nodes: without those of the nodes.
    Server,
}

const FIRST_ORDER: &[&str] = &["fedlsa", "scafflsa"];
const SECOND_ORDER: &[&str] = &["newton", "fib-shed"];

const AXES: [Axis; 9] = [
    Axis {
        name: "agents (d = 8, 10 steps)",
        sizes: [10_000, 31_623, 100_000, 316_228, 1_000_000],
        methods: FIRST_ORDER,
        settings: |method, n| garnet(method, n, 8, 10, MAX_ROUNDS),
        seconds: Seconds::Round,
    },
    Axis {
        name: "dimension (100 agents, 10 steps)",
        sizes: [8, 25, 80, 253, 800],
        methods: FIRST_ORDER,
        settings: |method, d| garnet(method, 100, d, 10, MAX_ROUNDS),
        seconds: Seconds::Round,
    },
    Axis {
        name: "local steps (100 agents, d = 8)",
        sizes: [10, 32, 100, 316, 1000],
        methods: FIRST_ORDER,
        settings: |method, h| garnet(method, 100, 8, h, MAX_ROUNDS),
        seconds: Seconds::Round,
    },
    Axis {
        name: "rounds (100 agents, d = 8, 10 steps)",
        sizes: [1_000, 3_162, 10_000, 31_623, 100_000],
        methods: FIRST_ORDER,
        settings: |method, rounds| garnet(method, 100, 8, 10, rounds),
        seconds: Seconds::Rounds,
    },
    Axis {
        name: "agents (d = 50, 200 rows each)",
        sizes: [8, 25, 80, 253, 800],
        methods: SECOND_ORDER,
        settings: |method, n| rows(method, n, 50, 200, 40),
        seconds: Seconds::Round,
    },
    Axis {
        name: "dimension (8 agents, 1000 rows each)",
        sizes: [8, 25, 80, 253, 800],
        methods: SECOND_ORDER,
        settings: |method, d| rows(method, 8, d, 1000, 40),
        seconds: Seconds::Round,
    },
    Axis {
        name: "rows of each of 8 agents (d = 50)",
        sizes: [20, 63, 200, 632, 2000],
        methods: SECOND_ORDER,
        settings: |method, n| rows(method, 8, 50, n, 40),
        seconds: Seconds::Round,
    },
    Axis {
        name: "nodes of a server (d = 8)",
        sizes: [100, 316, 1_000, 3_162, 10_000],
        methods: FIRST_ORDER,
        settings: |method, n| garnet(method, n, 8, 1, MAX_ROUNDS),
        seconds: Seconds::Server,
    },
    Axis {
        name: "dimension at a server (10 nodes)",
        sizes: [30, 95, 300, 949, 3_000],
        methods: FIRST_ORDER,
        settings: |method, d| long_rows(method, 10, d),
        seconds: Seconds::Server,
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
    let (seconds, bits) = match axis.seconds {
        Seconds::Server => of_server(&federation, field)?,
        which => of_rounds(Run::new(field, &federation)?, cell.run.rounds, which == Seconds::Rounds),
    };
    println!("{seconds:e} {} {bits}", peak_mib()?);
    Ok(())
}

/// The seconds of a round, or of all, and its bits.
fn of_rounds(mut run: Run, rounds: u64, are_all: bool) -> (f64, f64) {
    if !are_all {
        run.step();
    }
    let (began, first, bits) = (Instant::now(), run.round(), run.ledger().bits_up);
    while run.round() < rounds && (are_all || began.elapsed().as_secs_f64() < MIN_SECONDS) {
        run.step();
    }
    let done = (run.round() - first) as f64;
    let seconds = began.elapsed().as_secs_f64();
    (if are_all { seconds } else { seconds / done }, (run.ledger().bits_up - bits) as f64 / done)
}

/// Nodes in this process, and the seconds in which they were asked.
struct Here {
    nodes: Vec<ClientNode>,
    seconds: f64,
}

impl Transport for Here {
    fn exchange(
        &mut self,
        _: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        _: Option<Instant>,
        _: &Cancel,
    ) -> fedsa::error::Result<Vec<(usize, Vec<u8>)>> {
        let began = Instant::now();
        let mut answers = Vec::with_capacity(to.len());
        for (c, bytes) in to.iter().zip(bytes) {
            answers.extend(self.nodes[*c].handle(bytes)?.map(|answer| (*c, answer)));
        }
        self.seconds += began.elapsed().as_secs_f64();
        Ok(answers)
    }

    fn tell(&mut self, _: &ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> fedsa::error::Result<()> {
        let began = Instant::now();
        for (c, bytes) in to.iter().zip(bytes) {
            self.nodes[*c].handle(bytes)?;
        }
        self.seconds += began.elapsed().as_secs_f64();
        Ok(())
    }
}

/// The seconds of a round at a server of nodes, and its bits.
fn of_server(federation: &Federation, field: &Arc<dyn Field>) -> Result<(f64, f64), Box<dyn Error>> {
    let nodes = (0..field.agents()).map(|c| ClientNode::new(federation, field, c, c)).collect::<Result<Vec<_>, _>>()?;
    let mut session = Session::new(Nodes::new(ServerNode::new(federation)?, Here { nodes, seconds: 0.0 }));
    let mut rounds = 1;
    loop {
        let (began, nodes, first, bits) =
            (Instant::now(), session.carrier_mut().transport().seconds, session.round(), session.carrier().counts().bits_up);
        session.advance(&StoppingCriteria::rounds(first + rounds), &Cancel::new(), &mut ())?;
        let seconds = began.elapsed().as_secs_f64();
        if seconds > MIN_SECONDS {
            let at_nodes = session.carrier_mut().transport().seconds - nodes;
            let done = (session.round() - first) as f64;
            return Ok(((seconds - at_nodes) / done, (session.carrier().counts().bits_up - bits) as f64 / done));
        }
        rounds *= 2;
    }
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
