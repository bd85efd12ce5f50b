//! Nodes over a transport that reaches some agents only, loses answers and delays them: what arrives late counts late or is dropped, as
//! the link says, and the engine repeats the iterates from what the server recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{EXACT, bits, computing_alone, field, link, method, methods, objectives, small_garnet};
use fedsa::cancel::Cancel;
use fedsa::coordinator::{AgentStatus, ArrivalRecord};
use fedsa::error::{ErrorKind, Result};
use fedsa::federation::{AnswerRules, Federation, MissingAnswers};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream, stream};
use fedsa::round::{Advanced, Run, round};
use fedsa::sampling::Law;
use fedsa::session::{Carrier as _, Nodes, Quorum, Transport};
use fedsa::uplink::Uplink;
use fedsa_problems::td::garnet::Heterogeneity;

const SEED: u64 = 5;
const AGENTS: usize = 5;

/// How often the transport misbehaves.
#[derive(Clone, Copy)]
struct Script {
    unreachable: f64,
    lost: f64,
    delayed: f64,
    untold: f64,
}

const ROUGH: Script = Script { unreachable: 0.1, lost: 0.15, delayed: 0.25, untold: 0.0 };
const QUIET: Script = Script { unreachable: 0.0, lost: 0.0, delayed: 0.0, untold: 0.0 };

/// Agents of this process behind a network with a seeded script.
struct Scripted {
    agents: Vec<ClientNode>,
    script: Script,
    draws: Stream,
    exchanges: u64,
    /// Answers on their way: the exchange in which they come, the agent, the bytes.
    queue: Vec<(u64, usize, Vec<u8>)>,
    /// Whom each exchange asked.
    asked: Vec<Vec<usize>>,
}

impl Scripted {
    fn new(federation: &Federation, field: &Arc<dyn Field>, script: Script) -> Self {
        let agents = (0..field.agents()).map(|c| ClientNode::new(federation, field, c, c).unwrap()).collect();
        Self { agents, script, draws: stream(21, Purpose::Delay, 0, 0), exchanges: 0, queue: Vec::new(), asked: Vec::new() }
    }
}

impl Transport for Scripted {
    fn reachable(&mut self) -> Option<Vec<usize>> {
        let reached: Vec<usize> = (0..self.agents.len()).filter(|_| self.draws.uniform() >= self.script.unreachable).collect();
        Some(if reached.is_empty() { vec![0] } else { reached })
    }

    fn exchange(
        &mut self,
        _: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        _: Option<Instant>,
        _: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        self.exchanges += 1;
        self.asked.push(to.to_vec());
        for (c, bytes) in to.iter().zip(bytes) {
            let Some(answer) = self.agents[*c].handle(bytes).unwrap() else { continue };
            let fate = self.draws.uniform();
            if fate < self.script.lost {
                continue;
            }
            let is_delayed = fate < self.script.lost + self.script.delayed;
            let delay = if is_delayed { 1 + self.draws.bits() % 4 } else { 0 };
            self.queue.push((self.exchanges + delay, *c, answer));
        }
        let (here, later) = std::mem::take(&mut self.queue).into_iter().partition(|(due, ..)| *due <= self.exchanges);
        self.queue = later;
        let here: Vec<(u64, usize, Vec<u8>)> = here;
        Ok(here.into_iter().map(|(_, c, answer)| (c, answer)).collect())
    }

    fn tell(&mut self, _: &ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()> {
        for (c, bytes) in to.iter().zip(bytes) {
            if self.draws.uniform() >= self.script.untold {
                // An agent that did not answer refuses what it is told.
                let _ = self.agents[*c].handle(bytes);
            }
        }
        Ok(())
    }
}

/// A link over which late answers count, at most three rounds late.
fn network() -> Uplink {
    link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "late", "law": "network", "max": 3}"#]).unwrap()
}

