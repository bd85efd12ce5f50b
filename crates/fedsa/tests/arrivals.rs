//! Nodes over a transport that loses answers: how missing answers count, and how many answers an exchange needs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{EXACT, bits, field, link, method, objectives, small_garnet};
use fedsa::cancel::Cancel;
use fedsa::coordinator::AgentStatus;
use fedsa::error::Result;
use fedsa::federation::{AnswerRules, Federation, MissingAnswers};
use fedsa::method::MethodSettings;
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::problem::Field;
use fedsa::random::{Purpose, Stream, stream};
use fedsa::round::{Advanced, Run, round};
use fedsa::sampling::Law;
use fedsa::session::{Nodes, Quorum, Transport};
use fedsa::uplink::Uplink;
use fedsa_problems::td::garnet::Heterogeneity;

const SEED: u64 = 5;
const AGENTS: usize = 5;

/// How often the transport misbehaves.
#[derive(Clone, Copy)]
struct Script {
    lost: f64,
}

const QUIET: Script = Script { lost: 0.0 };

/// Agents of this process behind a network with a seeded script.
struct Scripted {
    agents: Vec<ClientNode>,
    script: Script,
    draws: Stream,
    /// Whom each exchange asked.
    asked: Vec<Vec<usize>>,
}

impl Scripted {
    fn new(federation: &Federation, field: &Arc<dyn Field>, script: Script) -> Self {
        let agents = (0..field.agents()).map(|c| ClientNode::new(federation, field, c, c).unwrap()).collect();
        Self { agents, script, draws: stream(21, Purpose::Delay, 0, 0), asked: Vec::new() }
    }
}

impl Transport for Scripted {
    fn exchange(
        &mut self,
        _: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        _: Option<Instant>,
        _: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        self.asked.push(to.to_vec());
        let mut here = Vec::new();
        for (c, bytes) in to.iter().zip(bytes) {
            let answer = self.agents[*c].handle(bytes).unwrap();
            here.extend(answer.filter(|_| self.draws.uniform() >= self.script.lost).map(|answer| (*c, answer)));
        }
        Ok(here)
    }

    fn tell(&mut self, _: &ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()> {
        for (c, bytes) in to.iter().zip(bytes) {
            // An agent that did not answer refuses what it is told.
            let _ = self.agents[*c].handle(bytes);
        }
        Ok(())
    }
}

fn federation(field: &Arc<dyn Field>, method: &dyn MethodSettings, uplink: &Uplink) -> Result<Federation> {
    Ok(Federation::new(method, uplink, field.weights(), SEED, vec![0.0; field.dim()])?.with_root(field.root().unwrap_or(&[])))
}

fn garnet(law: Law) -> Arc<dyn Field> {
    field(&small_garnet(AGENTS, Heterogeneity::Independent), law)
}

/// A late answer is missing: it is refused, and changes nothing.
#[test]
fn a_late_answer_is_refused() {
    let field = garnet(Law::Iid);
    let federation = federation(&field, &*method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#), &EXACT).unwrap();
    let mut nodes: Vec<ClientNode> = (0..AGENTS).map(|c| ClientNode::new(&federation, &field, c, c).unwrap()).collect();
    let mut server = ServerNode::new(&federation).unwrap();
    let mut ask = |server: &mut ServerNode| -> Vec<Vec<u8>> {
        let Todo::Ask { to, bytes } = server.open() else { panic!("a question") };
        to.iter().zip(&bytes).map(|(c, bytes)| nodes[*c].handle(bytes).unwrap().unwrap()).collect()
    };
    let first = ask(&mut server);
    (1..AGENTS).for_each(|c| server.take(c, &first[c]).unwrap());
    assert_eq!((server.standing(0), server.standing(1)), (AgentStatus::Awaited, AgentStatus::Answered));
    assert_eq!(server.may_still_answer(), [0]);
    server.close();
    assert_eq!(server.standing(0), AgentStatus::NotAsked);
    let second = ask(&mut server);
    let before = server.save();
    assert!(server.take(0, &first[0]).unwrap_err().what.contains("round 0"));
    assert_eq!(server.save(), before);
    server.take(0, &second[0]).unwrap();
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
    // The engine follows the same rules, over a link that loses answers.
    let lossy = link(r#"{"kind": "exact"}"#, false, &[r#"{"kind": "erasure", "success": 0.6}"#]).unwrap();
    let method = method("fedlsa", r#"{"step_size": 0.05, "local_steps": 7}"#);
    let rules = AnswerRules::default().with_missing(MissingAnswers::Reweighted);
    let federation = federation(&field, &*method, &lossy).unwrap().with_rules(rules).unwrap();
    let (mut nodes, mut run) = (
        Nodes::new(ServerNode::new(&federation).unwrap(), Scripted::new(&federation, &field, QUIET)),
        Run::new(&field, &federation).unwrap(),
    );
    for _ in 0..40 {
        round(&mut nodes, &Cancel::never()).unwrap();
        run.step();
        assert_eq!(bits(nodes.server().theta()), bits(run.theta()));
    }
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
        let lossy = Script { lost: 0.15 };
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
