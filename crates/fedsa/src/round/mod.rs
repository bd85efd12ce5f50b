//! The in-process engine: a coordinator with all agents in this process.
//!
//! Agents that work in lanes are processed in blocks of eight, blocks in parallel (`sweep`); agents that compute alone answer in
//! parallel (`each`). Results do not depend on the number of threads, because every random draw has a key and every sum has a fixed
//! order.

mod each;
mod history;
mod one;
mod pass;
mod reached;
mod replayed;
mod saved;
mod sweep;

use std::sync::Arc;

use faer::Mat;

use crate::cancel::Cancel;
use crate::coordinator::{Arrival, Coordinator, Refusal, Step};
use crate::error::{Error, Failure, Result};
use crate::federation::Federation;
use crate::kernel::{Chunk, LANES, chunks};
use crate::local::{Agent, AgentBatch, AgentMemory, Client, stride};
use crate::message::Part;
use crate::methods::Half;
use crate::metrics::Observable;
use crate::problem::Field;
use crate::random::{Key, Purpose};
use crate::record::{Ledger, Work};
use history::History;
use reached::Reached;
use sweep::{Agents, Counted, Job, Rows, Shares, Strides, Worker, lanes_for, tell_own};

pub use crate::federation::check_needs;
pub use crate::sums::{accumulate, pairwise, sum};
pub use one::{Advanced, Exchanges, round};

/// One run: a federation whose agents are all in this process, on the data of a field.
pub struct Run {
    field: Arc<dyn Field>,
    coordinator: Coordinator,
    client: Working,
    state: State,
    scratch: Scratch,
    /// Whether the last round was cancelled before its end.
    is_torn: bool,
    /// Why a client rule has failed, if one has.
    failure: Failure,
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

/// The agents' state that lasts from round to round.
#[derive(Debug, Clone)]
struct State {
    /// The vectors that agents in lanes keep.
    memory: Vec<Chunk>,
    /// The agents' sampling processes.
    chains: Vec<u64>,
    /// The memory of error feedback, [`crate::uplink::Uplink::feedback_len`] numbers per agent.
    feedback: Vec<f64>,
    /// Past rounds, for stale models.
    history: History,
    /// What the agents have computed.
    work: Work,
    /// The round that each agent answered last, if arrivals are replayed; otherwise empty.
    answered: Vec<Option<u64>>,
}

/// Buffers that rounds reuse.
struct Scratch {
    worker: Worker,
    /// Whether the link is clear.
    is_clear: bool,
    /// The number of local steps that was last looked up, and what an answer with them costs: asked for in each round, which may be short.
    cost: Option<(usize, Cost)>,
    blocks: Vec<f64>,
    arrivals: Vec<Arrival>,
    inbox: Vec<f64>,
}

impl Scratch {
    /// How `n` participants that make so many local steps are shared out among threads.
    fn shares(&mut self, field: &dyn Field, n: usize, local_steps: usize) -> Shares {
        let Cost { ns, fewest } = match self.cost {
            Some((steps, cost)) if steps == local_steps => cost,
            _ => self.cost.insert((local_steps, cost(field, local_steps))).1,
        };
        Shares::new(n, ns, fewest, rayon::current_num_threads)
    }

    /// Makes room for the answers of n agents, d numbers each: sums of blocks of eight, or single answers where blocks are `divided` or
    /// answers are wanted `one_by_one`.
    fn make_room(&mut self, n: usize, d: usize, divided: bool, one_by_one: bool) {
        let Self { blocks, arrivals, inbox, is_clear, .. } = self;
        blocks.clear();
        blocks.resize(if divided { 0 } else { n.div_ceil(LANES) * d }, 0.0);
        arrivals.clear();
        arrivals.resize(if *is_clear && !one_by_one && !divided { 0 } else { n }, Arrival::default());
        inbox.clear();
        inbox.resize(if one_by_one || divided { n * d } else { 0 }, 0.0);
    }
}

/// One exchange with what it works on.
struct Task<'a> {
    job: Job<'a>,
    agents: Agents<'a>,
    rows: Rows<'a>,
    worker: &'a mut Worker,
    /// Whether answers are handed in one by one, and not as the sums of blocks.
    wants_each: bool,
}

