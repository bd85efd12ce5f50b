//! The estimated memory of a plan's runs, records and predictions, from sizes, before it is allocated.

use fedsa::error::Result;
use fedsa::methods::{Drift, Half, Method, Setting};
use fedsa::problem::Field;
use fedsa::problem::memory::{matrix, vectors, worker};
use fedsa::uplink::medium::delay::Delay;
use fedsa_theory::predict::{Forecast, MeanSquareRadius};

use super::estimate;
use super::memory::{PROGRAM, require};
use super::plan::{MOST_JOINT, Plan, PlannedCell};
use super::results::Recorded;

/// The memory of a plan's runs in addition to its problems, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Runs {
    /// Iterates, agents' memory and history of the runs that run in parallel.
    state: f64,
    /// Recorded rounds and final iterates of all runs.
    recorded: f64,
    /// Writing and drawing the results.
    output: f64,
    /// The predictions that checks and the figure use, and the radii that are computed before the
    /// runs.
    predictions: f64,
}

/// The peak of running a plan whose problems are built, in bytes, problems included: the
/// larger of building and running.
pub fn of_plan(plan: &Plan) -> f64 {
    let runs = runs(plan);
    let kept = plan.memory.kept;
    plan.memory.peak.max(PROGRAM + kept + runs.during())
}

/// Refuses a plan whose runs do not fit into the memory that is available after its problems are built.
///
/// # Errors
/// When they do not fit.
pub fn refuse(plan: &Plan) -> Result<()> {
    let runs = runs(plan);
    let largest = [
        (runs.state, "agents' memory and what the link remembers"),
        (runs.recorded + runs.output, "recorded rounds"),
        (runs.predictions, "predictions"),
    ];
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
    /// The largest need at one time.
    fn during(&self) -> f64 {
        self.recorded + self.state.max(self.output).max(self.predictions)
    }
}

fn runs(plan: &Plan) -> Runs {
    let threads = rayon::current_num_threads();
    let duration = estimate::duration(plan);
    let predicted = plan.compares_with_theory();
    let mut runs = Runs::default();
    let (mut states, mut joint, mut longest) = (Vec::new(), Vec::new(), 0.0f64);
    let (mut rows, mut ended) = (0.0, 0.0f64);
    for (i, cell) in plan.cells.iter().enumerate() {
        let field = plan.field(i);
        let (seeds, grid) = (cell.seeds_count() as f64, cell.grid.len() as f64);
        let round = duration.cells[i] / (seeds * cell.run.rounds as f64).max(1.0);
        let is_joint = cell.goes_jointly(field);
        // A joint round takes as long as those of all.
        let is_long = round * if is_joint { MOST_JOINT as f64 } else { 1.0 } > LONG_ROUND;
        let one = run_state(cell, field, duration.total > SAVED_AFTER, is_long, is_joint) + 2.0 * grid * size_of::<Recorded>() as f64;
        // States of runs that have ended are kept together up to a bound, and written.
        ended += if one <= KEPT_STATE { 2.0 * seeds * one } else { 0.0 };
        let (states, at_once) = if is_joint { (&mut joint, threads * MOST_JOINT) } else { (&mut states, threads) };
        states.extend(std::iter::repeat_n(one, cell.seeds_count().min(at_once)));
        runs.recorded += seeds * (grid * size_of::<Recorded>() as f64 + 8.0 * field.dim() as f64 + 100.0) + 8.0 * grid;
        rows += seeds * grid;
        // A curve gathers the values of all seeds at every recorded round.
        longest = longest.max(grid * (330.0 + 24.0 * seeds));
        let exact = if predicted[i] { prediction(plan, i) } else { 0.0 };
        runs.predictions = runs.predictions.max(exact).max(stability(plan, i));
    }
    // A thread takes one run at a time, or a group of joint ones.
    joint.sort_by(|a: &f64, b| b.total_cmp(a));
    states.extend(joint.chunks(MOST_JOINT).map(|group| group.iter().sum::<f64>()));
    states.sort_by(|a, b| b.total_cmp(a));
    let workers = plan.fields.iter().map(|f| worker(f.field.dim(), f.field.chain_len())).fold(0.0, f64::max);
    // Metrics: the mean system and ideal controls.
    let metrics = |f: &dyn Field| {
        let (d, systems) = (f.dim() as f64, f.systems());
        systems.map_or(0.0, |_| matrix(d, d)) + systems.map_or(f.agents(), |s| s.kinds.len()) as f64 * (8.0 * d + 40.0)
    };
    runs.state = states.iter().take(threads).sum::<f64>() + threads as f64 * workers;
    runs.state += plan.fields.iter().map(|f| metrics(&*f.field)).sum::<f64>();
    runs.recorded += ended.min(2.0 * KEPT_STATE);
    // A row of the trace: texts, counts, metrics; then the columns as Parquet. A result: its entry of the summary.
    runs.output = (rows * TRACE_ROW + plan.cells.len() as f64 * RESULT).max(longest);
    runs
}

