//! Operators that are evaluated for many agents in one call: the numbers of the same operators one agent at a time, bit for bit, and what
//! becomes of calls that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{bits, engine, link, method, methods};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result};
use fedsa::kernel::Isa;
use fedsa::method::MethodSettings;
use fedsa::metrics::Metrics;
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::root::RootSource;
use fedsa::problem::{BatchCall, BatchOperators, Batched, Field, Problem, Sampled, equal_weights};
use fedsa::random::Stream;
use fedsa::record::OutputRule;
use fedsa::round::{Advanced, Run};
use fedsa::sampling::{ChainStart, Law, Sampling};
use fedsa::session::{Session, StoppingCriteria};
use fedsa::uplink::Uplink;

/// `g_c(theta, z) = b_c - a_c theta - theta^3 / 10 + x`, x white, or a walk that forgets faster where theta is large.
#[derive(Clone)]
struct Walk {
    weights: Vec<f64>,
    dim: usize,
    has_state: bool,
}

impl Walk {
    fn new(agents: usize, dim: usize, law: Law) -> Self {
        Self { weights: equal_weights(agents), dim, has_state: law == Law::Markov }
    }

    fn mean_of(c: usize, theta: &[f64], out: &mut [f64]) {
        for (i, (out, theta)) in out.iter_mut().zip(theta).enumerate() {
            *out = 1.0 / (1.0 + (c + i) as f64) - (1.0 + 0.1 * c as f64) * theta - theta * theta * theta / 10.0;
        }
    }

    /// The noise of the next sample at theta.
    fn noise(&self, theta: &[f64], state: &mut [u64], stream: &mut Stream) -> f64 {
        let w = stream.normal();
        if !self.has_state {
            return w;
        }
        let x = 0.5 / (1.0 + theta[0] * theta[0]) * f64::from_bits(state[0]) + w;
        state[0] = x.to_bits();
        x
    }
}

/// One agent at a time.
impl Problem for Walk {
    type Obs = f64;
    fn dim(&self) -> usize {
        self.dim
    }
    fn weights(&self) -> &[f64] {
        &self.weights
    }
    fn chain_len(&self) -> usize {
        usize::from(self.has_state)
    }
    fn start_chain(&self, _: usize, stream: &mut Stream, chain: &mut [u64]) {
        chain[0] = stream.normal().to_bits();
    }
    fn sample(&self, _: usize, theta: &[f64], chain: &mut [u64], stream: &mut Stream, z: &mut f64) {
        *z = self.noise(theta, chain, stream);
    }
    fn apply(&self, c: usize, theta: &[f64], z: &f64, out: &mut [f64]) {
        Self::mean_of(c, theta, out);
        out.iter_mut().for_each(|out| *out += z);
    }
    fn mean(&self, c: usize, theta: &[f64], out: &mut [f64]) -> bool {
        Self::mean_of(c, theta, out);
        true
    }
}

/// All agents of a call, which counts calls and may fail.
struct Rows {
    walk: Walk,
    calls: AtomicUsize,
    most: AtomicUsize,
    /// The call that fails.
    failing: Mutex<Option<usize>>,
}

impl Rows {
    fn new(walk: Walk) -> Self {
        Self { walk, calls: AtomicUsize::new(0), most: AtomicUsize::new(0), failing: Mutex::new(None) }
    }
    fn called(&self, rows: usize) -> Result<()> {
        let k = self.calls.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(rows, Ordering::Relaxed);
        match self.failing.lock().unwrap().take_if(|failing| *failing == k) {
            Some(_) => Err(Error::new("operator", "it has failed", "another operator")),
            None => Ok(()),
        }
    }
}

