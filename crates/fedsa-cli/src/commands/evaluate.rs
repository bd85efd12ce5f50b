//! `fedsa evaluate`: logged transitions to the weights of a value function.
//!
//! [`mod@fedsa_experiment::evaluate`] does the work. In addition to the usual outputs of a run the command writes `weights.json`,
//! `weights.npz` and pictures. Before the run it prints what it read, and how long the run will take.

use std::collections::BTreeMap;

use fedsa::error::{Error, ErrorKind, Result, quoted};
use fedsa::problem::Field;
use fedsa::problem::features::FeatureSpec;
use fedsa::problem::log::Log;
use fedsa::problem::log_form::BadRows;
use fedsa::problem::logs::Logs;
use fedsa::problem::policy_value::FEWEST_EPISODES;
use fedsa::problem::root::{Root, RootSource};
use fedsa::problem::source::Inputs;
use fedsa::problem::survey::{LogFacts, RatioClipping, Surveyed};
use fedsa_experiment::choose::{Choice, Considered, Cost, Why};
use fedsa_experiment::config::Experiment;
use fedsa_experiment::config::document::{Document, Origin};
use fedsa_experiment::evaluate::{Data, EvaluateSettings, Evaluated, Evaluation, Expectation, ExpectedCourse, PictureWords};
use fedsa_experiment::evaluate::{FeatureChoice, LogsRead};
use fedsa_experiment::evaluate::{LOCAL_STEPS, STEP_SIZE};
use fedsa_experiment::made::{Changes, takes};
use fedsa_experiment::numbers::{self, number};
use fedsa_experiment::tables::SummaryTable;
use fedsa_experiment::{Kinds, Plan};

use super::fewer_features::fewer_features;
use super::progress::Watcher;
use super::run::{ended, finished, if_exists, settings as run_settings};
use super::{apply, count, duration, episodes, holdout, megabits, named_columns, option, say, signals};
use crate::args::{BadRowsArg, EvaluateArgs, Overrides};
use crate::hints;

/// The name of the choice among methods.
const AUTO: &str = "auto";

/// The options that captions name.
const WORDS: PictureWords<'_> = PictureWords { chooser: "--method auto", value_columns: "--value-columns" };

/// The settings of an evaluation that errors are about, and their options.
const SETTINGS: [(&str, &str); 9] = [
    ("level", "--level"),
    ("against", "--against"),
    ("value_columns", "--value-columns"),
    ("holdout", "--holdout"),
    ("method", "--method"),
    ("local_steps", "--local-steps"),
    ("rounds", "--rounds"),
    ("seed", "--seed"),
    ("changes", "--set"),
];

/// The error with options in place of settings.
fn in_options(e: Error) -> Error {
    match SETTINGS.iter().find(|(setting, _)| *setting == e.key && e.place().is_none()) {
        Some((_, option)) => {
            let more = if e.key == "changes" { ", for fedsa run" } else { "" };
            let help = format!("{}{more}", hints::text_with(&e.help, &SETTINGS));
            e.about(*option).helped(help)
        }
        None => hints::with(e, &FILES),
    }
}

/// The settings of files that errors about them name.
const FILES: [(&str, &str); 3] = [("columns", "--columns"), ("agent_column", "--agent-column"), ("bad_rows", "--bad-rows")];

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn evaluate(args: &EvaluateArgs, kinds: &Kinds) -> Result<u8, Error> {
    evaluate_logs(args, kinds).map_err(in_options)
}

