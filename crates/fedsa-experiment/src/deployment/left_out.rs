//! Who is left out of a federation that there is not of all who have applied.
//!
//! What agents make together may be more than a model can have: too many categories of a column, a third label of two classes, a column and a
//! category of one name, more components than the server has memory for. Nobody knows then who is wrong. The others are believed to have what
//! many have, and whoever has most that nobody else has, or few have, is asked to go first:
//!
//! 1. One agent alone, if there is a federation of all others: the one with most values that no other has, of those without whom there is one.
//! 2. Otherwise those with the rarest values, one after the other, until there is a federation of the rest. A value that several agents have counts
//!    for each of them by its share, so that several who say the same come before those who have little of their own, and what most agents have of
//!    their own does not count. Then whoever can come back does, the least suspicious first: what made another one leave is no reason to leave
//!    out those who were suspected before it. This is done in several orders, by all columns together and by some alone, because what is in the way
//!    may be in a column in which the others are alike while they differ elsewhere; the largest federation counts. There must be enough in the
//!    end, not before.
//!
//! In each order every agent is left out at most twice and taken back at most twice, and each time the columns of the rest follow from counts of
//! who has which value ([`Candidates`]): the time grows with the square of the number of agents.

use fedsa::enrolment::{Candidates, Enrolled, Enrolment};
use fedsa::error::{Error, Result};

use super::Deployment;

impl Deployment {
    /// The federation without those who are in the way of it; `why` there is none of all.
    pub(super) fn found_without(&self, enrolment: &Enrolment, why: Error) -> Result<Enrolled> {
        let Ok(mut candidates) = enrolment.candidates() else { return Err(why) };
        let Some(left_out) = self.one_of(&mut candidates, &why).or_else(|| self.some_of(&mut candidates)) else { return Err(why) };
        // Whose columns are not those of most stay out: fewer of the others must not make theirs those of most.
        let mut gone = candidates.excluded();
        gone.extend(left_out.into_iter().map(|(agent, e)| (candidates.sender(agent).to_string(), e)));
        let mut enrolled = self.close(&enrolment.without(gone.iter().map(|(who, _)| who.as_str())))?;
        enrolled.excluded.extend(gone);
        Ok(enrolled)
    }

    /// One agent without whom there is a federation.
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

    /// As few agents as one of the orders finds without whom there is a federation, each with the reason why there is none with it.
    fn some_of(&self, candidates: &mut Candidates<'_>) -> Option<Vec<(usize, Error)>> {
        let orders = candidates.orders();
        let found = orders.iter().filter_map(|order| self.first_of(order, candidates));
        found.min_by_key(Vec::len).filter(|left_out| left_out.len() <= candidates.spare())
    }

    /// The same by one order, with the most suspicious first. Nobody is left out afterwards.
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

    /// Refuses a federation of those who are not left out, as [`Deployment::close`] would.
    fn check(&self, candidates: &Candidates<'_>) -> Result<()> {
        let columns = candidates.columns()?;
        let dim = self.dim_of(candidates.form(), &columns)?.or_else(|| candidates.said_dim());
        if let Some(d) = dim {
            self.check_server(candidates.agents(), d, &columns)?;
        }
        candidates.check(dim, &columns)
    }
}
