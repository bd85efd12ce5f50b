//! Answers that are still on their way.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::server::ClientUpdate;

/// Answers on their way (push), by the exchange that they answer and the round in which they arrive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DelayedUpdates {
    updates: BTreeMap<(u8, u64), Vec<ClientUpdate>>,
}

impl DelayedUpdates {
    /// Adds an answer that arrives in round `due`.
    pub fn post(&mut self, exchange: u8, due: u64, update: ClientUpdate) {
        self.updates.entry((exchange, due)).or_default().push(update);
    }

    /// The number of stored numbers.
    pub fn len(&self) -> usize {
        self.updates.values().flatten().flat_map(|update| &update.parts).map(|(_, body)| body.len()).sum()
    }

    /// Removes and returns the answers to an exchange that arrive by round t, in the agents' order, older ones first.
    pub fn deliver(&mut self, exchange: u8, t: u64) -> Vec<ClientUpdate> {
        let due: Vec<(u8, u64)> = self.updates.range((exchange, 0)..=(exchange, t)).map(|(key, _)| *key).collect();
        let mut here: Vec<ClientUpdate> = due.iter().filter_map(|key| self.updates.remove(key)).flatten().collect();
        here.sort_by_key(|update| (update.agent, update.answers));
        here
    }
}
