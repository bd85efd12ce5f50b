//! The report of a finished run.

use std::path::Path;

use fedsa::sampling::Law;
use fedsa_experiment::numbers::{about, number, rough};
use fedsa_experiment::outcome::{Missed, Outcome};
use fedsa_experiment::results::{Estimate, Recorded, paid};
use fedsa_experiment::run::Ran;
use fedsa_experiment::stability::stable_step_text;

use super::{count, say};

/// The largest number of floors that are printed one by one.
const LISTED: usize = 12;

/// Prints how the runs ended, their floors, and the checks.
pub fn report(run: &Ran, out: &Path) {
    let Ran { plan, results, verdicts, quick, seconds, .. } = run;
    say(format!("{} in {seconds:.1} s: {}", plan.experiment.id, out.display()));
    let few = plan.points.len() * plan.labels.len() <= LISTED;
    let mut floors = 0;
    for planned in &plan.points {
        for (label, cell) in plan.labels.iter().zip(&planned.cells).filter(|(_, cell)| plan.cells[**cell].refused.is_none()) {
            let at = if planned.point.label.is_empty() { String::new() } else { format!(" at {}", planned.point.label) };
            if let Some(line) = outcome_line(run, *cell) {
                say(format!("  {label}{at}: {line}"));
            } else if let Some(seeds) = results.floors(*cell, "mse") {
                floors += 1;
                if few {
                    let floor = Estimate::of(&seeds);
                    let error = if seeds.len() > 1 { format!(" +- {}", rough(floor.se)) } else { String::new() };
                    say(format!("  {label}{at}: floor {}{error}", number(floor.mean)));
                }
            }
        }
    }
    if !few && floors > 0 {
        say(format!("  {floors} floors: in {}, under `results`", out.join("summary.json").display()));
    }
    for v in verdicts {
        say(format!("  {}", v.line(*quick)));
    }
}

/// The line about how a cell ended; `None` if it completed its rounds.
fn outcome_line(run: &Ran, cell: usize) -> Option<String> {
    let (plan, results) = (&run.plan, &run.results);
    let as_expected = results.as_expected(plan, cell);
    let is_note = run.quick && results.is_ok(cell);
    let word = match (as_expected, is_note) {
        (true, _) => ", as expected",
        (false, true) => " (a note: these are the quick settings)",
        (false, false) => ", NOT as expected",
    };
    match results.outcome(plan, cell)? {
        Outcome::Diverged { round } => {
            let stable = match plan.cells[cell].method.expect {
                Some(_) => String::new(),
                None => format!("; {}", stable_step_text(plan, cell)),
            };
            Some(format!("diverged in round {round}{word}{stable}"))
        }
        Outcome::Stalled(missed) => {
            let why = results.why_stalled(plan, &run.predictor, cell, &missed);
            Some(format!("STALLED{word}: {}; {why}", reached(missed)))
        }
        Outcome::OutOfRounds(missed) => {
            let noise = if plan.field(cell).sampling().kind == Law::Mean { "" } else { ", unless noise stops it before" };
            let more = results.more_rounds(plan, &run.predictor, cell, &missed);
            let more = more.map_or(String::new(), |n| format!("; it takes at least about {} rounds more{noise}", about(n)));
            Some(format!("OUT OF ROUNDS{word}: {}{more}", reached(missed)))
        }
        Outcome::Completed | Outcome::Converged if !as_expected => Some(match is_note {
            true => "did not end as expected with the quick settings".into(),
            false => format!("did not end as `expect` says{word}"),
        }),
        Outcome::Completed | Outcome::Interrupted => None,
        Outcome::Converged => {
            // A run ends when it reaches its target: its last ledger is the cost of the target.
            let ends: Vec<&Recorded> = results.cells[cell].iter().filter_map(|seed| seed.rows.last()).collect();
            let mean = |count| Estimate::of(&ends.iter().map(|row| row.count(paid(Some(count))) as f64).collect::<Vec<_>>()).mean;
            let rounds = ends.iter().map(|row| row.round).max()?;
            let (rounds, exchanges) = (count(rounds as usize, "round"), count(mean("exchanges").round() as usize, "exchange"));
            let time = results.seconds(cell).map_or(String::new(), |seconds| format!(", in {} s", rough(seconds)));
            Some(format!("converged: reached its target after {rounds}, {exchanges} and {:.2e} bits{time}", mean("bits")))
        }
    }
}

fn reached(missed: Missed) -> String {
    let Missed { metric, value, target, .. } = missed;
    format!("the {metric} is {} at the end, the target is {}", number(value), number(target))
}
