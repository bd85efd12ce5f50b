//! `fedsa tune`: the settings of methods that reach a mean-square error at the least cost.

use std::path::Path;

use fedsa::error::{BadInput, Error};
use fedsa::kernel::Isa;
use fedsa_experiment::Kinds;
use fedsa_experiment::execute::{read_framed, write_framed};
use fedsa_experiment::folder::{self, Holds, RunFolder};
use fedsa_experiment::tune::{self, Began, Memo, Searched, TuneControl, TuneOptions, Tuned, Tuning};

use super::progress::Tunings;
use super::signals::{self, Phase};
use super::{load, say, say_json, warn};
use crate::args::{MinimiseArg, TuneArgs};
use crate::error::{DONE, INTERRUPTED};
use crate::hints;

/// The file with the pilots that were run.
const STATE: &str = "tune.ckpt";

/// Runs the command.
///
/// # Errors
/// On bad input, and where nothing reaches the target (nothing is then written); and when the machine fails.
pub fn tune(args: &TuneArgs, kinds: &Kinds) -> Result<u8, Error> {
    tune_file(args, kinds).map_err(in_options)
}

/// The settings of a tuning, and the options that stand for them.
const OPTIONS: [(&str, &str); 9] = [
    ("target", "--target-mse"),
    ("minimise", "--minimise"),
    ("methods", "--methods"),
    ("codecs", "--codecs"),
    ("local_steps", "--local-steps"),
    ("most_local_steps", "--max-local-steps"),
    ("most_rounds", "--max-rounds"),
    ("like", "--like"),
    ("budget", "--budget"),
];

/// The error with options in place of settings of the tuning.
fn in_options(e: Error) -> Error {
    let e = hints::with(e, &OPTIONS);
    // Keys of the file have a place there.
    match OPTIONS.iter().find(|(setting, _)| *setting == e.key && e.place().is_none()) {
        Some((_, option)) => e.about(*option),
        None => e,
    }
}

fn tune_file(args: &TuneArgs, kinds: &Kinds) -> Result<u8, Error> {
    let options = options(args)?;
    for (name, given, instead) in [("--rounds", args.overrides.rounds, "--max-rounds"), ("--seeds", args.overrides.seeds, "--budget")] {
        if let Some(given) = given {
            let what = format!("{given} has no effect: rounds and seeds of the answer are what is looked for");
            return Err(BadInput::new(name, what, format!("{instead}, or nothing")));
        }
    }
    let (experiment, base) = load(&args.file, &args.overrides, false, kinds)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(format!("{}-tune", experiment.id)));
    let found = folder::look(&out)?;
    found.refuse_own()?;
    match (found.holds, args.resume, args.overwrite) {
        (Holds::Nothing, true, _) | (Holds::Foreign, true, _) => {
            let what = format!("{} holds no interrupted tuning", out.display());
            return Err(BadInput::new("--resume", what, "the folder of an interrupted tuning, or no --resume to begin one"));
        }
        (Holds::Nothing, ..) | (_, true, _) | (_, _, true) => {}
        (holds, ..) => {
            let holds = if found.own(tune::FILE).is_some() { "a finished tuning".into() } else { holds.to_string() };
            let what = format!("{} holds {holds}", out.display());
            let help = "another folder, --resume to go on with an interrupted tuning, or --overwrite to replace it";
            return Err(BadInput::new("--out", what, help));
        }
    }
    let names = tune::names();
    found.refuse_foreign(&names.iter().map(String::as_str).collect::<Vec<_>>())?;
    let state = folder::own_path(&out, STATE);
    let memo: Option<Memo> = if args.resume && state.exists() { Some(read_framed(&state)?) } else { None };
    if args.resume && memo.is_none() && found.holds == Holds::Finished {
        let is_tuning = found.own(tune::FILE).is_some();
        let what = if is_tuning { "a finished tuning: nothing is left to do" } else { "a run, not a tuning" };
        let what = format!("{} holds {what}", out.display());
        return Err(BadInput::new("--resume", what, "the folder of an interrupted tuning, or --overwrite to tune again"));
    }
    log::info!("building the problem");
    let mut tuning = Tuning::new(&experiment, &base, Isa::best(), &options)?;
    if memo.as_ref().is_some_and(|memo| !memo.is_of(&tuning)) {
        let what = format!("{} holds a tuning of another file or with other options", out.display());
        return Err(BadInput::new("--resume", what, "the same file and options as for that tuning"));
    }
    if let Some(memo) = memo.as_ref().filter(|memo| !args.quiet && !memo.is_empty()) {
        warn(format!("{} pilot runs are known from before", memo.len()));
    }
    let mut place = Place { found: Some(found), folder: None, keep: args.resume };
    let mut keep = |memo: &Memo| -> Result<(), Error> { write_framed(place.folder()?, STATE, memo) };
    let shown = Tunings::begin(&experiment.id, options.budget, args.progress, args.quiet);
    let mut began = |began: &Began| {
        log::info!("{}", began.what);
        shown.show(&began.what, began.spent);
    };
    let memo = memo.unwrap_or_else(|| tuning.memo());
    signals::enter(Phase::Searching);
    let mut control = TuneControl { cancel: signals::cancel(), memo, keep: &mut keep, began: &mut began };
    let searched = tuning.search(&mut control);
    signals::enter(Phase::Ending);
    let kept = control.memo.len();
    drop(shown);
    let tuned = match searched {
        Ok(Searched::Done(tuned)) => tuned,
        Ok(Searched::Interrupted) if kept == 0 => {
            warn("interrupted before the first pilot run: nothing is kept");
            return Ok(INTERRUPTED);
        }
        Ok(Searched::Interrupted) => {
            warn(format!("interrupted: {kept} pilot run{} kept", if kept == 1 { " is" } else { "s are" }));
            warn(format!("the same command with --resume continues from {}", out.display()));
            return Ok(INTERRUPTED);
        }
        Err(failure) => {
            place.abandon();
            return Err(failure);
        }
    };
    let files = tuning.files(&tuned).inspect_err(|_| place.abandon())?;
    place.folder()?.write(&files)?;
    signals::enter(Phase::Before);
    report(args, &tuning, &tuned, &out);
    Ok(DONE)
}

