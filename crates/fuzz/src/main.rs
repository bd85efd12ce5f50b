//! `fedsa-fuzz`: mutated input for every reader and decoder.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use fedsa_fuzz::engine::{self, Budget, Fault, Report};
use fedsa_fuzz::memory::Counting;
use fedsa_fuzz::targets::{PLANTED, TARGETS};
use fedsa_fuzz::{Inputs, Target, Verdict};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Feeds every reader and decoder of fedsa with mutated input.
///
/// Exit status: 0 nothing found, 1 something found, 2 bad arguments. What fails is saved in
/// FOLDER/TARGET, with its message beside it.
#[derive(Parser)]
#[command(name = "fedsa-fuzz")]
struct Args {
    /// The target; all by default. Can be given several times
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Minutes for all targets together
    #[arg(long, value_name = "M", conflicts_with = "inputs")]
    minutes: Option<f64>,
    /// Inputs for each target
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    inputs: u64,
    /// The seed that mutations are drawn from
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Targets at a time; the number of cores by default
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Seconds after which an input counts as hanging
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    hang: f64,
    /// Where failing inputs are saved
    #[arg(long, value_name = "FOLDER", default_value = "target/fuzz")]
    out: PathBuf,
    /// Lists the targets
    #[arg(long)]
    list: bool,
    /// Runs the target on this file alone, where a panic shows
    #[arg(long, value_name = "FILE", requires = "target")]
    replay: Option<PathBuf>,
    /// The first input; a process for one target has this
    #[arg(long, value_name = "INDEX", hide = true)]
    child_from: Option<u64>,
    /// The seconds that such a process has
    #[arg(long, value_name = "SECONDS", hide = true)]
    child_seconds: Option<f64>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        TARGETS.iter().for_each(|target| println!("{:<18} {}", target.name, target.about));
        return ExitCode::SUCCESS;
    }
    let known: Option<Vec<&'static Target>> = args.target.iter().map(|name| find(name)).collect();
    let targets = match known {
        None => return ExitCode::from(2),
        Some(all) if all.is_empty() => TARGETS.iter().collect(),
        Some(some) => some,
    };
    match (&args.replay, args.child_from) {
        (Some(file), _) => replay(targets[0], file),
        (None, Some(first)) => child(targets[0], &args, first),
        (None, None) => all(&targets, &args),
    }
}

/// The target of this name; says so where there is none.
fn find(name: &str) -> Option<&'static Target> {
    let found = TARGETS.iter().chain(PLANTED).find(|target| target.name == name);
    if found.is_none() {
        eprintln!("there is no target `{name}`; --list shows all");
    }
    found
}

/// One input from a file.
fn replay(target: &Target, file: &Path) -> ExitCode {
    match fs::read(file) {
        Ok(input) => {
            let verdict = (target.run)(&input);
            println!("{verdict:?}");
            if verdict == Verdict::Refused {
                println!("{}", fedsa_fuzz::last_message());
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{}: {e}", file.display());
            ExitCode::from(2)
        }
    }
}

// ---------------------------------------------------------------------------------------------
// The process that runs one target.

/// The exit status of a process whose input hung.
const HUNG: u8 = 3;

/// The file that says which input is under way, for the parent of a process that aborts.
fn current(out: &Path, target: &str) -> PathBuf {
    out.join(target).join("current")
}

/// The process that started this one; another one when that is gone.
fn parent() -> u32 {
    #[cfg(unix)]
    return std::os::unix::process::parent_id();
    #[cfg(not(unix))]
    return 0;
}

/// Runs one target; prints its report as JSON.
fn child(target: &'static Target, args: &Args, first: u64) -> ExitCode {
    // One input at a time, so that its time and its memory are its own.
    engine::hush();
    let mut file = match File::create(current(&args.out, target.name)) {
        Ok(file) => file,
        Err(e) => {
            eprintln!("{}: {e}", args.out.display());
            return ExitCode::from(2);
        }
    };
    let budget =
        Budget { inputs: args.child_seconds.is_none().then_some(args.inputs), time: args.child_seconds.map(Duration::from_secs_f64) };
    let (seed, origin) = (args.seed, Instant::now());
    // The input under way and when it began, in milliseconds.
    let under_way = Arc::new((AtomicU64::new(u64::MAX), AtomicU64::new(0)));
    let watched = Arc::clone(&under_way);
    // The stack that threads have by default.
    let work = thread::Builder::new().stack_size(2 << 20).spawn(move || {
        let inputs = Inputs::new(target, seed);
        engine::run(target, &inputs, first, budget, |index| {
            watched.1.store(origin.elapsed().as_millis() as u64, Ordering::Relaxed);
            watched.0.store(index, Ordering::Relaxed);
            let noted = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(&index.to_le_bytes()));
            noted.expect("the folder of findings can be written to");
        })
    });
    let work = work.expect("memory for a thread");
    let starter = parent();
    while !work.is_finished() {
        thread::sleep(Duration::from_millis(20));
        if parent() != starter {
            return ExitCode::from(HUNG);
        }
        let (index, began) = (under_way.0.load(Ordering::Relaxed), under_way.1.load(Ordering::Relaxed));
        let seconds = (origin.elapsed().as_millis() as u64).saturating_sub(began) as f64 / 1000.0;
        // The number may have changed since it was read.
        if index != u64::MAX && seconds > args.hang && under_way.0.load(Ordering::Relaxed) == index && !work.is_finished() {
            eprintln!("input {index} takes more than {} s", args.hang);
            return ExitCode::from(HUNG);
        }
    }
    let report = work.join().expect("panics of inputs are caught");
    println!("{}", serde_json::to_string(&report).expect("plain data"));
    ExitCode::SUCCESS
}

// ---------------------------------------------------------------------------------------------
// The process that starts them.

