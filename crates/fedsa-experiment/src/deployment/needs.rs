//! The memory that a federation needs at its ends, before these are made.

use fedsa::enrolment::ColumnSummary;
use fedsa::error::{Result, quoted};
use fedsa::method::Setting;
use fedsa_problems::memory::vectors;

use super::Deployment;
use crate::memory::{self, PROGRAM};

/// What makes a federation smaller.
const LESS: &str =
    "fewer columns, levels of categories or classes, such as without columns that `drop` names; or a method without matrices";

/// Vectors of the model's length that every end keeps: the start, iterates, an average, what is sent.
const VECTORS: f64 = 8.0;

impl Deployment {
    /// Refuses a federation of so many agents, with d components and these columns together, whose server would not fit into the available memory.
    ///
    /// # Errors
    /// When it does not.
    pub(super) fn check_server(&self, agents: usize, d: usize, columns: &[ColumnSummary]) -> Result<()> {
        let method = &self.method;
        let asked = method.shape().participants.map_or(agents, |m| m.min(agents));
        // What is kept beside what each agent keeps for itself.
        let alone = method.memory(1, d);
        let own = alone.max(method.memory(agents, d) - agents as f64 * alone);
        // Of each agent its admission with the start, and what is known of it; of each that is asked an answer, as bytes and as numbers.
        let vectors = vectors(2.0 * agents as f64 + VECTORS, d as f64);
        let answers = 16.0 * asked as f64 * self.answer(agents, d);
        let what = || format!("the server of {agents} agents with a model of d = {d} components{}", made_of(columns));
        memory::require("problem", PROGRAM + own + vectors + answers, what, LESS)
    }

    /// Refuses what an agent would need beside its problem for its rounds, where it is not available.
    ///
    /// # Errors
    /// When it is so.
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

/// The columns that a message names, those with most levels.
const NAMED: usize = 4;

/// What the components of a model are those of, where they follow from the columns of all.
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
