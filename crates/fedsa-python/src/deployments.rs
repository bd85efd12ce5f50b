//! Federations of agents with their own data: settings, enrolment, membership, agents, results.

use std::path::PathBuf;
use std::sync::Mutex;

use fedsa::coordinator::Accepted;
use fedsa::enrolment;
use fedsa::error::Error;
use fedsa_data::find::Places;
use fedsa_experiment::config::Document;
use fedsa_experiment::config::document::{Caller, Words};
use fedsa_experiment::deployment::{self, DeployedRun};
use fedsa_experiment::results::Recorded;
use fedsa_experiment::run::IfExists;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert;
use crate::engine;
use crate::nodes::{Federation, ServerNode};
use crate::results::RanResults;
use crate::turns::locked;

/// The common settings of server and agents.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Deployment(deployment::Deployment);

#[pymethods]
impl Deployment {
    /// The settings of a file, with these keys of `[federation]` replaced.
    #[new]
    fn new(py: Python<'_>, text: &str, name: &str, waiting: &Bound<'_, PyDict>) -> PyResult<Self> {
        let waiting = convert::table(waiting)?;
        engine::brief(py, || {
            let mut document = Document::parse(name, text)?;
            for (key, value) in &waiting {
                document.set_value(&format!("federation.{key}"), value, Caller::new("the call", Words::default()))?;
            }
            Ok(Self(deployment::Deployment::new(document)?))
        })
    }

    /// The number of rounds.
    #[getter]
    fn rounds(&self) -> u64 {
        self.0.until().rounds
    }

    /// Whether the federation ends early at a target.
    #[getter]
    fn has_target(&self) -> bool {
        self.0.has_target()
    }

    /// Whether a target is reached at the end of the last of these rounds, from round 0.
    fn has_reached(&self, residuals: Vec<Option<f64>>) -> bool {
        self.0.has_reached(&residuals)
    }

    /// `[federation]` as JSON.
    fn waiting(&self) -> String {
        serde_json::to_string(self.0.waiting()).expect("plain data serialises")
    }

    /// The server's side of enrolment.
    fn enrolment(&self, py: Python<'_>) -> PyResult<Enrolment> {
        let made = engine::brief(py, || self.0.enrolment(self.0.waiting().range()))?;
        Ok(Enrolment { deployment: self.0.clone(), enrolment: Mutex::new(made) })
    }

    /// The membership of a saved state.
    fn membership(&self, py: Python<'_>, state: &[u8]) -> PyResult<Membership> {
        Ok(Membership(Mutex::new(engine::brief(py, || self.0.membership(self.0.waiting().range(), state))?)))
    }

    /// An agent with its own data, and with the disclosure rules of this file.
    #[pyo3(signature = (data, base, number, rules))]
    fn agent(&self, py: Python<'_>, data: Vec<String>, base: PathBuf, number: Option<u32>, rules: Option<PathBuf>) -> PyResult<LocalAgent> {
        let made = engine::call(py, None, None, |_, cancel| {
            let rules = deployment::DisclosureRules::read(rules.as_deref())?;
            deployment::LocalAgent::with_rules(&self.0, &data, &Places::from_env(base), number, rules, cancel)
        })?;
        Ok(LocalAgent(Mutex::new(made)))
    }

    /// The questions about sums after the last round of a server; `None` if there is nothing to ask.
    fn afterwards(&self, py: Python<'_>, server: &ServerNode, membership: &Membership) -> PyResult<Option<Afterwards>> {
        let made = engine::brief(py, || {
            let membership = locked(&membership.0);
            server.with(|server| self.0.afterwards(&membership, server.coordinator().output()))
        })?;
        Ok(made.map(|made| Afterwards(Mutex::new(made))))
    }

