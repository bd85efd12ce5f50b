//! Fitted weights applied to data: added columns of values or predictions.
//!
//! [`apply`] reads weights and data from files; [`values`] and [`predictions`] take them from memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fedsa::error::{Error, Result, in_quotes, quoted};
use fedsa::note::{Note, NoteCode};
use fedsa::parallel;
use fedsa_data::DiskFiles;
use fedsa_data::find::Places;
use fedsa_data::linear_model::{LinearModel, PredictedClass, Predicts};
use fedsa_data::table::{Cells, Table, TableForm, Text};
use fedsa_data::weights::{self, FittedModel, PolicyModel, ValueModel};
use fedsa_data::{datasets, table};
use fedsa_problems::Files as _;
use fedsa_problems::features::FeatureMap;
use fedsa_problems::rows::dataset::{Dataset, Labels, Wanted};

use crate::{numbers, options};

/// Weights and data: options of `fedsa predict`. Errors name the setting.
#[derive(Debug, Clone, clap::Args)]
pub struct PredictSettings {
    /// weights.json of fedsa evaluate or fedsa fit, policy.json of fedsa improve, or its folder
    #[arg(help_heading = options::DATA)]
    pub weights: PathBuf,
    /// Data with the fitted columns: Parquet, CSV or TSV (also gzip, zstd), for fedsa fit also LIBSVM and IDX; files, globs, a folder, or a
    /// data set. The output keeps other columns, targets, and the order of rows
    #[arg(required = true, help_heading = options::DATA)]
    pub data: Vec<String>,
    /// Names of columns, such as s_0=x or s_*=obs_*; by default as in the evaluation's logs
    #[arg(long, value_name = "NAME=FIELD,..", help_heading = options::DATA, value_parser = options::named_columns, default_value = "", hide_default_value = true)]
    pub columns: BTreeMap<String, String>,
    /// Add standard errors, from weights.npz beside weights.json, as a column value_se
    #[arg(long, help_heading = options::INFERENCE)]
    pub se: bool,
    /// Name of the added column; by default value, prediction for fedsa fit, policy for fedsa improve
    #[arg(long, value_name = "NAME", help_heading = options::OUTPUT)]
    pub column: Option<String>,
}

impl PredictSettings {
    /// The defaults for these weights and data.
    pub fn new(weights: impl Into<PathBuf>, data: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            weights: weights.into(),
            data: data.into_iter().map(Into::into).collect(),
            columns: BTreeMap::new(),
            se: false,
            column: None,
        }
    }
}

/// The quality of predictions on data with targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PredictionQuality {
    /// For numbers.
    RootMeanSquareError {
        /// The root-mean-square error, in units of the target.
        value: f64,
        /// The number of rows.
        rows: usize,
    },
    /// For classes.
    Accuracy {
        /// The share of right predictions.
        share: f64,
        /// The number of rows.
        rows: usize,
    },
}

/// Data with a value or prediction for every row.
pub struct Applied {
    /// The columns of the data, followed by the added ones.
    pub columns: Vec<(String, Cells)>,
    /// The number of rows.
    pub rows: usize,
    /// The names of the added columns.
    pub added: Vec<String>,
    /// The quality of the predictions, if the data have targets.
    pub quality: Option<PredictionQuality>,
    /// Notes for readers of the predictions.
    pub notes: Vec<Note>,
    /// The files that were read; data files in the order of the rows.
    pub files: Vec<PathBuf>,
    /// The `weights.json` that was read; empty if weights were in memory.
    pub weights: PathBuf,
}

/// Applies weights to data.
///
/// # Errors
/// When a setting or a file cannot be used, or a prediction is not finite.
pub fn apply(settings: &PredictSettings) -> Result<Applied> {
    // A folder of a run contains its weights.
    let inside = ["weights.json", "policy.json"].map(|name| settings.weights.join(name)).into_iter().find(|path| path.is_file());
    if settings.weights.is_dir() && inside.is_none() {
        let help = "a folder that fedsa fit, fedsa evaluate or fedsa improve wrote, or its weights.json or policy.json";
        return Err(Error::new(quoted(settings.weights.to_string_lossy()), "the folder holds neither weights.json nor policy.json", help));
    }
    if settings.column.as_deref() == Some("") {
        return Err(Error::new("column", "no name", "a name for the column"));
    }
    let weights = inside.unwrap_or_else(|| settings.weights.clone());
    let applied = match weights::read(&weights)? {
        FittedModel::Value(fitted) => values_of_files(settings, &weights, fitted)?,
        FittedModel::Policy(policy) => actions_of_files(settings, &policy)?,
        FittedModel::Linear(model) => predictions_of_files(settings, &model)?,
    };
    let mut notes = applied.notes;
    let outcome = weights::outcome(&weights).filter(|outcome| ["diverged", "stalled", "max-rounds", "unsettled"].contains(&&outcome[..]));
    notes.extend(outcome.map(|outcome| {
        let what = format!("the fit of these weights ended as {outcome}: they are not those that it was to find");
        Note::new(NoteCode::WeightsNotFound, what)
    }));
    Ok(Applied { weights, notes, ..applied })
}

