//! The state of a coordinator as data, complete between any two calls.

use serde::{Deserialize, Serialize};

use super::{Coordinator, State};
use crate::error::{Error, Result};
use crate::message::{Body, Part};

/// The state of a coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Saved {
    state: State,
    /// The state of the server half.
    server: Vec<u8>,
}

/// The error about bytes that are not the state of such a coordinator.
fn foreign() -> Error {
    Error::format("checkpoint", "not a saved state of this federation", "a state that the same federation saved")
}

impl Coordinator {
    /// The state.
    pub(crate) fn save(&self) -> Saved {
        Saved { state: self.state.clone(), server: self.server.state() }
    }

    /// The approximate number of numbers in [`Coordinator::save`].
    pub(crate) fn state_len(&self) -> usize {
        let State { output, end, ask, replies, .. } = &self.state;
        let server = self.server.state().len() / 8;
        let parts = |parts: &[(Part, Body)]| parts.iter().map(|(_, body)| body.len()).sum::<usize>();
        let answers: usize = replies.each().iter().flatten().map(|reply| parts(&reply.parts)).sum();
        output.len() + end.channel.len() + end.mail.len() + server + parts(&ask.down.parts) + answers
    }

    /// Restores a state that [`Coordinator::save`] returned for the same federation.
    ///
    /// # Errors
    /// When its shape differs. The coordinator is then unchanged.
    pub(crate) fn restore(&mut self, saved: Saved) -> Result<()> {
        let Saved { state, server } = saved;
        if state.end.channel.len() != self.state.end.channel.len() || state.output.len() != self.state.output.len() {
            return Err(foreign());
        }
        self.server.restore(&server).map_err(|_| foreign())?;
        self.state = state;
        self.updates.clear();
        self.refusals.clear();
        Ok(())
    }
}
