//! `fedsa plot`: redraws the figure of a finished run.

use fedsa::error::{Error, quoted};
use fedsa_experiment::Kinds;
use fedsa_experiment::finished::FinishedRun;
use fedsa_experiment::made::Changes;
use fedsa_experiment::redraw::redraw;

use super::{apply, say};
use crate::args::{Overrides, PlotArgs};
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// When the folder holds no finished run, or an option sets something other than the figure.
pub fn plot(args: &PlotArgs, kinds: &Kinds) -> Result<u8, Error> {
    // A folder without a run is refused before options are checked.
    FinishedRun::read(&args.dir)?;
    for assignment in &args.set {
        let key = assignment.split('=').next().unwrap_or_default().trim();
        if !key.starts_with("figure.") && key != "figure" && key != "title" {
            let help = "a key of the figure, such as figure.x=bits_up, or title; for other settings, fedsa run";
            return Err(Error::new("--set", format!("`{}` is not about the figure", quoted(key)), help));
        }
    }
    let style = args.style.map(|style| format!("figure.style={:?}", style.name()));
    let set = Overrides { set: args.set.iter().cloned().chain(style).collect(), ..Overrides::default() };
    let redrawn = redraw(&args.dir, &Changes::new(move |document| apply(&set, document)), kinds)?;
    redrawn.write()?.iter().for_each(|path| say(path.display()));
    if redrawn.plan.experiment.figure.style.is_some() {
        say(format!("For the caption: {}", redrawn.picture.told()));
    }
    Ok(DONE)
}
