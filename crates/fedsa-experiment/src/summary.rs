//! What an experiment, a fit or an evaluation reports when it has run: estimates with their errors, outcomes with reason and remedy,
//! tables, and checks.
//!
//! A [`Summary`] is data: the program prints it, and other callers render it as they like. `summary.json` has more ([`crate::output`]).

use fedsa::message::{HEADER_BYTES, PART_HEADER_BYTES};
use fedsa::note::{Note, NoteCode};
use fedsa::record::Outcome;
use fedsa::sampling::Law;
use fedsa_theory::work;
use serde_json::{Value as Json, json};

use crate::Plan;
use crate::checks::Verdict;
use crate::numbers::about;
use crate::predict::Predictor;
use crate::results::{Estimate, Recorded, Results, paid};
use crate::stability::stable_step_text;
use crate::tables::SummaryTable;

/// A summary of the runs of an experiment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// The experiment.
    pub id: String,
    /// The wall time of everything, in seconds.
    pub seconds: f64,
    /// A line for each method at each point that was run, in the order of the file: all methods of a point, then those of the next.
    pub entries: Vec<Entry>,
    /// What methods spent and how good weights are, of fits and evaluations.
    pub tables: Vec<SummaryTable>,
    /// What a reader must know besides the numbers.
    pub notes: Vec<Note>,
    /// The checks.
    pub checks: Vec<Verdict>,
    /// Whether the experiment had its quick settings, with which checks that fail are notes.
    pub quick: bool,
}

/// A method at a point.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entry {
    /// The method's label.
    pub method: String,
    /// The point's label; empty without sweeps.
    pub point: String,
    /// The number of seeds.
    pub seeds: usize,
    /// How its worst seed ended; `None` if it has none.
    pub outcome: Option<Outcome>,
    /// Whether this is as the experiment says.
    pub as_expected: bool,
    /// Whether it would be a note if it is not, because of quick settings.
    pub is_note: bool,
    /// The likely reason why it did not reach its target, in words.
    pub reason: Option<String>,
    /// What would help, in words.
    pub remedy: Option<String>,
    /// What reaching its target took, if it did.
    pub cost: Option<TargetCost>,
    /// The mean of the error over the last fifth of the rounds and over seeds, where it ran to its end.
    pub floor: Option<Estimate>,
    /// That the error still falls over those rounds, and has not come to a floor.
    pub falling: Option<Falling>,
}

/// An error that has not settled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Falling {
    /// The mean over seeds of the squared error after the last round.
    pub end: f64,
    /// The share by which it falls over the last fifth of the rounds.
    pub share: f64,
    /// The floor that theory predicts, where that is soon known.
    pub predicted: Option<f64>,
}

/// The most multiplications for the floors of errors that still fall, for one and for all of them.
const FLOOR_WORK: f64 = 1e8;
const FLOORS_WORK: f64 = 1e9;

/// What a target took, the mean over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetCost {
    /// The rounds of the slowest seed.
    pub rounds: u64,
    /// Exchanges.
    pub exchanges: f64,
    /// Bits, up and down.
    pub bits: f64,
    /// The wall time, if it is known.
    pub seconds: Option<f64>,
}

impl Summary {
    /// The summary of the runs of a plan, without notes.
    pub fn of(plan: &Plan, results: &Results, predictor: &Predictor, verdicts: &[Verdict], quick: bool, seconds: f64) -> Self {
        let (mut entries, mut work) = (Vec::new(), FLOORS_WORK);
        for planned in &plan.points {
            let ran = plan.labels.iter().zip(&planned.cells).filter(|(_, cell)| plan.cells[**cell].refused.is_none());
            entries.extend(ran.map(|(label, cell)| Entry {
                method: label.clone(),
                point: planned.point.label.clone(),
                is_note: quick && results.is_ok(*cell),
                ..Entry::of(plan, results, predictor, *cell, &mut work)
            }));
        }
        let (id, checks) = (plan.experiment.id.clone(), verdicts.to_vec());
        Self { id, seconds, entries, tables: Vec::new(), notes: Vec::new(), checks, quick }
    }
}

/// What makes weights unique.
const UNIQUE: &str = "a small ridge, such as ridge=1e-8, makes them unique; or fewer features";

/// What a reader of any results must know besides the numbers.
pub(crate) fn notes_of(plan: &Plan, results: &Results) -> Vec<Note> {
    let mut notes = unknown_roots(plan);
    notes.extend(mostly_headers(plan, results));
    notes
}

