//! `fedsa evaluate`: logged transitions to the weights of a value function.
//!
//! The command makes an experiment file from its options and runs this file. In addition to the
//! usual outputs it writes `weights.json`, `weights.npz` and pictures (`value_pictures`). Before the run it prints
//! what it read, and how long the run will take.

use std::path::Path;
use std::time::Instant;

use fedsa::error::{BadInput, Error, Result, quoted};
use fedsa::kernel::Isa;
use fedsa::linalg;
use fedsa::methods::fedhsa::FedHsa;
use fedsa::methods::fedlsa::FedLsa;
use fedsa::methods::scafflsa::Scafflsa;
use fedsa::methods::{Drift, MethodSettings};
use fedsa::presets::{self, PRESETS};
use fedsa::problem::Field;
use fedsa::problem::arrays::{Array, Arrays};
use fedsa::problem::features::{FeatureMap, FeatureSpec, SPARSE_ABOVE};
use fedsa::problem::log::Log;
use fedsa::problem::logs::Logs;
use fedsa::problem::root::{Root, Source};
use fedsa::problem::source::Inputs;
use fedsa::problem::survey::{LogFacts, Surveyed};
use fedsa::problem::uncertainty::{self, Covariance};
use fedsa::registry::Kind;
use fedsa_data::find::Places;
use fedsa_data::{DiskFiles, logs, machine, npz};
use fedsa_experiment::config::document::Origin;
use fedsa_experiment::config::{self, Document, Experiment, find_kind};
use fedsa_experiment::folder::VALUE_PICTURES;
use fedsa_experiment::numbers::{self, number};
use fedsa_experiment::picture::Picture;
use fedsa_experiment::plan::BuiltProblem;
use fedsa_experiment::{Kinds, Plan, Results, estimate, output};
use fedsa_theory::cost::{self, Candidate, Cost, Limits};
use serde_json::json;
use toml::{Table, Value};

use super::holdout::Comparison;
use super::run::{Extra, Task};
use super::value_pictures::{self, Considered, SeenStates};
use super::{apply, count, duration, say, table, text};
use crate::args::{EvaluateArgs, Overrides};

/// The help of `--method`.
pub fn methods(kinds: &Kinds) -> String {
    let kinds: Vec<&str> = kinds.methods().iter().map(|kind| kind.name).collect();
    let presets: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    format!(
        "The method: auto (the one that reaches --tol with the fewest bits), {}; or one with its link: {}. anderson accelerates \
         {ANDERSON_BASE}, which gets the step size and the local steps",
        kinds.join(", "),
        presets.join(", ")
    )
}

/// The logs that were read.
struct Data {
    logs: Surveyed,
    settings: Logs,
    map: FeatureMap,
    choice: Choice,
    /// The columns of `--value-columns`.
    value_columns: Vec<usize>,
}

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn evaluate(args: &EvaluateArgs, kinds: &Kinds) -> Result<u8, Error> {
    let began = Instant::now();
    let (experiment, data, built) = prepare(args, kinds)?;
    let started = |plan: &Plan| {
        if !args.common.quiet {
            preamble(args, &data, plan).into_iter().for_each(say);
        }
    };
    let mut names = vec!["weights.json".to_string(), "weights.npz".to_string()];
    names.extend(VALUE_PICTURES.iter().flat_map(|stem| output::picture_names(&experiment, stem)));
    let job = Task {
        experiment,
        base: Path::new(""),
        out: &args.out,
        common: &args.common,
        quick: false,
        json: false,
        started: &started,
        built,
        began,
    };
    let extra = Extra { names, make: &|plan, results, config| weights(args, &data, plan, results, config) };
    Ok(job.run(&extra)?.status)
}

/// The experiment of the options, without reading the logs. If the options name no features, it has features that do
/// not depend on the data.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &EvaluateArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    let features = named_features(args)?.unwrap_or(FeatureSpec::Identity { bias: false });
    read_with(args, kinds, &Choice::before(args), features, args.logs.len())
}

/// The features that the options name.
fn named_features(args: &EvaluateArgs) -> Result<Option<FeatureSpec>> {
    let parse = |text: &String| text.parse().map_err(|e: BadInput| e.about("--features"));
    args.features.as_ref().map(parse).transpose()
}