fn federation(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> Result<Federation> {
    Ok(Federation::new(method, uplink, field.weights(), SEED, vec![0.0; field.dim()])?.with_root(field.root().unwrap_or(&[])))
}

/// The iterates of nodes over the network, and what the server recorded. The server dies and comes back now and then.
fn of_nodes(federation: &Federation, field: &Arc<dyn Field>, script: Script, rounds: u64) -> (Vec<Vec<u64>>, ArrivalRecord) {
    let new = || ServerNode::new(federation).unwrap().recording_arrivals();
    let mut nodes = Nodes::new(new(), Scripted::new(federation, field, script));
    let (mut thetas, mut record) = (Vec::new(), ArrivalRecord::default());
    for t in 0..rounds {
        assert_eq!(round(&mut nodes, &Cancel::never()).unwrap(), Advanced::Round);
        thetas.push(bits(nodes.server().theta()));
        // Where it may be lost, participants are told the mean at once, by a message of its own.
        if script.untold > 0.0 {
            nodes.finish().unwrap();
        }
        if t % 7 == 3 {
            let saved = nodes.save().unwrap();
            nodes.restore(&saved).unwrap();
            assert_eq!(nodes.save().unwrap(), saved);
        }
        if t % 5 == 0 {
            record.extend(nodes.server_mut().take_arrivals());
        }
    }
    record.extend(nodes.server_mut().take_arrivals());
    (thetas, record)
}

/// The iterates of an engine that replays a record. It is saved and restored in the middle.
fn replayed(federation: &Federation, field: &Arc<dyn Field>, record: &ArrivalRecord, rounds: u64) -> Vec<Vec<u64>> {
    let new = || Run::new(field, federation).unwrap().replaying(record).unwrap();
    let mut run = new();
    let step = |t: u64| {
        if t == rounds / 2 {
            let saved = run.save().unwrap();
            run = new();
            run.restore(&saved).unwrap();
        }
        run.step();
        bits(run.theta())
    };
    (0..rounds).map(step).collect()
}

/// Compares nodes with the engine's replay; how many answers were late.
fn compare(what: &str, federation: &Federation, field: &Arc<dyn Field>, script: Script) -> usize {
    const ROUNDS: u64 = 40;
    let (thetas, record) = of_nodes(federation, field, script, ROUNDS);
    let bytes = serde_json::to_string(&record).unwrap();
    let record: ArrivalRecord = serde_json::from_str(&bytes).unwrap();
    let again = replayed(federation, field, &record, ROUNDS);
    for (t, (theta, replayed)) in thetas.iter().zip(&again).enumerate() {
        assert_eq!(theta, replayed, "{what}: round {t}");
    }
    let mut clear = Run::new(field, federation).unwrap();
    (0..ROUNDS).for_each(|_| clear.step());
    let is_alone = federation.agents() == 1;
    assert!(
        is_alone || bits(clear.theta()) != *thetas.last().unwrap() || what.starts_with("lstd") || what.starts_with("one-shot"),
        "{what}: nothing is lost"
    );
    record.exchanges.iter().flat_map(|one| one.arrived.iter().map(|(_, asked)| usize::from(*asked < one.round))).sum()
}

fn garnet(law: Law) -> Arc<dyn Field> {
    field(&small_garnet(AGENTS, Heterogeneity::Independent), law)
}

#[test]
fn the_engine_repeats_what_nodes_recorded_where_late_answers_are_dropped() {
    let objective = field(&*objectives(AGENTS)[0].1, Law::Mean);
    for law in [Law::Iid, Law::Markov] {
        let field = garnet(law);
        for (kind, method) in methods(None).into_iter().chain(methods(Some(3))) {
            let federation = federation(&field, &*method, &EXACT).unwrap();
            assert_eq!(compare(&format!("{kind}, {law:?}"), &federation, &field, ROUGH), 0);
        }
    }
    for (kind, method) in computing_alone() {
        let federation = federation(&objective, &*method, &EXACT).unwrap();
        assert_eq!(compare(kind, &federation, &objective, ROUGH), 0);
    }
}

/// The answers of agents that missed what they were told are refused, and the agents are sent their control variates.
#[test]
fn the_engine_repeats_nodes_that_were_out_of_step() {
    let field = garnet(Law::Iid);
    for kind in ["scafflsa", "anderson"] {
        let settings = r#""step_size": 0.05, "local_steps": 7, "participants": 3"#;
        let method = match kind {
            "scafflsa" => method(kind, &format!("{{{settings}}}")),
            _ => method(kind, &format!(r#"{{"base": {{"kind": "scafflsa", {settings}}}, "memory": 3}}"#)),
        };
        let federation = federation(&field, &*method, &EXACT).unwrap();
        compare(kind, &federation, &field, Script { untold: 0.3, ..ROUGH });
        let (thetas, record) = of_nodes(&federation, &field, Script { untold: 0.3, ..QUIET }, 40);
        let arrived: usize = record.exchanges.iter().map(|one| one.arrived.len()).sum();
        assert!(arrived < 3 * thetas.len(), "{kind}: nobody is out of step");
    }
}

#[test]
fn the_engine_repeats_what_nodes_recorded_where_late_answers_count() {
    let uplink = network();
    for law in [Law::Iid, Law::Markov] {
        let field = garnet(law);
        let mut compared = Vec::new();
        for (kind, method) in methods(None).into_iter().chain(methods(Some(3))) {
            let Ok(federation) = federation(&field, &*method, &uplink) else { continue };
            let late = compare(&format!("{kind}, {law:?}"), &federation, &field, ROUGH);
            assert!(late > 0, "{kind}");
            compared.push(kind);
        }
        for kind in ["fedlsa", "scafflsa", "fedhsa", "fedtd", "delay-adaptive-sa", "dasa"] {
            assert!(compared.contains(&kind), "{kind}");
        }
    }
}

#[test]
fn what_a_record_cannot_say_of_a_federation_is_refused() {
    let field = garnet(Law::Iid);
    let fedlsa = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let late = federation(&field, &*fedlsa, &network()).unwrap();
    let (_, record) = of_nodes(&late, &field, ROUGH, 20);
    let dropping = federation(&field, &*fedlsa, &EXACT).unwrap();
    let e = Run::new(&field, &dropping).unwrap().replaying(&record).err().unwrap();
    assert_eq!((&*e.key, e.kind()), ("arrivals", ErrorKind::Setting));
}

/// A late answer counts once, in the round in which it comes, and not when it is too late.
#[test]
fn a_late_answer_counts_once_and_not_too_late() {
    let field = garnet(Law::Iid);
    let federation = federation(&field, &*method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#), &network()).unwrap();
    let mut nodes: Vec<ClientNode> = (0..AGENTS).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect();
    let mut server = ServerNode::new(&federation).unwrap().recording_arrivals();
    let mut ask = |server: &mut ServerNode| -> Vec<Vec<u8>> {
        let Todo::Ask { to, bytes } = server.open() else { panic!("a question") };
        to.iter().zip(&bytes).map(|(c, bytes)| nodes[*c].handle(bytes).unwrap().unwrap()).collect()
    };
    let first = ask(&mut server);
    (1..AGENTS).for_each(|c| server.take(c, &first[c]).unwrap());
    assert_eq!((server.standing(0), server.standing(1)), (AgentStatus::Awaited, AgentStatus::Answered));
    assert_eq!(server.may_still_answer(), [0]);
    server.close();
    assert_eq!((server.standing(0), server.standing(1)), (AgentStatus::Late { round: 0 }, AgentStatus::NotAsked));
    let second = ask(&mut server);
    assert_eq!(server.standing(0), AgentStatus::Awaited, "of its two answers the one to the open question");
    (1..AGENTS).for_each(|c| server.take(c, &second[c]).unwrap());
    assert!(server.take(1, &first[0]).is_err(), "as from somebody else");
    let bits_before = server.coordinator().ledger().bits_up;
    server.take(0, &first[0]).unwrap();
    assert_eq!(server.coordinator().ledger().bits_up - bits_before, 8 * first[0].len() as u64);
    assert!(server.take(0, &first[0]).is_err(), "it is not awaited any more");
    server.take(0, &second[0]).unwrap();
    server.close();
    let record = server.take_arrivals();
    assert_eq!(record.exchanges[1].arrived.iter().filter(|(c, _)| *c == 0).copied().collect::<Vec<_>>(), [(0, 0), (0, 1)]);
    // The third answer of agent 0 never comes in time.
    let third = ask(&mut server);
    server.close();
    for _ in 0..3 {
        ask(&mut server);
        server.close();
    }
    // In round 5 it would be three rounds late, in round 6 four.
    let saved = server.save();
    ask(&mut server);
    assert!(server.take(0, &third[0]).is_err());
    server.restore(&saved).unwrap();
    server.open_for(Some(&[1]));
    assert_eq!(server.standing(0), AgentStatus::Late { round: 3 });
}

fn missing(field: &Arc<dyn Field>, kind: &str, rules: AnswerRules) -> Result<Federation> {
    federation(field, &*method(kind, r#"{"step_size": 0.05, "local_steps": 7}"#), &EXACT)?.with_rules(rules)
}

/// With weights of the answers that arrived the step has its whole length; with zeros it is shorter. Both as computed by hand.
#[test]
fn missing_answers_count_as_zero_or_are_reweighted() {
    let field = garnet(Law::Mean);
    let [zero, reweighted] = [MissingAnswers::Zero, MissingAnswers::Reweighted].map(|missing_rule| {
        let federation = missing(&field, "fedlsa", AnswerRules::default().with_missing(missing_rule)).unwrap();
        let mut server = ServerNode::new(&federation).unwrap();
        let Todo::Ask { to, bytes } = server.open() else { panic!("a question") };
        for (c, bytes) in to.iter().zip(&bytes).take(2) {
            let answer = ClientNode::new(&federation, &field, *c, *c).unwrap().handle(bytes).unwrap().unwrap();
            server.take(*c, &answer).unwrap();
        }
        server.close();
        server.theta().to_vec()
    });
    let share: f64 = field.weights()[..2].iter().sum();
    assert!(zero.iter().any(|x| *x != 0.0));
    for (zero, reweighted) in zero.iter().zip(&reweighted) {
        assert!((zero / share - reweighted).abs() <= 1e-15 * reweighted.abs(), "{zero} {reweighted}");
    }
    // The engine follows the same rules.
    let federation = missing(&field, "fedlsa", AnswerRules::default().with_missing(MissingAnswers::Reweighted)).unwrap();
    compare("fedlsa, reweighted", &federation, &field, ROUGH);
    for kind in ["scafflsa", "scaffold"] {
        let e = missing(&field, kind, AnswerRules::default().with_missing(MissingAnswers::Reweighted)).unwrap_err();
        assert_eq!(e.key, "missing", "{kind}");
    }
}

/// Where answers are missing at random, steps with zeros are shorter by the share of answers, and those that are reweighted are not.
#[test]
fn what_missing_answers_do_to_the_mean_step_is_as_documented() {
    let field = field(&*objectives(AGENTS)[0].1, Law::Mean);
    let step = |missing_rule: MissingAnswers, arrives: &dyn Fn(usize, f64) -> bool| {
        let federation = missing(&field, "fedlsa", AnswerRules::default().with_missing(missing_rule)).unwrap();
        let mut server = ServerNode::new(&federation).unwrap();
        let Todo::Ask { to, bytes } = server.open() else { panic!("a question") };
        let answer =
            |(c, bytes): (&usize, &Arc<[u8]>)| ClientNode::new(&federation, &field, *c, *c).unwrap().handle(bytes).unwrap().unwrap();
        let answers: Vec<Vec<u8>> = to.iter().zip(&bytes).map(answer).collect();
        let (opened, mut draws) = (server.save(), stream(4, Purpose::Fresh, 0, 0));
        let (mut mean, n) = (vec![0.0; field.dim()], 4000);
        for _ in 0..n {
            server.restore(&opened).unwrap();
            for (c, answer) in answers.iter().enumerate() {
                if arrives(c, draws.uniform()) {
                    server.take(c, answer).unwrap();
                }
            }
            server.close();
            mean.iter_mut().zip(server.theta()).for_each(|(mean, x)| *mean += x / f64::from(n));
        }
        mean
    };
    let whole = step(MissingAnswers::Zero, &|_, _| true);
    let along = |x: &[f64]| x.iter().zip(&whole).map(|(x, y)| x * y).sum::<f64>() / whole.iter().map(|y| y * y).sum::<f64>();
    let apart = |x: &[f64], k: f64| fedsa::linalg::distance_sq(x, &whole.iter().map(|y| k * y).collect::<Vec<_>>()).sqrt();
    let norm = fedsa::linalg::norm_sq(&whole).sqrt();
    let alike = |_: usize, u: f64| u < 0.7;
    let (zero, reweighted) = (step(MissingAnswers::Zero, &alike), step(MissingAnswers::Reweighted, &alike));
    assert!((along(&zero) - 0.7).abs() < 0.02 && apart(&zero, 0.7) < 0.03 * norm, "{}", along(&zero));
    // All five are missing with probability 0.3^5.
    assert!((along(&reweighted) - 1.0).abs() < 0.02 && apart(&reweighted, 1.0) < 0.03 * norm, "{}", along(&reweighted));
    // Agent 0 answers rarely: the mean leans away from it, however often the others answer.
    let rarely = |c: usize, u: f64| c != 0 || u < 0.1;
    let leaning = step(MissingAnswers::Reweighted, &rarely);
    assert!(apart(&leaning, along(&leaning)) > 0.05 * norm, "{}", apart(&leaning, along(&leaning)) / norm);
}

/// Fewer answers than are needed: those that may still answer are asked again, and the round is given up where that does not help.
#[test]
fn an_exchange_without_a_quorum_is_repeated_or_given_up() {
    let field = garnet(Law::Iid);
    for kind in ["fedlsa", "scafflsa", "fedhsa"] {
        let federation = federation(&field, &*method(kind, r#"{"step_size": 0.05, "local_steps": 7}"#), &EXACT).unwrap();
        let nodes = |script| Nodes::new(ServerNode::new(&federation).unwrap(), Scripted::new(&federation, &field, script));
        assert_eq!(nodes(QUIET).needing(Quorum::Agents(AGENTS + 1), 0).err().unwrap().key, "quorum");
        assert_eq!(nodes(QUIET).needing(Quorum::Share(1.5), 0).err().unwrap().key, "quorum");
        let mut whole = nodes(QUIET);
        let lossy = Script { lost: 0.3, ..QUIET };
        // Asked often enough, everybody answers, and answers that were repeated are the same.
        let mut patient = nodes(lossy).needing(Quorum::Share(1.0), 100).unwrap().waiting(Duration::from_secs(1));
        for _ in 0..10 {
            round(&mut whole, &Cancel::never()).unwrap();
            round(&mut patient, &Cancel::never()).unwrap();
        }
        assert_eq!(bits(patient.server().theta()), bits(whole.server().theta()), "{kind}");
        let again: Vec<&Vec<usize>> = patient.transport().asked.iter().filter(|to| to.len() < AGENTS).collect::<Vec<_>>();
        assert!(!again.is_empty(), "{kind}: only those who have not answered are asked again");
        let mut strict = nodes(lossy).needing(Quorum::Agents(AGENTS), 0).unwrap();
        let mut given_up = 0;
        for _ in 0..40 {
            let before = bits(strict.server().theta());
            assert_eq!(round(&mut strict, &Cancel::never()).unwrap(), Advanced::Round);
            given_up += usize::from(bits(strict.server().theta()) == before);
        }
        assert!((10..40).contains(&given_up), "{kind}: {given_up} of 40 rounds are given up");
    }
}

/// An agent that is out of step answers the open question in vain; the coordinator says so.
#[test]
fn an_agent_that_is_out_of_step_is_not_awaited() {
    let field = garnet(Law::Iid);
    let method = method("scafflsa", r#"{"step_size": 0.05, "local_steps": 7, "participants": 5, "global_step_size": 0.9}"#);
    let federation = federation(&field, &*method, &EXACT).unwrap();
    let mut nodes: Vec<ClientNode> = (0..AGENTS).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect();
    let mut server = ServerNode::new(&federation).unwrap();
    for t in 0..3 {
        if t == 2 {
            nodes[1] = ClientNode::new(&federation, &field, 1, 1).unwrap();
        }
        let Todo::Ask { to, bytes } = server.open() else { panic!("a question") };
        for (c, bytes) in to.iter().zip(&bytes) {
            let answer = nodes[*c].handle(bytes).unwrap().unwrap();
            assert_eq!(server.take(*c, &answer).is_err(), t == 2 && *c == 1);
        }
        if t == 2 {
            assert_eq!(server.standing(1), AgentStatus::OutOfStep);
            assert!(server.may_still_answer().is_empty(), "waiting for all ends");
            let saved = server.save();
            let mut again = ServerNode::new(&federation).unwrap();
            again.restore(&saved).unwrap();
            assert_eq!(again.standing(1), AgentStatus::OutOfStep);
        }
        server.close();
    }
    let Todo::Ask { to, bytes } = server.open() else { panic!("a question") };
    assert!(to.contains(&1) && server.may_still_answer().contains(&1), "the next question contains its control");
    let answer = nodes[1].handle(&bytes[1]).unwrap().unwrap();
    server.take(1, &answer).unwrap();
}
