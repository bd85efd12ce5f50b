//! Measurements of the engine; `cargo xtask bench` runs them beside their peers.
//!
//! Prints one JSON object a line. Times are nanoseconds unless said otherwise: the
//! least, the median and the largest of several repetitions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use fedsa::federation::Federation;
use fedsa::kernel::{Isa, LANES, Lanes, triangle};
use fedsa::linalg::{Mat, column};
use fedsa::method::MethodSettings;
use fedsa::problem::{Field, Problem, Sampled};
use fedsa::random::{ALL, Purpose, Stream, stream};
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::schedule::StepSize;
use fedsa::uplink::Uplink;
use fedsa::uplink::codec::{Codec, CodecSettings, Exact, Float32, Quantised, RandK, Rounding, TopK};
use fedsa::uplink::stage::erasure::Erasure;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::control::sarsa::Sarsa;
use fedsa_problems::kernel::gram;
use fedsa_problems::kernel::symmetric::term_chunks;
use fedsa_problems::linear::finite_sum::FiniteSum;
use fedsa_problems::scope::Scope;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::td::random_mrp::RandomMrp;
use fedsa_problems::{NoFiles, ProblemSettings};
use serde_json::{Value, json};

const AGENTS: usize = 100;
const D: usize = 8;
const STEPS: usize = 10_000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["kernel"] => kernel(),
        ["scalar"] => scalar(),
        ["sarsa"] => sarsa(),
        ["round"] => round(),
        ["short"] => short(),
        ["dense"] => dense(),
        ["terms"] => terms(),
        ["hessians"] => hessians(),
        ["eight"] => eight(),
        ["scaling"] => scaling(),
        ["codecs"] => codecs(),
        ["links"] => links(),
        ["federation", heterogeneity, agents, method] => federation(heterogeneity, agents.parse().expect("a number"), method),
        _ => {
            eprintln!(
                "usage: bench kernel | scalar | sarsa | round | short | dense | terms | hessians | eight | scaling | codecs | links | federation two-kernels|independent AGENTS fedlsa|scafflsa"
            );
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
    spread(&mut ns)
}

fn spread(ns: &mut [f64]) -> Value {
    ns.sort_by(f64::total_cmp);
    json!({ "least": ns[0], "median": ns[ns.len() / 2], "largest": ns[ns.len() - 1] })
}

fn report(name: &str, result: Value) {
    println!("{}", json!({ "name": name, "result": result }));
}

fn garnet(agents: usize, sampling: Law, isa: Isa) -> Arc<dyn Field> {
    Garnet::default().with_agents(agents).field(&NoFiles, Sampling::default().with_kind(sampling), isa).unwrap()
}

/// One local TD(0) step on one core: d = 8, N = 100, H = 10000, a kernel per agent.
fn kernel() {
    for law in [Law::Iid, Law::Markov] {
        for isa in Isa::available() {
            let name = format!("{law:?} {isa:?}").to_lowercase();
            steps(&name, &*garnet(AGENTS, law, isa), if isa == Isa::Portable { 3 } else { 15 });
        }
    }
}

/// Times the local steps of all agents on one core.
fn steps(name: &str, field: &dyn Field, repetitions: usize) {
    let etas = vec![0.01; STEPS];
    let mut lanes = Lanes::new(field.dim(), field.chain_len());
    let phase = || {
        for first in (0..AGENTS).step_by(LANES) {
            lanes.len = LANES.min(AGENTS - first);
            for l in 0..lanes.len {
                lanes.agents[l] = first + l;
                lanes.set_stream(l, stream(0, Purpose::Sample, 0, first + l));
            }
            field.local_phase(std::slice::from_mut(&mut lanes), &etas);
        }
    };
    report(name, time((AGENTS * STEPS) as f64, repetitions, phase));
}

