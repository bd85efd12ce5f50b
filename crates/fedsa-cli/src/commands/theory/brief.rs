//! The short page, of at most 25 lines: for each method its floor, the largest part of the floor, the most useful change, the largest
//! stable step, and the cost of a target.

use fedsa::method::Drift;
use fedsa_experiment::Plan;
use fedsa_experiment::numbers::{self, number, rounded_down, thousands, two_digits};
use fedsa_experiment::theory::{MethodTarget, MethodTheory, ReasonCode, TheoryReport, against, best};
use fedsa_theory::Accuracy;
use fedsa_theory::predict::{Limits, Obstacle, Reach, Regime};

use super::page;
use super::privacy::privacy;
use super::target::amounts;
use super::text::{WIDTH, row};
use crate::commands::count;

/// The largest number of lines.
pub const MAX_LINES: usize = 25;
const IN_BLOCKS: usize = 3;
/// The largest number of lines about unknown or omitted numbers.
const MAX_REASONS: usize = 4;
/// The width to which names of methods in a table are cut if space is short.
const NARROWEST: usize = 16;
const WIDEST: usize = 30;

/// The page.
pub fn page(plan: &Plan, report: &TheoryReport, target: Option<f64>) -> Vec<String> {
    let mut lines = vec![cut(&format!("{}: {}", report.id, report.title), WIDTH), cut(&problem(plan), WIDTH), String::new()];
    let end = ending(report, target);
    if report.methods.len() <= IN_BLOCKS {
        for method in &report.methods {
            lines.push(cut(&title(plan, method), WIDTH));
            lines.extend(block(method, plan).into_iter().map(|(name, text)| cut(&format!("  {name:<12}{text}"), WIDTH)));
            lines.push(String::new());
        }
        lines.extend(end);
        return lines;
    }
    let mut reasons = reasons(report);
    let rows = report.methods.len();
    // The head of the table, an empty line after it, and one line of reasons.
    let room = MAX_LINES - lines.len() - end.len() - 2;
    let reasons_shown = reasons.len().min(MAX_REASONS).min(room.saturating_sub(rows).max(1));
    let left = room - reasons_shown;
    let shown = if rows <= left { rows } else { left - 1 };
    lines.extend(table(report, target, shown));
    if shown < rows {
        lines.push(format!("  {} more with --full or --json.", count(rows - shown, "line")));
    }
    lines.push(String::new());
    reasons.truncate(reasons_shown);
    lines.extend(reasons);
    lines.extend(end);
    lines
}

/// The problem in a line.
fn problem(plan: &Plan) -> String {
    let field = &*plan.fields[0].field;
    if plan.fields.len() > 1 {
        return format!(
            "{}, the first with {}, {}.",
            count(plan.fields.len(), "problem"),
            count(field.agents(), "agent"),
            count(field.dim(), "component")
        );
    }
    let unknown = field.solution().err().map_or(String::new(), |why| format!("; theta* is not known: {why}"));
    format!("{}, {}; {}{unknown}.", count(field.agents(), "agent"), count(field.dim(), "component"), page::sampling(field))
}

/// The last lines: the meaning of the numbers, and where to find more.
fn ending(report: &TheoryReport, target: Option<f64>) -> Vec<String> {
    let mut lines = Vec::new();
    if !report.left_out.is_empty() {
        let first = &report.left_out[0];
        let more = if report.left_out.len() > 1 { format!(" and {} more", report.left_out.len() - 1) } else { String::new() };
        let what = format!("{}: {}", first.method, first.what);
        lines.push(format!("Left out, because it takes long (--full takes longer): {}{more}.", cut(&what, WIDTH - 70)));
    }
    let ask = if target.is_none() { " --target-mse EPS2: what an error of EPS2 takes." } else { "" };
    lines.push("Floor: the error ||theta - theta*||^2 in the end, mean over runs.".into());
    lines.push(format!("--full: constants, all changes, theorems.{ask}"));
    lines
}

/// The name of a method with its point.
fn name(method: &MethodTheory) -> String {
    if method.point.is_empty() { method.label.clone() } else { format!("{}, {}", method.label, method.point) }
}

fn title(plan: &Plan, method: &MethodTheory) -> String {
    let at = if method.point.is_empty() { String::new() } else { format!(", at {}", method.point) };
    format!("{}{at}: {}", method.label, page::settings(&plan.forecast(method.cell), plan, method.cell))
}

