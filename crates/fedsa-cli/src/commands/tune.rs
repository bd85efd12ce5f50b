//! `fedsa tune`: the settings of methods that reach a mean-square error at the least cost.

use std::path::Path;

use fedsa::error::{Error, ErrorKind};
use fedsa_experiment::tune::{self, TuneOptions, TuneOutcome, TuneStage, Tuned, Tuning};
use fedsa_experiment::{Kinds, RunSettings};

use super::progress::Tunings;
use super::run::if_exists;
use super::signals::{self, Phase};
use super::{load, say, say_json, warn};
use crate::args::{MinimiseArg, TuneArgs};
use crate::error::{DONE, INTERRUPTED};
use crate::hints;

/// Runs the command.
///
/// # Errors
/// On bad input, and where nothing reaches the target (nothing is then written); and when the machine fails.
pub fn tune(args: &TuneArgs, kinds: &Kinds) -> Result<u8, Error> {
    let options = options(args)?;
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
            shown = Some(Tunings::begin(&experiment.id, options.budget, args.progress, args.quiet));
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
    let outcome = match tune::tune(&experiment, &options, &run, &mut observe, signals::cancel()) {
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

/// The options as the library knows them.
fn options(args: &TuneArgs) -> Result<TuneOptions, Error> {
    let time = |option: &str, text: &str| {
        seconds(text).ok_or_else(|| {
            let what = format!("`{}` is not a time that fedsa reads", fedsa::error::quoted(text));
            Error::new(option, what, "seconds, or a number with s, m or h, such as 60s or 10m")
        })
    };
    let budget = time("--budget", &args.budget)?;
    let objective = match args.objective {
        MinimiseArg::Rounds => fedsa_theory::cost::Goal::Rounds,
        MinimiseArg::Bits => fedsa_theory::cost::Goal::Bits,
        MinimiseArg::Samples => fedsa_theory::cost::Goal::Samples,
        MinimiseArg::Seconds => fedsa_theory::cost::Goal::Seconds,
    };
    let mut options = TuneOptions::new(args.target_mse)
        .with_objective(objective)
        .with_methods(args.methods.clone())
        .with_codecs(args.codecs.clone())
        .with_max_local_steps(args.max_local_steps)
        .with_max_rounds(args.max_rounds)
        .with_budget(budget);
    options.local_steps = (!args.local_steps.is_empty()).then(|| args.local_steps.clone());
    options.like = args.like.clone();
    options.network = args.network.network()?;
    options.time_limit = args.time_limit.as_deref().map(|text| time("--time-limit", text)).transpose()?;
    Ok(options)
}

/// A time such as `60s`, `10m`, `2h`, or a number of seconds.
fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (
            number,
            match &text[number.len()..] {
                "m" => 60.0,
                "h" => 3600.0,
                _ => 1.0,
            },
        ),
        None => (text, 1.0),
    };
    let x: f64 = number.trim().parse().ok()?;
    (0.0..=1e9).contains(&x).then_some(x * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_have_units() {
        assert_eq!(["60s", "60", "1.5m", "2h", "0"].map(seconds), [Some(60.0), Some(60.0), Some(90.0), Some(7200.0), Some(0.0)]);
        assert_eq!(["", "s", "-1s", "nan", "1d", "1e99"].map(seconds), [None; 6]);
    }

    #[test]
    fn the_default_rounds_are_those_of_the_library() {
        let defaults = TuneOptions::new(1.0);
        let line = ["fedsa", "tune", "x.toml", "--target-mse", "1"];
        let cli = <crate::args::Cli as clap::Parser>::try_parse_from(line).unwrap();
        let crate::args::Command::Tune(args) = cli.command else { panic!("tune") };
        assert_eq!(options(&args).unwrap(), defaults);
    }
}
