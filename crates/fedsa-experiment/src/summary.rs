//! The report of an experiment, a fit or an evaluation: estimates with their errors, outcomes with reason and remedy, tables, and checks.
//!
//! A [`Summary`] is data, which the program prints and other callers render. `summary.json` has more ([`crate::output`]).

use fedsa::message::{HEADER_BYTES, PART_HEADER_BYTES};
use fedsa::note::{Note, NoteCode};
use fedsa::problem::root::{Root, RootSource};
use fedsa::record::Outcome;
use fedsa::sampling::Law;
use fedsa_theory::work;
use serde_json::{Value as Json, json};

use crate::Plan;
use crate::checks::Verdict;
use crate::numbers::{about, number};
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
    /// The wall time in all, in seconds.
    pub seconds: f64,
    /// One entry per method and point, in the order of the file: all methods of a point, then the next point.
    pub entries: Vec<Entry>,
    /// For fits and evaluations, the costs of methods and the quality of weights.
    pub tables: Vec<SummaryTable>,
    /// Notes for readers.
    pub notes: Vec<Note>,
    /// The checks.
    pub checks: Vec<Verdict>,
    /// Whether the quick settings applied; failed checks are then notes.
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
    /// Whether the outcome is as expected.
    pub as_expected: bool,
    /// Whether an unexpected outcome is a note, because of quick settings.
    pub is_note: bool,
    /// The likely reason why it missed its target, in words.
    pub reason: Option<String>,
    /// The remedy, in words.
    pub remedy: Option<String>,
    /// The cost of reaching its target, if it did.
    pub cost: Option<TargetCost>,
    /// The mean of the error over the last fifth of the rounds and over seeds, if it ran to its end.
    pub floor: Option<Estimate>,
    /// The decrease of an error that has not reached its floor.
    pub falling: Option<Falling>,
}

/// An error that still falls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Falling {
    /// The mean over seeds of the squared error after the last round.
    pub end: f64,
    /// The share by which it falls over the last fifth of the rounds.
    pub share: f64,
    /// The predicted floor, if it is quickly known.
    pub predicted: Option<f64>,
}

/// The largest number of multiplications for the floors of errors that still fall, for one and for all.
const FLOOR_WORK: f64 = 1e8;
const FLOORS_WORK: f64 = 1e9;

/// The cost of a target, the mean over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TargetCost {
    /// The rounds of the slowest seed.
    pub rounds: u64,
    /// Exchanges.
    pub exchanges: f64,
    /// Bits, up and down.
    pub bits: f64,
    /// The wall time, if known.
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

/// How to make weights unique.
const UNIQUE: &str = "a small ridge, such as ridge=1e-8, makes them unique; or fewer features";

/// Notes for readers of any results.
pub(crate) fn notes_of(plan: &Plan, results: &Results) -> Vec<Note> {
    let mut notes = notes_on_roots(plan);
    notes.extend(mostly_headers(plan, results));
    notes.extend(privacy_notes(plan, results));
    notes
}

/// The notes on the privacy of methods whose sums have noise.
fn privacy_notes(plan: &Plan, results: &Results) -> Vec<Note> {
    let (mut spent, mut simulated): (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for (label, cell) in plan.points.iter().flat_map(|planned| plan.labels.iter().zip(&planned.cells)) {
        let Some(privacy) = plan.cells[*cell].uplink.privacy() else { continue };
        if plan.field(*cell).facts().is_elsewhere() {
            let rounds = results.cells[*cell].first().and_then(|seed| seed.rows.last()).map_or(0, |row| row.round);
            let epsilon = privacy.spent(rounds).map_or("unknown".into(), number);
            let at = number(privacy.delta);
            spent.push(format!("{label}: {rounds} rounds spent epsilon = {epsilon} at delta = {at} for {}", privacy.protected()));
        } else if !simulated.contains(&label.as_str()) {
            simulated.push(label);
        }
    }
    let mut notes: Vec<Note> = spent.into_iter().map(|text| Note::new(NoteCode::PrivacySpent, text)).collect();
    if !simulated.is_empty() {
        let what = "simulated, not private: who knows the seed can compute the noise of private sums";
        notes.push(Note::new(NoteCode::PrivacySimulated, format!("{}: {what}", simulated.join(", "))));
    }
    notes
}

/// The note that more than half of the bits are headers of messages, naming the first such methods.
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

/// The notes on roots that are unknown or not the only ones, each once.
fn notes_on_roots(plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    for planned in &plan.fields {
        let note = match planned.field.solution() {
            Err(why) => Note::new(NoteCode::RootUnknown, format!("theta* is not known, and no errors are measured: {why}")),
            Ok(Root { source: RootSource::Searched { starts, found, stable }, .. }) if *found > 1 => {
                let what = format!("{found} roots were found from {starts} starts, of which {stable} stable");
                Note::new(NoteCode::RootNotAlone, format!("{what}: theta* is one of the stable ones, and methods may end at another"))
            }
            Ok(_) => continue,
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Notes in the form of `summary.json`.
pub fn notes_json(notes: &[Note]) -> Json {
    notes.iter().map(|note| json!({ "code": note.code.name(), "severity": note.severity().name(), "text": note.text })).collect()
}

impl Entry {
    /// The entry of a cell, without label and point. `work` is what all of them may still compute.
    fn of(plan: &Plan, results: &Results, predictor: &Predictor, cell: usize, work: &mut f64) -> Self {
        let outcome = results.outcome(plan, cell);
        let (reason, remedy) = match outcome {
            Some(Outcome::Diverged { .. }) if plan.cells[cell].method.expect.is_none() => (None, Some(stable_step_text(plan, cell))),
            Some(Outcome::Stalled(missed)) => {
                let remedy = results.why_not_unique(plan, cell).map(|_| UNIQUE.to_string());
                (Some(results.why_stalled(plan, predictor, cell, &missed)), remedy)
            }
            // More rounds are then useless.
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
    /// A run ends when it reaches its target, so that its last ledger is the target's cost.
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