/// The lines of a method, each with its name.
fn block(method: &MethodTheory, plan: &Plan) -> Vec<(&'static str, String)> {
    if let Some(reason) = &method.refused {
        return vec![("refused", reason.clone())];
    }
    if let Err(reason) = &method.rounds {
        let mut lines = without_rounds(method, plan, &reason.text);
        lines.extend(method.privacy.iter().flat_map(privacy).map(|line| ("privacy", line)));
        return lines;
    }
    let mut lines = vec![("floor", floor(method))];
    lines.extend(method.helps_most().map(|help| ("helps most", help)));
    if let Some(text) = stable(method) {
        let eta = plan.forecast(method.cell).step_size().ok();
        let largest = method.stability.largest.as_ref().and_then(|found| found.as_ref().ok());
        // The limit of the mean square may be lower.
        let limit = largest.filter(|found| found.step.is_finite() && found.in_mean_square).map(|found| found.step);
        let ratio = match (eta, limit) {
            (Some(eta), Some(step)) if step >= eta => format!(", {} times the present step", number(step / eta)),
            (Some(_), Some(_)) => ", below the present step".into(),
            _ => String::new(),
        };
        lines.push(("stable", format!("{text}{ratio}")));
    }
    lines.extend(method.privacy.iter().flat_map(privacy).map(|line| ("privacy", line)));
    lines.extend(method.target.as_ref().map(|target| ("target", target_text(target))));
    lines
}

/// The lines of a method whose rounds have no closed form.
fn without_rounds(method: &MethodTheory, plan: &Plan, why: &str) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    match &method.curvature {
        Some(Ok(known)) => lines.push((
            "Hessian",
            format!(
                "eigenvalues at theta* from mu = {} to L = {}, condition number {}; --full has rates",
                number(known.least),
                number(known.largest),
                number(known.largest / known.least)
            ),
        )),
        _ if plan.forecast(method.cell).shape().drift == Drift::NoSteps => {
            lines.push(("floor", "not known: the method makes no local steps".into()))
        }
        _ if method.floor.is_ok() => lines.push(("floor", floor(method))),
        _ => lines.push(("floor", why.to_string())),
    }
    if let Ok(radius) = &method.outlook.radius {
        lines.push(("a round", format!("multiplies small errors by {}", numbers::radius(*radius))));
    }
    if let Ok(cost) = &method.cost {
        lines.push(("a round", amounts(cost, 1.0)));
    }
    lines
}

/// The floor, how it is known, and its largest part.
fn floor(method: &MethodTheory) -> String {
    match (&method.limits, &method.floor) {
        (Ok(limits), _) if limits.floor <= method.bias_rounding => "none: it reaches theta* to rounding".into(),
        (Ok(limits), _) => format!("{} ({}): {}", number(limits.floor), limits.accuracy, shares(limits, link_name(method))),
        (Err(_), Ok(known)) => {
            let value = &known.value;
            format!("{} ({}): bias^2 {}, noise {}", number(value.mse()), known.accuracy, number(value.bias_sq()), number(value.noise))
        }
        (_, Err(reason)) if reason.code == ReasonCode::Diverges => diverges(method),
        (_, Err(reason)) => match &method.bias {
            Ok(bias) if *bias > method.bias_rounding => {
                format!("at least the squared bias, {}; the noise is {}", number(*bias), reason.text)
            }
            _ => reason.text.clone(),
        },
    }
}

/// The statement that it diverges, and how.
fn diverges(method: &MethodTheory) -> String {
    let radius =
        |radius: &fedsa::error::Result<f64>| radius.as_ref().map_or(String::new(), |x| format!(" (radius {})", numbers::radius(*x)));
    match (method.regime, &method.outlook.mean_square) {
        (Regime::MeanSquareDiverges, Some(square)) => format!("DIVERGES in the mean square{}", radius(square)),
        _ => format!("DIVERGES{}", radius(&method.outlook.radius)),
    }
}

/// The name of the link's part of a floor: over private sums all of its noise is noise for privacy.
fn link_name(method: &MethodTheory) -> &'static str {
    if method.privacy.is_some() { "privacy" } else { "link" }
}

/// The parts of a floor, the largest first, without those below 2%.
fn shares(limits: &Limits, link: &'static str) -> String {
    let parts = [
        ("bias", Some(limits.bias)),
        ("samples", limits.samples),
        ("mixing", limits.mixing),
        (link, limits.link),
        ("participation", limits.participation),
    ];
    let mut parts: Vec<(&str, f64)> = parts.into_iter().filter_map(|(name, part)| Some((name, part? / limits.floor))).collect();
    parts.retain(|(_, share)| share.abs() >= 0.02);
    parts.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()));
    parts.iter().map(|(name, x)| format!("{name} {:.0}%", 100.0 * x)).collect::<Vec<_>>().join(", ")
}

