//! Saved runs: all that influences later rounds, as bytes.

use serde::{Deserialize, Serialize};

use super::history::History;
use super::{Run, State, Working};
use crate::coordinator;
use crate::error::{Error, Result};
use crate::record::Work;

/// The version of the layout of saved runs, their first field.
pub(super) const LAYOUT: u32 = 6;

/// The serialised form of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saved {
    pub layout: u32,
    pub memory: Vec<f64>,
    pub chains: Vec<u64>,
    pub feedback: Vec<f64>,
    pub coordinator: coordinator::Saved,
    pub history: History,
    pub work: Work,
    pub answered: Vec<Option<u64>>,
    pub agents: Vec<Vec<u8>>,
}

/// [`Saved`] without copies: a state may fill half of the memory.
#[derive(Serialize)]
struct Saving<'a> {
    layout: u32,
    memory: &'a [f64],
    chains: &'a [u64],
    feedback: &'a [f64],
    coordinator: coordinator::Saved,
    history: &'a History,
    work: &'a Work,
    answered: &'a [Option<u64>],
    agents: Vec<Vec<u8>>,
}

impl Run {
    /// The approximate number of bytes that [`Run::save`] returns.
    pub fn state_len(&self) -> usize {
        let State { memory, chains, feedback, history, .. } = &self.state;
        let agents: usize = self.client.save().iter().map(Vec::len).sum();
        8 * (8 * memory.len() + chains.len() + feedback.len() + history.len() + self.coordinator.state_len()) + agents
    }

