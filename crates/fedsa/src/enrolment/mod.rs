//! Enrolment: finds the agents, their rows and the settings that must agree, before there is a federation.
//!
//! Before its first round a federation needs weights, and features may need ranges of all agents' data. Agents run on other people's
//! machines, so these must be collected:
//!
//! ```text
//! server  invitation   -> every agent that can be reached: hashes of the server's settings
//! agent   application  -> rows, dimension, hashes of its settings, sums of its columns; its number, if it has one
//! server  admission    -> its number, all weights, the start, the columns of all, and the hash of the federation
//! ```
//!
//! After the last round the server may [ask](question) all agents for sums over their data, such as those of standard errors.
//!
//! Agents that join later apply in the same way, and get [`announce_to_new`]; the others get [`announce`] ([`Membership`]). An agent that
//! leaves for good sends a [`farewell`] in place of an answer.
//!
//! An agent with a state refuses messages of another federation, and of the same one before that state: only its operator discards a
//! state. An admission repeats a mark of the application, so that an agent that was restarted on other data refuses it.
//!
//! Both ends then build the same [`Federation`], and nodes exchange the messages of rounds. The carrier of the bytes authenticates senders
//! ([`Enrolment::take`]). The hashes protect against mistakes, not against attacks.
//!
//! ```
//! use fedsa::enrolment::{Applicant, Enrolment, Terms};
//! use fedsa_methods::prelude::*;
//! use fedsa_problems::prelude::*;
//!
//! let problem = Garnet::default().with_agents(2);
//! let terms = Terms::new(&FedLsa::new(0.1, 10), Description::new("garnet", Sampling::default(), 8).with(&problem)).with_seed(7);
//! let agents = [Applicant::new(&terms, 100).with_dim(8), Applicant::new(&terms, 300).with_dim(8)];
//!
//! let mut enrolment = Enrolment::new(&terms, 2..=2)?;
//! let invitation = enrolment.invite(2);
//! enrolment.take("alice", &agents[0].apply(&invitation)?)?;
//! enrolment.take("bob", &agents[1].apply(&invitation)?)?;
//! let enrolled = enrolment.close(None)?;
//!
//! assert_eq!(enrolled.federation.weights(), [0.25, 0.75]);
//! let admission = agents[1].admitted(&enrolled.admissions[1].bytes)?;
//! assert_eq!((admission.agent, admission.federation.digest()), (1, enrolled.federation.digest()));
//! # Ok::<(), Error>(())
//! ```

mod applicant;
mod claim;
mod columns;
mod epoch;
mod frame;
mod membership;
mod outliers;
mod question;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

pub use applicant::{Admission, Applicant};
pub use claim::Claim;
pub use columns::{ColumnContent, ColumnSummary, CountedColumns, DistinctValues};
pub use epoch::{announce, announce_to_new, announced, is_announcement, repeats};
pub use frame::VERSION;
pub use membership::{Member, Membership};
pub use question::{Sums, answer, answered, asked, is_answer, is_question, question};
pub use terms::Terms;

use crate::coordinator::Accepted;
use crate::error::{Error, Result, quoted, require};
use crate::federation::Federation;
use crate::federation::description::digest;
use crate::protocol::refused;
use crate::saved::Layout;
use crate::secure::{KEY_BYTES, PublicKey};
use columns::{difference, joined, unknown_value};
use frame::Kind;
use terms::TermsHashes;

/// Saved enrolments.
const LAYOUT: Layout = Layout { name: "enrolment", version: 9 };

/// The largest length of a sender's name, in bytes.
const LONGEST_SENDER: usize = 1_000;

/// The largest number of rows of an agent. An agent with an impossible number would outweigh all others.
const MAX_ROWS: u64 = u32::MAX as u64;

/// The largest sum of an agent's row weights.
const MAX_WEIGHT: f64 = 1e100;

