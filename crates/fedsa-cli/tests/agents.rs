//! `fedsa agent`: agents that stay in memory, asked over sockets, killed and started again.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use fedsa::node::{ServerNode, Todo};
use fedsa_data::npz;
use fedsa_experiment::config::Document;
use fedsa_experiment::deployment::Deployment;

use crate::common::Folder;

/// Settings without data, with this problem and method.
fn settings(problem: &str, method: &str) -> String {
    format!(
        "id = \"t\"\ntitle = \"t\"\nproblem = {problem}\nsampling = {{ kind = \"iid\" }}\nmethod = [{method}]\n[run]\nrounds = 6\nseeds = [5]\n"
    )
}

const LOGS: &str = "{ kind = \"logs\", features = { kind = \"fourier\", order = 2 }, gamma = 0.9 }";
const SCAFFLSA: &str = "{ kind = \"scafflsa\", step_size = 0.1, local_steps = 5 }";

/// Three agents with logs, and the settings that name none.
fn with_logs() -> Folder {
    let folder = Folder::new();
    for agent in 0..3 {
        let mut text = String::from("s_0,reward,next_0,done\n");
        let state = |i: usize| (i as f64 * 0.37).sin() + agent as f64 * 0.3;
        for i in 0..40 + 15 * agent {
            text += &format!("{},{},{},{}\n", state(i), state(i) * state(i + 1), state(i + 1), i % 20 == 19);
        }
        folder.write(&format!("logs/log_{agent}.csv"), text);
    }
    folder.write("settings.toml", settings(LOGS, SCAFFLSA));
    folder.write("open.toml", "profile = \"none\"\n");
    folder
}

/// An agent as a process, which is killed when it is dropped.
struct Agent {
    process: Child,
    socket: std::path::PathBuf,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // With signal 9.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agent {
    fn start(folder: &Folder, number: usize) -> Self {
        Self::start_with(folder, number, &[])
    }

    fn start_with(folder: &Folder, number: usize, more: &[&str]) -> Self {
        // The rules would ask for declared ranges.
        Self::start_by(folder, number, &[&["--rules", "open.toml"], more].concat())
    }

