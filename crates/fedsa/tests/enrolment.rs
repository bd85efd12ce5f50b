//! Enrolment: who is admitted, who is refused and why, and that the federation that follows is the one that would have been built by hand.

use std::sync::Arc;

use crate::common::{bits, field, method};
use fedsa::coordinator::Accepted;
use fedsa::enrolment::{
    Applicant, ColumnContent, ColumnSummary, Enrolled, Enrolment, Membership, Terms, announced, farewell, is_announcement, is_enrolment,
    is_farewell, repeats, run_of,
};
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::uplink::Uplink;
use fedsa_methods::prelude::*;
use fedsa_problems::prelude::*;
use proptest::prelude::*;

const D: usize = 4;

fn garnet() -> Garnet {
    Garnet::default().with_agents(3).with_features(D).with_seed(3)
}

fn described(problem: &Garnet, sampling: Sampling) -> Description {
    Description::new("garnet", sampling, D).with(problem)
}

fn terms() -> Terms {
    Terms::new(&Scafflsa::new(0.1, 5), described(&garnet(), Sampling::default())).with_seed(11)
}

fn columns(low: f64, high: f64) -> Vec<ColumnSummary> {
    vec![ColumnSummary::of_numbers("s_0", [low, high]).unwrap(), ColumnSummary::of_numbers("s_1", [high, high]).unwrap()]
}

/// The federation, the nodes and the numbers after enrolment are those of a federation that was built by hand.
#[test]
fn an_enrolled_federation_gives_the_engine_s_bits() {
    let field: Arc<dyn Field> = field(&garnet(), Law::Iid);
    let rows = [100, 300, 400];
    let applicants: Vec<Applicant> = rows.iter().map(|n| Applicant::new(&terms(), *n).with_dim(D)).collect();
    let mut enrolment = Enrolment::new(&terms(), 3..=3).unwrap();
    let invitation = enrolment.invite(3);
    assert!(is_enrolment(&invitation));
    for (name, applicant) in ["a", "b", "c"].iter().zip(&applicants) {
        assert!(!enrolment.has_enough());
        assert_eq!(enrolment.take(name, &applicant.apply(&invitation).unwrap()).unwrap(), Accepted::Counted);
    }
    assert!(enrolment.is_full() && enrolment.applied().eq(["a", "b", "c"]));
    let enrolled = enrolment.close(None).unwrap();
    let weights = [0.125, 0.375, 0.5];
    assert_eq!(enrolled.federation.weights(), weights);
    let by_hand = Federation::builder(&Scafflsa::new(0.1, 5)).seed(11).of(&weights, D).unwrap();

    let admissions: Vec<_> = applicants.iter().zip(&enrolled.admissions).map(|(one, told)| one.admitted(&told.bytes).unwrap()).collect();
    let mut nodes: Vec<ClientNode> =
        admissions.iter().map(|told| ClientNode::new(&told.federation, &field, told.agent, told.agent).unwrap()).collect();
    let mut server = ServerNode::new(&enrolled.federation).unwrap();
    let mut plain = ServerNode::new(&by_hand).unwrap();
    let mut others: Vec<ClientNode> = (0..3).map(|c| ClientNode::new(&by_hand, &field, c, c).unwrap()).collect();
    for _ in 0..20 {
        round(&mut server, &mut nodes);
        round(&mut plain, &mut others);
    }
    assert_eq!(server.theta(), plain.theta());
    assert!(server.theta().iter().any(|x| *x != 0.0));
}

fn round(server: &mut ServerNode, nodes: &mut [ClientNode]) {
    let mut todo = server.open();
    while let Todo::Ask { to, bytes } = &todo {
        let answers: Vec<_> = to.iter().zip(bytes).map(|(c, bytes)| (*c, nodes[*c].handle(bytes).unwrap().unwrap())).collect();
        let progress = server.receive(&answers);
        assert!(progress.refused.is_empty());
        todo = progress.todo;
    }
    if let Todo::Tell { to, bytes } = &todo {
        to.iter().zip(bytes).for_each(|(c, bytes)| assert!(nodes[*c].handle(bytes).unwrap().is_none()));
    }
}

