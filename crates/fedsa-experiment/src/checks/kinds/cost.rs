//! `cost`: the cost of a method to reach a level, alone or relative to another method or point.

use fedsa::error::{Error, Result};

use crate::checks::allow::range_of;
use crate::checks::facts::{Context, PlanFacts};
use crate::checks::kind::CheckKind;
use crate::checks::verdict::{Asked, Measured};
use crate::config::Check;
use crate::config::schema::CostLevel;
use crate::numbers;
use crate::results::paid;

/// The cost of `method` when its mean metric first falls to `level` lies between `min` and `max`. With `over` it is the ratio of the cost
/// of `over` to that cost; with `along` the ratio of this number at every point along a coordinate to the first. `cost` names the count, by
/// default `bits_up`.
pub struct CostCheck;

impl CheckKind for CostCheck {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
        let over = check.over.as_ref().map(|_| facts.over(check, point)).transpose()?;
        for cell in [cell].into_iter().chain(over) {
            facts.metric(cell, check.metric_name())?;
            let draws = facts.plan.field(cell).sampling().samples_per_step() > 0;
            if check.cost.as_deref() == Some("samples") && !draws {
                let what = "no samples are drawn under the mean operator";
                return Err(Error::new("cost", what, "another count, or another sampling"));
            }
        }
        Ok(())
    }

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let level = check.level.expect("validated");
        let count = paid(check.cost.as_deref());
        let one = |(point, cell): (usize, usize)| -> Result<f64> {
            let spent = |cell: usize| {
                let label = &ctx.facts.plan.cells[cell].method.label;
                let at = ctx.facts.at(point);
                let missed = || Error::new("", format!("{label} does not reach {}{at}", numbers::number(level)), "");
                let wanted = CostLevel { value: level, is_relative: false };
                let paid = ctx.results.cost(cell, check.metric_name(), wanted, count).ok_or_else(missed)?;
                let free = || Error::new("", format!("{label} is at {} from the start, at no cost{at}", numbers::number(level)), "");
                if paid > 0.0 { Ok(paid) } else { Err(free()) }
            };
            match check.over {
                Some(_) => Ok(spent(ctx.facts.over(check, point)?)? / spent(cell)?),
                None => spent(cell),
            }
        };
        let measured = |x: f64, point: usize| Measured::new(x, Asked::within(check.min, check.max), ctx.facts.place(point));
        let cells = ctx.cells(check)?;
        if check.along.is_none() {
            return cells.into_iter().map(|at| Ok(measured(one(at)?, at.0))).collect();
        }
        let mut out = Vec::new();
        for members in ctx.facts.groups(check, &cells)? {
            let first = one(members[0])?;
            for at in &members[1..] {
                out.push(measured(one(*at)? / first, at.0));
            }
        }
        Ok(out)
    }

    fn text(&self, check: &Check) -> String {
        let count = paid(check.cost.as_deref()).name;
        let (method, level) = (check.method_label(), numbers::number(check.level.unwrap_or(f64::NAN)));
        let Some(over) = &check.over else {
            return format!("the {count} of {method} until its {} is {level} are {}", check.metric_name(), range_of(check));
        };
        format!("the {count} of {over} until its {} is {level}, over those of {method}, are {}", check.metric_name(), range_of(check))
    }
}
