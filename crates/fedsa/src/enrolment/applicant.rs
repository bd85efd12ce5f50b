//! The agent's side of enrolment.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::frame::{self, Kind};
use super::{Application, ColumnSummary, FederationNotice, Invitation, Terms};
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::protocol::refused;

/// An agent that wants to take part.
#[derive(Clone)]
pub struct Applicant {
    terms: Terms,
    application: Application,
}

/// What an agent is told when it is admitted.
#[derive(Clone)]
#[non_exhaustive]
pub struct Admission {
    /// The federation, of which the server has the same.
    pub federation: Federation,
    /// The agent's number.
    pub agent: usize,
    /// The columns of all agents.
    pub columns: Vec<ColumnSummary>,
    /// That of the application with which it was admitted ([`Applicant::apply_with`]).
    pub mark: u64,
}

/// What an application says of the agent's state and data, and its admission repeats: by these the agent knows that it is meant for what it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Marks {
    /// Of the state with which it has applied ([`Applicant::apply_with`]).
    #[serde(with = "postcard::fixint::le")]
    pub state: u64,
    /// Of the data with which it has applied ([`Applicant::mark_of_data`]).
    #[serde(with = "postcard::fixint::le")]
    pub data: u64,
}

/// What an agent that has a state of a federation says with its application, and is told with its admission: by this it knows that the
/// admission is meant for this state. An agent without one has the mark 0.
pub fn mark_of(state: &[u8]) -> u64 {
    u64::from_le_bytes(*Sha256::digest(state).first_chunk().expect("32 bytes")).max(1)
}

impl Applicant {
    /// What tells the agent's data from others, as far as it says anything of them: its rows, columns and form, and its settings.
    pub fn mark_of_data(&self) -> u64 {
        mark_of(&frame::written(Kind::Application, &Application { agent: None, marks: Marks::default(), ..self.application.clone() }))
    }

    /// Those of an application with a state of which `state` is the mark.
    pub fn marks(&self, state: u64) -> Marks {
        Marks { state, data: self.mark_of_data() }
    }

    /// Refuses an admission for other data.
    pub(super) fn check_marks(&self, marks: Marks) -> Result<()> {
        if marks.data == self.mark_of_data() {
            return Ok(());
        }
        let help = "data with which the agent has applied: with others it applies anew, when the server invites it";
        Err(refused("an admission for other rows, columns or settings than this agent has now", help))
    }

    /// An agent with this many rows, by which it may be weighted.
    #[must_use]
    pub fn new(terms: &Terms, rows: u64) -> Self {
        let application =
            Application { terms: terms.hashes(), agent: None, rows, dim: None, columns: Vec::new(), form: None, marks: Marks::default() };
        Self { terms: terms.clone(), application }
    }

    /// Claims a number; otherwise the server gives it one, in the order of applications. Where fewer agents come than there are numbers, those
    /// with the highest ones take the places of those who have not.
    #[must_use]
    pub fn with_agent(mut self, agent: u32) -> Self {
        self.application.agent = Some(agent);
        self
    }

    /// Says the dimension, where that does not depend on other agents' data.
    ///
    /// # Panics
    /// When it is 2^32 or more.
    #[must_use]
    pub fn with_dim(mut self, dim: usize) -> Self {
        self.application.dim = Some(u32::try_from(dim).expect("models have fewer than 2^32 components"));
        self
    }

    /// Says what is known of its columns, where features are made of all agents' data.
    #[must_use]
    pub fn with_columns(mut self, columns: Vec<ColumnSummary>) -> Self {
        self.application.columns = columns;
        self
    }

    /// Says what the model's weights are to be applied to, such as names of columns and classes: a text that all agents must have the same, and
    /// that the server keeps with the weights ([`super::Membership::form`]).
    #[must_use]
    pub fn with_form(mut self, form: String) -> Self {
        self.application.form = Some(form);
        self
    }

    /// Refuses an application that is longer than messages may be.
    ///
    /// # Errors
    /// When the names of its columns, or what they hold, are too long together.
    pub fn check(&self) -> Result<()> {
        written(&self.application).map(|_| ())
    }

    /// Answers an invitation. The same invitation gets the same answer.
    ///
    /// # Errors
    /// When it is none of this version, was damaged, or its settings differ from those of this agent, which are named; as [`Applicant::check`].
    pub fn apply(&self, invitation: &[u8]) -> Result<Vec<u8>> {
        self.apply_with(invitation, 0)
    }

    /// [`Applicant::apply`] of an agent that has a state, of which `mark` is the [mark](mark_of): an admission with it is one to begin anew.
    ///
    /// # Errors
    /// As [`Applicant::apply`].
    pub fn apply_with(&self, invitation: &[u8], mark: u64) -> Result<Vec<u8>> {
        let Invitation { terms } = frame::read(Kind::Invitation, invitation)?;
        self.application.terms.check(&terms)?;
        written(&Application { marks: self.marks(mark), ..self.application.clone() })
    }

    /// Reads what the server tells an agent that takes part.
    ///
    /// # Errors
    /// When it is none of this version or was damaged; when it is for other data than the agent has; when the number is not the one that was
    /// claimed, though there is such a number; when the federation that follows is not the one that the server has.
    pub fn admitted(&self, bytes: &[u8]) -> Result<Admission> {
        let FederationNotice { agent, weights, start, columns, run, digest, marks } = frame::read(Kind::Admission, bytes)?;
        self.check_marks(marks)?;
        // A number that a federation of so few agents does not have is another one there.
        let claimed = self.application.agent.filter(|own| (*own as usize) < weights.len());
        if agent as usize >= weights.len() || claimed.is_some_and(|own| own != agent) {
            return Err(refused(format!("agent number {agent} of {} agents", weights.len()), "this agent's number"));
        }
        let federation = self.federation(&weights, start, &columns)?.of_run(run);
        if federation.digest() != digest {
            return Err(refused("a federation with other settings", "one with this agent's settings"));
        }
        Ok(Admission { federation, agent: agent as usize, columns, mark: marks.state })
    }

    /// The federation that was founded with this start and these columns, with these weights.
    pub(super) fn federation(&self, weights: &[f64], start: Vec<f64>, columns: &[ColumnSummary]) -> Result<Federation> {
        columns.iter().try_for_each(ColumnSummary::check)?;
        if self.application.dim.is_some_and(|own| own as usize != start.len()) {
            return Err(refused(format!("{} components", start.len()), "as many as this agent has said"));
        }
        let agreed = self.terms.agrees_on(&start);
        let federation = self.terms.federation(weights, start, columns).map_err(|e| refused(e.what.clone(), &e.help))?;
        if agreed { Ok(federation) } else { Err(refused("a federation with other settings", "one with this agent's settings")) }
    }
}

fn written(application: &Application) -> Result<Vec<u8>> {
    let bytes = frame::written(Kind::Application, application);
    if bytes.len() <= frame::LONGEST {
        return Ok(bytes);
    }
    let what = format!("names of columns, categories and labels of {} bytes", bytes.len());
    Err(Error::data("data", what, format!("{}; leave columns out, or give them shorter names", frame::ACCEPTED)))
}
