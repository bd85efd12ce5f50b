//! Rules of one's own that answer for all participants in one call, and that can fail: the numbers of fedsa's own rules, bit for bit, and
//! what becomes of the engine, of nodes and of sessions when a rule fails.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::common::{bits, engine, field, link, problems};
use fedsa::cancel::Cancel;
use fedsa::error::{Error, Failure, Result};
use fedsa::local::{AgentBatch, Client, ClientFacts, Outbox};
use fedsa::message::{Message, Part};
use fedsa::method::{Drift, MethodSettings, MethodShape, Setting};
use fedsa::node::{ClientNode, Federation, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::protocol::{Gather, Protocol};
use fedsa::record::OutputRule;
use fedsa::round::{Advanced, Run};
use fedsa::sampling::Law;
use fedsa::saved::{packed, unpacked};
use fedsa::schedule::{StepSchedule, StepSize};
use fedsa::server::{Broadcast, Next, Participation, Received, Server, ServerFacts};
use fedsa::session::{Nodes, Session, StoppingCriteria, Transport};
use fedsa::uplink::Uplink;
use fedsa_methods::fedhsa::FedHsa;
use fedsa_methods::fedlsa::FedLsa;
use fedsa_methods::{averaging, fixed};
use serde::Serialize;

const ETA: f64 = 0.05;
const H: usize = 7;

/// What the calls of rules have in common: how many there were, of how many agents, and which one fails.
#[derive(Debug, Default)]
struct Calls {
    done: AtomicUsize,
    most: AtomicUsize,
    failing: Mutex<Option<usize>>,
}

impl Calls {
    fn called(&self, agents: usize) -> Result<()> {
        let k = self.done.fetch_add(1, Ordering::Relaxed);
        self.most.fetch_max(agents, Ordering::Relaxed);
        match self.failing.lock().unwrap().take_if(|failing| *failing == k) {
            Some(_) => Err(Error::new("rule", "it has failed", "another rule")),
            None => Ok(()),
        }
    }

    fn fail_after(&self, calls: usize) {
        *self.failing.lock().unwrap() = Some(self.done.load(Ordering::Relaxed) + calls);
    }
}

/// FedLSA, or SCAFFLSA to the letter, in one call; and an average, whose server half can fail.
#[derive(Debug, Clone, Serialize)]
struct Own {
    has_controls: bool,
    /// Whether the control is kept with what was sent in place of what was computed.
    hears_sent: bool,
    participants: Option<usize>,
    #[serde(skip)]
    client: Arc<Calls>,
    #[serde(skip)]
    server: Arc<Calls>,
}

impl Own {
    fn new(has_controls: bool) -> Self {
        Self { has_controls, hears_sent: false, participants: None, client: Arc::default(), server: Arc::default() }
    }

    fn twin(&self) -> Box<dyn MethodSettings> {
        let rule = if self.hears_sent { r#""acknowledged""# } else { r#""literal""# };
        match self.has_controls {
            false => Box::new(FedLsa::new(ETA, H).with_participants(self.participants)),
            true => crate::common::method("scafflsa", &format!(r#"{{"step_size": {ETA}, "local_steps": {H}, "rule": {rule}}}"#)),
        }
    }
}

fn schedule() -> StepSchedule {
    fixed(StepSize::Constant(ETA), H)
}

impl Client for Own {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts { prefers_one_call: true, ..ClientFacts::keeping(if self.has_controls { 3 } else { 0 }) }
    }

    fn local_steps(&self, _: u64) -> usize {
        H
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let (mut rows, theta) = (batch.rows(), down.part(Part::Model));
        let (n, d, phase) = (rows.agents().len(), rows.dim(), schedule().of(down.round));
        rows.open(down.round, theta);
        assert!(rows.agents().is_sorted_by(|a, b| a < b));
        let mut at = theta.repeat(n);
        let control = self.has_controls.then(|| {
            if down.round > 0 {
                let (own, base) = (rows.memory(1).to_vec(), rows.memory(2).to_vec());
                for (i, xi) in rows.memory(0).iter_mut().enumerate() {
                    *xi += (theta[i % d] - base[i]) / phase.sum - own[i];
                }
            }
            rows.memory(2).copy_from_slice(&at);
            rows.memory(0).to_vec()
        });
        // In two local phases, which are one.
        rows.steps(&mut at, control.as_deref(), &[ETA; 3])?;
        rows.steps(&mut at, control.as_deref(), &[ETA; H - 3])?;
        let v: Vec<f64> = at.iter().enumerate().map(|(i, x)| (x - theta[i % d]) / phase.sum).collect();
        if self.has_controls {
            rows.memory(1).copy_from_slice(&v);
        }
        self.client.called(n)?;
        batch.answer_with(&rows, Part::Direction, &v, out);
        Ok(())
    }

    fn sent(&self, batch: &mut AgentBatch<'_>, _: &Message, sent: &Outbox) -> Result<()> {
        if self.hears_sent {
            let mut rows = batch.rows();
            let sent = sent.rows(batch.lanes());
            rows.memory(1).copy_from_slice(&sent);
            assert!(rows.steps(&mut sent.to_vec(), None, &[ETA]).is_err() && rows.streams().is_err(), "they have answered");
            batch.take_memory(&rows);
        }
        Ok(())
    }
}

/// `theta += E v`, or why not.
struct Fallible {
    theta: Vec<f64>,
    participation: Participation,
    calls: Arc<Calls>,
    failure: Failure,
}

impl Server for Fallible {
    fn open(&mut self, t: u64) -> Broadcast {
        Broadcast { to: self.participation.of(t), down: Message::one(t, 0, Part::Model, self.theta.clone()), own: None }
    }

    fn receive(&mut self, got: &Received<'_>) -> Next {
        let v = got.mean(Part::Direction);
        // What a rule has done when it fails is void.
        let step = schedule().of(got.round).sum;
        self.theta.iter_mut().zip(&v).for_each(|(theta, v)| *theta += step * v);
        self.failure.unless_failed(|| self.calls.called(1));
        Next::Done { tell: None }
    }

    fn theta(&self) -> &[f64] {
        &self.theta
    }

    fn facts(&self) -> ServerFacts<'_> {
        ServerFacts { failure: Some(&self.failure), ..ServerFacts::default() }
    }

    fn state(&self) -> Vec<u8> {
        packed(&self.theta)
    }

    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.theta = unpacked(state)?;
        self.failure.clear();
        Ok(())
    }
}

impl MethodSettings for Own {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(self.clone())
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let participation = Participation { m: self.participants, agents: setting.agents(), seed: setting.seed };
        let (calls, failure) = (Arc::clone(&self.server), Failure::default());
        Box::new(Fallible { theta: setting.start.clone(), participation, calls, failure })
    }

    fn shape(&self) -> MethodShape {
        let (step_size, local_steps) = (StepSize::Constant(ETA), H as f64);
        MethodShape { drift: Drift::Zero, step_size, local_steps, alpha_g: 1.0, participants: None, is_linear: false }
    }
}

