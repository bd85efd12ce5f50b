//! An agent whose answers are wrong in one round: methods for problems with a loss go on to the root.

use std::sync::Arc;

use crate::common::{EXACT, field, method};
use fedsa::federation::Federation;
use fedsa::linalg::norm_sq;
use fedsa::message::{Body, Envelope, Message};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::Stream;
use fedsa::sampling::Law;
use fedsa::uplink::codec::Exact;
use fedsa_problems::linear::quadratic::Quadratic;
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

/// What is wrong: the answers of one agent in one round, all of whose numbers are multiplied.
#[derive(Debug, Clone, Copy)]
struct Fault {
    agent: usize,
    round: u64,
    factor: f64,
}

impl Fault {
    fn apply(self, bytes: &[u8]) -> Vec<u8> {
        let (envelope, mut message): (Envelope, Message) = Message::decode(bytes, &Exact, 1 << 16, |_, _| Stream::default()).unwrap();
        for (_, body) in &mut message.parts {
            match body {
                Body::Numbers(x) | Body::Sparse { value: x, .. } => x.iter_mut().for_each(|x| *x *= self.factor),
                other => panic!("{other:?}"),
            }
        }
        message.encode(&envelope, &Exact, &mut Stream::default())
    }
}

/// Nodes of a federation, one round after the other.
struct Nodes {
    nodes: Vec<ClientNode>,
    server: ServerNode,
}

impl Nodes {
    fn new(field: &Arc<dyn Field>, method: &dyn MethodSettings) -> Self {
        let federation = Federation::new(method, &EXACT, field.weights(), 5, vec![0.0; field.dim()]).unwrap();
        let nodes = (0..field.agents()).map(|c| ClientNode::new(&federation, field, c, c).unwrap()).collect();
        Self { nodes, server: ServerNode::new(&federation).unwrap() }
    }

    fn round(&mut self, fault: Option<Fault>) {
        let mut todo = self.server.open();
        while let Todo::Ask { to, bytes } = todo {
            let answer = |(c, bytes): (&usize, &Arc<[u8]>)| {
                let answer = self.nodes[*c].handle(bytes).unwrap()?;
                Some((*c, fault.filter(|fault| fault.agent == *c).map_or(answer.clone(), |fault| fault.apply(&answer))))
            };
            let answers: Vec<_> = to.iter().zip(&bytes).filter_map(answer).collect();
            todo = self.server.receive(&answers).todo;
        }
    }
}

fn residual(field: &dyn Field, theta: &[f64]) -> f64 {
    let (objective, mut sum, mut g) = (field.facts().objective().unwrap(), vec![0.0; theta.len()], vec![0.0; theta.len()]);
    for c in 0..field.agents() {
        objective.gradient(c, theta, &mut g);
        sum.iter_mut().zip(&g).for_each(|(sum, g)| *sum += g / field.agents() as f64);
    }
    norm_sq(&sum).sqrt()
}

/// The honest rounds after a fault until the residual is at most 1e-12 of the start's, and stays there for three rounds.
fn recovered(field: &Arc<dyn Field>, method: &dyn MethodSettings, fault: Fault) -> Option<u64> {
    let mut nodes = Nodes::new(field, method);
    let first = residual(&**field, nodes.server.theta());
    let mut below = 0;
    for t in 0..=fault.round + 300 {
        nodes.round(Some(fault).filter(|fault| fault.round == t));
        below = if residual(&**field, nodes.server.theta()) <= 1e-12 * first { below + 1 } else { 0 };
        if below >= 3 && t >= fault.round + 3 {
            return Some(t - fault.round - 2);
        }
    }
    None
}

fn logistic(seed: u64) -> Arc<dyn Field> {
    field(&RandomLogistic::default().with_agents(5).with_dim(8).with_points(40).with_ridge(1e-2).with_seed(seed), Law::Mean)
}

fn quadratics(seed: u64) -> Arc<dyn Field> {
    field(&Quadratic::default().with_agents(5).with_dim(8).with_greatest_eigenvalue(12.0).with_seed(seed), Law::Mean)
}

const FACTORS: [f64; 4] = [-1.0, 10.0, 1e6, -1e6];

/// The faults after which a method takes more than so many rounds, over problems, agents, rounds and factors.
fn late(problem: fn(u64) -> Arc<dyn Field>, kind: &str, settings: &str, most: u64) -> Vec<String> {
    let (method, mut worst, mut late) = (method(kind, settings), 0, Vec::new());
    for seed in 0..3 {
        let field = problem(seed);
        let faults = [0, 3].into_iter().flat_map(|agent| [0, 1, 2, 4, 7, 12, 25].map(|round| (agent, round)));
        for ((agent, round), factor) in faults.flat_map(|at| FACTORS.map(|factor| (at, factor))) {
            let fault = Fault { agent, round, factor };
            match recovered(&field, &*method, fault) {
                Some(rounds) if rounds <= most => worst = worst.max(rounds),
                rounds => late.push(format!("seed {seed}, {fault:?}: {rounds:?}")),
            }
        }
    }
    eprintln!("{kind} {settings}: at most {worst} rounds; {} later", late.len());
    late
}

/// Its search compares trial points with what was said of the last accepted one, which a wrong answer may be part of.
#[test]
fn adaptive_newton_recovers_from_a_wrong_answer() {
    for (problem, settings) in [
        (logistic as fn(u64) -> Arc<dyn Field>, "{}"),
        (logistic, r#"{"tolerance": 1e-13}"#),
        (logistic, r#"{"first": "agents", "keep": true, "tolerance": 1e-14}"#),
        (logistic, r#"{"first": "hessians", "keep": true, "tolerance": 1e-14}"#),
        (logistic, r#"{"first": "gradients", "keep": true, "tolerance": 1e-14}"#),
        (quadratics, r#"{"quadratic": true}"#),
        (quadratics, r#"{"quadratic": true, "first": "hessians", "keep": true}"#),
        (quadratics, r#"{"tolerance": 1e-14}"#),
    ] {
        let late = late(problem, "adaptive-newton", settings, 60);
        assert!(late.is_empty(), "{settings}: {late:#?}");
    }
}

#[test]
fn other_methods_recover_from_a_wrong_answer() {
    // The matrix of BFGS forgets nothing.
    for (kind, most) in [("newton", 60), ("giant", 60), ("lbfgs", 60), ("bfgs", 200)] {
        let late = late(logistic, kind, "{}", most);
        assert!(late.is_empty(), "{kind}: {late:#?}");
    }
}

/// The server's state does not grow with rounds.
#[test]
fn what_adaptive_newton_keeps_is_bounded() {
    for settings in [r#"{"memory": 5}"#, r#"{"memory": 5, "tolerance": 1e-300}"#, r#"{"memory": 5, "first": "gradients", "keep": true}"#] {
        let field = logistic(0);
        let mut nodes = Nodes::new(&field, &*method("adaptive-newton", settings));
        let mut after = |rounds: u64| {
            while nodes.server.opened() < rounds {
                nodes.round(None);
            }
            nodes.server.save().len()
        };
        let (early, late) = (after(50), after(500));
        // The numbers of the round and of repeated questions take more bytes as they grow.
        assert!(late <= early + 16, "{settings}: {early} bytes after 50 rounds, {late} after 500");
    }
}
