//! A session of a server with a transport whose answers are the input.

use std::sync::Arc;
use std::time::Instant;

use fedsa::cancel::Cancel;
use fedsa::error::Result;
use fedsa::federation::{AnswerRules, Faults};
use fedsa::node::ServerNode;
use fedsa::session::{Nodes, Observer, Quorum, Session, StoppingCriteria, Transport};

use super::wire::{AGENTS, Answers, COMPLETE, ROUNDS, SETUPS, Setup, decoded, next, setup, to_servers, with_checksum};
use crate::{Target, Verdict, refused};

/// Sessions.
pub const SESSION: Target =
    Target { name: "session", about: "what a session takes from its transport", corpora: to_servers, run: advance, memory: decoded };

/// Brings the answers of an input, exchange by exchange.
struct Scripted {
    exchanges: std::vec::IntoIter<Answers>,
}

impl Transport for Scripted {
    fn exchange(&mut self, _: &ServerNode, _: &[usize], _: &[Arc<[u8]>], _: Option<Instant>, _: &Cancel) -> Result<Answers> {
        Ok(self.exchanges.next().unwrap_or_default())
    }
    fn tell(&mut self, _: &ServerNode, _: &[usize], _: &[Arc<[u8]>]) -> Result<()> {
        Ok(())
    }
}

/// Takes no notes.
struct Silent;

impl Observer for Silent {}

/// A server that excludes agents at fault where single answers arrive. Norms of honest answers to one question differ by up to
/// 5,000 times here: with one sample a step, most directions of a problem with rare rewards are close to 0.
fn server(setup: &Setup) -> ServerNode {
    let rules = AnswerRules::default().with_faults(Faults::Exclude { norm_limit: 1e5 });
    let federation = setup.federation();
    let federation = federation.clone().with_rules(rules).unwrap_or(federation);
    ServerNode::new(&federation).expect("a method that lives with its link")
}

/// The answers of each exchange.
fn exchanges(mut rest: &[u8]) -> Vec<Answers> {
    let mut all = vec![Vec::new()];
    while let Some((agent, more)) = rest.split_first() {
        rest = more;
        if *agent == COMPLETE {
            all.push(Vec::new());
            continue;
        }
        let Some(answer) = next(&mut rest) else { break };
        all.last_mut().expect("one at least").push((usize::from(*agent), with_checksum(answer)));
    }
    all
}

fn advance(data: &[u8]) -> Verdict {
    let Some((setup, rest)) = setup(&SETUPS, data) else { return Verdict::PassedOver };
    let exchanges = exchanges(rest);
    // Inputs that do not end with a whole exchange need answers, and ask twice for them.
    let quorum = Quorum::Agents(if data.last() == Some(&COMPLETE) { 0 } else { AGENTS - 1 });
    let started = |exchanges: Vec<Answers>| {
        let nodes = Nodes::new(server(setup), Scripted { exchanges: exchanges.into_iter() });
        Session::new(nodes.needing(quorum, 1).expect("fewer than there are agents"))
    };
    let mut session = started(exchanges);
    let advanced = session.advance(&StoppingCriteria::rounds(ROUNDS), &Cancel::never(), &mut Silent);
    let state = session.state().expect("between two rounds");
    let mut again = started(Vec::new());
    again.restore(state.clone()).expect("what the session has just kept");
    assert_eq!(again.state().map(|state| state.carrier), Ok(state.carrier), "a session that came back is another one");
    let coordinator = session.carrier().server().coordinator();
    let is_refused = !coordinator.refusals().is_empty() || !coordinator.exclusions().is_empty();
    coordinator.refusals().iter().for_each(|refusal| {
        refused(&refusal.reason);
    });
    match advanced {
        Err(e) => refused(&e),
        Ok(_) if is_refused => Verdict::Refused,
        Ok(_) => Verdict::Accepted,
    }
}
