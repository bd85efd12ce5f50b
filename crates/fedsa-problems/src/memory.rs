//! The estimated memory of a problem, from its sizes, before it is built.
//!
//! Byte counts are `f64`, so that they do not overflow beyond all memory. They follow the data structures of this crate: `kept` is the
//! memory of the finished problem, and `peak` includes the temporary memory of building it. Measured peaks above 100 MB are within a factor
//! of 1.5.

use crate::kernel::td::MAX_WIDE;
use fedsa::error::{Error, Result};
use fedsa::kernel::chunks;
use fedsa::sampling::{Law, Sampling};

/// The memory of one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryEstimate {
    /// The most bytes while it is built; at least `kept`.
    pub peak: f64,
    /// The bytes of the finished problem.
    pub kept: f64,
    /// The sizes behind the estimate, for messages: `8 agents, 50000 states, d = 8`.
    pub sizes: String,
}

/// The overhead of an allocation, in bytes.
const ALLOCATION: f64 = 16.0;
/// The overhead of an allocation aligned to 64 bytes.
const ALIGNED: f64 = 128.0;
/// Matrices of the system's size per solution with its condition check: factors, an inverse, scratch memory, and the allocator's reserve.
const SOLUTION: f64 = 10.0;

/// The bytes of a dense matrix, whose columns are padded to 64 bytes.
pub fn matrix(rows: f64, columns: f64) -> f64 {
    64.0 * (rows / 8.0).ceil() * columns + ALIGNED
}

/// The bytes of `n` vectors of `d` components, in chunks of eight.
pub fn vectors(n: f64, d: f64) -> f64 {
    64.0 * n * (d / 8.0).ceil()
}

/// The bytes of a linear operator in the kernel's layout ([`crate::kernel::dense::Dense`]).
fn dense(d: f64) -> f64 {
    vectors(4.0 * (d / 4.0).ceil() + 1.0, d) + 24.0 + ALIGNED
}

/// The columns of an alias table of `n` outcomes.
fn table_columns(n: f64) -> f64 {
    n.max(2.0).log2().ceil().exp2()
}

/// The systems of `kinds` agents' operators with their weights and kinds.
fn systems(agents: f64, kinds: f64, d: f64) -> f64 {
    12.0 * agents + kinds * (matrix(d, d) + 8.0 * d + ALLOCATION + 64.0)
}

/// The temporary memory of solving linear systems on several threads.
fn solutions(d: f64, kinds: f64, threads: f64) -> f64 {
    SOLUTION * matrix(d, d) * threads.min(kinds).max(1.0)
}

/// A number of agents, for messages.
pub(super) fn agents(n: usize) -> String {
    format!("{n} agent{}", if n == 1 { "" } else { "s" })
}

/// The sizes of TD(0) over tables of transitions.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableSizes {
    /// N.
    pub agents: f64,
    /// Distinct agents.
    pub kinds: f64,
    /// The features d.
    pub d: f64,
    /// Feature rows of one kind of agent.
    pub rows: f64,
    /// Whether all kinds share their features.
    pub shared: bool,
    /// Transitions of all kinds.
    pub transitions: f64,
    /// Transitions of the largest kind.
    pub most: f64,
    /// How a chain moves.
    pub chain: Moves,
    /// The memory of one thread for the transitions of the largest kind, in addition to them.
    pub making: f64,
    /// The source data, which live until the problem is built.
    pub source: f64,
    /// Whether each kind's system is solved.
    pub solved: bool,
}

/// How a chain moves over transitions.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moves {
    /// Among this many states, with at most `outcomes` each.
    States {
        /// S.
        states: f64,
        /// Outcomes of a state.
        outcomes: f64,
    },
    /// From each transition to the next one.
    Replay,
}

