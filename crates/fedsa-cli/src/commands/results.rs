//! The report of a finished run.

use std::path::Path;

use fedsa::note::{Note, Severity};
use fedsa_experiment::numbers::{number, percent, rough};
use fedsa_experiment::outcome::{Missed, Outcome};
use fedsa_experiment::summary::{Entry, Falling, Summary, TargetCost};
use fedsa_experiment::tables::SummaryTable;

use super::{count, say};
use crate::hints;

/// The largest number of floors that are listed.
const LISTED: usize = 12;

/// Prints how the runs ended, their floors, notes, and the checks. `results` is the number of methods at all points.
pub fn report(summary: &Summary, results: usize, out: &Path) {
    say(format!("{} in {:.1} s: {}", summary.id, summary.seconds, out.display()));
    let few = results <= LISTED;
    let mut floors = 0;
    for entry in &summary.entries {
        let at = if entry.point.is_empty() { String::new() } else { format!(" at {}", entry.point) };
        let label = &entry.method;
        if let Some(line) = outcome_line(entry) {
            say(format!("  {label}{at}: {line}"));
        } else if let Some(floor) = entry.floor {
            floors += 1;
            if few {
                let error = if entry.seeds > 1 { format!(" +- {}", rough(floor.se)) } else { String::new() };
                say(match entry.falling {
                    None => format!("  {label}{at}: floor {}{error}", number(floor.mean)),
                    Some(falling) => format!("  {label}{at}: {}", still_falls(falling)),
                });
            }
        }
    }
    if !few && floors > 0 {
        say(format!("  {floors} floors: in {}, under `results`", out.join("summary.json").display()));
    }
    for line in note_lines(&summary.notes) {
        say(format!("  {line}"));
    }
    for v in &summary.checks {
        say(format!("  {}", v.line(summary.quick)));
    }
}

/// Notes for the terminal, with options of the command in place of settings.
pub fn note_lines(notes: &[Note]) -> Vec<String> {
    let line = |note: &Note| {
        let kind = match note.severity() {
            Severity::Info => "note",
            Severity::Warning => "warning",
        };
        format!("{kind}: {}", hints::text(&note.text))
    };
    notes.iter().map(line).collect()
}

/// Unexpected results, one line each.
pub fn failures(summary: &Summary) -> Vec<String> {
    let (id, quick) = (&summary.id, summary.quick);
    let failed = summary.entries.iter().filter(|entry| !entry.as_expected && !entry.is_note);
    let runs = failed.filter_map(|entry| {
        let at = if entry.point.is_empty() { String::new() } else { format!(" at {}", entry.point) };
        Some(format!("{id}: {}{at}: {}", entry.method, outcome_line(entry)?))
    });
    let checks = summary.checks.iter().filter(|v| (!v.as_expected || v.excused) && !v.is_note(quick));
    runs.chain(checks.map(|v| format!("{id}: {}", v.line(quick)))).collect()
}

/// The line about an error that has not reached its floor.
fn still_falls(falling: Falling) -> String {
    let Falling { end, share, predicted } = falling;
    let share = percent(share);
    let floor = predicted.map_or(String::new(), |floor| format!("; theory predicts a floor of {}", number(floor)));
    format!("{} at the end, no floor yet: it falls by {share} over the last fifth of the rounds{floor}", number(end))
}

/// The line about how a method ended; `None` if it completed its rounds.
fn outcome_line(entry: &Entry) -> Option<String> {
    let Entry { as_expected, is_note, .. } = *entry;
    let word = match (as_expected, is_note) {
        (true, _) => ", as expected",
        (false, true) => " (a note: these are the quick settings)",
        (false, false) => ", NOT as expected",
    };
    let remedy = entry.remedy.as_ref().map_or(String::new(), |remedy| format!("; {remedy}"));
    match entry.outcome? {
        Outcome::Diverged { round } => Some(format!("diverged in round {round}{word}{remedy}")),
        Outcome::Stalled(missed) => {
            let reason = entry.reason.as_deref().unwrap_or_default();
            Some(format!("STALLED{word}: {}; {reason}{remedy}", reached(missed)))
        }
        Outcome::MaxRounds(missed) => {
            let reason = entry.reason.as_ref().map_or(String::new(), |reason| format!("; {reason}"));
            Some(format!("MAX ROUNDS{word}: {}{reason}{remedy}", reached(missed)))
        }
        Outcome::Incomplete { missing } => Some(format!(
            "INCOMPLETE: {:.1}% of the weight was missing on average; the result leans away from these agents",
            100.0 * missing
        )),
        Outcome::Completed | Outcome::Converged if !as_expected => Some(match is_note {
            true => "did not end as expected with the quick settings".into(),
            false => format!("did not end as `expect` says{word}"),
        }),
        Outcome::Converged => {
            let TargetCost { rounds, exchanges, bits, seconds } = entry.cost?;
            let (rounds, exchanges) = (count(rounds as usize, "round"), count(exchanges.round() as usize, "exchange"));
            let time = seconds.map_or(String::new(), |seconds| format!(", in {} s", rough(seconds)));
            Some(match entry.seeds {
                0 | 1 => format!("converged: reached its target after {rounds}, {exchanges} and {bits:.2e} bits{time}"),
                _ => format!("converged: all seeds reached the target within {rounds}; on average {exchanges} and {bits:.2e} bits{time}"),
            })
        }
        // Other outcomes need no line.
        _ => None,
    }
}

/// The lines of a table, and its notes below.
pub fn table(table: &SummaryTable) -> Vec<String> {
    let notes = table.notes.iter().map(|note| format!("  {note}"));
    table.lines().into_iter().chain(notes).collect()
}

fn reached(missed: Missed) -> String {
    let Missed { metric, value, target, .. } = missed;
    format!("the {metric} is {} at the end, the target is {}", number(value), number(target))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use fedsa::note::NoteCode;

    #[test]
    fn a_note_of_every_kind_is_a_line_of_the_terminal() {
        let notes: Vec<Note> = NoteCode::ALL.iter().map(|code| Note::new(*code, format!("{}: a larger `ridge`", code.about()))).collect();
        let lines = {
            let line = crate::args::Cli::command();
            hints::speak_of(line.find_subcommand("fit").unwrap());
            note_lines(&notes)
        };
        assert_eq!(lines.len(), NoteCode::ALL.len());
        for (line, code) in lines.iter().zip(NoteCode::ALL) {
            let kind = if code.severity() == Severity::Warning { "warning" } else { "note" };
            assert_eq!(*line, format!("{kind}: {}: a larger --ridge", code.about()));
        }
    }
}
