//! Measurements of the engine; `cargo xtask bench` runs them beside their peers.
//!
//! Prints one JSON object a line. Times are nanoseconds unless said otherwise: the
//! least, the median and the largest of several repetitions.

use std::hint::black_box;
use std::time::Instant;

use fedsa::kernel::{Isa, LANES, Lanes};
use fedsa::methods::{Settings as Method, fedlsa::FedLsa, scafflsa::Scafflsa};
use fedsa::problem::garnet::{Garnet, Heterogeneity};
use fedsa::problem::{Field, NoFiles, Settings};
use fedsa::random::{Purpose, stream};
use fedsa::record::OutputRule;
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;
use fedsa::uplink::Uplink;
use serde_json::{Value, json};

const AGENTS: usize = 100;
const D: usize = 8;
const STEPS: usize = 10_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["kernel"] => kernel(),
        ["scalar"] => scalar(),
        ["round"] => round(),
        ["scaling"] => scaling(),
        ["federation", heterogeneity, agents, method] => federation(heterogeneity, agents.parse().expect("a number"), method),
        _ => {
            eprintln!("usage: bench kernel | scalar | round | scaling | federation two-kernels|independent AGENTS fedlsa|scafflsa");
            std::process::exit(2);
        }
    }
}

/// Times `work` several times after a first run: least, median and largest, in ns divided by `units`.
fn time(units: f64, repetitions: usize, mut work: impl FnMut()) -> Value {
    work();
    let mut ns: Vec<f64> = (0..repetitions)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64() * 1e9 / units
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    json!({ "least": ns[0], "median": ns[ns.len() / 2], "largest": ns[ns.len() - 1] })
}

fn report(name: &str, result: Value) {
    println!("{}", json!({ "name": name, "result": result }));
}

fn garnet(agents: usize, sampling: Law, isa: Isa) -> Box<dyn Field> {
    Garnet { agents, ..Garnet::default() }.field(&NoFiles, Sampling { kind: sampling, ..Sampling::default() }, isa).unwrap()
}

/// One local TD(0) step on one core: d = 8, N = 100, H = 10000, a kernel per agent.
fn kernel() {
    for law in [Law::Iid, Law::Markov] {
        for isa in Isa::available() {
            let field = garnet(AGENTS, law, isa);
            let etas = vec![0.01; STEPS];
            let mut lanes = Lanes::new(D, field.chain_len());
            let leg = || {
                for first in (0..AGENTS).step_by(LANES) {
                    lanes.len = LANES.min(AGENTS - first);
                    for l in 0..lanes.len {
                        lanes.agents[l] = first + l;
                        lanes.streams[l] = stream(0, Purpose::Sample, 0, first + l);
                    }
                    field.leg(&mut lanes, &etas);
                }
            };
            let name = format!("{law:?} {isa:?}").to_lowercase();
            report(&name, time((AGENTS * STEPS) as f64, if isa == Isa::Portable { 3 } else { 15 }, leg));
        }
    }
}

