//! The picture of the coefficients of a fit: a dot for each, with its interval if there is inference.

use fedsa::error::quoted;
use fedsa_figure::{Chart, Panel, PlottedCurve, Style};
use serde_json::Value as Json;

use crate::numbers;
use crate::picture::Picture;

/// The largest number of rows in the picture.
const MAX_ROWS: usize = 40;

/// A row: name, estimate, and interval if known.
type Row = (String, f64, Option<(f64, f64)>);

/// The row of a coefficient in `summary.json`; `None` if its estimate is not a finite number.
fn row(one: &Json) -> Option<Row> {
    let name = one["name"].as_str()?;
    let name = one["class"].as_str().map_or(name.to_string(), |class| format!("{}: {name}", quoted(class)));
    Some((name, one["estimate"].as_f64()?, one["low"].as_f64().zip(one["high"].as_f64())))
}

/// The picture of the coefficients in a fit's `summary.json`: the first ones if there are many. `None` if it lists none, for example
/// because there are too many.
pub(crate) fn picture(summary: &Json) -> Option<Picture> {
    let inference = summary.get("inference");
    let listed = inference.unwrap_or(&summary["fit"])["coefficients"].as_array()?;
    let mut rows: Vec<Row> = listed.iter().filter_map(row).collect();
    let all = rows.len();
    rows.truncate(MAX_ROWS);
    if rows.is_empty() {
        return None;
    }
    // The first coefficient is at the top: the axis counts rows from the bottom.
    rows.reverse();
    let caption = match inference {
        Some(found) => format!(
            "Coefficients of {} with intervals of the normal distribution at {}, by the covariance {}; n = {}.",
            found["family"].as_str().unwrap_or_default(),
            numbers::percent(found["level"].as_f64().unwrap_or_default()),
            found["covariance"].as_str().unwrap_or_default(),
            numbers::thousands(found["n"].as_f64().unwrap_or_default())
        ),
        None => "Coefficients of the columns of the data; a fit with inference has intervals.".into(),
    };
    let notes = (all > rows.len()).then(|| format!("Shown: {} of {all} coefficients, the first ones.", rows.len()));
    Some(Picture::Chart(Chart {
        title: "Coefficients".into(),
        panels: vec![panel(&rows)],
        caption,
        notes: notes.into_iter().collect(),
        ..Chart::default()
    }))
}

/// A panel with a dot and a bar for each row, and a line at zero.
fn panel(rows: &[Row]) -> Panel {
    let line = |x: Vec<f64>, y: Vec<f64>, style| PlottedCurve { x, y, style, ..PlottedCurve::default() };
    let zero = line(vec![0.0, 0.0], vec![-0.5, rows.len() as f64 - 0.5], Style::Reference);
    // A NaN ends a line, so that one curve draws the bars of all rows.
    let ends = rows.iter().enumerate().filter_map(|(row, (_, _, interval))| Some((row as f64, (*interval)?)));
    let (x, y): (Vec<f64>, Vec<f64>) = ends.flat_map(|(row, (low, high))| [(low, row), (high, row), (f64::NAN, row)]).unzip();
    let (dots, at) = rows.iter().enumerate().map(|(row, (_, x, _))| (*x, row as f64)).unzip();
    Panel {
        x_label: "coefficient".into(),
        y_names: rows.iter().map(|(name, ..)| name.clone()).collect(),
        curves: vec![zero, line(x, y, Style::Line), line(dots, at, Style::Points)],
        ..Panel::default()
    }
}
