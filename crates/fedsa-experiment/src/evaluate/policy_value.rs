//! The value of a policy, as tables and as JSON.

use fedsa::note::{Note, NoteCode};
use fedsa_evaluate::policy_value::{EstimateTable, FEWEST_EPISODES, FittedValue, IntervalKind, PolicyValue, ValueEstimate, WeightedValue};
use serde_json::{Map, Value, json};

use crate::numbers;
use crate::tables::{Shown, SummaryCell, SummaryColumn, SummaryTable};

/// The largest number of agents in tables.
const LISTED: usize = 12;

/// The estimates of a value, with their names in `summary.json` and in words.
pub(super) fn estimates(value: &PolicyValue) -> Vec<(&'static str, &'static str, &EstimateTable)> {
    let by_returns = if value.has_ratios { "importance sampling" } else { "returns" };
    let robust = value.doubly_robust.iter().map(|robust| ("doubly_robust", "a doubly robust estimate", &robust.table));
    let others = [("fitted", "fitted values", &value.fitted.table), ("importance", by_returns, &value.importance.table)];
    others.into_iter().chain(robust).collect()
}

/// The value of a policy minus the value of another policy with its own logs.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PolicyDifference {
    /// The logs of the other policy.
    pub against: Vec<String>,
    /// Its value.
    pub other: PolicyValue,
}

impl PolicyDifference {
    /// For each estimate, its name in `summary.json` and in words: the value, the other value, and the difference with its interval, for
    /// independent logs.
    pub fn of(&self, value: &PolicyValue) -> Vec<(&'static str, &'static str, [ValueEstimate; 3])> {
        let other = estimates(&self.other);
        let pair = |(name, words, a): (&'static str, &'static str, &EstimateTable)| {
            let (_, _, b) = other.iter().find(|(other, ..)| *other == name)?;
            Some((name, words, [a.all, b.all, a.all.minus(&b.all, value.level)]))
        };
        estimates(value).into_iter().filter_map(pair).collect()
    }

    pub(super) fn json(&self, value: &PolicyValue) -> Value {
        let mut all = json!({ "logs": self.against });
        for (name, _, [_, other, difference]) in self.of(value) {
            all[name] = json!({ "other": estimate(&other), "difference": difference_json(&difference) });
        }
        all
    }

    pub(super) fn table(&self, value: &PolicyValue) -> SummaryTable {
        let columns = vec![
            SummaryColumn::left("by", Shown::Short),
            SummaryColumn::left("here", Shown::Short),
            SummaryColumn::left("there", Shown::Short),
            SummaryColumn::left("here - there", Shown::Short),
            SummaryColumn::left("interval", Shown::Short),
        ];
        let title = format!("the difference to {}, with {} intervals", self.against.join(" "), numbers::percent(value.level));
        let mut table = SummaryTable::new(title, columns);
        for (_, words, estimates) in self.of(value) {
            let mut cells: Vec<SummaryCell> = vec![words.into()];
            cells.extend(estimates.iter().map(with_error));
            cells.push(interval(&estimates[2]));
            table.rows.push(cells);
        }
        table.notes.push("the logs are taken to be independent of each other".into());
        table
    }
}

/// A difference with its interval, as JSON.
pub(crate) fn difference_json(difference: &ValueEstimate) -> Value {
    let ValueEstimate { estimate, se, low, high, .. } = *difference;
    json!({ "estimate": finite(estimate), "se": finite(se), "low": finite(low), "high": finite(high) })
}