/// The same step as one would first write it: agent by agent, plain loops, an alias table per agent.
fn scalar() {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    struct Outcome {
        s: usize,
        next: usize,
        reward: f64,
    }
    struct Agent {
        outcomes: Vec<Outcome>,
        keep: Vec<f64>,
        alias: Vec<usize>,
    }
    const STATES: usize = 30;
    const GAMMA: f64 = 0.95;
    fn uniform(rng: &mut Xoshiro256PlusPlus) -> f64 {
        (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
    let phi: Vec<[f64; D]> = (0..STATES).map(|_| std::array::from_fn(|_| uniform(&mut rng) / D as f64)).collect();
    let mut index = |n: usize| (uniform(&mut rng) * n as f64) as usize;
    let n = 2 * STATES;
    let agents: Vec<Agent> = (0..AGENTS)
        .map(|_| Agent {
            outcomes: (0..n).map(|i| Outcome { s: i / 2, next: index(STATES), reward: 0.1 * index(10) as f64 }).collect(),
            keep: (0..n).map(|_| 0.1 * index(10) as f64).collect(),
            alias: (0..n).map(|_| index(n)).collect(),
        })
        .collect();
    let leg = || {
        for agent in &agents {
            let mut theta = [0.0; D];
            let drift = black_box([0.0; D]);
            for _ in 0..STEPS {
                let u = uniform(&mut rng) * n as f64;
                let i = u as usize;
                let z = &agent.outcomes[if u - (i as f64) < agent.keep[i] { i } else { agent.alias[i] }];
                let (now, next) = (&phi[z.s], &phi[z.next]);
                let (mut v, mut w) = (0.0, 0.0);
                for k in 0..D {
                    v += now[k] * theta[k];
                    w += next[k] * theta[k];
                }
                let error = z.reward + GAMMA * w - v;
                for k in 0..D {
                    theta[k] += 0.01 * (error * now[k] + drift[k]);
                }
            }
            black_box(theta);
        }
    };
    report("scalar", time((AGENTS * STEPS) as f64, 7, leg));
}

fn method(name: &str, local_steps: usize) -> Box<dyn Method> {
    let step_size = StepSize::Constant(0.01);
    match name {
        "fedlsa" => Box::new(FedLsa { step_size, local_steps, global_step_size: 1.0, participants: None }),
        "scafflsa" => Box::new(Scafflsa { step_size, local_steps, global_step_size: 1.0, participants: None, rule: Default::default() }),
        _ => panic!("{name} is no method of the benchmark"),
    }
}

fn run<'a>(field: &'a dyn Field, name: &str, local_steps: usize, uplink: &'a Uplink) -> Run<'a> {
    Run::new(field, &*method(name, local_steps), uplink, OutputRule::Last, 1, vec![0.0; field.dim()])
        .expect("an exact link suits every method")
}

/// Does the work on a pool of `threads`.
fn on<R: Send>(threads: usize, work: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// Whole rounds on one core, in ns a round.
fn round() {
    on(1, || {
        for name in ["fedlsa", "scafflsa"] {
            for (agents, local_steps) in [(1, 1), (8, 1), (AGENTS, 1), (AGENTS, 10), (AGENTS, 100)] {
                let field = garnet(agents, Law::Iid, Isa::best());
                let uplink = Uplink::default();
                let mut run = run(&*field, name, local_steps, &uplink);
                let rounds = 20_000_000 / (agents * (20 + 4 * local_steps) + 500);
                let result = time(rounds as f64, 9, || (0..rounds).for_each(|_| run.step()));
                report(&format!("{name} N={agents} H={local_steps}"), result);
            }
        }
    });
}

/// The same rounds on one core and on two.
fn scaling() {
    for (agents, local_steps, heterogeneity) in [(AGENTS, 1000, Heterogeneity::Independent), (1_000_000, 10, Heterogeneity::TwoKernels)] {
        let garnet = Garnet { agents, heterogeneity, perturbation: Some(0.0), ..Garnet::default() };
        let field = garnet.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        for name in ["fedlsa", "scafflsa"] {
            let uplink = Uplink::default();
            let rounds = 1 + 40_000_000 / (agents * local_steps * 4);
            let of = |threads| {
                on(threads, || {
                    let mut run = run(&*field, name, local_steps, &uplink);
                    time(rounds as f64, 7, || (0..rounds).for_each(|_| run.step()))
                })
            };
            let (one, two) = (of(1), of(2));
            let speedup = one["least"].as_f64().unwrap() / two["least"].as_f64().unwrap();
            report(&format!("{name} N={agents} H={local_steps}"), json!({ "one": one, "two": two, "speedup": speedup }));
        }
    }
}

/// A large federation on two cores, H = 10: seconds to build it, seconds a round, peak memory.
fn federation(heterogeneity: &str, agents: usize, name: &str) {
    let heterogeneity = match heterogeneity {
        "two-kernels" => Heterogeneity::TwoKernels,
        "independent" => Heterogeneity::Independent,
        _ => panic!("{heterogeneity} is no federation of the benchmark"),
    };
    on(2, || {
        let start = Instant::now();
        let garnet = Garnet { agents, heterogeneity, perturbation: Some(0.0), ..Garnet::default() };
        let field = garnet.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let build = start.elapsed().as_secs_f64();
        let uplink = Uplink::default();
        let mut run = run(&*field, name, 10, &uplink);
        let seconds = time(1e9, 5, || run.step());
        let peak = peak_kib().map(|kib| kib / 1024);
        report(&format!("{name} N={agents} H=10"), json!({ "build_s": build, "round_s": seconds, "peak_mib": peak }));
    });
}

/// The largest resident set of this process so far, where the system tells.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().split(' ').next()?.parse().ok()
}
