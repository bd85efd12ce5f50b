//! Enrolment: who is admitted, who is refused and why, and that the federation that follows is the one that would have been built by hand.

use std::sync::Arc;

use crate::common::{field, method};
use fedsa::coordinator::Accepted;
use fedsa::enrolment::{Applicant, ColumnContent, ColumnSummary, Enrolment, Terms, is_enrolment};
use fedsa::node::{ClientNode, ServerNode, Todo};
use fedsa::prelude::*;
use fedsa::uplink::Uplink;
use proptest::prelude::*;

const D: usize = 4;

fn garnet() -> Garnet {
    Garnet::default().with_agents(3).with_features(D).with_seed(3)
}

fn described(problem: &Garnet, sampling: Sampling) -> Description {
    Description::of("garnet", problem, sampling, D)
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
    assert!(enrolment.close(None).is_err_and(|e| e.what.starts_with("2 agents can take part")));
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

/// Columns are those of all rows, and the two ends agree on them; an agent with other columns does not keep the others out.
#[test]
fn columns_of_all_agents_are_told_and_agreed_on() {
    let mut enrolment = Enrolment::new(&terms(), 2..=9).unwrap();
    let invitation = enrolment.invite(4);
    let of = |low, high| Applicant::new(&terms(), 2).with_columns(columns(low, high));
    let stranger = Applicant::new(&terms(), 2).with_columns(vec![ColumnSummary::of_numbers("other", [1.0]).unwrap()]);
    enrolment.take("stranger", &stranger.apply(&invitation).unwrap()).unwrap();
    for (name, (low, high)) in ["a", "b", "c"].iter().zip([(-1.0, 1.0), (0.0, 5.0), (-7.0, 0.5)]) {
        enrolment.take(name, &of(low, high).apply(&invitation).unwrap()).unwrap();
    }
    let seen = enrolment.columns();
    let ColumnContent::Numbers { range, moments } = &seen[0].content else { panic!("{seen:?}") };
    assert_eq!((*range, moments.count()), ((-7.0, 5.0), 6));
    // The dimension follows from features that are made of the columns: the caller knows it.
    assert!(enrolment.close(None).is_err_and(|e| e.key == "dim"));
    let enrolled = enrolment.close(Some(D)).unwrap();
    assert_eq!(enrolled.excluded.len(), 1);
    assert!(enrolled.excluded[0].0 == "stranger" && enrolled.excluded[0].1.what.contains("1 columns in place of 2"));
    let told = of(0.0, 5.0).admitted(&enrolled.admissions[1].bytes).unwrap();
    assert_eq!((told.columns, told.federation.dim()), (seen, D));
    // Other columns are another federation.
    let mut fewer = Enrolment::new(&terms(), 2..=9).unwrap();
    for (name, (low, high)) in ["a", "b", "c"].iter().zip([(-1.0, 1.0), (0.0, 5.0), (-7.5, 0.5)]) {
        fewer.take(name, &of(low, high).apply(&invitation).unwrap()).unwrap();
    }
    assert_ne!(fewer.close(Some(D)).unwrap().federation.digest(), enrolled.federation.digest());
}

/// One agent of another dimension is left out, and named where too few remain.
#[test]
fn an_agent_of_another_dimension_is_left_out() {
    let mut enrolment = Enrolment::new(&terms(), 2..=3).unwrap();
    let invitation = enrolment.invite(3);
    let of = |dim| Applicant::new(&terms(), 2).with_dim(dim).apply(&invitation).unwrap();
    enrolment.take("wide", &of(9)).unwrap();
    enrolment.take("a", &of(D)).unwrap();
    enrolment.take("b", &of(D)).unwrap();
    let enrolled = enrolment.close(None).unwrap();
    assert_eq!((enrolled.federation.dim(), enrolled.federation.agents(), &enrolled.excluded[0].0[..]), (D, 2, "wide"));
    let e = enrolment.close(Some(9)).err().unwrap();
    assert!(e.what.contains("`a` cannot") && e.help == "at least 2 agents", "{e:?}");
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
    assert!(e.what.contains("version 9") && e.help.contains("version 1"), "{e:?}");
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
