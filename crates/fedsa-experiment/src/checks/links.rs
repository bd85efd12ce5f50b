//! Checks about transients, and about what links do to floors.

use fedsa::error::{BadInput, Result};

use super::verdict::{Asked, Measured};
use super::{Context, Facts, metric_of, number_of, over_of, range_of};
use crate::config::Check;
use crate::numbers::number;
use crate::results::{Estimate, paid};

pub(super) fn gap_possible(facts: &Facts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
    facts.floor(cell, metric_of(check))?;
    facts.floor(facts.over(check, point)?, metric_of(check))
}

/// How much the difference of two methods' floors falls along a coordinate.
pub(super) fn gap(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let one = |members: Vec<(usize, usize)>| {
        let gap = |(point, cell): (usize, usize)| -> Result<f64> {
            let other = ctx.facts.over(check, point)?;
            let mean = |cell| Ok::<f64, BadInput>(Estimate::of(&ctx.floors(cell, metric_of(check))?).mean);
            Ok((mean(cell)? - mean(other)?).abs())
        };
        let (first, last) = (gap(members[0])?, gap(members[members.len() - 1])?);
        if first == 0.0 {
            return Err(BadInput::new("", "there is no difference to begin with", ""));
        }
        Ok(Measured::new(first / last, Asked::within(check.min, None), ctx.facts.place_of_group(check, members[0].0)))
    };
    ctx.facts.groups(check, &ctx.cells(check)?)?.into_iter().map(one).collect()
}

pub(super) fn gap_text(check: &Check) -> String {
    let (method, over, along) = (super::method_of(check), over_of(check), check.along.as_deref().unwrap_or_default());
    let least = number(check.min.unwrap_or(f64::NAN));
    format!(
        "the difference of the floors of {} of {method} and {over} falls at least {least} times from the first to the last {along}",
        metric_of(check)
    )
}

pub(super) fn peak_possible(facts: &Facts<'_>, check: &Check, _: usize, cell: usize) -> Result<()> {
    facts.metric(cell, metric_of(check))?;
    facts.round(cell, "after", check.after)
}

/// The largest value of the mean over seeds, from some round on.
pub(super) fn peak(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let from = check.after.unwrap_or(0);
    let one = |(point, cell): (usize, usize)| {
        let curve = ctx.results.curve(cell, metric_of(check));
        let means = curve.iter().filter(|(row, _)| row.round >= from).map(|(_, values)| Estimate::of(values).mean);
        let largest = means.reduce(|a, b| if b.is_nan() || b > a { b } else { a });
        let largest = largest.ok_or_else(|| BadInput::new("", format!("all seeds ended before round {from}"), ""))?;
        Ok(Measured::new(largest, Asked::within(check.min, check.max), ctx.facts.place(point)))
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn peak_text(check: &Check) -> String {
    let from = check.after.map_or(String::new(), |t| format!(" from round {t} on"));
    format!("the largest mean {} of {}{from} is {}", metric_of(check), super::method_of(check), range_of(check))
}

pub(super) fn cost_possible(facts: &Facts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
    let over = facts.over(check, point)?;
    for cell in [cell, over] {
        facts.metric(cell, metric_of(check))?;
        let draws = facts.plan.field(cell).sampling().samples_per_step() > 0;
        if check.cost.as_deref() == Some("samples") && !draws {
            let what = "no samples are drawn under the mean operator";
            return Err(BadInput::new("cost", what, "another count, or another sampling"));
        }
    }
    Ok(())
}

/// What another method pays to reach a level, over what this one pays.
pub(super) fn cost(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let level = check.level.expect("validated");
    let count = paid(check.cost.as_deref());
    let one = |(point, cell): (usize, usize)| {
        let spent = |cell: usize| {
            let label = &ctx.facts.plan.cells[cell].method.label;
            let at = ctx.facts.at(point);
            let missed = || BadInput::new("", format!("{label} does not reach {}{at}", number(level)), "");
            let paid = ctx.results.cost(cell, metric_of(check), level, count).ok_or_else(missed)?;
            let free = || BadInput::new("", format!("{label} is at {} before anything is paid{at}", number(level)), "");
            if paid > 0.0 { Ok(paid) } else { Err(free()) }
        };
        let measured = spent(ctx.facts.over(check, point)?)? / spent(cell)?;
        Ok(Measured::new(measured, Asked::within(check.min, check.max), ctx.facts.place(point)))
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn cost_text(check: &Check) -> String {
    let count = paid(check.cost.as_deref()).name;
    let (method, over, level) = (super::method_of(check), over_of(check), number(check.level.unwrap_or(f64::NAN)));
    format!("the {count} of {over} until its {} is {level}, over those of {method}, are {}", metric_of(check), range_of(check))
}

pub(super) fn rounds_possible(facts: &Facts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
    facts.metric(cell, metric_of(check))?;
    facts.floor(facts.over(check, point)?, metric_of(check))
}

/// Rounds until a multiple of another method's floor, over those that the other takes.
pub(super) fn rounds(ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
    let (times, tolerance) = (check.max.expect("validated"), check.tolerance.expect("validated"));
    let expected = if check.expected.is_some() { number_of(check) } else { 1.0 };
    let one = |(point, cell): (usize, usize)| {
        let over = ctx.facts.over(check, point)?;
        let level = times * Estimate::of(&ctx.floors(over, metric_of(check))?).mean;
        let until = |cell: usize| {
            let label = &ctx.facts.plan.cells[cell].method.label;
            let curve = ctx.results.curve(cell, metric_of(check));
            let first = curve.iter().find(|(_, values)| Estimate::of(values).mean <= level).map(|(row, _)| row.round as f64);
            let shown = number(level);
            match first {
                Some(t) if t > 0.0 => Ok(t),
                Some(_) => Err(BadInput::new("", format!("{label} starts at the level {shown} already"), "")),
                None => Err(BadInput::new("", format!("{label} never reaches the level {shown}"), "")),
            }
        };
        let measured = until(cell)? / until(over)?;
        let allowance = format!("tolerance {}", crate::numbers::percent(tolerance));
        let asked = Asked::near(expected, tolerance * expected);
        Ok(Measured { allowance, ..Measured::new(measured, asked, ctx.facts.place(point)) })
    };
    ctx.cells(check)?.into_iter().map(one).collect()
}

pub(super) fn rounds_text(check: &Check) -> String {
    let expected = number(if check.expected.is_some() { number_of(check) } else { 1.0 });
    let (method, over, times) = (super::method_of(check), over_of(check), number(check.max.unwrap_or(f64::NAN)));
    format!("{method} takes {expected} times as many rounds as {over} until {} is {times} times the floor of {over}", metric_of(check))
}