impl BatchOperators for Rows {
    fn dim(&self) -> usize {
        self.walk.dim
    }
    fn weights(&self) -> &[f64] {
        &self.walk.weights
    }
    fn state_len(&self) -> usize {
        self.walk.chain_len()
    }
    fn start(&self, c: usize, stream: &mut Stream, state: &mut [u64]) -> Result<()> {
        self.walk.start_chain(c, stream, state);
        Ok(())
    }
    fn sample(&self, call: BatchCall<'_>) -> Result<()> {
        self.called(call.agents.len())?;
        assert!(call.agents.is_sorted_by(|a, b| a < b));
        let (d, words) = (self.walk.dim, self.state_len());
        for (row, c) in call.agents.iter().enumerate() {
            let theta = &call.theta[row * d..][..d];
            let z = self.walk.noise(theta, &mut call.states[row * words..][..words], &mut call.streams[row]);
            self.walk.apply(*c, theta, &z, &mut call.out[row * d..][..d]);
        }
        Ok(())
    }
    fn has_mean(&self) -> bool {
        true
    }
    fn mean(&self, agents: &[usize], theta: &[f64], out: &mut [f64]) -> Result<()> {
        self.called(agents.len())?;
        let d = self.walk.dim;
        for (row, c) in agents.iter().enumerate() {
            Walk::mean_of(*c, &theta[row * d..][..d], &mut out[row * d..][..d]);
        }
        Ok(())
    }
}

/// The same operators one agent at a time, and many in one call.
fn twins(agents: usize, dim: usize, sampling: Sampling) -> (Arc<dyn Field>, Arc<Batched<Rows>>) {
    let walk = Walk::new(agents, dim, sampling.kind);
    let alone = Sampled::new(walk.clone(), sampling, Isa::best()).unwrap();
    (Arc::new(alone), Arc::new(Batched::new(Rows::new(walk), sampling, Isa::best()).unwrap()))
}

fn of(law: Law, batch: usize) -> Sampling {
    Sampling::default().with_kind(law).with_batch(batch)
}

fn state(run: &Run) -> (Vec<u64>, Option<Vec<Vec<u64>>>, fedsa::record::Ledger) {
    let controls = run.controls().map(|controls| controls.iter().map(|xi| bits(xi)).collect());
    (bits(run.theta()), controls, run.ledger())
}

fn agree(sampling: Sampling, method: &dyn MethodSettings, uplink: &Uplink, about: &str) -> bool {
    let (alone, together) = twins(21, 3, sampling);
    let shared: Arc<dyn Field> = Arc::<Batched<Rows>>::clone(&together);
    let run = |field: &Arc<dyn Field>| engine(field, method, uplink, OutputRule::Last, 5, vec![0.1; 3]);
    let (Ok(mut one), Ok(mut other)) = (run(&alone), run(&shared)) else { return false };
    for round in 0..6 {
        one.step();
        other.step();
        assert!(state(&one) == state(&other), "{about}, round {round}");
    }
    assert_eq!(one.save().unwrap(), other.save().unwrap(), "{about}");
    true
}

#[test]
fn the_numbers_are_those_of_one_agent_at_a_time() {
    let mut ran = 0;
    for sampling in [of(Law::Iid, 1), of(Law::Markov, 1), of(Law::Markov, 3), of(Law::Mean, 1)] {
        for participants in [None, Some(11)] {
            for (kind, method) in methods(participants) {
                ran += usize::from(agree(sampling, &*method, &Uplink::default(), kind));
            }
        }
    }
    assert!(ran > 100, "{ran}");
}

