//! The client half of FedNL: gradients, and compressed corrections of a Hessian that agent and server learn together.

use std::cell::RefCell;
use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::local::{Agent, LocalContext};
use fedsa::message::{Body, LastAnswer, Message, Part};
use fedsa::protocol::refused;
use fedsa::random::{Key, Purpose, Stream};
use fedsa::triangle::{Support, entries};
use serde::{Deserialize, Serialize};

use super::compressor::{Compressed, Compressor, whole};
use crate::local::Point;
use crate::local::line_search::Trials;

/// The exchange in which agents send whole Hessians.
pub const WHOLE: u8 = 0;
/// The exchange in which agents send corrections.
pub const CORRECT: u8 = 1;
/// The exchange of a line search.
pub const SEARCH: u8 = 2;

/// The stream of an agent's compressor in a round, which both ends create.
pub fn compressor_stream(seed: u64, round: u64, agent: usize) -> Stream {
    Key::of_exchange(seed, Purpose::Compressor, round, CORRECT).stream(agent)
}

/// A sent correction, which the agent applies once it knows that the server did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sent {
    round: u64,
    /// The compressor's record of it.
    change: Body,
}

/// The state between questions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// The round of the last model; `None` before the first.
    round: Option<u64>,
    point: Point,
    /// `H_c` on the agent's support; empty before the first answer.
    learned: Vec<f64>,
    sent: Option<Sent>,
}

/// An agent of FedNL. It answers
/// - a model with `grad f_c`, and with its whole Hessian, which replaces the learned `H_c`, or with `C(Hess f_c - H_c)` and
///   `||H_c - Hess f_c||_F` before and after the correction;
/// - a step with the losses along it.
///
/// Hessians of sparse rows are computed, kept and corrected on their support. Corrections of a rank-1 compressor have all entries.
///
/// If the link carries fewer bits than the correction takes, no correction is sent in this round, which is the change `C = 0`.
///
/// The agent applies `H_c <- H_c + alpha C` at its next question, unless this says that the server did not get it ([`Part::Counted`]). A
/// whole Hessian is applied at once, because the server asks again if its answer is lost.
#[derive(Debug, Clone)]
pub struct FedNlAgent {
    compressor: Arc<dyn Compressor>,
    learning_rate: f64,
    trials: Option<Trials>,
    /// mu of the first learned Hessian.
    first: Option<f64>,
    /// The entries of `H_c` that may be non-zero; known from the first answer on.
    support: Option<Arc<Support>>,
    state: State,
}

