//! Sessions over a Python carrier. The library's session runs on its own thread, and sends messages to carry to the calling thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use fedsa::cancel::Cancel;
use fedsa::error::{Error, Result, require};
use fedsa::federation;
use fedsa::node;
use fedsa::session::{self, Nodes, Observer, Quorum, Recorded, StoppingCriteria, Transport};
use fedsa::uplink::Uplink;
use fedsa_methods::fedlsa::FedLsa;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::engine::{self, Calls};
use crate::errors::{OrRaise, exception};
use crate::nodes::{AgentData, Said, ServerNode, put_counts, put_metrics};
use crate::threads;
use crate::turns::{Turn, Turns, locked};

/// A session's requests to Python.
enum Call {
    /// Carry these messages, and return the answers until a deadline, if any.
    Carry { messages: Vec<(usize, Arc<[u8]>)>, deadline: Option<Instant> },
    /// Report a refused answer.
    Refused(usize, Error),
}

/// The session's end of the channel to Python.
struct Line {
    calls: Calls<Call>,
    said: Receiver<Said>,
}

/// Carries messages through Python.
#[derive(Default)]
struct Bridge {
    available: Option<Vec<usize>>,
    line: Option<Line>,
    turns: Option<Arc<Turns>>,
    /// The turn to call Python operators for metrics; agents have it while the session waits for their answers.
    turn: Option<Turn>,
}

/// The error when messages are no longer carried; the caller already has the reason as an exception.
fn gone() -> Error {
    Error::cancelled("the carrier has raised an exception", "the same call again")
}

impl Bridge {
    fn carry(
        &mut self,
        server: &node::ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        deadline: Option<Instant>,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        self.turn = None;
        let line = self.line.as_ref().ok_or_else(gone)?;
        let messages = to.iter().copied().zip(bytes.iter().cloned()).collect();
        line.calls.send(Some(Call::Carry { messages, deadline })).map_err(|_| gone())?;
        let answers = loop {
            match line.said.recv() {
                Ok(Said::Read(read)) => read(server),
                Ok(Said::Answers(answers)) => break answers,
                Ok(Said::Failed) | Err(_) => return Err(gone()),
            }
        };
        self.turn = self.turns.as_ref().map(Turns::take);
        Ok(answers)
    }
}

impl Transport for Bridge {
    fn reachable(&mut self) -> Option<Vec<usize>> {
        self.available.clone()
    }
    fn exchange(
        &mut self,
        server: &node::ServerNode,
        to: &[usize],
        bytes: &[Arc<[u8]>],
        deadline: Option<Instant>,
        _: &Cancel,
    ) -> Result<Vec<(usize, Vec<u8>)>> {
        self.carry(server, to, bytes, deadline)
    }
    fn tell(&mut self, server: &node::ServerNode, to: &[usize], bytes: &[Arc<[u8]>]) -> Result<()> {
        self.carry(server, to, bytes, None).map(drop)
    }
    fn refused(&mut self, agent: usize, reason: &Error) {
        if let Some(line) = &self.line {
            let _ = line.calls.send(Some(Call::Refused(agent, reason.clone())));
        }
    }
}

/// The recorded rounds, readable while the session runs.
struct Rows(Arc<Mutex<Vec<Recorded>>>);

impl Observer for Rows {
    fn recorded(&mut self, row: &Recorded) {
        locked(&self.0).push(*row);
    }
}

type Inner = session::Session<Nodes<Bridge>>;

/// A server that runs over a carrier.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Session {
    /// The session, without its server while it does not run.
    inner: Mutex<Inner>,
    server: Py<ServerNode>,
    rows: Arc<Mutex<Vec<Recorded>>>,
    /// The targets.
    until: StoppingCriteria,
    calls_back: bool,
}

/// A placeholder for a server that is lent.
fn nobody() -> Result<node::ServerNode> {
    let federation = federation::Federation::new(&FedLsa::new(1.0, 1), &Uplink::default(), vec![1.0], 0, vec![0.0])?;
    node::ServerNode::new(&federation)
}

/// A session that has its server.
struct Lent<'a> {
    inner: MutexGuard<'a, Inner>,
    server: &'a ServerNode,
    nobody: Option<node::ServerNode>,
}

impl<'a> Lent<'a> {
    /// Takes the server, which others then read through this channel.
    fn new(py: Python<'_>, session: &'a Session, line: Sender<Said>) -> Result<Self> {
        let inner = match session.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::new("session", "it goes on already", "a call after that of Session.advance"));
            }
        };
        let server = session.server.get();
        // Other users of the server may wait for the interpreter's lock.
        let nobody = Some(py.detach(|| server.lend(line))?);
        let mut lent = Self { inner, server, nobody };
        lent.swap();
        Ok(lent)
    }

    fn swap(&mut self) {
        if let Some(nobody) = &mut self.nobody {
            std::mem::swap(self.inner.carrier_mut().server_mut(), nobody);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let bridge = self.inner.carrier_mut().transport();
        (bridge.line, bridge.turn, bridge.available) = (None, None, None);
        self.swap();
        if let Some(server) = self.nobody.take() {
            self.server.give_back(server);
        }
    }
}

