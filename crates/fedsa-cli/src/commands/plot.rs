//! `fedsa plot`: draws the figure of a finished run again.

use std::path::Path;
use std::sync::Arc;

use fedsa::error::{BadInput, Error, quoted};
use fedsa::kernel::Isa;
use fedsa_data::find::Places;
use fedsa_experiment::config::{Document, Experiment};
use fedsa_experiment::finished::FinishedRun;
use fedsa_experiment::folder;
use fedsa_experiment::{Kinds, Plan, Predictor, checks, output, picture, resolve, run};

use super::{apply, say};
use crate::args::{Overrides, PlotArgs};
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// When the folder holds no finished run, or an option sets something other than the figure.
pub fn plot(args: &PlotArgs, kinds: &Kinds) -> Result<u8, Error> {
    let finished = FinishedRun::read(&args.dir)?;
    for assignment in &args.set {
        let key = assignment.split('=').next().unwrap_or_default().trim();
        if !key.starts_with("figure.") && key != "title" {
            let help = "a key of the figure, such as figure.x=bits_up, or title; for other settings, fedsa run";
            return Err(BadInput::new("--set", format!("`{}` is not about the figure", quoted(key)), help));
        }
    }
    let config = args.dir.join("config.toml");
    let mut document = Document::parse(&config.display().to_string(), &finished.config)?.with_kinds(kinds);
    apply(&Overrides { set: args.set.clone(), ..Overrides::default() }, &mut document)?;
    let experiment = Experiment::read(document)?;
    let roots = run::roots(&args.dir)?;
    let plan = Arc::new(Plan::new(experiment, Path::new(""), Isa::best(), &roots)?);
    let results = finished.results(&plan)?;
    let predictor = Predictor::new(&plan);
    let unmeasured = checks::unmeasured(&plan, Path::new(""))?;
    let verdicts = checks::measure(&plan, &results, &predictor, &unmeasured);
    let quick = finished.summary["quick"] == true;
    let picture = picture::draw(&plan, &results, &predictor, &verdicts, quick);
    let config = resolve::file(&plan.experiment, &Places::from_env(""))?;
    let pictures = output::pictures(&plan, output::FIGURE, &picture, &config);
    let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
    let found = folder::look(&args.dir)?;
    found.refuse_foreign(&names)?;
    let folder = found.claim(true)?;
    folder.write(&pictures)?;
    names.iter().for_each(|name| say(args.dir.join(name).display()));
    Ok(DONE)
}
