//! The memory of a plan's runs and predictions, estimated from N, d and the numbers of rows before it is allocated.
//!
//! The estimate serves to refuse what cannot fit, such as a million rounds of delayed iterates. It counts the large arrays, and twice the
//! state of a run, because checkpoints copy it.

use fedsa::error::Result;
use fedsa::method::{Drift, Setting};
use fedsa::problem::Field;
use fedsa_problems::memory::{matrix, vectors};
use fedsa_theory::predict::MeanSquareRadius;

use super::memory::{PROGRAM, require};
use super::plan::{Plan, PlannedCell};
use super::results::Recorded;

/// The memory of a plan's runs in addition to its problems, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Runs {
    /// The state of agents and links in runs that run in parallel.
    state: f64,
    /// Recorded rounds of all runs, and their files.
    recorded: f64,
    /// The predictions for checks and the figure, and the radii before the runs.
    predictions: f64,
}

/// Bytes of a recorded round while it is written to the trace.
const TRACE_ROW: f64 = 470.0;

/// The peak of running a plan whose problems are built, in bytes, problems included: the
/// larger of building and running.
pub fn of_plan(plan: &Plan) -> f64 {
    plan.memory.peak.max(PROGRAM + plan.memory.kept + Runs::of(plan).during())
}

/// Refuses a plan whose runs do not fit into the memory that is available after its problems are built.
///
/// # Errors
/// When they do not fit.
pub fn refuse(plan: &Plan) -> Result<()> {
    let runs = Runs::of(plan);
    let largest =
        [(runs.state, "agents' memory and what the link remembers"), (runs.recorded, "recorded rounds"), (runs.predictions, "predictions")];
    let (_, most) = largest.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("three of them");
    require(
        "run",
        runs.during(),
        || format!("these runs, most of it for {most}"),
        "fewer agents, recorded rounds, seeds or points at once, shorter delays, a restart of gmres, or fewer threads",
    )
}

/// Refuses a prediction that needs more than the available memory.
///
/// # Errors
/// When the prediction needs more memory than is available.
pub fn refuse_predictions(plan: &Plan) -> Result<()> {
    let needed = (0..plan.cells.len()).map(|cell| prediction(plan, cell)).fold(0.0, f64::max);
    require("problem", needed, || "the second moments of all agents' samples".into(), "fewer distinct agents or features")
}

impl Runs {
    fn of(plan: &Plan) -> Self {
        let (threads, predicted) = (rayon::current_num_threads(), plan.compares_with_theory());
        let (mut runs, mut states) = (Self::default(), Vec::new());
        for (i, cell) in plan.cells.iter().enumerate() {
            let (field, seeds, rows) = (plan.field(i), cell.seeds_count(), cell.grid.len() as f64);
            states.extend(std::iter::repeat_n(state(cell, field), seeds.min(threads)));
            runs.recorded += seeds as f64 * (rows * (size_of::<Recorded>() as f64 + TRACE_ROW) + 8.0 * field.dim() as f64);
            if predicted[i] || MeanSquareRadius::is_small(&plan.forecast(i)) {
                runs.predictions = runs.predictions.max(prediction(plan, i));
            }
        }
        states.sort_by(|a: &f64, b| b.total_cmp(a));
        runs.state = states.iter().take(threads).sum();
        runs
    }

    /// The largest need at one time.
    fn during(&self) -> f64 {
        self.recorded + self.state.max(self.predictions)
    }
}

/// The memory of one seed of a cell, in bytes: vectors of agents, of the server and of the link, chains, and past rounds, twice.
fn state(cell: &PlannedCell, field: &dyn Field) -> f64 {
    let (agents, d, words) = (field.agents() as f64, field.dim() as f64, field.chain_len() as f64);
    let (settings, link) = (&cell.method.settings, &cell.uplink);
    let method = settings.build(&Setting { seed: 0, weights: &[1.0], start: vec![0.0], link: link.facts(), is_accelerated: false });
    let facts = method.client.facts();
    let kept = if facts.agents.is_some() { 1.0 } else { facts.memory as f64 };
    let link_len = link.media_len() as f64 + link.feedback_len(field.dim(), method.protocol.exchanges.len()) as f64;
    let reach = link.delay().map(|delay| delay.max());
    let past = reach.map_or(0.0, |longest| (longest as f64 + 1.0).min(cell.run.rounds as f64));
    let each_round = 8.0 * (d + agents * words);
    2.0 * (vectors(agents * kept, d)
        + 8.0 * agents * (words + link_len + d)
        + settings.memory(field.agents(), field.dim())
        + past * each_round)
}

/// The memory for the exact mean-square error of a cell (`fedsa_theory::exact_mse`), in bytes: the second moments of each distinct agent,
/// for control variates those of K agents at once, and some twenty copies in iterations.
fn prediction(plan: &Plan, cell: usize) -> f64 {
    /// Copies of the second moments in an iterative solution.
    const ITERATION: f64 = 20.0;
    let (field, forecast) = (plan.field(cell), plan.forecast(cell));
    if let Some(cost) = forecast.cost_of_noise() {
        return cost.bytes;
    }
    let Some(systems) = field.systems().filter(|_| forecast.knows_curve().is_ok()) else { return 0.0 };
    let (kinds, d) = (systems.kinds.len() as f64, field.dim() as f64);
    let rounds = forecast.link().ok().and_then(|link| link.delay.as_ref()).map_or(1.0, |delay| delay.probabilities.len() as f64);
    let together = match plan.cells[cell].shape().drift {
        Drift::ControlVariate { .. } => ITERATION * 8.0 * (d * (kinds + 1.0) + 1.0).powi(2),
        _ => 6.0 * matrix(d * d * rounds, d * d),
    };
    kinds * (matrix(d * d, d * d) + matrix(d * d, d) + matrix(d, d)) + together
}
