//! A slow twin of the first-order methods: plain loops, one agent and one number after the other.
//!
//! The twin is written from the formulas of the methods and of `docs/src/reference/links.md`, and calls neither sums, feedback nor
//! control variates of the library, which the engine and the nodes share: a test that compares these two cannot see a mistake in
//! what both use. Only operators and random draws come from the library: the twin reads samples from the problem one by one,
//! and opens the streams of losses, noise, budgets and participants.

use std::sync::Arc;

use crate::common::{InMemory, link, method, run};
use fedsa::kernel::{Isa, Lanes, flat};
use fedsa::problem::Field;
use fedsa::random::{Purpose, stream};
use fedsa::sampling::{Law, Sampling};
use fedsa::server::Participation;
use fedsa::uplink::{MessageKey, Uplink};
use fedsa_problems::ProblemSettings as _;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::replay::{Logs, Sources};

const SEED: u64 = 5;
const ROUNDS: u64 = 12;
/// How far theta comes at least: 1e13 times the roundings of its numbers.
const MOVED: f64 = 0.05;

/// TD(0) on logs of random transitions: nineteen agents of unequal weight, so that a sum has three blocks
/// of eight, the last of which is not full.
pub fn nineteen(kind: Law, batch: usize) -> Arc<dyn Field> {
    const LENGTHS: [usize; 19] = [5, 40, 75, 11, 23, 8, 60, 17, 31, 90, 14, 6, 52, 27, 9, 70, 19, 33, 12];
    let mut draws = stream(8, Purpose::Fresh, 0, 0);
    let mut numbers = |n: usize| (0..n).map(|_| draws.normal()).collect::<Vec<f64>>();
    let log = |(c, n): (usize, &usize)| {
        let states = numbers(3 * n);
        // Every agent's own values, so that its direction is not that of the others.
        let rewards = states.chunks(3).zip(numbers(*n)).map(|(x, noise)| 2.0 * x[0] - (c % 3) as f64 * x[1] + noise).collect();
        Log {
            name: format!("agent {c}"),
            columns: ["x", "y", "z"].map(String::from).to_vec(),
            states,
            rewards,
            next: numbers(3 * n),
            done: (0..*n).map(|i| i % 7 == 6).collect(),
            truncated: None,
            breaks: None,
            actions: None,
            episode: None,
            ratio: None,
        }
    };
    let logs = LENGTHS.iter().enumerate().map(log).collect();
    let settings = Logs::new(Sources::One(String::new()), FeatureSpec::Identity { bias: false }, 0.5);
    settings.field(&InMemory(logs), Sampling::default().with_kind(kind).with_batch(batch), Isa::best()).unwrap()
}

/// Whether two iterates of round t differ by no more than what rounding can do: `roundings` roundings of numbers of the iterate's size
/// or 1 so far, of which those in a control or in the rest of a codec enter all later rounds.
pub fn differ_by_rounding(x: &[f64], twin: &[f64], roundings: usize, t: u64) -> Result<(), String> {
    let size = twin.iter().fold(1.0, |size: f64, x| size.max(x.abs()));
    let allowed = 0.5 * f64::EPSILON * size * roundings as f64 * (t + 1) as f64;
    let far = x.iter().zip(twin).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    // A NaN is not near.
    if far <= allowed { Ok(()) } else { Err(format!("{x:?} and {twin:?} differ by {far:e}, where {allowed:e} is rounding")) }
}

// ------------------------------------------------------------------------------------------------ settings

/// `eta_h` of a round: a number, or `c / (t + t0)^q` with t the round or the step `t H + h`.
#[derive(Clone, Copy)]
enum Sizes {
    Constant(f64),
    Decaying { c: f64, t0: f64, q: f64, per_step: bool },
}

impl Sizes {
    fn of(self, t: u64, h: usize, steps: usize) -> f64 {
        match self {
            Sizes::Constant(eta) => eta,
            Sizes::Decaying { c, t0, q, per_step } => {
                let index = if per_step { t as f64 * steps as f64 + h as f64 } else { t as f64 };
                c / (index + t0).powf(q)
            }
        }
    }

