//! What the suites share: small problems and every method.
#![allow(dead_code, reason = "each suite uses a part")]

pub mod adversary;
pub mod forms;
pub mod local;

use std::sync::{Arc, LazyLock};

use fedsa::error::{Error, Result};
use fedsa::kernel::{Isa, Lanes, flat};
use fedsa::message::{HEADER_BYTES, PART_HEADER_BYTES};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::problem::arrays::Arrays;
use fedsa::random::{Purpose, stream};
use fedsa::record::{Ledger, OutputRule};
use fedsa::round::Run;
use fedsa::sampling::{Law, Sampling};
use fedsa::secure::Secret;
use fedsa::uplink::Uplink;
use fedsa_problems::control::policy_gradient::PolicyGradient;
use fedsa_problems::control::sarsa::Sarsa;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::linear::affine::LinearSystems;
use fedsa_problems::linear::finite_sum::FiniteSum;
use fedsa_problems::linear::quadratic::{Matrices, Quadratic};
use fedsa_problems::linear::switching::Switching;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::LogForm;
use fedsa_problems::logs::replay::{Logs, Sources};
use fedsa_problems::logs::source::{LogSource, in_memory};
use fedsa_problems::memory::MemoryEstimate;
use fedsa_problems::noise::Noise;
use fedsa_problems::nonlinear::fixed_point::FixedPoint;
use fedsa_problems::nonlinear::q_learning::QLearning;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;
use fedsa_problems::rows::dataset::{Dataset, Labels, Rows, Wanted};
use fedsa_problems::rows::glm::family::FamilyName;
use fedsa_problems::rows::preparation::AgentWeights;
use fedsa_problems::rows::regression::{GeneralisedLinear, LeastSquares, Logistic};
use fedsa_problems::scope::Scope;
use fedsa_problems::td::baird::Baird;
use fedsa_problems::td::garnet::{Garnet, Heterogeneity};
use fedsa_problems::td::gradient_td::TdOperator;
use fedsa_problems::{Files, NoFiles, ProblemSettings};

/// A field on the fastest kernels.
pub fn field(problem: &dyn ProblemSettings, kind: Law) -> Arc<dyn Field> {
    problem.field(&NoFiles, Sampling::default().with_kind(kind), Isa::best()).unwrap()
}

/// A method from its name and a JSON object of settings.
pub fn method(kind: &str, settings: &str) -> Box<dyn MethodSettings> {
    let entry = fedsa_methods::KINDS.iter().find(|k| k.is_called(kind)).expect("a known kind");
    let table: fedsa::settings::Value = serde_json::from_str(settings).expect("JSON");
    (entry.read)(&table).unwrap()
}