/// What an agent was built with and the server was not is named at both ends.
#[test]
fn settings_that_differ_are_refused_and_named() {
    let iid = Sampling::default();
    let lsa = |problem: &Garnet, sampling| Terms::new(&Scafflsa::new(0.1, 5), described(problem, sampling)).with_seed(11);
    let of_method = |m: &dyn MethodSettings| Terms::new(m, described(&garnet(), iid)).with_seed(11);
    let link = Uplink::default();
    let others = [
        (lsa(&garnet().with_gamma(0.5), iid), "the problem"),
        (lsa(&garnet(), iid.with_kind(Law::Markov)), "sampling"),
        (lsa(&garnet(), iid).with_seed(12), "the seed"),
        (of_method(&Scafflsa::new(0.2, 5)), "the method"),
        (of_method(&*method("fedhsa", r#"{"step_size": 0.1, "local_steps": 5}"#)), "the method"),
        (terms().with_start(vec![1.0; D]), "start"),
        (terms().with_equal_weights(), "weighting"),
        (terms().with_output(OutputRule::Average), "output"),
    ];
    let mut enrolment = Enrolment::new(&terms(), 1..=3).unwrap();
    let invitation = enrolment.invite(1);
    for (other, named) in others {
        let agent = Applicant::new(&other, 10).with_dim(D);
        let e = agent.apply(&invitation).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::RefusedMessage);
        assert!(e.what.contains(named), "{}", e.what);
        // One that answers an invitation of its own server comes no further.
        let strangers = Enrolment::new(&other, 1..=1).unwrap().invite(1);
        let e = enrolment.take("x", &agent.apply(&strangers).unwrap()).unwrap_err();
        assert!(e.what.contains(named), "{}", e.what);
    }
    // The same settings, built anew, are the same.
    assert!(Applicant::new(&terms().with_uplink(&link), 10).apply(&invitation).is_ok());
    assert_eq!(enrolment.applied().count(), 0);
}

/// Numbers come from the agents' settings, and from the order of applications for the others.
#[test]
fn numbers_are_those_that_are_claimed_and_the_free_ones_in_order() {
    let mut enrolment = Enrolment::new(&terms(), 3..=4).unwrap();
    let invitation = enrolment.invite(3);
    let apply = |rows, agent: Option<u32>| {
        let one = Applicant::new(&terms(), rows).with_dim(D);
        agent.map_or(one.clone(), |agent| one.with_agent(agent)).apply(&invitation).unwrap()
    };
    enrolment.take("late", &apply(1, None)).unwrap();
    enrolment.take("zero", &apply(2, Some(0))).unwrap();
    // A copy changes nothing, another application of the same sender and another claim of the same number are refused.
    assert_eq!(enrolment.take("zero", &apply(2, Some(0))).unwrap(), Accepted::Repeated);
    assert!(enrolment.take("zero", &apply(3, Some(0))).unwrap_err().what.contains("second application"));
    assert!(enrolment.take("thief", &apply(2, Some(0))).unwrap_err().what.contains("`zero`"));
    assert!(enrolment.take("far", &apply(2, Some(4))).unwrap_err().what.contains("number 4"));
    assert!(enrolment.close(None).is_err_and(|e| e.what.starts_with("2 agents have applied")));
    enrolment.take("last", &apply(5, None)).unwrap();
    let enrolled = enrolment.close(None).unwrap();
    let numbers: Vec<_> = enrolled.admissions.iter().map(|told| (&told.sender[..], told.agent, told.rows)).collect();
    assert_eq!(numbers, [("zero", 0, 2), ("late", 1, 1), ("last", 2, 5)]);
    // Nobody takes an admission with another number than the one it has claimed.
    let zero = Applicant::new(&terms(), 2).with_dim(D).with_agent(0);
    assert!(zero.admitted(&enrolled.admissions[0].bytes).is_ok() && zero.admitted(&enrolled.admissions[1].bytes).is_err());
    // A fourth agent has the place that is left, and a fifth none.
    enrolment.take("fourth", &apply(5, Some(3))).unwrap();
    assert!(enrolment.take("fifth", &apply(5, None)).unwrap_err().help.contains("at most 4"));
}

/// Who has not come leaves a place, which somebody with a number takes that this federation does not have.
#[test]
fn the_highest_numbers_take_the_places_of_those_who_have_not_come() {
    let mut enrolment = Enrolment::new(&terms(), 3..=5).unwrap();
    let invitation = enrolment.invite(4);
    let applicant = |agent| Applicant::new(&terms(), 10 + u64::from(agent)).with_dim(D).with_agent(agent);
    for agent in [4, 2, 3, 1] {
        enrolment.take(&format!("of {agent}"), &applicant(agent).apply(&invitation).unwrap()).unwrap();
    }
    let enrolled = enrolment.close(None).unwrap();
    let numbers: Vec<_> = enrolled.admissions.iter().map(|told| &told.sender[..]).collect();
    assert_eq!(numbers, ["of 4", "of 1", "of 2", "of 3"]);
    let admission = |number: usize| &enrolled.admissions[number].bytes;
    assert_eq!(applicant(4).admitted(admission(0)).unwrap().agent, 0);
    assert!(applicant(1).admitted(admission(1)).is_ok() && applicant(1).admitted(admission(0)).is_err());
}

/// Columns are those of all rows, and the two ends agree on them; an agent with other columns is named.
#[test]
fn columns_of_all_agents_are_told_and_agreed_on() {
    let mut enrolment = Enrolment::new(&terms(), 2..=9).unwrap();
    let invitation = enrolment.invite(4);
    let of = |low, high| Applicant::new(&terms(), 2).with_columns(columns(low, high));
    let stranger = Applicant::new(&terms(), 2).with_columns(vec![ColumnSummary::of_numbers("other", [1.0]).unwrap()]);
    for (name, (low, high)) in ["a", "b", "c"].iter().zip([(-1.0, 1.0), (0.0, 5.0), (-7.0, 0.5)]) {
        enrolment.take(name, &of(low, high).apply(&invitation).unwrap()).unwrap();
    }
    let seen = enrolment.columns();
    let ColumnContent::Numbers { range, moments } = &seen[0].content else { panic!("{seen:?}") };
    assert_eq!((*range, moments.count()), ((-7.0, 5.0), 6));
    // The dimension follows from features that are made of the columns: the caller knows it.
    assert!(enrolment.close(None).is_err_and(|e| e.key == "dim"));
    let enrolled = enrolment.close(Some(D)).unwrap();
    enrolment.take("stranger", &stranger.apply(&invitation).unwrap()).unwrap();
    let e = enrolment.close(Some(D)).err().unwrap();
    assert_eq!(e.what, "`stranger`: column 1 is `other` of numbers in place of `s_0` of numbers");
    let told = of(0.0, 5.0).admitted(&enrolled.admissions[1].bytes).unwrap();
    assert_eq!((told.columns, told.federation.dim()), (seen, D));
    // Other columns are another federation.
    let mut fewer = Enrolment::new(&terms(), 2..=9).unwrap();
    for (name, (low, high)) in ["a", "b", "c"].iter().zip([(-1.0, 1.0), (0.0, 5.0), (-7.5, 0.5)]) {
        fewer.take(name, &of(low, high).apply(&invitation).unwrap()).unwrap();
    }
    assert_ne!(fewer.close(Some(D)).unwrap().federation.digest(), enrolled.federation.digest());
}

/// One agent of another dimension stops the founding, and is named.
#[test]
fn an_agent_of_another_dimension_is_named() {
    let mut enrolment = Enrolment::new(&terms(), 2..=3).unwrap();
    let invitation = enrolment.invite(3);
    let of = |dim| Applicant::new(&terms(), 2).with_dim(dim).apply(&invitation).unwrap();
    enrolment.take("wide", &of(9)).unwrap();
    enrolment.take("a", &of(D)).unwrap();
    enrolment.take("b", &of(D)).unwrap();
    let e = enrolment.close(None).err().unwrap();
    assert_eq!(e.what, "`wide`: 9 components in place of 4 components");
    enrolment.withdraw("wide");
    let enrolled = enrolment.close(None).unwrap();
    assert_eq!((enrolled.federation.dim(), enrolled.federation.agents()), (D, 2));
    assert_eq!(enrolment.close(Some(9)).err().unwrap().what, "`a`: not of 9 components");
}

/// Enrolment has a count of its own: every byte once.
#[test]
fn every_byte_is_counted_once() {
    let mut enrolment = Enrolment::new(&terms(), 2..=2).unwrap();
    let invitation = enrolment.invite(2);
    let of = |n| Applicant::new(&terms(), n).with_dim(D).apply(&invitation).unwrap();
    let (a, b) = (of(1), of(200));
    enrolment.take("a", &a).unwrap();
    enrolment.take("a", &a).unwrap();
    enrolment.take("b", &b).unwrap();
    let enrolled = enrolment.close(None).unwrap();
    let told: usize = enrolled.admissions.iter().map(|told| told.bytes.len()).sum();
    assert_eq!(enrolled.cost.messages, 6);
    assert_eq!(enrolled.cost.bits_up, 8 * (a.len() + b.len()) as u64);
    assert_eq!(enrolled.cost.bits_down, 8 * (2 * invitation.len() + told) as u64);
}

/// A server that was stopped goes on, and founds the same federation.
#[test]
fn a_saved_enrolment_goes_on() {
    let mut enrolment = Enrolment::new(&terms(), 2..=2).unwrap();
    let invitation = enrolment.invite(2);
    let of = |n| Applicant::new(&terms(), n).with_dim(D).apply(&invitation).unwrap();
    enrolment.take("a", &of(3)).unwrap();
    let saved = enrolment.save();
    let mut again = Enrolment::new(&terms(), 2..=2).unwrap();
    again.restore(&saved).unwrap();
    for one in [&mut enrolment, &mut again] {
        one.take("b", &of(1)).unwrap();
    }
    let (one, other) = (enrolment.close(None).unwrap(), again.close(None).unwrap());
    assert_eq!((one.admissions, one.cost), (other.admissions, other.cost));
    let mut foreign = Enrolment::new(&terms().with_seed(1), 2..=2).unwrap();
    assert_eq!(foreign.restore(&saved).unwrap_err().kind(), ErrorKind::Format);
    assert!((0..saved.len()).all(|n| again.restore(&saved[..n]).is_err()));
    for bit in 0..8 * saved.len() {
        let mut damaged = saved.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(again.restore(&damaged).unwrap_err().kind(), ErrorKind::Format, "bit {bit}");
    }
}

#[test]
fn another_version_is_refused_and_both_are_named() {
    let mut enrolment = Enrolment::new(&terms(), 1..=1).unwrap();
    let mut invitation = enrolment.invite(1);
    // The version is behind the four bytes that say what it is.
    invitation[4] = 9;
    let e = Applicant::new(&terms(), 1).apply(&invitation).unwrap_err();
    assert!(e.what.contains("version 9") && e.help.contains("version 8"), "{e:?}");
}

proptest! {
    /// Whatever the bytes are: no panic, and nothing is taken that was not sent.
    #[test]
    fn hostile_bytes_are_refused(flips in prop::collection::vec((0usize..400, 1u8..=255), 1..4), cut in prop::option::of(0usize..400)) {
        let applicant = Applicant::new(&terms(), 7).with_dim(D).with_columns(columns(0.0, 2.0));
        let mut enrolment = Enrolment::new(&terms(), 1..=2).unwrap();
        let invitation = enrolment.invite(1);
        let application = applicant.apply(&invitation).unwrap();
        enrolment.take("a", &application).unwrap();
        let admission = enrolment.close(None).unwrap().admissions.remove(0).bytes;
        for whole in [&invitation, &application, &admission] {
            let mut bytes = whole.clone();
            flips.iter().for_each(|(at, by)| if let Some(byte) = bytes.get_mut(*at) { *byte ^= by });
            bytes.truncate(cut.unwrap_or(bytes.len()));
            if bytes != *whole {
                prop_assert!(applicant.apply(&bytes).is_err() && applicant.admitted(&bytes).is_err() && enrolment.take("b", &bytes).is_err());
            }
        }
        prop_assert!(enrolment.applied().eq(["a"]));
    }
}

/// A federation of three agents with these terms, in a run with this number: its server, its nodes, and what enrolment has cost.
fn founded(run: u64, field: &Arc<dyn Field>) -> (Enrolled, ServerNode, Vec<ClientNode>) {
    let mut enrolment = Enrolment::new(&terms(), 3..=3).unwrap().with_run(run);
    let invitation = enrolment.invite(3);
    let applicants = [100, 300, 400].map(|rows| Applicant::new(&terms(), rows).with_dim(D));
    for (name, applicant) in ["a", "b", "c"].iter().zip(&applicants) {
        enrolment.take(name, &applicant.apply(&invitation).unwrap()).unwrap();
        // A server that is started again goes on with the number of its run.
        let saved = enrolment.save();
        enrolment = Enrolment::new(&terms(), 3..=3).unwrap().with_run(run + 77);
        enrolment.restore(&saved).unwrap();
    }
    let enrolled = enrolment.close(None).unwrap();
    let told = applicants.iter().zip(&enrolled.admissions).map(|(one, told)| one.admitted(&told.bytes).unwrap());
    let nodes = told.map(|told| ClientNode::new(&told.federation, field, told.agent, told.agent).unwrap()).collect();
    let server = ServerNode::new(&enrolled.federation).unwrap();
    (enrolled, server, nodes)
}

/// Nodes take no message and no state of another run with the same settings, seed and agents. The numbers of both runs are the same.
#[test]
fn runs_with_the_same_settings_are_told_apart() {
    let field: Arc<dyn Field> = field(&garnet(), Law::Iid);
    let (first, mut server, mut nodes) = founded(3, &field);
    // All but the number is the same: without another number an answer of the first run counts in the second, and a question is answered.
    for (number, is_the_same) in [(3, true), (1 << 60, false), (u64::MAX, false)] {
        let (second, mut other_server, mut other_nodes) = founded(number, &field);
        assert_eq!(second.cost, first.cost, "a number of any size costs the same");
        assert_eq!(second.federation.digest() == first.federation.digest(), is_the_same);
        let (Todo::Ask { bytes, .. }, Todo::Ask { bytes: other, .. }) = (server.open(), other_server.open()) else { panic!("questions") };
        let answer = nodes[0].handle(&bytes[0]).unwrap().unwrap();
        let before = (other_server.save(), nodes[1].save());
        let (taken, handled) = (other_server.take(0, &answer), nodes[1].handle(&other[1]));
        assert_eq!((taken.is_ok(), handled.is_ok()), (is_the_same, is_the_same), "run {number}");
        assert_eq!(other_server.restore(&server.save()).is_ok(), is_the_same);
        assert_eq!(other_nodes[2].restore(&nodes[2].save()).is_ok(), is_the_same);
        if !is_the_same {
            for refused in [taken.unwrap_err(), handled.unwrap_err()] {
                assert!(refused.to_string().contains("or of another run"), "{refused}");
            }
            assert_eq!((other_server.save(), nodes[1].save()), before, "what is refused changes nothing");
        }
        let (_, mut server, mut nodes) = founded(number, &field);
        (0..10).for_each(|_| round(&mut server, &mut nodes));
        let (_, mut plain, mut others) = founded(0, &field);
        (0..10).for_each(|_| round(&mut plain, &mut others));
        assert_eq!(bits(server.theta()), bits(plain.theta()), "the number changes no number of the run");
        assert!(bits(server.theta()).iter().any(|x| *x != 0));
    }
}

/// The number of a run goes on in later epochs, at a server that is started again, and at agents that join later.
#[test]
fn later_epochs_are_of_the_same_run() {
    let field: Arc<dyn Field> = field(&garnet(), Law::Iid);
    let (enrolled, ..) = founded(9, &field);
    let mut founded_first = Membership::restored(&terms(), 3..=4, &enrolled.membership.save()).unwrap();
    let applicant = Applicant::new(&terms(), 7).with_dim(D);
    founded_first.take("d", &applicant.apply(&founded_first.invitation()).unwrap()).unwrap();
    let (next, _) = founded_first.next_epoch(&[]).unwrap();
    let next = Membership::restored(&terms(), 3..=4, &next.save()).unwrap();
    let (stays, _) = announced(&enrolled.federation, &next.announcement(0)).unwrap();
    let joins = applicant.joined(&next.admission(3)).unwrap().federation;
    for federation in [&stays, &joins] {
        assert_eq!((federation.run(), federation.epoch(), federation.digest()), (9, 1, next.federation().digest()));
    }
    let (other, ..) = founded(10, &field);
    assert!(announced(&other.federation, &next.announcement(0)).is_err(), "an epoch of another run");
    assert!(ServerNode::new(&other.federation).unwrap().regrouped(next.federation(), &[Some(0), Some(1), Some(2), None]).is_err());
}

/// The membership of agents with these rows, called a, b, ..; there may be up to four.
fn members(terms: &Terms, rows: &[u64]) -> Membership {
    let mut enrolment = Enrolment::new(terms, 2..=4).unwrap();
    let invitation = enrolment.invite(rows.len());
    for (rows, name) in rows.iter().zip(["a", "b", "c", "d"]) {
        enrolment.take(name, &Applicant::new(terms, *rows).with_dim(D).apply(&invitation).unwrap()).unwrap();
    }
    enrolment.close(None).unwrap().membership
}

fn names(membership: &Membership) -> Vec<&str> {
    membership.members().iter().map(|one| &one.sender[..]).collect()
}

/// Those who stay keep their numbers where they can, and weights are those of the rows of the new set, or equal ones.
#[test]
fn the_next_epoch_has_the_weights_of_those_who_take_part_in_it() {
    let terms = terms();
    let join = |membership: &mut Membership, name: &str, rows| {
        let application = Applicant::new(&terms, rows).with_dim(D).apply(&membership.invitation()).unwrap();
        membership.take(name, &application).unwrap()
    };
    let mut first = members(&terms, &[100, 200, 300]);
    assert_eq!((join(&mut first, "e", 400), join(&mut first, "e", 400), join(&mut first, "f", 50)), {
        (Accepted::Counted, Accepted::Repeated, Accepted::Counted)
    });
    // There is room for one in place of b, and for one more.
    let (next, from) = first.next_epoch(&["b"]).unwrap();
    assert_eq!((names(&next), &from[..]), (vec!["a", "e", "c", "f"], &[Some(0), None, Some(2), None][..]));
    assert_eq!(next.federation().weights(), [100.0 / 850.0, 400.0 / 850.0, 300.0 / 850.0, 50.0 / 850.0]);
    assert!(next.waiting().is_empty() && next.federation().epoch() == 1);
    // Numbers that are none any more are moved to the free ones.
    let (last, from) = next.next_epoch(&["a", "e"]).unwrap();
    assert_eq!((names(&last), &from[..]), (vec!["c", "f"], &[Some(2), Some(3)][..]));
    assert_eq!(last.next_epoch(&["c"]).err().unwrap().key, "agents");
    // Nobody is lost for whom there is no room yet.
    let full = members(&terms, &[1, 1, 1, 1]);
    let mut full = full.clone();
    join(&mut full, "e", 1);
    let (still, _) = full.next_epoch(&[]).unwrap();
    assert_eq!((names(&still).len(), still.waiting()[0].sender.as_str()), (4, "e"));

    let equal = terms.clone().with_equal_weights();
    let (next, _) = members(&equal, &[100, 200, 300]).next_epoch(&["a"]).unwrap();
    assert_eq!(next.federation().weights(), [0.5, 0.5]);
}

#[test]
fn an_epoch_is_announced_to_those_who_know_the_federation_and_to_those_who_do_not() {
    let first = members(&terms(), &[100, 200, 300]);
    let (next, _) = first.next_epoch(&["a"]).unwrap();
    let (short, long) = (next.announcement(0), next.admission(0));
    assert!(is_announcement(&short) && is_announcement(&long) && is_enrolment(&long) && !is_announcement(&first.admission(0)));
    assert!(short.len() + 8 * D <= long.len());
    for bytes in [&short, &long] {
        let (federation, agent) = announced(first.federation(), bytes).unwrap();
        assert_eq!((federation.digest(), agent), (next.federation().digest(), 0));
        assert!(repeats(&federation, 0, bytes).unwrap() && !repeats(&federation, 1, bytes).unwrap());
        assert!(!repeats(first.federation(), 0, bytes).unwrap());
    }
    // It is that of c, with its rows.
    let stranger = Applicant::new(&terms(), 300).with_dim(D);
    assert!(Applicant::new(&terms(), 200).with_dim(D).joined(&long).is_err_and(|e| e.what.contains("other rows")));
    assert_eq!(stranger.joined(&long).unwrap().federation.digest(), next.federation().digest());
    assert!(stranger.joined(&short).is_err());
    assert!(is_farewell(&farewell()) && is_enrolment(&farewell()) && !is_farewell(&long));
}

/// An admission repeats the mark of the application for which it was made, and an invitation says to which run it is.
#[test]
fn admissions_have_the_marks_of_applications() {
    let terms = terms();
    let agent = |rows| Applicant::new(&terms, rows).with_dim(D);
    let first = members(&terms, &[100, 200]);
    assert!(agent(100).admitted(&first.admission(0)).is_ok());
    let e = agent(101).admitted(&first.admission(0)).err().unwrap();
    assert!(e.what.contains("other rows, columns or settings"), "{e:?}");
    assert_eq!((agent(100).mark(), agent(100).with_agent(1).mark()), (agent(100).mark(), agent(100).mark()));
    assert_ne!(agent(100).mark(), agent(100).with_form("x".into()).mark());
    let (invitation, run) = (Enrolment::new(&terms, 1..=1).unwrap().with_run(9).invite(1), first.federation().run());
    assert_eq!((run_of(&invitation).unwrap(), run_of(&first.invitation()).unwrap()), (9, run));
    assert!(run_of(&first.admission(0)).is_err());
}

#[test]
fn who_cannot_join_is_told_why() {
    let terms = terms();
    let mut enrolment = Enrolment::new(&terms, 1..=3).unwrap();
    let invitation = enrolment.invite(1);
    let one = |rows| Applicant::new(&terms, rows).with_dim(D).with_form("x, y".into());
    enrolment.take("a", &one(10).with_agent(0).apply(&invitation).unwrap()).unwrap();
    let mut membership = enrolment.close(None).unwrap().membership;
    assert_eq!(membership.form(), Some("x, y"));
    let mut refused = |name: &str, applicant: Applicant| membership.take(name, &applicant.apply(&invitation).unwrap()).unwrap_err();
    assert!(refused("a", one(10)).what.contains("takes part"));
    assert!(refused("b", one(10).with_agent(0)).what.contains("that of `a`"));
    assert!(refused("b", one(10).with_dim(D + 1)).what.contains("components"));
    assert!(refused("b", one(10).with_columns(columns(0.0, 1.0))).what.contains("column 1 is `s_0` of numbers in place of none"));
    assert!(refused("b", one(10).with_form("x, z".into())).what.contains("another form"));
    assert!(refused("b", Applicant::new(&terms, 10).with_dim(D)).what.contains("another form"));
    assert!(membership.take("b", b"nothing").is_err() && membership.waiting().is_empty());
    // Of two forms at the start, the more common one counts.
    let mut enrolment = Enrolment::new(&terms, 1..=3).unwrap();
    for (name, form) in [("a", "x, z"), ("b", "x, y"), ("c", "x, y")] {
        enrolment.take(name, &one(10).with_form(form.into()).apply(&invitation).unwrap()).unwrap();
    }
    assert!(enrolment.close(None).is_err_and(|e| e.what.starts_with("`a`: data of another form")));
}

#[test]
fn a_saved_membership_is_the_same_one() {
    let terms = terms();
    let first = members(&terms, &[100, 200, 300]);
    let (mut next, _) = first.next_epoch(&["c"]).unwrap();
    next.take("d", &Applicant::new(&terms, 7).with_dim(D).apply(&next.invitation()).unwrap()).unwrap();
    for membership in [&first, &next] {
        let bytes = membership.save();
        let again = Membership::restored(&terms, 2..=4, &bytes).unwrap();
        assert_eq!(again.federation().digest(), membership.federation().digest());
        assert_eq!((again.members(), again.waiting(), again.save()), (membership.members(), membership.waiting(), bytes.clone()));
        assert_eq!(again.admission(1), membership.admission(1));
        for bit in 0..8 * bytes.len() {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Membership::restored(&terms, 2..=4, &damaged).is_err(), "bit {bit}");
        }
        assert!(Membership::restored(&terms.clone().with_seed(12), 2..=4, &bytes).is_err());
    }
}

/// What is longer than messages may be is refused where it is, and not at the other end, which cannot say what it was.
#[test]
fn names_that_are_longer_than_a_message_are_refused_at_the_agent() {
    let mut enrolment = Enrolment::new(&terms(), 1..=1).unwrap();
    let invitation = enrolment.invite(1);
    let agent = |length| Applicant::new(&terms(), 1).with_dim(D).with_form("x".repeat(length));
    assert!(enrolment.take("a", &agent(1 << 25).apply(&invitation).unwrap()).is_ok());
    let long = agent((1 << 26) + 1);
    for e in [long.check().unwrap_err(), long.apply(&invitation).unwrap_err()] {
        assert!(
            e.key == "data" && e.what.contains("names of columns, categories and labels of 67108") && e.help.contains("at most 64 MiB"),
            "{e:?}"
        );
    }
    // As many components as agents may say do not leave room for the rest of an admission.
    let mut wide = Enrolment::new(&terms(), 1..=1).unwrap();
    let most = fedsa::enrolment::MAX_COMPONENTS as usize;
    wide.take("a", &Applicant::new(&terms(), 1).with_dim(most).apply(&invitation).unwrap()).unwrap();
    let e = wide.close(None).err().unwrap();
    assert!(e.what.contains("a start of 8388608 components and 0 columns") && e.help.contains("64 MiB"), "{e:?}");
}
