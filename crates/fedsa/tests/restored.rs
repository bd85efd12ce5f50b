//! What agents of second-order methods compute again after a restart: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::common::{bits, field, method};
use fedsa::kernel::Isa;
use fedsa::linalg::Mat;
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::objective::Objective;
use fedsa::problem::{Facts, Field, Problem, Sampled};
use fedsa::random::Stream;
use fedsa::sampling::{Law, Sampling};
use fedsa_problems::nonlinear::random_logistic::RandomLogistic;

const ROUNDS: usize = 14;
const DIM: usize = 12;

/// Losses of a field whose Hessians are counted.
struct Counted {
    inner: Arc<dyn Field>,
    weights: Vec<f64>,
    hessians: Arc<AtomicU64>,
}

impl Counted {
    fn objective(&self) -> &dyn Objective {
        self.inner.facts().objective().unwrap()
    }
}

impl Problem for Counted {
    type Obs = ();
    fn dim(&self) -> usize {
        self.inner.dim()
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, (): &mut ()) {}
    fn apply(&self, c: usize, theta: &[f64], (): &(), out: &mut [f64]) {
        self.mean(c, theta, out);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        self.objective().gradient(c, theta, out);
        out.iter_mut().for_each(|x| *x = -*x);
        true
    }
    fn facts(&self) -> &dyn Facts {
        self
    }
}

impl Facts for Counted {
    fn objective(&self) -> Option<&dyn Objective> {
        Some(self)
    }
}

impl Objective for Counted {
    fn loss(&self, c: usize, theta: &[f64]) -> f64 {
        self.objective().loss(c, theta)
    }
    fn gradient(&self, c: usize, theta: &[f64], out: &mut [f64]) {
        self.objective().gradient(c, theta, out);
    }
    fn hessian(&self, c: usize, theta: &[f64], out: &mut Mat<f64>) {
        self.hessians.fetch_add(1, Relaxed);
        self.objective().hessian(c, theta, out);
    }
    fn hessian_vector(&self, c: usize, theta: &[f64], v: &[f64], out: &mut [f64]) {
        self.objective().hessian_vector(c, theta, v, out);
    }
}

/// What becomes of a federation some of whose agents are made anew, and restored, before each message: the iterates, the Hessians that all
/// agents computed, and the bytes that agent 0 saved after each exchange beside the last message and its answer.
fn federated(method: &dyn MethodSettings, restored: impl Fn(usize) -> bool) -> (Vec<Vec<u64>>, u64, Vec<usize>) {
    let logistic = RandomLogistic::default().with_agents(4).with_dim(DIM).with_points(40).with_ridge(0.02);
    let inner = field(&logistic, Law::Mean);
    let hessians = Arc::new(AtomicU64::new(0));
    let counted = Counted { weights: inner.weights().to_vec(), inner, hessians: Arc::clone(&hessians) };
    let sampling = Sampling::default().with_kind(Law::Mean);
    let field: Arc<dyn Field> = Arc::new(Sampled::new(counted, sampling, Isa::best()).unwrap());
    let federation = Federation::new(method, &Default::default(), field.weights().to_vec(), 5, vec![0.0; DIM]).unwrap();
    let new = |c: usize| ClientNode::new(&federation, &field, c, c).unwrap();
    let mut nodes: Vec<ClientNode> = (0..4).map(new).collect();
    let mut server = ServerNode::new(&federation).unwrap();
    let (mut thetas, mut sizes) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = todo {
            let mut answers = Vec::new();
            for (c, bytes) in to.iter().zip(&bytes) {
                if restored(*c) {
                    let saved = nodes[*c].save();
                    nodes[*c] = new(*c);
                    nodes[*c].restore(&saved).unwrap();
                    assert!(nodes[*c].save() == saved, "agent {c} saves what it restored");
                }
                let answer = nodes[*c].handle(bytes).unwrap().unwrap();
                if *c == 0 {
                    sizes.push(nodes[0].save().len() - bytes.len() - answer.len());
                }
                answers.push((*c, answer));
            }
            todo = server.receive(&answers).todo;
        }
        thetas.push(bits(server.theta()));
    }
    (thetas, hessians.load(Relaxed), sizes)
}

/// An agent that dies after every message computes as many Hessians as one that lives, and no eigenvectors: it has no matrix to compute them of. Its
/// state shrinks by a vector with each that is sent.
#[test]
fn a_restored_agent_computes_no_hessian_again() {
    for (kind, settings) in [
        ("shed", r#"{"renewal": {"schedule": "once"}, "rho": "midpoint"}"#),
        ("shed", "{}"),
        ("shed", r#"{"renewal": {"schedule": "gradient-norm", "min_distance": 3}, "pairs": "random", "rho": "midpoint"}"#),
        ("q-shed", r#"{"renewal": {"schedule": "once"}, "max_bits": 4, "budget": 4}"#),
        ("q-shed", "{}"),
        ("q-shed", r#"{"allocation": "ideal"}"#),
    ] {
        let method = method(kind, settings);
        let (whole, hessians, sizes) = federated(&*method, |_| false);
        let (again, counted, _) = federated(&*method, |c| c % 2 == 0);
        assert_eq!(counted, hessians, "{kind} {settings}");
        assert!(again == whole, "{kind} {settings}: other iterates");
        assert!(hessians >= 4, "{kind} {settings}: {hessians}");
        // All eigenvectors and values, three vectors, and what a node keeps besides.
        let vector = 8 * DIM;
        let most = DIM * vector + 4 * vector + 120;
        assert!(sizes.iter().all(|size| *size <= most), "{kind} {settings}: {sizes:?}");
        if settings.contains("once") {
            let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
            assert!(first > 8 * vector && last <= first - 8 * vector, "{kind} {settings}: {sizes:?}");
        }
    }
}