impl Run {
    /// A run of a federation at round 0, with the agents' data in `field`.
    ///
    /// # Errors
    /// When the field has another number of agents or another dimension than the federation, or lacks what the method needs.
    pub fn new(field: &Arc<dyn Field>, federation: &Federation) -> Result<Self> {
        let field = Arc::clone(field);
        let (agents, d, seed) = (field.agents(), field.dim(), federation.seed());
        let federation = field.root().map_or_else(|| federation.clone(), |root| federation.clone().with_root(root));
        let accepted = format!("{agents} weights, one for each agent of the data");
        crate::error::require(federation.agents() == agents, "weights", format!("{} weights", federation.agents()), &accepted)?;
        federation.check_field(&*field)?;
        let (client, protocol) = federation.client()?;
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
        field.started()?;
        let state = State {
            memory: vec![Chunk::default(); agents * client.stride(d)],
            chains,
            feedback: vec![0.0; agents * federation.uplink().feedback_len(d, protocol.exchanges.len())],
            history: History::default(),
            work: Work::default(),
            answered: Vec::new(),
        };
        let is_clear = federation.uplink().is_clear();
        let worker = Worker::new(&*field);
        let scratch = Scratch { worker, is_clear, cost: None, blocks: Vec::new(), arrivals: Vec::new(), inbox: Vec::new() };
        let coordinator = Coordinator::new(&federation)?;
        Ok(Self { coordinator, field, client, state, scratch, is_torn: false, failure: Failure::default() })
    }

    /// The coordinator, which knows the iterate, the output, what was refused, and whether the iterates have diverged.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The number of rounds done.
    pub fn round(&self) -> u64 {
        self.coordinator.rounds()
    }

    /// The server's iterate `theta_t`.
    pub fn theta(&self) -> &[f64] {
        self.coordinator.theta()
    }

    /// The method's output: the last iterate, or an average of iterates.
    pub fn output(&self) -> &[f64] {
        self.coordinator.output()
    }

    /// The counts of exchanges, samples, calls, messages and bits since the start.
    pub fn ledger(&self) -> Ledger {
        self.coordinator.ledger().with(self.state.work)
    }

    /// The number of rounds done when the iterates were found to have diverged, if they have.
    pub fn diverged(&self) -> Option<u64> {
        self.coordinator.diverged()
    }

    /// The answers of the last round that were refused, and agents that could not answer.
    pub fn refusals(&self) -> &[Refusal] {
        self.coordinator.refusals()
    }

    /// As [`Coordinator::failed_searches`].
    pub fn failed_searches(&self) -> Option<u64> {
        self.coordinator.failed_searches()
    }

    /// As [`Coordinator::hessian`].
    pub fn hessian(&self) -> Option<Mat<f64>> {
        self.coordinator.hessian()
    }

    /// The control variates `xi_c` that the next round will use, N vectors of d components, if the method has any.
    pub fn controls(&self) -> Option<Vec<Vec<f64>>> {
        Observable::controls(self)
    }

    /// Sets the control variates before the first round: one vector of d components per agent.
    pub fn set_controls(&mut self, controls: &[Vec<f64>]) {
        let stride = self.client.stride(self.field.dim());
        for (memory, xi) in self.state.memory.chunks_mut(stride.max(1)).zip(controls) {
            crate::kernel::flat_mut(memory)[..xi.len()].copy_from_slice(xi);
        }
    }

    /// Runs one round; does nothing if the iterates have diverged.
    pub fn step(&mut self) {
        self.advance(&Cancel::never());
    }

    /// Runs one round, and abandons it soon after `cancel` is set.
    pub fn advance(&mut self, cancel: &Cancel) -> Advanced {
        // Why it has failed is said by `failure`.
        round(self, cancel).unwrap_or(Advanced::Cancelled)
    }

    /// What was done, unless operators or a rule have failed meanwhile: the round is then void.
    fn unless_failed<T>(&mut self, done: T) -> Result<T> {
        match self.failure() {
            None => Ok(done),
            Some(reason) => {
                self.is_torn = true;
                Err(reason)
            }
        }
    }

    /// Goes back to round 0, without the controls of [`Run::set_controls`].
    ///
    /// # Errors
    /// As [`Run::new`].
    pub fn restart(&mut self) -> Result<()> {
        self.field.recover();
        let mut again = Self::new(&self.field, self.coordinator.federation())?;
        if let Some(replay) = self.coordinator.replayed() {
            again.coordinator.replay(Arc::clone(replay));
        }
        *self = again;
        Ok(())
    }

    /// Whether the last round was cancelled before its end, so that the run must be restored before it can go on.
    pub fn is_torn(&self) -> bool {
        self.is_torn || self.failure().is_some()
    }

    /// Why operators could not be evaluated, where they are evaluated elsewhere ([`Field::failure`]), or why a rule failed that can
    /// ([`Client::answer`], [`crate::server::Server::failure`]). The run must then be restored or restarted.
    pub fn failure(&self) -> Option<Error> {
        self.field.failure().or_else(|| self.failure.get()).or_else(|| self.coordinator.failure())
    }

