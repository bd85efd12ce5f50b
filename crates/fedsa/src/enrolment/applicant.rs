//! The agent's side of enrolment.

use super::frame::{self, Kind};
use super::{Application, ColumnSummary, FederationNotice, Invitation, Terms};
use crate::error::{Error, Result};
use crate::federation::Federation;
use crate::protocol::refused;
use crate::secure::PublicKey;

/// An agent that applies to take part.
#[derive(Clone)]
pub struct Applicant {
    terms: Terms,
    application: Application,
}

/// The content of an agent's admission.
#[derive(Clone)]
#[non_exhaustive]
pub struct Admission {
    /// The federation, equal to the server's.
    pub federation: Federation,
    /// The agent's number.
    pub agent: usize,
    /// The columns of all agents.
    pub columns: Vec<ColumnSummary>,
}

impl Applicant {
    /// A hash of the agent's rows, columns, form and settings, which its admission repeats.
    pub fn mark(&self) -> u64 {
        self.application.mark()
    }

    /// Refuses an admission for other data.
    pub(super) fn check_mark(&self, mark: u64) -> Result<()> {
        if mark == self.mark() {
            return Ok(());
        }
        let help = "data with which the agent has applied: with others it applies anew, when the server invites it";
        Err(refused("an admission for other rows, columns or settings than this agent has now", help))
    }

    /// An agent with this many rows, which may determine its weight.
    #[must_use]
    pub fn new(terms: &Terms, rows: u64) -> Self {
        let application =
            Application { terms: terms.hashes(), agent: None, rows, weighted: None, dim: None, columns: Vec::new(), form: None, key: None };
        Self { terms: terms.clone(), application }
    }

    /// Claims a number; otherwise the server assigns one, in the order of applications. If fewer agents apply than there are numbers,
    /// agents with the highest numbers take unused lower ones.
    #[must_use]
    pub fn with_agent(mut self, agent: u32) -> Self {
        self.application.agent = Some(agent);
        self
    }

    /// Sets the sum of its rows' weights, if rows have weights: it then determines the agent's weight in place of the number of rows.
    #[must_use]
    pub fn with_weighted(mut self, weighted: Option<f64>) -> Self {
        self.application.weighted = weighted;
        self
    }

    /// Its rows.
    pub fn rows(&self) -> u64 {
        self.application.rows
    }

    /// Sets the dimension, if it does not depend on other agents' data.
    ///
    /// # Panics
    /// When it is 2^32 or more.
    #[must_use]
    pub fn with_dim(mut self, dim: usize) -> Self {
        self.application.dim = Some(u32::try_from(dim).expect("models have fewer than 2^32 components"));
        self
    }

    /// Sets summaries of its columns, if features depend on all agents' data.
    #[must_use]
    pub fn with_columns(mut self, columns: Vec<ColumnSummary>) -> Self {
        self.application.columns = columns;
        self
    }

    /// Sets its public key, which secure sums need.
    #[must_use]
    pub fn with_key(mut self, key: PublicKey) -> Self {
        self.application.key = Some(key);
        self
    }

    /// Sets the form of the model's inputs and outputs, such as names of columns and classes. The text must be the same for all agents; the
    /// server keeps it with the weights ([`super::Membership::form`]).
    #[must_use]
    pub fn with_form(mut self, form: String) -> Self {
        self.application.form = Some(form);
        self
    }

    /// Checks that the application does not exceed the length of messages.
    ///
    /// # Errors
    /// When its columns' names and values are too long together.
    pub fn check(&self) -> Result<()> {
        written(&self.application).map(|_| ())
    }

    /// Answers an invitation. The same invitation gets the same answer.
    ///
    /// # Errors
    /// When the bytes are damaged or not an invitation of this version; when settings differ, which are named; as [`Applicant::check`].
    pub fn apply(&self, invitation: &[u8]) -> Result<Vec<u8>> {
        let Invitation { terms, .. } = frame::read(Kind::Invitation, invitation)?;
        self.application.terms.check(&terms)?;
        written(&self.application)
    }

    /// Reads an admission.
    ///
    /// # Errors
    /// - The bytes are damaged, or not an admission of this version.
    /// - The admission is for other data.
    /// - The number is not the claimed one, although that exists.
    /// - The resulting federation differs from the server's.
    pub fn admitted(&self, bytes: &[u8]) -> Result<Admission> {
        let FederationNotice { agent, weights, start, columns, run, digest, keys, mark } = frame::read(Kind::Admission, bytes)?;
        self.check_mark(mark)?;
        // A claimed number beyond the number of agents was replaced.
        let claimed = self.application.agent.filter(|own| (*own as usize) < weights.len());
        if agent as usize >= weights.len() || claimed.is_some_and(|own| own != agent) {
            return Err(refused(format!("agent number {agent} of {} agents", weights.len()), "this agent's number"));
        }
        let federation = keyed(self.federation(&weights, start, &columns)?.of_run(run), keys)?;
        if federation.digest() != digest {
            return Err(refused("a federation with other settings", "one with this agent's settings"));
        }
        Ok(Admission { federation, agent: agent as usize, columns })
    }

    /// The federation with this start, these columns and these weights.
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

/// A federation with the announced public keys, if there are any.
pub(super) fn keyed(federation: Federation, keys: Vec<PublicKey>) -> Result<Federation> {
    if keys.is_empty() { Ok(federation) } else { federation.with_keys(keys).map_err(|e| refused(e.what.clone(), &e.help)) }
}

fn written(application: &Application) -> Result<Vec<u8>> {
    let bytes = frame::written(Kind::Application, application);
    if bytes.len() <= frame::LONGEST {
        return Ok(bytes);
    }
    let what = format!("names of columns, categories and labels of {} bytes", bytes.len());
    Err(Error::data("data", what, format!("{}; leave columns out, or give them shorter names", frame::ACCEPTED)))
}
