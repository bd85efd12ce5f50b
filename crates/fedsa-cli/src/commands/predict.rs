//! `fedsa predict`: fitted weights applied to data.

use fedsa::error::{Error, Result};
use fedsa_data::atomic::{self, Existing};
use fedsa_data::table;
use fedsa_experiment::apply::{Applied, PredictionQuality, apply};
use fedsa_experiment::numbers;

use super::results::note_lines;
use super::{count, may_write, say, warn, write_out};
use crate::args::PredictArgs;
use crate::error::DONE;

/// The format of the written table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Parquet,
}

/// Runs the command.
///
/// # Errors
/// On bad input, when the file may not be replaced, or when it cannot be written.
pub fn predict(args: &PredictArgs) -> Result<u8, Error> {
    let to_file = args.out.as_os_str() != "-";
    let format = format(args)?;
    if to_file {
        may_write("--out", &args.out, args.overwrite)?;
    }
    let applied = apply(&args.settings)?;
    note_lines(&applied.notes).into_iter().chain(applied.quality.map(quality)).for_each(warn);
    if to_file {
        refuse_inputs(args, &applied)?;
    }
    let Applied { columns, rows, added, files, .. } = applied;
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
    let noun = if added.len() == 1 { "column" } else { "columns" };
    let files = count(files.len(), "file");
    let (last, others) = added.split_last().expect("a prediction");
    let names = if others.is_empty() { last.to_string() } else { format!("{} and {last}", others.join(", ")) };
    say(format!("{}: {} of {files}, with the {noun} {names}", args.out.display(), count(rows, "row")));
    Ok(DONE)
}

/// The quality of predictions.
fn quality(quality: PredictionQuality) -> String {
    match quality {
        PredictionQuality::RootMeanSquareError { value, rows } => {
            format!("root mean square error {} on {}", numbers::number(value), count(rows, "row"))
        }
        PredictionQuality::Accuracy { share, rows } => format!("accuracy {} on {}", numbers::percent(share), count(rows, "row")),
    }
}

/// The format by the extension of the output; CSV on standard output.
fn format(args: &PredictArgs) -> Result<Format> {
    let extension = args.out.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("csv") => Ok(Format::Csv),
        Some("parquet") => Ok(Format::Parquet),
        None if args.out.as_os_str() == "-" => Ok(Format::Csv),
        _ => {
            let what = format!("{} names no format of tables", args.out.display());
            Err(Error::new("--out", what, "a file with the extension .csv or .parquet, or - for standard output"))
        }
    }
}

/// Refuses an output that is one of the inputs.
fn refuse_inputs(args: &PredictArgs, applied: &Applied) -> Result<()> {
    let Ok(target) = std::fs::canonicalize(&args.out) else { return Ok(()) };
    match std::iter::once(&applied.weights)
        .chain(&applied.files)
        .find(|input| std::fs::canonicalize(input).is_ok_and(|input| input == target))
    {
        Some(input) => Err(Error::new("--out", format!("{} is a file that is read", input.display()), "another path")),
        None => Ok(()),
    }
}
