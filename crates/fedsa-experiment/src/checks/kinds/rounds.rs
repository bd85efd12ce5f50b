//! `rounds`: the rounds that two methods need to reach a multiple of a floor.

use fedsa::error::{Error, Result};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::numbers;
use crate::results::Estimate;

/// The rounds of `method` until the metric falls to `max` times the floor of `over`, divided by the rounds of `over`, are within
/// `tolerance` of the expected ratio, by default 1.
pub struct RoundsCheck;

impl CheckKind for RoundsCheck {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        facts.metric(cell, check.metric_name())?;
        facts.floor(facts.over(check, point)?, check.metric_name())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let (times, tolerance) = (check.max.expect("validated"), check.tolerance.expect("validated"));
        let expected = if check.expected.is_some() { check.number() } else { 1.0 };
        let one = |(point, cell): (usize, usize)| {
            let over = ctx.facts.over(check, point)?;
            let level = times * Estimate::of(&ctx.floors(over, check.metric_name())?).mean;
            let until = |cell: usize| {
                let label = &ctx.facts.plan.cells[cell].method.label;
                let curve = ctx.results.curve(cell, check.metric_name());
                let first = curve.iter().find(|(_, values)| Estimate::of(values).mean <= level).map(|(row, _)| row.round as f64);
                let shown = numbers::number(level);
                match first {
                    Some(t) if t > 0.0 => Ok(t),
                    Some(_) => Err(Error::new("", format!("{label} starts at the level {shown} already"), "")),
                    None => Err(Error::new("", format!("{label} never reaches the level {shown}"), "")),
                }
            };
            let measured = until(cell)? / until(over)?;
            let allowance = format!("tolerance {}", numbers::percent(tolerance));
            let asked = Asked::near(expected, tolerance * expected);
            Ok(Measured { allowance, ..Measured::new(measured, asked, ctx.facts.place(point)) })
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let expected = numbers::number(if check.expected.is_some() { check.number() } else { 1.0 });
        let (method, over, times) = (check.method_label(), check.over_label(), numbers::number(check.max.unwrap_or(f64::NAN)));
        format!(
            "{method} takes {expected} times as many rounds as {over} until {} is {times} times the floor of {over}",
            check.metric_name()
        )
    }
}
