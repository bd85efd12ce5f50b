//! `cargo xtask bench --figures`: the time of every bundled experiment in full settings, and where it goes. Asserts nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::bench::{machine, peak_mib, write};
use crate::{cargo, root};

/// How many of the hottest functions are named.
const HOTTEST: usize = 3;
/// The ticks of a second in which Linux counts the time of processors for processes.
const TICKS: f64 = 100.0;
/// Samples of `perf` in a second.
const SAMPLES: &str = "99";

/// Runs the bundled experiments whose id begins with one of some texts, or all of them, one after another, each in a process of its own
/// and from an empty folder under `target/figures`. Prints a line for each with its seconds, those of its processors, its memory, and with
/// `perf` the functions that took most of them; and, if asked to, writes the numbers as JSON.
///
/// # Errors
/// When the program does not build, an experiment cannot be run, or the file cannot be written.
pub fn run(ids: &[&str], json_file: Option<&Path>) -> Result<(), String> {
    let built = cargo(&["build", "--quiet", "--release", "--package", "fedsa-cli"]).status().map_err(|e| format!("cargo build: {e}"))?;
    if !built.success() {
        return Err("fedsa does not build".into());
    }
    let program = root().join("target/release/fedsa");
    let output = root().join("target/figures");
    let has_perf = Command::new("perf").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if !has_perf {
        eprintln!("no perf here: functions are not named");
    }
    let mut all = Map::new();
    all.insert("machine".into(), machine());
    println!("{}", all["machine"]);
    println!("{:<26} {:>8} {:>11} {:>6}  hottest functions", "experiment", "seconds", "processors", "MiB");
    let (mut seconds, mut figures) = (0.0, Map::new());
    for id in bundled(&program)?.into_iter().filter(|id| ids.is_empty() || ids.iter().any(|begin| id.starts_with(begin))) {
        let figure = measured(&program, &id, &output, has_perf)?;
        let hottest = figure.hottest.iter().map(|(share, name)| format!("{share:.0}% {name}")).collect::<Vec<_>>().join(", ");
        let memory = figure.peak_mib.map_or("-".into(), |mib| mib.to_string());
        println!("{id:<26} {:>8.1} {:>11.1} {memory:>6}  {hottest}", figure.seconds, figure.processors);
        seconds += figure.seconds;
        let hottest: Vec<Value> = figure.hottest.iter().map(|(share, name)| json!([share, name])).collect();
        let numbers =
            json!({ "seconds": figure.seconds, "processors": figure.processors, "peak_mib": figure.peak_mib, "hottest": hottest });
        figures.insert(id, numbers);
    }
    println!("{:<26} {seconds:>8.1}", "all");
    all.insert("figures".into(), figures.into());
    write(&all, json_file)
}

/// What was measured of one experiment.
struct Figure {
    seconds: f64,
    /// Seconds of processors.
    processors: f64,
    peak_mib: Option<u64>,
    /// Shares of the samples in percent, with the function's name.
    hottest: Vec<(f64, String)>,
}

/// The ids of the bundled experiments.
fn bundled(program: &Path) -> Result<Vec<String>, String> {
    let listed = Command::new(program).args(["reproduce", "--list"]).output().map_err(|e| format!("{}: {e}", program.display()))?;
    let text = String::from_utf8_lossy(&listed.stdout);
    Ok(text.lines().filter_map(|line| line.split_whitespace().next()).filter(|id| id.contains('/')).map(str::to_string).collect())
}

/// Runs one experiment.
fn measured(program: &Path, id: &str, output: &Path, has_perf: bool) -> Result<Figure, String> {
    let folder = output.join(id);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let samples = output.join(format!("{}.perf", id.replace('/', "-")));
    std::fs::create_dir_all(output).map_err(|e| format!("{}: {e}", output.display()))?;
    let mut command = Command::new(if has_perf { Path::new("perf") } else { program });
    if has_perf {
        command.args(["record", "-q", "-F", SAMPLES, "-o"]).arg(&samples).arg("--").arg(program);
    }
    command.args(["reproduce", id, "--quiet", "--out"]).arg(&folder).stdout(Stdio::null());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (mut peak, mut ticks) = (None, 0.0);
    // A failed check is a result too: that the run ended is seen from its summary.
    loop {
        let process = if has_perf { only_child(child.id()) } else { Some(child.id()) };
        peak = process.and_then(peak_mib).or(peak);
        ticks = process.and_then(ticks_of).unwrap_or(ticks);
        match child.try_wait().map_err(|e| format!("{command:?}: {e}"))? {
            Some(_) => break,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    if !folder.join("summary.json").exists() {
        return Err(format!("{command:?} wrote no summary"));
    }
    let hottest = if has_perf { hottest(&samples) } else { Vec::new() };
    Ok(Figure { seconds, processors: ticks / TICKS, peak_mib: peak, hottest })
}

/// The process that another one has started.
fn only_child(process: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The ticks that the processors have worked for a process.
fn ticks_of(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may contain blanks; user and system time are the 14th and 15th word.
    let after: Vec<&str> = text.rsplit(')').next()?.split_whitespace().collect();
    Some(after.get(11)?.parse::<f64>().ok()? + after.get(12)?.parse::<f64>().ok()?)
}

/// The functions with the largest shares of samples.
fn hottest(samples: &PathBuf) -> Vec<(f64, String)> {
    let report = Command::new("perf").args(["report", "--no-children", "--stdio", "-F", "overhead,symbol", "-i"]).arg(samples).output();
    let Ok(report) = report else { return Vec::new() };
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    let shares = text.lines().filter_map(|line| {
        let (share, name) = line.trim().split_once('%')?;
        let name = name.trim().trim_start_matches("[.] ").trim_start_matches("[k] ");
        Some((share.parse().ok()?, name.trim_start_matches("fedsa::").to_string()))
    });
    shares.take(HOTTEST).collect()
}