thread_local! {
    /// The buffer of the last difference of Hessians, for reuse.
    static DIFFERENCE: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
    /// The buffer of the entries of the last widened Hessian.
    static SOME: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

impl FedNlAgent {
    /// An agent before its first round: `H_c = mu I`, or none without mu.
    pub fn new(compressor: Arc<dyn Compressor>, learning_rate: f64, trials: Option<Trials>, mu: Option<f64>) -> Self {
        Self { compressor, learning_rate, trials, first: mu, support: None, state: State::default() }
    }

    /// The entries of `H_c` that may be non-zero.
    fn support(&mut self, at: &LocalContext<'_>, d: usize) -> Arc<Support> {
        let (keeps_zeros, all) = (self.compressor.keeps_zeros(), || Arc::new(Support::all(d)));
        let own = || at.hessian_support().filter(|_| keeps_zeros).unwrap_or_else(all);
        Arc::clone(self.support.get_or_insert_with(own))
    }

    /// Writes `grad f_c(theta)` and the entries of `Hess f_c(theta)` on a support.
    fn derivatives(at: &LocalContext<'_>, theta: &[f64], gradient: &mut [f64], support: &Support, hessian: &mut Vec<f64>) {
        match at.hessian_support().filter(|own| own.len() != support.len()) {
            None => {
                hessian.resize(support.len(), 0.0);
                at.gradient_and_hessian(theta, gradient, hessian);
            }
            Some(own) => {
                let mut some = SOME.take();
                some.resize(own.len(), 0.0);
                at.gradient_and_hessian(theta, gradient, &mut some);
                own.widen(&some, support, hessian);
                SOME.set(some);
            }
        }
    }

    /// Applies the last sent change, or drops it if the server did not count it. `None` if there is no learned Hessian, or a restored one
    /// belongs to other data.
    fn settle(&mut self, at: &LocalContext<'_>, down: &Message, support: &Support) -> Option<()> {
        let State { learned, sent, .. } = &mut self.state;
        let last = down.last_answer(sent.as_ref().map(|sent| sent.round));
        if last == LastAnswer::NoneCounts {
            learned.clear();
        }
        if let Some(mu) = self.first.filter(|_| learned.is_empty()) {
            *learned = support.multiple_of_identity(mu);
        }
        if learned.len() != support.len() {
            return None;
        }
        let sent = sent.take().filter(|_| last == LastAnswer::Counted);
        let Some(sent) = sent else { return Some(()) };
        let stream = compressor_stream(at.seed(), sent.round, at.agent);
        self.compressor.make(support, &sent.change, self.learning_rate, stream, learned)
    }
}

impl Agent for FedNlAgent {
    fn answer(&mut self, at: &LocalContext<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == SEARCH {
            let (Some(trials), true) = (&self.trials, self.state.round == Some(down.round)) else {
                return Err(refused("a step before the model of its round", "the exchanges of a round in their order"));
            };
            return self.state.point.losses(at, trials, down.part(Part::Step));
        }
        let theta = down.part(Part::Model).to_vec();
        let d = theta.len();
        let support = self.support(at, d);
        if down.exchange == CORRECT && self.settle(at, down, &support).is_none() {
            return Ok(Vec::new());
        }
        let state = &mut self.state;
        (state.round, state.point.theta) = (Some(down.round), theta);
        state.point.gradient.resize(d, 0.0);
        let numbers = |part, x: Vec<f64>| (part, Body::Numbers(x));
        let gradient_part = self.compressor.gradient_part();
        if down.exchange == WHOLE {
            Self::derivatives(at, &state.point.theta, &mut state.point.gradient, &support, &mut state.learned);
            state.sent = None;
            let whole = whole(&support, &state.learned);
            return Ok(vec![numbers(gradient_part, state.point.gradient.clone()), (Part::Hessian, whole)]);
        }
        // Taken out instead of borrowed: the objective may use the pool's threads, and while this one waits for them it may answer for
        // another agent.
        let mut difference = DIFFERENCE.take();
        Self::derivatives(at, &state.point.theta, &mut state.point.gradient, &support, &mut difference);
        // If it is not finite the run has diverged, even if the compressed matrix would hide it.
        let before = support.subtract(&mut difference, &state.learned);
        let stream = compressor_stream(at.seed(), down.round, at.agent);
        let Compressed { sent, kept } = if at.bits.is_none_or(|bits| bits >= self.compressor.budget(d)) {
            self.compressor.compress(&support, &mut difference, self.learning_rate, stream)
        } else {
            Compressed { sent: self.compressor.nothing(d), kept: self.compressor.nothing(d) }
        };
        // The remaining difference once both ends have applied the change.
        let deviation = vec![before, support.norm(&difference)];
        DIFFERENCE.set(difference);
        state.sent = Some(Sent { round: down.round, change: kept });
        let gradient = numbers(gradient_part, state.point.gradient.clone());
        Ok(vec![gradient, numbers(Part::Deviation, deviation), (self.compressor.part(d).0, sent)])
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.state).expect("plain data serialises")
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let foreign = || Error::format("checkpoint", "not the state of an agent of FedNL", "a checkpoint of the same settings");
        let (state, rest): (State, _) = postcard::take_from_bytes(bytes).map_err(|_| foreign())?;
        let d = state.point.theta.len();
        let learned = state.learned.len();
        let fits_change = |sent: &Sent| self.compressor.may_keep(d, learned, &sent.change);
        if !rest.is_empty() || state.point.gradient.len() != d || learned > entries(d) || !state.sent.as_ref().is_none_or(fits_change) {
            return Err(foreign());
        }
        self.state = state;
        Ok(())
    }
}