/// The experiment of the options, with these features.
fn read_with(args: &EvaluateArgs, kinds: &Kinds, choice: &Choice, features: FeatureSpec, agents: usize) -> Result<Experiment, Error> {
    let mut document = Document::of_table(experiment(args, kinds, choice, features, agents)?, origins(args, choice)).with_kinds(kinds);
    apply(&Overrides { set: args.set.clone(), ..Overrides::default() }, &mut document)?;
    Experiment::read(document)
}

/// The experiment of the options, and the logs that they name.
fn prepare(args: &EvaluateArgs, kinds: &Kinds) -> Result<(Experiment, Data, Option<BuiltProblem>), Error> {
    // What methods cost is known for clear links only.
    if let Some(set) = args.set.iter().find(|set| args.method == AUTO && set.split('=').next().is_some_and(|key| key.contains("uplink"))) {
        let what = format!("--method auto with --set {}: costs over links that alter or lose messages are not compared", quoted(set));
        return Err(BadInput::new("--method", what, "--method NAME: lstd, fedhsa or another one that works over the link"));
    }
    // Options are checked before the logs are read; those of local steps even if no method with local steps may be chosen.
    let unread = read(args, kinds)?;
    unread.settings()?;
    let files = DiskFiles::new(Places::from_env(""));
    // Features that were logged are the default where every log has some. What cannot be opened is refused below.
    let logged = args.features.is_none() && logs::has_features(&args.logs, &files.places).unwrap_or(false);
    let unread = if logged { read_with(args, kinds, &Choice::before(args), FeatureSpec::Columns {}, args.logs.len())? } else { unread };
    if args.method == AUTO {
        let with_steps = Choice { kind: "fedhsa".into(), ..Choice::before(args) };
        read_with(args, kinds, &with_steps, FeatureSpec::Identity { bias: false }, args.logs.len())?.settings()?;
    }
    let [point] = &unread.points[..] else {
        return Err(BadInput::new("--set", "a sweep", "one evaluation; sweeps belong in an experiment file, for fedsa run"));
    };
    let settings = |experiment: &Experiment| -> Result<Logs> {
        let mut table = experiment.points[0].sections().problem.and_then(|problem| problem.as_table().cloned()).unwrap_or_default();
        table.remove("kind");
        fedsa_experiment::config::read(Value::Table(table))
    };
    let logs = settings(&unread).and_then(|settings| settings.survey(&files));
    let logs = logs.map_err(|e| unread.failure_at(e.inside("problem"), point))?;
    let (agents, columns) = (logs.facts.len(), logs.columns().len());
    let default = if logged { FeatureSpec::Columns {} } else { default_features(columns) };
    let features = named_features(args)?.unwrap_or(default);
    let first = read_with(args, kinds, &Choice::before(args), features, agents)?;
    let settled = settings(&first).and_then(|settings| Ok((settings.map(&logs)?, settings)));
    let (map, settings) = settled.map_err(|e| first.failure_at(e.inside("problem"), &first.points[0]))?;
    let value_columns = value_pictures::named_columns(&args.value_columns, map.columns())?;
    if map.sparse().is_some() && !logs.held.is_empty() {
        let what = format!("--holdout with {} features", map.len());
        return Err(BadInput::new("--holdout", what, format!("at most {SPARSE_ABOVE} tiles, whose projections are computed")));
    }
    if args.method != AUTO || args.sampling != "mean" {
        return Ok((first, Data { logs, settings, map, choice: Choice::before(args), value_columns }, None));
    }
    // The choice knows the problem, which is then that of the run.
    let built = BuiltProblem::new(&first, &files, Isa::best())?;
    let choice = Choice::of(args, built.field()).map_err(|e| first.failure_at(e, &first.points[0]))?;
    let experiment = read_with(args, kinds, &choice, features, agents)?;
    Ok((experiment, Data { logs, settings, map, choice, value_columns }, Some(built)))
}

/// The default features: as many as can be evaluated quickly.
fn default_features(columns: usize) -> FeatureSpec {
    let fourier = [3, 2, 1].map(|order| (FeatureSpec::Fourier { order }, 64));
    let all = fourier.into_iter().chain([(FeatureSpec::Polynomial { order: 2 }, 100)]);
    let small = all.into_iter().find(|(spec, most)| spec.count(columns).is_some_and(|d| d <= *most));
    small.map_or(FeatureSpec::Polynomial { order: 1 }, |(spec, _)| spec)
}