/// The largest part of a floor.
fn largest_share(limits: &Limits, link: &'static str) -> String {
    let all = shares(limits, link);
    all.split_once(',').map_or(all.clone(), |(first, _)| first.to_string())
}

/// The largest stable step; `None` for methods without steps.
fn stable(method: &MethodTheory) -> Option<String> {
    Some(match method.stability.largest.as_ref()? {
        Ok(found) if found.step.is_infinite() => "every step".into(),
        Ok(found) => {
            let kind = match (found.in_mean_square, method.regime) {
                (true, _) => "",
                (_, Regime::MeanSquareDiverges) => " in the mean; in the mean square the present step is too large",
                _ => " in the mean; the limit of the mean square was not computed",
            };
            format!("up to {}{kind}", rounded_down(found.step))
        }
        Err(reason) if reason.code == ReasonCode::TakesTooLong => "not computed: it takes too long".into(),
        Err(reason) => reason.text.clone(),
    })
}

/// The cost of the target, or the reason why the error stays above it.
fn target_text(target: &MethodTarget) -> String {
    match &target.reach {
        Ok(Reach::After(after)) => {
            let (about, rounds) = rounds(after);
            let cost = target.cost.as_ref().map_or(String::new(), |cost| format!(": {}", amounts(cost, rounds)));
            format!("{} after {about}{} rounds{cost}", number(target.mse), thousands(rounds))
        }
        Ok(Reach::AtStart(_)) => format!("{} already at the start", number(target.mse)),
        Ok(Reach::Never(Obstacle::Bias(bias))) => format!("{} is not reached: the squared bias is {}", number(target.mse), number(*bias)),
        Ok(Reach::Never(Obstacle::Noise(floor, _))) => {
            format!("{} is not reached: noise keeps the floor at {}", number(target.mse), number(*floor))
        }
        Ok(Reach::Never(Obstacle::Diverges)) => format!("{} is not reached: the method diverges", number(target.mse)),
        Err(reason) => format!("{}: {}", number(target.mse), reason.text),
    }
}

/// The rounds to a target, and whether they are an estimate.
fn rounds(after: &fedsa_theory::predict::Rounds) -> (&'static str, f64) {
    if after.curve.is_some() { ("", after.rounds) } else { ("about ", two_digits(after.rounds)) }
}

/// The table: its head, and one line per row.
fn table(report: &TheoryReport, target: Option<f64>, most: usize) -> Vec<String> {
    let mut head = vec!["method", "floor", "limited by", "helps most", "stable up to"];
    let goal = target.map(|mse| format!("rounds to {}", number(mse)));
    head.extend(goal.as_deref());
    let mut rows = vec![row(&head)];
    rows.extend(report.methods.iter().take(most).map(|method| cells(method, target.is_some())));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..head.len()).map(width).collect();
    // A table that is too wide loses text of the last column first, then of names.
    let mut over = (widths.iter().sum::<usize>() + 2 * widths.len()).saturating_sub(WIDTH);
    for (column, least) in [(0, WIDEST), (3, 27), (0, NARROWEST), (2, 12), (3, 8)] {
        let less = over.min(widths[column].saturating_sub(least));
        widths[column] -= less;
        over -= less;
    }
    let line = |row: &Vec<String>| {
        let shown = |column: usize, cell: &str| if column == 0 { cut_middle(cell, widths[0]) } else { cut(cell, widths[column]) };
        let cells = row.iter().enumerate().map(|(column, cell)| format!("{:<width$}", shown(column, cell), width = widths[column]));
        format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_string()
    };
    rows.iter().map(line).collect()
}