/// Estimated length of a run, in seconds, above which the run writes checkpoints.
const SAVED_AFTER: f64 = 5.0;

/// Before a long round the state is copied: of one that is estimated to be longer than this, in
/// seconds, on a machine that may be busy.
const LONG_ROUND: f64 = 0.02;

/// The largest state of an ended run that is kept, in bytes.
const KEPT_STATE: f64 = 64e6;

/// Bytes of a row of the trace while it is written.
const TRACE_ROW: f64 = 470.0;

/// Bytes of a result of the summary while it is written.
const RESULT: f64 = 8000.0;

/// The memory of one seed of a cell: `agents (method + feedback + channel + chain)`, the server's
/// tables, an exchange's sums and messages, past rounds and late answers.
fn run_state(cell: &PlannedCell, field: &dyn Field, saved: bool, copied: bool, is_joint: bool) -> f64 {
    let (agents, d, words) = (field.agents() as f64, field.dim() as f64, field.chain_len() as f64);
    let link = &cell.uplink;
    let built = |agents: usize| {
        let weights = vec![1.0 / agents as f64; agents];
        cell.method.settings.build(&Setting { seed: 0, weights: &weights, start: vec![0.0], link: link.facts(), is_accelerated: false })
    };
    let numbers = |method: &Method| method.server.state().iter().map(|v| v.len() as f64).sum::<f64>();
    let (one, two) = (built(1), built(2));
    // What the server keeps of every agent, in vectors: the numbers that a second agent adds at d = 1.
    let table = numbers(&two) - numbers(&one);
    let participants = cell.method.settings.shape().participants.map_or(agents, |m| (m as f64).min(agents));
    let each = one.protocol.wants_each_anywhere();
    let one_by_one = each || link.late.is_some() || is_joint;
    let kept = match &one.client {
        Half::Lanes(client) => client.memory() as f64,
        Half::Each(_) => 1.0,
    };
    let own = cell.method.settings.memory(field.agents(), field.dim());
    let history = match &link.delay {
        Some(pull) => rounds(pull.delay.max(), cell) * (8.0 * d + 8.0 * agents * words + 100.0),
        None => 0.0,
    };
    // Rules that use distances between models keep the models of as many rounds as answers can be late.
    let reach = link.facts().stale.or(link.facts().late);
    let models = if each && table == 0.0 && own == 0.0 { rounds(reach.unwrap_or(0), cell) * (8.0 * d + 40.0) } else { 0.0 };
    let letter = 8.0 * d + 64.0;
    // An answer on its way, which may be longer than a vector.
    let answer = || {
        let weights = vec![1.0 / agents; field.agents()];
        let setting = Setting { seed: 0, weights: &weights, start: vec![0.0; field.dim()], link: link.facts(), is_accelerated: false };
        8.0 * cell.method.settings.protocol(&setting).largest_answer() as f64 + 64.0
    };
    let mail = link.late.as_ref().map_or(0.0, |late| participants * answer() * mean_delay(late).min(cell.run.rounds as f64));
    let lasting = vectors(agents * kept, d)
        + 8.0 * agents * (words + link.media_len() as f64 + link.feedback_len(d as usize, one.protocol.exchanges.len()) as f64 + table * d)
        + history
        + models
        + mail
        + own;
    let exchange = participants / 8.0 * 8.0 * d
        + if link.is_clear() && !one_by_one { 0.0 } else { 17.0 * participants }
        + if one_by_one { participants * (8.0 * d + 1.2 * letter) } else { 0.0 };
    // All agents, weights, participants; theta, its start and output.
    let small = 24.0 * agents + 64.0 * d + worker(d as usize, words as usize);
    // Metrics use all control variates at once.
    let controls = if matches!(cell.method.settings.shape().drift, Drift::ControlVariate { .. }) { agents * (8.0 * d + 40.0) } else { 0.0 };
    // A copy of the state is its bytes, with the server's tables beside them; a checkpoint frames it.
    let copies = f64::from(u8::from(copied || saved || lasting <= KEPT_STATE)) + f64::from(u8::from(saved));
    lasting + copies * (lasting + 8.0 * agents * table * d) + exchange.max(controls) + small
}

/// The number of past rounds that are kept because of delays.
fn rounds(longest: u64, cell: &PlannedCell) -> f64 {
    (longest as f64 + 1.0).min(cell.run.rounds as f64)
}