/// The residual to reach by default, as a multiple of that at zero weights.
const TOL: f64 = 1e-12;

/// The smallest multiple of the residual at zero weights that rounding lets a solution be sure to reach: products with the mean
/// matrix have errors of some `eps ||A|| ||theta*||`. 0 where it is not known.
fn rounding(field: &dyn Field) -> f64 {
    /// Roundings that add up.
    const MANY: f64 = 64.0;
    let (Some(systems), Some(root)) = (field.systems(), field.root()) else { return 0.0 };
    let mean = systems.mean();
    let at_zero = linalg::norm_sq(&mean.b).sqrt();
    let size = mean.a.norm_l2() * linalg::norm_sq(root).sqrt() + at_zero;
    if at_zero > 0.0 { MANY * f64::EPSILON * size / at_zero } else { 0.0 }
}

/// The name of the choice among methods.
const AUTO: &str = "auto";

/// The kind of method that accelerates another one, and the one that it accelerates here: without a bias, and without state
/// of the agents, in which acceleration brings less.
const ANDERSON: &str = "anderson";
const ANDERSON_BASE: &str = "fedhsa";

/// The method that runs.
struct Choice {
    kind: String,
    /// Its settings, if they are not those of the options.
    settings: Option<Table>,
    /// The number of rounds that suffices, where it is known.
    rounds: Option<u64>,
    /// The residual to reach, as a multiple of that at zero weights; 0 for none.
    tol: f64,
    /// Its cost, and those of the methods that were not chosen; empty where the user named the method.
    lines: Vec<String>,
    /// The picture of these costs.
    picture: Option<Picture>,
}

impl Choice {
    /// The method that the options name; a method that could be chosen in place of `auto`, before the data are known.
    fn before(args: &EvaluateArgs) -> Self {
        let kind = match args.method.as_str() {
            // Samples are for methods that take steps.
            AUTO if args.sampling != "mean" => "fedhsa",
            AUTO => "lstd",
            kind => kind,
        };
        Self { kind: kind.into(), settings: None, rounds: None, tol: args.tol.unwrap_or(TOL), lines: Vec::new(), picture: None }
    }

    /// The method that reaches the target with the fewest bits, for `auto`.
    fn of(args: &EvaluateArgs, field: &dyn Field) -> Result<Self> {
        let (eta, h) = (step_size(args), local_steps(args) as usize);
        let first_order: Vec<(&'static str, Box<dyn MethodSettings>)> = vec![
            ("scafflsa", Box::new(Scafflsa::new(eta, h))),
            ("fedhsa", Box::new(FedHsa::new(eta, h))),
            ("fedlsa", Box::new(FedLsa::new(eta, h))),
        ];
        let checked = first_order.into_iter().filter(|(_, method)| method.check(field.agents()).is_ok()).collect();
        let memory = machine::available()?.map_or(f64::INFINITY, |available| 0.5 * available.bytes);
        // Of a bound two digits are enough.
        let two_digits = |x: f64| format!("{:.1e}", 1.05 * x).parse().unwrap_or(x);
        let allowed = rounding(field);
        let tol = args.tol.unwrap_or_else(|| if allowed > TOL { two_digits(allowed) } else { TOL });
        let target = if tol > 0.0 { tol } else { TOL };
        let limits = Limits { target, may_send_matrices: !args.keep_matrices, memory };
        let mut all = cost::candidates(field, &limits, checked);
        // The cheapest is the first. Without any cost: a Krylov space that starts anew as often as it has to.
        if all[0].cost.is_err() {
            let gmres = all.iter().position(|candidate| candidate.kind == "gmres").expect("gmres is a candidate");
            all[..=gmres].rotate_right(1);
        }
        let chosen = &all[0];
        let steps = format!("step size {}, {} local steps", numbers::typed(eta), h);
        let line = |candidate: &Candidate| {
            let name = if takes(&Kinds::default(), candidate.kind, "local_steps") {
                format!("{} ({steps})", candidate.kind)
            } else {
                candidate.kind.to_string()
            };
            match &candidate.cost {
                Ok(Cost { rounds, is_bound, bits }) => {
                    let about = if !is_bound {
                        "about "
                    } else if *rounds > 1.0 {
                        "at most "
                    } else {
                        ""
                    };
                    let plural = if *rounds > 1.0 { "s" } else { "" };
                    let rounds = if *is_bound { numbers::thousands(*rounds) } else { numbers::about(*rounds) };
                    format!("{name}: {about}{rounds} round{plural}, {}", megabits(*bits))
                }
                Err(why) => format!("{name}: {}", why.what),
            }
        };
        let goal = format!("{} of the residual at zero weights", numbers::typed(target));
        let mut lines = match &chosen.cost {
            Ok(_) => vec![format!("{}, the fewest bits to {goal}", line(chosen))],
            Err(_) => vec![format!("{}; chosen because no cost to {goal} is known beforehand", line(chosen))],
        };
        if args.tol.is_none() && target > TOL {
            lines.push("  rounding does not allow the usual 1e-12".into());
        }
        lines.extend(all[1..].iter().map(|candidate| format!("  {}", line(candidate))));
        let considered = all
            .iter()
            .map(|candidate| Considered { kind: candidate.kind, cost: candidate.cost.as_ref().copied().map_err(|why| why.what.clone()) });
        let picture = value_pictures::methods(&considered.collect::<Vec<_>>(), target, &steps);
        let table = Value::try_from(&chosen.settings).expect("plain settings").as_table().cloned();
        // Twice the bound: rounding may leave more than the target.
        let rounds = chosen.cost.as_ref().ok().filter(|cost| cost.is_bound).map(|cost| 2 * cost.rounds as u64);
        Ok(Self { kind: chosen.kind.into(), settings: table, rounds, tol, lines, picture })
    }
}

