//! `fedsa export`: the problem as arrays, for NumPy and for independent checks.

use std::collections::HashMap;

use fedsa::error::{Error, Result, require};
use fedsa::kernel::Isa;
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa_data::atomic::{self, Existing};
use fedsa_data::npz;
use fedsa_experiment::{Kinds, Plan, memory};

use super::{load, may_write, say, write_out};
use crate::args::ExportArgs;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// On bad input, when the file sweeps over problems, or when the target cannot be written.
pub fn export(args: &ExportArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (experiment, base) = load(&args.file, &args.overrides, false, kinds)?;
    let plan = Plan::new(experiment, &base, Isa::best(), &HashMap::new())?;
    let [only] = &plan.fields[..] else {
        let what = format!("the file has {} problems", plan.fields.len());
        let help = "a file with one problem: leave one value of each sweep, such as --set sweep.0.values=[1], or one [[variant]]";
        return Err(Error::new(args.file.display().to_string(), what, help));
    };
    let arrays = arrays(&*only.field)?;
    let bytes = npz::to_bytes(&arrays)?;
    if args.npz.as_os_str() == "-" {
        write_out(&bytes);
        return Ok(DONE);
    }
    may_write("--npz", &args.npz, args.overwrite)?;
    let input = std::fs::canonicalize(&args.file).ok();
    if input.is_some() && input == std::fs::canonicalize(&args.npz).ok() {
        let what = format!("{} is the file that is exported", args.npz.display());
        return Err(Error::new("--npz", what, "another path"));
    }
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    atomic::write(&args.npz, &bytes, atomic::folder_of(&args.npz), existing).map_err(|e| atomic::unwritable(&args.npz, &e))?;
    let names: Vec<&str> = arrays.iter().map(|(name, _)| name).collect();
    say(format!("{}: {}", args.npz.display(), names.join(", ")));
    Ok(DONE)
}

/// The arrays of a problem: its own, its linear systems and their roots.
///
/// # Errors
/// When the operators are not linear.
pub fn arrays(field: &dyn Field) -> Result<Arrays> {
    let systems = field.systems().ok_or_else(|| match field.facts().linear_operators() {
        Some(_) => Error::new("problem", "the systems are sparse, and are exported as dense arrays only", "at most 1024 tiles"),
        None => Error::new("", "the operators are not linear", "a linear problem"),
    })?;
    let (n, d) = (field.agents(), field.dim());
    // The format has a kernel and a matrix for each agent, although many agents may share one.
    const MAX_NUMBERS: f64 = 1e9;
    let states = field.facts().stationary(0).map_or(0, <[f64]>::len) as f64;
    let numbers = n as f64 * (states * states).max((d * d) as f64);
    require(
        numbers <= MAX_NUMBERS,
        "problem",
        format!("{n} agents with {states} states and d = {d}"),
        "arrays of at most 1e9 numbers: fewer agents",
    )?;
    // Kernels and rewards, matrices and vectors, and the file in memory.
    let each = 2.0 * states * states + (d * d) as f64 + 2.0 * d as f64 + states;
    memory::refuse_arrays(n as f64 * each)?;
    let mut arrays = field.facts().export().unwrap_or_default();
    let is_mrp = arrays.find("P").is_some();
    let (mut a, mut b, mut local, mut stationary) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for c in 0..n {
        let system = systems.of(c);
        a.extend(fedsa::linalg::to_rows(&system.a));
        b.extend(&system.b);
        // An agent with a singular system has no local root.
        local.extend(systems.local_root(systems.kind_of[c] as usize).unwrap_or_else(|_| vec![f64::NAN; d]));
        stationary.extend(field.facts().stationary(systems.kind_of[c] as usize).unwrap_or_default());
    }
    arrays.insert("A", Array::new(vec![n, d, d], a)?);
    arrays.insert("b", Array::new(vec![n, d], b)?);
    arrays.insert("theta_local", Array::new(vec![n, d], local)?);
    arrays.insert("weights", Array::new(vec![n], field.weights().to_vec())?);
    if let Some(root) = field.root() {
        arrays.insert("theta_star", Array::new(vec![d], root.to_vec())?);
    }
    if is_mrp {
        arrays.insert("stationary", Array::new(vec![n, stationary.len() / n], stationary)?);
    }
    arrays.insert("format", Array::scalar(1.0));
    Ok(arrays)
}
