//! The client half of FedNL: gradients, and compressed corrections of a Hessian that agent and server learn together.

use std::cell::RefCell;

use faer::Mat;
use serde::{Deserialize, Serialize};

use super::compressor::Compressor;
use super::line_search::Trials;
use super::{Agent, At};
use crate::error::{BadInput, Result};
use crate::linalg::{add_scaled, triangle_norm};
use crate::message::{Body, Message, Part};
use crate::protocol::refused;
use crate::random::{Key, Purpose, Stream};

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
    let mut hash = crc32fast::Hasher::new();
    let mut see = |x: &[f64]| {
        // Many numbers at a time: the hash is made for long runs of bytes.
        let mut bytes = [[0; 8]; 64];
        for x in x.chunks(64) {
            bytes.iter_mut().zip(x).for_each(|(bytes, x)| *bytes = x.to_le_bytes());
            hash.update(bytes[..x.len()].as_flattened());
        }
    };
    see(&[before]);
    match change {
        Body::Numbers(x) => see(x),
        Body::Sparse { index, value, .. } => {
            see(&index.iter().map(|i| f64::from(*i)).collect::<Vec<f64>>());
            see(value);
        }
        Body::Packed(bytes) => hash.update(bytes),
    }
    f64::from(hash.finalize())
}

/// The stream of an agent's compressor in a round, which both ends open.
pub fn compressor_stream(seed: u64, round: u64, agent: usize) -> Stream {
    Key::of_exchange(seed, Purpose::Compressor, round, CORRECT).stream(agent)
}

/// A change that the agent has sent, and that it makes once it knows that the server has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Sent {
    round: u64,
    /// Whether this is a whole Hessian instead of a correction.
    is_whole: bool,
    change: Body,
    /// The mark with the change.
    mark: f64,
}

/// What lasts from question to question.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct State {
    /// The round of the last model; `None` before the first.
    round: Option<u64>,
    theta: Vec<f64>,
    gradient: Vec<f64>,
    /// `H_c`, a lower triangle row by row; empty if there is none.
    learned: Vec<f64>,
    mark: f64,
    sent: Option<Sent>,
}

/// An agent of FedNL. It answers a model with `grad f_c`, and either with its whole Hessian, from which the learned one
/// `H_c` starts anew, or with `||H_c - Hess f_c||_F` before and after the correction, the mark of `H_c`, and
/// `C(Hess f_c - H_c)`; and a step with the losses along it.
///
/// The agent makes the change `H_c <- H_c + alpha C` with its next question, which says so if the server did not get it: a mark
/// of the agent's own comes with the question if the agent's last answer was lost. An agent whose marks are others than this
/// one (because it was restored from an older state, or from none) sends no mark, and will be asked for its whole
/// Hessian.
#[derive(Debug, Clone)]
pub struct FedNlAgent {
    compressor: Compressor,
    learning_rate: f64,
    trials: Option<Trials>,
    state: State,
}

thread_local! {
    /// The last Hessian's memory, for the next one.
    static HESSIAN: RefCell<Mat<f64>> = const { RefCell::new(Mat::new()) };
}

impl FedNlAgent {
    /// An agent with d components before its first round: `H_c = mu I`, or none without mu.
    pub fn new(compressor: Compressor, learning_rate: f64, trials: Option<Trials>, d: usize, mu: Option<f64>) -> Self {
        let learned = mu.map_or(Vec::new(), |mu| multiple_of_identity(d, mu));
        let mark = if mu.is_some() { FIRST_MARK } else { NO_MARK };
        Self { compressor, learning_rate, trials, state: State { learned, mark, ..State::default() } }
    }

    /// The lower triangle of `Hess f_c(theta)`.
    fn hessian(at: &At<'_>, theta: &[f64]) -> Vec<f64> {
        let d = theta.len();
        // Taken out, not borrowed: the objective may use the pool's threads, and while this one waits for them it may answer for
        // another agent.
        let mut hessian = HESSIAN.replace(Mat::new());
        if hessian.nrows() != d {
            hessian = Mat::zeros(d, d);
        }
        at.hessian(theta, &mut hessian);
        // Columns of the upper triangle are rows of the lower one.
        let mut lower = Vec::with_capacity(d * (d + 1) / 2);
        (0..d).for_each(|i| lower.extend(&hessian.col_as_slice(i)[..=i]));
        HESSIAN.set(hessian);
        lower
    }

