//! `trace.jsonl`: recorded rounds of an unfinished run, one JSON object per line.
//!
//! The file is only for watching. A finished run has all rows in order in `trace.parquet`, and removes `trace.jsonl`. A run continues if
//! the file cannot be written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use fedsa::error::Error;
use fedsa::metrics::METRICS;
use fedsa::record::COUNTS;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::plan::Plan;
use super::results::Recorded;
use crate::folder::RunFolder;

/// The longest time for which lines are buffered.
const PATIENCE: Duration = Duration::from_millis(500);
/// The bytes that are written at a time.
const BUFFERED: usize = 1 << 16;
/// The usual length of a line, in bytes.
const LENGTH: usize = 512;

/// The file, and the text of each cell in its lines.
pub struct TraceLines {
    /// For every cell, the method and point of the places that share it.
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
        let out = BufWriter::with_capacity(BUFFERED, folder.grow()?);
        Ok(Self { names, out: Mutex::new(Some((out, Instant::now()))) })
    }

    /// Adds a recorded round.
    ///
    /// # Errors
    /// The first time that the file cannot be written. Later calls add nothing and return no error.
    pub fn add(&self, cell: usize, seed: u64, row: &Recorded) -> std::io::Result<()> {
        // Threads that record at the same time wait for each other only while the text is copied.
        let mut text = Vec::with_capacity(LENGTH * self.names[cell].len());
        for (method, point) in &self.names[cell] {
            serde_json::to_writer(&mut text, &Line { method, point, seed, row })?;
            text.push(b'\n');
        }
        let mut out = self.out.lock().expect("no panics under the lock");
        let Some((file, flushed)) = &mut *out else { return Ok(()) };
        let mut write = || {
            file.write_all(&text)?;
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

/// A recorded round of one method at one point.
struct Line<'a> {
    method: &'a str,
    point: &'a str,
    seed: u64,
    row: &'a Recorded,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(3 + COUNTS.len() + METRICS.len()))?;
        fields.serialize_entry("method", self.method)?;
        fields.serialize_entry("point", self.point)?;
        fields.serialize_entry("seed", &self.seed)?;
        for count in COUNTS {
            fields.serialize_entry(count.name, &self.row.count(count))?;
        }
        for metric in METRICS {
            fields.serialize_entry(metric.name, &(metric.recorded)(&self.row.seen).filter(|x| x.is_finite()))?;
        }
        fields.end()
    }
}
