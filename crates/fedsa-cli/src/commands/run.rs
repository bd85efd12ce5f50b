//! `fedsa run`: from an experiment file to tables and pictures.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::{Duration, Instant};

use fedsa::error::{BadInput, Error};
use fedsa::kernel::Isa;
use fedsa_data::atomic;
use fedsa_data::find::Places;
use fedsa_data::regular;
use fedsa_experiment::checks::{self, Verdict};
use fedsa_experiment::config::{Experiment, RunSpec};
use fedsa_experiment::execute::{Earlier, Interrupted, read_framed, write_framed};
use fedsa_experiment::finished;
use fedsa_experiment::folder::{self, Found, Holds, RunFolder};
use fedsa_experiment::plan::BuiltProblem;
use fedsa_experiment::trace_lines::TraceLines;
use fedsa_experiment::{Executed, Kinds, Plan, Predictor, Results, RunControl, execute, output, picture, resolve};
use toml::{Table, Value};

use super::check::{refuse_memory, refuse_unstable};
use super::progress::{Comparing, Watcher};
use super::report::{RunReport, report};
use super::signals::{self, Phase};
use super::{count, load, say, say_json, warn};
use crate::args::{Common, RunArgs};
use crate::error::{DONE, INTERRUPTED, NOT_AS_EXPECTED};

/// Runs the command.
///
/// # Errors
/// On bad input (nothing is written), and when the machine fails.
pub fn run(args: &RunArgs, kinds: &Kinds) -> Result<u8, Error> {
    let began = Instant::now();
    let (experiment, base) = load(&args.file, &args.overrides, args.quick, kinds)?;
    let out = args.out.clone().unwrap_or_else(|| Path::new("out").join(&experiment.id));
    let job = Task {
        experiment,
        base: &base,
        out: &out,
        common: &args.common,
        quick: args.quick,
        json: args.json,
        started: &|_| {},
        built: None,
        began,
    };
    Ok(job.run(&Extra::none())?.status)
}

/// How an experiment ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The exit status.
    pub status: u8,
    /// With quick settings, the number of checks and statuses that are not as expected, which are then notes.
    pub notes: usize,
}

/// An experiment with its output folder and options.
pub struct Task<'a> {
    /// The experiment.
    pub experiment: Experiment,
    /// The base folder of its relative paths.
    pub base: &'a Path,
    /// The folder.
    pub out: &'a Path,
    /// The options.
    pub common: &'a Common,
    /// Whether quick settings are used: failed checks are then notes.
    pub quick: bool,
    /// Whether the summary is printed as JSON instead of a report.
    pub json: bool,
    /// The lines that are printed about the plan before it runs.
    pub started: &'a dyn Fn(&Plan),
    /// A problem of the experiment that was built before.
    pub built: Option<BuiltProblem>,
    /// When the work on it began.
    pub began: Instant,
}

/// Additional output files of a finished run.
pub struct Extra<'a> {
    /// The names that they may have.
    pub names: Vec<String>,
    /// Computes those that are written, with their names.
    pub make: ExtraContents<'a>,
}

/// Computes additional files, with the text of `config.toml`, which pictures contain as metadata.
pub type ExtraContents<'a> = &'a dyn Fn(&Plan, &Results, &str) -> fedsa::error::Result<Vec<(String, Vec<u8>)>>;

impl Extra<'_> {
    /// No additional files.
    pub fn none() -> Self {
        Self { names: Vec::new(), make: &|_, _, _| Ok(Vec::new()) }
    }
}

/// The file with the settings of the run.
const CONFIG: &str = "config.toml";

/// The file with `theta*` of the problems.
pub const ROOTS: &str = "roots.ckpt";

