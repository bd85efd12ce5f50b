//! Notes for readers of an evaluation.

use fedsa::error::in_quotes;
use fedsa::note::{Note, NoteCode};
use fedsa::problem::Field;
use fedsa::problem::root::{Root, RootSource};
use fedsa_evaluate::policy_value::FEWEST_EPISODES;
use fedsa_problems::features::FeatureSpec;
use fedsa_problems::logs::log_form::LeftOutRows;
use fedsa_problems::logs::ratio_means::{RatioMean, WrongRatios};
use fedsa_problems::logs::survey::{LogFacts, RatioClipping};

use super::{Data, FeatureChoice, LogsRead, default_features};
use crate::made::count;
use crate::numbers;

/// The largest number of files, reasons or agents that are named.
const MAX_NAMED: usize = 10;

/// The notes on the logs and their features.
pub(super) fn of(data: &Data, field: &dyn Field) -> Vec<Note> {
    let read = LogsRead::of(&data.logs, &data.episodes);
    let mut all = left_out(&read.left_out);
    all.extend(order(&read));
    all.extend(traces(data));
    all.extend(clipped(data));
    all.extend(labels(data));
    all.extend(constant(data));
    all.extend(data.features.as_ref().and_then(few_judges));
    all.extend(dependence(data, field));
    all.extend(ratios(data));
    all.extend(data.found_with.filter(|gamma| *gamma != data.settings.gamma).map(|gamma| {
        let what = format!("the policy was found with `gamma = {gamma}`, and its value is that with `gamma = {}`", data.settings.gamma);
        Note::new(NoteCode::PolicyOtherGamma, what)
    }));
    if data.logs.facts.iter().all(|log| !log.has_rewards) {
        all.push(Note::new(NoteCode::RewardsZero, "all rewards are 0, and so are the values and their weights"));
    }
    all
}

fn number(n: usize) -> String {
    numbers::thousands(n as f64)
}

/// Omitted rows, by file and reason.
pub(crate) fn left_out(all: &[LeftOutRows]) -> Vec<Note> {
    let mut notes: Vec<Note> = all.iter().take(MAX_NAMED).map(LeftOutRows::note).collect();
    if let Some(more) = all.get(MAX_NAMED..).filter(|more| !more.is_empty()) {
        let rows = more.iter().map(|rows| rows.rows).sum();
        let what = format!("left out {} in {}; summary.json lists them", count(rows, "row"), count(more.len(), "further case"));
        notes.push(Note::new(more[0].code, what));
    }
    notes
}

/// Unusual orders of rows and ends of episodes.
fn order(read: &LogsRead) -> Vec<Note> {
    let (all, mut notes) = (&read.all, Vec::new());
    let mut note = |code, what: String| notes.push(Note::new(code, what));
    if read.is_shuffled() {
        note(
            NoteCode::RowsShuffled,
            "rows are not in the order of time, and episodes are not known: most begin in another state than the row before led to. There is \
             no value of start states. A column `env` or `episode` puts rows of environments that are side by side in order"
                .into(),
        );
    } else if all.jumps > 0 {
        let what =
            format!("{} in the midst of an episode begin in another state than the row before led to", count(all.jumps, "transition"));
        note(
            NoteCode::RowsOutOfOrder,
            format!("{what}: rows of an episode belong in the order of time, or its returns, traces and value are wrong"),
        );
    }
    if read.next_follows {
        note(
            NoteCode::NextStatesFollow,
            "the logs have no columns of next states: each next state is that of the following row of the episode".into(),
        );
    }
    if all.both > 0 {
        let both = format!("{} are marked as terminal and as truncated, and count as terminal", count(all.both, "transition"));
        note(
            NoteCode::RowsTerminalAndTruncated,
            format!("{both}: where `done` means either, name the column that means terminal with `columns`"),
        );
    }
    if all.resumed > 0 {
        let episodes = if all.resumed == 1 { "1 episode goes".into() } else { format!("{} episodes go", number(all.resumed)) };
        note(
            NoteCode::EpisodesResumed,
            format!("{episodes} on after their end under the same number, and what follows counts as an episode of its own"),
        );
    }
    notes
}

/// Traces that restart because rows do not follow each other.
fn traces(data: &Data) -> Option<Note> {
    let facts = &data.logs.facts;
    let cut: usize = facts.iter().map(|log| log.cut_off).sum();
    let agents = count(facts.iter().filter(|log| log.cut_off > 0).count(), "agent");
    let of = number(data.logs.transitions());
    (data.settings.lambda > 0.0 && cut > 0).then(|| {
        let what = format!("{} of {of} rows of {agents} begin elsewhere than the row before ended", number(cut));
        Note::new(NoteCode::TracesCut, format!("{what}: traces start anew there; a column `episode` would say where episodes begin"))
    })
}

