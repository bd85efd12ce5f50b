//! `fedsa reproduce`: bundled experiments.

use std::path::{Path, PathBuf};

use fedsa::error::BadInput;

use super::run::{Folder, Job};
use super::{complain, count, say};
use crate::args::{Common, ReproduceArgs};
use crate::bundled::{ALL, Bundled};
use crate::config::{Document, Experiment, nearest};
use crate::error::{BAD_INPUT, DONE, Failure, INTERRUPTED};

/// Runs the command.
///
/// # Errors
/// On bad input: an unknown id, a missing data set.
pub fn reproduce(args: &ReproduceArgs) -> Result<u8, Failure> {
    if args.list {
        for bundled in ALL {
            let experiment = Experiment::read(Document::parse(&file_name(bundled), bundled.text)?)?;
            say(format!("{:24} {}", bundled.id, experiment.title));
        }
        return Ok(DONE);
    }
    let chosen = choose(args.id.as_deref().unwrap_or("all"))?;
    if args.print {
        chosen.iter().for_each(|b| say(b.text.trim_end()));
        return Ok(DONE);
    }
    if let [only] = chosen[..] {
        return one(only, args, &args.out.clone().unwrap_or_else(|| Path::new("out").join(only.id)), &args.common);
    }
    let parent = args.out.clone().unwrap_or_else(|| PathBuf::from("out"));
    let mut not_as_expected = Vec::new();
    for bundled in &chosen {
        let out = parent.join(bundled.id);
        // What an interruption left undone is begun.
        let resume = args.common.resume && Folder::of(&out) != Folder::Empty;
        match one(bundled, args, &out, &Common { resume, ..args.common.clone() }) {
            Ok(INTERRUPTED) => return Ok(INTERRUPTED),
            Ok(status) if status == DONE => {}
            Ok(status) => not_as_expected.push((bundled.id, status)),
            // The others can be run nevertheless.
            Err(failure) => {
                complain(failure.about(bundled.id));
                not_as_expected.push((bundled.id, BAD_INPUT));
            }
        }
    }
    if !args.common.quiet {
        let ids: Vec<&str> = not_as_expected.iter().map(|(id, _)| *id).collect();
        let word = if ids.is_empty() { "all as expected".into() } else { format!("not as expected: {}", ids.join(", ")) };
        say(format!("{}, {word}", count(chosen.len(), "experiment")));
    }
    Ok(not_as_expected.iter().map(|(_, status)| *status).max().unwrap_or(DONE))
}

/// Runs one experiment.
fn one(bundled: &Bundled, args: &ReproduceArgs, out: &Path, common: &Common) -> Result<u8, Failure> {
    let experiment = super::parse(&file_name(bundled), bundled.text, &args.overrides, args.quick)?;
    Job { experiment, base: Path::new(""), out, common, quick: args.quick }.run(&|_, _| Ok(Vec::new()))
}

/// What messages call a bundled file.
fn file_name(bundled: &Bundled) -> String {
    format!("experiments/{}.toml", bundled.id)
}

fn choose(id: &str) -> Result<Vec<&'static Bundled>, Failure> {
    let chosen: Vec<&Bundled> = ALL.iter().filter(|b| id == "all" || b.id == id || b.id.starts_with(&format!("{id}/"))).collect();
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let near = nearest(id, ALL.iter().map(|b| b.id)).map_or(String::new(), |n| format!("; did you mean `{n}`?"));
    let help = format!("all, or one of {}", ALL.iter().map(|b| b.id).collect::<Vec<_>>().join(", "));
    Err(BadInput::new("", format!("there is no bundled experiment `{id}`{near}"), help).into())
}