impl TableSizes {
    /// ```text
    /// kept   features (rows + 1) ceil8(d) 8 a set, transitions 16, with states also their
    ///        masses and probabilities 16 and the law 8 S; the table: i.i.d. 16 2^ceil(log2 n),
    ///        Markov 16 S 2^ceil(log2 outcomes) + 4 n, replay 36 n, and small ones five times as much; under mean sampling the
    ///        operator
    /// peak   while transitions are made: what they are made from, on every thread;
    ///        while tables are: 24 2^ceil(log2 n) + 12 n on every thread, and a matrix d x d a kind;
    ///        while systems are solved: eight matrices d x d on every thread
    /// ```
    pub fn memory(&self, sampling: Sampling, threads: usize) -> (f64, f64) {
        let Self { agents, kinds, d, most, transitions, .. } = *self;
        let at_work = (threads as f64).min(kinds).max(1.0);
        let sets = if self.shared { 1.0 } else { kinds };
        let features = sets * vectors(self.rows + 1.0, d);
        let states = match self.chain {
            Moves::States { states, .. } => 16.0 * transitions + 8.0 * states * kinds,
            Moves::Replay => 0.0,
        };
        // Kinds have equal numbers of transitions, except in logs.
        let mean = transitions / kinds;
        let table = match (sampling.kind, self.chain) {
            (Law::Mean, _) => kinds * dense(d),
            (Law::Iid, _) => kinds * 16.0 * table_columns(mean),
            (Law::Markov, Moves::Replay) => 36.0 * transitions,
            (Law::Markov, Moves::States { states, outcomes }) => kinds * 16.0 * states * table_columns(outcomes) + 4.0 * transitions,
        };
        // A small table of one chunk per row has a wide copy, four times its size.
        let is_wide = self.shared && d <= 8.0 && 4.0 * table <= MAX_WIDE as f64 && sampling.kind != Law::Mean;
        let table = if is_wide { 5.0 * table } else { table };
        let making_table = match (sampling.kind, self.chain) {
            (Law::Mean, _) => 0.0,
            (Law::Iid, _) => 24.0 * table_columns(most) + 12.0 * most,
            (Law::Markov, Moves::Replay) => 4.0 * most,
            (Law::Markov, Moves::States { states, .. }) => 8.0 * most + 24.0 * states,
        };
        // Their structs: a kind with its table, system and allocations.
        let structs = kinds * (300.0 + 8.0 * ALLOCATION);
        let parts = features + 16.0 * transitions + states;
        let kept = parts + table + structs + systems(agents, kinds, d) + matrix(d, d);
        // Kinds and weights are copied once.
        let source = self.source + 12.0 * agents;
        let first = source + parts + structs + at_work * self.making;
        let second = source + kept + kinds * (matrix(d, d) + 400.0) + at_work * making_table;
        let third = source + kept + solutions(d, if self.solved { kinds } else { 1.0 }, threads as f64);
        (first.max(second).max(third), kept)
    }
}

/// The memory of one thread that turns a reward process of `n` states and `transitions` into transitions: its outcomes (24 bytes each, 40
/// per state), and then either the equations of the stationary law of `closed` states with their two factors, or the copies of the
/// transitions.
pub(super) fn reward_process(n: f64, transitions: f64, closed: f64) -> f64 {
    40.0 * n + 24.0 * transitions + (3.0 * matrix(closed, closed) + 16.0 * n).max(16.0 * transitions)
}

/// Linear systems of `agents` agents. `source` is the memory of the source data, `is_dense` adds the kernel's layout.
pub(super) fn linear(agents: f64, d: f64, is_dense: bool, source: f64, threads: usize) -> (f64, f64) {
    let layout = if is_dense { agents * dense(d) } else { 0.0 };
    let kept = systems(agents, agents, d) + layout;
    (kept + source + solutions(d, agents, threads as f64), kept)
}

/// The temporary memory of Newton's method on operators without linear systems: Jacobians in at most 64 groups of agents, one on every
/// thread, and the solution.
pub(super) fn jacobians(agents: f64, d: f64, threads: usize) -> f64 {
    // Above this dimension no root is computed.
    let d = if d <= fedsa::problem::root::MAX_DIM as f64 { d } else { 0.0 };
    (agents.min(64.0) + threads as f64 + SOLUTION) * matrix(d, d)
}

/// The temporary memory of the optimum of losses in d dimensions: two Hessians and a factor.
pub(super) fn optimum(d: f64) -> f64 {
    let d = if d <= fedsa::problem::root::MAX_DIM as f64 { d } else { 0.0 };
    4.0 * matrix(d, d)
}

/// The approximate bytes of a batch of logs while it is read.
const BATCH: f64 = 4e6;

/// Means of logs with d dense features: systems with their Gram matrices, and blocks of 256 transitions during summation.
pub(super) fn log_means(agents: f64, d: f64, threads: usize) -> (f64, f64) {
    let at_work = (threads as f64).min(agents).max(1.0);
    let kept = systems(agents, agents, d) + agents * dense(d) + matrix(d, d);
    let summing = agents * 2.0 * matrix(d, d) + at_work * (3.0 * matrix(d, 256.0) + BATCH);
    (summing + kept.max(matrix(d, d)) + solutions(d, 1.0, threads as f64), kept)
}

