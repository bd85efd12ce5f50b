//! Logs in memory.

use fedsa::error::Result;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::log_form::LeftOutRows;
use fedsa_problems::logs::source::LogSource;

/// An agent's log in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryLog {
    /// The transitions.
    pub log: Log,
    /// The omitted rows of its table.
    pub left_out: Vec<LeftOutRows>,
    /// Whether the next state of a row is the state of the following row.
    pub next_follows: bool,
}

impl From<Log> for MemoryLog {
    fn from(log: Log) -> Self {
        Self { log, left_out: Vec::new(), next_follows: false }
    }
}

impl LogSource for MemoryLog {
    fn name(&self) -> &str {
        self.log.name()
    }
    fn columns(&self) -> &[String] {
        self.log.columns()
    }
    fn read(&self, see: &mut dyn FnMut(&Log) -> Result<()>) -> Result<()> {
        self.log.read(see)
    }
    fn left_out(&self) -> Vec<LeftOutRows> {
        self.left_out.clone()
    }
    fn next_follows(&self) -> bool {
        self.next_follows
    }
}
