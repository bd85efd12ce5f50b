//! A federation whose ends have data of their own gives the numbers of a run on the data of all.

use std::fs;
use std::path::Path;

use fedsa::cancel::Cancel;
use fedsa::enrolment::Enrolled;
use fedsa::error::{Error, ErrorKind, Result};
use fedsa::federation::Federation;
use fedsa::metrics::Observation;
use fedsa::node::{ServerNode, Todo};
use fedsa::record::{Ledger, Outcome};
use fedsa_data::find::Places;
use fedsa_data::trace::TraceColumn;
use fedsa_experiment::config::document::{Caller, Words};
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::deployment::{DeployedRun, Deployment, DisclosureRules, LocalAgent};
use fedsa_experiment::made::Changes;
use fedsa_experiment::redraw::redraw;
use fedsa_experiment::results::Recorded;
use fedsa_experiment::run::{IfExists, Ran, RunOutcome, run};
use fedsa_experiment::{Kinds, RunSettings, Unobserved};
use toml::Value;

/// An agent with these files, and without rules for what may leave it.
pub fn agent_of(deployment: &Deployment, files: &[String]) -> Result<LocalAgent> {
    LocalAgent::with_rules(deployment, files, &Places::from_env(""), None, DisclosureRules::none(), &Cancel::never())
}

/// An experiment without data, with this problem, sampling and method.
pub fn settings(problem: &str, sampling: &str, method: &str, rounds: u64) -> String {
    format!(
        "id = \"t\"\ntitle = \"t\"\nproblem = {problem}\nsampling = {sampling}\nmethod = [{method}]\n[run]\nrounds = {rounds}\nseeds = [5]\n"
    )
}

/// Logs of three agents with different numbers of transitions, in different parts of the state space.
pub fn logs(folder: &Path) -> Vec<String> {
    let log = |agent: usize| {
        let mut text = String::from("s_0,s_1,reward,next_0,next_1,done\n");
        let state = |i: usize| {
            let i = i as f64;
            ((i * 0.37).sin() + agent as f64 * 0.3, (i * 0.11).cos() * (1.0 + agent as f64 * 0.2))
        };
        for i in 0..40 + 15 * agent {
            let ((x, y), (next_x, next_y)) = (state(i), state(i + 1));
            let done = i % 20 == 19;
            text += &format!("{x},{y},{},{next_x},{next_y},{done}\n", x * y);
        }
        text
    };
    written(folder, "log", log)
}

/// Rows of three agents.
fn rows(folder: &Path) -> Vec<String> {
    let table = |agent: usize| {
        let mut text = String::from("x_0,x_1,y\n");
        for i in 0..30 + 10 * agent {
            let (a, b) = ((i as f64 * 0.7 + agent as f64).sin(), (i as f64 * 1.3).cos());
            text += &format!("{a},{b},{}\n", i32::from(a + 0.5 * b + 0.3 * (i as f64 * 2.9).sin() > 0.0));
        }
        text
    };
    written(folder, "rows", table)
}

pub fn written(folder: &Path, name: &str, text: impl Fn(usize) -> String) -> Vec<String> {
    (0..3).map(|agent| file(folder, &format!("{name}_{agent}.csv"), &text(agent))).collect()
}

/// The output of a run of the settings on all data, with these keys of the problem set.
pub fn in_one_place(text: &str, keys: &[(&str, Value)]) -> Vec<f64> {
    let mut document = Document::parse("all.toml", text).unwrap();
    for (key, value) in keys {
        document.set_value(&format!("problem.{key}"), value, Caller::new("test", Words::default())).unwrap();
    }
    let experiment = Experiment::read(document).unwrap();
    let RunOutcome::Done(ran) = run(experiment, &RunSettings::default(), &Unobserved, &Cancel::never()).unwrap() else { unreachable!() };
    let outputs = ran.outputs().unwrap();
    let theta = outputs.iter().find(|(name, _)| !["format", "theta_star"].contains(name)).expect("the output of the only method");
    theta.1.data().to_vec()
}

/// The output of a federation of agents with a file each.
pub fn deployed(text: &str, data: &[Vec<String>]) -> Vec<f64> {
    let ran = results(text, data);
    let outputs = ran.outputs().unwrap();
    outputs.iter().find(|(name, _)| *name != "format").expect("one output").1.data().to_vec()
}