/// The folder, which is taken when something is written for the first time.
struct Place {
    found: Option<folder::Found>,
    folder: Option<RunFolder>,
    keep: bool,
}

impl Place {
    fn folder(&mut self) -> Result<&RunFolder, Error> {
        if let Some(found) = self.found.take() {
            self.folder = Some(found.claim(self.keep)?);
        }
        self.folder.as_ref().ok_or_else(|| BadInput::new("--out", "the folder could not be taken", "another folder"))
    }

    /// Removes a folder that was made for this tuning.
    fn abandon(&self) {
        if let Some(folder) = &self.folder {
            folder.abandon();
        }
    }
}

fn report(args: &TuneArgs, tuning: &Tuning, tuned: &Tuned, out: &Path) {
    if args.json {
        say_json(&tuning.summary(tuned));
    } else if !args.quiet {
        tuning.report(tuned).iter().for_each(|line| say(hints::text_with(line, &OPTIONS)));
        say(format!("fedsa run {} runs it", out.join(tune::FILE).display()));
    }
}

/// The options as the library knows them.
fn options(args: &TuneArgs) -> Result<TuneOptions, BadInput> {
    let Some(budget) = seconds(&args.budget) else {
        let what = format!("`{}` is not a time that fedsa reads", fedsa::error::quoted(&args.budget));
        return Err(BadInput::new("--budget", what, "seconds, or a number with s, m or h, such as 60s or 10m"));
    };
    Ok(TuneOptions {
        target_mse: args.target_mse,
        minimise: match args.minimise {
            MinimiseArg::Rounds => fedsa_theory::tune::SearchGoal::Rounds,
            MinimiseArg::Bits => fedsa_theory::tune::SearchGoal::Bits,
            MinimiseArg::Samples => fedsa_theory::tune::SearchGoal::Samples,
        },
        methods: args.methods.clone(),
        codecs: args.codecs.clone(),
        local_steps: (!args.local_steps.is_empty()).then(|| args.local_steps.clone()),
        most_local_steps: args.max_local_steps,
        most_rounds: args.max_rounds,
        like: args.like.clone(),
        budget,
    })
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