/// That more than half of the bits are headers of messages, of the first methods of which it is so.
fn mostly_headers(plan: &Plan, results: &Results) -> Option<Note> {
    const NAMED: usize = 3;
    let header = 8 * (HEADER_BYTES + PART_HEADER_BYTES) as u64;
    let size = |cell: &usize| {
        let ledger = &results.cells[*cell].first()?.rows.last()?.ledger;
        let size = (ledger.bits_up + ledger.bits_down).checked_div(ledger.messages)?;
        (size > 0 && size < 2 * header).then_some(size)
    };
    let mut all: Vec<String> = Vec::new();
    for (label, cell) in plan.points.iter().flat_map(|planned| plan.labels.iter().zip(&planned.cells)) {
        let said = size(cell).map(|size| format!("{size} bits ({label})"));
        all.extend(said.filter(|said| !all.contains(said)));
    }
    let more = if all.len() > NAMED { format!(" and {} more", all.len() - NAMED) } else { String::new() };
    let listed = all[..all.len().min(NAMED)].join(", ");
    let what = format!(
        "{header} bits of a message are its header, which is more than half of it: messages have {listed}{more} on average. Counts and axes of \
         bits include headers"
    );
    (!all.is_empty()).then(|| Note::new(NoteCode::BitsMostlyHeader, what))
}

/// Why roots are not known, each reason once.
fn unknown_roots(plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    for why in plan.fields.iter().filter_map(|planned| planned.field.solution().err()) {
        let note = Note::new(NoteCode::RootUnknown, format!("theta* is not known, and no errors are measured: {why}"));
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Notes as `summary.json` has them.
pub fn notes_json(notes: &[Note]) -> Json {
    notes.iter().map(|note| json!({ "code": note.code.name(), "severity": note.severity().name(), "text": note.text })).collect()
}

impl Entry {
    /// A cell, without its label and point. What may be computed for all of them is `work`.
    fn of(plan: &Plan, results: &Results, predictor: &Predictor, cell: usize, work: &mut f64) -> Self {
        let outcome = results.outcome(plan, cell);
        let (reason, remedy) = match outcome {
            Some(Outcome::Diverged { .. }) if plan.cells[cell].method.expect.is_none() => (None, Some(stable_step_text(plan, cell))),
            Some(Outcome::Stalled(missed)) => {
                let remedy = results.why_not_unique(plan, cell).map(|_| UNIQUE.to_string());
                (Some(results.why_stalled(plan, predictor, cell, &missed)), remedy)
            }
            // Then more rounds are of no use.
            Some(Outcome::MaxRounds(_)) if let Some(why) = results.why_not_unique(plan, cell) => (Some(why), Some(UNIQUE.into())),
            Some(Outcome::MaxRounds(missed)) => {
                let noise = if plan.field(cell).sampling().kind == Law::Mean { "" } else { ", unless noise stops it before" };
                let more = results.more_rounds(plan, predictor, cell, &missed);
                (None, more.map(|n| format!("it takes at least about {} rounds more{noise}", about(n))))
            }
            _ => (None, None),
        };
        let cost = matches!(outcome, Some(Outcome::Converged)).then(|| TargetCost::of(results, cell)).flatten();
        let floor = results.floors(cell, "mse").map(|seeds| Estimate::of(&seeds));
        let falling = matches!(outcome, Some(Outcome::Completed)).then(|| Falling::of(results, predictor, cell, work)).flatten();
        Self {
            method: String::new(),
            point: String::new(),
            seeds: results.cells[cell].len(),
            outcome,
            as_expected: results.as_expected(plan, cell),
            is_note: false,
            reason,
            remedy,
            cost,
            floor,
            falling,
        }
    }
}

impl Falling {
    fn of(results: &Results, predictor: &Predictor, cell: usize, work: &mut f64) -> Option<Self> {
        let (share, end) = (results.falls_by(cell, "mse")?, results.end(cell, "mse", false)?);
        let (predicted, spent) = work::within(work.clamp(0.0, FLOOR_WORK), || predictor.forecast(cell).floor());
        *work -= spent.work;
        Some(Self { end, share, predicted: predicted.ok().map(|floor| floor.mse()).filter(|floor| *floor < end) })
    }
}

impl TargetCost {
    /// A run ends when it reaches its target: its last ledger is the cost of the target.
    fn of(results: &Results, cell: usize) -> Option<Self> {
        let ends: Vec<&Recorded> = results.cells[cell].iter().filter_map(|seed| seed.rows.last()).collect();
        let mean = |count| Estimate::of(&ends.iter().map(|row| row.count(paid(Some(count))) as f64).collect::<Vec<_>>()).mean;
        let rounds = ends.iter().map(|row| row.round).max()?;
        Some(Self { rounds, exchanges: mean("exchanges"), bits: mean("bits"), seconds: results.seconds(cell) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_of_every_kind_is_in_the_json_of_a_summary() {
        let notes: Vec<Note> = NoteCode::ALL.iter().map(|code| Note::new(*code, code.about())).collect();
        let json = notes_json(&notes);
        assert_eq!(json.as_array().map(Vec::len), Some(NoteCode::ALL.len()));
        for (code, note) in NoteCode::ALL.iter().zip(json.as_array().into_iter().flatten()) {
            assert_eq!(*note, json!({ "code": code.name(), "severity": code.severity().name(), "text": code.about() }));
        }
        let mut names: Vec<&str> = NoteCode::ALL.iter().map(|code| code.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NoteCode::ALL.len());
    }
}
