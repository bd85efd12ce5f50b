//! The round loop, which connects all stages: problem -> local rule -> uplink -> server rule -> record.
//!
//! Agents are processed in blocks of eight, blocks in parallel. Results do not depend on the number of threads, because
//! every random draw has a key and every sum has a fixed order.

mod each;
pub(crate) mod mail;
pub(crate) mod server_end;
mod sweep;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use faer::Mat;
use serde::{Deserialize, Serialize};

use crate::error::{BadInput, Result};
use crate::kernel::{Chunk, LANES, chunks};
use crate::linalg;
use crate::local::{Agent, Batch, Client, Memory, stride};
use crate::message::{Body, Part};
use crate::methods::{Half, Method, MethodSettings, Needs, Setting, check_link};
use crate::problem::Field;
use crate::protocol::Protocol;
use crate::random::{ALL, Key, Purpose};
use crate::record::{Ledger, Output, OutputRule};
use crate::server::{Ask, Letter, Next, Own, Received, Server};
use crate::uplink::{Place, Uplink};
use mail::History;
use server_end::{ServerEnd, asked_weight};
use sweep::{Agents, Fate, Job, Rows, Shares, Strides, Worker, tell_own};

pub use crate::sums::{accumulate, pairwise, sum};

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// The run has not diverged.
    Ok,
    /// `||theta||` exceeded the bound ([`DIVERGED`]), or theta was not finite.
    Diverged {
        /// The number of rounds done when this was found.
        round: u64,
    },
}

/// A run has diverged once `||theta||` exceeds this times `1 + max(||theta_0||, ||theta*||)`.
pub const DIVERGED: f64 = 1e8;

/// Whether `||theta||` exceeds [`DIVERGED`] times `1 + scale`, or is not finite.
pub(crate) fn has_diverged(theta: &[f64], scale: f64) -> bool {
    let norm = linalg::norm_sq(theta).sqrt();
    !norm.is_finite() || norm > DIVERGED * (1.0 + scale)
}

/// A part that a run or a node uses: borrowed, or owned with others.
pub enum Held<'a, T: ?Sized> {
    /// A reference.
    Borrowed(&'a T),
    /// A shared pointer, so that the run or node owns what it needs.
    Shared(Arc<T>),
}

impl<T: ?Sized> std::ops::Deref for Held<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Held::Borrowed(it) => it,
            Held::Shared(it) => it,
        }
    }
}

impl<'a, T: ?Sized> From<&'a T> for Held<'a, T> {
    fn from(it: &'a T) -> Self {
        Held::Borrowed(it)
    }
}

impl<T: ?Sized> From<Arc<T>> for Held<'_, T> {
    fn from(it: Arc<T>) -> Self {
        Held::Shared(it)
    }
}

impl<T: ?Sized> Clone for Held<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Held::Borrowed(it) => Held::Borrowed(it),
            Held::Shared(it) => Held::Shared(Arc::clone(it)),
        }
    }
}

/// One run: a method on a field over a link, with one seed.
pub struct Run<'a> {
    field: Held<'a, dyn Field + 'a>,
    uplink: Held<'a, Uplink>,
    client: Working,
    protocol: Protocol,
    server: Box<dyn Server>,
    seed: u64,
    everyone: Vec<usize>,
    /// The larger one of `||theta_0||` and `||theta*||`.
    scale: f64,
    state: State,
    scratch: Scratch,
    /// Whether the last round was abandoned before its end.
    abandoned: bool,
}

/// The agents' side of a run.
enum Working {
    /// Agents in lanes, side by side.
    Lanes(Box<dyn Client>),
    /// Agents that compute alone.
    Each(Vec<Box<dyn Agent>>),
}

impl Working {
    /// The number of chunks that the memory of one agent in lanes takes.
    fn stride(&self, d: usize) -> usize {
        match self {
            Working::Lanes(client) => stride(&**client, d),
            Working::Each(_) => 0,
        }
    }

