//! The memory that server and agents need, before it is allocated.

use fedsa::enrolment::ColumnSummary;
use fedsa::error::{Result, quoted};
use fedsa::method::Setting;
use fedsa_problems::memory::vectors;

use super::Deployment;
use crate::memory::{self, PROGRAM};

/// How to make a federation smaller.
const LESS: &str =
    "fewer columns, levels of categories or classes, such as without columns that `drop` names; or a method without matrices";

/// Vectors of the model's length at the server and at every agent: the start, iterates, an average, messages.
const VECTORS: f64 = 8.0;

impl Deployment {
    /// Refuses a federation with this many agents, d components and these columns, if its server would not fit into the available memory.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn check_server(&self, agents: usize, d: usize, columns: &[ColumnSummary]) -> Result<()> {
        let method = &self.method;
        let asked = method.shape().participants.map_or(agents, |m| m.min(agents));
        // The state in addition to each agent's own part.
        let alone = method.memory(1, d);
        let own = alone.max(method.memory(agents, d) - agents as f64 * alone);
        // For each agent its admission with the start, and its entry; for each asked agent an answer, as bytes and as numbers.
        let vectors = vectors(2.0 * agents as f64 + VECTORS, d as f64);
        let answers = 16.0 * asked as f64 * self.answer(agents, d);
        let what = || format!("the server of {agents} agents with a model of d = {d} components{}", made_of(columns));
        memory::require("problem", PROGRAM + own + vectors + answers, what, LESS)
    }

    /// Refuses if the memory that an agent needs for its rounds, in addition to its problem, is not available.
    ///
    /// # Errors
    /// When it is not.
    pub(super) fn check_agent(&self, agents: usize, d: usize) -> Result<()> {
        let needed = self.method.memory(1, d) + vectors(VECTORS, d as f64) + 16.0 * self.answer(agents, d);
        memory::require("problem", needed, || format!("an agent with a model of d = {d} components"), LESS)
    }

    /// The length of the longest answer, in numbers.
    fn answer(&self, agents: usize, d: usize) -> f64 {
        let weights = vec![1.0 / agents as f64; agents];
        let setting = Setting { seed: 0, weights: &weights, start: vec![0.0; d], link: self.uplink.facts(), is_accelerated: false };
        self.method.protocol(&setting).largest_answer() as f64
    }
}

/// The number of columns that a message names, those with most levels.
const NAMED: usize = 4;

/// The origin of a model's components, if they follow from the columns of all agents.
fn made_of(columns: &[ColumnSummary]) -> String {
    let mut levels: Vec<(usize, &str)> =
        columns.iter().filter_map(|column| Some((column.values()?.rows.len(), column.name.as_str()))).collect();
    levels.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let named: Vec<String> = levels.iter().take(NAMED).map(|(count, name)| format!("{count} of `{}`", quoted(name))).collect();
    match levels.len().saturating_sub(NAMED) {
        _ if named.is_empty() => String::new(),
        0 => format!(" (levels of all agents: {})", named.join(", ")),
        more => format!(" (levels of all agents: {}, and those of {more} more columns)", named.join(", ")),
    }
}