/// The cells of a method.
fn cells(method: &MethodTheory, has_target: bool) -> Vec<String> {
    let nothing = || "-".to_string();
    let floor = match (&method.refused, &method.rounds, &method.limits, &method.floor) {
        (Some(_), ..) => "refused".to_string(),
        (_, Ok(()), Ok(limits), _) if limits.floor <= method.bias_rounding => "none".into(),
        (_, _, _, Ok(floor)) => {
            let mark = if floor.accuracy == Accuracy::Exact { "" } else { "~" };
            format!("{mark}{}", number(floor.value.mse()))
        }
        (_, _, _, Err(reason)) => match reason.code {
            ReasonCode::Diverges => "DIVERGES".into(),
            ReasonCode::TakesTooLong => "too long".into(),
            _ => "not known".into(),
        },
    };
    let limits = method.above_rounding();
    let limited = limits.map_or_else(nothing, |limits| largest_share(limits, link_name(method)));
    // The value of a changed setting follows a comma.
    let short = |what: &str| what.split_once(',').map_or(what, |(what, _)| what).to_string();
    let help = limits.and_then(|limits| {
        let (change, floor) = best(&method.changes, limits)?;
        Some(format!("{}: {}", short(&change.what), against(floor, limits.floor)))
    });
    let stable = match (&method.refused, method.stability.largest.as_ref()) {
        (None, Some(Ok(found))) if found.step.is_infinite() => "every step".into(),
        (None, Some(Ok(found))) if found.in_mean_square => rounded_down(found.step),
        (None, Some(Ok(found))) => format!("{} (mean)", rounded_down(found.step)),
        (None, Some(Err(reason))) if reason.code == ReasonCode::TakesTooLong => "too long".into(),
        _ => nothing(),
    };
    let mut cells = vec![name(method), floor, limited, help.unwrap_or_else(nothing), stable];
    if has_target {
        cells.push(match method.target.as_ref().map(|target| &target.reach) {
            Some(Ok(Reach::After(after))) => {
                let (about, rounds) = rounds(after);
                format!("{about}{}", thousands(rounds))
            }
            Some(Ok(Reach::AtStart(_))) => "0".into(),
            Some(Ok(Reach::Never(Obstacle::Bias(_)))) => "never: bias".into(),
            Some(Ok(Reach::Never(Obstacle::Noise(..)))) => "never: noise".into(),
            Some(Ok(Reach::Never(Obstacle::Diverges))) => "never".into(),
            Some(Err(_)) => "not known".into(),
            None => nothing(),
        });
    }
    cells
}

/// The reasons for unknown numbers in a table, each once with its number of methods.
fn reasons(report: &TheoryReport) -> Vec<String> {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for method in report.methods.iter().filter(|method| method.floor_mse().is_none() && !method.outlook.is_unstable()) {
        let why = match (&method.refused, &method.rounds, &method.floor) {
            (Some(reason), ..) => format!("refused: {reason}"),
            (_, Err(reason), _) | (_, _, Err(reason)) => reason.text.clone(),
            _ => continue,
        };
        match all.iter_mut().find(|(known, _)| *known == why) {
            Some((_, labels)) => labels.push(&method.label),
            None => all.push((why, vec![&method.label])),
        }
    }
    if report.methods.iter().any(|method| method.floor.as_ref().is_ok_and(|floor| floor.accuracy != Accuracy::Exact)) {
        all.push(("~: a closure, or the leading order in the step size (--full)".into(), Vec::new()));
    }
    let line = |(why, mut labels): (String, Vec<&str>)| {
        labels.dedup();
        let of = match labels[..] {
            [] => String::new(),
            [one] => format!("{one}: "),
            [first, ..] => format!("{first} and {} more: ", labels.len() - 1),
        };
        cut(&format!("{of}{why}"), WIDTH)
    };
    all.into_iter().map(line).collect()
}

/// A text of at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    let kept: String = text.chars().take(most.saturating_sub(2)).collect();
    format!("{}..", kept.trim_end())
}

/// A text of at most `most` characters, cut in the middle, because points of a sweep differ at their ends.
fn cut_middle(text: &str, most: usize) -> String {
    let letters: Vec<char> = text.chars().collect();
    if letters.len() <= most {
        return text.to_string();
    }
    let tail = (most - 2) / 2;
    let head = most - 2 - tail;
    format!("{}..{}", letters[..head].iter().collect::<String>(), letters[letters.len() - tail..].iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_to_their_width() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("a long text", 8), "a long..");
        assert_eq!(cut("äöüäöü", 4), "äö..");
        assert_eq!((cut_middle("FedLSA, H = 100", 11), cut_middle("FedLSA", 6)), ("FedLS.. 100".to_string(), "FedLSA".to_string()));
    }

    #[test]
    fn shares_name_the_largest_part_first() {
        let limits = Limits {
            floor: 2.0,
            accuracy: Accuracy::Exact,
            bias: 0.5,
            samples: Some(1.51),
            mixing: Some(-0.1),
            link: Some(0.01),
            participation: None,
        };
        assert_eq!(shares(&limits, "link"), "samples 76%, bias 25%, mixing -5%");
    }
}