/// One local step of SARSA along a chain on one core: three states, two actions, d = 6, a kernel per agent; and the same in plain loops.
fn sarsa() {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    const STATES: usize = 3;

    let settings =
        Sarsa::default().with_agents(AGENTS).with_states(STATES).with_branching(STATES).with_temperature(0.5).with_exploration(0.1);
    let field = settings.field(&NoFiles, Sampling::default().with_kind(Law::Markov), Isa::best()).unwrap();
    steps("fedsa", &*field, 7);

    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0);
    let mut uniform = move || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let below: Vec<[[f64; STATES]; 2 * STATES]> = (0..AGENTS)
        .map(|_| {
            std::array::from_fn(|_| {
                let row: [f64; STATES] = std::array::from_fn(|_| uniform());
                let sum: f64 = row.iter().sum();
                [row[0] / sum, (row[0] + row[1]) / sum, 1.0]
            })
        })
        .collect();
    let rewards: [f64; 2 * STATES] = std::array::from_fn(|_| uniform());
    let phase = || {
        for below in &below {
            let (mut theta, mut pair) = ([0.0f64; 2 * STATES], 0);
            for _ in 0..STEPS {
                let u = uniform();
                let next = below[pair].iter().position(|p| u < *p).unwrap_or(STATES - 1);
                let (a, b) = (theta[2 * next], theta[2 * next + 1]);
                // The probability of the second action, with a temperature of 0.5 and a tenth of uniform actions.
                let second = 0.9 / (1.0 + ((a - b) / 0.5).exp()) + 0.05;
                let after = 2 * next + usize::from(uniform() < second);
                theta[pair] += 0.01 * (rewards[pair] + 0.8 * theta[after] - theta[pair]);
                pair = after;
            }
            black_box(theta);
        }
    };
    report("plain loops", time((AGENTS * STEPS) as f64, 7, phase));
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
    let phase = || {
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
    report("scalar", time((AGENTS * STEPS) as f64, 7, phase));
}

fn method(name: &str, local_steps: usize) -> Box<dyn MethodSettings> {
    let step_size = StepSize::Constant(0.01);
    match name {
        "fedlsa" => Box::new(FedLsa::new(step_size, local_steps)),
        "scafflsa" => Box::new(Scafflsa::new(0.01, local_steps).with_step_size(step_size)),
        _ => panic!("{name} is no method of the benchmark"),
    }
}

fn run(field: &Arc<dyn Field>, name: &str, local_steps: usize, uplink: &Uplink) -> Run {
    Federation::builder(&*method(name, local_steps))
        .uplink(uplink)
        .seed(1)
        .on(&**field)
        .and_then(|federation| Run::new(field, &federation))
        .expect("an exact link suits every method")
}

/// Carries rounds.
fn go_on(run: &mut Run, rounds: usize) {
    (0..rounds).for_each(|_| run.step());
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
                let mut run = run(&field, name, local_steps, &uplink);
                let rounds = 20_000_000 / (agents * (20 + 4 * local_steps) + 500);
                let result = time(rounds as f64, 9, || go_on(&mut run, rounds));
                report(&format!("{name} N={agents} H={local_steps}"), result);
            }
        }
    });
}

/// Rounds of one step of 100 agents, d = 8, on one thread and on two, in turn.
fn short() {
    let field = garnet(AGENTS, Law::Iid, Isa::best());
    let uplink = Uplink::default();
    for name in ["fedlsa", "scafflsa"] {
        let rounds = 2_000;
        let times = in_turn([1, 2], (rounds * AGENTS) as f64, 25, || run(&field, name, 1, &uplink), |run| go_on(run, rounds));
        report(&format!("{name} N={AGENTS} H=1"), times);
    }
}

/// Mean operators as one would first write them: the rows of A one after the other, of the same bytes as the kernel's.
struct Plain {
    d: usize,
    weights: Vec<f64>,
    /// Each agent's matrix, column by column.
    a: Vec<Vec<f64>>,
    b: Vec<Vec<f64>>,
}

impl Problem for Plain {
    type Obs = ();
    fn dim(&self) -> usize {
        self.d
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, _: &mut ()) {}
    fn apply(&self, c: usize, theta: &[f64], _: &(), out: &mut [f64]) {
        self.mean(c, theta, out);
    }
    #[inline(always)]
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        out.copy_from_slice(&self.b[c]);
        for (column, x) in self.a[c].chunks_exact(self.d).zip(theta) {
            for (out, a) in out.iter_mut().zip(column) {
                *out -= a * x;
            }
        }
        true
    }
}