fn evaluate_logs(args: &EvaluateArgs, kinds: &Kinds) -> Result<u8, Error> {
    // What methods cost is known for clear links only.
    if let Some(set) = args.set.iter().find(|set| args.method == AUTO && set.split('=').next().is_some_and(|key| key.contains("uplink"))) {
        let what = format!("--method auto with --set {}: costs over links that alter or lose messages are not compared", quoted(set));
        return Err(Error::new("--method", what, "--method NAME: lstd, fedhsa or another one that works over the link"));
    }
    let (out, common) = (&args.out, &args.common);
    let evaluation = Evaluation::new(&settings(args, kinds)?, signals::cancel())?;
    let (began, id) = (evaluation.began(), evaluation.experiment().id.clone());
    let before = Before::of(args, &evaluation);
    let planned = |plan: &Plan| {
        if !common.quiet {
            before.lines(plan).into_iter().for_each(say);
        }
    };
    let watcher = Watcher::new(common, began, &planned);
    let run = run_settings(common).in_folder(out, if_exists(common.resume, common.overwrite));
    let outcome = evaluation.run(run, &watcher, signals::cancel()).map_err(|e| before.with_proposal(e))?;
    let (status, _) = ended(outcome, &id, out, common, |evaluated| {
        watcher.hide();
        if !common.quiet {
            report(&evaluated).into_iter().for_each(say);
            say(out.join("weights.json").display());
        }
        log::info!("writing {}", out.display());
        evaluated.write(&WORDS)?;
        Ok(finished(&evaluated.ran, out, common, false, "evaluate"))
    })?;
    Ok(status)
}

/// The experiment of the options, without reading the logs. If the options name no features, it has features that do
/// not depend on the data.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &EvaluateArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    settings(args, kinds)?.experiment()
}

/// The settings of the options.
fn settings(args: &EvaluateArgs, kinds: &Kinds) -> Result<EvaluateSettings> {
    /// The most features that are chosen.
    const MOST_FEATURES: u64 = 256;
    let named = args.features.as_ref().filter(|text| *text != AUTO);
    let is_chosen = args.features.is_some() && named.is_none();
    if let (Some(most), false) = (args.most_features, is_chosen) {
        return Err(Error::new("--most-features", format!("{most} without --features auto"), "--features auto beside it"));
    }
    let features = named.map(|text| text.parse().map_err(|e: Error| e.about("--features"))).transpose()?;
    let mut settings = EvaluateSettings::new(&args.logs)
        .with_columns(named_columns(&args.columns)?)
        .with_agent_column(args.agent_column.clone())
        .with_bad_rows(if args.bad_rows == BadRowsArg::Skip { BadRows::Skip } else { BadRows::Refuse })
        .with_ranges(ranges(args)?)
        .with_gamma(args.gamma)
        .with_lambda(args.lambda)
        .with_operator(&args.operator)
        .with_kappa(args.kappa)
        .with_clip_ratios(args.clip_ratios)
        .with_ridge(args.ridge)
        .with_keep_matrices(args.keep_matrices)
        .with_sampling(&args.sampling)
        .with_rounds(args.rounds)
        .with_seed(args.seed)
        .with_level(args.level)
        .with_against(args.against.clone())
        .with_value_columns(args.value_columns.clone())
        .with_kinds(kinds.clone());
    settings.features = features;
    settings.choose_features = is_chosen.then(|| args.most_features.unwrap_or(MOST_FEATURES) as usize);
    settings.scaling = args.scaling.clone();
    settings.method = Some(args.method.clone()).filter(|method| method != AUTO);
    settings.step_size = args.step_size;
    settings.local_steps = args.local_steps;
    settings.tol = args.tol;
    settings.holdout = args.holdout;
    let (given, set) = (args.clone(), Overrides { set: args.set.clone(), ..Overrides::default() });
    Ok(settings.with_changes(Changes::new(move |document| {
        let origins = origins(&given, document);
        document.origins.extend(origins);
        apply(&set, document)
    })))
}

/// The ranges of `--range`.
fn ranges(args: &EvaluateArgs) -> Result<BTreeMap<String, [f64; 2]>> {
    let mut ranges = BTreeMap::new();
    for range in &args.range {
        let bad = || Error::new("--range", format!("`{}`", quoted(range)), "COLUMN=LOW,HIGH, such as s_0=-1.2,0.6");
        let (column, bounds) = range.split_once('=').ok_or_else(bad)?;
        let (low, high) = bounds.split_once(',').ok_or_else(bad)?;
        let number = |s: &str| s.trim().parse::<f64>().map_err(|_| bad());
        if ranges.insert(column.trim().to_string(), [number(low)?, number(high)?]).is_some() {
            let what = format!("`{}` has two ranges", quoted(column.trim()));
            return Err(Error::new("--range", what, "one range for each state column"));
        }
    }
    Ok(ranges)
}