/// The results of a federation of agents with a file each. Every agent is saved, and started again from its state, before every message.
pub fn results(text: &str, data: &[Vec<String>]) -> Ran {
    let deployment = made(text);
    let places = Places::from_env("");
    let start = |c: usize| {
        LocalAgent::with_rules(&deployment, &data[c], &places, Some(c as u32), DisclosureRules::none(), &Cancel::never()).unwrap()
    };
    let mut states: Vec<Vec<u8>> = (0..data.len()).map(|c| start(c).save()).collect();
    let mut tell = |c: usize, bytes: &[u8]| {
        let mut agent = start(c);
        agent.restore(&states[c]).unwrap();
        let answer = agent.handle(bytes).unwrap();
        states[c] = agent.save();
        answer
    };
    let mut enrolment = deployment.enrolment(data.len()..=data.len()).unwrap();
    let invitation = enrolment.invite(data.len());
    for c in 0..data.len() {
        let application = tell(c, &invitation).unwrap();
        enrolment.take(&format!("agent {c}"), &application).unwrap();
    }
    let enrolled = enrolment.close(deployment.dim(&enrolment).unwrap()).unwrap();
    for told in &enrolled.admissions {
        assert!(tell(told.agent, &told.bytes).is_none());
    }
    let mut server = ServerNode::new(&enrolled.federation).unwrap();
    let row = |server: &ServerNode| {
        let (round, ledger) = (server.coordinator().rounds(), server.coordinator().ledger());
        let seen = Observation { residual: Some(0.5f64.powi(round as i32)), ..Observation::default() };
        Recorded { round, ledger, seen, seconds: Some(0.25 * round as f64) }
    };
    let mut rows = vec![row(&server)];
    for _ in 0..deployment.until().rounds {
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = &todo {
            let answers: Vec<_> = to.iter().zip(bytes).map(|(c, bytes)| (*c, tell(*c, bytes).unwrap())).collect();
            let progress = server.receive(&answers);
            assert!(progress.refused.is_empty(), "{:?}", progress.refused);
            todo = progress.todo;
        }
        if let Todo::Tell { to, bytes } = &todo {
            to.iter().zip(bytes).for_each(|(c, bytes)| assert!(tell(*c, bytes).is_none()));
        }
        rows.push(row(&server));
    }
    let ended = DeployedRun::new(rows, server.coordinator().output().to_vec(), server.diverged(), 1.5);
    deployment.results(&enrolled.federation, ended).unwrap()
}

pub fn each(files: &[String]) -> Vec<Vec<String>> {
    files.iter().map(|file| vec![file.clone()]).collect()
}

pub fn list(files: &[String]) -> Value {
    Value::Array(files.iter().map(|file| Value::String(file.clone())).collect())
}

#[test]
fn logs_on_machines_of_their_own_give_the_bits_of_all_logs() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let logs = |features: &str, more: &str| format!("{{ kind = \"logs\", features = {features}, gamma = 0.9{more} }}");
    let fourier = logs("{ kind = \"fourier\", order = 2 }", ", ranges = { s_1 = [-2.0, 2.0] }");
    // Of one column the ranges are those of all agents, the other one needs none.
    let factors = "{ features = { kind = \"fourier\", order = 2 }, columns = [\"s_1\"] }, \
                   { features = { kind = \"identity\", bias = true }, columns = [\"s_0\"] }, \
                   { features = { kind = \"polynomial\", order = 0 }, columns = [\"s_1\"] }";
    let product = logs(&format!("{{ kind = \"product\", factors = [{factors}] }}"), "");
    for (problem, sampling, method, d) in [
        (&fourier, "{ kind = \"iid\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }", 9),
        (&fourier, "{ kind = \"markov\" }", "{ kind = \"fedlsa\", step_size = 0.1, local_steps = 5, participants = 2 }", 9),
        (&fourier, "{ kind = \"mean\" }", "{ kind = \"fedhsa\", step_size = 0.5, local_steps = 5 }", 9),
        (&fourier, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 9),
        (&product, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 6),
        (&product, "{ kind = \"iid\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }", 6),
    ] {
        let text = settings(problem, sampling, method, 4);
        let all = in_one_place(&text, &[("path", list(&files))]);
        assert!(all.len() == d && all.iter().any(|x| *x != 0.0));
        assert_eq!(deployed(&text, &each(&files)), all, "{method}");
    }
}

