//! `fedsa agent`: one agent of a federation. It stays in memory and answers over a socket of this machine.
//!
//! Its state is on disk before an answer leaves, so that the process can be killed at any time and restarted.

#[cfg(unix)]
mod frames;
#[cfg(unix)]
mod state;

use fedsa::cancel::Cancel;
use fedsa::error::Error;
use fedsa_data::find::Places;
use fedsa_experiment::Kinds;
use fedsa_experiment::deployment::audit::Audit;
use fedsa_experiment::deployment::{Deployment, DisclosureRules, LocalAgent};

use super::load;
use crate::args::AgentArgs;

/// The record of what left the agent, in the folder of its state.
#[cfg(unix)]
const RECORD: &str = "audit.jsonl";

/// Runs the command. It returns only on failure; a signal ends the process.
///
/// # Errors
/// On bad input, when another process uses the state folder, and when the disk or the socket fails.
pub fn agent(args: &AgentArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (experiment, base) = load(&args.file, &args.overrides, false, kinds)?;
    let deployment = Deployment::new(experiment.document)?;
    let places = Places::from_env(&base);
    let (rules, number) = (DisclosureRules::read(args.rules.as_deref())?, args.agent.map(|n| n as u32));
    let agent = LocalAgent::with_rules(&deployment, &args.data, &places, number, rules, &Cancel::never())?;
    serve(args, agent)
}

#[cfg(not(unix))]
fn serve(_: &AgentArgs, _: LocalAgent) -> Result<u8, Error> {
    Err(Error::machine("sockets of this machine are not there on this system", "Linux or macOS, or nodes that load their agent themselves"))
}

#[cfg(unix)]
fn serve(args: &AgentArgs, mut agent: LocalAgent) -> Result<u8, Error> {
    let kept = state::StateFolder::open(&args.state)?;
    agent.set_audit(Audit::open(args.state.join(RECORD))?);
    let mut resident = Resident { agent, kept, quiet: args.quiet, answered: 0 };
    if let Some(bytes) = resident.kept.read()? {
        resident.agent.restore(&bytes).map_err(|e| resident.kept.named(e))?;
    }
    if args.leave {
        resident.agent.leave();
    }
    let path = args.socket.clone().unwrap_or_else(|| args.state.join("socket"));
    let listener = unix::listen(&path)?;
    resident.tell(&format!("ready: {}", path.display()));
    if let Some(refusal) = resident.agent.refusal() {
        super::warn(format!("it answers no message: {refusal}\n  help: {}", refusal.help));
    }
    if let Some(number) = resident.agent.number() {
        let what = if args.leave { "leaves" } else { "goes on" };
        resident.tell(&format!("{what} as agent {number}"));
    }
    unix::serve(&listener, &mut resident)
}

/// An agent with its state folder.
#[cfg(unix)]
struct Resident {
    agent: LocalAgent,
    kept: state::StateFolder,
    quiet: bool,
    /// The questions answered since the start of the process.
    answered: u64,
}

#[cfg(unix)]
impl Resident {
    fn tell(&self, line: &str) {
        if !self.quiet {
            super::say(line);
        }
    }

    /// Processes a message. When this returns, the state is on disk and the answer may leave.
    fn handle(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let before = self.agent.number();
        let answer = self.agent.handle(message)?;
        self.kept.write(&self.agent.save())?;
        if let (None, Some(number)) = (before, self.agent.number()) {
            self.tell(&format!("admitted as agent {number}"));
        }
        if let Some(answer) = &answer {
            self.answered += 1;
            if self.answered.is_power_of_two() || self.answered.is_multiple_of(1000) {
                self.tell(&format!("{}, the last of {} bytes", super::count(self.answered as usize, "answer"), answer.len()));
            }
        }
        Ok(answer)
    }
}

#[cfg(unix)]
mod unix {
    //! The socket.

    use std::fs::{self, Permissions};
    use std::io::ErrorKind;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::time::Duration;

