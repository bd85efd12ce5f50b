//! `fedsa predict`: fitted weights applied to data.

use std::path::PathBuf;

use fedsa::error::{BadInput, Error, Result, quoted};
use fedsa::parallel;
use fedsa::problem::Files as _;
use fedsa::problem::dataset::{Dataset, Labels, Wanted};
use fedsa_data::DiskFiles;
use fedsa_data::atomic::{self, Existing};
use fedsa_data::find::Places;
use fedsa_data::linear_model::{Class, LinearModel, Predicts};
use fedsa_data::table::{Cells, Table, Text};
use fedsa_data::weights::{self, Fitted, Weights};
use fedsa_data::{datasets, table};
use fedsa_experiment::numbers;

use super::{count, may_write, say, warn, write_out};
use crate::args::PredictArgs;
use crate::error::DONE;

/// The format of the table that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Csv,
    Parquet,
}

/// The table that is written.
struct Predicted {
    columns: Vec<(String, Cells)>,
    rows: usize,
    /// The files that were read, in the order of the rows.
    files: Vec<PathBuf>,
    /// The names of the columns that were added.
    added: Vec<String>,
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
    // The folder of a run stands for its weights.
    let inside = args.weights.join("weights.json");
    if args.weights.is_dir() && !inside.is_file() {
        let what = "the folder holds no weights.json";
        return Err(BadInput::new(
            quoted(args.weights.to_string_lossy()),
            what,
            "a folder that fedsa fit or fedsa evaluate wrote, or its weights.json",
        ));
    }
    if args.column.as_deref() == Some("") {
        return Err(BadInput::new("--column", "no name", "a name for the column"));
    }
    let args = &PredictArgs { weights: if inside.is_file() { inside } else { args.weights.clone() }, ..args.clone() };
    let Predicted { columns, rows, files, added } = match weights::read(&args.weights)? {
        Fitted::Value(fitted) => values(args, fitted)?,
        Fitted::Linear(model) => predictions(args, &model)?,
    };
    if to_file {
        refuse_inputs(args, &files)?;
    }
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
    say(format!("{}: {} of {files}, with the {noun} {}", args.out.display(), count(rows, "row"), added.join(" and ")));
    Ok(DONE)
}

/// The tables with the value of every row.
fn values(args: &PredictArgs, mut fitted: Weights) -> Result<Predicted> {
    if args.se {
        fitted.read_covariance(&args.weights.with_extension("npz"))?;
    }
    let files = table::files(&args.logs, &Places::from_env(""))?;
    let tables = read_tables(&files, fitted.inputs())?;
    let added = args.column.as_deref().unwrap_or(fitted.output());
    let values: Vec<Vec<f64>> = parallel::map(tables.len(), |i| fitted.apply(&tables[i].inputs));
    let mut new = vec![(added.to_string(), Cells::Numbers(values.concat()))];
    if args.se {
        let errors: Vec<Vec<f64>> = parallel::map(tables.len(), |i| fitted.standard_errors(&tables[i].inputs));
        new.push((format!("{added}_se"), Cells::Numbers(errors.concat())));
    }
    stacked(files, tables, new, vec![added.to_string()])
}

/// The rows with what the model predicts of them: tables keep their columns, rows of other formats their targets.
fn predictions(args: &PredictArgs, model: &LinearModel) -> Result<Predicted> {
    if args.se {
        let what = "standard errors of a model that fedsa fit wrote";
        return Err(BadInput::new("--se", what, "no --se: only fedsa evaluate computes a covariance of its weights"));
    }
    let places = Places::from_env("");
    let files = datasets::files(&args.logs, &places)?;
    let (tables, scores) = if files.iter().all(|file| datasets::is_table(file)) {
        let names = model.names();
        let tables = read_tables(&files, &names)?;
        let score = |table: &Table| -> Vec<f64> {
            let rows = table.inputs.chunks_exact(names.len().max(1));
            rows.map(|row| model.score(row.iter().copied().enumerate())).collect()
        };
        let scores = parallel::map(tables.len(), |i| score(&tables[i]));
        tables.iter().zip(&scores).try_for_each(|(table, scores)| all_finite(&table.name, scores))?;
        (tables, scores)
    } else {
        let wanted = Wanted { target: model.target.clone(), may_lack_target: true, ..Wanted::default() };
        let sets = DiskFiles::new(places).datasets(&args.logs, &wanted)?;
        let scored = parallel::try_map(sets.len(), |i| scores_of(&sets[i], model))?;
        (sets.into_iter().map(|set| targets_of(set, model)).collect(), scored)
    };
    let mut new = model.predictions(&scores.concat());
    if let Some(column) = &args.column {
        // The last column is the prediction; a probability before it is named after it.
        let last = new.len() - 1;
        new.iter_mut().enumerate().for_each(|(i, (name, _))| *name = if i == last { column.clone() } else { format!("{column}_{name}") });
    }
    if let Some(line) = quality(&tables, model, &new[new.len() - 1].1) {
        warn(line);
    }
    let added = new.iter().map(|(name, _)| name.clone()).collect();
    stacked(files, tables, new, added)
}

