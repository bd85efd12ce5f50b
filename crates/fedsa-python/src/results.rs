//! Results of runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fedsa::error::Error;
use fedsa::note::NoteCode;
use fedsa::problem::arrays::Arrays;
use fedsa_data::npz;
use fedsa_data::trace;
use fedsa_experiment::config::Document;
use fedsa_experiment::config::document::{Caller, Words};
use fedsa_experiment::finished::FinishedRun;
use fedsa_experiment::made::Changes;
use fedsa_experiment::picture::DrawnFigure;
use fedsa_experiment::redraw::redraw;
use fedsa_experiment::run::{Ran, write_finished as write_finished_into};
use fedsa_experiment::summary::{Entry, Summary};
use fedsa_experiment::{IfExists, compare};
use fedsa_figure::{Chart, Format, Panel, PlottedCurve, Style};
use fedsa_report::ReportOptions;
use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::{Value as Json, json};

use crate::arrow::Table;
use crate::convert;
use crate::engine;
use crate::errors::OrRaise;
use crate::held::readable_kinds;

/// The results of a run in this process.
#[pyclass(frozen, module = "fedsa._fedsa", name = "Ran")]
pub struct RanResults(pub Ran);

#[pymethods]
impl RanResults {
    /// The text of `summary.json`.
    fn summary_json(&self, py: Python<'_>) -> PyResult<String> {
        engine::brief(py, || Ok(self.0.summary_json().to_string()))
    }

    /// The report, as JSON.
    fn report_json(&self, py: Python<'_>) -> PyResult<String> {
        engine::brief(py, || Ok(report(&self.0.summary()).to_string()))
    }

    /// The text of `config.toml`.
    fn config(&self) -> &str {
        self.0.config()
    }

    /// A row for each recorded round of each run.
    fn trace(&self, py: Python<'_>) -> PyResult<Table> {
        Table::of(&engine::brief(py, || self.0.trace())?)
    }

    /// The arrays of `theta.npz`.
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        arrays(py, &engine::brief(py, || self.0.outputs())?)
    }

    /// The arrays of `iterates.npz`; none if iterates are not kept.
    fn iterates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        arrays(py, &engine::brief(py, || self.0.iterates())?)
    }

    /// The figure with changes of these keys of `[figure]`.
    fn figure(&self, py: Python<'_>, keys: &Bound<'_, PyDict>) -> PyResult<Figure> {
        let changes = figure_changes(keys)?;
        engine::brief(py, || self.0.drawn(&changes)).map(Figure)
    }

    /// The files of a run with their contents.
    fn files<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let files = engine::brief(py, || {
            let mut files = vec![("config.toml".to_string(), self.0.config().as_bytes().to_vec())];
            files.extend(self.0.files(&self.0.summary_json())?);
            Ok(files)
        })?;
        let out = PyDict::new(py);
        for (name, bytes) in files {
            out.set_item(name, PyBytes::new(py, &bytes))?;
        }
        Ok(out)
    }

    /// Writes a run without a folder into one.
    fn write_into(&self, py: Python<'_>, folder: PathBuf, overwrite: bool) -> PyResult<()> {
        let if_exists = if overwrite { IfExists::Overwrite } else { IfExists::Refuse };
        engine::brief(py, || self.0.write_into(&folder, if_exists, Vec::new()))
    }
}

/// A figure.
#[pyclass(frozen, module = "fedsa._fedsa", name = "Figure")]
pub struct Figure(pub DrawnFigure);

#[pymethods]
impl Figure {
    /// The bytes of a file of the format: `svg`, `png` or `pdf`.
    fn render<'py>(&self, py: Python<'py>, format: &str) -> PyResult<Bound<'py, PyBytes>> {
        let known = Format::ALL.into_iter().find(|known| known.file_name("x") == format!("x.{format}"));
        let unknown = || Error::new("format", format!("`{format}` is not accepted"), "svg, png or pdf");
        let format = known.ok_or_else(unknown).or_raise(py)?;
        let bytes = engine::brief(py, || Ok(self.0.render(format)))?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// The number that the absolute value of a variable of Student's t exceeds with probability 1 - level.
#[pyfunction]
pub fn t_quantile(level: f64, freedom: f64) -> f64 {
    fedsa_evaluate::policy_value::t_quantile(level, freedom)
}

/// A line of a figure: its label, x, y, and the edges of its band.
type Line = (String, Vec<f64>, Vec<f64>, Option<(Vec<f64>, Vec<f64>)>);

/// A figure of lines over counts. `texts` are the title, the names of the axes, the caption, and notes.
#[pyfunction]
pub fn lines_figure(texts: (String, String, String, String, Vec<String>), lines: Vec<Line>) -> Figure {
    let (title, x_label, y_label, caption, notes) = texts;
    let curve = |(color, (label, x, y, band)): (usize, Line)| {
        let style = Style::LinePoints;
        PlottedCurve { label, color, x, y, band, style }
    };
    let curves = lines.into_iter().enumerate().map(curve).collect();
    let panel = Panel { x_label, y_label, x_whole: true, curves, ..Panel::default() };
    Figure(DrawnFigure::of_chart(Chart { title, panels: vec![panel], caption, notes, ..Chart::default() }, "lines"))
}

