//! The agents that a federation leaves out if not all applicants fit together.
//!
//! The agents' data together may exceed what a model can have: too many categories of a column, a third label of two classes, a column and
//! a category of one name, more components than the server's memory holds. It is then unknown which agent is wrong. The rule trusts values
//! that many agents have, and first suspects agents with the most values that no or few others have:
//!
//! 1. One agent alone, if all others form a federation: among such agents the one with most values of its own.
//! 2. Otherwise the agents with the rarest values, one after the other, until the rest form a federation. Each agent of a shared value
//!    counts by its share of it. Several agents with the same value thus come before agents with a few values of their own, and a number of
//!    own values that most agents have does not count. Then every agent that can return does, the least suspicious first, so that one
//!    agent's fault excludes no agent that was suspected before. This is done in several orders, by all columns together and by some alone,
//!    because the fault may be in a column in which the others agree while they differ elsewhere. The largest federation wins. The least
//!    number of agents matters only at the end.
//!
//! In each order every agent leaves at most twice and returns at most twice. Each time the columns of the rest follow from counts of the
//! agents with each value ([`Candidates`]): the time grows with the square of the number of agents.

use fedsa::enrolment::{Candidates, Enrolled, Enrolment};
use fedsa::error::{Error, Result};

use super::Deployment;

impl Deployment {
    /// The federation without the agents that prevent it; `why` is the reason why all applicants form none.
    pub(super) fn found_without(&self, enrolment: &Enrolment, why: Error) -> Result<Enrolled> {
        let Ok(mut candidates) = enrolment.candidates() else { return Err(why) };
        let Some(left_out) = self.one_of(&mut candidates, &why).or_else(|| self.some_of(&mut candidates)) else { return Err(why) };
        // Agents whose columns differ from most agents' stay out, so that a smaller rest cannot make theirs the most common.
        let mut gone = candidates.excluded();
        gone.extend(left_out.into_iter().map(|(agent, e)| (candidates.sender(agent).to_string(), e)));
        let mut enrolled = self.close(&enrolment.without(gone.iter().map(|(who, _)| who.as_str())))?;
        enrolled.excluded.extend(gone);
        Ok(enrolled)
    }

    /// One agent without which there is a federation.
    fn one_of(&self, candidates: &mut Candidates<'_>, why: &Error) -> Option<Vec<(usize, Error)>> {
        let suspects = if candidates.spare() > 0 { candidates.suspects() } else { Vec::new() };
        suspects.into_iter().find_map(|agent| {
            candidates.leave_out(agent);
            let is_found = self.check(candidates).is_ok();
            if !is_found {
                candidates.take_back(agent);
            }
            is_found.then(|| vec![(agent, why.clone())])
        })
    }

    /// The smallest set of agents, among all orders, without which there is a federation, each with the reason that it prevents one.
    fn some_of(&self, candidates: &mut Candidates<'_>) -> Option<Vec<(usize, Error)>> {
        let orders = candidates.orders();
        let found = orders.iter().filter_map(|order| self.first_of(order, candidates));
        found.min_by_key(Vec::len).filter(|left_out| left_out.len() <= candidates.spare())
    }

    /// The same by one order, the most suspicious first. No agent is left out afterwards.
    fn first_of(&self, order: &[usize], candidates: &mut Candidates<'_>) -> Option<Vec<(usize, Error)>> {
        let (_, suspects) = order.split_last()?;
        let enough = suspects.iter().position(|agent| {
            candidates.leave_out(*agent);
            self.check(candidates).is_ok()
        });
        let mut left_out = Vec::new();
        for agent in suspects[..enough.map_or(suspects.len(), |last| last + 1)].iter().rev() {
            candidates.take_back(*agent);
            if enough.is_some()
                && let Err(why) = self.check(candidates)
            {
                candidates.leave_out(*agent);
                left_out.push((*agent, why));
            }
        }
        left_out.iter().for_each(|(agent, _)| candidates.take_back(*agent));
        left_out.reverse();
        enough.map(|_| left_out)
    }

    /// Refuses a federation of the remaining agents, as [`Deployment::close`] would.
    fn check(&self, candidates: &Candidates<'_>) -> Result<()> {
        let columns = candidates.columns()?;
        let dim = self.dim_of(candidates.form(), &columns)?.or_else(|| candidates.said_dim());
        if let Some(d) = dim {
            self.check_server(candidates.agents(), d, &columns)?;
        }
        candidates.check(dim, &columns)
    }
}