impl Task<'_> {
    /// Runs the experiment, and writes `extra` files in addition to the usual ones.
    ///
    /// # Errors
    /// On bad input (nothing is written), and when the machine fails.
    pub fn run(self, extra: &Extra<'_>) -> Result<Ended, Error> {
        let Task { experiment, base, out, common, quick, json, started, built, began } = self;
        experiment.settings()?;
        let config = resolve::file(&experiment, &Places::from_env(base))?;
        let found = folder::look(out)?;
        found.refuse_own()?;
        match (common.resume, found.holds) {
            (true, _) => may_resume(&found, out, &config)?,
            (false, Holds::Nothing) => {}
            (false, _) if common.overwrite => {}
            (false, holds) => return Err(is_taken(out, holds, found.foreign.as_deref())),
        }
        let is_same = found.own(CONFIG).is_some_and(|ran| ran == config.as_bytes());
        if common.resume && found.holds == Holds::Finished && is_same {
            if !common.quiet {
                say(format!("{}: already done, in {}", experiment.id, out.display()));
            }
            // The earlier run may have been killed after all files were written.
            found.tidy();
            return Ok(ended_of_summary(out));
        }
        let usual = output::names(&experiment);
        let outputs: Vec<&str> = usual.iter().chain(&extra.names).map(String::as_str).chain([CONFIG, folder::GROWING]).collect();
        found.refuse_foreign(&outputs)?;
        let (roots, earlier) = match common.resume {
            true => (read_roots(out)?, Earlier::of(out)?),
            false => (HashMap::new(), Earlier::default()),
        };
        log::info!("building the problems");
        let plan = Plan::with_problem(experiment, base, Isa::best(), &roots, built)?;
        log::info!("{}, {}, {}", count(plan.fields.len(), "problem"), count(plan.points.len(), "point"), count(plan.cells.len(), "method"));
        let unmeasured = checks::unmeasured(&plan, base)?;
        refuse_memory(&plan)?;
        refuse_unstable(&plan, common.force)?;
        earlier.check(&plan)?;
        started(&plan);
        // From here on things are written.
        let folder = found.claim(common.resume)?;
        begin(&folder, &config, &plan).inspect_err(|_| folder.abandon())?;
        signals::enter(Phase::Working);
        let worked = work(&plan, &folder, &earlier, common);
        signals::enter(Phase::Ending);
        let (outcome, watcher) = worked?;
        let results = match outcome {
            Executed::Done(results) => results,
            Executed::Interrupted(left) => {
                drop(watcher);
                interrupted(&left, out);
                return Ok(Ended { status: INTERRUPTED, notes: 0 });
            }
        };
        drop(watcher);
        log::info!("comparing with theory, and drawing the figure");
        let comparing = Comparing::begin(&plan, common.progress, common.quiet, began);
        let predictor = Predictor::new(&plan);
        let verdicts = checks::measure(&plan, &results, &predictor, &unmeasured);
        let picture = picture::draw(&plan, &results, &predictor, &verdicts, quick);
        let seconds = began.elapsed().as_secs_f64();
        let ended = ended(&plan, &results, &verdicts, quick);
        let mut summary = output::summary(&plan, &results, &predictor, &verdicts, seconds);
        summary["quick"] = serde_json::json!(quick);
        summary["exit_status"] = serde_json::json!(ended.status);
        summary["notes"] = serde_json::json!(ended.notes);
        let files = || -> fedsa::error::Result<Vec<(String, Vec<u8>)>> {
            let mut files = (extra.make)(&plan, &results, &config)?;
            files.extend(output::files(&plan, &results, &summary, &picture, &config)?);
            Ok(files)
        };
        // Results must not be lost because they cannot be printed.
        drop(comparing);
        let files = files().map_err(|e| could_not_finish(e, out))?;
        log::info!("writing {}", out.display());
        // Those of an earlier run that is continued may have had more to show.
        let is_missing = |name: &&String| !files.iter().any(|(written, _)| written == *name);
        extra.names.iter().filter(is_missing).for_each(|name| folder.remove(name));
        folder.write(&files).map_err(|e| could_not_finish(e, out))?;
        folder.tidy();
        signals::enter(Phase::Before);
        if json {
            say_json(&summary);
        } else if !common.quiet {
            report(&RunReport { plan: &plan, results: &results, predictor: &predictor, verdicts: &verdicts, quick }, out, seconds);
        }
        Ok(ended)
    }
}

/// Writes the first files of a run: its settings, and `theta*` of its problems.
fn begin(folder: &RunFolder, config: &str, plan: &Plan) -> Result<(), Error> {
    // An old summary does not belong to the new settings.
    folder.remove("summary.json");
    write_roots(folder, plan)?;
    folder.write(&[(CONFIG.to_string(), config.as_bytes().to_vec())])?;
    Ok(())
}