/// A number of bits for people.
fn megabits(bits: f64) -> String {
    if bits < 1e9 { format!("{} Mbit", numbers::digits(bits / 1e6, 3)) } else { format!("{} Gbit", numbers::digits(bits / 1e9, 3)) }
}

/// The report before the run: the data, the method, and the estimated time.
fn preamble(args: &EvaluateArgs, data: &Data, plan: &Plan) -> Vec<String> {
    /// The largest number of columns that are listed; more are only counted.
    const LISTED: usize = 20;
    let Data { logs, settings, map, choice, .. } = data;
    let columns = map.columns();
    let kind = if map.spec().inputs() == Inputs::Features { "feature column" } else { "state column" };
    let mut lines =
        vec![format!("{}, {}, {}", count(logs.facts.len(), "agent"), count(logs.transitions(), "transition"), count(columns.len(), kind))];
    if !logs.held.is_empty() {
        let transitions: usize = logs.held.iter().map(Log::len).sum();
        lines.push(format!("  {} of held-out episodes are not among these", count(transitions, "transition")));
    }
    let ranges = map.ranges();
    for column in columns.iter().take(LISTED) {
        lines.push(match (ranges.get(column), settings.ranges.contains_key(column)) {
            (Some((low, high)), true) => format!("  {column} from {low} to {high}, as given"),
            (Some((low, high)), false) => {
                format!("  {column} from {} to {}, from the data", numbers::digits(*low, 6), numbers::digits(*high, 6))
            }
            (None, _) => format!("  {column} as it is, without a range"),
        });
    }
    if columns.len() > LISTED {
        lines.push(format!("  .. and {}", count(columns.len() - LISTED, "further column")));
    }
    let chosen = match map.spec() {
        _ if args.features.is_some() => String::new(),
        FeatureSpec::Columns {} => ", the default for logs that have them; --features takes others".into(),
        _ => format!(", the default for {}; --features takes others", count(columns.len(), "state column")),
    };
    lines.push(format!("{} of {}{chosen}", count(map.len(), "feature"), map.spec()));
    lines.extend(dependence(settings, plan.field(0)));
    lines.extend(ratios(logs, settings));
    if !logs.facts.iter().any(|log| log.has_rewards) {
        lines.push("all rewards are 0, and so are the values and their weights".into());
        return lines;
    }
    lines.extend(choice.lines.iter().cloned());
    if choice.lines.is_empty() {
        lines.extend(prediction(plan));
    }
    lines
}

/// What is said of features that depend on each other.
fn dependence(settings: &Logs, field: &dyn Field) -> Option<String> {
    let Ok(Root { source: Source::LeastNorm { rank }, theta }) = field.solution() else { return None };
    let d = theta.len();
    let what = format!("  {rank} of {d} directions of these features are independent on these transitions: of all solutions");
    let help = if settings.ridge == 0.0 { "; --ridge EPS makes it unique" } else { "" };
    Some(format!("{what} the one of least norm is meant{help}"))
}

