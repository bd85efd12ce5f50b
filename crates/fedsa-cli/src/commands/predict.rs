//! `fedsa predict`: fitted weights applied to data.

use fedsa::error::{BadInput, Result, quoted};
use fedsa_data::atomic::{self, Existing};
use fedsa_data::find::Places;
use fedsa_data::{table, weights};
use fedsa_experiment::error::Failure;
use rayon::prelude::*;

use super::{count, may_write, say, warn, write_out};
use crate::args::PredictArgs;
use crate::error::DONE;

/// The format of the table that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Parquet,
}

/// Runs the command.
///
/// # Errors
/// On bad input, when the file may not be replaced, or when it cannot be written.
pub fn predict(args: &PredictArgs) -> Result<u8, Failure> {
    let to_file = args.out.as_os_str() != "-";
    let format = format(args)?;
    if to_file {
        may_write("--out", &args.out, args.overwrite)?;
    }
    let mut fitted = weights::read(&args.weights)?;
    if args.se {
        fitted.read_covariance(&args.weights.with_extension("npz"))?;
    }
    let tables = table::read(&args.logs, &Places::from_env(""), fitted.inputs())?;
    if to_file {
        refuse_inputs(args)?;
    }
    for table in tables.iter().filter(|table| !table.left_out.is_empty()) {
        let columns = table.left_out.iter().map(|name| format!("`{}`", quoted(name))).collect::<Vec<_>>().join(", ");
        warn(format!("note: {}: left out {columns}, which hold neither numbers nor flags", table.name));
    }
    let rows: usize = tables.iter().map(|table| table.rows).sum();
    let values: Vec<Vec<f64>> = tables.par_iter().map(|table| fitted.apply(&table.inputs)).collect();
    let added = args.column.as_deref().unwrap_or(fitted.output());
    let files = tables.len();
    let mut new = vec![(added.to_string(), values.concat())];
    if args.se {
        let errors: Vec<Vec<f64>> = tables.par_iter().map(|table| fitted.standard_errors(&table.inputs)).collect();
        new.push((format!("{added}_se"), errors.concat()));
    }
    let columns = table::stacked(tables, new)?;
    let bytes = match format {
        Format::Csv => table::to_csv(&columns)?,
        Format::Parquet => table::to_parquet(columns)?,
    };
    if !to_file {
        write_out(&bytes);
        return Ok(DONE);
    }
    let existing = if args.overwrite { Existing::Replace } else { Existing::Keep };
    atomic::write(&args.out, &bytes, atomic::folder_of(&args.out), existing).map_err(|e| atomic::unwritable(&args.out, &e))?;
    say(format!("{}: {} of {}, with the column {added}", args.out.display(), count(rows, "row"), count(files, "file")));
    Ok(DONE)
}

/// The format that the extension of the output names; CSV on standard output.
fn format(args: &PredictArgs) -> Result<Format> {
    let extension = args.out.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("csv") => Ok(Format::Csv),
        Some("parquet") => Ok(Format::Parquet),
        None if args.out.as_os_str() == "-" => Ok(Format::Csv),
        _ => {
            let what = format!("{} names no format of tables", args.out.display());
            Err(BadInput::new("--out", what, "a file with the extension .csv or .parquet, or - for standard output"))
        }
    }
}

/// Refuses an output that is one of the inputs.
fn refuse_inputs(args: &PredictArgs) -> Result<()> {
    let Ok(target) = std::fs::canonicalize(&args.out) else { return Ok(()) };
    let places = Places::from_env("");
    let mut inputs = vec![args.weights.clone()];
    for source in &args.logs {
        inputs.extend(places.files(source, &fedsa_data::logs::EXTENSIONS)?);
    }
    match inputs.iter().find(|input| std::fs::canonicalize(input).is_ok_and(|input| input == target)) {
        Some(input) => Err(BadInput::new("--out", format!("{} is a file that is read", input.display()), "another path")),
        None => Ok(()),
    }
}