/// Executes the plan and shows its progress.
fn work<'p>(plan: &'p Plan, folder: &RunFolder, earlier: &Earlier, common: &Common) -> Result<(Executed, Watcher<'p>), Error> {
    let lines = TraceLines::begin(folder, plan).map_err(|e| warn(format!("warning: {e}; the run goes on without this file"))).ok();
    let watcher = Watcher::new(plan, common.progress, common.quiet, lines);
    let every = Duration::from_secs_f64(common.checkpoint_every);
    let control = RunControl { cancel: signals::cancel(), folder: Some(folder), every, earlier, observer: &watcher };
    let outcome = execute(plan, &control);
    watcher.finish();
    Ok((outcome?, watcher))
}

/// The failure of a run whose results could not be written, with what is left of it.
fn could_not_finish(e: Error, out: &Path) -> Error {
    let help = format!("{}: all runs had ended; --resume continues from the checkpoints in {}", e.help, out.display());
    Error::machine(e.to_string(), help)
}

/// Prints what an interrupted run leaves, and how to continue.
fn interrupted(left: &Interrupted, out: &Path) {
    let Interrupted { ended, lost, kept, behind, waiting } = left;
    let mut parts = Vec::new();
    let mut say = |n: usize, what: &str| {
        if n > 0 {
            parts.push(format!("{} {what}", count(n, "run")));
        }
    };
    say(*ended, "had ended");
    say(*lost, "had ended and could not be saved");
    say(*kept, "saved at the last completed round");
    say(behind.len(), "saved at an earlier round");
    say(*waiting, "not begun");
    warn(format!("interrupted: {}", parts.join(", ")));
    for (what, round) in behind {
        let from = if *round == 0 { "the start".into() } else { format!("the checkpoint of round {round}") };
        warn(format!("  {what}: the round under way was dropped, and the one before could not be saved; continues from {from}"));
    }
    warn(format!("the same command with --resume continues from {}", out.display()));
}

/// The exit status of finished runs. Quick settings may be too small for a check or an
/// expected divergence, and options may leave a check unmeasured: such results are notes and do not affect the status.
fn ended(plan: &Plan, results: &Results, verdicts: &[Verdict], quick: bool) -> Ended {
    let (mut notes, mut failures) = (0, 0);
    let mut count = |as_expected: bool, is_note: bool| match (as_expected, is_note) {
        (true, _) => {}
        (false, true) => notes += 1,
        (false, false) => failures += 1,
    };
    verdicts.iter().for_each(|v| count(v.as_expected && !v.excused, v.is_note(quick)));
    (0..results.cells.len()).for_each(|cell| count(results.as_expected(plan, cell), quick && results.is_ok(cell)));
    Ended { status: if failures == 0 { DONE } else { NOT_AS_EXPECTED }, notes }
}

/// The error for a folder that is not empty.
fn is_taken(out: &Path, holds: Holds, foreign: Option<&str>) -> BadInput {
    let (what, help) = match foreign {
        Some(name) => (
            format!("{} is not empty: it holds {holds}, such as `{name}`", out.display()),
            "another folder; or --overwrite, which writes beside these files and does not change them",
        ),
        None => {
            (format!("{} holds {holds}", out.display()), "another folder, --resume to go on with this run, or --overwrite to replace it")
        }
    };
    BadInput::new("--out", what, help)
}