/// The option from which each key of the experiment comes, for messages.
fn origins(args: &EvaluateArgs, document: &Document) -> Vec<Origin> {
    let (step_size, local_steps) = (args.step_size.unwrap_or(STEP_SIZE), args.local_steps.unwrap_or(LOCAL_STEPS));
    let chosen = document.table.get("method").and_then(|methods| methods.get(0)?.get("kind")?.as_str()).unwrap_or_default();
    let stop = document.table.get("run").and_then(|run| run.get("stop")?.get("relative_residual")?.as_float()).unwrap_or(0.0);
    let ranges = args.range.iter().map(|r| format!("--range {r}")).collect::<Vec<_>>().join(" ");
    let flags = [
        ("problem.path", "LOGS".into()),
        ("problem.columns", if_any("--columns", &args.columns)),
        ("problem.agent_column", args.agent_column.as_ref().map_or(String::new(), |column| format!("--agent-column {}", quoted(column)))),
        ("problem.bad_rows", if args.bad_rows == BadRowsArg::Skip { "--bad-rows skip".into() } else { String::new() }),
        (
            "problem.features",
            args.features.as_ref().map_or("the default of --features".into(), |features| format!("--features {}", quoted(features))),
        ),
        ("problem.ranges", quoted(ranges)),
        ("problem.gamma", format!("--gamma {}", numbers::typed(args.gamma))),
        ("problem.lambda", format!("--lambda {}", numbers::typed(args.lambda))),
        ("problem.operator", format!("--operator {}", quoted(&args.operator))),
        ("problem.kappa", args.kappa.map_or(String::new(), |kappa| format!("--kappa {}", numbers::typed(kappa)))),
        ("problem.ridge", format!("--ridge {}", numbers::typed(args.ridge))),
        ("problem.clip_ratios", args.clip_ratios.map_or(String::new(), |level| format!("--clip-ratios {}", numbers::typed(level)))),
        ("problem.scaling", args.scaling.as_ref().map_or(String::new(), |scaling| format!("--scaling {}", quoted(scaling)))),
        ("problem.holdout", args.holdout.map_or(String::new(), |share| format!("--holdout {}", numbers::typed(share)))),
        ("sampling.kind", format!("--sampling {}", quoted(&args.sampling))),
        ("method[0].kind", format!("--method {}", quoted(if args.method == AUTO { chosen } else { &args.method }))),
        ("method[0].step_size", format!("--step-size {}", numbers::typed(step_size))),
        ("method[0].local_steps", format!("--local-steps {}", local_steps)),
        ("method[0].base.step_size", format!("--step-size {}", numbers::typed(step_size))),
        ("method[0].base.local_steps", format!("--local-steps {}", local_steps)),
        ("method[0].talk_probability", format!("--local-steps {}", local_steps)),
        ("run.rounds", format!("--rounds {}", args.rounds)),
        ("run.seeds", format!("--seed {}", args.seed)),
        ("run.stop", format!("--tol {}", numbers::typed(stop))),
    ];
    // Ranges that are not given come from the data.
    let said = flags.into_iter().filter(|(_, flag)| !flag.is_empty());
    said.map(|(key, flag)| option(key, flag)).collect()
}

/// An option with its values, if there are any.
fn if_any(option: &str, values: &[String]) -> String {
    if values.is_empty() { String::new() } else { format!("{option} {}", quoted(values.join(","))) }
}