const SIZES: [usize; 3] = [50, 200, 400];

/// Eight agents with dense processes of their own, mean sampling.
fn dense_field(d: usize) -> Arc<dyn Field> {
    let problem =
        RandomMrp::default().with_agents(8).with_states(2 * d).with_features(d).with_kernel(Scope::PerAgent).with_rewards(Scope::PerAgent);
    problem.field(&NoFiles, Sampling::default().with_kind(Law::Mean), Isa::best()).unwrap()
}

/// One local step on dense mean operators of eight agents, on one core, in turn with a plain loop over matrices of the
/// same bytes; both compiled for the best instruction set.
fn dense() {
    for d in SIZES {
        let field = dense_field(d);
        let systems = field.systems().expect("linear");
        let columns = |c: usize| (0..d * d).map(|k| systems.of(c).a[(k % d, k / d)]).collect();
        let plain = Plain {
            d,
            weights: vec![1.0 / 8.0; 8],
            a: (0..8).map(columns).collect(),
            b: (0..8).map(|c| systems.of(c).b.clone()).collect(),
        };
        let plain: Arc<dyn Field> = Arc::new(Sampled::new(plain, field.sampling(), Isa::best()).unwrap());
        let steps = 20_000_000 / (8 * d * d) + 1;
        let etas = vec![0.01; steps];
        let mut ns = [Vec::new(), Vec::new()];
        for _ in 0..25 {
            for (field, ns) in [&field, &plain].into_iter().zip(&mut ns) {
                let mut lanes = Lanes::new(d, 0);
                (lanes.len, lanes.agents) = (8, std::array::from_fn(|l| l));
                let start = Instant::now();
                field.local_phase(std::slice::from_mut(&mut lanes), &etas);
                ns.push(start.elapsed().as_secs_f64() * 1e9 / (8 * steps) as f64);
                black_box(lanes.theta(0));
            }
        }
        let [ours, plain] = [0, 1].map(|i| spread(&mut ns[i]));
        let ratio = ours["least"].as_f64().unwrap() / plain["least"].as_f64().unwrap();
        report(&format!("d={d}"), json!({ "ours": ours, "plain": plain, "ratio": ratio }));
    }
}

/// Weighted Gram matrices of dense rows, and products with packed triangles, on one core, in turn with products of whole matrices by faer.
fn hessians() {
    for (n, d) in [(500, 300), (1000, 50), (1000, 22)] {
        let number = |i: usize| (i as f64 * 0.37).sin();
        let (values, weights): (Vec<f64>, Vec<f64>) = ((0..n * d).map(number).collect(), (0..n).map(|j| 2.0 + number(j)).collect());
        let (x, mut lower, mut out) = (Mat::from_fn(n, d, |j, i| values[j * d + i]), vec![0.0; d * d], vec![0.0; d]);
        let mut ns: [Vec<f64>; 4] = Default::default();
        for _ in 0..25 {
            let mut of = |k: usize, work: &mut dyn FnMut()| ns[k].push(time(1.0, 1, work)["least"].as_f64().expect("a time"));
            let (v, square) = (&values[..d], Mat::from_fn(d, d, |i, j| number(i + j)));
            of(0, &mut || gram::add(Isa::best(), &values, d, &weights, 0, &mut lower.chunks_mut(d).collect::<Vec<_>>()));
            of(1, &mut || drop(black_box(x.transpose() * Mat::from_fn(n, d, |j, i| weights[j] * x[(j, i)]))));
            of(2, &mut || triangle::product(Isa::best(), &values[..d * (d + 1) / 2], v, &mut out));
            of(3, &mut || drop(black_box(&square * column(v))));
        }
        for (k, what) in ["Hessian", "product with a triangle"].into_iter().enumerate() {
            let [ours, faer] = [0, 1].map(|i| spread(&mut ns[2 * k + i]));
            let ratio = ours["least"].as_f64().unwrap() / faer["least"].as_f64().unwrap();
            report(&format!("{what}, n={n} d={d}"), json!({ "ours": ours, "faer": faer, "ratio": ratio }));
        }
    }
}

