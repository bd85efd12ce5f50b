//! The members of a federation, from one epoch to the next: the server's side of joining and leaving.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::claim::check_later;
use super::frame::{self, Kind};
use super::terms::TermsHashes;
use super::{
    Application, ColumnSummary, FederationNotice, Invitation, LONGEST_SENDER, Terms, VERSION, announce, announce_to_new, unknown_value,
};
use crate::coordinator::Accepted;
use crate::error::{Error, Result, quoted, require};
use crate::federation::{AnswerRules, Federation};
use crate::protocol::refused;
use crate::saved::Layout;
use crate::secure::PublicKey;

/// Saved memberships.
const LAYOUT: Layout = Layout { name: "membership", version: 8 };

/// An agent that takes part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Member {
    /// The sender, as the carrier names it.
    pub sender: String,
    /// Its rows.
    pub rows: u64,
    /// The sum of their weights, if rows have weights.
    pub weighted: Option<f64>,
    /// The claimed number. No other agent joins with it, because two agents with one number would have the same data.
    claimed: Option<u32>,
    /// The mark of its application, which its admission repeats.
    mark: u64,
    /// Its public key, for secure sums.
    key: Option<PublicKey>,
}

impl Member {
    /// The federation of these members with their public keys, if they have any.
    pub(super) fn keyed(federation: Federation, members: &[Self]) -> Result<Federation> {
        let keys: Vec<PublicKey> = members.iter().filter_map(|one| one.key).collect();
        if keys.is_empty() { Ok(federation) } else { federation.with_keys(keys) }
    }

    pub(super) fn new(sender: &str, application: &Application) -> Self {
        Self {
            sender: sender.to_string(),
            rows: application.rows,
            weighted: application.weighted,
            claimed: application.agent,
            mark: application.mark(),
            key: application.key,
        }
    }
}

/// The agents of a federation, and the applicants for the next epoch.
///
/// Agents apply at any time ([`Membership::take`]). Between two rounds the server opens the next epoch for the agents that stay and the
/// applicants ([`Membership::next_epoch`]), with weights by rows or equal weights, as in the terms. Features use the ranges of the founding
/// columns: later agents' states outside these ranges are clipped.
///
/// ```
/// use fedsa::enrolment::{Applicant, Enrolment, Terms, announced};
/// use fedsa_methods::prelude::*;
/// use fedsa_problems::prelude::*;
///
/// let problem = Garnet::default();
/// let terms = Terms::new(&FedLsa::new(0.1, 10), Description::new("garnet", Sampling::default(), 8).with(&problem));
/// let agents = [100, 300, 600].map(|rows| Applicant::new(&terms, rows).with_dim(8));
/// let mut enrolment = Enrolment::new(&terms, 1..=3)?;
/// let invitation = enrolment.invite(2);
/// enrolment.take("alice", &agents[0].apply(&invitation)?)?;
/// enrolment.take("bob", &agents[1].apply(&invitation)?)?;
/// let mut founded = enrolment.close(None)?.membership;
///
/// founded.take("carol", &agents[2].apply(&founded.invitation())?)?;
/// let (next, from) = founded.next_epoch(&["bob"])?;
/// assert_eq!((next.federation().weights(), &from[..]), (&[100.0 / 700.0, 600.0 / 700.0][..], &[Some(0), None][..]));
/// let (federation, agent) = announced(founded.federation(), &next.announcement(0))?;
/// assert_eq!((federation.digest(), agent), (next.federation().digest(), 0));
/// assert_eq!(agents[2].joined(&next.admission(1))?.agent, 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct Membership {
    terms: Terms,
    agents: RangeInclusive<usize>,
    federation: Federation,
    state: State,
    /// The largest share of the weight that one of several agents may have.
    weight_cap: f64,
}

/// The saved state.
#[derive(Clone, Serialize, Deserialize)]
struct State {
    epoch: u64,
    /// The members by number.
    members: Vec<Member>,
    weights: Vec<f64>,
    /// The founding columns.
    columns: Vec<ColumnSummary>,
    /// The common form of the agents' data.
    form: Option<String>,
    start: Vec<f64>,
    /// The applicants since.
    waiting: Vec<Member>,
    /// The number of the run.
    run: u64,
}

impl Membership {
    pub(super) fn founded(
        terms: &Terms,
        agents: RangeInclusive<usize>,
        federation: Federation,
        members: Vec<Member>,
        columns: Vec<ColumnSummary>,
        form: Option<String>,
    ) -> Self {
        let (weights, start) = (federation.weights().to_vec(), federation.start().to_vec());
        let run = federation.run();
        let state = State { epoch: 0, members, weights, columns, form, start, waiting: Vec::new(), run };
        Self { terms: terms.clone(), agents, federation, state, weight_cap: 1.0 }
    }

