//! `fedsa theory`: predictions for an experiment, without running it. [`mod@fedsa_experiment::theory`] computes them; this module writes a
//! short page (`brief`), a long one (`page`) or JSON.

use std::collections::HashMap;
use std::sync::Arc;

use fedsa::error::Error;
use fedsa::kernel::Isa;
use fedsa_experiment::theory::{PictureFolder, Theory, TheorySettings};
use fedsa_experiment::{Kinds, Plan, Predictor};

mod brief;
mod changes;
mod constants;
mod curvature;
mod page;
mod privacy;
mod stability;
mod statements;
mod target;
mod text;

pub use brief::page as brief_page;

use super::progress::Predicting;
use super::{load, say, say_json};
use crate::args::TheoryArgs;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// On bad input.
pub fn theory(args: &TheoryArgs, kinds: &Kinds) -> Result<u8, Error> {
    let (experiment, base) = load(&args.file, &args.overrides, false, kinds)?;
    let shown = Predicting::begin(&experiment.id);
    shown.about("problems");
    let plan = Arc::new(Plan::new(experiment, &base, Isa::best(), &HashMap::new())?);
    let predictor = Arc::new(Predictor::new(&plan));
    let settings = TheorySettings { full: args.settings.full || args.json, ..args.settings.clone() };
    let theory = Theory::new(&predictor, settings).map_err(|e| refused(&plan, e))?;
    let pictures = args.out.as_deref().map(|out| PictureFolder::new(out, args.overwrite, &plan)).transpose()?;
    if args.json {
        let report = theory.report(&|what| shown.about(what))?;
        shown.hidden(|| say_json(&report.json()));
    } else if args.settings.full {
        page::page(&plan, &predictor, theory, args.settings.target_mse, &shown, &mut |lines| shown.hidden(|| say(lines.join("\n"))));
    } else {
        let report = theory.report(&|what| shown.about(what))?;
        shown.hidden(|| say(brief::page(&plan, &report, args.settings.target_mse).join("\n")));
    }
    if let Some(target) = pictures {
        shown.about("pictures");
        let written = target.write(&plan, &predictor, &base)?;
        if !args.json {
            shown.hidden(|| written.into_iter().for_each(say));
        }
    }
    Ok(DONE)
}

/// The refusal, with the option at fault or its place in the file.
fn refused(plan: &Plan, e: Error) -> Error {
    match e.key.as_str() {
        "target_mse" => e.about("--target-mse"),
        _ => plan.experiment.document.failure(e),
    }
}
