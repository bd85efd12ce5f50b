//! What an agent keeps of a federation: with which data it goes on, and which states it refuses.

use fedsa::cancel::Cancel;
use fedsa::error::{ErrorCode, ErrorKind};
use fedsa::node::{ServerNode, Todo};
use fedsa_data::find::Places;
use fedsa_experiment::deployment::{DisclosureRules, LocalAgent};

use crate::deployment::{self, agent_of, each, logs, made, settings};

#[test]
fn a_damaged_state_of_an_agent_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let problem = "{ kind = \"logs\", features = { kind = \"fourier\", order = 2 }, gamma = 0.9, ranges = { s_1 = [-2.0, 2.0] } }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 1);
    let deployment = made(&text);
    let mut agent =
        LocalAgent::with_rules(&deployment, &each(&files)[0], &Places::from_env(""), Some(0), DisclosureRules::none(), &Cancel::never())
            .unwrap();
    let state = agent.save();
    for bit in 0..8 * state.len() {
        let mut damaged = state.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(agent.restore(&damaged).unwrap_err().kind(), ErrorKind::Format, "bit {bit}");
    }
    // The layout of earlier versions, which had no checksum.
    let e = agent.restore(&[1, 0]).unwrap_err();
    assert!(e.kind() == ErrorKind::Format && e.what.contains("layout 1; this version has 10"), "{e}");
    agent.restore(&state).unwrap();
}

/// Its rows have told its weight, and its columns the features: with others it does not go on.
#[test]
fn an_agent_does_not_go_on_with_other_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, header: &str, rows: usize| {
        let row = |i: usize| format!("{},{},{}\n", (i as f64).sin(), (i as f64 * 0.3).cos(), i % 2);
        deployment::file(folder.path(), name, &(format!("{header}\n") + &(0..rows).map(row).collect::<String>()))
    };
    let problem = "{ kind = \"least-squares\", target = \"y\", ridge = 1e-2, weighting = \"rows\" }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 3);
    let deployment = made(&text);
    let agent = |file: &String| agent_of(&deployment, std::slice::from_ref(file)).unwrap();
    let own = file("own.csv", "a,b,y", 30);
    let mut enrolment = deployment.enrolment(1..=1).unwrap();
    let mut one = agent(&own);
    let invitation = enrolment.invite(1);
    enrolment.take("one", &one.handle(&invitation).unwrap().unwrap()).unwrap();
    let before = one.save();
    let enrolled = deployment.found(&enrolment).unwrap();
    one.handle(&enrolled.admissions[0].bytes).unwrap();
    let state = one.save();
    assert!(agent(&own).restore(&state).is_ok());
    // The last one has as many rows with the same columns, and other numbers.
    let changed = std::fs::read_to_string(&own).unwrap().replacen("0.", "0.1", 1);
    let changed = deployment::file(folder.path(), "changed.csv", &changed);
    for other in [file("fewer.csv", "a,b,y", 5), file("swapped.csv", "b,a,y", 30), changed] {
        let e = agent(&other).restore(&state).unwrap_err();
        assert!(e.key == "data" && e.what == "data that are not those with which this agent's state was saved", "{e:?}");
        assert!(e.help.contains("leave"), "{e:?}");
        // Before it is admitted it can apply with them.
        assert!(agent(&other).restore(&before).is_ok());
    }
}

/// The same where it was started again before it was admitted, also without its state: what it has told is not what it would answer with.
#[test]
fn an_agent_is_not_admitted_with_other_data_than_it_has_applied_with() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, rows: usize, by: f64| {
        let row = |i: usize| format!("{},{},{}\n", (i as f64 * by).sin(), (i as f64 * 0.3).cos(), i % 2);
        deployment::file(folder.path(), name, &("a,b,y\n".to_string() + &(0..rows).map(row).collect::<String>()))
    };
    let problem = "{ kind = \"logistic\", target = \"y\", ridge = 1e-2, weighting = \"rows\" }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 3);
    let deployment = made(&text);
    let agent = |file: &String| agent_of(&deployment, std::slice::from_ref(file)).unwrap();
    let (own, other) = (file("own.csv", 30, 1.0), file("other.csv", 20, 0.5));
    let mut enrolment = deployment.enrolment(1..=2).unwrap();
    let mut one = agent(&own);
    let invitation = enrolment.invite(1);
    enrolment.take("one", &one.handle(&invitation).unwrap().unwrap()).unwrap();
    let state = one.save();
    let mut first = deployment.found(&enrolment).unwrap().membership;
    for with_state in [true, false] {
        let mut again = agent(&other);
        if with_state {
            again.restore(&state).unwrap();
        }
        let e = again.handle(&first.admission(0)).unwrap_err();
        assert!(
            e.kind() == ErrorKind::RefusedMessage && e.what.contains("other rows, columns or settings") && e.help.contains("applies anew"),
            "{e:?}"
        );
        assert!(again.number().is_none());
        // It can where it applies once more.
        let mut anew = deployment.enrolment(1..=1).unwrap();
        anew.take("one", &again.handle(&invitation).unwrap().unwrap()).unwrap();
        assert!(again.handle(&deployment.found(&anew).unwrap().admissions[0].bytes).unwrap().is_none());
    }
    // Those who join later are told in another way.
    first.take("two", &agent(&other).handle(&first.invitation()).unwrap().unwrap()).unwrap();
    let (next, _) = first.next_epoch(&[]).unwrap();
    assert!(agent(&own).handle(&next.admission(1)).unwrap_err().what.contains("other rows, columns or settings"));
    assert!(agent(&other).handle(&next.admission(1)).unwrap().is_none());
    assert!(one.handle(&first.admission(0)).unwrap().is_none());
}