/// The accepted columns, in words.
const OF_MOST: &str = "the columns, types and forms of most agents, in the same order";

/// The largest dimension in an application. An admission contains the start, and larger ones would exceed the length of messages.
pub const MAX_COMPONENTS: u32 = (frame::LONGEST / 8) as u32;

/// The server's invitation.
#[derive(Serialize, Deserialize)]
struct Invitation {
    terms: TermsHashes,
    /// The number of the run ([`Federation::of_run`]).
    #[serde(with = "postcard::fixint::le")]
    run: u64,
}

/// An agent's application.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Application {
    terms: TermsHashes,
    /// Its number, if it has one.
    agent: Option<u32>,
    rows: u64,
    /// The sum of their weights, if rows have weights.
    weighted: Option<f64>,
    /// The dimension, if it does not depend on other agents' data.
    dim: Option<u32>,
    columns: Vec<ColumnSummary>,
    /// The form of the agent's data ([`Applicant::with_form`]).
    form: Option<String>,
    /// Its public key, for secure sums.
    key: Option<PublicKey>,
}

impl Application {
    /// Decodes and checks an application.
    ///
    /// # Errors
    /// When the bytes are damaged, or not an application of this version; when settings differ; when values are impossible.
    fn read(terms: &Terms, bytes: &[u8]) -> Result<Self> {
        let application: Self = frame::read(Kind::Application, bytes)?;
        terms.hashes().check(&application.terms)?;
        application.check()?;
        if application.key.is_some() != terms.has_secure_sums() {
            let what = if terms.has_secure_sums() { "an application without a key" } else { "a key, and sums are not secure" };
            return Err(refused(what, "a key of each agent if the link has secure-sum, and none otherwise"));
        }
        Ok(application)
    }

    /// A hash of its rows, columns, form and settings, which its admission repeats.
    fn mark(&self) -> u64 {
        digest(&(&self.terms, (self.rows, self.weighted), self.dim, &self.columns, &self.form))
    }

    /// The first difference from these columns, this form and this dimension, in words.
    fn difference(&self, terms: &Terms, (columns, form, dim): (&[ColumnSummary], Option<&str>, Option<u32>)) -> Option<String> {
        let components = |dim: Option<u32>| dim.map_or("no number of components".to_string(), |dim| format!("{dim} components"));
        let of_form = || (self.form.as_deref() != form).then(|| terms.difference_of_forms(form, self.form.as_deref()));
        let of_dim = || (self.dim != dim).then(|| format!("{} in place of {}", components(self.dim), components(dim)));
        difference(columns, &self.columns).or_else(of_form).or_else(of_dim)
    }

    /// Refuses impossible values.
    fn check(&self) -> Result<()> {
        if !(1..=MAX_ROWS).contains(&self.rows) {
            return Err(refused(format!("{} rows", self.rows), "one row or more, fewer than 2^32"));
        }
        if let Some(sum) = self.weighted.filter(|sum| !(*sum > 0.0 && *sum <= MAX_WEIGHT)) {
            return Err(refused(format!("rows of the weight {sum}"), "a sum of weights above 0, at most 1e100"));
        }
        if let Some(dim) = self.dim.filter(|dim| !(1..=MAX_COMPONENTS).contains(dim)) {
            return Err(refused(format!("{dim} components"), &format!("one component or more, at most {MAX_COMPONENTS}")));
        }
        let mut names = BTreeSet::new();
        for column in &self.columns {
            column.check()?;
            if !names.insert(&column.name) {
                return Err(refused(format!("two columns `{}`", quoted(&column.name)), "columns of different names"));
            }
            // Levels cover all rows of its files, of which it may use some (`samples`).
            let most = if column.values().is_some() { MAX_ROWS } else { self.rows };
            if column.count() > most {
                let what = format!("column `{}`: {} rows of {most}", quoted(&column.name), column.count());
                return Err(refused(what, "columns of the rows that the agent has"));
            }
        }
        Ok(())
    }
}