/// The object `policy_value` of `summary.json`. `of_weights` is the value under the run's weights.
pub(crate) fn json(value: &PolicyValue, of_weights: f64) -> Value {
    let PolicyValue { level, fitted, importance, doubly_robust, clipped, .. } = value;
    let mut by_fit = table_json(&fitted.table);
    by_fit.insert("interval".into(), json!(interval_name(fitted.interval)));
    by_fit.insert("of_weights".into(), finite(of_weights));
    let weighted = |weighted: &WeightedValue| {
        let mut object = table_json(&weighted.table);
        object.insert("plain".into(), finite(weighted.plain));
        object.insert("cut_episodes".into(), json!(weighted.cut));
        object.insert("bootstrapped".into(), finite(weighted.bootstrapped));
        object.insert("clipped".into(), json!(clipped));
        if let Some(table) = &weighted.self_normalised {
            object.insert("self_normalised".into(), table_json(table).into());
        }
        object
    };
    let mut all = json!({ "level": level, "fitted": by_fit, "importance": weighted(importance) });
    if let Some(unclipped) = &value.unclipped {
        all["importance"]["unclipped"] = estimate(unclipped);
    }
    if let Some(robust) = doubly_robust {
        all["doubly_robust"] = Value::Object(weighted(robust));
    }
    all
}

fn finite(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::Null }
}

fn interval_name(kind: IntervalKind) -> &'static str {
    match kind {
        IntervalKind::Influence => "influence",
        IntervalKind::Jackknife => "jackknife",
    }
}

fn estimate(e: &ValueEstimate) -> Value {
    json!({
        "estimate": finite(e.estimate),
        "se": finite(e.se),
        "low": finite(e.low),
        "high": finite(e.high),
        "episodes": e.episodes,
        "effective_episodes": finite(e.effective_episodes),
    })
}

fn named(agents: &[(String, ValueEstimate)]) -> Value {
    Value::Object(agents.iter().map(|(name, e)| (name.clone(), estimate(e))).collect())
}

fn table_json(table: &EstimateTable) -> Map<String, Value> {
    let shared = (table.shared.len() > 1).then(|| ("under_shared_weights", named(&table.shared)));
    let entries = [("all", estimate(&table.all)), ("agents", named(&table.own))].into_iter().chain(shared);
    entries.map(|(key, value)| (key.to_string(), value)).collect()
}

/// A table for each estimate, with explanations.
pub(super) fn tables(value: &PolicyValue) -> Vec<SummaryTable> {
    let level = numbers::percent(value.level);
    let title = |by: &str| format!("value of the start states by {by}, with {level} intervals");
    let mut by_fit = table(title("fitted values"), &value.fitted.table);
    by_fit.notes.extend(fit_notes(&value.fitted));
    let by = if value.has_ratios { "importance sampling" } else { "returns" };
    let mut by_returns = table(title(by), &value.importance.table);
    by_returns.notes.extend(return_notes(value, &value.importance));
    let robust = value.doubly_robust.iter().map(|robust| {
        let mut table = table(title("a doubly robust estimate"), &robust.table);
        table.notes.push("it is right where the ratios are, or where the fitted values of actions are".into());
        table.notes.extend(return_notes(value, robust).into_iter().filter(|note| note.contains("cut short")));
        table
    });
    [by_fit, by_returns].into_iter().chain(robust).collect()
}

fn row(name: String, e: &ValueEstimate) -> Vec<SummaryCell> {
    vec![name.as_str().into(), with_error(e), interval(e), (e.episodes as f64).into(), known(e.effective_episodes).into()]
}

fn known(x: f64) -> Option<f64> {
    Some(x).filter(|x| x.is_finite())
}

fn with_error(e: &ValueEstimate) -> SummaryCell {
    known(e.estimate).map_or(SummaryCell::Missing, |x| SummaryCell::Estimate(x, known(e.se)))
}

fn interval(e: &ValueEstimate) -> SummaryCell {
    match known(e.low).zip(known(e.high)) {
        Some((low, high)) => format!("{} to {}", numbers::number(low), numbers::number(high)).as_str().into(),
        None => SummaryCell::Missing,
    }
}