/// The chosen method with its cost, and those that were not chosen with theirs.
fn chosen(choice: &Choice) -> Vec<String> {
    let steps = format!("step size {}, {} local steps", numbers::typed(choice.demand.step_size), choice.demand.local_steps);
    let line = |candidate: &Considered| {
        let name = if takes(&Kinds::default(), candidate.kind, "local_steps") {
            format!("{} ({steps})", candidate.kind)
        } else {
            candidate.kind.to_string()
        };
        match &candidate.cost {
            Ok(Cost { rounds, is_bound, bits }) => {
                let about = match (is_bound, *rounds > 1.0) {
                    (false, _) => "about ",
                    (true, true) => "at most ",
                    (true, false) => "",
                };
                let plural = if *rounds > 1.0 { "s" } else { "" };
                let rounds = if *is_bound { numbers::thousands(*rounds) } else { numbers::about(*rounds) };
                format!("{name}: {about}{rounds} round{plural}, {}", megabits(*bits))
            }
            Err(why) => format!("{name}: {}", why.what),
        }
    };
    let goal = format!("{} of the residual at zero weights", numbers::typed(choice.target));
    let first = line(&choice.considered[0]);
    let mut lines = match choice.why {
        Why::Cheapest(_) => vec![format!("{first}, the fewest bits to {goal}")],
        Why::NoCostKnown => vec![format!("{first}; chosen because no cost to {goal} is known beforehand")],
    };
    if choice.is_limited_by_rounding() {
        lines.push("  rounding does not allow the usual 1e-12".into());
    }
    lines.extend(choice.considered[1..].iter().map(|candidate| format!("  {}", line(candidate))));
    lines
}

/// What the report before the run is about.
struct Before {
    lines: Vec<String>,
    ratios: Vec<String>,
    settings: Logs,
    has_rewards: bool,
    chosen: Vec<String>,
    /// Features that would take less, where there are many.
    fewer: String,
    /// Whether a method was chosen whose cost is not known.
    is_unknown: bool,
}

impl Before {
    /// The data and the method.
    fn of(args: &EvaluateArgs, evaluation: &Evaluation) -> Self {
        let Data { logs, settings, .. } = &evaluation.data;
        let has_rewards = logs.facts.iter().any(|log| log.has_rewards);
        let chosen = evaluation.choice.as_ref().map_or(Vec::new(), chosen);
        let (mut lines, ratios) = (data(args, &evaluation.data), ratios(logs, settings));
        lines.extend(cut_off(logs, settings));
        lines.extend(clipped(&evaluation.data));
        lines.extend(labels(&evaluation.data, args));
        let is_unknown = evaluation.choice.as_ref().is_some_and(|choice| choice.why == Why::NoCostKnown);
        Self { lines, ratios, settings: settings.clone(), has_rewards, chosen, fewer: fewer_features(&evaluation.data), is_unknown }
    }

    /// The error about a lack of memory with the features that need less.
    fn with_proposal(&self, e: Error) -> Error {
        if e.kind() != ErrorKind::NoMemory || self.fewer.is_empty() {
            return e;
        }
        let help = format!("{}{}", self.fewer, e.help);
        e.helped(help)
    }

    /// The report before the run: the data, the method, and the estimated time.
    fn lines(&self, plan: &Plan) -> Vec<String> {
        let mut lines = self.lines.clone();
        lines.extend(dependence(&self.settings, plan.field(0)));
        lines.extend(self.ratios.iter().cloned());
        if !self.has_rewards {
            lines.push("all rewards are 0, and so are the values and their weights".into());
            return lines;
        }
        lines.extend(self.chosen.iter().cloned());
        if self.chosen.is_empty() || self.is_unknown {
            lines.extend(prediction(plan));
        }
        // Nobody minds a minute.
        if Expectation::of(plan).most_seconds > 60.0 && (self.is_unknown || !self.fewer.is_empty()) {
            lines.push(format!("  {}a larger --tol, such as 1e-6, or a --ridge ends earlier", self.fewer));
        }
        lines
    }
}