#[test]
fn rows_on_machines_of_their_own_give_the_bits_of_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let files = rows(folder.path());
    let problem = "{ kind = \"logistic\", target = \"y\", ridge = 1e-3, intercept = true, weighting = \"rows\" }";
    for method in [
        "{ kind = \"newton\" }",
        "{ kind = \"fib-shed\" }",
        "{ kind = \"giant\" }",
        "{ kind = \"fedlsa\", step_size = 0.5, local_steps = 3 }",
    ] {
        let text = settings(problem, "{ kind = \"mean\" }", method, 5);
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert!(all.len() == 3 && all.iter().any(|x| *x != 0.0));
        assert_eq!(deployed(&text, &each(&files)), all, "{method}");
    }
}

/// Of three agents one has the label 1 alone, and another one 0 alone: without a ridge, neither has a minimum of its own.
#[test]
fn an_agent_with_rows_of_one_class_takes_part() {
    let folder = tempfile::tempdir().unwrap();
    let files = rows(folder.path());
    for (file, lacks) in [(&files[0], ",0"), (&files[2], ",1")] {
        let text = fs::read_to_string(file).unwrap();
        let kept: String = text.lines().filter(|line| !line.ends_with(lacks)).map(|line| format!("{line}\n")).collect();
        fs::write(file, kept).unwrap();
    }
    let problem = "{ kind = \"logistic\", target = \"y\", classes = [0, 1], intercept = true, weighting = \"rows\" }";
    let multinomial =
        "{ kind = \"glm\", family = \"multinomial\", target = \"y\", classes = [0, 1, 2], ridge = 1e-2, weighting = \"rows\" }";
    for (problem, method, d) in [
        (problem, "{ kind = \"newton\" }", 3),
        (problem, "{ kind = \"fib-shed\" }", 3),
        (problem, "{ kind = \"scafflsa\", step_size = 0.5, local_steps = 3 }", 3),
        (multinomial, "{ kind = \"newton\" }", 4),
    ] {
        let text = settings(problem, "{ kind = \"mean\" }", method, 5);
        let all = in_one_place(&text, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
        assert!(all.len() == d && all.iter().all(|x| x.is_finite() && *x != 0.0), "{method}: {all:?}");
        assert_eq!(deployed(&text, &each(&files)), all, "{method}");
    }
    // Without names they are those that agents have.
    let unnamed = settings(&problem.replace("classes = [0, 1], ", ""), "{ kind = \"mean\" }", "{ kind = \"newton\" }", 5);
    let all = in_one_place(&unnamed, &[("data", list(&files)), ("partition", Value::String("files".into()))]);
    assert_eq!(deployed(&unnamed, &each(&files)), all);
}

/// The files of a federation are those of a run: they can be read, drawn again and compared, and not be run.
#[test]
fn results_of_a_federation_are_those_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let problem = "{ kind = \"logs\", features = { kind = \"fourier\", order = 2 }, gamma = 0.9 }";
    for method in ["{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }", "{ kind = \"lstd\" }"] {
        let text = settings(problem, "{ kind = \"mean\" }", method, 4);
        let ran = results(&text, &each(&files));
        let out = tempfile::tempdir().unwrap();
        ran.write_into(out.path(), IfExists::Refuse, Vec::new()).unwrap();
        let summary = ran.summary_json();
        let entry = &summary["results"][0];
        assert_eq!((&entry["outcome"], &summary["exit_status"]), (&"completed".into(), &0.into()), "{entry}");
        assert!(entry["ledger"]["bits_up"].as_f64().unwrap() > 0.0 && entry["floor_mean"].is_null() && entry["seconds"] == 1.5);
        let changes = Changes::default();
        let again = redraw(out.path(), &changes, &Kinds::default()).unwrap();
        assert_eq!(again.results.cells[0][0].rows.len(), 5);
        let config = std::fs::read_to_string(out.path().join("config.toml")).unwrap();
        let experiment = Experiment::read(Document::parse("config.toml", &config).unwrap()).unwrap();
        let e = run(experiment, &RunSettings::default(), &Unobserved, &Cancel::never()).err().unwrap();
        assert!(e.key == "problem.kind" && e.what.contains("cannot be run"), "{e:?}");
    }
}

