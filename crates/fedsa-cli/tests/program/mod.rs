//! Every command as a user runs it: its output, its files, its exit status.

mod commands;
mod evaluate;
mod runs;

use crate::common::{Folder, SMALL, edited, mrp, npz_bytes, small, with_problem};
use fedsa_data::trace::{self, TraceColumn};
use fedsa_data::{npz, trace::Trace};
use fedsa_experiment::bundled::ALL;
use serde_json::Value;

fn table(folder: &Folder, out: &str) -> Trace {
    trace::from_bytes(folder.read(&format!("{out}/trace.parquet"))).unwrap()
}

fn numbers(table: &Trace, name: &str) -> Vec<Option<f64>> {
    match table.column(name) {
        Some(TraceColumn::OptF64(v)) => v.clone(),
        other => panic!("{name}: {other:?}"),
    }
}
