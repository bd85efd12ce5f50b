//! The estimated time of a plan for `check`, from a rough model.
//!
//! The constants are processor times on one core of an AMD EPYC with AVX-512, in nanoseconds unless stated otherwise. The model aims at a
//! factor of two to three.

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::method::Drift;
use fedsa::problem::Field;
use fedsa::sampling::Law;
use toml::Value;

use super::plan::{Plan, PlannedCell};

/// Start of the program, and writing of files and pictures: seconds.
const START: f64 = 0.05;
/// The fixed cost of a round.
const ROUND: f64 = 220.0;
/// The fixed cost of an agent in a round: random streams, message, sum.
const PLAIN: f64 = 55.0;
const CONTROL_VARIATE: f64 = 85.0;
const GLOBAL_MEMORY: f64 = 150.0;
/// The cost of a multiply-add of agents that compute alone: on `shed/fig2-4` between 0.2 (Fib-SHED) and 0.4 (FedNL).
const WORK: f64 = 0.3;
/// The cost of encoding a message, and of each component.
const CODEC: f64 = 130.0;
const CODEC_COMPONENT: f64 = 7.0;
/// The cost of a message through a stage of a link, and the extra cost of an answer to a past round or a late answer.
const MEDIUM: f64 = 50.0;
const DELAY: f64 = 100.0;
/// The cost of a recorded round: its row, statistics and tables.
const ROW: f64 = 900.0;
/// The cost of metrics with matrices, per `d^2`.
const METRIC: f64 = 1.6;
/// The cost of an agent's control variate in a recorded round, and of each component.
const CONTROL: f64 = 60.0;
const CONTROL_COMPONENT: f64 = 2.0;

/// Per entry cubed of second moments: the floor of FedLSA, and the moments of an agent's local phase with a control variate. Per entry
/// squared of the state of control variates, times d.
const SECOND_MOMENTS: f64 = 1.0;
const PHASE_MOMENTS: f64 = 0.45;
const CONTROL_MOMENTS: f64 = 290.0;
/// The fixed cost of a round of covariances of a delayed method.
const DELAYED_ROUND: f64 = 4000.0;

/// The estimated run time of a plan, in seconds.
#[derive(Debug, Clone)]
pub struct EstimatedTime {
    /// For each cell, the time of all its seeds on one core.
    pub cells: Vec<f64>,
    /// The time of the whole command on the available threads.
    pub total: f64,
}

/// Estimates the run time of a plan.
pub fn duration(plan: &Plan) -> EstimatedTime {
    let threads = rayon::current_num_threads() as f64;
    // The settings of each problem, which determine the cost of a sample.
    let mut settings: HashMap<usize, Option<Arc<Value>>> = HashMap::new();
    for point in &plan.points {
        settings.entry(point.field).or_insert_with(|| point.point.sections().problem);
    }
    let seeds: Vec<f64> =
        plan.cells.iter().map(|cell| seed(&*plan.fields[cell.field].field, settings[&cell.field].as_deref(), cell)).collect();
    let cells: Vec<f64> = seeds.iter().zip(&plan.cells).map(|(seed, cell)| seed * cell.seeds().len() as f64).collect();
    // A run uses one thread per block of eight agents; several runs fill the remaining threads.
    let longest = seeds.iter().zip(&plan.cells).map(|(seed, cell)| {
        let blocks = plan.fields[cell.field].field.agents().div_ceil(8) as f64;
        if cell.seeds().is_empty() { 0.0 } else { seed / blocks.min(threads) }
    });
    let longest = longest.fold(0.0, f64::max);
    let setup: f64 = plan.fields.iter().map(|f| setup(&*f.field)).sum::<f64>() / threads.min(plan.fields.len() as f64);
    EstimatedTime { total: START + setup + longest.max(cells.iter().sum::<f64>() / threads) + comparing(plan), cells }
}

/// Time of comparing results with exact errors, if checks or the figure use them, in seconds.
pub fn comparing(plan: &Plan) -> f64 {
    let asked = plan.compares_with_theory();
    (0..plan.cells.len()).zip(asked).filter(|(_, asked)| *asked).map(|(cell, _)| exact_error(plan, cell)).sum()
}

