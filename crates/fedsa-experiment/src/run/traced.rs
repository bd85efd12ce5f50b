//! The recorded rounds of runs in progress, as lines of a file.

use crate::folder::RunFolder;
use crate::observer::{Computed, OwnMetrics, RunObserver, Stage};
use crate::plan::Plan;
use crate::results::{Recorded, SeedResult};
use crate::trace_lines::TraceLines;

/// An observer that also writes `trace.jsonl`. A run continues without this file if it cannot be written.
pub struct TracingObserver<'a> {
    observer: &'a dyn RunObserver,
    lines: Option<TraceLines>,
}

impl<'a> TracingObserver<'a> {
    /// Creates the file, if the run has a folder.
    pub fn new(observer: &'a dyn RunObserver, folder: Option<&RunFolder>, plan: &Plan) -> Self {
        let begin =
            |folder| TraceLines::begin(folder, plan).map_err(|e| observer.warned(&format!("{e}; the run goes on without this file")));
        Self { observer, lines: folder.and_then(|folder| begin(folder).ok()) }
    }
}

impl RunObserver for TracingObserver<'_> {
    fn stage(&self, stage: Stage<'_>) {
        self.observer.stage(stage);
    }

    fn computing(&self, what: Computed, k: usize, n: usize) {
        self.observer.computing(what, k, n);
    }

    fn advanced(&self, steps: f64) {
        self.observer.advanced(steps);
    }

    fn found(&self, steps: f64) {
        self.observer.found(steps);
    }

    fn recorded(&self, cell: usize, seed: u64, row: &Recorded) {
        if let Some(Err(e)) = self.lines.as_ref().map(|lines| lines.add(cell, seed, row)) {
            self.observer.warned(&format!("trace.jsonl cannot be written any more; the run goes on: {e}"));
        }
        self.observer.recorded(cell, seed, row);
    }

    fn ended(&self, cell: usize, result: &SeedResult) {
        self.observer.ended(cell, result);
    }

    fn warned(&self, what: &str) {
        self.observer.warned(what);
    }

    fn own_metrics(&self) -> Option<&dyn OwnMetrics> {
        self.observer.own_metrics()
    }
}
