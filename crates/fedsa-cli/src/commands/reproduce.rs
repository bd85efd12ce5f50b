//! `fedsa reproduce`: bundled experiments.

use std::path::{Path, PathBuf};

use fedsa::error::BadInput;

use super::run::experiment_in;
use crate::args::ReproduceArgs;
use crate::bundled::{ALL, Bundled};
use crate::config::{Document, Experiment, nearest};
use crate::error::{DONE, Failure, INTERRUPTED, NOT_AS_EXPECTED};

/// Runs the command.
///
/// # Errors
/// On bad input: an unknown id, a missing data set.
pub fn reproduce(args: &ReproduceArgs) -> Result<u8, Failure> {
    if args.list {
        for bundled in ALL {
            println!("{:24} {}", bundled.id, read(bundled, args)?.title);
        }
        return Ok(DONE);
    }
    let chosen = choose(args.id.as_deref().unwrap_or("all"))?;
    if args.print {
        chosen.iter().for_each(|b| println!("{}", b.text));
        return Ok(DONE);
    }
    let mut worst = DONE;
    for bundled in &chosen {
        let experiment = read(bundled, args)?;
        let parent = args.out.clone().unwrap_or_else(|| PathBuf::from("out"));
        let out = if chosen.len() == 1 && args.out.is_some() { parent } else { parent.join(bundled.id) };
        let finished = experiment_in(experiment, Path::new(""), &out, &args.common, args.quick)?;
        if finished.status == INTERRUPTED {
            return Ok(INTERRUPTED);
        }
        worst = worst.max(finished.status);
    }
    if chosen.len() > 1 && !args.common.quiet {
        println!("{} experiments: {}", chosen.len(), if worst == NOT_AS_EXPECTED { "not all as expected" } else { "all as expected" });
    }
    Ok(worst)
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

fn read(bundled: &Bundled, args: &ReproduceArgs) -> Result<Experiment, Failure> {
    let name = format!("{}.toml", bundled.id);
    // Parsed bare where only its title is wanted.
    match args.list {
        true => Experiment::read(Document::parse(&name, bundled.text)?),
        false => super::parse(&name, bundled.text, &args.overrides, args.quick),
    }
}
