//! Saved runs: the state that influences later rounds, as bytes.

use serde::{Deserialize, Serialize};

use super::history::History;
use super::{Run, State};
use crate::coordinator;
use crate::error::{Error, Result};
use crate::record::Work;
use crate::saved::Layout;

/// The layout of saved runs.
const LAYOUT: Layout = Layout { name: "run", version: 10 };

/// The serialised form of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Saved {
    /// The hash of the settings ([`crate::federation::Federation::digest`]).
    digest: u64,
    memory: Vec<f64>,
    chains: Vec<u64>,
    feedback: Vec<f64>,
    coordinator: coordinator::Saved,
    history: History,
    work: Work,
    agents: Vec<Vec<u8>>,
}

/// [`Saved`] without copies, because a state may fill half of the memory.
#[derive(Serialize)]
struct Saving<'a> {
    digest: u64,
    memory: &'a [f64],
    chains: &'a [u64],
    feedback: &'a [f64],
    coordinator: coordinator::Saved,
    history: &'a History,
    work: &'a Work,
    agents: Vec<Vec<u8>>,
}

impl Run {
    /// The approximate number of bytes that [`Run::save`] returns.
    pub fn state_len(&self) -> usize {
        let State { memory, chains, feedback, history, .. } = &self.state;
        let agents: usize = self.alone.iter().map(|agent| agent.save().len()).sum();
        8 * (8 * memory.len() + chains.len() + feedback.len() + history.len() + self.coordinator.state_len()) + agents
    }

    /// The state of the run, as bytes.
    ///
    /// # Errors
    /// When the last round was cancelled before its end, or operators have failed.
    pub fn save(&self) -> Result<Vec<u8>> {
        self.failure().map_or(Ok(()), Err)?;
        if self.is_torn {
            return Err(Error::cancelled("the last round was cancelled before its end", "a run that was restored since"));
        }
        let State { memory, chains, feedback, history, work } = &self.state;
        let saving = Saving {
            digest: self.coordinator.federation().digest(),
            coordinator: self.coordinator.save(),
            memory: crate::kernel::flat(memory),
            chains,
            feedback,
            history,
            work,
            agents: self.alone.iter().map(|agent| agent.save()).collect(),
        };
        Ok(LAYOUT.write(&saving))
    }

    /// Restores a state that [`Run::save`] returned for a run with the same settings.
    ///
    /// # Errors
    /// Of the kind [`crate::error::ErrorKind::Format`], when the bytes are damaged, are not such a state, or have another version's layout.
    /// The run is then unchanged.
    pub fn restore(&mut self, bytes: &[u8]) -> Result<()> {
        let saved: Saved = LAYOUT.read(bytes)?;
        if saved.digest != self.coordinator.federation().digest() || !self.is_of_these_data(&saved) {
            return Err(LAYOUT.foreign());
        }
        let before: Vec<Vec<u8>> = self.alone.iter().map(|agent| agent.save()).collect();
        let mut restored = self.alone.iter_mut().zip(&saved.agents).map(|(agent, bytes)| agent.restore(bytes));
        // The coordinator comes last: nothing after it can refuse a state.
        if !restored.all(|one| one.is_ok()) || self.coordinator.restore(saved.coordinator).is_err() {
            self.alone.iter_mut().zip(&before).for_each(|(agent, bytes)| agent.restore(bytes).expect("its own state"));
            return Err(LAYOUT.foreign());
        }
        crate::kernel::flat_mut(&mut self.state.memory).copy_from_slice(&saved.memory);
        let State { chains, feedback, history, work, .. } = &mut self.state;
        (*chains, *feedback, *history, *work) = (saved.chains, saved.feedback, saved.history, saved.work);
        self.is_torn = false;
        self.field.recover();
        self.failure.clear();
        Ok(())
    }

    /// Whether a saved state has the shape of this one, with sampling processes that are possible on these data.
    fn is_of_these_data(&self, saved: &Saved) -> bool {
        let (state, words) = (&self.state, self.field.chain_len().max(1));
        let mut chains = saved.chains.chunks(words).enumerate();
        saved.memory.len() == 8 * state.memory.len()
            && saved.feedback.len() == state.feedback.len()
            && saved.chains.len() == state.chains.len()
            && chains.all(|(c, chain)| self.field.is_state(c, chain))
            && saved.agents.len() == self.alone.len()
    }
}