/// How often a target's process is started again after an abort or a hang.
const RESTARTS: usize = 5;

/// Runs targets in processes of their own and prints what they come to.
fn all(targets: &[&'static Target], args: &Args) -> ExitCode {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.unwrap_or(cores).clamp(1, targets.len());
    // The time of all is shared out: as many targets at a time as there are jobs.
    let seconds = args.minutes.map(|minutes| minutes * 60.0 / targets.len().div_ceil(jobs) as f64);
    let start = Instant::now();
    let rest = Mutex::new(targets.iter());
    let outcomes = Mutex::new(Vec::new());
    println!("{:<18} {:>9} {:>9} {:>7} {:>11} {:>11}  faults", "target", "inputs", "accepted", "failed", "slowest", "largest");
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = rest.lock().expect("no panics under the lock").next();
                    let Some(target) = next else { break };
                    let report = supervise(target, args, seconds);
                    let mut outcomes = outcomes.lock().expect("no panics under the lock");
                    print(target, args, &report);
                    outcomes.push(report);
                }
            });
        }
    });
    let outcomes = outcomes.into_inner().expect("no panics under the lock");
    let inputs: u64 = outcomes.iter().map(|report| report.inputs).sum();
    println!("{inputs} inputs of {} targets in {:.1} s", outcomes.len(), start.elapsed().as_secs_f64());
    if outcomes.iter().all(|report| report.faults.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the row of a target and its faults, which are saved.
fn print(target: &Target, args: &Args, report: &Report) {
    let Report { inputs, accepted, failed, slowest, largest, .. } = report;
    let share = 100.0 * *accepted as f64 / (*inputs).max(1) as f64;
    println!(
        "{:<18} {inputs:>9} {share:>8.1}% {failed:>7} {:>8.1} ms {:>7.2} MiB  {}",
        target.name,
        1e3 * slowest.0,
        largest.0 as f64 / f64::from(1 << 20),
        report.faults.len()
    );
    for Fault { index, kind, message } in &report.faults {
        println!("  input {index} (seed {}): {kind}\n    {:.600}", args.seed, message.trim_end());
    }
    for fault in &report.faults {
        match save(target, args, fault) {
            Ok(path) => println!("    saved in {}", path.display()),
            Err(e) => eprintln!("    not saved in {}: {e}", args.out.display()),
        }
    }
}

/// Runs a target to the end of its budget; a process that aborts or hangs is a finding, and
/// another one goes on after that input.
fn supervise(target: &Target, args: &Args, seconds: Option<f64>) -> Report {
    let start = Instant::now();
    let (mut first, mut report) = (0, Report::default());
    for _ in 0..=RESTARTS {
        let left = seconds.map(|seconds| seconds - start.elapsed().as_secs_f64());
        if left.is_some_and(|left| left <= 0.0) || left.is_none() && first >= args.inputs {
            break;
        }
        match once(target, args, first, left) {
            Ok(done) => {
                report.join(done);
                break;
            }
            Err((kind, message)) => {
                let index = index_under_way(args, target).unwrap_or(first);
                let faults = vec![Fault { index, kind, message }];
                report.join(Report { inputs: index + 1 - first.min(index), failed: 1, faults, ..Report::default() });
                first = index + 1;
            }
        }
    }
    report
}

/// One process of a target, from input `first` on; the kind and message of its end if that was not in order.
fn once(target: &Target, args: &Args, first: u64, seconds: Option<f64>) -> Result<Report, (String, String)> {
    let broken = |what: &str, e: &dyn std::fmt::Display| ("fuzzer".to_string(), format!("{what}: {e}"));
    fs::create_dir_all(args.out.join(target.name)).map_err(|e| broken("the folder of findings", &e))?;
    let mut command = Command::new(std::env::current_exe().map_err(|e| broken("this program", &e))?);
    command.args(["--target", target.name, "--child-from", &first.to_string(), "--seed", &args.seed.to_string()]);
    command.args(["--inputs", &args.inputs.to_string(), "--hang", &args.hang.to_string(), "--out"]).arg(&args.out);
    if let Some(seconds) = seconds {
        command.args(["--child-seconds", &seconds.to_string()]);
    }
    // One thread for what an input computes, so that targets do not slow each other down.
    command.env("RAYON_NUM_THREADS", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().map_err(|e| broken("this program", &e))?;
    let stderr = process.stderr.take().expect("a pipe");
    // The beginning of what it says; the rest is read, so that it does not wait, and dropped.
    let said = thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        lines.fold(String::new(), |all, line| if all.len() < 4000 { all + &line + "\n" } else { all })
    });
    let mut text = String::new();
    let read = process.stdout.take().expect("a pipe").read_to_string(&mut text);
    let status = process.wait().map_err(|e| broken("this program", &e))?;
    let said = said.join().unwrap_or_default();
    match (serde_json::from_str(&text), status.code()) {
        (Ok(report), Some(0)) if read.is_ok() => Ok(report),
        (_, Some(code)) if code == i32::from(HUNG) => Err(("hang".into(), said)),
        _ => Err(("abort".into(), format!("{status}: {said}"))),
    }
}

fn index_under_way(args: &Args, target: &Target) -> Option<u64> {
    let bytes = fs::read(current(&args.out, target.name)).ok()?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Saves the input and the message of a fault.
fn save(target: &Target, args: &Args, fault: &Fault) -> std::io::Result<PathBuf> {
    let path = args.out.join(target.name).join(format!("{}-{}", args.seed, fault.index));
    fs::create_dir_all(args.out.join(target.name))?;
    fs::write(&path, Inputs::new(target, args.seed).make(fault.index))?;
    fs::write(path.with_extension("txt"), format!("{}\n{}\n", fault.kind, fault.message))?;
    Ok(path)
}