    /// Sets the largest share of the weight that one of several agents may have when the federation is founded
    /// ([`Membership::check_weights`]) and when it joins. An agent's rows are its own claim.
    #[must_use]
    pub fn with_weight_cap(self, share: f64) -> Self {
        Self { weight_cap: share, ..self }
    }

    /// Refuses members of whom one has more than the largest share of the weight.
    ///
    /// # Errors
    /// When there is one; names it.
    pub fn check_weights(&self) -> Result<()> {
        self.state.members.iter().try_for_each(|one| self.check_weight(one))
    }

    /// Refuses a member that would have too much weight beside the others.
    fn check_weight(&self, one: &Member) -> Result<()> {
        let others = self.state.members.iter().filter(|other| other.sender != one.sender).map(|other| (other.rows, other.weighted));
        let rows: Vec<(u64, Option<f64>)> = std::iter::once((one.rows, one.weighted)).chain(others).collect();
        let share = self.terms.weights(&rows)[0];
        if rows.len() == 1 || share <= self.weight_cap {
            return Ok(());
        }
        let what = format!("`{}`: {} rows, {:.4}% of the weight of all", quoted(&one.sender), one.rows, 100.0 * share);
        Err(Error::data("data", what, format!("at most {}% for one agent; or a larger `weight_cap`", 100.0 * self.weight_cap)))
    }

    /// Sets the rules by which the server counts answers.
    ///
    /// # Errors
    /// As [`Federation::with_rules`].
    pub fn with_rules(self, rules: AnswerRules) -> Result<Self> {
        Ok(Self { federation: self.federation.with_rules(rules)?, ..self })
    }

    /// The federation of this epoch.
    pub fn federation(&self) -> &Federation {
        &self.federation
    }

    /// The members, by number.
    pub fn members(&self) -> &[Member] {
        &self.state.members
    }

    /// The founding columns.
    pub fn columns(&self) -> &[ColumnSummary] {
        &self.state.columns
    }

    /// The common form of the agents' data ([`super::Applicant::with_form`]).
    pub fn form(&self) -> Option<&str> {
        self.state.form.as_deref()
    }

    /// The applicants for the next epoch, in order.
    pub fn waiting(&self) -> &[Member] {
        &self.state.waiting
    }

    /// The invitation to agents that may join.
    pub fn invitation(&self) -> Vec<u8> {
        frame::written(Kind::Invitation, &Invitation { terms: self.terms.hashes(), run: self.state.run })
    }

    /// The announcement to an agent that knows an earlier epoch of this federation.
    ///
    /// # Panics
    /// When there is no agent with this number.
    pub fn announcement(&self, agent: usize) -> Vec<u8> {
        announce(&self.federation, agent)
    }

    /// The admission of an agent that does not know the federation: a new one, or one that has lost its state.
    ///
    /// # Panics
    /// When there is no agent with this number.
    pub fn admission(&self, agent: usize) -> Vec<u8> {
        let Self { federation, state, .. } = self;
        let mark = state.members[agent].mark;
        if state.epoch > 0 {
            return announce_to_new(federation, agent, &state.columns, mark);
        }
        let (weights, start, columns) = (state.weights.clone(), state.start.clone(), state.columns.clone());
        let (run, digest) = (state.run, federation.digest());
        frame::written(
            Kind::Admission,
            &FederationNotice { agent: agent as u32, weights, start, columns, run, digest, keys: federation.keys().to_vec(), mark },
        )
    }

    /// Takes an application for the next epoch. `sender` is the identity that the carrier has authenticated. A later application replaces
    /// an earlier one.
    ///
    /// # Errors
    /// Nothing changes then.
    /// - The bytes are damaged, or not an application of this version.
    /// - Settings, columns or the dimension differ; the error names them.
    /// - The sender is already a member, or its number is taken.
    pub fn take(&mut self, sender: &str, bytes: &[u8]) -> Result<Accepted> {
        require(sender.len() <= LONGEST_SENDER, "sender", format!("{} bytes", sender.len()), "a name of at most 1,000 bytes")?;
        check_later(sender, bytes, &self.state.columns, self.state.form.as_deref())?;
        let application = Application::read(&self.terms, bytes)?;
        if self.state.members.iter().any(|one| one.sender == sender) {
            return Err(refused("an application of an agent that takes part", "agents that do not take part yet"));
        }
        self.check_columns(&application)?;
        let member = Member::new(sender, &application);
        self.check_weight(&member).map_err(|e| refused(e.what.clone(), &e.help))?;
        let State { members, waiting, .. } = &mut self.state;
        let others = members.iter().chain(waiting.iter().filter(|one| one.sender != sender));
        if let Some((number, other)) =
            application.agent.and_then(|own| Some((own, others.into_iter().find(|one| one.claimed == Some(own))?)))
        {
            let what = format!("agent number {number}, which is that of `{}`", quoted(&other.sender));
            return Err(refused(what, "a number that nobody else has"));
        }
        if waiting.contains(&member) {
            return Ok(Accepted::Repeated);
        }
        waiting.retain(|one| one.sender != sender);
        waiting.push(member);
        Ok(Accepted::Counted)
    }