    use fedsa::error::{Error, ErrorCode, ErrorKind as Kind};
    use fedsa_data::atomic;

    use super::frames::{Reply, read_request, write_reply};
    use super::{super::warn, Resident};

    /// The longest time between two bytes of a client, so that a killed client does not block others.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Who may connect: this user; in a folder with the setgid bit also the folder's group. A SuperNode can thus run as a user who cannot
    /// read the data, and apps of others that it runs reach nothing but the socket.
    fn mode_in(folder: &Path) -> u32 {
        let is_for_group = fs::metadata(folder).is_ok_and(|folder| folder.permissions().mode() & 0o2000 != 0);
        if is_for_group { 0o660 } else { 0o600 }
    }

    /// Listens at a path that only this user may access, or a group ([`mode_in`]). It replaces the socket of a killed process, and no
    /// other file.
    pub fn listen(path: &Path) -> Result<UnixListener, Error> {
        let failed = |e: std::io::Error| {
            let help = "--socket PATH, a path of at most 107 bytes in a folder that you may write to";
            Error::machine(format!("there can be no socket at {}: {e}", path.display()), help)
        };
        match atomic::at(path).map_err(failed)? {
            None => {}
            Some(found) if found.file_type().is_socket() => {
                if UnixStream::connect(path).is_ok() {
                    let what = format!("another process listens at {}", path.display());
                    return Err(Error::new("--socket", what, "another path, or stop that process"));
                }
                fs::remove_file(path).map_err(failed)?;
            }
            Some(found) => {
                let what = format!("{} is {}, which is not replaced", path.display(), atomic::kind_of(&found));
                return Err(Error::new("--socket", what, "another path"));
            }
        }
        // The socket gets its name only after its permissions are set, so that other users can never connect.
        let folder = atomic::folder_of(path);
        let hidden = folder.join(format!(".fedsa-{}", std::process::id()));
        let listener = UnixListener::bind(&hidden).map_err(failed)?;
        let named = fs::set_permissions(&hidden, Permissions::from_mode(mode_in(folder))).and_then(|()| fs::rename(&hidden, path));
        named.map_err(|e| {
            let _ = fs::remove_file(&hidden);
            failed(e)
        })?;
        Ok(listener)
    }

    /// Answers one client at a time.
    pub fn serve(listener: &UnixListener, resident: &mut Resident) -> Result<u8, Error> {
        loop {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => continue,
                Err(e) => return Err(Error::machine(format!("the socket failed: {e}"), "start the agent again")),
            };
            if let Err(e) = converse(stream, resident)? {
                warn(format!("a client was dropped: {e}"));
            }
        }
    }

    /// Answers the messages of a client until it disconnects. The inner result has the client's failures; the outer one has this machine's,
    /// which end the agent.
    fn converse(mut stream: UnixStream, resident: &mut Resident) -> Result<std::io::Result<()>, Error> {
        let prepared = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        if let Err(e) = prepared {
            return Ok(Err(e));
        }
        loop {
            let message = match read_request(&mut stream) {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(Ok(())),
                Err(e) => return Ok(Err(e)),
            };
            let (reply, failure) = match resident.handle(&message) {
                Ok(Some(answer)) => (Reply::Answer(answer), None),
                Ok(None) => (Reply::Nothing, None),
                Err(e) if e.kind() == Kind::Machine => (Reply::failed(&e), Some(e)),
                Err(e) => {
                    warn(format!("refused: {e}"));
                    if e.code() == ErrorCode::OtherState {
                        warn(format!("to begin again without this state, stop the agent and delete {}", resident.kept.path().display()));
                    }
                    (Reply::refused(&e), None)
                }
            };
            let written = write_reply(&mut stream, &reply);
            if let Some(e) = failure {
                return Err(e);
            }
            if let Err(e) = written {
                return Ok(Err(e));
            }
        }
    }
}