/// The server's admission of an agent.
#[derive(Serialize, Deserialize)]
struct FederationNotice {
    agent: u32,
    weights: Vec<f64>,
    start: Vec<f64>,
    columns: Vec<ColumnSummary>,
    /// The number of the run ([`Federation::of_run`]). Run and digest have a fixed length, so that all runs cost the same.
    #[serde(with = "postcard::fixint::le")]
    run: u64,
    #[serde(with = "postcard::fixint::le")]
    digest: u64,
    /// The public keys of all agents, for secure sums.
    keys: Vec<PublicKey>,
    /// The mark of the agent's application.
    #[serde(with = "postcard::fixint::le")]
    mark: u64,
}

/// Messages and bits of enrolment, counted apart from rounds ([`crate::record::Ledger`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EnrolmentCost {
    /// Messages in both directions.
    pub messages: u64,
    /// Bits from agents to the server.
    pub bits_up: u64,
    /// Bits from the server to agents.
    pub bits_down: u64,
}

/// The server's side of enrolment.
#[derive(Clone)]
pub struct Enrolment {
    terms: Terms,
    agents: RangeInclusive<usize>,
    state: State,
    /// The limit on the memory of all applications, in bytes.
    memory: Option<f64>,
    /// The memory that they take, in bytes.
    held: usize,
}

/// The dimension of an application, the names of its columns with their types, and its form.
type Shape<'a> = (Option<u32>, Vec<(&'a str, &'static str)>, Option<&'a str>);

/// The saved state.
#[derive(Clone, Default, Serialize, Deserialize)]
struct State {
    /// The applications, in order.
    applied: Vec<(String, Application)>,
    cost: EnrolmentCost,
    /// The number of the future run.
    run: u64,
}

impl State {
    /// The memory of all applications, in bytes.
    fn held(&self) -> usize {
        self.applied.iter().map(|(_, one)| one.memory()).sum()
    }
}

/// The federation of the applicants.
#[non_exhaustive]
pub struct Enrolled {
    /// The federation.
    pub federation: Federation,
    /// The admissions, in the order of the agents' numbers.
    pub admissions: Vec<Admitted>,
    /// The columns of all agents.
    pub columns: Vec<ColumnSummary>,
    /// The membership, from this first epoch on.
    pub membership: Membership,
    /// The cost of enrolment, including these admissions.
    pub cost: EnrolmentCost,
}

/// An agent that takes part.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Admitted {
    /// The sender, as the carrier names it.
    pub sender: String,
    /// Its number.
    pub agent: usize,
    /// Its rows.
    pub rows: u64,
    /// Its admission.
    pub bytes: Vec<u8>,
}

impl Enrolment {
    /// An enrolment without applications; `agents` is the range of the number of agents.
    ///
    /// # Errors
    /// When the range is empty or impossible.
    pub fn new(terms: &Terms, agents: RangeInclusive<usize>) -> Result<Self> {
        let given = format!("{} to {}", agents.start(), agents.end());
        require(
            *agents.start() >= 1 && agents.start() <= agents.end(),
            "agents",
            &given,
            "one agent or more, at least as many as at least",
        )?;
        require(*agents.end() < u32::MAX as usize, "agents", given, "fewer than 2^32 - 1 agents")?;
        Ok(Self { terms: terms.clone(), agents, state: State::default(), memory: None, held: 0 })
    }

    /// Sets the number of the run ([`Federation::of_run`]), which admissions contain. A restored server keeps its saved number.
    #[must_use]
    pub fn with_run(mut self, run: u64) -> Self {
        self.state.run = run;
        self
    }

    /// The invitation to `count` agents. It may be sent again to agents that come later.
    pub fn invite(&mut self, count: usize) -> Vec<u8> {
        let bytes = frame::written(Kind::Invitation, &Invitation { terms: self.terms.hashes(), run: self.state.run });
        self.state.cost.messages += count as u64;
        self.state.cost.bits_down += 8 * (bytes.len() * count) as u64;
        bytes
    }

