//! The in-process engine: a coordinator with all agents in this process.
//!
//! Agents are processed in batches, batches in parallel (`sweep`). Results do not depend on the number of threads: every random draw has a
//! key, and every sum a fixed order.

mod history;
mod one;
mod reached;
mod saved;
mod sweep;

use std::sync::Arc;

use faer::Mat;

use crate::cancel::Cancel;
use crate::coordinator::{Coordinator, Refusal, Reply, Step};
use crate::error::{Error, Failure, Result};
use crate::federation::Federation;
use crate::kernel::{Chunk, LANES, chunks, flat_mut};
use crate::local::{Agent, AgentBatch, AgentMemory, Client, stride};
use crate::message::Part;
use crate::metrics::Observable;
use crate::parallel;
use crate::problem::Field;
use crate::random::{Key, Purpose};
use crate::record::{Ledger, Work};
use history::History;
use reached::Reached;
use sweep::{Agents, Job, Rows, Shares, Strides, Worker, lanes_for, tell_own};

pub use crate::federation::{check_needs, check_units};
pub use crate::sums::{accumulate, pairwise, sum};
pub use one::{Advanced, Exchanges, round};

/// A federation with all agents in this process, on the data of a field.
pub struct Run {
    field: Arc<dyn Field>,
    coordinator: Coordinator,
    client: Box<dyn Client>,
    /// Agents that compute alone (otherwise empty).
    alone: Vec<Box<dyn Agent>>,
    state: State,
    scratch: Scratch,
    /// Whether the last round was cancelled before its end.
    is_torn: bool,
    /// Why a client rule has failed, if one has.
    failure: Failure,
}

/// The agents' state that lasts from round to round.
#[derive(Debug, Clone)]
struct State {
    /// The stored vectors of agents in lanes.
    memory: Vec<Chunk>,
    /// The agents' sampling processes.
    chains: Vec<u64>,
    /// The memory of error feedback, [`crate::uplink::Uplink::feedback_len`] numbers per agent.
    feedback: Vec<f64>,
    /// Past rounds, for stale models.
    history: History,
    /// The agents' work.
    work: Work,
}

/// Buffers that rounds reuse.
struct Scratch {
    worker: Worker,
    /// The last number of local steps and the cost of an answer with them, cached because rounds may be short.
    cost: Option<(usize, Cost)>,
    /// The sums of blocks of eight agents, d numbers each; empty if answers are single.
    blocks: Vec<f64>,
    /// Whether each answer arrives, for sums over a link that loses or alters messages; otherwise empty.
    arrived: Vec<bool>,
    /// The answers of single agents; empty if they are summed.
    answers: Vec<Option<Result<(Reply, usize)>>>,
}

impl Scratch {
    /// How `n` participants are divided among threads; with `is_stale` some answer an older model.
    fn shares(&mut self, field: &dyn Field, n: usize, local_steps: usize, is_stale: bool) -> Shares {
        let Cost { ns, fewest, usual } = match self.cost {
            Some((steps, cost)) if steps == local_steps => cost,
            _ => self.cost.insert((local_steps, cost(field, local_steps))).1,
        };
        // Agents with an older model are computed one by one, so their batch stays small.
        Shares::new(n, ns, fewest, if is_stale { LANES } else { usual }, rayon::current_num_threads)
    }

