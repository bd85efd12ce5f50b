//! Sessions over every carrier: the same records and outcomes, and nothing lost when they are cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::{ErrorKind, Result};
use fedsa::federation::Federation;
use fedsa::metrics::Metrics;
use fedsa::node::{ClientNode, ServerNode};
use fedsa::problem::Field;
use fedsa::problem::calls::Calls;
use fedsa::problem::garnet::Heterogeneity;
use fedsa::record::{Ledger, Outcome};
use fedsa::round::Run;
use fedsa::sampling::Law;
use fedsa::session::{Nodes, Observer, Record, Recorded, Session, State, Transport, Until};

use crate::common::{bits, field, method, small_garnet};

const SEED: u64 = 5;

fn garnet() -> Arc<dyn Field> {
    field(&small_garnet(5, Heterogeneity::Independent), Law::Iid)
}

fn federation(kind: &str, settings: &str, field: &Arc<dyn Field>) -> Federation {
    Federation::builder(&*method(kind, settings)).seed(SEED).on(&**field).unwrap()
}

fn session(kind: &str, settings: &str) -> Session<Run> {
    let field = garnet();
    let run = Run::new(&field, &federation(kind, settings, &field)).unwrap();
    Session::new(run).with_metrics(Arc::new(Metrics::new(&field)))
}

/// Agents that are nodes of this process. `asked` counts the exchanges; at `cancel_at` the token is cancelled in the middle, when
/// half of the agents have answered.
struct Local {
    agents: Vec<ClientNode>,
    asked: usize,
    cancel_at: Option<usize>,
}

impl Local {
    fn new(federation: &Federation, field: &Arc<dyn Field>) -> Self {
        let agents = (0..field.agents()).map(|c| ClientNode::new(federation, field, c, c).unwrap()).collect();
        Self { agents, asked: 0, cancel_at: None }
    }
}

