//! Recorded rounds as columns, and the data of the page's curves.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fedsa::error::{Error, Result};
use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use fedsa_data::trace::{Trace, TraceColumn};
use serde_json::{Map, Value as Json, json};

use crate::run::ReportedRun;

/// The recorded rounds of a run.
#[derive(Default)]
pub struct Table {
    /// A series for each method, point and seed, in the order of the run.
    pub series: Vec<Series>,
}

/// A seed of a method at a point.
pub struct Series {
    /// The method's label.
    pub method: String,
    /// The point's label; empty without sweeps.
    pub point: String,
    /// The seed.
    pub seed: u64,
    /// The counts of [`COUNTS`] and then the metrics of [`METRICS`], a number for each recorded round; not a number where it is not known.
    columns: Vec<Vec<f64>>,
}

impl Table {
    /// Adds a recorded round.
    fn push(&mut self, method: &str, point: &str, seed: u64, row: impl Fn(usize) -> f64) {
        let is_same = |last: &Series| last.method == method && last.point == point && last.seed == seed;
        // Rows of a run that goes on come from several series in turn.
        let at = match self.series.last() {
            Some(last) if is_same(last) => Some(self.series.len() - 1),
            _ => self.series.iter().position(is_same),
        };
        let at = at.unwrap_or_else(|| {
            let columns = vec![Vec::new(); COUNTS.len() + METRICS.len()];
            self.series.push(Series { method: method.into(), point: point.into(), seed, columns });
            self.series.len() - 1
        });
        self.series[at].columns.iter_mut().enumerate().for_each(|(j, column)| column.push(row(j)));
    }

    /// The number of rounds that are recorded.
    pub fn rows(&self) -> usize {
        self.series.iter().map(|series| series.columns[0].len()).sum()
    }
}

/// The names of the columns of a series.
fn names() -> impl Iterator<Item = &'static str> {
    COUNTS.iter().map(|count| count.name).chain(METRICS.iter().map(|metric| metric.name))
}

/// The table of `trace.parquet`.
///
/// # Errors
/// When columns are missing.
pub fn from_trace(trace: &Trace, path: &Path) -> Result<Table> {
    let missing = |name: &str| {
        let what = format!("there is no column `{name}`");
        Error::format(path.display().to_string(), what, "the trace of a run of this version of fedsa")
    };
    let (Some(TraceColumn::Str(methods)), Some(TraceColumn::Str(points))) = (trace.column("method"), trace.column("point")) else {
        return Err(missing("method"));
    };
    let Some(TraceColumn::I64(seeds)) = trace.column("seed") else { return Err(missing("seed")) };
    let columns: Vec<&TraceColumn> = names().map(|name| trace.column(name).ok_or_else(|| missing(name))).collect::<Result<_>>()?;
    let mut table = Table::default();
    for i in 0..trace.rows() {
        table.push(&methods[i], &points[i], seeds[i].cast_unsigned(), |j| match columns[j] {
            TraceColumn::I64(values) => values[i] as f64,
            TraceColumn::F64(values) => values[i],
            TraceColumn::OptF64(values) => values[i].unwrap_or(f64::NAN),
            TraceColumn::Str(_) | TraceColumn::OptStr(_) => f64::NAN,
        });
    }
    Ok(table)
}

/// The table of `trace.jsonl`, to which a run adds lines while it goes: a last line that is cut off is left out.
pub fn from_lines(text: &str) -> Table {
    let mut table = Table::default();
    for line in text.lines() {
        let Ok(row) = serde_json::from_str::<Map<String, Json>>(line) else { continue };
        let text = |name: &str| row.get(name).and_then(Json::as_str);
        let (Some(method), Some(point), Some(seed)) = (text("method"), text("point"), row.get("seed").and_then(Json::as_u64)) else {
            continue;
        };
        let values: Vec<f64> = names().map(|name| row.get(name).and_then(Json::as_f64).unwrap_or(f64::NAN)).collect();
        table.push(method, point, seed, |j| values[j]);
    }
    table
}

/// The most numbers that the curves of a page may have.
const MOST_NUMBERS: usize = 4_000_000;

/// Columns of numbers, each different one once, as the page reads them: 64-bit numbers, in base64.
#[derive(Default)]
struct Arrays {
    of: HashMap<Vec<u64>, usize>,
    texts: Vec<String>,
    numbers: usize,
}

