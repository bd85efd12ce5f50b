//! The native part of the Python package `fedsa`. The public part, `python/fedsa`, has the documentation, types and defaults; this one
//! converts values, calls the libraries ([`engine`]), and raises exceptions.

mod arrow;
mod convert;
mod custom;
mod deployments;
mod engine;
mod errors;
mod experiment;
mod files;
mod fits;
mod held;
mod held_data;
mod nodes;
mod operators;
mod own_metrics;
mod parts;
mod policies;
mod results;
mod rows;
mod rules;
mod server_rules;
mod sessions;
mod tables;
mod theory;
mod threads;
mod turns;
mod values;

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::errors::OrRaise;

/// Sets the number of threads for later calls.
#[pyfunction]
#[pyo3(signature = (threads))]
fn set_threads(py: Python<'_>, threads: Option<usize>) -> PyResult<()> {
    threads::set(threads).or_raise(py)
}

/// The number of threads for later calls.
#[pyfunction]
fn get_threads(py: Python<'_>) -> PyResult<usize> {
    Ok(threads::pool().or_raise(py)?.current_num_threads())
}

/// Runs the program with these arguments (the first is its name), and returns its exit status.
#[pyfunction]
fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
    // The program prints panics itself.
    let _ = std::panic::take_hook();
    py.detach(|| fedsa_cli::run_with(args, fedsa_cli::Extensions::default()))
}

/// The module `fedsa._fedsa`. It needs the interpreter's lock: free-threaded Python enables it again, because callbacks are not verified
/// without it.
#[pymodule(gil_used = true)]
fn _fedsa(m: &Bound<'_, PyModule>) -> PyResult<()> {
    engine::keep_panics();
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<arrow::Table>()?;
    m.add_class::<tables::Columns>()?;
    m.add_class::<experiment::CancelToken>()?;
    m.add_class::<experiment::Experiment>()?;
    m.add_class::<deployments::Deployment>()?;
    m.add_class::<deployments::Enrolment>()?;
    m.add_class::<deployments::Membership>()?;
    m.add_class::<deployments::Afterwards>()?;
    m.add_function(wrap_pyfunction!(deployments::is_farewell, m)?)?;
    m.add_function(wrap_pyfunction!(deployments::for_others, m)?)?;
    m.add_class::<deployments::LocalAgent>()?;
    m.add_class::<nodes::ClientNode>()?;
    m.add_class::<nodes::Federation>()?;
    m.add_class::<nodes::AgentData>()?;
    m.add_class::<nodes::ServerNode>()?;
    m.add_class::<sessions::Session>()?;
    m.add_class::<held::HeldProblem>()?;
    m.add_class::<operators::Draws>()?;
    m.add_class::<rules::Agents>()?;
    m.add_class::<server_rules::ServerRound>()?;
    m.add_class::<custom::HeldRules>()?;
    m.add_class::<fits::LinearModel>()?;
    m.add_class::<results::Figure>()?;
    m.add_class::<results::RanResults>()?;
    m.add_class::<theory::Theory>()?;
    m.add_class::<theory::Tuned>()?;
    m.add_class::<values::ValueFit>()?;
    m.add_class::<policies::PolicyFit>()?;
    m.add_class::<policies::ActionModel>()?;
    m.add_class::<values::ValueModel>()?;
    add_functions(m)
}

fn add_functions(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(experiment::bundled_experiments, m)?)?;
    m.add_function(wrap_pyfunction!(experiment::check_part, m)?)?;
    m.add_function(wrap_pyfunction!(experiment::schema_json, m)?)?;
    m.add_function(wrap_pyfunction!(files::write_file, m)?)?;
    m.add_function(wrap_pyfunction!(files::append_file, m)?)?;
    m.add_function(wrap_pyfunction!(fits::fit_rows, m)?)?;
    m.add_function(wrap_pyfunction!(fits::task_schema, m)?)?;
    m.add_function(wrap_pyfunction!(values::evaluate_logs, m)?)?;
    m.add_function(wrap_pyfunction!(policies::improve_logs, m)?)?;
    m.add_function(wrap_pyfunction!(values::value_difference, m)?)?;
    m.add_function(wrap_pyfunction!(values::table_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(get_threads, m)?)?;
    m.add_function(wrap_pyfunction!(main, m)?)?;
    m.add_function(wrap_pyfunction!(parts::add_part, m)?)?;
    m.add_function(wrap_pyfunction!(parts::merge_parts, m)?)?;
    m.add_function(wrap_pyfunction!(parts::part_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(parts::parts_in, m)?)?;
    m.add_function(wrap_pyfunction!(parts::point_seconds, m)?)?;
    m.add_function(wrap_pyfunction!(parts::run_part, m)?)?;
    m.add_function(wrap_pyfunction!(results::compare_folders, m)?)?;
    m.add_function(wrap_pyfunction!(results::read_arrays, m)?)?;
    m.add_function(wrap_pyfunction!(results::read_trace, m)?)?;
    m.add_function(wrap_pyfunction!(results::redraw_folder, m)?)?;
    m.add_function(wrap_pyfunction!(results::report_page, m)?)?;
    m.add_function(wrap_pyfunction!(results::is_report, m)?)?;
    m.add_function(wrap_pyfunction!(results::lines_figure, m)?)?;
    m.add_function(wrap_pyfunction!(results::t_quantile, m)?)?;
    m.add_function(wrap_pyfunction!(results::note_kinds, m)?)?;
    m.add_function(wrap_pyfunction!(results::require_finished, m)?)?;
    m.add_function(wrap_pyfunction!(results::write_finished, m)?)?;
    m.add_function(wrap_pyfunction!(theory::check_experiment, m)?)?;
    m.add_function(wrap_pyfunction!(theory::tune_experiment, m)?)?;
    m.add_function(wrap_pyfunction!(set_threads, m)?)?;
    Ok(())
}
