//! `fedsa diff`: compares two finished runs.

use fedsa::error::Error;
use fedsa_evaluate::policy_value::ValueEstimate;
use fedsa_experiment::compare::{ComparedCoefficient, NUMBERS, Pair, PolicyValuePair, Side, compare};
use fedsa_experiment::numbers;

use super::{say, say_json};
use crate::args::DiffArgs;
use crate::error::DONE;

/// Runs the command.
///
/// # Errors
/// When a folder has no finished run.
pub fn diff(args: &DiffArgs) -> Result<u8, Error> {
    let compared = compare(&args.a, &args.b)?;
    if args.json {
        say_json(&compared.json());
        return Ok(DONE);
    }
    say(format!("a: {}\nb: {}", args.a.display(), args.b.display()));
    say(if compared.settings.is_empty() { "settings: the same" } else { "settings that differ:" });
    let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
    for entry in &compared.settings {
        say(format!("  {}: {} | {}", entry.key, shown(&entry.a), shown(&entry.b)));
    }
    say("results, a | b:");
    for pair in &compared.results {
        say(format!("  {}", result_line(pair)));
    }
    if !compared.coefficients.is_empty() {
        say("coefficients, a | b:");
        compared.coefficients.iter().for_each(|pair| say(format!("  {}", coefficient_line(pair))));
    }
    if !compared.policy_values.is_empty() {
        say("values of the policies, a | b, and a - b, of logs that are taken to be independent:");
        compared.policy_values.iter().for_each(|pair| say(format!("  {}", value_line(pair))));
    }
    if compared.have_same_logs {
        say("values of the policies: of the same logs, whose values are not independent; fedsa list shows each");
    }
    if !compared.checks.is_empty() {
        say("checks that differ, a | b:");
        compared.checks.iter().for_each(|pair| say(format!("  {}: {} | {}", pair.name, shown(&pair.a), shown(&pair.b))));
    }
    Ok(DONE)
}

/// A coefficient of both fits, with standard errors if known.
fn coefficient_line(pair: &Pair<ComparedCoefficient>) -> String {
    let side = |c: ComparedCoefficient| {
        let se = c.se.map_or(String::new(), |se| format!(" ({})", numbers::digits(se, 4)));
        c.estimate.map_or("-".into(), |x| format!("{}{se}", numbers::digits(x, 6)))
    };
    format!("{}: {} | {}", pair.name, side(pair.a), side(pair.b))
}

/// The values of two policies and their difference.
fn value_line(pair: &PolicyValuePair) -> String {
    let with_error = |e: &ValueEstimate| {
        let se = if e.se.is_finite() { format!(" ({})", numbers::number(e.se)) } else { String::new() };
        format!("{}{se}", numbers::number(e.estimate))
    };
    let PolicyValuePair { name, a, b, difference, level, .. } = pair;
    let interval = if difference.low.is_finite() {
        let (low, high) = (numbers::number(difference.low), numbers::number(difference.high));
        format!(", {} interval {low} to {high}", numbers::percent(*level))
    } else {
        String::new()
    };
    format!("{name}: {} | {}; {}{interval}", with_error(a), with_error(b), with_error(difference))
}

/// A method at a point, in both runs.
fn result_line(pair: &Pair<Side>) -> String {
    let mut parts = Vec::new();
    let (a, b) = (&pair.a, &pair.b);
    let outcome = |side: &Side| side.outcome().unwrap_or("absent").to_string();
    if outcome(a) != outcome(b) {
        parts.push(format!("{} | {}", outcome(a), outcome(b)));
    }
    for (key, text) in NUMBERS.iter().map(|key| (*key, key.trim_end_matches("_mean"))).chain([("bits_up", "bits up")]) {
        let (x, y) = (a.number(key), b.number(key));
        let number = |x: Option<f64>| x.map_or("-".to_string(), numbers::number);
        match (x, y) {
            (None, None) => {}
            (Some(x), Some(y)) if x == y => parts.push(format!("{text} the same, {}", number(Some(x)))),
            (Some(x), Some(y)) if x != 0.0 => {
                parts.push(format!("{text} {} | {} (b/a {})", number(Some(x)), number(Some(y)), number(Some(y / x))))
            }
            _ => parts.push(format!("{text} {} | {}", number(x), number(y))),
        }
    }
    format!("{}: {}", pair.name, parts.join("; "))
}
