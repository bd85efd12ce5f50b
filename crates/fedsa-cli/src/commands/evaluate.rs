//! `fedsa evaluate`: fits the weights of a value function to logged transitions.
//!
//! [`mod@fedsa_experiment::evaluate`] does the work. In addition to the usual outputs of a run the command writes `weights.json`,
//! `weights.npz` and pictures. Before the run it prints what it read, and the estimated time.

use fedsa::error::{Error, Result, quoted};
use fedsa_experiment::choose::{Choice, Considered, Cost, Why};
use fedsa_experiment::config::Experiment;
use fedsa_experiment::deployment;
use fedsa_experiment::evaluate::{AUTO, FeatureChoice, LogsRead};
use fedsa_experiment::evaluate::{Data, EvaluateSettings, Evaluated, Evaluation, Expectation, ExpectedCourse, PictureWords};
use fedsa_experiment::made::takes;
use fedsa_experiment::numbers::{self, number};
use fedsa_experiment::{Kinds, Plan};
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log::Log;
use fedsa_problems::logs::source::Inputs;

use super::progress::Watcher;
use super::run::{check_out, ended, finished, if_exists, settings as run_settings};
use super::{changes, count, duration, episodes, federation, holdout, lacking, megabits, say, signals, table_lines};
use crate::args::EvaluateArgs;
use crate::hints;

/// The options that captions mention.
const WORDS: PictureWords<'_> = PictureWords { chooser: "--method auto", value_columns: "--value-columns" };

/// The error with help in options of the program.
fn in_options(e: Error, settings: &EvaluateSettings) -> Error {
    if e.key == "changes" {
        let help = format!("{}, for fedsa run", e.help);
        return e.about("set").helped(help);
    }
    lacking(e, [&settings.method], &[])
}

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn evaluate(args: &EvaluateArgs, kinds: &Kinds) -> Result<u8, Error> {
    evaluate_logs(args, kinds).map_err(|e| in_options(e, &args.settings))
}

fn evaluate_logs(args: &EvaluateArgs, kinds: &Kinds) -> Result<u8, Error> {
    // The costs of methods are known for clear links only.
    let is_auto = args.settings.method == AUTO;
    if let Some(set) = args.task.set.iter().find(|set| is_auto && set.split('=').next().is_some_and(|key| key.contains("uplink"))) {
        let what = format!("--method auto with --set {}: costs over links that alter or lose messages are not compared", quoted(set));
        return Err(Error::new("--method", what, "--method NAME: lstd, fedhsa or another one that works over the link"));
    }
    let (out, common) = (&args.out, &args.common);
    check_out(&args.task, &args.out, &args.common)?;
    let evaluation = Evaluation::new(&settings(args, kinds), signals::cancel())?;
    if let Some(dir) = &args.task.federation {
        return federation::write_task(dir, &deployment::of_evaluation(&evaluation)?);
    }
    let (began, id) = (evaluation.began(), evaluation.experiment().id.clone());
    let before = Before::of(&args.settings, &evaluation);
    let planned = |plan: &Plan| {
        if !common.quiet {
            before.lines(plan).into_iter().for_each(say);
        }
    };
    let watcher = Watcher::new(common, began, &planned);
    let run = run_settings(common).in_folder(out, if_exists(common.resume, common.overwrite));
    let outcome = evaluation.run(run, &watcher, signals::cancel())?;
    let (status, _) = ended(outcome, &id, out, common, |evaluated| {
        watcher.hide();
        if !common.quiet {
            report(&evaluated).into_iter().for_each(say);
            say(out.join("weights.json").display());
        }
        log::info!("writing {}", out.display());
        evaluated.write(&WORDS)?;
        Ok(finished(&evaluated.ran, out, common, false))
    })?;
    Ok(status)
}

/// The experiment of the options, without reading the logs. If the options name no features, it has features that do
/// not depend on the data.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &EvaluateArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    settings(args, kinds).experiment()
}

/// The settings of the options, with these kinds.
fn settings(args: &EvaluateArgs, kinds: &Kinds) -> EvaluateSettings {
    EvaluateSettings { changes: changes(&args.task), kinds: kinds.clone(), ..args.settings.clone() }
}

/// The chosen method with its cost, and the others with theirs.
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

/// The inputs of the report before the run.
struct Before {
    lines: Vec<String>,
    has_rewards: bool,
    chosen: Vec<String>,
    /// Features that would take less time, if there are many.
    fewer: String,
    /// Whether the chosen method's cost is unknown.
    is_unknown: bool,
}

impl Before {
    /// The inputs from the settings, the data and the method.
    fn of(asked: &EvaluateSettings, evaluation: &Evaluation) -> Self {
        let has_rewards = evaluation.data.logs.facts.iter().any(|log| log.has_rewards);
        let chosen = evaluation.choice.as_ref().map_or(Vec::new(), chosen);
        let lines = data(asked, &evaluation.data);
        let is_unknown = evaluation.choice.as_ref().is_some_and(|choice| choice.why == Why::NoCostKnown);
        Self { lines, has_rewards, chosen, fewer: hints::text(&evaluation.data.fewer_features()), is_unknown }
    }

    /// The report before the run: the data, the method, and the estimated time.
    fn lines(&self, plan: &Plan) -> Vec<String> {
        let mut lines = self.lines.clone();
        if !self.has_rewards {
            return lines;
        }
        lines.extend(self.chosen.iter().cloned());
        if self.chosen.is_empty() || self.is_unknown {
            lines.extend(prediction(plan));
        }
        // A run of up to a minute needs no hint.
        if Expectation::of(plan).most_seconds > 60.0 && (self.is_unknown || !self.fewer.is_empty()) {
            lines.push(format!("  {}a larger --tol, such as 1e-6, or a --ridge ends earlier", self.fewer));
        }
        lines
    }
}

/// The lines about logs and their features.
fn data(asked: &EvaluateSettings, data: &Data) -> Vec<String> {
    /// The largest number of columns that are listed; others are only counted.
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
    lines.extend(episodes::lines(&LogsRead::of(&data.logs, &data.episodes), asked.gamma));
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
        _ if asked.features.is_some() => String::new(),
        FeatureSpec::Columns {} => ", the default for logs that have them; --features takes others".into(),
        _ => format!(", the default for {}; --features takes others", count(columns.len(), "state column")),
    };
    lines.push(format!("{} of {}{chosen}", count(map.len(), "feature"), map.spec()));
    lines.extend(data.features.iter().flat_map(tried));
    let ridge = if data.policy_value.is_relative { ", relative to the features' mean square; --ridge 0 takes none" } else { "" };
    lines.push(format!("ridge {}{ridge}", numbers::typed(settings.ridge)));
    lines
}

/// The tried features with their errors.
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
    std::iter::once(title).chain(each).collect()
}

/// The predicted number of rounds and time until the target, if known.
fn prediction(plan: &Plan) -> Vec<String> {
    let Expectation { max_rounds, most_seconds, target, course, .. } = Expectation::of(plan);
    let allowed = format!("--max-rounds allows {}, {}", numbers::thousands(max_rounds as f64), duration(most_seconds));
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
            if rounds > max_rounds as f64 {
                let more = "more --max-rounds, a larger --step-size or more --local-steps would help";
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