/// Columns with states outside of the given range.
fn clipped(data: &Data) -> Vec<Note> {
    let ranges = data.map.ranges();
    let each = data.map.columns().iter().zip(&data.clipped).filter(|(_, count)| **count > 0);
    let note = |(column, count): (&String, &usize)| {
        let share = numbers::percent(*count as f64 / data.logs.transitions() as f64);
        let (lo, hi) = ranges.get(column).copied().unwrap_or_default();
        let (column, lo, hi) = (in_quotes(column), numbers::typed(lo), numbers::typed(hi));
        let what = format!("the column {column} is outside of its range {lo},{hi} in {share} of the states, which count as its ends");
        Note::new(NoteCode::StatesClipped, what)
    };
    each.map(note).collect()
}

/// Columns that may be numbers of states, and are treated as quantities.
fn labels(data: &Data) -> Option<Note> {
    /// The largest number of values, of all columns together, that are likely to be labels.
    const MOST: f64 = 5000.0;
    let spec = data.map.spec();
    let is_taken_as_is = matches!(spec, FeatureSpec::Columns {} | FeatureSpec::OneHot {});
    let is_default = data.features.is_none() && *spec == default_features(&data.logs);
    let ranges = data.logs.whole_ranges().filter(|_| !is_taken_as_is && is_default)?;
    let values: f64 = ranges.iter().map(|(lo, hi)| hi - lo + 1.0).product();
    let all = if ranges.len() == 1 { "the state column is" } else { "all state columns are" };
    let count = numbers::thousands(values);
    (values <= MOST).then(|| {
        let what = format!("{all} whole numbers, of {count} values in all: if they are labels, `features = one-hot` has a weight for each");
        Note::new(NoteCode::StatesMayBeLabels, what)
    })
}

/// State columns with one value, which carry no information.
fn constant(data: &Data) -> Option<Note> {
    let (facts, columns) = (&data.logs.facts, data.logs.columns());
    let is_constant = |j: &usize| {
        let (value, _) = facts[0].seen[*j];
        facts.iter().all(|log| log.seen[*j] == (value, value))
    };
    let names: Vec<String> = (0..columns.len()).filter(is_constant).map(|j| in_quotes(&columns[j])).collect();
    let (first, more) = (names.first()?, names.len() - 1);
    let more = if more == 0 { String::new() } else { format!(" and {}", count(more, "further state column")) };
    Some(Note::new(NoteCode::StatesConstant, format!("{first}{more}: the same value in every transition, which tells nothing")))
}

/// Features chosen by few episodes, or by episodes of one kind.
fn few_judges(choice: &FeatureChoice) -> Option<Note> {
    let few = (choice.episodes < FEWEST_EPISODES).then(|| format!("{} judge the features", count(choice.episodes, "episode")));
    let cut = choice.held.saturating_sub(choice.episodes);
    let atypical = (2 * cut > choice.held).then(|| {
        format!("{cut} of {} held-out episodes are cut short and have no return: those that ended may be of another kind", choice.held)
    });
    let all: Vec<String> = few.into_iter().chain(atypical).collect();
    (!all.is_empty()).then(|| Note::new(NoteCode::FeaturesFewJudges, format!("{}; `features` names others", all.join(", and "))))
}

/// Linearly dependent features.
fn dependence(data: &Data, field: &dyn Field) -> Option<Note> {
    let settings = &data.settings;
    let Ok(Root { source: RootSource::LeastNorm { rank }, theta }) = field.solution() else { return None };
    let (d, rank) = match (settings.operator.has_auxiliary(), field.facts().projected_bellman()) {
        (true, Some(error)) => (theta.len() / 2, error.minimiser().rank),
        _ => (theta.len(), *rank),
    };
    let what = format!("{rank} of {d} directions of these features are independent on these transitions: of all solutions");
    let help = if settings.ridge == 0.0 { "; a positive `ridge` makes it unique" } else { "" };
    (rank < d).then(|| Note::new(NoteCode::FeaturesDependent, format!("{what} the one of least norm is meant{help}")))
}