impl Arrays {
    fn add(&mut self, column: &[f64]) -> usize {
        let bits: Vec<u64> = column.iter().map(|x| x.to_bits()).collect();
        if let Some(at) = self.of.get(&bits) {
            return *at;
        }
        let bytes: Vec<u8> = bits.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.texts.push(STANDARD.encode(bytes));
        self.numbers += column.len();
        self.of.insert(bits, self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// The data of the page's curves, and how many series they leave out.
pub struct Curves {
    /// What `assets/report.js` reads.
    pub json: Json,
    /// The series that are there.
    pub shown: usize,
    /// The series of all runs.
    pub all: usize,
}

/// The curves of runs.
pub fn curves(runs: &[ReportedRun]) -> Curves {
    let all: Vec<(usize, &Series)> = runs
        .iter()
        .enumerate()
        .flat_map(|(r, run)| run.table.iter().flat_map(move |table| table.series.iter().map(move |s| (r, s))))
        .collect();
    // A column that is nowhere, or 0 everywhere, is nothing to look at.
    let is_there = |j: usize| all.iter().any(|(_, series)| series.columns[j].iter().any(|x| x.is_finite() && *x != 0.0));
    let there: Vec<usize> = (0..COUNTS.len() + METRICS.len()).filter(|j| is_there(*j)).collect();
    let (axes, metrics): (Vec<usize>, Vec<usize>) = there.into_iter().partition(|j| *j < COUNTS.len());
    let mut arrays = Arrays::default();
    let mut series = Vec::new();
    for (run, of) in &all {
        if arrays.numbers > MOST_NUMBERS {
            break;
        }
        let x: Vec<usize> = axes.iter().map(|j| arrays.add(&of.columns[*j])).collect();
        let y: Vec<usize> = metrics.iter().map(|j| arrays.add(&of.columns[*j])).collect();
        series.push(json!({ "run": run, "method": of.method, "point": of.point, "seed": of.seed, "x": x, "y": y }));
    }
    let axis = |j: &usize| json!({ "key": COUNTS[*j].name, "label": COUNTS[*j].axis });
    let metric = |j: &usize| json!({ "key": METRICS[*j - COUNTS.len()].name, "label": METRICS[*j - COUNTS.len()].axis });
    let shown = series.len();
    let json = json!({
        "axes": axes.iter().map(axis).collect::<Vec<_>>(),
        "metrics": metrics.iter().map(metric).collect::<Vec<_>>(),
        "arrays": arrays.texts,
        "runs": runs.iter().map(|run| run.name.clone()).collect::<Vec<_>>(),
        "series": series,
        "levels": levels(runs),
    });
    Curves { json, shown, all: all.len() }
}

/// The predicted quantities that are a level of the mean-square error, with their names.
const LEVELS: [(&str, &str); 3] = [("floor", "predicted floor"), ("bias2", "predicted squared bias"), ("noise", "predicted noise")];

/// The predicted levels of all runs.
fn levels(runs: &[ReportedRun]) -> Vec<Json> {
    let mut out = Vec::new();
    for (r, run) in runs.iter().enumerate() {
        for result in run.summary["results"].as_array().into_iter().flatten() {
            for (key, name) in LEVELS {
                let known = &result["predicted_accuracy"][key]["status"];
                if let Some(y) = result["predicted"][key].as_f64().filter(|y| *y > 0.0) {
                    let name = known.as_str().map_or(name.to_string(), |known| format!("{name}, {}", known.replace('_', " ")));
                    out.push(
                        json!({ "run": r, "method": result["method"], "point": result["point"], "metric": "mse", "name": name, "y": y }),
                    );
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_series_in_turn_come_together_and_a_cut_line_is_left_out() {
        let line =
            |seed: u64, round: u64, mse: f64| json!({ "method": "A", "point": "", "seed": seed, "round": round, "mse": mse }).to_string();
        let text = [line(0, 0, 1.0), line(1, 0, 2.0), line(0, 5, 0.5), line(1, 5, 0.25)[..9].to_string()].join("\n");
        let table = from_lines(&text);
        assert_eq!((table.series.len(), table.rows()), (2, 3));
        let mse = names().position(|name| name == "mse").unwrap();
        assert_eq!(table.series[0].columns[mse], [1.0, 0.5]);
        assert_eq!(table.series[1].columns[0], [0.0]);
        assert_eq!(from_lines("").rows(), 0);
        assert_eq!(from_lines("{}\n[]\nnull\n").rows(), 0, "lines of another kind");
    }

    #[test]
    fn equal_columns_are_there_once_with_all_their_digits() {
        let mut arrays = Arrays::default();
        let x = [0.1 + 0.2, f64::MIN_POSITIVE, f64::NAN];
        assert_eq!((arrays.add(&x), arrays.add(&[1.0]), arrays.add(&x)), (0, 1, 0));
        let bytes = STANDARD.decode(&arrays.texts[0]).unwrap();
        let back: Vec<f64> = bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        assert!(back[0].to_bits() == x[0].to_bits() && back[1] == x[1] && back[2].is_nan());
    }
}