    /// Makes room for the sums of n agents' answers, d numbers for each eight agents, and with `has_gains` for which of them arrive; or for
    /// single answers.
    fn make_room(&mut self, n: usize, d: usize, wants_sum: bool, has_gains: bool) {
        self.blocks.clear();
        self.blocks.resize(if wants_sum { n.div_ceil(LANES) * d } else { 0 }, 0.0);
        self.arrived.clear();
        self.arrived.resize(if has_gains { n } else { 0 }, false);
        self.answers.clear();
        self.answers.resize(if wants_sum { 0 } else { n }, None);
    }
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
        check_units(federation.uplink(), &*field)?;
        let (client, protocol) = federation.client()?;
        let alone: Vec<Box<dyn Agent>> = client.facts().agents.map_or_else(Vec::new, |make| (0..agents).map(make).collect());
        let chain_len = field.chain_len();
        let mut chains = vec![0; agents * chain_len];
        if chain_len > 0 {
            let key = Key::new(seed, Purpose::Chain, 0);
            chains.chunks_mut(chain_len).enumerate().for_each(|(c, chain)| field.start_chain(c, &mut key.stream(c), chain));
        }
        field.started()?;
        let state = State {
            memory: vec![Chunk::default(); agents * stride(&*client, d)],
            chains,
            feedback: vec![0.0; agents * federation.uplink().feedback_len(d, protocol.exchanges.len())],
            history: History::default(),
            work: Work::default(),
        };
        let worker = Worker::new(&*field, !alone.is_empty());
        let scratch = Scratch { worker, cost: None, blocks: Vec::new(), arrived: Vec::new(), answers: Vec::new() };
        let coordinator = Coordinator::new(&federation)?;
        Ok(Self { coordinator, field, client, alone, state, scratch, is_torn: false, failure: Failure::default() })
    }

    /// The coordinator, which knows the iterate, the output, refused answers, and whether the iterates have diverged.
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
        let stride = stride(&*self.client, self.field.dim());
        for (memory, xi) in self.state.memory.chunks_mut(stride.max(1)).zip(controls) {
            flat_mut(memory)[..xi.len()].copy_from_slice(xi);
        }
    }

    /// Runs one round; does nothing if the iterates have diverged.
    pub fn step(&mut self) {
        self.advance(&Cancel::never());
    }

    /// Runs one round, and abandons it soon after `cancel` is set.
    pub fn advance(&mut self, cancel: &Cancel) -> Advanced {
        // `failure` has the reason of an error.
        round(self, cancel).unwrap_or(Advanced::Cancelled)
    }

    /// `done`, unless operators or a rule failed meanwhile, which makes the round void.
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
        *self = Self::new(&self.field, self.coordinator.federation())?;
        Ok(())
    }

    /// Whether the last round was cancelled before its end, so that the run must be restored before it can go on.
    pub fn is_torn(&self) -> bool {
        self.is_torn || self.failure().is_some()
    }

    /// Why operators that are evaluated elsewhere failed ([`Field::failure`]), or why a rule failed ([`Client::answer`],
    /// [`crate::server::ServerFacts::failure`]). The run must then be restored or restarted.
    pub fn failure(&self) -> Option<Error> {
        self.field.failure().or_else(|| self.failure.get()).or_else(|| self.coordinator.failure())
    }

    /// The number of local steps that each participant makes in the next round; 0 for methods without local steps.
    pub fn next_local_steps(&self) -> usize {
        self.client.local_steps(self.round())
    }

    /// The participants answer the open question, and the coordinator takes the answers.
    fn answer(&mut self, cancel: &Cancel) {
        let reached = Reached::of(&self.coordinator);
        let Run { field, client, alone, coordinator, state, scratch, failure, .. } = self;
        let n = reached.as_ref().map_or(coordinator.asked().len(), |reached| reached.agents.len());
        let is_stale = coordinator.federation().uplink().pull().is_some();
        let shares = match () {
            () if !alone.is_empty() => Shares::of_alone(n, parallel::threads()),
            () if field.prefers_one_call() || client.facts().prefers_one_call => Shares::of_one_call(n),
            // An answer with an operator takes one evaluation and no local steps.
            () if coordinator.wanted() == Part::Operator => scratch.shares(&**field, n, 1, is_stale),
            () => scratch.shares(&**field, n, client.local_steps(coordinator.question().down.round), is_stale),
        };
        // Answers of smaller blocks are summed once all are there.
        let wants_sum = shares.lanes >= LANES && coordinator.wants_sum();
        let gains = if wants_sum { coordinator.gains() } else { None };
        let (d, federation, ask) = (field.dim(), coordinator.federation(), coordinator.question());
        let (uplink, exchanges) = (&**federation.uplink(), coordinator.protocol().exchanges.len());
        if let Some(pull) = uplink.pull() {
            state.history.keep(&ask.down, &state.chains, pull.delay.max());
        }
        let all = (coordinator.asked(), ask.own.as_ref());
        let (participants, own) = reached.as_ref().map_or(all, |reached| (&reached.agents[..], reached.own.as_ref()));
        scratch.make_room(n, d, wants_sum, gains.is_some());
        let Scratch { worker, blocks, arrived, answers, .. } = scratch;
        let State { memory, chains, feedback, history, .. } = state;
        let job = Job {
            field,
            weights: federation.weights(),
            client: &**client,
            uplink,
            history,
            seed: federation.seed(),
            down: &ask.down,
            own,
            participants,
            gains: gains.as_deref(),
            grid: coordinator.grid(),
            is_last: usize::from(ask.down.exchange) + 1 == exchanges,
            strides: Strides {
                memory: stride(&**client, d),
                chains: field.chain_len(),
                feedback: uplink.feedback_len(d, exchanges),
                alone: usize::from(!alone.is_empty()),
            },
            shares,
            cancel,
            failure,
        };
        let (agents, rows) = (Agents { first: 0, memory, chains, feedback, alone }, Rows { blocks, arrived, answers });
        let (sent, computed) = job.sweep(0..n, agents, rows, Some(worker));
        state.work = state.work.and(computed);
        if wants_sum {
            pairwise(blocks, d);
            coordinator.hand_in_sum(&blocks[..d], arrived, &sent);
        } else {
            coordinator.hand_in(answers, !alone.is_empty());
        }
    }

    /// Carries the message at the end of a round to the participants.
    fn tell_participants(&mut self) {
        let Run { field, client, alone, coordinator, state, scratch, .. } = self;
        let (tell, stride, seed) = (coordinator.question(), stride(&**client, field.dim()), coordinator.federation().seed());
        let mut tell_block = |agents: &[usize], places: &mut dyn Iterator<Item = usize>| {
            let first = agents[0];
            let memory = &mut state.memory[first * stride..];
            let alone = alone.get_mut(first..).unwrap_or_default();
            let blocks = lanes_for(&mut scratch.worker.blocks, agents.len());
            let mut batch = AgentBatch::new(field, seed, blocks, agents, first, memory, stride).with_agents(alone);
            if let Some(own) = &tell.own {
                tell_own(&mut batch, own, places, tell.down.round + 1);
            }
            client.told(&mut batch, &tell.down);
            state.work.calls.add(batch.calls());
        };
        match coordinator.told(client.copied_controls().is_some()) {
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
        let step = self.coordinator.open(None);
        self.unless_failed(step)
    }

    /// Carries the open question to the participants and hands in their answers; false if cancelled.
    fn exchange(&mut self, cancel: &Cancel) -> Result<bool> {
        self.answer(cancel);
        self.is_torn = cancel.is_cancelled();
        self.unless_failed(!self.is_torn)
    }

    /// Ends an exchange after its answers have been handed in.
    fn close(&mut self) -> Result<Step> {
        let step = self.coordinator.close();
        self.unless_failed(step)
    }

    /// Carries the message at the end of a round to the participants, who do not answer.
    fn tell(&mut self) -> Result<()> {
        self.tell_participants();
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
        let Some(controls) = self.client.controls() else { return false };
        let (d, t) = (self.field.dim(), self.round());
        let stride = stride(&*self.client, d);
        let server = self.coordinator.server();
        let control = server.facts().control;
        let mut xi = vec![0.0; d];
        for (c, memory) in self.state.memory.chunks(stride).enumerate() {
            controls.of_agent(&AgentMemory::new(memory, d), server.theta(), t, self.coordinator.is_counted(c), &mut xi);
            control.into_iter().for_each(|control| xi.iter_mut().zip(control).for_each(|(xi, c)| *xi -= c));
            see(c, &xi);
        }
        true
    }
}

