//! The settings of problems.

use std::sync::Arc;

use fedsa::error::{Error, Result, require};
use fedsa::federation::Description;
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::sampling::Sampling;

use crate::Files;
use crate::memory::MemoryEstimate;

/// The settings of one kind of problem: the keys of `[problem]` except `kind`.
pub trait ProblemSettings: erased_serde::Serialize + Send + Sync {
    /// Refuses values out of range, as far as no file must be read. [`ProblemSettings::field`] and [`ProblemSettings::memory`] also check.
    ///
    /// # Errors
    /// When a setting is out of range; the error names it and the accepted values.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Builds the problem and joins it with a sampling.
    ///
    /// # Errors
    /// When a setting or a file cannot be used; the error names the setting and the agent.
    fn field(&self, files: &dyn Files, sampling: Sampling, isa: Isa) -> Result<Arc<dyn Field>>;

    /// The memory of [`ProblemSettings::field`] on this number of threads, computed from sizes, including the files' sizes.
    ///
    /// # Errors
    /// When a file cannot be read, or a setting has no size.
    fn memory(&self, files: &dyn Files, sampling: Sampling, threads: usize) -> Result<MemoryEstimate>;

    /// The keys of settings that may differ between the ends of a federation: paths of files and names of data. All others are in the hash
    /// of each message ([`fedsa::federation::Description`]).
    fn own_to_each_end(&self) -> &'static [&'static str] {
        &[]
    }

    /// The error about a given setting without effect under this sampling. Its key names the setting, or a setting of the sampling such as
    /// `sampling.start`.
    fn without_effect(&self, _sampling: &Sampling) -> Option<Error> {
        None
    }
}

erased_serde::serialize_trait_object!(ProblemSettings);

impl dyn ProblemSettings + '_ {
    /// The description of the problem for a federation, without the settings that may differ between its ends
    /// ([`ProblemSettings::own_to_each_end`]). `kind` is its name in files.
    pub fn described(&self, kind: &str, sampling: Sampling, dim: usize) -> Description {
        Description::new(kind, sampling, dim).with_all_but(self.own_to_each_end(), self)
    }
}

/// Ranges for all generated problems.
pub(crate) fn check_counts(agents: usize, features: usize, states: usize) -> Result<()> {
    require((1..=MAX_AGENTS).contains(&agents), "agents", agents, &format!("between 1 and {MAX_AGENTS}"))?;
    require((2..=MAX_STATES).contains(&states), "states", states, &format!("between 2 and {MAX_STATES}"))?;
    require((1..=states).contains(&features), "features", features, &format!("between 1 and states = {states}"))
}

/// Ranges for generated linear systems.
pub(crate) fn check_linear(agents: usize, dim: usize) -> Result<()> {
    require((1..=MAX_AGENTS).contains(&agents), "agents", agents, &format!("between 1 and {MAX_AGENTS}"))?;
    require(dim >= 1, "dim", dim, "at least 1")?;
    check_size("dim", &[agents, dim, dim])
}

/// The standard deviation of offsets; draws must be finite.
pub(crate) fn check_spread(spread: f64) -> Result<()> {
    require((0.0..=1e300).contains(&spread), "spread", format!("{spread:?}"), "from 0 to 1e300")
}

/// The most agents of a generated problem. Larger numbers are typing errors, and would exhaust the memory without a message.
pub(crate) const MAX_AGENTS: usize = 100_000_000;
/// The most states. A stationary law takes memory quadratic in it.
pub(crate) const MAX_STATES: usize = 50_000;

/// Refuses arrays of a size, the product of `factors`, that no memory holds.
pub(crate) fn check_size(key: &str, factors: &[usize]) -> Result<()> {
    const MAX_NUMBERS: f64 = 1e10;
    let numbers: f64 = factors.iter().map(|n| *n as f64).product();
    require(numbers <= MAX_NUMBERS, key, format!("a problem of {numbers:.1e} numbers"), &format!("at most {MAX_NUMBERS:.0e} numbers"))
}