/// Every method, with settings that are stable on [`problems`].
pub fn methods(participants: Option<usize>) -> Vec<(&'static str, Box<dyn MethodSettings>)> {
    let m = participants.map_or(String::new(), |m| format!(r#", "participants": {m}"#));
    let settings = [
        ("fedlsa", r#""step_size": 0.05, "local_steps": 7"#),
        ("fedlsa", r#""step_size": {"c": 0.5, "t0": 10, "per": "step"}, "local_steps": 7, "global_step_size": 0.8"#),
        ("scafflsa", r#""step_size": 0.05, "local_steps": 7"#),
        ("scafflsa", r#""step_size": {"c": 0.5, "t0": 10}, "local_steps": 7, "global_step_size": 0.8"#),
        ("scafflsa-random", r#""step_size": 0.05, "talk_probability": 0.2"#),
        ("fedhsa", r#""step_size": 0.05, "local_steps": 7"#),
        ("fedhsa", r#""step_size": 0.05, "local_steps": 7, "global_step_size": 0.8"#),
        ("fedhsa", r#""step_size": 0.05, "local_steps": 7, "missing": "last""#),
        ("scaffold", r#""step_size": 0.05, "local_steps": 7"#),
        ("scaffold", r#""step_size": {"c": 0.5, "t0": 10}, "local_steps": 7, "global_step_size": 0.8"#),
        ("fedlin", r#""step_size": 0.05, "local_steps": 7"#),
        ("fedlin", r#""step_size": 0.05, "local_steps": 7, "global_step_size": 0.8"#),
        ("fedprox", r#""step_size": 0.05, "local_steps": 7, "proximal_mu": 2.0"#),
        ("fedprox", r#""step_size": {"c": 0.5, "t0": 10, "per": "step"}, "local_steps": 7, "proximal_mu": 0.5, "global_step_size": 0.8"#),
        ("projected-td", r#""step_size": 0.05, "local_steps": 7, "radius": 0.5"#),
        ("fedtd", r#""step_size": 0.05"#),
    ];
    let mut all: Vec<_> = settings.iter().map(|(kind, s)| (*kind, method(kind, &format!("{{{s}{m}}}")))).collect();
    if participants.is_none() {
        all.push(("one-shot", method("one-shot", r#"{"step_size": 0.05, "local_steps": 7}"#)));
        all.push(("one-shot", method("one-shot", r#"{"step_size": {"c": 0.5, "t0": 10, "per": "step"}, "local_steps": 7}"#)));
    }
    for kind in ["delayed-sa", "delay-adaptive-sa", "dasa"] {
        all.push((kind, method(kind, &format!(r#"{{"step_size": 0.05{m}}}"#))));
        all.push((kind, method(kind, &format!(r#"{{"step_size": 0.02, "local_steps": 5, "global_step_size": 0.8{m}}}"#))));
    }
    for base in [
        r#""kind": "fedlsa", "step_size": 0.05, "local_steps": 7"#,
        r#""kind": "scafflsa", "step_size": 0.05, "local_steps": 7, "global_step_size": 0.8"#,
        r#""kind": "fedhsa", "step_size": 0.05, "local_steps": 7"#,
        r#""kind": "projected-td", "step_size": 0.05, "local_steps": 7, "radius": 0.5"#,
    ] {
        all.push(("anderson", method("anderson", &format!(r#"{{"base": {{{base}{m}}}, "memory": 3}}"#))));
    }
    let second: Vec<&str> = computing_alone().iter().map(|(name, _)| *name).collect();
    for kind in fedsa_methods::KINDS.iter().filter(|_| participants.is_none()) {
        // Its problems are tables, in a suite of their own.
        let is_there = kind.name == "importance-averaging" || all.iter().any(|(name, _)| *name == kind.name) || second.contains(&kind.name);
        assert!(is_there, "{} has no entry in the suites", kind.name);
    }
    all
}

/// Every method whose agents compute alone, for [`objectives`]; Newton's method first.
pub fn computing_alone() -> Vec<(&'static str, Box<dyn MethodSettings>)> {
    let settings = [
        ("newton", "{}"),
        ("newton", r#"{"halvings": 3, "decrease": 0.2}"#),
        ("lstd", "{}"),
        ("lstd", r#"{"participants": 2}"#),
        ("lspi", "{}"),
        ("lspi", r#"{"first": "start", "global_step_size": 0.5}"#),
        ("fitted-q", "{}"),
        ("fitted-q", r#"{"first": "start", "global_step_size": 0.5}"#),
        ("gmres", "{}"),
        ("gmres", r#"{"restart": 2}"#),
        ("shed", "{}"),
        ("shed", r#"{"renewal": {"schedule": "once"}, "rho": "midpoint", "step": "unit"}"#),
        ("shed", r#"{"renewal": {"schedule": "gradient-norm", "min_distance": 3}, "pairs": "random", "rho": "midpoint"}"#),
        ("q-shed", "{}"),
        ("q-shed", r#"{"max_bits": 5, "budget": 3, "allocation": "exact", "renewal": {"schedule": "gradient-norm", "min_distance": 3}}"#),
        // Without a budget of their own they work over links with one too.
        ("q-shed", r#"{"max_bits": 5, "allocation": "exact"}"#),
        ("q-shed", r#"{"max_bits": 1, "renewal": {"schedule": "once"}}"#),
        ("q-shed", r#"{"allocation": "first-vectors"}"#),
        ("q-shed", r#"{"allocation": "ideal"}"#),
        ("shed", r#"{"curvature": "products"}"#),
        (
            "shed",
            r#"{"curvature": "products", "renewal": {"schedule": "gradient-norm", "min_distance": 3}, "rho": "midpoint", "max_pairs": 2}"#,
        ),
        ("gd", r#"{"step_size": 0.3}"#),
        ("gd", "{}"),
        ("agd", r#"{"step_size": 0.3}"#),
        ("agd", r#"{"strong_convexity": 0.5}"#),
        ("agd", r#"{"momentum": 0.5, "halvings": 4}"#),
        ("bfgs", "{}"),
        ("lbfgs", r#"{"memory": 2}"#),
        ("adaptive-newton", "{}"),
        ("adaptive-newton", r#"{"first": "hessians", "keep": true, "memory": 2}"#),
        ("adaptive-newton", r#"{"first": "gradients", "tolerance": 1e-3, "largest_hessian": 0}"#),
        ("giant", "{}"),
        ("giant", r#"{"gradients_ahead": true}"#),
        ("giant", r#"{"cg_steps": 2, "shrinks": 1}"#),
        ("done", r#"{"richardson_step": 0.3, "richardson_steps": 3, "step_size": 0.5}"#),
        // So many products that Hessians are formed.
        ("done", r#"{"richardson_step": 0.01, "richardson_steps": 150, "step_size": 0.01}"#),
        ("fednl", "{}"),
        ("fednl", r#"{"compressor": "rank-1"}"#),
        ("fednl", r#"{"compressor": "rank-1", "pair_bits": 5}"#),
        (
            "fednl",
            r#"{"compressor": "top-k", "k": 3, "option": "projection", "mu": 0.5, "first_hessian": "mu-identity", "line_search": true}"#,
        ),
        ("fednl", r#"{"compressor": "rand-k", "k": 3, "participants": 2}"#),
        ("fednl", r#"{"compressor": "natural", "first_hessian": "mu-identity", "mu": 0.5, "participants": 1}"#),
        ("fednl", r#"{"compressor": "full", "step_size": 0.5, "option": "projection", "mu": 0.1}"#),
    ];
    settings.map(|(kind, settings)| (kind, method(kind, settings))).into()
}

/// Small problems with an objective: linear ones with symmetric `A_c`, all positive definite, or only in the mean.
pub fn objectives(agents: usize) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    let symmetric = |shift: f64| {
        let mut draws = stream(4, Purpose::Fresh, 0, 0);
        let mut agent = || {
            let lower: [[f64; 4]; 4] = std::array::from_fn(|_| std::array::from_fn(|_| draws.uniform() - 0.5));
            let entry = |i: usize, j: usize| lower[i.max(j)][i.min(j)] + if i == j { shift } else { 0.0 };
            let a: [[f64; 4]; 4] = std::array::from_fn(|i| std::array::from_fn(|j| entry(i, j)));
            (a, std::array::from_fn(|_| draws.normal()))
        };
        linear(&(0..agents).map(|_| agent()).collect::<Vec<_>>())
    };
    vec![
        ("symmetric systems", Box::new(symmetric(2.0))),
        ("symmetric systems, indefinite agents", Box::new(symmetric(0.8))),
        ("least squares", least_squares(agents, 9, 3, true)),
        ("scaled identity", Box::new(LinearSystems::default().with_agents(agents).with_dim(3))),
    ]
}

/// A method's halves that exchange bytes, in one thread; what passes is counted.
pub struct Halves {
    /// The agents.
    pub nodes: Vec<ClientNode>,
    /// The server.
    pub server: ServerNode,
    /// What passed: no samples and no calls.
    pub ledger: Ledger,
}

impl Halves {
    /// At the start of a run from zero.
    pub fn new(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, seed: u64) -> Result<Self> {
        let federation = Federation::new(method, uplink, field.weights().to_vec(), seed, vec![0.0; field.dim()])?;
        let federation = with_keys(federation.with_root(field.root().unwrap_or(&[])));
        let nodes =
            (0..field.agents()).map(|c| Ok(keyed(ClientNode::new(&federation, field, c, c)?, &federation, c))).collect::<Result<_>>()?;
        Ok(Self { nodes, server: ServerNode::new(&federation)?, ledger: Ledger::default() })
    }

    fn send(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) -> Vec<(usize, Vec<u8>)> {
        self.ledger.exchanges += 1;
        self.ledger.messages += to.len() as u64;
        self.ledger.bits_down += bytes.iter().map(|bytes| 8 * bytes.len() as u64).sum::<u64>();
        let answers: Vec<_> = to.iter().zip(bytes).filter_map(|(c, bytes)| Some((*c, self.nodes[*c].handle(bytes).unwrap()?))).collect();
        self.ledger.messages += answers.len() as u64;
        self.ledger.bits_up += answers.iter().map(|(_, answer)| 8 * answer.len() as u64).sum::<u64>();
        answers
    }

    /// One round over a network that loses nothing.
    pub fn round(&mut self) {
        assert_eq!(self.refusing_round(), []);
    }

    /// The same, and the answers that the server refuses.
    pub fn refusing_round(&mut self) -> Vec<(usize, Error)> {
        let (mut todo, mut refused) = (self.server.open(), Vec::new());
        while let Todo::Ask { to, bytes } = todo {
            let answers = self.send(&to, &bytes);
            let progress = self.server.receive(&answers);
            refused.extend(progress.refused);
            todo = progress.todo;
        }
        assert_eq!(todo, Todo::RoundOver, "what is told travels with the next question");
        refused
    }

    /// Tells agents what would travel with their next questions; it is counted as if it did.
    pub fn finish(&mut self) {
        if let Todo::Tell { to, bytes } = self.server.finish() {
            for (c, bytes) in to.iter().zip(&bytes) {
                assert_eq!(self.nodes[*c].handle(bytes).unwrap(), None);
                self.ledger.bits_down += 8 * (bytes.len() - HEADER_BYTES + PART_HEADER_BYTES) as u64;
            }
        }
    }
}

/// The secret key of an agent in tests.
/// The secret key of an agent.
pub fn secret(agent: usize) -> Secret {
    Secret::of_bytes([agent as u8 + 1; 32])
}

/// A federation with the public keys of its agents, if its link needs them.
pub fn with_keys(federation: Federation) -> Federation {
    let keys: Vec<_> = (0..federation.agents()).map(|c| secret(c).public()).collect();
    if federation.grid().is_some() { federation.with_keys(keys).unwrap() } else { federation }
}

/// The node of an agent with its secret key.
pub fn keyed(node: ClientNode, federation: &Federation, agent: usize) -> ClientNode {
    node.with_secret(federation, &secret(agent)).unwrap()
}

/// What passes on the wire, of what a run counts.
pub fn on_the_wire(ledger: Ledger) -> Ledger {
    let Ledger { exchanges, messages, bits_up, bits_down, .. } = ledger;
    Ledger { exchanges, messages, bits_up, bits_down, ..Ledger::default() }
}

/// Small problems, one of each sort.
pub fn problems(agents: usize) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    let noise = |radius| Some(Noise::new(0.3, radius, 1));
    let of_families = generalised(agents, 9, 3).into_iter().filter(|(name, _)| ["huber", "multinomial, sparse"].contains(name));
    let others: Vec<(&'static str, Box<dyn ProblemSettings>)> = vec![
        ("garnet", Box::new(Garnet::default().with_agents(agents).with_heterogeneity(Heterogeneity::TwoKernels))),
        ("garnet, 11 features", Box::new(Garnet::default().with_agents(agents).with_features(11))),
        ("switching", Box::new(Switching::default().with_agents(agents).with_dim(2).with_mixing_time(4.0).with_spread(1.0))),
        ("linear, white noise", Box::new(LinearSystems::default().with_agents(agents).with_dim(3).with_noise(noise(0.0)))),
        (
            "quadratic, noise matrices per agent",
            Box::new(
                Quadratic::default()
                    .with_agents(agents)
                    .with_dim(3)
                    .with_matrices(Matrices::IndefiniteOneAverage)
                    .with_noise(Noise::new(0.3, 0.7, 1).with_memory(Scope::PerAgent)),
            ),
        ),
        ("finite sum", Box::new(FiniteSum::default().with_agents(agents).with_dim(3).with_terms(4))),
        ("linear, Gauss-Markov noise", Box::new(LinearSystems::default().with_agents(agents).with_dim(3).with_noise(noise(0.7)))),
        ("random-logistic", Box::new(RandomLogistic::default().with_agents(agents).with_dim(3).with_points(9))),
        ("logistic, sparse", logistic(agents, 9, 3, true)),
        ("least squares", least_squares(agents, 9, 3, false)),
        ("fixed-point", Box::new(FixedPoint::default().with_agents(agents).with_dim(3))),
        (
            "baird, tdc, white noise",
            Box::new(
                Baird::default().with_agents(agents).with_operator(TdOperator::Tdc).with_kappa(4.0).with_spread(0.5).with_noise(noise(0.0)),
            ),
        ),
        ("q-learning", Box::new(QLearning::default().with_agents(agents).with_states(5))),
        ("sarsa", Box::new(Sarsa::default().with_agents(agents).with_states(5))),
    ];
    others.into_iter().chain(of_families).collect()
}

/// [`problems`], and those that refuse trajectories unless `law` is that of trajectories.
pub fn problems_under(law: Law, agents: usize) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    let mut all = problems(agents);
    if law != Law::Markov {
        all.push(("policy-gradient", Box::new(PolicyGradient::default().with_agents(agents).with_states(5).with_length(6))));
    }
    all
}

/// A run of a method on a field over a link.
pub fn engine(
    field: &Arc<dyn Field>,
    method: &dyn MethodSettings,
    uplink: &Uplink,
    output: OutputRule,
    seed: u64,
    start: Vec<f64>,
) -> Result<Run> {
    Run::new(field, &Federation::new(method, uplink, field.weights(), seed, start)?.with_output(output))
}

/// A run from zero.
pub fn run(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink, seed: u64) -> Run {
    method.check(field.agents()).unwrap();
    engine(field, method, uplink, OutputRule::Last, seed, vec![0.0; field.dim()]).unwrap()
}

/// A link that alters nothing.
pub static EXACT: LazyLock<Uplink> = LazyLock::new(Uplink::default);

/// A run over a link that alters nothing, from `start`.
pub fn run_from(field: &Arc<dyn Field>, method: &dyn MethodSettings, seed: u64, start: &[f64]) -> Run {
    method.check(field.agents()).unwrap();
    engine(field, method, &EXACT, OutputRule::Last, seed, start.to_vec()).unwrap()
}

/// The run after `rounds` rounds.
pub fn run_for(field: &Arc<dyn Field>, method: &dyn MethodSettings, seed: u64, start: &[f64], rounds: u64) -> Run {
    let mut run = run_from(field, method, seed, start);
    (0..rounds).for_each(|_| run.step());
    run
}

/// Linear systems that are written out, `A_c` in rows.
pub fn linear<const D: usize>(agents: &[([[f64; D]; D], [f64; D])]) -> LinearSystems {
    LinearSystems::default()
        .with_a(agents.iter().map(|(a, _)| a.iter().map(|row| row.to_vec()).collect()).collect())
        .with_b(agents.iter().map(|(_, b)| b.to_vec()).collect())
}

/// A small garnet problem of agents that differ, quick to settle.
pub fn small_garnet(agents: usize, heterogeneity: Heterogeneity) -> Garnet {
    Garnet::default()
        .with_agents(agents)
        .with_states(12)
        .with_features(4)
        .with_min_class(6)
        .with_gamma(0.8)
        .with_seed(3)
        .with_heterogeneity(heterogeneity)
}

/// Logs in memory.
pub struct InMemory(pub Vec<Log>);

impl Files for InMemory {
    fn arrays(&self, path: &str) -> Result<Arrays> {
        NoFiles.arrays(path)
    }
    fn logs(&self, _: &[String], _: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        Ok(in_memory(self.0.clone()))
    }
}

/// TD(0), gamma 1/2, on logs whose states are their features.
pub fn logs(logs: Vec<Log>, kind: Law) -> Arc<dyn Field> {
    let settings = Logs::new(Sources::One(String::new()), FeatureSpec::Identity { bias: false }, 0.5);
    settings.field(&InMemory(logs), Sampling::default().with_kind(kind), Isa::best()).unwrap()
}

/// Logs of 5, 20, 75 and 11 random transitions of three columns: agents of unequal weight.
pub fn unequal(kind: Law) -> Arc<dyn Field> {
    let mut s = stream(8, Purpose::Fresh, 0, 0);
    let mut numbers = |n: usize| (0..n).map(|_| s.normal()).collect::<Vec<f64>>();
    let log = |(c, n): (usize, usize)| Log {
        name: format!("agent {c}"),
        columns: ["x", "y", "z"].map(String::from).to_vec(),
        states: numbers(3 * n),
        rewards: numbers(n),
        next: numbers(3 * n),
        done: (0..n).map(|i| i % 7 == 6).collect(),
        truncated: None,
        breaks: None,
        actions: None,
        episode: None,
        ratio: None,
    };
    logs([5, 20, 75, 11].into_iter().enumerate().map(log).collect(), kind)
}

/// `||x - y||`.
pub fn distance(x: &[f64], y: &[f64]) -> f64 {
    fedsa::linalg::distance_sq(x, y).sqrt()
}

/// The mean of numbers seen one by one, and its standard error.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Mean {
    /// Sees one number (Welford).
    pub fn see(&mut self, x: f64) {
        self.n += 1.0;
        let before = x - self.mean;
        self.mean += before / self.n;
        self.squares += before * (x - self.mean);
    }

    /// The mean.
    pub fn value(&self) -> f64 {
        self.mean
    }

    /// The standard error of the mean.
    pub fn error(&self) -> f64 {
        (self.squares / (self.n - 1.0) / self.n).sqrt()
    }

    /// How many standard errors the mean lies from `expected`.
    pub fn off(&self, expected: f64) -> f64 {
        (self.mean - expected) / self.error()
    }
}

/// Means over `seeds` seeds of what `see` reads from a run after each of the rounds `at`.
pub fn means(
    field: &Arc<dyn Field>,
    method: &dyn MethodSettings,
    start: &[f64],
    seeds: u64,
    at: &[u64],
    see: impl Fn(&Run) -> Vec<f64>,
) -> Vec<Vec<Mean>> {
    let mut means: Vec<Vec<Mean>> = vec![Vec::new(); at.len()];
    for seed in 0..seeds {
        let mut run = run_from(field, method, seed, start);
        for (means, t) in means.iter_mut().zip(at) {
            while run.round() < *t {
                run.step();
            }
            let seen = see(&run);
            means.resize(seen.len(), Mean::default());
            means.iter_mut().zip(seen).for_each(|(mean, x)| mean.see(x));
        }
    }
    means
}

/// `g_c(theta, z)` of one agent, draw after draw, less its mean.
pub fn noise_of(field: &Arc<dyn Field>, c: usize, theta: &[f64], steps: usize) -> Vec<Vec<f64>> {
    let d = field.dim();
    let mut lanes = Lanes::new(d, field.chain_len());
    (lanes.len, lanes.agents[0]) = (1, c);
    lanes.set_stream(0, stream(4, Purpose::Sample, 0, c));
    field.start_chain(c, &mut stream(4, Purpose::Chain, 0, c), &mut lanes.chains[..field.chain_len()]);
    lanes.theta_mut(0)[..d].copy_from_slice(theta);
    let mut mean = vec![0.0; d];
    field.mean(c, theta, &mut mean);
    (0..steps)
        .map(|_| {
            field.observe(std::slice::from_mut(&mut lanes), true);
            flat(&lanes.observed)[..d].iter().zip(&mean).map(|(g, mean)| g - mean).collect()
        })
        .collect()
}

/// Whether deviations, in standard errors, are those of an exact prediction: 95% of
/// them within three, all within five. (Normal deviations pass three 0.3% of the
/// time, five once in two million.)
pub fn follows(off: &[f64]) -> Result<(), String> {
    let worst = off.iter().fold(0.0, |w: f64, z| w.max(z.abs()));
    let within = off.iter().filter(|z| z.abs() <= 3.0).count();
    let ok = worst <= 5.0 && within as f64 >= 0.95 * off.len() as f64;
    if ok { Ok(()) } else { Err(format!("{within} of {} within three standard errors, the worst at {worst:.1}", off.len())) }
}

/// The bits of a vector.
pub fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// A link from the JSON of its codec and media.
pub fn link(codec: &str, error_feedback: bool, media: &[&str]) -> fedsa::error::Result<Uplink> {
    let mut link = Uplink::default().with_codec(codec_of(codec)?).with_error_feedback(error_feedback);
    for medium in media {
        let (kind, rest) = kind_of(medium);
        let entry = fedsa::uplink::stage::KINDS.iter().find(|k| k.is_called(&kind)).expect("a known medium");
        let table: fedsa::settings::Value = serde_json::from_str(&rest).expect("JSON");
        link.push((entry.read)(&table).expect("readable settings").into())?;
    }
    Ok(link)
}

fn codec_of(codec: &str) -> fedsa::error::Result<Arc<dyn fedsa::uplink::codec::Codec>> {
    let (kind, rest) = kind_of(codec);
    let entry = fedsa::uplink::codec::KINDS.iter().find(|k| k.is_called(&kind)).expect("a known codec");
    let table: fedsa::settings::Value = serde_json::from_str(&rest).expect("JSON");
    let settings = (entry.read)(&table).expect("readable settings");
    settings.check()?;
    Ok(settings.build())
}

/// Splits `{"kind": .., ..}` into the kind and the other settings.
fn kind_of(json: &str) -> (String, String) {
    let mut value: serde_json::Value = serde_json::from_str(json).expect("valid JSON");
    let object = value.as_object_mut().expect("an object");
    let kind = object.remove("kind").and_then(|k| k.as_str().map(str::to_string)).expect("a kind");
    (kind, value.to_string())
}

/// Data sets in memory.
pub struct Sets(pub Vec<Dataset>);

impl Files for Sets {
    fn arrays(&self, path: &str) -> Result<Arrays> {
        NoFiles.arrays(path)
    }
    fn logs(&self, sources: &[String], form: &LogForm) -> Result<Vec<Box<dyn LogSource>>> {
        NoFiles.logs(sources, form)
    }
    fn datasets(&self, _: &[String], _: &Wanted) -> Result<Vec<Dataset>> {
        Ok(self.0.clone())
    }
}

/// Settings of a problem with the data sets that it reads.
#[derive(serde::Serialize)]
pub struct OnSets<S> {
    /// The settings.
    pub settings: S,
    /// The data sets.
    #[serde(skip)]
    pub sets: Vec<Dataset>,
}

impl<S: ProblemSettings + serde::Serialize> ProblemSettings for OnSets<S> {
    fn field(&self, _: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>> {
        self.settings.field(&Sets(self.sets.clone()), sampling, isa)
    }
    fn memory(&self, _: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate> {
        self.settings.memory(&Sets(self.sets.clone()), sampling, threads)
    }
}

/// A data set of n rows of d numbers, of which 2 in 3 are 0 where it is sparse. Labels are -1 or 1, or numbers.
pub fn data_set(n: usize, d: usize, sparse: bool, classes: bool) -> Dataset {
    let mut s = stream(12, Purpose::Fresh, n as u64, d);
    let values: Vec<f64> = (0..n * d).map(|_| if sparse && s.uniform() < 0.85 { 0.0 } else { s.normal() }).collect();
    let label = |row: &[f64], s: &mut fedsa::random::Stream| {
        let score = row.iter().sum::<f64>() + s.normal();
        if classes { if score > 0.0 { 1.0 } else { -1.0 } } else { score }
    };
    let labels = values.chunks(d).map(|row| label(row, &mut s)).collect();
    let rows = Rows::Dense { d, values };
    let rows = if sparse { rows.to_sparse() } else { rows };
    let columns = (0..d).map(|i| format!("x{i}")).collect();
    Dataset {
        name: "data".into(),
        columns,
        rows,
        targets: Some(Labels::Numbers(labels)),
        groups: None,
        texts: Vec::new(),
        notes: Vec::new(),
    }
}

/// Logistic regression on [`data_set`], `rows` an agent, with an intercept that has no ridge.
pub fn logistic(agents: usize, rows: usize, d: usize, sparse: bool) -> Box<dyn ProblemSettings> {
    let base = Logistic::new(Sources::One("data".into()));
    let settings = Logistic { agents: Some(agents), ridge: 0.05, intercept: true, penalise_intercept: false, ..base };
    Box::new(OnSets { settings, sets: vec![data_set(agents * rows, d, sparse, true)] })
}

/// Generalised linear models of every family on [`data_set`], `rows` an agent: the first column is an offset, and the second one, squared,
/// a weight.
pub fn generalised(agents: usize, rows: usize, d: usize) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    families(agents, rows, d, 1.0)
}

/// Those of [`generalised`] whose operators are exponentials without a bound, on features a quarter as large: steps of 0.1 from moderate
/// weights do not overflow.
pub fn gentle(agents: usize, rows: usize, d: usize) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    families(agents, rows, d, 4.0).into_iter().filter(|(name, _)| is_unbounded(name)).collect()
}

/// Whether operators of the family grow as exponentials do.
pub fn is_unbounded(name: &str) -> bool {
    ["poisson", "poisson, sparse", "gamma"].contains(&name)
}

fn families(agents: usize, rows: usize, d: usize, divide_by: f64) -> Vec<(&'static str, Box<dyn ProblemSettings>)> {
    let case = |name: &'static str, family: FamilyName, sparse: bool, label: fn(f64) -> f64| {
        let mut set = data_set(agents * rows, d + 2, sparse, false);
        if let Some(Labels::Numbers(y)) = &mut set.targets {
            y.iter_mut().for_each(|y| *y = label(*y));
        }
        if let Rows::Dense { d, values } = &mut set.rows {
            values.chunks_mut(*d).for_each(|row| (row[0], row[1]) = (0.3 * row[0], 0.2 + row[1] * row[1]));
        }
        let settings = GeneralisedLinear {
            family: Some(family),
            divide_by,
            dispersion: (family == FamilyName::NegativeBinomial).then_some(0.7),
            huber_delta: (family == FamilyName::Huber).then_some(1.1),
            agents: Some(agents),
            ridge: 0.05,
            intercept: true,
            penalise_intercept: false,
            weighting: AgentWeights::Rows,
            offset: Some("x0".into()),
            row_weights: (!sparse).then(|| "x1".into()),
            ..GeneralisedLinear::new(Sources::One("data".into()))
        };
        let problem: Box<dyn ProblemSettings> = Box::new(OnSets { settings, sets: vec![set] });
        (name, problem)
    };
    let count: fn(f64) -> f64 = |y| y.abs().round().min(4.0);
    let class: fn(f64) -> f64 = |y| if y < -0.7 { 0.0 } else { f64::from(y > 0.7) + 1.0 };
    vec![
        case("gaussian", FamilyName::Gaussian, false, |y| y),
        case("binomial", FamilyName::Binomial, false, |y| f64::from(y > 0.2)),
        case("poisson", FamilyName::Poisson, false, count),
        case("poisson, sparse", FamilyName::Poisson, true, count),
        case("gamma", FamilyName::Gamma, false, |y| y.abs().clamp(0.1, 3.0)),
        case("negative binomial", FamilyName::NegativeBinomial, false, count),
        case("multinomial", FamilyName::Multinomial, false, class),
        case("multinomial, sparse", FamilyName::Multinomial, true, class),
        case("huber", FamilyName::Huber, false, |y| y),
    ]
}

/// Least squares on [`data_set`], `rows` an agent.
pub fn least_squares(agents: usize, rows: usize, d: usize, sparse: bool) -> Box<dyn ProblemSettings> {
    let settings = LeastSquares { agents: Some(agents), ridge: 0.05, ..LeastSquares::new(Sources::One("data".into())) };
    Box::new(OnSets { settings, sets: vec![data_set(agents * rows, d, sparse, false)] })
}
