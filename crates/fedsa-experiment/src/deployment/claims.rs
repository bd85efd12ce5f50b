//! Checks of an application's claims before the server allocates anything of the claimed size.

use fedsa::coordinator::Accepted;
use fedsa::enrolment::{Claim, Enrolment};
use fedsa::error::{Error, Result, quoted};

use super::{Deployment, Source, levels};

impl Deployment {
    /// Takes an application ([`Enrolment::take`]), unless the model of its columns alone is too large for any federation or for the
    /// available memory.
    ///
    /// # Errors
    /// As [`Enrolment::take_if`]; names the agent and the size.
    pub fn take(&self, enrolment: &mut Enrolment, sender: &str, bytes: &[u8]) -> Result<Accepted> {
        let least = enrolment.least();
        enrolment.take_if(sender, bytes, |claim| {
            let named = |e: Error| Error::refused_message(format!("the application of `{}`: {}", quoted(sender), e.what), e.help);
            self.check_claim(least, claim).map_err(named)
        })
    }

    /// Refuses one agent's columns that make a model too large for a server of this many agents. Other agents' columns can only enlarge it.
    fn check_claim(&self, agents: usize, claim: Claim<'_>) -> Result<()> {
        let dim = match (self.source, claim.form) {
            (Source::Rows, Some(form)) if !claim.columns.is_empty() && !levels::are_moments(claim.columns) => {
                let how = levels::preparation(&self.experiment)?;
                Some(levels::least_dim(&how, &levels::sizes_of(levels::form(form)?, claim.columns, &how))?)
            }
            _ => claim.dim,
        };
        dim.map_or(Ok(()), |dim| self.check_server(agents, dim, claim.columns))
    }
}