/// An agent that is away for many rounds leaves a trace: the missing weight of each recorded round, and the outcome.
#[test]
fn a_federation_with_much_missing_weight_is_incomplete() {
    let deployment = made(&settings(
        "{ kind = \"garnet\", agents = 2 }",
        "{ kind = \"iid\" }",
        "{ kind = \"fedlsa\", step_size = 0.1, local_steps = 2 }",
        20,
    ));
    let ended = |missing: f64| {
        let federation = founded_generated(&deployment);
        let server = ServerNode::new(&federation).unwrap();
        let row = |round: u64| {
            let seen =
                Observation { missing_weight: (round > 0).then_some(if round <= 7 { missing } else { 0.0 }), ..Observation::default() };
            Recorded { round, ledger: server.coordinator().ledger(), seen, seconds: None }
        };
        let ended = DeployedRun::new((0..=20).map(row).collect(), vec![0.5; federation.dim()], None, 1.0);
        let ran = deployment.results(&federation, ended).unwrap();
        let result = &ran.results.cells[0][0];
        let spans = result.rows.windows(2).map(|pair| (pair[1].round - pair[0].round) as f64 * pair[1].seen.missing_weight.unwrap());
        (result.outcome(&ran.plan.cells[0].run.stop), spans.sum::<f64>())
    };
    let (outcome, all) = ended(0.5);
    assert!(
        matches!(outcome, Outcome::Incomplete { missing } if (missing - 0.175).abs() < 1e-12) && (all - 3.5).abs() < 1e-12,
        "{outcome:?}"
    );
    assert_eq!(ended(0.1).0, Outcome::Completed);
}

fn founded_generated(deployment: &Deployment) -> Federation {
    let mut enrolment = deployment.enrolment(2..=2).unwrap();
    let invitation = enrolment.invite(2);
    for c in 0..2 {
        let mut agent = LocalAgent::new(deployment, &[], &Places::from_env(""), Some(c), &Cancel::never()).unwrap();
        enrolment.take(&c.to_string(), &agent.handle(&invitation).unwrap().unwrap()).unwrap();
    }
    deployment.found(&enrolment).unwrap().federation
}

/// A claim of many rows would give an agent all the weight: it is named at the founding, and refused when it comes later.
#[test]
fn a_claim_of_almost_all_the_weight_is_refused() {
    let deployment = made(&settings(
        "{ kind = \"least-squares\", target = \"y\", weighting = \"rows\" }",
        "{ kind = \"mean\" }",
        "{ kind = \"newton\" }",
        3,
    ));
    let claim = |rows| fedsa::enrolment::Applicant::new(deployment.terms(), rows).with_dim(4);
    let founded = |rows: &[u64]| {
        let mut enrolment = deployment.enrolment(1..=3).unwrap();
        let invitation = enrolment.invite(3);
        for (who, rows) in ["a", "b", "c"].iter().zip(rows) {
            enrolment.take(who, &claim(*rows).apply(&invitation).unwrap()).unwrap();
        }
        deployment.found(&enrolment)
    };
    let e = founded(&[100, 200, 4_000_000_000]).err().unwrap();
    assert!(e.what.starts_with("`c`: 4000000000 rows, 100.0000% of the weight") && e.help.contains("at most 90%"), "{e:?}");
    assert!(founded(&[100, 900]).is_ok() && founded(&[100, 901]).is_err() && founded(&[4_000_000_000]).is_ok());
    let mut membership = founded(&[100, 200]).unwrap().membership;
    let e = membership.take("c", &claim(4_000_000_000).apply(&membership.invitation()).unwrap()).unwrap_err();
    assert!(e.kind() == ErrorKind::RefusedMessage && e.what.contains("`c`: 4000000000 rows"), "{e:?}");
    membership.take("c", &claim(500).apply(&membership.invitation()).unwrap()).unwrap();
}

/// Changes of the figure: curves along seconds.
fn along_seconds() -> Changes {
    let by = || Caller::new("test", Words::default());
    Changes::new(move |document: &mut Document| document.set_value("figure.x", &Value::String("seconds".into()), by()))
}