/// What is said of the logs and their features.
fn data(args: &EvaluateArgs, data: &Data) -> Vec<String> {
    /// The largest number of columns that are listed; more are only counted.
    const LISTED: usize = 20;
    let Data { logs, settings, map, .. } = data;
    let columns = map.columns();
    let kind = if map.spec().inputs() == Inputs::Features { "feature column" } else { "state column" };
    let mut lines =
        vec![format!("{}, {}, {}", count(logs.facts.len(), "agent"), count(logs.transitions(), "transition"), count(columns.len(), kind))];
    if !logs.held.is_empty() {
        let transitions: usize = logs.held.iter().map(Log::len).sum();
        lines.push(format!("  {} of held-out episodes are not among these", count(transitions, "transition")));
    }
    lines.extend(episodes::lines(&LogsRead::of(data), args.gamma));
    let ranges = map.ranges();
    let is_left_out = |name: &String| columns.iter().position(|column| column == name).is_some_and(|j| !map.takes(j));
    for column in columns.iter().take(LISTED) {
        lines.push(match (ranges.get(column), settings.ranges.contains_key(column)) {
            (Some((low, high)), true) => format!("  {column} from {low} to {high}, as given"),
            (Some((low, high)), false) => {
                format!("  {column} from {} to {}, from the data", numbers::digits(*low, 6), numbers::digits(*high, 6))
            }
            (None, _) if is_left_out(column) => format!("  {column} is in none of the features"),
            (None, _) => format!("  {column} as it is, without a range"),
        });
    }
    if columns.len() > LISTED {
        lines.push(format!("  .. and {}", count(columns.len() - LISTED, "further column")));
    }
    let chosen = match map.spec() {
        _ if data.features.is_some() => ", chosen by --features auto".into(),
        _ if args.features.is_some() => String::new(),
        FeatureSpec::Columns {} => ", the default for logs that have them; --features takes others".into(),
        _ => format!(", the default for {}; --features takes others", count(columns.len(), "state column")),
    };
    lines.push(format!("{} of {}{chosen}", count(map.len(), "feature"), map.spec()));
    lines.extend(data.features.iter().flat_map(tried));
    lines
}

/// The features that were tried with their errors.
fn tried(choice: &FeatureChoice) -> Vec<String> {
    let each = choice.tried.iter().map(|tried| {
        let d = tried.features.map_or(String::new(), |d| format!(", {}", count(d, "feature")));
        match &tried.error {
            Ok((rms, se)) => {
                let se = se.map_or(String::new(), |se| format!(" ({})", number(se)));
                format!("    {}{d}: {}{se}", tried.spec, number(*rms))
            }
            Err(e) => format!("    {}{d}: left out, {}", tried.spec, e.what),
        }
    });
    let episodes = count(choice.episodes, "held-out episode");
    let title = format!("  errors against the returns of {episodes}, root mean square (standard error), at most {} features:", choice.most);
    let few = (choice.episodes < FEWEST_EPISODES).then(|| format!("fewer than {FEWEST_EPISODES} episodes judge them"));
    let cut = choice.held.saturating_sub(choice.episodes);
    let atypical = (2 * cut > choice.held).then(|| {
        format!("{cut} of {} held-out episodes are cut short and have no return: those that ended may be of another kind", choice.held)
    });
    let warnings: Vec<String> = few.into_iter().chain(atypical).collect();
    let warning = (!warnings.is_empty()).then(|| format!("  warning: {}; --features names others", warnings.join(", and ")));
    std::iter::once(title).chain(each).chain(warning).collect()
}

/// What is said of features that depend on each other.
fn dependence(settings: &Logs, field: &dyn Field) -> Option<String> {
    let Ok(Root { source: RootSource::LeastNorm { rank }, theta }) = field.solution() else { return None };
    let (d, rank) = match (settings.operator.has_auxiliary(), field.facts().projected_bellman()) {
        (true, Some(error)) => (theta.len() / 2, error.minimiser().rank),
        _ => (theta.len(), *rank),
    };
    if rank == d {
        return None;
    }
    let what = format!("  {rank} of {d} directions of these features are independent on these transitions: of all solutions");
    let help = if settings.ridge == 0.0 { "; --ridge EPS makes it unique" } else { "" };
    Some(format!("{what} the one of least norm is meant{help}"))
}

/// The columns of which states are outside of the range that was given.
fn clipped(data: &Data) -> Vec<String> {
    let ranges = data.map.ranges();
    let each = data.map.columns().iter().zip(&data.clipped).filter(|(_, count)| **count > 0);
    let line = |(column, count): (&String, &usize)| {
        let share = numbers::percent(*count as f64 / data.logs.transitions() as f64);
        let (lo, hi) = ranges.get(column).copied().unwrap_or_default();
        let (column, lo, hi) = (quoted(column), numbers::typed(lo), numbers::typed(hi));
        format!("  warning: `{column}` is outside of its range {lo},{hi} in {share} of the states, which count as its ends")
    };
    each.map(line).collect()
}