/// How the logs' importance ratios are used, with a warning for each agent of which few transitions carry the weight.
fn ratios(logs: &Surveyed, settings: &Logs) -> Vec<String> {
    /// The share of the transitions below which an effective sample size is small.
    const SMALL: f64 = 0.1;
    /// The largest number of agents that are named.
    const NAMED: usize = 10;
    let sizes: Vec<(&LogFacts, f64)> = logs.facts.iter().filter_map(|log| Some((log, log.effective_size?))).collect();
    let (with, column) = (count(sizes.len(), "agent"), "the column `ratio`");
    if sizes.is_empty() {
        return Vec::new();
    } else if !settings.ratios {
        return vec![format!("{column} of {with} is not used (problem.ratios = false)")];
    }
    let mut lines = vec![format!("importance ratios from {column} of {with}; --set problem.ratios=false leaves them out")];
    let small: Vec<_> = sizes.iter().filter(|(log, size)| *size < SMALL * log.transitions as f64).collect();
    lines.extend(small.iter().take(NAMED).map(|(log, size)| {
        let (size, n) = (numbers::digits(*size, 3), numbers::thousands(log.transitions as f64));
        format!("  warning: {}: the ratios leave an effective sample size of {size} of {n} transitions; its part is uncertain", log.name)
    }));
    if small.len() > NAMED {
        lines.push(format!("  warning: and so do those of {}", count(small.len() - NAMED, "further agent")));
    }
    lines
}

/// The predicted number of rounds and time until the target, if known: without noise
/// the residual falls asymptotically by the radius in every round.
fn prediction(plan: &Plan) -> Vec<String> {
    let (field, cell) = (plan.field(0), &plan.cells[0]);
    let (shape, run) = (cell.shape(), &cell.run);
    let seconds = estimate::duration(plan).total;
    let allowed = format!("--rounds allows {}, {}", numbers::thousands(run.rounds as f64), duration(seconds));
    let Some(target) = run.stop.relative_residual else { return vec![allowed] };
    let goal = format!("the residual is {} of that at zero weights", numbers::typed(target));
    let forecast = plan.forecast(0);
    let radius = forecast.radius().ok().filter(|radius| forecast.is_noiseless() && *radius < 1.0);
    let Some(radius) = radius else {
        return vec![format!("it ends when {goal}; {allowed}")];
    };
    let residual = |theta: &[f64]| field.mean_operator(theta).map_or(f64::NAN, |g| linalg::norm_sq(&g).sqrt());
    let at_zero = residual(&vec![0.0; field.dim()]);
    if shape.drift == Drift::Zero
        && let (Ok(limit), Some(root)) = (plan.forecast(0).limit(), field.root())
        && residual(&limit) > target * at_zero
    {
        let away = (linalg::distance_sq(&limit, root) / linalg::norm_sq(root)).sqrt();
        let label = &cell.method.kind;
        return vec![
            format!(
                "{label} will not reach the target ({goal}): its limit is {} of the solution's norm away, because the agents differ",
                numbers::percent(away)
            ),
            format!("  fewer local steps bring it nearer; scafflsa and fedhsa have no such limit; {allowed}"),
        ];
    }
    let rounds = (target.ln() / radius.max(f64::MIN_POSITIVE).ln()).ceil().max(1.0);
    let time = duration(seconds / run.rounds as f64 * rounds);
    let plural = if rounds < 1.5 { "" } else { "s" };
    let needed = format!("about {} round{plural} until {goal}, {time}", numbers::about(rounds));
    if rounds > run.rounds as f64 {
        let more = "more --rounds, a larger --step-size or more --local-steps would help";
        vec![format!("will need {needed}"), format!("  {allowed}: it will stop before the target; {more}")]
    } else {
        vec![format!("will need {needed}")]
    }
}

/// The largest number of features whose names `weights.json` lists.
const NAMED: usize = 1 << 16;