/// Seconds are where machines have taken them: in traces and pictures of federations, and nowhere else.
#[test]
fn curves_of_federations_can_be_drawn_along_seconds() {
    let problem = "{ kind = \"garnet\", agents = 3, states = 8, features = 3, seed = 2 }";
    let text = settings(problem, "{ kind = \"iid\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 4 }", 5);
    let figure = "[figure]\nx = [\"round\", \"seconds\"]\n";
    let nobody = [vec![], vec![], vec![]];
    let out = tempfile::tempdir().unwrap();
    results(&format!("{text}{figure}"), &nobody).write_into(out.path(), IfExists::Refuse, Vec::new()).unwrap();
    let trace = fedsa_data::trace::read(&out.path().join("trace.parquet")).unwrap();
    assert_eq!(trace.column("seconds"), Some(&TraceColumn::F64(vec![0.0, 0.25, 0.5, 0.75, 1.0, 1.25])));
    let again = redraw(out.path(), &along_seconds(), &Kinds::default()).unwrap();
    assert_eq!(again.results.cells[0][0].rows[4].seconds, Some(1.0));
    let svg = String::from_utf8(again.files().remove(0).1).unwrap();
    assert!(svg.contains("seconds since the start of the federation") && !svg.contains("communication round"), "{svg}");

    // An earlier version has not kept them.
    let ended = |seconds: Option<f64>| {
        let deployment = made(&text);
        let mut enrolment = deployment.enrolment(1..=1).unwrap();
        let mut agent = agent_of(&deployment, &[]).unwrap();
        let invitation = enrolment.invite(1);
        enrolment.take("a", &agent.handle(&invitation).unwrap().unwrap()).unwrap();
        let row = Recorded { round: 1, ledger: Ledger::default(), seen: Observation::default(), seconds };
        deployment.results(&deployment.found(&enrolment).unwrap().federation, DeployedRun::new(vec![row], vec![0.0; 3], None, 1.0)).unwrap()
    };
    let e = ended(None).drawn(&along_seconds()).err().unwrap();
    assert!(e.key == "figure.x" && e.what.contains("the trace of this run does not have"), "{e:?}");
    assert!(ended(Some(0.0)).drawn(&along_seconds()).is_ok());
    assert!(ended(None).trace().unwrap().column("seconds").is_none());
    let experiment = Experiment::read(Document::parse("all.toml", &format!("{text}{figure}")).unwrap()).unwrap();
    let e = run(experiment, &RunSettings::default(), &Unobserved, &Cancel::never()).err().unwrap();
    assert!(e.key == "figure.x" && e.help.contains("a federation of machines") && e.help.contains("exchanges"), "{e:?}");
}

#[test]
fn a_generated_problem_needs_no_data() {
    let problem = "{ kind = \"garnet\", agents = 3, states = 8, features = 3, seed = 2 }";
    let text = settings(problem, "{ kind = \"iid\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 4 }", 5);
    assert_eq!(deployed(&text, &[vec![], vec![], vec![]]), in_one_place(&text, &[]));
}

/// Why settings cannot be deployed.
fn refused(text: &str) -> Error {
    Deployment::new(Document::parse("t.toml", text).unwrap()).err().unwrap()
}

#[test]
fn what_an_agent_cannot_make_of_its_own_data_is_refused() {
    let mean = "{ kind = \"mean\" }";
    let newton = "{ kind = \"newton\" }";
    let logs = "kind = \"logs\", gamma = 0.9";
    let rows = "kind = \"logistic\", target = \"y\"";
    for (problem, method, key) in [
        (
            format!("{{ {logs}, features = {{ kind = \"radial\", centres = 3, quantiles = true }} }}"),
            "{ kind = \"lstd\" }",
            "problem.features",
        ),
        (format!("{{ {logs}, features = {{ kind = \"standardised\" }} }}"), "{ kind = \"lstd\" }", "problem.features"),
        (
            format!("{{ {logs}, features = {{ kind = \"fourier\", order = 1 }}, scaling = \"equal-squares\" }}"),
            "{ kind = \"lstd\" }",
            "problem.scaling",
        ),
        (format!("{{ {logs}, features = {{ kind = \"fourier\", order = 1 }}, holdout = 0.5 }}"), "{ kind = \"lstd\" }", "problem.holdout"),
        (format!("{{ {rows}, pca = {{ dim = 1 }} }}"), newton, "problem.pca"),
        (format!("{{ {rows}, holdout = 0.5, samples = 9 }}"), newton, "problem.samples"),
        (format!("{{ {rows} }}"), "{ kind = \"newton\" }, { kind = \"giant\" }", "method"),
        (format!("{{ {rows} }}"), "{ kind = \"newton\", start = \"root\" }", "run.start"),
    ] {
        let e = refused(&settings(&problem, mean, method, 3));
        assert_eq!((e.kind(), &e.key[..]), (ErrorKind::Setting, key), "{problem}: {e:?}");
    }
    // The server sees directions of local steps, and not the residual; nor does anybody know the error.
    let steps = "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }";
    for (method, stop) in [(steps, "residual"), (newton, "mse"), (newton, "gap")] {
        let text = settings(&format!("{{ {rows} }}"), mean, method, 3) + &format!("stop = {{ {stop} = 1e-3 }}\n");
        assert_eq!(refused(&text).key, "run.stop");
    }
    made(&(settings(&format!("{{ {rows} }}"), mean, newton, 3) + "stop = { residual = 1e-3 }\n"));
}

