//! Notes on a policy.

use fedsa::note::{Note, NoteCode};
use fedsa_evaluate::policy_value::improved::{ImprovedValue, NoWeights};
use fedsa_evaluate::policy_value::{FEWEST_EPISODES, MAX_FEATURES, PossibleValues};
use fedsa_problems::control::improvement::PolicyEnding;

use super::ImproveData;
use super::ridge::RidgeReason;
use crate::evaluate::left_out;
use crate::numbers::{digits, number, percent};

/// Pairs with fewer rows behind them count as rare.
pub(super) const FEW_ROWS: f64 = 5.0;
/// The share of states with rare greedy actions that is worth a note.
const MANY: f64 = 0.05;

/// All notes, the most important first.
pub(super) fn of(data: &ImproveData, ending: PolicyEnding, value: Option<&ImprovedValue>, rare: &[(String, f64)]) -> Vec<Note> {
    let mut notes = match value {
        Some(value) => of_value(value),
        None => {
            let (m, most) = (data.map.len() * data.settings.actions.len(), MAX_FEATURES);
            let why = if m > most {
                format!("values with intervals have at most {most} features of pairs of a state and an action, not {m}")
            } else {
                "there are no held-out episodes with a start whose value is known".into()
            };
            vec![Note::new(
                NoteCode::PolicyValueUnknown,
                format!("nothing says whether the new policy is better than the one that acted: {why}"),
            )]
        }
    };
    notes.extend(left_out(&data.read.left_out));
    let unsettled = match ending {
        PolicyEnding::Settled => None,
        PolicyEnding::Cycle(n) => {
            let taken = if value.is_some() { "the best of them on held-out episodes" } else { "one of them" };
            Some(format!("the iteration goes round in a cycle of {n} policies, and {taken} was taken; another ridge may help"))
        }
        PolicyEnding::Unsettled => Some("the iteration has not settled: more `max_rounds`, or another ridge, may help".into()),
        PolicyEnding::Diverged => Some("values are beyond what rewards allow: the iteration diverges; a larger ridge may help".into()),
    };
    notes.extend(unsettled.map(|what| Note::new(NoteCode::PolicyUnsettled, what)));
    let most = rare.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share > MANY);
    notes.extend(most.map(|(name, share)| {
        let what = format!(
            "fewer than {FEW_ROWS} rows are behind the chosen action in {} of the logged states of {name}: there the policy is a guess",
            percent(*share)
        );
        Note::new(NoteCode::PolicyFewRows, what)
    }));
    let why = match (&data.ridge, data.is_ridge_given) {
        (Some(choice), _) if choice.reason == RidgeReason::Unsettled => Some("with none that was tried the iteration settles"),
        (None, false) => Some("there are no held-out episodes to choose by"),
        _ => None,
    };
    notes.extend(why.map(|why| {
        let what = format!("the ridge {} was not chosen by values: {why}", number(data.settings.ridge));
        Note::new(NoteCode::PolicyRidgeNotChosen, what)
    }));
    notes
}

/// The values that rewards allow, in words.
pub(super) fn allowed(possible: PossibleValues) -> String {
    format!("rewards allow {} to {}", number(possible.low), number(possible.high))
}

/// The value of a new policy beside the value of the policy that acted, in words.
pub fn value_in_words(value: &ImprovedValue) -> String {
    let [new, acted] = [&value.new, &value.acted].map(|table| number(table.all.estimate));
    let interval = match (value.difference.low, value.difference.high) {
        (low, high) if low.is_finite() && high.is_finite() => format!("a difference from {} to {}", number(low), number(high)),
        _ => "a difference of unknown error".into(),
    };
    let beyond = if value.possible.allow(value.new.all.estimate) { String::new() } else { format!(" ({})", allowed(value.possible)) };
    format!("value {new}{beyond} on held-out episodes beside {acted}, {interval}")
}

/// The notes on a value.
fn of_value(value: &ImprovedValue) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut add = |code: NoteCode, what: String| notes.push(Note::new(code, what));
    if value.is_impossible() {
        let (new, allowed) = (number(value.new.all.estimate), allowed(value.possible));
        add(NoteCode::PolicyValueImpossible, format!("the value {new} of the new policy on held-out episodes is impossible: {allowed}"));
    } else if value.may_be_worse() {
        let what = format!("the new policy may be worse than the one that acted: {}", value_in_words(value));
        add(NoteCode::PolicyMayBeWorse, what);
    }
    if value.new.all.episodes < FEWEST_EPISODES {
        let what = format!("only {} held-out episodes judge the new policy, and its interval is rough", value.new.all.episodes);
        add(NoteCode::ValueFewEpisodes, what);
    }
    let what = match value.weighted {
        Err(NoWeights::FewEffective(n)) => {
            let left = digits(n, 2);
            format!("ratios leave {left} effective episodes or rows, and {FEWEST_EPISODES} episodes are needed; `soften` leaves more")
        }
        Err(NoWeights::WrongRatios) => "the logged probabilities cannot be those of the policy that acted".into(),
        Ok(_) | Err(NoWeights::NoProbabilities) => return notes,
    };
    add(NoteCode::PolicyFewEffective, format!("no doubly robust and no weighted value: {what}"));
    notes
}