    fn start_by(folder: &Folder, number: usize, more: &[&str]) -> Self {
        let state = format!("state {number}");
        let (log, n) = (format!("logs/log_{number}.csv"), number.to_string());
        let args = ["agent", "settings.toml", &log, "--state", &state, "--agent", &n];
        let mut process = folder.command(&[&args, more].concat()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready: "), "{line}");
        Self { process, socket: folder.path(&state).join("socket") }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// The tag of the reply and what it holds.
    fn ask(&self, message: &[u8]) -> (u8, Vec<u8>) {
        let mut stream = self.connect();
        stream.write_all(&[b"FA1", &(message.len() as u32).to_le_bytes()[..], message].concat()).unwrap();
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        let mut bytes = vec![0; u32::from_le_bytes(head[1..].try_into().unwrap()) as usize];
        stream.read_exact(&mut bytes).unwrap();
        (head[0], bytes)
    }
}

#[test]
fn agents_that_are_killed_at_any_time_give_the_numbers_of_one_run() {
    killed_at_any_time(SCAFFLSA);
}

/// Also between an answer and the seeds of its masks: keys and seeds are in the state.
#[test]
fn agents_that_are_killed_at_any_time_give_the_sums_of_one_run() {
    let secure = "uplink = { media = [{ kind = \"secure-sum\", bound = 100.0, bits = 40 }] }";
    killed_at_any_time(&SCAFFLSA.replace(" }", &format!(", {secure} }}")));
}

/// The agents answer from processes of their own, each of which is killed with signal 9 and started again after every message.
fn killed_at_any_time(method: &str) {
    let folder = with_logs();
    folder.write("settings.toml", settings(LOGS, method));
    let all = settings(&LOGS.replace("kind = \"logs\"", "kind = \"logs\", path = \"logs/*.csv\""), method);
    folder.write("all.toml", all);
    folder.run(&["run", "all.toml", "--out", "all", "-q"]).exits(0);
    let arrays = npz::from_bytes(&folder.read("all/theta.npz")).unwrap();
    let expected = arrays.iter().find(|(name, _)| *name == "scafflsa").unwrap().1.data().to_vec();

    let mut agents: Vec<Agent> = (0..3).map(|c| Agent::start(&folder, c)).collect();
    let mut ask = |c: usize, bytes: &[u8]| {
        let (tag, answer) = agents[c].ask(bytes);
        assert!(tag < 2, "{}", String::from_utf8_lossy(&answer));
        // The old process is gone before the new one begins.
        let restart = |agent: &mut Agent| {
            agent.process.kill().unwrap();
            agent.process.wait().unwrap();
            *agent = Agent::start(&folder, c);
        };
        restart(&mut agents[c]);
        answer
    };
    let deployment = Deployment::new(Document::parse("settings.toml", &folder.text("settings.toml")).unwrap()).unwrap();
    let mut enrolment = deployment.enrolment(3..=3).unwrap();
    let invitation = enrolment.invite(3);
    for c in 0..3 {
        enrolment.take(&format!("node {c}"), &ask(c, &invitation)).unwrap();
    }
    let enrolled = enrolment.close(deployment.dim(&enrolment).unwrap()).unwrap();
    enrolled.admissions.iter().for_each(|admission| assert!(ask(admission.agent, &admission.bytes).is_empty()));
    let mut server = ServerNode::new(&enrolled.federation).unwrap();
    for _ in 0..deployment.until().rounds {
        let mut todo = server.open();
        while let Todo::Ask { to, bytes } = &todo {
            let answers: Vec<_> = to.iter().zip(bytes).map(|(c, bytes)| (*c, ask(*c, bytes))).collect();
            let progress = server.receive(&answers);
            assert!(progress.refused.is_empty(), "{:?}", progress.refused);
            todo = progress.todo;
        }
    }
    assert_eq!(server.coordinator().output(), expected);
}

#[test]
fn a_socket_is_for_the_user_alone_and_survives_clients_that_are_not_ours() {
    let folder = with_logs();
    let agent = Agent::start(&folder, 0);
    let mode = |name: &str| folder.path(name).symlink_metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("state 0"), mode("state 0/socket")), (0o700, 0o600));
    // In a folder with the setgid bit the socket is for the folder's group too.
    std::fs::create_dir(folder.path("shared")).unwrap();
    std::fs::set_permissions(folder.path("shared"), std::fs::Permissions::from_mode(0o2750)).unwrap();
    let _shared = Agent::start_with(&folder, 1, &["--socket", "shared/socket"]);
    assert_eq!(mode("shared/socket"), 0o660);
    // One that goes at once, one that speaks another protocol, one that goes in the middle of a message.
    drop(agent.connect());
    agent.connect().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    agent.connect().write_all(b"FA1\x10\0\0\0half").unwrap();
    let (tag, why) = agent.ask(b"no message at all");
    assert_eq!(tag, 2, "{}", String::from_utf8_lossy(&why));
    let deployment = Deployment::new(Document::parse("settings.toml", &folder.text("settings.toml")).unwrap()).unwrap();
    assert_eq!(agent.ask(&deployment.enrolment(1..=1).unwrap().invite(1)).0, 1);
}

/// Whatever it is asked, an agent that leaves says so; started again without the option, it applies again.
#[test]
fn an_agent_leaves_and_comes_back() {
    let folder = with_logs();
    let deployment = Deployment::new(Document::parse("settings.toml", &folder.text("settings.toml")).unwrap()).unwrap();
    let invitation = deployment.enrolment(1..=1).unwrap().invite(1);
    let leaving = Agent::start_with(&folder, 0, &["--leave"]);
    let (tag, answer) = leaving.ask(&invitation);
    assert!(tag == 1 && fedsa::enrolment::is_farewell(&answer));
    drop(leaving);
    let (tag, answer) = Agent::start(&folder, 0).ask(&invitation);
    assert!(tag == 1 && !fedsa::enrolment::is_farewell(&answer));
}

