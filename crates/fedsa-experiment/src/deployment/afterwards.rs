//! After the last round: the server asks all agents for sums at the last theta, and computes from them what one process computes from rows.
//!
//! For rows one exchange is enough, except for standard errors at a theta that is not yet the estimate of greatest likelihood: each further
//! step of Newton's method takes one more. The value of a policy takes three exchanges, four with importance ratios. Everything is computed
//! anew from the sums that are known, so the state is their list.

use std::collections::BTreeMap;

use fedsa::enrolment::{self, Membership, Sums};
use fedsa::error::{Error, Result};
use fedsa::federation::Federation;
use fedsa::linalg;
use fedsa::note::{Note, NoteCode};
use fedsa::saved::Layout;
use fedsa::secure::ExactSum;
use fedsa_evaluate::inference::{self, Inference, InferenceSettings};
use fedsa_evaluate::policy_value::{AfterStages, PolicyValue, ValueStages};
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::quality::FitQuality;

use super::forms::LogsForm;
use super::levels::no_form;
use super::sums::{SumsOfRows, numbers_of_rows, seeds_of};
use super::{Deployment, Source};
use crate::evaluate::policy_value;
use crate::fit::{described, inferred, model, settle};
use crate::run::Ran;

/// Saved sums.
const LAYOUT: Layout = Layout { name: "sums after the last round", version: 1 };

/// The numbers of a question (theta, or earlier sums), and the sum of all agents' vectors.
type Known = (Vec<f64>, Vec<f64>);

/// What the sums tell.
#[derive(Clone, Default)]
pub(super) struct Found {
    pub inference: Option<Inference>,
    pub train: Option<FitQuality>,
    pub held_out: Option<FitQuality>,
    pub objective: Option<f64>,
    pub gradient_norm: Option<f64>,
    /// Why there is no inference although it was asked for.
    pub no_inference: Option<String>,
    pub value: Option<PolicyValue>,
    /// Why there is no value of the policy.
    pub no_value: Option<&'static str>,
}

/// What the agents' data are.
enum Subject {
    /// Rows, whose model is this.
    Rows(Box<Prepared>),
    /// Logs.
    Logs(ValueStages),
}

/// A question to all agents.
struct Question {
    /// Theta, or earlier sums.
    numbers: Vec<f64>,
    /// The message.
    bytes: Vec<u8>,
    /// The sum of the masked answers; with the answers about seeds, without those masks.
    masked: ExactSum,
    /// Whether it asks for the seeds of masks.
    is_of_seeds: bool,
}

/// The questions after the last round, and their answers.
pub struct Afterwards {
    deployment: Deployment,
    federation: Federation,
    subject: Subject,
    what: String,
    /// The output of the rounds.
    theta: Vec<f64>,
    known: Vec<Known>,
    /// Why further questions are not asked.
    missing: Option<String>,
    /// The open question.
    question: Option<Question>,
    /// The agents that have answered it, with numbers that are not masked.
    answers: BTreeMap<usize, Vec<f64>>,
    found: Found,
}

impl Deployment {
    /// The questions after the last round, whose output is `theta`; `None` if there is nothing to ask.
    ///
    /// # Errors
    /// When the agents' statement is no form of their data.
    pub fn afterwards(&self, membership: &Membership, theta: &[f64]) -> Result<Option<Afterwards>> {
        let (Some(subject), Some(what)) = (self.subject(membership)?, self.sums_asked()) else { return Ok(None) };
        let mut theta = theta.to_vec();
        if theta.iter().any(|x| !x.is_finite()) {
            if self.inference().is_none() {
                return Ok(None);
            }
            theta.fill(0.0);
        }
        let mut after = Afterwards {
            deployment: self.clone(),
            federation: membership.federation().clone(),
            subject,
            what,
            theta,
            known: Vec::new(),
            missing: None,
            question: None,
            answers: BTreeMap::new(),
            found: Found::default(),
        };
        after.advance();
        Ok(Some(after))
    }

    fn subject(&self, membership: &Membership) -> Result<Option<Subject>> {
        if let (Source::Logs, Some(form)) = (self.source, membership.form()) {
            let form: LogsForm = serde_json::from_str(form).map_err(|_| no_form())?;
            let (logs, map) = self.features(membership, &form)?;
            return Ok(Some(Subject::Logs(self.stages(&logs, map.len()))));
        }
        Ok(self.rowless(membership)?.map(|model| Subject::Rows(Box::new(model))))
    }
}

impl Afterwards {
    /// The message to every agent that has not answered it, if a question is open.
    pub fn question(&self) -> Option<&[u8]> {
        self.question.as_ref().map(|question| &question.bytes[..])
    }

    /// The agents that have not answered the open question.
    pub fn waiting(&self) -> Vec<usize> {
        let is_open = self.question.is_some();
        (0..self.federation.agents()).filter(|c| is_open && !self.answers.contains_key(c)).collect()
    }

