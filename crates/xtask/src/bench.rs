//! `cargo xtask bench`: the engine beside its peers, measured in one run. Asserts nothing.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::{cargo, python, root};

/// One measurement: what it is, and its numbers.
type Measured = (String, Value);

/// Measures everything, prints tables and, if asked to, writes the numbers as JSON.
///
/// # Errors
/// When the benchmark program does not build or run, or the file cannot be written.
pub fn run(json_file: Option<&Path>) -> Result<(), String> {
    let mut all = Map::new();
    all.insert("machine".into(), machine());
    println!("{}", all["machine"]);

    let kernel = engine(&["kernel"])?;
    let mut peers = engine(&["scalar"])?;
    match python::interpreter(&[python::NUMPY, python::JAX]) {
        Ok(interpreter) => {
            for script in ["td_numpy.py", "td_jax.py"] {
                peers.extend(lines(Command::new(&interpreter).arg(root().join("benchmarks").join(script)))?);
            }
        }
        Err(why) => eprintln!("{why}\nno NumPy and JAX here: compared with the plain loop only"),
    }
    step_table(&kernel, &peers);
    all.insert("step_ns".into(), object(&kernel));
    all.insert("peer_step_ns".into(), object(&peers));

    let rounds = engine(&["round"])?;
    println!("\nA round on one core, ns                     least     median    largest   least per agent");
    for (name, result) in &rounds {
        let agents: f64 = name.split("N=").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(f64::NAN);
        println!("{name:<38} {}  {:>16.1}", spread(result, 0), number(result, "least") / agents);
    }
    all.insert("round_ns".into(), object(&rounds));

    let scaling = engine(&["scaling"])?;
    println!("\nA round on one core and on two, us       one core  two cores  speed-up (least times)");
    for (name, result) in &scaling {
        let us = |threads: &str| number(&result[threads], "least") / 1e3;
        println!("{name:<38} {:>10.0} {:>10.0} {:>9.2}", us("one"), us("two"), number(result, "speedup"));
    }
    all.insert("scaling".into(), object(&scaling));

    println!("\nA large federation on two cores          build, s   round, s  peak, MiB");
    let mut federations = Vec::new();
    for (heterogeneity, agents) in [("two-kernels", "1000000"), ("independent", "100000")] {
        for method in ["fedlsa", "scafflsa"] {
            for (name, result) in engine(&["federation", heterogeneity, agents, method])? {
                let name = format!("{heterogeneity} {name}");
                let round = number(&result["round_s"], "median");
                println!("{name:<38} {:>10.2} {round:>10.3} {:>10}", number(&result, "build_s"), result["peak_mib"]);
                federations.push((name, result));
            }
        }
    }
    all.insert("federations".into(), object(&federations));

    if let Some(path) = json_file {
        let text = serde_json::to_string_pretty(&all).expect("plain numbers");
        std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

/// The time of one step per agent, and how many times ours it is, per instruction set.
fn step_table(kernel: &[Measured], peers: &[Measured]) {
    let ours: Vec<(&str, f64)> =
        kernel.iter().filter_map(|(name, result)| Some((name.strip_prefix("iid ")?, number(result, "least")))).collect();
    print!("\nOne local TD(0) step of an agent, ns       least     median    largest");
    ours.iter().for_each(|(isa, _)| print!("{:>12}", format!("x {isa}")));
    println!("  (least times)");
    let named = kernel.iter().map(|(name, result)| (format!("fedsa {name}"), result));
    for (name, result) in named.chain(peers.iter().map(|(name, result)| (name.clone(), result))) {
        print!("{name:<38} {}", spread(result, 2));
        ours.iter().for_each(|(_, ns)| print!("{:>12.1}", number(result, "least") / ns));
        println!();
    }
}

fn spread(result: &Value, decimals: usize) -> String {
    ["least", "median", "largest"].map(|key| format!("{:>10.decimals$}", number(result, key))).join(" ")
}

fn number(result: &Value, key: &str) -> f64 {
    result[key].as_f64().unwrap_or(f64::NAN)
}

fn object(measured: &[Measured]) -> Value {
    measured.iter().cloned().collect::<Map<_, _>>().into()
}

/// What the engine's benchmark program measures.
fn engine(args: &[&str]) -> Result<Vec<Measured>, String> {
    lines(cargo(&["run", "--quiet", "--release", "--package", "fedsa", "--example", "bench", "--"]).args(args))
}

/// The measurements that a program prints, one JSON object a line.
fn lines(command: &mut Command) -> Result<Vec<Measured>, String> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let read = |line: &str| {
        let mut value: Value = serde_json::from_str(line).ok()?;
        Some((value["name"].as_str()?.to_string(), value["result"].take()))
    };
    text.lines().map(|line| read(line).ok_or_else(|| format!("{command:?} printed {line}"))).collect()
}

/// What this runs on.
fn machine() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split(':').nth(1)?.trim().to_string())
    });
    json!({ "cpu": cpu, "cores": std::thread::available_parallelism().map_or(1, usize::from) })
}
