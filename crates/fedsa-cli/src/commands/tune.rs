//! `fedsa tune`: finds the cheapest settings of methods for a mean-square error.

use std::path::Path;

use fedsa::error::{Error, ErrorKind};
use fedsa_experiment::tune::{self, TuneOutcome, TuneStage, Tuned, Tuning};
use fedsa_experiment::{Kinds, RunSettings};

use super::progress::Tunings;
use super::run::if_exists;
use super::signals::{self, Phase};
use super::{load, say, say_json, warn};
use crate::args::TuneArgs;
use crate::error::{DONE, INTERRUPTED};
use crate::hints;

/// Runs the command.
///
/// # Errors
/// On bad input and when nothing reaches the target (nothing is then written), and when the machine fails.
pub fn tune(args: &TuneArgs, kinds: &Kinds) -> Result<u8, Error> {
    for (name, given, instead) in [("--rounds", args.overrides.rounds, "--max-rounds"), ("--seeds", args.overrides.seeds, "--budget")] {
        if let Some(given) = given {
            let what = format!("{given} has no effect: rounds and seeds of the answer are what is looked for");
            return Err(Error::new(name, what, format!("{instead}, or nothing")));
        }
    }
    let (experiment, base) = load(&args.file, &args.overrides, false, kinds)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(format!("{}-tune", experiment.id)));
    let run = RunSettings::default().with_base(base).in_folder(&out, if_exists(args.resume, args.overwrite));
    let mut shown = None;
    let mut observe = |stage: TuneStage<'_>| match stage {
        TuneStage::Building => log::info!("building the problem"),
        TuneStage::Searching(known) => {
            if known > 0 && !args.quiet {
                warn(format!("{known} pilot runs are known from before"));
            }
            signals::enter(Phase::Searching);
            shown = Some(Tunings::begin(&experiment.id, args.settings.budget, args.progress, args.quiet));
        }
        TuneStage::Began(began) => {
            log::info!("{}", began.what);
            shown.iter().for_each(|shown| shown.show(&began.what, began.spent));
        }
        TuneStage::Ended => {
            signals::enter(Phase::Ending);
            shown = None;
        }
        _ => {}
    };
    let outcome = match tune::tune(&experiment, &args.settings, &run, &mut observe, signals::cancel()) {
        Err(e) if e.kind() == ErrorKind::Cancelled => {
            warn(&e.what);
            return Ok(INTERRUPTED);
        }
        outcome => outcome?,
    };
    match outcome {
        TuneOutcome::Interrupted(kept) => {
            warn(format!("interrupted: {kept} pilot run{} kept", if kept == 1 { " is" } else { "s are" }));
            warn(format!("the same command with --resume continues from {}", out.display()));
            Ok(INTERRUPTED)
        }
        TuneOutcome::Done(mut answer) => {
            answer.write()?;
            signals::enter(Phase::Before);
            report(args, &answer.tuning, &answer.tuned, &out);
            Ok(DONE)
        }
        _ => unreachable!("the program is of the library's version"),
    }
}

fn report(args: &TuneArgs, tuning: &Tuning, tuned: &Tuned, out: &Path) {
    if args.json {
        say_json(&tuning.summary(tuned));
    } else if !args.quiet {
        tuning.report(tuned).iter().for_each(|line| say(hints::text(line)));
        say(format!("fedsa run {} runs it", out.join(tune::FILE).display()));
    }
}
