//! Data that a caller provides in memory instead of files, and their identity.

use std::sync::{Arc, Mutex, PoisonError};

use fedsa_problems::rows::dataset::Dataset;

use crate::memory_log::MemoryLog;

/// Data in memory.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Logs, one per agent.
    pub logs: Vec<Arc<MemoryLog>>,
    /// Data sets, which are handed out once.
    sets: Mutex<Vec<Dataset>>,
    has_sets: bool,
    identity: Option<String>,
}

impl Given {
    /// Logs with their checksums.
    pub fn of_logs(logs: Vec<MemoryLog>, checksums: Vec<u32>) -> Self {
        Self { identity: Some(identity("logs", &checksums)), logs: logs.into_iter().map(Arc::new).collect(), ..Self::default() }
    }

    /// Data sets with their checksums.
    pub fn of_sets(sets: Vec<Dataset>, checksums: Vec<u32>) -> Self {
        Self { identity: Some(identity("data sets", &checksums)), sets: Mutex::new(sets), has_sets: true, ..Self::default() }
    }

    /// The data sets, if there were any.
    pub fn take_sets(&self) -> Option<Vec<Dataset>> {
        self.has_sets.then(|| std::mem::take(&mut *self.sets.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The checksums of all numbers and names that affect results, in the form used for files; `None` without data in memory.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }
}

fn identity(kind: &str, checksums: &[u32]) -> String {
    checksums.iter().fold(kind.to_string(), |all, one| format!("{all} {one:08x}"))
}