/// Terms of finite sums as one would first write them: whole matrices, column by column, of which each step draws one.
struct PlainTerms {
    d: usize,
    n: usize,
    weights: Vec<f64>,
    /// Each agent's terms: `-A`, then b.
    terms: Vec<Vec<f64>>,
}

impl Problem for PlainTerms {
    type Obs = usize;
    fn dim(&self) -> usize {
        self.d
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    #[inline(always)]
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], stream: &mut Stream, z: &mut usize) {
        *z = (stream.uniform() * self.n as f64) as usize;
    }
    #[inline(always)]
    fn apply(&self, c: usize, theta: &[f64], z: &usize, out: &mut [f64]) {
        let size = self.d * (self.d + 1);
        let (a, b) = self.terms[c][z * size..(z + 1) * size].split_at(self.d * self.d);
        out.copy_from_slice(b);
        for (column, x) in a.chunks_exact(self.d).zip(theta) {
            for (out, a) in out.iter_mut().zip(column) {
                *out = a.mul_add(*x, *out);
            }
        }
    }
}

/// GB/s at which one core reads an array of numbers, in order.
fn reading(numbers: &[f64]) -> f64 {
    let ns = time((8 * numbers.len()) as f64, 5, || {
        let mut sums = [0.0; 64];
        for chunk in numbers.as_chunks::<64>().0 {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x);
        }
        black_box(sums);
    });
    1.0 / ns["least"].as_f64().unwrap()
}

/// One local step of finite sums, on one core: agents one batch after the other with local phases of ten steps, so many that their terms
/// fit into no cache; in turn with the same steps on whole matrices. And the speed at which this core reads memory.
fn terms() {
    const TERMS: usize = 10;
    const STEPS: usize = 10;
    let read = reading(&vec![1.0; 40_000_000]);
    report("reading memory, GB/s", json!(read));
    for (d, agents) in [(10, 16_000), (50, 1600), (200, 120)] {
        let settings = FiniteSum::default().with_agents(agents).with_terms(TERMS).with_dim(d);
        let field = settings.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let whole = |c: usize| {
            let law = field.facts().law(c).expect("a finite sum");
            let (mut at, mut offset, mut column) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
            let mut all = Vec::with_capacity(TERMS * d * (d + 1));
            for z in 0..TERMS {
                law.operator(z, &at, &mut offset);
                for j in 0..d {
                    at[j] = 1.0;
                    law.operator(z, &at, &mut column);
                    at[j] = 0.0;
                    all.extend(column.iter().zip(&offset).map(|(g, b)| g - b));
                }
                all.extend(&offset);
            }
            all
        };
        let plain = PlainTerms { d, n: TERMS, weights: field.weights().to_vec(), terms: (0..agents).map(whole).collect() };
        let plain: Arc<dyn Field> = Arc::new(Sampled::new(plain, field.sampling(), Isa::best()).unwrap());
        let mut ns = [Vec::new(), Vec::new()];
        for repetition in 0..12u64 {
            for (field, ns) in [&field, &plain].into_iter().zip(&mut ns) {
                let mut lanes = Lanes::new(d, 0);
                lanes.len = LANES;
                let start = Instant::now();
                for first in (0..agents).step_by(LANES) {
                    for l in 0..LANES {
                        lanes.agents[l] = first + l;
                        lanes.set_stream(l, stream(0, Purpose::Sample, repetition, first + l));
                    }
                    field.local_phase(std::slice::from_mut(&mut lanes), &[1e-3; STEPS]);
                }
                ns.push(start.elapsed().as_secs_f64() * 1e9 / (agents * STEPS) as f64);
                black_box(lanes.theta(0));
            }
        }
        let [ours, plain] = [0, 1].map(|i| spread(&mut ns[i]));
        let least = |x: &Value| x["least"].as_f64().unwrap();
        let bytes = 64.0 * term_chunks(d) as f64;
        let speed = bytes / least(&ours);
        report(
            &format!("d={d}"),
            json!({
                "ours": ours, "plain": plain, "ratio": least(&ours) / least(&plain), "bytes": bytes,
                "plain_bytes": 8 * d * (d + 1), "gb_per_s": speed, "share_of_reading": speed / read,
            }),
        );
    }
}

