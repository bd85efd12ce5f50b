//! `cost`: the costs of two methods to reach a level.

use fedsa::error::{BadInput, Result};

use crate::checks::facts::{Context, PlanFacts};
use crate::checks::verdict::{Asked, Measured};
use crate::checks::{CheckKind, Keys, method_of, metric_of, over_of, range_of};
use crate::config::Check;
use crate::numbers;
use crate::results::paid;

/// The cost of `over` when its mean metric first falls to `level`, divided by that of `method`, lies between `min` and
/// `max`. `cost` names the count, `bits_up` by default.
pub struct CostCheck;

impl CheckKind for CostCheck {
    fn name(&self) -> &'static str {
        "cost"
    }

    fn keys(&self) -> Keys {
        Keys { needs: &["over", "level"], needs_one: &["min", "max"], takes: &["metric", "cost"] }
    }

    fn possible(&self, facts: &PlanFacts<'_>, check: &Check, point: usize, cell: usize) -> Result<()> {
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

    fn measure(&self, ctx: &Context<'_>, check: &Check) -> Result<Vec<Measured>> {
        let level = check.level.expect("validated");
        let count = paid(check.cost.as_deref());
        let one = |(point, cell): (usize, usize)| {
            let spent = |cell: usize| {
                let label = &ctx.facts.plan.cells[cell].method.label;
                let at = ctx.facts.at(point);
                let missed = || BadInput::new("", format!("{label} does not reach {}{at}", numbers::number(level)), "");
                let paid = ctx.results.cost(cell, metric_of(check), level, count).ok_or_else(missed)?;
                let free = || BadInput::new("", format!("{label} is at {} from the start, at no cost{at}", numbers::number(level)), "");
                if paid > 0.0 { Ok(paid) } else { Err(free()) }
            };
            let measured = spent(ctx.facts.over(check, point)?)? / spent(cell)?;
            Ok(Measured::new(measured, Asked::within(check.min, check.max), ctx.facts.place(point)))
        };
        ctx.cells(check)?.into_iter().map(one).collect()
    }

    fn text(&self, check: &Check) -> String {
        let count = paid(check.cost.as_deref()).name;
        let (method, over, level) = (method_of(check), over_of(check), numbers::number(check.level.unwrap_or(f64::NAN)));
        format!("the {count} of {over} until its {} is {level}, over those of {method}, are {}", metric_of(check), range_of(check))
    }
}
