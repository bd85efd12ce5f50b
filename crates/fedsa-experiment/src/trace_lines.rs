//! `trace.jsonl`: recorded rounds of an unfinished run, one JSON object per line.
//!
//! The file is for watching only. When the run is finished, `trace.parquet` has all rows in order, and
//! `trace.jsonl` is removed. A run continues if the file cannot be written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fedsa::error::Error;
use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use serde_json::{Map, Value as Json, json};

use super::plan::Plan;
use super::results::Recorded;
use crate::folder::RunFolder;

/// The longest time for which lines are buffered.
const PATIENCE: Duration = Duration::from_millis(500);

/// The file, and the text of each cell in its lines.
pub struct TraceLines {
    /// For every cell the points that share it: method and point.
    names: Vec<Vec<(String, String)>>,
    out: Mutex<Option<(BufWriter<File>, Instant)>>,
}

impl TraceLines {
    /// Starts the file of a run.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn begin(folder: &RunFolder, plan: &Plan) -> Result<Self, Error> {
        let mut names = vec![Vec::new(); plan.cells.len()];
        for planned in &plan.points {
            for (label, cell) in plan.labels.iter().zip(&planned.cells) {
                names[*cell].push((label.clone(), planned.point.label.clone()));
            }
        }
        let out = BufWriter::new(folder.grow()?);
        Ok(Self { names, out: Mutex::new(Some((out, Instant::now()))) })
    }

    /// Adds a recorded round.
    ///
    /// # Errors
    /// The first time that the file cannot be written. Later calls add nothing and return no error.
    pub fn add(&self, cell: usize, seed: u64, row: &Recorded) -> std::io::Result<()> {
        let mut out = self.out.lock().expect("no panics under the lock");
        let Some((file, flushed)) = &mut *out else { return Ok(()) };
        let mut write = || {
            for (method, point) in &self.names[cell] {
                writeln!(file, "{}", line(method, point, seed, row))?;
            }
            if flushed.elapsed() >= PATIENCE {
                file.flush()?;
                *flushed = Instant::now();
            }
            Ok(())
        };
        let written = write();
        if written.is_err() {
            *out = None;
        }
        written
    }
}

fn line(method: &str, point: &str, seed: u64, row: &Recorded) -> Json {
    let mut fields = Map::new();
    fields.insert("method".into(), json!(method));
    fields.insert("point".into(), json!(point));
    fields.insert("seed".into(), json!(seed));
    for count in COUNTS {
        fields.insert(count.name.to_string(), json!(row.count(count)));
    }
    for metric in METRICS {
        fields.insert(metric.name.to_string(), json!((metric.recorded)(&row.seen).filter(|x| x.is_finite())));
    }
    Json::Object(fields)
}
