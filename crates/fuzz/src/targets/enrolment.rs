//! Messages of enrolment and of epochs, and the state of an enrolment.

use std::sync::LazyLock;

use fedsa::enrolment::{Applicant, ColumnSummary, CountedColumns, DistinctValues, Enrolment, Terms, announce, announce_to_new, announced};
use fedsa::federation::{Description, Federation};
use fedsa::sampling::Sampling;
use fedsa_methods::scafflsa::Scafflsa;
use fedsa_problems::td::garnet::Garnet;
use sha2::{Digest, Sha256};

use super::proportional;
use super::wire::without_checksum;
use crate::{Corpus, Target, Verdict, refused};

const D: usize = 4;
const MOST: usize = 4;

static TERMS: LazyLock<Terms> = LazyLock::new(|| {
    let problem = Description::new("garnet", Sampling::default(), D).with(&Garnet::default().with_agents(3).with_features(D));
    Terms::new(&Scafflsa::new(0.1, 5).with_participants(2), problem).with_seed(11)
});

/// Agents of each sort: with a number or without, with a dimension or with columns.
static APPLICANTS: LazyLock<Vec<Applicant>> = LazyLock::new(|| {
    let numbers = |low| ColumnSummary::of_numbers("s", [low, 2.0, 7.5]).expect("finite numbers");
    let texts = [("red".to_string(), 2), ("blue".to_string(), 1)].into();
    let categories = ColumnSummary::of_categories("c", DistinctValues::new(texts, false)).expect("two categories");
    let counted = ColumnSummary::of_counted("f", CountedColumns::new(3, 7, 9)).expect("seven columns");
    let with_columns = |rows, low| Applicant::new(&TERMS, rows).with_columns(vec![numbers(low), categories.clone(), counted.clone()]);
    let with_dim = |rows| Applicant::new(&TERMS, rows).with_dim(D);
    vec![with_dim(3).with_agent(1), with_dim(5), with_columns(3, -1.0), with_columns(9, 0.5)]
});

fn enrolment() -> Enrolment {
    Enrolment::new(&TERMS, 2..=MOST).expect("two agents or more")
}

/// Of those with a dimension or those with columns: who has applied.
fn applied(with_columns: bool) -> Enrolment {
    let mut enrolment = enrolment();
    let invitation = enrolment.invite(2);
    for (sender, applicant) in ["a", "b"].iter().zip(&APPLICANTS[2 * usize::from(with_columns)..]) {
        let bytes = applicant.apply(&invitation).expect("the same terms");
        enrolment.take(sender, &bytes).expect("the same terms");
    }
    enrolment
}

static FOUNDED: LazyLock<Federation> = LazyLock::new(|| applied(false).close(None).expect("two agents").federation);

/// The bytes with the checksum of messages of enrolment.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    [bytes, &Sha256::digest(bytes)[..4]].concat()
}

/// A seed of each sort: what it is, and the bytes without their checksum.
fn seeds(all: impl IntoIterator<Item = (u8, Vec<u8>)>) -> Vec<Corpus> {
    vec![Corpus::bytes(all.into_iter().map(|(which, bytes)| [&[which][..], without_checksum(&bytes)].concat()).collect())]
}

/// The applicant that an input names, and the message.
fn applicant(data: &[u8]) -> Option<(&'static Applicant, Vec<u8>)> {
    let (which, bytes) = data.split_first()?;
    Some((&APPLICANTS[usize::from(*which) % APPLICANTS.len()], sealed(bytes)))
}

// ---------------------------------------------------------------------------------------------

/// Invitations.
pub const INVITED: Target =
    Target { name: "invitation", about: "an invitation to an agent", corpora: invitations, run: invited, memory: proportional };

fn invitations() -> Vec<Corpus> {
    let invitation = enrolment().invite(1);
    seeds((0..APPLICANTS.len() as u8).map(|which| (which, invitation.clone())))
}

fn invited(data: &[u8]) -> Verdict {
    let Some((applicant, bytes)) = applicant(data) else { return Verdict::PassedOver };
    match applicant.apply(&bytes) {
        Err(e) => refused(&e),
        Ok(application) => {
            enrolment().take("x", &application).expect("an agent with these terms");
            Verdict::Accepted
        }
    }
}