#[test]
fn the_numbers_are_the_same_over_links_that_alter_lose_and_delay() {
    let quantised = r#"{"kind": "quantised", "bits": 3}"#;
    let exact = r#"{"kind": "exact"}"#;
    let (erasure, late) = (r#"{"kind": "erasure", "success": 0.6}"#, r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#);
    let stale = r#"{"kind": "delay", "law": "uniform", "max": 5}"#;
    for (codec, feedback, media) in
        [(quantised, true, vec![]), (quantised, false, vec![erasure]), (exact, false, vec![late]), (exact, false, vec![stale])]
    {
        let uplink = link(codec, feedback, &media).unwrap();
        let ran = methods(None).into_iter().filter(|(kind, method)| agree(of(Law::Iid, 1), &**method, &uplink, kind)).count();
        assert!(ran >= 8, "{ran} over {codec} {media:?}");
    }
    // Processes go on along the iterates of each round, also where its answers are late.
    let uplink = link(exact, false, &[stale]).unwrap();
    assert!(agree(of(Law::Markov, 1), &*method("fedhsa", r#"{"step_size": 0.05, "local_steps": 7}"#), &uplink, "old models"));
}

#[test]
fn a_step_of_all_agents_is_one_call() {
    for (kind, settings, calls) in [
        ("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#, 7),
        ("scafflsa", r#"{"step_size": 0.05, "local_steps": 7}"#, 7),
        // One more for the operators at the model.
        ("fedhsa", r#"{"step_size": 0.05, "local_steps": 7}"#, 8),
    ] {
        let (_, together) = twins(100, 3, of(Law::Iid, 1));
        let shared: Arc<dyn Field> = Arc::<Batched<Rows>>::clone(&together);
        let mut run = engine(&shared, &*method(kind, settings), &Uplink::default(), OutputRule::Last, 5, vec![0.0; 3]).unwrap();
        let rows = together.operators();
        // Those that looked for the root.
        for round in 0..3 {
            rows.calls.store(0, Ordering::Relaxed);
            run.step();
            let seen = (rows.calls.load(Ordering::Relaxed), rows.most.load(Ordering::Relaxed));
            assert_eq!(seen, (calls, 100), "{kind}, round {round}");
        }
    }
}

#[test]
fn nodes_have_the_numbers_of_the_engine() {
    let (_, together) = twins(9, 3, of(Law::Markov, 1));
    let field: Arc<dyn Field> = together;
    let method = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let federation = Federation::new(&*method, &Uplink::default(), field.weights().to_vec(), 5, vec![0.1; 3]).unwrap();
    let mut agents: Vec<ClientNode> = (0..9).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect();
    let mut server = ServerNode::new(&federation).unwrap();
    let mut run = Run::new(&field, &federation).unwrap();
    for _ in 0..5 {
        run.step();
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = &todo {
            let answers: Vec<_> = to.iter().zip(bytes).map(|(c, bytes)| (*c, agents[*c].handle(bytes).unwrap().unwrap())).collect();
            todo = server.receive(&answers).todo;
        }
        assert_eq!(bits(server.theta()), bits(run.theta()));
    }
}

#[test]
fn metrics_and_the_root_are_those_of_the_means() {
    let (alone, together) = twins(21, 3, of(Law::Iid, 1));
    let theta = [0.3, -0.2, 0.5];
    assert_eq!(alone.mean_operator(&theta).map(|g| bits(&g)), together.mean_operator_of(&theta).map(|g| bits(&g)));
    assert_eq!(together.operators().calls.load(Ordering::Relaxed), 1);
    let root = together.solution().unwrap();
    assert_eq!((bits(&root.theta), root.source), (bits(&alone.solution().unwrap().theta), RootSource::Differences));
}

/// [`Field::mean_operator`] is a function of the trait object.
trait OfField {
    fn mean_operator_of(&self, theta: &[f64]) -> Option<Vec<f64>>;
}

impl OfField for Batched<Rows> {
    fn mean_operator_of(&self, theta: &[f64]) -> Option<Vec<f64>> {
        (self as &dyn Field).mean_operator(theta)
    }
}

#[test]
fn a_round_whose_call_fails_does_not_count() {
    let (_, together) = twins(21, 3, of(Law::Markov, 1));
    let field: Arc<dyn Field> = Arc::<Batched<Rows>>::clone(&together);
    let method = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let run = || engine(&field, &*method, &Uplink::default(), OutputRule::Last, 5, vec![0.1; 3]).unwrap();
    let mut whole = run();
    (0..6).for_each(|_| whole.step());
    let mut failed = run();
    (0..3).for_each(|_| failed.step());
    let before = failed.save().unwrap();
    let now = together.operators().calls.load(Ordering::Relaxed);
    *together.operators().failing.lock().unwrap() = Some(now + 4);
    assert_eq!(failed.advance(&Cancel::never()), Advanced::Cancelled);
    assert!(failed.is_torn() && failed.failure().is_some());
    assert!(failed.save().unwrap_err().to_string().contains("it has failed"));
    assert_eq!(together.operators().calls.load(Ordering::Relaxed), now + 5, "nothing is called after a failure");
    assert_eq!(failed.advance(&Cancel::never()), Advanced::Cancelled);
    failed.restore(&before).unwrap();
    (0..3).for_each(|_| failed.step());
    assert_eq!(bits(failed.theta()), bits(whole.theta()));
}

#[test]
fn a_session_goes_on_after_a_failure() {
    let (_, together) = twins(21, 3, of(Law::Iid, 1));
    let field: Arc<dyn Field> = Arc::<Batched<Rows>>::clone(&together);
    let method = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let run = || engine(&field, &*method, &Uplink::default(), OutputRule::Last, 5, vec![0.1; 3]).unwrap();
    let metrics = || Arc::new(Metrics::new(&field));
    let session = || Session::new(run()).with_metrics(metrics());
    let mut whole = session();
    whole.advance(&StoppingCriteria::rounds(6), &Cancel::never(), &mut ()).unwrap();
    let now = together.operators().calls.load(Ordering::Relaxed);
    // In a step, and in a metric.
    for failing in [20, 7, 8] {
        let mut failed = session();
        let now = together.operators().calls.load(Ordering::Relaxed).max(now);
        *together.operators().failing.lock().unwrap() = Some(now + failing);
        let e = failed.advance(&StoppingCriteria::rounds(6), &Cancel::never(), &mut ()).unwrap_err();
        assert!(e.to_string().contains("it has failed"), "{e}");
        failed.advance(&StoppingCriteria::rounds(6), &Cancel::never(), &mut ()).unwrap();
        assert_eq!(failed.rows().len(), 7);
        for (one, other) in failed.rows().iter().zip(whole.rows()) {
            assert_eq!((one.round, one.seen, one.ledger), (other.round, other.seen, other.ledger));
        }
    }
}

#[test]
fn a_node_whose_call_fails_is_unchanged() {
    let (_, together) = twins(3, 3, of(Law::Markov, 1));
    let field: Arc<dyn Field> = Arc::<Batched<Rows>>::clone(&together);
    let method = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let federation = Federation::new(&*method, &Uplink::default(), field.weights().to_vec(), 5, vec![0.1; 3]).unwrap();
    let mut node = ClientNode::new(&federation, &field, 1, 1).unwrap();
    let mut server = ServerNode::new(&federation).unwrap();
    let Todo::Ask { bytes, .. } = server.open() else { panic!("a question") };
    let before = node.save();
    *together.operators().failing.lock().unwrap() = Some(3);
    assert!(node.handle(&bytes[1]).unwrap_err().to_string().contains("it has failed"));
    assert_eq!(node.save(), before);
    assert!(node.handle(&bytes[1]).unwrap().is_some());
}

#[test]
fn samplings_that_contradict_the_operators_are_refused() {
    let refused = |law: Law, of: Law| Batched::new(Rows::new(Walk::new(2, 1, of)), Sampling::default().with_kind(law), Isa::best()).err();
    assert!(refused(Law::Iid, Law::Markov).unwrap().to_string().contains("depend on the state"));
    assert!(refused(Law::Markov, Law::Iid).unwrap().to_string().contains("no state"));
    let start = Sampling::default().with_kind(Law::Markov).with_start(ChainStart::State(1));
    assert_eq!(Batched::new(Rows::new(Walk::new(2, 1, Law::Markov)), start, Isa::best()).err().unwrap().key, "sampling.start");
    assert!(refused(Law::Mean, Law::Iid).is_none());
}