impl Transport for Local {
    fn exchange(&mut self, to: &[usize], bytes: &[Arc<[u8]>], _: Option<Instant>, cancel: &Cancel) -> Result<Vec<(usize, Vec<u8>)>> {
        self.asked += 1;
        let is_cut = self.cancel_at == Some(self.asked);
        if is_cut {
            cancel.cancel();
        }
        let few = if is_cut { to.len() / 2 } else { to.len() };
        let one = |(c, bytes): (&usize, &Arc<[u8]>)| Some((*c, self.agents[*c].handle(bytes).unwrap()?));
        Ok(to.iter().zip(bytes).take(few).filter_map(one).collect())
    }
    fn tell(&mut self, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()> {
        for (c, bytes) in to.iter().zip(bytes) {
            assert_eq!(self.agents[*c].handle(bytes).unwrap(), None);
        }
        Ok(())
    }
}

/// Without the agents' work, which a server does not see.
fn at_server(rows: &[Recorded]) -> Vec<Recorded> {
    rows.iter().map(|row| Recorded { ledger: Ledger { samples: 0, calls: Calls::default(), ..row.ledger }, ..*row }).collect()
}

#[test]
fn a_session_ends_in_each_outcome() {
    let go = |kind, settings: &str, until: &Until| session(kind, settings).advance(until, &Cancel::new(), &mut ()).unwrap();
    let fedlsa = r#"{"step_size": 0.1, "local_steps": 10}"#;
    assert_eq!(go("fedlsa", fedlsa, &Until::rounds(30)), Outcome::Completed);
    assert_eq!(go("fedlsa", fedlsa, &Until::rounds(300).mse(0.5)), Outcome::Converged);
    assert_eq!(go("fedlsa", fedlsa, &Until::rounds(300).relative_residual(0.9)), Outcome::Converged);
    assert_eq!(go("fedlsa", r#"{"step_size": 1e-4, "local_steps": 10}"#, &Until::rounds(60).mse(1e-9)).name(), "stalled");
    assert_eq!(go("fedlsa", fedlsa, &Until::rounds(30).mse(1e-9)).name(), "out-of-rounds");
    assert!(
        matches!(go("fedlsa", r#"{"step_size": 1e6, "local_steps": 10}"#, &Until::rounds(900)), Outcome::Diverged { round } if round < 900)
    );
    let cancelled = Cancel::new();
    cancelled.cancel();
    assert_eq!(session("fedlsa", fedlsa).advance(&Until::rounds(30), &cancelled, &mut ()).unwrap(), Outcome::Interrupted);
    assert_eq!(cancelled.check().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn a_session_that_goes_on_is_one_that_never_stopped() {
    let settings = r#"{"step_size": 0.1, "local_steps": 10}"#;
    let record = || Record::Every(4);
    let mut whole = session("scafflsa", settings).recording(record());
    whole.advance(&Until::rounds(24), &Cancel::new(), &mut ()).unwrap();
    let rounds: Vec<u64> = whole.rows().iter().map(|row| row.round).collect();
    assert_eq!(rounds, [0, 4, 8, 12, 16, 20, 24]);

    let mut first = session("scafflsa", settings).recording(record());
    first.advance(&Until::rounds(13), &Cancel::new(), &mut ()).unwrap();
    assert_eq!(first.rows().last().unwrap().round, 13);
    // Its last round is not one of a longer session.
    let mut second = session("scafflsa", settings).recording(record());
    second.restore(first.state().unwrap()).unwrap();
    second.advance(&Until::rounds(24), &Cancel::new(), &mut ()).unwrap();
    assert_eq!((second.rows(), bits(second.output())), (whole.rows(), bits(whole.output())));
    // A target that is reached is reached at once when asked for again.
    let before = second.round();
    let at = second.rows().last().unwrap().seen.mse.unwrap();
    assert_eq!(second.advance(&Until::rounds(99).mse(at), &Cancel::new(), &mut ()).unwrap(), Outcome::Converged);
    assert_eq!(second.round(), before);
    // Another number of rounds than the carrier's is no state of a session.
    let state = State { round: 7, ..whole.state().unwrap() };
    assert_eq!(second.restore(state).unwrap_err().kind(), ErrorKind::Format);
    assert_eq!(second.round(), 0);
}

#[test]
fn every_carrier_gives_the_same_session() {
    for (kind, settings) in [
        ("fedlsa", r#"{"step_size": 0.1, "local_steps": 10}"#),
        ("scafflsa", r#"{"step_size": 0.1, "local_steps": 10, "participants": 3}"#),
        ("fedhsa", r#"{"step_size": 0.1, "local_steps": 10}"#),
    ] {
        let (field, until) = (garnet(), Until::rounds(12));
        let (federation, metrics) = (federation(kind, settings, &field), Arc::new(Metrics::new(&field)));
        let federation = federation.with_root(field.root().unwrap());
        let mut in_process = Session::new(Run::new(&field, &federation).unwrap()).with_metrics(Arc::clone(&metrics));
        in_process.advance(&until, &Cancel::new(), &mut ()).unwrap();
        let expected = at_server(in_process.rows());
        // The middle of an exchange, of the first as of a later one of a round.
        for cancel_at in [None, Some(3), Some(4), Some(9)] {
            let transport = Local { cancel_at, ..Local::new(&federation, &field) };
            let nodes = Nodes::new(ServerNode::new(&federation).unwrap(), transport);
            let mut over_bytes = Session::new(nodes).with_metrics(Arc::clone(&metrics));
            let mut outcome = over_bytes.advance(&until, &Cancel::new(), &mut ()).unwrap();
            if cancel_at.is_some() {
                assert_eq!(outcome, Outcome::Interrupted, "{kind}");
                outcome = over_bytes.advance(&until, &Cancel::new(), &mut ()).unwrap();
            }
            assert_eq!(outcome, Outcome::Completed, "{kind}");
            let rows: Vec<Recorded> = at_server(over_bytes.rows());
            assert_eq!(rows.len(), expected.len(), "{kind}");
            for (row, expected) in rows.iter().zip(&expected) {
                assert_eq!((row.round, row.seen.mse, row.seen.residual), (expected.round, expected.seen.mse, expected.seen.residual));
                assert_eq!((kind, row.ledger), (kind, expected.ledger), "{cancel_at:?}");
            }
            assert_eq!(bits(over_bytes.output()), bits(in_process.output()), "{kind}");
        }
    }
}

/// Keeps states as it is told to.
#[derive(Default)]
struct Keeper {
    /// Whether states fit into memory.
    fits: bool,
    /// Whether states are kept after every round.
    keeps: bool,
    kept: Option<State>,
    /// Cancelled just before the round after so many rounds.
    cancel: Option<(usize, Cancel)>,
    rounds: usize,
}

impl Observer for Keeper {
    fn advanced(&mut self) {
        self.rounds += 1;
    }
    fn wants_state(&mut self) -> bool {
        if let Some((rounds, cancel)) = &self.cancel
            && *rounds == self.rounds
        {
            cancel.cancel();
        }
        self.keeps
    }
    fn fits(&mut self, _: usize) -> bool {
        self.fits
    }
    fn keep(&mut self, state: &State) -> bool {
        self.kept = self.keeps.then(|| state.clone());
        self.keeps
    }
    fn kept(&mut self) -> Option<State> {
        self.kept.clone()
    }
}

/// A round that may take long is abandoned, and the session goes on from the state before it, from the one that was kept last, or from
/// the start.
#[test]
fn an_abandoned_round_leaves_a_session_that_goes_on() {
    let settings = r#"{"step_size": 0.1, "local_steps": 10}"#;
    let until = Until::rounds(3);
    let mut whole = session("scafflsa", settings);
    whole.advance(&until, &Cancel::new(), &mut ()).unwrap();
    for (fits, keeps, goes_on_at) in [(true, false, 1), (false, true, 1), (false, false, 0), (true, true, 1)] {
        // Every round is taken for a long one.
        let mut session = session("scafflsa", settings).with_patience(Duration::ZERO);
        let cancel = Cancel::new();
        let mut keeper = Keeper { fits, keeps, cancel: Some((1, cancel.clone())), ..Keeper::default() };
        assert_eq!(session.advance(&until, &cancel, &mut keeper).unwrap(), Outcome::Interrupted);
        assert!(session.round() == 1 && session.rows().len() == 2, "fits {fits}, keeps {keeps}");
        assert_eq!(session.carrier().is_torn(), !fits || keeps, "fits {fits}, keeps {keeps}");
        keeper.rounds = 0;
        keeper.cancel = None;
        assert_eq!(session.advance(&until, &Cancel::new(), &mut keeper).unwrap(), Outcome::Completed);
        assert_eq!(keeper.rounds, 3 - goes_on_at, "fits {fits}, keeps {keeps}");
        assert_eq!((session.rows(), bits(session.output())), (whole.rows(), bits(whole.output())));
    }
}