    /// The number of local steps that each participant makes in the next round; 0 for methods without local steps.
    pub fn next_local_steps(&self) -> usize {
        match &self.client {
            Working::Lanes(client) => client.local_steps(self.round()),
            Working::Each(_) => 0,
        }
    }

    /// An exchange with agents that work in lanes.
    fn exchange_in_lanes(&mut self, cancel: &Cancel) {
        let reached = self.reached();
        let Task { job, agents, rows, worker, wants_each } = self.task(reached.as_ref(), cancel);
        let counted = job.sweep(0..job.participants.len(), agents, rows, Some(worker));
        self.hand_in(counted, wants_each);
    }

    /// The agents that the open question reaches, if these are not all that are asked.
    fn reached(&mut self) -> Option<Reached> {
        Reached::of(&self.coordinator, &mut self.state.answered)
    }

    /// The open exchange with agents that work in lanes.
    fn task<'a>(&'a mut self, reached: Option<&'a Reached>, cancel: &'a Cancel) -> Task<'a> {
        let Run { field, client: Working::Lanes(client), coordinator, state, scratch, failure, .. } = self else {
            unreachable!("called with lanes")
        };
        let (d, seed) = (field.dim(), coordinator.federation().seed());
        let (exchange, exchanges) = (coordinator.question().down.exchange, coordinator.protocol().exchanges.len());
        let one_by_one = coordinator.protocol().wants_each(exchange) || coordinator.needs_single_answers();
        let part = coordinator.wanted_of_lanes();
        let State { memory, chains, feedback, history, .. } = state;
        let (ask, participants, uplink, channel) = coordinator.with_channel();
        if let Some(pull) = &uplink.delay {
            history.keep(&ask.down, chains, pull.delay.max());
        }
        let (participants, own) = reached.map_or((participants, ask.own.as_ref()), Reached::parts);
        let n = participants.len();
        // An answer with an operator takes one evaluation, without local steps.
        let steps = if part == Part::Operator { 1 } else { client.local_steps(ask.down.round) };
        let is_one_call = field.prefers_one_call() || client.prefers_one_call();
        let shares = if is_one_call { Shares::of_one_call(n) } else { scratch.shares(&**field, n, steps) };
        // Blocks of fewer than eight agents are summed once all answers are there.
        let divided = shares.lanes < LANES;
        let job = Job {
            field,
            weights: field.weights(),
            client: &**client,
            uplink,
            history,
            seed,
            down: &ask.down,
            own,
            answered: reached.and_then(Reached::answered),
            participants,
            is_last: usize::from(exchange) + 1 == exchanges,
            strides: Strides {
                memory: stride(&**client, d),
                chains: field.chain_len(),
                feedback: uplink.feedback_len(d, exchanges),
                channel: uplink.media_len(),
            },
            shares,
            cancel,
            failure,
        };
        scratch.make_room(n, d, divided, one_by_one);
        let Scratch { worker, blocks, arrivals, inbox, .. } = scratch;
        let agents = Agents { first: 0, memory, chains, feedback, channel };
        Task { job, agents, rows: Rows { blocks, arrivals, inbox }, worker, wants_each: one_by_one || divided }
    }

    /// Hands in the answers of agents in lanes: each, or their sums.
    fn hand_in(&mut self, (sent, computed): Counted, wants_each: bool) {
        let Run { coordinator, state, scratch: Scratch { blocks, arrivals, inbox, .. }, .. } = self;
        state.work = state.work.and(computed);
        coordinator.pass_over_channels();
        if wants_each {
            coordinator.accept_each(inbox, arrivals, &sent);
        } else {
            let d = coordinator.federation().dim();
            pairwise(blocks, d);
            coordinator.accept_sums(&blocks[..d], arrivals, &sent);
        }
    }

    /// Carries the message at the end of a round to participants in lanes.
    fn tell_lanes(&mut self) {
        let Run { field, client: Working::Lanes(client), coordinator, state, scratch, .. } = self else {
            unreachable!("called with lanes")
        };
        let (tell, stride, seed) = (coordinator.question(), stride(&**client, field.dim()), coordinator.federation().seed());
        let mut tell_block = |agents: &[usize], places: &mut dyn Iterator<Item = usize>| {
            let first = agents[0];
            let memory = &mut state.memory[first * stride..];
            let blocks = lanes_for(&mut scratch.worker.blocks, agents.len());
            let mut batch = AgentBatch::new(field, seed, blocks, agents, first, memory, stride);
            if let Some(own) = &tell.own {
                tell_own(&mut batch, places.map(|i| own.each[i].as_deref()), None, tell.down.round + 1);
            }
            client.told(&mut batch, &tell.down);
        };
        match coordinator.told(client.controls().is_some()) {
            None => {
                for (i, agents) in coordinator.asked().chunks(LANES).enumerate() {
                    tell_block(agents, &mut (LANES * i..));
                }
            }
            Some(told) => {
                for block in told.chunks(LANES) {
                    let (places, agents): (Vec<usize>, Vec<usize>) = block.iter().copied().unzip();
                    tell_block(&agents, &mut places.into_iter());
                }
            }
        }
    }
}