#[test]
fn an_agent_with_other_settings_is_refused_before_a_round() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let of = |gamma: f64| {
        let problem = format!("{{ kind = \"logs\", features = {{ kind = \"fourier\", order = 1 }}, gamma = {gamma} }}");
        let text = settings(&problem, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 1);
        made(&text)
    };
    let (server, other) = (of(0.9), of(0.8));
    let mut agent = agent_of(&other, &files[..1]).unwrap();
    let invitation = server.enrolment(1..=1).unwrap().invite(1);
    let e = agent.handle(&invitation).unwrap_err();
    assert!(e.kind() == ErrorKind::RefusedMessage && e.what.contains("the problem"), "{e:?}");
    assert!(agent.handle(b"nothing").is_err() && agent.number().is_none());
    assert!(agent_of(&server, &files).is_err_and(|e| e.what == "3 files"));
    assert!(agent_of(&server, &[]).is_err());
}

/// A deployed agent follows the epochs: from its state, from an older one, and without one; and leaves when it is told to.
#[test]
fn agents_follow_epochs_with_and_without_their_states() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let problem = "{ kind = \"logs\", features = { kind = \"fourier\", order = 1 }, gamma = 0.9 }";
    let text = settings(problem, "{ kind = \"mean\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }", 4);
    let deployment = made(&text);
    let agent = |c: usize| agent_of(&deployment, &files[c..=c]).unwrap();
    let mut agents = [agent(0), agent(1), agent(2)];
    let mut enrolment = deployment.enrolment(1..=3).unwrap();
    let invitation = enrolment.invite(2);
    for (c, name) in ["a", "b"].iter().enumerate() {
        enrolment.take(name, &agents[c].handle(&invitation).unwrap().unwrap()).unwrap();
    }
    let mut first = deployment.found(&enrolment).unwrap().membership;
    for (c, agent) in agents[..2].iter_mut().enumerate() {
        assert!(agent.handle(&first.admission(c)).unwrap().is_none());
    }
    let founded: Vec<Vec<u8>> = agents.iter().map(LocalAgent::save).collect();
    first.take("c", &agents[2].handle(&first.invitation()).unwrap().unwrap()).unwrap();
    let (next, from) = first.next_epoch(&["a"]).unwrap();
    assert_eq!((&from[..], next.members()[0].sender.as_str()), (&[None, Some(1)][..], "c"));
    let mut server = ServerNode::new(first.federation()).unwrap().regrouped(next.federation(), &from).unwrap();
    assert!(agents[2].handle(&next.announcement(0)).is_err(), "it knows nothing of the federation");
    assert!(agents[2].handle(&next.admission(0)).unwrap().is_none());
    for restored in 0..3 {
        // With its state of the epoch, with that of the one before, without one; and saved in the new epoch.
        let mut b = agent(1);
        if restored < 2 {
            b.restore(&founded[1]).unwrap();
        }
        let told = if restored < 2 { next.announcement(1) } else { next.admission(1) };
        for _ in 0..2 {
            assert!(b.handle(&told).unwrap().is_none());
        }
        // One that is told all again changes nothing either.
        let state = b.save();
        b.handle(&next.admission(1)).unwrap();
        assert_eq!((b.save(), b.number()), (state.clone(), Some(1)));
        let mut again = agent(1);
        again.restore(&state).unwrap();
        assert_eq!((again.save(), again.number()), (state, Some(1)));
        agents[1] = again;
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = &todo {
            let answers: Vec<_> = to.iter().zip(bytes).map(|(c, bytes)| (*c, agents[2 - *c].handle(bytes).unwrap().unwrap())).collect();
            let progress = server.receive(&answers);
            assert!(
                restored == 0 || progress.refused.iter().all(|(_, e)| e.what.contains("which of its answers counted")),
                "{:?}",
                progress.refused
            );
            todo = progress.todo;
        }
    }
    assert!(server.theta().iter().any(|x| *x != 0.0));
    agents[1].leave();
    assert!(fedsa::enrolment::is_farewell(&agents[1].handle(b"whatever it is").unwrap().unwrap()));
}