/// Applications.
pub const APPLIED: Target =
    Target { name: "application", about: "an application beside others", corpora: applications, run: apply, memory: proportional };

fn applications() -> Vec<Corpus> {
    let invitation = enrolment().invite(1);
    let one = |(which, applicant): (usize, &Applicant)| (which as u8 / 2, applicant.apply(&invitation).expect("the same terms"));
    seeds(APPLICANTS.iter().enumerate().map(one))
}

/// Whoever has applied, the others can found a federation, of which all can be told; or it is said why not.
fn apply(data: &[u8]) -> Verdict {
    let Some((which, bytes)) = data.split_first() else { return Verdict::PassedOver };
    let with_columns = which % 2 == 1;
    let mut enrolment = applied(with_columns);
    let before = enrolment.save();
    let taken = enrolment.take("a", &sealed(bytes)).or_else(|_| enrolment.take("x", &sealed(bytes)));
    if taken.is_err() {
        assert_eq!(enrolment.save(), before, "an application that was refused has changed the enrolment");
    }
    let mut again = self::enrolment();
    again.restore(&enrolment.save()).expect("what was just saved");
    assert_eq!(again.save(), enrolment.save());
    again.columns();
    match (again.close(with_columns.then_some(D)), taken) {
        (Err(e), _) | (_, Err(e)) => refused(&e),
        (Ok(enrolled), Ok(_)) => {
            assert_eq!(enrolled.admissions.len(), enrolled.federation.agents());
            Verdict::Accepted
        }
    }
}

/// Admissions.
pub const ADMITTED: Target =
    Target { name: "admission", about: "what an agent is told that takes part", corpora: admissions, run: admit, memory: proportional };

fn admissions() -> Vec<Corpus> {
    let of = |with_columns: bool| applied(with_columns).close(Some(D)).expect("two agents").admissions;
    let both = [of(false), of(true)].into_iter().enumerate().flat_map(|(i, all)| all.into_iter().map(move |one| (i, one)));
    // In the order of numbers; `a` is the first applicant of its sort, and `b` the second.
    seeds(both.map(|(i, one)| (2 * i as u8 + u8::from(one.sender == "b"), one.bytes)))
}

fn admit(data: &[u8]) -> Verdict {
    let Some((applicant, bytes)) = applicant(data) else { return Verdict::PassedOver };
    match applicant.admitted(&bytes) {
        Err(e) => refused(&e),
        Ok(admission) => {
            assert!(admission.agent < admission.federation.agents());
            Verdict::Accepted
        }
    }
}

/// Announcements of epochs.
pub const ANNOUNCED: Target = Target {
    name: "announcement",
    about: "what agents are told when others join or leave",
    corpora: announcements,
    run: hear,
    memory: proportional,
};

fn announcements() -> Vec<Corpus> {
    let next = FOUNDED.next_epoch(vec![0.25, 0.25, 0.5]).expect("weights that sum to 1");
    let after = next.next_epoch(vec![0.1, 0.2, 0.3, 0.4]).expect("weights that sum to 1");
    let mark = APPLICANTS[1].mark();
    let one =
        |(federation, agent): (&Federation, usize)| [(0, announce(federation, agent)), (1, announce_to_new(federation, agent, &[], mark))];
    seeds([(&next, 0), (&next, 2), (&after, 3)].into_iter().flat_map(one))
}

/// Agents that know the federation, and one that joins it.
fn hear(data: &[u8]) -> Verdict {
    let Some((which, bytes)) = data.split_first() else { return Verdict::PassedOver };
    let bytes = sealed(bytes);
    let heard = match which % 2 {
        0 => announced(&FOUNDED, &bytes),
        _ => APPLICANTS[1].joined(&bytes).map(|admission| (admission.federation, admission.agent)),
    };
    match heard {
        Err(e) => refused(&e),
        Ok((federation, agent)) => {
            assert!(agent < federation.agents() && federation.epoch() > 0);
            Verdict::Accepted
        }
    }
}