/// The values of a value function on tables whose columns include the fitted ones ([`ValueModel::inputs`]). With `se` a second column has
/// standard errors, for which the weights need a covariance.
///
/// # Errors
/// When a table already has a column with the name of an added one.
pub fn values(fitted: &ValueModel, tables: Vec<Table>, column: Option<&str>, se: bool) -> Result<Applied> {
    let added = column.unwrap_or(fitted.output());
    let values: Vec<Vec<f64>> = parallel::map(tables.len(), |i| fitted.apply(&tables[i].inputs));
    let mut new = vec![(added.to_string(), Cells::Numbers(values.concat()))];
    if se {
        let errors: Vec<Vec<f64>> = parallel::map(tables.len(), |i| fitted.standard_errors(&tables[i].inputs));
        new.push((format!("{added}_se"), Cells::Numbers(errors.concat())));
    }
    of_states(fitted.map(), tables, new, vec![added.to_string()])
}

/// The tables of states with new columns, and notes on states outside of the range of the fit.
fn of_states(map: &FeatureMap, tables: Vec<Table>, new: Vec<(String, Cells)>, added: Vec<String>) -> Result<Applied> {
    let mut counts = vec![0; map.columns().len()];
    tables.iter().for_each(|table| map.count_clipped(&table.inputs, &mut counts));
    let mut applied = stacked(tables, new, added, None)?;
    let outside = map.columns().iter().zip(counts).filter(|(_, count)| *count > 0);
    applied.notes.extend(outside.map(|(column, count)| {
        let (rows, share) = (numbers::thousands(count as f64), numbers::percent(count as f64 / applied.rows as f64));
        let column = in_quotes(column);
        let what = format!("the column {column} is outside of the range of the fit in {rows} rows ({share}), which count as its ends");
        Note::new(NoteCode::StatesClipped, what)
    }));
    Ok(applied)
}

/// The files of states, read. Columns have the names of the fit's files unless the settings name others.
fn tables_of_states(
    settings: &PredictSettings,
    map: &FeatureMap,
    file_columns: &BTreeMap<String, String>,
) -> Result<(Vec<PathBuf>, Vec<Table>)> {
    let files = table::files(&settings.data, &Places::from_env(""))?;
    let form = TableForm::new(map.columns());
    let form = match settings.columns.is_empty() {
        true => form.with_columns(file_columns.clone(), false),
        false => form.with_columns(settings.columns.clone(), true),
    };
    let tables = table::read(&files, &form)?;
    Ok((files, tables))
}

/// A model's predictions for the rows of tables whose columns include the fitted ones ([`LinearModel::names`]).
///
/// # Errors
/// When a prediction is not finite, or a table already has a column with the name of an added one.
pub fn predictions(model: &LinearModel, tables: Vec<Table>, column: Option<&str>) -> Result<Applied> {
    let scores = parallel::try_map(tables.len(), |i| model.table_scores(&tables[i]))?;
    tables.iter().zip(&scores).try_for_each(|(table, scores)| all_finite(&table.name, scores, model.outputs()))?;
    scored(model, tables, &scores, column)
}

/// The tables of files with the value of every row.
fn values_of_files(settings: &PredictSettings, weights: &Path, mut fitted: ValueModel) -> Result<Applied> {
    if settings.se {
        fitted.read_covariance(&weights.with_extension("npz"))?;
    }
    let (files, tables) = tables_of_states(settings, fitted.map(), fitted.file_columns())?;
    let applied = values(&fitted, tables, settings.column.as_deref(), settings.se)?;
    Ok(Applied { files, ..applied })
}