    /// Takes an application. `sender` is the identity that the carrier has authenticated. A copy changes nothing.
    ///
    /// # Errors
    /// Nothing changes then.
    /// - The bytes are damaged, or not an application of this version.
    /// - Settings differ; the error names them.
    /// - The sender has sent another application, its number is taken, or enrolment is full.
    pub fn take(&mut self, sender: &str, bytes: &[u8]) -> Result<Accepted> {
        self.take_if(sender, bytes, |_| Ok(()))
    }

    /// [`Enrolment::take`] if `judge` accepts the application's claim.
    ///
    /// # Errors
    /// As [`Enrolment::take`]; the error of `judge`; when the application takes too much memory ([`Enrolment::with_memory`]).
    pub fn take_if(&mut self, sender: &str, bytes: &[u8], judge: impl FnOnce(Claim<'_>) -> Result<()>) -> Result<Accepted> {
        require(sender.len() <= LONGEST_SENDER, "sender", format!("{} bytes", sender.len()), "a name of at most 1,000 bytes")?;
        self.check_memory(sender, bytes)?;
        let application = Application::read(&self.terms, bytes)?;
        let known = self.state.applied.iter().find(|(who, _)| who == sender);
        match known {
            Some((_, before)) if *before == application => return Ok(Accepted::Repeated),
            Some(_) => return Err(refused("a second application with other content", "one application of each agent")),
            None => {}
        }
        if self.is_full() {
            return Err(refused("another application", &format!("at most {} agents", self.agents.end())));
        }
        self.check_number(application.agent)?;
        judge(application.claim())?;
        self.held += application.memory();
        self.state.cost.messages += 1;
        self.state.cost.bits_up += 8 * bytes.len() as u64;
        self.state.applied.push((sender.to_string(), application));
        Ok(Accepted::Counted)
    }

    /// Refuses a number that does not exist or is taken.
    fn check_number(&self, claimed: Option<u32>) -> Result<()> {
        let Some(number) = claimed else { return Ok(()) };
        if number as usize >= *self.agents.end() {
            return Err(refused(format!("agent number {number}"), &format!("numbers below {}", self.agents.end())));
        }
        if let Some((other, _)) = self.state.applied.iter().find(|(_, other)| other.agent == Some(number)) {
            let what = format!("agent number {number}, which is that of `{}`", quoted(other));
            return Err(refused(what, "a number that nobody else has"));
        }
        Ok(())
    }

    /// The applicants, in order.
    pub fn applied(&self) -> impl Iterator<Item = &str> {
        self.state.applied.iter().map(|(sender, _)| &sender[..])
    }

    /// Forgets a sender's application, if any.
    pub fn withdraw(&mut self, sender: &str) {
        let held = &mut self.held;
        self.state.applied.retain(|(other, one)| {
            let is_kept = other != sender;
            *held -= if is_kept { 0 } else { one.memory() };
            is_kept
        });
    }

    /// The smallest number of agents.
    pub fn least(&self) -> usize {
        *self.agents.start()
    }

    /// Whether enough agents have applied.
    pub fn has_enough(&self) -> bool {
        self.state.applied.len() >= *self.agents.start()
    }

    /// Whether no more agents can apply.
    pub fn is_full(&self) -> bool {
        self.state.applied.len() >= *self.agents.end()
    }

    /// The columns of the present candidates, from which features of all agents' data are built.
    pub fn columns(&self) -> Vec<ColumnSummary> {
        let taken = self.numbered(None).unwrap_or_default();
        joined(taken.iter().map(|(_, one)| &one.columns[..]))
    }

    /// The form of the present candidates' data ([`Applicant::with_form`]).
    pub fn form(&self) -> Option<&str> {
        self.numbered(None).ok()?.first()?.1.form.as_deref()
    }

    /// The number of candidates for a federation of `dim` components (by default their dimension), and the dimension, if known.
    ///
    /// # Errors
    /// When too few agents can take part.
    pub fn sizes(&self, dim: Option<usize>) -> Result<(usize, Option<usize>)> {
        let taken = self.numbered(dim)?;
        Ok((taken.len(), dim.or_else(|| said_dim(&taken))))
    }

    /// Founds the federation of the applicants, with `dim` components (by default their dimension). The same applications give the same
    /// federation, so a restored server may call it again.
    ///
    /// # Errors
    /// When too few agents have applied; when columns, form or dimension of one differ from those of most agents: names the agent and the
    /// first difference; when the dimension is unknown; when the joined columns are impossible; as [`Federation::new`].
    pub fn close(&self, dim: Option<usize>) -> Result<Enrolled> {
        let taken = self.numbered(dim)?;
        let columns = joined(taken.iter().map(|(_, one)| &one.columns[..]));
        let rows: Vec<(u64, Option<f64>)> = taken.iter().map(|(_, one)| (one.rows, one.weighted)).collect();
        let federation = self.federation_of(&rows, dim.or_else(|| said_dim(&taken)), &columns)?;
        let form = taken.first().and_then(|(_, one)| one.form.clone());
        let members: Vec<Member> = taken.into_iter().map(|(sender, one)| Member::new(sender, one)).collect();
        let federation = Member::keyed(federation, &members)?;
        let membership = Membership::founded(&self.terms, self.agents.clone(), federation.clone(), members, columns.clone(), form);
        let mut cost = self.state.cost;
        let admit = |(agent, member): (usize, &Member)| {
            let bytes = membership.admission(agent);
            cost.messages += 1;
            cost.bits_down += 8 * bytes.len() as u64;
            Admitted { sender: member.sender.clone(), agent, rows: member.rows, bytes }
        };
        let admissions: Vec<Admitted> = membership.members().iter().enumerate().map(admit).collect();
        Ok(Enrolled { federation, admissions, columns, membership, cost })
    }

    /// The federation of agents with these rows and joined columns. Checks that need no vector of d components come first.
    fn federation_of(&self, rows: &[(u64, Option<f64>)], dim: Option<usize>, columns: &[ColumnSummary]) -> Result<Federation> {
        // Agents would refuse such columns.
        columns.iter().try_for_each(ColumnSummary::check)?;
        let dim = dim.ok_or_else(|| Error::new("dim", "no agent says its dimension", "the number of components of the model"))?;
        let bytes = admission_bytes(rows.len(), dim, columns);
        if bytes > frame::LONGEST {
            let what = format!("a start of {dim} components and {} columns, {bytes} bytes to each agent", columns.len());
            return Err(Error::data("data", what, frame::ACCEPTED));
        }
        Ok(self.terms.federation(&self.terms.weights(rows), self.terms.start_of(dim)?, columns)?.of_run(self.state.run))
    }

    /// The applicants, in the order of their numbers.
    fn numbered(&self, dim: Option<usize>) -> Result<Vec<(&str, &Application)>> {
        let mut taken: Vec<(&str, &Application)> = self.state.applied.iter().map(|(sender, one)| (&sender[..], one)).collect();
        let Some(common) = self.most_common().filter(|_| self.has_enough()) else {
            let what = format!("{} agents have applied", taken.len());
            return Err(Error::new("agents", what, format!("at least {} agents", self.agents.start())));
        };
        for (sender, one) in &taken {
            let expected = (&common.columns[..], common.form.as_deref(), common.dim);
            let of_dim = || dim.filter(|dim| one.dim.is_some_and(|own| own as usize != *dim)).map(|dim| format!("not of {dim} components"));
            if let Some(what) = one.difference(&self.terms, expected).or_else(of_dim) {
                return Err(Error::data("data", format!("`{}`: {what}", quoted(sender)), OF_MOST));
            }
        }
        let n = taken.len();
        let mut places: Vec<Option<(&str, &Application)>> = vec![None; n];
        // If fewer agents have applied than there are numbers, agents with the highest numbers take unused lower ones, as after agents
        // leave.
        taken.sort_by_key(|(_, one)| one.agent.unwrap_or(u32::MAX));
        let mut others = Vec::new();
        for one in taken {
            match one.1.agent.and_then(|number| places.get_mut(number as usize)) {
                Some(place) => *place = Some(one),
                None => others.push(one),
            }
        }
        let mut others = others.into_iter();
        let filled = places.into_iter().map(|place| place.or_else(|| others.next()).expect("there are as many places as agents"));
        Ok(filled.collect())
    }

    /// An application with the most common columns, dimension and form; of equally common ones the first.
    fn most_common(&self) -> Option<&Application> {
        let mut kinds: Vec<(&Application, usize)> = Vec::new();
        let mut seen: BTreeMap<Shape<'_>, usize> = BTreeMap::new();
        for (_, one) in &self.state.applied {
            let names = one.columns.iter().map(ColumnSummary::form).collect();
            let at = *seen.entry((one.dim, names, one.form.as_deref())).or_insert(kinds.len());
            match kinds.get_mut(at) {
                Some((_, count)) => *count += 1,
                None => kinds.push((one, 1)),
            }
        }
        let most = kinds.iter().map(|(_, count)| *count).max()?;
        kinds.into_iter().find(|(_, count)| *count == most).map(|(one, _)| one)
    }

    /// The state as bytes, for a server that is restarted.
    pub fn save(&self) -> Vec<u8> {
        LAYOUT.write(&(VERSION, self.terms.hashes(), &self.state))
    }

    /// Restores a state of [`Enrolment::save`].
    ///
    /// # Errors
    /// When the state is damaged, of other settings, or has another version's layout. Nothing changes then.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (version, terms, state) = LAYOUT.read::<(u16, TermsHashes, State)>(bytes)?;
        if version != VERSION || terms != self.terms.hashes() {
            return Err(LAYOUT.foreign());
        }
        self.held = state.held();
        self.state = state;
        Ok(())
    }
}

