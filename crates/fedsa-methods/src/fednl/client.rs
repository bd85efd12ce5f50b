//! The client half of FedNL: gradients, and compressed corrections of a Hessian that agent and server learn together.

use std::cell::RefCell;
use std::sync::Arc;

use fedsa::error::{Error, Result};
use fedsa::local::{Agent, LocalContext};
use fedsa::message::{Body, Message, Part};
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

/// The mark of no matrix.
pub const NO_MARK: f64 = -1.0;
/// The mark of `mu I`.
pub const FIRST_MARK: f64 = 0.0;

/// The mark of a matrix with mark `before` after a change: a hash of both, so that ends whose marks agree have made the same
/// changes in the same order.
pub fn mark_after(before: f64, change: &Body) -> f64 {
    /// Many numbers at a time: the hash is made for long runs of bytes.
    fn see<T: Copy, const BYTES: usize>(hash: &mut crc32fast::Hasher, x: &[T], bytes_of: impl Fn(T) -> [u8; BYTES]) {
        let mut bytes = [[0; BYTES]; 256];
        for x in x.chunks(256) {
            bytes.iter_mut().zip(x).for_each(|(bytes, x)| *bytes = bytes_of(*x));
            hash.update(bytes[..x.len()].as_flattened());
        }
    }
    let mut hash = crc32fast::Hasher::new();
    see(&mut hash, &[before], f64::to_le_bytes);
    match change {
        Body::Numbers(x) => see(&mut hash, x, f64::to_le_bytes),
        Body::Sparse { index, value, .. } => {
            see(&mut hash, index, u32::to_le_bytes);
            see(&mut hash, value, f64::to_le_bytes);
        }
        Body::Packed(bytes) => hash.update(bytes),
    }
    f64::from(hash.finalize())
}

/// The stream of an agent's compressor in a round, which both ends open.
pub fn compressor_stream(seed: u64, round: u64, agent: usize) -> Stream {
    Key::of_exchange(seed, Purpose::Compressor, round, CORRECT).stream(agent)
}

/// A correction that the agent has sent, and that it makes once it knows that the server has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sent {
    round: u64,
    /// What the compressor keeps of it.
    change: Body,
    /// The mark with the change.
    mark: f64,
}

/// What lasts from question to question.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// The round of the last model; `None` before the first.
    round: Option<u64>,
    point: Point,
    /// `H_c` on the agent's support; empty if there is none, and before the first answer.
    learned: Vec<f64>,
    mark: f64,
    sent: Option<Sent>,
}

/// An agent of FedNL. It answers a model with `grad f_c`, and either with its whole Hessian, from which the learned one
/// `H_c` starts anew, or with `||H_c - Hess f_c||_F` before and after the correction, the mark of `H_c`, and
/// `C(Hess f_c - H_c)`; and a step with the losses along it.
///
/// Hessians of sparse rows are computed, kept and corrected on their support, unless the compressor is rank-1, whose corrections have
/// all entries.
///
/// Where the link carries fewer bits than the correction takes, none is sent in this round, which is a change as well: `C = 0`.
///
/// The agent makes the change `H_c <- H_c + alpha C` with its next question, which says so if the server did not get it: a mark
/// of the agent's own comes with the question if the agent's last answer was lost. An agent whose marks are others than this
/// one (because it was restored from an older state, or from none) sends no mark, and will be asked for its whole
/// Hessian. If its answer with that is lost, it is asked again, so that this change is made at once.
#[derive(Debug, Clone)]
pub struct FedNlAgent {
    compressor: Arc<dyn Compressor>,
    learning_rate: f64,
    trials: Option<Trials>,
    /// mu of the first learned Hessian.
    first: Option<f64>,
    /// Where `H_c` may differ from 0; known from the first answer on.
    support: Option<Arc<Support>>,
    state: State,
}