#[test]
fn what_an_agent_cannot_have_is_refused() {
    let folder = with_logs();
    let agent = Agent::start(&folder, 0);
    let refused = |args: &[&str]| folder.run(&[&["agent", "settings.toml"], args].concat()).exits(2).message();
    assert!(refused(&["logs/log_1.csv", "--state", "state 0"]).contains("that of an agent that runs"));
    let socket = folder.path("state 0/socket").display().to_string();
    assert!(refused(&["logs/log_1.csv", "--state", "s1", "--socket", &socket]).contains("another process listens"));
    folder.write("mine", "mine");
    assert!(refused(&["logs/log_1.csv", "--state", "s1", "--socket", "mine"]).contains("a file, which is not replaced"));
    assert_eq!(folder.text("mine"), "mine");
    assert!(refused(&["logs/none.csv", "--state", "s1"]).contains("none.csv"));
    assert!(refused(&["--state", "s2"]).contains("no data"));
    assert!(!folder.path("s2").exists());
    drop(agent);
    // A state of other settings stays where it is.
    let garnet = "{ kind = \"garnet\", agents = 3, states = 8, features = 3 }";
    folder.write("settings.toml", settings(garnet, SCAFFLSA));
    folder.write("s3/agent.state", b"not a state");
    let message = refused(&["--state", "s3"]);
    assert!(message.contains("s3/agent.state is damaged or not ours: ") && message.contains("another --state"), "{message}");
    assert_eq!(folder.text("s3/agent.state"), "not a state");
}

#[test]
fn an_app_for_flower_is_written_once() {
    let folder = with_logs();
    folder.run(&["federation", "new", "my-robots", "--agents", "5", "--settings", "settings.toml"]).exits(0).says("README.md");
    let written = folder.text("my-robots/settings.toml");
    let server = format!("\n[federation]\nagents = 5\nout = \"{}\"\n", folder.path("my-robots/out").display());
    assert!(written.starts_with(&folder.text("settings.toml")) && written.ends_with(&server), "{written}");
    let run = folder.text("my-robots/pyproject.toml");
    let run: toml::Table = run.parse().unwrap();
    let config = run["tool"]["flwr"]["app"]["config"].as_table().unwrap();
    assert_eq!(config.keys().collect::<Vec<_>>(), ["data", "state"], "settings of the server are in one place");
    assert_eq!(run["project"]["name"].as_str(), Some("my-robots"));
    let before = folder.everything();
    assert!(folder.run(&["federation", "new", "my-robots"]).exits(2).message().contains("is there already"));
    assert!(folder.run(&["federation", "new", "My Robots"]).exits(2).message().contains("no name of an app"));
    // Settings that cannot be deployed.
    folder.write("two.toml", folder.text("settings.toml").replace("seeds = [5]", "seeds = [5, 6]"));
    assert!(
        folder.run(&["federation", "new", "other", "--settings", "two.toml"]).exits(2).message().contains("a federation runs one seed")
    );
    assert!(!folder.path("other").exists());
    std::fs::remove_file(folder.path("two.toml")).unwrap();
    assert_eq!(folder.everything(), before);
}

/// Tables of three sites.
fn with_sites() -> Folder {
    let folder = Folder::new();
    for site in 0..3 {
        let rows: String = (0..20 + 10 * site).map(|i| format!("{},{},{}\n", i % 7, i % 3, 2 * (i % 7) + site + i % 2)).collect();
        folder.write(&format!("site_{site}.csv"), format!("a,b,y\n{rows}"));
    }
    folder
}

const FIT: [&str; 9] = ["fit", "site_0.csv", "site_1.csv", "site_2.csv", "--model", "least-squares", "--target", "y", "--federation"];