/// Logs with d sparse features, m active ones per state. The number of entries of a matrix is unknown in advance: at most 2 m^2 per
/// transition, and about 16 per feature and active tile. A step keeps `each` bytes per active feature.
#[expect(clippy::too_many_arguments, reason = "sizes")]
pub(super) fn sparse(
    agents: f64,
    d: f64,
    m: f64,
    each: f64,
    most: f64,
    total: f64,
    sampling: Sampling,
    source: f64,
    threads: usize,
) -> (f64, f64) {
    let at_work = (threads as f64).min(agents).max(1.0);
    let entries = |n: f64| (2.0 * m * m * n).min(16.0 * m * d);
    let rows = |n: f64| (m * n).min(d);
    let kept = agents * (12.0 * entries(total / agents) + 20.0 * rows(total / agents)) + 8.0 * agents;
    let steps = if sampling.kind == Law::Mean { 0.0 } else { total * (each * m + 16.0) };
    let summing = at_work * (4.0 * d + 32.0 * entries(most) + 44.0 * rows(most) + BATCH);
    let reading = if sampling.kind == Law::Mean { 0.0 } else { source };
    (kept + steps + summing.max(reading), kept + steps)
}

impl MemoryEstimate {
    /// With a second copy of the kept memory.
    #[must_use]
    pub fn with_a_copy(self) -> Self {
        Self { peak: self.peak + self.kept, kept: 2.0 * self.kept, ..self }
    }

    /// From a peak and the kept memory.
    pub(super) fn new((peak, kept): (f64, f64), sizes: String) -> Self {
        Self { peak: peak.max(kept), kept, sizes }
    }
}

/// Transitions and feature rows have 32-bit indices, and an alias table has fewer than 2^32 columns.
const MAX_TRANSITIONS: f64 = (1u64 << 31) as f64;

/// Refuses an agent with more than [`MAX_TRANSITIONS`] transitions.
///
/// # Errors
/// When there are more.
pub(crate) fn check_transitions(key: &str, transitions: f64) -> Result<()> {
    if transitions <= MAX_TRANSITIONS {
        return Ok(());
    }
    let what = format!("an agent with {transitions:.3e} transitions");
    Err(Error::new(key, what, format!("at most 2^31 = {MAX_TRANSITIONS} transitions an agent")))
}

/// The memory of one worker: lanes, outboxes and buffers for vectors of `d` components, twice, processes of `words` words, and the step
/// sizes of a local phase.
pub fn worker(d: usize, words: usize) -> f64 {
    let vector = 64.0 * chunks(d) as f64;
    2.0 * (25.0 * vector + 64.0 * d as f64 + 64.0 * words as f64) + 16.0 * d as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linear::affine::LinearSystems;
    use crate::linear::switching::Switching;
    use crate::td::garnet::Garnet;
    use crate::td::random_mrp::RandomMrp;
    use crate::{NoFiles, ProblemSettings};

    fn of(settings: &dyn ProblemSettings, law: Law) -> MemoryEstimate {
        settings.memory(&NoFiles, Sampling::default().with_kind(law), 2).unwrap()
    }

    #[test]
    fn more_of_anything_takes_more() {
        for law in [Law::Mean, Law::Iid, Law::Markov] {
            let mut last = 0.0;
            for states in [30, 300, 3000, 30_000] {
                let memory = of(&Garnet { states, ..Garnet::default() }, law);
                assert!(memory.peak > last && memory.peak >= memory.kept, "{memory:?}");
                last = memory.peak;
            }
            let dense = of(&RandomMrp { states: 20_000, ..RandomMrp::default() }, law);
            assert!(dense.peak > 25e9 && dense.peak < 50e9, "{dense:?}");
            let many = of(&LinearSystems { agents: 100_000_000, ..LinearSystems::default() }, law);
            assert!(many.peak > 4e10 && many.peak < 1e11, "{many:?}");
            assert!(of(&Switching { dim: 100_000, ..Switching::default() }, law).kept > 8e10);
        }
    }

    #[test]
    fn sizes_beyond_all_memory_do_not_overflow() {
        let (peak, kept) = linear(1e19, 1e19, true, 0.0, 1 << 20);
        assert!(peak.is_finite() && peak > kept && kept > 1e50, "{peak} {kept}");
        assert!(check_transitions("agents", 2f64.powi(31)).is_ok());
        assert!(check_transitions("agents", 2f64.powi(31) + 1.0).is_err());
    }
}