    fn json(self) -> String {
        match self {
            Sizes::Constant(eta) => eta.to_string(),
            Sizes::Decaying { c, t0, q, per_step } => {
                let per = if per_step { "step" } else { "round" };
                format!(r#"{{"c": {c}, "t0": {t0}, "power": {q}, "per": "{per}"}}"#)
            }
        }
    }
}

const SIZES: [Sizes; 3] = [
    Sizes::Constant(0.07),
    Sizes::Decaying { c: 0.4, t0: 3.0, q: 0.75, per_step: false },
    Sizes::Decaying { c: 0.4, t0: 3.0, q: 0.75, per_step: true },
];

#[derive(Clone, Copy, PartialEq)]
enum Share {
    /// `xi += gain (v - v_c)`, `v_c` as computed.
    Literal,
    /// `xi += gain (v - v_c)`, `v_c` as the server decoded it, 0 if it did not arrive.
    Acknowledged,
    /// `c_c = v_c - xi_c` is sent; `xi += gain (v - c_c - xi)`.
    Afresh,
}

#[derive(Clone, Copy, PartialEq)]
enum Rule {
    FedLsa,
    /// With mu.
    FedProx(f64),
    /// With the factor of the gain, and the probability of random talk.
    Scafflsa {
        share: Share,
        control_step: f64,
        talk: Option<f64>,
    },
    /// The samples of an operator that the first local step does not use (1: FedLin), and whether the last operator of an agent replaces a
    /// lost one.
    FedHsa {
        fresh: usize,
        last: bool,
    },
    /// With m of N agents: the server has a control of its own.
    Scaffold,
}

#[derive(Clone, Copy)]
struct Settings {
    rule: Rule,
    sizes: Sizes,
    steps: usize,
    alpha_g: f64,
    participants: Option<usize>,
}

impl Settings {
    fn json(&self) -> (&'static str, String) {
        let Self { rule, sizes, steps, alpha_g, participants } = *self;
        let (kind, mut more) = match rule {
            Rule::FedLsa => ("fedlsa", String::new()),
            Rule::FedProx(mu) => ("fedprox", format!(r#", "proximal_mu": {mu}"#)),
            Rule::Scafflsa { talk: Some(p), .. } => {
                return ("scafflsa-random", format!(r#"{{"step_size": {}, "talk_probability": {p}}}"#, sizes.json()));
            }
            Rule::Scafflsa { share, control_step, .. } => {
                let rule = match share {
                    Share::Literal => "literal",
                    Share::Acknowledged => "acknowledged",
                    Share::Afresh => "afresh",
                };
                ("scafflsa", format!(r#", "rule": "{rule}", "control_step": {control_step}"#))
            }
            Rule::FedHsa { fresh: 1, .. } => ("fedlin", String::new()),
            Rule::FedHsa { fresh, .. } if fresh > 1 => ("fedhsa", format!(r#", "correction_batch": {fresh}"#)),
            Rule::FedHsa { last, .. } => ("fedhsa", if last { r#", "missing": "last""#.into() } else { String::new() }),
            Rule::Scaffold => ("scaffold", String::new()),
        };
        more.extend(participants.map(|m| format!(r#", "participants": {m}"#)));
        (kind, format!(r#"{{"step_size": {}, "local_steps": {steps}, "global_step_size": {alpha_g}{more}}}"#, sizes.json()))
    }
}

/// A codec that the twin can compute without random draws.
#[derive(Clone, Copy)]
enum Codec {
    Exact,
    /// The nearest of `2^b` levels, evenly spaced on [-s, s].
    Nearest(u32),
    /// The k of largest magnitude.
    Top(usize),
}

#[derive(Clone, Copy)]
struct Link {
    /// The largest norm of what is sent.
    clip: Option<f64>,
    /// The standard deviation of what an agent adds to each component, after it has been clipped.
    noise: Option<f64>,
    codec: Codec,
    feedback: bool,
    /// The probability of arriving.
    success: Option<f64>,
    /// Bits a component, and the signal-to-noise ratio of fading.
    budget: Option<(f64, f64)>,
    /// The factor with which every message arrives over the air, where only their sum does.
    air: Option<f64>,
}

const CLEAR: Link = Link { clip: None, noise: None, codec: Codec::Exact, feedback: false, success: None, budget: None, air: None };
const LOSSY: Link = Link { success: Some(0.6), ..CLEAR };
const COARSE: Link = Link { codec: Codec::Nearest(3), feedback: true, ..CLEAR };
const TOP: Link = Link { codec: Codec::Top(1), feedback: true, success: Some(0.7), ..CLEAR };
const COARSE_WITHOUT: Link = Link { codec: Codec::Nearest(4), success: Some(0.8), ..CLEAR };
/// With fading the budget carries nothing now and then.
const TIGHT: Link = Link { codec: Codec::Nearest(3), feedback: true, success: Some(0.8), budget: Some((2.0, 1.0)), ..CLEAR };
/// Directions at the start are about twice as long as this.
const SHORT: Link = Link { clip: Some(1.0), noise: Some(0.1), codec: Codec::Nearest(4), feedback: true, success: Some(0.8), ..CLEAR };
const LINKS: [Link; 7] = [CLEAR, LOSSY, COARSE, TOP, COARSE_WITHOUT, TIGHT, SHORT];

impl Link {
    fn uplink(&self) -> Uplink {
        let codec = match self.codec {
            Codec::Exact => r#"{"kind": "exact"}"#.to_string(),
            Codec::Nearest(bits) => format!(r#"{{"kind": "quantised", "bits": {bits}, "rounding": "nearest"}}"#),
            Codec::Top(k) => format!(r#"{{"kind": "top-k", "k": {k}}}"#),
        };
        let success = self.success.map(|p| format!(r#"{{"kind": "erasure", "success": {p}}}"#));
        let budget = self.budget.map(|(bits, snr)| format!(r#"{{"kind": "bit-budget", "bits": {bits}, "fading_snr": {snr}}}"#));
        let air = self.air.map(|h| format!(r#"{{"kind": "over-the-air", "gain": {{"law": "constant", "value": {h}}}}}"#));
        let clip = self.clip.map(|norm| format!(r#"{{"kind": "clip", "norm": {norm}}}"#));
        let noise = self.noise.map(|std| format!(r#"{{"kind": "noise", "std": {std}}}"#));
        let media: Vec<String> = [success, clip, budget, noise, air].into_iter().flatten().collect();
        link(&codec, self.feedback, &media.iter().map(String::as_str).collect::<Vec<_>>()).unwrap()
    }
}

// ------------------------------------------------------------------------------------------------ the twin

/// The nearest of `2^bits` levels.
fn nearest(x: &[f64], bits: u32) -> Vec<f64> {
    let s = x.iter().fold(0.0, |s: f64, x| s.max(x.abs()));
    if s == 0.0 {
        return vec![0.0; x.len()];
    }
    let step = 2.0 * s / ((1u64 << bits) - 1) as f64;
    x.iter().map(|x| ((x + s) / step + 0.5).floor() * step - s).collect()
}

/// The k numbers of largest magnitude; the others are 0.
fn top(x: &[f64], k: usize) -> Vec<f64> {
    let is_kept = |i: usize| x.iter().filter(|y| y.abs() > x[i].abs()).count() < k;
    (0..x.len()).map(|i| if is_kept(i) { x[i] } else { 0.0 }).collect()
}

struct Agent {
    lanes: Lanes,
    /// What the codec has left out of the last message of each exchange.
    left: [Vec<f64>; 2],
    /// `xi_c`, or Scaffold's `c_c`.
    control: Vec<f64>,
    /// The last operator that arrived.
    operator: Vec<f64>,
}

struct Twin<'a> {
    field: &'a Arc<dyn Field>,
    settings: Settings,
    link: Link,
    agents: Vec<Agent>,
    theta: Vec<f64>,
    /// Scaffold's c.
    control: Vec<f64>,
}

/// What a round begins with.
struct Round {
    t: u64,
    asked: Vec<usize>,
    /// The weight of all that are asked.
    weight: f64,
    etas: Vec<f64>,
    /// The sum of the step sizes.
    e: f64,
}

/// What becomes of a message.
struct Sent {
    /// As the server decodes it; `None` if the budget carries nothing.
    decoded: Option<Vec<f64>>,
    /// The factor with which it arrives, 0 if it is lost.
    gain: f64,
}

impl Sent {
    fn arrived(&self) -> Option<(f64, &[f64])> {
        self.decoded.as_deref().filter(|_| self.gain != 0.0).map(|x| (self.gain, x))
    }
}

impl<'a> Twin<'a> {
    fn new(field: &'a Arc<dyn Field>, settings: Settings, link: Link) -> Self {
        let d = field.dim();
        let agent = |c: usize| {
            let mut lanes = Lanes::new(d, field.chain_len());
            (lanes.len, lanes.agents[0]) = (1, c);
            field.start_chain(c, &mut stream(SEED, Purpose::Chain, 0, c), &mut lanes.chains[..field.chain_len()]);
            Agent { lanes, left: [vec![0.0; d], vec![0.0; d]], control: vec![0.0; d], operator: vec![0.0; d] }
        };
        let agents = (0..field.agents()).map(agent).collect();
        Self { field, settings, link, agents, theta: vec![0.0; d], control: vec![0.0; d] }
    }

    /// The agent's samples from now on are those of a round.
    fn open(&mut self, c: usize, purpose: Purpose, t: u64) {
        self.agents[c].lanes.set_stream(0, stream(SEED, purpose, t, c));
    }

    /// `g_c(theta, z)` with the next sample, which the step after this one uses again unless `advance`.
    fn operator(&mut self, c: usize, theta: &[f64], advance: bool) -> Vec<f64> {
        let lanes = &mut self.agents[c].lanes;
        lanes.theta_mut(0)[..theta.len()].copy_from_slice(theta);
        self.field.observe(std::slice::from_mut(lanes), advance);
        flat(&lanes.observed)[..theta.len()].to_vec()
    }

    /// Passes a vector of agent c over the link.
    fn send(&mut self, t: u64, exchange: u8, c: usize, x: &[f64]) -> Sent {
        let place = MessageKey { seed: SEED, round: t, exchange, agent: c };
        let budget = self.link.budget.map(|(bits, snr)| {
            let fading = -(1.0 - place.stream(Purpose::Budget).uniform()).ln();
            (bits * (1.0 + fading * snr).log2()).floor() as u32
        });
        let arrives = self.link.success.is_none_or(|p| place.stream(Purpose::Medium).uniform() < p);
        let gain = if arrives { self.link.air.unwrap_or(1.0) } else { 0.0 };
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let factor = self.link.clip.map_or(1.0, |norm| if length > norm { norm / length } else { 1.0 });
        let mut x: Vec<f64> = x.iter().map(|x| x * factor).collect();
        if let Some(std) = self.link.noise {
            let mut draws = place.stream(Purpose::Altered);
            x.iter_mut().for_each(|x| *x += std * draws.normal());
        }
        let left = &mut self.agents[c].left[usize::from(exchange)];
        let y: Vec<f64> = x.iter().zip(&*left).map(|(x, left)| x + left).collect();
        let decoded = match self.link.codec {
            Codec::Exact => Some(y.clone()),
            Codec::Top(k) => Some(top(&y, k)),
            Codec::Nearest(bits) => Some(budget.map_or(bits, |b| b.min(bits))).filter(|b| *b > 0).map(|b| nearest(&y, b)),
        };
        if self.link.feedback {
            let sent = decoded.clone().unwrap_or(vec![0.0; y.len()]);
            *left = y.iter().zip(&sent).map(|(y, sent)| y - sent).collect();
        }
        Sent { decoded, gain }
    }

    /// One round of `steps` local steps.
    fn round(&mut self, t: u64, steps: usize) {
        let Settings { sizes, alpha_g, participants, .. } = self.settings;
        let n = self.field.agents();
        let asked = Participation { m: participants, agents: n, seed: SEED }.of(t).unwrap_or_else(|| (0..n).collect());
        let weight = asked.iter().map(|c| self.field.weights()[*c]).sum();
        let etas: Vec<f64> = (0..steps).map(|h| sizes.of(t, h, steps)).collect();
        let round = Round { t, asked, weight, e: etas.iter().sum(), etas };
        let drifts = self.drifts(&round);
        let (v, answers) = self.answers(&round, &drifts);
        add(&mut self.theta, alpha_g * round.e, &v);
        match self.settings.rule {
            Rule::FedLsa | Rule::FedProx(_) | Rule::FedHsa { .. } => {}
            Rule::Scafflsa { share, control_step, talk } => {
                let gain = control_step * talk.map_or(1.0, |p| p * steps as f64);
                self.remember_shares(share, gain, &v, &round, &answers);
            }
            Rule::Scaffold => self.remember_controls(&round, &answers),
        }
    }

    /// What is added to the operator in each local step, for each of the agents.
    fn drifts(&mut self, round: &Round) -> Vec<Vec<f64>> {
        let asked = &round.asked;
        match self.settings.rule {
            Rule::FedLsa | Rule::FedProx(_) => vec![vec![0.0; self.theta.len()]; asked.len()],
            Rule::Scafflsa { .. } => asked.iter().map(|c| self.agents[*c].control.clone()).collect(),
            Rule::Scaffold => asked.iter().map(|c| difference(&self.agents[*c].control, &self.control)).collect(),
            Rule::FedHsa { fresh, last } => self.exchange_operators(round, fresh, last),
        }
    }

    /// The first exchange of FedHSA: the difference of the mean operator to the agent's own.
    fn exchange_operators(&mut self, round: &Round, fresh: usize, last: bool) -> Vec<Vec<f64>> {
        let (n, d, p, theta) = (self.field.agents(), self.theta.len(), self.field.weights().to_vec(), self.theta.clone());
        let mut mean = vec![0.0; d];
        let mut own = Vec::new();
        for c in &round.asked {
            self.open(*c, if fresh > 0 { Purpose::Fresh } else { Purpose::Sample }, round.t);
            let mut operator = vec![0.0; d];
            for _ in 0..fresh.max(1) {
                add(&mut operator, 1.0 / fresh.max(1) as f64, &self.operator(*c, &theta, fresh > 0));
            }
            own.push(operator);
            let sent = self.send(round.t, 0, *c, &own[own.len() - 1]);
            if let Some((gain, x)) = sent.arrived() {
                add(&mut mean, gain * p[*c] / round.weight, x);
                self.agents[*c].operator = x.iter().map(|x| gain * x).collect();
            }
        }
        if last {
            mean = vec![0.0; d];
            (0..n).for_each(|c| add(&mut mean, p[c], &self.agents[c].operator));
        }
        own.iter().map(|own| difference(&mean, own)).collect()
    }

    /// Local steps, and what is sent of them: v, and for each agent what it computed and what became of it.
    fn answers(&mut self, round: &Round, drifts: &[Vec<f64>]) -> (Vec<f64>, Vec<(Vec<f64>, Sent)>) {
        let (d, p, theta) = (self.theta.len(), self.field.weights().to_vec(), self.theta.clone());
        let is_afresh = matches!(self.settings.rule, Rule::Scafflsa { share: Share::Afresh, .. });
        let exchange = u8::from(matches!(self.settings.rule, Rule::FedHsa { .. }));
        let pull = if let Rule::FedProx(mu) = self.settings.rule { mu } else { 0.0 };
        let mut v = vec![0.0; d];
        let mut answers = Vec::new();
        for (c, drift) in round.asked.iter().zip(drifts) {
            let mut x = theta.clone();
            self.open(*c, Purpose::Sample, round.t);
            for eta in &round.etas {
                let g = self.operator(*c, &x, true);
                (0..d).for_each(|i| x[i] += eta * (g[i] + drift[i] - pull * (x[i] - theta[i])));
            }
            let mut own: Vec<f64> = (0..d).map(|i| (x[i] - theta[i]) / round.e).collect();
            if is_afresh {
                own = difference(&own, &self.agents[*c].control);
            }
            let message = self.send(round.t, exchange, *c, &own);
            if let Some((gain, x)) = message.arrived() {
                add(&mut v, gain * p[*c] / round.weight, x);
            }
            answers.push((own, message));
        }
        (v, answers)
    }

    /// SCAFFLSA's control variates `xi_c` after a round.
    fn remember_shares(&mut self, share: Share, gain: f64, v: &[f64], round: &Round, answers: &[(Vec<f64>, Sent)]) {
        for (c, (own, sent)) in round.asked.iter().zip(answers) {
            let control = &mut self.agents[*c].control;
            let arrived = sent.arrived().map(|(_, x)| x);
            for i in 0..v.len() {
                let by = match share {
                    Share::Literal => v[i] - own[i],
                    Share::Acknowledged => v[i] - arrived.map_or(0.0, |x| x[i]),
                    Share::Afresh => v[i] - own[i] - control[i],
                };
                control[i] += gain * by;
            }
        }
    }

    /// Scaffold's controls after a round: `c_c^+ = c_c - c - v_c` uses the c of this round for all agents; c itself changes only after them.
    fn remember_controls(&mut self, round: &Round, answers: &[(Vec<f64>, Sent)]) {
        let mut change = vec![0.0; self.theta.len()];
        for (c, (_, sent)) in round.asked.iter().zip(answers) {
            let Some((_, x)) = sent.arrived() else { continue };
            let (control, p) = (&mut self.agents[*c].control, self.field.weights()[*c]);
            for i in 0..change.len() {
                let after = control[i] - self.control[i] - x[i];
                change[i] += p * (after - control[i]);
                control[i] = after;
            }
        }
        add(&mut self.control, 1.0, &change);
    }
}

fn difference(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x - y).collect()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// Runs the engine and the twin, and compares every round. Returns how far theta has come.
fn compare(field: &Arc<dyn Field>, settings: Settings, link: Link) -> f64 {
    let (kind, json) = settings.json();
    let (method, uplink) = (method(kind, &json), link.uplink());
    let mut engine = run(field, &*method, &uplink, SEED);
    let mut twin = Twin::new(field, settings, link);
    let (d, n) = (field.dim(), field.agents());
    let mut roundings = 0;
    for t in 0..ROUNDS {
        let steps = engine.next_local_steps();
        engine.step();
        twin.round(t, steps);
        // A local step rounds an operator of d products a row, the drift and the step; a round averages N directions.
        roundings += steps * (2 * d + 8) + n + 8;
        let near = differ_by_rounding(engine.theta(), &twin.theta, roundings, t);
        assert!(near.is_ok(), "{kind} {json}, round {t} over {uplink:?}: {}", near.unwrap_err());
    }
    twin.theta.iter().fold(0.0, |most: f64, x| most.max(x.abs()))
}

/// Every law of samples, every schedule, all agents and nine of them, over these links.
fn compare_all(rules: &[Rule], links: &[Link], participants: &[Option<usize>]) {
    for law in [Law::Mean, Law::Iid, Law::Markov] {
        let field = nineteen(law, 1);
        for link in links {
            for sizes in SIZES {
                for (rule, participants) in rules.iter().flat_map(|rule| participants.iter().map(move |m| (*rule, *m))) {
                    let alpha_g = if participants.is_none() { 0.8 } else { 1.0 };
                    let moved = compare(&field, Settings { rule, sizes, steps: 4, alpha_g, participants }, *link);
                    assert!(moved > MOVED, "theta has hardly moved, so that little was compared: {moved:e}");
                }
            }
        }
    }
}

const ALL_OR_NINE: [Option<usize>; 2] = [None, Some(9)];

fn scafflsa(share: Share, control_step: f64) -> Rule {
    Rule::Scafflsa { share, control_step, talk: None }
}

// ------------------------------------------------------------------------------------------------ tests

#[test]
fn fedlsa_is_its_slow_twin() {
    compare_all(&[Rule::FedLsa], &LINKS, &ALL_OR_NINE);
    compare_all(&[Rule::FedLsa], &[Link { air: Some(0.75), ..LOSSY }], &ALL_OR_NINE);
}

#[test]
fn fedprox_is_its_slow_twin() {
    compare_all(&[Rule::FedProx(1.5)], &LINKS, &ALL_OR_NINE);
}

#[test]
fn scafflsa_is_its_slow_twin() {
    compare_all(&[scafflsa(Share::Acknowledged, 1.0), scafflsa(Share::Acknowledged, 0.5)], &LINKS, &ALL_OR_NINE);
}

#[test]
fn scafflsa_to_the_letter_and_afresh_are_their_slow_twins() {
    compare_all(&[scafflsa(Share::Literal, 1.0), scafflsa(Share::Afresh, 0.5)], &LINKS, &ALL_OR_NINE);
    compare_all(&[scafflsa(Share::Afresh, 1.0)], &[Link { air: Some(0.75), ..CLEAR }], &ALL_OR_NINE);
}

#[test]
fn scafflsa_with_random_talk_is_its_slow_twin() {
    let rule = Rule::Scafflsa { share: Share::Acknowledged, control_step: 1.0, talk: Some(0.3) };
    for law in [Law::Mean, Law::Markov] {
        let field = nineteen(law, 1);
        for link in LINKS {
            let settings = Settings { rule, sizes: SIZES[0], steps: 0, alpha_g: 1.0, participants: None };
            assert!(compare(&field, settings, link) > MOVED);
        }
    }
}

#[test]
fn fedhsa_and_fedlin_are_their_slow_twins() {
    let rules = [(0, false), (1, false), (3, false), (0, true)].map(|(fresh, last)| Rule::FedHsa { fresh, last });
    compare_all(&rules, &LINKS, &ALL_OR_NINE);
}

#[test]
fn scaffold_is_its_slow_twin() {
    compare_all(&[Rule::Scaffold], &LINKS, &[Some(9)]);
    // With all agents it is SCAFFLSA's rule, as long as the server's control is the mean of all: every answer arrives.
    compare_all(&[Rule::Scaffold], &[CLEAR, COARSE], &[None]);
}

#[test]
fn batches_are_means_of_as_many_samples_in_the_twin_too() {
    for law in [Law::Iid, Law::Markov] {
        let field = nineteen(law, 3);
        for rule in [Rule::FedLsa, scafflsa(Share::Acknowledged, 1.0), Rule::FedHsa { fresh: 1, last: false }] {
            compare(&field, Settings { rule, sizes: SIZES[1], steps: 3, alpha_g: 1.0, participants: Some(9) }, TIGHT);
        }
    }
}

/// Pull: in round t the server uses the directions of round t - 2, at that round's models and samples, and those of the first round where
/// there are none of that age. Meanwhile every trajectory advances by H batches a round, whether they are used or not.
#[test]
fn a_round_over_a_delay_passes_over_all_of_its_samples() {
    const DELAY: u64 = 2;
    const STEPS: usize = 3;
    let uplink = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "delay", "law": "constant", "rounds": 2}"#]).unwrap();
    for batch in [1, 3] {
        let field = nineteen(Law::Markov, batch);
        let method = method("fedlsa", r#"{"step_size": 0.07, "local_steps": 3}"#);
        let mut engine = run(&field, &*method, &uplink, SEED);
        let settings = Settings { rule: Rule::FedLsa, sizes: SIZES[0], steps: STEPS, alpha_g: 1.0, participants: None };
        let mut twin = Twin::new(&field, settings, CLEAR);
        let mut directions: Vec<Vec<f64>> = Vec::new();
        for t in 0..ROUNDS {
            // The mean direction at this round's model, for which the trajectories advance as they would without delay.
            let before = twin.theta.clone();
            twin.round(t, STEPS);
            directions.push(difference(&twin.theta, &before));
            twin.theta = before;
            let used = &directions[t.saturating_sub(DELAY) as usize];
            twin.theta.iter_mut().zip(used).for_each(|(theta, step)| *theta += step);
            engine.step();
            let roundings = (t as usize + 1) * (STEPS * (2 * field.dim() + 8) + field.agents() + 8);
            let near = differ_by_rounding(engine.theta(), &twin.theta, roundings, t);
            assert!(near.is_ok(), "batch {batch}, round {t}: {}", near.unwrap_err());
        }
    }
}