/// The tables of files with the values of all actions in every row, and the action that the policy takes.
fn actions_of_files(settings: &PredictSettings, policy: &PolicyModel) -> Result<Applied> {
    if settings.se {
        let what = "standard errors of a policy's values";
        return Err(Error::new("se", what, "no `se`: the value of the policy on held-out episodes has a standard error, in policy.json"));
    }
    let (files, tables) = tables_of_states(settings, policy.map(), policy.file_columns())?;
    let (names, k) = (policy.actions(), policy.actions().len());
    let of = |table: &Table| (policy.values(&table.inputs), policy.choices(&table.inputs));
    let (values, choices): (Vec<_>, Vec<_>) = parallel::map(tables.len(), |i| of(&tables[i])).into_iter().unzip();
    let values: Vec<f64> = values.concat();
    let of_action = |a: usize| values.iter().skip(a).step_by(k).copied().collect();
    let mut new: Vec<(String, Cells)> =
        names.iter().enumerate().map(|(a, name)| (format!("q_{name}"), Cells::Numbers(of_action(a)))).collect();
    let mut taken = Text::default();
    choices.iter().flatten().for_each(|action| taken.push(&names[*action]));
    new.push((settings.column.clone().unwrap_or_else(|| "policy".into()), Cells::Text(taken)));
    let added: Vec<String> = new.iter().map(|(name, _)| name.clone()).collect();
    if added[..k].contains(&added[k]) {
        return Err(Error::new("column", quoted(&added[k]), "a name other than those of the values of actions"));
    }
    Ok(Applied { files, ..of_states(policy.map(), tables, new, added)? })
}

/// The rows of files with the model's predictions: tables keep their columns, rows of other formats their targets.
fn predictions_of_files(settings: &PredictSettings, model: &LinearModel) -> Result<Applied> {
    if settings.se {
        let what = "standard errors of a model that fedsa fit wrote";
        return Err(Error::new(
            "se",
            what,
            "no `se`: standard errors are those of value functions; a fit with inference has those of its coefficients in summary.json",
        ));
    }
    let places = Places::from_env("");
    let files = datasets::files(&settings.data, &places)?;
    let column = settings.column.as_deref();
    let applied = if files.iter().all(|file| datasets::is_table(file)) {
        predictions(model, table::read(&files, &TableForm::new(model.names()).with_columns(settings.columns.clone(), true))?, column)?
    } else {
        let mut wanted = Wanted::default().with_may_lack_target(true);
        wanted.target.clone_from(&model.target);
        let sets = DiskFiles::new(places).datasets(&settings.data, &wanted)?;
        let scores = parallel::try_map(sets.len(), |i| scores_of(&sets[i], model))?;
        scored(model, sets.into_iter().map(|set| targets_of(set, model)).collect(), &scores, column)?
    };
    Ok(Applied { files, ..applied })
}

/// Tables with the predictions of these scores.
fn scored(model: &LinearModel, tables: Vec<Table>, scores: &[Vec<f64>], column: Option<&str>) -> Result<Applied> {
    let mut new = model.predictions(&scores.concat());
    if let Some(column) = column {
        // The last column is the prediction; columns of probabilities before it start with its name.
        let last = new.len() - 1;
        let named = |(i, (name, _)): (usize, &mut (String, Cells))| {
            *name = if i == last { column.to_string() } else { format!("{column}_{name}") };
        };
        new.iter_mut().enumerate().for_each(named);
    }
    let quality = quality(&tables, model, &new[new.len() - 1].1);
    let added = new.iter().map(|(name, _)| name.clone()).collect();
    stacked(tables, new, added, quality)
}

/// Tables joined row-wise, with new columns.
fn stacked(tables: Vec<Table>, new: Vec<(String, Cells)>, added: Vec<String>, quality: Option<PredictionQuality>) -> Result<Applied> {
    let rows = tables.iter().map(|table| table.rows).sum();
    let notes = tables.iter().filter(|table| !table.left_out.is_empty()).map(|table| {
        let columns = table.left_out.iter().map(in_quotes).collect::<Vec<_>>().join(", ");
        let what = format!("{}: left out the columns {columns}, which hold neither numbers nor flags nor text", table.name);
        Note::new(NoteCode::ColumnsLeftOut, what)
    });
    let notes = notes.collect();
    Ok(Applied { columns: table::stacked(tables, new)?, rows, added, quality, notes, files: Vec::new(), weights: PathBuf::new() })
}