    /// Makes the change that was sent last, or drops it if the server says by its mark that it did not get it. If this mark is
    /// none of the agent's, it has no learned Hessian any more.
    fn settle(&mut self, at: &At<'_>, said: Option<f64>) {
        let sent = self.state.sent.take();
        match (sent, said) {
            (None, None) => {}
            (_, Some(mark)) if mark == self.state.mark => {}
            (Some(sent), said) if said.is_none_or(|mark| mark == sent.mark) => {
                match sent.change {
                    Body::Numbers(whole) if sent.is_whole => self.state.learned = whole,
                    change if self.state.learned.is_empty() => drop(change),
                    change => {
                        let d = self.state.theta.len();
                        let stream = &mut compressor_stream(at.seed(), sent.round, at.agent);
                        self.compressor.add(d, &change, self.learning_rate, stream, &mut self.state.learned);
                    }
                }
                self.state.mark = sent.mark;
            }
            _ => (self.state.learned, self.state.mark) = (Vec::new(), NO_MARK),
        }
    }
}

/// `mu I`, a lower triangle.
pub fn multiple_of_identity(d: usize, mu: f64) -> Vec<f64> {
    (0..d).flat_map(|i| (0..=i).map(move |j| if i == j { mu } else { 0.0 })).collect()
}

impl Agent for FedNlAgent {
    fn answer(&mut self, at: &At<'_>, down: &Message) -> Result<Vec<(Part, Body)>> {
        if down.exchange == SEARCH {
            let p = down.part(Part::Step);
            let (Some(trials), true) = (&self.trials, self.state.round == Some(down.round) && self.state.theta.len() == p.len()) else {
                return Err(refused("a step before the model of its round", "the exchanges of a round in their order"));
            };
            let losses = trials.answer(at, &self.state.theta, &self.state.gradient, p);
            return Ok(vec![(Part::Losses, Body::Numbers(losses))]);
        }
        let theta = down.part(Part::Model).to_vec();
        let d = theta.len();
        let mut gradient = vec![0.0; d];
        at.gradient(&theta, &mut gradient);
        if down.exchange == CORRECT {
            self.settle(at, down.find(Part::Mark).and_then(Body::numbers).map(|mark| mark[0]));
        }
        let state = &mut self.state;
        (state.round, state.theta, state.gradient) = (Some(down.round), theta, gradient.clone());
        let gradient = (Part::Gradient, Body::Numbers(gradient));
        if down.exchange == WHOLE {
            let whole = Body::Numbers(Self::hessian(at, &state.theta));
            state.sent = Some(Sent { round: down.round, is_whole: true, change: whole.clone(), mark: mark_after(NO_MARK, &whole) });
            return Ok(vec![gradient, (Part::Hessian, whole)]);
        }
        let (part, _) = self.compressor.part(d);
        let numbers = |part, x: Vec<f64>| (part, Body::Numbers(x));
        if state.learned.is_empty() {
            let nothing = (part, self.compressor.nothing(d));
            return Ok(vec![gradient, numbers(Part::Deviation, vec![0.0; 2]), numbers(Part::Mark, vec![NO_MARK]), nothing]);
        }
        let mut difference = Self::hessian(at, &state.theta);
        add_scaled(&mut difference, -1.0, &state.learned);
        // Where it is not finite, the run has diverged, also if the compressed matrix would not show it.
        let before = triangle_norm(&difference, d);
        let stream = || compressor_stream(at.seed(), down.round, at.agent);
        let change = self.compressor.compress(d, difference.clone(), &mut stream());
        // What is left once both ends have made the change.
        self.compressor.add(d, &change, -self.learning_rate, &mut stream(), &mut difference);
        let deviation = vec![before, triangle_norm(&difference, d)];
        state.sent = Some(Sent { round: down.round, is_whole: false, mark: mark_after(state.mark, &change), change: change.clone() });
        Ok(vec![gradient, numbers(Part::Deviation, deviation), numbers(Part::Mark, vec![state.mark]), (part, change)])
    }

    fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&self.state).expect("plain data serialises")
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let foreign = || BadInput::new("checkpoint", "not the state of an agent of FedNL", "a checkpoint of the same settings");
        let (state, rest): (State, _) = postcard::take_from_bytes(bytes).map_err(|_| foreign())?;
        let d = state.theta.len();
        let n = d * (d + 1) / 2;
        // Before the first model d is not known from the state.
        let is_triangle = |x: &[f64]| x.is_empty() || state.round.is_none() && x.len() == self.state.learned.len() || x.len() == n;
        let fits_change = |sent: &Sent| match &sent.change {
            Body::Numbers(x) if sent.is_whole => x.len() == n,
            change => !sent.is_whole && self.compressor.accepts(d, change),
        };
        if !rest.is_empty() || state.gradient.len() != d || !is_triangle(&state.learned) || !state.sent.as_ref().is_none_or(fits_change) {
            return Err(foreign());
        }
        self.state = state;
        Ok(())
    }
}