/// The settings are those of the fit, without the data, and can be checked where the data are not.
#[test]
fn a_fit_writes_the_app_of_a_federation() {
    let folder = with_sites();
    folder.run(&[&FIT[..], &["sites", "--partition", "files"]].concat()).exits(0).says("for 3 agents");
    let settings = folder.text("sites/settings.toml");
    assert!(
        settings.contains("kind = \"least-squares\"") && settings.contains("weighting = \"rows\"") && !settings.contains("site_"),
        "{settings}"
    );
    assert!(settings.contains("agents = 3\n") && !folder.path("out").exists(), "{settings}");
    folder.run(&["check", "sites/settings.toml"]).exits(0).says("the file names no data").says("not checked: rows");
    let json: serde_json::Value = serde_json::from_str(&folder.run(&["check", "sites/settings.toml", "--json"]).exits(0).stdout).unwrap();
    assert_eq!((&json["federation"], &json["accepted"]), (&true.into(), &true.into()));
    folder.run(&[&FIT[..], &["dealt"]].concat()).exits(0).says("the rows of a machine are those of one agent");
    for (app, options, what) in [("told", &["--agents", "2"][..], "--agents"), ("untold", &[], "fedsa")] {
        let note = format!("note: {what} divides rows among agents in one process; ");
        folder.run(&[&FIT[..], &[app], options].concat()).exits(0).says(&note);
    }
    // The configuration of a run names data, which are not read.
    folder.run(&[&FIT[..8], &["--partition", "files", "--out", "ran"]].concat()).exits(0);
    folder.run(&["federation", "new", "again", "--settings", "ran/config.toml"]).exits(0).says("`problem.data` names data");
}

/// The list has the texts of the refusals.
#[test]
fn what_a_federation_cannot_do_yet_is_listed_and_refused_by_option() {
    let folder = with_sites();
    let list = folder.run(&["federation", "limits"]).exits(0).stdout;
    for (options, name, why) in [
        (&["--pca", "1"][..], "--pca", "principal components need the rows of all agents"),
        (&["--compare", "lbfgs"], "--compare", "a federation runs one method"),
    ] {
        let message = folder.run(&[&FIT[..], &["none", "--method", "newton"], options].concat()).exits(2).message();
        assert!(message.contains(name) && message.contains(why) && list.contains(why), "{message}");
    }
    assert!(!folder.path("none").exists());
}

/// The rules of the machine refuse ranges from its data, and the record has the refusal and no data.
#[test]
fn an_agent_with_rules_says_which_one_its_data_break() {
    let folder = with_logs();
    folder.write("rules.toml", "least_rows = 5\nleast_episodes = 2\n");
    let start = |rules: &str| Agent::start_by(&folder, 0, &["--rules", rules]);
    let deployment = Deployment::new(Document::parse("settings.toml", &folder.text("settings.toml")).unwrap()).unwrap();
    let invitation = deployment.enrolment(1..=1).unwrap().invite(1);
    let (tag, why) = start("rules.toml").ask(&invitation);
    let why = String::from_utf8(why).unwrap();
    assert!(tag == 2 && why.starts_with("disclosure.undeclared: the features need the range of the column `s_0`"), "{why}");
    let (tag, _) = start("open.toml").ask(&invitation);
    assert_eq!(tag, 1);
    let printed = folder.run(&["audit", "state 0/audit.jsonl"]).exits(0).stdout;
    assert!(printed.contains("refusal") && printed.contains("disclosure.undeclared") && printed.contains("application"), "{printed}");
    assert!(printed.contains("2 lines, the chain holds; its last hash is "), "{printed}");
    let record = folder.text("state 0/audit.jsonl");
    folder.write("changed.jsonl", record.replacen("refusal", "answer", 1));
    let message = folder.run(&["audit", "changed.jsonl"]).exits(2).message();
    assert!(message.contains("line 2: its chain is"), "{message}");
    let message = folder.run(&["agent", "settings.toml", "logs/log_0.csv", "--state", "s", "--rules", "settings.toml"]).exits(2).message();
    assert!(message.contains("rules"), "{message}");
}
