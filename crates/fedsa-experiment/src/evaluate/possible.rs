//! The possible values of a policy, and notes on impossible estimates.

use fedsa::linalg;
use fedsa::note::{Note, NoteCode};
use fedsa_evaluate::policy_value::{PolicyValue, PossibleValues, ValueEstimate};

use super::pictures::SeenStates;
use super::{Data, LogsRead, policy_value};
use crate::made::count;
use crate::numbers;

/// The share of the states that may have values outside of the range without a note.
const FEW: f64 = 0.01;

/// The printed estimates, with names in words.
fn estimates(value: &PolicyValue) -> Vec<(String, ValueEstimate)> {
    let of = |(_, words, table): (_, &str, &fedsa_evaluate::policy_value::EstimateTable)| {
        let all = (format!("the value by {words} of all agents"), table.all);
        let named = |(name, e): &(String, ValueEstimate)| (format!("the value by {words} of {name}"), *e);
        let agents = table.own.iter().filter(|_| table.shared.len() > 1).map(named);
        std::iter::once(all).chain(agents).collect::<Vec<_>>()
    };
    policy_value::estimates(value).into_iter().flat_map(of).collect()
}

/// The first of these estimates, and the number of further ones, in words.
fn named(found: &[(String, ValueEstimate)]) -> String {
    let (name, e) = &found[0];
    let first = format!("{name} is {} with the standard error {}", numbers::number(e.estimate), numbers::number(e.se));
    match found.len() {
        1 => first,
        n => format!("{first}, and so on for {}", count(n - 1, "further value")),
    }
}

/// Notes on values of the weights `theta` and of the policy that rewards, discount and returns rule out.
pub(super) fn notes(data: &Data, theta: &[f64], value: Option<&PolicyValue>) -> Vec<Note> {
    const HELP: &str = "the logs hardly determine it: take other `features`, another `ridge`, or longer episodes";
    let (all, gamma) = (LogsRead::of(&data.logs, &data.episodes).all, data.settings.gamma);
    let Some(rewards) = all.rewards else { return Vec::new() };
    let possible = PossibleValues::new(rewards, gamma, all.ended > 0);
    let (least, most) = (numbers::number(rewards.0), numbers::number(rewards.1));
    let range = format!("rewards from {least} to {most} and `gamma = {gamma}` allow {} to {}", bound(possible.low), bound(possible.high));
    let mut notes = Vec::new();
    let estimates = value.map(estimates).unwrap_or_default();
    let width = all.return_range.1 - all.return_range.0;
    let unsure: Vec<_> = estimates.iter().filter(|(_, e)| width > 0.0 && e.se > width).cloned().collect();
    if !unsure.is_empty() {
        let text = format!("{}, more than the range {} of the returns; {HELP}", named(&unsure), numbers::number(width));
        notes.push(Note::new(NoteCode::ValueErrorLarge, text));
    }
    let outside: Vec<_> = estimates.iter().filter(|(_, e)| !possible.allow_estimate(e)).cloned().collect();
    if !outside.is_empty() {
        notes.push(Note::new(NoteCode::ValueImpossible, format!("{}, and {range}; {HELP}", named(&outside))));
    }
    notes.extend(of_states(data, theta, possible, &range));
    notes
}

/// A note on impossible values of the states in the logs.
fn of_states(data: &Data, theta: &[f64], possible: PossibleValues, range: &str) -> Option<Note> {
    // This check needs dense features, and skips sparse ones such as many tiles.
    if data.map.sparse().is_some() {
        return None;
    }
    let seen = SeenStates::of(&data.logs.facts);
    let mut phi = vec![0.0; data.map.len()];
    let values = seen.sample().map(|state| {
        data.map.eval(state, &mut phi);
        linalg::dot(&phi, theta)
    });
    let values: Vec<f64> = values.collect();
    let outside: Vec<f64> = values.iter().copied().filter(|v| !possible.allow(*v)).collect();
    let share = outside.len() as f64 / values.len() as f64;
    (share > FEW).then(|| {
        let (least, most) = outside.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        let (share, least, most) = (numbers::percent(share), numbers::number(least), numbers::number(most));
        let text = format!(
            "the values of {share} of the states are impossible, {least} to {most}: {range}; other `features` or another `ridge` may help"
        );
        Note::new(NoteCode::ValueImpossible, text)
    })
}

fn bound(x: f64) -> String {
    if x.is_finite() { numbers::number(x) } else { "any value".into() }
}
