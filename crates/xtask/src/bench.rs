//! `cargo xtask bench`: the engine beside its peers, measured in one run. Asserts nothing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::{cargo, python, root};

/// One measurement: what it is, and its numbers.
type Measured = (String, Value);

/// Measures something, prints a table, and adds the numbers.
type Part = fn(&mut Map<String, Value>) -> Result<(), String>;

/// What is measured, in this order.
const PARTS: [Part; 15] = [
    steps,
    sarsa_steps,
    rounds,
    short_rounds,
    dense_steps,
    drawn_terms,
    hessians,
    eight_agents,
    cores,
    codecs,
    links,
    logs,
    second_order,
    delays,
    federations,
];

/// Measures everything, prints tables and, if asked to, writes the numbers as JSON.
///
/// # Errors
/// When the benchmark program does not build or run, or the file cannot be written.
pub fn run(json_file: Option<&Path>) -> Result<(), String> {
    let mut all = Map::new();
    all.insert("machine".into(), machine());
    println!("{}", all["machine"]);

    for part in PARTS {
        part(&mut all)?;
    }
    write(&all, json_file)
}

/// Writes numbers as JSON, if a file is given.
pub fn write(all: &Map<String, Value>, json_file: Option<&Path>) -> Result<(), String> {
    let Some(path) = json_file else { return Ok(()) };
    let text = serde_json::to_string_pretty(all).expect("plain numbers");
    std::fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

/// The steps of TD, beside those of peers.
fn steps(all: &mut Map<String, Value>) -> Result<(), String> {
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
    Ok(())
}

/// The steps of SARSA, beside those of peers.
fn sarsa_steps(all: &mut Map<String, Value>) -> Result<(), String> {
    let mut steps = engine(&["sarsa"])?;
    match python::interpreter(&[python::NUMPY]) {
        Ok(interpreter) => steps.extend(lines(Command::new(&interpreter).arg(root().join("benchmarks/sarsa_numpy.py")))?),
        Err(why) => eprintln!("{why}\nno NumPy here: compared with the plain loop only"),
    }
    println!("\nA step of SARSA along a chain, d = 6, ns     least     median    largest  over fedsa (least)");
    let ours = steps.first().map_or(f64::NAN, |(_, result)| number(result, "least"));
    for (name, result) in &steps {
        println!("{name:<38} {} {:>12.1}", spread(result, 1), number(result, "least") / ours);
    }
    all.insert("sarsa_step_ns".into(), object(&steps));
    Ok(())
}

/// Rounds on one core.
fn rounds(all: &mut Map<String, Value>) -> Result<(), String> {
    let rounds = engine(&["round"])?;
    println!("\nA round on one core, ns                     least     median    largest   least per agent");
    for (name, result) in &rounds {
        let agents: f64 = name.split("N=").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or(f64::NAN);
        println!("{name:<38} {}  {:>16.1}", spread(result, 0), number(result, "least") / agents);
    }
    all.insert("round_ns".into(), object(&rounds));
    Ok(())
}

/// Rounds of one step.
fn short_rounds(all: &mut Map<String, Value>) -> Result<(), String> {
    let short = engine(&["short"])?;
    println!("\nA round of one step, d = 8, ns an agent  one thread        two  two over one");
    for (name, result) in &short {
        let ns = |threads: &str| number(&result[threads], "least");
        println!("{name:<38} {:>12.1} {:>10.1} {:>13.2}", ns("one"), ns("two"), ns("two") / ns("one"));
    }
    all.insert("short_round_ns".into(), object(&short));
    Ok(())
}

/// Steps on dense mean operators.
fn dense_steps(all: &mut Map<String, Value>) -> Result<(), String> {
    let dense = engine(&["dense"])?;
    println!("\nA step on a dense mean operator, ns           ours  plain loop  ours over it    GB/s");
    for (name, result) in &dense {
        let d: f64 = name.trim_start_matches("d=").parse().unwrap_or(f64::NAN);
        let (ours, plain) = (number(&result["ours"], "least"), number(&result["plain"], "least"));
        println!("{name:<38} {ours:>11.0} {plain:>11.0} {:>13.2} {:>7.0}", number(result, "ratio"), 8.0 * d * d / ours);
    }
    all.insert("dense_step_ns".into(), object(&dense));
    Ok(())
}

/// Hessians of dense rows, and products with them.
fn hessians(all: &mut Map<String, Value>) -> Result<(), String> {
    let hessians = engine(&["hessians"])?;
    println!("\nHessians of dense rows, one thread, us         ours        faer  ours over it (least times)");
    for (name, result) in &hessians {
        let (ours, faer) = (number(&result["ours"], "least") / 1e3, number(&result["faer"], "least") / 1e3);
        println!("{name:<38} {ours:>11.1} {faer:>11.1} {:>13.2}", number(result, "ratio"));
    }
    all.insert("hessians_ns".into(), object(&hessians));
    Ok(())
}

/// Steps on drawn terms.
fn drawn_terms(all: &mut Map<String, Value>) -> Result<(), String> {
    let terms = engine(&["terms"])?;
    println!("\nA step on a drawn term, ns                    ours  plain loop  ours over it   bytes    GB/s  of reading");
    for (name, result) in terms.iter().filter(|(name, _)| name.starts_with("d=")) {
        let (ours, plain) = (number(&result["ours"], "least"), number(&result["plain"], "least"));
        let [ratio, bytes, speed, share] = ["ratio", "bytes", "gb_per_s", "share_of_reading"].map(|key| number(result, key));
        println!("{name:<38} {ours:>11.0} {plain:>11.0} {ratio:>13.2} {bytes:>7.0} {speed:>7.1} {share:>11.2}");
    }
    all.insert("drawn_term_ns".into(), object(&terms));
    Ok(())
}

/// Eight agents on one thread and on two.
fn eight_agents(all: &mut Map<String, Value>) -> Result<(), String> {
    let eight = engine(&["eight"])?;
    println!("\nEight agents, dense, ms                  one thread        two  speed-up (least times)");
    for (name, result) in &eight {
        let ms = |threads: &str| number(&result[threads], "least") / 1e6;
        println!("{name:<48} {:>8.2} {:>8.2} {:>9.2}", ms("one"), ms("two"), number(result, "speedup"));
    }
    all.insert("eight_agents_ns".into(), object(&eight));
    Ok(())
}

/// Rounds on one core and on two.
fn cores(all: &mut Map<String, Value>) -> Result<(), String> {
    let scaling = engine(&["scaling"])?;
    println!("\nA round on one core and on two, us       one core  two cores  speed-up (least times)");
    for (name, result) in &scaling {
        let us = |threads: &str| number(&result[threads], "least") / 1e3;
        println!("{name:<38} {:>10.0} {:>10.0} {:>9.2}", us("one"), us("two"), number(result, "speedup"));
    }
    all.insert("scaling".into(), object(&scaling));
    Ok(())
}

/// Codecs.
fn codecs(all: &mut Map<String, Value>) -> Result<(), String> {
    let codecs = engine(&["codecs"])?;
    println!("\nA codec on one core, GB/s of f64            pack     unpack   (largest)  bytes");
    for (name, result) in &codecs {
        let best = |way: &str| number(&result[way], "largest");
        println!("{name:<38} {:>10.2} {:>10.2} {:>16}", best("pack"), best("unpack"), result["bytes"]);
    }
    all.insert("codec_gb_s".into(), object(&codecs));
    Ok(())
}

/// Rounds over links.
fn links(all: &mut Map<String, Value>) -> Result<(), String> {
    let links = engine(&["links"])?;
    println!("\nA round of 100 agents over a link, ns        least     median    largest   least over the local steps alone");
    let mut alone = f64::NAN;
    for (name, result) in &links {
        if name.starts_with("local steps alone") {
            alone = number(result, "least");
        }
        println!("{name:<38} {}  {:>16.2}", spread(result, 0), number(result, "least") / alone);
    }
    all.insert("link_round_ns".into(), object(&links));
    Ok(())
}

/// Reading logs.
fn logs(all: &mut Map<String, Value>) -> Result<(), String> {
    let logs = lines(&mut cargo(&["run", "--quiet", "--release", "--package", "fedsa-data", "--example", "reading"]))?;
    println!(
        "\nReading logs: transitions a second, Parquet and CSV, beside plain reading of the bytes;\nmeans: two passes, 16 features and their sums"
    );
    println!("2e6 transitions, 2 state columns           1e6 a second  seconds  bytes alone, s  peak, MiB");
    for (name, result) in &logs {
        let (rate, seconds, plain) = (number(result, "per_second") / 1e6, number(result, "seconds"), number(result, "plain_s"));
        println!("{name:<38} {rate:>16.1} {seconds:>8.3} {plain:>15.3} {:>10}", result["peak_mib"]);
    }
    all.insert("reading_logs".into(), object(&logs));
    Ok(())
}

/// Second-order methods on a data set.
fn second_order(all: &mut Map<String, Value>) -> Result<(), String> {
    println!("\nSecond order on w8a, ms                      one thread        two  speed-up  beside it (least times)");
    let peers = [("dense_product_s", "dense products of these sizes"), ("all_s", "all pairs"), ("floor_s", "the machine's floor")];
    match std::env::var_os("FEDSA_DATA") {
        Some(_) => {
            let second = lines(&mut cargo(&["run", "--quiet", "--release", "--package", "fedsa-data", "--example", "second_order"]))?;
            for (name, result) in &second {
                let ms = |key: &str| number(result, key) * 1e3;
                let beside = peers.iter().filter_map(|(key, what)| Some(format!("{:.1} {what}", result[*key][1].as_f64()? * 1e3)));
                let beside = beside.collect::<Vec<String>>().join(", ");
                println!("{name:<42} {:>12.1} {:>10.1} {:>9.2}  {beside}", ms("one_s"), ms("two_s"), number(result, "speedup"));
            }
            all.insert("second_order".into(), object(&second));
        }
        None => println!("not measured: FEDSA_DATA names no folder with libsvm/w8a"),
    }
    Ok(())
}

/// The program with long delays.
fn delays(all: &mut Map<String, Value>) -> Result<(), String> {
    println!("\nThe program with a delay of 1000 rounds       seconds  peak, MiB");
    let delayed = [delayed()?];
    for (name, result) in &delayed {
        println!("{name:<38} {:>14.1} {:>10}", number(result, "seconds"), result["peak_mib"]);
    }
    all.insert("delay_memory".into(), object(&delayed));
    Ok(())
}

/// Large federations.
fn federations(all: &mut Map<String, Value>) -> Result<(), String> {
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
    Ok(())
}

/// `fedsa run` of 10^4 agents with 100 features over a delay (pull) of 1000 rounds, i.i.d. samples.
fn delayed() -> Result<Measured, String> {
    const FILE: &str = r#"
[problem]
kind = "mrp"
agents = 10000
states = 200
features = 100

[[method]]
kind = "fedtd"
step_size = 0.001
uplink = { media = [{ kind = "delay", law = "uniform", max = 1000 }] }

[run]
rounds = 1500
"#;
    let folder = root().join("target/bench");
    let write = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(write)?;
    std::fs::write(folder.join("delayed.toml"), FILE).map_err(write)?;
    if !cargo(&["build", "--quiet", "--release", "--package", "fedsa-cli"]).status().is_ok_and(|status| status.success()) {
        return Err("the program does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let mut program = Command::new(target.join("release/fedsa"));
    program.current_dir(&folder).args(["run", "delayed.toml", "--out", "delayed", "--overwrite", "--quiet"]);
    let start = Instant::now();
    let mut child = program.spawn().map_err(|e| format!("{program:?}: {e}"))?;
    // The mark only rises: the last reading before the end is the peak, but for the last instant.
    let mut peak = None;
    let status = loop {
        peak = peak_mib(child.id()).or(peak);
        match child.try_wait().map_err(|e| format!("{program:?}: {e}"))? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("{program:?} ended with {status}"));
    }
    Ok(("N=10000 d=100, 1500 rounds".into(), json!({ "seconds": seconds, "peak_mib": peak })))
}

/// The largest resident set of a process so far, where the system tells.
pub fn peak_mib(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().split(' ').next()?.parse().ok()?;
    Some(kib / 1024)
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
pub fn machine() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        Some(line.split(':').nth(1)?.trim().to_string())
    });
    json!({ "cpu": cpu, "cores": std::thread::available_parallelism().map_or(1, usize::from) })
}