/// Checks that a folder contains a run of this experiment, possibly with fewer rounds or seeds.
fn may_resume(found: &Found, out: &Path, config: &str) -> Result<(), BadInput> {
    let holds = found.holds;
    if !matches!(holds, Holds::Unfinished | Holds::Finished) {
        let what = format!("{} holds no interrupted run", out.display());
        return Err(BadInput::new("--resume", what, "the folder of an interrupted run, or no --resume to begin one"));
    }
    let help = "the same file and options as for that run, which its config.toml shows; only more rounds and more seeds are allowed";
    if atomic::at(&out.join(CONFIG)).is_ok_and(|there| there.is_none()) {
        // The run was killed before its first round.
        return Ok(());
    }
    let Some(ran) = found.own(CONFIG).and_then(|bytes| String::from_utf8(bytes).ok()) else {
        let what = format!("{} holds {holds} whose config.toml is gone, or was changed after fedsa wrote it", out.display());
        return Err(BadInput::new("--resume", what, "the folder as fedsa left it, or --overwrite to run everything again"));
    };
    if ran == config || goes_on(&ran, config) {
        return Ok(());
    }
    let tables = ran.parse::<Table>().ok().zip(config.parse::<Table>().ok());
    let differs = tables.and_then(|(before, now)| finished::differences(&before, &now).into_iter().next());
    let shown = |value: Option<String>| value.unwrap_or_else(|| "not set".into());
    let differs = differs.map_or(String::new(), |d| format!(": {} was {} then, and is {} now", d.key, shown(d.a), shown(d.b)));
    Err(BadInput::new("--resume", format!("{} holds {holds} of other settings{differs}", out.display()), help))
}

/// Whether the second configuration differs from the first only by more rounds or seeds.
fn goes_on(before: &str, now: &str) -> bool {
    let parse = |text: &str| text.parse::<Table>().ok();
    let (Some(mut before), Some(mut now)) = (parse(before), parse(now)) else { return false };
    let run = |table: &mut Table| {
        let run = table.get_mut("run")?.as_table_mut()?;
        let spec: RunSpec = fedsa_experiment::config::read(Value::Table(run.clone())).ok()?;
        run.remove("rounds");
        run.remove("seeds");
        Some((spec.rounds, spec.seeds.list()))
    };
    let (Some((rounds, seeds)), Some((more_rounds, more_seeds))) = (run(&mut before), run(&mut now)) else { return false };
    // What happens to checks that cannot be measured does not influence the runs.
    for table in [&mut before, &mut now] {
        let checks = table.get_mut("check").and_then(Value::as_array_mut);
        checks.into_iter().flatten().filter_map(Value::as_table_mut).for_each(|check| drop(check.remove("unmeasured")));
    }
    let more_seeds: HashSet<u64> = more_seeds.into_iter().collect();
    before == now && rounds <= more_rounds && seeds.iter().all(|seed| more_seeds.contains(seed))
}

/// The exit status that follows from the summary of a finished run.
fn ended_of_summary(out: &Path) -> Ended {
    let summary = regular::read(&out.join("summary.json"), u64::MAX - 1).ok();
    let summary: Option<serde_json::Value> = summary.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let field = |name: &str| summary.as_ref().and_then(|s| s.get(name)?.as_u64());
    let status = if field("exit_status") == Some(u64::from(DONE)) { DONE } else { NOT_AS_EXPECTED };
    Ended { status, notes: field("notes").unwrap_or(0) as usize }
}

/// `theta*` of every problem. Another machine could compute it with other last bits.
fn write_roots(folder: &RunFolder, plan: &Plan) -> Result<(), Error> {
    let roots: HashMap<&str, &[f64]> = plan.fields.iter().filter_map(|f| Some((f.fingerprint.as_str(), f.field.root()?))).collect();
    write_framed(folder, ROOTS, &roots)
}

/// The roots that an earlier run saved; none if it was killed before.
fn read_roots(out: &Path) -> Result<HashMap<String, Vec<f64>>, BadInput> {
    let path = folder::own_path(out, ROOTS);
    if path.exists() { read_framed(&path) } else { Ok(HashMap::new()) }
}

#[cfg(test)]
mod tests {
    use super::goes_on;

    #[test]
    fn a_run_goes_on_with_more_rounds_and_seeds_however_many() {
        let run = |seeds: &str, rounds: u64| format!("id = \"a\"\n[run]\nrounds = {rounds}\nseeds = {seeds}\n");
        assert!(goes_on(&run("300000", 5), &run("600000", 9)));
        assert!(goes_on(&run("[7, 3]", 5), &run("8", 5)));
        assert!(!goes_on(&run("[7, 3]", 5), &run("7", 5)));
        assert!(!goes_on(&run("2", 5), &run("2", 4)));
        assert!(!goes_on(&run("2", 5), &run("2", 5).replace("\"a\"", "\"b\"")));
    }
}