    /// The saved states of the agents that compute alone.
    fn save(&self) -> Vec<Vec<u8>> {
        match self {
            Working::Lanes(_) => Vec::new(),
            Working::Each(agents) => agents.iter().map(|agent| agent.save()).collect(),
        }
    }
}

/// The state that lasts from round to round, except the server half's.
#[derive(Debug, Clone)]
struct State {
    round: u64,
    memory: Vec<Chunk>,
    chains: Vec<u64>,
    ledger: Ledger,
    output: Output,
    status: Status,
    link: LinkState,
}

/// The state of links that lasts from round to round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct LinkState {
    /// The memory of error feedback, [`Uplink::feedback_len`] numbers per agent.
    feedback: Vec<f64>,
    /// Past rounds, for stale models.
    history: History,
    /// The state of the server's end.
    server_end: ServerEnd,
}

/// Buffers that rounds reuse.
struct Scratch {
    worker: Worker,
    /// Whether the link is clear.
    is_clear: bool,
    blocks: Vec<f64>,
    fates: Vec<Fate>,
    inbox: Vec<f64>,
}

/// The version of the layout of saved runs, their first field.
const LAYOUT: u32 = 3;

/// Serialised form of [`State`] and the server's state.
#[derive(Serialize, Deserialize)]
struct Saved {
    layout: u32,
    round: u64,
    memory: Vec<f64>,
    chains: Vec<u64>,
    ledger: Ledger,
    output: Output,
    status: Status,
    link: LinkState,
    server: Vec<Vec<f64>>,
    agents: Vec<Vec<u8>>,
}

/// [`Saved`] without copies: a state may fill half of the memory.
#[derive(Serialize)]
struct Saving<'a> {
    layout: u32,
    round: u64,
    memory: &'a [f64],
    chains: &'a [u64],
    ledger: &'a Ledger,
    output: &'a Output,
    status: &'a Status,
    link: &'a LinkState,
    server: Vec<Vec<f64>>,
    agents: Vec<Vec<u8>>,
}

impl<'a> Run<'a> {
    /// A run at round 0 from `theta_0 = start`, d components. The caller has checked the settings
    /// ([`MethodSettings::check`]).
    ///
    /// # Errors
    /// When the method cannot work over this link, when the link does not suit N agents and d components, or when the method
    /// needs what the problem does not have.
    pub fn new(
        field: impl Into<Held<'a, dyn Field + 'a>>,
        settings: &dyn MethodSettings,
        uplink: impl Into<Held<'a, Uplink>>,
        output: OutputRule,
        seed: u64,
        start: Vec<f64>,
    ) -> Result<Self> {
        let (field, uplink): (Held<'a, dyn Field + 'a>, Held<'a, Uplink>) = (field.into(), uplink.into());
        let (agents, d) = (field.agents(), field.dim());
        let setting = Setting { seed, weights: field.weights(), start: start.clone(), link: uplink.facts(), is_accelerated: false };
        uplink.check(agents, d, settings.protocol(&setting).encodes())?;
        check_needs(settings, &*field)?;
        let Method { client, server, protocol } = settings.build(&setting);
        check_link(settings, &client, &protocol, &uplink, d)?;
        let client = match client {
            Half::Lanes(client) => Working::Lanes(client),
            Half::Each(make) => Working::Each((0..agents).map(make).collect()),
        };
        let chain_len = field.chain_len();
        let mut chains = vec![0; agents * chain_len];
        if chain_len > 0 {
            let key = Key::new(seed, Purpose::Chain, 0);
            chains.chunks_mut(chain_len).enumerate().for_each(|(c, chain)| field.start_chain(c, &mut key.stream(c), chain));
        }
        let link = LinkState {
            feedback: vec![0.0; agents * uplink.feedback_len(d, protocol.exchanges.len())],
            history: History::default(),
            server_end: ServerEnd::new(&uplink, seed, agents),
        };
        let state = State {
            round: 0,
            memory: vec![Chunk::default(); agents * client.stride(d)],
            chains,
            ledger: Ledger::default(),
            output: Output::new(output, &start, seed),
            status: Status::Ok,
            link,
        };
        let is_clear = uplink.is_clear();
        let scratch = Scratch { worker: Worker::new(&*field), is_clear, blocks: Vec::new(), fates: Vec::new(), inbox: Vec::new() };
        let everyone = (0..agents).collect();
        let scale = field.root().map_or(0.0, linalg::norm_sq).max(linalg::norm_sq(&start)).sqrt();
        Ok(Self { field, uplink, client, protocol, server, seed, everyone, scale, state, scratch, abandoned: false })
    }

    /// The number of rounds done.
    pub fn round(&self) -> u64 {
        self.state.round
    }

    /// The server's iterate `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.server.theta()
    }