/// The largest length of an admission in bytes: a number takes up to ten.
fn admission_bytes(agents: usize, dim: usize, columns: &[ColumnSummary]) -> usize {
    let columns = postcard::to_stdvec(columns).expect("plain data serialises").len();
    columns + (size_of::<f64>() + KEY_BYTES) * agents + size_of::<f64>() * dim + 100
}

/// The agents' dimension, if any has one.
fn said_dim(taken: &[(&str, &Application)]) -> Option<usize> {
    taken.iter().find_map(|(_, one)| one.dim).map(|dim| dim as usize)
}

/// Whether bytes are an admission ([`Applicant::admitted`]).
pub fn is_admission(bytes: &[u8]) -> bool {
    frame::is_of(Kind::Admission, bytes)
}

/// The number of the run to which an invitation is.
///
/// # Errors
/// When the bytes are damaged, or not an invitation of this version.
pub fn run_of(invitation: &[u8]) -> Result<u64> {
    frame::read(Kind::Invitation, invitation).map(|Invitation { run, .. }| run)
}

/// Whether bytes are a message of enrolment, not of a round. Agents that get both check this first.
pub fn is_enrolment(bytes: &[u8]) -> bool {
    frame::is_one(bytes)
}

/// The answer, to any question, of an agent that leaves for good.
pub fn farewell() -> Vec<u8> {
    frame::written(Kind::Farewell, &())
}

/// Whether bytes are a [`farewell`].
pub fn is_farewell(bytes: &[u8]) -> bool {
    frame::read::<()>(Kind::Farewell, bytes).is_ok()
}

#[cfg(test)]
mod tests;