/// Eight agents at d = 200 on one thread and on two, in turn: rounds alone, in ns a round, and with the setup, in ns.
fn eight() {
    let (d, steps, uplink) = (200, 100, Uplink::default());
    let field = dense_field(d);
    for name in ["fedlsa", "scafflsa"] {
        // Short pieces, many times: the least is then of moments in which both cores were free.
        let times = in_turn([1, 2], 1.0, 300, || run(&field, name, steps, &uplink), |run| run.step());
        report(&format!("{name} N=8 d={d} H={steps}"), times);
    }
    let whole = |(): &mut ()| {
        let field = dense_field(d);
        let mut run = run(&field, "fedlsa", steps, &uplink);
        (0..300).for_each(|_| run.step());
    };
    report(&format!("fedlsa N=8 d={d} H={steps}, setup and 300 rounds"), in_turn([1, 2], 1.0, 5, || (), whole));
    report("setup alone", in_turn([1, 2], 1.0, 5, || (), |(): &mut ()| drop(dense_field(d))));
}

/// Times work on pools of so many threads in turn, so that what else the machine does falls on all alike: for each the
/// least and median ns a unit, and the ratio of the least.
fn in_turn<T: Send>(
    threads: [usize; 2],
    units: f64,
    repetitions: usize,
    make: impl Fn() -> T + Sync,
    work: impl Fn(&mut T) + Sync,
) -> Value {
    let pools = threads.map(|n| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap());
    let mut states = threads.map(|_| make());
    let mut ns = threads.map(|_| Vec::new());
    for repetition in 0..=repetitions {
        for ((pool, state), ns) in pools.iter().zip(&mut states).zip(&mut ns) {
            let start = Instant::now();
            pool.install(|| work(state));
            // The first is not counted.
            if repetition > 0 {
                ns.push(start.elapsed().as_secs_f64() * 1e9 / units);
            }
        }
    }
    let [one, two] = [0, 1].map(|i| spread(&mut ns[i]));
    let speedup = one["least"].as_f64().unwrap() / two["least"].as_f64().unwrap();
    json!({ "one": one, "two": two, "speedup": speedup })
}

/// The same rounds on one core and on two.
fn scaling() {
    for (agents, local_steps, heterogeneity) in [(AGENTS, 1000, Heterogeneity::Independent), (1_000_000, 10, Heterogeneity::TwoKernels)] {
        let garnet = Garnet::default().with_agents(agents).with_heterogeneity(heterogeneity).with_perturbation(0.0);
        let field = garnet.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        for name in ["fedlsa", "scafflsa"] {
            let uplink = Uplink::default();
            let rounds = 1 + 40_000_000 / (agents * local_steps * 4);
            let of = |threads| {
                on(threads, || {
                    let mut run = run(&field, name, local_steps, &uplink);
                    time(rounds as f64, 7, || (0..rounds).for_each(|_| run.step()))
                })
            };
            let (one, two) = (of(1), of(2));
            let speedup = one["least"].as_f64().unwrap() / two["least"].as_f64().unwrap();
            report(&format!("{name} N={agents} H={local_steps}"), json!({ "one": one, "two": two, "speedup": speedup }));
        }
    }
}

/// Every codec, and a name for it.
fn all_codecs() -> Vec<(String, Arc<dyn Codec>)> {
    let mut all: Vec<(String, Arc<dyn Codec>)> = vec![("exact".into(), Arc::new(Exact)), ("float32".into(), Float32 {}.build())];
    for bits in [1, 2, 4, 8, 16, 32] {
        all.push((format!("quantised, {bits} bits"), Quantised::new(bits).with_rounding(Rounding::Stochastic).build()));
    }
    for (name, rounding) in [("dither", Rounding::Dither), ("nearest", Rounding::Nearest)] {
        all.push((format!("quantised, 4 bits, {name}"), Quantised::new(4).with_rounding(rounding).build()));
    }
    for share in [0.01, 0.1] {
        all.push((format!("top-k, {}%", 100.0 * share), TopK::default().with_k(None).with_fraction(share).build()));
        all.push((format!("rand-k, {}%", 100.0 * share), RandK::default().with_k(None).with_fraction(share).with_unbiased(true).build()));
    }
    all
}

