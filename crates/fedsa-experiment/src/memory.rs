//! The available memory, and the estimated memory of problems before they are built.
//!
//! Problems estimate their own memory (`fedsa_problems::memory`). Problems that exceed the available memory ([`machine::available`]) are
//! refused. The estimate counts data structures, and a constant 20 MB for thread stacks and the allocator's overhead.
//! [`run_memory`](crate::run_memory) adds the memory of runs.

use fedsa::error::{Error, Result};
use fedsa::sampling::Sampling;
use fedsa_data::DiskFiles;
use fedsa_data::machine::{self, bytes_text};
use fedsa_problems::ProblemSettings;
use fedsa_problems::memory::{MemoryEstimate, matrix};

/// The memory of the program itself, in bytes.
pub(crate) const PROGRAM: f64 = 20e6;

/// The memory of a problem with these settings, on the available threads.
///
/// # Errors
/// When a file cannot be read, or a setting has no size.
pub fn of_problem(problem: &dyn ProblemSettings, sampling: Sampling, files: &DiskFiles) -> Result<MemoryEstimate> {
    problem.memory(files, sampling, rayon::current_num_threads())
}

/// Refuses problems that do not fit into the available memory when built in parallel: the permanent memory of all problems, and the
/// temporary memory of one problem per thread, without the bytes `there` of existing problems. An error has the index of a problem: the
/// largest, or the one at fault.
///
/// # Errors
/// When they do not fit, or the size of one is unknown.
pub fn problems(sizes: Vec<Result<MemoryEstimate>>, there: f64) -> Result<Problems, (usize, Error)> {
    let mut all = Vec::with_capacity(sizes.len());
    for (i, memory) in sizes.into_iter().enumerate() {
        let inside = |e: Error| if e.key.starts_with("sampling") { e } else { e.inside("problem") };
        all.push(memory.map_err(|e| (i, inside(e)))?);
    }
    let largest = (0..all.len()).max_by(|i, j| all[*i].peak.total_cmp(&all[*j].peak)).unwrap_or(0);
    let needed = PROGRAM + side_by_side(all.iter().map(|m| (m.peak, m.kept)));
    let others = if all.len() == 1 { String::new() } else { format!(" ({} problems, the largest of them)", all.len()) };
    let what = || format!("{}{others}", all[largest].sizes);
    require("problem", needed - there, what, "fewer agents, states or features").map_err(|e| (largest, e))?;
    Ok(Problems { peak: needed, kept: all.iter().map(|m| m.kept).sum() })
}

/// The memory of a plan's problems.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Problems {
    /// Peak in bytes while the problems are built, including the program.
    pub peak: f64,
    /// Bytes of the built problems.
    pub kept: f64,
}

/// The permanent memory of all items, and the temporary memory of the largest ones, one per thread.
fn side_by_side(all: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut kept, mut passing) = (0.0, Vec::new());
    for (peak, own) in all {
        kept += own;
        passing.push(peak - own);
    }
    passing.sort_by(|a, b| b.total_cmp(a));
    kept + passing.iter().take(rayon::current_num_threads()).sum::<f64>()
}

/// Refuses a need for memory that exceeds the available memory.
///
/// # Errors
/// When it does; the error is about `key`.
pub fn require(key: &str, needed: f64, what: impl Fn() -> String, less: &str) -> Result<()> {
    match machine::available()? {
        Some(available) if needed > available.bytes => Err(Error::no_memory(
            key,
            format!("{}: needs about {}, {} are available ({})", what(), bytes_text(needed), bytes_text(available.bytes), available.by),
            format!("{less}; or {}=SIZE, if more memory may be used", machine::VARIABLE),
        )),
        _ => Ok(()),
    }
}

/// `about 210 MB of 15 GB available`.
///
/// # Errors
/// As [`machine::available`].
pub fn text(needed: f64) -> Result<String> {
    let available = machine::available()?.map_or(String::new(), |available| format!(" of {} available", bytes_text(available.bytes)));
    Ok(format!("about {}{available}", bytes_text(needed)))
}

/// Whether second moments of every distinct agent fit into the available memory.
pub fn moments_fit(kinds: usize, d: usize) -> bool {
    let d = d as f64;
    let needed = kinds as f64 * (matrix(d * d, d * d) + matrix(d * d, d) + matrix(d, d));
    fits(needed)
}

/// Whether that many bytes are available; true if the available memory is unknown.
pub fn fits(bytes: f64) -> bool {
    machine::available().ok().flatten().is_none_or(|available| bytes <= available.bytes)
}

/// Refuses to write a problem's arrays of `numbers` numbers if memory cannot hold them twice.
///
/// # Errors
/// When memory cannot hold them twice.
pub fn refuse_arrays(numbers: f64) -> Result<()> {
    require("problem", 16.0 * numbers, || format!("{numbers:.1e} numbers"), "fewer agents, states or features")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_side_by_side_keep_all_and_pass_some() {
        let threads = rayon::current_num_threads();
        let all = vec![(10.0, 1.0); threads + 3];
        assert_eq!(side_by_side(all.into_iter()), (threads + 3) as f64 + 9.0 * threads as f64);
    }
}