fn state(run: &Run) -> (Vec<u64>, fedsa::record::Ledger) {
    (bits(run.theta()), run.ledger())
}

fn started(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> Run {
    engine(field, method, uplink, OutputRule::Last, 5, vec![0.1; field.dim()]).unwrap()
}

#[test]
fn the_numbers_are_those_of_the_rules_that_answer_block_by_block() {
    let exact = r#"{"kind": "exact"}"#;
    let erasure = r#"{"kind": "erasure", "success": 0.6}"#;
    let links = [
        Uplink::default(),
        link(exact, false, &[erasure]).unwrap(),
        link(r#"{"kind": "quantised", "bits": 3}"#, true, &[erasure]).unwrap(),
        link(exact, false, &[r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#]).unwrap(),
        link(exact, false, &[r#"{"kind": "delay", "law": "uniform", "max": 5}"#]).unwrap(),
    ];
    for law in [Law::Iid, Law::Mean, Law::Markov] {
        for (name, problem) in problems(21) {
            let field = field(&*problem, law);
            for uplink in &links {
                for own in [Own::new(false), Own { participants: Some(10), ..Own::new(false) }, Own::new(true)] {
                    if own.has_controls && uplink.pull().is_some() {
                        continue;
                    }
                    let about = format!("{own:?} on {name}, {law:?}, over {uplink:?}");
                    let (mut one, mut other) = (started(&field, &*own.twin(), uplink), started(&field, &own, uplink));
                    for round in 0..6 {
                        one.step();
                        other.step();
                        assert!(state(&one) == state(&other), "{about}, round {round}");
                    }
                    let m = own.participants.unwrap_or(21);
                    assert!(own.client.most.load(Ordering::Relaxed) == m || uplink.pull().is_some(), "{about}");
                    assert!(own.client.done.load(Ordering::Relaxed) == 6 || uplink.pull().is_some(), "{about}");
                }
            }
        }
    }
}

#[test]
fn what_was_sent_is_heard_in_the_engine_and_at_nodes() {
    let own = Own { hears_sent: true, ..Own::new(true) };
    let uplink = link(r#"{"kind": "quantised", "bits": 3}"#, false, &[]).unwrap();
    let (_, problem) = problems(21).swap_remove(0);
    let field = field(&*problem, Law::Iid);
    let (mut one, mut other) = (started(&field, &*own.twin(), &uplink), started(&field, &own, &uplink));
    let mut by_bytes = ByBytes::new(&field, &own, &uplink);
    for _ in 0..6 {
        one.step();
        other.step();
        by_bytes.round();
        assert_eq!(bits(one.theta()), bits(other.theta()));
        assert_eq!(bits(one.theta()), bits(by_bytes.server.theta()));
    }
}

/// A federation of nodes in one thread.
struct ByBytes {
    server: ServerNode,
    agents: Vec<ClientNode>,
}

impl ByBytes {
    fn new(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> Self {
        let federation = Federation::new(method, uplink, field.weights().to_vec(), 5, vec![0.1; field.dim()]).unwrap();
        let agents = (0..field.agents()).map(|c| ClientNode::new(&federation, field, c, c).unwrap()).collect();
        Self { server: ServerNode::new(&federation).unwrap(), agents }
    }

    fn ask(&mut self) {
        if let Todo::Ask { to, bytes } = self.server.open() {
            for (c, bytes) in to.iter().zip(&bytes) {
                if let Some(answer) = self.agents[*c].handle(bytes).unwrap() {
                    self.server.take(*c, &answer).unwrap();
                }
            }
        }
    }

    fn round(&mut self) {
        self.ask();
        assert!(matches!(self.server.close(), Todo::RoundOver));
    }
}

#[test]
fn a_run_whose_rule_fails_is_restored_and_goes_on() {
    let (_, problem) = problems(21).swap_remove(0);
    let field = field(&*problem, Law::Markov);
    for fails_at_server in [false, true] {
        let own = Own::new(true);
        let (mut whole, mut run) = (started(&field, &*own.twin(), &Uplink::default()), started(&field, &own, &Uplink::default()));
        (0..3).for_each(|_| run.step());
        let saved = run.save().unwrap();
        if fails_at_server { &own.server } else { &own.client }.fail_after(1);
        assert_eq!(run.advance(&Cancel::never()), Advanced::Round);
        assert_eq!(run.advance(&Cancel::never()), Advanced::Cancelled);
        assert_eq!(run.failure().unwrap().what, "it has failed");
        assert!(run.is_torn() && run.save().is_err());
        assert_eq!(run.advance(&Cancel::never()), Advanced::Cancelled, "until it is restored it does nothing");
        run.restore(&saved).unwrap();
        assert!(run.failure().is_none() && !run.is_torn());
        (0..4).for_each(|_| run.step());
        (0..7).for_each(|_| whole.step());
        assert_eq!(state(&run), state(&whole));
        if fails_at_server { &own.server } else { &own.client }.fail_after(0);
        run.step();
        run.restart().unwrap();
        (0..7).for_each(|_| run.step());
        assert_eq!(state(&run), state(&whole));
    }
}

#[test]
fn a_node_whose_rule_fails_is_as_before() {
    let (_, problem) = problems(9).swap_remove(0);
    let field = field(&*problem, Law::Markov);
    let own = Own::new(true);
    let (mut nodes, mut whole) = (ByBytes::new(&field, &own, &Uplink::default()), started(&field, &*own.twin(), &Uplink::default()));
    (0..3).for_each(|_| nodes.round());
    let Todo::Ask { to, bytes } = nodes.server.open() else { panic!("a question") };
    own.client.fail_after(0);
    let before = nodes.agents[0].save();
    assert_eq!(nodes.agents[0].handle(&bytes[0]).unwrap_err().what, "it has failed");
    assert_eq!(nodes.agents[0].save(), before);
    for (c, bytes) in to.iter().zip(&bytes) {
        let answer = nodes.agents[*c].handle(bytes).unwrap().unwrap();
        nodes.server.take(*c, &answer).unwrap();
    }
    let before = nodes.server.save();
    for call in [ServerNode::close, ServerNode::open, |server: &mut ServerNode| server.receive(&[]).todo] {
        own.server.fail_after(0);
        assert!(matches!(call(&mut nodes.server), Todo::Ask { .. }));
        assert_eq!(nodes.server.failure().unwrap().what, "it has failed");
        assert_eq!(nodes.server.save(), before);
    }
    assert_eq!(nodes.server.close(), Todo::RoundOver);
    assert!(nodes.server.failure().is_none());
    (0..4).for_each(|_| whole.step());
    assert_eq!(bits(nodes.server.theta()), bits(whole.theta()));
}

#[test]
fn a_node_with_its_own_data_alone_draws_as_its_number_says() {
    let noise = Some(fedsa_problems::noise::Noise::new(0.3, 0.6, 1));
    let systems: Vec<_> = (0..11).map(|c| ([[1.0 + 0.1 * c as f64, 0.2], [0.2, 2.0]], [c as f64, -1.0])).collect();
    let of = |agents: &[_]| crate::common::linear(agents).with_noise(noise.clone());
    let (all, method) = (field(&of(&systems), Law::Markov), Own::new(true));
    let mut nodes = ByBytes::new(&all, &method, &Uplink::default());
    let federation = Federation::new(&method, &Uplink::default(), all.weights().to_vec(), 5, vec![0.1; 2]).unwrap();
    for (c, system) in systems.iter().enumerate() {
        nodes.agents[c] = ClientNode::new(&federation, &field(&of(std::slice::from_ref(system)), Law::Markov), 0, c).unwrap();
    }
    let mut run = started(&all, &*method.twin(), &Uplink::default());
    for _ in 0..5 {
        nodes.round();
        run.step();
        assert_eq!(bits(nodes.server.theta()), bits(run.theta()));
    }
}

/// Agents in this thread.
struct Here(Vec<ClientNode>);

impl Transport for Here {
    fn exchange(
        &mut self,
        _: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        _: Option<Instant>,
        _: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        to.iter().zip(bytes).map(|(c, bytes)| Ok((*c, self.0[*c].handle(bytes)?.expect("an answer")))).collect()
    }

    fn tell(&mut self, _: &ServerNode, _: &[usize], _: &[Arc<[u8]>]) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_session_whose_rule_fails_says_so_and_goes_on() {
    let (_, problem) = problems(9).swap_remove(0);
    let field = field(&*problem, Law::Iid);
    let own = Own::new(true);
    let mut whole = started(&field, &*own.twin(), &Uplink::default());
    (0..6).for_each(|_| whole.step());
    let ByBytes { server, agents } = ByBytes::new(&field, &own, &Uplink::default());
    let mut session = Session::new(Nodes::new(server, Here(agents)));
    own.server.fail_after(3);
    assert_eq!(session.advance(&StoppingCriteria::rounds(6), &Cancel::never(), &mut ()).unwrap_err().what, "it has failed");
    assert_eq!(session.carrier().server().coordinator().rounds(), 3);
    session.advance(&StoppingCriteria::rounds(6), &Cancel::never(), &mut ()).unwrap();
    assert_eq!(bits(session.carrier().server().theta()), bits(whole.theta()));
}

/// FedHSA as a rule with two exchanges that answers for all.
#[derive(Debug, Clone, Serialize)]
struct TwoExchanges {
    participants: Option<usize>,
}

impl Client for TwoExchanges {
    fn facts(&self) -> ClientFacts<'_> {
        ClientFacts { prefers_one_call: true, ..ClientFacts::keeping(2) }
    }

    fn local_steps(&self, _: u64) -> usize {
        H
    }

    fn answer(&self, batch: &mut AgentBatch<'_>, down: &Message, out: &mut Outbox) -> Result<()> {
        let mut rows = batch.rows();
        let (n, d, phase) = (rows.agents().len(), rows.dim(), schedule().of(down.round));
        let model = if down.exchange == 0 { down.part(Part::Model).to_vec() } else { rows.memory(1)[..d].to_vec() };
        rows.open(down.round, &model);
        if down.exchange == 0 {
            let mut at = down.part(Part::Model).repeat(n);
            rows.memory(1).copy_from_slice(&at);
            rows.sample(&mut at)?;
            rows.memory(0).copy_from_slice(&at);
            batch.answer_with(&rows, Part::Operator, &at, out);
            return Ok(());
        }
        let (mean, theta) = (down.part(Part::Operator), rows.memory(1).to_vec());
        let drift: Vec<f64> = rows.memory(0).iter().enumerate().map(|(i, g)| mean[i % d] - g).collect();
        let mut at = theta.clone();
        rows.steps(&mut at, Some(&drift), &[ETA; H])?;
        let v: Vec<f64> = at.iter().zip(&theta).map(|(x, theta)| (x - theta) / phase.sum).collect();
        batch.answer_with(&rows, Part::Direction, &v, out);
        Ok(())
    }
}

impl MethodSettings for TwoExchanges {
    fn check(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn protocol(&self, setting: &Setting<'_>) -> Protocol {
        Protocol::operators_then_directions(setting.start.len(), Gather::Sum)
    }

    fn client(&self, _: &Setting<'_>) -> Box<dyn Client> {
        Box::new(self.clone())
    }

    fn server(&self, setting: &Setting<'_>) -> Box<dyn Server> {
        let mut average = averaging(setting, schedule(), 1.0, self.participants);
        average.operators_first = true;
        Box::new(average)
    }

    fn shape(&self) -> MethodShape {
        Own::new(true).shape()
    }
}

#[test]
fn a_rule_with_two_exchanges_has_the_numbers_of_fedhsa() {
    let erasure = r#"{"kind": "erasure", "success": 0.6}"#;
    let links = [
        Uplink::default(),
        link(r#"{"kind": "quantised", "bits": 3}"#, true, &[erasure]).unwrap(),
        link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "late", "law": "uniform", "min": 0, "max": 3}"#]).unwrap(),
    ];
    for (law, uplink) in [Law::Iid, Law::Mean, Law::Markov].into_iter().flat_map(|law| links.iter().map(move |link| (law, link))) {
        for (name, problem) in problems(21) {
            let field = field(&*problem, law);
            for participants in [None, Some(10)] {
                let (own, twin) = (TwoExchanges { participants }, FedHsa::new(ETA, H).with_participants(participants));
                let (mut one, mut other) = (started(&field, &twin, uplink), started(&field, &own, uplink));
                for round in 0..6 {
                    one.step();
                    other.step();
                    assert!(state(&one) == state(&other), "{own:?} on {name}, {law:?}, over {uplink:?}, round {round}");
                }
            }
        }
    }
    let delay = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "delay", "law": "constant", "rounds": 2}"#]).unwrap();
    let field = field(&*problems(9).swap_remove(0).1, Law::Iid);
    let own = TwoExchanges { participants: None };
    assert!(engine(&field, &own, &delay, OutputRule::Last, 5, vec![0.1; field.dim()]).is_err(), "it has a memory");
}