    /// Checks that an application's columns, form and dimension fit the federation.
    fn check_columns(&self, application: &Application) -> Result<()> {
        let State { columns, form, .. } = &self.state;
        let dim = application.dim.map(|_| self.federation.dim() as u32);
        if let Some(what) = application.difference(&self.terms, (columns, form.as_deref(), dim)) {
            return Err(refused(what, "the columns with which the federation was founded"));
        }
        if let Some(what) = unknown_value(columns, &application.columns) {
            return Err(refused(what, "categories and labels of the agents with which the federation was founded"));
        }
        Ok(())
    }

    /// The next epoch, without the `leaving` members and with the applicants, as far as there is room, and the previous number of each of
    /// its agents ([`crate::node::ServerNode::regrouped`]). Agents that stay keep numbers that still exist; the others fill the free ones
    /// in order.
    ///
    /// # Errors
    /// When too few agents would be left; as [`Federation::next_epoch`].
    pub fn next_epoch(&self, leaving: &[&str]) -> Result<(Self, Vec<Option<usize>>)> {
        let State { members, waiting, .. } = &self.state;
        let staying: Vec<usize> = (0..members.len()).filter(|c| !leaving.contains(&&members[*c].sender[..])).collect();
        let room = self.agents.end().saturating_sub(staying.len());
        let (joining, waiting) = waiting.split_at(room.min(waiting.len()));
        let n = staying.len() + joining.len();
        if n < *self.agents.start() {
            return Err(Error::new("agents", format!("{n} agents would be left"), format!("at least {} agents", self.agents.start())));
        }
        let kept: BTreeSet<usize> = staying.iter().copied().filter(|c| *c < n).collect();
        let moved = staying.iter().copied().filter(|c| *c >= n).map(Some);
        let mut others = moved.chain(std::iter::repeat_n(None, joining.len()));
        let from: Vec<Option<usize>> = (0..n).map(|c| if kept.contains(&c) { Some(c) } else { others.next().flatten() }).collect();
        let mut joining = joining.iter();
        let next = from.iter().filter_map(|old| old.map_or_else(|| joining.next(), |old| members.get(old)).cloned());
        let members: Vec<Member> = next.collect();
        let rows: Vec<(u64, Option<f64>)> = members.iter().map(|one| (one.rows, one.weighted)).collect();
        let weights = self.terms.weights(&rows);
        let federation = Member::keyed(self.federation.next_epoch(weights.clone())?, &members)?;
        let state = State { epoch: self.state.epoch + 1, members, weights, waiting: waiting.to_vec(), ..self.state.clone() };
        Ok((Self { terms: self.terms.clone(), agents: self.agents.clone(), federation, state, weight_cap: self.weight_cap }, from))
    }

    /// The state as bytes, for a server that is restarted.
    pub fn save(&self) -> Vec<u8> {
        LAYOUT.write(&(VERSION, self.terms.hashes(), &self.state))
    }

    /// The membership from a state of [`Membership::save`], of a federation with these terms; `agents` is the range of the number of
    /// agents.
    ///
    /// # Errors
    /// When the state is damaged, of another federation, or has another version's layout.
    pub fn restored(terms: &Terms, agents: RangeInclusive<usize>, bytes: &[u8]) -> Result<Self> {
        let (version, hashes, state) = LAYOUT.read::<(u16, TermsHashes, State)>(bytes)?;
        let are_sound = state.weights.len() == state.members.len() && state.columns.iter().all(|column| column.check().is_ok());
        if version != VERSION || hashes != terms.hashes() || !are_sound || !terms.agrees_on(&state.start) {
            return Err(LAYOUT.foreign());
        }
        let founded = terms.federation(&state.weights, state.start.clone(), &state.columns);
        let at_epoch = |founded: Federation| match state.epoch {
            0 => Ok(founded),
            epoch => founded.at_epoch(state.weights.clone(), epoch),
        };
        let federation =
            founded.map(|founded| founded.of_run(state.run)).and_then(at_epoch).and_then(|all| Member::keyed(all, &state.members));
        let federation = federation.map_err(|_| LAYOUT.foreign())?;
        Ok(Self { terms: terms.clone(), agents, federation, state, weight_cap: 1.0 })
    }
}