/// `weights.json`, `weights.npz` and the pictures that have something to show; also prints a summary of the weights.
fn weights(args: &EvaluateArgs, data: &Data, plan: &Plan, results: &Results, config: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let field = plan.field(0);
    let result = &results.cells[0][0];
    let Data { logs, settings, map, .. } = data;
    let (rank, root) = match field.solution() {
        Ok(Root { theta, source: Source::LeastNorm { rank } }) => (Some(*rank), Some(theta)),
        Ok(Root { theta, .. }) => (Some(theta.len()), Some(theta)),
        // Sparse systems are not solved as a whole.
        Err(_) => (None, None),
    };
    let comparison = match &logs.held[..] {
        [] => None,
        held => Some(Comparison::new(held, map, settings.rule(), field, &result.theta)?),
    };
    let covariance = match field.systems() {
        None => None,
        Some(systems) => uncertainty::covariance(logs, map, settings.rule(), &systems.mean().a, &result.theta)?,
    };
    let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(null) };
    let distance = root.map(|root| linalg::distance_sq(&result.theta, root).sqrt());
    let norm = root.map(|root| linalg::norm_sq(root).sqrt());
    let rounds = result.rows.last().map_or(0, |r| r.round);
    let outcome = result.outcome(&plan.cells[0].run.stop);
    let scale = Some(map.scale()).filter(|scale| !scale.is_empty());
    let weights = json!({
        "format": 1,
        "features": (map.len() <= NAMED).then(|| map.names()),
        "feature_map": map.spec(),
        "scale": scale,
        "columns": map.columns(),
        "ranges": map.ranges(),
        "gamma": settings.gamma,
        "lambda": settings.lambda,
        "ridge": settings.ridge,
        "rank": rank,
        "agents": logs.facts.iter().map(|log| json!({ "name": log.name, "transitions": log.transitions })).collect::<Vec<_>>(),
        "method": plan.cells[0].method.kind,
        "outcome": outcome.name(),
        "rounds": rounds,
        "exchanges": result.rows.last().map_or(0, |r| r.ledger.exchanges),
        "bits": result.rows.last().map_or(0, |r| r.ledger.bits_up + r.ledger.bits_down),
        "theta": result.theta.iter().map(|x| finite(*x)).collect::<Vec<_>>(),
        "theta_se": covariance.as_ref().map(|c| c.standard_errors().into_iter().map(finite).collect::<Vec<_>>()),
        "residual": field.mean_operator(&result.theta).map(|g| finite(linalg::norm_sq(&g).sqrt())),
        "residual_asked": result.residual_asked(&plan.cells[0].run.stop).map(finite),
        "lstd": root,
        "distance_to_lstd": distance.map(finite),
        "lstd_norm": norm,
        "holdout": comparison.as_ref().map(|comparison| comparison.json(settings.holdout, settings.holdout_seed)),
    });
    let d = result.theta.len();
    let mut arrays = Arrays::new();
    arrays.insert("theta", Array::new(vec![d], result.theta.clone())?);
    if let Some(root) = root {
        arrays.insert("lstd", Array::new(vec![d], root.to_vec())?);
    }
    if let Some(scale) = scale {
        arrays.insert("scale", Array::new(vec![d], scale.to_vec())?);
    }
    if let Some(covariance) = &covariance {
        arrays.insert("theta_cov", Array::new(vec![d, d], covariance.rows.clone())?);
        if !covariance.null.is_empty() {
            arrays.insert("theta_null", Array::new(vec![covariance.null.len() / d, d], covariance.null.clone())?);
        }
    }
    arrays.insert("gamma", Array::scalar(settings.gamma));
    arrays.insert("format", Array::scalar(1.0));
    if !args.common.quiet {
        let away = distance
            .zip(norm)
            .map(|(distance, norm)| format!("; distance to the pooled LSTD solution {} (its norm {})", number(distance), number(norm)));
        say(format!("{} after {}{}", count(d, "weight"), count(rounds as usize, "round"), away.unwrap_or_default()));
        comparison.iter().flat_map(Comparison::lines).for_each(say);
        say(args.out.join("weights.json").display());
    }
    let mut files =
        vec![("weights.json".to_string(), format!("{weights:#}\n").into_bytes()), ("weights.npz".to_string(), npz::to_bytes(&arrays)?)];
    // Values after a divergence show nothing.
    let (value, returns) = match result.diverged {
        Some(_) => (None, None),
        None => (
            value_picture(data, &result.theta, covariance.as_ref()),
            value_pictures::returns(&logs.held, map, settings.rule(), &result.theta)?,
        ),
    };
    for (stem, picture) in VALUE_PICTURES.into_iter().zip([value.as_ref(), returns.as_ref(), data.choice.picture.as_ref()]) {
        files.extend(picture.map_or_else(Vec::new, |picture| output::pictures(plan, stem, picture, config)));
    }
    Ok(files)
}