/// What is said of states that may be numbers of states, and are taken as quantities.
fn labels(data: &Data, args: &EvaluateArgs) -> Option<String> {
    /// The most values of all columns together that are likely to be labels.
    const MOST: f64 = 5000.0;
    let is_taken_as_is = matches!(data.map.spec(), FeatureSpec::Columns {} | FeatureSpec::OneHot {});
    let ranges = data.logs.whole_ranges().filter(|_| !is_taken_as_is && args.features.is_none())?;
    let values: f64 = ranges.iter().map(|(lo, hi)| hi - lo + 1.0).product();
    let all = if ranges.len() == 1 { "the state column is" } else { "all state columns are" };
    let count = numbers::thousands(values);
    (values <= MOST)
        .then(|| format!("  {all} whole numbers, of {count} values in all: if they are labels, --features one-hot has a weight for each"))
}

/// Where traces start anew because rows do not follow each other.
fn cut_off(logs: &Surveyed, settings: &Logs) -> Option<String> {
    let cut: usize = logs.facts.iter().map(|log| log.cut_off).sum();
    let (rows, agents) = (numbers::thousands(cut as f64), count(logs.facts.iter().filter(|log| log.cut_off > 0).count(), "agent"));
    let what =
        format!("{rows} of {} rows of {agents} begin elsewhere than the row before ended", numbers::thousands(logs.transitions() as f64));
    (settings.lambda > 0.0 && cut > 0)
        .then(|| format!("  {what}: traces start anew there; a column `episode` would say where episodes begin"))
}

/// How the logs' importance ratios are used, with a warning for each agent of which few transitions carry the weight.
fn ratios(logs: &Surveyed, settings: &Logs) -> Vec<String> {
    /// The share of the transitions below which an effective sample size is small.
    const SMALL: f64 = 0.1;
    /// The largest number of agents that are named.
    const NAMED: usize = 10;
    let sizes: Vec<(&LogFacts, f64)> = logs.facts.iter().filter_map(|log| Some((log, log.effective_size?))).collect();
    let with = count(sizes.len(), "agent");
    if sizes.is_empty() {
        return Vec::new();
    } else if !settings.ratios {
        return vec![format!("the importance ratios of {with} are not used (problem.ratios = false)")];
    }
    let mut lines = vec![format!("importance ratios of {with}; --set problem.ratios=false leaves them out")];
    lines.extend(clipping(logs));
    lines.extend(far_from_one(&sizes).take(NAMED));
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

/// How many ratios are clipped, and what their mean loses by it: of all agents, and of those that lose most.
fn clipping(logs: &Surveyed) -> Vec<String> {
    /// The largest number of agents that are named.
    const NAMED: usize = 10;
    let clipped = |log: &LogFacts| Some((log.transitions, log.clipping?, log.mean_ratio?));
    let mut all: Vec<_> = logs.facts.iter().filter_map(|log| Some((log.name.as_str(), clipped(log)?))).collect();
    let line = |name: &str, n: f64, count: f64, before: f64, after: f64| {
        let (before, after) = (numbers::digits(before, 4), numbers::digits(after, 4));
        format!("{name}: {} of the ratios are clipped, their mean falls from {before} to {after}", numbers::percent(count / n))
    };
    let Some((_, (_, RatioClipping { level, .. }, _))) = all.first() else { return Vec::new() };
    let sum = |of: &dyn Fn(f64, RatioClipping, f64) -> f64| all.iter().map(|(_, (n, clip, mean))| of(*n as f64, *clip, *mean)).sum::<f64>();
    let n = sum(&|n, _, _| n);
    let (before, after) = (sum(&|n, clip, _| n * clip.mean_before) / n, sum(&|n, _, mean| n * mean) / n);
    let title = format!("  clipped at {}", numbers::typed(*level));
    let mut lines = vec![line(&title, n, sum(&|_, clip, _| clip.clipped as f64), before, after)];
    lines.push("  what the mean loses, 1 being right, is weight of actions that the evaluated policy prefers: a bias".into());
    if all.len() > 1 {
        let loss = |(_, (_, clip, mean)): &(&str, (usize, RatioClipping, f64))| clip.mean_before - mean;
        all.sort_by(|x, y| loss(y).total_cmp(&loss(x)));
        let named = all.iter().take(NAMED);
        lines.extend(
            named.map(|(name, (n, clip, mean))| format!("    {}", line(name, *n as f64, clip.clipped as f64, clip.mean_before, *mean))),
        );
    }
    lines
}

/// Warnings about agents whose mean ratio is not 1 by more than chance: five of its standard errors, and a tenth.
fn far_from_one<'a>(sizes: &'a [(&LogFacts, f64)]) -> impl Iterator<Item = String> + 'a {
    sizes.iter().filter_map(|(log, size)| {
        let mean = log.clipping.map_or(log.mean_ratio?, |clip| clip.mean_before);
        // The variance of the ratios from sum^2 / sum of squares; of clipped ones it is smaller.
        let n = log.transitions as f64;
        let error = mean * ((n / size - 1.0).max(0.0) / n).sqrt();
        let is_far = (mean - 1.0).abs() > (5.0 * error).max(0.1);
        let said = numbers::digits(mean, 3);
        is_far.then(|| format!("  warning: {}: the mean ratio is {said}, and should be 1: are they those of these policies?", log.name))
    })
}