#[pymethods]
impl Session {
    /// A session with targets by name: `mse`, `residual`, `gap`. An exchange waits for `patience` seconds, needs `least` answers, and is
    /// repeated up to `repeats` times.
    #[new]
    fn new(
        py: Python<'_>,
        server: Py<ServerNode>,
        data: Option<&AgentData>,
        stop: (Option<f64>, Option<f64>, Option<f64>),
        patience: Option<f64>,
        quorum: (usize, u32),
    ) -> PyResult<Self> {
        let calls_back = data.is_some_and(|data| data.calls_back);
        let mut until = StoppingCriteria::default();
        (until.mse, until.residual, until.gap) = stop;
        let metrics = engine::call_back(py, calls_back, None, None, |_, _| {
            let of_server = |server: &mut node::ServerNode| {
                let federation = server.coordinator().federation();
                require(
                    quorum.0 <= federation.agents(),
                    "least_answers",
                    quorum.0,
                    &format!("at most the agents, {}", federation.agents()),
                )?;
                data.map_or(Ok(()), |data| data.suits(federation))
            };
            server.get().with(of_server)?;
            let _turn = data.and_then(AgentData::turns).as_ref().map(Turns::take);
            let metrics = data.map(AgentData::known);
            until.check(metrics.map(|metrics| &**metrics))?;
            Ok(metrics.cloned())
        })?;
        let bridge = Bridge { turns: data.and_then(AgentData::turns), ..Bridge::default() };
        let made = || {
            let mut nobody = nobody()?;
            // Others cannot read it until it is back.
            let lent = server.get().lend(channel().0)?;
            let nodes = Nodes::new(lent, bridge).needing(Quorum::Agents(quorum.0), quorum.1)?;
            let nodes = match patience {
                Some(seconds) => nodes.waiting(Duration::from_secs_f64(seconds)),
                None => nodes,
            };
            let mut inner = session::Session::new(nodes);
            std::mem::swap(inner.carrier_mut().server_mut(), &mut nobody);
            server.get().give_back(nobody);
            Ok(match metrics {
                Some(metrics) => inner.with_metrics(metrics),
                None => inner,
            })
        };
        let inner = Mutex::new(py.detach(made).or_raise(py)?);
        Ok(Self { inner, server, rows: Arc::default(), until, calls_back })
    }

    /// Runs further rounds with the available agents, and returns how it ended. `carry` takes messages by agent and the remaining seconds,
    /// and returns answers with their agents; `refused` takes an agent and an exception.
    fn advance(
        &self,
        py: Python<'_>,
        rounds: u64,
        available: Option<Vec<usize>>,
        carry: Bound<'_, PyAny>,
        refused: Option<Bound<'_, PyAny>>,
    ) -> PyResult<&'static str> {
        engine::refuse_inside(py)?;
        let (say, said) = channel();
        let mut lent = Lent::new(py, self, say.clone()).or_raise(py)?;
        let coordinator = lent.inner.carrier().server().coordinator();
        let n = coordinator.federation().agents();
        if let Some(c) = available.iter().flatten().find(|c| **c >= n) {
            return Err(Error::new("available", format!("agent {c} of {n} agents"), format!("agents below {n}"))).or_raise(py);
        }
        let mut until = self.until;
        until.rounds = coordinator.rounds().saturating_add(rounds);
        lent.inner.carrier_mut().transport().available = available;
        let pool = if self.calls_back { threads::alone() } else { threads::beside() }.or_raise(py)?;
        let (inner, mut rows) = (&mut *lent.inner, Rows(Arc::clone(&self.rows)));
        let work = |_: &engine::Progress, token: &Cancel, calls: Calls<Call>| {
            let bridge = inner.carrier_mut().transport();
            bridge.line = Some(Line { calls, said });
            bridge.turn = bridge.turns.as_ref().map(Turns::take);
            Ok(inner.advance(&until, token, &mut rows)?.name())
        };
        let (carry, refused) = (carry.unbind(), refused.map(Bound::unbind));
        let answer = |py: Python<'_>, call: Call, has_failed: bool| match call {
            Call::Carry { .. } if has_failed => {
                let _ = say.send(Said::Failed);
                Ok(())
            }
            Call::Carry { messages, deadline } => {
                let answers = carried(py, &carry, messages, deadline);
                let _ = say.send(answers.as_ref().map_or(Said::Failed, |answers| Said::Answers(answers.clone())));
                answers.map(drop)
            }
            Call::Refused(agent, reason) => match &refused {
                Some(refused) if !has_failed => refused.call1(py, (agent, exception(py, &reason))).map(drop),
                _ => Ok(()),
            },
        };
        engine::converse(py, (&pool, self.calls_back), (None, None), work, answer)
    }

    /// The recorded rounds from this index on: counts and metrics by name.
    fn recorded<'py>(&self, py: Python<'py>, from: usize) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let rows: Vec<Recorded> = locked(&self.rows).iter().skip(from).copied().collect();
        let of = |row: &Recorded| {
            let out = PyDict::new(py);
            out.set_item("round", row.round)?;
            put_counts(&out, row.round, &row.ledger)?;
            put_metrics(&out, &row.seen)?;
            Ok(out)
        };
        rows.iter().map(of).collect()
    }
}

/// Answers, each with its agent.
type Answers = Vec<(usize, Vec<u8>)>;

/// Carries messages through Python.
fn carried(py: Python<'_>, carry: &Py<PyAny>, messages: Vec<(usize, Arc<[u8]>)>, deadline: Option<Instant>) -> PyResult<Answers> {
    let by_agent = PyDict::new(py);
    for (agent, bytes) in messages {
        by_agent.set_item(agent, PyBytes::new(py, &bytes))?;
    }
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_secs_f64());
    carry.call1(py, (by_agent, left))?.extract(py)
}