    /// Takes the answer of an agent. After the last one there is another question, or none.
    ///
    /// # Errors
    /// When the answer is damaged, one to another question, or has numbers that are not finite. Nothing changes then.
    pub fn take(&mut self, agent: usize, answer: &[u8]) -> Result<()> {
        let (count, agents) = (self.numbers().unwrap_or(0), self.federation.agents());
        let Some(question) = &mut self.question else {
            return Err(Error::refused_message("sums that nobody has asked for", "answers to an open question"));
        };
        let sums = enrolment::answered(&question.bytes, answer)?;
        if agent >= agents {
            return Err(Error::refused_message(format!("sums of agent {agent}"), format!("agents below {agents}")));
        }
        if self.answers.contains_key(&agent) {
            return Ok(());
        }
        let is_secure = self.deployment.terms.has_secure_sums();
        let is_wanted = match (&sums, question.is_of_seeds) {
            (Sums::Plain(numbers), false) => !is_secure && numbers.len() == count,
            (Sums::Masked(bytes), false) => is_secure && question.masked.add(bytes),
            (Sums::Seed(seed), true) => question.masked.unmask(agent, agents, seed),
            _ => false,
        };
        if !is_wanted {
            let accepted = if question.is_of_seeds { "the seed of a mask".into() } else { format!("sums of {count} numbers") };
            return Err(Error::refused_message("other sums than those asked for", accepted));
        }
        let numbers = if let Sums::Plain(numbers) = sums { numbers } else { Vec::new() };
        if numbers.iter().any(|x| !x.is_finite()) {
            return Err(Error::refused_message("sums that are not finite", "finite sums: columns of a moderate size"));
        }
        self.answers.insert(agent, numbers);
        if self.answers.len() == agents {
            self.add(count);
        }
        Ok(())
    }

    /// Adds the answers of all agents. Of masked ones the seeds are asked next.
    fn add(&mut self, count: usize) {
        let (Some(question), answers) = (self.question.take(), std::mem::take(&mut self.answers)) else { return };
        let Question { numbers, masked, is_of_seeds, .. } = question;
        let is_secure = self.deployment.terms.has_secure_sums();
        if is_secure && !is_of_seeds {
            let bytes = enrolment::question(&self.federation, &seeds_of(&self.what), &numbers);
            self.question = Some(Question { numbers, bytes, masked, is_of_seeds: true });
            return;
        }
        let sum = if is_secure {
            masked.numbers()
        } else {
            let mut sum = vec![0.0; count];
            answers.into_values().for_each(|own| sum.iter_mut().zip(own).for_each(|(sum, x)| *sum += x));
            sum
        };
        self.known.push((numbers, sum));
        self.advance();
    }

    /// Asks no further questions, for this reason: the results then say that the numbers are missing.
    pub fn give_up(&mut self, why: &str) {
        self.missing = Some(why.to_string());
        self.advance();
    }

    /// The state as bytes, without answers to the open question, which is asked again.
    pub fn save(&self) -> Vec<u8> {
        LAYOUT.write(&(self.federation.digest(), &self.theta, &self.known, &self.missing))
    }