    /// The method's output: the last iterate, or an average of iterates.
    pub fn output(&self) -> &[f64] {
        self.state.output.value(self.server.theta())
    }

    /// The counts of exchanges, samples, calls, messages and bits since the start.
    pub fn ledger(&self) -> Ledger {
        self.state.ledger
    }

    /// Whether the run has diverged.
    pub fn status(&self) -> Status {
        self.state.status
    }

    /// How many line searches have found no step that lowers the loss enough, for methods that count them.
    pub fn failed_searches(&self) -> Option<u64> {
        self.server.failed_searches()
    }

    /// The mean Hessian of the agents as the server approximates it, for methods that keep an approximation: its lower triangle is read.
    pub fn hessian(&self) -> Option<Mat<f64>> {
        self.server.hessian()
    }

    /// The control variates `xi_c` that the next round will use, N vectors of d components, if the method has any.
    pub fn controls(&self) -> Option<Vec<Vec<f64>>> {
        let Working::Lanes(client) = &self.client else { return None };
        let (d, stride, t) = (self.field.dim(), stride(&**client, self.field.dim()), self.state.round);
        if stride == 0 {
            return None;
        }
        let own = self.server.own(t);
        let is_included = |c: usize| own.as_ref().is_none_or(|own| own.each[c].is_none());
        let control = |(c, memory)| {
            let mut xi = client.control(&Memory::new(memory, d), self.server.theta(), t, is_included(c))?;
            if let Some(control) = self.server.control() {
                xi.iter_mut().zip(control).for_each(|(xi, c)| *xi -= c);
            }
            Some(xi)
        };
        self.state.memory.chunks(stride).enumerate().map(control).collect()
    }

    /// Sets the control variates before the first round: one vector of d components per agent.
    pub fn set_controls(&mut self, controls: &[Vec<f64>]) {
        let stride = self.client.stride(self.field.dim());
        for (memory, xi) in self.state.memory.chunks_mut(stride.max(1)).zip(controls) {
            crate::kernel::flat_mut(memory)[..xi.len()].copy_from_slice(xi);
        }
    }

    /// Runs one round; does nothing if the run has diverged.
    ///
    /// # Panics
    /// When the last round was abandoned and the run was not restored since.
    pub fn step(&mut self) {
        self.advance(None);
    }

    /// As [`Run::step`], but abandons the round soon after `stop` becomes true. Returns whether the round was completed. If
    /// not, the run must be restored ([`Run::restore`]) before it can continue.
    ///
    /// # Panics
    /// As [`Run::step`].
    pub fn step_unless(&mut self, stop: &AtomicBool) -> bool {
        self.advance(Some(stop))
    }

