//! Sessions over every carrier: the same records and outcomes, and nothing lost when they are cancelled.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::coordinator::{Coordinator, Step};
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::federation::Federation;
use fedsa::metrics::{Metrics, Observable};
use fedsa::node::{ClientNode, ServerNode};
use fedsa::problem::Field;
use fedsa::problem::calls::Calls;
use fedsa::record::{Ledger, Outcome};
use fedsa::round::{Exchanges, Run};
use fedsa::sampling::Law;
use fedsa::session::{Carrier, Nodes, Observer, Record, Recorded, Session, State, StoppingCriteria, Transport};
use fedsa_problems::td::garnet::Heterogeneity;

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
/// half of the agents have answered. `untold` counts what is told until it is lost once, after the first agent has heard it.
struct Local {
    agents: Vec<ClientNode>,
    asked: usize,
    cancel_at: Option<usize>,
    untold: Option<usize>,
    reachable: Option<Vec<usize>>,
}

impl Local {
    fn new(federation: &Federation, field: &Arc<dyn Field>) -> Self {
        let agents = (0..field.agents()).map(|c| ClientNode::new(federation, field, c, c).unwrap()).collect();
        Self { agents, asked: 0, cancel_at: None, untold: None, reachable: None }
    }
}

impl Transport for Local {
    fn reachable(&mut self) -> Option<Vec<usize>> {
        self.reachable.clone()
    }
    fn exchange(
        &mut self,
        _: &ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        _: Option<Instant>,
        cancel: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        self.asked += 1;
        let is_cut = self.cancel_at == Some(self.asked);
        if is_cut {
            cancel.cancel();
        }
        let few = if is_cut { to.len() / 2 } else { to.len() };
        let one = |(c, bytes): (&usize, &Arc<[u8]>)| Some((*c, self.agents[*c].handle(bytes).unwrap()?));
        Ok(to.iter().zip(bytes).take(few).filter_map(one).collect())
    }
    fn tell(&mut self, _: &ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()> {
        let is_lost = self.untold == Some(0);
        self.untold = self.untold.and_then(|left| left.checked_sub(1));
        for (c, bytes) in to.iter().zip(bytes).take(if is_lost { 1 } else { to.len() }) {
            assert_eq!(self.agents[*c].handle(bytes).unwrap(), None);
        }
        if is_lost { Err(Error::machine("the network is down", "a network")) } else { Ok(()) }
    }
}

/// Without the agents' work, which a server does not see.
fn at_server(rows: &[Recorded]) -> Vec<Recorded> {
    rows.iter().map(|row| Recorded { ledger: Ledger { samples: 0, calls: Calls::default(), ..row.ledger }, ..*row }).collect()
}

#[test]
fn a_session_ends_in_each_outcome() {
    let go = |kind, settings: &str, until: &StoppingCriteria| session(kind, settings).advance(until, &Cancel::new(), &mut ()).unwrap();
    let fedlsa = r#"{"step_size": 0.1, "local_steps": 10}"#;
    assert_eq!(go("fedlsa", fedlsa, &StoppingCriteria::rounds(30)), Outcome::Completed);
    assert_eq!(go("fedlsa", fedlsa, &StoppingCriteria::rounds(300).mse(0.5)), Outcome::Converged);
    assert_eq!(go("fedlsa", fedlsa, &StoppingCriteria::rounds(300).relative_residual(0.9)), Outcome::Converged);
    assert_eq!(go("fedlsa", r#"{"step_size": 1e-4, "local_steps": 10}"#, &StoppingCriteria::rounds(60).mse(1e-9)).name(), "stalled");
    assert_eq!(go("fedlsa", fedlsa, &StoppingCriteria::rounds(30).mse(1e-9)).name(), "max-rounds");
    assert!(
        matches!(go("fedlsa", r#"{"step_size": 1e6, "local_steps": 10}"#, &StoppingCriteria::rounds(900)), Outcome::Diverged { round } if round < 900)
    );
    let cancelled = Cancel::new();
    cancelled.cancel();
    assert_eq!(session("fedlsa", fedlsa).advance(&StoppingCriteria::rounds(30), &cancelled, &mut ()).unwrap(), Outcome::Interrupted);
    assert_eq!(cancelled.check().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn a_session_that_goes_on_is_one_that_never_stopped() {
    let settings = r#"{"step_size": 0.1, "local_steps": 10}"#;
    let record = || Record::Every(4);
    let mut whole = session("scafflsa", settings).recording(record());
    whole.advance(&StoppingCriteria::rounds(24), &Cancel::new(), &mut ()).unwrap();
    let rounds: Vec<u64> = whole.rows().iter().map(|row| row.round).collect();
    assert_eq!(rounds, [0, 4, 8, 12, 16, 20, 24]);

    let mut first = session("scafflsa", settings).recording(record());
    first.advance(&StoppingCriteria::rounds(13), &Cancel::new(), &mut ()).unwrap();
    assert_eq!(first.rows().last().unwrap().round, 13);
    // Its last round is not one of a longer session.
    let mut second = session("scafflsa", settings).recording(record());
    second.restore(first.state().unwrap()).unwrap();
    second.advance(&StoppingCriteria::rounds(24), &Cancel::new(), &mut ()).unwrap();
    assert_eq!((second.rows(), bits(second.output())), (whole.rows(), bits(whole.output())));
    // A target that is reached is reached at once when asked for again.
    let before = second.round();
    let at = second.rows().last().unwrap().seen.mse.unwrap();
    assert_eq!(second.advance(&StoppingCriteria::rounds(99).mse(at), &Cancel::new(), &mut ()).unwrap(), Outcome::Converged);
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
        let (field, until) = (garnet(), StoppingCriteria::rounds(12));
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

/// Back at round 0 a session is a new one: nothing recorded, and its controls where it was told to begin.
#[test]
fn a_session_that_starts_anew_is_one_that_begins() {
    let field = garnet();
    let ideal = Metrics::new(&field);
    let controls: Vec<Vec<f64>> = (0..field.agents()).map(|c| ideal.ideal_control(c).unwrap().to_vec()).collect();
    let start = {
        let controls = controls.clone();
        move || {
            let controls = controls.clone();
            session("scafflsa", TELLING).prepared(Arc::new(move |run: &mut Run| run.set_controls(&controls)))
        }
    };
    let until = StoppingCriteria::rounds(4);
    let mut whole = start();
    whole.advance(&until, &Cancel::new(), &mut ()).unwrap();
    let mut again = start();
    again.advance(&StoppingCriteria::rounds(3), &Cancel::new(), &mut ()).unwrap();
    again.restart().unwrap();
    assert!(again.round() == 0 && again.rows().is_empty());
    assert_eq!(again.carrier().controls().unwrap(), controls);
    again.advance(&until, &Cancel::new(), &mut ()).unwrap();
    assert_eq!((again.rows(), bits(again.output())), (whole.rows(), bits(whole.output())));
    // Controls of 0 are another beginning.
    let mut plain = session("scafflsa", TELLING);
    plain.advance(&until, &Cancel::new(), &mut ()).unwrap();
    assert_ne!(bits(plain.output()), bits(whole.output()));
}

#[test]
fn a_session_has_any_carrier() {
    let (field, until) = (garnet(), StoppingCriteria::rounds(5));
    let federation = federation("scafflsa", TELLING, &field);
    let nodes = Nodes::new(ServerNode::new(&federation).unwrap(), Local::new(&federation, &field));
    let carriers: [Box<dyn Carrier>; 2] = [Box::new(Run::new(&field, &federation).unwrap()), Box::new(nodes)];
    let outputs = carriers.map(|carrier| {
        let (is_over_bytes, steps, len) = (carrier.keeps_cancelled_rounds(), carrier.next_local_steps(), carrier.state_len());
        assert!(is_over_bytes == (steps == 0) && len > 0);
        let mut session = Session::new(carrier);
        session.advance(&StoppingCriteria::rounds(3), &Cancel::new(), &mut ()).unwrap();
        let state = session.state().unwrap();
        session.advance(&until, &Cancel::new(), &mut ()).unwrap();
        let output = bits(session.output());
        assert_eq!(session.restart().is_err(), is_over_bytes);
        if !is_over_bytes {
            session.restore(state).unwrap();
            session.advance(&until, &Cancel::new(), &mut ()).unwrap();
        }
        assert_eq!(bits(session.output()), output);
        output
    });
    assert_eq!(outputs[0], outputs[1]);
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
    let until = StoppingCriteria::rounds(3);
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

/// Agents of this process that cancel `token` in the middle of the next `cuts` rounds.
struct Watched {
    run: Run,
    token: Cancel,
    cuts: usize,
}

impl Watched {
    fn new(run: Run) -> Self {
        Self { run, token: Cancel::new(), cuts: 0 }
    }

    fn cut(&mut self) {
        if self.cuts > 0 {
            self.cuts -= 1;
            self.token.cancel();
        }
    }
}

impl Observable for Watched {
    fn coordinator(&self) -> &Coordinator {
        self.run.coordinator()
    }
    fn each_control(&self, see: &mut dyn FnMut(usize, &[f64])) -> bool {
        self.run.each_control(see)
    }
}

impl Exchanges for Watched {
    fn open(&mut self) -> Result<Step> {
        self.run.open()
    }
    fn exchange(&mut self, cancel: &Cancel) -> Result<bool> {
        self.cut();
        self.run.exchange(cancel)
    }
    fn close(&mut self) -> Result<Step> {
        self.run.close()
    }
    fn tell(&mut self) -> Result<()> {
        self.run.tell()
    }
    fn is_torn(&self) -> bool {
        self.run.is_torn()
    }
}

impl Carrier for Watched {
    fn counts(&self) -> Ledger {
        self.run.counts()
    }
    fn state_len(&self) -> usize {
        self.run.state_len()
    }
    fn save(&self) -> Result<Vec<u8>> {
        self.run.save()
    }
    fn restore(&mut self, state: &[u8]) -> Result<()> {
        self.run.restore(state)
    }
    fn restart(&mut self) -> Result<()> {
        self.run.restart()
    }
}

/// The time until a round was cancelled says nothing of how long the round takes.
#[test]
fn a_round_that_was_cancelled_can_be_cancelled_again() {
    let (field, until) = (garnet(), StoppingCriteria::rounds(3));
    let run = Run::new(&field, &federation("fedlsa", r#"{"step_size": 0.1, "local_steps": 10}"#, &field)).unwrap();
    let mut session = Session::new(Watched::new(run)).with_patience(Duration::from_secs(3600));
    let mut cut = |until: &StoppingCriteria| {
        let token = Cancel::new();
        (session.carrier_mut().token, session.carrier_mut().cuts) = (token.clone(), 1);
        (session.advance(until, &token, &mut ()).unwrap(), session.round())
    };
    for _ in 0..3 {
        assert_eq!(cut(&until), (Outcome::Interrupted, 0));
    }
    session.advance(&StoppingCriteria::rounds(1), &Cancel::new(), &mut ()).unwrap();
    // A round is known to be short now, and is carried to its end.
    let token = Cancel::new();
    (session.carrier_mut().token, session.carrier_mut().cuts) = (token.clone(), 1);
    assert_eq!(session.advance(&until, &token, &mut ()).unwrap(), Outcome::Interrupted);
    assert_eq!(session.round(), 2);
}

/// A target that cannot be measured is refused before the first round.
#[test]
fn a_target_that_cannot_be_measured_is_refused() {
    let field = garnet();
    let fedlsa = federation("fedlsa", r#"{"step_size": 0.1, "local_steps": 10}"#, &field);
    let rounds = || StoppingCriteria::rounds(3);
    let targets =
        [("mse", rounds().mse(0.1)), ("residual", rounds().residual(0.1)), ("relative_residual", rounds().relative_residual(0.1))];
    let refused = |advanced: Result<Outcome>, key: &str| {
        let e = advanced.unwrap_err();
        assert_eq!((e.kind(), &e.key[..]), (ErrorKind::Setting, &format!("until.{key}")[..]), "{e}");
        e.to_string()
    };
    for (key, until) in targets.into_iter().chain([("gap", rounds().gap(0.1))]) {
        let mut blind = Session::new(Run::new(&field, &fedlsa).unwrap());
        assert!(refused(blind.advance(&until, &Cancel::new(), &mut ()), key).contains("without metrics"));
        let mut server = Session::new(Nodes::new(ServerNode::new(&fedlsa).unwrap(), Local::new(&fedlsa, &field)));
        refused(server.advance(&until, &Cancel::new(), &mut ()), key);
        assert_eq!((blind.round(), server.round(), server.rows().len()), (0, 0, 0));
        assert_eq!(server.advance(&rounds(), &Cancel::new(), &mut ()).unwrap(), Outcome::Completed);
    }
    // The operators of temporal-difference learning are not gradients.
    let settings = r#"{"step_size": 0.1, "local_steps": 10}"#;
    refused(session("fedlsa", settings).advance(&rounds().gap(0.1), &Cancel::new(), &mut ()), "gap");
}

/// The residual at the start is that at `theta_0`, whatever is recorded, and wherever the session began.
#[test]
fn a_relative_residual_is_relative_to_the_start() {
    let settings = r#"{"step_size": 0.1, "local_steps": 10}"#;
    let mut whole = session("scafflsa", settings);
    whole.advance(&StoppingCriteria::rounds(10), &Cancel::new(), &mut ()).unwrap();
    let at = |t: usize| whole.rows()[t].seen.residual.unwrap();
    let share = 1.01 * at(10) / at(0);
    assert!((5..10).all(|t| at(t) > share * at(0)) && at(10) > share * at(5), "a target that is reached in round 10");
    let until = StoppingCriteria::rounds(10).relative_residual(share);
    let late = || session("scafflsa", settings).recording(Record::At([5, 10].into()));
    let mut recording_late = late();
    assert_eq!(recording_late.advance(&until, &Cancel::new(), &mut ()).unwrap(), Outcome::Converged);
    assert_eq!(recording_late.rows().len(), 2);

    let mut first = late();
    first.advance(&StoppingCriteria::rounds(5), &Cancel::new(), &mut ()).unwrap();
    let mut carrier = session("scafflsa", settings);
    carrier.carrier_mut().restore(&first.state().unwrap().carrier).unwrap();
    // A new session over a carrier that has done some rounds, and one that was restored.
    let field = garnet();
    let mut run = Run::new(&field, &federation("scafflsa", settings, &field)).unwrap();
    run.restore(&first.state().unwrap().carrier).unwrap();
    let over_restored = Session::new(run).with_metrics(Arc::new(Metrics::new(&field)));
    let mut restored = late();
    restored.restore(first.state().unwrap()).unwrap();
    for mut session in [over_restored, restored] {
        assert_eq!(session.advance(&until, &Cancel::new(), &mut ()).unwrap(), Outcome::Converged);
        assert_eq!(session.round(), 10);
        let missed =
            session.advance(&StoppingCriteria::rounds(11).relative_residual(1e-9), &Cancel::new(), &mut ()).unwrap().missed().unwrap();
        assert_eq!((missed.metric, missed.target.to_bits()), ("residual", (1e-9 * at(0)).to_bits()));
    }
}

const TELLING: &str = r#"{"step_size": 0.1, "local_steps": 10, "participants": 3}"#;

fn over_bytes(federation: &Federation, field: &Arc<dyn Field>) -> Session<Nodes<Local>> {
    let nodes = Nodes::new(ServerNode::new(federation).unwrap(), Local::new(federation, field));
    Session::new(nodes).with_metrics(Arc::new(Metrics::new(field)))
}

fn agents(session: &mut Session<Nodes<Local>>) -> Vec<Vec<u8>> {
    session.carrier_mut().transport().agents.iter().map(ClientNode::save).collect()
}

/// What could not be told is told when the session goes on, after the last round too, and in another process.
#[test]
fn what_could_not_be_told_is_told_again() {
    let field = garnet();
    let federation = federation("scafflsa", TELLING, &field);
    let mut whole = over_bytes(&federation, &field);
    let ends = [StoppingCriteria::rounds(3), StoppingCriteria::rounds(6)];
    ends.iter().for_each(|until| assert_eq!(whole.advance(until, &Cancel::new(), &mut ()).unwrap(), Outcome::Completed));
    for (lost, is_saved) in [(0, false), (1, false), (0, true), (1, true)] {
        let mut session = over_bytes(&federation, &field);
        session.carrier_mut().transport().untold = Some(lost);
        let failures =
            |session: &mut Session<Nodes<Local>>| ends.iter().find_map(|until| session.advance(until, &Cancel::new(), &mut ()).err());
        let e = failures(&mut session).expect("the network is down once");
        assert_eq!((e.kind(), session.round()), (ErrorKind::Machine, 3 * (lost as u64 + 1)));
        if is_saved {
            let state = session.carrier().save().unwrap();
            let mut server = ServerNode::new(&federation).unwrap();
            server.restore(&state).unwrap();
            let agents = std::mem::take(&mut session.carrier_mut().transport().agents);
            let transport = Local { agents, ..Local::new(&federation, &field) };
            session = Session::new(Nodes::new(server, transport)).with_metrics(Arc::new(Metrics::new(&field)));
        }
        for until in &ends[lost..] {
            assert_eq!(session.advance(until, &Cancel::new(), &mut ()).unwrap(), Outcome::Completed, "{lost}");
        }
        assert_eq!(bits(session.output()), bits(whole.output()), "{lost}");
        assert!(agents(&mut session) == agents(&mut whole), "{lost}: agents differ");
        assert_eq!(session.rows().last(), whole.rows().last(), "{lost}");
    }
}

/// The order in which a transport lists the agents does not matter, and agents that do not exist are refused.
#[test]
fn reachable_agents_are_listed_in_any_order() {
    let (field, until) = (garnet(), StoppingCriteria::rounds(4));
    let federation = federation("scafflsa", TELLING, &field);
    let rows = |reachable: &[usize]| {
        let mut session = over_bytes(&federation, &field);
        session.carrier_mut().transport().reachable = Some(reachable.to_vec());
        session.advance(&until, &Cancel::new(), &mut ()).map(|_| session.rows().to_vec())
    };
    assert_eq!(rows(&[4, 0, 3, 0, 1]).unwrap(), rows(&[0, 1, 3, 4]).unwrap());
    let all = over_bytes(&federation, &field).advance(&until, &Cancel::new(), &mut ()).unwrap();
    assert_eq!(all, Outcome::Completed);
    let e = rows(&[0, 1, 5]).unwrap_err();
    assert!(e.to_string().contains("agent 5"), "{e}");
}

/// Rounds are not spent while nobody can answer.
#[test]
fn a_session_waits_for_the_first_agent_that_can_be_reached() {
    let (field, until) = (garnet(), StoppingCriteria::rounds(4));
    let federation = federation("scafflsa", TELLING, &field);
    let mut whole = over_bytes(&federation, &field);
    whole.advance(&until, &Cancel::new(), &mut ()).unwrap();
    let mut session = over_bytes(&federation, &field);
    session.advance(&StoppingCriteria::rounds(2), &Cancel::new(), &mut ()).unwrap();
    session.carrier_mut().transport().reachable = Some(Vec::new());
    for _ in 0..2 {
        let e = session.advance(&until, &Cancel::new(), &mut ()).unwrap_err();
        assert!(e.kind() == ErrorKind::Machine && e.to_string().contains("no agent can be reached"), "{e}");
        assert_eq!((session.round(), session.carrier().server().coordinator().rounds()), (2, 2));
    }
    session.carrier_mut().transport().reachable = None;
    assert_eq!(session.advance(&until, &Cancel::new(), &mut ()).unwrap(), Outcome::Completed);
    assert_eq!((session.rows(), bits(session.output())), (whole.rows(), bits(whole.output())));
}

/// Counts rounds, and cancels after so many.
struct Until150(u64, Cancel);

impl Observer for Until150 {
    fn advanced(&mut self) {
        self.0 += 1;
        if self.0 >= 150 {
            self.1.cancel();
        }
    }
}

/// Sessions whose rounds are all long, so that each is timed and can be abandoned, and sessions whose rounds are short have the same bits, and stop where they
/// are cancelled.
#[test]
fn sessions_of_short_rounds_are_those_of_long_ones() {
    for (kind, settings) in [
        ("fedlsa", r#"{"step_size": 0.1, "local_steps": 1}"#),
        ("scafflsa", r#"{"step_size": 0.1, "local_steps": 2}"#),
        ("fedlsa", r#"{"step_size": {"c": 0.3, "power": 0.5, "per": "step"}, "local_steps": 3}"#),
    ] {
        for record in [Record::At([0, 10, 11, 300, 450].into()), Record::Every(70), Record::Every(1), Record::At([].into())] {
            let field = garnet();
            let federation = federation(kind, settings, &field);
            let federation = federation.with_root(field.root().unwrap());
            let [mut long, mut short] = [false, true].map(|is_short| {
                let carrier = Watched::new(Run::new(&field, &federation).unwrap());
                let session = Session::new(carrier).with_metrics(Arc::new(Metrics::new(&field))).recording(record.clone());
                // Whatever the clock says, all rounds but the first are short, or none is.
                session.with_patience(Duration::from_secs(if is_short { 1_000_000_000 } else { 0 }))
            });
            let token = Cancel::new();
            let mut observer = Until150(0, token.clone());
            assert_eq!(short.advance(&StoppingCriteria::rounds(400), &token, &mut observer).unwrap(), Outcome::Interrupted);
            assert_eq!((short.round(), observer.0), (150, 150));
            for until in [400, 430, 500] {
                for session in [&mut long, &mut short] {
                    assert_eq!(
                        session.advance(&StoppingCriteria::rounds(until), &Cancel::new(), &mut observer).unwrap(),
                        Outcome::Completed
                    );
                }
                let state = |session: &Session<Watched>| State { seconds: 0.0, ..session.state().unwrap() };
                assert_eq!((short.round(), state(&short)), (until, state(&long)), "{kind}, {record:?}");
            }
        }
    }
}

/// Keeps the outputs at recorded rounds, and fails once.
#[derive(Default)]
struct Outputs {
    fails_at: Option<u64>,
    seen: Vec<(u64, Vec<f64>)>,
    recorded: Vec<u64>,
}

impl Observer for Outputs {
    fn output(&mut self, round: u64, theta: &[f64]) -> Result<()> {
        if self.fails_at == Some(round) {
            self.fails_at = None;
            return Err(Error::cancelled("a metric failed", "the same call again"));
        }
        self.seen.push((round, theta.to_vec()));
        Ok(())
    }
    fn recorded(&mut self, row: &Recorded) {
        self.recorded.push(row.round);
    }
}

#[test]
fn outputs_are_seen_at_recorded_rounds_and_one_that_fails_ends_the_session() {
    let made = || session("scafflsa", r#"{"step_size": 0.1, "local_steps": 2}"#).recording(Record::Every(3));
    let (mut whole, mut outputs, until) = (made(), Outputs::default(), StoppingCriteria::rounds(10));
    whole.advance(&until, &Cancel::new(), &mut outputs).unwrap();
    assert_eq!(outputs.seen.iter().map(|(round, _)| *round).collect::<Vec<_>>(), [0, 3, 6, 9, 10]);
    assert_eq!(bits(&outputs.seen[4].1), bits(whole.output()));
    let (mut session, mut failing) = (made(), Outputs { fails_at: Some(6), ..Outputs::default() });
    assert!(session.advance(&until, &Cancel::new(), &mut failing).unwrap_err().to_string().contains("a metric failed"));
    assert_eq!((session.rows().len(), session.round()), (2, 6));
    session.advance(&until, &Cancel::new(), &mut failing).unwrap();
    assert_eq!((session.rows(), &failing.seen, &failing.recorded), (whole.rows(), &outputs.seen, &outputs.recorded));
}
