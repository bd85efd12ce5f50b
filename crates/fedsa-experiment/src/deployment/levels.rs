//! Levels of categories and classes of labels. Agents state theirs when they apply, and learn those of all at admission.

use fedsa::enrolment::{ColumnContent, ColumnSummary, CountedColumns, DistinctValues, MAX_COMPONENTS};
use fedsa::error::{Error, Result};
use fedsa_problems::rows::preparation::columns::ColumnLevels;
use fedsa_problems::rows::preparation::levels::RowLevels;
use fedsa_problems::rows::preparation::moments::{FeatureScales, moments_of};
use fedsa_problems::rows::preparation::sparse::SparseSize;
use fedsa_problems::rows::preparation::targets::{ClassLabel, TargetRule, Targets};
use fedsa_problems::rows::preparation::{Preparation, Prepared};
use fedsa_problems::rows::regression::{GeneralisedLinear, LeastSquares, Logistic};
use serde::{Deserialize, Serialize};

use super::{limits, settings_of};
use crate::config::Experiment;
use crate::made;

/// The name of labels that are not a named column.
const LABELS: &str = "the labels";

/// The name of the columns of sparse rows, which have no names.
const FEATURES: &str = "the features";

/// The form of rows whose features or targets depend on other agents' rows.
#[derive(Serialize, Deserialize)]
pub(super) struct LevelsForm {
    /// The number of columns that are used unchanged.
    plain: usize,
    /// Their names; `None` for columns without names.
    names: Option<Vec<String>>,
    /// For sparse rows without names, whose number of columns depends on all agents: the positions of omitted columns.
    left_out: Option<Vec<usize>>,
}

impl LevelsForm {
    pub fn of(levels: &RowLevels) -> Self {
        match &levels.sparse {
            Some(sparse) => Self { plain: 0, names: None, left_out: Some(sparse.left_out.clone()) },
            None => Self { plain: levels.plain, names: levels.names.clone(), left_out: None },
        }
    }
}

/// Parses a form.
///
/// # Errors
/// When the text is no form.
pub(super) fn form(text: &str) -> Result<LevelsForm> {
    let form: LevelsForm = serde_json::from_str(text).map_err(|_| no_form())?;
    let is_ordered = form.left_out.as_ref().is_none_or(|out| out.is_sorted_by(|a, b| a < b));
    let is_possible =
        is_ordered && form.plain <= MAX_COMPONENTS as usize && form.names.as_ref().is_none_or(|names| names.len() == form.plain);
    if is_possible { Ok(form) } else { Err(no_form()) }
}

/// The error about a text that is no form of data.
pub(super) fn no_form() -> Error {
    Error::format("form", "not the form of an agent's data", "agents of this version")
}

/// An agent's levels and labels as it states them: categories in the order of columns, then labels.
///
/// # Errors
/// When there are too many, or one is too long.
pub(super) fn summaries(levels: &RowLevels, rows: u64) -> Result<Vec<ColumnSummary>> {
    let category = |one: &ColumnLevels| {
        // Declared levels may have no row.
        let rows = one.levels.iter().cloned().zip(one.counts.iter().copied()).filter(|(_, rows)| *rows > 0);
        let values = DistinctValues::new(rows.collect(), one.are_numbers);
        ColumnSummary::of_categories(&one.column, values)
    };
    let labels = levels.classes.as_ref().map(|classes| {
        let text = |class: &ClassLabel| match class {
            ClassLabel::Number(x) => x.to_string(),
            ClassLabel::Name(name) => name.clone(),
        };
        let are_numbers = classes.iter().all(|class| matches!(class, ClassLabel::Number(_)));
        let rows = classes.iter().map(text).zip(levels.class_rows.iter().copied());
        ColumnSummary::of_labels(LABELS, DistinctValues::new(rows.collect(), are_numbers))
    });
    let counted = levels.sparse.iter().map(|sparse| {
        let last = u32::try_from(sparse.width).unwrap_or(u32::MAX);
        ColumnSummary::of_counted(FEATURES, CountedColumns::new(rows, last, sparse.stored as u64))
    });
    levels.categories.iter().map(category).chain(labels).chain(counted).collect()
}

/// The levels and classes of these columns, in addition to the other columns of this form. The settings of `how` may declare levels.
pub(super) fn levels_of(form: LevelsForm, columns: &[ColumnSummary], how: &Preparation) -> RowLevels {
    let mut levels = sizes_of(form, columns, how);
    if let Some(sparse) = &levels.sparse {
        levels.names = sparse.names();
    }
    levels
}

/// The same without made-up names of unnamed columns, of which there may be millions.
pub(super) fn sizes_of(form: LevelsForm, columns: &[ColumnSummary], how: &Preparation) -> RowLevels {
    let mut levels = RowLevels { plain: form.plain, names: form.names, ..RowLevels::default() };
    for column in columns {
        if let (Some(counted), Some(left_out)) = (column.counted(), &form.left_out) {
            let (rows, width, stored) = (counted.rows as usize, counted.last as usize, counted.stored as usize);
            levels.sparse = Some(SparseSize { rows, width, stored, left_out: left_out.clone(), categories: 0 });
        }
        let Some(values) = column.values() else { continue };
        let sorted = values.sorted().into_iter().map(str::to_string);
        if matches!(column.content, ColumnContent::Labels(_)) {
            let class = |name: String| match name.parse() {
                Ok(x) if values.are_numbers => ClassLabel::Number(x),
                _ => ClassLabel::Name(name),
            };
            levels.class_rows = values.sorted().into_iter().map(|name| values.rows[name]).collect();
            levels.classes = Some(sorted.map(class).collect());
        } else {
            let rows = values.rows.clone().into_iter().collect();
            levels.categories.push(match how.special.declared.get(&column.name) {
                Some(declared) => ColumnLevels::declared(&column.name, declared, &rows),
                None => ColumnLevels::new(&column.name, rows),
            });
        }
    }
    if let Some(sparse) = &mut levels.sparse {
        sparse.categories = levels.categories.len();
        levels.plain = sparse.plain();
    }
    levels
}