/// Time of the exact mean-square error of a cell, in seconds, measured for d of 4 to 24 and 2 to 100 distinct agents.
fn exact_error(plan: &Plan, number: usize) -> f64 {
    let (field, cell, forecast) = (plan.field(number), &plan.cells[number], plan.forecast(number));
    if let Some(cost) = forecast.cost_of_noise() {
        return 1e-9 * cost.multiplications;
    }
    let Some(kinds) = field.systems().filter(|_| forecast.knows_curve().is_ok()).map(|s| s.kinds.len() as f64) else { return 0.0 };
    let d = field.dim() as f64;
    let packed = |n: f64| n * (n + 1.0) / 2.0;
    let delay = forecast.link().ok().and_then(|link| link.delay.as_ref()?.constant()).map(|tau| tau as f64);
    1e-9 * match (cell.shape().drift, delay) {
        (Drift::Zero, None) => SECOND_MOMENTS * (packed(d) + packed(d + 1.0)).powi(3),
        // Covariances round by round, and the floor's system, if computed.
        (Drift::Zero, Some(tau)) => {
            let along = cell.run.rounds as f64 * (DELAYED_ROUND + 2.0 * (tau + 1.0) * d.powi(3));
            let floor = 0.3 * (packed(d) + tau * d * d).powi(3);
            (if forecast.knows_curve_to(cell.run.rounds).is_ok() { along } else { 0.0 })
                + if forecast.knows_floor().is_ok() { floor } else { 0.0 }
        }
        _ => kinds * PHASE_MOMENTS * packed(2.0 * d + 1.0).powi(3) + CONTROL_MOMENTS * d * (d * (kinds + 1.0) + 1.0).powi(2),
    }
}

/// Time of building a problem, in seconds.
fn setup(field: &dyn Field) -> f64 {
    if let Some(work) = field.facts().step_work() {
        // Sparse rows, made entry by entry.
        return 1e-9 * 100.0 * (field.agents() * work) as f64;
    }
    let (d, kinds) = (field.dim() as f64, field.systems().map_or(1, |systems| systems.kinds.len()) as f64);
    let states = field.facts().stationary(0).map_or(1, <[f64]>::len) as f64;
    // Matrices of features and transitions, the stationary law, and the root.
    1e-9 * (kinds * (states * d * (states + d) + states.powi(3)) + d.powi(3))
}

/// Time of one seed of a cell on one core, in seconds.
fn seed(field: &dyn Field, problem: Option<&Value>, cell: &PlannedCell) -> f64 {
    let (shape, d) = (cell.method.settings.shape(), field.dim() as f64);
    let agents = field.agents() as f64;
    let asked = shape.participants.map_or(agents, |m| m as f64);
    let (memory, controls) = match shape.drift {
        Drift::Zero => (PLAIN, false),
        Drift::ControlVariate { .. } => (CONTROL_VARIATE, true),
        Drift::GlobalMemory { .. } => (GLOBAL_MEMORY, false),
        Drift::NoSteps => (0.0, false),
    };
    let link = &cell.uplink;
    let mut message = MEDIUM * link.media.len() as f64;
    for altered in [link.alters(), !link.downlink.is_exact()] {
        message += if altered { CODEC + CODEC_COMPONENT * d } else { 0.0 };
    }
    message += if link.delay().is_some() { DELAY } else { 0.0 };
    // Methods count dense matrices. A sparse product takes less, and vector operations take the same.
    let sparse = field.facts().step_work().map(|work| work as f64);
    let saved = sparse.map_or(0.0, |work| (d * d - work - 20.0 * d).max(0.0));
    let alone = WORK * (cell.method.settings.work(field.agents(), field.dim()) - saved).max(sparse.unwrap_or(0.0));
    let agent = memory + message + alone + shape.local_steps * step(field, problem);
    let row = ROW
        + METRIC * sparse.map_or(d * d, |work| agents * (work + d))
        + if controls { agents * (CONTROL + CONTROL_COMPONENT * d) } else { 0.0 };
    1e-9 * (cell.run.rounds as f64 * (ROUND + asked * agent) + cell.grid.len() as f64 * row)
}

/// The cost of a local step of one agent.
fn step(field: &dyn Field, problem: Option<&Value>) -> f64 {
    let (d, chunks) = (field.dim() as f64, fedsa::kernel::chunks(field.dim()) as f64);
    let text = |key: &str| problem.and_then(|table| table.get(key));
    if let Some(work) = field.facts().step_work() {
        return 2.0 * (work * field.sampling().batch) as f64;
    }
    let sample = match text("kind").and_then(Value::as_str) {
        _ if field.sampling().kind == Law::Mean => return d * chunks,
        // Without noise, samples equal the mean operator.
        Some("linear") if text("noise").is_none() => return d * chunks,
        _ if let Some(ns) = field.facts().sample_ns() => return ns * field.sampling().batch as f64,
        Some("switching") => 10.0 + d,
        // Tables of transitions: two rows of features.
        _ => 3.5 * chunks + 0.6 * chunks * chunks,
    };
    let law = if field.sampling().kind == Law::Markov { 1.3 } else { 1.0 };
    law * sample * field.sampling().batch as f64
}
