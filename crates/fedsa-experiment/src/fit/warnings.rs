//! What is odd about data that are fitted, in sentences.

use fedsa::error::quoted;
use fedsa::problem::dataset::Rows;
use fedsa::problem::preparation::Prepared;
use fedsa::problem::preparation::partition::Partition;

use super::settings::FitSettings;
use crate::numbers::{number, typed};

/// Columns whose sizes differ by more than this are of very different scales.
const UNLIKE: f64 = 1e4;
/// Above this ratio of mean and deviation a standardised column loses as many digits in predictions.
const FAR: f64 = 1e9;
/// A category with a level for more than this share of the rows is no category.
const MOST_LEVELS: f64 = 0.5;

/// The warnings.
pub(super) fn of(prepared: &Prepared, settings: &FitSettings) -> Vec<String> {
    let mut all = removed_by_ridge(prepared, settings);
    all.extend(far_from_zero(prepared));
    let rows = prepared.train.rows.len();
    for category in &prepared.categories {
        let levels = category.levels.len() + usize::from(category.reference.is_some());
        if levels as f64 > MOST_LEVELS * rows as f64 && levels > 2 {
            let column = quoted(&category.column);
            all.push(format!("the column `{column}` has {levels} levels in {rows} rows, a coefficient each: `drop` leaves the column out"));
        }
    }
    if settings.partition == Partition::ByColumn && prepared.weights.len() == rows && rows > 1 {
        let group = quoted(settings.group.as_deref().unwrap_or_default());
        all.push(format!("every row has another value of `{group}`, and is an agent of its own"));
    }
    all
}

/// The largest absolute value of each feature that is a column, with its name.
fn sizes(prepared: &Prepared) -> Vec<(String, f64)> {
    if prepared.transform.components.is_some() {
        return Vec::new();
    }
    let names = prepared.transform.columns.iter().map(quoted).collect::<Vec<_>>();
    let sizes = prepared.train.column_sizes();
    names.into_iter().zip(sizes).filter(|(_, size)| *size > 0.0).collect()
}

/// Columns whose numbers are so small that the ridge leaves nothing of their coefficients.
fn removed_by_ridge(prepared: &Prepared, settings: &FitSettings) -> Vec<String> {
    // Of sparse rows many columns have few small numbers, which a ridge is for.
    if matches!(prepared.train.rows, Rows::Sparse { .. }) {
        return Vec::new();
    }
    let ridge = settings.mu();
    let small: Vec<(String, f64)> = sizes(prepared).into_iter().filter(|(_, size)| size * size < ridge).collect();
    let Some((name, size)) = small.first() else { return Vec::new() };
    let more = if small.len() > 1 { format!(", and {} more columns", small.len() - 1) } else { String::new() };
    let what = format!("the ridge {} all but removes the column `{name}`, whose numbers are at most {}{more}", typed(ridge), number(*size));
    vec![format!("{what}: `standardise` brings columns to one scale, or take a smaller `ridge`")]
}

/// Columns that were standardised and vary by little beside their mean.
fn far_from_zero(prepared: &Prepared) -> Option<String> {
    let transform = &prepared.transform;
    let mut all = transform.columns.iter().zip(&transform.means).zip(&transform.deviations);
    let ((name, mean), deviation) = all.find(|((_, mean), deviation)| mean.abs() > FAR * **deviation)?;
    let (name, mean) = (quoted(&name), mean * transform.divide_by);
    let deviation = deviation * transform.divide_by;
    let digits = (mean / deviation).abs().log10().floor();
    Some(format!(
        "the column `{name}` varies by {} around {}: predictions lose some {digits} of 16 digits; subtract a number from it",
        number(deviation),
        number(mean)
    ))
}

/// That columns are of very different scales, if they are.
pub fn unlike_scales(prepared: &Prepared) -> Option<String> {
    let all = sizes(prepared);
    let least = all.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = all.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (most.1 > UNLIKE * least.1).then(|| {
        format!(
            "columns are of very different scales, up to {} in `{}` and up to {} in `{}`: `standardise` brings them to one",
            number(least.1),
            least.0,
            number(most.1),
            most.0
        )
    })
}
