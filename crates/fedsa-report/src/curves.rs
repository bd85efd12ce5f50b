//! The data of the page's curves.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use fedsa_experiment::axis::Axis;
use fedsa_experiment::theory::TheoryReport;
use serde_json::{Value as Json, json};

use crate::rounds::{AXES, Series};
use crate::run::ReportedRun;
use crate::theory;
use crate::thin::{self, Group};

/// The largest number of series (seeds of methods at points) with curves. Tables and maps show larger sweeps better.
const MAX_SERIES: usize = 400;
/// The inverse of the golden ratio; the fractional parts of its multiples are evenly spread.
const GOLDEN: f64 = 0.618_033_988_749_894_9;

/// Columns of numbers, each distinct one once, as the page reads them: 64-bit numbers in base64.
#[derive(Default)]
struct Arrays {
    of: HashMap<Vec<u64>, usize>,
    texts: Vec<String>,
}

impl Arrays {
    fn add(&mut self, column: impl Iterator<Item = f64>) -> usize {
        let bits: Vec<u64> = column.map(f64::to_bits).collect();
        if let Some(at) = self.of.get(&bits) {
            return *at;
        }
        let bytes: Vec<u8> = bits.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.texts.push(STANDARD.encode(bytes));
        self.of.insert(bits, self.texts.len() - 1);
        self.texts.len() - 1
    }
}

/// The data of the page's curves, and the omitted parts.
pub struct Curves {
    /// The input of `assets/report.js`.
    pub json: Json,
    /// The number of included series.
    pub shown: usize,
    /// The number of series of all runs.
    pub all: usize,
    /// The number of included records of these series, and of all their records.
    pub records: (usize, usize),
}

/// The curves of runs.
pub fn curves(runs: &[ReportedRun], theories: &[Option<TheoryReport>]) -> Curves {
    let all: Vec<(usize, &Series)> = runs
        .iter()
        .enumerate()
        .flat_map(|(r, run)| run.table.iter().flat_map(move |table| table.series.iter().map(move |s| (r, s))))
        .collect();
    // A column that is missing or 0 everywhere is not drawn.
    let is_there = |j: usize| all.iter().any(|(_, series)| series.columns[j].iter().any(|x| x.is_finite() && *x != 0.0));
    let there: Vec<usize> = (0..AXES + METRICS.len()).filter(|j| is_there(*j)).collect();
    let (axes, metrics): (Vec<usize>, Vec<usize>) = there.into_iter().partition(|j| *j < AXES);
    let (mut arrays, mut series, mut records) = (Arrays::default(), Vec::new(), (0, 0));
    let groups = some_points(&all);
    let groups_only: Vec<Group<'_>> = groups.iter().map(|(_, group)| group.clone()).collect();
    let columns: Vec<usize> = axes.iter().chain(&metrics).copied().collect();
    let kept = thin::kept(&groups_only, &columns, &metrics);
    for ((run, group), kept) in groups.iter().zip(&kept) {
        for of in group {
            let length = of.columns[0].len();
            let own: Vec<usize> = kept.iter().copied().filter(|k| *k < length).collect();
            records = (records.0 + own.len(), records.1 + length);
            let mut add = |j: &usize| arrays.add(own.iter().map(|k| of.columns[*j][*k]));
            let (x, y): (Vec<usize>, Vec<usize>) = (axes.iter().map(&mut add).collect(), metrics.iter().map(&mut add).collect());
            series.push(json!({ "run": run, "method": of.method, "point": of.point, "seed": of.seed, "x": x, "y": y }));
        }
    }
    let axis = |j: &usize| {
        let (name, axis) = COUNTS.get(*j).map_or((Axis::SECONDS, Axis::Seconds), |count| (count.name, Axis::Count(count)));
        json!({ "key": name, "label": axis.title() })
    };
    let metric = |j: &usize| json!({ "key": METRICS[*j - AXES].name, "label": METRICS[*j - AXES].axis });
    let shown = series.len();
    let json = json!({
        "axes": axes.iter().map(axis).collect::<Vec<_>>(),
        "metrics": metrics.iter().map(metric).collect::<Vec<_>>(),
        "arrays": arrays.texts,
        "runs": runs.iter().map(|run| run.name.clone()).collect::<Vec<_>>(),
        "series": series,
        "levels": levels(runs, theories),
    });
    Curves { json, shown, all: all.len(), records }
}

/// The series of the page; for a large sweep, the series of points spread over it.
fn some_points<'a>(all: &[(usize, &'a Series)]) -> Vec<(usize, Group<'a>)> {
    let share = MAX_SERIES as f64 / all.len() as f64;
    let mut points: HashMap<(usize, &str), usize> = HashMap::new();
    let is_shown = |(run, of): &(usize, &'a Series)| {
        let next = points.len();
        let point = *points.entry((*run, &of.point)).or_insert(next);
        // A regular selection could have only one value of a key that varies fast.
        share >= 1.0 || (point as f64 * GOLDEN).fract() < share
    };
    let shown: Vec<(usize, &Series)> = all.iter().copied().filter(is_shown).collect();
    thin::grouped(shown.into_iter())
}

/// The predicted quantities that are levels of the mean-square error, with their names.
const LEVELS: [(&str, &str); 3] = [("floor", "predicted floor"), ("bias2", "predicted squared bias"), ("noise", "predicted noise")];

/// The predicted levels of all runs.
fn levels(runs: &[ReportedRun], theories: &[Option<TheoryReport>]) -> Vec<Json> {
    let mut out = Vec::new();
    for (r, run) in runs.iter().enumerate() {
        for result in run.summary["results"].as_array().into_iter().flatten() {
            for (key, name) in LEVELS {
                let known = &result["predicted_accuracy"][key]["status"];
                if let Some(y) = result["predicted"][key].as_f64().filter(|y| *y > 0.0) {
                    let name = known.as_str().map_or(name.to_string(), |known| format!("{name}, {}", known.replace('_', " ")));
                    out.push(
                        json!({ "run": r, "method": result["method"], "point": result["point"], "metric": "mse", "key": key, "name": name, "y": y }),
                    );
                }
            }
        }
        // Floors that the run did not compute.
        let is_there = |out: &[Json], method: &str, point: &str| {
            out.iter().any(|level| level["run"] == r && level["method"] == method && level["point"] == point && level["key"] == LEVELS[0].0)
        };
        for (method, point, y, known) in theories[r].iter().flat_map(theory::levels) {
            if !is_there(&out, method, point) {
                let (key, name) = LEVELS[0];
                out.push(json!({ "run": r, "method": method, "point": point, "metric": "mse", "key": key, "name": format!("{name}, {known}"), "y": y }));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_columns_are_there_once_with_all_their_digits() {
        let mut arrays = Arrays::default();
        let x = [0.1 + 0.2, f64::MIN_POSITIVE, f64::NAN];
        assert_eq!((arrays.add(x.into_iter()), arrays.add([1.0].into_iter()), arrays.add(x.into_iter())), (0, 1, 0));
        let bytes = STANDARD.decode(&arrays.texts[0]).unwrap();
        let back: Vec<f64> = bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        assert!(back[0].to_bits() == x[0].to_bits() && back[1] == x[1] && back[2].is_nan());
    }
}
