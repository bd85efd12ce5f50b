//! `fedsa reproduce`: bundled experiments.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fedsa::error::{Error, quoted};
use fedsa_data::datasets;
use fedsa_data::find::Places;
use fedsa_experiment::Kinds;
use fedsa_experiment::bundled::{ALL, Bundled};
use fedsa_experiment::config::{Document, Experiment, nearest};
use fedsa_experiment::folder::{self, Holds};

use super::run::{self, in_folder};
use super::{complain, count, duration, say};
use crate::args::{Common, ReproduceArgs};
use crate::error::{DONE, INTERRUPTED, status_of};
use crate::hints::in_options;

/// The extensions of files with logs and arrays.
const DATA: &[&str] = &["parquet", "csv", "npz"];

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
        let experiment = Experiment::read(Document::parse(&file_name(bundled), bundled.text)?)?;
        let there = |source: &Source| if source.found(&places).is_ok() { "there" } else { "missing" };
        let data: Vec<String> = data(&experiment).iter().map(|source| format!("{} ({})", source.name, there(source))).collect();
        let needs = if data.is_empty() { String::new() } else { format!("; needs {}", data.join(", ")) };
        say(format!("{:22} {:12} {}{needs}", bundled.id, duration(bundled.seconds), experiment.title));
    }
    Ok(DONE)
}

/// What a problem reads.
#[derive(PartialEq)]
struct Source {
    name: String,
    /// Whether it has rows of regression; logs or arrays otherwise.
    has_rows: bool,
}

impl Source {
    /// Looks for its files.
    fn found(&self, places: &Places) -> Result<(), Error> {
        let files = if self.has_rows { datasets::files(std::slice::from_ref(&self.name), places) } else { places.files(&self.name, DATA) };
        files.map(|_| ())
    }
}

/// The data sets that the problems of an experiment name, each once.
fn data(experiment: &Experiment) -> Vec<Source> {
    let mut all: Vec<Source> = Vec::new();
    for problem in experiment.points.iter().filter_map(|point| point.sections().problem) {
        for (key, has_rows) in [("path", false), ("data", true)] {
            let names = problem.get(key).map_or(&[][..], |names| names.as_array().map_or(std::slice::from_ref(names), Vec::as_slice));
            for name in names.iter().filter_map(|name| name.as_str()) {
                let source = Source { name: name.to_string(), has_rows };
                if !all.contains(&source) {
                    all.push(source);
                }
            }
        }
    }
    all
}

/// Runs several experiments. Experiments whose data is missing are skipped.
fn several(chosen: &[&Bundled], args: &ReproduceArgs) -> Result<u8, Error> {
    let parent = args.out.clone().unwrap_or_else(|| PathBuf::from("out"));
    let (mut experiments, mut skipped) = (Vec::new(), Vec::new());
    for bundled in chosen {
        let experiment = experiment(bundled, args)?;
        match missing_data(&experiment) {
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
        // Experiments that an interruption left undone are started.
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
    super::parse(&file_name(bundled), bundled.text, &args.overrides, args.quick, &Kinds::default())
}

/// The first missing data set of an experiment, if there is one.
fn missing_data(experiment: &Experiment) -> Option<Error> {
    let places = Places::from_env("");
    data(experiment).iter().find_map(|source| source.found(&places).err())
}

/// Runs one experiment; its exit status, and the number of notes.
fn one(experiment: Experiment, args: &ReproduceArgs, out: &Path, common: &Common) -> Result<(u8, usize), Error> {
    in_folder(experiment, run::settings(common).with_quick(args.quick), out, common, false, Instant::now())
}

/// The name of a bundled file in messages.
fn file_name(bundled: &Bundled) -> String {
    format!("experiments/{}.toml", bundled.id)
}

fn choose(id: &str) -> Result<Vec<&'static Bundled>, Error> {
    let chosen: Vec<&Bundled> = ALL.iter().filter(|b| id == "all" || b.id == id || b.id.starts_with(&format!("{id}/"))).collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let near = nearest(id, ALL.iter().map(|b| b.id)).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let help = format!("all, or one of {}", ALL.iter().map(|b| b.id).collect::<Vec<_>>().join(", "));
    Err(Error::new("", format!("there is no bundled experiment `{}`{near}", quoted(id)), help))
}