/// Packing and unpacking on one core: GB/s of the f64 that go in or come out, of vectors that
/// the cache holds.
fn codecs() {
    for n in [100, 100_000] {
        let mut normals = stream(1, Purpose::Fresh, 0, ALL);
        let x: Vec<f64> = (0..n).map(|_| normals.normal()).collect();
        let open = || stream(1, Purpose::Codec, 0, ALL);
        let times = 4_000_000 / n;
        for (name, codec) in all_codecs() {
            let (mut bytes, mut back) = (Vec::new(), vec![0.0; n]);
            let of = |work: &mut dyn FnMut()| {
                // Bytes a nanosecond are GB a second: the fastest repetition first.
                let ns = time((8 * n * times) as f64, 9, || (0..times).for_each(|_| work()));
                let speed = |key: &str| 1.0 / ns[key].as_f64().expect("a time");
                json!({ "least": speed("largest"), "median": speed("median"), "largest": speed("least") })
            };
            let pack = of(&mut || {
                bytes.clear();
                codec.encode(black_box(&x), None, &mut open(), &mut bytes);
            });
            let unpack = of(&mut || {
                codec.decode(black_box(&bytes), &mut open(), &mut back).expect("what was just encoded");
            });
            report(&format!("{name}, d={n}"), json!({ "pack": pack, "unpack": unpack, "bytes": bytes.len() }));
        }
    }
}

/// What a link costs a round, on one core: FedLSA over several links beside its local steps alone.
fn links() {
    let with = |codec: Arc<dyn Codec>| Uplink::default().with_codec(codec);
    let mut lossy = Uplink::default();
    lossy.push(std::sync::Arc::new(Erasure::new(0.6))).expect("a probability");
    let links = [
        ("no link given", Uplink::default()),
        ("exact codec given", with(Arc::new(Exact))),
        ("erasure", lossy),
        ("float32", with(Float32 {}.build())),
        ("quantised, 4 bits", with(Quantised::new(4).with_rounding(Rounding::Stochastic).build())),
        ("rand-k, k = 2", with(RandK::default().with_k(2).with_fraction(None).with_unbiased(true).build())),
    ];
    on(1, || {
        for local_steps in [1, 10, 100] {
            let field = garnet(AGENTS, Law::Iid, Isa::best());
            let rounds = 20_000_000 / (AGENTS * (20 + 4 * local_steps));
            let etas = vec![0.01; local_steps];
            let mut lanes = Lanes::new(D, field.chain_len());
            let phases = time(rounds as f64, 9, || {
                for t in 0..rounds {
                    for first in (0..AGENTS).step_by(LANES) {
                        lanes.len = LANES.min(AGENTS - first);
                        for l in 0..lanes.len {
                            lanes.agents[l] = first + l;
                            lanes.set_stream(l, stream(0, Purpose::Sample, t as u64, first + l));
                        }
                        field.local_phase(std::slice::from_mut(&mut lanes), &etas);
                    }
                }
            });
            report(&format!("local steps alone H={local_steps}"), phases);
            for (name, uplink) in &links {
                let mut run = run(&field, "fedlsa", local_steps, uplink);
                report(&format!("{name} H={local_steps}"), time(rounds as f64, 9, || (0..rounds).for_each(|_| run.step())));
            }
        }
    });
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
        let garnet = Garnet::default().with_agents(agents).with_heterogeneity(heterogeneity).with_perturbation(0.0);
        let field = garnet.field(&NoFiles, Sampling::default(), Isa::best()).unwrap();
        let build = start.elapsed().as_secs_f64();
        let uplink = Uplink::default();
        let mut run = run(&field, name, 10, &uplink);
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