/// The quality of predictions if the tables have targets: the share of right classes, or the root-mean-square error.
fn quality(tables: &[Table], model: &LinearModel, predicted: &Cells) -> Option<PredictionQuality> {
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
        Predicts::Target { .. } | Predicts::Mean { .. } | Predicts::Robust => {
            let error = |(row, target): (usize, &String)| Some((number(target)? - number(&predicted.text(row))?).powi(2));
            let sum: f64 = targets.iter().enumerate().map(error).sum::<Option<f64>>()?;
            Some(PredictionQuality::RootMeanSquareError { value: (sum / rows as f64).sqrt(), rows })
        }
        Predicts::Classes { .. } => {
            let same = |(row, target): (usize, &String)| {
                let predicted = predicted.text(row);
                predicted == target.trim() || number(target).is_some_and(|x| number(&predicted) == Some(x))
            };
            let right = targets.iter().enumerate().filter(|pair| same((pair.0, pair.1))).count();
            Some(PredictionQuality::Accuracy { share: right as f64 / rows as f64, rows })
        }
        Predicts::Class([no, yes]) => {
            // Numbers have several spellings, and one class may be the rest.
            let is = |class: &PredictedClass, text: &str| match class {
                PredictedClass::Number(x) => number(text) == Some(*x),
                PredictedClass::Name(name) => text.trim() == name,
                PredictedClass::Rest => !text.trim().is_empty(),
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
            Some(PredictionQuality::Accuracy { share: right.iter().filter(|right| **right).count() as f64 / rows as f64, rows })
        }
    }
}

/// The scores of a data set's rows. Columns are matched by name; sparse rows may lack the last ones.
fn scores_of(set: &Dataset, model: &LinearModel) -> Result<Vec<f64>> {
    if model.offset.is_some() || !model.categories.is_empty() {
        let what = "rows without names of columns, and the model has offsets or categories";
        return Err(Error::new(set.name.clone(), what, "a table (CSV, Parquet) with the columns of the fit"));
    }
    let d = model.coefficients.len();
    let fits = match &model.columns {
        // Sparse rows may lack the last columns, and may have further ones if these are 0.
        None => set.columns.are_counted_up_to(d),
        Some(names) => names.len() == set.columns.len() && set.columns.iter().zip(names).all(|(a, b)| a == *b),
    };
    if !fits {
        let missing = model.names().into_iter().find(|name| set.columns.position(name).is_none());
        let what = match missing {
            Some(name) => format!("there is no column `{}`, which the model was fitted to", quoted(name)),
            None => format!("{} columns, in another order than those of the model", set.columns.len()),
        };
        return Err(Error::new(set.name.clone(), what, format!("the {d} columns of the data of the fit, in their order")));
    }
    let beyond = |row: usize| set.rows.row(row).find(|(j, x)| *j >= d && *x != 0.0).map(|(j, _)| (row, j));
    if let Some((row, j)) = (0..set.rows.len()).find_map(beyond) {
        let name = quoted(set.columns.name(j).unwrap_or_default());
        let what = format!("row {} has a number in the column `{name}`, and the model has {d} columns", row + 1);
        return Err(Error::new(set.name.clone(), what, format!("rows of at most {d} columns")));
    }
    let mut scores = Vec::with_capacity(set.rows.len() * model.outputs());
    (0..set.rows.len()).for_each(|i| model.scores(&set.rows.row(i).collect::<Vec<_>>(), &mut scores));
    all_finite(&set.name, &scores, model.outputs())?;
    Ok(scores)
}

/// Refuses predictions that are not finite.
fn all_finite(name: &str, scores: &[f64], outputs: usize) -> Result<()> {
    let Some(at) = scores.iter().position(|score| !score.is_finite()) else { return Ok(()) };
    let what = format!("row {}: the prediction is {}: its numbers times the weights are too large", at / outputs + 1, scores[at]);
    Err(Error::new(name, what, "features of the size of those of the fit"))
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
    // The name without folder, as for tables.
    let name = std::path::Path::new(&set.name).file_name().map_or(set.name.clone(), |name| name.to_string_lossy().into_owned());
    Table { name, columns, inputs: Vec::new(), rows, left_out: Vec::new() }
}