fn table(title: String, of: &EstimateTable) -> SummaryTable {
    let columns = vec![
        SummaryColumn::left("", Shown::Short),
        SummaryColumn::left("value (standard error)", Shown::Short),
        SummaryColumn::left("interval", Shown::Short),
        SummaryColumn::right("episodes", Shown::Whole),
        SummaryColumn::right("effective", Shown::Digits(4)),
    ];
    let mut table = SummaryTable::new(title, columns);
    table.rows.push(row("all agents".into(), &of.all));
    if of.shared.len() > 1 {
        let of_agent = |(name, shared): &(String, ValueEstimate)| match of.own.iter().find(|(other, _)| other == name) {
            Some((_, own)) => row(name.clone(), own),
            None => row(format!("{name}, under shared weights"), shared),
        };
        table.rows.extend(of.shared.iter().take(LISTED).map(of_agent));
        if of.shared.len() > LISTED {
            table.notes.push(format!("{LISTED} of {} agents are listed", of.shared.len()));
        }
        if of.own.len() < of.shared.len() {
            table.notes.push(
                "a row under shared weights has the value of the agent's start states where it behaves as all agents do on average: its \
                 interval does not cover the agent's own value where agents differ"
                    .into(),
            );
        }
    }
    table
}

/// Notes for readers of the value.
pub(crate) fn odd(value: &PolicyValue, of_weights: f64) -> Vec<Note> {
    let mut notes = few_episodes(&value.fitted.table);
    let all = &value.fitted.table.all;
    notes.extend(unknown_errors(value));
    if is_elsewhere(all, of_weights) {
        let of_weights = numbers::number(of_weights);
        let what =
            format!("the value is that of the pooled LSTD solution: the weights of the run have not come there, and have {of_weights}");
        notes.push(Note::new(NoteCode::ValueOtherWeights, what));
    }
    notes.extend(poor_features(value));
    notes.extend(fitted_part(value));
    let all = &value.importance.table.all;
    if value.has_ratios && all.effective_episodes < FEWEST_EPISODES as f64 {
        let size = numbers::digits(all.effective_episodes, 3);
        let what = format!(
            "the effective number of episodes falls to {size}, below {FEWEST_EPISODES}, before half of the discounted steps have been made: a few \
             episodes decide, and the interval by importance sampling may be far too narrow"
        );
        notes.push(Note::new(NoteCode::ValueFewEffective, what));
    }
    notes
}

/// The note that the data do not determine a value, and its error is unknown.
fn unknown_errors(value: &PolicyValue) -> Option<Note> {
    let is_unknown = |table: &EstimateTable| !table.all.se.is_finite() && table.all.episodes > 1;
    let why = "episodes are cut short in states of which nothing else is known, and a value without an error may be far off; fewer `features` or \
               longer episodes help";
    let what = match (is_unknown(&value.fitted.table), is_unknown(&value.importance.table)) {
        (false, false) => return None,
        (true, true) => "the values",
        (true, false) => "the fitted value",
        (false, true) => "the value by returns",
    };
    Some(Note::new(NoteCode::ValueErrorUnknown, format!("the logs do not determine {what}: {why}")))
}

/// Whether the run's weights have another value than the pooled solution.
fn is_elsewhere(all: &ValueEstimate, of_weights: f64) -> bool {
    let size = 1e-6 * all.estimate.abs() + if all.se.is_finite() { 0.01 * all.se } else { 0.0 };
    (of_weights - all.estimate).abs() > size
}

/// The notes on few episodes, of all agents or of some.
fn few_episodes(of: &EstimateTable) -> Vec<Note> {
    let few = |e: &ValueEstimate| e.episodes < FEWEST_EPISODES;
    let count = of.shared.iter().filter(|(_, e)| few(e)).count();
    let what = if few(&of.all) {
        let rough = if of.all.episodes > 1 { "and the interval is rough" } else { "and there is no interval" };
        format!("there are too few episodes, {} and not {FEWEST_EPISODES}, {rough}", of.all.episodes)
    } else if of.shared.len() > 1 && count > 0 {
        let agents = if count == 1 { "1 agent has".into() } else { format!("{count} agents have") };
        format!("{agents} fewer than {FEWEST_EPISODES} episodes, and a rough interval")
    } else {
        return Vec::new();
    };
    vec![Note::new(NoteCode::ValueFewEpisodes, what)]
}