/// The picture of the value function. Features that were logged are no states, between which values could be shown; only those
/// that the user names are.
fn value_picture(data: &Data, theta: &[f64], covariance: Option<&Covariance>) -> Option<Picture> {
    let Data { logs, map, value_columns, .. } = data;
    if map.spec().inputs() == Inputs::Features && value_columns.is_empty() {
        return None;
    }
    value_pictures::value(map, theta, covariance, &SeenStates::of(&logs.facts), value_columns)
}

/// The option from which each key of the experiment comes, for messages.
fn origins(args: &EvaluateArgs, choice: &Choice) -> Vec<Origin> {
    let ranges = args.range.iter().map(|r| format!("--range {r}")).collect::<Vec<_>>().join(" ");
    let flags = [
        ("problem.path", format!("LOGS {}", quoted(args.logs.join(" ")))),
        (
            "problem.features",
            args.features.as_ref().map_or("the default of --features".into(), |features| format!("--features {}", quoted(features))),
        ),
        ("problem.ranges", quoted(ranges)),
        ("problem.gamma", format!("--gamma {}", numbers::typed(args.gamma))),
        ("problem.lambda", format!("--lambda {}", numbers::typed(args.lambda))),
        ("problem.ridge", format!("--ridge {}", numbers::typed(args.ridge))),
        ("problem.scaling", args.scaling.as_ref().map_or(String::new(), |scaling| format!("--scaling {}", quoted(scaling)))),
        ("problem.holdout", args.holdout.map_or(String::new(), |share| format!("--holdout {}", numbers::typed(share)))),
        ("sampling.kind", format!("--sampling {}", quoted(&args.sampling))),
        ("method[0].kind", format!("--method {}", quoted(if args.method == AUTO { &choice.kind } else { &args.method }))),
        ("method[0].step_size", format!("--step-size {}", numbers::typed(step_size(args)))),
        ("method[0].local_steps", format!("--local-steps {}", local_steps(args))),
        ("method[0].base.step_size", format!("--step-size {}", numbers::typed(step_size(args)))),
        ("method[0].base.local_steps", format!("--local-steps {}", local_steps(args))),
        ("method[0].talk_probability", format!("--local-steps {}", local_steps(args))),
        ("run.rounds", format!("--rounds {}", args.rounds)),
        ("run.seeds", format!("--seed {}", args.seed)),
        ("run.stop", format!("--tol {}", numbers::typed(choice.tol))),
    ];
    // Ranges that are not given come from the data.
    let said = flags.into_iter().filter(|(_, flag)| !flag.is_empty());
    said.map(|(key, flag)| super::option(key, flag)).collect()
}

/// H; 100 if it is not given.
fn local_steps(args: &EvaluateArgs) -> u64 {
    args.local_steps.unwrap_or(100)
}

/// The step size; 1 if it is not given.
fn step_size(args: &EvaluateArgs) -> f64 {
    args.step_size.unwrap_or(1.0)
}

/// Whether this is a key of this kind of method.
pub(super) fn takes(kinds: &Kinds, kind: &str, key: &str) -> bool {
    kind_of(kinds, kind).is_ok_and(|kind| config::takes(kind, key))
}

/// The kind of method that a name stands for: its own, or that of a preset.
///
/// # Errors
/// When there is no such method; the message names the nearest one.
pub(super) fn kind_of<'k>(kinds: &'k Kinds, name: &str) -> Result<&'k Kind<dyn MethodSettings>> {
    let kind = presets::find(name).map_or(name, |preset| preset.method);
    find_kind(kinds.methods(), &mut Table::from_iter([("kind".to_string(), text(kind))]), "method")
}

