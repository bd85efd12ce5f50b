//! Recorded rounds as columns: from `trace.parquet`, and from `trace.jsonl` of an active run.

use std::path::Path;

use fedsa::error::{Error, Result};
use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use fedsa_data::trace::{Trace, TraceColumn};
use fedsa_experiment::axis::Axis;
use serde_json::{Map, Value as Json};

/// The number of the first columns of a series, which serve as axes: counts, and seconds.
pub const AXES: usize = COUNTS.len() + 1;

/// The recorded rounds of a run.
#[derive(Default)]
pub struct RecordedRounds {
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
    /// The counts of [`COUNTS`], seconds, and the metrics of [`METRICS`], one number per recorded round; NaN if unknown.
    pub columns: Vec<Vec<f64>>,
}

impl RecordedRounds {
    /// Adds a recorded round.
    fn push(&mut self, method: &str, point: &str, seed: u64, row: impl Fn(usize) -> f64) {
        let is_same = |last: &Series| last.method == method && last.point == point && last.seed == seed;
        // Rows of an active run come from several series in turn.
        let at = match self.series.last() {
            Some(last) if is_same(last) => Some(self.series.len() - 1),
            _ => self.series.iter().position(is_same),
        };
        let at = at.unwrap_or_else(|| {
            let columns = vec![Vec::new(); AXES + METRICS.len()];
            self.series.push(Series { method: method.into(), point: point.into(), seed, columns });
            self.series.len() - 1
        });
        self.series[at].columns.iter_mut().enumerate().for_each(|(j, column)| column.push(row(j)));
    }

    /// The number of recorded rounds.
    pub fn rows(&self) -> usize {
        self.series.iter().map(|series| series.columns[0].len()).sum()
    }
}

/// The names of the columns of a series.
fn names() -> impl Iterator<Item = &'static str> {
    COUNTS.iter().map(|count| count.name).chain([Axis::SECONDS]).chain(METRICS.iter().map(|metric| metric.name))
}

/// The table of `trace.parquet`.
///
/// # Errors
/// When columns are missing.
pub fn from_trace(trace: &Trace, path: &Path) -> Result<RecordedRounds> {
    let missing = |name: &str| {
        let what = format!("there is no column `{name}`");
        Error::format(path.display().to_string(), what, "the trace of a run of this version of fedsa")
    };
    let (Some(TraceColumn::Str(methods)), Some(TraceColumn::Str(points))) = (trace.column("method"), trace.column("point")) else {
        return Err(missing("method"));
    };
    let Some(TraceColumn::I64(seeds)) = trace.column("seed") else { return Err(missing("seed")) };
    // Only federations of machines have seconds; a coordinate of this name has another type.
    let is_there = |name: &str| name != Axis::SECONDS || matches!(trace.column(name), Some(TraceColumn::F64(_)));
    let column = |name| if is_there(name) { trace.column(name).ok_or_else(|| missing(name)).map(Some) } else { Ok(None) };
    let columns: Vec<Option<&TraceColumn>> = names().map(column).collect::<Result<_>>()?;
    let mut table = RecordedRounds::default();
    for i in 0..trace.rows() {
        table.push(&methods[i], &points[i], seeds[i].cast_unsigned(), |j| match columns[j] {
            Some(TraceColumn::I64(values)) => values[i] as f64,
            Some(TraceColumn::F64(values)) => values[i],
            Some(TraceColumn::OptF64(values)) => values[i].unwrap_or(f64::NAN),
            Some(TraceColumn::Str(_) | TraceColumn::OptStr(_)) | None => f64::NAN,
        });
    }
    Ok(table)
}

/// The table of `trace.jsonl` of an active run; an incomplete last line is skipped.
pub fn from_lines(text: &str) -> RecordedRounds {
    let mut table = RecordedRounds::default();
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A coordinate may also be called seconds, and is no axis.
    #[test]
    fn seconds_are_an_axis_where_a_trace_has_them() {
        let text = |text: &str| TraceColumn::Str(vec![text.into(); 2]);
        let of = |seconds: Option<TraceColumn>| {
            let columns = [("method", text("A")), ("point", text("")), ("seed", TraceColumn::I64(vec![0; 2]))]
                .map(|(name, of)| (name.to_string(), of));
            let numbers = names().filter(|name| *name != Axis::SECONDS).map(|name| (name.to_string(), TraceColumn::I64(vec![1, 2])));
            let seconds = seconds.map(|seconds| (Axis::SECONDS.to_string(), seconds));
            let trace = Trace::new(columns.into_iter().chain(numbers).chain(seconds).collect()).unwrap();
            let mut table = from_trace(&trace, Path::new("trace.parquet")).unwrap();
            table.series.remove(0).columns.remove(AXES - 1)
        };
        assert_eq!(of(Some(TraceColumn::F64(vec![0.0, 2.5]))), [0.0, 2.5]);
        for none in [None, Some(TraceColumn::OptF64(vec![Some(0.0), Some(2.5)])), Some(TraceColumn::I64(vec![0, 2]))] {
            assert!(of(none).iter().all(|x| x.is_nan()));
        }
    }

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
}
