//! Notes for readers of a fit.

use fedsa::error::in_quotes;
use fedsa::note::{Note, NoteCode};
use fedsa_problems::rows::dataset::Rows;
use fedsa_problems::rows::glm::family::ModelFamily;
use fedsa_problems::rows::preparation::Prepared;
use fedsa_problems::rows::preparation::partition::Partition;

use super::settings::FitSettings;
use crate::numbers::{self, number, typed};
use crate::outcome::Outcome;

/// Columns whose sizes differ by more than this factor have very different scales.
const UNLIKE: f64 = 1e4;
/// Above this ratio of mean to deviation, predictions from a standardised column lose as many digits.
const FAR: f64 = 1e9;
/// A column with a level for more than this share of the rows is no category.
const MAX_LEVELS: f64 = 0.5;

/// The notes before the runs. `unreachable` is the requested gradient norm, if rounding errors are larger.
pub(super) fn of(prepared: &Prepared, settings: &FitSettings, unreachable: Option<f64>) -> Vec<Note> {
    let mut all = prepared.notes.clone();
    all.extend(removed_by_ridge(prepared, settings));
    all.extend(far_from_zero(prepared));
    if prepared.has_bytes() {
        let what =
            "features are whole numbers from 0 to 255, as of pixels: `divide_by = 255` and `pca = DIM` make fits of such data faster";
        all.push(Note::new(NoteCode::FeaturesBytes, what));
    }
    all.extend(fractional_counts(prepared));
    all.extend(unreachable.map(|asked| below_rounding(prepared, settings, asked)));
    let rows = prepared.train.rows.len();
    for category in &prepared.categories {
        let levels = category.levels.len() + usize::from(category.reference.is_some());
        if levels as f64 > MAX_LEVELS * rows as f64 && levels > 2 {
            let column = in_quotes(&category.column);
            let what = format!("the column {column} has {levels} levels in {rows} rows, a coefficient each: `drop` leaves the column out");
            all.push(Note::new(NoteCode::CategoryManyLevels, what));
        }
    }
    if settings.dealing() == Partition::ByColumn && prepared.weights.len() == rows && rows > 1 {
        let group = in_quotes(settings.group.as_deref().unwrap_or_default());
        let what = format!("every row has another value of {group}, and is an agent of its own");
        all.push(Note::new(NoteCode::AgentsOneRow, what));
    }
    all
}

/// The notes after the run of the method that gives the weights.
pub(super) fn after(prepared: &Prepared, settings: &FitSettings, outcome: Outcome, rounds: u64) -> Vec<Note> {
    let mut all = Vec::new();
    // With target 0, a method that makes no rounds was not tried.
    if rounds == 0 && matches!(outcome, Outcome::Converged) && has_targets(prepared) {
        let what = format!(
            "the gradient at zero weights meets `tol = {}` already, and the weights stay 0: features or targets are very small: \
             `standardise`, targets in larger units, or a smaller `tol`",
            typed(settings.tol)
        );
        all.push(Note::new(NoteCode::TolMetAtZero, what));
    }
    if !matches!(outcome, Outcome::Converged | Outcome::Completed) {
        all.extend(unlike_scales(prepared).map(|what| Note::new(NoteCode::ColumnsUnlikeScales, what)));
    }
    all
}

/// Whether any target differs from 0; otherwise zero weights are right.
fn has_targets(prepared: &Prepared) -> bool {
    prepared.train.targets.iter().any(|target| *target != 0.0)
}

/// The note that counts are not whole numbers, as if they were rates.
fn fractional_counts(prepared: &Prepared) -> Option<Note> {
    let is_of_counts = matches!(prepared.train.family, ModelFamily::Poisson | ModelFamily::NegativeBinomial { .. });
    let targets = &prepared.train.targets;
    let fractional = targets.iter().filter(|target| target.fract() != 0.0).count();
    let row = targets.iter().find(|target| target.fract() != 0.0).filter(|_| is_of_counts)?;
    let (n, family) = (numbers::thousands(fractional as f64), prepared.train.family.name());
    let what = format!(
        "{n} of {} targets of the {family} model are no whole numbers, such as {}: it is a model of counts. Of rates, fit the counts with the \
         logarithm of the exposure as `offset`; `inference = sandwich` is right for other targets too",
        numbers::thousands(targets.len() as f64),
        typed(*row)
    );
    Some(Note::new(NoteCode::TargetsFractional, what))
}

/// The note that the target of the gradient norm is below its rounding errors.
fn below_rounding(prepared: &Prepared, settings: &FitSettings, asked: f64) -> Note {
    let scales = unlike_scales(prepared).map_or(String::new(), |scales| format!("; {scales}"));
    let (asked, tol) = (typed(asked), typed(settings.tol));
    let what = format!("`tol = {asked}` is below the rounding error of gradients of these data: the run stops at {tol}{scales}");
    Note::new(NoteCode::TolBelowRounding, what)
}

/// The largest absolute value of each feature that is a column, with its name.
fn sizes(prepared: &Prepared) -> Vec<(String, f64)> {
    if prepared.transform.components.is_some() {
        return Vec::new();
    }
    let names = prepared.transform.columns.iter().map(in_quotes).collect::<Vec<_>>();
    let sizes = prepared.train.column_sizes();
    names.into_iter().zip(sizes).filter(|(_, size)| *size > 0.0).collect()
}

/// Columns with numbers so small that the ridge removes their coefficients.
fn removed_by_ridge(prepared: &Prepared, settings: &FitSettings) -> Option<Note> {
    // Many columns of sparse rows have few small numbers, for which the ridge is meant.
    if matches!(prepared.train.rows, Rows::Sparse { .. }) {
        return None;
    }
    let ridge = settings.mu();
    let small: Vec<(String, f64)> = sizes(prepared).into_iter().filter(|(_, size)| size * size < ridge).collect();
    let (name, size) = small.first()?;
    let more = if small.len() > 1 { format!(", and {} more columns", small.len() - 1) } else { String::new() };
    let what = format!("the ridge {} all but removes the column {name}, whose numbers are at most {}{more}", typed(ridge), number(*size));
    let what = format!("{what}: `standardise` brings columns to one scale, or take a smaller `ridge`");
    Some(Note::new(NoteCode::ColumnsRemovedByRidge, what))
}

/// Standardised columns that vary little relative to their mean.
fn far_from_zero(prepared: &Prepared) -> Option<Note> {
    let transform = &prepared.transform;
    let mut all = transform.columns.iter().zip(&transform.means).zip(&transform.deviations);
    let ((name, mean), deviation) = all.find(|((_, mean), deviation)| mean.abs() > FAR * **deviation)?;
    let (name, mean) = (in_quotes(&name), mean * transform.divide_by);
    let deviation = deviation * transform.divide_by;
    let digits = (mean / deviation).abs().log10().floor();
    let what = format!(
        "the column {name} varies by {} around {}: predictions lose some {digits} of 16 digits; subtract a number from it",
        number(deviation),
        number(mean)
    );
    Some(Note::new(NoteCode::ColumnsFarFromZero, what))
}

/// Columns of very different scales, if there are any.
fn unlike_scales(prepared: &Prepared) -> Option<String> {
    let all = sizes(prepared);
    let least = all.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = all.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 > UNLIKE * least.1).then(|| {
        format!(
            "columns are of very different scales, up to {} in {} and up to {} in {}: `standardise` brings them to one",
            number(least.1),
            least.0,
            number(most.1),
            most.0
        )
    })
}