    /// Restores a state of [`Afterwards::save`].
    ///
    /// # Errors
    /// When it is damaged, of another federation, or has another version's layout. Nothing changes then.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let (digest, theta, known, missing) = LAYOUT.read::<(u64, Vec<f64>, Vec<Known>, Option<String>)>(bytes)?;
        if digest != self.federation.digest() || theta != self.theta {
            return Err(LAYOUT.foreign());
        }
        let before = std::mem::take(&mut self.known);
        for (numbers, sums) in known {
            if self.numbers() != Some(sums.len()) {
                self.known = before;
                return Err(LAYOUT.foreign());
            }
            self.known.push((numbers, sums));
        }
        self.missing = missing;
        self.advance();
        Ok(())
    }

    /// The number of numbers of the next answer, if there is one.
    fn numbers(&self) -> Option<usize> {
        match &self.subject {
            Subject::Rows(model) => {
                let of_inference = self.deployment.inference().map_or(0, |covariance| inference::numbers_of_agent(model, covariance));
                Some(numbers_of_rows(self.federation.dim()) + of_inference)
            }
            Subject::Logs(stages) => match stages.after(&self.stages()) {
                AfterStages::Next(n) => Some(n),
                AfterStages::Done(_) => None,
            },
        }
    }

    /// The known sums, stage by stage.
    fn stages(&self) -> Vec<Vec<f64>> {
        self.known.iter().map(|(_, sums)| sums.clone()).collect()
    }

    /// The sums at a theta, if known.
    fn sums(&self, theta: &[f64]) -> Option<SumsOfRows<'_>> {
        let (_, sums) = self.known.iter().find(|(at, _)| at == theta)?;
        Some(SumsOfRows::read(sums, self.federation.dim()))
    }

    /// Computes from the known sums what they tell, and the next question.
    fn advance(&mut self) {
        let (found, wanted) = match &self.subject {
            Subject::Rows(model) => self.of_rows(model),
            Subject::Logs(stages) => self.of_logs(*stages),
        };
        self.found = found;
        self.answers.clear();
        let (open, count) = (wanted.filter(|_| self.missing.is_none()), self.numbers().unwrap_or(0));
        self.question = open.map(|numbers| {
            let bytes = enrolment::question(&self.federation, &self.what, &numbers);
            Question { numbers, bytes, masked: ExactSum::new(count), is_of_seeds: false }
        });
    }

    fn of_logs(&self, stages: ValueStages) -> (Found, Option<Vec<f64>>) {
        let before = self.stages();
        match stages.after(&before) {
            AfterStages::Next(_) => (Found::default(), Some(before.concat())),
            AfterStages::Done(Ok(value)) => (Found { value: Some(*value), ..Found::default() }, None),
            AfterStages::Done(Err(why)) => (Found { no_value: Some(why), ..Found::default() }, None),
        }
    }

    fn of_rows(&self, model: &Prepared) -> (Found, Option<Vec<f64>>) {
        let (mut found, wanted) = self.inferred(model);
        let theta = found.inference.as_ref().map_or(&self.theta, |inference| &inference.theta).clone();
        let Some(SumsOfRows { train, held_out, objective, gradient_norm, .. }) = self.sums(&theta) else {
            return (found, wanted.or(Some(theta)));
        };
        found.train = Some(train.quality(&model.targets));
        found.held_out = (held_out.rows > 0.0).then(|| held_out.quality(&model.targets));
        (found.objective, found.gradient_norm) = (Some(objective), Some(gradient_norm));
        (found, wanted)
    }

    /// The inference from the known sums, or the theta at which sums are needed.
    fn inferred(&self, model: &Prepared) -> (Found, Option<Vec<f64>>) {
        let mut found = Found::default();
        let Some(covariance) = self.deployment.inference() else { return (found, None) };
        let how = InferenceSettings::default().with_covariance(covariance).with_level(self.deployment.waiting().level);
        let mut wanted = None;
        let mut ask = |theta: &[f64]| match self.sums(theta) {
            Some(sums) => Ok(sums.inference.to_vec()),
            None => {
                wanted = Some(theta.to_vec());
                Err(Error::refused_message("sums that are not known", "answers of all agents"))
            }
        };
        match inference::infer_by(model, &self.theta, how, self.federation.agents(), &mut ask) {
            Ok(inference) => found.inference = Some(inference),
            Err(_) if wanted.is_some() => found.no_inference = self.missing.clone(),
            Err(why) => found.no_inference = Some(why.to_string()),
        }
        (found, wanted)
    }

    pub(super) fn found(&self) -> Found {
        self.found.clone()
    }

    /// Adds to the results what the sums tell, as a fit or an evaluation in one process does.
    pub fn add_to(&self, ran: &mut Ran) {
        if let Some(why) = &self.missing {
            let text = format!("what sums over all agents' data tell is unknown, because {why}");
            ran.add_notes([Note::new(NoteCode::FederationSumsMissing, text)]);
        }
        match &self.subject {
            Subject::Rows(model) => self.add_fit(model, ran),
            Subject::Logs(_) => self.add_value(ran),
        }
    }

    fn add_value(&self, ran: &mut Ran) {
        let theta = self.theta.clone();
        if let Some(value) = &self.found.value {
            let of_weights = linalg::dot(&value.fitted.start, &theta[..value.fitted.start.len().min(theta.len())]);
            ran.add_to_summary("policy_value", policy_value::json(value, of_weights));
            ran.add_notes(policy_value::odd(value, of_weights));
        } else if let Some(why) = self.found.no_value {
            ran.add_notes([Note::new(NoteCode::FederationSumsMissing, format!("there is no value of the policy: {why}"))]);
        }
    }

    fn add_fit(&self, prepared: &Prepared, ran: &mut Ran) {
        let Found { inference, train, held_out, no_inference, .. } = &self.found;
        if let (Some(why), None) = (no_inference, &self.missing) {
            ran.add_notes([Note::new(NoteCode::FederationSumsMissing, format!("no standard errors: {why}"))]);
        }
        if let Some(inference) = inference {
            ran.add_to_summary("inference", inferred::json(inference));
            ran.add_notes(inferred::odd(inference, prepared));
            settle(ran);
        }
        let Some(train) = train else { return };
        let theta = inference.as_ref().map_or(&self.theta, |inference| &inference.theta);
        let model = model(prepared, theta, None, None);
        let rows = [train.rows, held_out.map_or(0, |quality| quality.rows)];
        ran.add_to_summary("fit", described::json(prepared, rows, &model, inference.as_ref()));
    }
}