/// The predicted number of rounds and time until the target, if known.
fn prediction(plan: &Plan) -> Vec<String> {
    let Expectation { most_rounds, most_seconds, target, course, .. } = Expectation::of(plan);
    let allowed = format!("--rounds allows {}, {}", numbers::thousands(most_rounds as f64), duration(most_seconds));
    let Some(target) = target else { return vec![allowed] };
    let goal = format!("the residual is {} of that at zero weights", numbers::typed(target));
    match course {
        ExpectedCourse::Missed { away } => {
            let label = &plan.cells[0].method.kind;
            let away = numbers::percent(away);
            vec![
                format!(
                    "{label} will not reach the target ({goal}): its limit is {away} of the solution's norm away, because the agents differ"
                ),
                format!("  fewer local steps bring it nearer; scafflsa and fedhsa have no such limit; {allowed}"),
            ]
        }
        ExpectedCourse::Reached { rounds, seconds } => {
            let (plural, time) = (if rounds < 1.5 { "" } else { "s" }, duration(seconds));
            let mut lines = vec![format!("will need about {} round{plural} until {goal}, {time}", numbers::about(rounds))];
            if rounds > most_rounds as f64 {
                let more = "more --rounds, a larger --step-size or more --local-steps would help";
                lines.push(format!("  {allowed}: it will stop before the target; {more}"));
            }
            lines
        }
        _ => vec![format!("it ends when {goal}; {allowed}")],
    }
}

/// A summary of the weights.
fn report(evaluated: &Evaluated) -> Vec<String> {
    let away = evaluated
        .distance_to_lstd()
        .map(|(distance, norm)| format!("; distance to the pooled LSTD solution {} (its norm {})", number(distance), number(norm)));
    let (weights, rounds) = (count(evaluated.theta().len(), "weight"), count(evaluated.rounds() as usize, "round"));
    let mut lines = vec![format!("{weights} after {rounds}{}", away.unwrap_or_default())];
    if let Some((start, end)) = evaluated.projected_errors() {
        lines.push(format!("projected Bellman error {} at the start, {} at the end", number(start), number(end)));
    }
    lines.extend(evaluated.policy_value_tables().iter().flat_map(table_lines));
    lines.extend(evaluated.comparison.iter().flat_map(holdout::lines));
    lines
}

/// A table with its title and notes.
fn table_lines(table: &SummaryTable) -> Vec<String> {
    let title = format!("{}:", table.title);
    let below = table.lines().into_iter().chain(table.notes.iter().cloned()).map(|line| format!("  {line}"));
    std::iter::once(title).chain(below).collect()
}