/// The note that much of the value by returns is fitted values after the ends of truncated episodes.
fn fitted_part(value: &PolicyValue) -> Option<Note> {
    /// The largest unremarkable part of the value.
    const LITTLE: f64 = 0.5;
    let WeightedValue { table, cut, bootstrapped, plain, .. } = &value.importance;
    let [part, of, plain] = [*bootstrapped, table.all.estimate, *plain].map(numbers::number);
    let what = format!(
        "fitted values make up {part} of the value {of} by returns: they stand for what would follow the ends of {cut} of {} episodes that are cut \
         short. The mean of the returns as they are is {plain}",
        table.all.episodes
    );
    (*cut > 0 && bootstrapped.abs() > LITTLE * table.all.estimate.abs()).then(|| Note::new(NoteCode::ValueFittedPart, what))
}

fn fit_notes(fitted: &FittedValue) -> Vec<String> {
    let how = match fitted.interval {
        IntervalKind::Influence => "by what each episode contributes to the start states and to the weights",
        IntervalKind::Jackknife => "by leaving out each episode in turn",
    };
    vec![format!("standard errors are over episodes, {how}; the error of the features is not in them")]
}

/// The note that fitted values differ from returns by more than chance, because of the features.
fn poor_features(value: &PolicyValue) -> Option<Note> {
    /// The largest number of standard errors that counts as chance.
    const CHANCE: f64 = 5.0;
    let (fitted, returns) = (value.fitted.table.all, value.importance.table.all);
    let apart = (fitted.estimate - returns.estimate).abs() / fitted.se.hypot(returns.se);
    (apart.is_finite() && apart > CHANCE && fitted.episodes >= FEWEST_EPISODES).then(|| {
        let by = if value.has_ratios { "importance sampling" } else { "returns" };
        let apart = numbers::digits(apart, 2);
        let what =
            format!("the fitted value is {apart} standard errors from the value by {by}: the features are too poor for these values");
        Note::new(NoteCode::ValuePoorFeatures, what)
    })
}

fn return_notes(value: &PolicyValue, weighted: &WeightedValue) -> Vec<String> {
    let all = &weighted.table.all;
    let mut notes = Vec::new();
    if value.has_ratios {
        notes.push("returns are weighted per decision, with fitted values of other episodes as control variate".into());
        notes.push(format!("without control variate the value is {}", numbers::number(weighted.plain)));
        if let Some(ValueEstimate { estimate, se, low, high, .. }) = weighted.self_normalised.as_ref().map(|table| table.all) {
            let [value, se, low, high] = [estimate, se, low, high].map(numbers::number);
            notes.push(format!(
                "with self-normalised weights it is {value} ({se}), {low} to {high}: biased with few episodes, usually of less variance"
            ));
        }
    }
    if weighted.cut > 0 {
        let is_nothing = weighted.bootstrapped.abs() <= 1e-9 * all.estimate.abs();
        let part = if is_nothing { "nothing".into() } else { numbers::number(weighted.bootstrapped) };
        let plain = numbers::number(weighted.plain);
        notes.push(format!(
            "{} of {} episodes are cut short: fitted values stand for what would follow, and make up {part} of the value. The interval has the \
             error of their weights, and not that of the features. The mean of the returns as they are is {plain}",
            weighted.cut, all.episodes
        ));
    }
    if let Some(share) = value.clipped {
        notes.push(format!("{} of the ratios are clipped, which biases the value", numbers::percent(share)));
    }
    if let Some(ValueEstimate { estimate, se, low, high, .. }) = value.unclipped.filter(|_| std::ptr::eq(weighted, &value.importance)) {
        let [value, se, low, high] = [estimate, se, low, high].map(numbers::number);
        notes.push(format!("without clipping it is {value} ({se}), {low} to {high}"));
    }
    notes
}
