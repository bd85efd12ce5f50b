//! `fedsa improve`: finds a policy that chooses better actions from logged transitions.
//!
//! [`mod@fedsa_experiment::improve`] does the work. In addition to the usual outputs of a run the command writes `policy.json`. Its first
//! line says whether the new policy may be worse than the one that acted.

use fedsa::error::Error;
use fedsa_experiment::Kinds;
use fedsa_experiment::config::Experiment;
use fedsa_experiment::deployment;
use fedsa_experiment::improve::{ImproveData, ImproveSettings, Improved, POLICY, PolicySearch, RidgeReason, value_in_words};
use fedsa_experiment::numbers;
use fedsa_problems::logs::log::Log;

use super::progress::Watcher;
use super::run::{check_out, ended, finished, if_exists, settings as run_settings};
use super::{changes, count, episodes, federation, megabits, say, signals, table_lines};
use crate::args::ImproveArgs;

/// Runs the command.
///
/// # Errors
/// On bad input; nothing is then written.
pub fn improve(args: &ImproveArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (out, common) = (&args.out, &args.common);
    let settings = settings(args, kinds);
    check_out(&args.task, &args.out, &args.common)?;
    let search = PolicySearch::new(&settings, signals::cancel())?;
    if let Some(dir) = &args.task.federation {
        return federation::write_task(dir, &deployment::of_improvement(&search)?);
    }
    let (began, id) = (search.began(), search.experiment().id.clone());
    let before = data(&search.data);
    let planned = |_: &fedsa_experiment::Plan| {
        if !common.quiet {
            before.iter().for_each(say);
        }
    };
    let watcher = Watcher::new(common, began, &planned);
    let run = run_settings(common).in_folder(out, if_exists(common.resume, common.overwrite));
    let outcome = search.run(run, &watcher, signals::cancel())?;
    let (status, _) = ended(outcome, &id, out, common, |improved| {
        watcher.hide();
        if !common.quiet {
            report(&improved).into_iter().for_each(say);
            say(out.join(POLICY).display());
        }
        log::info!("writing {}", out.display());
        improved.write()?;
        Ok(finished(&improved.ran, out, common, false))
    })?;
    Ok(status)
}

/// The experiment of the options, without reading the logs.
///
/// # Errors
/// When an option cannot be used.
pub fn read(args: &ImproveArgs, kinds: &Kinds) -> Result<Experiment, Error> {
    settings(args, kinds).experiment()
}

/// The settings of the options, with these kinds.
fn settings(args: &ImproveArgs, kinds: &Kinds) -> ImproveSettings {
    ImproveSettings { changes: changes(&args.task), kinds: kinds.clone(), ..args.settings.clone() }
}

/// The lines about logs, features and the ridge.
fn data(data: &ImproveData) -> Vec<String> {
    let ImproveData { logs, map, settings, ridge, .. } = data;
    let held: usize = logs.held.iter().map(Log::len).sum();
    let mut lines = vec![format!(
        "{}, {}, {} actions ({})",
        count(logs.facts.len(), "agent"),
        count(logs.transitions(), "transition"),
        settings.actions.len(),
        settings.actions.join(", ")
    )];
    if held > 0 {
        lines.push(format!("  {} of held-out episodes are not among these", count(held, "transition")));
    }
    lines.extend(episodes::lines(&data.read, settings.gamma));
    lines.push(format!("{} of {} for each action", count(map.len(), "feature"), map.spec()));
    let chosen = match ridge {
        None => "",
        Some(choice) => match choice.reason {
            RidgeReason::Value => ", by the values of policies on held-out episodes",
            RidgeReason::Usual => ", near the usual one: no policy that was tried is surely better on held-out episodes",
            RidgeReason::Unsettled => ", the usual one: the iteration settles with none that was tried",
        },
    };
    lines.push(format!("ridge {}{chosen}", numbers::typed(settings.ridge)));
    lines
}

/// The lines after the run. The first says whether things may have become worse.
fn report(improved: &Improved) -> Vec<String> {
    let first = match &improved.value {
        None => "WHETHER THE NEW POLICY IS BETTER IS NOT KNOWN".to_string(),
        Some(value) if value.is_impossible() => "THE NEW POLICY MAY BE WORSE: its value on held-out episodes is impossible".into(),
        Some(value) if value.may_be_worse() => format!("THE NEW POLICY MAY BE WORSE: {}", value_in_words(value)),
        Some(value) => format!("a better policy: {}", value_in_words(value)),
    };
    let result = &improved.ran.results.cells[0][0];
    let (rounds, bits) = result.rows.last().map_or((0, 0), |row| (row.round, row.ledger.bits_up + row.ledger.bits_down));
    let degrees = numbers::digits(improved.degrees, 3);
    let mut lines = vec![first];
    lines.push(format!(
        "{} after {}, {}; {degrees} degrees of freedom",
        count(improved.theta.len(), "weight"),
        count(rounds as usize, "round"),
        megabits(bits as f64)
    ));
    lines.extend(improved.tables().iter().flat_map(table_lines));
    lines
}