    fn advance(&mut self, stop: Option<&AtomicBool>) -> bool {
        assert!(!self.abandoned, "the last round was abandoned: restore the run first");
        if self.state.status != Status::Ok {
            return true;
        }
        let t = self.state.round;
        let mut ask = self.server.open(t);
        let tell = loop {
            let next = self.exchange(ask, stop);
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.abandoned = true;
                return false;
            }
            match next {
                Next::Ask(next) => ask = next,
                Next::Done { tell } => break tell,
            }
        };
        if let Some(tell) = tell {
            self.tell(tell);
        }
        self.state.round = t + 1;
        self.state.output.see(self.server.theta(), t + 1);
        if has_diverged(self.server.theta(), self.scale) {
            self.state.status = Status::Diverged { round: t + 1 };
        }
        true
    }

    /// The number of local steps that each participant makes in the next round; 0 for methods without local steps.
    pub fn next_local_steps(&self) -> usize {
        match &self.client {
            Working::Lanes(client) => client.local_steps(self.state.round),
            Working::Each(_) => 0,
        }
    }

    /// Sends a message down: the downlink's codec may alter it, and the ledger counts it.
    fn send_down(&mut self, ask: &mut Ask) {
        self.uplink.tell(self.seed, &mut ask.down);
        let n = ask.to.as_ref().map_or(self.everyone.len(), Vec::len);
        let own = ask.own.as_ref().map_or(0, Own::bytes);
        self.state.ledger.down(n, n * ask.down.encoded_len(&*self.uplink.downlink) + own);
        self.state.ledger.exchanges += 1;
    }

    /// One exchange: sends the message down, collects the participants' answers, and returns the server's next action.
    fn exchange(&mut self, mut ask: Ask, stop: Option<&AtomicBool>) -> Next {
        self.send_down(&mut ask);
        match &self.client {
            Working::Lanes(_) => self.exchange_in_lanes(&ask, stop),
            Working::Each(_) => self.exchange_with_each(&ask, stop),
        }
    }

    /// An exchange with agents that work in lanes.
    fn exchange_in_lanes(&mut self, ask: &Ask, stop: Option<&AtomicBool>) -> Next {
        let (d, seed) = (self.field.dim(), self.seed);
        let Run { field, uplink, client: Working::Lanes(client), protocol, server, everyone, state, scratch, .. } = self else {
            unreachable!("called with lanes")
        };
        let (t, exchange) = (ask.down.round, ask.down.exchange);
        let participants = ask.to.as_deref().unwrap_or(everyone);
        let (clear, n) = (scratch.is_clear, participants.len());
        let each = protocol.wants_each(exchange);
        let one_by_one = each || uplink.late.is_some();
        let State { memory, chains, ledger, link, .. } = state;
        if let Some(pull) = &uplink.delay {
            link.history.keep(&ask.down, chains, pull.delay.max());
        }
        let part = protocol.wanted(exchange)[0].part;
        // An answer with an operator takes one evaluation, without local steps.
        let steps = if part == Part::Operator { 1 } else { client.local_steps(t) };
        let (ns, fewest) = work(&**field, steps);
        let shares = Shares::new(n, ns, fewest, rayon::current_num_threads);
        // Blocks of fewer than eight agents are summed once all answers are there.
        let divided = shares.lanes < LANES;
        let job = Job {
            field: &**field,
            client: &**client,
            uplink,
            history: &link.history,
            seed,
            down: &ask.down,
            own: ask.own.as_ref(),
            participants,
            is_last: usize::from(exchange) + 1 == protocol.exchanges.len(),
            strides: Strides {
                memory: stride(&**client, d),
                chains: field.chain_len(),
                feedback: uplink.feedback_len(d, protocol.exchanges.len()),
                channel: uplink.media_len(),
            },
            shares,
            stop,
        };
        let Scratch { worker, blocks, fates, inbox, .. } = scratch;
        blocks.clear();
        blocks.resize(if divided { 0 } else { n.div_ceil(LANES) * d }, 0.0);
        fates.clear();
        fates.resize(if clear && !one_by_one && !divided { 0 } else { n }, Fate::default());
        inbox.clear();
        inbox.resize(if one_by_one || divided { n * d } else { 0 }, 0.0);
        let agents = Agents { first: 0, memory, chains, feedback: &mut link.feedback, channel: &mut link.server_end.channel };
        let sent = job.sweep(0..n, agents, Rows { blocks, fates, inbox }, Some(worker));
        ledger.up(&sent);

        let (at, weights) = (Place { seed, round: t, exchange, agent: ALL }, field.weights());
        let asked = asked_weight(weights, participants);
        if one_by_one || divided {
            let letter = |((c, fate), x): ((&usize, &Fate), &[f64])| {
                let Fate { gain, answers } = *fate;
                let parts = || vec![(part, Body::Numbers(x.to_vec()))];
                (gain != 0.0).then(|| Letter { agent: *c, answers, weight: weights[*c] * gain, parts: parts() })
            };
            let letters = participants.iter().zip(&*fates).zip(inbox.chunks(d)).map(letter).collect();
            let arrivals = link.server_end.arrive(uplink, at, protocol.wanted(exchange), weights, participants, letters);
            return arrivals.with(&ask.down, asked, |got| server.receive(got));
        }
        pairwise(blocks, d);
        uplink.receive(at, &mut [&mut blocks[..d]], n, asked);
        let arrived: Vec<bool> = fates.iter().map(|fate| fate.gain != 0.0).collect();
        let sums = [(part, &blocks[..d])];
        server.receive(&Received { round: t, exchange, down: &ask.down, sums: &sums, asked, arrived: &arrived, letters: &[] })
    }

    /// Sends the participants a message that they do not answer.
    fn tell(&mut self, mut tell: Ask) {
        self.send_down(&mut tell);
        let Run { field, client, everyone, state, scratch, seed, .. } = self;
        let participants = tell.to.as_deref().unwrap_or(everyone);
        let client = match client {
            Working::Lanes(client) => client,
            Working::Each(_) => return self.tell_each(&tell),
        };
        let stride = stride(&**client, field.dim());
        for (i, agents) in participants.chunks(LANES).enumerate() {
            let first = agents[0];
            let memory = &mut state.memory[first * stride..];
            let mut batch = Batch::new(&**field, *seed, &mut scratch.worker.lanes, agents, first, memory, stride);
            if let Some(own) = &tell.own {
                tell_own(&mut batch, own, LANES * i, tell.down.round + 1);
            }
            client.told(&mut batch, &tell.down);
        }
    }

    /// The approximate number of bytes that [`Run::save`] returns.
    pub fn state_len(&self) -> usize {
        let State { memory, chains, output, link, .. } = &self.state;
        let server: usize = self.server.state().iter().map(Vec::len).sum();
        let ends = link.feedback.len() + link.server_end.channel.len() + link.server_end.mail.len() + link.history.len();
        let agents: usize = self.client.save().iter().map(Vec::len).sum();
        8 * (8 * memory.len() + chains.len() + output.len() + server + ends) + agents
    }

    /// The state of the run, as bytes.
    ///
    /// # Panics
    /// When the last round was abandoned.
    pub fn save(&self) -> Vec<u8> {
        assert!(!self.abandoned, "an abandoned round is not to be saved");
        let State { round, memory, chains, ledger, output, status, link } = &self.state;
        let memory = crate::kernel::flat(memory);
        let saving = Saving {
            layout: LAYOUT,
            round: *round,
            memory,
            chains,
            ledger,
            output,
            status,
            link,
            server: self.server.state(),
            agents: self.client.save(),
        };
        postcard::to_stdvec(&saving).expect("plain data serialises")
    }

    /// Restores a state that [`Run::save`] returned for a run with the same settings.
    ///
    /// # Errors
    /// When the bytes are not such a state. The run is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let bad = || BadInput::format("checkpoint", "not a saved run of these settings", "a checkpoint that this program wrote");
        if let Ok((layout, _)) = postcard::take_from_bytes::<u32>(bytes)
            && layout != LAYOUT
        {
            let what = format!("a saved run of layout {layout}; this version has {LAYOUT}");
            return Err(BadInput::format("checkpoint", what, "a checkpoint of this version"));
        }
        let (saved, rest): (Saved, _) = postcard::take_from_bytes(bytes).map_err(|_| bad())?;
        if !rest.is_empty() || !self.can_be_at(&saved) {
            return Err(bad());
        }
        let before = self.client.save();
        if let Working::Each(agents) = &mut self.client
            && agents.iter_mut().zip(&saved.agents).any(|(agent, bytes)| agent.restore(bytes).is_err())
        {
            agents.iter_mut().zip(&before).for_each(|(agent, bytes)| agent.restore(bytes).expect("its own state"));
            return Err(bad());
        }
        // This is the last step that can fail. If it fails, the agents' states are put back.
        if self.server.restore(saved.server, saved.round).is_err() {
            if let Working::Each(agents) = &mut self.client {
                agents.iter_mut().zip(&before).for_each(|(agent, bytes)| agent.restore(bytes).expect("its own state"));
            }
            return Err(bad());
        }
        crate::kernel::flat_mut(&mut self.state.memory).copy_from_slice(&saved.memory);
        let State { round, chains, ledger, output, status, link, .. } = &mut self.state;
        (*round, *chains, *ledger, *output, *status) = (saved.round, saved.chains, saved.ledger, saved.output, saved.status);
        *link = saved.link;
        self.abandoned = false;
        Ok(())
    }

    /// Whether `saved` is a possible state of this run, apart from the server's state. Checks every value on which later
    /// rounds rely, because a checksum of the file does not protect against deliberate changes.
    fn can_be_at(&self, saved: &Saved) -> bool {
        let (field, uplink, state) = (&*self.field, &*self.uplink, &self.state);
        let (agents, words) = (field.agents(), field.chain_len());
        let are_chains = |chains: &[u64]| {
            let mut each = chains.chunks(words.max(1)).enumerate();
            chains.len() == agents * words && each.all(|(c, chain)| field.is_state(c, chain))
        };
        let (reach, latest) = (uplink.delay.as_ref().map(|pull| pull.delay.max()), uplink.late.as_ref().map(|late| late.max()));
        saved.round < u64::from(u32::MAX)
            && saved.memory.len() == 8 * state.memory.len()
            && are_chains(&saved.chains)
            && saved.ledger.is_possible()
            && saved.output.continues(&state.output)
            && saved.link.feedback.len() == state.link.feedback.len()
            && saved.link.server_end.channel.len() == state.link.server_end.channel.len()
            && saved.link.history.is_of(saved.round, reach, &self.protocol, are_chains)
            && saved.link.server_end.mail.is_of(saved.round, saved.round, latest, agents, &self.protocol)
            && saved.agents.len() == self.client.save().len()
    }
}