/// The figure of the finished run in a folder.
#[pyfunction]
pub fn redraw_folder(py: Python<'_>, folder: PathBuf, keys: &Bound<'_, PyDict>) -> PyResult<Figure> {
    let changes = figure_changes(keys)?;
    engine::call(py, None, None, |_, _| Ok(redraw(&folder, &changes, &readable_kinds())?.drawn())).map(Figure)
}

/// Writes the files of a finished run, by their names, into a folder.
#[pyfunction]
pub fn write_finished(py: Python<'_>, folder: PathBuf, files: BTreeMap<String, Vec<u8>>, overwrite: bool) -> PyResult<()> {
    let if_exists = if overwrite { IfExists::Overwrite } else { IfExists::Refuse };
    engine::brief(py, || write_finished_into(&folder, if_exists, files.into_iter().collect()))
}

/// Refuses a folder without a finished run.
#[pyfunction]
pub fn require_finished(py: Python<'_>, folder: PathBuf) -> PyResult<()> {
    engine::brief(py, || FinishedRun::read(&folder).map(|_| ()))
}

/// The table of a file `trace.parquet`.
#[pyfunction]
pub fn read_trace(py: Python<'_>, bytes: &[u8]) -> PyResult<Table> {
    let bytes = bytes.to_vec();
    Table::of(&engine::brief(py, || trace::from_bytes(bytes))?)
}

/// The arrays of a file `theta.npz`.
#[pyfunction]
pub fn read_arrays<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyDict>> {
    let bytes = bytes.to_vec();
    arrays(py, &engine::brief(py, || npz::from_bytes(&bytes))?)
}

/// The comparison of two finished runs, as JSON.
#[pyfunction]
pub fn compare_folders(py: Python<'_>, a: PathBuf, b: PathBuf) -> PyResult<String> {
    engine::brief(py, || Ok(compare::compare(&a, &b)?.json().to_string()))
}

/// A page of HTML on the runs in folders. `names_folders` says whether it names them; for copies it does not.
#[pyfunction]
pub fn report_page(py: Python<'_>, folders: Vec<PathBuf>, title: Option<String>, names_folders: bool) -> PyResult<String> {
    let options = ReportOptions::default().with_title(title).with_folders(names_folders);
    engine::brief(py, || Ok(fedsa_report::report(&folders, &options)?.html))
}

/// Whether a file is a report that fedsa wrote.
#[pyfunction]
pub fn is_report(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    engine::brief(py, || Ok(fedsa_report::is_report(&path)))
}

/// Changes of keys of `[figure]`.
fn figure_changes(keys: &Bound<'_, PyDict>) -> PyResult<Changes> {
    let keys = convert::table(keys)?;
    Ok(Changes::new(move |document: &mut Document| {
        for (key, value) in &keys {
            let by = Caller::new(format!("plot({key}=..)"), Words::default());
            let key = if key == "title" { key.clone() } else { format!("figure.{key}") };
            document.set_value(&key, value, by)?;
        }
        Ok(())
    }))
}

fn arrays<'py>(py: Python<'py>, arrays: &Arrays) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, array) in arrays.iter() {
        out.set_item(name, PyArray1::from_slice(py, array.data()).reshape(array.shape().to_vec())?)?;
    }
    Ok(out)
}

/// The kinds of notes: codes, severities, and subjects.
#[pyfunction]
pub fn note_kinds() -> Vec<(&'static str, &'static str, &'static str)> {
    NoteCode::ALL.iter().map(|code| (code.name(), code.severity().name(), code.about())).collect()
}

/// The report as data, without notes, which the summary has.
pub fn report(summary: &Summary) -> Json {
    json!({
        "id": summary.id,
        "seconds": summary.seconds,
        "quick": summary.quick,
        "entries": summary.entries.iter().map(entry).collect::<Vec<_>>(),
        "tables": summary.tables.iter().map(|table| json!({ "lines": table.lines(), "notes": table.notes })).collect::<Vec<_>>(),
        "checks": summary.checks.iter().map(|check| check.line(summary.quick)).collect::<Vec<_>>(),
    })
}

fn entry(entry: &Entry) -> Json {
    let missed = entry.outcome.and_then(|outcome| outcome.missed());
    json!({
        "method": entry.method,
        "point": entry.point,
        "seeds": entry.seeds,
        "outcome": entry.outcome.map(|outcome| outcome.name()),
        "as_expected": entry.as_expected,
        "is_note": entry.is_note,
        "reason": entry.reason,
        "help": entry.remedy,
        "missed": missed.map(|missed| json!({ "metric": missed.metric, "value": missed.value, "target": missed.target })),
        "cost": entry.cost.map(|cost| json!({ "rounds": cost.rounds, "exchanges": cost.exchanges, "bits": cost.bits, "seconds": cost.seconds })),
        "floor": entry.floor.map(|floor| json!({ "mean": floor.mean, "se": floor.se })),
        "falling": entry.falling.map(|falling| json!({ "end": falling.end, "share": falling.share, "predicted": falling.predicted })),
    })
}