    /// The results of the rounds recorded by a server, each with the residual at its end, if known, the seconds until
    /// then, and the share of the weight without an answer.
    #[expect(clippy::too_many_arguments, reason = "what a server has recorded")]
    fn results(
        &self,
        py: Python<'_>,
        server: &ServerNode,
        rows: Vec<RecordedRound>,
        seconds: f64,
        told: &str,
        membership: &Membership,
        after: Option<&Afterwards>,
    ) -> PyResult<RanResults> {
        engine::brief(py, || {
            let row = |(row, residual, seconds, missing): &RecordedRound| {
                let mut row = recorded(row)?;
                (row.seen.residual, row.seen.missing_weight) = (*residual, *missing);
                row.seconds = Some(*seconds);
                Ok(row)
            };
            let rows = rows.iter().map(row).collect::<Result<Vec<Recorded>, Error>>()?;
            let told = serde_json::from_str(told).map_err(|e| Error::data("told", e.to_string(), "JSON"))?;
            server.with(|server| {
                let coordinator = server.coordinator();
                let ended = DeployedRun::new(rows, coordinator.output().to_vec(), coordinator.diverged(), seconds).with_told(told);
                let ended = ended.with_members(&locked(&membership.0)).with_clipped(coordinator.clipped());
                let mut ran = self.0.results(coordinator.federation(), ended)?;
                if let Some(after) = after {
                    locked(&after.0).add_to(&mut ran);
                }
                Ok(RanResults(ran))
            })
        })
    }

    /// The number of a recorded round.
    #[staticmethod]
    fn recorded_round(py: Python<'_>, row: &[u8]) -> PyResult<u64> {
        engine::brief(py, || Ok(recorded(row)?.round))
    }

    /// Writes results into a folder, with the weights and everything needed to apply them.
    fn write(
        &self,
        py: Python<'_>,
        results: &RanResults,
        membership: &Membership,
        after: Option<&Afterwards>,
        folder: PathBuf,
        overwrite: bool,
    ) -> PyResult<()> {
        let if_exists = if overwrite { IfExists::Overwrite } else { IfExists::Refuse };
        engine::brief(py, || {
            let after = after.map(|after| locked(&after.0));
            let weights = self.0.weights(&locked(&membership.0), &results.0, after.as_deref())?;
            let files = weights.map(|weights| (self.0.weights_name().to_string(), format!("{weights:#}\n").into_bytes()));
            results.0.write_into(&folder, if_exists, files.into_iter().collect())
        })
    }
}

/// A recorded round, with the residual at its end, if known, the seconds until then, and the share of the weight without an answer.
type RecordedRound = (Vec<u8>, Option<f64>, f64, Option<f64>);

/// The questions about sums after the last round.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Afterwards(Mutex<deployment::Afterwards>);

#[pymethods]
impl Afterwards {
    /// The open question to every agent that waits, if there is one.
    fn question<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        locked(&self.0).question().map(|question| PyBytes::new(py, question))
    }

    /// The agents that have not answered it.
    fn waiting(&self) -> Vec<usize> {
        locked(&self.0).waiting()
    }

    /// Takes an answer.
    fn take(&self, py: Python<'_>, agent: usize, answer: &[u8]) -> PyResult<()> {
        engine::brief(py, || locked(&self.0).take(agent, answer))
    }

    /// Asks nothing further, for this reason.
    fn give_up(&self, why: &str) {
        locked(&self.0).give_up(why);
    }

    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.0).save())
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        engine::brief(py, || locked(&self.0).restore(state))
    }
}

/// The server's side of enrolment.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Enrolment {
    deployment: deployment::Deployment,
    enrolment: Mutex<enrolment::Enrolment>,
}

#[pymethods]
impl Enrolment {
    /// The invitation to `count` agents.
    fn invite<'py>(&self, py: Python<'py>, count: usize) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.enrolment).invite(count))
    }

    /// Takes an application, and returns whether it is new.
    fn take(&self, py: Python<'_>, sender: &str, application: &[u8]) -> PyResult<bool> {
        engine::brief(py, || Ok(self.deployment.take(&mut locked(&self.enrolment), sender, application)? == Accepted::Counted))
    }

    /// Removes the application of a sender, if there is one.
    fn withdraw(&self, sender: &str) {
        locked(&self.enrolment).withdraw(sender);
    }

    fn applied(&self) -> Vec<String> {
        locked(&self.enrolment).applied().map(str::to_string).collect()
    }

    #[getter]
    fn has_enough(&self) -> bool {
        locked(&self.enrolment).has_enough()
    }

    #[getter]
    fn is_full(&self) -> bool {
        locked(&self.enrolment).is_full()
    }

    /// Founds the federation of the applicants.
    fn close(&self, py: Python<'_>) -> PyResult<Membership> {
        let enrolled = engine::brief(py, || self.deployment.found(&locked(&self.enrolment)))?;
        Ok(Membership(Mutex::new(enrolled.membership)))
    }

    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.enrolment).save())
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        engine::brief(py, || locked(&self.enrolment).restore(state))
    }
}