/// Checks that the problem has what the method needs.
///
/// # Errors
/// When the method needs an objective or linear operators and the problem has none.
pub fn check_needs(settings: &dyn MethodSettings, field: &dyn Field) -> Result<()> {
    let (facts, d, most) = (field.facts(), field.dim(), settings.largest_dimension());
    if d > most {
        let what = format!("messages of the method hold at most d = {most} components, and the problem has d = {d}");
        return Err(BadInput::new("kind", what, "fewer features, or another method"));
    }
    match settings.needs() {
        Needs::Objective if facts.objective().is_none() => {
            let what = "the method needs losses, gradients and Hessians, and the problem's operators are not known to be gradients";
            Err(BadInput::new("kind", what, "a problem with an objective, such as linear systems with symmetric A_c"))
        }
        Needs::LinearOperators if facts.linear_operators().is_none() => {
            let what = "the method solves a linear system, and the problem's operators are not known to be linear";
            Err(BadInput::new("kind", what, "a linear problem, or a method that needs samples only"))
        }
        _ => Ok(()),
    }
}

/// The approximate time of an agent's answer with this number of local steps, in nanoseconds, and the smallest number of
/// lanes that are almost as efficient as eight. Steps on samples wait for their own sums, and other lanes fill this time.
fn work(field: &dyn Field, local_steps: usize) -> (f64, usize) {
    let (d, width) = (field.dim() as f64, chunks(field.dim()));
    let sparse = field.facts().step_work().map(|work| work as f64);
    let (step, fewest) = match field.sampling().samples_per_step() {
        batch if sparse.is_some() => (sparse.unwrap_or(0.0) * batch.max(1) as f64, 1),
        0 => (2.0 + d * width as f64 / 2.0, if width > 2 { 1 } else { 4 }),
        batch if let Some(ns) = field.facts().sample_ns() => (ns * batch as f64, if batch > 1 || width > 2 { 1 } else { 4 }),
        1 => (4.0 * width as f64, 4),
        batch => (10.0 * (batch * width) as f64, 1),
    };
    (20.0 + step * local_steps as f64, fewest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Isa;
    use crate::message::{Message, Part};
    use crate::methods::delayed_sa::{Dasa, DelayedSa};
    use crate::problem::finite_sum::FiniteSum;
    use crate::problem::switching::Switching;
    use crate::problem::{NoFiles, ProblemSettings as _};
    use crate::sampling::{Law, Sampling};
    use crate::schedule::StepSize;
    use crate::uplink::medium::MediumSettings as _;
    use crate::uplink::medium::delay::{Before, Delay, Late, Pull};

    /// Eight agents whose steps read matrices from memory are worth two threads, although a leg has few steps.
    #[test]
    fn work_on_drawn_matrices_is_shared_out() {
        let problem = FiniteSum { agents: 8, terms: 2, dim: 200, ..FiniteSum::default() };
        let field = problem.field(&NoFiles, Sampling { kind: Law::Markov, ..Sampling::default() }, Isa::best()).unwrap();
        let (ns, fewest) = work(&*field, 10);
        assert_eq!(Shares::new(8, ns, fewest, || 2), Shares { grain: 4, lanes: 4 });
        assert_eq!(Shares::new(8, ns, fewest, || 8).lanes, 1);
    }

    /// Whether a saved run of 5 rounds is restored after `change` has altered it. If so, it continues.
    fn is_put_back(method: &dyn MethodSettings, uplink: &Uplink, change: impl Fn(&mut Saved)) -> bool {
        with_output(OutputRule::Average, method, uplink, change)
    }

    fn with_output(output: OutputRule, method: &dyn MethodSettings, uplink: &Uplink, change: impl Fn(&mut Saved)) -> bool {
        let problem = Switching { agents: 3, dim: 2, mixing_time: 3.0, spread: 1.0, ..Switching::default() };
        let field = problem.field(&NoFiles, Sampling { kind: Law::Markov, ..Sampling::default() }, Isa::Portable).unwrap();
        let new = || Run::new(&*field, method, uplink, output, 1, vec![0.0; 2]).unwrap();
        let mut run = new();
        (0..5).for_each(|_| run.step());
        let mut saved: Saved = postcard::from_bytes(&run.save()).unwrap();
        change(&mut saved);
        let bytes = postcard::to_stdvec(&saved).unwrap();
        let mut again = new();
        let before = again.save();
        if again.restore(&bytes).is_err() {
            assert_eq!(again.save(), before, "what is refused changes nothing");
            return false;
        }
        assert_eq!(again.save(), bytes);
        (0..3).for_each(|_| again.step());
        assert_eq!(again.output().len(), 2);
        true
    }

    #[test]
    fn a_state_that_the_run_cannot_come_to_is_refused() {
        let step_size = StepSize::Constant(0.01);
        let clear = Uplink::default();
        let plain = |change: &dyn Fn(&mut Saved)| is_put_back(&DelayedSa::new(step_size), &clear, change);
        assert!(plain(&|_| ()));
        assert!(!plain(&|saved| saved.layout = 1), "of another version");
        assert!(!plain(&|saved| saved.chains[1] = 2), "of two states");
        assert!(!plain(&|saved| saved.chains.truncate(2)));
        assert!(!plain(&|saved| saved.memory.push(0.0)));
        assert!(!plain(&|saved| saved.round = u64::from(u32::MAX)));
        assert!(!plain(&|saved| saved.ledger.samples = u64::MAX));
        assert!(!plain(&|saved| saved.output = Output::new(OutputRule::Last, &[0.0; 2], 1)));
        assert!(!plain(&|saved| saved.output = Output::new(OutputRule::Average, &[0.0; 3], 1)));
        let counted = |saved: &mut Saved| {
            // No iterates are counted where the last one is the output.
            let mut average = Output::new(OutputRule::Average, &[], 1);
            average.see(&[], 1);
            let bytes = postcard::to_stdvec(&(OutputRule::Last, average)).unwrap();
            let without_rule = postcard::to_stdvec(&OutputRule::Average).unwrap().len();
            let last = postcard::to_stdvec(&OutputRule::Last).unwrap().len();
            saved.output = postcard::from_bytes(&[&bytes[..last], &bytes[last + without_rule..]].concat()).unwrap();
        };
        assert!(with_output(OutputRule::Last, &DelayedSa::new(step_size), &clear, |_| ()));
        assert!(!with_output(OutputRule::Last, &DelayedSa::new(step_size), &clear, counted));
        assert!(!plain(&|saved| saved.server[0].truncate(1)));
        assert!(!plain(&|saved| saved.server.push(vec![0.0; 2])));
        let stray = Letter { agent: 0, answers: 4, weight: 1.0, parts: vec![(Part::Direction, Body::Numbers(vec![0.0; 2]))] };
        assert!(!plain(&|saved| saved.link.server_end.mail.post(0, 6, stray.clone())), "nothing is late on a clear link");
        assert!(!plain(&|saved| saved.link.history.keep(&Message::one(4, 0, Part::Model, vec![0.0; 2]), &[0; 3], 9)));

        let mut late = Uplink::default();
        Late(Delay::Constant { rounds: 2 }).install(&mut late).unwrap();
        let pushed = |change: &dyn Fn(&mut Saved)| is_put_back(&Dasa::new(step_size), &late, change);
        let with = |due: u64, letter: Letter| pushed(&|saved| saved.link.server_end.mail.post(0, due, letter.clone()));
        assert!(pushed(&|_| ()));
        assert!(with(6, stray.clone()));
        assert!(!with(4, stray.clone()), "before this round");
        assert!(!with(7, stray.clone()), "later than the link has it");
        assert!(!with(6, Letter { agent: 3, ..stray.clone() }));
        assert!(!with(6, Letter { answers: 5, ..stray.clone() }), "to a question not yet asked");
        assert!(!with(6, Letter { parts: vec![(Part::Direction, Body::Numbers(vec![0.0; 3]))], ..stray.clone() }));
        // theta_t, the round of the first model, models.
        assert!(!pushed(&|saved| saved.server[1][0] = 1.0));
        assert!(!pushed(&|saved| drop(saved.server.pop())));
        assert!(!pushed(&|saved| saved.server[3].truncate(1)));

        let mut stale = Uplink::default();
        Pull { before: Before::First, delay: Delay::Constant { rounds: 2 } }.install(&mut stale).unwrap();
        let pulled = |change: &dyn Fn(&mut Saved)| is_put_back(&DelayedSa::new(step_size), &stale, change);
        let past = |round: u64, d: usize, chains: &[u64]| {
            pulled(&|saved| saved.link.history.keep(&Message::one(round, 0, Part::Model, vec![0.0; d]), chains, 2))
        };
        assert!(pulled(&|_| ()));
        assert!(!pulled(&|saved| saved.link.history = History::default()));
        assert!(!past(5, 2, &[0; 3]), "a round not yet begun");
        let last = |d: usize, state: u64| {
            pulled(&|saved| {
                saved.link.history = History::default();
                for round in 2..5 {
                    saved.link.history.keep(&Message::one(round, 0, Part::Model, vec![0.0; d]), &[state; 3], 9);
                }
            })
        };
        assert!(last(2, 1));
        assert!(!last(3, 1));
        assert!(!last(2, 2));
    }
}