/// A deployment with these settings.
pub fn made(settings: &str) -> Deployment {
    Deployment::new(Document::parse("t.toml", settings).unwrap()).unwrap()
}

/// The path of a file with this text.
pub fn file(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_string()
}

/// The federation of those who have applied with these files, of whom so many must take part.
pub fn founded(deployment: &Deployment, files: &[String], least: usize) -> Result<Enrolled, Error> {
    let mut enrolment = deployment.enrolment(least..=files.len())?;
    let invitation = enrolment.invite(files.len());
    for (c, file) in files.iter().enumerate() {
        let mut agent = agent_of(deployment, std::slice::from_ref(file))?;
        deployment.take(&mut enrolment, &format!("{c}"), &agent.handle(&invitation)?.expect("an application"))?;
    }
    deployment.found(&enrolment)
}

/// Each run of a file has a number of its own, which a server that is started again goes on with.
#[test]
fn two_runs_of_one_file_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let files = logs(folder.path());
    let problem = "{ kind = \"logs\", features = { kind = \"fourier\", order = 2 }, gamma = 0.9 }";
    let deployment = made(&settings(problem, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 1));
    let [first, second] = [0, 1].map(|_| founded(&deployment, &files, 3).unwrap());
    assert_ne!(first.federation.run(), second.federation.run());
    assert_ne!(first.federation.digest(), second.federation.digest());
    assert_eq!(first.cost, second.cost);
    let again = deployment.membership(3..=3, &first.membership.save()).unwrap();
    assert_eq!(again.federation().digest(), first.federation.digest());
    let of_one = [first, second].map(|enrolled| enrolled.federation.of_run(0).digest());
    assert_eq!(of_one[0], of_one[1]);
}

/// A number that stands for a missing one would make all other states one: founding stops and names who has it.
#[test]
fn an_agent_whose_range_is_a_placeholder_s_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = logs(folder.path());
    let text = fs::read_to_string(&files[1]).unwrap();
    let strange = |name: &str, first: &str| {
        let path = folder.path().join(name);
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines[1] = format!("{first},{}", lines[1].split_once(',').unwrap().1);
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        path.to_str().unwrap().to_string()
    };
    files.push(strange("far.csv", "1e30"));
    let of = |more: &str| {
        let problem = format!("{{ kind = \"logs\", features = {{ kind = \"fourier\", order = 2 }}, gamma = 0.9{more} }}");
        made(&settings(&problem, "{ kind = \"mean\" }", "{ kind = \"lstd\" }", 1))
    };
    let e = founded(&of(""), &files, 3).err().unwrap();
    assert!(e.what == "`3`: column `s_0` reaches more than 1000000 times as far as those of most agents", "{e:?}");
    // Ranges that are given are those of everybody.
    assert_eq!(founded(&of(", ranges = { s_0 = [-1.0, 2.0] }"), &files, 4).unwrap().admissions.len(), 4);
    assert_eq!(founded(&of(""), &files[..3], 3).unwrap().admissions.len(), 3);
    // That of all numbers is the agent's own error.
    let e = founded(&of(""), &[strange("all.csv", "1.7e308"), strange("low.csv", "-1.7e308")], 2).err().unwrap();
    assert!(e.what.contains("`s_0`") && e.what.contains("e308"), "{e:?}");
}