impl Exchanges for Run {
    /// Opens a round.
    fn open(&mut self) -> Result<Step> {
        let available = self.available();
        let step = self.coordinator.open(available.as_deref());
        self.unless_failed(step)
    }

    /// Carries the open question to the participants, and hands their answers in; false if it was cancelled.
    fn exchange(&mut self, cancel: &Cancel) -> Result<bool> {
        self.catch_up();
        match &self.client {
            Working::Lanes(_) => self.exchange_in_lanes(cancel),
            Working::Each(_) => self.exchange_with_each(cancel),
        }
        self.is_torn = cancel.is_cancelled();
        self.unless_failed(!self.is_torn)
    }

    /// Ends an exchange whose answers have been handed in.
    fn close(&mut self) -> Result<Step> {
        let step = self.coordinator.close();
        self.unless_failed(step)
    }

    /// Carries the message at the end of a round to the participants, who do not answer.
    fn tell(&mut self) -> Result<()> {
        match &self.client {
            Working::Lanes(_) => self.tell_lanes(),
            Working::Each(_) => self.tell_each(),
        }
        self.unless_failed(())
    }

    fn is_torn(&self) -> bool {
        Run::is_torn(self)
    }
}

impl Observable for Run {
    fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    fn each_control(&self, see: &mut dyn FnMut(usize, &[f64])) -> bool {
        let Working::Lanes(client) = &self.client else { return false };
        let (d, stride, t) = (self.field.dim(), stride(&**client, self.field.dim()), self.round());
        if stride == 0 {
            return false;
        }
        let server = self.coordinator.server();
        let own = server.own(t);
        let is_included = |c: usize| own.as_ref().is_none_or(|own| own.each[c].is_none());
        let mut xi = vec![0.0; d];
        self.state.memory.chunks(stride).enumerate().all(|(c, memory)| {
            let keeps = client.control(&AgentMemory::new(memory, d), server.theta(), t, is_included(c), &mut xi);
            if keeps {
                server.control().into_iter().for_each(|control| xi.iter_mut().zip(control).for_each(|(xi, c)| *xi -= c));
                see(c, &xi);
            }
            keeps
        })
    }
}

/// What an agent's answer costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The approximate time in nanoseconds.
    ns: f64,
    /// The smallest number of lanes that are almost as efficient as eight. Steps on samples wait for their own sums, and other lanes fill this
    /// time.
    fewest: usize,
}

/// What an answer with this number of local steps costs.
fn cost(field: &dyn Field, local_steps: usize) -> Cost {
    let (d, width) = (field.dim() as f64, chunks(field.dim()));
    let sparse = field.facts().step_work().map(|work| work as f64);
    let (step, fewest) = match field.sampling().samples_per_step() {
        batch if sparse.is_some() => (sparse.unwrap_or(0.0) * batch.max(1) as f64, 1),
        0 => (2.0 + d * width as f64 / 2.0, if width > 2 { 1 } else { 4 }),
        batch if let Some(ns) = field.facts().sample_ns() => (ns * batch as f64, if batch > 1 || width > 2 { 1 } else { 4 }),
        1 => (4.0 * width as f64, 4),
        batch => (10.0 * (batch * width) as f64, 1),
    };
    Cost { ns: 20.0 + step * local_steps as f64, fewest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Isa;
    use crate::problem::finite_sum::FiniteSum;
    use crate::problem::{NoFiles, ProblemSettings as _};
    use crate::sampling::{Law, Sampling};

    /// Eight agents whose steps read matrices from memory are worth two threads, although a leg has few steps.
    #[test]
    fn work_on_drawn_matrices_is_shared_out() {
        let problem = FiniteSum { agents: 8, terms: 2, dim: 200, ..FiniteSum::default() };
        let field = problem.field(&NoFiles, Sampling { kind: Law::Markov, ..Sampling::default() }, Isa::best()).unwrap();
        let Cost { ns, fewest } = cost(&*field, 10);
        assert_eq!(Shares::new(8, ns, fewest, || 2), Shares { grain: 4, lanes: 4 });
        assert_eq!(Shares::new(8, ns, fewest, || 8).lanes, 1);
    }
}