/// The agents that take part, from epoch to epoch.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct Membership(Mutex<enrolment::Membership>);

#[pymethods]
impl Membership {
    fn federation(&self) -> Federation {
        Federation(locked(&self.0).federation().clone())
    }

    /// The number of changes of the membership.
    #[getter]
    fn epoch(&self) -> u64 {
        locked(&self.0).federation().epoch()
    }

    /// The agents by number: name, rows, and weight.
    fn members(&self) -> Vec<(String, u64, f64)> {
        let membership = locked(&self.0);
        let weights = membership.federation().weights();
        membership.members().iter().zip(weights).map(|(one, p)| (one.sender.clone(), one.rows, *p)).collect()
    }

    /// The applicants for the next epoch.
    fn waiting(&self) -> Vec<String> {
        locked(&self.0).waiting().iter().map(|one| one.sender.clone()).collect()
    }

    fn invitation<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.0).invitation())
    }

    /// The message that informs an agent about this epoch; `knows` says whether it knows an earlier one.
    fn told<'py>(&self, py: Python<'py>, agent: usize, knows: bool) -> Bound<'py, PyBytes> {
        let membership = locked(&self.0);
        PyBytes::new(py, &if knows { membership.announcement(agent) } else { membership.admission(agent) })
    }

    /// Takes an application for the next epoch, and returns whether it is new.
    fn take(&self, py: Python<'_>, sender: &str, application: &[u8]) -> PyResult<bool> {
        engine::brief(py, || Ok(locked(&self.0).take(sender, application)? == Accepted::Counted))
    }

    /// The next epoch, and the previous numbers of its agents.
    fn next_epoch(&self, py: Python<'_>, leaving: Vec<String>) -> PyResult<(Membership, Vec<Option<usize>>)> {
        let leaving: Vec<&str> = leaving.iter().map(String::as_str).collect();
        let (next, from) = engine::brief(py, || locked(&self.0).next_epoch(&leaving))?;
        Ok((Self(Mutex::new(next)), from))
    }

    fn save<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &locked(&self.0).save())
    }
}

/// A server's record of a round.
fn recorded(row: &[u8]) -> Result<Recorded, Error> {
    postcard::from_bytes(row).map_err(|_| Error::format("saved rounds", "not the rounds of a federation", "what this version saved"))
}

/// Whether bytes are an agent's final leave.
#[pyfunction]
pub fn is_farewell(answer: &[u8]) -> bool {
    enrolment::is_farewell(answer)
}

/// What other machines may read of an error with this code, key, text and help.
#[pyfunction]
pub fn for_others(code: &str, key: &str, what: &str, help: &str) -> String {
    fedsa::error::for_others(code, key, what, help)
}

/// An agent with its own data.
#[pyclass(frozen, module = "fedsa._fedsa")]
pub struct LocalAgent(Mutex<deployment::LocalAgent>);

#[pymethods]
impl LocalAgent {
    /// Processes a message, and returns the answer, if any.
    fn handle<'py>(&self, py: Python<'py>, message: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message = message.to_vec();
        let answer = engine::brief(py, || locked(&self.0).handle(&message))?;
        Ok(answer.map(|answer| PyBytes::new(py, &answer)))
    }

    /// Records all that leaves the agent in this file.
    fn record(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        engine::brief(py, || {
            let audit = deployment::audit::Audit::open(path)?;
            locked(&self.0).set_audit(audit);
            Ok(())
        })
    }

    /// From now on the agent answers every message with its leave.
    fn leave(&self) {
        locked(&self.0).leave();
    }

    /// Its number; `None` before it is admitted.
    #[getter]
    fn number(&self) -> Option<usize> {
        locked(&self.0).number()
    }

    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &engine::brief(py, || Ok(locked(&self.0).save()))?))
    }

    fn restore(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        let state = state.to_vec();
        engine::brief(py, || locked(&self.0).restore(&state))
    }
}