/// Unusual importance ratios.
fn ratios(data: &Data) -> Vec<Note> {
    /// The share of the transitions below which an effective sample size is small.
    const SMALL: f64 = 0.1;
    let sizes: Vec<(&LogFacts, f64)> = data.logs.facts.iter().filter_map(|log| Some((log, log.effective_size?))).collect();
    if sizes.is_empty() {
        return Vec::new();
    } else if !data.settings.ratios {
        let what = format!("the importance ratios of {} are not used (`problem.ratios = false`)", count(sizes.len(), "agent"));
        return vec![Note::new(NoteCode::RatiosNotUsed, what)];
    }
    let used = format!("the importance ratios of {} are used: `problem.ratios = false` leaves them out", count(sizes.len(), "agent"));
    let mut notes = vec![Note::new(NoteCode::RatiosUsed, used)];
    notes.extend(clipping(data));
    match data.wrong_ratios() {
        None => notes.extend(far_from_one(&sizes)),
        Some(why) => notes.push(Note::new(NoteCode::RatiosNoValue, why)),
    }
    let small: Vec<_> = sizes.iter().filter(|(log, size)| *size < SMALL * log.transitions as f64).collect();
    let few = |what| Note::new(NoteCode::RatiosFewEffective, what);
    notes.extend(small.iter().take(MAX_NAMED).map(|(log, size)| {
        let (size, n) = (numbers::digits(*size, 3), number(log.transitions));
        few(format!("{}: the ratios leave an effective sample size of {size} of {n} transitions: its part is uncertain", log.name))
    }));
    if small.len() > MAX_NAMED {
        notes.push(few(format!("the ratios of {} more leave small effective sample sizes too", count(small.len() - MAX_NAMED, "agent"))));
    }
    notes
}

/// The reason why the policy has no value, and what to do.
pub(super) fn no_value(wrong: &[WrongRatios]) -> String {
    let rows = |of: &RatioMean| {
        let (rows, effective) = (numbers::thousands(of.rows), numbers::digits(of.effective, 3));
        format!("over {rows} rows with an effective sample size of {effective}")
    };
    let reason = |one: &WrongRatios| match one {
        WrongRatios::Mean(name, of) => {
            let (name, mean, se) = (name.as_deref().unwrap_or("all logs"), numbers::digits(of.mean, 3), numbers::digits(of.se(), 2));
            format!("the mean importance ratio of {name} is {mean} ({se}) and should be 1, {}", rows(of))
        }
        WrongRatios::FewRows(of) => {
            format!("a few rows carry the weight of all importance ratios, whose mean is {} {}", numbers::digits(of.mean, 3), rows(of))
        }
    };
    let mut all: Vec<String> = wrong.iter().take(MAX_NAMED).map(reason).collect();
    if wrong.len() > MAX_NAMED {
        all.push(format!("and so on for {} more", count(wrong.len() - MAX_NAMED, "agent")));
    }
    let help = "check the probabilities of the policy that acted; `max_importance_ratio` replaces single large ratios";
    format!("no value of the policy is estimated: {}; {help}", all.join("; "))
}

/// The effect of clipping on the mean of all ratios.
fn clipping(data: &Data) -> Option<Note> {
    let of = |log: &LogFacts| Some((log.transitions as f64, log.clipping?, log.mean_ratio?));
    let all: Vec<(f64, RatioClipping, f64)> = data.logs.facts.iter().filter_map(of).collect();
    let level = numbers::typed(all.first()?.1.level);
    let n: f64 = all.iter().map(|(n, ..)| n).sum();
    let share = all.iter().map(|(_, clip, _)| clip.clipped as f64).sum::<f64>() / n;
    let before = numbers::digits(all.iter().map(|(n, clip, _)| n * clip.mean_before).sum::<f64>() / n, 4);
    let after = numbers::digits(all.iter().map(|(n, _, mean)| n * mean).sum::<f64>() / n, 4);
    let what = format!("{} of the ratios are clipped at {level}, and their mean falls from {before} to {after}", numbers::percent(share));
    let why = "what the mean loses, 1 being right, is weight of actions that the evaluated policy prefers: a bias";
    Some(Note::new(NoteCode::RatiosClipped, format!("{what}: {why}")))
}

/// Agents whose mean ratio differs from 1 by more than chance: five standard errors, and a tenth.
fn far_from_one<'a>(sizes: &'a [(&LogFacts, f64)]) -> impl Iterator<Item = Note> + 'a {
    let far = |(log, size): &(&LogFacts, f64)| {
        let mean = log.clipping.map_or(log.mean_ratio?, |clip| clip.mean_before);
        // The variance of the ratios, from sum^2 / sum of squares; clipping makes it smaller.
        let n = log.transitions as f64;
        let error = mean * ((n / size - 1.0).max(0.0) / n).sqrt();
        let what =
            format!("{}: the mean ratio is {}, and should be 1: are they those of these policies?", log.name, numbers::digits(mean, 3));
        ((mean - 1.0).abs() > (5.0 * error).max(0.1)).then(|| Note::new(NoteCode::RatiosMeanNotOne, what))
    };
    sizes.iter().filter_map(far).take(MAX_NAMED)
}