/// The mean delay of a late answer, in rounds; the longest delay if only that is known.
fn mean_delay(delay: &Delay) -> f64 {
    match delay {
        Delay::Uniform { min, max } => (*min as f64 + *max as f64) / 2.0,
        Delay::Geometric { mean, .. } => mean.min(delay.max() as f64),
        Delay::Spikes { probability, rounds } => probability * *rounds as f64,
        Delay::Constant { .. } | Delay::Trace { .. } | Delay::Stall { .. } => delay.max() as f64,
        // All answers of a run are in time.
        Delay::Network { .. } => 0.0,
    }
}

/// The memory for the radii of a cell's round: powers and sums of a step's map, and the map of
/// second moments if it is small enough to be formed.
fn stability(plan: &Plan, cell: usize) -> f64 {
    const COPIES: f64 = 15.0;
    let (d, forecast) = (plan.field(cell).dim() as f64, plan.forecast(cell));
    let in_mean =
        if forecast.knows_rounds().is_ok() { COPIES * (matrix(d, d) + matrix(delays(&forecast), delays(&forecast))) } else { 0.0 };
    let of_squares = MeanSquareRadius::is_small(&forecast);
    in_mean + if of_squares { prediction(plan, cell) } else { 0.0 }
}

/// The rounds that a delay reaches back, the present one included; 1 without delays.
fn delays(forecast: &Forecast) -> f64 {
    forecast.link().ok().and_then(|link| link.delay.as_ref()).map_or(1.0, |delay| delay.probabilities.len() as f64)
}

/// The memory for the exact mean-square error of a cell (`fedsa_theory::exact_mse`): moments
/// `d^4 + d^3 + d^2` and a map from starts to noise of each distinct agent; of FedLSA a map of
/// second moments, and of delayed directions covariances of as many rounds as the delay reaches back, with the system
/// of the floor; of control variates K agents' second moments, `(d (K + 1) + 1)^2`, some twenty
/// times in iterations.
fn prediction(plan: &Plan, cell: usize) -> f64 {
    /// Copies of the second moments that a solution by iteration holds.
    const ITERATION: f64 = 20.0;
    let (field, shape, forecast) = (plan.field(cell), plan.cells[cell].shape(), plan.forecast(cell));
    if let Some(cost) = forecast.cost_of_noise() {
        return cost.bytes;
    }
    let Some(systems) = field.systems().filter(|_| forecast.knows_curve().is_ok()) else { return 0.0 };
    let (kinds, d, threads) = (systems.kinds.len() as f64, field.dim() as f64, rayon::current_num_threads() as f64);
    let packed = |n: f64| n * (n + 1.0) / 2.0;
    let moments = matrix(d * d, d * d) + matrix(d * d, d) + matrix(d, d);
    let (start, rest) = match shape.drift {
        Drift::Zero => {
            let (rounds, own) = (delays(&forecast), packed(d) + packed(d + 1.0));
            let delayed = if rounds > 1.0 {
                let system = packed(d) + (rounds - 1.0) * d * d;
                let solved = if forecast.knows_floor().is_ok() { 3.0 * matrix(system, system) } else { 0.0 };
                let along = forecast.knows_curve_to(plan.cells[cell].run.rounds).is_ok();
                solved + if along { 6.0 * matrix(d * rounds, d * rounds) } else { 0.0 }
            } else {
                0.0
            };
            (d + 1.0, 8.0 * matrix(own, own) + delayed)
        }
        Drift::ControlVariate { talk: None } => {
            let side = d * (kinds + 1.0) + 1.0;
            (2.0 * d + 1.0, ITERATION * (8.0 * side * side + 8.0 * kinds * d * d))
        }
        Drift::GlobalMemory { .. } => {
            let own = packed(d) + packed(d + 1.0);
            (2.0 * d + 1.0, 8.0 * matrix(own, own) + kinds * 3.0 * matrix(packed(d), packed(d + 1.0)))
        }
        _ => return 0.0,
    };
    let noise = matrix(packed(d), packed(start));
    let making = 3.0 * matrix(packed(start), packed(start)) + 4.0 * noise;
    kinds * (moments + noise) + threads.min(kinds) * making + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_on_their_way_for_their_mean() {
        assert_eq!(mean_delay(&Delay::Uniform { min: 1, max: 9 }), 5.0);
        assert_eq!(mean_delay(&Delay::Geometric { mean: 1e9, max: Some(10) }), 10.0);
        assert_eq!(mean_delay(&Delay::Spikes { probability: 0.5, rounds: 10 }), 5.0);
        assert_eq!(mean_delay(&Delay::Constant { rounds: 7 }), 7.0);
    }
}