/// The moments of an agent's features before they are scaled, without a column of ones, over its rows to fit.
///
/// # Errors
/// When one is not finite.
pub(super) fn moments(prepared: &Prepared) -> Result<Vec<ColumnSummary>> {
    let names = prepared.transform.columns.iter();
    names.zip(moments_of(&prepared.train)).map(|(name, moments)| ColumnSummary::of_moments(name, moments)).collect()
}

/// Whether columns of agents tell only the moments of features.
pub(super) fn are_moments(columns: &[ColumnSummary]) -> bool {
    !columns.is_empty() && columns.iter().all(|column| column.moments().is_some())
}

/// The preparation of one agent's rows of this form, with what these columns of all agents tell, if it depends on them.
pub(super) fn of_all(how: Preparation, form: LevelsForm, columns: Option<&[ColumnSummary]>) -> Preparation {
    let how = how.of_one();
    match columns {
        None => how,
        Some(columns) if are_moments(columns) => Preparation { scales: scales(columns), ..how },
        Some(columns) => {
            let all = levels_of(form, columns, &how);
            how.with_levels(all)
        }
    }
}

/// Refuses standardisation of rows whose features depend on other agents' rows, so that agents cannot tell their moments.
///
/// # Errors
/// When there are such rows.
pub(super) fn check_standardise(how: &Preparation, levels: &RowLevels) -> Result<()> {
    if how.standardise && !levels.are_known() { Err(limits::refusal("problem.standardise")) } else { Ok(()) }
}

/// The means and standard deviations of features from the moments of all agents; `None` without moments.
pub(super) fn scales(columns: &[ColumnSummary]) -> Option<FeatureScales> {
    let all = || columns.iter().filter_map(ColumnSummary::moments).collect::<Vec<_>>();
    are_moments(columns).then(|| FeatureScales::new(&all()))
}

/// Refuses settings that name an unnamed column beyond all agents' rows, as one process would.
///
/// # Errors
/// When there is one.
pub(super) fn check_left_out(levels: &RowLevels) -> Result<()> {
    let Some(sparse) = &levels.sparse else { return Ok(()) };
    match sparse.left_out.iter().find(|out| **out >= sparse.width) {
        Some(out) => {
            let what = format!("no agent has a column `{}`: there are {} columns", out + 1, sparse.width);
            Err(Error::data("problem.data", what, format!("one of the columns 1 to {}", sparse.width)))
        }
        None => Ok(()),
    }
}

/// The preparation of an experiment's rows as an agent's rows.
///
/// # Errors
/// When its problem has no rows.
pub(super) fn preparation(experiment: &Experiment) -> Result<Preparation> {
    Ok(match made::problem_of(experiment).0.as_str() {
        "logistic" => settings_of::<Logistic>(experiment)?.preparation(),
        "least-squares" => settings_of::<LeastSquares>(experiment)?.preparation(),
        _ => settings_of::<GeneralisedLinear>(experiment)?.preparation(),
    })
}

/// Refuses targets that agents would scale by their own rows before they know all levels, because agents do not state their targets.
///
/// # Errors
/// When there are such targets.
pub(super) fn check_targets(experiment: &Experiment) -> Result<()> {
    if matches!(preparation(experiment)?.targets, TargetRule::Numbers { range: Some(_) }) {
        return Err(limits::refusal("problem.target_range"));
    }
    Ok(())
}

/// The number of components of a model of rows with these levels.
///
/// # Errors
/// When no targets fit these classes, or there are too many components.
pub(super) fn dim(how: &Preparation, levels: &RowLevels) -> Result<usize> {
    let targets = how.targets.of_classes(levels.classes.as_deref()).map_err(|e| e.inside("problem"))?;
    dim_of(how, levels, targets.as_ref().map_or(1, Targets::outputs), 1)
}

/// The least number of components of a model whose rows have, among others, these levels; none if no column of these is a feature.
///
/// # Errors
/// When there are too many components.
pub(super) fn least_dim(how: &Preparation, levels: &RowLevels) -> Result<usize> {
    dim_of(how, levels, 1, 0)
}

fn dim_of(how: &Preparation, levels: &RowLevels, outputs: usize, least: usize) -> Result<usize> {
    let features: usize = levels.features(how.intercept).iter().map(|category| category.levels.len()).sum();
    let width = levels.plain.checked_add(features + usize::from(how.intercept));
    let dim = width.and_then(|width| width.checked_mul(outputs)).filter(|dim| (least..=MAX_COMPONENTS as usize).contains(dim));
    dim.ok_or_else(|| {
        let what = format!("{} columns and {features} levels of categories, for {outputs} outputs", levels.plain);
        Error::data("data", what, format!("at most {MAX_COMPONENTS} components of a model, and at least one"))
    })
}