thread_local! {
    /// The memory of the last difference of Hessians, for the next one.
    static DIFFERENCE: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
    /// The memory of the entries of the last Hessian that was widened.
    static SOME: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

impl FedNlAgent {
    /// An agent before its first round: `H_c = mu I`, or none without mu.
    pub fn new(compressor: Arc<dyn Compressor>, learning_rate: f64, trials: Option<Trials>, mu: Option<f64>) -> Self {
        let mark = if mu.is_some() { FIRST_MARK } else { NO_MARK };
        Self { compressor, learning_rate, trials, first: mu, support: None, state: State { mark, ..State::default() } }
    }

    /// Where `H_c` may differ from 0.
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

    /// Makes the change that was sent last, or drops it if the server says by its mark that it did not get it. If this mark is
    /// none of the agent's, it has no learned Hessian any more.
    fn settle(&mut self, at: &LocalContext<'_>, said: Option<f64>, support: &Support) {
        let state = &mut self.state;
        match self.first {
            Some(mu) if state.mark == FIRST_MARK && state.learned.is_empty() => state.learned = support.multiple_of_identity(mu),
            // A restored matrix of other data is none.
            _ if state.learned.len() != support.len() => (state.mark, state.sent) = (NO_MARK, None),
            _ => {}
        }
        match (state.sent.take(), said) {
            (None, None) => {}
            (_, Some(mark)) if mark == state.mark => {}
            (Some(sent), said) if said.is_none_or(|mark| mark == sent.mark) => {
                let stream = compressor_stream(at.seed(), sent.round, at.agent);
                let made = self.compressor.make(support, &sent.change, self.learning_rate, stream, &mut state.learned);
                // A restored change of other data is none.
                state.mark = made.map_or(NO_MARK, |()| sent.mark);
            }
            _ => state.mark = NO_MARK,
        }
        if state.mark == NO_MARK {
            state.learned = Vec::new();
        }
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
        if down.exchange == CORRECT {
            self.settle(at, down.find(Part::Mark).and_then(Body::numbers).map(|mark| mark[0]), &support);
        }
        let state = &mut self.state;
        (state.round, state.point.theta) = (Some(down.round), theta);
        state.point.gradient.resize(d, 0.0);
        let numbers = |part, x: Vec<f64>| (part, Body::Numbers(x));
        let gradient_part = self.compressor.gradient_part();
        if down.exchange == WHOLE {
            Self::derivatives(at, &state.point.theta, &mut state.point.gradient, &support, &mut state.learned);
            let whole = whole(&support, &state.learned);
            (state.mark, state.sent) = (mark_after(NO_MARK, &whole), None);
            return Ok(vec![numbers(gradient_part, state.point.gradient.clone()), (Part::Hessian, whole)]);
        }
        let (part, _) = self.compressor.part(d);
        if state.mark == NO_MARK {
            at.gradient(&state.point.theta, &mut state.point.gradient);
            let gradient = numbers(gradient_part, state.point.gradient.clone());
            let nothing = (part, self.compressor.nothing(d));
            return Ok(vec![gradient, numbers(Part::Deviation, vec![0.0; 2]), numbers(Part::Mark, vec![NO_MARK]), nothing]);
        }
        // Taken out, not borrowed: the objective may use the pool's threads, and while this one waits for them it may answer for
        // another agent.
        let mut difference = DIFFERENCE.take();
        Self::derivatives(at, &state.point.theta, &mut state.point.gradient, &support, &mut difference);
        // Where it is not finite, the run has diverged, also if the compressed matrix would not show it.
        let before = support.subtract(&mut difference, &state.learned);
        let stream = compressor_stream(at.seed(), down.round, at.agent);
        let Compressed { sent, kept } = if at.bits.is_none_or(|bits| bits >= self.compressor.budget(d)) {
            self.compressor.compress(&support, &mut difference, self.learning_rate, stream)
        } else {
            Compressed { sent: self.compressor.nothing(d), kept: self.compressor.nothing(d) }
        };
        // What is left once both ends have made the change.
        let deviation = vec![before, support.norm(&difference)];
        DIFFERENCE.set(difference);
        state.sent = Some(Sent { round: down.round, mark: mark_after(state.mark, &sent), change: kept });
        let gradient = numbers(gradient_part, state.point.gradient.clone());
        Ok(vec![gradient, numbers(Part::Deviation, deviation), numbers(Part::Mark, vec![state.mark]), (part, sent)])
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
        let has_matrix = learned <= entries(d) && (learned == 0 || state.mark != NO_MARK);
        if !rest.is_empty() || state.point.gradient.len() != d || !has_matrix || !state.sent.as_ref().is_none_or(fits_change) {
            return Err(foreign());
        }
        self.state = state;
        Ok(())
    }
}