/// The experiment of the options as a table.
fn experiment(args: &EvaluateArgs, kinds: &Kinds, choice: &Choice, features: FeatureSpec, agents: usize) -> Result<Table, BadInput> {
    let mut ranges = Table::new();
    for range in &args.range {
        let bad = || BadInput::new("--range", format!("`{}`", quoted(range)), "COLUMN=LOW,HIGH, such as s_0=-1.2,0.6");
        let (column, bounds) = range.split_once('=').ok_or_else(bad)?;
        let (low, high) = bounds.split_once(',').ok_or_else(bad)?;
        let number = |s: &str| s.trim().parse::<f64>().map(Value::Float).map_err(|_| bad());
        if ranges.insert(column.trim().into(), Value::Array(vec![number(low)?, number(high)?])).is_some() {
            let what = format!("`{}` has two ranges", quoted(column.trim()));
            return Err(BadInput::new("--range", what, "one range for each state column"));
        }
    }
    let mut problem = vec![
        ("kind", text("logs")),
        ("path", Value::Array(args.logs.iter().map(|s| text(s)).collect())),
        ("features", Value::try_from(features).expect("plain settings")),
        ("ranges", Value::Table(ranges)),
        ("gamma", Value::Float(args.gamma)),
        ("lambda", Value::Float(args.lambda)),
    ];
    if args.ridge != 0.0 {
        problem.push(("ridge", Value::Float(args.ridge)));
    }
    if let Some(scaling) = &args.scaling {
        problem.push(("scaling", text(scaling)));
    }
    if let Some(share) = args.holdout {
        problem.extend([("holdout", Value::Float(share)), ("holdout_seed", Value::Integer(args.seed as i64))]);
    }
    let kind = choice.kind.as_str();
    let mut method = choice.settings.clone().unwrap_or_default();
    method.insert("kind".into(), text(kind));
    if choice.settings.is_none() {
        // A method without local steps, or with one in a round, has no such keys; a value that was given is refused, but
        // under auto, where it is one of other methods.
        let is_given = |is_given: bool| is_given && args.method != AUTO;
        if kind == ANDERSON {
            let steps = [("step_size", Value::Float(step_size(args))), ("local_steps", Value::Integer(local_steps(args) as i64))];
            let base = [("kind", text(ANDERSON_BASE))].into_iter().chain(steps).collect();
            method.insert("base".into(), table(base));
        } else if is_given(args.step_size.is_some()) || takes(kinds, kind, "step_size") {
            method.insert("step_size".into(), Value::Float(step_size(args)));
        }
        if kind == ANDERSON {
            // The options are those of its base.
        } else if kind == "scafflsa-random" {
            method.insert("talk_probability".into(), Value::Float(1.0 / local_steps(args) as f64));
        } else if is_given(args.local_steps.is_some()) || takes(kinds, kind, "local_steps") {
            method.insert("local_steps".into(), Value::Integer(local_steps(args) as i64));
        }
    }
    // Few rounds are recorded, and looked at for the target, one by one.
    let rounds = choice.rounds.map_or(args.rounds, |rounds| rounds.min(args.rounds));
    let mut run = vec![("rounds", Value::Integer(rounds as i64)), ("seeds", Value::Array(vec![Value::Integer(args.seed as i64)]))];
    if choice.tol != 0.0 {
        run.push(("stop", table(vec![("relative_residual", Value::Float(choice.tol))])));
    }
    // Methods that solve or accelerate need few rounds: each is looked at for the target.
    if ["lstd", "gmres", "newton", ANDERSON].contains(&kind) {
        run.push(("record", table(vec![("every", Value::Integer(1))])));
    }
    let sampling = table(vec![("kind", text(&args.sampling))]);
    let title = format!("Policy evaluation by {kind} from {}", count(agents, "agent"));
    let experiment = table(vec![
        ("id", text("evaluate")),
        ("title", Value::String(title)),
        ("problem", table(problem)),
        ("sampling", sampling),
        ("method", Value::Array(vec![Value::Table(method)])),
        ("run", table(run)),
    ]);
    Ok(experiment.as_table().cloned().expect("a table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_features_are_few() {
        let by_columns: Vec<String> = (1..=14).map(|k| default_features(k).to_string()).collect();
        assert_eq!(by_columns[..6], ["fourier:3", "fourier:3", "fourier:3", "fourier:1", "fourier:1", "fourier:1"]);
        assert!(by_columns[6..12].iter().all(|spec| spec == "polynomial:2"), "{by_columns:?}");
        assert!(by_columns[12..].iter().all(|spec| spec == "polynomial:1"), "{by_columns:?}");
        assert!((1..=60).all(|k| default_features(k).count(k).is_some_and(|d| d <= 100)));
    }

    #[test]
    fn the_help_names_all_kinds_of_methods() {
        let text = methods(&Kinds::default());
        for name in fedsa::methods::KINDS.iter().map(|kind| kind.name).chain(PRESETS.iter().map(|preset| preset.name)) {
            assert!(text.contains(name), "{name}: {text}");
        }
    }
}