    /// The state of the run, as bytes.
    ///
    /// # Errors
    /// When the last round was cancelled before its end: such a state is no state between two rounds. When operators have failed.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.failure().map_or(Ok(()), Err)?;
        if self.is_torn {
            return Err(Error::cancelled("the last round was cancelled before its end", "a run that was restored since"));
        }
        let State { memory, chains, feedback, history, work, answered } = &self.state;
        let saving = Saving {
            layout: LAYOUT,
            coordinator: self.coordinator.save(),
            memory: crate::kernel::flat(memory),
            chains,
            feedback,
            history,
            work,
            answered,
            agents: self.client.save(),
        };
        Ok(postcard::to_stdvec(&saving).expect("plain data serialises"))
    }

    /// Restores a state that [`Run::save`] returned for a run with the same settings.
    ///
    /// # Errors
    /// When the bytes are not such a state. The run is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let bad = || Error::format("checkpoint", "not a saved run of these settings", "a checkpoint that this program wrote");
        if let Ok((layout, _)) = postcard::take_from_bytes::<u32>(bytes)
            && layout != LAYOUT
        {
            let what = format!("a saved run of layout {layout}; this version has {LAYOUT}");
            return Err(Error::format("checkpoint", what, "a checkpoint of this version"));
        }
        let (saved, rest): (Saved, _) = postcard::take_from_bytes(bytes).map_err(|_| bad())?;
        if !rest.is_empty() || !self.can_be_at(&saved) {
            return Err(bad());
        }
        let before = self.client.save();
        let put_back = |client: &mut Working| {
            if let Working::Each(agents) = client {
                agents.iter_mut().zip(&before).for_each(|(agent, bytes)| agent.restore(bytes).expect("its own state"));
            }
        };
        if let Working::Each(agents) = &mut self.client
            && agents.iter_mut().zip(&saved.agents).any(|(agent, bytes)| agent.restore(bytes).is_err())
        {
            put_back(&mut self.client);
            return Err(bad());
        }
        // This is the last step that can fail. If it fails, the agents' states are put back.
        if self.coordinator.restore(saved.coordinator).is_err() {
            put_back(&mut self.client);
            return Err(bad());
        }
        crate::kernel::flat_mut(&mut self.state.memory).copy_from_slice(&saved.memory);
        let State { chains, feedback, history, work, answered, .. } = &mut self.state;
        (*chains, *feedback, *history, *work, *answered) = (saved.chains, saved.feedback, saved.history, saved.work, saved.answered);
        self.is_torn = false;
        self.field.recover();
        if let Working::Lanes(client) = &self.client
            && let Some(failure) = client.failure()
        {
            failure.clear();
        }
        Ok(())
    }

    /// Whether `saved` is a possible state of this run, apart from the states of the coordinator and of agents that compute alone.
    fn can_be_at(&self, saved: &Saved) -> bool {
        let (field, state) = (&*self.field, &self.state);
        let (agents, words) = (field.agents(), field.chain_len());
        let are_chains = |chains: &[u64]| {
            let mut each = chains.chunks(words.max(1)).enumerate();
            chains.len() == agents * words && each.all(|(c, chain)| field.is_state(c, chain))
        };
        let reach = self.coordinator.federation().uplink().delay.as_ref().map(|pull| pull.delay.max());
        let is_between_rounds = saved.coordinator.step != coordinator::Step::Ask;
        is_between_rounds
            && saved.memory.len() == 8 * state.memory.len()
            && are_chains(&saved.chains)
            && saved.feedback.len() == state.feedback.len()
            && saved.work.is_possible()
            && saved.history.is_of(saved.coordinator.opened, reach, self.coordinator.protocol(), are_chains)
            && (saved.answered.is_empty() || saved.answered.len() == agents)
            && saved.answered.iter().flatten().all(|round| *round < saved.coordinator.opened)
            && saved.agents.len() == self.client.save().len()
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::federation::Federation;
    use crate::kernel::Isa;
    use crate::message::{Body, Message, Part};
    use crate::methods::MethodSettings;
    use crate::methods::delayed_sa::{Dasa, DelayedSa};
    use crate::problem::switching::Switching;
    use crate::problem::{NoFiles, ProblemSettings as _};
    use crate::record::{Output, OutputRule};
    use crate::sampling::{Law, Sampling};
    use crate::schedule::StepSize;
    use crate::server::Letter;
    use crate::uplink::Uplink;
    use crate::uplink::install::MediumSettings as _;
    use crate::uplink::medium::delay::{Before, Delay, Late, Pull};

    /// Whether a saved run of 5 rounds is restored after `change` has altered it. If so, it continues.
    fn is_put_back(method: &dyn MethodSettings, uplink: &Uplink, change: impl Fn(&mut Saved)) -> bool {
        with_output(OutputRule::Average, method, uplink, change)
    }

    fn with_output(output: OutputRule, method: &dyn MethodSettings, uplink: &Uplink, change: impl Fn(&mut Saved)) -> bool {
        let problem = Switching { agents: 3, dim: 2, mixing_time: 3.0, spread: 1.0, ..Switching::default() };
        let field = problem.field(&NoFiles, Sampling { kind: Law::Markov, ..Sampling::default() }, Isa::Portable).unwrap();
        let federation = Federation::new(method, uplink, field.weights(), 1, vec![0.0; 2]).unwrap().with_output(output);
        let new = || Run::new(&field, &federation).unwrap();
        let mut run = new();
        (0..5).for_each(|_| run.step());
        let mut saved: Saved = postcard::from_bytes(&run.save().unwrap()).unwrap();
        change(&mut saved);
        let bytes = postcard::to_stdvec(&saved).unwrap();
        let mut again = new();
        let before = again.save().unwrap();
        if again.restore(&bytes).is_err() {
            assert_eq!(again.save().unwrap(), before, "what is refused changes nothing");
            return false;
        }
        assert_eq!(again.save().unwrap(), bytes);
        (0..3).for_each(|_| again.step());
        assert_eq!(again.output().len(), 2);
        true
    }

    const STEP_SIZE: StepSize = StepSize::Constant(0.01);

    /// An answer to the question of round 4.
    fn stray() -> Letter {
        Letter { agent: 0, answers: 4, weight: 1.0, parts: vec![(Part::Direction, Body::Numbers(vec![0.0; 2]))] }
    }

    /// The last iterate as the output, with a count of iterates, which only an average has.
    fn counted_last_output() -> Output {
        let mut average = Output::new(OutputRule::Average, &[], 1);
        average.see(&[], 1);
        let bytes = postcard::to_stdvec(&(OutputRule::Last, average)).unwrap();
        let without_rule = postcard::to_stdvec(&OutputRule::Average).unwrap().len();
        let last = postcard::to_stdvec(&OutputRule::Last).unwrap().len();
        postcard::from_bytes(&[&bytes[..last], &bytes[last + without_rule..]].concat()).unwrap()
    }

    #[test]
    fn a_state_that_the_run_cannot_come_to_is_refused() {
        let clear = Uplink::default();
        let plain = |change: &dyn Fn(&mut Saved)| is_put_back(&DelayedSa::new(STEP_SIZE), &clear, change);
        assert!(plain(&|_| ()));
        assert!(!plain(&|saved| saved.layout = 1), "of another version");
        assert!(!plain(&|saved| saved.chains[1] = 2), "of two states");
        assert!(!plain(&|saved| saved.chains.truncate(2)));
        assert!(!plain(&|saved| saved.memory.push(0.0)));
        assert!(!plain(&|saved| saved.coordinator.opened = u64::from(u32::MAX)));
        assert!(!plain(&|saved| saved.coordinator.ledger.samples = u64::MAX));
        assert!(!plain(&|saved| saved.coordinator.output = Output::new(OutputRule::Last, &[0.0; 2], 1)));
        assert!(!plain(&|saved| saved.coordinator.output = Output::new(OutputRule::Average, &[0.0; 3], 1)));
        let last = |change: &dyn Fn(&mut Saved)| with_output(OutputRule::Last, &DelayedSa::new(STEP_SIZE), &clear, change);
        assert!(last(&|_| ()));
        assert!(!last(&|saved| saved.coordinator.output = counted_last_output()));
        assert!(!plain(&|saved| saved.coordinator.server[0].truncate(1)));
        assert!(!plain(&|saved| saved.coordinator.server.push(vec![0.0; 2])));
        assert!(!plain(&|saved| saved.coordinator.end.mail.post(0, 6, stray())), "nothing is late on a clear link");
        assert!(!plain(&|saved| saved.history.keep(&Message::one(4, 0, Part::Model, vec![0.0; 2]), &[0; 3], 9)));
    }

    #[test]
    fn a_state_that_late_answers_cannot_lead_to_is_refused() {
        let mut late = Uplink::default();
        Late(Delay::Constant { rounds: 2 }).install(&mut late).unwrap();
        let pushed = |change: &dyn Fn(&mut Saved)| is_put_back(&Dasa::new(STEP_SIZE), &late, change);
        let with = |due: u64, letter: Letter| pushed(&|saved| saved.coordinator.end.mail.post(0, due, letter.clone()));
        assert!(pushed(&|_| ()));
        assert!(with(6, stray()));
        assert!(!with(4, stray()), "before this round");
        assert!(!with(7, stray()), "later than the link has it");
        assert!(!with(6, Letter { agent: 3, ..stray() }));
        assert!(!with(6, Letter { answers: 5, ..stray() }), "to a question not yet asked");
        assert!(!with(6, Letter { parts: vec![(Part::Direction, Body::Numbers(vec![0.0; 3]))], ..stray() }));
        // theta_t, the round of the first model, models.
        assert!(!pushed(&|saved| saved.coordinator.server[1][0] = 1.0));
        assert!(!pushed(&|saved| drop(saved.coordinator.server.pop())));
        assert!(!pushed(&|saved| saved.coordinator.server[3].truncate(1)));
    }

    #[test]
    fn a_history_that_the_run_cannot_have_is_refused() {
        let mut stale = Uplink::default();
        Pull { before: Before::First, delay: Delay::Constant { rounds: 2 } }.install(&mut stale).unwrap();
        let pulled = |change: &dyn Fn(&mut Saved)| is_put_back(&DelayedSa::new(STEP_SIZE), &stale, change);
        let past = |round: u64, d: usize, chains: &[u64]| {
            pulled(&|saved| saved.history.keep(&Message::one(round, 0, Part::Model, vec![0.0; d]), chains, 2))
        };
        assert!(pulled(&|_| ()));
        assert!(!pulled(&|saved| saved.history = History::default()));
        assert!(!past(5, 2, &[0; 3]), "a round not yet begun");
        let last = |d: usize, state: u64| {
            pulled(&|saved| {
                saved.history = History::default();
                for round in 2..5 {
                    saved.history.keep(&Message::one(round, 0, Part::Model, vec![0.0; d]), &[state; 3], 9);
                }
            })
        };
        assert!(last(2, 1));
        assert!(!last(3, 1));
        assert!(!last(2, 2));
    }
}
