//! `fedsa reproduce`: bundled experiments.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fedsa::error::Error;
use fedsa_data::find::Places;
use fedsa_experiment::Kinds;
use fedsa_experiment::bundled::{ALL, Bundled, NeededData, choose, missing_data, needed_data};
use fedsa_experiment::config::Experiment;
use fedsa_experiment::folder::{self, Holds};

use super::run::{self, in_folder};
use super::{complain, count, duration, say};
use crate::args::{Common, ReproduceArgs};
use crate::error::{DONE, INTERRUPTED, status_of};
use crate::hints::in_options;

/// Runs the command.
///
/// # Errors
/// On bad input: an unknown id, a missing data set.
pub fn reproduce(args: &ReproduceArgs) -> Result<u8, Error> {
    if args.list {
        return list();
    }
    let chosen = choose(args.id.as_deref().unwrap_or("all"))?;
    if args.print {
        chosen.iter().for_each(|b| say(b.text.trim_end()));
        return Ok(DONE);
    }
    if let [only] = chosen[..] {
        let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(only.id));
        return Ok(one(experiment(only, args)?, args, &out, &args.common)?.0);
    }
    several(&chosen, args)
}

/// Lists all experiments: id, time, title, and the required data sets, with whether they are available.
fn list() -> Result<u8, Error> {
    let places = Places::from_env("");
    for bundled in ALL {
        let experiment = bundled.experiment()?;
        let there = |data: &NeededData| if data.find(&places).is_ok() { "there" } else { "missing" };
        let data: Vec<String> = needed_data(&experiment).iter().map(|data| format!("{} ({})", data.name, there(data))).collect();
        let needs = if data.is_empty() { String::new() } else { format!("; needs {}", data.join(", ")) };
        say(format!("{:22} {:12} {}{needs}", bundled.id, duration(bundled.seconds), experiment.title));
    }
    Ok(DONE)
}

/// Runs several experiments. Experiments whose data is missing are skipped.
fn several(chosen: &[&Bundled], args: &ReproduceArgs) -> Result<u8, Error> {
    let parent = args.out.clone().unwrap_or_else(|| PathBuf::from("out"));
    let (mut experiments, mut skipped) = (Vec::new(), Vec::new());
    for bundled in chosen {
        let experiment = experiment(bundled, args)?;
        match missing_data(&experiment, &Places::from_env("")) {
            None => experiments.push((*bundled, experiment)),
            Some(missing) => skipped.push((bundled.id, missing)),
        }
    }
    let skips = |(id, e): &(&str, Error)| format!("{id}: skipped, its data is missing: {e}");
    if experiments.is_empty() {
        let what = skipped.iter().map(skips).collect::<Vec<_>>().join("; ");
        return Err(Error::new("", what, skipped.first().map_or(String::new(), |(_, e)| e.help.clone())));
    }
    let say = |line: String| {
        if !args.common.quiet {
            say(line);
        }
    };
    skipped.iter().for_each(|skip| say(skips(skip)));
    if let Some((_, e)) = skipped.first() {
        say(format!("  {}", e.help));
    }
    let (mut not_as_expected, mut notes, count_of) = (Vec::new(), 0, experiments.len());
    for (bundled, experiment) in experiments {
        let out = parent.join(bundled.id);
        // Experiments that had not begun before an interruption are started.
        let resume = args.common.resume && folder::holds(&out) != Holds::Nothing;
        match one(experiment, args, &out, &Common { resume, ..args.common.clone() }) {
            Ok((INTERRUPTED, _)) => return Ok(INTERRUPTED),
            Ok((status, more)) => {
                notes += more;
                if status != DONE {
                    not_as_expected.push((bundled.id, status));
                }
            }
            // The other experiments still run.
            Err(e) => {
                let (e, status) = (in_options(e.clone()), status_of(&e));
                let what = format!("{}: {e}", bundled.id);
                complain(e.about("").saying(what));
                not_as_expected.push((bundled.id, status));
            }
        }
    }
    let ids: Vec<&str> = not_as_expected.iter().map(|(id, _)| *id).collect();
    let mut line = vec![count(count_of, "experiment")];
    line.push(match (ids.is_empty(), notes) {
        (false, _) => format!("not as expected: {}", ids.join(", ")),
        (true, 0) => "all as expected".into(),
        (true, _) => format!("as expected, except for {}", count(notes, "note")),
    });
    if !skipped.is_empty() {
        line.push(format!("{} skipped because data is missing", skipped.len()));
    }
    say(line.join(", "));
    Ok(not_as_expected.iter().map(|(_, status)| *status).max().unwrap_or(DONE))
}

fn experiment(bundled: &Bundled, args: &ReproduceArgs) -> Result<Experiment, Error> {
    super::parse(&bundled.file_name(), bundled.text, &args.overrides, args.quick, &Kinds::default())
}

/// Runs one experiment; its exit status, and the number of notes.
fn one(experiment: Experiment, args: &ReproduceArgs, out: &Path, common: &Common) -> Result<(u8, usize), Error> {
    in_folder(experiment, run::settings(common).with_quick(args.quick), out, common, false, Instant::now())
}