/// How good predictions are, where the tables have targets: the share of right classes, or the root mean square error.
fn quality(tables: &[Table], model: &LinearModel, predicted: &Cells) -> Option<String> {
    let names = [model.target.as_deref().unwrap_or("target"), "target", "label"];
    let of = |table: &Table| -> Option<Vec<String>> {
        let cells = names.iter().find_map(|name| table.columns.iter().find(|(other, _)| other == name))?;
        Some((0..table.rows).map(|row| cells.1.text(row)).collect())
    };
    let targets = tables.iter().map(of).collect::<Option<Vec<_>>>()?.concat();
    let rows = targets.len();
    if rows == 0 {
        return None;
    }
    let number = |text: &str| text.trim().parse::<f64>().ok();
    match &model.predicts {
        Predicts::Target { .. } => {
            let error = |(row, target): (usize, &String)| Some((number(target)? - number(&predicted.text(row))?).powi(2));
            let sum: f64 = targets.iter().enumerate().map(error).sum::<Option<f64>>()?;
            Some(format!("root mean square error {} on {}", numbers::number((sum / rows as f64).sqrt()), count(rows, "row")))
        }
        Predicts::Class([no, yes]) => {
            // Numbers may be written in several ways, and all classes but one may be the rest.
            let is = |class: &Class, text: &str| match class {
                Class::Number(x) => number(text) == Some(*x),
                Class::Name(name) => text.trim() == name,
                Class::Rest => !text.trim().is_empty(),
            };
            let is_right = |(row, target): (usize, &String)| {
                let says_yes = predicted.text(row) == yes.to_string();
                Some(
                    says_yes
                        == if is(yes, target) {
                            true
                        } else if is(no, target) {
                            false
                        } else {
                            return None;
                        },
                )
            };
            let right = targets.iter().enumerate().map(is_right).collect::<Option<Vec<bool>>>()?;
            let share = right.iter().filter(|right| **right).count() as f64 / rows as f64;
            Some(format!("accuracy {} on {}", numbers::percent(share), count(rows, "row")))
        }
    }
}

/// The scores of the rows of a data set. Columns are found by their names; sparse rows may lack the last ones.
fn scores_of(set: &Dataset, model: &LinearModel) -> Result<Vec<f64>> {
    let d = model.coefficients.len();
    let fits = match &model.columns {
        // Sparse rows may lack the last columns, and have further ones if these are 0.
        None => set.columns.are_counted_up_to(d),
        Some(names) => names.len() == set.columns.len() && set.columns.iter().zip(names).all(|(a, b)| a == *b),
    };
    if !fits {
        let missing = model.names().into_iter().find(|name| set.columns.position(name).is_none());
        let what = match missing {
            Some(name) => format!("there is no column `{}`, which the model was fitted to", quoted(name)),
            None => format!("{} columns, in another order than those of the model", set.columns.len()),
        };
        return Err(BadInput::new(set.name.clone(), what, format!("the {d} columns of the data of the fit, in their order")));
    }
    let beyond = |row: usize| set.rows.row(row).find(|(j, x)| *j >= d && *x != 0.0).map(|(j, _)| (row, j));
    if let Some((row, j)) = (0..set.rows.len()).find_map(beyond) {
        let name = quoted(set.columns.name(j).unwrap_or_default());
        let what = format!("row {} has a number in the column `{name}`, and the model has {d} columns", row + 1);
        return Err(BadInput::new(set.name.clone(), what, format!("rows of at most {d} columns")));
    }
    let scores: Vec<f64> = (0..set.rows.len()).map(|i| model.score(set.rows.row(i))).collect();
    all_finite(&set.name, &scores)?;
    Ok(scores)
}

/// Refuses predictions that are not finite.
fn all_finite(name: &str, scores: &[f64]) -> Result<()> {
    let Some(row) = scores.iter().position(|score| !score.is_finite()) else { return Ok(()) };
    let what = format!("row {}: the prediction is {}: its numbers times the weights are too large", row + 1, scores[row]);
    Err(BadInput::new(name, what, "features of the size of those of the fit"))
}

/// A table of the targets of a data set, without other columns.
fn targets_of(set: Dataset, model: &LinearModel) -> Table {
    let rows = set.rows.len();
    let target = model.target.clone().unwrap_or_else(|| "target".into());
    let cells = set.targets.map(|targets| match targets {
        Labels::Numbers(numbers) => Cells::Numbers(numbers),
        Labels::Names { names, of } => {
            let mut text = Text::default();
            of.iter().for_each(|i| text.push(&names[*i as usize]));
            Cells::Text(text)
        }
    });
    let columns = cells.map(|cells| (target, cells)).into_iter().collect();
    // As tables are named: without folder.
    let name = std::path::Path::new(&set.name).file_name().map_or(set.name.clone(), |name| name.to_string_lossy().into_owned());
    Table { name, columns, inputs: Vec::new(), rows, left_out: Vec::new() }
}

/// The tables in these files, with these columns as numbers.
fn read_tables(files: &[PathBuf], inputs: &[String]) -> Result<Vec<Table>> {
    let tables = table::read(files, inputs)?;
    for table in tables.iter().filter(|table| !table.left_out.is_empty()) {
        let columns = table.left_out.iter().map(|name| format!("`{}`", quoted(name))).collect::<Vec<_>>().join(", ");
        warn(format!("note: {}: left out {columns}, which hold neither numbers nor flags", table.name));
    }
    Ok(tables)
}

fn stacked(files: Vec<PathBuf>, tables: Vec<Table>, new: Vec<(String, Cells)>, added: Vec<String>) -> Result<Predicted> {
    let rows = tables.iter().map(|table| table.rows).sum();
    Ok(Predicted { columns: table::stacked(tables, new)?, rows, files, added })
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
fn refuse_inputs(args: &PredictArgs, files: &[PathBuf]) -> Result<()> {
    let Ok(target) = std::fs::canonicalize(&args.out) else { return Ok(()) };
    match std::iter::once(&args.weights).chain(files).find(|input| std::fs::canonicalize(input).is_ok_and(|input| input == target)) {
        Some(input) => Err(BadInput::new("--out", format!("{} is a file that is read", input.display()), "another path")),
        None => Ok(()),
    }
}