/// Only the operator discards a state: an agent with one refuses another federation, also of the same file, and an older server of its own.
#[test]
fn an_agent_keeps_its_state_whatever_a_server_says() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let problem = "{ kind = \"logs\", features = { kind = \"fourier\", order = 1 }, gamma = 0.9 }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }", 4);
    let deployment = made(&text);
    let new = || agent_of(&deployment, &files[..1]).unwrap();
    let founded = |agent: &mut LocalAgent| {
        let mut enrolment = deployment.enrolment(1..=1).unwrap();
        let invitation = enrolment.invite(1);
        enrolment.take("a", &agent.handle(&invitation).unwrap().unwrap()).unwrap();
        (invitation, deployment.found(&enrolment).unwrap())
    };
    let mut agent = new();
    let (invitation, first) = founded(&mut agent);
    agent.handle(&first.admissions[0].bytes).unwrap();
    let mut server = ServerNode::new(&first.federation).unwrap();
    let Todo::Ask { bytes: early, .. } = server.open() else { panic!("a question") };
    server.receive(&[(0, agent.handle(&early[0]).unwrap().unwrap())]);
    let Todo::Ask { bytes: late, .. } = server.open() else { panic!("a question") };
    agent.handle(&late[0]).unwrap();
    let state = agent.save();

    let (other_invitation, other) = founded(&mut new());
    for message in [&other_invitation, &other.admissions[0].bytes, &early[0].to_vec()] {
        let e = agent.handle(message).unwrap_err();
        assert!(e.code() == ErrorCode::OtherState && e.for_others() == e.what && e.what.contains("agent's state is newer"), "{e:?}");
        assert!(e.help.contains("deletes `agent.state`") && agent.save() == state, "{e:?}");
    }
    // It says again what it has said to its own server, which may have lost it.
    assert!(agent.handle(&invitation).unwrap().is_some() && agent.handle(&first.admissions[0].bytes).unwrap().is_none());
    assert!(agent.save() == state);
    // Without its state it begins again.
    assert!(new().handle(&other.admissions[0].bytes).unwrap().is_none());
}

/// Whoever changes a state and its checksum is told that it is not the agent's, and not what a message or a node is refused for.
#[test]
fn a_state_that_was_changed_with_its_checksum_is_refused_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let problem = "{ kind = \"logs\", features = { kind = \"fourier\", order = 1 }, gamma = 0.9 }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }", 4);
    let deployment = made(&text);
    let mut agent = agent_of(&deployment, &files[..1]).unwrap();
    let mut enrolment = deployment.enrolment(1..=1).unwrap();
    let invitation = enrolment.invite(1);
    enrolment.take("a", &agent.handle(&invitation).unwrap().unwrap()).unwrap();
    agent.handle(&deployment.found(&enrolment).unwrap().admissions[0].bytes).unwrap();
    let state = agent.save();
    let mut refused = 0;
    for at in 1..state.len() - 4 {
        let mut changed = state[..state.len() - 4].to_vec();
        changed[at] ^= 1;
        changed.extend(crc32fast::hash(&changed).to_le_bytes());
        if let Err(e) = agent.restore(&changed) {
            assert!(e.kind() == ErrorKind::Format || e.key == "data", "byte {at}: {e:?}");
            refused += 1;
        }
    }
    assert!(refused > state.len() / 2);
    agent.restore(&state).unwrap();
}