/// The cost of an agent's answer.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The approximate time in nanoseconds.
    ns: f64,
    /// The smallest number of lanes that is almost as efficient as eight. Steps on samples wait for their own sums; other lanes fill this
    /// time.
    fewest: usize,
    /// Agents per batch: more than eight if the overhead of a block is as long as its agents' work, and vectors have few chunks.
    usual: usize,
}

/// The cost of an answer with this number of local steps.
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
    let ns = 20.0 + step * local_steps as f64;
    Cost { ns, fewest, usual: if ns < 200.0 && width <= 4 { 64 } else { LANES } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Isa;
    use crate::problem::{Facts, Problem, Sampled};
    use crate::random::Stream;
    use crate::sampling::Sampling;

    /// A problem whose samples take long to apply.
    struct Slow;

    impl Facts for Slow {
        fn sample_ns(&self) -> Option<f64> {
            Some(10_000.0)
        }
    }

    impl Problem for Slow {
        type Obs = ();
        fn dim(&self) -> usize {
            200
        }
        fn weights(&self) -> &[f64] {
            &[0.125; 8]
        }
        fn sample(&self, _: usize, _: &[f64], _: &mut [u64], _: &mut Stream, (): &mut ()) {}
        fn apply(&self, _: usize, _: &[f64], (): &(), _: &mut [f64]) {}
        fn facts(&self) -> &dyn Facts {
            self
        }
    }

    /// Eight agents whose steps read matrices from memory are worth two threads, even with few local steps.
    #[test]
    fn slow_samples_are_shared_out() {
        let field = Sampled::new(Slow, Sampling::default(), Isa::best()).unwrap();
        let Cost { ns, fewest, usual } = cost(&field, 10);
        assert_eq!(Shares::new(8, ns, fewest, usual, || 2), Shares { grain: 4, lanes: 4 });
        assert_eq!(Shares::new(8, ns, fewest, usual, || 8).lanes, 1);
    }
}