/// The same columns in another order would be other features: the error names who has them and the first that differs.
#[test]
fn a_wrong_order_of_columns_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let table = |name: &str, header: &str| file(folder.path(), name, &format!("{header}\n1,2,3,0\n4,5,6,1\n7,8,1,0\n"));
    let rows = [table("a.csv", "age,bmi,dose,y"), table("b.csv", "age,dose,bmi,y"), table("c.csv", "age,bmi,dose,y")];
    let problem = "{ kind = \"logistic\", target = \"y\", ridge = 1e-2 }";
    let of_rows = made(&settings(problem, "{ kind = \"mean\" }", "{ kind = \"newton\" }", 3));
    let e = founded(&of_rows, &rows, 2).err().unwrap();
    assert!(e.what == "`1`: column 2 is `dose` in place of `bmi`" && e.help.contains("in the same order"), "{e:?}");
    let fewer = [rows[0].clone(), file(folder.path(), "d.csv", "age,bmi,y\n1,2,0\n4,5,1\n")];
    let e = founded(&of_rows, &fewer, 2).err().unwrap();
    assert!(e.what == "`1`: column 3 is none in place of `dose`", "{e:?}");
    // An agent that comes later reads the same.
    let mut membership = founded(&of_rows, &rows[..1], 1).unwrap().membership;
    let mut later = agent_of(&of_rows, &rows[1..2]).unwrap();
    let e = membership.take("later", &later.handle(&membership.invitation()).unwrap().unwrap()).unwrap_err();
    assert!(e.what == "column 2 is `dose` in place of `bmi`", "{e:?}");
}

/// What the results of a federation cannot answer is said before its first round, and what they can is not refused at its end.
#[test]
fn a_figure_and_checks_are_those_that_a_federation_can_answer() {
    let problem = "{ kind = \"garnet\", agents = 3, states = 8, features = 3, seed = 2 }";
    let text = settings(problem, "{ kind = \"iid\" }", "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 4 }", 5);
    let many = text.replace("local_steps = 4", "local_steps = 4, participants = 40");
    for (more, key, why) in [
        ("[figure]\ny = \"mse\"\n", "figure.y", "mse is not known"),
        ("[figure]\ny = [\"residual\", \"value_error\"]\n", "figure.y", "value_error is not known"),
        ("[[check]]\nkind = \"final\"\nmethod = \"scafflsa\"\nmetric = \"mse\"\nmax = 1.0\n", "check[0].metric", "mse is not known"),
        (
            "[[check]]\nkind = \"final\"\nmethod = \"scafflsa\"\nmetric = \"residual\"\nmax = 1.0\n",
            "check[0].metric",
            "residual is not known",
        ),
    ] {
        for text in [&text, &many] {
            let e = refused(&format!("{text}{more}"));
            assert!(e.key == key && e.what.starts_with(why) && e.what.contains("with the agents of a federation"), "{more}: {e:?}");
            assert!(e.place().is_some_and(|place| place.line.is_some_and(|line| line > 8)), "{e:?}");
        }
    }
    // What no experiment could draw or check, and what cannot be drawn where the start is given as numbers.
    let started = text.replace("[run]", "[run]\nstart = [0.1, 0.2, 0.3]");
    assert!(started != text);
    for (text, more, key) in [
        (&text, "[figure]\nx = \"foo\"\n", "figure.x"),
        (&text, "[figure]\ny = \"theta\"\n", "figure.y"),
        (&text, "[figure]\ny = \"lose\"\n", "figure.y"),
        (&text, "[[check]]\nkind = \"cost\"\nmethod = \"scafflsa\"\nmetric = \"residual\"\nmax = 1.0\n", "check[0]"),
        (&many, "[figure]\ny = [\"residual\", \"lose\"]\n", "figure.y"),
        (&started, "[figure]\ny = \"lose\"\n", "figure.y"),
        (&started, "[figure]\ny = \"mse\"\n", "figure.y"),
    ] {
        let e = refused(&format!("{text}{more}"));
        assert!(e.key.starts_with(key), "{more}: {e:?}");
    }
    let figure = "[figure]\ny = \"residual\"\nx = \"exchanges\"\n";
    let ran = results(&format!("{text}{figure}"), &[vec![], vec![], vec![]]);
    let out = tempfile::tempdir().unwrap();
    ran.write_into(out.path(), IfExists::Refuse, Vec::new()).unwrap();
    assert!(redraw(out.path(), &Changes::default(), &Kinds::default()).is_ok());
}
